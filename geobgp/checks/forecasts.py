"""Forecasts against what came: the last periods left out, predicted from those before them, and scored."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.special import bdtr, gammaln, logsumexp, pdtr, xlogy

from geobgp.checks.blocks import Blocks, make_blocks
from geobgp.checks.crossval import per_event
from geobgp.data.effort import seen_exposure
from geobgp.errors import DataError, option
from geobgp.text import count, number, percent

if TYPE_CHECKING:
    from geobgp.spacetime.posterior import SpaceTimePosterior

#: Joint draws behind a forecast.
DRAWS = 400
#: Events that simple forecasts add to those of a block, at the rate of all blocks, so that none has a mean of zero.
_ADDED = 1.0


@dataclass(frozen=True, eq=False)
class ForecastCheck:
    """How well the last periods were forecast.

    Attributes
    ----------
    table : DataFrame
        One row per period left out and block of the land: ``period``, ``ahead`` (1 is the first one), ``block``,
        ``observed`` and ``expected`` events, ``q05`` and ``q95`` of their predictive distribution, ``pit``, and log
        probabilities of the observed number: ``log_score`` of the forecast, ``pooled`` of the average of all periods
        before, ``naive`` of the number one season before (or in the last period, where there is no season).
    places : DataFrame
        One row per period: ``score``, log density of where and when events happened, above one rate everywhere.
    seconds : float
    """

    table: pd.DataFrame
    places: pd.DataFrame
    seconds: float

    @property
    def score(self) -> float:
        """Log score of places and times in nats per event, above one rate everywhere and always."""
        return per_event(self.places["score"].to_numpy(), self.places["observed"].to_numpy())[0]

    @property
    def coverage(self) -> float:
        """Share of numbers within their 90 % predictive interval (by PIT value)."""
        return float(np.mean((self.table["pit"] >= 0.05) & (self.table["pit"] <= 0.95)))

    @property
    def coverage_band(self) -> tuple[float, float]:
        """Where the coverage of true 90 % intervals lies with 99 % probability, were blocks independent."""
        n = len(self.table)
        below = bdtr(np.arange(n + 1, dtype=float), n, 0.9)
        return float(np.searchsorted(below, 0.005)) / n, float(np.searchsorted(below, 0.995)) / n

    @property
    def gains(self) -> dict[str, float]:
        """Nats per event by which the forecast of numbers in blocks is ahead of simple ones: "pooled", "naive"."""
        total = max(float(self.table["observed"].sum()), 1.0)
        return {
            name: float((self.table["log_score"] - self.table[name]).sum()) / total
            for name in ("pooled", "naive")
        }

    def by_period(self) -> pd.DataFrame:
        """Return observed and expected events, coverage and gains of each period."""
        groups = self.table.groupby("period", sort=False)
        out = groups[["observed", "expected"]].sum()
        out["coverage"] = groups["pit"].apply(lambda pit: float(np.mean((pit >= 0.05) & (pit <= 0.95))))
        for name in ("pooled", "naive"):
            out[f"above_{name}"] = groups["log_score"].sum() - groups[name].sum()
        return out

    def verdict(self) -> str:
        """Return in a sentence or two what the forecasts say."""
        gains, n = self.gains, self.table["period"].nunique()
        return (
            f"Of {count(n, 'period')} left out, {percent(self.coverage)} of {count(len(self.table), 'number')} lie "
            f"within their 90 % predictive interval; the forecast is {number(gains['pooled'], 2)} nats per event above "
            f"the average of the past and {number(gains['naive'], 2)} above the numbers before."
        )

    def facts(self) -> dict[str, Any]:
        """Return the numbers, as JSON can hold them."""
        return {
            "periods_left_out": int(self.table["period"].nunique()),
            "numbers": len(self.table),
            "score_per_event": self.score,
            "coverage_90": self.coverage,
            "above_pooled": self.gains["pooled"],
            "above_naive": self.gains["naive"],
        }

    def __repr__(self) -> str:
        return (
            f"ForecastCheck({count(self.table['period'].nunique(), 'period')}, {count(len(self.table), 'number')}: "
            f"coverage {percent(self.coverage)} of 90 % intervals, {number(self.gains['pooled'], 2)} nats per event "
            f"above the past's average, {number(self.gains['naive'], 2)} above the numbers before)"
        )


def cross_validate(
    posterior: SpaceTimePosterior, last: int, blocks: Any = "auto", *, seed: int = 0
) -> ForecastCheck:
    """Leave out the last periods; see `SpaceTimePosterior.cross_validate`."""
    from geobgp.spacetime.fitting import refit

    begin = time.perf_counter()
    values, effort = posterior.observed, posterior.effort
    first = posterior.n_periods - last
    if values is None:
        raise DataError(
            "Forecasts are compared with counts at the nodes; this fit knows none.",
            remedy="Fit counts of points by period.",
        )
    if first < 2:
        raise DataError(
            f"{option('last')} is how many of {count(posterior.n_periods, 'period')} are left out, with two before "
            f"them at least; found {last!r}.",
            option="last",
            found=last,
        )
    made = blocks if isinstance(blocks, Blocks) else make_blocks(blocks, posterior)
    before = refit(posterior, first)
    exposure = np.array(seen_exposure(posterior.by_period, effort))
    ahead = before.forecast(
        int(last), exposure=posterior.by_period[first:] / posterior.periods.widths[first:, None]
    )
    rng = np.random.default_rng(seed)
    inside = made.of >= 0
    share = np.zeros((len(made), len(made.of)))
    share[made.of[inside], np.flatnonzero(inside)] = 1.0
    logs, sums = _draws(ahead, values[first:], exposure[first:], share, rng)
    seen = values @ share.T
    rows = []
    for k in range(last):
        there, past = share @ exposure[first + k], share @ exposure[:first].T
        pooled = there * _rates(seen[:first].sum(axis=0), past.sum(axis=1), seen[:first], past)
        same = _season_before(posterior, first, first + k)
        naive = there * _rates(seen[same], past[:, same], seen[:first], past)
        for b, y in enumerate(seen[first + k]):
            rates = sums[:, k, b]
            below, upto = (float(_chance(n, rates).mean()) for n in (y - 1.0, y))
            low, high = np.quantile(rng.poisson(np.minimum(rates, 1e15)), [0.05, 0.95], method="inverted_cdf")
            rows.append({
                "period": posterior.periods.labels[first + k], "ahead": k + 1, "block": made.labels[b],
                "observed": y, "expected": float(rates.mean()), "q05": float(low), "q95": float(high),
                "pit": below + rng.random() * (upto - below), "log_score": float(np.log(max(upto - below, 1e-300))),
                "pooled": _log_poisson(y, pooled[b]), "naive": _log_poisson(y, naive[b]),
            })  # fmt: skip
    places = pd.DataFrame({
        "period": posterior.periods.labels[first:],
        "observed": values[first:].sum(axis=1),
        "score": logs - _one_rate(values, exposure, first),
    })  # fmt: skip
    return ForecastCheck(pd.DataFrame(rows), places, time.perf_counter() - begin)


def _draws(
    ahead: SpaceTimePosterior,
    values: np.ndarray,
    exposure: np.ndarray,
    share: np.ndarray,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the log probability of each period's counts, and draws of the means of blocks, (draws, last, blocks)."""
    logs, sums = [], []
    for block in ahead.sample_blocks(DRAWS, rng):
        scatter = ahead.likelihood.scatter(block.shape, rng)
        rates = np.maximum((block if scatter is None else block * scatter) * exposure, 1e-300)
        logs.append((xlogy(values, rates) - rates - gammaln(values + 1.0)).sum(axis=2))
        sums.append(rates @ share.T)
    all_logs = np.concatenate(logs)
    return logsumexp(all_logs, axis=0) - np.log(len(all_logs)), np.concatenate(sums)


