from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
from over_time import Stack, moving
from posteriors import across_180, disc, island, prescribed

from geobgp.data.periods import Periods
from geobgp.errors import DataError
from geobgp.output.netcdf import cf_dataset, write_netcdf, write_zarr
from geobgp.units import Units

QUARTERS = Periods.calendar("quarter", "2019 Q3", "2020 Q2")


@pytest.fixture(scope="module")
def data():
    source = moving(island(2000.0), QUARTERS, title="Bites")
    data = source.intensity()
    data["exceedance_0.5"] = source.exceedance(0.5)
    data["coverage"] = source.maps[0]._dataset({}, {}, coverage=True)["coverage"]
    units = Units.of("", "area").per("quarter")
    for name in ("mean", "sd", "q05", "q50", "q95"):
        data[name].attrs |= {"units": units.words, "udunits": units.udunits}
    return data


def open_both(data, folder):
    yield xr.open_dataset(write_netcdf(data, folder / "a.nc"), decode_coords="all")
    yield xr.open_dataset(write_zarr(data, folder / "a.zarr"), engine="zarr", decode_coords="all", chunks=None)


def test_what_is_written_is_read_again_as_it_was(data, tmp_path):
    for again in open_both(data, tmp_path):
        np.testing.assert_allclose(again["mean"].values, data["mean"].values, rtol=1e-6)
        np.testing.assert_array_equal(again["time"].values, QUARTERS.starts.astype("datetime64[ns]"))
        ends = np.column_stack([QUARTERS.starts, QUARTERS.ends]).astype("datetime64[ns]")
        np.testing.assert_array_equal(again["time_bounds"].values, ends)
        assert again["period"].values.tolist() == list(QUARTERS.labels)
        assert again["exceedance_0_5"].attrs["threshold"] == 0.5
        assert again.rio.crs.to_epsg() == 28992
        assert again["mean"].sel(time="2020-01").sizes["time"] == 1
        again.close()


def test_it_keeps_the_conventions(data, tmp_path):
    """What the CF document asks of such a file, looked at without decoding."""
    raw = xr.open_dataset(write_netcdf(data, tmp_path / "a.nc"), decode_cf=False)
    assert raw.attrs["Conventions"].startswith("CF-1.")
    time = raw["time"]
    assert time.attrs["units"].startswith("days since ") and time.attrs["calendar"] == "proleptic_gregorian"
    assert time.attrs["bounds"] == "time_bounds" and time.attrs["axis"] == "T"
    assert "coordinates" not in raw.attrs and raw["period"].dtype.kind == "S"
    bounds = raw["time_bounds"]
    assert bounds.attrs == {}
    assert bounds.dims == ("time", "bounds") and bounds.dtype.kind == "f"
    assert (bounds[:, 0] <= time).all() and (time < bounds[:, 1]).all()
    np.testing.assert_array_equal(bounds[1:, 0], bounds[:-1, 1])
    for name, values in raw.data_vars.items():
        if "northing" not in values.dims:
            continue
        assert values.attrs["units"] in ("km-2 (3 month)-1", "1"), name
        assert values.attrs["grid_mapping"] == "spatial_ref"
        assert "time_bounds" not in values.attrs.get("coordinates", "")
        assert values.attrs["cell_methods"] == ("area: mean" if name == "coverage" else "time: mean area: mean")
        assert "missing_value" not in values.attrs and np.isnan(values.attrs["_FillValue"])
        assert name.replace("_", "").isalnum()
    assert "crs_wkt" in raw["spatial_ref"].attrs
    assert raw["northing"].attrs["standard_name"] == "projection_y_coordinate"
    assert raw["mean"].attrs["units_in_words"] == "events per km² per quarter"
    for axis in ("northing", "easting", "time"):
        assert "_FillValue" not in raw[axis].attrs
    raw.close()


def test_a_projection_that_the_conventions_know_has_their_name(tmp_path):
    source = moving(across_180(20_000.0), QUARTERS.slice(0, 1))
    raw = xr.open_dataset(write_netcdf(source.intensity(), tmp_path / "a.nc"), decode_cf=False)
    assert raw["spatial_ref"].attrs["grid_mapping_name"] in ("transverse_mercator", "lambert_azimuthal_equal_area")
    raw.close()


def test_the_dataset_itself_is_left_as_it_is(data):
    cf_dataset(data)
    assert data["mean"].attrs["units"] == "events per km² per quarter" and "exceedance_0.5" in data


def test_a_plane_of_its_own_and_plain_numbers(tmp_path):
    source = Stack(Periods.between([0.0, 2.5, 4.0]), tuple(prescribed(disc(), k, 0.3) for k in (0.0, 1.0)))
    for again in open_both(source.intensity(), tmp_path):
        assert again["time"].values.tolist() == [0.0, 2.5]
        assert again["time_bounds"].values.tolist() == [[0.0, 2.5], [2.5, 4.0]]
        assert again["northing"].attrs["units"] == "1"
        again.close()


def test_a_store_is_replaced_whole_and_nothing_else_is(data, tmp_path):
    write_zarr(data, tmp_path / "a.zarr")
    write_zarr(data.isel(time=slice(0, 2)), tmp_path / "a.zarr")
    with xr.open_zarr(tmp_path / "a.zarr", chunks=None) as again:
        assert again.sizes["time"] == 2
    assert [p.name for p in tmp_path.iterdir()] == ["a.zarr"]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with pytest.raises(DataError, match="is no Zarr store"):
        write_zarr(data, tmp_path / "mine")
    assert (tmp_path / "mine" / "letter.txt").read_text() == "dear"


@pytest.mark.parametrize(
    ("asked", "kind", "period", "units"),
    [
        ("", "area", "", "km-2"),
        ("per ha", "area", "week", "hectare-1 week-1"),
        ("per 10 hectares", "area", "", "0.1 hectare-1"),
        ("per 2 square miles", "area", "", "1.930510793e-07 m-2"),
        ("per 1,000 women", "population", "year", "0.001 year-1"),
        ("", "exposure", "unit of time", "1"),
        ("mg/kg", "value", "", "mg/kg"),
        ("", "prevalence", "", "1"),
        ("", "expected", "month", "1"),
    ],
)
def test_units(asked, kind, period, units):
    shown = Units.of(asked, kind)
    assert (shown.per(period) if period else shown).udunits == units
