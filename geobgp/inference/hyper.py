"""Hyperparameters: which are learned, within what bounds, and the search for their best values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from geobgp.prior.kernels import Kernel, Prior

#: Value, gradient and Hessian (None: not known) of an objective.
Derivatives = tuple[float, np.ndarray, np.ndarray | None]


#: The parameters of every kernel.
SPATIAL: tuple[str, ...] = ("lengthscale", "sd")
#: What the standard deviation of a covariate's effects is called, before its name.
EFFECTS = "effects of "


@dataclass(frozen=True, eq=False)
class Hyper:
    """θ: the logs of lengthscale and sd, and of what else the names say.

    Parameters
    ----------
    kernel : Kernel
    prior : PCPrior or NormalPrior
        Scaled to the domain.
    start, lower, upper : arrays
        Of θ; fixed parameters have start = lower = upper.
    noise_unit : float
        Scale of Gaussian noise.
    names : tuple of str
        Of the parameters: "lengthscale" and "sd" first; then "tau", "level_sd" and "level_tau" of a model in time; then
        "noise" of a Gaussian likelihood; last the standard deviations of effects that are learned.
    scaled : tuple of int arrays
        The columns of fixed effects whose prior each of these last ones is.
    rates : tuple of float
        Of their exponential priors, per `noise_unit`.

    Notes
    -----
    Noise and the level's sd have an exponential prior, P(> 3 units) = 0.05, as the sd has it. Correlation times have
    the penalised-complexity prior of a range in one dimension, P(τ < half a period) = 0.05: a map that stays as it is
    needs no explanation.
    """

    kernel: Kernel
    prior: Prior
    start: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    noise_unit: float = 1.0
    names: tuple[str, ...] = SPATIAL
    scaled: tuple[np.ndarray, ...] = ()
    rates: tuple[float, ...] = ()

    @classmethod
    def for_domain(
        cls,
        kernel: Kernel,
        size: float,
        cell_size: float,
        *,
        sd_unit: float = 1.0,
        noise: float | None = None,
        learn_noise: bool = False,
    ) -> Hyper:
        """Return the hyperparameters of a kernel on a domain of this size (square root of its area).

        Parameters
        ----------
        sd_unit : float
            Scale of f: 1 for log-intensities, the values' standard deviation for a Gaussian likelihood.
        noise : float, optional
            Standard deviation of Gaussian noise, if that is the likelihood and it is known.
        learn_noise : bool
            Whether there is noise to be learned.
        """
        prior = kernel.prior.scaled(size, cell_size, sd_unit)
        centre = [size / 10.0, sd_unit]
        low = [min(0.1 * cell_size, 1e-3 * size), 1e-4 * sd_unit]
        high = [100.0 * size, 1e3 * sd_unit]
        given = [kernel.lengthscale, kernel.sd]
        if noise is not None or learn_noise:
            centre.append(0.3 * sd_unit)
            low.append(1e-6 * sd_unit)
            high.append(1e2 * sd_unit)
            given.append(noise)
        pick = [
            [g if g is not None else value for g, value in zip(given, values, strict=True)]
            for values in (centre, low, high)
        ]
        start, lower, upper = (np.log(np.array(v, float)) for v in pick)
        names = SPATIAL + ("noise",) * (len(start) - 2)
        return cls(kernel, prior, start, lower, upper, sd_unit, names)

    def over_periods(self, n: int, level: bool, **given: float) -> Hyper:
        """Return the same with the parameters of a model over n periods; those that are given are held.

        Parameters
        ----------
        n : int
            Periods; of a single one nothing is learned.
        level : bool
            Whether each period has a level of its own.
        **given
            Values of `tau`, `level_sd` or `level_tau`.
        """
        middle = {"tau": (3.0, 0.05, 100.0 * n)}
        if level:
            unit = self.noise_unit
            middle |= {
                "level_sd": (0.5 * unit, 1e-3 * unit, 30.0 * unit),
                "level_tau": (max(n / 10.0, 3.0), 0.05, 100.0 * n),
            }
        rows = []
        for name, usual in middle.items():
            held = given.get(name, usual[0] if n == 1 else None)
            rows.append(usual if held is None else (held,) * 3)
        more = np.log(np.array(rows)).T
        first = len(SPATIAL)
        start, lower, upper = (
            np.insert(a, first, b) for a, b in zip((self.start, self.lower, self.upper), more, strict=True)
        )
        names = (*self.names[:first], *middle, *self.names[first:])
        return replace(self, start=start, lower=lower, upper=upper, names=names)

    def with_effects(self, scaled: Mapping[str, np.ndarray], rates: Sequence[float]) -> Hyper:
        """Return the same with standard deviations of effects that are learned.

        Parameters
        ----------
        scaled : mapping of covariate to (k,) int array
            The columns of fixed effects that have it.
        rates : sequence of float
            Of their exponential priors, per unit of the linear predictor.
        """
        if not scaled:
            return self
        rows = np.log(self.noise_unit * np.array([[0.3, 1e-3, 1e2]] * len(scaled))).T
        start, lower, upper = (np.append(a, b) for a, b in zip((self.start, self.lower, self.upper), rows, strict=True))
        names = self.names + tuple(EFFECTS + name for name in scaled)
        return replace(
            self, start=start, lower=lower, upper=upper, names=names, scaled=tuple(scaled.values()), rates=tuple(rates)
        )

    @property
    def learned(self) -> tuple[tuple[int, np.ndarray], ...]:
        """Which parameter is the sd of which columns of fixed effects."""
        first = len(self.names) - len(self.scaled)
        return tuple((first + i, columns) for i, columns in enumerate(self.scaled))

    @property
    def mixed(self) -> np.ndarray:
        """Which parameters a mixture integrates over: those that are learned, but for the sds of effects."""
        return self.free & (np.arange(len(self.names)) < len(self.names) - len(self.scaled))

    @property
    def noise_at(self) -> int | None:
        """Which parameter is the noise; None where there is none."""
        return self.names.index("noise") if "noise" in self.names else None

    def held(self, theta: np.ndarray, names: tuple[str, ...]) -> Hyper:
        """Return the same with some parameters held where θ has them."""
        here = np.isin(self.names, names)
        start, lower, upper = (np.where(here, theta, v) for v in (theta, self.lower, self.upper))
        return replace(self, start=start, lower=lower, upper=upper)

    @property
    def free(self) -> np.ndarray:
        """Which parameters are learned."""
        return self.upper > self.lower

    def capped(self, longest: float) -> Hyper:
        """Return the same with no lengthscale beyond `longest`."""
        cap = np.full(len(self.start), np.inf)
        cap[0] = math.log(longest)
        start, lower, upper = (np.minimum(v, cap) for v in (self.start, self.lower, self.upper))
        return replace(self, start=start, lower=lower, upper=upper)

    def log_prior(self, theta: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """Return the log prior density of the learned parameters (in θ), its gradient and Hessian."""
        value, first, second = self.prior.log_density(theta)
        rows = [value, first, second]
        usual = [_SD_RATE] * (len(self.names) - len(self.rates)) + list(self.rates)
        for name, rate, at in list(zip(self.names, usual, theta, strict=True))[2:]:
            timed = name in ("tau", "level_tau")
            own_prior = _time_prior(at) if timed else _sd_prior(at, rate / self.noise_unit)
            rows = [np.append(part, extra) for part, extra in zip(rows, own_prior, strict=True)]
        value, first, second = rows
        free = self.free
        return float(value[free].sum()), np.where(free, first, 0.0), np.diag(np.where(free, second, 0.0))


#: The rate with which P(sd > 3 units) = 0.05.
_SD_RATE = -math.log(0.05) / 3.0


def _sd_prior(log_sd: float, rate: float) -> tuple[float, float, float]:
    """Return the log density of a log sd that is exponential with a rate, and two derivatives."""
    v = rate * math.exp(log_sd)
    return math.log(rate) + log_sd - v, 1.0 - v, -v


def _time_prior(log_tau: float) -> tuple[float, float, float]:
    """Return the log density of a log correlation time, P(τ < half a period) = 0.05, and two derivatives."""
    rate = -math.log(0.05) * math.sqrt(0.5)
    u = rate * math.exp(-0.5 * log_tau)
    return math.log(0.5 * rate) - 0.5 * log_tau - u, 0.5 * (u - 1.0), -0.25 * u


def maximise(
    objective: Callable[[np.ndarray], Derivatives],
    start: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    *,
    curvature: np.ndarray | None = None,
    max_evaluations: int = 30,
    min_gain: float = 1e-12,
) -> tuple[np.ndarray, Derivatives, np.ndarray]:
    """Climb from `start` by Newton steps of length at most 1, within bounds.

    Where the objective is not concave the step goes along the gradient, scaled by the curvature's size.

    Parameters
    ----------
    objective : callable
        Value, gradient and Hessian; None for a Hessian that is not known.
    curvature : array, optional
        Hessian to begin with where it is not known; it is corrected on the way (BFGS).
    worth : float
        Steps that promise less are not taken.

    Returns
    -------
    theta, (value, gradient, Hessian or None) there, the last Hessian or what is taken for it
    """
    theta = np.clip(start, lower, upper)
    current = objective(theta)
    used = 1
    bent = -np.eye(len(theta)) if curvature is None else curvature
    while used < max_evaluations:
        value, gradient, hessian = current
        bent = bent if hessian is None else hessian
        free = (upper > lower) & ~((theta <= lower) & (gradient < 0)) & ~((theta >= upper) & (gradient > 0))
        if not free.any():
            break
        step = np.zeros_like(theta)
        step[free] = newton_step(gradient[free], bent[np.ix_(free, free)])
        if 0.5 * float(step @ gradient) < min_gain:
            break
        moved = False
        while used < max_evaluations and not moved:
            trial = np.clip(theta + step, lower, upper)
            new = objective(trial)
            used += 1
            if new[2] is None and np.isfinite(new[0]):
                bent = bfgs(bent, trial - theta, new[1] - gradient, free)
            moved = bool(np.isfinite(new[0]) and new[0] >= value - 1e-12 * abs(value))
            if not moved:
                step *= 0.25
        if not moved:
            break
        theta, current = trial, new
    return theta, current, bent if current[2] is None else current[2]


def bfgs(hessian: np.ndarray, step: np.ndarray, change: np.ndarray, free: np.ndarray) -> np.ndarray:
    """Return a negative definite Hessian that explains how the gradient changed along a step."""
    step, change = np.where(free, step, 0.0), np.where(free, change, 0.0)
    along = hessian @ step
    size = float(step @ along)
    if not float(step @ change) < 0.05 * size or size >= 0:
        return hessian
    return hessian - np.outer(along, along) / size + np.outer(change, change) / float(step @ change)


def differences(
    objective: Callable[[np.ndarray], Derivatives], theta: np.ndarray, free: np.ndarray, step: float = 0.02
) -> np.ndarray:
    """Return the Hessian from gradients a small step to either side; -1 on the diagonal of what is not free."""
    out = -np.eye(len(theta))
    for i in np.flatnonzero(free):
        ahead, behind = theta.copy(), theta.copy()
        ahead[i] += step
        behind[i] -= step
        out[i] = np.where(free, (objective(ahead)[1] - objective(behind)[1]) / (2.0 * step), 0.0)
    return 0.5 * (out + out.T)


def negative(hessian: np.ndarray) -> np.ndarray:
    """Return the matrix with the signs of its eigenvalues made negative, none of them tiny."""
    values, vectors = np.linalg.eigh(hessian)
    size = np.maximum(np.abs(values), 1e-8 + 1e-6 * np.abs(values).max())
    return -(vectors * size) @ vectors.T


def newton_step(gradient: np.ndarray, hessian: np.ndarray, longest: float = 1.0) -> np.ndarray:
    """Return an ascent step -H⁻¹g, H made negative definite, at most `longest` long."""
    step = np.linalg.solve(-negative(hessian), gradient)
    return step * min(1.0, longest / max(float(np.linalg.norm(step)), 1e-300))
