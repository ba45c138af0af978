"""Families: what was observed given the linear predictor, one class each."""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from scipy.special import digamma, expit, gammaln, log_ndtr, logsumexp, xlogy

from geobgp.errors import DataError
from geobgp.inference.links import EXP, IDENTITY, LINKS, LOGIT, POINTS, PROBIT, SQUARE, WEIGHTS, Link
from geobgp.inference.mixture import NormalMixture
from geobgp.validation import Family

# -- Likelihoods: the expected log-likelihood of each observation under a Gaussian, and its derivatives ------
# For an observation with f ~ N(mean, variance) a likelihood gives
#
#     value = E log p(y | f),   d_mean = ∂value/∂mean,   d_variance = ∂value/∂variance,
#
# from which the Gaussian site that stands for it follows: precision -2 d_variance (zero where that is negative, as it
# may be for a likelihood that is not log-concave) and natural mean d_mean + precision · mean.


class Expected(NamedTuple):
    """Expected log-likelihood per observation, with its derivatives."""

    value: np.ndarray
    d_mean: np.ndarray
    d_variance: np.ndarray


#: Every likelihood, by the name that it is stored under.
LIKELIHOODS: Family[Likelihood] = Family("likelihood")
#: Sizes k between which that of a negative binomial or a beta-binomial is learned; at the largest it is as good as
#: none.
SMALLEST_K, LARGEST_K = 0.01, 1e5
#: Observations whose expectations are summed at a time: 40 points of each, several times, are some 100 MB.
_BLOCK = 100_000


