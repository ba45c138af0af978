"""The Laplacian on a domain that knows where the boundary cuts its cells, under Dirichlet or Neumann conditions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal, get_args

import numpy as np
import scipy.sparse as sp
import shapely

from geobgp.errors import DomainError, option
from geobgp.land.domain import Domain
from geobgp.land.pieces import PRECISION, Pieces, line_segments, ring_segments
from geobgp.land.water import Water
from geobgp.validation import DOMAIN, choice, real, validated

# -- Finite volumes on land and permeable water: masses and conductances under Neumann conditions ------------


#: Land and water within one cell are held to be at least this fraction of a cell apart.
_NEAREST_WATER = 0.05
#: Largest conductance between land and water of one cell, by the smaller of their areas in cells.
_STIFFEST = 100.0
#: Pieces of water under this share of a cell carry no mass; along channels narrower than it nothing flows.
_LEAST_WATER = 0.1


@dataclass(frozen=True, eq=False)
class Volumes:
    """The unknowns (nodes, and then pieces of water where it can be passed) and what flows between them.

    Attributes
    ----------
    stiffness : (u, u) csr_array
        Graph Laplacian of the conductances; rows sum to zero.
    mass : (u,) array
        True ground areas.
    cells : (u, 2) int array
        Row and column of each unknown's cell.
    sides : (u,) int array
        Cells along the side of the square that each unknown fills.
    """

    stiffness: sp.csr_array
    mass: np.ndarray
    cells: np.ndarray
    sides: np.ndarray


def finite_volumes(domain: Domain, permeability: float) -> Volumes:
    """Return the masses and conductances of a domain with water of permeability ρ; 0 leaves the water out.

    The conductance over a contact is its open length / distance of the centres; see `_water_links` for water.
    Small pieces of water carry no mass of their own.
    """
    p = domain.pieces
    size = len(p.cell)
    links = [_links(p, p.open_length, domain.inland_corners, domain._single_piece)]
    if domain.bridges is not None:
        b = domain.bridges
        links.append((domain.main_piece[b.first], domain.main_piece[b.second], b.conductance))
    keep, mass = domain.main_piece, domain.node_areas
    cells, sides = np.column_stack([domain.node_rows, domain.node_cols]), np.ones(domain.n_nodes, np.int64)
    if permeability > 0:
        water = domain.water
        (first, second, weight), (land, wet, across) = _water_links(domain, permeability)
        links += [(first + size, second + size, weight), (land, wet + size, across)]
        own = np.flatnonzero(water.area >= _LEAST_WATER)
        keep, mass = np.r_[keep, size + own], np.r_[mass, _water_mass(water)[own]]
        size += len(water.cell)
        cells = np.vstack([cells + water.margin, np.column_stack([water.rows, water.cols])[own]])
        sides = np.r_[sides, water.side[own]]
    first, second, weight = (np.concatenate(x) for x in zip(*links, strict=True))
    return Volumes(_eliminate(_graph_laplacian(first, second, weight, size), keep), mass, cells, sides)


def _water_mass(water: Water) -> np.ndarray:
    """Return the ground areas of pieces of water, those of small ones shared out to the water they touch."""
    area, small = water.true_areas(), water.area < _LEAST_WATER
    a, b = np.r_[water.first, water.second], np.r_[water.second, water.first]
    gives = small[a] & ~small[b]
    a, b, length = a[gives], b[gives], np.r_[water.open_length, water.open_length][gives]
    total = np.bincount(a, length, len(area))
    return np.where(small, 0.0, area) + np.bincount(b, length * area[a] / total[a], len(area))


def _graph_laplacian(first: np.ndarray, second: np.ndarray, weight: np.ndarray, n: int) -> sp.csr_array:
    """Return the stiffness matrix of conductances between unknowns."""
    rows, cols = np.r_[first, second], np.r_[second, first]
    links = sp.coo_array((np.r_[weight, weight], (rows, cols)), shape=(n, n)).tocsr()
    links.eliminate_zeros()
    return sp.csr_array(sp.diags_array(np.asarray(links.sum(axis=1)).ravel()) - links)


def _eliminate(stiffness: sp.csr_array, keep: np.ndarray) -> sp.csr_array:
    """Return the stiffness between the unknowns `keep` when the others carry no mass: the Schur complement.

    Exact: pieces that joined a neighbour still conduct between all that they touch. Each turn takes out
    pieces that do not touch each other, so that only a diagonal is inverted.
    """
    n = stiffness.shape[0]
    going = np.ones(n, bool)
    going[keep] = False
    while going.any():
        links = stiffness.tocoo()
        i, j = links.coords
        between = going[i] & going[j] & (j < i)
        now = going.copy()
        now[i[between]] = False
        out = np.flatnonzero(now)
        pivot = stiffness.diagonal()[out]
        # A piece that touches nothing was left out of the domain.
        inverse = sp.diags_array(np.where(pivot > 0, 1 / np.where(pivot > 0, pivot, 1.0), 0.0))
        columns = sp.csr_array(stiffness[:, out])
        stiffness = sp.csr_array(stiffness - columns @ inverse @ columns.T)
        stay = sp.diags_array(np.where(now, 0.0, 1.0))
        stiffness = sp.csr_array(stay @ stiffness @ stay)
        stiffness.eliminate_zeros()
        going &= ~now
    return sp.csr_array(stiffness[keep][:, keep])


def _links(
    faces: Pieces | Water, weight: np.ndarray, full: np.ndarray, single: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (first, second, conductance) of contacts: nine points at full corners, `weight` elsewhere."""
    row, col = np.nonzero(full)
    cols = full.shape[1] - 1

    def piece(dr: int, dc: int) -> np.ndarray:
        return single[(row + dr) * cols + col + dc]

    diagonal = np.full(len(row), 1 / 6)
    return (
        np.r_[faces.first, piece(-1, -1), piece(-1, 0)],
        np.r_[faces.second, piece(0, 0), piece(0, -1)],
        np.r_[np.where(full.ravel()[faces.vertex], 1 / 3, weight), diagonal, diagonal],
    )


