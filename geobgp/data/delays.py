"""Delays: how long events take to be reported, and which share of each period's events is known by now."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.spatial import cKDTree
from scipy.special import ndtri

from geobgp.data.periods import Days, Periods, parse, texts_of
from geobgp.errors import DataError, InputWarning, option, warn
from geobgp.text import count, listed, number, percent

if TYPE_CHECKING:
    import matplotlib.axes

#: Events with a known delay below which no distribution is estimated; smaller groups have that of all events.
FEWEST = 20
#: Share of events known by now below which a period is a nowcast.
COMPLETE = 0.99
#: Share of rows that may lack the date of their report, and share of events reported after half of the series.
_MISSING, _LATE = 0.5, 0.1
#: What is added to the number at risk, so that no share of a period that some event may fill is zero.
_HALF = 0.5
#: Standard errors between the two halves of the series from which on delays are said to change.
_CHANGED = 3.0
#: Variance of the log of a share below which a column is left out.
_NEGLIGIBLE = 1e-6
#: Places with events around a node whose groups it has.
_NEIGHBOURS = 8
#: Rows that a message names.
_NAMED = 8
#: Periods without events at the end of which nothing is said.
_QUIET = 3


# -- The delay distribution, with right truncation removed ---------------------------------------------------


@dataclass(frozen=True, eq=False)
class DelayCurve:
    """A delay distribution: the share of events that are reported within so many days.

    Attributes
    ----------
    share : (k,) array
        Reported within 0, 1, ..., k - 1 days, of those that are reported within k - 1 days, the longest that the
        series can tell of.
    variance : (k,) array
        What each day adds to the variance of the logarithm of the shares of all days before it.
    n : float
        Events that it is based on.

    Examples
    --------
    >>> curve = product_limit(np.array([0, 0, 1, 3]), np.array([5, 5, 5, 5]))
    >>> curve.share.round(2).tolist(), round(curve.mean, 2)
    ([0.56, 0.78, 0.78, 1.0, 1.0, 1.0], 0.89)
    """

    share: np.ndarray = field(repr=False)
    variance: np.ndarray = field(repr=False)
    n: float

    def within(self, days: np.ndarray) -> np.ndarray:
        """Return the share reported within so many days: 0 of negative ones, 1 beyond the longest."""
        at = np.asarray(days)
        inside = self.share[np.clip(at, 0, len(self.share) - 1)]
        return np.where(at < 0, 0.0, np.where(at >= len(self.share), 1.0, inside))

    @property
    def log_sd(self) -> np.ndarray:
        """Standard deviations of the logarithms of the shares, (k,)."""
        later = np.cumsum(self.variance[::-1])[::-1]
        return np.sqrt(np.append(later[1:], 0.0))

    def interval(self, probability: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """Return the ends of the intervals of the shares."""
        spread = float(ndtri(0.5 + 0.5 * probability)) * self.log_sd
        return self.share * np.exp(-spread), np.minimum(self.share * np.exp(spread), 1.0)

    @property
    def mean(self) -> float:
        """The mean delay in days."""
        return float(np.sum(1.0 - self.share))

    def quantile(self, share: float) -> int:
        """Return within how many days a share of events is reported."""
        return int(np.searchsorted(self.share, share - 1e-12))

    def until(self, days: int) -> DelayCurve:
        """Return the distribution among events that are reported within so many days."""
        share = self.share[: days + 1]
        return DelayCurve(share / share[-1], self.variance[: days + 1], self.n)


def product_limit(delay: np.ndarray, limit: np.ndarray, weight: np.ndarray | None = None) -> DelayCurve:
    """Return the delay distribution from events of which only those reported in time are known.

    An event that happened c days ago is known only if its delay is at most c. In reversed time that is a delayed
    entry: among the events with a delay of at most d days that could have shown one of d (c >= d), the share with
    exactly d is the hazard h(d), and the share of all events reported within d days is the product of 1 - h over
    longer delays. Delays so long that fewer than 20 events could have shown them are left out: one such event would
    move all shares.

    Parameters
    ----------
    delay : (n,) int array
        Days from event to report.
    limit : (n,) int array
        Days from event to now, at least the delay.
    weight : (n,) array, optional
        Events of each row.
    """
    weight = np.ones(len(delay)) if weight is None else np.asarray(weight, float)
    exact, at_risk = _hazards(delay, limit, weight, int(limit.max()) + 1)
    told = np.flatnonzero(at_risk >= FEWEST)
    k = int(told[-1]) + 1 if len(told) else len(exact)
    exact, at_risk = exact[:k], at_risk[:k]
    hazard = exact / (at_risk + _HALF)
    hazard[0] = 0.0
    share = np.append(np.cumprod((1.0 - hazard)[:0:-1])[::-1], 1.0)
    variance = hazard / ((1.0 - hazard) * np.maximum(at_risk, 1.0))
    return DelayCurve(share, variance, float(weight.sum()))


def _hazards(delay: np.ndarray, limit: np.ndarray, weight: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the events of each delay, and those of that delay or less which could have shown it."""
    exact = np.bincount(delay, weight, k)[:k]
    leave = np.bincount(np.minimum(limit + 1, k), weight, k + 1)[:k]
    return exact, np.maximum(np.cumsum(exact - leave), 0.0)


