"""The same LGCP fitted by GPflow: `LGCP.fit(counts, engine="gpflow")`.

For given hyperparameters, natural gradients find the posterior of the weights; the hyperparameters climb the
bound so reached, whose gradient is the bound's own (the posterior being at its optimum). NumPy comes out: the
result is the `Fit` that geobgp's own engine gives.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from geobgp.errors import ConvergenceWarning, DataError, warn
from geobgp.gpflow.loading import load_gpflow
from geobgp.inference.dense import FeatureEngine
from geobgp.inference.families import Likelihood
from geobgp.inference.fit import Fit, grid_weights, hyper_grid
from geobgp.inference.hyper import Hyper, newton_step
from geobgp.inference.problem import PlaceProblem
from geobgp.inference.states import FeatureState, hyper_numbers
from geobgp.prior.kernels import Kernel, Matern, SquaredExponential
from geobgp.progress import Stage

load_gpflow()

import gpflow  # noqa: E402
import tensorflow as tf  # noqa: E402
import tensorflow_probability as tfp  # noqa: E402

from geobgp.gpflow.models import GPflowMatern, HarmonicFeatures, HarmonicKernel, NodeMean  # noqa: E402

if TYPE_CHECKING:
    from geobgp.data.counts import Counts
    from geobgp.model import LGCP

__all__ = ["fit_svgp", "lgcp_svgp"]

#: A natural-gradient step that gains less than this (in nats) is the last.
TOLERANCE = 1e-7
#: Some ten steps are enough, but hundreds where a natural prior is wide: on islets without events.
MAX_STEPS = 400
#: Moves of the hyperparameters, at most, and the gradient of the bound at which they end.
MAX_MOVES = 50
FLAT = 5e-3


def lgcp_svgp(
    model: LGCP, counts: Counts | np.ndarray, *, likelihood: Any = None, centre: float | None = None
) -> tuple[Any, tuple[np.ndarray, np.ndarray]]:
    """Return a GPflow SVGP model of an LGCP, and its data; train it as any other.

    Features and fixed effects are the inducing variables, and the exposure is in the mean. The kernel starts
    at the LGCP's parameters, which are not trainable then, or at its defaults for the domain, which are.

    Parameters
    ----------
    model : LGCP
        With a HarmonicBasis.
    counts : Counts or (n_nodes,) array
    likelihood : gpflow.likelihoods.Likelihood, optional
        Of the counts, whose mean is exp(f); Poisson by default.
    centre : float, optional
        Constant added to f; by default the log of the overall rate.

    Returns
    -------
    svgp, (X, Y)
        X are indices of the nodes with exposure, (n, 1), and Y their counts.
    """
    values = np.asarray(counts, float)
    if centre is None:
        centre = float(np.log((values.sum() or 0.5) / model.seen_exposure.sum()))
    problem = model._problem(values)
    problem = replace(problem, centre=centre)  # type: ignore[type-var]
    return _svgp(problem, model.kernel, likelihood)  # type: ignore[arg-type]


def _svgp(problem: PlaceProblem, kernel: Kernel, likelihood: Any = None) -> tuple[Any, tuple[np.ndarray, np.ndarray]]:
    """Return the GPflow model of counts at all nodes, and its data."""
    engine = _engine(problem)
    basis, seen, values = engine.basis, problem.size, problem.values
    features = HarmonicFeatures(basis, fixed=engine.columns, fixed_sd=engine.fixed_precision**-0.5)
    size = float(np.sqrt(basis.domain.node_areas.sum()))
    prior = HarmonicKernel(_gpflow_kernel(kernel, size), features, scaling=engine.scaling)
    exposed = np.flatnonzero(seen > 0)
    offset = np.zeros(len(values))
    offset[exposed] = np.log(seen[exposed]) + problem.centre
    svgp = gpflow.models.SVGP(
        prior,
        gpflow.likelihoods.Poisson() if likelihood is None else likelihood,
        features,
        mean_function=NodeMean(features, offset),
        # Far inside the prior, whose variance would make the rates overflow.
        q_sqrt=0.1 * np.eye(features.num_inducing)[None],
    )
    return svgp, (exposed[:, None].astype(float), values[exposed, None])


def _engine(problem: PlaceProblem) -> FeatureEngine:
    if not isinstance(problem.engine, FeatureEngine):
        raise DataError("GPflow needs features, and FullRank has none. Give the LGCP a HarmonicBasis.")
    return problem.engine


def _gpflow_kernel(kernel: Kernel, size: float) -> Any:
    """Return the same kernel for GPflow; what is not given starts at the default for a domain's size."""
    lengthscale, sd = kernel.lengthscale or size / 10.0, kernel.sd or 1.0
    if isinstance(kernel, Matern):
        own = {0.5: gpflow.kernels.Matern12, 1.5: gpflow.kernels.Matern32, 2.5: gpflow.kernels.Matern52}.get(kernel.nu)
        base = own() if own is not None else GPflowMatern(kernel.nu)
    elif isinstance(kernel, SquaredExponential):
        base = gpflow.kernels.SquaredExponential()
    else:
        raise DataError(f"GPflow has no kernel like {kernel.name}.", remedy="Use Matern or SquaredExponential.")
    base.variance = gpflow.Parameter(sd**2, transform=tfp.bijectors.Exp())
    base.lengthscales.assign(lengthscale)
    gpflow.set_trainable(base.lengthscales, kernel.lengthscale is None)
    gpflow.set_trainable(base.variance, kernel.sd is None)
    return base


