"""Sparse symmetric factorisation by nested dissection, in dense blocks.

`Dissection` orders the unknowns of a connected, grid-like matrix once; `Factor` then factorises that matrix
minus any multiple of the identity, positive definite or not, counts its negative eigenvalues, and solves for
blocks of vectors. Almost all arithmetic is in matrix-matrix products, where general sparse solvers work
column by column.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.linalg.blas import dgemm, dsyrk, dtrsm
from scipy.linalg.lapack import dpotrf, dsyconv, dsytrf
from scipy.sparse.csgraph import breadth_first_order

#: Parts of at most this many unknowns are not divided further.
_LEAF = 128
#: Number of far-apart unknowns from which distances are counted.
_LANDMARKS = 4


#: Start, stop and children of a block of the elimination.
_Span = tuple[int, int, tuple[int, ...]]


class _Front(NamedTuple):
    """Unknowns start:stop (in the new order), the later unknowns they touch, and where entries go."""

    start: int
    stop: int
    border: np.ndarray
    children: list[tuple[int, int, np.ndarray, np.ndarray]]
    own_entries: np.ndarray
    own_places: np.ndarray
    border_entries: np.ndarray
    border_places: np.ndarray


class Dissection:
    """An elimination order for a connected symmetric matrix, and the tree of dense blocks it gives.

    Distances (in links) from a few unknowns far apart serve as coordinates. All unknowns at one distance
    separate the nearer from the farther ones, so each part is divided at the distance, near its middle, that
    the fewest share: the narrow places of a shape are found by themselves.

    Parameters
    ----------
    matrix : (n, n) csr_array
        Symmetric; its graph is connected.
    """

    def __init__(self, matrix: sp.csr_array) -> None:
        n = matrix.shape[0]
        self.n = n
        self.order = np.empty(n, np.int64)
        spans: list[_Span] = []
        self._divide(_distances(matrix), np.arange(n), 0, spans)
        place = np.empty(n, np.int64)
        place[self.order] = np.arange(n)
        coo = matrix.tocoo()
        row, col = place[coo.coords[0]], place[coo.coords[1]]
        lower = np.flatnonzero(row >= col)
        lower = lower[np.argsort(col[lower] * np.int64(n) + row[lower])]
        self.data = coo.data[lower]
        self.fronts = _fronts(row[lower], col[lower], spans, n)

    def _divide(self, distances: np.ndarray, part: np.ndarray, start: int, spans: list[_Span]) -> int:
        """Give `part` the numbers from `start` on; return the index of the block that is eliminated last."""
        stop = start + len(part)
        cut = _best_cut(distances[:, part]) if len(part) > _LEAF else None
        children: tuple[int, ...] = ()
        if cut is not None:
            near, far, part = part[cut < 0], part[cut > 0], part[cut == 0]
            children = (
                self._divide(distances, near, start, spans),
                self._divide(distances, far, start + len(near), spans),
            )
        self.order[stop - len(part) : stop] = part
        spans.append((stop - len(part), stop, children))
        return len(spans) - 1


def _distances(matrix: sp.csr_array) -> np.ndarray:
    """Return the distances in links of all unknowns from a few far-apart ones, (landmarks, n)."""
    start = int(np.argmax(_links_from(matrix, 0)))
    found = [_links_from(matrix, start)]
    nearest = found[0].copy()
    for _ in range(_LANDMARKS - 1):
        found.append(_links_from(matrix, int(np.argmax(nearest))))
        np.minimum(nearest, found[-1], out=nearest)
    return np.stack(found)


def _links_from(matrix: sp.csr_array, start: int) -> np.ndarray:
    """Return the number of links from `start` to each unknown."""
    order, before = breadth_first_order(matrix, start)
    place = np.empty(matrix.shape[0], np.int64)
    place[order] = np.arange(len(order))
    # Places of the predecessors never fall, so each level is one run of the order.
    before = place[before[order[1:]]]
    ends = [0, 1]
    while ends[-1] < len(order):
        ends.append(int(np.searchsorted(before, ends[-1])) + 1)
    out = np.empty(matrix.shape[0], np.int32)
    out[order] = np.repeat(np.arange(len(ends) - 1, dtype=np.int32), np.diff(ends))
    return out


def _best_cut(distances: np.ndarray) -> np.ndarray | None:
    """Return -1, 0 or 1 for unknowns before, on and behind a part's best cut; None if there is none."""
    size = distances.shape[1]
    best, choice = np.inf, None
    for distance in distances:
        low = distance.min()
        count = np.bincount(distance - low)
        upto = np.cumsum(count)
        before = upto - count
        level = np.flatnonzero((count > 0) & (before >= 0.3 * size) & (upto <= 0.7 * size))
        if len(level):
            cost = count[level] * (1 + np.abs(before[level] + upto[level] - size) / size)
            at = int(np.argmin(cost))
            if cost[at] < best:
                best, choice = cost[at], (distance, low + level[at])
    return None if choice is None else np.sign(choice[0] - choice[1])


