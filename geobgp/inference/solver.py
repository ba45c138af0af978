"""The variational loop: sites, hyperparameters and posteriors in turn, each round better than the last.

The posterior of f is a Gaussian whose precision is the prior's plus one Gaussian *site* per observation. A
round takes the sites that the posterior asks for (or rather those at which it would no longer change, by a
Newton step), improves the hyperparameters, and solves for the new posterior. A round that would lower the
bound is taken again with a smaller share of the new sites.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from geobgp.inference.engine import Engine, Moments
from geobgp.inference.hyper import Derivatives, Hyper, bfgs, differences, maximise, negative, newton_step
from geobgp.inference.likelihoods import Gaussian, Likelihood, sites
from geobgp.progress import Stage

#: Rounds after which the solver gives up and says so.
MAX_ROUNDS = 200
#: The loop ends when means and variances change by less than this, in posterior standard deviations and
#: relatively; the first number where hyperparameters are learned. The bound is settled to its square.
TOLERANCE = (1e-3, 1e-7)
#: Loss, in nats, that a Newton step may pass through on its way.
_DETOUR = 1e-2
#: Rounding of the bound, relative to its size.
_ROUNDING = 1e-12

#: Means and variances at the observations.
Guess = tuple[np.ndarray, np.ndarray]


@dataclass(eq=False)
class Point:
    """Where the solver is."""

    theta: np.ndarray
    evidence: Any
    moments: Moments
    score: float
    elbo: float
    #: Of the site objective with the prior of θ; zero where evaluations are cheap and it is not asked for.
    gradient: np.ndarray
    #: Moments whose sites gave this posterior.
    guess: Guess
    #: Share of a Newton step that led here.
    share: float = 1.0


class Solver:
    """The loop, for one engine and one likelihood."""

    def __init__(self, engine: Engine, likelihood: Likelihood, hyper: Hyper, stage: Stage) -> None:
        self.engine, self.likelihood, self.hyper, self.stage = engine, likelihood, hyper, stage
        self.trace: list[float] = []
        self.conjugate = isinstance(likelihood, Gaussian)
        self.curvature: np.ndarray | None = None
        self.spent = {"sites": 0.0, "ahead": 0.0, "hyperparameters": 0.0, "posterior": 0.0}

    def _timed(self, stage: str, call: Callable[[], Any]) -> Any:
        begin = time.perf_counter()
        out = call()
        self.spent[stage] += time.perf_counter() - begin
        return out

    def _likelihood(self, theta: np.ndarray) -> Likelihood:
        if isinstance(self.likelihood, Gaussian):
            return Gaussian(self.likelihood.values, float(np.exp(theta[2])))
        return self.likelihood

    def penalised(self, theta: np.ndarray, evidence: Any) -> Derivatives:
        """Return the site objective plus the log prior of θ, with derivatives."""
        value, gradient, hessian = self.engine.objective(theta, evidence)
        prior, first_prior, second_prior = self.hyper.log_prior(theta)
        value, gradient = value + prior, gradient + first_prior
        hessian = None if hessian is None else hessian + second_prior
        if isinstance(self.likelihood, Gaussian):
            constant, first, second = self.likelihood.constant(theta[2])
            value += constant
            gradient[2] += first
            if hessian is not None:
                hessian[2, 2] += second
        return value, gradient, hessian

    def propose(self, theta: np.ndarray, evidence: Any, point: Point | None) -> np.ndarray:
        """Return better hyperparameters for new sites.

        An engine with cheap evaluations finds those that the sites support best. Otherwise the gradient at
        the last point and what is known of the curvature say where to go.
        """
        if self.engine.evaluations > 1:
            return self._timed("hyperparameters", lambda: self._search(theta, evidence))
        if point is None or self.curvature is None:
            return theta
        gradient = point.gradient
        free = self.free(theta, gradient)
        out = theta.copy()
        out[free] += newton_step(gradient[free], self.curvature[np.ix_(free, free)])
        return np.clip(out, self.hyper.lower, self.hyper.upper)

    def free(self, theta: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        """Return which parameters can move: not fixed, and not held by a bound."""
        h = self.hyper
        return h.free & ~((theta <= h.lower) & (gradient < 0)) & ~((theta >= h.upper) & (gradient > 0))

    def _search(self, theta: np.ndarray, evidence: Any) -> np.ndarray:
        def objective(t: np.ndarray) -> Derivatives:
            return self.penalised(t, evidence)

        if self.curvature is None and objective(theta)[2] is None:
            self.curvature = negative(differences(objective, theta, self.hyper.free))
        best, _, self.curvature = maximise(
            objective,
            theta,
            self.hyper.lower,
            self.hyper.upper,
            curvature=self.curvature,
            max_evaluations=30 if self.conjugate else self.engine.evaluations,
            worth=1e-10,
        )
        return best

    def measure(self, point: Point) -> np.ndarray:
        """Return the curvature of the objective at a point, from gradients where it is not known."""
        hessian = self.penalised(point.theta, point.evidence)[2]
        if hessian is None:
            hessian = differences(lambda t: self.penalised(t, point.evidence), point.theta, self.hyper.free)
        return hessian

    def learn_curvature(self, old: Point, new: Point) -> None:
        """Correct the curvature by how the gradient changed, where evaluations are dear."""
        if self.engine.evaluations > 1 or self.curvature is None:
            return
        step, change = new.theta - old.theta, new.gradient - old.gradient
        along = float(step @ self.curvature @ step)
        if along < 0 and new.score - old.score < 3.0 and 0.1 < float(step @ change) / along < 5.0:
            self.curvature = bfgs(self.curvature, step, change, self.hyper.free)

    def shorten(self, here: Point, tried: Point) -> None:
        """Correct the curvature after a step of θ that went too far, both ends having the same sites."""
        if self.engine.evaluations > 1 or self.curvature is None:
            return
        step, change = tried.theta - here.theta, tried.gradient - here.gradient
        along = float(step @ self.curvature @ step)
        if np.isfinite(change).all() and float(step @ change) < 1.5 * along:
            self.curvature = bfgs(self.curvature, step, change, self.hyper.free)
        else:
            self.curvature = 4.0 * self.curvature

    def at(self, theta: np.ndarray, evidence: Any, guess: Guess) -> Point:
        """Return the posterior and the bound for given hyperparameters and sites."""
        moments = self._timed("posterior", lambda: self.engine.posterior(theta, evidence))
        expected = self._likelihood(theta).expected(moments.mean, moments.variance)
        elbo = float(expected.value.sum()) - moments.divergence
        if not np.isfinite(elbo):
            elbo = -np.inf
        gradient = np.zeros_like(theta)
        if self.engine.evaluations == 1:
            gradient = self.penalised(theta, evidence)[1]
        score = elbo + self.hyper.log_prior(theta)[0]
        return Point(theta, evidence, moments, score, elbo, gradient, guess)

    def sites_at(self, mean: np.ndarray, variance: np.ndarray, stiffen: float = 1.0) -> Any:
        """Return the sites that a posterior with these moments asks for."""
        unit = Gaussian(self.likelihood.values) if isinstance(self.likelihood, Gaussian) else self.likelihood
        precision, natural = sites(unit.expected(mean, variance), mean)
        if stiffen != 1.0:
            natural, precision = natural + (stiffen - 1.0) * precision * mean, stiffen * precision
        return self._timed("sites", lambda: self.engine.absorb(precision, natural))

    def first(self, theta: np.ndarray, guess: Guess, learn: bool, hoped: float = -np.inf) -> Point:
        """Return a first point from guessed moments, or from none if those lead nowhere near what is hoped.

        What few features take for certain can be far from what many of them say.
        """
        point = self._first(theta, guess, learn)
        if point.score > hoped - 0.1 * abs(hoped) - 10.0:
            return point
        nothing = np.zeros(self.likelihood.size)
        other = self._first(self.hyper.start, (nothing, nothing), learn)
        return other if other.score > point.score else point

    def _first(self, theta: np.ndarray, guess: Guess, learn: bool) -> Point:
        """Return a first point from guessed moments; sites are made stiffer if rates overflow."""
        guess = self.likelihood.start(*guess), guess[1]
        for power in range(8):
            evidence = self.sites_at(*guess, stiffen=10.0**power)
            point = self.at(self.propose(theta, evidence, None) if learn else theta, evidence, guess)
            if np.isfinite(point.score):
                break
        return point

    def trial(self, base: Point, guess: Guess, learn: bool, goal: float) -> Point:
        """Return the posterior under new sites, with new hyperparameters if these help to reach the goal."""
        evidence = self.sites_at(*guess)
        moved = self.at(self.propose(base.theta, evidence, base), evidence, guess) if learn else None
        if moved is not None and moved.score >= goal:
            return moved
        held = self.at(base.theta, evidence, guess)
        if moved is None:
            return held
        self.shorten(held, moved)
        return held if held.score >= moved.score else moved

    def damped(self, point: Point) -> Point | None:
        """Return a better posterior with θ held; a small enough share of the sites asked for gives one."""
        moments = (point.moments.mean, point.moments.variance)
        target = self.sites_at(*moments)
        asked = sites(self.likelihood.expected(*moments), moments[0])
        held = sites(self.likelihood.expected(*point.guess), point.guess[0])
        share = 1.0
        while share > 1e-7:
            mixed = tuple((1.0 - share) * old + share * new for old, new in zip(held, asked, strict=True))
            guess = self.likelihood.guess(*mixed) or moments
            new = self.at(point.theta, point.evidence.blend(target, share), guess)
            if new.score > point.score:
                return new
            share *= 0.5
        return None

    def climb(
        self,
        theta: np.ndarray,
        guess: Guess,
        learn: bool,
        max_rounds: int = MAX_ROUNDS,
        tolerance: float | None = None,
        hoped: float = -np.inf,
    ) -> tuple[Point, bool, str]:
        """Go round from guessed moments, which promise the score `hoped`, until the bound no longer rises.

        Newton steps may pass through a few worse posteriors, of which none is kept; if these go on, a damped
        step from the best one takes over for a round.
        """
        tolerance = tolerance or TOLERANCE[0 if learn else 1]
        point = self.first(theta, guess, learn, hoped)
        self.trace.append(point.score)
        if self.conjugate:
            return point, True, "exact"
        base, failures, calm, gain, share = point, 0, 0, np.inf, 1.0
        for number in range(1, max_rounds + 1):
            rounding = _ROUNDING * max(1.0, abs(point.score))
            limit = max(tolerance**2, 10.0 * rounding)
            new = (
                None if failures >= 3 else self.newton(base, learn, point.score - rounding, share, gain < 1.0)
            )
            if new is None:  # no way ahead: a damped step from the best point
                new = self.damped(point)
                if new is None:
                    done = gain < 1e3 * limit
                    return point, done, f"no step raises the bound any more (round {number})"
            base, share = new, new.share
            gain, change = new.score - point.score, _change(point.moments, new.moments)
            moved = float(np.abs(new.theta - point.theta).max())
            if gain >= -rounding:
                self.learn_curvature(point, new)
                point, failures = new, 0
                self.trace.append(point.score)
            else:
                failures += 1
            self.stage.tell(f"round {number}: ELBO {point.elbo:,.4f}, gain {gain:.2g}, step {share:.2g}")
            calm = calm + 1 if abs(gain) < limit and share == 1.0 else 0
            still = change < tolerance and moved < 0.1 * tolerance
            if calm and (still or calm >= (3 if learn else 20)):
                return point, True, f"converged in {number} rounds"
            share = min(1.0, 2.0 * share)
        return point, False, f"not converged after {max_rounds} rounds; the last one gained {gain:.3g}"

    def newton(self, base: Point, learn: bool, goal: float, share: float, fine: bool) -> Point | None:
        """Return a posterior a Newton step ahead, or a share of one; None if the bound would always fall."""
        ahead = self.ahead(base, base.guess, self.engine.corrections if fine else 1)
        while share > 1e-3:
            mean, variance = (old + share * (new - old) for old, new in zip(base.guess, ahead, strict=True))
            new = self.trial(base, (mean, variance), learn, goal)
            if new.score > goal - _DETOUR:
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
            spread = self.engine.spread(point.theta, point.evidence)
            lumped, lumped_variance = spread(by_mean), np.maximum(1.0 + spread(by_variance), 0.3)
            half = 0.5 * by_mean / lumped_variance
            soft = np.maximum(precision - half * lumped, 0.05 * precision)
            mean_of = self.engine.means(point.theta, point.evidence, soft)
            shift, change = moments.mean - guess[0], moments.variance - guess[1]
            mean = shift + mean_of((precision - soft) * shift - half * change)
            variance = (change - lumped * mean) / lumped_variance
            for _ in range(min(corrections, self.engine.corrections)):  # what lumping left out
                rest = change - variance - spread(by_mean * mean + by_variance * variance)
                more = mean_of(-half * rest)
                mean, variance = mean + more, variance + (rest - lumped * more) / lumped_variance
            return guess[0] + mean, np.maximum(guess[1] + variance, 0.3 * moments.variance)

        return self._timed("ahead", solve)


def _change(old: Moments, new: Moments) -> float:
    """Return the largest change of a mean, in standard deviations, and of a variance, relatively."""
    variance = np.maximum(new.variance, 1e-12 * new.variance.max(initial=1e-300))
    mean = np.abs(new.mean - old.mean) / np.sqrt(variance)
    relative = np.abs(new.variance - old.variance) / variance
    return float(max(mean.max(initial=0.0), relative.max(initial=0.0)))
