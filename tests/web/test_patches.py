from __future__ import annotations

import geopandas as gpd
import numpy as np
import pyproj
import pytest
import shapely
from posteriors import across_180, disc, island

from geobgp import Domain
from geobgp.web.layers import RADIUS, TOLERANCE, Patches, Plane


def box(crs, cell_size, west, south, east, north):
    land = gpd.GeoSeries([shapely.box(west, south, east, north)], crs=4326)
    return Domain.from_polygons(land, cell_size=cell_size, crs=crs)


DOMAINS = {
    "dutch grid": island,
    "utm": lambda: box(32633, 20_000, 9, 40, 21, 60),
    "equal area": lambda: box(3035, 50_000, -10, 36, 40, 70),
    "half the globe": lambda: box(None, 200_000, -70, -50, 50, 65),
    "antimeridian": across_180,
    "local": disc,
}


@pytest.fixture(params=DOMAINS)
def plane(request):
    return Plane.over(DOMAINS[request.param](), 100_000)


def random_shares(n, seed=0):
    return np.random.default_rng(seed).random((2, n))


def cells_of(plane, s, t):
    """Column and row by pyproj alone."""
    domain = plane.domain
    x = plane.west + s * plane.shape[1] * plane.pixel
    y = plane.north - t * plane.shape[0] * plane.pixel
    if domain.crs is not None:
        lon, lat = np.degrees(x / RADIUS), np.degrees(2 * np.arctan(np.exp(y / RADIUS)) - np.pi / 2)
        x, y = pyproj.Transformer.from_crs(4326, domain.crs, always_xy=True).transform(lon, lat)
    west, _, _, north = domain.grid.bounds
    return (x - west) / domain.cell_size, (north - y) / domain.cell_size


def test_every_place_on_land_is_found_within_the_tolerance(plane):
    s, t = random_shares(5000)
    u, v = cells_of(plane, s, t)
    rows, cols = plane.domain.grid.shape
    inside = (u > 0) & (u < cols) & (v > 0) & (v < rows)
    inside[inside] = plane.domain.coverage[v[inside].astype(int), u[inside].astype(int)] > 0
    assert inside.sum() > 1000
    assert np.abs(Patches.over(plane).at(s, t) - (u, v))[:, inside].max() <= TOLERANCE


def test_few_numbers_are_enough():
    """A country needs one patch; its numbers take a thousandth of the page."""
    assert Patches.over(Plane.over(island(), 100_000)).values.size == 128


def test_at_the_knots_and_the_edges_of_patches(plane):
    patches = Patches.over(plane)
    k, n = patches.values.shape[1:3]
    along = ((np.arange(k)[:, None] + (1 - np.cos(np.pi * np.arange(n) / (n - 1))) / 2) / k).ravel()
    found = patches.at(*np.meshgrid(along, along))
    np.testing.assert_allclose(found, patches.values.reshape(2, k * n, k * n), atol=1e-4)


def test_what_the_script_is_given_has_all_numbers(plane):
    patches = Patches.over(plane)
    config = patches.config()
    k, n = config["count"], config["knots"]
    flat = np.array([config["cols"], config["rows"]])
    np.testing.assert_array_equal(flat.reshape(2, k, n, k, n), patches.values)


def test_nothing_is_read_where_no_polynomial_holds(monkeypatch):
    plane = Plane.over(island(), 100_000)
    exact = Plane.from_plane

    def torn(self, x, y):
        east, north = exact(self, x, y)
        return east + np.where(x > self.west + 0.3 * self.shape[1] * self.pixel, 3000.0, 0.0), north

    monkeypatch.setattr(Plane, "from_plane", torn)
    patches = Patches.over(plane)
    assert np.isnan(patches.at(np.array(0.3001), np.array(0.5))).all()
    # Elsewhere all is well.
    assert np.isfinite(patches.at(np.array([0.1, 0.9]), np.array([0.5, 0.5]))).all()
    assert np.isnan(patches.values).mean() < 0.1
