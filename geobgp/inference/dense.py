"""The dense engine: Gaussian posteriors over the weights of features and fixed effects.

Weights u ~ N(0, diag(scale²)): scale² is the kernel's spectral density at a feature's eigenvalue, and a wide
variance for a fixed effect. Everything is done in whitened weights z = u / scale, whose posterior precision

    B = I + diag(scale) G diag(scale),   G = Φᵀ diag(site precision) Φ

is never singular, however small or large a scale may be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import blas, lapack

from geobgp.inference.engine import Moments, make_engine, make_state
from geobgp.inference.features import DenseFeatures, Features
from geobgp.inference.states import FeatureState
from geobgp.prior.harmonic import HarmonicBasis

if TYPE_CHECKING:
    from geobgp.inference.hyper import Derivatives
    from geobgp.prior.kernels import Kernel


#: Posterior variances below which a Newton step can do with bounds.
_SMALL = 0.2


@dataclass(frozen=True, eq=False)
class FeatureEvidence:
    """Gaussian sites, as the weights see them: their Gram matrix (lower triangle) and natural mean."""

    precision: np.ndarray
    gram: np.ndarray
    natural: np.ndarray

    def blend(self, other: FeatureEvidence, share: float) -> FeatureEvidence:
        """Return (1 - share) of these sites and `share` of the others, in natural parameters."""
        if share == 1.0:
            return other
        pairs = ((self.precision, other.precision), (self.gram, other.gram), (self.natural, other.natural))
        return FeatureEvidence(*((1.0 - share) * a + share * b for a, b in pairs))


class FeatureEngine:
    """Posteriors under a kernel, for observations at the rows of `features`.

    Parameters
    ----------
    features : Features
        At the observations; the last `k` columns are fixed effects.
    eigenvalues : (m,) array
    kernel : Kernel
    fixed_sd : (k,) array
        Prior standard deviations of the fixed effects.
    basis : HarmonicBasis
        For the states: features at nodes and elsewhere.
    fixed : (n_nodes, k) array
        Fixed effects at the nodes.
    """

    #: The search for hyperparameters costs O(p³) an evaluation: let it finish.
    evaluations = 30
    corrections = 0

    def __init__(
        self,
        features: Features,
        eigenvalues: np.ndarray,
        kernel: Kernel,
        fixed_sd: np.ndarray,
        basis: HarmonicBasis,
        fixed: np.ndarray,
        centre: float = 0.0,
    ) -> None:
        self.features = features
        self.eigenvalues = eigenvalues
        self.kernel = kernel
        self._fixed_log = 2.0 * np.log(np.asarray(fixed_sd, float))
        self._basis, self._fixed, self._centre = basis, fixed, centre
        self.rounds = 0
        self._last: tuple[np.ndarray, FeatureEvidence, Moments] | None = None

    @property
    def size(self) -> int:
        """Number of observations."""
        return self.features.shape[0]

    def missed_share(self, theta: np.ndarray) -> float:
        """Return the share of the prior variance beyond the last feature."""
        return self.kernel.missed_share(float(self.eigenvalues[-1]), float(np.exp(theta[0])))

    def rehearsals(self) -> Iterator[FeatureEngine]:
        """Yield engines with a sixteenth and a quarter of the features, to find a good start with."""
        if not isinstance(self.features, DenseFeatures):
            return
        for part in (16, 4):
            m = len(self.eigenvalues) // part
            if m >= 32:
                few = self.features.truncate(m)
                k = self._fixed_log
                yield FeatureEngine(
                    few, self.eigenvalues[:m], self.kernel, np.exp(0.5 * k), self._basis, self._fixed
                )

    def absorb(self, precision: np.ndarray, natural: np.ndarray) -> FeatureEvidence:
        """Return sites as the weights see them: the one O(n p²) product of a round."""
        self.rounds += 1
        return FeatureEvidence(precision, self.features.gram(precision), self.features.adjoint(natural))

    def _log_scale(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return log scale² of all columns and its derivatives (p, len θ), and the second one in log ℓ."""
        log_s, first, second = self.kernel.log_density(self.eigenvalues, theta)
        m, k = len(log_s), len(self._fixed_log)
        jacobian = np.zeros((m + k, len(theta)))
        jacobian[:m, 0] = first
        jacobian[:m, 1] = 2.0
        value = np.concatenate([log_s, self._fixed_log])
        if len(theta) == 3:  # Gaussian noise: sites of unit noise, with the scales divided by it
            value = value - 2.0 * theta[2]
            jacobian[:, 2] = -2.0
        return value, jacobian, np.concatenate([second, np.zeros(k)])

    def _factor(self, log_scale: np.ndarray, gram: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        scale = np.exp(0.5 * log_scale)
        whitened = np.asfortranarray(gram * scale)
        whitened *= scale[:, None]
        whitened[np.diag_indices_from(whitened)] += 1.0
        chol, info = lapack.dpotrf(whitened, lower=1, clean=1)
        # Only rounding can fail it, where sites or scales are huge: then a little is added to the diagonal.
        extra = np.finfo(float).eps * len(scale) * float(np.diag(whitened).max(initial=1.0))
        while info != 0 and np.isfinite(extra):
            whitened[np.diag_indices_from(whitened)] += extra
            extra *= 10.0
            chol, info = lapack.dpotrf(whitened, lower=1, clean=1)
        if info != 0:
            raise np.linalg.LinAlgError("the posterior precision is not finite")
        return scale, chol

    def objective(self, theta: np.ndarray, evidence: FeatureEvidence) -> Derivatives:
        """Return the sites' log evidence with gradient and Hessian in θ.

        It is ½ bᵀ(G + Λ⁻¹)⁻¹b - ½ log|Λ| - ½ log|G + Λ⁻¹|, with Λ = diag(scale²).

        With Gaussian noise as θ's third parameter, `evidence` is that of unit noise, and the likelihood's own
        `constant` is to be added.
        """
        log_scale, jacobian, second = self._log_scale(theta)
        scale, chol = self._factor(log_scale, evidence.gram)
        lower, _ = lapack.dpotri(chol, lower=1)
        covariance = np.tril(lower) + np.tril(lower, -1).T
        d = scale * evidence.natural
        z = blas.dsymv(1.0, lower, d, lower=1)
        s = np.exp(-2.0 * theta[2]) if len(theta) == 3 else 1.0
        fit = 0.5 * float(z @ d)
        value = s * fit - float(np.log(np.diag(chol)).sum())
        g = 0.5 * (s * z**2 + np.diag(covariance) - 1.0)
        gradient = jacobian.T @ g
        zj = z[:, None] * jacobian
        hessian = s * (zj.T @ blas.dsymm(1.0, lower, zj, lower=1) - 0.5 * zj.T @ zj)
        diagonal = np.diag(covariance)[:, None] * jacobian
        squared = np.square(covariance, out=covariance)
        hessian += 0.5 * (jacobian.T @ blas.dsymm(1.0, squared.T, jacobian, lower=1) - jacobian.T @ diagonal)
        hessian[0, 0] += float(g @ second)
        if len(theta) == 3:
            gradient[2] -= 2.0 * s * fit
            mixed = -s * (jacobian.T @ z**2)
            hessian[2, :] += mixed
            hessian[:, 2] += mixed
            hessian[2, 2] += 4.0 * s * fit
        return value, gradient, 0.5 * (hessian + hessian.T)

    def _solve(
        self, theta: np.ndarray, evidence: FeatureEvidence
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return scale (of unit noise), Cholesky factor of B and whitened mean (of unit noise)."""
        scale, chol = self._factor(self._log_scale(theta)[0], evidence.gram)
        z, _ = lapack.dpotrs(chol, scale * evidence.natural, lower=1)
        return scale, chol, z

    def posterior(self, theta: np.ndarray, evidence: FeatureEvidence) -> Moments:
        """Return the moments at the observations: the other O(n p²) product of a round."""
        if self._last is not None and self._last[1] is evidence and np.array_equal(self._last[0], theta):
            return self._last[2]
        scale, chol, z = self._solve(theta, evidence)
        noise = np.exp(theta[2]) if len(theta) == 3 else 1.0
        half, _ = lapack.dtrtri(chol, lower=1)
        half *= scale * noise
        mean = self.features.apply(scale * z)
        variance = self.features.variances(half)
        used = float((evidence.precision * variance).sum()) / noise**2
        log_det = 2.0 * float(np.log(np.diag(chol)).sum())
        moments = Moments(mean, variance, 0.5 * (float(z @ z) / noise**2 - used + log_det))
        self._last = (theta.copy(), evidence, moments)
        return moments

    def means(
        self, theta: np.ndarray, evidence: FeatureEvidence, precision: np.ndarray
    ) -> Callable[[np.ndarray], np.ndarray]:
        """Return the way from natural means to posterior means, for precisions near those of `evidence`.

        Conjugate gradients, which the factor of `evidence` preconditions: a few passes over the features.
        """
        scale, chol, _ = self._solve(theta, evidence)

        def product(x: np.ndarray) -> np.ndarray:
            return x + scale * self.features.adjoint(precision * self.features.apply(scale * x))

        def mean(natural: np.ndarray) -> np.ndarray:
            residual = scale * self.features.adjoint(natural)
            ahead = lapack.dpotrs(chol, residual, lower=1)[0]
            z, direction = np.zeros_like(ahead), ahead
            size = first = float(residual @ ahead)
            for _ in range(50):
                if size <= 1e-4 * first:
                    break
                image = product(direction)
                step = size / float(direction @ image)
                z = z + step * direction
                residual = residual - step * image
                ahead = lapack.dpotrs(chol, residual, lower=1)[0]
                size, before = float(residual @ ahead), size
                direction = ahead + (size / before) * direction
            return self.features.apply(scale * z)

        return mean

    def spread(self, theta: np.ndarray, evidence: FeatureEvidence) -> Callable[[np.ndarray], np.ndarray]:
        """Return multiplication with V∘V, lumped: the diagonal of V W V, or that of V where it is small."""
        w, lumped = evidence.precision, self.posterior(theta, evidence).variance
        if lumped.max(initial=0.0) > _SMALL:
            scale, chol, _ = self._solve(theta, evidence)
            inverse, _ = lapack.dpotri(chol, lower=1)
            inverse = np.tril(inverse) + np.tril(inverse, -1).T
            middle = inverse - blas.dsymm(1.0, inverse, inverse)
            middle[np.diag_indices_from(middle)] += 1e-10
            # From the last column to the first, so that the half is lower triangular.
            half, info = lapack.dpotrf(np.asfortranarray(middle[::-1, ::-1]), lower=1, clean=1)
            if info == 0:
                lumped = self.features.variances(np.asfortranarray(half[::-1, ::-1].T * scale))
        return lambda weights: np.divide(weights, w, out=np.zeros_like(w), where=w > 0) * lumped

    def state(self, theta: np.ndarray, evidence: FeatureEvidence, weight: float) -> FeatureState:
        """Return the posterior as a state that stands by itself."""
        scale, chol, z = self._solve(theta, evidence)
        noise = np.exp(theta[2]) if len(theta) == 3 else np.nan
        unit = noise if len(theta) == 3 else 1.0
        return FeatureState(
            weight=float(weight),
            lengthscale=float(np.exp(theta[0])),
            sd=float(np.exp(theta[1])),
            noise=float(noise),
            centre=self._centre,
            mean=scale * z,
            scale=scale * unit,
            chol=chol,
            basis=self._basis,
            fixed=self._fixed,
        )


@make_engine.register(HarmonicBasis)
def _engine(
    basis: HarmonicBasis,
    kernel: Kernel,
    columns: np.ndarray,
    fixed_sd: np.ndarray,
    centre: float,
    coords: np.ndarray | None,
) -> FeatureEngine:
    if coords is None:
        features = DenseFeatures(basis.features, columns)
    else:
        at = np.ascontiguousarray(basis.evaluate(coords))
        features = DenseFeatures(at, columns[basis.domain.locate(coords)])
    return FeatureEngine(features, basis.eigenvalues, kernel, fixed_sd, basis, columns, centre)


@make_state.register(HarmonicBasis)
def _state(basis: HarmonicBasis, arrays: dict[str, np.ndarray]) -> FeatureState:
    return FeatureState.from_arrays(arrays, basis)
