"""The sparse engine: Gaussian posteriors over a weight for every unknown, and the fixed effects.

With sites of precision w at observations f = O z + X β the weights have the precision H = Q + Oᵀ diag(w) O.
The
fixed effects border it, and are taken out through their Schur complement. Marginal variances and the traces
in the
gradients need only entries of H⁻¹ within H's own pattern: a selected inverse gives them exactly.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Self

import numpy as np
import scipy.sparse as sp

from geobgp.engine_features import Moments
from geobgp.kernels import Matern
from geobgp.multifrontal import Factor
from geobgp.precision import Field, Powers

if TYPE_CHECKING:
    from geobgp.hyper import Derivatives
    from geobgp.precision import FullRank

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


@dataclass(frozen=True, eq=False)
class _Solution:
    """A posterior: of z given β (factor of H, selected inverse), of β, and what couples them."""

    factor: Factor
    inverse: np.ndarray
    coupling: np.ndarray
    beta_cov: np.ndarray
    z: np.ndarray
    beta: np.ndarray
    log_det: float


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

    #: Every evaluation is a factorisation: take few, and go on with better sites.
    evaluations = 3

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
        self.rounds = 0
        self._last: tuple[np.ndarray, SiteEvidence, _Solution, Derivatives, Moments] | None = None
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
            factor = operator.plan.factor(operator.entries(np.array([kappa2, 1.0])))
            inverse = factor.selected_inverse(operator.pattern.nnz)
            self._determinants[kappa2] = factor.log_det, float(inverse[operator.diagonal].sum())
        return self._determinants[kappa2]

    def _scaled(self, theta: np.ndarray, evidence: SiteEvidence) -> tuple[np.ndarray, np.ndarray]:
        s = np.exp(-2.0 * theta[2]) if len(theta) == 3 else 1.0
        return s * evidence.precision, s * evidence.natural

    def _solve(
        self, theta: np.ndarray, w: np.ndarray, natural: np.ndarray, variances: bool = True
    ) -> _Solution:
        q = self._coefficients(theta)[1]
        factor = self.matrices.plan.factor(self.matrices.entries(q, w))
        weighted = w[:, None] * self.design
        right = np.column_stack([self.observe.T @ natural, self.observe.T @ weighted])
        solved = factor.solve(right)
        z0, coupling = solved[:, 0], solved[:, 1:]
        schur = np.diag(self.fixed_precision) + weighted.T @ (self.design - self.observe @ coupling)
        schur = 0.5 * (schur + schur.T)
        beta_cov = np.linalg.inv(schur) if len(schur) else schur
        beta = beta_cov @ (self.design.T @ natural - weighted.T @ (self.observe @ z0))
        log_det = factor.log_det + (float(np.linalg.slogdet(schur)[1]) if len(schur) else 0.0)
        inverse = factor.selected_inverse(self.matrices.pattern.nnz) if variances else np.empty(0)
        return _Solution(factor, inverse, coupling, beta_cov, z0 - coupling @ beta, beta, log_det)

    def _evaluate(self, theta: np.ndarray, evidence: SiteEvidence) -> tuple[_Solution, Derivatives, Moments]:
        """Return the posterior, the site objective with its gradient, and the moments: one factorisation."""
        if self._last is not None and self._last[1] is evidence and np.array_equal(self._last[0], theta):
            return self._last[2:]
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
        self._last = (theta.copy(), evidence, s, (value, gradient, None), moments)
        return self._last[2:]

    def objective(self, theta: np.ndarray, evidence: SiteEvidence) -> Derivatives:
        """Return the sites' log evidence and its gradient in θ; the Hessian is left to the search."""
        return self._evaluate(theta, evidence)[1]

    def mean(
        self, theta: np.ndarray, evidence: SiteEvidence, precision: np.ndarray, natural: np.ndarray
    ) -> np.ndarray:
        """Return the posterior mean at the observations under other sites."""
        s = self._solve(theta, precision, natural, variances=False)
        return self.observe @ s.z + self.design @ s.beta

    def spread(self, theta: np.ndarray, evidence: SiteEvidence, weights: np.ndarray) -> np.ndarray:
        """Return (V∘V) weights over pairs within the pattern; the fixed effects' part of V is left out."""
        solution, _, moments = self._evaluate(theta, evidence)
        m = self.matrices
        squared = self.observe.multiply(self.observe).tocsr()
        near = sp.csr_array((solution.inverse**2, m.pattern.indices, m.pattern.indptr), shape=m.pattern.shape)
        return np.minimum(squared @ (near @ (squared.T @ weights)), moments.variance)

    def posterior(self, theta: np.ndarray, evidence: SiteEvidence) -> Moments:
        """Return the moments at the observations; free after `objective` at the same place."""
        return self._evaluate(theta, evidence)[2]

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


