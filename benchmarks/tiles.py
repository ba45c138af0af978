"""Tiles: the seam against one fit of the whole, time and memory per tile, and how the cost grows with the land.

Run ``python benchmarks/tiles.py [--land great_britain.gpkg finland.gpkg] [--continent 4000000] [--jobs 2]``.

- seam: 40,000 nodes with a lake in 4 tiles, against one fit of the whole with the same hyperparameters; the picture is
  ``benchmarks/results/tiles.png``;
- countries: polygons of files at 1 km, points simulated;
- a made-up continent: a wavy disc with lakes, of growing size, on cells of 1 km.
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
import rasterio
import shapely
from rich.console import Console
from rich.table import Table

from geobgp import LGCP, Domain, FullRank, Matern, bin_points, map_tiles

RESULTS = Path(__file__).resolve().parent / "results"


def continent(nodes: float) -> shapely.Geometry:
    """Return a wavy disc with lakes, of about so many square kilometres, in metres."""
    radius = np.sqrt(nodes / np.pi) * 1000.0
    angle = np.linspace(0, 2 * np.pi, 2000, endpoint=False)
    wavy = radius * (1 + 0.12 * np.sin(5 * angle) + 0.05 * np.sin(17 * angle + 1) + 0.02 * np.sin(71 * angle))
    land = shapely.Polygon(np.column_stack([wavy * np.cos(angle), wavy * np.sin(angle)]))
    rng = np.random.default_rng(0)
    lakes = [
        shapely.Point(*rng.uniform(-0.8 * radius, 0.8 * radius, 2)).buffer(rng.uniform(2e3, 9e3))
        for _ in range(max(3, int(nodes / 20_000)))
    ]
    return shapely.difference(land, shapely.union_all(lakes))


def points_on(land: shapely.Geometry, n: int, length: float, seed: int = 1) -> np.ndarray:
    """Return points on land: Gaussian clusters of about a lengthscale around random places, and some evenly."""
    rng = np.random.default_rng(seed)
    west, south, east, north = shapely.bounds(land)
    shapely.prepare(land)
    found: list[np.ndarray] = []
    while sum(map(len, found)) < n:
        places = rng.uniform((west, south), (east, north), (max(n // 40, 1), 2))
        near = places[rng.integers(len(places), size=n)] + rng.normal(0, 0.7 * length, (n, 2))
        even = rng.uniform((west, south), (east, north), (n // 2, 2))
        both = np.vstack([near, even])
        found.append(both[shapely.contains_xy(land, both[:, 0], both[:, 1])])
    return rng.permutation(np.concatenate(found))[:n]


def seam(jobs: int) -> list[str]:
    """Compare four tiles with the whole, and draw where they differ."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    land = shapely.difference(shapely.box(0, 0, 205, 200), shapely.Point(90, 110).buffer(17))
    domain = Domain.from_polygons(land, cell_size=1.0, crs="local")
    rng = np.random.default_rng(3)
    field = FullRank(domain).sample_prior(Matern(1.0, 8.0, 1.0), 1, rng, "even")[0]
    weight = domain.node_areas * np.exp(field)
    node = rng.choice(domain.n_nodes, 12_000, p=weight / weight.sum())
    coords = domain.node_points[node] + rng.uniform(-0.3, 0.3, (12_000, 2))
    coords = coords[domain.locate(coords) >= 0]
    told = {"cell_size": 1.0, "crs": "local", "permeability": 0.0, "tile_nodes": 11_000, "n_jobs": jobs}
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        made = map_tiles(coords, land, Path(folder) / "out", **told)
        seconds = time.perf_counter() - begin
        with rasterio.open(made.raster) as source:
            mean, sd = source.read(1), source.read(2)
    begin = time.perf_counter()
    whole = LGCP(FullRank(domain), Matern(1.0, made.lengthscale, made.sd)).fit(bin_points(coords, domain)).intensity()
    alone = time.perf_counter() - begin
    off = 100 * (mean - whole["mean"].values) / whole["sd"].values
    figure, axes = plt.subplots(1, 3, figsize=(15, 4.6), layout="constrained")
    extent = (0, 205, 0, 200)
    for ax, values, title, how in (
        (axes[0], np.log(mean), "log mean intensity, four tiles", {"cmap": "magma"}),
        (axes[1], np.log(whole["mean"].values), "log mean intensity, one fit", {"cmap": "magma"}),
        (
            axes[2],
            off,
            "difference of the means, per cent of the posterior sd",
            {"cmap": "RdBu_r", "vmin": -2, "vmax": 2},
        ),
    ):
        figure.colorbar(ax.imshow(values, extent=extent, **how), ax=ax, shrink=0.85)
        ax.set_title(title, fontsize=11)
    figure.savefig(RESULTS / "tiles.png", dpi=110)
    ratio = sd / whole["sd"].values
    return [
        f"seam, {domain.n_nodes:,} nodes in {len(made.table)} tiles",
        f"{np.nanmax(np.abs(off)):.2f} % of the posterior sd at most, {np.nanquantile(np.abs(off), 0.99):.2f} % at 99 "
        f"of 100 cells; sd {100 * (np.nanmin(ratio) - 1):+.2f} to {100 * (np.nanmax(ratio) - 1):+.2f} %",
        f"{seconds:.0f} s (one fit, hyperparameters held: {alone:.0f} s)",
    ]


