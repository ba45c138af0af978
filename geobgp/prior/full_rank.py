"""FullRank: the Matern prior with a weight for every unknown, as a sparse precision matrix.

With S the Laplacian's symmetric matrix, M its masses and z = M^½ f the prior is z ~ N(0, Q⁻¹),

    Q = c (κ² I + S)^(ν + 1),   c = 1 / (4πν σ² κ^2ν),   κ² = 2ν / ℓ²,

the kernel's spectral density at the matrix instead of at its eigenvalues: no eigenvectors, no truncation.
Inside, lengths are in cells, so that all numbers are of order one whatever the unit.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from geobgp.errors import GeobgpError, SizeError
from geobgp.linalg.cholesky import Factor, Plan
from geobgp.linalg.memory import free_memory
from geobgp.prior.base import Basis
from geobgp.prior.kernels import Kernel, Matern
from geobgp.prior.laplacian import Boundary, Discretisation, Scheme, discretise

if TYPE_CHECKING:
    from geobgp.land.domain import Domain

#: Share of the memory that is free now which a factor may take.
_MEMORY_SHARE = 0.7
#: Bytes of factors that are kept, for samples from several states.
_KEEP = 1_000_000_000


class FullRank(Basis):
    """The twin of `HarmonicBasis` without truncation: the first argument of `LGCP` and `BoundaryGP`.

    Parameters
    ----------
    domain : Domain
    boundary : "neumann" or "dirichlet"
    scheme : "subcell" or "staircase"

    Examples
    --------
    >>> import shapely
    >>> from geobgp import Domain
    >>> domain = Domain.from_polygons(shapely.box(0, 0, 10, 10), cell_size=1, crs="local")
    >>> FullRank(domain)
    FullRank(100 unknowns, neumann, subcell)
    """

    truncated = False

    def __init__(self, domain: Domain, *, boundary: Boundary = "neumann", scheme: Scheme = "subcell") -> None:
        self.domain = domain
        self.boundary: Boundary = boundary
        self.scheme: Scheme = scheme
        self.discretisation: Discretisation = discretise(domain, boundary=boundary, scheme=scheme)
        self._kept: OrderedDict[object, Factor] = OrderedDict()

    def __repr__(self) -> str:
        return f"FullRank({len(self.discretisation.mass):,} unknowns, {self.boundary}, {self.scheme})"

    @property
    def m(self) -> int:
        """Number of weights."""
        return len(self.discretisation.mass)

    @property
    def label(self) -> str:
        """How fine the prior is, in words."""
        return "full resolution"

    @property
    def weights(self) -> str:
        """What the weights belong to, in words."""
        return "a weight for every node"

    @cached_property
    def field(self) -> Field:
        """The prior's matrices, in units of cells."""
        h = self.domain.cell_size
        d = self.discretisation
        mass = d.mass / h**2
        root = sp.diags_array(1.0 / np.sqrt(mass))
        # An unknown lies where its node does; under Dirichlet and staircase its node is the one it fills.
        cells = np.column_stack([self.domain.node_rows, self.domain.node_cols])
        home = np.asarray(sp.csc_array(d.to_nodes).argmax(axis=0)).ravel()
        return Field(sp.csr_array(d.matrix * h**2), mass, sp.csr_array(d.to_nodes @ root), cells[home])

    def at(self, coords: np.ndarray) -> tuple[sp.csr_array, np.ndarray]:
        """Return the (k, unknowns) matrix from z to f at coordinates, and which of them are on land."""
        rows, inside = self.discretisation.at(coords)
        return sp.csr_array(rows @ sp.diags_array(1.0 / np.sqrt(self.field.mass))), inside

    def longest_lengthscale(self, kernel: Kernel) -> float:
        """Return the longest lengthscale (in the domain's unit) at which the precision can be factorised.

        Its condition number is about (6 / κ²)^(ν + 1), κ² = 2ν / ℓ² in cells, and must stay below 1e13.
        """
        nu = kernel.nu if isinstance(kernel, Matern) else 1.0
        return float(self.domain.cell_size * np.sqrt(2.0 * nu * 10.0 ** (13.0 / (nu + 1.0)) / 6.0))

    def default_kernel(self) -> Kernel:
        """Return `Matern(1.0)`."""
        return Matern(1.0)

    def check_kernel(self, kernel: Kernel) -> None:
        """Raise an error unless the precision of this kernel is sparse."""
        if not kernel.sparse:
            raise GeobgpError(
                f"Full resolution needs Matern(1.0) or Matern(2.0), whose precision matrices are sparse; "
                "found "
                f"{kernel.name}. Use one of these, or a HarmonicBasis, which takes any kernel."
            )

    def sample_prior(self, kernel: Kernel, n: int, rng: np.random.Generator) -> np.ndarray:
        """Return (n, n_nodes) draws of the field at the nodes; the kernel's parameters must be set."""
        self.check_kernel(kernel)
        assert isinstance(kernel, Matern) and kernel.lengthscale is not None and kernel.sd is not None
        # Q = c A^(nu + 1) with A = kappa² I + S, in units of cells.
        field, nu = self.field, kernel.nu
        kappa2 = 2 * nu * (self.domain.cell_size / kernel.lengthscale) ** 2
        factor = field.operator.plan.factor(field.operator.entries(np.array([kappa2, 1.0])))
        draw = rng.standard_normal((field.size, n))
        z = factor.solve(draw if nu == 1 else factor.half_solve(draw))
        return np.asarray((field.to_nodes @ z).T) * (kernel.sd * np.sqrt(4 * np.pi * nu * kappa2**nu))

    @classmethod
    def from_arrays(cls, domain: Domain, facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> Self:
        """Rebuild the prior on its domain; it has no arrays of its own."""
        return cls(domain, **facts)

    def keep(self, key: object, factor: Factor | None = None) -> Factor | None:
        """Return the factor kept under a key, after storing one if given; the oldest ones are forgotten."""
        if factor is not None:
            self._kept[key] = factor
            while len(self._kept) > 1 and sum(8 * f.plan.entries for f in self._kept.values()) > _KEEP:
                self._kept.popitem(last=False)
        return self._kept.get(key)


@dataclass(frozen=True, eq=False)
class Field:
    """The Laplacian's matrix in units of cells, and the way from z to the nodes.

    Attributes
    ----------
    matrix : (u, u) csr_array
        h² S.
    mass : (u,) array
        Masses in cells.
    to_nodes : (n_nodes, u) csr_array
        From z to f at the nodes.
    cells : (u, 2) int array
        Row and column of each unknown's cell.
    """

    matrix: sp.csr_array = field(repr=False)
    mass: np.ndarray = field(repr=False)
    to_nodes: sp.csr_array = field(repr=False)
    cells: np.ndarray = field(repr=False)

    @property
    def size(self) -> int:
        """Number of unknowns."""
        return len(self.mass)

    def coarsen(self) -> tuple[Field, sp.csr_array]:
        """Return the field with unknowns joined two by two in each direction, and the way back to the fine z.

        Only unknowns that conduct to each other within the same coarse cell are joined, so that rivers and
        shores stay. Conductances between squares of twice the size are half of the fine ones between them.
        Lengths stay in units of the fine cells.
        """
        coarse = self.cells // 2
        coo = self.matrix.tocoo()
        i, j = coo.coords
        same = (coarse[i] == coarse[j]).all(axis=1) & (coo.data != 0)
        links = sp.coo_array((np.ones(int(same.sum())), (i[same], j[same])), shape=self.matrix.shape)
        count, label = connected_components(links, directed=False)
        join = sp.csr_array((np.ones(self.size), (np.arange(self.size), label)), shape=(self.size, count))
        root, mass = np.sqrt(self.mass), join.T @ self.mass
        stiffness = sp.diags_array(root) @ self.matrix @ sp.diags_array(root)
        back = sp.diags_array(1.0 / np.sqrt(mass))
        matrix = sp.csr_array(back @ (0.5 * (join.T @ stiffness @ join)) @ back)
        prolong = sp.csr_array(sp.diags_array(root) @ join @ back)
        cells = np.zeros((count, 2), coarse.dtype)
        cells[label] = coarse
        return Field(_symmetric(matrix), mass, sp.csr_array(self.to_nodes @ prolong), cells), prolong

    @cached_property
    def operator(self) -> Powers:
        """κ²I + S, for its determinant."""
        return Powers(self.matrix, 1, self.cells)


class Powers:
    """Matrices Σ a_k S^k + Oᵀ diag(w) O on one pattern, and the plan to factorise them.

    Parameters
    ----------
    matrix : (u, u) csr_array
        S.
    power : int
        Highest power.
    cells : (u, 2) array
        Where the unknowns lie.
    observe : (k, u) csr_array, optional
        O.
    """

    def __init__(
        self, matrix: sp.csr_array, power: int, cells: np.ndarray, observe: sp.csr_array | None = None
    ) -> None:
        u = matrix.shape[0]
        terms = [sp.csr_array(sp.identity(u, format="csr"))]
        for _ in range(power):
            terms.append(_symmetric(sp.csr_array(terms[-1] @ matrix)))
        structure = sum((_ones(t) for t in terms), start=sp.csr_array((u, u)))
        if observe is not None:
            structure = structure + _ones(sp.csr_array(observe.T @ observe))
        self.pattern = sp.csr_array(structure)
        self.pattern.sort_indices()
        self.terms = [self._spread(t) for t in terms]
        self.diagonal = np.flatnonzero(self.pattern.indices == self.rows)
        self.plan = Plan.make(self.pattern, cells.astype(float))
        self._observe = None if observe is None else self._products(observe)
        self._observed = None if self._observe is None else sp.csr_array(self._observe.T)

    @cached_property
    def rows(self) -> np.ndarray:
        """Row of every entry."""
        return np.repeat(np.arange(self.pattern.shape[0]), np.diff(self.pattern.indptr))

    def _spread(self, term: sp.csr_array) -> np.ndarray:
        """Return a matrix's entries in the pattern's order, zero where it has none."""
        coo = term.tocoo()
        out = np.zeros(self.pattern.nnz)
        out[self._find(coo.coords[0], coo.coords[1])] = coo.data
        return out

    def _find(self, rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
        """Return where entries lie in the pattern, -1 where it has none."""
        u = np.int64(self.pattern.shape[0])
        key = self.rows * u + self.pattern.indices
        wanted = rows.astype(np.int64) * u + cols
        at = np.minimum(np.searchsorted(key, wanted), len(key) - 1)
        return np.where(key[at] == wanted, at, -1)

    def _products(self, observe: sp.csr_array) -> sp.csr_array:
        """Return the matrix that takes observations' weights w to the entries of Oᵀ diag(w) O."""
        row, left, right, value = _pairs(observe)
        at = self._find(left, right)
        shape = (self.pattern.nnz, observe.shape[0])
        return sp.csr_array((value, (at, row)), shape=shape)

    def entries(self, coefficients: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
        """Return the entries of Σ a_k S^k + Oᵀ diag(w) O in the pattern's order."""
        out = coefficients[0] * self.terms[0]
        for a, term in zip(coefficients[1:], self.terms[1:], strict=False):
            out += a * term
        if weights is not None:
            assert self._observe is not None
            out += self._observe @ weights
        return out

    def observed(self, entries: np.ndarray) -> np.ndarray:
        """Return O_i X O_iᵀ for every observation and a matrix X given by entries in the pattern."""
        assert self._observed is not None
        return self._observed @ entries

    def quadratic(self, entries: np.ndarray, rows: sp.csr_array) -> np.ndarray:
        """Return rows_i X rows_iᵀ for a matrix X given by entries in the pattern; NaN where it lacks one."""
        row, left, right, value = _pairs(rows)
        at = self._find(left, right)
        found = np.where(at >= 0, entries[at], np.nan)
        return np.bincount(row, value * found, rows.shape[0])

    def check_memory(self) -> None:
        """Raise an error, with numbers, if a factor would not fit into memory."""
        need, free = self.plan.memory, free_memory()
        if free is not None and need > _MEMORY_SHARE * free:
            u = self.pattern.shape[0]
            factor = np.sqrt(need / (_MEMORY_SHARE * free))
            raise SizeError(
                f"Full resolution with {u:,} unknowns needs about {need / 1e9:.1f} GB for one factor; "
                f"{free / 1e9:.1f} GB are free, of which up to {_MEMORY_SHARE:.0%} may be used. Use cells "
                f"{factor:.2g} times as large, or a HarmonicBasis."
            )


def _pairs(rows: sp.csr_array) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return (row, column, column, product) of all pairs of entries in the same row."""
    rows = sp.csr_array(rows)
    count = np.diff(rows.indptr)
    first = np.repeat(np.arange(rows.nnz), np.repeat(count, count))
    row = np.repeat(np.arange(rows.shape[0]), count**2)
    begin = np.repeat(rows.indptr[:-1], count**2)
    inside = np.arange(len(first)) - np.repeat(np.cumsum(count**2) - count**2, count**2)
    second = begin + inside % np.maximum(np.repeat(count, count**2), 1)
    return row, rows.indices[first], rows.indices[second], rows.data[first] * rows.data[second]


def _ones(matrix: sp.csr_array) -> sp.csr_array:
    out = sp.csr_array(matrix)
    return sp.csr_array((np.ones(out.nnz), out.indices, out.indptr), shape=out.shape)


def _symmetric(matrix: sp.csr_array) -> sp.csr_array:
    out = sp.csr_array((matrix + matrix.T) * 0.5)
    out.sort_indices()
    return out
