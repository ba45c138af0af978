"""``geobgp map``: points and polygons in, a folder of results out."""

from __future__ import annotations

from pathlib import Path

from geobgp.auto.pipeline import run
from geobgp.cli.beforehand import check_beforehand
from geobgp.cli.messages import say, showing_warnings
from geobgp.cli.options import MapOptions
from geobgp.cli.results import write_results
from geobgp.cli.time_results import write_time_results
from geobgp.cli.workspace import Workspace
from geobgp.progress import shell_progress
from geobgp.text import size_text


def map_files(
    options: MapOptions, *, quiet: bool = False, verbose: bool = False, progress_form: str = "console"
) -> None:
    """Do what ``geobgp map`` does.

    Parameters
    ----------
    options : MapOptions
    quiet, verbose : bool
        Say nothing but warnings, or tell of every round of the fit.
    progress_form : {"console", "json"}
        "json" is for programs.
    """
    check_beforehand(options)
    progress = shell_progress(quiet=quiet, verbose=verbose, form=progress_form)
    with Workspace(options.output, force=options.force) as work, showing_warnings() as warnings:
        mapped = run(options, progress, keep_coordinates=options.show_points or bool(options.regions))
        with work.telling():
            write = write_results if options.time is None else write_time_results
            write(work.folder, mapped, options, progress, warnings)
            files = work.commit()
    if not quiet:
        progress.line(f"{sum(progress.seconds.values()):.1f} s in all")
        _where(work.target, files)


def _where(target: Path, files: list[Path]) -> None:
    """Say where the results are and what to open."""
    done = f"The results are in {target} all the same."
    say(f"{len(files)} files ({size_text(sum(f.stat().st_size for f in files))}) in {target}", done)
    say(f"Open {target / 'map.html'} in a browser and {target / 'map.qgz'} in QGIS.", done)
    say(f"How the map was made: {target / 'report.html'}", done)
