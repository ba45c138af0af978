"""Basis: what the priors on a domain have in common, whether by features or at full resolution."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np

from geobgp.registry import Family

if TYPE_CHECKING:
    from geobgp.land.domain import Domain
    from geobgp.prior.kernels import Kernel
    from geobgp.prior.laplacian import Boundary, Discretisation, Scheme
    from geobgp.prior.scaling import Scaling

#: Share of the prior variance that a basis may miss before a fit warns, and more features are taken.
MISSED_SHARE = 0.05

#: Every kind of basis, by the name that it is stored under.
BASES: Family[Basis] = Family("basis")


class Basis(ABC):
    """A Gaussian prior on a domain: the first argument of `LGCP` and `BoundaryGP`.

    A new kind derives from this class, which makes it known to stored files, and registers its engine with
    `geobgp.inference.engine.engine_for`.

    Attributes
    ----------
    domain : Domain
    boundary : "neumann" or "dirichlet"
    scheme : "subcell" or "staircase"
    permeability : float
        Correlation range over water as a share of that over land.
    discretisation : Discretisation
        The Laplacian on the domain.
    """

    domain: Domain
    boundary: Boundary
    scheme: Scheme
    permeability: float
    discretisation: Discretisation

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        BASES.add(cls)

    #: Whether the prior's finest detail is left out, and more weights would show it.
    truncated: ClassVar[bool]

    @property
    @abstractmethod
    def m(self) -> int:
        """Number of weights."""

    @property
    def resolution(self) -> int | Literal["full"]:
        """What `map_intensity` calls m: the number of features, or "full"."""
        return self.m if self.truncated else "full"

    @property
    @abstractmethod
    def label(self) -> str:
        """How fine the prior is, in words: "256 features", "full resolution"."""

    @property
    @abstractmethod
    def weights(self) -> str:
        """What its weights belong to, in words for a report."""

    @property
    def land_features(self) -> float:
        """About how many of the weights are the land's own: all but those of permeable water."""
        return float(self.m)

    @property
    def highest_eigenvalue(self) -> float:
        """The Laplacian's eigenvalue (1/length²) up to which the prior reaches."""
        return float("inf")

    @abstractmethod
    def default_kernel(self) -> Kernel:
        """Return the kernel to take where none is given."""

    def check_kernel(self, kernel: Kernel) -> None:
        """Raise an error if the basis cannot have this kernel; most can have any."""
        return None

    def longest_lengthscale(self, kernel: Kernel) -> float:
        """Return the longest lengthscale (in the domain's unit) that the basis can hold; most hold any."""
        return float("inf")

    def missed_share(self, kernel: Kernel, lengthscale: float) -> float:
        """Return the share of the prior variance that the basis leaves out: none, unless it is truncated."""
        return kernel.missed_share(self.highest_eigenvalue, lengthscale) if self.truncated else 0.0

    @abstractmethod
    def sample_prior(
        self, kernel: Kernel, n: int, rng: np.random.Generator, scaling: Scaling = "natural"
    ) -> np.ndarray:
        """Return (n, n_nodes) draws of the field at the nodes; the kernel's parameters must be set."""

    def facts(self) -> dict[str, Any]:
        """Return what `from_arrays` needs besides arrays, as JSON can hold it."""
        return {"boundary": self.boundary, "scheme": self.scheme, "permeability": self.permeability}

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays from which, with `facts`, `from_arrays` rebuilds the basis on its domain."""
        return {}

    @classmethod
    @abstractmethod
    def from_arrays(cls, domain: Domain, facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> Self:
        """Rebuild a basis on its domain from what was stored."""
