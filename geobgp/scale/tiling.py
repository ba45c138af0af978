"""Tiling: large land cut into tiles that overlap, and the weights with which they are put together again."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import shapely
from affine import Affine

from geobgp.errors import SizeError, option
from geobgp.land.grid import Grid
from geobgp.land.polygons import Land
from geobgp.text import number

#: Share of the halo over which neighbouring tiles are blended, to either side of their common edge.
BLENDED = 0.25


@dataclass(frozen=True)
class Box:
    """Some cells of a grid: rows from `top` to before `bottom`, columns from `left` to before `right`."""

    top: int
    left: int
    bottom: int
    right: int

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.bottom - self.top, self.right - self.left

    def grown(self, cells: int, within: Box) -> Box:
        """Return the box with so many more cells on every side, as far as another reaches."""
        return Box(
            max(self.top - cells, within.top), max(self.left - cells, within.left),
            min(self.bottom + cells, within.bottom), min(self.right + cells, within.right),
        )  # fmt: skip

    def from_multiples(self, step: int) -> Box:
        """Return the box with more rows and columns at its top and left, until these are multiples of `step`."""
        return Box(self.top // step * step, self.left // step * step, self.bottom, self.right)

    def meets(self, other: Box) -> bool:
        """Tell whether two boxes have cells in common."""
        return (
            self.top < other.bottom and other.top < self.bottom and self.left < other.right and other.left < self.right
        )

    def common(self, other: Box) -> Box:
        """Return the cells that two boxes have in common."""
        return Box(
            max(self.top, other.top), max(self.left, other.left),
            min(self.bottom, other.bottom), min(self.right, other.right),
        )  # fmt: skip

    def within(self, other: Box) -> tuple[slice, slice]:
        """Return where the box lies in an array over another."""
        return (
            slice(self.top - other.top, self.bottom - other.top),
            slice(self.left - other.left, self.right - other.left),
        )


@dataclass(frozen=True, eq=False)
class Frame:
    """The grid of all land, of any size: it is never made whole.

    Attributes
    ----------
    box : Box
        All cells.
    cell_size : float
    west, north : float
        Of its corner, multiples of the cell size.
    """

    box: Box
    cell_size: float
    west: float
    north: float

    @classmethod
    def around(cls, geometry: shapely.Geometry, cell_size: float) -> Frame:
        """Return the frame of land."""
        h = float(cell_size)
        west, south, east, north = shapely.bounds(geometry)
        left, right = math.floor(west / h + 1e-9), math.ceil(east / h - 1e-9)
        low, high = math.floor(south / h + 1e-9), math.ceil(north / h - 1e-9)
        return cls(Box(0, 0, max(high - low, 1), max(right - left, 1)), h, left * h, high * h)

    def affine(self, box: Box | None = None) -> Affine:
        """Return the transform of the cells of a box; of all by default."""
        top, left = (0, 0) if box is None else (box.top, box.left)
        h = self.cell_size
        return Affine(h, 0.0, self.west + left * h, 0.0, -h, self.north - top * h)

    def grid(self, box: Box, crs: object) -> Grid:
        """Return the grid of a box."""
        return Grid(box.shape, self.affine(box), crs)  # type: ignore[arg-type]

    def polygon(self, box: Box) -> shapely.Polygon:
        """Return the outline of a box."""
        h = self.cell_size
        return shapely.box(
            self.west + box.left * h, self.north - box.bottom * h, self.west + box.right * h, self.north - box.top * h
        )  # fmt: skip

    def around_land(self, geometry: shapely.Geometry, within: Box) -> Box:
        """Return the cells that land touches."""
        inner = Frame.around(geometry, self.cell_size)
        left = round((inner.west - self.west) / self.cell_size)
        top = round((self.north - inner.north) / self.cell_size)
        return Box(top, left, top + inner.box.bottom, left + inner.box.right).common(within)


@dataclass(frozen=True, eq=False)
class Tile:
    """A part of the land.

    Attributes
    ----------
    number : int
    core : Box
        The cells that are its own; every cell of land is in one core.
    shown : Box
        Core and the strip that is blended with its neighbours.
    outer : Box
        Core and halo: what is fitted.
    geometry : shapely geometry
        Land within `outer`.
    barriers : shapely geometry or None
    """

    number: int
    core: Box
    shown: Box
    outer: Box
    geometry: shapely.Geometry = field(repr=False)
    barriers: shapely.Geometry | None = field(repr=False)


def cut_tiles(land: Land, frame: Frame, tile_nodes: int, halo: float, step: int = 1) -> list[Tile]:
    """Cut land into tiles of at most so many cells of land, with halos.

    Parameters
    ----------
    land : Land
    frame : Frame
    tile_nodes : int
    halo : float
        In the unit of the land.
    step : int
        Halos begin at rows and columns that are multiples of this, and are wider where they must: so that the squares
        into which far water is merged are the same in all tiles.

    Raises
    ------
    SizeError
        If a tile would be narrower than the halo.
    """
    halo_cells = math.ceil(halo / frame.cell_size - 1e-9)
    reach = halo_cells + step - 1
    try:
        cores = _halved(land.geometry, frame, frame.box, tile_nodes, halo_cells, reach)
    except _NarrowError as narrow:
        raise SizeError(
            f"A tile of {tile_nodes:,} nodes would be {number(narrow.side * frame.cell_size)} wide and so narrower "
            f"than the halo of {number(halo)} ({halo_cells:,} cells).",
            option="tile_nodes",
            found=narrow.side,
            remedy=f"Use {option('tile_nodes')} >= {_enough(land, frame, narrow.cells, halo_cells, reach):,}, or a "
            f"larger {option('cell_size')}.",
        ) from None
    single = len(cores) == 1
    tiles = []
    for k, (core, near) in enumerate(cores):
        outer = frame.box if single else core.grown(halo_cells, frame.box).from_multiples(step)
        shown = frame.box if single else core.grown(max(1, round(BLENDED * halo_cells)), frame.box)
        edge = frame.polygon(outer)
        geometry = land.geometry if single else _polygons(shapely.intersection(near, edge))
        barriers = None if land.barriers is None else shapely.intersection(land.barriers, edge)
        if barriers is not None and shapely.is_empty(barriers):
            barriers = None
        tiles.append(Tile(k, frame.box if single else core, shown, outer, geometry, barriers))
    return tiles


class _NarrowError(Exception):
    """A part of the land with so many cells cannot be halved: its halves would be narrower than the halo."""

    def __init__(self, side: int, cells: float) -> None:
        super().__init__(side, cells)
        self.side, self.cells = side, cells


def _enough(land: Land, frame: Frame, cells: float, halo: int, reach: int) -> int:
    """Return how many nodes a tile must have at least, for land of its shape; `cells` are those of a part too narrow.

    A part that cannot be halved must be a tile itself; so it goes on until all parts are.
    """
    while True:
        tile_nodes = math.ceil(cells - 1e-6)
        if tile_nodes >= 1000:  # a round number is easier to remember
            unit = 10 ** (len(str(tile_nodes)) - 2)
            tile_nodes = math.ceil(tile_nodes / unit) * unit
        try:
            _halved(land.geometry, frame, frame.box, tile_nodes, halo, reach)
        except _NarrowError as narrow:
            cells = narrow.cells
        else:
            return tile_nodes


def _halved(
    geometry: shapely.Geometry, frame: Frame, box: Box, tile_nodes: int, halo: int, reach: int
) -> list[tuple[Box, shapely.Geometry]]:
    """Return the cores of tiles, each with the land around it as far as its outer box may reach."""
    near = shapely.intersection(geometry, frame.polygon(box.grown(reach, frame.box)))
    own = shapely.intersection(near, frame.polygon(box))
    cells = float(shapely.area(own)) / frame.cell_size**2
    if cells <= 1e-9:
        return []
    core = frame.around_land(own, box)
    if cells <= tile_nodes:
        return [(core, near)]
    rows, cols = core.shape
    if max(rows, cols) // 2 < halo:
        raise _NarrowError(max(rows, cols) // 2, cells)
    if rows >= cols:
        middle = (core.top + core.bottom) // 2
        halves = Box(core.top, core.left, middle, core.right), Box(middle, core.left, core.bottom, core.right)
    else:
        middle = (core.left + core.right) // 2
        halves = Box(core.top, core.left, core.bottom, middle), Box(core.top, middle, core.bottom, core.right)
    return [part for half in halves for part in _halved(near, frame, half, tile_nodes, halo, reach)]


def _polygons(geometry: shapely.Geometry) -> shapely.Geometry:
    """Return the polygons of what an intersection has left; lines and points have no area."""
    parts = shapely.get_parts(geometry)
    polygons = parts[shapely.area(parts) > 0]
    return shapely.union_all(polygons) if len(polygons) != 1 else polygons[0]


def weights(tile: Tile) -> np.ndarray:
    """Return how much a tile counts in each of its `shown` cells: all within its core, less and less towards the edge.

    Examples
    --------
    >>> tile = Tile(0, Box(2, 2, 9, 8), Box(0, 0, 11, 10), Box(0, 0, 11, 10), None, None)
    >>> weights(tile)[5].round(2).tolist()
    [0.04, 0.32, 0.68, 0.96, 1.0, 1.0, 0.96, 0.68, 0.32, 0.04]
    """
    return np.outer(
        _ramp(tile.shown.top, tile.shown.bottom, tile.core.top, tile.core.bottom),
        _ramp(tile.shown.left, tile.shown.right, tile.core.left, tile.core.right),
    )


def _ramp(begin: int, end: int, low: int, high: int) -> np.ndarray:
    """Return weights along a line of cells: half at both ends of the core, and smooth."""
    at = np.arange(begin, end) + 0.5
    out = np.ones(len(at))
    for edge, reach, sign in ((low, low - begin, 1.0), (high, end - high, -1.0)):
        if reach > 0:
            t = np.clip(0.5 + 0.5 * sign * (at - edge) / reach, 0.0, 1.0)
            out *= t * t * (3.0 - 2.0 * t)
    return out
