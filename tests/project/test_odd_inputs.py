"""Inputs that are odd but not wrong, and wrong ones that look right: what comes of them."""

from __future__ import annotations

import geopandas as gpd
import numpy as np
import pytest
import rasterio
import shapely
from affine import Affine
from reading import node_exposure

from geobgp import DataError, Domain, GeometryError, bin_areas, map_intensity
from geobgp.errors import InputWarning

WEST, SOUTH = 600_000.0, 5_800_000.0
SQUARE = shapely.box(WEST, SOUTH, WEST + 20_000, SOUTH + 20_000)
LAND = gpd.GeoDataFrame({"population": [5.0]}, geometry=[SQUARE], crs=32631)
FAR = gpd.GeoDataFrame({"population": [9.0]}, geometry=[shapely.box(100, -40, 101, -39)], crs=4326)


@pytest.fixture(scope="module")
def domain() -> Domain:
    return Domain.from_polygons(LAND, cell_size=500)


@pytest.fixture(scope="module")
def posterior():
    points = np.random.default_rng(0).uniform([WEST, SOUTH], [WEST + 20_000, SOUTH + 20_000], (200, 2))
    return map_intensity(points, LAND, crs=32631, cell_size=2000, m="full", max_seconds=0, cache=False)


def raster(path, values, transform, crs):
    values = np.atleast_3d(values.T).T.astype("float32")
    count, height, width = values.shape
    shape = {"count": count, "height": height, "width": width, "dtype": "float32"}
    with rasterio.open(path, "w", driver="GTiff", transform=transform, crs=crs, **shape) as file:
        file.write(values)
    return path


def test_pixels_far_larger_than_cells_are_shared_out(domain, tmp_path):
    """Two pixels of a degree hold the land: a node gets its share of the ground of the one that it lies in."""
    path = raster(tmp_path / "people.tif", np.full((180, 360), 1e6), Affine(1, 0, -180, 0, -1, 90), 4326)
    with pytest.warns(InputWarning, match=r"lie off the land and are left out"):
        people, kind = node_exposure(path, domain)
    geod = domain.crs.get_geod()
    pixel = shapely.segmentize(shapely.box(4, 52, 5, 53), 0.01)
    ground = abs(geod.geometry_area_perimeter(pixel)[0])
    np.testing.assert_allclose(people, 1e6 * domain.node_areas / ground, rtol=2e-3)
    assert kind == "population"


def test_of_several_bands_or_layers_none_is_taken_by_itself(domain, tmp_path):
    path = raster(tmp_path / "two.tif", np.ones((2, 40, 40)), Affine(500, 0, WEST, 0, -500, SOUTH + 20_000), 32631)
    with pytest.raises(DataError, match="has 2 bands"):
        node_exposure(path, domain)
    many = tmp_path / "many.gpkg"
    LAND.to_file(many, layer="a")
    LAND.to_file(many, layer="b")
    with pytest.raises(GeometryError, match=r"a layer must be named .* which has 'a', 'b'"):
        node_exposure(many, domain)


def test_regions_that_all_lie_elsewhere_lose_no_results(posterior, domain):
    with pytest.warns(InputWarning, match="1 of 1 regions hold no land"):
        table = posterior.totals(FAR)
    assert table["expected"].isna().all()
    with pytest.raises(DataError, match="None of the 1 areas holds land"):
        node_exposure(FAR, domain)
    with pytest.raises(GeometryError, match="None of the 1 area holds land"):
        bin_areas(FAR, domain, "population")


def test_a_table_without_shapes_is_called_one(posterior, domain):
    bare = gpd.GeoDataFrame({"n": [1, 2]})
    for name, call in {
        "regions": lambda: posterior.totals(bare),
        "blocks": lambda: posterior.cross_validate(bare),
        "areas": lambda: bin_areas(bare, domain, "n"),
        "land": lambda: Domain.from_polygons(bare, cell_size=1),
    }.items():
        with pytest.raises(GeometryError, match=f"{name}: no geometry column among 'n'") as caught:
            call()
        assert caught.value.option == name
