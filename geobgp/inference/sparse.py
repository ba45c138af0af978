"""The sparse engine: Gaussian posteriors over a weight for every unknown, and the fixed effects.

With sites of precision w at observations f = O z + X β the weights have the precision H = Q + Oᵀ diag(w) O.
The fixed effects border it, and are taken out through their Schur complement. Marginal variances and the
traces in the gradients need only entries of H⁻¹ within H's own pattern: a selected inverse gives them
exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from geobgp.inference.engine import Moments, make_engine, make_state
from geobgp.inference.states import SparseState
from geobgp.linalg.cholesky import Cholesky
from geobgp.prior.full_rank import Field, FullRank
from geobgp.prior.kernels import Kernel, Matern
from geobgp.prior.powers import Powers

if TYPE_CHECKING:
    from geobgp.inference.hyper import Derivatives

#: Fields with more unknowns than this are rehearsed on coarser ones.
_COARSE = 1200


@dataclass(frozen=True, eq=False)
class SiteEvidence:
    """Gaussian sites at the observations."""

    precision: np.ndarray
    natural: np.ndarray

    def blend(self, other: SiteEvidence, share: float) -> SiteEvidence:
        """Return (1 - share) of these sites and `share` of the others, in natural parameters."""
        if share == 1.0:
            return other
        return SiteEvidence(
            (1.0 - share) * self.precision + share * other.precision,
            (1.0 - share) * self.natural + share * other.natural,
        )


_Bordered = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True, eq=False)
class _Solution:
    """A posterior: of z given β (factor of H, selected inverse), of β, and what couples them."""

    factor: Cholesky
    inverse: np.ndarray
    coupling: np.ndarray
    beta_cov: np.ndarray
    z: np.ndarray
    beta: np.ndarray
    log_det: float


_Kept = tuple[np.ndarray, SiteEvidence, _Solution, "Derivatives", Moments]


class SparseEngine:
    """Posteriors under a Matern kernel with a sparse precision; see the module.

    Parameters
    ----------
    field : Field
        The prior's matrices, in units of cells.
    kernel : Matern
        nu = 1 or 2.
    observe : (n, u) csr_array
        From z to f at the observations.
    design : (n, k) array
        Fixed effects at the observations.
    fixed_sd : (k,) array
        Their prior standard deviations.
    full : FullRank
    columns : (n_nodes, k) array
        Fixed effects at the nodes.
    centre : float
        Constant added to every linear predictor.
    coords : (n, 2) array, optional
        Where the observations are, if not at the nodes.
    """

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
        coords: np.ndarray | None,
    ) -> None:
        self.field, self.kernel, self.observe, self.design = field, kernel, observe, design
        self.fixed_precision = np.asarray(fixed_sd, float) ** -2.0
        self._full, self._columns, self._centre, self._coords = full, columns, centre, coords
        self.power = int(kernel.nu) + 1
        # Every evaluation is a factorisation: on large fields take one a round, and go on with better sites.
        small = field.size <= 2 * _COARSE
        self.evaluations, self.corrections = (6, 12) if small else (1, 4)
        self.rounds = 0
        self._last: _Kept | None = None
        self._probe: _Kept | None = None
        self._determinants: dict[float, tuple[float, float]] = {}

    @cached_property
    def matrices(self) -> Powers:
        """The posterior precision's parts on their common pattern."""
        powers = Powers(self.field.matrix, self.power, self.field.cells, self.observe)
        powers.check_memory()
        return powers

    def missed_share(self, theta: np.ndarray) -> float:
        """Return zero: nothing is left out."""
        return 0.0

    def rehearsals(self) -> Iterator[SparseEngine]:
        """Yield engines on coarser fields for the same observations, the coarsest first."""
        chain = [(self.field, self.observe)]
        while chain[-1][0].size > _COARSE:
            field, observe = chain[-1]
            coarser, prolong = field.coarsen()
            if coarser.size > 0.7 * field.size:
                break
            chain.append((coarser, sp.csr_array(observe @ prolong)))
        for field, observe in reversed(chain[1:]):
            fixed_sd = self.fixed_precision**-0.5
            yield SparseEngine(
                field,
                self.kernel,
                observe,
                self.design,
                fixed_sd,
                self._full,
                self._columns,
                self._centre,
                None,
            )

    def absorb(self, precision: np.ndarray, natural: np.ndarray) -> SiteEvidence:
        """Return sites in the engine's own form."""
        return SiteEvidence(precision, natural)

    def _coefficients(self, theta: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """Return κ², and the coefficients of S^k in Q and in c (κ²I + S)^ν."""
        nu = self.kernel.nu
        kappa2 = 2.0 * nu * np.exp(-2.0 * (theta[0] - np.log(self._full.domain.cell_size)))
        log_c = -np.log(4.0 * np.pi * nu) - 2.0 * theta[1] - nu * np.log(kappa2)
        binomial = {1: [1, 1], 2: [1, 2, 1], 3: [1, 3, 3, 1]}

        def expand(power: int) -> np.ndarray:
            return np.exp(log_c) * np.array(
                [b * kappa2 ** (power - k) for k, b in enumerate(binomial[power])]
            )

        return float(kappa2), expand(self.power), expand(self.power - 1)

    def _operator_determinant(self, kappa2: float) -> tuple[float, float]:
        """Return log|κ²I + S| and the trace of its inverse."""
        if kappa2 not in self._determinants:
            operator = self.field.operator
            factor = operator.factor(np.array([kappa2, 1.0]))
            inverse = factor.selected_inverse(operator.pattern.nnz)
            self._determinants[kappa2] = factor.log_det, float(inverse[operator.diagonal].sum())
        return self._determinants[kappa2]

    def _scaled(self, theta: np.ndarray, evidence: SiteEvidence) -> tuple[np.ndarray, np.ndarray]:
        s = np.exp(-2.0 * theta[2]) if len(theta) == 3 else 1.0
        return s * evidence.precision, s * evidence.natural

    def _border(
        self, theta: np.ndarray, w: np.ndarray
    ) -> tuple[_Bordered, Cholesky, np.ndarray, np.ndarray, float]:
        """Return natural means -> (z, β), the factor, coupling, covariance of β, log determinant."""
        factor = self.matrices.factor(self._coefficients(theta)[1], w)
        weighted = w[:, None] * self.design
        coupling = factor.solve(self.observe.T @ weighted)
        schur = np.diag(self.fixed_precision) + weighted.T @ (self.design - self.observe @ coupling)
        schur = 0.5 * (schur + schur.T)
        beta_cov = np.linalg.inv(schur) if len(schur) else schur
        log_det = factor.log_det + (float(np.linalg.slogdet(schur)[1]) if len(schur) else 0.0)

        def solve(natural: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            z = factor.solve(self.observe.T @ natural)
            beta = beta_cov @ (self.design.T @ natural - weighted.T @ (self.observe @ z))
            return z - coupling @ beta, beta

        return solve, factor, coupling, beta_cov, log_det

    def _solve(self, theta: np.ndarray, w: np.ndarray, natural: np.ndarray) -> _Solution:
        solve, factor, coupling, beta_cov, log_det = self._border(theta, w)
        inverse = factor.selected_inverse(self.matrices.pattern.nnz)
        return _Solution(factor, inverse, coupling, beta_cov, *solve(natural), log_det)

    def _evaluate(self, theta: np.ndarray, evidence: SiteEvidence) -> tuple[_Solution, Derivatives, Moments]:
        """Return the posterior, the site objective with its gradient, and the moments: one factorisation."""
        for kept in (self._last, self._probe):
            if kept is not None and kept[1] is evidence and np.array_equal(kept[0], theta):
                return kept[2:]
        self.rounds += 1
        w, natural = self._scaled(theta, evidence)
        kappa2, q, inner = self._coefficients(theta)
        s = self._solve(theta, w, natural)
        m = self.matrices
        mean = self.observe @ s.z + self.design @ s.beta
        residual = self.design - self.observe @ s.coupling
        variance = m.observed(s.inverse)
        variance += np.einsum("ij,jk,ik->i", residual, s.beta_cov, residual)
        # Traces and quadratic forms of Q and of c (κ²I + S)^ν under the posterior of z.
        forms = []
        for coefficients in (q, inner):
            entries = m.entries(coefficients)
            matrix = sp.csr_array((entries, m.pattern.indices, m.pattern.indptr), shape=m.pattern.shape)
            at_mean = float(s.z @ (matrix @ s.z))
            trace = float(entries @ s.inverse)
            trace += float(np.sum((s.coupling.T @ (matrix @ s.coupling)) * s.beta_cov))
            forms.append((at_mean, trace))
        log_k, trace_k = self._operator_determinant(kappa2)
        nu, u = self.kernel.nu, self.field.size
        log_c = np.log(q[-1])
        log_q = u * log_c + self.power * log_k
        square = forms[0][0] + float(s.beta**2 @ self.fixed_precision)
        log_fixed = float(np.log(self.fixed_precision).sum())
        fit = 0.5 * float(natural @ mean)
        value = fit - 0.5 * s.log_det + 0.5 * (log_q + log_fixed)
        by_sd = forms[0][0] + forms[0][1] - u
        by_length = -nu * (forms[0][0] + forms[0][1] - u) + self.power * kappa2 * (
            forms[1][0] + forms[1][1] - trace_k
        )
        gradient = np.array([by_length, by_sd])
        if len(theta) == 3:
            gradient = np.append(gradient, float(w @ (mean**2 + variance)) - 2.0 * float(natural @ mean))
        divergence = 0.5 * (square - float(w @ variance) - log_q - log_fixed + s.log_det)
        moments = Moments(mean, variance, divergence)
        self._probe = (theta.copy(), evidence, s, (value, gradient, None), moments)
        return self._probe[2:]

    def objective(self, theta: np.ndarray, evidence: SiteEvidence) -> Derivatives:
        """Return the sites' log evidence and its gradient in θ; the Hessian is left to the search."""
        return self._evaluate(theta, evidence)[1]

    def means(
        self, theta: np.ndarray, evidence: SiteEvidence, precision: np.ndarray
    ) -> Callable[[np.ndarray], np.ndarray]:
        """Return the way from natural means to posterior means, for other precisions: one factorisation."""
        solve = self._border(theta, precision)[0]

        def mean(natural: np.ndarray) -> np.ndarray:
            z, beta = solve(natural)
            return self.observe @ z + self.design @ beta

        return mean

    def spread(self, theta: np.ndarray, evidence: SiteEvidence) -> Callable[[np.ndarray], np.ndarray]:
        """Return multiplication with V∘V over pairs within the pattern, without the fixed effects."""
        solution = self._evaluate(theta, evidence)[0]
        p = self.matrices.pattern
        near = sp.csr_array((solution.inverse**2, p.indices, p.indptr), shape=p.shape)
        return lambda weights: self._squared @ (near @ (self._squared.T @ weights))

    @cached_property
    def _squared(self) -> sp.csr_array:
        return sp.csr_array(self.observe.multiply(self.observe))

    def posterior(self, theta: np.ndarray, evidence: SiteEvidence) -> Moments:
        """Return the moments at the observations; free after `objective` at the same place."""
        moments = self._evaluate(theta, evidence)[2]
        if self._probe is not None and self._probe[-1] is moments:
            self._last, self._probe = self._probe, None
        return moments

    def state(self, theta: np.ndarray, evidence: SiteEvidence, weight: float) -> SparseState:
        """Return the posterior as a state that stands by itself."""
        solution = self._evaluate(theta, evidence)[0]
        precision = self._scaled(theta, evidence)[0]
        state = SparseState(
            weight=float(weight),
            lengthscale=float(np.exp(theta[0])),
            sd=float(np.exp(theta[1])),
            noise=float(np.exp(theta[2])) if len(theta) == 3 else float("nan"),
            nu=self.kernel.nu,
            centre=self._centre,
            precision=precision,
            z=solution.z,
            beta=solution.beta,
            inverse=solution.inverse,
            coupling=solution.coupling,
            beta_cov=solution.beta_cov,
            fixed_sd=self.fixed_precision**-0.5,
            full=self._full,
            fixed=self._columns,
            coords=self._coords,
        )
        self._full.keep(state.key, solution.factor)
        return state


@make_engine.register(FullRank)
def _engine(
    full: FullRank,
    kernel: Kernel,
    columns: np.ndarray,
    fixed_sd: np.ndarray,
    centre: float,
    coords: np.ndarray | None,
) -> SparseEngine:
    full.check_kernel(kernel)
    assert isinstance(kernel, Matern)
    if coords is None:
        observe, design = full.field.to_nodes, columns
    else:
        observe, design = full.at(coords)[0], columns[full.domain.locate(coords)]
    return SparseEngine(full.field, kernel, observe, design, fixed_sd, full, columns, centre, coords)


@make_state.register(FullRank)
def _state(full: FullRank, arrays: dict[str, np.ndarray]) -> SparseState:
    return SparseState.from_arrays(arrays, full)
