"""Counts: points binned to the nodes of a domain, by period or stratum where asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import geopandas as gpd
import numpy as np
import pandas as pd
import pyproj
from scipy.special import gammaincinv

from geobgp.data.partitions import (
    OffLand,
    Parts,
    beyond_in,
    is_dask,
    is_partitioned,
    need_columns,
    other_crs,
    parts_of_files,
)
from geobgp.data.periods import OUTSIDE, UNTIMED, Clock, Periods, texts_of
from geobgp.data.points import (
    QUIET_SHARE,
    Chunk,
    Named,
    ReadOptions,
    RowGroups,
    Stream,
    argument,
    arrow_points,
    coordinate_columns,
    csv_format,
    with_unreadable,
)
from geobgp.errors import (
    DataError,
    DroppedPointsWarning,
    GeobgpError,
    GeometryError,
    InputWarning,
    option,
    warn,
)
from geobgp.files import check_exists, driver_errors, kind_of, parquet_geometry, read_vector, split_layer
from geobgp.land.crs import WGS84, as_crs, transform
from geobgp.parallel import Failed, Workers, open_workers
from geobgp.progress import ProgressLike, as_progress
from geobgp.text import count, html_table, listed, number, percent
from geobgp.validation import (
    CLIENT,
    COLUMN_OR_VALUES,
    DOMAIN,
    FLAG,
    NAME,
    PROGRESS,
    SOURCE,
    as_floats,
    choice,
    real,
    validated,
    whole,
)

if TYPE_CHECKING:
    from geobgp.land.domain import Domain
    from geobgp.progress import Stage


# -- Counts: how many points fall on each node of a domain, and what became of the rest ----------------------


#: Dropped points that are remembered.
SAMPLE = 1000
#: Fewer events than these tell next to nothing of where there are more; fewer points on one place are not told of.
FEW_EVENTS, FEWEST_ON_ONE = 10, 20
_COLUMNS = ("longitude", "latitude", "easting", "northing")


@dataclass(frozen=True, eq=False)
class Counts:
    """Points, or their weights, summed on the nodes of a domain.

    Attributes
    ----------
    values : (n_nodes,) array
        Number of points on each node, or the sum of their weights. Read-only.
    n_read : int
        Points read: ``n_used + n_dropped``. Multi-points count once for each of their points.
    n_used : int
        Points that are in `values`, those that were moved to land included.
    n_snapped : int
        Points off the land that were counted on the nearest node.
    n_dropped : int
        Points off the land that were left out.
    n_missing : int
        Rows without a point: no geometry, an empty one, or coordinates that are no numbers.
    max_snap_distance : float
        The farthest that a point was moved, in metres (units of a local domain).
    total_weight : float
        Sum of `values`.
    dropped_weight : float
        Weight of the points left out; their number where there are no weights.
    weighted : bool
        Whether weights were given.
    unit : str
        Unit of `max_snap_distance`.
    notes : tuple of str
        What was assumed in reading.
    points_crs : pyproj.CRS or None
        The CRS that the points were read in: their source's own, or the one that was given or assumed.
    coordinates : (k, 2) array or None
        Where the points lay, moved and dropped ones included, as easting and northing in the domain's CRS;
        only if `bin_points` was asked to keep them. Those that the CRS cannot show are left out.
    counted : (j, 3) array or None
        Easting, northing and weight of the points that are in `values`, those moved to land at a point of it; kept
        together with `coordinates`.
    warning : DroppedPointsWarning or None
        What `bin_points` warned of.
    nodes : str
        Whose nodes they are: `Domain.nodes_hash`; empty where that is not known.
    """

    values: np.ndarray
    n_read: int
    n_used: int
    n_snapped: int
    n_dropped: int
    n_missing: int
    max_snap_distance: float
    total_weight: float
    dropped_weight: float
    weighted: bool = False
    unit: str = "m"
    notes: tuple[str, ...] = ()
    points_crs: pyproj.CRS | None = None
    coordinates: np.ndarray | None = field(default=None, repr=False)
    counted: np.ndarray | None = field(default=None, repr=False)
    warning: DroppedPointsWarning | None = None
    nodes: str = field(default="", repr=False)

    @property
    def warnings(self) -> list[DroppedPointsWarning]:
        """All that `bin_points` warned of."""
        return [] if self.warning is None else [self.warning]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.values, dtype) if copy else np.asarray(self.values, dtype)

    def report(self) -> str:
        """Return what became of the points, in a few lines."""
        return "\n".join(f"{key}: {value}" for key, value in self.facts().items())

    def facts(self) -> dict[str, str]:
        """Return what became of the points, line by line: what each number is, and the number in words."""
        moved = f" (at most {number(self.max_snap_distance)} {self.unit})" if self.n_snapped else ""
        facts = {
            "points read": f"{self.n_read:,}",
            "used": f"{self.n_used:,}",
            "of these moved to the nearest land": f"{self.n_snapped:,}{moved}",
            "dropped, off the land": f"{self.n_dropped:,}",
            "rows without a point": f"{self.n_missing:,}",
        }
        if self.weighted:
            facts["total weight"] = f"{number(self.total_weight)} (dropped: {number(self.dropped_weight)})"
        if self.notes:
            facts["notes"] = "; ".join(self.notes)
        return facts

    def __repr__(self) -> str:
        busy = int(np.count_nonzero(self.values))
        return (
            f"Counts({self.n_used:,} of {self.n_read:,} points on {busy:,} of {len(self.values):,} nodes, "
            f"{self.n_snapped:,} moved to land, {self.n_dropped:,} dropped, {self.n_missing:,} missing)"
        )

    def _repr_html_(self) -> str:
        return html_table(self.facts().items())


@validated(
    points=SOURCE,
    domain=DOMAIN,
    weights=COLUMN_OR_VALUES,
    time=COLUMN_OR_VALUES,
    date_format=NAME,
    client=CLIENT,
    on_water=choice("nearest", "drop", "error"),
    max_snap=real(least=0.0, infinite=True),
    chunksize=whole(1),
    longitude=NAME,
    latitude=NAME,
    easting=NAME,
    northing=NAME,
    layer=NAME,
    keep_coordinates=FLAG,
    progress=PROGRESS,
)
def bin_points(
    points: Any,
    domain: Domain,
    *,
    weights: str | np.ndarray | None = None,
    time: str | Any = None,
    every: str | Periods | Any = None,
    between: tuple[Any, Any] | None = None,
    date_format: str | None = None,
    on_water: str = "nearest",
    max_snap: float | None = None,
    chunksize: int = 200_000,
    longitude: str | None = None,
    latitude: str | None = None,
    easting: str | None = None,
    northing: str | None = None,
    crs: Any = None,
    layer: str | None = None,
    keep_coordinates: bool = False,
    client: Any = None,
    progress: ProgressLike = False,
) -> Counts:
    """Count points on the nodes of a domain, each on its own side of every river.

    Parameters
    ----------
    points : GeoDataFrame, GeoSeries, DataFrame, (k, 2) array, path, iterable, or Dask collection
        Points in any CRS. A path is a CSV file, GeoParquet or anything that OGR reads, and is streamed; a folder of
        GeoParquet files, or a pattern such as ``bites/*.parquet``, is read row group by row group, without those
        that lie off the land by their own statistics (they are counted as dropped). An iterable gives tables or
        arrays, and only one is held at a time. Of a dask DataFrame or a dask-geopandas GeoDataFrame each partition is
        counted where it is, and only counts come together. Columns of a CSV file or a DataFrame are recognised by
        name (longitude/latitude, lon/lat, easting/northing, x/y). An array holds coordinates in the domain's CRS, or
        in `crs`.
    domain : Domain
    weights : str or array, optional
        A column, or a number for each row, to be summed in place of ones; none may be negative.
    time : str or array, optional
        A column of dates, or a date for each row: counts are then by period, a `PeriodCounts`. Dates, datetimes, ISO
        strings, years, months ("2020-03") and weeks ("2020-W05", ISO 8601; "2020-EW05", from Sunday as the CDC
        counts them); of a time with a zone the date that the clock showed there. Or plain numbers, with
        `every` a list of numbers.
    every : "day", "week", "epiweek", "month", "quarter", "year", list of edges, or Periods
        How long periods are. Those between the first and the last event that have none stay in.
    between : (first, last), optional
        The periods to count, such as ``("2015-01", "2020-12")``; by default from that of the first event to that of the
        last. Events outside are left out and told.
    date_format : str, optional
        How dates are written that are not year first: "%d/%m/%Y" for 31/12/2020. Without it such a date decides for
        all whether day or month comes first; where none does, geobgp asks.
    on_water : {"nearest", "drop", "error"}
        What to do with points off the land: count them on the nearest node that is within `max_snap`, leave
        them out, or refuse.
    max_snap : float, optional
        The farthest that a point is moved, in metres; two cells unless given.
    chunksize : int
        Rows that are handled at a time.
    longitude, latitude, easting, northing : str, optional
        Names of columns, where they are not recognised.
    crs : optional
        CRS of the points where their source does not say.
    layer : str, optional
        The layer of a file that has several.
    keep_coordinates : bool
        Keep where the points lay in `Counts.coordinates`, to be shown on a map. They may be patients' homes.
    client : distributed.Client or str, optional
        The Dask client, or the address of the scheduler, whose workers count the parts of a folder or of a Dask
        collection; by default the current client. Without one they are counted here, one after the other.
    progress : bool, Progress, Stage or callable
        Tell of it on standard error, or to whoever is given; see `geobgp.progress`.

    Returns
    -------
    Counts
        ``values.sum() + n_dropped == n_read`` where there are no weights. With `time` a `PeriodCounts`, with values by
        period and node.

    Warns
    -----
    DroppedPointsWarning
        When more than 1 % of the points are dropped, with where they lie if that is nearly all of them.

    Examples
    --------
    >>> from shapely.geometry import box
    >>> from geobgp import Domain
    >>> domain = Domain.from_polygons(box(0, 0, 4, 2), cell_size=1, crs="local")
    >>> counts = bin_points(np.array([[0.5, 0.5], [0.6, 0.4], [3.2, -0.7]]), domain)
    >>> counts.n_used, counts.n_snapped, round(counts.max_snap_distance, 6)
    (3, 1, 0.7)
    """
    reach = 2 * domain.cell_size if max_snap is None else max_snap
    names = dict(zip(_COLUMNS, (longitude, latitude, easting, northing), strict=True))
    for pair in (("longitude", "latitude"), ("easting", "northing")):
        if (names[pair[0]] is None) != (names[pair[1]] is None):
            both = " and ".join(argument(name) for name in pair)
            raise GeometryError(f"points: name both columns, {both}, or neither.", option=pair[0])
    options = ReadOptions(
        weights=weights if isinstance(weights, str) else None,
        time=time if isinstance(time, str) else None,
        crs=None if crs is None else as_crs(crs),
        domain_crs=domain.crs,
        layer=layer,
        chunksize=chunksize,
        **names,
    )
    given = None if isinstance(weights, str) else weights
    clock = Clock.asked(time, every, between, date_format)
    tally: Tally
    if clock is None:
        tally = Tally(domain, on_water, reach, given, keep_coordinates)
    else:
        tally = PeriodTally(domain, on_water, reach, given, keep_coordinates, clock)
    with as_progress(progress).stage("points") as stage:
        if is_partitioned(points):
            notes = tally_parts(tally, points, options, client, stage)
        else:
            stream = Stream(points, options)
            for chunk in stream:
                tally.add(chunk)
                stage.step(tally.rows, stream.total)
            notes = tuple(stream.notes)
        counts = tally.result(notes)
        stage.note(f"{counts.n_used:,} used")
    for warning in counts.warnings:
        warn(warning)
    return counts


class Tally:
    """The running sums of `bin_points`, of all points or of a part of them."""

    def __init__(self, domain: Domain, on_water: str, reach: float, weights: Any, keep: bool) -> None:
        self.domain, self.on_water, self.reach = domain, on_water, reach
        self.given = None if weights is None else as_floats("weights", weights).ravel()
        self.weighted = self.given is not None
        self.values = np.zeros(domain.n_nodes)
        self.rows = self.read = self.snapped = self.dropped = self.missing = self.out_of_time = 0
        self.farthest = self.lost = 0.0
        self.unit = "m" if domain.crs is not None else domain.length_unit[1]
        self.strays: np.ndarray = np.empty((0, 2))  # some of the dropped points, as they were read
        self.stray_crs: pyproj.CRS | None = None
        self.points_crs: pyproj.CRS | None = None
        self.kept: list[np.ndarray] | None = [] if keep else None
        self.placed: list[np.ndarray] = []

    def add(self, chunk: Chunk) -> None:
        """Add the points of a chunk."""
        weights = self._weights(chunk)
        coords = transform(chunk.coords, chunk.crs, self.domain.crs)
        self.points_crs = self.points_crs or chunk.crs
        if self.kept is not None:
            self.kept.append(coords[np.isfinite(coords).all(axis=1)])
        node = np.asarray(self.domain.node_at(coords))
        on_water = node < 0
        off = np.flatnonzero(on_water)
        if len(off) and self.on_water == "error":
            self._refuse(off, coords, chunk)
        if len(off) and self.on_water == "nearest":
            found, distance = self._nearest(coords[off])
            near = found >= 0
            node[off[near]] = found[near]
            self.snapped += int(near.sum())
            self.farthest = max(self.farthest, float(distance[near].max(initial=0.0)))
            off = off[~near]
        used = np.ones(len(node), bool)
        used[off] = False
        mine = None if weights is None else weights[used]
        if len(off):
            node = node[used]
            self.lost += float(len(off) if weights is None else weights[off].sum())
            self.dropped += len(off)
            if len(self.strays) < SAMPLE:
                self.stray_crs = chunk.crs
                self.strays = np.concatenate([self.strays, chunk.coords[off][:SAMPLE]])[:SAMPLE]
        if self.kept is not None:
            place = np.where(on_water[used, None], self.domain.node_points[node], coords[used])
            self.placed.append(np.column_stack([place, np.ones(len(node)) if mine is None else mine]))
        self._sum(node, mine, used)
        self.read += len(coords)
        self.missing += chunk.n_missing
        self.rows += chunk.n_rows

    def _values(self) -> np.ndarray:
        return self.values

    def _counts(self, **known: Any) -> Counts:
        return Counts(**known)

    def _counted(self) -> np.ndarray:
        return np.concatenate([np.empty((0, 3)), *self.placed])

    def _sum(self, node: np.ndarray, weights: np.ndarray | None, used: np.ndarray) -> None:
        """Add the points that are `used`, on their nodes."""
        self.values += np.bincount(node, weights, minlength=self.domain.n_nodes)

    def _nearest(self, coords: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if self.reach == 0:
            node = np.asarray(self.domain.node_at(coords))
            return node, np.where(node < 0, np.inf, 0.0)
        return self.domain.nearest(coords, self.reach)

    def _weights(self, chunk: Chunk) -> np.ndarray | None:
        """Return the weight of each point of a chunk."""
        weights = chunk.weights
        if self.given is not None:
            weights = self.given[self.rows : self.rows + chunk.n_rows]
            if len(weights) < chunk.n_rows:
                raise uneven("weights", len(self.given), f"at least {self.rows + chunk.n_rows:,}")
        if weights is None:
            return None
        self.weighted = True
        weights = weights[chunk.rows]
        self.check_weights(weights, chunk.rows)
        return weights

    def check_weights(self, weights: np.ndarray, rows: np.ndarray) -> None:
        """Refuse weights of some rows that cannot be."""
        with np.errstate(invalid="ignore"):
            bad = ~(weights >= 0) | np.isinf(weights)
        if bad.any():
            row = self.rows + int(rows[bad][0])
            raise DataError(
                f"weights: {int(bad.sum()):,} are negative, missing or not finite, the first "
                f"{weights[bad][0]:g} in row {row:,} (counted from 0).",
                option="weights",
                found=float(weights[bad][0]),
                remedy="Weights must be 0 or more.",
            )

    def _refuse(self, off: np.ndarray, coords: np.ndarray, chunk: Chunk) -> None:
        row = self.rows + int(chunk.rows[off][0])
        _, distance = self._nearest(coords[off][:SAMPLE])
        near = (
            f"{percent(np.isfinite(distance).mean())} of these within {number(self.reach)} {self.unit} of it"
        )
        raise GeometryError(
            f"{len(off):,} of the {self.read + len(coords):,} points read so far lie off the land ({near}), "
            f"the first in row {row:,} (counted from 0).",
            option="on_water",
            found=len(off),
            remedy=(
                f"Use {option('on_water', 'nearest')} to count them on the nearest land or "
                f"{option('on_water', 'drop')} to leave them out."
            ),
        )

    def result(self, notes: tuple[str, ...]) -> Counts:
        """Return what was counted."""
        if self.given is not None and len(self.given) != self.rows:
            raise uneven("weights", len(self.given), f"{self.rows:,}")
        values = self._values()
        values.setflags(write=False)
        counts = self._counts(
            values=values,
            n_read=self.read,
            n_used=self.read - self.dropped - self.out_of_time,
            n_snapped=self.snapped,
            n_dropped=self.dropped,
            n_missing=self.missing,
            max_snap_distance=self.farthest,
            total_weight=float(values.sum()),
            dropped_weight=self.lost,
            weighted=self.weighted,
            unit=self.unit,
            notes=notes,
            points_crs=self.points_crs,
            coordinates=None if self.kept is None else np.concatenate([np.empty((0, 2)), *self.kept]),
            counted=None if self.kept is None else self._counted(),
            nodes=self.domain.nodes_hash(),
        )
        return replace(counts, warning=with_unreadable(self._warning(counts), self.missing, self.read))

    def _warning(self, counts: Counts) -> DroppedPointsWarning | None:
        """Say how many points were dropped; if nearly all, where they are and what may be wrong."""
        if counts.n_read == 0:
            rows = f"{counts.n_missing:,} rows without a point"
            return DroppedPointsWarning(f"No points were read ({rows}): all counts are zero.", found=0)
        share = counts.n_dropped / counts.n_read
        if share <= QUIET_SHARE:
            return None
        text = (
            f"{counts.n_dropped:,} of {counts.n_read:,} points ({percent(share, 1)}) lie off the land "
            "and are dropped"
        )
        if self.on_water == "nearest":
            text += f", more than {number(self.reach)} {self.unit} from it"
        if share < 0.5:
            more = f"raise {option('max_snap')}"
            if self.on_water != "nearest":
                more = f"use {option('on_water', 'nearest')}"
            remedy = f"Check them on a map, or {more}."
            return DroppedPointsWarning(f"{text}.", option="on_water", found=counts.n_dropped, remedy=remedy)
        place = WGS84 if self.domain.crs is not None else None
        here = self.strays if place is None else _to_degrees(self.strays, self.stray_crs)
        west, south, east, north = self.domain.grid.bounds
        edge = np.array([(west, south), (east, north), (west, north), (east, south)])
        there = edge if place is None else _to_degrees(edge, self.domain.crs)
        text += f". The points lie in {_extent(here, place)}, the domain in {_extent(there, place)}."
        swapped = transform(self.strays[:, ::-1], self.stray_crs, self.domain.crs)
        hit = float((self._nearest(swapped)[0] >= 0).mean())
        remedy = f"Check the CRS of the points ({argument('points_crs', 'crs')}) and of the land."
        if hit > 0.5:
            first, second, third, fourth = (argument(name) for name in _COLUMNS)
            text += f" With the two coordinates swapped {percent(hit)} of them would lie on the land."
            remedy = f"Swap them, or name the columns with {first} and {second} ({third} and {fourth})."
        return DroppedPointsWarning(text, option="points", found=counts.n_dropped, remedy=remedy)


def about_few(n: float, what: str = "points") -> InputWarning | None:
    """Return what to say where there are so few events that a map cannot be learned from them.

    Parameters
    ----------
    n : float
    what : str
        The option that they are of: "points", "areas", "cases", "controls".

    Examples
    --------
    >>> str(about_few(3)).split(".")[0], about_few(30)
    ('There are 3 events', None)
    """
    if not 0 < n < FEW_EVENTS:
        return None
    low, high = gammaincinv(n + 0.5, [0.05, 0.95]) / n
    things = what if what in ("cases", "controls") else "events"
    how = f"is 1 {things[:-1]}" if n == 1 else f"are {number(n, 3)} {things}"
    return InputWarning(
        f"There {how}. From so few the average is learned to within {number(low, 2)} to {number(high, 2)} times its "
        "estimate (90 %), and next to nothing of where there are more: what the map shows of that is the prior's.",
        option=what,
        found=n,
        remedy="Report the average and its interval, and not the map; or add years, or neighbouring land.",
    )


def about_places(places: np.ndarray, what: str = "points") -> InputWarning | None:
    """Return what to say where far more points than elsewhere lie on exactly one place, or all are there several times.

    Parameters
    ----------
    places : (k, 2) array
    what : str
        The option that they are of.

    Examples
    --------
    >>> places = np.vstack([np.full((300, 2), 1.0), np.random.default_rng(1).uniform(size=(700, 2))])
    >>> str(about_places(places)).split(":")[0]
    '300 of 1,000 points (30 %) lie on exactly one place'
    """
    if len(places) < FEWEST_ON_ONE:
        return None
    times = np.sort(np.unique(places[:, 0] + 1j * places[:, 1], return_counts=True)[1])
    most, others = int(times[-1]), times[:-1]
    remedy = "Look at these rows, and leave out those that are repeated, or whose place is not known."
    if len(others) >= FEWEST_ON_ONE and times[0] == most > 1:
        return InputWarning(
            f"Every place is there exactly {most} times: {len(places):,} {what} on {len(times):,} places. Was the "
            f"table put together from {most} copies? They are counted as they are.",
            option=what,
            found=most,
            remedy=remedy,
        )
    usual = float(np.percentile(others, 95)) if len(others) else 1.0
    if most < max(FEWEST_ON_ONE, 0.05 * len(places), 5.0 * usual):
        return None
    return InputWarning(
        f"{most:,} of {len(places):,} {what} ({percent(most / len(places))}) lie on exactly one place: repeated rows, "
        "an institution, or where addresses are put that were not found? They are counted as they are.",
        option=what,
        found=most,
        remedy=remedy,
    )


def check_nodes(counts: Any, domain: Domain) -> None:
    """Refuse counts that are of the nodes of another domain, be they as many."""
    several = counts if isinstance(counts, (list, tuple)) else [counts]
    theirs = {getattr(one, "nodes", "") for one in several} - {""}
    if theirs and theirs != {domain.nodes_hash()}:
        raise DataError(
            f"The counts are of the nodes of another domain, not of these {domain.n_nodes:,}.",
            option="counts",
            found=len(theirs),
            remedy="Count on the domain of the basis: bin_points(points, basis.domain), or bin_areas.",
        )


def uneven(what: str, n: int, rows: str, things: str = "numbers") -> DataError:
    """Return what to say of an array that does not fit the rows of points."""
    return DataError(
        f"{what}: {n:,} {things} for {rows} rows of points.",
        option=what,
        found=n,
        remedy="Give one for each row.",
    )


def _to_degrees(coords: np.ndarray, crs: pyproj.CRS | None) -> np.ndarray:
    if crs is None or crs.is_geographic:
        return coords
    return transform(coords, crs, WGS84)


def _extent(coords: np.ndarray, place: pyproj.CRS | None) -> str:
    coords = coords[np.isfinite(coords).all(axis=1)]
    if len(coords) == 0:
        return "no place that the CRS can show"
    (a0, b0), (a1, b1) = coords.min(axis=0), coords.max(axis=0)
    first, second = ("longitude", "latitude") if place is not None else ("easting", "northing")
    return f"{first} {a0:.5g} to {a1:.5g} and {second} {b0:.5g} to {b1:.5g}"


# -- Counts by period: how many points fall on each node in each period, and what became of the rest ---------


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


# -- Partitions: points that come in many parts, each counted by itself, and only the counts brought together --


@dataclass(frozen=True, eq=False)
class CountJob:
    """What every part is counted with.

    Attributes
    ----------
    tally : Tally
        An empty one, with the domain and what to do with points off the land.
    options : Options
    named : (column, column, CRS) or None
    crs : pyproj.CRS or None
        The CRS that geometries must be in.
    """

    tally: Tally
    options: ReadOptions
    named: Named | None
    crs: pyproj.CRS | None


def tally_parts(
    tally: Tally, points: Any, options: ReadOptions, client: Any, stage: Stage
) -> tuple[str, ...]:
    """Count every part of the points and add all to `tally`; return what was assumed in reading.

    Parameters
    ----------
    tally : Tally
        Empty; it says what becomes of points off the land.
    points : Dask collection, folder or pattern
    options : Options
    client
        As for `open_workers`; without one the parts are counted here, one after the other.
    stage : Stage
    """
    if options.time is not None or type(tally) is not Tally:
        raise DataError(
            "Points in many parts are counted as a whole, not by period.",
            option="time",
            remedy=f"Leave {option('time')} out, or give one table or file.",
        )
    if tally.given is not None:
        raise DataError(
            f"weights: {len(tally.given):,} numbers cannot be matched with the rows of points in parts.",
            option="weights",
            found=len(tally.given),
            remedy="Name a column of the points.",
        )
    with open_workers(client, 1) as workers:
        parts = find_parts(points, options, tally, workers)
        job = workers.share(CountJob(empty_like(tally), options, parts.named, parts.crs))
        step = _shown(stage, parts.n_rows)
        total = total_of(parts, points, workers, count_part, merge, job, step)
    if total is not None:
        merge(tally, total)
    return parts.notes


def total_of(
    parts: Parts, points: Any, workers: Workers, function: Any, combine: Any, job: Any, step: Any
) -> Any:
    """Return `function` of each part, combined; a partition that is not as its collection says is named.

    Parameters
    ----------
    parts : Parts
        Those of `points`.
    workers, function, combine, step
        As for `Workers.total`.
    job
        What the workers share, as they do.
    """
    try:
        return workers.total(function, parts.named_items(), combine, job, step=step)
    except GeobgpError:
        raise
    except (KeyError, ValueError, TypeError) as error:
        if not is_dask(points):
            raise
        if isinstance(
            error, KeyError
        ):  # Dask could not pick the columns of a partition: which one says so itself
            whole = replace(parts, items=list(points.to_delayed()))
            with suppress(KeyError):
                return workers.total(function, whole.named_items(), combine, job, step=step)
        raise _not_made(parts, workers) or error from error


def _shown(stage: Stage, n_rows: int | None) -> Any:
    """Return the way to tell of progress: in rows where their number is known, else in parts."""
    if n_rows is None:
        return stage.step
    return lambda done, total: stage.step(n_rows * done // max(total, 1), n_rows)


def count_part(part: tuple[Any, str], job: CountJob) -> Tally:
    """Return the counts of one part, without the domain; errors say which part it was."""
    item, name = part
    tally = empty_like(job.tally)
    try:
        if isinstance(item, OffLand):
            _skip(tally, item, job.options.weights)
        else:
            _check_part(item, job)
            for chunk in Stream(item, job.options, job.named):
                tally.add(chunk)
    except GeobgpError as error:
        error.message = f"points, {name}: {error.message.removeprefix('points: ')}"
        raise
    tally.domain = None  # type: ignore[assignment]  # the sums alone are light enough to be sent
    return tally


def _not_made(parts: Parts, workers: Workers) -> DataError | None:
    """Return the error of a partition that Dask cannot make, in Dask's own words; None if it makes all."""
    for k, found in workers.run(_made, parts.items):
        if isinstance(found, Failed):
            return DataError(
                f"points, {parts.names[k]}: Dask cannot make it: {' '.join(str(found.error).split())}",
                option="points",
                found=k,
                remedy="Every partition must have the columns that its collection says there are.",
            )
    return None


def _made(part: Any) -> None:
    """Have a partition made, and do nothing with it."""
    if hasattr(part, "compute"):
        part.compute(scheduler="synchronous")


# -- sums


def empty_like(tally: Tally) -> Tally:
    """Return a tally without points, to count a part of them with."""
    return Tally(tally.domain, tally.on_water, tally.reach, None, tally.kept is not None)


def merge(tally: Tally, other: Tally) -> Tally:
    """Add the sums of points that come after those of a tally, and return it."""
    tally.values = tally.values + other.values
    for name in ("rows", "read", "snapped", "dropped", "missing", "lost"):
        setattr(tally, name, getattr(tally, name) + getattr(other, name))
    tally.farthest = max(tally.farthest, other.farthest)
    tally.weighted |= other.weighted
    tally.points_crs = tally.points_crs or other.points_crs
    _stray(tally, other.strays, other.stray_crs)
    if tally.kept is not None and other.kept is not None:
        tally.kept += other.kept
        tally.placed += other.placed
    return tally


def _stray(tally: Tally, coords: np.ndarray, crs: Any) -> None:
    if len(coords) and len(tally.strays) < SAMPLE:
        tally.stray_crs = crs
        tally.strays = np.concatenate([tally.strays, coords])[:SAMPLE]


def _skip(tally: Tally, off: OffLand, column: str | None) -> None:
    """Count rows as dropped of which only the weights, if there are any, need to be read."""
    lost = float(off.rows - off.missing)
    if column is not None:
        weights = np.concatenate(
            [b.column(0).to_numpy(zero_copy_only=False) for b in off.read.batches(1 << 20, [column])]
        )
        tally.check_weights(weights.astype(float), np.arange(off.rows))
        lost, tally.weighted = float(weights.sum()), True
    tally.rows += off.rows
    tally.missing += off.missing
    tally.read += off.rows - off.missing
    tally.dropped += off.rows - off.missing
    tally.lost += lost
    tally.points_crs = tally.points_crs or off.crs
    _stray(tally, off.corners, off.crs)


# -- parts


def find_parts(
    points: Any, options: ReadOptions, tally: Tally, workers: Workers, by: Sequence[str] = ()
) -> Parts:
    """Return the parts of points, with the columns to be read settled for all of them; labels `by` among these."""
    if is_dask(points):
        return _of_dask(points, options, workers, by)
    return parts_of_files(points, options, tally, workers, by)


def _check_part(table: Any, job: CountJob) -> None:
    """Refuse a table in another CRS than the collection said, or without geometries where it has them."""
    if isinstance(table, RowGroups) or job.named is not None:
        return
    if not isinstance(table, gpd.GeoDataFrame | gpd.GeoSeries):
        raise GeometryError(
            f"there are no geometries, only {listed(getattr(table, 'columns', []))}.", option="points"
        )
    if table.crs != job.crs:
        raise other_crs(table.crs, job.crs, "the collection")


def _of_dask(points: Any, options: ReadOptions, workers: Workers, by: Sequence[str]) -> Parts:
    meta = getattr(points, "_meta", points)
    columns, named, crs = None, None, None
    notes: tuple[str, ...] = ()
    if isinstance(meta, gpd.GeoSeries):
        crs = meta.crs
    elif isinstance(meta, pd.DataFrame):
        wanted = need_columns(options, by, meta.columns, "the points")
        if isinstance(meta, gpd.GeoDataFrame) and meta.active_geometry_name is not None:
            columns, crs = [*wanted, meta.geometry.name], meta.crs
        else:
            named, notes = coordinate_columns(meta.columns, options, beyond_in(points, workers))
            columns = list(dict.fromkeys([*wanted, *named[:2]]))
    else:
        raise GeometryError(
            f"points: a Dask collection of {type(meta).__name__}; expected tables with coordinates or geometries.",
            option="points",
            remedy="Give a dask DataFrame or a dask-geopandas GeoDataFrame.",
        )
    items = list((points if columns is None else points[columns]).to_delayed())
    n = len(items)
    names = [f"partition {k} of {n:,} (counted from 0)" for k in range(n)]
    return Parts(items, names, named, crs, notes, None)


# -- Strata: points counted on the nodes of a domain for each value of one or several columns, in one pass ---


#: Values of the columns that make a stratum.
Key = tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class StrataCounts(Mapping[str, Counts]):
    """Counts by stratum: a mapping of names to `Counts`.

    Attributes
    ----------
    by : tuple of str
        The columns.
    labels : DataFrame
        By name of the stratum, its value of each column.
    n_unlabelled : int
        Rows without a value in one of the columns: they are in no stratum.
    """

    by: tuple[str, ...]
    labels: pd.DataFrame
    n_unlabelled: int
    _counts: dict[str, Counts]

    def __getitem__(self, name: str) -> Counts:
        return self._counts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._counts)

    def __len__(self) -> int:
        return len(self._counts)


def bin_strata(
    points: Any,
    domain: Domain,
    by: str | Sequence[str],
    *,
    weights: str | None = None,
    on_water: str = "nearest",
    max_snap: float | None = None,
    chunksize: int = 200_000,
    longitude: str | None = None,
    latitude: str | None = None,
    easting: str | None = None,
    northing: str | None = None,
    crs: Any = None,
    layer: str | None = None,
    client: Any = None,
    progress: ProgressLike = False,
) -> StrataCounts:
    """Count points on the nodes of a domain, for each value of a column (or of several together) by itself.

    Parameters
    ----------
    points : GeoDataFrame, DataFrame, path, Dask collection, folder or pattern of GeoParquet files
    domain : Domain
    by : str or sequence of str
        Columns.
    weights, on_water, max_snap, chunksize, longitude, latitude, easting, northing, crs, layer, client, progress
        As for `bin_points`.

    Examples
    --------
    >>> import shapely
    >>> from geobgp import Domain
    >>> domain = Domain.from_polygons(shapely.box(0, 0, 4, 2), cell_size=1, crs="local")
    >>> table = pd.DataFrame({"easting": [0.5, 1.5, 3.5], "northing": [1.0, 1.0, 1.0], "age": ["old", "old", "young"]})
    >>> {name: counts.n_used for name, counts in bin_strata(table, domain, "age").items()}
    {'old': 2, 'young': 1}
    """
    columns = (by,) if isinstance(by, str) else tuple(by)
    if not columns:
        raise DataError(f"{option('by')} names no column.", option="by")
    options = ReadOptions(
        weights=weights, longitude=longitude, latitude=latitude, easting=easting, northing=northing,
        crs=None if crs is None else as_crs(crs), domain_crs=domain.crs, layer=layer, chunksize=int(chunksize),
    )  # fmt: skip
    reach = 2 * domain.cell_size if max_snap is None else float(max_snap)
    tally = Tally(domain, on_water, reach, None, False)
    with as_progress(progress).stage("strata") as stage, open_workers(client, 1) as workers:
        if is_partitioned(points):
            parts = find_parts(points, options, tally, workers, columns)
            job = workers.share(_Job(tally, options, columns, parts.named))
            found = total_of(parts, points, workers, _count, _merged, job, stage.step) or _Sums({}, 0)
            notes = parts.notes
        else:
            named, notes = _settled(points, options, columns)
            found = _count((points, ""), _Job(tally, options, columns, named))
        stage.note(count(len(found.tallies), "stratum", "strata"))
    return _named(found, domain, columns, notes)


@dataclass(frozen=True, eq=False)
class _Job:
    """What every table is counted with."""

    tally: Tally
    options: ReadOptions
    by: tuple[str, ...]
    named: Named | None


@dataclass(eq=False)
class _Sums:
    """Tallies by stratum, and rows of none."""

    tallies: dict[Key, Tally]
    unlabelled: int


def _count(part: tuple[Any, str], job: _Job) -> _Sums:
    """Return the tallies of one part, without the domain."""
    out = _Sums({}, 0)
    try:
        for table in _tables(part[0], job):
            need_strata(job.by, table.columns)
            known = table[list(job.by)].notna().all(axis=1).to_numpy()
            out.unlabelled += int((~known).sum())
            some = table[known]
            groups = some.groupby(list(job.by), observed=True, sort=False).indices
            for key, rows in groups.items():
                key = key if isinstance(key, tuple) else (key,)
                tally = out.tallies.setdefault(key, empty_like(job.tally))
                for chunk in Stream(some.iloc[rows], job.options, job.named):
                    tally.add(chunk)
    except GeobgpError as error:
        if part[1]:
            error.message = f"points, {part[1]}: {error.message.removeprefix('points: ')}"
        raise
    for tally in out.tallies.values():
        tally.domain = None  # type: ignore[assignment]
    return out


def _merged(first: _Sums, second: _Sums) -> _Sums:
    for key, tally in second.tallies.items():
        first.tallies[key] = merge(first.tallies[key], tally) if key in first.tallies else tally
    first.unlabelled += second.unlabelled
    return first


def _named(found: _Sums, domain: Domain, by: tuple[str, ...], notes: tuple[str, ...]) -> StrataCounts:
    """Return the counts under the names of their strata, these in order."""
    together: dict[str, tuple[Key, Tally]] = {}
    for key in sorted(found.tallies, key=lambda key: tuple(map(_sortable, key))):
        name, tally = ", ".join(map(_text, key)), found.tallies[key]
        together[name] = (key, merge(together[name][1], tally) if name in together else tally)
    rows = sum(tally.rows for _, tally in together.values())
    if len(together) > 50 and 2 * len(together) > rows:
        raise DataError(
            f"{option('by')}: {listed(by)} makes {len(together):,} strata of {count(rows, 'row')}.",
            option="by",
            found=len(together),
            remedy="Name columns with few values; one that numbers the rows is none of these.",
        )
    if found.unlabelled:
        warn(
            DroppedPointsWarning(
                f"{found.unlabelled:,} of {count(rows + found.unlabelled, 'row')} have no value in {listed(by)}, and "
                "are in no stratum.",
                option="by",
                found=found.unlabelled,
                remedy="Give them one to have them mapped.",
            )
        )
    counts = {}
    for name, (_, tally) in together.items():
        tally.domain = domain
        counts[name] = tally.result(notes)
    labels = pd.DataFrame([key for key, _ in together.values()], index=list(together), columns=list(by))
    return StrataCounts(by, labels, found.unlabelled, counts)


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float | np.floating) else str(value)


def _sortable(value: Any) -> tuple[bool, Any, str]:
    """Return numbers before words, each in their order."""
    is_number = isinstance(value, int | float | np.number)
    return not is_number, float(value) if is_number else 0.0, str(value)


def need_strata(by: Sequence[str], columns: Any) -> None:
    """Refuse points without the columns that make the strata."""
    lacking = [name for name in by if name not in columns]
    if lacking:
        raise DataError(
            f"{option('by')}: there is no column {listed(lacking)}; there are {listed(columns)}.",
            option="by",
            found=list(map(str, columns)),
            remedy="Name columns of the points.",
        )


# -- tables


def _settled(points: Any, options: ReadOptions, by: tuple[str, ...]) -> tuple[Named | None, tuple[str, ...]]:
    """Return the columns of the coordinates of points in one piece, None where these are geometries."""
    if isinstance(points, str | Path):
        path = split_layer(str(points))[0]
        check_exists(path, "points")
        if kind_of(path) == "parquet":
            from pyarrow import parquet

            with driver_errors(path, "points"):
                file = parquet.ParquetFile(path)
            need_strata(by, file.schema_arrow.names)
            if parquet_geometry(file.metadata)[0] is not None:
                return None, ()
            head = next(RowGroups(path).batches(1000, None)).to_pandas()
        elif kind_of(path) == "table":
            with driver_errors(path, "points"):
                head = pd.read_csv(path, nrows=100, **csv_format(path))
        else:
            return None, ()
    elif isinstance(points, gpd.GeoDataFrame):
        return None, ()
    elif isinstance(points, pd.DataFrame):
        head = points
    else:
        raise DataError(
            f"Strata need a table with the column {listed(by)}; found points as {type(points).__name__}.",
            option="points",
            found=type(points).__name__,
            remedy="Give a GeoDataFrame, a DataFrame, a file or a Dask collection.",
        )
    need_strata(by, head.columns)
    return coordinate_columns(head.columns, options, lambda a, b: _beyond_degrees(head, a, b))


def _beyond_degrees(head: pd.DataFrame, first: Any, second: Any) -> bool:
    x, y = (pd.to_numeric(head[name], errors="coerce").abs() for name in (first, second))
    return bool((x > 360).any() or (y > 90).any())


def _tables(item: Any, job: _Job) -> Iterator[Any]:
    """Yield the rows of a part as tables, with no more columns than are needed."""
    more = [*job.by, *([] if job.options.weights is None else [job.options.weights])]
    if isinstance(item, RowGroups):
        yield from _row_groups(item, more, job)
    elif not isinstance(item, str | Path):
        yield item
    else:
        path = split_layer(str(item), job.options.layer)[0]
        if kind_of(path) == "parquet":
            yield from _row_groups(RowGroups(path), more, job)
        elif kind_of(path) == "table":
            wanted = {*more, *(job.named or ())[:2]}
            with driver_errors(path, "points"):
                yield from pd.read_csv(
                    path,
                    usecols=lambda name: name in wanted,
                    chunksize=job.options.chunksize,
                    **csv_format(path),
                )
        else:
            table = read_vector(item, "points", job.options.layer)
            need_strata(job.by, table.columns)
            yield table


def _row_groups(source: RowGroups, more: list[str], job: _Job) -> Iterator[Any]:
    from pyarrow import parquet

    column, about = parquet_geometry(parquet.read_metadata(source.path))
    if column is None:
        for batch in source.batches(
            job.options.chunksize, list(dict.fromkeys([*(job.named or ())[:2], *more]))
        ):
            yield batch.to_pandas()
        return
    crs = None if about["crs"] is None else as_crs(about["crs"])
    for batch in source.batches(job.options.chunksize, [column, *more]):
        values = arrow_points(batch.column(column), about.get("encoding", "WKB").lower())
        shapes = gpd.points_from_xy(*values.T) if values.ndim == 2 else values
        table = batch.drop_columns([column]).to_pandas()
        yield gpd.GeoDataFrame(table, geometry=shapes, crs=crs)
