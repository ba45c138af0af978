"""Levels: categorical covariates, as the share of each node's land that belongs to each of their levels."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from geobgp.arguments import SOURCE
from geobgp.data.raster_in import blocks_on_land, node_means
from geobgp.data.raster_source import RasterSource, open_raster
from geobgp.errors import DataError, option
from geobgp.land.regions import area_shares
from geobgp.text import count, listed
from geobgp.validate import NAME, either, number

if TYPE_CHECKING:
    import geopandas as gpd

    from geobgp.land.domain import Domain

#: More levels than this are not taken for levels; whole numbers with no more values than `FEW` may be some.
MOST, FEW = 50, 12
#: What is written behind the path of a raster that could be either.
_USES = ("levels", "numbers")
_LEVEL = either(NAME, number(), words="the name or the code of a level")


@dataclass(frozen=True, eq=False)
class Categorical:
    """A covariate of which each value is a level with an effect of its own, and not a number with a slope.

    Text and pandas' categories are levels by themselves. A path says the same with ``"landuse.tif|levels"``.

    Parameters
    ----------
    source : array, raster, path or DataFrame
        One value per node, or a raster with a code per pixel, or a table with the share of each node's land that
        belongs to each level, a column each.
    reference : str or number, optional
        The level that all others are compared with; by default the most common one.

    Examples
    --------
    >>> import shapely
    >>> from geobgp import Domain
    >>> domain = Domain.from_polygons(shapely.box(0, 0, 3, 1), cell_size=1, crs="local")
    >>> shares = level_shares(Categorical(np.array([1, 2, 1])), domain, "soil")
    >>> shares.columns.tolist(), shares["2"].tolist()
    (['1', '2'], [0.0, 1.0, 0.0])
    """

    source: Any
    reference: Any = None

    def __post_init__(self) -> None:
        SOURCE("source", self.source)
        if self.reference is not None:
            _LEVEL("reference", self.reference)


def split_use(source: Any) -> tuple[Any, str | None]:
    """Return a raster's path, and whether it says that its values are levels or numbers.

    Examples
    --------
    >>> split_use("soil.tif|band=2|levels"), split_use("dem.tif")
    (('soil.tif|band=2', 'levels'), ('dem.tif', None))
    """
    if isinstance(source, str | os.PathLike):
        path, mark, use = os.fspath(source).rpartition("|")
        if mark and use in _USES:
            return path, use
    return source, None


def is_categorical(value: Any) -> bool:
    """Tell whether a covariate's values are levels: it says so, or they are text or categories."""
    if isinstance(value, Categorical) or split_use(value)[1] == "levels":
        return True
    dtype = getattr(value, "dtype", None)
    if dtype is None and isinstance(value, list | tuple):
        dtype = np.asarray(value).dtype
    if dtype is None or hasattr(value, "dims"):
        return False
    return isinstance(dtype, pd.CategoricalDtype) or (
        not pd.api.types.is_numeric_dtype(dtype) and not pd.api.types.is_datetime64_any_dtype(dtype)
    )


def level_shares(value: Any, domain: Domain, name: str) -> pd.DataFrame:
    """Return the share of every node's land that belongs to each level, a column each; NaN where none is known.

    Parameters
    ----------
    value : Categorical, array or path with ``|levels``
    domain : Domain
    name : str
        Of the covariate, for messages.
    """
    source = split_use(value.source if isinstance(value, Categorical) else value)[0]
    if isinstance(source, str | os.PathLike) or hasattr(source, "dims"):
        return _of_raster(source, domain, name)
    if isinstance(source, pd.DataFrame):
        return _of_table(source, domain, name)
    values = pd.Series(np.asarray(source, dtype=object).ravel())
    if len(values) != domain.n_nodes:
        raise DataError(
            f"The covariate {name!r} is one level per node, {domain.n_nodes:,}; found {len(values):,}.",
            option="covariates",
            found=len(values),
        )
    return indicators(values, name)


def indicators(values: pd.Series, name: str) -> pd.DataFrame:
    """Return a column per level, 1 where it is the value and 0 where not; NaN where the value is missing."""
    missing = values.isna().to_numpy()
    words = values.map(level_word)
    levels = _ordered(set(words[~missing]), name)
    found = pd.DataFrame({level: (words == level).to_numpy(float) for level in levels})
    found.loc[missing] = np.nan
    return found


def polygon_means(frame: gpd.GeoDataFrame, column: str, domain: Domain) -> pd.DataFrame | np.ndarray:
    """Return a column of polygons at the nodes: its mean by land, or the shares of its levels where it is text."""
    shares = area_shares(domain, frame)
    values: Any = frame[column]
    if is_categorical(values):
        table = indicators(values.reset_index(drop=True), column)
        own, names = table.to_numpy(), list(table)
    else:
        own, names = np.asarray(values, float)[:, None], []
    known = np.isfinite(own).all(axis=1).astype(float)
    with np.errstate(invalid="ignore", divide="ignore"):
        out = (shares.T @ np.nan_to_num(own)) / (shares.T @ known)[:, None]
    return pd.DataFrame(out, columns=names) if names else out[:, 0]


