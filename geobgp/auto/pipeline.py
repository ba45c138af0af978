"""The pipeline of every map: from options to a posterior, whatever was observed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from geobgp import privacy
from geobgp.auto.gridded import GriddedData, GriddedSeries
from geobgp.auto.options import MappingOptions, Options, PrevalenceOptions, RiskOptions, ValueOptions
from geobgp.auto.search import POOLED_SHARE, ClockDecisions, Fits, GridRefinement, fit_over_time
from geobgp.auto.tasks import CountTask, MapTask, PersonTask, SurveyTask, ValueTask
from geobgp.errors import warn
from geobgp.land.domain import Domain
from geobgp.posterior import Posterior
from geobgp.progress import ProgressLike, as_progress
from geobgp.provenance import origin_of
from geobgp.summary import Choice

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
    kind = next(task for kind, task in TASKS.items() if isinstance(options, kind))
    task = kind(options, progress, keep_coordinates, check, by, n_workers)
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
