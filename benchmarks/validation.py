"""Blocks left out without new fits, against new fits: how near the scores are, and the time saved.

Every block of "auto" squares that holds an event is left out by `Posterior.cross_validate`, with its neighbours brought
up to date and without, and by a new fit with the hyperparameters held. Scores are in nats per event of the block.

    python benchmarks/validation.py [--quick]
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy.special import gammaln, xlogy
from tables import keep, machine, table

from geobgp import LGCP, Domain, FullRank, HarmonicBasis, Posterior, bin_points
from geobgp.checks.crossval import CrossValidation
from geobgp.inference.families import Poisson
from geobgp.inference.held_out import JointNormal, log_score

SAMPLE = Path(__file__).resolve().parent.parent / "sample_data"
TICKS = ("netherlands_land.gpkg", "netherlands_water.gpkg", "tick_bites_simulated.gpkg")
QUAKES = ("california_land.gpkg", "california_water.gpkg", "usgs_california_2018_points.csv")


def features(domain: Domain) -> HarmonicBasis:
    """Return 256 features."""
    return HarmonicBasis.compute(domain, 256, cache=False)


def permeable(domain: Domain) -> FullRank:
    """Return full resolution with permeable water."""
    return FullRank(domain, permeability=0.3)


CASES: list[tuple[str, tuple[str, str, str], float, Callable]] = [
    ("tick bites, full resolution", TICKS, 3000.0, FullRank),
    ("tick bites, permeable water", TICKS, 3000.0, permeable),
    ("tick bites, 256 features", TICKS, 3000.0, features),
    ("earthquakes, full resolution", QUAKES, 12_000.0, FullRank),
]


def fitted(files: tuple[str, str, str], cell_size: float, basis: Callable) -> Posterior:
    """Fit one case."""
    land, water, points = (str(SAMPLE / name) for name in files)
    domain = Domain.from_polygons(land, water=water, cell_size=cell_size)
    return LGCP(basis(domain)).fit(bin_points(points, domain))


def refitted(posterior: Posterior, block: np.ndarray) -> float:
    """Return the score of a block under a fit without it."""
    exposure, counts = posterior.exposure.copy(), posterior.observed.copy()
    exposure[block] = counts[block] = 0.0
    kernel = posterior.kernel.with_parameters(posterior.lengthscale, posterior.sd)
    state = LGCP(posterior.basis, kernel, exposure=exposure).fit(counts).fit.states[0]
    own = posterior.fit.states[0]
    predicted, known = (JointNormal(s.node_moments()[0][block], s.node_covariance(block)) for s in (state, own))
    return log_score(predicted, Poisson(posterior.observed[block], posterior.exposure[block]), known)


def differences(posterior: Posterior, found: list[CrossValidation], most: int) -> tuple[list[np.ndarray], float]:
    """Return the differences of scores from new fits, block by block, and the seconds that these take for all."""
    full = found[0]
    events = full.blocks["observed"].to_numpy()
    some = np.flatnonzero(events > 0)
    some = some[:: max(1, len(some) // most)]
    truth = {}
    begin = time.perf_counter()
    for k in some:
        truth[k] = refitted(posterior, np.flatnonzero(full.block_of == k))
    seconds = (time.perf_counter() - begin) / len(some) * len(events)
    y, areas = posterior.observed, posterior.domain.node_areas / posterior.domain.area_unit[0]
    shift = np.bincount(full.block_of, gammaln(y + 1.0) - xlogy(y, areas), len(events))
    return [
        np.array([(one.blocks["log_density"].iloc[k] - shift[k] - truth[k], events[k]) for k in some]) for one in found
    ], seconds


def main() -> None:
    """Run all cases, print the table and keep it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few blocks of each case")
    quick = parser.parse_args().quick
    rows: list[list[object]] = []
    for name, files, cell_size, basis in CASES:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            posterior = fitted(files, cell_size, basis)
            found = [posterior.cross_validate(rounds=0), posterior.cross_validate()]
            each, seconds = differences(posterior, found, 8 if quick else 10_000)
        for words, one, gap in zip(("neighbours held", "as it comes"), found, each, strict=True):
            off = np.abs(gap[:, 0]) / gap[:, 1]
            mean = float(np.sum(off * gap[:, 1]) / gap[:, 1].sum())
            rows.append(
                [f"{name}; {words}", f"{posterior.domain.n_nodes:,}", f"{len(gap)}", f"{mean:.4f}", f"{off.max():.4f}",
                 f"{one.seconds:.1f}", f"{seconds:.0f}", f"{seconds / one.seconds:.0f}"]
            )  # fmt: skip
            print(rows[-1], flush=True)
    head = ["case", "nodes", "blocks", "off, mean", "off, worst block", "seconds", "new fits, s", "ratio"]
    keep(
        "validation",
        "\n".join(
            [
                "# Blocks left out without new fits, against new fits",
                "",
                machine(),
                "Differences of held-out log scores from new fits with the hyperparameters held: nats per event.",
                "",
                table(head, rows),
            ]
        ),
    )


if __name__ == "__main__":
    main()
