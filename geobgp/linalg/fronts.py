"""Fronts: sparse symmetric matrices eliminated in dense blocks, along the tree of an `Ordering`.

A *front* is a set of unknowns that are eliminated together, with its *border*: the later unknowns that they
touch. Its columns of the matrix are two dense blocks, `own` (k, k) and `side` (b, k). Eliminating it leaves
an update of its border, `rest` (b, b), which is added to the blocks of the front above. Blocks are in Fortran
order, and of symmetric ones only the lower triangle counts. The same way back leads to solutions.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.linalg.blas import dgemm, dsyrk, dtrsm
from scipy.linalg.lapack import dpotrf

from geobgp.linalg.ordering import nested_dissection

#: Parts up to this size are eliminated as one front.
_LEAF = 64
#: Borders that fall into more than one run for so many unknowns are moved by index, others by slices.
_RUN = 8

#: Which of the blocks own, side and rest of the front above; where in it; and where in the update.
_Move = tuple[int, Any, tuple[slice, slice]]
#: The blocks own, side and rest.
Blocks = tuple[np.ndarray, np.ndarray, np.ndarray]
#: A front's start, stop and border, and its columns of a factor: the blocks own and side.
Column = tuple[int, int, np.ndarray, np.ndarray, np.ndarray]


class Front(NamedTuple):
    """Unknowns start:stop, in the order of elimination, and their border."""

    start: int
    stop: int
    border: np.ndarray
    #: The front above, -1 if there is none, and those whose updates this one takes.
    parent: int
    children: tuple[int, ...]
    #: Where the border lies in the front above; by index or by slices.
    moves: tuple[_Move, ...]
    by_index: bool
    #: Which of the lower triangle's entries go into its columns.
    entries: slice

    def columns(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the blocks `own` and `side` as views of a vector."""
        k = self.stop - self.start
        return values[: k * k].reshape(k, k).T, values[k * k :].reshape(k, -1).T

    def add(self, update: np.ndarray, above: Blocks) -> None:
        """Add this front's update to the blocks of the front above."""
        for block, there, here in self.moves:
            if self.by_index:
                above[block][there] += update[here]
            else:
                part = above[block][there]
                part += update[here]

    def take(self, above: Blocks) -> np.ndarray:
        """Return the border's part of the blocks of the front above."""
        out = np.empty((len(self.border), len(self.border)), order="F")
        for block, there, here in self.moves:
            out[here] = above[block][there]
        return out


@dataclass(frozen=True, eq=False)
class Fronts:
    """The fronts for one pattern; every matrix with that pattern can be factorised by them.

    Attributes
    ----------
    order : (n,) array
        Unknowns in the order of elimination.
    entries : int
        Number of entries of a factor.
    place : array
        Where the matrix's lower triangle, in the order of elimination, lies in the columns of its fronts.
    lower, upper : array
        Which of the pattern's entries these are, and their mirror images.
    """

    n: int
    order: np.ndarray = field(repr=False)
    fronts: tuple[Front, ...] = field(repr=False)
    entries: int
    place: np.ndarray = field(repr=False)
    lower: np.ndarray = field(repr=False)
    upper: np.ndarray = field(repr=False)

    @classmethod
    def of(cls, pattern: sp.csr_array, coords: np.ndarray | None = None, leaf: int = _LEAF) -> Fronts:
        """Plan the elimination of matrices with a symmetric pattern.

        Parameters
        ----------
        pattern : (n, n) csr_array
            Sorted indices, symmetric, with the whole diagonal; only its structure is used.
        coords : (n, d) array, optional
            Where the unknowns lie; any unit.
        leaf : int
            Sets up to this size are eliminated as one front.
        """
        n = pattern.shape[0]
        ordering = nested_dissection(pattern, coords, leaf)
        order, starts = ordering.order, ordering.starts
        rank = np.empty(n, np.int64)
        rank[order] = np.arange(n)
        # The entries, unknown by unknown in the order of elimination, and of these the lower triangle.
        degree = np.diff(pattern.indptr)[order]
        lower = np.arange(pattern.nnz) + np.repeat(pattern.indptr[order] - np.cumsum(degree) + degree, degree)
        row, col = rank[pattern.indices[lower]], np.repeat(np.arange(n), degree)
        below = row >= col
        lower, row, col = lower[below], row[below], col[below]
        bounds = np.searchsorted(col, starts)
        borders = _borders(row, bounds, starts, ordering.parents)
        # Where each unknown's column starts in `own`, and behind it in `side`.
        own, side = np.diff(starts), np.array([len(border) for border in borders], np.int64)
        front = np.repeat(np.arange(len(own)), own)
        inside = np.arange(n) - starts[front]
        in_own = inside * own[front]
        in_side = own[front] ** 2 + inside * side[front]
        place = in_own[col] + row - starts[front[col]]
        outside = np.flatnonzero(row >= starts[front[col] + 1])
        for here, border in zip(
            np.split(outside, np.searchsorted(outside, bounds[1:-1])), borders, strict=True
        ):
            place[here] = in_side[col[here]] + np.searchsorted(border, row[here])
        mirror = sp.csr_array(
            (np.arange(pattern.nnz), pattern.indices, pattern.indptr), shape=(n, n)
        ).T.tocsr()
        fronts = tuple(_fronts(starts, ordering.parents, borders, bounds))
        return cls(n, order, fronts, int((own * (own + side)).sum()), place, lower, mirror.data[lower])

    @property
    def memory(self) -> int:
        """Bytes that a factor and the largest blocks take at the same time, about."""
        largest = max(front.stop - front.start + len(front.border) for front in self.fronts)
        return 8 * (self.entries + 6 * largest**2)

    def eliminate(
        self, data: np.ndarray, shift: float, indefinite: Callable[[Front, Blocks, np.ndarray], None]
    ) -> list[Column]:
        """Eliminate the matrix with entries `data`, in the pattern's order, minus `shift` times the identity.

        A front whose own block is not positive definite is left to ``indefinite(front, blocks, own)``, which
        eliminates it in place; `own` is the block as it was.

        Returns
        -------
        The columns of a lower triangular factor L.
        """
        lower = data[self.lower]
        columns: list[Column] = []
        rests: dict[int, np.ndarray] = {}
        for number, front in enumerate(self.fronts):
            k = front.stop - front.start
            values = np.zeros(k * (k + len(front.border)))
            values[self.place[front.entries]] = lower[front.entries]
            values[: k * k : k + 1] -= shift
            own, side = front.columns(values)
            blocks = own, side, np.zeros((len(side), len(side)), order="F")
            for child in front.children:
                self.fronts[child].add(rests.pop(child), blocks)
            before = own.copy(order="F")
            if dpotrf(own, lower=1, clean=0, overwrite_a=1)[1] != 0:
                indefinite(front, blocks, before)
            elif len(side):
                dtrsm(1.0, own, side, side=1, lower=1, trans_a=1, overwrite_b=1)
                dsyrk(-1.0, side, beta=1.0, c=blocks[2], lower=1, overwrite_c=1)
            rests[number] = blocks[2]
            columns.append((front.start, front.stop, front.border, own, side))
        return columns


