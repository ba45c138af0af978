"""Tiles: land too large for one fit, mapped tile by tile into one mosaic; cut off, it goes on where it was."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import shapely

from geobgp.arguments import CLIENT, PROGRESS, SOURCE
from geobgp.auto.choices import round_size
from geobgp.auto.domain import read_land
from geobgp.auto.options import Options
from geobgp.auto.pipeline import run
from geobgp.data.counts import Counts, bin_points
from geobgp.errors import DataError, GeobgpError, in_words
from geobgp.files import replacing
from geobgp.inference.mixture import QUANTILES
from geobgp.land.domain import Domain
from geobgp.model import LGCP
from geobgp.prior.full_rank import FullRank
from geobgp.prior.kernels import Matern
from geobgp.progress import Progress, ProgressLike, as_progress
from geobgp.scale.mosaic import Mosaic, read_tile, write_tile
from geobgp.scale.pooling import Evidence, most_probable
from geobgp.scale.tile_fit import Taught, TileJob, coords_of, fit_tile, learn_tile
from geobgp.scale.tiles_options import TilesOptions
from geobgp.scale.tiling import Frame, Tile, cut_tiles
from geobgp.scale.workers import Failed, Workers, open_workers
from geobgp.summary import plain
from geobgp.text import count, number
from geobgp.validate import PATH, door, whole
from geobgp.validate import number as a_number

if TYPE_CHECKING:
    import xarray as xr

    from geobgp.land.polygons import Land

#: Nodes of the map of everything, at most, from which tiles take intercept and water.
COARSE_NODES = 16_000
#: Tiles that learn hyperparameters by themselves, and the events that each has at least.
SAMPLED, FEWEST_EVENTS = 3, 50
#: Smoothness of the kernel.
NU = 1.0
PLAN, RECORD = "plan.json", "summary.json"


@dataclass(frozen=True, eq=False)
class Tiles:
    """What `map_tiles` has made.

    Attributes
    ----------
    folder : path
    raster, zarr : path
        The mosaic, as a Cloud-Optimised GeoTIFF with a band for each statistic, and as a Zarr group.
    table : DataFrame
        A row for each tile: nodes, events and expected events of its core, seconds, megabytes.
    lengthscale, sd : float
    permeability : float
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
    n_fitted: int
    counts: Counts = field(repr=False)

    def open(self) -> xr.Dataset:
        """Return the mosaic as a dataset that is read where it is looked at."""
        import xarray as xr

        return xr.open_zarr(self.zarr, consolidated=False)


@door(
    points=SOURCE,
    land=SOURCE,
    out=PATH,
    cell_size=a_number(above=0.0),
    tile_nodes=whole(100),
    halo=a_number(least=3.0),
    client=CLIENT,
    n_jobs=whole(1),
    progress=PROGRESS,
)
def map_tiles(
    points: Any,
    land: Any,
    out: str | Path,
    *,
    cell_size: float,
    tile_nodes: int = 50_000,
    halo: float = 3.0,
    client: Any = None,
    n_jobs: int | None = None,
    progress: ProgressLike = False,
    **options: Any,
) -> Tiles:
    """Map the intensity of points on land of any size at full resolution, tile by tile.

    A coarse map of everything, and a few tiles that learn by themselves, give lengthscale, sd and intercept, which all
    tiles share. Each tile is fitted with a halo of its neighbours' land and points, and the tiles are blended where
    they meet. Results are written as they come. Tiles are files named by a hash of all that they depend on: a run that
    is cut off at any moment fits only what is missing when it is begun again. Where one tile holds everything the
    result is that of the whole fit, exactly.

    Parameters
    ----------
    points : GeoDataFrame, DataFrame, (k, 2) array, path, Dask collection, folder or pattern of GeoParquet files
        As for `bin_points`. Their coordinates are held in memory, 16 bytes each.
    land : GeoDataFrame, GeoSeries, shapely geometry or path
        Polygons.
    out : path
        A folder: ``mosaic.tif``, ``mosaic.zarr``, ``summary.json``, and ``tiles/``, which may be deleted in the end.
    cell_size : float
        In metres.
    tile_nodes : int
        Cells of land of a tile, at most; its halo comes on top.
    halo : float
        Width of the halo in lengthscales, at least 3.
    client : distributed.Client or str, optional
        A Dask client, or the address of a scheduler; by default the current client.
    n_jobs : int, optional
        Processes, where there is no client; one for each core by default.
    progress : bool, Progress, Stage or callable
    **options
        ``water``, ``barriers``, ``crs``, ``land_crs``, ``min_coverage``, ``longitude``, ``latitude``, ``easting``,
        ``northing``, ``points_crs``, ``layer``, ``max_snap``, ``permeability``, ``title``: as for `map_intensity`.

    Returns
    -------
    Tiles
    """
    known = set(TilesOptions.__dataclass_fields__)
    unknown = [name for name in options if name not in known or name == "output"]
    if unknown:
        raise DataError(
            f"Tiles have no option {unknown[0]!r}: they map points per area of land.",
            option=unknown[0],
            found=unknown,
            remedy="Leave it out, or use map_intensity.",
        )
    told = TilesOptions(
        points=points, land=land, output=out, cell_size=cell_size, tile_nodes=tile_nodes, halo=halo, client=client,
        n_jobs=n_jobs, **options,
    )  # fmt: skip
    return run_tiles(told, progress)


