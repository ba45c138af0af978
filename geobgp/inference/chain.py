"""The chain: all periods in one model, its dynamics, its engine and its posterior."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Literal, Protocol, Self, get_args

import numpy as np
from scipy import sparse
from scipy.linalg import blas as scipy_blas

from geobgp.errors import DataError
from geobgp.inference import conjugate
from geobgp.inference.dense import FeatureVariance
from geobgp.inference.engine import Engine, FeatureBlock, FeatureBlocks, PartedFeatures, Sites, Solution, Solve
from geobgp.inference.states import FeatureState, hyper_numbers
from geobgp.linalg import blas
from geobgp.linalg.blas import cores, together
from geobgp.linalg.tridiagonal import Symmetric, Tridiagonal
from geobgp.prior.basis import Scaling
from geobgp.prior.harmonic import HarmonicBasis
from geobgp.prior.kernels import Kernel

# -- Dynamics: how the weights of features go on from period to period, each as a stationary AR(1) -----------
# Whitened weights z_j(t), of variance one, have the correlation a_j = exp(-Δ / τ_j) over a distance Δ in time:
# τ_j = τ for separable dynamics, τ_j = τ / (1 + λ_j / κ²) for diffusive ones, where small patches fade sooner. The
# common
# level of a period is one more weight, with a correlation time of its own.


DynamicsName = Literal["separable", "diffusive"]


def check_dynamics(name: str) -> None:
    """Say so if there are no dynamics of this name."""
    known = ("auto", *get_args(DynamicsName))
    if name not in known:
        raise DataError(
            f"dynamics is one of {', '.join(map(repr, known))}; found {name!r}.", option="dynamics", found=name
        )


@dataclass(frozen=True, eq=False)
class Dynamics:
    """The kind of dynamics, for features and a level.

    Parameters
    ----------
    kind : "separable" or "diffusive"
    kernel : Kernel
    eigenvalues : (m,) array
    steps : (T - 1,) array
        Distances between neighbouring periods, in periods.
    level : bool
        Whether a common level of each period is the last weight of each block.
    """

    kind: DynamicsName
    kernel: Kernel
    eigenvalues: np.ndarray = field(repr=False)
    steps: np.ndarray = field(repr=False)
    level: bool = True

    def log_tau(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return log τ_j of every weight at θ, (M,), and its derivative in log ℓ."""
        fade, slope = np.zeros(len(self.eigenvalues)), np.zeros(len(self.eigenvalues))
        if self.kind == "diffusive":
            x = self.eigenvalues * np.exp(2.0 * theta[0]) / self.kernel.roughness
            fade, slope = np.log1p(x), -2.0 * x / (1.0 + x)
        out = theta[2] - fade
        return (np.append(out, theta[4]), np.append(slope, 0.0)) if self.level else (out, slope)

    def at(self, theta: np.ndarray) -> Transition:
        """Return the dynamics at θ = (log ℓ, log σ, log τ[, log level sd, log level τ])."""
        log_tau, slope = self.log_tau(theta)
        return Transition(self.steps[:, None] * np.exp(-log_tau), slope, self.level)


