"""The engine of features: dense blocks part by part of the land, and rows that are means over nodes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from scipy import sparse
from scipy.linalg import blas, lapack

from geobgp.inference import conjugate
from geobgp.inference.engine import Engine, FeatureBlocks, PartedFeatures, Sites, Solution, Solve, cholesky, make_engine
from geobgp.inference.states import FeatureState, hyper_numbers
from geobgp.prior.basis import Scaling
from geobgp.prior.harmonic import HarmonicBasis
from geobgp.prior.kernels import Kernel

# -- The engine of features: Gaussian posteriors over their weights, part by part of the land ----------------
# Weights u ~ N(0, diag(scale²)): scale² is the kernel's spectral density at a feature's eigenvalue. Everything is
# done in
# whitened weights z = u / scale, whose posterior precision
#
#     B = I + diag(scale) G diag(scale),   G = Φᵀ diag(site precision) Φ,
#
# is never singular, however small or large a scale may be. B is block-diagonal over the parts of the land.


#: Posterior variances below which a Newton step can do with bounds.
_SMALL = 0.2


class FeatureVariance:
    """The variance of a natural prior with σ = 1 at rows of features."""

    def __init__(self, features: PartedFeatures, eigenvalues: np.ndarray, kernel: Kernel) -> None:
        self._features, self._eigenvalues, self._kernel = features, eigenvalues, kernel

    def log_variance(self, log_length: float) -> tuple[np.ndarray, np.ndarray]:
        """Return log v at the rows, and its derivative in log ℓ."""
        log_s, first, _ = self._kernel.log_density(self._eigenvalues, np.array([log_length, 0.0]))
        s = np.exp(log_s)
        v, slope = self._features.squares(np.column_stack([s, s * first])).T
        return np.log(v), slope / v


class FeatureEngine(Engine):
    """Posteriors over the weights of features.

    Parameters
    ----------
    features : PartedFeatures
        At the observations.
    eigenvalues : (m,) array
        Of the features, in their order.
    kernel : Kernel
    design, fixed_sd
        As in `Engine`.
    basis : HarmonicBasis
        For the states: features at nodes and elsewhere.
    columns : (n_nodes, k) array
        Fixed effects at the nodes.
    centre : float
        Constant added to every linear predictor.
    scaling : "natural" or "even"
    """

    #: Whether all features are one block, whatever the parts of the land.
    joined = False

    def __init__(
        self,
        features: PartedFeatures,
        eigenvalues: np.ndarray,
        kernel: Kernel,
        design: np.ndarray,
        fixed_sd: np.ndarray,
        basis: HarmonicBasis,
        columns: np.ndarray,
        centre: float,
        scaling: Scaling,
    ) -> None:
        variance = FeatureVariance(features, eigenvalues, kernel) if scaling == "even" else None
        super().__init__(design, fixed_sd, variance)
        self.features, self.eigenvalues, self.kernel = features, eigenvalues, kernel
        self.basis, self.columns, self._centre, self.scaling = basis, columns, centre, scaling
        self._gram: tuple[np.ndarray, FeatureBlocks] | None = None

    def truncated_variance(self, theta: np.ndarray) -> float:
        """Return the share of the prior variance beyond the last feature."""
        return self.basis.truncated_variance(self.kernel, float(np.exp(theta[0])))

    def warm_start_engines(self) -> Iterator[FeatureEngine]:
        """Yield engines with about a sixteenth and a quarter of the features, to find a good start with."""
        m = self.features.shape[1]
        ranked = np.sort(self.eigenvalues)
        lowest = int(np.sum(ranked <= 0.0))
        for part in (16, 4):
            few = lowest + (m - lowest) // part
            if few - lowest >= 32:
                some = self.features.truncate(self.eigenvalues <= ranked[few - 1])
                yield FeatureEngine(
                    some, self.eigenvalues[some.order], self.kernel, self.design, self.fixed_precision**-0.5,
                    self.basis, self.columns, self._centre, self.scaling,
                )  # fmt: skip

    def prior_at(self, theta: np.ndarray) -> FeaturePrior:
        """Return the features' prior at θ."""
        return FeaturePrior(self, theta)

    def gram(self, precision: np.ndarray) -> FeatureBlocks:
        """Return Φᵀ diag(precision) Φ; the last one is remembered."""
        if self._gram is None or self._gram[0] is not precision:
            self._gram = precision, self.features.gram(precision)
        return self._gram[1]

    def means(self, theta: np.ndarray, sites: Sites, precision: np.ndarray) -> Solve:
        """Return the way from natural means to posterior means, for precisions near those of `sites`.

        Conjugate gradients, which the factor of `sites` preconditions: a few passes over the features.
        """
        return conjugate.means(self, self.solve(theta, sites), precision)

    def state(self, theta: np.ndarray, sites: Sites, weight: float) -> FeatureState:
        """Return the posterior as a state that stands by itself."""
        s = self.solve(theta, sites)
        prior: FeaturePrior = s.prior  # type: ignore[assignment]
        return FeatureState(
            **hyper_numbers(theta, weight, self.noise_at),
            centre=self._centre,
            beta=s.beta,
            beta_cov=s.beta_cov,
            fixed=self.columns,
            even=self.scaling == "even",
            basis=self.basis,
            mean=prior.scale * s.z,
            coupling=prior.scale[:, None] * s.coupling,
            scale=prior.scale,
            chol=FeatureBlocks(s.factor.chol, s.factor.alone),
            joined=self.joined,
        )


