"""``geobgp map``: points and polygons in, a folder of results out."""

from __future__ import annotations

from geobgp.auto.pipeline import Mapped, run
from geobgp.cli.options import MapOptions
from geobgp.cli.results import write_results
from geobgp.cli.time_results import write_time_results
from geobgp.cli.workspace import fill_folder
from geobgp.progress import Progress


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
    write = write_results if options.time is None else write_time_results
    fill_folder(options, _make, write, quiet=quiet, verbose=verbose, form=progress_form, report="report.html")


def _make(options: MapOptions, progress: Progress) -> Mapped:
    return run(options, progress, keep_coordinates=options.show_points or bool(options.regions))
