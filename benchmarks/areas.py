"""Counts by area on simulated land: coverage and error of rows, against counts that are spread or put on a centroid.

The log-intensity is drawn from the prior on a land with a lake and an island; hyperparameters are learned. Areas are
Voronoi cells of random places. The regions whose totals are judged are discs that cut across them.

Two further parts are about people. In the first the populations of neighbours differ a hundredfold, and counts are
drawn on cells far finer than those of the fit. Exposure is given as polygons, and for comparison by node, where the two
sides of a border can only be shared by land. The second takes North Carolina's counties with their births, and counts
that are 5 % of them.

    python benchmarks/areas.py [--seeds 100] [--parts ways people counties]
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path

import geopandas as gpd
import numpy as np
import shapely
from tables import RESULTS, keep, machine, table

from geobgp import LGCP, Domain, HarmonicBasis, Matern, bin_areas, map_intensity, simulate_points
from geobgp.data.inputs import Inputs, within
from geobgp.land.regions import area_shares, overlay

SIDE, LENGTHSCALE, SD, EVENTS = 40.0, 8.0, 0.8, 5000.0
AREAS = (12, 60, 300)
PEOPLE_AREAS, PEOPLE_CELLS = 60, (1.0, 2.0, 4.0)
COUNTY_CELLS, FLAT = (2500.0, 5000.0, 10_000.0, 20_000.0), 0.05
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


def judged(posterior: object, rate: np.ndarray, discs: gpd.GeoDataFrame, areas: gpd.GeoDataFrame) -> list[float]:
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
        rows.append([str(n), way, f"{nodes:.0%}", f"{within:.0%}", f"{error:.3f}", f"{off:.2f}", f"{took:.2f}"])
    header = ["areas", "way", "nodes in 90 %", "discs in 90 %", "RMSE of log", "areas off, sd", "seconds"]
    said = (
        f"{machine()}\nMeans over {seeds} simulated data sets of about {EVENTS:,.0f} events on "
        f"{basis.domain.n_nodes:,} nodes, {basis.m} features (centroids: every fifth data set).\n"
        "90 % intervals of the intensity at the nodes and of the totals of 20 discs across areas; error of the median "
        "log-intensity; expected less observed numbers of the areas, in Poisson standard deviations."
    )
    section("Ways to take counts by area", f"{said}\n\n{table(header, rows)}")


def section(title: str, text: str) -> None:
    """Write one section of the results, the others being as they were."""
    path = RESULTS / "areas.md"
    old = path.read_text(encoding="utf-8").split("\n## ")[1:] if path.exists() else []
    found = {part.split("\n", 1)[0]: part.split("\n", 1)[1].strip() for part in old} | {title: text}
    keep("areas", "\n\n".join(["# Counts by area", *(f"## {name}\n\n{what}" for name, what in found.items())]))


def people(seeds: int) -> None:
    """Judge rates of districts and of nodes where populations of neighbours differ a hundredfold."""
    fine = Domain.from_polygons(land(), cell_size=0.4, crs="local")
    drawn = HarmonicBasis.compute(fine, 100, cache=False)
    bases = {
        h: HarmonicBasis.compute(Domain.from_polygons(land(), cell_size=h, crs="local"), 100, cache=False)
        for h in PEOPLE_CELLS
    }
    found: dict[tuple[str, float, str], list[list[float]]] = {}
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        areas = districts(fine, PEOPLE_AREAS, rng)
        areas["population"] = np.where(rng.random(len(areas)) < 0.5, 1e4, 1e2)
        areas["geometry"] = areas.intersection(land())
        areas = areas[area_shares(fine, areas).sum(axis=1) > 0].reset_index(drop=True)
        given = Inputs.read(fine, exposure=areas)
        inside = within(fine, overlay(fine, areas), given.given).exposure(given.exposure)
        for name, field in (("flat", np.ones(fine.n_nodes)), ("varying", truth(drawn, rng))):
            rate = EVENTS * field / float(given.exposure @ field)
            by_area = inside @ rate / inside.sum(axis=1)
            areas["cases"] = rng.poisson(inside @ rate)
            for h, basis in bases.items():
                cells = gpd.GeoDataFrame(geometry=list(basis.domain.polygon_of(np.arange(basis.domain.n_nodes))))
                at = within(fine, overlay(fine, cells), given.given).exposure(given.exposure)
                by_node = at @ rate / np.maximum(at.sum(axis=1), 1e-300)
                counts = bin_areas(areas, basis.domain, "cases")
                at_nodes = Inputs.read(basis.domain, exposure=areas).exposure
                for way, exposure in (("as given", areas), ("by node", at_nodes)):
                    if way == "by node" and seed % 5:  # its sd runs away, which takes long
                        continue
                    begin = time.perf_counter()
                    try:
                        posterior = LGCP(basis, exposure=exposure, exposure_column="population").fit(counts)
                    except np.linalg.LinAlgError:
                        if way == "as given":
                            raise
                        continue
                    took = time.perf_counter() - begin
                    totals = posterior.totals(areas[["geometry"]])
                    low, high = (totals[q] / totals["exposure"] for q in ("q05", "q95"))
                    nodes = posterior.node_intensity((0.05, 0.5, 0.95))
                    off = np.abs(totals["exposure"] / areas["population"] - 1.0)
                    found.setdefault((name, h, way), []).append([
                        np.mean((low <= by_area) & (by_area <= high)),
                        np.mean((nodes["q05"] <= by_node) & (by_node <= nodes["q95"])),
                        np.sqrt(np.mean(np.log(nodes["q50"] / by_node) ** 2)), off.max(), took,
                    ])  # fmt: skip
    rows = []
    for (name, h, way), each in found.items():
        in_areas, in_nodes, error, off, took = np.mean(each, axis=0)
        rows.append([
            name, f"{h:g}", way, f"{in_areas:.0%}", f"{in_nodes:.0%}", f"{error:.3f}", f"{off:.1g}", f"{took:.2f}"
        ])  # fmt: skip
    header = ["truth", "cells", "exposure", "districts in 90 %", "nodes in 90 %", "RMSE of log", "exposure off", "s"]
    said = (
        f"{machine()}\nMeans over {seeds} simulated data sets of about {EVENTS:,.0f} events in {PEOPLE_AREAS} "
        "districts, each of 100 or of 10,000 people, drawn on cells of 0.4; districts are about five wide.\n"
        "90 % intervals of the rates of districts and of nodes; error of the median log-rate at the nodes; largest "
        "relative difference between a district's exposure and its people. Exposure as given: polygons, read for the "
        "part of a node in each district; by node: an array, shared by land (every fifth data set, where "
        "the fit does not break down)."
    )
    section("Populations that differ a hundredfold between neighbours", f"{said}\n\n{table(header, rows)}")


def counties(seeds: int) -> None:
    """Judge intervals of counties, counts being 5 % of their births, but for chance."""
    frame = gpd.read_file(Path(__file__).parent.parent / "sample_data" / "north_carolina_sids.gpkg")
    births, shapes, rows = frame["births_1974"].to_numpy(float), frame[["geometry"]], []
    for h in COUNTY_CELLS:
        each = []
        for seed in range(seeds):
            frame["cases"] = np.random.default_rng(seed).poisson(FLAT * births)
            begin = time.perf_counter()
            posterior = map_intensity(
                areas=frame, count="cases", land=frame, exposure=frame, exposure_column="births_1974", cell_size=h,
                cache=False,
            )  # fmt: skip
            took = time.perf_counter() - begin
            totals, nodes = posterior.totals(shapes), posterior.node_intensity((0.05, 0.95))
            each.append([
                np.mean((totals["rate_q05"] <= FLAT) & (totals["rate_q95"] >= FLAT)),
                np.mean((nodes["q05"] <= FLAT) & (nodes["q95"] >= FLAT)),
                np.abs(totals["exposure"] / births - 1.0).max(), took,
            ])  # fmt: skip
        inside, at_nodes, off, took = np.mean(each, axis=0)
        rows.append([f"{h / 1000:g} km", f"{100 * inside:.1f}", f"{at_nodes:.0%}", f"{off:.1g}", f"{took:.1f}"])
    header = ["cells", "of 100 intervals", "nodes in 90 %", "exposure off", "seconds"]
    said = (
        f"{machine()}\nMeans over {seeds} draws of counts that are 5 % of the births of North Carolina's counties: how "
        "many of the 100 counties' 90 % intervals hold 5 %, and of the nodes'; largest relative difference between the "
        "exposure in the table and the births."
    )
    section("A flat rate in North Carolina", f"{said}\n\n{table(header, rows)}")


def main() -> None:
    """Run what was asked for, and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--parts", nargs="+", choices=["ways", "people", "counties"], default=["ways"])
    told = parser.parse_args()
    warnings.simplefilter("ignore")
    for part in told.parts:
        {"ways": ways, "people": people, "counties": counties}[part](told.seeds)


def ways(seeds: int) -> None:
    """Compare ways to take counts by area."""
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
