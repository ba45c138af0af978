"""Files: which are read as what, and how each is written, whole or not at all."""

from __future__ import annotations

import errno
import glob
import importlib.util
import json
import lzma
import mmap
import os
import platform
import re
import secrets
import shutil
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

from geobgp.errors import DataError, GeobgpError, GeometryError, WriteError, option
from geobgp.text import listed

if TYPE_CHECKING:
    import geopandas as gpd
    import pandas as pd

Kind = Literal["table", "parquet", "vector", "other"]

#: What files with these endings hold.
SUFFIXES: dict[Kind, tuple[str, ...]] = {
    "table": (".csv", ".tsv", ".txt"),
    "parquet": (".parquet", ".geoparquet", ".pq"),
    "vector": (
        ".gpkg", ".shp", ".shz", ".geojson", ".geojsonl", ".json", ".fgb", ".gml", ".kml", ".kmz",
        ".gdb", ".gpx",
    ),
}  # fmt: skip
#: Endings of files in which another one is packed, and the modules that open them.
PACKED = {".gz": "gzip", ".bz2": "bz2", ".xz": "lzma"}
#: What these raise over damaged bytes, or where the end is missing, besides an OSError.
UNPACKING = (EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile)

#: Packages whose tables, shapes and arrays are taken as they are.
_OURS = frozenset(
    ["builtins", "pandas", "geopandas", "shapely", "numpy", "xarray", "dask", "dask_geopandas", "dask_expr", "geobgp"]
)

# -- reading


def kind_of(path: str | Path) -> Kind:
    """Return what a file holds by its name, that of the file packed in it, or by what a ZIP archive has.

    Examples
    --------
    >>> [kind_of(name) for name in ("a.csv.gz", "a.PQ", "a.gpkg|layername=lakes", "a.tif")]
    ['table', 'parquet', 'vector', 'other']
    """
    name = split_layer(str(path))[0]
    suffixes = [suffix.lower() for suffix in Path(name).suffixes]
    if suffixes[-1:] == [".zip"]:
        return "vector" if _vectors_in(name) else "other"
    if suffixes and suffixes[-1] in PACKED:
        suffixes.pop()
    return next((kind for kind, endings in SUFFIXES.items() if suffixes and suffixes[-1] in endings), "other")


def open_packed(path: str | Path) -> BinaryIO:
    """Open a file for reading bytes; of one that is packed, those inside."""
    module = PACKED.get(Path(path).suffix.lower())
    return Path(path).open("rb") if module is None else importlib.import_module(module).open(path, "rb")


def split_layer(path: str, layer: str | None = None) -> tuple[str, str | None]:
    """Return path and layer of ``path|layername=layer``, QGIS's way of naming both, or of ``path:layer``.

    Examples
    --------
    >>> split_layer("map.gpkg|layername=lakes"), split_layer("map.gpkg:lakes"), split_layer("map.gpkg")
    (('map.gpkg', 'lakes'), ('map.gpkg', 'lakes'), ('map.gpkg', None))
    """
    if "|layername=" in path:
        path, named = path.split("|layername=", 1)
        return path, layer or named.split("|")[0]
    file, colon, named = path.rpartition(":")
    if colon and named and file.lower().endswith(SUFFIXES["vector"]) and not Path(path).exists():
        return file, layer or named
    return path, layer


def is_pattern(path: str) -> bool:
    """Tell whether a path may name several files.

    Examples
    --------
    >>> is_pattern("days/*.parquet"), is_pattern("day.parquet")
    (True, False)
    """
    return glob.has_magic(path)


def matching(pattern: str) -> list[str]:
    """Return the local files that a pattern names, such as ``days/*.parquet`` or ``days/**/*.parquet``."""
    names = glob.glob(pattern, recursive=True) if is_pattern(pattern) else []  # noqa: PTH207 (any root)
    return sorted(name for name in names if Path(name).is_file())


