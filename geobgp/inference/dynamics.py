"""Dynamics: how the weights of features go on from period to period, each as a stationary AR(1).

Whitened weights z_j(t), of variance one, have the correlation a_j = exp(-Δ / τ_j) over a distance Δ in time:
τ_j = τ for separable dynamics, τ_j = τ / (1 + λ_j / κ²) for diffusive ones, where small patches fade sooner. The common
level of a period is one more weight, with a correlation time of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np

from geobgp.errors import DataError
from geobgp.prior.kernels import Kernel

DynamicsName = Literal["separable", "diffusive"]


def check_dynamics(name: str) -> None:
    """Say so if there are no dynamics of this name."""
    known = ("auto", *get_args(DynamicsName))
    if name not in known:
        raise DataError(
            f"dynamics is one of {', '.join(map(repr, known))}; found {name!r}.",
            option="dynamics",
            found=name,
        )


@dataclass(frozen=True, eq=False)
class Dynamics:
    """The kind of dynamics, for features and a level.

    Parameters
    ----------
    kind : "separable" or "diffusive"
    kernel : Kernel
    eigenvalues : (m,) array
    steps : (T - 1,) array
        Distances between neighbouring periods, in periods.
    level : bool
        Whether a common level of each period is the last weight of each block.
    """

    kind: DynamicsName
    kernel: Kernel
    eigenvalues: np.ndarray = field(repr=False)
    steps: np.ndarray = field(repr=False)
    level: bool = True

    def log_tau(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return log τ_j of every weight at θ, (M,), and its derivative in log ℓ."""
        fade, slope = np.zeros(len(self.eigenvalues)), np.zeros(len(self.eigenvalues))
        if self.kind == "diffusive":
            x = self.eigenvalues * np.exp(2.0 * theta[0]) / self.kernel.roughness
            fade, slope = np.log1p(x), -2.0 * x / (1.0 + x)
        out = theta[2] - fade
        return (np.append(out, theta[4]), np.append(slope, 0.0)) if self.level else (out, slope)

    def at(self, theta: np.ndarray) -> Transition:
        """Return the dynamics at θ = (log ℓ, log σ, log τ[, log level sd, log level τ])."""
        log_tau, slope = self.log_tau(theta)
        return Transition(self.steps[:, None] * np.exp(-log_tau), slope, self.level)


@dataclass(frozen=True, eq=False)
class Transition:
    """AR(1) processes of unit variance over T periods, one for each of M weights.

    Attributes
    ----------
    rate : (T - 1, M) array
        Δ / τ_j of each step.
    by_length : (M,) array
        Derivatives of log τ_j in log ℓ.
    """

    rate: np.ndarray
    by_length: np.ndarray
    level: bool

    @property
    def correlation(self) -> np.ndarray:
        """(T - 1, M): a = exp(-rate)."""
        return np.exp(-self.rate)

    @property
    def innovation(self) -> np.ndarray:
        """(T - 1, M): 1 - a², the variance of what is new after each step."""
        return -np.expm1(-2.0 * self.rate)

    def precision(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the prior precision Q: its diagonal (T, M), and that next to it (T - 1, M)."""
        a, new = self.correlation, self.innovation
        diagonal = np.ones((len(a) + 1, a.shape[1]))
        diagonal[1:] = 1.0 / new
        diagonal[:-1] += a**2 / new
        return diagonal, -a / new

    def log_det(self) -> float:
        """Return log|Q|."""
        return -float(np.log(self.innovation).sum())

    def times(self, z: np.ndarray) -> np.ndarray:
        """Return Q z, for z (T, M, k)."""
        diagonal, between = (part[:, :, None] for part in self.precision())
        out = diagonal * z
        out[1:] += between * z[:-1]
        out[:-1] += between * z[1:]
        return out

    def gradient(self, own: np.ndarray, lagged: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return derivatives of ½ log|Q| - ½ E zᵀQz: in the log variance of each weight, and in its log τ.

        Parameters
        ----------
        own : (T, M) array
            E z_j(t)².
        lagged : (T - 1, M) array
            E z_j(t) z_j(t + 1).
        """
        a, new = self.correlation, self.innovation
        left = own[1:] - 2.0 * a * lagged + a**2 * own[:-1]
        square = own[0] + (left / new).sum(axis=0)
        # d/da of -½ log(1 - a²) - ½ left / (1 - a²), and da / d log τ = a · rate.
        by_a = (a + lagged - a * own[:-1] - a * left / new) / new
        return 0.5 * (square - len(own)), (by_a * a * self.rate).sum(axis=0)
