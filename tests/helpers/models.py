"""Small domains, bases and problems that the tests of inference share."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

import numpy as np
import shapely
from scipy.special import logsumexp, softmax

from geobgp.inference.engine import Engine, engine_for
from geobgp.inference.families import Poisson
from geobgp.land.domain import Domain
from geobgp.prior.full_rank import FullRank
from geobgp.prior.harmonic import HarmonicBasis
from geobgp.prior.kernels import Kernel, PCPrior
from geobgp.prior.laplacian import discretise


def all_modes(domain: Domain, boundary: str = "neumann", m: int | None = None) -> HarmonicBasis:
    """Every eigenvector of the operator as a feature, eigenvalues as they are: what FullRank must equal."""
    made = discretise(domain, boundary=boundary)
    values, vectors = np.linalg.eigh(made.matrix.toarray())
    m = len(values) if m is None else m
    vectors = vectors[:, :m] / np.sqrt(made.mass)[:, None]
    return HarmonicBasis.from_vectors(made, np.maximum(values[:m], 0.0), vectors)


@dataclass(frozen=True)
class Mixed(Kernel):
    """Half of the variance at one lengthscale, half at a shorter one: a kernel of a user's own."""

    ratio: float = 0.5
    lengthscale: float | None = None
    sd: float | None = None
    prior: PCPrior = field(default_factory=PCPrior)

    def log_shape(self, q: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        r2 = np.array([1.0, self.ratio**2])[:, None]
        q = np.asarray(q, float)
        logs = np.log(0.5 * r2) - 0.5 * r2 * q.ravel()
        weight = softmax(logs, axis=0)
        slope = -r2 * q.ravel()
        first = (weight * slope).sum(axis=0)
        second = (weight * (slope**2 + 2.0 * slope)).sum(axis=0) - first**2
        return tuple(v.reshape(q.shape) for v in (logsumexp(logs, axis=0), first, second))

    def truncated_variance(self, eigenvalue: float, lengthscale: float) -> float:
        q = eigenvalue * lengthscale**2
        return 0.5 * float(np.exp(-0.5 * q) + np.exp(-0.5 * q * self.ratio**2))

    @property
    def name(self) -> str:
        return "mixed"


@cache
def square(side: float = 10.0, cell: float = 1.0) -> Domain:
    return Domain.from_polygons(shapely.box(0, 0, side, side), cell_size=cell, crs="local")


def archipelago_land(scale: float = 1.0) -> tuple[shapely.Geometry, shapely.Geometry]:
    """Return land with a bay, an island, an empty islet, and a river thinner than a cell."""
    land = shapely.box(0, 0, 12, 10).difference(shapely.box(5.3, 4.2, 8.1, 10))
    land = shapely.union_all([land, shapely.box(13.2, 1, 16.1, 4.3), shapely.box(13.5, 7.2, 14.6, 8.4)])
    river = shapely.LineString([(-1, 2.1), (6, 2.6), (12.5, 2.3)]).buffer(0.06)
    grow = [scale, 0, 0, scale, 0, 0]
    from shapely.affinity import affine_transform

    return affine_transform(land, grow), affine_transform(river, grow)


@cache
def archipelago(cell: float = 0.8, scale: float = 1.0) -> Domain:
    land, river = archipelago_land(scale)
    return Domain.from_polygons(land, water=river, cell_size=cell * scale, crs="local")


def poisson_problem(domain: Domain, seed: int = 0, total: float = 300.0) -> Poisson:
    rng = np.random.default_rng(seed)
    xy = domain.node_points / np.sqrt(domain.node_areas.sum())
    rate = domain.node_areas * np.exp(np.sin(6 * xy[:, 0]) + np.cos(5 * xy[:, 1]))
    counts = rng.poisson(rate * total / rate.sum()).astype(float)
    exposure = domain.node_areas
    return Poisson(counts, exposure, float(np.log(max(counts.sum(), 0.5) / exposure.sum())))


def feature_engine(basis: HarmonicBasis, kernel: Kernel, fixed_sd: float = 10.0) -> Engine:
    ones = np.ones((basis.domain.n_nodes, 1))
    return engine_for(basis, kernel, ones, np.array([fixed_sd]))


def prior_covariance(basis: HarmonicBasis, kernel: Kernel, fixed_sd: float | None = 10.0) -> np.ndarray:
    """Return the prior covariance at the nodes, written out."""
    s = kernel.spectral_density(np.sqrt(basis.eigenvalues))
    out = (basis.features * s) @ basis.features.T
    return out if fixed_sd is None else out + fixed_sd**2


def sparse_engine(domain: Domain, kernel: Kernel, boundary: str = "neumann", fixed_sd: float = 10.0) -> Engine:
    full = FullRank(domain, boundary=boundary)
    return engine_for(full, kernel, np.ones((domain.n_nodes, 1)), np.array([fixed_sd]))
