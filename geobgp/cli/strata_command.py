"""``geobgp strata``: points with a column of labels in, a folder with a map for each label out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import geobgp
from geobgp.cli.options import StrataFiles, command_line
from geobgp.cli.results import read_named_regions
from geobgp.cli.workspace import RECORD, Steps, fill_folder, write_record
from geobgp.files import replacing
from geobgp.scale.strata import run_strata
from geobgp.scale.strata_maps import Strata
from geobgp.text import count

#: Joint draws behind the intervals of totals.
_SAMPLES = 500


def strata_files(options: StrataFiles, *, quiet: bool = False, verbose: bool = False) -> None:
    """Do what ``geobgp strata`` does.

    Parameters
    ----------
    options : StrataFiles
    quiet, verbose : bool
    """
    opens = ("index.html", "totals.gpkg")
    fill_folder(options, run_strata, _write, quiet=quiet, verbose=verbose, opens=opens)


def _write(folder: Path, strata: Strata, options: StrataFiles, steps: Steps, warnings: list[str]) -> None:
    rasters: dict[str, Path] = {}
    with steps.stage("rasters") as stage:
        for name, path in strata.raster_paths(folder).items():
            with steps.step(f"raster of {name}"):
                rasters[name] = strata[name].to_raster(path)[0]
            stage.step(len(rasters), len(strata))
    with steps.stage("totals") as stage:
        domain = strata.everything.domain
        regions = None if options.regions is None else read_named_regions(options.regions, domain)
        table = strata.totals(
            regions, n_samples=_SAMPLES, client=options.client, n_jobs=options.n_jobs, step=stage.step
        )
        strata.write_totals(table, folder / "totals.gpkg")
        strata.write_totals(table, folder / "totals.csv")
        stage.note(count(len(table), "row"))
    with steps.stage("table"), replacing(folder / "strata.csv") as temporary:
        strata.table().to_csv(temporary)
    with steps.stage("page"):
        strata.to_index(folder / "index.html", title=options.title)
    record: dict[str, Any] = {
        "geobgp": geobgp.__version__,
        "created": strata.everything.created,
        "options": options.record(),
        "strata": {name: path.name for name, path in rasters.items()},
        "failures": strata.failures,
        "choices": dict(strata.everything.choices),
        "warnings": warnings,
        "seconds": steps.seconds,
        "command": command_line(options, "strata"),
        "not_written": steps.failed,
    }
    with steps.step(RECORD):
        write_record(folder, record)
