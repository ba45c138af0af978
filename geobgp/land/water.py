"""Water: the pieces of water around and between the land, and how they touch it and each other.

Everything is in units of cells on the domain's grid, which is extended on all sides. Near land, water has the
grid's own cells; further away it is merged into squares of 2 to 16 cells, so that wide water costs little.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
import shapely
from affine import Affine
from scipy.ndimage import binary_dilation, distance_transform_cdt
from scipy.sparse.csgraph import connected_components

from geobgp.land.crs import areal_scale
from geobgp.land.domain import Domain
from geobgp.land.grid import Grid
from geobgp.land.pieces import (
    NEAR_GRID_LINE,
    ON_SIDE,
    PRECISION,
    TOLERANCE,
    barrier_parts,
    cells_crossed,
    find_contacts,
    on_grid_line,
    split_by_lines,
)

#: Sides of the squares into which water is merged; a square lies at least GRADING times its side from land.
SIDES = (2, 4, 8, 16)
GRADING = 1
#: Water within this many cells of land is always kept; by default half the grid's longer side, up to MOST.
LEAST, MOST = 12, 256
_SQUARE = np.ones((3, 3), bool)
_WET = ("first", "second", "open_length", "vertex", "apart", "distance")
_SHORE = ("shore_piece", "shore_water", "shore_length", "shore_apart", "shore_depth")


@dataclass(frozen=True, eq=False)
class Water:
    """Connected pieces of water within cells (far from land: within squares of cells).

    Attributes
    ----------
    grid : Grid
        The domain's grid, extended on all sides.
    margin : int
        Rows added in the north and columns added in the west.
    cell : (w,) int
        Flat index of each piece's cell on `grid`; of a square's north-western one. Ascending.
    side : (w,) int
        Cells along a square's side; 1 near land.
    area : (w,) float
        Area of each piece in cells.
    polygon : (w,) object
        The piece's polygon in cells of `grid`; None where it is all of its square.
    centre : (w, 2) float
        Place of its value, (u, v) in cells of `grid`: the centroid in cells with land, else the middle
        of the cell or square.
    first, second : (q,) int
        Pieces of water that touch, `first` west or north of `second`.
    open_length : (q,) float
        Length over which they touch.
    vertex : (q,) int
        Flat index, on the lattice of the grid's corners, of the corner at which that half of a face ends; 0
        (never a full corner) for faces of squares.
    apart : (q,) float
        Distance of the centres of their cells or squares across the face.
    distance : (q,) float
        Distance of their values' places across the face.
    full : (rows + 1, cols + 1) bool
        Corners whose four cells are whole pieces of water, open to each other.
    shore_piece, shore_water : (s,) int
        Pieces of land (of `Domain.pieces`) and of water that touch.
    shore_length : (s,) float
        Length of the shore between them.
    shore_apart : (s,) float
        Distance of the centres of their cells: 0 for a shore within a cell, 1 for one along a grid line.
    shore_depth : (s,) float
        Distance of the water's place from the shore.
    """

    grid: Grid
    margin: int
    cell: np.ndarray
    side: np.ndarray
    area: np.ndarray
    polygon: np.ndarray
    centre: np.ndarray
    first: np.ndarray
    second: np.ndarray
    open_length: np.ndarray
    vertex: np.ndarray
    apart: np.ndarray
    distance: np.ndarray
    full: np.ndarray
    shore_piece: np.ndarray
    shore_water: np.ndarray
    shore_length: np.ndarray
    shore_apart: np.ndarray
    shore_depth: np.ndarray

    @property
    def rows(self) -> np.ndarray:
        """Row of each piece on the extended grid."""
        return self.cell // self.grid.shape[1]

    @property
    def cols(self) -> np.ndarray:
        """Column of each piece on the extended grid."""
        return self.cell % self.grid.shape[1]

    def single_piece(self) -> np.ndarray:
        """Return, for each cell of the extended grid, the piece that is all of it; -1 where there is none."""
        out = np.full(self.grid.n_cells, -1)
        alone = (self.side == 1) & (self.area == 1.0)
        out[self.cell[alone]] = np.flatnonzero(alone)
        return out

    def true_areas(self) -> np.ndarray:
        """Return the pieces' areas on the ground in m² (square units for a local domain)."""
        planar = self.area * self.grid.cell_size**2
        if self.grid.crs is None:
            return planar
        scale = areal_scale(self.grid.crs, *self.grid.from_cells(self.centre[:, 0], self.centre[:, 1]))
        # Far out a projection may have no answer: the nearest there is in size.
        known = np.isfinite(scale) & (scale > 0)
        return planar / np.where(known, scale, np.median(scale[known]))


