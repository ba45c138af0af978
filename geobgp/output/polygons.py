"""Contours of a field on the grid as polygons: bands between levels, or regions above them."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import shapely

from geobgp.errors import DataError, option
from geobgp.files import replacing
from geobgp.inference.mixture import check_probabilities, quantile_name
from geobgp.output.grids import transform_of
from geobgp.output.palette import chosen_variable
from geobgp.text import number

if TYPE_CHECKING:
    import geopandas as gpd
    import xarray as xr
    from affine import Affine

    from geobgp.land.domain import Domain
    from geobgp.posterior import Posterior


# -- Cells: the land of every node with its numbers ----------------------------------------------------------


def cells(
    posterior: Posterior, quantiles: Sequence[float] | None, thresholds: Sequence[float], period: int | None
) -> gpd.GeoDataFrame:
    """Return a row for each node (of one period, or of each): its land and its numbers; see `Posterior.cells`."""
    import geopandas as gpd

    from geobgp.totals import with_periods

    domain, count = posterior.domain, posterior.n_periods
    which = list(range(count)) if period is None else [period]
    chances = check_probabilities(posterior.quantiles if quantiles is None else quantiles)
    size, unit = domain.area_unit

    def chosen(values: np.ndarray) -> np.ndarray:
        """Return values of the nodes of the periods that are asked for, in one line."""
        each = np.broadcast_to(np.reshape(values, (-1, domain.n_nodes)), (count, domain.n_nodes))
        return each[which].ravel()

    columns = {"node": chosen(np.arange(domain.n_nodes))}
    columns["land_km2" if unit == "km²" else "land_area"] = chosen(domain.node_areas / size)
    kind = posterior.exposure_kind
    if kind not in ("area", "observation") and not (kind == "risk" and posterior.protection):
        columns["exposure"] = chosen(posterior.exposure)
    named = posterior._statistics(chances)
    columns |= {name: chosen(named[name]) for name in ("mean", "sd", *map(quantile_name, chances))}
    for value in thresholds:
        columns[f"exceedance_{value:g}"] = chosen(posterior._exceedance(value))
    shapes = np.tile(domain.polygon_of(np.arange(domain.n_nodes)), len(which))
    frame = gpd.GeoDataFrame(columns, geometry=shapes, crs=domain.crs)
    if posterior.periods is not None:
        with_periods(frame, posterior.periods, np.repeat(which, domain.n_nodes))
    frame.attrs["units"] = posterior.units
    return frame


# -- Contours ------------------------------------------------------------------------------------------------


def variable_of(
    posterior: Posterior, variable: str | None, threshold: float | None, levels: Sequence[float]
) -> xr.DataArray:
    """Return what is asked for by name: a variable of `Posterior.intensity`, or "exceedance" of a threshold."""
    if variable != "exceedance" and threshold is None:
        data = posterior.intensity()
        return data[chosen_variable(data, variable)]
    if variable not in (None, "exceedance"):
        raise DataError(
            f"{option('threshold')} asks for a probability, {option('variable')} for {variable!r}.",
            option="variable",
            found=variable,
            remedy=f"Use {option('variable', 'exceedance')}, or leave out {option('threshold')}.",
        )
    if threshold is None:
        raise DataError(
            "An exceedance is that of a threshold, and none was given.",
            option="threshold",
            remedy=f"Say of which: {option('threshold', python='threshold=...')}, in {posterior.units}.",
        )
    wanted = np.asarray(levels, float)
    if ((wanted <= 0.0) | (wanted >= 1.0)).any():
        raise DataError(
            f"{option('levels')} of an exceedance are probabilities between 0 and 1; found {levels!r}.",
            option="levels",
            found=levels,
            remedy="For the land that exceeds it with 80 and 95 %: levels=[0.8, 0.95].",
        )
    return posterior.exceedance(threshold)


def to_polygons(
    variable: xr.DataArray,
    levels: Sequence[float],
    *,
    domain: Domain | None = None,
    kind: Literal["bands", "above"] = "bands",
    smooth: bool = True,
) -> gpd.GeoDataFrame:
    """Return the land between levels, or above each, as polygons.

    Parameters
    ----------
    variable : xarray.DataArray
        On ("northing", "easting"), NaN off land: a variable of `Posterior.intensity()` or an exceedance.
    levels : sequence of float
        In the variable's units.
    domain : Domain, optional
        Cuts the polygons at its shoreline; without it they end at the edges of the cells that have a value.
    kind : {"bands", "above"}
        "bands" divides all land: below the first level, between levels, above the last. "above" gives a
        region for each level: all land where the value exceeds it.
    smooth : bool
        Interpolate between the cells' centres. False keeps whole cells.

    Returns
    -------
    GeoDataFrame
        Columns ``lower``, ``upper`` (NaN where open), ``label``, ``units``, ``area`` (planar, km² or
        square units) and ``geometry``; empty bands are left out.
    """
    import geopandas as gpd

    wanted = np.unique(np.asarray(levels, float).ravel())
    if wanted.size == 0 or not np.isfinite(wanted).all():
        raise DataError(
            f"{option('levels')} must be one or more finite numbers; found {levels!r}.", option="levels", found=levels
        )
    if kind not in ("bands", "above"):
        raise DataError(f'{option("kind")} is "bands" or "above"; found {kind!r}.', option="kind", found=kind)
    values = variable.transpose("northing", "easting").values.astype(float)
    known = np.isfinite(values)
    if not known.any():
        raise DataError(f"{variable.name or 'The field'} has no value on any cell, so it has no contours.")
    crs = variable.rio.crs
    affine = transform_of(variable)
    ends = np.r_[-np.inf, wanted, np.inf]
    pairs = list(pairwise(ends)) if kind == "bands" else [(v, np.inf) for v in wanted]
    land = _cells(known, affine) if domain is None else domain.geometry
    shapely.prepare(land)
    shapes = [_smooth(values, known, p, affine) if smooth else _blocks(values, p, affine) for p in pairs]
    clipped = [polygonal(shapely.intersection(land, shape)) for shape in shapes]
    units = str(variable.attrs.get("units", ""))
    frame = gpd.GeoDataFrame(
        {
            "lower": [a if np.isfinite(a) else np.nan for a, _ in pairs],
            "upper": [b if np.isfinite(b) else np.nan for _, b in pairs],
            "label": [_label(a, b, units) for a, b in pairs],
            "units": units,
        },
        geometry=clipped,
        crs=None if crs is None else crs.to_wkt(),
    )
    frame.insert(4, "area", frame.geometry.area / (1e6 if crs is not None else 1.0))
    return frame[~frame.geometry.is_empty].reset_index(drop=True)


def write_polygons(frame: gpd.GeoDataFrame, path: str | os.PathLike[str], *, layer: str = "contours") -> Path:
    """Write polygons to a GeoPackage, complete or not at all."""
    path = Path(path)
    if path.suffix.lower() != ".gpkg":
        raise DataError(
            f"Polygons are written as GeoPackage; {path.name!r} should end in .gpkg.", option="path", found=path
        )
    with replacing(path, parents=True) as temporary, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "'crs' was not provided")  # a local domain has none
        frame.to_file(temporary, layer=layer, driver="GPKG")
    return path


def node_polygons(domain: Domain, label: np.ndarray, order: Sequence[str]) -> gpd.GeoDataFrame:
    """Return the land of the nodes of each label as one geometry, exactly as the shore cuts it.

    Parameters
    ----------
    domain : Domain
    label : (n_nodes,) array of str
    order : sequence of str
        The labels in the order of the rows; those without a node are left out.
    """
    import geopandas as gpd

    there = [name for name in order if (label == name).any()]
    shapes = [shapely.union_all(domain.polygon_of(np.flatnonzero(label == name))) for name in there]
    return gpd.GeoDataFrame({"region": there}, geometry=[polygonal(s) for s in shapes], crs=domain.crs)


def _label(lower: float, upper: float, units: str) -> str:
    suffix = f" {units}" if units not in ("", "1") else ""
    if np.isinf(lower):
        return f"≤ {number(upper, 6)}{suffix}"
    if np.isinf(upper):
        return f"> {number(lower, 6)}{suffix}"
    return f"{number(lower, 6)} – {number(upper, 6)}{suffix}"


def _cells(mask: np.ndarray, affine: Affine) -> shapely.Geometry:
    """Return the union of the cells where `mask` holds."""
    return shapely.union_all(cell_patches(mask, affine))


def cell_patches(mask: np.ndarray, affine: Affine) -> list[shapely.Polygon]:
    """Return the patches of cells where `mask` holds, which touch at corners at most."""
    from rasterio.features import shapes

    patches = shapes(mask.astype(np.uint8), mask=mask, transform=affine)
    return [shapely.geometry.shape(shape) for shape, _ in patches]


def _blocks(values: np.ndarray, pair: tuple[float, float], affine: Affine) -> shapely.Geometry:
    with np.errstate(invalid="ignore"):
        return _cells((values > pair[0]) & (values <= pair[1]), affine)


def _smooth(values: np.ndarray, known: np.ndarray, pair: tuple[float, float], affine: Affine) -> shapely.Geometry:
    import contourpy
    from scipy import ndimage

    # Values go on beyond the shore as at the nearest cell, so that contours meet the shore and are cut there.
    nearest = ndimage.distance_transform_edt(~known, return_distances=False, return_indices=True)
    field = np.pad(values[tuple(nearest)], 1, mode="edge")
    rows, cols = field.shape
    low, high = np.maximum(pair[0], field.min() - 1), np.minimum(pair[1], field.max() + 1)
    if not low < high:
        return shapely.Polygon()
    maker = contourpy.contour_generator(
        np.arange(cols) - 0.5, np.arange(rows) - 0.5, field, fill_type=contourpy.FillType.OuterOffset
    )
    filled: Any = maker.filled(low, high)
    parts = []
    for xy, ends in zip(*filled, strict=True):
        east, north = affine.a * xy[:, 0] + affine.c, affine.e * xy[:, 1] + affine.f
        ring = [np.column_stack([east, north])[a:b] for a, b in pairwise(ends)]
        parts.append(shapely.Polygon(ring[0], ring[1:]))
    return shapely.union_all(shapely.make_valid(parts))


def polygonal(geometry: shapely.Geometry) -> shapely.Geometry:
    """Keep the polygons of a geometry."""
    parts = shapely.get_parts(geometry)
    # A collection may hold multipolygons.
    parts = shapely.get_parts(parts)
    parts = parts[shapely.get_type_id(parts) == 3]
    return shapely.multipolygons(parts) if len(parts) else shapely.Polygon()
