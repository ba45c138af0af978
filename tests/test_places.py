"""Places as people have them: GeoDataFrames in any CRS, rows that keep their index, and degrees that are refused."""

from __future__ import annotations

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest
import shapely
from posteriors import fitted

from geobgp import Domain
from geobgp.errors import CRSError


@pytest.fixture(scope="module")
def posterior():
    return fitted()[0]


@pytest.fixture(scope="module")
def places(posterior):
    """Some places on the land and one far off, in degrees, with names for index; and their eastings and northings."""
    at = np.vstack([posterior.domain.node_points[::60], [[100_000.0, 400_000.0]]])
    index = [f"place {k}" for k in range(len(at))]
    frame = gpd.GeoDataFrame({"n": range(len(at))}, geometry=gpd.points_from_xy(*at.T), crs=28992, index=index)
    return frame.to_crs(4326), at


def test_rows_keep_their_index_and_their_numbers(posterior, places):
    frame, at = places
    for given in (frame, frame.geometry):
        found = posterior.intensity_at(given)
        assert found.index.equals(frame.index) and np.isnan(found["mean"].iloc[-1])
        np.testing.assert_allclose(found, posterior.intensity_at(at), rtol=1e-5)
        for ask in (posterior.predict, posterior.predict_y):
            for ours, plain in zip(ask(given), ask(at), strict=True):
                assert isinstance(ours, pd.Series) and isinstance(plain, np.ndarray)
                assert ours.index.equals(frame.index)
                np.testing.assert_allclose(ours, plain, rtol=1e-4)
        node = posterior.domain.locate(given)
        assert node.index.equals(frame.index)
        np.testing.assert_array_equal(node, posterior.domain.locate(at))
        joined = frame.join(posterior.intensity_at(given))
        assert len(joined) == len(frame) and joined["mean"].notna().sum() == len(frame) - 1


def test_degrees_in_an_array_are_refused(posterior, places):
    degrees = np.column_stack([places[0].geometry.x, places[0].geometry.y])
    domain = posterior.domain
    for ask in (posterior.intensity_at, posterior.predict, posterior.predict_y, domain.locate):
        with pytest.raises(CRSError, match="look like degrees") as caught:
            ask(degrees)
        assert "crs=4326" in caught.value.remedy


def test_small_numbers_are_no_degrees_where_the_land_has_them():
    plane = Domain.from_polygons(shapely.box(0, 0, 10, 10), cell_size=1, crs="local")
    assert plane.locate([[5.5, 5.5]])[0] >= 0
    square = gpd.GeoSeries([shapely.box(-2_000, -2_000, 2_000, 2_000)], crs="+proj=laea +lat_0=52 +lon_0=5 +units=m")
    around_zero = Domain.from_polygons(square, cell_size=500)
    assert around_zero.locate([[5.0, 52.0]])[0] >= 0


def test_samples_are_labelled(posterior):
    draws = posterior.sample(4, rng=1)
    assert draws.dims == ("draw", "node") and draws.shape == (4, posterior.domain.n_nodes)
    np.testing.assert_array_equal(draws["easting"], posterior.domain.node_points[:, 0])
    assert draws.attrs["units"] == "events per km²"
    np.testing.assert_array_equal(np.asarray(draws), np.concatenate(list(posterior.sample_blocks(4, 1))))
    assert not np.array_equal(posterior.sample(2), posterior.sample(2))
