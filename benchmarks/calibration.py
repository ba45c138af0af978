"""Do the intervals hold what they promise? Coverage over data sets simulated from the prior.

Each run draws a field from the prior with known hyperparameters on a domain with islands and a river, draws
points from it, fits them, and asks how often the 50 % and 90 % intervals of the intensity at the nodes and of
the expected number of events in regions hold the truth. The standard error is over runs, as places within one
run go together. "Foreign" fields are bumps on a slope with a level for each part of the land, which no prior of
ours made.

    python benchmarks/calibration.py [--runs 200] [--only CASE ...] [--output FILE]
"""

from __future__ import annotations

import argparse
import os
import platform
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy
import shapely

import geobgp
from geobgp import LGCP, Domain, FullRank, HarmonicBasis, Matern, bin_points, simulate_points
from geobgp.land.regions import area_shares
from geobgp.simulate import simulate_prior

LEVELS = {50: (0.25, 0.75), 90: (0.05, 0.95)}
QUANTILES = tuple(sorted(q for pair in LEVELS.values() for q in pair))
LENGTHSCALE, SD = 15_000.0, 0.8
#: Events per km² before the field: some 3,000 points, and some 250.
MANY, FEW = 0.35, 0.03


def archipelago(cell_size: float = 3000.0) -> Domain:
    """Return a mainland cut by a river, and three islands: about 110 x 80 km."""
    main = shapely.Polygon([(0, 0), (70, -4), (82, 30), (64, 62), (30, 70), (4, 52), (-6, 24)]).buffer(4).buffer(-2)
    islands = [shapely.Point(98, 20).buffer(9), shapely.Point(94, 52).buffer(12), shapely.Point(76, 77).buffer(5)]
    river = shapely.LineString([(-20, 30), (20, 36), (45, 28), (100, 40)]).buffer(0.3)
    land = shapely.union_all([main, *islands]) - river
    land = shapely.transform(land, lambda c: 1000 * c + [400_000, 5_700_000])
    return Domain.from_polygons(land, cell_size=cell_size, crs=32631)


def regions(domain: Domain, n: int = 16) -> list[Any]:
    """Return n cells of a Voronoi partition around the land."""
    west, south, east, north = domain.grid.bounds
    rng = np.random.default_rng(3)
    seeds = rng.uniform((west, south), (east, north), (n, 2))
    frame = shapely.box(west, south, east, north).buffer(1e4)
    cells = shapely.get_parts(shapely.voronoi_polygons(shapely.MultiPoint(seeds), extend_to=frame))
    return [cell for cell in cells if cell.intersection(domain.geometry).area > 1e7]


@dataclass(frozen=True)
class Case:
    """One way to fit."""

    name: str
    basis: Any
    truth: Any
    hyper: str | None = None
    base: float = MANY
    #: Whether the field is drawn from the model's own prior; else it is one that no prior of ours made.
    own: bool = True


def foreign_field(domain: Domain, seed: int) -> np.ndarray:
    """Return a log-intensity of a few bumps in the plane on a slope, with a step across the river."""
    rng = np.random.default_rng(seed)
    xy = (domain.node_points - domain.node_points.mean(axis=0)) / 1000.0
    out = 0.01 * xy @ rng.normal(size=2) + rng.normal(0, 0.3, domain.n_components)[domain.components]
    for _ in range(8):
        centre, width = xy[rng.integers(len(xy))], rng.uniform(6.0, 20.0)
        out = out + rng.normal(0, 1.0) * np.exp(-0.5 * np.sum((xy - centre) ** 2, axis=1) / width**2)
    return out - out.mean()


def cases(domain: Domain, m: int) -> list[Case]:
    """Return the ways to fit: hyperparameters known, learned and integrated; features and full resolution."""
    harmonic = HarmonicBasis.compute(domain, m, cache=False)
    full = FullRank(domain)
    known, matern = Matern(1.5, LENGTHSCALE, SD), Matern(1.0, LENGTHSCALE, SD)
    return [
        Case("features, known", harmonic, known),
        Case("features, map", harmonic, known, "map"),
        Case("features, integrate", harmonic, known, "integrate"),
        Case("few points, known", harmonic, known, None, FEW),
        Case("few points, map", harmonic, known, "map", FEW),
        Case("few points, integrate", harmonic, known, "integrate", FEW),
        Case("full rank, known", full, matern),
        Case("full rank, map", full, matern, "map"),
        Case("full rank, integrate", full, matern, "integrate"),
        Case("features, foreign", harmonic, known, "map", own=False),
        Case("full rank, foreign", full, matern, "map", own=False),
        Case("integrate, foreign", full, matern, "integrate", own=False),
    ]


