"""Strata: a map for each value of a column, all on one basis, by a Dask cluster or the processes of this machine."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from geobgp.arguments import CLIENT, PROGRESS, SOURCE
from geobgp.auto.pipeline import Mapped, run
from geobgp.data.strata_counts import StrataCounts, bin_strata
from geobgp.errors import DataError, GeobgpWarning, StrataWarning, hearing, in_words, warn
from geobgp.inference.fit import Start
from geobgp.model import LGCP
from geobgp.posterior import Posterior
from geobgp.privacy import Protection, protected
from geobgp.progress import Progress, ProgressLike, as_progress
from geobgp.scale.packing import Packed
from geobgp.scale.pooling import Evidence, learn_prior, moved
from geobgp.scale.strata_maps import Strata
from geobgp.scale.strata_options import StrataOptions
from geobgp.scale.workers import Failed, Workers, open_workers
from geobgp.text import count, listed
from geobgp.validate import FLAG, NAME, door, either, names, whole

if TYPE_CHECKING:
    from geobgp.data.counts import Counts
    from geobgp.prior.kernels import NormalPrior

#: Strata from which a common prior can be learned; how often it is learned anew; and how far it may move at the end, in
#: its own standard deviations.
FEWEST_POOLED, POOL_ROUNDS, POOL_SETTLED = 3, 4, 0.1


@door(
    points=SOURCE,
    land=SOURCE,
    by=either(NAME, names("names of columns", least=1)),
    pool=FLAG,
    client=CLIENT,
    n_jobs=whole(1),
    progress=PROGRESS,
)
def map_strata(
    points: Any,
    land: Any,
    by: str | Sequence[str],
    *,
    pool: bool = False,
    client: Any = None,
    n_jobs: int | None = None,
    progress: ProgressLike = False,
    **options: Any,
) -> Strata:
    """Map each value of a column by itself: diseases, age groups, years; all on the same cells and the same basis.

    All points together choose cells, water and features, as in `map_intensity`; domain, basis and the tables of the
    prior are made once, and handed to all workers once. Each stratum is then what `LGCP(basis).fit` makes of its
    counts.

    Parameters
    ----------
    points : GeoDataFrame, DataFrame, path, Dask collection, folder or pattern of GeoParquet files
        With the columns `by`.
    land : GeoDataFrame, GeoSeries, shapely geometry or path
        Polygons.
    by : str or sequence of str
        A column, or several: one map for each combination of their values that there is.
    pool : bool
        Take the log lengthscales and log sds of the strata for draws from a normal distribution whose mean and spread
        are learned from all of them, so that strata with few points borrow from the others. By default each is free.
        What they are pooled at suits strata of their size best, and need not be what suits all points together.
    client : distributed.Client or str, optional
        A Dask client, or the address of a scheduler; by default the current client.
    n_jobs : int, optional
        Processes, where there is no client; one for each core by default.
    progress : bool, Progress, Stage or callable
    **options
        All others of `map_intensity` but areas: ``water``, ``cell_size``, ``m``, ``exposure``, ``hyper``, ...

    Returns
    -------
    Strata
        A mapping of names to posteriors, with ``failures`` by name, ``table()``, ``totals()``, ``to_index(path)``.

    Warns
    -----
    StrataWarning
        When strata could not be mapped; the others are.

    Examples
    --------
    >>> import pandas as pd, shapely
    >>> rng = np.random.default_rng(1)
    >>> table = pd.DataFrame(rng.uniform(0, 10, (300, 2)), columns=["easting", "northing"])
    >>> table["age"] = np.where(table["easting"] > rng.uniform(0, 10, 300), "old", "young")
    >>> told = {"crs": "local", "cell_size": 1.0, "m": "full", "permeability": 0.0}
    >>> strata = map_strata(table, shapely.box(0, 0, 10, 10), "age", n_jobs=1, **told)
    >>> list(strata), sum(posterior.n_points for posterior in strata.values())
    (['old', 'young'], 300)
    """
    told = StrataOptions(points=points, land=land, by=by, pool=pool, client=client, n_jobs=n_jobs, **options)
    return run_strata(told, progress)


def run_strata(options: StrataOptions, progress: ProgressLike = False) -> Strata:
    """Do what `map_strata` does."""
    o, progress = options, as_progress(progress)
    o.check_files()
    _check_readable(o.points)
    with open_workers(o.client, o.n_jobs) as workers:
        mapped = run(o.of_everything(), progress)
        reading = {
            name: getattr(o, name)
            for name in (
                "weights", "on_water", "chunksize", "longitude", "latitude", "easting", "northing", "layer", "client",
            )
        }  # fmt: skip
        # Bare coordinates are where they were found to be for the map of everything.
        crs = getattr(mapped.counts, "points_crs", None) if o.points_crs is None else o.points_crs
        counts = bin_strata(
            o.points, mapped.domain, o.by, crs=crs, max_snap=mapped.reach, progress=progress, **reading
        )
        return _fit_all(o, mapped, counts, workers, progress)


def _check_readable(points: Any) -> None:
    """Refuse points that can be read only once: they are read for the map of everything, and by stratum."""
    if not hasattr(points, "columns") and not hasattr(points, "__fspath__") and not isinstance(points, str):
        raise DataError(
            f"Strata need a table or a file, with columns; found points as {type(points).__name__}.",
            option="points",
            found=type(points).__name__,
            remedy="Give a GeoDataFrame, a DataFrame, a path or a Dask collection.",
        )


# -- fits


@dataclass(frozen=True, eq=False)
class Task:
    """A stratum to be fitted.

    Attributes
    ----------
    counts : Counts
    title : str
    prior : NormalPrior or None
        In place of the kernel's own.
    start : Start or None
    """

    counts: Counts
    title: str
    prior: NormalPrior | None = None
    start: Start | None = None


@dataclass(frozen=True, eq=False)
class Job:
    """What all strata share: the model, and how it is fitted."""

    model: LGCP
    hyper: Any
    measure: bool


@dataclass(frozen=True, eq=False)
class Fitted:
    """A stratum's posterior, packed, and what its fit warned of."""

    packed: Packed
    warnings: tuple[str, ...]