class FeaturePrior:
    """The features' prior at one θ: see `PriorAt`."""

    def __init__(self, engine: FeatureEngine, theta: np.ndarray) -> None:
        self._engine = engine
        self.features = engine.features
        log_s, self.first, _ = engine.kernel.log_density(engine.eigenvalues, theta)
        self.scale = np.exp(0.5 * log_s)

    def apply(self, weights: np.ndarray) -> np.ndarray:
        """Return O z."""
        return self.features.apply(_rows(self.scale, weights))

    def project(self, rows: np.ndarray) -> np.ndarray:
        """Return Oᵀ r."""
        return _rows(self.scale, self.features.adjoint(rows))

    def factorise(self, precision: np.ndarray, factor: float) -> FeatureFactor:
        """Return the factor of B."""
        return FeatureFactor(self.features, self.scale, self._engine.gram(precision), factor)

    def times(self, weights: np.ndarray) -> np.ndarray:
        """Return z: the weights are whitened."""
        return weights

    def square(self, weights: np.ndarray) -> float:
        """Return zᵀ z."""
        return float(weights @ weights)

    def gradient(
        self, weights: np.ndarray, factor: FeatureFactor, coupling: np.ndarray, beta_cov: np.ndarray
    ) -> np.ndarray:
        """Return the derivatives of the site objective in log ℓ and log σ, rows held."""
        spread = factor.inverse_diagonal() + np.einsum("ij,ij->i", coupling @ beta_cov, coupling)
        by_log_s = 0.5 * (weights**2 + spread - 1.0)
        return np.array([float(by_log_s @ self.first), 2.0 * float(by_log_s.sum())])


class FeatureFactor:
    """The Cholesky factors of B = I + diag(scale) G diag(scale), part by part."""

    def __init__(self, features: PartedFeatures, scale: np.ndarray, gram: FeatureBlocks, factor: float) -> None:
        self._features = features
        self._scale = features.split(scale)
        self.chol = [
            _cholesky(block, s * np.sqrt(factor)) for block, s in zip(gram.dense, self._scale.dense, strict=True)
        ]
        self.alone = 1.0 + factor * gram.alone * self._scale.alone**2
        self.log_det = float(sum(2.0 * np.log(np.diag(chol)).sum() for chol in self.chol) + np.log(self.alone).sum())

    def solve(self, weights: np.ndarray) -> np.ndarray:
        """Return B⁻¹ b."""
        if weights.size == 0:
            return np.zeros(weights.shape)
        parts = self._features.split(weights)
        dense = [lapack.dpotrs(chol, b, lower=1)[0] for chol, b in zip(self.chol, parts.dense, strict=True)]
        return self._features.join(FeatureBlocks(dense, (parts.alone.T / self.alone).T))

    @cached_property
    def _inverse(self) -> list[np.ndarray]:
        return [lapack.dtrtri(chol, lower=1)[0] for chol in self.chol]

    def inverse_diagonal(self) -> np.ndarray:
        """Return the diagonal of B⁻¹."""
        dense = [np.einsum("ij,ij->j", half, half) for half in self._inverse]
        return self._features.join(FeatureBlocks(dense, 1.0 / self.alone))

    @cached_property
    def _variances(self) -> np.ndarray:
        dense = [np.asfortranarray(h * s) for h, s in zip(self._inverse, self._scale.dense, strict=True)]
        return self._features.variances(FeatureBlocks(dense, self._scale.alone / np.sqrt(self.alone)))

    def variances(self) -> np.ndarray:
        """Return the variances of f, not yet scaled, at the observations."""
        return self._variances.copy()

    def spread(self, precision: np.ndarray) -> Solve:
        """Return multiplication with V∘V, lumped: the diagonal of V W V, or that of V where it is small."""
        lumped = self._variances
        if float(np.max(lumped * precision, initial=0.0)) > _SMALL**2 and lumped.max(initial=0.0) > _SMALL:
            lumped = self._lumped()
        return lambda weights: np.divide(weights, precision, out=np.zeros_like(precision), where=precision > 0) * lumped

    def _lumped(self) -> np.ndarray:
        dense = []
        for half, s in zip(self._inverse, self._scale.dense, strict=True):
            inverse = blas.dsyrk(1.0, half, trans=1, lower=1)
            inverse = np.tril(inverse) + np.tril(inverse, -1).T
            middle = inverse - blas.dsymm(1.0, inverse, inverse)
            middle[np.diag_indices_from(middle)] += 1e-10
            # From the last column to the first, so that the half is lower triangular.
            root, info = lapack.dpotrf(np.asfortranarray(middle[::-1, ::-1]), lower=1, clean=1)
            if info != 0:
                return self._variances
            dense.append(np.asfortranarray(root[::-1, ::-1].T * s))
        alone = 1.0 / self.alone
        return self._features.variances(
            FeatureBlocks(dense, self._scale.alone * np.sqrt(np.maximum(alone - alone**2, 0.0)))
        )


