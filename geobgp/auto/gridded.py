"""The data of a run on cells of one size: domain, counts, exposure, effort, covariates."""

from __future__ import annotations

import dataclasses
import math
import time
import warnings
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import shapely
from scipy.spatial import cKDTree
from scipy.special import gammaln

from geobgp.data.areas import AreaCounts, bin_areas, combine, even_rate
from geobgp.data.counts import Counts, about_few, about_places, bin_points
from geobgp.data.inputs import Inputs, check_events
from geobgp.data.partitions import n_rows_of
from geobgp.data.points import number_of_rows
from geobgp.errors import (
    DataError,
    DroppedPointsWarning,
    GeobgpWarning,
    GeometryError,
    captured_warnings,
    warn,
)
from geobgp.files import read_vector
from geobgp.land.crs import as_crs
from geobgp.land.domain import Domain
from geobgp.land.polygons import (
    CRS_NOTE,
    Land,
    check_one_plane,
    land_polygons,
    own_crs,
    read_lines,
    read_polygons,
)
from geobgp.summary import Choice
from geobgp.text import number
from geobgp.units import Units

if TYPE_CHECKING:
    from geobgp.auto.options import Options
    from geobgp.data.periods import Periods
    from geobgp.posterior import Posterior
    from geobgp.progress import Progress, Stage


# -- The land of a run: polygons with the CRS that was given for them, and what is told of their domain ------


def read_land(
    land: Any,
    water: Any = None,
    barriers: Any = None,
    bridges: Any = None,
    *,
    crs: Any = None,
    land_crs: Any = None,
) -> Land:
    """Return land, water, barriers and bridges in one CRS, to be cut into cells of any size.

    Parameters
    ----------
    land, water, barriers, bridges, crs, land_crs
        As for `map_intensity`.
    """
    if land_crs is not None:
        land, water, barriers = (
            _with_crs(source, name, land_crs)
            for name, source in (("land", land), ("water", water), ("barriers", barriers))
        )
        if bridges is not None:  # with their widths
            bridges = read_vector(bridges, "bridges") if isinstance(bridges, (str, Path)) else bridges
            if hasattr(bridges, "set_crs") and bridges.crs is None:
                bridges = bridges.set_crs(as_crs(land_crs, "land_crs"))
    found = land_polygons(land, water, barriers, crs, bridges)
    if not shapely.area(found.geometry) > 0:
        raise GeometryError("land: the polygons enclose no area, so that no cell size can be chosen.")
    return found


def _with_crs(source: Any, name: str, crs: Any) -> Any:
    """Return shapes with the CRS that was given for them where they have none."""
    if source is None:
        return None
    series = (read_lines if name == "barriers" else read_polygons)(source, name)[0]
    return series if series.crs is not None else series.set_crs(as_crs(crs, "land_crs"))


def about_crs(domain: Domain, given: Any) -> Choice:
    """Return which CRS a domain has, and why."""
    found = domain.crs
    if found is None:
        return Choice("local", "given: planar coordinates with no place on Earth")
    code = found.to_authority()
    name = f"{':'.join(code)}, {found.name}" if code else found.name
    if given is not None:
        return Choice(name, "given")
    own = next((note.removeprefix(CRS_NOTE) for note in domain.notes if note.startswith(CRS_NOTE)), "")
    if own == "the land's own":
        return Choice(name, own)
    if own:
        return Choice(name, f"chosen, for {own}")
    if code:
        return Choice(name, "the land lies within this UTM zone")
    return Choice(name, "equal-area around the land, which does not fit one UTM zone")


def side(domain: Domain) -> str:
    """Return the side of a cell, with its unit."""
    return f"{number(domain.cell_size)} {'m' if domain.crs is not None else 'units'}"


def describe(domain: Domain) -> str:
    """Return the area, the number of nodes and of separate parts, in one line."""
    unit, name = domain.area_unit
    area = f"{number(domain.node_areas.sum() / unit)} {name if domain.crs is not None else 'square units'}"
    parts = f", {domain.n_components:,} separate parts" if domain.n_components > 1 else ""
    return f"{area} in {domain.n_nodes:,} nodes of {side(domain)}{parts}"


# -- Gridded data: what is to be explained at one size of cells: the land, the counts on it, exposure and covariates --


#: Share of points on top of others from which places count and not points; and the most points that are looked at.
SHARED, MOST_LOOKED_AT = 0.3, 2_000_000


@dataclass(frozen=True, eq=False)
class InTime:
    """What is to be explained period by period.

    Attributes
    ----------
    counts : Counts or AreaCounts
    inputs : Inputs
    """

    counts: Counts | AreaCounts
    inputs: Inputs

    @property
    def periods(self) -> Periods:
        """The periods."""
        assert self.counts.periods is not None
        return self.counts.periods


