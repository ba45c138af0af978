"""Kernels: spectral densities at the Laplacian's eigenvalues, and priors on their parameters.

Both kernels are written in two dimensions as

    s(ω) = σ² · 2πℓ² · shape(ω² ℓ²)

with shape(q) = (1 + q / 2ν)^-(ν + 1) for the Matern kernel and exp(-q / 2) for the squared exponential,
its limit for large ν. Everything inside works in logarithms, so that neither a tiny density nor a huge
lengthscale under- or overflows.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from scipy.special import j0

from geobgp.errors import GeobgpError
from geobgp.validation import Family, Rule, a, as_floats, check, real, validated


def _pair(value: Any) -> tuple[float, float]:
    bound, alpha = value
    return real(above=0.0).take(bound), real(above=0.0, below=1.0).take(alpha)


_PAIR = Rule("a pair: a bound above 0 and a probability between 0 and 1", _pair)


@dataclass(frozen=True)
class PCPrior:
    """Penalised-complexity priors of a kernel's parameters (Fuglstad et al. 2019, two dimensions).

    P(lengthscale < l0) = alpha and P(sd > s0) = alpha: long lengthscales and small standard deviations,
    the simple maps, are preferred until the data say otherwise.

    Parameters
    ----------
    lengthscale : (float, float), optional
        (l0, alpha), l0 in the domain's unit (metres). By default l0 is a fiftieth of the domain's size
        (the square root of its area), at least one cell, and alpha 0.05.
    sd : (float, float), optional
        (s0, alpha). By default s0 is 3 (times the standard deviation of the values, for a Gaussian
        likelihood) and alpha 0.05.

    Examples
    --------
    >>> prior = PCPrior(lengthscale=(2000.0, 0.05), sd=(3.0, 0.01))
    >>> round(prior.rates()[0])
    5991
    """

    lengthscale: tuple[float, float] | None = None
    sd: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        for name in ("lengthscale", "sd"):
            object.__setattr__(self, name, check(name, getattr(self, name), _PAIR))

    def scaled(self, size: float, cell_size: float, sd_unit: float = 1.0) -> PCPrior:
        """Return the same prior with what was left open set for a domain of this size."""
        return PCPrior(self.lengthscale or (max(size / 50.0, cell_size), 0.05), self.sd or (3.0 * sd_unit, 0.05))

    def rates(self) -> tuple[float, float]:
        """Return the two rates: of exp(-rate / ℓ) and of exp(-rate · σ)."""
        if self.lengthscale is None or self.sd is None:
            raise GeobgpError("This prior is not scaled to a domain yet; call `scaled` first.")
        (l0, a), (s0, b) = self.lengthscale, self.sd
        return -math.log(a) * l0, -math.log(b) / s0

    def log_density(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the log densities of log ℓ and of log σ at θ, with their first and second derivatives."""
        a, b = self.rates()
        u, v = a * math.exp(-theta[0]), b * math.exp(theta[1])
        value = np.array([math.log(a) - theta[0] - u, math.log(b) + theta[1] - v])
        return value, np.array([u - 1.0, 1.0 - v]), np.array([-u, -v])


#: A parameter of a kernel.
_SIZE = replace(real(least=1e-20, most=1e20), words="a positive number, from 1e-20 to 1e20")
_LEARNED = replace(_SIZE, words="a positive number (from 1e-20 to 1e20) or None (learn it)")


