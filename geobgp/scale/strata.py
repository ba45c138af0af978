"""map_strata: a map for each value of a column, with a common prior."""

from __future__ import annotations

import dataclasses
import io
import pickle
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from itertools import count as count_from
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from geobgp.auto.options import StrataOptions
from geobgp.auto.pipeline import Mapped, run
from geobgp.data.counts import StrataCounts, bin_strata
from geobgp.data.inputs import Inputs
from geobgp.errors import (
    DataError,
    GeobgpWarning,
    StrataWarning,
    captured_warnings,
    render_text,
    warn,
)
from geobgp.files import replacing
from geobgp.inference.fit import Start
from geobgp.land.regions import read_regions
from geobgp.model import LGCP
from geobgp.output.grids import hatched_cells, hatched_land
from geobgp.output.palette import Classes, ratio_classes, round_classes
from geobgp.parallel import Failed, Workers, open_workers
from geobgp.posterior import Posterior
from geobgp.prior.kernels import NormalPrior, Prior
from geobgp.privacy import Protection, hide_rows, legend, protected
from geobgp.progress import Progress, ProgressLike, as_progress
from geobgp.text import count, listed, number
from geobgp.web.maps import hatched_picture
from geobgp.web.page import data_url, palette_png, render

if TYPE_CHECKING:
    import geopandas as gpd

    from geobgp.data.counts import Counts
    from geobgp.data.inputs import Inputs
    from geobgp.inference.fit import Fit
    from geobgp.prior.basis import Basis


# -- Packing: posteriors without what they share, light enough to be sent between processes ------------------


def common_parts(basis: Basis, inputs: Inputs | Posterior) -> dict[str, Any]:
    """Return what all strata have in common by name: it is not sent with each of them."""
    names = ("exposure", "effort", "effects", "given", "given_effort")
    parts = {"basis": basis} | {name: getattr(inputs, name) for name in names}
    return {name: part for name, part in parts.items() if part is not None}


def pack(posterior: Posterior, common: Mapping[str, Any]) -> bytes:
    """Return a posterior as bytes, in which the very objects that are common stand by their names."""
    states = tuple(dataclasses.replace(state) for state in posterior.fit.states)  # type: ignore[type-var]
    light = dataclasses.replace(posterior, fit=dataclasses.replace(posterior.fit, states=states))
    names = {id(part): name for name, part in common.items()}
    out = io.BytesIO()
    pickler = pickle.Pickler(out, pickle.HIGHEST_PROTOCOL)
    pickler.persistent_id = lambda value: names.get(id(value))  # type: ignore[method-assign]
    pickler.dump((light, posterior.places))
    return out.getvalue()


def unpack(packed: bytes, common: Mapping[str, Any]) -> Posterior:
    """Return a posterior from what `pack` made of it, with what is common here."""
    unpickler = pickle.Unpickler(io.BytesIO(packed))
    unpickler.persistent_load = lambda name: common[name]  # type: ignore[method-assign]
    light, places = unpickler.load()
    return dataclasses.replace(light, places=places)


# -- Pooling: what many fits together teach of their hyperparameters, as a prior from which small ones borrow --
# θ_s, the log lengthscale and log sd of stratum s, is taken for a draw from N(m, diag(v)). The bound of a stratum's
# counts in θ is taken for a quadratic about the θ of its fit, with the gradient and curvature that were measured there,
# so that m and v follow by expectation and maximisation without new fits. With N(m, diag(v)) as their prior the strata
# are fitted again, and the quadratics taken anew about these fits, until m and v stay. Where strata do not differ, m is
# then the θ at which the bounds of all of them together are highest.


#: The least that strata are taken to differ by, a standard deviation of log θ.
NARROWEST = 0.03
#: How far from a fit its evidence may be thought to point, in log θ: a factor of 7.
REACH = 2.0
#: Steps of expectation and maximisation at most, and the change of the prior's mean (in sds) and log sd that ends them.
_STEPS, _SETTLED = 2000, 1e-4