class Likelihood(ABC):
    """What the solver asks of a likelihood, and a posterior of one without data: a family.

    A new one derives from this class, and is stored under its own name with what `facts` gives. Most give their log
    probability and its derivatives (`_derivatives`), and have their expectations by Gauss-Hermite quadrature.
    """

    #: From the linear predictor to the quantity that maps show.
    link: Link = IDENTITY
    #: What a map of it shows; "intensity" where the exposure says more.
    quantity: str = "intensity"
    #: What it says of the observations, where a simpler family of the same is compared with it.
    about: ClassVar[str] = ""
    #: The parameter of the observations' spread about it that is learned with θ; None where there is none.
    dispersion: ClassVar[str | None] = None
    #: Names of the arrays with a number for each observation: what was observed, and its exposure or the like.
    arrays: ClassVar[tuple[str, ...]]
    #: Constant that f lacks of the whole linear predictor.
    centre: float = 0.0

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        LIKELIHOODS.add(cls)

    @property
    def size(self) -> int:
        """Number of observations."""
        return len(getattr(self, self.arrays[0]))

    @property
    def name(self) -> str:
        """Short name for reports."""
        return type(self).__name__

    # -- other data, other parameters

    def _replace(self, **values: Any) -> Self:
        return dataclasses.replace(self, **values)  # type: ignore[type-var]

    def some(self, which: np.ndarray | slice) -> Self:
        """Return the likelihood of some of the observations."""
        return self._replace(**{name: getattr(self, name)[which] for name in self.arrays})

    @abstractmethod
    def of(self, values: np.ndarray, size: np.ndarray, centre: float = 0.0) -> Likelihood:
        """Return the likelihood of other observations with the same parameters.

        Parameters
        ----------
        values : (n,) array
        size : (n,) array
            Exposure of counts; numbers of those tested; not used otherwise.
        centre : float
            Constant that f lacks of the whole linear predictor.
        """

    @property
    def dispersion_value(self) -> float:
        """The value of the dispersion parameter; NaN where there is none."""
        return math.nan if self.dispersion is None else float(getattr(self, self.dispersion))

    def with_dispersion(self, value: float) -> Self:
        """Return the same with another value of the dispersion parameter; of families without one, the same."""
        return self if self.dispersion is None else self._replace(**{self.dispersion: value})

    def limit(self) -> Likelihood:
        """Return the family that this one becomes without its own spread; itself where there is none to learn."""
        return self

    def by_log_dispersion(self, mean: np.ndarray, variance: np.ndarray, step: float = 1e-4) -> float:
        """Return the derivative of the summed E log p in the log of the dispersion parameter."""
        value = self.dispersion_value
        ends = [self.with_dispersion(value * math.exp(by)).expected(mean, variance).value.sum() for by in (step, -step)]
        return float(ends[0] - ends[1]) / (2.0 * step)

    # -- for the solver

    def _linear(self, eta: np.ndarray, size: np.ndarray | float) -> np.ndarray:
        """Return what `_derivatives` wants of a whole linear predictor."""
        return eta

    def _derivatives(self, y: Any, f: np.ndarray, size: Any) -> Iterator[np.ndarray]:
        """Yield log p(y | f), and then its derivatives in f, four of them or two, one after the other."""
        raise TypeError(f"{type(self).__name__} gives no derivatives.")

    def _at_points(self, mean: np.ndarray, variance: np.ndarray) -> Iterator[np.ndarray]:
        """Yield the expectations of log p and its derivatives under N(mean, variance)."""
        y, size = (getattr(self, name) for name in (self.arrays[0], self.arrays[-1]))
        f = self._linear(mean + self.centre, size)[:, None] + np.sqrt(variance)[:, None] * POINTS
        for part in self._derivatives(y[:, None], f, size[:, None]):
            yield part @ WEIGHTS

    def _in_blocks(self, mean: np.ndarray, variance: np.ndarray) -> Iterator[tuple[Any, np.ndarray, np.ndarray]]:
        """Yield the likelihood of some observations after another, with their moments."""
        for start in range(0, max(self.size, 1), _BLOCK):
            at = slice(start, start + _BLOCK)
            yield (self if self.size <= _BLOCK else self.some(at)), mean[at], variance[at]

    def expected(self, mean: np.ndarray, variance: np.ndarray) -> Expected:
        """Return the expected log-likelihood under N(mean, variance) and its derivatives."""
        parts = [list(islice(some._at_points(m, v), 3)) for some, m, v in self._in_blocks(mean, variance)]
        value, first, second = (np.concatenate(part) for part in zip(*parts, strict=True))
        return Expected(value, first, 0.5 * second)

    def slopes(self, mean: np.ndarray, variance: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """Return the derivatives of the site precision in mean and variance; None where it is constant."""
        parts = [list(islice(some._at_points(m, v), 2, 5)) for some, m, v in self._in_blocks(mean, variance)]
        second, third, fourth = (np.concatenate(part) for part in zip(*parts, strict=True))
        bent = second < 0  # elsewhere the precision is held at zero
        return np.where(bent, -third, 0.0), np.where(bent, -0.5 * fourth, 0.0)

    def start(self, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        """Return means from which to begin: the given ones, or some nearer to the observations."""
        return mean

    def guess(self, precision: np.ndarray, natural: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """Return mean and variance that ask for given sites; None where no formula tells them."""
        return None

    # -- for predictions

    def log_density(self, y: np.ndarray, eta: np.ndarray, size: np.ndarray | float = 1.0) -> np.ndarray:
        """Return the log probability (or density) of observations at the whole linear predictor.

        Parameters
        ----------
        y, eta : arrays
            That can be broadcast together: observations (n,), and one draw (n,) or several (draws, n) of η.
        size : array or float
            Exposure of a count; number of those tested of a number of positives; not used otherwise.
        """
        return next(self._derivatives(y, self._linear(eta, size), size))

    @abstractmethod
    def draw(self, eta: np.ndarray, size: np.ndarray | float, rng: np.random.Generator) -> np.ndarray:
        """Draw an observation for each value of the whole linear predictor; `size` as in `log_density`."""

    @abstractmethod
    def predicted(self, at: NormalMixture, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of a new observation of size one where η is distributed as `at`.

        Parameters
        ----------
        at : NormalMixture
        noise : (k,) array
            Standard deviation of Gaussian noise for each component; NaN where there is none.
        """

    def moments(self, eta: np.ndarray, size: np.ndarray | float) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of observations at the whole linear predictor; `size` as in `log_density`."""
        known = NormalMixture(np.ones(1), np.reshape(eta, (1, -1)), np.zeros((1, np.size(eta))))
        mean, variance = self.predicted(known, np.array([self.dispersion_value]))
        return size * mean.reshape(np.shape(eta)), size * variance.reshape(np.shape(eta))

    def poisson_rates(self, rates: np.ndarray, rng: np.random.Generator) -> np.ndarray | None:
        """Draw means about which Poisson counts are spread as observations about `rates`; None of no counts."""
        return None

    # -- for files

    def facts(self) -> dict[str, Any]:
        """Return what `without_data` needs, as JSON can hold it."""
        return {}

    @classmethod
    def without_data(cls, facts: dict[str, Any]) -> Self:
        """Return the family: the likelihood of no observations, for predictions; `facts` as it gave them."""
        return cls(**{name: np.zeros(0) for name in cls.arrays}, **facts)


def sites(expected: Expected, mean: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return precision and natural mean of the Gaussian sites that stand for the observations."""
    precision = np.maximum(-2.0 * expected.d_variance, 0.0)
    return precision, expected.d_mean + precision * mean


def _times(y: np.ndarray, f: np.ndarray) -> np.ndarray:
    """Return y f, zero where y is zero, however low f is."""
    return y * np.where(y > 0, f, 0.0)


def _logistic(y: Any, total: Any, f: np.ndarray) -> Iterator[np.ndarray]:
    """Yield y f - total · log(1 + exp f), and then its derivatives in f."""
    yield _times(y, f) - total * np.logaddexp(0.0, f)
    share = expit(f)
    yield y - total * share
    spread = share * (1.0 - share)
    yield -total * spread
    yield -total * (spread * (1.0 - 2.0 * share))
    yield -total * (spread * (1.0 - 6.0 * spread))


def _plus(constant: Any, derivatives: Iterator[np.ndarray]) -> Iterator[np.ndarray]:
    """Yield a function plus a constant, and then its derivatives."""
    yield next(derivatives) + constant
    yield from derivatives


# -- Counts --------------------------------------------------------------------------------------------------


class CountFamily(Likelihood):
    """Counts with mean exposure · exp(f + centre).

    Attributes
    ----------
    counts : (n,) array
        Not negative; need not be whole (weighted events).
    exposure : (n,) array
        Not negative; where it is zero the count must be zero.
    centre : float
        Constant added to f: the log of the overall rate, about which the intercept's prior lies.
    """

    link = EXP
    arrays = ("counts", "exposure")

    counts: np.ndarray
    exposure: np.ndarray
    centre: float

    def __post_init__(self) -> None:
        y, a = self.counts, self.exposure
        if not np.isfinite(y).all() or (y < 0).any():
            bad = int((~np.isfinite(y) | (y < 0)).sum())
            raise DataError(f"Counts must be finite and not negative; {bad:,} of {len(y):,} are not.")
        if not np.isfinite(a).all() or (a < 0).any():
            bad = int((~np.isfinite(a) | (a < 0)).sum())
            raise DataError(f"Exposure must be finite and not negative; {bad:,} of {len(a):,} values are not.")
        stray = (a == 0) & (y > 0)
        if stray.any():
            raise DataError(
                f"{y[stray].sum():g} events lie on {int(stray.sum()):,} nodes with no exposure, where nothing can "
                "happen. Give those nodes exposure or leave these events out."
            )

    def of(self, values: np.ndarray, size: np.ndarray, centre: float = 0.0) -> Self:
        """Return the likelihood of other counts; `size` is their exposure."""
        return self._replace(counts=values, exposure=size, centre=centre)

    @cached_property
    def _base(self) -> np.ndarray:
        with np.errstate(divide="ignore"):
            return np.log(self.exposure) + self.centre

    def _linear(self, eta: np.ndarray, size: np.ndarray | float) -> np.ndarray:
        with np.errstate(divide="ignore"):
            return np.log(size) + eta

    @abstractmethod
    def poisson_rates(self, rates: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Draw means about which Poisson counts are spread as observations about `rates`."""

    def draw(self, eta: np.ndarray, size: np.ndarray | float, rng: np.random.Generator) -> np.ndarray:
        """Draw counts; `size` is the exposure."""
        return rng.poisson(self.poisson_rates(size * EXP.inverse(eta), rng)).astype(float)

    def start(self, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        """Return means whose rates lie half-way between the given ones and the counts."""
        rate = EXP.inverse(self._base + mean + 0.5 * variance)
        held = rate > 0
        return mean + np.log(np.where(held, np.maximum(rate, self.counts / 3.0) / np.where(held, rate, 1.0), 1.0))


@dataclass(frozen=True, eq=False)
class Poisson(CountFamily):
    """Poisson counts, exact; see `CountFamily`."""

    counts: np.ndarray
    exposure: np.ndarray
    centre: float = 0.0

    @cached_property
    def _constant(self) -> np.ndarray:
        return xlogy(self.counts, self.exposure) + self.counts * self.centre - gammaln(self.counts + 1.0)

    def expected(self, mean: np.ndarray, variance: np.ndarray) -> Expected:
        """Return E log p and its derivatives; the rate is infinite (not an error) where it overflows."""
        rate = EXP.inverse(self._base + mean + 0.5 * variance)
        return Expected(self._constant + self.counts * mean - rate, self.counts - rate, -0.5 * rate)

    def slopes(self, mean: np.ndarray, variance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the derivatives of the site precision, which is the rate."""
        rate = EXP.inverse(self._base + mean + 0.5 * variance)
        return rate, 0.5 * rate

    def guess(self, precision: np.ndarray, natural: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance (of any sign) that ask for given sites."""
        held = precision > 0
        mean = np.divide(natural - self.counts + precision, precision, out=np.zeros_like(natural), where=held)
        rate = np.log(np.where(held, precision, 1.0)) - np.where(held, self._base, 0.0)
        return mean, np.where(held, 2.0 * (rate - mean), 0.0)

    def _derivatives(self, y: Any, f: np.ndarray, size: Any) -> Iterator[np.ndarray]:
        rate = EXP.inverse(f)
        yield _times(y, f) - rate - gammaln(y + 1.0)
        yield y - rate
        yield -rate

    def poisson_rates(self, rates: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return the rates: counts are Poisson."""
        return rates

    def predicted(self, at: NormalMixture, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of a count with one unit of exposure."""
        mean, variance = at.exp_moments()
        return mean, mean + variance


@dataclass(frozen=True, eq=False)
class NegativeBinomial(CountFamily):
    """Counts with mean λ and variance λ + λ² / k, by Gauss-Hermite quadrature; see `CountFamily`.

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

    dispersion = "k"

    counts: np.ndarray
    exposure: np.ndarray
    centre: float = 0.0
    k: float = 1.0
    gain: float = math.nan

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_size(self.k, "negative binomial")

    @property
    def name(self) -> str:
        """Short name for reports."""
        return "negative binomial"

    def limit(self) -> Poisson:
        """Return the Poisson likelihood of the same counts."""
        return Poisson(self.counts, self.exposure, self.centre)

    def _linear(self, eta: np.ndarray, size: np.ndarray | float) -> np.ndarray:
        return super()._linear(eta, size) - math.log(self.k)

    def _derivatives(self, y: Any, f: np.ndarray, size: Any) -> Iterator[np.ndarray]:
        constant = gammaln(y + self.k) - gammaln(self.k) - gammaln(y + 1.0)
        return _plus(constant, _logistic(y, y + self.k, f))

    def poisson_rates(self, rates: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Draw rates that are spread as negative binomial counts are beyond Poisson ones."""
        return rates * rng.gamma(self.k, 1.0 / self.k, rates.shape)

    def predicted(self, at: NormalMixture, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of a count with one unit of exposure."""
        mean, variance = at.exp_moments()
        return mean, mean + variance + (variance + mean**2) / self.k

    def moments(self, eta: np.ndarray, size: np.ndarray | float) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of counts; `size` is the exposure."""
        mean = size * EXP.inverse(eta)
        return mean, mean + mean**2 / self.k

    def facts(self) -> dict[str, Any]:
        """Return the size, and what it gained."""
        return _size_facts(self.k, self.gain)


def _check_size(k: float, of: str) -> None:
    if not (np.isfinite(k) and k > 0):
        raise DataError(f"The size of a {of} is a positive number; found {k!r}.")


def _size_facts(k: float, gain: float) -> dict[str, Any]:
    return {"k": float(k)} | ({"gain": float(gain)} if math.isfinite(gain) else {})


@dataclass(frozen=True, eq=False)
class SuppressedCounts(Likelihood):
    """Counts of which some are known only to lie between two numbers.

    Parameters
    ----------
    base : Poisson or NegativeBinomial
        Of all observations, with any positive number where it is hidden.
    hidden : (n,) bool array
    lowest, highest : int
        A hidden count is one of these or between them.

    Examples
    --------
    >>> base = Poisson(np.array([2.0]), np.ones(1))
    >>> likelihood = SuppressedCounts(base, np.array([True]), 1, 4)
    >>> at = np.array([0.0]), np.array([1e-12])
    >>> round(float(np.exp(likelihood.expected(*at).value[0])), 4)  # e⁻¹ (1 + 1/2 + 1/6 + 1/24)
    0.6285
    """

    link = EXP
    arrays = ("hidden",)

    base: Poisson | NegativeBinomial
    hidden: np.ndarray
    lowest: int
    highest: int

    @property
    def name(self) -> str:
        """Short name for reports."""
        return self.base.name

    def of(self, values: np.ndarray, size: np.ndarray, centre: float = 0.0) -> Likelihood:
        """Return the likelihood of other counts, all of them known."""
        return self.base.of(values, size, centre)

    def with_dispersion(self, value: float) -> Self:
        """Return the same with another value of the dispersion parameter, if there is one."""
        return self._replace(base=self.base.with_dispersion(value))

    @property
    def dispersion_value(self) -> float:
        """The value of the dispersion parameter; NaN where there is none."""
        return self.base.dispersion_value

    @cached_property
    def _suppressed(self) -> Poisson | NegativeBinomial:
        """The likelihood of the hidden ones alone."""
        return self.base.some(self.hidden)

    def expected(self, mean: np.ndarray, variance: np.ndarray) -> Expected:
        """Return E log p and its derivatives."""
        out = self.base.expected(mean, variance)
        if not self.hidden.any():
            return out
        whole = Expected(*(np.array(part) for part in out))
        for part, inside in zip(whole, self._interval(mean[self.hidden], variance[self.hidden]), strict=True):
            part[self.hidden] = inside
        return whole

    def _interval(self, mean: np.ndarray, variance: np.ndarray) -> Expected:
        one = self._suppressed
        f = one._linear(mean + one.centre, one.exposure)[:, None] + np.sqrt(variance)[:, None] * POINTS
        each = [list(islice(one._derivatives(float(y), f, None), 3)) for y in range(self.lowest, self.highest + 1)]
        log_p, first, second = (np.stack(part) for part in zip(*each, strict=True))
        total = logsumexp(log_p, axis=0)
        chance = np.exp(log_p - total)
        slope = (chance * first).sum(axis=0)
        bend = (chance * (second + (first - slope) ** 2)).sum(axis=0)
        return Expected(total @ WEIGHTS, slope @ WEIGHTS, 0.5 * np.minimum(bend @ WEIGHTS, 0.0))

    def start(self, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        """Return means whose rates lie half-way between the given ones and the counts."""
        return self.base.start(mean, variance)

    def slopes(self, mean: np.ndarray, variance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the derivatives of the site precision; by differences where counts are hidden."""
        told: Any = self.base.slopes(mean, variance)
        by_mean, by_variance = (np.array(part) for part in told)
        if self.hidden.any():
            m, v = mean[self.hidden], variance[self.hidden]
            step, wider = 1e-3, 1e-3 * np.maximum(v, 1e-3)

            def precision(at: np.ndarray, spread: np.ndarray) -> np.ndarray:
                return -2.0 * self._interval(at, spread).d_variance

            by_mean[self.hidden] = (precision(m + step, v) - precision(m - step, v)) / (2.0 * step)
            by_variance[self.hidden] = (precision(m, v + wider) - precision(m, v)) / wider
        return by_mean, by_variance

    def log_density(self, y: np.ndarray, eta: np.ndarray, size: np.ndarray | float = 1.0) -> np.ndarray:
        """Return the log probability of counts that are known."""
        return self.base.log_density(y, eta, size)

    def draw(self, eta: np.ndarray, size: np.ndarray | float, rng: np.random.Generator) -> np.ndarray:
        """Draw counts."""
        return self.base.draw(eta, size, rng)

    def predicted(self, at: NormalMixture, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of a count with one unit of exposure."""
        return self.base.predicted(at, noise)


# -- Values and classes --------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Gaussian(Likelihood):
    """Values of which a transform is f + noise, noise ~ N(0, noise²): exact, one round.

    Parameters
    ----------
    values : (n,) array
        Transformed, less the centre.
    noise : float
        Standard deviation of the noise, of transformed values.
    link : Link or "identity", "exp" or "square"
        From the transformed value to the one that was measured: the log is modelled of "exp", the root of "square".
    log_slope : (n,) array, optional
        The log of the transform's derivative at each value: probabilities are densities of what was measured.
    """

    quantity = "value"

    dispersion = "noise"
    arrays = ("values", "log_slope")

    values: np.ndarray
    noise: float = 1.0
    link: Any = IDENTITY
    log_slope: Any = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "link", _link(self.link, IDENTITY, EXP, SQUARE))
        if self.log_slope is None:
            object.__setattr__(self, "log_slope", np.zeros(len(self.values)))

    @property
    def name(self) -> str:
        """Short name for reports."""
        words = {EXP: " of the logarithm", SQUARE: " of the square root"}
        return f"Gaussian{words.get(self.link, '')}"

    def of(self, values: np.ndarray, size: np.ndarray, centre: float = 0.0) -> Gaussian:
        """Return the likelihood of other values, as they were measured."""
        return Gaussian(self.link.forward(values) - centre, self.noise, self.link, self.link.log_slope(values))

    def expected(self, mean: np.ndarray, variance: np.ndarray) -> Expected:
        """Return E log p and its derivatives."""
        precision = self.noise**-2
        residual = self.values - mean
        value = -0.5 * (np.log(2.0 * np.pi / precision) + precision * (residual**2 + variance)) + self.log_slope
        return Expected(value, precision * residual, np.full(len(self.values), -0.5 * precision))

    def slopes(self, mean: np.ndarray, variance: np.ndarray) -> None:
        """Return None: the site precision is constant."""

    def constant(self, log_noise: float) -> tuple[float, float, float]:
        """Return log p(values) less the site objective, with two derivatives in log noise."""
        square = float(self.values @ self.values) * np.exp(-2.0 * log_noise)
        n = len(self.values)
        value = -n * (log_noise + 0.5 * np.log(2.0 * np.pi)) - 0.5 * square + float(self.log_slope.sum())
        return value, square - n, -2.0 * square

    def log_density(self, y: np.ndarray, eta: np.ndarray, size: np.ndarray | float = 1.0) -> np.ndarray:
        """Return the log density of values as they were measured."""
        away = (self.link.forward(y) - eta) / self.noise
        return -0.5 * away**2 - math.log(self.noise) - 0.5 * math.log(2.0 * math.pi) + self.link.log_slope(y)

    def draw(self, eta: np.ndarray, size: np.ndarray | float, rng: np.random.Generator) -> np.ndarray:
        """Draw values with noise."""
        return np.asarray(self.link.inverse(rng.normal(eta, self.noise)))

    def predicted(self, at: NormalMixture, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of a value with noise."""
        return self.link.moments(NormalMixture(at.weight, at.mu, at.var + noise[:, None] ** 2))

    def facts(self) -> dict[str, Any]:
        """Return the link."""
        return {} if self.link is IDENTITY else {"link": self.link.name}


def _link(given: Any, *allowed: Link) -> Link:
    link = LINKS.get(given, given) if isinstance(given, str) else given
    if link not in allowed:
        names = " or ".join(repr(one.name) for one in allowed)
        raise DataError(f"link is {names}; found {given!r}.")
    return link


@dataclass(frozen=True, eq=False)
class Bernoulli(Likelihood):
    """Classes 0 and 1 with P(1) = link(f), by Gauss-Hermite quadrature.

    Parameters
    ----------
    values : (n,) array
        Zeros and ones.
    link : Link or "probit" or "logit"
    centre : float
        Constant added to f.
    """

    quantity = "probability"

    arrays = ("values",)

    values: np.ndarray
    link: Any = PROBIT
    centre: float = 0.0

    def __post_init__(self) -> None:
        bad = int((~np.isin(self.values, (0, 1))).sum())
        if bad:
            raise DataError(f"Classes are 0 and 1; {bad:,} of {len(self.values):,} values are something else.")
        object.__setattr__(self, "link", _link(self.link, PROBIT, LOGIT))

    def of(self, values: np.ndarray, size: np.ndarray, centre: float = 0.0) -> Bernoulli:
        """Return the likelihood of other classes."""
        return Bernoulli(values, self.link, centre)

    @property
    def name(self) -> str:
        """Short name for reports."""
        return f"Bernoulli ({self.link.name})"

    def _derivatives(self, y: Any, f: np.ndarray, size: Any) -> Iterator[np.ndarray]:
        if self.link is LOGIT:
            yield from _logistic(y, 1.0, f)
            return
        sign = 2.0 * y - 1.0
        f = sign * f
        log_p = log_ndtr(f)
        yield log_p
        # φ(f) / Φ(f), with no overflow in either tail.
        r = np.exp(-0.5 * f**2 - 0.5 * np.log(2.0 * np.pi) - log_p)
        yield sign * r
        yield -r * (f + r)
        yield sign * r * (f**2 - 1.0 + 3.0 * f * r + 2.0 * r**2)
        yield -r * (f + r) * (f**2 - 1.0 + 6.0 * f * r + 6.0 * r**2) + 2.0 * f * r + 3.0 * r**2

    def draw(self, eta: np.ndarray, size: np.ndarray | float, rng: np.random.Generator) -> np.ndarray:
        """Draw classes."""
        return (rng.random(np.shape(eta)) < self.link.inverse(eta)).astype(float)

    def predicted(self, at: NormalMixture, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the probability p of a 1, and p (1 - p)."""
        p = self.link.mean(at)
        return p, p * (1 - p)

    def facts(self) -> dict[str, Any]:
        """Return the link."""
        return {"link": self.link.name}


# -- Numbers of those tested ---------------------------------------------------------------------------------


class TestedFamily(Likelihood):
    """Positives among those tested, or cases among persons, with log odds f + offset.

    Persons with the same f are one observation: a Bernoulli likelihood of each would say the same.

    Attributes
    ----------
    positive, tested : (n,) arrays
        How many are positive, of how many.
    offset : float
        The log odds where f is zero: the log of all cases over all controls, or what f lacks of the linear predictor.
    link : Link or "logit" or "exp"
        What maps show: the share that is positive, or the relative risk exp(f).
    """

    arrays = ("positive", "tested")

    positive: np.ndarray
    tested: np.ndarray
    offset: float

    def __post_init__(self) -> None:
        bad = int((~((self.positive >= 0) & (self.positive <= self.tested))).sum())
        if bad:
            raise DataError(
                f"Positives are from 0 to the number of those tested; {bad:,} of {len(self.tested):,} are not."
            )
        object.__setattr__(self, "link", _link(self.link, LOGIT, EXP))

    @property
    def quantity(self) -> str:  # type: ignore[override]
        """A prevalence; of cases and controls a relative risk, of which the exposure says more."""
        return "intensity" if self.link is EXP else "prevalence"

    def of(self, values: np.ndarray, size: np.ndarray, centre: float = 0.0) -> Self:
        """Return the likelihood of other positives; `size` is how many were tested."""
        return self._replace(positive=values, tested=size, offset=self.offset + centre)

    def _linear(self, eta: np.ndarray, size: np.ndarray | float) -> np.ndarray:
        return self.offset + eta

    @staticmethod
    def _ways(y: Any, size: Any) -> np.ndarray:
        """Return the log of the number of ways to choose the positives."""
        return gammaln(size + 1.0) - gammaln(y + 1.0) - gammaln(size - y + 1.0)

    def predicted(self, at: NormalMixture, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the probability p that one who is tested there is positive, and p (1 - p)."""
        p = LOGIT.mean(at.plus(self.offset))
        return p, p * (1 - p)

    def moments(self, eta: np.ndarray, size: np.ndarray | float) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of numbers of positives; `size` is how many are tested."""
        p = expit(self.offset + eta)
        return size * p, size * p * (1.0 - p)

    def facts(self) -> dict[str, Any]:
        """Return offset and link."""
        return {"offset": self.offset, "link": self.link.name}


@dataclass(frozen=True, eq=False)
class Binomial(TestedFamily):
    """Independent positives among those tested; see `TestedFamily`."""

    positive: np.ndarray
    tested: np.ndarray
    offset: float = 0.0
    link: Any = LOGIT

    @property
    def name(self) -> str:
        """Short name for reports."""
        return "binomial (logit)"

    def _derivatives(self, y: Any, f: np.ndarray, size: Any) -> Iterator[np.ndarray]:
        return _plus(self._ways(y, size), _logistic(y, size, f))

    def draw(self, eta: np.ndarray, size: np.ndarray | float, rng: np.random.Generator) -> np.ndarray:
        """Draw numbers of positives; `size` is how many are tested."""
        return rng.binomial(np.asarray(size, int), expit(self.offset + eta)).astype(float)


#: Log odds beyond which a beta-binomial's derivatives are those of its limit.
_SURE = 60.0


def _polygamma(order: int, x: np.ndarray) -> np.ndarray:
    """Return a derivative of the digamma function at positive numbers, by its recurrence and asymptotic series.

    SciPy's takes five times as long: most of the time of a beta-binomial fit.

    Examples
    --------
    >>> from scipy.special import polygamma
    >>> x = np.geomspace(1e-3, 1e5, 50)
    >>> bool(max(np.abs(_polygamma(n, x) / polygamma(n, x) - 1).max() for n in (1, 2, 3)) < 1e-12)
    True
    """
    far, total = x + _STEPS, np.zeros(np.shape(x))
    for step in range(_STEPS):
        one = power = 1.0 / (x + step)
        for _ in range(order):
            power = power * one  # not of NumPy's powers, which take several times as long
        total += power
    total *= math.factorial(order)
    over, square = 1.0 / far, far**-2.0
    series = np.zeros(np.shape(x))
    for k in range(len(_BERNOULLI), 0, -1):
        weight = _BERNOULLI[k - 1] * math.factorial(2 * k + order - 1) / math.factorial(2 * k)
        series = (series + weight) * square
    series += math.factorial(order - 1) + 0.5 * math.factorial(order) * over
    return np.asarray((-1.0) ** (order + 1) * (total + series * over**order))


#: Steps of the recurrence, and the Bernoulli numbers B_2, B_4, ... of the series.
_STEPS, _BERNOULLI = 10, (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)


@dataclass(frozen=True, eq=False)
class BetaBinomial(TestedFamily):
    """Positives among those tested where sites vary more than chance; see `TestedFamily`.

    The share of a site is drawn from a beta distribution with the mean p = logit⁻¹(f + offset) and the variance
    p (1 - p) / (k + 1). It is not log-concave in f everywhere.

    Parameters
    ----------
    positive, tested, offset, link
        As for `Binomial`.
    k : float
        The size: positive; a binomial number in the limit of a large one.
    gain : float
        Nats by which the bound of a fit with it lies above that of a binomial fit, where that is known.

    Examples
    --------
    >>> wide = BetaBinomial(np.array([3.0]), np.array([9.0]), k=1e5)
    >>> at = np.array([-0.5]), np.array([0.2])
    >>> float(np.abs(wide.expected(*at).value - wide.limit().expected(*at).value)[0]) < 1e-3
    True
    """

    about = "sites vary more than chance"
    dispersion = "k"

    positive: np.ndarray
    tested: np.ndarray
    offset: float = 0.0
    link: Any = LOGIT
    k: float = 1.0
    gain: float = math.nan

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_size(self.k, "beta-binomial")

    @property
    def name(self) -> str:
        """Short name for reports."""
        return "beta-binomial (logit)"

    def limit(self) -> Binomial:
        """Return the binomial likelihood of the same numbers."""
        return Binomial(self.positive, self.tested, self.offset, self.link)

    def _derivatives(self, y: Any, f: np.ndarray, size: Any) -> Iterator[np.ndarray]:
        f = np.clip(f, -_SURE, _SURE)
        p, k = expit(f), self.k
        a, b = k * p, k * expit(-f)
        misses = size - y
        seen = gammaln(y + a) - gammaln(a) + gammaln(misses + b) - gammaln(b)
        yield self._ways(y, size) + seen + gammaln(k) - gammaln(size + k)

        # log p is g(a) with b = k - a; its derivatives in f follow from those of g and of a by the chain rule.
        def by_a(order: int) -> np.ndarray:
            if order == 1:
                return digamma(y + a) - digamma(a) - digamma(misses + b) + digamma(b)
            upper = _polygamma(order - 1, y + a) - _polygamma(order - 1, a)
            lower = _polygamma(order - 1, misses + b) - _polygamma(order - 1, b)
            return upper + (-1.0) ** order * lower

        q, lean = p * expit(-f), 1.0 - 2.0 * p
        a1 = k * q
        a2 = a1 * lean
        g1 = by_a(1)
        yield g1 * a1
        g2 = by_a(2)
        yield g2 * a1**2 + g1 * a2
        g3, a3 = by_a(3), a1 * (1.0 - 6.0 * q)
        yield g3 * a1**3 + 3.0 * g2 * a1 * a2 + g1 * a3
        a4 = a2 * (1.0 - 12.0 * q)
        yield by_a(4) * a1**4 + 6.0 * g3 * a1**2 * a2 + g2 * (3.0 * a2**2 + 4.0 * a1 * a3) + g1 * a4

    def draw(self, eta: np.ndarray, size: np.ndarray | float, rng: np.random.Generator) -> np.ndarray:
        """Draw numbers of positives; `size` is how many are tested."""
        p = expit(self.offset + eta)
        share = rng.beta(np.maximum(self.k * p, 1e-300), np.maximum(self.k * (1.0 - p), 1e-300))
        return rng.binomial(np.asarray(size, int), share).astype(float)

    def moments(self, eta: np.ndarray, size: np.ndarray | float) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of numbers of positives; `size` is how many are tested."""
        mean, variance = super().moments(eta, size)
        return mean, variance * (1.0 + (np.asarray(size) - 1.0) / (self.k + 1.0))

    def facts(self) -> dict[str, Any]:
        """Return offset and link, the size, and what it gained."""
        return super().facts() | _size_facts(self.k, self.gain)


# -- Names ---------------------------------------------------------------------------------------------------

#: The families of counts, of positives among those tested, and of all that is observed at places, as users call them.
CountName = Literal["poisson", "negative-binomial"]
TestedName = Literal["binomial", "beta-binomial"]
PlaceName = Literal["gaussian", "bernoulli", "poisson", TestedName]
#: The families without data, by name.
FAMILIES: dict[str, Likelihood] = {
    "poisson": Poisson.without_data({}),
    "negative-binomial": NegativeBinomial.without_data({}),
    "gaussian": Gaussian.without_data({}),
    "bernoulli": Bernoulli.without_data({}),
    "binomial": Binomial.without_data({}),
    "beta-binomial": BetaBinomial.without_data({}),
}
