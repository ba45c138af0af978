"""Sparse Cholesky factors on a plane: nested dissection, solves, determinants and selected inverses.

The unknowns lie on a grid, so their coordinates give the elimination order: a set is cut in two by a line of
unknowns (the separator), each half is eliminated first, and the separator last. A *block* is a separator or a
small set that is not cut any further; all arithmetic is dense, block by block:

- a block's *front* has its own columns and its boundary: the later unknowns that it touches;
- eliminating a block leaves an update of its boundary, which is added to its parent's front.

The selected inverse (all entries of the inverse within the matrix's pattern, exactly) goes the same way back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import scipy.sparse as sp
from scipy.linalg import blas, lapack

#: Sets up to this size are eliminated as one dense block.
_LEAF = 96
#: Boundaries with fewer runs than a share of their length are moved by slices, others by index.
_RUNS = 6


@dataclass(frozen=True, eq=False)
class _Block:
    """One step of the elimination."""

    start: int
    stop: int
    boundary: np.ndarray
    parent: int
    #: Positions of the boundary in the parent's front, and the same as runs (child start, parent start,
    #: length).
    place: np.ndarray
    runs: tuple[tuple[int, int, int], ...]
    #: Where the matrix's entries go in the front's own columns, and which entries they are (both halves).
    position: np.ndarray
    lower: np.ndarray
    upper: np.ndarray

    own: int
    size: int
    #: Whether the boundary is moved by index: it falls into too many runs.
    scattered: bool


@dataclass(frozen=True, eq=False)
class Plan:
    """The order of elimination for one pattern; every matrix with that pattern can be factorised by it.

    Attributes
    ----------
    order : (n,) array
        Unknowns in the order of elimination.
    """

    n: int
    order: np.ndarray = field(repr=False)
    blocks: tuple[_Block, ...] = field(repr=False)

    @classmethod
    def make(cls, pattern: sp.csr_array, coords: np.ndarray, leaf: int = _LEAF) -> Plan:
        """Plan the elimination of matrices with a symmetric pattern.

        Parameters
        ----------
        pattern : (n, n) csr_array
            Sorted indices, symmetric, with the whole diagonal; only its structure is used.
        coords : (n, 2) array
            Where the unknowns lie; any unit.
        """
        n = pattern.shape[0]
        label = _dissect(pattern, coords, leaf)
        labels, blocks_of = np.unique(label, return_inverse=True)
        sequence, parents = _postorder(labels)
        rank = np.empty(len(labels), np.int64)
        rank[sequence] = np.arange(len(labels))
        # Within a block, along its longer side, so that boundaries fall into few runs.
        wide = _wider_axis(blocks_of, coords, len(labels))
        along = np.where(wide[blocks_of], coords[:, 1], coords[:, 0])
        across = np.where(wide[blocks_of], coords[:, 0], coords[:, 1])
        order = np.lexsort((across, along, rank[blocks_of]))
        counts = np.bincount(rank[blocks_of], minlength=len(labels))
        blocks = tuple(_structure(pattern, order, np.r_[0, np.cumsum(counts)], parents))
        return cls(n, order, blocks)

    @property
    def entries(self) -> int:
        """Number of entries of a factor."""
        return sum(b.own * b.size for b in self.blocks)

    @property
    def memory(self) -> int:
        """Bytes that a factor and the largest fronts take at the same time, about."""
        largest = max((b.size**2 for b in self.blocks), default=0)
        return 8 * (self.entries + 6 * largest)

    def factor(self, data: np.ndarray) -> Factor:
        """Return the factor of the matrix whose entries, in the pattern's order, are `data`.

        Raises
        ------
        numpy.linalg.LinAlgError
            If the matrix is not positive definite.
        """
        panels: list[np.ndarray] = []
        updates: dict[int, np.ndarray] = {}
        children = self.children
        diagonals: list[np.ndarray] = []
        for number, block in enumerate(self.blocks):
            k, size = block.own, block.size
            panel = np.zeros((size, k), order="F")
            panel.ravel(order="K")[block.position] = data[block.lower]
            rest = np.zeros((size - k, size - k), order="F")
            for child in children[number]:
                _add(panel, rest, updates.pop(child), self.blocks[child])
            top, info = lapack.dpotrf(panel[:k], lower=1, clean=1)
            if info != 0:
                raise np.linalg.LinAlgError("the matrix is not positive definite")
            panel[:k] = top
            diagonals.append(top.diagonal())
            if size > k:
                below = blas.dtrsm(1.0, top, panel[k:], side=1, lower=1, trans_a=1)
                panel[k:] = below
                updates[number] = blas.dsyrk(-1.0, below, beta=1.0, c=rest, lower=1, overwrite_c=1)
            panels.append(panel)
        return Factor(self, tuple(panels), 2.0 * float(np.log(np.concatenate(diagonals)).sum()))

    @cached_property
    def children(self) -> list[list[int]]:
        """Blocks whose updates go to each block."""
        out: list[list[int]] = [[] for _ in self.blocks]
        for number, block in enumerate(self.blocks):
            if block.parent >= 0 and len(block.boundary):
                out[block.parent].append(number)
        return out


@dataclass(frozen=True, eq=False)
class Factor:
    """A Cholesky factor L (of the matrix in elimination order), in dense panels.

    Attributes
    ----------
    log_det : float
        Log determinant of the matrix.
    """

    plan: Plan
    panels: tuple[np.ndarray, ...] = field(repr=False)
    log_det: float

    def solve(self, right: np.ndarray) -> np.ndarray:
        """Return the matrix's inverse times (n,) or (n, k) right-hand sides."""
        work = np.array(right, float).reshape(self.plan.n, -1)[self.plan.order]
        self._forward(work)
        return self._backward(work).reshape(np.shape(right))

    def half_solve(self, right: np.ndarray) -> np.ndarray:
        """Return x = P L⁻ᵀ right: for standard normal (n, k) draws, draws with the inverse as covariance."""
        return self._backward(np.array(right, float).reshape(self.plan.n, -1)).reshape(np.shape(right))

    def _forward(self, work: np.ndarray) -> None:
        for block, panel in zip(self.plan.blocks, self.panels, strict=True):
            k = block.own
            own = blas.dtrsm(1.0, panel[:k], work[block.start : block.stop], lower=1)
            work[block.start : block.stop] = own
            if len(block.boundary):
                work[block.boundary] -= blas.dgemm(1.0, panel[k:], own)

    def _backward(self, work: np.ndarray) -> np.ndarray:
        for block, panel in zip(reversed(self.plan.blocks), reversed(self.panels), strict=True):
            k = block.own
            own = work[block.start : block.stop]
            if len(block.boundary):
                own = own - blas.dgemm(1.0, panel[k:], work[block.boundary], trans_a=1)
            work[block.start : block.stop] = blas.dtrsm(1.0, panel[:k], own, lower=1, trans_a=1)
        out = np.empty_like(work)
        out[self.plan.order] = work
        return out

    def selected_inverse(self, length: int) -> np.ndarray:
        """Return the inverse's entries at the pattern's `length` places, in the pattern's order."""
        out = np.empty(length)
        fronts: dict[int, np.ndarray] = {}
        children = self.plan.children
        pending = [len(c) for c in children]
        for number in reversed(range(len(self.panels))):
            block, panel = self.plan.blocks[number], self.panels[number]
            k, size, inner = block.own, block.size, bool(children[number])
            # Lower triangles throughout: a child's boundary lies in its parent's front in the same order.
            inverse = np.empty((size, size if inner else k), order="F")
            inverse[:k, :k] = lapack.dpotri(panel[:k], lower=1)[0]
            if size > k:
                outer = _take(fronts[block.parent], block)
                pending[block.parent] -= 1
                if pending[block.parent] == 0:
                    del fronts[block.parent]
                ratio = blas.dtrsm(1.0, panel[:k], panel[k:], side=1, lower=1)
                cross = blas.dsymm(-1.0, outer, ratio, lower=1)
                inverse[:k, :k] -= blas.dgemm(1.0, ratio, cross, trans_a=1)
                inverse[k:, :k] = cross
                if inner:
                    inverse[k:, k:] = outer
            found = inverse.ravel(order="K")[block.position]
            out[block.lower] = found
            out[block.upper] = found
            if inner:
                fronts[number] = inverse
        return out


