"""FullRank: the limit of all features, a sparse precision matrix on the nodes."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from functools import cached_property
from math import comb
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from geobgp.errors import GeobgpError, SizeError, option
from geobgp.linalg.blas import free_memory
from geobgp.linalg.sparse import Cholesky, Fronts, UpdatedCholesky
from geobgp.prior.basis import SCALING, Basis, Scaling, TabulatedVariance, only_unknown
from geobgp.prior.kernels import Kernel, Matern
from geobgp.prior.laplacian import PRIOR, Boundary, Discretisation, Scheme, discretise
from geobgp.text import number, percent
from geobgp.validation import DOMAIN, KERNEL, validated, whole

if TYPE_CHECKING:
    from geobgp.land.domain import Domain


# -- Powers: sums of powers of a sparse matrix on one pattern, ready to be factorised again and again --------


#: Share of the memory that is free now which a factor may take.
_MEMORY_SHARE = 0.7
#: Rows with more entries than this join no unknowns in the pattern: they come in by the identity of Woodbury, with a
#: solve each. On so many unknowns, and where rows do not overlap, they are few.
LONG = 100
#: Right-hand sides that are solved for at a time.
_AT_ONCE = 256


#: Of a posterior precision.
Factor = Cholesky | UpdatedCholesky


class Powers:
    """Matrices Σ a_k S^k + Oᵀ diag(w) O on one pattern, and the fronts to factorise them.

    Parameters
    ----------
    matrix : (u, u) csr_array
        S.
    power : int
        Highest power.
    cells : (u, 2) array
        Where the unknowns lie.
    observe : (k, u) csr_array, optional
        O. Rows with more than `LONG` entries are left out of the pattern, and are a correction of low rank.
    """

    def __init__(
        self, matrix: sp.csr_array, power: int, cells: np.ndarray, observe: sp.csr_array | None = None
    ) -> None:
        u = matrix.shape[0]
        terms = [sp.csr_array(sp.identity(u, format="csr"))]
        for _ in range(power):
            terms.append(symmetric(sp.csr_array(terms[-1] @ matrix)))
        structure = sum((_ones(t) for t in terms), start=sp.csr_array((u, u)))
        if observe is not None:
            observe = sp.csr_array(observe)
            short = sp.csr_array(observe[np.diff(observe.indptr) <= LONG])
            structure = structure + _ones(sp.csr_array(short.T @ short))
        self.pattern = sp.csr_array(structure)
        self.pattern.sort_indices()
        self.terms = [self._spread(t) for t in terms]
        self.diagonal = np.flatnonzero(self.pattern.indices == self.rows)
        self._cells = cells
        self._observe = observe
        self._pairs = None if observe is None else self._pairs_of(observe)

    def with_rows(self, observe: sp.csr_array) -> Powers:
        """Return the same for rows with other values at the same places."""
        assert self._pairs is not None and self.fits(observe), "other rows"
        assert self.fronts is not None  # planned once for all
        out = object.__new__(Powers)
        out.__dict__ |= self.__dict__ | {"_observe": observe}
        out.__dict__.pop("_products", None)
        return out

    def fits(self, observe: sp.csr_array) -> bool:
        """Whether rows have entries where those observed have them."""
        own = self._observe
        return own is not None and own.shape == observe.shape and (
            own.indices is observe.indices
            or (np.array_equal(own.indptr, observe.indptr) and np.array_equal(own.indices, observe.indices))
        )  # fmt: skip

    @cached_property
    def long(self) -> np.ndarray:
        """Observations whose rows are long."""
        assert self._observe is not None
        return np.flatnonzero(np.diff(self._observe.indptr) > LONG)

    @cached_property
    def fronts(self) -> Fronts:
        """The plan of their factors."""
        return Fronts.of(self.pattern, self._cells.astype(float))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "fronts"}  # which know addresses

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

    def _pairs_of(self, observe: sp.csr_array) -> _Pairs:
        """Return all pairs of entries of the same short row, with their places in the pattern."""
        pairs = _pairs(observe, np.diff(observe.indptr) <= LONG)
        indices = observe.indices
        return pairs._replace(at=self._find(indices[pairs.first], indices[pairs.second]))

    @cached_property
    def _products(self) -> np.ndarray:
        """What each pair of entries adds up to."""
        assert self._observe is not None and self._pairs is not None
        return np.asarray(self._observe.data[self._pairs.first] * self._observe.data[self._pairs.second])

    def factor(self, coefficients: np.ndarray, weights: np.ndarray | None = None) -> Factor:
        """Return the factor of Σ a_k S^k + Oᵀ diag(w) O."""
        factor = Cholesky(self.fronts, self.entries(coefficients, weights))
        if weights is None or not len(self.long):
            return factor
        assert self._observe is not None
        return UpdatedCholesky(factor, self._observe[self.long], weights[self.long], self.pattern)

    def entries(self, coefficients: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
        """Return the entries of Σ a_k S^k + Oᵀ diag(w) O in the pattern's order, without long rows of O."""
        out = coefficients[0] * self.terms[0]
        for a, term in zip(coefficients[1:], self.terms[1:], strict=False):
            out += a * term
        if weights is not None:
            assert self._pairs is not None
            out += np.bincount(self._pairs.at, self._products * weights[self._pairs.row], len(out))
        return out

    def observed(self, factor: Factor, inverse: np.ndarray, others: sp.csr_array | None = None) -> np.ndarray:
        """Return O_i H⁻¹ P_iᵀ for every observation: P are other rows with entries at the same places, or O itself.

        Parameters
        ----------
        factor : Cholesky or UpdatedCholesky
            Of H.
        inverse : array
            Entries of H⁻¹ in the pattern.
        others : (k, u) csr_array, optional
        """
        own, pairs = self._observe, self._pairs
        assert own is not None and pairs is not None
        value = self._products if others is None else own.data[pairs.first] * others.data[pairs.second]
        others = own if others is None else others
        out = np.bincount(pairs.row, value * inverse[pairs.at], own.shape[0]).astype(float)
        for start in range(0, len(self.long), _AT_ONCE):
            at = self.long[start : start + _AT_ONCE]
            solved = factor.solve(own[at].T.toarray())
            out[at] = np.asarray(others[at].multiply(solved.T).sum(axis=1)).ravel()
        return out

    def quadratic(self, entries: np.ndarray, rows: sp.csr_array) -> np.ndarray:
        """Return rows_i X rows_iᵀ for a matrix X given by entries in the pattern; NaN where it lacks one."""
        rows = sp.csr_array(rows)
        short = np.diff(rows.indptr) <= LONG
        pairs = _pairs(rows, short)
        at = self._find(rows.indices[pairs.first], rows.indices[pairs.second])
        values = np.where(at >= 0, entries[at], np.nan)
        value = rows.data[pairs.first] * rows.data[pairs.second]
        out = np.bincount(pairs.row, value * values, rows.shape[0]).astype(float)
        out[~short] = np.nan
        return out

    def variances(self, factor: Factor, inverse: np.ndarray, rows: sp.csr_array) -> np.ndarray:
        """Return the diagonal of R H⁻¹ Rᵀ, from a factor of H and the entries of H⁻¹ in the pattern."""
        if self._pairs is not None and self.fits(rows):
            return self.with_rows(rows).observed(factor, inverse)
        variance = self.quadratic(inverse, rows)
        lacking = np.flatnonzero(np.isnan(variance))
        for start in range(0, len(lacking), _AT_ONCE):  # pairs of unknowns that the pattern does not join
            at = lacking[start : start + _AT_ONCE]
            some = rows[at]
            solved = factor.solve(some.T.toarray())
            variance[at] = np.asarray(some.multiply(solved.T).sum(axis=1)).ravel()
        return variance

    def check_memory(self) -> None:
        """Raise an error, with numbers, if a factor would not fit into memory."""
        need, free = self.fronts.memory, free_memory()
        if self._observe is not None:  # what long rows are solved for, and what they take from the inverse
            need += 3 * 8 * self.pattern.shape[0] * len(self.long)
        if free is not None and need > _MEMORY_SHARE * free:
            u = self.pattern.shape[0]
            factor = np.sqrt(need / (_MEMORY_SHARE * free))
            features = option("m", "auto", python="a HarmonicBasis")
            raise SizeError(
                f"Full resolution with {u:,} unknowns needs about {need / 1e9:.1f} GB for one factor; "
                f"{free / 1e9:.1f} GB are free, of which up to {percent(_MEMORY_SHARE)} may be used.",
                option="m",
                found=need,
                remedy=f"Use cells {number(factor, 2)} times as large, or {features}.",
            )


