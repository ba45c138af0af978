"""Inputs: exposure, effort and covariates for a domain and its periods."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import geopandas as gpd
import numpy as np
import pandas as pd
import pyproj
import shapely
from scipy import sparse

from geobgp.data.effects import (
    Effects,
    Term,
    covariate_columns,
    filled,
    fixed_effects,
    named_covariates,
    polygon_means,
)
from geobgp.data.periods import OUTSIDE, Clock
from geobgp.data.rasters import LEFT_OUT, Pixels, read_with_pixels
from geobgp.data.standardise import EXPECTED
from geobgp.errors import DataError, InputWarning, option, warn
from geobgp.files import kind_of, read_vector
from geobgp.land.regions import Overlay, overlaps, spread_density
from geobgp.text import count, events, listed, number, percent
from geobgp.validation import as_floats

if TYPE_CHECKING:
    import xarray as xr

    from geobgp.data.areas import AreaCounts
    from geobgp.data.periods import Periods
    from geobgp.land.domain import Domain

    Exposure: TypeAlias = np.ndarray | gpd.GeoDataFrame | str | os.PathLike[str] | xr.DataArray
    Effort: TypeAlias = Exposure


# -- Exposure: how many people, or what else events happen to, each node's land holds, and any piece of it ---
# A border cuts nodes in two, and the people of a node are not spread evenly over it: a town may end at the border. So
# what was given is kept, as polygons or as pixels, and read anew for the pieces into which regions cut the land.


#: A density of exposure below this share of the usual one is next to none: the dust of resampled rasters.
NEXT_TO_NONE = 1e-5


#: Share of an area that borders drawn by others may cut off.
_SLIVER = 0.01


class Given(ABC):
    """What was given of the land, polygons or pixels, kept so that any piece of it can be read."""

    @abstractmethod
    def over(self, domain: Domain, shapes: np.ndarray, node: np.ndarray, *, amounts: bool) -> np.ndarray:
        """Return what lies in polygons on the domain's plane, (k,) or (n_periods, k), or the mean there.

        Amounts within one node can be compared with each other; NaN where nothing is known.

        Parameters
        ----------
        domain : Domain
        shapes : (k,) array of polygons
        node : (k,) int array
            The node whose land each is a piece of.
        amounts : bool
            Whether to add up or to average.
        """

    def at(self, period: int) -> Given | None:
        """Return what was given of one period."""
        return self

    def pooled(self) -> Given:
        """Return what was given of all periods together."""
        return self

    def shares(self, domain: Domain, cut: Overlay) -> np.ndarray:
        """Return the share of every node's amount that lies in each region, in the order of ``cut.shares.data``.

        One for nodes that lie in one region, by land where nothing is known; (n_periods, ...) where it changes.
        """
        nodes = np.unique(cut.node)
        islets, near = domain.left_out
        shapes = np.concatenate([cut.pieces, np.asarray(domain.polygon_of(nodes), dtype=object), islets])
        node = np.concatenate([cut.node, nodes, near])
        found = np.nan_to_num(self.over(domain, shapes, node, amounts=True))
        n, rows = len(cut.pieces), np.atleast_2d(found)
        out = np.tile(cut.shares.data, (len(rows), 1))
        for k, row in enumerate(rows):
            whole = np.bincount(node[n:], row[n:], domain.n_nodes)[cut.node]
            some = whole > 0
            out[k, cut.entry[some]] = 0.0
            np.add.at(out[k], cut.entry[some], row[:n][some] / whole[some])
        return np.minimum(out if found.ndim == 2 else out[0], 1.0)

    def means(self, domain: Domain, cut: Overlay, nodes: np.ndarray) -> np.ndarray:
        """Return the mean over the land of every node in each region, in the order of ``cut.shares.data``.

        Parameters
        ----------
        domain : Domain
        cut : Overlay
        nodes : (n_nodes,) array
            The means of nodes, for those that are whole and where nothing is known.
        """
        out = nodes[cut.shares.indices]
        found = self.over(domain, cut.pieces, cut.node, amounts=False)
        area = np.where(np.isfinite(found), shapely.area(cut.pieces), 0.0)
        total = np.bincount(cut.entry, area * np.nan_to_num(found), len(out))
        area = np.bincount(cut.entry, area, len(out))
        return np.divide(total, area, out=np.array(out, float), where=area > 0)


@dataclass(frozen=True, eq=False)
class GivenPolygons(Given):
    """Polygons with a number each.

    Attributes
    ----------
    geometry : (k,) array of polygons
    crs : pyproj.CRS or None
    values : (k,) or (n_periods, k) array
        Amounts per m² of the land in the polygon, or what is to be averaged.
    """

    geometry: np.ndarray
    crs: pyproj.CRS | None
    values: np.ndarray

    def over(self, domain: Domain, shapes: np.ndarray, node: np.ndarray, *, amounts: bool) -> np.ndarray:
        """Return what lies in polygons on the domain's plane."""
        frame = gpd.GeoDataFrame(geometry=list(self.geometry), crs=self.crs)
        area = overlaps(domain, frame, shapes)
        known = np.isfinite(self.values)
        total = np.where(known, self.values, 0.0) @ area
        if amounts:
            return np.asarray(total)
        of = known.astype(float) @ area
        return np.divide(total, of, out=np.full(np.shape(total), np.nan), where=of > 0)

    def at(self, period: int) -> GivenPolygons:
        """Return what was given of one period."""
        return self if self.values.ndim == 1 else replace(self, values=self.values[period])

    def pooled(self) -> GivenPolygons:
        """Return what was given of all periods together."""
        return self if self.values.ndim == 1 else replace(self, values=self.values.sum(axis=0))