# -- Delays of a fit: what is known by now of each period ----------------------------------------------------


@dataclass(frozen=True, eq=False)
class Delays:
    """Which share of each period's events is known by now, from how long events take to be reported.

    Attributes
    ----------
    as_of : str
        The day until which reports are known.
    periods : tuple of str
        The labels of the periods.
    share : (n_groups, n_periods) array
        The share of the events of each period that is reported by then.
    root : (n_groups, n_periods, k) array
        A root of the covariance of the logarithms of these shares.
    by : str
        The column whose values have a distribution each; empty where there is one for all.
    groups : tuple of str
        Its values.
    curves : tuple of DelayCurve
        The distribution of each group.
    mix : (n_nodes, n_groups) array, optional
        Which share of the events around each node belongs to each group; None where there is one.
    excess : float
        By how much delays vary more than chance has it, as a factor of variances: 1 where they do not.
    numbers : dict
        Events ``later`` than `as_of`, without a report's date (``missing``; those left out for it are ``unsure``), and
        reported before they happened (``negative``).
    passed : (int, int), optional
        How many days of the last period had passed by `as_of`, and how many it has, if these are fewer.
    """

    as_of: str
    periods: tuple[str, ...] = field(repr=False)
    share: np.ndarray = field(repr=False)
    root: np.ndarray = field(repr=False)
    curves: tuple[DelayCurve, ...] = field(repr=False)
    by: str = ""
    groups: tuple[str, ...] = ("",)
    mix: np.ndarray | None = field(default=None, repr=False)
    excess: float = 1.0
    numbers: Mapping[str, float] = field(default_factory=dict)
    passed: tuple[int, int] | None = None

    @cached_property
    def incomplete(self) -> np.ndarray:
        """Which periods are nowcasts, (n_periods,): fewer than 99 % of the events of some group are known."""
        return np.asarray((self.share < COMPLETE).any(axis=0))

    @cached_property
    def effort(self) -> np.ndarray:
        """The share of events that is known by now, (n_periods, 1) or (n_periods, n_nodes)."""
        return self.share.T if self.mix is None else self.share.T @ self.mix.T

    @cached_property
    def columns(self) -> np.ndarray:
        """Columns whose independent standard normal weights are the uncertainty of the log effort.

        (n_periods, k), or (n_periods, n_nodes, k) where groups differ from place to place.
        """
        if self.mix is None:
            return self.root[0]
        part = self.share.T[:, None, :] * self.mix[None]  # periods, nodes, groups
        of = np.divide(part, self.effort[:, :, None], out=np.zeros_like(part), where=self.effort[:, :, None] > 0)
        out = [of[:, :, g, None] * self.root[g][:, None, :] for g in range(len(self.groups))]
        return np.concatenate(out, axis=2)

    def slice(self, start: int, stop: int) -> Delays:
        """Return those of the periods from one number up to another, without it."""
        here = slice(start, stop)
        passed = self.passed if stop >= len(self.periods) else None
        return replace(
            self, periods=self.periods[here], share=self.share[:, here], root=self.root[:, here], passed=passed
        )

    def final(self, effort: np.ndarray) -> np.ndarray | None:
        """Return the effort of periods whose events are all reported, from the effort so far; None where it is one."""
        rows = np.broadcast_to(effort, np.broadcast_shapes(effort.shape, self.effort.shape))
        known = np.broadcast_to(self.effort, rows.shape)
        there = known.max(axis=0)
        usual = np.divide(rows[known.argmax(axis=0), np.arange(rows.shape[1])], there, where=there > 0, out=there * 0.0)
        full = np.divide(rows, known, out=np.broadcast_to(usual, rows.shape).copy(), where=known > 0)
        return None if np.allclose(full, 1.0, atol=1e-9) else full

    def table(self, interval: float = 0.9) -> pd.DataFrame:
        """Return the delay distributions: a row for each group and day, with the share reported within that time.

        Parameters
        ----------
        interval : float
            Probability of the interval from ``low`` to ``high``.
        """
        parts = []
        for name, curve in zip(self.groups, self.curves, strict=True):
            low, high = curve.interval(interval)
            days = np.arange(len(curve.share))
            part = pd.DataFrame({"days": days, "reported": curve.share, "low": low, "high": high})
            if self.by:
                part.insert(0, self.by, name)
            parts.append(part)
        return pd.concat(parts, ignore_index=True)

    def reported(self) -> pd.DataFrame:
        """Return the share of each period's events that is known by now, with its standard deviation; by group."""
        sd = self.share * np.sqrt(np.square(self.root).sum(axis=2))
        rows = {"period": np.tile(self.periods, len(self.groups)), "reported": self.share.ravel(), "sd": sd.ravel()}
        frame = pd.DataFrame(rows | {"nowcast": (self.share < COMPLETE).ravel()})
        if self.by:
            frame.insert(0, self.by, np.repeat(self.groups, len(self.periods)))
        return frame

    def words(self) -> str:
        """Return what is known of delays, in a few sentences.

        Examples
        --------
        >>> curve = product_limit(np.array([0, 0, 1, 3]), np.array([5, 5, 5, 5]))
        >>> share, weeks = np.array([[1.0, 0.7]]), ("2020-W17", "2020-W18")
        >>> delays = Delays("2020-05-03", weeks, share, np.zeros((1, 2, 0)), (curve,))
        >>> print(delays.words().split(". ")[1])
        As of 2020-05-03 the last period is a nowcast: of 2020-W18 70 % are known.
        """
        of_groups = [
            f"{f'{self.by} {name}: ' if self.by else ''}"
            f"{'half' if self.by else 'Half'} of the events are reported within {_days(curve.quantile(0.5))}, "
            f"95 % within {_days(curve.quantile(0.95))} (mean {number(curve.mean, 2)} days)"
            for name, curve in list(zip(self.groups, self.curves, strict=True))[:_NAMED]
        ]
        n = int(self.incomplete.sum())
        text = "; ".join(of_groups) + f". As of {self.as_of} "
        later = self.numbers.get("later", 0.0)
        gone = f" Left out as reported or dated after that day: {count(round(later), 'event')}." if later else ""
        if self.passed is not None:
            passed, days = self.passed
            gone += (
                f" {passed} of the {days} days of {self.periods[-1]} have passed: its numbers are of these days alone."
            )
        if not n:
            return f"{text}no period is incomplete.{gone}"
        last = np.flatnonzero(self.incomplete)[-1]
        which = "the last period is a nowcast" if n == 1 else f"{n} periods are nowcasts"
        known = self.share[:, last]
        span = percent(float(known.min())) if known.max() - known.min() < 0.005 else _span(known)
        return f"{text}{which}: of {self.periods[last]} {span} are known.{gone}"

    def plot(self, ax: matplotlib.axes.Axes | None = None) -> matplotlib.axes.Axes:
        """Draw the delay distributions with their 90 % intervals."""
        from geobgp.output.figures import plot_delays

        return plot_delays(self, ax)