def check_exists(path: str | Path, what: str) -> None:
    """Raise GeometryError when a local file is missing; GDAL's virtual paths and URLs pass.

    What is there counts as read: no output replaces it (`check_unread`).
    """
    path = split_layer(str(path))[0]
    if not is_possible(path):
        raise GeometryError(f"{what}: no file can have the name {path!r}.", option=what, found=path)
    if not Path(path).exists():
        path = path.split("|")[0]  # what is behind it says how the file is used
    if Path(path).exists() and not (Path(path).is_file() or Path(path).is_dir()):
        raise GeometryError(
            f"{what}: {path} is a pipe or a device, which can be read once at most.",
            option=what,
            found=path,
            remedy="Write what comes from it to a file first.",
        )
    if is_virtual(path) or Path(path).exists() or matching(path):
        check_direct(path, what)
        remember_read(path)
        return
    folder = Path(os.path.realpath(path)).parent  # a loop of links has one too
    if folder.is_dir():
        names = sorted(p.name for p in folder.iterdir() if p.is_file())
        remedy = f"That folder has: {listed(names, 8)}." if names else "That folder has no files."
    else:
        remedy = f"The folder {folder} does not exist either."
    raise GeometryError(f"{what}: there is no file {path}.", option=what, found=path, remedy=remedy)


def is_possible(path: str | os.PathLike[str]) -> bool:
    r"""Tell whether a file can have this name: one without a zero byte, in characters that the system can write.

    Examples
    --------
    >>> is_possible("Zürich/\u4eac.csv"), is_possible("a\0.csv"), is_possible("\ud800.csv")
    (True, False, False)
    """
    try:
        return b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:  # half a surrogate pair
        return False


def is_virtual(path: str) -> bool:
    """Tell whether a path is a URL or one of GDAL's virtual file systems: the user has written where to read."""
    return path.startswith("/vsi") or "://" in path


#: How files begin that hold no data but say where others are, which GDAL recognises whatever their names.
_INDIRECT = re.compile(
    rb"<(VRTDataset|OGRVRT|GDAL_WMS|WMS_|WMT_|GDAL_WMTS|WCS_GDAL|WCS_|GDALTileIndex|OGRWFSDataSource|OGRCSWDataSource|"
    rb"OGROAPIF|MRF_META)",
    re.I,
)
#: Bytes by which GDAL recognises them.
_HEAD = 1 << 15
#: How files with these endings begin: what begins otherwise would be opened as something else.
_BEGINS = {
    ".gpkg": (b"SQLite format 3",), ".shp": (b"\0\0\x27\x0a",), ".fgb": (b"fgb",),
    ".tif": (b"II", b"MM"), ".tiff": (b"II", b"MM"),
}  # fmt: skip
#: Raster drivers that read nothing but their file (and what is called alike beside it); others only by their ending.
_PLAIN_DRIVERS = frozenset({
    "AAIGrid", "AIG", "BIL", "BMP", "BT", "COG", "EHdr", "ENVI", "GIF", "GPKG", "GRIB", "GS7BG", "GSAG", "GSBG", "GTX",
    "GTiff", "HDF5", "HDF5Image", "HFA", "JP2OpenJPEG", "JPEG", "KEA", "MBTiles", "NITF", "NWT_GRD", "PCRaster", "PNG",
    "RRASTER", "RST", "SAGA", "SNAP_TIFF", "SRTMHGT", "USGSDEM", "WEBP", "XYZ", "ZMap", "netCDF",
})  # fmt: skip


def _letters(word: str) -> bytes:
    """Return the pattern of a word in JSON, whose letters may be written as their codes."""
    return b"".join(rb"(?:%c|\\u00%02x)" % (ord(c), ord(c)) for c in word)


#: A coordinate reference system that GeoJSON says is elsewhere, as its first version allowed.
_CRS_ELSEWHERE = re.compile(
    rb'"' + _letters("crs") + rb'"\s*:\s*\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*?"' + _letters("type")
    + rb'"\s*:\s*"(?:' + _letters("link") + rb"|" + _letters("url") + rb')"',
    re.I,
)  # fmt: skip


