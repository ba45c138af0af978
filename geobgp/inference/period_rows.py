"""Rows of features period by period: what the observations of each period see of its weights.

Counts at the nodes see the same features in every period, of which there is one copy; counts by area see rows of their
own in each. Products that cost O(n m²) are taken part by part of the land, over periods in as many threads as there are
cores.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
from scipy import sparse
from scipy.linalg import blas as scipy_blas

from geobgp.inference.dense import FeatureVariance
from geobgp.inference.features import Part, PartedFeatures
from geobgp.linalg import blas
from geobgp.linalg.threads import cores, together
from geobgp.linalg.tridiagonal import Symmetric

#: Rows that are worked on at a time.
_ROWS = 1024
#: Columns of a triangular factor that are taken together.
_COLUMNS = 64
#: One in so many features, but at least so many, tell how posterior variances answer to the sites.
_TELLING, _LEAST = 4, 64
#: e = 1/√v at the nodes and ½ d log v / d log ℓ; None for a natural prior.
Even = tuple[np.ndarray, np.ndarray] | None


class PeriodRows(Protocol):
    """What the observations see of the features at one lengthscale."""

    #: Where each period's observations begin and end, (T + 1,).
    ends: np.ndarray
    #: Features.
    m: int

    def apply(self, weights: np.ndarray) -> np.ndarray:
        """Return (N, k) from weights (T, m, k)."""
        ...

    def project(self, rows: np.ndarray) -> np.ndarray:
        """Return (T, m, k) from values at the observations (N, k)."""
        ...

    def gram(self, precision: np.ndarray, scale: np.ndarray, out: np.ndarray) -> None:
        """Add the scaled Gram matrices of all periods to the leading blocks of `out` (T, M, M), lower triangles."""
        ...

    def spread(
        self, t: int, covariance: np.ndarray, with_level: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return at the observations of a period: f's variance, its covariance with the level, and how both move.

        Parameters
        ----------
        covariance : (m, m) array
            Of the weights, its lower triangle in Fortran order.
        with_level : (m,) array
            Their covariance with the level.

        Returns
        -------
        variance, level : (n_t,) arrays
        moved : (n_t,) array
            Covariance of f + level with minus the derivative of f in log ℓ, as far as the rows move with it.
        """
        ...

    def moved(self, weights: np.ndarray) -> np.ndarray | None:
        """Return minus the derivative of `apply` in log ℓ, weights held; None if rows do not move."""
        ...

    def fewer(self) -> tuple[PeriodRows, np.ndarray]:
        """Return the rows of the features that tell most, and which these are."""
        ...


class _Work:
    """Buffers and integers of one thread, for products over blocks of rows."""

    def __init__(self, m: int) -> None:
        self._m = m
        self._integers = blas.Integers(max(_ROWS, m) + 1)
        self._buffer = np.empty((_ROWS, m))
        self.block = np.empty((m, m))
        self.lapack = Symmetric(m)

    def gram(self, matrix: np.ndarray, root: np.ndarray) -> np.ndarray:
        """Return Φᵀ diag(root²) Φ in the block, its lower triangle in Fortran order."""
        m = self._integers.at(self._m)
        self.block[:] = 0.0
        for start in range(0, len(matrix), _ROWS):
            stop = min(start + _ROWS, len(matrix))
            rows = self._buffer[: stop - start]
            np.multiply(matrix[start:stop], root[start:stop, None], out=rows)
            blas.dsyrk(
                blas.LOWER, blas.PLAIN, m, self._integers.at(stop - start), blas.ONE, rows.ctypes.data, m,
                blas.ONE, self.block.ctypes.data, m,
            )  # fmt: skip
        return self.block

    def variances(self, matrix: np.ndarray) -> np.ndarray:
        """Return φᵀ A φ of every row, A the matrix of which the block holds the lower factor.

        A few columns of the factor at a time, without those above the diagonal: rows are read where they are.
        """
        at, width, out = self._integers.at, self._m, np.zeros(len(matrix))
        self.block[np.tril_indices(width, -1)] = 0.0  # in Fortran order, what is above the diagonal
        for start in range(0, len(matrix), _ROWS):
            rows = matrix[start : start + _ROWS]
            for left in range(0, width, _COLUMNS):
                wide = min(_COLUMNS, width - left)
                product = self._buffer.ravel()[: len(rows) * wide].reshape(len(rows), wide)
                blas.dgemm(
                    blas.TRANSPOSED, blas.PLAIN, at(wide), at(len(rows)), at(width - left), blas.ONE,
                    self.block.ctypes.data + 8 * (left * width + left), at(width),
                    rows.ctypes.data + 8 * left, at(width), blas.ZERO, product.ctypes.data, at(wide),
                )  # fmt: skip
                out[start : start + _ROWS] += np.einsum("ij,ij->i", product, product)
        return out


