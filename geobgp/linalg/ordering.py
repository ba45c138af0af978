"""Nested dissection: the order of elimination that keeps the factors of grid-like matrices sparse.

A connected set of unknowns is cut by a few of them, the separator; what is left falls into connected parts,
which are cut in turn until they are small. The unknowns of each part come before the separator.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components, dijkstra

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
    indptr = np.searchsorted(row, np.arange(n + 1, dtype=np.int32))
    return sp.csr_array((np.ones(len(col)), col, indptr), shape=(n, n))


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
