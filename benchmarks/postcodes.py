"""Events whose places are postcodes: coverage and Kullback-Leibler divergence against middles taken as exact places.

The truth is not drawn from the prior: random hills, a slope and a stretch where the rate falls by half, on a land with
a lake and an island. Places are rounded to the middles of 300 postcodes, which are small where many events are. They
are then mapped as if the middles were exact, by postcode, and by Voronoi cells of the places that have events.

In the second part 40 % of the events keep their exact place, of 40 % the postcode is known and of 20 % the district, of
which there are 16; borders of postcodes cross those of districts, or (nested) do not. In the third the share of exact
places differs between districts, from 10 to 70 %. In the last one the stretch has sharp edges, at which no smooth map
holds the truth, whether places are exact or not.

    python benchmarks/postcodes.py [--seeds 100] [--parts postcodes mixed nested uneven sharp]
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import geopandas as gpd
import numpy as np
import shapely
from tables import RESULTS, keep, machine, table

from geobgp import LGCP, Domain, HarmonicBasis, bin_places, bin_points, simulate_points

SIDE, EVENTS, POSTCODES, DISTRICTS, FEATURES = 40.0, 3000.0, 300, 16, 256
SHARES = {"exact": 0.4, "postcode": 0.4, "district": 0.2}


def land() -> shapely.Geometry:
    """Return a square with a lake, and an island beside it."""
    lake = shapely.Point(14.0, 24.0).buffer(5.0)
    island = shapely.box(SIDE + 2, 10, SIDE + 8, 22)
    return shapely.union_all([shapely.box(0, 0, SIDE, SIDE).difference(lake), island])


def truth(at: np.ndarray, area: np.ndarray, rng: np.random.Generator, edge: float) -> np.ndarray:
    """Return an intensity at places: hills on a slope, and half of it in a stretch, with edges of some width."""
    hills = rng.uniform(0, SIDE, (6, 2))
    width, height = rng.uniform(3.0, 9.0, 6), rng.uniform(0.5, 4.0, 6)
    distance = np.linalg.norm(at[:, None] - hills, axis=2)
    rate = 0.4 + (height * np.exp(-0.5 * (distance / width) ** 2)).sum(axis=1)
    angle = rng.uniform(0, 2 * np.pi)
    along = at @ [np.cos(angle), np.sin(angle)]
    rate *= np.exp(0.6 * (along - along.mean()) / along.std())
    away = np.abs(along - rng.choice(along)) - 4.0
    rate *= 1.0 - 0.5 / (1.0 + np.exp(np.clip(4.0 * away / edge, -50, 50)))
    return EVENTS * rate / float(rate @ area)


def cells(at: np.ndarray, name: str, within: gpd.GeoSeries | None = None) -> gpd.GeoDataFrame:
    """Return Voronoi cells of places on the land, each within one of some shapes where these are given."""
    around = shapely.box(-1, -1, SIDE + 9, SIDE + 1)
    parts = shapely.get_parts(shapely.voronoi_polygons(shapely.MultiPoint(at), extend_to=around))
    shapes = shapely.intersection(parts, land())
    if within is not None:
        cut = shapely.intersection(shapes[:, None], np.asarray(within)[None]).ravel()
        shapes = cut[shapely.area(cut) > 1e-6]
    shapes = shapes[shapely.area(shapes) > 0]
    return gpd.GeoDataFrame({name: [f"{name[0]}{k}" for k in range(len(shapes))]}, geometry=shapes)


def drawn(basis: HarmonicBasis, seed: int, nested: bool = False, edge: float = 4.0) -> tuple[Any, ...]:
    """Return the truth, its events with their postcode and district, and these."""
    rng, domain = np.random.default_rng(seed), basis.domain
    rate = truth(domain.node_points, domain.node_areas, rng, edge)
    events = simulate_points(domain, rate, seed)
    middles = domain.node_points[rng.choice(domain.n_nodes, DISTRICTS, replace=False)]
    districts = cells(middles + rng.uniform(-0.4, 0.4, middles.shape), "district")
    chance = rate**0.7
    towns = domain.node_points[rng.choice(domain.n_nodes, POSTCODES, replace=False, p=chance / chance.sum())]
    postcodes = cells(towns + rng.uniform(-0.4, 0.4, towns.shape), "postcode", districts.geometry if nested else None)
    for areas in (postcodes, districts):
        name = areas.columns[0]
        events[name] = areas[name].to_numpy()[areas.sindex.nearest(events.geometry, return_all=False)[1]]
    return rate, events, postcodes, districts


def judged(posterior: Any, rate: np.ndarray) -> list[float]:
    """Return coverage of nodes, KL to the truth in nats per event, error of the log and width of intervals."""
    at, area = posterior.node_intensity((0.05, 0.5, 0.95)), posterior.domain.node_areas
    inside = np.mean((at["q05"] <= rate) & (rate <= at["q95"]))
    true, mean = rate * area / (rate @ area), at["mean"] * area / (at["mean"] @ area)
    wide = np.mean(np.log(at["q95"] / at["q05"]))
    error = np.sqrt(np.mean(np.log(at["q50"] / rate) ** 2))
    return [100 * float(inside), float(true @ np.log(true / mean)), float(error), float(wide)]


def middle(events: gpd.GeoDataFrame, postcodes: gpd.GeoDataFrame) -> gpd.GeoDataFrame:
    """Return events at the middles of their postcodes."""
    at = postcodes.set_index("postcode").geometry.apply(lambda shape: shape.representative_point())
    return gpd.GeoDataFrame(events.drop(columns="geometry"), geometry=at.loc[events["postcode"]].to_numpy())


def ways(basis: HarmonicBasis, seed: int, edge: float = 4.0) -> tuple[np.ndarray, dict[str, Callable[[], Any]]]:
    """Return the truth, and how events are counted that are known by postcode."""
    rate, events, postcodes, _ = drawn(basis, seed, edge=edge)
    moved, domain = middle(events, postcodes), basis.domain
    return rate, {
        "exact places, if they were known": lambda: bin_points(events, domain),
        "middles of postcodes as exact places": lambda: bin_points(moved, domain),
        "postcodes as areas": lambda: bin_places(events, domain, postcodes, key="postcode"),
        "Voronoi cells of the middles": lambda: bin_places(moved, domain, "voronoi"),
    }


def mixed(basis: HarmonicBasis, seed: int, nested: bool = False, uneven: bool = False) -> tuple[Any, ...]:
    """Return the truth, and how events are counted that are known at several levels."""
    rate, events, postcodes, districts = drawn(basis, seed, nested)
    rng, domain = np.random.default_rng([seed, 1]), basis.domain
    levels, shares = np.array(list(SHARES)), np.tile(list(SHARES.values()), (len(events), 1))
    if uneven:
        exact = rng.uniform(0.1, 0.7, len(districts))[events["district"].str[1:].astype(int)]
        shares = np.column_stack([exact, 2 / 3 * (1 - exact), 1 / 3 * (1 - exact)])
    events["precision"] = levels[(rng.random(len(events))[:, None] > shares.cumsum(axis=1)).sum(axis=1)]
    places, is_exact = {"postcode": postcodes, "district": districts}, events["precision"] == "exact"
    rounded = middle(events, postcodes)
    centres = districts.set_index("district").geometry.apply(lambda shape: shape.representative_point())
    by_district = rounded["precision"] == "district"
    rounded.loc[by_district, "geometry"] = centres.loc[rounded["district"][by_district]].to_numpy()
    rounded.loc[is_exact, "geometry"] = events.geometry[is_exact].to_numpy()
    return rate, {
        "all places, if they were known": lambda: bin_points(events, domain),
        "middles as exact places": lambda: bin_points(rounded, domain),
        "exact places alone": lambda: bin_points(events[is_exact], domain),
        "mixed precision": lambda: [
            bin_points(events[is_exact], domain),
            bin_places(events, domain, places, precision="precision"),
        ],
    }


PARTS: dict[str, tuple[str, Callable[[HarmonicBasis, int], Any]]] = {
    "postcodes": ("Cases rounded to 300 postcodes", ways),
    "mixed": ("Mixed precision, postcodes across borders of districts", mixed),
    "nested": ("Mixed precision, postcodes within districts", lambda b, s: mixed(b, s, nested=True)),
    "uneven": (
        "Mixed precision, with other shares of exact places in each district",
        lambda b, s: mixed(b, s, nested=True, uneven=True),
    ),
    "sharp": ("Cases rounded to 300 postcodes, a truth with sharp edges", lambda b, s: ways(b, s, edge=1e-3)),
}


def section(title: str, text: str) -> None:
    """Write one section of the results, the others being as they were."""
    path = RESULTS / "postcodes.md"
    old = path.read_text(encoding="utf-8").split("\n## ")[1:] if path.exists() else []
    found = {part.split("\n", 1)[0]: part.split("\n", 1)[1].strip() for part in old} | {title: text}
    keep("postcodes", "\n\n".join(["# Postcodes", *(f"## {name}\n\n{what}" for name, what in found.items())]))


def run(part: str, seeds: int, basis: HarmonicBasis) -> None:
    """Judge all ways of one part, and write its table."""
    title, of = PARTS[part]
    found: dict[str, list[list[float]]] = {}
    for seed in range(seeds):
        rate, each = of(basis, seed)
        for way, counts in each.items():
            begin = time.perf_counter()
            observed = counts()
            # Of exact places alone the share that they are of all events is known.
            effort = observed.n_used / each["all places, if they were known"]().n_used if "alone" in way else None
            posterior = LGCP(basis, effort=None if effort is None else np.full(basis.domain.n_nodes, effort)).fit(
                observed
            )
            took = time.perf_counter() - begin
            found.setdefault(way, []).append([*judged(posterior, rate), took])
        if seed % 10 == 9 or seed + 1 == seeds:
            rows = []
            for way, all_of in found.items():
                mean, error = np.mean(all_of, axis=0), np.std(all_of, axis=0) / np.sqrt(max(len(all_of) - 1, 1))
                rows.append([
                    way, f"{mean[0]:.1f} ± {error[0]:.1f}", f"{1e3 * mean[1]:.1f} ± {1e3 * error[1]:.1f}",
                    f"{mean[2]:.3f}", f"{mean[3]:.2f}", f"{mean[4]:.2f}",
                ])  # fmt: skip
            header = ["places", "nodes in 90 %, of 100", "KL, 0.001 nats", "RMSE of log", "width of log", "seconds"]
            said = (
                f"{machine()}\nMeans (± standard error) over {seed + 1} simulated data sets of about {EVENTS:,.0f} "
                f"events on {basis.domain.n_nodes:,} nodes, {basis.m} features, hyperparameters learned. 90 % "
                "intervals of the intensity at the nodes; Kullback-Leibler divergence of the mean from the truth per "
                "event; error of the median log-intensity and width of the interval of the log-intensity."
            )
            section(title, f"{said}\n\n{table(header, rows)}")


def main() -> None:
    """Run what was asked for, and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    told = parser.parse_args()
    warnings.simplefilter("ignore")
    domain = Domain.from_polygons(land(), cell_size=1.0, crs="local")
    basis = HarmonicBasis.compute(domain, FEATURES, cache=False)
    for part in told.parts:
        run(part, told.seeds, basis)


if __name__ == "__main__":
    main()
