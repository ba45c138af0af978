"""Counts by area, in space or over periods, alone or together with points; suppressed counts."""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import geopandas as gpd
import numpy as np
import pandas as pd
import pyproj
import shapely
from scipy import sparse
from scipy.spatial import cKDTree
from scipy.special import gammaln, logsumexp, xlogy

from geobgp.data.counts import events_digest, without_periods
from geobgp.data.inputs import Given, Within, repeated, within
from geobgp.data.periods import OUTSIDE, UNTIMED, Clock, Periods
from geobgp.errors import DataError, GeometryError, InputWarning, option, warn
from geobgp.land.regions import Overlay, Shared, overlay, read_regions, shared_land
from geobgp.text import count as counted
from geobgp.text import html_table, listed, number, percent
from geobgp.validation import DOMAIN, MOST_EVENTS, NAME, SOURCE, SUPPRESSED, choice, refuse_huge, validated

if TYPE_CHECKING:
    from geobgp.data.counts import Counts
    from geobgp.land.domain import Domain


# -- Counts by area: how many events each of some polygons holds, and which nodes' land they are of ----------


#: Share of the land that may lie in several areas without a warning.
QUIET_OVERLAP = 0.01
#: Share of an area that borders drawn by others may cut off.
SLIVER = 0.01
#: Why events are in no area.
NO_LAND = "their area has no land"
#: Names that a message lists.
_MOST_NAMES = 5


@dataclass(frozen=True, eq=False)
class Levels:
    """How precisely events are located, where their places are areas: areas of several levels overlap.

    Attributes
    ----------
    names : tuple of str
        What the levels are called.
    of : (n_areas,) int array
        The level of each area.
    inside : (n_areas, n_coarsest + 1) csr_array
        The share of each area that lies in each area of the coarsest level, in their order, and in none of them.
    widths : (n_areas,) array
        The root of each area's land, in km (units of a local plane).
    drawn : bool
        Whether areas were drawn around the places of events, which they give away.
    """

    names: tuple[str, ...]
    of: np.ndarray = field(repr=False)
    inside: sparse.csr_array = field(repr=False)
    widths: np.ndarray = field(repr=False)
    drawn: bool = False

    @property
    def coarsest(self) -> np.ndarray:
        """The areas of the coarsest level, the one with the fewest of them."""
        return np.flatnonzero(self.of == coarsest_of(self.of))

    def rows(self, which: np.ndarray) -> Levels:
        """Return the levels of some of the areas, among which all of the coarsest are."""
        return replace(self, of=self.of[which], inside=self.inside[which], widths=self.widths[which])

    def width(self, values: np.ndarray) -> float:
        """Return how wide the areas are in which half of the events lie, those of the narrowest first."""
        order = np.argsort(self.widths)
        events = np.cumsum(values[order])
        return float(self.widths[order][np.searchsorted(events, 0.5 * events[-1])])


def coarsest_of(levels: np.ndarray) -> int:
    """Return the level with the fewest areas, the last of several."""
    numbers, areas = np.unique(levels, return_counts=True)
    return int(numbers[::-1][np.argmin(areas[::-1])])


