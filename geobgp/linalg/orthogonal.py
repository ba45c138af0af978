"""Blocks of vectors made orthogonal to others, and orthonormal among themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import qr
from scipy.linalg.blas import dgemm, dsyrk, dtrsm
from scipy.linalg.lapack import dpotrf


def project_out(block: np.ndarray, bases: list[np.ndarray]) -> Any:
    """Make a block (n, p), C order, orthogonal to bases (n, k), Fortran order; return the last products."""
    coefficients = None
    for basis in bases:
        coefficients = dgemm(1.0, basis, block.T, trans_a=1, trans_b=1)
        dgemm(-1.0, coefficients, basis, beta=1.0, c=block.T, trans_a=1, trans_b=1, overwrite_c=1)
    return coefficients


def orthonormalise(block: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return orthonormal columns Q, C order, and R with block = Q R: Cholesky twice, else Householder."""
    total = np.eye(block.shape[1])
    out = block
    for _ in range(2):
        r, info = dpotrf(dsyrk(1.0, out.T), clean=1)
        spread = np.diagonal(r).min() / np.diagonal(r).max() if info == 0 else 0.0
        if spread < 1e-7:
            q, r = qr(block, mode="economic", check_finite=False)
            return np.ascontiguousarray(q), r
        out = dtrsm(1.0, r, out.T, trans_a=1).T
        total = r @ total
        if spread > 0.03:  # orthonormal to 1e-13 at the first turn
            break
    return out, total