@dataclass(frozen=True, eq=False)
class GriddedData:
    """Land, counts, exposure and covariates on cells of one size.

    Attributes
    ----------
    domain : Domain
    counts : Counts or AreaCounts
    inputs : Inputs
        Exposure, effort and covariates; of all periods together, as the counts are.
    spacing : float
        How far apart the places of the points are, where many points share them; else zero.
    in_time : InTime or None
        Counts and inputs period by period.
    warnings : tuple of GeobgpWarning
        What is to be said of the inputs, if this scene is kept.
    seconds : float
        What it took to make.
    """

    domain: Domain
    counts: Counts | AreaCounts
    inputs: Inputs
    spacing: float
    in_time: InTime | None
    warnings: tuple[GeobgpWarning, ...]
    seconds: float

    @cached_property
    def _reference(self) -> float:
        """Nats between the bound of the counts and the gain of the points over an even rate."""
        if isinstance(self.counts, AreaCounts):
            return -even_rate(combine(self.counts, self.inputs.exposure, self.inputs.effort))
        y, area = self.counts.values, self.domain.node_areas
        total = float(y.sum())
        even = total * math.log(total / float(area.sum())) - total
        return float(np.sum(gammaln(y + 1.0) - y * np.log(area))) - even

    def gain(self, posterior: Posterior) -> float:
        """Return the bound of the points' own log-likelihood less that of an even rate, in nats.

        Where within their cells the points lie is part of it, so that fits on cells of different sizes can be compared.
        """
        return posterior.elbo + self._reference


@dataclass(frozen=True, eq=False)
class GriddedSeries:
    """The scenes of a run, on cells of any size; polygons are read once for all.

    Parameters
    ----------
    options : Options
    progress : Progress
    keep_coordinates : bool
        Keep the points' coordinates with the counts.
    """

    options: Options
    progress: Progress
    keep_coordinates: bool = False
    _made: dict[float, GriddedData] = field(default_factory=dict, repr=False)

    @cached_property
    def land(self) -> Land:
        """The polygons."""
        o = self.options
        return read_land(o.land, o.water, o.barriers, o.bridges, crs=o.crs, land_crs=o.land_crs)

    @cached_property
    def n_areas(self) -> int:
        """Number of areas."""
        areas = self.options.areas
        frame = read_vector(areas, "areas") if isinstance(areas, (str, Path)) else areas
        return len(frame) if self.options.time is None else int(frame.geometry.to_wkb().nunique())

    @cached_property
    def n_points(self) -> int | None:
        """Number of points, where it is known before they are read."""
        found = n_rows_of(self.options.points)
        return number_of_rows(self.options.points, self.options.layer) if found is None else found

    @property
    def one_size(self) -> bool:
        """Whether points can be read only once, or inputs are given for the nodes of one size of cells."""
        o = self.options
        if o.areas is not None:
            return True
        once = not isinstance(o.points, (str, Path)) and not hasattr(o.points, "__len__")
        given = (o.exposure, o.effort, *(o.covariates or {}).values())
        several = [list(v.values()) if isinstance(v, Mapping) else v for v in given]
        per_node = [one for v in several for one in (v if isinstance(v, (list, tuple)) else [v])]
        return once or any(isinstance(v, np.ndarray) for v in per_node)

    def at(self, cell_size: float, reach: float | None = None) -> GriddedData:
        """Return the scene on cells of a size.

        Parameters
        ----------
        cell_size : float
        reach : float, optional
            How far points are moved to land where no distance was given: the same on all cells that are compared.
        """
        if cell_size not in self._made:
            begin, captured = time.perf_counter(), list[GeobgpWarning]()
            with captured_warnings(captured.append):
                made = self._make(cell_size, reach)
            seconds = time.perf_counter() - begin
            self._made[cell_size] = GriddedData(**made, warnings=tuple(captured), seconds=seconds)
        return self._made[cell_size]

    def _make(self, cell_size: float, reach: float | None) -> dict[str, Any]:
        o = self.options
        with self.progress.stage("land") as stage:
            domain = Domain.from_land(self.land, cell_size, o.min_coverage)
            stage.note(describe(domain))
        counts: Counts | AreaCounts | None = None
        spacing = 0.0
        if o.points is not None:
            with self.progress.stage("points") as stage:
                counts = self._counts(domain, reach, stage)
                stage.note(_about_counts(counts))
            spacing = _spacing(counts)
            if not self.keep_coordinates:
                counts = dataclasses.replace(counts, coordinates=None)
        if o.areas is not None:
            with self.progress.stage("areas") as stage:
                when = {
                    name: getattr(o, name) for name in ("time", "every", "between", "date_format", "absent")
                }
                if isinstance(counts, Counts) and counts.periods is not None:
                    when["every"], when["between"] = counts.periods, None
                areas = bin_areas(o.areas, domain, o.count or "", suppressed=o.suppressed, **when)
                stage.note(f"{areas.n_used:,} events in {len(areas.names):,} areas")
            counts = areas if counts is None else dataclasses.replace(areas, located=np.array(counts.values))
        some = o.exposure is not None or o.effort is not None or o.covariates
        with self.progress.stage("inputs") if some else nullcontext():
            inputs = Inputs.read(
                domain,
                exposure=o.exposure, exposure_column=o.exposure_column, effort=o.effort, effort_column=o.effort_column,
                covariates=o.covariates, fill_missing=o.fill_missing,
                periods=getattr(counts, "periods", None), time=o.time, date_format=o.date_format,
                counted=counts.shapes if isinstance(counts, AreaCounts) else None,
            )  # fmt: skip
            # What does not fit is said before the fit.
            Units.of(o.units or "", inputs.exposure_kind, domain.area_unit)
            counts = _sharing(counts, inputs)
        in_time = None
        if isinstance(counts, (Counts, AreaCounts)) and counts.periods is not None:
            in_time = InTime(counts, inputs)
            inputs = inputs.pooled()
            counts = _sharing(counts.pooled(), inputs)
        few = about_few(counts.total_weight, "points" if o.points is not None else "areas")
        if few is not None:
            warn(few)
        if isinstance(counts, AreaCounts):
            check_events(counts.located, counts, inputs.exposure, inputs.effort)
        else:
            check_events(counts.values, None, inputs.exposure, inputs.effort)
        return {"domain": domain, "counts": counts, "inputs": inputs, "spacing": spacing, "in_time": in_time}

    def _counts(self, domain: Domain, reach: float | None, stage: Stage) -> Counts:
        o = self.options
        reading: dict[str, Any] = {
            name: getattr(o, name)
            for name in (
                "weights", "on_water", "chunksize", "longitude", "latitude", "easting", "northing", "layer",
                "time", "every", "between", "date_format",
            )
        }  # fmt: skip
        reading |= {"crs": o.points_crs, "client": o.client, "progress": stage}
        # Where many points share few places, cells finer than those say nothing.
        reading["keep_coordinates"] = self.keep_coordinates or (self.n_points or math.inf) <= MOST_LOOKED_AT
        reading["max_snap"] = reach if o.max_snap is None else o.max_snap
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DroppedPointsWarning)  # it may be taken back below
            counts = _timed(o, domain, reading)
            if counts.n_used == 0 and counts.n_read and o.points_crs is None:
                counts = _in_crs_of_land(o, domain, reading) or counts
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
                f"points: none is left to map. {counts.warning.message}",
                option="points",
                remedy=counts.warning.remedy,
            )
        if getattr(o, "show_points", False) and counts.coordinates is not None:
            from geobgp.web.overlays import MAX_POINTS, few_enough

            few_enough(len(counts.coordinates), MAX_POINTS, "points", "show_points")
        if counts.weighted and counts.total_weight == 0:
            raise DataError(
                f"weights: all {counts.n_used:,} are zero, so that there is nothing to map.", option="weights"
            )
        places = None if counts.coordinates is None else about_places(counts.coordinates)
        for warning in (*counts.warnings, *(() if places is None else (places,))):
            warn(warning)
        return counts


