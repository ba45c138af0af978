"""Models over periods: from counts by period to a posterior of all periods together."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.special import gammaln, xlogy

from geobgp.data.combined import combine
from geobgp.data.effects import Linearised
from geobgp.data.effort import check_events, seen_exposure
from geobgp.data.period_areas import PeriodAreaCounts
from geobgp.data.period_counts import PeriodCounts
from geobgp.data.period_inputs import check_labels, check_periods
from geobgp.data.periods import Periods
from geobgp.errors import DataError, hearing, option
from geobgp.inference.chain_fit import ChainFit, area_chain, fit_chain, node_chain, setting_of
from geobgp.inference.fit import Fit, Start
from geobgp.inference.period_problems import NodeChain
from geobgp.inference.renewal import Observed, with_offset
from geobgp.spacetime.posterior import SpaceTimePosterior
from geobgp.summary import point_facts

if TYPE_CHECKING:
    from geobgp.model import LGCP
    from geobgp.posterior import Posterior
    from geobgp.prior.kernels import Kernel
    from geobgp.progress import ProgressLike

#: Standard deviation of a field that is none.
_NO_FIELD = 1e-4


class Behind(NamedTuple):
    """What stands behind the events: the exposure by period and node, and the share of events that get reported."""

    exposure: np.ndarray
    effort: np.ndarray | None


def has_periods(counts: Any) -> bool:
    """Whether counts are by period: a `PeriodCounts`, a `PeriodAreaCounts`, or a table by period and node."""
    return isinstance(counts, (PeriodCounts, PeriodAreaCounts)) or (
        isinstance(counts, np.ndarray) and counts.ndim == 2
    )


def refuse_periods(model: LGCP, periods: Periods | None) -> None:
    """Refuse what is given by period where counts are not."""
    if periods is not None or model.exposure.ndim > 1 or model.effects.columns.ndim > 2:
        raise DataError(
            "Periods were given, and counts of one.",
            option="periods",
            remedy="Count events by period: bin_points(points, domain, time=..., every=...).",
        )


def fit_periods(
    model: LGCP,
    counts: PeriodCounts | PeriodAreaCounts | np.ndarray,
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
) -> SpaceTimePosterior:
    """Fit all periods together; see `LGCP.fit`, and `fit_chain` for where it begins and when it ends."""
    if engine == "gpflow":
        raise DataError("GPflow's solver is for one period.", option="engine", remedy="Leave engine out.")
    periods = _periods(counts, periods)
    n = model.basis.domain.n_nodes
    for what, given in (("exposure", model.exposure), ("covariates", model.effects.columns)):
        check_periods(len(given) if given.ndim == (2 if what == "exposure" else 3) else None, periods, what)
    check_labels(model.period_labels, periods)
    exposure = model.exposure
    if not np.all(periods.widths == 1.0):
        exposure = np.broadcast_to(exposure, (periods.n, n)) * periods.widths[:, None]
    areas: Any = model._exposing(counts) if isinstance(counts, PeriodAreaCounts) else None
    values = None if isinstance(counts, PeriodAreaCounts) else _values(counts, n)
    for t in range(periods.n):
        check_events(None if values is None else values[t], None if areas is None else areas.at(t),
                     np.broadcast_to(exposure, (periods.n, n))[t], model.effort)  # fmt: skip
    behind = Behind(np.broadcast_to(exposure, (periods.n, n)), model.effort)
    found = _fit(model, values, areas, behind, periods, hyper, progress, start, resume, near, deadline)
    return SpaceTimePosterior(
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
        given=model.given,
        given_effort=model.given_effort,
        per=periods.unit,
        periods=periods,
    )


def refit(posterior: SpaceTimePosterior, n_periods: int, kernel: Kernel | None = None) -> SpaceTimePosterior:
    """Return the fit of the first periods alone, the hyperparameters held, or those of another kernel."""
    best: Any = posterior.fit.states[0]
    columns = best.columns if best.columns.ndim == 2 else best.columns[:n_periods]
    periods = posterior.periods.slice(0, n_periods)
    exposure = posterior.exposure if posterior.exposure.ndim == 1 else posterior.exposure[:n_periods]
    behind = Behind(np.broadcast_to(exposure, (n_periods, posterior.domain.n_nodes)), posterior.effort)
    areas: Any = None if posterior.areas is None else posterior.areas.slice(0, n_periods)  # type: ignore[attr-defined]
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
        observed=values,
        areas=areas,
        places=None,
        periods=periods,
    )


def fit_without_field(posterior: SpaceTimePosterior) -> Fit:
    """Return the fit of the same counts by a level of each period, the season and covariates: no field in space.

    It is that of the chain with a field whose standard deviation is next to nothing. Where all counts of a period have
    one rate, only their sum tells of it: one observation a period.
    """
    best: Any = posterior.fit.states[0]
    basis: Any = posterior.basis
    kernel = posterior.kernel.with_parameters(posterior.lengthscale, _NO_FIELD)
    periods = posterior.periods
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
    with hearing(lambda warning: None):
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
    areas: PeriodAreaCounts | None,
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


def _problem(setting: Any, values: np.ndarray | None, areas: PeriodAreaCounts | None, behind: Behind) -> Any:
    """Return what is to be fitted, and the centre of its linear predictor."""
    if areas is None:
        assert values is not None
        seen = seen_exposure(*behind)
        total, exposed = float(values.sum()), float(seen.sum())
        centre = _centre(total, exposed)
        return node_chain(replace(setting, centre=centre), values, seen), centre
    rows = [combine(areas.at(t), behind.exposure[t], behind.effort) for t in range(areas.n_periods)]
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


def _values(counts: PeriodCounts | np.ndarray, n: int) -> np.ndarray:
    values = np.asarray(counts, float)
    if values.ndim != 2 or values.shape[1] != n:
        raise DataError(
            f"The domain has {n:,} nodes, so counts have a row for each period and {n:,} columns; found the shape "
            f"{values.shape}.",
            found=values.shape,
            remedy="Count points with bin_points(points, domain, time=..., every=...).",
        )
    return values


def _facts(counts: Any, areas: PeriodAreaCounts | None) -> dict[str, float]:
    if areas is not None:
        return point_facts(None, areas.pooled())
    facts = point_facts(counts)
    if isinstance(counts, PeriodCounts):
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
    if isinstance(start, SpaceTimePosterior) and start.n_periods == periods.n:
        mean, variance = (part.ravel() for part in found.states[0].node_moments())
        return Start(found.hyper_mean, found.hyper_cov, mean - centre, variance)
    raise DataError("A fit over periods goes on from one over the same periods.", option="start")
