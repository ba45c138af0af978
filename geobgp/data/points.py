"""Reading points: tables in text files, vector files and frames, as a stream of coordinates, weights and columns."""

from __future__ import annotations

import codecs
import csv
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import geopandas as gpd
import numpy as np
import pandas as pd
import pyogrio
import pyproj
import shapely

from geobgp.errors import DataError, DroppedPointsWarning, GeobgpError, GeometryError, option
from geobgp.files import (
    UNPACKING,
    check_exists,
    check_names,
    driver_errors,
    frame_of,
    kind_of,
    known_crs,
    layers,
    ogr_name,
    open_packed,
    parquet_geometry,
    pick_layer,
    read_vector,
    split_layer,
)
from geobgp.land.crs import WGS84, as_crs, coordinates_of, finite_rows
from geobgp.text import count, listed, percent

# -- Tables in text files: which separator and encoding, and what is wrong with their lines ------------------


#: Bytes that are looked at before a table is read.
_START = 1 << 16
#: Share of zero bytes, at every other place, from which on text is taken for UTF-16.
_ZEROS = 0.3
#: What messages call an encoding that had to be guessed.
GUESSED = {"cp1252": "Windows-1252, as old spreadsheets write it", "utf-16-le": "UTF-16", "utf-16-be": "UTF-16"}


def csv_format(path: str | Path, what: str = "points") -> dict[str, Any]:
    """Return how a table is written, as `pandas.read_csv` takes it: separator and encoding.

    UTF-8, or UTF-16 if it begins so (or every other byte is zero); what is neither is taken for the western encoding of
    old spreadsheets.

    Raises
    ------
    GeometryError
        If it is empty, or no text.
    DataError
        If two columns have one name.
    """
    with open_packed(path) as file:
        start = file.read(_START)
    encoding = _encoding(start)
    try:
        text = codecs.getincrementaldecoder(encoding)().decode(start)
    except UnicodeDecodeError:
        encoding = "cp1252"
        text = start.decode(encoding, "replace")
    head = text.split("\n", 1)[0]
    if not head.strip():
        raise GeometryError(f"{what}: {path} is empty, or its first line is.", option=what, found=str(path))
    if "\0" in text:
        raise GeometryError(
            f"{what}: {path} holds zero bytes, so that it is no text.",
            option=what,
            found=str(path),
            remedy="Save it as CSV in UTF-8.",
        )
    separator = max(",;\t|", key=head.count)
    names = next(csv.reader([head], delimiter=separator, skipinitialspace=True))
    check_names([name.strip() for name in names if name.strip()])
    return {"sep": separator, "encoding": encoding, "encoding_errors": "replace", "skipinitialspace": True}


def csv_tables(
    path: str | Path, form: Mapping[str, Any], what: str = "points", chunksize: int | None = None, **how: Any
) -> Iterator[pd.DataFrame]:
    """Yield a table in a text file, some rows at a time or as a whole; refuse lines with more fields than the header.

    Read by some columns only, nobody would notice these: pandas counts the fields where it reads all columns. (Arrow's
    reader refuses lines with fewer fields as well, and spreadsheets leave out empty cells at the ends of lines.)

    Parameters
    ----------
    path : str or path
    form : dict
        See `csv_format`.
    what : str
        What the rows are, for messages.
    chunksize : int, optional
    how
        More for `pandas.read_csv`.
    """
    try:
        read = pd.read_csv(path, chunksize=chunksize, low_memory=False, **form, **how)
        for table in [read] if isinstance(read, pd.DataFrame) else read:
            if not isinstance(table.index, pd.RangeIndex):  # fields beyond the header's are taken for labels
                n = len(table.columns)
                raise _too_many(path, what, 2, table.index.nlevels + n, n)
            yield table
    except ValueError as error:
        match = re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", str(error))
        if match is None:
            raise
        raise _too_many(path, what, int(match[2]), int(match[3]), int(match[1])) from error


def about_encoding(encoding: str) -> str:
    """Return a sentence on an encoding that had to be guessed, which may be why names are not found; else nothing."""
    return f" The file is no UTF-8, and was read as {GUESSED[encoding]}." if encoding in GUESSED else ""


