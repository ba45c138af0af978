"""What a region's share of every node is, and what the events in regions add up to."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import geopandas as gpd
import numpy as np
import pandas as pd
import pyproj
import shapely
from scipy import sparse
from scipy.special import pdtr

from geobgp.errors import CRSError, DataError, GeometryError, InputWarning, in_python, warn
from geobgp.files import frame_of, read_vector
from geobgp.land.crs import check_place, project_shapes
from geobgp.text import listed
from geobgp.validation import shown

if TYPE_CHECKING:
    from geobgp.land.domain import Domain

#: Regions with more vertices than this are cut into tiles before they are intersected with single nodes.
_TILE_VERTICES = 256
#: Shares of a node or of a cell that are no more than rounding errors of two borders that are the same.
_ROUNDING = 1e-9
#: How near a border a point lies on it, in cells: as near as projections of two drawings of one border are.
_ON_BORDER = 1e-6
#: Share of a polygon that borders drawn apart may give to its neighbour as well.
DRAWN_APART = 0.05
#: Share of a node in more than one polygon from which on these are looked at.
_CROWDED = 1e-3


@dataclass(frozen=True, eq=False)
class Overlay:
    """Where regions and the land of nodes overlap.

    Attributes
    ----------
    shares : (n_regions, n_nodes) csr_array
        The share of every node's land that lies in each region.
    pieces : array of polygons
        On the domain's plane: the land of nodes that a region's border cuts, within the region. Small pieces of land
        that are no node's are among them, as if they were the nearest node's; of the shares they are no part.
    entry : int array
        To which number of ``shares.data`` each piece belongs; several may belong to one.
    node : int array
        The node of each piece.
    """

    shares: sparse.csr_array
    pieces: np.ndarray
    entry: np.ndarray
    node: np.ndarray


def read_regions(
    regions: Any, domain: Domain, what: str = "regions", *, by: str | None = None, any_kind: bool = False
) -> gpd.GeoDataFrame:
    """Return `regions` as a GeoDataFrame in their own CRS, checked against the domain.

    Parameters
    ----------
    regions : GeoDataFrame, GeoSeries, shapely geometry, sequence of them, path, or None
        A bare geometry is taken to be in the domain's CRS; None is the whole domain as one region.
    domain : Domain
    what : str
        What they are, for messages.
    by : str, optional
        A column: polygons with the same value in it become one region.
    any_kind : bool
        Whether lines and points will do as well.
    """
    if regions is None:
        return gpd.GeoDataFrame({"geometry": [domain.geometry]}, crs=domain.crs)
    regions = frame_of(regions)
    if isinstance(regions, gpd.GeoDataFrame):
        frame = regions
    elif isinstance(regions, gpd.GeoSeries):
        frame = gpd.GeoDataFrame(geometry=regions)
    elif isinstance(regions, shapely.Geometry):
        frame = gpd.GeoDataFrame({"geometry": [regions]}, crs=domain.crs)
    elif isinstance(regions, (list, tuple, np.ndarray)):
        if not all(one is None or isinstance(one, shapely.Geometry) for one in regions):
            raise GeometryError(f"{what}: a list of them holds shapely geometries and nothing else.", option=what)
        frame = gpd.GeoDataFrame({"geometry": list(regions)}, crs=domain.crs)
    elif not isinstance(regions, (str, os.PathLike)):
        raise GeometryError(
            f"{what}: expected a GeoDataFrame, a GeoSeries, geometries or the path of a file; found {shown(regions)}.",
            option=what,
            found=type(regions).__name__,
        )
    else:
        frame = read_vector(os.fspath(regions), what)
    place = "" if domain.crs is None else f"; the domain is in {domain.crs.name}"
    check_frame(frame, domain.crs is None, what, place, any_kind=any_kind)
    return frame if by is None else merged(frame, by)


def check_frame(
    frame: gpd.GeoDataFrame, local: bool, what: str = "regions", place: str = "", *, any_kind: bool = False
) -> None:
    """Refuse regions that have no polygons, or no CRS where the map has one (or one where it has none).

    Parameters
    ----------
    frame : GeoDataFrame
    local : bool
        Whether the domain is a plane with no place on Earth.
    what : str
        What they are, for messages.
    place : str
        What is said of the domain's CRS.
    any_kind : bool
        Whether lines and points will do as well.
    """
    name = what.rsplit(" ", 1)[-1]
    if getattr(frame, "active_geometry_name", None) is None:
        raise GeometryError(
            f"{what}: no geometry column among {listed(frame.columns)}.",
            option=name,
            remedy="Name it with frame.set_geometry(...).",
        )
    if len(frame) == 0:
        raise GeometryError(f"There are no {what} to add up over; found a table of 0 rows.", option=name)
    check_crs(frame.crs, local, what, place)
    if frame.crs is not None:
        check_place(frame.crs, name)
    kinds = set(frame.geometry.geom_type.dropna()) - {"Polygon", "MultiPolygon", "GeometryCollection"}
    if kinds and not any_kind:
        raise GeometryError(
            f"The {what} must be polygons; found {', '.join(sorted(kinds))}.",
            option=name,
            found=sorted(kinds),
            remedy="Give the areas, not their lines or points.",
        )


def check_crs(crs: pyproj.CRS | None, local: bool, what: str, place: str = "") -> None:
    """Refuse shapes without a CRS where the map has one, and with one where it has none; see `check_frame`."""
    name = what.rsplit(" ", 1)[-1]
    if not local and crs is None:
        raise CRSError(
            f"The {what} have no coordinate reference system{place}.",
            option=name,
            remedy=f"Set theirs first{in_python(', e.g. frame.set_crs(4326)', ', in the file')}.",
        )
    if local and crs is not None:
        raise CRSError(
            f"The {what} are in {crs.name}, but the domain has planar coordinates with no place on "
            'Earth (crs="local").',
            option=name,
            remedy=f"Give {what} in the same coordinates, without CRS.",
        )


def merged(frame: gpd.GeoDataFrame, by: str) -> gpd.GeoDataFrame:
    """Return one row for each value of a column, in the order in which they come; rows without one stay apart."""
    columns = [column for column in frame.columns if column != frame.geometry.name]
    if by not in columns:
        raise DataError(
            f"The regions have no column {by!r}; found {', '.join(map(str, columns)) or 'none'}.",
            option="by",
            found=by,
            remedy="Name one of these.",
        )
    code = pd.factorize(frame[by])[0]
    code = np.where(code < 0, len(frame) + np.arange(len(frame)), code)
    first, group = np.unique(code, return_index=True, return_inverse=True)[1:]
    shapes = np.array(frame.geometry.to_numpy(), dtype=object)
    bad = ~shapely.is_valid(shapes) & ~shapely.is_missing(shapes)
    shapes[bad] = shapely.make_valid(shapes[bad])
    size = np.bincount(group)
    order = np.argsort(first, kind="stable")
    merged = [shapes[first[k]] if size[k] == 1 else shapely.union_all(shapes[group == k]) for k in order]
    return gpd.GeoDataFrame({by: frame[by].to_numpy()[first[order]]}, geometry=merged, crs=frame.crs)


def count_inside(domain: Domain, regions: gpd.GeoDataFrame, points: np.ndarray) -> np.ndarray:
    """Return the weight of the points inside each region; a point on a border lies on one side of it.

    That is the side of the middle of its node, so that no event of regions that share a border is counted twice, and
    none is lost.

    Parameters
    ----------
    domain : Domain
    regions : GeoDataFrame
        From `read_regions`.
    points : (k, 3) array
        Easting and northing in the domain's CRS, and weight.
    """
    geometries = _in_plane(regions, domain, "regions")[0]
    xy, near = points[:, :2], _ON_BORDER * domain.cell_size
    tree = shapely.STRtree(shapely.points(xy))
    region, point = tree.query(geometries, predicate="intersects")
    touched, edge = tree.query(shapely.boundary(geometries), predicate="dwithin", distance=near)
    if len(edge):
        clear = ~np.isin(point, edge)
        region, point = region[clear], point[clear]
        for side in (1.0, -1.0):  # the other side where beyond the border there is no region
            rest = np.setdiff1d(edge, point)
            moved = shapely.points(xy[rest] + 4.0 * side * near * _inwards(domain, xy[rest]))
            found, which = shapely.STRtree(moved).query(geometries, predicate="intersects")
            region, point = np.r_[region, found], np.r_[point, rest[which]]
        rest, first = np.unique(edge, return_index=True)
        lost = ~np.isin(rest, point)
        region, point = np.r_[region, touched[first[lost]]], np.r_[point, rest[lost]]
    return np.bincount(region, points[point, 2], len(geometries))


def _inwards(domain: Domain, xy: np.ndarray) -> np.ndarray:
    """Return directions from points to the middle of their nodes, turned a little: few borders run so."""
    node = domain.node_at(xy)
    way = np.where((node >= 0)[:, None], domain.node_points[np.maximum(node, 0)] - xy, 0.0)
    length = np.hypot(*way.T)
    way = np.where((length > 0)[:, None], way / np.where(length > 0, length, 1.0)[:, None], [1.0, 0.0])
    turn = np.array([[np.cos(0.1), np.sin(0.1)], [-np.sin(0.1), np.cos(0.1)]])
    return np.asarray(way @ turn)


def name_column(frame: gpd.GeoDataFrame) -> Any:
    """Return the column that names the rows: of those called a name, or else of all with words, that with most of them.

    Examples
    --------
    >>> table = {"country": ["NL", "NL"], "NAME_0": ["NL", "NL"], "NAME_1": ["Texel", "Ameland"], "people": [3, 4]}
    >>> name_column(gpd.GeoDataFrame(table, geometry=[shapely.Point(0, 0), shapely.Point(1, 0)]))
    'NAME_1'
    """
    words = [
        column
        for column in frame.columns
        if column != frame.geometry.name and not pd.api.types.is_numeric_dtype(frame[column])
    ]
    named = [column for column in words if "name" in str(column).lower()]
    return max(named or words, key=lambda column: frame[column].astype(str).nunique(), default=None)


def near_domain(frame: gpd.GeoDataFrame, domain: Domain) -> np.ndarray:
    """Return valid geometries of any kind in the domain's CRS, without what is far from the domain."""
    geometries = np.array(frame.geometry.to_numpy(), dtype=object)
    geometries[shapely.is_missing(geometries)] = shapely.Polygon()
    bad = ~shapely.is_valid(geometries)
    geometries[bad] = shapely.make_valid(geometries[bad])
    if domain.crs is not None and frame.crs != domain.crs:
        return _project(geometries, frame.crs, domain)[0]
    return geometries


