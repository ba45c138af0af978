"""Events whose places are areas: postcodes by key, Voronoi cells of shared places, several levels of precision."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import geopandas as gpd
import numpy as np
import pandas as pd
import pyproj
import shapely
from scipy import sparse
from scipy.spatial import cKDTree

from geobgp.data.areas import NO_LAND, AreaCounts, Levels, coarsest_of, place_areas, stack
from geobgp.data.counts import uneven
from geobgp.data.periods import OUTSIDE, UNTIMED, Clock, Periods
from geobgp.data.persons import read_table
from geobgp.data.points import QUIET_SHARE, ReadOptions, Stream, as_weights, csv_format, csv_tables
from geobgp.errors import DataError, DroppedPointsWarning, GeometryError, InputWarning, option, warn
from geobgp.files import as_frame, check_exists, driver_errors, kind_of, read_vector
from geobgp.land.crs import as_crs, move
from geobgp.land.regions import check_frame, merged, read_regions
from geobgp.text import count, listed, number, percent
from geobgp.validation import COLUMN_OR_VALUES, DOMAIN, KEYS, NAME, PLACES, SOURCE, choice, validated

if TYPE_CHECKING:
    from geobgp.land.domain import Domain

#: The level of events whose place is known exactly, and the one of areas where there is one kind of them.
EXACT, PLACE = "exact", "place"
#: In place of areas: Voronoi cells of the places that events have.
VORONOI = "voronoi"
#: Columns of rows of events beside their own: level, key, weight, date.
_LEVEL, _KEY, _WEIGHT, _TIME = "geobgp level", "geobgp key", "geobgp weight", "geobgp time"
#: Geometries that cells are drawn around.
_POINTS = {"Point", "MultiPoint"}
#: Share of rows whose key no area has from which on the keys are taken to be wrong.
_MOST_UNMATCHED = 0.5
#: Rows of a key from which on a warning may name it.
_TELLING = 10
#: Share of an area that borders drawn by others may cut off.
_SLIVER = 0.01


class Cells(NamedTuple):
    """Areas, and by the row of each key which of them it is, -1 where it has no land."""

    frame: gpd.GeoDataFrame
    of: np.ndarray


@dataclass(frozen=True, eq=False)
class Places:
    """Events whose places are areas, read once to be counted on any number of domains.

    Attributes
    ----------
    rows : DataFrame or GeoDataFrame
        The events as they were given, with the level and the key of each.
    frames : dict of str to GeoDataFrame
        By level its areas, or the points that Voronoi cells are drawn around, with the key of each.
    weights, time : str, optional
        The columns of rows with weights and dates.
    drawn : tuple of str
        The levels whose areas are drawn around the places of events.
    """

    rows: Any
    frames: dict[str, gpd.GeoDataFrame] = field(repr=False)
    weights: str | None = None
    time: str | None = None
    drawn: tuple[str, ...] = ()
    _cells: dict[tuple[str, str], Cells] = field(default_factory=dict, repr=False)

    @classmethod
    def read(
        cls,
        events: Any,
        places: Any,
        key: str | Mapping[str, str] | None = None,
        precision: str | None = None,
        *,
        weights: str | np.ndarray | None = None,
        time: str | Any = None,
        layer: str | None = None,
        crs: Any = None,
        planar: pyproj.CRS | None = None,
        same: Places | None = None,
        **columns: str | None,
    ) -> Places:
        """Return events with the key of the area that each is of; see `bin_places`.

        Parameters
        ----------
        events, places, key, precision, weights, time, crs
            As for `bin_places`.
        layer : str, optional
            Of the events' file.
        planar : pyproj.CRS, optional
            Of eastings and northings whose own is not known.
        same : Places, optional
            Of more events, with the areas that these have as well.
        **columns
            Names of columns with coordinates, for Voronoi cells.
        """
        crs = None if crs is None else as_crs(crs)
        named = dict(key) if isinstance(key, Mapping) else {}
        texts = {name for name in (*named.values(), key) if isinstance(name, str)}
        if precision is not None and isinstance(places, Mapping):
            texts |= {level for level in places if level not in named}
        dated = {time} if isinstance(time, str) else set()
        rows = _table(events, layer, texts | dated)
        rows = rows.copy(deep=False)
        if weights is not None:
            rows[_WEIGHT] = _column(rows, "weights", weights)
        if time is not None:
            column = _column(rows, "time", time)
            time = time if isinstance(time, str) else _TIME
            rows[time] = column
        levels, sources = _levels(rows, places, precision)
        rows[_LEVEL], rows[_KEY] = levels, None
        frames = {}
        for level, source in sources.items():
            mine = np.flatnonzero(levels == level)
            if _is_voronoi(source):
                keys, places_of = _coordinates(rows.iloc[mine], crs, planar, columns)
                frames[level] = _shared(keys, places_of) if same is None else same.frames[level]
            else:
                column = named.get(level, key if isinstance(key, str) else level if precision else None)
                keys = _texts(_keyed(rows, column, "points").iloc[mine])
                frames[level] = _areas(source, str(column)) if same is None else same.frames[level]
            found = np.full(len(rows), None, object)
            found[mine] = keys
            rows[_KEY] = rows[_KEY].where(levels != level, found)
        drawn = tuple(level for level, source in sources.items() if _is_voronoi(source))
        cells = {} if same is None else same._cells
        return cls(rows, frames, None if weights is None else _WEIGHT, time, drawn, cells)

    @property
    def columns(self) -> dict[str, str | None]:
        """Weights and dates of the rows, as others who read them take them."""
        return {"weights": self.weights, "time": self.time}

    @property
    def any_exact(self) -> bool:
        """Whether the place of any event is known exactly."""
        return bool((self.rows[_LEVEL] == EXACT).any())

    @property
    def any_areas(self) -> bool:
        """Whether the places of any events are areas."""
        return bool((self.rows[_LEVEL] != EXACT).any())

    @property
    def exact(self) -> Any:
        """The rows of events whose place is known exactly, as they were given."""
        rows = self.rows[(self.rows[_LEVEL] == EXACT).to_numpy()]
        return rows.drop(columns=[_LEVEL, _KEY]).reset_index(drop=True)

    @cached_property
    def n_areas(self) -> int:
        """How many areas of the finest level there are where events are: those of the whole world are not counted."""
        numbers = [0]
        for level, frame in self.frames.items():
            keys = set(self.rows[_KEY][self.rows[_LEVEL] == level].dropna())
            boxes = shapely.box(*shapely.bounds(np.asarray(frame.geometry.to_numpy(), dtype=object)).T)
            used = frame[_KEY].isin(keys).to_numpy()
            around = shapely.box(*shapely.total_bounds(boxes[used if used.any() else slice(None)]))
            numbers.append(int(shapely.intersects(boxes, around).sum()))
        return max(numbers)

    def periods(self, every: Any, between: Any, date_format: str | None) -> Periods | None:
        """Return the periods of all events, at whatever level; None where they have no dates."""
        if self.time is None:
            return None
        clock = Clock(self.time, every, between, date_format)
        codes = clock.codes(self.rows[self.time])
        return clock.periods(np.unique(codes[codes > OUTSIDE]).tolist())[0]

    def bin(
        self,
        domain: Domain,
        *,
        on_water: str = "nearest",
        date_format: str | None = None,
        periods: Periods | None = None,
    ) -> AreaCounts:
        """Return the events by area, of all levels; some of them have no exact place.

        Parameters
        ----------
        domain : Domain
        on_water : "nearest", "drop" or "error"
            What to do with events of areas that have no land: refuse them, or leave them out.
        date_format : str, optional
        periods : Periods, optional
            By which they are counted.
        """
        used = set(self.rows[_LEVEL])
        counts = {
            level: self._counted(level, domain, on_water, date_format, periods)
            for level in self.frames
            if level in used
        }
        several = list(counts.values())
        of = np.repeat(np.arange(len(several)), [one.n_areas for one in several])
        out = stack(several)
        inside = _inside([one.shapes for one in several], out.crs, of)
        widths = np.sqrt(out.shares @ domain.node_areas) / (1.0 if domain.crs is None else 1e3)
        lost: dict[str, int] = {}
        for one in several:
            lost |= {why: lost.get(why, 0) + n for why, n in one.lost.items()}
        shares = np.minimum(np.asarray(out.shares.sum(axis=0)).ravel(), 1.0)
        covered = float(shares @ domain.node_areas / domain.node_areas.sum())
        levels = Levels(tuple(counts), of, inside, widths, drawn=any(level in self.drawn for level in counts))
        return replace(out, levels=levels, lost=lost, covered=covered)

    def cells(self, level: str, domain: Domain) -> Cells:
        """Return the areas of a level, Voronoi cells being drawn on the domain's land."""
        known = level, domain.nodes_hash()
        if known not in self._cells:
            frame = self.frames[level]
            if set(frame.geometry.geom_type) <= _POINTS:
                if level not in self.drawn:
                    check_frame(frame, domain.crs is None, "places", any_kind=True)
                self._cells[known] = voronoi(frame, domain)
            else:
                self._cells[known] = Cells(read_regions(frame, domain, "places"), np.arange(len(frame)))
        return self._cells[known]

    def _counted(
        self, level: str, domain: Domain, on_water: str, date_format: str | None, periods: Periods | None
    ) -> AreaCounts:
        """Return the events of one level by area."""
        frame, of = self.cells(level, domain)
        rows = self.rows[(self.rows[_LEVEL] == level).to_numpy()]
        key, lost = _matched(rows[_KEY], self.frames[level][_KEY], len(rows))
        area = np.where(key >= 0, of[key], -1)
        lost |= {NO_LAND: int(((key >= 0) & (area < 0)).sum())}
        weight = np.ones(len(rows)) if self.weights is None else rows[self.weights].to_numpy(float)
        period, time = np.zeros(len(rows), np.int64), dict[str, Any]()
        shape: tuple[int, ...] = (len(frame),)
        if periods is not None:
            assert self.time is not None
            clock = Clock(self.time, periods, None, date_format)
            codes = clock.codes(rows[self.time])
            warning = clock.warning()
            if warning is not None:
                warn(warning)
            period, shape = np.asarray(codes), (periods.n, len(frame))
            time = {"periods": periods, "n_untimed": int((codes == UNTIMED).sum())}
            time["n_outside"] = int((codes == OUTSIDE).sum())
        used = (area >= 0) & (period >= 0)
        values = np.zeros(shape)
        np.add.at(values, (period[used], area[used]) if periods is not None else area[used], weight[used])
        counts = place_areas(frame, domain, values, frame["name"].tolist(), may_lose=True, **time)
        lost[NO_LAND] += counts.lost.get(NO_LAND, 0)
        _check_land(lost[NO_LAND], len(rows), on_water)
        return replace(counts, lost={why: n for why, n in lost.items() if n})


