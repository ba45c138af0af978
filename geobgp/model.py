"""Models: LGCP for counts on a domain, in space or over periods; BoundaryGP for values at locations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast, get_args

import numpy as np
from scipy import sparse
from scipy.special import gammaln, xlogy

from geobgp.data.areas import AreaCounts, combine, sort_counts
from geobgp.data.counts import Counts, check_nodes
from geobgp.data.effects import FIXED_SD, Effects, Linearised
from geobgp.data.inputs import Inputs, check_events, of_period, seen_exposure
from geobgp.data.measurements import Measurements
from geobgp.data.periods import Periods
from geobgp.errors import DataError, captured_warnings, option
from geobgp.inference.chain_fit import ChainFit, area_chain, fit_chain, node_chain, place_chain, setting_of
from geobgp.inference.engine import engine_for
from geobgp.inference.families import FAMILIES, Bernoulli, Binomial, CountName, Gaussian, Likelihood, PlaceName
from geobgp.inference.fit import Fit, Start
from geobgp.inference.hyper import Hyper
from geobgp.inference.links import EXP, IDENTITY, SQUARE, Link
from geobgp.inference.problem import AreaProblem, Moments, Observed, PlaceProblem, Problem, hyper_for, space_rows
from geobgp.inference.relinearise import fit_family, fit_problem, with_offset
from geobgp.land.crs import place_coordinates
from geobgp.posterior import Posterior
from geobgp.prior.basis import SCALING, Basis, Scaling, resolve
from geobgp.prior.kernels import Kernel
from geobgp.progress import ProgressLike
from geobgp.summary import Choice, point_facts
from geobgp.text import listed
from geobgp.validation import (
    ARRAY,
    BASIS,
    CLIENT,
    COVARIATES,
    FLAG,
    KERNEL,
    LEAST,
    NAME,
    PROGRESS,
    TEXT,
    VALUES,
    a,
    as_floats,
    choice,
    either,
    in_rows_of,
    real,
    refuse_huge,
    validated,
)

if TYPE_CHECKING:
    import pandas as pd

    from geobgp.data.areas import AreaCounts
    from geobgp.data.effects import Covariates
    from geobgp.data.inputs import Effort, Exposure
    from geobgp.data.persons import Groups


# -- Models over periods: from counts by period to a posterior of all periods together -----------------------


#: Standard deviation of a field that is none.
_NO_FIELD = 1e-4


class Behind(NamedTuple):
    """What stands behind the events: the exposure by period and node, and the share of events that get reported."""

    exposure: np.ndarray
    effort: np.ndarray | None


def has_periods(counts: Any) -> bool:
    """Whether counts are by period, or a table by period and node."""
    table = isinstance(counts, np.ndarray) and counts.ndim == 2
    return table or getattr(counts, "periods", None) is not None


def refuse_periods(model: LGCP, periods: Periods | None) -> None:
    """Refuse what is given by period where counts are not."""
    if periods is not None or model.inputs.n_periods is not None:
        raise DataError(
            "Periods were given, and counts of one.",
            option="periods",
            remedy="Count events by period: bin_points(points, domain, time=..., every=...).",
        )


def fit_periods(
    model: LGCP,
    counts: Counts | AreaCounts | np.ndarray,
    *,
    periods: Periods | None = None,
    hyper: str = "map",
    engine: str = "numpy",
    progress: ProgressLike = False,
    title: str = "",
    start: Posterior | None = None,
    resume: bool = True,
    near: np.ndarray | None = None,
    deadline: float = np.inf,
) -> Posterior:
    """Fit all periods together; see `LGCP.fit`, and `fit_chain` for where it begins and when it ends."""
    if engine == "gpflow":
        raise DataError("GPflow's solver is for one period.", option="engine", remedy="Leave engine out.")
    periods = _periods(counts, periods)
    n = model.basis.domain.n_nodes
    exposure = model.inputs.over(periods).exposure
    if not np.all(periods.widths == 1.0):
        exposure = np.broadcast_to(exposure, (periods.n, n)) * periods.widths[:, None]
    areas: Any = model._exposing(counts) if isinstance(counts, AreaCounts) else None
    values = None if isinstance(counts, AreaCounts) else _values(counts, n)
    for t in range(periods.n):
        check_events(None if values is None else values[t], None if areas is None else areas.at(t),
                     np.broadcast_to(exposure, (periods.n, n))[t],
                     None if model.effort is None else of_period(model.effort, t))  # fmt: skip
    behind = Behind(np.broadcast_to(exposure, (periods.n, n)), model.effort)
    result = _fit(model, values, areas, behind, periods, hyper, progress, start, resume, near, deadline)
    choice = _choice(result)
    result.fit.notes["dynamics"] = choice
    return Posterior(
        fit=result.fit,
        basis=model.basis,
        kernel=model.kernel,
        likelihood=result.likelihood,
        exposure=exposure,
        exposure_kind=model.exposure_kind,
        effort=model.effort,
        design=model.effects,
        points=_facts(counts, areas),
        title=title,
        choices={} if choice is None else {"dynamics": str(choice)},
        scaling=model.scaling,
        observed=values,
        areas=areas,
        places=None if areas is not None else getattr(counts, "counted", None),
        given=model.inputs.given,
        given_effort=model.inputs.given_effort,
        per=periods.unit,
        periods=periods,
        delays=model.inputs.delays,
    )


def refit(posterior: Posterior, n_periods: int, kernel: Kernel | None = None) -> Posterior:
    """Return the fit of the first periods alone, the hyperparameters held, or those of another kernel."""
    best: Any = posterior.fit.states[0]
    columns = best.columns if best.columns.ndim == 2 else best.columns[:n_periods]
    periods = posterior.time.slice(0, n_periods)
    exposure = posterior.exposure if posterior.exposure.ndim == 1 else posterior.exposure[:n_periods]
    effort = posterior.effort
    effort = effort if effort is None or effort.ndim == 1 else effort[:n_periods]
    behind = Behind(np.broadcast_to(exposure, (n_periods, posterior.domain.n_nodes)), effort)
    areas: Any = None if posterior.areas is None else posterior.areas.slice(0, n_periods)
    values = None if posterior.observed is None else posterior.observed[:n_periods]
    persons = None if posterior.persons is None else posterior.persons.until(n_periods)
    sites = None if posterior.sites is None else posterior.sites.until(n_periods)
    kernel = kernel or posterior.kernel.with_parameters(posterior.lengthscale, posterior.sd)
    delays = None if posterior.delays is None else posterior.delays.slice(0, n_periods)
    setting = setting_of(
        posterior.basis,
        kernel,
        posterior.scaling,
        columns,
        best.centre,
        periods.steps,
        periods.per_year,
        fixed_sds(posterior),
        None if delays is None else delays.columns,
    )
    held = {name: float(getattr(best, name)) for name in ("tau", "level_sd", "level_tau")}
    problem, centre = _problem(setting, posterior.likelihood, values, areas, behind, persons, sites)
    mean, variance = (part[:n_periods] for part in best.node_moments())
    if best.offset is not None:  # columns of levels that share nodes are held
        mean, problem = mean - best.offset, problem.about(Linearised(columns, best.offset))
    if isinstance(problem, PlaceProblem) and problem.period is not None:
        node: Any = problem.places
        node = node if persons is not None else posterior.domain.node_at(node)
        mean, variance = (part[problem.period, node] for part in (mean, variance))
    mean, variance = mean.ravel(), variance.ravel()
    n = len(posterior.fit.hyper_mean) - len(posterior.design.learned)  # the sds of effects are held
    result = fit_chain(
        problem,
        dynamics=best.dynamics,
        start=Start(posterior.fit.hyper_mean[:n], posterior.fit.hyper_cov[:n, :n], mean - centre, variance),
        held={name: value for name, value in held.items() if np.isfinite(value)},
        resume=False,
        spatial=None if sites is None else hyper_of(posterior, posterior.basis, kernel, noise=best.noise),
    )
    return replace(
        posterior,
        fit=with_offset(result.fit, best.offset),
        likelihood=result.likelihood,
        exposure=exposure,
        effort=effort,
        observed=values,
        areas=areas,
        persons=persons,
        sites=sites,
        places=None,
        periods=periods,
        delays=delays,
    )


def fit_without_field(posterior: Posterior) -> Fit:
    """Return the fit of the same counts by a level of each period, the season and covariates: no field in space.

    It is that of the chain with a field whose standard deviation is next to nothing. Where all counts of a period have
    one rate, only their sum tells of it: one observation a period.
    """
    best: Any = posterior.fit.states[0]
    basis: Any = posterior.basis
    kernel = posterior.kernel.with_parameters(posterior.lengthscale, _NO_FIELD)
    periods = posterior.time
    # The natural prior: few features make none even.
    few = basis.truncate(1)
    setting = setting_of(
        few,
        kernel,
        "natural",
        best.columns,
        best.centre,
        periods.steps,
        periods.per_year,
        fixed_sds(posterior),
        None if posterior.delays is None else posterior.delays.columns,
    )
    behind = Behind(posterior.by_period, posterior.effort)
    areas: Any = posterior.areas
    family = posterior.likelihood
    persons, sites = posterior.persons, posterior.sites
    problem, centre = _problem(setting, family, posterior.observed, areas, behind, persons, sites)
    problem = problem.about(Linearised(best.columns, best.offset))
    plain = not posterior.design.names and family.limit() is family and persons is None and sites is None
    each = _counts_of_periods(problem) if plain else None
    spatial = None if sites is None and not posterior.design.learned else hyper_of(posterior, few, kernel)
    if each is not None:
        sums = tuple(_sum_of(y.sum(), e.sum(), posterior.domain.n_nodes) for y, e in each)
        problem = area_chain(replace(setting, centre=centre), sums)
    with captured_warnings(lambda warning: None):
        result = fit_chain(
            problem, dynamics="separable", held={"tau": float(best.tau)}, resume=False, spatial=spatial
        ).fit
    if each is None:
        return result
    # What a sum does not tell: how it is shared among its counts.
    among = sum(_log_poisson(y, e) - _log_poisson(y.sum(), e.sum()) for y, e in each)
    return replace(result, elbo=result.elbo + among)


def fixed_sds(posterior: Posterior) -> np.ndarray:
    """Return the prior standard deviations of the fixed effects of a fit, at those that have been learned."""
    if posterior.sites is None:
        return posterior._fixed_sd
    model = BoundaryGP._of(posterior)
    return model._sds(model._seen(posterior.sites), posterior.fit.hyper_mean)


def hyper_of(
    posterior: Posterior, basis: Basis | None = None, kernel: Kernel | None = None, noise: float | None = None
) -> Hyper:
    """Return the hyperparameters that a posterior was fitted with, but for those of time.

    Parameters
    ----------
    posterior : Posterior
        That knows its observations.
    basis, kernel : optional
        Others than its own.
    noise : float, optional
        Of a Gaussian likelihood, if it is not learned.
    """
    basis, kernel = basis or posterior.basis, kernel or posterior.kernel
    if posterior.sites is None:
        return hyper_for(basis, kernel, posterior.design)
    model = BoundaryGP._of(posterior)
    model.basis, model.kernel, model.noise = basis, kernel, noise if model._noisy else None
    return model._seen(posterior.sites).hyper


def _counts_of_periods(problem: Any) -> list[tuple[np.ndarray, np.ndarray]] | None:
    """Return counts and exposures of each period; None where some numbers are suppressed."""
    if isinstance(problem, PlaceProblem):
        shape = problem.n_periods, -1
        return list(zip(problem.values.reshape(shape), problem.size.reshape(shape), strict=True))
    if any(one.hidden.any() for one in problem.observed):
        return None
    return [(one.counts, np.asarray(one.exposure.sum(axis=1)).ravel()) for one in problem.observed]


def _sum_of(count: float, exposure: float, n_nodes: int) -> Observed:
    """Return a count as if it were one node's: all are alike."""
    at = sparse.csr_array((np.array([exposure]), ([0], [0])), shape=(1, n_nodes))
    return Observed(np.array([count]), at, np.zeros(1, bool))