def _in_plane(frame: gpd.GeoDataFrame, domain: Domain, what: str) -> tuple[np.ndarray, np.ndarray]:
    """Return valid polygons in the domain's CRS, without what is far away, and what share of each that is."""
    series = frame.geometry
    geometries = np.array(series.to_numpy(), dtype=object)
    geometries[shapely.is_missing(geometries)] = shapely.Polygon()
    bad = ~shapely.is_valid(geometries)
    geometries[bad] = shapely.make_valid(geometries[bad])
    if domain.crs is not None and frame.crs != domain.crs:
        return _project(geometries, frame.crs, domain)
    return geometries, np.ones(len(geometries))


def _project(geometries: np.ndarray, crs: pyproj.CRS, domain: Domain) -> tuple[np.ndarray, np.ndarray]:
    """Return what of valid polygons in `crs` can meet the domain, in its CRS, and its share of each."""
    assert domain.crs is not None
    share = np.ones(len(geometries))
    there = pyproj.Transformer.from_crs(domain.crs, crs, always_xy=True)
    west, south, east, north = there.transform_bounds(*domain.grid.bounds, densify_pts=41)
    if crs.is_geographic and east < west:  # across the antimeridian
        east += 360.0
    if west < east and np.isfinite([west, south, east, north]).all():
        # Far parts, which may have no place in the domain's projection, are cut off first. Longitudes go on after 180
        # in some files and begin anew in others: the same land is near in both.
        margin = 0.05 * max(east - west, north - south)
        turns = (-360.0, 0.0, 360.0) if crs.is_geographic and east - west + 2 * margin < 360.0 else (0.0,)
        near = shapely.union_all(
            [shapely.box(west - margin + t, south - margin, east + margin + t, north + margin) for t in turns]
        )
        shapely.prepare(near)
        out = ~shapely.covers(near, geometries)
        before = _ground(geometries[out], crs)
        geometries[out] = shapely.intersection(geometries[out], near)
        share[out] = _ground(geometries[out], crs) / np.where(before > 0, before, 1.0)
    if shapely.is_empty(geometries).all():
        return geometries, share
    moved = np.array(project_shapes(gpd.GeoSeries(geometries, crs=crs), domain.crs), dtype=object)
    bad = ~shapely.is_valid(moved)
    moved[bad] = shapely.make_valid(moved[bad])
    return moved, share


