"""Points from one CRS to another; shapes are in test_crs.py and test_polygons.py."""

import geopandas as gpd
import numpy as np
import pyproj
import pytest
import shapely

from geobgp import CRSError, DataError, GeometryError
from geobgp.land.crs import place_coordinates, point_coordinates, transform_xy


def test_points_are_brought_to_the_crs():
    points = gpd.GeoSeries(
        [shapely.Point(5, 52), None, shapely.Point(), shapely.MultiPoint([(4, 52), (6, 53)]), shapely.Point(5, 52)],
        crs=4326,
    )
    coords, rows, missing = point_coordinates(points, pyproj.CRS(28992))
    assert rows.tolist() == [0, 3, 3, 4] and missing == 2
    assert coords[0] == pytest.approx(coords[3])
    assert coords[0] == pytest.approx([128_410, 445_807], abs=5)


def test_points_without_a_place_are_nan():
    lost = gpd.GeoSeries([shapely.Point(5, 95), shapely.Point(5, 52)], crs=4326)
    coords, _, missing = point_coordinates(lost, pyproj.CRS(32631))
    assert np.isnan(coords[0]).all() and np.isfinite(coords[1]).all() and missing == 0


def test_one_point_and_none():
    crs = pyproj.CRS(32631)
    one = point_coordinates(gpd.GeoSeries([shapely.Point(3, 52)], crs=4326), crs)[0]
    assert one[0, 0] == pytest.approx(500e3)
    assert point_coordinates(gpd.GeoSeries([], crs=4326), crs)[0].shape == (0, 2)


def test_degrees_do_not_fit_a_local_plane():
    with pytest.raises(CRSError, match="domain is local"):
        point_coordinates(gpd.GeoSeries([shapely.Point(3, 52)], crs=4326), None)


def test_coordinates_are_taken_as_they_are():
    coords, rows, missing = point_coordinates([[1, 2], [np.nan, 3], [4, 5]], pyproj.CRS(32631))
    assert coords.tolist() == [[1, 2], [4, 5]] and rows.tolist() == [0, 2] and missing == 1
    with pytest.raises(DataError, match=r"\(k, 2\), easting and northing; found the shape \(3,\)"):
        point_coordinates([1, 2, 3], None)


def test_places_keep_their_rows():
    series = gpd.GeoSeries([shapely.Point(3, 52), None, shapely.Point(3, 53)], crs=4326)
    places = place_coordinates(series, pyproj.CRS(32631))
    assert places.shape == (3, 2) and np.isnan(places[1]).all()
    assert places[[0, 2], 0] == pytest.approx(500e3)
    many = gpd.GeoSeries([shapely.MultiPoint([(3, 52), (4, 52)])], crs=4326)
    with pytest.raises(GeometryError, match=r"found 2 points in 1 rows.*explode"):
        place_coordinates(many, pyproj.CRS(32631))
    with pytest.raises(CRSError, match="of the points is not known"):
        place_coordinates(gpd.GeoSeries([shapely.Point(3, 52)]), pyproj.CRS(32631))


@pytest.mark.parametrize("n", [1, 2, 5])
def test_arrays_keep_their_shapes_and_what_has_no_answer_is_nan(n):
    to_utm = pyproj.Transformer.from_crs(4326, 32631, always_xy=True)
    x, y = transform_xy(to_utm, np.full((n, 1), 3.0), np.full((n, 1), 52.0))
    assert x.shape == y.shape == (n, 1)
    np.testing.assert_allclose(x, 500_000, atol=1e-3)
    assert np.isnan(transform_xy(to_utm, np.full(n, np.inf), np.full(n, 52.0))[0]).all()
    lon, lat = transform_xy(to_utm, x, y, inverse=True)
    np.testing.assert_allclose([lon[0, 0], lat[0, 0]], [3, 52])