@dataclass(frozen=True, eq=False)
class GivenPixels(Given):
    """The pixels of a raster."""

    pixels: Pixels

    def over(self, domain: Domain, shapes: np.ndarray, node: np.ndarray, *, amounts: bool) -> np.ndarray:
        """Return what lies in polygons on the domain's plane."""
        return self.pixels.over(domain, shapes, node, amounts=amounts)


@dataclass(frozen=True, eq=False)
class GivenByPeriod(Given):
    """Something else for each period; None where it is known by node only."""

    parts: tuple[Given | None, ...]
    together: bool = False

    def over(self, domain: Domain, shapes: np.ndarray, node: np.ndarray, *, amounts: bool) -> np.ndarray:
        """Return what lies in polygons on the domain's plane, by period or of all of them together."""
        land = shapely.area(shapes)
        found = [
            land if one is None else one.over(domain, shapes, node, amounts=amounts) for one in self.parts
        ]
        return np.sum(np.nan_to_num(found), axis=0) if self.together else np.array(found)

    def at(self, period: int) -> Given | None:
        """Return what was given of one period."""
        return self.parts[period]

    def pooled(self) -> GivenByPeriod:
        """Return what was given of all periods together."""
        return replace(self, together=True)


@dataclass(frozen=True, eq=False)
class Within:
    """What of every node's land, exposure and effort lies in each of some regions.

    Attributes
    ----------
    shares : (n_regions, n_nodes) csr_array
        The share of every node's land.
    exposed : (k,) or (n_periods, k) array, optional
        The share of every node's exposure, in the order of ``shares.data``; None where it is as the land's.
    effort : (k,) array, optional
        The effort on the land of every node in each region, in that order; None where it is the node's.
    """

    shares: sparse.csr_array
    exposed: np.ndarray | None = None
    effort: np.ndarray | None = None

    @property
    def varies(self) -> bool:
        """Whether shares change from period to period."""
        return self.exposed is not None and self.exposed.ndim == 2

    def exposure(
        self, nodes: np.ndarray, effort: np.ndarray | None = None, period: int = 0
    ) -> sparse.csr_array:
        """Return the exposure of every node within each region, (n_regions, n_nodes); with an effort, that seen.

        Parameters
        ----------
        nodes : (n_nodes,) array
            The exposure of nodes.
        effort : (n_nodes,) array, optional
            The effort of nodes.
        period : int
        """
        shares = self.shares
        data = shares.data if self.exposed is None else self.exposed[period] if self.varies else self.exposed
        data = data * nodes[shares.indices]
        if effort is not None:
            data = data * (effort[shares.indices] if self.effort is None else self.effort)
        return sparse.csr_array((data, shares.indices, shares.indptr), shape=shares.shape)

    def rows(self, which: np.ndarray, period: int | None = None) -> Within:
        """Return some of the regions, in one period or in all."""

        def of(data: np.ndarray | None) -> np.ndarray | None:
            if data is None:
                return None
            if data.ndim == 2:
                if period is None:
                    return np.array([of(one) for one in data])
                data = data[period]
            whole = sparse.csr_array((data, self.shares.indices, self.shares.indptr), shape=self.shares.shape)
            return np.asarray(whole[which].data)

        return Within(self.shares[which], of(self.exposed), of(self.effort))