class _Pairs(NamedTuple):
    """Pairs of entries in the same row: the row, the two entries, and the place of their product in a pattern."""

    row: np.ndarray
    first: np.ndarray
    second: np.ndarray
    at: np.ndarray


def _pairs(rows: sp.csr_array, taken: np.ndarray) -> _Pairs:
    """Return all pairs of entries in the same row, of those rows that are taken; not yet their places."""
    count = np.where(taken, np.diff(rows.indptr), 0)
    squared = count.astype(np.int64) ** 2
    row = np.repeat(np.arange(rows.shape[0]), squared)
    inside = np.arange(len(row)) - np.repeat(np.cumsum(squared) - squared, squared)
    begin, width = np.repeat(rows.indptr[:-1], squared), np.maximum(np.repeat(count, squared), 1)
    return _Pairs(row, begin + inside // width, begin + inside % width, np.zeros(0, np.int64))


def _ones(matrix: sp.csr_array) -> sp.csr_array:
    out = sp.csr_array(matrix)
    return sp.csr_array((np.ones(out.nnz), out.indices, out.indptr), shape=out.shape)


def symmetric(matrix: sp.csr_array) -> sp.csr_array:
    """Return the mean of a matrix and its transpose, which rounding may have parted."""
    out = sp.csr_array((matrix + matrix.T) * 0.5)
    out.sort_indices()
    return out


# -- FullRank: the Matern prior with a weight for every unknown, as a sparse precision matrix ----------------
# With S the Laplacian's symmetric matrix, M its masses and z = M^½ f the prior is z ~ N(0, Q⁻¹),
#
#     Q = c (κ² I + S)^(ν + 1),   c = 1 / (4πν σ² κ^2ν),   κ² = 2ν / ℓ²,
#
# the kernel's spectral density at the matrix instead of at its eigenvalues: no eigenvectors, no truncation.
# Inside, lengths are in cells, so that all numbers are of order one whatever the unit.


#: Bytes of factors that are kept, for samples from several states.
_KEEP = 1_000_000_000


class FullRank(Basis):
    """The twin of `HarmonicBasis` without truncation: the first argument of `LGCP` and `BoundaryGP`.

    Parameters
    ----------
    domain : Domain
    boundary : "neumann" or "dirichlet"
    permeability : float
        Correlation range over water as a share of that over land: 0 is a closed shore, 1 takes water for land.
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

    @validated(domain=DOMAIN, **PRIOR)
    def __init__(
        self, domain: Domain, *, boundary: Boundary = "neumann", permeability: float = 0.0, scheme: Scheme = "subcell"
    ) -> None:
        self.domain = domain
        self.boundary: Boundary = boundary
        self.permeability = permeability
        self.scheme: Scheme = scheme
        self.discretisation: Discretisation = discretise(
            domain, boundary=boundary, scheme=scheme, permeability=permeability
        )
        self._kept: OrderedDict[object, Factor] = OrderedDict()
        self._of_rows: dict[float, Powers] = {}

    def __getstate__(self) -> dict[str, Any]:
        # Factors and their plans are as quickly made as sent.
        return self.__dict__ | {"_kept": OrderedDict(), "_of_rows": {}}

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
        water = np.zeros(len(mass), bool)
        if d.permeability > 0:
            water[d.n_nodes :] = True
        to_nodes = sp.csr_array(d.to_nodes @ root)
        return Field(sp.csr_array(d.matrix * h**2), mass, to_nodes, d.cells, d.sides, water)

    def longest_lengthscale(self, kernel: Kernel) -> float:
        """Return the longest lengthscale (in the domain's unit) at which the precision can be factorised.

        Its condition number is about (λ / κ²)^(ν + 1), λ the operator's largest eigenvalue and κ² = 2ν / ℓ² in
        cells, and must stay below 1e14.
        """
        nu = kernel.nu if isinstance(kernel, Matern) else 1.0
        if self.field.highest == 0:  # islets of one node each: no two are joined
            return float("inf")
        return float(self.domain.cell_size * np.sqrt(2.0 * nu * 10.0 ** (14.0 / (nu + 1.0)) / self.field.highest))

    def default_kernel(self) -> Kernel:
        """Return `Matern(1.0)`."""
        return Matern(1.0)

    @validated(kernel=KERNEL)
    def check_kernel(self, kernel: Kernel) -> None:
        """Raise an error unless the precision of this kernel is sparse."""
        if not kernel.sparse:
            raise GeobgpError(
                "Full resolution needs Matern(1.0) or Matern(2.0), whose precision matrices are sparse; found "
                f"{kernel.name}.",
                option="kernel",
                found=kernel,
                remedy="Use one of these, or a HarmonicBasis, which takes any kernel.",
            )

    @validated(kernel=KERNEL, n=whole(), scaling=SCALING)
    def sample_prior(
        self, kernel: Kernel, n: int, rng: np.random.Generator, scaling: Scaling = "natural"
    ) -> np.ndarray:
        """Return (n, n_nodes) draws of the field at the nodes; the kernel's parameters must be set."""
        self.check_kernel(kernel)
        assert isinstance(kernel, Matern) and kernel.lengthscale is not None and kernel.sd is not None
        # Q = c A^(nu + 1) with A = kappa² I + S, in units of cells.
        field, nu = self.field, kernel.nu
        kappa2 = 2 * nu * (self.domain.cell_size / kernel.lengthscale) ** 2
        factor = field.operator.factor(np.array([kappa2, 1.0]))
        draw = rng.standard_normal((field.size, n))
        z = factor.solve(draw if nu == 1 else factor.half_solve(draw))
        out = np.asarray((field.to_nodes @ z).T) * (kernel.sd * np.sqrt(4 * np.pi * nu * kappa2**nu))
        if scaling == "even":
            table = TabulatedVariance(field, nu, self.domain.cell_size)
            own = only_unknown(field.to_nodes)
            out *= np.exp(-0.5 * table.log_variance(float(np.log(kernel.lengthscale)))[0][own])
        return out

    @classmethod
    def from_arrays(cls, domain: Domain, facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> Self:
        """Rebuild the prior on its domain; it has no arrays of its own."""
        return cls(domain, **facts)

    def observe(self, coords: np.ndarray) -> sp.csr_array:
        """Return the (k, u) matrix from weights to the natural field at coordinates on land.

        Bilinear between the nodes around, of the land that hangs together there.
        """
        rows, _ = self.discretisation.at(coords)
        return sp.csr_array(rows @ sp.diags_array(1.0 / np.sqrt(self.field.mass)))

    def powers(self, nu: float, observe: sp.csr_array | None = None) -> Powers:
        """Return the parts of a posterior precision, for observations at all nodes or by rows (n, u)."""
        if observe is None:
            return self.field.powers(int(nu) + 1)
        kept = self._of_rows.get(nu)
        if kept is None or not kept.fits(observe):
            kept = self._of_rows[nu] = Powers(self.field.matrix, int(nu) + 1, self.field.cells, observe)
        return kept.with_rows(observe)

    def posterior_factor(
        self, nu: float, lengthscale: float, sd: float, precision: np.ndarray, observe: sp.csr_array | None = None
    ) -> Factor:
        """Return the factor of Q plus site precisions, at the nodes or of rows (n, u) of the weights."""
        q = coefficients(nu, lengthscale / self.domain.cell_size, sd)[1]
        return self.powers(nu, observe).factor(q, precision)

    def keep(self, key: object, factor: Factor | None = None) -> Factor | None:
        """Return the factor kept under a key, after storing one if given; the oldest ones are forgotten."""
        if factor is not None:
            self._kept[key] = factor
            while len(self._kept) > 1 and sum(8 * f.fronts.entries for f in self._kept.values()) > _KEEP:
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
    sides : (u,) int array
        Cells along the side of the square that each unknown lies in.
    water : (u,) bool array
        Which unknowns are water.
    """

    matrix: sp.csr_array = field(repr=False)
    mass: np.ndarray = field(repr=False)
    to_nodes: sp.csr_array = field(repr=False)
    cells: np.ndarray = field(repr=False)
    sides: np.ndarray = field(repr=False)
    water: np.ndarray = field(repr=False)

    @property
    def size(self) -> int:
        """Number of unknowns."""
        return len(self.mass)

    @cached_property
    def highest(self) -> float:
        """A bound of the matrix's largest eigenvalue (Gershgorin's)."""
        return float(np.abs(self.matrix).sum(axis=1).max())

    def powers(self, power: int) -> Powers:
        """Return the parts of the posterior precision for observations at all nodes, planned once for all fits."""
        if power not in self._powers:
            self._powers[power] = Powers(self.matrix, power, self.cells, self.to_nodes)
        return self._powers[power]

    @cached_property
    def _powers(self) -> dict[int, Powers]:
        return {}

    @cached_property
    def coarser(self) -> tuple[Field, sp.csr_array]:
        """The field with unknowns joined two by two in each direction, and the way back to the fine z.

        Only unknowns that conduct to each other within the same coarse cell are joined, land with land and water
        with water, so that rivers and shores stay. Between squares that have grown a conductance falls as their
        centres move apart. Lengths stay in units of the fine cells.
        """
        side = 2 * int(self.sides.min())
        coarse = self.cells // side
        coo = self.matrix.tocoo()
        i, j = coo.coords
        small = self.sides < side
        same = (coarse[i] == coarse[j]).all(axis=1) & (coo.data != 0)
        same &= small[i] & small[j] & (self.water[i] == self.water[j])
        links = sp.coo_array((np.ones(int(same.sum())), (i[same], j[same])), shape=self.matrix.shape)
        count, label = connected_components(links, directed=False)
        join = sp.csr_array((np.ones(self.size), (np.arange(self.size), label)), shape=(self.size, count))
        root, mass = np.sqrt(self.mass), join.T @ self.mass
        grown = np.maximum(self.sides, side)
        shrink = (self.sides[i] + self.sides[j]) / (grown[i] + grown[j])
        stiffness = sp.coo_array((coo.data * root[i] * root[j] * shrink, (i, j)), shape=self.matrix.shape).tocsr()
        if (grown != 2 * self.sides).any():  # squares of different sizes: what flows out of each is its diagonal
            stiffness = _balanced(stiffness)
        back = sp.diags_array(1.0 / np.sqrt(mass))
        matrix = sp.csr_array(back @ (join.T @ stiffness @ join) @ back)
        prolong = sp.csr_array(sp.diags_array(root) @ join @ back)
        cells, sides, water = np.zeros((count, 2), int), np.zeros(count, int), np.zeros(count, bool)
        cells[label], sides[label], water[label] = self.cells // side * side, grown, self.water
        cells[label[~small]] = self.cells[~small]
        to_nodes = sp.csr_array(self.to_nodes @ prolong)
        return Field(symmetric(matrix), mass, to_nodes, cells, sides, water), prolong

    @cached_property
    def operator(self) -> Powers:
        """κ²I + S, for its determinant."""
        return Powers(self.matrix, 1, self.cells)

    @cached_property
    def _solved(self) -> dict[float, tuple[float, np.ndarray]]:
        return {}

    def _inverse(self, kappa2: float) -> tuple[float, np.ndarray]:
        if kappa2 not in self._solved:
            factor = self.operator.factor(np.array([kappa2, 1.0]))
            inverse = factor.selected_inverse(self.operator.pattern.nnz)[self.operator.diagonal]
            self._solved[kappa2] = factor.log_det, inverse
        return self._solved[kappa2]

    def log_det(self, kappa2: float) -> float:
        """Return log|κ²I + S|."""
        return self._inverse(kappa2)[0]

    def inverse_diagonal(self, kappa2: float) -> np.ndarray:
        """Return the diagonal of (κ²I + S)⁻¹."""
        return self._inverse(kappa2)[1]

    def inverse_trace(self, kappa2: float) -> float:
        """Return the trace of (κ²I + S)⁻¹."""
        return float(self._inverse(kappa2)[1].sum())


def _balanced(stiffness: sp.csr_array) -> sp.csr_array:
    """Return a stiffness matrix with rows that sum to zero."""
    off = sp.csr_array(stiffness - sp.diags_array(stiffness.diagonal()))
    return sp.csr_array(off - sp.diags_array(np.asarray(off.sum(axis=1)).ravel()))


def coefficients(nu: float, lengthscale: float, sd: float) -> tuple[float, np.ndarray, np.ndarray]:
    """Return κ², and the coefficients of S^k in Q = c (κ²I + S)^(ν + 1) and in c (κ²I + S)^ν.

    The lengthscale is in units of cells; ν is 1 or 2.
    """
    kappa2 = 2.0 * nu / lengthscale**2
    c = 1.0 / (4.0 * np.pi * nu * sd**2 * kappa2**nu)
    power = int(nu) + 1

    def expand(p: int) -> np.ndarray:
        return c * np.array([comb(p, k) * kappa2 ** (p - k) for k in range(p + 1)])

    return kappa2, expand(power), expand(power - 1)