def _ground(geometries: np.ndarray, crs: pyproj.CRS) -> np.ndarray:
    """Return areas to be compared with each other; degrees of longitude count by their parallel's width."""
    if crs.is_geographic:
        geometries = shapely.transform(geometries, lambda at: np.c_[at[:, 0], np.sin(np.radians(at[:, 1]))])
    return np.asarray(shapely.area(geometries))


def _tiles(geometries: np.ndarray, size: float) -> tuple[np.ndarray, np.ndarray]:
    """Cut geometries with many vertices by ever finer rectangles, down to `size`: (pieces, index of each)."""
    index = np.arange(len(geometries))
    done: list[tuple[np.ndarray, np.ndarray]] = []
    pieces = geometries
    while len(pieces):
        bounds = shapely.bounds(pieces)
        extent = np.maximum(bounds[:, 2] - bounds[:, 0], bounds[:, 3] - bounds[:, 1])
        small = (shapely.get_num_coordinates(pieces) <= _TILE_VERTICES) | ~(extent > size)
        done.append((pieces[small], index[small]))
        pieces, index, bounds = pieces[~small], index[~small], bounds[~small]
        wide = (bounds[:, 2] - bounds[:, 0] >= bounds[:, 3] - bounds[:, 1])[:, None]
        middle = 0.5 * (bounds[:, :2] + bounds[:, 2:])
        first, second = bounds.copy(), bounds.copy()
        first[:, 2:] = np.where(wide, np.c_[middle[:, 0], bounds[:, 3]], np.c_[bounds[:, 2], middle[:, 1]])
        second[:, :2] = np.where(wide, np.c_[middle[:, 0], bounds[:, 1]], np.c_[bounds[:, 0], middle[:, 1]])
        halves = [shapely.intersection(pieces, shapely.box(*half.T)) for half in (first, second)]
        pieces, index = np.concatenate(halves), np.concatenate([index, index])
        keep = shapely.area(pieces) > 0
        pieces, index = pieces[keep], index[keep]
    return np.concatenate([p for p, _ in done]), np.concatenate([i for _, i in done])


