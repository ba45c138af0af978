"""Coordinate reference systems: choosing and checking one, bringing shapes to it whole, its areal scale."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import geopandas as gpd
import numpy as np
import pyproj
import shapely
from scipy.ndimage import map_coordinates

from geobgp.errors import CRSError, option

#: Longest edge that is projected as it stands; longer ones get vertices in between (degrees, metres).
MAX_EDGE_DEGREES, MAX_EDGE_METRES = 0.1, 10_000.0
#: A domain is mapped in a UTM zone when it stays within this many degrees of the zone's meridian.
UTM_HALF_WIDTH = 4.5

_POLYGONS = (3, 6)
WGS84 = pyproj.CRS("EPSG:4326")
LonLat = tuple[np.ndarray, np.ndarray]


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
        raise CRSError(no_crs("the geometries"))
    geoms = in_degrees(geoms)
    if geoms.crs.is_geographic:  # an edge of a polar map may go round the globe from one vertex to the next
        own = lonlat(geoms)
        geoms = gpd.GeoSeries(shapely.segmentize(unwrap(geoms.to_numpy(), own, own), 1.0), crs=geoms.crs)
    longitude, latitude = lonlat(geoms)
    lon0, lat0, radius = _centre(longitude, latitude)
    if radius > 90:
        raise CRSError(
            f"The domain reaches {radius:.0f} degrees from its centre, more than half the globe: "
            "no plane holds it well. Map its parts, or give crs=, e.g. crs='EPSG:6933' (equal-area)."
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
        return pyproj.CRS.from_user_input(value)
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
    found = as_crs(crs)
    while found.is_compound or found.is_bound:
        found = (found.source_crs if found.is_bound else found.sub_crs_list[0]) or found
    found = found.to_2d()
    label = f"{found.to_string() if len(found.to_string()) < 20 else ''} ({found.name})".strip()
    if not found.is_projected:
        code = None if geoms is None or geoms.crs is None else choose_crs(geoms).to_epsg()
        example = f", or a projected one such as crs='EPSG:{code}'" if code else ""
        kind = "geographic: its unit is the degree" if found.is_geographic else f"of type {found.type_name}"
        raise CRSError(
            f"The grid needs a projected CRS in metres; {label} is {kind}. "
            f"Use crs=None to have one chosen{example}; crs='local' is for planes with no place on Earth."
        )
    if any(axis.direction == "west" for axis in found.axis_info):
        raise CRSError(f"The axes of {label} do not run east and north. Use crs=None, or one whose axes do.")
    if all(axis.unit_conversion_factor == 1 for axis in found.axis_info):
        return found
    definition = found.to_json_dict()  # the parameters of the projection carry their own units
    definition.pop("id", None)
    definition["name"] = f"{found.name} in metres"
    for axis in definition["coordinate_system"]["axis"]:
        axis["unit"] = "metre"
    return pyproj.CRS.from_json_dict(definition)


def no_crs(what: str) -> str:
    """Return the message for data without a CRS."""
    return (
        f"The coordinate reference system of {what} is not known. Say which it is, e.g. "
        "frame.set_crs('EPSG:4326') for longitude and latitude, or use crs='local' for coordinates "
        "with no place on Earth."
    )


@lru_cache(maxsize=32)
def _transformer(source: pyproj.CRS, target: pyproj.CRS) -> pyproj.Transformer:
    return pyproj.Transformer.from_crs(source, target, always_xy=True)


def _move(coords: np.ndarray, source: pyproj.CRS, target: pyproj.CRS) -> np.ndarray:
    """Return (k, 2) coordinates in another CRS, infinite where there are none."""
    if len(coords) == 0:
        return np.empty((0, 2))
    first, second = coords.T
    if len(coords) == 1:  # pyproj takes an array of one for a number, which NumPy deprecates
        first, second = first.tolist(), second.tolist()
    return np.column_stack(_transformer(source, target).transform(first, second))


def lonlat(geoms: Any) -> LonLat:
    """Return longitude and latitude of all vertices, in degrees; refuse what lies beyond the globe."""
    before = coords = shapely.get_coordinates(geoms.to_numpy())
    if not geoms.crs.is_geographic:
        coords = _move(before, geoms.crs, WGS84)
        _check_finite(coords, before, WGS84)
    _check_degrees(coords)
    return coords[:, 0], coords[:, 1]


def in_degrees(geoms: Any) -> Any:
    """Return a GeoSeries as it is, unless its CRS is geographic but in grads or the like: then in WGS 84."""
    crs = geoms.crs
    if crs is None or not crs.is_geographic:
        return geoms
    degree = math.isclose(crs.axis_info[0].unit_conversion_factor, math.pi / 180, rel_tol=1e-6)
    meridian = crs.prime_meridian
    return geoms if degree and (meridian is None or meridian.longitude == 0) else geoms.to_crs(WGS84)


def _check_degrees(coords: np.ndarray) -> None:
    bad = (np.abs(coords[:, 1]) > 90 + 1e-9) | (np.abs(coords[:, 0]) > 540)
    if not bad.any():
        return
    first = coords[bad][0]
    if np.abs(coords[:, 1]).max() <= 540 and np.abs(coords[:, 0]).max() <= 90:
        hint = "Longitude and latitude look swapped: the first coordinate must be the longitude."
    else:
        hint = "These are no degrees: correct the CRS with frame.set_crs(..., allow_override=True)."
    raise CRSError(
        f"{count(bad.sum(), 'coordinate')} beyond the globe, e.g. longitude {first[0]:.8g}, "
        f"latitude {first[1]:.8g}. {hint}"
    )


def _centre(longitude: np.ndarray, latitude: np.ndarray) -> tuple[float, float, float]:
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


def project(geoms: Any, crs: pyproj.CRS) -> np.ndarray:
    """Return the geometries of a GeoSeries in another CRS, whole, as an array of shapely geometries.

    Long edges get vertices first, so that what is straight in the source stays where it is. Longitudes beyond
    ±180 and polygons that jump from +180 to -180 come out in one piece.
    """
    if geoms.crs is None:
        raise CRSError(no_crs("the geometries"))
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
    after = _move(before, source, crs)
    _check_finite(after, before, crs)
    values = shapely.set_coordinates(values, after)
    longest = _longest_edge(values)
    if longest > 3e6:
        raise CRSError(
            f"{crs.name} tears the polygons apart: neighbouring vertices come to lie {longest / 1000:,.0f} "
            "km from each other. Use crs=None to have a CRS chosen around the domain."
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
            f"({first[0]:.8g}, {first[1]:.8g}). Check the CRS of the data (longitude comes before latitude), "
            "or use crs=None to have one chosen."
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
    lon0 = _centre(*around)[0]
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


def _between(table: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Return the rows of a table at fractional positions, linearly."""
    low = np.clip(at.astype(int), 0, len(table) - 2)
    share = (at - low)[:, None]
    return np.asarray((1 - share) * table[low] + share * table[low + 1])


