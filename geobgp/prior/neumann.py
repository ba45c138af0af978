"""Finite volumes on land and permeable water: masses and conductances under Neumann conditions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from geobgp.land.domain import Domain
from geobgp.land.pieces import Pieces
from geobgp.land.water import Water

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
