"""Observations that are nonlinear in the field: relinearised pass by pass until they converge."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from scipy import sparse
from scipy.optimize import brentq, minimize_scalar

from geobgp.data.effects import Effects, Linearised
from geobgp.errors import (
    ConvergenceWarning,
    DataError,
    GeobgpWarning,
    MissedVarianceWarning,
    captured_warnings,
    option,
    warn,
)
from geobgp.inference.dense import row_weights
from geobgp.inference.families import LARGEST_K, SMALLEST_K, Likelihood, sites
from geobgp.inference.fit import Fit, Start, fit, grid_weights, hyper_grid
from geobgp.inference.hyper import Hyper, bfgs, negative, newton_step
from geobgp.inference.problem import Moments, Observed, Pass, Problem, moments_less_centre, row_exposures
from geobgp.inference.solver import MAX_ROUNDS, RAN_OUT, Solver
from geobgp.prior.basis import MAX_TRUNCATED_VARIANCE
from geobgp.progress import ProgressLike, Stage, as_progress
from geobgp.text import number, percent

if TYPE_CHECKING:
    from geobgp.prior.basis import Basis

# -- Fixed points: moments that a pass returns as they were, found in fewer passes by Anderson's mixing ------
# A pass maps means and variances x to others, G(x). The next place to try is the combination of the last few at which
# what they lack, G(x) - x, would vanish if the map were linear.


#: Passes that are remembered.
_DEPTH = 8
#: The longest way that a mixture may lie from the last place, if a pass does not lead farther.
_FAR = 2.0
_SMALLEST = 1e-12


class Anderson:
    """The places that were tried, and where their passes led.

    Examples
    --------
    >>> mixing = Anderson()
    >>> x = np.zeros(2), np.ones(2)
    >>> for _ in range(8):
    ...     x = mixing.next(x, (1.0 - 0.9 * x[0], np.exp(0.2 - 0.8 * np.log(x[1]))))
    >>> [v.round(6).tolist() for v in (x[0] * 1.9, np.log(x[1]) * 9.0)]
    [[1.0, 1.0], [1.0, 1.0]]
    """

    def __init__(self) -> None:
        self._places: list[np.ndarray] = []
        self._lacks: list[np.ndarray] = []

    def next(self, tried: Moments, found: Moments) -> Moments:
        """Return the moments to try after these, of which a pass has found those."""
        place, size = _flat(tried), len(tried[0])
        lack = _flat(found) - place
        # Means count in posterior standard deviations, variances by their logarithm.
        weight = np.ones(len(lack))
        weight[:size] = 1.0 / np.sqrt(np.maximum(found[1], _SMALLEST))
        new = place + lack
        if self._lacks:
            by_place = np.array([place - other for other in self._places]).T
            by_lack = np.array([lack - other for other in self._lacks]).T
            share = np.linalg.lstsq(weight[:, None] * by_lack, weight * lack, rcond=1e-8)[0]
            way = lack - (by_place + by_lack) @ share
            longest, farthest = float(np.abs(weight * way).max()), float(np.abs(weight * lack).max())
            if np.isfinite(longest):
                new = place + way * min(1.0, max(_FAR, farthest) / max(longest, 1e-300))
        self._places = [*self._places, place][-_DEPTH:]
        self._lacks = [*self._lacks, lack][-_DEPTH:]
        return _moments(new, size)


def _flat(moments: Moments) -> np.ndarray:
    return np.concatenate([moments[0], np.log(np.maximum(moments[1], _SMALLEST))])


def _moments(flat: np.ndarray, size: int) -> Moments:
    return flat[:size], np.exp(flat[size:])


# -- Renewal: fits in several passes, in which what depends on the posterior is renewed until it stays as it is --
# Each pass is a whole fit that goes on from the last one. The row and offset of an area, and the columns and offsets
# of
# levels that share a node, follow from the posterior of the pass before and are held in the next.


#: Passes after which rows that still change are reported; change (in posterior sds, and relatively) that ends them; and
#: so many times it that will do where the bound, in nats, changes no more than that, or passes have come to an end.
MOST_PASSES, SETTLED, _WILL_DO = 40, 0.01, 10.0
#: Change of a posterior within a pass that is small enough, as a share of the change of the pass before, and the limits
#: of it: passes are mixed, which magnifies it, and no pass needs to be much more exact than the rows that it has.
_OF_LAST, _EXACT, _COARSE = 0.03, 1e-5, 3e-3
#: Rounds of a pass while rows still change, if by no more than this: its posterior would be another one in the next.
_ON_THE_WAY, _NEARLY = 2, 1.0
#: The longest linear predictor of effects by themselves.
_TOO_MANY = 200.0
#: Levels that share a node: change of an effect in standard deviations that is small enough; passes with
#: hyperparameters held, and searches for these; the longest step of an effect, and the least slope that is believed.
_SAME_EFFECT, _LEVEL_PASSES, _LEVEL_SEARCHES, _LONGEST, _LEAST_SLOPE = 0.05, 20, 3, 3.0, 0.3
#: Change of a posterior that is small enough on the way to the effects of levels, in standard deviations.
ON_THE_WAY = 0.01


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
    likelihood: Likelihood
    seen: Moments
    settled: bool
    first: float


def settle(
    problem: Problem,
    hyper: Hyper,
    family: Likelihood,
    *,
    before: Settled | None = None,
    known: Start | None = None,
    stage: Stage,
    keep: Callable[[Start], None] | None = None,
    tolerance: float = SETTLED,
    most: int = MOST_PASSES,
    deadline: float = math.inf,
    **how: Any,
) -> Settled:
    """Go through passes until rows and posterior stay as they are; the dispersion is held.

    Parameters
    ----------
    problem : Problem
    hyper : Hyper
        Where rows are renewed, all of it is held.
    family : Likelihood
    before : Settled, optional
        At other hyperparameters, from which this one begins.
    known : Start, optional
        Where to begin otherwise, at the nodes.
    tolerance : float
        Change of a pass, in posterior standard deviations, that is small enough.
    most : int
        Passes.
    deadline : float
        On `time.perf_counter`: no pass begins that would end after it.
    **how
        Of the fit of each pass: see `geobgp.inference.fit.fit`.
    """
    state = None if before is None else before.fit.states[0]
    moments = None if state is None else moments_less_centre(state, problem.centre)
    if moments is None and known is not None:
        moments = known.mean, known.variance
    at = problem.at(state, moments)
    start = known
    if before is not None:
        start = Start(before.fit.hyper_mean, before.fit.hyper_cov, *at.start)
    elif known is not None:
        start = Start(known.theta, known.covariance, *at.start)
    passes, mixing, bounds, rounds, seconds = 0, Anderson(), list[float](), 0, dict[str, float]()
    began, change = time.perf_counter(), np.inf
    best: tuple[float, Fit, Pass, Likelihood] | None = None
    late = False
    while True:
        likelihood = problem.likelihood(at.size, family)
        captured: list[GeobgpWarning] = []
        with captured_warnings(captured.append):
            if problem.renews:
                how["tolerance"] = min(max(_OF_LAST * change, _EXACT), _COARSE)
                how["max_rounds"] = _ON_THE_WAY if tolerance < change < _NEARLY else MAX_ROUNDS
            result = fit(at.engine, likelihood, hyper, start=start, stage=stage, deadline=deadline, **how)
        passes, rounds = passes + 1, rounds + result.rounds
        seconds = {name: seconds.get(name, 0.0) + spent for name, spent in result.seconds.items()}
        bounds.append(result.elbo)
        new = moments_less_centre(result.states[0], problem.centre)
        if keep is not None:
            keep(Start(result.hyper_mean, result.hyper_cov, *new))
        change = _change(moments, new) if problem.renews else 0.0
        if best is None or (result.converged, -change) > (best[1].converged, -best[0]):
            best = change, result, at, likelihood
        steady = len(bounds) > 2 and float(np.abs(np.diff(bounds[-3:])).max()) < tolerance
        small = change < tolerance * (_WILL_DO if steady and result.converged else 1.0)
        if (small and (result.converged or not problem.renews)) or passes >= most:
            break
        now = time.perf_counter()
        if now + (now - began) / passes > deadline:
            late = True
            break
        moments = new if moments is None else mixing.next(moments, new)
        at = problem.at(result.states[0], moments)
        start = Start(result.hyper_mean, result.hyper_cov, *at.start)
    change, result, at, likelihood = best
    settled = result.converged and change < _WILL_DO * tolerance
    ran_out = (late or result.ran_out) and not settled
    result = replace(result, rounds=rounds, seconds=seconds, ran_out=ran_out)
    return Settled(result, at, likelihood, problem.seen(result.states[0], at), settled, bounds[0])


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
        result, likelihood = fit_at(at, _less_offset(start, at), hyper, "all")
        return (result if at.offset is None else with_offset(result, at.offset)), likelihood
    size = 1 + len(effects.terms)
    tried = _Tried(effects, *((np.zeros(size), np.zeros((size, size))) if known is None else known))
    captured: list[GeobgpWarning] = []
    rounds, seconds = 0, dict[str, float]()

    def run(place: Start | None, hyper: Hyper, purpose: Purpose) -> tuple[Fit, Likelihood]:
        nonlocal rounds
        fitted, likelihood = fit_at(tried.at, _less_offset(place, tried.at), hyper, purpose)
        rounds += fitted.rounds
        for name, spent in fitted.seconds.items():
            seconds[name] = seconds.get(name, 0.0) + spent
        return replace(fitted, rounds=rounds, seconds=dict(seconds)), likelihood

    with captured_warnings(captured.append):
        result, likelihood = run(start, hyper, "best")
        for _ in range(_LEVEL_SEARCHES):
            theta, covariance = result.hyper_mean, result.hyper_cov
            held = replace(hyper, start=theta, lower=theta, upper=theta)
            before = tried
            for _ in range(_LEVEL_PASSES):
                if tried.hold(result):
                    break
                place = _place_of(result, covariance, centre, tried.at)
                tried = tried.next(result)
                result, likelihood = run(place, held, "on the way")
            if tried is before:
                break
            captured.clear()
            result, likelihood = run(_place_of(result, covariance, centre, tried.at), hyper, "best")
        converged = tried.hold(result)
    if more:
        result, likelihood = run(_place_of(result, result.hyper_cov, centre, tried.at), hyper, "all")
    else:
        for warning in captured:
            warn(warning)
    if not converged:
        message = "effects of levels that share nodes still change"
        warn(ConvergenceWarning(f"The fit did not converge: {message}.", option="covariates"))
        result = replace(result, converged=False, message=message)
    return with_offset(result, tried.at.offset), likelihood


def effects_alone(effects: Effects, counts: np.ndarray, exposure: np.ndarray | sparse.csr_array) -> Moments | None:
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
        mean[1 + self._levels] = self.effects.scales[self._levels] * (sizes - 0.5 * self._own(mean, covariance)[1])
        return _Tried(self.effects, mean, covariance, slope, (self._sizes, lack))


# -- Profile: the bound at rows that have settled, as a function of the hyperparameters, and where it is highest --
# At rows that are held, the bound's slope in θ lacks what θ does through the rows. That matters over many periods: a
# wide
# field that never changes, seen through rows that differ from period to period, imitates every change. So the bound
# is
# climbed where rows have settled. The pull of the rows, which the slope at held rows lacks, is measured by
# differences;
# it varies slowly, so that it is measured at few places.


#: Nats that a step must promise to be taken; change of rows that is small enough on the way, and passes for it.
MIN_GAIN, LOOSE_TOLERANCE, _LOOSE_PASSES = 0.1, 0.03, 12
#: The pull of the rows is measured over half a standard deviation of θ, within these bounds.
_STEPS = 0.15, 0.6
#: How often it is measured at the most, and steps that are taken with each.
_PULLS, _TRIES = 6, 8
#: Shares of a step that are tried, and nats that rows not fully settled may cost or feign.
_SHARES, _NOISE = (1.0, 0.4, 0.1), 0.05
#: The least curvature that is believed: differences of rows not fully settled are worth no less.
_FLATTEST = 0.3
#: How often the standard deviation is halved where rows do not settle.
_ATTEMPTS = 6
#: Places that are remembered.
_KEPT = 4
#: Shares of the time: of land all alike, to begin with; and of counts without a dispersion, where one is learned.
_FIRST, _WITHOUT = 0.3, 0.4
#: Nats that a step must promise where what it leads to is only where another search begins.
ON_APPROACH = 1.0
#: The same, where a dispersion is sought from there on, whose gain is told.
_NEAR_ENOUGH = 0.3
_NOT_LEARNED = f"{RAN_OUT} before the hyperparameters were learned"


@dataclass(frozen=True, eq=False)
class Best:
    """Where the bound is highest.

    Attributes
    ----------
    found : Settled
    family : Likelihood
        With its dispersion.
    held_at : float or None
        Standard deviation beyond which rows no longer settle, if that has ended the search.
    """

    found: Settled
    family: Likelihood
    held_at: float | None = None


@dataclass(frozen=True, eq=False)
class _Place:
    """Settled rows at x, and the bound there with the prior of the hyperparameters."""

    x: np.ndarray
    settled: Settled = field(repr=False)
    score: float


class Profile:
    """The bound at settled rows.

    Parameters
    ----------
    problem : Problem
        One whose rows are renewed.
    hyper : Hyper
    stage : Stage
    keep : callable, optional
        Given a place from which such a search could go on, after every pass.
    deadline : float
        On `time.perf_counter`: by then the search ends with the best that it has.
    min_gain : float
        Nats that a step must promise; where it is more than `MIN_GAIN` rows settle loosely, to the end.
    """

    def __init__(
        self,
        problem: Problem,
        hyper: Hyper,
        stage: Stage,
        keep: Callable[[Start], None] | None = None,
        deadline: float = math.inf,
        min_gain: float = MIN_GAIN,
    ) -> None:
        self._deadline, self._min_gain = deadline, min_gain
        self.problem, self.hyper, self.stage, self._keep = problem, hyper, stage, keep
        self._lower, self._upper = hyper.lower, hyper.upper
        self._sized = False
        self._covariance = np.zeros((len(hyper.start),) * 2)
        self._places: list[_Place] = []
        #: The lowest standard deviation at which rows were seen not to settle.
        self._too_wide = math.inf
        self._rounds, self._settlings, self._seconds = 0, 0, dict[str, float]()

    def search(self, start: Start | None = None) -> Best:
        """Return where the bound without a dispersion is highest, from a place to start at if there is one."""
        error: DataError | None = None
        unsettled: Settled | None = None
        theta, curvature = self._first(start)
        for _ in range(_ATTEMPTS):
            try:
                result = self._settle(theta, None, start, final=self._exact)
            except DataError as failed:
                if failed.option != "scaling":
                    raise
                error = error or failed
            else:
                if result.settled:
                    return self._climb(self._place(theta, result), curvature)
                unsettled = unsettled or result
                if result.fit.ran_out:
                    break
            if start is not None:  # rows from elsewhere may lead astray
                start = None
                theta, curvature = self._first(None)
                continue
            if not self.hyper.free[1]:
                break
            self._too_wide = min(self._too_wide, float(np.exp(theta[1])))
            theta = theta.copy()
            theta[1] = max(theta[1] - math.log(2.0), self._lower[1])
        if unsettled is None:
            assert error is not None
            raise error
        if unsettled.fit.ran_out:
            unsettled = replace(unsettled, fit=replace(unsettled.fit, converged=False, message=_NOT_LEARNED))
        return Best(unsettled, self.problem.family.limit())

    @property
    def _exact(self) -> bool:
        return self._min_gain <= MIN_GAIN

    def with_size(self, plain: Best, log_k: float) -> Best:
        """Return where the bound is highest with a dispersion that is learned, from the best without and a size."""
        out = Profile(self.problem, self.hyper, self.stage, self._keep, self._deadline, self._min_gain)
        out._sized = True
        out._lower = np.append(self._lower, math.log(SMALLEST_K))
        out._upper = np.append(self._upper, math.log(LARGEST_K))
        x = np.append(plain.found.fit.hyper_mean, log_k)
        curvature, size = -np.eye(len(x)), len(plain.found.fit.hyper_mean)
        known = Start(plain.found.fit.hyper_mean, plain.found.fit.hyper_cov, *plain.found.seen)
        inner = known.curvature(self.hyper.free)
        if inner is not None:
            curvature[:size, :size] = inner
        found = out._settle(x, plain.found)
        if not found.settled:
            return Best(found, out._family(x))
        return out._climb(out._place(x, found), curvature)

    # -- places

    def _family(self, x: np.ndarray) -> Likelihood:
        family = self.problem.family
        return family.with_dispersion(math.exp(x[-1])) if self._sized else family.limit()

    def _theta(self, x: np.ndarray) -> np.ndarray:
        return x[:-1] if self._sized else x

    def _first(self, start: Start | None) -> tuple[np.ndarray, np.ndarray | None]:
        """Return θ to begin with and the curvature there: what areas say whose land is all alike."""
        hyper = self.hyper
        if start is not None:
            theta = np.clip(start.theta, hyper.lower, hyper.upper)
            known = start.curvature(hyper.free)
            if known is not None or not hyper.free.any():
                return theta, known
        at = self.problem.at(None, None)
        captured: list[GeobgpWarning] = []
        with captured_warnings(captured.append):
            likelihood = self.problem.likelihood(at.size, self.problem.family.limit())
            first = fit(at.engine, likelihood, hyper, stage=self.stage, deadline=self.share_of_time(_FIRST))
        covariance = first.hyper_cov
        known = Start(first.hyper_mean, covariance, *at.start).curvature(hyper.free)
        return first.hyper_mean if start is None else theta, known

    def _settle(
        self, x: np.ndarray, before: Settled | None, known: Start | None = None, *, final: bool = False
    ) -> Settled:
        theta = self._theta(x)
        held = dataclasses.replace(self.hyper, start=theta, lower=theta, upper=theta)
        result = settle(
            self.problem, held, self._family(x), before=before, known=known, stage=self.stage, keep=self._offer,
            tolerance=SETTLED if final else LOOSE_TOLERANCE,
            deadline=self._deadline,
        )  # fmt: skip
        self._rounds += result.fit.rounds
        self._settlings += 1
        for name, spent in result.fit.seconds.items():
            self._seconds[name] = self._seconds.get(name, 0.0) + spent
        return result

    def _offer(self, at: Start) -> None:
        """Hand on where a pass has ended, with what is known of θ."""
        if self._keep is not None:
            self._keep(dataclasses.replace(at, covariance=self._covariance))

    def _place(self, x: np.ndarray, found: Settled) -> _Place:
        place = _Place(x, found, found.fit.elbo + self.hyper.log_prior(self._theta(x))[0])
        self._places = [*self._places, place][-_KEPT:]
        return place

    def _at(self, x: np.ndarray, near: _Place) -> _Place | None:
        """Return the place at x, None if rows do not settle there."""
        for place in self._places:
            if np.array_equal(place.x, x):
                return place
        try:
            result = self._settle(x, near.settled)
        except DataError as failed:
            if failed.option != "scaling":
                raise
            result = None
        if result is not None and not result.settled and result.fit.ran_out:
            return None
        if result is None or not result.settled:
            self._too_wide = min(self._too_wide, float(np.exp(x[1])))
            return None
        return self._place(x, result)

    # -- the climb

    def _climb(self, place: _Place, curvature: np.ndarray | None) -> Best:
        free = self._upper > self._lower
        if curvature is None:
            curvature = -4.0 * np.eye(len(place.x))
        self._know(curvature)
        ended = not free.any()
        for _ in range(0 if ended else _PULLS):
            if self._late():
                break
            pull, curvature = self._pull(place, curvature)
            if self._late():
                break
            slope = self._slope(place) + pull
            predicted_gain = self._promise(place.x, slope, curvature)
            said = ", ".join(number(v) for v in np.exp(place.x))
            self.stage.tell(f"settled at {said}: ELBO {place.settled.fit.elbo:,.2f}, promised {predicted_gain:.2g}")
            self._too_wide = math.inf
            reached, curvature = self._steps(place, slope, pull, curvature)
            self._know(curvature)
            # Where a fresh pull promises nothing, or steps by it gain nothing, there is nothing more to gain;
            # unless rows do not settle where it leads.
            little = reached.score < place.score + self._min_gain
            ended = predicted_gain < self._min_gain or (little and (reached is not place or math.isinf(self._too_wide)))
            place = reached
            if ended or little:
                break
        return self._best(place, curvature, ended)

    def _steps(
        self, place: _Place, slope: np.ndarray, pull: np.ndarray, curvature: np.ndarray
    ) -> tuple[_Place, np.ndarray]:
        """Return where quasi-Newton steps lead while the pull of the rows is held, and the curvature there."""
        for _ in range(_TRIES):
            free = self._movable(place.x, slope)
            if self._promise(place.x, slope, curvature) < self._min_gain or self._late():
                break
            step = np.zeros_like(place.x)
            step[free] = newton_step(slope[free], curvature[np.ix_(free, free)])
            for share in _SHARES:
                x = np.clip(place.x + share * step, self._lower, self._upper)
                trial = self._at(x, place)
                if trial is None and self._late():
                    break
                if trial is None:
                    continue
                new = self._slope(trial) + pull
                curvature = bfgs(curvature, trial.x - place.x, new - slope, free)
                if trial.score > place.score - _NOISE:
                    break
            else:
                break
            if trial is None or trial.score < place.score + _NOISE:
                place = trial if trial is not None and trial.score > place.score else place
                break
            place, slope = trial, new
        return place, curvature

    def _late(self) -> bool:
        """Tell whether time is up for another place, and for the final passes."""
        spent = self._seconds.get("total", 0.0) / max(self._settlings, 1)
        return time.perf_counter() + 2.0 * spent > self._deadline

    def share_of_time(self, share: float) -> float:
        """Return when so much of the time that is left will have gone by."""
        now = time.perf_counter()
        return now + share * max(self._deadline - now, 0.0)

    def _know(self, curvature: np.ndarray) -> None:
        """Keep the covariance of θ that a curvature of the bound tells of."""
        free = self.hyper.free
        size = len(free)
        if free.any():
            values, vectors = np.linalg.eigh(negative(curvature[:size, :size][np.ix_(free, free)]))
            # Directions in which the data say nothing are held at a standard deviation of 3 (a factor of 20).
            inner = (vectors / np.maximum(-values, 1.0 / 9.0)) @ vectors.T
            self._covariance = np.zeros((size, size))
            self._covariance[np.ix_(free, free)] = inner

    def _best(self, place: _Place, curvature: np.ndarray, ended: bool) -> Best:
        late = not ended and self._late()
        result = place.settled
        if self._exact and time.perf_counter() < self._deadline:
            result = self._settle(place.x, place.settled, final=True)
        self._know(curvature)
        held_at = None if ended or late or not math.isfinite(self._too_wide) else float(np.exp(place.x[1]))
        fitted, message = result.fit, result.fit.message
        converged = fitted.converged and (ended or held_at is not None)
        ran_out = fitted.ran_out
        if fitted.converged and not converged:
            message, ran_out = f"the hyperparameters still rise after {_PULLS} searches", late
            if ran_out:
                message = _NOT_LEARNED
        fitted = dataclasses.replace(
            fitted, hyper_cov=self._covariance, converged=converged, message=message, ran_out=ran_out,
            rounds=self._rounds, seconds=self._seconds,
        )  # fmt: skip
        settled = dataclasses.replace(result, fit=fitted, settled=result.settled and converged)
        return Best(settled, self._family(place.x), held_at)

    def _slope(self, place: _Place) -> np.ndarray:
        """Return the slope of the bound and the prior at held rows."""
        settled, theta = place.settled, self._theta(place.x)
        solver = Solver(settled.last.engine, settled.likelihood, self.hyper, None)
        slope = solver.penalised(theta, solver.sites_at(*settled.seen))[1]
        return np.append(slope, settled.likelihood.by_log_dispersion(*settled.seen)) if self._sized else slope

    def _pull(self, place: _Place, curvature: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return what the slope at held rows lacks, and the curvature, both by differences.

        The pull is how the bound changes as rows settle anew; the curvature how the slope does, where it is known
        already in a direction in which rows do not settle.
        """
        out, slope, bent = np.zeros(len(place.x)), self._slope(place), curvature.copy()
        sds = 0.5 * np.sqrt(np.append(np.diag(self._covariance), 0.0))
        free = self._upper > self._lower
        for i in np.flatnonzero(free):
            size = float(np.clip(sds[min(i, len(sds) - 1)], *_STEPS))
            for step in (size, -size):
                if self._late():
                    break
                x = place.x.copy()
                x[i] += step
                if self._lower[i] <= x[i] <= self._upper[i]:
                    self.stage.tell(f"pull of the areas, parameter {i + 1} of {len(out)}")
                    there = self._at(x, place)
                    if there is not None:
                        out[i] = (there.settled.fit.elbo - there.settled.first) / step
                        bent[i] = np.where(free, (self._slope(there) - slope) / step, 0.0)
                        break
        values, vectors = np.linalg.eigh(0.5 * (bent + bent.T))
        return out, -(vectors * np.maximum(np.abs(values), _FLATTEST)) @ vectors.T

    def _movable(self, x: np.ndarray, slope: np.ndarray) -> np.ndarray:
        """Return what can move: is not fixed, and not held by a bound."""
        low, high = self._lower, self._upper
        return (high > low) & ~((x <= low) & (slope < 0)) & ~((x >= high) & (slope > 0))

    def _promise(self, x: np.ndarray, slope: np.ndarray, curvature: np.ndarray) -> float:
        """Return the nats that a step would gain."""
        free = self._movable(x, slope)
        if not free.any():
            return 0.0
        step = newton_step(slope[free], curvature[np.ix_(free, free)], np.inf)
        return 0.5 * float(step @ slope[free])


