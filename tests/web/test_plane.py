from __future__ import annotations

import geopandas as gpd
import numpy as np
import pyproj
import pytest
import shapely
from posteriors import across_180, disc, island

from geobgp import Domain
from geobgp.errors import DomainError
from geobgp.land.crs import transform_xy
from geobgp.web.layers import Plane, transform_pixels


@pytest.fixture(scope="module")
def plane():
    return Plane.over(island(), 4_000_000)


def test_the_plane_is_epsg_3857(plane):
    domain = plane.domain
    x, y = plane.to_plane(*domain.node_points.T)
    expected = pyproj.Transformer.from_crs(28992, 3857, always_xy=True).transform(*domain.node_points.T)
    np.testing.assert_allclose([x, y], expected, atol=1e-3)
    back = plane.from_plane(x, y)
    np.testing.assert_allclose(np.column_stack(back), domain.node_points, atol=1e-3)


def test_every_pixel_shows_the_cell_it_lies_in(plane):
    domain, cell = plane.domain, plane.cells()
    rows, cols = np.nonzero(cell >= 0)
    x = plane.west + (cols + 0.5) * plane.pixel
    y = plane.north - (rows + 0.5) * plane.pixel
    east, north = pyproj.Transformer.from_crs(3857, 28992, always_xy=True).transform(x, y)
    at_row, at_col, inside = domain.grid.cell_of(east, north)
    own = at_row * domain.grid.shape[1] + at_col == cell[rows, cols]
    # All but a few: those on the edge between two cells, and the single pixels of slivers.
    assert (own & inside).mean() > 0.985
    on_land = shapely.contains_xy(domain.geometry, east, north)
    assert on_land.mean() > 0.98


def test_land_has_pixels_and_water_has_none(plane):
    domain, cell = plane.domain, plane.cells()
    rows, cols = np.mgrid[: plane.shape[0], : plane.shape[1]]
    x = plane.west + (cols + 0.5) * plane.pixel
    y = plane.north - (rows + 0.5) * plane.pixel
    east, north = pyproj.Transformer.from_crs(3857, 28992, always_xy=True).transform(x, y)
    inland = shapely.contains_xy(shapely.buffer(domain.geometry, -plane.pixel / 2), east, north)
    at_sea = ~shapely.intersects_xy(shapely.buffer(domain.geometry, plane.pixel), east, north)
    assert (cell[inland] >= 0).all()
    assert (cell[at_sea] < 0).all()


@pytest.mark.parametrize("max_pixels", [4_000_000, 5_000])
def test_no_node_is_lost(max_pixels):
    domain = island()
    plane = Plane.over(domain, max_pixels)
    cell = plane.cells()
    shown = np.isin(domain.node_rows * domain.grid.shape[1] + domain.node_cols, cell)
    assert cell.size <= 1.1 * max_pixels
    # A sliver may lie in a pixel that shows its neighbour.
    ground = plane.pixel * np.cos(np.radians(52.2))
    assert shown[domain.node_areas > 2 * ground**2].all()
    assert shown.mean() > 0.97


def test_the_shoreline_is_right_to_less_than_a_pixel(plane):
    lines = shapely.multilinestrings([shapely.linestrings(p) for p in plane.shoreline()])
    exact = gpd.GeoSeries([shapely.segmentize(plane.domain.geometry, 500)], crs=28992).to_crs(4326).boundary.iloc[0]
    per_degree = np.pi / 180 * 6378137
    scaled = [shapely.transform(g, lambda xy: xy * per_degree) for g in (lines, exact)]
    assert shapely.hausdorff_distance(*scaled) < 0.2 * plane.pixel


def test_land_across_the_antimeridian_is_one_piece():
    plane = Plane.over(across_180(), 1_000_000)
    (south, west), (north, east) = plane.bounds
    assert 178 < west < 180 < east < 182
    assert -18.3 < south < north < -16
    lon = np.array([p[0] for line in plane.shoreline() for p in line])
    assert west - 0.1 < lon.min() < lon.max() < east + 0.1


def test_pixels_are_square_and_few_enough():
    domain = island()
    for limit in (2_000, 50_000, 10_000_000):
        plane = Plane.over(domain, limit)
        assert np.prod(plane.shape) <= 1.15 * limit
        assert plane.oversampling <= 4


def test_a_local_plane_is_the_domains_own():
    domain = disc()
    plane = Plane.over(domain, 100_000)
    np.testing.assert_allclose(np.array(plane.bounds)[:, ::-1].ravel(), [2, 2, 4, 4], atol=0.11)
    cell = plane.cells()
    assert (cell >= 0).mean() == pytest.approx(np.pi / 4, abs=0.02)


def test_a_pole_is_refused():
    arctic = Domain.from_polygons(
        gpd.GeoSeries([shapely.box(-1e6, -1e6, 1e6, 1e6)], crs=3995), cell_size=50_000, crs=3995
    )
    try:
        plane = Plane.over(arctic, 100_000)
    except DomainError as error:
        assert "pole" in str(error)
    else:
        # Shown up to Mercator's end, without anything that is not finite.
        assert np.isfinite(plane.bounds).all()
        assert (plane.cells() >= 0).any()


def test_interpolated_coordinates_are_within_the_tolerance():
    to_laea = pyproj.Transformer.from_crs(4326, 3035, always_xy=True)

    def where(col, row):
        return transform_xy(to_laea, 5 + col * 0.01, 60 - row * 0.01)

    rows, cols = np.arange(700) + 0.5, np.arange(900) + 0.5
    x, y = transform_pixels(where, rows, cols, tolerance=5.0)
    exact = where(*np.meshgrid(cols, rows))
    assert np.hypot(x - exact[0], y - exact[1]).max() < 10.0
    # A pixel is about 600 m: this was interpolated, not exact.
    assert np.hypot(x - exact[0], y - exact[1]).max() > 0


def test_what_cannot_be_interpolated_is_exact():
    def jump(col, row):
        return np.where(col > 333.3, 1e6, 0.0) + col, row

    rows, cols = np.arange(500.0), np.arange(500.0)
    x, _ = transform_pixels(jump, rows, cols, tolerance=0.5)
    np.testing.assert_array_equal(x, jump(*np.meshgrid(cols, rows))[0])
