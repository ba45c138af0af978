"""map_intensity and map_risk: from files or frames to a posterior in one call."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
import shapely

from geobgp import privacy
from geobgp.auto.gridded import GriddedSeries, about_crs, describe, read_land, side
from geobgp.auto.options import Features, Options, RiskOptions
from geobgp.auto.search import (
    LEAD,
    NEAR,
    PERMEABILITIES,
    POOLED_SHARE,
    BoundaryCondition,
    Fits,
    GridRefinement,
    cell_size_for,
    fit_over_time,
)
from geobgp.data.areas import AreaCounts
from geobgp.data.counts import Counts, about_few
from geobgp.data.effects import FIXED_SD
from geobgp.data.persons import Groups, Persons, check_apart, place_persons, read_table
from geobgp.errors import DataError, GeobgpWarning, captured_warnings, warn
from geobgp.inference.engine import engine_for
from geobgp.inference.families import Binomial
from geobgp.inference.fit import Fit, fit
from geobgp.inference.hyper import Hyper
from geobgp.land.domain import Domain
from geobgp.land.polygons import check_one_plane, own_crs
from geobgp.posterior import Posterior
from geobgp.prior.basis import resolve
from geobgp.prior.full_rank import FullRank
from geobgp.prior.kernels import Kernel
from geobgp.privacy import told_in_choices
from geobgp.progress import Progress, ProgressLike, as_progress
from geobgp.summary import Choice
from geobgp.text import count
from geobgp.validation import PROGRESS, validated

if TYPE_CHECKING:
    from geobgp.data.effects import Covariates
    from geobgp.data.inputs import Effort, Exposure
    from geobgp.inference.states import SparseState
    from geobgp.progress import Stage


# -- The one call: points and land in, a posterior out, with every choice made and reported ------------------


@validated(progress=PROGRESS)
def map_intensity(
    points: Any = None,
    land: Any = None,
    *,
    areas: Any = None,
    count: str | None = None,
    suppressed: tuple[int, int] | None = None,
    time: str | np.ndarray | None = None,
    every: Any = None,
    between: Any = None,
    date_format: str | None = None,
    absent: Literal["zero", "unknown"] | None = None,
    dynamics: Literal["auto", "separable", "diffusive"] = "auto",
    water: Any = None,
    barriers: Any = None,
    bridges: Any = None,
    exposure: Exposure | None = None,
    exposure_column: str | None = None,
    effort: Effort | None = None,
    effort_column: str | None = None,
    covariates: Covariates | None = None,
    fill_missing: Literal["mean"] | None = None,
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
    chunksize: int = 200_000,
    m: Features = "auto",
    boundary: Literal["neumann", "dirichlet"] = "neumann",
    permeability: float | Literal["auto"] = "auto",
    likelihood: Literal["poisson", "negative-binomial"] = "poisson",
    kernel: Kernel | None = None,
    hyper: Literal["map", "integrate"] = "map",
    max_seconds: float = 60.0,
    max_features: int = 1024,
    cache: bool = True,
    client: Any = None,
    units: str | None = None,
    title: str = "",
    interval: float = 0.9,
    min_count: int | str = 0,
    protect: Literal["hide", "smooth"] = "hide",
    min_people: float = 0.0,
    progress: ProgressLike = False,
) -> Posterior:
    """Map the intensity of points on land: the whole way in one call.

    What is not given is chosen, and `posterior.summary()` says what and why.

    Parameters
    ----------
    points : GeoDataFrame, DataFrame, (k, 2) array, path, or iterable of chunks
        In any CRS; see `bin_points`. None where only counts by area are known.
    land, water : GeoDataFrame, GeoSeries, shapely geometry or path
        Polygons.
    areas, count : GeoDataFrame or path, and the name of a column
        Polygons with a number of events each, in place of points: districts, counties. Together with points they count
        the events that have no place, so that nobody is counted twice. See `bin_areas`.
    suppressed : (int, int), optional
        Between which numbers the counts of areas without a number are known to lie.
    time, every : str or array, and "day", "week", "epiweek", "month", "quarter", "year" or a list of edges
        The column of dates of points (or areas), and how long a period is: all periods are one model, a
        `Posterior` over periods. See `bin_points`; areas have a row for each period, see `bin_areas`. Cells, water and
        features are chosen on all periods together, and `exposure` and `covariates` may be lists with one for each.
    between, date_format, absent
        First and last period, how dates are written, and what it means that an area has no row in a period; as for
        `bin_points` and `bin_areas`.
    dynamics : "auto", "separable" or "diffusive"
        Whether patches of all sizes fade alike, or small ones sooner.
    barriers : the same, of lines
        What nothing passes: rivers, fences.
    bridges : the same, of lines
        What joins land that water parts; see `Domain.from_polygons`.
    exposure, exposure_column, covariates, fill_missing
        What events are counted per, and what may explain them; as for `LGCP`.
    effort, effort_column : raster, polygons (with a column) or array, optional
        The share of events that get reported, from 0 to 1. The map is of what would be seen with full effort; where
        there is none the data say nothing, and intervals are wide. As for `LGCP`.
    cell_size : float, optional
        In metres. By default it is found: from cells by the area of the land and the number of points (2,000 to
        16,000 of them) on, they are halved for as long as the points gain by it and `max_seconds` allow;
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
    m : "auto", "full" or int
        Number of features. "auto" takes as many as miss less than 5 % of the prior variance at the
        lengthscale that the data show, or full resolution where that gains more than 2 nats or more than
        `max_features` would be needed.
    boundary : "neumann" or "dirichlet"
        Under Neumann the log-intensity levels off freely at the shore; under Dirichlet it is held there at its mean,
        which is for those who know that it is so.
    permeability : "auto" or float
        How far information crosses water, as a share of how far it reaches over land: 0 is closed, 1 open. "auto"
        compares closed, open and half-open water on coarse cells (and again on finer ones those that are near to each
        other), and keeps it closed unless another leads by 2 nats.
    likelihood : "poisson" or "negative-binomial"
        Whether counts vary about their mean as independent events do, or more; the summary says whether more spread was
        needed.
    kernel : Kernel, optional
        `Matern(1.5)` for features, `Matern(1.0)` at full resolution, with learned lengthscale and sd.
    hyper : "map" or "integrate"
        The best hyperparameters, or a mixture over those that the data allow.
    max_seconds : float
        No finer cells or larger models are begun that would end after this time. Where it ends the search,
        `posterior.summary()` says what would have come next. A fit of all periods ends by then, with the best that
        it has found and a warning.
    max_features : int
        The most features that are tried when m is chosen.
    cache : bool
        Keep computed features on disk for the next time.
    client : distributed.Client or str, optional
        A Dask client, or the address of a scheduler, whose workers count points in many parts and share a mixture over
        hyperparameters; by default the current client. Without one all is done here.
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
        Hide cells and regions that rest on fewer events than this, or by the rule of an office; see
        `Posterior.protected`.
    protect : "hide" or "smooth"
        Hide small numbers, or map so smoothly that nearly none is left.
    min_people : float
        Hide cells and regions with fewer people than this.
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
    given = locals()  # every argument, and nothing else as yet
    return run(Options(**{name: given[name] for name in given if name != "progress"}), progress).posterior


