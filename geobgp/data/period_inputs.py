"""Exposure and covariates that change from period to period."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd

from geobgp.data.clock import OUTSIDE, Clock
from geobgp.data.effects import Effects, Term, covariate_columns, fixed_effects, named_covariates
from geobgp.data.exposure import (
    GivenByPeriod,
    Read,
    amounts_in,
    areas_of,
    check_amounts,
    kind_of_amounts,
    population_column,
    read_exposure,
    spread_people,
)
from geobgp.errors import DataError, option
from geobgp.text import count, listed

if TYPE_CHECKING:
    import geopandas as gpd

    from geobgp.data.periods import Periods
    from geobgp.land.domain import Domain

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
