"""Fronts: the plan by which sparse symmetric matrices are eliminated in dense blocks, along the tree of an `Ordering`.

A *front* is a set of unknowns that are eliminated together, with its *border*: the later unknowns that they
touch. Its columns of the matrix are two dense blocks, `own` (k, k) and `side` (b, k). Eliminating it leaves
an update of its border, `rest` (b, b), which is added to the blocks of the front above. Blocks are in Fortran
order, and of symmetric ones only the lower triangle counts.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import NamedTuple, NoReturn

import numpy as np
import scipy.sparse as sp

from geobgp.linalg.batches import Batch, batches_of
from geobgp.linalg.blas import Integers
from geobgp.linalg.ordering import nested_dissection
from geobgp.linalg.tree import Tree

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
        lower = np.arange(pattern.nnz) + np.repeat(
            pattern.indptr[tree.order] - np.cumsum(degree) + degree, degree
        )
        row, col = rank[pattern.indices[lower]], np.repeat(np.arange(n), degree)
        below = row >= col
        lower, row, col = lower[below], row[below], col[below]
        mirror = sp.csr_array(
            (np.arange(pattern.nnz), pattern.indices, pattern.indptr), shape=(n, n)
        ).T.tocsr()
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
        plan = sum(
            move.columns_to.size + move.rests_to.size for batch in self.batches for move in batch.moves
        )
        return 8 * (self.entries + 2 * plan + 6 * max(batch.columns + batch.rests for batch in self.batches))

    @property
    def top(self) -> range:
        """The batches that come after the limbs."""
        return range(max((limb.stop for limb in self.limbs), default=0), len(self.batches))
