"""Counts: how many points fall on each node of a domain, and what became of the rest."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyproj
from scipy.special import gammaincinv

from geobgp.arguments import CLIENT, DOMAIN, PROGRESS, SOURCE, TIMES, WEIGHTS
from geobgp.data.clock import Clock
from geobgp.data.parts import is_partitioned
from geobgp.data.points import QUIET_SHARE, Chunk, Options, Stream, argument, with_unreadable
from geobgp.errors import DataError, DroppedPointsWarning, GeometryError, InputWarning, option, warn
from geobgp.land.crs import as_crs
from geobgp.land.reproject import WGS84, transform
from geobgp.progress import ProgressLike, as_progress
from geobgp.text import html_table, number, percent
from geobgp.validate import FLAG, NAME, as_floats, choice, door, whole
from geobgp.validate import number as a_number

if TYPE_CHECKING:
    from geobgp.data.periods import Periods
    from geobgp.land.domain import Domain

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


@door(
    points=SOURCE,
    domain=DOMAIN,
    weights=WEIGHTS,
    time=TIMES,
    date_format=NAME,
    client=CLIENT,
    on_water=choice("nearest", "drop", "error"),
    max_snap=a_number(least=0.0, infinite=True),
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
    options = Options(
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
        from geobgp.data.period_counts import PeriodTally

        tally = PeriodTally(domain, on_water, reach, given, keep_coordinates, clock)
    with as_progress(progress).stage("points") as stage:
        if is_partitioned(points):
            from geobgp.data.partitions import tally_parts

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
