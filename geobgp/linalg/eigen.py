"""The smallest eigenpairs of a sparse symmetric matrix, over all its connected components.

Each connected component is solved by itself, so its eigenvectors are exactly zero elsewhere and equal
eigenvalues of different islands cannot hide each other. Small components are solved densely, large ones swept
upwards (`geobgp.linalg.lanczos`); a last factor behind the m-th eigenvalue certifies that there are m below it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from geobgp.errors import SizeError
from geobgp.linalg.lanczos import BLOCK, EQUAL, SLICE, Dense, Known, Part, Sweep
from geobgp.progress import Stage

#: Components up to this size are solved densely.
_DENSE = 600
#: Components up to this size are solved densely together with others of the same size.
_TINY = 24


@dataclass(frozen=True, eq=False)
class EigenPart:
    """Eigenvectors that live on one connected component.

    Attributes
    ----------
    rows : (n_c,) int array
        The component's unknowns, ascending.
    columns : (m_c,) int array
        Which of all eigenvalues its vectors belong to, ascending.
    vectors : (n_c, m_c) array, Fortran order
    """

    rows: np.ndarray
    columns: np.ndarray
    vectors: np.ndarray


def smallest_eigenpairs(
    matrix: sp.csr_array, m: int, *, coords: np.ndarray | None = None, stage: Stage | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the `m` smallest eigenvalues and their vectors of a sparse, symmetric, semidefinite matrix.

    Parameters
    ----------
    matrix : (n, n) csr_array
        Symmetric, positive semidefinite, with a graph like a grid's.
    m : int
        1 <= m <= n.
    coords : (n, d) array, optional
        Where the unknowns lie; any unit. They make the factors of large matrices sparser.
    stage : Stage, optional
        Told now and then how many of the pairs are found.

    Returns
    -------
    values : (m,) array
        Ascending.
    vectors : (n, m) array, Fortran order
        Orthonormal columns. Residuals are below 1e-6 of the eigenvalue; each vector lives on one connected
        component.

    Notes
    -----
    The result is the same bit for bit on every run: the start is fixed and BLAS is held to one thread (the
    number of threads changes the last bits of a product, and more of them gain little here). Each vector's
    sign, and the axes within a repeated eigenvalue, follow from sums with fixed weights, so they do not
    depend on `m` or on the path of the solver either, beyond rounding. `m` may cut a repeated eigenvalue; its
    axes are then those of the whole.

    Examples
    --------
    >>> twos = np.r_[1.0, np.full(8, 2.0), 1.0]
    >>> path = sp.diags_array([-np.ones(9), twos, -np.ones(9)], offsets=[-1, 0, 1])
    >>> values, vectors = smallest_eigenpairs(path.tocsr(), 3)
    >>> [round(float(v), 6) for v in values]
    [0.0, 0.097887, 0.381966]
    """
    values, parts = eigenpairs_by_part(matrix, m, coords=coords, stage=stage)
    vectors = np.zeros((matrix.shape[0], m), order="F")
    for part in parts:
        vectors[np.ix_(part.rows, part.columns)] = part.vectors
    return values, vectors


def eigenpairs_by_part(
    matrix: sp.csr_array, m: int, *, coords: np.ndarray | None = None, stage: Stage | None = None
) -> tuple[np.ndarray, list[EigenPart]]:
    """Return what `smallest_eigenpairs` does, with the vectors by connected component; those without are left out."""
    matrix = sp.csr_array(matrix, copy=True)
    matrix.eliminate_zeros()
    n = matrix.shape[0]
    if not 1 <= m <= n:
        raise SizeError(f"{m} eigenpairs were asked for; a matrix of {n} unknowns has from 1 to {n}.")
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1, user_api="blas"):
        return _solve(matrix, m, coords, stage or Stage())


def memory_needed(n: int, m: int) -> int:
    """Return about how many bytes `smallest_eigenpairs` needs at its peak, its result included."""
    if m + 4 * min(m, SLICE) + 24 * BLOCK > n // 2:
        return 8 * n * (3 * n + m)
    krylov = 3 * min(m, SLICE) + 8 * BLOCK
    return 8 * n * (2 * m + krylov + 180)


