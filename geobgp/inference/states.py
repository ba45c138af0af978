"""States: Gaussian posteriors that stand by themselves, for one value of the hyperparameters each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np
import scipy.sparse as sp
from scipy.linalg import blas, lapack

from geobgp.inference.engine import engine_for
from geobgp.inference.features import DenseFeatures
from geobgp.prior.kernels import Matern

if TYPE_CHECKING:
    from geobgp.inference.sparse import SparseEngine
    from geobgp.land.domain import Domain
    from geobgp.linalg.cholesky import Cholesky
    from geobgp.prior.full_rank import FullRank
    from geobgp.prior.harmonic import HarmonicBasis
    from geobgp.prior.powers import Powers


class _Located(ABC):
    """A state that can be asked at any coordinates."""

    fixed: np.ndarray

    @property
    @abstractmethod
    def domain(self) -> Domain:
        """The land."""

    @abstractmethod
    def rows_at(self, coords: np.ndarray) -> tuple[Any, np.ndarray]:
        """Return what `moments` takes at coordinates, and which of these are on land."""

    @abstractmethod
    def moments(self, rows: Any, fixed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of the linear predictor at such rows, with fixed effects."""

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
        rows, on_land = self.rows_at(coords)
        if fixed is None:
            fixed = self.fixed[np.maximum(self.domain.locate(coords), 0)]
        mean, variance = np.full((2, len(coords)), np.nan)
        mean[on_land], variance[on_land] = self.moments(
            rows[np.flatnonzero(on_land)], np.asarray(fixed)[on_land]
        )
        return mean, variance


@dataclass(frozen=True, eq=False)
class FeatureState(_Located):
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

    @property
    def domain(self) -> Domain:
        """The land."""
        return self.basis.domain

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
        features = self.basis.features
        m = features.shape[1]
        # Turned over, features in C order are what BLAS takes without a copy.
        out = blas.dgemm(1.0, weights[:, :m], features.T)
        out += weights[:, m:] @ self.fixed.T
        out += self.centre
        return np.asarray(out)

    def rows_at(self, coords: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the features at coordinates, and which of these are on land."""
        features = self.basis.evaluate(coords)
        return features, np.isfinite(features).all(axis=1)

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


@dataclass(frozen=True, eq=False)
class SparseState(_Located):
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
    def domain(self) -> Domain:
        """The land."""
        return self.full.domain

    @property
    def key(self) -> object:
        """What tells this state's factor from others'."""
        return (self.lengthscale, self.sd, self.nu, self.precision.tobytes())

    @cached_property
    def _matrices(self) -> Powers:
        return self._engine().matrices

    def _engine(self) -> SparseEngine:
        kernel = Matern(self.nu, self.lengthscale, self.sd)
        engine = engine_for(self.full, kernel, self.fixed, self.fixed_sd, self.centre, self.coords)
        return cast("SparseEngine", engine)

    def _factor(self) -> Cholesky:
        from threadpoolctl import threadpool_limits

        factor = self.full.keep(self.key)
        if factor is None:
            q = self._engine()._coefficients(np.log([self.lengthscale, self.sd]))[1]
            # One thread, as in the fit, so that samples of a posterior read from a file are the same.
            with threadpool_limits(limits=1, user_api="blas"):
                factor = self._matrices.factor(q, self.precision)
            self.full.keep(self.key, factor)
        return factor

    def moments(self, rows: sp.csr_array, fixed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of the linear predictor at rows of the way from z and fixed effects."""
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
        return self.moments(self.full.field.to_nodes, self.fixed)

    def sample_nodes(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Return (n, n_nodes) joint draws of the linear predictor at the nodes."""
        noise = self._factor().half_solve(rng.standard_normal((len(self.z), n)))
        root = np.linalg.cholesky(self.beta_cov) if len(self.beta) else self.beta_cov
        shift = root @ rng.standard_normal((len(self.beta), n))
        z = self.z[:, None] + noise - self.coupling @ shift
        out = self.full.field.to_nodes @ z + self.fixed @ (self.beta[:, None] + shift)
        return np.ascontiguousarray(self.centre + out.T)

    def rows_at(self, coords: np.ndarray) -> tuple[sp.csr_array, np.ndarray]:
        """Return the way from z to f at coordinates, and which of these are on land."""
        return self.full.at(coords)

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
        return cls(
            weight=weight,
            lengthscale=lengthscale,
            sd=sd,
            noise=noise,
            nu=nu,
            centre=centre,
            precision=arrays["precision"],
            z=arrays["z"],
            beta=arrays["beta"],
            inverse=arrays["inverse"],
            coupling=arrays["coupling"],
            beta_cov=arrays["beta_cov"],
            fixed_sd=arrays["fixed_sd"],
            full=full,
            fixed=arrays["fixed"],
            coords=arrays.get("coords"),
        )
