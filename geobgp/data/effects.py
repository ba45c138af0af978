"""Exposure and covariates, from whatever they come as, to one number per node."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from geobgp.errors import DataError, InputWarning, option, warn
from geobgp.files import kind_of, read_vector
from geobgp.text import count, number, percent

if TYPE_CHECKING:
    import geopandas as gpd
    import xarray as xr

    from geobgp.land.domain import Domain

    Raster: TypeAlias = str | os.PathLike[str] | xr.DataArray
    Exposure: TypeAlias = np.ndarray | gpd.GeoDataFrame | str | os.PathLike[str] | xr.DataArray
    Covariate: TypeAlias = np.ndarray | Callable[[np.ndarray], np.ndarray] | Raster

#: People off the land are told from this share on.
LEFT_OUT = 0.01
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
        per pixel, a GeoDataFrame areas with a column of people. People are spread evenly over their pixel, or
        over their area but for the water that the domain was made with, and those on the domain's land are
        counted. Those off it, beyond the land or at sea, are left out; a warning says how many, if they are
        more than 1 %.
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
            warn(
                InputWarning(
                    f"The exposure raster has no data at {empty:,} of {count(len(values), 'node')}; taken as "
                    "zero there.",
                    option="exposure",
                    found=empty,
                )
            )
            values = np.nan_to_num(values, nan=0.0)
    else:
        values, kind = np.array(exposure, float), "exposure"
    if values.shape != (domain.n_nodes,):
        raise DataError(
            f"The exposure is one number per node, {domain.n_nodes:,}; found the shape {values.shape}.",
            option="exposure",
            found=values.shape,
        )
    _check_amounts(values, "Exposure")
    if values.sum() <= 0:
        raise DataError(
            "The exposure is zero everywhere, so that nothing could happen anywhere.", option="exposure"
        )
    return values, kind


def _check_amounts(values: np.ndarray, what: str) -> None:
    bad = int((~np.isfinite(values) | (values < 0)).sum())
    if bad:
        raise DataError(
            f"{what} must be finite and not negative; {bad:,} of {count(len(values), 'value')} "
            f"{'is' if bad == 1 else 'are'} not.",
            option="exposure",
            found=bad,
        )


def _spread(areas: gpd.GeoDataFrame, domain: Domain, column: str | None) -> np.ndarray:
    """Return people per node: those of each area that live on the node's land."""
    from geobgp.land.regions import spread_shares

    column = _population_column(areas, column)
    people = np.asarray(areas[column], float)
    _check_amounts(people, f"The column {column!r}")
    shares = spread_shares(domain, areas, "areas of the exposure")
    kept = np.asarray(shares.sum(axis=1)).ravel()
    if not (kept > 0).any():
        raise DataError(
            f"None of the {len(people):,} areas holds land of this domain; check their place and CRS.",
            option="exposure",
        )
    _warn_left_out(areas, column, people, kept)
    return np.asarray(shares.T @ people).ravel()


def _population_column(areas: gpd.GeoDataFrame, column: str | None) -> str:
    names = [c for c in areas.columns if c != areas.geometry.name]
    numeric = [c for c in names if areas[c].dtype.kind in "iuf"]
    if column is None:
        column = "population" if "population" in names else (numeric[0] if len(numeric) == 1 else None)
    if column is None or column not in names:
        numbers = f"{len(numeric) or 'no'} columns hold numbers"
        missing = f"there is no column {column!r}" if column else numbers
        raise DataError(
            "Which column of the exposure holds the population? "
            f"Found: {', '.join(map(str, names)) or 'none at all'}; {missing}.",
            option="exposure_column",
            found=names,
            remedy=f"Name it with {option('exposure_column')}.",
        )
    return column


def _warn_left_out(areas: gpd.GeoDataFrame, column: str, people: np.ndarray, kept: np.ndarray) -> None:
    """Tell how many people live off the land, and which areas that are mostly land lose most of them."""
    left = people * (1 - kept)
    if not left.sum() > LEFT_OUT * people.sum():
        return
    share = percent(left.sum() / people.sum())
    text = (
        f"{number(left.sum())} of {number(people.sum())} in the column {column!r} ({share}) lie off this "
        "domain's land and are left out, the people of an area being spread evenly over it."
    )
    beyond = (kept < 0.5) & (people > 0)
    partly = np.flatnonzero((kept >= 0.5) & (kept < 1 - LEFT_OUT) & (people > 0))
    if beyond.any():
        text += f" Mostly or wholly off it: {beyond.sum():,} of {count(len(people), 'area')}."
    remedy = ""
    if len(partly):
        texts = [c for c in areas.columns if c != areas.geometry.name and areas[c].dtype.kind == "O"]
        names = areas["name" if "name" in texts else texts[0]] if texts else areas.index.to_series()
        most = partly[np.argsort(-left[partly], kind="stable")]
        shown = [f"{names.iloc[i]} ({percent(1 - kept[i])})" for i in most[:5]]
        more = f" and {len(most) - 5} more" if len(most) > 5 else ""
        text += f" In part: {', '.join(shown)}{more}."
        remedy = (
            f"Where that part is sea or a lake, give it as {option('water')}, or clip the areas to the "
            "shore: all their people then live on their land."
        )
    warn(InputWarning(text, option="exposure", found=float(left.sum()), remedy=remedy))


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
        raise DataError(
            f"fill_missing is None or 'mean'; found {fill_missing!r}.",
            option="fill_missing",
            found=fill_missing,
        )
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
                f"The covariate {name!r} is {number(mean)} on all of the land; it cannot be told from the "
                "intercept.",
                option="covariates",
                found=str(name),
                remedy="Leave it out.",
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
            f"The covariate {name!r} is one value per node, {domain.n_nodes:,}; found the shape {out.shape}.",
            option="covariates",
            found=out.shape,
        )
    missing = ~np.isfinite(out)
    gaps = int(missing.sum())
    if gaps == len(out):
        raise DataError(
            f"The covariate {name!r} has no value on this domain's land; check its place and CRS.",
            option="covariates",
            found=name,
        )
    if gaps:
        share = percent(domain.node_areas[missing].sum() / domain.node_areas.sum(), 2)
        text = f"The covariate {name!r} has no value at {gaps:,} of {len(out):,} nodes ({share} of land)"
        facts: dict[str, Any] = {"option": "covariates", "found": gaps}
        if fill_missing is None:
            remedy = f"Fill them, or ask for their mean with {option('fill_missing', 'mean')}."
            raise DataError(f"{text}.", remedy=remedy, **facts)
        warn(InputWarning(f"{text}; they are given the mean of the others.", **facts))
        out[missing] = np.average(out[~missing], weights=domain.node_areas[~missing])
    return out


def _warn_correlated(names: tuple[str, ...], standard: np.ndarray, weight: np.ndarray) -> None:
    correlation = (standard * weight[:, None]).T @ standard
    rows, cols = np.nonzero(np.triu(np.abs(correlation) > _CORRELATED, 1))
    for i, j in zip(rows, cols, strict=True):
        warn(
            InputWarning(
                f"The covariates {names[i]!r} and {names[j]!r} have a correlation of "
                f"{correlation[i, j]:.4f}: the data can hardly tell their effects apart, and their "
                "coefficients are uncertain.",
                option="covariates",
                found=float(correlation[i, j]),
                remedy="Leave one out, or combine them.",
            )
        )
