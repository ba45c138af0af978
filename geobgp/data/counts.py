"""Counts: points binned to the nodes of a domain, by period and stratum where asked."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
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
    n_rows_of,
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
    check_layer,
    check_snap,
    coordinate_columns,
    number_of_rows,
    with_unreadable,
)
from geobgp.errors import DataError, DroppedPointsWarning, GeobgpError, GeometryError, InputWarning, option, warn
from geobgp.files import frame_of
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
    in_rows_of,
    real,
    refuse_huge,
    validated,
    whole,
)

if TYPE_CHECKING:
    from geobgp.land.domain import Domain
    from geobgp.progress import Stage


# -- Counts: how many points fall on each node of a domain, and what became of the rest ----------------------


#: Dropped points that are remembered.
SAMPLE = 1000
#: Points of a source that are kept in memory once they were read, to be counted on cells of other sizes.
MOST_KEPT = 5_000_000
#: Fewer events than these tell next to nothing of where there are more; fewer points on one place are not told of.
FEW_EVENTS, FEWEST_ON_ONE = 10, 20
_COLUMNS = ("longitude", "latitude", "easting", "northing")


@dataclass(frozen=True, eq=False)
class Counts:
    """Points, or their weights, summed on the nodes of a domain, period by period where they have dates.

    Attributes
    ----------
    values : (n_nodes,) or (n_periods, n_nodes) array
        Number of points on each node, or the sum of their weights. Read-only.
    n_read : int
        Points read: ``n_used + n_dropped + n_untimed + n_outside``. Multi-points count once for each of their points;
        a point without a usable date is counted as that alone, wherever it lies.
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
    counted : (j, 3) or (j, 4) array or None
        Easting, northing and weight of the points that are in `values`, those moved to land at a point of it, and the
        number of the period, from 0, where there are periods; kept together with `coordinates`.
    warning : DroppedPointsWarning or None
        What `bin_points` warned of.
    nodes : str
        Whose nodes they are: `Domain.nodes_hash`; empty where that is not known.
    periods : Periods or None
        Those between the first and the last event have their row, with or without events.
    used_in : (n_periods,) int array or None
        How many points of each period are in `values`.
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
    >>> counts.periods.labels, counts.totals.tolist(), counts.at(2).n_used
    (('2020-01', '2020-02', '2020-03'), [1.0, 0.0, 2.0], 2)
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
    periods: Periods | None = None
    used_in: np.ndarray | None = field(default=None, repr=False)
    n_untimed: int = 0
    n_outside: int = 0
    untimed_warning: DroppedPointsWarning | None = None

    @property
    def warnings(self) -> list[DroppedPointsWarning]:
        """All that `bin_points` warned of."""
        both = (self.warning, self.untimed_warning)
        return [warning for warning in both if warning is not None]

    @property
    def n_periods(self) -> int:
        """How many periods there are: 1 where the points have no dates."""
        return 1 if self.periods is None else self.periods.n

    @property
    def totals(self) -> np.ndarray:
        """Events of each period, (n_periods,)."""
        return np.asarray(np.atleast_2d(self.values).sum(axis=1))

    @property
    def digest(self) -> str:
        """Hash of the events that were counted: which nodes, periods, and numbers on them."""
        return events_digest(self.nodes, self.periods, self.values)

    def pooled(self) -> Counts:
        """Return the counts of all periods together."""
        if self.periods is None:
            return self
        return replace(
            self,
            values=_sealed(self.values.sum(axis=0)),
            n_read=self.n_used + self.n_dropped,
            counted=None if self.counted is None else self.counted[:, :3],
            periods=None,
            used_in=None,
            n_untimed=0,
            n_outside=0,
            untimed_warning=None,
        )

    def at(self, period: Any) -> Counts:
        """Return the counts of one period, by its number, its label or a date; see `slice`."""
        if self.periods is None:
            raise without_periods(period)
        t = self.periods.find(period)
        return self.slice(t, t + 1).pooled()

    def slice(self, start: int, stop: int) -> Counts:
        """Return the counts of the periods from one number up to another, without it.

        Only points that were used are of a period: of those left out nothing is said.
        """
        assert self.periods is not None and self.used_in is not None
        values, n_used, counted = self.values[start:stop], int(self.used_in[start:stop].sum()), self.counted
        if counted is not None:
            counted = counted[(counted[:, 3] >= start) & (counted[:, 3] < stop)] - [0, 0, 0, start]
        return replace(
            self,
            values=values,
            n_read=n_used,
            n_used=n_used,
            n_snapped=0,
            n_dropped=0,
            n_missing=0,
            max_snap_distance=0.0,
            total_weight=float(values.sum()),
            dropped_weight=0.0,
            coordinates=None,
            counted=counted,
            warning=None,
            periods=self.periods.slice(start, stop),
            used_in=self.used_in[start:stop],
            n_untimed=0,
            n_outside=0,
            untimed_warning=None,
        )

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
        if self.periods is not None:
            empty = int((self.totals == 0).sum())
            facts["periods"] = self.periods.words() + (f", {empty:,} without events" if empty else "")
            facts["dropped, without a usable date"] = f"{self.n_untimed:,}"
        if self.n_outside:
            facts["dropped, outside the periods"] = f"{self.n_outside:,}"
        if self.notes:
            facts["notes"] = "; ".join(self.notes)
        return facts

    def __repr__(self) -> str:
        n_nodes = self.values.shape[-1]
        if self.periods is None:
            where = f"on {int(np.count_nonzero(self.values)):,} of {n_nodes:,} nodes, "
            lost = f"{self.n_snapped:,} moved to land, {self.n_dropped:,} dropped"
        else:
            where = f"in {self.periods.words()}, on {n_nodes:,} nodes; "
            lost = f"{self.n_dropped:,} dropped, {self.n_untimed:,} undated, {self.n_outside:,} outside"
        return f"Counts({self.n_used:,} of {self.n_read:,} points {where}{lost}, {self.n_missing:,} missing)"

    def _repr_html_(self) -> str:
        return html_table(self.facts().items())