def row(
    name: str, land: gpd.GeoSeries | shapely.Geometry, points: np.ndarray, crs: object, jobs: int, tile_nodes: int
) -> list[str]:
    """Map one land at 1 km, and return a row of the table."""
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        made = map_tiles(
            points, land, Path(folder) / "out", cell_size=1000.0, crs=crs, permeability=0.0, tile_nodes=tile_nodes,
            n_jobs=jobs, progress=True,
        )  # fmt: skip
        seconds = time.perf_counter() - begin
    t = made.table
    return [
        name,
        f"{t['core_nodes'].sum():,}",
        str(len(t)),
        f"{len(points):,}",
        f"{made.lengthscale / 1000:.0f} km",
        f"{t['seconds'].median():.0f} (at most {t['seconds'].max():.0f})",
        f"{t['nodes'].median():,.0f}",
        f"{t['megabytes'].max():,.0f}",
        f"{seconds:.0f}",
        f"{1e6 * t['seconds'].sum() / t['core_nodes'].sum():.0f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--land", type=Path, nargs="*", default=[], help="files with polygons of countries")
    parser.add_argument("--continent", type=float, nargs="*", default=[250_000, 1_000_000, 4_000_000])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--tile-nodes", type=int, default=50_000)
    parser.add_argument("--no-seam", action="store_true")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    console = Console(width=160)
    if not arguments.no_seam:
        console.print("; ".join(seam(arguments.jobs)))
    table = Table(
        "land at 1 km", "nodes", "tiles", "points", "lengthscale", "seconds per tile", "nodes with halo", "MB, most",
        "seconds in all", "seconds of tiles per million nodes",
    )  # fmt: skip
    for path in arguments.land:
        frame = gpd.read_file(path)
        metric = frame.to_crs(frame.estimate_utm_crs())
        shape = shapely.union_all(metric.geometry.to_numpy())
        points = points_on(shape, int(shapely.area(shape) / 1e6 / 20), 15_000.0)
        table.add_row(*row(path.stem, metric, points, metric.crs, arguments.jobs, arguments.tile_nodes))
    for nodes in arguments.continent:
        land = continent(nodes)
        points = points_on(land, int(nodes / 20), 15_000.0)
        table.add_row(*row(f"continent of {nodes:,.0f}", land, points, "local", arguments.jobs, arguments.tile_nodes))
    console.print(table)
    console.print(f"{arguments.jobs} processes, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