@dataclass(frozen=True, eq=False)
class AreaCounts:
    """Numbers of events in areas, period by period where they have dates.

    Attributes
    ----------
    values : (n_areas,) or (n_periods, n_areas) array
        The count of each area; NaN where it is suppressed or unknown. Read-only.
    shares : (n_areas, n_nodes) csr_array
        The share of every node's land that lies in each area.
    names : tuple of str
        What the areas are called: a column of names, or their row.
    suppressed : (int, int) or None
        Between which numbers suppressed counts lie.
    geometry : array of shapely geometries
        In `crs`.
    crs : pyproj.CRS or None
    covered : float
        Share of the land that lies in an area.
    n_off : int
        Areas without events and without land, which were left out.
    located : (n_nodes,) or (n_periods, n_nodes) array, or None
        Other events, whose place is known, that were fitted together with these.
    nodes : str
        Whose nodes they are: `Domain.nodes_hash`; empty where that is not known.
    exposed : (k,) or (n_periods, k) array, or None
        The share of every node's exposure that lies in each area, in the order of ``shares.data``, once areas have met
        an exposure; None where it is as the land's.
    effort : (k,) or (n_periods, k) array, or None
        The effort on the land of every node in each area, in that order; None where it is the node's.
    periods : Periods or None
    unknown : (n_periods, n_areas) bool array or None
        Where nothing was counted, if there are periods.
    n_untimed, n_outside : int
        Rows without a usable date, and rows outside the periods that were asked for.
    levels : Levels, optional
        Of events whose places are areas (`bin_places`): how precise these are.
    lost : dict of str to int
        Events that are in no area, by the reason.

    Examples
    --------
    >>> from shapely.geometry import box
    >>> from geobgp import Domain, bin_areas
    >>> domain = Domain.from_polygons(box(0, 0, 4, 2), cell_size=1, crs="local")
    >>> west, east = box(0, 0, 2, 2), box(2, 0, 4, 2)
    >>> table = {"cases": [7, 1, 4], "week": ["2020-W05", "2020-W05", "2020-W06"]}
    >>> districts = gpd.GeoDataFrame(table, geometry=[west, east, west])
    >>> counts = bin_areas(districts, domain, "cases", time="week", every="week", absent="zero")
    >>> counts.values.tolist(), counts.at("2020-W05").values.tolist()
    ([[7.0, 1.0], [4.0, 0.0]], [7.0, 1.0])
    """

    values: np.ndarray
    shares: sparse.csr_array = field(repr=False)
    names: tuple[str, ...] = field(repr=False)
    suppressed: tuple[int, int] | None
    geometry: np.ndarray = field(repr=False)
    crs: pyproj.CRS | None
    covered: float
    n_off: int = 0
    located: np.ndarray | None = field(default=None, repr=False)
    nodes: str = field(default="", repr=False)
    exposed: np.ndarray | None = field(default=None, repr=False)
    effort: np.ndarray | None = field(default=None, repr=False)
    periods: Periods | None = None
    unknown: np.ndarray | None = field(default=None, repr=False)
    n_untimed: int = 0
    n_outside: int = 0
    levels: Levels | None = None
    lost: dict[str, int] = field(default_factory=dict, repr=False)
    _cut: Overlay | None = field(default=None, repr=False)
    _met: tuple[Any, ...] = field(default=(), repr=False)

    @property
    def shapes(self) -> gpd.GeoDataFrame:
        """The areas, a row for each."""
        return gpd.GeoDataFrame(geometry=list(self.geometry), crs=self.crs)

    @property
    def within(self) -> Within:
        """What of every node's land, exposure and effort lies in each area."""
        return Within(self.shares, self.exposed, self.effort)

    def _exposing(
        self, domain: Domain, given: Given | None, effort: np.ndarray | None, given_effort: Given | None
    ) -> Any:
        """Return the areas with the part of every node's exposure and effort that is theirs.

        Parameters
        ----------
        domain : Domain
        given, given_effort : Given, optional
            What exposure and effort were read from.
        effort : (n_nodes,) or (n_periods, n_nodes) array, optional
        """
        met = (given, given_effort)
        if len(self._met) == 2 and all(a is b for a, b in zip(self._met, met, strict=True)):
            return self
        cut = self._cut
        if cut is None and not (given is None and given_effort is None):
            cut = overlay(domain, self.shapes)
        inside = Within(self.shares) if cut is None else within(domain, cut, given, effort, given_effort)
        return replace(self, shares=inside.shares, exposed=inside.exposed, effort=inside.effort, _cut=cut, _met=met)

    @property
    def n_areas(self) -> int:
        """How many areas there are."""
        return len(self.names)

    @property
    def n_periods(self) -> int:
        """How many periods there are: 1 where counts have no dates."""
        return 1 if self.periods is None else self.periods.n

    @property
    def hidden(self) -> np.ndarray:
        """Which counts are suppressed."""
        return np.isnan(self.values) & self.known

    @property
    def known(self) -> np.ndarray:
        """Of which counts something is known: a number, or that they are suppressed."""
        return np.ones(self.values.shape, bool) if self.unknown is None else ~self.unknown

    @property
    def guessed(self) -> np.ndarray:
        """The counts, with a number in the middle where they are suppressed and 0 where they are unknown."""
        low, high = self.suppressed or (0, 0)
        middle = np.where(self.hidden, _middle((low, high)), self.values)
        return np.where(self.known, middle, 0.0)

    @property
    def totals(self) -> np.ndarray:
        """Events of each period, (n_periods,), about, where some counts are suppressed."""
        return np.asarray(np.atleast_2d(self.guessed).sum(axis=1))

    @property
    def digest(self) -> str:
        """Hash of the events that were counted: which areas, periods, and numbers in them."""
        shapes, located = shapely.to_wkb(shapely.GeometryCollection(list(self.geometry))), self.located
        interval = self.suppressed if self.hidden.any() else ()
        arrays = (self.values, np.array(interval), np.empty(0) if located is None else located)
        return events_digest("" if located is None else self.nodes, self.periods, shapes, *arrays)

    def at(self, period: Any) -> AreaCounts:
        """Return the counts of one period, by number, label or date; areas of which nothing is known are not in it."""
        if self.periods is None:
            raise without_periods(period)
        t = self.periods.find(period)
        kept = np.flatnonzero(self.known[t])
        within = self.within.rows(kept, t)
        return replace(
            self._without_time(self.values[t, kept], None if self.located is None else self.located[t]),
            shares=within.shares,
            exposed=within.exposed,
            effort=within.effort,
            names=tuple(self.names[i] for i in kept),
            geometry=self.geometry[kept],
            levels=None if self.levels is None else self.levels.rows(kept),
            _cut=None,
        )

    def pooled(self) -> AreaCounts:
        """Return the counts of all periods together, about, where some are suppressed."""
        if self.periods is None:
            return self
        located = None if self.located is None else self.located.sum(axis=0)
        pooled = self._without_time(np.round(self.guessed.sum(axis=0)), located)
        return replace(pooled, exposed=None, effort=None)

    def _columns(self, which: np.ndarray) -> dict[str, Any]:
        """Return what of some areas differs."""
        return {"values": self.values[..., which], "geometry": self.geometry[which]}

    def _without_time(self, values: np.ndarray, located: np.ndarray | None) -> AreaCounts:
        time = {"periods": None, "unknown": None, "n_untimed": 0, "n_outside": 0}
        return replace(self, values=values, located=located, _met=(), **time)  # type: ignore[arg-type]

    def slice(self, start: int, stop: int) -> AreaCounts:
        """Return the counts of the periods from one number up to another, without it."""
        assert self.periods is not None

        def some(array: np.ndarray | None) -> np.ndarray | None:
            return None if array is None else array[start:stop]

        def changing(array: np.ndarray | None) -> np.ndarray | None:
            return array if array is None or array.ndim == 1 else array[start:stop]

        return replace(
            self,
            values=self.values[start:stop],
            unknown=some(self.unknown),
            located=some(self.located),
            exposed=changing(self.exposed),
            effort=changing(self.effort),
            periods=self.periods.slice(start, stop),
            _met=(),
        )

    @property
    def n_used(self) -> int:
        """Events whose number is told."""
        return round(float(np.nansum(self.values)))

    @property
    def total_weight(self) -> float:
        """All events, about, where some counts are suppressed."""
        return float(self.guessed.sum()) + (0.0 if self.located is None else float(self.located.sum()))

    @property
    def coordinates(self) -> None:
        """Nothing: no event has a place."""
        return None

    def frame(self) -> gpd.GeoDataFrame:
        """Return the areas, by ``period`` where there are some, with their ``name`` and the number ``observed``."""
        columns: dict[str, Any] = {"name": list(self.names) * self.n_periods, "observed": self.values.ravel()}
        if self.periods is not None:
            columns = {"period": np.repeat(np.array(self.periods.labels, object), self.n_areas)} | columns
        return gpd.GeoDataFrame(columns, geometry=list(self.geometry) * self.n_periods, crs=self.crs)

    def facts(self) -> dict[str, str]:
        """Return what was counted, line by line: what each number is, and the number in words."""
        facts = {
            "areas": f"{self.n_areas:,}",
            "events in them": f"{self.n_used:,}",
            "land in an area": percent(self.covered),
        }
        known = self.values[np.isfinite(self.values)]
        if (known != np.round(known)).any():
            split = int((known != np.round(known)).sum())
            facts["events in them"] = number(float(known.sum()))
            facts["counts with a fraction"] = f"{split:,} (taken as they are: events shared out among areas)"
        if self.hidden.any():
            low, high = self.suppressed or (0, 0)
            facts["suppressed counts"] = f"{int(self.hidden.sum()):,} (of {low} to {high} events each)"
        if self.located is not None:
            facts["events with a place besides"] = f"{round(float(self.located.sum())):,}"
        if self.levels is not None and self.totals.sum() > 0:
            facts["resolution"] = self.resolution
        facts |= {f"events left out: {why}": f"{n:,}" for why, n in self.lost.items()}
        if self.n_off:
            facts["areas without land and events"] = f"{self.n_off:,}"
        if self.periods is not None:
            facts["periods"] = self.periods.words()
        if not self.known.all():
            facts["counts that are unknown"] = f"{int((~self.known).sum()):,}"
        if self.n_untimed:
            facts["rows without a usable date"] = f"{self.n_untimed:,}"
        if self.n_outside:
            facts["rows outside the periods"] = f"{self.n_outside:,}"
        return facts

    @property
    def regions(self) -> gpd.GeoDataFrame | None:
        """The areas as regions of a table: those of the coarsest level; none where they give places away."""
        if self.levels is not None and self.levels.drawn:
            return None
        rows = np.arange(self.n_areas) if self.levels is None else self.levels.coarsest
        columns: dict[str, Any] = {"name": [self.names[k] for k in rows]}
        if self.periods is None and len(rows) == self.n_areas:
            columns["observed"] = self.values
        return gpd.GeoDataFrame(columns, geometry=list(self.geometry[rows]), crs=self.crs)

    @property
    def resolution(self) -> str:
        """How precisely events are located whose places are areas, in words."""
        assert self.levels is not None
        events = np.atleast_2d(self.guessed).sum(axis=0)
        width = number(self.levels.width(events), 2)
        return f"half of the events are in areas up to {width} {'units' if self.crs is None else 'km'} across"

    def report(self) -> str:
        """Return what was counted, in a few lines."""
        return "\n".join(f"{key}: {value}" for key, value in self.facts().items())

    def __repr__(self) -> str:
        hidden = f", {int(self.hidden.sum()):,} suppressed" if self.hidden.any() else ""
        time = "" if self.periods is None else f" and {self.periods.words()}"
        return f"AreaCounts({self.n_used:,} events in {counted(self.n_areas, 'area')}{time}{hidden})"

    def _repr_html_(self) -> str:
        return html_table(self.facts().items())


