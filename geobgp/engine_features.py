"""The dense engine: Gaussian posteriors over the weights of features and fixed effects.

Weights u ~ N(0, diag(scale²)): scale² is the kernel's spectral density at a feature's eigenvalue, and a wide
variance for a fixed effect. Everything is done in whitened weights z = u / scale, whose posterior precision

    B = I + diag(scale) G diag(scale),   G = Φᵀ diag(site precision) Φ

is never singular, however small or large a scale may be.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import numpy as np
from scipy.linalg import blas, lapack

from geobgp.features import DenseFeatures, Features

if TYPE_CHECKING:
    from geobgp.basis import HarmonicBasis
    from geobgp.hyper import Derivatives
    from geobgp.kernels import Kernel


@dataclass(frozen=True, eq=False)
class Moments:
    """Posterior means and variances at the observations, and the divergence from the prior."""

    mean: np.ndarray
    variance: np.ndarray
    divergence: float


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
        whitened = gram * scale
        whitened *= scale[:, None]
        whitened[np.diag_indices_from(whitened)] += 1.0
        chol, info = lapack.dpotrf(np.asfortranarray(whitened), lower=1, clean=1, overwrite_a=1)
        if info != 0:
            raise np.linalg.LinAlgError(f"the posterior precision is not positive definite (order {info})")
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
        scale, chol, z = self._solve(theta, evidence)
        noise = np.exp(theta[2]) if len(theta) == 3 else 1.0
        half, _ = lapack.dtrtri(chol, lower=1)
        half *= scale * noise
        mean = self.features.apply(scale * z)
        variance = self._variance = self.features.variances(half)
        used = float((evidence.precision * variance).sum()) / noise**2
        log_det = 2.0 * float(np.log(np.diag(chol)).sum())
        return Moments(mean, variance, 0.5 * (float(z @ z) / noise**2 - used + log_det))

    def mean(
        self, theta: np.ndarray, evidence: FeatureEvidence, precision: np.ndarray, natural: np.ndarray
    ) -> np.ndarray:
        """Return the posterior mean under other sites, by conjugate gradients that the old ones precondition."""
        scale, chol, z = self._solve(theta, evidence)

        def product(x: np.ndarray) -> np.ndarray:
            return x + scale * self.features.adjoint(precision * self.features.apply(scale * x))

        def precondition(r: np.ndarray) -> np.ndarray:
            return lapack.dpotrs(chol, r, lower=1)[0]

        residual = scale * self.features.adjoint(natural) - product(z)
        ahead = precondition(residual)
        size = first = float(residual @ ahead)
        direction = ahead.copy()
        for _ in range(30):
            if size <= 1e-6 * first or first <= 0:
                break
            image = product(direction)
            step = size / float(direction @ image)
            z = z + step * direction
            residual = residual - step * image
            ahead = precondition(residual)
            size, before = float(residual @ ahead), size
            direction = ahead + (size / before) * direction
        return self.features.apply(scale * z)

    def spread(self, theta: np.ndarray, evidence: FeatureEvidence, weights: np.ndarray) -> np.ndarray:
        """Return an upper bound of (V∘V) weights: V W V has a smaller diagonal than V."""
        share = np.divide(
            weights, evidence.precision, out=np.zeros_like(weights), where=evidence.precision > 0
        )
        return share * self._variance

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


@dataclass(frozen=True, eq=False)
class FeatureState:
    """A Gaussian posterior over features and fixed effects, for one value of the hyperparameters.

    Attributes
    ----------
    weight : float
        Share of this state in the mixture over hyperparameters.
    lengthscale, sd, noise : float
        Hyperparameters; noise is NaN where the likelihood has none.
    centre : float
        Constant added to every linear predictor (and to the intercept that is reported).
    mean : (p,) array
        Posterior mean of the plain weights: features, then fixed effects.
    scale : (p,) array
        Prior standard deviations.
    chol : (p, p) array
        Lower factor L of the posterior precision L Lᵀ of the whitened weights (weights / scale), so that the
        posterior covariance of the plain weights is diag(scale) L⁻ᵀ L⁻¹ diag(scale).
    basis : HarmonicBasis
    fixed : (n_nodes, k) array
        Fixed effects at the nodes, standardised; the first column is the intercept's, if there is one.
    """

    weight: float
    lengthscale: float
    sd: float
    noise: float
    centre: float
    mean: np.ndarray = field(repr=False)
    scale: np.ndarray = field(repr=False)
    chol: np.ndarray = field(repr=False)
    basis: HarmonicBasis = field(repr=False)
    fixed: np.ndarray = field(repr=False)

    def _half(self) -> np.ndarray:
        inverse, _ = lapack.dtrtri(self.chol, lower=1)
        return np.asfortranarray(inverse * self.scale)

    def moments(self, features: np.ndarray, fixed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of the linear predictor at rows of features (k, m) and fixed effects."""
        design = DenseFeatures(features, fixed)
        return self.centre + design.apply(self.mean), design.variances(self._half())

    def node_moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of the linear predictor at every node."""
        return self.moments(self.basis.features, self.fixed)

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Return (n, p) draws of the plain weights."""
        z = rng.standard_normal((len(self.mean), n))
        whitened = blas.dtrsm(1.0, self.chol, z, lower=1, trans_a=1)
        return np.asarray((self.mean[:, None] + self.scale[:, None] * whitened).T)

    def sample_nodes(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Return (n, n_nodes) joint draws of the linear predictor at the nodes."""
        weights = self.sample(n, rng)
        m = self.basis.features.shape[1]
        out = blas.dgemm(1.0, weights[:, :m], self.basis.features, trans_b=1)
        return np.asarray(out + weights[:, m:] @ self.fixed.T + self.centre)

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
        features = self.basis.evaluate(coords)
        on_land = np.isfinite(features).all(axis=1)
        if fixed is None:
            fixed = self.fixed[np.maximum(self.basis.domain.locate(coords), 0)]
        mean, variance = np.full((2, len(coords)), np.nan)
        mean[on_land], variance[on_land] = self.moments(features[on_land], np.asarray(fixed)[on_land])
        return mean, variance

    def coefficients(self) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and covariance of the fixed effects, on the standardised scale, intercept first."""
        k = self.fixed.shape[1]
        p = len(self.mean)
        inverse, _ = lapack.dtrtri(self.chol, lower=1)
        block = inverse[:, p - k :] * self.scale[p - k :]
        mean = self.mean[p - k :].copy()
        if k:
            mean[0] += self.centre
        return mean, block.T @ block

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return plain arrays from which `from_arrays` rebuilds the state."""
        numbers = np.array([self.weight, self.lengthscale, self.sd, self.noise, self.centre])
        return {
            "numbers": numbers,
            "mean": self.mean,
            "scale": self.scale,
            "chol": self.chol,
            "fixed": self.fixed,
        }

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray], basis: HarmonicBasis) -> Self:
        """Rebuild a state from `to_arrays` and the basis it was fitted with."""
        weight, lengthscale, sd, noise, centre = (float(v) for v in arrays["numbers"])
        mean, scale, chol = (arrays[name] for name in ("mean", "scale", "chol"))
        return cls(weight, lengthscale, sd, noise, centre, mean, scale, chol, basis, arrays["fixed"])
