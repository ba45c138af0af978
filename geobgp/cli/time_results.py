"""Results over time: what ``geobgp map --time`` writes into its folder, file by file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import geopandas as gpd

from geobgp.cli.options import MapOptions, look
from geobgp.cli.results import (
    counted,
    file_names,
    read_named_regions,
    record_of,
    report_inputs,
    shown_files,
    write_record,
)
from geobgp.errors import InputWarning, SizeError, option, warn
from geobgp.output.cog import write_rasters
from geobgp.output.qgis_map import write_dated
from geobgp.report.time_report import write_time_report
from geobgp.spacetime.posterior import SpaceTimePosterior
from geobgp.text import count, percent, size_text

if TYPE_CHECKING:
    from geobgp.auto.pipeline import Mapped
    from geobgp.checks.forecasts import ForecastCheck
    from geobgp.progress import Progress, Stage

#: Where the rasters of periods are.
RASTERS = "periods"
#: Quantiles of them.
QUANTILES = (0.05, 0.95)
#: Periods that are left out at most; fewer periods or events than these are not left out.
LEFT_OUT, FEWEST_PERIODS, FEWEST_EVENTS = 3, 6, 20


def write_time_results(
    folder: Path, mapped: Mapped, options: MapOptions, progress: Progress, warnings: list[str]
) -> None:
    """Write everything that was asked for, of a map over time; as `geobgp.cli.results.write_results`."""
    posterior, thresholds = mapped.posterior.styled(**look(options)), sorted(set(options.thresholds))
    assert isinstance(posterior, SpaceTimePosterior)
    ahead = posterior.forecast(options.forecast) if options.forecast else None
    with progress.stage("rasters") as stage:
        dated = posterior.write_rasters(folder / RASTERS, thresholds, QUANTILES, ahead)
        if posterior.n_periods > 1:
            _write_trend(posterior, folder)
        stage.note(f"{len(dated)} files")
    with progress.stage("netCDF") as stage:
        cube = posterior.to_netcdf(folder / "intensity.nc", thresholds)
        stage.note(size_text(cube.stat().st_size))
    regions = None
    if options.regions or posterior.areas is not None:
        with progress.stage("regions") as stage:
            regions = _write_regions(posterior, options, folder / "regions.gpkg")
            stage.note(
                f"{count(len(regions) // posterior.n_periods, 'region')} in {posterior.periods.words()}"
            )
    with progress.stage("map") as stage:
        stage.note(_write_map(posterior, ahead, options, folder / "map.html", regions))
    with progress.stage("project"):
        write_dated(folder / "map.qgz", dated, title=posterior.provenance["title"], domain=posterior.domain)
    with progress.stage("checks") as stage:
        check = _left_out(posterior, stage)
    with progress.stage("posterior") as stage:
        saved = posterior.save(folder / "posterior.geobgp")
        stage.note(size_text(saved.stat().st_size))
    names = file_names(folder)
    inputs = replace(
        report_inputs(mapped, options, progress, warnings, regions),
        files=shown_files(names),
    )
    with progress.stage("report"):
        write_time_report(folder / "report.html", posterior, inputs, forecast=ahead, check=check)
    record = record_of(mapped, options, inputs, counted(mapped.counts)) | {"files": names}
    record["periods"] = {
        "every": posterior.periods.every,
        "labels": list(posterior.periods.labels),
        "level": posterior.level().drop(columns="start").to_dict("list"),
    }
    record["checks"] = {} if check is None else check.facts()
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
    totals.to_file(path, layer="regions", driver="GPKG")
    if posterior.n_periods > 1:
        posterior.trend(frame).to_file(path, layer="trend", driver="GPKG")
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


def _left_out(posterior: SpaceTimePosterior, stage: Stage) -> ForecastCheck | None:
    """Return how well the last periods are forecast, if there are enough of them."""
    few = posterior.n_periods < FEWEST_PERIODS or posterior.n_points < FEWEST_EVENTS
    if few:
        return None
    check = posterior.cross_validate(min(LEFT_OUT, posterior.n_periods // 3))
    numbers = count(len(check.table), "number")
    stage.note(f"{percent(check.coverage)} of {numbers} of the last periods within their 90 % interval")
    return check