def check_direct(path: str, what: str) -> None:
    """Raise GeometryError where a local file only refers to other files or servers, and its name does not say so.

    GDAL goes by the content of a file: a ``points.gpkg`` that somebody sent may be a list of sources elsewhere. A file
    that is called ``.vrt``, and paths that are not local, are taken as they are written.
    """
    if is_virtual(path) or path.lower().endswith(".vrt") or not Path(path).is_file():
        return
    with suppress(OSError, *UNPACKING):  # what cannot be opened is told by its reader
        heads = [_head(path)]
        if path.lower().endswith((".zip", ".kmz", ".shz")):
            with zipfile.ZipFile(path) as archive:
                heads = [archive.open(name).read(_HEAD) for name in archive.namelist() if not name.endswith("/")]
        listed_elsewhere = kind_of(path) == "other" and b'"stac_version"' in heads[0]
        if listed_elsewhere or any(_INDIRECT.search(head) for head in heads):
            raise GeometryError(
                f"{what}: {path} holds no data; it refers to other files or servers.",
                option=what,
                found=path,
                remedy="If you trust it, give it a name that ends in .vrt, or name the files that it refers to.",
            )
        ending = Path(path).suffix.lower()
        if heads[0] and not heads[0].startswith(_BEGINS.get(ending, b"")):
            raise GeometryError(
                f"{what}: {path} cannot be read as a {'vector file' if kind_of(path) == 'vector' else 'raster'}: it is "
                f"called {ending}, and does not begin as such a file does.",
                option=what,
                found=path,
                remedy="Give it the name that fits what it holds.",
            )
        if ending in (".json", ".geojson", ".geojsonl") and _refers(path):
            raise GeometryError(
                f"{what}: {path} says that its coordinate reference system is to be found elsewhere (a link).",
                option=what,
                found=path,
                remedy='Take "crs" out of it, if it is in longitude and latitude, or name it: {"type": "name", ...}.',
            )


def _refers(path: str) -> bool:
    """Tell whether a GeoJSON file names a link as its coordinate reference system, which would be fetched."""
    with Path(path).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        return _CRS_ELSEWHERE.search(text) is not None


def open_raster_file(path: str, what: str = "raster") -> Any:
    """Open a raster; one whose driver neither fits its name nor reads the file alone is refused, see `check_direct`."""
    import rasterio

    check_direct(path, what)
    opened = rasterio.open(path)
    ending = Path(path).suffix.lower().lstrip(".")
    fits = {"zarr": "Zarr"} | rasterio.drivers.raster_driver_extensions()
    if opened.driver in {fits.get(ending), *_PLAIN_DRIVERS} or is_virtual(path) or ending == "vrt":
        return opened
    opened.close()
    raise GeometryError(
        f"{what}: {path} would be read as {opened.driver}, which may read other files or servers.",
        option=what,
        found=opened.driver,
        remedy="Convert it to a GeoTIFF; or give it the ending of its own format, if you trust it.",
    )


def _head(path: str) -> bytes:
    with open_packed(path) as file:
        return file.read(_HEAD)


@contextmanager
def driver_errors(path: str, what: str) -> Iterator[None]:
    """Turn whatever a driver raises while a file is read into a GeometryError."""
    try:
        yield
    except (GeobgpError, MemoryError):
        raise
    except Exception as error:  # each driver has its own exceptions; the user needs one kind
        kind = "table" if kind_of(path) == "table" else "vector file"
        raise GeometryError(f"{what}: {path} cannot be read as a {kind}: {error}", option=what, found=path) from error


