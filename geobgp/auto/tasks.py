"""Tasks: what differs between kinds of data. How they are read on a domain, modelled, and compared between cells."""

from __future__ import annotations

import dataclasses
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast, get_args

import numpy as np
import pandas as pd
from scipy.spatial import cKDTree
from scipy.special import entr, gammaln

from geobgp.auto.gridded import GriddedData, InTime
from geobgp.auto.options import MappingOptions, Options, PrevalenceOptions, ReadingOptions, RiskOptions, ValueOptions
from geobgp.data.areas import AreaCounts, add_rows, bin_areas, combine, even_rate
from geobgp.data.counts import (
    Counts,
    Key,
    PointSource,
    about_few,
    about_places,
    check_strata,
    read_points,
    stratum_name,
    stratum_order,
)
from geobgp.data.delays import Reports, read_reports
from geobgp.data.inputs import Inputs, check_events
from geobgp.data.measurements import (
    Measurements,
    about_copies,
    about_unused,
    positives_of,
    read_measurements,
    values_of,
)
from geobgp.data.periods import Clock, Periods
from geobgp.data.persons import (
    CaseControl,
    DatedTables,
    Groups,
    Persons,
    check_apart,
    check_periods_of,
    date_rows,
    place_persons,
    read_table,
    split_status,
)
from geobgp.data.places import Places, about_shared
from geobgp.errors import (
    DataError,
    DroppedPointsWarning,
    GeobgpError,
    GeobgpWarning,
    GeometryError,
    captured_warnings,
    option,
    warn,
)
from geobgp.files import read_vector
from geobgp.inference.families import FAMILIES, Gaussian, Likelihood, TestedName
from geobgp.land.distance import share_apart
from geobgp.land.polygons import check_one_plane, own_crs
from geobgp.model import LGCP, TRANSFORMS, BoundaryGP, RiskModel, Transform, check_transform, fit_periods
from geobgp.posterior import Posterior
from geobgp.progress import as_progress
from geobgp.text import count, listed
from geobgp.units import Units

if TYPE_CHECKING:
    from geobgp.land.domain import Domain
    from geobgp.prior.basis import Basis
    from geobgp.prior.kernels import Kernel
    from geobgp.progress import Progress, ProgressLike, Stage

#: Share of points on top of others from which places count and not points; and the most points that are looked at.
SHARED, MOST_LOOKED_AT = 0.3, 2_000_000
#: Share of ways between places that lead around water, from which on water may separate them.
APART = 0.05


@dataclass(eq=False)
class StrataData:
    """What was observed in each stratum, on the nodes of one domain.

    Attributes
    ----------
    by : tuple of str
        The columns.
    keys : dict of str to tuple
        Their values, by name of the stratum, in order.
    n_unlabelled : int
        Rows without a value in one of the columns: they are in no stratum.
    observed : dict of str to Counts, AreaCounts or CaseControl
        What was observed, by name, as far as it could be read.
    data : dict of str to GriddedData
        Of those strata that can be fitted.
    failures : dict of str to str
        Why the others cannot.
    warnings : dict of str to tuple of str
    """

    by: tuple[str, ...]
    keys: dict[str, Key]
    n_unlabelled: int = 0
    observed: dict[str, Any] = field(default_factory=dict)
    data: dict[str, GriddedData] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    warnings: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def add(self, name: str, read: Callable[[], dict[str, Any]], domain: Domain, observed: Any = None) -> None:
        """Read a stratum, and keep what it is, or why it cannot be fitted."""
        captured = list[GeobgpWarning]()
        if observed is not None:
            self.observed[name] = observed
        try:
            with captured_warnings(captured.append):
                self.data[name] = GriddedData(domain, **read())
        except GeobgpError as error:
            self.failures[name] = error.message
            return
        data = self.data[name]
        self.warnings[name] = tuple(str(warning) for warning in captured)
        self.observed[name] = data.counts if data.in_time is None else data.in_time.counts