def within(
    domain: Domain,
    cut: Overlay,
    given: Given | None,
    effort: np.ndarray | None = None,
    given_effort: Given | None = None,
) -> Within:
    """Return what of every node's land, exposure and effort lies in regions.

    Parameters
    ----------
    domain : Domain
    cut : Overlay
        Of the regions.
    given : Given, optional
        What the exposure was read from; None where it is the land, or known by node only.
    effort : (n_nodes,) array, optional
    given_effort : Given, optional
        What the effort was read from.
    """
    whole = len(cut.pieces) == 0
    exposed = None if given is None or whole else given.shares(domain, cut)
    seen = (
        None if effort is None or given_effort is None or whole else given_effort.means(domain, cut, effort)
    )
    return Within(cut.shares, exposed, seen)


class Read(NamedTuple):
    """An exposure as it was read: of every node, what it is, and what it was read from."""

    values: np.ndarray
    kind: str
    given: Given | None


def node_exposure(
    exposure: Exposure | None, domain: Domain, column: str | None = None
) -> tuple[np.ndarray, str]:
    """Return the exposure of every node and what it is; see `read_exposure`."""
    return read_exposure(exposure, domain, column)[:2]


def read_exposure(
    exposure: Exposure | None,
    domain: Domain,
    column: str | None = None,
    counted: gpd.GeoDataFrame | None = None,
) -> Read:
    """Return the exposure of every node, what it is, and what it was read from.

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
    counted : GeoDataFrame, optional
        Areas whose events were counted, all of them: none of the people in these are left out who have any land there.

    Returns
    -------
    Read
        Its kind is "area", "population", "expected" (cases, so that the map is a relative risk) or "exposure".
    """
    if exposure is None:
        return Read(domain.node_areas / domain.area_unit[0], "area", None)
    given: Given | None = None
    areas: Any = areas_of(exposure)
    if hasattr(areas, "geometry") and hasattr(areas, "crs"):
        column = population_column(areas, column)
        values, given = spread_people(areas, domain, column, amounts_in(areas, column), counted)
        return Read(values, kind_of_amounts(column), given)
    if isinstance(exposure, (str, os.PathLike)) or hasattr(exposure, "dims"):
        values, pixels = read_with_pixels(exposure, domain, "sum")  # type: ignore[arg-type]
        kind, given = "population", GivenPixels(pixels)
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
    return Read(values, kind, given)


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


def spread_people(
    areas: gpd.GeoDataFrame,
    domain: Domain,
    column: str,
    people: np.ndarray,
    counted: gpd.GeoDataFrame | None = None,
) -> tuple[np.ndarray, GivenPolygons]:
    """Return people per node, and where they are; tell of those off the land.

    Parameters
    ----------
    areas : GeoDataFrame
    domain : Domain
    column : str
    people : (n_areas,) or (n_periods, n_areas) array
    counted : GeoDataFrame, optional
        As for `read_exposure`.
    """
    whole = None if counted is None else _lie_in(areas, counted)
    per_area, shares = spread_density(domain, areas, "areas of the exposure", whole)
    kept = np.asarray(shares.sum(axis=1)).ravel()
    if not (kept > 0).any():
        raise DataError(
            f"None of the {len(areas):,} areas holds land of this domain; check their place and CRS.",
            option="exposure",
        )
    _warn_left_out(areas, column, people if people.ndim == 1 else people.mean(axis=0), kept)
    some = np.flatnonzero(kept > 0)
    shapes = np.array(areas.geometry.to_numpy(), dtype=object)[some]
    return np.asarray(people @ shares), GivenPolygons(shapes, areas.crs, (people * per_area)[..., some])


