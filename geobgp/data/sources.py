"""Sources: what is given for land, once or for each period, as values at its nodes; and where it says nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from scipy.spatial import cKDTree

from geobgp.data.periods import OUTSIDE, Clock
from geobgp.data.rasters import ApartError
from geobgp.errors import DataError, InputWarning, option, warn
from geobgp.land.regions import Shared, area_shares, name_column, shared_land
from geobgp.text import count, listed, percent

if TYPE_CHECKING:
    import geopandas as gpd

    from geobgp.data.periods import Periods
    from geobgp.land.domain import Domain


#: In place of a column of dates: whether there is one is not known yet.
UNKNOWN = object()
#: Share of the land that may lack a value and takes that of the nearest land, with a warning.
SLIVERS = 0.01


class Key(NamedTuple):
    """What a source is of: the option, and the covariate's name."""

    option: str
    name: str = ""


EXPOSURE, EFFORT = Key("exposure"), Key("effort")


def is_shapes(value: Any) -> bool:
    """Whether something is a table of shapes."""
    return isinstance(value, pd.DataFrame) and hasattr(value, "geometry") and hasattr(value, "crs")


def are_numbers(values: Any) -> bool:
    """Whether values are real numbers, Python's own among them; text that could be read as numbers is none.

    Examples
    --------
    >>> are_numbers(pd.Series([1, None], dtype=object)), are_numbers(pd.Series(["1"])), are_numbers(np.array([1j]))
    (True, False, False)
    """
    series = pd.Series(values, dtype=object) if isinstance(values, (list, tuple)) else values
    if pd.api.types.is_complex_dtype(series.dtype):
        return False
    if pd.api.types.is_numeric_dtype(series.dtype):
        return True
    plain = {"integer", "floating", "mixed-integer-float", "decimal", "boolean"}
    return series.dtype.kind == "O" and pd.api.types.infer_dtype(series, skipna=True) in plain


# -- What is given for each period ---------------------------------------------------------------------------


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
    return all(isinstance(one, (str, os.PathLike)) or np.ndim(one) > 0 or hasattr(one, "dims") for one in value)


def in_order(value: Any, periods: Periods | None, name: str) -> Any:
    """Return what is given by the labels of periods as a list in the order of these; anything else as it is.

    Parameters
    ----------
    value
    periods : Periods, optional
        Those that the labels are of; where they are not known yet the order stays, and `check_labels` is to follow.
    name : "exposure", "effort" or "covariates"

    Examples
    --------
    >>> from geobgp import Periods
    >>> in_order({"2020": "b.tif", 2019: "a.tif"}, Periods.calendar("year", 2019, 2020), "exposure")
    ['a.tif', 'b.tif']
    """
    if not isinstance(value, Mapping):
        return value
    parts = list(value.values())
    return parts if periods is None else [parts[k] for k in _positions(list(value), periods, name)]


def labels_of(sources: Mapping[Key, Any]) -> dict[Key, list[Any]]:
    """Return the labels of periods that sources are given by, those that are."""
    return {key: list(value) for key, value in sources.items() if isinstance(value, Mapping)}


def check_labels(labels: Mapping[Key, list[Any]], periods: Periods) -> None:
    """Refuse what is given by other labels than those of the periods, or in another order."""
    for (what, which), keys in labels.items():
        positions = _positions(keys, periods, what)
        if positions != sorted(positions):
            raise DataError(
                f"{option(what)}{f', {which}' if which else ''} is by period in another order, {listed(keys, 2)}.",
                option=what,
                found=[str(key) for key in keys],
                remedy=f"Give it in the order of the periods, from {periods.labels[0]!r} on.",
            )


def _positions(keys: list[Any], periods: Periods, what: str) -> list[int]:
    """Return which of some labels belongs to each period; refuse those that are of none, and periods without one."""
    positions: dict[int, Any] = {}
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
        if number in positions:
            raise DataError(
                f"{option(what)} is given twice for the period {periods.labels[number]!r}: as "
                f"{str(keys[positions[number]])!r} and as {str(key)!r}.",
                option=what,
                found=str(key),
                remedy="Give one for each period.",
            )
        positions[number] = position
    lacking = [label for k, label in enumerate(periods.labels) if k not in positions]
    if lacking:
        raise DataError(
            f"{option(what)} is given for {count(len(keys), 'period')}; there is none for {listed(lacking, 3)}.",
            option=what,
            found=lacking,
            remedy="Give one for each period, or one for all.",
        )
    return [positions[k] for k in range(periods.n)]