def _cholesky(gram: np.ndarray, scale: np.ndarray) -> np.ndarray:
    whitened = np.asfortranarray(gram * scale)
    whitened *= scale[:, None]
    whitened[np.diag_indices_from(whitened)] += 1.0
    return cholesky(whitened)


def _rows(scale: np.ndarray, rows: np.ndarray) -> np.ndarray:
    return scale * rows if rows.ndim == 1 else scale[:, None] * rows


@make_engine.register(HarmonicBasis)
def _engine(
    basis: HarmonicBasis,
    kernel: Kernel,
    columns: np.ndarray,
    fixed_sd: np.ndarray,
    centre: float,
    coords: np.ndarray | None,
    scaling: Scaling,
) -> FeatureEngine:
    if coords is not None and np.ndim(coords) == 1:
        features, design = _of_nodes(basis, coords), columns[coords]
    else:
        features = PartedFeatures(*basis.by_part(coords))
        design = columns if coords is None else columns[basis.domain.node_at(coords)]
    return FeatureEngine(
        features, basis.eigenvalues[features.order], kernel, design, fixed_sd, basis, columns, centre, scaling
    )


def _of_nodes(basis: HarmonicBasis, nodes: np.ndarray) -> PartedFeatures:
    """Return the features of some nodes, which may recur."""
    n, parts, matrices, columns = basis.by_part(None)
    rows: list[np.ndarray | slice] = []
    inside = []
    for part, matrix in zip(parts, matrices, strict=True):
        place = np.full(n, -1)
        place[part] = np.arange(len(matrix))
        rows.append(np.flatnonzero(place[nodes] >= 0))
        inside.append(matrix[place[nodes[rows[-1]]]])
    return PartedFeatures(len(nodes), rows, inside, columns)


# -- Observations that are sums over nodes: the engine of rows, each a weighted mean of the linear predictor --
# An area's expected count is W = Σ a_i exp(f_i) over its nodes. About a posterior it is as one observation with the
# row
# r_i = w_i / W, w_i = a_i exp(mean_i + variance_i / 2): the log of the sum is Σ r_i f_i and a constant. The rows see
# the
# features as they are made even at each lengthscale, and move with it. A row may reach over several parts of the
# land,
# so that all features are one block here.


@dataclass(frozen=True, eq=False)
class NodeFeatures:
    """Features at the nodes as one block, and what makes them even: shared by the engines of all rows.

    Parameters
    ----------
    basis : HarmonicBasis
    kernel : Kernel
    scaling : "natural" or "even"
    """

    basis: HarmonicBasis
    kernel: Kernel
    scaling: Scaling
    _kept: dict[float, tuple[np.ndarray, np.ndarray] | None] = field(default_factory=dict, repr=False)

    def even(self, log_length: float) -> tuple[np.ndarray, np.ndarray] | None:
        """Return e = 1/√v at the nodes and ½ d log v / d log ℓ; None for a natural prior."""
        if self.scaling != "even":
            return None
        if log_length not in self._kept:
            features = PartedFeatures(*self.basis.by_part(None))
            variance = FeatureVariance(features, self.basis.eigenvalues[features.order], self.kernel)
            log_v, slope = variance.log_variance(log_length)
            self._kept.clear()
            self._kept[log_length] = np.exp(-0.5 * log_v), 0.5 * slope
        return self._kept[log_length]

    def row_engine(self, rows: sparse.csr_array, columns: np.ndarray, fixed_sd: np.ndarray, centre: float) -> RowEngine:
        """Return the engine of weighted sums over nodes."""
        return RowEngine(self, rows, columns, fixed_sd, centre)


