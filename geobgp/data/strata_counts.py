"""Strata: points counted on the nodes of a domain for each value of one or several columns, in one pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import geopandas as gpd
import numpy as np
import pandas as pd

from geobgp.data.counts import Counts, Tally
from geobgp.data.partitions import empty_like, find_parts, merge, total_of
from geobgp.data.parts import is_partitioned
from geobgp.data.points import Named, Options, RowGroups, Stream, arrow_points, coordinate_columns
from geobgp.data.tables import csv_format
from geobgp.errors import DataError, DroppedPointsWarning, GeobgpError, option, warn
from geobgp.files import check_exists, driver_errors, kind_of, parquet_geometry, read_vector, split_layer
from geobgp.land.crs import as_crs
from geobgp.progress import ProgressLike, as_progress
from geobgp.scale.workers import open_workers
from geobgp.text import count, listed

if TYPE_CHECKING:
    from geobgp.land.domain import Domain

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
    options = Options(
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
    options: Options
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


def _settled(points: Any, options: Options, by: tuple[str, ...]) -> tuple[Named | None, tuple[str, ...]]:
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
