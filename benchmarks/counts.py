"""How fast points are binned: in memory, from files, and off the land.

Run ``python benchmarks/counts.py [--points 10000000]``. Seconds are of the processor (one core), the best of
the repeats.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import geopandas as gpd
import numpy as np
import shapely
from rich.console import Console
from rich.table import Table

from geobgp import Domain, GeobgpWarning, bin_points
from geobgp.land.crs import WGS84, transform

SAMPLE = Path(__file__).resolve().parents[1] / "sample_data"


def best(job: Callable[[], Any], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = time.process_time()
        job()
        times.append(time.process_time() - start)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=10_000_000)
    parser.add_argument("--repeats", type=int, default=2)
    arguments = parser.parse_args()
    n = arguments.points
    warnings.simplefilter("ignore", GeobgpWarning)

    domain = Domain.from_polygons(
        SAMPLE / "netherlands_land.gpkg", water=SAMPLE / "netherlands_water.gpkg", cell_size=1500
    )
    rng = np.random.default_rng(1)
    share = np.cumsum(domain.node_areas)
    nodes = np.searchsorted(share, rng.random(n) * share[-1])
    east, north = domain.grid.centres(domain.node_rows[nodes], domain.node_cols[nodes])
    coords = np.column_stack([east, north]) + rng.uniform(-750, 750, (n, 2))
    degrees = transform(coords, domain.crs, WGS84)
    off = float((domain.locate(coords[:200_000]) < 0).mean())

    frame = gpd.GeoDataFrame(geometry=shapely.points(coords), crs=domain.crs)
    frame_degrees = gpd.GeoDataFrame(geometry=shapely.points(degrees), crs=WGS84)
    chunk = degrees[:1_000_000]
    jobs: list[tuple[str, int, Callable[[], Any]]] = [
        ("array, the domain's CRS", n, lambda: bin_points(coords, domain, on_water="drop")),
        ("GeoDataFrame, the domain's CRS", n, lambda: bin_points(frame, domain, on_water="drop")),
        ("GeoDataFrame, longitude and latitude", n, lambda: bin_points(frame_degrees, domain, on_water="drop")),
        ("GeoDataFrame, moved to the nearest land", n, lambda: bin_points(frame, domain)),
        (
            "iterable of arrays, longitude and latitude",
            10 * len(chunk),
            lambda: bin_points((chunk for _ in range(10)), domain, on_water="drop", crs=WGS84),
        ),
    ]
    with tempfile.TemporaryDirectory() as folder:
        some = frame_degrees.iloc[: min(n, 1_000_000)]
        some.to_file(f"{folder}/p.gpkg")
        some.get_coordinates().rename(columns={"x": "longitude", "y": "latitude"}).to_csv(
            f"{folder}/p.csv", index=False
        )
        names = ["p.gpkg", "p.csv"]
        try:
            some.to_parquet(f"{folder}/p.parquet")
            names.append("p.parquet")
        except ImportError as error:
            print(f"no Parquet here: {error}")
        for name in names:
            path = f"{folder}/{name}"
            jobs.append((f"file: {name[2:]}", len(some), lambda path=path: bin_points(path, domain, on_water="drop")))

        table = Table(title=f"bin_points on {domain.n_nodes:,} nodes; {off:.1%} of the points off the land")
        for column in ("points from", "points", "CPU seconds", "million a second"):
            table.add_column(column, justify="left" if column == "points from" else "right")
        for name, size, job in jobs:
            seconds = best(job, arguments.repeats)
            table.add_row(name, f"{size:,}", f"{seconds:.2f}", f"{size / seconds / 1e6:.2f}")
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