def without_periods(period: Any) -> DataError:
    """Return what to say where a period is asked for, and counts have none."""
    return DataError(f"These counts have no periods; found {str(period)!r}.", option="period", found=str(period))


def events_digest(nodes: str, periods: Periods | None, *arrays: Any) -> str:
    """Return a hash of events: whose nodes they are on, their periods, and arrays of numbers or bytes."""
    digest = hashlib.blake2b(nodes.encode(), digest_size=16)
    if periods is not None:
        digest.update(f"{periods.every} {periods.edges.tolist()}".encode())
    for array in arrays:
        digest.update(array if isinstance(array, bytes) else np.ascontiguousarray(array, float).tobytes())
    return digest.hexdigest()


def _sealed(values: np.ndarray) -> np.ndarray:
    values.setflags(write=False)
    return values


# -- Points that are read once, and counted on any number of domains -----------------------------------------


@dataclass(eq=False)
class PointSource:
    """Points that are read once and counted on as many domains as are asked for: see `read_points`.

    Attributes
    ----------
    points
        What was given.
    options : ReadOptions
    weights, time : array, optional
        A number and a date for each row, where they are no columns of the points.
    client
        As for `bin_points`.
    most_kept : int
        Sources with more points than these are read again each time.
    """

    points: Any
    options: ReadOptions
    weights: np.ndarray | None = None
    time: Any = None
    client: Any = None
    most_kept: int = MOST_KEPT
    _kept: dict[Any, tuple[list[Chunk], tuple[str, ...]]] = field(default_factory=dict, repr=False)

    @property
    def n(self) -> int | None:
        """How many rows there are, None where only reading would tell."""
        for chunks, _ in self._kept.values():
            return sum(chunk.n_rows for chunk in chunks)
        n = n_rows_of(self.points)
        return number_of_rows(self.points, self.options.layer) if n is None else n

    @property
    def can_be_read_again(self) -> bool:
        """Whether points are no stream that is used up once it was read."""
        return isinstance(self.points, str) or hasattr(self.points, "__fspath__") or hasattr(self.points, "__len__")

    def in_crs(self, crs: Any) -> PointSource:
        """Return the same points with coordinates that are taken to be in a CRS."""
        return replace(self, options=replace(self.options, crs=as_crs(crs)), _kept={})

    def bin(
        self,
        domain: Domain,
        *,
        every: str | Periods | Any = None,
        between: tuple[Any, Any] | None = None,
        date_format: str | None = None,
        on_water: str = "nearest",
        max_snap: float | None = None,
        keep_coordinates: bool = False,
        progress: ProgressLike = False,
    ) -> Counts:
        """Count the points on the nodes of a domain; see `bin_points`, which has the meaning of all arguments."""
        clock = Clock.asked(self._dates, every, between, date_format)
        tally = Tally(domain, on_water, max_snap, self.weights, keep_coordinates, clock)
        with as_progress(progress).stage("points") as stage:
            counts = self.fill(tally, stage, ())[()]
            stage.note(f"{counts.n_used:,} used")
        for warning in counts.warnings:
            warn(warning)
        return counts

    def bin_strata(
        self,
        domain: Domain,
        *,
        every: str | Periods | Any = None,
        between: tuple[Any, Any] | None = None,
        date_format: str | None = None,
        on_water: str = "nearest",
        max_snap: float | None = None,
        progress: ProgressLike = False,
    ) -> StrataCounts:
        """Count the points of each stratum on the nodes of a domain; see `geobgp.data.counts.bin_strata`."""
        by, clock = self.options.by, Clock.asked(self._dates, every, between, date_format)
        tally = Tally(domain, on_water, max_snap, self.weights, False, clock)
        with as_progress(progress).stage("strata") as stage:
            counts = self.fill(tally, stage, by)
            stage.note(count(len(counts), "stratum", "strata"))
        labels = pd.DataFrame([tally.keys[name] for name in counts], index=list(counts), columns=list(by))
        return StrataCounts(by, labels, tally.unlabelled, counts)

    @property
    def _dates(self) -> Any:
        return self.time if self.options.time is None else self.options.time

    @property
    def n_strata(self) -> int | None:
        """How many strata there are, None where only reading would tell."""
        for chunks, _ in self._kept.values():
            labels = [chunk.labels for chunk in chunks if chunk.labels is not None]
            return len(pd.concat(labels).dropna().drop_duplicates()) if labels else 1
        return None

    def fill(self, tally: Tally, stage: Stage, by: Sequence[str]) -> dict[Any, Counts]:
        """Add all points to a tally, and return what was counted by stratum; of all together where `by` is empty."""
        options = replace(self.options, domain_crs=tally.domain.crs)
        if is_partitioned(self.points):
            options = replace(options, by=tuple(by))
            return tally.results(by, _add_parts(tally, self.points, options, self.client, stage))

        def add(chunk: Chunk) -> None:
            tally.add(chunk if by else replace(chunk, labels=None))

        kept = self._kept.get(options.domain_crs)
        if kept is not None:
            for chunk in kept[0]:
                add(chunk)
            return tally.results(by, kept[1])
        stream, chunks, n = Stream(self.points, options), list[Chunk](), 0
        most = self.most_kept if self.can_be_read_again else -1
        for chunk in stream:
            add(chunk)
            stage.step(tally.rows, stream.total)
            n += len(chunk.coords)
            if n <= most:
                chunks.append(chunk)
        if n <= most:
            self._kept[options.domain_crs] = chunks, tuple(stream.notes)
        return tally.results(by, tuple(stream.notes))


