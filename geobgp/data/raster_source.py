"""Where rasters come from: files that GDAL reads, and xarray.DataArrays."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyproj
from affine import Affine

from geobgp.errors import DataError
from geobgp.files import remember_read
from geobgp.text import count

if TYPE_CHECKING:
    import xarray as xr

#: Magnitudes above this are nodata whether or not the file says so: many hide an undeclared -3.4e38.
HUGE = 1e37


@dataclass(frozen=True)
class RasterSource:
    """One band, from a file or an array.

    Attributes
    ----------
    shape : (int, int)
    affine : Affine
        From (column, row) of pixels' corners to coordinates; any orientation.
    crs : pyproj.CRS or None
    reader : callable
        Takes top, left, bottom, right; returns values.
    nodata : float or None
        A further value that means missing.
    name : str
        For messages.
    whole, coloured : bool
        Whether its values are of a type of whole numbers, and whether it has a colour table: they may be codes.
    """

    shape: tuple[int, int]
    affine: Affine
    crs: pyproj.CRS | None
    reader: Any
    nodata: float | None
    name: str
    whole: bool = False
    coloured: bool = False

    def where(self, value: float) -> RasterSource:
        """Return the same raster with 1 where it has a value, 0 where another, NaN where none."""

        def reader(top: int, left: int, bottom: int, right: int) -> np.ndarray:
            values = self.read(top, left, bottom, right)
            return np.where(np.isnan(values), np.nan, values == value)

        return replace(self, reader=reader, nodata=None)

    def read(self, top: int, left: int, bottom: int, right: int) -> np.ndarray:
        """Return rows top:bottom, columns left:right as float64, NaN where there is no data."""
        values = np.asarray(self.reader(top, left, bottom, right), float)
        with np.errstate(invalid="ignore"):
            missing = ~(np.abs(values) < HUGE)
            if self.nodata is not None:
                missing |= np.isclose(values, self.nodata, rtol=1e-6, atol=0)
        return np.where(missing, np.nan, values)


@contextmanager
def open_raster(source: Any, band: int | None, nodata: float | None) -> Iterator[RasterSource]:
    """Open one band of a path or a DataArray; None is the only one, or that named in ``"path|band=2"``."""
    if isinstance(source, str | os.PathLike):
        import rasterio
        from rasterio.windows import Window

        path, band = split_band(source, band)
        try:
            opened = rasterio.open(path)
        except rasterio.errors.RasterioIOError as error:
            raise DataError(f"{path} cannot be read as a raster: {error}") from error
        remember_read(path)
        with opened as src:
            band = _one_band(path, band, src.descriptions, f"Name one: '{path}|band=1'.")
            scale, offset = src.scales[band - 1], src.offsets[band - 1]

            def reader(top: int, left: int, bottom: int, right: int) -> np.ndarray:
                window = Window(left, top, right - left, bottom - top)
                values = src.read(band, window=window, masked=True)
                known = values.astype(float).filled(np.nan)
                return known * scale + offset

            crs = None if src.crs is None else pyproj.CRS.from_wkt(src.crs.to_wkt())
            coloured = src.colorinterp[band - 1] == rasterio.enums.ColorInterp.palette
            whole = (
                src.dtypes[band - 1].startswith(("int", "uint")) and scale == 1 and float(offset).is_integer()
            )
            yield RasterSource(src.shape, src.transform, crs, reader, nodata, path, whole, coloured)
        return
    import rioxarray  # noqa: F401
    import xarray as xr

    if not isinstance(source, xr.DataArray):
        raise DataError(f"A raster is a path or an xarray.DataArray; found {type(source).__name__}.")
    name = str(source.name or "the array")
    try:
        array = source.transpose(..., source.rio.y_dim, source.rio.x_dim)
        affine, crs_found = array_transform(source, source.rio.x_dim, source.rio.y_dim), source.rio.crs
    except DataError:
        raise
    except Exception as error:
        raise DataError(f"{name} has no spatial dimensions that rioxarray can find: {error}") from error
    values = array.values
    if values.ndim == 3:
        labels = (
            source[array.dims[0]].values.tolist() if array.dims[0] in source.coords else [None] * len(values)
        )
        band = _one_band(name, band, labels, f"Take one: array.isel({array.dims[0]}=0).")
        values = values[band - 1]
    if values.ndim != 2:
        raise DataError(f"{name} has {array.ndim} dimensions; a raster has two, or three with bands first.")
    whole = values.dtype.kind in "iu"
    values = values.astype(float)
    own = source.rio.nodata
    if own is not None and np.isfinite(own):
        values = np.where(np.isclose(values, float(own), rtol=1e-6, atol=0), np.nan, values)
    crs = None if crs_found is None else pyproj.CRS.from_wkt(crs_found.to_wkt())
    shape = (values.shape[0], values.shape[1])
    yield RasterSource(shape, affine, crs, lambda t, a, b, c: values[t:b, a:c], nodata, name, whole)


def split_band(source: str | os.PathLike[str], band: int | None = None) -> tuple[str, int | None]:
    """Return a raster's path and the band that it names, if it names one.

    Examples
    --------
    >>> split_band("people.tif|band=2"), split_band("people.tif")
    (('people.tif', 2), ('people.tif', None))
    """
    path, mark, named = os.fspath(source).rpartition("|band=")
    if not mark:
        return os.fspath(source), band
    if not named.isdigit():
        raise DataError(f"A band is named by its number, from 1: {path}|band=1; found {named!r}.")
    return path, int(named)


def _one_band(name: str, band: int | None, labels: Sequence[Any], remedy: str) -> int:
    """Return the number, from 1, of the band that was asked for or is the only one."""
    if band is None and len(labels) == 1:
        return 1
    if band is not None and 1 <= band <= len(labels):
        return band
    bands = ", ".join(
        str(k) if label in (None, "", k) else f"{k} ({label})" for k, label in enumerate(labels, 1)
    )
    asked = "which is meant?" if band is None else f"band {band} was asked for."
    raise DataError(
        f"{name} has {count(len(labels), 'band')}: {bands}; {asked}", found=len(labels), remedy=remedy
    )


def array_transform(data: xr.DataArray | xr.Dataset, x_dim: Hashable, y_dim: Hashable) -> Affine:
    """Return the transform of an array: the stored one if it fits the coordinates, else from them."""
    x, y = (np.asarray(data[d].values, float) if d in data.coords else None for d in (x_dim, y_dim))
    text = data.coords["spatial_ref"].attrs.get("GeoTransform") if "spatial_ref" in data.coords else None
    stored = None if text is None else Affine.from_gdal(*(float(t) for t in str(text).split()))
    if stored is not None:
        if x is None or y is None or stored.b or stored.d:
            return stored
        slack = 1e-6 * abs(stored.a)
        fits = [(x, stored.a, stored.c), (y, stored.e, stored.f)]
        if all(np.allclose(v, start + step * (np.arange(len(v)) + 0.5), 0, slack) for v, step, start in fits):
            return stored
    if x is None or y is None or min(len(x), len(y)) < 2:
        raise DataError(
            "The cell size cannot be told without coordinates, or from a single row or column; "
            "keep the transform that rioxarray stores in `spatial_ref`."
        )
    dx, dy = (x[-1] - x[0]) / (len(x) - 1), (y[-1] - y[0]) / (len(y) - 1)
    if not (dx and dy and np.allclose(np.diff(x), dx) and np.allclose(np.diff(y), dy)):
        raise DataError("The coordinates of the array are not evenly spaced; a raster needs that.")
    return Affine(dx, 0, x[0] - dx / 2, 0, dy, y[0] - dy / 2)
