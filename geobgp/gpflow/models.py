"""Boundary-constrained features inside GPflow, under any of its likelihoods, priors, optimisers and samplers.

A prior over the weights of the features is all there is to the process,

    f(x) = e(x) Σ u_j φ_j(x),   u_j ~ N(0, s(√λ_j)),

so conditioning on the weights leaves nothing over, `Kuu` is diagonal, and GPflow's sparse models are exact.
The natural prior has e = 1. In the even one e = 1/√v, v = Σ s_j φ_j² for a kernel of variance 1: the variance
is the kernel's own at every place on land::

    features = HarmonicFeatures(basis)
    kernel = HarmonicKernel(gpflow.kernels.Matern32(lengthscales=20_000.0), features)
    model = gpflow.models.SVGP(kernel, gpflow.likelihoods.StudentT(), features)

Inputs are node indices, of shape (n, 1), or coordinates, (n, 2): easting and northing.

SVGP, SGPR and SGPMC cost O(n m²) for n observations and m features. VGP, GPR and GPMC give the same answers
for O(n³), since GPflow factorises the (n, n) kernel matrix in them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from geobgp.errors import DataError
from geobgp.gpflow.loading import load_gpflow
from geobgp.prior.basis import Scaling, resolve

load_gpflow()

import gpflow  # noqa: E402
import tensorflow as tf  # noqa: E402
import tensorflow_probability as tfp  # noqa: E402
from check_shapes import register_get_shape  # noqa: E402
from gpflow.base import TensorLike  # noqa: E402

if TYPE_CHECKING:
    from geobgp.prior.harmonic import HarmonicBasis

__all__ = ["Diagonal", "GPflowMatern", "HarmonicFeatures", "HarmonicKernel", "HarmonicPosterior", "NodeMean"]

#: Prior variances below exp(this) are held there, so that none is zero: 1e-260.
_LOWEST = -600.0
_FLOAT = tf.float64


class Diagonal(tf.experimental.ExtensionType):  # type: ignore[misc]
    """A diagonal matrix: its Cholesky factor and solutions cost O(m); elsewhere it becomes a dense tensor."""

    diag: tf.Tensor

    @property
    def shape(self) -> tf.TensorShape:
        """(m, m)."""
        return tf.TensorShape([self.diag.shape[-1]] * 2)

    def __tf_tensor__(self, dtype: Any = None, name: str | None = None) -> tf.Tensor:
        return tf.linalg.diag(self.diag, name=name)


@tf.experimental.dispatch_for_api(tf.linalg.cholesky, {"input": Diagonal})  # type: ignore[untyped-decorator]
def _cholesky(input: Diagonal, name: str | None = None) -> Diagonal:
    return Diagonal(tf.sqrt(input.diag))


@tf.experimental.dispatch_for_api(tf.linalg.triangular_solve, {"matrix": Diagonal})  # type: ignore[untyped-decorator]
def _triangular_solve(
    matrix: Diagonal, rhs: tf.Tensor, lower: bool = True, adjoint: bool = False, name: str | None = None
) -> tf.Tensor:
    return rhs / matrix.diag[:, None]


@register_get_shape(Diagonal)
def _shape(shaped: Diagonal, context: Any) -> Any:
    return (shaped.diag.shape[-1],) * 2


class HarmonicFeatures(gpflow.inducing_variables.InducingVariables):
    """The features of a basis as GPflow's inducing variables: their weights.

    The weights have no unit: those of `basis.features`, times the square root of the domain's area.

    Parameters
    ----------
    basis : HarmonicBasis
    fixed : (n_nodes, k) array, optional
        Fixed effects (a column of ones for an intercept, covariates), whose coefficients join the weights.
    fixed_sd : float or (k,) array
        Prior standard deviations of these coefficients.

    Examples
    --------
    >>> import shapely
    >>> from geobgp import Domain, HarmonicBasis
    >>> domain = Domain.from_polygons(shapely.box(0, 0, 1, 1), cell_size=0.1, crs="local")
    >>> features = HarmonicFeatures(HarmonicBasis.compute(domain, m=9, cache=False))
    >>> features.num_inducing
    9
    >>> features.rows(np.array([[0.5, 0.5], [0.1, 0.2]])).shape
    TensorShape([2, 9])
    """

    def __init__(
        self,
        basis: HarmonicBasis,
        *,
        fixed: np.ndarray | None = None,
        fixed_sd: float | np.ndarray = 10.0,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        if gpflow.default_float() != np.float64:
            raise DataError(
                f"The features are float64; GPflow is set to {np.dtype(gpflow.default_float()).name}. Call "
                "gpflow.config.set_default_float(np.float64) first."
            )
        n = basis.domain.n_nodes
        columns = np.zeros((n, 0)) if fixed is None else np.asarray(fixed, float)
        if columns.ndim != 2 or len(columns) != n or not np.isfinite(columns).all():
            raise DataError(
                f"Fixed effects are finite values of the shape ({n}, k), a row per node; found the shape "
                f"{columns.shape} with {int((~np.isfinite(columns)).sum()):,} values that are not finite."
            )
        sd = np.broadcast_to(np.asarray(fixed_sd, float), columns.shape[1:])
        if not (np.isfinite(sd).all() and (sd > 0).all()):
            raise DataError(f"Standard deviations of fixed effects are positive; found {fixed_sd!r}.")
        unit = math.sqrt(float(basis.domain.node_areas.sum()))
        self.basis = basis
        #: log of the square that the weights' unit stands for.
        self.log_area = 2.0 * math.log(unit)
        self.eigenvalues = tf.constant(np.maximum(basis.eigenvalues, 0.0), _FLOAT)
        self.log_fixed = tf.constant(2.0 * np.log(sd), _FLOAT)
        #: Prior variance of the fixed effects' sum at the nodes.
        self.fixed_variance = tf.constant(np.square(columns) @ np.square(sd), _FLOAT)
        self._table = tf.constant(np.concatenate([unit * basis.features, columns], axis=1), _FLOAT)

        # The same coordinates come again with every step of an optimiser.
        @lru_cache(maxsize=4)
        def evaluate(data: bytes) -> np.ndarray:
            coords = np.frombuffer(data).reshape(-1, 2)
            there = columns[np.maximum(basis.domain.node_at(coords), 0)]
            return np.concatenate([unit * basis.evaluate(coords), there], axis=1)

        @lru_cache(maxsize=4)
        def locate(data: bytes) -> np.ndarray:
            return np.asarray(basis.domain.node_at(np.frombuffer(data).reshape(-1, 2)), np.int64)

        self._evaluate, self._locate = evaluate, locate

    @property
    def num_inducing(self) -> int:
        """Number of weights: features, then fixed effects."""
        return int(self._table.shape[1])

    @property
    def shape(self) -> tuple[int | None, ...]:
        """(weights, any number of input columns, 1)."""
        return (self.num_inducing, None, 1)

    def rows(self, X: Any) -> tf.Tensor:
        """Return features and fixed effects at inputs [..., n, 1 or 2] as [..., n, weights]; NaN off land."""
        x = _inputs(X)
        if x.shape[-1] == 1:
            return tf.gather(self._table, tf.cast(tf.round(x[..., 0]), tf.int64))
        flat = self._at(self._evaluate, x, _FLOAT)
        flat.set_shape([None, self.num_inducing])
        return tf.reshape(flat, tf.concat([tf.shape(x)[:-1], [self.num_inducing]], 0))

    def node_values(self, X: Any, values: tf.Tensor) -> tf.Tensor:
        """Return values (n_nodes,) of the nodes at inputs, [..., n]; NaN off land."""
        x = _inputs(X)
        if x.shape[-1] == 1:
            return tf.gather(values, tf.cast(tf.round(x[..., 0]), tf.int64))
        node = tf.reshape(self._at(self._locate, x, tf.int64), tf.shape(x)[:-1])
        values_there = tf.gather(values, tf.maximum(node, tf.cast(0, tf.int64)))
        return tf.where(node >= 0, values_there, tf.constant(np.nan, _FLOAT))

    @staticmethod
    def _at(function: Callable[[bytes], np.ndarray], x: tf.Tensor, dtype: Any) -> tf.Tensor:
        if not tf.is_symbolic_tensor(x):
            with tf.init_scope():  # a tensor of its own, not a part of the graph that is being built
                return tf.constant(function(x.numpy().tobytes()))
        return tf.numpy_function(lambda c: function(c.tobytes()), [x], dtype, stateful=False)


def _inputs(X: Any) -> tf.Tensor:
    if isinstance(X, np.ndarray):
        with tf.init_scope():
            x = tf.constant(X, _FLOAT)
    else:  # a known tensor stays one, where to convert it would make it a placeholder of the graph
        x = X if isinstance(X, tf.Tensor) and X.dtype == _FLOAT else tf.cast(X, _FLOAT)
    if x.shape[-1] not in (1, 2):
        raise DataError(
            "Inputs are node indices, (n, 1), or coordinates, (n, 2); found the shape "
            f"{tuple(x.shape)}. Name the columns that are either with active_dims."
        )
    return x


class GPflowMatern(gpflow.kernels.IsotropicStationary):
    """GPflow's Matern kernels for any smoothness `nu` > 0."""

    def __init__(self, nu: float, variance: Any = 1.0, lengthscales: Any = 1.0, **kwargs: Any) -> None:
        super().__init__(variance, lengthscales, **kwargs)
        if not (math.isfinite(nu) and nu > 0):
            raise DataError(f"nu must be a positive number; found {nu!r}.")
        self.nu = float(nu)

    def K_r(self, r: Any) -> tf.Tensor:  # noqa: N802
        """Return the covariance at scaled distances."""
        nu = tf.constant(self.nu, _FLOAT)
        z = tf.sqrt(2.0 * nu) * r
        log_k = nu * tf.math.log(z) + tfp.math.log_bessel_kve(nu, z) - z
        return self.variance * tf.exp(log_k + (1.0 - self.nu) * math.log(2.0) - math.lgamma(self.nu))