@dataclass(frozen=True)
class NormalPrior:
    """Normal priors of log lengthscale and log sd: what many maps together have taught of them.

    Parameters
    ----------
    log_lengthscale, log_sd : (float, float)
        Mean and standard deviation.

    Examples
    --------
    >>> prior = NormalPrior((math.log(5000.0), 0.5), (0.0, 0.3))
    >>> prior.log_density(np.array([math.log(5000.0), 0.3]))[1].round(2).tolist()
    [-0.0, -3.33]
    """

    log_lengthscale: tuple[float, float]
    log_sd: tuple[float, float]

    def __post_init__(self) -> None:
        for name in ("log_lengthscale", "log_sd"):
            mean, sd = getattr(self, name)
            if not (math.isfinite(mean) and math.isfinite(sd) and sd > 0):
                raise GeobgpError(f"The prior of {name} is (mean, sd > 0); found {getattr(self, name)}.")

    def scaled(self, size: float, cell_size: float, sd_unit: float = 1.0) -> NormalPrior:
        """Return the same prior: nothing is left open."""
        return self

    def log_density(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the log densities of log ℓ and of log σ at θ, with their first and second derivatives."""
        mean, sd = np.array([self.log_lengthscale, self.log_sd]).T
        z = (theta[:2] - mean) / sd
        return -0.5 * z**2 - np.log(sd * math.sqrt(2.0 * math.pi)), -z / sd, -(sd**-2.0)


#: What a prior of the learned parameters can be.
Prior = PCPrior | NormalPrior


#: Every kernel, by the name that it is stored under.
KERNELS: Family[Kernel] = Family("kernel")


class Kernel(ABC):
    """A stationary covariance, known by its spectral density; use `Matern` or `SquaredExponential`.

    A new one is a frozen dataclass that derives from this class; it says what its `log_shape`, `truncated_variance`
    and `name` are, and is stored under its own name.

    Parameters
    ----------
    lengthscale : float, optional
        In the unit of the domain (metres). None: learned.
    sd : float, optional
        Standard deviation of the process away from the shore. None: learned.
    prior : PCPrior or NormalPrior
        Priors of the parameters that are learned.
    """

    lengthscale: float | None
    sd: float | None
    prior: Prior

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        KERNELS.add(cls)

    def __post_init__(self) -> None:
        for name in ("lengthscale", "sd"):
            object.__setattr__(self, name, check(name, getattr(self, name), _LEARNED))
        a("PCPrior", "NormalPrior")("prior", self.prior)

    @validated(lengthscale=_SIZE, sd=_SIZE)
    def with_parameters(self, lengthscale: float, sd: float) -> Self:
        """Return the same kernel with both parameters fixed."""
        return replace(self, lengthscale=float(lengthscale), sd=float(sd))  # type: ignore[type-var]

    def spectral_density(self, omega: np.ndarray) -> np.ndarray:
        """Return the spectral density at angular frequencies (1/length); both parameters must be set.

        Examples
        --------
        >>> Matern(1.5, lengthscale=2.0, sd=1.0).spectral_density(np.array([0.0, 1.0])).round(3)
        array([25.133,  3.022])
        """
        if self.lengthscale is None or self.sd is None:
            raise GeobgpError(
                "spectral_density needs numbers; this kernel's lengthscale or sd is None (to be learned). "
                "Give both, for example with_parameters(lengthscale, sd)."
            )
        theta = np.log([self.lengthscale, self.sd])
        return np.exp(self.log_density(np.square(as_floats("omega", omega)), theta)[0])

    def correlation(self, distance: np.ndarray | float) -> np.ndarray:
        """Return the correlation of two places on open land, far from every shore; the lengthscale must be set.

        It is the Hankel transform of the spectral density, by a sum: right to 2e-5 for every smoothness from ½ on.

        Examples
        --------
        >>> Matern(1.5, lengthscale=2.0).correlation(np.array([0.0, 2.0, 20.0])).round(3)
        array([1.   , 0.483, 0.   ])
        """
        if self.lengthscale is None:
            raise GeobgpError("correlation needs a number; this kernel's lengthscale is None (to be learned).")
        away = np.abs(as_floats("distance", distance)) / self.lengthscale
        log_q = np.linspace(-30.0, 30.0, 6_001)
        weight = np.exp(self.log_shape(np.exp(log_q))[0] + log_q)
        share, omega = weight / weight.sum(), np.exp(0.5 * log_q)
        return np.array([share @ j0(omega * r) for r in away.ravel()]).reshape(away.shape)

    def log_density(self, eigenvalues: np.ndarray, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return log s at eigenvalues ω² for θ = (log ℓ, log σ), and its first two derivatives in log ℓ.

        The derivative in log σ is 2, everywhere.
        """
        with np.errstate(over="ignore"):
            q = np.asarray(eigenvalues, float) * math.exp(2.0 * theta[0])
        shape, first, second = self.log_shape(q)
        return 2.0 * theta[1] + math.log(2.0 * math.pi) + 2.0 * theta[0] + shape, 2.0 + first, second

    @property
    def sparse(self) -> bool:
        """Whether the precision matrix is sparse, as full resolution needs it."""
        return False

    @property
    def roughness(self) -> float:
        """κ² ℓ²: how fast the density falls at eigenvalues beyond 1 / ℓ²."""
        return 1.0

    @abstractmethod
    def truncated_variance(self, eigenvalue: float, lengthscale: float) -> float:
        """Return the share of the prior variance beyond `eigenvalue` (two dimensions, Weyl's law)."""

    def eigenvalue_needed(self, lengthscale: float, share: float) -> float:
        """Return the eigenvalue beyond which `share` of the prior variance lies.

        Examples
        --------
        >>> kernel = SquaredExponential()
        >>> round(kernel.truncated_variance(kernel.eigenvalue_needed(2.0, 0.05), 2.0), 9)
        0.05
        """
        from scipy.optimize import brentq

        # All that matters is q = eigenvalue · lengthscale².
        log_q = brentq(lambda u: self.truncated_variance(math.exp(u), 1.0) - share, -50.0, 600.0, xtol=1e-13)
        return math.exp(log_q) / lengthscale**2

    @abstractmethod
    def log_shape(self, q: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return log shape(q) and its first two derivatives in log ℓ, where q = ω² ℓ²."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Short name for reports."""


@dataclass(frozen=True)
class Matern(Kernel):
    """The Matern kernel of smoothness `nu` > 0 in two dimensions.

    Parameters
    ----------
    nu : float
        Smoothness. 1.5 by default; `FullRank` takes 1 and 2.
    lengthscale, sd : float, optional
        In metres (the domain's unit), and in units of the log-intensity; None means learned.
    prior : PCPrior
        Penalised-complexity priors of what is learned.

    Examples
    --------
    >>> Matern(1.5, lengthscale=20_000.0)
    Matern(nu=1.5, lengthscale=20000.0, sd=None, prior=PCPrior(lengthscale=None, sd=None))
    """

    nu: float = 1.5
    lengthscale: float | None = None
    sd: float | None = None
    prior: Prior = PCPrior()

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "nu", real(above=0.0)("nu", self.nu))

    @property
    def sparse(self) -> bool:
        """Whether the precision matrix is sparse: for smoothness 1 and 2."""
        return self.nu in (1.0, 2.0)

    @property
    def roughness(self) -> float:
        """κ² ℓ² = 2ν."""
        return 2.0 * self.nu

    def log_shape(self, q: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return log shape(q) = -(ν + 1) log(1 + q / 2ν), with two derivatives in log ℓ."""
        x = q / (2.0 * self.nu)
        power = self.nu + 1.0
        share = 1.0 - 1.0 / (1.0 + x)
        return -power * np.log1p(x), -2.0 * power * share, -4.0 * power * share * (1.0 - share)

    def truncated_variance(self, eigenvalue: float, lengthscale: float) -> float:
        """Return (1 + λ ℓ² / 2ν)^-ν."""
        return float(np.exp(-self.nu * np.log1p(eigenvalue * lengthscale**2 / (2.0 * self.nu))))

    @property
    def name(self) -> str:
        """Short name for reports."""
        return f"Matern {self.nu:g}"


@dataclass(frozen=True)
class SquaredExponential(Kernel):
    """The squared exponential (Gaussian) kernel: infinitely smooth maps.

    Examples
    --------
    >>> SquaredExponential(lengthscale=2.0, sd=1.0).spectral_density(np.array([0.0])).round(3)
    array([25.133])
    """

    lengthscale: float | None = None
    sd: float | None = None
    prior: Prior = PCPrior()

    def log_shape(self, q: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return log shape(q) = -q / 2, with two derivatives in log ℓ."""
        return -0.5 * q, -q, -2.0 * q

    def truncated_variance(self, eigenvalue: float, lengthscale: float) -> float:
        """Return exp(-λ ℓ² / 2)."""
        return math.exp(-0.5 * eigenvalue * lengthscale**2)

    @property
    def name(self) -> str:
        """Short name for reports."""
        return "squared exponential"