def read_vector(
    path: str | Path, what: str, layer: str | None = None, columns: Sequence[str] | None = None
) -> gpd.GeoDataFrame:
    """Read a file of shapes: GeoPackage, Shapefile, GeoJSON, FlatGeobuf, GML, KML, GeoParquet, zipped or not.

    Parameters
    ----------
    path : str or path
        ``file.gpkg|layername=lakes`` or ``file.gpkg:lakes`` names a layer.
    what : str
        What the shapes are, for messages.
    layer : str, optional
        The layer of a file that has several.
    columns : sequence of str, optional
        The columns to read besides the geometry; all by default.

    Raises
    ------
    GeometryError
        If there is no such file, or layer, or it cannot be read.
    """
    import geopandas as gpd
    import pyogrio

    name, layer = split_layer(str(path), layer)
    check_exists(name, what)
    with driver_errors(name, what):
        if kind_of(name) == "parquet":
            frame = gpd.read_parquet(name)
            return frame if columns is None else frame[[*columns, frame.geometry.name]]
        layer = pick_layer(name, layer, what)
        frame = pyogrio.read_dataframe(ogr_name(name), layer=layer, columns=columns)
        return frame if known_crs(frame.crs) is not None else frame.set_crs(None, allow_override=True)


#: Columns that hold shapes as WKB where a table does not say which does.
_SHAPE_COLUMNS = ("geometry", "geom", "wkb_geometry", "the_geom", "wkb", "shape")


def as_frame(value: Any, what: str) -> Any:
    """Return a table or shapes of any library, or in a file, as a DataFrame or GeoDataFrame; anything else as it is.

    See `frame_of`.

    Parameters
    ----------
    value
    what : str
        What the table is of, for messages.
    """
    if isinstance(value, (str, os.PathLike)):
        is_shapes = kind_of(os.fspath(value)) in ("vector", "parquet")
        return read_vector(os.fspath(value), what) if is_shapes else value
    with driver_errors(what, what):
        return frame_of(value)


def frame_of(value: Any) -> Any:
    """Return a table or shapes of any library as a DataFrame, GeoDataFrame or geometry; anything else as it is.

    Tables are what has ``__arrow_c_stream__`` (DuckDB, Polars, pyarrow, GeoArrow), shapes what has a
    ``__geo_interface__``. Without a CRS of its own a ``__geo_interface__`` has none.

    Examples
    --------
    >>> import pyarrow, shapely
    >>> table = pyarrow.table({"people": [3], "geom": [shapely.to_wkb(shapely.box(0, 0, 1, 1))]})
    >>> frame_of(table).geometry.area.tolist(), frame_of("points.csv")
    ([1.0], 'points.csv')

    Raises
    ------
    DataError
        If two columns have one name.
    """
    value = unmasked(value)
    if not _OURS.isdisjoint(kind.__module__.split(".")[0] for kind in type(value).__mro__[:-1]):
        return _each_name_once(value)
    shapes = getattr(value, "__geo_interface__", None)
    if not (hasattr(value, "__arrow_c_stream__") or isinstance(shapes, Mapping)):
        return value
    import geopandas as gpd
    import shapely

    if hasattr(value, "__arrow_c_stream__"):
        import pyarrow as pa

        table = pa.table(value)
        metadata = [field.metadata or {} for field in table.schema]
        if any(one.get(b"ARROW:extension:name", b"").startswith(b"geoarrow") for one in metadata):
            return gpd.GeoDataFrame.from_arrow(table)
        frame = _each_name_once(table.to_pandas())
        binary = [f.name for f in table.schema if pa.types.is_binary(f.type) or pa.types.is_large_binary(f.type)]
        shape = next((name for name in binary if name.lower() in _SHAPE_COLUMNS), None)
        if shape is None:
            return frame
        return gpd.GeoDataFrame(frame.drop(columns=shape), geometry=shapely.from_wkb(frame[shape].to_numpy()))
    assert shapes is not None
    if shapes.get("type") in ("FeatureCollection", "Feature"):
        features = shapes if shapes["type"] == "FeatureCollection" else [shapes]
        return gpd.GeoDataFrame.from_features(features, crs=known_crs(getattr(value, "crs", None)))
    return shapely.geometry.shape(shapes)


