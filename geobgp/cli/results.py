"""What a run writes into its folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import geopandas as gpd
import pandas as pd

import geobgp
from geobgp.auto.pipeline import Mapped
from geobgp.checks.crossval import check_warning, too_few_to_hold_out, what_to_try
from geobgp.checks.residuals import check
from geobgp.cli.options import MapOptions, RiskFiles, command_line, render_option
from geobgp.cli.workspace import RECORD, Steps, files_in, write_record
from geobgp.data.areas import AreaCounts
from geobgp.errors import CheckWarning, GeobgpError, InputWarning, SizeError, option, render_text, warn
from geobgp.files import replacing
from geobgp.inference.mixture import quantile_words
from geobgp.land.regions import name_column, read_regions
from geobgp.output.figures import Course
from geobgp.output.qgis import write_dated, write_qgis
from geobgp.output.rasters import write_rasters
from geobgp.report.report import ReportInputs, write_report, write_time_report
from geobgp.text import count, percent, size_text, whole_percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from geobgp.auto.options import OptionSet
    from geobgp.auto.pipeline import RiskMapped
    from geobgp.checks.crossval import CrossValidation
    from geobgp.checks.forecasts import ForecastCheck
    from geobgp.data.counts import Counts
    from geobgp.land.domain import Domain
    from geobgp.output.qgis import Dated
    from geobgp.posterior import Posterior
    from geobgp.progress import Stage


# -- Results: what ``geobgp map`` writes into its folder, file by file ---------------------------------------


_REGION_SAMPLES = 500
_COLOURS = {"good": "green", "doubt": "yellow", "bad": "red"}
_ABOUT = {
    "mean.tif": "posterior mean of the intensity",
    "sd.tif": "its standard deviation",
    "q50.tif": "median",
    "coverage.tif": "share of each cell that is land",
    "map.html": "interactive map; opens in any browser, without network",
    "map.qgz": "QGIS project: all of it, styled",
    "map.gpkg": "shoreline, and the land that probably exceeds a threshold; polygons of the QGIS project",
    "report.html": "this report",
    "regions.gpkg": "expected numbers by region, with intervals",
    "summary.json": "numbers and choices, for programs",
    "periods": "rasters of every period, mean_2020-03.tif (q50_2020-03.tif of a rate) and the like, with one legend",
    "intensity.nc": "all periods in one netCDF file, by CF conventions",
    "ratio_per_year.tif": "trend: the intensity from one year to the next, as a ratio",
    "probability_of_increase.tif": "probability that the intensity rises over the periods",
    "posterior.geobgp": "everything; geobgp.Posterior.load reads it",
}


def write_results(
    folder: Path, mapped: Mapped, options: MapOptions, steps: Steps, warnings: list[str]
) -> None:
    """Write everything that was asked for; a step that fails takes no other with it.

    Parameters
    ----------
    folder : path
    mapped : Mapped
    options : MapOptions
    steps : Steps
        With the time of the stages that led here; is told what failed.
    warnings : list of str
        What was warned of, in the words of the shell.
    """
    posterior, thresholds = mapped.posterior.styled(**options.look()), sorted(set(options.thresholds))
    with steps.stage("posterior") as stage:  # first: all else can be made from it
        posterior._known_variation()  # the file keeps it
        saved = posterior.save(folder / "posterior.geobgp")
        stage.note(size_text(saved.stat().st_size))
    made: list[Path] = []
    with steps.stage("rasters") as stage:
        made = posterior.to_raster(folder, thresholds)
        stage.note(f"{len(made)} files")
    regions = None
    if options.regions or posterior.areas is not None:
        with steps.stage("regions") as stage:
            regions = region_totals(mapped, options.regions, options.regions_by)
            write_layers(folder / "regions.gpkg", regions=regions)
            stage.note(count(len(regions), "region"))
    with steps.stage("map") as stage:
        page = folder / "map.html"
        posterior.to_map(
            page,
            thresholds=thresholds,
            regions=regions,
            context=options.context,
            basemap=options.basemap,
            show_points=options.show_points,
            points=mapped.counts.coordinates,
        )
        stage.note(size_text(page.stat().st_size))
    with steps.stage("project"):
        write_qgis(posterior, folder / "map.qgz", made, thresholds=thresholds, regions=regions)
    checks = None
    if options.checks and posterior.areas is None and not posterior.protection:
        with steps.stage("pieces of land"):
            checks = check(posterior, mapped.counts.values)
    left = left_out(posterior, options, steps)
    tell_variation(posterior, steps)
    inputs = replace(
        report_inputs(mapped, options, steps, warnings, regions),
        checks=checks,
        validation=left.checked,
        advice=left.advice,
        not_checked=left.why_not,
        files=shown_files(file_names(folder)),
    )
    with steps.stage("report"):
        write_report(folder / "report.html", posterior, inputs)
    with steps.step(RECORD):
        record = record_of(mapped, options, inputs, counted(mapped.counts))
        write_record(folder, record | {"not_written": steps.failed})


def file_names(folder: Path) -> list[str]:
    """Return the names of all files of results, those that are still to be written too."""
    return sorted({*files_in(folder), "report.html", RECORD})


def shown_files(names: Sequence[str]) -> dict[str, str]:
    """Return what the files of results are: styles are not told, and of a folder within it the folder."""
    shown = sorted({name.split("/")[0] for name in names if not name.endswith(".qml")})
    return {name: about_file(name) for name in shown}


def report_inputs(
    mapped: Mapped, options: MapOptions, steps: Steps, warnings: list[str], regions: Any
) -> ReportInputs:
    """Return what went into a map, for its report."""
    return ReportInputs(
        sources={what.capitalize(): Path(path).name for what, path in options.files().items()},
        counts=mapped.counts,
        choices=mapped.choices,
        warnings=[*warnings, *steps.told()],
        thresholds=sorted(set(options.thresholds)),
        regions=regions,
        seconds=steps.seconds,
        command=command_line(options),
    )


def write_layers(path: Path, **layers: gpd.GeoDataFrame) -> None:
    """Write layers of a GeoPackage, all of them or none."""
    with replacing(path) as temporary:
        for name, frame in layers.items():
            frame.to_file(temporary, layer=name, driver="GPKG")


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


def region_totals(mapped: Mapped, path: str | None, by: str | None = None) -> gpd.GeoDataFrame:
    """Return totals of regions, with a name and the number observed; polygons of one name are one region.

    Without regions, those of the areas whose counts made the map. What lies in other regions is not known then.
    """
    areas = mapped.posterior.areas
    if path is None and areas is not None:
        return mapped.posterior.totals(areas.frame(), predicted=True, n_samples=_REGION_SAMPLES)
    frame = read_named_regions(path, mapped.domain, by)
    return mapped.posterior.totals(frame, predicted=True, n_samples=_REGION_SAMPLES)


def about_file(name: str) -> str:
    """Return what a file of results is."""
    if name.startswith("exceedance_"):
        return f"probability of more than {name.removeprefix('exceedance_').removesuffix('.tif')}"
    if name.startswith("q") and name.endswith(".tif") and name not in _ABOUT:
        return quantile_words(name.removesuffix(".tif"))
    return _ABOUT.get(name, "")


class HeldOutChecks(NamedTuple):
    """How what was left out is predicted, what to try where that fails, and why nothing was left out if so."""

    checked: CrossValidation | None = None
    advice: Sequence[str] = ()
    why_not: str = ""


def left_out(posterior: Posterior, options: MapOptions | RiskFiles, steps: Steps) -> HeldOutChecks:
    """Leave out blocks or areas in turn; what fails is warned of, as is that nothing could be left out."""
    why_not = too_few_to_hold_out(posterior) if options.checks else f"{option('checks')} was given."
    if why_not:
        return HeldOutChecks(why_not=render_text(why_not, render_option))
    out = HeldOutChecks(why_not="They failed.")
    with steps.stage("checks") as stage:
        try:
            # Neighbours of blocks are left as they are: quick, and near enough to judge intervals.
            checked = posterior.cross_validate(rounds=0)
        except GeobgpError as error:
            out = HeldOutChecks(why_not=not_run(error, stage))
        else:
            within = f"{percent(checked.coverage)} of {len(checked.blocks):,} held-out {checked.what}"
            stage.note(f"{within} within their {whole_percent(checked.interval)} interval")
            out = HeldOutChecks(checked)
            warning = check_warning(posterior, checked)
            if warning is not None:
                warn(warning)
                out = HeldOutChecks(
                    checked,
                    [render_text(one.words, render_option) for one in what_to_try(posterior, checked)],
                )
    return out


def not_run(error: GeobgpError, stage: Stage) -> str:
    """Warn that a check could not be run, and return why."""
    stage.note("not run")
    warn(CheckWarning(f"The checks were not run: {error.message}", found=error.found, remedy=error.remedy))
    return error.words(render_option)


def tell_variation(posterior: Posterior, steps: Steps) -> None:
    """Say whether the map varies at all, with what was left out before."""
    with steps.stage("variation") as stage:
        found = posterior.summary().get("variation")
        if found is not None:
            stage.note(found["sentence"], _COLOURS[found["tone"]])


def _check_facts(inputs: ReportInputs) -> dict[str, Any]:
    """Return the numbers of the checks, as ``summary.json`` holds them."""
    checks, checked = inputs.checks, inputs.validation
    out: dict[str, Any] = {"not_run": inputs.not_checked} if inputs.not_checked else {}
    if checked is not None:
        out |= checked.facts() | {"try": list(inputs.advice)}
    if checks is not None:
        out["empty_nodes"] = {"observed": checks.empty_observed, "expected": checks.empty_expected}
    return out


def counted(counts: Counts | AreaCounts) -> dict[str, Any]:
    """Return what was counted, as ``summary.json`` holds it."""
    if isinstance(counts, AreaCounts):
        placed = 0 if counts.located is None else round(float(counts.located.sum()))
        return {
            "read": placed + counts.n_used, "used": placed + counts.n_used, "moved": 0, "dropped": 0,
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


def record_of(
    mapped: Mapped | RiskMapped, options: OptionSet, inputs: ReportInputs, points: dict[str, Any]
) -> dict[str, Any]:
    """Return what ``summary.json`` holds, with what was counted as its ``points``."""
    posterior = mapped.posterior
    return {
        "geobgp": geobgp.__version__,
        "title": posterior.title,
        "drawn": posterior.drawn,
        "created": posterior.created,
        "inputs": inputs.sources,
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


# -- Results over time: what ``geobgp map --time`` writes into its folder, file by file ----------------------


#: Where the rasters of periods are.
RASTERS = "periods"
#: Periods that are left out at most; fewer periods or events than these are not left out.
LEFT_OUT, FEWEST_PERIODS, FEWEST_EVENTS = 3, 6, 20


def write_time_results(
    folder: Path, mapped: Mapped, options: MapOptions, steps: Steps, warnings: list[str]
) -> None:
    """Write everything that was asked for, of a map over time; as `geobgp.cli.results.write_results`."""
    posterior, thresholds = mapped.posterior.styled(**options.look()), sorted(set(options.thresholds))
    assert posterior.periods is not None
    with steps.stage("posterior") as stage:  # first: all else can be made from it
        posterior._known_variation()  # the file keeps it
        saved = posterior.save(folder / "posterior.geobgp")
        stage.note(size_text(saved.stat().st_size))
    ahead = None
    if options.forecast:
        with steps.stage("forecast"):
            ahead = posterior.forecast(options.forecast)
    dated: list[Dated] = []
    with steps.stage("rasters") as stage:
        dated = posterior.write_rasters(folder / RASTERS, thresholds, posterior.quantiles[::2], ahead)
        stage.note(f"{len(dated)} files")
    if posterior.n_periods > 1:
        with steps.stage("trend"):
            _write_trend(posterior, folder)
    with steps.stage("netCDF") as stage:
        cube = posterior.to_netcdf(folder / "intensity.nc", thresholds)
        stage.note(size_text(cube.stat().st_size))
    regions = None
    if options.regions or posterior.areas is not None:
        with steps.stage("regions") as stage:
            regions = _write_regions(posterior, options, folder / "regions.gpkg")
            stage.note(f"{count(len(regions) // posterior.n_periods, 'region')} in {posterior.time.words()}")
    with steps.stage("map") as stage:
        stage.note(_write_map(posterior, ahead, options, folder / "map.html", regions))
    if dated:
        with steps.stage("project"):
            title, hatched = posterior.provenance["title"], Course(posterior, ahead).hatched
            write_dated(folder / "map.qgz", dated, title=title, domain=posterior.domain, hatched=hatched)
    else:
        steps.failed["project"] = "It would show the rasters, and there are none."
    check, why_not = _left_out(posterior, options, steps)
    tell_variation(posterior, steps)
    inputs = replace(
        report_inputs(mapped, options, steps, warnings, regions),
        not_checked=why_not,
        files=shown_files(file_names(folder)),
    )
    with steps.stage("report"):
        write_time_report(folder / "report.html", posterior, inputs, forecast=ahead, check=check)
    with steps.step(RECORD):
        record = record_of(mapped, options, inputs, counted(mapped.counts)) | {"not_written": steps.failed}
        record["periods"] = {
            "every": posterior.time.every,
            "labels": list(posterior.time.labels),
            "level": posterior.level().drop(columns="start").to_dict("list"),
        }
        record["checks"] |= {} if check is None else check.facts()
        write_record(folder, record)


def _write_trend(posterior: Posterior, folder: Path) -> None:
    """Write the rate of change and the probability of an increase as rasters."""
    trend, per = posterior.trend(n_samples=200), posterior.time.per.replace(" ", "_")
    data = trend[["p_increase"]].rename(p_increase="probability_of_increase")
    data[f"ratio_per_{per}"] = (trend["change"] + 1.0).assign_attrs(
        long_name=f"intensity from one {posterior.time.per} to the next, as a ratio", units="1"
    )
    write_rasters(data, folder, title=f"Trend of {posterior.provenance['title']}")


def _write_regions(posterior: Posterior, options: MapOptions, path: Path) -> gpd.GeoDataFrame:
    """Write totals of regions by period, and their trends; return the totals."""
    if options.regions is None and posterior.areas is not None:
        counted = posterior.areas.frame()
        frame = counted.iloc[: len(counted) // posterior.n_periods][["name", "geometry"]]
    else:
        frame = read_named_regions(options.regions, posterior.domain, options.regions_by)
    totals = posterior.totals(frame, predicted=True)
    trend = {"trend": posterior.trend(frame)} if posterior.n_periods > 1 else {}
    write_layers(path, regions=totals, **trend)
    return totals


def _write_map(
    posterior: Posterior,
    ahead: Posterior | None,
    options: MapOptions,
    page: Path,
    regions: gpd.GeoDataFrame | None,
) -> str:
    """Write the page of all periods, or of the last one where there are too many; return how large it is."""
    thresholds = sorted(set(options.thresholds))
    how: dict[str, Any] = {
        "thresholds": thresholds or None,
        "context": options.context,
        "basemap": options.basemap,
    }
    try:
        posterior.to_map(page, forecast=ahead, regions=regions, **how)
    except SizeError as error:
        label = posterior.time.labels[-1]
        warn(
            InputWarning(
                f"{error.message} map.html shows the last {posterior.time.noun} alone, {label}.",
                option="every",
                found=posterior.n_periods,
                remedy=f"Use longer periods ({option('every')}), or map.qgz, which plays all of them.",
            )
        )
        posterior.to_map(page, period=label, **how)
    return size_text(page.stat().st_size)


def _left_out(posterior: Posterior, options: MapOptions, steps: Steps) -> tuple[ForecastCheck | None, str]:
    """Return how well the last periods are forecast, or why that was not tried."""
    if not options.checks:
        return None, render_text(f"{option('checks')} was given.", render_option)
    if posterior.n_periods < FEWEST_PERIODS:
        return None, f"They need at least {FEWEST_PERIODS} periods; there are {posterior.n_periods}."
    if posterior.n_points < FEWEST_EVENTS:
        return None, f"They need at least {FEWEST_EVENTS} events; there are {posterior.n_points:,}."
    check, why_not = None, "They failed."
    with steps.stage("checks") as stage:
        try:
            check = posterior.cross_validate(last=min(LEFT_OUT, posterior.n_periods // 3))
        except GeobgpError as error:
            why_not = not_run(error, stage)
        else:
            numbers = count(len(check.table), "number")
            inside = f"within their {whole_percent(check.interval)} interval"
            within = f"{percent(check.coverage)} of {numbers} of the last periods {inside}"
            stage.note(within)
            why_not = ""
    return check, why_not