def fit_stratum(task: Task, job: Job) -> Fitted:
    """Fit one stratum, wherever this is."""
    if task.counts.total_weight == 0:
        c = task.counts
        raise DataError(
            f"There are no points on the land: {c.n_read:,} read, {c.n_dropped:,} dropped, {c.n_missing:,} rows "
            "without one.",
            found=0,
        )
    model, heard = job.model, list[GeobgpWarning]()
    if task.prior is not None:
        model = LGCP.__new__(LGCP)
        model.__dict__.update(job.model.__dict__)
        model.kernel = dataclasses.replace(job.model.kernel, prior=task.prior)  # type: ignore[type-var]
    with hearing(heard.append):
        found = model.fit(
            task.counts,
            hyper=job.hyper,
            title=task.title,
            start=task.start,
            measure=job.measure,
        )
    return Fitted(Packed.of(found), tuple(str(warning) for warning in heard))


def _fit_all(
    o: StrataOptions, mapped: Mapped, counts: StrataCounts, workers: Workers, progress: Progress
) -> Strata:
    everything = mapped.posterior
    model = LGCP(everything.basis, everything.kernel, likelihood=o.likelihood, scaling=everything.scaling)
    model.exposure, model.exposure_kind = everything.exposure, everything.exposure_kind
    model.given, model.given_effort = everything.given, everything.given_effort
    model.effort, model.effects = everything.effort, everything.effects
    if o.pool and len(counts) < FEWEST_POOLED:
        raise DataError(
            f"A prior is learned from {FEWEST_POOLED} strata at least; there are {len(counts)}.",
            option="pool",
            found=len(counts),
            remedy="Leave it out.",
        )
    shared = workers.share(Job(model, o.hyper, o.pool))
    prior: NormalPrior | None = None
    tasks = {name: Task(each, name) for name, each in counts.items()}
    fits, failures = _run(tasks, shared, workers, progress, "fits")
    rounds = POOL_ROUNDS if o.pool and len(fits) >= FEWEST_POOLED else 0
    if any(f.packed.fit.hyper_gradient is None for f in fits.values()):
        # Counts with more spread than Poisson ones: without gradients only a wide prior, the first, can be taken out.
        rounds = min(rounds, 1)
    for _ in range(rounds):
        before, prior = prior, _common_prior(model, fits, prior)
        if moved(before, prior) < POOL_SETTLED:
            prior = before
            break
        tasks = {
            name: dataclasses.replace(tasks[name], prior=prior, start=_start(f)) for name, f in fits.items()
        }
        again, failed = _run(tasks, shared, workers, progress, "pooled fits")
        fits, failures = fits | again, failures | failed
    fits = {name: fits[name] for name in counts if name in fits and name not in failures}
    if not fits:
        name, error = next(iter(failures.items()))
        raise DataError(
            f"None of {len(counts):,} strata could be mapped; the first, {name!r}: {in_words(error)}",
            option="by",
            found=0,
        )
    posteriors = {name: _posterior(f.packed, everything, prior).in_units(o.units) for name, f in fits.items()}
    rule = Protection.of(o.min_count, o.protect, o.min_people)
    if rule:
        posteriors, too_few = _protected(posteriors, rule)
        failures |= too_few
        everything = protected(everything, dataclasses.replace(rule, protect="hide"))
    if failures:
        told = "; ".join(f"{name}: {in_words(text)}" for name, text in list(failures.items())[:5])
        more = f"; and {len(failures) - 5:,} more" if len(failures) > 5 else ""
        warn(
            StrataWarning(
                f"{count(len(failures), 'stratum', 'strata')} of {len(counts):,} could not be mapped ({told}{more}).",
                option="by",
                found=list(failures),
                remedy="The others are as they would be without.",
            )
        )
    heard = {name: f.warnings for name, f in fits.items()}
    return Strata(posteriors, counts, everything, failures, heard, prior)


