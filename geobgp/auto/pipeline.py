"""The pipeline of every map: from options to a posterior."""

from __future__ import annotations

import dataclasses
import math
import time
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
import shapely

from geobgp import privacy
from geobgp.auto.gridded import GriddedSeries, about_crs, describe, read_land, side
from geobgp.auto.options import Options, RiskOptions
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
from geobgp.inference.links import EXP
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

if TYPE_CHECKING:
    from geobgp.inference.states import SparseState
    from geobgp.progress import Stage


# -- One map: points and land in, a posterior out, with every choice made and reported ------------------------


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
    likelihood = Binomial(groups.cases, groups.persons, groups.offset, EXP)
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
    odds = Binomial.without_data({"offset": groups.offset + log_mean, "link": "exp"})
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
