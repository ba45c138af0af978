"""Sparse symmetric factors: Cholesky with selected inverse, LDLᵀ with inertia, by multifrontal elimination."""

from __future__ import annotations

import ctypes
import heapq
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import NamedTuple, NoReturn

import numpy as np
import scipy.sparse as sp
from scipy.linalg.blas import dgemm, dsyrk, dtrsm
from scipy.linalg.lapack import dsyconv, dsytrf
from scipy.sparse.csgraph import connected_components, dijkstra

from geobgp.linalg import blas
from geobgp.linalg.blas import LEFT, LOWER, MINUS_ONE, ONE, PLAIN, RIGHT, TRANSPOSED, ZERO, Integers, together

# -- Nested dissection: the order of elimination that keeps the factors of grid-like matrices sparse ---------
# A connected set of unknowns is cut by a few of them, the separator; what is left falls into connected parts,
# which are cut in turn until they are small. The unknowns of each part come before the separator.


#: Share of a part that has to lie on either side of a cut.
_BALANCE = 0.2
#: Separators that together are not larger than this are eliminated as one front.
_SMALL = 48
#: Number of far-apart unknowns from which links are counted.
_LANDMARKS = 4


class Ordering(NamedTuple):
    """The order of elimination, in fronts: separators, and parts that are not cut any further."""

    #: The unknowns in the order of elimination, front by front.
    order: np.ndarray
    #: Where each front starts in it, and where the last one ends.
    starts: np.ndarray
    #: The front that each one hangs from, always a later one; -1 for the last of a connected component.
    parents: np.ndarray


def nested_dissection(pattern: sp.csr_array, coords: np.ndarray | None = None, leaf: int = 64) -> Ordering:
    """Return an order of elimination for matrices with a symmetric pattern.

    Parameters
    ----------
    pattern : (n, n) csr_array
        Only its structure is used. It need not be connected.
    coords : (n, d) array, optional
        Where the unknowns lie; any unit. By default links are counted from a few unknowns far apart.
    leaf : int
        Parts up to this size are not cut. Small components, and crumbs below one separator, share a front.

    Examples
    --------
    >>> path = sp.diags_array([np.ones(6), np.ones(7), np.ones(6)], offsets=[-1, 0, 1]).tocsr()
    >>> found = nested_dissection(path, np.arange(7.0)[:, None], leaf=3)
    >>> found.order.tolist(), found.starts.tolist(), found.parents.tolist()
    ([0, 1, 2, 4, 5, 6, 3], [0, 3, 6, 7], [2, 2, -1])
    """
    n = pattern.shape[0]
    row = np.repeat(np.arange(n, dtype=np.int32), np.diff(pattern.indptr))
    col = pattern.indices.astype(np.int32)
    row, col = row[row != col], col[row != col]
    axes = _link_distances(row, col, n) if coords is None else np.asarray(coords).T
    levels = np.stack([np.unique(axis, return_inverse=True)[1].reshape(n) for axis in axes]).astype(np.int32)
    front, active, above = np.empty(n, np.int64), np.arange(n), np.full(n, -1)
    parents = np.empty(0, np.int64)
    while len(active):
        part, large = _parts(_graph(row, col, len(active)), above, leaf)
        separator = _separators(row, col, part, large, levels[:, active])
        front[active[separator]] = len(parents) + part[separator]
        # What is left has no links across the separators: its components are the parts of the next round.
        stay = ~separator
        active, left = active[stay], len(parents) + part[stay]
        parents = np.append(parents, np.empty(part.max() + 1, np.int64))
        parents[len(parents) - part.max() - 1 + part] = above
        above = left
        inner, renumbered = stay[row] & stay[col], np.cumsum(stay, dtype=np.int32) - 1
        row, col = renumbered[row[inner]], renumbered[col[inner]]
    return _ordered(front, parents, levels)


def _graph(row: np.ndarray, col: np.ndarray, n: int) -> sp.csr_array:
    """Return a graph by its links, both ways, sorted by row."""
    indptr = np.searchsorted(row, np.arange(n + 1, dtype=np.int32)).astype(np.int32)
    return sp.csr_array((np.ones(len(col)), col.astype(np.int32), indptr), shape=(n, n))  # dijkstra of SciPy 1.13


def _components(graph: sp.csr_array) -> np.ndarray:
    """Return the component of each unknown; as links go both ways, no transpose is needed."""
    return np.asarray(connected_components(graph, connection="strong")[1])


def _link_distances(row: np.ndarray, col: np.ndarray, n: int) -> np.ndarray:
    """Return the numbers of links from a few far-apart unknowns of each component, (landmarks, n)."""
    graph = _graph(row, col, n)
    label = _components(graph)
    found: list[np.ndarray] = []
    far = np.zeros(n)
    for turn in range(_LANDMARKS + 1):
        by_label = np.lexsort((far, label))
        farthest = by_label[np.flatnonzero(np.diff(label[by_label], append=-1))]
        links = dijkstra(graph, indices=farthest, unweighted=True, min_only=True)
        if turn > 0:  # the first start is anywhere, and only leads to an end
            found.append(links)
        far = np.min(found or [links], axis=0)
    return np.stack(found)