def _log_poisson(counts: np.ndarray, exposure: np.ndarray) -> float:
    """Return the part of the log probability of Poisson counts that has no rate in it."""
    return float(np.sum(xlogy(counts, exposure) - gammaln(counts + 1.0)))


def _fit(
    model: LGCP,
    values: np.ndarray | None,
    areas: AreaCounts | None,
    behind: Behind,
    periods: Periods,
    hyper: str,
    progress: ProgressLike,
    start: Posterior | None,
    resume: bool,
    near: np.ndarray | None,
    deadline: float,
) -> ChainFit:
    setting = setting_of(
        model.basis,
        model.kernel,
        model.scaling,
        model.effects.columns,
        0.0,
        periods.steps,
        periods.per_year,
        model.effects.prior_sd,
        None if model.inputs.delays is None else model.inputs.delays.columns,
    )
    problem, centre = _problem(setting, model.family, values, areas, behind)
    return fit_chain(
        problem,
        dynamics=model.dynamics,
        hyper=hyper,
        progress=progress,
        start=None if start is None else _start(model, start, centre, periods),
        resume=resume,
        near=near,
        deadline=deadline,
        effects=model.effects,
    )


def _problem(
    setting: Any,
    family: Likelihood,
    values: np.ndarray | None,
    areas: AreaCounts | None,
    behind: Behind,
    persons: Groups | None = None,
    sites: Measurements | None = None,
) -> Any:
    """Return what is to be fitted, and the centre of its linear predictor: of persons and sites that of the setting."""
    if sites is not None:
        order, when = _by_period(sites.period, cast("Periods", sites.periods), len(sites.values))
        own = None if sites.columns is None else sites.columns[order]
        what = sites.coords[order], when, sites.values[order], sites.size[order]
        return place_chain(setting, *what, family, own), setting.centre
    if persons is not None:
        period, node, design = persons.period, persons.node, persons.design(setting.columns)
        assert period is not None
        size = persons.cases, persons.telling
        if persons.effort is not None:
            family = family.without_data(family.facts() | {"offset": family.facts()["offset"] + persons.log_effort})
        return place_chain(setting, node, period, *size, family, design), setting.centre
    if areas is None:
        assert values is not None
        seen = seen_exposure(*behind)
        total, exposed = float(values.sum()), float(seen.sum())
        centre = _centre(total, exposed)
        return node_chain(replace(setting, centre=centre), values, seen, family), centre
    efforts = [None if behind.effort is None else of_period(behind.effort, t) for t in range(areas.n_periods)]
    rows = [combine(areas.at(t), behind.exposure[t], efforts[t]) for t in range(areas.n_periods)]
    centre = _centre(sum(float(r.counts.sum()) for r in rows), sum(float(r.exposure.sum()) for r in rows))
    observed = tuple(Observed(r.counts, r.exposure, r.hidden, r.interval) for r in rows)
    return area_chain(replace(setting, centre=centre), observed, family), centre


