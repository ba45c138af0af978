"""Smallest eigenpairs of sparse symmetric matrices, component by component, by block Lanczos with shift and invert."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import eigh, qr
from scipy.linalg.blas import dgemm, dsyrk, dtrsm
from scipy.linalg.lapack import dpotrf
from scipy.sparse.csgraph import connected_components

from geobgp.errors import GeobgpError, SizeError
from geobgp.linalg.sparse import LDL, Fronts
from geobgp.progress import Stage

# -- The lowest eigenpairs of one connected component: block Lanczos, slice by slice of the spectrum ---------
# A shift is put into the part of the spectrum that comes next, the shifted matrix is factorised
# (`geobgp.linalg.sparse`), and block Lanczos on its inverse, kept orthogonal to all vectors found before, yields
# the eigenpairs on both sides of the shift. The signs in each factor count the eigenvalues below its shift, so
# an eigenvalue that was missed is noticed and found.


#: Parts of components up to this size are eliminated as one front.
_LEAF = 96
#: Vectors that are solved for at a time.
BLOCK = 8
#: Eigenpairs that one factor should yield.
SLICE = 200
#: Where in a slice its shift lies.
_MIDDLE = 0.55
#: Residual, relative to the eigenvalue, at which Lanczos holds a pair to be found.
_TOLERANCE = 2e-9
#: Residual, relative to the eigenvalue, above which a pair is not accepted after all.
_ACCEPT = 2e-7
#: Eigenvalues closer than this, relatively, are held to be one repeated eigenvalue.
EQUAL = 1e-7


@cache
def _weight(n: int) -> np.ndarray:
    return np.random.default_rng(n).uniform(0.0, 1.0, n)


_Tell = Callable[["Component", int], None]


class Component(ABC):
    """The lowest eigenpairs of one connected component, as far as they are known.

    `values` belong to the columns of `vectors`, a list of arrays; all eigenvalues up to `frontier` are among
    them.
    """

    def __init__(self, matrix: sp.csr_array, share: float, coords: np.ndarray | None) -> None:
        self.matrix = matrix
        self.n = matrix.shape[0]
        self.share = share
        self.norm = float(np.abs(matrix).sum(axis=1).max())
        #: Values below this are zero as far as anyone can tell.
        self.rounding = 64 * np.finfo(float).eps * self.norm
        self.values = np.empty(0)
        self.vectors: list[np.ndarray] = []
        self.frontier = -np.inf

    @abstractmethod
    def advance(self, tell: _Tell) -> None:
        """Find more eigenpairs, from the frontier on."""

    def certify(self, level: float, tell: _Tell) -> bool:
        """Tell whether all eigenvalues below `level`, itself below the frontier, are known; if not, find them."""
        return True  # dense algebra misses none

    def solve_densely(self) -> None:
        """Find about twice what is known or expected, at once, from a dense matrix."""
        want = min(self.n, 2 * len(self.values) + int(2 * self.share) + 8)
        full = self.matrix.toarray()
        if want > self.n // 3:
            self.values, vectors = eigh(full, overwrite_a=True)
        else:
            self.values, vectors = eigh(full, overwrite_a=True, subset_by_index=[0, want - 1])
        self.vectors = [np.asfortranarray(vectors)]
        self.frontier = np.inf if len(self.values) == self.n else float(self.values[-1])

    def columns(self, which: np.ndarray) -> list[np.ndarray]:
        """Return the vectors of values `which`."""
        start = np.cumsum([0, *(block.shape[1] for block in self.vectors)])
        block = np.searchsorted(start, which, side="right") - 1
        return [self.vectors[b][:, w - start[b]] for b, w in zip(block, which, strict=True)]

    def settle(self, highest: float) -> None:
        """Fix each vector's sign and the axes within each repeated eigenvalue by sums with fixed weights.

        Eigenvalues beyond `highest` are left alone.
        """
        weight = _weight(self.n)
        ascending = np.argsort(self.values, kind="stable")
        sorted_values = self.values[ascending]
        apart = np.diff(sorted_values) > np.maximum(EQUAL * sorted_values[1:], self.rounding)
        for group in np.split(ascending, np.flatnonzero(apart) + 1):
            if self.values[group].min() > highest:
                break
            group.sort()
            vectors = self.columns(group)
            if len(group) > 1:
                stacked = np.stack(vectors, axis=1)
                axes = eigh(stacked.T @ (weight[:, None] * stacked))[1]
                for vector, new in zip(vectors, (stacked @ axes).T, strict=True):
                    vector[:] = new
            for vector in vectors:
                if vector @ weight < 0:
                    np.negative(vector, out=vector)


class Known(Component):
    """A component whose eigenpairs are all known from the start."""

    def __init__(self, values: np.ndarray, vectors: np.ndarray, norm: float) -> None:
        self.n, self.share, self.norm = len(values), float(len(values)), norm
        self.rounding = 64 * np.finfo(float).eps * norm
        self.values, self.vectors, self.frontier = values.copy(), [np.asfortranarray(vectors)], np.inf

    def advance(self, tell: _Tell) -> None:
        """Refuse: there are no more."""
        raise GeobgpError("Everything is known of this component.")


class Dense(Component):
    """A small component: all that is asked for at once, from a dense matrix."""

    def advance(self, tell: _Tell) -> None:
        """Find about twice as many."""
        self.solve_densely()


class Sweep(Component):
    """A large component, swept upwards slice by slice."""

    def __init__(self, matrix: sp.csr_array, share: float, coords: np.ndarray | None) -> None:
        super().__init__(matrix, share, coords)
        self._fronts = Fronts.of(matrix, coords, _LEAF)
        self._random = np.random.default_rng(20190416)
        self._highest: list[float] = []
        # Weyl's law, with a fifth taken off for the shore's share under Neumann.
        self._spacing = 0.8 * 4 * np.pi / self.n

    def advance(self, tell: _Tell) -> None:
        """Find the eigenpairs around a shift beyond the frontier."""
        left = max(1.02 * self.share + 4 - len(self.values), 8.0)
        want = int(np.ceil(left / np.ceil(left / SLICE)))
        # Krylov spaces that would fill much of the whole space: dense algebra is quicker and surer.
        if len(self.values) + 4 * want + 24 * BLOCK > self.n // 2:
            self.solve_densely()
            return
        known = np.sort(self.values)
        base = max(self.frontier, 0.0)
        if len(known) > 16:
            behind = min(len(known) - 1, 64)
            self._spacing = (known[-1] - known[-1 - behind]) / behind
        step = _MIDDLE * want * self._spacing
        for _ in range(5):
            shift = base + step
            factor = LDL(self._fronts, self.matrix.data, shift)
            missing = factor.negative - int(np.sum(known < shift))
            if missing <= 0.8 * want + 2:
                break
            step *= _MIDDLE * want / missing
        self._spacing = step / max(missing, 1)
        self._fill(factor, shift, missing, max(want, missing), tell)

    def certify(self, level: float, tell: _Tell) -> bool:
        """Count the eigenvalues below `level`; find those that are missing."""
        if self.frontier == np.inf:
            return True
        factor = LDL(self._fronts, self.matrix.data, level)
        missing = factor.negative - int(np.sum(self.values < level))
        if missing > 0:
            self._fill(factor, level, missing, missing, tell)
        return missing == 0

    def _fill(self, factor: LDL, shift: float, missing: int, want: int, tell: _Tell) -> None:
        """Find the `missing` eigenpairs below the shift, and above it as many as make up `want`."""
        for turn in range(1, 17):
            low, high = self._lanczos(factor, shift, missing, want, 4 * want + 16 * turn * BLOCK, tell)
            missing, want = missing - low, want - low - high
            if missing <= 0:
                self.frontier = max(self.frontier, shift, float(self.values.max()))
                return
            # More equal eigenvalues than vectors in a block: the others are first in a new start.
            want = max(want, missing)
        raise GeobgpError(
            f"The eigenvalue solver found {len(self.values)} eigenpairs and could not find {missing} more "
            f"below {shift:g} (scaled) of a component of {self.n} unknowns; is the matrix symmetric?"
        )

    def _lanczos(self, factor: LDL, shift: float, missing: int, want: int, most: int, tell: _Tell) -> tuple[int, int]:
        """Run block Lanczos on the inverse, up to `most` vectors, and keep the pairs that it finds.

        Returns how many these are, below and above the shift.
        """
        p = BLOCK
        # Vectors found before, with eigenvalues near the shift, would come back by rounding; others do not.
        reach = shift - 1.5 * max(want, SLICE) * self._spacing
        near = [block for block, highest in zip(self.vectors, self._highest, strict=True) if highest > reach]
        limit = min(most, self.n - len(self.values) - 3 * p) // p * p
        basis = np.empty((self.n, limit + p), order="F")
        projected = np.zeros((limit + p, limit + p), order="F")
        new = self._random.standard_normal((self.n, p))
        for _ in range(2):
            _project_out(new, self.vectors)
        basis[:, :p] = _orthonormalise(new)[0]
        k, found, check = 0, 0, int(1.8 * want)
        while True:
            tell(self, found)
            new = factor.solve(np.ascontiguousarray(basis[:, k : k + p]))
            before = max(k - p, 0)
            block = _project_out(new, [basis[:, before : k + p]])[-p:]
            block += _project_out(new, [*near, basis[:, : k + p]])[-p:]
            projected[k : k + p, k : k + p] = (block + block.T) / 2
            new, beta = _orthonormalise(new)
            if np.abs(np.diagonal(beta)).min() < 1e-6 * np.abs(np.diagonal(beta)).max():
                _project_out(new, [*near, basis[:, : k + p]])
                new, again = _orthonormalise(new)
                beta = again @ beta
            k += p
            basis[:, k : k + p] = new
            projected[k : k + p, k - p : k] = beta
            if k < check and k < limit:
                continue
            theta, coefficients = eigh(projected[:k, :k], check_finite=False, driver="evd")
            last = beta @ coefficients[k - p :]
            with np.errstate(divide="ignore", invalid="ignore"):
                value = shift + 1 / theta
                # The step towards the next block ("purification") leaves a residual of just this size.
                error = np.linalg.norm(last, axis=0) / theta**2
                # An eigenvalue close to the shift makes theta large, and rounding with it.
                rounding = 8 * np.finfo(float).eps * np.abs(theta).max() / theta**2
            limits = _TOLERANCE * np.abs(value) + 1e-12 * shift + 0.1 * self.rounding + rounding
            good = np.isfinite(value) & (error <= limits)
            low = np.flatnonzero(good & (theta < 0))
            high = np.flatnonzero(theta > 0)[::-1]
            high = high[: int(np.argmin(np.append(good[high], False)))]
            found = len(low) + len(high)
            if (len(low) >= missing and found >= want) or k >= limit:
                break
            check = k + max(p, want // 8)
        which = np.r_[low, high]
        if len(which) == 0:
            return 0, 0
        weights = np.asfortranarray(np.vstack([coefficients[:, which], last[:, which] / theta[which]]))
        rows = [dgemm(1.0, weights, basis[:, : k + p], trans_a=1, trans_b=1).T]
        del basis, new
        return self._keep(rows.pop(), factor, shift)

    def _keep(self, rows: np.ndarray, factor: LDL, shift: float) -> tuple[int, int]:
        """Polish vectors, and add them to those known if they are what they should be."""
        for turn in range(3):
            _project_out(rows, self.vectors)
            rows = _orthonormalise(rows)[0]
            # Rounding near the shift mixes vectors of close eigenvalues; the matrix itself tells them apart.
            image = np.ascontiguousarray(self.matrix @ rows)
            value, axes = eigh(dgemm(1.0, rows.T, image.T, trans_b=1), check_finite=False, driver="evd")
            rows = dgemm(1.0, np.asfortranarray(axes), rows.T, trans_a=1).T
            image = dgemm(1.0, np.asfortranarray(axes), image.T, trans_a=1).T
            for at in range(0, self.n, 4096):
                image[at : at + 4096] -= rows[at : at + 4096] * value
            residual = np.sqrt(np.einsum("ij,ij->j", image, image))
            rough = np.flatnonzero(residual > 0.5 * _ACCEPT * np.abs(value) + 0.1 * self.rounding)
            if len(rough) == 0 or turn == 2:
                break
            # What rounding has left, mostly of high frequency, is smoothed by one more solve.
            rows[:, rough] -= factor.solve(np.ascontiguousarray(image[:, rough]))
        good = residual <= _ACCEPT * np.abs(value) + self.rounding + 1e-11 * shift
        low, high = good & (value < shift), good & (value >= shift)
        # Above the shift only an unbroken run counts: the frontier must not pass a pair that was refused.
        refused = value[~good & (value >= shift)]
        high &= value < refused.min(initial=np.inf)
        keep = low | high
        if keep.any():
            self.vectors.append(np.asfortranarray(rows[:, keep]))
            self.values = np.append(self.values, value[keep])
            self._highest.append(float(value[keep].max()))
        return int(low.sum()), int(high.sum())


def _project_out(block: np.ndarray, bases: list[np.ndarray]) -> Any:
    """Make a block (n, p), C order, orthogonal to bases (n, k), Fortran order; return the last products."""
    coefficients = None
    for basis in bases:
        coefficients = dgemm(1.0, basis, block.T, trans_a=1, trans_b=1)
        dgemm(-1.0, coefficients, basis, beta=1.0, c=block.T, trans_a=1, trans_b=1, overwrite_c=1)
    return coefficients


def _orthonormalise(block: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return orthonormal columns Q, C order, and R with block = Q R: Cholesky twice, else Householder."""
    total = np.eye(block.shape[1])
    out = block
    for _ in range(2):
        r, info = dpotrf(dsyrk(1.0, out.T), clean=1)
        spread = np.diagonal(r).min() / np.diagonal(r).max() if info == 0 else 0.0
        if spread < 1e-7:
            q, r = qr(block, mode="economic", check_finite=False)
            return np.ascontiguousarray(q), r
        out = dtrsm(1.0, r, out.T, trans_a=1).T
        total = r @ total
        if spread > 0.03:  # orthonormal to 1e-13 at the first turn
            break
    return out, total


# -- The smallest eigenpairs of a sparse symmetric matrix, over all its connected components -----------------
# Each connected component is solved by itself, so its eigenvectors are exactly zero elsewhere and equal
# eigenvalues of different islands cannot hide each other. Small components are solved densely, large ones swept
# upwards (`geobgp.linalg.eigen`); a last factor behind the m-th eigenvalue certifies that there are m below it.


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


def _solve(matrix: sp.csr_array, m: int, coords: np.ndarray | None, stage: Stage) -> tuple[np.ndarray, list[EigenPart]]:
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
    parts: list[Component] = []
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

    def tell(now: Component, more: int) -> None:
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
    parts: list[Component], order: np.ndarray, ends: np.ndarray, q: int, m: int, scale: float
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