class MapTask(ABC):
    """A kind of data: one class each. The search and the pipeline ask it, and ask nothing of what was observed.

    Parameters
    ----------
    options : MappingOptions
    progress : Progress
    keep_coordinates : bool
        Keep coordinates with the observations, to be shown on a map.
    check : callable, optional
        Is given what was observed on each domain before anything is fitted; raises where it cannot be used.
    by : sequence of str
        Columns whose values make strata, which `n_workers` fit each by itself once all together are fitted.
    n_workers : int
    """

    #: The function that makes a map of such data.
    function: ClassVar[str] = "map_intensity"
    #: The options that hold what was observed; a stratum has its own rows of them.
    observed: ClassVar[tuple[str, ...]] = ("points",)
    #: Those of them that all strata share where they have no such column.
    shared: ClassVar[tuple[str, ...]] = ()
    #: What is observed, one and several of it; and what water may separate.
    noun: ClassVar[tuple[str, str]] = ("point", "points")
    plural: ClassVar[str] = "events"

    def __init__(
        self,
        options: MappingOptions,
        progress: Progress,
        keep_coordinates: bool = False,
        check: Callable[[Any], None] | None = None,
        by: Sequence[str] = (),
        n_workers: int = 1,
    ) -> None:
        self.options, self.progress = options, progress
        #: The kernel of fits; None: the usual one of each prior.
        self.kernel: Kernel | None = options.kernel
        #: Which of `families` is fitted.
        self.family = ""
        self.keep_coordinates, self.check = keep_coordinates, check
        self.by, self.n_workers = tuple(by), n_workers

    @property
    def in_time(self) -> bool:
        """Whether the map is one over periods."""
        return False

    @property
    def features_alone(self) -> str:
        """What it is that needs features, so that full resolution is no choice; empty where it is one."""
        return ""

    @property
    def n_areas(self) -> int | None:
        """The number of areas with counts; None where there are none."""
        return None

    #: Whether the smoothness of the prior is chosen as well.
    any_smoothness: ClassVar[bool] = False

    def families(self, data: GriddedData) -> tuple[str, dict[str, str]]:
        """Return what is chosen of the observations' distribution, and from what, with words: the simplest first."""
        return "", {}

    def is_open(self, data: GriddedData) -> bool:
        """Tell whether land that ends is no shore to the observations, unless they lead clearly to another answer."""
        return False

    @property
    @abstractmethod
    def n_observed(self) -> int | None:
        """The number of observations, where it is known before they are read."""

    @property
    def one_size(self) -> bool:
        """Whether observations can be read only once, or inputs are given for the nodes of one size of cells."""
        given = [getattr(self.options, name, None) for name in ("exposure", "effort")]
        given += (self.options.covariates or {}).values()
        several = [list(v.values()) if isinstance(v, Mapping) else v for v in given]
        each = [one for v in several for one in (v if isinstance(v, (list, tuple)) else [v])]
        return any(isinstance(v, np.ndarray) for v in each)

    @abstractmethod
    def read(self, domain: Domain, reach: float | None, inputs: Inputs | None = None) -> dict[str, Any]:
        """Return the fields of `GriddedData` on a domain.

        Parameters
        ----------
        domain : Domain
        reach : float or None
            How far points are moved to land where no distance was given.
        inputs : Inputs, optional
            Exposure, effort and covariates where they have been read, by period where there are some.
        """

    @abstractmethod
    def fit(
        self,
        data: GriddedData,
        basis: Basis,
        kernel: Kernel | None,
        hyper: Literal["map", "integrate"],
        stage: ProgressLike,
        start: Posterior | None,
        measure: bool = False,
    ) -> Posterior:
        """Return a fit of the data, of all periods as one; `measure` how well they know the hyperparameters."""

    # -- strata

    @cached_property
    def tables(self) -> dict[str, Any]:
        """What was observed, by option, as tables that are read once."""
        o = self.options
        layer = getattr(o, "layer", None)
        given = {name: getattr(o, name) for name in self.observed}
        return {
            name: read_table(value, name, None if name == "areas" else layer)
            for name, value in given.items()
            if value is not None
        }

    @cached_property
    def strata(self) -> dict[str, tuple[Key, dict[str, Any]]]:
        """The values of each stratum and its own part of each table, by name; tables without the columns are shared."""
        by, tables = list(self.by), self.tables
        with_columns: dict[str, Any] = {}
        for name, table in tables.items():
            columns = list(getattr(table, "columns", ()))
            lacking = [column for column in by if column not in columns]
            if not lacking:
                with_columns[name] = table
            elif name not in self.shared:
                raise DataError(
                    f"{option(name)} has no column {listed(lacking)}; there are {listed(columns) or 'none'}.",
                    option="by",
                    found=lacking,
                    remedy="Name columns whose values make the strata.",
                )
        groups: dict[str, dict[Key, np.ndarray]] = {}
        n_rows = n_known = 0
        for name, table in with_columns.items():
            labels = pd.DataFrame(table[by]).reset_index(drop=True)
            known = labels.notna().all(axis=1).to_numpy()
            if name in self.shared and not known.any():
                continue
            n_rows, n_known = n_rows + len(labels), n_known + int(known.sum())
            rows, rows_of = np.flatnonzero(known), labels[known].groupby(by, observed=True, sort=False).indices
            groups[name] = {key if isinstance(key, tuple) else (key,): rows[which] for key, which in rows_of.items()}
        keys = sorted({key for of_table in groups.values() for key in of_table}, key=stratum_order)
        check_strata(by, len(keys), n_rows, n_rows - n_known)
        return {
            stratum_name(key): (
                key,
                {
                    name: table.iloc[groups[name].get(key, [])].reset_index(drop=True) if name in groups else table
                    for name, table in tables.items()
                },
            )
            for key in keys
        }

    @property
    def n_strata(self) -> int:
        """How many strata are fitted once all together are; 1 where they are not known yet, or there are none."""
        return len(self.strata) if self.by else 1

    @property
    def fits_to_come(self) -> int:
        """How many fits of strata each worker does after the one of all together."""
        return -(-self.n_strata // self.n_workers) if self.by else 0

    def read_strata(self, domain: Domain, reach: float, data: GriddedData) -> StrataData:
        """Return what was observed in each stratum on a domain, with the inputs of all together.

        Parameters
        ----------
        domain : Domain
        reach : float
            How far points are moved to land.
        data : GriddedData
            Of all together.
        """
        out = StrataData(self.by, {name: key for name, (key, _) in self.strata.items()})
        inputs = data.inputs if data.in_time is None else data.in_time.inputs
        periods = None if data.in_time is None else data.in_time.periods
        for name, (_, tables) in self.strata.items():
            task = self._fresh()
            vars(task)["tables"] = tables
            for option_name, table in tables.items():
                task.options._set(option_name, table)
            if periods is not None:
                task.options._set("every", periods)
                task.options._set("between", None)
            out.add(name, lambda task=task: task.read(domain, reach, inputs), domain)  # type: ignore[misc]
        return out

    def _fresh(self) -> MapTask:
        """Return a task with options of its own, which has read nothing yet."""
        task = copy(self)
        vars(task).clear()
        task.options, task.progress = copy(self.options), as_progress(False)
        task.keep_coordinates, task.check, task.by, task.n_workers = False, None, (), self.n_workers
        task.family, task.kernel = self.family, self.kernel
        return task

    def titled(self, title: str) -> MapTask:
        """Return the task of a map with a title."""
        task = copy(self)
        vars(task)["options"] = copy(self.options)
        task.options._set("title", title)
        return task

    def light(self) -> MapTask:
        """Return the task without what was observed, to be sent to workers."""
        task, given = self._fresh(), ("exposure", "effort", "covariates", "client")
        names = (*self.observed, *given, "land", "water", "barriers", "bridges")
        for name in names:
            if hasattr(task.options, name):
                task.options._set(name, None)
        return task

    @abstractmethod
    def fit_periods(
        self,
        in_time: InTime,
        basis: Basis,
        kernel: Kernel,
        stage: ProgressLike,
        start: Posterior | None,
        near: np.ndarray | None,
        deadline: float,
    ) -> Posterior:
        """Return a fit of all periods together, by the deadline; the dynamics of a fit to begin from are kept."""

    def _max_snap(self, reach: float | None) -> float | None:
        return reach if self.options.max_snap is None else self.options.max_snap


# -- Events: points, and counts by area ------------------------------------------------------------------------


class CountTask(MapTask):
    """Events as points or by area, in space or over periods: a log-Gaussian Cox process."""

    observed = ("points", "areas")
    noun = ("point", "points")
    options: Options

    @property
    def in_time(self) -> bool:
        """Whether the map is one over periods."""
        return self.options.time is not None

    @property
    def features_alone(self) -> str:
        """What it is that needs features; counts by area have them unless full resolution is asked for."""
        if self.in_time:
            return "maps over time"
        return "counts by area" if self._by_area and self.options.m != "full" else ""

    @property
    def _by_area(self) -> bool:
        """Whether any events are known by area."""
        o = self.options
        return o.areas is not None or (o.places is not None and self.n_areas is not None)

    #: The areas of all events, where these are those of a stratum.
    same_places: Places | None = None

    @cached_property
    def places(self) -> Places | None:
        """The points with the areas that are their places; None where these are exact."""
        o = self.known
        if o.places is None:
            return None
        own = own_crs(o.land) if o.crs is None else None
        planar = own if own is not None and own.is_projected else None
        with self.progress.stage("areas") if self.same_places is None else nullcontext():
            return Places.read(
                o.points, o.places, o.key, o.precision, weights=o.weights, time=o.time, layer=o.layer,
                crs=o.points_crs, planar=planar, same=self.same_places, **self._columns,
            )  # fmt: skip

    @cached_property
    def n_areas(self) -> int | None:
        """The number of areas with counts; None where there are none."""
        if self.options.places is not None:
            return None if self.places is None else self.places.n_areas or None
        areas = self.known.areas
        if areas is None:
            return None
        frame = read_vector(areas, "areas") if isinstance(areas, (str, Path)) else areas
        several = self.options.time is not None or self.by
        return int(frame.geometry.to_wkb().nunique()) if several else len(frame)

    @cached_property
    def reports(self) -> Reports | None:
        """The rows that are reported by now, and what they say of delays; None where no reports are dated."""
        o = self.options
        if o.reported is None:
            return None
        what = "points" if o.areas is None else "areas"
        table = self.tables[what]
        if not isinstance(table, pd.DataFrame):
            raise DataError(
                f"{option('reported')} is a column, and the {what} are no table.", option="reported", found=o.reported
            )
        number = o.weights if o.areas is None else o.count
        weight = None
        if isinstance(number, str) and number in table.columns:
            weight = pd.to_numeric(table[number], errors="coerce").to_numpy(float)
        with captured_warnings(self._about_reports.append):
            return read_reports(
                table, time=cast(str, o.time), reported=o.reported, what=what, every=o.every, as_of=o.as_of,
                delay_by=o.delay_by, weight=weight, date_format=o.date_format,
            )  # fmt: skip

    @cached_property
    def _about_reports(self) -> list[GeobgpWarning]:
        """What is to be said of reports, whichever cells are kept."""
        return []

    @cached_property
    def known(self) -> Options:
        """The options, with what is reported by now in place of all events."""
        o, reports = self.options, self.reports
        if reports is None:
            return o
        o, table = copy(o), reports.table
        if o.areas is not None:
            whole, count = self.tables["areas"], cast(str, o.count)
            there = pd.Series(whole.geometry.to_wkb()).drop_duplicates()
            lost = whole.iloc[there[~there.isin(table.geometry.to_wkb())].index].copy()
            lost[count], lost[o.time] = 0, table[o.time].iloc[0]  # areas of which nothing is reported yet
            table = add_rows(pd.concat([table, lost], ignore_index=True), count, cast(str, o.time))
            o._set("absent", o.absent or "zero")
        o._set("points" if o.areas is None else "areas", table)
        if o.between is None and isinstance(o.every, str) and "," not in o.every:
            with captured_warnings(self._about_reports.append):
                reports.check_end(o.every, self.options.as_of is not None)
            o._set("between", reports.between)
        return o

    @cached_property
    def source(self) -> PointSource:
        """The points, which are read once."""
        o = self.known
        reading = o.pick(ReadingOptions)
        named = {name: reading[name] for name in ("chunksize", "longitude", "latitude", "easting", "northing")}
        how: dict[str, Any] = {"weights": o.weights, "time": o.time, "by": self.by, "crs": o.points_crs}
        if self.places is not None:
            return read_points(self.places.exact, **(how | self.places.columns), **named)
        layer = o.layer if o.points is self.options.points else None  # what is reported by now is in memory
        return read_points(o.points, client=o.client, layer=layer, **how, **named)

    @property
    def n_observed(self) -> int | None:
        """The number of points, where it is known before they are read."""
        return self.source.n

    @property
    def n_strata(self) -> int:
        """How many strata are fitted once all together are; 1 where they are not known yet, or there are none."""
        if self.by and self.options.areas is None and self.options.places is None:
            return self.source.n_strata or 1
        return super().n_strata

    def _fresh(self) -> CountTask:
        task = cast(CountTask, super()._fresh())
        if self.options.places is not None and "places" in vars(self):
            task.same_places = self.places
        return task

    def light(self) -> CountTask:
        """Return the task without what was observed, to be sent to workers."""
        task = cast(CountTask, super().light())
        task.same_places = None
        task.options._set("places", None)
        return task

    def read_strata(self, domain: Domain, reach: float, data: GriddedData) -> StrataData:
        """Return what was observed in each stratum on a domain; points of any number in one pass."""
        if self.options.areas is not None or self.options.places is not None:
            return super().read_strata(domain, reach, data)
        o, in_time = self.options, data.in_time
        crs = data.counts.points_crs if o.points_crs is None else o.points_crs
        source = self.source if crs is None or self.source.options.crs is not None else self.source.in_crs(crs)
        when: dict[str, Any] = {}
        if in_time is not None:
            when = {"every": in_time.periods, "date_format": o.date_format}
        reach = reach if o.max_snap is None else o.max_snap
        counts = source.bin_strata(domain, on_water=o.on_water, max_snap=reach, progress=self.progress, **when)
        keys = {str(name): tuple(row) for name, row in counts.labels.iterrows()}
        out = StrataData(self.by, keys, n_unlabelled=counts.n_unlabelled)
        inputs = data.inputs if in_time is None else in_time.inputs
        for name, one in counts.items():
            out.add(name, lambda one=one: self._gridded(domain, _some(one), 0.0, inputs), domain, one)  # type: ignore[misc]
        return out

    @property
    def one_size(self) -> bool:
        """Whether points can be read only once, or inputs are given for the nodes of one size of cells."""
        return self._by_area or not self.source.can_be_read_again or super().one_size

    def read(self, domain: Domain, reach: float | None, inputs: Inputs | None = None) -> dict[str, Any]:
        """Return counts and inputs."""
        o, spacing = self.known, 0.0
        counts: Any = None
        placed, periods = self.places, None
        if placed is not None:
            periods = placed.periods(o.every, o.between, o.date_format)
        if o.points is not None and (placed is None or placed.any_exact):
            with self.progress.stage("points") as stage:
                counts = self._counts(domain, reach, stage, periods)
                stage.note(_about_counts(counts))
            spacing = _spacing(counts)
            if not self.keep_coordinates:
                counts = dataclasses.replace(counts, coordinates=None)
        if placed is not None and placed.any_areas:
            with self.progress.stage("areas") as stage:
                areas = placed.bin(domain, on_water=o.on_water, date_format=o.date_format, periods=periods)
                stage.note(f"{areas.n_used:,} events in {areas.n_areas:,} areas; {areas.resolution}")
            if self.check is not None:
                self.check(areas)
            if counts is None:
                counts = areas
            else:
                off = {"exact place off the land": counts.n_dropped, "exact place is missing": counts.n_missing}
                lost = areas.lost | {why: n for why, n in off.items() if n}
                counts = dataclasses.replace(areas, located=np.array(counts.values), lost=lost)
        if o.areas is not None:
            with self.progress.stage("areas") as stage:
                when = {name: getattr(o, name) for name in ("time", "every", "between", "date_format", "absent")}
                if counts is not None and counts.periods is not None:
                    when["every"], when["between"] = counts.periods, None
                shapes = o.areas
                if self.by:  # a row for each area and stratum
                    shapes = add_rows(self.tables["areas"], o.count or "", cast("str | None", o.time), o.suppressed)
                areas = bin_areas(shapes, domain, o.count or "", suppressed=o.suppressed, **when)
                stage.note(f"{areas.n_used:,} events in {len(areas.names):,} areas")
            counts = areas if counts is None else dataclasses.replace(areas, located=np.array(counts.values))
        return self._gridded(domain, counts, spacing, inputs)

    def _gridded(self, domain: Domain, counts: Any, spacing: float, inputs: Inputs | None = None) -> dict[str, Any]:
        """Return the fields of `GriddedData` with what was counted; inputs are read where they are not given."""
        if inputs is None:
            inputs = self._inputs(domain, counts)
            if self.reports is not None:
                with captured_warnings(self._about_reports.append):
                    delays = self.reports.over(counts.periods, self._mix(domain, counts))
                for warning in self._about_reports:
                    warn(warning)
                inputs = inputs.reported(delays)
        counts = _sharing(counts, inputs)
        in_time = None
        if isinstance(counts, (Counts, AreaCounts)) and counts.periods is not None:
            in_time = InTime(counts, inputs)
            inputs = inputs.pooled()
            counts = _sharing(counts.pooled(), inputs)
        few = about_few(counts.total_weight, "points" if self.options.points is not None else "areas")
        if few is not None:
            warn(few)
        by_area = isinstance(counts, AreaCounts)
        located = counts.located if by_area else counts.values
        check_events(located, counts if by_area else None, inputs.exposure, inputs.effort)
        return {
            "counts": counts, "inputs": inputs, "n_observed": float(counts.total_weight), "spacing": spacing,
            "in_time": in_time, "reference": _gain_of_counts(domain, counts, inputs),
        }  # fmt: skip

    def _inputs(self, domain: Domain, counts: Any) -> Inputs:
        """Return exposure, effort and covariates; what does not fit is said."""
        o = self.options
        some = o.exposure is not None or o.effort is not None or o.covariates
        with self.progress.stage("inputs") if some else nullcontext():
            inputs = Inputs.read(
                domain,
                exposure=o.exposure, exposure_column=o.exposure_column, effort=o.effort, effort_column=o.effort_column,
                covariates=o.covariates, fill_missing=o.fill_missing,
                periods=getattr(counts, "periods", None), time=o.time, date_format=o.date_format,
                counted=counts.shapes if isinstance(counts, AreaCounts) else None,
            )  # fmt: skip
        Units.of(o.units or "", inputs.exposure_kind, domain.area_unit)
        return inputs

    def _mix(self, domain: Domain, counts: Any) -> np.ndarray | None:
        """Return which share of the events around each node belongs to each group of delays."""
        o, reports = self.known, self.reports
        assert reports is not None
        if not reports.by:
            return None
        at = []
        for group in range(len(reports.groups)):
            rows = reports.table[reports.group == group]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # what is dropped or moved is told of all rows
                if isinstance(counts, AreaCounts):
                    shares = (binned := bin_areas(add_rows(rows, o.count or ""), domain, o.count or "")).shares
                    whole = np.maximum(np.asarray(shares.sum(axis=1)).ravel(), 1e-12)
                    at.append(shares.T @ (binned.values / whole))
                else:
                    source = read_points(rows, weights=o.weights, crs=counts.points_crs, **self._columns)
                    at.append(np.asarray(source.bin(domain, on_water=o.on_water, max_snap=o.max_snap).values))
        return reports.mix_at(at, domain.node_points, 1 if isinstance(counts, AreaCounts) else None)

    @property
    def _columns(self) -> dict[str, Any]:
        reading = self.options.pick(ReadingOptions)
        return {name: reading[name] for name in ("longitude", "latitude", "easting", "northing")}

    def _counts(self, domain: Domain, reach: float | None, stage: Stage, periods: Periods | None = None) -> Counts:
        o = self.known
        how: dict[str, Any] = {name: getattr(o, name) for name in ("on_water", "every", "between", "date_format")}
        if periods is not None:  # those of events at all levels of precision
            how |= {"every": periods, "between": None}
        # Where many points share few places, cells finer than those say nothing.
        keep = self.keep_coordinates or (self.n_observed or math.inf) <= MOST_LOOKED_AT
        how |= {"max_snap": self._max_snap(reach), "keep_coordinates": keep, "progress": stage}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DroppedPointsWarning)  # it may be taken back below
            counts = self._in_either_crs(domain, how)
        if domain.crs is None:
            check_one_plane({"land": own_crs(o.land), "points": counts.points_crs})
        if counts.n_read == 0:
            rows = f" ({counts.n_missing:,} rows have none)" if counts.n_missing else ""
            raise DataError(
                f"points: there are no points to map{rows}.",
                option="points",
                remedy="Check the file, its layer and its columns.",
            )
        if counts.n_used == 0 and counts.warning is not None:
            raise GeometryError(
                f"points: none is left to map. {counts.warning.message}", option="points", remedy=counts.warning.remedy
            )
        if self.check is not None:
            self.check(counts)
        if counts.weighted and counts.total_weight == 0:
            raise DataError(
                f"weights: all {counts.n_used:,} are zero, so that there is nothing to map.", option="weights"
            )
        said = list[GeobgpWarning](counts.warnings)
        if counts.coordinates is not None:
            shared = about_shared(counts.coordinates, domain.crs) or about_places(counts.coordinates)
            said += [] if shared is None else [shared]
        for warning in said:
            warn(warning)
        return counts

    def _in_either_crs(self, domain: Domain, how: Mapping[str, Any]) -> Counts:
        """Count points; bare eastings and northings of which none is on land may be in the CRS of the land's own file.

        Without a CRS they are taken to be in the domain's, which may have been chosen here.
        """
        error: DataError | None = None
        try:
            counts = self.source.bin(domain, **how)
        except DataError as raised:  # none has both a date and a place on the land
            if raised.option != "time" or raised.found != 0:
                raise
            error = raised
        if error is None and (counts.n_used or not counts.n_read or self.options.points_crs is not None):
            return counts
        theirs = own_crs(self.options.land)
        sure = theirs is not None and theirs.is_projected and domain.crs is not None and theirs != domain.crs
        if sure and self.source.can_be_read_again:
            other = self.source.in_crs(theirs).bin(domain, **how)
            if 2 * other.n_used > other.n_read:
                return other
        if error is not None:
            raise error
        return counts

    def _model(self, inputs: Inputs, basis: Basis, kernel: Kernel | None, **more: Any) -> LGCP:
        return LGCP.from_inputs(basis, inputs, kernel, likelihood=self.options.likelihood, **more)

    def fit(
        self,
        data: GriddedData,
        basis: Basis,
        kernel: Kernel | None,
        hyper: Literal["map", "integrate"],
        stage: ProgressLike,
        start: Posterior | None,
        measure: bool = False,
    ) -> Posterior:
        """Return a fit of the counts, of all periods as one."""
        o, model = self.options, self._model(data.inputs, basis, kernel)
        return model.fit(
            data.counts, hyper=hyper, progress=stage, title=o.title, start=start, client=o.client, measure=measure
        )

    def fit_periods(
        self,
        in_time: InTime,
        basis: Basis,
        kernel: Kernel,
        stage: ProgressLike,
        start: Posterior | None,
        near: np.ndarray | None,
        deadline: float,
    ) -> Posterior:
        """Return a fit of all periods together, by the deadline; the dynamics of a fit to begin from are kept."""
        o = self.options
        dynamics: Any = o.dynamics if start is None else start.dynamics
        return fit_periods(
            self._model(in_time.inputs, basis, kernel, dynamics=dynamics), in_time.counts, hyper=o.hyper,
            progress=stage, title=o.title, start=start, resume=o.cache, near=near, deadline=deadline,
        )  # fmt: skip


