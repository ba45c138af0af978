"""The pipeline of every map: from options to a posterior, whatever was observed."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, cast

from geobgp import privacy
from geobgp.auto.gridded import GriddedData, GriddedSeries
from geobgp.auto.options import MappingOptions, Options, PrevalenceOptions, RiskOptions, ValueOptions
from geobgp.auto.search import (
    FIRST_FEATURES,
    POOLED_SHARE,
    BoundaryCondition,
    ClockDecisions,
    Fits,
    GridRefinement,
    ModelSearch,
    fit_over_time,
    most_features,
    practical_features,
    round_size,
    seconds_of,
)
from geobgp.auto.tasks import CountTask, MapTask, PersonTask, SurveyTask, ValueTask
from geobgp.errors import captured_warnings, warn
from geobgp.land.domain import Domain
from geobgp.linalg.blas import free_memory
from geobgp.linalg.eigen import memory_needed
from geobgp.posterior import Posterior
from geobgp.prior.full_rank import FullRank
from geobgp.prior.kernels import Matern
from geobgp.progress import Progress, ProgressLike, as_progress
from geobgp.provenance import origin_of
from geobgp.summary import Choice
from geobgp.text import number, size_text

#: The kind of data that options are of.
TASKS: dict[type[MappingOptions], type[MapTask]] = {
    Options: CountTask,
    RiskOptions: PersonTask,
    ValueOptions: ValueTask,
    PrevalenceOptions: SurveyTask,
}


@dataclass(frozen=True, eq=False)
class Mapped:
    """A posterior and what led to it.

    Attributes
    ----------
    posterior : Posterior
    task : MapTask
        What kind of data they are of.
    data : GriddedData
        What was observed, and the inputs, on the cells that were kept.
    choices : dict of str to Choice
        CRS, cell size, water, features, boundary, kernel, hyperparameters: what was taken and why.
    seconds : dict of str to float
        Time by stage.
    reach : float
        The farthest that a point may have been moved to land.
    """

    posterior: Posterior
    task: MapTask
    data: GriddedData
    choices: dict[str, Choice]
    seconds: dict[str, float]
    reach: float

    @property
    def domain(self) -> Domain:
        """The land that was fitted."""
        return self.posterior.domain

    @property
    def counts(self) -> Any:
        """What was observed, by period where there are some: Counts, AreaCounts or CaseControl."""
        return self.data.counts if self.data.in_time is None else self.data.in_time.counts


#: Nodes of the quick fit from which a preview tells what the real one will take.
PREVIEW_NODES = 1500
#: Bytes besides: what libraries take, those of pages and figures too; and arrays by node, in the fit and its results.
LIBRARIES, BY_NODE, BY_FEATURE = 425e6, 7e3, 20.0
#: Bytes by node of what is drawn jointly in parts, and at most.
DRAWN, MOST_DRAWN = {"full": 22e3, "features": 8e3}, 400e6


@dataclass(frozen=True)
class Preview:
    """What a run will take, as far as a quick fit on coarse cells tells.

    Attributes
    ----------
    nodes : int
        Of the cells that are aimed at; the search goes on to finer ones where the data gain by it.
    cells, prior : str
        How wide these are, and why; features or full resolution.
    periods : str
        Empty without time.
    seconds : float
        About what the map on these cells takes, without files and checks.
    limit : float
        Seconds after which no larger model is begun; 0 where nothing is searched for.
    memory : float
        Bytes at the peak, about.
    """

    nodes: int
    cells: str
    prior: str
    periods: str
    seconds: float
    limit: float
    memory: float

    def lines(self) -> list[str]:
        """Return it in words."""
        ends = "" if not self.limit else f"; the search for finer cells goes on for {self.limit:,.0f} s at most"
        free = free_memory()
        have = "" if free is None else f", of {size_text(free)} that are free"
        return [
            f"cells: about {number(self.nodes, 3)} nodes, {self.cells}",
            *([f"periods: {self.periods}"] if self.periods else []),
            f"prior: {self.prior}",
            f"time: about {number(max(self.seconds, 1.0), 2)} s for the first map on these cells{ends}",
            f"memory: about {size_text(self.memory)}{have}",
        ]


def preview(options: MappingOptions, progress: ProgressLike = False) -> Preview:
    """Tell what a map will take: cells, time and memory, from a fit on coarse cells; nothing is written.

    Time grows with the nodes as the search expects it to, memory as the factor of a grid does.
    """
    options.check_files()
    task = task_of(options, as_progress(progress))
    fits = Fits(task, perf_counter() + options.max_seconds)
    refinement = GridRefinement(GriddedSeries(task), fits)
    size, why = refinement.aimed_at()
    area = refinement.series.area
    coarse = max(size, round_size(math.sqrt(area / PREVIEW_NODES)))
    data = refinement.series.at(coarse, refinement.reach)
    rho = 0.0 if options.permeability == "auto" or options.boundary == "dirichlet" else float(options.permeability)
    condition = BoundaryCondition(options.boundary, rho)
    full = ModelSearch(fits).has_full and not isinstance(options.m, int)
    few = practical_features(data.domain.n_nodes, options.m if isinstance(options.m, int) else FIRST_FEATURES)
    with captured_warnings(lambda warning: None):
        fit = fits.fit(data, condition, "full" if full else few)
    finer = (coarse / size) ** 2
    nodes, n_periods = round(data.domain.n_nodes * finer), 0 if data.in_time is None else data.in_time.periods.n
    seconds, memory = fit.seconds_with(nodes), LIBRARIES + BY_NODE * nodes
    memory += min(DRAWN["full" if full else "features"] * nodes, MOST_DRAWN)
    m = options.m if isinstance(options.m, int) else FIRST_FEATURES
    prior = "full resolution, or features where these do" if full and options.m == "auto" else "full resolution"
    if full:
        basis, kernel = cast(FullRank, fit.posterior.basis), cast(Matern, fit.posterior.kernel)
        factor = basis.field.powers(int(kernel.nu) + 1).fronts.memory
        memory += factor * finer * math.log(max(nodes, 3)) / math.log(max(data.domain.n_nodes, 3))
    else:
        if n_periods:
            m = most_features(nodes, n_periods, options.max_seconds, options.max_features, task.n_areas or 0)
            seconds += seconds_of(nodes, m, n_periods)
            memory += 8.0 * (6.0 * n_periods * m**2 + 40.0 * n_periods * nodes)
        else:
            seconds *= max(m / few, 1.0) ** 2
        memory = max(memory + BY_FEATURE * nodes * m, memory_needed(nodes, min(m, nodes // 3)))
        prior = f"{m:,} features" if isinstance(options.m, int) else f"up to {m:,} features"
    given = isinstance(options.m, (int,)) or options.m == "full"
    settled = given and options.cell_size is not None and options.permeability != "auto"
    return Preview(
        nodes, f"{number(size)} wide ({why})", prior, "" if data.in_time is None else data.in_time.periods.words(),
        seconds, 0.0 if settled else float(options.max_seconds), memory,
    )  # fmt: skip


def task_of(
    options: MappingOptions,
    progress: Progress,
    keep_coordinates: bool = False,
    check: Callable[[Any], None] | None = None,
    by: Sequence[str] = (),
    n_workers: int = 1,
) -> MapTask:
    """Return the kind of data that options are of."""
    kind = next(task for kind, task in TASKS.items() if isinstance(options, kind))
    return kind(options, progress, keep_coordinates, check, by, n_workers)


def run(
    options: MappingOptions,
    progress: ProgressLike = False,
    *,
    keep_coordinates: bool = False,
    check: Callable[[Any], None] | None = None,
    by: Sequence[str] = (),
    n_workers: int = 1,
    decisions: Sequence[Any] = (),
) -> Mapped:
    """Make a map, and return what was observed, the choices and the times as well.

    Parameters
    ----------
    options : MappingOptions
        Those of `map_intensity`, `map_risk` and the others: the data are of their kind.
    progress : bool, Progress, Stage or callable
    keep_coordinates : bool
        Keep the points' coordinates with the counts, to be shown on a map.
    check : callable, optional
        Is given what was observed before anything is fitted; raises where it cannot be used.
    by : sequence of str
        Columns whose values make strata, which `n_workers` will fit each by itself after this map of all: their time
        is part of what is allowed.
    n_workers : int
    decisions : sequence
        Of the clock, in a run that is to be repeated: ``origin["decisions"]`` of its posterior.
    """
    options.check_files()
    progress = as_progress(progress)
    task = task_of(options, progress, keep_coordinates, check, by, n_workers)
    task.n_strata  # noqa: B018  (columns that are not there are told now)
    with progress.stage("inputs") as stage:
        origin = origin_of(task.function, options.sources(), options.record(needed=True, matters=True), stage)
    begin = perf_counter()
    first = options.max_seconds * (POOLED_SHARE if task.in_time else 1.0)
    fits = Fits(task, begin + first, ClockDecisions(before=decisions))
    refinement = GridRefinement(GriddedSeries(task), fits)
    kept, choices = refinement.climb()
    history = fits.records(kept)
    if kept.data.in_time is not None:
        seconds = options.max_seconds / (1 + task.fits_to_come)
        fits = dataclasses.replace(fits, deadline=begin + seconds)
        kept = fit_over_time(fits, kept, choices)
    choices["hyperparameters"] = Choice("held at their best values", "'integrate' would include their uncertainty")
    if options.hyper == "integrate":
        kept = fits.integrate(kept) if kept.data.in_time is None else kept
        mixed = f"a mixture over {len(kept.posterior.fit.states)} values"
        choices["hyperparameters"] = Choice("integrated", mixed)
    for warning in (*kept.data.warnings, *kept.warnings):
        warn(warning)
    posterior = dataclasses.replace(
        kept.posterior,
        choices={name: str(choice) for name, choice in choices.items()},
        tried=history,
        origin=origin | {"decisions": fits.decisions.taken},
    )
    posterior = posterior.in_units(getattr(options, "units", None)).with_interval(options.interval)
    posterior = privacy.told_in_choices(posterior, options, choices)
    reach = refinement.reach if options.max_snap is None else options.max_snap
    return Mapped(posterior, task, kept.data, choices, dict(progress.seconds), reach)
