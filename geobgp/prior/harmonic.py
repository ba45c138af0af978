"""HarmonicBasis: eigenfunctions of the Laplacian on a domain, at nodes and at any place."""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from scipy.linalg import blas

from geobgp.errors import SizeError, option
from geobgp.land.domain import Domain
from geobgp.land.reproject import place_coordinates
from geobgp.linalg.eigen import memory_needed, smallest_eigenpairs
from geobgp.linalg.memory import free_memory
from geobgp.prior import cache as stored
from geobgp.prior.base import Basis
from geobgp.prior.kernels import Kernel, Matern
from geobgp.prior.laplacian import Boundary, Discretisation, Scheme, correct_eigenvalues, discretise
from geobgp.progress import ProgressLike, Stage, as_progress
from geobgp.text import count, number

if TYPE_CHECKING:
    import matplotlib.axes


@dataclass(frozen=True, eq=False)
class HarmonicBasis(Basis):
    """The first m eigenfunctions of the negative Laplacian on a domain, as features.

    Make one with `HarmonicBasis.compute`.

    Attributes
    ----------
    domain : Domain
    boundary : "neumann" or "dirichlet"
    scheme : "subcell" or "staircase"
    eigenvalues : (m,) array
        Ascending, in 1/length² of the domain's unit; the leading error of the grid is taken out. Under
        Neumann there is one zero for every connected piece of land.
    vectors : (u, m) array, C order
        Values at the unknowns, orthonormal in `mass`: ``vectors.T @ (mass[:, None] * vectors)`` is the
        identity.
    features : (n_nodes, m) array, C order (the values at one node lie side by side)
        Values at the nodes. Under Neumann with ``scheme="subcell"`` unknowns and nodes are the same, and so
        are `features` and `vectors`.
    mass : (u,) array
        Area that each unknown stands for (Neumann: the node's area; Dirichlet: the cell's).

    Notes
    -----
    A basis is the same bit for bit on every run on a machine. Signs, and the axes within a repeated
    eigenvalue, follow a fixed rule that knows nothing of m, so the first m' features of a larger basis are
    those of a basis of m', up to the solver's tolerance. Where m' cuts a repeated eigenvalue, this holds too,
    but the space that such a basis spans is not the domain's own choice: the other axes of that eigenvalue
    would have had the same right.

    Examples
    --------
    >>> import shapely
    >>> domain = Domain.from_polygons(shapely.box(0, 0, 2, 1), cell_size=0.05, crs="local")
    >>> basis = HarmonicBasis.compute(domain, m=4, cache=False)
    >>> (4 * basis.eigenvalues / np.pi**2).round(2).tolist()  # k² + (2 l)²
    [0.0, 1.0, 4.0, 4.0]
    >>> basis.features.shape
    (800, 4)
    >>> np.isnan(basis.evaluate([[0.5, 0.5], [3.0, 0.5]])).any(axis=1).tolist()
    [False, True]
    """

    truncated = True

    domain: Domain
    boundary: Boundary
    scheme: Scheme
    eigenvalues: np.ndarray = field(repr=False)
    vectors: np.ndarray = field(repr=False)
    discretisation: Discretisation = field(repr=False)

    @classmethod
    def compute(
        cls,
        domain: Domain,
        m: int = 256,
        *,
        boundary: Boundary = "neumann",
        scheme: Scheme = "subcell",
        cache: bool = True,
        progress: ProgressLike = False,
    ) -> HarmonicBasis:
        """Compute the first `m` features of a domain, or read them if they were computed before.

        Parameters
        ----------
        domain : Domain
        m : int
            Number of features, at most two less than there are unknowns.
        boundary : "neumann" or "dirichlet"
            Whether features level off at the shore or vanish there.
        scheme : "subcell" or "staircase"
            Whether the shore is where it is, or follows the edges of whole cells (as in the paper; for
            comparison).
        cache : bool
            Keep the basis on disk, and read it (or the first m of a larger one) from there; see
            `geobgp.prior.cache`. A stored file that is damaged is reported and computed again.
        progress : bool, Progress, Stage or callable
            Tell of it on standard error, or to whoever is given; see `geobgp.progress`.
        """
        m = _whole_number(m)
        with as_progress(progress).stage("features") as stage:
            stage.tell("operator")
            made = discretise(domain, boundary=boundary, scheme=scheme)
            n = made.matrix.shape[0]
            _check_size(n, domain.n_nodes, m, domain)
            key = stored.key_of(made) if cache else ""
            pairs = stored.read(key, n, m) if cache else None
            if pairs is None:
                pairs = _compute(made, m, stage)
                if cache:
                    stored.write(key, *pairs)
            stage.note(f"{m:,}, {boundary}")
        values = correct_eigenvalues(pairs[0], domain.cell_size)
        return cls(domain, boundary, scheme, _frozen(values), _frozen(pairs[1]), made)

    @property
    def m(self) -> int:
        """Number of features."""
        return len(self.eigenvalues)

    @property
    def label(self) -> str:
        """How many features there are, in words."""
        return count(self.m, "feature")

    @property
    def weights(self) -> str:
        """What the weights belong to, in words."""
        return f"{count(self.m, 'harmonic feature')} of the land"

    @property
    def highest_eigenvalue(self) -> float:
        """The last feature's eigenvalue."""
        return float(self.eigenvalues[-1])

    @property
    def mass(self) -> np.ndarray:
        """Area that each unknown stands for."""
        return self.discretisation.mass

    @cached_property
    def features(self) -> np.ndarray:
        """Values at the nodes, (n_nodes, m), C order."""
        if self.boundary == "neumann" and self.scheme == "subcell":
            return self.vectors
        return _frozen(np.ascontiguousarray(self.discretisation.to_nodes @ self.vectors))

    def evaluate(self, coords: Any) -> np.ndarray:
        """Return the features at coordinates (k, 2), easting and northing: (k, m); NaN off land.

        Between nodes values are interpolated bilinearly, from land on the coordinate's own side of every
        shore and barrier only; towards a Dirichlet shore they fall to zero. At the centres of cells they
        equal `features`. Coordinates in water, outside the grid or not finite give rows of NaN.
        """
        xy = place_coordinates(coords, self.domain.crs)
        matrix, inside = self.discretisation.at(xy)
        out = np.asarray(matrix @ self.vectors)
        out[~inside] = np.nan
        return out

    def truncate(self, m: int) -> HarmonicBasis:
        """Return the basis of the first `m` features."""
        m = _whole_number(m)
        if m > self.m:
            raise SizeError(f"The basis has {self.m} features, fewer than m = {m}; compute a larger one.")
        first = _frozen(np.ascontiguousarray(self.vectors[:, :m]))
        values = _frozen(self.eigenvalues[:m].copy())
        return HarmonicBasis(self.domain, self.boundary, self.scheme, values, first, self.discretisation)

    def default_kernel(self) -> Kernel:
        """Return `Matern(1.5)`."""
        return Matern(1.5)

    def sample_prior(self, kernel: Kernel, n: int, rng: np.random.Generator) -> np.ndarray:
        """Return (n, n_nodes) draws of the field at the nodes; the kernel's parameters must be set."""
        scale = np.sqrt(kernel.spectral_density(np.sqrt(self.eigenvalues)))
        weights = scale * rng.standard_normal((n, len(scale)))
        return np.ascontiguousarray(blas.dgemm(1.0, weights, self.features.T))

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return eigenvalues and vectors."""
        return {"eigenvalues": self.eigenvalues, "vectors": self.vectors}

    @classmethod
    def from_arrays(cls, domain: Domain, facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> Self:
        """Rebuild a basis on its domain from what was stored."""
        made = discretise(domain, **facts)
        fields: dict[str, Any] = facts | arrays
        return cls(domain=domain, discretisation=made, **fields)

    def plot(self, k: int = 15, axes: Any = None) -> Any:
        """Draw the first `k` features on the domain; see `geobgp.output.plots.plot_basis`."""
        from geobgp.output.plots import plot_basis

        return plot_basis(self, k, axes)

    def plot_sparsity(self, ax: matplotlib.axes.Axes | None = None) -> matplotlib.axes.Axes:
        """Draw where the operator's entries are: a pixel for every unknown, or for a square of them."""
        import matplotlib.pyplot as plt

        if ax is None:
            ax = plt.subplots(figsize=(5.2, 5.4), layout="constrained")[1]
        matrix = self.discretisation.matrix
        n = matrix.shape[0]
        row, col = matrix.tocoo().coords
        pixels = min(n, 500)
        edges = np.linspace(0, n, pixels + 1)
        found = np.histogram2d(row, col, bins=[edges, edges])[0]
        shown = np.where(found > 0, np.log1p(found), np.nan)
        image = ax.imshow(shown, cmap="Greys", vmin=-0.6 * np.log1p(found.max()), extent=(0, n, n, 0))
        image.set_interpolation("nearest")
        ax.set_title(
            f"{self.boundary}, {self.scheme}: {n:,} unknowns, {matrix.nnz / n:.2f} entries each", fontsize=10
        )
        ax.set_xlabel("unknown")
        ax.set_ylabel("unknown")
        return ax

    def __repr__(self) -> str:
        return (
            f"HarmonicBasis(m={self.m}, {self.boundary}, {self.scheme}, {len(self.vectors):,} unknowns, "
            f"eigenvalues {self.eigenvalues[0]:.3g} to {self.eigenvalues[-1]:.3g})"
        )


