"""What lies over and under the layers: regions, points, names, basemaps."""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

import folium
import geopandas as gpd
import numpy as np
import pandas as pd
import shapely

from geobgp.checks.hotspots import about_hotspots, numbered
from geobgp.errors import DataError, GeometryError, option
from geobgp.files import csv_text
from geobgp.inference.mixture import interval_in
from geobgp.land.crs import point_coordinates
from geobgp.land.regions import name_column, near_domain, read_regions
from geobgp.output.palette import HOTSPOT_COLOURS
from geobgp.text import chance, events, number, rounded

if TYPE_CHECKING:
    from geobgp.posterior import Posterior
    from geobgp.web.layers import Plane


# -- Overlays: points, regions with their numbers, and names and outlines for context, as a web map shows them --


#: Points, regions and names that a map shows at most.
MAX_POINTS, MAX_REGIONS, MAX_NAMES = 50_000, 5_000, 2_000
#: Digits of the numbers of a region's chart.
_DIGITS: Final = 4
#: Columns of `Posterior.totals` by which regions are known to have their numbers already.
TOTALS = ("expected", "relative_risk", "rate")
#: Columns of the table of regions to download: those of `Posterior.totals`, and no others of the user's.
_PUBLIC: Final = re.compile(
    r"period|start|land_km2|land_area|exposure|observed|reported|affected|expected|mean|sd|rate|relative_risk|p_above|final"
    r"|nowcast|forecast|hidden|why|(\w+_)?q\d+|\w+_above_[\d.e+-]+(_q\d+|_hidden)?"
)
#: Significant digits of its numbers.
_TABLE_DIGITS: Final = 6


def point_config(points: Any, labels: Any, plane: Plane) -> dict[str, Any]:
    """Return where points lie on the map, and their labels."""
    coords, rows, _ = point_coordinates(points, plane.domain.crs)
    if isinstance(labels, str):
        labels = points[labels]
    names = None if labels is None else [str(name) for name in np.asarray(labels)[rows]]
    few_enough(len(coords), MAX_POINTS, "points", "points")
    lon, lat = plane.to_degrees(*plane.to_plane(coords[:, 0], coords[:, 1]))
    return {"coords": np.round(np.column_stack([lat, lon]), 6).tolist(), "labels": names}


def few_enough(n: int, most: int, what: str, name: str) -> None:
    """Refuse more of something than a web page can show."""
    if n > most:
        raise DataError(
            f"{n:,} {what} are too many for a web page.", option=name, found=n, remedy=f"Show at most {most:,} of them."
        )


# -- regions


def region_totals(posterior: Posterior, regions: Any) -> gpd.GeoDataFrame:
    """Return regions with their totals: as they are where they have them, else computed."""
    frame = read_regions(regions, posterior.domain)
    if any(column in frame for column in TOTALS) or {"mean", "p_above"} <= set(frame):
        frame.attrs |= getattr(regions, "attrs", {})  # the unit, which a change of CRS may drop
        return frame
    return posterior.totals(frame)


