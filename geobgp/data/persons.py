"""Persons: tables with a row per person, the node that each lives on, and their confounders as columns of numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from geobgp.data.counts import Counts, bin_points
from geobgp.data.effects import AGAINST, Effects
from geobgp.data.levels import indicators, is_categorical
from geobgp.data.points import Options, Stream
from geobgp.data.tables import csv_format, telling_of_lines
from geobgp.errors import DataError, GeobgpError, GeometryError, option
from geobgp.files import check_exists, driver_errors, kind_of, read_vector, split_layer
from geobgp.land.crs import as_crs
from geobgp.land.reproject import transform
from geobgp.text import count, listed, number
from geobgp.validate import as_floats

if TYPE_CHECKING:
    from geobgp.land.domain import Domain


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
    """

    counts: Counts
    node: np.ndarray
    table: pd.DataFrame


@dataclass(frozen=True, eq=False)
class Groups:
    """Persons of one node with the same confounders, who are one observation.

    Attributes
    ----------
    node : (k,) int array
    cases, persons : (k,) arrays
    effects : Effects
        Confounders, standardised over persons; its columns are those of the groups.
    """

    node: np.ndarray
    cases: np.ndarray
    persons: np.ndarray
    effects: Effects

    @classmethod
    def of(cls, cases: Persons, controls: Persons) -> Groups:
        """Return the groups of cases and controls."""
        node = np.concatenate([cases.node, controls.node])
        ill = np.r_[np.ones(len(cases.node)), np.zeros(len(controls.node))]
        effects = confounder_effects(pd.concat([cases.table, controls.table], ignore_index=True))
        rows = np.column_stack([node, effects.columns[:, 1:]])
        found, group = np.unique(rows, axis=0, return_inverse=True)
        group = group.ravel()
        columns = np.column_stack([np.ones(len(found)), found[:, 1:]])
        return cls(
            found[:, 0].astype(np.int64),
            np.bincount(group, ill, len(found)),
            np.bincount(group, minlength=len(found)).astype(float),
            replace(effects, columns=columns),
        )

    @property
    def offset(self) -> float:
        """The log odds of being a case."""
        n_cases = float(self.cases.sum())
        return math.log(n_cases / (float(self.persons.sum()) - n_cases))

    def controls_at(self, n_nodes: int) -> np.ndarray:
        """Return the number of controls on each node."""
        return np.bincount(self.node, self.persons - self.cases, n_nodes)


def read_table(source: Any, what: str) -> Any:
    """Return persons as a table (or an array of coordinates), from memory or a file."""
    if not isinstance(source, str | Path):
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
    path = split_layer(str(source))[0]
    check_exists(path, what)
    if kind_of(path) == "table":
        with driver_errors(path, what), telling_of_lines(path, what):
            return pd.read_csv(path, low_memory=False, **csv_format(path, what))
    return read_vector(str(source), what)


def place_persons(
    table: Any,
    domain: Domain,
    what: str,
    confounders: Sequence[str] = (),
    *,
    on_water: str = "nearest",
    max_snap: float | None = None,
    crs: Any = None,
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
    with _named(what):
        counts = bin_points(table, domain, on_water=on_water, max_snap=max_snap, crs=crs, **names)
    if counts.n_used == 0:
        raise DataError(
            f"{option(what)}: nobody is left to map; {counts.n_read:,} were read, {counts.n_dropped:,} lie off the "
            f"land, {counts.n_missing:,} have no place.",
            option=what,
            found=0,
            remedy="Check the file, its columns and its CRS.",
        )
    reach = 2 * domain.cell_size if max_snap is None else float(max_snap)
    how = Options(crs=None if crs is None else as_crs(crs), domain_crs=domain.crs, **names)
    nodes, rows, before = [], [], 0
    for chunk in Stream(table, how):
        coords = transform(chunk.coords, chunk.crs, domain.crs)
        node = np.asarray(
            domain.nearest(coords, reach)[0] if on_water == "nearest" else domain.node_at(coords)
        )
        nodes.append(node[node >= 0])
        rows.append(before + chunk.rows[node >= 0])
        before += chunk.n_rows
    row = np.concatenate(rows)
    kept = pd.DataFrame({c: table[c].to_numpy()[row] for c in confounders}, index=range(len(row)))
    return Persons(counts, np.concatenate(nodes), kept)


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
    """Return confounders as effects: standardised over persons, text as levels against the most common.

    Examples
    --------
    >>> effects = confounder_effects(pd.DataFrame({"age": [30.0, 50.0], "smokes": ["yes", "no"]}))
    >>> effects.names, effects.columns[:, 1].tolist()
    (('age', 'smokes: yes against no'), [-1.0, 1.0])
    """
    found: dict[str, np.ndarray] = {}
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
        found |= _levels(values, str(name)) if is_categorical(values) else {str(name): values.to_numpy(float)}
    means = np.array([v.mean() for v in found.values()])
    scales = np.array([v.std() for v in found.values()])
    for name, mean, scale in zip(found, means, scales, strict=True):
        if not scale > 1e-10 * abs(mean):
            raise DataError(
                f"The confounder {name!r} is {number(mean)} for everybody; it cannot be told from the intercept.",
                option="confounders",
                found=name,
                remedy="Leave it out.",
            )
    effects = Effects(tuple(found), means, scales)
    columns = effects.standardise(found, len(table)) if found else np.ones((len(table), 1))
    return Effects(effects.names, means, scales, columns)


def _levels(values: pd.Series, name: str) -> Mapping[str, np.ndarray]:
    shares = indicators(values.reset_index(drop=True), name)
    totals = shares.sum()
    common = max(shares.columns, key=lambda level: totals[level])
    if len(shares.columns) == 1:
        raise DataError(
            f"The confounder {name!r} is {common!r} for everybody; it cannot be told from the intercept.",
            option="confounders",
            found=name,
            remedy="Leave it out.",
        )
    return {f"{name}: {c}{AGAINST}{common}": shares[c].to_numpy(float) for c in shares.columns if c != common}