def unmasked(value: Any) -> Any:
    """Return a masked array as one with nothing where it is masked: NaN, NaT or None; anything else as it is.

    Examples
    --------
    >>> import numpy
    >>> unmasked(numpy.ma.array([1, 2], mask=[True, False])).tolist(), unmasked([1, 2])
    ([nan, 2.0], [1, 2])
    """
    if "MaskedArray" not in {kind.__name__ for kind in type(value).__mro__}:
        return value
    kind = value.dtype.kind
    if kind in "mM":
        return value.filled("NaT")
    return value.astype(float).filled(float("nan")) if kind in "biuf" else value.astype(object).filled(None)


def _each_name_once(value: Any) -> Any:
    """Return a value; refuse tables of which two columns have one name."""
    columns = getattr(value, "columns", None)
    if columns is not None and not getattr(columns, "is_unique", True):
        check_names(list(columns))
    return value


def check_names(names: Sequence[Any]) -> None:
    """Refuse names of columns that are there twice.

    Examples
    --------
    >>> check_names(["x", "y", "x"])
    Traceback (most recent call last):
    geobgp.errors.DataError: Two columns are called 'x'; rename one.
    """
    twice = [name for name, n in Counter(names).items() if n > 1]
    if twice:
        n = names.count(twice[0])
        others = f", and others {listed(twice[1:], 3)}" if len(twice) > 1 else ""
        text = f"{'Two' if n == 2 else f'{n:,}'} columns are called {str(twice[0])!r}{others}"
        raise DataError(f"{text}; rename {'one' if n == 2 and not others else 'them'}.", found=twice)


def known_crs(crs: Any) -> Any:
    """Return the CRS that a file gives, None where it says that it is undefined, as a GeoPackage can.

    Examples
    --------
    >>> known_crs("EPSG:4326"), known_crs('ENGCRS["Undefined Cartesian SRS",...]')
    ('EPSG:4326', None)
    """
    text = "" if crs is None else crs if isinstance(crs, str) else crs.to_wkt()
    return None if crs is None or re.search("Undefined (geographic|Cartesian) SRS", text, re.I) else crs


@dataclass(frozen=True)
class VectorLayer:
    """What a file says of a layer before it is read.

    Attributes
    ----------
    name : str
    n_rows : int or None
        None where only reading would tell.
    kind : str or None
        Kind of its geometries; None where it has none.
    crs : anything pyproj takes, or None
    bounds : (west, south, east, north) or None
    columns : tuple of str
        Those besides the geometry.
    """

    name: str
    n_rows: int | None
    kind: str | None
    crs: Any
    bounds: tuple[float, ...] | None
    columns: tuple[str, ...]


def layers(path: str | Path, what: str = "file") -> list[VectorLayer]:
    """Return what a vector file says of its layers, those without geometries included."""
    import pyogrio

    name = split_layer(str(path))[0]
    check_exists(name, what)
    with driver_errors(name, what):
        if kind_of(name) == "parquet":
            return [_parquet_layer(name)]
        named, opened = [], ogr_name(name)
        for layer in pyogrio.list_layers(opened)[:, 0]:
            info = pyogrio.read_info(opened, layer=layer, force_feature_count=True, force_total_bounds=True)
            n_rows, bounds = int(info["features"]), info["total_bounds"]
            named.append(
                VectorLayer(
                    str(layer),
                    n_rows if n_rows >= 0 else None,
                    info["geometry_type"],
                    known_crs(info["crs"]),
                    None if bounds is None else tuple(map(float, bounds)),
                    tuple(map(str, info["fields"])),
                )
            )
        return named


def parquet_geometry(metadata: Any) -> tuple[str | None, dict[str, Any]]:
    """Return the geometry column of a Parquet file, None where there is none, and what is said of it."""
    geo = json.loads((metadata.metadata or {}).get(b"geo", b"{}"))
    column = geo.get("primary_column")
    return column, {"crs": "OGC:CRS84"} | geo.get("columns", {}).get(column, {})