@dataclass(frozen=True, eq=False)
class Mapped:
    """A posterior and what led to it.

    Attributes
    ----------
    posterior : Posterior
    counts : Counts or AreaCounts
    choices : dict of str to Choice
        CRS, cell size, water, features, boundary, kernel, hyperparameters: what was taken and why.
    seconds : dict of str to float
        Time by stage.
    reach : float
        The farthest that a point may have been moved to land.
    """

    posterior: Posterior
    counts: Counts | AreaCounts
    choices: dict[str, Choice]
    seconds: dict[str, float]
    reach: float

    @property
    def domain(self) -> Domain:
        """The land that was fitted."""
        return self.posterior.domain


def run(options: Options, progress: ProgressLike = False, *, keep_coordinates: bool = False) -> Mapped:
    """Do what `map_intensity` does, and return the counts, the choices and the times as well.

    Parameters
    ----------
    options : Options
    progress : bool, Progress, Stage or callable
    keep_coordinates : bool
        Keep the points' coordinates with the counts, to be shown on a map.
    """
    o = options
    o.check_files()
    progress = as_progress(progress)
    scenes = GriddedSeries(o, progress, keep_coordinates)
    begin = perf_counter()
    first = o.max_seconds * (1.0 if o.time is None else POOLED_SHARE)
    fits = Fits(o.kernel, o.cache, o.title, progress, begin + first, o.likelihood, o.client)
    ladder = GridRefinement(o, scenes, fits)
    kept, choices = ladder.climb()
    in_time = kept.scene.in_time
    if in_time is not None:
        kept = fit_over_time(o, dataclasses.replace(fits, deadline=begin + o.max_seconds), kept, choices)
    tried = tuple(dataclasses.replace(rung, kept=rung is kept.rung) for rung in fits.tried)
    choices["hyperparameters"] = Choice("the best ones", "'integrate' would add their own uncertainty")
    if o.hyper == "integrate":
        kept = fits.integrate(kept) if in_time is None else kept
        mixed = f"a mixture over {len(kept.posterior.fit.states)} values"
        choices["hyperparameters"] = Choice("integrated", mixed)
    for warning in (*kept.scene.warnings, *kept.warnings):
        warn(warning)
    posterior = dataclasses.replace(
        kept.posterior, choices={name: str(choice) for name, choice in choices.items()}, tried=tried
    )
    posterior = posterior.in_units(o.units).with_interval(o.interval)
    posterior = privacy.told_in_choices(posterior, o, choices)
    counts = kept.scene.counts if in_time is None else in_time.counts
    reach = ladder.reach if o.max_snap is None else o.max_snap
    return Mapped(posterior, counts, choices, dict(progress.seconds), reach)