def _days(n: int) -> str:
    return count(n, "day")


def _span(shares: np.ndarray) -> str:
    return f"{percent(float(shares.min()))} to {percent(float(shares.max()))}"


# -- Reading: two dates for each row -------------------------------------------------------------------------


@dataclass(eq=False)
class Reports:
    """A table of events with the dates of their reports, those that are known by a day.

    Attributes
    ----------
    table : DataFrame
        The rows that are known by then.
    as_of : str
    now : int
        The day by which events and delays are compared, in days since 1970.
    event : (n,) int array
        The day of each row's event, in days since 1970; the lowest integer where it has none.
    delay : (n,) int array
        Days until the report; -1 where that is not known.
    weight : (n,) array
        Events of each row.
    by : str
    group : (n,) int array
        Which of `groups` each row belongs to; -1 where none.
    groups : tuple of str
    numbers : dict
    """

    table: pd.DataFrame
    as_of: str
    now: int
    event: np.ndarray
    delay: np.ndarray
    weight: np.ndarray
    by: str = ""
    group: np.ndarray = field(default_factory=lambda: np.zeros(0, int))
    groups: tuple[str, ...] = ("",)
    numbers: Mapping[str, float] = field(default_factory=dict)
    _later: dict[int, Reports] = field(default_factory=dict, init=False, repr=False)

    @property
    def between(self) -> tuple[str, str]:
        """The day of the first event, and the last day that is known."""
        known = self.event[self.event != _NO_DAY]
        return tuple(str(np.datetime64(int(day), "D")) for day in (known.min(), self.now))  # type: ignore[return-value]

    def check_end(self, every: str, asked: bool) -> None:
        """Refuse, or tell of, a day so late after the last report that most periods would be empty.

        Parameters
        ----------
        every : str
            Of calendar periods, which go on until that day.
        asked : bool
            Whether that day was given; else it is that of the last report.
        """
        day = self.event[(self.event != _NO_DAY) & (self.weight > 0)]
        known = self._timed[self.weight[self._timed] > 0]
        if not (len(day) and len(known)):
            return
        longest = int(self.delay[known].max())
        last = max(int((self.event + self.delay)[known].max()), int(day.max()))
        periods = Periods.calendar(every, *self.between)
        index = np.unique(periods.index_of_days(day.astype("datetime64[D]")))
        empty = periods.n - 1 - int(index.max())
        if empty <= _QUIET or (asked and self.now - last <= longest):
            return
        things = f"{periods.noun}s"
        text = (
            f"{count(empty, periods.noun)} without events would follow the {count(len(index), periods.noun)} with some,"
            f" of which the last is {periods.labels[int(index.max())]}"
        )
        last_report = np.datetime64(last, "D")
        if not asked:
            if empty > len(index):
                text = f"The last report is dated {last_report}: {text.replace(' would follow', ' follow')}."
                remedy = f"Check that date, or say until when reports are known: {option('as_of')}."
                warn(InputWarning(text, option="reported", found=str(last_report), remedy=remedy))
            return
        text = (
            f"{option('as_of', self.as_of)} is {count(self.now - last, 'day')} after the last report ({last_report}), "
            f"and the longest delay is {_days(longest)}: {text}."
        )
        remedy = f"Give the day until which reports are known, such as {option('as_of', str(last_report))}."
        if empty > len(index):
            raise DataError(text, option="as_of", found=self.as_of, remedy=remedy)
        text = f"{text} They are mapped as {things} in which nothing happened."
        warn(InputWarning(text, option="as_of", found=self.as_of, remedy=remedy))

    @cached_property
    def _timed(self) -> np.ndarray:
        return np.flatnonzero(self.delay >= 0)

    @cached_property
    def _curves(self) -> tuple[DelayCurve, tuple[DelayCurve, ...]]:
        """The distribution of all events, and of each group."""
        whole = self._curve(self._timed)
        self._about(whole)
        if not self.by:
            return whole, (whole,)
        rows = [self._timed[self.group[self._timed] == g] for g in range(len(self.groups))]
        few = [self.weight[mine].sum() < FEWEST for mine in rows]
        if any(few):
            names = [name for name, one in zip(self.groups, few, strict=True) if one]
            warn(
                InputWarning(
                    f"{option('delay_by')}: {listed(names, _NAMED)} {'has' if len(names) == 1 else 'have'} fewer than "
                    f"{FEWEST} events with a known delay; the distribution of all events is used there.",
                    option="delay_by",
                    found=names,
                    remedy="Join small groups.",
                )
            )
        curves = tuple(whole if one else self._curve(mine) for mine, one in zip(rows, few, strict=True))
        return whole, curves

    def _curve(self, rows: np.ndarray) -> DelayCurve:
        return product_limit(self.delay[rows], self.now - self.event[rows], self.weight[rows])

    def _about(self, curve: DelayCurve) -> None:
        """Warn of delays that change, and of those that are about as long as the series."""
        half = (len(curve.share) - 1) // 2
        late = 1.0 - float(curve.share[half])
        if half and late > _LATE:
            warn(
                InputWarning(
                    f"{percent(late)} of the events are reported more than {_days(half)} after they happened, and the "
                    f"series tells of delays up to {_days(len(curve.share) - 1)} alone: longer ones are not allowed "
                    "for, so that the last periods may come out too low.",
                    option="reported",
                    found=late,
                    remedy="Use a longer series, or leave out events that are reported years later.",
                )
            )
        changed = self._change()
        if changed is not None:
            before, after, days, z = changed
            warn(
                InputWarning(
                    f"Delays have changed: of events reported within {_days(days)} the mean delay is "
                    f"{number(before, 2)} days in the first half of the series and {number(after, 2)} days in the "
                    f"second ({number(abs(z), 2)} standard errors). The nowcast takes them for one distribution, so "
                    f"that the last periods may come out too {'high' if after < before else 'low'}.",
                    option="reported",
                    found=(before, after),
                    remedy=f"Use the recent past alone ({option('between')}), or a group for each time "
                    f"({option('delay_by')}).",
                )
            )

    def _change(self) -> tuple[float, float, int, float] | None:
        """Return the mean delays of both halves, within how many days, and how many standard errors lie between."""
        rows = self._timed
        order = rows[np.argsort(self.event[rows], kind="stable")]
        ends = np.cumsum(self.weight[order])
        middle = self.event[order[int(np.searchsorted(ends, 0.5 * ends[-1]))]]
        first, second = rows[self.event[rows] < middle], rows[self.event[rows] >= middle]
        if min(self.weight[first].sum(), self.weight[second].sum()) < FEWEST:
            return None
        curves = [self._curve(part) for part in (first, second)]
        k = min(len(curve.share) for curve in curves)
        n1, m1 = _hazards(self.delay[first].clip(max=k), self.now - self.event[first], self.weight[first], k)
        n2, m2 = _hazards(self.delay[second].clip(max=k), self.now - self.event[second], self.weight[second], k)
        n, m = n1 + n2, np.maximum(m1 + m2, 1e-12)
        expected = m2 * n / m
        variance = m1 * m2 * n * np.maximum(m - n, 0.0) / (m**2 * np.maximum(m - 1.0, 1.0))
        inner = slice(1, None)  # of delay zero all are at risk that are left
        # Of both halves by themselves: over both of them a change would count as chance.
        excess = sum(self._excess(part) for part in (first, second)) / 2.0
        spread = math.sqrt(float(variance[inner].sum()) * excess)
        if spread == 0.0:
            return None
        z = float((n2 - expected)[inner].sum()) / spread
        if abs(z) < _CHANGED:
            return None
        means = [curve.until(k - 1).mean for curve in curves]
        return means[0], means[1], k - 1, z

    @cached_property
    def excess(self) -> float:
        """How much more delays vary from week to week of events than chance has it, as a factor of variances."""
        return self._excess(self._timed)

    def _excess(self, rows: np.ndarray) -> float:
        """Return it of some events."""
        block = 7
        cohort = (self.now - self.event[rows]) // block  # weeks back from now, whole ones
        lag = self.delay[rows] // block
        size = int(cohort.max()) + 1
        table = np.zeros((size, size + 1))
        np.add.at(table, (cohort, np.minimum(lag, size)), self.weight[rows])
        at_risk = np.cumsum(table, axis=1)
        seen = np.arange(size + 1)[None] < np.arange(size)[:, None]  # the whole of that week of delay is known
        table, at_risk = np.where(seen, table, 0.0), np.where(seen, at_risk, 0.0)
        total = at_risk.sum(axis=0)
        hazard = np.divide(table.sum(axis=0), total, out=np.zeros_like(total), where=total > 0)
        spread = at_risk * hazard * (1.0 - hazard)
        use = spread >= 1.0
        use[:, 0] = False
        degrees = int(use.sum() - use.any(axis=0).sum())
        if degrees < 5:
            return 1.0
        squares = float(((table - hazard * at_risk)[use] ** 2 / spread[use]).sum())
        return max(squares / degrees, 1.0)

    def over(self, periods: Periods, mix: np.ndarray | None = None) -> Delays:
        """Return which share of each period's events is known, and how surely, from the delays of these periods.

        Parameters
        ----------
        periods : Periods
        mix : (n_nodes, n_groups) array, optional
            See `Delays`; where there are groups.
        """
        starts = periods.edges.astype("datetime64[D]").astype(np.int64)
        if (self.event[self._timed] < starts[0]).any():
            return self._since(int(starts[0])).over(periods, mix)
        offsets = self._offsets(starts)
        which = np.arange(len(offsets))
        age = self.now - starts[:-1, None] - which  # periods, days of the period
        inside = (which < np.diff(starts)[:, None]) & (age >= 0)
        weight = np.where(inside, offsets, 0.0)
        empty = inside.any(axis=1) & (weight.sum(axis=1) == 0)
        weight[empty] = inside[empty]
        total = weight.sum(axis=1, keepdims=True)
        weight = np.divide(weight, total, out=np.zeros_like(weight), where=total > 0)
        found = [_known(curve, age, weight, self.excess) for curve in self._curves[1]]
        k = max(root.shape[1] for _, root in found)
        passed, days = self.now + 1 - int(starts[-2]), int(starts[-1] - starts[-2])
        roots = [np.pad(root, ((0, 0), (0, k - root.shape[1]))) for _, root in found]
        return Delays(
            self.as_of, periods.labels, np.array([share for share, _ in found]), np.array(roots), self._curves[1],
            self.by, self.groups, mix if self.by else None, self.excess, dict(self.numbers),
            None if not 0 < passed < days else (passed, days),
        )  # fmt: skip

    def _since(self, day: int) -> Reports:
        """Return the same with the delays of events from a day on."""
        if day not in self._later:
            n = float(self.weight[(self.event >= day) & (self.delay >= 0)].sum())
            if n < FEWEST:
                raise _too_few(
                    f"Of events in the periods the delays of {count(round(n), 'event')} are known", n, "between"
                )
            self._later[day] = replace(self, delay=np.where(self.event < day, -1, self.delay))
        return self._later[day]

    def _offsets(self, starts: np.ndarray) -> np.ndarray:
        """Return how many events fall on the first, second, ... day of a period that has ended."""
        day = self.event[self.event != _NO_DAY]
        weight = self.weight[self.event != _NO_DAY]
        period = np.searchsorted(starts, day, side="right") - 1
        inside = (period >= 0) & (period < len(starts) - 1)
        done = inside & (starts[np.minimum(period + 1, len(starts) - 1)] <= self.now + 1)
        use = done if weight[done].sum() > 0 else inside
        longest = int(np.diff(starts).max())
        return np.bincount(day[use] - starts[period[use]], weight[use], longest)[:longest].astype(float)

    def mix_at(self, at: Sequence[np.ndarray], points: np.ndarray, nearest: int | None = None) -> np.ndarray:
        """Return which share of the events around each node belongs to each group, (n_nodes, n_groups).

        Parameters
        ----------
        at : sequence of (n_nodes,) array
            The events of each group on the nodes.
        points : (n_nodes, 2) array
            Where the nodes are.
        nearest : int, optional
            How many nodes with events tell of a node, itself among them; by default eight.
        """
        counts = np.column_stack(list(at)).astype(float)
        there = np.flatnonzero(counts.sum(axis=1) > 0)
        k = min(nearest or _NEIGHBOURS, len(there))
        near = cKDTree(points[there]).query(points, k=[*range(1, k + 1)])[1]
        sums = counts[there][near].sum(axis=1)
        return np.asarray(sums / sums.sum(axis=1, keepdims=True))


