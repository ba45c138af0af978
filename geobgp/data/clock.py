"""Clock: which period each row of a source is of, chunk by chunk, and what became of the undated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd

from geobgp.arguments import SPAN
from geobgp.data.dates import (
    Days,
    check_format,
    first_of,
    is_year_last,
    middle_of_weeks,
    parse,
    texts_of,
    undecided,
)
from geobgp.data.periods import MOST_PERIODS, Periods, check_every, check_number, noun_of, ordinals
from geobgp.errors import DataError, DroppedPointsWarning, option
from geobgp.text import count, listed, percent

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
        self._edges: Any = None
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
        self.rows = self.n_missing = self.n_unreadable = self.n_coarse = self.n_outside = 0
        self.order: Literal["day", "month"] | None = None
        self._shown = ""  # the date that shows it
        self._examples: list[str] = []
        self._zones: dict[str, None] = {}
        self._found: set[int] = set()

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

    def codes(self, column: pd.Series, first_row: int = 0) -> np.ndarray:
        """Return the period of each row as a number (see `periods`); `UNTIMED`, or `OUTSIDE` of given periods."""
        self._settle_edges(column)
        if self.fixed is not None and not self.fixed.dated:
            codes = self._numbers(column, self.fixed)
        else:
            codes = self._dates(column)
        self.rows += len(codes)
        self.n_outside += int((codes == OUTSIDE).sum())
        if self.rows >= _JUDGED:
            self._judge()
        self._found.update(np.unique(codes[codes > OUTSIDE]).tolist())
        if len(self._found) > MOST_PERIODS:
            check_number(max(self._found) - min(self._found) + 1, self.every, *self._span())
        return codes

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
        return (
            bool(len(there))
            and is_year_last(str(there.iloc[0]).strip())
            and undecided(texts_of(column).values)
        )

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
        index = periods.index_of(values)
        return np.where(none, UNTIMED, np.where(index < 0, OUTSIDE, index))

    def _dates(self, column: pd.Series) -> np.ndarray:
        texts = texts_of(column)
        self._zones |= dict.fromkeys(texts.zones)
        self.settle_order(texts.values)
        days = parse(texts.values, self.date_format, every=self.every, order=self.order)
        unreadable = np.append(np.isnat(days.first), False)
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
        low, high = (
            Periods.of_ordinals(self.every, k, k).labels[0] for k in (min(self._found), max(self._found))
        )
        return low, high

    def periods(self, used: Sequence[int], n_off: int = 0) -> tuple[Periods, int]:
        """Return the periods from the first to the last that is used, and the code of the first one."""
        self._judge()
        if self.fixed is not None:
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
