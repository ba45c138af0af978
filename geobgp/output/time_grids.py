"""Results on the grid over time: a time axis by CF conventions, with the bounds and the names of its periods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from geobgp.output.grids import dataset

if TYPE_CHECKING:
    import xarray as xr

    from geobgp.data.periods import Periods
    from geobgp.land.domain import Domain


def time_dataset(
    domain: Domain,
    periods: Periods,
    values: Mapping[str, np.ndarray],
    *,
    variables: Mapping[str, Mapping[str, Any]] | None = None,
    attrs: Mapping[str, Any] | None = None,
    coverage: bool = False,
) -> xr.Dataset:
    """Put values of nodes in periods on the grid.

    Parameters
    ----------
    domain : Domain
    periods : Periods
    values : mapping of str to (n_periods · n_nodes,) array
        Period by period.
    variables, attrs, coverage
        As for `geobgp.output.grids.dataset`.

    Returns
    -------
    xarray.Dataset
        Dimensions ("time", "northing", "easting"). ``time`` is the start of each period, ``time_bounds`` its start and
        its end, ``period`` its label. The share of land, ``coverage``, has no time.

    Examples
    --------
    >>> import shapely
    >>> from geobgp import Domain, Periods
    >>> domain = Domain.from_polygons(shapely.box(0, 0, 4, 2), cell_size=1, crs="local")
    >>> data = time_dataset(domain, Periods.calendar("month", "2020-01", "2020-03"), {"mean": np.arange(24.0)})
    >>> dict(data.sizes), data["mean"].sel(time="2020-02").values.ravel()[:3].tolist()
    ({'northing': 2, 'easting': 4, 'time': 3, 'bounds': 2}, [8.0, 9.0, 10.0])
    """
    plain = dataset(domain, {}, attrs=attrs, coverage=coverage)
    fields = {
        name: (
            ("time", "northing", "easting"),
            np.stack([domain.to_grid(row) for row in np.reshape(array, (periods.n, domain.n_nodes))]),
            dict((variables or {}).get(name, {})),
        )
        for name, array in values.items()
    }
    return (
        plain.assign(fields).assign_coords(time_axis(periods)).transpose("time", "northing", "easting", ...)
    )


def time_axis(periods: Periods) -> dict[str, Any]:
    """Return the coordinates of time: starts, bounds and labels."""
    starts, bounds = periods.starts, np.column_stack([periods.starts, periods.ends])
    written: dict[str, Any] = {}
    about = {"long_name": f"start of the {periods.noun}", "bounds": "time_bounds", "axis": "T"}
    if periods.dated:
        starts, bounds = starts.astype("datetime64[ns]"), bounds.astype("datetime64[ns]")
        about["standard_name"] = "time"
        written = {"units": "days since 1970-01-01", "calendar": "proleptic_gregorian", "dtype": "int64"}
    return {
        "time": ("time", starts, about, written),
        "time_bounds": (("time", "bounds"), bounds, {}, written),
        "period": ("time", list(periods.labels), {"long_name": f"name of the {periods.noun}"}),
    }