# -- Fits of counts: at nodes or by area, Poisson or negative binomial, at the best hyperparameters or mixed over the --
# The dispersion of a family (k) is where the bound, maximised over all else, no longer rises: its slope is that of the
# expected log-likelihood at the posterior.


#: Precision to which log k is found.
_NEAR = 0.05
#: What fits a problem whose columns are held.
Solve = Callable[..., tuple[Fit, Likelihood]]
#: Is given a place from which a fit could go on.
Keep = Callable[[Start], None] | None


def fit_family(
    problem: Problem,
    hyper: Hyper,
    *,
    integrate: bool = False,
    start: Start | None = None,
    stage: Stage | None = None,
    keep: Keep = None,
    deadline: float = math.inf,
    measure: bool = False,
    client: Any = None,
    best: Likelihood | None = None,
    **how: Any,
) -> tuple[Fit, Likelihood]:
    """Fit a problem with the dispersion of its family; return the fit, and the family.

    Parameters
    ----------
    problem : Problem
    hyper : Hyper
    integrate : bool
        Mix posteriors over hyperparameters; the dispersion is that of the best ones, rows are each one's own.
    start : Start, optional
        Where to begin, at the nodes.
    stage : Stage, optional
    keep : callable, optional
        Given a place from which such a fit could go on, after every pass.
    deadline : float
        On `time.perf_counter`: what is found by then is taken.
    best : Likelihood, optional
        The family with its dispersion, where these and θ of `start` are the best that there are: only the mixture over
        hyperparameters is made.
    measure, client, **how
        As for `geobgp.inference.fit.fit`, of a fit without rows that are renewed.
    """
    stage, family = stage or Stage(), problem.family
    learns = family.limit() is not family
    if not (learns or problem.renews):
        at = problem.at(None, None if start is None else (start.mean, start.variance))
        found = fit(
            at.engine, problem.likelihood(at.size, family), hyper, integrate=integrate, start=start, stage=stage,
            keep=keep, deadline=deadline, measure=measure, client=client, **how,
        )  # fmt: skip
        return found, family
    if problem.renews:
        if best is not None:
            assert start is not None, "where the best is"
            held = hyper.held(start.theta, hyper.names)
            mode, gain = Best(settle(problem, held, best, known=start, stage=stage, deadline=deadline), best), None
        else:
            min_gain = how.get("min_gain", MIN_GAIN)
            mode, gain = _of_areas(problem, hyper, learns, start, stage, keep, deadline, min_gain)
    else:
        plain = settle(problem, hyper, family.limit(), known=start, stage=stage, keep=keep, deadline=deadline)
        mode = _learn_dispersion(problem, hyper, plain, stage, keep, deadline)
        gain = mode.found.fit.elbo - plain.fit.elbo
    if mode.family.dispersion is not None and learns:
        family = mode.family if gain is None else family.without_data(mode.family.facts() | {"gain": gain})
    else:
        family = family.limit()
    settled, result = mode.found, mode.found.fit
    if integrate and hyper.free.any():
        if problem.renews:
            covariance = result.hyper_cov if best is None or start is None else start.covariance
            result = _renewed_mixture(problem, hyper, mode, covariance, stage, deadline)
        else:
            again = Start(result.hyper_mean, result.hyper_cov, *settled.seen)
            result = fit(
                settled.last.engine, settled.likelihood, hyper, integrate=True, start=again, stage=stage, client=client
            )
    if not settled.settled:
        message = f"areas still change after {MOST_PASSES} passes"
        if result.ran_out:
            message = f"{RAN_OUT} while areas still changed"
        message = message if result.converged else result.message
        result = dataclasses.replace(result, converged=False, message=message)
        warn(ConvergenceWarning(f"The fit did not converge: {message}.", remedy=problem.remedy))
    elif mode.held_at is not None:
        warn(
            ConvergenceWarning(
                f"The standard deviation of the log-intensity was held at {number(mode.held_at, 3)}: with more, "
                "what is expected of the areas does not settle. Rates of areas differ more than a map can follow.",
                found=mode.held_at,
                remedy=f"Look for areas with many events on little land, or give {option('exposure')}.",
            )
        )
    return result, family