def _solve(
    matrix: sp.csr_array, m: int, coords: np.ndarray | None, stage: Stage
) -> tuple[np.ndarray, list[EigenPart]]:
    n = matrix.shape[0]
    diagonal = matrix.diagonal()
    # In units in which the eigenvalues of a grid Laplacian grow like 4 pi k / n.
    scale = float(np.median(diagonal)) * 0.3 or float(diagonal.max()) or 1.0
    labels = connected_components(matrix, directed=False)[1]
    order = np.argsort(labels, kind="stable")
    ends = np.cumsum(np.bincount(labels))
    by_part = sp.csr_array(matrix[order][:, order])
    by_part.sort_indices()
    starts = np.r_[0, ends[:-1]]
    tiny = _solve_tiny(by_part, starts, ends, scale)
    parts: list[Part] = []
    for k, (start, stop) in enumerate(zip(starts, ends, strict=True)):
        if k in tiny:
            parts.append(Known(*tiny[k]))
            continue
        a, b = by_part.indptr[start], by_part.indptr[stop]
        block = sp.csr_array(
            (by_part.data[a:b] / scale, by_part.indices[a:b] - start, by_part.indptr[start : stop + 1] - a),
            shape=(stop - start, stop - start),
        )
        kind = Dense if stop - start <= _DENSE else Sweep
        places = None if coords is None else coords[order[start:stop]]
        parts.append(kind(block, m * (stop - start) / n, places))

    def tell(now: Part, more: int) -> None:
        # No part counts for more than is expected of it: what is found beyond m is no progress.
        done = sum(min(len(part.values) + more * (part is now), part.share) for part in parts)
        stage.step(int(done), m)

    stage.tell("eigenpairs")
    rounding = max(part.rounding for part in parts)
    while True:
        for part in parts:
            if not len(part.values):
                part.advance(tell)
        known = np.sort(np.concatenate([part.values for part in parts]))
        known = known[known <= min(part.frontier for part in parts)]
        # One more than m, so that the cut has two sides; and on to the end of a repeated eigenvalue.
        gaps = np.flatnonzero(np.diff(known[m - 1 :]) > np.maximum(EQUAL * known[m:], rounding))
        if len(gaps) or len(known) == n:
            q = m + int(gaps[0]) if len(gaps) else n
            if len(gaps) == 0 or all([part.certify((known[q - 1] + known[q]) / 2, tell) for part in parts]):
                break
        else:
            min(parts, key=lambda part: part.frontier).advance(tell)
    stage.step(m, m)
    return _collect(parts, order, ends, q, m, scale)


def _solve_tiny(
    by_part: sp.csr_array, starts: np.ndarray, ends: np.ndarray, scale: float
) -> dict[int, tuple[np.ndarray, np.ndarray, float]]:
    """Return values, vectors and norm of every small component, solved together with others of its size."""
    size = ends - starts
    rows = np.repeat(np.arange(len(size)), size)
    out: dict[int, tuple[np.ndarray, np.ndarray, float]] = {}
    if (size <= _TINY).any():
        coo = by_part.tocoo()
        part = rows[coo.coords[0]]
        row, col = coo.coords[0] - starts[part], coo.coords[1] - starts[part]
        for s in np.unique(size[size <= _TINY]):
            which = np.flatnonzero(size == s)
            place = np.full(len(size), -1)
            place[which] = np.arange(len(which))
            mine = place[part] >= 0
            stack = np.zeros((len(which), s, s))
            stack[place[part[mine]], row[mine], col[mine]] = coo.data[mine] / scale
            values, vectors = np.linalg.eigh(stack)
            norm = np.abs(stack).sum(axis=2).max(axis=1)
            for k, v, x, one in zip(which, values, vectors, norm, strict=True):
                out[int(k)] = v, x, float(one)
    return out


def _collect(
    parts: list[Part], order: np.ndarray, ends: np.ndarray, q: int, m: int, scale: float
) -> tuple[np.ndarray, list[EigenPart]]:
    """Sort the first q pairs of all parts, settle axes and signs, and return the first m."""
    for part in parts:
        # Zero as far as anyone can tell; then the order among equal eigenvalues is that of the parts.
        part.values[np.abs(part.values) < part.rounding] = 0.0
    values = np.concatenate([part.values for part in parts])
    owner = np.repeat(np.arange(len(parts)), [len(part.values) for part in parts])
    column = np.concatenate([np.arange(len(part.values)) for part in parts])
    first = np.argsort(values, kind="stable")[:q]
    ascending = values[first]
    # Among equal eigenvalues the order is that of the parts and of the axes, not of the last bits.
    cluster = np.cumsum(np.diff(ascending, prepend=0.0) > EQUAL * ascending)
    first = first[np.lexsort((column[first], owner[first], cluster))][:m]
    out = []
    by_owner = np.argsort(owner[first], kind="stable")
    bounds = np.searchsorted(owner[first][by_owner], np.arange(len(parts) + 1))
    for k, part in enumerate(parts):
        mine = by_owner[bounds[k] : bounds[k + 1]]
        if len(mine):
            which = column[first[mine]]
            part.settle(float(part.values[which].max()))
            rows = order[(ends[k - 1] if k else 0) : ends[k]]
            vectors = np.asfortranarray(np.stack(part.columns(which), axis=1))
            out.append(EigenPart(rows, mine, vectors))
        part.vectors.clear()
    return ascending[:m] * scale, out