@dataclass(frozen=True, eq=False)
class Evidence:
    """What the counts of a stratum say of θ by themselves: a quadratic log-likelihood -½ θᵀAθ + bᵀθ.

    Attributes
    ----------
    precision : (2, 2) array
        A; zero in directions of which the counts say nothing.
    natural : (2,) array
        b.
    """

    precision: np.ndarray
    natural: np.ndarray

    @classmethod
    def of_fit(
        cls, theta: np.ndarray, covariance: np.ndarray, prior: Prior, gradient: np.ndarray | None = None
    ) -> Evidence:
        """Return the evidence behind a fit under a prior: its curvature and slope without those of the prior.

        Parameters
        ----------
        theta : (2,) array
            The best θ under the prior, or where the search for it ended.
        covariance : (2, 2) array
            Inverse of minus the curvature there; zero where θ is fixed.
        prior : PCPrior or NormalPrior
        gradient : (2,) array, optional
            Of the bound and the log prior there; by default zero, as it is at the best θ. Under a narrow prior a θ that
            is best but for a thousandth of a nat still has a slope that is large beside that of the counts.

        Notes
        -----
        A bound that hardly bends, or bends upwards, has its slope only near θ: the evidence is bent so that it ends
        at a distance of `REACH`.
        """
        free = np.diag(covariance) > 0
        out = cls(np.zeros((2, 2)), np.zeros(2))
        if not free.any():
            return out
        _, of_prior, bend = prior.log_density(theta)
        slope = ((0.0 if gradient is None else gradient) - of_prior)[free]
        at = np.ix_(free, free)
        values, vectors = np.linalg.eigh(np.linalg.inv(covariance[at]) + np.diag(bend[free]))
        values = np.maximum(values, np.abs(vectors.T @ slope) / REACH)
        out.precision[at] = (vectors * values) @ vectors.T
        out.natural[free] = out.precision[at] @ theta[free] + slope
        return out


def learn_prior(evidence: Sequence[Evidence], start: np.ndarray) -> NormalPrior:
    """Return the normal prior of log θ under which the evidence of all strata is most probable.

    Parameters
    ----------
    evidence : sequence of Evidence
    start : (k, 2) array
        First guesses of each stratum's θ.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> theta = rng.normal([8.0, 0.0], [0.5, 0.2], (400, 2))
    >>> seen = theta + rng.normal(0.0, 0.3, theta.shape)
    >>> evidence = [Evidence(np.eye(2) / 0.09, each / 0.09) for each in seen]
    >>> prior = learn_prior(evidence, seen)
    >>> [round(v, 1) for v in (*prior.log_lengthscale, *prior.log_sd)]
    [8.0, 0.5, -0.0, 0.2]
    """
    a = np.array([one.precision for one in evidence])
    b = np.array([one.natural for one in evidence])
    mean = np.median(start, axis=0)
    variance = np.maximum(start.var(axis=0), 0.1)
    for _ in range(_STEPS):
        covariance = np.linalg.inv(a + np.diag(1.0 / variance))
        each = np.einsum("sij,sj->si", covariance, b + mean / variance)
        old_mean, old_variance = mean, variance
        mean = each.mean(axis=0)
        spread = np.einsum("sii->si", covariance) + (each - mean) ** 2
        variance = np.maximum(spread.mean(axis=0), NARROWEST**2)
        change = np.abs(mean - old_mean) / np.sqrt(variance) + np.abs(np.log(variance / old_variance))
        if change.max() < _SETTLED:
            break
    sd = np.sqrt(variance)
    return NormalPrior((float(mean[0]), float(sd[0])), (float(mean[1]), float(sd[1])))


def moved(before: NormalPrior | None, after: NormalPrior) -> float:
    """Return how far a prior has moved: the change of means in sds, or of log sds, whichever is most."""
    if before is None:
        return float("inf")
    pairs = zip((before.log_lengthscale, before.log_sd), (after.log_lengthscale, after.log_sd), strict=True)
    return max(max(abs(m1 - m0) / s1, abs(np.log(s1 / s0))) for (m0, s0), (m1, s1) in pairs)