def _of_areas(
    problem: Problem,
    hyper: Hyper,
    learns: bool,
    start: Start | None,
    stage: Stage,
    keep: Keep,
    deadline: float,
    min_gain: float,
) -> tuple[Best, float]:
    """Return the best fit of rows that are renewed, and what a dispersion gains."""
    profile = Profile(problem, hyper, stage, keep, deadline, min_gain)
    if not learns:
        return profile.search(start), 0.0
    approach = Profile(problem, hyper, stage, keep, profile.share_of_time(_WITHOUT), max(min_gain, _NEAR_ENOUGH))
    plain = approach.search(start)
    if not (plain.found.settled or plain.found.fit.ran_out):
        return plain, 0.0
    best = profile.with_size(plain, _likely_size(problem, plain.found))
    return best, best.found.fit.elbo - plain.found.fit.elbo


def _renewed_mixture(
    problem: Problem, hyper: Hyper, best: Best, covariance: np.ndarray, stage: Stage, deadline: float
) -> Fit:
    """Return a mixture over hyperparameters in which every posterior has rows of its own; the best where time is up."""
    mode = best.found.fit
    grid = hyper_grid(mode.hyper_mean, covariance, hyper)
    found, began = [best.found], time.perf_counter()
    for number_, at in enumerate(grid[1:], start=1):
        held = dataclasses.replace(hyper, start=at.theta, lower=at.theta, upper=at.theta)
        found.append(settle(problem, held, best.family, before=best.found, stage=stage, deadline=deadline))
        now = time.perf_counter()
        if number_ + 1 < len(grid) and now + (now - began) / number_ > deadline:
            message = f"{RAN_OUT} before the hyperparameters were integrated"
            warn(
                ConvergenceWarning(
                    f"The best hyperparameters are taken: {message}.", remedy=f"Raise {option('max_seconds')}."
                )
            )
            return mode
    scores = [one.fit.elbo + hyper.log_prior(at.theta)[0] for at, one in zip(grid, found, strict=True)]
    weights = grid_weights(grid, scores)
    states: list[Any] = [one.fit.states[0] for one in found]
    mixture = tuple(dataclasses.replace(state, weight=float(w)) for state, w in zip(states, weights, strict=True))
    return dataclasses.replace(mode, states=mixture)


