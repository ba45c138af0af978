"""Powers: sums of powers of a sparse matrix on one pattern, ready to be factorised again and again."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from geobgp.errors import SizeError, option
from geobgp.linalg.cholesky import Cholesky
from geobgp.linalg.fronts import Fronts
from geobgp.linalg.memory import free_memory
from geobgp.text import number, percent

#: Share of the memory that is free now which a factor may take.
_MEMORY_SHARE = 0.7


class Powers:
    """Matrices Σ a_k S^k + Oᵀ diag(w) O on one pattern, and the fronts to factorise them.

    Parameters
    ----------
    matrix : (u, u) csr_array
        S.
    power : int
        Highest power.
    cells : (u, 2) array
        Where the unknowns lie.
    observe : (k, u) csr_array, optional
        O.
    """

    def __init__(
        self, matrix: sp.csr_array, power: int, cells: np.ndarray, observe: sp.csr_array | None = None
    ) -> None:
        u = matrix.shape[0]
        terms = [sp.csr_array(sp.identity(u, format="csr"))]
        for _ in range(power):
            terms.append(symmetric(sp.csr_array(terms[-1] @ matrix)))
        structure = sum((_ones(t) for t in terms), start=sp.csr_array((u, u)))
        if observe is not None:
            structure = structure + _ones(sp.csr_array(observe.T @ observe))
        self.pattern = sp.csr_array(structure)
        self.pattern.sort_indices()
        self.terms = [self._spread(t) for t in terms]
        self.diagonal = np.flatnonzero(self.pattern.indices == self.rows)
        self._cells = cells
        self._observe = None if observe is None else self._products(observe)
        self._observed = None if self._observe is None else sp.csr_array(self._observe.T)

    @cached_property
    def fronts(self) -> Fronts:
        """The plan of their factors."""
        return Fronts.of(self.pattern, self._cells.astype(float))

    def __getstate__(self) -> dict[str, Any]:
        return {
            name: value for name, value in self.__dict__.items() if name != "fronts"
        }  # which know addresses

    @cached_property
    def rows(self) -> np.ndarray:
        """Row of every entry."""
        return np.repeat(np.arange(self.pattern.shape[0]), np.diff(self.pattern.indptr))

    def _spread(self, term: sp.csr_array) -> np.ndarray:
        """Return a matrix's entries in the pattern's order, zero where it has none."""
        coo = term.tocoo()
        out = np.zeros(self.pattern.nnz)
        out[self._find(coo.coords[0], coo.coords[1])] = coo.data
        return out

    def _find(self, rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
        """Return where entries lie in the pattern, -1 where it has none."""
        u = np.int64(self.pattern.shape[0])
        key = self.rows * u + self.pattern.indices
        wanted = rows.astype(np.int64) * u + cols
        at = np.minimum(np.searchsorted(key, wanted), len(key) - 1)
        return np.where(key[at] == wanted, at, -1)

    def _products(self, observe: sp.csr_array) -> sp.csr_array:
        """Return the matrix that takes observations' weights w to the entries of Oᵀ diag(w) O."""
        row, left, right, value = _pairs(observe)
        at = self._find(left, right)
        shape = (self.pattern.nnz, observe.shape[0])
        return sp.csr_array((value, (at, row)), shape=shape)

    def factor(self, coefficients: np.ndarray, weights: np.ndarray | None = None) -> Cholesky:
        """Return the factor of Σ a_k S^k + Oᵀ diag(w) O."""
        return Cholesky(self.fronts, self.entries(coefficients, weights))

    def entries(self, coefficients: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
        """Return the entries of Σ a_k S^k + Oᵀ diag(w) O in the pattern's order."""
        out = coefficients[0] * self.terms[0]
        for a, term in zip(coefficients[1:], self.terms[1:], strict=False):
            out += a * term
        if weights is not None:
            assert self._observe is not None
            out += self._observe @ weights
        return out

    def observed(self, entries: np.ndarray) -> np.ndarray:
        """Return O_i X O_iᵀ for every observation and a matrix X given by entries in the pattern."""
        assert self._observed is not None
        return self._observed @ entries

    def quadratic(self, entries: np.ndarray, rows: sp.csr_array) -> np.ndarray:
        """Return rows_i X rows_iᵀ for a matrix X given by entries in the pattern; NaN where it lacks one."""
        row, left, right, value = _pairs(rows)
        at = self._find(left, right)
        found = np.where(at >= 0, entries[at], np.nan)
        return np.bincount(row, value * found, rows.shape[0])

    def check_memory(self) -> None:
        """Raise an error, with numbers, if a factor would not fit into memory."""
        need, free = self.fronts.memory, free_memory()
        if free is not None and need > _MEMORY_SHARE * free:
            u = self.pattern.shape[0]
            factor = np.sqrt(need / (_MEMORY_SHARE * free))
            features = option("m", "auto", python="a HarmonicBasis")
            raise SizeError(
                f"Full resolution with {u:,} unknowns needs about {need / 1e9:.1f} GB for one factor; "
                f"{free / 1e9:.1f} GB are free, of which up to {percent(_MEMORY_SHARE)} may be used.",
                option="m",
                found=need,
                remedy=f"Use cells {number(factor, 2)} times as large, or {features}.",
            )


def _pairs(rows: sp.csr_array) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return (row, column, column, product) of all pairs of entries in the same row."""
    rows = sp.csr_array(rows)
    count = np.diff(rows.indptr)
    first = np.repeat(np.arange(rows.nnz), np.repeat(count, count))
    row = np.repeat(np.arange(rows.shape[0]), count**2)
    begin = np.repeat(rows.indptr[:-1], count**2)
    inside = np.arange(len(first)) - np.repeat(np.cumsum(count**2) - count**2, count**2)
    second = begin + inside % np.maximum(np.repeat(count, count**2), 1)
    return row, rows.indices[first], rows.indices[second], rows.data[first] * rows.data[second]


def _ones(matrix: sp.csr_array) -> sp.csr_array:
    out = sp.csr_array(matrix)
    return sp.csr_array((np.ones(out.nnz), out.indices, out.indptr), shape=out.shape)


def symmetric(matrix: sp.csr_array) -> sp.csr_array:
    """Return the mean of a matrix and its transpose, which rounding may have parted."""
    out = sp.csr_array((matrix + matrix.T) * 0.5)
    out.sort_indices()
    return out
