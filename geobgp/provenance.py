"""Where a map comes from: its inputs with their SHA-256, the versions that made it, the call, the random state."""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import io
import platform
import re
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from geobgp.files import (
    check_direct,
    frame_of,
    is_pattern,
    kind_of,
    matching,
    ogr_name,
    open_packed,
    open_raster_file,
    pick_layer,
    split_layer,
)

if TYPE_CHECKING:
    from geobgp.progress import Stage

#: Packages on whose versions results may depend.
PACKAGES = (
    "numpy", "scipy", "pandas", "geopandas", "shapely", "pyproj", "pyogrio", "rasterio", "pyarrow", "xarray",
)  # fmt: skip
#: Files that belong to a Shapefile besides its own.
_BESIDE_SHAPES = (".shx", ".dbf", ".prj", ".cpg")
_BLOCK = 1 << 20
#: What is random in a run, and that it is the same every time.
RANDOM_STATE = (
    "numpy.random.default_rng (PCG64) with fixed seeds: 0 for joint draws of regions, held-out checks and simulated "
    "residuals, 20190416 for the start of eigenvectors. The fit itself draws nothing."
)


def origin_of(function: str, sources: Mapping[str, Any], given: Mapping[str, Any], stage: Stage) -> dict[str, Any]:
    """Return where a map comes from, as plain data that files can hold; of files the names without folders.

    Parameters
    ----------
    function : str
        Which made it.
    sources : mapping of str to anything
        What it was given to read, by role.
    given : mapping of str to anything
        Its other arguments, as plain data.
    stage : Stage
        Is told how far reading has come.
    """
    sources = {role: value for role, value in sources.items() if value is not None}
    known: dict[str, dict[str, Any]] = {}
    inputs = []
    for k, (role, value) in enumerate(sources.items(), 1):
        inputs.append({"role": role} | identified(value, known))
        stage.step(k, len(sources))
    words = [f"{role}={_shown(one)}" for role, one in zip(sources, inputs, strict=True) if " " not in role]
    words += [f"{name}={value!r}" for name, value in given.items() if name not in sources]
    return {
        "function": function,
        "call": f"{function}({', '.join(words)})",
        "inputs": inputs,
        "software": versions(),
        "random_state": RANDOM_STATE,
    }


def _shown(one: Mapping[str, Any]) -> str:
    if one["kind"] == "memory":
        return f"<{one['name']}>"
    return repr(one["name"])


def versions() -> dict[str, str]:
    """Return the versions of Python, of the packages and libraries that results may depend on, and the system.

    Examples
    --------
    >>> {"python", "geobgp", "numpy", "GDAL", "PROJ", "BLAS", "system"} <= set(versions())
    True
    """
    import pyogrio
    import pyproj
    import shapely
    from threadpoolctl import threadpool_info

    import geobgp

    found = {"python": platform.python_version(), "geobgp": geobgp.__version__}
    found |= {name: metadata.version(name) for name in PACKAGES}
    found |= {
        "GDAL": pyogrio.__gdal_version_string__, "GEOS": shapely.geos_version_string, "PROJ": pyproj.proj_version_str,
    }  # fmt: skip
    blas = [one for one in threadpool_info() if one["user_api"] == "blas"]
    told = {f"{one['internal_api']} {one['version'] or ''}".strip() for one in blas}
    threads = max((int(one["num_threads"]) for one in blas), default=1)
    found["BLAS"] = f"{', '.join(sorted(told)) or 'unknown'}, {threads} thread{'s' if threads != 1 else ''}"
    return found | {"system": f"{platform.system()} {platform.machine()}"}


# -- What was read: files, and data in memory ------------------------------------------------------------------


