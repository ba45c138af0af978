"""Pieces: the connected parts of land within each cell, cut exactly along the boundary."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import shapely
from scipy.sparse.csgraph import connected_components

# -- Pieces: how polygons and lines cut the cells of a grid, exactly -----------------------------------------
# Everything here is in units of cells: u eastward, v southward, cell (row, col) the unit square at (col, row).


#: Coordinates are rounded to this fraction of a cell, so that slivers of rounding errors vanish.
PRECISION = 1e-10
#: An edge this close to a cell's side lies on it: well under PRECISION, well over rounding errors.
ON_SIDE = 2e-11
#: A barrier this close to a grid line runs along it.
NEAR_GRID_LINE = 1e-6
#: The land of a cell is clipped rightly when its area is right to this share of the cell.
CLIPPED = 1e-9
#: Contacts shorter than this share of a cell are none.
TOLERANCE = 1e-5


@dataclass(frozen=True, eq=False)
class Pieces:
    """Connected pieces of land within cells, and how they touch.

    Attributes
    ----------
    coverage : (rows, cols) float
        Land fraction of each cell.
    whole : (rows, cols) bool
        Cells that are land throughout and that nothing cuts.
    cell : (p,) int
        Flat index of each piece's cell, ascending.
    area : (p,) float
        Area of each piece; 1 is a whole cell.
    polygon : (p,) object
        The piece's polygon; None for whole cells.
    first, second : (q,) int
        Pieces that touch across half of a shared face, `first` west or north of `second`.
    open_length : (q,) float
        Length over which they touch, at most a half.
    vertex : (q,) int
        Flat index, on the (rows + 1, cols + 1) lattice of cell corners, of the corner at which that half
        ends.
    """

    coverage: np.ndarray
    whole: np.ndarray
    cell: np.ndarray
    area: np.ndarray
    polygon: np.ndarray
    first: np.ndarray
    second: np.ndarray
    open_length: np.ndarray
    vertex: np.ndarray


def ring_segments(geometry: shapely.Geometry) -> np.ndarray:
    """Return the boundary of polygons as (k, 4) segments u0, v0, u1, v1, land always on the same side."""
    polygons = shapely.get_parts(geometry)
    rings, owner = shapely.get_rings(polygons, return_index=True)
    if len(rings) == 0:
        return np.empty((0, 4))
    exterior = np.r_[True, owner[1:] != owner[:-1]]
    segments, ring = _segments(rings)
    turned = (shapely.is_ccw(rings) != exterior)[ring]
    segments[turned] = segments[turned][:, [2, 3, 0, 1]]
    return segments


def line_segments(lines: shapely.Geometry | None) -> np.ndarray:
    """Return lines as (k, 4) segments u0, v0, u1, v1."""
    if lines is None or shapely.is_empty(lines):
        return np.empty((0, 4))
    return _segments(shapely.get_parts(lines))[0]


def _segments(lines: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    coords, index = shapely.get_coordinates(lines, return_index=True)
    same = index[1:] == index[:-1]
    segments = np.hstack([coords[:-1], coords[1:]])[same]
    return segments, index[1:][same]


def split_at_grid_lines(segments: np.ndarray, snap: float = PRECISION) -> np.ndarray:
    """Cut segments wherever they cross an integer u or v; ends within `snap` of a grid line move to it."""
    return split_with_owner(segments, snap)[0]


def split_with_owner(segments: np.ndarray, snap: float = PRECISION) -> tuple[np.ndarray, np.ndarray]:
    """Return what `split_at_grid_lines` does, and which segment each part is of."""
    k = len(segments)
    owner = [np.arange(k), np.arange(k)]
    param = [np.zeros(k), np.ones(k)]
    for axis in (0, 1):
        a, b = segments[:, axis], segments[:, axis + 2]
        low, high = np.minimum(a, b), np.maximum(a, b)
        start = np.floor(low) + 1
        count = np.maximum(np.ceil(high) - start, 0).astype(np.int64)
        rep = np.repeat(np.arange(k), count)
        step = np.arange(len(rep)) - np.repeat(np.cumsum(count) - count, count)
        line = start[rep] + step
        owner.append(rep)
        param.append((line - a[rep]) / (b[rep] - a[rep]))
    own, t = np.concatenate(owner), np.concatenate(param)
    order = np.lexsort((t, own))
    own, t = own[order], t[order]
    keep = own[1:] == own[:-1]
    seg = segments[own[:-1][keep]]
    t0, t1 = t[:-1][keep][:, None], t[1:][keep][:, None]
    delta = seg[:, 2:] - seg[:, :2]
    ends = np.hstack([seg[:, :2] + t0 * delta, seg[:, :2] + t1 * delta])
    near = np.rint(ends)
    ends = np.where(np.abs(ends - near) < snap, near, ends)
    long = np.abs(ends[:, :2] - ends[:, 2:]).max(axis=1) > PRECISION
    return ends[long], own[:-1][keep][long]


def cover(parts: np.ndarray, shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Return the exact covered fraction of every cell, and which cells the outline passes through.

    Each part of the outline adds, to its own cell, the area between itself and the cell's eastern side, and
    its height to every cell east of it (Green's theorem, row by row); the cost follows the outline's length.
    """
    rows, cols = shape
    mid = (parts[:, :2] + parts[:, 2:]) / 2
    height = parts[:, 3] - parts[:, 1]
    col = np.clip(np.floor(mid[:, 0]).astype(np.int64), 0, cols - 1)
    row = np.clip(np.floor(mid[:, 1]).astype(np.int64), 0, rows - 1)
    size = rows * (cols + 1)
    at = row * (cols + 1) + col
    own = np.bincount(at, height * (col + 1 - mid[:, 0]), size)
    carry = np.bincount(at + 1, height, size)
    covered = (own.reshape(rows, cols + 1) + np.cumsum(carry.reshape(rows, cols + 1), axis=1))[:, :cols]
    touched = cells_crossed(parts, shape)
    return np.where(touched, np.clip(-covered, 0.0, 1.0), np.rint(-covered)), touched


