"""Patches: where a place of a web map lies among the cells, by polynomials that the page's script evaluates.

The script has no projections. Over each patch of the picture the cell coordinates are smooth: their values at a
few Chebyshev places give them everywhere in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from geobgp.web.plane import Plane

#: Largest error of a position, in cells.
TOLERANCE: Final = 1e-4
#: Chebyshev places along each side of a patch.
KNOTS: Final = 8
#: Patches along each side of the picture at most.
MAX_PATCHES: Final = 16
_DECIMALS: Final = 6


@dataclass(frozen=True, eq=False)
class Patches:
    """Cell coordinates over the unit square, which stands for the picture, from its north-west corner.

    Attributes
    ----------
    values : (2, k, n, k, n) array
        Column and row (in units of cells, from the grid's north-west corner) at the knots: patch and knot
        southward, patch and knot eastward.
    """

    values: np.ndarray

    @classmethod
    def over(cls, plane: Plane) -> Patches:
        """Return patches as few as hold the tolerance over all of the land's rows and columns.

        Where even the most of them do not, positions are NaN: nothing is read there.
        """
        grid = plane.domain.grid
        rows, cols = np.nonzero(plane.domain.coverage > 0)

        def exact(s: np.ndarray, t: np.ndarray) -> np.ndarray:
            x = plane.west + s * plane.shape[1] * plane.pixel
            y = plane.north - t * plane.shape[0] * plane.pixel
            return np.stack(grid.to_cells(*plane.from_plane(x, y)))

        n, k = KNOTS, 1
        while True:
            along = ((np.arange(k)[:, None] + _knots(n)) / k).ravel()
            made = cls(np.round(exact(*np.meshgrid(along, along)), _DECIMALS).reshape(2, k, n, k, n))
            # Twice as many places, and none of them a knot.
            between = (np.arange(2 * n * k) + 0.5) / (2 * n * k)
            s, t = np.meshgrid(between, between)
            u, v = exact(s, t)
            with np.errstate(invalid="ignore"):
                wanted = (u > cols.min()) & (u < cols.max() + 1) & (v > rows.min()) & (v < rows.max() + 1)
                off = wanted & ~(np.abs(made.at(s, t) - (u, v)).max(axis=0) <= TOLERANCE)
            if not off.any():
                return made
            if 2 * k > MAX_PATCHES:
                wrong = off.reshape(k, 2 * n, k, 2 * n).any(axis=(1, 3))
                return cls(np.where(wrong[:, None, :, None], np.nan, made.values))
            k *= 2

    def at(self, s: np.ndarray, t: np.ndarray) -> np.ndarray:
        """Return (2, ...) column and row at shares (s, t) of the way east and south; what the script does."""
        k, n = self.values.shape[1:3]
        s, t = np.broadcast_arrays(np.asarray(s, float), np.asarray(t, float))
        east, south = (np.clip((k * share.ravel()).astype(np.int64), 0, k - 1) for share in (s, t))
        across, down = _weights(k * s.ravel() - east, n), _weights(k * t.ravel() - south, n)
        knots = self.values[:, south, :, east, :]
        return np.einsum("pi,pcij,pj->cp", down, knots, across).reshape(2, *s.shape)

    def config(self) -> dict[str, Any]:
        """Return what the page's script needs."""
        k, n = self.values.shape[1:3]
        return {
            "count": k,
            "knots": n,
            "cols": self.values[0].ravel().tolist(),
            "rows": self.values[1].ravel().tolist(),
        }


def _knots(n: int) -> np.ndarray:
    """Chebyshev places on [0, 1], the ends among them."""
    return (1 - np.cos(np.pi * np.arange(n) / (n - 1))) / 2


def _weights(z: np.ndarray, n: int) -> np.ndarray:
    """Return (p, n) weights of the knots at places of [0, 1]: the barycentric formula."""
    sign = np.where(np.arange(n) % 2, -1.0, 1.0)
    sign[[0, -1]] /= 2
    gap = z[:, None] - _knots(n)
    hit = gap == 0
    share = sign / np.where(hit, 1.0, gap)
    share = np.where(hit.any(axis=1, keepdims=True), hit, share)
    return share / share.sum(axis=1, keepdims=True)