def region_config(frame: gpd.GeoDataFrame, plane: Plane, labels: list[str] | None = None) -> dict[str, Any]:
    """Return outlines, names and numbers of regions, from `Posterior.totals`.

    Parameters
    ----------
    frame : GeoDataFrame
        A row for each region; with `labels` for each region and period, whose label is in the column ``period``.
    plane : Plane
    labels : list of str, optional
        Of the periods that the map shows. Each item has the ``series`` of its chart then, and each of its numbers that
        changes is a list, with None where it is not known.
    """
    tables = [frame] if labels is None else _by_period(frame, labels)
    first = next(table for table in tables if table is not None)
    few_enough(len(first), MAX_REGIONS, "regions", "regions")
    names, shapes = names_in(first, "region"), near_domain(first, plane.domain)
    records: list[list[dict[Any, Any] | None]] = [
        [None] * len(first)
        if table is None
        else pd.DataFrame(table.drop(columns=table.geometry.name)).to_dict("records")
        for table in tables
    ]
    units = str(frame.attrs.get("units", ""))
    largest = pd.Series(shapely.area(shapes)).groupby(names).max()
    items, drawn = [], []
    for row, (name, shape, *own) in enumerate(zip(names, shapes, *records, strict=True)):
        outline = plane.outline(lines_of(shape))
        if not outline:
            continue
        drawn.append(row)
        # Of several with one name the largest is where it is written.
        place = place_of(shape, plane) if float(shapely.area(shape)) >= largest[name] else None
        rows = [[] if record is None else region_rows(record, units) for record in own]
        item = {"name": name, "rows": rows[0], "outline": outline, "place": place}
        if labels is not None:
            item |= {"rows": _over_time(rows), "series": _series(frame, own)}
        items.append(item)
    if not items:
        raise GeometryError("None of the regions lies on the map.", option="regions", found=len(first))
    table = pd.concat([part.iloc[drawn].assign(name=np.array(names)[drawn]) for part in tables if part is not None])
    if labels is not None:
        table["period"] = [label for label, part in zip(labels, tables, strict=True) if part is not None for _ in drawn]
    packed = base64.b64encode(zlib.compress(regions_csv(table).encode(), 9)).decode("ascii")
    return {"items": items, "csv": packed}


def regions_csv(frame: pd.DataFrame) -> str:
    """Return the numbers of regions as the text of a table: names, then what `Posterior.totals` says of them.

    Examples
    --------
    >>> regions_csv(pd.DataFrame({"name": ["=1+1", "Texel"], "phone": [7, 8], "expected": [31.44444, 7.0]})).split()
    ['name,expected', "'=1+1,31.4444", 'Texel,7.0']
    """
    columns = {"name": frame["name"]} | {name: frame[name] for name in frame if _PUBLIC.fullmatch(str(name))}
    first = [name for name in ("name", "period") if name in columns]
    table = pd.DataFrame(columns)[[*first, *(name for name in columns if name not in first)]]
    floats = table.select_dtypes("floating").columns
    table[floats] = table[floats].map(lambda v: rounded(float(v), _TABLE_DIGITS) if np.isfinite(v) else v)
    return csv_text(table)


def _by_period(frame: gpd.GeoDataFrame, labels: list[str]) -> list[gpd.GeoDataFrame | None]:
    """Return the rows of each period, None where it has none."""
    remedy = "Pass what totals(regions) of the posterior over periods returns."
    missing = [] if "period" in frame else ["period"]
    if "expected" not in frame and "mean" not in frame:
        missing += ["expected"]
    if interval_in(frame) is None:
        missing += ["q05", "q95"]
    if missing:
        raise DataError(
            f"Regions over time need the columns {', '.join(missing)}, which are missing.",
            option="regions",
            found=list(map(str, frame.columns)),
            remedy=remedy,
        )
    parts = {label: rows for label, rows in frame.groupby("period", sort=False)}
    first = len(parts.get(labels[0], ()))
    if not first or any(len(rows) != first for rows in parts.values()) or not set(parts) <= set(labels):
        raise DataError(
            f"Every region needs a row in each of the periods; found {len(frame):,} rows, {first:,} of them in "
            f"{labels[0]}.",
            option="regions",
            found=len(frame),
            remedy=remedy,
        )
    plain = {label: rows.drop(columns=["period", "start"], errors="ignore") for label, rows in parts.items()}
    return [plain.get(label) for label in labels]