def _lie_in(areas: gpd.GeoDataFrame, counted: gpd.GeoDataFrame) -> np.ndarray:
    """Tell which areas lie in those that were counted, but for slivers of borders that others have drawn."""
    own = shapely.make_valid(np.array(areas.geometry.to_numpy(), dtype=object))
    theirs = (
        counted.geometry if areas.crs is None or counted.crs is None else counted.geometry.to_crs(areas.crs)
    )
    theirs = shapely.make_valid(np.array(theirs.to_numpy(), dtype=object))
    same = np.isin(shapely.to_wkb(shapely.normalize(own)), shapely.to_wkb(shapely.normalize(theirs)))
    rest = np.flatnonzero(~same)
    part, other = shapely.STRtree(theirs).query(own[rest], predicate="intersects")
    area = shapely.area(shapely.intersection(own[rest[part]], theirs[other]))
    inside = np.bincount(part, area, len(rest))
    same[rest] = inside >= (1.0 - _SLIVER) * shapely.area(own[rest])
    return np.asarray(same)


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


def next_to_none(exposure: np.ndarray, node_areas: np.ndarray) -> np.ndarray:
    """Return whether nodes have next to no exposure: less than `NEXT_TO_NONE` of the usual density.

    The usual density is the median over all that is exposed, not over the land: half of the people live where it is as
    high or higher, and the dust of a raster, or an empty half of the country, does not count.

    Parameters
    ----------
    exposure : (n_nodes,) or (n_periods, n_nodes) array
    node_areas : (n_nodes,) array

    Examples
    --------
    >>> next_to_none(np.array([50.0, 30.0, 0.2, 1e-9, 0.0]), np.ones(5)).tolist()
    [False, False, False, True, True]
    """
    exposure = np.asarray(exposure, float)
    density = exposure / node_areas
    order = np.argsort(density, axis=None)
    people = np.cumsum(exposure.ravel()[order])
    usual = density.ravel()[order][min(int(np.searchsorted(people, 0.5 * people[-1])), people.size - 1)]
    return np.asarray(density < NEXT_TO_NONE * usual)


# -- Effort: the share of events that get reported; in the likelihood like an exposure, not in the map ---------


#: Effort below which the data are said to tell nothing of a place.
NONE = 0.01
#: The column of polygons that is taken where none is named.
_EFFORT_COLUMN = "effort"
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
                f"The {'area' if bad.sum() == 1 else 'areas'} {listed(np.array(areas.names)[bad], 5)} "
                f"{'has' if bad.sum() == 1 else 'have'} events but no effort: nobody could have reported them.",
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
        column = _EFFORT_COLUMN if _EFFORT_COLUMN in names else (numeric[0] if len(numeric) == 1 else None)
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


# -- Exposure and covariates that change from period to period -----------------------------------------------


#: In place of a column of dates: whether there is one is not known yet.
UNKNOWN = object()


def varies(value: Any) -> bool:
    """Whether something is given for each period: a table by period and node, or a list of what there is per period.

    Examples
    --------
    >>> varies(np.ones((3, 10))), varies(["2019.tif", "2020.tif"]), varies(np.ones(10)), varies([1.0, 2.0])
    (True, True, False, False)
    """
    if isinstance(value, np.ndarray):
        return value.ndim == 2
    if isinstance(value, Mapping):
        return True
    if not isinstance(value, (list, tuple)) or not value:
        return False
    return all(
        isinstance(one, (str, os.PathLike)) or np.ndim(one) > 0 or hasattr(one, "dims") for one in value
    )


def in_order(value: Any, periods: Periods | None, name: str) -> Any:
    """Return what is given by the labels of periods as a list in the order of these; anything else as it is.

    Parameters
    ----------
    value
    periods : Periods, optional
        Those that the labels are of; where they are not known yet the order stays, and `check_labels` is to follow.
    name : "exposure" or "covariates"

    Examples
    --------
    >>> from geobgp import Periods
    >>> in_order({"2020": "b.tif", 2019: "a.tif"}, Periods.calendar("year", 2019, 2020), "exposure")
    ['a.tif', 'b.tif']
    """
    if not isinstance(value, Mapping) or not varies(value):
        return value
    parts = list(value.values())
    return parts if periods is None else [parts[k] for k in _places(list(value), periods, name)]


