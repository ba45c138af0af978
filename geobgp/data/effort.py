"""Effort: the share of events that get reported, at every node; in the likelihood like an exposure, not in the map."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from geobgp.data.areas import AreaCounts, these
from geobgp.data.effects import filled, polygon_means
from geobgp.data.inputs import Given, GivenPixels, GivenPolygons
from geobgp.data.rasters import read_with_pixels
from geobgp.errors import DataError, option
from geobgp.files import kind_of, read_vector
from geobgp.text import count, events, listed, number, percent
from geobgp.validation import as_floats

if TYPE_CHECKING:
    import geopandas as gpd
    import xarray as xr

    from geobgp.land.domain import Domain

    Effort: TypeAlias = np.ndarray | gpd.GeoDataFrame | str | os.PathLike[str] | xr.DataArray

#: Effort below which the data are said to tell nothing of a place.
NONE = 0.01
#: The column of polygons that is taken where none is named.
_USUAL = "effort"
#: How far beyond 0 or 1 is rounding.
_ROUNDING = 1e-6


def node_effort(effort: Effort | None, domain: Domain, column: str | None = None) -> np.ndarray | None:
    """Return the share of the events at each node that get reported; see `read_effort`."""
    return read_effort(effort, domain, column)[0]


def read_effort(
    effort: Effort | None, domain: Domain, column: str | None = None
) -> tuple[np.ndarray | None, Given | None]:
    """Return the share of events at each node that get reported, None where all are, and what it was read from.

    Parameters
    ----------
    effort : None, array, GeoDataFrame, raster, or path of a vector file or raster
        One share per node; a raster or polygons with a column of shares are averaged by area, as covariates are.
        Slivers without a value, under 1 % of the land, take that of the nearest land, with a warning; more is an error.
    domain : Domain
    column : str, optional
        Of the polygons; by default "effort", or the only column with numbers.

    Examples
    --------
    >>> import shapely, geopandas
    >>> from geobgp import Domain
    >>> domain = Domain.from_polygons(shapely.box(0, 0, 2, 1), cell_size=1, crs="local")
    >>> halves = [shapely.box(0, 0, 1.5, 1), shapely.box(1.5, 0, 2, 1)]
    >>> read_effort(geopandas.GeoDataFrame({"effort": [1.0, 0.5]}, geometry=halves), domain)[0].tolist()
    [1.0, 0.75]
    """
    if effort is None:
        if column is not None:
            raise DataError(
                f"{option('effort_column')} belongs to polygons of effort, and there are none.",
                option="effort_column",
                found=column,
                remedy=f"Give them as {option('effort')}.",
            )
        return None, None
    values: Any
    given: Any = effort
    read: Given | None = None
    if isinstance(effort, (str, os.PathLike)) and kind_of(os.fspath(effort)) in ("vector", "parquet"):
        given = read_vector(os.fspath(effort), "effort")
    if hasattr(given, "geometry") and hasattr(given, "crs"):
        name = share_column(given, column)
        _check_shares(np.asarray(given[name], float), "polygon")
        values = polygon_means(given[[name, given.geometry.name]], name, domain)
        shapes = np.array(given.geometry.to_numpy(), dtype=object)
        read = GivenPolygons(shapes, given.crs, np.asarray(given[name], float))
    elif isinstance(given, (str, os.PathLike)) or hasattr(given, "dims"):
        values, pixels = read_with_pixels(given, domain, "mean")
        read = GivenPixels(pixels)
    else:
        values = np.array(as_floats("effort", given))
        if values.shape != (domain.n_nodes,):
            raise DataError(
                f"The effort is one share per node, {domain.n_nodes:,}; found the shape {values.shape}.",
                option="effort",
                found=values.shape,
            )
    _check_shares(values, "node")
    remedy = (
        f"Give {option('effort')} for all of the land: 0 where nobody looked, 1 where all events are seen."
    )
    out = filled("The effort", values[:, None], domain, None, name="effort", remedy=remedy)[:, 0]
    if not (out > 0).any():
        raise DataError(
            "The effort is zero everywhere: no event could have been seen.",
            option="effort",
            found=0.0,
            remedy=f"Check {option('effort')}.",
        )
    return np.clip(out, 0.0, 1.0), read


def seen_exposure(exposure: np.ndarray, effort: np.ndarray | None) -> np.ndarray:
    """Return the exposure behind the events that get reported."""
    return exposure if effort is None else exposure * effort


def check_events(
    located: np.ndarray | None, areas: AreaCounts | None, exposure: np.ndarray, effort: np.ndarray | None
) -> None:
    """Refuse events where none could have been reported.

    Parameters
    ----------
    located : (n_nodes,) array, optional
        Events at the nodes.
    areas : AreaCounts, optional
    exposure : (n_nodes,) array
    effort : (n_nodes,) array, optional
    """
    if effort is None:
        return
    remedy = (
        f"Check {option('effort')} there: a small number says that hardly anybody looked. Or leave these out."
    )
    if located is not None:
        stray = (located > 0) & (effort == 0)
        if stray.any():
            n = float(located[stray].sum())
            raise DataError(
                f"{events(n)} of {count(round(float(located.sum())), 'event')} "
                f"{'lies' if n == 1 else 'lie'} where the effort is zero (on {count(int(stray.sum()), 'node')}), so "
                "that nobody could have reported them.",
                option="effort",
                found=n,
                remedy=remedy,
            )
    if areas is not None:
        low = 0 if areas.suppressed is None else areas.suppressed[0]
        some = np.where(areas.hidden, float(low), areas.guessed) > 0
        exposed, seen = (areas.within.exposure(exposure, e).sum(axis=1) for e in (None, effort))
        bad = some & (exposed > 0) & ~(seen > 0)
        if bad.any():
            raise DataError(
                f"{these(bad, areas.names)} {'has' if bad.sum() == 1 else 'have'} events but no effort: nobody could "
                "have reported them.",
                option="effort",
                found=[areas.names[i] for i in np.flatnonzero(bad)],
                remedy=remedy,
            )


def unseen_share(effort: np.ndarray, domain: Domain) -> float:
    """Return the share of the land where hardly any event gets reported."""
    return float(np.average(effort < NONE, weights=domain.node_areas))


def about_effort(effort: np.ndarray, domain: Domain) -> str:
    """Return how much is reported, and where the data say nothing, in a few sentences.

    Examples
    --------
    >>> import shapely
    >>> from geobgp import Domain
    >>> domain = Domain.from_polygons(shapely.box(0, 0, 4, 1), cell_size=1, crs="local")
    >>> print(about_effort(np.array([0.5, 0.5, 1.0, 0.6]), domain))
    65 % on average over the land, from 50 % to 100 %; the map is as with full effort.
    """
    area, dark = domain.node_areas, effort < NONE
    text = (
        f"{percent(float(np.average(effort, weights=area)))} on average over the land, from "
        f"{percent(float(effort.min()))} to {percent(float(effort.max()))}; the map is as with full effort."
    )
    if not dark.any():
        return text
    unit, name = domain.area_unit
    name = name if domain.crs is not None else "square units"
    share = percent(unseen_share(effort, domain), None if unseen_share(effort, domain) >= NONE else 2)
    return (
        f"{text} On {number(float(area[dark].sum() / unit))} {name} ({share} of the land) it is under {percent(NONE)}: "
        "the data say nothing there, and the map rests on what lies around."
    )


def share_column(polygons: Any, column: str | None) -> str:
    """Return the column of polygons that holds the effort."""
    names = [c for c in polygons.columns if c != polygons.geometry.name]
    numeric = [c for c in names if polygons[c].dtype.kind in "iufb"]
    if column is None:
        column = _USUAL if _USUAL in names else (numeric[0] if len(numeric) == 1 else None)
    if column is None or column not in names:
        numbers = f"{len(numeric) or 'no'} columns hold numbers"
        missing = f"there is no column {column!r}" if column else numbers
        raise DataError(
            f"Which column of the polygons holds the effort? Found: {listed(names) or 'none at all'}; {missing}.",
            option="effort_column",
            found=names,
            remedy=f"Name it with {option('effort_column')}.",
        )
    if column not in numeric:
        raise DataError(
            f"The column {column!r} of the effort does not hold numbers.",
            option="effort_column",
            found=column,
            remedy="Effort is a share of events, from 0 to 1.",
        )
    return column


def _check_shares(values: np.ndarray, what: str) -> None:
    """Refuse what is no share; what is missing is looked at later."""
    known = values[np.isfinite(values)]
    bad = (known < -_ROUNDING) | (known > 1.0 + _ROUNDING)
    if not bad.any():
        return
    low, high = float(known.min()), float(known.max())
    remedy = "Where that means no data, declare it as such, and give 0 where nobody looked."
    if low >= 0 and high <= 100:
        remedy = "If it is in per cent, divide it by 100."
    raise DataError(
        f"Effort is the share of events that get reported, from 0 to 1; {int(bad.sum()):,} of "
        f"{count(len(values), what)} {'is' if bad.sum() == 1 else 'are'} not, with values from {number(low)} to "
        f"{number(high)}.",
        option="effort",
        found=int(bad.sum()),
        remedy=remedy,
    )
