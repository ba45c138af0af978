"""Grid: square, north-up cells on a metric plane; the only code that does pixel arithmetic."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyproj
import shapely
from affine import Affine

from geobgp.errors import DomainError, SizeError, option
from geobgp.validation import Rule, as_floats, check, real, validated, whole
from geobgp.validation import a as is_a

#: The largest grid that `Grid.from_bounds` makes, in cells (land and water together).
MAX_CELLS = 50_000_000
#: Rows or columns from the origin beyond which their edges are no longer told apart.
MOST_EDGES = 1e12


def _bounds(value: Any) -> tuple[float, ...]:
    west, south, east, north = found = tuple(real().take(v) for v in value)
    if west > east or south > north:
        raise ValueError
    return found


def _shape(value: Any) -> tuple[int, int]:
    rows, cols = (whole().take(v) for v in value)
    return rows, cols


_SHAPE = Rule("two whole numbers, rows and columns", _shape, DomainError)
_BOUNDS = Rule("finite numbers: west, south, east (not less) and north (not less)", _bounds, DomainError)


def pairs(coords: Any) -> np.ndarray:
    """Return coordinates as (k, 2); a single pair is one row."""
    array = as_floats("coords", coords)
    array = array.reshape(-1, 2) if array.size in (0, 2) else array
    return as_floats("coords", array, (len(array) if array.ndim else 0, 2))


def round_down(value: float) -> float:
    """Return the largest of 1, 2, 5 times a power of ten that is at most `value`.

    Examples
    --------
    >>> round_down(0.73), round_down(2000.0)
    (0.5, 2000.0)
    """
    power = 10.0 ** math.floor(math.log10(value))
    return max(k * power for k in (1, 2, 5) if k * power <= value * (1 + 1e-12))


@dataclass(frozen=True)
class Grid:
    """Square, north-up cells; row 0 is the northernmost.

    Parameters
    ----------
    shape : (int, int)
        Rows and columns.
    affine : Affine
        From (column, row) of a cell's north-west corner to (easting, northing).
    crs : pyproj.CRS or None
        A projected system in metres; None for planar coordinates with no place on Earth.

    Examples
    --------
    >>> grid = Grid.from_bounds((0, 0, 40, 20), cell_size=10)
    >>> grid.shape, grid.bounds
    ((2, 4), (0.0, 0.0, 40.0, 20.0))
    >>> grid.centres(0, 0)
    (5.0, 15.0)
    """

    shape: tuple[int, int]
    affine: Affine
    crs: pyproj.CRS | None = None

    def __post_init__(self) -> None:
        rows, cols = _SHAPE("shape", self.shape)
        a = is_a("Affine")("affine", self.affine)
        check("crs", self.crs, is_a("CRS", words="a pyproj.CRS or None"))
        if rows < 1 or cols < 1:
            raise DomainError(
                f"A grid needs at least one row and one column; found {rows} x {cols}.", found=(rows, cols)
            )
        if a.b != 0 or a.d != 0 or a.a <= 0 or a.e != -a.a:
            raise DomainError(f"A grid is north-up with square cells; found the transform {tuple(a)[:6]}.")

    @classmethod
    @validated(bounds=_BOUNDS, cell_size=real(above=0.0).raising(DomainError))
    def from_bounds(
        cls, bounds: tuple[float, float, float, float], cell_size: float, crs: pyproj.CRS | None = None
    ) -> Grid:
        """Return the smallest grid over (west, south, east, north) with edges at multiples of `cell_size`.

        Two grids of one cell size and one CRS therefore share their cells wherever they overlap.
        """
        west, south, east, north = bounds
        h = cell_size
        if not max(abs(edge) for edge in bounds) / h < MOST_EDGES:
            raise SizeError(
                f"A cell size of {h:g} is too small for places as far from the origin as "
                f"{max(abs(edge) for edge in bounds):g}: cells cannot be told apart.",
                option="cell_size",
                found=h,
                remedy=f"Use a larger {option('cell_size')}.",
            )
        # A shore that lies on a grid line up to rounding does not open one more row of empty cells.
        slack = 1e-9
        col0, col1 = math.floor(west / h + slack), math.ceil(east / h - slack)
        row0, row1 = math.floor(south / h + slack), math.ceil(north / h - slack)
        shape = (max(row1 - row0, 1), max(col1 - col0, 1))
        if shape[0] * shape[1] > MAX_CELLS:
            fits = h * math.sqrt(shape[0] * shape[1] / MAX_CELLS) * 1.01
            raise SizeError(
                f"A cell size of {h:g} m over {(east - west) / 1000:.6g} x {(north - south) / 1000:.6g} km "
                f"makes {shape[0]} x {shape[1]} = {shape[0] * shape[1]:,} cells; the limit is {MAX_CELLS:,} "
                f"(and about {shape[0] * shape[1] * 40 / 1e9:.3g} GB of memory).",
                option="cell_size",
                found=h,
                remedy=f"Use {option('cell_size')} >= {fits:.3g}.",
            )
        return cls(shape, Affine(h, 0.0, col0 * h, 0.0, -h, row1 * h), crs)

    @property
    def cell_size(self) -> float:
        """Side of a cell in metres."""
        return float(self.affine.a)

    @property
    def n_cells(self) -> int:
        """Number of cells, land and water."""
        return self.shape[0] * self.shape[1]

    @property
    def west(self) -> float:
        """Easting of the western edge."""
        return float(self.affine.c)

    @property
    def north(self) -> float:
        """Northing of the northern edge."""
        return float(self.affine.f)

    @property
    def bounds(self) -> tuple[float, float, float, float]:
        """(west, south, east, north) of the outer edges."""
        rows, cols = self.shape
        h = self.cell_size
        return (self.west, self.north - rows * h, self.west + cols * h, self.north)

    @property
    def eastings(self) -> np.ndarray:
        """Easting of each column's centre, west to east."""
        return self.west + (np.arange(self.shape[1]) + 0.5) * self.cell_size

    @property
    def northings(self) -> np.ndarray:
        """Northing of each row's centre, north to south (descending)."""
        return self.north - (np.arange(self.shape[0]) + 0.5) * self.cell_size

    def centres(self, rows: Any, cols: Any) -> tuple[Any, Any]:
        """Return the eastings and northings of the centres of cells."""
        h = self.cell_size
        return self.west + (cols + 0.5) * h, self.north - (rows + 0.5) * h

    def to_cells(self, easting: np.ndarray, northing: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return coordinates in units of cells: (u, v) eastward and southward from the north-west corner.

        Cell (row, col) is the square col <= u <= col + 1, row <= v <= row + 1.
        """
        h = self.cell_size
        return (np.asarray(easting, float) - self.west) / h, (self.north - np.asarray(northing, float)) / h

    def from_cells(self, u: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return eastings and northings of coordinates in units of cells; the inverse of `to_cells`."""
        h = self.cell_size
        return self.west + np.asarray(u, float) * h, self.north - np.asarray(v, float) * h

    def shapes_to_cells(self, shapes: Any) -> Any:
        """Return a geometry, or an array of them, in units of cells."""
        return shapely.transform(shapes, lambda xy: np.column_stack(self.to_cells(xy[:, 0], xy[:, 1])))

    def shapes_from_cells(self, shapes: Any) -> Any:
        """Return what `shapes_to_cells` was given."""
        return shapely.transform(shapes, lambda uv: np.column_stack(self.from_cells(uv[:, 0], uv[:, 1])))

    def cell_of(self, easting: np.ndarray, northing: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return (rows, cols, inside) of coordinates; rows and cols are 0 where `inside` is False.

        A point on a shared edge belongs to the cell east or south of it, on the outer edge to the last cell.
        """
        u, v = self.to_cells(easting, northing)
        rows_n, cols_n = self.shape
        with np.errstate(invalid="ignore"):
            inside = (u >= 0) & (u <= cols_n) & (v >= 0) & (v <= rows_n)
        u = np.where(inside, u, 0.0)
        v = np.where(inside, v, 0.0)
        rows = np.minimum(v.astype(np.int32), rows_n - 1)
        cols = np.minimum(u.astype(np.int32), cols_n - 1)
        return rows, cols, inside