def water_around(domain: Domain, reach: int | None = None) -> Water:
    """Return the water within `reach` cells of a domain's land, and how it touches the land.

    Land that the domain leaves out is taken for water. Barriers cut water as they cut land. Water that is
    connected to no land is left out.

    Parameters
    ----------
    domain : Domain
    reach : int, optional
        By default half the longer side of the domain's grid, at least 12 and at most 256.

    Examples
    --------
    >>> import shapely
    >>> from geobgp import Domain
    >>> domain = Domain.from_polygons(shapely.box(0, 0, 9.5, 10), cell_size=1, crs="local")
    >>> water = water_around(domain, reach=2)
    >>> inside = (water.side == 1) & (water.area < 1)
    >>> water.area[inside].tolist()
    [0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5]
    """
    if reach is None:
        reach = int(np.clip(max(domain.grid.shape) // 2, LEAST, MOST))
    margin = -(-(reach + 1) // SIDES[-1]) * SIDES[-1]
    grid = _extended(domain.grid, margin)
    rows, cols = grid.shape
    land = _land_pieces(domain, margin, cols)
    whole_land = np.zeros(grid.shape, bool)
    inner_rows, inner_cols = domain.grid.shape
    whole_land[margin : margin + inner_rows, margin : margin + inner_cols] = domain.pieces.whole
    occupied = np.zeros(grid.shape, bool)
    occupied.ravel()[land.cell] = True
    barriers = None if domain.barriers is None else domain.grid.shapes_to_cells(domain.barriers)
    fence = barrier_parts(barriers) + margin
    fenced = cells_crossed(fence, grid.shape) & ~whole_land
    along = fence[on_grid_line(fence)]
    fixed = occupied | fenced | _beside(along, grid.shape)
    level, kept = _levels(occupied, fixed, reach)

    cut = np.flatnonzero((occupied | fenced) & ~whole_land & kept)
    polygon, cell = _cut_water(cut, land, fence[~on_grid_line(fence)], cols)
    centre = shapely.get_coordinates(shapely.centroid(polygon))
    plain = np.flatnonzero(kept & (level == 0) & ~occupied & ~fenced)
    corner, side = _squares(level, kept)
    everything = np.r_[cell, plain, corner]
    order = np.lexsort((np.r_[centre[:, 0], plain * 0.0, corner * 0.0], everything))
    cell = everything[order]
    polygon = np.r_[polygon, np.full(len(plain) + len(corner), None, object)][order]
    side = np.r_[np.ones(len(everything) - len(corner), np.int64), side][order]
    divided = order < len(centre)
    area = np.where(divided, 0.0, side**2.0)
    area[divided] = shapely.area(polygon[divided])
    middle = np.column_stack([cell % cols, cell // cols]) + side[:, None] / 2
    # A barrier cuts a piece off, but where water goes on behind it its value is that of the cell's middle.
    beside = divided & occupied.ravel()[cell]
    middle[beside] = centre[order[beside]]

    near = np.flatnonzero(side == 1)
    faces = _faces(land, cell[near], polygon[near], middle[near], along, grid.shape)
    squares = _square_faces(cell, side, level, kept, cols)
    wet = [np.r_[near[a] if k < 2 else a, b] for k, (a, b) in enumerate(zip(faces.wet, squares, strict=True))]
    inside = _shores_inside(land, cell, polygon, middle, np.flatnonzero(divided), fence[~on_grid_line(fence)], cols)
    outer = (faces.shore[0], near[faces.shore[1]], *faces.shore[2:])
    shore = [np.r_[a, b] for a, b in zip(inside, outer, strict=True)]
    whole = np.zeros(grid.shape, bool)
    whole.ravel()[plain] = True
    lengths = np.bincount(wet[3], np.where(wet[3] > 0, wet[2], 0.0), (rows + 1) * (cols + 1))
    contacts = dict(zip(_WET, wet, strict=True)) | dict(zip(_SHORE, shore, strict=True))
    full = _full(whole, lengths)
    return _connected(Water(grid, margin, cell, side, area, polygon, middle, full=full, **contacts))


@dataclass(frozen=True, eq=False)
class _Land:
    """The pieces of land that are part of nodes, on the extended grid, by ascending cell."""

    piece: np.ndarray
    cell: np.ndarray
    polygon: np.ndarray


def _extended(grid: Grid, margin: int) -> Grid:
    """Extend a grid by a margin, and in the south and east to whole squares of the largest size."""
    shape = [-(-(n + 2 * margin) // SIDES[-1]) * SIDES[-1] for n in grid.shape]
    h = grid.cell_size
    affine = Affine(h, 0.0, grid.west - margin * h, 0.0, -h, grid.north + margin * h)
    return Grid((shape[0], shape[1]), affine, grid.crs)


def _land_pieces(domain: Domain, margin: int, cols: int) -> _Land:
    pieces = domain.pieces
    piece = np.flatnonzero(domain.piece_node >= 0)
    row, col = np.divmod(pieces.cell[piece], domain.grid.shape[1])
    polygon = pieces.polygon[piece]
    divided = np.flatnonzero([p is not None for p in polygon])

    def moved(uv: np.ndarray) -> np.ndarray:
        # What lies on a cell's side lies there exactly, so that no hair's breadth of water runs along it.
        near = np.rint(uv)
        return np.where(np.abs(uv - near) < ON_SIDE, near, uv) + margin

    polygon[divided] = shapely.transform(polygon[divided], moved)
    return _Land(piece, (row + margin) * cols + col + margin, polygon)


def _beside(along: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Return the cells on both sides of barriers that run along grid lines."""
    out = np.zeros(shape, bool)
    mid = (along[:, :2] + along[:, 2:]) / 2
    for step in (-0.25, 0.25):
        row, col = np.floor(mid[:, 1] + step).astype(int), np.floor(mid[:, 0] + step).astype(int)
        ok = (row >= 0) & (row < shape[0]) & (col >= 0) & (col < shape[1])
        out[row[ok], col[ok]] = True
    return out


def _levels(occupied: np.ndarray, fixed: np.ndarray, reach: int) -> tuple[np.ndarray, np.ndarray]:
    """Return which of SIDES each cell's square has (0: the cell alone), and which cells are kept."""
    away = distance_transform_cdt(~occupied, "chessboard")
    free = away if (fixed == occupied).all() else distance_transform_cdt(~fixed, "chessboard")
    level, kept = np.zeros(occupied.shape, np.int8), away <= reach
    for k, side in enumerate(SIDES, 1):
        squares = (occupied.shape[0] // side, side, occupied.shape[1] // side, side)
        merge = free.reshape(squares).min(axis=(1, 3)) >= GRADING * side
        within = merge & (away.reshape(squares).min(axis=(1, 3)) <= reach)
        level.reshape(squares)[...] = np.where(merge[:, None, :, None], k, level.reshape(squares))
        kept.reshape(squares)[...] = np.where(merge[:, None, :, None], within[:, None, :, None], kept.reshape(squares))
    return level, kept


def _squares(level: np.ndarray, kept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the north-western cell and the side of every merged square that is kept."""
    row, col = np.nonzero(kept & (level > 0))
    side = np.array((1, *SIDES))[level[row, col]]
    corner = (row % side == 0) & (col % side == 0)
    return (row * level.shape[1] + col)[corner], side[corner]


def _cut_water(cells: np.ndarray, land: _Land, fence: np.ndarray, cols: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the polygons of water in cells that land or barriers divide, and their cells."""
    row, col = np.divmod(cells, cols)
    water = shapely.box(col, row, col + 1, row + 1)
    left = np.searchsorted(land.cell, cells, "left")
    count = np.searchsorted(land.cell, cells, "right") - left
    for k in range(int(count.max(initial=0))):
        has = np.flatnonzero(count > k)
        water[has] = shapely.difference(water[has], land.polygon[left[has] + k])
    water, owner = shapely.get_parts(water, return_index=True)
    polygon, cell = split_by_lines(water, cells[owner], fence, cols)
    real = (shapely.get_type_id(polygon) == 3) & (shapely.area(polygon) > TOLERANCE**2)
    return polygon[real], cell[real]


@dataclass(frozen=True, eq=False)
class _Faces:
    """Contacts across grid lines: of water with water, and of land with water."""

    wet: tuple[np.ndarray, ...]
    shore: tuple[np.ndarray, ...]


def _faces(
    land: _Land, cell: np.ndarray, polygon: np.ndarray, middle: np.ndarray, along: np.ndarray, shape: tuple[int, int]
) -> _Faces:
    """Find the contacts across grid lines of pieces that are no larger than a cell."""
    wet = np.zeros(shape, bool)
    wet.ravel()[cell] = True
    edge = np.flatnonzero(binary_dilation(wet, _SQUARE).ravel()[land.cell])
    n = len(edge)
    cells = np.r_[land.cell[edge], cell]
    centre = np.column_stack([cells % shape[1], cells // shape[1]]) + 0.5
    centre[n:] = middle
    first, second, length, vertex = find_contacts(cells, np.r_[land.polygon[edge], polygon], along, shape)
    axis = np.where(cells[second] - cells[first] == 1, 0, 1)
    line = np.where(axis == 0, cells[second] % shape[1], cells[second] // shape[1])
    before, after = line - centre[first, axis], centre[second, axis] - line
    apart = np.ones(len(first))
    both = (first >= n) & (second >= n)
    out = (first - n, second - n, length, vertex, apart, before + after)
    mixed = (first >= n) != (second >= n)
    dry = np.where(first < n, first, second)[mixed]
    shore = (np.where(first < n, second, first) - n, length, apart, np.where(first < n, after, before))
    return _Faces(tuple(x[both] for x in out), (land.piece[edge[dry]], *(x[mixed] for x in shore)))


def _square_faces(
    cell: np.ndarray, side: np.ndarray, level: np.ndarray, kept: np.ndarray, cols: int
) -> tuple[np.ndarray, ...]:
    """Find the contacts of merged squares with each other and with whole cells; all their faces are open."""
    owner = np.full(level.shape, -1)
    owner.ravel()[cell[side == 1]] = np.flatnonzero(side == 1)
    row, col = np.nonzero(kept & (level > 0))
    size = np.array((1, *SIDES))[level[row, col]]
    corner = (row // size * size) * cols + col // size * size
    merged = np.flatnonzero(side > 1)
    owner[row, col] = merged[np.searchsorted(cell[merged], corner)]
    pairs = []
    for a, b, la, lb in (
        (owner[:, :-1], owner[:, 1:], level[:, :-1], level[:, 1:]),
        (owner[:-1], owner[1:], level[:-1], level[1:]),
    ):
        touch = (a != b) & (a >= 0) & (b >= 0) & ((la > 0) | (lb > 0))
        pairs.append(a[touch] * np.int64(len(cell)) + b[touch])
    pair, length = np.unique(np.concatenate(pairs), return_counts=True)
    first, second = np.divmod(pair, len(cell))
    apart = (side[first] + side[second]) / 2
    return first, second, length.astype(float), np.zeros(len(first), np.int64), apart, apart


def _shores_inside(
    land: _Land,
    cell: np.ndarray,
    polygon: np.ndarray,
    middle: np.ndarray,
    divided: np.ndarray,
    fence: np.ndarray,
    cols: int,
) -> tuple[np.ndarray, ...]:
    """Find the shores between land and water of the same cell."""
    left = np.searchsorted(land.cell, cell[divided], "left")
    count = np.searchsorted(land.cell, cell[divided], "right") - left
    water = np.repeat(divided, count)
    dry = np.repeat(left - np.cumsum(count) + count, count) + np.arange(len(water))
    shore = shapely.intersection(land.polygon[dry], polygon[water])
    if len(fence):
        # Beside a barrier, shores coincide only up to rounding; one that runs along a shore closes it.
        tree = shapely.STRtree(shapely.linestrings(fence.reshape(-1, 2, 2)))
        which, found = tree.query(land.polygon[dry])
        hit, group = np.unique(which, return_inverse=True)
        walls = shapely.buffer(shapely.multilinestrings(tree.geometries[found], indices=group), NEAR_GRID_LINE)
        shore[hit] = shapely.intersection(land.polygon[dry[hit]], polygon[water[hit]], grid_size=PRECISION)
        shore[hit] = shapely.difference(shore[hit], walls)
    parts, owner = shapely.get_parts(shore, return_index=True)
    length = np.bincount(owner, shapely.length(parts) * (shapely.get_type_id(parts) == 1), len(shore))
    touch = np.flatnonzero(length > TOLERANCE)
    dry, water, shore = dry[touch], water[touch], shore[touch]
    depth = shapely.distance(shapely.points(middle[water]), shore)
    return land.piece[dry], water, length[touch], np.zeros(len(touch)), depth


def _full(whole: np.ndarray, length: np.ndarray) -> np.ndarray:
    """Return the corners whose four cells are whole and open to each other, given the open lengths there."""
    padded = np.pad(whole, 1)
    full = padded[:-1, :-1] & padded[:-1, 1:] & padded[1:, :-1] & padded[1:, 1:]
    return full & (length.reshape(full.shape) > 2 - 1e-6)


def _connected(water: Water) -> Water:
    """Leave out water from which no land can be reached."""
    w = len(water.cell)
    links = np.r_[water.first, water.shore_water], np.r_[water.second, np.full(len(water.shore_water), w)]
    graph = sp.coo_array((np.ones(len(links[0])), links), shape=(w + 1, w + 1))
    label = connected_components(graph, directed=False)[1]
    keep = label[:w] == label[w]
    if keep.all():
        return water
    number = np.cumsum(keep) - 1
    stays = keep[water.first]
    return replace(
        water,
        **{name: getattr(water, name)[keep] for name in ("cell", "side", "area", "polygon", "centre")},
        first=number[water.first[stays]],
        second=number[water.second[stays]],
        **{name: getattr(water, name)[stays] for name in ("open_length", "vertex", "apart", "distance")},
        shore_water=number[water.shore_water],
    )