def _fronts(row: np.ndarray, col: np.ndarray, spans: list[_Span], n: int) -> list[_Front]:
    """Find each block's border, and where the entries and the children's remainders go."""
    pointer = np.searchsorted(col, np.arange(n + 1))
    fronts: list[_Front] = []
    for start, stop, children in spans:
        first = pointer[start]
        r, c = row[first : pointer[stop]], col[first : pointer[stop]] - start
        own = r < stop
        tails = [fronts[k].border[np.searchsorted(fronts[k].border, stop) :] for k in children]
        border = np.unique(np.concatenate([r[~own], *tails]))
        joins = []
        for k in children:
            theirs = fronts[k].border
            q = int(np.searchsorted(theirs, stop))
            joins.append((k, q, theirs[:q] - start, np.searchsorted(border, theirs[q:])))
        fronts.append(
            _Front(
                start,
                stop,
                border,
                joins,
                np.flatnonzero(own) + first,
                c[own] * (stop - start) + r[own] - start,
                np.flatnonzero(~own) + first,
                c[~own] * len(border) + np.searchsorted(border, r[~own]),
            )
        )
    return fronts


class Factor:
    """L D Lᵀ of a dissected matrix minus `shift` times the identity.

    Blocks that are positive definite are Cholesky-factorised, the others by Bunch and Kaufman's pivoting
    within the block.

    Attributes
    ----------
    negative : int
        How many eigenvalues of the matrix lie below `shift` (Sylvester's law of inertia).

    Examples
    --------
    >>> matrix = sp.diags_array([-np.ones(9), np.full(10, 2.0), -np.ones(9)], offsets=[-1, 0, 1]).tocsr()
    >>> factor = Factor(Dissection(matrix), 1.0)
    >>> factor.negative  # of 2 - 2 cos(k pi / 11) below 1
    3
    >>> x = factor.solve(np.ones((10, 1)))
    >>> bool(np.allclose(matrix @ x - x, 1.0))
    True
    """

    def __init__(self, plan: Dissection, shift: float) -> None:
        self._order = plan.order
        self._blocks: list[tuple[int, int, np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]] = []
        self._diagonal = np.ones((plan.n, 1))
        self._beside = np.zeros((plan.n, 1))
        self.negative = 0
        remainders: list[np.ndarray | None] = [None] * len(plan.fronts)
        for k, front in enumerate(plan.fronts):
            remainders[k] = self._eliminate(front, plan.data, shift, remainders)
        self._pairs = np.flatnonzero(self._beside)

    def _eliminate(
        self, front: _Front, data: np.ndarray, shift: float, remainders: list[np.ndarray | None]
    ) -> np.ndarray:
        """Factorise one block; return what is left for its border (lower triangle)."""
        s, b = front.stop - front.start, len(front.border)
        # Transposed arrays in C order are the Fortran order that BLAS works on.
        own, side, rest = np.zeros((s, s)), np.zeros((s, b)), np.zeros((b, b))
        own.reshape(-1)[front.own_places] = data[front.own_entries]
        own.reshape(-1)[:: s + 1] -= shift
        side.reshape(-1)[front.border_places] = data[front.border_entries]
        for child, q, to_own, to_border in front.children:
            left = remainders[child]
            remainders[child] = None
            assert left is not None
            across = to_own[:, None]
            own[across, to_own] += left.T[:q, :q]
            side[across, to_border] += left.T[:q, q:]
            rest[to_border[:, None], to_border] += left.T[q:, q:]
        lower, info = dpotrf(own.T, lower=1, clean=0)
        if info == 0:
            pivots = None
            ell = side.T
            if b:
                ell = dtrsm(1.0, lower, ell, side=1, lower=1, trans_a=1, overwrite_b=1)
                rest = dsyrk(-1.0, ell, beta=1.0, c=rest.T, lower=1, overwrite_c=1).T
        else:
            lower, pivots, diagonal, beside, pairs, negative = _bunch_kaufman(own.T)
            self.negative += negative
            self._diagonal[front.start : front.stop, 0] = diagonal
            self._beside[front.start : front.stop, 0] = beside
            ell = side.T
            if b:
                turned = np.asfortranarray(side.T[:, pivots])
                product = dtrsm(1.0, lower, turned, side=1, lower=1, trans_a=1, diag=1, overwrite_b=1)
                ell = product * diagonal
                ell[:, pairs] += product[:, pairs + 1] * beside[pairs]
                ell[:, pairs + 1] += product[:, pairs] * beside[pairs]
                rest = dgemm(-1.0, ell, product, beta=1.0, c=rest.T, trans_b=1, overwrite_c=1).T
        self._blocks.append((front.start, front.stop, front.border, lower, ell, pivots))
        return rest.T

    def solve(self, right: np.ndarray) -> np.ndarray:
        """Solve (matrix - shift I) X = right for a block of vectors (n, p); C order suits best."""
        x = np.ascontiguousarray(right[self._order])
        for start, stop, border, lower, ell, pivots in self._blocks:
            mine = x[start:stop]
            if pivots is not None:
                mine[:] = mine[pivots]
            unit = int(pivots is not None)
            dtrsm(1.0, lower, mine.T, side=1, lower=1, trans_a=1, diag=unit, overwrite_b=1)
            if len(border):
                x[border] = x.take(border, axis=0) - dgemm(1.0, mine.T, ell, trans_b=1).T
        # D couples only pairs of neighbours, within the blocks that are not definite.
        pairs = self._pairs
        first, second = x[pairs] * self._beside[pairs], x[pairs + 1] * self._beside[pairs]
        x *= self._diagonal
        x[pairs] += second
        x[pairs + 1] += first
        for start, stop, border, lower, ell, pivots in reversed(self._blocks):
            mine = x[start:stop]
            if len(border):
                dgemm(-1.0, x.take(border, axis=0).T, ell, beta=1.0, c=mine.T, overwrite_c=1)
            dtrsm(1.0, lower, mine.T, side=1, lower=1, diag=int(pivots is not None), overwrite_b=1)
            if pivots is not None:
                mine[pivots] = mine.copy()
        out = np.empty_like(x)
        out[self._order] = x
        return out