#: Smoothness of GPflow's own kernels; infinite for the squared exponential.
_SMOOTHNESS = {
    gpflow.kernels.Matern12: 0.5,
    gpflow.kernels.Matern32: 1.5,
    gpflow.kernels.Matern52: 2.5,
    gpflow.kernels.SquaredExponential: math.inf,
}


class HarmonicKernel(gpflow.kernels.Kernel):
    """The covariance of the features' prior: none across water that parts the land.

    The even prior has the base kernel's variance at every place on land. The natural one has what the
    features add up to: more at a Neumann shore and on islets, and nothing on a Dirichlet shore.

    Parameters
    ----------
    base : gpflow.kernels.Matern12, Matern32, Matern52 or SquaredExponential, or `GPflowMatern`
        Its spectral density at the eigenvalues is the weights' prior variance. Its one lengthscale, in metres
        (the domain's unit), is replaced by a parameter with the same value, prior and trainability that
        optimisers see as its logarithm: a step of a metre would lead nowhere.
    features : HarmonicFeatures or HarmonicBasis
    scaling : "even" or "natural", optional
        By default even under Neumann and natural under Dirichlet conditions, as in `LGCP`.
    active_dims : slice or sequence of int, optional
        The input columns that are the node index or the coordinates.

    Examples
    --------
    >>> import shapely
    >>> from geobgp import Domain, HarmonicBasis
    >>> domain = Domain.from_polygons(shapely.box(0, 0, 10, 10), cell_size=1, crs="local")
    >>> basis = HarmonicBasis.compute(domain, m=64, cache=False)
    >>> kernel = HarmonicKernel(gpflow.kernels.Matern52(lengthscales=2.0), basis)
    >>> kernel.K_diag(np.array([[3.5, 4.5], [0.1, 0.1]])).numpy()
    array([1., 1.])
    >>> natural = HarmonicKernel(gpflow.kernels.Matern52(lengthscales=2.0), basis, scaling="natural")
    >>> natural.K_diag(np.array([[3.5, 4.5], [0.1, 0.1]])).numpy().round(1)
    array([1. , 3.4])
    """

    def __init__(
        self,
        base: Any,
        features: HarmonicFeatures | HarmonicBasis,
        *,
        scaling: Scaling | None = None,
        active_dims: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__(active_dims=active_dims, name=name)
        nu = base.nu if isinstance(base, GPflowMatern) else _SMOOTHNESS.get(type(base))
        if nu is None:
            raise DataError(
                f"No spectral density is known for {type(base).__name__}; use gpflow.kernels.Matern12, "
                "Matern32, Matern52 or SquaredExponential, or geobgp.gpflow.models.GPflowMatern(nu)."
            )
        if base.ard:
            raise DataError(
                f"The features are isotropic: there is one lengthscale; found {base.lengthscales.shape[0]}."
            )
        base.lengthscales = gpflow.Parameter(base.lengthscales, transform=tfp.bijectors.Exp())
        self.base = base
        self.features = features if isinstance(features, HarmonicFeatures) else HarmonicFeatures(features)
        self.scaling = resolve(scaling, self.features.basis)
        self._nu = float(nu)

    def columns(self, X: Any) -> Any:
        """Return the input columns that are the node index or the coordinates."""
        whole = isinstance(self.active_dims, slice) and self.active_dims == slice(None)
        return X if whole else self.slice(X, None)[0]

    def _log_density(self) -> tf.Tensor:
        """Return log s for a kernel of variance 1 at the features' eigenvalues, in their weights' unit."""
        log_l = tf.math.log(self.base.lengthscales)
        q = self.features.eigenvalues * tf.exp(2.0 * log_l)
        shape = -0.5 * q if math.isinf(self._nu) else -(self._nu + 1.0) * tf.math.log1p(q / (2.0 * self._nu))
        level = math.log(2.0 * math.pi) - self.features.log_area + 2.0 * log_l
        return tf.maximum(level + shape, _LOWEST)

    def log_variances(self) -> tf.Tensor:
        """Return the logarithms of the weights' prior variances, (weights,)."""
        log_s = tf.math.log(self.base.variance) + self._log_density()
        return tf.concat([log_s, self.features.log_fixed], 0)

    def scales(self) -> tf.Tensor:
        """Return the weights' prior standard deviations, (weights,)."""
        return tf.exp(0.5 * self.log_variances())

    def scaled(self, rows: tf.Tensor) -> tf.Tensor:
        """Return rows of features and fixed effects, [..., n, weights], made even where the prior is."""
        if self.scaling == "natural":
            return rows
        m = self.features.basis.m
        features = rows[..., :m]
        variance = tf.linalg.matvec(tf.square(features), tf.exp(self._log_density()))
        return tf.concat([features / tf.sqrt(variance)[..., None], rows[..., m:]], -1)

    def _design(self, X: Any) -> tf.Tensor:
        return self.scaled(self.features.rows(X)) * self.scales()

    def K(self, X: Any, X2: Any = None) -> tf.Tensor:  # noqa: N802
        """Return the covariance between inputs."""
        left = self._design(X)
        if X2 is None:
            return tf.matmul(left, left, transpose_b=True)
        return tf.tensordot(left, self._design(X2), [[-1], [-1]])

    def K_diag(self, X: Any) -> tf.Tensor:  # noqa: N802
        """Return the prior variance at inputs, that of fixed effects included; NaN off land."""
        if self.scaling == "even":
            return self.base.variance + self.features.node_values(X, self.features.fixed_variance)
        return tf.reduce_sum(tf.square(self._design(X)), -1)


class NodeMean(gpflow.mean_functions.MeanFunction):
    """A known value per node as GPflow's mean function: the log of the exposure, say.

    (An array as the `binsize` of GPflow's Poisson likelihood would break predictions.)

    Parameters
    ----------
    features : HarmonicFeatures
    values : (n_nodes,) array
    """

    def __init__(self, features: HarmonicFeatures, values: np.ndarray) -> None:
        super().__init__()
        n = features.basis.domain.n_nodes
        if np.shape(values) != (n,):
            raise DataError(f"One value per node, ({n},); found the shape {np.shape(values)}.")
        self._features = features
        self._values = tf.constant(values, _FLOAT)

    def __call__(self, X: Any) -> tf.Tensor:
        """Return the values of the nodes at inputs, [..., n, 1]; NaN off land."""
        return self._features.node_values(X, self._values)[..., None]


class HarmonicPosterior(gpflow.posteriors.IndependentPosteriorSingleOutput):
    """What SVGP and SGPMC predict with: no factorisation at all, as the weights say everything about f."""

    def _weights(self) -> tuple[tf.Tensor, tf.Tensor | None]:
        """Return the weights' mean [M, L] and covariance's root, [L, M, M] or [M, L] (diagonal) or None."""
        mean, root = tf.convert_to_tensor(self.q_mu), self.q_sqrt
        if root is not None:
            root = tf.convert_to_tensor(root)
            root = root if root.shape.rank == 2 else tf.linalg.band_part(root, -1, 0)
        if self.whiten:
            scale = self.kernel.scales()[:, None]
            mean, root = scale * mean, None if root is None else scale * root
        return mean, root

    def _precompute(self) -> tuple[Any, ...]:
        return tuple(
            gpflow.posteriors.PrecomputedValue(value, (False,) * value.shape.rank)
            for value in self._weights()
            if value is not None
        )

    def _conditional_with_precompute(
        self, cache: tuple[Any, ...], Xnew: Any, full_cov: bool = False, full_output_cov: bool = False
    ) -> tuple[tf.Tensor, tf.Tensor]:
        root = cache[1] if len(cache) > 1 else None
        return self._moments(cache[0], root, Xnew, full_cov, full_output_cov)

    def _conditional_fused(
        self, Xnew: Any, full_cov: bool = False, full_output_cov: bool = False
    ) -> tuple[tf.Tensor, tf.Tensor]:
        return self._moments(*self._weights(), Xnew, full_cov, full_output_cov)

    def _moments(
        self, weights: tf.Tensor, root: tf.Tensor | None, Xnew: Any, full_cov: bool, full_output_cov: bool
    ) -> tuple[tf.Tensor, tf.Tensor]:
        rows = self.kernel.scaled(self.X_data.rows(self.kernel.columns(Xnew)))  # [..., N, M]
        mean = tf.matmul(rows, weights)
        if root is None:
            n = tf.shape(mean)[-2]
            shape = tf.shape(tf.linalg.matrix_transpose(mean))
            cov = tf.zeros(tf.concat([shape, [n]], 0) if full_cov else tf.shape(mean), mean.dtype)
            return self._post_process_mean_and_cov(mean, cov, full_cov, full_output_cov)
        if root.shape.rank == 2:
            half = rows[..., None, :, :] * tf.transpose(root)[:, None, :]  # [..., L, N, M]
        elif root.shape[0] == 1:
            half = tf.matmul(rows, root[0])[..., None, :, :]
        else:
            half = tf.matmul(rows[..., None, :, :], root)
        if full_cov:
            cov = tf.matmul(half, half, transpose_b=True)
        else:
            var = tf.linalg.matrix_transpose(tf.reduce_sum(tf.square(half), -1))
            # Zero on a Dirichlet shore, where quadrature would take the square root's gradient: cut it off.
            cov = tf.where(var > 0, var, tf.zeros_like(var))
        return self._post_process_mean_and_cov(mean, cov, full_cov, full_output_cov)


def _check(features: HarmonicFeatures, kernel: HarmonicKernel) -> None:
    own = kernel.features
    if features is not own and (features.basis is not own.basis or features.num_inducing != own.num_inducing):
        raise DataError(
            f"The kernel has {own.num_inducing} features and the model's inducing variables are "
            f"{features.num_inducing} others. Give the model kernel.features."
        )


@gpflow.covariances.Kuu.register(HarmonicFeatures, HarmonicKernel)
def _kuu(features: HarmonicFeatures, kernel: HarmonicKernel, *, jitter: float = 0.0) -> Diagonal:
    """Return the weights' prior covariance; a diagonal needs no jitter."""
    _check(features, kernel)
    return Diagonal(tf.exp(kernel.log_variances()))


@gpflow.covariances.Kuf.register(HarmonicFeatures, HarmonicKernel, TensorLike)
def _kuf(features: HarmonicFeatures, kernel: HarmonicKernel, Xnew: Any) -> tf.Tensor:
    """Return the covariance between weights and f, [M, ..., N]."""
    _check(features, kernel)
    rows = kernel.scaled(features.rows(kernel.columns(Xnew))) * tf.exp(kernel.log_variances())
    rank = rows.shape.rank
    return tf.transpose(rows, [rank - 1, *range(rank - 1)])


@gpflow.posteriors.get_posterior_class.register(HarmonicKernel, HarmonicFeatures)
def _posterior_class(kernel: HarmonicKernel, features: HarmonicFeatures) -> type[HarmonicPosterior]:
    _check(features, kernel)
    return HarmonicPosterior


@gpflow.kullback_leiblers.prior_kl.register(HarmonicFeatures, HarmonicKernel, object, object)
def _prior_kl(
    features: HarmonicFeatures, kernel: HarmonicKernel, q_mu: Any, q_sqrt: Any, whiten: bool = False
) -> tf.Tensor:
    """Return the divergence of the weights' posterior from their prior."""
    _check(features, kernel)
    if not whiten:
        scale = kernel.scales()[:, None]
        q_mu, q_sqrt = q_mu / scale, q_sqrt / scale
    return gpflow.kullback_leiblers.gauss_kl(q_mu, q_sqrt)