def labels_in(exposure: Any, covariates: Any) -> dict[str, list[Any]]:
    """Return the labels of periods that an exposure or covariates are given by, under what they are of."""
    named = {"exposure": exposure} | {
        f"covariates: {name}": value for name, value in named_covariates(covariates).items()
    }
    return {
        name: list(value) for name, value in named.items() if isinstance(value, Mapping) and varies(value)
    }


def check_labels(labels: Mapping[str, list[Any]], periods: Periods) -> None:
    """Refuse what is given by other labels than those of the periods, or in another order."""
    for name, keys in labels.items():
        what, _, which = name.partition(": ")
        places = _places(keys, periods, what)
        if places != sorted(places):
            raise DataError(
                f"{option(what)}{f', {which}' if which else ''} is by period in another order, {listed(keys, 2)}.",
                option=what,
                found=[str(key) for key in keys],
                remedy=f"Give it in the order of the periods, from {periods.labels[0]!r} on.",
            )


def _places(keys: list[Any], periods: Periods, what: str) -> list[int]:
    """Return which of some labels belongs to each period; refuse those that are of none, and periods without one."""
    found: dict[int, Any] = {}
    for position, key in enumerate(keys):
        try:
            number = periods.find(key)
        except DataError as error:
            raise DataError(
                f"{option(what)} is given for {str(key)!r}, which is none of the periods: there are {periods.words()}.",
                option=what,
                found=str(key),
                remedy=f"Name the periods as they are, from {periods.labels[0]!r} to {periods.labels[-1]!r}.",
            ) from error
        if number in found:
            raise DataError(
                f"{option(what)} is given twice for the period {periods.labels[number]!r}: as "
                f"{str(keys[found[number]])!r} and as {str(key)!r}.",
                option=what,
                found=str(key),
                remedy="Give one for each period.",
            )
        found[number] = position
    lacking = [label for k, label in enumerate(periods.labels) if k not in found]
    if lacking:
        raise DataError(
            f"{option(what)} is given for {count(len(keys), 'period')}; there is none for {listed(lacking, 3)}.",
            option=what,
            found=lacking,
            remedy="Give one for each period, or one for all.",
        )
    return [found[k] for k in range(periods.n)]


def check_one(name: str, value: Any, where: str, remedy: str) -> None:
    """Refuse what is given for each period where there are no periods.

    Parameters
    ----------
    name : "exposure" or "covariates"
    value
        An exposure, or a covariate.
    where : str
        What has no periods.
    remedy : str

    Examples
    --------
    >>> check_one("exposure", ["2019.tif", "2020.tif"], "this map", "Give one.")
    Traceback (most recent call last):
    geobgp.errors.DataError: exposure is given for 2 periods, and this map has none. Give one.
    """
    if varies(value):
        raise DataError(
            f"{option(name)} is given for {count(len(value), 'period')}, and {where} has none.",
            option=name,
            found=len(value),
            remedy=remedy,
        )


def period_exposure(exposure: Any, domain: Domain, column: str | None = None, **when: Any) -> tuple[Any, str]:
    """Return the exposure of every node, by period or for all of them, and what it is; see `read_period_exposure`."""
    return read_period_exposure(exposure, domain, column, **when)[:2]


