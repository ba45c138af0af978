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
    def moments(self, mixture: NormalMixture) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of the quantity where η is a mixture of normals, (n,) each."""

    def forward(self, mean: np.ndarray | float) -> np.ndarray:
        """Return the linear predictor at a quantity; infinite at the ends of the range and beyond them."""
        with np.errstate(divide="ignore"):
            return self._forward(np.clip(mean, self.lowest, self.highest))

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

    def moments(self, mixture: NormalMixture) -> tuple[np.ndarray, np.ndarray]:
        return mixture.exp_moments()

    def mean(self, mixture: NormalMixture) -> np.ndarray:
        return mixture.exp_mean()


class _Identity(Link):
    name = "identity"

    def inverse(self, eta: np.ndarray) -> np.ndarray:
        return eta

    def _forward(self, mean: np.ndarray) -> np.ndarray:
        return mean

    def moments(self, mixture: NormalMixture) -> tuple[np.ndarray, np.ndarray]:
        return mixture.moments()


class _Logit(Link):
    name, ratio, lowest, highest = "logit", "odds ratio", 0.0, 1.0

    def inverse(self, eta: np.ndarray) -> np.ndarray:
        return expit(eta)

    def _forward(self, mean: np.ndarray) -> np.ndarray:
        return logit(mean)

    def moments(self, mixture: NormalMixture) -> tuple[np.ndarray, np.ndarray]:
        sd = np.sqrt(mixture.var)
        first, second = np.zeros(mixture.mu.shape), np.zeros(mixture.mu.shape)
        for point, weight in zip(POINTS, WEIGHTS, strict=True):  # one at a time: maps are large
            share = expit(mixture.mu + sd * point)
            first += weight * share
            second += weight * share**2
        mean = mixture.weight @ first
        return mean, np.maximum(mixture.weight @ second - mean**2, 0.0)


class _Probit(Link):
    name, lowest, highest = "probit", 0.0, 1.0

    def inverse(self, eta: np.ndarray) -> np.ndarray:
        return ndtr(eta)

    def _forward(self, mean: np.ndarray) -> np.ndarray:
        return ndtri(mean)

    def moments(self, mixture: NormalMixture) -> tuple[np.ndarray, np.ndarray]:
        # E Φ(f)² is the probability that two normals with the correlation v / (1 + v) both lie below h.
        h = mixture.mu / np.sqrt(1.0 + mixture.var)
        first = ndtr(h)
        second = first - 2.0 * owens_t(h, 1.0 / np.sqrt(1.0 + 2.0 * mixture.var))
        mean = mixture.weight @ first
        return mean, np.maximum(mixture.weight @ second - mean**2, 0.0)


#: The links; `LINKS` has them by name.
EXP, LOGIT, PROBIT, IDENTITY = _Exp(), _Logit(), _Probit(), _Identity()
LINKS: dict[str, Link] = {link.name: link for link in (EXP, LOGIT, PROBIT, IDENTITY)}
