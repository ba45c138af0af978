"""Prevalence from surveys: `map_prevalence` by default against gstat's kriging of log odds and mgcv.

Simulated surveys with barriers (inlets, lakes, a river) and without, half of them with sites that vary more than a
binomial; and classes of single samples from data that come with R's sp and gstat. Sites are held out singly
and in whole squares.

    python benchmarks/prevalence.py [--sets NAME ...] [--ways NAME ...] [--rows FOLDER] [--truths N] [--seed N]
        [--keep] [--quick]
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit, logsumexp
from scipy.stats import betabinom, binom
from sites import IN_R, SEARCH, SIMULATED, SITES, AbsentError, Fit, Sites, arguments, from_r, report, scored, simulated
from tables import Rows, keep

from geobgp import map_prevalence

#: The sd of the log odds of a site's own, where there is one.
OWN = 0.5
#: The sd of what is not known of them when families are compared; maps of these surveys have about this one.
UNKNOWN = 0.4
#: Data of R, by the name in sites.R.
REAL = {"meuse lime": "lime", "jura cadmium": "cadmium"}


def data(name: str, truths: int, seed: int) -> Sites:
    """Return a data set; around the inlets and on open land, sites have something of their own."""
    if name in REAL:
        sites, land = from_r(REAL[name])
        positive = sites["positive"].to_numpy(float)
        return Sites(name, land, sites[["x", "y"]].to_numpy(float), positive, np.ones(len(positive)))

    def observe(truth: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        own = OWN * rng.normal(size=len(truth)) if name in ("inlets", "open") else 0.0
        tested = rng.integers(12, 60, len(truth)).astype(float)
        return rng.binomial(tested.astype(int), expit(-1.2 + truth + own)).astype(float), tested

    return simulated(name, (seed, 2), truths, observe)


def of_family(n: int = 20_000) -> float:
    """Return how far beta-binomial numbers are behind those that were simulated, in nats per site, on a known field."""
    rng = np.random.default_rng(0)
    truth, tested = rng.normal(size=n), rng.integers(12, 60, n)
    y = rng.binomial(tested, expit(-1.2 + truth + OWN * rng.normal(size=n)))
    mean, sd = (truth + UNKNOWN * rng.normal(size=n)) / (1 + UNKNOWN**2), UNKNOWN / np.sqrt(1 + UNKNOWN**2)
    points, weights = np.polynomial.hermite_e.hermegauss(24)
    log_weights = np.log(weights / weights.sum())[:, None]

    def score(logs: np.ndarray) -> float:
        return float(logsumexp(log_weights + logs, axis=0).mean())

    normal = score(binom.logpmf(y, tested, expit(-1.2 + mean + np.hypot(sd, OWN) * points[:, None])))
    share = expit(-1.2 + mean + sd * points[:, None])
    sizes = (15.0, 20.0, 25.0, 30.0, 40.0)
    return normal - max(score(betabinom.logpmf(y, tested, k * share, k * (1 - share))) for k in sizes)


def by_default(sites: Sites) -> Any:
    """Return the posterior of `map_prevalence` with nothing but the land."""
    table = pd.DataFrame(sites.xy, columns=["easting", "northing"])
    table = table.assign(positive=sites.values.astype(int), tested=sites.size.astype(int))
    columns = {"positive": "positive", "tested": "tested"}
    return map_prevalence(table, sites.land, **columns, crs="local", cache=False, max_seconds=SEARCH)


def main() -> None:
    """Print and keep the tables."""
    ways: dict[str, Fit | None] = {"map_prevalence": by_default, **dict.fromkeys(IN_R)}
    asked = arguments(__doc__ or "", list(ways), [*SIMULATED, *REAL])
    results = {}
    for name in asked.sets:
        try:
            sites = data(name, asked.truths, asked.seed)
        except AbsentError as error:
            print(f"{name}: {error}")
            continue
        results[name] = sites, scored(sites, {w: ways[w] for w in asked.ways}, Rows(asked.rows), asked.quick)
    words = (
        f"Simulated: {asked.truths} truths each, with {SITES} sites that are fitted and as many that are scored, "
        "with 12 to 59 tested, on land of 100 km x 80 km with inlets, among lakes, on both banks of a river, and "
        f"without water; log odds with an sd of 1, and {OWN} of a site's own around the inlets and on open land. "
        "None of it is drawn from a model. Data of R, of one person at each site, are held out in fifths, of "
        "sites and of squares. Log scores are per site, in nats; CRPS and RMSE are of the share of those tested. "
        "Kriging is of empirical log odds, whose predictive distribution is cut into numbers of positives; "
        "splines are binomial with a normal effect of each site, as sites were simulated: where the truth is known but "
        f"for an sd of {UNKNOWN}, the best beta-binomial is {of_family():.3f} behind that. Searches have no limit of "
        "time, which is a minute otherwise, as the machine was shared; seconds are the processor's. ± is a standard "
        "error, over truths, sites or squares; ahead and level are by more or less than one."
    )
    text = report(results, "map_prevalence", "Prevalence from surveys", words)
    if asked.keep:
        keep("prevalence", text)
    else:
        print(text)


if __name__ == "__main__":
    main()