def _encoding(start: bytes) -> str:
    if start[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        return "utf-16"
    for offset, encoding in ((1, "utf-16-le"), (0, "utf-16-be")):
        half, other = start[offset::2], start[1 - offset :: 2]
        if half and half.count(0) > _ZEROS * len(half) and not other.count(0):
            return encoding
    return "utf-8-sig"


def _too_many(path: str | Path, what: str, line: int, found: int, header: int) -> GeometryError:
    return GeometryError(
        f"{what}: in {path} line {line} has {count(found, 'field')}, and the header has {header}.",
        option=what,
        found=found,
        remedy="Separators at the ends of lines must go; decimal commas, and text with a separator in it, need quotes.",
    )


# -- Points from tables, files and iterables, chunk by chunk -------------------------------------------------


#: Share of points that may be dropped, and of rows that may have none, without a warning.
QUIET_SHARE = 0.01
#: Names of columns that are recognised, in any case; the first pair that is there counts.
DEGREES = (
    ("longitude", "latitude"),
    ("lon", "lat"),
    ("lng", "lat"),
    ("long", "lat"),
    ("decimallongitude", "decimallatitude"),
)
METRES = (("easting", "northing"), ("east", "north"))


@dataclass(frozen=True, eq=False)
class Chunk:
    """Some rows of a source and the points they hold, in the source's own CRS.

    Attributes
    ----------
    coords : (k, 2) array
        Easting or longitude, and northing or latitude.
    rows : (k,) int array
        The row of this chunk that each point came from.
    n_rows, n_missing : int
        Rows of the chunk, and those of them without a point.
    crs : pyproj.CRS or None
    weights : (n_rows,) array or None
    times : (n_rows,) Series or None
        The column of dates, as it was read.
    labels : (n_rows, k) DataFrame or None
        The columns whose values make strata.
    """

    coords: np.ndarray
    rows: np.ndarray
    n_rows: int
    n_missing: int
    crs: pyproj.CRS | None
    weights: np.ndarray | None
    times: pd.Series | None = None
    labels: pd.DataFrame | None = None


@dataclass(frozen=True)
class ReadOptions:
    """How to read points: names of columns, the CRS where a source has none, the rows of a chunk."""

    weights: str | None = None
    time: str | None = None
    by: tuple[str, ...] = ()
    longitude: str | None = None
    latitude: str | None = None
    easting: str | None = None
    northing: str | None = None
    crs: pyproj.CRS | None = None
    domain_crs: pyproj.CRS | None = None
    layer: str | None = None
    chunksize: int = 200_000

    @property
    def columns(self) -> list[tuple[str, str]]:
        """The columns to read besides the coordinates: what each is for, and its name."""
        named = [("weights", self.weights), ("time", self.time), *(("by", name) for name in self.by)]
        return [(what, name) for what, name in named if name is not None]


#: Two columns of coordinates, and their CRS.
Named = tuple[Any, Any, "pyproj.CRS | None"]


@dataclass(frozen=True)
class RowGroups:
    """Some row groups of a Parquet file; None: all of them."""

    path: str
    groups: tuple[int, ...] | None = None

    def batches(self, size: int, columns: list[Any] | None) -> Iterator[Any]:
        """Yield Arrow batches of at most so many rows, with some of the columns; None: all."""
        from pyarrow import parquet

        file = parquet.ParquetFile(self.path)
        groups = None if self.groups is None else list(self.groups)
        yield from file.iter_batches(batch_size=size, row_groups=groups, columns=columns)


class _RawPoints(NamedTuple):
    """Rows as they were read: (n,) geometries or (n, 2) coordinates, their CRS, and the columns that were asked for."""

    values: np.ndarray
    crs: pyproj.CRS | None
    columns: pd.DataFrame | None


class Stream:
    """An iterator over the chunks of a source of points.

    Parameters
    ----------
    points : GeoDataFrame, GeoSeries, DataFrame, (k, 2) array, path, RowGroups, or an iterable of tables and arrays
    options : Options
    named : (column, column, CRS), optional
        Where the coordinates are, if that has been settled before; see `coordinate_columns`.

    Attributes
    ----------
    total : int or None
        Rows in all, where the source knows that before it is read.
    columns : tuple of str
        Columns of a table in a file, once its first chunk has been asked for.
    notes : list of str
        What was assumed on the way.
    """

    def __init__(self, points: Any, options: ReadOptions, named: Named | None = None) -> None:
        self.options = options
        self.notes: list[str] = []
        self.total: int | None = None
        self.columns: tuple[str, ...] = ()
        self._encoding = ""
        self._named = named
        self._parts = self._open(points)

    def __iter__(self) -> Iterator[Chunk]:
        for part in self._parts:
            yield from self._chunks(part)

    def _open(self, points: Any) -> Iterable[Any]:
        if isinstance(points, (str, Path)):
            return self._file(str(points))
        if isinstance(points, RowGroups):
            return self._parquet(points)
        points = frame_of(points)
        if isinstance(points, (gpd.GeoSeries, pd.DataFrame)) or _is_coordinates(points):
            self.total = len(points)
            return [points]
        if isinstance(points, Iterable) and not isinstance(points, (pd.Series, np.ndarray, bytes, dict)):
            return _at_least_one(points)
        raise GeometryError(
            "points: expected a GeoDataFrame, a GeoSeries, a DataFrame, a (k, 2) array, a path, or an "
            f"iterable of such tables; found {type(points).__name__}."
        )

    def _chunks(self, part: Any) -> Iterator[Chunk]:
        """Cut a table into chunks of points."""
        values, crs, columns = part if isinstance(part, _RawPoints) else self._raw(frame_of(part))
        o, size = self.options, self.options.chunksize
        weights = times = labels = None
        if columns is not None:
            weights = None if o.weights is None else as_weights(columns[o.weights], o.weights)
            times = None if o.time is None else columns[o.time]
            labels = columns[list(o.by)] if o.by else None
        for start in range(0, len(values), size):
            here = slice(start, start + size)
            chunk = values[here]
            coords, rows, missing = coordinates_of(chunk) if chunk.ndim == 1 else finite_rows(chunk)
            yield Chunk(
                coords,
                rows,
                len(chunk),
                missing,
                crs,
                None if weights is None else weights[here],
                None if times is None else times.iloc[here],
                None if labels is None else labels.iloc[here],
            )

    def _raw(self, table: Any) -> _RawPoints:
        """Return the geometries or coordinates of a table, their CRS, and the columns that were asked for."""
        o = self.options
        columns = None
        if isinstance(table, pd.DataFrame):
            self._wanted(table.columns)
            columns = pd.DataFrame(table)
        else:
            for what, name in o.columns:
                raise DataError(
                    f"{option(what, name)} is no column: the points are a {type(table).__name__}.",
                    option=what,
                    found=name,
                )
        if isinstance(table, gpd.GeoSeries) or _has_geometry(table):
            self._no_columns("their shapes")
            return _RawPoints(table.geometry.to_numpy(), table.crs or o.crs, columns)
        if isinstance(table, pd.DataFrame):
            return _RawPoints(*self._coordinates(table), columns)
        if _is_coordinates(table):
            self._no_columns("an array without names")
            try:
                numbers = np.asarray(table, float)
            except (TypeError, ValueError):
                raise GeometryError(
                    "points: an array of points holds numbers, eastings and northings; found words.", option="points"
                ) from None
            return _RawPoints(numbers, o.crs or o.domain_crs, None)
        raise GeometryError(
            "points: each chunk must be a GeoDataFrame, a GeoSeries, a DataFrame with named coordinates "
            f"or a (k, 2) array; found {type(table).__name__}."
        )

    def _no_columns(self, what: str) -> None:
        """Refuse columns of coordinates where these are read from something else."""
        for name in ("longitude", "latitude", "easting", "northing"):
            if (column := getattr(self.options, name)) is not None:
                raise DataError(
                    f"{option(name)} names a column, and the coordinates are those of {what}.",
                    option=name,
                    found=column,
                    remedy="Leave it out, or give a table without shapes: frame.drop(columns=frame.geometry.name).",
                )

    def _wanted(self, columns: Any) -> list[str]:
        """Return the columns to read besides the geometry; refuse those that are not there."""
        for what, name in self.options.columns:
            if name not in columns:
                raise DataError(
                    f"{what}: there is no column {name!r}; there are {listed(columns)}.",
                    option=what,
                    found=list(columns),
                )
        return list(dict.fromkeys(name for _, name in self.options.columns))

    # -- coordinates in named columns ----------------------------------------------------------------------

    def _coordinates(self, frame: pd.DataFrame) -> tuple[np.ndarray, pyproj.CRS | None]:
        if self._named is None:
            self._named = self._choose(frame)
        first, second, crs = self._named
        for name in (first, second):
            if name not in frame.columns:
                raise GeometryError(
                    f"points: a chunk has no column {name!r}; it has {listed(frame.columns)}.",
                    option="points",
                    found=list(frame.columns),
                )
        return np.column_stack([_numbers(frame[name]) for name in (first, second)]), crs

    def _choose(self, frame: pd.DataFrame) -> Named:
        """Decide which columns hold the coordinates and in which CRS they are."""
        o = self.options
        planar = o.crs or o.domain_crs
        named = ((o.longitude, o.latitude, o.crs or WGS84), (o.easting, o.northing, planar))
        for first, second, crs in named:
            if first is None and second is None:
                continue
            for name in (first, second):
                if name not in frame.columns:
                    raise GeometryError(
                        f"points: there is no column {name!r}; there are {listed(frame.columns)}.{self._encoding}",
                        option="points",
                        found=list(frame.columns),
                    )
            return first, second, crs
        there = {str(column).strip().lower(): column for column in frame.columns}
        for pairs, crs in ((DEGREES, o.crs or WGS84), (METRES, planar), ((("x", "y"),), planar)):
            for a, b in pairs:
                if a in there and b in there:
                    return self._say(frame, there[a], there[b], crs)
        raise GeometryError(
            f"points: no columns with coordinates among {listed(frame.columns)}.{self._encoding}",
            option="points",
            found=list(frame.columns),
            remedy=(
                f"Name them: {argument('longitude')} and {argument('latitude')}, or {argument('easting')} "
                f"and {argument('northing')} (with {argument('points_crs', 'crs')} where that is not the "
                "domain's)."
            ),
        )

    def _say(self, frame: pd.DataFrame, a: Any, b: Any, crs: pyproj.CRS | None) -> Named:
        if str(a).strip().lower() == "x" and self.options.crs is None and self.options.domain_crs is not None:
            x, y = _numbers(frame[a]), _numbers(frame[b])
            with np.errstate(invalid="ignore"):
                degrees = not ((np.abs(x) > 360).any() or (np.abs(y) > 90).any())
            crs = WGS84 if degrees else crs
        if crs is WGS84:
            self.notes.append(f"columns {a!r} and {b!r} are taken as longitude and latitude")
        elif crs is not None:
            whose = "" if self.options.crs else ", the domain's CRS"
            self.notes.append(f"columns {a!r} and {b!r} are taken as coordinates in {crs.name}{whose}")
        return a, b, crs

    # -- files ---------------------------------------------------------------------------------------------

    def _file(self, path: str) -> Iterator[Any]:
        path, layer = split_layer(path, self.options.layer)
        check_exists(path, "points")
        with driver_errors(path, "points"):
            kind = kind_of(path)
            if kind == "table":
                yield from self._csv(path)
            elif kind == "parquet":
                yield from self._parquet(RowGroups(path))
            else:
                yield from self._ogr(path, layer)

    def _csv(self, path: str) -> Iterator[pd.DataFrame]:
        form = csv_format(path)
        self._encoding = about_encoding(form["encoding"])
        sample = next(csv_tables(path, form, nrows=100, dtype=str))
        self.columns = tuple(map(str, sample.columns))
        first, second, _ = self._named = self._choose(sample)
        wanted = list(dict.fromkeys([first, second, *self._wanted(sample.columns)]))
        time = self.options.time
        dtype = None if time is None or time == self.options.weights else {time: str}
        for table in csv_tables(path, form, chunksize=self.options.chunksize, dtype=dtype):
            yield table[wanted]

    def _parquet(self, source: RowGroups) -> Iterator[Any]:
        from pyarrow import parquet

        file = parquet.ParquetFile(source.path)
        self.total = file.metadata.num_rows
        column, about = parquet_geometry(file.metadata)
        encoding = about.get("encoding", "WKB").lower()
        wanted = self._wanted(file.schema_arrow.names)
        if column:
            self._no_columns("its shapes")
        if column and encoding not in ("wkb", "point"):
            yield read_vector(source.path, "points", columns=wanted)
            return
        crs = None if about["crs"] is None else as_crs(about["crs"])
        names = [column, *wanted] if column else None
        if not column and self._named is not None:
            names = list(dict.fromkeys([*self._named[:2], *wanted]))
        for batch in source.batches(self.options.chunksize, names):
            yield batch.to_pandas() if column is None else self._arrow(batch, column, encoding, crs)

    def _ogr(self, path: str, layer: str | None) -> Iterator[_RawPoints]:
        self._no_columns("its shapes")
        layer, file = pick_layer(path, layer, "points"), ogr_name(path)
        info = pyogrio.read_info(file, layer=layer)
        self.total = None if info["features"] < 0 else int(info["features"])
        columns, size = self._wanted(info["fields"]), self.options.chunksize
        with pyogrio.open_arrow(file, layer=layer, columns=columns, batch_size=size, use_pyarrow=True) as (
            meta,
            batches,
        ):
            crs = None if known_crs(meta["crs"]) is None else as_crs(meta["crs"])
            for batch in batches:
                yield self._arrow(batch, meta["geometry_name"] or "wkb_geometry", "wkb", crs)

    def _arrow(self, batch: Any, column: str, encoding: str, crs: pyproj.CRS | None) -> _RawPoints:
        wanted = list(dict.fromkeys(name for _, name in self.options.columns))
        columns = batch.select(wanted).to_pandas() if wanted else None
        return _RawPoints(arrow_points(batch.column(column), encoding), crs or self.options.crs, columns)


def coordinate_columns(
    columns: Any, options: ReadOptions, beyond: Callable[[Any, Any], bool]
) -> tuple[Named, tuple[str, ...]]:
    """Settle which columns of a source in many parts hold the coordinates; return what is assumed as well.

    Parameters
    ----------
    columns : sequence of str
    options : Options
    beyond : callable(column, column)
        Tells whether values go beyond degrees in any part; asked only where that decides between two systems.
    """
    for value in (0.0, 1e9):  # within degrees, and beyond them
        stream = Stream([], options)
        named = stream._choose(pd.DataFrame({name: [value] for name in columns}))
        recognised = options.easting is None and options.longitude is None
        unsure = recognised and str(named[0]).strip().lower() == "x" and options.crs is None
        if not (unsure and options.domain_crs is not None and value == 0.0 and beyond(*named[:2])):
            break
    return named, tuple(stream.notes)


def arrow_points(geometry: Any, encoding: str) -> np.ndarray:
    """Return the points of an Arrow array as (n, 2) coordinates, or as (n,) geometries where some are not plain."""
    if encoding != "wkb":
        xy = [geometry.field(axis).to_numpy(zero_copy_only=False) for axis in ("x", "y")]
        return np.where(geometry.is_valid(), xy, np.nan).T
    values = _wkb_points(geometry)
    return shapely.from_wkb(geometry.to_numpy(zero_copy_only=False)) if values is None else values


def _wkb_points(binary: Any) -> np.ndarray | None:
    """Return the coordinates of an Arrow array of plain points in WKB, or None if it holds anything else."""
    if binary.null_count or not len(binary):
        return None
    _, where, data = binary.buffers()
    wide = np.int64 if str(binary.type).startswith("large") else np.int32
    edges = np.frombuffer(where, wide)[binary.offset : binary.offset + len(binary) + 1]
    if (np.diff(edges) != 21).any():
        return None
    records = np.frombuffer(data, np.uint8)[edges[0] : edges[-1]].reshape(-1, 21)
    if (records[:, :5] != (1, 1, 0, 0, 0)).any():  # little-endian, type 1: a point in two dimensions
        return None
    return np.ascontiguousarray(records[:, 5:]).view("<f8")


def _at_least_one(parts: Iterable[Any]) -> Iterator[Any]:
    """Yield tables; refuse an iterable that has none, such as an iterator that was read before."""
    none = True
    for part in parts:
        none = False
        yield part
    if none:
        raise DataError(
            "points: the iterable gives no table at all.",
            option="points",
            found=0,
            remedy="An iterator can be read once: give a list, or a new one.",
        )


def check_snap(on_water: str, max_snap: float | None) -> None:
    """Refuse a limit of moves where nothing is moved."""
    if max_snap is not None and on_water != "nearest":
        raise DataError(
            f"{option('max_snap')} has no effect: {option('on_water', on_water)} moves no points.",
            option="max_snap",
            found=max_snap,
            remedy=f"Leave out one of them; {option('on_water', 'nearest')} moves points.",
        )


def check_layer(points: Any, layer: str) -> None:
    """Refuse a layer of what has none: tables in memory and text files."""
    in_file = isinstance(points, (str, Path))
    if not in_file or kind_of(points) in ("table", "parquet"):
        what = f"{points} has none" if in_file else f"a {type(points).__name__} has none"
        raise DataError(
            f"{option('layer')} is one of a file with several layers; {what}.",
            option="layer",
            found=layer,
            remedy=f"Leave it out; of another file, name the layer in its path: FILE|layername={layer}.",
        )


def argument(name: str, python: str | None = None) -> str:
    """Return the name of an option for a message, as Python's users write an argument."""
    return option(name, python=f"{python or name}=")


def _is_coordinates(points: Any) -> bool:
    return isinstance(points, np.ndarray) and points.ndim == 2 and points.shape[1] == 2


def _has_geometry(frame: Any) -> bool:
    return isinstance(frame, gpd.GeoDataFrame) and frame.active_geometry_name is not None


def _numbers(column: pd.Series) -> np.ndarray:
    """Return a column as floats, NaN where it holds none; a decimal comma counts as a point."""
    if not pd.api.types.is_numeric_dtype(column):
        column = pd.to_numeric(column.astype(str).str.strip().str.replace(",", ".", regex=False), errors="coerce")
    return np.asarray(column, float)


def as_weights(column: pd.Series, name: str) -> np.ndarray:
    """Return a column of weights as floats; refuse dates, and numbers whose comma may stand between thousands."""
    if column.dtype.kind in "mM":
        raise DataError(
            f"The column {name!r} holds dates, such as {str(column.iloc[0])!r}, and no weights.",
            option="weights",
            found=name,
            remedy=f"Name the column of weights: {option('weights')}. Dates are {option('time')}.",
        )
    if not pd.api.types.is_numeric_dtype(column):
        words = column.dropna().astype(str).str.strip()
        comma = words[words.str.contains(",", regex=False)]
        if len(comma) and comma.str.fullmatch(r"[1-9]\d{0,2},\d{3}").all():
            raise DataError(
                f"weights: {comma.iloc[0]!r} in the column {name!r} can be read in two ways: is its comma a decimal "
                "one, or between thousands?",
                option="weights",
                found=str(comma.iloc[0]),
                remedy="Write numbers without marks between thousands, and with a decimal point.",
            )
    return _numbers(column)


def with_unreadable(warning: DroppedPointsWarning | None, n_missing: int, n_read: int) -> DroppedPointsWarning | None:
    """Return a warning of dropped points with the rows that have no point, where these are many; or of these alone."""
    rows = n_missing + n_read
    if n_read == 0 or n_missing <= QUIET_SHARE * rows:
        return warning
    share = percent(n_missing / rows, 1)
    have = "has no point that can be read, and is" if n_missing == 1 else "have no point that can be read, and are"
    text = f"{n_missing:,} of {rows:,} rows ({share}) {have} left out."
    if warning is not None:
        text, remedy = f"{text} {warning.message}", warning.remedy
        return DroppedPointsWarning(text, option=warning.option, found=warning.found, remedy=remedy)
    remedy = "Check their geometries, or their coordinates: each is a number."
    return DroppedPointsWarning(text, option="points", found=n_missing, remedy=remedy)


def number_of_rows(points: Any, layer: str | None = None) -> int | None:
    """Return how many rows a source of points has, None where only reading it would tell."""
    if not isinstance(points, (str, Path)):
        return len(points) if hasattr(points, "__len__") else None
    path, layer = split_layer(str(points), layer)
    try:
        if kind_of(path) != "table":
            layer_list = [each for each in layers(path, "points") if layer in (None, each.name)]
            return next((each.n_rows for each in layer_list if each.kind), layer_list[0].n_rows)
        with open_packed(path) as file:
            return max(sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b"")) - 1, 0)
    except (GeobgpError, OSError, LookupError, *UNPACKING):  # whatever is wrong is said when the points are read
        return None