def area_shares(domain: Domain, regions: Any) -> sparse.csr_array:
    """Return the share of every node's land that lies in each region.

    Nodes within one region count whole; only those that a region's border crosses are cut, exactly.

    Parameters
    ----------
    domain : Domain
    regions : GeoDataFrame or what else `read_regions` takes
        In any CRS. Regions may overlap, and may leave land out.

    Returns
    -------
    csr_array, (n_regions, n_nodes)
        Numbers from 0 to 1.
    """
    return overlay(domain, regions).shares


def overlay(domain: Domain, regions: Any) -> Overlay:
    """Return where regions and the land of nodes overlap: the shares of `area_shares`, and the pieces of cut nodes."""
    return _overlaid(domain, _in_plane(read_regions(regions, domain), domain, "regions")[0])


def overlaps(domain: Domain, regions: gpd.GeoDataFrame, shapes: np.ndarray) -> sparse.csr_array:
    """Return the area of shapes on the domain's plane that lies in each region, (n_regions, n_shapes).

    Slivers along a border that region and shape have in common are left out.
    """
    return _overlaps(domain, _in_plane(regions, domain, "regions")[0], shapes)


def _overlaps(domain: Domain, geometries: np.ndarray, shapes: np.ndarray) -> sparse.csr_array:
    tiles, owner = _tiles(geometries, 8 * domain.cell_size)
    tile, shape = shapely.STRtree(shapes).query(tiles, predicate="intersects")
    area = shapely.area(shapely.intersection(shapes[shape], tiles[tile]))
    real = area > _ROUNDING * domain.cell_size**2
    found = (area[real], (owner[tile[real]], shape[real]))
    return sparse.coo_array(found, shape=(len(geometries), len(shapes))).tocsr()


def ground_areas(domain: Domain, regions: Any) -> sparse.csr_array:
    """Return the area on the ground of every node's land in each region, (n_regions, n_nodes), that of islets included.

    Pieces of land too small to be nodes are at the node nearest by.
    """
    return _ground_areas(domain, _in_plane(read_regions(regions, domain), domain, "regions")[0])[0]


