"""Exposure: how many people, or what else events happen to, each node's land holds."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pandas as pd

from geobgp.data.raster_in import LEFT_OUT, read_to_nodes
from geobgp.data.standardise import EXPECTED
from geobgp.errors import DataError, InputWarning, option, warn
from geobgp.files import kind_of, read_vector
from geobgp.land.regions import spread_shares
from geobgp.text import count, listed, number, percent
from geobgp.validate import as_floats

if TYPE_CHECKING:
    import geopandas as gpd
    import xarray as xr

    from geobgp.land.domain import Domain

    Exposure: TypeAlias = np.ndarray | gpd.GeoDataFrame | str | os.PathLike[str] | xr.DataArray


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
        The GeoDataFrame's column; by default "expected" (see `expected_counts`), "population", or the only numeric one.

    Returns
    -------
    (n_nodes,) array, and "area", "population", "expected" (cases, so that the map is a relative risk) or "exposure"
    """
    if exposure is None:
        return domain.node_areas / domain.area_unit[0], "area"
    exposure = areas_of(exposure)
    if hasattr(exposure, "geometry") and hasattr(exposure, "crs"):
        column = population_column(exposure, column)
        return _spread(exposure, domain, column), kind_of_amounts(column)
    if isinstance(exposure, (str, os.PathLike)) or hasattr(exposure, "dims"):
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
        values, kind = np.array(as_floats("exposure", exposure)), "exposure"
    if values.shape != (domain.n_nodes,):
        raise DataError(
            f"The exposure is one number per node, {domain.n_nodes:,}; found the shape {values.shape}.",
            option="exposure",
            found=values.shape,
        )
    check_amounts(values, "Exposure")
    if values.sum() <= 0:
        raise DataError(
            "The exposure is zero everywhere, so that nothing could happen anywhere.", option="exposure"
        )
    return values, kind


def check_amounts(values: np.ndarray, what: str) -> None:
    """Refuse amounts that are negative or no numbers."""
    bad = int((~np.isfinite(values) | (values < 0)).sum())
    if bad:
        raise DataError(
            f"{what} must be finite and not negative; {bad:,} of {count(len(values), 'value')} "
            f"{'is' if bad == 1 else 'are'} not.",
            option="exposure",
            found=bad,
        )


def amounts_in(areas: gpd.GeoDataFrame, column: str) -> np.ndarray:
    """Return a column of people; refuse what is no number, and areas that are there twice."""
    values = areas[column]
    if values.dtype.kind in "mM":
        raise DataError(
            f"The column {column!r} of the exposure holds dates, and no numbers of people.",
            option="exposure_column",
            found=column,
            remedy=f"Name the column with {option('exposure_column')}.",
        )
    people = np.asarray(pd.to_numeric(values, errors="coerce"), float)
    unread = [
        str(v) for v, known in zip(values, np.isfinite(people), strict=True) if not known and not pd.isna(v)
    ]
    if unread:
        raise DataError(
            f"The column {column!r} of the exposure has {listed(dict.fromkeys(unread), 3)}, which cannot be read as a "
            "number.",
            option="exposure_column",
            found=unread[:3],
            remedy="Write numbers without marks between thousands: 1234.",
        )
    check_amounts(people, f"The column {column!r}")
    twice = repeated(areas, column)
    if twice.any():
        raise DataError(
            f"{count(int(twice.sum()), 'row')} of {len(areas):,} of the exposure {'is' if twice.sum() == 1 else 'are'} "
            f"there already, the first row {int(np.flatnonzero(twice)[0]):,} (counted from 0): the same area, and "
            f"nothing but {column!r} may differ.",
            option="exposure",
            found=int(twice.sum()),
            remedy="Leave them out; or add them up, if they are of different people.",
        )
    return people


def repeated(areas: gpd.GeoDataFrame, amount: str) -> np.ndarray:
    """Tell which rows repeat one before: the same polygon and the same in every column but `amount`.

    Columns that number the rows, or measure them, are not looked at: those of numbers that are all different.
    """
    others = [c for c in areas.columns if c not in (areas.geometry.name, amount)]
    told = [c for c in others if areas[c].dtype.kind not in "iuf" or areas[c].duplicated().any()]
    keys = pd.DataFrame({str(c): areas[c].astype(str).to_numpy() for c in told})
    return np.asarray(keys.assign(_shape=areas.geometry.to_wkb().to_numpy()).duplicated(), bool)


def _spread(areas: gpd.GeoDataFrame, domain: Domain, column: str) -> np.ndarray:
    """Return people per node: those of each area that live on the node's land."""
    people = amounts_in(areas, column)
    return np.asarray(people @ shares_of(areas, domain, column, people)).ravel()


def shares_of(areas: gpd.GeoDataFrame, domain: Domain, column: str, people: np.ndarray) -> Any:
    """Return which share of each area's people lives on which node, (n_areas, n_nodes); tell of those off the land."""
    shares = spread_shares(domain, areas, "areas of the exposure")
    kept = np.asarray(shares.sum(axis=1)).ravel()
    if not (kept > 0).any():
        raise DataError(
            f"None of the {len(people):,} areas holds land of this domain; check their place and CRS.",
            option="exposure",
        )
    _warn_left_out(areas, column, people, kept)
    return shares


def areas_of(exposure: Any) -> Any:
    """Return areas that a file holds; anything else as it is."""
    if isinstance(exposure, (str, os.PathLike)) and kind_of(os.fspath(exposure)) in ("vector", "parquet"):
        return read_vector(os.fspath(exposure), "exposure")
    return exposure


def kind_of_amounts(column: str) -> str:
    """Return what a column of areas holds: people, or cases that are to be expected."""
    return EXPECTED if column == EXPECTED else "population"


def population_column(areas: gpd.GeoDataFrame, column: str | None) -> str:
    """Return the column of areas that holds the exposure: that which was named, or the usual one."""
    names = [c for c in areas.columns if c != areas.geometry.name]
    numeric = [c for c in names if areas[c].dtype.kind in "iuf"]
    if column is None:
        usual = [c for c in (EXPECTED, "population") if c in names]
        column = usual[0] if usual else (numeric[0] if len(numeric) == 1 else None)
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
