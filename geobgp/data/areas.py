"""Counts by area: how many events each of some polygons holds, and which nodes' land they are of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import geopandas as gpd
import numpy as np
import pandas as pd
import pyproj
import shapely
from scipy import sparse

from geobgp.arguments import DOMAIN, SOURCE, SUPPRESSED
from geobgp.data.clock import Clock
from geobgp.errors import DataError, GeometryError, InputWarning, option, warn
from geobgp.land.regions import area_shares, read_regions
from geobgp.text import count as counted
from geobgp.text import html_table, listed, percent
from geobgp.validate import NAME, choice, door

if TYPE_CHECKING:
    from geobgp.data.periods import Periods
    from geobgp.land.domain import Domain

#: Share of the land that may lie in several areas without a warning.
QUIET_OVERLAP = 0.01
#: Share of an area that borders drawn by others may cut off.
_SLIVER = 0.01
#: Names that a message lists.
_MOST_NAMES = 5


@dataclass(frozen=True, eq=False)
class AreaCounts:
    """Numbers of events in areas.

    Attributes
    ----------
    values : (n_areas,) array
        The count of each area; NaN where it is suppressed. Read-only.
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
    located : (n_nodes,) array or None
        Other events, whose place is known, that were fitted together with these.
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

    @property
    def hidden(self) -> np.ndarray:
        """Which counts are suppressed."""
        return np.isnan(self.values)

    @property
    def guessed(self) -> np.ndarray:
        """The counts, with a number in the middle where they are suppressed."""
        low, high = self.suppressed or (0, 0)
        return np.where(self.hidden, np.sqrt(max(low, 0.5) * max(high, 0.5)), self.values)

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
        """Return the areas with their ``name`` and the number ``observed``."""
        columns = {"name": list(self.names), "observed": self.values}
        return gpd.GeoDataFrame(columns, geometry=list(self.geometry), crs=self.crs)

    def facts(self) -> dict[str, str]:
        """Return what was counted, line by line: what each number is, and the number in words."""
        facts = {
            "areas": f"{len(self.values):,}",
            "events in them": f"{self.n_used:,}",
            "land in an area": percent(self.covered),
        }
        if self.hidden.any():
            low, high = self.suppressed or (0, 0)
            facts["suppressed counts"] = f"{int(self.hidden.sum()):,} (of {low} to {high} events each)"
        if self.located is not None:
            facts["events with a place besides"] = f"{round(float(self.located.sum())):,}"
        if self.n_off:
            facts["areas without land and events"] = f"{self.n_off:,}"
        return facts

    def report(self) -> str:
        """Return what was counted, in a few lines."""
        return "\n".join(f"{key}: {value}" for key, value in self.facts().items())

    def __repr__(self) -> str:
        hidden = f", {int(self.hidden.sum()):,} suppressed" if self.hidden.any() else ""
        return f"AreaCounts({self.n_used:,} events in {counted(len(self.values), 'area')}{hidden})"

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
    shapes = regions.geometry if areas.crs is None else regions.geometry.to_crs(areas.crs)
    places = shapely.make_valid(np.asarray(shapes.to_numpy(), dtype=object))
    own = shapely.make_valid(np.asarray(areas.geometry, dtype=object))
    region, area = shapely.STRtree(own).query(places, predicate="intersects")
    size = shapely.area(own)
    within = shapely.area(shapely.intersection(places[region], own[area])) / np.maximum(size[area], 1e-300)
    whole = np.zeros(len(places), bool)
    whole[region[within > _SLIVER]] = True
    whole[region[(within > _SLIVER) & (within < 1.0 - _SLIVER)]] = False
    inside = within >= 1.0 - _SLIVER
    members = sparse.csr_array(
        (np.ones(int(inside.sum())), (region[inside], area[inside])), shape=(len(places), len(own))
    )
    # NaN where a count is hidden or unknown, and nowhere else.
    known = np.isfinite(areas.values)
    total = np.asarray((members @ np.where(known, areas.values, 0.0).T).T)
    lacking = np.asarray((members @ (~known).astype(float).T).T) > 0
    return np.where(whole & ~lacking, total, np.nan)