def read_period_exposure(
    exposure: Any,
    domain: Domain,
    column: str | None = None,
    *,
    time: Any = UNKNOWN,
    periods: Periods | None = None,
    date_format: str | None = None,
    counted: gpd.GeoDataFrame | None = None,
) -> Read:
    """Return the exposure of every node, (n_nodes,) or (n_periods, n_nodes), what it is, and what it was read from.

    Parameters
    ----------
    exposure
        As for `read_exposure`, the same in every period; or a (n_periods, n_nodes) array, or a list (or a mapping by
        the periods' labels) with an exposure of any kind for each period; or areas with a row for each period.
    domain : Domain
    column : str, optional
    time : str or None
        The column of dates; areas that have it too have an exposure for each period. None: there are no dates, and
        so no exposure for each period. Where it is left out the counts, which come later, will tell.
    periods : Periods, optional
    date_format : str, optional
    counted : GeoDataFrame, optional
        As for `read_exposure`.
    """
    if time is None:
        dates = option("time")
        remedy = f"Several exposures belong to periods: give one, or name the column of dates with {dates}."
        check_one("exposure", exposure, f"a map without {dates}", remedy)
    if isinstance(time, str) and periods is not None:
        exposure = areas_of(exposure)
        if hasattr(exposure, "columns") and time in exposure.columns:
            return _dated(exposure, domain, column, Clock(time, periods, None, date_format), periods, counted)
    if not varies(exposure):
        return read_exposure(exposure, domain, column, counted)
    given = None
    exposure = in_order(exposure, periods, "exposure")
    if isinstance(exposure, np.ndarray):
        values = _rows(np.array(exposure, float), domain, "exposure")
        check_amounts(values.ravel(), "Exposure")
        kind = "exposure"
    else:
        found = [read_exposure(one, domain, column, counted) for one in exposure]
        values, kind = np.array([one.values for one in found]), found[0].kind
        if any(one.given is not None for one in found):
            given = GivenByPeriod(tuple(one.given for one in found))
    empty = np.flatnonzero(values.sum(axis=1) <= 0)
    if len(empty):
        raise DataError(
            f"The exposure is zero everywhere in {count(len(empty), 'period')}, the first number {empty[0]} (from 0).",
            option="exposure",
            found=len(empty),
            remedy="Leave these periods out, or give their exposure.",
        )
    return Read(values, kind, given)


def _dated(
    areas: gpd.GeoDataFrame,
    domain: Domain,
    column: str | None,
    clock: Clock,
    periods: Periods,
    counted: gpd.GeoDataFrame | None = None,
) -> Read:
    """Return the exposure by period and node of areas with a row for each period."""
    column = population_column(areas.drop(columns=clock.name), column)
    codes = clock.codes(areas[clock.name])
    if clock.n_untimed:
        raise DataError(
            f"{count(clock.n_untimed, 'row')} of {len(areas):,} of the exposure have no date in {clock.name!r} that "
            "can be used.",
            option="exposure",
            found=clock.n_untimed,
            remedy="Give them one, or leave them out.",
        )
    used = np.flatnonzero(codes > OUTSIDE)
    there = np.bincount(codes[used], minlength=periods.n) > 0
    if not there.all():
        missing = [label for label, known in zip(periods.labels, there, strict=True) if not known]
        raise DataError(
            f"The exposure has a column {clock.name!r}, and no row for {count(len(missing), 'period')} of "
            f"{periods.n:,}: {listed(missing, 3)}.",
            option="exposure",
            found=missing,
            remedy="Give a row for each area and period, or leave that column out for the same exposure in all.",
        )
    areas, codes = areas.iloc[used], codes[used]
    area, _ = pd.factorize(pd.Series(areas.geometry.to_wkb().to_numpy()))
    people = amounts_in(areas, column)
    table = np.zeros((periods.n, int(area.max()) + 1))
    np.add.at(table, (codes, area), people)
    lacking = table.size - len(np.unique(codes * table.shape[1] + area))
    if lacking:
        raise DataError(
            f"{lacking:,} of {table.size:,} pairs of an area and a period have no row in the exposure: nobody, or not "
            "known?",
            option="exposure",
            found=lacking,
            remedy="Give a row for each, 0 where there is nobody.",
        )
    one = areas.iloc[np.unique(area, return_index=True)[1]]
    values, given = spread_people(one, domain, column, table, counted)
    return Read(values, kind_of_amounts(column), given)


