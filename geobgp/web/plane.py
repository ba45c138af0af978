"""The picture's plane: where each pixel of a web map lies on the domain, and the shoreline on the map.

A map on Earth is drawn in spherical Mercator (EPSG:3857), in one piece: longitudes go on beyond 180
degrees where the domain crosses the antimeridian. A local domain is drawn in its own plane.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyproj
import scipy.sparse as sp
import shapely
from affine import Affine

from geobgp.errors import DomainError
from geobgp.land.reproject import transform_xy

if TYPE_CHECKING:
    from geobgp.land.domain import Domain

#: Radius of EPSG:3857's sphere in metres.
RADIUS = 6378137.0
#: Latitude at which the web's Mercator square ends.
MAX_LATITUDE = 85.0511287798
#: At most this many pixels stand for the side of one cell.
MAX_OVERSAMPLING = 4.0
#: Up to this many pixels every one is transformed exactly.
EXACT_PIXELS = 100_000
_MAX_VERTICES = 100_000
_FINER = 4
_Transform = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True, eq=False)
class Plane:
    """Pixels of a web map over a domain.

    Attributes
    ----------
    domain : Domain
    shape : (int, int)
        Rows and columns of pixels.
    west, north : float
        Outer corner of the first pixel, in metres of Mercator (or the local unit).
    pixel : float
        Side of a pixel in the same unit.
    longitude : float
        Of the middle of the domain; longitudes are given within 180 degrees of it. Not used if local.
    oversampling : float
        Pixels along the side of a cell, about; under 1 when not every cell has a pixel.
    """

    domain: Domain
    shape: tuple[int, int]
    west: float
    north: float
    pixel: float
    longitude: float
    oversampling: float

    @classmethod
    def over(cls, domain: Domain, max_pixels: int) -> Plane:
        """Return the plane over all land, as fine as `max_pixels` and `MAX_OVERSAMPLING` allow."""
        longitude = 0.0 if domain.crs is None else _middle_longitude(domain)
        bare = cls(domain, (1, 1), 0.0, 0.0, 1.0, longitude, 1.0)
        rows, cols = np.nonzero(domain.coverage > 0)
        u = np.linspace(cols.min(), cols.max() + 1, 129)
        v = np.linspace(rows.min(), rows.max() + 1, 129)
        x, y = bare.to_plane(*domain.grid.from_cells(*np.meshgrid(u, v)))
        if not (np.isfinite(x).all() and np.isfinite(y).all()):
            raise DomainError(
                f"The domain ({domain.crs.name if domain.crs else 'local'}) reaches a pole or goes beyond "
                "its CRS, where a web map cannot show it.",
                remedy="Use the rasters in QGIS instead.",
            )
        # The size of a cell on the plane, in the middle of the domain.
        du = np.hypot(np.diff(x, axis=1), np.diff(y, axis=1)) / (u[1] - u[0])
        dv = np.hypot(np.diff(x, axis=0), np.diff(y, axis=0)) / (v[1] - v[0])
        cell = math.sqrt(float(np.median(du)) * float(np.median(dv)))
        width, height = float(np.ptp(x)), float(np.ptp(y))
        oversampling = min(MAX_OVERSAMPLING, math.sqrt(max_pixels * cell**2 / (width * height)))
        pixel = cell / oversampling
        shape = (max(math.ceil(height / pixel - 1e-9), 1), max(math.ceil(width / pixel - 1e-9), 1))
        return cls(domain, shape, float(x.min()), float(y.max()), pixel, longitude, oversampling)

    @property
    def local(self) -> bool:
        """Whether the plane is the domain's own."""
        return self.domain.crs is None

    @property
    def bounds(self) -> list[list[float]]:
        """South-west and north-east corner as [latitude, longitude]; [northing, easting] if local."""
        east = self.west + self.shape[1] * self.pixel
        south = self.north - self.shape[0] * self.pixel
        (w, s), (e, n) = self.to_degrees(self.west, south), self.to_degrees(east, self.north)
        return [[float(s), float(w)], [float(n), float(e)]]

    @cached_property
    def _to_degrees(self) -> pyproj.Transformer:
        return pyproj.Transformer.from_crs(self.domain.crs, 4326, always_xy=True)

    def to_plane(self, easting: np.ndarray, northing: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return coordinates on the plane of coordinates in the domain's CRS."""
        if self.local:
            return np.asarray(easting, float), np.asarray(northing, float)
        lon, lat = transform_xy(self._to_degrees, easting, northing)
        lon = self.longitude + np.mod(lon - self.longitude + 180.0, 360.0) - 180.0
        lat = np.clip(lat, -MAX_LATITUDE, MAX_LATITUDE)
        return RADIUS * np.radians(lon), RADIUS * np.arcsinh(np.tan(np.radians(lat)))

    def from_plane(self, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return coordinates in the domain's CRS of coordinates on the plane."""
        if self.local:
            return x, y
        lon, lat = self.to_degrees(x, y)
        return transform_xy(self._to_degrees, lon, lat, inverse=True)

    def to_degrees(self, x: np.ndarray | float, y: np.ndarray | float) -> tuple[np.ndarray, np.ndarray]:
        """Return longitudes (which may pass 180) and latitudes; local coordinates stay as they are."""
        if self.local:
            return np.asarray(x, float), np.asarray(y, float)
        return np.degrees(np.asarray(x) / RADIUS), np.degrees(np.arctan(np.sinh(np.asarray(y) / RADIUS)))

    @cached_property
    def land(self) -> shapely.Geometry:
        """The domain's land on the plane; long edges are divided, since they bend."""
        return self._project(self.domain.geometry)

    def _project(self, geometry: shapely.Geometry) -> shapely.Geometry:
        if self.local:
            return geometry
        cut = shapely.segmentize(geometry, 8 * self.domain.cell_size)
        return shapely.transform(cut, lambda xy: np.column_stack(self.to_plane(xy[:, 0], xy[:, 1])))

    def cells(self) -> np.ndarray:
        """Return, for each pixel, the cell (row * columns + column) whose value it shows, -1 for none.

        A pixel shows a cell if a quarter of it is land, so that thin rivers stay lines and do not fray.
        A node whose cell would then have no pixel gets the one that its own point lies in, so that small
        islands are not lost.
        """
        from rasterio.features import rasterize

        grid = self.domain.grid

        def where(col: np.ndarray, row: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            return self.from_plane(self.west + col * self.pixel, self.north - row * self.pixel)

        rows, cols = np.arange(self.shape[0]) + 0.5, np.arange(self.shape[1]) + 0.5
        east, north = transform_pixels(where, rows, cols, tolerance=0.02 * grid.cell_size)
        at_row, at_col, inside = grid.cell_of(east, north)
        cell = np.where(inside, at_row * np.int64(grid.shape[1]) + at_col, -1)
        has_land = np.append(self.domain.coverage.ravel() > 0, False)
        cell = np.where(has_land[cell], cell, -1)
        fine = _FINER * np.array(self.shape)
        affine = Affine(self.pixel / _FINER, 0, self.west, 0, -self.pixel / _FINER, self.north)
        land = rasterize([self.land], tuple(fine.tolist()), transform=affine, dtype=np.uint8)
        share = land.reshape(self.shape[0], _FINER, self.shape[1], _FINER).sum(axis=(1, 3), dtype=np.uint8)
        out = np.where(share >= 0.25 * _FINER**2, cell, -1)
        shown = np.bincount(out[out >= 0], minlength=grid.n_cells) > 0
        of_node = self.domain.node_rows * np.int64(grid.shape[1]) + self.domain.node_cols
        lost = ~shown[of_node]
        x, y = self.to_plane(*self.domain.node_points[lost].T)
        row = np.clip((self.north - y) / self.pixel, 0, self.shape[0] - 1).astype(np.int64)
        col = np.clip((x - self.west) / self.pixel, 0, self.shape[1] - 1).astype(np.int64)
        free = out[row, col] < 0
        out[row[free], col[free]] = of_node[lost][free]
        return out

    def shoreline(self) -> list[list[list[float]]]:
        """Return the outline of the land as lines of [longitude, latitude], right well within a pixel."""
        lines = [shapely.boundary(self.domain.geometry)]
        if self.domain.barriers is not None:
            lines.append(self.domain.barriers)
        return self.outline(shapely.geometrycollections(lines), 0.05)

    def outline(self, lines: shapely.Geometry, tolerance: float = 0.2) -> list[list[list[float]]]:
        """Return lines in the domain's CRS as lists of [longitude, latitude].

        Parameters
        ----------
        lines : geometry
            Lines, or a collection of them.
        tolerance : float
            How far they may be off, in pixels; more where they have very many vertices.
        """
        whole = shapely.get_parts(shapely.get_parts(self._project(lines)))
        tolerance *= self.pixel
        simple = shapely.simplify(whole, tolerance, preserve_topology=False)
        while shapely.get_num_coordinates(simple).sum() > _MAX_VERTICES:
            tolerance *= 2
            simple = shapely.simplify(whole, tolerance, preserve_topology=False)
        simple = simple[~shapely.is_empty(simple)]
        xy, owner = shapely.get_coordinates(simple, return_index=True)
        lon, lat = self.to_degrees(xy[:, 0], xy[:, 1])
        step = self.pixel if self.local else math.degrees(self.pixel / RADIUS)
        digits = max(math.ceil(-math.log10(step / 100)), 0)
        points = np.round(np.column_stack([lon, lat]), digits)
        ends = np.searchsorted(owner, np.arange(1, len(simple)))
        return [part.tolist() for part in np.split(points, ends) if len(part)]


def _middle_longitude(domain: Domain) -> float:
    """Longitude of the middle of the land, right across the antimeridian too."""
    to_degrees = pyproj.Transformer.from_crs(domain.crs, 4326, always_xy=True)
    sample = domain.node_points[:: max(domain.n_nodes // 2000, 1)]
    lon = np.radians(transform_xy(to_degrees, sample[:, 0], sample[:, 1])[0])
    return math.degrees(math.atan2(float(np.nanmean(np.sin(lon))), float(np.nanmean(np.cos(lon)))))


def transform_pixels(
    transform: _Transform, rows: np.ndarray, cols: np.ndarray, *, tolerance: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return ``transform(col, row)`` for every pair of evenly spaced rows and columns.

    Parameters
    ----------
    transform : callable
        Takes arrays of columns and rows, returns two arrays of coordinates.
    rows, cols : (r,) and (c,) arrays
        Evenly spaced, ascending.
    tolerance : float
        Largest error allowed, in units of the coordinates returned; checked between the points of the
        lattice, which is refined until it holds.

    Returns
    -------
    two (r, c) arrays

    Examples
    --------
    >>> rows, cols = np.arange(3.0), np.arange(4.0)
    >>> x, y = transform_pixels(lambda col, row: (2 * col, row), rows, cols, tolerance=0.1)
    >>> x[0]
    array([0., 2., 4., 6.])
    """
    step = 32
    while len(rows) * len(cols) > EXACT_PIXELS and step >= 4:
        across, down = _knots(cols, step), _knots(rows, step)
        x, y = transform(*np.meshgrid(across, down))
        middle_x, middle_y = transform(
            *np.meshgrid((across[:-1] + across[1:]) / 2, (down[:-1] + down[1:]) / 2)
        )
        if np.isfinite(x).all() and np.isfinite(y).all():
            error = max(_midpoint_error(x, middle_x), _midpoint_error(y, middle_y))
            if error <= tolerance:
                left, right = _hats(rows, down), _hats(cols, across)
                return left @ (right @ x.T).T, left @ (right @ y.T).T
        step //= 2
    grid_cols, grid_rows = np.meshgrid(cols, rows)
    return transform(grid_cols, grid_rows)


def _knots(values: np.ndarray, step: int) -> np.ndarray:
    """Evenly spaced knots over the values, about every `step` of them."""
    return np.linspace(values[0], values[-1], max(int(np.ceil((len(values) - 1) / step)), 1) + 1)


def _midpoint_error(knots: np.ndarray, middle: np.ndarray) -> float:
    mean = (knots[:-1, :-1] + knots[1:, :-1] + knots[:-1, 1:] + knots[1:, 1:]) / 4
    error = float(np.abs(mean - middle).max())
    return error if np.isfinite(error) else np.inf


def _hats(values: np.ndarray, knots: np.ndarray) -> sp.csr_array:
    """Linear interpolation from knots to values as a sparse matrix."""
    at = np.clip((values - knots[0]) / (knots[-1] - knots[0]) * (len(knots) - 1), 0, len(knots) - 1)
    low = np.minimum(at.astype(np.int64), len(knots) - 2)
    share = at - low
    row = np.arange(len(values))
    return sp.csr_array(
        (np.r_[1 - share, share], (np.r_[row, row], np.r_[low, low + 1])), shape=(len(values), len(knots))
    )
