"""Models: LGCP for counts on a domain, in space or over periods; BoundaryGP for values at locations."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from scipy import sparse
from scipy.special import gammaln, xlogy

from geobgp.data.areas import AreaCounts, combine, sort_counts
from geobgp.data.counts import Counts, check_nodes
from geobgp.data.effects import FIXED_SD, Effects, Linearised
from geobgp.data.inputs import Inputs, check_events, of_period, seen_exposure
from geobgp.data.periods import Periods
from geobgp.errors import DataError, captured_warnings, option
from geobgp.inference.chain_fit import ChainFit, area_chain, fit_chain, node_chain, setting_of
from geobgp.inference.dense import NodeFeatures
from geobgp.inference.engine import Engine, engine_for
from geobgp.inference.families import Bernoulli, Gaussian, Likelihood, Poisson
from geobgp.inference.fit import Fit, Start, fit, run, run_one
from geobgp.inference.hyper import Hyper
from geobgp.inference.relinearise import (
    ON_THE_WAY,
    Moments,
    NodeChain,
    NodeProblem,
    Observed,
    Purpose,
    RowProblem,
    effects_alone,
    fit_counts,
    fit_levels,
    with_offset,
)
from geobgp.land.crs import place_coordinates
from geobgp.posterior import Posterior
from geobgp.prior.basis import SCALING, Basis, Scaling, resolve
from geobgp.prior.kernels import Kernel
from geobgp.progress import ProgressLike, Stage, as_progress
from geobgp.summary import point_facts
from geobgp.validation import (
    ARRAY,
    BASIS,
    CLIENT,
    COVARIATES,
    FLAG,
    KERNEL,
    NAME,
    PROGRESS,
    TEXT,
    a,
    as_floats,
    choice,
    either,
    real,
    validated,
)

if TYPE_CHECKING:
    from geobgp.data.areas import AreaCounts
    from geobgp.data.effects import Covariates
    from geobgp.data.inputs import Effort, Exposure


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
    found = _fit(model, values, areas, behind, periods, hyper, progress, start, resume, near, deadline)
    return Posterior(
        fit=found.fit,
        basis=model.basis,
        kernel=model.kernel,
        likelihood=found.likelihood,
        exposure=exposure,
        exposure_kind=model.exposure_kind,
        effort=model.effort,
        effects=model.effects,
        points=_facts(counts, areas),
        title=title,
        choices=_choice(found),
        scaling=model.scaling,
        observed=values,
        areas=areas,
        places=None if areas is not None else getattr(counts, "counted", None),
        given=model.inputs.given,
        given_effort=model.inputs.given_effort,
        per=periods.unit,
        periods=periods,
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
    kernel = kernel or posterior.kernel.with_parameters(posterior.lengthscale, posterior.sd)
    setting = setting_of(
        posterior.basis,
        kernel,
        posterior.scaling,
        columns,
        0.0,
        periods.steps,
        periods.per_year,
        posterior.effects.prior_sd,
    )
    held = {name: float(getattr(best, name)) for name in ("tau", "level_sd", "level_tau")}
    problem, centre = _problem(setting, values, areas, behind)
    mean, variance = (part[:n_periods] for part in best.node_moments())
    if best.offset is not None:  # columns of levels that share nodes are held
        mean, problem = mean - best.offset, problem.about(Linearised(columns, best.offset))
    mean, variance = mean.ravel(), variance.ravel()
    found = fit_chain(
        problem,
        dynamics=best.dynamics,
        overdispersed="k" in posterior.likelihood.facts(),
        start=Start(posterior.fit.hyper_mean, posterior.fit.hyper_cov, mean - centre, variance),
        held={name: value for name, value in held.items() if np.isfinite(value)},
        resume=False,
    )
    return replace(
        posterior,
        fit=with_offset(found.fit, best.offset),
        likelihood=found.likelihood,
        exposure=exposure,
        effort=effort,
        observed=values,
        areas=areas,
        places=None,
        periods=periods,
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
    setting = setting_of(
        basis.truncate(1),
        kernel,
        "natural",
        best.columns,
        0.0,
        periods.steps,
        periods.per_year,
        posterior.effects.prior_sd,
    )
    behind = Behind(posterior.by_period, posterior.effort)
    areas: Any = posterior.areas
    problem, centre = _problem(setting, posterior.observed, areas, behind)
    problem = problem.about(Linearised(best.columns, best.offset))
    overdispersed = "k" in posterior.likelihood.facts()
    each = None if posterior.effects.names or overdispersed else _counts_of_periods(problem)
    if each is not None:
        sums = tuple(_sum_of(y.sum(), e.sum(), posterior.domain.n_nodes) for y, e in each)
        problem = area_chain(replace(setting, centre=centre), sums)
    with captured_warnings(lambda warning: None):
        found = fit_chain(
            problem,
            dynamics="separable",
            overdispersed=overdispersed,
            held={"tau": float(best.tau)},
            resume=False,
        ).fit
    if each is None:
        return found
    # What a sum does not tell: how it is shared among its counts.
    among = sum(_log_poisson(y, e) - _log_poisson(y.sum(), e.sum()) for y, e in each)
    return replace(found, elbo=found.elbo + among)


def _counts_of_periods(problem: Any) -> list[tuple[np.ndarray, np.ndarray]] | None:
    """Return counts and exposures of each period; None where some numbers are suppressed."""
    if isinstance(problem, NodeChain):
        return list(zip(problem.counts, problem.exposure, strict=True))
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
    )
    problem, centre = _problem(setting, values, areas, behind)
    return fit_chain(
        problem,
        dynamics=model.dynamics,
        overdispersed=model.overdispersed,
        hyper=hyper,
        progress=progress,
        start=None if start is None else _start(model, start, centre, periods),
        resume=resume,
        near=near,
        deadline=deadline,
        effects=model.effects,
    )


def _problem(setting: Any, values: np.ndarray | None, areas: AreaCounts | None, behind: Behind) -> Any:
    """Return what is to be fitted, and the centre of its linear predictor."""
    if areas is None:
        assert values is not None
        seen = seen_exposure(*behind)
        total, exposed = float(values.sum()), float(seen.sum())
        centre = _centre(total, exposed)
        return node_chain(replace(setting, centre=centre), values, seen), centre
    efforts = [None if behind.effort is None else of_period(behind.effort, t) for t in range(areas.n_periods)]
    rows = [combine(areas.at(t), behind.exposure[t], efforts[t]) for t in range(areas.n_periods)]
    centre = _centre(sum(float(r.counts.sum()) for r in rows), sum(float(r.exposure.sum()) for r in rows))
    observed = tuple(Observed(r.counts, r.exposure, r.hidden, r.interval) for r in rows)
    return area_chain(replace(setting, centre=centre), observed), centre


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
            f"The counts have {len(counts):,} rows; there are {periods.words()}.",
            option="periods",
            found=periods.n,
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


def _choice(found: ChainFit) -> dict[str, str]:
    """Say why the dynamics are what they are."""
    if len(found.bounds) < 2:
        return {}
    lead = abs(found.bounds["diffusive"] - found.bounds["separable"])
    other = "separable" if found.dynamics == "diffusive" else "diffusive"
    return {
        "dynamics": f"{found.dynamics} ({lead:.1f} nats above {other} ones, with {found.compared_with:,} features)"
    }


def _start(model: LGCP, start: Posterior, centre: float, periods: Periods) -> Start:
    """Return where a fit begins: at a fit of the same periods, or at one map for all of them."""
    if start.kernel != model.kernel:
        raise DataError(
            f"A fit goes on from one with the same kernel; found {start.kernel.name} after {model.kernel.name}."
        )
    found = start.fit
    if isinstance(start, Posterior) and start.periods is not None and start.n_periods == periods.n:
        mean, variance = (part.ravel() for part in found.states[0].node_moments())
        return Start(found.hyper_mean, found.hyper_cov, mean - centre, variance)
    raise DataError("A fit over periods goes on from one over the same periods.", option="start")


# -- Models: LGCP for counts on a domain, BoundaryGP for values at locations ---------------------------------


HYPER = choice("map", "integrate")
COUNTS = either(a("Counts", "AreaCounts"), ARRAY, words="Counts, AreaCounts, an array, or a list of them")

#: The likelihoods of values at locations, by name; a link is for those that have one.
_WITHOUT_DATA: dict[str, Callable[[str], Likelihood]] = {
    "gaussian": lambda link: Gaussian.without_data({}),
    "bernoulli": lambda link: Bernoulli.without_data({"link": link}),
    "poisson": lambda link: Poisson.without_data({}),
}


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

    likelihood: Likelihood = Poisson.without_data({})

    @validated(
        basis=BASIS,
        kernel=KERNEL,
        covariates=COVARIATES,
        exposure_column=NAME,
        effort_column=NAME,
        fill_missing=choice("mean"),
        likelihood=choice("poisson", "negative-binomial"),
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
        likelihood: Literal["poisson", "negative-binomial"] = "poisson",
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
        likelihood: Literal["poisson", "negative-binomial"] = "poisson",
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
        likelihood: str,
        scaling: Scaling | None,
        dynamics: Literal["auto", "separable", "diffusive"],
    ) -> None:
        self.basis, self.inputs = basis, inputs
        self.kernel = _kernel(basis, kernel)
        self.scaling: Scaling = resolve(scaling, basis)
        self.dynamics: Literal["auto", "separable", "diffusive"] = dynamics
        self.overdispersed = likelihood == "negative-binomial"

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

    def with_kernel(self, kernel: Kernel) -> LGCP:
        """Return the same model with another kernel."""
        out = copy.copy(self)
        out.kernel = _kernel(self.basis, kernel)
        return out

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
            those that have none. Areas need a basis of features. By period (or an
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
        if engine == "gpflow" and (areas is not None or self.overdispersed):
            raise DataError("GPflow's solver is for Poisson counts at the nodes.", remedy="Leave engine out.")
        likelihood = self.likelihood
        if areas is None and not self.overdispersed:
            assert points is not None
            more = {"gpflow": engine == "gpflow", "measure": measure, "client": client}
            result = self._fit(points, hyper=hyper, progress=progress, start=start, **more)
        else:
            result, likelihood = self._fit_in_passes(points, areas, hyper, progress, start)
        return Posterior(
            fit=result,
            basis=self.basis,
            kernel=self.kernel,
            likelihood=likelihood,
            exposure=self.exposure,
            exposure_kind=self.exposure_kind,
            effort=self.effort,
            effects=self.effects,
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
        n, values = self.basis.domain.n_nodes, as_floats("counts", counts)
        if values.shape != (n,):
            raise DataError(
                f"The domain has {n:,} nodes, so counts have the shape ({n},); found {values.shape}.",
                option="counts",
                found=values.shape,
                remedy="Count points with bin_points(points, domain).",
            )
        return values

    def _problem(self, counts: Counts | np.ndarray) -> tuple[Engine, Poisson, Hyper]:
        """Return what a fit is made of: the prior at the nodes, the likelihood, the hyperparameters."""
        domain = self.basis.domain
        values = self._at_nodes(counts)
        total, exposed = float(values.sum()), float(self.seen_exposure.sum())
        centre = float(np.log((total if total > 0 else 0.5) / exposed))
        likelihood = Poisson(values, self.seen_exposure, centre)
        columns = self.effects.columns
        fixed_sd = self.effects.prior_sd
        size = float(np.sqrt(domain.node_areas.sum()))
        parameters = Hyper.for_domain(self.kernel, size, domain.cell_size)
        engine = engine_for(self.basis, self.kernel, columns, fixed_sd, centre, None, self.scaling)
        return engine, likelihood, parameters

    def _fit(
        self,
        counts: Counts | np.ndarray,
        *,
        hyper: str = "map",
        gpflow: bool = False,
        progress: ProgressLike = False,
        start: Posterior | Start | None = None,
        **more: Any,
    ) -> Fit:
        engine, likelihood, parameters = self._problem(counts)
        integrate = hyper == "integrate"

        if gpflow:
            from geobgp.gpflow.fit import fit_lgcp

            with as_progress(progress).stage("fit") as stage:

                def by_gpflow(
                    at: Linearised, _: Any, free: Hyper, purpose: Purpose
                ) -> tuple[Fit, Likelihood]:
                    own = self._about(at)
                    return fit_lgcp(
                        own, likelihood, free, integrate=integrate and purpose == "all", stage=stage
                    ), likelihood

                known = effects_alone(self.effects, likelihood.counts, likelihood.exposure)
                return fit_levels(
                    by_gpflow, self.effects, parameters, None, likelihood.centre, known=known, more=integrate
                )[0]

        def fit_at(
            at: Linearised, known: Start | None, capped: Hyper, purpose: Purpose, stage: Stage
        ) -> tuple[Fit, Likelihood]:
            seen = likelihood
            if at.offset is not None:
                seen = replace(likelihood, exposure=self.seen_exposure * np.exp(at.offset))
            own = engine if at.offset is None else engine.with_columns(at.columns)
            rest = more | {"integrate": integrate} if purpose == "all" else {}
            if purpose == "on the way":
                rest["tolerance"] = ON_THE_WAY
            return fit(own, seen, capped, start=known, stage=stage, **rest), seen

        known = self._known_effects(start) or effects_alone(
            self.effects, likelihood.counts, likelihood.exposure
        )
        rest = integrate or more.get("measure", False)
        return self._relinearised(
            fit_at, parameters, likelihood.centre, hyper, progress, start, known, more=rest
        )[0]

    def _relinearised(
        self,
        fit_at: Callable[..., tuple[Fit, Likelihood]],
        parameters: Hyper,
        centre: float,
        hyper: str,
        progress: ProgressLike,
        start: Posterior | Start | None,
        known: Moments | None,
        *,
        more: bool,
        full: bool = True,
    ) -> tuple[Fit, Likelihood]:
        """Fit within the limits of the basis; columns of levels that share nodes are renewed, from known effects on."""
        place = None if start is None else self._start(start, centre)

        def call(stage: Stage, capped: Hyper) -> tuple[Fit, Likelihood]:
            def one(
                at: Linearised, start: Start | None, held: Hyper, purpose: Purpose
            ) -> tuple[Fit, Likelihood]:
                return fit_at(at, start, held, purpose, stage)

            return fit_levels(one, self.effects, capped, place, centre, known=known, more=more)

        return run(call, parameters, self.basis, hyper, progress, full=full)

    def _known_effects(self, start: Posterior | Start | None) -> Moments | None:
        """Return mean and covariance of the effects of a fit to go on from, as this one scales them; None of others."""
        if not isinstance(start, Posterior) or start.effects.terms != self.effects.terms:
            return None
        size = 1 + len(self.effects.terms)
        mean, covariance = start.fit.states[0].coefficients()
        turn = np.concatenate([np.ones(1), self.effects.scales / start.effects.scales])
        return turn * mean[:size], np.outer(turn, turn) * covariance[:size, :size]

    def _about(self, at: Linearised) -> LGCP:
        """Return the model with linearised columns, and what these leave in the exposure."""
        if at.offset is None:
            return self
        out = copy.copy(self)
        exposure, effects = self.exposure * np.exp(at.offset), replace(self.effects, columns=at.columns)
        out.inputs = replace(self.inputs, exposure=exposure, effects=effects)
        return out

    def _fit_in_passes(
        self,
        points: Counts | np.ndarray | None,
        areas: AreaCounts | None,
        hyper: str,
        progress: ProgressLike,
        start: Posterior | Start | None,
    ) -> tuple[Fit, Likelihood]:
        """Fit areas, whose rows are renewed, or counts with more spread than Poisson ones."""
        problem: NodeProblem | RowProblem
        seen: tuple[Any, Any]
        if areas is None:
            assert points is not None
            engine, plain, parameters = self._problem(points)
            problem = NodeProblem(engine, plain.counts, plain.exposure, plain.centre)
            seen = plain.counts, plain.exposure
        else:
            problem, parameters = self._rows(areas)
            seen = problem.observed.counts, problem.observed.exposure
        integrate = hyper == "integrate"

        def fit_at(
            at: Linearised, known: Start | None, capped: Hyper, purpose: Purpose, stage: Stage
        ) -> tuple[Fit, Likelihood]:
            return fit_counts(
                problem.about(at),
                capped,
                overdispersed=self.overdispersed and purpose == "all",
                integrate=integrate and purpose == "all",
                start=known,
                stage=stage,
            )

        known = self._known_effects(start) or effects_alone(self.effects, *seen)
        more = self.overdispersed or integrate
        return self._relinearised(
            fit_at, parameters, problem.centre, hyper, progress, start, known, more=more, full=areas is None
        )

    def _rows(self, areas: AreaCounts) -> tuple[RowProblem, Hyper]:
        domain, basis = self.basis.domain, self.basis
        if not basis.truncated:
            raise DataError(
                f"Counts by area need features: every area sees all of its nodes. Found {basis.label}.",
                option="m",
                found=basis.label,
                remedy=f"Use {option('m', 256, python='HarmonicBasis.compute(domain)')}.",
            )
        seen = combine(areas, self.exposure, self.effort)
        total, exposed = float(seen.counts.sum()), float(seen.exposure.sum())
        centre = float(np.log((total if total > 0 else 0.5) / exposed))
        columns = self.effects.columns
        problem = RowProblem(
            NodeFeatures(basis, self.kernel, self.scaling),  # type: ignore[arg-type]
            Observed(seen.counts, seen.exposure, seen.hidden, seen.interval),
            columns,
            self.effects.prior_sd,
            centre,
        )
        size = float(np.sqrt(domain.node_areas.sum()))
        return problem, Hyper.for_domain(self.kernel, size, domain.cell_size)

    def _start(self, posterior: Posterior | Start, centre: float) -> Start:
        """Return where a fit begins that goes on from another one."""
        if isinstance(posterior, Start):
            return posterior
        if posterior.kernel != self.kernel:
            raise DataError(
                f"A fit goes on from one with the same kernel; found {posterior.kernel.name} after {self.kernel.name}."
            )
        found = posterior.fit
        mean, variance = found.states[0].moments_at(self.basis.domain.node_points, by_node=True)
        land = np.isfinite(mean)
        return Start(
            found.hyper_mean,
            found.hyper_cov,
            np.where(land, mean - centre, 0.0),
            np.where(land, variance, posterior.sd**2),
        )


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
    held = replace(posterior.effects, columns=best.fixed, offset=best.offset)
    inputs = replace(Inputs.of(posterior), effects=held)
    return LGCP.from_inputs(
        posterior.basis,
        inputs if unseen is None else inputs.without(unseen),
        kernel or posterior.kernel,
        likelihood="negative-binomial" if posterior.likelihood.name == "negative binomial" else "poisson",
        scaling=posterior.scaling,
    )


class BoundaryGP:
    """A Gaussian process on a domain, for values at locations: regression and classification.

    Parameters
    ----------
    basis : HarmonicBasis or FullRank
    kernel : Kernel, optional
        `Matern(1.5)` by default; `Matern(1.0)` at full rank.
    likelihood : "gaussian", "bernoulli" or "poisson"
        Values with noise; classes 0 and 1; counts with mean exp(f).
    noise : float, optional
        Standard deviation of Gaussian noise; None: learned.
    link : "probit" or "logit"
        Of the Bernoulli likelihood.
    mean : "constant" or "zero", optional
        Whether f varies around a constant to be learned or around zero. By default a constant under Neumann
        conditions and zero under Dirichlet ones, whose boundary value is then zero.
    scaling : "even" or "natural", optional
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
        likelihood=choice(*_WITHOUT_DATA),
        noise=real(above=0.0),
        link=choice("probit", "logit"),
        mean=choice("constant", "zero"),
        scaling=SCALING,
    )
    def __init__(
        self,
        basis: Basis,
        kernel: Kernel | None = None,
        likelihood: Literal["gaussian", "bernoulli", "poisson"] = "gaussian",
        *,
        noise: float | None = None,
        link: Literal["probit", "logit"] = "probit",
        mean: Literal["constant", "zero"] | None = None,
        scaling: Scaling | None = None,
    ) -> None:
        self.basis = basis
        self.kernel = _kernel(basis, kernel)
        self.link = link
        self.likelihood = _WITHOUT_DATA[likelihood](link)
        self.noise = noise
        self.scaling: Scaling = resolve(scaling, basis)
        self.mean = mean or ("zero" if basis.boundary == "dirichlet" else "constant")

    @validated(values=ARRAY, hyper=HYPER, progress=PROGRESS)
    def fit(
        self,
        coords: Any,
        values: np.ndarray,
        *,
        hyper: Literal["map", "integrate"] = "map",
        progress: ProgressLike = False,
    ) -> Posterior:
        """Fit the posterior to values at locations; the model stays as it was.

        Parameters
        ----------
        coords : (k, 2) array, or points with a CRS
            Easting and northing in the domain's CRS, all on land; a GeoDataFrame or GeoSeries is projected.
        values : (k,) array
        hyper, progress
            As in `LGCP.fit`.
        """
        result = self._fit(coords, values, hyper=hyper, progress=progress)
        return Posterior(
            fit=result,
            basis=self.basis,
            kernel=self.kernel,
            likelihood=self.likelihood,
            # Values at locations have no exposure: a count there is one observation.
            exposure=np.ones(self.basis.domain.n_nodes),
            exposure_kind="observation",
            effects=Effects(),
            points={"used": len(values)},
            scaling=self.scaling,
        )

    def _fit(
        self, coords: Any, values: np.ndarray, *, hyper: str = "map", progress: ProgressLike = False
    ) -> Fit:
        domain = self.basis.domain
        xy, y = place_coordinates(coords, domain.crs), as_floats("values", values).ravel()
        if len(xy) != len(y) or len(y) == 0:
            raise DataError(
                f"One value per location; found {len(y)} values and {len(xy)} locations.", option="values"
            )
        if not np.isfinite(y).all():
            bad = int((~np.isfinite(y)).sum())
            raise DataError(
                f"Values must be finite; {bad:,} of {len(y):,} are not.", option="values", found=bad
            )
        off = int((domain.node_at(xy) < 0).sum())
        if off:
            raise DataError(
                f"{off:,} of {len(xy):,} locations are not on the domain's land; move or drop them.",
                option="coords",
                found=off,
            )
        constant = self.mean == "constant"
        centre, unit, noise, likelihood = self._scaled(y, constant)
        columns = np.ones((domain.n_nodes, int(constant)))
        fixed_sd = np.full(int(constant), FIXED_SD * unit)
        engine = engine_for(self.basis, self.kernel, columns, fixed_sd, centre, xy, self.scaling)
        size = float(np.sqrt(domain.node_areas.sum()))
        learn_noise = isinstance(likelihood, Gaussian) and noise is None
        parameters = Hyper.for_domain(
            self.kernel, size, domain.cell_size, sd_unit=unit, noise=noise, learn_noise=learn_noise
        )
        return run_one(engine, likelihood, parameters, self.basis, hyper, progress)

    def _scaled(self, y: np.ndarray, constant: bool) -> tuple[float, float, float | None, Likelihood]:
        """Return the centre of f, its scale, the known noise, and the likelihood about that centre."""
        if isinstance(self.likelihood, Gaussian):
            centre = float(y.mean()) if constant else 0.0
            unit = float(np.sqrt(np.mean((y - centre) ** 2))) or 1.0
            return centre, unit, self.noise, Gaussian(y - centre)
        if isinstance(self.likelihood, Poisson):
            centre = float(np.log(y.mean() if y.sum() > 0 else 0.5 / len(y))) if constant else 0.0
            return centre, 1.0, None, Poisson(y, np.ones(len(y)), centre)
        return 0.0, 1.0, None, Bernoulli(y, self.link)


def _kernel(basis: Basis, kernel: Kernel | None) -> Kernel:
    kernel = kernel or basis.default_kernel()
    basis.check_kernel(kernel)
    return kernel
