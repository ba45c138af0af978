"""What is in a file: results of geobgp, a posterior, a raster, polygons, points."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from geobgp.cli.wording import in_options
from geobgp.cli.workspace import RECORD
from geobgp.errors import GeobgpError
from geobgp.land.polygons import split_layer

_TABLES = (".csv", ".tsv", ".txt")


def describe(source: str | Path) -> str:
    """Return a few lines about a file or a folder of results.

    Parameters
    ----------
    source : str or path
        A folder that ``geobgp map`` wrote, a posterior, a raster, a vector file or a table of points.
    """
    path, layer = split_layer(str(source), None)
    place = Path(path)
    if not place.exists():
        raise GeobgpError(f"There is no file {path}.")
    if place.is_dir() and (place / RECORD).is_file():
        return _results(place)
    if place.is_dir():
        raise GeobgpError(f"{place} is a folder without {RECORD}: geobgp has written no results there.")
    if place.stat().st_size == 0:
        raise GeobgpError(f"{place} is empty.")
    with place.open("rb") as file:
        start = file.read(4)
    if start == b"PK\x03\x04" and place.suffix.lower() not in (".zip", ".kmz"):
        from geobgp.posterior import Posterior

        posterior = Posterior.load(place)
        return f"{_line('posterior', place.name)}\n{posterior.summary()}"
    if place.suffix.lower() in _TABLES:
        return _table(place)
    return _raster(path) or _vector(path, layer)


def _line(name: str, value: object) -> str:
    return f"{name:<22}  {value}"


def _lines(rows: Iterable[tuple[str, object]]) -> str:
    return "\n".join(_line(name, value) for name, value in rows)


def _results(folder: Path) -> str:
    try:
        record = json.loads((folder / RECORD).read_text("utf-8"))
        points, choices = record["points"], record["choices"]
        rows = [
            ("results", record["title"] or folder.name),
            ("made by", f"geobgp {record['geobgp']}, {record['created']}"),
            (
                "points",
                f"{points['used']:,} used, {points['moved']:,} moved to land, {points['dropped']:,} dropped",
            ),
            *((name, f"{c['value']} ({c['why']})") for name, c in choices.items()),
            ("checks", f"{100 * record['checks']['within_90']:.0f} % of blocks within their 90 % interval"),
            *(("warning", text) for text in record["warnings"]),
            ("files", ", ".join(n for n in record["files"] if not n.endswith(".qml"))),
            ("command", record["command"]),
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise GeobgpError(
            f"{folder / RECORD} is not what geobgp writes, or is damaged: {error!r}."
        ) from error
    return _lines(rows)


def _raster(path: str) -> str:
    """Return lines about a raster, nothing if GDAL does not take it for one."""
    import warnings

    import rasterio
    from rasterio.errors import RasterioError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            source = rasterio.open(path)
    except RasterioError:
        return ""
    with source:
        if source.driver == "GPKG" and source.count == 0:
            return ""
        west, south, east, north = source.bounds
        rows: list[tuple[str, object]] = [
            ("raster", f"{Path(path).name}, {source.driver}"),
            (
                "size",
                f"{source.height} rows x {source.width} columns of {source.res[0]:g} x {source.res[1]:g}",
            ),
            ("CRS", _crs(source.crs)),
            ("extent", f"{west:.10g} to {east:.10g}, {south:.10g} to {north:.10g}"),
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
    import pyproj

    found = pyproj.CRS.from_user_input(crs)
    code = found.to_authority()
    return f"{':'.join(code)}, {found.name}" if code else found.name


def _vector(path: str, layer: str | None) -> str:
    import geopandas as gpd
    import pyogrio

    try:
        if Path(path).suffix.lower() in (".parquet", ".geoparquet", ".pq"):
            frame = gpd.read_parquet(path)
            kinds = ", ".join(sorted(frame.geom_type.dropna().unique()))
            bounds = frame.total_bounds
            return _lines(
                [
                    ("points or polygons", f"{Path(path).name}, GeoParquet"),
                    *_layer_rows(
                        len(frame), kinds, frame.crs, bounds, frame.columns.drop(frame.geometry.name)
                    ),
                ]
            )
        layers = [str(name) for name, _ in pyogrio.list_layers(path)]
        if layer is not None and layer not in layers:
            raise GeobgpError(f"There is no layer {layer!r} in {path}, which has {', '.join(layers)}.")
        rows: list[tuple[str, object]] = [("vector file", Path(path).name)]
        for name in layers if layer is None else [layer]:
            found = pyogrio.read_info(path, layer=name, force_feature_count=True, force_total_bounds=True)
            rows.append(("layer", name))
            rows += _layer_rows(
                found["features"],
                found["geometry_type"],
                found["crs"],
                found["total_bounds"],
                found["fields"],
            )
        return _lines(rows)
    except GeobgpError:
        raise
    except Exception as error:  # each driver has its own exceptions; the user needs one kind
        raise GeobgpError(f"{path} is neither a raster, a vector file nor a posterior: {error}") from error


def _layer_rows(n: int, kind: Any, crs: Any, bounds: Any, fields: Any) -> list[tuple[str, object]]:
    west, south, east, north = (float(v) for v in bounds) if bounds is not None else (float("nan"),) * 4
    return [
        ("  features", f"{n:,} {kind or 'without geometry'}"),
        ("  CRS", _crs(crs)),
        ("  extent", f"{west:.10g} to {east:.10g}, {south:.10g} to {north:.10g}"),
        ("  columns", ", ".join(map(str, fields)) or "none"),
    ]


def _table(path: Path) -> str:
    import pandas as pd

    from geobgp.data.points import Options, Stream

    stream = Stream(str(path), Options())
    rows: list[tuple[str, object]] = [("table", path.name)]
    n, missing = 0, 0
    low, high = [float("inf")] * 2, [float("-inf")] * 2
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        head = file.readline()
    sep = max(",;\t|", key=head.count)
    rows.append(("columns", ", ".join(map(str, pd.read_csv(path, nrows=0, sep=sep).columns))))
    try:
        for chunk in stream:
            n, missing = n + chunk.n_rows, missing + chunk.n_missing
            if len(chunk.coords):
                low = [min(a, b) for a, b in zip(low, chunk.coords.min(axis=0), strict=True)]
                high = [max(a, b) for a, b in zip(high, chunk.coords.max(axis=0), strict=True)]
    except GeobgpError as error:
        return _lines([*rows, ("coordinates", in_options(str(error)))])
    rows.append(("rows", f"{n:,}, {missing:,} without a point"))
    if n > missing:
        rows.append(("coordinates", f"{low[0]:.8g} to {high[0]:.8g}, {low[1]:.8g} to {high[1]:.8g}"))
    return _lines(rows + [("note", note) for note in stream.notes])