def identified(value: Any, known: dict[str, dict[str, Any]] | None = None) -> dict[str, Any]:
    """Return what identifies an input: its name, kind, SHA-256, size in bytes, and number of features.

    The SHA-256 of a file is that of its bytes, as ``sha256sum`` has it; of several files that make one input it is that
    of the lines which ``sha256sum`` writes of them. Of data in memory it is that of their content: columns, values and
    geometries.

    Parameters
    ----------
    value : path, table, shapes, array, ...
    known : dict, optional
        Of files that were read before, by path; it grows.

    Examples
    --------
    >>> one = identified(np.zeros((3, 2)))
    >>> one["kind"], one["features"], len(one["sha256"]), one == identified(np.zeros((3, 2)))
    ('memory', 3, 64, True)
    """
    source = _path_in(value)
    if source is not None:
        known = {} if known is None else known
        if source not in known:
            known[source] = _of_file(source)
        return dict(known[source])
    if isinstance(value, (str, Path)):
        return {"name": Path(str(value)).name, "kind": "elsewhere", "sha256": None, "bytes": None, "features": None}
    content = _Content()
    complete = True
    try:
        content.add(value)
    except Exception:  # unknown content; what cannot be read is told by its reader
        complete = False
    return {
        "name": type(value).__name__,
        "kind": "memory",
        "sha256": content.hash.hexdigest() if complete else None,
        "bytes": content.size if complete else None,
        "features": _rows_of(value) if complete else None,
    }


def file_name(one: Mapping[str, Any]) -> str:
    """Return the name of an input's file, without the use that was written behind it.

    Examples
    --------
    >>> file_name({"name": "rain.tif|smooth"})
    'rain.tif'
    """
    return str(one["name"]).split("|")[0]


def _path_in(value: Any) -> str | None:
    """Return the path of a local file, as it was given; None of anything else, and of what is on no disk here."""
    if not isinstance(value, (str, Path)) or "://" in str(value):
        return None
    return str(value) if files_of(value) else None


def files_of(path: str | Path) -> list[Path]:
    """Return the files that a path stands for: with its sidecars, all of a folder, or those of a pattern; sorted."""
    text = split_layer(str(path))[0].split("|")[0]
    if text.startswith("/vsi"):  # the archive that it is in
        inside = Path(re.sub(r"^(/vsi(zip|gzip|tar)/)+", "", text))
        return [place for place in (inside, *inside.parents) if place.is_file()][:1]
    place = Path(text)
    if place.is_dir():
        return sorted(p for p in place.rglob("*") if p.is_file())
    if not place.exists() and is_pattern(text):
        return [Path(name) for name in matching(text)]
    if not place.is_file():
        return []
    beside = [place.with_suffix(end) for end in _BESIDE_SHAPES] if place.suffix.lower() == ".shp" else []
    return [place, *(p for p in beside if p.is_file())]


def sha256(paths: Iterable[Path]) -> tuple[str, int]:
    """Return the SHA-256 of a file, or of the lines that ``sha256sum`` writes of several, and their size in bytes."""
    lines, size, digest = [], 0, ""
    for path in paths:
        found = hashlib.sha256()
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                found.update(block)
                size += len(block)
        digest = found.hexdigest()
        lines.append(f"{digest}  {path.name}\n")
    return (
        digest if len(lines) == 1 else hashlib.sha256("".join(lines).encode(errors="surrogateescape")).hexdigest()
    ), size


def _of_file(path: str) -> dict[str, Any]:
    try:
        digest, size = sha256(files_of(path))
    except OSError:  # its reader says why
        return {"name": Path(path).name, "kind": "file", "sha256": None, "bytes": None, "features": None}
    return {"name": Path(path).name, "kind": "file", "sha256": digest, "bytes": size, "features": _features(path)}


def _features(path: str) -> int | None:
    """Return how many rows, polygons or pixels a file has; None where that cannot be told."""
    name, layer = split_layer(path)
    name = name.split("|")[0]
    try:
        check_direct(name, "input")
        kind = kind_of(name)
        if kind == "table":
            return _rows_in_table(name)
        if kind == "parquet" or Path(name).is_dir():
            from pyarrow import parquet

            return sum(parquet.read_metadata(one).num_rows for one in files_of(name))
        if kind == "vector":
            import pyogrio

            layer = pick_layer(name, layer, "input")
            return int(pyogrio.read_info(ogr_name(name), layer=layer, force_feature_count=True)["features"])
        with open_raster_file(name, "input") as raster:
            return int(raster.width * raster.height)
    except Exception:  # what is wrong with it is told by its reader
        return None


def _rows_in_table(path: str) -> int:
    with open_packed(path) as raw, io.TextIOWrapper(raw, encoding="utf-8", errors="replace", newline="") as text:
        return max(sum(1 for row in csv.reader(text) if row) - 1, 0)


class _UnknownContentError(Exception):
    """There is something in an input whose content cannot be told without using it up or computing it."""


