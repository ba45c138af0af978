"""map_tiles: land too large for one fit, tile by tile."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import shapely

from geobgp.auto.gridded import read_land
from geobgp.auto.options import Options, TilesOptions
from geobgp.auto.pipeline import run
from geobgp.auto.search import round_size
from geobgp.data.counts import Counts, bin_points
from geobgp.errors import DataError, GeobgpError, SizeError, captured_warnings, render_text
from geobgp.files import check_unread, held_alone, replacing
from geobgp.inference.mixture import quantile_name, quantiles_of
from geobgp.land.domain import Domain
from geobgp.land.water import SIDES
from geobgp.model import LGCP
from geobgp.parallel import Failed, Workers, open_workers
from geobgp.prior.full_rank import FullRank
from geobgp.prior.kernels import Matern
from geobgp.progress import Progress, ProgressLike, as_progress
from geobgp.scale.mosaic import EXCEEDANCE, Mosaic, read_tile, write_tile
from geobgp.scale.strata import Evidence, most_probable
from geobgp.scale.tile import (
    FORMAT,
    Checked,
    SharedParameters,
    Task,
    TileJob,
    TileSources,
    check_tile,
    coords_of,
    estimate_hyperparameters,
    fit_tile,
)
from geobgp.scale.tiling import Frame, Tile, cut_tiles
from geobgp.summary import coefficient_table, plain
from geobgp.text import count, number

if TYPE_CHECKING:
    import xarray as xr

    from geobgp.land.polygons import Land


#: Width of halos in lengthscales; and where land may be empty, through which information comes from farther away.
HALO, HALO_WITH_VOIDS = 3.0, 4.0


# -- The plan of tiles: land, points and inputs read and checked, and what all tiles share learned or read again --


#: Nodes of the pooled fit, at most, from which tiles take intercept, effects of covariates and water.
COARSE_NODES = 16_000
#: Nodes of the quick fit before it, which tells whether tiles are wide enough.
QUICK_NODES = 1500
#: Tiles that learn hyperparameters by themselves, and the events that each has at least.
SAMPLED, FEWEST_EVENTS = 3, 50
#: Smoothness of the kernel.
NU = 1.0
PLAN = "plan.json"


@dataclass(frozen=True, eq=False)
class Plan:
    """What is to be fitted.

    Attributes
    ----------
    job : TileJob
        What all tiles share.
    tiles : list of Tile
    tasks : list of Task
        What each tile is fitted to.
    """

    job: TileJob
    tiles: list[Tile]
    tasks: list[Task]


def halo_of(o: TilesOptions) -> float:
    """Return the width of halos in lengthscales: more where exposure or effort may leave land without information."""
    if o.halo is not None:
        return o.halo
    return HALO if o.exposure is None and o.effort is None else HALO_WITH_VOIDS


class Planner:
    """Reads what was given, and plans.

    Parameters
    ----------
    o : TilesOptions
    folder : path
        In which the plan is kept.
    workers : Workers
    progress : Progress
    """

    def __init__(self, o: TilesOptions, folder: Path, workers: Workers, progress: Progress) -> None:
        self.o, self.folder, self.workers, self.progress = o, folder, workers, progress
        self.h = float(o.cell_size or 0.0)
        with progress.stage("land") as stage:
            self.land: Land = read_land(o.land, o.water, o.barriers, crs=o.crs, land_crs=o.land_crs)
            self.frame = Frame.around(self.land.geometry, self.h)
            self.cells = float(shapely.area(self.land.geometry)) / self.h**2
            rows, cols = self.frame.box.shape
            stage.note(f"about {number(self.cells, 3)} cells of land in {rows:,} x {cols:,}")
        self.reach = 2.0 * self.h if o.max_snap is None else float(o.max_snap)
        area = self.cells * self.h**2
        self.coarse = max(self.h, round_size(math.sqrt(area / COARSE_NODES)))
        self.domain = Domain.from_land(self.land, self.coarse, o.min_coverage)
        self.sources = TileSources.read(o, self.domain)
        self.counts = self._counts(self.domain)
        assert self.counts.coordinates is not None
        self.coords = self.counts.coordinates

    def _counts(self, domain: Domain) -> Counts:
        o = self.o
        names = {name: getattr(o, name) for name in ("longitude", "latitude", "easting", "northing", "layer")}
        counts = bin_points(
            o.points, domain, max_snap=self.reach, crs=o.points_crs, keep_coordinates=True, client=o.client,
            progress=self.progress, **names,
        )  # fmt: skip
        if counts.n_used == 0:
            raise DataError(
                f"points: none is left to map; {counts.n_read:,} were read, {counts.n_dropped:,} lie off the land.",
                option="points",
                found=0,
                remedy="Check their CRS.",
            )
        return counts

    def plan(self) -> Plan:
        """Return what is to be fitted; what all tiles share is learned, or read where it was before."""
        o, single = self.o, self.cells <= self.o.tile_nodes
        crs = None if self.land.crs is None else self.land.crs.to_wkt()
        key = self._key()
        stored = read_json(self.folder / PLAN)
        if stored.get("key") == key:
            parameters = None if stored["parameters"] is None else SharedParameters.of(**stored["parameters"])
            return self._planned(self._job(crs, stored["permeability"], parameters))
        self._check_inputs(self._job(crs, 0.0, None))
        rho: Any = o.permeability
        parameters = None
        if not single:
            self._check_width()
        if not single or rho == "auto":
            pooled = self._pooled_fit()
            rho = pooled["permeability"]
        if not single:
            job = replace(self._job(crs, rho, None), slopes=tuple(pooled["slopes"]))
            parameters = self._shared_parameters(rho, self._sampled(job, np.array(pooled["theta"])))
        record = {
            "key": key,
            "permeability": float(rho),
            "parameters": None if parameters is None else asdict(parameters),
        }
        plan = self._planned(self._job(crs, float(rho), parameters))
        write_json(self.folder / PLAN, record)
        return plan

    def _planned(self, job: TileJob) -> Plan:
        tiles = self._cut(0.0 if job.parameters is None else job.parameters.lengthscale, job.permeability)
        return Plan(job, tiles, self._tasks(tiles))

    def _tasks(self, tiles: list[Tile]) -> list[Task]:
        points = coords_of(tiles, self.frame, self.coords)
        return [(t, p, self.sources.shapes(t, self.frame)) for t, p in zip(tiles, points, strict=True)]

    def _key(self, *, pooled: bool = False) -> str:
        """Return a hash of all that the plan depends on; or of what the pooled fit does, which knows of no tiles."""
        o, digest = self.o, hashlib.blake2b(digest_size=12)
        crs = None if self.land.crs is None else self.land.crs.to_wkt()
        plain_facts = (
            FORMAT, crs, o.permeability, o.min_coverage, self.reach, self.coarse, self.sources.inputs.digest,
            *(() if pooled else (self.h, o.tile_nodes, halo_of(o))),
        )  # fmt: skip
        digest.update(repr(plain_facts).encode())
        for shape in (self.land.geometry, self.land.barriers):
            digest.update(b"" if shape is None else shapely.to_wkb(shape))
        digest.update(self.coords.tobytes())
        return digest.hexdigest()

    def _job(self, crs: str | None, rho: float, parameters: SharedParameters | None) -> TileJob:
        o = self.o
        return TileJob(
            self.frame,
            crs,
            NU,
            rho,
            o.min_coverage,
            self.reach,
            quantiles_of(o.interval),
            parameters,
            self.sources.inputs,
            thresholds={f"{EXCEEDANCE}{t:g}": t / self.sources.units.factor for t in sorted(set(o.thresholds))},
        )

    def _cut(self, lengthscale: float, rho: float) -> list[Tile]:
        step = SIDES[-1] if rho > 0 else 1
        return cut_tiles(self.land, self.frame, self.o.tile_nodes, halo_of(self.o) * lengthscale, step)

    def _check_inputs(self, job: TileJob) -> None:
        """Refuse inputs that do not fit the land or the points, on cells as fine as they will be."""
        if not job.inputs.digest:
            return
        # As far beyond a core as its points can have been moved.
        tasks = self._tasks(cut_tiles(self.land, self.frame, self.o.tile_nodes, 2.0 * self.h))
        with self.progress.stage("inputs") as stage:
            checked: Checked = self.workers.total(
                check_tile, tasks, Checked.plus, self.workers.share(job), step=stage.step
            )
        checked.judge(job.inputs.fill_missing)

    # -- what all tiles share

    def _check_width(self) -> None:
        """Refuse tiles that will be far too narrow for their halos, by a quick fit before the pooled one.

        Exposure and covariates are read for the pooled fit alone, so that there is none with these.
        """
        size = round_size(math.sqrt(self.cells * self.h**2 / QUICK_NODES))
        if self.sources.inputs.digest or size < 2.0 * self.coarse or self._pooled_path.exists():
            return
        with self.progress.stage("width of tiles") as stage, captured_warnings(lambda warning: None):
            rho = 0.0 if self.o.permeability == "auto" else self.o.permeability
            lengthscale = run(self._pooled(size, rho), stage).posterior.lengthscale
            stage.note(f"lengthscale about {number(lengthscale, 2)}")
            try:
                self._cut(0.5 * lengthscale, 0.0)
            except SizeError:
                self._cut(lengthscale, 0.0)  # which says what is enough
                raise

    def _pooled(self, cell_size: float, permeability: Any, **model: Any) -> Options:
        o = self.o
        return Options(
            points=self.coords, land=o.land, water=o.water, barriers=o.barriers, crs=o.crs, land_crs=o.land_crs,
            min_coverage=o.min_coverage, cell_size=cell_size, m="full", permeability=permeability,
            max_snap=self.reach, kernel=Matern(NU), **model,
        )  # fmt: skip

    @property
    def _pooled_path(self) -> Path:
        """Where the pooled fit is kept."""
        return self.folder / "tiles" / f"pooled-{self._key(pooled=True)}.json"

    def _pooled_fit(self) -> dict[str, Any]:
        """Return permeability, hyperparameters and slopes of the fit of all points on all land.

        Its cells are so wide that it is one fit. It is kept beside the tiles, whatever tiles there will be.
        """
        path = self._pooled_path
        with self.progress.stage("pooled fit") as stage:
            if found := read_json(path):
                stage.note("as fitted before")
                return found
            posterior = run(self._pooled(self.coarse, self.o.permeability, **self.sources.model), stage).posterior
            found = {
                "permeability": float(posterior.basis.permeability),
                "theta": posterior.fit.hyper_mean.tolist(),
                "slopes": posterior.fit.states[0].coefficients()[0][1:].tolist(),
            }
            write_json(path, found)
            stage.note(f"{posterior.domain.n_nodes:,} nodes of {number(self.coarse)}")
        return found

    def _shared_parameters(self, rho: float, theta: np.ndarray) -> SharedParameters:
        """Return intercept and effects of all land, with the lengthscale and sd of all tiles."""
        kernel = Matern(NU, float(np.exp(theta[0])), float(np.exp(theta[1])))
        with self.progress.stage("intercept"):
            basis = FullRank(self.domain, permeability=rho)
            fit = LGCP(basis, kernel, **self.sources.model).fit(np.asarray(self.counts, float)).fit
            mean, covariance = fit.states[0].coefficients()
        return SharedParameters.of(kernel.lengthscale or 0.0, kernel.sd or 0.0, mean.tolist(), covariance.tolist())

    def _sampled(self, job: TileJob, theta: np.ndarray) -> np.ndarray:
        """Return the hyperparameters that some tiles together find most probable, on cells as fine as they will be."""
        tasks = self._tasks(self._cut(float(np.exp(theta[0])), job.permeability))
        order = sorted(
            (k for k in range(len(tasks)) if len(tasks[k][1]) >= FEWEST_EVENTS), key=lambda k: len(tasks[k][1])
        )
        if not order:
            return theta
        picked = sorted({order[int(q * (len(order) - 1))] for q in np.linspace(0.5, 1.0, SAMPLED)})
        evidence: list[Evidence] = []
        shared = self.workers.share(job)
        size = math.sqrt(float(shapely.area(self.land.geometry)))
        with self.progress.stage("hyperparameters") as stage:
            missing: list[tuple[Task, Path]] = []
            for task in (tasks[k] for k in picked):
                path = self.folder / "tiles" / f"theta-{job.key(task[0], task[1])}.json"
                learned = read_json(path)
                if learned:
                    at, covariance = np.array(learned["theta"]), np.array(learned["covariance"])
                    evidence.append(self._evidence(at, covariance, task[0]))
                else:
                    missing.append((task, path))
            todo = [task for task, _ in missing]
            for done, (k, result) in enumerate(self.workers.run(estimate_hyperparameters, todo, shared), start=1):
                if isinstance(result, Failed):
                    raise result.error
                write_json(missing[k][1], {"theta": result[0].tolist(), "covariance": result[1].tolist()})
                evidence.append(self._evidence(result[0], result[1], todo[k][0]))
                stage.step(done, len(todo))
            best = most_probable(evidence, Matern(NU).prior.scaled(size, self.h), theta[:2])
            stage.note(f"lengthscale {number(float(np.exp(best[0])))}, sd {number(float(np.exp(best[1])))}")
        return best

    def _evidence(self, theta: np.ndarray, covariance: np.ndarray, tile: Tile) -> Evidence:
        size = math.sqrt(float(shapely.area(tile.geometry)))
        return Evidence.of_fit(theta[:2], covariance[:2, :2], Matern(NU).prior.scaled(size, self.h))


def read_json(path: Path) -> dict[str, Any]:
    """Return what a file holds; nothing where there is none, or it is damaged."""
    try:
        record = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def write_json(path: Path, record: Any) -> None:
    """Write plain data, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n", "utf-8")


