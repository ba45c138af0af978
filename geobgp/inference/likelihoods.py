"""Likelihoods: the expected log-likelihood of each observation under a Gaussian, and its derivatives.

Every likelihood here is log-concave. For an observation with f ~ N(mean, variance) it gives

    value = E log p(y | f),   d_mean = ∂value/∂mean,   d_variance = ∂value/∂variance <= 0,

from which the Gaussian site that stands for it follows: precision -2 d_variance and
natural mean d_mean + precision · mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
from scipy.special import expit, gammaln, log_expit, log_ndtr, ndtr, roots_hermitenorm, xlogy

from geobgp.errors import DataError


class Expected(NamedTuple):
    """Expected log-likelihood per observation, with its derivatives."""

    value: np.ndarray
    d_mean: np.ndarray
    d_variance: np.ndarray


class Likelihood(Protocol):
    """What the solver asks of a likelihood."""

    @property
    def size(self) -> int:
        """Number of observations."""
        ...

    @property
    def name(self) -> str:
        """Short name for reports."""
        ...

    def expected(self, mean: np.ndarray, variance: np.ndarray) -> Expected:
        """Return the expected log-likelihood under N(mean, variance) and its derivatives."""
        ...

    def start(self, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        """Return means from which to begin: from given ones towards the observations."""
        ...

    def slopes(self, mean: np.ndarray, variance: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """Return the derivatives of the site precision in mean and variance; None if there are none."""
        ...

    def guess(self, precision: np.ndarray, natural: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """Return mean and variance that ask for given sites, where these can be told."""
        ...


def sites(expected: Expected, mean: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return precision and natural mean of the Gaussian sites that stand for the observations."""
    precision = np.maximum(-2.0 * expected.d_variance, 0.0)
    return precision, expected.d_mean + precision * mean