def _over_time(periods: list[list[list[str]]]) -> list[list[Any]]:
    """Return rows of several periods as one: what stays is written once, of the rest there is a list.

    Examples
    --------
    >>> _over_time([[["expected", "3"], ["land", "9 km²"]], [["expected", "4"], ["land", "9 km²"]], []])
    [['expected', ['3', '4', None]], ['land', '9 km²']]
    """
    out: dict[tuple[str, int], list[str | None]] = {}
    for k, rows in enumerate(periods):
        for j, (words, text) in enumerate(rows):
            # Words may come twice: each number is followed by its interval.
            key = words, sum(other == words for other, _ in rows[:j])
            out.setdefault(key, [None] * len(periods))[k] = text
    shown = [(words, texts, set(texts) - {None}) for (words, _), texts in out.items()]
    return [[words, texts if len(different) > 1 else next(iter(different))] for words, texts, different in shown]


def _series(frame: gpd.GeoDataFrame, records: Sequence[Mapping[str, Any] | None]) -> dict[str, Any]:
    """Return the numbers of a region's chart: those that its rows begin with."""
    of = next(name for name in ("relative_risk", "rate", "expected", "mean") if name in frame)
    ends = interval_in(frame, "" if of in ("expected", "mean") else of)
    assert ends is not None
    columns = {"middle": of, "low": ends.low, "high": ends.high}
    series = {
        name: [None if record is None else _known(record[column]) for record in records]
        for name, column in columns.items()
    }
    return {"of": of.replace("_", " "), "interval": ends.words, **series}


def _known(value: Any) -> float | None:
    return None if pd.isna(value) or not np.isfinite(value) else rounded(float(value), _DIGITS)


def region_rows(record: dict[Any, Any], units: str = "") -> list[list[str]]:
    """Return what is said of a region: pairs of words and number, of what its record has.

    Examples
    --------
    >>> region_rows({"name": "Texel", "land_km2": 163.2, "expected": 31.4, "q05": 25.0, "q95": 38.2, "observed": 33})
    [['expected', '31'], ['90 % interval', '25 – 38'], ['observed', '33'], ['land', '163 km²']]
    """
    rows: list[list[str]] = [["hidden", str(record["why"])]] if record.get("hidden") is True else []

    def add(words: str, key: str, show: Any = number, unit: str = "") -> None:
        if key in record and pd.notna(record[key]):
            rows.append([words, f"{show(float(record[key]))}{unit}"])

    def between(of: str, show: Any, words: str = "{} interval") -> None:
        ends = interval_in(record, of)
        if ends is not None and pd.notna(record[ends.low]) and pd.notna(record[ends.high]):
            interval = f"{show(float(record[ends.low]))} – {show(float(record[ends.high]))}"
            rows.append([words.format(ends.words), interval])

    def three(value: float) -> str:
        return number(value, 3)

    for key, words in (("relative_risk", "relative risk"), ("rate", "rate")):
        if key in record:
            add(words, key, three, f" {units}" if units and key == "rate" else "")
            between(key, three)
    if "expected" in record:
        add("expected", "expected", events)
        between("", events, "{} interval" if not rows or len(rows) == 1 else "of the expected, {}")
    elif "mean" in record:  # of a share or a value
        add("mean", "mean", three, f" {units}" if units else "")
        between("", three)
    else:
        between("", events)
    add("observed", "observed", events)
    between("predicted", events, "predicted, {}")
    add("probability above average", "p_above", chance)
    add("land", "land_km2", three, " km²")
    add("land", "land_area", three)
    add("exposure", "exposure", three)
    return rows


