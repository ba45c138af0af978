"""Dense features behind the small protocol through which the solver sees them.

The columns are the m features and then the k fixed effects (intercept, covariates); p = m + k. Whoever can
form ``gram``, ``apply``, ``adjoint`` and ``variances`` over its rows can serve the solver: other storage,
other machines.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from scipy.linalg import blas

#: Rows that are worked on at a time: a block of 1,024 features takes 16 MB.
_BLOCK = 2048


class Features(Protocol):
    """Rows are observations, columns are features and fixed effects."""

    @property
    def shape(self) -> tuple[int, int]:
        """(observations n, columns p)."""
        ...

    def gram(self, weights: np.ndarray) -> np.ndarray:
        """Return Φᵀ diag(weights) Φ, (p, p), its lower triangle in Fortran order; weights >= 0."""
        ...

    def apply(self, coefficients: np.ndarray) -> np.ndarray:
        """Return Φ u, (n,)."""
        ...

    def adjoint(self, residuals: np.ndarray) -> np.ndarray:
        """Return Φᵀ r, (p,)."""
        ...

    def variances(self, half: np.ndarray) -> np.ndarray:
        """Return the squared length of ``half @ row`` for every row, (n,); `half` is lower triangular."""
        ...


class DenseFeatures:
    """Features in one array, worked through in blocks of rows; the array is never copied whole.

    Parameters
    ----------
    matrix : (n, m) array
        Features, in C or Fortran order.
    fixed : (n, k) array
        Fixed effects.

    Examples
    --------
    >>> phi = DenseFeatures(np.array([[1.0, 2.0], [3.0, 4.0]]), np.ones((2, 1)))
    >>> phi.apply(np.array([1.0, 0.0, 10.0]))
    array([11., 13.])
    """

    def __init__(self, matrix: np.ndarray, fixed: np.ndarray) -> None:
        self._matrix = matrix
        self._fixed = np.asarray(fixed, float).reshape(len(matrix), -1)

    @property
    def shape(self) -> tuple[int, int]:
        """(observations n, columns p)."""
        return self._matrix.shape[0], self._matrix.shape[1] + self._fixed.shape[1]

    def truncate(self, m: int) -> DenseFeatures:
        """Return the first `m` features and all fixed effects."""
        return DenseFeatures(np.ascontiguousarray(self._matrix[:, :m]), self._fixed)

    def _block(self, start: int, stop: int, buffer: np.ndarray, scale: np.ndarray | None) -> np.ndarray:
        """Return rows start:stop as the columns of a Fortran-ordered (p, rows) array."""
        m = self._matrix.shape[1]
        rows = buffer[: stop - start]
        rows[:, :m] = self._matrix[start:stop]
        rows[:, m:] = self._fixed[start:stop]
        if scale is not None:
            rows *= scale[start:stop, None]
        return rows.T

    def gram(self, weights: np.ndarray) -> np.ndarray:
        """Return Φᵀ diag(weights) Φ; only its lower triangle is set."""
        n, p = self.shape
        used = np.flatnonzero(weights > 0)
        out = np.zeros((p, p), order="F")
        if len(used) == 0:
            return out
        root = np.sqrt(weights)
        buffer = np.empty((min(_BLOCK, n), p))
        for start in range(0, n, _BLOCK):
            block = self._block(start, min(start + _BLOCK, n), buffer, root)
            out = blas.dsyrk(1.0, block, beta=1.0, c=out, lower=1, overwrite_c=1)
        return out

    def apply(self, coefficients: np.ndarray) -> np.ndarray:
        """Return Φ u."""
        m = self._matrix.shape[1]
        return _matvec(self._matrix, coefficients[:m]) + self._fixed @ coefficients[m:]

    def adjoint(self, residuals: np.ndarray) -> np.ndarray:
        """Return Φᵀ r."""
        return np.concatenate([_matvec(self._matrix.T, residuals), self._fixed.T @ residuals])

    def variances(self, half: np.ndarray) -> np.ndarray:
        """Return the squared length of ``half @ row`` for every row."""
        n, p = self.shape
        out = np.empty(n)
        buffer = np.empty((min(_BLOCK, n), p))
        for start in range(0, n, _BLOCK):
            stop = min(start + _BLOCK, n)
            block = self._block(start, stop, buffer, None)
            product = blas.dtrmm(1.0, half, block, lower=1, overwrite_b=1)
            out[start:stop] = np.einsum("ij,ij->j", product, product)
        return out


def _matvec(matrix: np.ndarray, vector: np.ndarray) -> np.ndarray:
    if matrix.flags.f_contiguous:
        return blas.dgemv(1.0, matrix, vector)
    if matrix.flags.c_contiguous:
        return blas.dgemv(1.0, matrix.T, vector, trans=1)
    return np.asarray(matrix @ vector)