def most_probable(evidence: Sequence[Evidence], prior: Prior, start: np.ndarray) -> np.ndarray:
    """Return the one θ that the evidence of several fits and a prior together find most probable.

    Examples
    --------
    >>> evidence = [Evidence(np.eye(2), np.array([2.0, 0.0])), Evidence(np.eye(2), np.array([4.0, 1.0]))]
    >>> most_probable(evidence, NormalPrior((0.0, 1e3), (0.0, 1e3)), np.zeros(2)).round(3).tolist()
    [3.0, 0.5]
    """
    a = np.sum([one.precision for one in evidence], axis=0)
    b = np.sum([one.natural for one in evidence], axis=0)
    theta = np.array(start, float)
    for _ in range(50):
        _, slope, bend = prior.log_density(theta)
        step = np.linalg.solve(a - np.diag(np.minimum(bend, -1e-6)), b - a @ theta + slope)
        theta = theta + step * min(1.0, 1.0 / max(float(np.abs(step).max()), 1e-300))
        if np.abs(step).max() < 1e-8:
            break
    return theta


# -- The maps of strata: a mapping of names to posteriors, their table, totals, rasters and page -------------


@dataclass(frozen=True, eq=False)
class Strata(Mapping[str, "Posterior"]):
    """The result of `map_strata`: a mapping of the strata's names to their posteriors, which share one basis.

    Attributes
    ----------
    counts : StrataCounts
        What became of the points, by name; ``counts.labels`` has the values of the columns.
    pooled : Posterior
        The fit of all points together, which chose cells, water and basis.
    failures : dict of str to str
        Why strata could not be mapped, by name.
    warnings : dict of str to tuple of str
        What each fit warned of, by name.
    prior : NormalPrior or None
        The prior that pooled strata share.
    """

    _posteriors: dict[str, Posterior] = field(repr=False)
    counts: StrataCounts = field(repr=False)
    pooled: Posterior
    failures: dict[str, str]
    warnings: dict[str, tuple[str, ...]] = field(repr=False)
    prior: NormalPrior | None = None

    def __getitem__(self, name: str) -> Posterior:
        return self._posteriors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._posteriors)

    def __len__(self) -> int:
        return len(self._posteriors)

    def __repr__(self) -> str:
        failed = f", {len(self.failures):,} failed ({listed(self.failures, 3)})" if self.failures else ""
        return (
            f"Strata({count(len(self), 'map')} by {listed(self.counts.by)}, {self.pooled.domain.n_nodes:,} "
            f"nodes, {self.pooled.basis.label}{', pooled' if self.prior is not None else ''}{failed})"
        )

    def table(self) -> pd.DataFrame:
        """Return a row for each stratum: its labels, points, hyperparameters, bound, and what is to be said of it."""
        scale, unit = self.pooled.domain.length_unit
        rows = {}
        for name, posterior in self.items():
            rows[name] = {
                **self.counts.labels.loc[name].to_dict(),
                "points": posterior.n_points,
                "dropped": self.counts[name].n_dropped,
                f"lengthscale_{unit}": posterior.lengthscale / scale,
                "sd": posterior.sd,
                "elbo": posterior.elbo,
                "converged": posterior.converged,
                "remarks": " ".join(self.warnings.get(name, ())),
            }
        for name, reason in self.failures.items():
            row = {**self.counts.labels.loc[name].to_dict(), "points": self.counts[name].n_used}
            rows[name] = row | {"dropped": self.counts[name].n_dropped, "remarks": reason}
        order = [name for name in self.counts if name in rows]
        table = pd.DataFrame([rows[name] for name in order], index=pd.Index(order, name="stratum"))
        named = hide_rows(table.rename(columns={"points": "observed"}), self.pooled, ["observed"])
        return named.rename(columns={"observed": "points"})

    def totals(
        self,
        regions: Any = None,
        *,
        client: Any = None,
        n_jobs: int | None = 1,
        step: Callable[[int, int], Any] | None = None,
        **how: Any,
    ) -> gpd.GeoDataFrame:
        """Return the expected number of events of each stratum in regions, with intervals.

        Parameters
        ----------
        regions : GeoDataFrame, GeoSeries, geometry, list of geometries or path, optional
            As for `Posterior.totals`; by default the whole land.
        client, n_jobs
            Who does it, as for `map_strata`; this process by default.
        step : callable(done, all), optional
            Told of the progress.
        **how
            As for `Posterior.totals`.

        Returns
        -------
        GeoDataFrame
            A row for each stratum and region: ``stratum``, the columns that made it, and those of `Posterior.totals`.
        """
        if how.get("points") is not None:
            raise DataError(
                "Points do not say of which stratum they are.",
                option="points",
                remedy="Ask one stratum at a time: strata[name].totals(regions, points=...).",
            )
        frame = read_regions(regions, self.pooled.domain)
        names = list(self)
        with open_workers(client, n_jobs) as workers:
            shared = workers.share(replace(self.pooled, tried=())), workers.share((frame, how))
            common = common_parts(self.pooled.basis, self.pooled)
            items = [pack(self[name], common) for name in names]
            tables = workers.gather(_totals, items, *shared, step=step)
        for name, table in zip(names, tables, strict=True):
            values = {"stratum": name, **self.counts.labels.loc[name].to_dict()}
            for place, (column, value) in enumerate(values.items()):
                table.insert(place, column if column not in table else f"stratum_{column}", value)
        out: gpd.GeoDataFrame = pd.concat(tables, ignore_index=True)
        return out

    def to_totals(self, path: str | Path, regions: Any = None, **how: Any) -> Path:
        """Write `totals` to a GeoPackage (``.gpkg``) or, without geometries, to a CSV file."""
        return self.write_totals(self.totals(regions, **how), path)

    @staticmethod
    def write_totals(table: gpd.GeoDataFrame, path: str | Path) -> Path:
        """Write a table of totals, as `to_totals` does."""
        path = Path(path)
        if path.suffix.lower() not in (".gpkg", ".csv"):
            raise DataError(
                f"Totals are written as .gpkg or .csv; found {path.name!r}.", option="path", found=str(path)
            )
        with replacing(path) as temporary:
            if path.suffix.lower() == ".gpkg":
                table.to_file(temporary, layer="totals", driver="GPKG")
            else:
                pd.DataFrame(table.drop(columns=table.geometry.name)).to_csv(temporary, index=False)
        return path

    def file_names(self) -> dict[str, str]:
        """Return a name for the files of each stratum that is safe everywhere, and no other's."""
        return safe_names(list(self))

    def to_raster(self, folder: str | Path, step: Callable[[int, int], Any] | None = None) -> dict[str, Path]:
        """Write a GeoTIFF of each stratum into a folder, all statistics as its bands; return where, by name."""
        written: dict[str, Path] = {}
        for name, path in self.raster_paths(folder).items():
            written[name] = self[name].to_raster(path)[0]
            if step is not None:
                step(len(written), len(self))
        return written

    def raster_paths(self, folder: str | Path) -> dict[str, Path]:
        """Return where the GeoTIFF of each stratum is written, by name."""
        return {name: Path(folder) / f"map-{stem}.tif" for name, stem in self.file_names().items()}

    def to_index(self, path: str | Path, *, title: str = "") -> Path:
        """Write a page of small maps of all strata under one legend; it opens in any browser, without network."""
        return write_page(self, path, title=title)