def check_one(name: str, value: Any, where: str, remedy: str) -> None:
    """Refuse what is given for each period where there are no periods.

    Parameters
    ----------
    name : "exposure", "effort" or "covariates"
    value
        An exposure, an effort, or a covariate.
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


def check_periods(n_given: int | None, periods: Periods, what: str) -> None:
    """Refuse what is given for another number of periods than there are."""
    if n_given is not None and n_given != periods.n:
        raise DataError(
            f"{option(what)} is given for {count(n_given, 'period')}; there are {periods.words()}.",
            option=what,
            found=n_given,
            remedy="Give one for each period, or one for all.",
        )


# -- Land without a value ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Gaps:
    """Land where a source has no value.

    Attributes
    ----------
    option : "exposure", "effort" or "covariates"
    name : str
        Of the covariate.
    nodes, n_nodes : int
        How many nodes have no value, and how many there are.
    area, total : float
        Their area, and that of all land.
    """

    option: str
    name: str
    nodes: int
    n_nodes: int
    area: float
    total: float

    @classmethod
    def of(cls, key: Key, missing: np.ndarray, domain: Domain, nodes: np.ndarray | None = None) -> Gaps:
        """Return the gaps of a source, by default on all of the domain's land."""
        some = np.ones(len(missing), bool) if nodes is None else nodes
        area, missing = domain.node_areas, missing & some
        total = float(area[some].sum())
        return cls(*key, int(missing.sum()), int(some.sum()), float(area[missing].sum()), total)

    def plus(self, other: Gaps) -> Gaps:
        """Return the gaps of both parts of the land."""
        return Gaps(
            self.option,
            self.name,
            self.nodes + other.nodes,
            self.n_nodes + other.n_nodes,
            self.area + other.area,
            self.total + other.total,
        )

    def judge(self, fill_missing: str | None) -> None:
        """Refuse a source that lacks more than slivers of land, and tell how others are filled."""
        if not self.nodes:
            return
        what = f"The covariate {self.name!r}" if self.option == "covariates" else f"The {self.option}"
        facts: dict[str, Any] = {"option": self.option, "found": self.nodes}
        if self.nodes == self.n_nodes:
            raise DataError(f"{what} has no value on this domain's land; check its place and CRS.", **facts)
        share = self.area / self.total
        text = f"{what} has no value at {self.nodes:,} of {self.n_nodes:,} nodes ({percent(share, 2)} of land)"
        by_mean = self.option == "covariates" and fill_missing == "mean"
        if self.option == "exposure":
            then = "it is taken as zero there"
        elif by_mean:
            then = "they are given the mean of the others"
        elif share < SLIVERS:
            then = "they are given that of the nearest land"
        elif self.option == "effort":
            shares = "0 where nobody looked, 1 where all events are seen"
            raise DataError(f"{text}.", remedy=f"Give {option('effort')} for all of the land: {shares}.", **facts)
        else:
            remedy = f"Fill them, or ask for their mean with {option('fill_missing', 'mean')}."
            raise DataError(f"{text}.", remedy=remedy, **facts)
        warn(InputWarning(f"{text}; {then}.", **facts))


