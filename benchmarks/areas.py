"""Counts by area on simulated land: coverage and error of rows, against counts that are spread or put on a centroid.

The log-intensity is drawn from the prior on a land with a lake and an island; hyperparameters are learned. Areas are
Voronoi cells of random places. The regions whose totals are judged are discs that cut across them.

    python benchmarks/areas.py [--seeds 100]
"""

from __future__ import annotations

import argparse
import time
import warnings

import geopandas as gpd
import numpy as np
import shapely
from tables import keep, machine, table

from geobgp import LGCP, Domain, HarmonicBasis, Matern, bin_areas, simulate_points
from geobgp.land.regions import area_shares

SIDE, LENGTHSCALE, SD, EVENTS = 40.0, 8.0, 0.8, 5000.0
AREAS = (12, 60, 300)
WAYS = ("rows", "rows, integrated", "spread", "centroid")


def land() -> shapely.Geometry:
    """Return a square with a lake, and an island beside it."""
    lake = shapely.Point(14.0, 24.0).buffer(5.0)
    island = shapely.box(SIDE + 2, 10, SIDE + 8, 22)
    return shapely.union_all([shapely.box(0, 0, SIDE, SIDE).difference(lake), island])


def truth(basis: HarmonicBasis, rng: np.random.Generator) -> np.ndarray:
    """Return an intensity per node, drawn from the even prior."""
    scale = np.sqrt(Matern(1.5, LENGTHSCALE, 1.0).spectral_density(np.sqrt(basis.eigenvalues)))
    field = basis.features @ (scale * rng.standard_normal(basis.m))
    rate = np.exp(SD * field / np.sqrt(basis.features**2 @ scale**2))
    return EVENTS * rate / float(rate @ basis.domain.node_areas)


def districts(domain: Domain, n: int, rng: np.random.Generator) -> gpd.GeoDataFrame:
    """Return Voronoi cells of n random nodes."""
    at = domain.node_points[rng.choice(domain.n_nodes, n, replace=False)]
    places = shapely.MultiPoint(at + rng.uniform(-0.4, 0.4, at.shape))
    around = shapely.box(-1, -1, SIDE + 9, SIDE + 1)
    cells = shapely.get_parts(shapely.voronoi_polygons(places, extend_to=around))
    return gpd.GeoDataFrame(geometry=shapely.intersection(cells, around))


def fitted(way: str, basis: HarmonicBasis, areas: gpd.GeoDataFrame) -> object:
    """Return the posterior of a way to take counts by area."""
    model, domain = LGCP(basis), basis.domain
    counts = bin_areas(areas, domain, "cases")
    if way == "rows":
        return model.fit(counts)
    if way == "rows, integrated":
        return model.fit(counts, hyper="integrate")
    if way == "spread":
        weights = counts.shares.multiply(domain.node_areas).tocsr()
        total = np.asarray(weights.sum(axis=1)).ravel()
        return model.fit(weights.T @ (counts.values / total))
    centre = np.c_[shapely.get_x(c := shapely.centroid(counts.geometry)), shapely.get_y(c)]
    node, _ = domain.nearest(centre, 10 * SIDE)
    return model.fit(np.bincount(node, counts.values, domain.n_nodes))


def judged(
    posterior: object, rate: np.ndarray, discs: gpd.GeoDataFrame, areas: gpd.GeoDataFrame
) -> list[float]:
    """Return coverage of nodes and of discs, the error of the log-intensity, and how far the areas' totals are off."""
    at = posterior.node_intensity((0.05, 0.5, 0.95))
    nodes = np.mean((at["q05"] <= rate) & (rate <= at["q95"]))
    error = float(np.sqrt(np.mean((np.log(at["q50"]) - np.log(rate)) ** 2)))
    true = area_shares(posterior.domain, discs) @ (rate * posterior.domain.node_areas)
    totals = posterior.totals(discs, n_samples=500)
    within = np.mean((totals["q05"] <= true) & (true <= totals["q95"]))
    held = posterior.totals(areas[["geometry"]], n_samples=2)["expected"]
    off = np.mean((held - areas["cases"]).abs() / np.sqrt(areas["cases"] + 1))
    return [float(nodes), float(within), error, float(off)]


def report(found: dict[tuple[int, str], list[list[float]]], basis: HarmonicBasis, seeds: int) -> None:
    """Write the table of what there is."""
    rows = []
    for (n, way), each in found.items():
        nodes, within, error, off, took = np.mean(each, axis=0)
        rows.append(
            [str(n), way, f"{nodes:.0%}", f"{within:.0%}", f"{error:.3f}", f"{off:.2f}", f"{took:.2f}"]
        )
    header = ["areas", "way", "nodes in 90 %", "discs in 90 %", "RMSE of log", "areas off, sd", "seconds"]
    said = (
        f"{machine()}\nMeans over {seeds} simulated data sets of about {EVENTS:,.0f} events on "
        f"{basis.domain.n_nodes:,} nodes, {basis.m} features (centroids: every fifth data set).\n"
        "90 % intervals of the intensity at the nodes and of the totals of 20 discs across areas; error of the median "
        "log-intensity; expected less observed numbers of the areas, in Poisson standard deviations."
    )
    keep("areas", f"# Counts by area\n\n{said}\n\n{table(header, rows)}")


def main() -> None:
    """Run all seeds, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=100)
    seeds = parser.parse_args().seeds
    warnings.simplefilter("ignore")
    domain = Domain.from_polygons(land(), cell_size=1.0, crs="local")
    basis = HarmonicBasis.compute(domain, 100, cache=False)
    found: dict[tuple[int, str], list[list[float]]] = {}
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        rate = truth(basis, rng)
        points = simulate_points(domain, rate, seed)
        middle = domain.node_points[rng.choice(domain.n_nodes, 20)]
        discs = gpd.GeoDataFrame(geometry=shapely.buffer(shapely.points(middle), rng.uniform(2, 8, 20)))
        for n in AREAS:
            areas = districts(domain, n, rng)
            inside = gpd.sjoin(points, areas, predicate="within")["index_right"]
            areas["cases"] = np.bincount(inside, minlength=len(areas))
            areas = areas[(area_shares(domain, areas).sum(axis=1) > 0)].reset_index(drop=True)
            for way in WAYS:
                if way == "centroid" and seed % 5:  # its sd runs away, which takes long
                    continue
                begin = time.perf_counter()
                posterior = fitted(way, basis, areas)
                took = time.perf_counter() - begin
                found.setdefault((n, way), []).append([*judged(posterior, rate, discs, areas), took])
        if seed % 20 == 19 or seed + 1 == seeds:
            report(found, basis, seed + 1)


if __name__ == "__main__":
    main()
