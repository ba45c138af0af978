"""Forecasts against what came: the last periods held out, by block and by area."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy import sparse

from geobgp.checks.blocks import Blocks, check_size, make_blocks
from geobgp.checks.crossval import scored
from geobgp.checks.samples import PlaceSample, place_sample_of
from geobgp.checks.scoring import Calibration, Predictive, log_mean_exp, poisson_log_p
from geobgp.data.areas import share_behind
from geobgp.data.inputs import seen_exposure
from geobgp.errors import DataError, option
from geobgp.inference.held_out import HeldOut, log_score
from geobgp.inference.mixture import INTERVAL
from geobgp.text import count, number, percent, whole_percent

if TYPE_CHECKING:
    from geobgp.data.areas import AreaCounts
    from geobgp.posterior import Posterior


# -- Parts of the land whose numbers of events are forecast: blocks of nodes, or the areas that were counted --


@dataclass(frozen=True, eq=False)
class ForecastParts:
    """Numbers of events in parts of the land, period by period; all arrays are (n_periods, n_parts).

    Attributes
    ----------
    names : tuple of str
    weights : tuple of (n_parts, n_nodes) csr_array
        The exposure, of events that get reported, of every node within each part: period by period.
    low, high : arrays
        Between which numbers each lies: the same, unless it is suppressed.
    events : array
        The numbers, one in the middle where it is suppressed, 0 where it is unknown.
    known : bool array
        Where something was counted, of somebody.
    exposure : array
        That of the events that get reported; 0 where nothing is known.
    """

    names: tuple[str, ...]
    weights: tuple[sparse.csr_array, ...]
    low: np.ndarray
    high: np.ndarray
    events: np.ndarray
    known: np.ndarray
    exposure: np.ndarray

    def one_rate(self, first: int) -> np.ndarray:
        """Return expected numbers at the rate that all parts had together before a period."""
        rate = max(float(self.events[:first].sum()), 0.5) / float(self.exposure[:first].sum())
        return np.asarray(rate * self.exposure)

    def expected_like(self, past: slice | int, t: int, first: int) -> np.ndarray:
        """Return what is expected in period t, (n_parts,), were rates what they were in some of the first periods.

        An event is added to each part, at the rate of all of them, so that none has a mean of zero.
        """
        events, exposed = (np.atleast_2d(v[past]).sum(axis=0) for v in (self.events, self.exposure))
        overall = max(float(self.events[:first].sum()), 0.5) / float(self.exposure[:first].sum())
        return np.asarray(self.exposure[t] * (events + 1.0) / (exposed + 1.0 / overall))


def parts_of(posterior: Posterior, blocks: Any) -> ForecastParts:
    """Return the parts whose numbers are forecast: the areas that were counted, or blocks of the nodes."""
    if posterior.areas is not None:
        return _areas(posterior, posterior.areas, blocks)
    if posterior.observed is None:
        raise DataError(
            f"Forecasts are compared with what was observed; this map of a {posterior.quantity} knows none of it.",
            remedy="Call cross_validate() on the fit itself, before it is saved.",
        )
    exposure = np.array(seen_exposure(posterior.by_period, posterior.effort))
    divided = blocks if isinstance(blocks, Blocks) else make_blocks(blocks, posterior)
    inside = np.flatnonzero(divided.of >= 0)
    cells = (np.ones(len(inside)), (divided.of[inside], inside))
    shares = sparse.csr_array(cells, shape=(len(divided), len(divided.of)))
    counts, known = posterior.observed @ shares.T, np.ones((posterior.n_periods, len(divided)), bool)
    weights = tuple(sparse.csr_array(shares.multiply(row)) for row in exposure)
    names = tuple(map(str, divided.labels))
    return ForecastParts(names, weights, counts, counts, counts, known, exposure @ shares.T)


def _areas(posterior: Posterior, areas: AreaCounts, blocks: Any) -> ForecastParts:
    if not (isinstance(blocks, str) and blocks == "auto"):
        raise DataError(
            "Forecasts of counts by area are compared with the numbers of these areas.",
            option="blocks",
            remedy=f"Leave {option('blocks')} out.",
        )
    inside = areas.within
    own = sparse.diags_array(share_behind(areas))  # the rest is that of events with a place, or of other levels
    weights = tuple(
        sparse.csr_array(own @ inside.exposure(row, posterior.effort, t)) for t, row in enumerate(posterior.by_period)
    )
    exposed = np.array([one.sum(axis=1) for one in weights])
    known = areas.known & (exposed > 0)
    events = np.where(known, areas.guessed, 0.0)
    low, high = (np.where(areas.hidden, float(end), events) for end in areas.suppressed or (0, 0))
    return ForecastParts(areas.names, weights, low, high, events, known, np.where(known, exposed, 0.0))


# -- Forecasts against what came: the last periods held out, predicted from those before them, and scored ----


#: Joint draws behind a forecast, and how many periods are held out where that was not said.
DRAWS, HELD_OUT = 400, 3


@dataclass(frozen=True, eq=False)
class ForecastCheck:
    """How well the last periods were forecast.

    Attributes
    ----------
    table : DataFrame
        One row per period held out and block of the land (or area, where counts are by area): ``period``, ``ahead`` (1
        is the first one), ``block``, ``observed`` (NaN where it is suppressed) and ``expected`` events (cases among the
        ``persons`` of a block; positives among those tested at its ``sites``, or the mean of the values there),
        ``predicted_q05`` and ``predicted_q95``, between which the number observed should lie, ``pit``, and log
        probabilities of the observed number: ``log_score`` of the forecast, ``pooled`` of the average of all periods
        before, ``naive`` of the number one season before (or in the last period, where there is no season),
        ``one_rate`` of one rate everywhere. Of a
        suppressed number it is the probability of all that it may be, and ``pit`` is drawn from that span, as it is
        from that of a number told.
    places : DataFrame
        One row per period: ``score``, log density of where and when events happened, above one rate everywhere; of
        persons and sites that of who are cases, or of what was observed. ``observed`` is what scores are per.
    seconds : float
    what : "blocks" or "areas"
    suppressed : (int, int), optional
        Between which numbers suppressed counts lie.
    n_unknown : int
        Numbers of areas and periods that nobody knows; they are not in the table.
    interval : float
        Probability of the predictive intervals.
    event : str
        What scores are per: "event", "case" or "site".
    averaged : bool
        Whether numbers are means over the sites of a block.
    exact : DataFrame, optional
        The table before small numbers were hidden in it; scores are based on it.
    """

    table: pd.DataFrame
    places: pd.DataFrame
    seconds: float
    what: str = "blocks"
    suppressed: tuple[int, int] | None = None
    n_unknown: int = 0
    interval: float = INTERVAL
    event: str = "event"
    averaged: bool = False
    exact: pd.DataFrame | None = field(default=None, repr=False)

    @property
    def scored(self) -> pd.DataFrame:
        """The table that scores are based on, with small numbers too."""
        return self.table if self.exact is None else self.exact

    @property
    def score(self) -> float:
        """Log score of places and times in nats per event, above one rate everywhere and always."""
        return float(self.places["score"].sum()) / max(float(self.places["observed"].sum()), 1.0)

    @property
    def n_suppressed(self) -> int:
        """How many of the numbers are suppressed."""
        return int(self.scored["observed"].isna().sum())

    @property
    def events(self) -> pd.Series:
        """What scores are per: the numbers that came, one in the middle where they are suppressed; or sites."""
        if "sites" in self.scored:
            return self.scored["sites"]
        low, high = self.suppressed or (0, 0)
        return self.scored["observed"].fillna(float(np.sqrt(max(low, 0.5) * max(high, 0.5))))

    @property
    def calibration(self) -> Calibration:
        """What the PIT values say."""
        pit = self.scored["pit"].to_numpy()
        return Calibration(pit if self.exact is None else np.sort(pit), self.interval)

    @property
    def coverage(self) -> float:
        """Share of numbers within their predictive interval (by PIT value)."""
        return self.calibration.coverage

    @property
    def coverage_band(self) -> tuple[float, float]:
        """Where the coverage of true intervals lies with 99 % probability, were blocks independent."""
        return self.calibration.band

    @property
    def gains(self) -> dict[str, float]:
        """Nats per event (site) by which blocks are forecast better than simply: "pooled", "naive", "one_rate"."""
        total = max(float(self.events.sum()), 1.0)
        return {
            name: float((self.scored["log_score"] - self.scored[name]).sum()) / total
            for name in ("pooled", "naive", "one_rate")
        }

    def by_period(self) -> pd.DataFrame:
        """Return observed (about, where some are suppressed) and expected events, coverage and gains of each period."""
        table, names = self.scored, ["observed", "expected"]
        if self.n_suppressed:
            table = table.assign(observed=self.events)
        if self.averaged:
            table = table.assign(**table[names].mul(self.events, axis=0))
        groups = table.groupby("period", sort=False)
        out = groups[names].sum()
        if self.averaged:
            out = out.div(groups["sites"].sum(), axis=0)
        out["coverage"] = groups["pit"].apply(lambda pit: Calibration(pit.to_numpy(), self.interval).coverage)
        for name in ("pooled", "naive"):
            out[f"above_{name}"] = groups["log_score"].sum() - groups[name].sum()
        return out

    def verdict(self) -> str:
        """Return in a sentence or two what the forecasts say."""
        gains, n = self.gains, self.table["period"].nunique()
        return (
            f"Of {count(n, 'period')} held out, {percent(self.coverage)} of {count(len(self.table), 'number')} lie "
            f"within their {whole_percent(self.interval)} predictive interval; the forecast is "
            f"{_ahead(gains['pooled'], self.event)} the average of the past and "
            f"{_ahead(gains['naive'], self.event)} the numbers before."
            f"{self._worse()}{self._besides()}"
        )

    @property
    def fine(self) -> bool:
        """Whether the intervals hold, and one rate everywhere and always does not predict better."""
        low, high = self.coverage_band
        return low <= self.coverage <= high and self.gains["one_rate"] >= 0

    def _worse(self) -> str:
        """Say so where one rate everywhere predicts better."""
        gain = self.gains["one_rate"]
        one = {"case": "risk", "site": "level"}.get(self.event, "rate")
        worse = f" One {one} everywhere and always predicts better, by {number(-gain, 2)} nats per {self.event}."
        return "" if gain >= 0 else worse

    def _besides(self) -> str:
        """Say which numbers are suppressed or unknown."""
        text = ""
        if self.n_suppressed:
            low, high = self.suppressed or (0, 0)
            text += f" Of {count(self.n_suppressed, 'number')} it is known only that they are {low} to {high}."
        if self.n_unknown:
            text += f" {self.n_unknown:,} {'is' if self.n_unknown == 1 else 'are'} not known, and not compared."
        return text

    def facts(self) -> dict[str, Any]:
        """Return the numbers, as JSON can hold them."""
        return {
            "periods_left_out": int(self.table["period"].nunique()),
            "numbers": len(self.table),
            "score_per_event": self.score,
            "coverage": self.coverage,
            "interval": self.interval,
            "above_pooled": self.gains["pooled"],
            "above_naive": self.gains["naive"],
            "above_one_rate": self.gains["one_rate"],
            "fine": self.fine,
            "parts": self.what,
            "suppressed": self.n_suppressed,
            "unknown": self.n_unknown,
        }

    def __repr__(self) -> str:
        return (
            f"ForecastCheck({count(self.table['period'].nunique(), 'period')}, {count(len(self.table), 'number')}: "
            f"coverage {percent(self.coverage)} of {whole_percent(self.interval)} intervals, "
            f"{_ahead(self.gains['pooled'], self.event)} the past's average, "
            f"{_ahead(self.gains['naive'], self.event)} the numbers before)"
        )


def cross_validate(
    posterior: Posterior, last: int | None, blocks: Any = "auto", *, rng: int | np.random.Generator = 0
) -> ForecastCheck:
    """Hold out the last periods; see `Posterior.cross_validate`."""
    last = min(HELD_OUT, max(posterior.n_periods - 2, 1)) if last is None else last
    begin, first = time.perf_counter(), posterior.n_periods - last
    at_places = posterior.sites is not None or posterior.persons is not None
    parts = None if at_places else parts_of(posterior, blocks)
    if first < 2:
        raise DataError(
            f"{option('last')} is how many of {count(posterior.n_periods, 'period')} are held out, with two before "
            f"them at least; found {last!r}.",
            option="last",
            found=last,
        )
    rng = np.random.default_rng(rng)
    if parts is None:
        return replace(_at_places(posterior, first, blocks, rng), seconds=time.perf_counter() - begin)
    for known, which in ((parts.known[:first], "before those held out"), (parts.known[first:], "held out")):
        if not known.any():
            raise DataError(
                f"No number is known of the periods {which}.", option="last", found=0, remedy="Hold out others."
            )
    forecast = _forecast(posterior, first)
    joint, means = _draws(posterior, forecast, parts, first, rng)
    tables = []
    for t in range(first, posterior.n_periods):
        known = parts.known[t]
        low, high, rates = parts.low[t, known], parts.high[t, known], means[:, t - first, known]
        predicted = Predictive.of_rates(rates, rng)
        simple = {
            "pooled": parts.expected_like(slice(first), t, first),
            "naive": parts.expected_like(_season_before(posterior, first, t), t, first),
            "one_rate": parts.one_rate(first)[t],
        }
        columns = {"period": posterior.time.labels[t], "ahead": t - first + 1}
        columns |= {"block": np.array(parts.names, dtype=object)[known]}
        columns |= {"observed": np.where(low < high, np.nan, low), "expected": predicted.mean}
        columns |= predicted.ends(posterior.interval) | {"pit": predicted.pit(rng, low, high)}
        columns |= {"log_score": log_mean_exp(poisson_log_p(low, high, rates))}
        columns |= {name: poisson_log_p(low, high, np.maximum(mean[known], 1e-12)) for name, mean in simple.items()}
        tables.append(pd.DataFrame(columns))
    events = (parts.events if posterior.observed is None else posterior.observed).sum(axis=1)
    places = {"period": posterior.time.labels[first:], "observed": events[first:], "score": joint}
    return ForecastCheck(
        pd.concat(tables, ignore_index=True),
        pd.DataFrame(places),
        time.perf_counter() - begin,
        "blocks" if posterior.areas is None else "areas",
        None if posterior.areas is None else posterior.areas.suppressed,
        int((~parts.known[first:]).sum()),
        posterior.interval,
    )


def _forecast(posterior: Posterior, first: int) -> Posterior:
    """Return what the first periods say of all that follow."""
    from geobgp.model import refit

    exposure = posterior.by_period[first:] / posterior.time.widths[first:, None]
    return refit(posterior, first).forecast(posterior.n_periods - first, exposure=exposure)


def _at_places(posterior: Posterior, first: int, blocks: Any, rng: np.random.Generator) -> ForecastCheck:
    """Forecast what was observed at sites, or who of the persons are cases, block by block."""
    observed: Any = posterior.sites if posterior.persons is None else posterior.persons
    period, labels = observed.period, posterior.time.labels
    divided = blocks if isinstance(blocks, Blocks) else make_blocks(blocks, posterior)
    for held, when in ((period < first, "before those held out"), (period >= first, "held out")):
        if not held.any():
            raise DataError(
                f"Nothing was observed in the periods {when}.", option="last", found=0, remedy="Hold out others."
            )
    forecast, rows = _forecast(posterior, first), list[dict[str, Any]]()
    event = "case" if posterior.sites is None else "site"
    for t in range(first, posterior.n_periods):
        # The posterior of one period, with what was observed in all of them.
        one = replace(forecast.at(t - first), persons=posterior.persons, sites=posterior.sites)
        sample = place_sample_of(one)
        assert sample is not None
        of = sample.block_of(divided)
        simple = _simply(sample, period, of, first, _season_before(posterior, first, t))
        for block in np.unique(of[(period == t) & (of >= 0)]):
            which = np.flatnonzero((period == t) & (of == block))
            check_size(len(which), sample.units)
            joint = sample.joint(0, which)
            held_out = HeldOut(joint, log_score(joint, sample.likelihood(0, which)(np.arange(len(which))), joint))
            row: dict[str, Any] = dict(scored(sample, which, [held_out], rng)[0])
            row = {"period": labels[t], "ahead": t - first + 1, "block": str(divided.labels[block])} | row
            row |= {"log_score": row.pop("log_density"), "events": float(sample.weight[which].sum())}
            rows.append(row | {name: float(log_p(int(block), which).sum()) for name, log_p in simple.items()})
    table = pd.DataFrame(rows)
    above = table.assign(score=table["log_score"] - table["one_rate"]).groupby("period", sort=False)
    places = above[["events", "score"]].sum().rename(columns={"events": "observed"}).reset_index()
    return ForecastCheck(
        table.drop(columns=["events", "crps"]),
        places,
        0.0,
        interval=posterior.interval,
        event=event,
        averaged=posterior.likelihood.dispersion == "noise",
    )


def _simply(
    sample: PlaceSample, period: np.ndarray, of: np.ndarray, first: int, before: int
) -> dict[str, Callable[[int, np.ndarray], np.ndarray]]:
    """Return simple forecasts by name: log densities of observations of a block at a level of the past.

    An observation at the level of all blocks is added to each.
    """
    past = np.flatnonzero(period < first)
    overall = sample.level(past)

    def levels(seen: np.ndarray) -> np.ndarray:
        some = [np.flatnonzero(seen & (of == block)) for block in range(int(of.max()) + 1)]
        return np.array([sample.level(which, overall) for which in some])

    pooled, naive = levels(period < first), levels(period == before)
    known = past[of[past] >= 0]
    spread = {"pooled": sample.spread(pooled[of[known]], known), "one_rate": sample.spread(np.array(overall), past)}
    return {
        "pooled": lambda block, which: sample.log_density_at(pooled[block], which, spread["pooled"]),
        "naive": lambda block, which: sample.log_density_at(naive[block], which, spread["pooled"]),
        "one_rate": lambda block, which: sample.log_density_at(np.array(overall), which, spread["one_rate"]),
    }


def _draws(
    posterior: Posterior, forecast: Posterior, parts: ForecastParts, first: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return how far the log probability of each period is above one rate, and draws of means, (draws, last, parts).

    Of what was counted at the nodes the probability is that of all nodes, else that of all areas.
    """
    exposure = np.array(seen_exposure(posterior.by_period, posterior.effort))
    values, family, weights = posterior.observed, forecast.likelihood, parts.weights[first:]
    low, high, known = parts.low[first:], parts.high[first:], parts.known[first:]
    if values is not None:
        low = high = values[first:]
        known, rate = (np.ones(low.shape, bool), max(float(values[:first].sum()), 0.5) / float(exposure[:first].sum()))
        even = rate * exposure[first:]
    else:
        even = parts.one_rate(first)[first:]
    logs, sums = [], []
    for rates in forecast.sample_blocks(DRAWS, rng):
        if values is not None:
            rates = family.poisson_rates(rates, rng)  # type: ignore[assignment]
        means = np.stack([(w @ rates[:, k].T).T for k, w in enumerate(weights)], axis=1)
        if values is None:
            means = family.poisson_rates(means, rng)
        each = poisson_log_p(low, high, means if values is None else rates * exposure[first:])
        logs.append(np.where(known, each, 0.0).sum(axis=2))
        sums.append(means)
    alone = np.where(known, poisson_log_p(low, high, even), 0.0).sum(axis=1)
    return log_mean_exp(np.concatenate(logs)) - alone, np.concatenate(sums)


def _ahead(gain: float, event: str) -> str:
    """Say by how much a forecast is better or worse than another, in words that follow from the sign.

    Examples
    --------
    >>> _ahead(0.223, "event"), _ahead(-0.05, "site")
    ('0.22 nats per event above', '0.05 nats per site below')
    """
    return f"{number(abs(gain), 2)} nats per {event} {'above' if gain >= 0 else 'below'}"


def _season_before(posterior: Posterior, first: int, t: int) -> int:
    """Return the period one year before (as many years as it takes to be seen), or the last one seen."""
    per_year = posterior.time.per_year
    step = 0 if per_year is None else round(per_year)
    if not step or t - step < 0:
        return first - 1
    while t >= first:
        t -= step
    return t if t >= 0 else first - 1