def _judge_shared(key: Key, shared: Shared | None, values: np.ndarray) -> None:
    """Refuse polygons that are there twice, and tell of others that overlap with different values."""
    if shared is None:
        return
    what = f"covariate {key.name!r}" if key.option == "covariates" else key.option
    twice = shared.shares.min(axis=1) > 1.0 - SLIVERS
    if twice.any():
        i, j = shared.pairs[twice][0]
        n = len(np.unique(shared.pairs[twice].max(axis=1)))
        raise DataError(
            f"{shared.names[i]} and {shared.names[j]} of the {what} are the same land: {count(n, 'row')} too many.",
            option=key.option,
            found=n,
            remedy="Leave the repeated rows out.",
        )
    one, other = values[shared.pairs].swapaxes(0, 1)
    differ = ~np.isclose(one, other, equal_nan=True).all(axis=1)
    if not differ.any():
        return
    shared = replace(shared, pairs=shared.pairs[differ], shares=shared.shares[differ])
    n, part = len(shared.pairs), shared.shares.max(axis=1)
    warn(
        InputWarning(
            f"{count(n, 'pair')} of polygons of the {what} with different values "
            f"{'overlaps' if n == 1 else 'overlap'}, and their mean is taken there: "
            f"{shared.words(lambda k: f'{percent(part[k])} of the smaller')}.",
            option=key.option,
            found=float(part.max()),
            remedy="Give each piece of land one value.",
        )
    )


