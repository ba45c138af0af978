"""Datasets on the grid, with a time axis where there are periods."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from affine import Affine

from geobgp.data.inputs import NONE
from geobgp.data.rasters import array_transform
from geobgp.errors import DataError
from geobgp.files import replacing
from geobgp.text import percent

if TYPE_CHECKING:
    import xarray as xr

    from geobgp.data.periods import Periods
    from geobgp.land.domain import Domain


# -- Results on the grid: node values as xarray datasets with CRS, units and names, and their netCDF files ---


def dataset(
    domain: Domain,
    node_values: Mapping[str, np.ndarray],
    *,
    variables: Mapping[str, Mapping[str, Any]] | None = None,
    attrs: Mapping[str, Any] | None = None,
    coverage: bool = False,
) -> xr.Dataset:
    """Put node values on the grid, with CRS, units and names.

    Parameters
    ----------
    domain : Domain
        Whose nodes the values belong to.
    node_values : mapping of str to (n_nodes,) array
        In a cell with several nodes (both sides of a river) they are averaged by land area.
    variables : mapping of str to mapping, optional
        Attributes of each variable, such as ``units`` and ``long_name``.
    attrs : mapping, optional
        Attributes of the whole: where the numbers come from.
    coverage : bool
        Add the land fraction of each cell.

    Returns
    -------
    xarray.Dataset
        Dimensions ("northing", "easting"), northing descending; NaN off land; the CRS is known to rioxarray.

    Examples
    --------
    >>> import shapely
    >>> from geobgp import Domain
    >>> domain = Domain.from_polygons(shapely.box(0, 0, 4, 2), cell_size=1, crs="local")
    >>> data = dataset(domain, {"mean": domain.node_areas}, variables={"mean": {"units": "per unit area"}})
    >>> dict(data.sizes)
    {'northing': 2, 'easting': 4}
    """
    import rioxarray  # noqa: F401  registers the .rio accessor
    import xarray as xr

    fields: dict[str, Any] = {}
    for name, values in node_values.items():
        array = np.asarray(values, float)
        if array.shape != (domain.n_nodes,):
            raise DataError(
                f"{name!r} has the shape {array.shape}; one value for each of the domain's {domain.n_nodes} "
                f"nodes was expected, so the shape ({domain.n_nodes},).",
                found=array.shape,
            )
        fields[name] = (("northing", "easting"), domain.to_grid(array), dict((variables or {}).get(name, {})))
    if coverage:
        share = np.where(domain.coverage > 0, domain.coverage, np.nan)
        about = {"long_name": "share of the cell that is land", "units": "1"}
        fields["coverage"] = (("northing", "easting"), share, about)
    unit = "metre" if domain.crs is not None else "unit"
    coords = {
        "northing": ("northing", domain.grid.northings, _axis("Y", "northing", unit, domain.crs is not None)),
        "easting": ("easting", domain.grid.eastings, _axis("X", "easting", unit, domain.crs is not None)),
    }
    out = xr.Dataset(fields, coords=coords, attrs=dict(attrs or {}))
    if domain.crs is not None:
        out = out.rio.write_crs(domain.crs.to_wkt())
    return out.rio.write_transform(domain.grid.affine)


def _axis(axis: str, name: str, unit: str, projected: bool) -> dict[str, str]:
    out = {"axis": axis, "long_name": f"{name} of the cell's centre", "units": unit}
    if projected:
        out["standard_name"] = f"projection_{axis.lower()}_coordinate"
    return out


def transform_of(data: xr.Dataset | xr.DataArray) -> Affine:
    """Return the transform of a dataset on ("northing", "easting")."""
    found = array_transform(data, "easting", "northing")
    if found.b or found.d or found.a <= 0 or found.e >= 0:
        raise DataError(
            "The coordinates do not run east and north-to-south; a raster needs northing descending."
        )
    return found


def relative_uncertainty(data: xr.Dataset) -> np.ndarray:
    """Return sd / mean in per cent on the grid; NaN where the mean is zero or off land."""
    with np.errstate(divide="ignore", invalid="ignore"):
        share = 100 * data["sd"].values / data["mean"].values
    return np.where(np.isfinite(share), share, np.nan)


def hatched_land(posterior: Any) -> tuple[np.ndarray, str]:
    """Return the nodes of which the data say nothing by themselves, and why, for legends: maps are hatched there.

    Parameters
    ----------
    posterior : Posterior

    Returns
    -------
    (n_nodes,) or (n_periods, n_nodes) bool array, and words
        Next to no exposure (see `Posterior.unexposed`), or next to no effort; no words where no node is hatched.
    """
    empty, words = np.asarray(posterior.unexposed), []
    if empty.any():
        words.append("nobody lives here" if posterior.exposure_kind == "population" else "no exposure here")
    if posterior.effort is not None and (posterior.effort < NONE).any():
        empty = empty | (posterior.effort < NONE)
        words.append(f"effort under {percent(NONE)}, the data say nothing")
    return empty, "; or ".join(words)


def hatched_cells(domain: Domain, nodes: np.ndarray) -> np.ndarray:
    """Return the cells that are hatched, (rows, cols) or (n_periods, rows, cols): most of their land is."""
    rows = np.atleast_2d(np.asarray(nodes, float))
    cells = np.stack([domain.to_grid(row, 0.0) >= 0.5 for row in rows])
    return cells if np.ndim(nodes) == 2 else cells[0]


def write_netcdf(data: xr.Dataset, path: str | os.PathLike[str]) -> Path:
    """Write a dataset to a netCDF file, complete or not at all."""
    with replacing(path) as temporary:
        data.to_netcdf(temporary)
    return Path(path)


# -- Results on the grid over time: a time axis by CF conventions, with the bounds and the names of its periods --


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
