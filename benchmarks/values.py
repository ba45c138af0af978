"""Measurements at places: `map_values` by default against gstat's kriging and mgcv's splines and soap films.

Simulated data with barriers (an inlet, a lake, a river) and without, and data that come with R's sp and gstat. Sites
are held out in random tenths and in whole squares.

    python benchmarks/values.py [--sets NAME ...] [--ways NAME ...] [--rows FOLDER] [--quick]
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from sites import IN_R, SIMULATED, AbsentError, Fit, Sites, arguments, box_cox, from_r, report, scored, simulated
from tables import Rows, keep

from geobgp import BoundaryGP, Domain, HarmonicBasis, Matern, map_values

#: Noise of simulated measurements, whose truth has an sd of one; sites of each.
NOISE, SITES = 0.4, 220
#: Data of R, by the name in sites.R.
REAL = {"meuse zinc": "meuse", "jura cobalt": "jura", "radiation 2004": "radiation"}


def data(name: str) -> Sites:
    """Return a data set; where the inlet and the river are, what is measured is positive and skewed."""
    if name in REAL:
        sites, land = from_r(REAL[name])
        return Sites(name, land, sites[["x", "y"]].to_numpy(float), sites["value"].to_numpy(float))
    land, xy, truth, rng = simulated(name, SITES, 1)
    values = truth + NOISE * rng.normal(size=len(xy))
    values = 20.0 * np.exp(0.7 * values) if name in ("peninsula", "river") else 5.0 + values
    return Sites(name, land, xy, values, barrier=SIMULATED[name][2])


def features(sites: Sites) -> Any:
    """Return the posterior of 256 features on about 4,000 nodes, of logarithms where all values are positive."""
    domain = Domain.from_polygons(sites.land, cell_size=float(np.sqrt(sites.land.area / 4000)), crs="local")
    basis = HarmonicBasis.compute(domain, m=256, cache=False)
    fits = {}
    for power in (0.0, 0.5, 1.0) if (sites.values > 0).all() else (1.0,):
        posterior = BoundaryGP(basis, Matern(1.5)).fit(sites.xy, box_cox(sites.values, power))
        fits[posterior.elbo + (power - 1) * np.log(np.abs(sites.values)).sum()] = posterior, power
    return fits[max(fits)]


def by_default(sites: Sites) -> Any:
    """Return the posterior of `map_values` with nothing but the land."""
    table = pd.DataFrame(sites.xy, columns=["easting", "northing"]).assign(value=sites.values)
    return map_values(table, sites.land, value="value", crs="local", cache=False), 1.0


def main() -> None:
    """Print and keep the tables."""
    ways: dict[str, Fit | None] = {"map_values": by_default, "BoundaryGP": features, **dict.fromkeys(IN_R)}
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
        f"Simulated: {SITES} sites on land of 100 km x 80 km with an inlet, around a lake, on both banks of a "
        f"river, and without water; the truth has an sd of 1, noise one of {NOISE} (of logarithms for the "
        "inlet and the river). Bumps fall off with the distance over land; sources have diffused over it; "
        "each bank has a level, a trend and bumps of its own. None of it is drawn from a model. Log scores "
        "are densities of what was measured, per site, in nats; CRPS and RMSE have its unit. Kriging has the "
        "best of five variogram models, and the power (0, 1/2, 1) by cross-validation within the training "
        "sites; splines have theirs by REML. ± is a standard error, over sites or squares; ahead and level "
        "are by more or less than one."
    )
    text = report(results, "map_values", "Measurements at places", words)
    if asked.quick or len(asked.sets) < len(SIMULATED) + len(REAL) or len(asked.ways) < len(ways):
        print(text)
    else:
        keep("values", text)


if __name__ == "__main__":
    main()