@dataclass(frozen=True, eq=False)
class SparseState:
    """A Gaussian posterior over all unknowns and the fixed effects, for one value of the hyperparameters.

    Attributes
    ----------
    weight : float
        Share of this state in the mixture over hyperparameters.
    lengthscale, sd, noise, nu : float
        Hyperparameters; noise is NaN where the likelihood has none.
    centre : float
        Constant added to every linear predictor (and to the intercept that is reported).
    precision : (n,) array
        Site precisions at the observations.
    z, beta : arrays
        Posterior means of the unknowns z = M^½ f (in units of cells) and of the fixed effects.
    inverse : array
        Exact entries of Cov(z | β) within the pattern of its inverse.
    coupling : (u, k) array
        E(z | β) falls by this much per unit of β.
    beta_cov : (k, k) array
        Posterior covariance of the fixed effects.
    fixed_sd : (k,) array
        Their prior standard deviations.
    full : FullRank
    fixed : (n_nodes, k) array
        Fixed effects at the nodes, standardised; the first column is the intercept's, if there is one.
    coords : (n, 2) array or None
        Where the observations are, if not at the nodes.
    """

    weight: float
    lengthscale: float
    sd: float
    noise: float
    nu: float
    centre: float
    precision: np.ndarray = field(repr=False)
    z: np.ndarray = field(repr=False)
    beta: np.ndarray = field(repr=False)
    inverse: np.ndarray = field(repr=False)
    coupling: np.ndarray = field(repr=False)
    beta_cov: np.ndarray = field(repr=False)
    fixed_sd: np.ndarray = field(repr=False)
    full: FullRank = field(repr=False)
    fixed: np.ndarray = field(repr=False)
    coords: np.ndarray | None = field(repr=False, default=None)

    @property
    def key(self) -> object:
        """What tells this state's factor from others'."""
        return (self.lengthscale, self.sd, self.nu, self.precision.tobytes())

    @cached_property
    def _matrices(self) -> Powers:
        return self._engine().matrices

    def _engine(self) -> SparseEngine:
        kernel = Matern(self.nu, self.lengthscale, self.sd)
        return self.full.engine(kernel, self.fixed, self.fixed_sd, self.centre, self.coords)

    def _factor(self) -> Factor:
        factor = self.full.keep(self.key)
        if factor is None:
            q = self._engine()._coefficients(np.log([self.lengthscale, self.sd]))[1]
            factor = self._matrices.plan.factor(self._matrices.entries(q, self.precision))
            self.full.keep(self.key, factor)
        return factor

    def _moments(self, rows: sp.csr_array, fixed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        mean = self.centre + rows @ self.z + fixed @ self.beta
        variance = self._matrices.quadratic(self.inverse, rows)
        lacking = np.flatnonzero(np.isnan(variance))
        for start in range(0, len(lacking), 256):  # pairs of unknowns that the pattern does not join
            at = lacking[start : start + 256]
            some = rows[at]
            solved = self._factor().solve(some.T.toarray())
            variance[at] = np.asarray(some.multiply(solved.T).sum(axis=1)).ravel()
        residual = fixed - rows @ self.coupling
        return mean, variance + np.einsum("ij,jk,ik->i", residual, self.beta_cov, residual)

    def node_moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of the linear predictor at every node."""
        return self._moments(self.full.field.to_nodes, self.fixed)

    def sample_nodes(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Return (n, n_nodes) joint draws of the linear predictor at the nodes."""
        noise = self._factor().half_solve(rng.standard_normal((len(self.z), n)))
        root = np.linalg.cholesky(self.beta_cov) if len(self.beta) else self.beta_cov
        shift = root @ rng.standard_normal((len(self.beta), n))
        z = self.z[:, None] + noise - self.coupling @ shift
        out = self.full.field.to_nodes @ z + self.fixed @ (self.beta[:, None] + shift)
        return np.ascontiguousarray(self.centre + out.T)

    def moments_at(
        self, coords: np.ndarray, fixed: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of the linear predictor at coordinates; NaN off land.

        Parameters
        ----------
        coords : (k, 2) array
        fixed : (k, columns) array, optional
            Fixed effects there; by default those of the node on whose land a coordinate lies.
        """
        coords = np.asarray(coords, float).reshape(-1, 2)
        rows, inside = self.full.at(coords)
        if fixed is None:
            fixed = self.fixed[np.maximum(self.full.domain.locate(coords), 0)]
        mean, variance = np.full((2, len(coords)), np.nan)
        mean[inside], variance[inside] = self._moments(
            rows[np.flatnonzero(inside)], np.asarray(fixed)[inside]
        )
        return mean, variance

    def coefficients(self) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and covariance of the fixed effects, on the standardised scale, intercept first."""
        mean = self.beta.copy()
        if len(mean):
            mean[0] += self.centre
        return mean, self.beta_cov

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return plain arrays from which `from_arrays` rebuilds the state."""
        numbers = [self.weight, self.lengthscale, self.sd, self.noise, self.nu, self.centre]
        names = ("precision", "z", "beta", "inverse", "coupling", "beta_cov", "fixed_sd", "fixed")
        out = {"numbers": np.array(numbers)} | {name: getattr(self, name) for name in names}
        return out if self.coords is None else out | {"coords": self.coords}

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray], full: FullRank) -> Self:
        """Rebuild a state from `to_arrays` and the prior it was fitted with."""
        weight, lengthscale, sd, noise, nu, centre = (float(v) for v in arrays["numbers"])
        names = ("precision", "z", "beta", "inverse", "coupling", "beta_cov", "fixed_sd", "fixed")
        parts = {name: arrays[name] for name in names}
        numbers = (weight, lengthscale, sd, noise, nu, centre)
        return cls(*numbers, full=full, coords=arrays.get("coords"), **parts)
