"""Families: what was observed given the linear predictor, one class each."""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from scipy.special import (
    digamma,
    expit,
    gammaln,
    log_expit,
    log_ndtr,
    logsumexp,
    xlogy,
)

from geobgp.errors import DataError
from geobgp.inference.links import EXP, IDENTITY, LINKS, LOGIT, POINTS, PROBIT, WEIGHTS, Link
from geobgp.inference.mixture import NormalMixture
from geobgp.validation import Family

# -- Likelihoods: the expected log-likelihood of each observation under a Gaussian, and its derivatives ------
# Every likelihood here is log-concave. For an observation with f ~ N(mean, variance) it gives
#
#     value = E log p(y | f),   d_mean = ∂value/∂mean,   d_variance = ∂value/∂variance <= 0,
#
# from which the Gaussian site that stands for it follows: precision -2 d_variance and
# natural mean d_mean + precision · mean.


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

    #: From the linear predictor to the quantity that maps show.
    link: Link = IDENTITY
    #: The parameter of the observations' spread about it that is learned with θ; None where there is none.
    dispersion: ClassVar[str | None] = None

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

    @property
    def is_intensity(self) -> bool:
        """Whether exp(f) is what maps show: an intensity, or a relative risk."""
        return self.link is EXP

    def with_dispersion(self, value: float) -> Self:
        """Return the same with another value of the dispersion parameter; of families without one, the same."""
        if self.dispersion is None:
            return self
        return dataclasses.replace(self, **{self.dispersion: value})  # type: ignore[type-var]

    @abstractmethod
    def expected(self, mean: np.ndarray, variance: np.ndarray) -> Expected:
        """Return the expected log-likelihood under N(mean, variance) and its derivatives."""

    @abstractmethod
    def log_density(self, y: np.ndarray, eta: np.ndarray, size: np.ndarray | float = 1.0) -> np.ndarray:
        """Return the log probability (or density) of observations at the whole linear predictor.

        Parameters
        ----------
        y, eta : arrays
            That can be broadcast together: observations (n,), and one draw (n,) or several (draws, n) of η.
        size : array or float
            Exposure of a count; number of those tested of a number of positives; not used otherwise.
        """

    @abstractmethod
    def draw(self, eta: np.ndarray, size: np.ndarray | float, rng: np.random.Generator) -> np.ndarray:
        """Draw an observation for each value of the whole linear predictor; `size` as in `log_density`."""

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

    def poisson_rates(self, rates: np.ndarray, rng: np.random.Generator) -> np.ndarray | None:
        """Draw means about which Poisson counts are spread as observations about `rates`; None of no counts."""
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


