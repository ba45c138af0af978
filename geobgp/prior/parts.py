"""Features of the parts of the land: eigenfunctions that live on one connected part each, and their plain arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from geobgp.errors import CacheError


@dataclass(frozen=True, eq=False)
class FeaturePart:
    """The features of one connected part of the land.

    Attributes
    ----------
    unknowns : (n_c,) int array
        The operator's unknowns in this part, ascending.
    columns : (m_c,) int array
        Which features, in the order of eigenvalues, are its own; ascending.
    vectors : (n_c, m_c) array, C order
        Their values at the unknowns, orthonormal in the mass.
    """

    unknowns: np.ndarray
    columns: np.ndarray
    vectors: np.ndarray = field(repr=False)

    def truncate(self, m: int) -> FeaturePart:
        """Return its features among the first `m`."""
        keep = int(np.searchsorted(self.columns, m))
        if keep == len(self.columns):
            return self
        return FeaturePart(self.unknowns, self.columns[:keep], np.ascontiguousarray(self.vectors[:, :keep]))


def first_features(parts: Sequence[FeaturePart], m: int) -> tuple[FeaturePart, ...]:
    """Return the first `m` features of all; parts that have none of them are left out."""
    some = (part.truncate(m) for part in parts)
    return tuple(part for part in some if len(part.columns))


def dense(parts: Sequence[FeaturePart], n: int, m: int) -> np.ndarray:
    """Return all features at all unknowns, (n, m), C order; without a copy where there is one part."""
    if len(parts) == 1 and len(parts[0].unknowns) == n:
        return parts[0].vectors
    out = np.zeros((n, m))
    for part in parts:
        out[np.ix_(part.unknowns, part.columns)] = part.vectors
    return out


def to_arrays(parts: Sequence[FeaturePart]) -> dict[str, np.ndarray]:
    """Return flat arrays that hold the parts."""
    return {
        "sizes": np.array([part.vectors.shape for part in parts], np.int64).reshape(-1, 2),
        "unknowns": np.concatenate([part.unknowns for part in parts]).astype(np.int64),
        "columns": np.concatenate([part.columns for part in parts]).astype(np.int64),
        "vectors": np.concatenate([part.vectors.ravel() for part in parts]),
    }


def from_arrays(arrays: dict[str, np.ndarray], n: int, m: int) -> tuple[FeaturePart, ...]:
    """Rebuild the parts of `m` features of an operator with `n` unknowns; what does not fit is a CacheError."""
    sizes, unknowns, columns, vectors = (arrays[k] for k in ("sizes", "unknowns", "columns", "vectors"))
    rows, width = sizes.T if sizes.ndim == 2 and sizes.shape[1:] == (2,) else (np.zeros(1), np.zeros(1))
    sound = (
        (sizes > 0).all()
        and len(unknowns) == rows.sum()
        and len(columns) == width.sum() == m
        and vectors.shape == (int(rows @ width),)
        and np.array_equal(np.sort(columns), np.arange(m))
        and len(np.unique(unknowns)) == len(unknowns)
        and unknowns.min(initial=0) >= 0
        and unknowns.max(initial=-1) < n
    )
    if not sound:
        raise CacheError(f"These are not {m:,} features of an operator with {n:,} unknowns.")
    pieces = zip(
        np.split(unknowns, np.cumsum(rows)[:-1]),
        np.split(columns, np.cumsum(width)[:-1]),
        np.split(vectors, np.cumsum(rows * width)[:-1]),
        strict=True,
    )
    return tuple(FeaturePart(u, c, v.reshape(len(u), len(c))) for u, c, v in pieces)
