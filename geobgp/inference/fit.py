"""A fit from beginning to end: engine, warm start, rounds, mixture."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from geobgp.errors import ConvergenceWarning, option, warn
from geobgp.inference.engine import Engine, State
from geobgp.inference.families import Likelihood
from geobgp.inference.hyper import Hyper
from geobgp.inference.solver import MAX_ROUNDS, MIN_GAIN, ROUGH, TIGHT, TOLERANCE, Guess, Point, Solver, Start
from geobgp.inference.states import FeatureState, SparseState
from geobgp.parallel import open_workers
from geobgp.progress import Stage

if TYPE_CHECKING:
    pass


# -- Fits: a posterior with its hyperparameters, or a mixture of posteriors over them ------------------------


__all__ = ["Engine", "FeatureState", "Fit", "SparseState", "Start", "State", "fit"]


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
    hyper_gradient : array, optional
        Of the bound and the log prior at `hyper_mean`, where the curvature was measured: the search ends while little
        is to be gained, not where nothing is, and a parameter may lie on its limit.
    truncated_variance : float
        Share of the prior variance that the features miss at the learned lengthscale; 0 at full rank.
    seconds : dict
        Time spent, by stage.
    rounds : int
        Passes over the observations that cost O(n p²) (or one sparse factorisation).
    ran_out : bool
        Whether it is the clock that kept it from converging.
    notes : dict
        What checks worked out of this fit, so that they do so once; a copy with anything replaced begins anew.
    """

    states: tuple[State, ...]
    elbo: float
    elbo_trace: np.ndarray
    converged: bool
    message: str
    hyper_mean: np.ndarray
    hyper_cov: np.ndarray
    truncated_variance: float = 0.0
    seconds: dict[str, float] = field(default_factory=dict)
    rounds: int = 0
    hyper_gradient: np.ndarray | None = None
    ran_out: bool = False
    notes: dict[str, Any] = field(default_factory=dict, init=False, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        """Return what copies and pickles hold: all but joint draws, which are made again when they are asked for."""
        return self.__dict__ | {"notes": {name: note for name, note in self.notes.items() if name != "draws"}}


def fit(
    engine: Engine,
    likelihood: Likelihood,
    hyper: Hyper,
    *,
    integrate: bool = False,
    max_rounds: int = MAX_ROUNDS,
    min_gain: float = MIN_GAIN,
    start: Start | None = None,
    measure: bool = False,
    client: Any = None,
    stage: Stage | None = None,
    keep: Callable[[Start], None] | None = None,
    tolerance: float | None = None,
    deadline: float = np.inf,
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
    worth : float
        Nats that a step of the hyperparameters must promise to be taken.
    start : Start, optional
        Where to begin; by default on coarser fields, or with fewer features.
    measure : bool
        Measure gradient and curvature of the bound in the hyperparameters, in place of what the search has learned.
    client
        Who fits the posteriors of a mixture: as for `geobgp.parallel.open_workers`; by default the current Dask
        client, else this process.
    stage : Stage, optional
        Told of every round, in words.
    keep : callable, optional
        Given a place from which such a fit could go on, after every round that raised the bound.
    tolerance : float, optional
        Change of the posterior, in standard deviations, that is small enough where no hyperparameter is free.
    deadline : float
        On `time.perf_counter`: when to end, with the best that is found by then and a warning.

    Notes
    -----
    BLAS is held to one thread meanwhile: more of them gain little on these matrices, and on a machine that is
    busy they wait for each other many times longer than they work.
    """
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1, user_api="blas"):
        return _fit(
            engine,
            likelihood,
            hyper,
            integrate,
            max_rounds,
            min_gain,
            start,
            measure,
            client,
            stage or Stage(),
            keep,
            TIGHT if tolerance is None else tolerance,
            deadline,
        )


def _fit(
    engine: Engine,
    likelihood: Likelihood,
    hyper: Hyper,
    integrate: bool,
    max_rounds: int,
    min_gain: float,
    known: Start | None,
    measure: bool,
    client: Any,
    stage: Stage,
    keep: Callable[[Start], None] | None,
    exact: float,
    deadline: float,
) -> Fit:
    begin = time.perf_counter()
    solver = Solver(engine, likelihood, hyper, stage, keep, deadline)
    learn = bool(hyper.free.any())
    nothing = (np.zeros(likelihood.size), np.zeros(likelihood.size))
    theta, guess, hoped, drift = hyper.start, nothing, -np.inf, np.zeros(len(hyper.start))
    if known is not None:
        theta, guess = np.clip(known.theta, hyper.lower, hyper.upper), (known.mean, known.variance)
        solver.curvature = known.curvature(hyper.free)
    for part in engine.warm_start_engines() if not (solver.conjugate or known) else ():
        warm_start = Solver(part, likelihood, hyper, Stage(), deadline=deadline)
        part.with_fewer_columns()
        warm_start.curvature = solver.curvature
        early = _start(warm_start, theta, guess, nothing, hoped)
        early = (warm_start.learn(early, 5.0 * min_gain) if learn else warm_start.settle(early, ROUGH, 20)).point
        # From field to field the hyperparameters drift in one direction.
        drift = early.theta - theta if np.isfinite(hoped) else 0.0 * drift
        theta = np.clip(early.theta + 0.8 * drift, hyper.lower, hyper.upper)
        guess, hoped, solver.curvature = early.found, early.score, warm_start.curvature
    if known is not None and known.variance.any():
        start = solver.first(theta, guess, near=True)
    else:
        start = _start(solver, theta, guess, nothing, hoped)
    learned = solver.learn(start, min_gain, max_rounds) if learn else None
    best, tolerance = (start, exact) if learned is None else (learned.point, TOLERANCE)
    solver.trace.append(best.score)
    ended = solver.settle(best, tolerance, max_rounds, record=True)
    point = ended.point
    converged = ended.converged and (learned is None or learned.converged)
    message = ended.message if learned is None or learned.converged else learned.message
    gradient = solver.gradient(point) if measure and learn else None
    covariance = _hyper_covariance(solver, point, integrate or measure)
    points, weights = [point], np.ones(1)
    if integrate and learn:
        points, weights = _integrate(solver, point, covariance, client)
    spent = {**solver.spent, "total": time.perf_counter() - begin}
    if not converged:
        remedy = f"Raise {option('max_seconds')}." if solver.ran_out else ""
        warn(ConvergenceWarning(f"The fit did not converge: {message}.", remedy=remedy))
    return Fit(
        states=tuple(engine.state(q.theta, q.sites, w) for q, w in zip(points, weights, strict=True)),
        elbo=point.elbo,
        elbo_trace=np.array(solver.trace),
        converged=converged,
        message=message,
        hyper_mean=point.theta,
        hyper_cov=covariance,
        truncated_variance=engine.truncated_variance(point.theta),
        seconds=spent,
        rounds=engine.rounds,
        hyper_gradient=gradient,
        ran_out=solver.ran_out and not converged,
    )


def _start(solver: Solver, theta: np.ndarray, guess: Guess, nothing: Guess, hoped: float) -> Point:
    """Return a first point from guessed moments, or from none if those lead nowhere near what is hoped.

    What few features take for certain can be far from what many of them say.
    """
    point = solver.first(theta, guess)
    if point.score > hoped - 0.1 * abs(hoped) - 10.0:
        return point
    other = solver.first(theta, nothing)
    return other if other.score > point.score else point


def _hyper_covariance(solver: Solver, point: Point, exact: bool) -> np.ndarray:
    """Return the covariance of θ from the curvature of the maximised bound; zero where fixed."""
    free = solver.hyper.free
    out = np.zeros((len(free), len(free)))
    if free.any():
        known = None if exact and not solver.conjugate else solver.curvature
        if known is None and solver.late(0.0):
            known = np.zeros_like(out)  # there is no time to measure it
        curvature = solver.measure(point) if known is None else known
        values, vectors = np.linalg.eigh(curvature[np.ix_(free, free)])
        # Directions in which the data say nothing are held at a standard deviation of 3 (a factor of 20).
        spread = 1.0 / np.maximum(-values, 1.0 / 9.0)
        out[np.ix_(free, free)] = (vectors * spread) @ vectors.T
    return out


class GridPoint(NamedTuple):
    """Hyperparameters of a mixture: their place in standard deviations from the best ones, and the log weight there."""

    theta: np.ndarray
    place: np.ndarray
    log_weight: float


def hyper_grid(best: np.ndarray, covariance: np.ndarray, hyper: Hyper) -> list[GridPoint]:
    """Return a 3 x 3 grid (Gauss-Hermite, scaled to the curvature) about the best hyperparameters, these first."""
    free, learned = np.flatnonzero(hyper.mixed), np.flatnonzero(hyper.free)
    if len(learned) > len(free):  # what is held is where it is best
        precision = np.linalg.inv(covariance[np.ix_(learned, learned)])
        inner = np.isin(learned, free)
        values, vectors = np.linalg.eigh(np.linalg.inv(precision[np.ix_(inner, inner)]))
    else:
        values, vectors = np.linalg.eigh(covariance[np.ix_(free, free)])
    root = vectors * np.sqrt(values)
    abscissa, quadrature = (0.0, np.sqrt(3.0), -np.sqrt(3.0)), (2 / 3, 1 / 6, 1 / 6)
    out = []
    for which in itertools.product(range(3), repeat=len(free)):
        x, theta = np.array([abscissa[i] for i in which]), best.copy()
        theta[free] += root @ x
        log_weight = float(sum(np.log(quadrature[i]) for i in which))
        out.append(GridPoint(np.clip(theta, hyper.lower, hyper.upper), x, log_weight))
    return out


def grid_weights(grid: list[GridPoint], scores: list[float]) -> np.ndarray:
    """Return the weights of a mixture from the bounds and priors of its grid, the best one's first.

    A grid point's weight is its quadrature weight times the ratio of its true to its Gaussian density.
    """
    logs = np.array([
        score - scores[0] + 0.5 * float(at.place @ at.place) + at.log_weight
        for at, score in zip(grid, scores, strict=True)
    ])  # fmt: skip
    weights = np.exp(logs - logs.max())
    return np.asarray(weights / weights.sum())


def _integrate(solver: Solver, best: Point, covariance: np.ndarray, client: Any) -> tuple[list[Point], np.ndarray]:
    """Return posteriors on a grid of hyperparameters and their weights."""
    grid = hyper_grid(best.theta, covariance, solver.hyper)
    points = {0: best}
    with open_workers(client, 1) as workers:
        # Others get a solver of their own, without the one who is told of its progress.
        own = solver if workers.n == 1 else Solver(solver.engine, solver.likelihood, solver.hyper, None)
        shared = workers.share(own), workers.share(best.found)
        points |= enumerate(workers.gather(_settled, [at.theta for at in grid[1:]], *shared), start=1)
    ordered = [points[k] for k in range(len(grid))]
    return ordered, grid_weights(grid, [point.score for point in ordered])


def _settled(theta: np.ndarray, solver: Solver, found: Guess) -> Point:
    """Return the posterior at other hyperparameters, from the moments at the best ones."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1, user_api="blas"):
        start = solver.at(theta, solver.sites_at(*found), found)
        return solver.settle(start, ROUGH, 20).point
