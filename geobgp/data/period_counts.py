"""Counts by period: how many points fall on each node in each period, and what became of the rest."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from geobgp.data.clock import OUTSIDE, UNTIMED, Clock
from geobgp.data.counts import Counts, Tally, uneven
from geobgp.data.dates import texts_of
from geobgp.data.periods import Periods
from geobgp.errors import DroppedPointsWarning

if TYPE_CHECKING:
    from geobgp.data.points import Chunk
    from geobgp.land.domain import Domain


@dataclass(frozen=True, eq=False, repr=False)
class PeriodCounts(Counts):
    """Points, or their weights, summed on the nodes of a domain, period by period.

    As `Counts`, with ``n_read == n_used + n_dropped + n_untimed + n_outside``. A point without a usable date is counted
    as that alone, wherever it lies.

    Attributes
    ----------
    values : (n_periods, n_nodes) array
        Number of points in each period on each node, or the sum of their weights. Read-only.
    counted : (j, 4) array or None
        As that of `Counts`, and the number of the period, from 0.
    periods : Periods
        Those between the first and the last event have their row, with or without events.
    n_untimed : int
        Points whose date is missing, cannot be read, or is too vague to tell the period.
    n_outside : int
        Points outside the periods that were asked for.
    untimed_warning : DroppedPointsWarning or None
        What `bin_points` warned of dates.

    Examples
    --------
    >>> from shapely.geometry import box
    >>> from geobgp import Domain, bin_points
    >>> domain = Domain.from_polygons(box(0, 0, 4, 2), cell_size=1, crs="local")
    >>> dates = ["2020-01-31", "2020-03-01", "2020-03-09"]
    >>> counts = bin_points(np.array([[0.5, 0.5], [1.5, 0.5], [3.2, 1.1]]), domain, time=dates, every="month")
    >>> counts.periods.labels, counts.totals.tolist()
    (('2020-01', '2020-02', '2020-03'), [1.0, 0.0, 2.0])
    """

    periods: Periods = field(kw_only=True)
    n_untimed: int = field(default=0, kw_only=True)
    n_outside: int = field(default=0, kw_only=True)
    untimed_warning: DroppedPointsWarning | None = field(default=None, kw_only=True)

    @property
    def n_periods(self) -> int:
        """How many periods there are."""
        return self.periods.n

    @property
    def totals(self) -> np.ndarray:
        """Events of each period, (n_periods,)."""
        return np.asarray(self.values.sum(axis=1))

    @property
    def warnings(self) -> list[DroppedPointsWarning]:
        """All that `bin_points` warned of."""
        both = (self.warning, self.untimed_warning)
        return [warning for warning in both if warning is not None]

    def pooled(self) -> Counts:
        """Return the counts of all periods together."""
        names = {f.name for f in fields(Counts)}
        known = {name: getattr(self, name) for name in names}
        values = self.values.sum(axis=0)
        values.setflags(write=False)
        counted = None if self.counted is None else self.counted[:, :3]
        known |= {"values": values, "n_read": self.n_used + self.n_dropped, "counted": counted}
        return Counts(**known)

    def slice(self, start: int, stop: int) -> PeriodCounts:
        """Return the counts of the periods from one number up to another, without it."""
        values = self.values[start:stop]
        changed: dict[str, Any] = {"values": values, "total_weight": float(values.sum())}
        if self.counted is not None:
            mine = (self.counted[:, 3] >= start) & (self.counted[:, 3] < stop)
            changed["counted"] = self.counted[mine] - [0, 0, 0, start]
        return replace(self, periods=self.periods.slice(start, stop), **changed)

    def facts(self) -> dict[str, str]:
        """Return what became of the points, line by line: what each number is, and the number in words."""
        facts = super().facts()
        empty = int((self.totals == 0).sum())
        with_time = {
            "periods": self.periods.words() + (f", {empty:,} without events" if empty else ""),
            "dropped, without a usable date": f"{self.n_untimed:,}",
        }
        if self.n_outside:
            with_time["dropped, outside the periods"] = f"{self.n_outside:,}"
        notes = {"notes": facts.pop("notes")} if "notes" in facts else {}
        return facts | with_time | notes

    def __repr__(self) -> str:
        lost = f"{self.n_dropped:,} dropped, {self.n_untimed:,} undated, {self.n_outside:,} outside"
        return (
            f"PeriodCounts({self.n_used:,} of {self.n_read:,} points in {self.periods.words()}, on "
            f"{self.values.shape[1]:,} nodes; {lost}, {self.n_missing:,} missing)"
        )


class PeriodTally(Tally):
    """The running sums of `bin_points` by period: a row for each period that has events."""

    def __init__(
        self, domain: Domain, on_water: str, reach: float, weights: Any, keep: bool, clock: Clock
    ) -> None:
        super().__init__(domain, on_water, reach, weights, keep)
        self.clock = clock
        self.sums: dict[int, np.ndarray] = {}
        self.untimed = self.outside = 0
        self._now = np.empty(0, np.int64)
        self.when: list[np.ndarray] = []
        self.waiting: list[Chunk] = []
        if clock.given is not None and not pd.api.types.is_numeric_dtype(clock.given.dtype):
            clock.settle_order(texts_of(clock.given).values)

    def add(self, chunk: Chunk) -> None:
        """Add the points of a chunk that have a date; count the others.

        A chunk in which no date tells whether day or month comes first waits for one that does.
        """
        if self.clock.given is None:
            assert chunk.times is not None
            if self.waiting:
                self.clock.settle_order(texts_of(chunk.times).values)
            if self.clock.is_open(chunk.times) or (self.waiting and self.clock.order is None):
                self.waiting.append(chunk)
                return
            self._add_waiting()
        self._add(chunk)

    def result(self, notes: tuple[str, ...]) -> Counts:
        """Return what was counted."""
        self._add_waiting()
        return super().result(notes)

    def _add_waiting(self) -> None:
        waiting, self.waiting = self.waiting, []
        for chunk in waiting:
            self._add(chunk)

    def _add(self, chunk: Chunk) -> None:
        codes = self.clock.codes(self._times(chunk), self.rows)[chunk.rows]
        timed = codes > OUTSIDE
        self.untimed += int((codes == UNTIMED).sum())
        self.outside += int((codes == OUTSIDE).sum())
        lost = int((~timed).sum())
        self.read += lost
        self.out_of_time += lost
        self._now = codes[timed]
        super().add(replace(chunk, coords=chunk.coords[timed], rows=chunk.rows[timed]))

    def _times(self, chunk: Chunk) -> pd.Series:
        given = self.clock.given
        if given is None:
            assert chunk.times is not None
            return chunk.times
        if len(given) < self.rows + chunk.n_rows:
            raise uneven("time", len(given), f"at least {self.rows + chunk.n_rows:,}", "dates")
        return given.iloc[self.rows : self.rows + chunk.n_rows]

    def _sum(self, node: np.ndarray, weights: np.ndarray | None, used: np.ndarray) -> None:
        if self.kept is not None:
            self.when.append(self._now[used])
        found, which = np.unique(self._now[used], return_inverse=True)
        n = self.domain.n_nodes
        sums = np.bincount(which.ravel() * n + node, weights, minlength=len(found) * n).reshape(len(found), n)
        for code, row in zip(found.tolist(), sums, strict=True):
            self.sums[code] = self.sums[code] + row if code in self.sums else row.astype(float)

    def _values(self) -> np.ndarray:
        given = self.clock.given
        if given is not None and len(given) != self.rows:
            raise uneven("time", len(given), f"{self.rows:,}", "dates")
        self.periods, self.first = self.clock.periods(list(self.sums), self.dropped)
        values = np.zeros((self.periods.n, self.domain.n_nodes))
        for code, row in self.sums.items():
            values[code - self.first] = row
        return values

    def _counted(self) -> np.ndarray:
        when = np.concatenate([np.empty(0, np.int64), *self.when]) - self.first
        return np.column_stack([super()._counted(), when])

    def _counts(self, **known: Any) -> Counts:
        known["notes"] = (*known["notes"], *self.clock.notes())
        return PeriodCounts(
            **known,
            periods=self.periods,
            n_untimed=self.untimed,
            n_outside=self.outside,
            untimed_warning=self.clock.warning(),
        )
