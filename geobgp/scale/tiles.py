"""Tiles: land too large for one fit, mapped tile by tile into one mosaic; cut off, it goes on where it was."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from geobgp.arguments import CLIENT, PROGRESS, SOURCE
from geobgp.data.counts import Counts
from geobgp.errors import DataError, GeobgpError, in_words
from geobgp.files import check_unread
from geobgp.inference.mixture import quantile_name
from geobgp.progress import Progress, ProgressLike, as_progress
from geobgp.scale.mosaic import Mosaic, read_tile, write_tile
from geobgp.scale.tile_fit import TileJob, fit_tile
from geobgp.scale.tiles_options import TilesOptions
from geobgp.scale.tiles_plan import Plan, Planner, write_json
from geobgp.scale.workers import Failed, open_workers
from geobgp.summary import coefficient_table, plain
from geobgp.text import count
from geobgp.validate import PATH, door, whole
from geobgp.validate import number as a_number

if TYPE_CHECKING:
    import xarray as xr

RECORD = "summary.json"


@dataclass(frozen=True, eq=False)
class Tiles:
    """What `map_tiles` has made.

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
    halo: float | None = None,
    client: Any = None,
    n_jobs: int | None = None,
    progress: ProgressLike = False,
    **options: Any,
) -> Tiles:
    """Map the intensity of points on land of any size at full resolution, tile by tile.

    A coarse map of everything, and a few tiles that learn by themselves, give lengthscale, sd, intercept and effects of
    covariates, which all tiles share. Each tile is fitted with a halo of its neighbours' land and points, and the tiles
    are blended where they meet. Results are written as they come. Tiles are files named by a hash of all that they
    depend on: a run that is cut off at any moment fits only what is missing when it is begun again. Where one tile
    holds everything the result is that of the whole fit, exactly.

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
    halo : float, optional
        Width of the halo in lengthscales, at least 3, which is the default. With an exposure or an effort it is 4:
        over land where nobody is, or nobody looks, information comes from farther away.
    client : distributed.Client or str, optional
        A Dask client, or the address of a scheduler; by default the current client.
    n_jobs : int, optional
        Processes, where there is no client; one for each core by default.
    progress : bool, Progress, Stage or callable
    **options
        ``water``, ``barriers``, ``crs``, ``land_crs``, ``min_coverage``, ``longitude``, ``latitude``, ``easting``,
        ``northing``, ``points_crs``, ``layer``, ``max_snap``, ``permeability``, ``units``, ``title``, ``interval``: as
        for `map_intensity`. So are ``exposure``, ``exposure_column``, ``effort``, ``effort_column``, ``covariates`` and
        ``fill_missing``, but they are no arrays: every tile reads its own part of a raster file, or of polygons.
        Workers on other machines must find rasters under the same paths.

    Returns
    -------
    Tiles
    """
    known = set(TilesOptions.__dataclass_fields__)
    unknown = [name for name in options if name not in known or name == "output"]
    if unknown:
        raise DataError(
            f"Tiles have no option {unknown[0]!r}.",
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
    if job.inputs.exposure is not None:  # the band that is shown comes first: of a rate the median
        names = ["q50", *(name for name in names if name != "q50")]
    mosaic = Mosaic(folder, planner.frame, tiles, names, planner.land.crs, units, o.title)
    paths = [
        folder / "tiles" / f"tile-{tile.number:05d}-{job.key(tile, coords)}.geobgp"
        for tile, coords, _ in tasks
    ]
    facts: dict[int, dict[str, Any]] = {}
    failures: dict[int, str] = {}
    with progress.stage("tiles") as stage:
        stage.tell(f"by {workers.where}")
        missing = []
        for k, path in enumerate(paths):
            known = read_tile(path)
            if known is None:
                missing.append(k)
            else:
                facts[k] = known[0]
                mosaic.add(tiles[k], path)
        for i, found in workers.run(fit_tile, [tasks[k] for k in missing], workers.share(job)):
            k = missing[i]
            if isinstance(found, Failed):
                failures[k] = str(getattr(found.error, "message", "") or found.error)
                continue
            write_tile(paths[k], found)
            facts[k] = found.facts
            mosaic.add(tiles[k], paths[k])
            stage.step(len(facts), len(tiles))
        stage.note(f"{count(len(missing), 'tile')} of {len(tiles):,} fitted by {workers.where}")
    if failures:
        first = min(failures)
        raise GeobgpError(
            f"{len(failures):,} of {count(len(tiles), 'tile')} could not be fitted, the first number {first}: "
            f"{in_words(failures[first])}",
            found=sorted(failures),
            remedy="The others are kept: run it again to fit only these.",
        )
    with progress.stage("mosaic"):
        raster, zarr = mosaic.finish()
    rows = [facts[k] for k in range(len(tiles))]
    coefficients = _coefficients(job, rows)
    table = pd.DataFrame(rows, index=pd.RangeIndex(len(tiles), name="tile"))
    taught = job.taught
    made = Tiles(
        folder=folder,
        raster=raster,
        zarr=zarr,
        table=table,
        lengthscale=float(table["lengthscale"].iloc[0]) if taught is None else taught.lengthscale,
        sd=float(table["sd"].iloc[0]) if taught is None else taught.sd,
        permeability=job.permeability,
        coefficients=coefficients,
        units=units.words,
        n_fitted=len(missing),
        counts=planner.counts,
    )
    write_json(folder / RECORD, plain(_record(made, o, progress)))
    return made


def _coefficients(job: TileJob, facts: list[dict[str, Any]]) -> pd.DataFrame:
    """Return intercept and effects as they were taught, or learned in the only tile, out of whose facts they go."""
    learned = [one.pop("coefficients", None) for one in facts]
    if job.taught is None:
        return pd.DataFrame(learned[0])
    found = np.array(job.taught.coefficients), np.array(job.taught.covariance)
    return coefficient_table(
        [SimpleNamespace(weight=1.0, coefficients=lambda: found)], job.inputs.effects, True, job.interval
    )


def _record(made: Tiles, o: TilesOptions, progress: Progress) -> dict[str, Any]:
    return {
        "options": o.record(),
        "points": {
            "read": made.counts.n_read,
            "used": made.counts.n_used,
            "dropped": made.counts.n_dropped,
        },
        "unit": made.units,
        "lengthscale": made.lengthscale,
        "sd": made.sd,
        "permeability": made.permeability,
        "coefficients": made.coefficients.to_dict("records"),
        "tiles": made.table.to_dict("records"),
        "seconds": progress.seconds,
    }