def observed_in(areas: AreaCounts, regions: gpd.GeoDataFrame) -> np.ndarray:
    """Return the events counted in regions, (..., n_regions); NaN for regions that cut an area in two.

    Examples
    --------
    >>> from shapely.geometry import box
    >>> from geobgp import Domain, bin_areas
    >>> domain = Domain.from_polygons(box(0, 0, 4, 2), cell_size=1, crs="local")
    >>> halves = gpd.GeoDataFrame({"cases": [7, 2]}, geometry=[box(0, 0, 2, 2), box(2, 0, 4, 2)])
    >>> counts = bin_areas(halves, domain, "cases")
    >>> shapes = [box(0, 0, 4, 2), box(2, 0, 4, 2), box(0, 0, 3, 2)]
    >>> observed_in(counts, gpd.GeoDataFrame(geometry=shapes)).tolist()
    [9.0, 2.0, nan]
    """
    if areas.levels is not None and len(areas.levels.names) > 1:  # every event is of one level
        of = areas.levels.of
        each = [replace(areas, levels=None, **areas._columns(np.flatnonzero(of == k))) for k in np.unique(of)]
        return np.asarray(sum(observed_in(one, regions) for one in each))
    shapes = regions.geometry if areas.crs is None else regions.geometry.to_crs(areas.crs)
    places = shapely.make_valid(np.asarray(shapes.to_numpy(), dtype=object))
    own = shapely.make_valid(np.asarray(areas.geometry, dtype=object))
    region, area = shapely.STRtree(own).query(places, predicate="intersects")
    size = shapely.area(own)
    within = shapely.area(shapely.intersection(places[region], own[area])) / np.maximum(size[area], 1e-300)
    whole = np.zeros(len(places), bool)
    whole[region[within > SLIVER]] = True
    whole[region[(within > SLIVER) & (within < 1.0 - SLIVER)]] = False
    inside = within >= 1.0 - SLIVER
    members = sparse.csr_array(
        (np.ones(int(inside.sum())), (region[inside], area[inside])), shape=(len(places), len(own))
    )
    # NaN where a count is hidden or unknown, and nowhere else.
    known = np.isfinite(areas.values)
    total = np.asarray((members @ np.where(known, areas.values, 0.0).T).T)
    lacking = np.asarray((members @ (~known).astype(float).T).T) > 0
    return np.where(whole & ~lacking, total, np.nan)