def _likely_size(problem: Problem, plain: Settled) -> float:
    """Return log k at which the observations are most likely, given the posterior without a dispersion."""

    def loss(log_k: float) -> float:
        family = problem.family.with_dispersion(math.exp(log_k))
        return -float(problem.likelihood(plain.last.size, family).expected(*plain.seen).value.sum())

    bounds = math.log(SMALLEST_K), math.log(LARGEST_K)
    return float(minimize_scalar(loss, bounds=bounds, method="bounded").x)


def _learn_dispersion(
    problem: Problem, hyper: Hyper, plain: Settled, stage: Stage, keep: Keep, deadline: float
) -> Best:
    """Return the fit with the dispersion at which the bound is highest."""
    settled: dict[float, Settled] = {}
    latest = plain

    def family(log_k: float) -> Likelihood:
        return problem.family.with_dispersion(math.exp(log_k))

    @cache  # the ends of the bracket are asked for again
    def slope(log_k: float) -> float:
        nonlocal latest
        if settled and time.perf_counter() > deadline:
            raise _LateError
        latest = settled[log_k] = settle(
            problem, hyper, family(log_k), before=latest, stage=stage, keep=keep, deadline=deadline
        )
        return latest.likelihood.by_log_dispersion(*latest.seen)

    low, high = math.log(SMALLEST_K), math.log(LARGEST_K)
    with suppress(_LateError):
        there = _bracket(slope, _likely_size(problem, plain), low, high)
        if there is not None:
            brentq(slope, *there, xtol=_NEAR, rtol=1e-3, maxiter=12, disp=False)
    log_k = max(settled, key=lambda at: settled[at].fit.elbo)
    return Best(settled[log_k], family(log_k))


