"""The engine of full resolution: Gaussian posteriors over a weight for every unknown.

The posterior precision H = Q + Oᵀ diag(w) O is sparse. Marginal variances and the traces in the gradients need only
entries of H⁻¹ within H's own pattern: a selected inverse gives them exactly.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from geobgp.inference.engine import Engine, Sites, Solution, Solve, make_engine
from geobgp.inference.states import SparseState, hyper_numbers
from geobgp.prior.basis import Scaling, ShiftedVariance, TabulatedVariance, mean_rows, only_unknown
from geobgp.prior.full_rank import Factor, Field, FullRank, Powers, coefficients
from geobgp.prior.kernels import Kernel, Matern

#: Fields with more unknowns than this are rehearsed on coarser ones.
_COARSE = 1200


class SparseEngine(Engine):
    """Posteriors under a Matern kernel with a sparse precision.

    Parameters
    ----------
    field : Field
        The prior's matrices, in units of cells.
    kernel : Matern
        nu = 1 or 2.
    observe : (n, u) csr_array
        From z to the natural field at the observations.
    design, fixed_sd
        As in `Engine`.
    full : FullRank
    columns : (n_nodes, k) array
        Fixed effects at the nodes.
    centre : float
        Constant added to every linear predictor.
    node : (n,) int array, optional
        The observations' nodes, if these are not all nodes in turn; None for observations at places between them too.
    scaling : "natural" or "even"
    """

    corrections = 4

    def __init__(
        self,
        field: Field,
        kernel: Matern,
        observe: sp.csr_array,
        design: np.ndarray,
        fixed_sd: np.ndarray,
        full: FullRank,
        columns: np.ndarray,
        centre: float,
        node: np.ndarray | None,
        scaling: Scaling,
    ) -> None:
        variance = None
        #: The table of the even prior's variances, which knows determinants as well.
        self.table: TabulatedVariance | None = None
        if scaling == "even":
            self.table = TabulatedVariance(field, kernel.nu, full.domain.cell_size)
            only_unknown(field.to_nodes)  # or there is no variance of each
            variance = ShiftedVariance(self.table, mean_rows(observe))
        super().__init__(design, fixed_sd, variance)
        self.field, self.kernel, self.observe = field, kernel, observe
        self._full, self.columns, self._centre, self._node = full, columns, centre, node
        self.scaling: Scaling = scaling

    @cached_property
    def matrices(self) -> Powers:
        """The posterior precision's parts on their common pattern."""
        power = int(self.kernel.nu) + 1
        if self.observe is self.field.to_nodes:
            powers = self.field.powers(power)
        else:
            powers = Powers(self.field.matrix, power, self.field.cells, self.observe)
        powers.check_memory()
        return powers

    def seen_at(self, log_length: float) -> tuple[sp.csr_array, Powers]:
        """Return what takes z to the field at the observations, at a lengthscale, and the matrices with it."""
        return self.observe, self.matrices

    def warm_start_engines(self) -> Iterator[SparseEngine]:
        """Yield engines on coarser fields for the same observations, the coarsest first."""
        chain = [(self.field, self.observe)]
        while chain[-1][0].size > _COARSE:
            field, observe = chain[-1]
            coarser, prolong = field.coarser
            if coarser.size > 0.7 * field.size:
                break
            at_nodes = observe is field.to_nodes
            chain.append((coarser, coarser.to_nodes if at_nodes else sp.csr_array(observe @ prolong)))
        for field, observe in reversed(chain[1:]):
            yield SparseEngine(
                field, self.kernel, observe, self.design, self.fixed_precision**-0.5, self._full, self.columns,
                self._centre, self._node, self.scaling,
            )  # fmt: skip

    def prior_at(self, theta: np.ndarray) -> _SparsePrior:
        """Return the field's prior at θ."""
        return _SparsePrior(self, theta)

    def state(self, theta: np.ndarray, sites: Sites, weight: float) -> SparseState:
        """Return the posterior as a state that stands by itself."""
        s = self.solve(theta, sites)
        nodes, precision = self.field.to_nodes, self.unit(theta) * sites.precision
        even, observe = np.ones(nodes.shape[0]), None
        if s.even is not None:
            assert isinstance(self.variance, ShiftedVariance)
            precision = precision * s.even**2
            even = np.exp(-0.5 * self.variance.elsewhere(only_unknown(nodes), theta[0]))
        if self._node is not None:
            precision = np.bincount(self._node, weights=precision, minlength=nodes.shape[0]).astype(float)
        elif self.observe is not nodes:
            observe = self.observe
        state = SparseState(
            **hyper_numbers(theta, weight, self.noise_at),
            centre=self._centre,
            beta=s.beta,
            beta_cov=s.beta_cov,
            fixed=self.columns,
            nu=self.kernel.nu,
            precision=precision,
            z=s.z,
            coupling=s.coupling,
            even=even,
            variance=s.factor.variances_at(nodes),
            full=self._full,
            observe=observe,
        )
        self._full.keep(state.key, s.factor.factor)
        return state


