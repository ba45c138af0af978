"""Differences and ratios of two independent quantities, each a link of a mixture of normals, without sampling."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from geobgp.inference.links import EXP, IDENTITY, Link, LogOf
from geobgp.inference.mixture import NormalMixture

#: The trapezoidal rule, which converges faster than any power for normals: how many standard deviations it
#: reaches to, how many lie between two points, and how many points there are at most.
_REACH, _STEP, _MOST = 7.0, 0.3, 300
#: Places that are solved for together.
_BLOCK = 4000


@dataclass(frozen=True, eq=False)
class Quantity:
    """An increasing function of a mixture of normals at each of n places."""

    mixture: NormalMixture
    link: Link = EXP

    def quantile(self, q: float) -> np.ndarray:
        """Return the value below which a share `q` lies, (n,)."""
        return self.link.quantile(self.mixture, q)

    def at(self, places: np.ndarray) -> Quantity:
        """Return it at some of the places."""
        m = self.mixture
        return Quantity(NormalMixture(m.weight, m.mu[:, places], m.var[:, places]), self.link)

    @property
    def log(self) -> Quantity:
        """The logarithm of a quantity that is not negative."""
        return Quantity(self.mixture, IDENTITY if self.link is EXP else LogOf(self.link))

    def inside(self, values: np.ndarray) -> np.ndarray:
        """Return which values lie between the ends of the quantity's range."""
        return np.asarray((values > self.link.lowest) & (values < self.link.highest))

    def slope(self, values: np.ndarray) -> np.ndarray:
        """Return the derivative of the linear predictor in the quantity; 0 beyond the ends of its range."""
        inside = self.inside(values)
        return np.where(inside, np.exp(self.link.log_slope(np.where(inside, values, 0.5))), 0.0)