def _totals(item: bytes, pooled: Posterior, asked: tuple[Any, dict[str, Any]]) -> gpd.GeoDataFrame:
    """Return the totals of one stratum, wherever this is."""
    frame, how = asked
    return unpack(item, common_parts(pooled.basis, pooled)).totals(frame, **how)


def safe_names(names: list[str]) -> dict[str, str]:
    """Return file names without an ending, of letters, digits and dashes, all different in any case.

    Examples
    --------
    >>> safe_names(["Lyme disease", "../etc", "lyme/disease", "ÄÖ", ""])
    {'Lyme disease': 'lyme-disease', '../etc': 'etc', 'lyme/disease': 'lyme-disease-2', 'ÄÖ': 'ao', '': 'stratum'}
    """
    stems: dict[str, str] = {}
    for name in names:
        plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
        stem = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:60] or "stratum"
        numbered = chain([stem], (f"{stem}-{k}" for k in count_from(2)))
        stems[name] = next(one for one in numbered if one not in stems.values())
    return stems


# -- Strata: a map for each value of a column, all on one basis, by a Dask cluster or the processes of this machine --


#: Strata from which a common prior can be learned; how often it is learned anew; and how far it may move at the end, in
#: its own standard deviations.
FEWEST_POOLED, POOL_ROUNDS, POOL_SETTLED = 3, 4, 0.1