class _Content:
    """The SHA-256 of data in memory, by columns, values and geometries; the same in every process."""

    def __init__(self) -> None:
        self.hash, self.size = hashlib.sha256(), 0

    def add(self, value: Any) -> None:
        """Take in a value, with all that is in it."""
        if isinstance(value, (str, Path)):
            files = files_of(value)
            self._bytes("file" if files else "text", (sha256(files)[0] if files else str(value)).encode())
        elif value is None or isinstance(value, (bool, int, float, np.generic, np.datetime64)):
            self._bytes("one", repr(value if value is None else getattr(value, "item", lambda: value)()).encode())
        elif isinstance(value, np.ndarray):
            self._array(value)
        elif isinstance(value, Mapping):
            self._each("mapping", (part for pair in value.items() for part in pair))
        elif hasattr(value, "to_delayed") or callable(value):  # not computed yet
            raise _UnknownContentError
        elif hasattr(value, "wkb"):
            self._bytes("shape", value.wkb)
        elif hasattr(value, "dims") and hasattr(value, "coords"):  # xarray
            self._each("grid", [list(value.dims), np.asarray(value.values)])
            for name in value.dims:
                if name in value.coords:
                    self._array(np.asarray(value.coords[name].values))
        elif hasattr(value, "columns") and hasattr(value, "iloc"):
            self._table(value)
        elif hasattr(value, "iloc"):
            self._column(value)
        elif isinstance(value, (list, tuple)):
            self._each("list", value)
        elif isinstance(digest := getattr(value, "digest", None), str):  # what has been counted already
            self._bytes("digest", digest.encode())
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            self._each(type(value).__name__, (getattr(value, one.name) for one in dataclasses.fields(value)))
        elif _is_whole(value):
            self.add(frame_of(value))
        else:
            raise _UnknownContentError

    def _bytes(self, kind: str, data: bytes) -> None:
        self.hash.update(f"{kind} {len(data)}\n".encode())
        self.hash.update(data)
        self.size += len(data)

    def _each(self, kind: str, parts: Iterable[Any]) -> None:
        self.hash.update(f"{kind}\n".encode())
        for part in parts:
            self.add(part)

    def _array(self, values: np.ndarray) -> None:
        if values.dtype.kind in "bifcmM":
            self._bytes(f"{values.dtype.str} {values.shape}", np.ascontiguousarray(values).tobytes())
        else:
            self._bytes(f"text {values.shape}", "\x1f".join(map(str, values.ravel().tolist())).encode())

    def _table(self, frame: Any) -> None:
        for name in frame.columns:
            self._bytes("column", str(name).encode())
            self._column(frame[name])

    def _column(self, column: Any) -> None:
        if hasattr(column, "to_wkb"):
            crs = "" if column.crs is None else column.crs.to_string()
            self._bytes(f"geometry {crs}", b"\x1f".join(one or b"" for one in column.to_wkb()))
        else:
            self._array(column.to_numpy())


def _is_whole(value: Any) -> bool:
    """Whether a table or shapes of another library can be read twice: a stream is used up by reading."""
    if isinstance(getattr(value, "__geo_interface__", None), Mapping):
        return True
    return hasattr(value, "__arrow_c_stream__") and (hasattr(value, "num_rows") or hasattr(value, "__len__"))


def _rows_of(value: Any) -> int | None:
    """Return how many rows, shapes or numbers data in memory have."""
    if hasattr(value, "wkb"):
        return 1
    if isinstance(value, Mapping) or dataclasses.is_dataclass(value):
        return None
    try:
        return int(getattr(value, "num_rows", 0) or len(value))
    except TypeError:
        return None


# -- What has changed since -----------------------------------------------------------------------------------


def changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Return how an input differs from what it was, in words; empty where it is the same or was never known.

    Examples
    --------
    >>> was = {"sha256": "aa", "bytes": 10, "features": 3}
    >>> changed(was, was), changed(was, {"sha256": "bb", "bytes": 14, "features": 4})
    ('', '3 features then, 4 now; 10 bytes then, 14 now')
    >>> changed(was, {"sha256": "bb", "bytes": 10, "features": 3})
    'the same size, other content'
    """
    if before.get("sha256") is None or before["sha256"] == now.get("sha256"):
        return ""
    told = [
        f"{before[name]:,} {what} then, {now[name]:,} now"
        for name, what in (("features", "features"), ("bytes", "bytes"))
        if None not in (before.get(name), now.get(name)) and before[name] != now[name]
    ]
    return "; ".join(told) or "the same size, other content"