@validated(
    events=SOURCE,
    domain=DOMAIN,
    places=PLACES,
    key=KEYS,
    precision=NAME,
    weights=COLUMN_OR_VALUES,
    time=COLUMN_OR_VALUES,
    date_format=NAME,
    on_water=choice("nearest", "drop", "error"),
    longitude=NAME,
    latitude=NAME,
    easting=NAME,
    northing=NAME,
    layer=NAME,
)
def bin_places(
    events: Any,
    domain: Domain,
    places: Any,
    *,
    key: str | Mapping[str, str] | None = None,
    precision: str | None = None,
    weights: str | np.ndarray | None = None,
    time: str | Any = None,
    every: str | Periods | Any = None,
    between: tuple[Any, Any] | None = None,
    date_format: str | None = None,
    on_water: Literal["nearest", "drop", "error"] = "nearest",
    longitude: str | None = None,
    latitude: str | None = None,
    easting: str | None = None,
    northing: str | None = None,
    crs: Any = None,
    layer: str | None = None,
) -> AreaCounts:
    """Count events whose places are areas: of each the postcode is known, or the district.

    Parameters
    ----------
    events : DataFrame, GeoDataFrame or path
        A row for each event; it needs no coordinates where there is a key.
    domain : Domain
    places : GeoDataFrame, path, "voronoi", or a mapping of levels to these
        Polygons with a key, of which those without events count as well: nothing happened there. In place of polygons
        points with a key, around which Voronoi cells are drawn; or "voronoi": cells around the places that the events
        themselves have, of which those without events are not known. Cells end at the shore, and land without a place
        belongs to the nearest one. Several levels of precision have a name each, such as "postcode" and "district".
    key : str, or a mapping of levels to str
        The column of both tables with the key. By default the level's name. Numbers and texts are compared as texts;
        where that fails without regard to case, spaces and leading zeros.
    precision : str, optional
        The column that says at which level the place of each row is known: one of the names of `places`, or "exact" for
        those that have coordinates, which are left out here: count them with `bin_points`, and fit both.
    weights : str or array, optional
        A column or one number per row, summed in place of ones.
    time, every, between, date_format
        As for `bin_points`. An area without events in a period counts as zero.
    on_water : "nearest", "drop" or "error"
        Whether events of areas without land are refused; else they are left out, and a warning says how many.
    longitude, latitude, easting, northing, crs, layer
        Where the coordinates are, for "voronoi"; as for `bin_points`.

    Returns
    -------
    AreaCounts
        With several levels areas overlap, and every event is counted at one of them. Which level that is must not
        depend on where, within an area of the coarsest level, an event lies.

    Examples
    --------
    >>> from shapely.geometry import box
    >>> from geobgp import Domain
    >>> domain = Domain.from_polygons(box(0, 0, 4, 2), cell_size=1, crs="local")
    >>> cases = pd.DataFrame({"postcode": ["A1", "A1", "B7"]})
    >>> postcodes = gpd.GeoDataFrame({"postcode": ["A1", "B7"]}, geometry=[box(0, 0, 2, 2), box(2, 0, 4, 2)])
    >>> bin_places(cases, domain, postcodes, key="postcode").values.tolist()
    [2.0, 1.0]
    """
    named: dict[str, Any] = {"longitude": longitude, "latitude": latitude, "easting": easting, "northing": northing}
    Clock.asked(time, every, between, date_format)
    read = Places.read(
        events, places, key, precision, weights=weights, time=time, layer=layer, crs=crs, planar=domain.crs, **named
    )
    if not read.any_areas:
        raise DataError(
            f"The places of all {count(len(read.rows), 'row')} are exact.",
            option="precision",
            found=EXACT,
            remedy="Count them with bin_points.",
        )
    periods = read.periods(every, between, date_format)
    return read.bin(domain, on_water=on_water, date_format=date_format, periods=periods)


