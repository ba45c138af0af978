"""Mixtures of normal distributions through the exponential: means, quantiles, exceedance, differences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri

from geobgp.errors import DataError
from geobgp.text import whole_percent
from geobgp.validation import PROBABILITIES

# -- Mixtures of normals on the log scale: mean, sd, quantiles and tail probabilities, without sampling ------
# A posterior of the linear predictor is, at each place, a normal (one hyperparameter point) or a mixture of
# normals (several). Its exponential, the intensity, is then log-normal or a mixture of log-normals.


_TINY_SD = 1e-150
#: Points of the quadrature over a change, and halvings of the interval in which a quantile of its difference lies.
_CHANGES, _HALVINGS = 41, 45


def check_probabilities(quantiles: Sequence[float]) -> tuple[float, ...]:
    """Return `quantiles` as floats strictly between 0 and 1, or say which one is not.

    Examples
    --------
    >>> check_probabilities([0.05, 0.95])
    (0.05, 0.95)
    """
    return PROBABILITIES("quantiles", quantiles)


#: The probability of intervals unless another is asked for.
INTERVAL = 0.9


def quantiles_of(interval: float) -> tuple[float, float, float]:
    """Return the quantiles that are reported: the ends of the central interval of a probability, and the median.

    Examples
    --------
    >>> quantiles_of(0.9), quantiles_of(0.95)
    ((0.05, 0.5, 0.95), (0.025, 0.5, 0.975))
    """
    side = round(0.5 - 0.5 * interval, 12)
    return side, 0.5, round(1.0 - side, 12)


def within(pit: Any, interval: float) -> Any:
    """Return whether numbers lie within their central interval, by their PIT values."""
    low, _, high = quantiles_of(interval)
    return (pit >= low) & (pit <= high)


def predicted_ends(numbers: np.ndarray, interval: float) -> dict[str, Any]:
    """Return the ends of the central interval of draws of a count, as ``predicted_q05`` and the like."""
    low, _, high = quantiles_of(interval)
    ends = np.quantile(numbers, [low, high], axis=0, method="inverted_cdf")
    return {f"predicted_{quantile_name(q)}": end for q, end in zip((low, high), ends, strict=True)}


def quantile_name(q: float) -> str:
    """Return the column name of a quantile: the digits of its probability, two at least.

    Examples
    --------
    >>> quantile_name(0.05), quantile_name(0.5), quantile_name(0.975)
    ('q05', 'q50', 'q975')
    """
    return f"q{f'{q:.12f}'.rstrip('0')[2:]:0<2}"


def probability_of(name: str) -> float:
    """Return the probability that a quantile's name stands for.

    Examples
    --------
    >>> probability_of("q05"), probability_of("rate_q975")
    (0.05, 0.975)
    """
    return float(f"0.{name.rpartition('q')[2]}")


def quantile_words(name: str) -> str:
    """Return what a quantile's name stands for.

    Examples
    --------
    >>> quantile_words("q025")
    '2.5 % quantile'
    """
    return f"{whole_percent(probability_of(name))} quantile"


class Interval(NamedTuple):
    """The names of the ends of an interval, and how probable it is, in words."""

    low: str
    high: str
    words: str


def interval_in(names: Iterable[Any], of: str = "") -> Interval | None:
    """Return the widest interval of a quantity among names of columns; None where there is none.

    Parameters
    ----------
    names : iterable of str
    of : str
        The quantity, ``x`` of ``x_q05``; by default that of which a table is, with ``q05`` alone.

    Examples
    --------
    >>> interval_in(["name", "expected", "q05", "q50", "q95", "rate", "rate_q05", "rate_q95"])
    Interval(low='q05', high='q95', words='90 %')
    >>> interval_in(["rate", "rate_q025", "rate_q975"], "rate").words
    '95 %'
    """
    start = f"{of}_q" if of else "q"
    names_of_ends = [name for name in map(str, names) if name.startswith(start) and name[len(start) :].isdigit()]
    if len(names_of_ends) < 2:
        return None
    low, *_, high = sorted(names_of_ends, key=probability_of)
    return Interval(low, high, whole_percent(probability_of(high) - probability_of(low)))


@dataclass(frozen=True, eq=False)
class NormalMixture:
    """A mixture of normals at each of n places; `weight` is shared by all places.

    Parameters
    ----------
    weight : (k,) array
        Mixture weights; they sum to one.
    mu, var : (k, n) arrays
        Mean and variance of every component at every place. NaN at a place gives NaN in all its results.

    Examples
    --------
    >>> one = NormalMixture(np.ones(1), np.zeros((1, 1)), np.ones((1, 1)))
    >>> one.quantile(0.5), one.exp_mean().round(4)
    (array([0.]), array([1.6487]))
    """

    weight: np.ndarray
    mu: np.ndarray
    var: np.ndarray

    def __post_init__(self) -> None:
        if self.mu.shape != self.var.shape or self.mu.shape[0] != self.weight.size:
            raise DataError(
                f"A mixture needs one weight per row of mu and var; found weights {self.weight.shape}, "
                f"mu {self.mu.shape}, var {self.var.shape}."
            )

    def _moments(self, means: np.ndarray, variances: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of a mixture from those of its components (law of total variance)."""
        mean = self.weight @ means
        return mean, self.weight @ (variances + (means - mean) ** 2)

    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the mean and the variance, (n,) each."""
        return self._moments(self.mu, self.var)

    def exp_mean(self) -> np.ndarray:
        """Return the mean of the exponential: sum of w exp(mu + var / 2); infinite where it overflows."""
        with np.errstate(over="ignore"):
            return self.weight @ np.exp(self.mu + self.var / 2)

    def exp_moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the mean and the variance of the exponential, (n,) each; infinite where they overflow."""
        with np.errstate(over="ignore", invalid="ignore"):
            means = np.exp(self.mu + self.var / 2)
            mean, variance = self._moments(means, means**2 * np.expm1(self.var))
        return mean, np.where(np.isnan(variance) & ~np.isnan(mean), np.inf, variance)

    def plus(self, shift: float) -> NormalMixture:
        """Return the mixture moved by a number: its exponential is multiplied."""
        return NormalMixture(self.weight, self.mu + shift, self.var)

    def minus(self, other: NormalMixture) -> NormalMixture:
        """Return the difference from another mixture that is independent of this one, at the same places.

        Examples
        --------
        >>> one = NormalMixture(np.ones(1), np.ones((1, 2)), np.ones((1, 2)))
        >>> one.minus(one).var
        array([[2., 2.]])
        """
        n = self.mu.shape[1]
        return NormalMixture(
            np.outer(self.weight, other.weight).ravel(),
            (self.mu[:, None, :] - other.mu).reshape(-1, n),
            (self.var[:, None, :] + other.var).reshape(-1, n),
        )

    def sf(self, value: float | np.ndarray) -> np.ndarray:
        """Return the probability of lying above `value`, (n,)."""
        return np.clip(self.weight @ ndtr((self.mu - value) / self._sd), 0.0, 1.0)

    @property
    def _sd(self) -> np.ndarray:
        return np.maximum(np.sqrt(self.var), _TINY_SD)

    def quantile(self, q: float) -> np.ndarray:
        """Return the value below which a share `q` lies, (n,).

        One component: in closed form. Several: the root lies between the smallest and the largest of the
        components' own quantiles; Newton's method from there, with a bisection wherever it would step out.
        """
        sd = self._sd
        own = self.mu + ndtri(q) * sd
        low, high = own.min(axis=0), own.max(axis=0)
        if self.weight.size == 1:
            return low
        weight = self.weight[:, None]
        x = self.weight @ own
        for _ in range(120):
            z = (x - self.mu) / sd
            excess = np.sum(weight * ndtr(z), axis=0) - q
            high = np.where(excess >= 0, x, high)
            low = np.where(excess <= 0, x, low)
            with np.errstate(under="ignore"):
                density = np.sum(weight * np.exp(-0.5 * z**2) / sd, axis=0) / np.sqrt(2 * np.pi)
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                step = x - excess / density
            good = (step >= low) & (step <= high)
            new = np.where(good, step, 0.5 * (low + high))
            moved = np.abs(new - x)
            x = new
            # What is left of `excess` may be rounding, with which a flat density would play for ever.
            with np.errstate(invalid="ignore"):
                if not np.any((moved > 2e-15 * np.maximum(np.abs(x), 1.0)) & (np.abs(excess) > 1e-15)):
                    break
        return x