def _add(panel: np.ndarray, rest: np.ndarray, update: np.ndarray, child: _Block) -> None:
    """Add a child's update (lower triangle) to its parent's front."""
    k = panel.shape[1]
    place = child.place
    if child.scattered:
        own = int(np.searchsorted(place, k))
        panel[np.ix_(place, place[:own])] += update[:, :own]
        outer = place[own:] - k
        rest[np.ix_(outer, outer)] += update[own:, own:]
        return
    for number, (from_col, to_col, width) in enumerate(child.runs):
        for from_row, to_row, height in child.runs[number:]:
            part = update[from_row : from_row + height, from_col : from_col + width]
            if to_col < k:
                panel[to_row : to_row + height, to_col : to_col + width] += part
            else:
                rest[to_row - k : to_row - k + height, to_col - k : to_col - k + width] += part


def _take(front: np.ndarray, child: _Block) -> np.ndarray:
    """Return the part of a parent's front (lower triangle) on a child's boundary."""
    place = child.place
    if child.scattered:
        return np.asfortranarray(front[np.ix_(place, place)])
    out = np.empty((len(place), len(place)), order="F")
    for number, (from_col, to_col, width) in enumerate(child.runs):
        for from_row, to_row, height in child.runs[number:]:
            out[from_row : from_row + height, from_col : from_col + width] = front[
                to_row : to_row + height, to_col : to_col + width
            ]
    return out