@dataclass(frozen=True, eq=False)
class Poisson:
    """Counts with mean exposure · exp(f), exact.

    Parameters
    ----------
    counts : (n,) array
        Not negative; need not be whole (weighted events).
    exposure : (n,) array
        Not negative; where it is zero the count must be zero.
    centre : float
        Constant added to f: the log of the overall rate, about which the intercept's prior lies.
    """

    counts: np.ndarray
    exposure: np.ndarray
    centre: float = 0.0

    def __post_init__(self) -> None:
        y, a = self.counts, self.exposure
        if not np.isfinite(y).all() or (y < 0).any():
            bad = int((~np.isfinite(y) | (y < 0)).sum())
            raise DataError(f"Counts must be finite and not negative; {bad:,} of {len(y):,} are not.")
        if not np.isfinite(a).all() or (a < 0).any():
            bad = int((~np.isfinite(a) | (a < 0)).sum())
            raise DataError(
                f"Exposure must be finite and not negative; {bad:,} of {len(a):,} values are not."
            )
        stray = (a == 0) & (y > 0)
        if stray.any():
            raise DataError(
                f"{y[stray].sum():g} events lie on {int(stray.sum()):,} nodes with no exposure, where "
                "nothing can "
                "happen. Give those nodes exposure or leave these events out."
            )

    @property
    def size(self) -> int:
        """Number of observations."""
        return len(self.counts)

    @property
    def name(self) -> str:
        """Short name for reports."""
        return "Poisson"

    @cached_property
    def _constant(self) -> np.ndarray:
        return xlogy(self.counts, self.exposure) + self.counts * self.centre - gammaln(self.counts + 1.0)

    @cached_property
    def _base(self) -> np.ndarray:
        with np.errstate(divide="ignore"):
            return np.log(self.exposure) + self.centre

    def expected(self, mean: np.ndarray, variance: np.ndarray) -> Expected:
        """Return E log p and its derivatives; the rate is infinite (not an error) where it overflows."""
        with np.errstate(over="ignore"):
            rate = np.exp(self._base + mean + 0.5 * variance)
        return Expected(self._constant + self.counts * mean - rate, self.counts - rate, -0.5 * rate)

    def start(self, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        """Return means whose rates lie half-way between the given ones and the counts."""
        with np.errstate(over="ignore"):
            rate = np.exp(self._base + mean + 0.5 * variance)
        held = rate > 0
        return mean + np.log(
            np.where(held, np.maximum(rate, self.counts / 3.0) / np.where(held, rate, 1.0), 1.0)
        )

    def slopes(self, mean: np.ndarray, variance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the derivatives of the site precision, which is the rate."""
        with np.errstate(over="ignore"):
            rate = np.exp(self._base + mean + 0.5 * variance)
        return rate, 0.5 * rate

    def guess(self, precision: np.ndarray, natural: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance (of any sign) that ask for given sites."""
        held = precision > 0
        mean = np.divide(natural - self.counts + precision, precision, out=np.zeros_like(natural), where=held)
        with np.errstate(divide="ignore"):
            rate = np.log(np.where(held, precision, 1.0)) - np.where(held, self._base, 0.0)
        return mean, np.where(held, 2.0 * (rate - mean), 0.0)


@dataclass(frozen=True, eq=False)
class Gaussian:
    """Values f + noise, noise ~ N(0, noise²): exact, one round.

    Parameters
    ----------
    values : (n,) array
    noise : float
        Standard deviation of the noise.
    """

    values: np.ndarray
    noise: float = 1.0

    @property
    def size(self) -> int:
        """Number of observations."""
        return len(self.values)

    @property
    def name(self) -> str:
        """Short name for reports."""
        return "Gaussian"

    def expected(self, mean: np.ndarray, variance: np.ndarray) -> Expected:
        """Return E log p and its derivatives."""
        precision = self.noise**-2
        residual = self.values - mean
        value = -0.5 * (np.log(2.0 * np.pi / precision) + precision * (residual**2 + variance))
        return Expected(value, precision * residual, np.full(len(self.values), -0.5 * precision))

    def constant(self, log_noise: float) -> tuple[float, float, float]:
        """Return log p(values) less the site objective, with two derivatives in log noise."""
        square = float(self.values @ self.values) * np.exp(-2.0 * log_noise)
        n = len(self.values)
        return -n * (log_noise + 0.5 * np.log(2.0 * np.pi)) - 0.5 * square, square - n, -2.0 * square

    def start(self, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        """Return the given means; the sites do not depend on them."""
        return mean

    def slopes(self, mean: np.ndarray, variance: np.ndarray) -> None:
        """Return None: the sites do not depend on mean and variance."""
        return None

    def guess(self, precision: np.ndarray, natural: np.ndarray) -> None:
        """Return None: any mean and variance ask for the same sites."""
        return None


#: Gauss-Hermite points for expectations without a closed form.
_POINTS, _WEIGHTS = roots_hermitenorm(40)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()


@dataclass(frozen=True, eq=False)
class Bernoulli:
    """Classes 0 and 1 with P(1) = link(f), by Gauss-Hermite quadrature.

    Parameters
    ----------
    values : (n,) array
        Zeros and ones.
    link : "probit" or "logit"
    """

    values: np.ndarray
    link: str = "probit"

    def __post_init__(self) -> None:
        bad = int((~np.isin(self.values, (0, 1))).sum())
        if bad:
            raise DataError(
                f"Classes are 0 and 1; {bad:,} of {len(self.values):,} values are something else."
            )
        if self.link not in ("probit", "logit"):
            raise DataError(f"link is 'probit' or 'logit'; found {self.link!r}.")

    @property
    def size(self) -> int:
        """Number of observations."""
        return len(self.values)

    @property
    def name(self) -> str:
        """Short name for reports."""
        return f"Bernoulli ({self.link})"

    def _at_points(self, mean: np.ndarray, variance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the values' signs and sign · f at the quadrature's points."""
        sign = 2.0 * self.values - 1.0
        return sign, sign[:, None] * (mean[:, None] + np.sqrt(variance)[:, None] * _POINTS)

    def expected(self, mean: np.ndarray, variance: np.ndarray) -> Expected:
        """Return E log p and its derivatives."""
        sign, f = self._at_points(mean, variance)
        if self.link == "logit":
            log_p, first = log_expit(f), expit(-f)
            second = -first * (1.0 - first)
        else:
            log_p = log_ndtr(f)
            first = _hazard(f, log_p)
            second = -first * (f + first)
        return Expected(log_p @ _WEIGHTS, sign * (first @ _WEIGHTS), 0.5 * (second @ _WEIGHTS))

    def slopes(self, mean: np.ndarray, variance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the derivatives of the site precision: from the third and fourth ones of log p."""
        sign, f = self._at_points(mean, variance)
        if self.link == "logit":
            p = expit(-f)
            q = p * (1.0 - p)
            third, fourth = q * (1.0 - 2.0 * p), q * (2.0 * q - (1.0 - 2.0 * p) ** 2)
        else:
            r = _hazard(f, log_ndtr(f))
            third = r * (f**2 - 1.0 + 3.0 * f * r + 2.0 * r**2)
            fourth = -r * (f + r) * (f**2 - 1.0 + 6.0 * f * r + 6.0 * r**2) + 2.0 * f * r + 3.0 * r**2
        return -sign * (third @ _WEIGHTS), -0.5 * (fourth @ _WEIGHTS)

    def guess(self, precision: np.ndarray, natural: np.ndarray) -> None:
        """Return None: there is no formula."""
        return None

    def probability(self, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        """Return P(y = 1) under N(mean, variance)."""
        if self.link == "probit":
            return ndtr(mean / np.sqrt(1.0 + variance))
        return expit(mean[:, None] + np.sqrt(variance)[:, None] * _POINTS) @ _WEIGHTS

    def start(self, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        """Return the given means: sites are bounded whatever they are."""
        return mean


def _hazard(f: np.ndarray, log_p: np.ndarray) -> np.ndarray:
    """Return φ(f) / Φ(f), with no overflow in either tail."""
    return np.exp(-0.5 * f**2 - 0.5 * np.log(2.0 * np.pi) - log_p)
