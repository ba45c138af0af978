"""Fits in several passes: rows of areas that are renewed at each posterior, and the size of a negative binomial.

Each pass is a whole fit that goes on from the last one, with its rows held. An area's row and offset follow from the
posterior of the pass before; they soon stay as they are. The size k of a negative binomial is where the bound, so
maximised, no longer rises: its slope is that of the expected log-likelihood at the posterior.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy import sparse
from scipy.optimize import brentq, minimize_scalar

from geobgp.errors import ConvergenceWarning, DataError, GeobgpWarning, hearing, option, warn
from geobgp.inference.count_likelihoods import LARGEST_K, SMALLEST_K, NegativeBinomial, SuppressedCounts
from geobgp.inference.engine import Engine, State
from geobgp.inference.fit import Fit, Start, fit, grid_weights, hyper_grid
from geobgp.inference.hyper import Hyper
from geobgp.inference.likelihoods import Likelihood, Poisson
from geobgp.inference.rows import NodeFeatures, RowEngine, row_weights
from geobgp.prior.scaling import Scaling
from geobgp.progress import Stage
from geobgp.text import number

#: Passes after which rows that still change are reported; change (in posterior sds, and relatively) that ends them.
MOST_PASSES, SETTLED = 40, 0.01
#: Precision to which log k is found.
_NEAR = 0.02
#: Log of a number of events that nobody can expect of an area.
_TOO_MANY = 200.0
#: How often the standard deviation is halved where rows do not settle, and the log of one that is too wide.
_ATTEMPTS, _WIDE = 5, math.log(8.0)
#: Node means and variances of a posterior, less its centre.
Moments = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True, eq=False)
class Observed:
    """What was counted, and of what.

    Attributes
    ----------
    counts : (n,) array
        Any number between the two of `interval` where it is hidden.
    exposure : (n, n_nodes) csr_array
        The exposure of every node behind each count.
    hidden : (n,) bool array
    interval : (int, int)
        Between which numbers hidden counts lie.
    """

    counts: np.ndarray
    exposure: sparse.csr_array
    hidden: np.ndarray
    interval: tuple[int, int] = (0, 0)

    @property
    def single(self) -> bool:
        """Whether every count is of one node."""
        return bool((np.diff(self.exposure.indptr) <= 1).all())


class Pass(NamedTuple):
    """What is fitted in one pass: an engine, the exposure of each observation about its row, and the rows if any."""

    engine: Engine
    exposure: np.ndarray
    start: Moments
    rows: Any = None


class Problem(Protocol):
    """What is to be fitted, pass by pass."""

    @property
    def centre(self) -> float:
        """Constant added to every linear predictor."""
        ...

    @property
    def renews(self) -> bool:
        """Whether rows change from pass to pass."""
        ...

    def at(self, state: State | None, moments: Moments | None) -> Pass:
        """Return the pass that follows a posterior, of which rows are made with these moments at the nodes."""
        ...

    def likelihood(self, exposure: np.ndarray, k: float) -> Likelihood:
        """Return the likelihood; k is infinite for Poisson counts."""
        ...


@dataclass(frozen=True, eq=False)
class NodeProblem:
    """Counts at the nodes: one engine for all passes."""

    engine: Engine
    counts: np.ndarray
    exposure: np.ndarray
    centre: float
    renews: bool = False

    def at(self, state: State | None, moments: Moments | None) -> Pass:
        """Return the one pass that there is."""
        zero = np.zeros(len(self.counts))
        return Pass(self.engine, self.exposure, (zero, zero) if moments is None else moments)

    def likelihood(self, exposure: np.ndarray, k: float) -> Likelihood:
        """Return the likelihood."""
        if math.isinf(k):
            return Poisson(self.counts, exposure, self.centre)
        return NegativeBinomial(self.counts, exposure, self.centre, k)


def row_exposures(
    log_total: np.ndarray, row_mean: np.ndarray, row_variance: np.ndarray, counts: np.ndarray, centre: float
) -> np.ndarray | None:
    """Return the exposures about rows, with which they expect what their nodes do; None where that cannot be told."""
    with np.errstate(over="ignore", under="ignore"):
        exposure = np.exp(log_total - 0.5 * row_variance - row_mean)
    possible = np.isfinite(exposure) & (log_total + centre < _TOO_MANY)
    return exposure if (possible & ((exposure > 0) | (counts == 0))).all() else None


def broken_down(variance: float, scaling: Scaling) -> DataError:
    """Return the error of rows that expect nothing that can be told."""
    return DataError(
        "The fit broke down: some land within areas has a prior so wide (a standard deviation of the "
        f"log-intensity of {number(math.sqrt(variance), 2)}) that nothing can be expected of it.",
        option="scaling",
        found=math.sqrt(variance),
        remedy=_remedy(scaling),
    )


@dataclass(frozen=True, eq=False)
class RowProblem:
    """Counts that are sums over nodes: the rows follow from the posterior."""

    nodes: NodeFeatures
    observed: Observed
    columns: np.ndarray
    fixed_sd: np.ndarray
    centre: float

    @property
    def renews(self) -> bool:
        """Whether rows change from pass to pass: not where every count is of one node."""
        return not self.observed.single

    def at(self, state: Any | None, moments: Moments | None) -> Pass:
        """Return the rows w_i / W and the exposures about them, at a posterior."""
        n = self.columns.shape[0]
        mean, variance = (np.zeros(n), np.zeros(n)) if moments is None else moments
        rows, log_total = row_weights(self.observed.exposure, mean, variance)
        row_mean = rows @ mean
        seen = (row_mean, np.zeros(len(log_total))) if state is None else state.moments_of(rows)
        exposure = row_exposures(log_total, row_mean, seen[1], self.observed.counts, self.centre)
        if exposure is None:
            raise broken_down(float(variance.max()), self.nodes.scaling)
        engine = RowEngine(self.nodes, rows, self.columns, self.fixed_sd, self.centre)
        return Pass(engine, exposure, seen, rows)

    def likelihood(self, exposure: np.ndarray, k: float) -> Likelihood:
        """Return the likelihood of the counts about their rows."""
        o = self.observed
        told: Poisson | NegativeBinomial = Poisson(o.counts, exposure, self.centre)
        if not math.isinf(k):
            told = NegativeBinomial(o.counts, exposure, self.centre, k)
        return SuppressedCounts(told, o.hidden, *o.interval) if o.hidden.any() else told


@dataclass(frozen=True, eq=False)
class Settled:
    """A fit whose rows have settled, with its last pass."""

    fit: Fit
    last: Pass
    likelihood: Any
    seen: Moments
    settled: bool


def settle(
    problem: Problem,
    hyper: Hyper,
    k: float,
    before: Settled | None,
    known: Start | None,
    stage: Stage,
    keep: Callable[[Start], None] | None = None,
) -> Settled:
    """Go through passes until rows and posterior stay as they are; the size k is held."""
    state = None if before is None else before.fit.states[0]
    moments = None if state is None else _less_centre(state, problem.centre)
    if moments is None and known is not None:
        moments = known.mean, known.variance
    at = problem.at(state, moments)
    start = known
    if before is not None:
        start = Start(before.fit.hyper_mean, before.fit.hyper_cov, *at.start)
    elif known is not None:
        start = Start(known.theta, known.covariance, *at.start)
    rounds, share, last_change, calm = 0, 1.0, np.inf, False
    while True:
        likelihood = problem.likelihood(at.exposure, k)
        heard: list[GeobgpWarning] = []
        with hearing(heard.append):
            found = fit(at.engine, likelihood, hyper, start=start, stage=stage)
        rounds += 1
        new = _less_centre(found.states[0], problem.centre)
        if keep is not None:
            keep(Start(found.hyper_mean, found.hyper_cov, *new))
        change = _change(moments, new)
        calm = change < SETTLED
        if not problem.renews or calm or rounds >= MOST_PASSES:
            break
        if change > 0.7 * last_change and moments is not None:
            share = max(0.5 * share, 0.2)
        last_change = change
        moments = new if moments is None else _between(moments, new, share)
        at = problem.at(found.states[0], moments)
        start = Start(found.hyper_mean, found.hyper_cov, *at.start)
    seen = new if at.rows is None else found.states[0].moments_of(at.rows)  # type: ignore[attr-defined]
    return Settled(found, at, likelihood, seen, found.converged and (calm or not problem.renews))


def fit_counts(
    problem: Problem,
    hyper: Hyper,
    *,
    overdispersed: bool = False,
    integrate: bool = False,
    start: Start | None = None,
    stage: Stage | None = None,
    keep: Callable[[Start], None] | None = None,
) -> tuple[Fit, Likelihood]:
    """Fit counts; return the fit, and the likelihood without data.

    Parameters
    ----------
    problem : Problem
    hyper : Hyper
    overdispersed : bool
        Learn the size of a negative binomial.
    integrate : bool
        Mix posteriors over hyperparameters; rows and the size are those of the best ones.
    start : Start, optional
        Where to begin, at the nodes.
    stage : Stage, optional
    keep : callable, optional
        Given a place from which such a fit could go on, after every pass.
    """
    stage = stage or Stage()
    if problem.renews and hyper.free[1]:
        plain, hyper = _settle_within(problem, hyper, start, stage, keep)
    else:
        plain = settle(problem, hyper, math.inf, None, start, stage, keep)
    best = plain
    about: Likelihood = Poisson.without_data({})
    k = math.inf
    if overdispersed:
        best, k = _learn_k(problem, hyper, plain, stage, keep)
        about = NegativeBinomial.without_data({"k": k, "gain": best.fit.elbo - plain.fit.elbo})
    result = best.fit
    if integrate and hyper.free.any():
        again = Start(result.hyper_mean, result.hyper_cov, *best.seen)
        result = fit(best.last.engine, best.likelihood, hyper, integrate=True, start=again, stage=stage)
        if problem.renews:
            result = _renewed_mixture(problem, hyper, k, best, result, stage)
    if not best.settled:
        message = result.message if not result.converged else f"areas still change after {MOST_PASSES} passes"
        result = dataclasses.replace(result, converged=False, message=message)
        remedy = _remedy(problem.nodes.scaling) if isinstance(problem, RowProblem) else ""
        warn(ConvergenceWarning(f"The fit did not converge: {message}.", remedy=remedy))
    return result, about


def _remedy(scaling: Scaling) -> str:
    """Return what to do where areas do not settle."""
    if scaling == "natural":
        return f"Use {option('scaling', 'even')}: as wide on islets as elsewhere."
    return f"Give the lengthscale and sd of {option('kernel')}, or fewer features."


def _settle_within(
    problem: Problem,
    hyper: Hyper,
    start: Start | None,
    stage: Stage,
    keep: Callable[[Start], None] | None,
) -> tuple[Settled, Hyper]:
    """Return a fit whose rows have settled, and the hyperparameters allowed in it.

    Where the prior is wide, rows jump to whatever node is least known, and the bound at rows that have not settled is
    none. The standard deviation is then held at half of what it was, until they settle; if they never do, the first fit
    is returned.
    """
    allowed = hyper
    first: Settled | DataError | None = None
    for _ in range(_ATTEMPTS):
        reached = _WIDE
        try:
            found = settle(problem, allowed, math.inf, None, start, stage, keep)
        except DataError as error:
            if error.option != "scaling":
                raise
            first = first or error
        else:
            if found.settled:
                _warn_held(found, allowed, hyper)
                return found, allowed
            first, reached = first or found, float(found.fit.hyper_mean[1])
        cap = max(min(float(allowed.upper[1]), reached) - math.log(2.0), float(hyper.lower[1]))
        upper = np.where(np.arange(len(hyper.upper)) == 1, cap, hyper.upper)
        allowed, start = dataclasses.replace(hyper, upper=upper, start=np.minimum(hyper.start, upper)), None
    if isinstance(first, DataError):
        raise first
    assert first is not None
    return first, hyper


def _warn_held(found: Settled, allowed: Hyper, asked: Hyper) -> None:
    """Tell that the standard deviation was held, if it would be larger."""
    limit = float(allowed.upper[1])
    if limit < asked.upper[1] and found.fit.hyper_mean[1] > limit - 0.01:
        warn(
            ConvergenceWarning(
                f"The standard deviation of the log-intensity was held at {number(math.exp(limit), 3)}: with more, "
                "what is expected of the areas does not settle. Rates of areas differ more than a map can follow.",
                found=math.exp(limit),
                remedy=f"Look for areas with many events on little land, or give {option('exposure')}.",
            )
        )


def _renewed_mixture(
    problem: Problem, hyper: Hyper, k: float, best: Settled, mixed: Fit, stage: Stage
) -> Fit:
    """Return a mixture over hyperparameters in which every posterior has rows of its own."""
    grid = hyper_grid(mixed.hyper_mean, mixed.hyper_cov, hyper)
    found = [best]
    for at in grid[1:]:
        held = dataclasses.replace(hyper, start=at.theta, lower=at.theta, upper=at.theta)
        found.append(settle(problem, held, k, best, None, stage))
    scores = [one.fit.elbo + hyper.log_prior(at.theta)[0] for at, one in zip(grid, found, strict=True)]
    weights = grid_weights(grid, scores)
    states: list[Any] = [one.fit.states[0] for one in found]
    mixture = tuple(
        dataclasses.replace(state, weight=float(w)) for state, w in zip(states, weights, strict=True)
    )
    return dataclasses.replace(mixed, states=mixture)


def _learn_k(
    problem: Problem, hyper: Hyper, plain: Settled, stage: Stage, keep: Callable[[Start], None] | None
) -> tuple[Settled, float]:
    """Return the fit with the size at which the bound is highest, and that size."""
    low, high = math.log(SMALLEST_K), math.log(LARGEST_K)

    def loss(log_k: float) -> float:
        likelihood = problem.likelihood(plain.last.exposure, math.exp(log_k))
        return -float(likelihood.expected(*plain.seen).value.sum())

    found: dict[float, Settled] = {}
    latest = plain

    def slope(log_k: float) -> float:
        nonlocal latest
        latest = found[log_k] = settle(problem, hyper, math.exp(log_k), latest, None, stage, keep)
        return float(latest.likelihood.by_log_k(*latest.seen))

    here = float(minimize_scalar(loss, bounds=(low, high), method="bounded").x)
    there = _bracket(slope, here, low, high)
    if there is not None:
        brentq(slope, *there, xtol=_NEAR, rtol=1e-3, maxiter=12, disp=False)
    log_k = max(found, key=lambda at: found[at].fit.elbo)
    return found[log_k], math.exp(log_k)


def _bracket(
    slope: Callable[[float], float], here: float, low: float, high: float
) -> tuple[float, float] | None:
    """Return two places between which a slope changes its sign, from one on; None if it leads to a bound."""
    sign, step = np.sign(slope(here)), 0.5
    while sign:
        there = float(np.clip(here + sign * step, low, high))
        if there == here:
            return None
        if np.sign(slope(there)) != sign:
            return min(here, there), max(here, there)
        here, step = there, 2.0 * step
    return None


def _less_centre(state: State, centre: float) -> Moments:
    mean, variance = state.node_moments()
    return mean.ravel() - centre, variance.ravel()


def _between(old: Moments, new: Moments, share: float) -> Moments:
    mean, variance = (a + share * (b - a) for a, b in zip(old, new, strict=True))
    return mean, variance


def _change(old: Moments | None, new: Moments) -> float:
    """Return the largest change of a mean, in standard deviations, and of a variance, relatively."""
    if old is None:
        return np.inf
    variance = np.maximum(new[1], 1e-12)
    mean = np.abs(new[0] - old[0]) / np.sqrt(variance)
    return float(max(mean.max(initial=0.0), (np.abs(new[1] - old[1]) / variance).max(initial=0.0)))