# -- Reading -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Reading:
    """For what land and periods sources are read, and where these say nothing.

    Attributes
    ----------
    domain : Domain
    fill_missing : "mean" or None
        What to do where a covariate has no value; by default slivers take the nearest, and more is an error.
    usual : mapping of Key to sequence of float, optional
        Where the domain is but a part of the land: the means of sources over all of it. Gaps are then
        filled from the nearest node, or with these, and counted, but not judged.
    periods : Periods, optional
        Those of the counts, where they are known.
    time : str or None
        The column of dates; None: there are no periods. `UNKNOWN`: the counts, which come later, will tell.
    date_format : str, optional
    gaps : dict of Key to (n_nodes,) bool array
        Where sources have no value; filled while they are read.
    """

    domain: Domain
    fill_missing: Literal["mean"] | None = None
    usual: Mapping[Key, Sequence[float]] | None = None
    periods: Periods | None = None
    time: Any = UNKNOWN
    date_format: str | None = None
    gaps: dict[Key, np.ndarray] = field(default_factory=dict)

    def parts(self, name: str, value: Any) -> list[Any] | None:
        """Return what is given for each period, in their order; None where it is the same in all."""
        if self.time is None:
            dates = option("time")
            remedy = f"What changes belongs to periods: give one for all, or name the column of dates with {dates}."
            check_one(name, value, f"a map without {dates}", remedy)
        if not varies(value):
            return None
        if isinstance(value, np.ndarray) and value.shape[1] != self.domain.n_nodes:
            raise DataError(
                f"The {name} of periods has a row for each period and a column for each of {self.domain.n_nodes:,} "
                f"nodes; found the shape {value.shape}.",
                option=name,
                found=value.shape,
            )
        return list(in_order(value, self.periods, name))

    def is_dated(self, frame: Any) -> bool:
        """Whether a table has a row for each area and period."""
        return isinstance(self.time, str) and self.periods is not None and self.time in frame.columns

    def by_period(
        self, name: str, frame: gpd.GeoDataFrame, values: Any, *, add: bool = False
    ) -> tuple[gpd.GeoDataFrame, np.ndarray]:
        """Return areas, a row for each, and a table by period and area of the values of a long table.

        Parameters
        ----------
        name : "exposure", "effort" or "covariates"
        frame : GeoDataFrame
            With a row for each area and period.
        values : callable
            Takes the rows of these periods and returns a number for each.
        add : bool
            Whether several rows of one area and period are added up; else they are refused.
        """
        assert self.periods is not None
        periods, clock = self.periods, Clock(self.time, self.periods, None, self.date_format)
        codes = clock.codes(frame[self.time])
        if clock.n_untimed:
            raise DataError(
                f"{count(clock.n_untimed, 'row')} of {len(frame):,} of the {name} have no date in {clock.name!r} that "
                "can be used.",
                option=name,
                found=clock.n_untimed,
                remedy="Give them one, or leave them out.",
            )
        used = np.flatnonzero(codes > OUTSIDE)
        there = np.bincount(codes[used], minlength=periods.n) > 0
        if not there.all():
            missing = [label for label, known in zip(periods.labels, there, strict=True) if not known]
            raise DataError(
                f"The {name} has a column {clock.name!r}, and no row for {count(len(missing), 'period')} of "
                f"{periods.n:,}: {listed(missing, 3)}.",
                option=name,
                found=missing,
                remedy="Give a row for each area and period, or leave that column out for the same in all.",
            )
        frame, codes = frame.iloc[used], codes[used]
        area, _ = pd.factorize(pd.Series(frame.geometry.to_wkb().to_numpy()))
        table = np.zeros((periods.n, int(area.max()) + 1))
        np.add.at(table, (codes, area), values(frame))
        pairs = len(np.unique(codes * table.shape[1] + area))
        if pairs < table.size:
            raise DataError(
                f"{table.size - pairs:,} of {table.size:,} pairs of an area and a period have no row in the {name}: "
                "none, or not known?",
                option=name,
                found=table.size - pairs,
                remedy="Give a row for each, 0 where there is nothing.",
            )
        if not add and pairs < len(codes):
            raise DataError(
                f"{len(codes) - pairs:,} of {len(codes):,} rows of the {name} are of an area and a period that another "
                "row is of.",
                option=name,
                found=len(codes) - pairs,
                remedy="Give one row for each.",
            )
        self._tell_repeats(name, frame, codes * table.shape[1] + area)
        return frame.iloc[np.unique(area, return_index=True)[1]], table

    def _tell_repeats(self, name: str, frame: gpd.GeoDataFrame, pair: np.ndarray) -> None:
        """Tell of pairs of an area and a period that have more rows than others, which are added up."""
        times = np.bincount(np.unique(pair, return_inverse=True)[1])
        if self.usual is not None or times.max() == (usual := int(np.median(times))):
            return
        more = np.isin(pair, np.unique(pair)[times > usual])
        column = name_column(frame)
        who = np.flatnonzero(more) if column is None else frame[column].to_numpy()[more]
        n = int((times > usual).sum())
        warn(
            InputWarning(
                f"{count(n, 'pair')} of an area and a period {'has' if n == 1 else 'have'} more rows in the {name} "
                f"than others, which are added up: {listed(dict.fromkeys(map(str, who)), 3)}.",
                option=name,
                found=n,
                remedy="Leave out rows that are there twice, if they are of the same people.",
            )
        )

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Let a raster lie elsewhere where the domain is but a part of the land."""
        try:
            yield
        except ApartError:
            if self.usual is None:
                raise

    def nothing(self) -> np.ndarray:
        """Return no value at any node."""
        return np.full(self.domain.n_nodes, np.nan)

    def means(self, key: Key, frame: gpd.GeoDataFrame, values: np.ndarray) -> np.ndarray:
        """Return means by land at the nodes, (n_nodes, k), of values of polygons (n_polygons, k); NaN without any."""
        if len(frame) == 0 and self.usual is not None:
            return np.full((self.domain.n_nodes, values.shape[1]), np.nan)
        shares = area_shares(self.domain, frame)
        if self.usual is None:
            _judge_shared(key, shared_land(self.domain, frame, shares), values)
        shares = shares.T
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray((shares @ np.nan_to_num(values)) / (shares @ np.isfinite(values).astype(float)))

    def filled(self, key: Key, values: np.ndarray) -> np.ndarray:
        """Return values (n_nodes, k) with gaps filled as was asked for; slivers from the nearest land.

        Parameters
        ----------
        key : Key
            What they are of.
        values : (n_nodes, k) array
            Several columns belong together: where one has no value none has.
        """
        missing = ~np.isfinite(values).all(axis=1)
        self.gaps[key] = missing | self.gaps.get(key, False)
        if not missing.any():
            return values
        area = self.domain.node_areas
        if self.usual is None:
            Gaps.of(key, missing, self.domain).judge(self.fill_missing)
        out, covariate = values.copy(), key.option == "covariates"
        if key == EXPOSURE:
            out[missing] = 0.0
        elif self.usual is not None and (missing.all() or (covariate and self.fill_missing)):
            out[missing] = self.usual[key]
        elif covariate and self.fill_missing:
            out[missing] = np.average(out[~missing], axis=0, weights=area[~missing])
        else:
            near = cKDTree(self.domain.node_points[~missing]).query(self.domain.node_points[missing])[1]
            out[missing] = out[~missing][near]
        return out
