from __future__ import annotations

import geopandas as gpd
import numpy as np
import pytest
import shapely
from posteriors import bumps, disc, island

from geobgp import Domain
from geobgp.errors import DataError
from geobgp.output.grids import dataset
from geobgp.output.polygons import to_polygons, write_polygons


@pytest.fixture(scope="module")
def case():
    domain = island()
    return domain, dataset(domain, {"mean": np.exp(bumps(domain))}, variables={"mean": {"units": "events per km²"}})


@pytest.mark.parametrize("smooth", [True, False])
def test_bands_divide_the_land(case, smooth):
    domain, data = case
    levels = np.quantile(data["mean"].values[np.isfinite(data["mean"].values)], [0.2, 0.5, 0.9])
    frame = to_polygons(data["mean"], levels, domain=domain, smooth=smooth)
    assert len(frame) == 4
    assert frame.crs.to_epsg() == 28992
    assert frame.geometry.is_valid.all()
    land = shapely.area(domain.geometry)
    if smooth:
        np.testing.assert_allclose(frame.area.sum(), land, rtol=1e-9)
    else:
        # Land of cells too small to be nodes has no value.
        np.testing.assert_allclose(frame.area.sum(), land, rtol=1e-4)
    np.testing.assert_allclose(frame["area"], frame.geometry.area / 1e6)
    overlap = sum(
        shapely.area(shapely.intersection(a, b)) for k, a in enumerate(frame.geometry) for b in frame.geometry[k + 1 :]
    )
    assert overlap < 1e-6 * land


def test_bands_hold_the_right_cells(case):
    domain, data = case
    level = float(np.nanmedian(data["mean"]))
    frame = to_polygons(data["mean"], [level], domain=domain, smooth=False)
    rows, cols = np.nonzero(domain.coverage == 1)
    points = gpd.GeoSeries.from_xy(*domain.grid.centres(rows, cols), crs=frame.crs)
    above = frame.geometry[frame["lower"] == level].iloc[0]
    np.testing.assert_array_equal(points.within(above), data["mean"].values[rows, cols] > level)


def test_a_contour_of_a_slope_is_a_straight_line():
    domain = Domain.from_polygons(shapely.box(0, 0, 10, 6), cell_size=0.5, crs="local")
    data = dataset(domain, {"slope": domain.node_points[:, 0]})
    frame = to_polygons(data["slope"], [2.6, 7.1], domain=domain)
    np.testing.assert_allclose(frame["area"], [2.6 * 6, 4.5 * 6, 2.9 * 6], rtol=1e-9)
    np.testing.assert_allclose(frame.geometry.iloc[1].bounds, (2.6, 0, 7.1, 6), atol=1e-9)


def test_regions_above_are_nested(case):
    domain, data = case
    frame = to_polygons(data["mean"], [0.1, 0.2, 0.4], domain=domain, kind="above")
    assert (np.diff(frame["area"]) < 0).all()
    outer = frame.geometry.iloc[0].buffer(1e-6)
    assert frame.geometry.iloc[1:].within(outer).all()
    assert frame["label"].iloc[0] == "> 0.1 events per km²"


def test_without_a_domain_cells_end_the_bands():
    domain = disc()
    data = dataset(domain, {"v": domain.node_points[:, 1]})
    frame = to_polygons(data["v"], [3.0])
    assert frame.crs is None
    np.testing.assert_allclose(frame["area"].sum(), np.isfinite(data["v"].values).sum() * 0.01)


def test_open_ends_are_nan_and_empty_bands_are_left_out(case):
    domain, data = case
    frame = to_polygons(data["mean"], [-5, 0.2, 1e9], domain=domain)
    assert frame["lower"].tolist() == [-5, 0.2]
    frame = to_polygons(data["mean"], [0.2], domain=domain)
    assert np.isnan(frame["lower"].iloc[0])
    assert np.isnan(frame["upper"].iloc[1])


def test_files_are_complete_geopackages(case, tmp_path):
    domain, data = case
    frame = to_polygons(data["mean"], [0.1, 0.3], domain=domain)
    path = write_polygons(frame, tmp_path / "new" / "bands.gpkg")
    back = gpd.read_file(path)
    assert back["label"].tolist() == frame["label"].tolist()
    assert [p.name for p in path.parent.iterdir()] == ["bands.gpkg"]
    with pytest.raises(DataError, match=r"\.gpkg"):
        write_polygons(frame, tmp_path / "bands.shp")


def test_mistakes_are_explained(case):
    _, data = case
    with pytest.raises(DataError, match="levels"):
        to_polygons(data["mean"], [])
    with pytest.raises(DataError, match="kind"):
        to_polygons(data["mean"], [1], kind="below")
    with pytest.raises(DataError, match="no value"):
        to_polygons(data["mean"] * np.nan, [1])