class _SparsePrior:
    """The prior of a field at one θ: see `PriorAt`."""

    def __init__(self, engine: SparseEngine, theta: np.ndarray) -> None:
        self._engine, self._log_length = engine, float(theta[0])
        self.observe, self.matrices = engine.seen_at(self._log_length)
        unit = engine._full.domain.cell_size
        self.kappa2, self.coefficients, self.inner = coefficients(
            engine.kernel.nu, float(np.exp(theta[0])) / unit, float(np.exp(theta[1]))
        )

    def apply(self, weights: np.ndarray) -> np.ndarray:
        return np.asarray(self.observe @ weights)

    def project(self, rows: np.ndarray) -> np.ndarray:
        return np.asarray(self.observe.T @ rows)

    @cached_property
    def _determinant(self) -> tuple[float, float]:
        """log|κ²I + S|, and the trace of κ² (κ²I + S)⁻¹."""
        table, field = self._engine.table, self._engine.field
        if table is not None:
            return table.determinant(self._log_length)
        return field.log_det(self.kappa2), self.kappa2 * field.inverse_trace(self.kappa2)

    @cached_property
    def log_det(self) -> float:
        """log|Q|."""
        u, power = self._engine.field.size, int(self._engine.kernel.nu) + 1
        return u * float(np.log(self.coefficients[-1])) + power * self._determinant[0]

    def factorise(self, precision: np.ndarray, factor: float) -> SparseFactor:
        factor_there = self.matrices.factor(self.coefficients, factor * precision)
        kind = SparseRowFactor if isinstance(self._engine, SparseRowEngine) else SparseFactor
        return kind(self.matrices, factor_there, factor_there.log_det - self.log_det, self.observe)

    def _matrix(self, coefficients: np.ndarray) -> sp.csr_array:
        m = self.matrices
        return sp.csr_array((m.entries(coefficients), m.pattern.indices, m.pattern.indptr), shape=m.pattern.shape)

    @cached_property
    def _precision(self) -> sp.csr_array:
        return self._matrix(self.coefficients)

    def times(self, weights: np.ndarray) -> np.ndarray:
        return np.asarray(self._precision @ weights)

    def square(self, weights: np.ndarray) -> float:
        return float(weights @ self.times(weights))

    def gradient(
        self, weights: np.ndarray, factor: SparseFactor, coupling: np.ndarray, beta_cov: np.ndarray
    ) -> np.ndarray:
        # Quadratic forms of Q and of c (κ²I + S)^ν under the posterior of z.
        forms = []
        for matrix in (self._precision, self._matrix(self.inner)):
            trace = float(matrix.data @ factor.inverse)
            trace += float(np.sum((coupling.T @ (matrix @ coupling)) * beta_cov))
            forms.append(float(weights @ (matrix @ weights)) + trace)
        nu, field = self._engine.kernel.nu, self._engine.field
        by_sd = forms[0] - field.size
        by_length = -nu * by_sd + (nu + 1) * (self.kappa2 * forms[1] - self._determinant[1])
        return np.array([by_length, by_sd])