@door(
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
        known. Every row is taken for events of its own.
    domain : Domain
    count : str
        The column with the number of events.
    suppressed : (int, int), optional
        What is known of rows without a number: that it is one of these two, or between them. Without it a missing
        number is an error.
    name : str, optional
        The column with names, for messages and tables; by default one is looked for.
    time : str, optional
        A column of dates (weeks, months, years), where every row is an area in a period: the counts are then by period,
        a `PeriodAreaCounts`. Rows of one area have the same polygon; several of one area and period are added up.
    every, between, date_format
        As for `bin_points`.
    absent : "zero" or "unknown", optional
        What it means that an area has no row in a period: no events, or that nothing is known. Without it that is an
        error.

    Returns
    -------
    AreaCounts
        With `time` a `PeriodAreaCounts`.

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
    frame = read_regions(areas, domain, "areas")
    if count not in frame.columns or count == frame.geometry.name:
        columns = [str(c) for c in frame.columns if c != frame.geometry.name]
        raise DataError(
            f"The areas have no column {count!r}; found {listed(columns) or 'none at all'}.",
            option="count",
            found=count,
            remedy=f"Name the column with the number of events: {option('count')}.",
        )
    interval = suppressed
    names = _names(frame, name)
    values = _numbers(frame[count], names, count, interval)
    if clock is not None:
        from geobgp.data.period_areas import bin_period_areas

        return bin_period_areas(frame, domain, values, names, interval, clock, absent)
    return place_areas(frame, domain, values, names, interval)[0]


def place_areas(
    frame: gpd.GeoDataFrame,
    domain: Domain,
    values: np.ndarray,
    names: Sequence[str],
    interval: tuple[int, int] | None,
) -> tuple[AreaCounts, np.ndarray]:
    """Return areas with the nodes' land that they hold, and which were kept: those with land."""
    shares = sparse.csr_array(area_shares(domain, frame))
    land = shares @ domain.node_areas
    if not (land > 0).any():
        raise GeometryError(
            f"None of the {counted(len(values), 'area')} holds land of the domain.",
            option="areas",
            found=len(values),
            remedy="Check their coordinate reference system.",
        )
    events = np.where(np.isnan(values), 0.0 if interval is None else float(interval[0]), values) > 0
    off = ~(land > 0)
    if (off & events).any():
        bad = off & events
        raise GeometryError(
            f"{these(bad, names)} {'has' if bad.sum() == 1 else 'have'} events but no land of the domain.",
            option="areas",
            found=[names[i] for i in np.flatnonzero(bad)],
            remedy=f"Add their land ({option('land')}), or leave them out.",
        )
    kept = np.flatnonzero(~off)
    inside = shares.sum(axis=0)
    _warn_overlap(inside, domain)
    values = values[kept]
    values.setflags(write=False)
    found = AreaCounts(
        values=values,
        shares=sparse.csr_array(shares[kept]),
        names=tuple(names[i] for i in kept),
        suppressed=interval,
        geometry=np.array(frame.geometry.to_numpy(), dtype=object)[kept],
        crs=frame.crs,
        covered=float(np.minimum(inside, 1.0) @ domain.node_areas / domain.node_areas.sum()),
        n_off=int(off.sum()),
    )
    return found, kept


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


def _numbers(
    column: pd.Series, names: Sequence[str], count: str, interval: tuple[int, int] | None
) -> np.ndarray:
    """Return the counts; NaN where they are suppressed."""
    values = np.array(pd.to_numeric(column, errors="coerce"), float)
    hidden = ~np.isfinite(values)
    if hidden.any() and interval is None:
        first = column.iloc[int(np.flatnonzero(hidden)[0])]
        raise DataError(
            f"{these(hidden, names)} {'has' if hidden.sum() == 1 else 'have'} no number in the column {count!r}; "
            f"found {first!r}.",
            option="suppressed",
            found=int(hidden.sum()),
            remedy=(
                "If small counts are suppressed, say between which numbers they lie: "
                f"{option('suppressed', '1-4', python='suppressed=(1, 4)')}; else leave these areas out."
            ),
        )
    values[hidden] = np.nan
    if (values < 0).any():
        raise DataError(
            f"{these(values < 0, names)} {'has' if (values < 0).sum() == 1 else 'have'} a negative number in the "
            f"column {count!r}.",
            option="count",
            found=float(np.nanmin(values)),
            remedy="Numbers of events are 0 or more.",
        )
    return values


def _warn_overlap(inside: np.ndarray, domain: Domain) -> None:
    twice = float(np.maximum(inside - 1.0, 0.0) @ domain.node_areas / domain.node_areas.sum())
    if twice > QUIET_OVERLAP:
        warn(
            InputWarning(
                f"{percent(twice)} of the land lies in more than one area. Every row is taken for events of its own: "
                "an event that two rows count is counted twice.",
                option="areas",
                found=twice,
                remedy="Give the finest areas only, or the rest of the larger ones.",
            )
        )
