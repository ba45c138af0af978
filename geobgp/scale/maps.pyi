"""map_strata and map_tiles: many maps at once, and land of any size."""

# Written by tests/helpers/stubs.py: change the options, and write it again.

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from geobgp.auto.options import Features
from geobgp.data.effects import Covariates
from geobgp.data.inputs import Effort, Exposure
from geobgp.inference.families import CountName
from geobgp.prior.kernels import Kernel
from geobgp.progress import ProgressLike
from geobgp.scale.strata import Strata
from geobgp.scale.tiles import Tiles

def map_strata(
    points: Any = None,
    land: Any = None,
    by: Sequence[str] = (),
    *,
    surveys: Any = None,
    positive: str | None = None,
    tested: str | None = None,
    samples: Any = None,
    value: str | None = None,
    cases: Any = None,
    controls: Any = None,
    status: str | None = None,
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
    confounders: Sequence[str] = (),
    exposure: Exposure | None = None,
    exposure_column: str | None = None,
    effort: Effort | None = None,
    effort_column: str | None = None,
    covariates: Covariates | None = None,
    fill_missing: Literal["mean"] | None = None,
    likelihood: CountName = "poisson",
    transform: Literal["auto", "none", "sqrt", "log"] = "auto",
    n_jobs: int | None = None,
    pool: bool = False,
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
    min_people: float = 0.0,
    title: str = "",
    interval: float = 0.9,
    min_count: int | str = 0,
    protect: Literal["hide", "smooth"] = "hide",
    progress: ProgressLike = False,
) -> Strata:
    """Map each value of a column by itself: diseases, age groups, species; all on the same cells and the same basis.

    Any kind of data has strata: `points`, `areas` (with a row for each area and stratum), `cases` and `controls` (all
    strata share the controls, where their table has no such column), in space or, with `time`, over periods. All
    of them together choose cells, water and features, as in `map_intensity` or `map_risk`; domain, basis and inputs
    are made once, and handed to all workers once. Each stratum is then what the model makes of its own data.
    `max_seconds` allows for all of it: the more strata there are, the sooner the search for finer cells ends.

    Parameters
    ----------
    surveys : GeoDataFrame, DataFrame or path
        A row for each site, in any CRS; several may be of one place.
    positive, tested : str
        The columns with the number of positives and of those tested.
    samples : GeoDataFrame, DataFrame or path
        A row for each measurement, in any CRS; several may be of one place.
    value : str
        The column with what was measured.
    cases, controls : GeoDataFrame, DataFrame, (k, 2) array or path
        A row per person, in any CRS. Controls are a random sample of the people whom the cases come from.
    status : str, optional
        The column that says who of one table is a case: then `cases` holds both, and `controls` is left out. It is
        true or false, 1 or 0, or "case" and "control".
    by : str or sequence of str
        A column, or several: one map for each combination of their values that there is.
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
    confounders : sequence of str
        Columns of both tables, numbers or levels: what differs between persons and not between places, such as age.
        The map is then of the risk at their average.
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
    transform : "auto", "none", "sqrt" or "log"
        What is modelled: the value, its square root, or its logarithm; all results are of the value itself. "auto"
        takes the one with the most evidence, of values that are all above zero.
    n_jobs : int, optional
        Processes, where there is no client; one for each core by default.
    pool : bool
        Take the log lengthscales and log sds of the strata for draws from a normal distribution whose mean and spread
        are learned from all of them, so that strata with few points borrow from the others. By default each is free.
        What they are pooled at suits strata of their size best, and need not be what suits all points together.
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
        What events are shown per: "per 100,000", "per 1,000 women", "per million" of a population; "per ha", "per 100
        km²" of land; "relative risk", the ratio to the average over all people. By default per person or per km²;
        expected cases as exposure always give a relative risk. Maps, tables, files and thresholds are all in it;
        `Posterior.in_units` changes it later.
    min_people : float
        Hide cells and regions with fewer people than this.
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
    Strata
        A mapping of names to posteriors, with ``failures`` by name. Whatever a `Posterior` can be
        asked, all of them can: ``totals()``, ``dataset()``, ``to_map(path)``, ``save(path)``.

    Warns
    -----
    StrataWarning
        When strata could not be mapped; the others are.

    Examples
    --------
    >>> import numpy as np, pandas as pd, shapely
    >>> rng = np.random.default_rng(1)
    >>> table = pd.DataFrame(rng.uniform(0, 10, (300, 2)), columns=["easting", "northing"])
    >>> table["age"] = np.where(table["easting"] > rng.uniform(0, 10, 300), "old", "young")
    >>> quick = {"crs": "local", "cell_size": 1.0, "m": "full", "permeability": 0.0}
    >>> strata = map_strata(table, shapely.box(0, 0, 10, 10), "age", n_jobs=1, **quick)
    >>> list(strata), sum(posterior.n_points for posterior in strata.values())
    (['old', 'young'], 300)
    """

