"""Likelihoods: the expected log-likelihood of each observation under a Gaussian, and its derivatives.

Every likelihood here is log-concave. For an observation with f ~ N(mean, variance) it gives

    value = E log p(y | f),   d_mean = ∂value/∂mean,   d_variance = ∂value/∂variance <= 0,

from which the Gaussian site that stands for it follows: precision -2 d_variance and
natural mean d_mean + precision · mean.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from scipy.special import expit, gammaln, log_expit, log_ndtr, ndtr, roots_hermitenorm, xlogy

from geobgp.errors import DataError
from geobgp.inference.mixture import NormalMixture
from geobgp.registry import Family


class Expected(NamedTuple):
    """Expected log-likelihood per observation, with its derivatives."""

    value: np.ndarray
    d_mean: np.ndarray
    d_variance: np.ndarray


#: Every likelihood, by the name that it is stored under.
LIKELIHOODS: Family[Likelihood] = Family("likelihood")


class Likelihood(ABC):
    """What the solver asks of a likelihood, and a posterior of one without data.

    A new one derives from this class, and is stored under its own name with what `facts` gives.
    """

    #: Whether exp(f) is an intensity: the mean of a count per unit of exposure.
    is_intensity: ClassVar[bool] = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        LIKELIHOODS.add(cls)

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of observations."""

    @property
    def name(self) -> str:
        """Short name for reports."""
        return type(self).__name__

    @abstractmethod
    def expected(self, mean: np.ndarray, variance: np.ndarray) -> Expected:
        """Return the expected log-likelihood under N(mean, variance) and its derivatives."""

    def start(self, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        """Return means from which to begin: the given ones, or some nearer to the observations."""
        return mean

    def slopes(self, mean: np.ndarray, variance: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """Return the derivatives of the site precision in mean and variance; None where it is constant."""
        return None

    def guess(self, precision: np.ndarray, natural: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """Return mean and variance that ask for given sites; None where no formula tells them."""
        return None

    def of(self, values: np.ndarray, exposure: np.ndarray) -> Likelihood:
        """Return the likelihood of other observations, f being the whole linear predictor."""
        raise DataError(f"A {self.name} likelihood cannot be asked about other observations.")

    @abstractmethod
    def predicted(self, at: NormalMixture, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of a new observation where f is distributed as `at`.

        Parameters
        ----------
        at : NormalMixture
        noise : (k,) array
            Standard deviation of Gaussian noise for each component; NaN where there is none.
        """

    def scatter(self, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray | None:
        """Draw what rates are multiplied by before a Poisson count is drawn; None where nothing is."""
        return None

    def facts(self) -> dict[str, Any]:
        """Return what `without_data` needs, as JSON can hold it."""
        return {}

    @classmethod
    @abstractmethod
    def without_data(cls, facts: dict[str, Any]) -> Self:
        """Return the likelihood of no observations, for predictions; `facts` as it gave them."""


def sites(expected: Expected, mean: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return precision and natural mean of the Gaussian sites that stand for the observations."""
    precision = np.maximum(-2.0 * expected.d_variance, 0.0)
    return precision, expected.d_mean + precision * mean


@dataclass(frozen=True, eq=False)
class Poisson(Likelihood):
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

    is_intensity = True

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

    def log_p(self, y: float, log_rate: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return log p(y) at log rates, with two derivatives."""
        with np.errstate(over="ignore"):
            rate = np.exp(log_rate)
        return y * log_rate - rate - float(gammaln(y + 1.0)), y - rate, -rate

    def of(self, values: np.ndarray, exposure: np.ndarray) -> Poisson:
        """Return the likelihood of other counts."""
        return Poisson(values, exposure)

    def predicted(self, at: NormalMixture, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of a count with one unit of exposure."""
        mean, variance = at.exp_moments()
        return mean, mean + variance

    @classmethod
    def without_data(cls, facts: dict[str, Any]) -> Self:
        """Return the likelihood of no counts."""
        return cls(np.zeros(0), np.zeros(0))


@dataclass(frozen=True, eq=False)
class Gaussian(Likelihood):
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

    def predicted(self, at: NormalMixture, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of a value with noise."""
        return NormalMixture(at.weight, at.mu, at.var + noise[:, None] ** 2).moments()

    @classmethod
    def without_data(cls, facts: dict[str, Any]) -> Self:
        """Return the likelihood of no values."""
        return cls(np.zeros(0))


#: Gauss-Hermite points for expectations without a closed form.
POINTS, WEIGHTS = roots_hermitenorm(40)
WEIGHTS = WEIGHTS / WEIGHTS.sum()


@dataclass(frozen=True, eq=False)
class Bernoulli(Likelihood):
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
        return sign, sign[:, None] * (mean[:, None] + np.sqrt(variance)[:, None] * POINTS)

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
        return Expected(log_p @ WEIGHTS, sign * (first @ WEIGHTS), 0.5 * (second @ WEIGHTS))

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
        return -sign * (third @ WEIGHTS), -0.5 * (fourth @ WEIGHTS)

    def probability(self, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        """Return P(y = 1) under N(mean, variance)."""
        if self.link == "probit":
            return ndtr(mean / np.sqrt(1.0 + variance))
        return expit(mean[:, None] + np.sqrt(variance)[:, None] * POINTS) @ WEIGHTS

    def predicted(self, at: NormalMixture, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the probability p of a 1, and p (1 - p)."""
        each = [self.probability(mu, var) for mu, var in zip(at.mu, at.var, strict=True)]
        p = at.weight @ np.array(each)
        return p, p * (1 - p)

    def facts(self) -> dict[str, Any]:
        """Return the link."""
        return {"link": self.link}

    @classmethod
    def without_data(cls, facts: dict[str, Any]) -> Self:
        """Return the likelihood of no classes."""
        return cls(np.zeros(0), **facts)


def _hazard(f: np.ndarray, log_p: np.ndarray) -> np.ndarray:
    """Return φ(f) / Φ(f), with no overflow in either tail."""
    return np.exp(-0.5 * f**2 - 0.5 * np.log(2.0 * np.pi) - log_p)
