"""Datasets with time: axis, bounds, labels; plain numbers too."""

import numpy as np
import shapely

from geobgp import Domain, Periods
from geobgp.output.grids import dataset

DOMAIN = Domain.from_polygons(shapely.box(0, 0, 4, 2), cell_size=1, crs="local")


def test_every_period_is_where_it_belongs(tmp_path):
    import xarray as xr

    periods = Periods.calendar("quarter", "2020", "2020")
    values = np.arange(4.0 * 8)
    data = dataset(DOMAIN, {"mean": values}, variables={"mean": {"units": "1"}}, coverage=True, periods=periods)
    for t in range(4):
        np.testing.assert_array_equal(data["mean"].isel(time=t), DOMAIN.to_grid(values[8 * t : 8 * t + 8]))
    assert data["coverage"].dims == ("northing", "easting") and data["mean"].attrs == {"units": "1"}
    assert data["time_bounds"].values[0].astype("datetime64[D]").tolist() == [
        np.datetime64("2020-01-01").astype(object), np.datetime64("2020-04-01").astype(object)]  # fmt: skip
    data.to_netcdf(tmp_path / "q.nc")
    with xr.open_dataset(tmp_path / "q.nc", decode_times=False) as raw:
        assert "since" in raw["time"].attrs["units"] and raw["time"].attrs["standard_name"] == "time"
        assert raw["time"].attrs["bounds"] == "time_bounds"


def test_plain_numbers_are_no_dates():
    data = dataset(DOMAIN, {"mean": np.arange(16.0)}, periods=Periods.between([0.0, 2.0, 5.0]))
    assert data["time"].values.tolist() == [0.0, 2.0] and "standard_name" not in data["time"].attrs
    assert data["period"].values.tolist() == ["0 to 2", "2 to 5"]