# -- reading: levels, keys, areas


def _table(events: Any, layer: str | None, texts: Collection[str]) -> Any:
    """Return the rows of events, of a text file with some columns as they are written: 01234 is no number."""
    if isinstance(events, (str, Path)) and kind_of(events) == "table":
        check_exists(events, "points")
        with driver_errors(str(events), "points"):
            form = csv_format(events)
            return next(csv_tables(events, form, dtype=dict.fromkeys(texts, str)))
    rows = read_table(events, "points", layer)
    if isinstance(rows, np.ndarray):
        rows = pd.DataFrame(rows, columns=["easting", "northing"])
    return rows.reset_index(drop=True)


def _column(rows: pd.DataFrame, name: str, values: Any) -> Any:
    """Return a column of the events, or what was given for each of them; weights are numbers of at least 0."""
    if isinstance(values, str):
        column = _keyed(rows, values, "points", name)
    else:
        column = pd.Series(np.asarray(values))
        if len(column) != len(rows):
            raise uneven(name, len(column), f"{len(rows):,}")
    if name == "weights":
        column = as_weights(column, values if isinstance(values, str) else name)
        if not (np.isfinite(column) & (column >= 0)).all():
            bad = int((~(np.isfinite(column) & (column >= 0))).sum())
            raise DataError(
                f"weights: {count(bad, 'row')} of {len(rows):,} {'has' if bad == 1 else 'have'} none or a "
                "negative one.",
                option="weights",
                found=bad,
                remedy="Give each row a number of at least 0.",
            )
        return column
    return column.to_numpy()


