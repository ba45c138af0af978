"""HarmonicBasis: eigenfunctions of the Laplacian on a domain, at nodes and at any place."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from scipy.linalg import blas
from scipy.sparse.csgraph import connected_components

from geobgp.errors import SizeError, option
from geobgp.land.crs import place_coordinates
from geobgp.land.domain import Domain
from geobgp.linalg.blas import free_memory, frozen
from geobgp.linalg.eigen import EigenPart, eigenpairs_by_part, memory_needed
from geobgp.prior import cache as stored
from geobgp.prior.basis import SCALING, Basis, FeaturePart, Scaling, dense, first_features, from_arrays, to_arrays
from geobgp.prior.kernels import Kernel, Matern
from geobgp.prior.laplacian import PRIOR, Boundary, Discretisation, Scheme, correct_eigenvalues, discretise
from geobgp.progress import ProgressLike, Stage, as_progress
from geobgp.text import count, number
from geobgp.validation import DOMAIN, FLAG, KERNEL, PROGRESS, SEVERAL_AXES, validated, whole

if TYPE_CHECKING:
    pass

_FEATURES = whole(1).raising(SizeError)


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
    permeability : float
        Correlation range over water as a share of that over land.
    parts : tuple of FeaturePart
        The features by connected part of the land, on which alone they differ from zero.
    vectors : (u, m) array, C order
        Values at the unknowns, orthonormal in `mass`: ``vectors.T @ (mass[:, None] * vectors)`` is the
        identity. Written out on demand.
    features : (n_nodes, m) array, C order (the values at one node lie side by side)
        Values at the nodes, written out on demand. Under Neumann with ``scheme="subcell"`` nodes are the first
        unknowns.
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
    parts: tuple[FeaturePart, ...] = field(repr=False)
    discretisation: Discretisation = field(repr=False)
    permeability: float = 0.0

    @classmethod
    @validated(domain=DOMAIN, m=_FEATURES, **PRIOR, cache=FLAG, progress=PROGRESS)
    def compute(
        cls,
        domain: Domain,
        m: int = 256,
        *,
        boundary: Boundary = "neumann",
        permeability: float = 0.0,
        scheme: Scheme = "subcell",
        cache: bool = True,
        progress: ProgressLike = False,
    ) -> HarmonicBasis:
        """Compute the first `m` features of a domain, or read them if they were computed before.

        Parameters
        ----------
        domain : Domain
        m : int
            Number of features, at most two less than there are unknowns. On land of several parts the constants of all
            but the largest come on top: `m` sets the eigenvalue up to which every part has its features. With
            permeable water the features that live there come on top as well.
        boundary : "neumann" or "dirichlet"
            Whether features level off at the shore or vanish there.
        permeability : float
            Correlation range over water as a share of that over land: 0 is a closed shore, 1 takes water for land.
        scheme : "subcell" or "staircase"
            Whether the shore is where it is, or follows the edges of whole cells (as in the paper; for
            comparison).
        cache : bool
            Keep the basis on disk, and read it (or the first m of a larger one) from there; see
            `geobgp.prior.cache`. A stored file that is damaged is reported and computed again.
        progress : bool, Progress, Stage or callable
            Tell of it on standard error, or to whoever is given; see `geobgp.progress`.
        """
        with as_progress(progress).stage("features") as stage:
            stage.tell("operator")
            operator = discretise(domain, boundary=boundary, scheme=scheme, permeability=permeability)
            wanted = _number_of_features(operator, domain, m)
            key = stored.key_of(operator) if cache else ""
            cached = stored.read(key, operator.matrix.shape[0], wanted) if cache else None
            if cached is None:
                cached = _compute(operator, wanted, stage)
                if cache:
                    stored.write(key, *cached)
            stage.note(f"{wanted:,}, {boundary}")
        values = correct_eigenvalues(cached[0], domain.cell_size)
        return cls(domain, boundary, scheme, frozen(values), cached[1], operator, permeability)

    @classmethod
    def from_vectors(cls, made: Discretisation, eigenvalues: np.ndarray, vectors: np.ndarray) -> HarmonicBasis:
        """Make a basis of any functions at the unknowns of an operator, orthonormal in its mass."""
        part = FeaturePart(np.arange(len(vectors)), np.arange(vectors.shape[1]), np.ascontiguousarray(vectors))
        return cls(made.domain, made.boundary, made.scheme, eigenvalues, (part,), made, made.permeability)

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
    def land_features(self) -> float:
        """About how many of the features are the land's own: all but those of permeable water."""
        return self.m / dilution(self.discretisation)

    @property
    def highest_eigenvalue(self) -> float:
        """The last feature's eigenvalue."""
        return float(self.eigenvalues[-1])

    @property
    def mass(self) -> np.ndarray:
        """Area that each unknown stands for."""
        return self.discretisation.mass

    @cached_property
    def vectors(self) -> np.ndarray:
        """Values at the unknowns, (u, m), C order: `parts` written out."""
        return frozen(dense(self.parts, len(self.mass), self.m))

    @cached_property
    def features(self) -> np.ndarray:
        """Values at the nodes, (n_nodes, m), C order."""
        if self._nodes_are_unknowns:
            return self.vectors[: self.domain.n_nodes]
        return frozen(np.ascontiguousarray(self.discretisation.to_nodes @ self.vectors))

    @property
    def _nodes_are_unknowns(self) -> bool:
        return self.boundary == "neumann" and self.scheme == "subcell"

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

    def by_part(
        self, coords: np.ndarray | None = None
    ) -> tuple[int, list[np.ndarray | slice], list[np.ndarray], list[np.ndarray]]:
        """Return the features at the nodes, or at coordinates (k, 2) on land, by part of the land.

        Returns
        -------
        n : int
            Places.
        rows : list of int arrays or slices
            The places on each part.
        matrices : list of (n_c, m_c) arrays
            Its features there.
        columns : list of (m_c,) int arrays
            Which features these are.
        """
        columns = [part.columns for part in self.parts]
        n_nodes = self.domain.n_nodes
        if len(self.parts) == 1 or not self._nodes_are_unknowns:
            at = self.features if coords is None else np.ascontiguousarray(self.evaluate(coords))
            return len(at), [slice(None)], [at], [np.arange(self.m)]
        if coords is None:
            inner = [int(np.searchsorted(part.unknowns, n_nodes)) for part in self.parts]
            rows: list[np.ndarray | slice] = [p.unknowns[:k] for p, k in zip(self.parts, inner, strict=True)]
            return n_nodes, rows, [p.vectors[:k] for p, k in zip(self.parts, inner, strict=True)], columns
        label = np.full(len(self.mass), -1)
        for k, part in enumerate(self.parts):
            label[part.unknowns] = k
        way = self.discretisation.at(coords)[0]
        own = label[self.domain.node_at(coords)]
        order = np.argsort(own, kind="stable")
        ends = np.searchsorted(own[order], np.arange(len(self.parts) + 1))
        mine = [order[a:b] for a, b in pairwise(ends)]
        matrices = [
            np.ascontiguousarray(way[at][:, part.unknowns] @ part.vectors)
            if len(at)
            else np.zeros((0, len(part.columns)))
            for at, part in zip(mine, self.parts, strict=True)
        ]
        return len(coords), [*mine], matrices, columns

    @validated(m=_FEATURES)
    def truncate(self, m: int) -> HarmonicBasis:
        """Return the basis that `compute` gives for a smaller `m`."""
        number = _number_of_features(self.discretisation, self.domain, m)
        if number > self.m:
            raise SizeError(f"The basis has {self.m} features, fewer than m = {m} asks for; compute a larger one.")
        values = frozen(self.eigenvalues[:number].copy())
        return replace(self, eigenvalues=values, parts=first_features(self.parts, number))

    def default_kernel(self) -> Kernel:
        """Return `Matern(1.5)`."""
        return Matern(1.5)

    @validated(kernel=KERNEL, n=whole(), scaling=SCALING)
    def sample_prior(
        self, kernel: Kernel, n: int, rng: np.random.Generator, scaling: Scaling = "natural"
    ) -> np.ndarray:
        """Return (n, n_nodes) draws of the field at the nodes; the kernel's parameters must be set."""
        density = kernel.spectral_density(np.sqrt(self.eigenvalues))
        weights = np.sqrt(density) * rng.standard_normal((n, len(density)))
        out = np.ascontiguousarray(blas.dgemm(1.0, weights, self.features.T))
        if scaling == "even":
            assert kernel.sd is not None
            out *= kernel.sd / np.sqrt(np.square(self.features) @ density)
        return out

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return eigenvalues and features."""
        return {"eigenvalues": self.eigenvalues} | to_arrays(self.parts)

    @classmethod
    def from_arrays(cls, domain: Domain, facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> Self:
        """Rebuild a basis on its domain from what was stored."""
        operator = discretise(domain, **facts)
        values = arrays["eigenvalues"]
        parts = from_arrays(arrays, operator.matrix.shape[0], len(values))
        return cls(domain=domain, discretisation=operator, eigenvalues=values, parts=parts, **facts)

    @validated(k=whole(1), axes=SEVERAL_AXES)
    def plot(self, k: int = 15, axes: Any = None) -> Any:
        """Draw the first `k` features on the domain; see `geobgp.output.figures.plot_basis`."""
        from geobgp.output.figures import plot_basis

        return plot_basis(self, k, axes)

    def __repr__(self) -> str:
        return (
            f"HarmonicBasis(m={self.m}, {self.boundary}, {self.scheme}, {len(self.mass):,} unknowns, "
            f"eigenvalues {self.eigenvalues[0]:.3g} to {self.eigenvalues[-1]:.3g})"
        )


def _compute(made: Discretisation, number: int, stage: Stage) -> tuple[np.ndarray, tuple[FeaturePart, ...]]:
    """Return the operator's eigenvalues and the functions at its unknowns, orthonormal in its mass."""
    values, vectors = eigenpairs_by_part(made.matrix, number, coords=made.cells, stage=stage)
    if not (made.boundary == "neumann" and made.scheme == "subcell"):
        # Values at the nodes may mix those of several parts: they are kept as one.
        whole = np.zeros((len(made.mass), number), order="F")
        for part in vectors:
            whole[np.ix_(part.rows, part.columns)] = part.vectors
        vectors = [EigenPart(np.arange(len(made.mass)), np.arange(number), whole)]
    parts = []
    for part in vectors:
        root = 1 / np.sqrt(made.mass[part.rows])
        out = np.empty(part.vectors.shape)
        # By blocks of rows, so that turning the order round stays within the processor's cache.
        for start in range(0, len(out), 512):
            rows = slice(start, start + 512)
            np.multiply(part.vectors[rows], root[rows, None], out=out[rows])
        parts.append(FeaturePart(part.rows, part.columns, frozen(out)))
    return values, tuple(parts)