def _known(curve: DelayCurve, age: np.ndarray, weight: np.ndarray, excess: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the share of each period that is known, and a root of the covariance of their logarithms.

    Parameters
    ----------
    curve : DelayCurve
    age : (n_periods, k) int array
        Days from each day of a period to now.
    weight : (n_periods, k) array
        The share of events that fall on it, of those until now.
    excess : float
    """
    part = weight * curve.within(age)
    share = part.sum(axis=1)
    share = np.where(share > 1.0 - 1e-12, 1.0, share)
    if not weight.size or share.min() == 1.0:
        return share, np.zeros((len(share), 0))
    late = np.flatnonzero((share < 1.0) & (share > 0.0))
    k = len(curve.share)
    # The share of what is known of a period on which the hazard of each delay bears: days younger than it.
    bears = np.zeros((len(late), k + 1))
    rows = np.repeat(np.arange(len(late)), age.shape[1])
    np.add.at(bears, (rows, np.clip(age[late].ravel() + 1, 0, k)), part[late].ravel())
    bears = np.cumsum(bears, axis=1)[:, :k] / share[late, None]
    covariance = excess * (bears * curve.variance) @ bears.T
    values, vectors = np.linalg.eigh(covariance)
    some = values > _NEGLIGIBLE
    root = np.zeros((len(share), int(some.sum())))
    root[late] = vectors[:, some] * np.sqrt(values[some])
    return share, root


_NO_DAY = int(np.iinfo(np.int64).min)


def read_reports(
    table: pd.DataFrame,
    *,
    time: str,
    reported: str,
    what: str = "points",
    every: Any = None,
    as_of: Any = None,
    delay_by: str | None = None,
    weight: np.ndarray | None = None,
    date_format: str | None = None,
) -> Reports:
    """Return the rows of a table that are reported by a day, and what they say of delays.

    Parameters
    ----------
    table : DataFrame
        A row for each event, or for each number of events that happened in one period and were reported in one.
    time, reported : str
        The columns with the dates of events and of their reports.
    what : str
        What the rows are, for messages.
    every : optional
        How long periods are, by which six digits are read.
    as_of : date or str, optional
        Later reports are left out; by default the last day that there is.
    delay_by : str, optional
        A column whose values have a distribution each.
    weight : (n,) array, optional
        Events of each row.
    date_format : str, optional

    Warns
    -----
    InputWarning
        Of rows without a report's date, with one before the event, of groups that are small, of delays that change or
        are longer than the series.
    """
    for name, column in (("time", time), ("reported", reported), ("delay_by", delay_by)):
        if column is not None and column not in table.columns:
            raise DataError(
                f"{name}: {what} have no column {column!r}; there are {listed(table.columns)}.",
                option=name,
                found=list(table.columns),
            )
    if time == reported:
        raise DataError(
            f"{option('time')} and {option('reported')} are the same column, {time!r}.",
            option="reported",
            found=reported,
            remedy="Name the column with the date of the report, which is another than that of the event.",
        )
    form = every if isinstance(every, str) else ""
    event, report = (_days_of(table[column], name, date_format, form) for name, column in
                     (("time", time), ("reported", reported)))  # fmt: skip
    weight = np.ones(len(table)) if weight is None else np.nan_to_num(np.asarray(weight, float))
    there = [~np.isnat(days.first) for days in (event, report)]
    both = there[0] & there[1]
    if not both.any():
        raise DataError(
            f"No row of {what} has both a date in {time!r} and one in {reported!r}.",
            option="reported",
            found=0,
            remedy="Name the column with the date of the report.",
        )
    widths = [np.median((days.last - days.first)[both].astype(int)) for days in (event, report)]
    shift = int(min(widths))  # a report of a week is known at its end, and tells of the whole week
    last = max(_last(report, there[1]), _last(event, there[0] & ~there[1]))
    until = last if as_of is None else _one_day(as_of)
    now = int(until.astype(np.int64)) - shift
    happened = _whole_days(event.first, there[0])
    delay = np.where(both, _whole_days(report.last, both) - happened - shift, -1)
    negative = both & (delay < 0)
    if 2 * negative.sum() > both.sum():
        early = "All" if not (delay[both] > 0).any() else f"{negative.sum():,} of"
        same = " or on the same day" if early == "All" and not negative[both].all() else ""
        raise DataError(
            f"{early} {count(int(both.sum()), 'report')} are dated before their events{same}.",
            option="reported",
            found=int(negative.sum()),
            remedy=f"Are the columns swapped? {option('time', reported)}, {option('reported', time)}.",
        )
    missing = there[0] & ~there[1]
    later = both & ~negative & (_whole_days(report.last, both) > int(until.astype(np.int64)))
    later |= there[0] & (happened > now)
    unsure = missing & ~later & (until < last)
    _check_missing(missing, negative, unsure, weight, reported, what)
    keep = ~(later | unsure)
    if not (keep & there[0]).any():
        raise DataError(
            f"None of the {what} is reported by {until}.", option="as_of", found=str(until), remedy="Give a later day."
        )
    group = np.zeros(len(table), int)
    groups: tuple[str, ...] = ("",)
    if delay_by is not None:
        codes, names = pd.factorize(table[delay_by], sort=True)
        group, groups = np.asarray(codes), tuple(str(name) for name in names)
        _check_groups(group, groups, weight, delay_by)
    numbers = {
        name: float(weight[rows].sum())
        for name, rows in (("later", later), ("missing", missing), ("negative", negative), ("unsure", unsure))
        if weight[rows].sum() > 0
    }
    known = delay[keep].copy()
    n = float(weight[keep][known >= 0].sum())
    if n < FEWEST:
        raise _too_few(f"By {until} the delays of {count(round(n), 'event')} are known", n, "as_of")
    return Reports(
        table[keep].reset_index(drop=True), str(until), now, happened[keep], known, weight[keep], delay_by or "",
        group[keep], groups, numbers,
    )  # fmt: skip


def _too_few(what: str, n: float, name: str) -> DataError:
    more = "a later day" if name == "as_of" else "more periods"
    return DataError(
        f"{what}; a distribution needs {FEWEST}.",
        option="reported",
        found=n,
        remedy=f"Give {more} ({option(name)}), or the share that gets reported ({option('effort')}).",
    )


def _days_of(column: pd.Series, what: str, date_format: str | None, every: str) -> Days:
    """Return the days that each row's date stands for; NaT where it has none."""
    texts = texts_of(column.reset_index(drop=True))
    days = parse(texts.values, date_format, every=every)
    none = np.datetime64("NaT", "D")
    out = Days(*(np.append(part, none)[texts.which] for part in days))
    unread = np.isnat(out.first) & (texts.which >= 0)
    if 2 * unread.sum() > max(int((texts.which >= 0).sum()), 1):
        shown = listed([texts.values[k] for k in dict.fromkeys(texts.which[unread].tolist())][:3])
        raise DataError(
            f"The column {str(column.name)!r} has values such as {shown}, which are no dates "
            f"({int(unread.sum()):,} of {count(len(column), 'row')}).",
            option=what,
            found=int(unread.sum()),
            remedy=f"Delays are counted in days: write dates as 2020-12-31, or give {option('date_format')}.",
        )
    return out


def _whole_days(days: np.ndarray, there: np.ndarray) -> np.ndarray:
    return np.where(there, days.astype("datetime64[D]").astype(np.int64), _NO_DAY)


def _last(days: Days, which: np.ndarray) -> np.datetime64:
    return days.last[which].max() if which.any() else np.datetime64("0001-01-01", "D")


def _one_day(as_of: Any) -> np.datetime64:
    """Return the last day that a date stands for."""
    texts = texts_of([as_of]).values
    day = parse(texts).last[0] if texts else np.datetime64("NaT", "D")
    if np.isnat(day):
        raise DataError(
            f"{option('as_of')} is a date; found {as_of!r}.",
            option="as_of",
            found=str(as_of),
            remedy="Write it as 2020-12-31.",
        )
    return np.datetime64(day, "D")


def _check_missing(
    missing: np.ndarray, negative: np.ndarray, unsure: np.ndarray, weight: np.ndarray, reported: str, what: str
) -> None:
    """Warn of rows whose delay is not known; refuse most of them."""
    total = float(weight.sum())
    share = float(weight[missing].sum()) / max(total, 1e-300)
    if share > _MISSING:
        raise DataError(
            f"{percent(share)} of the {what} have no date in {reported!r}: nothing sure can be said of their delays.",
            option="reported",
            found=int(missing.sum()),
            remedy="Complete the dates, or give the share of events that get reported as effort.",
        )
    if missing.any():
        left = unsure.any()
        then = (
            "Whether they were known by then is unclear, and they are left out."
            if left
            else "Their delays are taken to be like those of the others."
        )
        warn(
            InputWarning(
                f"{count(int(missing.sum()), 'row')} of {what} ({percent(share, 1)} of the events) "
                f"{'has' if missing.sum() == 1 else 'have'} no date in {reported!r}. {then}",
                option="reported",
                found=int(missing.sum()),
                remedy="Check that dates are not missing because the events are recent.",
            )
        )
    if negative.any():
        rows = np.flatnonzero(negative) + 1
        named = ", ".join(f"{row:,}" for row in rows[:_NAMED])
        more = f" and {len(rows) - _NAMED:,} more" if len(rows) > _NAMED else ""
        warn(
            InputWarning(
                f"{count(len(rows), 'row')} of {what} {'is' if len(rows) == 1 else 'are'} reported before the event "
                f"(counted from 1: {named}{more}). The events stay in, and their delays are taken to be like those of "
                "the others.",
                option="reported",
                found=rows.tolist(),
                remedy="Check both dates of these rows.",
            )
        )


def _check_groups(group: np.ndarray, groups: tuple[str, ...], weight: np.ndarray, delay_by: str) -> None:
    if len(groups) > 50:
        raise DataError(
            f"The column {delay_by!r} has {len(groups):,} values; at most 50 can have a delay distribution each.",
            option="delay_by",
            found=len(groups),
            remedy="Join some.",
        )
    none = group < 0
    if not groups:
        raise DataError(f"The column {delay_by!r} is empty.", option="delay_by", found=delay_by)
    if none.any():
        lacking = count(round(float(weight[none].sum())), "event")
        warn(
            InputWarning(
                f"{lacking} without a value in {delay_by!r}: nothing follows of the delays of groups from these.",
                option="delay_by",
                found=int(none.sum()),
                remedy="Complete the column.",
            )
        )