def _centre(total: float, exposed: float) -> float:
    return float(np.log((total if total > 0 else 0.5) / exposed))


def _periods(counts: Any, periods: Periods | None) -> Periods:
    own = getattr(counts, "periods", None)
    if own is not None:
        if periods is not None and not periods.same_as(own):
            raise DataError(
                f"The counts are of {own.words()}; found other {option('periods')}: {periods.words()}.",
                option="periods",
                remedy="Leave them out.",
            )
        return own
    if periods is None:
        return Periods.between(np.arange(len(counts) + 1.0))
    if periods.n != len(counts):
        raise DataError(
            f"The counts have {len(counts):,} rows; there are {periods.words()}.", option="periods", found=periods.n
        )
    return periods


def _values(counts: Counts | np.ndarray, n: int) -> np.ndarray:
    values = np.asarray(counts, float)
    if values.ndim != 2 or values.shape[1] != n:
        raise DataError(
            f"The domain has {n:,} nodes, so counts have a row for each period and {n:,} columns; found the shape "
            f"{values.shape}.",
            found=values.shape,
            remedy="Count points with bin_points(points, domain, time=..., every=...).",
        )
    return values


def _facts(counts: Any, areas: AreaCounts | None) -> dict[str, float]:
    if areas is not None:
        return point_facts(None, areas.pooled())
    facts = point_facts(counts)
    if isinstance(counts, Counts):
        facts |= {name: n for name, n in (("undated", counts.n_untimed), ("outside", counts.n_outside)) if n}
    return facts


def _choice(found: ChainFit) -> Choice | None:
    """Return the dynamics, and why they were taken; None where there was nothing to choose."""
    if len(found.bounds) < 2:
        return None
    lead = abs(found.bounds["diffusive"] - found.bounds["separable"])
    other = "separable" if found.dynamics == "diffusive" else "diffusive"
    why = f"{lead:.1f} nats above {other} ones, with {found.compared_with:,} features"
    return Choice(found.dynamics, why)


def _start(model: LGCP, start: Posterior, centre: float, periods: Periods) -> Start:
    """Return where a fit begins: at a fit of the same periods, or at one map for all of them."""
    if start.kernel != model.kernel:
        raise DataError(
            f"A fit goes on from one with the same kernel; found {start.kernel.name} after {model.kernel.name}."
        )
    fit = start.fit
    if isinstance(start, Posterior) and start.periods is not None and start.n_periods == periods.n:
        mean, variance = (part.ravel() for part in fit.states[0].node_moments())
        return Start(fit.hyper_mean, fit.hyper_cov, mean - centre, variance)
    raise DataError("A fit over periods goes on from one over the same periods.", option="start")


# -- Models: LGCP for counts on a domain, BoundaryGP for values at locations ---------------------------------


HYPER = choice("map", "integrate")
COUNTS = either(a("Counts", "AreaCounts"), ARRAY, words="Counts, AreaCounts, an array, or a list of them")


