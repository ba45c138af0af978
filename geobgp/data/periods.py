"""Periods: calendar arithmetic, dates as people write them, and which period a row belongs to."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal, NamedTuple, Self, cast

import numpy as np
import pandas as pd

from geobgp.errors import DataError, DroppedPointsWarning, SizeError, option
from geobgp.text import count, listed, number, percent
from geobgp.validation import SPAN, validated, whole

# -- Dates: what a column of dates, years, months or weeks says, as first and last days ----------------------
# A value stands for all the days that it may mean: "2020-03-01" for one, "2020-W05" for a week from Monday to Sunday
# (ISO 8601), "2020-EW05" for one from Sunday to Saturday (MMWR), "2020-03", "2020 Q1" and "2020" for a month, a
# quarter,
# a year. Of a time of day the date alone counts, as the clock showed it where it was written: a time zone is neither
# needed nor converted.


NOT_A_DATE = np.datetime64("NaT", "D")
#: Kinds of weeks, and days from the start of one of them to 1970-01-01, a Thursday: ISO weeks begin on Monday, those of
#: the CDC (MMWR) on Sunday.
WEEKS = {"week": 3, "epiweek": 4}
#: Days from the start of a week to its middle, whose month and year it belongs to: Thursday, or Wednesday (MMWR).
_MIDDLE = np.timedelta64(3, "D")
_DAY = np.timedelta64(1, "D")
#: A date with the year last, and a time of day behind it or not.
_YEAR_LAST = re.compile(r"(\d{1,2})([/.\- ])(\d{1,2})\2(\d{4}|\d{2})(?:[ T,]+\d{1,2}:\d\d.*)?")
_ZONE = re.compile(r"\d:\d\d(?::\d\d(?:\.\d+)?)?\s*(Z|UTC|[+-]\d\d:?\d\d)$")
#: What stands for no date at all.
_NOTHING = {"", "nan", "nat", "none", "na", "n/a", "null", "<na>", "-", "."}
#: Values of a column that are looked at for time zones.
_SAMPLE = 1000


class Days(NamedTuple):
    """First and last day that values stand for, (k,) datetime64[D] each; NaT where there is none."""

    first: np.ndarray
    last: np.ndarray


class Texts(NamedTuple):
    """A column as text: its distinct values, which of them each row has (-1: none), and time zones found."""

    values: list[str]
    which: np.ndarray
    zones: tuple[str, ...]


def texts_of(column: Any) -> Texts:
    """Return a column of dates of any kind as text, without times of day.

    Examples
    --------
    >>> texts = texts_of(["2020-03-01T23:30:00+02:00", None, "2020-03-01"])
    >>> texts.values, texts.which.tolist(), texts.zones
    (['2020-03-01'], [0, -1, 0], ('+02:00',))
    """
    column = column if isinstance(column, pd.Series) else pd.Series(column)
    zones: tuple[str, ...] = ()
    if pd.api.types.is_datetime64_any_dtype(column.dtype):
        # Arrow has days alone as well, which know of no zone.
        zone = getattr(column.dtype, "tz", None) or getattr(getattr(column.dtype, "pyarrow_dtype", None), "tz", None)
        if zone is not None:
            zones, column = (str(zone),), column.dt.tz_localize(None)
        days = column.astype("datetime64[s]").to_numpy().astype("datetime64[D]")
        found, which = np.unique(days, return_inverse=True)
        which = np.where(np.isnat(days), -1, which.reshape(-1))
        return Texts([str(day) for day in found], which, zones)
    if pd.api.types.is_numeric_dtype(column.dtype):
        numbers = column.to_numpy(float, na_value=np.nan)
        which, found = pd.factorize(numbers)
        return Texts([f"{v:.0f}" if v == round(v) else repr(float(v)) for v in found], which, ())
    which, found = pd.factorize(column)
    words = [str(value).strip() for value in found]
    zones = tuple(dict.fromkeys(m[1] for word in words[:_SAMPLE] if (m := _ZONE.search(word))))
    short = [word[:10] if len(word) > 10 and word[10] in "Tt " and word[4] == "-" else word for word in words]
    again, distinct = pd.factorize(np.array(short, dtype=object))
    codes = np.append(again, -1)[which]
    nothing = np.array([word.lower() in _NOTHING for word in distinct], bool)
    return Texts([str(w) for w in distinct], np.where(np.append(nothing, True)[codes], -1, codes), zones)


def parse(
    values: Sequence[str],
    date_format: str | None = None,
    *,
    every: str = "",
    order: Literal["day", "month"] | None = None,
) -> Days:
    """Return the days that texts stand for; NaT for what is no date.

    Parameters
    ----------
    values : sequence of str
    date_format : str, optional
        As for ``strptime``, such as "%d/%m/%Y"; by default dates are written year first (ISO 8601), or the year last
        where one of them shows whether day or month comes first.
    every : str
        The periods that are asked for: of "week" or "epiweek" six digits are a year and such a week; else a year and a
        month.
    order : "day" or "month", optional
        What comes first in dates that end in the year, where it is known from others.

    Raises
    ------
    DataError
        At a date whose day and month could be either, if none of the others tells.

    Examples
    --------
    >>> days = parse(["2020-02", "2020W05", "2020-02-30", "1961"])
    >>> [str(day) for day in days.first], [str(day) for day in days.last]
    (['2020-02-01', '2020-01-27', 'NaT', '1961-01-01'], ['2020-02-29', '2020-02-02', 'NaT', '1961-12-31'])
    >>> str(parse(["2020-EW01"]).first[0])
    '2019-12-29'
    >>> str(parse(["3/4/2020"], "%d/%m/%Y").first[0]), str(parse(["3/4/2020", "16/2/2020"]).first[0])
    ('2020-04-03', '2020-04-03')
    """
    if date_format is not None:
        return _formatted(values, date_format)
    first = np.full(len(values), NOT_A_DATE)
    last = first.copy()
    order = order or first_of(values)
    for k, value in enumerate(values):
        days = _parse_one(value, every) or _year_last(value, order)
        if days is not None:
            first[k], last[k] = days
    return Days(first, last)


def first_of(values: Sequence[str]) -> Literal["day", "month"] | None:
    """Return what comes first in dates that end in the year, by those in which only one of the two can be a month.

    None where no date tells; two that tell different things are refused.

    Examples
    --------
    >>> first_of(["01/02/1961", "16/02/1961"]), first_of(["02/16/1961"]), first_of(["01/02/1961"])
    ('day', 'month', None)
    """
    shown: dict[Literal["day", "month"], str] = {}
    for value in values:
        match = _YEAR_LAST.fullmatch(value)
        if match is None or len(match[4]) != 4:
            continue
        one, two = int(match[1]), int(match[3])
        if (one > 12) != (two > 12) and max(one, two) <= 31:
            shown.setdefault("day" if one > 12 else "month", value)
    if len(shown) == 2:
        raise DataError(
            f"{shown['day']!r} has the day first, {shown['month']!r} the month: dates of one column are written in "
            "one way.",
            option="date_format",
            found=list(shown.values()),
            remedy=(
                f"Write them as 2020-12-31; or say how most are written, {option('date_format', '%d/%m/%Y')}, and the "
                "others are left out and reported."
            ),
        )
    return next(iter(shown), None)


def is_year_last(value: str) -> bool:
    """Tell whether a text is a date that ends in the year."""
    return _YEAR_LAST.fullmatch(value) is not None


def undecided(values: Sequence[str]) -> bool:
    """Tell whether there are dates whose day and month could be either, and none that tells."""
    found = (match for value in values if (match := _YEAR_LAST.fullmatch(value)) and len(match[4]) == 4)
    either = any(int(m[1]) != int(m[3]) and max(int(m[1]), int(m[3])) <= 12 for m in found)
    return either and first_of(values) is None


def _year_last(value: str, order: Literal["day", "month"] | None) -> tuple[np.datetime64, np.datetime64] | None:
    match = _YEAR_LAST.fullmatch(value)
    if match is None:
        return None
    one, two = match[1], match[3]
    if len(match[4]) == 2 or (order is None and int(one) != int(two) and max(int(one), int(two)) <= 12):
        raise _ask(value)
    try:
        return _day(match[4], two, one) if order != "month" else _day(match[4], one, two)
    except ValueError:  # a 30th of February
        return None


def middle_of_weeks(days: Days) -> Days:
    """Return days with whole weeks replaced by their fourth day, which tells their month and their year."""
    week = (days.last - days.first) == np.timedelta64(6, "D")
    middle = days.first + _MIDDLE
    return Days(np.where(week, middle, days.first), np.where(week, middle, days.last))


def check_format(date_format: Any) -> None:
    """Refuse what is no format of dates."""
    if date_format is None:
        return
    if isinstance(date_format, str) and "%" in date_format:
        with suppress(ValueError):  # of signs that there are not
            pd.to_datetime(pd.Series([""]), format=date_format, errors="coerce")
            return
    raise DataError(
        f"{option('date_format')} says how dates are written, in the signs of strptime; found {date_format!r}.",
        option="date_format",
        found=date_format,
        remedy="Such as '%d/%m/%Y' for 31/12/2020.",
    )


def _ask(value: str) -> DataError:
    day_first = _like(value, "%d{0}%m{0}%Y")
    month_first = _like(value, "%m{0}%d{0}%Y")
    short = "%y" in day_first
    how = "have a year of two digits" if short else "can be read in two ways, and no other tells"
    return DataError(
        f"Dates such as {value!r} {how}: day or month first{', and which century' if short else ''}?",
        option="date_format",
        found=value,
        remedy=(
            f"Say which: {option('date_format', day_first)} or {option('date_format', month_first)}; or write "
            "dates as 2020-12-31."
        ),
    )


def _like(value: str, pattern: str) -> str:
    match = _YEAR_LAST.fullmatch(value)
    assert match is not None
    text = pattern.format(match[2])
    return text if len(match[4]) == 4 else text.replace("%Y", "%y")


# -- kinds of text


def _day(year: str, month: str, day: str) -> tuple[np.datetime64, np.datetime64]:
    found = np.datetime64(f"{year}-{month:0>2}-{day:0>2}", "D")
    return found, found


def _month(year: str, month: str, months: int = 1) -> tuple[np.datetime64, np.datetime64]:
    found = np.datetime64(f"{year}-{month:0>2}", "M")
    return found.astype("M8[D]"), (found + np.timedelta64(months, "M")).astype("M8[D]") - _DAY


def _quarter(year: str, quarter: str) -> tuple[np.datetime64, np.datetime64]:
    return _month(year, str(3 * int(quarter) - 2), 3)


def _year(year: str) -> tuple[np.datetime64, np.datetime64]:
    return _month(year, "1", 12)


def _week(year: str, week: str, day: str | None = None) -> tuple[np.datetime64, np.datetime64]:
    start = week_start(int(year), int(week))
    if day is None:
        return start, start + 6 * _DAY
    return start + (int(day) - 1) * _DAY, start + (int(day) - 1) * _DAY


def _epiweek(year: str, week: str) -> tuple[np.datetime64, np.datetime64]:
    start = week_start(int(year), int(week), "epiweek")
    return start, start + 6 * _DAY


def week_start(year: int, week: int, every: str = "week") -> np.datetime64:
    """Return the Monday of an ISO week, or the Sunday of an "epiweek"."""
    fourth = np.datetime64(f"{year:04d}-01-04", "D")  # always in week 1, which has four days in January or more
    start = fourth + (7 * (week - 1) - (int(fourth.astype(np.int64)) + WEEKS[every]) % 7) * _DAY
    if week < 1 or int(str(start + _MIDDLE)[:4]) != year:
        raise ValueError(f"{year} has no week {week}")
    return np.datetime64(start, "D")


_Kind = Callable[..., tuple[np.datetime64, np.datetime64]]
_YEAR_PATTERN = r"([12]\d{3})"
_KINDS: list[tuple[re.Pattern[str], _Kind]] = [
    (re.compile(_YEAR_PATTERN + r"-(\d{1,2})-(\d{1,2})"), _day),
    (re.compile(_YEAR_PATTERN + r"[/.](\d{1,2})[/.](\d{1,2})"), _day),
    (re.compile(_YEAR_PATTERN + r"(\d{2})(\d{2})"), _day),
    (re.compile(_YEAR_PATTERN + r"[ -]?[Ww](\d{1,2})(?:-?([1-7]))?"), _week),
    (re.compile(_YEAR_PATTERN + r"[ -]?[Ee][Ww](\d{1,2})"), _epiweek),
    (re.compile(_YEAR_PATTERN + r"[ -]?[Qq]([1-4])"), _quarter),
    (re.compile(_YEAR_PATTERN + r"[-/](\d{1,2})"), _month),
    (re.compile(_YEAR_PATTERN), _year),
]
_SIX = re.compile(_YEAR_PATTERN + r"(\d{2})")
_SIX_DIGITS: dict[str, _Kind] = {"week": _week, "epiweek": _epiweek}


def _parse_one(value: str, every: str) -> tuple[np.datetime64, np.datetime64] | None:
    six = _SIX.fullmatch(value)
    try:
        if six is not None:
            return _SIX_DIGITS.get(every, _month)(six[1], six[2])
        for pattern, kind in _KINDS:
            match = pattern.fullmatch(value)
            if match is not None:
                return kind(*match.groups())
    except ValueError:  # a 30th of February
        pass
    return None


def _formatted(values: Sequence[str], date_format: str) -> Days:
    stamps = pd.to_datetime(pd.Series(list(values), dtype=object), format=date_format, errors="coerce")
    first = stamps.to_numpy().astype("datetime64[D]")
    if re.search("%[dDjuxc]", date_format):
        return Days(first, first.copy())
    months = 1 if re.search("%[mbB]", date_format) else 12
    after = (first.astype("datetime64[M]") + np.timedelta64(months, "M")).astype("datetime64[D]")
    return Days(first, after - _DAY)


# -- Periods: days, weeks, months, quarters, years, or what lies between given edges, one after the other ----


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
        codes: np.ndarray
        if values and all(isinstance(v, (int, float, np.integer, np.floating)) for v in values):
            codes = np.array(values, float)
            fine = bool(np.isfinite(codes).all())
        else:
            texts = texts_of(pd.Series(values))
            days = parse(texts.values)
            codes = np.append(days.first, np.datetime64("NaT", "D"))[texts.which].astype("datetime64[s]")
            fine = not bool(np.isnat(codes).any())
        fine = fine and len(codes) >= 2 and bool((np.diff(codes) > np.zeros(1, np.diff(codes).dtype)).all())
        if not fine:
            shown = ", ".join(str(v) for v in values[:4]) + (", ..." if len(values) > 4 else "")
            raise DataError(
                f"Edges of periods are two or more dates, or numbers, each above the one before; found "
                f"{shown or 'none'}.",
                option="every",
                found=len(values),
                remedy="Sort them, and leave out what is there twice.",
            )
        check_number(len(codes) - 1, "edges", str(values[0]), str(values[-1]))
        return cls("edges", _sealed(codes))

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
            return tuple(f"{a} to {b - _DAY}" for a, b in pairwise(days))
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
        codes = np.append(self.index_of_days(days.first), -1)
        return np.asarray(codes[texts.which])

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

    @validated(k=whole(1))
    def ahead(self, k: int) -> Periods:
        """Return the k periods that follow; after given edges, of their usual width.

        Examples
        --------
        >>> Periods.calendar("quarter", "1975", "1975").ahead(2).labels
        ('1976 Q1', '1976 Q2')
        """
        if self.every != "edges":
            last = int(ordinals(self.edges[-1:].astype("datetime64[D]") - _DAY, self.every)[0])
            return Periods.of_ordinals(self.every, last + 1, last + k)
        width = np.median(np.diff(self.edges).astype(float))
        more = np.round(width * np.arange(k + 1)).astype("m8[s]") if self.dated else width * np.arange(k + 1)
        return Periods("edges", _sealed(self.edges[-1] + more))

    def slice(self, start: int, stop: int) -> Periods:
        """Return the periods from one number up to another, without it."""
        if not 0 <= start < stop <= self.n:
            raise DataError(f"There are {count(self.n, self.noun)}; found {start} to {stop}.", option="period")
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
        middle = day + _MIDDLE
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


# -- Clock: which period each row of a source is of, chunk by chunk, and what became of the undated ----------


#: Codes of rows without a date, and of those outside the periods.
UNTIMED = int(np.iinfo(np.int64).min)
OUTSIDE = UNTIMED + 1
#: Rows before a column is judged by how much of it can be read, and examples that are kept.
_JUDGED, _EXAMPLES = 20, 3


class Clock:
    """Reads a column of dates, chunk by chunk.

    Parameters
    ----------
    name : str
        The column's name, for messages.
    every : str, edges or Periods
    between : (first, last), optional
    date_format : str, optional
    given : array, optional
        The dates of all rows, where they are no column of the points.

    Attributes
    ----------
    n_missing, n_unreadable, n_coarse : int
        Rows without a date, with what is no date, and with a date too vague for its period.
    """

    def __init__(
        self,
        name: str,
        every: Any,
        between: tuple[Any, Any] | None = None,
        date_format: str | None = None,
        given: pd.Series | None = None,
    ) -> None:
        check_format(date_format)
        self.name, self.date_format, self.given = name, date_format, given
        self.every = "edges"
        self.fixed: Periods | None = None
        if isinstance(every, Periods):
            self.every, self.fixed = every.every, every
        elif isinstance(every, str) and "," not in every:
            check_every(every)
            self.every = every
            self.fixed = None if between is None else Periods.calendar(every, *SPAN("between", between))
        elif every is None:
            raise DataError(
                "How long is a period?",
                option="every",
                remedy=f"Say so: {option('every', 'month')}, or 'day', 'week', 'epiweek', 'quarter', 'year', or edges.",
            )
        else:
            self.fixed = Periods.between(_split(every) if isinstance(every, str) else every)
        if between is not None and (isinstance(every, Periods) or self.every == "edges"):
            raise DataError(
                f"{option('between')} goes with calendar periods; edges say themselves where time begins and ends.",
                option="between",
                remedy=f"Leave it out, or use {option('every', 'month')}.",
            )
        # Of given periods that others have events in (every=Periods) some rows may well have none.
        self._needs_some = self.fixed is not None and not isinstance(every, Periods)
        self._begin()

    def _begin(self) -> None:
        self.rows = self.n_missing = self.n_unreadable = self.n_coarse = self.n_outside = 0
        self.order: Literal["day", "month"] | None = None
        self._shown = ""  # the date that shows it
        self._examples: list[str] = []
        self._zones: dict[str, None] = {}
        self._found: set[int] = set()
        self._reach: tuple[Any, Any] | None = None  # the first and the last date, of all rows
        self._is_part = False

    def fresh(self) -> Clock:
        """Return a clock of the same periods that has read nothing, for a part of the rows: see `merge`."""
        part = copy.copy(self)
        part._begin()
        part._is_part = True
        return part

    def merge(self, other: Clock) -> None:
        """Add what another clock has read of rows that come after those of this one."""
        if not self.rows:
            self.fixed = other.fixed
        elif other.rows and self.fixed is not None and other.fixed is not None and not self.fixed.same_as(other.fixed):
            raise DataError(
                f"The column {self.name!r} has dates in some parts of the points and plain numbers in others.",
                option="time",
                remedy="Write it in one way.",
            )
        if other._shown:
            self.settle_order([other._shown])
        for name in ("rows", "n_missing", "n_unreadable", "n_coarse", "n_outside"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self._note(np.ones(len(other._examples), bool), np.array(other._examples, dtype=object))
        self._zones |= other._zones
        self._found |= other._found
        if other._reach is not None:
            self._extend(*other._reach)
        self._check_span()

    @classmethod
    def asked(cls, time: Any, every: Any, between: Any, date_format: Any) -> Clock | None:
        """Return a clock, if one is asked for."""
        if time is None:
            for name, value in (("every", every), ("between", between), ("date_format", date_format)):
                if value is not None:
                    raise DataError(
                        f"{option(name)} belongs to events with dates.",
                        option=name,
                        remedy=f"Name the column of dates: {option('time')}.",
                    )
            return None
        if isinstance(time, str):
            return cls(time, every, between, date_format)
        series = time.reset_index(drop=True) if isinstance(time, pd.Series) else pd.Series(time)
        return cls("time", every, between, date_format, series)

    # -- rows ----------------------------------------------------------------------------------------------

    def codes(self, column: pd.Series) -> np.ndarray:
        """Return the period of each row as a number (see `periods`); `UNTIMED`, or `OUTSIDE` of given periods."""
        self._settle_edges(column)
        if self.fixed is not None and not self.fixed.dated:
            codes = self._numbers(column, self.fixed)
        else:
            codes = self._dates(column)
        self.rows += len(codes)
        self.n_outside += int((codes == OUTSIDE).sum())
        if self.rows >= _JUDGED and not self._is_part:
            self._judge()
        self._found.update(np.unique(codes[codes > OUTSIDE]).tolist())
        self._check_span()
        return codes

    def _check_span(self) -> None:
        if len(self._found) > MOST_PERIODS:
            check_number(max(self._found) - min(self._found) + 1, self.every, *self._span())

    def settle_order(self, values: Sequence[str]) -> None:
        """Find out whether day or month comes first in dates that end in the year; they are all written alike."""
        if self.date_format is not None:
            return
        seen = ([self._shown] if self._shown else []) + list(values)
        order = first_of(seen)
        if self.order is None and order is not None:
            self.order = order
            self._shown = next(value for value in values if first_of([value]))

    def is_open(self, column: pd.Series) -> bool:
        """Tell whether dates wait for others that show whether day or month comes first."""
        if self.date_format is not None or self.order is not None or column.dtype.kind in "iufmM":
            return False
        there = column.dropna()
        return bool(len(there)) and is_year_last(str(there.iloc[0]).strip()) and undecided(texts_of(column).values)

    def _settle_edges(self, column: pd.Series) -> None:
        """Take edges that are years for dates, where the column has dates."""
        if self.rows or self.fixed is None or self.fixed.dated or _plain(column):
            return
        years = self.fixed.edges
        if not ((years == np.round(years)) & (years >= 1000) & (years < 3000)).all():
            raise DataError(
                f"The edges are plain numbers, and the column {self.name!r} has dates such as "
                f"{column.dropna().iloc[0]!s}.",
                option="every",
                found=[float(v) for v in years[:3]],
                remedy="Give edges as dates: 2020-01-01, 2020-07-01, ...",
            )
        self.fixed = Periods.between([f"{year:.0f}" for year in years])

    def _numbers(self, column: pd.Series, periods: Periods) -> np.ndarray:
        values = np.asarray(pd.to_numeric(column, errors="coerce"), float)
        none = ~np.isfinite(values)
        self.n_missing += int(column.isna().sum())
        bad = none & ~column.isna().to_numpy()
        self._note(bad, column.to_numpy())
        self.n_unreadable += int(bad.sum())
        if not none.all():
            self._extend(float(values[~none].min()), float(values[~none].max()))
        index = periods.index_of(values)
        return np.where(none, UNTIMED, np.where(index < 0, OUTSIDE, index))

    def _dates(self, column: pd.Series) -> np.ndarray:
        texts = texts_of(column)
        self._zones |= dict.fromkeys(texts.zones)
        self.settle_order(texts.values)
        days = parse(texts.values, self.date_format, every=self.every, order=self.order)
        unreadable = np.append(np.isnat(days.first), False)
        if not unreadable[:-1].all():
            readable = ~unreadable[:-1]
            self._extend(days.first[readable].min(), days.last[readable].max())
        code, coarse = self._codes_of(days if self.every == "day" else middle_of_weeks(days))
        code, coarse = np.append(code, UNTIMED), np.append(coarse, False)
        self.n_missing += int((texts.which < 0).sum())
        for what, which in (("n_unreadable", unreadable), ("n_coarse", coarse)):
            rows = which[texts.which]
            setattr(self, what, getattr(self, what) + int(rows.sum()))
            if rows.any():
                self._note(which[:-1], np.array(texts.values, dtype=object))
        return np.asarray(code[texts.which])

    def _codes_of(self, days: Days) -> tuple[np.ndarray, np.ndarray]:
        """Return the code of each of some values, and whether it is too vague for a period."""
        none = np.isnat(days.first)
        if self.fixed is not None:
            first, last = (self.fixed.index_of_days(d) for d in days)
            codes = np.where(first < 0, OUTSIDE, first)
        else:
            first, last = (ordinals(d, self.every) for d in days)
            codes = first
        coarse = ~none & (first != last)
        return np.where(none | coarse, UNTIMED, codes), coarse

    def _extend(self, first: Any, last: Any) -> None:
        if self._reach is not None:
            first, last = min(first, self._reach[0]), max(last, self._reach[1])
        self._reach = first, last

    def _note(self, which: np.ndarray, values: np.ndarray) -> None:
        for value in values[which][: _EXAMPLES - len(self._examples)]:
            if str(value) not in self._examples:
                self._examples.append(str(value))

    def _judge(self) -> None:
        """Refuse a column that is mostly no dates, or dates too vague."""
        if 2 * self.n_coarse > self.rows:
            raise DataError(
                f"The column {self.name!r} has values such as {listed(self._examples)}, which are longer than a "
                f"{noun_of(self.every)}.",
                option="every",
                found=self.n_coarse,
                remedy=f"Use longer periods: {option('every', 'year')}.",
            )
        if 2 * self.n_unreadable > self.rows:
            written = "Write dates as 2020-12-31, or say how they are written: "
            raise DataError(
                f"The column {self.name!r} has values such as {listed(self._examples)}, which are no dates "
                f"({self.n_unreadable:,} of {count(self.rows, 'row')}).",
                option="time",
                found=self.n_unreadable,
                remedy=f"{written}{option('date_format', '%d %b %Y')}. Of plain numbers give the edges of periods.",
            )

    # -- what was found ------------------------------------------------------------------------------------

    @property
    def n_untimed(self) -> int:
        """Rows without a date that can be used."""
        return self.n_missing + self.n_unreadable + self.n_coarse

    def _span(self) -> tuple[str, str]:
        if self.every == "edges":
            return str(min(self._found)), str(max(self._found))
        low, high = (Periods.of_ordinals(self.every, k, k).labels[0] for k in (min(self._found), max(self._found)))
        return low, high

    def periods(self, used: Sequence[int], n_off: int = 0) -> tuple[Periods, int]:
        """Return the periods from the first to the last that is used, and the code of the first one."""
        self._judge()
        if self.fixed is not None:
            self._check_inside(self.fixed)
            return self.fixed, 0
        if not len(used):
            vague = self.n_unreadable + self.n_coarse
            raise DataError(
                f"No event has both a place on the land and a date: {count(self.rows, 'row')} read, {self.n_missing:,} "
                f"without a date, {vague:,} whose date cannot be used, {n_off:,} off the land.",
                option="time",
                found=0,
                remedy=f"Check the column {self.name!r}, and the CRS of points and land.",
            )
        return Periods.of_ordinals(self.every, min(used), max(used)), min(used)

    def _check_inside(self, periods: Periods) -> None:
        """Refuse periods that none of the dates lies in."""
        if not (self._needs_some and self.n_outside and self._reach) or self._found:
            return
        edges = self.every == "edges"
        ends = periods.edges[[0, -1]].astype("datetime64[D]") if edges and periods.dated else periods.edges[[0, -1]]
        low, high = ends if edges else (periods.labels[0], periods.labels[-1])
        first, last = (f"{v:g}" if isinstance(v, float) else str(v) for v in self._reach)
        what, whose = ("edges", "every") if edges else ("dates", "between")
        raise DataError(
            f"0 of {count(self.rows - self.n_untimed, 'date')} lie between {low} and {high}; they go from {first} to "
            f"{last}.",
            option=whose,
            found=0,
            remedy=f"Give {option(whose)} with {what} among these, or check the column {self.name!r}.",
        )

    def notes(self) -> tuple[str, ...]:
        """Return what was assumed on the way."""
        zones = ", ".join(list(self._zones)[:3])
        zoned = f"times with a zone ({zones}) count for the date that the clock showed there"
        ordered = f"dates are read with the {self.order} first, as {self._shown!r} shows"
        return ((zoned,) if zones else ()) + ((ordered,) if self.order else ())

    def warning(self) -> DroppedPointsWarning | None:
        """Return what is to be said of rows that were left out for their dates."""
        if self.n_untimed:
            parts = [
                f"{self.n_missing:,} have none" if self.n_missing else "",
                f"{self.n_unreadable:,} cannot be read" if self.n_unreadable else "",
                f"{self.n_coarse:,} are too vague" if self.n_coarse else "",
            ]
            such = f", such as {listed(self._examples)}" if self._examples else ""
            return DroppedPointsWarning(
                f"{self.n_untimed:,} of {count(self.rows, 'row')} ({percent(self.n_untimed / self.rows, 1)}) are left "
                f"out for their dates: {' and '.join(part for part in parts if part)}{such}.",
                option="time",
                found=self.n_untimed,
                remedy=f"Check the column {self.name!r}.",
            )
        if 2 * self.n_outside > self.rows:
            assert self.fixed is not None
            return DroppedPointsWarning(
                f"{self.n_outside:,} of {count(self.rows, 'row')} lie outside the periods ({self.fixed.words()}).",
                option="between" if self.every != "edges" else "every",
                found=self.n_outside,
                remedy="Check the dates and the periods.",
            )
        return None


def _plain(column: pd.Series) -> bool:
    """Whether a column is of plain numbers."""
    if pd.api.types.is_numeric_dtype(column.dtype):
        return True
    if pd.api.types.is_datetime64_any_dtype(column.dtype):
        return False
    there = column.dropna()
    return bool(pd.to_numeric(there, errors="coerce").notna().all())


def _split(every: str) -> list[Any]:
    """Return edges that are written with commas between them."""
    words = [word.strip() for word in every.split(",") if word.strip()]
    try:
        return [float(word) for word in words]
    except ValueError:
        return words
