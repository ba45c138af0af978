"""LDLᵀ factors of sparse symmetric matrices, definite or not: solves, and counts of eigenvalues."""

from __future__ import annotations

import numpy as np
from scipy.linalg.blas import dgemm, dtrsm
from scipy.linalg.lapack import dsyconv, dsytrf

from geobgp.linalg.batches import Shape
from geobgp.linalg.elimination import Blocks, backward, eliminate, forward
from geobgp.linalg.fronts import Fronts


class LDL:
    """L D Lᵀ of a symmetric matrix minus `shift` times the identity.

    Fronts that are positive definite are Cholesky-factorised, the others by Bunch and Kaufman's pivoting
    within the front.

    Parameters
    ----------
    fronts : Fronts
        For the matrix's pattern.
    data : array
        The matrix's entries, in the pattern's order.
    shift : float

    Attributes
    ----------
    negative : int
        How many eigenvalues of the matrix lie below `shift` (Sylvester's law of inertia).

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> matrix = sp.diags_array([-np.ones(9), np.full(10, 2.0), -np.ones(9)], offsets=[-1, 0, 1]).tocsr()
    >>> factor = LDL(Fronts.of(matrix), matrix.data, 1.0)
    >>> factor.negative  # of 2 - 2 cos(k pi / 11) below 1
    3
    >>> x = factor.solve(np.ones((10, 1)))
    >>> bool(np.allclose(matrix @ x - x, 1.0))
    True
    """

    def __init__(self, fronts: Fronts, data: np.ndarray, shift: float) -> None:
        self.fronts = fronts
        self._negative: dict[int, int] = {}
        # D⁻¹: its diagonal, and what is beside it.
        self._diagonal = np.ones((fronts.n, 1))
        self._beside = np.zeros((fronts.n, 1))
        self._pivots: dict[int, np.ndarray] = {}
        self._columns = eliminate(fronts, data, shift, self._eliminate)
        self.negative = sum(self._negative.values())
        self._pairs = np.flatnonzero(self._beside)

    def _eliminate(self, front: Shape, blocks: Blocks, before: np.ndarray) -> None:
        """Eliminate a front that is not positive definite."""
        own, side, rest = blocks
        lower, order, diagonal, beside, pairs, negative = _bunch_kaufman(before)
        self._negative[front.start] = negative
        stop = front.start + front.k
        self._diagonal[front.start : stop, 0] = diagonal
        self._beside[front.start : stop, 0] = beside
        self._pivots[front.start] = order
        np.fill_diagonal(lower, 1.0)
        own[:] = lower
        if len(side):
            turned = np.asfortranarray(side[:, order])
            product = dtrsm(1.0, own, turned, side=1, lower=1, trans_a=1, overwrite_b=1)
            np.multiply(product, diagonal, out=side)
            side[:, pairs] += product[:, pairs + 1] * beside[pairs]
            side[:, pairs + 1] += product[:, pairs] * beside[pairs]
            dgemm(-1.0, side, product, beta=0.0, c=rest, trans_b=1, overwrite_c=1)

    def solve(self, right: np.ndarray) -> np.ndarray:
        """Solve (matrix - shift I) X = right for a block of vectors (n, p); C order suits best."""
        x = np.ascontiguousarray(right[self.fronts.order])
        forward(self.fronts, self._columns, x, self._pivots)
        # D couples only pairs of neighbours, within the fronts that are not definite.
        pairs = self._pairs
        first, second = x[pairs] * self._beside[pairs], x[pairs + 1] * self._beside[pairs]
        x *= self._diagonal
        x[pairs] += second
        x[pairs + 1] += first
        backward(self.fronts, self._columns, x, self._pivots)
        out = np.empty_like(x)
        out[self.fronts.order] = x
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
    order = list(range(len(block)))
    for k, other in enumerate(goal.tolist()):
        order[k], order[other] = order[other], order[k]
    # An exactly singular pivot (the shift is an eigenvalue of a part) is moved off zero by rounding's size.
    tiny = np.finfo(float).eps * np.abs(diagonal).max(initial=1e-300)
    inverse = 1 / np.where(single, np.where(diagonal == 0, tiny, diagonal), 1.0)
    first, second, off = diagonal[pairs], diagonal[pairs + 1], beside[pairs]
    determinant = first * second - off**2
    inverse[pairs], inverse[pairs + 1] = second / determinant, first / determinant
    between = np.zeros(len(block))
    between[pairs] = -off / determinant
    return lower, np.array(order), inverse, between, pairs, negative
