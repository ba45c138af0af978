"""Features at the observations, part by part of the land, and the products that an engine needs of them.

Features of land that nothing connects never overlap: the Gram matrix is block-diagonal, and a round costs the sum
over parts of rows times squared features. Parts with one feature, the constants of islets, are kept together in
flat arrays, so that thousands of them cost no more than their rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.linalg import blas

#: Rows that are worked on at a time: a block of 1,024 features takes 16 MB.
_ROWS = 2048


@dataclass(frozen=True, eq=False)
class Part:
    """Features of one part of the land at its observations.

    Attributes
    ----------
    rows : (n_c,) int array, or a slice
        Its observations.
    columns : slice
        Its features among all.
    matrix : (n_c, m_c) array, C order
    """

    rows: np.ndarray | slice
    columns: slice
    matrix: np.ndarray = field(repr=False)


@dataclass(frozen=True, eq=False)
class Blocks:
    """A block-diagonal matrix over the features: a dense block per part, a number for each that stands alone."""

    dense: list[np.ndarray]
    alone: np.ndarray


class PartedFeatures:
    """Features at observations; columns are grouped by part, those of parts with one feature come last.

    Parameters
    ----------
    n : int
        Observations; those that belong to no part have no features.
    rows : sequence of (n_c,) int arrays, or slices
        The observations of each part.
    matrices : sequence of (n_c, m_c) arrays
        Its features there; in C order they are not copied.
    columns : sequence of (m_c,) int arrays, optional
        What its features are called outside; numbered through by default.

    Attributes
    ----------
    order : (m,) int array
        What each column here is called outside.

    Examples
    --------
    >>> mainland, islet = np.array([[1.0, 2.0], [3.0, 4.0]]), np.ones((1, 1))
    >>> phi = PartedFeatures(3, [np.array([0, 2]), np.array([1])], [mainland, islet])
    >>> phi.apply(np.array([1.0, 0.0, 10.0]))
    array([ 1., 10.,  3.])
    """

    def __init__(
        self,
        n: int,
        rows: Sequence[np.ndarray | slice],
        matrices: Sequence[np.ndarray],
        columns: Sequence[np.ndarray] | None = None,
    ) -> None:
        widths = np.array([matrix.shape[1] for matrix in matrices], int)
        if columns is None:
            columns = np.split(np.arange(widths.sum()), np.cumsum(widths)[:-1])
        several = np.flatnonzero(widths > 1)
        single = np.flatnonzero(widths == 1)
        ends = np.cumsum(widths[several])
        self.parts = [
            Part(rows[k], slice(int(end - widths[k]), int(end)), np.ascontiguousarray(matrices[k]))
            for k, end in zip(several, ends, strict=True)
        ]
        self.order = np.concatenate([*(columns[k] for k in np.r_[several, single]), np.zeros(0, int)])
        first = int(ends[-1]) if len(ends) else 0
        self.shape = (n, first + len(single))
        self._alone = slice(first, self.shape[1])
        everything = np.arange(n)
        own = [everything[rows[k]] for k in single]
        self._rows = np.concatenate([*own, np.zeros(0, int)])
        self._part = np.repeat(np.arange(len(single)), [len(r) for r in own])
        self._values = np.concatenate([*(matrices[k][:, 0] for k in single), np.zeros(0)])

    def truncate(self, keep: np.ndarray) -> PartedFeatures:
        """Return the features for which `keep` (m,) holds, which are the first ones within each part.

        Columns are called by their numbers here; those that stand alone are all kept.
        """
        rows: list[np.ndarray | slice] = [part.rows for part in self.parts]
        width = [int(keep[part.columns].sum()) for part in self.parts]
        matrices = [part.matrix[:, :w] for part, w in zip(self.parts, width, strict=True)]
        columns = [part.columns.start + np.arange(w) for part, w in zip(self.parts, width, strict=True)]
        alone = self._alone.start + np.arange(self.shape[1] - self._alone.start)
        ends = np.searchsorted(self._part, np.arange(len(alone) + 1))
        for k, column in enumerate(alone):
            mine = slice(ends[k], ends[k + 1])
            rows.append(self._rows[mine])
            matrices.append(self._values[mine, None])
            columns.append(np.array([column]))
        return PartedFeatures(self.shape[0], rows, matrices, columns)

    def apply(self, weights: np.ndarray) -> np.ndarray:
        """Return Φ u, (n,), or (n, k) for several u (m, k)."""
        out = np.zeros((self.shape[0], *weights.shape[1:]))
        for part in self.parts:
            out[part.rows] = _product(part.matrix, weights[part.columns])
        if len(self._rows):
            values = self._values if weights.ndim == 1 else self._values[:, None]
            out[self._rows] = values * weights[self._alone][self._part]
        return out

    def adjoint(self, rows: np.ndarray) -> np.ndarray:
        """Return Φᵀ r, (m,), or (m, k) for several r (n, k)."""
        out = np.zeros((self.shape[1], *rows.shape[1:]))
        for part in self.parts:
            out[part.columns] = _product(part.matrix.T, rows[part.rows])
        if len(self._rows):
            values = self._values if rows.ndim == 1 else self._values[:, None]
            np.add.at(out[self._alone], self._part, values * rows[self._rows])
        return out

    def squares(self, weights: np.ndarray) -> np.ndarray:
        """Return Σ_j φ_j² s_j at every observation, (n, k), for weights s (m, k)."""
        out = np.zeros((self.shape[0], weights.shape[1]))
        for part in self.parts:
            found = np.empty((len(part.matrix), weights.shape[1]))
            mine = np.asfortranarray(weights[part.columns])
            for start in range(0, len(part.matrix), _ROWS):
                square = np.square(part.matrix[start : start + _ROWS])
                found[start : start + _ROWS] = blas.dgemm(1.0, square.T, mine, trans_a=1)
            out[part.rows] = found
        if len(self._rows):
            out[self._rows] = np.square(self._values)[:, None] * weights[self._alone][self._part]
        return out

    def gram(self, weights: np.ndarray) -> Blocks:
        """Return Φᵀ diag(w) Φ, the lower triangles of its blocks in Fortran order; w >= 0."""
        root = np.sqrt(weights)
        dense = []
        for part in self.parts:
            n, m = part.matrix.shape
            out = np.zeros((m, m), order="F")
            mine = root[part.rows]
            buffer = np.empty((min(_ROWS, n), m))
            for start in range(0, n, _ROWS):
                stop = min(start + _ROWS, n)
                rows = np.multiply(
                    part.matrix[start:stop], mine[start:stop, None], out=buffer[: stop - start]
                )
                out = blas.dsyrk(1.0, rows.T, beta=1.0, c=out, lower=1, overwrite_c=1)
            dense.append(out)
        return Blocks(dense, self.alone_gram(weights))

    @property
    def n_alone(self) -> int:
        """How many features, the last ones, stand alone on their part of the land."""
        return self.shape[1] - self._alone.start

    def alone_gram(self, weights: np.ndarray) -> np.ndarray:
        """Return Σ w φ² of each feature that stands alone."""
        return np.bincount(self._part, self._values**2 * weights[self._rows], self.n_alone)

    def add_alone(self, out: np.ndarray, squares: np.ndarray) -> None:
        """Add φ² s at the observations of features that stand alone, s (n_alone,)."""
        out[self._rows] += self._values**2 * squares[self._part]

    def variances(self, half: Blocks) -> np.ndarray:
        """Return the squared length of ``half @ row`` at every observation; the blocks are lower triangular."""
        out = np.zeros(self.shape[0])
        for part, block in zip(self.parts, half.dense, strict=True):
            n, m = part.matrix.shape
            found, buffer = np.empty(n), np.empty((min(_ROWS, n), m))
            for start in range(0, n, _ROWS):
                stop = min(start + _ROWS, n)
                rows = buffer[: stop - start]
                rows[:] = part.matrix[start:stop]
                product = blas.dtrmm(1.0, block, rows.T, lower=1, overwrite_b=1)
                found[start:stop] = np.einsum("ij,ij->j", product, product)
            out[part.rows] = found
        if len(self._rows):
            out[self._rows] = np.square(self._values * half.alone[self._part])
        return out

    def covariance(self, half: Blocks, rows: np.ndarray) -> np.ndarray:
        """Return the products of ``half @ row`` among some observations, dense; the blocks are lower triangular."""
        out = np.zeros((len(rows), len(rows)))
        place = np.full(self.shape[0], -1)
        place[rows] = np.arange(len(rows))
        for part, block in zip(self.parts, half.dense, strict=True):
            there = place[part.rows]
            mine = np.flatnonzero(there >= 0)
            if len(mine):
                product = blas.dtrmm(1.0, block, part.matrix[mine].T, lower=1)
                at = there[mine]
                lower = blas.dsyrk(1.0, product, trans=1, lower=1)
                out[np.ix_(at, at)] = np.tril(lower) + np.tril(lower, -1).T
        mine = np.flatnonzero(place[self._rows] >= 0)
        at, part_of = place[self._rows[mine]], self._part[mine]
        value = self._values[mine] * half.alone[part_of]
        out[np.ix_(at, at)] += np.where(part_of[:, None] == part_of, value[:, None] * value, 0.0)
        return out

    def split(self, vector: np.ndarray) -> Blocks:
        """Return a vector over the features (m,) by part."""
        return Blocks([vector[part.columns] for part in self.parts], vector[self._alone])

    def join(self, blocks: Blocks) -> np.ndarray:
        """Return a vector over the features (m,), or several (m, k), from its parts."""
        return np.concatenate([*blocks.dense, blocks.alone])


def _product(matrix: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """Return matrix @ vectors through SciPy's BLAS, for a matrix contiguous in either order."""
    if matrix.size == 0 or vectors.size == 0:
        return np.zeros((matrix.shape[0], *vectors.shape[1:]))
    turned = matrix.flags.c_contiguous and not matrix.flags.f_contiguous
    operand, transposed = (matrix.T, 1) if turned else (matrix, 0)
    if vectors.ndim == 1:
        return blas.dgemv(1.0, operand, vectors, trans=transposed)
    return blas.dgemm(1.0, operand, vectors, trans_a=transposed)
