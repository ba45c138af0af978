"""A small land over periods: an outbreak that moves from west to east, with a season, and a fit of it."""

from __future__ import annotations

import numpy as np
import shapely

from geobgp import LGCP, Domain, HarmonicBasis, Matern, Periods

KERNEL = Matern(1.5, lengthscale=4.0, sd=1.0)


def domain() -> Domain:
    return Domain.from_polygons(shapely.box(0, 0, 12, 8), cell_size=1, crs="local")


def basis(m: int = 24) -> HarmonicBasis:
    return HarmonicBasis.compute(domain(), m=m, cache=False)


def truth(n_periods: int, points: np.ndarray) -> np.ndarray:
    """Events per unit area: (n_periods, n_nodes)."""
    x, y = points.T
    t = np.arange(n_periods)[:, None]
    middle = 2.0 + 8.0 * t / max(n_periods - 1, 1)
    season = np.exp(0.5 * np.cos(2 * np.pi * t / 12))
    return season * (0.3 + 3.0 * np.exp(-0.5 * (((x - middle) / 2.0) ** 2 + ((y - 4.0) / 2.0) ** 2)))


def counts(n_periods: int, seed: int = 0) -> np.ndarray:
    land = domain()
    return np.random.default_rng(seed).poisson(truth(n_periods, land.node_points) * land.node_areas).astype(float)


def months(n_periods: int) -> Periods:
    return Periods.of_ordinals("month", 480, 480 + n_periods - 1)


def fitted(n_periods: int = 30, seed: int = 0, **model):
    return LGCP(basis(), KERNEL, dynamics="separable", **model).fit(
        counts(n_periods, seed), periods=months(n_periods), resume=False
    )
