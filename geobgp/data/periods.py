"""Periods: days, weeks, months, quarters, years, or what lies between given edges, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal, Self, cast

import numpy as np
import pandas as pd

from geobgp.data.dates import WEEKS, middle_of_weeks, parse, texts_of
from geobgp.errors import DataError, SizeError, option
from geobgp.text import count, number
from geobgp.validate import door, whole

Every = Literal["day", "week", "epiweek", "month", "quarter", "year", "edges"]
#: Calendar periods, from the shortest.
CALENDAR = ("day", "week", "epiweek", "month", "quarter", "year")
#: More periods than these are refused.
MOST_PERIODS = 2000
_YEAR = 365.25
_PER_YEAR = {"day": _YEAR, "week": _YEAR / 7, "epiweek": _YEAR / 7, "month": 12.0, "quarter": 4.0}
#: What is proposed in place of too many; else years.
_LONGER = {"day": "week", "week": "month", "epiweek": "month", "month": "quarter"}
#: Given edges have a yearly cycle if they are of about the same width, and short enough to show it.
_EVEN, _FEWEST_A_YEAR = 1.25, 2.0
_SECONDS = 86_400


@dataclass(frozen=True, eq=False)
class Periods:
    """Periods without gaps between them.

    Calendar periods count as equal: an intensity is per month, whether of 28 days or of 31. Those between given edges
    differ in width, and an intensity is per day (per unit, where time is a plain number).

    Make them with `Periods.calendar` or `Periods.between`.

    Attributes
    ----------
    every : str
        "day", "week" (from Monday to Sunday, ISO 8601), "epiweek" (from Sunday to Saturday, as the CDC counts weeks:
        MMWR), "month", "quarter", "year", or "edges".
    edges : (n + 1,) array
        Where periods begin, and where the last one ends: datetime64[s] (midnights), or floats.

    Examples
    --------
    >>> periods = Periods.calendar("month", "2019-11-20", "2020-02-01")
    >>> periods.labels
    ('2019-11', '2019-12', '2020-01', '2020-02')
    >>> periods.index_of(["2020-01-31", "2020-03-01"]).tolist()
    [2, -1]
    >>> Periods.between([0.0, 5.0, 15.0]).widths.tolist()
    [5.0, 10.0]
    """

    every: Every
    edges: np.ndarray = field(repr=False)

    @classmethod
    def calendar(cls, every: str, first: Any, last: Any) -> Self:
        """Return the periods from that of one date to that of another, both with it.

        Parameters
        ----------
        every : "day", "week", "epiweek", "month", "quarter" or "year"
        first, last : date, datetime or str
            Such as "2015-01-01", "2015-01", "2015-W03", "2015-EW03" or "2015".
        """
        check_every(every)
        days = [parse(texts_of([date]).values or [""], every=every) for date in (first, last)]
        start, end = days[0].first[0], days[1].last[0]
        if np.isnat(start) or np.isnat(end) or end < start:
            raise DataError(
                f"Periods go from a first date to a last one; found {first!r} and {last!r}.",
                option="between",
                found=(str(first), str(last)),
                remedy="Write dates as 2020-12-31.",
            )
        low, high = (int(v) for v in ordinals(np.array([start, end]), every))
        return cls.of_ordinals(every, low, high)

    @classmethod
    def of_ordinals(cls, every: str, first: int, last: int) -> Self:
        """Return calendar periods by their numbers; see `ordinals`."""
        n = last - first + 1
        check_number(n, every, *(str(v) for v in starts_of(np.array([first, last + 1]), every) - [0, 1]))
        return cls(cast(Every, every), _sealed(starts_of(np.arange(first, last + 2), every)))

    @classmethod
    def between(cls, edges: Any) -> Self:
        """Return the periods between given edges: rising dates, or rising numbers.

        A period holds its first edge and not its second.
        """
        values = list(np.asarray(edges).ravel()) if not isinstance(edges, pd.Index) else list(edges)
        found: np.ndarray
        if values and all(isinstance(v, (int, float, np.integer, np.floating)) for v in values):
            found = np.array(values, float)
            fine = bool(np.isfinite(found).all())
        else:
            texts = texts_of(pd.Series(values))
            days = parse(texts.values)
            found = np.append(days.first, np.datetime64("NaT", "D"))[texts.which].astype("datetime64[s]")
            fine = not bool(np.isnat(found).any())
        fine = fine and len(found) >= 2 and bool((np.diff(found) > np.zeros(1, np.diff(found).dtype)).all())
        if not fine:
            shown = ", ".join(str(v) for v in values[:4]) + (", ..." if len(values) > 4 else "")
            raise DataError(
                f"Edges of periods are two or more dates, or numbers, each above the one before; found "
                f"{shown or 'none'}.",
                option="every",
                found=len(values),
                remedy="Sort them, and leave out what is there twice.",
            )
        check_number(len(found) - 1, "edges", str(values[0]), str(values[-1]))
        return cls("edges", _sealed(found))

    # -- what there is -------------------------------------------------------------------------------------

    @property
    def n(self) -> int:
        """How many periods there are."""
        return len(self.edges) - 1

    def __len__(self) -> int:
        return self.n

    @property
    def dated(self) -> bool:
        """Whether time is dates, not plain numbers."""
        return bool(self.edges.dtype.kind == "M")

    @property
    def starts(self) -> np.ndarray:
        """Where each period begins, (n,)."""
        return self.edges[:-1]

    @property
    def ends(self) -> np.ndarray:
        """Where each period has ended: the start of the next one, (n,)."""
        return self.edges[1:]

    @property
    def middles(self) -> np.ndarray:
        """The middle of each period, (n,)."""
        return np.asarray(self.starts + (self.ends - self.starts) / 2)

    @cached_property
    def _lengths(self) -> np.ndarray:
        """Lengths in days, or in units of plain numbers."""
        lengths = np.diff(self.edges)
        return np.asarray(lengths.astype(float) / _SECONDS if self.dated else lengths)

    @property
    def widths(self) -> np.ndarray:
        """What exposures are multiplied by, (n,): ones, or the days between given edges."""
        return self._lengths if self.every == "edges" else np.ones(self.n)

    @property
    def steps(self) -> np.ndarray:
        """Distances between the middles of neighbours, (n - 1,), in units of the usual period."""
        if self.every != "edges":
            return np.ones(self.n - 1)
        middles = (self._lengths[1:] + self._lengths[:-1]) / 2
        return np.asarray(middles / np.median(self._lengths))

    @property
    def unit(self) -> str:
        """What an intensity is per: "month", "day", "unit of time"."""
        if self.every == "edges":
            return "day" if self.dated else "unit of time"
        return self.noun

    @property
    def noun(self) -> str:
        """What one of them is called."""
        return noun_of(self.every)

    @property
    def per_year(self) -> float | None:
        """How many make a year, where they can show a yearly cycle; else None."""
        if self.every in _PER_YEAR or not self.dated:
            return _PER_YEAR.get(self.every)
        usual = float(np.median(self._lengths))
        even = self._lengths.max() <= _EVEN * self._lengths.min()
        return _YEAR / usual if even and _YEAR / usual >= _FEWEST_A_YEAR else None

    @property
    def years(self) -> np.ndarray:
        """The middles in years from the first one, (n,); in units of plain numbers where time has no dates."""
        middles = self.middles
        if not self.dated:
            return np.asarray(middles - middles[0])
        if self.every in ("month", "quarter", "year"):
            return np.arange(self.n) / (_PER_YEAR.get(self.every) or 1.0)
        return np.asarray((middles - middles[0]).astype(float) / (_SECONDS * _YEAR))

    @property
    def per(self) -> str:
        """What `years` counts: "year", or "unit of time"."""
        return "year" if self.dated else "unit of time"

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """What the periods are called: "2020-03-01", "2020-W05", "2020-EW05", "2020-03", "2020 Q1", "2020"."""
        if not self.dated:
            return tuple(f"{number(a)} to {number(b)}" for a, b in pairwise(self.edges))
        days = self.edges.astype("datetime64[D]")
        if self.every == "edges":
            return tuple(f"{a} to {b - 1}" for a, b in pairwise(days))
        return tuple(_label(day, self.every) for day in days[:-1])

    def __repr__(self) -> str:
        return f"Periods({self.words()})"

    def words(self) -> str:
        """Return how many there are, and which, in words.

        Examples
        --------
        >>> Periods.calendar("quarter", "1961", "1975").words()
        '60 quarters, 1961 Q1 to 1975 Q4'
        """
        span = "" if self.n == 1 else f" to {self.labels[-1]}"
        if self.every == "edges":
            whole = f"{self.labels[0].split(' to ')[0]} to {self.labels[-1].split(' to ')[1]}"
            return f"{count(self.n, 'period')}, {whole}"
        return f"{count(self.n, self.noun)}, {self.labels[0]}{span}"

    # -- which one -----------------------------------------------------------------------------------------

    def index_of(self, times: Any) -> np.ndarray:
        """Return which period dates (or numbers) lie in, (k,); -1 where in none."""
        if not self.dated:
            values = np.asarray(times, float).ravel()
            inside = (values >= self.edges[0]) & (values < self.edges[-1])
            return np.where(inside, np.searchsorted(self.edges, values, side="right") - 1, -1)
        texts = texts_of(pd.Series(np.asarray(times).ravel()))
        days = middle_of_weeks(parse(texts.values, every=self.every))
        found = np.append(self.index_of_days(days.first), -1)
        return np.asarray(found[texts.which])

    def index_of_days(self, days: np.ndarray) -> np.ndarray:
        """Return which period days lie in, (k,); -1 where in none."""
        at = days.astype("datetime64[s]")
        inside = (at >= self.edges[0]) & (at < self.edges[-1])
        return np.where(inside, np.searchsorted(self.edges, at, side="right") - 1, -1)

    def find(self, period: Any) -> int:
        """Return the number of a period by its label, its number (from 0; -1 is the last), or a date within it.

        Examples
        --------
        >>> years = Periods.calendar("year", "1961", "1975")
        >>> years.find("1962"), years.find(-1), years.find("1975-06-30"), years.find(1962)
        (1, 14, 14, 1)
        """
        if isinstance(period, (int, np.integer)) and -self.n <= period < self.n:
            return int(period) % self.n
        if str(period) in self.labels:
            return self.labels.index(str(period))
        try:
            index = int(self.index_of([period])[0])
        except (TypeError, ValueError):
            index = -1
        if index < 0:
            raise DataError(
                f"There is no period {str(period)!r}: there are {self.words()}.",
                option="period",
                found=str(period),
                remedy=f"Give a label such as {self.labels[0]!r}, a number from 0 to {self.n - 1}, or a date.",
            )
        return index

    # -- others --------------------------------------------------------------------------------------------

    @door(k=whole(1))
    def ahead(self, k: int) -> Periods:
        """Return the k periods that follow; after given edges, of their usual width.

        Examples
        --------
        >>> Periods.calendar("quarter", "1975", "1975").ahead(2).labels
        ('1976 Q1', '1976 Q2')
        """
        if self.every != "edges":
            last = int(ordinals(self.edges[-1:].astype("datetime64[D]") - 1, self.every)[0])
            return Periods.of_ordinals(self.every, last + 1, last + k)
        width = np.median(np.diff(self.edges).astype(float))
        more = np.round(width * np.arange(k + 1)).astype("m8[s]") if self.dated else width * np.arange(k + 1)
        return Periods("edges", _sealed(self.edges[-1] + more))

    def slice(self, start: int, stop: int) -> Periods:
        """Return the periods from one number up to another, without it."""
        if not 0 <= start < stop <= self.n:
            raise DataError(
                f"There are {count(self.n, self.noun)}; found {start} to {stop}.", option="period"
            )
        return Periods(self.every, _sealed(self.edges[start : stop + 1].copy()))

    def joined(self, after: Periods) -> Periods:
        """Return these periods and those that follow them.

        Examples
        --------
        >>> quarters = Periods.calendar("quarter", "1975", "1975")
        >>> quarters.joined(quarters.ahead(2)).words()
        '6 quarters, 1975 Q1 to 1976 Q2'
        """
        if after.every != self.every or after.dated != self.dated or after.edges[0] != self.edges[-1]:
            raise DataError(
                f"Periods are joined that follow each other; found {after.words()} after {self.words()}.",
                option="after",
                found=after.words(),
            )
        return Periods(self.every, _sealed(np.concatenate([self.edges, after.edges[1:]])))

    def same_as(self, other: Periods) -> bool:
        """Whether others are the very same periods."""
        return self.every == other.every and bool(np.array_equal(self.edges, other.edges))

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return plain arrays from which `from_arrays` makes the same periods."""
        edges = self.edges.astype(np.int64) if self.dated else self.edges
        return {"every": np.frombuffer(self.every.encode(), np.uint8), "edges": edges}

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray]) -> Self:
        """Make periods from `to_arrays`."""
        edges = arrays["edges"]
        edges = edges.astype("datetime64[s]") if edges.dtype.kind == "i" else edges.astype(float)
        return cls(cast(Every, arrays["every"].tobytes().decode()), _sealed(edges))