def _parquet_layer(path: str) -> VectorLayer:
    from pyarrow import parquet

    file = parquet.ParquetFile(path)
    column, about = parquet_geometry(file.metadata)
    kind = ", ".join(about.get("geometry_types", ())) or "Geometry"
    columns = tuple(name for name in file.schema_arrow.names if name != column)
    if column is None:
        return VectorLayer(Path(path).stem, file.metadata.num_rows, None, None, None, columns)
    bounds = about.get("bbox")
    flat = None if bounds is None else tuple(bounds if len(bounds) == 4 else (*bounds[:2], *bounds[3:5]))
    return VectorLayer(Path(path).stem, file.metadata.num_rows, kind, about["crs"], flat, columns)


def pick_layer(path: str, layer: str | None, what: str) -> str:
    """Return the name of the layer to read; refuse a wrong or an ambiguous one with those that exist."""
    import pyogrio

    spatial = [str(name) for name, kind in pyogrio.list_layers(ogr_name(path)).tolist() if kind is not None]
    if layer is not None and layer in spatial:
        return layer
    if layer is None and len(spatial) == 1:
        return spatial[0]
    if not spatial:
        raise GeometryError(f"{what}: {path} has no layer with geometries.", option=what, found=path)
    problem = f"there is no layer {layer!r}" if layer else "a layer must be named"
    raise GeometryError(
        f"{what}: {problem} in {path}, which has {listed(spatial)}.",
        option=what,
        found=spatial,
        remedy=f"Name one: '{path}|layername={spatial[0]}'.",
    )


def ogr_name(path: str) -> str:
    """Return the name under which OGR opens a file, that of the only vector file in an archive."""
    if is_virtual(path):
        return path
    if path.lower().endswith(".gz"):
        return f"/vsigzip/{path}"
    inside = _vectors_in(path) if path.lower().endswith(".zip") else []
    if len(inside) == 1:
        return f"/vsizip/{path}/{inside[0]}"
    if not all(name.lower().endswith(".shp") for name in inside):  # OGR takes several of these for layers
        raise GeometryError(
            f"{path} holds several files, {listed(inside)}.",
            found=inside,
            remedy=f"Name one: '/vsizip/{path}/{inside[0]}'.",
        )
    return path


def _vectors_in(archive: str) -> list[str]:
    if not (Path(archive).is_file() and zipfile.is_zipfile(archive)):
        return []
    with zipfile.ZipFile(archive) as file:
        return [name for name in file.namelist() if name.lower().endswith(SUFFIXES["vector"])]


# -- writing

#: Files and folders that were read in this process, as they are on disk; and the size and time of those written by it.
_READ: set[str] = set()
_WRITTEN: dict[str, tuple[int, int]] = {}


def new_run() -> None:
    """Forget what was read and written: what is read from here on is the input of another run."""
    _READ.clear()
    _WRITTEN.clear()


def remember_read(path: str | os.PathLike[str]) -> None:
    """Remember that a local file (or folder, or those of a pattern) is read, so that no output replaces it."""
    name = re.sub(r"^(/vsi(zip|gzip|tar)/)+", "", str(path))
    places = [Path(name), *Path(name).parents] if name != str(path) else [Path(name)]  # within an archive
    archive = next((str(place) for place in places if place.exists()), None)
    for file in [archive] if archive is not None else matching(name):
        _READ.add(os.path.realpath(file))


def was_read(path: str | os.PathLike[str]) -> bool:
    """Tell whether an existing file was read in this process, under this name or another, and not written by it."""
    place = os.path.realpath(path)
    if not _READ or not Path(place).exists() or _WRITTEN.get(place, ()) == _state(place):
        return False
    others = (other for other in _READ if Path(other).exists())
    return any(Path(place).samefile(other) or Path(place) in Path(other).parents for other in others)


def check_unread(*paths: str | os.PathLike[str]) -> None:
    """Refuse to replace files that were read in the same run: they are the user's own.

    Raises
    ------
    WriteError
        That names them.
    """
    taken = [str(path) for path in paths if was_read(path)]
    if taken:
        raise WriteError(
            f"{listed(taken)} {'was' if len(taken) == 1 else 'were'} read in this run: an output does not replace its "
            "own input.",
            option="output",
            found=taken,
            remedy=f"Choose another place with {option('output', python='another path')}, or move the input.",
        )


