"""The plan of tiles: land, points and inputs read and checked, and what all tiles share learned or read again."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass, replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import shapely

from geobgp.auto.choices import round_size
from geobgp.auto.domain import read_land
from geobgp.auto.options import Options
from geobgp.auto.pipeline import run
from geobgp.data.counts import Counts, bin_points
from geobgp.errors import DataError
from geobgp.files import replacing
from geobgp.inference.mixture import quantiles_of
from geobgp.land.domain import Domain
from geobgp.land.water import SIDES
from geobgp.model import LGCP
from geobgp.prior.full_rank import FullRank
from geobgp.prior.kernels import Matern
from geobgp.progress import Progress
from geobgp.scale.pooling import Evidence, most_probable
from geobgp.scale.tile_fit import FORMAT, Task, Taught, TileJob, check_tile, coords_of, learn_tile
from geobgp.scale.tile_inputs import Checked
from geobgp.scale.tile_sources import TileSources
from geobgp.scale.tiling import Frame, Tile, cut_tiles
from geobgp.scale.workers import Failed, Workers
from geobgp.text import number

if TYPE_CHECKING:
    from geobgp.land.polygons import Land
    from geobgp.posterior import Posterior
    from geobgp.scale.tiles_options import TilesOptions

#: Nodes of the map of everything, at most, from which tiles take intercept, effects of covariates and water.
COARSE_NODES = 16_000
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
        domain = Domain.from_land(self.land, self.coarse, o.min_coverage)
        self.sources = TileSources.read(o, domain)
        self.counts = self._counts(domain)
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
        key = self._key(crs)
        known = read_json(self.folder / PLAN)
        if known.get("key") == key:
            taught = None if known["taught"] is None else Taught.of(**known["taught"])
            return self._planned(self._job(crs, known["permeability"], taught))
        self._check_inputs(self._job(crs, 0.0, None))
        rho: Any = o.permeability
        taught = None
        if not single or rho == "auto":
            coarse = self._everything()
            rho = coarse.basis.permeability
        if not single:
            slopes = coarse.fit.states[0].coefficients()[0][1:]
            job = replace(self._job(crs, rho, None), slopes=tuple(slopes.tolist()))
            taught = self._taught(coarse, self._sampled(job, coarse.fit.hyper_mean))
        record = {
            "key": key,
            "permeability": float(rho),
            "taught": None if taught is None else asdict(taught),
        }
        plan = self._planned(self._job(crs, float(rho), taught))
        write_json(self.folder / PLAN, record)
        return plan

    def _planned(self, job: TileJob) -> Plan:
        tiles = self._cut(0.0 if job.taught is None else job.taught.lengthscale, job.permeability)
        return Plan(job, tiles, self._tasks(tiles))

    def _tasks(self, tiles: list[Tile]) -> list[Task]:
        points = coords_of(tiles, self.frame, self.coords)
        return [(t, p, self.sources.shapes(t, self.frame)) for t, p in zip(tiles, points, strict=True)]

    def _key(self, crs: str | None) -> str:
        o, digest = self.o, hashlib.blake2b(digest_size=12)
        plain_facts = (
            FORMAT, crs, self.h, o.tile_nodes, o.wide, o.permeability, o.min_coverage, self.reach, self.coarse,
            self.sources.inputs.digest,
        )  # fmt: skip
        digest.update(repr(plain_facts).encode())
        for shape in (self.land.geometry, self.land.barriers):
            digest.update(b"" if shape is None else shapely.to_wkb(shape))
        digest.update(self.coords.tobytes())
        return digest.hexdigest()

    def _job(self, crs: str | None, rho: float, taught: Taught | None) -> TileJob:
        o = self.o
        return TileJob(
            self.frame,
            crs,
            NU,
            rho,
            o.min_coverage,
            self.reach,
            quantiles_of(o.interval),
            taught,
            self.sources.inputs,
        )

    def _cut(self, lengthscale: float, rho: float) -> list[Tile]:
        step = SIDES[-1] if rho > 0 else 1
        return cut_tiles(self.land, self.frame, self.o.tile_nodes, self.o.wide * lengthscale, step)

    def _check_inputs(self, job: TileJob) -> None:
        """Refuse inputs that do not fit the land or the points, on cells as fine as they will be."""
        if not job.inputs.sources:
            return
        # As far beyond a core as its points can have been moved.
        tasks = self._tasks(cut_tiles(self.land, self.frame, self.o.tile_nodes, 2.0 * self.h))
        found: list[Checked] = []
        with self.progress.stage("inputs") as stage:
            for done, (_, part) in enumerate(
                self.workers.run(check_tile, tasks, self.workers.share(job)), start=1
            ):
                if isinstance(part, Failed):
                    raise part.error
                found.append(part)
                stage.step(done, len(tasks))
        reduce(Checked.plus, found).judge(job.inputs)

    # -- what all tiles share

    def _everything(self) -> Posterior:
        """Return the map of everything, on cells so wide that it is one fit."""
        o = self.o
        with self.progress.stage("everything") as stage:
            told = Options(
                points=self.coords, land=o.land, water=o.water, barriers=o.barriers, crs=o.crs, land_crs=o.land_crs,
                min_coverage=o.min_coverage, cell_size=self.coarse, m="full", permeability=o.permeability,
                max_snap=self.reach, kernel=Matern(NU), **self.sources.model,
            )  # fmt: skip
            found = run(told, stage).posterior
            stage.note(f"{found.domain.n_nodes:,} nodes of {number(self.coarse)}")
        return found

    def _taught(self, coarse: Posterior, theta: np.ndarray) -> Taught:
        """Return intercept and effects on the map of everything, with the lengthscale and sd of all tiles."""
        kernel = Matern(NU, float(np.exp(theta[0])), float(np.exp(theta[1])))
        with self.progress.stage("intercept"):
            basis = FullRank(coarse.domain, permeability=coarse.basis.permeability)
            fit = LGCP(basis, kernel, **self.sources.model).fit(np.asarray(coarse.observed)).fit
            mean, covariance = fit.states[0].coefficients()
        return Taught.of(kernel.lengthscale or 0.0, kernel.sd or 0.0, mean.tolist(), covariance.tolist())

    def _sampled(self, job: TileJob, theta: np.ndarray) -> np.ndarray:
        """Return the hyperparameters that some tiles together find most probable, on cells as fine as they will be."""
        tasks = self._tasks(self._cut(float(np.exp(theta[0])), job.permeability))
        order = sorted(
            (k for k in range(len(tasks)) if len(tasks[k][1]) >= FEWEST_EVENTS),
            key=lambda k: len(tasks[k][1]),
        )
        if not order:
            return theta
        picked = sorted({order[int(q * (len(order) - 1))] for q in np.linspace(0.5, 1.0, SAMPLED)})
        told: list[Evidence] = []
        shared = self.workers.share(job)
        size = math.sqrt(float(shapely.area(self.land.geometry)))
        with self.progress.stage("hyperparameters") as stage:
            missing: list[tuple[Task, Path]] = []
            for task in (tasks[k] for k in picked):
                path = self.folder / "tiles" / f"theta-{job.key(task[0], task[1])}.json"
                found = read_json(path)
                if found:
                    told.append(
                        self._evidence(np.array(found["theta"]), np.array(found["covariance"]), task[0])
                    )
                else:
                    missing.append((task, path))
            todo = [task for task, _ in missing]
            for done, (k, learned) in enumerate(self.workers.run(learn_tile, todo, shared), start=1):
                if isinstance(learned, Failed):
                    raise learned.error
                write_json(missing[k][1], {"theta": learned[0].tolist(), "covariance": learned[1].tolist()})
                told.append(self._evidence(learned[0], learned[1], todo[k][0]))
                stage.step(done, len(todo))
            best = most_probable(told, Matern(NU).prior.scaled(size, self.h), theta[:2])
            stage.note(f"lengthscale {number(float(np.exp(best[0])))}, sd {number(float(np.exp(best[1])))}")
        return best

    def _evidence(self, theta: np.ndarray, covariance: np.ndarray, tile: Tile) -> Evidence:
        size = math.sqrt(float(shapely.area(tile.geometry)))
        return Evidence.of_fit(theta[:2], covariance[:2, :2], Matern(NU).prior.scaled(size, self.h))


def read_json(path: Path) -> dict[str, Any]:
    """Return what a file holds; nothing where there is none, or it is damaged."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def write_json(path: Path, record: Any) -> None:
    """Write plain data, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n", "utf-8")
