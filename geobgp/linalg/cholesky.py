"""Cholesky factors of sparse matrices: solves, determinants and selected inverses."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import scipy.sparse as sp
from scipy.linalg.blas import dgemm, dsyrk, dtrsm

from geobgp.linalg.batches import Shape, columns_of
from geobgp.linalg.elimination import Blocks, backward, eliminate, forward, selected_inverse
from geobgp.linalg.fronts import Fronts


class Cholesky:
    """The factor L of a positive definite matrix, in the order of elimination.

    Parameters
    ----------
    fronts : Fronts
        For the matrix's pattern.
    data : array
        The matrix's entries, in the pattern's order.

    Raises
    ------
    numpy.linalg.LinAlgError
        If the matrix is not positive definite.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> matrix = sp.diags_array([-np.ones(9), np.full(10, 2.0), -np.ones(9)], offsets=[-1, 0, 1]).tocsr()
    >>> factor = Cholesky(Fronts.of(matrix), matrix.data)
    >>> round(float(np.exp(factor.log_det)), 6)
    11.0
    >>> factor.solve(matrix @ np.arange(10.0)).round(6).tolist()
    [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]
    """

    def __init__(self, fronts: Fronts, data: np.ndarray) -> None:
        self.fronts = fronts
        self._columns = eliminate(fronts, data, 0.0, _refuse)

    @cached_property
    def log_det(self) -> float:
        """Log determinant of the matrix."""
        pairs = zip(self.fronts.batches, self._columns, strict=True)
        return 2.0 * float(np.log(np.concatenate([own[batch.diagonal] for batch, own in pairs])).sum())

    def solve(self, right: np.ndarray) -> np.ndarray:
        """Return the matrix's inverse times (n,) or (n, k) right-hand sides."""
        if np.size(right) == 0:
            return np.zeros(np.shape(right))
        x = np.ascontiguousarray(self._two_dimensional(right)[self.fronts.order])
        forward(self.fronts, self._columns, x, {})
        return self._backward(x).reshape(np.shape(right))

    def half_solve(self, right: np.ndarray) -> np.ndarray:
        """Return x = P L⁻ᵀ right: for standard normal (n, k) draws, draws with the inverse as covariance."""
        x = np.array(self._two_dimensional(right), order="C")
        return self._backward(x).reshape(np.shape(right))

    def _two_dimensional(self, right: np.ndarray) -> np.ndarray:
        return np.asarray(right, float).reshape(self.fronts.n, -1)

    def _backward(self, x: np.ndarray) -> np.ndarray:
        backward(self.fronts, self._columns, x, {})
        out = np.empty_like(x)
        out[self.fronts.order] = x
        return out

    def inverse_block(self, rows: sp.csr_array) -> np.ndarray:
        """Return R A⁻¹ Rᵀ, dense, for a few sparse rows R and the matrix A.

        It is the square of L⁻¹ Rᵀ, in which only the fronts that own R's unknowns, and those above them, take part.
        """
        f = self.fronts
        rank = np.empty(f.n, np.int64)
        rank[f.order] = np.arange(f.n)
        entries = sp.coo_array(rows)
        there = rank[entries.col]
        stops = np.array([front.stop for front in f.fronts])
        needed = np.zeros(len(stops), bool)
        needed[np.searchsorted(stops, there, side="right")] = True
        for number in np.flatnonzero(needed):
            above = f.fronts[number].parent
            while above >= 0 and not needed[above]:
                needed[above] = True
                above = f.fronts[above].parent
        x = np.zeros((f.n, rows.shape[0]))
        np.add.at(x, (there, entries.row), entries.data)
        shapes = [
            (shape, columns)
            for batch, columns in zip(f.batches, self._columns, strict=True)
            for shape in batch.shapes
        ]
        solved = [x[:0]]
        for number in np.flatnonzero(needed):
            (shape, columns), front = shapes[number], f.fronts[number]
            (own, side), mine = columns_of(shape, columns), x[front.start : front.stop]
            dtrsm(1.0, own, mine.T, side=1, lower=1, trans_a=1, overwrite_b=1)
            if shape.b:
                taken = x.take(front.border, axis=0).T
                x[front.border] = dgemm(-1.0, mine.T, side, beta=1.0, c=taken, trans_b=1, overwrite_c=1).T
            solved.append(mine)
        lower = dsyrk(1.0, np.concatenate(solved).T, lower=1)
        return np.tril(lower) + np.tril(lower, -1).T

    def selected_inverse(self, length: int) -> np.ndarray:
        """Return the inverse's entries at the pattern's `length` places, in the pattern's order."""
        found = selected_inverse(self.fronts, self._columns)
        out = np.empty(length)
        out[self.fronts.lower] = found
        out[self.fronts.upper] = found
        return out


def _refuse(front: Shape, blocks: Blocks, own: np.ndarray) -> None:
    raise np.linalg.LinAlgError("the matrix is not positive definite")
