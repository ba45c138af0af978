"""map_intensity, map_risk, map_prevalence and map_values: from files or frames to a posterior in one call."""

from __future__ import annotations

from typing import Any

from geobgp.auto.options import Options, PrevalenceOptions, RiskOptions, ValueOptions, takes
from geobgp.auto.pipeline import run
from geobgp.posterior import Posterior
from geobgp.progress import ProgressLike
from geobgp.validation import PROGRESS, validated

# Type checkers and editors read maps.pyi, which tests/helpers/stubs.py writes from these functions and their options.


@validated(progress=PROGRESS)
@takes(Options)
def map_intensity(points: Any = None, land: Any = None, *, progress: ProgressLike = False, **options: Any) -> Posterior:
    """Map the intensity of points on land: the whole way in one call.

    What is not given is chosen, and `posterior.summary()` says what and why.

    Parameters
    ----------
    {options}
    progress : bool, Progress, Stage or callable
        Tell of each stage on standard error, or to whoever is given; see `geobgp.progress`.

    Returns
    -------
    Posterior
        With `time` one over periods.

    Examples
    --------
    >>> import numpy as np, shapely
    >>> rng = np.random.default_rng(1)
    >>> points = np.clip(rng.normal([3.0, 5.0], 2.0, (300, 2)), 0, 10)
    >>> posterior = map_intensity(points, shapely.box(0, 0, 10, 10), crs="local", cell_size=0.5)
    >>> posterior.converged, posterior.n_points
    (True, 300)
    """
    return run(Options.of("map_intensity", points=points, land=land, **options), progress).posterior


@validated(progress=PROGRESS)
@takes(RiskOptions)
def map_risk(
    cases: Any, controls: Any = None, land: Any = None, *, progress: ProgressLike = False, **options: Any
) -> Posterior:
    """Map the relative risk of cases against controls.

    A person of either kind is a case with log odds log(cases / controls) + intercept + confounders + f, f a Gaussian
    process on the land. exp(f) is the relative risk (the odds ratio, where the controls are a sample of all people),
    in units of its mean over the controls: 1 is the average risk. It needs no map of the population, for the controls
    are one.

    Parameters
    ----------
    {options}
    progress : bool, Progress, Stage or callable
        Tell of each stage on standard error, or to whoever is given; see `geobgp.progress`.

    Returns
    -------
    Posterior
        Whose intensity is the relative risk: `intensity()`, `exceedance(1.0)` is the probability of a raised risk,
        `tolerance_contours()` where that is nearly sure, `totals(regions)` the relative risk of regions.

    Examples
    --------
    >>> import numpy as np, shapely
    >>> rng = np.random.default_rng(1)
    >>> controls = rng.uniform(0, 10, (300, 2))
    >>> cases = rng.uniform(0, 10, (900, 2))
    >>> cases = cases[rng.uniform(size=900) < np.where(cases[:, 0] > 5, 0.5, 0.2)]
    >>> posterior = map_risk(cases, controls, shapely.box(0, 0, 10, 10), crs="local", cell_size=1, permeability=0)
    >>> west, east = posterior.intensity_at([[1.0, 5.0], [9.0, 5.0]])["mean"]
    >>> bool(west < 0.8 < 1.2 < east)
    True
    """
    chosen = RiskOptions.of("map_risk", cases=cases, controls=controls, land=land, **options)
    return run(chosen, progress).posterior


@validated(progress=PROGRESS)
@takes(PrevalenceOptions)
def map_prevalence(surveys: Any, land: Any = None, *, progress: ProgressLike = False, **options: Any) -> Posterior:
    """Map the prevalence from surveys: how many were positive of how many tested, at places.

    The log odds of being positive are intercept + covariates + f, f a Gaussian process on the land; where sites vary
    more about the map than chance has it, their shares have a beta distribution (beta-binomial numbers of positives).

    Parameters
    ----------
    {options}
    progress : bool, Progress, Stage or callable
        Tell of each stage on standard error, or to whoever is given; see `geobgp.progress`.

    Returns
    -------
    Posterior
        Whose `intensity()` is the prevalence, 0 to 1; `exceedance(0.2)` is the probability of more than 20 %;
        `totals(regions)` has means of regions, over the people where an `exposure` says where they live, and then how
        many are positive.

    Examples
    --------
    >>> import numpy as np, pandas as pd, shapely
    >>> rng = np.random.default_rng(1)
    >>> table = pd.DataFrame(rng.uniform(0, 10, (80, 2)), columns=["easting", "northing"]).assign(n=20)
    >>> table["positive"] = rng.binomial(20, np.where(table["easting"] > 5, 0.5, 0.1))
    >>> land = shapely.box(0, 0, 10, 10)
    >>> posterior = map_prevalence(table, land, positive="positive", tested="n", crs="local", cell_size=1)
    >>> west, east = posterior.values_at([[1.0, 5.0], [9.0, 5.0]])["mean"]
    >>> bool(west < 0.25 < east)
    True
    """
    chosen = PrevalenceOptions.of("map_prevalence", surveys=surveys, land=land, **options)
    return run(chosen, progress).posterior


@validated(progress=PROGRESS)
@takes(ValueOptions)
def map_values(samples: Any, land: Any = None, *, progress: ProgressLike = False, **options: Any) -> Posterior:
    """Map a measured quantity from samples at places: kriging that asks whether water separates them.

    The value (or its logarithm or square root) is intercept + covariates + f + noise, f a Gaussian process on the land;
    the noise is learned. The map is of the quantity without the noise, in its own unit.

    Parameters
    ----------
    {options}
    progress : bool, Progress, Stage or callable
        Tell of each stage on standard error, or to whoever is given; see `geobgp.progress`.

    Returns
    -------
    Posterior
        Whose `intensity()` is the value; `predict_y(places)` is of new measurements, with noise.

    Examples
    --------
    >>> import numpy as np, pandas as pd, shapely
    >>> rng = np.random.default_rng(1)
    >>> table = pd.DataFrame(rng.uniform(0, 10, (80, 2)), columns=["easting", "northing"])
    >>> table["lead"] = np.exp(np.sin(table["easting"] / 2) + 0.1 * rng.normal(size=80))
    >>> posterior = map_values(table, shapely.box(0, 0, 10, 10), value="lead", units="µg/g", crs="local", cell_size=1)
    >>> posterior.units, posterior.link
    ('µg/g', EXP)
    >>> west, east = posterior.values_at([[3.0, 5.0], [9.0, 5.0]])["mean"]
    >>> bool(west > 2 > 1 > east)
    True
    """
    return run(ValueOptions.of("map_values", samples=samples, land=land, **options), progress).posterior
