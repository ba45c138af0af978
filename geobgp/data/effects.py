"""Exposure and covariates, from whatever they come as, to one number per node."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from geobgp.errors import DataError, GeobgpWarning
from geobgp.files import kind_of, read_vector

if TYPE_CHECKING:
    import geopandas as gpd
    import xarray as xr

    from geobgp.land.domain import Domain

    Raster: TypeAlias = str | os.PathLike[str] | xr.DataArray
    Exposure: TypeAlias = np.ndarray | gpd.GeoDataFrame | str | os.PathLike[str] | xr.DataArray
    Covariate: TypeAlias = np.ndarray | Callable[[np.ndarray], np.ndarray] | Raster

#: Correlation of two covariates from which on their separate effects are said to be hardly known.
_CORRELATED = 0.98


def node_exposure(
    exposure: Exposure | None, domain: Domain, column: str | None = None
) -> tuple[np.ndarray, str]:
    """Return the exposure of every node and what it is.

    Parameters
    ----------
    exposure : None, array, GeoDataFrame, raster, or path of a vector file or raster
        None: land area in km² (square units of a local domain). A raster holds people (or animals, trees)
        per pixel and keeps its total; a GeoDataFrame holds areas with a column of people, spread evenly over
        the land in each.
    domain : Domain
    column : str, optional
        The GeoDataFrame's column; by default "population", or the only numeric one.

    Returns
    -------
    (n_nodes,) array, and "area", "population" or "exposure"
    """
    if exposure is None:
        return domain.node_areas / domain.area_unit[0], "area"
    if isinstance(exposure, (str, os.PathLike)) and kind_of(os.fspath(exposure)) in ("vector", "parquet"):
        exposure = read_vector(os.fspath(exposure), "exposure")
    if hasattr(exposure, "geometry") and hasattr(exposure, "crs"):
        return _spread(exposure, domain, column), "population"
    if isinstance(exposure, (str, os.PathLike)) or hasattr(exposure, "dims"):
        from geobgp.data.raster_in import read_to_nodes

        values, kind = read_to_nodes(exposure, domain, "sum"), "population"  # type: ignore[arg-type]
        empty = int(np.isnan(values).sum())
        if empty == len(values):
            raise DataError("The exposure raster has no data on this domain's land; check its place and CRS.")
        if empty:
            warnings.warn(
                f"The exposure raster has no data at {empty:,} of {len(values):,} nodes; taken as zero "
                "there.",
                GeobgpWarning,
                stacklevel=4,
            )
            values = np.nan_to_num(values, nan=0.0)
    else:
        values, kind = np.array(exposure, float), "exposure"
    if values.shape != (domain.n_nodes,):
        raise DataError(
            f"The exposure is one number per node, {domain.n_nodes:,}; found the shape {values.shape}."
        )
    bad = int((~np.isfinite(values) | (values < 0)).sum())
    if bad:
        raise DataError(
            f"Exposure must be finite and not negative; {bad:,} of {len(values):,} values are not."
        )
    if values.sum() <= 0:
        raise DataError("The exposure is zero everywhere, so that nothing could happen anywhere.")
    return values, kind


def _spread(areas: gpd.GeoDataFrame, domain: Domain, column: str | None) -> np.ndarray:
    """Return people per node: each area's, spread evenly over the land within it."""
    from geobgp.land.regions import area_shares

    if column is None:
        numeric = [c for c in areas.columns if c != areas.geometry.name and areas[c].dtype.kind in "iuf"]
        column = (
            "population" if "population" in areas.columns else (numeric[0] if len(numeric) == 1 else None)
        )
    if column is None or column not in areas.columns:
        names = ", ".join(str(c) for c in areas.columns if c != areas.geometry.name)
        wanted = (
            f"there is no column {column!r}" if column else f"{len(numeric) or 'no'} columns hold numbers"
        )
        raise DataError(
            f"Which column of the exposure holds the population? Found: {names or 'none at all'}; {wanted}. "
            "Name it with exposure_column."
        )
    people = np.asarray(areas[column], float)
    bad = int((~np.isfinite(people) | (people < 0)).sum())
    if bad:
        raise DataError(
            f"The column {column!r} must be finite and not negative; {bad} of {len(people)} values are not."
        )
    land = area_shares(domain, areas).multiply(domain.node_areas).tocsr()
    total = np.asarray(land.sum(axis=1)).ravel()
    lost = float(people[total <= 0].sum())
    if lost == people.sum():
        raise DataError(
            f"None of the {len(people)} areas holds land of this domain; check their place and CRS."
        )
    if lost > 0:
        warnings.warn(
            f"{int(((total <= 0) & (people > 0)).sum())} of {len(people)} areas hold no land of this domain; "
            f"their population ({lost:,.6g} of {people.sum():,.6g}) is left out.",
            GeobgpWarning,
            stacklevel=5,
        )
    density = np.divide(people, total, out=np.zeros_like(people), where=total > 0)
    return np.asarray(land.T @ density).ravel()


