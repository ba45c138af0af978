"""What is in a file: results of geobgp, a posterior, a raster, polygons, points."""

from __future__ import annotations

import html
import json
import re
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np

from geobgp.cli.messages import paragraph
from geobgp.cli.workspace import RECORD
from geobgp.errors import GeobgpError
from geobgp.files import kind_of, layers, open_raster_file, split_layer
from geobgp.text import listed, percent, size_text, whole_percent

#: A name and a value; several of one name are several of its kind.
Rows = list[tuple[str, object]]


def describe(source: str | Path, *, as_json: bool = False) -> str:
    """Return a few lines about a file or a folder of results.

    Parameters
    ----------
    source : str or path
        Whatever geobgp writes (a folder of results, a posterior, strata, a tile, a raster, netCDF, Zarr, a QGIS
        project, a page), a vector file or a table of points.
    as_json : bool
        As a JSON object.
    """
    rows = _rows(source)
    if not as_json:
        return _lines(rows)
    facts: dict[str, Any] = {}
    for name, value in rows:
        facts.setdefault(name.strip(), []).append(value)
    single = {name: values[0] if len(values) == 1 else values for name, values in facts.items()}
    return json.dumps(single, indent=1, default=str)


def _rows(source: str | Path) -> Rows:
    path, layer = split_layer(str(source))
    place = Path(path)
    if not place.exists():
        raise GeobgpError(f"There is no file {path}.")
    if place.is_dir() and (place / RECORD).is_file():
        return _results(place)
    if place.is_dir() and place.suffix == ".zarr":
        return _gridded(place)
    if place.is_dir() and kind_of(place) == "vector":
        return _vector(path, layer)
    if place.is_dir():
        raise GeobgpError(f"{place} is a folder without {RECORD}: geobgp has written no results there.")
    if place.stat().st_size == 0:
        raise GeobgpError(f"{place} is empty.")
    if place.name == RECORD:
        return _results(place.parent)
    describer = _BY_SUFFIX.get(place.suffix.lower())
    if describer is not None:
        return describer(place)
    with place.open("rb") as file:
        start = file.read(4)
    if start == b"PK\x03\x04" and kind_of(place) == "other" and place.suffix.lower() != ".zip":
        return _stored(place)
    if kind_of(place) == "table":
        return _table(place)
    return _facts(place) or _raster(path) or _vector(path, layer)


def _facts(path: Path) -> Rows:
    """Return what a JSON file has that holds no shapes; nothing if it is another file."""
    if path.suffix.lower() != ".json":
        return []
    try:
        content = json.loads(path.read_text("utf-8"))
    except ValueError:
        return []
    if not isinstance(content, dict) or "type" in content:  # GeoJSON has one
        return []
    return [("JSON", path.name), ("has", ", ".join(content) or "nothing")]


def _line(name: str, value: object) -> str:
    return f"{name:<22}  {value}"


def _lines(rows: Iterable[tuple[str, object]]) -> str:
    return "\n".join(_line(name, value) if name else str(value) for name, value in rows)


def _results(folder: Path) -> Rows:
    """Return what the record of a run says: of one map, of strata or of tiles, finished or not."""
    try:
        record = json.loads((folder / RECORD).read_text("utf-8"))
        if "geobgp" not in record and "tiles" not in record:
            raise KeyError("geobgp")
        rows: Rows = [("results", record.get("title") or folder.resolve().name)]
        made_by = [f"geobgp {record['geobgp']}"] if "geobgp" in record else []
        rows += [("made by", ", ".join([*made_by, record["created"]]))] if "created" in record else []
        rows += [("points", text) for text in _counted(record.get("points"))]
        if "strata" in record:
            rows.append(("strata", f"{len(record['strata']):,}: {listed(list(record['strata']), 8)}"))
            rows += [("failed", f"{name}: {why}") for name, why in record.get("failures", {}).items()]
        if "tiles" in record:
            rows.append(("tiles", f"{len(record['tiles']):,}"))
            rows += [(name, record[name]) for name in ("lengthscale", "sd", "permeability", "unit") if name in record]
        for name, choice in record.get("choices", {}).items():
            text = choice if isinstance(choice, str) else f"{choice['value']} ({choice['why']})"
            rows.append((name, text))
        rows += _checks(record.get("checks", {}))
        rows += [("warning", text) for text in record.get("warnings", ())]
        rows += [("not written", f"{name}: {why}") for name, why in record.get("not_written", {}).items()]
        files = record.get("files") or sorted(p.name for p in folder.iterdir())
        rows.append(("files", ", ".join(n for n in files if not n.endswith(".qml"))))
        rows += [("command", record["command"])] if "command" in record else []
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise GeobgpError(f"{folder / RECORD} is not what geobgp writes, or is damaged: {error!r}.") from error
    return rows


