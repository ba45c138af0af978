"""Coordinate reference systems: chosen, checked, and coordinates taken from one to another."""

from __future__ import annotations

import math
from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import geopandas as gpd
import numpy as np
import pyproj
import shapely
from scipy.ndimage import map_coordinates

from geobgp.errors import CRSError, DataError, GeometryError, in_python, option
from geobgp.text import count
from geobgp.validation import as_floats

if TYPE_CHECKING:
    from geobgp.land.grid import Grid


# -- Points and shapes from one coordinate reference system to another, whole --------------------------------
# What is straight in the source stays where it is; the antimeridian and the poles are places like any other.


#: Longest edge that is projected as it stands; longer ones get vertices in between (degrees, metres).
MAX_EDGE_DEGREES, MAX_EDGE_METRES = 0.1, 10_000.0
WGS84 = pyproj.CRS("EPSG:4326")
#: The remedy for most CRSs that do not suit the land.
CHOOSE = f"Leave {option('crs', python='crs=')} out to have one chosen"

LonLat = tuple[np.ndarray, np.ndarray]

_POLYGONS = (3, 6)
_KINDS = (
    "Point", "LineString", "LinearRing", "Polygon", "MultiPoint", "MultiLineString", "MultiPolygon",
    "GeometryCollection",
)  # fmt: skip


# -- points