def run_tiles(options: TilesOptions, progress: ProgressLike = False) -> Tiles:
    """Do what `map_tiles` does."""
    o, progress = options, as_progress(progress)
    o.check_files()
    folder = _folder(o.output)
    with open_workers(o.client, o.n_jobs) as workers:
        work = _Work(o, folder, workers, progress)
        job, tiles = work.plan()
        return work.fit(job, tiles)


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
    (folder / "tiles").mkdir(parents=True, exist_ok=True)
    return folder


class _Work:
    """A run: its land and points, the plan, and the fits."""

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
        self.counts = self._counts()
        assert self.counts.coordinates is not None
        self.coords = self.counts.coordinates

    def _counts(self) -> Counts:
        o = self.o
        domain = Domain.from_land(self.land, self.coarse, o.min_coverage)
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

    # -- the plan

    def plan(self) -> tuple[TileJob, list[Tile]]:
        """Return what all tiles share, learned or read, and the tiles."""
        o, single = self.o, self.cells <= self.o.tile_nodes
        crs = None if self.land.crs is None else self.land.crs.to_wkt()
        key = self._key(crs)
        known = _read_json(self.folder / PLAN)
        if known.get("key") == key:
            taught = None if known["taught"] is None else Taught(**known["taught"])
            job = self._job(crs, known["permeability"], taught)
            return job, self._cut(taught)
        rho = o.permeability
        theta: np.ndarray | None = None
        if not (single and rho != "auto"):
            with self.progress.stage("everything") as stage:
                told = Options(
                    points=self.coords, land=o.land, water=o.water, barriers=o.barriers, crs=o.crs, land_crs=o.land_crs,
                    cell_size=self.coarse, m="full", permeability=rho, max_snap=self.reach, kernel=Matern(NU),
                )  # fmt: skip
                coarse = run(told, stage).posterior
                rho, theta = coarse.basis.permeability, coarse.fit.hyper_mean
                stage.note(f"{coarse.domain.n_nodes:,} nodes of {number(self.coarse)}")
        assert not isinstance(rho, str)
        taught = None
        if not single:
            assert theta is not None
            theta = self._sampled(self._job(crs, rho, None), theta)
            kernel = Matern(NU, float(np.exp(theta[0])), float(np.exp(theta[1])))
            with self.progress.stage("intercept"):
                basis = FullRank(coarse.domain, permeability=rho)
                held = LGCP(basis, kernel).fit(np.asarray(coarse.observed)).fit.states[0].coefficients()
            taught = Taught(
                float(kernel.lengthscale or 0), float(kernel.sd or 0), float(held[0][0]), float(np.sqrt(held[1][0, 0]))
            )  # fmt: skip
        tiles = self._cut(taught)
        record = {
            "key": key,
            "permeability": float(rho),
            "taught": None if taught is None else asdict(taught),
        }
        _write_json(self.folder / PLAN, record)
        return self._job(crs, float(rho), taught), tiles

    def _key(self, crs: str | None) -> str:
        o, digest = self.o, hashlib.blake2b(digest_size=12)
        plain_facts = (
            crs,
            self.h,
            o.tile_nodes,
            o.halo,
            o.permeability,
            o.min_coverage,
            self.reach,
            self.coarse,
        )
        digest.update(repr(plain_facts).encode())
        for shape in (self.land.geometry, self.land.barriers):
            digest.update(b"" if shape is None else shapely.to_wkb(shape))
        digest.update(self.coords.tobytes())
        return digest.hexdigest()

    def _job(self, crs: str | None, rho: float, taught: Taught | None) -> TileJob:
        o = self.o
        return TileJob(self.frame, crs, NU, rho, o.min_coverage, self.reach, tuple(QUANTILES), taught)

    def _cut(self, taught: Taught | None, lengthscale: float = 0.0) -> list[Tile]:
        halo = self.o.halo * (lengthscale if taught is None else taught.lengthscale)
        return cut_tiles(self.land, self.frame, self.o.tile_nodes, halo)

    def _sampled(self, job: TileJob, theta: np.ndarray) -> np.ndarray:
        """Return the hyperparameters that some tiles together find most probable, on cells as fine as they will be."""
        tiles = self._cut(None, float(np.exp(theta[0])))
        points = coords_of(tiles, self.frame, self.coords)
        order = sorted(
            (k for k in range(len(tiles)) if len(points[k]) >= FEWEST_EVENTS), key=lambda k: len(points[k])
        )
        if not order:
            return theta
        picked = sorted({order[int(q * (len(order) - 1))] for q in np.linspace(0.5, 1.0, SAMPLED)})
        told: list[Evidence] = []
        shared = self.workers.share(job)
        size = math.sqrt(float(shapely.area(self.land.geometry)))
        with self.progress.stage("hyperparameters") as stage:
            missing = []
            for k in picked:
                path = self.folder / "tiles" / f"theta-{job.key(tiles[k], points[k])}.json"
                found = _read_json(path)
                if found:
                    told.append(
                        self._evidence(np.array(found["theta"]), np.array(found["covariance"]), tiles[k])
                    )
                else:
                    missing.append((tiles[k], points[k], path))
            tasks = [(tile, some) for tile, some, _ in missing]
            for done, (k, found) in enumerate(self.workers.run(learn_tile, tasks, shared), start=1):
                if isinstance(found, Failed):
                    raise found.error
                _write_json(missing[k][2], {"theta": found[0].tolist(), "covariance": found[1].tolist()})
                told.append(self._evidence(found[0], found[1], missing[k][0]))
                stage.step(done, len(tasks))
            best = most_probable(told, Matern(NU).prior.scaled(size, self.h), theta[:2])
            stage.note(f"lengthscale {number(float(np.exp(best[0])))}, sd {number(float(np.exp(best[1])))}")
        return best

    def _evidence(self, theta: np.ndarray, covariance: np.ndarray, tile: Tile) -> Evidence:
        size = math.sqrt(float(shapely.area(tile.geometry)))
        return Evidence.of_fit(theta[:2], covariance[:2, :2], Matern(NU).prior.scaled(size, self.h))

    # -- the fits

    def fit(self, job: TileJob, tiles: list[Tile]) -> Tiles:
        """Fit the tiles that are missing, and put all together."""
        o = self.o
        names = ["mean", "sd", *(f"q{round(100 * q):02d}" for q in job.quantiles)]
        units = "events per unit area" if self.land.crs is None else "events per km²"
        mosaic = Mosaic(
            self.folder, self.frame, tiles, names, self.land.crs, units, o.title or f"Intensity in {units}"
        )
        points = coords_of(tiles, self.frame, self.coords)
        paths = [
            self.folder / "tiles" / f"tile-{t.number:05d}-{job.key(t, p)}.geobgp"
            for t, p in zip(tiles, points, strict=True)
        ]
        facts: dict[int, dict[str, Any]] = {}
        failures: dict[int, str] = {}
        with self.progress.stage("tiles") as stage:
            stage.tell(f"by {self.workers.where}")
            missing = []
            for k, path in enumerate(paths):
                known = read_tile(path)
                if known is None:
                    missing.append(k)
                else:
                    facts[k] = known[0]
                    mosaic.add(tiles[k], path)
            shared = self.workers.share(job)
            tasks = [(tiles[k], points[k]) for k in missing]
            for i, found in self.workers.run(fit_tile, tasks, shared):
                k = missing[i]
                if isinstance(found, Failed):
                    failures[k] = str(getattr(found.error, "message", "") or found.error)
                    continue
                write_tile(paths[k], found)
                facts[k] = found.facts
                mosaic.add(tiles[k], paths[k])
                stage.step(len(facts), len(tiles))
            stage.note(f"{count(len(missing), 'tile')} of {len(tiles):,} fitted by {self.workers.where}")
        if failures:
            first = min(failures)
            raise GeobgpError(
                f"{len(failures):,} of {count(len(tiles), 'tile')} could not be fitted, the first number {first}: "
                f"{in_words(failures[first])}",
                found=sorted(failures),
                remedy="The others are kept: run it again to fit only these.",
            )
        with self.progress.stage("mosaic"):
            raster, zarr = mosaic.finish()
        table = pd.DataFrame(
            [facts[k] for k in range(len(tiles))], index=pd.RangeIndex(len(tiles), name="tile")
        )
        taught = job.taught
        length = float(table["lengthscale"].iloc[0]) if taught is None else taught.lengthscale
        sd = float(table["sd"].iloc[0]) if taught is None else taught.sd
        made = Tiles(
            self.folder, raster, zarr, table, length, sd, job.permeability, len(missing), self.counts
        )
        self._record(made)
        return made

    def _record(self, made: Tiles) -> None:
        record = {
            "options": self.o.record(),
            "points": {
                "read": made.counts.n_read,
                "used": made.counts.n_used,
                "dropped": made.counts.n_dropped,
            },
            "lengthscale": made.lengthscale,
            "sd": made.sd,
            "permeability": made.permeability,
            "tiles": made.table.to_dict("records"),
            "seconds": self.progress.seconds,
        }
        _write_json(self.folder / RECORD, plain(record))


def _read_json(path: Path) -> dict[str, Any]:
    """Return what a file holds; nothing where there is none, or it is damaged."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _write_json(path: Path, record: Any) -> None:
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n", "utf-8")