def map_tiles(
    points: Any,
    land: Any,
    out: str | Path,
    *,
    cell_size: float,
    water: Any = None,
    barriers: Any = None,
    crs: Any = None,
    land_crs: Any = None,
    min_coverage: float = 0.02,
    longitude: str | None = None,
    latitude: str | None = None,
    easting: str | None = None,
    northing: str | None = None,
    points_crs: Any = None,
    layer: str | None = None,
    max_snap: float | None = None,
    exposure: Exposure | None = None,
    exposure_column: str | None = None,
    effort: Effort | None = None,
    effort_column: str | None = None,
    covariates: Covariates | None = None,
    fill_missing: Literal["mean"] | None = None,
    permeability: float | Literal["auto"] = "auto",
    client: Any = None,
    n_jobs: int | None = None,
    tile_nodes: int = 50000,
    halo: float | None = None,
    units: str | None = None,
    title: str = "",
    interval: float = 0.9,
    thresholds: tuple[float, ...] = (),
    progress: ProgressLike = False,
) -> Tiles:
    """Map the intensity of points on land of any size at full resolution, tile by tile.

    A coarse pooled fit, and a few tiles that learn by themselves, give lengthscale, sd, intercept and effects of
    covariates, which all tiles share. Each tile is fitted with a halo of its neighbours' land and points, and the tiles
    are blended where they meet. Results are written as they come. Tiles are files named by a hash of all that they
    depend on: a run that is cut off at any moment fits only what is missing when it is begun again. Where one tile
    holds everything the result is that of the whole fit, exactly.

    Points may be a Dask collection, or a folder or pattern of GeoParquet files; their coordinates are held in memory,
    16 bytes each. Exposure, effort and covariates are no arrays: every tile reads its own part of a raster file, or of
    polygons. Workers on other machines must find rasters under the same paths.

    Parameters
    ----------
    points : GeoDataFrame, DataFrame, (k, 2) array, path, or iterable of chunks
        In any CRS; see `bin_points`. None where only counts by area are known.
    land, water : GeoDataFrame, GeoSeries, shapely geometry or path
        Polygons.
    barriers : the same, of lines
        What nothing passes: rivers, fences.
    cell_size : float
        In metres.
    crs : optional
        By default that of the land, where it is a metric one and true there, else a UTM zone or an equal-area
        projection around the land; "local" for a plane.
    land_crs : optional
        CRS of land, water and barriers where they do not say.
    min_coverage : float
        Share of a cell that must be land; see `Domain.from_polygons`.
    longitude, latitude, easting, northing, layer, max_snap
        How points are read and moved to land; as for `bin_points`.
    points_crs : optional
        CRS of the points where their source does not say.
    exposure, exposure_column
        What events are counted per; as for `LGCP`.
    effort, effort_column : raster, polygons (with a column) or array, optional
        The share of events that is reported, from 0 to 1. The map is of what would be seen with full effort; where
        there is none the data say nothing, and intervals are wide. Over periods it may be a list (or a mapping by
        the periods' labels) with one for each. As for `LGCP`.
    covariates, fill_missing
        What may explain what was observed; as for `LGCP`.
    permeability : "auto" or float
        How far information crosses water, as a share of how far it reaches over land: 0 is closed, 1 open. "auto"
        compares closed, open and half-open water on coarse cells (and again on finer ones those that are near to each
        other), and keeps it closed unless another leads by 2 nats. Where values or surveys are mapped and ways between
        their places lead around no water, the land ends with the study: then it is open unless another leads.
    client : distributed.Client or str, optional
        A Dask client, or the address of a scheduler, whose workers do independent work: count points in many parts,
        share a mixture over hyperparameters, fit strata or tiles. By default the current client.
    n_jobs : int, optional
        Processes, where there is no client; one for each core by default.
    tile_nodes : int
        Cells of land of a tile, at most; its halo comes on top.
    halo : float, optional
        Width of the halo in lengthscales, at least 3, which is the default. With an exposure or an effort it is 4:
        over land where nobody is, or nobody looks, information comes from farther away.
    units : str, optional
        What events are shown per: "per 100,000", "per 1,000 women", "per million" of a population; "per ha", "per 100
        km²" of land; "relative risk", the ratio to the average over all people. By default per person or per km²;
        expected cases as exposure always give a relative risk. Maps, tables, files and thresholds are all in it;
        `Posterior.in_units` changes it later.
    title : str
        Title of maps.
    interval : float
        Probability of the intervals of all outputs; `Posterior.with_interval` changes it later.
    out : path
        A folder: ``mosaic.tif``, ``mosaic.zarr``, ``summary.json``, and ``tiles/``, which may be deleted in the end.
    thresholds : sequence of float
        In the unit of the map. Each adds a band with the probability of exceeding it, ``exceedance_2``.
    progress : bool, Progress, Stage or callable
        Tell of each stage on standard error, or to whoever is given; see `geobgp.progress`.

    Returns
    -------
    Tiles
    """