def read_points(
    points: Any,
    *,
    weights: str | np.ndarray | None = None,
    time: str | Any = None,
    by: Sequence[str] = (),
    chunksize: int = 200_000,
    longitude: str | None = None,
    latitude: str | None = None,
    easting: str | None = None,
    northing: str | None = None,
    crs: Any = None,
    layer: str | None = None,
    client: Any = None,
    most_kept: int = MOST_KEPT,
) -> PointSource:
    """Return points to be counted on any number of domains: they are read when they are counted first, and then kept.

    Parameters
    ----------
    points, weights, time, chunksize, longitude, latitude, easting, northing, crs, layer, client
        As for `bin_points`.
    by : sequence of str
        Columns whose values make strata.
    most_kept : int
        Sources with more points than these are read again each time, chunk by chunk.

    Examples
    --------
    >>> from shapely.geometry import box
    >>> from geobgp import Domain
    >>> source = read_points(np.array([[0.5, 0.5], [3.2, 1.1]]))
    >>> [source.bin(Domain.from_polygons(box(0, 0, 4, 2), cell_size=h, crs="local")).values.tolist() for h in (1, 2)]
    [[0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0], [1.0, 1.0]]
    """
    if layer is not None:
        check_layer(points, layer)
    names = dict(zip(_COLUMNS, (longitude, latitude, easting, northing), strict=True))
    for pair in (("longitude", "latitude"), ("easting", "northing")):
        if (names[pair[0]] is None) != (names[pair[1]] is None):
            both = " and ".join(argument(name) for name in pair)
            raise GeometryError(f"points: name both columns, {both}, or neither.", option=pair[0])
    options = ReadOptions(
        weights=weights if isinstance(weights, str) else None,
        time=time if isinstance(time, str) else None,
        by=tuple(by),
        crs=None if crs is None else as_crs(crs),
        layer=layer,
        chunksize=chunksize,
        longitude=longitude,
        latitude=latitude,
        easting=easting,
        northing=northing,
    )
    points = frame_of(points)
    weights, time = (in_rows_of(what, one, points) for what, one in (("weights", weights), ("time", time)))
    given = None if weights is None or isinstance(weights, str) else as_floats("weights", weights).ravel()
    return PointSource(points, options, given, None if isinstance(time, str) else time, client, most_kept)


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
        A column of dates, or a date for each row: counts are then by period. Dates, datetimes, ISO
        strings, years, months ("2020-03") and weeks ("2020-W05", ISO 8601; "2020-EW05", from Sunday as the CDC
        counts them); of a time with a zone the date that the clock showed there. Or plain numbers, with
        `every` a list of numbers.
    every : "day", "week", "epiweek", "month", "quarter", "year", list of edges, or Periods
        How long periods are. Those between the first and the last event that have none stay in.
    between : (first, last), optional
        The periods to count, such as ``("2015-01", "2020-12")``; by default from that of the first event to that of the
        last. Events outside are left out and reported.
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
        ``values.sum() + n_dropped == n_read`` where there are no weights. With `time` they have `periods`, and
        values by period and node.

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
    check_snap(on_water, max_snap)
    source = read_points(
        points, weights=weights, time=time, chunksize=chunksize, longitude=longitude, latitude=latitude,
        easting=easting, northing=northing, crs=crs, layer=layer, client=client, most_kept=-1,
    )  # fmt: skip
    return source.bin(
        domain, every=every, between=between, date_format=date_format, on_water=on_water, max_snap=max_snap,
        keep_coordinates=keep_coordinates, progress=progress,
    )  # fmt: skip