def _remember_written(path: Path) -> None:
    place = os.path.realpath(path)
    _WRITTEN[place] = _state(place)


def _state(path: str) -> tuple[int, int]:
    stat = Path(path).stat()
    return stat.st_size, stat.st_mtime_ns


def why_not_written(error: BaseException, place: str | Path) -> tuple[str, str]:
    """Return why a file could not be written in a place, and what to do about it."""
    number = getattr(error, "errno", None)
    elsewhere = f"Choose another place with {option('output', python='another path')}."
    # GDAL and HDF5 do not say why a file could not be written.
    if number in (errno.ENOSPC, errno.EDQUOT) or (number in (None, errno.EIO) and full(place)):
        return (
            "the disk is full.",
            f"Free some space, or choose another place with {option('output', python='another path')}.",
        )
    if number in (errno.EACCES, errno.EPERM):
        return f"you may not write in {place}.", elsewhere
    if number == errno.EROFS:
        return f"{place} is on a file system that is read-only.", elsewhere
    if number in (errno.ENOTDIR, errno.EEXIST):
        return f"a part of {place} is a file, not a folder.", elsewhere
    if number == errno.ENOENT:
        return f"there is no folder {place}.", "Make it first."
    return f"{getattr(error, 'strerror', None) or error}.", ""


def full(place: str | Path) -> bool:
    """Tell whether the disk under an existing place has no room left."""
    with suppress(OSError):
        return shutil.disk_usage(place).free < 1_000_000
    return False