def forward(columns: list[Column], x: np.ndarray, pivots: dict[int, np.ndarray]) -> None:
    """Replace (n, p) right-hand sides, C order, by L⁻¹ x; unknowns from a key of `pivots` on are permuted."""
    for start, stop, border, own, side in columns:
        mine = x[start:stop]
        if start in pivots:
            mine[:] = mine[pivots[start]]
        dtrsm(1.0, own, mine.T, side=1, lower=1, trans_a=1, overwrite_b=1)
        if len(border):
            taken = x.take(border, axis=0).T
            x[border] = dgemm(-1.0, mine.T, side, beta=1.0, c=taken, trans_b=1, overwrite_c=1).T


def backward(columns: list[Column], x: np.ndarray, pivots: dict[int, np.ndarray]) -> None:
    """Replace (n, p) right-hand sides, C order, by L⁻ᵀ x."""
    for start, stop, border, own, side in reversed(columns):
        mine = x[start:stop]
        if len(border):
            dgemm(-1.0, x.take(border, axis=0).T, side, beta=1.0, c=mine.T, overwrite_c=1)
        dtrsm(1.0, own, mine.T, side=1, lower=1, overwrite_b=1)
        if start in pivots:
            mine[pivots[start]] = mine.copy()


def _borders(
    row: np.ndarray, bounds: np.ndarray, starts: np.ndarray, parents: np.ndarray
) -> list[np.ndarray]:
    """Return each front's border: what its unknowns, or the fronts below it, touch beyond it."""
    borders: list[np.ndarray] = []
    touched: list[list[np.ndarray]] = [[row[a:b]] for a, b in itertools.pairwise(bounds)]
    for number, (stop, parent) in enumerate(zip(starts[1:], parents, strict=True)):
        beyond = np.concatenate([rows[rows >= stop] for rows in touched[number]])
        borders.append(np.unique(beyond))
        if parent >= 0:
            touched[parent].append(borders[-1])
    return borders


def _fronts(
    starts: np.ndarray, parents: np.ndarray, borders: list[np.ndarray], bounds: np.ndarray
) -> Iterator[Front]:
    """Yield the fronts, with the places of their borders in the fronts above."""
    children: list[list[int]] = [[] for _ in borders]
    for number, (border, parent) in enumerate(zip(borders, parents.tolist(), strict=True)):
        moves: tuple[_Move, ...] = ()
        by_index = False
        if parent >= 0:
            children[parent].append(number)
            own = int(np.searchsorted(border, starts[parent + 1]))
            place = np.searchsorted(borders[parent], border)
            place[:own] = border[:own] - starts[parent]
            moves, by_index = _moves(place, own)
        start, stop = int(starts[number]), int(starts[number + 1])
        entries = slice(int(bounds[number]), int(bounds[number + 1]))
        yield Front(start, stop, border, parent, tuple(children[number]), moves, by_index, entries)


def _moves(place: np.ndarray, own: int) -> tuple[tuple[_Move, ...], bool]:
    """Return how a border at `place`, its first `own` unknowns in the block `own`, moves; and if by index."""
    # A run ends where the numbers jump, and where the columns of the front above end.
    ends = sorted({0, own, len(place), *(1 + np.flatnonzero(np.diff(place) != 1)).tolist()})
    by_index = (len(ends) - 1) * _RUN > len(place)
    if by_index:
        ends = sorted({0, own, len(place)})
    runs = [(slice(a, b), slice(int(place[a]), int(place[b - 1]) + 1)) for a, b in itertools.pairwise(ends)]
    moves: list[_Move] = []
    for (col, to_col), (row, to_row) in itertools.combinations_with_replacement(runs, 2):
        there: Any = np.ix_(place[row], place[col]) if by_index else (to_row, to_col)
        moves.append((int(col.start >= own) + int(row.start >= own), there, (row, col)))
    return tuple(moves), by_index