class _LateError(Exception):
    """Time is up."""


def _bracket(slope: Callable[[float], float], here: float, low: float, high: float) -> tuple[float, float] | None:
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


# -- From a problem to a posterior: within the limits of the basis, columns of levels relinearised --------------------


def fit_problem(
    problem: Problem,
    parameters: Hyper,
    basis: Basis,
    effects: Effects,
    *,
    hyper: str = "map",
    progress: ProgressLike = False,
    start: Start | None = None,
    known: Moments | None = None,
    solve: Solve = fit_family,
    full: bool = True,
    **how: Any,
) -> tuple[Fit, Likelihood]:
    """Fit a problem with hyperparameters that the basis can hold, and warn where it is too narrow.

    Parameters
    ----------
    problem : Problem
    parameters : Hyper
    basis : Basis
    effects : Effects
        Whose columns are renewed where levels share nodes.
    hyper : "map" or "integrate"
    progress : bool, Progress, Stage or callable
    start : Start, optional
        Where to begin, with moments at the nodes.
    known : (1 + k,) and (1 + k, 1 + k) arrays, optional
        Mean and covariance of the effects to begin with, where levels share nodes.
    solve : callable
        What fits a problem whose columns are held; see `fit_family`.
    full : bool
        Whether full resolution could fit the same observations.
    **how
        Of the last fit: `measure`, `client`.

    Returns
    -------
    Fit, and the family with its dispersion
    """
    if hyper not in ("map", "integrate"):
        raise DataError(f"hyper is 'map' or 'integrate'; found {hyper!r}.")
    parameters, family = _capped(parameters, basis), problem.family
    last = how | {"integrate": hyper == "integrate"}
    if known is None and effects.mixes:
        known = effects_alone(effects, *problem.pooled)
    with as_progress(progress).stage("fit") as stage:

        def fit_at(at: Linearised, start: Start | None, parameters: Hyper, purpose: Purpose) -> tuple[Fit, Likelihood]:
            one: Any = problem.about(at)
            more = last if purpose == "all" else {"tolerance": ON_THE_WAY} if purpose == "on the way" else {}
            if purpose != "all":
                one = replace(one, family=family.limit())
            return solve(one, parameters, start=start, stage=stage, **more)

        more = family.limit() is not family or last["integrate"] or bool(how.get("measure"))
        result, family = fit_levels(fit_at, effects, parameters, start, problem.centre, known=known, more=more)
        stage.note(f"ELBO {result.elbo:,.1f}")
    if result.truncated_variance > MAX_TRUNCATED_VARIANCE:
        or_full = f", or {option('m', 'full', python='FullRank')}" if full else ""
        missed = percent(result.truncated_variance, 1)
        lengthscale = _length(np.exp(result.hyper_mean[0]), basis)
        warn(
            MissedVarianceWarning(
                f"The {basis.label} miss {missed} of the prior variance at the lengthscale of {lengthscale}: "
                "the map is smoother than the data ask for.",
                option="m",
                found=result.truncated_variance,
                remedy=f"Use more features ({option('m')}){or_full}.",
            )
        )
    return result, family