@dataclass(eq=False)
class Sums:
    """The running sums of the points of one stratum, or of all.

    Attributes
    ----------
    values : dict of int to (n_nodes,) array
        By the code of the period, 0 where there are none.
    used_in : dict of int to int
        The points of each period that are in `values`.
    strays : (k, 2) array
        Some of the dropped points, as they were read, in `stray_crs`.
    """

    read: int = 0
    snapped: int = 0
    dropped: int = 0
    missing: int = 0
    untimed: int = 0
    outside: int = 0
    lost: float = 0.0
    farthest: float = 0.0
    values: dict[int, np.ndarray] = field(default_factory=dict)
    used_in: dict[int, int] = field(default_factory=dict)
    strays: np.ndarray = field(default_factory=lambda: np.empty((0, 2)))
    stray_crs: pyproj.CRS | None = None

    def put(self, code: int, values: np.ndarray, n: int) -> None:
        """Add what lies on the nodes in a period, and its number of points."""
        self.values[code] = self.values[code] + values if code in self.values else values
        self.used_in[code] = self.used_in.get(code, 0) + n

    def stray(self, coords: np.ndarray, crs: pyproj.CRS | None) -> None:
        """Remember some dropped points."""
        if len(coords) and len(self.strays) < SAMPLE:
            self.stray_crs = crs
            self.strays = np.concatenate([self.strays, coords[:SAMPLE]])[:SAMPLE]

    def merge(self, other: Sums) -> None:
        """Add the sums of points that come after these."""
        for name in ("read", "snapped", "dropped", "missing", "untimed", "outside", "lost"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.farthest = max(self.farthest, other.farthest)
        for code, values in other.values.items():
            self.put(code, values, other.used_in[code])
        self.stray(other.strays, other.stray_crs)


class Tally:
    """The running sums of points, or of a part of them, by group: the code of a period and the values of a stratum.

    Parameters
    ----------
    domain : Domain
    on_water : {"nearest", "drop", "error"}
    max_snap : float, optional
    given : array, optional
        The weight of every row, where weights are no column of the points.
    keep : bool
        Keep where the points lay.
    clock : Clock, optional
        Tells the periods, where points are counted by these.
    """

    def __init__(
        self,
        domain: Domain,
        on_water: str = "nearest",
        max_snap: float | None = None,
        given: np.ndarray | None = None,
        keep: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self.domain, self.on_water, self.given, self.clock = domain, on_water, given, clock
        self.reach = 2 * domain.cell_size if max_snap is None else float(max_snap)
        self.weighted = given is not None
        self.rows = self.read = self.unlabelled = 0
        self.strata: dict[Key, Sums] = {}
        self.keys: dict[str, Key] = {}  # by name, once all is counted
        self.points_crs: pyproj.CRS | None = None
        self.kept: list[np.ndarray] | None = [] if keep else None
        self.placed: list[np.ndarray] = []
        self.waiting: list[Chunk] = []  # without a date that tells whether day or month comes first
        if clock is not None and clock.given is not None and not pd.api.types.is_numeric_dtype(clock.given.dtype):
            clock.settle_order(texts_of(clock.given).values)

    def empty(self) -> Tally:
        """Return a tally without points, to count a part of them with."""
        clock = None if self.clock is None else self.clock.fresh()
        return Tally(self.domain, self.on_water, self.reach, None, self.kept is not None, clock)

    def add(self, chunk: Chunk) -> np.ndarray:
        """Add the points of a chunk; return the node of each, -1 of those that were left out.

        A chunk in which no date tells whether day or month comes first waits for one that does.
        """
        clock = self.clock
        if clock is not None and clock.given is None:
            assert chunk.times is not None
            if self.waiting:
                clock.settle_order(texts_of(chunk.times).values)
            if clock.is_open(chunk.times) or (self.waiting and clock.order is None):
                self.waiting.append(chunk)
                return np.full(len(chunk.coords), -1)
            self._add_waiting()
        return self._add(chunk)

    def _add_waiting(self) -> None:
        waiting, self.waiting = self.waiting, []
        for chunk in waiting:
            self._add(chunk)

    def _add(self, chunk: Chunk) -> np.ndarray:
        weights = self._weights(chunk)
        stratum, sums = self._strata(chunk)
        codes = np.zeros(len(chunk.coords), np.int64)
        if self.clock is not None:
            codes = self.clock.codes(self._times(chunk))[chunk.rows]
        crs, timed = chunk.crs, codes > OUTSIDE
        coords = transform(chunk.coords[timed], crs, self.domain.crs)
        self.points_crs = self.points_crs or crs
        if self.kept is not None:
            self.kept.append(coords[np.isfinite(coords).all(axis=1)])
        node, distance = np.full(len(timed), -1), np.zeros(len(timed))
        node[timed] = self.domain.node_at(coords)
        moved = timed & (node < 0)
        if moved.any() and self.on_water == "error":
            self._refuse(moved, coords[node[timed] < 0], chunk)
        if moved.any() and self.on_water == "nearest":
            node[moved], distance[moved] = self._nearest(coords[node[timed] < 0])
        used = node >= 0
        dropped = timed & ~used
        if self.kept is not None:
            at = np.empty((len(node), 2))
            at[timed] = coords
            at[moved & used] = self.domain.node_points[node[moved & used]]
            each = np.ones(len(node)) if weights is None else weights
            self.placed.append(np.column_stack([at, each, codes])[used])
        without = stratum >= 0
        without[chunk.rows] = False
        for one, n in zip(sums, np.bincount(stratum[without], minlength=len(sums)), strict=True):
            one.missing += int(n)
        of_point = stratum[chunk.rows]
        for mine in _split(of_point, np.flatnonzero(of_point >= 0)):
            one, out = sums[of_point[mine[0]]], mine[dropped[mine]]
            one.read += len(mine)
            one.untimed += int((codes[mine] == UNTIMED).sum())
            one.outside += int((codes[mine] == OUTSIDE).sum())
            one.snapped += int((moved & used)[mine].sum())
            one.dropped += len(out)
            one.lost += float(len(out) if weights is None else weights[out].sum())
            one.farthest = max(one.farthest, float(distance[mine[used[mine]]].max(initial=0.0)))
            one.stray(chunk.coords[out], crs)
            for here in _split(codes, mine[used[mine]]):
                weight = None if weights is None else weights[here]
                values = np.bincount(node[here], weight, minlength=self.domain.n_nodes)
                one.put(int(codes[here[0]]), values.astype(float), len(here))
        self.read += len(node)
        self.rows += chunk.n_rows
        return node

    def _strata(self, chunk: Chunk) -> tuple[np.ndarray, list[Sums]]:
        """Return the number of each row's stratum, -1 without one, and the sums of the strata of these numbers."""
        stratum = np.zeros(chunk.n_rows, np.int64)
        if chunk.labels is None:
            return stratum, [self.strata.setdefault((), Sums())]
        by, stratum = list(chunk.labels.columns), stratum - 1
        known = chunk.labels.notna().all(axis=1).to_numpy()
        self.unlabelled += int((~known).sum())
        groups = chunk.labels[known].groupby(by, observed=True, sort=False).indices
        sums, rows = [], np.flatnonzero(known)
        for k, (key, which) in enumerate(groups.items()):
            sums.append(self.strata.setdefault(key if isinstance(key, tuple) else (key,), Sums()))
            stratum[rows[which]] = k
        return stratum, sums

    def _times(self, chunk: Chunk) -> pd.Series:
        assert self.clock is not None
        given = self.clock.given
        if given is None:
            assert chunk.times is not None
            return chunk.times
        if len(given) < self.rows + chunk.n_rows:
            raise uneven("time", len(given), f"at least {self.rows + chunk.n_rows:,}", "dates")
        return given.iloc[self.rows : self.rows + chunk.n_rows]

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
        refuse_huge("weights", np.where(np.isinf(weights), np.nan, weights), "The weights")
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
        row, n = self.rows + int(chunk.rows[off][0]), int(off.sum())
        _, distance = self._nearest(coords[:SAMPLE])
        near = f"{percent(np.isfinite(distance).mean())} of these within {number(self.reach)} {self._unit} of it"
        raise GeometryError(
            f"{n:,} of the {self.read + len(chunk.coords):,} points read so far lie off the land ({near}), "
            f"the first in row {row:,} (counted from 0).",
            option="on_water",
            found=n,
            remedy=(
                f"Use {option('on_water', 'nearest')} to count them on the nearest land or "
                f"{option('on_water', 'drop')} to leave them out."
            ),
        )

    @property
    def _unit(self) -> str:
        return "m" if self.domain.crs is not None else self.domain.length_unit[1]

    def skip(self, off: OffLand, column: str | None) -> None:
        """Count rows as dropped of which only the weights, if there are any, need to be read."""
        sums = self.strata.setdefault((), Sums())
        n = off.rows - off.missing
        lost = float(n)
        if column is not None:
            weights = np.concatenate(
                [b.column(0).to_numpy(zero_copy_only=False) for b in off.read.batches(1 << 20, [column])]
            )
            self.check_weights(weights.astype(float), np.arange(off.rows))
            lost, self.weighted = float(weights.sum()), True
        sums.merge(Sums(read=n, dropped=n, missing=off.missing, lost=lost, strays=off.corners, stray_crs=off.crs))
        self.rows += off.rows
        self.read += n
        self.points_crs = self.points_crs or off.crs

    def merge(self, other: Tally) -> Tally:
        """Add the sums of points that come after these, and return this tally."""
        for name in ("rows", "read", "unlabelled"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for key, sums in other.strata.items():
            self.strata.setdefault(key, Sums()).merge(sums)
        self.weighted |= other.weighted
        self.points_crs = self.points_crs or other.points_crs
        self.waiting += other.waiting
        if self.clock is not None and other.clock is not None:
            self.clock.merge(other.clock)
        if self.kept is not None and other.kept is not None:
            self.kept += other.kept
            self.placed += other.placed
        return self

    def results(self, by: Sequence[str], notes: tuple[str, ...]) -> dict[Any, Counts]:
        """Return what was counted: by the name of the stratum in their order, or of all points, under ().

        Parameters
        ----------
        by : sequence of str
            The columns of the strata; empty where there are none.
        notes : tuple of str
            What was assumed in reading.
        """
        self._add_waiting()
        dates = None if self.clock is None else self.clock.given
        for what, given, things in (
            ("weights", self.given, "numbers"), ("time", dates, "dates"),
        ):  # fmt: skip
            if given is not None and len(given) != self.rows:
                raise uneven(what, len(given), f"{self.rows:,}", things)
        strata: dict[Any, Sums] = self._named_strata(by) if by else {(): self.strata.get((), Sums())}
        periods, first, warning = None, 0, None
        if self.clock is not None:
            codes = {code for sums in strata.values() for code in sums.values}
            periods, first = self.clock.periods(sorted(codes), sum(sums.dropped for sums in strata.values()))
            notes, warning = (*notes, *self.clock.notes()), self.clock.warning()
            if by and warning is not None:  # of all strata together
                warn(warning)
        return {
            name: self._counts(sums, periods, first, notes, None if by else warning) for name, sums in strata.items()
        }

    def _counts(
        self,
        sums: Sums,
        periods: Periods | None,
        first: int,
        notes: tuple[str, ...],
        untimed_warning: DroppedPointsWarning | None,
    ) -> Counts:
        values = np.zeros((1 if periods is None else periods.n, self.domain.n_nodes))
        used_in = np.zeros(len(values), np.int64)
        for code, row in sums.values.items():
            values[code - first] = row
            used_in[code - first] = sums.used_in[code]
        counted = None
        if self.kept is not None:
            counted = np.concatenate([np.empty((0, 4)), *self.placed])
            counted = counted[:, :3] if periods is None else counted - [0, 0, 0, first]
        counts = Counts(
            values=_sealed(values[0] if periods is None else values),
            n_read=sums.read,
            n_used=int(used_in.sum()),
            n_snapped=sums.snapped,
            n_dropped=sums.dropped,
            n_missing=sums.missing,
            max_snap_distance=sums.farthest,
            total_weight=float(values.sum()),
            dropped_weight=sums.lost,
            weighted=self.weighted,
            unit=self._unit,
            notes=notes,
            points_crs=self.points_crs,
            coordinates=None if self.kept is None else np.concatenate([np.empty((0, 2)), *self.kept]),
            counted=counted,
            nodes=self.domain.nodes_hash(),
            periods=periods,
            used_in=None if periods is None else _sealed(used_in),
            n_untimed=sums.untimed,
            n_outside=sums.outside,
            untimed_warning=untimed_warning,
        )
        return replace(counts, warning=with_unreadable(self._warning(counts, sums), sums.missing, sums.read))

    def _named_strata(self, by: Sequence[str]) -> dict[str, Sums]:
        """Return the sums of strata under their names, these in order; values that are written alike are one."""
        out: dict[str, Sums] = {}
        for key in sorted(self.strata, key=stratum_order):
            name = stratum_name(key)
            self.keys.setdefault(name, key)
            out.setdefault(name, Sums()).merge(self.strata[key])
        check_strata(by, len(out), self.rows, self.unlabelled)
        return out

    def _warning(self, counts: Counts, sums: Sums) -> DroppedPointsWarning | None:
        """Say how many points were dropped; if nearly all, where they are and what may be wrong."""
        if counts.n_read == 0:
            rows = f"{counts.n_missing:,} rows without a point"
            return DroppedPointsWarning(f"No points were read ({rows}): all counts are zero.", found=0)
        share = counts.n_dropped / counts.n_read
        if share <= QUIET_SHARE:
            return None
        text = (
            f"{counts.n_dropped:,} of {counts.n_read:,} points ({percent(share, 1)}) lie off the land and are dropped"
        )
        if self.on_water == "nearest":
            text += f", more than {number(self.reach)} {self._unit} from it"
        if share < 0.5:
            more = f"raise {option('max_snap')}"
            if self.on_water != "nearest":
                more = f"use {option('on_water', 'nearest')}"
            remedy = f"Check them on a map, or {more}."
            return DroppedPointsWarning(f"{text}.", option="on_water", found=counts.n_dropped, remedy=remedy)
        place = WGS84 if self.domain.crs is not None else None
        here = sums.strays if place is None else _to_degrees(sums.strays, sums.stray_crs)
        west, south, east, north = self.domain.grid.bounds
        edge = np.array([(west, south), (east, north), (west, north), (east, south)])
        there = edge if place is None else _to_degrees(edge, self.domain.crs)
        text += f". The points lie in {_extent(here, place)}, the domain in {_extent(there, place)}."
        swapped = transform(sums.strays[:, ::-1], sums.stray_crs, self.domain.crs)
        hit = float((self._nearest(swapped)[0] >= 0).mean())
        remedy = f"Check the CRS of the points ({argument('points_crs', 'crs')}) and of the land."
        if hit > 0.5:
            first, second, third, fourth = (argument(name) for name in _COLUMNS)
            text += f" With the two coordinates swapped {percent(hit)} of them would lie on the land."
            remedy = f"Swap them, or name the columns with {first} and {second} ({third} and {fourth})."
        return DroppedPointsWarning(text, option="points", found=counts.n_dropped, remedy=remedy)


def _split(codes: np.ndarray, rows: np.ndarray) -> list[np.ndarray]:
    """Return some rows in groups of the same code."""
    if not len(rows):
        return []
    rows = rows[np.argsort(codes[rows], kind="stable")]
    return np.split(rows, np.flatnonzero(np.diff(codes[rows])) + 1)


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
        f"{what}: {n:,} {things} for {rows} rows of points.", option=what, found=n, remedy="Give one for each row."
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


# -- Partitions: points that come in many parts, each counted by itself, and only the counts brought together --


@dataclass(frozen=True, eq=False)
class CountJob:
    """What every part is counted with.

    Attributes
    ----------
    tally : Tally
        An empty one, with the domain and what to do with points off the land.
    options : ReadOptions
    named : (column, column, CRS) or None
    crs : pyproj.CRS or None
        The CRS that geometries must be in.
    """

    tally: Tally
    options: ReadOptions
    named: Named | None
    crs: pyproj.CRS | None


def _add_parts(tally: Tally, points: Any, options: ReadOptions, client: Any, stage: Stage) -> tuple[str, ...]:
    """Count every part of the points and add all to `tally`; return what was assumed in reading.

    Without a `client` (see `open_workers`) the parts are counted here, one after the other.
    """
    dates = None if tally.clock is None else tally.clock.given
    for what, given, things in (("weights", tally.given, "numbers"), ("time", dates, "dates")):
        if given is not None:
            raise DataError(
                f"{what}: {len(given):,} {things} cannot be matched with the rows of points in parts.",
                option=what,
                found=len(given),
                remedy="Name a column of the points.",
            )
    with open_workers(client, 1) as workers:
        parts = (_of_dask if is_dask(points) else parts_of_files)(points, options, tally, workers)
        job = workers.share(CountJob(tally.empty(), options, parts.named, parts.crs))
        total = _total_of(parts, points, workers, job, _shown(stage, parts.n_rows))
    if total is not None:
        tally.merge(total)
    return parts.notes


def _total_of(parts: Parts, points: Any, workers: Workers, job: Any, step: Any) -> Tally | None:
    """Return the counts of all parts; a partition that is not as its collection says is named."""
    try:
        return workers.total(count_part, parts.named_items(), Tally.merge, job, step=step)
    except GeobgpError:
        raise
    except (KeyError, ValueError, TypeError) as error:
        if not is_dask(points):
            raise
        if isinstance(error, KeyError):  # Dask could not pick the columns of a partition: which one says so itself
            whole = replace(parts, items=list(points.to_delayed()))
            with suppress(KeyError):
                return workers.total(count_part, whole.named_items(), Tally.merge, job, step=step)
        raise _not_made(parts, workers) or error from error


def _shown(stage: Stage, n_rows: int | None) -> Any:
    """Return the way to tell of progress: in rows where their number is known, else in parts."""
    if n_rows is None:
        return stage.step
    return lambda done, total: stage.step(n_rows * done // max(total, 1), n_rows)


def count_part(part: tuple[Any, str], job: CountJob) -> Tally:
    """Return the counts of one part, without the domain; errors say which part it was."""
    item, name = part
    tally = job.tally.empty()
    try:
        if isinstance(item, OffLand):
            tally.skip(item, job.options.weights)
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
    for k, result in workers.run(_made, parts.items):
        if isinstance(result, Failed):
            return DataError(
                f"points, {parts.names[k]}: Dask cannot make it: {' '.join(str(result.error).split())}",
                option="points",
                found=k,
                remedy="Every partition must have the columns that its collection says there are.",
            )
    return None


def _made(part: Any) -> None:
    """Have a partition made, and do nothing with it."""
    if hasattr(part, "compute"):
        part.compute(scheduler="synchronous")


def _check_part(table: Any, job: CountJob) -> None:
    """Refuse a table in another CRS than the collection said, or without geometries where it has them."""
    if isinstance(table, RowGroups) or job.named is not None:
        return
    if not isinstance(table, gpd.GeoDataFrame | gpd.GeoSeries):
        raise GeometryError(f"there are no geometries, only {listed(getattr(table, 'columns', []))}.", option="points")
    if table.crs != job.crs:
        raise other_crs(table.crs, job.crs, "the collection")


def _of_dask(points: Any, options: ReadOptions, tally: Tally, workers: Workers) -> Parts:
    meta = getattr(points, "_meta", points)
    columns, named, crs = None, None, None
    notes: tuple[str, ...] = ()
    if isinstance(meta, gpd.GeoSeries):
        crs = meta.crs
    elif isinstance(meta, pd.DataFrame):
        wanted = need_columns(options, meta.columns, "the points")
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
    time: str | None = None,
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
    weights, time, every, between, date_format, on_water, max_snap, chunksize, longitude, latitude, easting, northing, \
    crs, layer, client, progress
        As for `bin_points`. All strata have the same periods.

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
    check_snap(on_water, max_snap)
    source = read_points(
        points, weights=weights, time=time, by=columns, chunksize=chunksize, longitude=longitude, latitude=latitude,
        easting=easting, northing=northing, crs=crs, layer=layer, client=client, most_kept=-1,
    )  # fmt: skip
    return source.bin_strata(
        domain, every=every, between=between, date_format=date_format, on_water=on_water, max_snap=max_snap,
        progress=progress,
    )  # fmt: skip


def stratum_name(key: Key) -> str:
    """Return the name of a stratum: its values."""
    return ", ".join(map(_text, key))


def stratum_order(key: Key) -> tuple[Any, ...]:
    """Return what strata are sorted by: numbers before words, each in their order."""
    return tuple(map(_sortable, key))


def check_strata(by: Sequence[str], n_strata: int, n_rows: int, n_unlabelled: int) -> None:
    """Refuse columns with nearly as many values as there are rows, and tell of rows without a value."""
    rows = n_rows - n_unlabelled
    if n_strata > 50 and 2 * n_strata > rows:
        raise DataError(
            f"{option('by')}: {listed(by)} makes {n_strata:,} strata of {count(rows, 'row')}.",
            option="by",
            found=n_strata,
            remedy="Name columns with few values; one that numbers the rows is none of these.",
        )
    if n_unlabelled:
        warn(
            DroppedPointsWarning(
                f"{n_unlabelled:,} of {count(n_rows, 'row')} have no value in {listed(by)}, and are in no stratum.",
                option="by",
                found=n_unlabelled,
                remedy="Give them one to have them mapped.",
            )
        )


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float | np.floating) else str(value)


def _sortable(value: Any) -> tuple[bool, Any, str]:
    """Return numbers before words, each in their order."""
    is_number = isinstance(value, int | float | np.number)
    return not is_number, float(value) if is_number else 0.0, str(value)
