"""The command line: `geobgp map`, `risk`, `demo` and the others; imports are inside the commands."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NoReturn

import click

from geobgp import __version__
from geobgp.auto.options import OptionSet, TilesOptions
from geobgp.cli.options import (
    AnyStrataFiles,
    GroupedCommand,
    MapOptions,
    PrevalenceFiles,
    RiskFiles,
    SimulateOptions,
    ValueFiles,
    parse_options,
    shell_options,
)
from geobgp.files import new_run


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="geobgp")
def cli() -> None:
    """Map where things happen, with uncertainty, respecting coasts and water.

    `geobgp demo` shows it on sample data; `geobgp map points.gpkg --land coast.gpkg -o out/` on your own.
    """


def _command(
    name: str,
    options: type[OptionSet],
    run: str,
    short_help: str,
    *arguments: str,
    only: Sequence[str] | None = None,
    epilog: str | None = None,
    **defaults: Any,
) -> Callable[[Any], Any]:
    """Return a decorator that makes a command of a function which is its help.

    Parameters
    ----------
    name : str
    options : subclass of OptionSet
        Its options.
    run : str
        The function of `geobgp.cli.commands` that is given the options, and `quiet`, `verbose` and `form` for
        `geobgp.progress.shell_progress`.
    short_help : str
    *arguments : str
        Files that are named without a flag; those in brackets may be left out.
    only : sequence of str, optional
        The options that it has, if not all.
    epilog : str, optional
    **defaults
        Other defaults than in Python.
    """

    def decorate(function: Any) -> click.Command:
        def callback(quiet: bool, verbose: bool, debug: bool, form: str, dry_run: bool = False, **given: Any) -> None:
            from geobgp.cli import commands

            parsed: Any = given if only is not None else parse_options(options, given)
            asked = "preview_files" if dry_run else run
            getattr(commands, asked)(parsed, quiet=quiet, verbose=verbose, form=form)

        callback.__doc__ = function.__doc__
        forms = click.Choice(("console", "json"))
        with_talk: Any = click.option("--progress", "form", type=forms, default="console", hidden=True)(callback)
        if run in ("map_files", "risk_files", "place_files"):
            told = "Say how many cells, how much time and memory the map would take, and write nothing."
            with_talk = click.option("--dry-run", is_flag=True, help=told)(with_talk)
        for words, text in (
            (("--debug",), "Show the traceback of an error."),
            (("-v", "--verbose"), "Report every round of the fit."),
            (("-q", "--quiet"), "Print only warnings and errors."),
        ):
            with_talk = click.option(*words, is_flag=True, help=text)(with_talk)
        complete = shell_options(options, only, **defaults)(with_talk)
        for argument in reversed(arguments):
            complete = click.argument(argument.strip("[]"), required=not argument.startswith("["))(complete)
        return cli.command(name, cls=GroupedCommand, short_help=short_help, epilog=epilog)(complete)

    return decorate


_MAP_EXAMPLE = """\b
Example:
  geobgp map bites.gpkg --land coast.gpkg --water lakes.gpkg --threshold 0.3 -o bites/"""


@_command("map", MapOptions, "map_files", "Map the intensity of points on land.", "[points]", epilog=_MAP_EXAMPLE)
def map_command() -> None:
    """Map the intensity of POINTS (GeoPackage, GeoParquet, CSV, ...) on land.

    Writes to OUT/: rasters with QGIS styles (mean.tif, sd.tif, q05.tif, q50.tif, q95.tif, exceedance_T.tif; q025.tif
    and q975.tif with --interval 0.95), map.qgz (a QGIS project), map.html, report.html, summary.json and
    posterior.geobgp. They appear together, at the end. What could not be made is listed, and the exit code is 3.
    """


@_command("risk", RiskFiles, "risk_files", "Map the relative risk of cases against controls.", "cases", "[controls]")
def risk_command() -> None:
    """Map the relative risk of CASES against CONTROLS, files with a row per person, on land.

    With --status both are in the one file CASES.

    Writes to OUT/: rasters with QGIS styles (q50.tif, q05.tif, ..., exceedance_1.tif), tolerance.gpkg, map.qgz (a QGIS
    project), map.html, report.html, summary.json and posterior.geobgp. They appear together, at the end. What could
    not be made is listed, and the exit code is 3.
    """


@_command("values", ValueFiles, "place_files", "Map a measured quantity from samples.", "samples")
def values_command() -> None:
    """Map the quantity that was measured at the places of SAMPLES (GeoPackage, CSV, ...) on land.

    Writes to OUT/: rasters with QGIS styles (mean.tif, sd.tif, q05.tif, ..., exceedance_T.tif), map.qgz (a QGIS
    project), map.html, report.html, summary.json and posterior.geobgp. They appear together, at the end. What could
    not be made is listed, and the exit code is 3.
    """


@_command("prevalence", PrevalenceFiles, "place_files", "Map a prevalence from surveys.", "surveys")
def prevalence_command() -> None:
    """Map the share of positives among those tested at the places of SURVEYS (GeoPackage, CSV, ...) on land.

    Writes to OUT/: rasters with QGIS styles (mean.tif, sd.tif, q05.tif, ..., exceedance_T.tif), map.qgz (a QGIS
    project), map.html, report.html, summary.json and posterior.geobgp. They appear together, at the end. What could
    not be made is listed, and the exit code is 3.
    """


@_command("strata", AnyStrataFiles, "strata_files", "Map each value of a column by itself.", "[points]", "[controls]")
def strata_command() -> None:
    """Map each value of a column by itself, all on the same cells: diseases, ages, species.

    The column is one of POINTS, or of --areas; or POINTS are cases, with CONTROLS in a second file or identified by
    --status.

    Writes to OUT/: index.html (small maps under one legend), map.html and report.html with a switch of strata, map.qgz
    (a QGIS project with a group for each) with a folder of rasters of each, map-NAME.tif, intensity.nc, totals.gpkg
    and totals.csv, strata.csv, strata.geobgp and summary.json. They appear together, at the end. What could not be
    made is listed, and the exit code is 3.
    """


@_command("tiles", TilesOptions, "tiles_files", "Map land of any size, tile by tile.", "points")
def tiles_command() -> None:
    """Map the intensity of POINTS on land that is too large for one fit, tile by tile.

    Writes to OUT/: mosaic.tif with its QGIS style, mosaic.zarr, summary.json, and tiles/. To resume a run
    that was interrupted, give the same folder again.
    """


@_command(
    "demo",
    MapOptions,
    "map_demo",
    "Make a map of the sample data.",
    only=("cache", "output", "force"),
    output="geobgp-out",
)
def demo_command() -> None:
    """Map 4,446 simulated tick bites in the Netherlands."""


@_command("simulate", SimulateOptions, "simulate_file", "Draw points from a known intensity.")
def simulate_command() -> None:
    """Draw points on land from a known intensity."""


@cli.command(short_help="Describe a file or a folder of results.")
@click.argument("file")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def info(file: str, as_json: bool, debug: bool) -> None:
    """Describe FILE: a folder of results, a posterior, a raster, netCDF, a QGIS project, polygons, points."""
    from geobgp.cli.info import describe
    from geobgp.cli.messages import say

    text = describe(file, as_json=as_json)
    if as_json:
        click.echo(text)
    else:
        say(text)


@cli.command("qgis-plugin", short_help="Write the plugin for QGIS, or install it.")
@click.option("-o", "--output", metavar="FILE", help="Zip to write, for QGIS's plugin manager: geobgp-qgis.zip.")
@click.option("--install", is_flag=True, help="Put it into a profile of the QGIS on this machine.")
@click.option("--profile", default="default", show_default=True, help="The profile of QGIS to install into.")
@click.option("--force", is_flag=True, help="Replace a zip that exists.")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def qgis_plugin(output: str | None, install: bool, profile: str, force: bool, debug: bool) -> None:
    """Write the plugin that makes maps from within QGIS, or install it.

    In QGIS: Plugins, Manage and Install Plugins, Install from ZIP. It runs geobgp in a Python of its own, which it can
    set up; installed with --install it uses this one.
    """
    from geobgp.cli.plugin import install_plugin, write_plugin

    if output is None and not install:
        raise click.UsageError("Give a file to write, -o geobgp-qgis.zip, or --install.")
    if output is not None:
        click.echo(f"Wrote {write_plugin(output, force=force)}")
        click.echo("In QGIS: Plugins, Manage and Install Plugins, Install from ZIP.")
    if install:
        click.echo(f"Wrote {install_plugin(profile)}")
        click.echo("Restart QGIS, and tick geobgp under Plugins, Manage and Install Plugins, Installed.")


@cli.command("rerun", short_help="Repeat a run from its summary.json.")
@click.argument("summary")
@click.option("-o", "--output", metavar="OUT/", required=True, help="Folder to write.")
@click.option("--inputs", metavar="FOLDER", multiple=True, help="Where to look for the inputs; may be repeated.")
@click.option("--input", "named", metavar="NAME=PATH", multiple=True, help="Where one of them is; may be repeated.")
@click.option("--changed", is_flag=True, help="Go on where inputs have changed.")
@click.option("--force", is_flag=True, help="Replace what an earlier run wrote.")
@click.option("-q", "--quiet", is_flag=True, help="Print only warnings and errors.")
@click.option("-v", "--verbose", is_flag=True, help="Report every round of the fit.")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def rerun_command(
    summary: str,
    output: str,
    inputs: tuple[str, ...],
    named: tuple[str, ...],
    changed: bool,
    force: bool,
    quiet: bool,
    verbose: bool,
    debug: bool,
) -> None:
    """Repeat the run of SUMMARY, a summary.json or the folder with it, into another folder.

    Inputs are known by their SHA-256. They are looked for by name, in this folder and beside the results, three
    folders deep, or where --inputs and --input say. What has changed since is reported, and refused unless you agree
    or give --changed. Where the clock ended a search, it ends at the same place. At the end the rasters are compared.
    """
    from geobgp.cli.rerun import rerun

    if wrong := next((word for word in named if "=" not in word), None):
        raise click.UsageError(f"--input {wrong}: give the name that the input had and where it is, NAME=PATH.")
    rerun(
        summary,
        output,
        lambda name, words: cli.commands[name].make_context(name, words).params,
        folders=inputs,
        named=dict(word.split("=", 1) for word in named),
        accept=changed,
        force=force,
        quiet=quiet,
        verbose=verbose,
    )


@cli.command("metadata", short_help="Write a template for what only you know.")
@click.argument("file", required=False)
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def metadata_command(file: str | None, debug: bool) -> None:
    """Write a template of metadata into FILE, or show it: what only you know, for gather.html.

    Case definition, period, source of the denominator, ethics, funding, ...; --metadata FILE takes it.
    """
    from geobgp.cli.commands import write_template

    write_template(file)


@cli.command(short_help="Show the size of the cache, limit it, or empty it.")
@click.option("--clear", is_flag=True, help="Delete all stored features.")
@click.option(
    "--max", "limit", metavar="SIZE", help="Keep it below this size, such as 2GB: what was used least recently goes."
)
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def cache(clear: bool, limit: str | None, debug: bool) -> None:
    """Show where computed features are kept and how large they are, limit their size, or delete them."""
    from geobgp.prior.cache import cache_info, clear_cache, limit_cache
    from geobgp.text import bytes_in, count, size_text

    before = cache_info()
    size = f"{count(before['files'], 'file')}, {size_text(before['bytes'])}"
    if limit is not None:
        n_bytes = bytes_in(limit)
        if n_bytes is None:
            raise click.BadParameter(f"{limit!r} is not a size. Write a number and a unit, such as 2GB or 500MB.")
        deleted = limit_cache(n_bytes)
        click.echo(f"The cache is kept below {size_text(n_bytes)}; {count(deleted, 'file')} deleted.")
    elif clear:
        clear_cache()
        click.echo(f"Deleted {size} from {before['path']}")
    else:
        most = f" (at most {size_text(before['limit'])})" if before["limit"] is not None else ""
        click.echo(f"{before['path']}: {size}{most}")


# -- errors


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return the exit code.

    0: all results are there. 1: there are none; the data or options are at fault, or geobgp is. 2: wrong usage.
    3: the results are there but for some, which are listed. 130 after Ctrl-C, 143 after a termination: a run that had
    begun to write results leaves those that were finished, and no file is ever half-written.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in arguments or bool(os.environ.get("GEOBGP_DEBUG"))
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _terminated)
    _mind_the_load()
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):  # a name in other letters than the console has ends no run
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    # Files that could not be written complain once more when they are forgotten.
    before = sys.unraisablehook
    sys.unraisablehook = before if debug else (lambda _: None)
    try:
        return _run(arguments, debug)
    finally:
        gc.collect()
        sys.unraisablehook = before


def _run(arguments: list[str], debug: bool) -> int:
    new_run()
    try:
        code = cli.main(args=arguments, prog_name="geobgp", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except click.ClickException as error:
        if debug and error.__cause__ is not None:
            traceback.print_exception(error.__cause__)
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt) as error:
        click.echo(str(error.__cause__ or error) or "Interrupted: nothing was written.", err=True)
        return 130
    except BrokenPipeError:  # what reads our output has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        if debug:
            raise
        from geobgp.cli.messages import explain

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