# -- limits --------------------------------------------------------------------------------------------------


def check_features(domain: Domain, m: int, boundary: Boundary) -> None:
    """Refuse a number of features that the domain lacks, or the memory does not hold, before anything is computed."""
    _number_of_features(discretise(domain, boundary=boundary), domain, _FEATURES("m", m))


def dilution(made: Discretisation) -> float:
    """Return how many features there are for each one of the land: more than one with permeable water.

    By Weyl's law; waves on water are shorter by the permeability.
    """
    water = float(made.mass[made.n_nodes :].sum()) if made.permeability > 0 else 0.0
    land = float(made.mass.sum()) - water
    return 1.0 + (water / made.permeability**2 / land if water else 0.0)


def _number_of_features(made: Discretisation, domain: Domain, m: int) -> int:
    """Return how many features `m` stands for; refuse what the domain lacks, or the memory does not hold.

    The constants of all parts of the land but one come on top, and so do features that live in permeable water.
    """
    n = made.matrix.shape[0]
    constants = connected_components(made.matrix, directed=False)[0] - 1 if made.boundary == "neumann" else 0
    below, above = (f"a {option('cell_size')} {side} {number(domain.cell_size)}" for side in ("below", "above"))
    most = n - constants - 2
    if m > most:
        whose = f"the domain's {n:,} unknowns"
        if constants:
            whose += f" are on {constants + 1:,} separate pieces of land, and beside a constant for each of these"
        instead = [option("m", "full", python='full resolution (m="full")')] if constants else []
        instead = [_at_most(most), *instead] if most > 0 else instead
        raise SizeError(
            f"{m:,} features were asked for, but {whose} give at most {max(most, 0):,}.",
            option="m",
            found=m,
            remedy=f"Use {', '.join([*instead, f'or {below}'] if instead else [below])}.",
        )
    features = min(int(np.ceil(m * dilution(made))), most) + constants
    free = free_memory()
    need = memory_needed(n, features) + (8 * domain.n_nodes * features if domain.n_nodes != n else 0)
    if free is not None and need > free:
        fits = max(int(m * (free - memory_needed(n, 0)) / max(need - memory_needed(n, 0), 1)), 0)
        raise SizeError(
            f"{m:,} features of {n:,} unknowns need about {number(need / 1e9, 3)} GB of memory; "
            f"{number(free / 1e9, 3)} GB are free.",
            option="m",
            found=m,
            remedy=f"Use {_at_most(fits) if fits > 0 else 'fewer features'}, or {above}.",
        )
    return features


def _at_most(m: int) -> str:
    return option("m", f"{m} or fewer", python=f"m <= {m:,}")
