"""Scores of what was held out: predictive distributions, log score, PIT, coverage, CRPS and interval score."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import bdtr, gammaln, kolmogorov, logsumexp, ndtri, pdtr, xlogy

from geobgp.inference.mixture import predicted_ends, within
from geobgp.text import number

#: Chance that a check raises a false alarm: of the coverage, and of the dispersion and the PIT values.
ALARM, RARE_ALARM = 0.01, 0.001
#: Poisson means are cut off here, above which counts cannot be drawn.
_MOST = 1e15


# -- Predictive distributions ---------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Predictive:
    """What is predicted of k numbers or values, by draws.

    Attributes
    ----------
    draws : (n, k) array
        Of new observations; each column is scored by itself.
    rates : (n, k) array, optional
        Means of Poisson counts: probabilities are then averaged over these, which is smoother than counting draws.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> flat = Predictive.of_rates(np.full((400, 1), 4.0), rng)
    >>> flat.mean, {name: int(end[0]) for name, end in flat.ends(0.9).items()}
    (array([4.]), {'predicted_q05': 1, 'predicted_q95': 7})
    >>> bool(0.2381 <= flat.pit(rng, 3.0)[0] <= 0.4335)  # between P(y < 3) and P(y <= 3)
    True
    """

    draws: np.ndarray
    rates: np.ndarray | None = None

    @classmethod
    def of_rates(cls, rates: np.ndarray, rng: np.random.Generator) -> Predictive:
        """Return that of Poisson counts whose means are distributed as draws, (n, k)."""
        rates = np.minimum(rates, _MOST)
        return cls(rng.poisson(rates).astype(float), rates)

    @property
    def mean(self) -> np.ndarray:
        """Mean of each."""
        return (self.draws if self.rates is None else self.rates).mean(axis=0)

    def ends(self, interval: float) -> dict[str, np.ndarray]:
        """Return the ends of the central interval of a probability, as ``predicted_q05`` and the like."""
        return predicted_ends(self.draws, interval)

    def pit(self, rng: np.random.Generator, low: Any, high: Any = None) -> np.ndarray:
        """Return the randomised PIT values of what was observed: level between 0 and 1 if predictions are right.

        Parameters
        ----------
        rng : Generator
        low, high : (k,) arrays
            What was observed, or between which numbers it lies where it is suppressed.
        """
        high = low if high is None else high
        if self.rates is not None:
            below = poisson_cdf(np.asarray(low) - 1.0, self.rates).mean(axis=0)
            upto = poisson_cdf(high, self.rates).mean(axis=0)
        else:  # the rank among draws, of which the observed number is one more
            n = len(self.draws)
            below = (self.draws < low).sum(axis=0) / (n + 1)
            upto = ((self.draws <= high).sum(axis=0) + 1) / (n + 1)
        return np.asarray(below + rng.random(below.shape) * (upto - below))

    def crps(self, observed: Any) -> np.ndarray:
        """Return the continuous ranked probability scores, in the observations' own unit: 0 is best.

        Examples
        --------
        >>> Predictive(np.array([[0.0], [2.0]])).crps([1.0])  # E|x - 1| - E|x - x'| / 2
        array([0.5])
        """
        n = len(self.draws)
        ordered = np.sort(self.draws, axis=0)
        weight = (2.0 * np.arange(1, n + 1) - n - 1.0) / n**2
        return np.asarray(np.abs(self.draws - observed).mean(axis=0) - weight @ ordered)

    def interval_score(self, observed: Any, interval: float) -> np.ndarray:
        """Return the interval scores: the width, and what lies outside times 2 / (1 - interval); 0 is best.

        Examples
        --------
        >>> two = Predictive(np.repeat([[0.0, 0.0], [1.0, 1.0]], 50, axis=0))
        >>> two.interval_score([0.5, 1.5], 0.9).round(6)  # 1, and 1 + 20 · 0.5
        array([ 1., 11.])
        """
        low, high = self.ends(interval).values()
        outside = np.maximum(low - observed, 0.0) + np.maximum(observed - high, 0.0)
        return np.asarray(high - low + 2.0 / (1.0 - interval) * outside)


def poisson_cdf(n: Any, means: Any) -> np.ndarray:
    """Return the probability that Poisson counts are n at most."""
    return np.where(np.asarray(n) < 0, 0.0, pdtr(np.maximum(np.floor(n), 0.0), means))


def poisson_log_p(low: Any, high: Any, means: Any) -> np.ndarray:
    """Return the log probability that Poisson counts lie between two numbers, both included.

    Examples
    --------
    >>> round(float(poisson_log_p(2.0, 2.0, 1.0)), 4), round(float(poisson_log_p(0.0, 1.0, 1.0)), 4)
    (-1.6931, -0.3069)
    """
    low, high, means = np.broadcast_arrays(low, high, np.maximum(means, 1e-300))
    out = np.asarray(xlogy(low, means) - means - gammaln(low + 1.0))
    wide = low < high
    if wide.any():
        inside = poisson_cdf(high[wide], means[wide]) - poisson_cdf(low[wide] - 1.0, means[wide])
        out[wide] = np.log(np.maximum(inside, 1e-300))
    return out


def log_mean_exp(logs: np.ndarray) -> np.ndarray:
    """Return the logs of the means of exponentials over the first axis: log scores of mixtures of draws."""
    return np.asarray(logsumexp(logs, axis=0) - np.log(len(logs)))


def without_block(weights: Any, log_scores: Any) -> tuple[float, np.ndarray]:
    """Return the log score of a held-out block under a mixture, and the mixture's weights without the block.

    The block spoke for some hyperparameters, which weigh less without it: p(y | rest) = 1 / E 1 / p(y | rest, θ).

    Parameters
    ----------
    weights : sequence of float
        Of the mixture that saw the block.
    log_scores : sequence of float
        log p(y | rest, θ) at each of its hyperparameters.

    Examples
    --------
    >>> score, shares = without_block([0.5, 0.5], np.log([0.1, 0.3]))
    >>> round(float(np.exp(score)), 6), shares.round(6).tolist()
    (0.15, [0.75, 0.25])
    """
    log_weights = np.log(weights)
    logs = log_weights - np.asarray(log_scores)
    total = logsumexp(logs)
    return float(logsumexp(log_weights) - total), np.exp(logs - total)


# -- Calibration: what PIT values say --------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Calibration:
    """Whether predictive intervals hold what they should, by the randomised PIT values of what was predicted.

    Attributes
    ----------
    pit : (n,) array
    interval : float
        Probability of the predictive intervals.

    Examples
    --------
    >>> level = Calibration((np.arange(100) + 0.5) / 100, 0.9)
    >>> level.coverage, level.band, round(level.dispersion, 1), level.chance > 0.9
    (0.9, (0.82, 0.97), 1.0, True)
    """

    pit: np.ndarray
    interval: float

    @property
    def coverage(self) -> float:
        """Share of numbers within their predictive interval."""
        return float(np.mean(within(self.pit, self.interval)))

    @cached_property
    def band(self) -> tuple[float, float]:
        """Where the coverage of true intervals lies with 99 % probability, were numbers independent."""
        n = len(self.pit)
        below = bdtr(np.arange(n + 1, dtype=float), n, self.interval)
        low, high = (float(np.searchsorted(below, q)) / n for q in (0.5 * ALARM, 1.0 - 0.5 * ALARM))
        return low, high

    @property
    def normal_scores(self) -> np.ndarray:
        """The PIT values as normal scores: standard normal where predictions are right."""
        return np.asarray(ndtri(np.clip(self.pit, 1e-4, 1.0 - 1e-4)))

    @property
    def dispersion(self) -> float:
        """Mean square of the normal scores: 1 where intervals are right, more where they are too narrow."""
        return float(np.mean(self.normal_scores**2))

    @property
    def overdispersed(self) -> bool:
        """Whether the dispersion is larger than chance makes it."""
        return self.dispersion > 1.0 - float(ndtri(0.5 * RARE_ALARM)) * np.sqrt(2.0 / len(self.pit))

    @property
    def chance(self) -> float:
        """Chance that level PIT values stray from the diagonal as far as these (Kolmogorov and Smirnov)."""
        n = len(self.pit)
        ranked = np.sort(self.pit)
        steps = np.arange(1, n + 1) / n
        distance = float(np.max(np.maximum(steps - ranked, ranked - steps + 1.0 / n)))
        return float(kolmogorov(distance * (np.sqrt(n) + 0.12 + 0.11 / np.sqrt(n))))


# -- Scores per event ------------------------------------------------------------------------------------------


def per_event(scores: np.ndarray, events: np.ndarray) -> tuple[float, float]:
    """Return the sum of blocks' scores per event, and its standard error.

    Examples
    --------
    >>> per_event(np.array([1.0, 3.0]), np.array([2.0, 2.0]))
    (1.0, 0.5)
    """
    total, n = float(events.sum()), len(scores)
    mean = float(scores.sum()) / total
    spread = float(np.sum((scores - mean * events) ** 2))
    return mean, float(np.sqrt(spread * n / (n - 1)) / total)


def compared(score: float, se: float, against: str, event: str) -> str:
    """Say how a held-out score compares with that of another model, by its sign and its standard error.

    Examples
    --------
    >>> compared(0.12, 0.02, "one rate everywhere", "event")
    'better than by one rate everywhere, by 0.12 ± 0.02 nats per event'
    >>> compared(-0.0227, 0.0053, "one risk everywhere", "case")
    'worse than by one risk everywhere, by 0.0227 ± 0.0053 nats per case'
    >>> compared(-0.01, 0.02, "one rate everywhere", "event")
    'about as well as by one rate everywhere (-0.01 ± 0.02 nats per event)'
    """
    spread = f"± {number(se, 2)} nats per {event}"
    if abs(score) < 2.0 * se:
        return f"about as well as by {against} ({number(score, 3)} {spread})"
    return f"{'better' if score > 0 else 'worse'} than by {against}, by {number(abs(score), 3)} {spread}"
