"""Corners: the four cells around each corner of the grid, and which of their land hangs together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from geobgp.land.pieces import Pieces


@dataclass(frozen=True, eq=False)
class Corners:
    """The 2 x 2 cells around every corner of the grid, as bilinear interpolation needs them.

    A corner amid four whole cells that are open to each other is inland. Around the others, pieces of land
    form groups: those that touch, directly or through each other, within the four cells.

    Attributes
    ----------
    inland : (rows + 1, cols + 1) bool
        Corners amid four whole cells that are open to each other.
    key : (k,) int
        corner * number of pieces + piece of all members of groups, ascending.
    group : (k,) int
        The group of each.
    member : (k,) int
        Pieces, group by group.
    start : (groups + 1,) int
        Where each group begins in `member`.
    share : (k,) float
        Each member's share of the land that its cell has in its group.
    """

    pieces: Pieces
    single_piece: np.ndarray
    inland: np.ndarray
    key: np.ndarray
    group: np.ndarray
    member: np.ndarray
    start: np.ndarray
    share: np.ndarray

    @classmethod
    def of(cls, pieces: Pieces, single_piece: np.ndarray) -> Corners:
        """Group the pieces around each corner; `single_piece` is the piece of each whole cell."""
        whole = np.pad(pieces.whole, 1)
        inland = whole[:-1, :-1] & whole[:-1, 1:] & whole[1:, :-1] & whole[1:, 1:]
        length = np.bincount(pieces.vertex, pieces.open_length, inland.size).reshape(inland.shape)
        inland &= length > 2 - 1e-6
        inland.setflags(write=False)
        base = np.int64(len(pieces.cell))
        ragged = ~inland.ravel()[pieces.vertex]
        first = pieces.vertex[ragged] * base + pieces.first[ragged]
        second = pieces.vertex[ragged] * base + pieces.second[ragged]
        key = np.unique(np.r_[first, second])
        a, b = np.searchsorted(key, first), np.searchsorted(key, second)
        graph = sp.coo_array((np.ones(len(a)), (a, b)), shape=(len(key), len(key)))
        group = connected_components(graph, directed=False)[1] if len(key) else np.empty(0, np.int64)
        order = np.argsort(group, kind="stable")
        member = (key % base)[order]
        start = np.searchsorted(group[order], np.arange(group.max(initial=-1) + 2))
        _, cell = np.unique(group[order] * np.int64(whole.size) + pieces.cell[member], return_inverse=True)
        share = (
            pieces.area[member] / np.bincount(cell, pieces.area[member])[cell] if len(cell) else np.empty(0)
        )
        return cls(pieces, single_piece, inland, key, group, member, start, share)

    def weights(
        self, own: np.ndarray, u: np.ndarray, v: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return (row, piece, weight) of bilinear interpolation at places on the pieces `own`.

        Only land in one group with the own piece takes part, so the weights may sum to less than one. (u, v)
        are in units of cells.
        """
        cols = self.pieces.whole.shape[1]
        vertex_col, vertex_row = np.floor(u + 0.5), np.floor(v + 0.5)
        fu, fv = u + 0.5 - vertex_col, v + 0.5 - vertex_row
        vertex = (vertex_row * (cols + 1) + vertex_col).astype(np.int64)
        inland = self.inland.ravel()[vertex]
        out = []
        simple = np.flatnonzero(inland)
        for dr, wv in ((-1, 1 - fv), (0, fv)):
            for dc, wu in ((-1, 1 - fu), (0, fu)):
                cell = ((vertex_row + dr) * cols + vertex_col + dc).astype(np.int64)
                out.append((simple, self.single_piece[cell[simple]], (wv * wu)[simple]))
        rest = np.flatnonzero(~inland)
        group = self._group_of(vertex[rest], own[rest])
        lone = rest[group < 0]
        out.append((lone, own[lone], np.ones(len(lone))))
        rest, group = rest[group >= 0], group[group >= 0]
        count = self.start[group + 1] - self.start[group]
        row = np.repeat(rest, count)
        at = np.repeat(self.start[group] - (np.cumsum(count) - count), count) + np.arange(len(row))
        piece = self.member[at]
        cell = self.pieces.cell[piece]
        wu = np.where(cell % cols == vertex_col[row], fu[row], 1 - fu[row])
        wv = np.where(cell // cols == vertex_row[row], fv[row], 1 - fv[row])
        # Pieces of one cell share its weight by area, but a place's own cell counts for its own piece alone.
        mine = cell == self.pieces.cell[own[row]]
        weight = wu * wv * np.where(mine, piece == own[row], self.share[at])
        out.append((row, piece, weight))
        row, piece, weight = (np.concatenate(x) for x in zip(*out, strict=True))
        return row, piece, weight

    def _group_of(self, vertex: np.ndarray, piece: np.ndarray) -> np.ndarray:
        """Return the group of pieces around corners; -1 for a piece that touches nothing there."""
        if len(self.key) == 0:
            return np.full(len(vertex), -1)
        wanted = vertex * np.int64(len(self.pieces.cell)) + piece
        at = np.minimum(np.searchsorted(self.key, wanted), len(self.key) - 1)
        return np.where(self.key[at] == wanted, self.group[at], -1)
