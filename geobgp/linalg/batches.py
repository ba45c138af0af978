"""Batches: fronts at the same depth, whose numbers lie in common vectors and move together.

The columns of a batch's fronts are one vector, their rests another. Where each entry of the matrix, and each rest of
the batches below, goes in them is found once for a pattern.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from geobgp.linalg.blas import Integers
from geobgp.linalg.tree import Tree


class Shape(NamedTuple):
    """One front within its batch."""

    start: int
    k: int
    b: int
    #: Addresses of the integers k and b.
    k_at: int
    b_at: int
    #: Where own, side and rest start in the batch's columns and rests; the unknowns and the border among its own.
    own: int
    side: int
    rest: int
    first: int
    border: int


def columns_of(shape: Shape, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return views of a front's blocks own and side in the columns of its batch."""
    k, b = shape.k, shape.b
    own, side = columns[shape.own : shape.own + k * k], columns[shape.side : shape.side + k * b]
    return own.reshape(k, k).T, side.reshape(k, b).T


class Move(NamedTuple):
    """Where rests of a batch go in the batch above; no place in this takes two of them."""

    child: int
    #: Into its columns: which of the rests, and where to.
    columns_from: np.ndarray
    columns_to: np.ndarray
    #: Into its rests.
    rests_from: np.ndarray
    rests_to: np.ndarray


@dataclass(frozen=True, eq=False)
class Batch:
    """Fronts at one depth of a limb.

    Attributes
    ----------
    start, stop : int
        Their unknowns, in the order of elimination.
    columns, rests : int
        Lengths of these vectors.
    entries : slice
        Which of the matrix's lower triangle, in the order of elimination, belong to the columns.
    place, diagonal : array
        Where these lie there, and where the diagonals do.
    border : array
        The borders in a row.
    moves : tuple of Move
        From the batches below.
    children : tuple of int
        These, each once.
    up : array
        For vectors: where the borders of the children, in a row, lie among the unknowns and, behind these, the border.
    add : csr_array
        The same as a matrix of ones.
    """

    start: int
    stop: int
    shapes: tuple[Shape, ...]
    columns: int
    rests: int
    entries: slice
    place: np.ndarray
    diagonal: np.ndarray
    border: np.ndarray
    moves: tuple[Move, ...]
    children: tuple[int, ...]
    up: np.ndarray
    add: sp.csr_array


