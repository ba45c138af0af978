"""Measurements at places: `map_values` by default against gstat's kriging and mgcv's splines and soap films.

Simulated data with barriers (inlets, lakes, a river) and without, and data that come with R's sp and gstat. Sites
are held out singly and in whole squares.

    python benchmarks/values.py [--sets NAME ...] [--ways NAME ...] [--rows FOLDER] [--truths N] [--seed N]
        [--keep] [--quick]
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from sites import IN_R, SEARCH, SIMULATED, SITES, AbsentError, Fit, Sites, arguments, from_r, report, scored, simulated
from tables import Rows, keep

from geobgp import map_values

#: Noise of simulated measurements, whose truth has an sd of one.
NOISE = 0.4
#: Data of R, by the name in sites.R.
REAL = {"meuse zinc": "meuse", "jura cobalt": "jura", "radiation 2004": "radiation"}


def data(name: str, truths: int, seed: int) -> Sites:
    """Return a data set; where the inlets and the river are, what is measured is positive and skewed."""
    if name in REAL:
        sites, land = from_r(REAL[name])
        return Sites(name, land, sites[["x", "y"]].to_numpy(float), sites["value"].to_numpy(float))

    def observe(truth: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, None]:
        values = truth + NOISE * rng.normal(size=len(truth))
        return (20.0 * np.exp(0.7 * values) if name in ("inlets", "river") else 5.0 + values), None

    return simulated(name, (seed, 1), truths, observe)


def by_default(sites: Sites) -> Any:
    """Return the posterior of `map_values` with nothing but the land."""
    table = pd.DataFrame(sites.xy, columns=["easting", "northing"]).assign(value=sites.values)
    return map_values(table, sites.land, value="value", crs="local", cache=False, max_seconds=SEARCH)


def main() -> None:
    """Print and keep the tables."""
    ways: dict[str, Fit | None] = {"map_values": by_default, **dict.fromkeys(IN_R)}
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
        "on land of 100 km x 80 km with inlets, among lakes, on both banks of a river, and without water; the "
        f"truth has an sd of 1, noise one of {NOISE} (of logarithms for the inlets and the river). Bumps fall off "
        "with the distance over land; sources have diffused over it; each bank has a level, a trend and bumps of "
        "its own. None of it is drawn from a model. Data of R are held out in fifths, of sites and of squares. "
        "Log scores are densities of what was measured, per site, in nats; CRPS and RMSE have its unit. Kriging "
        "has the best of five variogram models, and the power (0, 1/2, 1) by cross-validation within the training "
        "sites; splines have theirs by REML. Searches have no limit of time, which is a minute otherwise, as the "
        "machine was shared; seconds are the processor's. ± is a standard error, over truths, sites or squares; "
        "ahead and level are by more or less than one."
    )
    text = report(results, "map_values", "Measurements at places", words)
    if asked.keep:
        keep("values", text)
    else:
        print(text)


if __name__ == "__main__":
    main()