class LGCP:
    """A log-Gaussian Cox process: counts with mean exposure · effort · exp(intercept + covariates + f).

    Parameters
    ----------
    basis : HarmonicBasis or FullRank
        The prior's features, or its full resolution.
    kernel : Kernel, optional
        `Matern(1.5)` by default; `Matern(1.0)` at full rank.
    exposure : array, GeoDataFrame or raster, optional
        What events are counted per. By default the land's area, and the intensity is per km² (per unit area
        of a local domain). People per pixel (a raster), per area (a GeoDataFrame) or anything per node (an
        array) give a rate, or a relative risk where the exposure is the expected number of events. Zero is
        allowed. People are spread evenly over their pixel or area, and those on the domain's land count; see
        `geobgp.data.inputs.read_exposure`.
    covariates : mapping of name to array, callable, raster or polygons; or a DataFrame, optional
        One value per node, a callable of (n, 2) coordinates, or a raster or polygons (averaged by area). They are
        standardised inside and reported in their own units. Text and `Categorical` values are levels, each with an
        effect compared with the most common one; a node with several has the mean rate over its land. See
        `geobgp.data.effects.fixed_effects`.
    exposure_column : str, optional
        Column of an exposure GeoDataFrame.
    effort : array, GeoDataFrame or raster, optional
        The share of events that get reported, from 0 to 1: per node, or averaged by area. The map is then of what would
        be seen with full effort; where there is none the data say nothing. See `geobgp.data.inputs.read_effort`.
    effort_column : str, optional
        Column of an effort GeoDataFrame; by default "effort", or the only one with numbers.
    fill_missing : "mean", optional
        What to do where a covariate has no value; by default slivers take the nearest, and more is an error.
    likelihood : "poisson" or "negative-binomial"
        Counts about their mean: as independent events are, or with more spread, of which the size is learned. For
        areas it is that of an area's count, else that of a node's.
    scaling : "even" or "natural", optional
        Whether the prior's standard deviation is the same on every piece of land, or what the features add up to:
        more at shores, and far more on islets. By default even under Neumann and natural under Dirichlet conditions.
    dynamics : "auto", "separable" or "diffusive"
        Over periods: whether all patches fade alike, or small ones sooner; by default what the events tell.

    Notes
    -----
    Over periods an exposure or a covariate may change: a (n_periods, n_nodes) array, or a list with one for each.

    Examples
    --------
    >>> import shapely
    >>> from geobgp import Domain, HarmonicBasis, Matern
    >>> domain = Domain.from_polygons(shapely.box(0, 0, 10, 10), cell_size=1, crs="local")
    >>> basis = HarmonicBasis.compute(domain, m=16, cache=False)
    >>> counts = np.random.default_rng(0).poisson(np.exp(0.3 * domain.node_points[:, 0] - 1.0))
    >>> posterior = LGCP(basis, Matern(1.5, lengthscale=8.0)).fit(counts)
    >>> posterior.converged
    True
    """

    @validated(
        basis=BASIS,
        kernel=KERNEL,
        covariates=COVARIATES,
        exposure_column=NAME,
        effort_column=NAME,
        fill_missing=choice("mean"),
        likelihood=choice(*get_args(CountName)),
        scaling=SCALING,
        dynamics=choice("auto", "separable", "diffusive"),
    )
    def __init__(
        self,
        basis: Basis,
        kernel: Kernel | None = None,
        *,
        exposure: Exposure | None = None,
        covariates: Covariates | None = None,
        exposure_column: str | None = None,
        effort: Effort | None = None,
        effort_column: str | None = None,
        fill_missing: Literal["mean"] | None = None,
        likelihood: CountName = "poisson",
        scaling: Scaling | None = None,
        dynamics: Literal["auto", "separable", "diffusive"] = "auto",
    ) -> None:
        inputs = Inputs.read(
            basis.domain,
            exposure=exposure,
            exposure_column=exposure_column,
            effort=effort,
            effort_column=effort_column,
            covariates=covariates,
            fill_missing=fill_missing,
        )
        self._set(basis, kernel, inputs, likelihood, scaling, dynamics)

    @classmethod
    def from_inputs(
        cls,
        basis: Basis,
        inputs: Inputs,
        kernel: Kernel | None = None,
        *,
        likelihood: CountName | Likelihood = "poisson",
        scaling: Scaling | None = None,
        dynamics: Literal["auto", "separable", "diffusive"] = "auto",
    ) -> LGCP:
        """Return the model of inputs that have been read.

        Parameters
        ----------
        basis : HarmonicBasis or FullRank
        inputs : Inputs
            Exposure, effort and covariates at the nodes of the basis.
        kernel, likelihood, scaling, dynamics
            As for `LGCP`.

        Examples
        --------
        >>> import shapely
        >>> from geobgp import Domain, FullRank
        >>> from geobgp.data.inputs import Inputs
        >>> domain = Domain.from_polygons(shapely.box(0, 0, 10, 10), cell_size=1, crs="local")
        >>> model = LGCP.from_inputs(FullRank(domain), Inputs.read(domain, exposure=np.full(100, 2.0)))
        >>> float(model.exposure.sum())
        200.0
        """
        out = cls.__new__(cls)
        out._set(basis, kernel, inputs, likelihood, scaling, dynamics)
        return out

    def _set(
        self,
        basis: Basis,
        kernel: Kernel | None,
        inputs: Inputs,
        likelihood: str | Likelihood,
        scaling: Scaling | None,
        dynamics: Literal["auto", "separable", "diffusive"],
    ) -> None:
        self.basis, self.inputs = basis, inputs
        self.kernel = _kernel(basis, kernel)
        self.scaling: Scaling = resolve(scaling, basis)
        self.dynamics: Literal["auto", "separable", "diffusive"] = dynamics
        self.family = FAMILIES[likelihood] if isinstance(likelihood, str) else likelihood

    @property
    def exposure(self) -> np.ndarray:
        """What events are counted per at every node, (n_nodes,) or (n_periods, n_nodes)."""
        return self.inputs.exposure

    @property
    def exposure_kind(self) -> str:
        """What the exposure is: "area", "population", "expected" or "exposure"."""
        return self.inputs.exposure_kind

    @property
    def effort(self) -> np.ndarray | None:
        """The share of events that get reported at every node; None where all are."""
        return self.inputs.effort

    @property
    def effects(self) -> Effects:
        """The fixed effects."""
        return self.inputs.effects

    @property
    def seen_exposure(self) -> np.ndarray:
        """The exposure times the effort: what stands behind the events that were reported."""
        return self.inputs.seen

    @validated(
        counts=COUNTS,
        hyper=HYPER,
        engine=choice("numpy", "gpflow"),
        progress=PROGRESS,
        title=TEXT,
        start=a("Posterior", "Start"),
        periods=a("Periods"),
        resume=FLAG, measure=FLAG, client=CLIENT,
    )  # fmt: skip
    def fit(
        self,
        counts: Counts | AreaCounts | np.ndarray | Sequence[Counts | AreaCounts | np.ndarray],
        *,
        periods: Periods | None = None,
        hyper: Literal["map", "integrate"] = "map",
        engine: Literal["numpy", "gpflow"] = "numpy",
        progress: ProgressLike = False,
        title: str = "",
        start: Posterior | Start | None = None,
        resume: bool = True,
        measure: bool = False,
        client: Any = None,
    ) -> Posterior:
        """Fit the posterior; the model stays as it was.

        Parameters
        ----------
        counts : Counts, AreaCounts, (n_nodes,) array, or a list of several
            What was counted at the nodes, in areas, or both: points that have a place, and areas with the number of
            those that have none. By period (or an
            (n_periods, n_nodes) array) all periods are fitted together, and the result is a `Posterior` over periods.
        periods : Periods, optional
            Those of the rows of an array; by default they are numbered.
        hyper : "map" or "integrate"
            The best hyperparameters, or a mixture over those that the data allow.
        engine : "numpy" or "gpflow"
            geobgp's own solver, or GPflow's (slower; for comparison; needs the extra ``geobgp[gpflow]``).
        progress : bool, Progress, Stage or callable
            Tell of the rounds on standard error, or to whoever is given; see `geobgp.progress`.
        title : str
            Title of maps and rasters.
        start : Posterior, optional
            A fit of the same points with the same kernel, on cells of another size, to begin from: it saves time.
        resume : bool
            Over periods: go on from where the same fit was cut off.
        measure : bool
            Measure how well the points know the hyperparameters (``fit.hyper_cov``): the search only learns about it.
        client : distributed.Client or str, optional
            The Dask client, or the address of the scheduler, whose workers share a mixture over hyperparameters; by
            default the current client. Without one it is all done here.
        """
        check_nodes(counts, self.basis.domain)
        if has_periods(counts):
            given = {"periods": periods, "hyper": hyper, "engine": engine, "start": start, "resume": resume}
            return fit_periods(self, counts, progress=progress, title=title, **given)  # type: ignore[arg-type]
        refuse_periods(self, periods)
        points, areas = sort_counts(counts)
        if areas is not None and points is not None:
            areas = replace(areas, located=self._at_nodes(points))
        located = None if points is None else self._at_nodes(points)
        areas = None if areas is None else self._exposing(areas)
        check_events(located, areas, self.exposure, self.effort)
        problem = self._problem(located, areas)
        solve: Any = fit_family
        if engine == "gpflow":
            if areas is not None or self.family.dispersion is not None:
                raise DataError("GPflow's solver is for Poisson counts at the nodes.", remedy="Leave engine out.")
            if self.effects.learned:
                raise DataError(
                    "GPflow's solver has fixed effects alone; it does not learn the standard deviation of those of "
                    f"{listed(list(self.effects.learned))}.",
                    option="engine",
                    found=list(self.effects.learned),
                    remedy="Leave engine out.",
                )
            from geobgp.gpflow.fit import fit_svgp

            solve = fit_svgp
        result, likelihood = fit_problem(
            problem,
            hyper_for(self.basis, self.kernel, self.effects),
            self.basis,
            self.effects,
            hyper=hyper,
            progress=progress,
            start=None if start is None else self._start(start, problem.centre),
            known=self._known_effects(start),
            solve=solve,
            measure=measure,
            client=client,
        )
        return Posterior(
            fit=result,
            basis=self.basis,
            kernel=self.kernel,
            likelihood=likelihood,
            exposure=self.exposure,
            exposure_kind=self.exposure_kind,
            effort=self.effort,
            design=self.effects,
            points=point_facts(points, areas),
            title=title,
            scaling=self.scaling,
            observed=np.array(points, float) if areas is None else None,
            areas=areas,
            places=getattr(points, "counted", None) if areas is None else None,
            given=self.inputs.given,
            given_effort=self.inputs.given_effort,
        )

    def _exposing(self, areas: AreaCounts) -> AreaCounts:
        """Return areas that know which part of every node's exposure and effort is theirs."""
        n = self.basis.domain.n_nodes
        if areas.shares.shape[1] != n:
            raise DataError(
                f"The domain has {n:,} nodes; these areas were read for one of {areas.shares.shape[1]:,}. Read them "
                "with bin_areas(areas, domain, count)."
            )
        return areas._exposing(self.basis.domain, self.inputs.given, self.effort, self.inputs.given_effort)

    def _at_nodes(self, counts: Counts | np.ndarray) -> np.ndarray:
        n = self.basis.domain.n_nodes
        values = as_floats("counts", in_rows_of("counts", counts, n))
        if values.shape != (n,):
            raise DataError(
                f"The domain has {n:,} nodes, so counts have the shape ({n},); found {values.shape}.",
                option="counts",
                found=values.shape,
                remedy="Count points with bin_points(points, domain).",
            )
        refuse_huge("counts", values, "The counts")
        if 0.0 < values.sum() < LEAST:
            raise DataError(
                f"The counts add up to {values.sum():.1e}: too small to compute with.",
                option="counts",
                remedy="Give weights in a smaller unit.",
            )
        return values

    def _problem(self, counts: np.ndarray | None, areas: AreaCounts | None = None) -> Problem:
        """Return what is to be fitted: counts at the nodes, or by area."""
        basis, effects = self.basis, self.effects
        if areas is None:
            assert counts is not None
            values, seen = self._at_nodes(counts), self.seen_exposure
            centre = _centre(float(values.sum()), float(seen.sum()))
            engine = engine_for(basis, self.kernel, effects.columns, effects.prior_sd, centre, None, self.scaling)
            return PlaceProblem(engine, values, seen, self.family, centre)
        rows = combine(areas, self.exposure, self.effort)
        centre = _centre(float(rows.counts.sum()), float(rows.exposure.sum()))
        observed = Observed(rows.counts, rows.exposure, rows.hidden, rows.interval)
        prior = space_rows(basis, self.kernel, self.scaling, effects.columns, effects.prior_sd, centre)
        return AreaProblem(prior, (observed,), self.family)

    def _known_effects(self, start: Posterior | Start | None) -> Moments | None:
        """Return mean and covariance of the effects of a fit to go on from, as this one scales them; None of others."""
        if not isinstance(start, Posterior) or start.design.terms != self.effects.terms:
            return None
        size = 1 + len(self.effects.terms)
        mean, covariance = start.fit.states[0].coefficients()
        turn = np.concatenate([np.ones(1), self.effects.scales / start.design.scales])
        return turn * mean[:size], np.outer(turn, turn) * covariance[:size, :size]

    def _start(self, posterior: Posterior | Start, centre: float) -> Start:
        """Return where a fit begins that goes on from another one."""
        if isinstance(posterior, Start):
            return posterior
        if posterior.kernel != self.kernel:
            raise DataError(
                f"A fit goes on from one with the same kernel; found {posterior.kernel.name} after {self.kernel.name}."
            )
        return _start_from(posterior, self.basis.domain.node_points, centre)