@dataclass(frozen=True, eq=False)
class FixedEffects:
    """Standardised columns at the nodes, and how they were standardised.

    Attributes
    ----------
    names : tuple of str
    means, scales : (k,) arrays
        A column is (own value - mean) / scale; mean and scale are weighted by the nodes' areas.
    columns : (n_nodes, 1 + k) array
        A column of ones and the standardised covariates.
    """

    names: tuple[str, ...]
    means: np.ndarray
    scales: np.ndarray
    columns: np.ndarray = field(repr=False)


def fixed_effects(
    covariates: Mapping[str, Covariate] | None,
    domain: Domain,
    fill_missing: Literal["mean"] | None = None,
) -> FixedEffects:
    """Return the fixed effects of a model: an intercept and the standardised covariates.

    Parameters
    ----------
    covariates : mapping of name to array, callable or raster
        One value per node; or a callable that gets (n, 2) eastings and northings; or a raster, averaged by
        area.
    fill_missing : "mean", optional
        Give nodes without a value the mean of the others, with a warning that says how many; by default they
        are an error.
    """
    if fill_missing not in (None, "mean"):
        raise DataError(f"fill_missing is None or 'mean'; found {fill_missing!r}.")
    covariates = dict(covariates or {})
    ones = np.ones((domain.n_nodes, 1))
    if not covariates:
        return FixedEffects((), np.zeros(0), np.ones(0), ones)
    weight = domain.node_areas / domain.node_areas.sum()
    values = np.column_stack(
        [_covariate(str(name), value, domain, fill_missing) for name, value in covariates.items()]
    )
    means = weight @ values
    scales = np.sqrt(weight @ np.square(values - means))
    for name, mean, scale in zip(covariates, means, scales, strict=True):
        if not scale > 1e-10 * abs(mean):
            raise DataError(
                f"The covariate {name!r} is {mean:g} on all of the land; it cannot be told from the "
                "intercept. "
                "Leave it out."
            )
    standard = (values - means) / scales
    _warn_correlated(tuple(covariates), standard, weight)
    return FixedEffects(tuple(str(n) for n in covariates), means, scales, np.hstack([ones, standard]))


def _covariate(name: str, value: Any, domain: Domain, fill_missing: str | None) -> np.ndarray:
    if callable(value):
        out = np.asarray(value(domain.node_points), float)
    elif isinstance(value, (str, os.PathLike)) or hasattr(value, "dims"):
        from geobgp.data.raster_in import read_to_nodes

        out = read_to_nodes(value, domain, "mean")
    else:
        out = np.array(value, float)
    if out.shape != (domain.n_nodes,):
        raise DataError(
            f"The covariate {name!r} is one value per node, {domain.n_nodes:,}; found the shape {out.shape}."
        )
    missing = ~np.isfinite(out)
    count = int(missing.sum())
    if count == len(out):
        raise DataError(
            f"The covariate {name!r} has no value on this domain's land; check its place and CRS."
        )
    if count:
        share = domain.node_areas[missing].sum() / domain.node_areas.sum()
        found = (
            f"The covariate {name!r} has no value at {count:,} of {len(out):,} nodes ({share:.2%} of land)"
        )
        if fill_missing is None:
            raise DataError(f"{found}. Fill them, or ask for their mean with fill_missing='mean'.")
        warnings.warn(f"{found}; they are given the mean of the others.", GeobgpWarning, stacklevel=5)
        out[missing] = np.average(out[~missing], weights=domain.node_areas[~missing])
    return out


def _warn_correlated(names: tuple[str, ...], standard: np.ndarray, weight: np.ndarray) -> None:
    correlation = (standard * weight[:, None]).T @ standard
    rows, cols = np.nonzero(np.triu(np.abs(correlation) > _CORRELATED, 1))
    for i, j in zip(rows, cols, strict=True):
        warnings.warn(
            f"The covariates {names[i]!r} and {names[j]!r} have a correlation of {correlation[i, j]:.4f}: "
            "the data can "
            "hardly tell their effects apart, and their coefficients are uncertain. Leave one out, or "
            "combine them.",
            GeobgpWarning,
            stacklevel=5,
        )
