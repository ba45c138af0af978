"""Trees of fronts, parted so that two threads can climb them at once.

The heaviest branches make two *limbs* of about the same work; where these meet is the *top*. Within a limb, and within
the top, fronts are sorted by their depth: those of the same depth have nothing to do with each other.
"""

from __future__ import annotations

import heapq
import itertools
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from geobgp.linalg.ordering import Ordering

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