# -- Tiles: land too large for one fit, mapped tile by tile into one mosaic; cut off, it goes on where it was --


RECORD = "summary.json"


@dataclass(frozen=True, eq=False)
class Tiles:
    """The result of `map_tiles`.

    Attributes
    ----------
    folder : path
    raster, zarr : path
        The mosaic, as a Cloud-Optimised GeoTIFF with a band for each statistic, and as a Zarr group.
    table : DataFrame
        A row for each tile: nodes, events, expected events (of those that get reported, where an effort was given) and
        exposure of its core, seconds, megabytes.
    lengthscale, sd : float
    permeability : float
    coefficients : DataFrame
        Intercept and effects of covariates in their own units, with intervals; as `Posterior.coefficients`.
    units : str
        What the mosaic is in, as in "events per person".
    n_fitted : int
        Tiles that this run has fitted; the others were there.
    counts : Counts
        What became of the points.
    """

    folder: Path
    raster: Path
    zarr: Path
    table: pd.DataFrame = field(repr=False)
    lengthscale: float
    sd: float
    permeability: float
    coefficients: pd.DataFrame = field(repr=False)
    units: str
    n_fitted: int
    counts: Counts = field(repr=False)

    def open(self) -> xr.Dataset:
        """Return the mosaic as a dataset that is read where it is looked at."""
        import xarray as xr

        return xr.open_zarr(self.zarr)


