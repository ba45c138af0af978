"""Engine: Gaussian posteriors under a prior, for Gaussian sites at the observations; one kind per basis.

The linear predictor at the observations is η = e ∘ (O z) + X β: z are the prior's weights, O takes them to the
observations, e = 1/√v makes the prior even (1 where it is natural), X are the fixed effects. With sites of precision w
the weights have the precision H = Q + Oᵀ diag(e² w) O; the fixed effects border it and are taken out through their
Schur complement. What O, Q and H are is the prior's own affair: see `PriorAt`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import singledispatch
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np

from geobgp.errors import DataError
from geobgp.inference.hyper import Derivatives

if TYPE_CHECKING:
    from geobgp.prior.base import Basis
    from geobgp.prior.kernels import Kernel
    from geobgp.prior.scaling import Scaling, Variance

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

    def joint_at(self, nodes: np.ndarray, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and joint covariance of the linear predictor at nodes, for given columns of fixed effects."""
        ...

    def coefficients(self) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and covariance of the fixed effects."""
        ...

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return plain arrays that hold the state."""
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

    def gradient(
        self, weights: np.ndarray, factor: Any, coupling: np.ndarray, beta_cov: np.ndarray
    ) -> np.ndarray:
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
        out._columns = columns  # type: ignore[attr-defined]
        return out

    # -- what a kind of basis gives ------------------------------------------------------------------------

    def prior_at(self, theta: np.ndarray) -> PriorAt:
        """Return the prior at θ."""
        raise TypeError(f"{type(self).__name__} gives no prior.")

    def state(self, theta: np.ndarray, sites: Sites, weight: float) -> State:
        """Return the posterior as a state that stands by itself."""
        raise TypeError(f"{type(self).__name__} makes no state.")

    def missed_share(self, theta: np.ndarray) -> float:
        """Return the share of the prior variance that the engine leaves out."""
        return 0.0

    def rehearsals(self) -> Iterator[Engine]:
        """Yield cheaper engines for the same observations, the cheapest first, to find a good start with."""
        return iter(())

    def unit(self, theta: np.ndarray) -> float:
        """Return what the sites' precisions are multiplied by: one over the variance of Gaussian noise, if any."""
        return 1.0 if self.noise_at is None else float(np.exp(-2.0 * theta[self.noise_at]))

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
        bordered = self._border(prior, factor, e, w)
        z, beta = bordered.solve(natural)
        mean = _scaled(e, prior.apply(z)) + self.design @ beta
        variance = _scaled(None if e is None else e**2, factor.variances())
        variance += np.einsum("ij,jk,ik->i", bordered.rest, bordered.beta_cov, bordered.rest)
        log_fixed = float(np.log(self.fixed_precision).sum())
        log_det = factor.log_det + bordered.log_det - log_fixed
        square = prior.square(z) + float(beta**2 @ self.fixed_precision)
        moments = Moments(mean, variance, 0.5 * (square - float(w @ variance) + log_det))
        value = 0.5 * float(natural @ mean) - 0.5 * log_det
        found = Solution(
            theta.copy(),
            sites,
            prior,
            factor,
            e,
            z,
            beta,
            bordered.coupling,
            bordered.beta_cov,
            moments,
            value,
        )
        self._kept = [found, *self._kept[:1]]
        return found

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
            with_f = e**2 * s.factor.variances() - np.einsum(
                "ij,jk,ik->i", tied, s.beta_cov, self.design - tied
            )
            out[0] -= float(slope @ ((natural - w * mean) * f - w * with_f))
        if self.noise_at is not None:
            out[self.noise_at] = float(w @ (mean**2 + variance)) - 2.0 * float(natural @ mean)
        return out

    def _border(self, prior: PriorAt, factor: Any, e: np.ndarray | None, w: np.ndarray) -> _Bordered:
        """Return the whole system's solution, from the factor of its weights."""
        weighted = w[:, None] * self.design
        coupling = factor.solve(prior.project(_scaled(e, weighted)))
        rest = self.design - _scaled(e, prior.apply(coupling))
        schur = np.diag(self.fixed_precision) + weighted.T @ rest
        return _Bordered(self, prior, factor, e, weighted, coupling, rest, 0.5 * (schur + schur.T))

    # -- Newton steps --------------------------------------------------------------------------------------

    def means(self, theta: np.ndarray, sites: Sites, precision: np.ndarray) -> Solve:
        """Return the way from natural means to posterior means, for precisions near those of `sites`."""
        s = self.solve(theta, sites)
        factor = s.prior.factorise(precision if s.even is None else precision * s.even**2, 1.0)
        bordered = self._border(s.prior, factor, s.even, precision)

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


class _Bordered:
    """Weights and fixed effects together, solved through the Schur complement of the fixed effects."""

    def __init__(
        self, engine: Engine, prior: PriorAt, factor: Any, e: np.ndarray | None, weighted: np.ndarray,
        coupling: np.ndarray, rest: np.ndarray, schur: np.ndarray,
    ) -> None:  # fmt: skip
        self._engine, self._prior, self._factor, self._e, self._weighted = engine, prior, factor, e, weighted
        self.coupling, self.rest = coupling, rest
        self.beta_cov = np.linalg.inv(schur) if len(schur) else schur
        self.log_det = float(np.linalg.slogdet(schur)[1]) if len(schur) else 0.0

    def solve(self, natural: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the posterior means of weights and fixed effects for natural means of the sites."""
        z = self._factor.solve(self._prior.project(_scaled(self._e, natural)))
        seen = _scaled(self._e, self._prior.apply(z))
        beta = self.beta_cov @ (self._engine.design.T @ natural - self._weighted.T @ seen)
        return z - self.coupling @ beta, beta


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
) -> Engine:
    """Return the engine of a basis, for observations at all nodes or at coordinates.

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
    coords : (n, 2) array, optional
        Where the observations are, if not at the nodes; all on land.
    scaling : "natural" or "even"
        Whether the prior's variance is what its features add up to, or the same everywhere.
    """
    _load()
    return make_engine(basis, kernel, columns, fixed_sd, centre, coords, scaling)


def state_from_arrays(basis: Basis, arrays: dict[str, np.ndarray]) -> State:
    """Rebuild a state from its `to_arrays` and the basis that it was fitted with."""
    _load()
    return make_state(basis, arrays)


def _load() -> None:
    """Import the engines, which register themselves."""
    from geobgp.inference import dense, sparse  # noqa: F401


@singledispatch
def make_engine(basis: Any, *args: Any) -> Engine:
    """Return the engine of a kind of basis, as `engine_for` asks for it; each kind registers its own."""
    raise DataError(
        f"No engine can fit a {type(basis).__name__}.", remedy="Give a HarmonicBasis or a FullRank."
    )


@singledispatch
def make_state(basis: Any, arrays: dict[str, np.ndarray]) -> State:
    """Rebuild a state of a kind of basis; each kind registers its own."""
    raise DataError(f"No state belongs to a {type(basis).__name__}.")
