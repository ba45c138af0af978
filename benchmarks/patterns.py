"""Clustered patterns of points on land, simulated and real, and their thinnings into two parts.

Simulated: many small clusters in the Netherlands, points along lines in New Zealand, and a multiplicative cascade
(detail at every scale) on a square. Real: Californian earthquakes, the addresses of the Broad Street outbreak, and
the towns of the Netherlands and of Finland.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import geopandas as gpd
import numpy as np
import pandas as pd
import shapely

from geobgp import Domain

HERE = Path(__file__).resolve().parent
SAMPLE, DATA = HERE.parent / "sample_data", HERE / "data"
#: Nodes of the grid that the kernel and the GAMs work on.
NODES = 16_000
#: Share of the points that are held out.
HELD_OUT = 0.25


@dataclass(frozen=True)
class Pattern:
    """Points on land.

    Attributes
    ----------
    name : str
    domain : Domain
        About 16,000 nodes, or as many as were asked for.
    points : (k, 2) array
        In the domain's CRS, all on its land.
    """

    name: str
    domain: Domain
    points: np.ndarray

    @cached_property
    def land(self) -> Any:
        """The land as `map_intensity` takes it: with its CRS where it has one."""
        shape, crs = self.domain.geometry, self.domain.crs
        return shape if crs is None else gpd.GeoSeries([shape], crs=crs)

    def thinned(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the points to fit and those to score; another number is another thinning."""
        held = np.random.default_rng([number, len(self.points)]).uniform(size=len(self.points)) < HELD_OUT
        return self.points[~held], self.points[held]


def domain_of(land: Any, water: Any = None, crs: Any = None, nodes: int = NODES) -> Domain:
    """Return a domain whose cells number about `nodes` on its land."""
    first = Domain.from_polygons(land, water=water, crs=crs, cell_size=_side(land, crs) / 40)
    size = float(np.sqrt(first.geometry.area / nodes))
    return Domain.from_polygons(land, water=water, crs=crs, cell_size=size)


def _side(land: Any, crs: Any) -> float:
    if isinstance(land, shapely.Geometry):
        bounds = land.bounds
    else:
        frame = gpd.read_file(land)
        bounds = frame.to_crs(frame.estimate_utm_crs()).total_bounds
    return float(max(bounds[2] - bounds[0], bounds[3] - bounds[1]))


def _spread(domain: Domain, n: int, rng: np.random.Generator) -> np.ndarray:
    """Return points spread evenly over the bounds of a domain, many times as many as `n`; the land takes its own."""
    west, south, east, north = domain.geometry.bounds
    factor = (east - west) * (north - south) / domain.geometry.area
    xy = rng.uniform((west, south), (east, north), (int(1.5 * factor * n) + 50, 2))
    return xy[domain.locate(xy) >= 0][:n]


def _country(name: str, folder: Path, nodes: int) -> Domain:
    return domain_of(folder / f"{name}_land.gpkg", folder / f"{name}_water.gpkg", nodes=nodes)


def small_clusters(nodes: int) -> tuple[Domain, np.ndarray]:
    """150 clusters 1.5 km wide of 10 points each, and 300 points spread evenly, in the Netherlands."""
    rng = np.random.default_rng(1)
    domain = _country("netherlands", SAMPLE, nodes)
    centres = np.repeat(_spread(domain, 150, rng), rng.poisson(10, 150), axis=0)
    return domain, np.vstack([rng.normal(centres, 1500.0), _spread(domain, 300, rng)])


def along_lines(nodes: int) -> tuple[Domain, np.ndarray]:
    """1,500 points within some kilometres of 15 crooked lines, and 200 spread evenly, in New Zealand."""
    rng = np.random.default_rng(2)
    domain = _country("new_zealand", DATA, nodes)
    start = _spread(domain, 15, rng)
    turn = np.cumsum(rng.normal(0, 0.12, (15, 200)), axis=1) + rng.uniform(0, 2 * np.pi, (15, 1))
    lines = start[:, None] + 1000.0 * np.cumsum(np.stack([np.cos(turn), np.sin(turn)], axis=-1), axis=1)
    weight = rng.dirichlet(np.ones(15))
    which = rng.choice(15, 3000, p=weight)
    near = rng.normal(lines[which, rng.integers(200, size=3000)], 1500.0)
    return domain, np.vstack([near[domain.locate(near) >= 0][:1500], _spread(domain, 200, rng)])


def cascade(nodes: int) -> tuple[Domain, np.ndarray]:
    """1,500 points of a cascade: a square's mass is shared out to its quarters at random, eight times over."""
    rng = np.random.default_rng(3)
    mass = np.ones((1, 1))
    for _ in range(8):
        mass = np.kron(mass, np.ones((2, 2)))
        mass = mass * np.exp(rng.normal(0, 0.55, mass.shape))
    at = rng.choice(mass.size, 1500, p=(mass / mass.sum()).ravel())
    row, col = np.divmod(at, mass.shape[1])
    xy = (np.column_stack([col, row]) + rng.uniform(size=(1500, 2))) * 100.0 / mass.shape[0]
    return domain_of(shapely.box(0, 0, 100, 100), crs="local", nodes=nodes), xy


def earthquakes(nodes: int) -> tuple[Domain, np.ndarray]:
    """Return a week of earthquakes in California."""
    return _placed(_country("california", SAMPLE, nodes), SAMPLE / "usgs_california_2018_points.csv")


def broad_street(nodes: int) -> tuple[Domain, np.ndarray]:
    """Return the addresses of the cholera of 1854; each counts once."""
    domain = domain_of(SAMPLE / "snow_soho_window.gpkg", crs=27700, nodes=nodes)
    return _placed(domain, SAMPLE / "snow_soho_points.csv", 27700)


def dutch_towns(nodes: int) -> tuple[Domain, np.ndarray]:
    """Return towns of the Netherlands."""
    return _placed(_country("netherlands", SAMPLE, nodes), SAMPLE / "places_netherlands_points.csv")


def finnish_towns(nodes: int) -> tuple[Domain, np.ndarray]:
    """Return towns of Finland."""
    return _placed(_country("finland", DATA, nodes), DATA / "places_finland_points.csv")


def _placed(domain: Domain, path: Path, crs: Any = 4326) -> tuple[Domain, np.ndarray]:
    table = pd.read_csv(path)
    points = gpd.GeoSeries(gpd.points_from_xy(table["x"], table["y"]), crs=crs).to_crs(domain.crs)
    return domain, np.column_stack([points.x, points.y])


MAKERS: dict[str, Callable[[int], tuple[Domain, np.ndarray]]] = {
    "small clusters": small_clusters,
    "along lines": along_lines,
    "cascade": cascade,
    "earthquakes": earthquakes,
    "Broad Street": broad_street,
    "Dutch towns": dutch_towns,
    "Finnish towns": finnish_towns,
}


def pattern(name: str, nodes: int = NODES) -> Pattern:
    """Return one of the patterns; points that are not on its land are left out."""
    domain, points = MAKERS[name](nodes)
    return Pattern(name, domain, points[domain.locate(points) >= 0])
