"""What a run writes into its folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import geopandas as gpd
import pandas as pd

import geobgp
from geobgp.checks.crossval import check_warning
from geobgp.checks.hotspots import hotspots_above
from geobgp.checks.residuals import check
from geobgp.cli.options import MapOptions, PrevalenceFiles, RiskFiles, ValueFiles, command_line, render_option
from geobgp.cli.workspace import RECORD, Steps, files_in, write_record
from geobgp.data.areas import AreaCounts
from geobgp.data.counts import Counts
from geobgp.data.measurements import Measurements
from geobgp.data.persons import CaseControl
from geobgp.errors import CheckWarning, GeobgpError, InputWarning, SizeError, option, render_text, warn
from geobgp.files import replacing, write_csv
from geobgp.inference.mixture import quantile_words
from geobgp.land.regions import name_column, read_regions
from geobgp.output.grids import View
from geobgp.output.qgis import HOTSPOTS, write_qgis
from geobgp.output.qgis import write_layers as write_polygons
from geobgp.output.rasters import write_rasters
from geobgp.privacy import told_origin
from geobgp.report.crate import CRATE, write_crate
from geobgp.report.gather import NAMES, Study, write_gather
from geobgp.report.report import HeldOutChecks, ReportInputs, held_out, too_few, write_report
from geobgp.text import count, listed, number, percent, size_text, whole_percent
from geobgp.web import maps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from geobgp.auto.options import OptionSet
    from geobgp.auto.pipeline import Mapped
    from geobgp.land.domain import Domain
    from geobgp.posterior import Posterior
    from geobgp.progress import Stage


# -- Results: what ``geobgp map`` and ``geobgp risk`` write into their folder, file by file ------------------


#: Where the rasters of periods are.
RASTERS = "periods"
#: The threshold of every map of risk: the average.
AVERAGE = 1.0
_COMMANDS = {RiskFiles: "risk", ValueFiles: "values", PrevalenceFiles: "prevalence"}
_COLOURS = {"good": "green", "doubt": "yellow", "bad": "red"}
_ABOUT = {
    "mean.tif": "posterior mean of the {}",
    "sd.tif": "posterior standard deviation of the {}",
    "q50.tif": "posterior median of the {}",
    "coverage.tif": "share of each cell that is land",
    "map.html": "interactive map; opens in any browser, without network",
    "map.qgz": "QGIS project of all layers, styled",
    "map.gpkg": "boundary of the land, and what probably exceeds a threshold: polygons of the QGIS project",
    "report.html": "this report",
    "gather.html": "checklist of GATHER, with blanks for the author",
    "gather.csv": "gather.html as a table",
    "ro-crate-metadata.json": "description of this folder for machines (RO-Crate 1.1)",
    "regions.gpkg": "numbers by region, with intervals",
    "regions.csv": "regions.gpkg as a table",
    "effects.csv": "what covariates do: ratios with intervals, and the evidence for each",
    "hotspots.gpkg": "the connected parts of the land that exceed a threshold everywhere at once, with their numbers",
    "hotspots.csv": "hotspots.gpkg as a table",
    "tolerance.gpkg": "where the risk is raised or lowered with a probability of 97.5 %",
    "summary.json": "numbers and choices, for programs",
    "periods": "rasters of every period, mean_2020-03.tif (q50_2020-03.tif of a rate) and the like, with one legend",
    "intensity.nc": "all periods in one netCDF file, by CF conventions",
    "ratio_per_year.tif": "trend: the {} from one year to the next, as a ratio",
    "change_per_year.tif": "trend: how much the {} changes from one year to the next",
    "probability_of_increase.tif": "probability that the {} rises over the periods",
    "posterior.geobgp": "the fitted model; geobgp.Posterior.load reads it",
}


def write_results(
    folder: Path,
    mapped: Mapped,
    options: MapOptions | RiskFiles | ValueFiles | PrevalenceFiles,
    steps: Steps,
    warnings: list[str],
) -> None:
    """Write everything that was asked for; a step that fails takes no other with it.

    Parameters
    ----------
    folder : path
    mapped : Mapped
        In space or over periods.
    options : MapOptions or RiskFiles
    steps : Steps
        With the time of the stages that led here; is told what failed.
    warnings : list of str
        What was warned of, in the words of the shell.
    """
    posterior = mapped.posterior.styled(**options.look())
    periods, of_risk = posterior.periods, posterior.exposure_kind == "risk"
    counts = mapped.counts if isinstance(mapped.counts, (Counts, AreaCounts)) else None
    thresholds = sorted({*options.thresholds, *([AVERAGE] if of_risk else [])})
    with steps.stage("posterior") as stage:  # first: all else can be made from it
        posterior._known_variation()  # the file keeps it
        stage.note(size_text(posterior.save(folder / "posterior.geobgp").stat().st_size))
    ahead = None
    if getattr(options, "forecast", None):
        with steps.stage("forecast"):
            ahead = posterior.forecast(options.forecast)
    view, rasters = View(posterior, ahead), list[Path]()
    with steps.stage("rasters") as stage:
        how: dict[str, Any] = {} if periods is None else {"quantiles": posterior.quantiles[::2]}
        place = folder if periods is None else folder / RASTERS
        rasters += posterior.to_raster(place, thresholds, forecast=ahead, **how)
        stage.note(f"{len(rasters)} files")
    if periods is not None and periods.n > 1:
        with steps.stage("trend"):
            rasters += write_trend(posterior, folder)
    if periods is not None:
        with steps.stage("netCDF") as stage:
            path = posterior.to_netcdf(folder / "intensity.nc", thresholds, forecast=ahead)
            stage.note(size_text(path.stat().st_size))
    if of_risk:
        with steps.stage("tolerance"):
            posterior.tolerance_contours(folder / "tolerance.gpkg")
    regions = None
    if options.regions or (posterior.areas is not None and posterior.areas.regions is not None):
        with steps.stage("regions") as stage:
            layers = region_totals(posterior, options.regions, options.regions_by, thresholds)
            write_layers(folder / "regions.gpkg", **layers)
            regions = layers["regions"]
            write_csv(folder / "regions.csv", regions)
            over = "" if periods is None else f" in {periods.words()}"
            stage.note(f"{count(len(regions) // (1 if periods is None else periods.n), 'region')}{over}")
    hotspots = None
    if thresholds:
        with steps.stage("hot spots") as stage:
            table = hotspots_above(posterior, thresholds)
            stage.note(write_hotspots(table, folder))
            hotspots = table  # the project refers to its file
    if posterior.design.blocks:
        with steps.stage("effects") as stage:
            effects = posterior.effects(evidence=True)
            write_csv(folder / "effects.csv", effects)
            for sentence in effects.attrs["sentences"]:
                warn(InputWarning(sentence, option="covariates"))
            stage.note(listed(posterior.design.covariates))
    with steps.stage("map") as stage:
        stage.note(size_text(write_map(view, counts, options, thresholds, regions, hotspots, folder).stat().st_size))
    with steps.stage("project"):
        write_qgis(view, folder / "map.qgz", rasters, thresholds=thresholds, regions=regions, hotspots=hotspots)
    checks = None
    if options.checks and periods is None and isinstance(counts, Counts) and not posterior.protection:
        with steps.stage("pieces of land"):
            checks = check(posterior, counts.values)
    left = left_out(posterior, options, steps)
    tell_variation(posterior, steps)
    inputs = ReportInputs(
        sources={what.capitalize(): Path(path).name for what, path in options.files().items()},
        counts=counts,
        choices=mapped.choices,
        checks=checks,
        validation=left.checked,
        advice=left.advice,
        not_checked=left.why_not,
        warnings=[*warnings, *steps.told()],
        thresholds=thresholds,
        regions=regions,
        hotspots=hotspots,
        files=shown_files(file_names(folder), posterior.quantity),
        seconds=steps.seconds,
        command=command_line(options, _COMMANDS.get(type(options), "map")),
    )
    with steps.stage("report"):
        write_report(folder / "report.html", view, inputs)
    study = Study.of(options.metadata)
    with steps.stage("GATHER") as stage:
        write_gather(folder, posterior, inputs, study)
        stage.note("gather.html, gather.csv")
    with steps.step(CRATE):
        files = {name: about_file(name.split("/")[0], posterior.quantity) for name in file_names(folder)}
        write_crate(folder, posterior, files, study=study, command=inputs.command)
    with steps.step(RECORD):
        record = record_of(mapped, options, inputs, counted(mapped)) | {"not_written": steps.failed}
        if periods is not None:
            record["periods"] = {
                "every": periods.every,
                "labels": list(periods.labels),
                "level": posterior.level().drop(columns="start").to_dict("list"),
            }
        write_record(folder, record)


def write_trend(posterior: Posterior, folder: Path) -> list[Path]:
    """Write the rate of change and the probability of an increase as rasters."""
    trend, per = posterior.trend(n_samples=200), posterior.time.per
    data = trend[["p_increase"]].rename(p_increase="probability_of_increase")
    if posterior.link.ratio is None:
        data[f"change_per_{per.replace(' ', '_')}"] = trend["change"]
    else:
        data[f"ratio_per_{per.replace(' ', '_')}"] = (trend["change"] + 1.0).assign_attrs(
            long_name=f"{_compared(posterior.quantity)} from one {per} to the next, as a ratio", units="1"
        )
    return write_rasters(data, folder, title=f"Trend of {posterior.provenance['title']}")


def _compared(quantity: str) -> str:
    """Return what a ratio of a quantity is of: the odds of a share."""
    return f"odds of the {quantity}" if quantity in ("prevalence", "probability") else quantity


def write_map(
    view: View,
    counts: Counts | AreaCounts | None,
    options: MapOptions | RiskFiles | ValueFiles | PrevalenceFiles,
    thresholds: Sequence[float],
    regions: gpd.GeoDataFrame | None,
    hotspots: gpd.GeoDataFrame | None,
    folder: Path,
) -> Path:
    """Write the interactive map; of periods that are too many for a page, the last one alone."""
    how: dict[str, Any] = {
        "thresholds": thresholds or None,
        "context": options.context,
        "basemap": options.basemap,
        "show_points": getattr(options, "show_points", False),
        "points": getattr(counts, "coordinates", None),
    }
    try:
        page = maps.posterior_map(view, regions=regions, hotspots=hotspots, **how)
    except SizeError as error:
        if view.fitted is None:
            raise
        label = view.fitted.labels[-1]
        warn(
            InputWarning(
                f"{error.message} map.html shows the last {view.fitted.noun} alone, {label}.",
                option="every",
                found=view.fitted.n,
                remedy=f"Use longer periods ({option('every')}), or map.qgz, which plays all of them.",
            )
        )
        last = None if regions is None else regions[regions["period"] == label]
        if hotspots is not None:
            hotspots = hotspots[hotspots["period"] == label].drop(columns=["period", "start"])
        page = maps.posterior_map(view.posterior.at(label), regions=last, hotspots=hotspots, **how)
    return maps.save(page, folder / "map.html")


def file_names(folder: Path) -> list[str]:
    """Return the names of all files of results, those that are still to be written too."""
    return sorted({*files_in(folder), "report.html", *NAMES, CRATE, RECORD})


def shown_files(names: Sequence[str], quantity: str = "intensity") -> dict[str, str]:
    """Return what the files of results are: styles are not told, and of a folder within it the folder."""
    shown = sorted({name.split("/")[0] for name in names if not name.endswith(".qml")})
    return {name: about_file(name, quantity) for name in shown}


def write_layers(path: Path, **layers: gpd.GeoDataFrame) -> None:
    """Write layers of a GeoPackage, all of them or none."""
    with replacing(path) as temporary:
        for name, frame in layers.items():
            frame.to_file(temporary, layer=name, driver="GPKG")


def write_hotspots(hotspots: gpd.GeoDataFrame, folder: Path) -> str:
    """Write hot spots as polygons and as a table, and return how many there are above each threshold."""
    write_polygons(folder / HOTSPOTS, {"hotspots": hotspots})
    write_csv(folder / "hotspots.csv", hotspots)
    above = hotspots["threshold"].value_counts().sort_index()
    return ", ".join(f"{n:,} above {number(value, 6)}" for value, n in above.items()) or "none"


def read_named_regions(path: str | None, domain: Domain, by: str | None = None) -> gpd.GeoDataFrame:
    """Return regions with a name; polygons of one name are one region, those without a name regions of their own."""
    frame = read_regions(path, domain)
    column = by or name_column(frame)
    numbered = pd.Series([f"region {k + 1}" for k in range(len(frame))], index=frame.index)
    if column is None:
        names = numbered
    elif column not in frame.columns:
        return read_regions(frame, domain, by=column)  # which says what there is
    else:
        names = frame[column].astype(object).where(frame[column].notna(), numbered).astype(str)
    named = gpd.GeoDataFrame({"name": names}, geometry=frame.geometry, crs=frame.crs)
    return read_regions(named, domain, by="name")


def region_totals(
    posterior: Posterior, path: str | None, by: str | None = None, thresholds: Sequence[float] = ()
) -> dict[str, gpd.GeoDataFrame]:
    """Return totals of regions, with a name and the number observed; over periods their trends too.

    Polygons of one name are one region. Without regions, those of the areas whose counts made the map.
    """
    own = None if posterior.areas is None else posterior.areas.regions
    frame = own if path is None and own is not None else read_named_regions(path, posterior.domain, by)
    counted = posterior.is_summed and posterior.exposure_kind != "risk"
    how: dict[str, Any] = {"predicted": True} if counted else {}
    layers = {"regions": posterior.totals(frame, thresholds=thresholds, **how)}
    if posterior.periods is not None and posterior.periods.n > 1:
        layers["trend"] = posterior.trend(frame)
    return layers


def about_file(name: str, quantity: str = "intensity") -> str:
    """Return what a file of results is."""
    if name.startswith("exceedance_"):
        return f"probability of exceeding {name.removeprefix('exceedance_').removesuffix('.tif')}"
    if name.startswith("q") and name.endswith(".tif") and name not in _ABOUT:
        return quantile_words(name.removesuffix(".tif"))
    return _ABOUT.get(name, "").format(_compared(quantity) if name.startswith("ratio_per_") else quantity)


def left_out(
    posterior: Posterior, options: MapOptions | RiskFiles | ValueFiles | PrevalenceFiles, steps: Steps
) -> HeldOutChecks:
    """Leave out blocks or areas in turn, or the last periods.

    What fails is warned of, as is that nothing could be left out.
    """
    why_not = too_few(posterior) if options.checks else f"{option('checks')} was given."
    if why_not:
        return HeldOutChecks(why_not=render_text(why_not, render_option))
    out = HeldOutChecks(why_not="They failed.")
    with steps.stage("checks") as stage:
        try:
            out = held_out(posterior, render_option)
        except GeobgpError as error:
            return HeldOutChecks(why_not=not_run(error, stage))
        checked = out.checked
        what = (
            f"{len(checked.blocks):,} held-out {checked.what}"
            if hasattr(checked, "blocks")
            else (f"{count(len(checked.table), 'number')} of the last periods")
        )
        stage.note(f"{percent(checked.coverage)} of {what} within their {whole_percent(checked.interval)} interval")
        warning = check_warning(posterior, checked) if hasattr(checked, "blocks") else None
        if warning is not None:
            warn(warning)
    return out


def not_run(error: GeobgpError, stage: Stage) -> str:
    """Warn that a check could not be run, and return why."""
    stage.note("not run")
    warn(CheckWarning(f"The checks were not run: {error.message}", found=error.found, remedy=error.remedy))
    return error.words(render_option)


def tell_variation(posterior: Posterior, steps: Steps) -> None:
    """Say whether the map varies at all, with what was left out before."""
    with steps.stage("variation") as stage:
        variation = posterior.summary().get("variation")
        if variation is not None:
            stage.note(variation["sentence"], _COLOURS[variation["tone"]])


def _check_facts(inputs: ReportInputs) -> dict[str, Any]:
    """Return the numbers of the checks, as ``summary.json`` holds them."""
    checks, checked = inputs.checks, inputs.validation
    out: dict[str, Any] = {"not_run": inputs.not_checked} if inputs.not_checked else {}
    if checked is not None:
        out |= checked.facts() | ({"try": list(inputs.advice)} if hasattr(checked, "blocks") else {})
    if checks is not None:
        out["empty_nodes"] = {"observed": checks.empty_observed, "expected": checks.empty_expected}
    return out


def counted(mapped: Any) -> dict[str, Any]:
    """Return what was counted, as ``summary.json`` holds it."""
    if isinstance(mapped.counts, CaseControl):
        both = mapped.counts.cases.counts, mapped.counts.controls.counts
        return {
            "read": sum(c.n_read for c in both), "used": sum(c.n_used for c in both),
            "moved": sum(c.n_snapped for c in both), "dropped": sum(c.n_dropped for c in both),
            "cases": both[0].n_used, "controls": both[1].n_used,
        }  # fmt: skip
    if isinstance(mapped.counts, Measurements):
        facts = mapped.counts.facts
        whole = mapped.counts.counts
        return {"read": whole.n_read if whole is not None else facts["used"]} | dict(facts)
    counts = mapped.counts
    if isinstance(counts, AreaCounts):
        placed = 0 if counts.located is None else round(float(counts.located.sum()))
        return {
            "read": placed + counts.n_used + sum(counts.lost.values()), "used": placed + counts.n_used, "moved": 0,
            "dropped": sum(counts.lost.values()),
            "areas": len(counts.names), "in_areas": counts.n_used, "suppressed": int(counts.hidden.sum()),
            "land_in_areas": counts.covered,
        }  # fmt: skip
    undated = {}
    if counts.periods is not None:
        undated = {"undated": counts.n_untimed, "outside_the_periods": counts.n_outside}
    return undated | {
        "read": counts.n_read, "used": counts.n_used, "moved": counts.n_snapped,
        "dropped": counts.n_dropped, "rows_without_point": counts.n_missing,
        "largest_move": counts.max_snap_distance, "total_weight": counts.total_weight,
    }  # fmt: skip


def record_of(mapped: Mapped, options: OptionSet, inputs: ReportInputs, points: dict[str, Any]) -> dict[str, Any]:
    """Return what ``summary.json`` holds, with what was counted as its ``points``."""
    posterior = mapped.posterior
    return {
        "geobgp": geobgp.__version__,
        "title": posterior.title,
        "drawn": posterior.drawn,
        "created": posterior.created,
        "inputs": inputs.sources,
        "origin": told_origin(posterior),
        "options": options.record(),
        "points": points,
        "choices": {name: {"value": c.value, "why": c.why} for name, c in mapped.choices.items()},
        "summary": {k: v for k, v in posterior.summary().to_dict().items() if k != "choices"},
        "variation": posterior.summary().to_dict().get("variation"),
        "checks": _check_facts(inputs),
        "warnings": inputs.warnings,
        "seconds": inputs.seconds,
        "command": inputs.command,
    }  # fmt: skip
