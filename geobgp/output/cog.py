"""Cloud-Optimised GeoTIFFs of a dataset on the grid, each with a QGIS style beside it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from geobgp.errors import DataError, option
from geobgp.files import replacing, together
from geobgp.output import palette
from geobgp.output.grids import transform_of
from geobgp.output.qgis import raster_qml

if TYPE_CHECKING:
    import xarray as xr

    from geobgp.output.palette import Classes


def write_rasters(
    data: xr.Dataset, path: str | os.PathLike[str], *, title: str | None = None, overwrite: bool = True
) -> list[Path]:
    """Write Cloud-Optimised GeoTIFFs with a QGIS style beside each.

    Parameters
    ----------
    data : xarray.Dataset
        From `grids.dataset` or `Posterior.intensity`; any variable on ("northing", "easting") becomes a band.
    path : str or path
        A directory, made if it is missing: one file per variable, ``<variable>.tif``. Or a file ending in
        ``.tif``: all variables as bands of it, the first one styled.
    title : str, optional
        Written into the file.
    overwrite : bool
        Whether existing files may be replaced.

    Returns
    -------
    list of Path
        The rasters. Each has a ``.qml`` beside it, which QGIS applies by itself.

    Notes
    -----
    Float32, NaN as nodata, DEFLATE, internal overviews. Band names, units and statistics are in the file.
    Files are written in a hidden folder, and moved into place when all of them are complete.
    """
    path = Path(path)
    names = [str(n) for n, v in data.data_vars.items() if v.dims == ("northing", "easting")]
    if not names:
        raise DataError('The dataset has no variable on ("northing", "easting"): there is nothing to write.')
    if path.suffix.lower() in (".tif", ".tiff"):
        jobs = [(path, names)]
    else:
        if path.exists() and not path.is_dir():
            raise DataError(
                f"{path} is a file.", remedy="Give a directory, or a name that ends in .tif for one file."
            )
        jobs = [(path / f"{name}.tif", [name]) for name in names]
    taken = [str(target) for target, _ in jobs if target.exists()]
    if taken and not overwrite:
        raise DataError(
            f"{', '.join(taken)} exist(s) already.",
            option="overwrite",
            found=taken,
            remedy=f"Use {option('overwrite', True)} or another path.",
        )
    with together(jobs[0][0].parent) as folder:
        for target, bands in jobs:
            hidden = folder / target.name
            write_cog(data, bands, hidden, title)
            if np.isfinite(data[bands[0]].values).any():
                write_style(palette.classes_in(data, bands[0]), data[bands[0]].values, hidden)
    return [target for target, _ in jobs]


def write_style(classes: Classes, values: np.ndarray, target: Path) -> None:
    """Write the style of a raster beside it: classes, and from which to which of the values they go."""
    known = values[np.isfinite(values)].astype(np.float32)
    with replacing(target.with_suffix(".qml")) as temporary:
        temporary.write_text(raster_qml(classes, float(known.min()), float(known.max())), encoding="utf-8")


def write_cog(data: xr.Dataset, names: list[str], target: Path, title: str | None) -> None:
    """Write variables of a dataset as bands of one file, complete or not at all."""
    import rasterio
    from rasterio.io import MemoryFile
    from rasterio.shutil import copy

    import geobgp

    rows, cols = data[names[0]].shape
    side = max(rows, cols)
    crs = data.rio.crs
    profile: dict[str, Any] = {
        "driver": "GTiff", "dtype": "float32", "count": len(names), "height": rows, "width": cols,
        "crs": crs, "transform": transform_of(data), "nodata": float("nan"),
    }  # fmt: skip
    tags = {str(k): str(v) for k, v in data.attrs.items() if v is not None}
    tags["TIFFTAG_SOFTWARE"] = f"geobgp {geobgp.__version__}"
    tags["TIFFTAG_IMAGEDESCRIPTION"] = title or str(data.attrs.get("title", ", ".join(names)))
    if title:
        tags["title"] = title
    block = 512 if side > 2048 else 256 if side > 512 else 128
    with rasterio.Env(GDAL_PAM_ENABLED="NO"), MemoryFile() as memory:
        with memory.open(**profile) as dst:
            dst.update_tags(AREA_OR_POINT="Area", **tags)
            for band, name in enumerate(names, start=1):
                values = data[name].values.astype(np.float32)
                dst.write(values, band)
                dst.set_band_description(band, name)
                dst.set_band_unit(band, str(data[name].attrs.get("units", "")))
                dst.update_tags(band, **_statistics(values))
                dst.update_tags(band, **{str(k): str(v) for k, v in data[name].attrs.items()})
        # In memory first: GDAL says little of a disk that is full, and Python says it.
        with memory.open() as src, MemoryFile(ext=".tif") as made:
            copy(
                src, made.name, driver="COG", compress="DEFLATE", predictor="YES", level=9, blocksize=block,
                resampling="AVERAGE", overviews="AUTO", bigtiff="IF_SAFER", num_threads="1",
            )  # fmt: skip
            with replacing(target, parents=True) as temporary:
                temporary.write_bytes(made.getbuffer())


def _statistics(values: np.ndarray) -> dict[str, str]:
    known = values[np.isfinite(values)].astype(float)
    if known.size == 0:
        return {}
    return {
        "STATISTICS_MINIMUM": repr(float(known.min())),
        "STATISTICS_MAXIMUM": repr(float(known.max())),
        "STATISTICS_MEAN": repr(float(known.mean())),
        "STATISTICS_STDDEV": repr(float(known.std())),
        "STATISTICS_VALID_PERCENT": f"{100 * known.size / values.size:.4g}",
    }
