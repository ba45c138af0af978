"""Parts: which points come in many parts, and the row groups of their files, those off the land known as such."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyproj
import shapely

from geobgp.data.points import Named, ReadOptions, RowGroups, coordinate_columns
from geobgp.errors import CRSError, DataError, GeobgpError, GeometryError
from geobgp.files import SUFFIXES, driver_errors, is_pattern, matching, parquet_geometry
from geobgp.land.crs import as_crs, transform
from geobgp.text import count, listed

if TYPE_CHECKING:
    from geobgp.data.counts import Tally
    from geobgp.land.domain import Domain
    from geobgp.parallel import Workers


#: Rows that a part of a Parquet file has at least, unless the file has fewer.
PART_ROWS = 1_000_000
#: Points along each side of a box whose image in another CRS is looked at, and by how much of its size it is widened.
_LATTICE, _MARGIN = 17, 0.1


@dataclass(frozen=True, eq=False)
class OffLand:
    """Rows that lie off the land as a whole, by the statistics of their file.

    Attributes
    ----------
    rows, missing : int
        Rows, and those without a point.
    corners : (4, 2) array
        Of the box around them, in the file's CRS.
    crs : pyproj.CRS or None
    read : RowGroups
        Where they are.
    """

    rows: int
    missing: int
    corners: np.ndarray
    crs: pyproj.CRS | None
    read: RowGroups


@dataclass(frozen=True, eq=False)
class Parts:
    """The parts of a source of points.

    Attributes
    ----------
    items : list
        What is to be counted: tables that Dask is yet to make, row groups of files, rows known to lie off the land.
    names : list of str
        What each is, for messages.
    named : (column, column, CRS) or None
        The columns of the coordinates, where they are not geometries; settled for all parts.
    crs : pyproj.CRS or None
        That of the geometries.
    notes : tuple of str
        What was assumed.
    n_rows : int or None
    """

    items: list[Any]
    names: list[str]
    named: Named | None
    crs: pyproj.CRS | None
    notes: tuple[str, ...]
    n_rows: int | None

    def named_items(self) -> list[tuple[Any, str]]:
        """Return each part with its name."""
        return list(zip(self.items, self.names, strict=True))


def is_dask(points: Any) -> bool:
    """Tell whether points are a Dask collection; Dask itself need not be there."""
    return hasattr(points, "to_delayed") and hasattr(points, "npartitions")


def is_partitioned(points: Any) -> bool:
    """Tell whether points come in parts: a Dask collection, a folder of Parquet files, or a pattern."""
    return is_dask(points) or parquet_files(points) is not None


def parquet_files(points: Any) -> list[str] | None:
    """Return the Parquet files of a folder or a pattern, sorted; None where points are neither.

    Examples
    --------
    >>> parquet_files("bites.csv") is None
    True
    """
    if not isinstance(points, str | Path):
        return None
    text, endings = str(points), SUFFIXES["parquet"]
    if Path(text).is_dir() and not text.rstrip("/").lower().endswith(SUFFIXES["vector"]):
        inside = {p: p.relative_to(text).parts for p in Path(text).rglob("*") if p.is_file()}
        names = [
            str(p)
            for p, parts in inside.items()
            if p.suffix.lower() in endings and not any(part[0] in "._" for part in parts)
        ]
        if inside and not names:  # OGR may know what it is
            return None
    elif is_pattern(text) and not Path(text).exists():
        names = matching(text)
        other = [Path(name).name for name in names if not name.lower().endswith(endings)]
        if other:
            raise GeometryError(
                f"points: {text} names {count(len(names), 'file')}, of which {len(other):,} are no Parquet: "
                f"{listed(sorted(other), 5)}.",
                option="points",
                found=len(other),
                remedy=f"Only files that end in {listed(endings)} can be read many at a time.",
            )
    else:
        return None
    if not names:
        raise GeometryError(
            f"points: there are no Parquet files in {text}.",
            option="points",
            found=0,
            remedy=f"Their names end in {listed(endings)}.",
        )
    return sorted(names)


def n_rows_of(points: Any) -> int | None:
    """Return how many rows the files of a folder or a pattern have; None where points are neither."""
    from pyarrow import parquet

    files = parquet_files(points)
    return None if files is None else sum(parquet.read_metadata(path).num_rows for path in files)


def need_columns(options: ReadOptions, columns: Any, where: str) -> list[str]:
    """Return the columns to read besides coordinates; refuse a part that lacks one."""
    for what, name in options.columns:
        if name not in columns:
            raise DataError(
                f"{what}: there is no column {name!r} in {where}; there are {listed(columns)}.",
                option=what,
                found=list(columns),
            )
    return [name for _, name in options.columns]


def other_crs(found: Any, expected: Any, whose: str, name: str = "") -> CRSError:
    """Return the error of a part in another CRS."""
    return CRSError(
        f"{name}its CRS is {_crs_name(found)}, and that of {whose} {_crs_name(expected)}.",
        option="points",
        found=found,
        remedy="Bring all parts into one CRS.",
    )


def _crs_name(crs: Any) -> str:
    return "missing" if crs is None else ":".join(as_crs(crs).to_authority() or (as_crs(crs).name,))


# -- do values go beyond degrees?


def beyond_in(points: Any, workers: Workers) -> Any:
    """Return a function that tells whether two columns go beyond degrees in any part of the points."""

    def ask(first: Any, second: Any) -> bool:
        files = parquet_files(points)
        if files is None:
            tables = points[[first, second]].to_delayed()
            try:
                return bool(workers.total(_beyond, list(tables), _either, step=lambda done, total: None))
            except GeobgpError:
                raise
            except (KeyError, ValueError, TypeError):  # a partition is at fault: counting says which
                return False
        items = [(path, (first, second)) for path in files]
        return bool(workers.total(_beyond_in_file, items, _either, step=lambda done, total: None))

    return ask


def _beyond(frame: pd.DataFrame) -> bool:
    x, y = (pd.to_numeric(frame.iloc[:, k], errors="coerce").abs() for k in (0, 1))
    return bool((x > 360).any() or (y > 90).any())


def _beyond_in_file(job: tuple[str, tuple[str, str]]) -> bool:
    path, pair = job
    batches = RowGroups(path).batches(1 << 20, list(pair))
    return any(_beyond(batch.to_pandas()[list(pair)]) for batch in batches)


def _either(first: bool, second: bool) -> bool:
    return first or second


# -- Parquet files


def parts_of_files(points: Any, options: ReadOptions, tally: Tally, workers: Workers) -> Parts:
    """Return the row groups of files, in parts; those off the land by their statistics are marked.

    Where labels or dates are to be read, every row must be.
    """
    from pyarrow import parquet

    files = parquet_files(points) or []
    items: list[Any] = []
    names: list[str] = []
    named: Named | None = None
    notes: tuple[str, ...] = ()
    n_rows, first = 0, Path(files[0]).name
    has_geometry, common = False, None
    for k, path in enumerate(files):
        name = f"file {k + 1:,} of {len(files):,}, {Path(path).name}"
        with driver_errors(path, "points"):
            file = parquet.ParquetFile(path)
            columns = list(file.schema_arrow.names)
            column, about = parquet_geometry(file.metadata)
        crs = None if column is None or about["crs"] is None else as_crs(about["crs"])
        need_columns(options, columns, name)
        if k == 0:
            has_geometry, common = column is not None, crs
            if column is None:
                named, notes = coordinate_columns(columns, options, beyond_in(points, workers))
        elif (column is not None) != has_geometry:
            has, had = ("no", "some") if has_geometry else ("some", "none")
            raise GeometryError(
                f"points, {name}: it has {has} geometries, and {first} has {had}; its columns are {listed(columns)}.",
                option="points",
                found=columns,
                remedy="Read files of one kind at a time.",
            )
        elif crs != common:
            raise other_crs(crs, common, first, f"points, {name}: ")
        lacking = [] if named is None else [str(c) for c in named[:2] if c not in columns]
        if lacking:
            raise GeometryError(
                f"points, {name}: there is no column {listed(lacking)}; there are {listed(columns)}.",
                option="points",
                found=columns,
            )
        n_rows += file.metadata.num_rows
        seen = bool(options.by or options.time)
        for item in _cut(path, file.metadata, column, about, options, crs or options.crs, tally, seen):
            items.append(item)
            names.append(name)
    return Parts(items, names, named, common, notes, n_rows)


def _cut(
    path: str,
    metadata: Any,
    column: str | None,
    about: dict[str, Any],
    options: ReadOptions,
    crs: pyproj.CRS | None,
    tally: Tally,
    seen: bool,
) -> list[Any]:
    """Return the parts of a file; all rows are to be `seen`, or only those that may be near the land."""
    if column is not None and about.get("encoding", "WKB").lower() not in ("wkb", "point"):
        return [RowGroups(path)]
    # Rows that lie off the land need not be seen if each is known to be one point or none.
    seen |= tally.on_water == "error" or tally.kept is not None or about.get("geometry_types") != ["Point"]
    parts: list[Any] = []
    groups: list[int] = []
    rows = 0
    for k in range(metadata.num_row_groups):
        group = metadata.row_group(k)
        off = None if seen or column is None else _off_land(group, column, about, crs, tally)
        if off is not None and not (off[1] and options.weights):  # else: whose weights are they?
            parts.append(OffLand(group.num_rows, off[1], _corners(*off[0]), crs, RowGroups(path, (k,))))
            continue
        groups.append(k)
        rows += group.num_rows
        if rows >= PART_ROWS:
            parts.append(RowGroups(path, tuple(groups)))
            groups, rows = [], 0
    if groups:
        parts.append(RowGroups(path, tuple(groups)))
    return _joined(parts)


def _joined(parts: list[Any]) -> list[Any]:
    """Return parts, with row groups off the land that follow each other taken together."""
    out: list[Any] = []
    for part in parts:
        last = out[-1] if out else None
        if isinstance(part, OffLand) and isinstance(last, OffLand):
            both = np.vstack([last.corners, part.corners])
            read = RowGroups(part.read.path, (*(last.read.groups or ()), *(part.read.groups or ())))
            around = _corners(*both.min(axis=0), *both.max(axis=0))
            out[-1] = OffLand(last.rows + part.rows, last.missing + part.missing, around, part.crs, read)
        else:
            out.append(part)
    return out


Box = tuple[float, float, float, float]


def _off_land(
    group: Any, column: str, about: dict[str, Any], crs: pyproj.CRS | None, tally: Tally
) -> tuple[Box, int] | None:
    """Return the box of a row group that lies off the land as a whole, and how many of its rows have no point."""
    leaves = {group.column(c).path_in_schema: group.column(c).statistics for c in range(group.num_columns)}
    own = [s for name, s in leaves.items() if name == column or name.startswith(f"{column}.")]
    if not own or any(s is None or not s.has_null_count for s in own):
        return None
    box = _box(leaves, column, about)
    if box is None or not _is_off(box, crs, tally.domain, tally.reach):
        return None
    return box, max(s.null_count for s in own)


def _box(leaves: dict[str, Any], column: str, about: dict[str, Any]) -> Box | None:
    """Return the box around a row group: from its own statistics, or those of the whole file."""
    cover = about.get("covering", {}).get("bbox", {})
    names = [".".join(cover.get(side, ())) for side in ("xmin", "ymin", "xmax", "ymax")]
    if not all(names):
        names = [f"{column}.{axis}" for axis in ("x", "y", "x", "y")]
    found = [leaves.get(name) for name in names]
    if all(s is not None and s.has_min_max for s in found):
        box = [float(s.min) for s in found[:2]] + [float(s.max) for s in found[2:]]  # type: ignore[union-attr]
    else:
        whole = about.get("bbox")
        if whole is None:
            return None
        box = [float(v) for v in (whole if len(whole) == 4 else (*whole[:2], *whole[3:5]))]
    west, south, east, north = box
    if not np.isfinite(box).all() or west > east or south > north:  # or it crosses the antimeridian
        return None
    return west, south, east, north


def _is_off(box: Box, crs: pyproj.CRS | None, domain: Domain, reach: float) -> bool:
    """Tell whether no point of a box can be within reach of the land."""
    west, south, east, north = box
    u, v = np.meshgrid(np.linspace(west, east, _LATTICE), np.linspace(south, north, _LATTICE))
    image = transform(np.column_stack([u.ravel(), v.ravel()]), crs, domain.crs)
    if not np.isfinite(image).all():
        return False
    low, high = image.min(axis=0), image.max(axis=0)
    wider = _MARGIN * (high - low)
    around = shapely.box(*(low - wider), *(high + wider))
    return not shapely.dwithin(domain.geometry, around, reach + domain.cell_size)


def _corners(west: float, south: float, east: float, north: float) -> np.ndarray:
    return np.array([(west, south), (east, north), (west, north), (east, south)])
