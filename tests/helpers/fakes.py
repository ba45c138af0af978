"""A posterior with known numbers, for whatever only shows it."""

from __future__ import annotations

import geopandas as gpd
import numpy as np
import shapely
from scipy.special import ndtr

from geobgp.land.domain import Domain
from geobgp.model import LGCP
from geobgp.output import grids
from geobgp.posterior import Posterior
from geobgp.prior.harmonic import HarmonicBasis
from geobgp.prior.kernels import Matern

Z95 = 1.6448536269514722


class FakePosterior:
    """A log-normal intensity with given log-mean and log-sd at every node."""

    def __init__(
        self,
        domain: Domain,
        log_median: np.ndarray,
        log_sd: np.ndarray | float,
        title: str = "",
        n_points: int = 1234,
    ) -> None:
        self.domain = domain
        self.mu = np.broadcast_to(np.asarray(log_median, float), (domain.n_nodes,))
        self.s = np.broadcast_to(np.asarray(log_sd, float), (domain.n_nodes,))
        self.title = title
        self.n_points = n_points
        self.units = f"events per {domain.area_unit[1]}"
        self.elbo_trace = np.array([-5200.0, -4700.0, -4620.0, -4607.0, -4605.2, -4605.1])
        self.lengthscale, self.sd = 25_000.0, 1.1

    @property
    def node_values(self) -> dict[str, np.ndarray]:
        mean = np.exp(self.mu + self.s**2 / 2)
        return {
            "mean": mean,
            "sd": mean * np.sqrt(np.expm1(self.s**2)),
            "q05": np.exp(self.mu - Z95 * self.s),
            "q50": np.exp(self.mu),
            "q95": np.exp(self.mu + Z95 * self.s),
        }

    def intensity(self):
        about = {name: {"units": self.units, "long_name": f"intensity, {name}"} for name in self.node_values}
        attrs = {"title": self.title, "n_points": self.n_points}
        return grids.dataset(self.domain, self.node_values, variables=about, attrs=attrs)

    def exceedance(self, threshold: float):
        values = ndtr((self.mu - np.log(threshold)) / self.s)
        about = {"units": "1", "long_name": f"probability of more than {threshold:g}"}
        return grids.dataset(self.domain, {"exceedance": values}, variables={"exceedance": about})[
            "exceedance"
        ]

    def summary(self) -> str:
        return f"{self.n_points} points"


def bumps(domain: Domain, seed: int = 1, n: int = 12) -> np.ndarray:
    """A smooth, skewed log-intensity at the nodes."""
    rng = np.random.default_rng(seed)
    west, south, east, north = domain.grid.bounds
    centre = rng.uniform([west, south], [east, north], (n, 2))
    width = rng.uniform(0.05, 0.2, n) * max(east - west, north - south)
    height = rng.normal(1.0, 1.5, n)
    gap = domain.node_points[:, None, :] - centre
    return -2.0 + (height * np.exp(-(gap**2).sum(axis=2) / (2 * width**2))).sum(axis=1)


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


def across_180(cell_size: float = 5000.0) -> Domain:
    """Land on both sides of the antimeridian."""
    land = gpd.GeoSeries(
        [shapely.box(178.2, -18.0, 180, -16.2), shapely.box(-180, -18.0, -178.5, -16.5)], crs=4326
    )
    return Domain.from_polygons(land, cell_size=cell_size)


def disc(cell_size: float = 0.1) -> Domain:
    """A disc with no place on Earth."""
    return Domain.from_polygons(shapely.Point(3, 3).buffer(1, quad_segs=64), cell_size=cell_size, crs="local")


def fitted(m: int = 64) -> tuple[Posterior, np.ndarray]:
    """A real posterior on a coarse island, and the counts it was fitted to."""
    domain = island(2000.0)
    expected = np.exp(bumps(domain)) * domain.node_areas / 1e6
    counts = np.random.default_rng(3).poisson(expected)
    basis = HarmonicBasis.compute(domain, m, cache=False)
    return LGCP(basis, Matern(1.5)).fit(counts.astype(float)), counts
