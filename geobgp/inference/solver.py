"""The variational loop: sites and posteriors in turn at given hyperparameters, and the search for these around it.

The posterior of f is a Gaussian whose precision is the prior's plus one Gaussian *site* per observation. At given
hyperparameters θ a round takes the sites that the posterior asks for (or rather those at which it would no longer
change, by a Newton step) and solves for the new posterior; a round that would lower the bound is taken again with a
smaller share of the new sites. θ is an outer problem on the bound so maximised: at the posterior's optimum the
gradient of the site objective is the bound's own, and a quasi-Newton search needs few values of θ.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from geobgp.inference.engine import Engine, Moments, Sites
from geobgp.inference.families import Gaussian, Likelihood, sites
from geobgp.inference.hyper import Derivatives, Hyper, bfgs, differences, maximise, negative, newton_step
from geobgp.progress import Stage
from geobgp.text import count, number

#: Rounds after which the solver gives up and says so.
MAX_ROUNDS = 200
#: A posterior is settled when means and variances change by less than this, in posterior standard deviations and
#: relatively: on the way to the hyperparameters, at the ones that are learned, and where they are all given.
ROUGH, TOLERANCE, TIGHT = 0.03, 1e-3, 1e-7
#: Nats that a step of the hyperparameters must promise to be taken.
MIN_GAIN = 0.01
#: Loss, in nats, that a Newton step may pass through on its way.
_DETOUR = 1e-2
#: Rounding of the bound, relative to its size.
_ROUNDING = 1e-12
#: What is said of what the clock has ended.
RAN_OUT = "time ran out"
#: Rounds for which there must be time to begin a step of the hyperparameters: its own, and those that settle the
#: posterior in the end.
_STEP_ROUNDS = 6.0

#: Means and variances at the observations.
Guess = tuple[np.ndarray, np.ndarray]


@dataclass(eq=False)
class Point:
    """Where the solver is: a posterior at some hyperparameters."""

    theta: np.ndarray
    sites: Sites
    moments: Moments
    score: float
    elbo: float
    #: Moments whose sites gave this posterior.
    guess: Guess
    #: Share of a Newton step that led here.
    share: float = 1.0
    #: Tolerance to which it was seen to be settled.
    settled: float = np.inf

    @property
    def found(self) -> Guess:
        """Means and variances at the observations."""
        return self.moments.mean, self.moments.variance


@dataclass(frozen=True, eq=False)
class Start:
    """Where a fit may begin: what one like it, on other cells, has found.

    Attributes
    ----------
    theta : array
        Hyperparameters.
    covariance : array
        Theirs, zero where they were fixed.
    mean, variance : arrays
        Of the linear predictor (less its centre) at the observations; zeros where they are not known.
    """

    theta: np.ndarray
    covariance: np.ndarray
    mean: np.ndarray
    variance: np.ndarray

    def curvature(self, free: np.ndarray) -> np.ndarray | None:
        """Return the Hessian of the maximised bound in θ, None if that of a free parameter is not known."""
        if not np.all(np.diag(self.covariance)[free] > 0):
            return None
        out = -np.eye(len(free))
        out[np.ix_(free, free)] = -np.linalg.inv(self.covariance[np.ix_(free, free)])
        return out


@dataclass(frozen=True)
class Outcome:
    """How a climb ended."""

    point: Point
    converged: bool
    message: str


class Solver:
    """The loop, for one engine and one likelihood."""

    def __init__(
        self,
        engine: Engine,
        likelihood: Likelihood,
        hyper: Hyper,
        stage: Stage | None,
        keep: Callable[[Start], None] | None = None,
        deadline: float = np.inf,
    ) -> None:
        self.engine, self.likelihood, self.hyper, self.stage = engine, likelihood, hyper, stage
        #: On `time.perf_counter`: when it is to end with the best that it has by then; and whether it did.
        self.deadline, self.ran_out = deadline, False
        engine.noise_at, engine.learned = hyper.noise_at, hyper.learned
        self._keep = keep
        self.trace: list[float] = []
        self.conjugate = isinstance(likelihood, Gaussian)
        #: Hessian of the maximised bound in θ, as far as it is known.
        self.curvature: np.ndarray | None = None
        self.spent = {"posterior": 0.0, "ahead": 0.0, "gradient": 0.0}
        self.rounds = 0

    def late(self, rounds: float) -> bool:
        """Tell whether so many rounds more would end after the deadline, and remember that they would."""
        each = sum(self.spent.values()) / max(self.rounds, 1)
        late = time.perf_counter() + rounds * each > self.deadline
        self.ran_out |= late
        return late

    @property
    def _noise_at(self) -> int:
        at = self.hyper.noise_at
        assert at is not None, "a Gaussian likelihood has noise"
        return at

    def _timed(self, stage: str, call: Callable[[], Any]) -> Any:
        begin = time.perf_counter()
        out = call()
        self.spent[stage] += time.perf_counter() - begin
        return out

    def _likelihood(self, theta: np.ndarray) -> Likelihood:
        if isinstance(self.likelihood, Gaussian):
            return self.likelihood.with_dispersion(float(np.exp(theta[self._noise_at])))
        return self.likelihood

    def penalised(self, theta: np.ndarray, at: Sites) -> Derivatives:
        """Return the site objective plus the log prior of θ, and its gradient."""
        value, gradient, _ = self._timed("gradient", lambda: self.engine.objective(theta, at))
        prior, first_prior, _ = self.hyper.log_prior(theta)
        value, gradient = value + prior, gradient + first_prior
        if isinstance(self.likelihood, Gaussian):
            constant, first, _ = self.likelihood.constant(float(theta[self._noise_at]))
            value += constant
            gradient[self._noise_at] += first
        return value, gradient, None

    def at(self, theta: np.ndarray, with_sites: Sites, guess: Guess) -> Point:
        """Return the posterior and the bound for given hyperparameters and sites."""
        moments = self._timed("posterior", lambda: self.engine.posterior(theta, with_sites))
        expected = self._likelihood(theta).expected(moments.mean, moments.variance)
        with np.errstate(over="ignore"):  # a step far too long
            elbo = float(expected.value.sum()) - moments.divergence
        if not np.isfinite(elbo):
            elbo = -np.inf
        return Point(theta, with_sites, moments, elbo + self.hyper.log_prior(theta)[0], elbo, guess)

    def tried(self, theta: np.ndarray, with_sites: Sites, guess: Guess) -> Point | None:
        """Return `at`, None where precisions are too large to be told from infinite."""
        try:
            return self.at(theta, with_sites, guess)
        except np.linalg.LinAlgError:
            return None

    def sites_at(self, mean: np.ndarray, variance: np.ndarray, stiffen: float = 1.0) -> Sites:
        """Return the sites that a posterior with these moments asks for."""
        unit = Gaussian(self.likelihood.values) if isinstance(self.likelihood, Gaussian) else self.likelihood
        precision, natural = sites(unit.expected(mean, variance), mean)
        if stiffen != 1.0:
            natural, precision = natural + (stiffen - 1.0) * precision * mean, stiffen * precision
        return Sites(precision, natural)

    def _place(self, point: Point) -> Start:
        """Return a point as a place where another fit may begin."""
        free, curvature = self.hyper.free, self.curvature
        covariance = np.zeros((len(free), len(free)))
        if curvature is not None and free.any():
            covariance[np.ix_(free, free)] = -np.linalg.inv(negative(curvature[np.ix_(free, free)]))
        return Start(point.theta, covariance, *point.found)

    # -- the posterior at given hyperparameters ------------------------------------------------------------

    def first(self, theta: np.ndarray, guess: Guess, *, near: bool = False) -> Point:
        """Return a first point from guessed moments, which may be near; sites are made stiffer if rates overflow."""
        if near:
            with np.errstate(over="ignore", invalid="ignore"):
                asked = self.sites_at(*guess)
            if np.isfinite(asked.natural).all():
                point = self.tried(theta, asked, guess)
                if point is not None and np.isfinite(point.score):
                    return point
        guess = self.likelihood.start(*guess), guess[1]
        for power in range(8):
            point = self.tried(theta, self.sites_at(*guess, stiffen=10.0**power), guess)
            if point is not None and np.isfinite(point.score):
                return point
        return point or self.at(theta, self.sites_at(*guess), guess)

    def settle(
        self,
        point: Point,
        tolerance: float,
        max_rounds: int = MAX_ROUNDS,
        enough: float = -np.inf,
        *,
        record: bool = False,
    ) -> Outcome:
        """Go round at the point's θ until the posterior changes by less than the tolerance.

        Newton steps may pass through a few worse posteriors, of which none is kept; if these go on, a damped step
        from the best one takes over for a round. A point whose bound cannot reach `enough` any more is left early.
        """
        if self.conjugate:
            return Outcome(point, True, "exact")
        if point.settled <= tolerance:
            return Outcome(point, True, f"converged in {count(self.rounds, 'round')}")
        base, failures, calm, gain, share = point, 0, 0, np.inf, 1.0
        for number_ in range(1, max_rounds + 1):
            rounding = _ROUNDING * max(1.0, abs(point.score))
            limit = max(tolerance**2, 10.0 * rounding)
            new = None if failures >= 3 else self.newton(base, point.score - rounding, share, gain < 1.0)
            if new is None:  # no way ahead: a damped step from the best point
                new = self.damped(point)
                if new is None:
                    return Outcome(point, gain < 1e3 * limit, f"no step raises the bound any more (round {number_})")
            self.rounds += 1
            base, share, before = new, new.share, gain
            gain, change = new.score - point.score, _change(point.moments, new.moments)
            if gain >= -rounding:
                point, failures = new, 0
                if self._keep is not None:
                    self._keep(self._place(point))
                if record:
                    self.trace.append(point.score)
            else:
                failures += 1
            if self.stage is not None:
                self.stage.tell(f"round {self.rounds}: ELBO {point.elbo:,.3f}, gain {gain:.2g}")
            calm = calm + 1 if abs(gain) < limit and share == 1.0 else 0
            if calm and (change < tolerance or calm >= 20):
                point.settled = tolerance
                return Outcome(point, True, f"converged in {count(self.rounds, 'round')}")
            # Newton steps converge at least as fast as the last two gains say.
            left = gain * gain / before if 0.0 < gain < before < np.inf else abs(gain)
            if tolerance >= ROUGH and share == 1.0 and left < 0.1 * MIN_GAIN:
                return Outcome(point, True, "near enough")
            if point.score + 10.0 * max(gain, 0.0) < enough:
                return Outcome(point, False, "falls short")
            if self.late(1.0):
                said = f"{RAN_OUT} after {self.rounds} rounds; the last one gained {gain:.2g} nats"
                return Outcome(point, False, said)
            share = min(1.0, 2.0 * share)
        return Outcome(point, False, f"not converged after {max_rounds} rounds; the last one gained {gain:.3g}")

    def damped(self, point: Point) -> Point | None:
        """Return a better posterior; a small enough share of the sites asked for gives one."""
        target = self.sites_at(*point.found)
        asked = sites(self.likelihood.expected(*point.found), point.moments.mean)
        held = sites(self.likelihood.expected(*point.guess), point.guess[0])
        share = 1.0
        while share > 1e-7:
            mixed = tuple((1.0 - share) * old + share * new for old, new in zip(held, asked, strict=True))
            guess = self.likelihood.guess(*mixed) or point.found
            new = self.tried(point.theta, point.sites.blend(target, share), guess)
            if new is not None and new.score > point.score:
                return new
            share *= 0.5
        return None

    def newton(self, base: Point, goal: float, share: float, fine: bool) -> Point | None:
        """Return a posterior a Newton step ahead, or a share of one; None if the bound would always fall."""
        ahead = self.ahead(base, base.guess, self.engine.corrections if fine else 1)
        while share > 1e-3:
            mean, variance = (old + share * (new - old) for old, new in zip(base.guess, ahead, strict=True))
            with np.errstate(over="ignore", invalid="ignore"):
                asked = self.sites_at(mean, variance)
            if np.isfinite(asked.natural).all():  # otherwise rates overflow there
                new = self.tried(base.theta, asked, (mean, variance))
                if new is not None and new.score > goal - _DETOUR:
                    new.share = share
                    return new
            share /= 3.0
        return None

    def ahead(self, point: Point, guess: Guess, corrections: int) -> Guess:
        """Return the moments at which the posterior would no longer change, by one Newton step.

        The posterior at `point` comes from the sites asked for by the moments `guess`. To first order a
        change of those moments by (a, b) changes its mean by -½ V (w' b) and its variance by -(V∘V)(w' a +
        w'' b), where V is the posterior covariance at the observations and w', w'' are the slopes of the
        site precision in mean and variance. V∘V, which is short-ranged, is lumped on its diagonal; V is
        kept, so that the step is one more solve for a mean, with softer sites.
        """
        moments = point.moments
        slopes = self.likelihood.slopes(*guess)
        if slopes is None:
            return moments.mean, moments.variance

        def solve() -> tuple[np.ndarray, np.ndarray]:
            by_mean, by_variance = slopes
            precision = sites(self.likelihood.expected(*guess), guess[0])[0]
            spread = self.engine.spread(point.theta, point.sites)
            lumped, lumped_variance = spread(by_mean), np.maximum(1.0 + spread(by_variance), 0.3)
            half = 0.5 * by_mean / lumped_variance
            soft = np.maximum(precision - half * lumped, 0.05 * precision)
            mean_of = self.engine.means(point.theta, point.sites, soft)
            shift, change = moments.mean - guess[0], moments.variance - guess[1]
            mean = shift + mean_of((precision - soft) * shift - half * change)
            variance = (change - lumped * mean) / lumped_variance
            for _ in range(min(corrections, self.engine.corrections)):  # what lumping left out
                rest = change - variance - spread(by_mean * mean + by_variance * variance)
                more = mean_of(-half * rest)
                mean, variance = mean + more, variance + (rest - lumped * more) / lumped_variance
            return guess[0] + mean, np.maximum(guess[1] + variance, 0.3 * moments.variance)

        return self._timed("ahead", solve)

    # -- the hyperparameters -------------------------------------------------------------------------------

    def free(self, theta: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        """Return which parameters can move: not fixed, and not held by a bound."""
        h = self.hyper
        return h.free & ~((theta <= h.lower) & (gradient < 0)) & ~((theta >= h.upper) & (gradient > 0))

    def gradient(self, point: Point) -> np.ndarray:
        """Return the gradient of the maximised bound and the prior of θ at a settled point."""
        return self.penalised(point.theta, point.sites)[1]

    def learn(self, point: Point, min_gain: float = MIN_GAIN, max_rounds: int = MAX_ROUNDS) -> Outcome:
        """Climb from a point to the best hyperparameters, until no step promises `min_gain` nats any more.

        The promise is believed only where the posterior is settled well, and a step that promises a tenth of it is
        still taken then, as the last one.
        """
        if self.conjugate:
            return self._search(point)
        point = self.settle(point, ROUGH, max_rounds).point
        self.trace.append(point.score)
        gradient, sure, steps, polished = self.gradient(point), False, 0, 0
        while True:
            free = self.free(point.theta, gradient)
            if not free.any():
                return self._ended(point, "every hyperparameter is held by a bound")
            if self.curvature is None:
                if self.late(_STEP_ROUNDS):
                    said = f"{RAN_OUT} after {self.rounds} rounds, before the hyperparameters were learned"
                    return Outcome(point, False, said)
                self.curvature = negative(self.measure(point, gradient))
            inner = self.curvature[np.ix_(free, free)]
            step = np.zeros_like(point.theta)
            step[free] = newton_step(gradient[free], inner)
            predicted_gain = 0.5 * float(gradient[free] @ np.linalg.solve(-negative(inner), gradient[free]))
            if predicted_gain < 0.1 * min_gain and not sure:
                point = self.settle(point, TOLERANCE, max_rounds).point
                gradient, sure = self.gradient(point), True
                continue
            if sure and predicted_gain < 0.1 * min_gain:
                return self._ended(point, f"no step of the hyperparameters promises {number(min_gain)} nats")
            if self.late(_STEP_ROUNDS):
                left = f"when the hyperparameters promised {predicted_gain:.2g} nats more"
                said = f"{RAN_OUT} after {self.rounds} rounds, {left}"
                return Outcome(point, predicted_gain < min_gain, said)
            if self.rounds >= max_rounds or steps >= 60:
                said = f"the hyperparameters still promise {predicted_gain:.3g} nats after {self.rounds} rounds"
                return Outcome(point, False, said)
            steps += 1
            trial, reached = self._step(point, step, TOLERANCE if predicted_gain < min_gain else ROUGH, max_rounds)
            if predicted_gain < min_gain:
                polished += 1
                if trial is None or trial.score <= point.score:
                    if not sure:
                        point = self.settle(point, TOLERANCE, max_rounds).point
                        gradient, sure = self.gradient(point), True
                        continue
                    return self._ended(point, "steps of the hyperparameters gain nothing")
                if polished >= 3:
                    return self._ended(trial, "steps of the hyperparameters gain next to nothing")
            if trial is None:
                said = f"no step of the hyperparameters raises the bound, though {predicted_gain:.2g} nats are promised"
                return Outcome(point, predicted_gain < 1.0, said)
            new = self.gradient(trial)
            before, sure = self.curvature, predicted_gain < min_gain
            self.curvature = bfgs(before, trial.theta - point.theta, new - gradient, free)
            if trial.score > point.score:
                self.trace.append(trial.score)
                point, gradient = trial, new
            elif not reached or self.curvature is before:
                self.curvature = 4.0 * before

    def _ended(self, point: Point, words: str) -> Outcome:
        return Outcome(point, True, f"{words}, after {self.rounds} rounds")

    def _step(self, point: Point, step: np.ndarray, tolerance: float, max_rounds: int) -> tuple[Point | None, bool]:
        """Return the posterior a step of θ ahead, or a share of one, and whether it is settled there."""
        share = 1.0
        while share > 1e-3:
            theta = np.clip(point.theta + share * step, self.hyper.lower, self.hyper.upper)
            start = self.tried(theta, self.sites_at(*point.found), point.found)
            if start is not None and np.isfinite(start.score):
                outcome = self.settle(start, tolerance, max(max_rounds - self.rounds, 5), point.score)
                if outcome.point.score > point.score - 3.0 or outcome.converged:
                    return outcome.point, outcome.converged
            share *= 0.25
        return None, False

    def measure(self, point: Point, gradient: np.ndarray | None = None, step: float = 0.1) -> np.ndarray:
        """Return the curvature of the maximised bound, from gradients a step ahead; -1 where nothing is free."""
        base = self.gradient(point) if gradient is None else gradient
        free = self.hyper.free
        out = -np.eye(len(point.theta))
        for i in np.flatnonzero(free):
            theta = point.theta.copy()
            theta[i] += step if theta[i] + step <= self.hyper.upper[i] else -step
            there = self.at(theta, self.sites_at(*point.found), point.found)
            there = self.settle(there, ROUGH, 6).point
            out[i] = np.where(free, (self.gradient(there) - base) / (theta[i] - point.theta[i]), 0.0)
        return 0.5 * (out + out.T)

    def _search(self, point: Point) -> Outcome:
        """Find the best hyperparameters of a likelihood whose sites depend on nothing."""

        def objective(theta: np.ndarray) -> Derivatives:
            return self.penalised(theta, point.sites)

        if self.curvature is None:
            self.curvature = negative(differences(objective, point.theta, self.hyper.free))
        best, _, self.curvature = maximise(
            objective, point.theta, self.hyper.lower, self.hyper.upper,
            curvature=self.curvature, max_evaluations=60, min_gain=1e-10,
        )  # fmt: skip
        self.curvature = differences(objective, best, self.hyper.free)
        point_there = self.at(best, point.sites, point.guess)
        self.trace.append(point_there.score)
        return Outcome(point_there, True, "exact")


def _change(old: Moments, new: Moments) -> float:
    """Return the largest change of a mean, in standard deviations, and of a variance, relatively."""
    variance = np.maximum(new.variance, 1e-12 * new.variance.max(initial=1e-300))
    mean = np.abs(new.mean - old.mean) / np.sqrt(variance)
    relative = np.abs(new.variance - old.variance) / variance
    return float(max(mean.max(initial=0.0), relative.max(initial=0.0)))