# -- Changes of an intensity under other covariates, without sampling --


#: Standard deviations that the trapezoidal rule reaches to.
_REACH = 7.0


@dataclass(frozen=True, eq=False)
class LogNormalChange:
    """exp(start + change) - exp(start) at each of n places, where start and change are normal together.

    Parameters
    ----------
    start, change : NormalMixture
        Of as many places, with the same components.
    covariance : (k, n) array
        Of start and change in every component.

    Examples
    --------
    >>> start = NormalMixture(np.ones(1), np.zeros((1, 1)), np.full((1, 1), 0.25))
    >>> doubled = NormalMixture(np.ones(1), np.full((1, 1), np.log(2.0)), np.zeros((1, 1)))
    >>> LogNormalChange(start, doubled, np.zeros((1, 1))).quantile(0.5).round(6)
    array([1.])
    """

    start: NormalMixture
    change: NormalMixture
    covariance: np.ndarray

    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance, exactly."""
        share, (mu, move) = self.start.weight, (self.start.mu, self.change.mu)

        def expected(a: float, b: float) -> np.ndarray:
            """Return the mean of exp(a start + b change)."""
            variance = a**2 * self.start.var + b**2 * self.change.var + 2.0 * a * b * self.covariance
            return np.asarray(share @ np.exp(a * mu + b * move + 0.5 * variance))

        with np.errstate(over="ignore", invalid="ignore"):
            mean = expected(1, 1) - expected(1, 0)
            return mean, np.maximum(expected(2, 2) - 2.0 * expected(2, 1) + expected(2, 0) - mean**2, 0.0)

    def quantile(self, q: float) -> np.ndarray:
        """Return the value below which a share `q` lies, (n,), by quadrature over the change.

        Given the change the difference is log-normal, or the negative of what is. The root is found by bisection
        between the lowest and the highest quantile of these.
        """
        at = np.linspace(-_REACH, _REACH, _CHANGES)
        weight = np.exp(-0.5 * at**2)
        weight = (self.start.weight[:, None] * weight / weight.sum()).reshape(-1, 1)
        sd = np.sqrt(self.change.var)
        change = (self.change.mu[:, None] + at[:, None] * sd[:, None]).reshape(-1, self.change.mu.shape[1])
        slope = np.divide(self.covariance, sd, out=np.zeros_like(sd), where=sd > 0)
        middle = (self.start.mu[:, None] + at[:, None] * slope[:, None]).reshape(change.shape)
        rest = np.maximum(np.sqrt(np.maximum(self.start.var - slope**2, 0.0)), _TINY_SD)
        rest = np.repeat(rest, len(at), axis=0)
        sign = np.sign(change)
        with np.errstate(divide="ignore", over="ignore"):
            logs = middle + np.log(np.abs(np.expm1(change)))
            each = sign * np.exp(logs + sign * rest * ndtri(q))
        low, high = each.min(axis=0), each.max(axis=0)
        for _ in range(_HALVINGS):
            x = 0.5 * (low + high)
            with np.errstate(divide="ignore", invalid="ignore"):
                below = ndtr(sign * (np.log(np.abs(x)) - logs) / rest)
            below = np.where(sign * np.sign(x) > 0, below, np.where(sign < 0, 1.0, x >= 0.0))
            less = np.sum(weight * below, axis=0) < q
            low, high = np.where(less, x, low), np.where(less, high, x)
        return np.asarray(0.5 * (low + high))