@validated(
    areas=SOURCE,
    domain=DOMAIN,
    count=NAME,
    suppressed=SUPPRESSED,
    name=NAME,
    time=NAME,
    date_format=NAME,
    absent=choice("zero", "unknown"),
)
def bin_areas(
    areas: Any,
    domain: Domain,
    count: str,
    *,
    suppressed: tuple[int, int] | None = None,
    name: str | None = None,
    time: str | None = None,
    every: str | Periods | Any = None,
    between: tuple[Any, Any] | None = None,
    date_format: str | None = None,
    absent: Literal["zero", "unknown"] | None = None,
) -> AreaCounts:
    """Read counts by area: districts, counties, wards with a column of numbers.

    Parameters
    ----------
    areas : GeoDataFrame or path
        Polygons in any CRS. They may reach beyond the land and leave land out: of land without an area nothing is
        known. Every row is taken for events of its own; one district in two rows is refused.
    domain : Domain
    count : str
        The column with the number of events. Fractions are taken as they are (events without an address that were
        shared out) and told; dates are refused, and so is a column whose name says that it is a rate.
    suppressed : (int, int), optional
        What is known of rows without a number: that it is one of these two, or between them. Without it a missing
        number is an error. Rows without a number are blanks, NaN, and marks that say so: "*", "..", "s", "x", "c",
        "suppressed", and "<5", "1-4" or "up to 4", which must agree with it. Anything else ("1,234", "12 (prov.)",
        infinity) is refused.
    name : str, optional
        The column with names, for messages and tables; by default one is looked for.
    time : str, optional
        A column of dates (weeks, months, years), where every row is an area in a period: the counts are then by period.
        Rows of one area have the same polygon; several of one area and period are added up.
    every, between, date_format
        As for `bin_points`.
    absent : "zero" or "unknown", optional
        What it means that an area has no row in a period: no events, or that nothing is known. Without it that is an
        error.

    Returns
    -------
    AreaCounts

    Examples
    --------
    >>> from shapely.geometry import box
    >>> from geobgp import Domain
    >>> domain = Domain.from_polygons(box(0, 0, 4, 2), cell_size=1, crs="local")
    >>> halves = gpd.GeoDataFrame({"cases": [7, None]}, geometry=[box(0, 0, 2, 2), box(2, 0, 4, 2)])
    >>> bin_areas(halves, domain, "cases", suppressed=(1, 4))
    AreaCounts(7 events in 2 areas, 1 suppressed)
    """
    clock = Clock.asked(time, every, between, date_format)
    if absent is not None and clock is None:
        raise DataError(
            f"{option('absent')} belongs to counts with dates.",
            option="absent",
            found=absent,
            remedy=f"Name the column of dates: {option('time')}.",
        )
    frame = read_regions(areas, domain, "areas")
    if count not in frame.columns or count == frame.geometry.name:
        columns = [str(c) for c in frame.columns if c != frame.geometry.name]
        raise DataError(
            f"The areas have no column {count!r}; found {listed(columns) or 'none at all'}.",
            option="count",
            found=count,
            remedy=f"Name the column with the number of events: {option('count')}.",
        )
    names = _names(frame, name)
    values = _numbers(frame[count], names, count, suppressed)
    if clock is None:
        _warn_of_parts(values, names)
        return place_areas(frame, domain, values, names, suppressed)
    table, rows, dated = _by_period(frame, values, clock, absent)
    areas = frame.iloc[rows].reset_index(drop=True)
    return place_areas(areas, domain, table, [names[i] for i in rows], suppressed, **dated)


def place_areas(
    frame: gpd.GeoDataFrame,
    domain: Domain,
    values: np.ndarray,
    names: Sequence[str],
    interval: tuple[int, int] | None = None,
    unknown: np.ndarray | None = None,
    *,
    may_lose: bool = False,
    **more: Any,
) -> AreaCounts:
    """Return areas with the nodes' land that they hold: those with land.

    Parameters
    ----------
    frame : GeoDataFrame
    domain : Domain
    values : (n_areas,) or (n_periods, n_areas) array
    names : sequence of str
    interval : (int, int), optional
        Between which numbers suppressed counts lie.
    unknown : (n_periods, n_areas) bool array, optional
    may_lose : bool
        Leave events of areas without land out, and say how many in `lost`; else they are refused.
    **more
        What else `AreaCounts` holds.
    """
    _refuse_twins(frame, names)
    cut = overlay(domain, frame)
    land = cut.shares @ domain.node_areas
    if not (land > 0).any():
        raise GeometryError(
            f"None of the {counted(len(frame), 'area')} holds land of the domain.",
            option="areas",
            found=len(frame),
            remedy="Check their coordinate reference system.",
        )
    least = np.where(np.isnan(values), 0.0 if interval is None else float(interval[0]), values)
    least = least if unknown is None else np.where(unknown, 0.0, least)
    bad, off = np.atleast_2d(least > 0).any(axis=0), ~(land > 0)
    bad &= off
    if bad.any() and may_lose:
        more["lost"] = {NO_LAND: round(float(values[..., bad].sum()))}
    elif bad.any():
        raise GeometryError(
            f"{these(bad, names)} {'has' if bad.sum() == 1 else 'have'} events but no land of the domain.",
            option="areas",
            found=[names[i] for i in np.flatnonzero(bad)],
            remedy=f"Add their land ({option('land')}), or leave them out.",
        )
    inside = cut.shares.sum(axis=0)
    _warn_overlap(inside, domain, shared_land(domain, frame, cut.shares), least)
    kept = np.flatnonzero(~off)
    if off.any():
        cut = overlay(domain, frame.iloc[kept])
    values = values[..., kept]
    values.setflags(write=False)
    return AreaCounts(
        values=values,
        shares=cut.shares,
        names=tuple(names[i] for i in kept),
        suppressed=interval,
        geometry=np.array(frame.geometry.to_numpy(), dtype=object)[kept],
        crs=frame.crs,
        covered=float(np.minimum(inside, 1.0) @ domain.node_areas / domain.node_areas.sum()),
        n_off=int((off & ~bad).sum()),
        nodes=domain.nodes_hash(),
        unknown=None if unknown is None else unknown[:, kept],
        _cut=cut,
        **more,
    )


def _names(frame: gpd.GeoDataFrame, name: str | None) -> list[str]:
    """Return what areas are called: a column of names, or their row."""
    if name is None:
        words = [
            column
            for column in frame.columns
            if column != frame.geometry.name and not pd.api.types.is_numeric_dtype(frame[column])
        ]
        name = next((c for c in words if "name" in str(c).lower()), None)
    if name is None:
        return [f"row {k}" for k in range(len(frame))]
    if name not in frame.columns:
        raise DataError(f"The areas have no column {name!r} with names.", option="name", found=name)
    return [str(v) for v in frame[name]]


def these(which: np.ndarray, names: Sequence[str]) -> str:
    """Return areas by name, as the subject of a sentence."""
    shown = [names[i] for i in np.flatnonzero(which)]
    more = f" and {len(shown) - _MOST_NAMES:,} more" if len(shown) > _MOST_NAMES else ""
    return f"{'The area' if len(shown) == 1 else 'The areas'} {', '.join(shown[:_MOST_NAMES])}{more}"


# -- counts as they are written

