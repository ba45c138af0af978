"""Renewal: fits in several passes, in which what depends on the posterior is renewed until it stays as it is.

Each pass is a whole fit that goes on from the last one. The row and offset of an area, and the columns and offsets of
levels that share a node, follow from the posterior of the pass before and are held in the next.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from scipy import sparse

from geobgp.data.effects import Effects, Linearised
from geobgp.errors import ConvergenceWarning, DataError, GeobgpWarning, hearing, option, warn
from geobgp.inference.count_likelihoods import NegativeBinomial, SuppressedCounts
from geobgp.inference.engine import Engine, State
from geobgp.inference.fit import Fit, Start, fit
from geobgp.inference.fixed_point import Anderson, Moments
from geobgp.inference.hyper import Hyper
from geobgp.inference.likelihoods import Likelihood, Poisson
from geobgp.inference.rows import NodeFeatures, RowEngine, row_weights
from geobgp.prior.scaling import Scaling
from geobgp.progress import Stage
from geobgp.text import number

#: Passes after which rows that still change are reported; change (in posterior sds, and relatively) that ends them; and
#: so many times it that will do where the bound, in nats, changes no more than that, or passes have come to an end.
MOST_PASSES, SETTLED, _WILL_DO = 40, 0.01, 10.0
#: Change of a posterior within a pass that is small enough: passes are mixed, which magnifies it.
_EXACT = 1e-5
#: Log of a number of events that nobody can expect of an area.
_TOO_MANY = 200.0
#: Levels that share a node: change of an effect in standard deviations that is small enough; passes with
#: hyperparameters held, and searches for these; the longest step of an effect, and the least slope that is believed.
_SAME_EFFECT, _LEVEL_PASSES, _LEVEL_SEARCHES, _LONGEST, _LEAST_SLOPE = 0.05, 20, 3, 3.0, 0.3
#: Change of a posterior that is small enough on the way to the effects of levels, in standard deviations.
ON_THE_WAY = 0.01


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

    def about(self, at: Linearised) -> Observed:
        """Return the same with what linearised columns leave in the exposure."""
        if at.offset is None:
            return self
        return replace(self, exposure=sparse.csr_array(self.exposure.multiply(np.exp(at.offset))))


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

    def about(self, at: Linearised) -> Problem:
        """Return the same with linearised columns of fixed effects, and what these leave in the exposure."""
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

    def about(self, at: Linearised) -> NodeProblem:
        """Return the same with linearised columns."""
        if at.offset is None:
            return self
        engine = self.engine.with_columns(at.columns)
        return replace(self, engine=engine, exposure=self.exposure * np.exp(at.offset))

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


def remedy_of(scaling: Scaling) -> str:
    """Return what to do where areas do not settle."""
    if scaling == "natural":
        return f"Use {option('scaling', 'even')}: as wide on islets as elsewhere."
    return f"Give the lengthscale and sd of {option('kernel')}, or fewer features."


def broken_down(variance: float, scaling: Scaling) -> DataError:
    """Return the error of rows that expect nothing that can be told."""
    return DataError(
        "The fit broke down: some land within areas has a prior so wide (a standard deviation of the "
        f"log-intensity of {number(math.sqrt(variance), 2)}) that nothing can be expected of it.",
        option="scaling",
        found=math.sqrt(variance),
        remedy=remedy_of(scaling),
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

    def about(self, at: Linearised) -> RowProblem:
        """Return the same with linearised columns."""
        return replace(self, observed=self.observed.about(at), columns=at.columns)

    def likelihood(self, exposure: np.ndarray, k: float) -> Likelihood:
        """Return the likelihood of the counts about their rows."""
        o = self.observed
        told: Poisson | NegativeBinomial = Poisson(o.counts, exposure, self.centre)
        if not math.isinf(k):
            told = NegativeBinomial(o.counts, exposure, self.centre, k)
        return SuppressedCounts(told, o.hidden, *o.interval) if o.hidden.any() else told


@dataclass(frozen=True, eq=False)
class Settled:
    """A fit whose rows have settled.

    Attributes
    ----------
    fit : Fit
    last : Pass
        The last one.
    likelihood : Likelihood
        Of the counts, in the last pass.
    seen : Moments
        At the observations.
    settled : bool
        Whether fit and rows have.
    first : float
        The bound of the first pass, at rows of the fit before it.
    """

    fit: Fit
    last: Pass
    likelihood: Any
    seen: Moments
    settled: bool
    first: float


def settle(
    problem: Problem,
    hyper: Hyper,
    k: float,
    *,
    before: Settled | None = None,
    known: Start | None = None,
    stage: Stage,
    keep: Callable[[Start], None] | None = None,
    tolerance: float = SETTLED,
    most: int = MOST_PASSES,
) -> Settled:
    """Go through passes until rows and posterior stay as they are; the size k is held.

    Parameters
    ----------
    problem : Problem
    hyper : Hyper
        Where rows are renewed, all of it is held.
    k : float
        Size of a negative binomial, infinite for Poisson counts.
    before : Settled, optional
        At other hyperparameters, from which this one begins.
    known : Start, optional
        Where to begin otherwise, at the nodes.
    tolerance : float
        Change of a pass, in posterior standard deviations, that is small enough.
    most : int
        Passes.
    """
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
    passes, mixing, bounds, rounds, seconds = 0, Anderson(), list[float](), 0, dict[str, float]()
    best: tuple[float, Fit, Pass, Likelihood] | None = None
    while True:
        likelihood = problem.likelihood(at.exposure, k)
        heard: list[GeobgpWarning] = []
        with hearing(heard.append):
            exact = _EXACT if problem.renews else None
            found = fit(at.engine, likelihood, hyper, start=start, stage=stage, tolerance=exact)
        passes, rounds = passes + 1, rounds + found.rounds
        seconds = {name: seconds.get(name, 0.0) + spent for name, spent in found.seconds.items()}
        bounds.append(found.elbo)
        new = _less_centre(found.states[0], problem.centre)
        if keep is not None:
            keep(Start(found.hyper_mean, found.hyper_cov, *new))
        change = _change(moments, new) if problem.renews else 0.0
        if best is None or change < best[0]:
            best = change, found, at, likelihood
        steady = len(bounds) > 2 and float(np.abs(np.diff(bounds[-3:])).max()) < tolerance
        if change < tolerance * (_WILL_DO if steady else 1.0) or passes >= most:
            break
        moments = new if moments is None else mixing.next(moments, new)
        at = problem.at(found.states[0], moments)
        start = Start(found.hyper_mean, found.hyper_cov, *at.start)
    change, found, at, likelihood = best
    found = replace(found, rounds=rounds, seconds=seconds)
    seen = new if at.rows is None else found.states[0].moments_of(at.rows)  # type: ignore[attr-defined]
    return Settled(found, at, likelihood, seen, found.converged and change < _WILL_DO * tolerance, bounds[0])


def _less_centre(state: State, centre: float) -> Moments:
    mean, variance = state.node_moments()
    return mean.ravel() - centre, variance.ravel()


def _change(old: Moments | None, new: Moments) -> float:
    """Return the largest change of a mean, in standard deviations, and of a variance, relatively."""
    if old is None:
        return np.inf
    variance = np.maximum(new[1], 1e-12)
    mean = np.abs(new[0] - old[0]) / np.sqrt(variance)
    return float(max(mean.max(initial=0.0), (np.abs(new[1] - old[1]) / variance).max(initial=0.0)))


#: What a fit with linearised columns is for: their next coefficients, the best posterior of Poisson counts, or all that
#: was asked for (a mixture, a dispersion).
Purpose = Literal["on the way", "best", "all"]
#: Fits with linearised columns, from a place to begin at and with hyperparameters.
FitAt = Callable[[Linearised, Start | None, Hyper, Purpose], tuple[Fit, Likelihood]]


def fit_levels(
    fit_at: FitAt,
    effects: Effects,
    hyper: Hyper,
    start: Start | None,
    centre: float,
    *,
    known: Moments | None = None,
    more: bool = False,
) -> tuple[Fit, Likelihood]:
    """Fit with levels that share nodes: their columns are renewed until the effects stay as they are.

    Parameters
    ----------
    fit_at : callable
    effects : Effects
        Where no node has several levels, or columns are held, this is one fit.
    hyper : Hyper
    start : Start, optional
        With moments of the whole linear predictor, less its centre, at the nodes.
    centre : float
    known : (1 + k,) and (1 + k, 1 + k) arrays, optional
        Mean and covariance of coefficients to begin with, on the standardised scale; by default none has an effect.
    more : bool
        Whether the last fit is to do more than find the best posterior of Poisson counts.
    """
    if not effects.mixes:
        at = Linearised(effects.columns, effects.offset)
        found, likelihood = fit_at(at, _less_offset(start, at), hyper, "all")
        return (found if at.offset is None else with_offset(found, at.offset)), likelihood
    size = 1 + len(effects.terms)
    tried = _Tried(effects, *((np.zeros(size), np.zeros((size, size))) if known is None else known))
    heard: list[GeobgpWarning] = []
    rounds, seconds = 0, dict[str, float]()

    def run(place: Start | None, hyper: Hyper, purpose: Purpose) -> tuple[Fit, Likelihood]:
        nonlocal rounds
        fitted, likelihood = fit_at(tried.at, _less_offset(place, tried.at), hyper, purpose)
        rounds += fitted.rounds
        for name, spent in fitted.seconds.items():
            seconds[name] = seconds.get(name, 0.0) + spent
        return replace(fitted, rounds=rounds, seconds=dict(seconds)), likelihood

    with hearing(heard.append):
        found, likelihood = run(start, hyper, "best")
        for _ in range(_LEVEL_SEARCHES):
            theta, covariance = found.hyper_mean, found.hyper_cov
            held = replace(hyper, start=theta, lower=theta, upper=theta)
            before = tried
            for _ in range(_LEVEL_PASSES):
                if tried.hold(found):
                    break
                place = _place_of(found, covariance, centre, tried.at)
                tried = tried.next(found)
                found, likelihood = run(place, held, "on the way")
            if tried is before:
                break
            heard.clear()
            found, likelihood = run(_place_of(found, covariance, centre, tried.at), hyper, "best")
        converged = tried.hold(found)
    if more:
        found, likelihood = run(_place_of(found, found.hyper_cov, centre, tried.at), hyper, "all")
    else:
        for warning in heard:
            warn(warning)
    if not converged:
        message = "effects of levels that share nodes still change"
        warn(ConvergenceWarning(f"The fit did not converge: {message}.", option="covariates"))
        found = replace(found, converged=False, message=message)
    return with_offset(found, tried.at.offset), likelihood


def effects_alone(
    effects: Effects, counts: np.ndarray, exposure: np.ndarray | sparse.csr_array
) -> Moments | None:
    """Return effects of a model without a field, which is quick, to begin with where levels share nodes.

    Parameters
    ----------
    effects : Effects
    counts : (n,) array
    exposure : (n,) array, or (n, n_nodes) csr_array
        Of the nodes, or of every node behind each count.
    """
    if not effects.mixes or effects.columns.ndim == 3:
        return None
    summed: Any = exposure if sparse.issparse(exposure) else sparse.diags_array(exposure).tocsr()
    prior = effects.prior_sd**-2.0
    centre, mean = math.log(max(float(counts.sum()), 0.5) / float(exposure.sum())), np.zeros(len(prior))
    for _ in range(_LEVEL_PASSES):
        columns, offset = effects.linearised(mean)
        assert offset is not None
        rate = np.exp(np.clip(columns @ mean + offset + centre, -_TOO_MANY, _TOO_MANY))
        expected = summed @ rate
        rows = (summed @ (rate[:, None] * columns)) / np.where(expected > 0, expected, 1.0)[:, None]
        precision = (rows * expected[:, None]).T @ rows + np.diag(prior)
        step = np.linalg.solve(precision, rows.T @ (counts - expected) - prior * mean)
        mean = mean + step * min(1.0, 1.0 / max(float(np.abs(step).max()), 1e-300))
        if np.abs(step).max() < ON_THE_WAY:
            break
    return mean, np.zeros((len(prior), len(prior)))


def with_offset(found: Fit, offset: np.ndarray | None) -> Fit:
    """Return a fit of linearised columns, whose states know what is added to these."""
    states: Any = found.states
    return replace(found, states=tuple(replace(state, offset=offset) for state in states))


def _place_of(found: Fit, covariance: np.ndarray, centre: float, at: Linearised) -> Start:
    """Return where a fit ended, with the whole linear predictor, less its centre."""
    mean, variance = found.states[0].node_moments()
    return Start(found.hyper_mean, covariance, (mean + at.offset - centre).ravel(), variance.ravel())


def _less_offset(start: Start | None, at: Linearised) -> Start | None:
    if start is None or at.offset is None or not start.variance.any():
        return start
    mean = (start.mean.reshape(-1, len(at.offset)) - at.offset).ravel()
    return replace(start, mean=mean)


class _Tried:
    """Coefficients about which columns were linearised, and how passes answered to those before them.

    What is sought are sizes a = mean + variance / 2 of the levels, in their own unit, that a pass gives back. Where a
    level is hardly known, columns about a larger size know more of it, and lead to a smaller one: steps follow how the
    answer of each level changed with its size.
    """

    def __init__(
        self,
        effects: Effects,
        mean: np.ndarray,
        covariance: np.ndarray,
        slope: np.ndarray | None = None,
        before: tuple[np.ndarray, np.ndarray] | None = None,
    ) -> None:
        self.effects, self.mean, self.covariance, self._before = effects, mean, covariance, before
        self.at = effects.linearised(mean, covariance)
        self._levels = np.array([j for j, term in enumerate(effects.terms) if term.level is not None])
        self._slope = -np.ones(len(self._levels)) if slope is None else slope
        self._sizes = self._own(mean, covariance)[0]

    def _own(self, mean: np.ndarray, covariance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return mean + variance / 2 and variance of every level, in its own unit."""
        scale = self.effects.scales[self._levels]
        variance = np.diagonal(covariance)[1 + self._levels] / scale**2
        return mean[1 + self._levels] / scale + 0.5 * variance, variance

    def _answer(self, found: Fit) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return what a pass has found, what the sizes lack by it, and how that changes with them."""
        size = len(self.mean)
        mean, covariance = found.states[0].coefficients()
        mean, covariance = mean[:size], covariance[:size, :size]
        lack, slope = self._own(mean, covariance)[0] - self._sizes, self._slope
        if self._before is not None:
            moved, changed = self._sizes - self._before[0], lack - self._before[1]
            with np.errstate(divide="ignore", invalid="ignore"):
                seen = changed / moved
            slope = np.where((np.abs(moved) > 1e-9) & (seen < -_LEAST_SLOPE), seen, slope)
        return mean, covariance, lack, slope

    def hold(self, found: Fit) -> bool:
        """Whether the columns hold at what a pass has found."""
        mean, covariance, lack, slope = self._answer(found)
        sd = np.sqrt(self._own(mean, covariance)[1])
        return bool((np.abs(lack / slope) < _SAME_EFFECT * np.minimum(sd, 1.0)).all())

    def next(self, found: Fit) -> _Tried:
        """Return what to try after a pass."""
        mean, covariance, lack, slope = self._answer(found)
        sizes = self._sizes + np.clip(-lack / slope, -_LONGEST, _LONGEST)
        mean = mean.copy()
        mean[1 + self._levels] = self.effects.scales[self._levels] * (
            sizes - 0.5 * self._own(mean, covariance)[1]
        )
        return _Tried(self.effects, mean, covariance, slope, (self._sizes, lack))
