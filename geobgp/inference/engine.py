"""Engines: what a solver asks of a prior, whatever it is made of."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import singledispatch
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np
from scipy.linalg import blas, lapack

from geobgp.errors import DataError
from geobgp.inference.hyper import Derivatives

if TYPE_CHECKING:
    from geobgp.prior.basis import Basis, Scaling, Variance
    from geobgp.prior.kernels import Kernel


# -- Engine: Gaussian posteriors under a prior, for Gaussian sites at the observations; one kind per basis ---
# The linear predictor at the observations is η = e ∘ (O z) + X β: z are the prior's weights, O takes them to the
# observations, e = 1/√v makes the prior even (1 where it is natural), X are the fixed effects. With sites of
# precision w
# the weights have the precision H = Q + Oᵀ diag(e² w) O; the fixed effects border it and are taken out through their
# Schur complement. What O, Q and H are is the prior's own affair: see `PriorAt`.


Solve = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True, eq=False)
class Moments:
    """Posterior means and variances at the observations, and the divergence from the prior."""

    mean: np.ndarray
    variance: np.ndarray
    divergence: float


@dataclass(frozen=True, eq=False)
class Sites:
    """A Gaussian site for every observation."""

    precision: np.ndarray
    natural: np.ndarray

    def blend(self, other: Sites, share: float) -> Sites:
        """Return (1 - share) of these sites and `share` of the others, in natural parameters."""
        if share == 1.0:
            return other
        return Sites(
            (1.0 - share) * self.precision + share * other.precision,
            (1.0 - share) * self.natural + share * other.natural,
        )


class State(Protocol):
    """A Gaussian posterior for one value of the hyperparameters, which stands by itself."""

    @property
    def weight(self) -> float: ...  # noqa: D102
    @property
    def lengthscale(self) -> float: ...  # noqa: D102
    @property
    def sd(self) -> float: ...  # noqa: D102
    @property
    def noise(self) -> float: ...  # noqa: D102

    def node_moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of the linear predictor at every node."""
        ...

    def sample_joint(self, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return joint draws of the linear predictor at the nodes, (n, n_nodes), and of the fixed effects, (n, k)."""
        ...

    def sample_nodes(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Return (n, n_nodes) joint draws of the linear predictor."""
        ...

    def moments_at(
        self, coords: np.ndarray, fixed: np.ndarray | None = None, *, by_node: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of the linear predictor at coordinates; NaN off land."""
        ...

    def node_covariance(self, nodes: np.ndarray) -> np.ndarray:
        """Return the joint covariance of the linear predictor at some nodes."""
        ...

    def joint_at(self, places: np.ndarray, columns: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and joint covariance of the linear predictor at nodes or coordinates."""
        ...

    def coefficients(self) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and covariance of the fixed effects."""
        ...


class Factored(Protocol):
    """A factor of the weights' posterior precision H, given the fixed effects."""

    #: log|H| - log|Q|.
    log_det: float

    def solve(self, weights: np.ndarray) -> np.ndarray:
        """Return H⁻¹ b, for one b or several."""
        ...

    def variances(self) -> np.ndarray:
        """Return the diagonal of O H⁻¹ Oᵀ."""
        ...

    def spread(self, precision: np.ndarray) -> Solve:
        """Return multiplication with V∘V, about, V = O H⁻¹ Oᵀ."""
        ...


class PriorAt(Protocol):
    """A prior at one value of the hyperparameters, as the observations see it."""

    def apply(self, weights: np.ndarray) -> np.ndarray:
        """Return O z, for one z or several."""
        ...

    def project(self, rows: np.ndarray) -> np.ndarray:
        """Return Oᵀ r, for one r or several."""
        ...

    def factorise(self, precision: np.ndarray, factor: float) -> Factored:
        """Return the factor of H = Q + factor · Oᵀ diag(precision) O."""
        ...

    def times(self, weights: np.ndarray) -> np.ndarray:
        """Return Q z."""
        ...

    def square(self, weights: np.ndarray) -> float:
        """Return zᵀ Q z."""
        ...

    def gradient(self, weights: np.ndarray, factor: Any, coupling: np.ndarray, beta_cov: np.ndarray) -> np.ndarray:
        """Return the site objective's derivatives in the prior's own parameters, log ℓ and log σ first, O held.

        They are those of ½ log|Q| - ½ E zᵀQz, where z has the posterior mean `weights` and the covariance
        H⁻¹ + coupling · beta_cov · couplingᵀ.
        """
        ...


@dataclass(eq=False)
class Solution:
    """The posterior at one θ under given sites."""

    theta: np.ndarray
    sites: Sites
    prior: PriorAt
    factor: Any
    even: np.ndarray | None
    z: np.ndarray
    beta: np.ndarray
    coupling: np.ndarray
    beta_cov: np.ndarray
    moments: Moments
    value: float
    gradient: np.ndarray | None = None


#: Share of the variance of columns that a quick start keeps.
_MOST_OF = 0.997


class Engine:
    """Posteriors under a prior with a kernel; each kind of basis derives its own.

    Parameters
    ----------
    design : (n, k) array
        Fixed effects at the observations.
    fixed_sd : (k,) array
        Their prior standard deviations.
    variance : Variance, optional
        Of the natural prior at the observations, if the prior is to be even.
    """

    #: Times that a Newton step's lumping is corrected; 0 where `spread` is itself lumped.
    corrections = 0
    #: Which parameter of θ is the log of Gaussian noise; None where there is none. The solver says so.
    noise_at: int | None = None
    #: Columns of fixed effects whose prior standard deviations are multiplied by exp(θ_i), with i. The solver says so.
    learned: tuple[tuple[int, np.ndarray], ...] = ()

    def __init__(self, design: np.ndarray, fixed_sd: np.ndarray, variance: Variance | None) -> None:
        self.design = np.asarray(design, float)
        self.fixed_precision = np.asarray(fixed_sd, float) ** -2.0
        self.variance = variance
        #: Posteriors that were solved for: each costs O(n m²), or a sparse factorisation.
        self.rounds = 0
        self._kept: list[Solution] = []
        self._scale: tuple[float, np.ndarray, np.ndarray] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_kept": []}  # factors are as quickly made as sent

    def with_columns(self, columns: np.ndarray) -> Self:
        """Return the same, for observations at all nodes, with other columns of fixed effects there."""
        out = copy.copy(self)
        out.design, out._kept = np.asarray(columns, float), []
        out.columns = columns  # type: ignore[attr-defined]
        return out

    # -- what a kind of basis gives ------------------------------------------------------------------------

    def prior_at(self, theta: np.ndarray) -> PriorAt:
        """Return the prior at θ."""
        raise TypeError(f"{type(self).__name__} gives no prior.")

    def state(self, theta: np.ndarray, sites: Sites, weight: float) -> State:
        """Return the posterior as a state that stands by itself."""
        raise TypeError(f"{type(self).__name__} makes no state.")

    def truncated_variance(self, theta: np.ndarray) -> float:
        """Return the share of the prior variance that the engine leaves out."""
        return 0.0

    def warm_start_engines(self) -> Iterator[Engine]:
        """Yield cheaper engines for the same observations, the cheapest first, to find a good start with."""
        return iter(())

    def unit(self, theta: np.ndarray) -> float:
        """Return what the sites' precisions are multiplied by: one over the variance of Gaussian noise, if any."""
        return 1.0 if self.noise_at is None else float(np.exp(-2.0 * theta[self.noise_at]))

    def fixed_precision_at(self, theta: np.ndarray) -> np.ndarray:
        """Return the prior precisions of the fixed effects at θ."""
        out = self.fixed_precision.copy()
        for at, columns in self.learned:
            out[columns] *= np.exp(-2.0 * theta[at])
        return out

    def with_fewer_columns(self) -> None:
        """Keep but what matters most of columns that share a learned standard deviation, for a quick start.

        The rough parts of a curve vary little under its prior. Rotated columns are as independent a priori as before.
        """
        kept, sd, learned = [self.design], [self.fixed_precision**-0.5], list[tuple[int, np.ndarray]]()
        gone, n = np.zeros(self.design.shape[1], bool), self.design.shape[1]
        for at, columns in self.learned:
            block = self.design[:, columns]
            size, turn = np.linalg.eigh(block.T @ block)
            many = int(np.searchsorted(np.cumsum(size[::-1]), _MOST_OF * size.sum())) + 1
            if many > len(columns) // 2:
                learned.append((at, columns))
                continue
            gone[columns] = True
            kept.append(block @ turn[:, ::-1][:, :many])
            sd.append(np.full(many, float(sd[0][columns[0]])))
            learned.append((at, np.arange(n, n := n + many)))
        place = np.cumsum(~np.concatenate([gone, np.zeros(n - len(gone), bool)])) - 1
        keep = ~np.concatenate([gone, np.zeros(n - len(gone), bool)])
        self.design = np.ascontiguousarray(np.concatenate(kept, axis=1)[:, keep])
        self.fixed_precision = np.concatenate(sd)[keep] ** -2.0
        self.learned = tuple((at, place[columns]) for at, columns in learned)

    # -- posteriors ----------------------------------------------------------------------------------------

    def even(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """Return e = 1/√v at the observations and r' = ½ d log v / d log ℓ; None for a natural prior."""
        if self.variance is None:
            return None
        length = float(theta[0])
        if self._scale is None or self._scale[0] != length:
            log_v, slope = self.variance.log_variance(length)
            self._scale = length, np.exp(-0.5 * log_v), 0.5 * slope
        return self._scale[1:]

    def solve(self, theta: np.ndarray, sites: Sites) -> Solution:
        """Return the posterior under sites; the last two are remembered."""
        for kept in self._kept:
            if kept.sites is sites and np.array_equal(kept.theta, theta):
                return kept
        self.rounds += 1
        unit = self.unit(theta)
        scaling = self.even(theta)
        e = None if scaling is None else scaling[0]
        prior = self.prior_at(theta)
        precision = sites.precision if e is None else sites.precision * e**2
        factor = prior.factorise(precision, unit)
        w, natural = unit * sites.precision, unit * sites.natural
        fixed_precision = self.fixed_precision_at(theta)
        bordered = self._border(prior, factor, e, w, fixed_precision)
        z, beta = bordered.solve(natural)
        mean = _scaled(e, prior.apply(z)) + self.design @ beta
        variance = _scaled(None if e is None else e**2, factor.variances()) + bordered.variances()
        log_fixed = float(np.log(fixed_precision).sum())
        log_det = factor.log_det + bordered.log_det - log_fixed
        square = prior.square(z) + float(beta**2 @ fixed_precision)
        moments = Moments(mean, variance, 0.5 * (square - float(w @ variance) + log_det))
        value = 0.5 * float(natural @ mean) - 0.5 * log_det
        solution = Solution(
            theta.copy(), sites, prior, factor, e, z, beta, bordered.coupling, bordered.beta_cov, moments, value
        )
        self._kept = [solution, *self._kept[:1]]
        return solution

    def posterior(self, theta: np.ndarray, sites: Sites) -> Moments:
        """Return the moments at the observations and the divergence from the prior."""
        return self.solve(theta, sites).moments

    def objective(self, theta: np.ndarray, sites: Sites) -> Derivatives:
        """Return the sites' log evidence and its gradient in θ.

        Where the sites are those that the posterior asks for, it is the gradient of the bound, maximised over
        posteriors. The Hessian is left to the search. Gaussian noise, where θ has it, scales sites that are
        given for unit noise; the likelihood's own `constant` is to be added.
        """
        s = self.solve(theta, sites)
        if s.gradient is None:
            s.gradient = self._gradient(s)
        return s.value, s.gradient.copy(), None

    def _gradient(self, s: Solution) -> np.ndarray:
        unit = self.unit(s.theta)
        w, natural = unit * s.sites.precision, unit * s.sites.natural
        mean, variance = s.moments.mean, s.moments.variance
        out = np.zeros(len(s.theta))
        own = s.prior.gradient(s.z, s.factor, s.coupling, s.beta_cov)
        out[: len(own)] = own
        scaling = self.even(s.theta)
        if scaling is not None:
            # The scaling moves with ℓ: f = e g, d log e / d log ℓ = -r'.
            e, slope = scaling
            f = mean - self.design @ s.beta
            tied = _scaled(e, s.prior.apply(s.coupling))
            with_f = e**2 * s.factor.variances() - np.einsum("ij,ij->i", tied @ s.beta_cov, self.design - tied)
            out[0] -= float(slope @ ((natural - w * mean) * f - w * with_f))
        if self.noise_at is not None:
            out[self.noise_at] = float(w @ (mean**2 + variance)) - 2.0 * float(natural @ mean)
        squares = self.fixed_precision_at(s.theta) * (s.beta**2 + np.diagonal(s.beta_cov))
        for at, columns in self.learned:
            out[at] = float(squares[columns].sum()) - len(columns)
        return out

    def _border(
        self, prior: PriorAt, factor: Any, e: np.ndarray | None, w: np.ndarray, fixed_precision: np.ndarray
    ) -> _Bordered:
        """Return the whole system's solution, from the factor of its weights."""
        weighted = w[:, None] * self.design
        coupling = factor.solve(prior.project(_scaled(e, weighted)))
        rest = self.design - _scaled(e, prior.apply(coupling))
        schur = np.diag(fixed_precision) + weighted.T @ rest
        return _Bordered(self, prior, factor, e, weighted, coupling, rest, 0.5 * (schur + schur.T))

    # -- Newton steps --------------------------------------------------------------------------------------

    def means(self, theta: np.ndarray, sites: Sites, precision: np.ndarray) -> Solve:
        """Return the way from natural means to posterior means, for precisions near those of `sites`."""
        s = self.solve(theta, sites)
        factor = s.prior.factorise(precision if s.even is None else precision * s.even**2, 1.0)
        bordered = self._border(s.prior, factor, s.even, precision, self.fixed_precision_at(theta))

        def mean(natural: np.ndarray) -> np.ndarray:
            z, beta = bordered.solve(natural)
            return _scaled(s.even, s.prior.apply(z)) + self.design @ beta

        return mean

    def spread(self, theta: np.ndarray, sites: Sites) -> Solve:
        """Return multiplication with V∘V, about: V is the posterior covariance of f at the observations."""
        s = self.solve(theta, sites)
        e2 = None if s.even is None else s.even**2
        precision = sites.precision if e2 is None else sites.precision * e2
        product = s.factor.spread(precision)
        return lambda weights: _scaled(e2, product(_scaled(e2, weights)))


class BrokenDownError(DataError, np.linalg.LinAlgError):
    """A posterior precision that is not finite."""


class _Bordered:
    """Weights and fixed effects together, solved through the Schur complement of the fixed effects."""

    def __init__(
        self, engine: Engine, prior: PriorAt, factor: Any, e: np.ndarray | None, weighted: np.ndarray,
        coupling: np.ndarray, rest: np.ndarray, schur: np.ndarray,
    ) -> None:  # fmt: skip
        self._engine, self._prior, self._factor, self._e, self._weighted = engine, prior, factor, e, weighted
        self.coupling, self.rest = coupling, rest
        self._chol = cholesky(schur)
        inverse = lapack.dpotri(self._chol, lower=1)[0] if len(schur) else schur
        self.beta_cov = np.tril(inverse) + np.tril(inverse, -1).T
        self.log_det = 2.0 * float(np.log(np.diagonal(self._chol)).sum())

    def variances(self) -> np.ndarray:
        """Return what not knowing the fixed effects adds to the variance at the observations."""
        if not len(self._chol) or not len(self.rest):
            return np.zeros(len(self.rest))
        half = blas.dtrsm(1.0, self._chol, self.rest.T, lower=1)
        return np.asarray(np.einsum("ij,ij->j", half, half))

    def solve(self, natural: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the posterior means of weights and fixed effects for natural means of the sites."""
        z = self._factor.solve(self._prior.project(_scaled(self._e, natural)))
        seen = _scaled(self._e, self._prior.apply(z))
        beta = self.beta_cov @ (self._engine.design.T @ natural - self._weighted.T @ seen)
        return z - self.coupling @ beta, beta


def cholesky(precision: np.ndarray) -> np.ndarray:
    """Return the lower factor of a posterior precision."""
    if not len(precision):
        return precision
    broken = BrokenDownError(
        "The fit broke down: the posterior precision is not finite.",
        remedy="Look for counts, exposures or covariates that are far larger than all others.",
    )
    if not np.isfinite(precision).all():
        raise broken
    chol, info = lapack.dpotrf(precision, lower=1, clean=1)
    # Only rounding can fail it, where sites or scales are huge: then a little is added to the diagonal.
    extra = np.finfo(float).eps * len(precision) * float(np.diag(precision).max())
    while info != 0 and 0.0 < extra < 1e300:
        precision = precision + extra * np.eye(len(precision))
        extra *= 10.0
        chol, info = lapack.dpotrf(precision, lower=1, clean=1)
    if info != 0:
        raise broken
    return np.asarray(chol)


def _scaled(e: np.ndarray | None, rows: np.ndarray) -> np.ndarray:
    """Return rows (n,) or (n, k) times e."""
    if e is None:
        return rows
    return e * rows if rows.ndim == 1 else e[:, None] * rows


# -- the engine of a basis -----------------------------------------------------------------------------------


def engine_for(
    basis: Basis,
    kernel: Kernel,
    columns: np.ndarray,
    fixed_sd: np.ndarray,
    centre: float = 0.0,
    coords: np.ndarray | None = None,
    scaling: Scaling = "natural",
    design: np.ndarray | None = None,
) -> Engine:
    """Return the engine of a basis, for observations at all nodes, at some, or at coordinates.

    Parameters
    ----------
    basis : Basis
    kernel : Kernel
    columns : (n_nodes, k) array
        Fixed effects at the nodes.
    fixed_sd : (k,) array
        Their prior standard deviations.
    centre : float
        Constant added to every linear predictor.
    coords : (n, 2) array or (n,) int array, optional
        Where the observations are, if not at all nodes in turn: coordinates on land, or nodes.
    scaling : "natural" or "even"
        Whether the prior's variance is what its features add up to, or the same everywhere.
    design : (n, k) array, optional
        Fixed effects at the observations; by default those of the nodes on whose land these lie.
    """
    _load()
    engine = make_engine(basis, kernel, columns, fixed_sd, centre, coords, scaling)
    if design is not None:
        engine.design = np.asarray(design, float)
    return engine


def _load() -> None:
    """Import the engines, which register themselves."""
    from geobgp.inference import dense, sparse  # noqa: F401


@singledispatch
def make_engine(basis: Any, *args: Any) -> Engine:
    """Return the engine of a kind of basis, as `engine_for` asks for it; each kind registers its own."""
    raise DataError(f"No engine can fit a {type(basis).__name__}.", remedy="Give a HarmonicBasis or a FullRank.")


# -- Features at the observations, part by part of the land, and the products that an engine needs of them ---
# Features of land that nothing connects never overlap: the Gram matrix is block-diagonal, and a round costs the sum
# over parts of rows times squared features. Parts with one feature, the constants of islets, are kept together in
# flat arrays, so that thousands of them cost no more than their rows.


#: Rows that are worked on at a time: a block of 1,024 features takes 16 MB.
_ROWS = 2048


@dataclass(frozen=True, eq=False)
class FeatureBlock:
    """Features of one part of the land at its observations.

    Attributes
    ----------
    rows : (n_c,) int array, or a slice
        Its observations.
    columns : slice
        Its features among all.
    matrix : (n_c, m_c) array, C order
    """

    rows: np.ndarray | slice
    columns: slice
    matrix: np.ndarray = field(repr=False)


@dataclass(frozen=True, eq=False)
class FeatureBlocks:
    """A block-diagonal matrix over the features: a dense block per part, a number for each that stands alone."""

    dense: list[np.ndarray]
    alone: np.ndarray


class PartedFeatures:
    """Features at observations; columns are grouped by part, those of parts with one feature come last.

    Parameters
    ----------
    n : int
        Observations; those that belong to no part have no features.
    rows : sequence of (n_c,) int arrays, or slices
        The observations of each part.
    matrices : sequence of (n_c, m_c) arrays
        Its features there; in C order they are not copied.
    columns : sequence of (m_c,) int arrays, optional
        What its features are called outside; numbered through by default.

    Attributes
    ----------
    order : (m,) int array
        What each column here is called outside.

    Examples
    --------
    >>> mainland, islet = np.array([[1.0, 2.0], [3.0, 4.0]]), np.ones((1, 1))
    >>> phi = PartedFeatures(3, [np.array([0, 2]), np.array([1])], [mainland, islet])
    >>> phi.apply(np.array([1.0, 0.0, 10.0]))
    array([ 1., 10.,  3.])
    """

    def __init__(
        self,
        n: int,
        rows: Sequence[np.ndarray | slice],
        matrices: Sequence[np.ndarray],
        columns: Sequence[np.ndarray] | None = None,
    ) -> None:
        widths = np.array([matrix.shape[1] for matrix in matrices], int)
        if columns is None:
            columns = np.split(np.arange(widths.sum()), np.cumsum(widths)[:-1])
        several = np.flatnonzero(widths > 1)
        single = np.flatnonzero(widths == 1)
        ends = np.cumsum(widths[several])
        self.parts = [
            FeatureBlock(rows[k], slice(int(end - widths[k]), int(end)), np.ascontiguousarray(matrices[k]))
            for k, end in zip(several, ends, strict=True)
        ]
        self.order = np.concatenate([*(columns[k] for k in np.r_[several, single]), np.zeros(0, int)])
        first = int(ends[-1]) if len(ends) else 0
        self.shape = (n, first + len(single))
        self._alone = slice(first, self.shape[1])
        everything = np.arange(n)
        own = [everything[rows[k]] for k in single]
        self._rows = np.concatenate([*own, np.zeros(0, int)])
        self._part = np.repeat(np.arange(len(single)), [len(r) for r in own])
        self._values = np.concatenate([*(matrices[k][:, 0] for k in single), np.zeros(0)])

    def truncate(self, keep: np.ndarray) -> PartedFeatures:
        """Return the features for which `keep` (m,) holds, which are the first ones within each part.

        Columns are called by their numbers here; those that stand alone are all kept.
        """
        rows: list[np.ndarray | slice] = [part.rows for part in self.parts]
        width = [int(keep[part.columns].sum()) for part in self.parts]
        matrices = [part.matrix[:, :w] for part, w in zip(self.parts, width, strict=True)]
        columns = [part.columns.start + np.arange(w) for part, w in zip(self.parts, width, strict=True)]
        alone = self._alone.start + np.arange(self.shape[1] - self._alone.start)
        ends = np.searchsorted(self._part, np.arange(len(alone) + 1))
        for k, column in enumerate(alone):
            mine = slice(ends[k], ends[k + 1])
            rows.append(self._rows[mine])
            matrices.append(self._values[mine, None])
            columns.append(np.array([column]))
        return PartedFeatures(self.shape[0], rows, matrices, columns)

    def apply(self, weights: np.ndarray) -> np.ndarray:
        """Return Φ u, (n,), or (n, k) for several u (m, k)."""
        out = np.zeros((self.shape[0], *weights.shape[1:]))
        for part in self.parts:
            out[part.rows] = _product(part.matrix, weights[part.columns])
        if len(self._rows):
            values = self._values if weights.ndim == 1 else self._values[:, None]
            out[self._rows] = values * weights[self._alone][self._part]
        return out

    def adjoint(self, rows: np.ndarray) -> np.ndarray:
        """Return Φᵀ r, (m,), or (m, k) for several r (n, k)."""
        out = np.zeros((self.shape[1], *rows.shape[1:]))
        for part in self.parts:
            out[part.columns] = _product(part.matrix.T, rows[part.rows])
        if len(self._rows):
            values = self._values if rows.ndim == 1 else self._values[:, None]
            np.add.at(out[self._alone], self._part, values * rows[self._rows])
        return out

    def squares(self, weights: np.ndarray) -> np.ndarray:
        """Return Σ_j φ_j² s_j at every observation, (n, k), for weights s (m, k)."""
        out = np.zeros((self.shape[0], weights.shape[1]))
        for part in self.parts:
            sums = np.empty((len(part.matrix), weights.shape[1]))
            mine = np.asfortranarray(weights[part.columns])
            for start in range(0, len(part.matrix), _ROWS):
                square = np.square(part.matrix[start : start + _ROWS])
                sums[start : start + _ROWS] = blas.dgemm(1.0, square.T, mine, trans_a=1)
            out[part.rows] = sums
        if len(self._rows):
            out[self._rows] = np.square(self._values)[:, None] * weights[self._alone][self._part]
        return out

    def gram(self, weights: np.ndarray) -> FeatureBlocks:
        """Return Φᵀ diag(w) Φ, the lower triangles of its blocks in Fortran order; w >= 0."""
        root = np.sqrt(weights)
        dense = []
        for part in self.parts:
            n, m = part.matrix.shape
            out = np.zeros((m, m), order="F")
            mine = root[part.rows]
            buffer = np.empty((min(_ROWS, n), m))
            for start in range(0, n, _ROWS):
                stop = min(start + _ROWS, n)
                rows = np.multiply(part.matrix[start:stop], mine[start:stop, None], out=buffer[: stop - start])
                out = blas.dsyrk(1.0, rows.T, beta=1.0, c=out, lower=1, overwrite_c=1)
            dense.append(out)
        return FeatureBlocks(dense, self.alone_gram(weights))

    @property
    def n_alone(self) -> int:
        """How many features, the last ones, stand alone on their part of the land."""
        return self.shape[1] - self._alone.start

    def alone_gram(self, weights: np.ndarray) -> np.ndarray:
        """Return Σ w φ² of each feature that stands alone."""
        return np.bincount(self._part, self._values**2 * weights[self._rows], self.n_alone)

    def add_alone(self, out: np.ndarray, squares: np.ndarray) -> None:
        """Add φ² s at the observations of features that stand alone, s (n_alone,)."""
        out[self._rows] += self._values**2 * squares[self._part]

    def variances(self, half: FeatureBlocks) -> np.ndarray:
        """Return the squared length of ``half @ row`` at every observation; the blocks are lower triangular."""
        out = np.zeros(self.shape[0])
        for part, block in zip(self.parts, half.dense, strict=True):
            n, m = part.matrix.shape
            found, buffer = np.empty(n), np.empty((min(_ROWS, n), m))
            for start in range(0, n, _ROWS):
                stop = min(start + _ROWS, n)
                rows = buffer[: stop - start]
                rows[:] = part.matrix[start:stop]
                product = blas.dtrmm(1.0, block, rows.T, lower=1, overwrite_b=1)
                found[start:stop] = np.einsum("ij,ij->j", product, product)
            out[part.rows] = found
        if len(self._rows):
            out[self._rows] = np.square(self._values * half.alone[self._part])
        return out

    def covariance(self, half: FeatureBlocks, rows: np.ndarray) -> np.ndarray:
        """Return the products of ``half @ row`` among some observations, dense; the blocks are lower triangular."""
        out = np.zeros((len(rows), len(rows)))
        place = np.full(self.shape[0], -1)
        place[rows] = np.arange(len(rows))
        for part, block in zip(self.parts, half.dense, strict=True):
            there = place[part.rows]
            mine = np.flatnonzero(there >= 0)
            if len(mine):
                product = blas.dtrmm(1.0, block, part.matrix[mine].T, lower=1)
                at = there[mine]
                lower = blas.dsyrk(1.0, product, trans=1, lower=1)
                out[np.ix_(at, at)] = np.tril(lower) + np.tril(lower, -1).T
        mine = np.flatnonzero(place[self._rows] >= 0)
        at, part_of = place[self._rows[mine]], self._part[mine]
        value = self._values[mine] * half.alone[part_of]
        out[np.ix_(at, at)] += np.where(part_of[:, None] == part_of, value[:, None] * value, 0.0)
        return out

    def split(self, vector: np.ndarray) -> FeatureBlocks:
        """Return a vector over the features (m,) by part."""
        return FeatureBlocks([vector[part.columns] for part in self.parts], vector[self._alone])

    def join(self, blocks: FeatureBlocks) -> np.ndarray:
        """Return a vector over the features (m,), or several (m, k), from its parts."""
        return np.concatenate([*blocks.dense, blocks.alone])


def _product(matrix: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """Return matrix @ vectors through SciPy's BLAS, for a matrix contiguous in either order."""
    if matrix.size == 0 or vectors.size == 0:
        return np.zeros((matrix.shape[0], *vectors.shape[1:]))
    turned = matrix.flags.c_contiguous and not matrix.flags.f_contiguous
    operand, transposed = (matrix.T, 1) if turned else (matrix, 0)
    if vectors.ndim == 1:
        return blas.dgemv(1.0, operand, vectors, trans=transposed)
    if vectors.flags.c_contiguous:  # the transposed product needs no copies, and is contiguous as well
        return blas.dgemm(1.0, vectors.T, operand, trans_b=1 - transposed).T
    return blas.dgemm(1.0, operand, vectors, trans_a=transposed)
