"""``geobgp strata``: points with a column of labels in, a folder with a map for each label out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import geobgp
from geobgp.cli.beforehand import check_beforehand
from geobgp.cli.messages import say, showing_warnings
from geobgp.cli.options import StrataFiles, command_line
from geobgp.cli.results import read_named_regions
from geobgp.cli.workspace import RECORD, Workspace
from geobgp.progress import ConsoleProgress, Progress
from geobgp.scale.strata import run_strata
from geobgp.scale.strata_maps import Strata
from geobgp.summary import plain
from geobgp.text import count, size_text

#: Joint draws behind the intervals of totals.
_SAMPLES = 500


def strata_files(options: StrataFiles, *, quiet: bool = False, verbose: bool = False) -> None:
    """Do what ``geobgp strata`` does.

    Parameters
    ----------
    options : StrataFiles
    quiet, verbose : bool
    """
    check_beforehand(options)
    progress = Progress() if quiet else ConsoleProgress(verbose=verbose)
    with Workspace(options.output, force=options.force) as work, showing_warnings() as warnings:
        strata = run_strata(options, progress)
        with work.telling():
            _write(work.folder, strata, options, progress, warnings)
            files = work.commit()
    if not quiet:
        progress.line(f"{sum(progress.seconds.values()):.1f} s in all")
        done = f"The results are in {work.target} all the same."
        say(f"{len(files)} files ({size_text(sum(f.stat().st_size for f in files))}) in {work.target}", done)
        say(
            f"Open {work.target / 'index.html'} in a browser and {work.target / 'totals.gpkg'} in QGIS.", done
        )


def _write(
    folder: Path, strata: Strata, options: StrataFiles, progress: Progress, warnings: list[str]
) -> None:
    with progress.stage("rasters") as stage:
        rasters = strata.to_raster(folder, stage.step)
    with progress.stage("totals") as stage:
        domain = strata.everything.domain
        regions = None if options.regions is None else read_named_regions(options.regions, domain)
        table = strata.totals(
            regions, n_samples=_SAMPLES, client=options.client, n_jobs=options.n_jobs, step=stage.step
        )
        strata.write_totals(table, folder / "totals.gpkg")
        strata.write_totals(table, folder / "totals.csv")
        stage.note(count(len(table), "row"))
    with progress.stage("page"):
        strata.to_index(folder / "index.html", title=options.title)
        strata.table().to_csv(folder / "strata.csv")
    names = sorted({p.name for p in folder.iterdir()} | {RECORD})
    record: dict[str, Any] = {
        "geobgp": geobgp.__version__,
        "created": strata.everything.created,
        "options": options.record(),
        "strata": {name: path.name for name, path in rasters.items()},
        "failures": strata.failures,
        "choices": dict(strata.everything.choices),
        "warnings": warnings,
        "seconds": progress.seconds,
        "command": command_line(options, "strata"),
        "files": names,
    }
    text = json.dumps(plain(record), indent=2, ensure_ascii=False, allow_nan=False)
    (folder / RECORD).write_text(text + "\n", "utf-8")
