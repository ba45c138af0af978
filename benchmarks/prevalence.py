"""Prevalence from surveys: `map_prevalence` by default against gstat's kriging of log odds and mgcv.

Simulated surveys with barriers (an inlet, a lake, a river) and without, half of them with sites that vary more than a
binomial; and classes of single samples from data that come with R's sp and gstat. Sites are held out in random tenths
and in whole squares.

    python benchmarks/prevalence.py [--sets NAME ...] [--ways NAME ...] [--rows FOLDER] [--quick]
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit
from sites import IN_R, SIMULATED, AbsentError, Fit, Sites, arguments, from_r, report, scored, simulated
from tables import Rows, keep

from geobgp import BoundaryGP, Domain, HarmonicBasis, Matern, map_prevalence

#: Surveyed sites of simulated data; sd of the log odds of a site's own, where there is one.
SITES, OWN = 220, 0.5
#: Data of R, by the name in sites.R.
REAL = {"meuse lime": "lime", "jura cadmium": "cadmium"}


def data(name: str) -> Sites:
    """Return a data set; around the inlet and on open land, sites have something of their own."""
    if name in REAL:
        sites, land = from_r(REAL[name])
        positive = sites["positive"].to_numpy(float)
        return Sites(name, land, sites[["x", "y"]].to_numpy(float), positive, np.ones(len(positive)))
    land, xy, truth, rng = simulated(name, SITES, 2)
    own = OWN * rng.normal(size=len(xy)) if name in ("peninsula", "open") else 0.0
    tested = rng.integers(12, 60, len(xy)).astype(float)
    positive = rng.binomial(tested.astype(int), expit(-1.2 + truth + own)).astype(float)
    return Sites(name, land, xy, positive, tested, barrier=SIMULATED[name][2])


def features(sites: Sites) -> Any:
    """Return the posterior of 256 features on about 4,000 nodes."""
    domain = Domain.from_polygons(sites.land, cell_size=float(np.sqrt(sites.land.area / 4000)), crs="local")
    basis = HarmonicBasis.compute(domain, m=256, cache=False)
    family = "beta-binomial" if (sites.size > 1).any() else "binomial"
    return BoundaryGP(basis, Matern(1.5), family).fit(sites.xy, sites.values, trials=sites.size), 1.0


def by_default(sites: Sites) -> Any:
    """Return the posterior of `map_prevalence` with nothing but the land."""
    table = pd.DataFrame(sites.xy, columns=["easting", "northing"])
    table = table.assign(positive=sites.values.astype(int), tested=sites.size.astype(int))
    mapped = map_prevalence(table, sites.land, positive="positive", tested="tested", crs="local", cache=False)
    return mapped, 1.0


def main() -> None:
    """Print and keep the tables."""
    ways: dict[str, Fit | None] = {"map_prevalence": by_default, "BoundaryGP": features, **dict.fromkeys(IN_R)}
    asked = arguments(__doc__ or "", list(ways), [*SIMULATED, *REAL])
    results = {}
    for name in asked.sets:
        try:
            sites = data(name)
        except AbsentError as error:
            print(f"{name}: {error}")
            continue
        results[name] = sites, scored(sites, {w: ways[w] for w in asked.ways}, Rows(asked.rows), asked.quick)
    words = (
        f"Simulated: {SITES} sites with 12 to 59 tested on land of 100 km x 80 km with an inlet, around a "
        f"lake, on both banks of a river, and without water; log odds with an sd of 1, and {OWN} of a site's "
        "own around the inlet and on open land. None of it is drawn from a model. Log scores are per site, in"
        " nats; CRPS and RMSE are of the share of those tested. Kriging is of empirical log odds, whose "
        "predictive distribution is cut into numbers of positives; splines are binomial with an effect of "
        "each site. ± is a standard error, over sites or squares; ahead and level are by more or less than "
        "one."
    )
    text = report(results, "map_prevalence", "Prevalence from surveys", words)
    if asked.quick or len(asked.sets) < len(SIMULATED) + len(REAL) or len(asked.ways) < len(ways):
        print(text)
    else:
        keep("prevalence", text)


if __name__ == "__main__":
    main()
