"""Effects: covariates, from whatever they come as, to standardised columns at the nodes."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import pandas as pd
from scipy.spatial import cKDTree

from geobgp.data.levels import (
    Categorical,
    is_categorical,
    level_shares,
    level_word,
    polygon_means,
    refuse_codes,
    split_use,
)
from geobgp.data.raster_in import read_to_nodes
from geobgp.errors import DataError, InputWarning, option, warn
from geobgp.text import number, percent

if TYPE_CHECKING:
    import geopandas as gpd
    import xarray as xr

    from geobgp.land.domain import Domain

    Raster: TypeAlias = str | os.PathLike[str] | xr.DataArray
    Covariate: TypeAlias = (
        np.ndarray | Callable[[np.ndarray], np.ndarray] | Raster | Categorical | gpd.GeoDataFrame
    )
    Covariates: TypeAlias = Mapping[str, Covariate] | pd.DataFrame

#: Correlation of two covariates from which on their separate effects are said to be hardly known.
_CORRELATED = 0.98
#: Share of the land that may lack a value and takes that of the nearest land, with a warning.
SLIVERS = 0.01
#: Between a level and the one that it is compared with, in the name of its effect.
AGAINST = " against "


@dataclass(frozen=True, eq=False)
class Effects:
    """The fixed effects: what each covariate is called, how it was standardised, and its column at the nodes.

    Attributes
    ----------
    names : tuple of str
        Covariates, without the intercept.
    means, scales : (k,) arrays
        A covariate's standardised value is (own value - mean) / scale.
    columns : (n_nodes, 1 + k) array
        A column of ones and the standardised covariates; without rows where only their names are known.
    """

    names: tuple[str, ...] = ()
    means: np.ndarray = field(default_factory=lambda: np.zeros(0))
    scales: np.ndarray = field(default_factory=lambda: np.ones(0))
    columns: np.ndarray = field(default_factory=lambda: np.ones((0, 1)), repr=False)

    def standardise(self, values: Mapping[str, Any], n: int) -> np.ndarray:
        """Return (n, 1 + k): a column of ones and the standardised values of every covariate at n places."""
        values = {str(name): values[name] for name in values}
        for name in self.names:
            whole, mark, level = name.partition(": ")
            if mark and AGAINST in level and name not in values and whole in values:
                told = np.broadcast_to(np.asarray(values[whole], dtype=object), (n,))
                wanted = level.split(AGAINST)[0]
                values[name] = np.array([level_word(v) == wanted for v in told], float)
        missing = [name for name in self.names if name not in values]
        if missing:
            raise DataError(
                f"The model has the covariates {', '.join(self.names)}; {missing[0]!r} is not given.",
                option="covariates",
                found=missing,
            )
        own = np.array([np.broadcast_to(np.asarray(values[name], float), (n,)) for name in self.names])
        return np.column_stack([np.ones(n), (own.reshape(-1, n).T - self.means) / self.scales])

    def own_units(self, mean: np.ndarray, cov: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of intercept and slopes in the covariates' own units."""
        turn = self.to_own_units(len(mean))
        return turn @ mean, np.diag(turn @ cov @ turn.T)

    def to_own_units(self, k: int) -> np.ndarray:
        """Return the (k, k) matrix from standardised effects, the last k, to the covariates' own units.

        Effects beyond those of the covariates, such as a season's, have no other unit.
        """
        known = 1 + len(self.scales)
        turn = np.eye(max(k, known))
        turn[:known, :known] = np.diag(np.r_[1.0, 1.0 / self.scales])
        turn[0, 1:known] = -self.means / self.scales
        return turn[-k or len(turn) :, -k or len(turn) :]


def named_covariates(covariates: Covariates | None) -> dict[str, Any]:
    """Return covariates by name; the columns of a table are one each.

    A GeoDataFrame of polygons gives every column with its polygons, a DataFrame one value per node.
    """
    if not isinstance(covariates, pd.DataFrame):
        return {str(name): value for name, value in dict(covariates or {}).items()}
    if not hasattr(covariates, "geometry") or getattr(covariates, "active_geometry_name", None) is None:
        return {str(c): covariates[c].to_numpy() for c in covariates.columns}
    shape = covariates.geometry.name
    kinds = set(covariates.geom_type.dropna()) - {"Polygon", "MultiPolygon"}
    if kinds:
        raise DataError(
            f"Covariates of a GeoDataFrame are those of polygons; found {', '.join(sorted(kinds))}.",
            option="covariates",
            found=sorted(kinds),
            remedy="Give the areas that the values hold for, or a raster.",
        )
    return {str(c): covariates[[c, shape]] for c in covariates.columns if c != shape}