def _protected(
    posteriors: dict[str, Posterior], rule: Protection
) -> tuple[dict[str, Posterior], dict[str, str]]:
    """Return the strata with small numbers hidden, and why nothing of the others can be shown."""
    found, failures = dict[str, Posterior](), dict[str, str]()
    for name, posterior in posteriors.items():
        try:
            found[name] = protected(posterior, rule)
        except DataError as error:
            failures[name] = error.message
    if not found:
        name, text = next(iter(failures.items()))
        raise DataError(f"No stratum can be shown; the first, {name!r}: {text}", option="min_count")
    return found, failures


def _run(
    tasks: dict[str, Task], shared: Any, workers: Workers, progress: Progress, stage_name: str
) -> tuple[dict[str, Fitted], dict[str, str]]:
    """Return the fits by name, and why those failed that did."""
    names, fits, failures = list(tasks), dict[str, Fitted](), dict[str, str]()
    with progress.stage(stage_name) as stage:
        stage.tell(f"by {workers.where}")
        for done, (k, found) in enumerate(workers.run(fit_stratum, list(tasks.values()), shared), start=1):
            if isinstance(found, Failed):
                failures[names[k]] = getattr(found.error, "message", "") or (
                    f"{type(found.error).__name__}: {found.error}"
                )
            else:
                fits[names[k]] = found
            stage.step(done, len(names))
        lost = f", {len(failures):,} failed ({listed(failures, 3)})" if failures else ""
        stage.note(f"{count(len(fits), 'stratum', 'strata')} by {workers.where}{lost}")
    return fits, failures


def _common_prior(model: LGCP, fits: dict[str, Fitted], before: NormalPrior | None) -> NormalPrior:
    domain = model.basis.domain
    size = float(np.sqrt(domain.node_areas.sum()))
    prior = before or model.kernel.prior.scaled(size, domain.cell_size)
    some = [f.packed.fit for f in fits.values()]
    told = [
        Evidence.of_fit(
            f.hyper_mean[:2],
            f.hyper_cov[:2, :2],
            prior,
            None if f.hyper_gradient is None else f.hyper_gradient[:2],
        )
        for f in some
    ]
    return learn_prior(told, np.array([f.hyper_mean[:2] for f in some]))


def _start(found: Fitted) -> Start:
    """Return where a stratum is fitted again: at its θ, its posterior from nothing."""
    f = found.packed.fit
    n = len(found.packed.states[0]["fixed"])
    return Start(f.hyper_mean, f.hyper_cov, np.zeros(n), np.zeros(n))


def _posterior(packed: Packed, everything: Posterior, prior: NormalPrior | None) -> Posterior:
    """Return the posterior of a stratum, on the basis that all share."""
    shared = "free for each stratum"
    if prior is not None:
        shared = "partly pooled: a normal prior of log lengthscale and log sd, learned from all strata"
    return packed.on(everything, choices={**everything.choices, "hyperparameters": shared})
