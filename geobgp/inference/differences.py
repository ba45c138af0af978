"""Differences of two independent intensities, each log-normal or a mixture of log-normals, without sampling."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from geobgp.inference.mixture import NormalMixture

#: The trapezoidal rule, which converges faster than any power for normals: how many standard deviations it
#: reaches to, how many lie between two points, and how many points there are at most.
_REACH, _STEP, _MOST = 7.0, 0.3, 300
#: Places that are solved for together.
_BLOCK = 4000


@dataclass(frozen=True, eq=False)
class LogNormalDifference:
    """exp(first) - exp(second) at each of n places, where first and second are independent mixtures of normals.

    Parameters
    ----------
    first, second : NormalMixture
        Of as many places.

    Examples
    --------
    >>> one = NormalMixture(np.ones(1), np.zeros((1, 1)), np.full((1, 1), 0.25))
    >>> LogNormalDifference(one, one).quantile(0.5).round(9) + 0.0
    array([0.])
    """

    first: NormalMixture
    second: NormalMixture

    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance, exactly."""
        (mean, var), (other, other_var) = self.first.exp_moments(), self.second.exp_moments()
        return mean - other, var + other_var

    def quantile(self, q: float) -> np.ndarray:
        """Return the value below which a share `q` lies, (n,).

        P(first - second <= d) is an integral over either of the two. The one is taken over which the other's
        distribution is the smoother; the root is found by Newton's method within bounds that need no integral.
        """
        guess, swap = self._start(q)
        out = np.full(len(guess), np.nan)
        for turned in (False, True):
            outer, inner = (self.second, self.first)[:: -1 if turned else 1]
            mine = np.flatnonzero(np.isfinite(guess) & (swap == turned))
            for start in range(0, len(mine), _BLOCK):
                at = mine[start : start + _BLOCK]
                sign, share = (-1.0, 1 - q) if turned else (1.0, q)
                out[at] = sign * _quantile(_at(inner, at), _at(outer, at), share, sign * guess[at])
        return out

    def _start(self, q: float) -> tuple[np.ndarray, np.ndarray]:
        """Return a guess of the quantile, and whether to integrate over the first instead of the second."""
        middle, other = (np.exp(m.quantile(0.5)) for m in (self.first, self.second))
        reach = np.hypot(np.exp(self.first.quantile(q)) - middle, np.exp(self.second.quantile(1 - q)) - other)
        guess = middle - other + np.sign(q - 0.5) * reach
        # How wide the inner distribution's rise is, in standard deviations of the outer logarithm.
        ratio = np.sqrt(self.first.moments()[1] / np.maximum(self.second.moments()[1], 1e-300))
        with np.errstate(divide="ignore", invalid="ignore"):
            over_second = np.where(middle > guess, ratio * middle / (middle - guess), np.inf)
            over_first = np.where(other > -guess, other / (other + guess) / ratio, np.inf)
        return guess, over_first > over_second


def _at(mixture: NormalMixture, places: np.ndarray) -> NormalMixture:
    return NormalMixture(mixture.weight, mixture.mu[:, places], mixture.var[:, places])


def _quantile(inner: NormalMixture, outer: NormalMixture, q: float, x: np.ndarray) -> np.ndarray:
    """Return the quantile of exp(inner) - exp(outer), from a guess."""
    values, weights = _points(outer)
    # With half of the chance on each side no quantile of the difference lies outside of these.
    low = np.exp(inner.quantile(q / 2)) - np.exp(outer.quantile(1 - q / 2))
    high = np.exp(inner.quantile((1 + q) / 2)) - np.exp(outer.quantile((1 - q) / 2))
    close = 1e-9 * np.maximum(high - low, 1e-300)
    x = np.clip(x, low, high)
    left = np.arange(len(x))
    for _ in range(60):
        below, density = _distribution(_at(inner, left), x[left, None] + values[left], weights[left])
        excess = below - q
        high[left] = np.where(excess >= 0, x[left], high[left])
        low[left] = np.where(excess <= 0, x[left], low[left])
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            step = x[left] - excess / density
        good = (step >= low[left]) & (step <= high[left])
        new = np.where(good, step, 0.5 * (low[left] + high[left]))
        moved = np.abs(new - x[left])
        x[left] = new
        left = left[(moved > close[left]) & (np.abs(excess) > 1e-12)]
        if not len(left):
            break
    return x


def _points(mixture: NormalMixture) -> tuple[np.ndarray, np.ndarray]:
    """Return points (n, j) of exp(mixture), and their weights, which add up to one."""
    sd = np.maximum(np.sqrt(mixture.var), 1e-150)
    low, high = (mixture.mu - _REACH * sd).min(axis=0), (mixture.mu + _REACH * sd).max(axis=0)
    # Close enough together for the narrowest component, within reason.
    most = np.max((high - low) / sd.min(axis=0))
    at = np.linspace(0.0, 1.0, int(np.clip(np.ceil(most / _STEP), 2 * _REACH / _STEP, _MOST)) + 1)
    logs = low[:, None] + (high - low)[:, None] * at
    weights = np.zeros_like(logs)
    for share, mu, spread in zip(mixture.weight, mixture.mu, sd, strict=True):
        weights += share / spread[:, None] * np.exp(-0.5 * ((logs - mu[:, None]) / spread[:, None]) ** 2)
    return np.exp(logs), weights / weights.sum(axis=1, keepdims=True)


def _distribution(
    mixture: NormalMixture, values: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the chance of exp(mixture) lying below values (n, j), and its density there, both averaged."""
    below, density = np.zeros(len(values)), np.zeros(len(values))
    held = values > 0
    logs = np.log(np.where(held, values, 1.0))
    inverse = np.where(held, weights / np.where(held, values, 1.0), 0.0)
    weights = np.where(held, weights, 0.0)
    for share, mu, var in zip(mixture.weight, mixture.mu, mixture.var, strict=True):
        sd = np.maximum(np.sqrt(var), 1e-150)
        z = (logs - mu[:, None]) / sd[:, None]
        below += share * (ndtr(z) * weights).sum(axis=1)
        density += share * (np.exp(-0.5 * z**2) * inverse).sum(axis=1) / (sd * np.sqrt(2 * np.pi))
    return below, density
