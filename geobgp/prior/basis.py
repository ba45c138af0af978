"""What every basis has in common, and the scaling of the prior variance over the land."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Self

import numpy as np
import scipy.sparse as sp

from geobgp.errors import CacheError, DataError, option
from geobgp.validation import Family, choice

if TYPE_CHECKING:
    from geobgp.land.domain import Domain
    from geobgp.prior.full_rank import Field
    from geobgp.prior.kernels import Kernel
    from geobgp.prior.laplacian import Boundary, Discretisation, Scheme


# -- Basis: what the priors on a domain have in common, whether by features or at full resolution ------------


#: Share of the prior variance that a basis may miss before a fit warns, and more features are taken.
MAX_TRUNCATED_VARIANCE = 0.05

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

    def truncated_variance(self, kernel: Kernel, lengthscale: float) -> float:
        """Return the share of the prior variance that the basis leaves out: none, unless it is truncated."""
        return kernel.truncated_variance(self.highest_eigenvalue, lengthscale) if self.truncated else 0.0

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


# -- Scaling: the prior's own variance at every place, by which the even prior divides it --------------------
# Under Neumann conditions a field made of the Laplacian's features has no even variance: twice the kernel's at a
# straight shore, four times at a corner, and far more on an islet. The even prior is f = σ g / √v, v the variance of
# g at σ = 1: its standard deviation is σ on every piece of land, and correlations are untouched.


Scaling = Literal["even", "natural"]
SCALING = choice("even", "natural")

#: Distance of the table's knots in log lengthscale, and how many take part in an interpolation.
_STEP, _KNOTS = 0.25, 10
#: How many of these take part in that of the determinant, whose slopes at the knots are known too.
_INNER = 8


class Variance(Protocol):
    """The variance of the natural prior with σ = 1 at some places, as a function of the lengthscale."""

    def log_variance(self, log_length: float) -> tuple[np.ndarray, np.ndarray]:
        """Return log v at the places, and its derivative in log ℓ."""
        ...


def resolve(scaling: str | None, basis: Basis) -> Scaling:
    """Return the scaling to use: as given, or even under Neumann and natural under Dirichlet conditions."""
    if scaling is None:
        return "natural" if basis.boundary == "dirichlet" else "even"
    SCALING("scaling", scaling)
    if scaling == "even" and basis.boundary == "dirichlet":
        raise DataError(
            "An even prior has the same standard deviation everywhere; under Dirichlet conditions it falls to zero at "
            "the shore.",
            option="scaling",
            found=scaling,
            remedy=f"Use {option('boundary', 'neumann')}, or {option('scaling', 'natural')}.",
        )
    return scaling  # type: ignore[return-value]


class TabulatedVariance:
    """The variance at the unknowns of a field, from selected inverses at knots in log ℓ.

    With P(τ) = κ² diag((κ²I + S)⁻¹) / mass, τ = log ℓ and κ² = 2ν / ℓ², the variance of the Matern field of
    smoothness ν = 1 or 2 is a combination of P and its derivatives in τ. P is a sum of logistic functions of τ, so
    that a polynomial through ten knots around τ gives v to about 1e-5; only the sparse operator itself is
    ever factorised, once for every knot that is needed.

    Parameters
    ----------
    field : Field
        The operator, in units of cells.
    nu : float
        1 or 2.
    unit : float
        Length of a cell.
    """

    def __init__(self, field: Field, nu: float, unit: float) -> None:
        self._field, self._nu, self._unit = field, nu, unit
        self._known: dict[int, np.ndarray] = {}

    def log_variance(self, log_length: float) -> tuple[np.ndarray, np.ndarray]:
        """Return log v at the unknowns, and its derivative in log ℓ."""
        tau = log_length - math.log(self._unit)
        first = math.floor(tau / _STEP) - _KNOTS // 2 + 1
        values = np.array([self._knot(k) for k in range(first, first + _KNOTS)])
        p, p1, p2, p3 = _derivatives(tau / _STEP - first) @ values / _STEP ** np.arange(4.0)[:, None]
        grow = math.exp(2.0 * tau) / (2.0 * self._nu)
        # G = diag((κ²I + S)⁻¹) = P e^{2τ} / 2ν and its derivatives in τ.
        g1, g2, g3 = (
            grow * (p1 + 2.0 * p),
            grow * (p2 + 4.0 * p1 + 4.0 * p),
            grow * (p3 + 6.0 * p2 + 12.0 * p1 + 8.0 * p),
        )
        if self._nu == 1.0:
            v, slope = 2.0 * math.pi * g1, 2.0 * math.pi * g2
        else:
            v, slope = math.pi * (g2 + 2.0 * g1), math.pi * (g3 + 2.0 * g2)
        return np.log(v), slope / v

    def determinant(self, log_length: float) -> tuple[float, float]:
        """Return log|κ²I + S| and the trace of κ² (κ²I + S)⁻¹, from the same knots.

        Both are known at every knot, and the second is -½ the derivative of the first in log ℓ: the polynomial that
        has these values and slopes at eight knots is exact to about 1e-9 for every eigenvalue near κ².
        """
        tau = log_length - math.log(self._unit)
        first = math.floor(tau / _STEP) - _INNER // 2 + 1
        knots = range(first, first + _INNER)
        mass, field = self._field.mass, self._field
        logs = np.array([field.log_det(self._kappa2(k)) for k in knots])
        slopes = np.array([-2.0 * _STEP * float(mass @ self._knot(k)) for k in knots])
        # Less the value at one knot, so that nothing is lost to rounding.
        value, slope = _hermite(tau / _STEP - first) @ np.concatenate([logs - logs[0], slopes])
        return float(logs[0] + value), float(-0.5 * slope / _STEP)

    def _kappa2(self, k: int) -> float:
        return 2.0 * self._nu * math.exp(-2.0 * k * _STEP)

    def _knot(self, k: int) -> np.ndarray:
        if k not in self._known:
            kappa2 = self._kappa2(k)
            self._known[k] = kappa2 * self._field.inverse_diagonal(kappa2) / self._field.mass
        return self._known[k]


def _derivatives(x: float) -> np.ndarray:
    """Return (4, knots) weights of a polynomial through values at 0, 1, ...: its value and derivatives at x."""
    centre = (_KNOTS - 1) / 2.0
    at = np.arange(_KNOTS) - centre
    powers = np.vander(at, increasing=True)
    y, order = x - centre, np.arange(_KNOTS)
    rows = []
    for d in range(4):
        falling = np.prod([order - j for j in range(d)], axis=0) if d else np.ones(_KNOTS)
        rows.append(np.where(order >= d, falling * y ** np.maximum(order - d, 0), 0.0))
    return np.linalg.solve(powers.T, np.array(rows).T).T


def _hermite(x: float) -> np.ndarray:
    """Return (2, 2 knots) weights of a polynomial with values and slopes at 0, 1, ...: its value and slope at x."""
    half = (_INNER - 1) / 2.0

    def chebyshev(points: np.ndarray) -> np.ndarray:
        values, slopes = [np.ones_like(points), points], [np.zeros_like(points), np.ones_like(points)]
        for _ in range(2 * _INNER - 2):
            slopes.append(2.0 * values[-1] + 2.0 * points * slopes[-1] - slopes[-2])
            values.append(2.0 * points * values[-1] - values[-2])
        return np.column_stack([np.array(values), np.array(slopes) / half])

    knots = chebyshev((np.arange(_INNER) - half) / half)
    return np.linalg.solve(knots, chebyshev(np.array([(x - half) / half]))).T


def only_unknown(rows: sp.csr_array) -> np.ndarray:
    """Return the unknown whose value each place takes, from rows with one entry each."""
    if (np.diff(rows.indptr) != 1).any():
        raise DataError("An even prior needs places that take the value of one unknown each.")
    return rows.indices


def mean_rows(rows: sp.csr_array) -> sp.csr_array:
    """Return rows of weights, each of which adds up to one."""
    total = np.asarray(rows.sum(axis=1)).ravel()
    return sp.csr_array(sp.diags_array(1.0 / np.where(total > 0, total, 1.0)) @ rows)


class ShiftedVariance:
    """The variance of places between unknowns, by the mean of its logarithm: rows (n, u) that add up to one."""

    def __init__(self, variance: Variance, rows: sp.csr_array) -> None:
        self._variance, self._rows = variance, rows

    def log_variance(self, log_length: float) -> tuple[np.ndarray, np.ndarray]:
        """Return log v at the places, and its derivative in log ℓ."""
        log_v, slope = self._variance.log_variance(log_length)
        return self._rows @ log_v, self._rows @ slope

    def elsewhere(self, unknown: np.ndarray, log_length: float) -> np.ndarray:
        """Return log v of places that take the values of other unknowns."""
        return self._variance.log_variance(log_length)[0][unknown]


# -- Features of the parts of the land: eigenfunctions that live on one connected part each, and their plain arrays --


@dataclass(frozen=True, eq=False)
class FeaturePart:
    """The features of one connected part of the land.

    Attributes
    ----------
    unknowns : (n_c,) int array
        The operator's unknowns in this part, ascending.
    columns : (m_c,) int array
        Which features, in the order of eigenvalues, are its own; ascending.
    vectors : (n_c, m_c) array, C order
        Their values at the unknowns, orthonormal in the mass.
    """

    unknowns: np.ndarray
    columns: np.ndarray
    vectors: np.ndarray = field(repr=False)

    def truncate(self, m: int) -> FeaturePart:
        """Return its features among the first `m`."""
        keep = int(np.searchsorted(self.columns, m))
        if keep == len(self.columns):
            return self
        return FeaturePart(self.unknowns, self.columns[:keep], np.ascontiguousarray(self.vectors[:, :keep]))


def first_features(parts: Sequence[FeaturePart], m: int) -> tuple[FeaturePart, ...]:
    """Return the first `m` features of all; parts that have none of them are left out."""
    some = (part.truncate(m) for part in parts)
    return tuple(part for part in some if len(part.columns))


def dense(parts: Sequence[FeaturePart], n: int, m: int) -> np.ndarray:
    """Return all features at all unknowns, (n, m), C order; without a copy where there is one part."""
    if len(parts) == 1 and len(parts[0].unknowns) == n:
        return parts[0].vectors
    out = np.zeros((n, m))
    for part in parts:
        out[np.ix_(part.unknowns, part.columns)] = part.vectors
    return out


def to_arrays(parts: Sequence[FeaturePart]) -> dict[str, np.ndarray]:
    """Return flat arrays that hold the parts."""
    return {
        "sizes": np.array([part.vectors.shape for part in parts], np.int64).reshape(-1, 2),
        "unknowns": np.concatenate([part.unknowns for part in parts]).astype(np.int64),
        "columns": np.concatenate([part.columns for part in parts]).astype(np.int64),
        "vectors": np.concatenate([part.vectors.ravel() for part in parts]),
    }


def from_arrays(arrays: dict[str, np.ndarray], n: int, m: int) -> tuple[FeaturePart, ...]:
    """Rebuild the parts of `m` features of an operator with `n` unknowns; what does not fit is a CacheError."""
    sizes, unknowns, columns, vectors = (arrays[k] for k in ("sizes", "unknowns", "columns", "vectors"))
    rows, width = sizes.T if sizes.ndim == 2 and sizes.shape[1:] == (2,) else (np.zeros(1), np.zeros(1))
    sound = (
        (sizes > 0).all()
        and len(unknowns) == rows.sum()
        and len(columns) == width.sum() == m
        and vectors.shape == (int(rows @ width),)
        and np.array_equal(np.sort(columns), np.arange(m))
        and len(np.unique(unknowns)) == len(unknowns)
        and unknowns.min(initial=0) >= 0
        and unknowns.max(initial=-1) < n
    )
    if not sound:
        raise CacheError(f"These are not {m:,} features of an operator with {n:,} unknowns.")
    pieces = zip(
        np.split(unknowns, np.cumsum(rows)[:-1]),
        np.split(columns, np.cumsum(width)[:-1]),
        np.split(vectors, np.cumsum(rows * width)[:-1]),
        strict=True,
    )
    return tuple(FeaturePart(u, c, v.reshape(len(u), len(c))) for u, c, v in pieces)
