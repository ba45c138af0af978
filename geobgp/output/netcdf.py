"""netCDF and Zarr by CF conventions: time with bounds, the grid's projection, units that programs read."""

from __future__ import annotations

import os
import re
import secrets
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from geobgp.errors import DataError, WriteError
from geobgp.files import check_unread, replacing, why_not_written

if TYPE_CHECKING:
    import xarray as xr


CONVENTIONS: Final = "CF-1.8"
_EPOCH: Final = "days since 1970-01-01"


def cf_dataset(data: xr.Dataset) -> xr.Dataset:
    """Return a dataset as CF conventions have it, ready to be written.

    Variables get ``cell_methods``, ``grid_mapping`` and the units of UDUNITS that their attribute ``udunits`` has (what
    people read is then in ``units_in_words``); names have letters, digits and underscores only (``exceedance_0.5`` is
    ``exceedance_0_5``); dates are days since 1970.

    Parameters
    ----------
    data : xarray.Dataset
        On ("northing", "easting"), or over time with the bounds of its times in ``time_bounds``.
    """
    out = data.copy()
    out.attrs = {str(k): v for k, v in data.attrs.items() if v is not None} | {"Conventions": CONVENTIONS}
    mapped = "spatial_ref" in out.coords and data.rio.crs is not None
    for name, values in out.data_vars.items():
        words = str(values.attrs.get("units", ""))
        values.attrs["units"] = values.attrs.pop("udunits", words)
        if values.attrs["units"] != words:
            values.attrs["units_in_words"] = words
        values.attrs.pop("grid_mapping", None)
        if mapped:
            values.attrs["grid_mapping"] = "spatial_ref"
        values.encoding = {"_FillValue": np.float32(np.nan), "dtype": "float32"}
        values.attrs["cell_methods"] = "time: mean area: mean" if "time" in values.dims else "area: mean"
        if name == "coverage":
            values.attrs["standard_name"] = "land_area_fraction"
    for name in ("northing", "easting"):
        out[name].encoding = {"_FillValue": None}
        if out[name].attrs.get("units") == "unit":
            out[name].attrs["units"] = "1"
    if "time" in out.dims:
        dated = np.issubdtype(out["time"].dtype, np.datetime64)
        days = {"units": _EPOCH, "calendar": "proleptic_gregorian", "dtype": "float64"} if dated else {}
        out["time"].encoding = {"_FillValue": None} | days
        out["time"].attrs |= {"axis": "T", "bounds": "time_bounds"} | ({} if dated else {"units": "1"})
        if "time_bounds" in out:
            out["time_bounds"].attrs = {}
            out["time_bounds"].encoding = {"_FillValue": None, "coordinates": None} | days
        out["period"].attrs.setdefault("long_name", "name of the period")
    plain = {name: re.sub(r"\W", "_", str(name)) for name in out.data_vars}
    return out.rename({name: new for name, new in plain.items() if name != new})


def write_netcdf(data: xr.Dataset, path: str | os.PathLike[str]) -> Path:
    """Write a dataset to one netCDF file by CF conventions, complete or not at all."""
    out = cf_dataset(data)
    for name in ("period", "stratum"):
        if name in out and out[name].dtype.kind in "OU":
            # Letters, not strings: what every reader of netCDF knows.
            out[name].encoding["dtype"] = "S1"
    # Bounds and projection are no coordinates of a place or time, though they lie beside them.
    out = out.reset_coords([name for name in ("time_bounds", "spatial_ref") if name in out.coords])
    with replacing(path) as temporary:
        out.to_netcdf(temporary)
    return Path(path)


def write_zarr(data: xr.Dataset, path: str | os.PathLike[str]) -> Path:
    """Write a dataset to a Zarr store by CF conventions, a chunk for each period, complete or not at all.

    Metadata are consolidated, and the CRS is a coordinate, so that ``xarray.open_zarr(path).rio.crs`` knows it. What
    was there before is replaced when the new store is complete. Needs the package zarr.
    """
    if find_spec("zarr") is None:
        raise DataError(
            "Writing Zarr needs the package zarr, which is not installed.",
            option="path",
            remedy="Install it (pip install zarr), or write netCDF.",
        )
    path = Path(path)
    if path.exists() and not (path.is_dir() and any((path / n).exists() for n in ("zarr.json", ".zgroup"))):
        raise DataError(
            f"{path} is there already and is no Zarr store.", option="path", found=str(path), remedy="Name another."
        )
    check_unread(path)
    out = cf_dataset(data)
    for values in out.data_vars.values():
        values.encoding["chunks"] = tuple(1 if d in ("time", "stratum") else n for d, n in values.sizes.items())
    part = path.absolute().parent / f".{path.name}-{secrets.token_hex(6)}.part"
    try:
        part.parent.mkdir(parents=True, exist_ok=True)
        # Version 2 of the format: labels of periods are text, which version 3 has no agreed form for yet.
        out.to_zarr(part, mode="w", zarr_format=2, consolidated=True)
        if path.exists():
            path.rename(part.with_suffix(".old"))
        part.rename(path)
    except OSError as error:
        reason, remedy = why_not_written(error, path.absolute().parent)
        raise WriteError(f"{path} cannot be written: {reason}", remedy=remedy) from error
    finally:
        for rest in (part, part.with_suffix(".old")):
            shutil.rmtree(rest, ignore_errors=True)
    return path