def run_strata(options: StrataOptions, progress: ProgressLike = False) -> Strata:
    """Do what `map_strata` does."""
    o, progress = options, as_progress(progress)
    o.check_files()
    _check_readable(o.points)
    with open_workers(o.client, o.n_jobs) as workers:
        mapped = run(o.pooled(), progress)
        names = (
            "weights",
            "on_water",
            "chunksize",
            "longitude",
            "latitude",
            "easting",
            "northing",
            "layer",
            "client",
        )
        reading = {name: getattr(o, name) for name in names}
        # Bare coordinates are in the CRS that the pooled fit took them to be in.
        crs = getattr(mapped.counts, "points_crs", None) if o.points_crs is None else o.points_crs
        counts = bin_strata(
            o.points, mapped.domain, o.by, crs=crs, max_snap=mapped.reach, progress=progress, **reading
        )
        return _fit_all(o, mapped, counts, workers, progress)


def _check_readable(points: Any) -> None:
    """Refuse points that can be read only once: they are read for the pooled fit, and by stratum."""
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
class StratumJob:
    """What all strata share: the model, and how it is fitted."""

    model: LGCP
    hyper: Any
    measure: bool


@dataclass(frozen=True, eq=False)
class FittedStratum:
    """A stratum's posterior, packed, what its fit learned of the hyperparameters, and what it warned of."""

    packed: bytes
    learned: Fit
    warnings: tuple[str, ...]


def fit_stratum(task: Task, job: StratumJob) -> FittedStratum:
    """Fit one stratum, wherever this is."""
    if task.counts.total_weight == 0:
        c = task.counts
        raise DataError(
            f"There are no points on the land: {c.n_read:,} read, {c.n_dropped:,} dropped, {c.n_missing:,} rows "
            "without one.",
            found=0,
        )
    model, captured = job.model, list[GeobgpWarning]()
    if task.prior is not None:
        model = model.with_kernel(dataclasses.replace(model.kernel, prior=task.prior))  # type: ignore[type-var]
    with captured_warnings(captured.append):
        posterior = model.fit(
            task.counts,
            hyper=job.hyper,
            title=task.title,
            start=task.start,
            measure=job.measure,
        )
    learned = dataclasses.replace(posterior.fit, states=())
    return FittedStratum(
        pack(posterior, common_parts(job.model.basis, job.model.inputs)),
        learned,
        tuple(str(warning) for warning in captured),
    )


def _fit_all(
    o: StrataOptions, mapped: Mapped, counts: StrataCounts, workers: Workers, progress: Progress
) -> Strata:
    pooled = mapped.posterior
    model = LGCP.from_inputs(
        pooled.basis,
        Inputs.of(pooled),
        pooled.kernel,
        likelihood=o.likelihood,
        scaling=pooled.scaling,
    )  # fmt: skip
    if o.pool and len(counts) < FEWEST_POOLED:
        raise DataError(
            f"A prior is learned from {FEWEST_POOLED} strata at least; there are {len(counts)}.",
            option="pool",
            found=len(counts),
            remedy="Leave it out.",
        )
    shared = workers.share(StratumJob(model, o.hyper, o.pool))
    prior: NormalPrior | None = None
    tasks = {name: Task(each, name) for name, each in counts.items()}
    fits, failures = _run(tasks, shared, workers, progress, "fits")
    rounds = POOL_ROUNDS if o.pool and len(fits) >= FEWEST_POOLED else 0
    if any(f.learned.hyper_gradient is None for f in fits.values()):
        # Counts with more spread than Poisson ones: without gradients only a wide prior, the first, can be taken out.
        rounds = min(rounds, 1)
    n = pooled.domain.n_nodes
    for _ in range(rounds):
        before, prior = prior, _common_prior(model, fits, prior)
        if moved(before, prior) < POOL_SETTLED:
            prior = before
            break
        tasks = {
            name: dataclasses.replace(tasks[name], prior=prior, start=_start(f.learned, n))
            for name, f in fits.items()
        }
        again, failed = _run(tasks, shared, workers, progress, "pooled fits")
        fits, failures = fits | again, failures | failed
    fits = {name: fits[name] for name in counts if name in fits and name not in failures}
    if not fits:
        name, error = next(iter(failures.items()))
        raise DataError(
            f"None of {len(counts):,} strata could be mapped; the first, {name!r}: {render_text(error)}",
            option="by",
            found=0,
        )
    posteriors = {name: _posterior(f.packed, pooled, prior).in_units(o.units) for name, f in fits.items()}
    rule = Protection.of(o.min_count, o.protect, o.min_people)
    if rule:
        posteriors, too_few = _protected(posteriors, rule)
        failures |= too_few
        pooled = protected(pooled, dataclasses.replace(rule, protect="hide"))
    if failures:
        why = "; ".join(f"{name}: {render_text(text)}" for name, text in list(failures.items())[:5])
        more = f"; and {len(failures) - 5:,} more" if len(failures) > 5 else ""
        warn(
            StrataWarning(
                f"{count(len(failures), 'stratum', 'strata')} of {len(counts):,} could not be mapped ({why}{more}).",
                option="by",
                found=list(failures),
                remedy="The others are as they would be without.",
            )
        )
    captured = {name: f.warnings for name, f in fits.items()}
    return Strata(posteriors, counts, pooled, failures, captured, prior)