def _areal_scale(crs: pyproj.CRS, easting: np.ndarray, northing: np.ndarray) -> np.ndarray:
    geod = crs.get_geod() or pyproj.Geod(ellps="WGS84")
    a, e2, step = geod.a, geod.es, 1000.0
    at = np.column_stack([easting.ravel(), northing.ravel()])

    def place(de: float, dn: float) -> np.ndarray:
        lam, phi = np.radians(_move(at + np.array([de, dn]), crs, crs.geodetic_crs or WGS84)).T
        normal = a / np.sqrt(1 - e2 * np.sin(phi) ** 2)
        flat = normal * np.cos(phi)
        return np.stack([flat * np.cos(lam), flat * np.sin(lam), normal * (1 - e2) * np.sin(phi)], axis=-1)

    with np.errstate(invalid="ignore"):
        east, north = place(step, 0.0) - place(-step, 0.0), place(0.0, step) - place(0.0, -step)
        scale = (2 * step) ** 2 / np.linalg.norm(np.cross(east, north), axis=-1)
    return np.asarray(scale).reshape(easting.shape)


def transform(coords: np.ndarray, source: pyproj.CRS | None, crs: pyproj.CRS | None) -> np.ndarray:
    """Return coordinates of points brought from one CRS to another; infinite where that cannot be done."""
    if crs is None:
        if source is not None and source.is_geographic:
            raise CRSError(
                f"points: the domain is local (a plane), but the points have {source.name}, in degrees."
            )
        return coords
    if source is None:
        raise CRSError(no_crs("the points"))
    if source.equals(crs, ignore_axis_order=True):
        return coords
    return _move(coords, source, crs)


def count(n: int, thing: str, things: str | None = None) -> str:
    """Return e.g. "1 polygon" or "1,234 polygons"."""
    return f"{n:,} {thing if n == 1 else things or thing + 's'}"
