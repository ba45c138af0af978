"""Inputs: exposure, effort and covariates for a domain and its periods."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import geopandas as gpd
import numpy as np
import pandas as pd
import pyproj
import shapely
from scipy import sparse

from geobgp.data.effects import Effects, fixed_effects, named_covariates
from geobgp.data.rasters import LEFT_OUT, Pixels, read_with_pixels
from geobgp.data.sources import (
    EFFORT,
    EXPOSURE,
    UNKNOWN,
    Gaps,
    Key,
    Reading,
    are_numbers,
    check_labels,
    check_periods,
    is_shapes,
    labels_of,
)
from geobgp.data.standardise import EXPECTED
from geobgp.errors import DataError, InputWarning, option, warn
from geobgp.files import as_frame
from geobgp.land.regions import Overlay, ground_areas, overlaps, shared_land, spread_density
from geobgp.text import count, events, listed, number, percent
from geobgp.validation import LEAST, as_floats, in_rows_of, refuse_huge

if TYPE_CHECKING:
    import xarray as xr

    from geobgp.data.areas import AreaCounts
    from geobgp.data.delays import Delays
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
        inside = np.nan_to_num(self.over(domain, shapes, node, amounts=True))
        n, rows = len(cut.pieces), np.atleast_2d(inside)
        out = np.tile(cut.shares.data, (len(rows), 1))
        for k, row in enumerate(rows):
            whole = np.bincount(node[n:], row[n:], domain.n_nodes)[cut.node]
            some = whole > 0
            out[k, cut.entry[some]] = 0.0
            np.add.at(out[k], cut.entry[some], row[:n][some] / whole[some])
        return np.minimum(out if inside.ndim == 2 else out[0], 1.0)

    def means(self, domain: Domain, cut: Overlay, nodes: np.ndarray) -> np.ndarray:
        """Return the mean over the land of every node in each region, in the order of ``cut.shares.data``.

        Parameters
        ----------
        domain : Domain
        cut : Overlay
        nodes : (n_nodes,) or (n_periods, n_nodes) array
            The means of nodes, for those that are whole and where nothing is known.
        """
        whole = nodes[..., cut.shares.indices]
        out, size = np.array(np.atleast_2d(whole), float), shapely.area(cut.pieces)
        values = np.atleast_2d(self.over(domain, cut.pieces, cut.node, amounts=False))
        for k, row in enumerate(np.broadcast_to(values, (len(out), values.shape[1]))):
            area = np.where(np.isfinite(row), size, 0.0)
            total = np.bincount(cut.entry, area * np.nan_to_num(row), out.shape[1])
            area = np.bincount(cut.entry, area, out.shape[1])
            np.divide(total, area, out=out[k], where=area > 0)
        return out.reshape(whole.shape)


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

    def at_nodes(self, domain: Domain) -> np.ndarray:
        """Return amounts on the land of nodes, islets at the node nearest by."""
        if len(self.geometry) == 0:
            return np.zeros((*self.values.shape[:-1], domain.n_nodes))
        frame = gpd.GeoDataFrame(geometry=list(self.geometry), crs=self.crs)
        return np.asarray(self.values @ ground_areas(domain, frame))

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
        by_period = [
            (land if amounts else np.full(len(land), np.nan))
            if one is None
            else one.over(domain, shapes, node, amounts=amounts)
            for one in self.parts
        ]
        return np.sum(np.nan_to_num(by_period), axis=0) if self.together else np.array(by_period)

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
    effort : (k,) or (n_periods, k) array, optional
        The effort on the land of every node in each region, in that order; None where it is the node's.
    """

    shares: sparse.csr_array
    exposed: np.ndarray | None = None
    effort: np.ndarray | None = None

    @property
    def varies(self) -> bool:
        """Whether shares change from period to period."""
        return any(data is not None and data.ndim == 2 for data in (self.exposed, self.effort))

    def exposure(self, nodes: np.ndarray, effort: np.ndarray | None = None, period: int = 0) -> sparse.csr_array:
        """Return the exposure of every node within each region, (n_regions, n_nodes); with an effort, that seen.

        Parameters
        ----------
        nodes : (n_nodes,) array
            The exposure of nodes.
        effort : (n_nodes,) or (n_periods, n_nodes) array, optional
            The effort of nodes.
        period : int
        """
        shares = self.shares
        data = shares.data if self.exposed is None else of_period(self.exposed, period)
        data = data * nodes[shares.indices]
        if effort is not None:
            own = of_period(effort, period)[shares.indices] if self.effort is None else self.effort
            data = data * of_period(own, period)
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
    effort : (n_nodes,) or (n_periods, n_nodes) array, optional
    given_effort : Given, optional
        What the effort was read from.
    """
    whole = len(cut.pieces) == 0
    exposed = None if given is None or whole else given.shares(domain, cut)
    seen = None if effort is None or given_effort is None or whole else given_effort.means(domain, cut, effort)
    return Within(cut.shares, exposed, seen)


def of_period(values: np.ndarray, period: int) -> np.ndarray:
    """Return the row of a period, or what is the same in all."""
    return values if values.ndim == 1 else values[period]


class Read(NamedTuple):
    """What was read: values of every node, (n_nodes,) or (n_periods, n_nodes), what they are, and what from."""

    values: np.ndarray
    kind: str
    given: Given | None


def read_exposure(
    exposure: Exposure | None, reading: Reading, column: str | None = None, counted: gpd.GeoDataFrame | None = None
) -> Read:
    """Return the exposure of every node, what it is, and what it was read from.

    Parameters
    ----------
    exposure : None, array, GeoDataFrame, raster, or path of a vector file or raster
        None: land area in km² (square units of a local domain). A raster holds people (or animals, trees)
        per pixel, a GeoDataFrame areas with a column of people. People are spread evenly over their pixel, or
        over their area but for the water that the domain was made with, and those on the domain's land are
        counted. Those off it, beyond the land or at sea, are left out; a warning says how many, if they are
        more than 1 %. Over periods: a (n_periods, n_nodes) array, or a list (or a mapping by the periods' labels) with
        one of any kind for each period, or areas with a row for each period.
    reading : Reading
        The land and its periods.
    column : str, optional
        The GeoDataFrame's column; by default "expected" (see `expected_counts`), "population", or the only numeric one.
    counted : GeoDataFrame, optional
        Areas whose events were counted, all of them: none of the people in these are left out who have any land there.

    Returns
    -------
    Read
        Its kind is "area", "population", "expected" (cases, so that the map is a relative risk) or "exposure".
    """
    domain, columns = reading.domain, list[str]()
    _refuse_column("exposure", exposure is None, column)
    if exposure is None:
        return Read(domain.node_areas / domain.area_unit[0], "area", None)

    def polygons(frame: gpd.GeoDataFrame) -> Read:
        dated = reading.is_dated(frame)
        of = value_column(frame.drop(columns=reading.time) if dated else frame, column, "exposure")
        columns.append(of)
        table: Any
        if dated:
            frame, table = reading.by_period("exposure", frame, lambda rows: _people(rows, of), add=True)
        else:
            table = _people(frame, of)
        values, given = spread_people(frame, domain, of, table, counted)
        return Read(values, EXPECTED if of == EXPECTED else "population", given)

    def one(value: Any) -> Read:
        if isinstance(value, GivenPolygons):
            columns.append("")
            return Read(value.at_nodes(domain), "population", value)
        if is_shapes(value):
            return polygons(value)
        if isinstance(value, (str, os.PathLike)) or hasattr(value, "dims"):
            values, given = _of_raster(value, reading, "sum")
            return Read(reading.filled(EXPOSURE, values[:, None])[:, 0], "population", given)
        return Read(_per_node(value, domain, "exposure", "number"), "exposure", None)

    parts = _by_period("exposure", exposure, reading, one)
    _refuse_column("exposure", not columns, column)
    check_amounts(parts.values.ravel(), "Exposure")
    parts = parts._replace(values=np.where(parts.values < LEAST, 0.0, parts.values))
    empty = np.flatnonzero(np.atleast_2d(parts.values).sum(axis=1) <= 0)
    if len(empty) and reading.usual is None:
        when = ", so that nothing could happen anywhere"
        if parts.values.ndim == 2:
            when = f" in {count(len(empty), 'period')}, the first number {empty[0]} (from 0)"
        raise DataError(
            f"The exposure is zero everywhere{when}.",
            option="exposure",
            found=len(empty),
            remedy="Leave these periods out, or give their exposure." if parts.values.ndim == 2 else "",
        )
    return parts


def read_effort(effort: Effort | None, reading: Reading, column: str | None = None) -> Read | None:
    """Return the share of events at each node that get reported, and what it was read from; None where all are.

    Parameters
    ----------
    effort : None, array, GeoDataFrame, raster, or path of a vector file or raster
        One share per node; a raster or polygons with a column of shares are averaged by area, as covariates are.
        Slivers without a value, under 1 % of the land, take that of the nearest land, with a warning; more is an error.
        Over periods as for `read_exposure`.
    reading : Reading
        The land and its periods.
    column : str, optional
        Of the polygons; by default "effort", or the only column with numbers.

    Examples
    --------
    >>> import shapely, geopandas
    >>> from geobgp import Domain
    >>> domain = Domain.from_polygons(shapely.box(0, 0, 2, 1), cell_size=1, crs="local")
    >>> halves = [shapely.box(0, 0, 1.5, 1), shapely.box(1.5, 0, 2, 1)]
    >>> shares = geopandas.GeoDataFrame({"effort": [1.0, 0.5]}, geometry=halves)
    >>> read_effort(shares, Reading(domain)).values.tolist()
    [1.0, 0.75]
    """
    domain, columns = reading.domain, list[str]()
    _refuse_column("effort", effort is None, column)
    if effort is None:
        return None

    def polygons(frame: gpd.GeoDataFrame) -> Read:
        dated = reading.is_dated(frame)
        of = value_column(frame.drop(columns=reading.time) if dated else frame, column, "effort")
        columns.append(of)
        table: Any
        if dated:
            frame, table = reading.by_period("effort", frame, lambda rows: numbers_in(rows, of, "effort"))
        else:
            table = numbers_in(frame, of, "effort")
        _check_shares(table.ravel(), "polygon")
        means = reading.means(EFFORT, frame, np.atleast_2d(table).T).T
        given = GivenPolygons(np.array(frame.geometry.to_numpy(), dtype=object), frame.crs, table)
        return Read(means if dated else means[0], "effort", given)

    def one(value: Any) -> Read:
        if is_shapes(value):
            return polygons(value)
        if isinstance(value, (str, os.PathLike)) or hasattr(value, "dims"):
            values, given = _of_raster(value, reading, "mean")
            return Read(values, "effort", given)
        return Read(_per_node(value, domain, "effort", "share"), "effort", None)

    parts = _by_period("effort", effort, reading, one)
    _refuse_column("effort", not columns, column)
    _check_shares(parts.values.ravel(), "node")
    rows = [reading.filled(EFFORT, row[:, None])[:, 0] for row in np.atleast_2d(parts.values)]
    values = np.clip(np.array(rows).reshape(parts.values.shape), 0.0, 1.0)
    values = np.where(values < LEAST, 0.0, values)
    if reading.usual is None and not (values > 0).any():
        raise DataError(
            "The effort is zero everywhere: no event could have been seen.",
            option="effort",
            found=0.0,
            remedy=f"Check {option('effort')}.",
        )
    return parts._replace(values=values)


def _refuse_column(name: str, no_polygons: bool, column: str | None) -> None:
    """Refuse the name of a column where there are no polygons that could have it."""
    if column is not None and no_polygons:
        raise DataError(
            f"{option(f'{name}_column')} belongs to polygons of {name}, and there are none.",
            option=f"{name}_column",
            found=column,
            remedy=f"Give them as {option(name)}.",
        )


def _by_period(name: str, value: Any, reading: Reading, one: Callable[[Any], Read]) -> Read:
    """Return what is the same in all periods, or by period, read one by one."""
    value = value if isinstance(value, GivenPolygons) else as_frame(value, name)
    parts = reading.parts(name, value)
    if parts is None:
        return one(value)
    parts_read = [one(as_frame(part, name)) for part in parts]
    given = tuple(each.given for each in parts_read)
    kept = None if all(each is None for each in given) else GivenByPeriod(given)
    return Read(np.array([each.values for each in parts_read]), parts_read[0].kind, kept)


def _of_raster(value: Any, reading: Reading, how: Literal["sum", "mean"]) -> tuple[np.ndarray, GivenPixels | None]:
    with reading.apart():
        values, pixels = read_with_pixels(value, reading.domain, how)
        return values, GivenPixels(pixels)
    return reading.nothing(), None


def _per_node(value: Any, domain: Domain, name: str, unit: str) -> np.ndarray:
    values = np.array(as_floats(name, in_rows_of(name, value, domain.n_nodes)))
    if values.shape != (domain.n_nodes,):
        raise DataError(
            f"The {name} is one {unit} per node, {domain.n_nodes:,}; found the shape {values.shape}.",
            option=name,
            found=values.shape,
        )
    return values


#: Columns that are taken where none is named, and what they hold, by option.
_USUAL = {"exposure": ((EXPECTED, "population"), "the population"), "effort": (("effort",), "the effort")}


def value_column(polygons: gpd.GeoDataFrame, column: str | None, name: Literal["exposure", "effort"]) -> str:
    """Return the column of polygons that holds an exposure or an effort: that which was named, or the usual one."""
    names = [c for c in polygons.columns if c != polygons.geometry.name]
    numeric = [c for c in names if are_numbers(polygons[c])]
    usual, holds = _USUAL[name]
    if column is None:
        there = [c for c in usual if c in names]
        column = there[0] if there else (numeric[0] if len(numeric) == 1 else None)
    if column is None or column not in names:
        numbers = f"{len(numeric) or 'no'} columns hold numbers"
        missing = f"there is no column {column!r}" if column else numbers
        raise DataError(
            f"Which column of the {name} holds {holds}? Found: {', '.join(map(str, names)) or 'none at all'}; "
            f"{missing}.",
            option=f"{name}_column",
            found=names,
            remedy=f"Name it with {option(f'{name}_column')}.",
        )
    return column


def numbers_in(polygons: gpd.GeoDataFrame, column: str, name: Literal["exposure", "effort"]) -> np.ndarray:
    """Return the numbers of a column, NaN where there is nothing; refuse what is none."""
    values = polygons[column]
    facts: dict[str, Any] = {"option": f"{name}_column", "found": column}
    if values.dtype.kind in "mMbc":
        kind = {"b": "True and False", "c": "complex numbers"}.get(values.dtype.kind, "dates")
        raise DataError(
            f"The column {column!r} of the {name} holds {kind}, and no numbers.",
            remedy=f"Name the column with {option(f'{name}_column')}.",
            **facts,
        )
    out = np.asarray(pd.to_numeric(values, errors="coerce"), float)
    unread = [str(v) for v, known in zip(values, np.isfinite(out), strict=True) if not known and not pd.isna(v)]
    if unread:
        raise DataError(
            f"The column {column!r} of the {name} has {listed(dict.fromkeys(unread), 3)}, which cannot be read as a "
            "number.",
            option=f"{name}_column",
            found=unread[:3],
            remedy="Write numbers without marks between thousands: 1234.",
        )
    return out


def _people(areas: gpd.GeoDataFrame, column: str) -> np.ndarray:
    """Return a column of people; refuse what is no number, and areas that are there twice."""
    people = numbers_in(areas, column, "exposure")
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
    refuse_huge("exposure", values, what)


def repeated(areas: gpd.GeoDataFrame, amount: str) -> np.ndarray:
    """Tell which rows repeat one before: the same polygon and the same in every column but `amount`.

    Columns that number the rows, or measure them, are not looked at: those of numbers that are all different.
    """
    others = [c for c in areas.columns if c not in (areas.geometry.name, amount)]
    identifying = [c for c in others if areas[c].dtype.kind not in "iuf" or areas[c].duplicated().any()]
    keys = pd.DataFrame({str(c): areas[c].astype(str).to_numpy() for c in identifying})
    return np.asarray(keys.assign(_shape=areas.geometry.normalize().to_wkb().to_numpy()).duplicated(), bool)


def spread_people(
    areas: gpd.GeoDataFrame, domain: Domain, column: str, people: np.ndarray, counted: gpd.GeoDataFrame | None = None
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
            f"None of the {len(areas):,} areas holds land of this domain; check their place and CRS.", option="exposure"
        )
    mean = people if people.ndim == 1 else people.mean(axis=0)
    _warn_left_out(areas, column, mean, kept)
    _warn_shared(areas, domain, column, mean, per_area, shares)
    some = np.flatnonzero(kept > 0)
    shapes = np.array(areas.geometry.to_numpy(), dtype=object)[some]
    return np.asarray(people @ shares), GivenPolygons(shapes, areas.crs, (people * per_area)[..., some])


def _lie_in(areas: gpd.GeoDataFrame, counted: gpd.GeoDataFrame) -> np.ndarray:
    """Tell which areas lie in those that were counted, but for slivers of borders that others have drawn."""
    own = shapely.make_valid(np.array(areas.geometry.to_numpy(), dtype=object))
    theirs = counted.geometry if areas.crs is None or counted.crs is None else counted.geometry.to_crs(areas.crs)
    theirs = shapely.make_valid(np.array(theirs.to_numpy(), dtype=object))
    same = np.isin(shapely.to_wkb(shapely.normalize(own)), shapely.to_wkb(shapely.normalize(theirs)))
    rest = np.flatnonzero(~same)
    part, other = shapely.STRtree(theirs).query(own[rest], predicate="intersects")
    area = shapely.area(shapely.intersection(own[rest[part]], theirs[other]))
    inside = np.bincount(part, area, len(rest))
    same[rest] = inside >= (1.0 - _SLIVER) * shapely.area(own[rest])
    return np.asarray(same)


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


def _warn_shared(
    areas: gpd.GeoDataFrame,
    domain: Domain,
    column: str,
    people: np.ndarray,
    per_area: np.ndarray,
    shares: sparse.csr_array,
) -> None:
    """Tell of areas that overlap, and of how many people two of them count."""
    of_land = np.divide(1.0, per_area, out=np.zeros(len(per_area)), where=per_area > 0)
    inside = sparse.diags_array(of_land) @ shares @ sparse.diags_array(1.0 / domain.node_areas)
    shared = shared_land(domain, areas, sparse.csr_array(inside))
    if shared is None:
        return
    twice = (people[shared.pairs] * shared.shares).min(axis=1)
    if not twice.any():
        return
    n = len(shared.pairs)
    warn(
        InputWarning(
            f"{count(n, 'pair')} of areas of the exposure {'overlaps' if n == 1 else 'overlap'}, where the column "
            f"{column!r} of both is added up: {shared.words(lambda k: f'{number(twice[k])} in both')}. About "
            f"{number(twice.sum())} of {number(people.sum())} are counted twice.",
            option="exposure",
            found=float(twice.sum()),
            remedy="Give the finest areas only, or the rest of the larger ones.",
        )
    )


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
#: How far beyond 0 or 1 is rounding.
_ROUNDING = 1e-6


def seen_exposure(exposure: np.ndarray, effort: np.ndarray | None) -> np.ndarray:
    """Return the exposure behind the events that get reported, by period where either changes."""
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
    remedy = f"Check {option('effort')} there: a small number says that hardly anybody looked. Or leave these out."
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
    """Return the share of the land where hardly any event gets reported, that of all periods."""
    return float(np.average(np.atleast_2d(effort < NONE).mean(axis=0), weights=domain.node_areas))


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
    rows, area = np.atleast_2d(effort), domain.node_areas
    periods = f" and {count(len(rows), 'period')}" if effort.ndim == 2 else ""
    text = (
        f"{percent(float(np.average(rows.mean(axis=0), weights=area)))} on average over the land{periods}, from "
        f"{percent(float(effort.min()))} to {percent(float(effort.max()))}; the map is as with full effort."
    )
    dark = (rows < NONE).all(axis=0)
    if not dark.any():
        return text
    unit, name = domain.area_unit
    name = name if domain.crs is not None else "square units"
    unseen = float(area[dark].sum() / area.sum())
    share = percent(unseen, None if unseen >= NONE else 2)
    return (
        f"{text} On {number(float(area[dark].sum() / unit))} {name} ({share} of the land) it is under {percent(NONE)}: "
        "the data say nothing there, and the map is based on what lies around."
    )


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


# -- All of them together ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Whole:
    """What is known of the inputs of all land, for reading the same on a part of it.

    Attributes
    ----------
    exposure_kind : str
    effects : Effects
        What the covariates are and how they are standardised, without rows.
    usual : mapping of Key to list of float
        The means of effort and covariates over all land.
    """

    exposure_kind: str = "area"
    effects: Effects = field(default_factory=Effects)
    usual: Mapping[Key, list[float]] = field(default_factory=dict)


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
    effort : (n_nodes,) or (n_periods, n_nodes) array, or None
        The share of events that get reported; None where all are.
    given_effort : Given or None
        What the effort was read from.
    effects : Effects
        The covariates, standardised; their columns are (n_nodes, 1 + k) or (n_periods, n_nodes, 1 + k).
    periods : Periods or None
        Those that the rows are of; None where there are none, or they are not known yet.
    labels : mapping of Key to list
        The labels that inputs were given by, where the periods are not known yet.
    gaps : mapping of Key to (n_nodes,) bool array
        Where sources had no value before they were filled.
    delays : Delays or None
        Which share of the events of each period is reported by now, which is part of the effort; see `reported`.

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
    labels: Mapping[Key, list[Any]] = field(default_factory=dict, repr=False)
    gaps: Mapping[Key, np.ndarray] = field(default_factory=dict, repr=False)
    delays: Delays | None = None

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
        part_of: Whole | None = None,
    ) -> Inputs:
        """Read exposure, effort and covariates at the nodes of a domain; by default its land, and nothing else.

        Parameters
        ----------
        domain : Domain
        exposure, exposure_column
            As for `read_exposure`.
        effort, effort_column
            As for `read_effort`.
        covariates, fill_missing
            As for `geobgp.data.effects.fixed_effects`.
        periods : Periods, optional
            Those of the counts; where they are not known yet, `over` is to follow.
        time : str or None
            The column of dates; inputs by area that have it too have values for each period. None: there are no dates,
            and so nothing for each period. Where it is left out the counts, which come later, will tell.
        date_format : str, optional
        counted : GeoDataFrame, optional
            Areas whose events were counted; see `read_exposure`.
        part_of : Whole, optional
            What is known of all land, where the domain is but a part of it: what covariates are and how they are
            standardised, and with what gaps are filled that have no node near. Of gaps nothing is said: see `gaps`.
        """
        if fill_missing not in (None, "mean"):
            raise DataError(
                f"fill_missing is None or 'mean'; found {fill_missing!r}.", option="fill_missing", found=fill_missing
            )
        if fill_missing is not None and covariates is None:
            raise DataError(
                f"{option('fill_missing')} has no effect without {option('covariates')}.",
                option="fill_missing",
                remedy=f"Leave {option('fill_missing')} out.",
            )
        usual = None if part_of is None else part_of.usual
        reading = Reading(domain, fill_missing, usual, periods, time, date_format)
        exposed = read_exposure(exposure, reading, exposure_column, counted)
        effort_read = read_effort(effort, reading, effort_column)
        effects = fixed_effects(covariates, reading, None if part_of is None else part_of.effects)
        named = {EXPOSURE: exposure, EFFORT: effort} | {
            Key("covariates", name): value for name, value in named_covariates(covariates).items()
        }
        out = cls(
            domain,
            exposed.values,
            exposed.kind if part_of is None else part_of.exposure_kind,
            exposed.given,
            None if effort_read is None else effort_read.values,
            None if effort_read is None else effort_read.given,
            effects,
            labels={} if periods is not None else labels_of(named),
            gaps=reading.gaps,
        )
        return out if periods is None else out.over(periods)

    @classmethod
    def of(cls, posterior: Any) -> Inputs:
        """Return the inputs that a posterior was fitted with."""
        return cls(
            posterior.domain,
            posterior.exposure,
            posterior.exposure_kind,
            posterior.given,
            posterior.effort,
            posterior.given_effort,
            posterior.design,
            delays=posterior.delays,
        )

    @property
    def whole(self) -> Whole:
        """What is known of all this land, for reading the same on a part of it."""
        effects, area = self.effects, self.domain.node_areas
        usual = {
            Key("covariates", block.covariate): block.means[: None if block.spline is None else 1].tolist()
            for block in effects.blocks
        }
        if self.effort is not None:
            usual[EFFORT] = [float(np.average(np.atleast_2d(self.effort).mean(axis=0), weights=area))]
        return Whole(self.exposure_kind, effects.bare, usual)

    @property
    def seen(self) -> np.ndarray:
        """The exposure times the effort: what stands behind the events that were reported."""
        return seen_exposure(self.exposure, self.effort)

    @property
    def n_periods(self) -> int | None:
        """The number of periods that something is given for; None where all is the same always."""
        return next((n for n in self._rows.values() if n is not None), None)

    @property
    def _rows(self) -> dict[str, int | None]:
        """The number of periods that each is given for."""
        effort = self.exposure[0] if self.effort is None else self.effort
        return {
            name: len(values) if values.ndim > always else None
            for name, values, always in (
                ("exposure", self.exposure, 1), ("effort", effort, 1), ("covariates", self.effects.columns, 2)
            )
        }  # fmt: skip

    def over(self, periods: Periods) -> Inputs:
        """Return the inputs over periods; refuse those of another number of periods, or by other labels."""
        for name, rows in self._rows.items():
            check_periods(rows, periods, name)
        check_labels(self.labels, periods)
        return replace(self, periods=periods, labels={})

    def reported(self, delays: Delays) -> Inputs:
        """Return the inputs with the share of each period's events that is reported by now as effort."""
        if (delays.share == 1.0).all():
            return replace(self, delays=delays)
        effort = np.broadcast_to(delays.effort, (len(delays.effort), self.domain.n_nodes))
        effort = np.array(effort) if self.effort is None else effort * self.effort
        return replace(self, effort=effort, given_effort=None, delays=delays)

    def at(self, period: int) -> Inputs:
        """Return the inputs of one period."""
        rows, columns = self._rows, self.effects.columns
        return replace(
            self,
            exposure=self.exposure[period] if rows["exposure"] else self.exposure,
            given=None if self.given is None else self.given.at(period),
            effort=self.effort[period] if self.effort is not None and rows["effort"] else self.effort,
            given_effort=None if self.given_effort is None else self.given_effort.at(period),
            effects=replace(self.effects, columns=columns[period]) if rows["covariates"] else self.effects,
            periods=None,
            labels={},
            delays=None if self.delays is None else self.delays.slice(period, period + 1),
        )

    def pooled(self) -> Inputs:
        """Return the inputs of all periods together.

        Exposures are added up, effort is averaged by exposure and covariates by period.
        """
        rows, columns, effort = self._rows, self.effects.columns, self.effort
        exposure = self.exposure.sum(axis=0) if rows["exposure"] else self.exposure
        if effort is not None and rows["effort"]:
            plain = effort.mean(axis=0)
            by = np.broadcast_to(self.exposure, effort.shape)
            effort = np.divide((effort * by).sum(axis=0), by.sum(axis=0), out=plain, where=by.sum(axis=0) > 0)
        return replace(
            self,
            exposure=exposure,
            given=self.given.pooled() if rows["exposure"] and self.given is not None else self.given,
            effort=effort,
            given_effort=None if rows["effort"] else self.given_effort,
            effects=replace(self.effects, columns=columns.mean(axis=0)) if rows["covariates"] else self.effects,
            periods=None,
            labels={},
            delays=None,
        )

    def gaps_in(self, nodes: np.ndarray) -> dict[Key, Gaps]:
        """Return where sources had no value, of some nodes (a mask)."""
        return {key: Gaps.of(key, missing, self.domain, nodes) for key, missing in self.gaps.items()}

    def without(self, nodes: np.ndarray) -> Inputs:
        """Return the inputs with no exposure at some nodes, as if nothing could be observed there."""
        exposure = self.exposure.copy()
        exposure[..., nodes] = 0.0
        return replace(self, exposure=exposure)
