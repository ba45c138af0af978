"""Coordinates from one system to another: of arrays, of points, and of many pixels at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pyproj
import scipy.sparse as sp

from geobgp.errors import DataError

if TYPE_CHECKING:
    from geobgp.land.domain import Domain

Transform = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]

#: Up to this many pixels every one is transformed exactly.
EXACT_PIXELS = 100_000


def project(
    transformer: pyproj.Transformer, x: np.ndarray, y: np.ndarray, *, inverse: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Return transformed coordinates as arrays of the same shape; NaN where there is no answer."""
    x, y = np.broadcast_arrays(np.asarray(x, float), np.asarray(y, float))
    # pyproj takes an array of one value for a number and warns: a second one keeps it an array.
    alone = x.size == 1
    flat = [np.append(v, v) if alone else v.ravel() for v in (x, y)]
    out = transformer.transform(flat[0], flat[1], direction="INVERSE" if inverse else "FORWARD")
    found = [np.where(np.isfinite(v), v, np.nan)[: x.size].reshape(x.shape) for v in out]
    return found[0], found[1]


def point_coordinates(points: Any, domain: Domain) -> tuple[np.ndarray, np.ndarray]:
    """Return eastings and northings (k, 2) in the domain's CRS, and which of the points given they belong to.

    Parameters
    ----------
    points : GeoDataFrame, GeoSeries or (n, 2) array
        An array holds coordinates in the domain's CRS. Missing and empty points are left out.
    domain : Domain
    """
    if not hasattr(points, "geometry"):
        coords = np.asarray(points, float).reshape(-1, 2)
        return coords, np.ones(len(coords), bool)
    shapes = points.geometry
    if domain.crs is not None and shapes.crs is None:
        raise DataError("The points have no CRS; set it with points.set_crs(...).")
    known = np.asarray(~(shapes.isna() | shapes.is_empty))
    if not (shapes[known].geom_type == "Point").all():
        raise DataError("The points to show must be Point geometries.")
    x, y = np.asarray(shapes[known].x), np.asarray(shapes[known].y)
    if domain.crs is not None and len(x):
        x, y = project(pyproj.Transformer.from_crs(shapes.crs, domain.crs, always_xy=True), x, y)
    return np.column_stack([x, y]), known


def transform_pixels(
    transform: Transform, rows: np.ndarray, cols: np.ndarray, *, tolerance: float
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
