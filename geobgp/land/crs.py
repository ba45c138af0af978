"""Which coordinate reference system: what a user gave, one that suits the land, its areal scale."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import geopandas as gpd
import numpy as np
import pyproj
import shapely
from scipy.ndimage import map_coordinates

from geobgp.errors import CRSError, option
from geobgp.land.reproject import CHOOSE, WGS84, centre, in_degrees, lonlat, move, unknown_crs, unwrap

if TYPE_CHECKING:
    from geobgp.land.grid import Grid

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


def metric_crs(geoms: Any) -> tuple[pyproj.CRS, str]:
    """Return the CRS to map land in: its own where that will do, else one that is chosen; and why, in words.

    Its own will do if it is projected, in metres, made for where the land is and not for the whole world, and true to
    areas and shapes there: to 3 % of the area, and 5 % between one direction and another.

    Examples
    --------
    >>> from shapely.geometry import box
    >>> land = gpd.GeoSeries([box(5, 52, 6, 53)], crs="EPSG:4326")
    >>> metric_crs(land.to_crs(28992))[0].to_string()
    'EPSG:28992'
    >>> found, why = metric_crs(land.to_crs(3857))
    >>> found.to_string(), why
    ('EPSG:32631', "the land's own, WGS 84 / Pseudo-Mercator, is made for the whole world")
    """
    own = geoms.crs
    if own is None or own.is_geographic:
        return choose_crs(geoms), ""
    wrong = _unsuited(own, geoms)
    if wrong:
        return choose_crs(geoms), f"the land's own, {own.name}, {wrong}"
    return check_crs(own), "the land's own"


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
        found = pyproj.CRS.from_user_input(value)
        # Of one of its own special classes, such as a domain's, pyproj cannot make a variant.
        return found if type(found) is pyproj.CRS else pyproj.CRS(found.to_wkt())
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
        example = f", or give a projected one such as {option('crs', f'EPSG:{code}')}" if code else ""
        kind = "geographic: its unit is the degree" if found.is_geographic else f"of type {found.type_name}"
        raise CRSError(
            f"The grid needs a projected CRS in metres; {label} is {kind}.",
            option="crs",
            found=found.name,
            remedy=f"{CHOOSE}{example}; {option('crs', 'local')} is for planes with no place on Earth.",
        )
    if any(axis.direction == "west" for axis in found.axis_info):
        raise CRSError(
            f"The axes of {label} do not run east and north.",
            option="crs",
            found=found.name,
            remedy=f"{CHOOSE}, or give one whose axes do.",
        )
    if all(axis.unit_conversion_factor == 1 for axis in found.axis_info):
        return found
    definition = found.to_json_dict()  # the parameters of the projection carry their own units
    definition.pop("id", None)
    definition["name"] = f"{found.name} in metres"
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
