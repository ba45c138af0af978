"""Does it vary at all? How often data that do not vary are said to, and fields of known width are found.

Cases and controls on a land with an islet and a lake: 400 persons who crowd about towns, of whom 100 are called cases
at random; and the same with a field of risk. Events at one rate, and with fields of known sd. Fits on coarse cells as
they are made by hand, and `map_risk` and `map_intensity` by default, which choose cells, water and features by the same
data.

    python benchmarks/variation.py [--shuffles 200] [--runs 60] [--default-runs 40] [--output FILE]
"""

from __future__ import annotations

import argparse
import os
import platform
import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pandas as pd
import scipy
import shapely

import geobgp
from geobgp import LGCP, Domain, FullRank, Matern, Posterior, Variation, map_intensity, map_risk
from geobgp.auto.tasks import fit_risk
from geobgp.data.persons import Groups, Persons
from geobgp.simulate import simulate_prior

#: A land of 20 x 16 km with a lake and an islet, in metres.
LAND = (shapely.box(0, 0, 20_000, 16_000) - shapely.Point(13_000, 9_000).buffer(2_500)) | shapely.box(
    21_500, 3_000, 25_000, 8_000
)
#: Lengthscale of fields.
LENGTHSCALE = 5_000.0


def domain(cell_size: float = 1_000.0) -> Domain:
    """Return the land on coarse cells."""
    return Domain.from_polygons(LAND, cell_size=cell_size, crs=32631)


def towns(rng: np.random.Generator, n: int = 400) -> np.ndarray:
    """Return the places of persons who crowd about ten towns, all on land."""
    west, south, east, north = LAND.bounds
    centres = rng.uniform((west, south), (east, north), (10, 2))
    found = np.zeros((0, 2))
    while len(found) < n:
        more = centres[rng.integers(10, size=4 * n)] + rng.normal(0, 1_800, (4 * n, 2))
        found = np.concatenate([found, more[shapely.contains_xy(LAND, more)]])
    return found[:n]


def labels(rng: np.random.Generator, at: np.ndarray, field: np.ndarray | None, on: Domain) -> np.ndarray:
    """Return who of persons is a case: about 100, at random or by a field of log risk."""
    risk = np.ones(len(at)) if field is None else np.exp(field[on.nearest(at, 2_000)[0]])
    out = np.zeros(len(at), bool)
    out[rng.choice(len(at), 100, replace=False, p=risk / risk.sum())] = True
    return out


def by_hand(at: np.ndarray, ill: np.ndarray, basis: FullRank) -> Posterior:
    """Fit persons on given cells."""
    node = np.asarray(basis.domain.nearest(at, 2_000)[0])
    both = (Persons(None, node[who], pd.DataFrame(index=range(int(who.sum())))) for who in (ill, ~ill))  # type: ignore[arg-type]
    return fit_risk(Groups.of(*both), basis)


def events(rng: np.random.Generator, n: int, field: np.ndarray | None, on: Domain) -> np.ndarray:
    """Return the places of about n events, at one rate or with a field of its log."""
    share = on.node_areas * (1.0 if field is None else np.exp(field))
    counts = rng.poisson(n * share / share.sum())
    at = np.repeat(on.node_points, counts, axis=0)
    at = at + rng.uniform(-0.5, 0.5, at.shape) * on.cell_size
    return at[shapely.contains_xy(LAND, at)]


def told(name: str, found: Iterable[Variation], say: Callable[[str], None]) -> None:
    """Print what a number of maps said."""
    begin = time.perf_counter()
    several = list(found)
    seconds = (time.perf_counter() - begin) / len(several)
    factor = np.array([one.log_bayes_factor for one in several])
    share = [np.mean([one.verdict == v for one in several]) for v in ("varies", "may vary", "no evidence")]
    green = np.mean([one.fine for one in several])
    below = np.mean([one.score < 0 for one in several])
    say(
        f"| {name} | {len(several)} | {np.median(factor):.1f} | {np.quantile(factor, 0.9):.1f} | "
        + " | ".join(f"{100 * s:.1f} %" for s in (*share, green, below))
        + f" | {seconds:.2f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shuffles", type=int, default=200)
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--default-runs", type=int, default=40)
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    lines: list[str] = []

    def say(text: str) -> None:
        print(text, flush=True)
        lines.append(text)

    say("# Does it vary at all?\n")
    say(
        f"geobgp {geobgp.__version__}, Python {platform.python_version()}, NumPy {np.__version__}, SciPy "
        f"{scipy.__version__}, {os.cpu_count()} cores: `python benchmarks/variation.py`. Log Bayes factors (median, "
        "90 % quantile), verdicts, maps marked green, held-out scores below that of one rate, seconds a map. "
        f"Fields have a lengthscale of {LENGTHSCALE / 1000:g} km on {LAND.area / 1e6:.0f} km².\n"
    )
    say("| data | maps | median | 90 % | varies | may vary | no evidence | green | score below 0 | s |")
    say("|---|---|---|---|---|---|---|---|---|---|")
    coarse = domain()
    basis = FullRank(coarse)
    rng = np.random.default_rng(0)

    def field(sd: float) -> np.ndarray | None:
        kernel = Matern(1.0, LENGTHSCALE, sd) if sd else None
        return None if kernel is None else simulate_prior(basis, kernel, int(rng.integers(2**31)))[0]

    def persons(sd: float, default: bool) -> Variation:
        at = towns(rng)
        ill = labels(rng, at, field(sd), coarse)
        made = map_risk(at[ill], at[~ill], LAND, crs=32631) if default else by_hand(at, ill, basis)
        return made.variation()

    def points(n: int, sd: float, default: bool) -> Variation:
        at = events(rng, n, field(sd), coarse)
        if default:
            return map_intensity(at, LAND, crs=32631, cache=False).variation()
        return LGCP(basis).fit(geobgp.bin_points(at, coarse)).variation()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", geobgp.GeobgpWarning)
        for default, how in ((False, "cells of 1 km"), (True, "map_risk by default")):
            found = (persons(0.0, default) for _ in range(given.default_runs if default else given.shuffles))
            told(f"shuffled labels, 100 cases, 300 controls; {how}", found, say)
        for sd in (0.6, 1.2):
            found = (persons(sd, False) for _ in range(given.runs))
            told(f"risk of sd {sd:g}, 100 cases, 300 controls; cells of 1 km", found, say)
        for n in (60, 300, 1500):
            for sd in (0.0, 0.3, 0.6):
                what = f"field of sd {sd:g}" if sd else "one rate"
                found = (points(n, sd, False) for _ in range(given.runs))
                told(f"{what}, {n:,} events; cells of 1 km", found, say)
        for n in (60, 300, 1500):
            found = (points(n, 0.0, True) for _ in range(given.default_runs))
            told(f"one rate, {n:,} events; map_intensity by default", found, say)
    if given.output is not None:
        given.output.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