class SparseFactor:
    """The sparse factor of H, and its selected inverse."""

    def __init__(self, matrices: Powers, factor: Factor, log_det: float, observe: sp.csr_array) -> None:
        self._matrices, self.factor, self.log_det, self._observe = matrices, factor, log_det, observe

    def solve(self, weights: np.ndarray) -> np.ndarray:
        """Return H⁻¹ b."""
        return self.factor.solve(weights)

    @cached_property
    def inverse(self) -> np.ndarray:
        """Entries of H⁻¹ within H's pattern."""
        return self.factor.selected_inverse(self._matrices.pattern.nnz)

    def variances(self) -> np.ndarray:
        """Return the variances of the natural field at the observations."""
        return self._matrices.observed(self.factor, self.inverse)

    def variances_at(self, rows: sp.csr_array) -> np.ndarray:
        """Return the diagonal of R H⁻¹ Rᵀ for other rows R."""
        return self._matrices.variances(self.factor, self.inverse, rows)

    def spread(self, precision: np.ndarray) -> Solve:
        """Return multiplication with V∘V over pairs within the pattern."""
        p = self._matrices.pattern
        near = sp.csr_array((self.inverse**2, p.indices, p.indptr), shape=p.shape)
        squared = sp.csr_array(self._observe.multiply(self._observe))
        return lambda weights: np.asarray(squared @ (near @ (squared.T @ weights)))


@make_engine.register(FullRank)
def _engine(
    full: FullRank,
    kernel: Kernel,
    columns: np.ndarray,
    fixed_sd: np.ndarray,
    centre: float,
    coords: np.ndarray | None,
    scaling: Scaling,
) -> SparseEngine:
    full.check_kernel(kernel)
    assert isinstance(kernel, Matern)
    observe, design, node = full.field.to_nodes, columns, None
    if coords is not None and np.ndim(coords) == 1:
        node = coords
        observe, design = sp.csr_array(observe[node]), columns[node]
    elif coords is not None:
        observe, design = full.observe(coords), columns[full.domain.node_at(coords)]
    return SparseEngine(full.field, kernel, observe, design, fixed_sd, full, columns, centre, node, scaling)


# -- Observations that are sums over nodes, at full resolution: see the engine of rows of features in `dense` ---
# A row joins all nodes of an area in H. Short rows are part of the sparse matrix; long ones, which are few where areas
# do not overlap, come in by the identity of Woodbury: see `Powers`. Rows have entries at the same places in every pass,
# so that the factor is planned once.


@dataclass(frozen=True, eq=False)
class NodePrecision:
    """The field of full resolution at the nodes, and what makes it even: shared by the engines of all rows.

    Parameters
    ----------
    full : FullRank
    kernel : Matern
    scaling : "natural" or "even"
    """

    full: FullRank
    kernel: Matern
    scaling: Scaling

    @cached_property
    def _table(self) -> TabulatedVariance:
        return TabulatedVariance(self.full.field, self.kernel.nu, self.full.domain.cell_size)

    @property
    def table(self) -> TabulatedVariance | None:
        """The table of the even prior's variances."""
        return self._table if self.scaling == "even" else None

    def even(self, log_length: float) -> tuple[np.ndarray, np.ndarray] | None:
        """Return e = 1/√v at the nodes and ½ d log v / d log ℓ; None for a natural prior."""
        if self.table is None:
            return None
        log_v, slope = self.table.log_variance(log_length)
        at = only_unknown(self.full.field.to_nodes)
        return np.exp(-0.5 * log_v[at]), 0.5 * slope[at]

    def row_engine(
        self, rows: sp.csr_array, columns: np.ndarray, fixed_sd: np.ndarray, centre: float
    ) -> SparseRowEngine:
        """Return the engine of weighted sums over nodes."""
        return SparseRowEngine(self, rows, columns, fixed_sd, centre)


