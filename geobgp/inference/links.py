"""Links: from the linear predictor to the quantity that is mapped, and back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
from scipy.special import expit, logit, ndtr, ndtri, owens_t, roots_hermitenorm

from geobgp.inference.mixture import NormalMixture

#: Gauss-Hermite points of a standard normal and their weights, for all expectations without a closed form.
POINTS, WEIGHTS = roots_hermitenorm(40)
WEIGHTS = WEIGHTS / WEIGHTS.sum()


class Link(ABC):
    """An increasing function from the linear predictor η to the quantity that is mapped.

    Because it increases, quantiles and probabilities of exceeding are exact for every link; mean and standard deviation
    have a closed form for most, and are Gauss-Hermite sums otherwise.

    Attributes
    ----------
    name : str
        As users write it.
    ratio : str or None
        What the exponential of a coefficient is: "rate ratio", "odds ratio", or nothing that has a name.
    lowest, highest : float
        Ends of the range of the quantity.
    """

    name: ClassVar[str]
    ratio: ClassVar[str | None] = None
    lowest: ClassVar[float] = -np.inf
    highest: ClassVar[float] = np.inf

    def __repr__(self) -> str:
        return self.name.upper()

    def __reduce__(self) -> str:
        return self.name.upper()  # links are compared by identity, in other processes too

    @abstractmethod
    def inverse(self, eta: np.ndarray) -> np.ndarray:
        """Return the quantity at a linear predictor."""

    @abstractmethod
    def _forward(self, mean: np.ndarray) -> np.ndarray:
        """Return the linear predictor at a quantity within the range."""

    @abstractmethod
    def _log_slope(self, value: np.ndarray) -> np.ndarray:
        """Return the log of the derivative of the linear predictor in the quantity, at quantities in the range."""

    @abstractmethod
    def moments(self, mixture: NormalMixture) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of the quantity where η is a mixture of normals, (n,) each."""

    def forward(self, mean: np.ndarray | float) -> np.ndarray:
        """Return the linear predictor at a quantity; infinite at the ends of the range and beyond them."""
        with np.errstate(divide="ignore"):
            return self._forward(np.clip(mean, self.lowest, self.highest))

    def log_slope(self, value: np.ndarray) -> np.ndarray:
        """Return the log of the derivative of the linear predictor in the quantity: log |Jacobian| of a transform."""
        with np.errstate(divide="ignore"):
            return self._log_slope(np.asarray(value, float))

    def reciprocal_moments(self, mixture: NormalMixture) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and mean square of one over the quantity, (n,) each; NaN where they are infinite or unknown."""
        unknown = np.full(mixture.mu.shape[1], np.nan)
        return unknown, unknown

    def mean(self, mixture: NormalMixture) -> np.ndarray:
        """Return the mean of the quantity, (n,)."""
        return self.moments(mixture)[0]

    def sd(self, mixture: NormalMixture) -> np.ndarray:
        """Return the standard deviation of the quantity, (n,)."""
        return np.sqrt(self.moments(mixture)[1])

    def quantile(self, mixture: NormalMixture, q: float) -> np.ndarray:
        """Return the value below which the quantity lies with probability `q`, (n,)."""
        return self.inverse(mixture.quantile(q))

    def exceedance(self, mixture: NormalMixture, value: float | np.ndarray) -> np.ndarray:
        """Return the probability that the quantity is above `value`, (n,)."""
        return mixture.sf(self.forward(value))


class _Exp(Link):
    name, ratio, lowest = "exp", "rate ratio", 0.0

    def inverse(self, eta: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):
            return np.exp(eta)

    def _forward(self, mean: np.ndarray) -> np.ndarray:
        return np.log(mean)

    def _log_slope(self, value: np.ndarray) -> np.ndarray:
        return -np.log(value)

    def moments(self, mixture: NormalMixture) -> tuple[np.ndarray, np.ndarray]:
        return mixture.exp_moments()

    def mean(self, mixture: NormalMixture) -> np.ndarray:
        return mixture.exp_mean()

    def reciprocal_moments(self, mixture: NormalMixture) -> tuple[np.ndarray, np.ndarray]:
        return _exp_mean(mixture, -1.0), _exp_mean(mixture, -2.0)


def _moments_by_quadrature(link: Link, mixture: NormalMixture) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and variance of a quantity by Gauss-Hermite quadrature."""
    sd = np.sqrt(mixture.var)
    first, second = np.zeros(mixture.mu.shape), np.zeros(mixture.mu.shape)
    for point, weight in zip(POINTS, WEIGHTS, strict=True):  # one at a time: maps are large
        value = link.inverse(mixture.mu + sd * point)
        first += weight * value
        second += weight * value**2
    mean = mixture.weight @ first
    return mean, np.maximum(mixture.weight @ second - mean**2, 0.0)


def _exp_mean(mixture: NormalMixture, factor: float) -> np.ndarray:
    """Return the mean of exp(factor · η)."""
    return NormalMixture(mixture.weight, factor * mixture.mu, factor**2 * mixture.var).exp_mean()


class _Identity(Link):
    name = "identity"

    def inverse(self, eta: np.ndarray) -> np.ndarray:
        return eta

    def _forward(self, mean: np.ndarray) -> np.ndarray:
        return mean

    def _log_slope(self, value: np.ndarray) -> np.ndarray:
        return np.zeros(value.shape)

    def moments(self, mixture: NormalMixture) -> tuple[np.ndarray, np.ndarray]:
        return mixture.moments()