def _keyed(rows: Any, column: str | None, table: str, what: str = "key") -> pd.Series:
    """Return a column of a table; refuse one that is not there."""
    hidden = {_LEVEL, _KEY, _WEIGHT, _TIME, getattr(getattr(rows, "geometry", None), "name", None)}
    columns = [c for c in rows.columns if c not in hidden]
    if column is None:
        raise DataError(
            "Which column says in which place an event was?",
            option="key",
            found=None,
            remedy=f"Name one that {option('points')} and {option('places')} both have: {option('key')}.",
        )
    if column not in columns:
        raise DataError(
            f"{option(table)} has no column {column!r}; there are {listed(columns) or 'none'}.",
            option=what,
            found=column,
            remedy=f"Name one of them: {option(what)}.",
        )
    return rows[column]


def _is_voronoi(source: Any) -> bool:
    """Whether cells are to be drawn around the places of events."""
    return isinstance(source, str) and source.lower() == VORONOI


def _texts(column: pd.Series) -> np.ndarray:
    """Return keys as texts, None where there is none.

    Examples
    --------
    >>> _texts(pd.Series([1234.0, None, " 12 AB "])).tolist(), _texts(pd.Series([7, 8])).tolist()
    (['1234', None, '12 AB'], ['7', '8'])
    """

    def text(value: Any) -> str | None:
        if pd.isna(value):
            return None
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        return " ".join(str(value).split()) or None

    known = {value: text(value) for value in column.dropna().unique()}
    return np.array([known.get(value) for value in column], object)