#: What stands for a count that is not told, besides blanks.
_HIDDEN = {
    "", "nan", "na", "n/a", "null", "none", "<na>", "nat", "*", "**", "***", "..", "...", "\u2026", "s", "(s)", "[s]",
    "x", "(x)", "[x]", "c", "(c)", "[c]", ":c", "suppressed", "masked", "redacted", "confidential", "hidden",
    "withheld",
}  # fmt: skip
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?", re.ASCII)
_BELOW = re.compile(r"(<|under|below|fewer than|less than)\s*(\d+)", re.IGNORECASE | re.ASCII)
_UP_TO = re.compile(r"(\u2264|<=|=<|up to|at most)\s*(\d+)", re.IGNORECASE | re.ASCII)
_SPAN = re.compile(r"(\d+)\s*(?:-|\u2013|to)\s*(\d+)", re.IGNORECASE | re.ASCII)
_DATE = re.compile(r"\d{4}-\d{2}(-\d{2}.*)?|\d{1,2}([/.-])\d{1,2}\2\d{2,4}.*|\d{4}-?W\d{1,2}", re.ASCII)
#: Words in the name of a column that say that it holds rates; those that may; those that, at its end, say otherwise.
_RATES = {"rate", "rates", "percent", "percentage", "pct", "permille", "permil", "smr", "sir", "asr"}
_PERHAPS = {
    "ratio", "risk", "rr", "incidence", "prevalence", "share", "proportion", "fraction", "density", "mean", "average",
    "probability",
}  # fmt: skip
_EVENTS = {"cases", "count", "counts", "deaths", "events", "number", "n", "observed"}


class _Mark(NamedTuple):
    """What a value of a column of counts says: a number, or between which numbers it lies, if it says so."""

    number: float = np.nan
    low: int | None = None
    high: int | None = None
    wrong: bool = False


def _read_count(value: Any) -> _Mark:
    """Return what a value of a column of counts says.

    Examples
    --------
    >>> _read_count("12").number, _read_count("<5").high, _read_count("1-4")[1:3], _read_count("1,234").wrong
    (12.0, 4, (1, 4), True)
    """
    if isinstance(value, (bool, np.bool_)):
        return _Mark(wrong=True)
    if isinstance(value, Real):
        number = float(value)
        return _Mark(number, wrong=bool(np.isinf(number)))
    text = "" if value is None or value is pd.NA or value is pd.NaT else " ".join(str(value).split())
    if text.lower() in _HIDDEN:
        return _Mark()
    if _NUMBER.fullmatch(text):
        return _Mark(float(text), wrong=not np.isfinite(float(text)))
    below, up_to, span = (pattern.fullmatch(text) for pattern in (_BELOW, _UP_TO, _SPAN))
    if below is not None and int(below[2]) > 0:
        return _Mark(high=int(below[2]) - 1)
    if up_to is not None:
        return _Mark(high=int(up_to[2]))
    if span is not None and int(span[1]) <= int(span[2]):
        return _Mark(low=int(span[1]), high=int(span[2]))
    return _Mark(wrong=True)


def _numbers(column: pd.Series, names: Sequence[str], count: str, interval: tuple[int, int] | None) -> np.ndarray:
    """Return the counts; NaN where they are suppressed: blanks, and marks that say so. The rest is refused by value."""
    _refuse_dates(column, count)
    known: dict[Any, _Mark] = {}
    marks = [known.setdefault(v, _read_count(v)) if isinstance(v, str) else _read_count(v) for v in column]
    _refuse_unreadable(column, marks, names, count)
    values = np.array([mark.number for mark in marks], float)
    hidden = np.isnan(values)
    if hidden.any():
        _check_interval(column, marks, names, count, interval)
    if (values < 0).any():
        raise DataError(
            f"{these(values < 0, names)} {'has' if (values < 0).sum() == 1 else 'have'} a negative number in the "
            f"column {count!r}.",
            option="count",
            found=float(np.nanmin(values)),
            remedy="Numbers of events are 0 or more.",
        )
    refuse_huge("count", values, f"The column {count!r}", MOST_EVENTS)
    if interval is not None:
        refuse_huge("suppressed", np.array(interval, float), option("suppressed"), MOST_EVENTS)
    _ask_of_rates(values, count)
    return values


def add_rows(
    areas: gpd.GeoDataFrame, count: str, time: str | None = None, suppressed: tuple[int, int] | None = None
) -> gpd.GeoDataFrame:
    """Return one row for each area (and time), with the sum of the counts of its rows.

    A suppressed count is added as the number in the middle of what it may be.

    Examples
    --------
    >>> from shapely.geometry import box
    >>> rows = gpd.GeoDataFrame({"n": ["3", "4", "<5"]}, geometry=[box(0, 0, 1, 1), box(1, 0, 2, 1), box(0, 0, 1, 1)])
    >>> add_rows(rows, "n", suppressed=(1, 4))["n"].tolist()
    [5.0, 4.0]
    """
    if count not in areas.columns:
        return areas  # who reads it says so
    names = [f"area {k + 1}" for k in range(len(areas))]
    values = _numbers(areas[count], names, count, suppressed)
    if suppressed is not None:
        values = np.where(np.isnan(values), round(_middle(suppressed)), values)
    keys: list[Any] = [areas.geometry.to_wkb()]
    if time is not None and time in areas.columns:
        keys.append(areas[time].astype(str))
    group = areas.groupby([pd.Series(key.to_numpy(), index=areas.index) for key in keys], sort=False).ngroup()
    rows = areas[~group.duplicated()].copy()
    rows[count] = np.bincount(group, values)
    return rows


def _middle(interval: tuple[float, float]) -> float:
    """Return a number in the middle of what a suppressed count may be, by ratio."""
    return float(np.sqrt(max(interval[0], 0.5) * max(interval[1], 0.5)))


def _refuse_unreadable(column: pd.Series, marks: Sequence[_Mark], names: Sequence[str], count: str) -> None:
    """Refuse what is neither a number nor a mark of a suppressed count, and numbers that can be read in two ways."""
    wrong = np.array([mark.wrong for mark in marks], bool)
    texts = [v.strip() if isinstance(v, str) else "" for v in column]
    dotted = [k for k, text in enumerate(texts) if "." in text and _NUMBER.fullmatch(text)]
    remedy = "Write the number alone; leave blank what is suppressed."
    if dotted and all(re.fullmatch(r"[1-9]\d{0,2}\.\d{3}", texts[k]) for k in dotted):
        wrong[dotted] = True
        remedy = "Is the point a decimal one, or between thousands? Make the column one of numbers."
    if not wrong.any():
        return
    unreadable = list(dict.fromkeys(str(column.iloc[k]) for k in np.flatnonzero(wrong)))
    if any(re.fullmatch(r"\d{1,3}([,'\u2019\s]\d{3})+(\.0+)?", text) for text in unreadable):
        remedy = "Write numbers without marks between thousands: 1234."
    raise DataError(
        f"{these(wrong, names)} {'has' if wrong.sum() == 1 else 'have'} {listed(unreadable, 3)} in the column "
        f"{count!r}, which cannot be read as a number of events.",
        option="count",
        found=unreadable,
        remedy=remedy,
    )


