"""Likelihoods of counts beyond Poisson: more spread than a Poisson count has, and numbers that are not told.

Expectations under f ~ N(mean, variance) are Gauss-Hermite sums.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from scipy.special import digamma, expit, gammaln, logsumexp

from geobgp.errors import DataError
from geobgp.inference.likelihoods import POINTS, WEIGHTS, Expected, Likelihood, Poisson
from geobgp.inference.mixture import NormalMixture

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

    is_intensity = True

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

    def of(self, values: np.ndarray, exposure: np.ndarray) -> NegativeBinomial:
        """Return the likelihood of other counts."""
        return NegativeBinomial(values, exposure, k=self.k)

    def scatter(self, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
        """Draw what rates are multiplied by, so that Poisson counts about them are spread as these are."""
        return rng.gamma(self.k, 1.0 / self.k, shape)

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

    is_intensity = True

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

    def predicted(self, at: NormalMixture, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of a count with one unit of exposure."""
        return self.told.predicted(at, noise)

    @classmethod
    def without_data(cls, facts: dict[str, Any]) -> Self:
        """Return the likelihood of no counts."""
        return cls(Poisson.without_data({}), np.zeros(0, bool), 0, 0)
