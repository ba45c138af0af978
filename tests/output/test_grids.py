from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

from geobgp.errors import DataError, WriteError
from geobgp.output import grids
from geobgp.output.netcdf import write_netcdf


def test_dataset_knows_its_place_and_units(posterior, data):
    domain = posterior.domain
    assert data["mean"].dims == ("northing", "easting")
    assert (np.diff(data.northing) < 0).all()
    np.testing.assert_array_equal(data.easting, domain.grid.eastings)
    assert data.rio.crs.to_epsg() == 28992
    assert (data.rio.x_dim, data.rio.y_dim) == ("easting", "northing")
    assert data["mean"].attrs["units"] == "events per km²"
    np.testing.assert_array_equal(np.isnan(data["mean"]), domain.coverage == 0)


def test_cells_of_several_nodes_are_averaged_by_land(posterior, data):
    domain, mean = posterior.domain, posterior.node_intensity()["mean"].to_numpy()
    # The total over all land is the same before and after: sum of value x area.
    cell = domain.node_rows * domain.grid.shape[1] + domain.node_cols
    several = np.flatnonzero(np.bincount(cell, minlength=domain.grid.n_cells) > 1)
    assert len(several) > 10
    # A node may own a sliver in a neighbouring cell, so only cells without one are compared.
    share = np.bincount(cell, domain.node_areas / domain.cell_area.ravel()[cell], domain.grid.n_cells)
    clean = several[np.abs(share - domain.coverage.ravel())[several] < 1e-9]
    assert len(clean) > 5
    for k in clean:
        mine = cell == k
        expected = np.average(mean[mine], weights=domain.node_areas[mine])
        np.testing.assert_allclose(data["mean"].values.ravel()[k], expected, rtol=1e-9)


def test_dataset_refuses_values_of_another_domain(posterior):
    with pytest.raises(DataError, match=r"\(3,\).*nodes"):
        grids.dataset(posterior.domain, {"mean": np.ones(3)})


def test_coverage_is_a_variable_when_asked(posterior):
    data = grids.dataset(posterior.domain, {}, coverage=True)
    np.testing.assert_allclose(np.nansum(data["coverage"]), posterior.domain.coverage.sum())


@pytest.mark.parametrize("kind", ["netcdf", "zarr"])
def test_netcdf_and_zarr_go_through_xarray(data, tmp_path, kind):
    path = tmp_path / "data"
    if kind == "netcdf":
        data.to_netcdf(path)
        back = xr.open_dataset(path, decode_coords="all")
    else:
        data.to_zarr(path, zarr_format=2)
        back = xr.open_zarr(path, decode_coords="all")
    with back:
        xr.testing.assert_allclose(back["mean"], data["mean"])
        assert back.rio.crs.to_epsg() == 28992
        assert back["mean"].attrs["units"] == "events per km²"


def test_transform_follows_the_coordinates(data):
    part = data.isel(northing=slice(3, 9), easting=slice(2, 7))
    h = 1000.0
    found = grids.transform_of(part)
    assert found[:6] == (h, 0, part.easting.values[0] - h / 2, 0, -h, part.northing.values[0] + h / 2)
    with pytest.raises(DataError, match="single row"):
        grids.transform_of(data.isel(northing=[1]).drop_vars("spatial_ref"))
    with pytest.raises(DataError, match="descending"):
        grids.transform_of(data.isel(northing=slice(None, None, -1)))
    with pytest.raises(DataError, match="evenly spaced"):
        grids.transform_of(data.isel(northing=[0, 1, 5]))


def test_the_uncertainty_is_a_share_of_the_mean(posterior, data):
    found = grids.relative_uncertainty(data)
    # Of a log-normal: sqrt(exp(s²) - 1), whatever its mean.
    np.testing.assert_allclose(found[posterior.domain.coverage > 0], 100 * np.sqrt(np.expm1(0.4**2)))
    assert np.isnan(found[posterior.domain.coverage == 0]).all()
    zero = data * 0
    assert np.isnan(grids.relative_uncertainty(zero)).all()


def test_a_netcdf_file_is_whole_or_not_there(data, tmp_path, monkeypatch):
    path = write_netcdf(data, tmp_path / "all.nc")
    with xr.open_dataset(path) as back:
        xr.testing.assert_allclose(back["q95"], data["q95"].drop_vars("spatial_ref"))

    def fail(self, target):
        target.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(xr.Dataset, "to_netcdf", fail)
    with pytest.raises(WriteError, match="disk is full"):
        write_netcdf(data, tmp_path / "other.nc")
    assert [p.name for p in tmp_path.iterdir()] == ["all.nc"]