def _ground_areas(domain: Domain, geometries: np.ndarray) -> tuple[sparse.csr_array, np.ndarray]:
    """Return `ground_areas` of polygons on the domain's plane, and how much land each holds on the plane."""
    inside = _overlaid(domain, geometries).shares
    ground, on_land = inside.multiply(domain.node_areas).tocsr(), inside @ domain.planar_areas
    shapes, node = domain.left_out
    if len(shapes):
        area = _overlaps(domain, geometries, shapes)
        by_node = sparse.coo_array(
            ((domain.node_areas / domain.planar_areas)[node], (np.arange(len(node)), node)),
            shape=(len(node), domain.n_nodes),
        )
        ground, on_land = ground + area @ by_node.tocsr(), on_land + area.sum(axis=1)
    return sparse.csr_array(ground), on_land


def spread_density(
    domain: Domain, regions: Any, what: str = "regions", whole: np.ndarray | None = None
) -> tuple[np.ndarray, sparse.csr_array]:
    """Return the share of each region's people on a m² of its land, and on each node, (n_regions, n_nodes).

    People are spread evenly over a region, but for the water that the domain was made with. Those off the
    domain's land are nobody's: a region that reaches beyond it gives it only its share by area. People on pieces of
    land too small to be nodes are at the node nearest by.

    Parameters
    ----------
    domain : Domain
    regions : GeoDataFrame or what else `read_regions` takes
    what : str
        What they are, for messages.
    whole : (n_regions,) bool array, optional
        Regions of which all people live on what land these have.

    Examples
    --------
    Half of the first region lies beyond the land; a third of the second is a lake:

    >>> from shapely import box
    >>> from geobgp import Domain
    >>> domain = Domain.from_polygons(box(0, 0, 9, 2), water=box(4, 0, 6, 2), cell_size=1, crs="local")
    >>> spread_density(domain, [box(-2, 0, 2, 2), box(3, 0, 9, 2)])[1].sum(axis=1).round(9).tolist()
    [0.5, 1.0]
    """
    geometries, dry = dry_areas(domain, regions, what)
    ground, on_land = _ground_areas(domain, geometries)
    if whole is not None:
        dry = np.where(whole, on_land, dry)
    # The plane may show one part of the ground larger than another.
    kept = np.divide(on_land, np.maximum(dry, on_land), out=np.zeros(len(dry)), where=on_land > 0)
    total = ground.sum(axis=1)
    per_area = np.divide(kept, total, out=np.zeros(len(kept)), where=total > 0)
    return per_area, sparse.csr_array(sparse.diags_array(per_area) @ ground)


@dataclass(frozen=True, eq=False)
class Shared:
    """Land that polygons share.

    Attributes
    ----------
    pairs : (k, 2) int array
        Rows of polygons that overlap, the largest part of the smaller one first.
    shares : (k, 2) array
        Which share of each of the two it is.
    names : list of str
        Of all rows.
    """

    pairs: np.ndarray
    shares: np.ndarray
    names: list[str]

    def words(self, what: Callable[[int], str], most: int = 3) -> str:
        """Return the first pairs by name, and what is to be said of each."""
        said = [
            f"{self.names[i]} and {self.names[j]} ({what(k)})" for k, (i, j) in enumerate(self.pairs[:most].tolist())
        ]
        more = len(self.pairs) - len(said)
        return ", ".join(said) + (f" and {more:,} more" if more else "")