def cells_crossed(parts: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Return the cells whose inside is crossed; parts that run along a grid line cross none."""
    inside = ~on_grid_line(parts)
    mid = (parts[inside, :2] + parts[inside, 2:]) / 2
    mask = np.zeros(shape, bool)
    row, col = np.floor(mid[:, 1]).astype(np.int64), np.floor(mid[:, 0]).astype(np.int64)
    ok = (row >= 0) & (row < shape[0]) & (col >= 0) & (col < shape[1])
    mask[row[ok], col[ok]] = True
    return mask


def on_grid_line(parts: np.ndarray) -> np.ndarray:
    """Tell which parts run along a grid line."""
    upright = (parts[:, 0] == parts[:, 2]) & (parts[:, 0] == np.rint(parts[:, 0]))
    level = (parts[:, 1] == parts[:, 3]) & (parts[:, 1] == np.rint(parts[:, 1]))
    return upright | level


def cut(geometry: shapely.Geometry, barriers: shapely.Geometry | None, shape: tuple[int, int]) -> Pieces:
    """Cut land (in units of cells) into its connected pieces within cells, and find how they touch."""
    cols = shape[1]
    coverage, shore = cover(split_at_grid_lines(ring_segments(geometry)), shape)
    fence = barrier_parts(barriers)
    fenced = cells_crossed(fence, shape) & (coverage > 0)
    divided = shore | fenced
    whole = (coverage == 1) & ~divided
    cells = np.flatnonzero(divided & (coverage > 0))
    polygons, owner = _clip_to_cells(geometry, cells, coverage.ravel()[cells], cols)
    polygons, home = split_by_lines(polygons, cells[owner], fence[~on_grid_line(fence)], cols)
    area = shapely.area(polygons)
    keep = (shapely.get_type_id(polygons) == 3) & (area > PRECISION * TOLERANCE)
    polygons, area = polygons[keep], area[keep]
    whole_cells = np.flatnonzero(whole)
    cell = np.r_[whole_cells, home[keep]]
    centre = shapely.get_coordinates(shapely.centroid(polygons))
    order = np.lexsort(
        (np.r_[np.zeros(len(whole_cells)), centre[:, 1]], np.r_[np.zeros(len(whole_cells)), centre[:, 0]], cell)
    )
    polygon = np.concatenate([np.full(len(whole_cells), None, object), polygons])[order]
    area = np.r_[np.ones(len(whole_cells)), area][order]
    cell = cell[order]
    contacts = find_contacts(cell, polygon, fence[on_grid_line(fence)], shape)
    return Pieces(coverage, whole, cell, area, polygon, *contacts)


def join_small(pieces: Pieces, min_coverage: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return each piece's node (-1: left out), each node's main piece, and which pieces are left out.

    Groups of pieces under `min_coverage` in all join the largest group they touch, until none is left that
    touches another; those still too small are specks by themselves.
    """
    n = len(pieces.cell)
    group = np.arange(n)
    while True:
        total = np.bincount(group, pieces.area, n)
        first, second = group[pieces.first], group[pieces.second]
        a, b = np.r_[first, second], np.r_[second, first]
        ask = (a != b) & (total[a] < min_coverage)
        if not ask.any():
            break
        # Places by size, equal ones by index, so that following ever larger groups runs in no circle.
        by_size = np.lexsort((-np.arange(n), total))
        place = np.empty(n, np.int64)
        place[by_size] = np.arange(n)
        best = np.full(n, -1)
        np.maximum.at(best, a[ask], place[b[ask]])
        follow = best > place
        goal = np.where(follow, by_size[best], np.arange(n))
        while (goal[goal] != goal).any():
            goal = goal[goal]
        group = goal[group]
    root = np.flatnonzero((group == np.arange(n)) & (total >= min_coverage))
    node_of_root = np.full(n, -1)
    node_of_root[root] = np.arange(len(root))
    node = node_of_root[group]
    return node, root, node < 0


def barrier_parts(barriers: shapely.Geometry | None) -> np.ndarray:
    """Return barriers as segments cut at grid lines; those near a grid line run along it."""
    return split_at_grid_lines(_stretched(line_segments(barriers)), snap=NEAR_GRID_LINE)


def _stretched(segments: np.ndarray, by: float = 10 * NEAR_GRID_LINE) -> np.ndarray:
    """Lengthen each segment a little at both ends, so that a line drawn to the shore reaches it."""
    if len(segments) == 0:
        return segments
    delta = segments[:, 2:] - segments[:, :2]
    length = np.hypot(*delta.T)
    unit = delta / np.where(length > 0, length, 1.0)[:, None] * by
    return np.hstack([segments[:, :2] - unit, segments[:, 2:] + unit])[length > 0]


def _clip_to_cells(
    geometry: shapely.Geometry, cells: np.ndarray, coverage: np.ndarray, cols: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the pieces of polygons in cells, and the position in `cells` that each belongs to.

    GEOS clips by a rectangle several times faster than it intersects, but does not promise to be right where
    shores run along its sides. Cells whose pieces are invalid or do not add up to `coverage` are intersected.
    """
    tiles = _tiles(shapely.get_parts(geometry))
    row, col = cells // cols, cells % cols
    # A tile that only touches a cell's side has no land in it.
    inner = shapely.box(col + PRECISION, row + PRECISION, col + 1 - PRECISION, row + 1 - PRECISION)
    owner, tile = shapely.STRtree(tiles).query(inner)
    west, north = col[owner], row[owner]
    clipped = _rounded(_clip(tiles[tile], np.column_stack([west, north, west + 1, north + 1])))
    land = np.bincount(owner, shapely.area(clipped), len(cells))
    doubtful = np.abs(land - coverage) > CLIPPED
    doubtful[owner[~shapely.is_valid(clipped)]] = True
    again = doubtful[owner]
    r, c = row[owner[again]], col[owner[again]]
    clipped[again] = shapely.intersection(tiles[tile[again]], shapely.box(c, r, c + 1, r + 1))
    pieces, index = shapely.get_parts(clipped, return_index=True)
    return pieces, owner[index]


def _clip(shapes: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """Clip each shape by its own rectangle (west, north, east, south)."""
    each = zip(shapes, boxes.astype(float).tolist(), strict=True)
    out = np.empty(len(shapes), object)
    out[:] = [shapely.clip_by_rect(shape, *box) for shape, box in each]
    return out


def _rounded(shapes: np.ndarray) -> np.ndarray:
    """Round coordinates to multiples of PRECISION."""
    return shapely.transform(shapes, lambda uv: np.rint(uv / PRECISION) / (1 / PRECISION))


def on_lattice(geometry: shapely.Geometry) -> shapely.Geometry:
    """Return polygons with coordinates rounded to PRECISION, and valid: most are so by rounding alone."""
    parts = _rounded(shapely.get_parts(geometry))
    try:  # a part or a hole may come down to a point, which is no ring
        parts = shapely.remove_repeated_points(parts[shapely.area(parts) > 0])
    except shapely.GEOSException:
        return _snapped(geometry)
    parts = parts[~shapely.is_empty(parts)]
    whole = parts[0] if len(parts) == 1 else shapely.multipolygons(parts)
    return whole if shapely.is_valid(whole) else _snapped(geometry)


def _snapped(geometry: shapely.Geometry) -> shapely.Geometry:
    with np.errstate(all="ignore"):  # GEOS divides by slivers that are next to nothing, and mends it
        return shapely.set_precision(geometry, PRECISION)


def _tiles(polygons: np.ndarray, most: int = 64) -> np.ndarray:
    """Cut polygons with many vertices along grid lines, halving them until they have few, or are one cell."""
    done = []
    while len(polygons):
        bounds = shapely.bounds(polygons)
        low, high = np.floor(bounds[:, :2]), np.ceil(bounds[:, 2:])
        extent = high - low
        large = (shapely.get_num_coordinates(polygons) > most) & (extent.max(axis=1) > 1)
        done.append(polygons[~large])
        polygons, low, high, extent = polygons[large], low[large], high[large], extent[large]
        wide = extent[:, 0] > extent[:, 1]
        middle = np.floor((low + high) / 2)
        first, second = high.copy(), low.copy()
        axis = np.where(wide, 0, 1)
        at = np.arange(len(polygons)), axis
        first[at] = second[at] = middle[at]
        boxes = [np.hstack(corners) for corners in ((low, first), (second, high))]
        halves = [_clip(polygons, box) for box in boxes]
        wrong = np.abs(shapely.area(halves).sum(axis=0) - shapely.area(polygons)) > CLIPPED
        wrong |= ~shapely.is_valid(halves).all(axis=0)
        for half, box in zip(halves, boxes, strict=True):
            half[wrong] = shapely.intersection(polygons[wrong], shapely.box(*box[wrong].T))
        polygons = shapely.get_parts(np.concatenate(halves))
        polygons = polygons[shapely.get_type_id(polygons) == 3]
    return np.concatenate([np.empty(0, object), *done])


def split_by_lines(land: np.ndarray, cell: np.ndarray, fence: np.ndarray, cols: int) -> tuple[np.ndarray, np.ndarray]:
    """Split pieces of land along the lines in their cells, and return them so; loose ends split nothing."""
    if len(fence) == 0 or len(land) == 0:
        return land, cell
    mid = (fence[:, :2] + fence[:, 2:]) / 2
    at = np.floor(mid[:, 1]).astype(np.int64) * cols + np.floor(mid[:, 0]).astype(np.int64)
    inside = (mid[:, 0] >= 0) & (mid[:, 0] < cols) & (mid[:, 1] >= 0)
    order = np.argsort(at[inside], kind="stable")
    fenced, group = np.unique(at[inside][order], return_inverse=True)
    lines = shapely.linestrings(fence[inside][order].reshape(-1, 2, 2))
    lines = shapely.multilinestrings(lines, indices=group)
    cut = np.isin(cell, fenced)
    mine, crossing = land[cut], lines[np.searchsorted(fenced, cell[cut])]
    noded = shapely.union(shapely.boundary(mine), crossing)
    faces, owner = shapely.get_parts(shapely.polygonize(noded[:, None]), return_index=True)
    on_land = shapely.covers(mine[owner], shapely.point_on_surface(faces))
    faces, owner = faces[on_land], owner[on_land]
    return np.concatenate([land[~cut], faces]), np.concatenate([cell[~cut], cell[cut][owner]])


def find_contacts(
    cell: np.ndarray, polygon: np.ndarray, fence: np.ndarray, shape: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return first, second, open_length, vertex of all half-faces over which pieces touch."""
    cols = shape[1]
    side = _side_intervals(cell, polygon, cols)
    tables = []
    for axis in (0, 1):
        step = 1 if axis == 0 else cols
        before_piece, before_low, before_high = side[2 * axis]
        after_piece, after_low, after_high = side[2 * axis + 1]
        # A face is named by the cell on its eastern or southern side.
        before_face = cell[before_piece] + step
        after_face = cell[after_piece]
        if axis == 0:
            inner = before_face % cols != 0
            before_piece, before_low, before_high, before_face = (
                x[inner] for x in (before_piece, before_low, before_high, before_face)
            )
        blocked = _blocked(fence, axis, cols)
        before_piece, before_low, before_high, before_face = _subtract(
            (before_piece, before_low, before_high, before_face), blocked
        )
        order = np.argsort(after_face, kind="stable")
        after_piece, after_low, after_high, after_face = (
            x[order] for x in (after_piece, after_low, after_high, after_face)
        )
        left = np.searchsorted(after_face, before_face, "left")
        count = np.searchsorted(after_face, before_face, "right") - left
        i = np.repeat(np.arange(len(before_face)), count)
        j = left[i] + np.arange(len(i)) - np.repeat(np.cumsum(count) - count, count)
        low = np.maximum(before_low[i], after_low[j])
        high = np.minimum(before_high[i], after_high[j])
        face = before_face[i]
        row, col = face // cols, face % cols
        for half, (start, end) in enumerate(((0.0, 0.5), (0.5, 1.0))):
            length = np.minimum(high, end) - np.maximum(low, start)
            ok = length > TOLERANCE
            vertex_row = row + (half if axis == 0 else 0)
            vertex_col = col + (half if axis == 1 else 0)
            tables.append(
                (before_piece[i][ok], after_piece[j][ok], length[ok], (vertex_row * (cols + 1) + vertex_col)[ok])
            )
    first, second, length, vertex = (np.concatenate(parts) for parts in zip(*tables, strict=True))
    order = np.lexsort((second, first, vertex))
    return first[order], second[order], length[order], vertex[order]


def _side_intervals(
    cell: np.ndarray, polygon: np.ndarray, cols: int
) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Return (piece, low, high) along the east, west, south and north sides of each piece's cell."""
    divided = np.array([p is not None for p in polygon], bool)
    whole = np.flatnonzero(~divided)
    cut_pieces = np.flatnonzero(divided)
    segments, ring = _segments(shapely.get_exterior_ring(polygon[cut_pieces]))
    piece = cut_pieces[ring]
    u = segments[:, [0, 2]] - (cell[piece] % cols)[:, None]
    v = segments[:, [1, 3]] - (cell[piece] // cols)[:, None]
    out = []
    for along, across, at in ((v, u, 1.0), (v, u, 0.0), (u, v, 1.0), (u, v, 0.0)):
        on = np.abs(across - at).max(axis=1) < ON_SIDE if len(across) else np.zeros(0, bool)
        low, high = along[on].min(axis=1), along[on].max(axis=1)
        out.append((np.r_[whole, piece[on]], np.r_[np.zeros(len(whole)), low], np.r_[np.ones(len(whole)), high]))
    return out


def _blocked(fence: np.ndarray, axis: int, cols: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (face, low, high) of the parts of fences that lie on the faces across `axis`."""
    across, along = (0, 1) if axis == 0 else (1, 0)
    part = fence[(fence[:, across] == fence[:, across + 2])]
    low = np.minimum(part[:, along], part[:, along + 2])
    high = np.maximum(part[:, along], part[:, along + 2])
    base = np.floor((low + high) / 2)
    line = part[:, across]
    row, col = (base, line) if axis == 0 else (line, base)
    ok = (row >= 0) & (col >= 0) & (col < cols)
    face = (row * cols + col).astype(np.int64)
    return face[ok], (low - base)[ok], (high - base)[ok]


def _subtract(
    intervals: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray], blocked: tuple[np.ndarray, np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Take blocked stretches out of (piece, low, high, face) intervals, one of each face a turn."""
    piece, low, high, face = intervals
    bface, blow, bhigh = blocked
    order = np.argsort(bface, kind="stable")
    bface, blow, bhigh = bface[order], blow[order], bhigh[order]
    turn = np.arange(len(bface)) - np.searchsorted(bface, bface, "left")
    for k in range(int(turn.max(initial=-1)) + 1):
        f, lo, hi = bface[turn == k], blow[turn == k], bhigh[turn == k]
        at = np.minimum(np.searchsorted(f, face), len(f) - 1)
        hit = f[at] == face
        head = np.where(hit, np.minimum(high, lo[at]), high)
        tail = np.where(hit, np.maximum(low, hi[at]), high)
        piece, face = np.r_[piece, piece[hit]], np.r_[face, face[hit]]
        low, high = np.r_[low, tail[hit]], np.r_[head, high[hit]]
        keep = high - low > TOLERANCE
        piece, low, high, face = piece[keep], low[keep], high[keep], face[keep]
    return piece, low, high, face


# -- Corners: the four cells around each corner of the grid, and which of their land hangs together ----------


@dataclass(frozen=True, eq=False)
class Corners:
    """The 2 x 2 cells around every corner of the grid, as bilinear interpolation needs them.

    A corner amid four whole cells that are open to each other is inland. Around the others, pieces of land
    form groups: those that touch, directly or through each other, within the four cells.

    Attributes
    ----------
    inland : (rows + 1, cols + 1) bool
        Corners amid four whole cells that are open to each other.
    key : (k,) int
        corner * number of pieces + piece of all members of groups, ascending.
    group : (k,) int
        The group of each.
    member : (k,) int
        Pieces, group by group.
    start : (groups + 1,) int
        Where each group begins in `member`.
    share : (k,) float
        Each member's share of the land that its cell has in its group.
    """

    pieces: Pieces
    single_piece: np.ndarray
    inland: np.ndarray
    key: np.ndarray
    group: np.ndarray
    member: np.ndarray
    start: np.ndarray
    share: np.ndarray

    @classmethod
    def of(cls, pieces: Pieces, single_piece: np.ndarray) -> Corners:
        """Group the pieces around each corner; `single_piece` is the piece of each whole cell."""
        whole = np.pad(pieces.whole, 1)
        inland = whole[:-1, :-1] & whole[:-1, 1:] & whole[1:, :-1] & whole[1:, 1:]
        length = np.bincount(pieces.vertex, pieces.open_length, inland.size).reshape(inland.shape)
        inland &= length > 2 - 1e-6
        inland.setflags(write=False)
        base = np.int64(len(pieces.cell))
        ragged = ~inland.ravel()[pieces.vertex]
        first = pieces.vertex[ragged] * base + pieces.first[ragged]
        second = pieces.vertex[ragged] * base + pieces.second[ragged]
        key = np.unique(np.r_[first, second])
        a, b = np.searchsorted(key, first), np.searchsorted(key, second)
        graph = sp.coo_array((np.ones(len(a)), (a, b)), shape=(len(key), len(key)))
        group = connected_components(graph, directed=False)[1] if len(key) else np.empty(0, np.int64)
        order = np.argsort(group, kind="stable")
        member = (key % base)[order]
        start = np.searchsorted(group[order], np.arange(group.max(initial=-1) + 2))
        _, cell = np.unique(group[order] * np.int64(whole.size) + pieces.cell[member], return_inverse=True)
        share = pieces.area[member] / np.bincount(cell, pieces.area[member])[cell] if len(cell) else np.empty(0)
        return cls(pieces, single_piece, inland, key, group, member, start, share)

    def weights(self, own: np.ndarray, u: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return (row, piece, weight) of bilinear interpolation at places on the pieces `own`.

        Only land in one group with the own piece takes part, so the weights may sum to less than one. (u, v)
        are in units of cells.
        """
        cols = self.pieces.whole.shape[1]
        vertex_col, vertex_row = np.floor(u + 0.5), np.floor(v + 0.5)
        fu, fv = u + 0.5 - vertex_col, v + 0.5 - vertex_row
        vertex = (vertex_row * (cols + 1) + vertex_col).astype(np.int64)
        inland = self.inland.ravel()[vertex]
        out = []
        simple = np.flatnonzero(inland)
        for dr, wv in ((-1, 1 - fv), (0, fv)):
            for dc, wu in ((-1, 1 - fu), (0, fu)):
                cell = ((vertex_row + dr) * cols + vertex_col + dc).astype(np.int64)
                out.append((simple, self.single_piece[cell[simple]], (wv * wu)[simple]))
        rest = np.flatnonzero(~inland)
        group = self._group_of(vertex[rest], own[rest])
        lone = rest[group < 0]
        out.append((lone, own[lone], np.ones(len(lone))))
        rest, group = rest[group >= 0], group[group >= 0]
        count = self.start[group + 1] - self.start[group]
        row = np.repeat(rest, count)
        at = np.repeat(self.start[group] - (np.cumsum(count) - count), count) + np.arange(len(row))
        piece = self.member[at]
        cell = self.pieces.cell[piece]
        wu = np.where(cell % cols == vertex_col[row], fu[row], 1 - fu[row])
        wv = np.where(cell // cols == vertex_row[row], fv[row], 1 - fv[row])
        # Pieces of one cell share its weight by area, but a place's own cell counts for its own piece alone.
        mine = cell == self.pieces.cell[own[row]]
        weight = wu * wv * np.where(mine, piece == own[row], self.share[at])
        out.append((row, piece, weight))
        row, piece, weight = (np.concatenate(x) for x in zip(*out, strict=True))
        return row, piece, weight

    def _group_of(self, vertex: np.ndarray, piece: np.ndarray) -> np.ndarray:
        """Return the group of pieces around corners; -1 for a piece that touches nothing there."""
        if len(self.key) == 0:
            return np.full(len(vertex), -1)
        wanted = vertex * np.int64(len(self.pieces.cell)) + piece
        at = np.minimum(np.searchsorted(self.key, wanted), len(self.key) - 1)
        return np.where(self.key[at] == wanted, self.group[at], -1)