def in_threads(n: int, work: Callable[[np.ndarray], None]) -> None:
    """Do work for the numbers below n, a share of them in each thread."""
    shares = np.array_split(np.arange(n), min(max(cores(), 1), max(n, 1)))
    together([lambda mine=mine: work(mine) for mine in shares])  # type: ignore[misc]


class NodeRows:
    """Counts at all nodes in each period: the same features, made even or not."""

    def __init__(
        self, features: PartedFeatures, n_periods: int, even: Even, few: PartedFeatures | None = None
    ) -> None:
        n = features.shape[0]
        self._features, self._even, self._n, self._few = features, even, n_periods, few
        self._e = np.ones(n) if even is None else even[0]
        self.ends, self.m = np.arange(n_periods + 1) * n, features.shape[1]

    def apply(self, weights: np.ndarray) -> np.ndarray:
        """Return e Φ u, period by period."""
        count, m, k = weights.shape
        out = self._features.apply(np.ascontiguousarray(weights.transpose(1, 0, 2)).reshape(m, count * k))
        out *= self._e[:, None]
        return np.ascontiguousarray(out.reshape(len(out), count, k).transpose(1, 0, 2)).reshape(
            len(out) * count, k
        )

    def project(self, rows: np.ndarray) -> np.ndarray:
        """Return Φᵀ e r, period by period."""
        k = rows.shape[1]
        values = rows.reshape(self._n, len(self._e), k) * self._e[:, None]
        flat = np.ascontiguousarray(values.transpose(1, 0, 2)).reshape(len(self._e), self._n * k)
        return np.ascontiguousarray(
            self._features.adjoint(flat).reshape(self.m, self._n, k).transpose(1, 0, 2)
        )

    def gram(self, precision: np.ndarray, scale: np.ndarray, out: np.ndarray) -> None:
        """Add the Gram matrices."""
        weights = precision.reshape(self._n, -1) * self._e**2
        alone = np.arange(self.m - self._features.n_alone, self.m)

        def work(mine: np.ndarray) -> None:
            for part in self._features.parts:
                with_buffers, s, at = _Work(part.matrix.shape[1]), scale[part.columns], part.columns
                for t in mine:
                    root = np.sqrt(weights[t][part.rows])
                    block = with_buffers.gram(part.matrix, root)
                    out[t, at, at] += (s[:, None] * block) * s
            for t in mine:
                out[t, alone, alone] += self._features.alone_gram(weights[t]) * scale[alone] ** 2

        in_threads(self._n, work)

    def spread(
        self, t: int, covariance: np.ndarray, with_level: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return variances and covariances with the level at the nodes."""
        features = self._features
        variance = np.zeros(features.shape[0])
        for part in features.parts:
            variance[part.rows] = _variances(part, covariance)
        alone = np.arange(self.m - features.n_alone, self.m)
        features.add_alone(variance, covariance[alone, alone])
        variance *= self._e**2
        level = self._e * features.apply(with_level)
        slope = 0.0 if self._even is None else self._even[1]
        return variance, level, slope * (variance + level)

    def moved(self, weights: np.ndarray) -> np.ndarray | None:
        """Return minus the derivative of `apply`."""
        if self._even is None:
            return None
        seen = self.apply(weights)
        return np.asarray(seen.reshape(self._n, len(self._e), -1) * self._even[1][:, None]).reshape(
            seen.shape
        )

    def fewer(self) -> tuple[NodeRows, np.ndarray]:
        """Return the rows of the features with the lowest eigenvalues."""
        if self._few is None:
            return self, np.arange(self.m)
        return NodeRows(self._few, self._n, self._even), self._few.order


def _variances(part: Part, covariance: np.ndarray) -> np.ndarray:
    work = _Work(part.matrix.shape[1])
    work.block[:] = covariance[part.columns, part.columns]
    work.lapack.factorise(work.block)
    return work.variances(part.matrix)


class AreaRows:
    """Counts by area: rows of their own in each period, weighted means of the nodes' features.

    Parameters
    ----------
    rows : list of (n_t, n_nodes) csr_arrays
        Of each period.
    features : (n_nodes, m) array
    even : Even
    """

    def __init__(self, rows: list[sparse.csr_array], features: np.ndarray, even: Even) -> None:
        self.ends = np.concatenate([[0], np.cumsum([r.shape[0] for r in rows])])
        self.m = features.shape[1]
        self._matrices, self._moved = [], []
        for r in rows:
            weights = r if even is None else r.multiply(even[0]).tocsr()
            self._matrices.append(np.ascontiguousarray(weights @ features))
            if even is not None:
                self._moved.append(np.ascontiguousarray(weights.multiply(even[1]).tocsr() @ features))

    def _over(self, matrices: list[np.ndarray], weights: np.ndarray) -> np.ndarray:
        return np.concatenate([matrix @ u for matrix, u in zip(matrices, weights, strict=True)])

    def apply(self, weights: np.ndarray) -> np.ndarray:
        """Return the rows' values, period by period."""
        return self._over(self._matrices, weights)

    def project(self, rows: np.ndarray) -> np.ndarray:
        """Return what the rows add up to, period by period."""
        parts = np.split(rows, self.ends[1:-1])
        return np.stack([matrix.T @ r for matrix, r in zip(self._matrices, parts, strict=True)])

    def gram(self, precision: np.ndarray, scale: np.ndarray, out: np.ndarray) -> None:
        """Add the Gram matrices."""
        roots = np.split(np.sqrt(precision), self.ends[1:-1])
        s = scale[: self.m]

        def work(mine: np.ndarray) -> None:
            buffers = _Work(self.m)
            for t in mine:
                block = buffers.gram(self._matrices[t], roots[t])
                out[t, : self.m, : self.m] += (s[:, None] * block) * s

        in_threads(len(roots), work)

    def spread(
        self, t: int, covariance: np.ndarray, with_level: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return variances and covariances with the level at the rows."""
        matrix = self._matrices[t]
        tied = scipy_blas.dsymm(1.0, covariance.T, matrix.T, lower=1)
        variance = np.einsum("ij,ji->i", matrix, tied)
        level = matrix @ with_level
        if not self._moved:
            return variance, level, np.zeros(len(matrix))
        moved = self._moved[t]
        return variance, level, np.einsum("ij,ji->i", moved, tied) + moved @ with_level

    def moved(self, weights: np.ndarray) -> np.ndarray | None:
        """Return minus the derivative of `apply`."""
        return self._over(self._moved, weights) if self._moved else None

    def fewer(self) -> tuple[AreaRows, np.ndarray]:
        """Return all of them: rows are few."""
        return self, np.arange(self.m)


class NodeRowsAt:
    """The nodes' rows as a function of the lengthscale; the last ones are remembered."""

    def __init__(
        self,
        features: PartedFeatures,
        n_periods: int,
        variance: FeatureVariance | None,
        eigenvalues: np.ndarray,
    ) -> None:
        self.features, self._n, self._variance = features, n_periods, variance
        self._kept: tuple[float, NodeRows] | None = None
        # Features of high eigenvalues hardly tell how posterior variances answer to the sites.
        enough = max(len(eigenvalues) // _TELLING, _LEAST)
        few = enough < len(eigenvalues)
        self._few = features.truncate(eigenvalues <= np.sort(eigenvalues)[enough - 1]) if few else None

    def __call__(self, log_length: float) -> NodeRows:
        """Return the rows at a lengthscale."""
        if self._kept is None or self._kept[0] != log_length:
            even: Even = None
            if self._variance is not None:
                log_v, slope = self._variance.log_variance(log_length)
                even = np.exp(-0.5 * log_v), 0.5 * slope
            self._kept = log_length, NodeRows(self.features, self._n, even, self._few)
        return self._kept[1]