def _bunch_kaufman(
    block: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, int]:
    """Factorise block[p][:, p] = L D Lᵀ, with D of 1 x 1 and 2 x 2 pivots.

    Returns
    -------
    L (unit lower triangular; its diagonal and what is above are not to be read), p, the diagonal of D⁻¹, what
    is beside it, where 2 x 2 pivots start, and the number of negative eigenvalues.
    """
    packed, swaps, _ = dsytrf(block, lower=1, lwork=64 * len(block), overwrite_a=1)
    diagonal = np.diagonal(packed).copy()
    lower, beside, _ = dsyconv(packed, swaps, lower=1, overwrite_a=1)
    # A 2 x 2 pivot is a negative number twice: its second row was swapped. It has one negative eigenvalue.
    single = swaps > 0
    pairs = np.flatnonzero(~single)[::2]
    negative = len(pairs) + int(np.sum(diagonal[single] < 0))
    goal = np.abs(swaps) - 1
    goal[pairs] = pairs
    order = np.arange(len(block))
    for k in np.flatnonzero(goal != order):
        order[[k, goal[k]]] = order[[goal[k], k]]
    # An exactly singular pivot (the shift is an eigenvalue of a part) is moved off zero by rounding's size.
    tiny = np.finfo(float).eps * np.abs(diagonal).max(initial=1e-300)
    inverse = 1 / np.where(single, np.where(diagonal == 0, tiny, diagonal), 1.0)
    first, second, off = diagonal[pairs], diagonal[pairs + 1], beside[pairs]
    determinant = first * second - off**2
    inverse[pairs], inverse[pairs + 1] = second / determinant, first / determinant
    between = np.zeros(len(block))
    between[pairs] = -off / determinant
    return lower, order, inverse, between, pairs, negative