def _times(y: np.ndarray, eta: np.ndarray) -> np.ndarray:
    """Return y η, zero where y is zero, however low η is."""
    return y * np.where(y > 0, eta, 0.0)


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

    link = EXP

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

    def log_density(self, y: np.ndarray, eta: np.ndarray, size: np.ndarray | float = 1.0) -> np.ndarray:
        """Return the log probability of counts; `size` is the exposure."""
        rate = size * EXP.inverse(eta)
        return xlogy(y, size) + _times(y, eta) - rate - gammaln(y + 1.0)

    def draw(self, eta: np.ndarray, size: np.ndarray | float, rng: np.random.Generator) -> np.ndarray:
        """Draw counts; `size` is the exposure."""
        return rng.poisson(size * EXP.inverse(eta)).astype(float)

    def of(self, values: np.ndarray, exposure: np.ndarray) -> Poisson:
        """Return the likelihood of other counts."""
        return Poisson(values, exposure)

    def poisson_rates(self, rates: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return the rates: counts are Poisson."""
        return rates

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

    dispersion = "noise"

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

    def log_density(self, y: np.ndarray, eta: np.ndarray, size: np.ndarray | float = 1.0) -> np.ndarray:
        """Return the log density of values."""
        return -0.5 * ((y - eta) / self.noise) ** 2 - math.log(self.noise) - 0.5 * math.log(2.0 * math.pi)

    def draw(self, eta: np.ndarray, size: np.ndarray | float, rng: np.random.Generator) -> np.ndarray:
        """Draw values with noise."""
        return rng.normal(eta, self.noise)

    def of(self, values: np.ndarray, exposure: np.ndarray) -> Gaussian:
        """Return the likelihood of other values."""
        return dataclasses.replace(self, values=values)

    def predicted(self, at: NormalMixture, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of a value with noise."""
        return NormalMixture(at.weight, at.mu, at.var + noise[:, None] ** 2).moments()

    @classmethod
    def without_data(cls, facts: dict[str, Any]) -> Self:
        """Return the likelihood of no values."""
        return cls(np.zeros(0))


@dataclass(frozen=True, eq=False)
class Bernoulli(Likelihood):
    """Classes 0 and 1 with P(1) = link(f), by Gauss-Hermite quadrature.

    Parameters
    ----------
    values : (n,) array
        Zeros and ones.
    link : Link or "probit" or "logit"
    """

    values: np.ndarray
    link: Any = PROBIT

    def __post_init__(self) -> None:
        bad = int((~np.isin(self.values, (0, 1))).sum())
        if bad:
            raise DataError(
                f"Classes are 0 and 1; {bad:,} of {len(self.values):,} values are something else."
            )
        link = LINKS.get(self.link, self.link) if isinstance(self.link, str) else self.link
        if link not in (PROBIT, LOGIT):
            raise DataError(f"link is 'probit' or 'logit'; found {self.link!r}.")
        object.__setattr__(self, "link", link)

    @property
    def size(self) -> int:
        """Number of observations."""
        return len(self.values)

    @property
    def name(self) -> str:
        """Short name for reports."""
        return f"Bernoulli ({self.link.name})"

    def _at_points(self, mean: np.ndarray, variance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the values' signs and sign · f at the quadrature's points."""
        sign = 2.0 * self.values - 1.0
        return sign, sign[:, None] * (mean[:, None] + np.sqrt(variance)[:, None] * POINTS)

    def expected(self, mean: np.ndarray, variance: np.ndarray) -> Expected:
        """Return E log p and its derivatives."""
        sign, f = self._at_points(mean, variance)
        if self.link is LOGIT:
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
        if self.link is LOGIT:
            p = expit(-f)
            q = p * (1.0 - p)
            third, fourth = q * (1.0 - 2.0 * p), q * (2.0 * q - (1.0 - 2.0 * p) ** 2)
        else:
            r = _hazard(f, log_ndtr(f))
            third = r * (f**2 - 1.0 + 3.0 * f * r + 2.0 * r**2)
            fourth = -r * (f + r) * (f**2 - 1.0 + 6.0 * f * r + 6.0 * r**2) + 2.0 * f * r + 3.0 * r**2
        return -sign * (third @ WEIGHTS), -0.5 * (fourth @ WEIGHTS)

    def log_density(self, y: np.ndarray, eta: np.ndarray, size: np.ndarray | float = 1.0) -> np.ndarray:
        """Return the log probability of classes."""
        signed = (2.0 * y - 1.0) * eta
        return log_expit(signed) if self.link is LOGIT else log_ndtr(signed)

    def draw(self, eta: np.ndarray, size: np.ndarray | float, rng: np.random.Generator) -> np.ndarray:
        """Draw classes."""
        return (rng.random(np.shape(eta)) < self.link.inverse(eta)).astype(float)

    def of(self, values: np.ndarray, exposure: np.ndarray) -> Bernoulli:
        """Return the likelihood of other classes."""
        return dataclasses.replace(self, values=values)

    def probability(self, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        """Return P(y = 1) under N(mean, variance)."""
        return self.link.mean(NormalMixture(np.ones(1), mean[None], variance[None]))

    def predicted(self, at: NormalMixture, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the probability p of a 1, and p (1 - p)."""
        p = self.link.mean(at)
        return p, p * (1 - p)

    def facts(self) -> dict[str, Any]:
        """Return the link."""
        return {"link": self.link.name}

    @classmethod
    def without_data(cls, facts: dict[str, Any]) -> Self:
        """Return the likelihood of no classes."""
        return cls(np.zeros(0), **facts)


def _hazard(f: np.ndarray, log_p: np.ndarray) -> np.ndarray:
    """Return φ(f) / Φ(f), with no overflow in either tail."""
    return np.exp(-0.5 * f**2 - 0.5 * np.log(2.0 * np.pi) - log_p)


# -- Likelihoods of counts beyond Poisson: more spread than a Poisson count has, and numbers that are not told --
# Expectations under f ~ N(mean, variance) are Gauss-Hermite sums.


#: Observations whose expectations are summed at a time: 40 points of each, several times, are some 100 MB.
_BLOCK = 100_000
#: Sizes k between which that of a negative binomial is learned; at the largest it is as good as Poisson.
SMALLEST_K, LARGEST_K = 0.01, 1e5


@dataclass(frozen=True, eq=False)
class NegativeBinomial(Likelihood):
    """Counts with mean λ = exposure · exp(f) and variance λ + λ² / k.

    Parameters
    ----------
    counts, exposure, centre
        As for `Poisson`.
    k : float
        The size: positive; a Poisson count in the limit of a large one.
    gain : float
        Nats by which the bound of a fit with it lies above that of a Poisson fit, where that is known.

    Examples
    --------
    >>> wide, plain = NegativeBinomial(np.array([3.0]), np.ones(1), k=1e5), Poisson(np.array([3.0]), np.ones(1))
    >>> at = np.array([0.5]), np.array([0.2])
    >>> float(np.abs(wide.expected(*at).value - plain.expected(*at).value)[0]) < 1e-4
    True
    """

    link = EXP
    dispersion = "k"

    counts: np.ndarray
    exposure: np.ndarray
    centre: float = 0.0
    k: float = 1.0
    gain: float = math.nan

    def __post_init__(self) -> None:
        Poisson(self.counts, self.exposure)  # the same numbers are allowed
        if not (np.isfinite(self.k) and self.k > 0):
            raise DataError(f"The size of a negative binomial is a positive number; found {self.k!r}.")

    @property
    def size(self) -> int:
        """Number of observations."""
        return len(self.counts)

    @property
    def name(self) -> str:
        """Short name for reports."""
        return "negative binomial"

    @cached_property
    def _base(self) -> np.ndarray:
        with np.errstate(divide="ignore"):
            return np.log(self.exposure) + self.centre

    def _log_ratio(self, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        """Return log λ - log k at the quadrature's points, (n, points)."""
        return (self._base + mean - math.log(self.k))[..., None] + np.sqrt(variance)[..., None] * POINTS

    def _blocks(self) -> Iterator[tuple[slice, NegativeBinomial]]:
        """Yield the likelihood of some observations after another."""
        for start in range(0, self.size, _BLOCK):
            some = slice(start, start + _BLOCK)
            yield some, dataclasses.replace(self, counts=self.counts[some], exposure=self.exposure[some])

    def expected(self, mean: np.ndarray, variance: np.ndarray) -> Expected:
        """Return E log p and its derivatives."""
        if self.size > _BLOCK:
            parts = [some.expected(mean[at], variance[at]) for at, some in self._blocks()]
            return Expected(*(np.concatenate(part) for part in zip(*parts, strict=True)))
        ratio, y, k = self._log_ratio(mean, variance), self.counts, self.k
        share = expit(ratio)
        log_sum = np.logaddexp(0.0, ratio) @ WEIGHTS
        seen = np.where(y > 0, self._base + mean - math.log(k), 0.0)
        constant = gammaln(y + k) - gammaln(k) - gammaln(y + 1.0)
        return Expected(
            constant + y * seen - (y + k) * log_sum,
            y - (y + k) * (share @ WEIGHTS),
            -0.5 * (y + k) * ((share * (1.0 - share)) @ WEIGHTS),
        )

    def start(self, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        """Return means whose rates lie half-way between the given ones and the counts."""
        return Poisson(self.counts, self.exposure, self.centre).start(mean, variance)

    def slopes(self, mean: np.ndarray, variance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the derivatives of the site precision: from the third and fourth ones of log p."""
        if self.size > _BLOCK:
            parts = [some.slopes(mean[at], variance[at]) for at, some in self._blocks()]
            return np.concatenate([p for p, _ in parts]), np.concatenate([p for _, p in parts])
        share = expit(self._log_ratio(mean, variance))
        spread, n = share * (1.0 - share), self.counts + self.k
        return (
            n * ((spread * (1.0 - 2.0 * share)) @ WEIGHTS),
            0.5 * n * ((spread * (1.0 - 6.0 * spread)) @ WEIGHTS),
        )

    def by_log_k(self, mean: np.ndarray, variance: np.ndarray) -> float:
        """Return the derivative of the summed E log p in log k."""
        if self.size > _BLOCK:
            return sum(some.by_log_k(mean[at], variance[at]) for at, some in self._blocks())
        ratio, y, k = self._log_ratio(mean, variance), self.counts, self.k
        log_sum, share = np.logaddexp(0.0, ratio) @ WEIGHTS, expit(ratio) @ WEIGHTS
        return float(np.sum(k * (digamma(y + k) - digamma(k) - log_sum) - y + (y + k) * share))

    def log_p(self, y: float, log_rate: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return log p(y) at log rates, with two derivatives."""
        ratio, k = log_rate - math.log(self.k), self.k
        share = expit(ratio)
        constant = float(gammaln(y + k) - gammaln(k) - gammaln(y + 1.0))
        value = constant + y * ratio - (y + k) * np.logaddexp(0.0, ratio)
        return value, y - (y + k) * share, -(y + k) * share * (1.0 - share)

    def log_density(self, y: np.ndarray, eta: np.ndarray, size: np.ndarray | float = 1.0) -> np.ndarray:
        """Return the log probability of counts; `size` is the exposure."""
        with np.errstate(divide="ignore"):
            ratio = np.log(size) + eta - math.log(self.k)
        constant = gammaln(y + self.k) - gammaln(self.k) - gammaln(y + 1.0)
        return constant + _times(y, ratio) - (y + self.k) * np.logaddexp(0.0, ratio)

    def draw(self, eta: np.ndarray, size: np.ndarray | float, rng: np.random.Generator) -> np.ndarray:
        """Draw counts; `size` is the exposure."""
        rate = size * EXP.inverse(eta)
        return rng.poisson(rate * self.scatter(rate.shape, rng)).astype(float)

    def of(self, values: np.ndarray, exposure: np.ndarray) -> NegativeBinomial:
        """Return the likelihood of other counts."""
        return NegativeBinomial(values, exposure, k=self.k)

    def scatter(self, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
        """Draw what rates are multiplied by, so that Poisson counts about them are spread as these are."""
        return rng.gamma(self.k, 1.0 / self.k, shape)

    def poisson_rates(self, rates: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Draw rates that are spread as negative binomial counts are beyond Poisson ones."""
        return rates * self.scatter(rates.shape, rng)

    def predicted(self, at: NormalMixture, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of a count with one unit of exposure."""
        mean, variance = at.exp_moments()
        return mean, mean + variance + (variance + mean**2) / self.k

    def facts(self) -> dict[str, Any]:
        """Return the size, and what it gained."""
        return {"k": float(self.k)} | ({"gain": float(self.gain)} if math.isfinite(self.gain) else {})

    @classmethod
    def without_data(cls, facts: dict[str, Any]) -> Self:
        """Return the likelihood of no counts."""
        return cls(np.zeros(0), np.zeros(0), **facts)


#: What a count is about its mean: exactly Poisson, or with more spread.
CountLikelihood = Poisson | NegativeBinomial


@dataclass(frozen=True, eq=False)
class SuppressedCounts(Likelihood):
    """Counts of which some are known only to lie between two numbers.

    Parameters
    ----------
    told : Poisson or NegativeBinomial
        Of all observations, with any positive number where it is hidden.
    hidden : (n,) bool array
    lowest, highest : int
        A hidden count is one of these or between them.

    Examples
    --------
    >>> told = Poisson(np.array([2.0]), np.ones(1))
    >>> likelihood = SuppressedCounts(told, np.array([True]), 1, 4)
    >>> at = np.array([0.0]), np.array([1e-12])
    >>> round(float(np.exp(likelihood.expected(*at).value[0])), 4)  # e⁻¹ (1 + 1/2 + 1/6 + 1/24)
    0.6285
    """

    link = EXP

    told: CountLikelihood
    hidden: np.ndarray
    lowest: int
    highest: int

    @property
    def size(self) -> int:
        """Number of observations."""
        return self.told.size

    @property
    def name(self) -> str:
        """Short name for reports."""
        return self.told.name

    @cached_property
    def _some(self) -> CountLikelihood:
        """The likelihood of the hidden ones alone."""
        mine = {"counts": self.told.counts[self.hidden], "exposure": self.told.exposure[self.hidden]}
        return dataclasses.replace(self.told, **mine)

    def expected(self, mean: np.ndarray, variance: np.ndarray) -> Expected:
        """Return E log p and its derivatives."""
        out = self.told.expected(mean, variance)
        if not self.hidden.any():
            return out
        found = self._interval(mean[self.hidden], variance[self.hidden])
        whole = [np.array(part) for part in out]
        for part, mine in zip(whole, found, strict=True):
            part[self.hidden] = mine
        return Expected(*whole)

    def _interval(self, mean: np.ndarray, variance: np.ndarray) -> Expected:
        some = self._some
        log_rate = (some._base + mean)[:, None] + np.sqrt(variance)[:, None] * POINTS
        each = [some.log_p(float(y), log_rate) for y in range(self.lowest, self.highest + 1)]
        log_p, first, second = (np.stack(part) for part in zip(*each, strict=True))
        total = logsumexp(log_p, axis=0)
        chance = np.exp(log_p - total)
        slope = (chance * first).sum(axis=0)
        bend = (chance * (second + (first - slope) ** 2)).sum(axis=0)
        return Expected(total @ WEIGHTS, slope @ WEIGHTS, 0.5 * np.minimum(bend @ WEIGHTS, 0.0))

    def start(self, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        """Return means whose rates lie half-way between the given ones and the counts."""
        return self.told.start(mean, variance)

    def slopes(self, mean: np.ndarray, variance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the derivatives of the site precision; by differences where counts are hidden."""
        by_mean, by_variance = (np.array(part) for part in self.told.slopes(mean, variance))
        if self.hidden.any():
            m, v = mean[self.hidden], variance[self.hidden]
            step, wider = 1e-3, 1e-3 * np.maximum(v, 1e-3)

            def precision(at: np.ndarray, spread: np.ndarray) -> np.ndarray:
                return -2.0 * self._interval(at, spread).d_variance

            by_mean[self.hidden] = (precision(m + step, v) - precision(m - step, v)) / (2.0 * step)
            by_variance[self.hidden] = (precision(m, v + wider) - precision(m, v)) / wider
        return by_mean, by_variance

    def by_log_k(self, mean: np.ndarray, variance: np.ndarray) -> float:
        """Return the derivative of the summed E log p in log k, by differences."""
        assert isinstance(self.told, NegativeBinomial)
        step = 1e-4
        values = [
            dataclasses.replace(self, told=dataclasses.replace(self.told, k=self.told.k * math.exp(by)))
            .expected(mean, variance)
            .value.sum()
            for by in (step, -step)
        ]
        return float(values[0] - values[1]) / (2.0 * step)

    def log_density(self, y: np.ndarray, eta: np.ndarray, size: np.ndarray | float = 1.0) -> np.ndarray:
        """Return the log probability of counts that are known."""
        return self.told.log_density(y, eta, size)

    def draw(self, eta: np.ndarray, size: np.ndarray | float, rng: np.random.Generator) -> np.ndarray:
        """Draw counts."""
        return self.told.draw(eta, size, rng)

    def predicted(self, at: NormalMixture, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of a count with one unit of exposure."""
        return self.told.predicted(at, noise)

    @classmethod
    def without_data(cls, facts: dict[str, Any]) -> Self:
        """Return the likelihood of no counts."""
        return cls(Poisson.without_data({}), np.zeros(0, bool), 0, 0)


# -- The binomial likelihood: cases among cases and controls, whose odds are those of all times a relative risk --


@dataclass(frozen=True, eq=False)
class Binomial(Likelihood):
    """Cases among persons, with log odds offset + f, by Gauss-Hermite quadrature.

    Persons with the same f are one observation: a Bernoulli likelihood of each would say the same.

    Parameters
    ----------
    cases, persons : (n,) arrays
        How many are cases, of how many.
    offset : float
        The log odds of a case where f is zero: the log of all cases over all controls.
    """

    #: exp(f) is the relative risk.
    link = EXP

    cases: np.ndarray
    persons: np.ndarray
    offset: float = 0.0

    def __post_init__(self) -> None:
        bad = int((~((self.cases >= 0) & (self.cases <= self.persons))).sum())
        if bad:
            raise DataError(
                f"Cases are from 0 to the number of persons; {bad:,} of {len(self.cases):,} are not."
            )

    @property
    def size(self) -> int:
        """Number of observations."""
        return len(self.cases)

    @property
    def name(self) -> str:
        """Short name for reports."""
        return "binomial (logit)"

    @cached_property
    def _constant(self) -> np.ndarray:
        y, n = self.cases, self.persons
        return gammaln(n + 1.0) - gammaln(y + 1.0) - gammaln(n - y + 1.0) + y * self.offset

    def _at_points(self, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        return self.offset + mean[:, None] + np.sqrt(variance)[:, None] * POINTS

    def expected(self, mean: np.ndarray, variance: np.ndarray) -> Expected:
        """Return E log p and its derivatives."""
        f = self._at_points(mean, variance)
        p = expit(f)
        value = self._constant + self.cases * mean + self.persons * (log_expit(-f) @ WEIGHTS)
        bent = (p * (1.0 - p)) @ WEIGHTS
        return Expected(value, self.cases - self.persons * (p @ WEIGHTS), -0.5 * self.persons * bent)

    def slopes(self, mean: np.ndarray, variance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the derivatives of the site precision in mean and variance."""
        p = expit(self._at_points(mean, variance))
        q, lean = p * (1.0 - p), 1.0 - 2.0 * p
        by_mean, by_variance = (q * lean) @ WEIGHTS, 0.5 * (q * (lean**2 - 2.0 * q)) @ WEIGHTS
        return self.persons * by_mean, self.persons * by_variance

    def log_density(self, y: np.ndarray, eta: np.ndarray, size: np.ndarray | float = 1.0) -> np.ndarray:
        """Return the log probability of numbers of cases; `size` is the number of persons."""
        f = self.offset + eta
        constant = gammaln(size + 1.0) - gammaln(y + 1.0) - gammaln(size - y + 1.0)
        return constant + y * log_expit(f) + (size - y) * log_expit(-f)

    def draw(self, eta: np.ndarray, size: np.ndarray | float, rng: np.random.Generator) -> np.ndarray:
        """Draw numbers of cases; `size` is the number of persons."""
        return rng.binomial(np.asarray(size, int), expit(self.offset + eta)).astype(float)

    def of(self, values: np.ndarray, exposure: np.ndarray) -> Binomial:
        """Return the likelihood of other numbers of cases; `exposure` is the number of persons."""
        return dataclasses.replace(self, cases=values, persons=exposure)

    def predicted(self, at: NormalMixture, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the probability p that a person there is a case, and p (1 - p)."""
        p = LOGIT.mean(at.plus(self.offset))
        return p, p * (1 - p)

    def facts(self) -> dict[str, Any]:
        """Return the offset."""
        return {"offset": self.offset}

    @classmethod
    def without_data(cls, facts: dict[str, Any]) -> Self:
        """Return the likelihood of no persons."""
        return cls(np.zeros(0), np.zeros(0), **facts)
