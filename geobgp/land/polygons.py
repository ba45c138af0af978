"""Polygons and lines: read, repaired, and brought to one metric coordinate reference system."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import geopandas as gpd
import numpy as np
import pyproj
import scipy.sparse as sp
import shapely
from scipy.sparse.csgraph import connected_components

from geobgp.errors import CRSError, DomainError, GeometryError, option
from geobgp.files import frame_of, layers, read_vector, split_layer
from geobgp.land.bridges import BridgeLines, bridge_table
from geobgp.land.crs import (
    CHOOSE,
    LonLat,
    areal_scale,
    as_crs,
    check_crs,
    check_place,
    in_degrees,
    kinds_text,
    lonlat,
    mend,
    metric_crs,
    project_shapes,
    repair,
    unknown_crs,
    unwrap,
)
from geobgp.text import count, listed, number
from geobgp.validation import LEAST, MOST

_POLYGONS, _LINES = (3, 6), (1, 2, 5)


def read_polygons(source: Any, what: str = "land", *, layer: str | None = None) -> tuple[Any, list[str]]:
    """Return the polygons of a source, repaired and flat, and what was done to them.

    Parameters
    ----------
    source : GeoDataFrame, GeoSeries, shapely geometry, list of geometries, or path
        A path may be anything that OGR reads, or GeoParquet; ``file.gpkg|layername=lakes`` names a layer.
    what : str
        What the polygons are, for messages.
    layer : str, optional
        The layer of a file that has several.

    Returns
    -------
    polygons : GeoSeries
        One valid two-dimensional Polygon or MultiPolygon per feature that has one, with the source's CRS
        (None for bare geometries) and index.
    notes : list of str
        What was ignored or repaired, for reports.

    Examples
    --------
    >>> from shapely.geometry import Polygon
    >>> bow_tie = Polygon([(0, 0), (1, 1), (1, 0), (0, 1)])
    >>> polygons, notes = read_polygons(bow_tie)
    >>> float(polygons.area.sum()), notes
    (0.5, ['land: 1 invalid polygon repaired'])
    """
    series, notes = _clean(_read(source, what, layer), what, _POLYGONS, "polygons")
    geoms = _mended(series, what, notes)
    size = float(np.abs(shapely.total_bounds(geoms)).max())
    if 0.0 < size < LEAST or size > MOST:
        raise _refused(what, f"coordinates as large as {size:g} cannot be computed with.", "Give them in metres.")
    invalid = ~shapely.is_valid(geoms)
    if invalid.any():
        geoms[invalid] = repair(geoms[invalid])
        notes.append(f"{what}: {count(invalid.sum(), 'invalid polygon')} repaired")
    geoms = shapely.remove_repeated_points(geoms)
    keep = ~shapely.is_empty(geoms)
    if not keep.any():
        raise _refused(what, f"all {len(geoms)} polygons have no area.", "Give polygons that enclose some.")
    return gpd.GeoSeries(geoms[keep], index=series.index[keep], crs=series.crs), notes


def read_lines(source: Any, what: str = "barriers", *, layer: str | None = None) -> tuple[Any, list[str]]:
    """Return the lines of a source, as `read_polygons` does for polygons; polygons give their boundary."""
    raw = _read(source, what, layer)
    series, notes = _clean(raw, what, _LINES + _POLYGONS, "lines")
    geoms = _mended(series, what, notes)
    areas = np.isin(shapely.get_type_id(geoms), _POLYGONS)
    geoms[areas] = shapely.boundary(geoms[areas])
    if areas.any():
        notes.append(f"{what}: the outlines of {count(areas.sum(), 'polygon')} are used as lines")
    return gpd.GeoSeries(shapely.remove_repeated_points(geoms), index=series.index, crs=series.crs), notes


def _mended(series: Any, what: str, notes: list[str]) -> np.ndarray:
    """Return the geometries, those that jump across the antimeridian set right (which makes them valid)."""
    geoms = series.to_numpy().copy()
    if series.crs is not None and series.crs.is_geographic:
        geoms, n = mend(geoms)
        if n:
            jump = count(n, "shape jumps", "shapes jump")
            notes.append(f"{what}: {jump} from +180 to -180 degrees of longitude; taken to cross there")
    return geoms


def _read(source: Any, what: str, layer: str | None) -> Any:
    source = frame_of(source)
    if isinstance(source, gpd.GeoDataFrame):
        try:
            return source.geometry
        except AttributeError:
            names = listed(source.columns)
            raise _refused(
                what, f"no geometry column among {names}.", "Name it with frame.set_geometry(...)."
            ) from None
    if isinstance(source, gpd.GeoSeries):
        return source
    if isinstance(source, shapely.Geometry):
        return gpd.GeoSeries([source])
    if isinstance(source, (str, Path)):
        return read_vector(source, what, layer, columns=[]).geometry
    if isinstance(source, (list, tuple, np.ndarray)) and all(isinstance(g, shapely.Geometry) for g in source):
        return gpd.GeoSeries(list(source))
    raise _refused(
        what,
        "expected a GeoDataFrame, a GeoSeries, a shapely geometry or the path of a file; "
        f"found {type(source).__name__}.",
    )


def _refused(what: str, why: str, remedy: str = "") -> GeometryError:
    return GeometryError(f"{what}: {why}", option=what, remedy=remedy)


def own_crs(source: Any) -> pyproj.CRS | None:
    """Return the CRS that a table or file of shapes says it is in, None where it does not say."""
    if not isinstance(source, (str, Path)):
        return getattr(source, "crs", None)
    layer = split_layer(str(source))[1]
    systems = [each.crs for each in layers(source) if each.crs is not None and layer in (None, each.name)]
    return as_crs(systems[0]) if systems else None


def _clean(series: Any, what: str, wanted: tuple[int, ...], plural: str) -> tuple[Any, list[str]]:
    """Keep the wanted kinds of a series, flat and present; other kinds and gaps go into the notes."""
    geoms, notes = series.to_numpy(), []
    if len(geoms) == 0:
        raise _refused(what, f"no features at all; {plural} were expected.")
    present = ~(shapely.is_missing(geoms) | shapely.is_empty(geoms))
    if not present.all():
        gaps = count((~present).sum(), "missing or empty geometry", "missing or empty geometries")
        if not present.any():
            raise _refused(what, f"nothing but {gaps}; {plural} were expected.")
        notes.append(f"{what}: {gaps} ignored")
    geoms, index = shapely.force_2d(geoms[present]), series.index[present]
    while (shapely.get_type_id(geoms) == 7).any():  # collections, also within collections, give their parts
        inside = shapely.get_type_id(geoms) == 7
        parts, owner = shapely.get_parts(geoms[inside], return_index=True)
        geoms, index = np.concatenate([geoms[~inside], parts]), index[~inside].append(index[inside][owner])
    kinds = shapely.get_type_id(geoms)
    keep = np.isin(kinds, wanted)
    kinds_there = kinds_text(kinds[~keep])
    if not keep.any():
        raise _refused(what, f"{plural} were expected; found {kinds_there}.")
    if kinds_there:
        notes.append(f"{what}: ignored what are no {plural}: {kinds_there}")
    bad = ~np.isfinite(shapely.get_coordinates(geoms[keep])).all(axis=1)
    if bad.any():
        vertices = count(bad.sum(), "vertex is", "vertices are")
        raise _refused(what, f"{vertices} not finite.", "Repair or remove their features.")
    return gpd.GeoSeries(geoms[keep], index=index[keep], crs=series.crs), notes


@dataclass(frozen=True, eq=False)
class Land:
    """Land minus water on one plane.

    Attributes
    ----------
    geometry : shapely Polygon or MultiPolygon
        Valid and two-dimensional, in `crs`.
    barriers : shapely MultiLineString or None
        Lines that nothing crosses, in `crs`.
    water : shapely Polygon, MultiPolygon or None
        What was taken away, in `crs`.
    crs : pyproj.CRS or None
        Projected, in metres; None for local coordinates.
    notes : list of str
        What was ignored, repaired or assumed on the way.
    bridges : BridgeLines or None
        Lines that join what water parts, in `crs`.
    own_crs : bool
        Whether it is that of the land's own file, because that is a metric one and true there.
    why_crs : str
        Why another was chosen than that of the file, where that is projected.
    """

    geometry: Any
    barriers: Any
    water: Any
    crs: pyproj.CRS | None
    notes: list[str] = field(default_factory=list)
    bridges: BridgeLines | None = None
    own_crs: bool = False
    why_crs: str = ""


#: What is said of a map in the CRS of the land's own file.
LANDS_OWN = "the land's own"


def land_polygons(land: Any, water: Any = None, barriers: Any = None, crs: Any = None, bridges: Any = None) -> Land:
    """Return land minus water, barriers and bridges, in one projected CRS.

    Parameters
    ----------
    land, water : anything `read_polygons` takes; water may be None
    barriers : anything `read_lines` takes, or None
    crs : None, "local", or anything pyproj takes
        None keeps the land's own or chooses (see `metric_crs`); "local" takes the coordinates as a plane with no
        place on Earth.
    bridges : anything `bridge_table` takes, or None

    Examples
    --------
    >>> from shapely.geometry import box
    >>> land_polygons(box(0, 0, 4, 4), water=box(1, 1, 2, 2), crs="local").geometry.area
    15.0
    """
    series: dict[str, Any] = {}
    series["land"], notes = read_polygons(land, "land")
    width, own, why = None, False, ""
    if bridges is not None:
        bridges, width = bridge_table(bridges)
    for name, source, read in (
        ("water", water, read_polygons),
        ("barriers", barriers, read_lines),
        ("bridges", bridges, read_lines),
    ):
        if source is not None and not _no_rows(source):
            series[name], more = read(source, name)
            notes += more
    if isinstance(crs, str) and crs.lower() == "local":
        target = None
        _check_planar(series, notes)
    else:
        sources = {"land": land, "water": water, "barriers": barriers, "bridges": bridges}
        _give_crs(series, sources, crs, notes)
        series = {name: in_degrees(s) for name, s in series.items()}
        if crs is None:
            target, own, why = metric_crs(series["land"])
            notes += [f"CRS: {why or LANDS_OWN}"] if own or why else []
        else:
            target = check_crs(crs, series["land"])
    dry, lines, wet = _dry_land(series, target)
    if target is not None:
        notes += _distortion(dry, target)
    if "bridges" not in series:
        return Land(dry, lines, wet, target, notes, None, own, why)
    rows = series["bridges"].index.to_numpy()
    spans = BridgeLines(
        series["bridges"].to_numpy() if target is None else project_shapes(series["bridges"], target),
        np.full(len(rows), np.nan) if width is None else width[rows],
        rows,
    )
    return Land(dry, lines, wet, target, notes, spans, own, why)


def _check_planar(series: dict[str, Any], notes: list[str]) -> None:
    check_one_plane({name: s.crs for name, s in series.items()})
    for name, s in series.items():
        if s.crs is not None and s.crs.is_geographic:
            raise CRSError(
                f"{option('crs', 'local')} is for planar coordinates, but {name} has {s.crs.name}, in degrees.",
                option="crs",
                found=s.crs.name,
                remedy=f"{CHOOSE}.",
            )
        if s.crs is not None:
            notes.append(f"{name}: on a local plane, so the coordinates of {s.crs.name} are used as they are")


def check_one_plane(found: Mapping[str, pyproj.CRS | None]) -> None:
    """Refuse coordinates on a local plane that are in different CRSs: their numbers do not fit each other."""
    known = {name: crs for name, crs in found.items() if crs is not None}
    first = next(iter(known), "")
    for name, crs in known.items():
        if not crs.equals(known[first], ignore_axis_order=True):
            raise CRSError(
                f"{option('crs', 'local')} takes coordinates as they are, but {first} has {known[first].name} "
                f"and {name} {crs.name}.",
                option="crs",
                found=crs.name,
                remedy=f"{CHOOSE}, or bring both to one.",
            )


def _no_rows(source: Any) -> bool:
    """Tell whether a source is a table or list without rows: no water, rather than an error."""
    single = isinstance(source, (str, Path, shapely.Geometry))
    return not single and hasattr(source, "__len__") and len(source) == 0


def _give_crs(series: dict[str, Any], sources: dict[str, Any], crs: Any, notes: list[str]) -> None:
    """Give bare geometries the CRS they must have been meant in; refuse tables and files without one."""
    for name, s in series.items():
        if s.crs is not None:
            check_place(s.crs, name)
            continue
        bare = isinstance(sources[name], (shapely.Geometry, list, tuple, np.ndarray))
        assumed = crs if name == "land" else series["land"].crs
        if not bare or assumed is None:
            given = option("crs", python="crs=")
            more = f" A bare geometry is taken to be in the CRS given as {given}." if bare else ""
            raise unknown_crs(name, more)
        if crs is not None:
            check_crs(crs)
        series[name] = s.set_crs(assumed)
        notes.append(f"{name}: bare geometries, taken to be in {series[name].crs.name}")


def _dry_land(series: dict[str, Any], target: pyproj.CRS | None) -> tuple[Any, Any, Any]:
    """Return union(land) - union(water), barriers and water, in the target CRS (None: as they are)."""
    land, water, barriers = series["land"], series.get("water"), series.get("barriers")
    around = lonlat(land) if target is not None and land.crs.is_geographic else None
    whole, source = _unite(land, around), land.crs
    dry, wet, lines = whole, None, None
    if water is not None:
        wet = _unite(water, around)
        # Shores that coincide do so in the CRS they were drawn in; in another one only up to rounding.
        if target is not None and not source.equals(water.crs, ignore_axis_order=True):
            dry, wet = _projected(whole, source, target), _projected(wet, water.crs, target)
            source = target
        dry = _without(dry, wet)
        if dry.is_empty:
            raise DomainError(
                f"No land is left after subtracting water: all {_area(whole, land.crs, target)} of land lie "
                f"within the {_area(_unite(water, None), water.crs, target)} of water.",
                option="water",
                remedy="Check which is the land and which the water.",
            )
    if target is not None:
        if wet is not None:
            wet = _around(wet, dry)
            wet = None if wet.is_empty else _multipolygon(np.array([_projected(wet, source, target)]))
        dry = _multipolygon(np.array([_projected(dry, source, target)]))
    if barriers is not None:
        lines = barriers.to_numpy() if target is None else project_shapes(barriers, target)
        lines = shapely.multilinestrings(shapely.get_parts(lines))
    return dry, lines, wet


def _without(dry: Any, wet: Any) -> Any:
    """Return land minus water; where GEOS fails on it as it stands, rounded to a millionth of a millionth."""
    land, water = shapely.get_parts(dry), shapely.get_parts(wet)
    which, found = shapely.STRtree(water).query(land, predicate="intersects")
    met, group = np.unique(which, return_inverse=True)
    if len(met) == 0:
        return dry
    water = shapely.multipolygons(water[found], indices=group)
    try:
        left = shapely.difference(land[met], water)
    except shapely.GEOSException:
        west, south, east, north = shapely.bounds(dry)
        grid = 1e-12 * max(east - west, north - south)
        left = shapely.difference(shapely.set_precision(land[met], grid), shapely.set_precision(water, grid))
    return _multipolygon(np.delete(land, met), left)


def _multipolygon(*shapes: np.ndarray) -> Any:
    """Return the polygons among shapes as one: overlays may leave lines and points where shores touch."""
    parts = shapely.get_parts(shapely.get_parts(np.concatenate(shapes)))
    parts = parts[(shapely.get_type_id(parts) == 3) & ~shapely.is_empty(parts)]
    return parts[0] if len(parts) == 1 else shapely.multipolygons(parts)


def _unite(series: Any, around: LonLat | None) -> Any:
    """Return the union of polygons in their own CRS; cracks of a tenth of a millimetre close."""
    values = series.to_numpy()
    grid = None
    if series.crs is not None and series.crs.is_geographic:
        values = values if around is None else unwrap(values, lonlat(series), around)
        grid = 1e-9
    elif series.crs is not None:
        grid = 1e-4
    if len(values) == 1:
        return values[0]
    # Only those that are next to each other need a union: most islands are not.
    parts = shapely.get_parts(values)
    pairs = shapely.STRtree(parts).query(parts, predicate="dwithin", distance=2 * (grid or 0.0))
    links = sp.coo_array((np.ones(pairs.shape[1]), pairs), shape=(len(parts), len(parts)))
    group = connected_components(links, directed=False)[1]
    lone = np.bincount(group)[group] == 1
    joined = shapely.union_all(parts[~lone], grid_size=grid)
    return _multipolygon(parts[lone], np.array([joined]))


def _around(geom: Any, land: Any) -> Any:
    """Return what of a geometry lies as near to the land as the land is wide; an ocean fits no plane."""
    west, south, east, north = land.bounds
    reach = max(east - west, north - south)
    near = shapely.box(west - reach, south - reach, east + reach, north + reach)
    shapely.prepare(near)
    parts = shapely.get_parts(geom)
    parts = parts[shapely.intersects(near, parts)]
    out = ~shapely.covers(near, parts)
    parts[out] = shapely.intersection(parts[out], near)
    return _multipolygon(parts)


def _projected(geom: Any, source: pyproj.CRS, target: pyproj.CRS) -> Any:
    return project_shapes(gpd.GeoSeries([geom], crs=source), target)[0]


def _area(geom: Any, source: pyproj.CRS | None, target: pyproj.CRS | None) -> str:
    if target is None or source is None:
        return f"{number(geom.area, 6)} square units"
    return f"{number(_projected(geom, source, target).area / 1e6, 6)} km²"


def _distortion(dry: Any, crs: pyproj.CRS) -> list[str]:
    """Say so when the CRS is far from true to scale on the domain."""
    coords = shapely.get_coordinates(dry)
    coords = coords[:: max(1, len(coords) // 500)]
    scale = areal_scale(crs, coords[:, 0], coords[:, 1])
    low, high = float(np.nanmin(scale)), float(np.nanmax(scale))
    if low > 0.9 and high < 1.1:
        return []
    return [
        f"{crs.name} shows areas at {low:.3g} to {high:.3g} times their true size here: areas are corrected, "
        "lengths are not. The CRS that is chosen where none is given is truer"
    ]