def _protected(
    posteriors: dict[str, Posterior], rule: Protection
) -> tuple[dict[str, Posterior], dict[str, str]]:
    """Return the strata with small numbers hidden, and why nothing of the others can be shown."""
    shown, failures = dict[str, Posterior](), dict[str, str]()
    for name, posterior in posteriors.items():
        try:
            shown[name] = protected(posterior, rule)
        except DataError as error:
            failures[name] = error.message
    if not shown:
        name, text = next(iter(failures.items()))
        raise DataError(f"No stratum can be shown; the first, {name!r}: {text}", option="min_count")
    return shown, failures


def _run(
    tasks: dict[str, Task], shared: Any, workers: Workers, progress: Progress, stage_name: str
) -> tuple[dict[str, FittedStratum], dict[str, str]]:
    """Return the fits by name, and why those failed that did."""
    names, fits, failures = list(tasks), dict[str, FittedStratum](), dict[str, str]()
    with progress.stage(stage_name) as stage:
        stage.tell(f"by {workers.where}")
        for done, (k, result) in enumerate(workers.run(fit_stratum, list(tasks.values()), shared), start=1):
            if isinstance(result, Failed):
                error = result.error
                failures[names[k]] = getattr(error, "message", "") or f"{type(error).__name__}: {error}"
            else:
                fits[names[k]] = result
            stage.step(done, len(names))
        lost = f", {len(failures):,} failed ({listed(failures, 3)})" if failures else ""
        stage.note(f"{count(len(fits), 'stratum', 'strata')} by {workers.where}{lost}")
    return fits, failures


def _common_prior(model: LGCP, fits: dict[str, FittedStratum], before: NormalPrior | None) -> NormalPrior:
    domain = model.basis.domain
    size = float(np.sqrt(domain.node_areas.sum()))
    prior = before or model.kernel.prior.scaled(size, domain.cell_size)
    learned = [f.learned for f in fits.values()]
    evidence = [
        Evidence.of_fit(
            f.hyper_mean[:2],
            f.hyper_cov[:2, :2],
            prior,
            None if f.hyper_gradient is None else f.hyper_gradient[:2],
        )
        for f in learned
    ]
    return learn_prior(evidence, np.array([f.hyper_mean[:2] for f in learned]))


def _start(fit: Fit, n_nodes: int) -> Start:
    """Return where a stratum is fitted again: at its θ, its posterior from nothing."""
    return Start(fit.hyper_mean, fit.hyper_cov, np.zeros(n_nodes), np.zeros(n_nodes))


