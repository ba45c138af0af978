"""Rasters over time: a GeoTIFF for each statistic and period, all in one style, with its time in the file."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from geobgp.errors import DataError
from geobgp.output import palette
from geobgp.output.cog import write_cog, write_style
from geobgp.output.qgis_map import Dated

if TYPE_CHECKING:
    import xarray as xr

    from geobgp.data.periods import Periods


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
        `geobgp.output.qgis_map.write_dated` makes a project of, for QGIS's temporal controller. Those without time are
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