def shared_land(domain: Domain, frame: gpd.GeoDataFrame, inside: sparse.csr_array) -> Shared | None:
    """Return which polygons share land, by more than borders that were drawn apart do; None where none do.

    A table that has every polygon as often as every other one, such as one of people by sex, shares nothing by that.

    Parameters
    ----------
    domain : Domain
    frame : GeoDataFrame
        Checked by `read_regions`.
    inside : (n_regions, n_nodes) sparse array
        The share of every node's land in each.

    Examples
    --------
    >>> import geobgp
    >>> domain = geobgp.Domain.from_polygons(shapely.box(0, 0, 9, 2), cell_size=1, crs="local")
    >>> both = read_regions([shapely.box(0, 0, 5, 2), shapely.box(4, 0, 9, 2)], domain)
    >>> shared_land(domain, both, area_shares(domain, both)).words(lambda k: "1 km²")
    'row 0 and row 1 (1 km²)'
    """
    crowded = np.flatnonzero(np.asarray(inside.sum(axis=0)).ravel() > 1.0 + _CROWDED)
    if not len(crowded):
        return None
    some = np.asarray(inside.tocsc()[:, crowded].sum(axis=1)).ravel() > 0
    geometries = np.asarray(frame.geometry.to_numpy(), dtype=object)
    shape = pd.factorize(pd.Series(shapely.to_wkb(shapely.normalize(geometries))))[0]
    first = np.zeros(len(frame), bool)
    first[np.unique(shape, return_index=True)[1]] = True
    times = np.bincount(shape)
    rows = np.flatnonzero(some & (first | (times.min() < times.max())))
    plane = _in_plane(frame.iloc[rows], domain, "regions")[0]
    one, other = shapely.STRtree(plane).query(plane, predicate="intersects")
    one, other = one[one < other], other[one < other]
    size = shapely.area(plane)
    both = shapely.area(shapely.intersection(plane[one], plane[other]))
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = np.nan_to_num(both[:, None] / np.c_[size[one], size[other]])
    order = np.argsort(-shares.max(axis=1), kind="stable")
    order = order[shares.max(axis=1)[order] > DRAWN_APART]
    if not len(order):
        return None
    column = name_column(frame)
    names = [f"row {k}" for k in frame.index]
    if column is not None and frame[column].is_unique:
        names = frame[column].astype(str).tolist()
    return Shared(rows[np.c_[one, other][order]], shares[order], names)


def dry_areas(domain: Domain, regions: Any, what: str = "regions") -> tuple[np.ndarray, np.ndarray]:
    """Return regions as polygons on the domain's plane, and the area of each without the domain's water.

    Of a region that reaches far beyond the domain the far part is not among the polygons, but within the area.

    Parameters
    ----------
    domain : Domain
    regions : GeoDataFrame or what else `read_regions` takes
    what : str
        What they are, for messages.
    """
    geometries, share = _in_plane(read_regions(regions, domain, what), domain, what)
    whole = np.divide(shapely.area(geometries), share, out=np.zeros(len(share)), where=share > 0)
    return geometries, whole - _wet_areas(domain, geometries)


def _wet_areas(domain: Domain, geometries: np.ndarray) -> np.ndarray:
    """Return the area within each polygon of the water that the domain was made with."""
    if domain.water_geometry is None:
        return np.zeros(len(geometries))
    water, _ = _tiles(shapely.get_parts(domain.water_geometry), 8 * domain.cell_size)
    pieces, owner = _tiles(geometries, 8 * domain.cell_size)
    piece, lake = shapely.STRtree(water).query(pieces, predicate="intersects")
    wet = shapely.area(shapely.intersection(pieces[piece], water[lake]))
    return np.bincount(owner[piece], wet, len(geometries))


def _overlaid(domain: Domain, geometries: np.ndarray) -> Overlay:
    """Return where polygons on the domain's plane and the land of nodes overlap."""
    tree = shapely.STRtree(_boxes(domain))
    islets, near = domain.left_out
    whole_region, whole_node = tree.query(geometries, predicate="covers")
    tiles, owner = _tiles(geometries, 8 * domain.cell_size)
    tile, node = tree.query(tiles, predicate="intersects")
    key, n = owner[tile] * domain.n_nodes + node, domain.n_nodes
    crossed = ~np.isin(key, whole_region * n + whole_node) | np.isin(node, near)
    tile, node, key = tile[crossed], node[crossed], key[crossed]
    cut, place = np.unique(node, return_inverse=True)
    land = np.asarray(domain.polygon_of(cut), dtype=object)
    pieces = np.asarray(shapely.intersection(land[place], tiles[tile]), dtype=object)
    share = shapely.area(pieces) / shapely.area(land)[place]
    uncut = ~np.isin(whole_node, near)
    rows, cols = [whole_region[uncut], owner[tile]], [whole_node[uncut], node]
    data = [np.ones(int(uncut.sum())), share]
    some = share > 0
    if len(islets):
        tile, islet = shapely.STRtree(islets).query(tiles, predicate="intersects")
        more = np.asarray(shapely.intersection(islets[islet], tiles[tile]), dtype=object)
        rows, cols, data = [*rows, owner[tile]], [*cols, near[islet]], [*data, np.zeros(len(tile))]
        pieces, node = np.concatenate([pieces, more]), np.concatenate([node, near[islet]])
        key = np.concatenate([key, owner[tile] * n + near[islet]])
        some = np.concatenate([some, shapely.area(more) > 0])
    where = (np.concatenate(rows), np.concatenate(cols))
    table = sparse.coo_array((np.concatenate(data), where), shape=(len(geometries), n)).tocsr()
    table.sort_indices()
    table.data = np.minimum(table.data, 1.0)
    # What has no land at all is no entry.
    keys = np.repeat(np.arange(len(geometries)), np.diff(table.indptr)) * n + table.indices
    kept = (table.data > 0) | np.isin(keys, key[some])
    shares = sparse.csr_array(
        (table.data[kept], table.indices[kept], np.concatenate([[0], np.cumsum(kept)])[table.indptr]), shape=table.shape
    )
    entry = np.searchsorted(keys[kept], key[some])
    parted = (shares.data[entry] < 1.0 - _ROUNDING) | np.isin(node[some], near)
    return Overlay(shares, _polygons(pieces[some][parted]), entry[parted], node[some][parted])