@dataclass(frozen=True, eq=False)
class _Point:
    """The best posterior for one value of the hyperparameters."""

    theta: np.ndarray
    weights: tuple[Any, ...]  # GPflow's own variables of q_mu and q_sqrt: to set these costs next to nothing
    elbo: float
    score: float
    gradient: np.ndarray
    converged: bool


class GPflowProfile:
    """The bound, maximised over the posterior of the weights, as a function of θ = (log ℓ, log σ)."""

    def __init__(self, svgp: Any, data: Any, hyper: Hyper, stage: Stage | None = None) -> None:
        self.svgp, self.hyper, self.stage = svgp, hyper, stage or Stage()
        self.steps = 0
        self.scores: list[float] = []
        x, y = (tf.constant(part, tf.float64) for part in data)
        self._share = tf.Variable(1.0, dtype=tf.float64, trainable=False)
        natural = gpflow.optimizers.NaturalGradient(gamma=self._share)
        self._variables = tuple(q.unconstrained_variable for q in (svgp.q_mu, svgp.q_sqrt))
        base = svgp.kernel.base
        logs = [base.lengthscales.unconstrained_variable, base.variance.unconstrained_variable]

        @tf.function  # type: ignore[untyped-decorator]
        def step() -> tf.Tensor:
            natural.minimize(lambda: -svgp.elbo((x, y)), [(svgp.q_mu, svgp.q_sqrt)])
            return svgp.elbo((x, y))

        @tf.function  # type: ignore[untyped-decorator]
        def value() -> tf.Tensor:
            return svgp.elbo((x, y))

        @tf.function  # type: ignore[untyped-decorator]
        def slope() -> tf.Tensor:
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(logs)
                elbo = svgp.elbo((x, y))
            return tf.stack(tape.gradient(elbo, logs))

        self._step, self._value, self._slope = step, value, slope

    def _set(self, theta: np.ndarray) -> None:
        self.svgp.kernel.base.lengthscales.assign(np.exp(theta[0]))
        self.svgp.kernel.base.variance.assign(np.exp(2.0 * theta[1]))

    def restore(self, point: _Point) -> None:
        """Give the model the hyperparameters and the posterior of a point."""
        self._set(point.theta)
        self._assign(point.weights)

    def _hold(self) -> tuple[Any, ...]:
        return tuple(variable.numpy() for variable in self._variables)

    def _assign(self, weights: tuple[Any, ...]) -> None:
        for variable, value in zip(self._variables, weights, strict=True):
            variable.assign(value)

    def _try(self, share: float) -> float:
        """Take a step of this share; return the bound there, or -inf if there is no such posterior."""
        self._share.assign(share)
        self.steps += 1
        try:
            elbo = float(self._step())
        except tf.errors.InvalidArgumentError:  # a covariance that is none
            return -np.inf
        return elbo if np.isfinite(elbo) else -np.inf

    def at(self, theta: np.ndarray, start: _Point | None = None, tolerance: float = TOLERANCE) -> _Point:
        """Return the best posterior for θ, from that of another θ."""
        self._set(theta)
        if start is not None:
            self._assign(start.weights)
        elbo, gain, share, converged = float(self._value()), np.inf, 1.0, False
        held = self._hold()
        for _ in range(MAX_STEPS):
            new = self._try(share)
            if not new >= elbo - 1e-10 * abs(elbo):
                self._assign(held)
                share *= 0.5
                if share < 1e-8:
                    break
                continue
            before, gain, elbo = gain, new - elbo, new
            held = self._hold()
            if share >= 0.5 and gain < max(tolerance, 1e-13 * abs(elbo)):
                converged = True
                break
            # Full steps that gain little by little go to and fro around the top: half a step lands on it.
            share = 0.5 if share == 1.0 and gain > 0.2 * before else min(1.0, 2.0 * share)
        prior, first, _ = self.hyper.log_prior(theta)
        gradient = self._slope().numpy() * (1.0, 2.0) + first
        self.scores.append(elbo + prior)
        self.stage.tell(f"natural-gradient step {self.steps}: ELBO {elbo:,.4f}")
        return _Point(np.array(theta), held, elbo, elbo + prior, gradient, converged)

    def climb(self) -> tuple[_Point, bool, str]:
        """Return the best point over the free hyperparameters, whether it is one, and words about it."""
        free = self.hyper.free
        most = loose = 1e-2 if free.any() else TOLERANCE
        best = self.at(self.hyper.start, tolerance=loose)
        if not free.any():
            return best, best.converged, self._words(best.converged)
        curvature = -np.eye(len(free)) * np.abs(best.gradient).max()
        flat = False
        for _ in range(MAX_MOVES):
            lower, upper = best.theta <= self.hyper.lower, best.theta >= self.hyper.upper
            stuck = ~free | (lower & (best.gradient < 0)) | (upper & (best.gradient > 0))
            steep = float(np.abs(np.where(stuck, 0.0, best.gradient)).max())
            flat = steep < FLAT and loose == TOLERANCE
            if flat:
                break
            # Far from the top the posterior need not be found to the last digit.
            loose = min(most, max(TOLERANCE, 1e-4 * steep**2))
            if steep < FLAT:
                best = self.at(best.theta, best, loose)
                continue
            step = np.zeros(len(free))
            step[~stuck] = newton_step(best.gradient[~stuck], curvature[np.ix_(~stuck, ~stuck)])
            for _ in range(12):
                point = self.at(np.clip(best.theta + step, self.hyper.lower, self.hyper.upper), best, loose)
                if point.score > best.score:
                    break
                step *= 0.25
            else:
                if loose == TOLERANCE:
                    flat = steep < 10.0 * FLAT
                    break
                most = TOLERANCE
                best = self.at(best.theta, best, most)
                continue
            # The symmetric rank-one update of the curvature.
            moved = point.theta - best.theta
            residual = point.gradient - best.gradient - curvature @ moved
            size = float(residual @ moved)
            if abs(size) > 1e-8 * np.linalg.norm(residual) * np.linalg.norm(moved):
                curvature = curvature + np.outer(residual, residual) / size
            best = point
        converged = flat and best.converged
        return best, converged, self._words(converged)

    def _words(self, converged: bool) -> str:
        return f"{'converged in' if converged else 'no optimum after'} {self.steps} natural-gradient steps"

    def covariance(self, best: _Point, step: float = 0.05) -> np.ndarray:
        """Return the covariance of θ from the curvature of the profile; zero where fixed."""
        free = np.flatnonzero(self.hyper.free)
        out = np.zeros((len(best.theta),) * 2)
        if len(free) == 0:
            return out
        hessian = np.empty((len(free), len(free)))
        for i, k in enumerate(free):
            change = step * np.eye(len(best.theta))[k]
            up, down = self.at(best.theta + change, best), self.at(best.theta - change, best)
            hessian[i] = (up.gradient - down.gradient)[free] / (2.0 * step)
        values, vectors = np.linalg.eigh(0.5 * (hessian + hessian.T))
        # As in geobgp's own engine: a standard deviation of at most 3.
        out[np.ix_(free, free)] = (vectors / np.maximum(-values, 1.0 / 9.0)) @ vectors.T
        return out

    def integrate(self, best: _Point, covariance: np.ndarray) -> tuple[list[_Point], np.ndarray]:
        """Return posteriors on a 3 x 3 Gauss-Hermite grid, the best one first, and their weights."""
        grid = hyper_grid(best.theta, covariance, self.hyper)
        points = [best, *(self.at(at.theta, best) for at in grid[1:])]
        return points, grid_weights(grid, [point.score for point in points])