def _loose(key: str) -> str:
    """Return a key without regard to case, spaces and leading zeros."""
    plain = "".join(key.split()).casefold()
    return plain.lstrip("0") or "0"


def _levels(rows: pd.DataFrame, places: Any, precision: str | None) -> tuple[np.ndarray, dict[str, Any]]:
    """Return the level of each row, and what its areas are read from, of those levels that there are."""
    if precision is None:
        if isinstance(places, Mapping):
            raise DataError(
                f"Places of {count(len(places), 'level')} were given, and nothing says which level a row is of.",
                option="precision",
                found=list(places),
                remedy=f"Name the column that says so: {option('precision')}.",
            )
        return np.full(len(rows), PLACE, object), {PLACE: places}
    said = _texts(_keyed(rows, precision, "points", "precision"))
    none = sum(level is None for level in said)
    if none:
        raise DataError(
            f"{count(none, 'row')} of {len(rows):,} {'does' if none == 1 else 'do'} not say how precise "
            f"{'its' if none == 1 else 'their'} place is (column {precision!r}).",
            option="precision",
            found=none,
            remedy=f"Fill the column: {EXACT!r}, or the name of a level of {option('places')}.",
        )
    found = list(dict.fromkeys(said))
    others = [level for level in found if level.lower() != EXACT]
    if not isinstance(places, Mapping):
        places = {others[0] if len(others) == 1 else PLACE: places}
    unknown = [level for level in others if level not in places]
    if unknown:
        raise DataError(
            f"The column {precision!r} has {listed(unknown, 3)}, for which there are no places; there are some for "
            f"{listed(list(places))}.",
            option="precision",
            found=unknown,
            remedy=f"Give their areas: {option('places')}. Rows with coordinates are {EXACT!r}.",
        )
    levels = np.array([EXACT if level.lower() == EXACT else level for level in said], object)
    return levels, {level: source for level, source in places.items() if level in others}


def _areas(source: Any, column: str) -> gpd.GeoDataFrame:
    """Return areas, or points, with their keys as texts, one for each key."""
    frame = read_vector(source, "places") if isinstance(source, (str, Path)) else as_frame(source, "places")
    keys = _texts(_keyed(frame, column, "places"))
    without = pd.isna(keys)
    if without.any():
        warn(
            InputWarning(
                f"{count(int(without.sum()), 'place')} of {len(keys):,} {'has' if without.sum() == 1 else 'have'} no "
                f"{column!r}, and {'is' if without.sum() == 1 else 'are'} left out: what happens there is not known.",
                option="places",
                found=int(without.sum()),
                remedy="Fill the column where events there would have been counted.",
            )
        )
    frame = gpd.GeoDataFrame({_KEY: keys[~without]}, geometry=frame.geometry.to_numpy()[~without], crs=frame.crs)
    kinds = set(frame.geometry.geom_type.dropna())
    if kinds & _POINTS and kinds - _POINTS:
        raise GeometryError(
            f"places: there are {listed(sorted(kinds))} in one table.",
            option="places",
            found=sorted(kinds),
            remedy="Give polygons, or the points of all of them.",
        )
    if frame[_KEY].duplicated().any():
        frame = merged(frame, _KEY)
    return frame.assign(name=frame[_KEY]).reset_index(drop=True)


