"""How the time to make a domain grows as cells shrink: it follows the shoreline, not the area."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import geopandas as gpd
import numpy as np
import shapely
from tables import machine

from geobgp import Domain
from geobgp.prior.laplacian import discretise

SAMPLE = Path(__file__).parents[1] / "sample_data"


def best_of(repeat, call):
    times, out = [], None
    for _ in range(repeat):
        begin = time.perf_counter()
        out = call()
        times.append(time.perf_counter() - begin)
    return min(times), out


def archipelago(n: int = 2900, side: float = 400_000.0, seed: int = 1) -> gpd.GeoSeries:
    """Islands of 300 m to 40 km that do not touch, with 54,000 vertices in all."""
    rng = np.random.default_rng(seed)
    centre, radius = np.empty((0, 2)), np.empty(0)
    while len(radius) < n:
        r, place = float(np.clip(rng.lognormal(np.log(1500), 0.9), 300, 40_000)), rng.uniform(0, side, 2)
        if (np.hypot(*(centre - place).T) > 1.15 * (radius + r)).all():
            centre, radius = np.vstack([centre, place]), np.append(radius, r)
    islands = []
    for place, r in zip(centre, radius, strict=True):
        angle = np.sort(rng.uniform(0, 2 * np.pi, int(np.clip(8 + 11 * r / 1500, 10, 600))))
        reach = r * rng.uniform(0.6, 1.0, len(angle))
        islands.append(shapely.Polygon(place + np.c_[reach * np.cos(angle), reach * np.sin(angle)]))
    return gpd.GeoSeries(shapely.make_valid(islands), crs=32635).translate(300_000, 6_600_000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=2)
    repeat = parser.parse_args().repeat
    land, water = SAMPLE / "netherlands_land.gpkg", SAMPLE / "netherlands_water.gpkg"
    print(f"Netherlands sample; {machine('shapely')}; best of {repeat}")
    print(" cell m      cells    nodes cut cells  domain s neumann s dirichlet s")
    rows = []
    for cell_size in (4000, 2000, 1500, 1000, 500, 250):
        seconds, domain = best_of(repeat, lambda h=cell_size: Domain.from_polygons(land, water=water, cell_size=h))
        neumann = best_of(1, lambda d=domain: discretise(d, boundary="neumann"))[0]
        dirichlet = best_of(1, lambda d=domain: discretise(d, boundary="dirichlet"))[0]
        cut = int(((domain.coverage > 0) & ~domain.pieces.whole).sum())
        rows.append((cell_size, domain.n_nodes, seconds))
        print(
            f"{cell_size:7d} {domain.grid.n_cells:10,d} {domain.n_nodes:8,d} {cut:9,d} {seconds:9.2f} "
            f"{neumann:9.2f} {dirichlet:11.2f}"
        )
    (h0, n0, t0), (h1, n1, t1) = rows[-3], rows[-1]
    print(
        f"from {h0} m to {h1} m: {n1 / n0:.1f} times the nodes, {t1 / t0:.1f} times the time "
        f"(time grows as nodes^{np.log(t1 / t0) / np.log(n1 / n0):.2f})"
    )
    islands = archipelago()
    seconds, domain = best_of(repeat, lambda: Domain.from_polygons(islands, cell_size=1900, crs=32635))
    vertices = int(shapely.get_num_coordinates(islands.to_numpy()).sum())
    print(f"{len(islands):,} islands, {vertices:,} vertices: {domain.n_nodes:,} nodes in {seconds:.2f} s")


if __name__ == "__main__":
    main()