def _dissect(pattern: sp.csr_array, coords: np.ndarray, leaf: int) -> np.ndarray:
    """Label every unknown with its block's number in a binary tree: root 1, halves 2k and 2k + 1."""
    coo = pattern.tocoo()
    first, second = (c.astype(np.int64) for c in coo.coords)
    keep = first < second
    first, second = first[keep], second[keep]
    n = pattern.shape[0]
    label = np.ones(n, np.int64)
    active = np.arange(n)
    while len(active):
        sets, own = np.unique(label[active], return_inverse=True)
        count = np.bincount(own)
        low, high = np.full((2, len(sets)), np.inf), np.full((2, len(sets)), -np.inf)
        for axis in (0, 1):
            np.minimum.at(low[axis], own, coords[active, axis])
            np.maximum.at(high[axis], own, coords[active, axis])
        extent = high - low
        cut = (count > leaf) & (extent.max(axis=0) > 0)
        active, own = active[cut[own]], own[cut[own]]
        if len(active) == 0:
            break
        axis = (extent[1] > extent[0]).astype(np.int64)
        value = np.where(axis[own] == 1, coords[active, 1], coords[active, 0])
        by_set = np.lexsort((value, own))
        begin = np.searchsorted(own[by_set], np.arange(len(sets)))
        middle = np.zeros(len(sets))
        has = np.flatnonzero(cut)
        middle[has] = value[by_set[begin[has] + count[has] // 2]]
        top = np.where(axis == 1, high[1], high[0])
        right = np.where((middle == top)[own], value >= middle[own], value > middle[own])
        side = np.full(n, -1, np.int8)
        side[active] = right
        # Edges within one set whose ends lie on different sides; sets no longer cut have side -1 on both
        # ends.
        inner = (label[first] == label[second]) & (side[first] >= 0)
        first, second = first[inner], second[inner]
        crossing = side[first] != side[second]
        a, b = first[crossing], second[crossing]
        ends = np.unique(np.r_[a, b])
        index = np.full(n, -1)
        index[active] = own
        on_right = side[ends] == 1
        number = [np.bincount(index[ends[on_right == s]], minlength=len(sets)) for s in (False, True)]
        take_right = number[1] <= number[0]
        separator = ends[on_right == take_right[index[ends]]]
        stay = np.ones(n, bool)
        stay[separator] = False
        moving = active[stay[active]]
        label[moving] = 2 * label[moving] + side[moving]
        keep = stay[first] & stay[second]
        first, second = first[keep], second[keep]
        active = moving
    return label


def _postorder(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return indices of labels, children before parents, and the parents as positions in that order."""
    index = {int(v): i for i, v in enumerate(labels)}
    parent = np.full(len(labels), -1)
    children: list[list[int]] = [[] for _ in labels]
    roots = []
    for i, value in enumerate(int(v) for v in labels):
        above = value >> 1
        while above and above not in index:
            above >>= 1
        if above:
            parent[i] = index[above]
            children[index[above]].append(i)
        else:
            roots.append(i)
    order: list[int] = []
    stack = roots
    while stack:
        i = stack.pop()
        order.append(i)
        stack.extend(children[i])
    sequence = np.array(order[::-1])
    rank = np.empty(len(labels), np.int64)
    rank[sequence] = np.arange(len(labels))
    above = parent[sequence]
    return sequence, np.where(above >= 0, rank[above], -1)


def _wider_axis(blocks: np.ndarray, coords: np.ndarray, n: int) -> np.ndarray:
    extent = np.zeros((2, n))
    for axis in (0, 1):
        low, high = np.full(n, np.inf), np.full(n, -np.inf)
        np.minimum.at(low, blocks, coords[:, axis])
        np.maximum.at(high, blocks, coords[:, axis])
        extent[axis] = high - low
    return extent[1] > extent[0]


def _structure(
    pattern: sp.csr_array, order: np.ndarray, starts: np.ndarray, parents: np.ndarray
) -> Iterator[_Block]:
    """Yield the blocks with their boundaries and the places of the matrix's entries."""
    n = len(order)
    rank = np.empty(n, np.int64)
    rank[order] = np.arange(n)
    coo = pattern.tocoo()
    row, col = rank[coo.coords[0]], rank[coo.coords[1]]
    # Entries by column in elimination order; an entry and its mirror image are each other's transposes.
    by_column = np.lexsort((row, col))
    mirror = np.empty(len(row), np.int64)
    mirror[by_column] = np.lexsort((col, row))
    row, col = row[by_column], col[by_column]
    first = np.searchsorted(col, starts)
    boundaries: list[np.ndarray] = []
    inherited: list[list[np.ndarray]] = [[] for _ in parents]
    records = []
    for b, parent in enumerate(parents):
        start, stop = int(starts[b]), int(starts[b + 1])
        here = slice(first[b], first[b + 1])
        r, c, source = row[here], col[here], by_column[here]
        lower = r >= c
        r, c, source = r[lower], c[lower], source[lower]
        boundary = np.unique(np.concatenate([r[r >= stop], *inherited[b]]))
        boundary = boundary[boundary >= stop]
        boundaries.append(boundary)
        if parent >= 0:
            inherited[parent].append(boundary)
        size = stop - start + len(boundary)
        local = np.where(r < stop, r - start, stop - start + np.searchsorted(boundary, r))
        records.append(((c - start) * size + local, source, mirror[source]))
    for b, parent in enumerate(parents):
        boundary = boundaries[b]
        place, runs = np.empty(0, np.int64), np.empty((0, 3), np.int64)
        if parent >= 0 and len(boundary):
            start, stop = int(starts[parent]), int(starts[parent + 1])
            outer = stop - start + np.searchsorted(boundaries[parent], boundary)
            place = np.where(boundary < stop, boundary - start, outer)
            # A run also ends where the parent's own columns end.
            ends = (np.diff(place) != 1) | (place[1:] == stop - start)
            at = np.r_[0, 1 + np.flatnonzero(ends)]
            runs = np.column_stack([at, place[at], np.diff(np.r_[at, len(place)])])
        position, lower, upper = records[b]
        moves = tuple((int(i), int(j), int(w)) for i, j, w in runs)
        start, stop = int(starts[b]), int(starts[b + 1])
        yield _Block(
            start=start,
            stop=stop,
            boundary=boundary,
            parent=int(parent),
            place=place,
            runs=moves,
            position=position,
            lower=lower,
            upper=upper,
            own=stop - start,
            size=stop - start + len(boundary),
            scattered=len(moves) * _RUNS > len(place),
        )