@contextmanager
def replacing(path: str | os.PathLike[str], *, parents: bool = False) -> Iterator[Path]:
    """Yield a temporary file to be written; it takes the place of `path` when all went well.

    The temporary file has the same name, in a hidden folder beside `path`, so that drivers may put files of
    their own next to it; those go. Nothing is left behind when anything fails, and `path` is then as it was.
    With `parents` the folders that are missing are made first.

    Raises
    ------
    WriteError
        If the system does not let the file be written, or `path` was read in the same run; it says why, and what to do.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "a.txt"
    >>> with replacing(path) as temporary:
    ...     _ = temporary.write_text("whole")
    ...     path.exists()
    False
    >>> path.read_text(), len(list(path.parent.iterdir()))
    ('whole', 1)
    """
    path = Path(path)
    check_unread(path)
    folder = path.absolute().parent / f".{path.name}-{secrets.token_hex(6)}.part"
    try:
        if parents:
            folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir()
        yield folder / path.name
        with (folder / path.name).open("rb") as file:
            os.fsync(file.fileno())
        (folder / path.name).replace(path)
        _remember_written(path)
    except Exception as error:
        raise _not_written(path, error) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def together(folder: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a hidden folder for files that belong together; all of them come to `folder` when all went well.

    The folder and those above it are made if they are missing. Nothing is left behind when anything fails.

    Examples
    --------
    >>> import tempfile
    >>> place = Path(tempfile.mkdtemp()) / "rasters"
    >>> with together(place) as hidden:
    ...     _ = (hidden / "a.txt").write_text("whole")
    >>> [path.name for path in place.iterdir()]
    ['a.txt']
    """
    place = Path(folder).absolute()
    missing = [p for p in (place, *place.parents) if not p.exists()]
    hidden = place / f".{secrets.token_hex(6)}.part"
    try:
        hidden.mkdir(parents=True)
        yield hidden
        names = sorted(hidden.iterdir())
        check_unread(*(place / path.name for path in names))
        for path in names:
            path.replace(place / path.name)
            _remember_written(place / path.name)
        missing = []
    except WriteError as error:  # of a file within, which is named where it was to be
        raise WriteError(error.message.replace(str(hidden), str(folder)), remedy=error.remedy) from error
    except Exception as error:
        raise _not_written(Path(folder), error) from error
    finally:
        shutil.rmtree(hidden, ignore_errors=True)
        for folder_made in missing:
            with suppress(OSError):
                folder_made.rmdir()


@contextmanager
def held_alone(folder: str | os.PathLike[str]) -> Iterator[None]:
    """Hold a folder for as long as this process writes there; refuse where another one does.

    The system lets go of it if the process dies, however that is. Where a file system knows no locks nobody is refused.

    Raises
    ------
    WriteError
        That names the process.
    """
    path = Path(folder) / ".in-use"
    with path.open("a+", encoding="utf-8") as file:
        if not _lock(file.fileno()):
            file.seek(0)
            raise WriteError(
                f"Another run is writing to {folder}: {file.read().strip()}.",
                option="output",
                found=str(folder),
                remedy="Wait until it has ended, or choose another folder "
                f"with {option('output', python='another path')}.",
            )
        file.truncate(0)
        file.write(f"process {os.getpid()} on {platform.node()}")
        file.flush()
        try:
            yield
        finally:
            with suppress(OSError):  # one that is open cannot be removed everywhere
                path.unlink()


def _lock(file: int) -> bool:
    """Lock an open file until it is closed; return False where another process has."""
    try:
        if importlib.util.find_spec("fcntl"):
            fcntl = importlib.import_module("fcntl")
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        else:  # Windows, where what is locked cannot be read: a byte far beyond the text
            os.lseek(file, 1 << 20, os.SEEK_SET)
            msvcrt = importlib.import_module("msvcrt")
            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
    except ImportError:
        return True
    except OSError as error:
        return error.errno not in (errno.EAGAIN, errno.EACCES, errno.EDEADLK)
    return True


def _not_written(path: Path, error: Exception) -> Exception:
    """Return the error to raise where a file could not be written: drivers have their own for a full disk."""
    place = next(p for p in path.absolute().parents if p.exists())
    if isinstance(error, GeobgpError) or not (isinstance(error, OSError) or full(place)):
        return error
    reason, remedy = why_not_written(error if isinstance(error, OSError) else OSError(), path.absolute().parent)
    return WriteError(f"{path} cannot be written: {reason}", remedy=remedy)


# -- tables for spreadsheets

#: What a spreadsheet takes for the beginning of a formula.
_FORMULA = re.compile(r"\s*[=+\-@\uff1d\uff0b\uff0d\uff20]|[\t\r]")


def without_formula(cell: Any) -> Any:
    """Return text that a spreadsheet will not run: an apostrophe before what would begin a formula; numbers stay.

    Examples
    --------
    >>> [without_formula(cell) for cell in ("=1+1", "@home", "-4.5", "Old Town", -4.5)]
    ["'=1+1", "'@home", '-4.5', 'Old Town', -4.5]
    """
    if not (isinstance(cell, str) and _FORMULA.match(cell)):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell


def write_csv(path: str | os.PathLike[str], frame: pd.DataFrame, *, index: bool = False) -> None:
    """Write a table for spreadsheets, without its geometries; text that would begin a formula is escaped."""
    with replacing(path) as temporary:
        temporary.write_text(csv_text(frame, index=index), encoding="utf-8", newline="")


def csv_text(frame: pd.DataFrame, *, index: bool = False) -> str:
    """Return what `write_csv` writes."""
    import geopandas as gpd
    import pandas as pd

    if isinstance(frame, gpd.GeoDataFrame):
        frame = pd.DataFrame(frame.drop(columns=frame.geometry.name))
    frame = frame.reset_index() if index else frame
    texts = [k for k, kind in enumerate(frame.dtypes) if not pd.api.types.is_numeric_dtype(kind)]
    columns = {
        k: frame.iloc[:, k].map(without_formula) if k in texts else frame.iloc[:, k] for k in range(frame.shape[1])
    }
    table = pd.DataFrame(columns)
    table.columns = [without_formula(str(name)) for name in frame.columns]
    return str(table.to_csv(index=False))
