"""Counts by area and period: districts by week, counties by year."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import geopandas as gpd
import numpy as np
import pandas as pd

from geobgp.data.areas import AreaCounts, place_areas
from geobgp.data.clock import OUTSIDE, UNTIMED, Clock
from geobgp.data.exposure import Within, repeated
from geobgp.data.periods import Periods
from geobgp.errors import DataError, InputWarning, option, warn
from geobgp.text import count as counted

if TYPE_CHECKING:
    from geobgp.land.domain import Domain


@dataclass(frozen=True, eq=False, repr=False)
class PeriodAreaCounts(AreaCounts):
    """Numbers of events in areas, period by period.

    As `AreaCounts`, with a row for each period.

    Attributes
    ----------
    values : (n_periods, n_areas) array
        NaN where a count is suppressed or unknown. Read-only.
    periods : Periods
    unknown : (n_periods, n_areas) bool array
        Where nothing was counted.
    n_untimed, n_outside : int
        Rows without a usable date, and rows outside the periods that were asked for.

    Examples
    --------
    >>> from shapely.geometry import box
    >>> from geobgp import Domain, bin_areas
    >>> domain = Domain.from_polygons(box(0, 0, 4, 2), cell_size=1, crs="local")
    >>> west, east = box(0, 0, 2, 2), box(2, 0, 4, 2)
    >>> table = {"cases": [7, 1, 4], "week": ["2020-W05", "2020-W05", "2020-W06"]}
    >>> districts = gpd.GeoDataFrame(table, geometry=[west, east, west])
    >>> counts = bin_areas(districts, domain, "cases", time="week", every="week", absent="zero")
    >>> counts.values.tolist()
    [[7.0, 1.0], [4.0, 0.0]]
    """

    periods: Periods = field(kw_only=True)
    unknown: np.ndarray = field(kw_only=True)
    n_untimed: int = field(default=0, kw_only=True)
    n_outside: int = field(default=0, kw_only=True)

    @property
    def n_periods(self) -> int:
        """How many periods there are."""
        return self.periods.n

    @property
    def n_areas(self) -> int:
        """How many areas there are."""
        return int(self.values.shape[1])

    @property
    def hidden(self) -> np.ndarray:
        """Which counts are suppressed, (n_periods, n_areas)."""
        return np.isnan(self.values) & ~self.unknown

    @property
    def guessed(self) -> np.ndarray:
        """The counts, with a number in the middle where they are suppressed and 0 where they are unknown."""
        return np.where(self.unknown, 0.0, super().guessed)

    @property
    def totals(self) -> np.ndarray:
        """Events of each period, (n_periods,), about, where some counts are suppressed."""
        return np.asarray(self.guessed.sum(axis=1))

    def at(self, period: int) -> AreaCounts:
        """Return the counts of one period; areas of which nothing is known are not among them."""
        kept = np.flatnonzero(~self.unknown[period])
        located = None if self.located is None else self.located[period]
        return self._plain(kept, self.values[period, kept], located, self.within.rows(kept, period))

    def pooled(self) -> AreaCounts:
        """Return the counts of all periods together, about, where some are suppressed."""
        located = None if self.located is None else self.located.sum(axis=0)
        every, values = np.arange(self.n_areas), np.round(self.guessed.sum(axis=0))
        return replace(self._plain(every, values, located, Within(self.shares)), _cut=self._cut)

    def frame(self) -> gpd.GeoDataFrame:
        """Return a row for each ``period`` and area, with its ``name`` and the number ``observed``."""
        rows = np.tile(np.arange(self.n_areas), self.n_periods)
        columns = {
            "period": np.repeat(np.array(self.periods.labels, dtype=object), self.n_areas),
            "name": np.array(self.names, dtype=object)[rows],
            "observed": self.values.ravel(),
        }
        return gpd.GeoDataFrame(columns, geometry=list(self.geometry[rows]), crs=self.crs)

    def slice(self, start: int, stop: int) -> PeriodAreaCounts:
        """Return the counts of the periods from one number up to another, without it."""
        return replace(
            self,
            values=self.values[start:stop],
            unknown=self.unknown[start:stop],
            located=None if self.located is None else self.located[start:stop],
            exposed=self.exposed[start:stop]
            if self.exposed is not None and self.within.varies
            else self.exposed,
            _met=(),
            periods=self.periods.slice(start, stop),
        )

    def _plain(
        self, kept: np.ndarray, values: np.ndarray, located: np.ndarray | None, within: Within
    ) -> AreaCounts:
        return AreaCounts(
            values=values,
            shares=within.shares,
            exposed=within.exposed,
            effort=within.effort,
            names=tuple(self.names[i] for i in kept),
            suppressed=self.suppressed,
            geometry=self.geometry[kept],
            crs=self.crs,
            covered=self.covered,
            n_off=self.n_off,
            located=located,
            nodes=self.nodes,
        )

    def facts(self) -> dict[str, str]:
        """Return what was counted, line by line: what each number is, and the number in words."""
        facts = super().facts() | {"areas": f"{self.n_areas:,}", "periods": self.periods.words()}
        if self.unknown.any():
            facts["counts that are unknown"] = f"{int(self.unknown.sum()):,}"
        if self.n_untimed:
            facts["rows without a usable date"] = f"{self.n_untimed:,}"
        if self.n_outside:
            facts["rows outside the periods"] = f"{self.n_outside:,}"
        return facts

    def __repr__(self) -> str:
        hidden = f", {int(self.hidden.sum()):,} suppressed" if self.hidden.any() else ""
        where = f"{counted(self.n_areas, 'area')} and {self.periods.words()}"
        return f"PeriodAreaCounts({self.n_used:,} events in {where}{hidden})"


def bin_period_areas(
    frame: gpd.GeoDataFrame,
    domain: Domain,
    values: np.ndarray,
    names: Sequence[str],
    interval: tuple[int, int] | None,
    clock: Clock,
    absent: Literal["zero", "unknown"] | None,
) -> PeriodAreaCounts:
    """Return counts by area and period of a long table; see `geobgp.data.areas.bin_areas`."""
    if absent not in (None, "zero", "unknown"):
        raise DataError(
            f"{option('absent')} is 'zero' or 'unknown'; found {absent!r}.", option="absent", found=absent
        )
    if clock.given is None and clock.name not in frame.columns:
        raise DataError(
            f"The areas have no column {clock.name!r}.",
            option="time",
            found=clock.name,
            remedy=f"Name the column of dates: {option('time')}.",
        )
    codes = clock.codes(frame[clock.name] if clock.given is None else clock.given)
    used = np.flatnonzero(codes > OUTSIDE)
    periods, first = clock.periods(np.unique(codes[used]).tolist())
    warning = clock.warning()
    if warning is not None:
        warn(warning)
    _warn_of_repeats(frame.iloc[used], values[used])
    area, kinds = pd.factorize(pd.Series(frame.geometry.to_wkb().to_numpy()[used]))
    one = used[np.unique(area, return_index=True)[1]]  # a row of each area
    period, rows = codes[used] - first, values[used]
    shape = periods.n, len(kinds)
    times = np.zeros(shape, np.int64)
    np.add.at(times, (period, area), 1)
    table = np.zeros(shape)
    np.add.at(table, (period, area), rows)  # NaN where any part is suppressed
    if (np.isnan(table) & (times > 1)).any():
        raise DataError(
            f"{int((np.isnan(table) & (times > 1)).sum()):,} sums of several rows of an area and a period hold a "
            "suppressed count: between which numbers these lie is not known.",
            option="every",
            found=int((times > 1).sum()),
            remedy="Use the periods of the table itself, or add its rows up beforehand.",
        )
    unknown = times == 0
    if unknown.any() and absent is None:
        raise DataError(
            f"{int(unknown.sum()):,} of {table.size:,} pairs of an area and a period have no row: no events, or not "
            "known?",
            option="absent",
            found=int(unknown.sum()),
            remedy=f"Say which: {option('absent', 'zero')} or {option('absent', 'unknown')}.",
        )
    if absent == "unknown":
        table[unknown] = np.nan
    else:
        unknown = np.zeros(shape, bool)
    some = np.where(np.isnan(table), 0.0 if interval is None else float(interval[0]), table)
    some = np.where(unknown, 0.0, some)
    placed, kept = place_areas(
        frame.iloc[one].reset_index(drop=True), domain, some.sum(axis=0), [names[i] for i in one], interval
    )
    table, unknown = table[:, kept], unknown[:, kept]
    table.setflags(write=False)
    known = {
        name: getattr(placed, name)
        for name in ("shares", "names", "suppressed", "geometry", "crs", "nodes", "_cut")
    }
    return PeriodAreaCounts(
        values=table,
        **known,
        covered=placed.covered,
        n_off=placed.n_off,
        periods=periods,
        unknown=unknown,
        n_untimed=int((codes == UNTIMED).sum()),
        n_outside=int((codes == OUTSIDE).sum()),
    )


def _warn_of_repeats(frame: gpd.GeoDataFrame, values: np.ndarray) -> None:
    """Warn of rows that are there twice with the same number, which is added up; single events may well be."""
    twice = repeated(frame, "") & (np.nan_to_num(values) > 1)
    if twice.any():
        warn(
            InputWarning(
                f"{counted(int(twice.sum()), 'row')} of {len(frame):,} of the areas "
                f"{'is' if twice.sum() == 1 else 'are'} there already, with the same area, date and "
                "number. Their numbers are added up.",
                option="areas",
                found=int(twice.sum()),
                remedy="Leave them out, if they are the same events.",
            )
        )