def _coordinates(
    rows: Any, crs: pyproj.CRS | None, planar: pyproj.CRS | None, columns: Mapping[str, str | None]
) -> tuple[np.ndarray, gpd.GeoSeries]:
    """Return for each event a key that its coordinates make, None where it has none, and the points.

    Parameters
    ----------
    rows : DataFrame or GeoDataFrame
    crs, planar : pyproj.CRS, optional
        Of the events where they do not say; of eastings and northings alone.
    columns : mapping of str to str
        Names of columns with coordinates.
    """
    options = ReadOptions(crs=crs, domain_crs=planar, **columns)  # type: ignore[arg-type]
    keys, start, at = np.full(len(rows), None, object), 0, list[np.ndarray]()
    own: pyproj.CRS | None = None
    for chunk in Stream(rows, options):
        keys[start + chunk.rows] = [f"{a:.10g} {b:.10g}" for a, b in chunk.coords]
        at.append(chunk.coords)
        start, own = start + chunk.n_rows, chunk.crs
    return keys, gpd.GeoSeries(gpd.points_from_xy(*np.concatenate(at).T) if at else [], crs=own)


def _shared(keys: np.ndarray, points: gpd.GeoSeries) -> gpd.GeoDataFrame:
    """Return the places of events as points with their keys; refuse events that share none."""
    there = keys[~pd.isna(keys)].astype(str)
    places, first, times = np.unique(there, return_index=True, return_counts=True)
    share = float(times[times > 1].sum() / max(len(there), 1))
    if share <= MANY_SHARED:
        raise DataError(
            f"{percent(share)} of the {len(there):,} points share their place with others: most places are exact.",
            option="places",
            found=share,
            remedy=f"Leave {option('places')} out, or say which rows are exact: {option('precision')}.",
        )
    names = [f"place {k}" for k in range(1, len(places) + 1)]  # without the coordinates
    frame = {_KEY: places, "name": names}
    return gpd.GeoDataFrame(frame, geometry=points.iloc[first].to_numpy(), crs=points.crs)


def _matched(keys: pd.Series, known: pd.Series, n: int) -> tuple[np.ndarray, dict[str, int]]:
    """Return the number of the area of each row, -1 where there is none, and how many rows that concerns and why."""
    index = pd.Index(known)
    area, there = index.get_indexer(pd.Index(keys)), keys.notna().to_numpy()
    area[~there] = -1
    loose = pd.Index([_loose(key) for key in known])
    if (area[there] < 0).any() and loose.is_unique:
        open_ = np.flatnonzero(there & (area < 0))
        area[open_] = loose.get_indexer(pd.Index([_loose(key) for key in keys.iloc[open_]]))
    unmatched = there & (area < 0)
    lost = {"no key": int((~there).sum()), "no area has their key": int(unmatched.sum())}
    if unmatched.sum() > _MOST_UNMATCHED * max(there.sum(), 1):
        examples = list(dict.fromkeys(keys[unmatched]))
        raise DataError(
            f"{int(unmatched.sum()):,} of {count(n, 'row')} ({percent(unmatched.sum() / n)}) have a key that no area "
            f"has, such as {listed(examples[:3])}; areas have "
            f"{listed(known.iloc[:3])}.",
            option="key",
            found=examples[:_EXAMPLES],
            remedy=f"Name the columns that agree: {option('key')}.",
        )
    if not there.any():
        raise DataError(
            f"None of {count(n, 'row')} has a key.",
            option="key",
            found=0,
            remedy=f"Name the column that says in which area an event was: {option('key')}.",
        )
    if unmatched.sum() > QUIET_SHARE * n:
        times = keys[unmatched].value_counts()
        examples = list(times.index[times >= _TELLING])  # reports hold warnings, and a rare key may be one person's
        such = f", such as {listed(examples[:3])}" if examples else ""
        warn(
            DroppedPointsWarning(
                f"{int(unmatched.sum()):,} of {count(n, 'row')} ({percent(unmatched.sum() / n, 1)}) have a key that no "
                f"area has{such}, and are left out.",
                option="key",
                found=int(unmatched.sum()),
                remedy=f"Add their areas to {option('places')}, or correct the keys.",
            )
        )
    if (~there).sum() > QUIET_SHARE * n:
        warn(
            DroppedPointsWarning(
                f"{int((~there).sum()):,} of {count(n, 'row')} ({percent((~there).sum() / n, 1)}) have no key, and are "
                "left out.",
                option="key",
                found=int((~there).sum()),
                remedy="Fill the column, or count them by a coarser area.",
            )
        )
    return area, {why: k for why, k in lost.items() if k}