def hotspot_config(frame: gpd.GeoDataFrame, plane: Plane, labels: list[str] | None = None) -> dict[str, Any]:
    """Return outlines, names and numbers of hot spots, from `Posterior.hotspots`, those of the highest threshold first.

    With `labels`, of the periods that the map shows, each is of one of them.
    """
    if labels is None and "period" in frame:
        raise DataError(
            "These hot spots are of several periods, and the map is of one.",
            option="hotspots",
            found=sorted(set(map(str, frame["period"]))),
            remedy="Pass those of its period: posterior.hotspots(threshold, period=...).",
        )
    period_rows = len(frame) if labels is None else frame.groupby("period").size().max() if len(frame) else 0
    few_enough(period_rows, MAX_REGIONS, "hot spots", "hotspots")
    shapes = near_domain(frame, plane.domain)
    records = pd.DataFrame(frame.drop(columns=frame.geometry.name)).to_dict("records")
    items: list[dict[str, Any]] = []
    for name, shape, record in zip(numbered(frame), shapes, records, strict=True):
        period = None if labels is None or "period" not in record else labels.index(str(record["period"]))
        kind = str(record.get("class", ""))
        items.append(
            {
                "name": name,
                "rows": hotspot_rows(record),
                "outline": plane.outline(lines_of(shape)),
                "colour": HOTSPOT_COLOURS[kind],
                "dashed": kind == "former",
                "period": period,
                "threshold": float(record["threshold"]),
            }
        )
    # Those that are no longer hot come last.
    items.sort(key=lambda item: (item["dashed"], -item["threshold"]))
    words = f"Outlined: {about_hotspots(frame)}" if items else "No part of the land is a hot spot."
    return {"items": items, "words": words}


def hotspot_rows(record: dict[Any, Any]) -> list[list[str]]:
    """Return what is said of a hot spot: pairs of words and number, of what its record has.

    Examples
    --------
    >>> hotspot_rows({"threshold": 2.0, "rate": 4.0, "p_all": 0.96, "p_mean": 1.0})
    [['all above 2', '96 %'], ['mean above 2', '> 99.9 %'], ['rate', '4']]
    """
    value = number(float(record["threshold"]), 6)
    rows = [[str(record["class"]), chance(float(record["p_class"]))]] if record.get("class") else []
    for words, key in (("all", "p_all"), ("mean", "p_mean")):
        rows.append([f"{words} above {value}", chance(float(record[key]))])
    rows += region_rows(record)
    if record.get("areas"):
        rows.append(["areas", str(record["areas"])])
    return rows


def lines_of(shape: shapely.Geometry) -> shapely.MultiLineString:
    """Return the outlines of polygons and the lines of a geometry of any kind; points have none."""
    parts = shapely.get_parts(shapely.get_parts(shape))
    area = shapely.get_dimensions(parts) == 2
    lines = np.concatenate([shapely.boundary(parts[area]), parts[shapely.get_dimensions(parts) == 1]])
    return shapely.multilinestrings(shapely.get_parts(lines))


def place_of(shape: shapely.Geometry, plane: Plane) -> list[float]:
    """Return latitude and longitude of a place within a shape, for its name."""
    parts = shapely.get_parts(shape)
    largest = parts[int(np.argmax(shapely.area(parts)))]
    (easting, northing) = shapely.get_coordinates(shapely.point_on_surface(largest))[0]
    lon, lat = plane.to_degrees(*plane.to_plane(np.array(easting), np.array(northing)))
    return [round(float(lat), 5), round(float(lon), 5)]


def names_in(frame: gpd.GeoDataFrame, thing: str) -> list[str]:
    """Return the names of the rows of a table; numbers them where it has none."""
    column = name_column(frame)
    names: Sequence[Any] = frame[column] if column is not None else [None] * len(frame)
    return [f"{thing} {k + 1}" if pd.isna(name) else str(name) for k, name in enumerate(names)]


# -- context