def run_tiles(options: TilesOptions, progress: ProgressLike = False) -> Tiles:
    """Do what `map_tiles` does."""
    o, progress = options, as_progress(progress)
    o.check_files()
    folder = _folder(o.output)
    with held_alone(folder / "tiles"), open_workers(o.client, o.n_jobs) as workers:
        planner = Planner(o, folder, workers, progress)
        return _fit(planner, planner.plan())


def _folder(output: Any) -> Path:
    """Return the folder to write, made if it is missing; refuse one with other things in it."""
    folder = Path(output)
    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder} is a file, not a folder.", option="output", found=str(folder))
    there = sorted(p.name for p in folder.iterdir()) if folder.is_dir() else []
    if there and "tiles" not in there:
        raise DataError(
            f"The folder {folder} is not empty ({', '.join(there[:4])}), and holds no tiles to go on with.",
            option="output",
            found=there,
            remedy="Choose another folder.",
        )
    check_unread(*(folder / name for name in ("mosaic.tif", "mosaic.zarr", RECORD)))
    (folder / "tiles").mkdir(parents=True, exist_ok=True)
    return folder


def _fit(planner: Planner, plan: Plan) -> Tiles:
    """Fit the tiles that are missing, and put all together."""
    o, folder, progress, workers = planner.o, planner.folder, planner.progress, planner.workers
    job, tiles, tasks, units = plan.job, plan.tiles, plan.tasks, planner.sources.units
    names = ["mean", "sd", *map(quantile_name, job.quantiles)]
    if job.inputs.exposed:  # the band that is shown comes first: of a rate the median
        names = ["q50", *(name for name in names if name != "q50")]
    names += job.thresholds
    mosaic = Mosaic(folder, planner.frame, tiles, names, planner.land.crs, units, o.title)
    paths = [folder / "tiles" / f"tile-{tile.number:05d}-{job.key(tile, coords)}.geobgp" for tile, coords, _ in tasks]
    facts: dict[int, dict[str, Any]] = {}
    failures: dict[int, str] = {}
    with progress.stage("tiles") as stage:
        stage.tell(f"by {workers.where}")
        missing = []
        for k, path in enumerate(paths):
            stored = read_tile(path)
            if stored is None:
                missing.append(k)
            else:
                facts[k] = stored[0]
                mosaic.add(tiles[k], path)
        for i, fitted in workers.run(fit_tile, [tasks[k] for k in missing], workers.share(job)):
            k = missing[i]
            if isinstance(fitted, Failed):
                failures[k] = str(getattr(fitted.error, "message", "") or fitted.error)
                continue
            write_tile(paths[k], fitted)
            facts[k] = fitted.facts
            mosaic.add(tiles[k], paths[k])
            stage.step(len(facts), len(tiles))
        stage.note(f"{count(len(missing), 'tile')} of {len(tiles):,} fitted by {workers.where}")
    if failures:
        first = min(failures)
        raise GeobgpError(
            f"{len(failures):,} of {count(len(tiles), 'tile')} could not be fitted, the first number {first}: "
            f"{render_text(failures[first])}",
            found=sorted(failures),
            remedy="The others are kept: run it again to fit only these.",
        )
    with progress.stage("mosaic"):
        raster, zarr = mosaic.finish()
    rows = [facts[k] for k in range(len(tiles))]
    coefficients = _coefficients(job, rows)
    table = pd.DataFrame(rows, index=pd.RangeIndex(len(tiles), name="tile"))
    parameters = job.parameters
    out = Tiles(
        folder=folder,
        raster=raster,
        zarr=zarr,
        table=table,
        lengthscale=float(table["lengthscale"].iloc[0]) if parameters is None else parameters.lengthscale,
        sd=float(table["sd"].iloc[0]) if parameters is None else parameters.sd,
        permeability=job.permeability,
        coefficients=coefficients,
        units=units.words,
        n_fitted=len(missing),
        counts=planner.counts,
    )
    write_json(folder / RECORD, plain(_record(out, o, progress)))
    return out


def _coefficients(job: TileJob, facts: list[dict[str, Any]]) -> pd.DataFrame:
    """Return intercept and effects, as all tiles share them or as the only one learned them; facts then have none."""
    learned = [one.pop("coefficients", None) for one in facts]
    if job.parameters is None:
        return pd.DataFrame(learned[0])
    shared = np.array(job.parameters.coefficients), np.array(job.parameters.covariance)
    return coefficient_table(
        [SimpleNamespace(weight=1.0, coefficients=lambda: shared)], job.inputs.whole.effects, "rate ratio", job.interval
    )


def _record(tiles: Tiles, o: TilesOptions, progress: Progress) -> dict[str, Any]:
    return {
        "options": o.record(),
        "points": {"read": tiles.counts.n_read, "used": tiles.counts.n_used, "dropped": tiles.counts.n_dropped},
        "unit": tiles.units,
        "lengthscale": tiles.lengthscale,
        "sd": tiles.sd,
        "permeability": tiles.permeability,
        "coefficients": tiles.coefficients.to_dict("records"),
        "tiles": tiles.table.to_dict("records"),
        "seconds": progress.seconds,
    }