def _some(counts: Counts) -> Counts:
    """Return the counts of a stratum that has points on the land; refuse those of others."""
    if counts.total_weight == 0:
        raise DataError(
            f"There are no points on the land: {counts.n_read:,} read, {counts.n_dropped:,} dropped, "
            f"{counts.n_missing:,} rows without one.",
            found=0,
        )
    return counts


def _gain_of_counts(domain: Domain, counts: Counts | AreaCounts, inputs: Inputs) -> float:
    """Return what is added to the bound of counts to give the gain of the points over an even rate."""
    if isinstance(counts, AreaCounts):
        return -even_rate(combine(counts, inputs.exposure, inputs.effort))
    y, area = counts.values, domain.node_areas
    total = float(y.sum())
    even = total * math.log(total / float(area.sum())) - total
    return float(np.sum(gammaln(y + 1.0) - y * np.log(area))) - even


def _sharing(counts: Any, inputs: Inputs) -> Any:
    """Return counts by area with the part of every node's exposure and effort that is theirs; others as they are."""
    if not isinstance(counts, AreaCounts):
        return counts
    return counts._exposing(inputs.domain, inputs.given, inputs.effort, inputs.given_effort)


def _spacing(counts: Counts) -> float:
    """Return how far apart the places of points are, half of them nearer, where many points share one; else 0."""
    if counts.coordinates is None or not len(counts.coordinates):
        return 0.0
    return _spacing_of(counts.coordinates, max(counts.total_weight, counts.n_read))