def _check_land(n: int, rows: int, on_water: str) -> None:
    """Refuse events of areas without land, or warn where they are more than a few."""
    text = (
        f"{count(n, 'event')} ({percent(n / max(rows, 1), 1)} of {count(rows, 'row')}) {'is' if n == 1 else 'are'} of "
    )
    remedy = f"Add their land ({option('land')}), or leave these rows out."
    if n and on_water == "error":
        raise GeometryError(f"{text}places without land of the map.", option="places", found=n, remedy=remedy)
    if n > QUIET_SHARE * rows:
        left = f"{text}places without land of the map, and left out."
        warn(DroppedPointsWarning(left, option="places", found=n, remedy=remedy))


# -- geometry: Voronoi cells on land, levels within levels


def voronoi(places: gpd.GeoDataFrame, domain: Domain) -> Cells:
    """Return the land that is nearest to each place, on its own side of closed water; land without a place joins one.

    A place on the land competes for the land that is connected with it, one off the land for all of it. A place of
    several points has the land nearest to any of them; places at the same point share it.

    Parameters
    ----------
    places : GeoDataFrame
        Points, or several of each place.
    domain : Domain
    """
    at, place = shapely.get_coordinates(np.asarray(places.geometry.to_numpy(), dtype=object), return_index=True)
    if domain.crs is not None and places.crs is not None:
        at = move(at, places.crs, domain.crs)
    at, first, point = np.unique(at, axis=0, return_index=True, return_inverse=True)
    holder = place[first]  # the first place at each point has its land
    points, parts = shapely.points(at), shapely.get_parts(domain.geometry)
    part_of, on_land = shapely.STRtree(points).query(parts, predicate="intersects")
    if not len(on_land):
        raise GeometryError(
            f"None of {count(len(points), 'place')} lies on the land.",
            option="places",
            found=len(points),
            remedy=f"Check their coordinate reference system: {option('points_crs')}.",
        )
    afloat = np.setdiff1d(np.arange(len(points)), on_land)
    owner, shapes = list[np.ndarray](), list[np.ndarray]()
    for k in np.unique(part_of):
        rivals = np.concatenate([on_land[part_of == k], afloat])
        cells = _around(at[rivals], parts[k])
        some = ~shapely.is_empty(cells)
        owner.append(rivals[some])
        shapes.append(cells[some])
    bare = np.setdiff1d(np.arange(len(parts)), part_of)
    if len(bare):
        part, nearest = shapely.STRtree(points).query_nearest(parts[bare], all_matches=False)
        owner.append(nearest)
        shapes.append(parts[bare[part]])
    cells = gpd.GeoDataFrame({"place": holder[np.concatenate(owner)]}, geometry=np.concatenate(shapes), crs=domain.crs)
    if cells["place"].duplicated().any():
        cells = merged(cells, "place")
    held = cells["place"].to_numpy()
    of = np.full(len(places), -1)
    of[held] = np.arange(len(held))
    start = np.unique(place, return_index=True)[1]
    of = np.where(of < 0, of[holder[point.ravel()[start]]], of)
    return Cells(cells.assign(name=places["name"].to_numpy()[held])[["name", "geometry"]], of)