def fixed_effects(
    covariates: Covariates | None,
    domain: Domain,
    fill_missing: Literal["mean"] | None = None,
) -> Effects:
    """Return the fixed effects of a model: an intercept and the standardised covariates.

    Parameters
    ----------
    covariates : mapping of name to array, callable, raster or polygons; or a DataFrame
        One value per node; or a callable that gets (n, 2) eastings and northings; or a raster or the column of
        polygons, averaged by area. Text is taken for levels, and numbers are with `Categorical` or
        ``"soil.tif|levels"``: all but the most common level have an effect, against that one. Where a raster's
        values may be codes (it has a colour table, or few whole values) and nothing is said, it is an error.
    fill_missing : "mean", optional
        Give nodes without a value the mean of the others, with a warning that says how many. By default slivers,
        less than 1 % of the land, take the value of the nearest land, with a warning; more is an error.
    """
    if fill_missing not in (None, "mean"):
        raise DataError(
            f"fill_missing is None or 'mean'; found {fill_missing!r}.",
            option="fill_missing",
            found=fill_missing,
        )
    weight = domain.node_areas / domain.node_areas.sum()
    values: dict[str, np.ndarray] = {}
    for name, value in named_covariates(covariates).items():
        values |= covariate_columns(name, value, domain, fill_missing)
    means = np.array([weight @ v for v in values.values()])
    scales = np.array([np.sqrt(weight @ np.square(v - v @ weight)) for v in values.values()])
    for name, mean, scale in zip(values, means, scales, strict=True):
        if not scale > 1e-10 * abs(mean):
            raise DataError(
                f"The covariate {name!r} is {number(mean)} on all of the land; it cannot be told from the "
                "intercept.",
                option="covariates",
                found=name,
                remedy="Leave it out.",
            )
    effects = Effects(tuple(values), means, scales)
    columns = effects.standardise(values, domain.n_nodes)
    _warn_correlated(effects.names, columns[:, 1:], weight)
    return replace(effects, columns=columns)


def covariate_columns(
    name: str, value: Any, domain: Domain, fill_missing: str | None
) -> dict[str, np.ndarray]:
    """Return a covariate's columns: one, or one for each level but the most common."""
    found: Any
    if hasattr(value, "geometry") and isinstance(value, pd.DataFrame):
        found = polygon_means(value, next(c for c in value.columns if c != value.geometry.name), domain)
    elif is_categorical(value):
        found = level_shares(value, domain, name)
    elif callable(value):
        found = np.asarray(value(domain.node_points), float)
    elif isinstance(value, (str, os.PathLike)) or hasattr(value, "dims"):
        refuse_codes(value, domain, name)
        found = read_to_nodes(split_use(value)[0], domain, "mean")
    else:
        found = np.array(value, float)
    if not isinstance(found, pd.DataFrame):
        if found.shape != (domain.n_nodes,):
            raise DataError(
                f"The covariate {name!r} is one value per node, {domain.n_nodes:,}; found the shape {found.shape}.",
                option="covariates",
                found=found.shape,
            )
        return {name: filled(f"The covariate {name!r}", found[:, None], domain, fill_missing)[:, 0]}
    shares = filled(f"The covariate {name!r}", found.to_numpy(float), domain, fill_missing)
    common = int(np.argmax(domain.node_areas @ shares))
    if (shares[:, common] >= 1.0 - 1e-12).all():
        raise DataError(
            f"The covariate {name!r} has one level on all of the land, {found.columns[common]!r}; it cannot be told "
            "from the intercept.",
            option="covariates",
            found=name,
            remedy="Leave it out.",
        )
    return {
        f"{name}: {level}{AGAINST}{found.columns[common]}": shares[:, k]
        for k, level in enumerate(found.columns)
        if k != common
    }


def filled(
    what: str,
    out: np.ndarray,
    domain: Domain,
    fill_missing: str | None,
    *,
    name: str = "covariates",
    remedy: str = "",
) -> np.ndarray:
    """Return values (n_nodes, k) with gaps filled as was asked for; slivers from the nearest land.

    Parameters
    ----------
    what : str
        What has the gaps, as the subject of a sentence.
    out : (n_nodes, k) array
    domain : Domain
    fill_missing : "mean" or None
    name : str
        The option that the values are of.
    remedy : str
        What to do where there are more than slivers; by default to ask for the mean.
    """
    missing = ~np.isfinite(out).all(axis=1)
    gaps = int(missing.sum())
    if gaps == len(out):
        raise DataError(
            f"{what} has no value on this domain's land; check its place and CRS.", option=name, found=gaps
        )
    if not gaps:
        return out
    share = float(domain.node_areas[missing].sum() / domain.node_areas.sum())
    text = f"{what} has no value at {gaps:,} of {len(out):,} nodes ({percent(share, 2)} of land)"
    facts: dict[str, Any] = {"option": name, "found": gaps}
    if fill_missing is None and share >= SLIVERS:
        usual = f"Fill them, or ask for their mean with {option('fill_missing', 'mean')}."
        raise DataError(f"{text}.", remedy=remedy or usual, **facts)
    whose = "the nearest land" if fill_missing is None else "the mean of the others"
    warn(
        InputWarning(f"{text}; they are given {'that of ' if fill_missing is None else ''}{whose}.", **facts)
    )
    out = out.copy()
    if fill_missing is None:
        near = cKDTree(domain.node_points[~missing]).query(domain.node_points[missing])[1]
        out[missing] = out[~missing][near]
    else:
        out[missing] = np.average(out[~missing], axis=0, weights=domain.node_areas[~missing])
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
