"""Distance over land, against ways that are known exactly."""

import geopandas as gpd
import numpy as np
import pytest
import shapely
from shapely.geometry import LineString, Point, box

from geobgp import Domain
from geobgp.errors import CRSError, DataError, InputWarning


def near(found, exact, cell):
    return bool((np.abs(found - exact) <= np.maximum(0.02 * exact, 0.1 * cell)).all())


def around(points, start, corner, sees):
    """The straight way where the start sees a point, else the way around a corner."""
    start, corner = np.array(start), np.array(corner)
    seen = np.array([sees(LineString([start, p])) for p in points])
    bent = np.hypot(*(start - corner)) + np.hypot(*(points - corner).T)
    return np.where(seen, np.hypot(*(points - start).T), bent)


def test_on_a_disc_ways_are_straight():
    domain = Domain.from_polygons(Point(0, 0).buffer(1, 64), cell_size=0.05, crs="local")
    for start in ([0.013, -0.021], [-0.93, 0.11]):
        exact = np.hypot(*(domain.node_points - start).T)
        assert near(domain.distance_to([start]), exact, 0.05)


def test_ways_go_around_the_corner_of_an_l():
    land = shapely.union(box(0, 0, 1, 3), box(0, 0, 3, 1))
    domain = Domain.from_polygons(land, cell_size=0.05, crs="local")
    sees = land.buffer(1e-9).covers
    exact = around(domain.node_points, [0.4, 2.7], [1.0, 1.0], sees)
    assert near(domain.distance_to([[0.4, 2.7]]), exact, 0.05)


def test_ways_go_around_a_wall_without_width():
    wall = LineString([(1.013, -0.5), (1.013, 1.31)])
    domain = Domain.from_polygons(box(0, 0, 2, 2), barriers=gpd.GeoSeries([wall]), cell_size=0.04, crs="local")
    exact = around(domain.node_points, [0.5, 0.4], [1.013, 1.31], lambda line: not line.crosses(wall))
    assert near(domain.distance_to([[0.5, 0.4]]), exact, 0.04)


def test_the_nearest_of_points_lines_and_polygons():
    domain = Domain.from_polygons(box(0, 0, 4, 4), cell_size=0.1, crs="local")
    for shape in (box(1, 1, 2, 2), LineString([(0.5, 0.5), (3.5, 2.5)]), Point(0.3, 3.3)):
        exact = shapely.distance(shape, shapely.points(domain.node_points))
        found = domain.distance_to(gpd.GeoSeries([shape]))
        assert np.abs(found - exact).max() < 0.06
    one, two = [[0.2, 0.2]], [[3.7, 3.1]]
    both = domain.distance_to(one + two)
    np.testing.assert_allclose(both, np.minimum(domain.distance_to(one), domain.distance_to(two)), atol=1e-9)


def test_land_that_no_way_leads_to_is_told():
    parts = shapely.union(box(0, 0, 1, 1), box(1.5, 0, 2, 1))
    domain = Domain.from_polygons(parts, cell_size=0.1, crs="local")
    with pytest.warns(InputWarning, match="33.3 % of the land, in 1 part, cannot be reached"):
        found = domain.distance_to([[0.5, 0.5]])
    assert np.array_equal(np.isnan(found), domain.node_points[:, 0] > 1)
    bridge = gpd.GeoSeries([LineString([(0.9, 0.55), (1.6, 0.55)])])
    joined = Domain.from_polygons(parts, bridges=bridge, cell_size=0.1, crs="local")
    exact = np.abs(joined.node_points[:, 0] - 0.5)
    row = np.abs(joined.node_points[:, 1] - 0.55) < 0.01
    assert np.abs(joined.distance_to([[0.5, 0.55]]) - exact)[row].max() < 0.12
    with pytest.raises(DataError, match="None of 1 place is on the land"):
        domain.distance_to([[9.0, 9.0]])


def test_places_without_a_crs_are_refused_where_the_land_has_one():
    plain, utm = gpd.GeoSeries([Point(500, 500)]), "EPSG:32632"
    land = Domain.from_polygons(gpd.GeoSeries([box(0, 0, 3000, 1000)], crs=utm), cell_size=1000)
    with pytest.raises(CRSError, match="The places have no coordinate reference system; the domain is in WGS 84 / UTM"):
        land.distance_to(plain)
    np.testing.assert_allclose(land.distance_to(plain.set_crs(utm)), land.distance_to([[500.0, 500.0]]))
    local = Domain.from_polygons(box(0, 0, 3000, 1000), cell_size=1000, crs="local")
    with pytest.raises(
        CRSError, match="The places are in WGS 84 / UTM zone 32N, but the domain has planar coordinates"
    ):
        local.distance_to(plain.set_crs(utm))
