"""Elimination: the numbers that go through a plan of `Fronts`, up the tree to a factor and down again to solutions.

Everything is done batch by batch: what the batches below have left is brought together, and each front is then a few
calls of BLAS. The two limbs of the tree go to two threads.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from functools import partial

import numpy as np

from geobgp.linalg import blas
from geobgp.linalg.batches import Batch, Shape, columns_of
from geobgp.linalg.blas import LEFT, LOWER, MINUS_ONE, ONE, PLAIN, RIGHT, TRANSPOSED, ZERO
from geobgp.linalg.fronts import Fronts
from geobgp.linalg.threads import together

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
                dsymm(
                    LEFT,
                    LOWER,
                    b_at,
                    k_at,
                    MINUS_ONE,
                    outer_at + 8 * rest,
                    b_at,
                    scaled,
                    b_at,
                    ZERO,
                    cross,
                    b_at,
                )
                dgemm(
                    TRANSPOSED, PLAIN, k_at, k_at, b_at, MINUS_ONE, scaled, b_at, cross, b_at, ONE, mine, k_at
                )
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
            added: np.ndarray = (
                batch.add @ given if many else np.bincount(batch.up, given[:, 0], size)[:, None]
            )
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
                    dgemm(
                        PLAIN,
                        TRANSPOSED,
                        p_at,
                        b_at,
                        k_at,
                        MINUS_ONE,
                        here,
                        p_at,
                        side,
                        b_at,
                        ONE,
                        there,
                        p_at,
                    )
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