# -- Cases and controls: the relative risk over the land, from where persons live who fell ill and some who did not --


@validated(progress=PROGRESS)
def map_risk(
    cases: Any,
    controls: Any,
    land: Any,
    *,
    confounders: Sequence[str] = (),
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
    on_water: Literal["nearest", "drop", "error"] = "nearest",
    max_snap: float | None = None,
    permeability: float | Literal["auto"] = "auto",
    kernel: Kernel | None = None,
    hyper: Literal["map", "integrate"] = "map",
    max_seconds: float = 60.0,
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
    land, water, barriers, bridges
        As for `map_intensity`.
    confounders : sequence of str
        Columns of both tables, numbers or levels: what differs between persons and not between places, such as age.
        The map is then of the risk at their average.
    cell_size, crs, land_crs, min_coverage, longitude, latitude, easting, northing, points_crs, on_water, max_snap
        As for `map_intensity`; the cells follow from the area of the land and the number of persons.
    permeability : "auto" or float
        How far information crosses water. "auto" compares closed, open and half-open water, and keeps it closed
        unless another leads by 2 nats.
    kernel : Kernel, optional
        `Matern(1.0)` or `Matern(2.0)`; the first by default, with learned lengthscale and sd.
    hyper : "map" or "integrate"
        The best hyperparameters, or a mixture over those that the data allow.
    max_seconds : float
        No other permeability is tried after this time.
    title : str
    interval : float
        Probability of the intervals of all outputs.
    min_count, protect
        Hide what rests on few cases; as for `map_intensity`.
    progress : bool, Progress, Stage or callable

    Returns
    -------
    Posterior
        Whose intensity is the relative risk: `intensity()`, `exceedance(1.0)` is the probability of a raised risk,
        `tolerance_contours()` where that is nearly sure, `totals(regions)` the relative risk of regions.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> controls = rng.uniform(0, 10, (300, 2))
    >>> cases = rng.uniform(0, 10, (900, 2))
    >>> cases = cases[rng.uniform(size=900) < np.where(cases[:, 0] > 5, 0.5, 0.2)]
    >>> posterior = map_risk(cases, controls, shapely.box(0, 0, 10, 10), crs="local", cell_size=1, permeability=0)
    >>> west, east = posterior.intensity_at([[1.0, 5.0], [9.0, 5.0]])["mean"]
    >>> bool(west < 0.8 < 1.2 < east)
    True
    """
    given = locals()  # every argument, and nothing else as yet
    return run_risk(RiskOptions(**{n: given[n] for n in given if n != "progress"}), progress).posterior


@dataclass(frozen=True, eq=False)
class RiskMapped:
    """A map of relative risk and what led to it.

    Attributes
    ----------
    posterior : Posterior
    cases, controls : Persons
    choices : dict of str to Choice
    seconds : dict of str to float
    """

    posterior: Posterior
    cases: Persons
    controls: Persons
    choices: dict[str, Choice]
    seconds: dict[str, float]


def run_risk(options: RiskOptions, progress: ProgressLike = False) -> RiskMapped:
    """Do what `map_risk` does, and return the persons, the choices and the times as well."""
    o, progress = options, as_progress(progress)
    o.check_files()
    tables = {what: read_table(getattr(o, what), what) for what in ("cases", "controls")}
    with progress.stage("land") as stage:
        land = read_land(o.land, o.water, o.barriers, o.bridges, crs=o.crs, land_crs=o.land_crs)
        n = sum(map(len, tables.values()))
        size, why = cell_size_for(float(shapely.area(land.geometry)), n, land.crs)
        domain = Domain.from_land(land, o.cell_size or size, o.min_coverage)
        stage.note(describe(domain))
    reading = {name: getattr(o, name) for name in ("longitude", "latitude", "easting", "northing")}
    reading |= {"on_water": o.on_water, "max_snap": o.max_snap, "crs": o.points_crs}
    with progress.stage("persons") as stage:
        cases, controls = (_placed(table, what, domain, o, reading) for what, table in tables.items())
        stage.note(f"{count(len(cases.node), 'case')}, {count(len(controls.node), 'control')}")
    if domain.crs is None:
        on_plane = {"cases": cases.counts.points_crs, "controls": controls.counts.points_crs}
        check_one_plane({"land": own_crs(o.land)} | on_plane)
    check_apart(cases, controls)
    for what, persons in (("cases", cases), ("controls", controls)):
        for warning in (about_few(len(persons.node), what), persons.about_places(what)):
            if warning is not None:
                warn(warning)
    groups = Groups.of(cases, controls)
    posterior, water = _with_water(groups, domain, o, progress)
    choices = {
        "CRS": about_crs(domain, o.crs),
        "cell size": Choice(side(domain), why if o.cell_size is None else "given"),
        "water": water,
        "kernel": Choice(posterior.kernel.name, "the usual one" if o.kernel is None else "given"),
    }
    lost = {
        name: sum(int(getattr(p.counts, f"n_{name}")) for p in (cases, controls))
        for name in ("dropped", "snapped")
    }
    posterior = dataclasses.replace(
        posterior,
        choices={name: str(c) for name, c in choices.items()},
        points=dict(posterior.points) | lost,
        interval=o.interval,
    )
    posterior = told_in_choices(posterior, o, choices)
    return RiskMapped(posterior, cases, controls, choices, dict(progress.seconds))


def _placed(table: Any, what: str, domain: Domain, o: RiskOptions, reading: dict[str, Any]) -> Persons:
    """Return persons on land; bare eastings and northings may be in the CRS of the land's own file."""
    captured, theirs = list[GeobgpWarning](), own_crs(o.land)
    try:
        with captured_warnings(captured.append):
            found = place_persons(table, domain, what, o.confounders, **reading)
    except DataError as error:
        if error.found != 0 or o.points_crs is not None or theirs is None or theirs == domain.crs:
            raise
        try:
            return place_persons(table, domain, what, o.confounders, **reading | {"crs": theirs})
        except DataError:
            raise error from None
    for warning in captured:
        warn(warning)
    return found


# -- the model


def fit_risk(
    groups: Groups,
    basis: FullRank,
    kernel: Kernel | None = None,
    *,
    hyper: Literal["map", "integrate"] = "map",
    stage: Stage | None = None,
    title: str = "",
) -> Posterior:
    """Return the posterior of the relative risk, in units of its mean over the controls.

    Parameters
    ----------
    groups : Groups
    basis : FullRank
    kernel : Kernel, optional
    hyper : "map" or "integrate"
    stage : Stage, optional
    title : str
    """
    domain, kernel = basis.domain, kernel or basis.default_kernel()
    basis.check_kernel(kernel)
    likelihood = Binomial(groups.cases, groups.persons, groups.offset)
    k = groups.effects.columns.shape[1]
    at_nodes = np.zeros((domain.n_nodes, k))  # the map is of the risk at the average of the confounders
    at_nodes[:, 0] = 1.0
    scaling = resolve(None, basis)
    where = domain.node_points[groups.node]
    engine = engine_for(basis, kernel, at_nodes, np.full(k, FIXED_SD), 0.0, where, scaling)
    engine.design = groups.effects.columns
    size = float(np.sqrt(domain.node_areas.sum()))
    parameters = Hyper.for_domain(kernel, size, domain.cell_size).capped(basis.longest_lengthscale(kernel))
    found = fit(engine, likelihood, parameters, integrate=hyper == "integrate", stage=stage)
    controls = groups.controls_at(domain.n_nodes)
    share = controls / controls.sum()
    n_cases = int(groups.cases.sum())
    n_controls = int(controls.sum())
    made = Posterior(
        fit=found,
        basis=basis,
        kernel=kernel,
        likelihood=Binomial.without_data(likelihood.facts()),
        exposure=n_cases * share,
        exposure_kind="risk",
        effects=dataclasses.replace(groups.effects, columns=at_nodes),
        points={"used": n_cases + n_controls, "cases": n_cases, "controls": n_controls},
        title=title,
        scaling=scaling,
        persons=groups,
    )
    log_mean = math.log(float(share @ made._nodes.exp_mean()))
    odds = Binomial.without_data({"offset": groups.offset + log_mean})
    return dataclasses.replace(made, fit=_centred(found, log_mean), likelihood=odds)


def _centred(found: Fit, log_mean: float) -> Fit:
    """Return a fit whose linear predictor is lower by the log of the mean risk."""
    states = tuple(
        dataclasses.replace(s, centre=s.centre - log_mean)
        for s in cast("tuple[SparseState, ...]", found.states)
    )
    return dataclasses.replace(found, states=states)


def _with_water(
    groups: Groups, domain: Domain, o: RiskOptions, progress: Progress
) -> tuple[Posterior, Choice]:
    """Return the fit with the water that is most likely, and why it was taken."""
    begin = time.perf_counter()
    shares = PERMEABILITIES if o.permeability == "auto" else (float(o.permeability),)
    found: dict[float, Posterior] = {}
    for rho in shares:
        if len(found) == 2 and abs(found[0.0].elbo - found[1.0].elbo) > NEAR:
            break
        spent = time.perf_counter() - begin
        if found and spent * (1.0 + 1.0 / len(found)) > o.max_seconds:
            break
        with progress.stage("fit") as stage:
            basis = FullRank(domain, permeability=rho)
            try:
                found[rho] = fit_risk(groups, basis, o.kernel, hyper=o.hyper, stage=stage, title=o.title)
            except np.linalg.LinAlgError as error:
                raise DataError(f"The fit broke down: {error}.", remedy="Use larger cells.") from error
            stage.note(f"{BoundaryCondition('neumann', rho).words} water: ELBO {found[rho].elbo:,.1f}")
    best = max(found, key=lambda rho: found[rho].elbo + (LEAD if rho == 0 else 0.0))
    words = BoundaryCondition("neumann", best).words
    if o.permeability != "auto":
        return found[best], Choice(words, "given")
    told = ", ".join(
        f"{BoundaryCondition('neumann', rho).words} {found[rho].elbo:,.1f}" for rho in sorted(found)
    )
    return found[best], Choice(words, f"Does water part these persons? {told[:1].upper()}{told[1:]}")
