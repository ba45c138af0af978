"""``geobgp risk``: cases, controls and land in, a folder with the relative risk out."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import geobgp
from geobgp.auto.risk import RiskMapped, run_risk
from geobgp.cli.beforehand import check_beforehand
from geobgp.cli.messages import say, showing_warnings
from geobgp.cli.options import RiskFiles, look, option_words
from geobgp.cli.results import about_file, check_facts, left_out, read_named_regions
from geobgp.cli.workspace import RECORD, Workspace
from geobgp.output.qgis_map import write_qgis
from geobgp.progress import ConsoleProgress, Progress
from geobgp.report.report import ReportInputs, write_report
from geobgp.summary import plain
from geobgp.text import count, size_text

#: The threshold of every map: the average risk.
AVERAGE = 1.0
_ABOUT = {
    "mean.tif": "posterior mean of the relative risk",
    "q05.tif": "5 % quantile: the relative risk is above it with 95 % probability",
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
    check_beforehand(options)
    progress = Progress() if quiet else ConsoleProgress(verbose=verbose)
    with Workspace(options.output, force=options.force) as work, showing_warnings() as warnings:
        mapped = run_risk(options, progress)
        with work.telling():
            _write(work.folder, mapped, options, progress, warnings)
            files = work.commit()
    if not quiet:
        progress.line(f"{sum(progress.seconds.values()):.1f} s in all")
        done = f"The results are in {work.target} all the same."
        say(f"{len(files)} files ({size_text(sum(f.stat().st_size for f in files))}) in {work.target}", done)
        say(f"Open {work.target / 'map.html'} in a browser and {work.target / 'map.qgz'} in QGIS.", done)


def _write(
    folder: Path, mapped: RiskMapped, options: RiskFiles, progress: Progress, warnings: list[str]
) -> None:
    posterior = mapped.posterior.styled(**look(options))
    with progress.stage("rasters"):
        made = posterior.to_raster(folder, [AVERAGE])
        posterior.tolerance_contours(folder / "tolerance.gpkg")
    regions = None
    if options.regions:
        with progress.stage("regions") as stage:
            regions = posterior.totals(
                read_named_regions(options.regions, posterior.domain, options.regions_by)
            )
            regions.to_file(folder / "regions.gpkg", layer="regions", driver="GPKG")
            stage.note(count(len(regions), "region"))
    with progress.stage("map"):
        posterior.to_map(
            folder / "map.html",
            threshold=AVERAGE,
            regions=regions,
            context=options.context,
            basemap=options.basemap,
        )
    with progress.stage("project"):
        write_qgis(posterior, folder / "map.qgz", made, thresholds=[AVERAGE], regions=regions)
    with progress.stage("checks") as stage:
        checked, advice = left_out(posterior, stage)
    with progress.stage("posterior"):
        posterior.save(folder / "posterior.geobgp")
    names = sorted({p.name for p in folder.iterdir()} | {"report.html", RECORD})
    inputs = ReportInputs(
        sources={what.capitalize(): Path(path).name for what, path in options.files().items()},
        choices=mapped.choices,
        validation=checked,
        advice=advice,
        warnings=warnings,
        thresholds=[AVERAGE],
        regions=regions,
        files={n: _ABOUT.get(n, about_file(n)) for n in names if not n.endswith(".qml")},
        seconds=progress.seconds,
        command=risk_command_line(options),
    )
    with progress.stage("report"):
        write_report(folder / "report.html", posterior, inputs)
    text = json.dumps(
        plain(_record(mapped, options, inputs) | {"files": names}), indent=2, ensure_ascii=False
    )
    (folder / RECORD).write_text(text + "\n", "utf-8")


def _record(mapped: RiskMapped, options: RiskFiles, inputs: ReportInputs) -> dict[str, Any]:
    """Return what ``summary.json`` holds."""
    posterior, both = mapped.posterior, (mapped.cases.counts, mapped.controls.counts)
    return {
        "geobgp": geobgp.__version__,
        "title": posterior.title,
        "created": posterior.created,
        "inputs": inputs.sources,
        "options": options.record(),
        "points": {
            "read": sum(c.n_read for c in both), "used": sum(c.n_used for c in both),
            "moved": sum(c.n_snapped for c in both), "dropped": sum(c.n_dropped for c in both),
            "cases": both[0].n_used, "controls": both[1].n_used,
        },
        "choices": {name: {"value": c.value, "why": c.why} for name, c in mapped.choices.items()},
        "summary": {k: v for k, v in posterior.summary().to_dict().items() if k != "choices"},
        "checks": check_facts(None, inputs.validation, inputs.advice),
        "warnings": inputs.warnings,
        "seconds": inputs.seconds,
        "command": inputs.command,
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
