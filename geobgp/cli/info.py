"""What is in a file: results of geobgp, a posterior, a raster, polygons, points."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from geobgp.cli.messages import paragraph
from geobgp.cli.workspace import RECORD
from geobgp.errors import GeobgpError
from geobgp.files import check_direct, kind_of, layers, split_layer
from geobgp.text import listed, percent, whole_percent


def describe(source: str | Path) -> str:
    """Return a few lines about a file or a folder of results.

    Parameters
    ----------
    source : str or path
        A folder that ``geobgp map`` wrote, a posterior, a raster, a vector file or a table of points.
    """
    path, layer = split_layer(str(source))
    place = Path(path)
    if not place.exists():
        raise GeobgpError(f"There is no file {path}.")
    if place.is_dir() and (place / RECORD).is_file():
        return _results(place)
    if place.is_dir() and kind_of(place) == "vector":
        return _vector(path, layer)
    if place.is_dir():
        raise GeobgpError(f"{place} is a folder without {RECORD}: geobgp has written no results there.")
    if place.stat().st_size == 0:
        raise GeobgpError(f"{place} is empty.")
    with place.open("rb") as file:
        start = file.read(4)
    if start == b"PK\x03\x04" and kind_of(place) == "other" and place.suffix.lower() != ".zip":
        from geobgp.posterior import Posterior

        posterior = Posterior.load(place)
        return f"{_line('posterior', place.name)}\n{posterior.summary()}"
    if kind_of(place) == "table":
        return _table(place)
    return _raster(path) or _vector(path, layer)


def _line(name: str, value: object) -> str:
    return f"{name:<22}  {value}"


def _lines(rows: Iterable[tuple[str, object]]) -> str:
    return "\n".join(_line(name, value) for name, value in rows)


def _results(folder: Path) -> str:
    try:
        record = json.loads((folder / RECORD).read_text("utf-8"))
        made_by, failed = f"geobgp {record['geobgp']}", record.get("not_written", {})
        rows = [("results", record.get("title") or folder.name), ("made by", made_by)]
        if "points" in record or not failed:  # else the run did not come to its end
            rows[-1] = ("made by", f"{made_by}, {record['created']}")
            rows += [_counted(record["points"])]
            rows += [(name, f"{c['value']} ({c['why']})") for name, c in record["choices"].items()]
            rows += _checks(record["checks"])
        rows += [("warning", text) for text in record["warnings"]]
        rows += [("not written", f"{name}: {why}") for name, why in failed.items()]
        rows += [("files", ", ".join(n for n in record["files"] if not n.endswith(".qml")))]
        rows += [("command", record["command"])] if "command" in record else []
    except (ValueError, KeyError, TypeError) as error:
        raise GeobgpError(f"{folder / RECORD} is not what geobgp writes, or is damaged: {error!r}.") from error
    return _lines(rows)


def _raster(path: str) -> str:
    """Return lines about a raster, nothing if GDAL does not take it for one."""
    import warnings

    import rasterio
    from rasterio.errors import RasterioError

    check_direct(path, "file")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            source = rasterio.open(path)
    except RasterioError:
        return ""
    with source:
        if source.driver == "GPKG" and source.count == 0:
            return ""
        rows: list[tuple[str, object]] = [
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
    return _lines(rows)


def _crs(crs: Any) -> str:
    if crs is None:
        return "not known"
    from geobgp.land.crs import as_crs

    parsed = as_crs(crs)
    code = parsed.to_authority()
    return f"{':'.join(code)}, {parsed.name}" if code else parsed.name


def _vector(path: str, layer: str | None) -> str:
    try:
        layer_list = layers(path)
    except GeobgpError as error:
        why = error.__cause__ or error
        raise GeobgpError(f"{path} is neither a raster, a vector file nor a posterior: {why}") from error
    names = [each.name for each in layer_list]
    if layer is not None and layer not in names:
        raise GeobgpError(f"There is no layer {layer!r} in {path}, which has {listed(names)}.", found=names)
    rows: list[tuple[str, object]] = [("vector file", Path(path).name)]
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
    return _lines(rows)


def _extent(west: float, south: float, east: float, north: float) -> str:
    return f"{west:.10g} to {east:.10g}, {south:.10g} to {north:.10g}"


def _table(path: Path) -> str:
    from geobgp.data.points import ReadOptions, Stream

    stream = Stream(path, ReadOptions())
    n, missing, low, high = 0, 0, np.full(2, np.inf), np.full(2, -np.inf)
    rows: list[tuple[str, object]]
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
    return _lines([("table", path.name), ("columns", ", ".join(stream.columns)), *rows])


def _counted(points: dict[str, Any]) -> tuple[str, str]:
    """Return what became of the points, or what was counted in areas."""
    if "areas" in points:
        hidden = f", {points['suppressed']:,} counts suppressed" if points["suppressed"] else ""
        placed = points["used"] - points["in_areas"]
        besides = f", {placed:,} with a place besides" if placed else ""
        return "events", f"{points['in_areas']:,} in {points['areas']:,} areas{hidden}{besides}"
    moved, dropped = points["moved"], points["dropped"]
    return "points", f"{points['used']:,} used, {moved:,} moved to land, {dropped:,} dropped"


def _checks(facts: dict[str, Any]) -> list[tuple[str, str]]:
    if "coverage" not in facts or "blocks" not in facts:
        return [("checks", f"not run: {facts['not_run']}")] if "not_run" in facts else []
    inside = f"within their {whole_percent(facts['interval'])} interval"
    within = f"{percent(facts['coverage'])} of {facts['blocks']:,} left-out blocks {inside}"
    return [("checks", within)]