def _check_interval(
    column: pd.Series, marks: Sequence[_Mark], names: Sequence[str], count: str, interval: tuple[int, int] | None
) -> None:
    """Refuse suppressed counts without an interval, and marks that contradict it."""
    hidden = np.array([np.isnan(mark.number) for mark in marks])
    intervals = sorted({(1 if mark.low is None else mark.low, mark.high) for mark in marks if mark.high is not None})
    low, high = intervals[0] if len(intervals) == 1 else (1, 4)
    say = option("suppressed", f"{low}-{high}", python=f"suppressed=({low}, {high})")
    if interval is None:
        first = column.iloc[int(np.flatnonzero(hidden)[0])]
        raise DataError(
            f"{these(hidden, names)} {'has' if hidden.sum() == 1 else 'have'} no number in the column {count!r}; "
            f"found {first!r}.",
            option="suppressed",
            found=int(hidden.sum()),
            remedy=(
                f"If small counts are suppressed, say between which numbers they lie: {say}; else leave these areas "
                "out."
            ),
        )
    against = np.array(
        [mark.high is not None and (mark.high != interval[1] or mark.low not in (None, interval[0])) for mark in marks],
        bool,
    )
    if against.any():
        outside = list(dict.fromkeys(str(column.iloc[k]) for k in np.flatnonzero(against)))
        one = f"Say what the marks say: {say}." if len(intervals) == 1 else "One interval holds for all of them."
        raise DataError(
            f"{these(against, names)} {'has' if against.sum() == 1 else 'have'} {listed(outside, 3)} in the column "
            f"{count!r}; {option('suppressed')} says {interval[0]} to {interval[1]}.",
            option="suppressed",
            found=outside,
            remedy=one,
        )


def _refuse_dates(column: pd.Series, count: str) -> None:
    """Refuse a column of dates, years or times as numbers of events."""
    there = column.dropna()
    first = there.iloc[0] if len(there) else None
    dated = (
        pd.api.types.is_datetime64_any_dtype(column.dtype)
        or pd.api.types.is_timedelta64_dtype(column.dtype)
        or isinstance(column.dtype, pd.PeriodDtype)
        or any(isinstance(value, (datetime.date, datetime.time, datetime.timedelta)) for value in there)
    )
    if not dated and pd.api.types.is_numeric_dtype(column.dtype):
        values = there.to_numpy(float)
        whole = len(values) > 0 and bool((np.isfinite(values) & (values == np.round(values))).all())
        years = {"year", "years", "date", "jahr", "jaar", "annee"} & set(_words(count))
        dated = whole and (
            (bool(years) and bool(((values >= 1800) & (values <= 2100)).all()))
            or bool(((values >= 18000101) & (values <= 21001231)).all() and _as_days(values).all())
        )
    elif not dated:
        words = [text for value in there if (text := str(value).strip()).lower() not in _HIDDEN]
        dated = bool(words) and all(_DATE.fullmatch(text) for text in words)
    if dated:
        raise DataError(
            f"The column {count!r} holds dates, such as {str(first)!r}, and no numbers of events.",
            option="count",
            found=str(first),
            remedy=f"Name the column with the number of events: {option('count')}. Dates are {option('time')}.",
        )


def _as_days(values: np.ndarray) -> np.ndarray:
    """Tell which whole numbers can be days, as 20201231."""
    month, day = values // 100 % 100, values % 100
    return np.asarray((month >= 1) & (month <= 12) & (day >= 1) & (day <= 31))


def _words(name: str) -> list[str]:
    """Return the words of a column's name: DeathRate_2020 is death, rate, 2020."""
    return re.findall(r"[a-z]+|\d+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", str(name)).lower())


def _ask_of_rates(values: np.ndarray, count: str) -> None:
    """Refuse a column that is a rate by its name, and warn of counts that are all below one."""
    there, words = values[values > 0], _words(count)
    if not len(there):
        return
    fractions = bool((there != np.round(there)).any())
    named = _RATES & set(words) or re.search(
        r"%|\u2030|per[ _-]?(\d|million|mille|capita|cent|hundred|thousand)", count.lower()
    )
    if (named or (fractions and _PERHAPS & set(words))) and not _EVENTS & set(words[-1:]):
        raise DataError(
            f"The column {count!r} is a rate by its name, with values from {number(float(there.min()), 3)} to "
            f"{number(float(there.max()), 3)}; counts are numbers of events.",
            option="count",
            found=count,
            remedy=(
                f"Multiply it by the people it is a rate of, and give these as {option('exposure')}. If they are "
                "numbers of events, give the column a name that says so, such as 'cases'."
            ),
        )
    if there.max() < 1:
        warn(
            InputWarning(
                f"All numbers of the column {count!r} are below 1 ({number(float(there.sum()), 3)} events in "
                f"{counted(len(values), 'area')}). They are taken for fractions of events.",
                option="count",
                found=float(there.max()),
                remedy="If they are rates, multiply them by the people behind them.",
            )
        )


# -- areas that are there twice


def _refuse_twins(frame: gpd.GeoDataFrame, names: Sequence[str]) -> None:
    """Refuse areas that are there twice: the same land, whoever drew it first."""
    shapes = np.asarray(frame.geometry.to_numpy(), dtype=object)
    size, middle = shapely.area(shapes), shapely.get_coordinates(shapely.centroid(shapes))
    if len(middle) != len(shapes) or len(shapes) < 2:
        return
    pairs = cKDTree(middle).query_pairs(1e-3 * float(np.sqrt(size.max())), output_type="ndarray")
    alike = np.abs(size[pairs[:, 0]] - size[pairs[:, 1]]) <= 1e-3 * size[pairs[:, 0]]
    pairs = pairs[alike & (size[pairs[:, 0]] > 0)]
    if not len(pairs):
        return
    one, other = (shapely.make_valid(shapes[k]) for k in pairs.T)
    same = shapely.area(shapely.intersection(one, other)) > 0.99 * size[pairs[:, 0]]
    pairs = pairs[same]
    if len(pairs):
        twice = np.zeros(len(shapes), bool)
        twice[pairs.ravel()] = True
        raise DataError(
            f"{these(twice, names)} are the same land: {counted(len(np.unique(pairs.max(axis=1))), 'row')} too many.",
            option="areas",
            found=[names[k] for k in np.flatnonzero(twice)],
            remedy=(
                "If they count different events, such as those of men and of women, add them up; else leave the "
                "repeated rows out."
            ),
        )