def model_of(posterior: Posterior, kernel: Kernel | None = None, *, unseen: np.ndarray | None = None) -> LGCP:
    """Return the model that a posterior is of, with another kernel if one is given.

    Parameters
    ----------
    posterior : Posterior
    kernel : Kernel, optional
    unseen : int array, optional
        Nodes where nothing is observed.
    """
    # Columns of levels that share nodes are held, as they were linearised about all events.
    best: Any = posterior.fit.states[0]
    held = replace(posterior.design, columns=best.fixed, offset=best.offset)
    inputs = replace(Inputs.of(posterior), effects=held)
    return LGCP.from_inputs(
        posterior.basis,
        inputs if unseen is None else inputs.without(unseen),
        kernel or posterior.kernel,
        likelihood=posterior.likelihood,
        scaling=posterior.scaling,
    )


class _AtPlaces(NamedTuple):
    """What was observed at places, its level, the prior standard deviations of its effects, and the hyperparameters."""

    places: np.ndarray
    values: np.ndarray
    size: np.ndarray
    centre: float
    fixed_sd: np.ndarray
    design: np.ndarray | None
    hyper: Hyper


#: What is modelled of values: themselves, their root or their logarithm; and the link back.
Transform = Literal["none", "sqrt", "log"]
TRANSFORMS: dict[Transform, Link] = {"none": IDENTITY, "sqrt": SQUARE, "log": EXP}


def check_transform(values: np.ndarray, transform: Transform) -> None:
    """Refuse values that have no root or no logarithm."""
    bad = int((values < 0).sum() if transform == "sqrt" else (values <= 0).sum())
    if bad and transform != "none":
        what = "a square root: they are negative" if transform == "sqrt" else "a logarithm: they are not above zero"
        raise DataError(
            f"{bad:,} of {len(values):,} values have not {what}.",
            option="transform",
            found=float(values.min()),
            remedy=f"Use {option('transform', 'none')}"
            + (f" or {option('transform', 'sqrt')}." if transform == "log" and not (values < 0).any() else "."),
        )


