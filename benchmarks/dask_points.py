"""How fast points in parts are binned, by number of workers, and whether the workers' memory stays flat.

Run ``python benchmarks/dask_points.py [--points 100000000] [--files 40] [--workers 1 2]``. Points on and around the
Netherlands are drawn into GeoParquet files in a temporary folder (16 bytes a point), a tenth of the files beyond the
land, and counted: by the local stream, file after file; as a folder, by this process; and by the workers of a Dask
cluster of this machine. The counts must be equal, every one. Memory is the highest resident size of a worker.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
import warnings
from pathlib import Path

import geopandas as gpd
import numpy as np
from rich.console import Console
from rich.table import Table

from geobgp import Domain, GeobgpWarning, bin_points
from geobgp.land.crs import WGS84, transform

SAMPLE = Path(__file__).resolve().parents[1] / "sample_data"


def write(folder: Path, domain: Domain, points: int, files: int) -> None:
    """Draw points evenly over the box around the land; those of every tenth file lie 8 degrees east of it."""
    west, south, east, north = domain.grid.bounds
    for k in range(files):
        rng = np.random.default_rng(k)
        coords = transform(rng.uniform((west, south), (east, north), (points // files, 2)), domain.crs, WGS84)
        coords[:, 0] += 8.0 * (k % 10 == 9)
        frame = gpd.GeoDataFrame(geometry=gpd.points_from_xy(*coords.T), crs=4326)
        frame.to_parquet(folder / f"part-{k:04d}.parquet", geometry_encoding="geoarrow", row_group_size=500_000)


def peak() -> float:
    """Return the highest resident size of this process, in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=100_000_000)
    parser.add_argument("--files", type=int, default=40)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", GeobgpWarning)

    from distributed import Client, LocalCluster

    domain = Domain.from_polygons(
        SAMPLE / "netherlands_land.gpkg", water=SAMPLE / "netherlands_water.gpkg", cell_size=1500
    )
    table = Table("way", "seconds", "points per second", "against the stream", "memory of a worker, MB")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, domain, arguments.points, arguments.files)
        size = sum(path.stat().st_size for path in folder.iterdir()) / 1e9
        stream: list[float] = []

        def row(way: str, seconds: float, memory: str = "") -> None:
            stream.append(seconds)
            table.add_row(
                way, f"{seconds:.1f}", f"{arguments.points / seconds:,.0f}", f"{stream[0] / seconds:.2f}", memory
            )

        begin = time.perf_counter()
        each = [bin_points(path, domain) for path in sorted(folder.iterdir())]
        row("stream, file after file", time.perf_counter() - begin)
        values, read = sum(c.values for c in each), sum(c.n_read for c in each)
        begin = time.perf_counter()
        local = bin_points(folder, domain)
        row("folder, this process", time.perf_counter() - begin)
        assert np.array_equal(local.values, values) and local.n_read == read
        for n in arguments.workers:
            with (
                LocalCluster(n_workers=n, threads_per_worker=1, memory_limit=0, dashboard_address=":0") as cluster,
                Client(cluster) as client,
            ):
                bin_points(
                    sorted(folder.iterdir())[0].parent / "part-0000.*", domain, client=client
                )  # loads the package
                before = max(client.run(peak).values())
                begin = time.perf_counter()
                found = bin_points(folder, domain, client=client)
                seconds = time.perf_counter() - begin
                after = max(client.run(peak).values())
            row(f"folder, {n} workers", seconds, f"{before:.0f} after one file, {after:.0f} after all")
            assert np.array_equal(found.values, values) and found.report() == local.report()
    load = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    Console(width=140).print(f"{arguments.points:,} points in {arguments.files} files ({size:.2f} GB), {load}", table)


if __name__ == "__main__":
    main()
