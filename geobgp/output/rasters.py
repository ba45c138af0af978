"""Cloud-Optimised GeoTIFFs with QGIS styles, one for each statistic, and for each period where there are periods."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from geobgp.errors import DataError
from geobgp.files import replacing, together
from geobgp.output import palette
from geobgp.output.grids import SPACE, TIME_SPACE, transform_of
from geobgp.output.qgis import raster_qml

if TYPE_CHECKING:
    import xarray as xr

    from geobgp.output.palette import Classes


def write_rasters(data: xr.Dataset, path: str | os.PathLike[str], *, title: str | None = None) -> list[Path]:
    """Write Cloud-Optimised GeoTIFFs with a QGIS style beside each.

    Parameters
    ----------
    data : xarray.Dataset
        From `grids.dataset` or `Posterior.intensity`. Each variable on ("northing", "easting") becomes a raster; each
        over time one for each period, ``mean_2020-03.tif``.
    path : str or path
        A directory, made if it is missing: one file per variable, ``<variable>.tif``. Or, without periods, a file
        ending in ``.tif``: all variables as bands of it, the first one styled.
    title : str, optional
        Written into the files, with the period.

    Returns
    -------
    list of Path
        The rasters, statistic by statistic. Each has a ``.qml`` beside it, which QGIS applies by itself.

    Notes
    -----
    Float32, NaN as nodata, DEFLATE, internal overviews. Band names, units and statistics are in the file. The classes
    of a statistic are those of all its periods together. Each file over time says when it is: ``TIFFTAG_DATETIME`` is
    the start of its period, and ``period``, ``period_start`` and ``period_end`` are tags of their own.
    Files are written in a hidden folder, and moved into place when all of them are complete.
    """
    path = Path(path)
    plain = [str(n) for n, v in data.data_vars.items() if v.dims == SPACE]
    series = [str(n) for n, v in data.data_vars.items() if v.dims == TIME_SPACE]
    if not plain and not series:
        raise DataError('The dataset has no variable on ("northing", "easting"): there is nothing to write.')
    single = path.suffix.lower() in (".tif", ".tiff")
    if series and (single or path.is_file()):
        raise DataError(
            f"Maps over time are written into a folder; {str(path)!r} is a file.",
            option="path",
            found=str(path),
            remedy="Name a folder, or write one period: at(period).to_raster(...).",
        )
    if not single and path.is_file():
        raise DataError(f"{path} is a file.", remedy="Give a directory, or a name that ends in .tif for one file.")
    targets = []
    with together(path.parent if single else path) as folder:
        if single:
            targets.append(path)
            _write_one(data, plain, folder / path.name, title)
        for name in [] if single else [*series, *plain]:
            if name in plain:
                targets.append(path / f"{name}.tif")
                _write_one(data, [name], folder / targets[-1].name, title)
                continue
            classes = _classes(data, name)
            for k, label in enumerate(data["period"].values.tolist()):
                targets.append(path / f"{name}_{file_label(label)}.tif")
                one = data.isel(time=k)
                ends = one["time_bounds"].values if "time_bounds" in one else [one["time"].values]
                late = {"nowcast": "true"} if "nowcast" in one.coords and int(one["nowcast"]) else {}
                one = one.assign_attrs(time_tags(label, *ends) | late)
                heading = f"{title}, {label}" if title else None
                _write_one(one, [name], folder / targets[-1].name, heading, classes, data[name].values)
    return targets


def _write_one(
    data: xr.Dataset,
    names: list[str],
    target: Path,
    title: str | None,
    classes: Classes | None = None,
    styled: np.ndarray | None = None,
) -> None:
    """Write variables as bands of one file, and the style of the first: by default of its own values."""
    _write_bands(data, names, target, title)
    classes = _classes(data, names[0]) if classes is None else classes
    if classes is not None:
        write_style(classes, data[names[0]].values if styled is None else styled, target)


def _classes(data: xr.Dataset, name: str) -> Classes | None:
    """Return the classes of a variable; None where it has no value."""
    return palette.classes_in(data, name) if np.isfinite(data[name].values).any() else None


def write_style(classes: Classes, values: np.ndarray, target: Path) -> None:
    """Write the style of a raster beside it: classes, and from which to which of the values they go."""
    known = values[np.isfinite(values)].astype(np.float32)
    with replacing(target.with_suffix(".qml")) as temporary:
        temporary.write_text(raster_qml(classes, float(known.min()), float(known.max())), encoding="utf-8")


def _write_bands(data: xr.Dataset, names: list[str], target: Path, title: str | None) -> None:
    """Write variables of a dataset as bands of one file, complete or not at all."""
    from rasterio.io import MemoryFile

    rows, cols = data[names[0]].shape
    side = max(rows, cols)
    attrs = {k: v for k, v in data.attrs.items() if v is not None}
    about = {"title": title} if title else {}
    tags = raster_tags(title or str(attrs.get("title", ", ".join(names))), attrs | about)

    def fill(raster: Any) -> None:
        for band, name in enumerate(names, start=1):
            values = data[name].values.astype(np.float32)
            raster.write(values, band)
            raster.set_band_description(band, name)
            raster.set_band_unit(band, str(data[name].attrs.get("units", "")))
            raster.update_tags(band, **_statistics(values))
            raster.update_tags(band, **{str(k): str(v) for k, v in data[name].attrs.items()})

    # In memory first: GDAL says little of a disk that is full, and Python says it.
    with MemoryFile() as plain, MemoryFile(ext=".tif") as cog:
        write_cog(
            fill, plain.name, cog.name, tags, count=len(names), height=rows, width=cols, crs=data.rio.crs,
            transform=transform_of(data), block=512 if side > 2048 else 256 if side > 512 else 128,
        )  # fmt: skip
        with replacing(target, parents=True) as temporary:
            temporary.write_bytes(cog.getbuffer())


def write_cog(
    fill: Callable[[Any], None], plain: str, target: str, tags: Mapping[str, str], *, block: int, **profile: Any
) -> None:
    """Write a Cloud-Optimised GeoTIFF of float32, NaN off land; the way of all our rasters.

    Parameters
    ----------
    fill : callable
        Writes bands, or windows of them, into the open raster.
    plain, target : str
        Where GDAL writes the plain raster that is copied, and where the copy: files, or names in memory.
    tags : mapping
        See `raster_tags`.
    block : int
        Side of the tiles in the file.
    **profile
        ``count``, ``height``, ``width``, ``crs``, ``transform``, and what else the plain raster needs.
    """
    import rasterio
    from rasterio.shutil import copy

    profile = {"driver": "GTiff", "dtype": "float32", "nodata": float("nan"), **profile}
    with rasterio.Env(GDAL_PAM_ENABLED="NO"):
        with rasterio.open(plain, "w", **profile) as raster:
            raster.update_tags(AREA_OR_POINT="Area", **tags)
            fill(raster)
        copy(
            plain, target, driver="COG", compress="DEFLATE", predictor="YES", level=9, blocksize=block,
            resampling="AVERAGE", overviews="AUTO", bigtiff="IF_SAFER", num_threads="1",
        )  # fmt: skip


def raster_tags(description: str, attrs: Mapping[str, Any]) -> dict[str, str]:
    """Return facts as tags of a TIFF, with its description and our name."""
    import geobgp

    ours = {"TIFFTAG_SOFTWARE": f"geobgp {geobgp.__version__}", "TIFFTAG_IMAGEDESCRIPTION": description}
    return {str(k): str(v) for k, v in attrs.items()} | ours


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


# -- Time: which period a raster is of, in its name and in its tags ------------------------------------------


def file_label(label: str) -> str:
    """Return a period's label as part of a file's name.

    Examples
    --------
    >>> file_label("2020 Q1"), file_label("2020-W05"), file_label("0 to 2.5")
    ('2020-Q1', '2020-W05', '0-to-2.5')
    """
    return re.sub(r"[^\w.-]+", "-", label)


def time_tags(label: str, start: Any, end: Any = None) -> dict[str, str]:
    """Return when a period is, as tags of a TIFF; `geobgp.output.qgis` reads them.

    Examples
    --------
    >>> time_tags("2020-03", np.datetime64("2020-03-01"), np.datetime64("2020-04-01"))["TIFFTAG_DATETIME"]
    '2020:03:01 00:00:00'
    >>> time_tags("0 to 2.5", 0.0, 2.5)
    {'period': '0 to 2.5', 'period_start': '0.0', 'period_end': '2.5'}
    """
    dated = np.asarray(start).dtype.kind == "M"
    if dated:
        start, end = (None if moment is None else np.datetime64(moment, "s") for moment in (start, end))
    tags = {"period": label, "period_start": str(start)} | ({} if end is None else {"period_end": str(end)})
    # By the TIFF standard, "YYYY:MM:DD HH:MM:SS".
    return tags | ({"TIFFTAG_DATETIME": str(start).replace("-", ":").replace("T", " ")} if dated else {})