def _posterior(packed: bytes, pooled: Posterior, prior: NormalPrior | None) -> Posterior:
    """Return the posterior of a stratum, on the basis that all share."""
    shared = "free for each stratum"
    if prior is not None:
        shared = "partly pooled: a normal prior of log lengthscale and log sd, learned from all strata"
    return dataclasses.replace(
        unpack(packed, common_parts(pooled.basis, pooled)),
        choices={**pooled.choices, "hyperparameters": shared},
        interval=pooled.interval,
        style=pooled.style,
    )


# -- The page of strata: small maps side by side under one legend, with their numbers ------------------------


#: Pixels of a small map along its longer side, at most.
SIDE = 320


def write_page(strata: Strata, path: str | Path, *, title: str = "") -> Path:
    """Write the page; see `Strata.to_index`."""
    domain = strata.pooled.domain
    first = next(iter(strata.values()))
    drawn = "q50" if first.drawn == "median" else "mean"
    fields = {name: posterior.node_intensity((0.5,))[drawn].to_numpy() for name, posterior in strata.items()}
    together = np.concatenate(list(fields.values()))
    risk = first.quantity == "relative risk"
    classes = ratio_classes(first.units) if risk else round_classes(together, units=first.units)
    empty, hatched = hatched_land(first)
    cells = hatched_cells(domain, empty) if hatched else None
    scale, unit = domain.length_unit
    maps = []
    for name, posterior in strata.items():
        maps.append({
            "name": name,
            "picture": picture(domain.to_grid(fields[name]), classes, cells),
            "points": f"{count(posterior.n_points, 'point')}",
            "about": " ".join(filter(None, (
                f"lengthscale {number(posterior.lengthscale / scale)} {unit}, sd {number(posterior.sd)}",
                f"({legend(posterior)})" if posterior.protection else "",
            ))),
            "remarks": [
                *(() if posterior.converged else ("not converged",)), *_doubt(posterior),
                *strata.warnings.get(name, ()),
            ],
        })  # fmt: skip
    by, nodes = ", ".join(strata.counts.by), count(domain.n_nodes, "node")
    page = render(
        "scale/strata.html.j2",
        title=title or f"Strata by {by}",
        about=f"{count(len(strata), 'map')} by {by}, on {nodes} with {strata.pooled.basis.label}",
        pooled=_in_common(strata),
        quantity=first.quantity,
        drawn=first.drawn,
        hatched=hatched,
        units=first.units,
        legend=list(zip(classes.hex, classes.labels(), strict=True)),
        maps=maps,
        failures=strata.failures,
        source=strata.pooled.provenance["source"],
    )
    with replacing(path, parents=True) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return Path(path)


def _doubt(posterior: Posterior) -> tuple[str, ...]:
    """Return that a stratum's map may not vary at all."""
    variation = posterior.summary().get("variation")
    return () if variation is None or variation["verdict"] == "varies" else (variation["in_short"],)


def _in_common(strata: Strata) -> str:
    """Return what the strata share of their hyperparameters, in words."""
    if strata.prior is None:
        return "Lengthscale and sd are learned for each stratum by itself."
    scale, unit = strata.pooled.domain.length_unit
    (length, by_length), (sd, by_sd) = strata.prior.log_lengthscale, strata.prior.log_sd
    return (
        f"Lengthscale and sd are partly pooled: about {number(float(np.exp(length)) / scale)} {unit} (two thirds of "
        f"the strata within a factor of {number(float(np.exp(by_length)), 3)}) and {number(float(np.exp(sd)))} (within "
        f"a factor of {number(float(np.exp(by_sd)), 3)}), learned from all of them."
    )


def picture(values: np.ndarray, classes: Classes, hatched: np.ndarray | None = None) -> str:
    """Return values on the grid as a small picture, a data URI: the colours of their classes, clear where NaN.

    `hatched` are cells that have lines across them.

    Examples
    --------
    >>> classes = round_classes(np.arange(10.0))
    >>> picture(np.arange(12.0).reshape(3, 4), classes)[:22]
    'data:image/png;base64,'
    """
    step = max(1, -(-max(values.shape) // SIDE))
    some = np.s_[step // 2 :: step, step // 2 :: step]
    lines = None if hatched is None else hatched[some]
    return data_url(palette_png(*hatched_picture(classes.index(values[some]), classes, lines)), "image/png")
