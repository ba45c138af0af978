"""Persons: tables with a row per person, the node that each lives on, and their confounders as columns of numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from geobgp.data.counts import Counts, Tally, about_places, read_points
from geobgp.data.effects import Effects, Term, indicators, is_categorical, refuse_intercept, warn_correlated
from geobgp.data.periods import OUTSIDE, UNTIMED, Clock, texts_of
from geobgp.data.points import Stream, check_layer, csv_format, csv_tables
from geobgp.errors import DataError, DroppedPointsWarning, GeobgpError, GeometryError, InputWarning, option, warn
from geobgp.files import check_exists, driver_errors, frame_of, kind_of, read_vector, split_layer
from geobgp.land.crs import transform
from geobgp.text import count, listed, number, percent
from geobgp.validation import as_floats

if TYPE_CHECKING:
    from geobgp.data.periods import Periods
    from geobgp.land.domain import Domain

#: Persons in both tables that are not told of: fewer than these, or this share of the cases.
_FEWEST_TWINS, _QUIET_TWINS = 3, 0.05
#: Levels that a confounder may have, however few persons there are.
_FEW_LEVELS = 20
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}.*|\d{1,2}([/.-])\d{1,2}\1\d{2,4}.*", re.ASCII)


@dataclass(frozen=True, eq=False)
class Persons:
    """Persons on land.

    Attributes
    ----------
    counts : Counts
        What became of the points.
    node : (k,) int array
        Where those live who are used.
    table : DataFrame
        Their confounders, k rows.
    told : DataFrame, optional
        All that is told of them, k rows: easting, northing, and the columns of their table.
    period : (k,) int array, optional
        Number of the period in which each was seen.
    """

    counts: Counts
    node: np.ndarray
    table: pd.DataFrame
    told: pd.DataFrame | None = None
    period: np.ndarray | None = None

    @property
    def places(self) -> np.ndarray | None:
        """Where they live, (k, 2), as far as it is known."""
        return None if self.told is None else self.told[["easting", "northing"]].to_numpy()

    def about_places(self, what: str) -> InputWarning | None:
        """Return what to say where many of them live on exactly one place."""
        return None if self.places is None else about_places(self.places, what)


@dataclass(frozen=True, eq=False)
class Groups:
    """Persons of one node with the same confounders, who are one observation.

    Attributes
    ----------
    node : (k,) int array
    cases, persons : (k,) arrays
    effects : Effects
        Confounders, standardised over persons; its columns are those of the groups.
    period : (k,) int array, optional
        Number of the period that each group is of, in order.
    effort : (k,) array, optional
        The share of cases that are seen where each group lives; those who are no cases are a sample of all.
    """

    node: np.ndarray
    cases: np.ndarray
    persons: np.ndarray
    effects: Effects
    period: np.ndarray | None = None
    effort: np.ndarray | None = None

    @classmethod
    def of(cls, cases: Persons, controls: Persons) -> Groups:
        """Return the groups of cases and controls, by period where they have one."""
        node = np.concatenate([cases.node, controls.node])
        timed = cases.period is not None and controls.period is not None
        period = np.concatenate([cases.period, controls.period]) if timed else np.zeros(len(node), np.int64)
        ill = np.r_[np.ones(len(cases.node)), np.zeros(len(controls.node))]
        for name in cases.table.columns:
            _check_confounder(cases.table[name], controls.table[name], str(name))
        effects = confounder_effects(pd.concat([cases.table, controls.table], ignore_index=True))
        rows = np.column_stack([period, node, effects.columns[:, 1:]])
        found, group = np.unique(rows, axis=0, return_inverse=True)
        group = group.ravel()
        columns = np.column_stack([np.ones(len(found)), found[:, 2:]])
        return cls(
            found[:, 1].astype(np.int64),
            np.bincount(group, ill, len(found)),
            np.bincount(group, minlength=len(found)).astype(float),
            replace(effects, columns=columns),
            found[:, 0].astype(np.int64) if timed else None,
        )

    def seen(self, effort: np.ndarray | None) -> Groups:
        """Return the groups with the effort at the nodes, (n_nodes,) or (n_periods, n_nodes)."""
        if effort is None:
            return self
        period = 0 if self.period is None else self.period
        own = effort[self.node] if effort.ndim == 1 else effort[period, self.node]
        unseen = int(self.cases[own <= 0].sum())
        if unseen:
            raise DataError(
                f"{count(unseen, 'case')} of {count(int(self.cases.sum()), 'case')} are where the effort is zero, so "
                "that none can have been seen.",
                option="effort",
                found=unseen,
                remedy="Give a small effort there, or leave them out.",
            )
        return replace(self, effort=own)

    @property
    def log_effort(self) -> np.ndarray:
        """What the effort adds to the log odds of a case, (k,)."""
        effort = np.ones(len(self.node)) if self.effort is None else self.effort
        return np.log(np.where(effort > 0, effort, 1.0))

    @property
    def telling(self) -> np.ndarray:
        """How many persons of each group tell of the risk: none where no case can be seen."""
        return self.persons if self.effort is None else np.where(self.effort > 0, self.persons, 0.0)

    def design(self, columns: np.ndarray) -> np.ndarray:
        """Return the fixed effects of every group, from those of the nodes, where confounders are at their average.

        Parameters
        ----------
        columns : (n_nodes, k) or (n_periods, n_nodes, k) array
            Intercept, covariates, and confounders last.
        """
        out = np.array(columns[self.node] if columns.ndim == 2 else columns[self.period, self.node])
        confounders = self.effects.columns[:, 1:]
        out[:, out.shape[1] - confounders.shape[1] :] = confounders
        return out

    def among(self, which: np.ndarray) -> Groups:
        """Return some of the groups."""
        effects = replace(self.effects, columns=self.effects.columns[which])
        period = None if self.period is None else self.period[which]
        return replace(
            self,
            node=self.node[which],
            cases=self.cases[which],
            persons=self.persons[which],
            effects=effects,
            period=period,
            effort=None if self.effort is None else self.effort[which],
        )

    def until(self, n_periods: int) -> Groups:
        """Return those of the first periods."""
        assert self.period is not None
        return self.among(self.period < n_periods)

    def at(self, t: int) -> Groups:
        """Return those of one period."""
        assert self.period is not None
        return replace(self.among(self.period == t), period=None)

    @property
    def numbers(self) -> dict[str, int]:
        """How many persons there are, cases and controls."""
        ill, all_of_them = int(self.cases.sum()), int(self.persons.sum())
        return {"used": all_of_them, "cases": ill, "controls": all_of_them - ill}

    @property
    def offset(self) -> float:
        """The log odds of being a case."""
        n_cases = float(self.cases.sum())
        return math.log(n_cases / (float(self.persons.sum()) - n_cases))

    def controls_at(self, n_nodes: int, n_periods: int | None = None) -> np.ndarray:
        """Return the number of controls on each node (in each of some periods)."""
        return self._at_nodes(self.persons - self.cases, n_nodes, n_periods)

    def cases_at(self, n_nodes: int, n_periods: int | None = None) -> np.ndarray:
        """Return the number of cases on each node (in each of some periods)."""
        return self._at_nodes(self.cases, n_nodes, n_periods)

    def _at_nodes(self, values: np.ndarray, n_nodes: int, n_periods: int | None) -> np.ndarray:
        if n_periods is None:
            return np.bincount(self.node, values, n_nodes)
        assert self.period is not None
        place = self.period * n_nodes + self.node
        return np.bincount(place, values, n_periods * n_nodes).reshape(n_periods, n_nodes)


@dataclass(frozen=True, eq=False)
class CaseControl:
    """Cases and controls on the land of one domain.

    Attributes
    ----------
    cases, controls : Persons
    groups : Groups
        Persons of one node with the same confounders.
    periods : Periods, optional
        Those that the groups are of.
    """

    cases: Persons
    controls: Persons
    groups: Groups
    periods: Periods | None = None

    @property
    def n_dropped(self) -> int:
        """Persons off the land who were left out."""
        return self.cases.counts.n_dropped + self.controls.counts.n_dropped

    @property
    def n_snapped(self) -> int:
        """Persons who were moved to land."""
        return self.cases.counts.n_snapped + self.controls.counts.n_snapped


class DatedTables(NamedTuple):
    """Tables with the number of the period of every row, and the periods; what was left out for its date."""

    tables: dict[str, Any]
    period: Mapping[str, np.ndarray | None]
    periods: Periods | None = None
    warning: DroppedPointsWarning | None = None


def date_rows(tables: Mapping[str, Any], clock: Clock | None) -> DatedTables:
    """Return tables by period, without the rows that have no date or one outside the periods.

    Parameters
    ----------
    tables : mapping of str to DataFrame
        All have the column of dates, which are written alike.
    clock : Clock or None
        None: there are no periods.

    Examples
    --------
    >>> ill = pd.DataFrame({"x": [1, 2], "year": [2021, 2020]})
    >>> well = pd.DataFrame({"x": [3, 4], "year": [2020, None]})
    >>> dated = date_rows({"cases": ill, "controls": well}, Clock("year", "year"))
    >>> dated.periods.labels, dated.period["cases"].tolist(), dated.tables["controls"]["x"].tolist()
    (('2020', '2021'), [1, 0], [3])
    """
    if clock is None:
        return DatedTables(dict(tables), dict.fromkeys(tables))
    for what, table in tables.items():
        columns = list(getattr(table, "columns", []))
        if clock.given is not None or clock.name not in columns:
            raise DataError(
                f"Dates are a column of {option(what)}; there are {listed(columns) or 'none'}.",
                option="time",
                found=None if clock.given is not None else clock.name,
                remedy=f"Name one that all have: {option('time')}.",
            )
    texts = texts_of(pd.concat([table[clock.name] for table in tables.values()], ignore_index=True)).values
    clock.settle_order(texts)
    codes = {what: clock.codes(table[clock.name].reset_index(drop=True)) for what, table in tables.items()}
    there = {what: (some != UNTIMED) & (some != OUTSIDE) for what, some in codes.items()}
    periods, first = clock.periods(sorted({int(c) for what in tables for c in codes[what][there[what]]}))
    kept = {what: table[there[what]].reset_index(drop=True) for what, table in tables.items()}
    period = {what: codes[what][there[what]].astype(np.int64) - first for what in tables}
    return DatedTables(kept, period, periods, clock.warning())


#: What a column of status may hold: who is none, and who is a case.
_STATUS = {"0": 0, "1": 1, "false": 0, "true": 1, "no": 0, "yes": 1, "control": 0, "case": 1}


def split_status(table: Any, status: str) -> dict[str, Any]:
    """Return cases and controls of one table, told apart by a column of it.

    Examples
    --------
    >>> split = split_status(pd.DataFrame({"x": [1, 2, 3], "ill": ["case", "control", "control"]}), "ill")
    >>> {what: part["x"].tolist() for what, part in split.items()}
    {'cases': [1], 'controls': [2, 3]}
    """
    columns = list(getattr(table, "columns", []))
    if status not in columns:
        there = f"; there are {listed(columns)}" if columns else ": it is no table"
        raise DataError(f"{option('cases')} has no column {status!r}{there}.", option="status", found=status)
    values = table[status]
    words = values.map(lambda v: str(v).strip().lower().removesuffix(".0"))
    if values.isna().any() or not words.isin(_STATUS).all():
        bad = values[values.isna() | ~words.isin(_STATUS)]
        raise DataError(
            f"The column {status!r} says who is a case: {count(len(bad), 'row')} of {len(values):,} cannot be "
            f"understood, such as {bad.iloc[0]!r}.",
            option="status",
            found=len(bad),
            remedy="It is true or false, 1 or 0, yes or no, or 'case' and 'control'; leave other rows out.",
        )
    ill = words.map(_STATUS).to_numpy() == 1
    rest = table.drop(columns=status)
    return {"cases": rest[ill].reset_index(drop=True), "controls": rest[~ill].reset_index(drop=True)}


def read_table(source: Any, what: str, layer: str | None = None) -> Any:
    """Return persons as a table (or an array of coordinates), from memory or a file (and a layer of it)."""
    if not isinstance(source, str | Path):
        if layer is not None:
            check_layer(source, layer)
        source = frame_of(source)
        if isinstance(source, pd.DataFrame) or hasattr(source, "geometry"):
            return source
        array = as_floats(what, source)
        if array.ndim != 2 or array.shape[1] != 2:
            raise GeometryError(
                f"{what}: expected a GeoDataFrame, a DataFrame, a (k, 2) array or a path; found "
                f"{type(source).__name__}.",
                option=what,
            )
        return array
    if layer is not None:
        check_layer(source, layer)
    path = split_layer(str(source))[0]
    check_exists(path, what)
    if kind_of(path) == "table":
        with driver_errors(path, what):
            return next(csv_tables(path, csv_format(path, what), what))
    return read_vector(str(source) if layer is None else f"{source}|layername={layer}", what)


def place_persons(
    table: Any,
    domain: Domain,
    what: str,
    confounders: Sequence[str] = (),
    *,
    on_water: str = "nearest",
    max_snap: float | None = None,
    crs: Any = None,
    period: np.ndarray | None = None,
    **names: Any,
) -> Persons:
    """Return persons with the nodes that they live on.

    Parameters
    ----------
    table : DataFrame, GeoDataFrame or (k, 2) array
    domain : Domain
    what : str
        "cases" or "controls", for messages.
    confounders : sequence of str
        Columns to keep.
    period : (k,) int array, optional
        Number of the period of every row.
    on_water, max_snap, crs, longitude, latitude, easting, northing
        As for `bin_points`.
    """
    columns = list(getattr(table, "columns", []))
    lacking = [c for c in confounders if c not in columns]
    if lacking:
        raise DataError(
            f"{option(what)} has no column {listed(lacking)}; there are {listed(columns)}.",
            option="confounders",
            found=lacking,
            remedy="Confounders are columns of both tables.",
        )
    counts, node, row, place = place_rows(table, domain, what, on_water=on_water, max_snap=max_snap, crs=crs, **names)
    kept = pd.DataFrame({c: table[c].to_numpy()[row] for c in confounders}, index=range(len(row)))
    shape = getattr(getattr(table, "geometry", None), "name", None)
    place = place.round(3)
    places = pd.DataFrame({"easting": place[:, 0], "northing": place[:, 1]})
    places = places.assign(
        **{f"column {c}": table[c].astype(object).map(str).to_numpy()[row] for c in columns if c != shape}
    )
    return Persons(counts, node, kept, places, None if period is None else period[row])


def place_rows(
    table: Any,
    domain: Domain,
    what: str,
    *,
    on_water: str = "nearest",
    max_snap: float | None = None,
    crs: Any = None,
    **names: Any,
) -> tuple[Counts, np.ndarray, np.ndarray, np.ndarray]:
    """Return what became of the rows of a table; and of those that are used node, number, and place in the CRS.

    Parameters
    ----------
    table, domain, what, on_water, max_snap, crs, **names
        As for `place_persons`.
    """
    tally, nodes, rows, places = Tally(domain, on_water, max_snap), [], [], []
    stream = Stream(table, replace(read_points(table, crs=crs, **names).options, domain_crs=domain.crs))
    with _named(what):
        for chunk in stream:
            before, node = tally.rows, tally.add(chunk)
            nodes.append(node[node >= 0])
            rows.append(before + chunk.rows[node >= 0])
            places.append(transform(chunk.coords[node >= 0], chunk.crs, domain.crs))
        counts = tally.results((), tuple(stream.notes))[()]
    for warning in counts.warnings:
        warn(warning)
    if counts.n_used == 0:
        raise DataError(
            f"{option(what)}: nothing is left to map; {counts.n_read:,} were read, {counts.n_dropped:,} lie off the "
            f"land, {counts.n_missing:,} have no place.",
            option=what,
            found=0,
            remedy="Check the file, its columns and its CRS.",
        )
    return counts, np.concatenate(nodes), np.concatenate(rows), np.concatenate(places)


def check_apart(cases: Persons, controls: Persons) -> None:
    """Refuse cases and controls that are the same table, and warn where many persons seem to be in both.

    Persons of one place are no mistake where coordinates are those of postcodes: persons in both tables are told of
    where they are more alike than those within a table.
    """
    if cases.told is None or controls.told is None:
        return
    tables = [cases.told, controls.told]
    shared = [c for c in tables[0].columns if c in tables[1].columns]
    # What tells the two apart, such as a column of status, says nothing of who they are.
    apart = [c for c in shared if all(t[c].nunique() == 1 for t in tables) and tables[0][c][0] != tables[1][c][0]]
    keys = [pd.MultiIndex.from_frame(t[[c for c in shared if c not in apart]]) for t in tables]
    numbers = [key.value_counts() for key in keys]
    both = numbers[0].index.intersection(numbers[1].index)
    twins = int(np.minimum(numbers[0].loc[both], numbers[1].loc[both]).sum()) if len(both) else 0
    alike = f"the same place{' and columns' if len(shared) - len(apart) > 2 else ''}"
    if twins == len(keys[0]) == len(keys[1]):
        raise DataError(
            f"{option('cases')} and {option('controls')} are the same {count(twins, 'person')}: {alike} in both.",
            option="controls",
            found=twins,
            remedy="Controls are a sample of the people whom the cases come from, and other persons than these.",
        )
    within = max(float(n[n > 1].sum() / n.sum()) for n in numbers)
    share = twins / len(keys[0])
    if twins >= _FEWEST_TWINS and share > _QUIET_TWINS + 2 * within:
        warn(
            InputWarning(
                f"{twins:,} of {count(len(keys[0]), 'case')} ({percent(share)}) are among the controls too: {alike}."
                f" Within a table that holds for {percent(within)}.",
                option="controls",
                found=twins,
                remedy="If they are the same persons, leave them out of the controls.",
            )
        )


def check_periods_of(cases: Persons, controls: Persons, periods: Periods) -> None:
    """Refuse cases and controls that no period has both of; warn where most periods have only one of them."""
    assert cases.period is not None and controls.period is not None
    ill, well = (np.bincount(period, minlength=periods.n) for period in (cases.period, controls.period))
    if not (ill.any() and well.any()):
        return
    there, alone = (ill > 0) | (well > 0), (ill > 0) != (well > 0)
    if not (there & ~alone).any():
        spans = [periods.labels[k] for n in (ill, well) for k in np.flatnonzero(n)[[0, -1]]]
        of = [first if first == last else f"{first} to {last}" for first, last in (spans[:2], spans[2:])]
        raise DataError(
            f"No {periods.noun} has both cases and controls: cases are of {of[0]}, controls of {of[1]}.",
            option="time",
            found=0,
            remedy=(
                f"Controls are of the time of the cases. Use longer periods ({option('every')}), or leave out "
                f"{option('time')} for a map of all together."
            ),
        )
    if 2 * alone.sum() > there.sum():
        n = int((ill + well)[alone].sum())
        only = [
            f"{what} alone in {(alone & (some > 0)).sum():,}" for what, some in (("cases", ill), ("controls", well))
        ]
        warn(
            InputWarning(
                f"{alone.sum():,} of {count(int(there.sum()), 'period')} with persons have only cases or only controls "
                f"({' and '.join(only)}), {count(n, 'person')} of {int((ill + well).sum()):,}: of the risk in these "
                "periods next to nothing is learned.",
                option="every",
                found=int(alone.sum()),
                remedy=f"Use longer periods: {option('every', 'year')}.",
            )
        )


def _check_confounder(cases: pd.Series, controls: pd.Series, name: str) -> None:
    """Refuse a confounder of dates, and one that tells cases from controls by itself: it is the outcome."""
    both = pd.concat([cases, controls], ignore_index=True)
    there = both.dropna()
    if there.dtype.kind in "mM" or (
        there.dtype.kind == "O" and len(there) and all(_DATE.fullmatch(str(value).strip()) for value in there)
    ):
        raise DataError(
            f"The confounder {name!r} holds dates, such as {str(there.iloc[0])!r}.",
            option="confounders",
            found=name,
            remedy="Make a number of it, such as years of age, or levels, such as the season.",
        )
    levels = is_categorical(both)
    if levels and there.nunique() > max(_FEW_LEVELS, len(there) / 2):
        raise DataError(
            f"The confounder {name!r} has {there.nunique():,} levels for {count(len(there), 'person')}.",
            option="confounders",
            found=name,
            remedy="Name columns with few levels, or numbers; one that names the persons is none of these.",
        )
    ill, well = cases.dropna(), controls.dropna()
    if not len(ill) or not len(well) or there.nunique() < 2:
        return
    separate = not set(ill) & set(well) and there.nunique() <= _FEW_LEVELS
    if not levels:
        separate = separate or ill.min() > well.max() or ill.max() < well.min()
    if separate:
        shown = (
            [f"{number(float(v.min()))} to {number(float(v.max()))}" for v in (ill, well)]
            if not levels
            else [listed(sorted(set(map(str, v))), 3) for v in (ill, well)]
        )
        raise DataError(
            f"The confounder {name!r} tells cases from controls by itself: it is {shown[0]} for the cases and "
            f"{shown[1]} for the controls.",
            option="confounders",
            found=name,
            remedy="It is the outcome, or follows from it, and no confounder: leave it out.",
        )


@contextmanager
def _named(what: str) -> Iterator[None]:
    """Let errors about points speak of cases or controls."""
    try:
        yield
    except GeobgpError as error:
        if error.option != "points":
            raise
        message = error.message.replace("points:", f"{what}:", 1)
        raise type(error)(message, option=what, found=error.found, remedy=error.remedy) from error


def confounder_effects(table: pd.DataFrame) -> Effects:
    """Return confounders as effects: standardised over persons, text as levels compared with the most common.

    Examples
    --------
    >>> persons = pd.DataFrame({"age": [30.0, 30.0, 50.0, 50.0], "smokes": ["yes", "no", "no", "no"]})
    >>> effects = confounder_effects(persons)
    >>> effects.names, effects.columns[:, 1].tolist()
    (('age', 'smokes yes (reference: no)'), [-1.0, -1.0, 1.0, 1.0])
    """
    refuse_intercept(table.columns, "confounders")
    columns: dict[Term, np.ndarray] = {}
    for name in table.columns:
        values: Any = table[name]
        missing = int(values.isna().sum())
        if missing:
            raise DataError(
                f"The confounder {name!r} is missing for {missing:,} of {count(len(table), 'person')}.",
                option="confounders",
                found=missing,
                remedy="Leave them out, or make that a level of its own.",
            )
        columns |= _levels(values, str(name)) if is_categorical(values) else {Term(str(name)): values.to_numpy(float)}
    means = np.array([v.mean() for v in columns.values()])
    scales = np.array([v.std() for v in columns.values()])
    for term, mean, scale in zip(columns, means, scales, strict=True):
        if not scale > 1e-10 * abs(mean):
            raise DataError(
                f"The confounder {term.name!r} is {number(mean)} for all; it cannot be separated from the intercept.",
                option="confounders",
                found=term.name,
                remedy="Leave it out.",
            )
    effects = Effects.of(list(columns), means, scales)
    own = np.array(list(columns.values())).reshape(-1, len(table)).T
    effects = replace(effects, columns=effects.standardised(own))
    owners = np.array([term.covariate for term in effects.terms], dtype=object)
    even = np.full(len(table), 1.0 / len(table))
    warn_correlated(effects.terms, owners, effects.columns[:, 1:], even, "confounder")
    return effects


def _levels(values: pd.Series, name: str) -> Mapping[Term, np.ndarray]:
    shares = indicators(values.reset_index(drop=True), name)
    totals = shares.sum()
    common = max(shares.columns, key=lambda level: totals[level])
    if len(shares.columns) == 1:
        raise DataError(
            f"The confounder {name!r} is {common!r} for everybody; it cannot be separated from the intercept.",
            option="confounders",
            found=name,
            remedy="Leave it out.",
        )
    return {Term(name, c, common): shares[c].to_numpy(float) for c in shares.columns if c != common}
