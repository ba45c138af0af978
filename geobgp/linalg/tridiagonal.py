"""Block-tridiagonal matrices whose neighbouring blocks are joined by diagonals: pivots, solutions, selected inverse.

Block t is joined to the next one by diag(c_t), so that eliminating it changes the next block entry by entry:

    S_1 = D_1,   S_t+1 = D_t+1 - c_t c_tᵀ ∘ S_t⁻¹.

The same elimination from the other end gives R_t, and the inverse's own block t is (S_t + R_t - D_t)⁻¹: both ends
are worked on at the same time. Matrices are kept as arrays (T, M, M) of which each, turned, is in Fortran order; only
its lower triangle counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property

import numpy as np
from scipy.linalg import blas as scipy_blas

from geobgp.linalg import blas
from geobgp.linalg.blas import cores, together


class Symmetric:
    """LAPACK's work on symmetric blocks of one size, without Python's lock."""

    def __init__(self, size: int) -> None:
        self._integers = blas.Integers(size + 1)
        self._size = self._integers.at(size)
        self._info = np.zeros(1, np.intc)

    def factorise(self, block: np.ndarray) -> None:
        """Replace a block by its lower Cholesky factor; only rounding can fail it, then a little is added."""
        size = len(block)
        kept = block.copy()
        extra = float(np.finfo(float).eps) * size * max(float(np.abs(np.diagonal(block)).max(initial=1.0)), 1e-300)
        while True:
            blas.dpotrf(blas.LOWER, self._size, block.ctypes.data, self._size, self._info.ctypes.data)
            if self._info[0] == 0:
                return
            if not (np.isfinite(kept).all() and np.isfinite(extra)):
                raise np.linalg.LinAlgError("a block of the posterior precision is not finite")
            block[:] = kept
            block[np.diag_indices(size)] += extra
            extra *= 10.0

    def invert(self, factor: np.ndarray) -> None:
        """Replace a lower factor by the lower triangle of the inverse of what it is the factor of."""
        blas.dpotri(blas.LOWER, self._size, factor.ctypes.data, self._size, self._info.ctypes.data)


def log_pivots(factor: np.ndarray) -> float:
    """Return the log determinant of what a lower factor is the factor of."""
    return 2.0 * float(np.log(np.diagonal(factor)).sum())


def mirrored(block: np.ndarray) -> np.ndarray:
    """Return a symmetric block, as this module keeps it, written out."""
    upper = np.triu(block)
    return upper + np.triu(block, 1).T


class Tridiagonal:
    """The block elimination of H: diagonal blocks D_t, and diagonals c_t between them.

    Parameters
    ----------
    diagonal : (T, M, M) array
        Lower triangles in Fortran order; not kept.
    between : (T - 1, M) array

    Attributes
    ----------
    inverses : (T, M, M) array
        S_t⁻¹, lower triangles.
    log_det : float

    Examples
    --------
    >>> blocks = np.array([np.eye(2) * 4.0, np.eye(2) * 3.0])
    >>> chain = Tridiagonal(blocks, np.array([[1.0, 0.0]]))
    >>> bool(np.isclose(chain.log_det, np.log(4 * 3 - 1) + np.log(12)))
    True
    >>> chain.solve(np.array([1.0, 0.0, 0.0, 0.0])).round(4)
    array([ 0.2727,  0.    , -0.0909,  0.    ])
    """

    def __init__(self, diagonal: np.ndarray, between: np.ndarray) -> None:
        self._diagonal: np.ndarray | None = diagonal
        self.between = between
        self.inverses, self._outward = np.empty_like(diagonal), np.empty_like(diagonal)
        logs = [0.0, 0.0]

        def onward() -> None:
            logs[0] = self._eliminate(self.inverses, range(len(diagonal)), 1)

        def backward() -> None:
            logs[1] = self._eliminate(self._outward, range(len(diagonal) - 1, 0, -1), -1)

        together([onward, backward])
        self.log_det = logs[0]

    @classmethod
    def from_inverses(cls, inverses: np.ndarray, between: np.ndarray) -> Tridiagonal:
        """Make one from the pivots' inverses, for solutions and draws alone."""
        out = cls.__new__(cls)
        out._diagonal, out.inverses, out.between = None, inverses, between
        out._outward = inverses[:0]
        out.log_det = float("nan")
        return out

    @property
    def shape(self) -> tuple[int, int]:
        """Blocks, and the size of each."""
        return self.inverses.shape[0], self.inverses.shape[1]

    def _eliminate(self, out: np.ndarray, order: range, step: int) -> float:
        assert self._diagonal is not None
        work, total = Symmetric(self.shape[1]), 0.0
        for t in order:
            block = out[t]
            block[:] = self._diagonal[t]
            before = t - step
            if 0 <= before < len(out):
                c = self.between[min(t, before)]
                block -= (c[:, None] * out[before]) * c
            work.factorise(block)
            total += log_pivots(block)
            work.invert(block)
        return total

    def marginals(self, use: Callable[[int, np.ndarray], None]) -> None:
        """Call with t and block t of the inverse (its lower triangle), in two threads; then the diagonal is let go.

        The block may be written to. Blocks come in no order.
        """
        diagonal, n = self._diagonal, self.shape[0]
        assert diagonal is not None
        parts = np.array_split(np.arange(n), min(max(cores(), 1), n))

        def work(mine: np.ndarray) -> None:
            lapack, block = Symmetric(self.shape[1]), np.empty(self.shape[1:] * 2)
            for t in map(int, mine):
                block[:] = diagonal[t]
                if t > 0:
                    c = self.between[t - 1]
                    block -= (c[:, None] * self.inverses[t - 1]) * c
                if t + 1 < n:
                    c = self.between[t]
                    block -= (c[:, None] * self._outward[t + 1]) * c
                lapack.factorise(block)
                lapack.invert(block)
                use(t, block)

        together([lambda mine=mine: work(mine) for mine in parts])  # type: ignore[misc]
        self._diagonal, self._outward = None, self.inverses[:0]

    def lag_diagonal(self, t: int, block: np.ndarray) -> np.ndarray:
        """Return the diagonal of the inverse's block (t - 1, t), from its block t."""
        tied = self.inverses[t - 1] * block
        return -np.asarray(scipy_blas.dsymv(1.0, tied.T, self.between[t - 1], lower=1))

    def solve(self, vector: np.ndarray) -> np.ndarray:
        """Return H⁻¹ b, for one b (T · M,) or several (T · M, k)."""
        n, m = self.shape
        if vector.size == 0:
            return np.zeros(vector.shape)
        y = np.array(vector, float).reshape(n, m, -1)
        c = self.between[:, :, None]
        for t in range(1, n):
            y[t] -= c[t - 1] * self._times(t - 1, y[t - 1])
        y[n - 1] = self._times(n - 1, y[n - 1])
        for t in range(n - 2, -1, -1):
            y[t] = self._times(t, y[t] - c[t] * y[t + 1])
        return y.reshape(vector.shape)

    def _times(self, t: int, vectors: np.ndarray) -> np.ndarray:
        """Return S_t⁻¹ times vectors (M, k)."""
        if vectors.shape[1] == 1:
            return np.asarray(scipy_blas.dsymv(1.0, self.inverses[t].T, vectors[:, 0], lower=1))[:, None]
        return np.asarray(scipy_blas.dsymm(1.0, self.inverses[t].T, np.asfortranarray(vectors), lower=1))

    @cached_property
    def _roots(self) -> np.ndarray:
        """Lower factors of the pivots' inverses."""
        out = self.inverses.copy()
        work = Symmetric(self.shape[1])
        for block in out:
            work.factorise(block)
        return out

    def draw(self, n: int, rng: np.random.Generator) -> Iterator[tuple[int, np.ndarray]]:
        """Yield n draws of N(0, H⁻¹), (M, n), block by block from the last one to the first."""
        count, m = self.shape
        after = np.zeros((m, n))
        for t in range(count - 1, -1, -1):
            noise = scipy_blas.dtrmm(1.0, self._roots[t].T, np.asfortranarray(rng.standard_normal((m, n))), lower=1)
            if t + 1 < count:
                noise = noise - self._times(t, self.between[t][:, None] * after)
            after = noise
            yield t, after

    def inverse_blocks(self) -> Iterator[tuple[int, np.ndarray]]:
        """Yield the inverse's diagonal blocks, written out, from the last one to the first."""
        n = self.shape[0]
        after = mirrored(self.inverses[n - 1])
        yield n - 1, after
        for t in range(n - 2, -1, -1):
            own = mirrored(self.inverses[t])
            tied = own * self.between[t]
            across = scipy_blas.dgemm(1.0, after, tied, trans_b=1)
            after = own + scipy_blas.dgemm(1.0, tied, across)
            after = 0.5 * (after + after.T)
            yield t, after
