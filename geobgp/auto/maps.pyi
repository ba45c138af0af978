"""map_intensity, map_risk, map_prevalence and map_values: from files or frames to a posterior in one call."""

# Written by tests/helpers/stubs.py: change the options, and write it again.

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from geobgp.auto.options import Features
from geobgp.data.effects import Covariates
from geobgp.data.inputs import Effort, Exposure
from geobgp.inference.families import CountName, TestedName
from geobgp.posterior import Posterior
from geobgp.prior.kernels import Kernel
from geobgp.progress import ProgressLike

def map_intensity(
    points: Any = None,
    land: Any = None,
    *,
    places: Any = None,
    key: str | Mapping[str, str] | None = None,
    precision: str | None = None,
    areas: Any = None,
    count: str | None = None,
    suppressed: tuple[int, int] | None = None,
    water: Any = None,
    barriers: Any = None,
    bridges: Any = None,
    cell_size: float | None = None,
    crs: Any = None,
    land_crs: Any = None,
    min_coverage: float = 0.02,
    weights: str | np.ndarray | None = None,
    longitude: str | None = None,
    latitude: str | None = None,
    easting: str | None = None,
    northing: str | None = None,
    points_crs: Any = None,
    layer: str | None = None,
    on_water: Literal["nearest", "drop", "error"] = "nearest",
    max_snap: float | None = None,
    chunksize: int = 200000,
    time: str | np.ndarray | None = None,
    every: Any = None,
    between: Any = None,
    date_format: str | None = None,
    absent: Literal["zero", "unknown"] | None = None,
    dynamics: Literal["auto", "separable", "diffusive"] = "auto",
    reported: str | None = None,
    as_of: Any = None,
    delay_by: str | None = None,
    exposure: Exposure | None = None,
    exposure_column: str | None = None,
    effort: Effort | None = None,
    effort_column: str | None = None,
    covariates: Covariates | None = None,
    fill_missing: Literal["mean"] | None = None,
    likelihood: CountName = "poisson",
    m: Features = "auto",
    boundary: Literal["neumann", "dirichlet"] = "neumann",
    permeability: float | Literal["auto"] = "auto",
    kernel: Kernel | None = None,
    hyper: Literal["map", "integrate"] = "map",
    max_features: int = 1024,
    max_seconds: float = 60.0,
    quick: bool = False,
    cache: bool = True,
    client: Any = None,
    min_people: float = 0.0,
    units: str | None = None,
    title: str = "",
    interval: float = 0.9,
    min_count: int | str = 0,
    protect: Literal["hide", "smooth"] = "hide",
    progress: ProgressLike = False,
) -> Posterior:
    """Map the intensity of points on land: the whole way in one call.

    What is not given is chosen, and `posterior.summary()` says what and why.

    Parameters
    ----------
    places : GeoDataFrame or path, "voronoi", or a mapping of levels to these
        The areas that are the places of events: polygons of postcodes, or points around which cells are drawn; or
        "voronoi", cells around the places that many points share. The events of an area are one observation. Several
        levels of precision have a name each, {"postcode": "postcodes.gpkg", "district": "districts.gpkg"}. See
        `bin_places`.
    key : str, or a mapping of levels to str
        The column of points and of places that says which is whose; by default the name of the level.
    precision : str, optional
        The column of the points that says how precise the place of each is: "exact", or the name of a level.
    points : GeoDataFrame, DataFrame, (k, 2) array, path, or iterable of chunks
        In any CRS; see `bin_points`. None where only counts by area are known.
    areas, count : GeoDataFrame or path, and the name of a column
        Polygons with a number of events each, in place of points: districts, counties. Together with points they count
        the events that have no place, so that nobody is counted twice. See `bin_areas`.
    suppressed : (int, int), optional
        Between which numbers the counts of areas without a number are known to lie.
    land, water : GeoDataFrame, GeoSeries, shapely geometry or path
        Polygons.
    barriers : the same, of lines
        What nothing passes: rivers, fences.
    bridges : the same, of lines
        What joins land that water separates; see `Domain.from_polygons`.
    cell_size : float, optional
        In metres. By default it is found: from cells by the area of the land and the number of observations (2,000 to
        16,000 of them) on, they are halved for as long as the observations gain by it and `max_seconds` allow;
        `posterior.tried` has what was compared.
    crs : optional
        By default that of the land, where it is a metric one and true there, else a UTM zone or an equal-area
        projection around the land; "local" for a plane.
    land_crs : optional
        CRS of land, water and barriers where they do not say.
    min_coverage : float
        Share of a cell that must be land; see `Domain.from_polygons`.
    weights : str or array, optional
        A column or one number per point, summed in place of ones.
    longitude, latitude, easting, northing, layer, max_snap, chunksize
        How points are read and moved to land; as for `bin_points`.
    points_crs : optional
        CRS of the points where their source does not say.
    on_water : "nearest", "drop" or "error"
        What to do with points off the land.
    time, every : str or array, and "day", "week", "epiweek", "month", "quarter", "year" or a list of edges
        The column of dates of points (or areas), and how long a period is: all periods are one model, a
        `Posterior` over periods. See `bin_points`; areas have a row for each period, see `bin_areas`. Cells, water and
        features are chosen on all periods together, and `exposure` and `covariates` may be lists with one for each.
    between, date_format, absent
        First and last period, how dates are written, and what it means that an area has no row in a period; as for
        `bin_points` and `bin_areas`.
    dynamics : "auto", "separable" or "diffusive"
        Whether patches of all sizes fade alike, or small ones sooner.
    reported : str, optional
        The column with the date of each event's report (of counts by area: the period of their report). The last
        periods, of which not all events are reported yet, are then nowcasts: what is expected of them in the end.
    as_of : date or str, optional
        The day until which reports are known; later ones are ignored. By default the last day in the data.
    delay_by : str, optional
        A column whose values have a distribution of delays each, such as the region.
    exposure, exposure_column
        What events are counted per; as for `LGCP`.
    effort, effort_column : raster, polygons (with a column) or array, optional
        The share of events that is reported, from 0 to 1. The map is of what would be seen with full effort; where
        there is none the data say nothing, and intervals are wide. Over periods it may be a list (or a mapping by
        the periods' labels) with one for each. As for `LGCP`.
    covariates, fill_missing
        What may explain what was observed; as for `LGCP`.
    likelihood : "poisson" or "negative-binomial"
        Whether counts vary about their mean as independent events do, or more; the summary says whether more spread was
        needed.
    m : "auto", "full" or int
        Number of features. "auto" takes as many as miss less than 5 % of the prior variance at the
        lengthscale that the data show, or full resolution where that gains more than 2 nats or more than
        `max_features` would be needed.
    boundary : "neumann" or "dirichlet"
        Under Neumann the log-intensity levels off freely at the boundary; under Dirichlet it is held there at its mean,
        which is for those who know that it is so.
    permeability : "auto" or float
        How far information crosses water, as a share of how far it reaches over land: 0 is closed, 1 open. "auto"
        compares closed, open and half-open water on coarse cells (and again on finer ones those that are near to each
        other), and keeps it closed unless another leads by 2 nats. Where values or surveys are mapped and ways between
        their places lead around no water, the land ends with the study: then it is open unless another leads.
    kernel : Kernel, optional
        `Matern(1.5)` for features, `Matern(1.0)` at full resolution, with learned lengthscale and sd.
    hyper : "map" or "integrate"
        The best hyperparameters, or a mixture over those that the data allow.
    max_features : int
        The most features that are tried when m is chosen.
    max_seconds : float
        No finer cells or larger models are begun that would end after this time. Where it ends the search,
        `posterior.summary()` says what would have come next. A fit of all periods ends by then, with the best that
        it has found and a warning.
    quick : bool
        For a first look: one fit on coarse cells and one on the usual ones, at full resolution where it can be. Neither
        finer cells, open water nor other models are tried.
    cache : bool
        Keep computed features on disk for the next time.
    client : distributed.Client or str, optional
        A Dask client, or the address of a scheduler, whose workers do independent work: count points in many parts,
        share a mixture over hyperparameters, fit strata or tiles. By default the current client.
    min_people : float
        Hide cells and regions with fewer people than this.
    units : str, optional
        What events are shown per: "per 100,000", "per 1,000 women", "per million" of a population; "per ha", "per 100
        km²" of land; "relative risk", the ratio to the average over all people. By default per person or per km²;
        expected cases as exposure always give a relative risk. Maps, tables, files and thresholds are all in it;
        `Posterior.in_units` changes it later.
    title : str
        Title of maps.
    interval : float
        Probability of the intervals of all outputs; `Posterior.with_interval` changes it later.
    min_count : int or "cdc", "nhs", "ons"
        Hide cells and regions based on fewer events than this, or by the rule of an office; see
        `Posterior.protected`.
    protect : "hide" or "smooth"
        Hide small numbers, or smooth the map until hardly any are left.
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

def map_risk(
    cases: Any,
    controls: Any = None,
    land: Any = None,
    *,
    status: str | None = None,
    water: Any = None,
    barriers: Any = None,
    bridges: Any = None,
    cell_size: float | None = None,
    crs: Any = None,
    land_crs: Any = None,
    min_coverage: float = 0.02,
    longitude: str | None = None,
    latitude: str | None = None,
    easting: str | None = None,
    northing: str | None = None,
    points_crs: Any = None,
    layer: str | None = None,
    on_water: Literal["nearest", "drop", "error"] = "nearest",
    max_snap: float | None = None,
    chunksize: int = 200000,
    time: str | np.ndarray | None = None,
    every: Any = None,
    between: Any = None,
    date_format: str | None = None,
    dynamics: Literal["auto", "separable", "diffusive"] = "auto",
    confounders: Sequence[str] = (),
    effort: Effort | None = None,
    effort_column: str | None = None,
    covariates: Covariates | None = None,
    fill_missing: Literal["mean"] | None = None,
    m: Features = "auto",
    boundary: Literal["neumann", "dirichlet"] = "neumann",
    permeability: float | Literal["auto"] = "auto",
    kernel: Kernel | None = None,
    hyper: Literal["map", "integrate"] = "map",
    max_features: int = 1024,
    max_seconds: float = 60.0,
    quick: bool = False,
    cache: bool = True,
    client: Any = None,
    title: str = "",
    interval: float = 0.9,
    min_count: int | str = 0,
    protect: Literal["hide", "smooth"] = "hide",
    progress: ProgressLike = False,
) -> Posterior:
    """Map the relative risk of cases against controls.

    A person of either kind is a case with log odds log(cases / controls) + intercept + confounders + f, f a Gaussian
    process on the land. exp(f) is the relative risk (the odds ratio, where the controls are a sample of all people),
    in units of its mean over the controls: 1 is the average risk. It needs no map of the population, for the controls
    are one.

    Parameters
    ----------
    cases, controls : GeoDataFrame, DataFrame, (k, 2) array or path
        A row per person, in any CRS. Controls are a random sample of the people whom the cases come from.
    status : str, optional
        The column that says who of one table is a case: then `cases` holds both, and `controls` is left out. It is
        true or false, 1 or 0, or "case" and "control".
    land, water : GeoDataFrame, GeoSeries, shapely geometry or path
        Polygons.
    barriers : the same, of lines
        What nothing passes: rivers, fences.
    bridges : the same, of lines
        What joins land that water separates; see `Domain.from_polygons`.
    cell_size : float, optional
        In metres. By default it is found: from cells by the area of the land and the number of observations (2,000 to
        16,000 of them) on, they are halved for as long as the observations gain by it and `max_seconds` allow;
        `posterior.tried` has what was compared.
    crs : optional
        By default that of the land, where it is a metric one and true there, else a UTM zone or an equal-area
        projection around the land; "local" for a plane.
    land_crs : optional
        CRS of land, water and barriers where they do not say.
    min_coverage : float
        Share of a cell that must be land; see `Domain.from_polygons`.
    longitude, latitude, easting, northing, layer, max_snap, chunksize
        How points are read and moved to land; as for `bin_points`.
    points_crs : optional
        CRS of the points where their source does not say.
    on_water : "nearest", "drop" or "error"
        What to do with points off the land.
    time, every : str or array, and "day", "week", "epiweek", "month", "quarter", "year" or a list of edges
        The column of dates of points (or areas), and how long a period is: all periods are one model, a
        `Posterior` over periods. See `bin_points`; areas have a row for each period, see `bin_areas`. Cells, water and
        features are chosen on all periods together, and `exposure` and `covariates` may be lists with one for each.
    between, date_format
        First and last period, how dates are written, and what it means that an area has no row in a period; as for
        `bin_points` and `bin_areas`.
    dynamics : "auto", "separable" or "diffusive"
        Whether patches of all sizes fade alike, or small ones sooner.
    confounders : sequence of str
        Columns of both tables, numbers or levels: what differs between persons and not between places, such as age.
        The map is then of the risk at their average.
    effort, effort_column : raster, polygons (with a column) or array, optional
        The share of events that is reported, from 0 to 1. The map is of what would be seen with full effort; where
        there is none the data say nothing, and intervals are wide. Over periods it may be a list (or a mapping by
        the periods' labels) with one for each. As for `LGCP`.
    covariates, fill_missing
        What may explain what was observed; as for `LGCP`.
    m : "auto", "full" or int
        Number of features. "auto" takes as many as miss less than 5 % of the prior variance at the
        lengthscale that the data show, or full resolution where that gains more than 2 nats or more than
        `max_features` would be needed.
    boundary : "neumann" or "dirichlet"
        Under Neumann the log-intensity levels off freely at the boundary; under Dirichlet it is held there at its mean,
        which is for those who know that it is so.
    permeability : "auto" or float
        How far information crosses water, as a share of how far it reaches over land: 0 is closed, 1 open. "auto"
        compares closed, open and half-open water on coarse cells (and again on finer ones those that are near to each
        other), and keeps it closed unless another leads by 2 nats. Where values or surveys are mapped and ways between
        their places lead around no water, the land ends with the study: then it is open unless another leads.
    kernel : Kernel, optional
        `Matern(1.5)` for features, `Matern(1.0)` at full resolution, with learned lengthscale and sd.
    hyper : "map" or "integrate"
        The best hyperparameters, or a mixture over those that the data allow.
    max_features : int
        The most features that are tried when m is chosen.
    max_seconds : float
        No finer cells or larger models are begun that would end after this time. Where it ends the search,
        `posterior.summary()` says what would have come next. A fit of all periods ends by then, with the best that
        it has found and a warning.
    quick : bool
        For a first look: one fit on coarse cells and one on the usual ones, at full resolution where it can be. Neither
        finer cells, open water nor other models are tried.
    cache : bool
        Keep computed features on disk for the next time.
    client : distributed.Client or str, optional
        A Dask client, or the address of a scheduler, whose workers do independent work: count points in many parts,
        share a mixture over hyperparameters, fit strata or tiles. By default the current client.
    title : str
        Title of maps.
    interval : float
        Probability of the intervals of all outputs; `Posterior.with_interval` changes it later.
    min_count : int or "cdc", "nhs", "ons"
        Hide cells and regions based on fewer events than this, or by the rule of an office; see
        `Posterior.protected`.
    protect : "hide" or "smooth"
        Hide small numbers, or smooth the map until hardly any are left.
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

def map_prevalence(
    surveys: Any,
    land: Any = None,
    *,
    positive: str | None = None,
    tested: str | None = None,
    water: Any = None,
    barriers: Any = None,
    bridges: Any = None,
    cell_size: float | None = None,
    crs: Any = None,
    land_crs: Any = None,
    min_coverage: float = 0.02,
    longitude: str | None = None,
    latitude: str | None = None,
    easting: str | None = None,
    northing: str | None = None,
    points_crs: Any = None,
    layer: str | None = None,
    on_water: Literal["nearest", "drop", "error"] = "nearest",
    max_snap: float | None = None,
    chunksize: int = 200000,
    time: str | np.ndarray | None = None,
    every: Any = None,
    between: Any = None,
    date_format: str | None = None,
    dynamics: Literal["auto", "separable", "diffusive"] = "auto",
    exposure: Exposure | None = None,
    exposure_column: str | None = None,
    covariates: Covariates | None = None,
    fill_missing: Literal["mean"] | None = None,
    likelihood: Literal["auto"] | TestedName = "auto",
    m: Features = "auto",
    boundary: Literal["neumann", "dirichlet"] = "neumann",
    permeability: float | Literal["auto"] = "auto",
    kernel: Kernel | None = None,
    hyper: Literal["map", "integrate"] = "map",
    max_features: int = 1024,
    max_seconds: float = 60.0,
    quick: bool = False,
    cache: bool = True,
    client: Any = None,
    min_people: float = 0.0,
    title: str = "",
    interval: float = 0.9,
    progress: ProgressLike = False,
) -> Posterior:
    """Map the prevalence from surveys: how many were positive of how many tested, at places.

    The log odds of being positive are intercept + covariates + f, f a Gaussian process on the land; where sites vary
    more about the map than chance has it, their shares have a beta distribution (beta-binomial numbers of positives).

    Parameters
    ----------
    surveys : GeoDataFrame, DataFrame or path
        A row for each site, in any CRS; several may be of one place.
    positive, tested : str
        The columns with the number of positives and of those tested.
    land, water : GeoDataFrame, GeoSeries, shapely geometry or path
        Polygons.
    barriers : the same, of lines
        What nothing passes: rivers, fences.
    bridges : the same, of lines
        What joins land that water separates; see `Domain.from_polygons`.
    cell_size : float, optional
        In metres. By default it is found: from cells by the area of the land and the number of observations (2,000 to
        16,000 of them) on, they are halved for as long as the observations gain by it and `max_seconds` allow;
        `posterior.tried` has what was compared.
    crs : optional
        By default that of the land, where it is a metric one and true there, else a UTM zone or an equal-area
        projection around the land; "local" for a plane.
    land_crs : optional
        CRS of land, water and barriers where they do not say.
    min_coverage : float
        Share of a cell that must be land; see `Domain.from_polygons`.
    longitude, latitude, easting, northing, layer, max_snap, chunksize
        How points are read and moved to land; as for `bin_points`.
    points_crs : optional
        CRS of the points where their source does not say.
    on_water : "nearest", "drop" or "error"
        What to do with points off the land.
    time, every : str or array, and "day", "week", "epiweek", "month", "quarter", "year" or a list of edges
        The column of dates of points (or areas), and how long a period is: all periods are one model, a
        `Posterior` over periods. See `bin_points`; areas have a row for each period, see `bin_areas`. Cells, water and
        features are chosen on all periods together, and `exposure` and `covariates` may be lists with one for each.
    between, date_format
        First and last period, how dates are written, and what it means that an area has no row in a period; as for
        `bin_points` and `bin_areas`.
    dynamics : "auto", "separable" or "diffusive"
        Whether patches of all sizes fade alike, or small ones sooner.
    exposure, exposure_column
        What events are counted per; as for `LGCP`.
    covariates, fill_missing
        What may explain what was observed; as for `LGCP`.
    likelihood : "auto", "binomial" or "beta-binomial"
        Whether sites vary about the map by chance alone, or more. "auto" takes the beta-binomial where it gains more
        than 2 nats.
    m : "auto", "full" or int
        Number of features. "auto" takes as many as miss less than 5 % of the prior variance at the
        lengthscale that the data show, or full resolution where that gains more than 2 nats or more than
        `max_features` would be needed.
    boundary : "neumann" or "dirichlet"
        Under Neumann the log-intensity levels off freely at the boundary; under Dirichlet it is held there at its mean,
        which is for those who know that it is so.
    permeability : "auto" or float
        How far information crosses water, as a share of how far it reaches over land: 0 is closed, 1 open. "auto"
        compares closed, open and half-open water on coarse cells (and again on finer ones those that are near to each
        other), and keeps it closed unless another leads by 2 nats. Where values or surveys are mapped and ways between
        their places lead around no water, the land ends with the study: then it is open unless another leads.
    kernel : Kernel, optional
        `Matern(1.5)` for features, `Matern(1.0)` at full resolution, with learned lengthscale and sd.
    hyper : "map" or "integrate"
        The best hyperparameters, or a mixture over those that the data allow.
    max_features : int
        The most features that are tried when m is chosen.
    max_seconds : float
        No finer cells or larger models are begun that would end after this time. Where it ends the search,
        `posterior.summary()` says what would have come next. A fit of all periods ends by then, with the best that
        it has found and a warning.
    quick : bool
        For a first look: one fit on coarse cells and one on the usual ones, at full resolution where it can be. Neither
        finer cells, open water nor other models are tried.
    cache : bool
        Keep computed features on disk for the next time.
    client : distributed.Client or str, optional
        A Dask client, or the address of a scheduler, whose workers do independent work: count points in many parts,
        share a mixture over hyperparameters, fit strata or tiles. By default the current client.
    min_people : float
        Hide cells and regions with fewer people than this.
    title : str
        Title of maps.
    interval : float
        Probability of the intervals of all outputs; `Posterior.with_interval` changes it later.
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

def map_values(
    samples: Any,
    land: Any = None,
    *,
    value: str | None = None,
    water: Any = None,
    barriers: Any = None,
    bridges: Any = None,
    cell_size: float | None = None,
    crs: Any = None,
    land_crs: Any = None,
    min_coverage: float = 0.02,
    longitude: str | None = None,
    latitude: str | None = None,
    easting: str | None = None,
    northing: str | None = None,
    points_crs: Any = None,
    layer: str | None = None,
    on_water: Literal["nearest", "drop", "error"] = "nearest",
    max_snap: float | None = None,
    chunksize: int = 200000,
    time: str | np.ndarray | None = None,
    every: Any = None,
    between: Any = None,
    date_format: str | None = None,
    dynamics: Literal["auto", "separable", "diffusive"] = "auto",
    covariates: Covariates | None = None,
    fill_missing: Literal["mean"] | None = None,
    transform: Literal["auto", "none", "sqrt", "log"] = "auto",
    m: Features = "auto",
    boundary: Literal["neumann", "dirichlet"] = "neumann",
    permeability: float | Literal["auto"] = "auto",
    kernel: Kernel | None = None,
    hyper: Literal["map", "integrate"] = "map",
    max_features: int = 1024,
    max_seconds: float = 60.0,
    quick: bool = False,
    cache: bool = True,
    client: Any = None,
    units: str | None = None,
    title: str = "",
    interval: float = 0.9,
    progress: ProgressLike = False,
) -> Posterior:
    """Map a measured quantity from samples at places: kriging that asks whether water separates them.

    The value (or its logarithm or square root) is intercept + covariates + f + noise, f a Gaussian process on the land;
    the noise is learned. The map is of the quantity without the noise, in its own unit.

    Parameters
    ----------
    samples : GeoDataFrame, DataFrame or path
        A row for each measurement, in any CRS; several may be of one place.
    value : str
        The column with what was measured.
    land, water : GeoDataFrame, GeoSeries, shapely geometry or path
        Polygons.
    barriers : the same, of lines
        What nothing passes: rivers, fences.
    bridges : the same, of lines
        What joins land that water separates; see `Domain.from_polygons`.
    cell_size : float, optional
        In metres. By default it is found: from cells by the area of the land and the number of observations (2,000 to
        16,000 of them) on, they are halved for as long as the observations gain by it and `max_seconds` allow;
        `posterior.tried` has what was compared.
    crs : optional
        By default that of the land, where it is a metric one and true there, else a UTM zone or an equal-area
        projection around the land; "local" for a plane.
    land_crs : optional
        CRS of land, water and barriers where they do not say.
    min_coverage : float
        Share of a cell that must be land; see `Domain.from_polygons`.
    longitude, latitude, easting, northing, layer, max_snap, chunksize
        How points are read and moved to land; as for `bin_points`.
    points_crs : optional
        CRS of the points where their source does not say.
    on_water : "nearest", "drop" or "error"
        What to do with points off the land.
    time, every : str or array, and "day", "week", "epiweek", "month", "quarter", "year" or a list of edges
        The column of dates of points (or areas), and how long a period is: all periods are one model, a
        `Posterior` over periods. See `bin_points`; areas have a row for each period, see `bin_areas`. Cells, water and
        features are chosen on all periods together, and `exposure` and `covariates` may be lists with one for each.
    between, date_format
        First and last period, how dates are written, and what it means that an area has no row in a period; as for
        `bin_points` and `bin_areas`.
    dynamics : "auto", "separable" or "diffusive"
        Whether patches of all sizes fade alike, or small ones sooner.
    covariates, fill_missing
        What may explain what was observed; as for `LGCP`.
    transform : "auto", "none", "sqrt" or "log"
        What is modelled: the value, its square root, or its logarithm; all results are of the value itself. "auto"
        takes the one with the most evidence, of values that are all above zero.
    m : "auto", "full" or int
        Number of features. "auto" takes as many as miss less than 5 % of the prior variance at the
        lengthscale that the data show, or full resolution where that gains more than 2 nats or more than
        `max_features` would be needed.
    boundary : "neumann" or "dirichlet"
        Under Neumann the log-intensity levels off freely at the boundary; under Dirichlet it is held there at its mean,
        which is for those who know that it is so.
    permeability : "auto" or float
        How far information crosses water, as a share of how far it reaches over land: 0 is closed, 1 open. "auto"
        compares closed, open and half-open water on coarse cells (and again on finer ones those that are near to each
        other), and keeps it closed unless another leads by 2 nats. Where values or surveys are mapped and ways between
        their places lead around no water, the land ends with the study: then it is open unless another leads.
    kernel : Kernel, optional
        `Matern(1.5)` for features, `Matern(1.0)` at full resolution, with learned lengthscale and sd.
    hyper : "map" or "integrate"
        The best hyperparameters, or a mixture over those that the data allow.
    max_features : int
        The most features that are tried when m is chosen.
    max_seconds : float
        No finer cells or larger models are begun that would end after this time. Where it ends the search,
        `posterior.summary()` says what would have come next. A fit of all periods ends by then, with the best that
        it has found and a warning.
    quick : bool
        For a first look: one fit on coarse cells and one on the usual ones, at full resolution where it can be. Neither
        finer cells, open water nor other models are tried.
    cache : bool
        Keep computed features on disk for the next time.
    client : distributed.Client or str, optional
        A Dask client, or the address of a scheduler, whose workers do independent work: count points in many parts,
        share a mixture over hyperparameters, fit strata or tiles. By default the current client.
    units : str, optional
        Its unit, such as "µg/g", for maps, tables and files.
    title : str
        Title of maps.
    interval : float
        Probability of the intervals of all outputs; `Posterior.with_interval` changes it later.
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