def _one_rate(values: np.ndarray, exposure: np.ndarray, first: int) -> np.ndarray:
    """Return the log probability of each period's counts with the rate of all periods before, everywhere."""
    rate = max(float(values[:first].sum()), 0.5) / float(exposure[:first].sum())
    rates = np.maximum(rate * exposure[first:], 1e-300)
    v = values[first:]
    return np.asarray((xlogy(v, rates) - rates - gammaln(v + 1.0)).sum(axis=1))


def _rates(events: np.ndarray, exposed: np.ndarray, seen: np.ndarray, past: np.ndarray) -> np.ndarray:
    """Return rates of blocks from their events, with a little of the rate of all blocks before."""
    overall = max(float(seen.sum()), 0.5) / float(past.sum())
    return np.asarray((events + _ADDED) / (exposed + _ADDED / overall))


def _season_before(posterior: SpaceTimePosterior, first: int, t: int) -> int:
    """Return the period one year before (as many years as it takes to be seen), or the last one seen."""
    per_year = posterior.periods.per_year
    step = 0 if per_year is None else round(per_year)
    if not step or t - step < 0:
        return first - 1
    while t >= first:
        t -= step
    return t if t >= 0 else first - 1


def _chance(n: float, rates: np.ndarray) -> np.ndarray:
    return np.asarray(pdtr(np.floor(n), rates)) if n >= 0 else np.zeros(len(rates))


def _log_poisson(y: float, mean: float) -> float:
    mean = max(mean, 1e-12)
    return float(xlogy(y, mean) - mean - gammaln(y + 1.0))
