"""The commands of the shell."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import ZipFile

import click
import geopandas as gpd
import numpy as np
import pandas as pd
import shapely

import geobgp
from geobgp.auto.gridded import read_land
from geobgp.auto.options import TilesOptions
from geobgp.auto.pipeline import Mapped, preview, run
from geobgp.auto.search import cell_size_for
from geobgp.checks.hotspots import hotspots_above
from geobgp.cli.messages import say, showing_warnings
from geobgp.cli.options import (
    MapOptions,
    PrevalenceFiles,
    RiskFiles,
    SimulateOptions,
    ValueFiles,
    check_beforehand,
    command_line,
    parse_options,
)
from geobgp.cli.results import read_named_regions, write_hotspots, write_results
from geobgp.cli.workspace import RECORD, Steps, fill_folder, write_record
from geobgp.errors import DataError, GeobgpError, option
from geobgp.files import check_exists, check_unread, replacing, write_csv
from geobgp.inference.mixture import interval_in
from geobgp.land.domain import Domain
from geobgp.progress import Progress, shell_progress
from geobgp.scale.strata import Strata, run_strata
from geobgp.scale.tiles import run_tiles
from geobgp.simulate import simulate_points
from geobgp.text import count, number, size_text

if TYPE_CHECKING:
    from geobgp.data.counts import Counts


# -- ``geobgp map``: points and polygons in, a folder of results out -----------------------------------------


def map_files(options: MapOptions, **talk: Any) -> None:
    """Do what ``geobgp map`` does; how much is said of it is as for `geobgp.progress.shell_progress`."""
    fill_folder(options, make_map, write_results, report="report.html", **talk)


def make_map(options: MapOptions, progress: Progress, **how: Any) -> Mapped:
    """Make the map of ``geobgp map``; `how` is of `geobgp.auto.pipeline.run`."""
    check = _few_enough if options.show_points else None
    keep = options.show_points or bool(options.regions)
    return run(options, progress, keep_coordinates=keep, check=check, **how)


def preview_files(options: Any, *, quiet: bool, **talk: Any) -> None:
    """Do what ``--dry-run`` does."""
    check_beforehand(options)
    with showing_warnings():
        told = preview(options, shell_progress(quiet=True, **talk))
    say("\n".join(told.lines()))


def _few_enough(counts: Counts) -> None:
    """Refuse to show more points than a page can hold, before anything is fitted."""
    from geobgp.web.overlays import MAX_POINTS, few_enough

    if counts.coordinates is not None:
        few_enough(len(counts.coordinates), MAX_POINTS, "points", "show_points")


# -- ``geobgp demo``: a map of the sample data, which come with the package ----------------------------------


#: Members of demo.zip: copies of files in sample_data, made by pack_demo.py there.
DATA = {
    "points": "tick_bites_simulated.gpkg",
    "land": "netherlands_land.gpkg",
    "water": "netherlands_water.gpkg",
    "regions": "netherlands_provinces.gpkg",
}


@contextmanager
def demo_data() -> Iterator[str]:
    """Unpack the sample data into a folder that goes again, and yield it."""
    with tempfile.TemporaryDirectory(prefix="geobgp-demo-") as folder:
        with (files("geobgp.cli") / "demo.zip").open("rb") as packed, ZipFile(packed) as archive:
            archive.extractall(folder)
        yield folder


def map_demo(options: Mapping[str, Any], **talk: Any) -> None:
    """Do what ``geobgp demo`` does: `map_files` on the sample data.

    Parameters
    ----------
    options : mapping
        Where to write, and how, as click has read it.
    **talk
        As for `geobgp.progress.shell_progress`.
    """
    with demo_data() as folder:
        paths = {name: str(Path(folder) / file) for name, file in DATA.items()}
        title = "Tick bites in the Netherlands (simulated)"
        parsed = parse_options(MapOptions, {**options, **paths, "title": title, "thresholds": (0.2,)})
        map_files(parsed, **talk)


# -- ``geobgp risk``: cases, controls and land in, a folder with the relative risk out -----------------------


def risk_files(options: RiskFiles, **talk: Any) -> None:
    """Do what ``geobgp risk`` does."""
    fill_folder(options, run, write_results, **talk)


# -- ``geobgp values`` and ``geobgp prevalence``: measurements or surveys and land in, a folder out -----------


def place_files(options: ValueFiles | PrevalenceFiles, **talk: Any) -> None:
    """Do what ``geobgp values`` and ``geobgp prevalence`` do."""
    fill_folder(options, run, write_results, report="report.html", **talk)


# -- ``geobgp simulate``: points drawn from a known intensity, in a file -------------------------------------


_FORMATS = (".gpkg", ".geojson", ".parquet", ".csv")


def simulate_file(options: SimulateOptions, **talk: Any) -> None:
    """Do what ``geobgp simulate`` does."""
    if (options.posterior is None) == (options.land is None):
        raise click.UsageError("Give either --posterior, or --land with --intensity.")
    if options.land is not None and options.intensity is None:
        raise click.UsageError("--land needs --intensity: a number of events per km², or a raster.")
    others = [name for name in options.given() if name not in ("posterior", "seed", "force")]
    if options.posterior is not None and others:
        raise DataError(
            f"{option(others[0])} has no effect with {option('posterior')}, which has a land and an intensity of its "
            "own.",
            option=others[0],
            remedy=f"Leave out {option(others[0])}, or {option('posterior')}.",
        )
    options.check_files()
    target = Path(options.output)
    if target.exists() and not options.force:
        raise GeobgpError(
            f"{target} exists.",
            option="output",
            remedy=(
                f"Nothing is overwritten without {option('force')}; or choose another file with {option('output')}."
            ),
        )
    check_unread(target)
    if target.suffix.lower() not in _FORMATS:
        raise DataError(f"{target.name}: points are written as {', '.join(_FORMATS[:-1])} or {_FORMATS[-1]}.")
    progress = shell_progress(**talk)
    with showing_warnings():
        with progress.stage("land") as stage:
            domain, intensities = _known_intensity(options)
            stage.note(f"{domain.n_nodes:,} nodes")
        with progress.stage("points") as stage:
            rng, drawn = np.random.default_rng(options.seed), list[gpd.GeoDataFrame]()
            for label, intensity in intensities.items():
                points = simulate_points(domain, intensity, rng)
                drawn.append(points if label is None else points.assign(period=label))
            points = gpd.GeoDataFrame(pd.concat(drawn, ignore_index=True), crs=domain.crs)
            stage.note(f"{len(points):,}")
        _write(points, target)
    if not talk["quiet"]:
        say(f"{len(points):,} points in {target}", f"The points are in {target} all the same.")


def _known_intensity(o: SimulateOptions) -> tuple[Domain, dict[str | None, float | np.ndarray]]:
    """Return the domain and the intensity to simulate from, by the label of its period where there are some."""
    if o.posterior is not None:
        from geobgp.posterior import Posterior

        posterior = Posterior.load(o.posterior)
        if not posterior.is_summed:
            raise DataError(
                f"{o.posterior} maps a {posterior.quantity}, not events: no points can be drawn from it.",
                option="posterior",
                found=posterior.quantity,
                remedy="Give the posterior of a map of events, counts or cases.",
            )
        labels = [None] if posterior.periods is None else posterior.periods.labels
        maps = {label: posterior if label is None else posterior.at(label) for label in labels}
        areas = posterior.domain.node_areas / posterior.domain.area_unit[0]
        return posterior.domain, {label: one._nodes.exp_mean() * one.exposure / areas for label, one in maps.items()}
    land = read_land(o.land, o.water, o.barriers, crs=o.crs, land_crs=o.land_crs)
    cell_size = o.cell_size or cell_size_for(float(shapely.area(land.geometry)), None, land.crs)[0]
    domain = Domain.from_land(land, cell_size)
    assert o.intensity is not None
    try:
        return domain, {None: float(o.intensity)}
    except ValueError:
        pass
    from geobgp.data.rasters import read_to_nodes

    check_exists(o.intensity, "intensity")
    values = read_to_nodes(o.intensity, domain, "mean")
    missing = int(np.isnan(values).sum())
    if missing:
        raise DataError(
            f"intensity: {o.intensity} has no value at {missing:,} of {len(values):,} nodes of the land.",
            option="intensity",
            found=missing,
        )
    return domain, {None: values}


def _write(points: gpd.GeoDataFrame, target: Path) -> None:
    kind = target.suffix.lower()
    with replacing(target) as temporary:
        if kind == ".parquet":
            points.to_parquet(temporary)
        elif kind == ".csv":
            shown = points if points.crs is None else points.to_crs(4326)
            names = ("easting", "northing") if points.crs is None else ("longitude", "latitude")
            table = pd.DataFrame(dict(zip(names, (shown.geometry.x, shown.geometry.y), strict=True)))
            table.assign(**points.drop(columns="geometry")).to_csv(temporary, index=False, float_format="%.8f")
        elif kind == ".geojson" and points.crs is not None:
            points.to_crs(4326).to_file(temporary, driver="GeoJSON")
        else:
            points.to_file(temporary, driver="GeoJSON" if kind == ".geojson" else "GPKG")


# -- ``geobgp strata``: points with a column of labels in, a folder with a map for each label out ------------


#: Joint draws behind the intervals of totals.
_SAMPLES = 500


def strata_files(options: Any, **talk: Any) -> None:
    """Do what ``geobgp strata`` does."""
    fill_folder(options, run_strata, _write_strata, **talk, opens=("index.html", "map.qgz"), report="report.html")


def _write_strata(folder: Path, strata: Strata, options: Any, steps: Steps, warnings: list[str]) -> None:
    strata, thresholds = strata.styled(**options.look()), sorted(set(options.thresholds))
    domain = strata.pooled.domain
    with steps.stage("strata") as stage:  # first: all else can be made from it
        for posterior in strata.values():
            posterior._known_variation()
        stage.note(size_text(strata.save(folder / "strata.geobgp").stat().st_size))
    regions = None if options.regions is None else read_named_regions(options.regions, domain, options.regions_by)
    if strata.pooled.periods is None:  # over periods the project has the folders of rasters
        with steps.stage("rasters") as stage:
            for n, (name, path) in enumerate(strata.raster_paths(folder).items(), 1):
                with steps.step(f"raster of {name}"):
                    strata[name].to_raster(path, thresholds)
                stage.step(n, len(strata))
    hotspots = None
    if thresholds:
        with steps.stage("hot spots") as stage:
            spots = strata.together({name: hotspots_above(one, thresholds) for name, one in strata.items()})
            stage.note(write_hotspots(spots, folder))
            hotspots = spots
    with steps.stage("project") as stage:
        strata.to_qgis(folder, thresholds, regions=regions, hotspots=hotspots)
        stage.note(count(len(strata), "stratum", "strata"))
    with steps.stage("netCDF"):
        strata.to_netcdf(folder / "intensity.nc", thresholds)
    with steps.stage("totals") as stage:
        table = strata.totals(
            regions, thresholds=thresholds, n_samples=_SAMPLES, client=options.client, n_jobs=options.n_jobs,
            step=stage.step,
        )  # fmt: skip
        strata.write_totals(table, folder / "totals.gpkg")
        strata.write_totals(table, folder / "totals.csv")
        stage.note(count(len(table), "row"))
    with steps.stage("table"):
        write_csv(folder / "strata.csv", strata.table(), index=True)
    with steps.stage("page"):
        strata.to_index(folder / "index.html", title=options.title)
    with steps.stage("map"):
        strata.to_map(
            folder / "map.html", thresholds=thresholds or None, regions=regions, hotspots=hotspots,
            context=options.context, basemap=options.basemap,
        )  # fmt: skip
    with steps.stage("report"):
        asked = {"thresholds": thresholds, "regions": regions, "hotspots": hotspots, "checks": options.checks}
        strata.to_report(folder / "report.html", **asked)
    record: dict[str, Any] = {
        "geobgp": geobgp.__version__,
        "created": strata.pooled.created,
        "options": options.record(),
        "strata": {name: path.name for name, path in strata.raster_paths(folder).items() if path.exists()},
        "failures": strata.failures,
        "choices": dict(strata.pooled.choices),
        "warnings": warnings,
        "seconds": steps.seconds,
        "command": command_line(options, "strata"),
        "not_written": steps.failed,
    }
    with steps.step(RECORD):
        write_record(folder, record)


# -- ``geobgp tiles``: points and land of any size in, one mosaic out; cut off, it goes on -------------------


def tiles_files(options: TilesOptions, **talk: Any) -> None:
    """Do what ``geobgp tiles`` does."""
    progress = shell_progress(**talk)
    with showing_warnings():
        result = run_tiles(options, progress)
    if not talk["quiet"]:
        progress.line(f"{sum(progress.seconds.values()):.1f} s in all")
        done = f"{result.n_fitted:,} of {count(len(result.table), 'tile')} fitted now"
        there = f"The mosaic is in {result.raster} all the same."
        say(f"{done}; {result.raster} ({size_text(result.raster.stat().st_size)}), in {result.units}", there)
        for effect in result.coefficients.iloc[1:].itertuples():
            ends = interval_in(result.coefficients, "rate_ratio")
            assert ends is not None
            low, high = (number(getattr(effect, name), 3) for name in (ends.low, ends.high))
            more = f"times {number(effect.rate_ratio, 3)} ({low} to {high}) the intensity for each unit more"
            say(f"{effect.name}: {more}", there)
        say(f"Open {result.raster} in QGIS. {result.folder / 'tiles'} is only needed to go on.", there)


# -- ``geobgp metadata``: a file for what only the author knows ----------------------------------------------


def write_template(path: str | None) -> None:
    """Write a template of metadata, or print it."""
    from geobgp.report.gather import template

    if path is None:
        say(template())
        return
    target = Path(path)
    if target.exists():
        raise GeobgpError(f"{target} exists.", found=path, remedy="It is not replaced: choose another name.")
    with replacing(target, parents=True) as temporary:
        temporary.write_text(template(), "utf-8")
    say(f"Wrote {target}: fill it in, and give it to --metadata.")