def _warn_of_parts(values: np.ndarray, names: Sequence[str]) -> None:
    """Warn where the parts of an area have one number each time: it may be that of the whole."""
    table = pd.DataFrame({"name": list(names), "value": values})
    table = table[(table["value"] > 0) & table["name"].duplicated(keep=False)]
    if not len(table) or table.groupby("name")["value"].nunique().max() > 1 or table["value"].max() < 3:
        return
    repeated = list(dict.fromkeys(table["name"]))
    warn(
        InputWarning(
            f"{listed(repeated, _MOST_NAMES)} {'is' if len(repeated) == 1 else 'are'} in several rows with the same "
            "number. Every row is taken for events of its own: a number of the whole area is counted for each part.",
            option="areas",
            found=repeated,
            remedy="If it is that of the whole, make its parts one area: frame.dissolve(by=...).",
        )
    )


def _warn_overlap(inside: np.ndarray, domain: Domain, shared: Shared | None, events: np.ndarray) -> None:
    twice = float(np.maximum(inside - 1.0, 0.0) @ domain.node_areas / domain.node_areas.sum())
    if twice > QUIET_OVERLAP or shared is not None:
        which = ""
        if shared is not None:
            total = np.atleast_2d(events).sum(axis=0)
            pairs, shared_by = shared.pairs, shared.words
            which = f": {shared_by(lambda k: ' and '.join(number(v) for v in total[pairs[k]]) + ' events')}"
        warn(
            InputWarning(
                f"{percent(twice, None if twice > QUIET_OVERLAP else 2)} of the land lies in more than one area"
                f"{which}. Every row is taken for events of its own: an event that two rows count is counted twice.",
                option="areas",
                found=twice,
                remedy="Give the finest areas only, or the rest of the larger ones.",
            )
        )


# -- Counts by area and period: districts by week, counties by year ------------------------------------------


def _by_period(
    frame: gpd.GeoDataFrame, values: np.ndarray, clock: Clock, absent: Literal["zero", "unknown"] | None
) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    """Return counts by period and area of a long table, a row of it for each area, and what is known of periods."""
    if clock.name not in frame.columns:
        raise DataError(
            f"The areas have no column {clock.name!r}.",
            option="time",
            found=clock.name,
            remedy=f"Name the column of dates: {option('time')}.",
        )
    codes = clock.codes(frame[clock.name])
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
    time = {"periods": periods, "unknown": unknown}
    lost = {"n_untimed": int((codes == UNTIMED).sum()), "n_outside": int((codes == OUTSIDE).sum())}
    return table, one, time | lost


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


# -- Counts at nodes and by area as rows of one likelihood, in which nobody is counted twice -----------------


#: Exposure of an area, as a share of what areas have on average, that is a rounding error.
_NOBODY = 1e-9


@dataclass(frozen=True, eq=False)
class Combined:
    """Counts at nodes and of areas as rows of one likelihood.

    Attributes
    ----------
    counts : (n,) array
        With a number in the middle where they are hidden.
    exposure : (n, n_nodes) csr_array
        The exposure of every node behind each count.
    hidden : (n,) bool array
    interval : (int, int)
    area : (n,) int array
        The area that each row is of; -1 for located events.
    """

    counts: np.ndarray
    exposure: sparse.csr_array
    hidden: np.ndarray
    interval: tuple[int, int]
    area: np.ndarray


def combine(areas: AreaCounts, exposure: np.ndarray, effort: np.ndarray | None = None) -> Combined:
    """Return the rows of a likelihood for areas, and for points whose place is known besides.

    Areas count the events that have no place of their own. Of an area with g events of known place among n a share
    g / n of its exposure stands behind the former and the rest behind the latter, so that nobody is counted twice. What
    share it is does not change what the data say of the map. Where there are several levels of areas, which overlap, so
    it is in each area of the coarsest level: its exposure is shared out among the levels as its events are.

    Parameters
    ----------
    areas : AreaCounts
        With its `located` events, and its part of every node's exposure.
    exposure : (n_nodes,) array
    effort : (n_nodes,) array, optional
        With it only the exposure behind the events that get reported counts.

    Returns
    -------
    Combined
        The located events first, if there are any, node by node.
    """
    values = areas.guessed
    low = 0 if areas.suppressed is None else areas.suppressed[0]
    seen = areas.within.exposure(exposure, effort)
    exposed = np.asarray(seen.sum(axis=1)).ravel()
    events = np.where(areas.hidden, float(low), values) > 0
    nobody = ~(exposed > _NOBODY * exposed.mean())
    if (nobody & events).any():
        bad = nobody & events
        raise DataError(
            f"{these(bad, areas.names)} {'has' if bad.sum() == 1 else 'have'} events but no exposure: nobody lives "
            "there to whom they could happen.",
            option="exposure",
            found=[areas.names[i] for i in np.flatnonzero(bad)],
            remedy=f"Check {option('exposure')}, or leave these areas out.",
        )
    rest, elsewhere = _behind(areas)
    located = areas.located
    weights = sparse.csr_array(sparse.diags_array(rest) @ seen)
    keep = np.flatnonzero(~nobody)
    blocks, counts, hidden, area = [weights[keep]], [values[keep]], [areas.hidden[keep]], [keep]
    if located is not None:
        at_nodes = exposure if effort is None else exposure * effort
        behind = elsewhere.outside * at_nodes - elsewhere.less @ seen[elsewhere.areas]
        # Rounding leaves a trace where nothing is behind.
        behind = np.where((located > 0) | (behind > 1e-9 * at_nodes), np.maximum(behind, 1e-12 * at_nodes), 0.0)
        blocks.insert(0, sparse.csr_array(sparse.diags_array(behind)))
        counts.insert(0, located)
        hidden.insert(0, np.zeros(len(located), bool))
        area.insert(0, np.full(len(located), -1))
    return Combined(
        np.concatenate(counts),
        sparse.csr_array(sparse.vstack(blocks)),
        np.concatenate(hidden),
        areas.suppressed or (0, 0),
        np.concatenate(area),
    )