def _polygons(shapes: np.ndarray) -> np.ndarray:
    """Return shapes without the lines and points at which polygons touch."""
    for k in np.flatnonzero(shapely.get_type_id(shapes) == shapely.GeometryType.GEOMETRYCOLLECTION):
        parts = shapely.get_parts(shapes[k])
        shapes[k] = shapely.union_all(parts[shapely.area(parts) > 0])
    return shapes


def _boxes(domain: Domain) -> np.ndarray:
    """Return a box around every node: its cell, and more where small pieces of other cells have joined it."""
    h, grid = domain.cell_size, domain.grid
    west, north = grid.west + domain.node_cols * h, grid.north - domain.node_rows * h
    bounds = np.c_[west, north - h, west + h, north]
    parts = np.bincount(domain.piece_node[domain.piece_node >= 0], minlength=domain.n_nodes)
    joined = np.flatnonzero(parts > 1)
    bounds[joined] = shapely.bounds(domain.polygon_of(joined)).reshape(-1, 4)
    return shapely.box(*bounds.T)


def poisson_quantile(means: np.ndarray, q: float) -> np.ndarray:
    """Return the quantile of a Poisson count whose mean is one of the equally likely rows of `means`.

    Parameters
    ----------
    means : (n_samples, n_regions) array
    q : float

    Returns
    -------
    (n_regions,) array
        The smallest whole number with at least probability `q` at or below it.

    Examples
    --------
    >>> poisson_quantile(np.full((1, 1), 4.0), 0.5)
    array([4.])
    """
    low = np.full(means.shape[1], -1.0)
    top = means.max(axis=0)
    high = np.ceil(top + 12 * np.sqrt(top) + 40)
    while np.any(high - low > 1):
        middle = np.floor(0.5 * (low + high))
        enough = pdtr(np.maximum(middle, 0), means).mean(axis=0) >= q
        enough &= middle >= 0
        high = np.where(enough, middle, high)
        low = np.where(enough, low, middle)
    return high


def sum_samples(blocks: Iterator[np.ndarray], weights: sparse.csr_array) -> np.ndarray:
    """Return (n_samples, n_regions): every sample of node values, weighted and added up by region."""
    return np.concatenate([np.asarray((weights @ block.T).T) for block in blocks])


def table(
    frame: gpd.GeoDataFrame, shares: sparse.csr_array, domain: Domain, columns: dict[str, np.ndarray]
) -> gpd.GeoDataFrame:
    """Return `frame` with each region's land and `columns`, NaN (and a warning) where there is no land."""
    unit, name = domain.area_unit
    land = shares @ (domain.node_areas / unit)
    empty = ~(land > 0)
    if empty.any():
        warn(
            InputWarning(
                f"{empty.sum():,} of {len(frame):,} regions hold no land of the domain; their totals are "
                "missing (NaN).",
                option="regions",
                found=int(empty.sum()),
                remedy="Check their coordinate reference system if you expected otherwise.",
            )
        )
    new = {("land_km2" if name == "km²" else "land_area"): land} | columns
    clash = sorted(set(new) & set(frame.columns))
    if clash:
        raise DataError(
            f"The regions already have columns called {', '.join(clash)}.",
            option="regions",
            found=clash,
            remedy="Rename or drop them first.",
        )
    values = {key: np.where(empty & (key in columns), np.nan, value) for key, value in new.items()}
    return gpd.GeoDataFrame(pd.concat([frame, pd.DataFrame(values, index=frame.index)], axis=1))