class BoundaryGP:
    """A Gaussian process on a domain, for what was observed at places: values, classes, counts, or positives.

    Parameters
    ----------
    basis : HarmonicBasis or FullRank
    kernel : Kernel, optional
        `Matern(1.5)` by default; `Matern(1.0)` at full rank.
    likelihood : "gaussian", "bernoulli", "poisson", "binomial" or "beta-binomial"
        Values with noise; classes 0 and 1; counts with mean exp(f); positives among those tested, as chance has it, or
        where sites vary more than that.
    noise : float, optional
        Standard deviation of Gaussian noise; None: learned.
    link : "probit" or "logit"
        Of the Bernoulli likelihood.
    mean : "constant" or "zero", optional
        Whether f varies around a constant to be learned or around zero. By default a constant under Neumann
        conditions and zero under Dirichlet ones, whose boundary value is then zero.
    scaling : "even" or "natural", optional
        As for `LGCP`.
    transform : "none", "sqrt" or "log"
        Of values: what is modelled is the value, its square root or its logarithm. Maps and predictions are of the
        values as they were measured; `predict` gives the linear predictor.
    covariates : mapping of name to array, callable, raster or polygons; or a DataFrame, optional
        At the nodes, for the map; as for `LGCP`.
    fill_missing : "mean", optional
        As for `LGCP`.

    Examples
    --------
    >>> import shapely
    >>> from geobgp import Domain, HarmonicBasis, Matern
    >>> domain = Domain.from_polygons(shapely.box(0, 0, 1, 1), cell_size=0.1, crs="local")
    >>> basis = HarmonicBasis.compute(domain, m=16, cache=False)
    >>> coords = np.random.default_rng(0).uniform(0.1, 0.9, (50, 2))
    >>> posterior = BoundaryGP(basis, Matern(1.5, lengthscale=0.5)).fit(coords, coords[:, 0])
    >>> mean, variance = posterior.predict(np.array([[0.5, 0.5]]))
    >>> bool(abs(mean[0] - 0.5) < 0.1)
    True
    """

    @validated(
        basis=BASIS,
        kernel=KERNEL,
        likelihood=choice(*get_args(PlaceName)),
        noise=real(above=0.0),
        link=choice("probit", "logit"),
        transform=choice(*TRANSFORMS),
        mean=choice("constant", "zero"),
        scaling=SCALING,
        covariates=COVARIATES,
        fill_missing=choice("mean"),
    )
    def __init__(
        self,
        basis: Basis,
        kernel: Kernel | None = None,
        likelihood: PlaceName = "gaussian",
        *,
        noise: float | None = None,
        link: Literal["probit", "logit"] = "probit",
        transform: Transform = "none",
        mean: Literal["constant", "zero"] | None = None,
        scaling: Scaling | None = None,
        covariates: Covariates | None = None,
        fill_missing: Literal["mean"] | None = None,
    ) -> None:
        inputs = Inputs.read(basis.domain, covariates=covariates, fill_missing=fill_missing)
        self._set(basis, kernel, likelihood, inputs, noise, link, transform, mean, scaling)

    @classmethod
    def from_inputs(
        cls,
        basis: Basis,
        inputs: Inputs,
        kernel: Kernel | None = None,
        likelihood: PlaceName = "gaussian",
        *,
        noise: float | None = None,
        link: Literal["probit", "logit"] = "probit",
        transform: Transform = "none",
        mean: Literal["constant", "zero"] | None = None,
        scaling: Scaling | None = None,
    ) -> BoundaryGP:
        """Return the model of covariates (and people, who weigh the means of regions) that have been read."""
        out = cls.__new__(cls)
        out._set(basis, kernel, likelihood, inputs, noise, link, transform, mean, scaling)
        return out

    @classmethod
    def _of(cls, posterior: Posterior) -> BoundaryGP:
        """Return the model that a posterior is of, in space or over periods; its noise is to be learned."""
        out = cls.__new__(cls)
        state: Any = posterior.fit.states[0]
        fixed = state.fixed if posterior.periods is None else state.columns
        out.basis, out.inputs, out.kernel = posterior.basis, Inputs.of(posterior), posterior.kernel
        out.family, out.noise, out.scaling = posterior.likelihood, None, posterior.scaling
        out.mean = "constant" if fixed.shape[-1] > len(posterior.design.terms) else "zero"
        return out

    def _set(
        self,
        basis: Basis,
        kernel: Kernel | None,
        likelihood: str,
        inputs: Inputs,
        noise: float | None,
        link: str,
        transform: Transform,
        mean: Literal["constant", "zero"] | None,
        scaling: Scaling | None,
    ) -> None:
        self.basis, self.inputs, self.noise = basis, inputs, noise
        self.kernel = _kernel(basis, kernel)
        self.family = FAMILIES[likelihood]
        if isinstance(self.family, Bernoulli):
            self.family = Bernoulli.without_data({"link": link})
        if self._noisy:
            self.family = Gaussian.without_data({"link": TRANSFORMS[transform]})
        self.scaling: Scaling = resolve(scaling, basis)
        self.mean = mean or ("zero" if basis.boundary == "dirichlet" else "constant")

    @validated(
        values=ARRAY,
        trials=ARRAY,
        covariates=VALUES,
        periods=a("Periods"),
        period_of=ARRAY,
        dynamics=choice("auto", "separable", "diffusive"),
        hyper=HYPER,
        progress=PROGRESS,
        title=TEXT,
        resume=FLAG,
        start=a("Posterior"),
        client=CLIENT,
    )
    def fit(
        self,
        coords: Any,
        values: np.ndarray,
        *,
        trials: np.ndarray | None = None,
        covariates: Mapping[str, Any] | pd.DataFrame | None = None,
        periods: Periods | None = None,
        period_of: np.ndarray | None = None,
        dynamics: Literal["auto", "separable", "diffusive"] = "auto",
        hyper: Literal["map", "integrate"] = "map",
        progress: ProgressLike = False,
        title: str = "",
        resume: bool = True,
        start: Posterior | None = None,
        client: Any = None,
    ) -> Posterior:
        """Fit the posterior to observations at places; the model stays as it was.

        Parameters
        ----------
        coords : (k, 2) array, or points with a CRS
            Easting and northing in the domain's CRS, all on land; a GeoDataFrame or GeoSeries is projected.
        values : (k,) array
            Measured values, classes, counts, or numbers of positives.
        trials : (k,) array, optional
            How many were tested at each place, for a (beta-)binomial likelihood.
        covariates : mapping or DataFrame, optional
            Values of the model's covariates at the places; by default those of the nodes on whose land these lie.
        periods : Periods, optional
            All periods are fitted together, and the result is a `Posterior` over periods.
        period_of : (k,) int array, optional
            In which of the periods each value was observed.
        dynamics : "auto", "separable" or "diffusive"
            As for `LGCP`.
        hyper, progress, title, resume, client
            As in `LGCP.fit`.
        start : Posterior, optional
            A fit on other cells, to begin from; one with another kernel is left.
        """
        design = None
        values, trials, covariates = (
            in_rows_of(name, one, coords)
            for name, one in (("values", values), ("trials", trials), ("covariates", covariates))
        )
        xy, y = place_coordinates(coords, self.basis.domain.crs), as_floats("values", values).ravel()
        if covariates is not None and self.effects.names:
            design = self.effects.standardise(covariates, len(y))[:, int(self.mean == "zero") :]
        tested = None if trials is None else as_floats("trials", trials).ravel()
        measured = Measurements(xy, y, tested, design, periods=periods, period=period_of)
        return self.fit_measurements(
            measured, hyper=hyper, progress=progress, title=title, start=start, client=client, dynamics=dynamics,
            resume=resume,
        )  # fmt: skip

    def fit_measurements(
        self,
        measured: Measurements,
        *,
        hyper: Literal["map", "integrate"] = "map",
        progress: ProgressLike = False,
        title: str = "",
        start: Posterior | None = None,
        client: Any = None,
        dynamics: Literal["auto", "separable", "diffusive"] = "auto",
        resume: bool = True,
        near: np.ndarray | None = None,
        deadline: float = np.inf,
    ) -> Posterior:
        """Fit the posterior to what was observed at places, in all of its periods if it has some; see `fit`.

        Parameters
        ----------
        measured : Measurements
        hyper, progress, title, start, client, dynamics, resume
            As in `fit`.
        near, deadline
            Over periods: as in `fit_chain`.
        """
        if measured.periods is not None:
            return self._fit_periods(
                measured, measured.periods, measured.period, dynamics=dynamics, hyper=hyper, progress=progress,
                title=title, resume=resume, near=near, deadline=deadline,
            )  # fmt: skip
        problem, parameters = self._problem(measured)
        known = None
        if start is not None and start.kernel == self.kernel:
            known = _start_from(start, measured.coords, problem.centre)
        result, family = fit_problem(
            problem,
            parameters,
            self.basis,
            Effects(columns=self._columns),
            hyper=hyper,
            progress=progress,
            start=known,
            client=client,
        )
        return self._posterior(result, family, measured, title)

    def _fit_periods(
        self,
        measured: Measurements,
        periods: Periods,
        period_of: np.ndarray | None,
        *,
        dynamics: Literal["auto", "separable", "diffusive"] = "auto",
        hyper: Literal["map", "integrate"] = "map",
        progress: ProgressLike = False,
        title: str = "",
        resume: bool = True,
        near: np.ndarray | None = None,
        deadline: float = np.inf,
    ) -> Posterior:
        """Fit all periods together; see `fit_chain` for `near` and `deadline`."""
        seen = self._seen(measured)
        order, period = _by_period(period_of, periods, len(seen.values))
        setting = setting_of(
            self.basis,
            self.kernel,
            self.scaling,
            self._columns,
            seen.centre,
            periods.steps,
            periods.per_year,
            seen.fixed_sd,
        )
        design = None if seen.design is None else seen.design[order]
        chain = place_chain(
            setting, seen.places[order], period, seen.values[order], seen.size[order], self.family, design
        )
        result = fit_chain(
            chain,
            dynamics=dynamics,
            hyper=hyper,
            progress=progress,
            resume=resume,
            near=near,
            deadline=deadline,
            spatial=seen.hyper,
        )
        posterior = self._posterior(result.fit, result.likelihood, measured, title)
        return _over_periods(posterior, result, periods)

    def _posterior(self, result: Fit, family: Likelihood, measured: Measurements, title: str) -> Posterior:
        inputs, exposed = self.inputs, self.inputs.exposure_kind != "area"
        return Posterior(
            fit=result,
            basis=self.basis,
            kernel=self.kernel,
            likelihood=family,
            # Observations at places have no exposure, a count there is one observation; people weigh regions.
            exposure=inputs.exposure if exposed else np.ones(self.basis.domain.n_nodes),
            exposure_kind=inputs.exposure_kind if exposed else "observation",
            design=self.effects,
            points=measured.facts,
            title=title,
            scaling=self.scaling,
            sites=measured,
            given=inputs.given if exposed else None,
        )

    @property
    def effects(self) -> Effects:
        """The fixed effects."""
        return self.inputs.effects

    @property
    def _columns(self) -> np.ndarray:
        """Fixed effects at the nodes: without the intercept where f varies around zero."""
        n = self.basis.domain.n_nodes
        columns = self.effects.columns if self.effects.names else np.ones((n, 1))
        return columns if self.mean == "constant" else columns[:, 1:]

    def _problem(self, measured: Measurements) -> tuple[PlaceProblem, Hyper]:
        """Return what is to be fitted, and the hyperparameters."""
        s = self._seen(measured)
        engine = engine_for(
            self.basis, self.kernel, self._columns, s.fixed_sd, s.centre, s.places, self.scaling, s.design
        )
        return PlaceProblem(engine, s.values, s.size, self.family, s.centre, s.places), s.hyper

    def _seen(self, measured: Measurements) -> _AtPlaces:
        """Return what was observed, checked, and the scales that follow from it."""
        domain, constant = self.basis.domain, self.mean == "constant"
        xy, y = measured.coords, measured.values
        if len(xy) != len(y) or len(y) == 0:
            raise DataError(f"One value per location; found {len(y)} values and {len(xy)} locations.", option="values")
        if not np.isfinite(y).all():
            bad = int((~np.isfinite(y)).sum())
            raise DataError(f"Values must be finite; {bad:,} of {len(y):,} are not.", option="values", found=bad)
        if self._noisy and self.family.link is not IDENTITY:
            check_transform(y, "log" if self.family.link is EXP else "sqrt")
        off = int((domain.node_at(xy) < 0).sum())
        if off:
            raise DataError(
                f"{off:,} of {len(xy):,} locations are not on the domain's land; move or drop them.",
                option="coords",
                found=off,
            )
        size = self._trials(measured.tested, len(y))
        centre, unit = self._level(y, size) if constant else (0.0, self._unit(y, 0.0))
        sds = unit * self.effects.sd_at([1.0 / unit] * len(self.effects.learned))[int(not constant) :]
        learned: dict[str, Any] = {"noise": self.noise, "learn_noise": self.noise is None} if self._noisy else {}
        parameters = hyper_for(self.basis, self.kernel, sd_unit=unit, **learned).with_effects(
            {name: own - int(not constant) for name, own in self.effects.learned.items()}, self.effects.rates
        )
        return _AtPlaces(xy, y, size, centre, sds, measured.columns, parameters)

    def _sds(self, seen: _AtPlaces, theta: np.ndarray) -> np.ndarray:
        """Return the prior standard deviations of the effects, those that are learned as θ has them."""
        unit, learned = seen.hyper.noise_unit, np.exp(theta[len(theta) - len(self.effects.learned) :])
        return unit * self.effects.sd_at(learned / unit)[int(self.mean == "zero") :]

    @property
    def _noisy(self) -> bool:
        return self.family.dispersion == "noise"

    def _trials(self, trials: np.ndarray | None, n: int) -> np.ndarray:
        """Return how many were tested at each place; one where that has no meaning."""
        if "tested" not in self.family.arrays:
            if trials is not None:
                raise DataError(
                    f"Numbers of those tested belong to a binomial likelihood; this one is {self.family.name}.",
                    option="trials",
                    remedy="Use likelihood='binomial' or 'beta-binomial', or leave them out.",
                )
            return np.ones(n)
        if trials is None:
            raise DataError(
                f"A {self.family.name} likelihood needs how many were tested at each place.",
                option="trials",
                remedy="Give trials=.",
            )
        if trials.shape != (n,):
            raise DataError(f"One number of those tested per place; found {len(trials)} for {n}.", option="trials")
        return trials

    def _unit(self, y: np.ndarray, centre: float) -> float:
        """Return the scale of f: that of values, one otherwise."""
        if not self._noisy:
            return 1.0
        return float(np.sqrt(np.mean((self.family.link.forward(y) - centre) ** 2))) or 1.0

    def _level(self, y: np.ndarray, size: np.ndarray) -> tuple[float, float]:
        """Return the linear predictor of the mean of all observations, about which f varies, and its scale."""
        if isinstance(self.family, Bernoulli):
            return 0.0, 1.0
        if self._noisy:
            centre = float(self.family.link.forward(y).mean())
        else:
            total, tested = float(y.sum()), float(size.sum())
            # Half an observation keeps it finite.
            least, most = 0.5 / tested, np.inf if self.family.link is EXP else 1.0 - 0.5 / tested
            centre = float(self.family.link.forward(np.clip(total / tested, least, most)))
        return centre, self._unit(y, centre)


