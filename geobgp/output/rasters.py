"""GeoTIFFs with QGIS styles, one for each statistic and period."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from geobgp.errors import DataError, option
from geobgp.files import replacing, together
from geobgp.output import palette
from geobgp.output.grids import transform_of
from geobgp.output.qgis import Dated, raster_qml

if TYPE_CHECKING:
    import xarray as xr

    from geobgp.data.periods import Periods
    from geobgp.output.palette import Classes


# -- Cloud-Optimised GeoTIFFs of a dataset on the grid, each with a QGIS style beside it ---------------------


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


# -- Rasters over time: a GeoTIFF for each statistic and period, all in one style, with its time in the file --


def write_period_rasters(
    data: xr.Dataset, periods: Periods, path: str | os.PathLike[str], *, title: str | None = None
) -> list[Dated]:
    """Write a raster for each statistic and period, ``mean_2020-03.tif``, with a QGIS style beside each.

    Parameters
    ----------
    data : xarray.Dataset
        Variables on ("time", "northing", "easting"); those without time (``coverage``) become one raster.
    periods : Periods
        Of its times.
    path : str or path
        A directory, made if it is missing.
    title : str, optional
        Written into the files, with the period.

    Returns
    -------
    list of Dated
        The rasters with the start and the end of their periods and their names, statistic by statistic: what
        `geobgp.output.qgis.write_dated` makes a project of, for QGIS's temporal controller. Those without time are
        written but not among them.

    Notes
    -----
    The classes of a statistic are those of all its periods together. Each file says when it is: ``TIFFTAG_DATETIME`` is
    the start of its period, and ``period``, ``period_start`` and ``period_end`` are tags of their own.
    """
    folder = Path(path)
    if folder.suffix.lower() in (".tif", ".tiff") or (folder.exists() and not folder.is_dir()):
        raise DataError(
            f"Maps over time are written into a folder; {str(path)!r} is a file.",
            option="path",
            found=str(path),
            remedy="Name a folder, or write one period: at(period).to_raster(...).",
        )
    if data.sizes.get("time") != periods.n:
        raise DataError(f"The dataset has {data.sizes.get('time', 0)} times; there are {periods.words()}.")
    out = []
    for name, values in data.data_vars.items():
        if values.dims == ("northing", "easting"):
            target = folder / f"{name}.tif"
            write_cog(data, [str(name)], target, title)
            write_style(palette.classes_in(data, str(name)), values.values, target)
        if values.dims != ("time", "northing", "easting"):
            continue
        classes = palette.classes_in(data, str(name)) if np.isfinite(values.values).any() else None
        for k, label in enumerate(periods.labels):
            target = folder / f"{name}_{file_label(label)}.tif"
            one = data.isel(time=k, drop=True).assign_attrs(time_tags(periods, k))
            write_cog(one, [str(name)], target, f"{title}, {label}" if title else None)
            if classes is not None:
                write_style(classes, values.values, target)
            out.append(Dated(target, periods.starts[k], periods.ends[k], label))
    return out


def file_label(label: str) -> str:
    """Return a period's label as part of a file's name.

    Examples
    --------
    >>> file_label("2020 Q1"), file_label("2020-W05"), file_label("0 to 2.5")
    ('2020-Q1', '2020-W05', '0-to-2.5')
    """
    return re.sub(r"[^\w.-]+", "-", label)


def time_tags(periods: Periods, k: int) -> dict[str, Any]:
    """Return when a period is, as tags of a TIFF."""
    start, end = periods.starts[k], periods.ends[k]
    tags = {"period": periods.labels[k], "period_start": str(start), "period_end": str(end)}
    if periods.dated:
        # By the TIFF standard, "YYYY:MM:DD HH:MM:SS".
        tags["TIFFTAG_DATETIME"] = str(start.astype("datetime64[s]")).replace("-", ":").replace("T", " ")
    return tags
