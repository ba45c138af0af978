"""Results on the grid: xarray datasets, Cloud-Optimised GeoTIFFs that open styled in QGIS, and rasters in.

`dataset` makes the xarray.Dataset, `write_rasters` the files. `read_to_nodes` (covariates and populations)
and `to_polygons` (contours) belong here too and live in modules of their own.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from affine import Affine

from geobgp.data.raster_in import read_to_nodes
from geobgp.data.raster_source import array_transform
from geobgp.errors import DataError
from geobgp.output import palette
from geobgp.output import qgis as qgis_style
from geobgp.output.contours import to_polygons, write_polygons

if TYPE_CHECKING:
    import xarray as xr

    from geobgp.land.domain import Domain

__all__ = ["dataset", "read_to_nodes", "to_polygons", "transform_of", "write_polygons", "write_rasters"]


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
                f"nodes was expected, so the shape ({domain.n_nodes},)."
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


def write_rasters(
    data: xr.Dataset, path: str | os.PathLike[str], *, title: str | None = None, overwrite: bool = True
) -> list[Path]:
    """Write Cloud-Optimised GeoTIFFs with a QGIS style beside each.

    Parameters
    ----------
    data : xarray.Dataset
        From `dataset` or `Posterior.intensity`; every variable on ("northing", "easting") becomes a band.
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
    Each file is written under another name and moved into place when it is complete.
    """
    path = Path(path)
    names = [str(n) for n, v in data.data_vars.items() if v.dims == ("northing", "easting")]
    if not names:
        raise DataError('The dataset has no variable on ("northing", "easting"): there is nothing to write.')
    if path.suffix.lower() in (".tif", ".tiff"):
        jobs = [(path, names)]
    else:
        if path.exists() and not path.is_dir():
            raise DataError(f"{path} is a file; give a directory, or a name that ends in .tif for one file.")
        jobs = [(path / f"{name}.tif", [name]) for name in names]
    taken = [str(target) for target, _ in jobs if target.exists()]
    if taken and not overwrite:
        raise DataError(f"{', '.join(taken)} exist(s) already; use overwrite=True or another path.")
    for target, bands in jobs:
        target.parent.mkdir(parents=True, exist_ok=True)
        _write_cog(data, bands, target, title)
        values = data[bands[0]].values.astype(np.float32)
        if np.isfinite(values).any():
            classes = palette.classes_in(data, bands[0])
            low, high = float(np.nanmin(values)), float(np.nanmax(values))
            with _in_place(target.with_name(target.name[: -len(target.suffix)] + ".qml")) as temporary:
                temporary.write_text(qgis_style.raster_qml(classes, low, high), encoding="utf-8")
    return [target for target, _ in jobs]


def transform_of(data: xr.Dataset | xr.DataArray) -> Affine:
    """Return the transform of a dataset on ("northing", "easting")."""
    found = array_transform(data, "easting", "northing")
    if found.b or found.d or found.a <= 0 or found.e >= 0:
        raise DataError(
            "The coordinates do not run east and north-to-south; a raster needs northing descending."
        )
    return found


def _write_cog(data: xr.Dataset, names: list[str], target: Path, title: str | None) -> None:
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
        with _in_place(target) as temporary, memory.open() as src:
            copy(
                src, temporary, driver="COG", compress="DEFLATE", predictor="YES", level=9, blocksize=block,
                resampling="AVERAGE", overviews="AUTO", bigtiff="IF_SAFER", num_threads="1",
            )  # fmt: skip


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


@contextmanager
def _in_place(target: Path) -> Iterator[Path]:
    """Give a temporary path in the same directory; move it onto `target` when the block ends well."""
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".geobgp-") as folder:
        temporary = Path(folder) / target.name
        yield temporary
        temporary.replace(target)