class RiskModel:
    """Cases among cases and controls: log odds of a case = level + confounders + f, and exp(f) is the relative risk.

    Parameters
    ----------
    basis : HarmonicBasis or FullRank
    kernel : Kernel, optional
        `Matern(1.5)` by default; `Matern(1.0)` at full rank.
    inputs : Inputs, optional
        Covariates at the nodes, and the effort: the share of cases that are seen.
    scaling : "even" or "natural", optional
        As for `LGCP`.
    """

    def __init__(
        self,
        basis: Basis,
        kernel: Kernel | None = None,
        *,
        inputs: Inputs | None = None,
        scaling: Scaling | None = None,
    ) -> None:
        self.basis, self.kernel = basis, _kernel(basis, kernel)
        self.effects = Effects() if inputs is None else inputs.effects
        self.effort = None if inputs is None else inputs.effort
        self.given_effort = None if inputs is None else inputs.given_effort
        self.scaling: Scaling = resolve(scaling, basis)

    def fit(
        self,
        groups: Groups,
        *,
        hyper: Literal["map", "integrate"] = "map",
        progress: ProgressLike = False,
        title: str = "",
        start: Posterior | None = None,
        measure: bool = False,
        client: Any = None,
        periods: Periods | None = None,
        dynamics: Literal["auto", "separable", "diffusive"] = "auto",
        resume: bool = True,
        near: np.ndarray | None = None,
        deadline: float = np.inf,
    ) -> Posterior:
        """Return the posterior of the relative risk, in units of its mean over the controls of all periods.

        Parameters
        ----------
        groups : Groups
            Cases among the persons of a node with the same confounders.
        hyper, progress, title, measure, client
            As in `LGCP.fit`.
        start : Posterior, optional
            A fit on other cells, to begin from; one with another kernel is left.
        periods : Periods, optional
            Those of `groups.period`: all are fitted together, and the result is a `Posterior` over periods.
        dynamics, resume, near, deadline
            Over periods: as for `BoundaryGP.fit`.
        """
        basis, n_nodes = self.basis, self.basis.domain.n_nodes
        groups = groups.seen(self.effort)
        odds = Binomial.without_data({"offset": groups.offset, "link": "exp"})
        family = (
            odds
            if groups.effort is None
            else odds.without_data({"offset": groups.offset + groups.log_effort, "link": "exp"})
        )
        effects, design = _risk_effects(groups, self.effects, n_nodes)
        sds = np.where(np.isin(np.arange(design.shape[1]), _learned(effects)), effects.prior_sd, FIXED_SD)
        over: ChainFit | None = None
        if periods is not None:
            order, period = _by_period(groups.period, periods, len(groups.node))
            steps, per_year = periods.steps, periods.per_year
            setting = setting_of(basis, self.kernel, self.scaling, effects.columns, 0.0, steps, per_year, sds)
            if groups.effort is not None:
                family = odds.without_data({"offset": groups.offset + groups.log_effort[order], "link": "exp"})
            chain = place_chain(
                setting, groups.node[order], period, groups.cases[order], groups.telling[order], family, design[order]
            )  # fmt: skip
            over = fit_chain(
                chain,
                dynamics=dynamics,
                hyper=hyper,
                progress=progress,
                resume=resume,
                near=near,
                deadline=deadline,
                spatial=hyper_for(basis, self.kernel, effects),
            )
            result = over.fit
        else:
            engine = engine_for(basis, self.kernel, effects.columns, sds, 0.0, groups.node, self.scaling, design)
            known = None
            if start is not None and start.kernel == self.kernel:
                known = _start_from(start, basis.domain.node_points[groups.node], 0.0)
            problem = PlaceProblem(engine, groups.cases, groups.telling, family, 0.0, groups.node)
            result, _ = fit_problem(
                problem,
                hyper_for(basis, self.kernel, effects),
                basis,
                Effects(columns=effects.columns),
                hyper=hyper,
                progress=progress,
                start=known,
                measure=measure,
                client=client,
            )
        controls = groups.controls_at(n_nodes, None if periods is None else periods.n)
        share = controls / controls.sum()
        n_cases, n_controls = int(groups.cases.sum()), int(controls.sum())
        posterior = Posterior(
            fit=result,
            basis=basis,
            kernel=self.kernel,
            likelihood=odds,
            exposure=n_cases * share,
            exposure_kind="risk",
            effort=self.effort,
            given_effort=self.given_effort,
            design=effects,
            points={"used": n_cases + n_controls, "cases": n_cases, "controls": n_controls},
            title=title,
            scaling=self.scaling,
            persons=groups,
        )
        if over is not None and periods is not None:
            posterior = _over_periods(posterior, over, periods)
        risk = posterior._nodes.exp_mean()
        log_mean = float(np.log(share.ravel() @ risk))
        if self.effort is not None:  # as many cases as would be seen with full effort
            seen = (share * self.effort).ravel() @ (risk * np.exp(-log_mean))
            posterior = replace(posterior, exposure=posterior.exposure / seen)
        states: Any = result.states
        states = tuple(replace(state, centre=state.centre - log_mean) for state in states)
        odds = Binomial.without_data({"offset": groups.offset + log_mean, "link": "exp"})
        posterior = replace(posterior, fit=replace(result, states=states), likelihood=odds)
        return posterior if over is None or periods is None else _over_periods(posterior, over, periods)


