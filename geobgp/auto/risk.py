"""Cases and controls: the relative risk over the land, from where persons live who fell ill and some who did not."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
import shapely

from geobgp.arguments import PROGRESS
from geobgp.auto.candidates import Shore
from geobgp.auto.choices import cell_size_for
from geobgp.auto.domain import about_crs, describe, read_land, side
from geobgp.auto.risk_options import RiskOptions
from geobgp.auto.selection import LEAD, NEAR, PERMEABILITIES
from geobgp.data.counts import about_few
from geobgp.data.effects import FIXED_SD
from geobgp.data.persons import Groups, Persons, check_apart, place_persons, read_table
from geobgp.errors import DataError, GeobgpWarning, hearing, warn
from geobgp.inference.binomial import Binomial
from geobgp.inference.engine import engine_for
from geobgp.inference.fit import Fit, fit
from geobgp.inference.hyper import Hyper
from geobgp.land.domain import Domain
from geobgp.land.polygons import check_one_plane, own_crs
from geobgp.posterior import Posterior
from geobgp.prior.full_rank import FullRank
from geobgp.prior.kernels import Kernel
from geobgp.prior.scaling import resolve
from geobgp.privacy import told_in_choices
from geobgp.progress import Progress, ProgressLike, as_progress
from geobgp.summary import Choice
from geobgp.text import count
from geobgp.validate import door

if TYPE_CHECKING:
    from geobgp.inference.states import SparseState
    from geobgp.progress import Stage


@door(progress=PROGRESS)
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
    heard, theirs = list[GeobgpWarning](), own_crs(o.land)
    try:
        with hearing(heard.append):
            found = place_persons(table, domain, what, o.confounders, **reading)
    except DataError as error:
        if error.found != 0 or o.points_crs is not None or theirs is None or theirs == domain.crs:
            raise
        try:
            return place_persons(table, domain, what, o.confounders, **reading | {"crs": theirs})
        except DataError:
            raise error from None
    for warning in heard:
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
            stage.note(f"{Shore('neumann', rho).words} water: ELBO {found[rho].elbo:,.1f}")
    best = max(found, key=lambda rho: found[rho].elbo + (LEAD if rho == 0 else 0.0))
    words = Shore("neumann", best).words
    if o.permeability != "auto":
        return found[best], Choice(words, "given")
    told = ", ".join(f"{Shore('neumann', rho).words} {found[rho].elbo:,.1f}" for rho in sorted(found))
    return found[best], Choice(words, f"Does water part these persons? {told[:1].upper()}{told[1:]}")