class _Layout:
    """Where everything lies in the vectors of the batches."""

    def __init__(self, tree: Tree) -> None:
        self.tree, n = tree, len(tree.order)
        starts, parents = tree.starts, tree.parents
        self.own, self.side = np.diff(starts), np.array([len(border) for border in tree.borders], np.int64)
        self.batch = np.repeat(np.arange(len(tree.bounds) - 1), np.diff(tree.bounds))
        first = tree.bounds[self.batch]
        # Of every front, within its batch: its columns, its rest and its border.
        self.columns = _within(self.own * (self.own + self.side), first)
        self.rests, self.edges = _within(self.side**2, first), _within(self.side, first)
        self.borders = np.concatenate([*tree.borders, np.empty(0, np.int64)]).astype(np.int64)
        self.cuts = np.append(0, np.cumsum(self.side))
        owner = np.repeat(np.arange(len(parents)), self.side)
        self._key = owner * n + self.borders
        # Where borders lie in the fronts above: among their unknowns, and behind these among their borders.
        above = parents[owner]
        where = self._in_border(above, self.borders) + self.own[above]
        among = self.borders < starts[above + 1]
        where[among] = self.borders[among] - starts[above[among]]
        self.where = where
        self.rank = np.zeros(len(parents), np.int64)
        self.below: list[list[int]] = [[] for _ in range(len(tree.bounds) - 1)]
        seen: dict[tuple[int, int], int] = {}
        for child, parent in enumerate(parents.tolist()):
            if parent >= 0:
                self.below[self.batch[parent]].append(child)
                key = parent, int(self.batch[child])
                self.rank[child] = seen[key] = seen.get(key, -1) + 1

    def _in_border(self, front: np.ndarray, unknown: np.ndarray) -> np.ndarray:
        return np.searchsorted(self._key, front * len(self.tree.order) + unknown) - self.cuts[front]

    def place(self, row: np.ndarray, col: np.ndarray) -> np.ndarray:
        """Return where entries of the lower triangle lie in the columns of their batch."""
        front = np.repeat(np.arange(len(self.own)), self.own)[col]
        start, k, b = self.tree.starts[front], self.own[front], self.side[front]
        out = self.columns[front] + (col - start) * k + row - start
        beyond = np.flatnonzero(row >= start + k)
        front, k, inside = front[beyond], k[beyond], (col - start)[beyond]
        edge = self._in_border(front, row[beyond])
        out[beyond] = self.columns[front] + k * k + inside * b[beyond] + edge
        return out

    def moves(self, number: int) -> list[Move]:
        """Return the ways from the rests below a batch."""
        groups: dict[tuple[int, int], list[tuple[np.ndarray, ...]]] = {}
        for child in self.below[number]:
            parent, where = self.tree.parents[child], self.where[self.cuts[child] : self.cuts[child + 1]]
            k, b, m = int(self.own[parent]), int(self.side[parent]), len(where)
            j, i = _triangle(m)
            source = j * m + i
            source += self.rests[child]
            col, row = where[j], where[i]
            inner = int(np.searchsorted(where, k))
            cut = inner * m - inner * (inner - 1) // 2  # entries in the columns of the front above come first
            head, tail = slice(None, cut), slice(cut, None)
            inside = np.where(row[head] < k, col[head] * k + row[head], col[head] * b + row[head] + k * k - k)
            beyond = (col[tail] - k) * b + row[tail] - k
            parts = source[head], inside + self.columns[parent], source[tail], beyond + self.rests[parent]
            groups.setdefault((int(self.batch[child]), int(self.rank[child])), []).append(parts)
        return [
            Move(child, *(np.concatenate(part) for part in zip(*parts, strict=True)))
            for (child, _), parts in sorted(groups.items(), key=lambda item: item[0])
        ]

    def up(self, number: int, children: list[int]) -> np.ndarray:
        """Return where the borders below a batch lie among its unknowns and, behind these, its border."""
        tree, bounds = self.tree, self.tree.bounds
        # All fronts of the children in a row; what belongs to those of another batch is added to a place behind.
        fronts = np.concatenate(
            [np.arange(bounds[c], bounds[c + 1]) for c in children] + [np.empty(0, np.int64)]
        )
        fronts = fronts.astype(np.int64)
        length = self.side[fronts]
        front = np.repeat(fronts, length)
        inside = np.arange(len(front)) - np.repeat(np.cumsum(length) - length, length)
        where, parent = self.where[self.cuts[front] + inside], tree.parents[front]
        own, start = self.own[parent], tree.starts[bounds[number]]
        unknowns = tree.starts[bounds[number + 1]] - start
        edges = self.side[bounds[number] : bounds[number + 1]].sum()
        out = np.where(
            where < own, where + tree.starts[parent] - start, where - own + self.edges[parent] + unknowns
        )
        return np.where(self.batch[parent] == number, out, unknowns + edges)


def batches_of(tree: Tree, row: np.ndarray, col: np.ndarray, integers: Integers) -> list[Batch]:
    """Return the batches for a matrix whose lower triangle has these rows and columns, column by column."""
    layout = _Layout(tree)
    place, starts = layout.place(row, col), tree.starts
    at = np.searchsorted(col, starts)
    out = []
    for number, (a, b) in enumerate(itertools.pairwise(tree.bounds.tolist())):
        own, side, columns = layout.own[a:b], layout.side[a:b], layout.columns[a:b]
        children = sorted({int(layout.batch[child]) for child in layout.below[number]})
        entries = slice(int(at[a]), int(at[b]))
        inside = np.arange(starts[a], starts[b]) - np.repeat(starts[a:b], own)
        diagonal = np.repeat(columns, own) + inside * np.repeat(own + 1, own)
        shapes = [
            Shape(s, k, r, integers.at(k), integers.at(r), c, c + k * k, rest, s - int(starts[a]), edge)
            for s, k, r, c, rest, edge in zip(
                *(
                    part.tolist()
                    for part in (starts[a:b], own, side, columns, layout.rests[a:b], layout.edges[a:b])
                ),
                strict=True,
            )
        ]
        up = layout.up(number, children)
        length = int(own.sum() + side.sum()) + 1
        add = sp.csr_array((np.ones(len(up)), (up, np.arange(len(up)))), shape=(length, len(up)))
        out.append(
            Batch(
                int(starts[a]), int(starts[b]), tuple(shapes), int((own * (own + side)).sum()),
                int((side**2).sum()), entries, place[entries], diagonal,
                layout.borders[layout.cuts[a] : layout.cuts[b]], tuple(layout.moves(number)), tuple(children),
                up, add,
            )
        )  # fmt: skip
    return out


def _within(sizes: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Return where things of given sizes start, counted from the first one of each batch."""
    starts = np.append(0, np.cumsum(sizes))
    return starts[:-1] - starts[first]


def _triangle(m: int) -> tuple[np.ndarray, np.ndarray]:
    """Return columns and rows of a lower triangle, column by column."""
    first = np.arange(m)
    length = m - first
    cols = np.repeat(first, length)
    return cols, np.arange(len(cols)) + np.repeat(m - np.cumsum(length), length)