def _stored(path: Path) -> Rows:
    """Return what a file of geobgp holds: a posterior, strata, or the posterior of a tile."""
    from geobgp import store
    from geobgp.posterior import Posterior

    kind = store.kind_of(path)
    if kind == "strata":
        from geobgp.scale.strata import Strata

        strata = Strata.load(path)
        return [("strata", path.name), ("", strata.table().to_string())]
    if kind not in (None, "posterior"):
        return [(f"{kind} of geobgp", path.name), ("size", size_text(path.stat().st_size))]
    return [("posterior", path.name), ("", Posterior.load(path).summary())]


def _gridded(path: Path) -> Rows:
    """Return what a netCDF file or a Zarr store has: axes and variables with their units."""
    import xarray as xr

    try:
        opened = xr.open_zarr(path) if path.is_dir() else xr.open_dataset(path)
    except Exception as error:  # each engine has its own
        raise GeobgpError(f"{path} cannot be read as {'Zarr' if path.is_dir() else 'netCDF'}: {error}") from error
    with opened as data:
        rows: Rows = [("Zarr store" if path.is_dir() else "netCDF", path.name)]
        rows += [("title", data.attrs["title"])] if data.attrs.get("title") else []
        rows.append(("axes", ", ".join(f"{name} {size:,}" for name, size in data.sizes.items())))
        for name, variable in data.data_vars.items():
            if variable.ndim >= 2:
                unit = variable.attrs.get("units", "")
                rows.append(
                    ("variable", f"{name}{f' ({unit})' if unit else ''}, {' x '.join(map(str, variable.dims))}")
                )
    return rows


def _project(path: Path) -> Rows:
    """Return the layers of a QGIS project."""
    try:
        with zipfile.ZipFile(path) as archive:
            name = next(n for n in archive.namelist() if n.endswith(".qgs"))
            root = ElementTree.fromstring(archive.read(name))
    except (OSError, zipfile.BadZipFile, StopIteration, ElementTree.ParseError) as error:
        raise GeobgpError(f"{path} is not a QGIS project, or is damaged: {error!r}.") from error
    names = [layer.findtext("layername") or "" for layer in root.iter("maplayer")]
    return [("QGIS project", path.name), ("QGIS", root.get("version", "")), ("layers", ", ".join(names))]


def _page(path: Path) -> Rows:
    """Return the title of a page."""
    title = re.search(r"<title>(.*?)</title>", path.read_text("utf-8", errors="replace"), re.S)
    text = html.unescape(title[1]).strip() if title else "without a title"
    return [("page", path.name), ("title", text), ("size", size_text(path.stat().st_size))]


def _style(path: Path) -> Rows:
    return [("QGIS style", f"{path.name}, of {path.with_suffix('.tif').name}")]


def _raster(path: str) -> Rows:
    """Return what a raster has, nothing if GDAL does not take it for one."""
    import warnings

    from rasterio.errors import RasterioError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            source = open_raster_file(path, "file")
    except RasterioError:
        return []
    with source:
        if source.driver == "GPKG" and source.count == 0:
            return []
        rows: Rows = [
            ("raster", f"{Path(path).name}, {source.driver}"),
            ("size", f"{source.height} rows x {source.width} columns of {source.res[0]:g} x {source.res[1]:g}"),
            ("CRS", _crs(source.crs)),
            ("extent", _extent(*source.bounds)),
            ("nodata", source.nodata),
        ]
        tags = source.tags()
        rows += [(key, tags[key]) for key in ("title", "source", "created", "n_points") if key in tags]
        for band in range(1, min(source.count, 12) + 1):
            about, unit = source.descriptions[band - 1] or "", source.units[band - 1] or ""
            own = source.tags(band)
            limits = (own.get("STATISTICS_MINIMUM"), own.get("STATISTICS_MAXIMUM"))
            span = f", {float(limits[0]):.4g} to {float(limits[1]):.4g}" if all(limits) else ""
            rows.append((f"band {band}", f"{about} {f'({unit})' if unit else ''}{span}".strip()))
        if source.count > 12:
            rows.append(("bands", source.count))
    return rows