class SparseRowEngine(SparseEngine):
    """Posteriors under a sparse precision, for observations that are weighted sums over nodes.

    Parameters
    ----------
    nodes : NodePrecision
    rows : (n, n_nodes) csr_array
        What each observation sees of the linear predictor at the nodes; rows add up to one.
    columns : (n_nodes, k) array
        Fixed effects at the nodes.
    fixed_sd : (k,) array
    centre : float
        Constant added to every linear predictor.
    """

    corrections = 0

    def __init__(
        self, nodes: NodePrecision, rows: sp.csr_array, columns: np.ndarray, fixed_sd: np.ndarray, centre: float
    ) -> None:
        full = nodes.full
        super().__init__(
            full.field, nodes.kernel, rows, rows @ columns, fixed_sd, full, columns, centre, None, "natural"
        )
        self.nodes, self.scaling, self.table = nodes, nodes.scaling, nodes.table
        self._at: tuple[float, sp.csr_array, sp.csr_array | None, Powers] | None = None

    def warm_start_engines(self) -> Iterator[SparseEngine]:
        """Yield nothing: each pass goes on from the one before."""
        return iter(())

    def _rows_at(self, log_length: float) -> tuple[float, sp.csr_array, sp.csr_array | None, Powers]:
        if self._at is None or self._at[0] != log_length:
            even, rows, moved = self.nodes.even(log_length), self.observe, None
            if even is not None:
                rows = _times(rows, even[0])
                moved = _of_unknowns(_times(rows, even[1]), self.field)
            rows = _of_unknowns(rows, self.field)
            matrices = self._full.powers(self.kernel.nu, rows)
            matrices.check_memory()
            self._at = log_length, rows, moved, matrices
        return self._at

    def seen_at(self, log_length: float) -> tuple[sp.csr_array, Powers]:
        """Return what takes z to the rows at a lengthscale, and the matrices with it."""
        _, rows, _, matrices = self._rows_at(log_length)
        return rows, matrices

    def _gradient(self, s: Solution) -> np.ndarray:
        out = super()._gradient(s)
        _, rows, moved, matrices = self._rows_at(float(s.theta[0]))
        if moved is not None:
            # The rows move with ℓ: they are Σ r_i e_i g_i, d log e_i / d log ℓ = -slope_i.
            w, mean = s.sites.precision, s.moments.mean
            tied, tied_rows = moved @ s.coupling, rows @ s.coupling
            with_f = matrices.observed(s.factor.factor, s.factor.inverse, moved)
            with_f -= np.einsum("ij,ij->i", tied @ s.beta_cov, self.design - tied_rows)
            out[0] -= float(np.sum((s.sites.natural - w * mean) * (moved @ s.z) - w * with_f))
        return out

    def state(self, theta: np.ndarray, sites: Sites, weight: float) -> SparseState:
        """Return the posterior as a state that stands by itself."""
        s, even = self.solve(theta, sites), self.nodes.even(float(theta[0]))
        nodes = self.field.to_nodes
        state = SparseState(
            **hyper_numbers(theta, weight, None),
            centre=self._centre,
            beta=s.beta,
            beta_cov=s.beta_cov,
            fixed=self.columns,
            nu=self.kernel.nu,
            precision=sites.precision,
            z=s.z,
            coupling=s.coupling,
            even=np.ones(nodes.shape[0]) if even is None else even[0],
            variance=s.factor.variances_at(nodes),
            full=self._full,
            observe=self.seen_at(float(theta[0]))[0],
            by_node=True,
        )
        self._full.keep(state.key, s.factor.factor)
        return state


class SparseRowFactor(SparseFactor):
    """The sparse factor of H, as rows see it."""

    def spread(self, precision: np.ndarray) -> Solve:
        """Return multiplication with V∘V, lumped: the diagonal of V W V lies between that of V∘V W and that of V."""
        variance = self.variances()
        lumped = variance * np.sqrt(np.clip(variance * precision, 0.0, 1.0))
        return lambda weights: np.divide(weights, precision, out=np.zeros_like(precision), where=precision > 0) * lumped


def _times(rows: sp.csr_array, at_nodes: np.ndarray) -> sp.csr_array:
    """Return rows times a number at each node, with entries at the same places."""
    return sp.csr_array((rows.data * at_nodes[rows.indices], rows.indices, rows.indptr), shape=rows.shape)


def _of_unknowns(rows: sp.csr_array, field: Field) -> sp.csr_array:
    """Return rows over the nodes as rows over the unknowns."""
    out = sp.csr_array(rows @ field.to_nodes)
    out.sort_indices()
    return out