def _water_links(domain: Domain, permeability: float) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Return the links between pieces of water, and from pieces of land to pieces of water.

    The conductance over a contact of length L is L / (D + (1/ρ² - 1) W), D the distance of the cells' centres
    and W the part of the way between them, or between their water's centroids, that leads through water. So
    ρ = 1 gives the grid without shores, and in one dimension every ρ gives the exact resistance, wherever in
    its cell the shore lies.
    """
    water, rho2 = domain.water, permeability**2
    small = water.area < _LEAST_WATER
    way = rho2 * water.apart + (1 - rho2) * water.distance
    # Along a river much narrower than a cell next to nothing flows; left out, small pieces form no chains.
    flows = ~(small[water.first] & small[water.second]) | (water.open_length > _LEAST_WATER)
    weight = np.where(flows, water.open_length / way, 0.0)
    first, second, weight = _links(water, weight, water.full, water.single_piece())
    resistance = water.shore_apart + (1 / rho2 - 1) * water.shore_depth
    # Land and water of one cell are all but tied at ρ = 1; limits keep the matrix well conditioned.
    mass = np.full(len(domain.pieces.cell), np.inf)
    mass[domain.main_piece] = domain.node_areas / domain.cell_size**2
    least = np.minimum(mass[water.shore_piece], np.where(small, np.inf, water.area)[water.shore_water])
    floor = np.maximum(_NEAREST_WATER, water.shore_length / (_STIFFEST * least))
    across = water.shore_length / np.maximum(resistance, floor)
    return [(first, second, rho2 * weight), (water.shore_piece, water.shore_water, across)]


# -- The Laplacian on a domain: a sparse symmetric matrix for each boundary condition and scheme -------------


Boundary = Literal["neumann", "dirichlet"]
Scheme = Literal["subcell", "staircase"]

#: The eight neighbours (row, col) of a cell and the weights of the isotropic 9-point operator.
_DIRECTIONS = [
    (dr, dc, 2 / 3 if dr == 0 or dc == 0 else 1 / 6) for dr in (-1, 0, 1) for dc in (-1, 0, 1) if (dr, dc) != (0, 0)
]
#: A shore closer to a centre than this fraction of the way to a neighbour is held to be this far.
_NEAREST_SHORE = 1e-3


@dataclass(frozen=True, eq=False)
class Discretisation:
    """The negative Laplacian on a domain, and the way from its unknowns to places.

    Attributes
    ----------
    matrix : (u, u) csr_array
        Symmetric M^-½ K M^-½ with the units 1/length²; its eigenvectors v give functions v / sqrt(mass).
    mass : (u,) array
        Area that each unknown stands for (Neumann: the node's area; Dirichlet and staircase: the cell's).
    to_nodes : (n, u) csr_array
        From unknowns to node values.
    cells : (u, 2) int array
        Row and column of each unknown's cell, on a grid that may begin an even number of cells before the
        domain's.
    sides : (u,) int array
        Cells along the side of the square that each unknown fills: 1, more for water far from land.
    permeability : float
        Correlation range over water as a share of that over land. Above 0 the unknowns are the nodes, in
        order, and then pieces of water.
    """

    domain: Domain
    boundary: Boundary
    scheme: Scheme
    matrix: sp.csr_array = field(repr=False)
    mass: np.ndarray = field(repr=False)
    to_nodes: sp.csr_array = field(repr=False)
    cells: np.ndarray = field(repr=False)
    sides: np.ndarray = field(repr=False)
    permeability: float
    _at: Callable[[np.ndarray], tuple[sp.csr_array, np.ndarray]] = field(repr=False)

    @property
    def n_nodes(self) -> int:
        """Number of nodes: the rows of `to_nodes`."""
        return self.to_nodes.shape[0]

    def at(self, coords: np.ndarray) -> tuple[sp.csr_array, np.ndarray]:
        """Return a (k, u) matrix from unknowns to coordinates, and which of them are on land."""
        return self._at(coords)


def operator(
    domain: Domain, *, boundary: Boundary = "neumann", scheme: Scheme = "subcell", permeability: float = 0.0
) -> sp.csr_array:
    """Return the sparse symmetric matrix whose smallest eigenpairs are the basis, eigenvalues uncorrected.

    Examples
    --------
    >>> import shapely
    >>> domain = Domain.from_polygons(shapely.box(0, 0, 1, 1), cell_size=0.25, crs="local")
    >>> operator(domain, boundary="dirichlet").shape
    (16, 16)
    """
    return discretise(domain, boundary=boundary, scheme=scheme, permeability=permeability).matrix


def correct_eigenvalues(eigenvalues: np.ndarray, cell_size: float) -> np.ndarray:
    """Return the eigenvalues with the dispersion of the 9-point operator taken out.

    A wave with the true eigenvalue λ, x = λh², has under the operator the eigenvalue x - x²/12 + x³/288 +
    ... (times h⁻²): the second term is the same in all directions, the third is the mean over directions.
    The series up to its second term is undone by 2λ / (1 + sqrt(1 - λh²/3)); with the third the inverse
    exists for every λ >= 0, and the error that is left, of order h⁴, is about six times smaller.

    Examples
    --------
    >>> correct_eigenvalues(np.array([0.0, 0.01, 1.0]), 1.0).round(6)
    array([0.      , 0.010008, 1.095434])
    """
    lam = np.asarray(eigenvalues, float)
    target = lam * cell_size**2 / 12
    s = target
    for _ in range(30):
        step = (s - s**2 + s**3 / 2 - target) / (1 - 2 * s + 1.5 * s**2)
        s = s - step
        if np.all(np.abs(step) <= 1e-15 * (1 + np.abs(s))):
            break
    # The rounding of the search must not turn the order of close eigenvalues round.
    ascending = np.argsort(lam, axis=None, kind="stable")
    s.flat[ascending] = np.maximum.accumulate(s.flat[ascending])
    return 12 * s / cell_size**2


#: Water that lets less through than this is closed: its numbers would be lost beside those of land.
CLOSED = 1e-6
#: What a prior is told of the shore and the water.
PRIOR = {
    "boundary": choice(*get_args(Boundary)).raising(DomainError),
    "scheme": choice(*get_args(Scheme)).raising(DomainError),
    "permeability": replace(
        real(least=0.0, most=1.0), words="a share from 0 (closed) to 1 (as land)", error=DomainError
    ),
}


@validated(domain=DOMAIN, **PRIOR)
def discretise(
    domain: Domain, *, boundary: Boundary = "neumann", scheme: Scheme = "subcell", permeability: float = 0.0
) -> Discretisation:
    """Discretise the negative Laplacian on a domain; see `Discretisation`.

    Parameters
    ----------
    domain : Domain
    boundary : "neumann" or "dirichlet"
    scheme : "subcell" or "staircase"
    permeability : float
        ρ from 0 (water is closed, and left out) to 1 (water is as land): the operator is -∇·(c∇), c = 1 on
        land and ρ² on water. Above 0 only under Neumann conditions and the sub-cell scheme.

    Examples
    --------
    >>> import shapely
    >>> land = shapely.union(shapely.box(0, 0, 4, 8), shapely.box(6, 0, 10, 8))
    >>> domain = Domain.from_polygons(land, cell_size=1, crs="local")
    >>> closed, open_water = discretise(domain), discretise(domain, permeability=0.5)
    >>> len(closed.mass), open_water.n_nodes, len(open_water.mass) > 64
    (64, 64, True)
    """
    permeability = permeability if permeability >= CLOSED else 0.0
    if (boundary, scheme) == ("neumann", "subcell"):
        return _neumann(domain, permeability)
    here = f"boundary={boundary!r} and scheme={scheme!r}"
    if permeability > 0:
        raise DomainError(
            f"Water can be passed only under Neumann conditions and the sub-cell scheme; found {here} with "
            f"permeability = {permeability:g}.",
            option="permeability",
            found=permeability,
            remedy=f"Use {option('permeability', 0)}, or {option('boundary', 'neumann')}.",
        )
    if domain.bridges is not None:
        raise DomainError(
            f"Bridges join land only under Neumann conditions and the sub-cell scheme; found {here}.",
            option="bridges",
            remedy=f"Leave {option('bridges')} out, or use {option('boundary', 'neumann')}.",
        )
    return (_dirichlet if scheme == "subcell" else _staircase)(domain, boundary)


def _neumann(domain: Domain, permeability: float) -> Discretisation:
    """Finite volumes on the nodes and, where water can be passed, on pieces of water."""
    volumes = finite_volumes(domain, permeability)
    root = sp.diags_array(1 / np.sqrt(volumes.mass))
    matrix = sp.csr_array(root @ volumes.stiffness @ root)
    n, u = domain.n_nodes, len(volumes.mass)
    return Discretisation(
        domain,
        "neumann",
        "subcell",
        _symmetric(matrix),
        volumes.mass,
        sp.csr_array(sp.eye_array(n, u, format="csr")),
        volumes.cells,
        volumes.sides,
        permeability,
        partial(_interpolated, domain, u),
    )


def _interpolated(domain: Domain, u: int, coords: np.ndarray) -> tuple[sp.csr_array, np.ndarray]:
    """Interpolate between nodes, which are the first of u unknowns."""
    rows, inside = domain.interpolation(coords)
    return sp.csr_array((rows.data, rows.indices, rows.indptr), shape=(rows.shape[0], u)), inside


def _dirichlet(domain: Domain, boundary: Boundary) -> Discretisation:
    """Nine points on the centres that lie on land; the shore is met where it really is."""
    nodes = np.flatnonzero(domain.holds_centre)
    if len(nodes) == 0:
        raise DomainError(
            f"No cell of {domain.cell_size:g} has its centre on land, so a Dirichlet domain has no unknowns; "
            f"use a smaller {option('cell_size')}.",
            option="cell_size",
            found=domain.cell_size,
        )
    rows, cols = domain.node_rows[nodes], domain.node_cols[nodes]
    index = np.full(np.add(domain.grid.shape, 2), -1)
    index[rows + 1, cols + 1] = np.arange(len(nodes))
    # Only where one of the two cells, or a corner between them, is not plain land can the way meet the shore.
    plain = np.zeros(np.add(domain.grid.shape, 2), bool)
    plain[1:-1, 1:-1] = domain.pieces.whole
    tree, segments = _obstacles(domain)
    here, there, weights, diagonal = [], [], [], np.zeros(len(nodes))
    thetas = {}
    for dr, dc, weight in _DIRECTIONS:
        neighbour = index[rows + 1 + dr, cols + 1 + dc]
        clear = plain[rows + 1, cols + 1] & plain[rows + 1 + dr, cols + 1 + dc]
        clear &= plain[rows + 1 + dr, cols + 1] & plain[rows + 1, cols + 1 + dc]
        clear &= _open_faces(domain, rows, cols, dr, dc)
        theta = np.full(len(nodes), np.inf)
        check = np.flatnonzero(~clear)
        start = np.column_stack([cols[check], rows[check]]) + 0.5
        theta[check] = _first_crossing(tree, segments, start, np.array([dc, dr], float))
        # Without a crossing on the way to a centre that is no unknown, the shore is at that centre.
        theta[(neighbour < 0) & np.isinf(theta)] = 1.0
        meets = np.isfinite(theta)
        thetas[dr, dc] = np.maximum(theta, _NEAREST_SHORE)
        diagonal += np.where(meets, weight / np.maximum(np.where(meets, theta, 1.0), _NEAREST_SHORE), weight)
        here.append(np.flatnonzero(~meets))
        there.append(neighbour[~meets])
        weights.append(np.full((~meets).sum(), weight))
    n = len(nodes)
    # Where two neighbours face the same shore, the diagonal ways between them cross, and what each would
    # meet behind the shore mirrors the other's value, not its own. The term vanishes for fields that are
    # linear at the shore.
    for dr, dc in ((0, 1), (1, 0)):
        other = index[rows + 1 + dr, cols + 1 + dc]
        for side in (1, -1):
            theta = thetas[dc * side, dr * side]
            pair = np.flatnonzero((other >= 0) & np.isinf(thetas[dr, dc]) & (theta < 1) & (theta[other] < 1))
            partner = other[pair]
            ta, tb = theta[pair], theta[partner]
            c = np.minimum(ta * (1 - ta), tb * (1 - tb)) / 6
            diagonal -= np.bincount(pair, c / ta**2, n) + np.bincount(partner, c / tb**2, n)
            here += [pair, partner]
            there += [partner, pair]
            weights += [-c / (ta * tb)] * 2
    i, j, w = np.concatenate(here), np.concatenate(there), np.concatenate(weights)
    matrix = sp.diags_array(diagonal) - sp.coo_array((w, (i, j)), shape=(n, n)).tocsr()
    matrix = sp.csr_array(matrix / domain.cell_size**2)
    mass = np.full(n, domain.cell_size**2)
    column = np.full(domain.n_nodes, -1)
    column[nodes] = np.arange(n)
    at = partial(_towards_shore, domain, column, n, tree)
    off = np.flatnonzero(column < 0)
    here_csr = sp.csr_array((np.ones(n), (nodes, np.arange(n))), shape=(domain.n_nodes, n))
    rest = at(domain.node_points[off])[0].tocoo()
    others = sp.csr_array((rest.data, (off[rest.coords[0]], rest.coords[1])), shape=(domain.n_nodes, n))
    return Discretisation(
        domain,
        boundary,
        "subcell",
        _symmetric(matrix),
        mass,
        sp.csr_array(here_csr + others),
        np.column_stack([rows, cols]),
        np.ones(n, np.int64),
        0.0,
        at,
    )


def _obstacles(domain: Domain) -> tuple[shapely.STRtree, np.ndarray]:
    """Return the shore and the barriers as segments in units of cells, with a tree over them."""
    land = shapely.set_precision(domain.grid.shapes_to_cells(domain.geometry), PRECISION)
    parts = [ring_segments(land)]
    if domain.barriers is not None:
        parts.append(line_segments(domain.grid.shapes_to_cells(domain.barriers)))
    segments = np.vstack(parts)
    return shapely.STRtree(shapely.linestrings(segments.reshape(-1, 2, 2))), segments


def _open_faces(domain: Domain, rows: np.ndarray, cols: np.ndarray, dr: int, dc: int) -> np.ndarray:
    """Tell whether no barrier runs along the faces between plain cells on the way to a neighbour."""
    if domain.barriers is None:
        return np.ones(len(rows), bool)
    inland = domain.inland_corners
    if dr != 0 and dc != 0:
        return inland[rows + (dr > 0), cols + (dc > 0)]
    if dr == 0:
        return inland[rows, cols + (dc > 0)] & inland[rows + 1, cols + (dc > 0)]
    return inland[rows + (dr > 0), cols] & inland[rows + (dr > 0), cols + 1]


def _first_crossing(tree: shapely.STRtree, segments: np.ndarray, start: np.ndarray, step: np.ndarray) -> np.ndarray:
    """Return the fraction of `step` after which each way first meets a segment; infinite if it meets none."""
    theta = np.full(len(start), np.inf)
    ways = shapely.linestrings(np.stack([start, start + step], axis=1))
    which, hits = tree.query(ways)
    origin = segments[hits, :2] - start[which]
    along = segments[hits, 2:] - segments[hits, :2]
    # start + t step = segment start + s along: two equations by Cramer's rule.
    det = step[0] * along[:, 1] - step[1] * along[:, 0]
    with np.errstate(divide="ignore", invalid="ignore"):
        t = (origin[:, 0] * along[:, 1] - origin[:, 1] * along[:, 0]) / det
        s = (origin[:, 0] * step[1] - origin[:, 1] * step[0]) / det
    slack = 1e-9
    hit = (np.abs(det) > 0) & (t >= 0) & (t <= 1 + slack) & (s >= -slack) & (s <= 1 + slack)
    np.minimum.at(theta, which[hit], np.minimum(t[hit], 1.0))
    return theta


def _towards_shore(
    domain: Domain, column: np.ndarray, n: int, tree: shapely.STRtree, coords: np.ndarray
) -> tuple[sp.csr_array, np.ndarray]:
    """Interpolate so that values fall to zero at the shore.

    Bilinear between four whole cells. Elsewhere value / distance to the shore is interpolated, and
    multiplied by the distance: exact for a field that rises linearly from a straight shore.
    """
    coords = np.asarray(coords, float).reshape(-1, 2)
    plain, inside = domain.interpolation(coords)
    plain = plain.tocoo()
    row, node = plain.coords
    keep = column[node] >= 0
    row, node, weight = row[keep], node[keep], plain.data[keep]
    weight = weight / np.bincount(row, weight, len(coords))[row]
    u, v = domain.grid.to_cells(coords[row, 0], coords[row, 1])
    shore = ~domain.inland_corners[np.floor(v + 0.5).astype(int), np.floor(u + 0.5).astype(int)]

    def shore_distance(u: np.ndarray, v: np.ndarray) -> np.ndarray:
        return tree.query_nearest(shapely.points(u, v), return_distance=True, all_matches=False)[1]

    used, back = np.unique(node[shore], return_inverse=True)
    at_node = shore_distance(domain.node_cols[used] + 0.5, domain.node_rows[used] + 0.5)[back]
    here, back = np.unique(row[shore], return_inverse=True)
    at_coord = shore_distance(*domain.grid.to_cells(coords[here, 0], coords[here, 1]))[back]
    weight[shore] *= at_coord / np.maximum(at_node, _NEAREST_SHORE)
    return sp.csr_array((weight, (row, column[node])), shape=(len(coords), n)), inside


def _staircase(domain: Domain, boundary: Boundary) -> Discretisation:
    """Follow the paper, for comparison: whole cells, in or out by their centre."""
    nodes = np.flatnonzero(domain.holds_centre)
    rows, cols = domain.node_rows[nodes], domain.node_cols[nodes]
    n = len(nodes)
    index = np.full(np.add(domain.grid.shape, 2), -1)
    index[rows + 1, cols + 1] = np.arange(n)
    here, there, weights = [], [], []
    for dr, dc, weight in _DIRECTIONS:
        neighbour = index[rows + 1 + dr, cols + 1 + dc]
        has = np.flatnonzero(neighbour >= 0)
        here.append(has)
        there.append(neighbour[has])
        weights.append(np.full(len(has), weight))
    i, j, w = np.concatenate(here), np.concatenate(there), np.concatenate(weights)
    links = sp.coo_array((w, (i, j)), shape=(n, n)).tocsr()
    degree = np.asarray(links.sum(axis=1)).ravel() if boundary == "neumann" else np.full(n, 10 / 3)
    matrix = sp.csr_array((sp.diags_array(degree) - links) / domain.cell_size**2)
    column = np.full(domain.n_nodes, -1)
    column[nodes] = np.arange(n)
    # Land whose cell is out takes the nearest cell that is in (Neumann) or zero (Dirichlet).
    if boundary == "neumann":
        from scipy.spatial import cKDTree

        off = np.flatnonzero(column < 0)
        nearest = cKDTree(np.column_stack([rows, cols])).query(
            np.column_stack([domain.node_rows[off], domain.node_cols[off]])
        )[1]
        column[off] = nearest
    has = np.flatnonzero(column >= 0)
    to_nodes = sp.csr_array((np.ones(len(has)), (has, column[has])), shape=(domain.n_nodes, n))
    return Discretisation(
        domain,
        boundary,
        "staircase",
        _symmetric(matrix),
        np.full(n, domain.cell_size**2),
        to_nodes,
        np.column_stack([rows, cols]),
        np.ones(n, np.int64),
        0.0,
        partial(_through_nodes, domain, to_nodes),
    )


def _through_nodes(domain: Domain, to_nodes: sp.csr_array, coords: np.ndarray) -> tuple[sp.csr_array, np.ndarray]:
    """Interpolate between nodes, whose values are those of unknowns."""
    plain, inside = domain.interpolation(coords)
    return sp.csr_array(plain @ to_nodes), inside


def _symmetric(matrix: sp.csr_array) -> sp.csr_array:
    """Return the matrix with rounding differences between its halves averaged out."""
    out = sp.csr_array((matrix + matrix.T) * 0.5)
    out.sort_indices()
    return out
