"""``geobgp risk``: cases, controls and land in, a folder with the relative risk out."""

from __future__ import annotations

import shlex
from pathlib import Path

from geobgp.auto.risk import RiskMapped, run_risk
from geobgp.cli.options import RiskFiles, look, option_words
from geobgp.cli.results import (
    about_file,
    file_names,
    left_out,
    read_named_regions,
    record_of,
    tell_variation,
    write_layers,
)
from geobgp.cli.workspace import RECORD, Steps, fill_folder, write_record
from geobgp.output.qgis_map import write_qgis
from geobgp.report.report import ReportInputs, write_report
from geobgp.text import count

#: The threshold of every map: the average risk.
AVERAGE = 1.0
_ABOUT = {
    "q50.tif": "posterior median of the relative risk, which the map shows",
    "mean.tif": "posterior mean of the relative risk",
    "exceedance_1.tif": "probability of a risk above the average",
    "tolerance.gpkg": "where the risk is raised or lowered with a probability of 97.5 %",
    "regions.gpkg": "relative risk by region, with intervals",
}


def risk_files(options: RiskFiles, *, quiet: bool = False, verbose: bool = False) -> None:
    """Do what ``geobgp risk`` does.

    Parameters
    ----------
    options : RiskFiles
    quiet, verbose : bool
    """
    fill_folder(options, run_risk, _write, quiet=quiet, verbose=verbose)


def _write(folder: Path, mapped: RiskMapped, options: RiskFiles, steps: Steps, warnings: list[str]) -> None:
    posterior = mapped.posterior.styled(**look(options))
    with steps.stage("posterior"):  # first: all else can be made from it
        posterior._known_variation()  # the file keeps it
        posterior.save(folder / "posterior.geobgp")
    made: list[Path] = []
    with steps.stage("rasters"):
        made = posterior.to_raster(folder, [AVERAGE])
    with steps.stage("tolerance"):
        posterior.tolerance_contours(folder / "tolerance.gpkg")
    regions = None
    if options.regions:
        with steps.stage("regions") as stage:
            regions = posterior.totals(
                read_named_regions(options.regions, posterior.domain, options.regions_by)
            )
            write_layers(folder / "regions.gpkg", regions=regions)
            stage.note(count(len(regions), "region"))
    with steps.stage("map"):
        posterior.to_map(
            folder / "map.html",
            threshold=AVERAGE,
            regions=regions,
            context=options.context,
            basemap=options.basemap,
        )
    with steps.stage("project"):
        write_qgis(posterior, folder / "map.qgz", made, thresholds=[AVERAGE], regions=regions)
    left = left_out(posterior, options, steps)
    tell_variation(posterior, steps)
    inputs = ReportInputs(
        sources={what.capitalize(): Path(path).name for what, path in options.files().items()},
        choices=mapped.choices,
        validation=left.checked,
        advice=left.advice,
        not_checked=left.why_not,
        warnings=[*warnings, *steps.told()],
        thresholds=[AVERAGE],
        regions=regions,
        files={n: _ABOUT.get(n, about_file(n)) for n in file_names(folder) if not n.endswith(".qml")},
        seconds=steps.seconds,
        command=risk_command_line(options),
    )
    with steps.stage("report"):
        write_report(folder / "report.html", posterior, inputs)
    with steps.step(RECORD):
        record = record_of(mapped, options, inputs, _counted(mapped))
        write_record(folder, record | {"not_written": steps.failed})


def _counted(mapped: RiskMapped) -> dict[str, int]:
    """Return how many persons there are, as ``summary.json`` holds it."""
    both = mapped.cases.counts, mapped.controls.counts
    return {
        "read": sum(c.n_read for c in both), "used": sum(c.n_used for c in both),
        "moved": sum(c.n_snapped for c in both), "dropped": sum(c.n_dropped for c in both),
        "cases": both[0].n_used, "controls": both[1].n_used,
    }  # fmt: skip


def risk_command_line(options: RiskFiles) -> str:
    """Return a command line that does the same, with names of files only.

    Examples
    --------
    >>> told = RiskFiles(cases="a.csv", controls="b.csv", land="l.gpkg", confounders=("age", "sex"), output="out")
    >>> risk_command_line(told)
    'geobgp risk a.csv b.csv --land l.gpkg --confounder age --confounder sex -o out'
    """
    files = [Path(str(getattr(options, name))).name for name in ("cases", "controls", "land")]
    return shlex.join(["geobgp", "risk", *files[:2], "--land", files[2], *option_words(options)])
