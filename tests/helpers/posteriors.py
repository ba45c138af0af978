"""Domains of several kinds and posteriors on them: fitted ones, and ones of prescribed numbers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import geopandas as gpd
import numpy as np
import shapely

from geobgp.data.effects import Effects
from geobgp.inference.families import Poisson
from geobgp.inference.fit import Fit
from geobgp.land.domain import Domain
from geobgp.model import LGCP
from geobgp.posterior import Posterior
from geobgp.prior.full_rank import FullRank
from geobgp.prior.harmonic import HarmonicBasis
from geobgp.prior.kernels import Matern


@dataclass(frozen=True, eq=False)
class PrescribedState:
    """A state whose linear predictor has a given mean and sd at every node, independent of each other."""

    mean: np.ndarray
    spread: np.ndarray
    lengthscale: float
    sd: float
    weight: float = 1.0
    noise: float = float("nan")

    def node_moments(self) -> tuple[np.ndarray, np.ndarray]:
        return self.mean, self.spread**2

    def sample_nodes(self, n: int, rng: np.random.Generator) -> np.ndarray:
        return self.mean + self.spread * rng.standard_normal((n, len(self.mean)))

    def coefficients(self) -> tuple[np.ndarray, np.ndarray]:
        return np.array([self.mean.mean()]), np.array([[0.01]])


def prescribed(
    domain: Domain, log_median: np.ndarray | float, log_sd: np.ndarray | float, title: str = ""
) -> Posterior:
    """Return a posterior of 1,234 points whose intensity is log-normal with given numbers at every node."""
    kernel = Matern(1.0, lengthscale=2.0 * domain.length_unit[0], sd=1.1)
    mean, spread = (np.broadcast_to(np.asarray(v, float), (domain.n_nodes,)) for v in (log_median, log_sd))
    fit = Fit(
        states=(PrescribedState(mean, spread, kernel.lengthscale, kernel.sd),),
        elbo=-4605.1,
        elbo_trace=np.array([-5200.0, -4700.0, -4620.0, -4607.0, -4605.2, -4605.1]),
        converged=True,
        message="prescribed",
        hyper_mean=np.log([kernel.lengthscale, kernel.sd]),
        hyper_cov=np.zeros((2, 2)),
    )
    return Posterior(
        fit=fit,
        basis=FullRank(domain),
        kernel=kernel,
        likelihood=Poisson.without_data({}),
        exposure=domain.node_areas / domain.area_unit[0],
        exposure_kind="area",
        design=Effects(),
        points={"used": 1234},
        created="2020-02-02T20:20:20+00:00",
        title=title,
    )


def bumps(domain: Domain, seed: int = 1, n: int = 12) -> np.ndarray:
    """A smooth, skewed log-intensity at the nodes."""
    rng = np.random.default_rng(seed)
    west, south, east, north = domain.grid.bounds
    centre = rng.uniform([west, south], [east, north], (n, 2))
    width = rng.uniform(0.05, 0.2, n) * max(east - west, north - south)
    height = rng.normal(1.0, 1.5, n)
    gap = domain.node_points[:, None, :] - centre
    return -2.0 + (height * np.exp(-(gap**2).sum(axis=2) / (2 * width**2))).sum(axis=1)


@cache
def island(cell_size: float = 1000.0) -> Domain:
    """Forty by thirty km in the Dutch national grid, with a lake, an islet, a river thinner than a cell."""
    land = shapely.union_all(
        [shapely.Point(155_000, 463_000).buffer(18_000), shapely.box(150_000, 455_000, 175_300, 470_200)]
    )
    land = land.union(shapely.box(136_100, 479_200, 136_400, 479_500))
    lake = shapely.Point(160_000, 463_000).buffer(3_300)
    river = shapely.LineString([(130_000, 458_400), (150_000, 460_700), (180_000, 458_900)]).buffer(120)
    water = gpd.GeoSeries([lake, river], crs=28992)
    return Domain.from_polygons(gpd.GeoSeries([land], crs=28992), water=water, cell_size=cell_size, crs=28992)


@cache
def across_180(cell_size: float = 5000.0) -> Domain:
    """Land on both sides of the antimeridian."""
    land = gpd.GeoSeries([shapely.box(178.2, -18.0, 180, -16.2), shapely.box(-180, -18.0, -178.5, -16.5)], crs=4326)
    return Domain.from_polygons(land, cell_size=cell_size)


@cache
def disc(cell_size: float = 0.1) -> Domain:
    """A disc with no place on Earth."""
    return Domain.from_polygons(shapely.Point(3, 3).buffer(1, quad_segs=64), cell_size=cell_size, crs="local")


@cache
def fitted(m: int = 64) -> tuple[Posterior, np.ndarray]:
    """A real posterior on a coarse island, and the counts it was fitted to."""
    domain = island(2000.0)
    expected = np.exp(bumps(domain)) * domain.node_areas / 1e6
    counts = np.random.default_rng(3).poisson(expected)
    basis = HarmonicBasis.compute(domain, m, cache=False)
    return LGCP(basis, Matern(1.5)).fit(counts.astype(float)), counts
