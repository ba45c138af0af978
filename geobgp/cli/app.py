"""The command line: `geobgp map`, `demo`, `simulate`, `info`, `cache`; imports are inside the commands."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import click

from geobgp import __version__

_PATH = click.Path(path_type=str)
_BOUNDARIES = click.Choice(["auto", "neumann", "dirichlet"])


class _Features(click.ParamType):
    """``auto``, ``full`` or a number."""

    name = "auto|full|N"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value in ("auto", "full"):
            return value
        try:
            number = int(value)
        except ValueError:
            self.fail(f"{value!r} is neither auto, full nor a whole number.", param, ctx)
        if number < 1:
            self.fail(f"{number} features are too few; at least 1.", param, ctx)
        return number


class _Named(click.ParamType):
    """``name=path``."""

    name = "NAME=RASTER"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, tuple):
            return value
        name, found, path = value.partition("=")
        if not (found and name.strip() and path):
            self.fail(f"{value!r}: give a name and a raster, such as elevation=dem.tif.", param, ctx)
        return name.strip(), path


def _stack(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def decorate(function: Any) -> Any:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


_talk = _stack(
    click.option("-q", "--quiet", is_flag=True, help="Say nothing but warnings and errors."),
    click.option("-v", "--verbose", is_flag=True, help="Tell of every round of the fit."),
    click.option("--debug", is_flag=True, help="Show the traceback of an error."),
)
_ground = _stack(
    click.option("--water", type=_PATH, metavar="FILE", help="Polygons to take out of the land."),
    click.option("--barriers", type=_PATH, metavar="FILE", help="Lines that nothing passes."),
    click.option("--cell-size", type=float, metavar="M", help="Side of a cell in metres; by default chosen."),
    click.option("--crs", metavar="CRS", help="Projected CRS of the map, or 'local'; by default chosen."),
    click.option("--land-crs", metavar="CRS", help="CRS of land, water, barriers if their files do not say."),
)
_force = click.option("--force", is_flag=True, help="Replace what an earlier run wrote.")


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="geobgp")
def cli() -> None:
    """Map where things happen, with the uncertainty, and respect the shore.

    `geobgp demo` shows it on sample data; `geobgp map points.gpkg --land coast.gpkg -o out/` on your own.
    """


@cli.command("map", short_help="Map the intensity of points on land.")
@click.argument("points", type=_PATH)
@click.option("--land", required=True, type=_PATH, metavar="FILE", help="Polygons of the land.")
@_ground
@click.option(
    "--exposure",
    type=_PATH,
    metavar="FILE",
    help="People per pixel (raster) or per area (polygons): the map is a rate.",
)
@click.option("--exposure-column", metavar="COLUMN", help="The column of polygons with the exposure.")
@click.option(
    "--covariate",
    "covariates",
    type=_Named(),
    multiple=True,
    help="A raster that may explain the intensity; may be repeated.",
)
@click.option("--fill-missing", is_flag=True, help="Give places without a covariate the mean of the others.")
@click.option(
    "--threshold",
    "thresholds",
    type=float,
    multiple=True,
    metavar="T",
    help="Map the probability of exceeding T; may be repeated.",
)
@click.option("--regions", type=_PATH, metavar="FILE", help="Polygons to give totals for.")
@click.option(
    "--features", type=_Features(), default="auto", show_default=True, help="How finely the map can vary."
)
@click.option(
    "--boundary", type=_BOUNDARIES, default="auto", show_default=True, help="What happens at the shore."
)
@click.option(
    "--hyper",
    type=click.Choice(["map", "integrate"]),
    default="map",
    show_default=True,
    help="Take the best hyperparameters, or average over them.",
)
@click.option("--weights", metavar="COLUMN", help="A column to add up in place of counting points.")
@click.option("--longitude", metavar="COLUMN", help="Column of a table with the longitude.")
@click.option("--latitude", metavar="COLUMN", help="Column of a table with the latitude.")
@click.option("--easting", metavar="COLUMN", help="Column of a table with the easting.")
@click.option("--northing", metavar="COLUMN", help="Column of a table with the northing.")
@click.option("--points-crs", metavar="CRS", help="CRS of the points where their file does not say.")
@click.option(
    "--layer",
    metavar="NAME",
    help="Layer of the points, in a file with several. (Other files: FILE|layername=NAME.)",
)
@click.option(
    "--on-water",
    type=click.Choice(["nearest", "drop", "error"]),
    default="nearest",
    show_default=True,
    help="What to do with points off the land.",
)
@click.option(
    "--max-snap",
    type=float,
    metavar="M",
    help="How far points off the land are moved, in metres; two cells if not given.",
)
@click.option("--title", default="", metavar="TEXT", help="Title of map and report.")
@click.option("--tiles", metavar="NAME", help="An online basemap for map.html, e.g. OpenStreetMap.")
@click.option(
    "--show-points",
    is_flag=True,
    help="Put the points into map.html, where whoever has the file can read them.",
)
@click.option("--no-cache", is_flag=True, help="Neither read nor keep computed features.")
@click.option("-o", "--output", required=True, type=_PATH, metavar="OUT/", help="Folder to write.")
@_force
@_talk
def map_command(**options: Any) -> None:
    """Map the intensity of POINTS (GeoPackage, GeoParquet, CSV, ...) on land.

    Writes to OUT/: rasters with QGIS styles (mean.tif, sd.tif, q05.tif, q50.tif, q95.tif, exceedance_T.tif),
    map.html, report.html, summary.json and posterior.geobgp. Nothing is there until all of it is.
    """
    from geobgp.cli.map_command import map_files

    map_files(options)


@cli.command(short_help="Make a map of the sample data.")
@click.option(
    "-o",
    "--output",
    default="geobgp-out",
    show_default=True,
    type=_PATH,
    metavar="OUT/",
    help="Folder to write.",
)
@click.option("--no-cache", is_flag=True, help="Neither read nor keep computed features.")
@_force
@_talk
def demo(**options: Any) -> None:
    """Map 4,446 simulated tick bites in the Netherlands."""
    from geobgp.cli.map_command import demo as run

    run(options)


@cli.command(short_help="Draw points from a known intensity.")
@click.option("--land", type=_PATH, metavar="FILE", help="Polygons of the land.")
@_ground
@click.option("--intensity", metavar="NUMBER|RASTER", help="Events per km², everywhere or as a raster.")
@click.option(
    "--posterior", type=_PATH, metavar="FILE", help="A posterior.geobgp: its land and its mean intensity."
)
@click.option("--seed", type=int, default=0, show_default=True, help="The same seed gives the same points.")
@click.option(
    "-o",
    "--output",
    required=True,
    type=_PATH,
    metavar="FILE",
    help="File to write: .gpkg, .geojson, .parquet or .csv (longitude, latitude).",
)
@_force
@_talk
def simulate(**options: Any) -> None:
    """Draw points on land from a known intensity."""
    from geobgp.cli.map_command import simulate as run

    run(options)


@cli.command(short_help="Say what is in a file.")
@click.argument("file", type=_PATH)
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def info(file: str, debug: bool) -> None:
    """Say what is in FILE: results of geobgp, a posterior, a raster, polygons, points."""
    from geobgp.cli.info import describe

    click.echo(describe(file))


@cli.command(short_help="Say how large the cache is, or empty it.")
@click.option("--clear", is_flag=True, help="Delete all stored features.")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def cache(clear: bool, debug: bool) -> None:
    """Say where computed features are kept and how large they are, or delete them."""
    from geobgp.prior.cache import cache_info, clear_cache

    found = cache_info()
    size = f"{found['files']:,} files, {found['bytes'] / 1e6:,.1f} MB"
    if clear:
        clear_cache()
        click.echo(f"Deleted {size} from {found['path']}")
    else:
        click.echo(f"{found['path']}: {size}")


# -- errors


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return the exit code: 0 fine, 1 the data or options are at fault, 2 usage.

    130 after Ctrl-C, 143 after a termination; nothing half-written is left in either case.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in arguments or bool(os.environ.get("GEOBGP_DEBUG"))
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _terminated)
    _mind_the_load()
    # Files that could not be written complain once more when they are forgotten.
    before = sys.unraisablehook
    sys.unraisablehook = before if debug else (lambda _: None)
    try:
        return _run(arguments, debug)
    finally:
        gc.collect()
        sys.unraisablehook = before


def _run(arguments: list[str], debug: bool) -> int:
    try:
        code = cli.main(args=arguments, prog_name="geobgp", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("Interrupted: nothing was written.", err=True)
        return 130
    except BrokenPipeError:  # what reads our output has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        if debug:
            raise
        from geobgp.cli.wording import explain

        click.echo(f"Error: {explain(error)}", err=True)
        return 1


def _mind_the_load() -> None:
    """Keep BLAS to one thread on a machine that is busy: its threads would wait for each other.

    On two cores with a load of 8 a fit with two threads takes fifteen times as long as with one.
    """
    if "numpy" in sys.modules or not hasattr(os, "getloadavg"):
        return
    if os.getloadavg()[0] >= (os.cpu_count() or 1):
        for name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
            os.environ.setdefault(name, "1")


def _terminated(number: int, frame: Any) -> NoReturn:
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