def one_run(case: Case, places: list[Any], seed: int) -> tuple[dict[str, float], float, int]:
    """Return the share of places covered in one data set, the fit's seconds, and the number of points."""
    domain = case.basis.domain
    field = simulate_prior(case.basis, case.truth, seed)[0] if case.own else foreign_field(domain, seed)
    rate = case.base * np.exp(field)
    counts = bin_points(simulate_points(domain, rate, seed + 10_000_000), domain)
    kernel = case.truth if case.hyper is None else Matern(case.truth.nu)
    begin = time.perf_counter()
    posterior = LGCP(case.basis, kernel).fit(counts, hyper=case.hyper or "map")
    seconds = time.perf_counter() - begin
    nodes = posterior.node_intensity(QUANTILES)
    totals = posterior.totals(places, quantiles=QUANTILES, n_samples=1000, rng=seed)
    expected = area_shares(domain, places) @ (rate * domain.node_areas / 1e6)
    out = {}
    for quantity, table, true in (("nodes", nodes, rate), ("totals", totals, expected)):
        for level, (low, high) in LEVELS.items():
            name = [f"q{round(100 * q):02d}" for q in (low, high)]
            inside = (table[name[0]].to_numpy() <= true) & (true <= table[name[1]].to_numpy())
            out[f"{quantity} {level}"] = float(inside.mean())
    return out, seconds, counts.n_used


def study(
    chosen: list[Case], places: list[Any], runs: int, say: Callable[[str], None] = print
) -> dict[str, dict[str, tuple[float, float]]]:
    """Return {case: {quantity and level: (coverage, standard error)}} in per cent, and print the table."""
    columns = [f"{quantity} {level}" for quantity in ("nodes", "totals") for level in LEVELS]
    say(f"{'':22s}" + "".join(f"{column + ' %':>20s}" for column in columns) + f"{'points':>9s}{'s per fit':>11s}")
    result = {}
    for case in chosen:
        shares, seconds, points = zip(*(one_run(case, places, 1000 + run) for run in range(runs)), strict=True)
        table = {c: np.array([share[c] for share in shares]) for c in columns}
        result[case.name] = {
            c: (100 * float(v.mean()), 100 * float(v.std(ddof=1) / np.sqrt(runs))) for c, v in table.items()
        }
        cells = "".join(f"{f'{mean:.1f} ± {error:.1f}':>20s}" for mean, error in result[case.name].values())
        say(f"{case.name:22s}{cells}{np.median(points):9,.0f}{np.median(seconds):11.3f}")
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--features", type=int, default=200)
    parser.add_argument("--only", nargs="*", help="names of cases, by default all")
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    lines: list[str] = []

    def say(text: str) -> None:
        print(text, flush=True)
        lines.append(text)

    domain = archipelago()
    places = regions(domain)
    say("Coverage of intervals over data sets simulated from the prior (per cent ± standard error)")
    say(
        f"geobgp {geobgp.__version__}, Python {platform.python_version()}, NumPy {np.__version__}, "
        f"SciPy {scipy.__version__}, {os.cpu_count()} cores"
    )
    say(domain.report().replace("\n", "; "))
    say(
        f"{given.runs} data sets; lengthscale {LENGTHSCALE / 1000:g} km, sd {SD:g}; {len(places)} regions; "
        f"m = {given.features} features (Matern 1.5), full rank (Matern 1)"
    )
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", geobgp.GeobgpWarning)
        chosen = [case for case in cases(domain, given.features) if not given.only or case.name in given.only]
        result = study(chosen, places, given.runs, say)
    worst = max(abs(mean - int(c.split()[1])) for row in result.values() for c, (mean, _) in row.items())
    say(f"Largest distance from nominal: {worst:.1f} points. {time.perf_counter() - begin:.0f} s in all.")
    if given.output is not None:
        given.output.parent.mkdir(parents=True, exist_ok=True)
        given.output.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
