"""What the solver asks of a prior: the engine's protocol, what goes in and out, the engine of each basis."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import singledispatch
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from geobgp.errors import DataError
from geobgp.inference.hyper import Derivatives

if TYPE_CHECKING:
    from geobgp.prior.base import Basis
    from geobgp.prior.kernels import Kernel

Solve = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True, eq=False)
class Moments:
    """Posterior means and variances at the observations, and the divergence from the prior."""

    mean: np.ndarray
    variance: np.ndarray
    divergence: float


class State(Protocol):
    """A Gaussian posterior for one value of the hyperparameters."""

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

    def sample_nodes(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Return (n, n_nodes) joint draws of the linear predictor."""
        ...

    def moments_at(
        self, coords: np.ndarray, fixed: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of the linear predictor at coordinates; NaN off land."""
        ...

    def coefficients(self) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and covariance of the fixed effects."""
        ...

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return plain arrays that hold the state."""
        ...


class Evidence(Protocol):
    """Gaussian sites, in the engine's own form."""

    def blend(self, other: Any, share: float) -> Any:
        """Return (1 - share) of these sites and `share` of the others."""
        ...


class Engine(Protocol):
    """A prior over f at the observations, and what the solver needs to do with it."""

    rounds: int
    #: Evaluations of the objective that a round's search for hyperparameters may take.
    evaluations: int
    #: Times that a Newton step's lumping is corrected; 0 where `spread` is itself lumped.
    corrections: int

    def absorb(self, precision: np.ndarray, natural: np.ndarray) -> Any:
        """Return sites in the engine's own form."""
        ...

    def objective(self, theta: np.ndarray, evidence: Any) -> Derivatives:
        """Return the sites' log evidence with gradient and Hessian in θ."""
        ...

    def posterior(self, theta: np.ndarray, evidence: Any) -> Moments:
        """Return the posterior's moments at the observations and its divergence from the prior."""
        ...

    def means(self, theta: np.ndarray, evidence: Any, precision: np.ndarray) -> Solve:
        """Return the way from natural means to posterior means, for precisions near those of `evidence`."""
        ...

    def spread(self, theta: np.ndarray, evidence: Any) -> Solve:
        """Return multiplication with V∘V, about: V is the posterior covariance at the observations."""
        ...

    def state(self, theta: np.ndarray, evidence: Any, weight: float) -> State:
        """Return the posterior as a state that stands by itself."""
        ...

    def missed_share(self, theta: np.ndarray) -> float:
        """Return the share of the prior variance that the engine leaves out."""
        ...

    def rehearsals(self) -> Iterator[Engine]:
        """Yield cheaper engines for the same observations, the cheapest first, to find a good start with."""
        ...


def engine_for(
    basis: Basis,
    kernel: Kernel,
    columns: np.ndarray,
    fixed_sd: np.ndarray,
    centre: float = 0.0,
    coords: np.ndarray | None = None,
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
    """
    _load()
    return make_engine(basis, kernel, columns, fixed_sd, centre, coords)


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
