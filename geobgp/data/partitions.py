"""Partitions: points that come in many parts, each counted by itself, and only the counts brought together."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import geopandas as gpd
import numpy as np
import pandas as pd

from geobgp.data.counts import SAMPLE, Tally
from geobgp.data.parts import OffLand, Parts, beyond_in, is_dask, need_columns, other_crs, parts_of_files
from geobgp.data.points import Named, Options, RowGroups, Stream, coordinate_columns
from geobgp.errors import DataError, GeobgpError, GeometryError, option
from geobgp.scale.workers import Failed, Workers, open_workers
from geobgp.text import listed

if TYPE_CHECKING:
    import pyproj

    from geobgp.progress import Stage


@dataclass(frozen=True, eq=False)
class Job:
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
    options: Options
    named: Named | None
    crs: pyproj.CRS | None


def tally_parts(tally: Tally, points: Any, options: Options, client: Any, stage: Stage) -> tuple[str, ...]:
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
        job = workers.share(Job(empty_like(tally), options, parts.named, parts.crs))
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


def count_part(part: tuple[Any, str], job: Job) -> Tally:
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
    points: Any, options: Options, tally: Tally, workers: Workers, by: Sequence[str] = ()
) -> Parts:
    """Return the parts of points, with the columns to be read settled for all of them; labels `by` among these."""
    if is_dask(points):
        return _of_dask(points, options, workers, by)
    return parts_of_files(points, options, tally, workers, by)


def _check_part(table: Any, job: Job) -> None:
    """Refuse a table in another CRS than the collection said, or without geometries where it has them."""
    if isinstance(table, RowGroups) or job.named is not None:
        return
    if not isinstance(table, gpd.GeoDataFrame | gpd.GeoSeries):
        raise GeometryError(
            f"there are no geometries, only {listed(getattr(table, 'columns', []))}.", option="points"
        )
    if table.crs != job.crs:
        raise other_crs(table.crs, job.crs, "the collection")


def _of_dask(points: Any, options: Options, workers: Workers, by: Sequence[str]) -> Parts:
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
