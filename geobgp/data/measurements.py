"""Measurements: what was observed at places, values or numbers of positives among those tested there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from geobgp.data.persons import place_rows
from geobgp.errors import DataError, InputWarning, option, warn
from geobgp.text import count, listed, number, percent
from geobgp.validation import LEAST, MOST_EVENTS, refuse_huge

if TYPE_CHECKING:
    from geobgp.data.counts import Counts
    from geobgp.data.periods import Periods
    from geobgp.land.domain import Domain

#: Fewer places than these are refused; from fewer than those little can be learned.
FEWEST_PLACES, FEW_PLACES = 5, 30
_PLACES = ("place", "places")
#: Fewer copies of rows than these are not told of, nor a lower share where no id tells the rows apart; and the share of
#: the rows without copies that are told apart, where these are no coincidence.
FEWEST_COPIES, MANY_COPIES, TOLD_APART = 3, 0.05, 0.9
#: Numbers that often stand for no value.
CODES = (-99999, -9999, -999, -99, 999, 9999, 99999)


@dataclass(frozen=True, eq=False)
class Measurements:
    """What was observed at places.

    Attributes
    ----------
    coords : (n, 2) array
        Easting and northing in the domain's CRS, on land.
    values : (n,) array
        Measured values, classes, counts or numbers of positives.
    tested : (n,) array, optional
        How many were tested, of numbers of positives.
    columns : (n, k) array, optional
        Fixed effects there, standardised; None: those of the nodes.
    counts : Counts, optional
        What became of the rows that they were read from.
    unused : dict
        Numbers of rows that were left out, by reason.
    periods : Periods, optional
        Those that they were observed in.
    period : (n,) int array, optional
        Which one each was observed in.
    """

    coords: np.ndarray = field(repr=False)
    values: np.ndarray = field(repr=False)
    tested: np.ndarray | None = field(default=None, repr=False)
    columns: np.ndarray | None = field(default=None, repr=False)
    counts: Counts | None = field(default=None, repr=False)
    unused: dict[str, int] = field(default_factory=dict)
    periods: Periods | None = None
    period: np.ndarray | None = field(default=None, repr=False)

    @property
    def pooled(self) -> Measurements:
        """The same, of all periods as one."""
        return replace(self, periods=None, period=None)

    def at(self, t: int) -> Measurements:
        """Return those of one period, by its number."""
        assert self.period is not None
        return self._among(self.period == t).pooled

    def until(self, n_periods: int) -> Measurements:
        """Return those of the first periods."""
        assert self.period is not None and self.periods is not None
        return replace(self._among(self.period < n_periods), periods=self.periods.slice(0, n_periods))

    def _among(self, which: np.ndarray) -> Measurements:
        rows = ("coords", "values", "tested", "columns", "period")
        some: dict[str, Any] = {name: getattr(self, name) for name in rows}
        some = {name: None if values is None else values[which] for name, values in some.items()}
        return replace(self, **some, counts=None, unused={})

    @property
    def size(self) -> np.ndarray:
        """How many were tested at each place; ones of values."""
        return np.ones(len(self.values)) if self.tested is None else self.tested

    @property
    def n_places(self) -> int:
        """The number of different places."""
        return len(np.unique(self.coords, axis=0))

    @property
    def facts(self) -> dict[str, float]:
        """Numbers of what was used and what was not, for summaries."""
        facts: dict[str, float] = {"used": len(self.values)}
        if self.n_places < len(self.values):
            facts["places"] = self.n_places
        if self.tested is not None:
            facts |= {"positive": float(self.values.sum()), "tested": float(self.tested.sum())}
        if self.counts is not None:
            facts |= {"dropped": self.counts.n_dropped, "snapped": self.counts.n_snapped}
            facts |= {"missing": self.counts.n_missing} if self.counts.n_missing else {}
        return facts | self.unused


def read_measurements(
    table: Any,
    domain: Domain,
    what: str,
    values: np.ndarray,
    tested: np.ndarray | None = None,
    unused: dict[str, int] | None = None,
    periods: Periods | None = None,
    period: np.ndarray | None = None,
    **how: Any,
) -> Measurements:
    """Return measurements with their places on land.

    Parameters
    ----------
    table : DataFrame, GeoDataFrame or array
        With a row for each value.
    domain : Domain
    what : str
        "samples" or "surveys", for messages.
    values, tested : (n,) arrays
        NaN in rows that are not used.
    unused : dict, optional
        Why rows are not used, and how many.
    periods : Periods, optional
    period : (n,) int array, optional
        Which one each value was observed in.
    **how
        How places are read and moved to land; as for `bin_points`.
    """
    counts, node, row, place = place_rows(table, domain, what, **how)
    moved = domain.node_at(place) < 0
    place[moved] = domain.node_points[node[moved]]
    used = np.isfinite(values[row])
    sizes = None if tested is None else tested[row][used]
    when = None if period is None else period[row][used]
    measurements = Measurements(
        place[used], values[row][used], sizes, None, counts, dict(unused or {}), periods=periods, period=when
    )
    n = measurements.n_places
    if n < FEWEST_PLACES:
        raise DataError(
            f"{option(what)}: there are {count(n, *_PLACES)} with a value on the land, and at least {FEWEST_PLACES} "
            "are needed.",
            option=what,
            found=n,
            remedy="Check the file, its columns and its CRS.",
        )
    if n < FEW_PLACES:
        warn(
            InputWarning(
                f"There are {count(n, *_PLACES)} with a value: from so few next to nothing is learned of how far "
                "places are alike. What the map shows between them is the prior's.",
                option=what,
                found=n,
            )
        )
    if measurements.tested is None and np.ptp(measurements.values) == 0:
        raise DataError(
            f"All {len(measurements.values):,} values are {number(float(measurements.values[0]))}: "
            "there is nothing to map.",
            option="value",
            found=float(measurements.values[0]),
        )
    return measurements


def column_of(table: Any, name: str, what: str, role: str) -> pd.Series:
    """Return a column of a table as numbers, NaN where there is none.

    Parameters
    ----------
    table : DataFrame or GeoDataFrame
    name : str
    what : str
        The option that the table is of.
    role : str
        The option that names the column.

    Examples
    --------
    >>> column_of(pd.DataFrame({"lead": ["1.5", None]}), "lead", "samples", "value").tolist()
    [1.5, nan]
    """
    columns = list(getattr(table, "columns", []))
    if name not in columns:
        there = f"; there are {listed(columns)}" if columns else ": it is no table"
        raise DataError(f"{option(what)} has no column {name!r}{there}.", option=role, found=name)
    given = table[name].reset_index(drop=True)
    if given.dtype.kind in "mM":
        raise DataError(f"The column {name!r} holds dates, not numbers.", option=role, found=name)
    texts = given.map(lambda v: v.strip() if isinstance(v, str) else v)
    missing = texts.isna() | texts.isin(("", "NA", "NaN", "nan", "n/a", "-", "."))
    numbers = pd.to_numeric(texts.where(~missing), errors="coerce")
    bad = texts[numbers.isna() & ~missing]
    if len(bad):
        first = str(bad.iloc[0])
        limit = first.startswith(("<", ">")) or "lod" in first.lower() or "bdl" in first.lower()
        remedy = "Leave these rows out, or write numbers."
        if limit:
            remedy = (
                "Values below a limit of detection need a number: half the limit is usual (the limit over √2 where few "
                "lie below it). Values that only lie above a limit are not known."
            )
        raise DataError(
            f"{count(len(bad), 'value')} of {len(given):,} in the column {name!r} {'is' if len(bad) == 1 else 'are'} "
            f"no number, such as {first!r}.",
            option=role,
            found=first,
            remedy=remedy,
        )
    out = numbers.astype(float)
    infinite = int(np.isinf(out).sum())
    if infinite:
        raise DataError(
            f"{count(infinite, 'value')} in the column {name!r} {'is' if infinite == 1 else 'are'} infinite.",
            option=role,
            found=name,
        )
    return out


def values_of(table: Any, name: str) -> tuple[np.ndarray, dict[str, int]]:
    """Return the values of samples, and why some are not used."""
    values = column_of(table, name, "samples", "value").to_numpy()
    lacking = int(np.isnan(values).sum())
    known = values[np.isfinite(values)]
    refuse_huge("value", known, f"The column {name!r}")
    if known.size and 0.0 < np.abs(known).max() < LEAST:
        raise DataError(
            f"All values are below {LEAST:g} (column {name!r}): too small to compute with.",
            option="value",
            found=float(np.abs(known).max()),
            remedy="Write them in a smaller unit.",
        )
    _warn_of_codes(known, name)
    return values, ({"without_value": lacking} if lacking else {})


def _warn_of_codes(values: np.ndarray, name: str) -> None:
    """Tell of numbers that usually stand for no value, which several rows have and which lie far from all others."""
    for code in CODES:
        at = values == code
        others = values[~at]
        if at.sum() < 2 or not others.size:
            continue
        gap = float(np.abs(others - code).min())
        if gap > np.ptp(others) or (code < 0 and (others >= 0).all()):
            warn(
                InputWarning(
                    f"{int(at.sum()):,} values are exactly {code} (column {name!r}), and the others go from "
                    f"{number(float(others.min()))} to {number(float(others.max()))}: a code for missing?",
                    option="value",
                    found=int(at.sum()),
                    remedy="If so, leave these cells empty.",
                )
            )


def positives_of(table: Any, positive: str, tested: str) -> tuple[np.ndarray, np.ndarray, dict[str, int]]:
    """Return positives and tested of surveys, NaN where one is missing or nobody was tested, and how many these are.

    Examples
    --------
    >>> table = pd.DataFrame({"pos": [1, 0, 2], "n": [5, 0, 9]})
    >>> [a.tolist() for a in positives_of(table, "pos", "n")[:2]]
    [[1.0, nan, 2.0], [5.0, nan, 9.0]]
    """
    y = column_of(table, positive, "surveys", "positive").to_numpy()
    n = column_of(table, tested, "surveys", "tested").to_numpy()
    known = np.isfinite(y) & np.isfinite(n)
    refuse_huge("tested", n[known], f"The column {tested!r}", MOST_EVENTS)
    checks: Sequence[tuple[str, np.ndarray, str, str]] = (
        ("positive", known & (y < 0), "{} fewer than no positives", "Give numbers of people."),
        ("tested", known & (n < 0), "{} fewer than nobody tested", "Give numbers of people."),
        (
            "positive",
            known & (y != np.round(y)),
            "{} a number of positives that is not whole",
            "Give numbers of people, not shares or percentages.",
        ),
        (
            "tested",
            known & (n != np.round(n)),
            "{} a number of those tested that is not whole",
            "Give numbers of people; of weighted surveys the effective sample size, rounded.",
        ),
        ("positive", known & (y > n), "{} more positives than were tested", "Are the columns the right way round?"),
    )
    for name, wrong, words, remedy in checks:
        if wrong.any():
            first = int(np.flatnonzero(wrong)[0])
            have = words.format("has" if wrong.sum() == 1 else "have")
            raise DataError(
                f"{count(int(wrong.sum()), 'survey')} of {len(y):,} {have}, the first in row {first + 1}: "
                f"{number(y[first])} of {number(n[first])}.",
                option=name,
                found=int(wrong.sum()),
                remedy=remedy,
            )
    empty = known & (n == 0)
    unused = {"without_value": int((~known).sum()), "nobody_tested": int(empty.sum())}
    used = known & ~empty
    total, positives = float(n[used].sum()), float(y[used].sum())
    if used.any() and positives in (0.0, total):
        who = "Nobody" if positives == 0 else "Everybody"
        raise DataError(
            f"{who} of {number(total)} tested is positive: there is nothing to map.", option="positive", found=positives
        )
    return (np.where(used, y, np.nan), np.where(used, n, np.nan), {name: k for name, k in unused.items() if k})


def about_unused(unused: dict[str, int]) -> InputWarning | None:
    """Return what to say of rows without a value, or where nobody was tested."""
    said = []
    if n := unused.get("without_value"):
        said.append(f"{count(n, 'row')} without a value")
    if n := unused.get("nobody_tested"):
        said.append(f"{count(n, 'survey')} of nobody")
    return InputWarning(f"Left out: {' and '.join(said)}.", found=sum(unused.values())) if said else None


def about_copies(
    table: pd.DataFrame, observed: Sequence[str], what: str, *, persons: bool = False
) -> InputWarning | None:
    """Return what to say of rows that are exact copies of others; None where they may be so by chance.

    They are copies where an id, or place, date and all else that was not observed, tells (nearly) all other rows apart.

    Parameters
    ----------
    table : DataFrame or GeoDataFrame
    observed : sequence of str
        The columns with what was observed.
    what : str
        The option that the table is of.
    persons : bool
        Whether each row is a person: several at a place are alike, unless an id tells them apart.

    Examples
    --------
    >>> table = pd.DataFrame({"x": [1.5, 2.5, 3.5, 4.5], "lead": [7, 7, 8, 9]})
    >>> about_copies(table, ["lead"], "samples") is None
    True
    >>> str(about_copies(pd.concat([table, table]), ["lead"], "samples")).split(":")[0]
    '4 of 8 rows (50 %) are exact copies of others'
    """
    rows = pd.DataFrame(table)
    rows = rows.assign(**{str(k): v.to_wkb() for k, v in rows.items() if hasattr(v, "to_wkb")})
    try:
        again = rows.duplicated().to_numpy()
    except TypeError:  # lists and the like
        rows = rows.astype(str)
        again = rows.duplicated().to_numpy()
    n, share = int(again.sum()), float(again.mean()) if len(again) else 0.0
    if n < FEWEST_COPIES:
        return None
    once = rows[~again].drop(columns=list(observed))
    marked = any(
        v.dtype.kind in "iuO" and v.nunique() >= TOLD_APART * len(v) for k, v in once.items() if k != "geometry"
    )
    if not marked and (persons or share < MANY_COPIES or once.duplicated().mean() > 1.0 - TOLD_APART):
        return None
    return InputWarning(
        f"{n:,} of {len(rows):,} rows ({percent(share)}) are exact copies of others: each is taken for an observation "
        "of its own, which makes intervals too narrow.",
        option=what,
        found=n,
        remedy="If they are the same observations, leave them out: table.drop_duplicates().",
    )