def _crs(crs: Any) -> str:
    if crs is None:
        return "not known"
    from geobgp.land.crs import as_crs

    parsed = as_crs(crs)
    code = parsed.to_authority()
    return f"{':'.join(code)}, {parsed.name}" if code else parsed.name


def _vector(path: str, layer: str | None) -> Rows:
    try:
        layer_list = layers(path)
    except GeobgpError as error:
        why = error.__cause__ or error
        raise GeobgpError(f"{path} is neither a raster, a vector file nor a posterior: {why}") from error
    names = [each.name for each in layer_list]
    if layer is not None and layer not in names:
        raise GeobgpError(f"There is no layer {layer!r} in {path}, which has {listed(names)}.", found=names)
    rows: Rows = [("vector file", Path(path).name)]
    for each in layer_list:
        if layer in (None, each.name):
            count = "not known how many" if each.n_rows is None else f"{each.n_rows:,}"
            rows += [
                ("layer", each.name),
                ("  features", f"{count} {each.kind or 'without geometry'}"),
                ("  CRS", _crs(each.crs)),
                ("  extent", "not known" if each.bounds is None else _extent(*each.bounds)),
                ("  columns", ", ".join(each.columns) or "none"),
            ]
    return rows


def _extent(west: float, south: float, east: float, north: float) -> str:
    return f"{west:.10g} to {east:.10g}, {south:.10g} to {north:.10g}"


def _table(path: Path) -> Rows:
    from geobgp.data.points import ReadOptions, Stream

    stream = Stream(path, ReadOptions())
    n, missing, low, high = 0, 0, np.full(2, np.inf), np.full(2, -np.inf)
    rows: Rows
    try:
        for chunk in stream:
            n, missing = n + chunk.n_rows, missing + chunk.n_missing
            low = np.minimum(low, chunk.coords.min(axis=0, initial=np.inf))
            high = np.maximum(high, chunk.coords.max(axis=0, initial=-np.inf))
    except GeobgpError as error:
        rows = [("coordinates", paragraph(error))]
    else:
        rows = [("rows", f"{n:,}, {missing:,} without a point")]
        if n > missing:
            rows.append(("coordinates", _extent(*low, *high)))
        rows += [("note", note) for note in stream.notes]
    return [("table", path.name), ("columns", ", ".join(stream.columns)), *rows]


def _counted(points: dict[str, Any] | None) -> list[str]:
    """Return what happened to the points, or what was counted in areas."""
    if not points:
        return []
    if "areas" in points:
        hidden = f", {points['suppressed']:,} counts suppressed" if points["suppressed"] else ""
        placed = points["used"] - points["in_areas"]
        besides = f", {placed:,} with a place besides" if placed else ""
        return [f"{points['in_areas']:,} in {points['areas']:,} areas{hidden}{besides}"]
    moved = f", {points['moved']:,} moved to land" if "moved" in points else ""
    return [f"{points['used']:,} used{moved}, {points.get('dropped', 0):,} dropped"]


def _checks(facts: dict[str, Any]) -> list[tuple[str, str]]:
    if "coverage" not in facts or "blocks" not in facts:
        return [("checks", f"not run: {facts['not_run']}")] if "not_run" in facts else []
    inside = f"within their {whole_percent(facts['interval'])} interval"
    within = f"{percent(facts['coverage'])} of {facts['blocks']:,} held-out blocks {inside}"
    return [("checks", within)]


#: What is known by its ending.
_BY_SUFFIX: dict[str, Callable[[Path], Rows]] = {
    ".nc": _gridded, ".qgz": _project, ".html": _page, ".qml": _style,
}  # fmt: skip