@dataclass(frozen=True, eq=False)
class Transition:
    """AR(1) processes of unit variance over T periods, one for each of M weights.

    Attributes
    ----------
    rate : (T - 1, M) array
        Δ / τ_j of each step.
    by_length : (M,) array
        Derivatives of log τ_j in log ℓ.
    """

    rate: np.ndarray
    by_length: np.ndarray
    level: bool

    @property
    def correlation(self) -> np.ndarray:
        """(T - 1, M): a = exp(-rate)."""
        return np.exp(-self.rate)

    @property
    def innovation(self) -> np.ndarray:
        """(T - 1, M): 1 - a², the variance of what is new after each step."""
        return -np.expm1(-2.0 * self.rate)

    def precision(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the prior precision Q: its diagonal (T, M), and that next to it (T - 1, M)."""
        a, new = self.correlation, self.innovation
        diagonal = np.ones((len(a) + 1, a.shape[1]))
        diagonal[1:] = 1.0 / new
        diagonal[:-1] += a**2 / new
        return diagonal, -a / new

    def log_det(self) -> float:
        """Return log|Q|."""
        return -float(np.log(self.innovation).sum())

    def times(self, z: np.ndarray) -> np.ndarray:
        """Return Q z, for z (T, M, k)."""
        diagonal, between = (part[:, :, None] for part in self.precision())
        out = diagonal * z
        out[1:] += between * z[:-1]
        out[:-1] += between * z[1:]
        return out

    def gradient(self, own: np.ndarray, lagged: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return derivatives of ½ log|Q| - ½ E zᵀQz: in the log variance of each weight, and in its log τ.

        Parameters
        ----------
        own : (T, M) array
            E z_j(t)².
        lagged : (T - 1, M) array
            E z_j(t) z_j(t + 1).
        """
        a, new = self.correlation, self.innovation
        left = own[1:] - 2.0 * a * lagged + a**2 * own[:-1]
        square = own[0] + (left / new).sum(axis=0)
        # d/da of -½ log(1 - a²) - ½ left / (1 - a²), and da / d log τ = a · rate.
        by_a = (a + lagged - a * own[:-1] - a * left / new) / new
        return 0.5 * (square - len(own)), (by_a * a * self.rate).sum(axis=0)


# -- Rows of features period by period: what the observations of each period see of its weights --------------
# Counts at the nodes see the same features in every period, of which there is one copy; counts by area see rows of
# their
# own in each. Products that cost O(n m²) are taken part by part of the land, over periods in as many threads as there
# are
# cores.


#: Rows that are worked on at a time.
_ROWS = 1024
#: Columns of a triangular factor that are taken together.
_COLUMNS = 64
#: One in so many features, but at least so many, tell how posterior variances answer to the sites.
_TELLING, _LEAST = 4, 64
#: e = 1/√v at the nodes and ½ d log v / d log ℓ; None for a natural prior.
Even = tuple[np.ndarray, np.ndarray] | None


class PeriodRows(Protocol):
    """What the observations see of the features at one lengthscale."""

    #: Where each period's observations begin and end, (T + 1,).
    ends: np.ndarray
    #: Features.
    m: int

    def apply(self, weights: np.ndarray) -> np.ndarray:
        """Return (N, k) from weights (T, m, k)."""
        ...

    def project(self, rows: np.ndarray) -> np.ndarray:
        """Return (T, m, k) from values at the observations (N, k)."""
        ...

    def gram(self, precision: np.ndarray, scale: np.ndarray, out: np.ndarray) -> None:
        """Add the scaled Gram matrices of all periods to the leading blocks of `out` (T, M, M), lower triangles."""
        ...

    def spread(
        self, t: int, covariance: np.ndarray, with_level: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return at the observations of a period: f's variance, its covariance with the level, and how both move.

        Parameters
        ----------
        covariance : (m, m) array
            Of the weights, its lower triangle in Fortran order.
        with_level : (m,) array
            Their covariance with the level.

        Returns
        -------
        variance, level : (n_t,) arrays
        moved : (n_t,) array
            Covariance of f + level with minus the derivative of f in log ℓ, as far as the rows move with it.
        """
        ...

    def moved(self, weights: np.ndarray) -> np.ndarray | None:
        """Return minus the derivative of `apply` in log ℓ, weights held; None if rows do not move."""
        ...

    def fewer(self) -> tuple[PeriodRows, np.ndarray]:
        """Return the rows of the features that tell most, and which these are."""
        ...


class _Work:
    """Buffers and integers of one thread, for products over blocks of rows."""

    def __init__(self, m: int) -> None:
        self._m = m
        self._integers = blas.Integers(max(_ROWS, m) + 1)
        self._buffer = np.empty((_ROWS, m))
        self.block = np.empty((m, m))
        self.lapack = Symmetric(m)

    def gram(self, matrix: np.ndarray, root: np.ndarray) -> np.ndarray:
        """Return Φᵀ diag(root²) Φ in the block, its lower triangle in Fortran order."""
        m = self._integers.at(self._m)
        self.block[:] = 0.0
        for start in range(0, len(matrix), _ROWS):
            stop = min(start + _ROWS, len(matrix))
            rows = self._buffer[: stop - start]
            np.multiply(matrix[start:stop], root[start:stop, None], out=rows)
            blas.dsyrk(
                blas.LOWER, blas.PLAIN, m, self._integers.at(stop - start), blas.ONE, rows.ctypes.data, m,
                blas.ONE, self.block.ctypes.data, m,
            )  # fmt: skip
        return self.block

    def variances(self, matrix: np.ndarray) -> np.ndarray:
        """Return φᵀ A φ of every row, A the matrix of which the block holds the lower factor.

        A few columns of the factor at a time, without those above the diagonal: rows are read where they are.
        """
        at, width, out = self._integers.at, self._m, np.zeros(len(matrix))
        self.block[np.tril_indices(width, -1)] = 0.0  # in Fortran order, what is above the diagonal
        for start in range(0, len(matrix), _ROWS):
            rows = matrix[start : start + _ROWS]
            for left in range(0, width, _COLUMNS):
                wide = min(_COLUMNS, width - left)
                product = self._buffer.ravel()[: len(rows) * wide].reshape(len(rows), wide)
                blas.dgemm(
                    blas.TRANSPOSED, blas.PLAIN, at(wide), at(len(rows)), at(width - left), blas.ONE,
                    self.block.ctypes.data + 8 * (left * width + left), at(width),
                    rows.ctypes.data + 8 * left, at(width), blas.ZERO, product.ctypes.data, at(wide),
                )  # fmt: skip
                out[start : start + _ROWS] += np.einsum("ij,ij->i", product, product)
        return out


def in_threads(n: int, work: Callable[[np.ndarray], None]) -> None:
    """Do work for the numbers below n, a share of them in each thread."""
    shares = np.array_split(np.arange(n), min(max(cores(), 1), max(n, 1)))
    together([lambda mine=mine: work(mine) for mine in shares])  # type: ignore[misc]


class NodeRows:
    """Counts at all nodes in each period: the same features, made even or not."""

    def __init__(self, features: PartedFeatures, n_periods: int, even: Even, few: PartedFeatures | None = None) -> None:
        n = features.shape[0]
        self._features, self._even, self._n, self._few = features, even, n_periods, few
        self._e = np.ones(n) if even is None else even[0]
        self.ends, self.m = np.arange(n_periods + 1) * n, features.shape[1]

    def apply(self, weights: np.ndarray) -> np.ndarray:
        """Return e Φ u, period by period."""
        count, m, k = weights.shape
        out = self._features.apply(np.ascontiguousarray(weights.transpose(1, 0, 2)).reshape(m, count * k))
        out *= self._e[:, None]
        return np.ascontiguousarray(out.reshape(len(out), count, k).transpose(1, 0, 2)).reshape(len(out) * count, k)

    def project(self, rows: np.ndarray) -> np.ndarray:
        """Return Φᵀ e r, period by period."""
        k = rows.shape[1]
        values = rows.reshape(self._n, len(self._e), k) * self._e[:, None]
        flat = np.ascontiguousarray(values.transpose(1, 0, 2)).reshape(len(self._e), self._n * k)
        return np.ascontiguousarray(self._features.adjoint(flat).reshape(self.m, self._n, k).transpose(1, 0, 2))

    def gram(self, precision: np.ndarray, scale: np.ndarray, out: np.ndarray) -> None:
        """Add the Gram matrices."""
        weights = precision.reshape(self._n, -1) * self._e**2
        alone = np.arange(self.m - self._features.n_alone, self.m)

        def work(mine: np.ndarray) -> None:
            for part in self._features.parts:
                with_buffers, s, at = _Work(part.matrix.shape[1]), scale[part.columns], part.columns
                for t in mine:
                    root = np.sqrt(weights[t][part.rows])
                    block = with_buffers.gram(part.matrix, root)
                    out[t, at, at] += (s[:, None] * block) * s
            for t in mine:
                out[t, alone, alone] += self._features.alone_gram(weights[t]) * scale[alone] ** 2

        in_threads(self._n, work)

    def spread(
        self, t: int, covariance: np.ndarray, with_level: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return variances and covariances with the level at the nodes."""
        features = self._features
        variance = np.zeros(features.shape[0])
        for part in features.parts:
            variance[part.rows] = _variances(part, covariance)
        alone = np.arange(self.m - features.n_alone, self.m)
        features.add_alone(variance, covariance[alone, alone])
        variance *= self._e**2
        level = self._e * features.apply(with_level)
        slope = 0.0 if self._even is None else self._even[1]
        return variance, level, slope * (variance + level)

    def moved(self, weights: np.ndarray) -> np.ndarray | None:
        """Return minus the derivative of `apply`."""
        if self._even is None:
            return None
        seen = self.apply(weights)
        return np.asarray(seen.reshape(self._n, len(self._e), -1) * self._even[1][:, None]).reshape(seen.shape)

    def fewer(self) -> tuple[NodeRows, np.ndarray]:
        """Return the rows of the features with the lowest eigenvalues."""
        if self._few is None:
            return self, np.arange(self.m)
        return NodeRows(self._few, self._n, self._even), self._few.order


def _variances(part: FeatureBlock, covariance: np.ndarray) -> np.ndarray:
    work = _Work(part.matrix.shape[1])
    work.block[:] = covariance[part.columns, part.columns]
    work.lapack.factorise(work.block)
    return work.variances(part.matrix)


class AreaRows:
    """Counts by area: rows of their own in each period, weighted means of the nodes' features.

    Parameters
    ----------
    rows : list of (n_t, n_nodes) csr_arrays
        Of each period.
    features : (n_nodes, m) array
    even : Even
    """

    def __init__(self, rows: list[sparse.csr_array], features: np.ndarray, even: Even) -> None:
        self.ends = np.concatenate([[0], np.cumsum([r.shape[0] for r in rows])])
        self.m = features.shape[1]
        self._matrices, self._moved = [], []
        for r in rows:
            weights = r if even is None else r.multiply(even[0]).tocsr()
            self._matrices.append(np.ascontiguousarray(weights @ features))
            if even is not None:
                self._moved.append(np.ascontiguousarray(weights.multiply(even[1]).tocsr() @ features))

    def _over(self, matrices: list[np.ndarray], weights: np.ndarray) -> np.ndarray:
        return np.concatenate([matrix @ u for matrix, u in zip(matrices, weights, strict=True)])

    def apply(self, weights: np.ndarray) -> np.ndarray:
        """Return the rows' values, period by period."""
        return self._over(self._matrices, weights)

    def project(self, rows: np.ndarray) -> np.ndarray:
        """Return what the rows add up to, period by period."""
        parts = np.split(rows, self.ends[1:-1])
        return np.stack([matrix.T @ r for matrix, r in zip(self._matrices, parts, strict=True)])

    def gram(self, precision: np.ndarray, scale: np.ndarray, out: np.ndarray) -> None:
        """Add the Gram matrices."""
        roots = np.split(np.sqrt(precision), self.ends[1:-1])
        s = scale[: self.m]

        def work(mine: np.ndarray) -> None:
            buffers = _Work(self.m)
            for t in mine:
                block = buffers.gram(self._matrices[t], roots[t])
                out[t, : self.m, : self.m] += (s[:, None] * block) * s

        in_threads(len(roots), work)

    def spread(
        self, t: int, covariance: np.ndarray, with_level: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return variances and covariances with the level at the rows."""
        matrix = self._matrices[t]
        if not len(matrix):
            return np.zeros(0), np.zeros(0), np.zeros(0)
        tied = scipy_blas.dsymm(1.0, covariance.T, matrix.T, lower=1)
        variance = np.einsum("ij,ji->i", matrix, tied)
        level = matrix @ with_level
        if not self._moved:
            return variance, level, np.zeros(len(matrix))
        moved = self._moved[t]
        return variance, level, np.einsum("ij,ji->i", moved, tied) + moved @ with_level

    def moved(self, weights: np.ndarray) -> np.ndarray | None:
        """Return minus the derivative of `apply`."""
        return self._over(self._moved, weights) if self._moved else None

    def fewer(self) -> tuple[AreaRows, np.ndarray]:
        """Return all of them: rows are few."""
        return self, np.arange(self.m)


class NodeRowsAt:
    """The nodes' rows as a function of the lengthscale; the last ones are remembered."""

    def __init__(
        self, features: PartedFeatures, n_periods: int, variance: FeatureVariance | None, eigenvalues: np.ndarray
    ) -> None:
        self.features, self._n, self._variance = features, n_periods, variance
        self._kept: tuple[float, NodeRows] | None = None
        # Features of high eigenvalues hardly tell how posterior variances answer to the sites.
        enough = max(len(eigenvalues) // _TELLING, _LEAST)
        few = enough < len(eigenvalues)
        self._few = features.truncate(eigenvalues <= np.sort(eigenvalues)[enough - 1]) if few else None

    def __call__(self, log_length: float) -> NodeRows:
        """Return the rows at a lengthscale."""
        if self._kept is None or self._kept[0] != log_length:
            even: Even = None
            if self._variance is not None:
                log_v, slope = self._variance.log_variance(log_length)
                even = np.exp(-0.5 * log_v), 0.5 * slope
            self._kept = log_length, NodeRows(self.features, self._n, even, self._few)
        return self._kept[1]


class PlaceRowsAt:
    """Rows of places, of which each is seen in one period, as a function of the lengthscale; the last are remembered.

    Parameters
    ----------
    features : (N, m) array
        At the places, those of one period after those of another.
    ends : (T + 1,) int array
        Where each period's places begin and end.
    variance : FeatureVariance, optional
        Of the natural prior at the places, if the prior is to be even.
    """

    def __init__(self, features: np.ndarray, ends: np.ndarray, variance: FeatureVariance | None) -> None:
        self._features, self._variance = features, variance
        whole = sparse.csr_array(sparse.identity(len(features), format="csr"))
        self._chosen = [sparse.csr_array(whole[a:b]) for a, b in pairwise(ends)]
        self._kept: tuple[float, AreaRows] | None = None

    def __call__(self, log_length: float) -> AreaRows:
        """Return the rows at a lengthscale."""
        if self._kept is None or self._kept[0] != log_length:
            even: Even = None
            if self._variance is not None:
                log_v, slope = self._variance.log_variance(log_length)
                even = np.exp(-0.5 * log_v), 0.5 * slope
            self._kept = log_length, AreaRows(self._chosen, self._features, even)
        return self._kept[1]


# -- States in time: a Gaussian posterior over the weights of every period, that stands by itself ------------
# The weights of all periods are jointly Gaussian. What is kept are the pivots of their chain, from which follow the
# marginal posterior of each period (`at`), joint draws over all of them, and what lies ahead.


def season_columns(clock: np.ndarray, per_year: float | None) -> np.ndarray:
    """Return cosine and sine of the yearly cycle at times in periods, (T, 2); (T, 0) where there is none.

    Examples
    --------
    >>> season_columns(np.array([0.0, 3.0]), 12.0).round(3)
    array([[1., 0.],
           [0., 1.]])
    """
    if per_year is None or not np.isfinite(per_year):
        return np.zeros((len(clock), 0))
    angle = 2.0 * np.pi * clock / per_year
    return np.column_stack([np.cos(angle), np.sin(angle)])


@dataclass(frozen=True, eq=False)
class ChainState:
    """A Gaussian posterior over the weights of features in every period, a level of each, and fixed effects.

    Attributes
    ----------
    weight : float
        Share of this state in the mixture over hyperparameters.
    lengthscale, sd, noise, tau, level_sd, level_tau : float
        Hyperparameters; times in periods. Noise is NaN, and what is the level's where there is none.
    centre : float
        Constant added to every linear predictor.
    dynamics : "separable" or "diffusive"
    per_year : float
        Periods of a yearly cycle; NaN where there is none.
    clock : (T,) array
        When each period is, in periods since the first one.
    columns : (n_nodes, k) or (T, n_nodes, k) array
        Intercept and covariates at the nodes.
    offset : (n_nodes,) array, optional
        Added to the linear predictor at each node, where the columns of levels that share a node are linearised.
    season : (T, q) array
        Cosine and sine of the year.
    log_tau : (M,) array
        Log correlation time of each weight: the features', in the order of their parts, and the level's.
    scale : (M,) array
        Prior standard deviations of the weights.
    mean : (T, M) array
        Posterior means of the whitened weights.
    coupling : (T, M, k + q) array
        They fall by this much per unit of β.
    beta, beta_cov : (k + q,) and (k + q, k + q) arrays
        Of the fixed effects: intercept, covariates, season.
    chain : Tridiagonal
        The elimination of the whitened weights' precision, given β.
    known : (T · n_nodes,) arrays, optional
        Mean and variance of the linear predictor, less its offset, where they have been computed.
    n_reporting : int
        How many of the last fixed effects are of which share is reported: of observations, and of no map.
    reporting : (T, n_reporting) or (T, n_nodes, n_reporting) array, optional
        Their columns, while observations are asked for.
    """

    weight: float
    lengthscale: float
    sd: float
    noise: float
    centre: float
    tau: float
    level_sd: float
    level_tau: float
    per_year: float
    dynamics: str
    even: bool
    clock: np.ndarray = field(repr=False)
    columns: np.ndarray = field(repr=False)
    season: np.ndarray = field(repr=False)
    log_tau: np.ndarray = field(repr=False)
    scale: np.ndarray = field(repr=False)
    mean: np.ndarray = field(repr=False)
    coupling: np.ndarray = field(repr=False)
    beta: np.ndarray = field(repr=False)
    beta_cov: np.ndarray = field(repr=False)
    chain: Tridiagonal = field(repr=False)
    basis: HarmonicBasis = field(repr=False)
    known: tuple[np.ndarray, np.ndarray] | None = field(default=None, repr=False)
    offset: np.ndarray | None = field(default=None, repr=False)
    n_reporting: int = 0
    reporting: np.ndarray | None = field(default=None, repr=False, metadata={"stored": False})

    @property
    def n_periods(self) -> int:
        """T."""
        return len(self.mean)

    @property
    def has_level(self) -> bool:
        """Whether each period has a level of its own."""
        return len(self.scale) > self.basis.m

    @cached_property
    def _features(self) -> PartedFeatures:
        return PartedFeatures(*self.basis.by_part(None))

    @cached_property
    def _e(self) -> np.ndarray:
        """What the field is multiplied by at the nodes to make its prior even."""
        if not self.even:
            return np.ones(self.basis.domain.n_nodes)
        s = self.scale[: self.basis.m]
        return np.asarray(self.sd / np.sqrt(self._features.squares(s[:, None] ** 2)[:, 0]))

    @cached_property
    def _covariances(self) -> np.ndarray:
        """(T, M, M): covariances of the whitened weights of each period, given β."""
        out = np.empty_like(self.chain.inverses)
        for t, block in self.chain.inverse_blocks():
            out[t] = block
        return out

    def _columns(self, t: int) -> np.ndarray:
        return self.columns if self.columns.ndim == 2 else self.columns[t]

    def _fixed(self, t: int) -> np.ndarray:
        """Return all fixed effects of a period at the nodes."""
        own, told = self._columns(t), np.zeros(self.n_reporting) if self.reporting is None else self.reporting[t]
        season = np.broadcast_to(self.season[t], (len(own), self.season.shape[1]))
        return np.column_stack([own, season, np.broadcast_to(told, (len(own), self.n_reporting))])

    def seen_through(self, reporting: np.ndarray | None) -> ChainState:
        """Return the state as observations see it, with the columns of which share is reported; None: as maps do."""
        return replace(self, reporting=reporting, known=None) if self.n_reporting else self

    # -- marginals -----------------------------------------------------------------------------------------

    def at(self, t: int) -> FeatureState:
        """Return the marginal posterior of period t, as a state in space.

        Its intercept holds the level of the period and the season. All features are one block: what is known of
        one part of the land and one period tells of others, through the levels.
        """
        if not -self.n_periods <= t < self.n_periods:
            raise DataError(f"There are {self.n_periods} periods; found number {t}.", found=t)
        t %= self.n_periods
        m, k = self.basis.m, self._columns(t).shape[1]
        tied = np.vstack([-self.coupling[t], np.eye(len(self.beta))])
        joint = tied @ self.beta_cov @ tied.T
        size = len(self.scale)
        joint[:size, :size] += self._covariances[t]
        turn = self._to_space(t, k)
        mean = np.concatenate([self.mean[t], self.beta])
        beta, with_beta = turn @ mean, turn @ joint
        beta_cov = with_beta @ turn.T
        falls = np.linalg.solve(beta_cov, with_beta[:, :m]) if k else np.zeros((0, m))
        # In the order of the basis, in which all features are one block.
        back = np.argsort(self._features.order)
        precision = (joint[:m, :m] - with_beta[:, :m].T @ falls)[np.ix_(back, back)]
        precision = 0.5 * (precision + precision.T)
        work = Symmetric(m)
        work.factorise(precision)
        work.invert(precision)
        work.factorise(precision)
        factor = np.asfortranarray(np.tril(precision.T))
        s = self.scale[:m]
        return FeatureState(
            weight=self.weight,
            lengthscale=self.lengthscale,
            sd=self.sd,
            noise=self.noise,
            centre=self.centre,
            beta=beta,
            beta_cov=beta_cov,
            fixed=self._columns(t),
            offset=self.offset,
            even=self.even,
            mean=(s * mean[:m])[back],
            coupling=(-s[:, None] * falls.T)[back],
            scale=s[back],
            # A single feature stands alone.
            chol=FeatureBlocks([factor], np.zeros(0)) if m > 1 else FeatureBlocks([], factor[0] ** 2),
            basis=self.basis,
            joined=True,
        )

    def _to_space(self, t: int, k: int) -> np.ndarray:
        """Return the matrix from weights, level and β to the k fixed effects of a period in space."""
        size = len(self.scale)
        out = np.zeros((k, size + len(self.beta)))
        out[:, size : size + k] = np.eye(k, min(k, len(self.beta)))
        if k:
            if self.has_level:
                out[0, -1 - len(self.beta)] = self.scale[-1]
            out[0, size + k : size + k + self.season.shape[1]] = self.season[t]
        return out

    def node_moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of the linear predictor at every node, (T, n_nodes) each."""
        mean, variance = self._moments
        return mean + self._added, variance.copy()

    @property
    def _added(self) -> np.ndarray | float:
        return 0.0 if self.offset is None else self.offset

    @cached_property
    def _moments(self) -> tuple[np.ndarray, np.ndarray]:
        shape = self.n_periods, self.basis.domain.n_nodes
        if self.known is not None:
            return self.known[0].reshape(shape), self.known[1].reshape(shape)
        m, mean, variance = self.basis.m, np.empty(shape), np.empty(shape)
        rows = NodeRows(self._features, 1, (self._e, np.zeros(shape[1])))
        covariances, e = self._covariances, self._e

        def work(mine: np.ndarray) -> None:
            for t in mine:
                fixed, u, falls, block = self._seen(int(t), covariances[t])
                own, with_level, _ = rows.spread(0, block[:m, :m], block[:m, m] if self.has_level else np.zeros(m))
                level = block[m, m] if self.has_level else 0.0
                rest = fixed - e[:, None] * self._features.apply(falls[:m])
                mean[t] = self.centre + e * self._features.apply(u[:m]) + fixed @ self.beta
                if self.has_level:
                    mean[t] += u[m]
                    rest -= falls[m]
                variance[t] = own + 2.0 * with_level + level
                variance[t] += np.einsum("ij,ij->i", rest @ self.beta_cov, rest)

        in_threads(self.n_periods, work)
        return mean, variance

    def _seen(self, t: int, block: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return fixed effects, and the weights, how they fall with β and their covariance, no longer whitened."""
        s = self.scale
        return self._fixed(t), s * self.mean[t], s[:, None] * self.coupling[t], (s[:, None] * block) * s

    def moments_of(self, rows: list[sparse.csr_array]) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of weighted sums of the nodes' linear predictor, less centre and offset, by period.

        The rows of a period add up to one.
        """
        means, variances, m = [], [], self.basis.m
        features = self.basis.features[:, self._features.order]
        for t, r in enumerate(rows):
            fixed, u, falls, block = self._seen(t, self._covariances[t])
            matrix = r.multiply(self._e).tocsr() @ features
            if self.has_level:
                matrix = np.column_stack([matrix, np.ones(len(matrix))])
            seen = r @ fixed
            rest = seen - matrix @ falls
            means.append(matrix @ u + seen @ self.beta)
            variance = np.einsum("ij,ij->i", matrix @ block[: m + 1, : m + 1], matrix)
            variances.append(variance + np.einsum("ij,ij->i", rest @ self.beta_cov, rest))
        return np.concatenate(means), np.concatenate(variances)

    def moments_over(
        self, places: np.ndarray, period: np.ndarray, columns: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of the linear predictor at places, each in a period of its own.

        Parameters
        ----------
        places : (k, 2) array, or (k,) int array
            Coordinates, or nodes.
        period : (k,) int array
        columns : (k, n_columns) array, optional
            Intercept and covariates there; by default those of the nodes.
        """
        out = np.full((2, len(period)), np.nan)
        for t in np.unique(period):
            here = np.flatnonzero(period == t)
            own = None if columns is None else columns[here]
            out[:, here] = self.at(int(t)).moments_at(places[here], own)
        return out[0], out[1]

    def level(self) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance, (T,) each, of what is common to all places: intercept, level and season."""
        size, k = len(self.scale), self._columns(0).shape[1]
        mean, variance = np.empty(self.n_periods), np.empty(self.n_periods)
        for t in range(self.n_periods):
            row = self._to_space(t, k)[0]
            own, beta = row[:size], row[size:] - self.coupling[t].T @ row[:size]
            mean[t] = self.centre + own @ self.mean[t] + row[size:] @ self.beta
            variance[t] = own @ self._covariances[t] @ own + beta @ self.beta_cov @ beta
        return mean, variance

    def coefficients(self) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and covariance of the fixed effects, on the standardised scale: intercept, covariates, season."""
        k = len(self.beta) - self.n_reporting
        mean = self.beta[:k].copy()
        if len(mean):
            mean[0] += self.centre
        return mean, self.beta_cov[:k, :k]

    # -- draws ---------------------------------------------------------------------------------------------

    def sample_joint(self, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return joint draws of the linear predictor, (n, T, n_nodes), and of the fixed effects, (n, k + q)."""
        m, out = self.basis.m, np.empty((n, self.n_periods, self.basis.domain.n_nodes))
        root = np.linalg.cholesky(self.beta_cov) if len(self.beta) else self.beta_cov
        shift = root @ rng.standard_normal((len(self.beta), n))
        for t, noise in self.chain.draw(n, rng):
            u = self.scale[:, None] * (self.mean[t][:, None] + noise - self.coupling[t] @ shift)
            field_ = self._e[:, None] * self._features.apply(np.ascontiguousarray(u[:m]))
            field_ += self._fixed(t) @ (self.beta[:, None] + shift)
            out[:, t] = field_.T + self.centre + self._added
            if self.has_level:
                out[:, t] += u[m][:, None]
        mean = self.coefficients()[0]
        return out, (mean[:, None] + shift[: len(mean)]).T

    def sample_nodes(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Return (n, T, n_nodes) joint draws of the linear predictor."""
        return self.sample_joint(n, rng)[0]

    # -- what lies ahead -----------------------------------------------------------------------------------

    def ahead(self, steps: int | np.ndarray, columns: np.ndarray | None = None) -> ChainState:
        """Return the periods that follow, given all that was seen: jointly among themselves.

        Parameters
        ----------
        steps : int or array
            How many periods, or the distance of each from the one before it.
        columns : (n_nodes, k) or (K, n_nodes, k) array, optional
            Intercept and covariates then; by default those of the last period.
        """
        gaps = np.ones(steps) if isinstance(steps, (int, np.integer)) else np.asarray(steps, float)
        if not (gaps.ndim == 1 and len(gaps) and (gaps > 0).all()):
            raise DataError("Ahead are one or more periods, each after the one before it.", found=steps)
        count, size = len(gaps), len(self.scale)
        step = Transition(gaps[:, None] * np.exp(-self.log_tau), np.zeros(size), self.has_level)
        a, new = step.correlation, step.innovation
        own, between = np.zeros((count, size, size)), (-a / new)[1:]
        mean, coupling = np.empty((count, size)), np.empty((count, *self.coupling.shape[1:]))
        before, latest, tied = self._covariances[-1], self.mean[-1], self.coupling[-1]
        lapack_ = Symmetric(size)
        for k in range(count):
            before = (a[k][:, None] * before) * a[k] + np.diag(new[k])
            latest, tied = a[k] * latest, a[k][:, None] * tied
            mean[k], coupling[k] = latest, tied
            # The pivot is the precision of what is known by now, and of the step that follows.
            pivot = np.linalg.inv(before)
            if k + 1 < count:
                pivot[np.diag_indices(size)] += a[k + 1] ** 2 / new[k + 1]
            own[k] = pivot
            lapack_.factorise(own[k])
            lapack_.invert(own[k])
        clock = self.clock[-1] + np.cumsum(gaps)
        return replace(
            self,
            clock=clock,
            columns=self._columns(self.n_periods - 1) if columns is None else columns,
            season=season_columns(clock, self.per_year),
            mean=mean,
            coupling=coupling,
            chain=Tridiagonal.from_inverses(own, between),
            known=None,
            reporting=None,
        )

    def for_file(self) -> Self:
        """Return the state with the moments of its nodes, since a file keeps only half of the chain."""
        mean, variance = self._moments
        return replace(self, known=(mean.ravel(), variance.ravel()))


# -- The engine of features in time: Gaussian posteriors over the weights of every period, a chain of blocks --
# Whitened weights z(t) of all periods have the prior precision Q of `Dynamics`, and the posterior precision
# H = Q + Oᵀ W O, which is block-tridiagonal: a block of M weights for each period (the features' and the level's),
# joined
# to the next one by a diagonal. The linear predictor of an observation in period t is
#
#     η = Σ_j e φ_j s_j z_j(t) + level_sd · z_level(t) + x β,
#
# with the same e, which makes the prior even, in every period. Fixed effects border the chain, as they do in space.


#: Variances times precisions below which a Newton step can do with bounds, and the variances themselves.
_SMALL = 0.2


@dataclass(frozen=True, eq=False)
class ChainSetting:
    """What a chain of posteriors is about: the same for all its engines and states.

    Attributes
    ----------
    basis : HarmonicBasis
    kernel : Kernel
    scaling : "natural" or "even"
    columns : (n_nodes, k) or (T, n_nodes, k) array
        Intercept and covariates at the nodes, the same in every period or of each.
    season : (T, q) array
        Fixed effects that differ by period alone, after those.
    fixed_sd : (k + q + r,) array
    centre : float
        Constant added to every linear predictor.
    steps : (T - 1,) array
        Distances between neighbouring periods, in periods.
    per_year : float
        Periods of a yearly cycle; NaN where there is none.
    reporting : (T, r) or (T, n_nodes, r) array
        Fixed effects of observations and not of maps, the last of all: how uncertain it is which share is reported.
    """

    basis: HarmonicBasis
    kernel: Kernel
    scaling: Scaling
    columns: np.ndarray = field(repr=False)
    season: np.ndarray = field(repr=False)
    fixed_sd: np.ndarray = field(repr=False)
    centre: float
    steps: np.ndarray = field(repr=False)
    per_year: float = float("nan")
    reporting: np.ndarray | None = field(default=None, repr=False)

    @property
    def n_periods(self) -> int:
        """T."""
        return len(self.steps) + 1

    @property
    def n_reporting(self) -> int:
        """How many fixed effects are of observations alone."""
        return 0 if self.reporting is None else int(self.reporting.shape[-1])

    def design(self, t: int) -> np.ndarray:
        """Return all fixed effects of a period at the nodes, (n_nodes, k + q + r)."""
        own = self.columns if self.columns.ndim == 2 else self.columns[t]
        season = np.broadcast_to(self.season[t], (len(own), self.season.shape[1]))
        if self.reporting is None:
            return np.column_stack([own, season])
        return np.column_stack([own, season, np.broadcast_to(self.reporting[t], (len(own), self.n_reporting))])


class ChainEngine(Engine):
    """Posteriors over the weights of features in every period.

    Parameters
    ----------
    setting : Setting
    dynamics : Dynamics
        For the features of `order`.
    rows : callable
        From log ℓ to the rows of all observations.
    order : (m,) int array
        Which features of the basis these are.
    design : (N, k) array
        Fixed effects at the observations.
    """

    def __init__(
        self,
        setting: ChainSetting,
        dynamics: Dynamics,
        rows: Callable[[float], PeriodRows],
        order: np.ndarray,
        design: np.ndarray,
    ) -> None:
        super().__init__(design, setting.fixed_sd, None)
        self.setting, self.dynamics, self.rows_at, self.order = setting, dynamics, rows, order

    def truncated_variance(self, theta: np.ndarray) -> float:
        """Return the share of the prior variance beyond the last feature."""
        return self.setting.basis.truncated_variance(self.setting.kernel, float(np.exp(theta[0])))

    def prior_at(self, theta: np.ndarray) -> ChainPrior:
        """Return the weights' prior at θ."""
        return ChainPrior(self, theta)

    def means(self, theta: np.ndarray, sites: Sites, precision: np.ndarray) -> Solve:
        """Return the way from natural means to posterior means, for precisions near those of `sites`."""
        return conjugate.means(self, self.solve(theta, sites), precision)

    def warm_start_engines(self) -> Iterator[ChainEngine]:
        """Yield an engine with about a quarter of the features; before it one with a sixteenth, if that is enough."""
        if not isinstance(self.rows_at, NodeRowsAt):
            return
        features, eigenvalues = self.rows_at.features, self.dynamics.eigenvalues
        ranked = np.sort(eigenvalues)
        lowest = int(np.sum(ranked <= 0.0))
        for part in (16, 4):
            few = lowest + (len(ranked) - lowest) // part
            if few - lowest >= 24:
                some = features.truncate(eigenvalues <= ranked[few - 1])
                yield node_engine(self.setting, self.dynamics, some, self.order[some.order], self.design)

    def with_dynamics(self, dynamics: Dynamics) -> ChainEngine:
        """Return the same with other dynamics."""
        return ChainEngine(self.setting, dynamics, self.rows_at, self.order, self.design)

    def with_columns(self, columns: np.ndarray) -> ChainEngine:
        """Return the same, for observations at all nodes, with other columns of fixed effects there."""
        setting = replace(self.setting, columns=columns)
        design = np.concatenate([setting.design(t) for t in range(setting.n_periods)])
        return ChainEngine(setting, self.dynamics, self.rows_at, self.order, design)

    def stretch(self, within: slice) -> ChainEngine:
        """Return the engine of all nodes for some periods in a row."""
        set_, rows = self.setting, self.rows_at
        assert isinstance(rows, NodeRowsAt), "of counts at the nodes"
        columns = set_.columns if set_.columns.ndim == 2 else set_.columns[within]
        steps = set_.steps[within.start : within.stop - 1]
        reporting = None if set_.reporting is None else set_.reporting[within]
        setting = replace(set_, columns=columns, season=set_.season[within], steps=steps, reporting=reporting)
        return node_engine(setting, replace(self.dynamics, steps=steps), rows.features, self.order)

    def _gradient(self, s: Solution) -> np.ndarray:
        out = super()._gradient(s)
        prior: ChainPrior = s.prior  # type: ignore[assignment]
        moved, tied = prior.moved(s.z), prior.moved(s.coupling)
        if moved is not None and tied is not None:
            # The rows move with ℓ: f = e g, d log e / d log ℓ = -slope.
            unit = self.unit(s.theta)
            w, natural = unit * s.sites.precision, unit * s.sites.natural
            rest = self.design - prior.apply(s.coupling)
            with_f = s.factor.moved - np.einsum("ij,ij->i", tied @ s.beta_cov, rest)
            out[0] -= float((natural - w * s.moments.mean) @ moved - w @ with_f)
        return out

    def state(self, theta: np.ndarray, sites: Sites, weight: float) -> ChainState:  # type: ignore[override]
        """Return the posterior as a state that stands by itself."""
        s = self.solve(theta, sites)
        prior: ChainPrior = s.prior  # type: ignore[assignment]
        count, size = prior.shape
        nodes = isinstance(self.rows_at, NodeRowsAt)
        moments = s.moments
        level = self.dynamics.level
        set_ = self.setting
        return ChainState(
            **hyper_numbers(theta, weight, self.noise_at),
            centre=set_.centre,
            tau=float(np.exp(theta[2])),
            level_sd=float(np.exp(theta[3])) if level else float("nan"),
            level_tau=float(np.exp(theta[4])) if level else float("nan"),
            dynamics=self.dynamics.kind,
            basis=set_.basis,
            even=set_.scaling == "even",
            columns=set_.columns,
            season=set_.season,
            per_year=set_.per_year,
            clock=np.concatenate([[0.0], np.cumsum(set_.steps)]),
            log_tau=self.dynamics.log_tau(theta)[0],
            scale=prior.scale,
            mean=s.z.reshape(count, size),
            coupling=s.coupling.reshape(count, size, -1),
            beta=s.beta,
            beta_cov=s.beta_cov,
            chain=Tridiagonal.from_inverses(s.factor.chain.inverses, s.factor.chain.between),
            known=(moments.mean + set_.centre, moments.variance) if nodes else None,
            n_reporting=set_.n_reporting,
            reporting=set_.reporting,
        )


class ChainPrior:
    """The weights' prior at one θ, as the observations see it: see `PriorAt`."""

    def __init__(self, engine: ChainEngine, theta: np.ndarray) -> None:
        d = engine.dynamics
        self.rows = engine.rows_at(float(theta[0]))
        log_s, self._first, _ = d.kernel.log_density(d.eigenvalues, theta)
        self.transition: Transition = d.at(theta)
        self.level = d.level
        self.scale = np.append(np.exp(0.5 * log_s), np.exp(theta[3])) if d.level else np.exp(0.5 * log_s)
        self.shape = len(self.rows.ends) - 1, len(self.scale)

    def _blocks(self, weights: np.ndarray) -> np.ndarray:
        return weights.reshape(*self.shape, *(weights.shape[1:] or (1,)))

    def apply(self, weights: np.ndarray) -> np.ndarray:
        """Return O z."""
        u = self._blocks(weights) * self.scale[:, None]
        out = self.rows.apply(u[:, : self.rows.m])
        if self.level:
            out += np.repeat(u[:, -1], np.diff(self.rows.ends), axis=0)
        return out.reshape(len(out), *weights.shape[1:])

    def project(self, rows: np.ndarray) -> np.ndarray:
        """Return Oᵀ r."""
        values = rows.reshape(len(rows), *(rows.shape[1:] or (1,)))
        out = self.rows.project(values)
        if self.level:
            padded = np.concatenate([values, np.zeros((1, values.shape[1]))])  # the last period may be empty
            sums = np.add.reduceat(padded, self.rows.ends[:-1], axis=0)
            sums *= (np.diff(self.rows.ends) > 0)[:, None]
            out = np.concatenate([out, sums[:, None]], axis=1)
        out *= self.scale[:, None]
        return out.reshape(self.shape[0] * self.shape[1], *rows.shape[1:])

    def moved(self, weights: np.ndarray) -> np.ndarray | None:
        """Return minus the derivative of O in log ℓ, scale held, times z; None if O does not move so."""
        out = self.rows.moved((self._blocks(weights) * self.scale[:, None])[:, : self.rows.m])
        return None if out is None else out.reshape(len(out), *weights.shape[1:])

    def times(self, weights: np.ndarray) -> np.ndarray:
        """Return Q z."""
        return self.transition.times(self._blocks(weights)).reshape(weights.shape)

    def square(self, weights: np.ndarray) -> float:
        """Return zᵀ Q z."""
        return float(weights @ self.times(weights))

    def factorise(self, precision: np.ndarray, factor: float) -> ChainFactor:
        """Return the factor of H."""
        return ChainFactor(self, factor * precision)

    def gradient(
        self, weights: np.ndarray, factor: ChainFactor, coupling: np.ndarray, beta_cov: np.ndarray
    ) -> np.ndarray:
        """Return the derivatives of the site objective in the prior's parameters, rows held."""
        z, tied = self._blocks(weights)[:, :, 0], self._blocks(coupling)
        wide = tied @ beta_cov
        own = z**2 + factor.own + np.einsum("tmk,tmk->tm", wide, tied)
        lagged = z[1:] * z[:-1] + factor.lagged + np.einsum("tmk,tmk->tm", wide[1:], tied[:-1])
        by_log_s, by_log_tau = self.transition.gradient(own, lagged)
        m = self.rows.m
        by_length = by_log_s[:m] @ self._first + by_log_tau @ self.transition.by_length
        out = [float(by_length), 2.0 * float(by_log_s[:m].sum()), float(by_log_tau[:m].sum())]
        if self.level:
            out += [2.0 * float(by_log_s[m]), float(by_log_tau[m])]
        return np.array(out)


class ChainFactor:
    """The elimination of H, and what of its inverse is asked for."""

    def __init__(self, prior: ChainPrior, precision: np.ndarray) -> None:
        self._prior, rows = prior, prior.rows
        count, size = prior.shape
        m, level = rows.m, prior.level
        scale = prior.scale
        own, between = prior.transition.precision()
        blocks = np.zeros((count, size, size))
        rows.gram(precision, scale, blocks)
        if level:
            blocks[:, :, m] = prior.project(precision).reshape(count, size) * scale[m]
        #: Gram matrices of the features that answer to the sites, and which these are.
        telling = rows.fewer()[1]
        self._telling = np.append(telling, m) if level else telling
        self._few = blocks[:, self._telling[:, None], self._telling].copy()
        blocks[:, np.arange(size), np.arange(size)] += own
        self.chain = Tridiagonal(blocks, between)
        del blocks
        self.log_det = self.chain.log_det - prior.transition.log_det()
        #: Diagonals of the inverse's blocks, (T, M), and of those next to them, (T - 1, M).
        self.own, self.lagged = np.empty((count, size)), np.empty((count - 1, size))
        self._variances, self.moved = np.empty(rows.ends[-1]), np.empty(rows.ends[-1])

        def use(t: int, block: np.ndarray) -> None:
            self.own[t] = np.diagonal(block)
            if t > 0:
                self.lagged[t - 1] = self.chain.lag_diagonal(t, block)
            self._variances[rows.ends[t] : rows.ends[t + 1]], self.moved[rows.ends[t] : rows.ends[t + 1]] = _seen(
                rows, scale, level, t, block
            )

        self.chain.marginals(use)

    def solve(self, weights: np.ndarray) -> np.ndarray:
        """Return H⁻¹ b."""
        return self.chain.solve(weights)

    def variances(self) -> np.ndarray:
        """Return the variances of the linear predictor at the observations, given the fixed effects."""
        return self._variances.copy()

    def spread(self, precision: np.ndarray) -> Solve:
        """Return multiplication with V∘V, lumped: the diagonal of V W V, or that of V where it is small."""
        lumped = self._variances
        if float(np.max(lumped * precision, initial=0.0)) > _SMALL**2 and lumped.max(initial=0.0) > _SMALL:
            lumped = self._lumped
        return lambda weights: np.divide(weights, precision, out=np.zeros_like(precision), where=precision > 0) * lumped

    @cached_property
    def _lumped(self) -> np.ndarray:
        """The diagonal of V W V: how V answers when all sites are made stiffer, by differences.

        Features of high eigenvalues hardly answer, and are left out.
        """
        own, between = self._prior.transition.precision()
        prior, at, step = self._prior, self._telling, 1e-3
        if len(at) == own.shape[1]:  # the variances without the step are known
            stiffer, rows, ends = np.empty_like(self._variances), prior.rows, prior.rows.ends
            blocks = (1.0 + step) * self._few
            blocks[:, np.arange(len(at)), np.arange(len(at))] += own

            def seen(t: int, block: np.ndarray) -> None:
                stiffer[ends[t] : ends[t + 1]] = _seen(rows, prior.scale, prior.level, t, block)[0]

            Tridiagonal(blocks, between).marginals(seen)
            # The variances fall by this and, about, by its square over themselves.
            fell = self._variances - stiffer
            return np.maximum(fell / step * (1.0 + fell / np.maximum(self._variances, 1e-300)), 0.0)
        change = np.zeros((len(own), len(at), len(at)))
        for sign in (-1.0, 1.0):
            blocks = (1.0 + sign * step) * self._few
            blocks[:, np.arange(len(at)), np.arange(len(at))] += own[:, at]

            def use(t: int, block: np.ndarray, sign: float = sign) -> None:
                change[t] -= sign * block / (2.0 * step)

            Tridiagonal(blocks, between[:, at]).marginals(use)
        # A little more than there is, so that rounding leaves it positive definite.
        change[:, np.arange(len(at)), np.arange(len(at))] += 1e-8
        out, ends, rows = np.empty_like(self._variances), prior.rows.ends, prior.rows.fewer()[0]

        def work(mine: np.ndarray) -> None:
            for t in mine:
                out[ends[t] : ends[t + 1]] = _seen(rows, prior.scale[at], prior.level, int(t), change[t])[0]

        in_threads(len(own), work)
        return np.maximum(out, 0.0)


def _seen(rows: PeriodRows, scale: np.ndarray, level: bool, t: int, block: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the variances of η in period t, from the weights' covariance; and their covariances with what moves."""
    m, s = rows.m, scale[: rows.m]
    covariance = (s[:, None] * block[:m, :m]) * s
    tied = scale[m] * s * block[:m, m] if level else np.zeros(m)
    variance, with_level, moved = rows.spread(t, covariance, tied)
    own = float(block[m, m] * scale[m] ** 2) if level else 0.0
    return variance + 2.0 * with_level + own, moved


def node_engine(
    setting: ChainSetting,
    dynamics: Dynamics,
    features: PartedFeatures,
    order: np.ndarray,
    design: np.ndarray | None = None,
) -> ChainEngine:
    """Return the engine of counts at all nodes, for features that are those of `order` among all of the basis."""
    values = setting.basis.eigenvalues[order]
    variance = FeatureVariance(features, values, setting.kernel) if setting.scaling == "even" else None
    rows = NodeRowsAt(features, setting.n_periods, variance, values)
    if design is None:
        design = np.concatenate([setting.design(t) for t in range(setting.n_periods)])
    return ChainEngine(setting, replace(dynamics, eigenvalues=values), rows, order, design)