def _compute(made: Discretisation, m: int, stage: Stage) -> tuple[np.ndarray, np.ndarray]:
    """Return the operator's eigenvalues and the functions at its unknowns, orthonormal in its mass."""
    values, vectors = smallest_eigenpairs(made.matrix, m, coords=made.cells, stage=stage)
    root = 1 / np.sqrt(made.mass)
    out = np.empty(vectors.shape)
    # By blocks of rows, so that turning the order round stays within the processor's cache.
    for start in range(0, len(out), 512):
        rows = slice(start, start + 512)
        np.multiply(vectors[rows], root[rows, None], out=out[rows])
    return values, out


# -- limits --------------------------------------------------------------------------------------------------


def _whole_number(m: Any) -> int:
    try:
        value = operator.index(m)
    except TypeError:
        raise SizeError(f"m, the number of features, is a whole number; found {m!r}.") from None
    if value < 1:
        raise SizeError(f"m, the number of features, is at least 1; found {value}.")
    return value


def _check_size(n: int, n_nodes: int, m: int, domain: Domain) -> None:
    """Refuse what the domain does not have, or the memory does not hold."""
    below, above = (
        f"a {option('cell_size')} {side} {number(domain.cell_size)}" for side in ("below", "above")
    )
    if m > n - 2:
        raise SizeError(
            f"{m:,} features were asked for, but the domain's {n:,} unknowns give at most {max(n - 2, 0):,}.",
            option="m",
            found=m,
            remedy=f"Use {_at_most(n - 2)}, or {below}." if n > 2 else f"Use {below}.",
        )
    free = free_memory()
    need = memory_needed(n, m) + (8 * n_nodes * m if n_nodes != n else 0)
    if free is not None and need > free:
        fits = max(int(m * (free - memory_needed(n, 0)) / max(need - memory_needed(n, 0), 1)), 0)
        raise SizeError(
            f"{m:,} features of {n:,} unknowns need about {number(need / 1e9, 3)} GB of memory; "
            f"{number(free / 1e9, 3)} GB are free.",
            option="m",
            found=m,
            remedy=f"Use {_at_most(fits) if fits > 0 else 'fewer features'}, or {above}.",
        )


def _at_most(m: int) -> str:
    return option("m", f"{m} or fewer", python=f"m <= {m:,}")


def _frozen(array: np.ndarray) -> np.ndarray:
    array.setflags(write=False)
    return array
