"""The variational solver: one loop for every likelihood and both priors.

The posterior of f is a Gaussian whose precision is the prior's plus one Gaussian *site* per observation. A
round
takes the sites that the current posterior asks for, improves the hyperparameters with the sites held, and
solves
for the new posterior. A round that would lower the bound is taken again with a smaller share of the new
sites.
"""

from __future__ import annotations

import itertools
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from geobgp.engine_features import FeatureState, Moments
from geobgp.errors import GeobgpWarning
from geobgp.hyper import Derivatives, Hyper, differences, maximise, negative
from geobgp.likelihoods import Gaussian, Likelihood, sites

__all__ = ["Engine", "FeatureState", "Fit", "State", "fit"]

#: Rounds after which the solver gives up and says so.
MAX_ROUNDS = 100
#: A round that gains less than this (in nats) is the last.
TOLERANCE = 1e-7


class State(Protocol):
    """A Gaussian posterior for one value of the hyperparameters."""

    @property
    def weight(self) -> float: ...  # noqa: D102
    @property
    def lengthscale(self) -> float: ...  # noqa: D102
    @property
    def sd(self) -> float: ...  # noqa: D102
    @property
    def noise(self) -> float: ...  # noqa: D102

    def node_moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of the linear predictor at every node."""
        ...

    def sample_nodes(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Return (n, n_nodes) joint draws of the linear predictor."""
        ...

    def moments_at(
        self, coords: np.ndarray, fixed: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of the linear predictor at coordinates; NaN off land."""
        ...

    def coefficients(self) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and covariance of the fixed effects."""
        ...

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return plain arrays that hold the state."""
        ...


class Evidence(Protocol):
    """Gaussian sites, in the engine's own form."""

    def blend(self, other: Any, share: float) -> Any:
        """Return (1 - share) of these sites and `share` of the others."""
        ...


class Engine(Protocol):
    """A prior over f at the observations, and what the solver needs to do with it."""

    rounds: int
    #: Evaluations of the objective that a round's search for hyperparameters may take.
    evaluations: int

    def absorb(self, precision: np.ndarray, natural: np.ndarray) -> Any:
        """Return sites in the engine's own form."""
        ...

    def objective(self, theta: np.ndarray, evidence: Any) -> Derivatives:
        """Return the sites' log evidence with gradient and Hessian in θ."""
        ...

    def posterior(self, theta: np.ndarray, evidence: Any) -> Moments:
        """Return the posterior's moments at the observations and its divergence from the prior."""
        ...

    def mean(
        self, theta: np.ndarray, evidence: Any, precision: np.ndarray, natural: np.ndarray
    ) -> np.ndarray:
        """Return the posterior mean at the observations under sites near those of `evidence`."""
        ...

    def spread(self, theta: np.ndarray, evidence: Any, weights: np.ndarray) -> np.ndarray:
        """Return (V∘V) weights, about: V is the posterior covariance at the observations."""
        ...

    def state(self, theta: np.ndarray, evidence: Any, weight: float) -> State:
        """Return the posterior as a state that stands by itself."""
        ...

    def missed_share(self, theta: np.ndarray) -> float:
        """Return the share of the prior variance that the engine leaves out."""
        ...

    def rehearsals(self) -> Iterator[Engine]:
        """Yield cheaper engines for the same observations, the cheapest first, to find a good start with."""
        ...


@dataclass(frozen=True, eq=False)
class Fit:
    """What the solver found.

    Attributes
    ----------
    states : tuple of State
        One for each value of the hyperparameters, with weights that add up to one; the first is the best one.
    elbo : float
        Lower bound on the log marginal likelihood at the best hyperparameters (equal to it for a Gaussian
        likelihood); the prior of the hyperparameters is not in it.
    elbo_trace : array
        The bound, plus the log prior of the learned hyperparameters, after each round: it never falls.
    hyper_mean, hyper_cov : arrays
        Of θ = (log lengthscale, log sd[, log noise]); zero variance where fixed.
    missed_share : float
        Share of the prior variance that the features miss at the learned lengthscale; 0 at full rank.
    seconds : dict
        Time spent, by stage.
    rounds : int
        Passes over the observations that cost O(n p²) (or one sparse factorisation).
    """

    states: tuple[State, ...]
    elbo: float
    elbo_trace: np.ndarray
    converged: bool
    message: str
    hyper_mean: np.ndarray
    hyper_cov: np.ndarray
    missed_share: float = 0.0
    seconds: dict[str, float] = field(default_factory=dict)
    rounds: int = 0


@dataclass(eq=False)
class _Point:
    """Where the solver is."""

    theta: np.ndarray
    evidence: Any
    moments: Moments
    score: float
    elbo: float


class _Solver:
    """The loop, for one engine and one likelihood."""

    def __init__(
        self, engine: Engine, likelihood: Likelihood, hyper: Hyper, report: Callable[[str], None] | None
    ) -> None:
        self.engine, self.likelihood, self.hyper, self.report = engine, likelihood, hyper, report
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

    def improve(self, theta: np.ndarray, evidence: Any) -> np.ndarray:
        """Return the hyperparameters that the sites, held as they are, support best."""
        return self._timed("hyperparameters", lambda: self._search(theta, evidence))

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

    def at(self, theta: np.ndarray, evidence: Any) -> _Point:
        """Return the posterior and the bound for given hyperparameters and sites."""
        moments = self._timed("posterior", lambda: self.engine.posterior(theta, evidence))
        expected = self._likelihood(theta).expected(moments.mean, moments.variance)
        elbo = float(expected.value.sum()) - moments.divergence
        if not np.isfinite(elbo):
            elbo = -np.inf
        return _Point(theta, evidence, moments, elbo + self.hyper.log_prior(theta)[0], elbo)

    def sites_at(self, mean: np.ndarray, variance: np.ndarray, stiffen: float = 1.0) -> Any:
        """Return the sites that a posterior with these moments asks for."""
        unit = Gaussian(self.likelihood.values) if isinstance(self.likelihood, Gaussian) else self.likelihood
        precision, natural = sites(unit.expected(mean, variance), mean)
        if stiffen != 1.0:
            natural, precision = natural + (stiffen - 1.0) * precision * mean, stiffen * precision
        return self._timed("sites", lambda: self.engine.absorb(precision, natural))

    def first(
        self, theta: np.ndarray, guess: tuple[np.ndarray, np.ndarray], learn: bool
    ) -> tuple[_Point, tuple[np.ndarray, np.ndarray]]:
        """Return a first point from guessed moments, and those; sites are made stiffer if rates overflow."""
        guess = self.likelihood.start(*guess), guess[1]
        for power in range(8):
            evidence = self.sites_at(*guess, stiffen=10.0**power)
            point = self.at(self.improve(theta, evidence) if learn else theta, evidence)
            if np.isfinite(point.score):
                break
        return point, guess

    def step(self, point: _Point, target: Any, share: float, learn: bool) -> tuple[_Point, bool] | None:
        """Return the next point and whether θ could move along; None if the bound would fall."""
        slack = 1e-10 * abs(point.score) if np.isfinite(point.score) else 0.0
        evidence = point.evidence.blend(target, share)
        for moving in (True, False) if learn else (False,):
            theta = self.improve(point.theta, evidence) if moving else point.theta
            new = self.at(theta, evidence)
            if np.isfinite(new.score) and new.score >= point.score - slack:
                return new, moving
        return None

    def climb(
        self,
        theta: np.ndarray,
        guess: tuple[np.ndarray, np.ndarray],
        learn: bool,
        max_rounds: int = MAX_ROUNDS,
        tolerance: float = TOLERANCE,
    ) -> tuple[_Point, bool, str]:
        """Go round from guessed moments until the bound no longer rises."""
        point, guess = self.first(theta, guess, learn)
        self.trace.append(point.score)
        if self.conjugate:
            return point, True, "exact"
        share, gain = 1.0, np.inf
        last: tuple[np.ndarray, np.ndarray] | None = guess
        for number in range(1, max_rounds + 1):
            moments = (point.moments.mean, point.moments.variance)
            weight = -2.0 * self.likelihood.expected(*moments).d_variance
            result = None
            if last is not None and share == 1.0:
                last = self.ahead(point, last)
                result = self.step(point, self.sites_at(*last), 1.0, learn)
            if result is None:
                last = moments
                target = self.sites_at(*moments)
                while (result := self.step(point, target, share, learn)) is None:
                    share *= 0.5
                    last = None
                    if share < 1e-10:
                        done = np.isfinite(point.score) and gain < 1e3 * tolerance
                        return point, bool(done), f"no step raises the bound any more (round {number})"
            new, moving = result
            gain = new.score - point.score
            moved = float(np.abs(new.theta - point.theta).max())
            shift = float(weight @ np.square(new.moments.mean - moments[0]))
            point = new
            self.trace.append(point.score)
            if self.report is not None:
                self.report(f"round {number}: ELBO {point.elbo:,.4f}, step {share:.3g}")
            limit = max(tolerance, 1e-13 * abs(point.score))
            still = gain < limit and shift < 10.0 * limit and moved < 1e-4
            if still and share == 1.0 and (moving or not learn):
                return point, True, f"converged in {number} rounds"
            share = min(1.0, 2.0 * share)
        return point, False, f"not converged after {max_rounds} rounds; the last one gained {gain:.3g}"

    def ahead(self, point: _Point, guess: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Return the moments at which the posterior would no longer change, by one Newton step.

        The posterior at `point` comes from the sites asked for by the moments `guess`. To first order a
        change of
        those moments by (a, b) changes its mean by -½ V (w' b) and its variance by -(V∘V)(w' a + w'' b),
        where V
        is the posterior covariance at the observations and w', w'' are the slopes of the site precision in
        mean
        and variance. V∘V, which is short-ranged, is lumped on its diagonal; V is kept, so that the step is
        one
        more solve for a mean, with softer sites.
        """
        moments = point.moments
        slopes = self.likelihood.slopes(*guess)
        if slopes is None:
            return moments.mean, moments.variance

        def solve() -> tuple[np.ndarray, np.ndarray]:
            by_mean, by_variance = slopes
            precision, natural = sites(self.likelihood.expected(*guess), guess[0])
            lumped = self.engine.spread(point.theta, point.evidence, by_mean)
            lumped_variance = self.engine.spread(point.theta, point.evidence, by_variance)
            change = moments.variance - guess[1]
            factor = by_mean / (1.0 + lumped_variance)
            soft = precision - 0.5 * factor * lumped
            natural = natural + (soft - precision) * guess[0] - 0.5 * factor * change
            mean = self.engine.mean(point.theta, point.evidence, soft, natural)
            variance = guess[1] + (change - lumped * (mean - guess[0])) / (1.0 + lumped_variance)
            return mean, np.maximum(variance, 0.3 * moments.variance)

        return self._timed("ahead", solve)


def fit(
    engine: Engine,
    likelihood: Likelihood,
    hyper: Hyper,
    *,
    integrate: bool = False,
    max_rounds: int = MAX_ROUNDS,
    report: Callable[[str], None] | None = None,
) -> Fit:
    """Fit the posterior, and the hyperparameters that are free.

    Parameters
    ----------
    engine : Engine
        The prior at the observations.
    likelihood : Likelihood
    hyper : Hyper
        Which hyperparameters are free, their bounds and priors.
    integrate : bool
        Mix posteriors over a small grid of hyperparameters instead of taking the best ones.
    report : callable, optional
        Told of every round, in words.
    """
    begin = time.perf_counter()
    solver = _Solver(engine, likelihood, hyper, report)
    learn = bool(hyper.free.any())
    theta, guess = hyper.start, (np.zeros(likelihood.size), np.zeros(likelihood.size))
    for part in engine.rehearsals():
        rehearsal = _Solver(part, likelihood, hyper, None)
        rehearsal.curvature = solver.curvature
        early, _, _ = rehearsal.climb(theta, guess, learn, 20, 1e-2)
        theta, guess = early.theta, (early.moments.mean, early.moments.variance)
        solver.curvature = rehearsal.curvature
    point, converged, message = solver.climb(theta, guess, learn, max_rounds)
    trace = np.array(solver.trace)
    covariance = _hyper_covariance(solver, point)
    points, weights = [point], np.ones(1)
    if integrate and learn:
        points, weights = _integrate(solver, point, covariance)
    spent = {**solver.spent, "total": time.perf_counter() - begin}
    if not converged:
        warnings.warn(f"The fit did not converge: {message}.", GeobgpWarning, stacklevel=3)
    return Fit(
        states=tuple(engine.state(q.theta, q.evidence, w) for q, w in zip(points, weights, strict=True)),
        elbo=point.elbo,
        elbo_trace=trace,
        converged=converged,
        message=message,
        hyper_mean=point.theta,
        hyper_cov=covariance,
        missed_share=engine.missed_share(point.theta),
        seconds=spent,
        rounds=engine.rounds,
    )


def _hyper_covariance(solver: _Solver, point: _Point) -> np.ndarray:
    """Return the covariance of θ from the curvature of the site objective; zero where fixed."""
    free = solver.hyper.free
    out = np.zeros((len(free), len(free)))
    if free.any():
        hessian = solver.penalised(point.theta, point.evidence)[2]
        if hessian is None:
            hessian = differences(lambda t: solver.penalised(t, point.evidence), point.theta, free)
        values, vectors = np.linalg.eigh(hessian[np.ix_(free, free)])
        # Directions in which the data say nothing are held at a standard deviation of 3 (a factor of 20).
        spread = 1.0 / np.maximum(-values, 1.0 / 9.0)
        out[np.ix_(free, free)] = (vectors * spread) @ vectors.T
    return out


def _integrate(solver: _Solver, best: _Point, covariance: np.ndarray) -> tuple[list[_Point], np.ndarray]:
    """Return posteriors on a 3 x 3 grid (Gauss-Hermite, scaled to the curvature) and their weights.

    A grid point's weight is its quadrature weight times the ratio of its true to its Gaussian density.
    """
    free = np.flatnonzero(solver.hyper.free)
    values, vectors = np.linalg.eigh(covariance[np.ix_(free, free)])
    root = vectors * np.sqrt(values)
    abscissa, quadrature = (0.0, np.sqrt(3.0), -np.sqrt(3.0)), (2 / 3, 1 / 6, 1 / 6)
    points, logs = [], []
    for which in itertools.product(range(3), repeat=len(free)):
        x = np.array([abscissa[i] for i in which])
        if not x.any():
            point = best
        else:
            theta = best.theta.copy()
            theta[free] += root @ x
            theta = np.clip(theta, solver.hyper.lower, solver.hyper.upper)
            point, _, _ = solver.climb(theta, (best.moments.mean, best.moments.variance), False, 20, 1e-3)
        points.append(point)
        density = point.score - best.score + 0.5 * float(x @ x)
        logs.append(density + sum(np.log(quadrature[i]) for i in which))
    weights = np.exp(np.array(logs) - max(logs))
    return points, weights / weights.sum()