def row_weights(
    exposure: sparse.csr_array, mean: np.ndarray, variance: np.ndarray
) -> tuple[sparse.csr_array, np.ndarray]:
    """Return the rows w_i / W of sums over nodes under a posterior, and log W.

    Parameters
    ----------
    exposure : (n, n_nodes) csr_array
        What exp(f) is multiplied by in each sum.
    mean, variance : (n_nodes,) arrays
        Of f.
    """
    size = mean + 0.5 * variance
    top = float(size.max(initial=-np.inf))
    expected = exposure.multiply(np.exp(size - top)).tocsr()
    total = np.asarray(expected.sum(axis=1)).ravel()
    rows = sparse.csr_array(sparse.diags_array(1.0 / np.where(total > 0, total, 1.0)) @ expected)
    with np.errstate(divide="ignore"):
        return rows, np.log(total) + top


class RowEngine(FeatureEngine):
    """Posteriors over the weights of features, for observations that are weighted sums over nodes.

    Parameters
    ----------
    nodes : NodeFeatures
    rows : (n, n_nodes) csr_array
        What each observation sees of the linear predictor at the nodes; rows add up to one.
    columns : (n_nodes, k) array
        Fixed effects at the nodes.
    fixed_sd : (k,) array
    centre : float
        Constant added to every linear predictor.
    """

    joined = True

    def __init__(
        self, nodes: NodeFeatures, rows: sparse.csr_array, columns: np.ndarray, fixed_sd: np.ndarray, centre: float
    ) -> None:
        basis = nodes.basis
        nothing = PartedFeatures(0, [slice(None)], [np.zeros((0, basis.m))])
        super().__init__(
            nothing, basis.eigenvalues, nodes.kernel, rows @ columns, fixed_sd, basis, columns, centre, "natural"
        )
        self.nodes, self.rows, self.scaling = nodes, rows, nodes.scaling
        self._at: tuple[float, PartedFeatures, np.ndarray, np.ndarray | None] | None = None

    def warm_start_engines(self) -> Iterator[FeatureEngine]:
        """Yield nothing: rows are few."""
        return iter(())

    def rows_at(self, log_length: float) -> tuple[PartedFeatures, np.ndarray, np.ndarray | None]:
        """Return the rows of features at a lengthscale, as a matrix too, and minus their derivatives in log ℓ."""
        if self._at is None or self._at[0] != log_length:
            features, even = self.basis.features, self.nodes.even(log_length)
            weights = self.rows if even is None else self.rows.multiply(even[0]).tocsr()
            matrix = np.ascontiguousarray(weights @ features)
            slope = None if even is None else np.ascontiguousarray(weights.multiply(even[1]).tocsr() @ features)
            self._at = log_length, PartedFeatures(len(matrix), [slice(None)], [matrix]), matrix, slope
        return self._at[1:]

    def prior_at(self, theta: np.ndarray) -> _RowPrior:
        """Return the features' prior at θ, as the rows see it."""
        return _RowPrior(self, theta)

    def _gradient(self, s: Solution) -> np.ndarray:
        out = super()._gradient(s)
        prior: _RowPrior = s.prior  # type: ignore[assignment]
        if prior.slope is not None:
            # The rows move with ℓ: they are Σ r_i e_i φ_i, d log e_i / d log ℓ = -slope_i.
            w, mean = s.sites.precision, s.moments.mean
            moved = prior.slope * prior.scale
            tied, tied_rows = moved @ s.coupling, prior.apply(s.coupling)
            solved = s.factor.solve(np.asfortranarray((prior.matrix * prior.scale).T))
            with_f = np.einsum("ij,ji->i", moved, solved)
            with_f -= np.einsum("ij,ij->i", tied @ s.beta_cov, self.design - tied_rows)
            out[0] -= float(np.sum((s.sites.natural - w * mean) * (moved @ s.z) - w * with_f))
        return out


class _RowPrior(FeaturePrior):
    """The features' prior at one θ, as rows see it."""

    def __init__(self, engine: RowEngine, theta: np.ndarray) -> None:
        super().__init__(engine, theta)
        self.features, self.matrix, self.slope = engine.rows_at(float(theta[0]))

    def factorise(self, precision: np.ndarray, factor: float) -> FeatureFactor:
        return FeatureFactor(self.features, self.scale, self.features.gram(precision), factor)