def fit_svgp(
    problem: PlaceProblem, hyper: Hyper, *, integrate: bool = False, stage: Stage | None = None, **how: Any
) -> tuple[Fit, Likelihood]:
    """Fit Poisson counts at all nodes with GPflow; as `fit_family` does it with geobgp's own engine.

    Parameters
    ----------
    problem : PlaceProblem
    hyper : Hyper
        Which hyperparameters are free, their bounds and priors.
    integrate : bool
        Mix posteriors over a small grid of hyperparameters instead of taking the best ones.
    stage : Stage, optional
        Told of the bound now and then, in words.
    **how
        What has no meaning here: where to begin, tolerances.
    """
    begin, engine = time.perf_counter(), _engine(problem)
    svgp, data = _svgp(problem, engine.kernel)
    profile = GPflowProfile(svgp, data, hyper, stage)
    best, converged, message = profile.climb()
    trace = np.maximum.accumulate(profile.scores)
    covariance = profile.covariance(best)
    points, weights = [best], np.ones(1)
    if integrate and hyper.free.any():
        points, weights = profile.integrate(best, covariance)
    states = []
    for point, weight in zip(points, weights, strict=True):
        profile.restore(point)
        states.append(_state(point.theta, svgp, problem, weight))
    if not converged:
        warn(ConvergenceWarning(f"The fit did not converge: {message}."))
    result = Fit(
        states=tuple(states),
        elbo=best.elbo,
        elbo_trace=trace,
        converged=converged,
        message=message,
        hyper_mean=best.theta,
        hyper_cov=covariance,
        truncated_variance=engine.truncated_variance(best.theta),
        seconds={"total": time.perf_counter() - begin},
        rounds=profile.steps,
    )
    return result, problem.family


def _state(theta: np.ndarray, svgp: Any, problem: PlaceProblem, weight: float) -> FeatureState:
    """Return GPflow's posterior of whitened weights as a state that stands by itself."""
    engine = _engine(problem)
    basis = engine.basis
    scale = svgp.kernel.scales().numpy()
    scale[: basis.m] *= np.exp(0.5 * svgp.kernel.features.log_area)
    half = scale[:, None] * np.tril(svgp.q_sqrt.numpy()[0])
    return FeatureState.from_joint(
        scale * svgp.q_mu.numpy()[:, 0],
        half @ half.T,
        scale[: basis.m],
        **hyper_numbers(theta, weight, None),
        centre=problem.centre,
        fixed=engine.columns,
        even=engine.scaling == "even",
        basis=basis,
    )