def _capped(parameters: Hyper, basis: Basis) -> Hyper:
    """Return the hyperparameters within what the basis can hold."""
    longest, given = basis.longest_lengthscale(parameters.kernel), parameters.kernel.lengthscale
    if given is not None and given > longest:
        warn(
            ConvergenceWarning(
                f"A lengthscale of {_length(given, basis)} is more than {basis.label} can hold at this cell "
                f"size; {_length(longest, basis)} was used.",
                found=given,
                remedy="Use a HarmonicBasis, or larger cells.",
            )
        )
    return parameters.capped(longest)


def _length(value: float, basis: Basis) -> str:
    scale, unit = basis.domain.length_unit
    return f"{number(value / scale, 3)} {unit}"


# -- Fixed effects by themselves: the posterior of a model without a field, and the bound of its log evidence --


#: Rounds, passes of rows that change with the effects, and the change of the bound, in nats, that ends them.
_ROUNDS, _EFFECT_PASSES, _EFFECT_TOLERANCE = 200, 20, 1e-6


@dataclass(frozen=True, eq=False)
class EffectsFit:
    """A Gaussian posterior of fixed effects.

    Attributes
    ----------
    mean, covariance : (k,) and (k, k) arrays
    bound : float
        The variational bound of the log evidence, as a fit with a field has it.
    log_p : (n,) array
        Log probability of each observation at the mean.
    """

    mean: np.ndarray
    covariance: np.ndarray
    bound: float
    log_p: np.ndarray