@dataclass(frozen=True, eq=False)
class Difference:
    """first - second at each of n places, where the two are independent.

    Parameters
    ----------
    first, second : Quantity
        Of as many places.

    Examples
    --------
    >>> one = Quantity(NormalMixture(np.ones(1), np.zeros((1, 1)), np.full((1, 1), 0.25)))
    >>> Difference(one, one).quantile(0.5).round(9) + 0.0
    array([0.])
    """

    first: Quantity
    second: Quantity

    @property
    def _normal(self) -> NormalMixture | None:
        """The difference where it is a mixture of normals itself."""
        both = self.first.link is IDENTITY and self.second.link is IDENTITY
        return self.first.mixture.minus(self.second.mixture) if both else None

    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance."""
        (mean, var), (other, other_var) = (one.link.moments(one.mixture) for one in (self.first, self.second))
        return mean - other, var + other_var

    def quantile(self, q: float) -> np.ndarray:
        """Return the value below which a share `q` lies, (n,).

        P(first - second <= d) is an integral over either of the two. The one is taken over which the other's
        distribution is the smoother; the root is found by Newton's method within bounds that need no integral.
        """
        if self._normal is not None:
            return self._normal.quantile(q)
        guess = self._guess(q)
        out = np.full(len(guess), np.nan)
        for at, sign, inner, outer in self._directions(guess):
            out[at] = sign * _quantile(inner, outer, q if sign > 0 else 1 - q, sign * guess[at])
        return out

    def sf(self, value: float) -> np.ndarray:
        """Return the probability of lying above `value`, (n,)."""
        if self._normal is not None:
            return self._normal.sf(value)
        x = np.where(np.isnan(self._guess(0.5)), np.nan, value)
        out = np.full(len(x), np.nan)
        for at, sign, inner, outer in self._directions(x):
            points, weights = _points(outer)
            below = _distribution(inner, sign * value + points, weights)[0]
            out[at] = 1.0 - below if sign > 0 else below
        return np.clip(out, 0.0, 1.0)

    def _directions(self, x: np.ndarray) -> list[tuple[np.ndarray, float, Quantity, Quantity]]:
        """Return some places at a time: which, the sign of the difference, what is inside the integral and what not."""
        swap, parts = self._swapped(x), []
        for turned in (False, True):
            mine = np.flatnonzero(np.isfinite(x) & (swap == turned))
            for start in range(0, len(mine), _BLOCK):
                at = mine[start : start + _BLOCK]
                both = self.first.at(at), self.second.at(at)
                parts.append((at, -1.0 if turned else 1.0, *(both[::-1] if turned else both)))
        return parts

    def _guess(self, q: float) -> np.ndarray:
        middle, other = (one.quantile(0.5) for one in (self.first, self.second))
        reach = np.hypot(self.first.quantile(q) - middle, self.second.quantile(1 - q) - other)
        return np.asarray(middle - other + np.sign(q - 0.5) * reach)

    def _swapped(self, x: np.ndarray) -> np.ndarray:
        """Return where the integral about a difference x is over the first, not over the second."""
        middle, other = (one.quantile(0.5) for one in (self.first, self.second))
        # How wide the inner distribution's rise is, in standard deviations of the outer linear predictor.
        ratio = np.sqrt(self.first.mixture.moments()[1] / np.maximum(self.second.mixture.moments()[1], 1e-300))
        with np.errstate(divide="ignore", invalid="ignore"):
            over_second = ratio * self.second.slope(middle - x) / self.first.slope(middle)
            over_first = self.first.slope(other + x) / self.second.slope(other) / ratio
        over_second = np.where(self.second.inside(middle - x), over_second, np.inf)
        over_first = np.where(self.first.inside(other + x), over_first, np.inf)
        return np.asarray(over_first > over_second)


def _quantile(inner: Quantity, outer: Quantity, q: float, x: np.ndarray) -> np.ndarray:
    """Return the quantile of inner - outer, from a guess."""
    values, weights = _points(outer)
    # With half of the chance on each side no quantile of the difference lies outside of these.
    low = inner.quantile(q / 2) - outer.quantile(1 - q / 2)
    high = inner.quantile((1 + q) / 2) - outer.quantile((1 - q) / 2)
    close = 1e-9 * np.maximum(high - low, 1e-300)
    x = np.clip(x, low, high)
    left = np.arange(len(x))
    for _ in range(60):
        below, density = _distribution(inner.at(left), x[left, None] + values[left], weights[left])
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


def _points(quantity: Quantity) -> tuple[np.ndarray, np.ndarray]:
    """Return points (n, j) of a quantity, and their weights, which add up to one."""
    mixture = quantity.mixture
    sd = np.maximum(np.sqrt(mixture.var), 1e-150)
    low, high = (mixture.mu - _REACH * sd).min(axis=0), (mixture.mu + _REACH * sd).max(axis=0)
    # Close enough together for the narrowest component, within reason.
    most = np.max((high - low) / sd.min(axis=0))
    at = np.linspace(0.0, 1.0, int(np.clip(np.ceil(most / _STEP), 2 * _REACH / _STEP, _MOST)) + 1)
    eta = low[:, None] + (high - low)[:, None] * at
    weights = np.zeros_like(eta)
    for share, mu, spread in zip(mixture.weight, mixture.mu, sd, strict=True):
        weights += share / spread[:, None] * np.exp(-0.5 * ((eta - mu[:, None]) / spread[:, None]) ** 2)
    return quantity.link.inverse(eta), weights / weights.sum(axis=1, keepdims=True)


def _distribution(quantity: Quantity, values: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the chance of a quantity lying below values (n, j), and its density there, both averaged."""
    below, density = np.zeros(len(values)), np.zeros(len(values))
    eta, slope, mixture = quantity.link.forward(values), weights * quantity.slope(values), quantity.mixture
    for share, mu, var in zip(mixture.weight, mixture.mu, mixture.var, strict=True):
        sd = np.maximum(np.sqrt(var), 1e-150)
        z = (eta - mu[:, None]) / sd[:, None]
        below += share * (ndtr(z) * weights).sum(axis=1)
        density += share * (np.exp(-0.5 * z**2) * slope).sum(axis=1) / (sd * np.sqrt(2 * np.pi))
    return below, density