def refuse_codes(source: Any, domain: Domain, name: str) -> bool:
    """Tell whether a raster's values are levels: two whole numbers are. Ask where they may well be codes.

    They may be where it has a colour table, or a few whole values.
    """
    path, use = split_use(source)
    if use is not None:
        return False
    with open_raster(path, None, None) as raster:
        if not raster.whole:
            return False
        found = _codes(raster, domain)
        if not raster.coloured and not 2 < len(found) <= FEW:
            return len(found) == 2
    why = "it has a colour table" if raster.coloured else f"they are {count(len(found), 'whole number')}"
    shown = path if isinstance(path, str | os.PathLike) else "x"
    levels, numbers = (
        option("covariates", f"'{name}={shown}|{use}'", python=python)
        for use, python in (("levels", f"Categorical({shown!r})"), ("numbers", repr(f"{shown}|numbers")))
    )
    raise DataError(
        f"Are the values of the covariate {name!r} levels (as of land use) or numbers (as of elevation)? In "
        f"{raster.name} {why}.",
        option="covariates",
        found=name,
        remedy=f"Say so: {levels} for levels, {numbers} for numbers.",
    )


def level_word(value: Any) -> str:
    """Return what a level is called; whole numbers have no point.

    Examples
    --------
    >>> level_word(3.0), level_word("heath ")
    ('3', 'heath')
    """
    whole = isinstance(value, float | np.floating) and float(value).is_integer()
    return str(int(value)) if whole else str(value).strip()


def matching_level(value: Any, levels: Sequence[str]) -> str | None:
    """Return the level that a value means: the same word, or the same number; None where there is none.

    Examples
    --------
    >>> matching_level(4, ["1", "4"]), matching_level("4.0", ["1", "4"]), matching_level("Wood", ["wood"])
    ('4', '4', None)
    """
    word = level_word(value)
    if word in levels:
        return word
    try:
        same = [level for level in levels if float(level) == float(word)]
    except ValueError:
        return None
    return same[0] if len(same) == 1 else None


def reference_level(value: Any, levels: Sequence[str], amounts: np.ndarray, name: str) -> int:
    """Return which level the others are compared with: the one that was asked for, or the most common."""
    wanted = getattr(value, "reference", None) if isinstance(value, Categorical) else None
    if wanted is None:
        return int(np.argmax(amounts))
    found = matching_level(wanted, levels)
    if found is None:
        raise DataError(
            f"The covariate {name!r} has no level {wanted!r} on the land; its levels are {listed(levels, MOST)}.",
            option="covariates",
            found=wanted,
            remedy="Give one of these as the reference.",
        )
    return list(levels).index(found)


def _of_table(table: pd.DataFrame, domain: Domain, name: str) -> pd.DataFrame:
    """Return shares that were given."""
    shares = table.rename(columns=level_word).astype(float).reset_index(drop=True)
    values = shares.to_numpy()
    sums = values[np.isfinite(values).all(axis=1)].sum(axis=1)
    wrong = (np.nan_to_num(values) < -1e-9).any() or (np.abs(sums - 1.0) > 1e-6).any()
    if len(shares) != domain.n_nodes or wrong or shares.columns.duplicated().any():
        raise DataError(
            f"The covariate {name!r} is a table of shares: a row for each of {domain.n_nodes:,} nodes, a column for "
            f"each level, rows that add up to 1. Found {len(shares):,} rows of {listed(shares.columns)}.",
            option="covariates",
            found=shares.shape,
        )
    return shares


def _ordered(levels: set[str], name: str) -> list[str]:
    """Return levels in order, numbers by size; refuse what cannot be levels."""
    if not levels:
        raise DataError(f"The covariate {name!r} has no value anywhere.", option="covariates", found=name)
    if len(levels) > MOST:
        raise DataError(
            f"The covariate {name!r} has {len(levels):,} levels; at most {MOST} can have effects of their own.",
            option="covariates",
            found=len(levels),
            remedy="Join some, or give it as numbers.",
        )
    try:
        return sorted(levels, key=float)
    except ValueError:
        return sorted(levels)


def _codes(raster: RasterSource, domain: Domain) -> list[float]:
    """Return the different values of the pixels around the land, up to one more than can be levels."""
    found: set[float] = set()
    for values in blocks_on_land(raster, domain):
        found |= set(np.unique(values[np.isfinite(values)]).tolist())
        if len(found) > MOST:
            break
    return sorted(found)


def _of_raster(source: Any, domain: Domain, name: str) -> pd.DataFrame:
    with open_raster(source, None, None) as raster:
        codes = _codes(raster, domain)
        words = _ordered({level_word(code) for code in codes}, name)
        by_word = {level_word(code): code for code in codes}
        if not words:
            raise DataError(
                f"The covariate {name!r} has no value on this domain's land; check its place and CRS.",
                option="covariates",
                found=listed([name]),
            )
        shares = {word: node_means(raster.where(by_word[word]), domain) for word in words}
    table = pd.DataFrame(shares)
    return table.loc[:, table.max() > 0]  # levels of the sea around have no effect on land