# -- the calendar


def ordinals(days: np.ndarray, every: str) -> np.ndarray:
    """Return the number of the day, week, month, quarter or year that days lie in, from 1970 on."""
    if every in WEEKS:
        return np.asarray((days.astype("datetime64[D]").astype(np.int64) + WEEKS[every]) // 7)
    if every == "quarter":
        return np.asarray(days.astype("datetime64[M]").astype(np.int64) // 3)
    unit = {"day": "D", "month": "M", "year": "Y"}[every]
    return np.asarray(days.astype(f"datetime64[{unit}]").astype(np.int64))


def starts_of(numbers: np.ndarray, every: str) -> np.ndarray:
    """Return the days (datetime64[D]) on which periods of these numbers begin."""
    if every in WEEKS:
        return np.asarray((7 * numbers - WEEKS[every]).astype("datetime64[D]"))
    if every == "quarter":
        return np.asarray((3 * numbers).astype("datetime64[M]").astype("datetime64[D]"))
    unit = {"day": "D", "month": "M", "year": "Y"}[every]
    return np.asarray(numbers.astype(f"datetime64[{unit}]").astype("datetime64[D]"))


def noun_of(every: str) -> str:
    """Return what one period is called."""
    return {"edges": "period", "epiweek": "week"}.get(every, every)


def check_every(every: Any) -> None:
    """Refuse what is no word for a calendar period."""
    if every in CALENDAR:
        return
    words = ", ".join(repr(word) for word in CALENDAR[:-1])
    raise DataError(
        f"{option('every')} is {words} or {CALENDAR[-1]!r}, or a list of edges; found {every!r}.",
        option="every",
        found=every,
        remedy=f"Such as {option('every', 'month')}.",
    )


def check_number(n: int, every: str, first: str, last: str) -> None:
    """Refuse more periods than can be fitted."""
    if n <= MOST_PERIODS:
        return
    longer = _LONGER.get(every, "year")
    raise SizeError(
        f"From {first} to {last} there are {n:,} {noun_of(every)}s; at most {MOST_PERIODS:,} can be fitted.",
        option="every",
        found=n,
        remedy=f"Use longer periods ({option('every', longer)}), or {option('between')}, if some dates are wrong.",
    )


def _label(day: np.datetime64, every: str) -> str:
    text = str(day)
    if every in WEEKS:
        middle = day + 3
        year = middle.astype("datetime64[Y]")
        week = int((middle - year.astype("datetime64[D]")).astype(int)) // 7 + 1
        return f"{year}-{'W' if every == 'week' else 'EW'}{week:02d}"
    if every == "quarter":
        return f"{text[:4]} Q{(int(text[5:7]) + 2) // 3}"
    return {"day": text, "month": text[:7], "year": text[:4]}[every]


def _sealed(edges: Sequence[Any] | np.ndarray) -> np.ndarray:
    values = np.array(edges)
    values = values.astype("datetime64[s]") if values.dtype.kind == "M" else values.astype(float)
    values.setflags(write=False)
    return values