def _timed(o: Options, domain: Domain, reading: Mapping[str, Any]) -> Counts:
    """Count points; where none has both a date and a place on the land, in the CRS of the land's own file."""
    try:
        return bin_points(o.points, domain, **reading)
    except DataError as error:
        again = _in_crs_of_land(o, domain, reading) if error.option == "time" and error.found == 0 else None
        if again is None:
            raise
        return again


def _sharing(counts: Any, inputs: Inputs) -> Any:
    """Return counts by area with the part of every node's exposure and effort that is theirs; others as they are."""
    if not isinstance(counts, AreaCounts):
        return counts
    return counts._exposing(inputs.domain, inputs.given, inputs.effort, inputs.given_effort)


def _in_crs_of_land(o: Options, domain: Domain, reading: Mapping[str, Any]) -> Counts | None:
    """Count once more with bare eastings and northings taken to be in the CRS of the land's own file.

    Without a CRS they are taken to be in the domain's, which may have been chosen here.
    """
    theirs = own_crs(o.land)
    again = isinstance(o.points, (str, Path)) or hasattr(o.points, "__len__")
    if not again or theirs is None or domain.crs is None or not theirs.is_projected or theirs == domain.crs:
        return None
    counts = bin_points(o.points, domain, **{**reading, "crs": theirs})
    return counts if 2 * counts.n_used > counts.n_read else None


def _spacing(counts: Counts) -> float:
    """Return how far apart the places of points are, half of them nearer, where many points share one; else 0."""
    if counts.coordinates is None or not len(counts.coordinates):
        return 0.0
    places = np.unique(counts.coordinates, axis=0)
    if len(places) < 2 or len(places) > (1.0 - SHARED) * max(counts.total_weight, counts.n_read):
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
