"""Results over time: what ``geobgp map --time`` writes into its folder, file by file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import geopandas as gpd

from geobgp.cli.options import MapOptions, look, speak
from geobgp.cli.results import (
    counted,
    file_names,
    not_run,
    read_named_regions,
    record_of,
    report_inputs,
    shown_files,
    tell_variation,
    write_layers,
)
from geobgp.cli.workspace import RECORD, Steps, write_record
from geobgp.errors import GeobgpError, InputWarning, SizeError, in_words, option, warn
from geobgp.output.cog import write_rasters
from geobgp.output.course import Course
from geobgp.output.qgis_map import write_dated
from geobgp.report.time_report import write_time_report
from geobgp.spacetime.posterior import SpaceTimePosterior
from geobgp.text import count, percent, size_text, whole_percent

if TYPE_CHECKING:
    from geobgp.auto.pipeline import Mapped
    from geobgp.checks.forecasts import ForecastCheck
    from geobgp.output.qgis_map import Dated

#: Where the rasters of periods are.
RASTERS = "periods"
#: Periods that are left out at most; fewer periods or events than these are not left out.
LEFT_OUT, FEWEST_PERIODS, FEWEST_EVENTS = 3, 6, 20


def write_time_results(
    folder: Path, mapped: Mapped, options: MapOptions, steps: Steps, warnings: list[str]
) -> None:
    """Write everything that was asked for, of a map over time; as `geobgp.cli.results.write_results`."""
    posterior, thresholds = mapped.posterior.styled(**look(options)), sorted(set(options.thresholds))
    assert isinstance(posterior, SpaceTimePosterior)
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
            stage.note(
                f"{count(len(regions) // posterior.n_periods, 'region')} in {posterior.periods.words()}"
            )
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
            "every": posterior.periods.every,
            "labels": list(posterior.periods.labels),
            "level": posterior.level().drop(columns="start").to_dict("list"),
        }
        record["checks"] |= {} if check is None else check.facts()
        write_record(folder, record)


def _write_trend(posterior: SpaceTimePosterior, folder: Path) -> None:
    """Write the rate of change and the probability of an increase as rasters."""
    trend, per = posterior.trend(n_samples=200), posterior.periods.per.replace(" ", "_")
    data = trend[["p_increase"]].rename(p_increase="probability_of_increase")
    data[f"ratio_per_{per}"] = (trend["change"] + 1.0).assign_attrs(
        long_name=f"intensity from one {posterior.periods.per} to the next, as a ratio", units="1"
    )
    write_rasters(data, folder, title=f"Trend of {posterior.provenance['title']}")


def _write_regions(posterior: SpaceTimePosterior, options: MapOptions, path: Path) -> gpd.GeoDataFrame:
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
    posterior: SpaceTimePosterior,
    ahead: SpaceTimePosterior | None,
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
        label = posterior.periods.labels[-1]
        warn(
            InputWarning(
                f"{error.message} map.html shows the last {posterior.periods.noun} alone, {label}.",
                option="every",
                found=posterior.n_periods,
                remedy=f"Use longer periods ({option('every')}), or map.qgz, which plays all of them.",
            )
        )
        posterior.to_map(page, period=label, **how)
    return size_text(page.stat().st_size)


def _left_out(
    posterior: SpaceTimePosterior, options: MapOptions, steps: Steps
) -> tuple[ForecastCheck | None, str]:
    """Return how well the last periods are forecast, or why that was not tried."""
    if not options.checks:
        return None, in_words(f"{option('checks')} was given.", speak)
    if posterior.n_periods < FEWEST_PERIODS:
        return None, f"They need at least {FEWEST_PERIODS} periods; there are {posterior.n_periods}."
    if posterior.n_points < FEWEST_EVENTS:
        return None, f"They need at least {FEWEST_EVENTS} events; there are {posterior.n_points:,}."
    check, why_not = None, "They failed."
    with steps.stage("checks") as stage:
        try:
            check = posterior.cross_validate(min(LEFT_OUT, posterior.n_periods // 3))
        except GeobgpError as error:
            why_not = not_run(error, stage)
        else:
            numbers = count(len(check.table), "number")
            inside = f"within their {whole_percent(check.interval)} interval"
            within = f"{percent(check.coverage)} of {numbers} of the last periods {inside}"
            stage.note(within)
            why_not = ""
    return check, why_not
