"""Pixels: where the land of a domain's nodes lies among the pixels of a raster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyproj
import shapely
from affine import Affine

from geobgp.data.raster_source import RasterSource
from geobgp.errors import CRSError, DataError
from geobgp.land.reproject import check_place, transform_xy

if TYPE_CHECKING:
    from geobgp.land.domain import Domain

#: Largest distance between a node's edge and its image among the pixels, as a share of the edge's length.
STRAIGHT = 1e-5


class ApartError(DataError):
    """A raster and a domain have no place in common."""


def apply_affine(affine: Affine, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return coordinates transformed by an affine map, element by element."""
    return affine.a * x + affine.b * y + affine.c, affine.d * x + affine.e * y + affine.f


@dataclass(frozen=True)
class PixelLink:
    """From the coordinates of a domain to the pixels of a raster.

    Attributes
    ----------
    there : pyproj.Transformer or None
        To the raster's CRS; None where it is the domain's.
    affine : Affine
        From pixels' columns and rows to the raster's coordinates.
    west : float or None
        The raster's least longitude; None where its CRS is not geographic.
    """

    there: pyproj.Transformer | None
    affine: Affine
    west: float | None

    @classmethod
    def make(cls, raster: RasterSource, domain: Domain) -> PixelLink:
        """Return the way from a domain to a raster, or say why there is none."""
        if domain.crs is not None and raster.crs is None:
            raise CRSError(
                f"{raster.name} has no CRS, so its place is unknown; the domain is in {domain.crs.name}.",
                remedy="Set it first, for example with array.rio.write_crs(...) or gdal_edit -a_srs.",
            )
        if raster.crs is not None:
            check_place(raster.crs, raster.name)
        if domain.crs is None and raster.crs is not None:
            raise CRSError(
                f"{raster.name} is in {raster.crs.name} but the domain is local, with no place on Earth.",
                remedy="Make the domain with a CRS, or the raster without one.",
            )
        there = None
        if domain.crs is not None and raster.crs is not None and domain.crs != raster.crs:
            there = pyproj.Transformer.from_crs(domain.crs, raster.crs, always_xy=True)
        rows, cols = raster.shape
        corners = apply_affine(raster.affine, np.array([0, 0, cols, cols]), np.array([0, rows, 0, rows]))
        geographic = raster.crs is not None and raster.crs.is_geographic
        return cls(there, raster.affine, float(corners[0].min()) if geographic else None)

    def to_pixels(
        self, points: np.ndarray, near: np.ndarray | None = None, *, by_area: bool = False
    ) -> np.ndarray:
        """Return fractional columns and rows (k, 2) of coordinates (k, 2) in the domain's CRS.

        Longitudes are taken within a turn from the raster's western edge on, or within half a turn of `near`.
        With `by_area` a pixel of degrees is divided evenly on the ground: its half nearer to the pole begins
        where half of its area lies.
        """
        x, y = points[:, 0], points[:, 1]
        if self.there is not None:
            x, y = transform_xy(self.there, x, y)
        if self.west is not None:
            low = self.west if near is None else near - 180
            x = low + np.mod(x - low, 360.0)
        col, row = apply_affine(~self.affine, x, y)
        if by_area and self.west is not None and self.affine.d == 0:
            whole = np.floor(row)
            edges = self.affine.f + self.affine.e * np.array([whole, whole + 1])
            first, last = np.sin(np.radians(np.clip(edges, -90, 90)))
            row = whole + (np.sin(np.radians(y)) - first) / (last - first)
        return np.column_stack([col, row])

    def longitudes(self, points: np.ndarray) -> np.ndarray | None:
        """Return the longitudes of coordinates in the domain's CRS; None where the raster's has none."""
        if self.west is None:
            return None
        return apply_affine(self.affine, *self.to_pixels(points).T)[0]

    def bend(self, domain: Domain) -> float:
        """Return how far the sides of cells lie from straight lines among the pixels, as a share of them."""
        if self.there is None:
            return 0.0
        at = domain.node_points[:: max(domain.n_nodes // 500, 1)]
        near, out = self.longitudes(at), 0.0
        for side in np.eye(2) * domain.cell_size / 2:
            start, middle, end = (
                self.to_pixels(at + step, near, by_area=True) for step in (-side, 0 * side, side)
            )
            (a, b), (c, d) = (middle - start).T, (end - start).T
            off = np.abs(a * d - b * c) / (c**2 + d**2)
            if np.isfinite(off).any():
                out = max(out, float(np.nanquantile(off, 0.9)))
        return out


@dataclass(frozen=True, eq=False)
class Outlines:
    """The rings of the nodes' land among the pixels of a raster.

    Attributes
    ----------
    segments : (k, 4) array
        Column and row of both ends; the land is always on the same side.
    owner : (k,) int array
        Each segment's node.
    area : (n_nodes,) array
        In pixels; zero for those that are torn.
    torn : (t,) int array
        Nodes that the raster's projection tears apart or has no place for. They have no segments.
    pixels_per_cell : float
    window : (int, int, int, int)
        Top, left, bottom and right of the pixels that the nodes can meet.
    """

    segments: np.ndarray
    owner: np.ndarray
    area: np.ndarray
    torn: np.ndarray
    pixels_per_cell: float
    window: tuple[int, int, int, int]

    @classmethod
    def make(cls, raster: RasterSource, domain: Domain, link: PixelLink) -> Outlines:
        """Return the outlines of all nodes, bent to the raster's CRS."""
        segments, owner, torn = _bent(domain, link)
        if len(owner) == 0:
            raise ApartError(
                f"{raster.name} and the domain do not meet: the CRS of one does not reach the other."
            )
        area = _ring_areas(segments, owner, domain.n_nodes)
        if area.sum() < 0:
            segments, area = segments[:, [2, 3, 0, 1]], -area
        cells = (domain.planar_areas[area > 0] / domain.cell_size**2).sum()
        segments, owner, shape = _meeting(segments, owner, raster, link)
        ends = segments.reshape(-1, 2)[:, ::-1]
        first = np.clip(np.floor(ends.min(axis=0, initial=np.inf)), 0, shape).astype(int)
        last = np.clip(np.ceil(ends.max(axis=0, initial=-np.inf)), 0, shape).astype(int)
        if (first >= last).any():
            raise ApartError(f"{raster.name} does not overlap the domain; check its extent and its CRS.")
        window = (int(first[0]), int(first[1]), int(last[0]), int(last[1]))
        return cls(segments, owner, area, torn, float(area.sum() / cells), window)


def _bent(domain: Domain, link: PixelLink) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return segments among the pixels, the node of each, and the nodes that are torn."""
    land = shapely.normalize(domain.polygon_of(np.arange(domain.n_nodes)))
    if link.there is not None:
        pieces = max(np.ceil(np.sqrt(link.bend(domain) / STRAIGHT)), 1)
        land = shapely.segmentize(land, (1 + 1e-6) * domain.cell_size / pieces)
    parts, node = shapely.get_parts(land, return_index=True)
    rings, part = shapely.get_rings(parts, return_index=True)
    coords, ring = shapely.get_coordinates(rings, return_index=True)
    node = node[part[ring]]
    lon = link.longitudes(domain.node_points)
    pixels = link.to_pixels(coords, None if lon is None else lon[node], by_area=True)
    follows = ring[1:] == ring[:-1]
    segments, owner = np.hstack([pixels[:-1], pixels[1:]])[follows], node[1:][follows]
    bad = ~np.isfinite(segments).all(axis=1)
    if link.there is not None:
        middle = ((coords[:-1] + coords[1:]) / 2)[follows]
        middle = link.to_pixels(middle, None if lon is None else lon[owner], by_area=True)
        off = np.hypot(*(middle - (segments[:, :2] + segments[:, 2:]) / 2).T)
        bad |= ~(off <= 0.05 * np.hypot(*(segments[:, 2:] - segments[:, :2]).T) + 1e-6)
    torn = np.unique(owner[bad])
    keep = ~np.isin(owner, torn)
    return segments[keep], owner[keep], torn


def _ring_areas(segments: np.ndarray, owner: np.ndarray, n: int) -> np.ndarray:
    x0, y0, x1, y1 = segments.T
    return np.bincount(owner, (y1 - y0) * (x0 + x1) / 2, n)


def _meeting(
    segments: np.ndarray, owner: np.ndarray, raster: RasterSource, link: PixelLink
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return segments and owners of nodes that meet the raster, if a turn of the globe on, and its shape."""
    shape, turns = np.array(raster.shape), [np.zeros(4)]
    if link.west is not None:
        turn = np.array([(~link.affine).a, (~link.affine).d]) * 360
        turns += [np.tile(turn, 2), -np.tile(turn, 2)]
        if turn[1] == 0:  # a last column that repeats the first
            shape[1] = min(shape[1], np.ceil(abs(turn[0]) - 1e-6))
    found = []
    for step in turns:
        moved = segments + step
        here = np.ones(len(owner), bool)
        for axis in (0, 1):
            low, high = np.full(owner.max() + 1, np.inf), np.full(owner.max() + 1, -np.inf)
            np.minimum.at(low, owner, moved[:, axis])
            np.maximum.at(high, owner, moved[:, axis])
            here &= ((high > 0) & (low < shape[1 - axis]))[owner]
        found.append((moved[here], owner[here]))
    return np.concatenate([s for s, _ in found]), np.concatenate([o for _, o in found]), shape