def period_effects(
    covariates: Any,
    domain: Domain,
    fill_missing: Literal["mean"] | None = None,
    periods: Periods | None = None,
) -> Effects:
    """Return the fixed effects of a model whose covariates may change: columns (n_nodes, k) or (n_periods, n_nodes, k).

    What changes is standardised over all periods, so that an effect is the same in each of them.

    Parameters
    ----------
    covariates
        As for `fixed_effects`; a value may be a (n_periods, n_nodes) array, or a list (or a mapping by the periods'
        labels) with a raster, an array or a callable for each period.
    fill_missing : "mean", optional
    periods : Periods, optional
    """
    named = named_covariates(covariates)
    moving = {name: value for name, value in named.items() if varies(value)}
    if not moving:
        return fixed_effects(covariates, domain, fill_missing)
    still = fixed_effects({k: v for k, v in named.items() if k not in moving}, domain, fill_missing)
    moving = {name: in_order(value, periods, "covariates") for name, value in moving.items()}
    tables = {name: _table(name, value, domain, fill_missing) for name, value in moving.items()}
    lengths = {len(table) for table in tables.values()}
    if len(lengths) > 1:
        raise DataError(
            f"Covariates are given for {' and '.join(str(n) for n in sorted(lengths))} periods: which is it?",
            option="covariates",
            found=sorted(lengths),
        )
    weight = domain.node_areas / domain.node_areas.sum()
    means = np.array([np.mean(t @ weight) for t in tables.values()])
    scales = np.array(
        [np.sqrt(np.mean(np.square(t - np.mean(t @ weight)) @ weight)) for t in tables.values()]
    )
    for name, mean, scale in zip(tables, means, scales, strict=True):
        if not scale > 1e-10 * abs(mean):
            raise DataError(
                f"The covariate {name!r} is {mean:g} everywhere and always; it cannot be told from the intercept.",
                option="covariates",
                found=name,
                remedy="Leave it out.",
            )
    n_periods = lengths.pop()
    columns = [np.broadcast_to(still.columns, (n_periods, *still.columns.shape))]
    columns += [((t - m) / s)[:, :, None] for t, m, s in zip(tables.values(), means, scales, strict=True)]
    return replace(
        still,
        terms=(*still.terms, *(Term(name) for name in tables)),
        means=np.concatenate([still.means, means]),
        scales=np.concatenate([still.scales, scales]),
        columns=np.concatenate(columns, axis=2),
    )


def check_periods(n_given: int | None, periods: Periods, what: str) -> None:
    """Refuse what is given for another number of periods than there are."""
    if n_given is not None and n_given != periods.n:
        raise DataError(
            f"{option(what)} is given for {count(n_given, 'period')}; there are {periods.words()}.",
            option=what,
            found=n_given,
            remedy="Give one for each period, or one for all.",
        )


def _table(name: str, value: Any, domain: Domain, fill_missing: Literal["mean"] | None) -> np.ndarray:
    """Return a covariate by period and node."""
    found = [covariate_columns(name, part, domain, fill_missing, by_period=True) for part in value]
    if any(list(one) != [Term(name)] for one in found):
        raise DataError(
            f"The covariate {name!r} has levels; those that change from period to period are numbers.",
            option="covariates",
            found=name,
            remedy="Give an indicator for each level.",
        )
    return np.array([one[Term(name)] for one in found])


def _rows(values: np.ndarray, domain: Domain, what: str) -> np.ndarray:
    if values.ndim != 2 or values.shape[1] != domain.n_nodes:
        raise DataError(
            f"The {what} of periods has a row for each period and a column for each of {domain.n_nodes:,} nodes; found "
            f"the shape {values.shape}.",
            option=what,
            found=values.shape,
        )
    return values


