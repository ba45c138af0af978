"""The engine of full resolution: Gaussian posteriors over a weight for every unknown.

The posterior precision H = Q + Oᵀ diag(w) O is sparse. Marginal variances and the traces in the gradients need only
entries of H⁻¹ within H's own pattern: a selected inverse gives them exactly.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from geobgp.inference.engine import Engine, Sites, Solve, make_engine
from geobgp.inference.states import SparseState, hyper_numbers
from geobgp.linalg.sparse import Cholesky
from geobgp.prior.basis import Scaling, ShiftedVariance, TabulatedVariance, mean_rows, only_unknown
from geobgp.prior.full_rank import Field, FullRank, Powers, coefficients
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
        unit = engine._full.domain.cell_size
        self.kappa2, self.coefficients, self.inner = coefficients(
            engine.kernel.nu, float(np.exp(theta[0])) / unit, float(np.exp(theta[1]))
        )

    def apply(self, weights: np.ndarray) -> np.ndarray:
        return np.asarray(self._engine.observe @ weights)

    def project(self, rows: np.ndarray) -> np.ndarray:
        return np.asarray(self._engine.observe.T @ rows)

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
        matrices = self._engine.matrices
        found = matrices.factor(self.coefficients, factor * precision)
        return SparseFactor(matrices, found, found.log_det - self.log_det, self._engine.observe)

    def _matrix(self, coefficients: np.ndarray) -> sp.csr_array:
        m = self._engine.matrices
        return sp.csr_array(
            (m.entries(coefficients), m.pattern.indices, m.pattern.indptr), shape=m.pattern.shape
        )

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

    def __init__(self, matrices: Powers, factor: Cholesky, log_det: float, observe: sp.csr_array) -> None:
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
        return self._matrices.observed(self.inverse)

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