def _by_period(period: np.ndarray | None, periods: Periods, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the order of observations by period, and the period of each in that order."""
    if period is None or np.shape(period) != (n,):
        raise DataError(
            f"Each of the {n:,} observations is of one of {periods.words()}; found "
            f"{'no periods' if period is None else f'the shape {np.shape(period)}'} of them.",
            option="period_of",
            remedy="Give period_of=, a number from 0 on for each.",
        )
    period = np.asarray(period)
    if not np.issubdtype(period.dtype, np.integer) or ((period < 0) | (period >= periods.n)).any():
        raise DataError(
            f"period_of holds whole numbers from 0 to {periods.n - 1}; found {period.min()} to {period.max()}.",
            option="period_of",
            remedy="Leave out what is of no period.",
        )
    order = np.argsort(period, kind="stable")
    return order, period[order]


def _over_periods(posterior: Posterior, found: ChainFit, periods: Periods) -> Posterior:
    """Return a posterior over periods."""
    choice = _choice(found)
    posterior.fit.notes["dynamics"] = choice
    choices = dict(posterior.choices) | ({} if choice is None else {"dynamics": str(choice)})
    return replace(posterior, choices=choices, per=periods.unit, periods=periods)


def _learned(effects: Effects) -> np.ndarray:
    """Return the columns of fixed effects whose standard deviations are learned."""
    return np.concatenate([np.zeros(0, int), *effects.learned.values()])


def _risk_effects(groups: Groups, covariates: Effects, n_nodes: int) -> tuple[Effects, np.ndarray]:
    """Return covariates and confounders together, with their columns at the nodes, and those of the groups.

    The map is of the risk at the average of the confounders.
    """
    personal = groups.effects
    both = set(covariates.names) & set(personal.names)
    if both:
        raise DataError(
            f"{min(both)!r} is a covariate and a confounder.",
            option="confounders",
            found=sorted(both),
            remedy="Leave one of them out, or give it another name.",
        )
    columns = covariates.columns if covariates.terms else np.ones((n_nodes, 1))
    none = np.zeros((*columns.shape[:-1], len(personal.terms)))
    at_nodes = np.concatenate([columns, none], axis=-1)
    effects = Effects((*covariates.blocks, *personal.blocks), at_nodes)
    own = columns[groups.node] if columns.ndim == 2 else columns[groups.period, groups.node]
    return effects, np.column_stack([own, personal.columns[:, 1:]])


def _start_from(posterior: Posterior, places: np.ndarray, centre: float) -> Start:
    """Return where a fit of observations at places begins that goes on from one on other cells."""
    fit = posterior.fit
    mean, variance = fit.states[0].moments_at(places, by_node=True)
    land = np.isfinite(mean)
    return Start(
        fit.hyper_mean, fit.hyper_cov, np.where(land, mean - centre, 0.0), np.where(land, variance, posterior.sd**2)
    )


def _kernel(basis: Basis, kernel: Kernel | None) -> Kernel:
    kernel = kernel or basis.default_kernel()
    basis.check_kernel(kernel)
    return kernel