# -- All of them together ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Inputs:
    """Exposure, effort and covariates at the nodes of a domain, the same always or period by period.

    Attributes
    ----------
    domain : Domain
    exposure : (n_nodes,) or (n_periods, n_nodes) array
        What events are counted per: land in km² (square units of a local domain), people, expected cases.
    exposure_kind : str
        "area", "population", "expected" or "exposure".
    given : Given or None
        What the exposure was read from, where it can be read for any piece of land.
    effort : (n_nodes,) array or None
        The share of events that get reported; None where all are.
    given_effort : Given or None
        What the effort was read from.
    effects : Effects
        The covariates, standardised; their columns are (n_nodes, 1 + k) or (n_periods, n_nodes, 1 + k).
    periods : Periods or None
        Those that the rows are of; None where there are none, or they are not known yet.
    labels : mapping of str to list
        The labels that inputs were given by, where the periods are not known yet.

    Examples
    --------
    >>> import shapely
    >>> from geobgp import Domain
    >>> domain = Domain.from_polygons(shapely.box(0, 0, 2, 1), cell_size=1, crs="local")
    >>> inputs = Inputs.read(domain, exposure=np.array([[10.0, 20.0], [30.0, 40.0]]), effort=np.array([0.5, 1.0]))
    >>> inputs.n_periods, inputs.at(0).seen.tolist(), inputs.pooled().exposure.tolist()
    (2, [5.0, 20.0], [40.0, 60.0])
    """

    domain: Domain
    exposure: np.ndarray
    exposure_kind: str = "area"
    given: Given | None = None
    effort: np.ndarray | None = None
    given_effort: Given | None = None
    effects: Effects = field(default_factory=Effects)
    periods: Periods | None = None
    labels: Mapping[str, list[Any]] = field(default_factory=dict, repr=False)

    @classmethod
    def read(
        cls,
        domain: Domain,
        *,
        exposure: Any = None,
        exposure_column: str | None = None,
        effort: Any = None,
        effort_column: str | None = None,
        covariates: Any = None,
        fill_missing: Literal["mean"] | None = None,
        periods: Periods | None = None,
        time: Any = UNKNOWN,
        date_format: str | None = None,
        counted: gpd.GeoDataFrame | None = None,
    ) -> Inputs:
        """Read exposure, effort and covariates at the nodes of a domain; by default its land, and nothing else.

        Parameters
        ----------
        domain : Domain
        exposure, exposure_column
            As for `read_period_exposure`.
        effort, effort_column
            As for `read_effort`.
        covariates, fill_missing
            As for `period_effects`.
        periods : Periods, optional
            Those of the counts; where they are not known yet, `over` is to follow.
        time : str or None
            The column of dates; None where there are no periods. See `read_period_exposure`.
        date_format : str, optional
        counted : GeoDataFrame, optional
            Areas whose events were counted; see `read_exposure`.
        """
        read = read_period_exposure(
            exposure,
            domain,
            exposure_column,
            time=time,
            periods=periods,
            date_format=date_format,
            counted=counted,
        )
        seen, given_effort = read_effort(effort, domain, effort_column)
        effects = period_effects(covariates, domain, fill_missing, periods)
        labels = {} if periods is not None else labels_in(exposure, covariates)
        out = cls(domain, *read, seen, given_effort, effects, None, labels)
        return out if periods is None else out.over(periods)

    @property
    def seen(self) -> np.ndarray:
        """The exposure times the effort: what stands behind the events that were reported."""
        return seen_exposure(self.exposure, self.effort)

    @property
    def n_periods(self) -> int | None:
        """The number of periods that something is given for; None where all is the same always."""
        rows = [len(self.exposure)] if self.exposure.ndim == 2 else []
        rows += [len(self.effects.columns)] if self.effects.columns.ndim == 3 else []
        return rows[0] if rows else None

    def over(self, periods: Periods) -> Inputs:
        """Return the inputs over periods; refuse those of another number of periods, or by other labels."""
        for what, rows, ndim in (("exposure", self.exposure, 2), ("covariates", self.effects.columns, 3)):
            check_periods(len(rows) if rows.ndim == ndim else None, periods, what)
        check_labels(self.labels, periods)
        return replace(self, periods=periods, labels={})

    def at(self, period: int) -> Inputs:
        """Return the inputs of one period."""
        columns = self.effects.columns
        return replace(
            self,
            exposure=self.exposure[period] if self.exposure.ndim == 2 else self.exposure,
            given=None if self.given is None else self.given.at(period),
            effects=replace(self.effects, columns=columns[period]) if columns.ndim == 3 else self.effects,
            periods=None,
            labels={},
        )

    def pooled(self) -> Inputs:
        """Return the inputs of all periods together: the sum of exposures, the mean of covariates."""
        columns = self.effects.columns
        changes = self.exposure.ndim == 2
        return replace(
            self,
            exposure=self.exposure.sum(axis=0) if changes else self.exposure,
            given=self.given.pooled() if changes and self.given is not None else self.given,
            effects=replace(self.effects, columns=columns.mean(axis=0))
            if columns.ndim == 3
            else self.effects,
            periods=None,
            labels={},
        )

    def without(self, nodes: np.ndarray) -> Inputs:
        """Return the inputs with no exposure at some nodes, as if nothing could be observed there."""
        exposure = self.exposure.copy()
        exposure[..., nodes] = 0.0
        return replace(self, exposure=exposure)