def _around(at: np.ndarray, land: shapely.Geometry) -> np.ndarray:
    """Return the part of connected land that is nearest to each of several places, empty where it is none."""
    if len(at) == 1:
        return np.array([land], dtype=object)
    points = shapely.MultiPoint(at)
    cells = shapely.get_parts(shapely.voronoi_polygons(points, extend_to=shapely.box(*land.bounds)))
    cell, place = shapely.STRtree(shapely.points(at)).query(cells, predicate="covers")
    out = np.full(len(at), shapely.Polygon(), dtype=object)
    out[place] = cells[cell]
    shapely.prepare(land)
    cut = np.flatnonzero(~shapely.contains_properly(land, out))
    boxes = shapely.bounds(out[cut])
    near = np.array([shapely.clip_by_rect(land, *box) for box in boxes], dtype=object)
    out[cut] = shapely.intersection(shapely.make_valid(near), out[cut])
    return out


def _inside(frames: Sequence[gpd.GeoDataFrame], crs: pyproj.CRS | None, of: np.ndarray) -> sparse.csr_array:
    """Return the share of every area that lies in each of those of the coarsest level, and in none, by row."""
    base, blocks = coarsest_of(of), list[sparse.csr_array]()
    moved = [frame if crs is None else frame.to_crs(crs) for frame in frames]
    coarse = shapely.make_valid(np.asarray(moved[base].geometry.to_numpy(), dtype=object))
    for k, frame in enumerate(moved):
        n = len(frame)
        if k == base:
            blocks.append(sparse.csr_array(sparse.eye_array(n, n + 1)))
            continue
        own = shapely.make_valid(np.asarray(frame.geometry.to_numpy(), dtype=object))
        area, whole = shapely.STRtree(coarse).query(own, predicate="intersects")
        share = shapely.area(shapely.intersection(own[area], coarse[whole]))
        share = share / np.maximum(shapely.area(own)[area], 1e-300)
        share[share < _SLIVER] = 0.0
        table = sparse.coo_array((share, (area, whole)), shape=(n, len(coarse) + 1)).tocsr()
        total = np.asarray(table.sum(axis=1)).ravel()
        outside = np.where(total < 1.0 - _SLIVER, 1.0 - total, 0.0)
        table = table + sparse.coo_array((outside, (np.arange(n), np.full(n, len(coarse)))), shape=table.shape).tocsr()
        blocks.append(sparse.csr_array(sparse.diags_array(1.0 / np.maximum(total + outside, 1e-300)) @ table))
    return sparse.csr_array(sparse.vstack(blocks))


# -- points that share their places without being said to


#: Share of points on places of others from which on they are probably no exact places; and the fewest that tell.
MANY_SHARED, _FEWEST = 0.5, 100
_EXAMPLES = 5


def about_shared(at: np.ndarray, crs: pyproj.CRS | None) -> InputWarning | None:
    """Return what to say where more than half of the points share their places with others.

    Those on the fullest place are left out of account, and copies of a whole table: `about_places` speaks of them.

    Parameters
    ----------
    at : (k, 2) array
        On the plane of the map.
    crs : pyproj.CRS, optional
    """
    places, times = np.unique(at[:, 0] + 1j * at[:, 1], return_counts=True)
    if len(at) < _FEWEST or times.min() == times.max():
        return None
    others = np.delete(times, np.argmax(times))
    if others[others > 1].sum() <= MANY_SHARED * others.sum():
        return None
    share = float(times[times > 1].sum() / len(at))
    places = np.column_stack([places.real, places.imag])
    width = float(np.median(cKDTree(places).query(places, k=2)[0][:, 1])) / (1.0 if crs is None else 1e3)
    apart = f", half of them within {number(width, 2)} {'units' if crs is None else 'km'} of the next"
    return InputWarning(
        f"{percent(share)} of the {len(at):,} points share their place with others: there are {len(places):,} "
        f"places{apart}. If they are middles of postcodes or districts, the map takes them for exact places, and is "
        "surer of where events are than anybody knows.",
        option="places",
        found=share,
        remedy=(
            f"Give the areas with {option('places')} and {option('key')}, or let cells be drawn around the places: "
            f"{option('places', VORONOI)}."
        ),
    )