def _parts(graph: sp.csr_array, above: np.ndarray, leaf: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the part of each unknown, a component or crumbs below one front; and if it is to be cut."""
    label = _components(graph)
    size = np.bincount(label)
    parent = np.empty(len(size), np.int64)
    parent[label] = above
    large = size[label] > leaf
    # Crumbs in a row go together as long as they fill less than a leaf: islets, and what a cut has shed.
    order = np.lexsort((size, parent))
    size, parent = size[order], parent[order]
    bins = (np.cumsum(size) - size) // leaf
    fresh = (size > np.where(parent < 0, leaf, leaf // 4)) | (np.diff(parent, prepend=-2) != 0)
    fresh |= np.diff(bins, prepend=-1) != 0
    number = np.empty(len(size), np.int64)
    number[order] = np.cumsum(fresh) - 1
    return number[label], large


def _separators(
    row: np.ndarray, col: np.ndarray, part: np.ndarray, large: np.ndarray, levels: np.ndarray
) -> np.ndarray:
    """Tell which unknowns separate their part; all of a part that is not large, or that no cut divides.

    A cut is a level of one coordinate; its separator is what lies above it and is linked to what does not. Of
    all cuts that leave a fair share on both sides the one with the smallest separator is taken.
    """
    size = np.bincount(part)
    best = np.full(len(size), np.inf)
    above = np.zeros(len(part), bool)
    linked = np.flatnonzero(np.diff(row, prepend=-1))
    for level in levels if large.any() else []:
        low, high = _range(level[large], part[large], len(size))
        span = np.maximum(high.astype(np.int64) - low + 1, 0)
        first = np.cumsum(span) - span
        # All parts' levels in a row. An unknown is in the separators from its lowest link's level to its own.
        key = np.where(large, level + (first - low)[part], 0)
        lowest = key.copy()
        lowest[row[linked]] = np.minimum(key[row[linked]], np.minimum.reduceat(key[col], linked))
        count = np.bincount(key[large], minlength=span.sum())
        separator = np.cumsum(np.bincount(lowest[large], minlength=span.sum()) - count)
        owner = np.repeat(np.arange(len(size)), span)
        total = size[owner]
        before = np.cumsum(count) - np.cumsum(size * (span > 0))[owner] + total
        after = total - before - separator
        cost = separator * (1 + np.abs(after - before) / total)
        cost[np.minimum(before, after) < _BALANCE * total] = np.inf
        cut = np.lexsort((cost, owner))[first[span > 0]]
        cut = cut[cost[cut] < best[owner[cut]]]
        best[owner[cut]] = cost[cut]
        level_of_cut = np.full(len(size), -1)
        level_of_cut[owner[cut]] = cut
        changed = large & (level_of_cut[part] >= 0)
        above[changed] = key[changed] > level_of_cut[part[changed]]
    separator = np.zeros(len(part), bool)
    separator[row[above[row] & ~above[col]]] = True
    # What is not linked to anything beyond the separator is not needed in it.
    needed = np.zeros(len(part), bool)
    needed[row[separator[row] & above[col] & ~separator[col]]] = True
    return needed | ~np.isfinite(best)[part]


def _range(level: np.ndarray, group: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the lowest and the highest level in each group; in an empty one the highest is lower."""
    low, high = np.full(count, level.max(initial=0), level.dtype), np.full(count, -1, level.dtype)
    np.minimum.at(low, group, level)
    np.maximum.at(high, group, level)
    return low, high


def _joined(front: np.ndarray, parents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return fronts and parents with small separators joined to the one above; parents have lower numbers."""
    size, cut = np.bincount(front).tolist(), np.bincount(parents[parents >= 0], minlength=len(parents)) > 0
    kept = list(range(len(size)))
    for number, parent in enumerate(parents.tolist()):
        joined = kept[parent]
        if parent >= 0 and cut[number] and size[number] + size[joined] <= _SMALL:
            size[joined] += size[number]
            kept[number] = joined
    names, renumbered = np.unique(kept, return_inverse=True)
    above = parents[names]
    return renumbered[front], np.where(above >= 0, renumbered[above], -1)


def _ordered(front: np.ndarray, parents: np.ndarray, levels: np.ndarray) -> Ordering:
    """Return the fronts in postorder, the unknowns of each along the coordinate in which it is longest."""
    front, parents = _joined(front, parents)
    count = len(parents)
    children: list[list[int]] = [[] for _ in range(count)]
    stack: list[int] = []
    for number, parent in enumerate(parents.tolist()):
        (children[parent] if parent >= 0 else stack).append(number)
    sequence = []
    while stack:
        sequence.append(stack.pop())
        stack.extend(children[sequence[-1]])
    rank = np.full(count + 1, -1)  # the last one for parents of -1
    rank[sequence[::-1]] = np.arange(count)
    # Along the longest axis first, so that the borders of earlier fronts fall into few runs.
    spread = [np.subtract(*_range(level, front, count)) for level in levels]
    axes = np.argsort(spread, axis=0, kind="stable")[:, front]
    order = np.lexsort((*np.take_along_axis(levels, axes, axis=0)[::-1], rank[front]))
    starts = np.append(0, np.cumsum(np.bincount(rank[front], minlength=count)))
    return Ordering(order, starts, rank[parents[sequence[::-1]]])


# -- Trees of fronts, parted so that two threads can climb them at once --------------------------------------
# The heaviest branches make two *limbs* of about the same work; where these meet is the *top*. Within a limb, and
# within the top, fronts are sorted by their depth: those of the same depth have nothing to do with each other.


#: Work, in multiplications, that a front costs beside its own, and from which a tree is parted into limbs.
_BESIDE, _WORTH = 100_000, 20_000_000
#: Fronts that are tried for the top.
_TOP = 24


class Tree(NamedTuple):
    """Fronts in the order of elimination: limb by limb, each from its deepest fronts upwards, and then the top."""

    order: np.ndarray
    starts: np.ndarray
    parents: np.ndarray
    borders: list[np.ndarray]
    #: Where each batch starts among the fronts, and where the last one ends.
    bounds: np.ndarray
    limbs: tuple[range, ...]

    @classmethod
    def of(cls, pattern: sp.csr_array, ordering: Ordering) -> Tree:
        """Bring fronts into batches."""
        order, starts, parents = ordering
        borders = _borders(pattern, ordering)
        depth = np.zeros(len(parents), np.int64)
        for front in reversed(range(len(parents))):
            if parents[front] >= 0:
                depth[front] = depth[parents[front]] + 1
        limb = _limbs(np.diff(starts), np.array([len(border) for border in borders]), parents)
        sequence = np.lexsort((np.arange(len(parents)), -depth, limb))
        number = np.empty(len(parents) + 1, np.int64)
        number[sequence], number[-1] = np.arange(len(parents)), -1
        size = np.diff(starts)[sequence]
        ends = np.cumsum(size)
        moved = np.repeat(starts[sequence] - ends + size, size) + np.arange(len(order))
        rank = np.empty(len(order), np.int64)
        rank[moved] = np.arange(len(order))
        key = np.column_stack([limb, depth])[sequence]
        bounds = np.flatnonzero((np.diff(key, axis=0, prepend=-1, append=-1) != 0).any(axis=1))
        of_batch = key[bounds[:-1], 0]
        limbs = tuple(
            range(int(at[0]), int(at[-1]) + 1)
            for at in (np.flatnonzero(of_batch == which) for which in range(2))
            if len(at)
        )
        return cls(
            order[moved],
            np.append(0, ends),
            number[parents[sequence]],
            [np.sort(rank[borders[front]]) for front in sequence.tolist()],
            bounds,
            limbs,
        )


def _borders(pattern: sp.csr_array, ordering: Ordering) -> list[np.ndarray]:
    """Return each front's border: what its unknowns, or the fronts below it, touch beyond it."""
    order, starts, parents = ordering
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    touches = pattern[order]
    row = rank[touches.indices]
    borders: list[np.ndarray] = []
    cuts = touches.indptr[starts]
    touched: list[list[np.ndarray]] = [[row[a:b]] for a, b in itertools.pairwise(cuts)]
    for number, (stop, parent) in enumerate(zip(starts[1:], parents, strict=True)):
        beyond = np.concatenate([rows[rows >= stop] for rows in touched[number]])
        borders.append(np.unique(beyond))
        if parent >= 0:
            touched[parent].append(borders[-1])
        touched[number] = []
    return borders


def _limbs(own: np.ndarray, side: np.ndarray, parents: np.ndarray) -> np.ndarray:
    """Return the limb of each front, 0 or 1, or 2 for the top; parents come after their children."""
    k, b = own.astype(float), side.astype(float)
    work = k**3 / 3 + k * k * b + k * b * b + _BESIDE
    limb = np.full(len(parents), 2)
    if work.sum() < _WORTH:
        return limb
    whole = work.copy()
    children: list[list[int]] = [[] for _ in parents]
    for front, parent in enumerate(parents.tolist()):
        if parent >= 0:
            whole[parent] += whole[front]
            children[parent].append(front)
    # The heaviest subtree gives its root to the top and falls into its parts, as long as that shortens the climb.
    heap = [(-whole[front], front) for front in np.flatnonzero(parents < 0).tolist()]
    heapq.heapify(heap)
    best, above, found = float(work.sum()), 0.0, (set[int](), set[int]())
    for _ in range(_TOP):
        load, parts = [0.0, 0.0], (set[int](), set[int]())
        for weight, front in sorted(heap):
            lighter = int(load[1] < load[0])
            load[lighter] -= weight
            parts[lighter].add(front)
        if above + max(load) < best:
            best, found = above + max(load), parts
        front = heapq.heappop(heap)[1]
        above += float(work[front])
        for child in children[front]:
            heapq.heappush(heap, (-whole[child], child))
        if not heap:
            break
    for which, roots in enumerate(found):
        limb[list(roots)] = which
    for front in reversed(range(len(parents))):
        if limb[front] == 2 and parents[front] >= 0:
            limb[front] = limb[parents[front]]
    return limb


# -- Batches: fronts at the same depth, whose numbers lie in common vectors and move together ----------------
# The columns of a batch's fronts are one vector, their rests another. Where each entry of the matrix, and each rest
# of the batches below, goes in them is found once for a pattern.


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
        fronts = np.concatenate([np.arange(bounds[c], bounds[c + 1]) for c in children] + [np.empty(0, np.int64)])
        fronts = fronts.astype(np.int64)
        length = self.side[fronts]
        front = np.repeat(fronts, length)
        inside = np.arange(len(front)) - np.repeat(np.cumsum(length) - length, length)
        where, parent = self.where[self.cuts[front] + inside], tree.parents[front]
        own, start = self.own[parent], tree.starts[bounds[number]]
        unknowns = tree.starts[bounds[number + 1]] - start
        edges = self.side[bounds[number] : bounds[number + 1]].sum()
        out = np.where(where < own, where + tree.starts[parent] - start, where - own + self.edges[parent] + unknowns)
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
                *(part.tolist() for part in (starts[a:b], own, side, columns, layout.rests[a:b], layout.edges[a:b])),
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


# -- Fronts: the plan by which sparse symmetric matrices are eliminated in dense blocks, along the tree of an `Orderi --
# A *front* is a set of unknowns that are eliminated together, with its *border*: the later unknowns that they
# touch. Its columns of the matrix are two dense blocks, `own` (k, k) and `side` (b, k). Eliminating it leaves
# an update of its border, `rest` (b, b), which is added to the blocks of the front above. Blocks are in Fortran
# order, and of symmetric ones only the lower triangle counts.


#: Parts up to this size are eliminated as one front.
_LEAF = 64


class Front(NamedTuple):
    """Unknowns start:stop, in the order of elimination, and their border."""

    start: int
    stop: int
    border: np.ndarray
    #: The front above, -1 if there is none.
    parent: int


@dataclass(frozen=True, eq=False)
class Fronts:
    """The fronts for one pattern; every matrix with that pattern can be factorised by them.

    Attributes
    ----------
    order : (n,) array
        Unknowns in the order of elimination.
    batches : tuple of Batch
    limbs : tuple of range
        Batches that can be eliminated at the same time; those after them are the top.
    lower, upper : array
        Which of the pattern's entries are the matrix's lower triangle in the order of elimination, and
        their mirror images.
    """

    n: int
    order: np.ndarray = field(repr=False)
    fronts: tuple[Front, ...] = field(repr=False)
    batches: tuple[Batch, ...] = field(repr=False)
    limbs: tuple[range, ...]
    lower: np.ndarray = field(repr=False)
    upper: np.ndarray = field(repr=False)
    integers: Integers = field(repr=False)

    def __reduce__(self) -> NoReturn:
        raise TypeError("A plan of fronts knows addresses in memory: it cannot be sent to another process.")

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
        tree = Tree.of(pattern, nested_dissection(pattern, coords, leaf))
        starts, sides = tree.starts, np.array([len(border) for border in tree.borders], np.int64)
        rank = np.empty(n, np.int64)
        rank[tree.order] = np.arange(n)
        # The entries, unknown by unknown in the order of elimination, and of these the lower triangle.
        degree = np.diff(pattern.indptr)[tree.order]
        lower = np.arange(pattern.nnz) + np.repeat(pattern.indptr[tree.order] - np.cumsum(degree) + degree, degree)
        row, col = rank[pattern.indices[lower]], np.repeat(np.arange(n), degree)
        below = row >= col
        lower, row, col = lower[below], row[below], col[below]
        mirror = sp.csr_array((np.arange(pattern.nnz), pattern.indices, pattern.indptr), shape=(n, n)).T.tocsr()
        own = np.diff(starts)
        integers = Integers(int(max(own.max(), sides.max(initial=0))) + 1)
        batches = batches_of(tree, row, col, integers)
        fronts = tuple(
            Front(int(a), int(b), border, parent)
            for (a, b), border, parent in zip(
                itertools.pairwise(starts), tree.borders, tree.parents.tolist(), strict=True
            )
        )
        return cls(n, tree.order, fronts, tuple(batches), tree.limbs, lower, mirror.data[lower], integers)

    @property
    def entries(self) -> int:
        """Number of entries of a factor."""
        return sum(batch.columns for batch in self.batches)

    @property
    def memory(self) -> int:
        """Bytes that a factor, the plan and the largest batch take at the same time, about."""
        plan = sum(move.columns_to.size + move.rests_to.size for batch in self.batches for move in batch.moves)
        return 8 * (self.entries + 2 * plan + 6 * max(batch.columns + batch.rests for batch in self.batches))

    @property
    def top(self) -> range:
        """The batches that come after the limbs."""
        return range(max((limb.stop for limb in self.limbs), default=0), len(self.batches))


# -- Elimination: the numbers that go through a plan of `Fronts`, up the tree to a factor and down again to solutions --
# Everything is done batch by batch: what the batches below have left is brought together, and each front is then a
# few calls of BLAS. The two limbs of the tree go to two threads.


#: The blocks own, side and rest of a front.
Blocks = tuple[np.ndarray, np.ndarray, np.ndarray]
#: Eliminates a front that is not positive definite, in place; the last argument is the block own as it was.
Indefinite = Callable[[Shape, Blocks, np.ndarray], None]


def climb(fronts: Fronts, visit: Callable[[int], None]) -> None:
    """Visit all batches, each after those below it."""
    together([partial(_each, visit, limb) for limb in fronts.limbs])
    _each(visit, fronts.top)


def descend(fronts: Fronts, visit: Callable[[int], None]) -> None:
    """Visit all batches, each after those above it."""
    _each(visit, reversed(fronts.top))
    together([partial(_each, visit, reversed(limb)) for limb in fronts.limbs])


def _each(visit: Callable[[int], None], batches: Iterable[int]) -> None:
    for number in batches:
        visit(number)


def eliminate(fronts: Fronts, data: np.ndarray, shift: float, indefinite: Indefinite) -> list[np.ndarray]:
    """Eliminate the matrix with entries `data`, in the pattern's order, minus `shift` times the identity.

    Returns
    -------
    The columns of a lower triangular factor, for each batch.
    """
    lower = data[fronts.lower]
    columns = [np.empty(0)] * len(fronts.batches)
    rests = _Shared(fronts)

    def assembled(batch: Batch) -> np.ndarray:
        mine = np.zeros(batch.columns)
        mine[batch.place] = lower[batch.entries]
        mine[batch.diagonal] -= shift
        for move in batch.moves:
            mine[move.columns_to] += rests.kept[move.child][move.columns_from]
        return mine

    def visit(number: int) -> None:
        batch = fronts.batches[number]
        mine, rest = assembled(batch), np.empty(batch.rests)
        fresh: np.ndarray | None = None
        info = ctypes.c_int(0)
        own_at, rest_at, info_at = mine.ctypes.data, rest.ctypes.data, ctypes.addressof(info)
        dpotrf, dtrsm, dsyrk = blas.dpotrf, blas.dtrsm, blas.dsyrk
        for shape in batch.shapes:
            _, _, b, k_at, b_at, own, side, out, _, _ = shape
            own = own_at + 8 * own
            dpotrf(LOWER, k_at, own, k_at, info_at)
            if info.value:
                fresh = assembled(batch) if fresh is None else fresh
                before = columns_of(shape, fresh)[0]
                indefinite(shape, _blocks(shape, mine, rest), before.copy(order="F"))
            elif b:
                side = own_at + 8 * side
                dtrsm(RIGHT, LOWER, TRANSPOSED, PLAIN, b_at, k_at, ONE, own, k_at, side, b_at)
                dsyrk(LOWER, PLAIN, b_at, k_at, MINUS_ONE, side, b_at, ZERO, rest_at + 8 * out, b_at)
        for move in batch.moves:
            rest[move.rests_to] += rests.kept[move.child][move.rests_from]
        columns[number] = mine
        rests.keep(number, rest)
        rests.taken(batch)

    climb(fronts, visit)
    return columns


def _blocks(shape: Shape, columns: np.ndarray, rests: np.ndarray) -> Blocks:
    """Return views of a front's blocks in the vectors of its batch."""
    rest = rests[shape.rest : shape.rest + shape.b**2].reshape(shape.b, shape.b).T
    return *columns_of(shape, columns), rest


class _Shared:
    """What batches leave for those above them, forgotten when all of these have taken it."""

    def __init__(self, fronts: Fronts) -> None:
        self.kept: dict[int, np.ndarray] = {}
        self._waiting = [0] * len(fronts.batches)
        for batch in fronts.batches:
            for child in batch.children:
                self._waiting[child] += 1

    def keep(self, number: int, left: np.ndarray) -> None:
        if self._waiting[number]:
            self.kept[number] = left

    def taken(self, batch: Batch) -> None:
        for child in batch.children:
            self._waiting[child] -= 1
            if not self._waiting[child]:
                del self.kept[child]


def selected_inverse(fronts: Fronts, columns: list[np.ndarray]) -> np.ndarray:
    """Return the inverse's entries in the matrix's lower triangle, in the order of elimination, from a factor."""
    found = np.empty(len(fronts.lower))
    outers: dict[int, np.ndarray] = {}

    def visit(number: int) -> None:
        batch, factor = fronts.batches[number], columns[number]
        inverse, ratio = factor.copy(), factor.copy()
        outer = outers.pop(number, np.empty(0))
        inverse_at, ratio_at, outer_at = inverse.ctypes.data, ratio.ctypes.data, outer.ctypes.data
        factor_at = factor.ctypes.data
        info = ctypes.c_int(0)
        info_at = ctypes.addressof(info)
        dpotri, dtrsm, dsymm, dgemm = blas.dpotri, blas.dtrsm, blas.dsymm, blas.dgemm
        for _, _, b, k_at, b_at, own, side, rest, _, _ in batch.shapes:
            dpotri(LOWER, k_at, inverse_at + 8 * own, k_at, info_at)
            if b:
                mine, cross, scaled = inverse_at + 8 * own, inverse_at + 8 * side, ratio_at + 8 * side
                dtrsm(RIGHT, LOWER, PLAIN, PLAIN, b_at, k_at, ONE, factor_at + 8 * own, k_at, scaled, b_at)
                dsymm(LEFT, LOWER, b_at, k_at, MINUS_ONE, outer_at + 8 * rest, b_at, scaled, b_at, ZERO, cross, b_at)
                dgemm(TRANSPOSED, PLAIN, k_at, k_at, b_at, MINUS_ONE, scaled, b_at, cross, b_at, ONE, mine, k_at)
        found[batch.entries] = inverse[batch.place]
        # The way that rests took up to this batch leads down again.
        for move in batch.moves:
            below = outers.get(move.child)
            if below is None:
                below = outers[move.child] = np.empty(fronts.batches[move.child].rests)
            below[move.columns_from] = inverse[move.columns_to]
            below[move.rests_from] = outer[move.rests_to]

    descend(fronts, visit)
    return found


def forward(fronts: Fronts, columns: list[np.ndarray], x: np.ndarray, pivots: dict[int, np.ndarray]) -> None:
    """Replace (n, p) right-hand sides, C order, by L⁻¹ x; unknowns from a key of `pivots` on are permuted."""
    p, left, count = x.shape[1], _Shared(fronts), ctypes.c_int(x.shape[1])
    p_at, one_at = ctypes.addressof(count), fronts.integers.at(1)

    def visit(number: int) -> None:
        batch, factor = fronts.batches[number], columns[number]
        mine, edge = x[batch.start : batch.stop], np.zeros((len(batch.border), p))
        if batch.children:
            given = np.concatenate([left.kept[child] for child in batch.children])
            many, size = p > 1, batch.add.shape[0]
            added: np.ndarray = batch.add @ given if many else np.bincount(batch.up, given[:, 0], size)[:, None]
            mine += added[: len(mine)]
            edge = added[len(mine) : -1]
        factor_at, mine_at, edge_at = factor.ctypes.data, mine.ctypes.data, edge.ctypes.data
        dtrsv, dgemv, dtrsm, dgemm = blas.dtrsv, blas.dgemv, blas.dtrsm, blas.dgemm
        for start, k, b, k_at, b_at, own, side, _, first, border in batch.shapes:
            if start in pivots:
                part = x[start : start + k]
                part[:] = part[pivots[start]]
            own, side = factor_at + 8 * own, factor_at + 8 * side
            here, there = mine_at + 8 * p * first, edge_at + 8 * p * border
            if p == 1:
                dtrsv(LOWER, PLAIN, PLAIN, k_at, own, k_at, here, one_at)
                if b:
                    dgemv(PLAIN, b_at, k_at, MINUS_ONE, side, b_at, here, one_at, ONE, there, one_at)
            else:
                dtrsm(RIGHT, LOWER, TRANSPOSED, PLAIN, p_at, k_at, ONE, own, k_at, here, p_at)
                if b:
                    dgemm(PLAIN, TRANSPOSED, p_at, b_at, k_at, MINUS_ONE, here, p_at, side, b_at, ONE, there, p_at)
        left.keep(number, edge)
        left.taken(batch)

    climb(fronts, visit)


def backward(fronts: Fronts, columns: list[np.ndarray], x: np.ndarray, pivots: dict[int, np.ndarray]) -> None:
    """Replace (n, p) right-hand sides, C order, by L⁻ᵀ x."""
    p, count = x.shape[1], ctypes.c_int(x.shape[1])
    p_at, one_at = ctypes.addressof(count), fronts.integers.at(1)

    def visit(number: int) -> None:
        batch, factor = fronts.batches[number], columns[number]
        mine, edge = x[batch.start : batch.stop], x.take(batch.border, axis=0)
        factor_at, mine_at, edge_at = factor.ctypes.data, mine.ctypes.data, edge.ctypes.data
        dtrsv, dgemv, dtrsm, dgemm = blas.dtrsv, blas.dgemv, blas.dtrsm, blas.dgemm
        for start, k, b, k_at, b_at, own, side, _, first, border in batch.shapes:
            own, side = factor_at + 8 * own, factor_at + 8 * side
            here, there = mine_at + 8 * p * first, edge_at + 8 * p * border
            if p == 1:
                if b:
                    dgemv(TRANSPOSED, b_at, k_at, MINUS_ONE, side, b_at, there, one_at, ONE, here, one_at)
                dtrsv(LOWER, TRANSPOSED, PLAIN, k_at, own, k_at, here, one_at)
            else:
                if b:
                    dgemm(PLAIN, PLAIN, p_at, k_at, b_at, MINUS_ONE, there, p_at, side, b_at, ONE, here, p_at)
                dtrsm(RIGHT, LOWER, PLAIN, PLAIN, p_at, k_at, ONE, own, k_at, here, p_at)
            if start in pivots:
                part = x[start : start + k]
                part[pivots[start]] = part.copy()

    descend(fronts, visit)


# -- Cholesky factors of sparse matrices: solves, determinants and selected inverses -------------------------


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
            (shape, columns) for batch, columns in zip(f.batches, self._columns, strict=True) for shape in batch.shapes
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


class UpdatedCholesky:
    """The factor of A + Rᵀ diag(w) R by the identity of Woodbury, for a few dense rows R and the factor of A.

    With B = W^½ R A⁻¹ Rᵀ W^½ its inverse is A⁻¹ - A⁻¹ Rᵀ W^½ (I + B)⁻¹ W^½ R A⁻¹.

    Parameters
    ----------
    base : Cholesky
        Of A.
    rows : (p, n) csr_array
        R.
    weights : (p,) array
        w >= 0.
    pattern : (n, n) csr_array
        That of A, for `selected_inverse`.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> matrix = sp.diags_array([-np.ones(9), np.full(10, 2.0), -np.ones(9)], offsets=[-1, 0, 1]).tocsr()
    >>> mean = sp.csr_array(np.full((1, 10), 0.1))
    >>> factor = UpdatedCholesky(Cholesky(Fronts.of(matrix), matrix.data), mean, np.array([3.0]), matrix)
    >>> whole = matrix.toarray() + 3.0 * mean.T @ mean
    >>> bool(np.allclose(factor.solve(np.arange(10.0)), np.linalg.solve(whole, np.arange(10.0))))
    True
    """

    def __init__(self, base: Cholesky, rows: sp.csr_array, weights: np.ndarray, pattern: sp.csr_array) -> None:
        self._base, self._pattern = base, pattern
        self._rows = sp.csr_array(sp.diags_array(np.sqrt(weights)) @ rows)
        self._solved = base.solve(self._rows.T.toarray())
        inner = self._rows @ self._solved
        self._values, self._vectors = np.linalg.eigh(0.5 * (inner + inner.T))
        self._values = np.maximum(self._values, 0.0)

    @property
    def fronts(self) -> Fronts:
        """The plan of the factor of A."""
        return self._base.fronts

    @cached_property
    def log_det(self) -> float:
        """Log determinant of the matrix."""
        return self._base.log_det + float(np.log1p(self._values).sum())

    def _less(self, found: np.ndarray, by_value: np.ndarray) -> np.ndarray:
        """Return x less A⁻¹ Rᵀ W^½ U diag(d) Uᵀ W^½ R x, U and d being the eigenvectors of B and numbers for them."""
        seen = self._vectors.T @ (self._rows @ found)
        scaled = by_value * seen if seen.ndim == 1 else by_value[:, None] * seen
        return np.asarray(found - self._solved @ (self._vectors @ scaled))

    def solve(self, right: np.ndarray) -> np.ndarray:
        """Return the matrix's inverse times (n,) or (n, k) right-hand sides."""
        return self._less(self._base.solve(right), 1.0 / (1.0 + self._values))

    def half_solve(self, right: np.ndarray) -> np.ndarray:
        """Return draws with the inverse as covariance, for standard normal (n, k) draws."""
        # With A = C Cᵀ and F = C⁻¹ Rᵀ W^½ it is C⁻ᵀ (I + F Fᵀ)^-½, and (I + F Fᵀ)^-½ = I - F U diag(d) Uᵀ Fᵀ.
        root = np.sqrt(1.0 + self._values)
        return self._less(self._base.half_solve(right), 1.0 / (root * (1.0 + root)))

    @cached_property
    def _lost(self) -> np.ndarray:
        """(n, p): the inverse of A less this times its transpose is that of the whole."""
        return np.asarray((self._solved @ self._vectors) / np.sqrt(1.0 + self._values))

    def inverse_block(self, rows: sp.csr_array) -> np.ndarray:
        """Return S X Sᵀ, dense, for a few sparse rows S and the inverse X."""
        lost = rows @ self._lost
        return np.asarray(self._base.inverse_block(rows) - lost @ lost.T)

    def selected_inverse(self, length: int) -> np.ndarray:
        """Return the inverse's entries at the pattern's `length` places, in the pattern's order."""
        out, pattern, lost = self._base.selected_inverse(length), self._pattern, self._lost
        row = np.repeat(np.arange(pattern.shape[0]), np.diff(pattern.indptr))
        step = max(4_000_000 // max(lost.shape[1], 1), 1)
        for start in range(0, length, step):
            some = slice(start, start + step)
            out[some] -= np.einsum("ij,ij->i", lost[row[some]], lost[pattern.indices[some]])
        return out


def _refuse(front: Shape, blocks: Blocks, own: np.ndarray) -> None:
    raise np.linalg.LinAlgError("the matrix is not positive definite")


# -- LDLᵀ factors of sparse symmetric matrices, definite or not: solves, and counts of eigenvalues -----------


class LDL:
    """L D Lᵀ of a symmetric matrix minus `shift` times the identity.

    Fronts that are positive definite are Cholesky-factorised, the others by Bunch and Kaufman's pivoting
    within the front.

    Parameters
    ----------
    fronts : Fronts
        For the matrix's pattern.
    data : array
        The matrix's entries, in the pattern's order.
    shift : float

    Attributes
    ----------
    negative : int
        How many eigenvalues of the matrix lie below `shift` (Sylvester's law of inertia).

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> matrix = sp.diags_array([-np.ones(9), np.full(10, 2.0), -np.ones(9)], offsets=[-1, 0, 1]).tocsr()
    >>> factor = LDL(Fronts.of(matrix), matrix.data, 1.0)
    >>> factor.negative  # of 2 - 2 cos(k pi / 11) below 1
    3
    >>> x = factor.solve(np.ones((10, 1)))
    >>> bool(np.allclose(matrix @ x - x, 1.0))
    True
    """

    def __init__(self, fronts: Fronts, data: np.ndarray, shift: float) -> None:
        self.fronts = fronts
        self._negative: dict[int, int] = {}
        # D⁻¹: its diagonal, and what is beside it.
        self._diagonal = np.ones((fronts.n, 1))
        self._beside = np.zeros((fronts.n, 1))
        self._pivots: dict[int, np.ndarray] = {}
        self._columns = eliminate(fronts, data, shift, self._eliminate)
        self.negative = sum(self._negative.values())
        self._pairs = np.flatnonzero(self._beside)

    def _eliminate(self, front: Shape, blocks: Blocks, before: np.ndarray) -> None:
        """Eliminate a front that is not positive definite."""
        own, side, rest = blocks
        lower, order, diagonal, beside, pairs, negative = _bunch_kaufman(before)
        self._negative[front.start] = negative
        stop = front.start + front.k
        self._diagonal[front.start : stop, 0] = diagonal
        self._beside[front.start : stop, 0] = beside
        self._pivots[front.start] = order
        np.fill_diagonal(lower, 1.0)
        own[:] = lower
        if len(side):
            turned = np.asfortranarray(side[:, order])
            product = dtrsm(1.0, own, turned, side=1, lower=1, trans_a=1, overwrite_b=1)
            np.multiply(product, diagonal, out=side)
            side[:, pairs] += product[:, pairs + 1] * beside[pairs]
            side[:, pairs + 1] += product[:, pairs] * beside[pairs]
            dgemm(-1.0, side, product, beta=0.0, c=rest, trans_b=1, overwrite_c=1)

    def solve(self, right: np.ndarray) -> np.ndarray:
        """Solve (matrix - shift I) X = right for a block of vectors (n, p); C order suits best."""
        x = np.ascontiguousarray(right[self.fronts.order])
        forward(self.fronts, self._columns, x, self._pivots)
        # D couples only pairs of neighbours, within the fronts that are not definite.
        pairs = self._pairs
        first, second = x[pairs] * self._beside[pairs], x[pairs + 1] * self._beside[pairs]
        x *= self._diagonal
        x[pairs] += second
        x[pairs + 1] += first
        backward(self.fronts, self._columns, x, self._pivots)
        out = np.empty_like(x)
        out[self.fronts.order] = x
        return out


def _bunch_kaufman(block: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, int]:
    """Factorise block[p][:, p] = L D Lᵀ, with D of 1 x 1 and 2 x 2 pivots.

    Returns
    -------
    L (unit lower triangular; its diagonal and what is above are not to be read), p, the diagonal of D⁻¹, what
    is beside it, where 2 x 2 pivots start, and the number of negative eigenvalues.
    """
    packed, swaps, _ = dsytrf(block, lower=1, lwork=64 * len(block), overwrite_a=1)
    diagonal = np.diagonal(packed).copy()
    lower, beside, _ = dsyconv(packed, swaps, lower=1, overwrite_a=1)
    # A 2 x 2 pivot is a negative number twice: its second row was swapped. It has one negative eigenvalue.
    single = swaps > 0
    pairs = np.flatnonzero(~single)[::2]
    negative = len(pairs) + int(np.sum(diagonal[single] < 0))
    goal = np.abs(swaps) - 1
    goal[pairs] = pairs
    order = list(range(len(block)))
    for k, other in enumerate(goal.tolist()):
        order[k], order[other] = order[other], order[k]
    # An exactly singular pivot (the shift is an eigenvalue of a part) is moved off zero by rounding's size.
    tiny = np.finfo(float).eps * np.abs(diagonal).max(initial=1e-300)
    inverse = 1 / np.where(single, np.where(diagonal == 0, tiny, diagonal), 1.0)
    first, second, off = diagonal[pairs], diagonal[pairs + 1], beside[pairs]
    determinant = first * second - off**2
    inverse[pairs], inverse[pairs + 1] = second / determinant, first / determinant
    between = np.zeros(len(block))
    between[pairs] = -off / determinant
    return lower, np.array(order), inverse, between, pairs, negative