def context_config(context: Any, plane: Plane) -> dict[str, Any]:
    """Return lines to draw and names to write, the most important first.

    Parameters
    ----------
    context : GeoDataFrame, GeoSeries, list of geometries or path
        Polygons (their outlines), lines, or points (their names alone); names are in the first column of words that is
        called a name.
    plane : Plane
    """
    frame = read_regions(context, plane.domain, "context", any_kind=True)
    shapes = near_domain(frame, plane.domain)
    west, south, east, north = plane.domain.grid.bounds
    margin = 0.1 * max(east - west, north - south)
    shapes = shapely.intersection(shapes, shapely.box(west - margin, south - margin, east + margin, north + margin))
    there = ~shapely.is_empty(shapes)
    if not there.any():
        raise GeometryError(
            f"None of the {len(frame):,} shapes for context lies on the map.",
            option="context",
            found=len(frame),
            remedy="Check their coordinate reference system.",
        )
    size = np.where(shapely.area(shapes) > 0, shapely.area(shapes), 0.0)
    labels: dict[str, list[Any]] = {}
    if (column := name_column(frame)) is not None:
        names = frame[column].fillna("").astype(str).tolist()
        for k in np.argsort(-size, kind="stable"):
            if there[k] and shapely.get_dimensions(shapes[k]) != 1 and names[k].strip():
                labels.setdefault(names[k], [*place_of(shapes[k], plane), names[k]])
    # A border that two share is drawn once.
    borders = shapely.union_all([lines_of(shape) for shape in shapes[there]])
    outline = plane.outline(shapely.line_merge(borders))
    return {"lines": outline, "labels": list(labels.values())[:MAX_NAMES]}


# -- Basemaps: online backgrounds by name, and their refusal before any work where there is none of that name --


#: Names that need no key; folium knows more of them, under the names of the list "xyzservices".
KNOWN: Final = (
    "OpenStreetMap", "OpenTopoMap", "CyclOSM", "Esri.WorldTopoMap", "Esri.WorldImagery", "Esri.WorldGrayCanvas",
    "NASAGIBS.BlueMarble", "BasemapAT.grau", "nlmaps.grijs", "SwissFederalGeoportal.NationalMapGrey",
    "USGS.USTopo",
)  # fmt: skip


def basemap_layer(basemap: str | folium.TileLayer) -> folium.TileLayer:
    """Return the layer of a basemap; a name that stands for none is an error with the names that do.

    Parameters
    ----------
    basemap : str or folium.TileLayer
        Such as "OpenStreetMap".

    Examples
    --------
    >>> basemap_layer("OpenStreetMap").tiles
    'https://tile.openstreetmap.org/{z}/{x}/{y}.png'
    >>> basemap_layer("OpenStretMap")
    Traceback (most recent call last):
    ...
    geobgp.errors.DataError: No basemap is called 'OpenStretMap'; did you mean 'OpenStreetMap'? ...
    """
    if isinstance(basemap, folium.TileLayer):
        return basemap
    name = str(basemap)
    if "://" in name:
        raise _refused(
            "An address of tiles needs the words of its owners beside the map.",
            basemap,
            "Pass folium.TileLayer(address, attr=...) from Python, or name one of: ",
        )
    try:
        return folium.TileLayer(name, name="Basemap", overlay=True)
    except (ValueError, AttributeError) as error:
        if "oken" in str(error) or "key" in str(error):
            raise _refused(f"The basemap {name!r} needs a key.", basemap, "These need none: ") from error
        close = get_close_matches(name.lower(), [known.lower() for known in KNOWN], n=1)
        meant = [known for known in KNOWN if known.lower() in close]
        ask = f"; did you mean {meant[0]!r}?" if meant else "."
        raise _refused(f"No basemap is called {name!r}{ask}", basemap, "Known are ") from error


def check_basemap(basemap: str | folium.TileLayer | None, *, local: bool = False) -> None:
    """Refuse a basemap that there is not, or that land without a place on Earth cannot lie on."""
    if basemap is None:
        return
    if local:
        raise DataError(
            "A local domain has no place on Earth, so it cannot lie on a basemap.",
            option="basemap",
            found=basemap,
            remedy=f"Leave {option('basemap')} out.",
        )
    basemap_layer(basemap)


def _refused(what: str, found: Any, remedy: str) -> DataError:
    more = f"{remedy}{', '.join(KNOWN)}, and others of folium's."
    return DataError(what, option="basemap", found=found, remedy=more)