class _Elsewhere(NamedTuple):
    """The share of exposure behind located events: outside the coarsest areas, and how much less it is in each."""

    outside: float
    areas: np.ndarray
    less: np.ndarray


def share_behind(areas: AreaCounts) -> np.ndarray:
    """Return the share of every area's exposure that stands behind its own events, over all periods."""
    return _behind(areas.pooled())[0]


def _behind(areas: AreaCounts) -> tuple[np.ndarray, _Elsewhere]:
    """Return the share of every area's exposure that stands behind its own events, and that behind located ones."""
    values, levels, located = areas.guessed, areas.levels, areas.located
    several = levels is not None and len(np.unique(levels.of)) > 1
    if located is None and not several:
        return np.ones(len(values)), _Elsewhere(1.0, np.empty(0, int), np.empty(0))
    if several:
        assert levels is not None
        base, inside = levels.coarsest, levels.inside
        of = np.where(levels.of == levels.of[base[0]], 0, levels.of + 1)
    else:
        base, of = np.arange(len(values)), np.zeros(len(values), int)
        inside = sparse.csr_array(sparse.eye_array(len(values), len(values) + 1))
    # How many events of each level there are in each of the coarsest areas, and in none: located ones last.
    events = np.zeros((int(of.max()) + 2, len(base) + 1))
    for k in np.unique(of):
        events[k] = inside[of == k].T @ values[of == k]
    if located is not None:
        cover = areas.shares[base]
        land = np.asarray(cover.sum(axis=0)).ravel()
        if float(land.max(initial=0.0)) > 1.0 + 1e-6:
            raise DataError(
                "Areas that overlap cannot be mapped together with points: whose events are they?",
                option="areas",
                found=float(land.max()),
                remedy="Give areas that do not overlap.",
            )
        events[-1, :-1], events[-1, -1] = cover @ located, np.maximum(1.0 - land, 0.0) @ located
    # Where nothing happened all is said by the coarsest areas, and outside of them by the finest places there are.
    nothing = events.sum(axis=0) == 0
    events[0, nothing] = 1.0
    events[0, -1] = 0.0
    if nothing[-1]:
        finest = len(events) - 1 if located is not None or not several else 1 + int(np.argmax(np.bincount(of)[1:]))
        events[finest, -1] = 1.0
    share = events / events.sum(axis=0)
    rest = np.asarray((inside * share[of]).sum(axis=1)).ravel() if several else share[0, :-1]
    return rest, _Elsewhere(float(share[-1, -1]), base, share[-1, -1] - share[-1, :-1])


def log_poisson(counts: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Return the log probability of counts.

    Examples
    --------
    >>> log_poisson(np.array([0.0, 2.0]), np.array([0.0, 3.0])).round(4).tolist()
    [0.0, -1.4959]
    """
    return np.asarray(xlogy(counts, expected) - expected - gammaln(counts + 1.0))


def even_rate(seen: Combined) -> float:
    """Return the log-likelihood of counts with one rate everywhere."""
    expected = np.asarray(seen.exposure.sum(axis=1)).ravel() * float(seen.counts.sum() / seen.exposure.sum())
    log_p = log_poisson(np.round(seen.counts), expected)
    # In logarithms: a hidden count of a large area can be next to impossible at one rate.
    each = np.arange(seen.interval[0], seen.interval[1] + 1)[:, None]
    log_p[seen.hidden] = logsumexp(log_poisson(each, expected[seen.hidden]), axis=0)
    return float(np.sum(np.where(expected > 0, log_p, 0.0)))


def stack(several: Sequence[AreaCounts]) -> AreaCounts:
    """Return areas of several tables as one."""
    first = several[0]
    if len(several) == 1:
        return first
    if len({one.suppressed for one in several if one.hidden.any()}) > 1:
        raise DataError("Suppressed counts of all areas must lie between the same numbers.", option="suppressed")
    if len({None if one.periods is None else one.periods.labels for one in several}) > 1:
        raise DataError(
            "Areas that are mapped together have the same periods.",
            option="between",
            remedy=f"Say which: {option('between')}, or the periods of one table for all.",
        )
    if any(one.levels is not None for one in several):
        raise DataError(
            "Events whose places are areas are counted in one go, at all levels of precision.",
            option="places",
            remedy="Give one table to bin_places, with a column that says how precise each place is.",
        )
    frames = [one.shapes if first.crs is None else one.shapes.to_crs(first.crs) for one in several]
    return replace(
        first,
        values=np.concatenate([one.values for one in several], axis=-1),
        shares=sparse.csr_array(sparse.vstack([one.shares for one in several])),
        names=tuple(name for one in several for name in one.names),
        suppressed=next((one.suppressed for one in several if one.hidden.any()), first.suppressed),
        geometry=np.array(pd.concat(frames).geometry.to_numpy(), dtype=object),
        covered=min(sum(one.covered for one in several), 1.0),
        n_off=sum(one.n_off for one in several),
        n_untimed=sum(one.n_untimed for one in several),
        n_outside=sum(one.n_outside for one in several),
        unknown=None if first.unknown is None else np.concatenate([one.unknown for one in several], axis=1),
        located=None,
        exposed=None,
        effort=None,
        _cut=None,
        _met=(),
    )


def sort_counts(given: Any) -> tuple[Counts | np.ndarray | None, AreaCounts | None]:
    """Return counts at the nodes and counts by area, of what was given to be fitted: either may be missing."""
    if isinstance(given, AreaCounts):
        return None, given
    several = isinstance(given, (list, tuple)) and any(hasattr(one, "n_used") for one in given)
    if not several:
        return given, None
    areas = [one for one in given if isinstance(one, AreaCounts)]
    points = [one for one in given if not isinstance(one, AreaCounts)]
    located = points[0] if points else None
    if len(points) > 1:
        located = np.sum([np.asarray(one, float) for one in points], axis=0)
    return located, stack(areas) if areas else None