def transform_xy(
    transformer: pyproj.Transformer, x: np.ndarray, y: np.ndarray, *, inverse: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Return transformed coordinates as arrays of the same shape; NaN where there is no answer."""
    x, y = np.broadcast_arrays(np.asarray(x, float), np.asarray(y, float))
    # pyproj takes an array of one value for a number and warns: a second one keeps it an array.
    alone = x.size == 1
    flat = [np.append(v, v) if alone else v.ravel() for v in (x, y)]
    out = transformer.transform(flat[0], flat[1], direction="INVERSE" if inverse else "FORWARD")
    coords = [np.where(np.isfinite(v), v, np.nan)[: x.size].reshape(x.shape) for v in out]
    return coords[0], coords[1]


@lru_cache(maxsize=32)
def _transformer(source: pyproj.CRS, target: pyproj.CRS) -> pyproj.Transformer:
    return pyproj.Transformer.from_crs(source, target, always_xy=True)


def move(coords: np.ndarray, source: pyproj.CRS, target: pyproj.CRS) -> np.ndarray:
    """Return (k, 2) coordinates in another CRS; NaN where there are none."""
    return np.column_stack(transform_xy(_transformer(source, target), coords[:, 0], coords[:, 1]))


def transform(coords: np.ndarray, source: pyproj.CRS | None, crs: pyproj.CRS | None) -> np.ndarray:
    """Return the (k, 2) coordinates of points in a domain's CRS; NaN where there are none.

    Parameters
    ----------
    coords : (k, 2) array
    source : pyproj.CRS or None
        Where they are in; must be known unless the domain is local.
    crs : pyproj.CRS or None
        Where to bring them; None takes them as they are (a local domain).
    """
    if crs is None:
        if source is not None and source.is_geographic:
            raise CRSError(
                f"points: the domain is local (a plane), but the points have {source.name}, in degrees.",
                option="points",
                found=source.name,
            )
        return coords
    if source is None:
        raise unknown_crs("points")
    check_place(source, "points")
    return coords if source.equals(crs, ignore_axis_order=True) else move(coords, source, crs)


def check_place(crs: pyproj.CRS, what: str) -> None:
    """Refuse a CRS whose two coordinates are no place on Earth: engineering, geocentric, vertical ones."""
    planar = crs.is_geographic or crs.is_projected
    if not planar or any(not axis.unit_conversion_factor > 0 for axis in crs.axis_info):
        raise CRSError(
            f"{what}: {crs.name} is of the type {crs.type_name}, in which two coordinates are no place on Earth.",
            option=what,
            found=crs.name,
            remedy=(
                "Give the CRS that the coordinates are in"
                f"{in_python(', with frame.set_crs(..., allow_override=True)', ', in the file')}; "
                f"{option('crs', 'local')} is for planes with no place on Earth."
            ),
        )


def unknown_crs(what: str, more: str = "") -> CRSError:
    """Return the error for points, land or the like without a CRS."""
    whose = "points_crs" if what == "points" else "land_crs"
    name = option(whose, "EPSG:4326", python="frame.set_crs('EPSG:4326')")
    return CRSError(
        f"The coordinate reference system of {'the points' if what == 'points' else what} is not known.",
        option=what,
        remedy=(
            f"Say which it is, e.g. {name} for longitude and latitude, or use {option('crs', 'local')} for "
            f"coordinates with no place on Earth.{more}"
        ),
    )


def point_coordinates(points: Any, crs: pyproj.CRS | None) -> tuple[np.ndarray, np.ndarray, int]:
    """Return coordinates of points in a CRS, the row each came from, and how many rows have no point.

    Parameters
    ----------
    points : GeoDataFrame, GeoSeries or (n, 2) array
        Points or multi-points (exploded), in any CRS; an array holds coordinates in `crs`.
    crs : pyproj.CRS or None
        Where to bring them; None takes their coordinates as they are (a local domain).

    Returns
    -------
    coords : (k, 2) array
        Easting and northing; NaN where a point cannot be brought to `crs`.
    rows : (k,) int array
        Position of each point's row.
    n_missing : int
        Rows whose geometry is missing, empty or not finite.
    """
    if hasattr(points, "geometry") and hasattr(points, "crs"):
        coords, rows, n_missing = coordinates_of(points.geometry.to_numpy())
        return transform(coords, points.crs, crs), rows, n_missing
    coords = as_floats("coords", points)
    if coords.ndim != 2 or coords.shape[1] != 2:
        raise DataError(
            f"Coordinates are (k, 2), easting and northing; found the shape {coords.shape}.",
            option="coords",
            found=coords.shape,
        )
    return finite_rows(coords)


def place_coordinates(
    places: Any, crs: pyproj.CRS | None, bounds: tuple[float, float, float, float] | None = None
) -> np.ndarray:
    """Return (n, 2) coordinates of places, one a row, as `point_coordinates`; NaN where it has none.

    Where the `bounds` (west, south, east, north) of the land are given, an array that looks like degrees is refused.
    """
    coords, rows, _ = point_coordinates(places, crs)
    if crs is not None and bounds is not None and not hasattr(places, "crs") and len(coords):
        far = bounds[0] > 180 or bounds[1] > 90 or bounds[2] < -180 or bounds[3] < -90
        if far and np.abs(coords[:, 0]).max() <= 180 and np.abs(coords[:, 1]).max() <= 90:
            first = ", ".join(f"{v:g}" for v in coords[0])
            raise CRSError(
                f"These coordinates look like degrees (the first: {first}), and the land is in {crs.name}, in metres.",
                found=first,
                remedy="Give a GeoSeries with its CRS, such as gpd.GeoSeries(gpd.points_from_xy(lon, lat), crs=4326).",
            )
    if len(np.unique(rows)) < len(rows):
        raise GeometryError(
            f"Places are one point in each row; found {len(rows):,} points in {len(places):,} rows.",
            found=len(rows),
            remedy="Use frame.explode().",
        )
    out = np.full((len(places), 2), np.nan)
    out[rows] = coords
    return out


def as_given(values: np.ndarray, places: Any) -> Any:
    """Return one value per place: a Series with the index of a GeoDataFrame or GeoSeries, else the array itself."""
    if not hasattr(places, "geometry"):
        return values
    import pandas as pd

    return pd.Series(values, index=places.index)


def finite_rows(coords: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """Return those of (n, 2) coordinates that are finite, their rows, and how many are not."""
    rows = np.flatnonzero(np.isfinite(coords).all(axis=1))
    n_missing = len(coords) - len(rows)
    return coords[rows] if n_missing else coords, rows, n_missing


def coordinates_of(geoms: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """Return what `point_coordinates` does for an array of geometries, in the coordinates they have."""
    kinds = shapely.get_type_id(geoms)
    if kinds.any():  # not all of them single points
        wrong = (kinds > 0) & (kinds != 4)
        if wrong.any():
            raise GeometryError(
                f"points: points were expected; found {kinds_text(kinds[wrong])}.",
                option="points",
                found=int(wrong.sum()),
                remedy=(
                    f"Counts by area are mapped as {option('areas')}, with {option('count')}; of buildings and other "
                    f"small shapes take {in_python('frame.geometry.representative_point()', 'a point within each')}."
                ),
            )
    coords, rows = shapely.get_coordinates(geoms, return_index=True)
    finite = np.isfinite(coords).all(axis=1)
    if not finite.all():
        coords, rows = coords[finite], rows[finite]
    simple = len(rows) == len(geoms) and not (kinds == 4).any()
    return coords, rows, 0 if simple else len(geoms) - len(np.unique(rows))


def kinds_text(kinds: np.ndarray) -> str:
    """Return how many geometries there are of each kind, by their shapely type ids."""
    return ", ".join(f"{n:,} {_KINDS[kind]}" for kind, n in sorted(Counter(kinds.tolist()).items()))


# -- shapes


def project_shapes(geoms: Any, crs: pyproj.CRS) -> np.ndarray:
    """Return the geometries of a GeoSeries in another CRS, whole, as an array of shapely geometries.

    Long edges get vertices first, so that what is straight in the source stays where it is. Longitudes beyond
    ±180 and polygons that jump from +180 to -180 come out in one piece.
    """
    if geoms.crs is None:
        raise unknown_crs("the shapes")
    if geoms.crs.equals(crs, ignore_axis_order=True):
        return np.asarray(geoms.to_numpy())
    geoms = in_degrees(geoms)
    source, values = geoms.crs, geoms.to_numpy()
    if source.is_geographic:
        own = lonlat(geoms)
        values = unwrap(values, own, own)
        edge = MAX_EDGE_DEGREES
    else:
        edge = MAX_EDGE_METRES / source.axis_info[0].unit_conversion_factor
    values = shapely.segmentize(values, edge)
    before = shapely.get_coordinates(values)
    after = move(before, source, crs)
    _check_finite(after, before, crs)
    values = shapely.set_coordinates(values, after)
    longest = _longest_edge(values)
    if longest > 3e6:
        raise CRSError(
            f"{crs.name} tears the polygons apart: neighbouring vertices come to lie {longest / 1000:,.0f} "
            "km from each other.",
            option="crs",
            found=crs.name,
            remedy=f"{CHOOSE} around the domain.",
        )
    broken = ~shapely.is_valid(values) & np.isin(shapely.get_type_id(values), _POLYGONS)
    if broken.any():
        # The two sides of a cut to a pole meet up to rounding only: a tenth of a millimetre closes it.
        values[broken] = repair(shapely.set_precision(repair(values[broken]), 1e-4))
    return np.asarray(values)


def repair(geoms: np.ndarray) -> np.ndarray:
    """Return valid polygons in place of invalid ones: overlaps stay covered, spikes go."""
    valid = np.asarray(shapely.make_valid(geoms, method="structure", keep_collapsed=False))
    for i in np.flatnonzero(~shapely.is_valid(valid)):  # GEOS may leave parts that share an edge: join them
        valid[i] = shapely.union_all(shapely.make_valid(shapely.get_parts(valid[i])))
    return valid


def _check_finite(after: np.ndarray, before: np.ndarray, crs: pyproj.CRS) -> None:
    bad = ~np.isfinite(after).all(axis=1)
    if bad.any():
        first = before[bad][0]
        raise CRSError(
            f"{bad.sum():,} of {len(after):,} coordinates cannot be brought to {crs.name}, the first "
            f"({first[0]:.8g}, {first[1]:.8g}).",
            option="crs",
            found=int(bad.sum()),
            remedy=f"Check the CRS of the data (longitude comes before latitude). {CHOOSE}.",
        )


def _longest_edge(values: np.ndarray) -> float:
    parts = shapely.get_parts(values)
    areas = shapely.get_type_id(parts) == 3
    rings = np.concatenate([shapely.get_rings(parts[areas]), parts[~areas]])
    coords, index = shapely.get_coordinates(rings, return_index=True)
    steps = np.hypot(*np.diff(coords, axis=0).T)[index[1:] == index[:-1]]
    return float(steps.max(initial=0.0))


def unwrap(values: np.ndarray, own: LonLat, around: LonLat) -> np.ndarray:
    """Move parts by whole turns to lie around the middle of other vertices; mend jumps across ±180.

    `own` and `around` are the longitudes and latitudes of these vertices and of those others.
    """
    if all(lon.min() >= -180 and lon.max() <= 180 and np.ptp(lon) <= 180 for lon, _ in (own, around)):
        return values
    lon0 = centre(*around)[0]
    parts, owner = shapely.get_parts(values, return_index=True)
    parts = mend(parts)[0]
    coords, index = shapely.get_coordinates(parts, return_index=True)
    west, _, east, _ = shapely.bounds(parts).T
    coords[:, 0] += (360 * np.round((lon0 - (west + east) / 2) / 360))[index]
    parts = shapely.set_coordinates(parts, coords)
    whole = np.array(values, copy=True)
    for i in np.unique(owner):
        mine = parts[owner == i]
        whole[i] = mine[0] if len(mine) == 1 else shapely.union_all(mine)
    return whole


def mend(geoms: np.ndarray) -> tuple[np.ndarray, int]:
    """Return geometries whose longitudes run on past ±180 where they jumped back, and how many did.

    A jump is a step of more than half a turn between neighbouring vertices; one of a whole turn is the cut of
    a polygon around a pole and stays.
    """
    coords, index = shapely.get_coordinates(geoms, return_index=True)
    jump = np.abs(np.diff(coords[:, 0]))
    jumping = np.unique(index[1:][(jump > 180) & (jump < 359.9) & (index[1:] == index[:-1])])
    if jumping.size == 0:
        return geoms, 0
    geoms = geoms.copy()
    for i in jumping:
        parts = [_mend(part) for part in shapely.get_parts(geoms[i])]
        join = shapely.multipolygons if shapely.get_type_id(parts[0]) == 3 else shapely.multilinestrings
        geoms[i] = parts[0] if len(parts) == 1 else join(parts)
    return geoms, len(jumping)


def _mend(part: Any) -> Any:
    """Return a line or polygon whose longitudes run on past ±180 where they jumped back."""
    if shapely.get_type_id(part) != 3:
        coords = shapely.get_coordinates(part)
        coords[:, 0] = np.unwrap(coords[:, 0], period=360)
        return shapely.linestrings(coords)
    rings: list[np.ndarray] = []
    for ring in shapely.get_rings(part):
        coords = shapely.get_coordinates(ring)
        coords[:, 0] = np.unwrap(coords[:, 0], period=360)
        if rings:
            coords[:, 0] += 360 * np.round((rings[0][:, 0].mean() - coords[:, 0].mean()) / 360)
        rings.append(coords)
    if any(abs(ring[0, 0] - ring[-1, 0]) > 1e-6 for ring in rings):  # around a pole: left as it stands
        return part
    return shapely.Polygon(rings[0], rings[1:])


# -- degrees


def in_degrees(geoms: Any) -> Any:
    """Return a GeoSeries as it is, unless its CRS is geographic but in grads or the like: then in WGS 84."""
    crs = geoms.crs
    if crs is None or not crs.is_geographic:
        return geoms
    degree = math.isclose(crs.axis_info[0].unit_conversion_factor, math.pi / 180, rel_tol=1e-6)
    meridian = crs.prime_meridian
    return geoms if degree and (meridian is None or meridian.longitude == 0) else geoms.to_crs(WGS84)


def lonlat(geoms: Any) -> LonLat:
    """Return longitude and latitude of all vertices, in degrees; refuse what lies beyond the globe."""
    before = coords = shapely.get_coordinates(geoms.to_numpy())
    if not geoms.crs.is_geographic:
        coords = move(before, geoms.crs, WGS84)
        _check_finite(coords, before, WGS84)
    _check_degrees(coords)
    return coords[:, 0], coords[:, 1]


def _check_degrees(coords: np.ndarray) -> None:
    bad = (np.abs(coords[:, 1]) > 90 + 1e-9) | (np.abs(coords[:, 0]) > 540)
    if not bad.any():
        return
    first = coords[bad][0]
    if np.abs(coords[:, 1]).max() <= 540 and np.abs(coords[:, 0]).max() <= 90:
        remedy = "Longitude and latitude look swapped: the first coordinate must be the longitude."
    else:
        where = in_python("with frame.set_crs(..., allow_override=True)", "in the file")
        remedy = f"These are no degrees: correct the CRS {where}."
    raise CRSError(
        f"{count(bad.sum(), 'coordinate')} beyond the globe, e.g. longitude {first[0]:.8g}, latitude {first[1]:.8g}.",
        found=int(bad.sum()),
        remedy=remedy,
    )


def centre(longitude: np.ndarray, latitude: np.ndarray) -> tuple[float, float, float]:
    """Return longitude, latitude and radius (degrees) of a near-smallest cap that holds all the points."""
    lam, phi = np.radians(longitude), np.radians(latitude)
    xyz = np.column_stack([np.cos(phi) * np.cos(lam), np.cos(phi) * np.sin(lam), np.sin(phi)])
    some = xyz[:: max(1, len(xyz) // 4000)]
    centre = some.mean(axis=0)
    if np.linalg.norm(centre) < 1e-9:
        return 0.0, 0.0, 180.0
    for k in range(200):  # Badoiu and Clarkson's steps towards the farthest point
        centre /= np.linalg.norm(centre)
        far = some[np.argmin(some @ centre)]
        centre = centre + (far - centre) / (k + 2)
    centre /= np.linalg.norm(centre)
    radius = math.degrees(math.acos(max(-1.0, min(1.0, float((xyz @ centre).min())))))
    return math.degrees(math.atan2(centre[1], centre[0])), math.degrees(math.asin(centre[2])), radius


# -- Which coordinate reference system: what a user gave, one that suits the land, its areal scale -----------


#: A domain is mapped in a UTM zone when it stays within this many degrees of the zone's meridian.
UTM_HALF_WIDTH = 4.5
#: A CRS that the land has is kept when areas are so true there, and lengths in all directions so much alike.
TRUE_AREA, TRUE_SHAPE = 0.03, 0.05
#: Degrees by which land may reach out of the area that a CRS is made for.
EDGE = 2.0


def choose_crs(geoms: Any) -> pyproj.CRS:
    """Choose a metric CRS for geometries: a UTM zone if they fit in one, else an equal-area one around them.

    A domain fits a zone when it stays within 4.5 degrees of the zone's central meridian (half a zone and half
    as much again, where UTM is at most 0.3 % out of scale) and between 80° S and 84° N. Otherwise it is a
    Lambert azimuthal equal-area projection centred on the domain, its centre rounded to half a degree so that
    like domains share it. The antimeridian and the poles are places like any other.

    Examples
    --------
    >>> from shapely.geometry import box
    >>> choose_crs(gpd.GeoSeries([box(4, 51, 7, 53)], crs="EPSG:4326")).to_string()
    'EPSG:32631'
    >>> choose_crs(gpd.GeoSeries([box(177, -19, 180, -16), box(-180, -19, -178, -16)], crs="EPSG:4326")).name
    'WGS 84 / LAEA 17.5S 179.5E'
    """
    if geoms.crs is None:
        raise unknown_crs("the shapes")
    geoms = in_degrees(geoms)
    if geoms.crs.is_geographic:  # an edge of a polar map may go round the globe from one vertex to the next
        own = lonlat(geoms)
        geoms = gpd.GeoSeries(shapely.segmentize(unwrap(geoms.to_numpy(), own, own), 1.0), crs=geoms.crs)
    longitude, latitude = lonlat(geoms)
    lon0, lat0, radius = centre(longitude, latitude)
    if radius > 90:
        raise CRSError(
            f"The domain reaches {radius:.0f} degrees from its centre, more than half the globe: "
            "no plane holds it well.",
            option="crs",
            found=radius,
            remedy=f"Map its parts, or give one, e.g. {option('crs', 'EPSG:6933')} (equal-area).",
        )
    offset = (longitude - lon0 + 180) % 360 - 180
    middle = (lon0 + (offset.min() + offset.max()) / 2 + 180) % 360 - 180
    zone = int((middle + 180) // 6) % 60 + 1
    from_meridian = np.abs((longitude - (6 * zone - 183) + 180) % 360 - 180)
    if from_meridian.max() <= UTM_HALF_WIDTH and latitude.min() >= -80 and latitude.max() <= 84:
        return pyproj.CRS.from_epsg((32600 if lat0 >= 0 else 32700) + zone)
    lat0, lon0 = round(lat0 * 2) / 2, round(lon0 * 2) / 2
    lon0 = 0.0 if abs(lat0) == 90 else lon0
    name = f"WGS 84 / LAEA {abs(lat0):g}{'N' if lat0 >= 0 else 'S'} {abs(lon0):g}{'E' if lon0 >= 0 else 'W'}"
    conversion = pyproj.crs.coordinate_operation.LambertAzimuthalEqualAreaConversion(lat0, lon0)
    return pyproj.crs.ProjectedCRS(conversion, name=name, geodetic_crs=WGS84)


def metric_crs(geoms: Any) -> tuple[pyproj.CRS, bool, str]:
    """Return the CRS to map land in, whether it is its own, and else what speaks against that where it is projected.

    Its own will do if it is projected, in metres, made for where the land is and not for the whole world, and true to
    areas and shapes there: to 3 % of the area, and 5 % between one direction and another.

    Examples
    --------
    >>> from shapely.geometry import box
    >>> land = gpd.GeoSeries([box(5, 52, 6, 53)], crs="EPSG:4326")
    >>> metric_crs(land.to_crs(28992))[0].to_string()
    'EPSG:28992'
    >>> crs, own, why = metric_crs(land.to_crs(3857))
    >>> crs.to_string(), own, why
    ('EPSG:32631', False, "the land's own, WGS 84 / Pseudo-Mercator, is made for the whole world")
    """
    own = geoms.crs
    if own is None or own.is_geographic:
        return choose_crs(geoms), False, ""
    wrong = _unsuited(own, geoms)
    if wrong:
        return choose_crs(geoms), False, f"the land's own, {own.name}, {wrong}"
    return check_crs(own), True, ""


def _unsuited(own: pyproj.CRS, geoms: Any) -> str:
    """Return what speaks against mapping shapes in their own CRS; empty if nothing does."""
    try:
        crs = check_crs(own)
    except CRSError:
        return "is no projected one whose axes run east and north"
    if crs.name != own.name:
        return f"has the unit {own.axis_info[0].unit_name}"
    use = crs.area_of_use
    if use is not None:
        if use.north - use.south > 120 and (use.east - use.west) % 360 in (0, 360):
            return "is made for the whole world"
        longitude, latitude = lonlat(geoms)
        beyond = (longitude - (use.west - EDGE)) % 360 > (use.east - use.west) % 360 + 2 * EDGE
        if use.east - use.west != 360 and beyond.any():
            return "is made for elsewhere, in whole or in part"
        if latitude.min() < use.south - EDGE or latitude.max() > use.north + EDGE:
            return "is made for elsewhere, in whole or in part"
    at = shapely.get_coordinates(geoms.to_numpy())
    some = at[:: max(1, len(at) // 2000)]
    east, north = _steps(crs, some[:, 0], some[:, 1])
    area = np.linalg.norm(np.cross(east, north), axis=-1)
    one, two, both = ((v * w).sum(axis=-1) for v, w in ((east, east), (north, north), (east, north)))
    spread = np.hypot((one - two) / 2, both)
    longest = np.sqrt(((one + two) / 2 + spread) / np.maximum((one + two) / 2 - spread, 1e-12))
    if not np.nanmax(np.abs(area - 1)) <= TRUE_AREA:
        return f"shows areas {100 * float(np.nanmax(np.abs(area - 1))):.0f} % wrong there"
    if not np.nanmax(longest) <= 1 + TRUE_SHAPE:
        return f"stretches shapes by {100 * (float(np.nanmax(longest)) - 1):.0f} % there"
    return ""


def as_crs(value: Any, what: str = "crs") -> pyproj.CRS:
    """Return what a user gave for a CRS as one: a code, a name, WKT, a `pyproj.CRS`.

    Parameters
    ----------
    value : anything pyproj takes
    what : str
        The option it was given for.

    Examples
    --------
    >>> as_crs("epsg:28992").name
    'Amersfoort / RD New'
    """
    try:
        parsed = pyproj.CRS.from_user_input(value)
        # Of one of its own special classes, such as a domain's, pyproj cannot make a variant.
        return parsed if type(parsed) is pyproj.CRS else pyproj.CRS(parsed.to_wkt())
    except pyproj.exceptions.CRSError as error:
        raise CRSError(
            f"{option(what, str(value))} is no coordinate reference system that PROJ knows: {error}",
            option=what,
            found=value,
        ) from error


def check_crs(crs: Any, geoms: Any = None) -> pyproj.CRS:
    """Return a projected CRS in metres, or say why this one cannot be used and what can.

    A CRS in feet or kilometres is turned into the same projection in metres. `geoms`, where given, serve to
    suggest one in place of a geographic CRS.

    Examples
    --------
    >>> feet = check_crs("EPSG:2264")
    >>> feet.name, feet.axis_info[0].unit_name
    ('NAD83 / North Carolina (ftUS) in metres', 'metre')
    """
    parsed = as_crs(crs)
    while parsed.is_compound or parsed.is_bound:
        parsed = (parsed.source_crs if parsed.is_bound else parsed.sub_crs_list[0]) or parsed
    parsed = parsed.to_2d()
    label = f"{parsed.to_string() if len(parsed.to_string()) < 20 else ''} ({parsed.name})".strip()
    if not parsed.is_projected:
        code = None if geoms is None or geoms.crs is None else choose_crs(geoms).to_epsg()
        example = f", or give a projected one such as {option('crs', f'EPSG:{code}')}" if code else ""
        kind = "geographic: its unit is the degree" if parsed.is_geographic else f"of type {parsed.type_name}"
        raise CRSError(
            f"The grid needs a projected CRS in metres; {label} is {kind}.",
            option="crs",
            found=parsed.name,
            remedy=f"{CHOOSE}{example}; {option('crs', 'local')} is for planes with no place on Earth.",
        )
    if any(axis.direction == "west" for axis in parsed.axis_info):
        raise CRSError(
            f"The axes of {label} do not run east and north.",
            option="crs",
            found=parsed.name,
            remedy=f"{CHOOSE}, or give one whose axes do.",
        )
    if all(axis.unit_conversion_factor == 1 for axis in parsed.axis_info):
        return parsed
    definition = parsed.to_json_dict()  # the parameters of the projection carry their own units
    definition.pop("id", None)
    definition["name"] = f"{parsed.name} in metres"
    for axis in definition["coordinate_system"]["axis"]:
        axis["unit"] = "metre"
    return pyproj.CRS.from_json_dict(definition)


def areal_scale(crs: pyproj.CRS, easting: np.ndarray, northing: np.ndarray) -> np.ndarray:
    """Return the projection's areal scale, projected area per true area on the ellipsoid, at coordinates.

    It comes from the positions on the ellipsoid of neighbouring points of the plane, which holds for every
    projection (PROJ's own factors take EPSG:3857 for a projection of a sphere, 0.2 % out at 52° N).
    Beyond 4,000 points it is interpolated from a lattice of 65 x 65.

    Examples
    --------
    >>> utm = pyproj.CRS("EPSG:32631")
    >>> areal_scale(utm, np.array([500e3]), np.array([5.8e6])).round(6)
    array([0.9992])
    """
    easting, northing = np.broadcast_arrays(np.asarray(easting, float), np.asarray(northing, float))
    if easting.size <= 4000:
        return _areal_scale(crs, easting, northing)
    axes = [np.linspace(v.min() - 1.0, v.max() + 1.0, 65) for v in (northing, easting)]
    lattice = _areal_scale(crs, *np.meshgrid(axes[1], axes[0]))
    at = [(v - a[0]) / (a[1] - a[0]) for v, a in zip((northing, easting), axes, strict=True)]
    if easting.ndim == 2 and (easting == easting[:1]).all() and (northing == northing[:, :1]).all():
        scale = _between(_between(lattice, at[0][:, 0]).T, at[1][0]).T  # a grid: one axis after the other
    else:
        scale = map_coordinates(lattice, at, order=1, mode="nearest")
    lost = ~np.isfinite(scale)
    if lost.any():  # beside the edge of what the projection can show
        scale[lost] = _areal_scale(crs, easting[lost], northing[lost])
    return np.asarray(scale)


def ground_areas(grid: Grid) -> np.ndarray:
    """Return the true ground area of every cell of a grid, (rows, cols)."""
    planar = np.full(grid.shape, grid.cell_size**2)
    if grid.crs is None:
        return planar
    east, north = np.meshgrid(grid.eastings, grid.northings)
    return planar / areal_scale(grid.crs, east, north)


def _between(table: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Return the rows of a table at fractional positions, linearly."""
    low = np.clip(at.astype(int), 0, len(table) - 2)
    share = (at - low)[:, None]
    return np.asarray((1 - share) * table[low] + share * table[low + 1])


def _areal_scale(crs: pyproj.CRS, easting: np.ndarray, northing: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore", divide="ignore"):
        scale = 1 / np.linalg.norm(np.cross(*_steps(crs, easting, northing)), axis=-1)
    return np.asarray(scale).reshape(easting.shape)


def _steps(crs: pyproj.CRS, easting: np.ndarray, northing: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return where one metre of the plane to the east, and one to the north, leads on the ellipsoid, (n, 3) each."""
    geod = crs.get_geod() or pyproj.Geod(ellps="WGS84")
    a, e2, step = geod.a, geod.es, 1000.0
    at = np.column_stack([easting.ravel(), northing.ravel()])

    def place(de: float, dn: float) -> np.ndarray:
        lam, phi = np.radians(move(at + np.array([de, dn]), crs, crs.geodetic_crs or WGS84)).T
        normal = a / np.sqrt(1 - e2 * np.sin(phi) ** 2)
        flat = normal * np.cos(phi)
        return np.stack([flat * np.cos(lam), flat * np.sin(lam), normal * (1 - e2) * np.sin(phi)], axis=-1)

    with np.errstate(invalid="ignore"):
        east, north = place(step, 0.0) - place(-step, 0.0), place(0.0, step) - place(0.0, -step)
    return east / (2 * step), north / (2 * step)