def _spacing_of(coordinates: np.ndarray, n: float) -> float:
    places = np.unique(coordinates, axis=0)
    if len(places) < 2 or len(places) > (1.0 - SHARED) * n:
        return 0.0
    sample = places[:: max(len(places) // 20_000, 1)]
    return float(np.median(cKDTree(places).query(sample, k=2)[0][:, 1]))


def _about_counts(counts: Counts) -> str:
    out = f"{counts.n_used:,} used"
    if counts.n_snapped:
        out += f", {counts.n_snapped:,} of them moved to the nearest land"
    if counts.n_dropped:
        out += f", {counts.n_dropped:,} dropped"
    if counts.n_missing:
        out += f", {counts.n_missing:,} rows without a point"
    return out


# -- Tables with a row for each observation --------------------------------------------------------------------


class TableTask(MapTask):
    """Rows of tables, in space or over periods: persons, measurements, surveys."""

    options: RiskOptions | ValueOptions | PrevalenceOptions

    @property
    def in_time(self) -> bool:
        """Whether the map is one over periods."""
        return self.options.time is not None

    @property
    def features_alone(self) -> str:
        """What it is that needs features."""
        return "maps over time" if self.in_time else ""

    @cached_property
    def dated(self) -> DatedTables:
        """The tables with the period of every row; rows that are of none are left out."""
        o = self.options
        return date_rows(self.tables, Clock.asked(o.time, o.every, o.between, o.date_format))


# -- Persons: cases and controls -------------------------------------------------------------------------------


class PersonTask(TableTask):
    """Cases and controls: the relative risk, from where persons live who fell ill and some who did not."""

    function, observed = "map_risk", ("cases", "controls")
    shared = ("controls",)
    noun = ("person", "persons")
    plural = "persons"
    options: RiskOptions

    @cached_property
    def tables(self) -> dict[str, Any]:
        """Cases and controls as they were given, read once."""
        o = self.options
        if o.status is not None:
            return split_status(read_table(o.cases, "cases", o.layer), o.status)
        return {what: read_table(getattr(o, what), what, o.layer) for what in ("cases", "controls")}

    @property
    def n_observed(self) -> int | None:
        """The number of persons."""
        return sum(map(len, self.tables.values()))

    def read(self, domain: Domain, reach: float | None, inputs: Inputs | None = None) -> dict[str, Any]:
        """Return persons and inputs."""
        o, dated = self.options, self.dated
        if dated.warning is not None:
            warn(dated.warning)
        with self.progress.stage("persons") as stage:
            cases, controls = (self._placed(table, what, domain, reach) for what, table in dated.tables.items())
            stage.note(f"{count(len(cases.node), 'case')}, {count(len(controls.node), 'control')}")
        if domain.crs is None:
            on_plane = {"cases": cases.counts.points_crs, "controls": controls.counts.points_crs}
            check_one_plane({"land": own_crs(o.land)} | on_plane)
        check_apart(cases, controls)
        if dated.periods is not None:
            check_periods_of(cases, controls, dated.periods)
        for what, persons in (("cases", cases), ("controls", controls)):
            for warning in (about_few(len(persons.node), what), persons.about_places(what)):
                if warning is not None:
                    warn(warning)
        if inputs is None:
            with self.progress.stage("inputs") if o.covariates or o.effort is not None else nullcontext():
                inputs = Inputs.read(
                    domain, effort=o.effort, effort_column=o.effort_column, covariates=o.covariates,
                    fill_missing=o.fill_missing, periods=dated.periods, time=o.time, date_format=o.date_format,
                )  # fmt: skip
        in_time = None
        if dated.periods is not None:
            by_period = CaseControl(cases, controls, Groups.of(cases, controls), dated.periods)
            in_time, inputs = InTime(by_period, inputs), inputs.pooled()
            cases, controls = (dataclasses.replace(p, period=None) for p in (cases, controls))
        groups = Groups.of(cases, controls)
        n, ill = float(groups.persons.sum()), float(groups.cases.sum())
        ways = gammaln(groups.persons + 1.0) - gammaln(groups.cases + 1.0)
        ways -= gammaln(groups.persons - groups.cases + 1.0)  # of who of a group they are
        places = np.concatenate([p.places for p in (cases, controls) if p.places is not None])
        return {
            "counts": CaseControl(cases, controls, groups), "inputs": inputs, "n_observed": n,
            "spacing": _spacing_of(places, n), "in_time": in_time,
            "reference": n * float(entr(ill / n) + entr(1.0 - ill / n)) - float(ways.sum()),
        }  # fmt: skip

    def _placed(self, table: Any, what: str, domain: Domain, reach: float | None) -> Persons:
        """Return persons on land; bare eastings and northings may be in the CRS of the land's own file."""
        o, captured, theirs = self.options, list[GeobgpWarning](), own_crs(self.options.land)
        named = {name: getattr(o, name) for name in ("longitude", "latitude", "easting", "northing")}
        if hasattr(table, "geometry") and not all(hasattr(one, "geometry") for one in self.tables.values()):
            named = {}  # columns of the other table
        how = named | {
            "on_water": o.on_water,
            "max_snap": self._max_snap(reach),
            "crs": o.points_crs,
            "period": self.dated.period[what],
        }
        try:
            with captured_warnings(captured.append):
                persons = place_persons(table, domain, what, o.confounders, **how)
        except DataError as error:
            if error.found != 0 or o.points_crs is not None or theirs is None or theirs == domain.crs:
                raise
            try:
                return place_persons(table, domain, what, o.confounders, **how | {"crs": theirs})
            except DataError:
                raise error from None
        for warning in captured:
            warn(warning)
        return persons

    def fit(
        self,
        data: GriddedData,
        basis: Basis,
        kernel: Kernel | None,
        hyper: Literal["map", "integrate"],
        stage: ProgressLike,
        start: Posterior | None,
        measure: bool = False,
    ) -> Posterior:
        """Return a fit of the relative risk."""
        observed: CaseControl = data.counts
        posterior = fit_risk(
            observed.groups, basis, kernel, inputs=data.inputs, hyper=hyper, stage=stage, title=self.options.title,
            start=start, measure=measure,
        )  # fmt: skip
        return self._with_lost(posterior, observed)

    def fit_periods(
        self,
        in_time: InTime,
        basis: Basis,
        kernel: Kernel,
        stage: ProgressLike,
        start: Posterior | None,
        near: np.ndarray | None,
        deadline: float,
    ) -> Posterior:
        """Return a fit of all periods together, by the deadline; the dynamics of a fit to begin from are kept."""
        o, observed = self.options, in_time.counts
        dynamics: Any = o.dynamics if start is None else start.dynamics
        posterior = RiskModel(basis, kernel, inputs=in_time.inputs).fit(
            observed.groups, periods=in_time.periods, dynamics=dynamics, hyper=o.hyper, progress=stage, title=o.title,
            resume=o.cache, near=near, deadline=deadline,
        )  # fmt: skip
        return self._with_lost(posterior, observed)

    @staticmethod
    def _with_lost(posterior: Posterior, observed: CaseControl) -> Posterior:
        """Return the posterior with how many persons were dropped or moved."""
        lost = {"dropped": observed.n_dropped, "snapped": observed.n_snapped}
        return dataclasses.replace(posterior, points=dict(posterior.points) | lost)


def fit_risk(
    groups: Groups,
    basis: Basis,
    kernel: Kernel | None = None,
    *,
    inputs: Inputs | None = None,
    hyper: Literal["map", "integrate"] = "map",
    stage: ProgressLike = False,
    title: str = "",
    start: Posterior | None = None,
    measure: bool = False,
) -> Posterior:
    """Return the posterior of the relative risk, in units of its mean over the controls.

    Parameters
    ----------
    groups : Groups
    basis : HarmonicBasis or FullRank
    kernel : Kernel, optional
    inputs : Inputs, optional
        Covariates at the nodes.
    hyper : "map" or "integrate"
    stage : Stage, optional
    title : str
    start : Posterior, optional
        A fit with the same kernel on other cells, to begin from.
    measure : bool
        As for `LGCP.fit`.
    """
    model = RiskModel(basis, kernel, inputs=inputs)
    return model.fit(groups, hyper=hyper, progress=stage, title=title, start=start, measure=measure)


# -- Measurements and surveys: what was observed at places -------------------------------------------------------


class PlaceTask(TableTask):
    """What was observed at places: a Gaussian process, seen through a link."""

    any_smoothness = True
    #: The option with the table.
    source: ClassVar[str]
    options: ValueOptions | PrevalenceOptions

    @property
    def table(self) -> Any:
        """The table as it was given, read once; rows without a period left out."""
        return self.dated.tables[self.source]

    @cached_property
    @abstractmethod
    def columns(self) -> tuple[np.ndarray, np.ndarray | None, dict[str, int]]:
        """Values (NaN in rows that are not used), numbers of those tested, and why rows are not used."""

    @property
    def n_observed(self) -> int | None:
        """The number of rows with a value."""
        return int(np.isfinite(self.columns[0]).sum())

    def read(self, domain: Domain, reach: float | None, inputs: Inputs | None = None) -> dict[str, Any]:
        """Return measurements and inputs."""
        o, dated = self.options, self.dated
        values, tested, unused = self.columns
        if dated.warning is not None:
            warn(dated.warning)
        with self.progress.stage(self.source) as stage:
            measured = self._placed(domain, reach, values, tested, unused)
            stage.note(count(len(measured.values), *self.noun))
        if domain.crs is None and measured.counts is not None:
            check_one_plane({"land": own_crs(o.land), self.source: measured.counts.points_crs})
        names = [name for name in (getattr(o, key, None) for key in ("value", "positive", "tested")) if name]
        used = self.table[np.isfinite(values)]
        persons = measured.tested is not None and measured.tested.max() <= 1
        for warning in (about_unused(unused), about_copies(used, names, self.source, persons=persons)):
            if warning is not None:
                warn(warning)
        exposed = {name: getattr(o, name, None) for name in ("exposure", "exposure_column")}
        some = o.covariates or exposed["exposure"] is not None
        if inputs is None:
            with self.progress.stage("inputs") if some else nullcontext():
                inputs = Inputs.read(
                    domain, covariates=o.covariates, fill_missing=o.fill_missing, periods=dated.periods, time=o.time,
                    date_format=o.date_format, **exposed,
                )  # fmt: skip
        in_time = None
        if dated.periods is not None:
            in_time, inputs, measured = InTime(measured, inputs), inputs.pooled(), measured.pooled
        return {
            "counts": measured, "inputs": inputs, "n_observed": float(len(measured.values)), "in_time": in_time,
            "reference": -one_level(measured, self._family("")),
        }  # fmt: skip

    def _placed(self, domain: Domain, reach: float | None, *columns: Any) -> Measurements:
        """Return measurements on land; bare eastings and northings may be in the CRS of the land's own file."""
        o, captured, theirs = self.options, list[GeobgpWarning](), own_crs(self.options.land)
        named = {name: getattr(o, name) for name in ("longitude", "latitude", "easting", "northing", "on_water")}
        how = named | {"max_snap": self._max_snap(reach), "crs": o.points_crs}
        how |= {"periods": self.dated.periods, "period": self.dated.period[self.source]}
        try:
            with captured_warnings(captured.append):
                measured = read_measurements(self.table, domain, self.source, *columns, **how)
        except DataError as error:
            if error.found != 0 or o.points_crs is not None or theirs is None or theirs == domain.crs:
                raise
            try:
                return read_measurements(self.table, domain, self.source, *columns, **how | {"crs": theirs})
            except DataError:
                raise error from None
        for warning in captured:
            warn(warning)
        return measured

    def is_open(self, data: GriddedData) -> bool:
        """Tell whether next to no water lies between the places: the land ends where the study does."""
        return share_apart(data.domain, data.counts.coords) < APART

    @abstractmethod
    def _model(self, basis: Basis, inputs: Inputs, kernel: Kernel | None, family: str) -> BoundaryGP: ...

    @abstractmethod
    def _family(self, name: str) -> Likelihood:
        """Return one of `families`, or the simplest."""

    def fit(
        self,
        data: GriddedData,
        basis: Basis,
        kernel: Kernel | None,
        hyper: Literal["map", "integrate"],
        stage: ProgressLike,
        start: Posterior | None,
        measure: bool = False,
    ) -> Posterior:
        """Return a fit of the measurements."""
        model = self._model(basis, data.inputs, kernel, self.family)
        o = self.options
        return model.fit_measurements(
            data.counts, hyper=hyper, progress=stage, title=o.title, start=start, client=o.client
        )

    def fit_periods(
        self,
        in_time: InTime,
        basis: Basis,
        kernel: Kernel,
        stage: ProgressLike,
        start: Posterior | None,
        near: np.ndarray | None,
        deadline: float,
    ) -> Posterior:
        """Return a fit of all periods together, by the deadline; the dynamics of a fit to begin from are kept."""
        o = self.options
        dynamics: Any = o.dynamics if start is None else start.dynamics
        return self._model(basis, in_time.inputs, kernel, self.family).fit_measurements(
            in_time.counts, dynamics=dynamics, hyper=o.hyper, progress=stage, title=o.title, resume=o.cache, near=near,
            deadline=deadline,
        )  # fmt: skip


class ValueTask(PlaceTask):
    """Samples with a measured value each."""

    noun = ("value", "values")
    plural = "values"
    source, observed, function = "samples", ("samples",), "map_values"
    options: ValueOptions

    @cached_property
    def columns(self) -> tuple[np.ndarray, np.ndarray | None, dict[str, int]]:
        """The values."""
        assert self.options.value is not None
        values, unused = values_of(self.table, self.options.value)
        if self.options.transform != "auto":
            check_transform(values[np.isfinite(values)], self.options.transform)
        return values, None, unused

    def families(self, data: GriddedData) -> tuple[str, dict[str, str]]:
        """Return the transforms that values can have."""
        given = self.options.transform
        if given != "auto":
            return "transform", {given: "given"}
        y = data.counts.values
        if (y <= 0).any():
            return "transform", {"none": f"{count(int((y <= 0).sum()), *self.noun)} not above zero"}
        return "transform", {"none": "", "sqrt": "square root", "log": "logarithm"}

    def _family(self, name: str) -> Likelihood:
        return Gaussian.without_data({"link": TRANSFORMS[cast(Transform, name or "none")]})

    def _model(self, basis: Basis, inputs: Inputs, kernel: Kernel | None, family: str) -> BoundaryGP:
        transform = cast(Transform, family or "none")
        return BoundaryGP.from_inputs(basis, inputs, kernel, transform=transform, mean="constant")


class SurveyTask(PlaceTask):
    """Positives among those tested, site by site."""

    noun = ("survey", "surveys")
    plural = "surveys"
    source, observed, function = "surveys", ("surveys",), "map_prevalence"
    options: PrevalenceOptions

    @cached_property
    def columns(self) -> tuple[np.ndarray, np.ndarray | None, dict[str, int]]:
        """Positives and tested."""
        o = self.options
        assert o.positive is not None and o.tested is not None
        return positives_of(self.table, o.positive, o.tested)

    def families(self, data: GriddedData) -> tuple[str, dict[str, str]]:
        """Return the distributions that numbers of positives can have."""
        given = self.options.likelihood
        if given != "auto":
            return "sites", {given: "given"}
        if data.counts.tested.max() <= 1:
            return "sites", {"binomial": "one person was tested at each"}
        return "sites", {name: FAMILIES[name].about for name in get_args(TestedName)}

    def _family(self, name: str) -> Likelihood:
        return FAMILIES[name or "binomial"]

    def _model(self, basis: Basis, inputs: Inputs, kernel: Kernel | None, family: str) -> BoundaryGP:
        likelihood: Any = family or "binomial"
        return BoundaryGP.from_inputs(basis, inputs, kernel, likelihood, mean="constant")


def one_level(measured: Measurements, family: Likelihood) -> float:
    """Return the log probability of measurements if there were one level everywhere, in the simplest family."""
    y, size = measured.values, measured.size
    level = family.link.forward(np.array(float(y.sum() / size.sum())))
    if family.dispersion == "noise":
        family = family.with_dispersion(float(np.std(y)))
    return float(family.log_density(y, level, size).sum())