class _Square(Link):
    """The square of η; of η below zero it is zero, so that it never decreases."""

    name, lowest = "square", 0.0

    def inverse(self, eta: np.ndarray) -> np.ndarray:
        return np.square(np.maximum(eta, 0.0))

    def forward(self, mean: np.ndarray | float) -> np.ndarray:
        """Return the root; of what is below zero minus infinity, so that it is always exceeded."""
        return np.where(np.asarray(mean) < 0, -np.inf, super().forward(mean))

    def _forward(self, mean: np.ndarray) -> np.ndarray:
        return np.sqrt(mean)

    def _log_slope(self, value: np.ndarray) -> np.ndarray:
        return -np.log(2.0 * np.sqrt(value))

    def moments(self, mixture: NormalMixture) -> tuple[np.ndarray, np.ndarray]:
        # M_k = E[η^k; η > 0] follows from M_0 = Φ(h), M_1 = μ M_0 + σ φ(h) and M_k = μ M_(k-1) + (k - 1) v M_(k-2).
        mu, var = mixture.mu, mixture.var
        sd = np.sqrt(var)
        with np.errstate(divide="ignore", invalid="ignore"):
            h = np.where(sd > 0, mu / sd, np.sign(mu) * np.inf)
        before = ndtr(h)
        last = mu * before + sd * np.exp(-0.5 * h**2) / np.sqrt(2.0 * np.pi)
        found = []
        for k in (2, 3, 4):
            before, last = last, mu * last + (k - 1) * var * before
            found.append(last)
        mean = mixture.weight @ found[0]
        return mean, np.maximum(mixture.weight @ found[2] - mean**2, 0.0)


class _Logit(Link):
    name, ratio, lowest, highest = "logit", "odds ratio", 0.0, 1.0

    def inverse(self, eta: np.ndarray) -> np.ndarray:
        return expit(eta)

    def _forward(self, mean: np.ndarray) -> np.ndarray:
        return logit(mean)

    def _log_slope(self, value: np.ndarray) -> np.ndarray:
        return -np.log(value) - np.log1p(-value)

    def moments(self, mixture: NormalMixture) -> tuple[np.ndarray, np.ndarray]:
        return _moments_by_quadrature(self, mixture)

    def reciprocal_moments(self, mixture: NormalMixture) -> tuple[np.ndarray, np.ndarray]:
        odds, square = _exp_mean(mixture, -1.0), _exp_mean(mixture, -2.0)
        return 1.0 + odds, 1.0 + 2.0 * odds + square


class _Probit(Link):
    name, lowest, highest = "probit", 0.0, 1.0

    def inverse(self, eta: np.ndarray) -> np.ndarray:
        return ndtr(eta)

    def _forward(self, mean: np.ndarray) -> np.ndarray:
        return ndtri(mean)

    def _log_slope(self, value: np.ndarray) -> np.ndarray:
        return 0.5 * ndtri(value) ** 2 + 0.5 * np.log(2.0 * np.pi)

    def moments(self, mixture: NormalMixture) -> tuple[np.ndarray, np.ndarray]:
        # E Φ(f)² is the probability that two normals with the correlation v / (1 + v) both lie below h.
        h = mixture.mu / np.sqrt(1.0 + mixture.var)
        first = ndtr(h)
        second = first - 2.0 * owens_t(h, 1.0 / np.sqrt(1.0 + 2.0 * mixture.var))
        mean = mixture.weight @ first
        return mean, np.maximum(mixture.weight @ second - mean**2, 0.0)


class LogOf(Link):
    """The logarithm of the quantity of another link, which is not negative; not below that of `_LEAST`.

    Examples
    --------
    >>> share = LogOf(LOGIT)
    >>> float(share.inverse(np.zeros(1))[0].round(4)), float(share.forward(np.log(0.5)))
    (-0.6931, 0.0)
    """

    name = "log"

    def __init__(self, link: Link) -> None:
        self.link = link
        self.highest = float(np.log(link.highest))  # type: ignore[misc]

    def __reduce__(self) -> tuple[type[LogOf], tuple[Link]]:  # type: ignore[override]
        return LogOf, (self.link,)

    def inverse(self, eta: np.ndarray) -> np.ndarray:
        """Return the logarithm of the quantity."""
        return np.log(np.maximum(self.link.inverse(eta), _LEAST))

    def _forward(self, mean: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):
            return self.link.forward(np.exp(mean))

    def _log_slope(self, value: np.ndarray) -> np.ndarray:
        return self.link.log_slope(np.exp(value)) + value

    def moments(self, mixture: NormalMixture) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of the logarithm."""
        return _moments_by_quadrature(self, mixture)


#: The lowest quantity that has a logarithm.
_LEAST = 1e-300
#: The links; `LINKS` has them by name.
EXP, LOGIT, PROBIT, IDENTITY, SQUARE = _Exp(), _Logit(), _Probit(), _Identity(), _Square()
LINKS: dict[str, Link] = {link.name: link for link in (EXP, LOGIT, PROBIT, IDENTITY, SQUARE)}