def fit_effects(likelihood: Likelihood, design: np.ndarray, prior_sd: np.ndarray) -> EffectsFit:
    """Fit fixed effects with independent normal priors, and nothing else.

    Parameters
    ----------
    likelihood : Likelihood
    design : (n, k) array
        What each observation sees of the effects.
    prior_sd : (k,) array

    Examples
    --------
    >>> from geobgp.inference.families import Gaussian
    >>> found = fit_effects(Gaussian(np.array([1.0, 3.0])), np.ones((2, 1)), np.array([1.0]))
    >>> round(float(found.mean[0]), 4), round(float(found.covariance[0, 0]), 4)
    (1.3333, 0.3333)
    """
    prior = prior_sd**-2.0
    k = design.shape[1]

    def at(precision: np.ndarray, natural: np.ndarray) -> tuple[float, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return the bound, mean, covariance, and the precision and natural mean that these ask for."""
        covariance = np.linalg.inv(precision)
        mean = covariance @ natural
        seen, variance = design @ mean, np.einsum("ij,ij->i", design @ covariance, design)
        with np.errstate(over="ignore", invalid="ignore"):
            expected = likelihood.expected(seen, variance)
            weight, pull = sites(expected, seen)
            bound = float(expected.value.sum()) - 0.5 * float(
                prior @ np.diag(covariance) + mean @ (prior * mean) - k
                + np.linalg.slogdet(precision)[1] - np.log(prior).sum()
            )  # fmt: skip
            asked = np.diag(prior) + design.T @ (weight[:, None] * design), design.T @ pull
        return bound, mean, covariance, *asked

    # From effects of zero that are nearly sure: rates are finite there, and every share of a step can be judged.
    nothing = np.zeros(len(design))
    weight = sites(likelihood.expected(nothing, nothing), nothing)[0]
    here = 100.0 * (np.diag(prior) + design.T @ (weight[:, None] * design)), np.zeros(k)
    best, share = at(*here), 1.0
    for _ in range(_ROUNDS):
        there = tuple((1.0 - share) * old + share * new for old, new in zip(here, best[3:], strict=True))
        new = at(*there)
        gain = new[0] - best[0]
        if gain > 0:
            if share == 1.0 and gain < _EFFECT_TOLERANCE:
                break
            here, best, share = (there[0], there[1]), new, min(1.0, 2.0 * share)
        elif share < 1e-6 or (share == 1.0 and gain > -_EFFECT_TOLERANCE):
            break
        else:
            share *= 0.25
    bound, mean, covariance = best[:3]
    return EffectsFit(mean, covariance, bound, likelihood.expected(design @ mean, np.zeros(len(design))).value)


def fit_area_effects(
    likelihood: Callable[[np.ndarray], Likelihood],
    observed: Observed,
    columns: np.ndarray,
    prior_sd: np.ndarray,
    centre: float,
) -> EffectsFit:
    """Fit fixed effects to counts that are sums over nodes; the rows follow from the effects, pass by pass.

    Parameters
    ----------
    likelihood : callable
        From exposures about the rows to the likelihood of the counts.
    observed : Observed
    columns : (n_nodes, k) array
        The effects at the nodes.
    prior_sd : (k,) array
    centre : float
        Constant added to every linear predictor.
    """
    mean, covariance, found = np.zeros(columns.shape[1]), np.zeros((columns.shape[1],) * 2), None
    for _ in range(_EFFECT_PASSES):
        at_nodes = columns @ mean
        variance = np.einsum("ij,ij->i", columns @ covariance, columns)
        rows, log_total = row_weights(observed.exposure, at_nodes, variance)
        design = rows @ columns
        spread = np.einsum("ij,ij->i", design @ covariance, design)
        exposure = row_exposures(log_total, rows @ at_nodes, spread, observed.counts, centre)
        assert exposure is not None, "effects without a field expect no such numbers"
        before, found = found, fit_effects(likelihood(exposure), design, prior_sd)
        mean, covariance = found.mean, found.covariance
        if before is not None and abs(found.bound - before.bound) < 1e3 * _EFFECT_TOLERANCE:
            break
    assert found is not None
    return found


def best_dispersion(fit: Callable[[Likelihood], EffectsFit], family: Likelihood) -> EffectsFit:
    """Return the fit with the dispersion of a family at which its bound is highest, if it has one to be learned."""
    if family.limit() is family:
        return fit(family)
    optimum = minimize_scalar(
        lambda log_k: -fit(family.with_dispersion(math.exp(log_k))).bound,
        bounds=(math.log(SMALLEST_K), math.log(LARGEST_K)),
        method="bounded",
        options={"xatol": 0.05},
    )
    return fit(family.with_dispersion(math.exp(optimum.x)))
