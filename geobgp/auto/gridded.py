"""The data of a run on cells of one size: the land, what was observed on it, exposure, effort, covariates."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import shapely

from geobgp.errors import GeobgpWarning, GeometryError, captured_warnings
from geobgp.files import read_vector
from geobgp.land.crs import as_crs
from geobgp.land.domain import Domain
from geobgp.land.polygons import LANDS_OWN, Land, land_polygons, read_lines, read_polygons
from geobgp.summary import Choice
from geobgp.text import number

if TYPE_CHECKING:
    from geobgp.auto.tasks import MapTask
    from geobgp.data.inputs import Inputs
    from geobgp.data.periods import Periods
    from geobgp.posterior import Posterior


# -- The land of a run: polygons with the CRS that was given for them, and what is told of their domain ------


def read_land(
    land: Any, water: Any = None, barriers: Any = None, bridges: Any = None, *, crs: Any = None, land_crs: Any = None
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
    land_polys = land_polygons(land, water, barriers, crs, bridges)
    if not shapely.area(land_polys.geometry) > 0:
        raise GeometryError("land: the polygons enclose no area, so that no cell size can be chosen.")
    return land_polys


def _with_crs(source: Any, name: str, crs: Any) -> Any:
    """Return shapes with the CRS that was given for them where they have none."""
    if source is None:
        return None
    series = (read_lines if name == "barriers" else read_polygons)(source, name)[0]
    return series if series.crs is not None else series.set_crs(as_crs(crs, "land_crs"))


def about_crs(land: Land, given: Any) -> Choice:
    """Return which CRS a map of land has, and why."""
    found = land.crs
    if found is None:
        return Choice("local", "given: planar coordinates with no place on Earth")
    code = found.to_authority()
    name = f"{':'.join(code)}, {found.name}" if code else found.name
    if given is not None:
        return Choice(name, "given")
    if land.own_crs:
        return Choice(name, LANDS_OWN)
    if land.why_crs:
        return Choice(name, f"chosen, for {land.why_crs}")
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


# -- Gridded data: what is to be explained at one size of cells ------------------------------------------------


@dataclass(frozen=True, eq=False)
class InTime:
    """What is to be explained period by period.

    Attributes
    ----------
    counts : Counts or AreaCounts
    inputs : Inputs
    """

    counts: Any
    inputs: Inputs

    @property
    def periods(self) -> Periods:
        """The periods."""
        periods: Periods = self.counts.periods
        return periods


@dataclass(frozen=True, eq=False)
class GriddedData:
    """Land, observations, exposure and covariates on cells of one size.

    Attributes
    ----------
    domain : Domain
    counts : Counts, AreaCounts or CaseControl
        What was observed.
    inputs : Inputs
        Exposure, effort and covariates; of all periods together, as the observations are.
    n_observed : float
        The number of events, or of persons.
    reference : float
        What is added to a bound on the log probability of the observations on these cells to give the gain over an even
        rate, in nats: where within their cells events lie is part of it, so that cells of all sizes can be compared.
    spacing : float
        How far apart the places of the points are, where many points share them; else zero.
    in_time : InTime or None
        Observations and inputs period by period.
    warnings : tuple of GeobgpWarning
        What is to be said of the inputs, if these cells are kept.
    seconds : float
        What it took to make.
    """

    domain: Domain
    counts: Any
    inputs: Inputs
    n_observed: float
    reference: float
    spacing: float = 0.0
    in_time: InTime | None = None
    warnings: tuple[GeobgpWarning, ...] = ()
    seconds: float = 0.0

    def gain(self, posterior: Posterior) -> float:
        """Return the gain of a fit over an even rate, in nats."""
        return posterior.elbo + self.reference


@dataclass(frozen=True, eq=False)
class GriddedSeries:
    """The data of a run on cells of any size; land and observations are read once for all.

    Parameters
    ----------
    task : MapTask
        What kind of data they are.
    """

    task: MapTask
    _made: dict[float, GriddedData] = field(default_factory=dict, repr=False)

    @cached_property
    def land(self) -> Land:
        """The polygons."""
        o = self.task.options
        return read_land(o.land, o.water, o.barriers, o.bridges, crs=o.crs, land_crs=o.land_crs)

    @property
    def area(self) -> float:
        """The area of the land, in m² (square units of a local plane)."""
        return float(shapely.area(self.land.geometry))

    def at(self, cell_size: float, reach: float | None = None) -> GriddedData:
        """Return the data on cells of a size.

        Parameters
        ----------
        cell_size : float
        reach : float, optional
            How far points are moved to land where no distance was given: the same on all cells that are compared.
        """
        if cell_size not in self._made:
            begin, captured = time.perf_counter(), list[GeobgpWarning]()
            with captured_warnings(captured.append):
                with self.task.progress.stage("land") as stage:
                    domain = Domain.from_land(self.land, cell_size, self.task.options.min_coverage)
                    stage.note(describe(domain))
                parts = self.task.read(domain, reach)
            seconds = time.perf_counter() - begin
            self._made[cell_size] = GriddedData(domain, **parts, warnings=tuple(captured), seconds=seconds)
        return self._made[cell_size]
