"""Dates: what a column of dates, years, months or weeks says, as first and last days.

A value stands for all the days that it may mean: "2020-03-01" for one, "2020-W05" for a week from Monday to Sunday
(ISO 8601), "2020-EW05" for one from Sunday to Saturday (MMWR), "2020-03", "2020 Q1" and "2020" for a month, a quarter,
a year. Of a time of day the date alone counts, as the clock showed it where it was written: a time zone is neither
needed nor converted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from geobgp.errors import DataError, option

NOT_A_DATE = np.datetime64("NaT", "D")
#: Kinds of weeks, and days from the start of one of them to 1970-01-01, a Thursday: ISO weeks begin on Monday, those of
#: the CDC (MMWR) on Sunday.
WEEKS = {"week": 3, "epiweek": 4}
#: Days from the start of a week to its middle, whose month and year it belongs to: Thursday, or Wednesday (MMWR).
_MIDDLE = 3
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
        zone = getattr(column.dt, "tz", None)
        if zone is not None:
            zones, column = (str(zone),), column.dt.tz_localize(None)
        days = column.to_numpy().astype("datetime64[D]")
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
                "others are left out and told of."
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


def _year_last(
    value: str, order: Literal["day", "month"] | None
) -> tuple[np.datetime64, np.datetime64] | None:
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
    if date_format is None or (isinstance(date_format, str) and "%" in date_format):
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
    return found.astype("M8[D]"), (found + months).astype("M8[D]") - 1


def _quarter(year: str, quarter: str) -> tuple[np.datetime64, np.datetime64]:
    return _month(year, str(3 * int(quarter) - 2), 3)


def _year(year: str) -> tuple[np.datetime64, np.datetime64]:
    return _month(year, "1", 12)


def _week(year: str, week: str, day: str | None = None) -> tuple[np.datetime64, np.datetime64]:
    start = week_start(int(year), int(week))
    if day is None:
        return start, start + 6
    return start + int(day) - 1, start + int(day) - 1


def _epiweek(year: str, week: str) -> tuple[np.datetime64, np.datetime64]:
    start = week_start(int(year), int(week), "epiweek")
    return start, start + 6


def week_start(year: int, week: int, every: str = "week") -> np.datetime64:
    """Return the Monday of an ISO week, or the Sunday of an "epiweek"."""
    fourth = np.datetime64(
        f"{year:04d}-01-04", "D"
    )  # always in week 1, which has four days in January or more
    start = fourth - (int(fourth.astype(np.int64)) + WEEKS[every]) % 7 + 7 * (week - 1)
    if week < 1 or int(str(start + _MIDDLE)[:4]) != year:
        raise ValueError(f"{year} has no week {week}")
    return np.datetime64(start, "D")


_Kind = Callable[..., tuple[np.datetime64, np.datetime64]]
_YEAR = r"([12]\d{3})"
_KINDS: list[tuple[re.Pattern[str], _Kind]] = [
    (re.compile(_YEAR + r"-(\d{1,2})-(\d{1,2})"), _day),
    (re.compile(_YEAR + r"[/.](\d{1,2})[/.](\d{1,2})"), _day),
    (re.compile(_YEAR + r"(\d{2})(\d{2})"), _day),
    (re.compile(_YEAR + r"[ -]?[Ww](\d{1,2})(?:-?([1-7]))?"), _week),
    (re.compile(_YEAR + r"[ -]?[Ee][Ww](\d{1,2})"), _epiweek),
    (re.compile(_YEAR + r"[ -]?[Qq]([1-4])"), _quarter),
    (re.compile(_YEAR + r"[-/](\d{1,2})"), _month),
    (re.compile(_YEAR), _year),
]
_SIX = re.compile(_YEAR + r"(\d{2})")
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
    found = pd.to_datetime(pd.Series(list(values), dtype=object), format=date_format, errors="coerce")
    first = found.to_numpy().astype("datetime64[D]")
    if re.search("%[dDjuxc]", date_format):
        return Days(first, first.copy())
    months = 1 if re.search("%[mbB]", date_format) else 12
    after = (first.astype("datetime64[M]") + months).astype("datetime64[D]")
    return Days(first, after - 1)
