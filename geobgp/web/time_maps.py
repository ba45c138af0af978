"""Maps over time: a posterior over periods as one web page, with a slider, a play button and the course of a place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from geobgp.errors import DataError, SizeError, option
from geobgp.inference.mixture import interval_in
from geobgp.output import palette
from geobgp.output.course import Course, OverTime
from geobgp.output.grids import relative_uncertainty
from geobgp.summary import events_in_words
from geobgp.text import count, rounded, size_text
from geobgp.web import overlays
from geobgp.web.basemaps import check_basemap
from geobgp.web.layers import (
    chance_layer,
    chosen_thresholds,
    default_threshold,
    drawn_layer,
    uncertainty_layer,
    with_legend,
)
from geobgp.web.maps import MAX_BYTES, Page, fit_into, in_doubt
from geobgp.web.numbers import Numbers
from geobgp.web.page import assemble

if TYPE_CHECKING:
    import folium
    import geopandas as gpd

    from geobgp.web.plane import Plane

#: Pixels of a period's picture at most.
MAX_PIXELS = 1_000_000
#: Cells that may be averaged along each side for the numbers, before a page is refused.
MAX_BLOCK = 8
#: Of a region's numbers in the page.
_DIGITS = 4


def time_map(
    source: OverTime,
    *,
    forecast: OverTime | None = None,
    title: str | None = None,
    threshold: float | bool | None = None,
    thresholds: Sequence[float] | None = None,
    regions: gpd.GeoDataFrame | None = None,
    context: Any = None,
    basemap: str | folium.TileLayer | None = None,
    opacity: float | None = None,
    max_pixels: int = MAX_PIXELS,
    max_bytes: int = MAX_BYTES,
) -> folium.Map:
    """Return an interactive map of all periods, with one legend for them all.

    A slider (or Page Up and Page Down) chooses the period, a button (or the space bar) plays them. Under the cursor are
    the value with its interval, and a line chart of that place over all periods; where regions are shown, of the
    region. Printed, it shows the period that is seen.

    Parameters
    ----------
    source : SpaceTimePosterior
    forecast : SpaceTimePosterior, optional
        Of the periods that follow; they are marked as such.
    title : str, optional
        By default the posterior's own.
    threshold, thresholds
        As for `geobgp.web.maps.intensity_map`; by default the mean over all land and periods.
    regions : GeoDataFrame, optional
        From ``totals(regions)`` of the posterior: a row for each region and period, with the columns ``period``
        (label), ``expected``, the ends of its interval (``q05``, ``q95``), and ``observed`` or ``relative_risk`` where
        they are known. Forecast periods may be among them.
    context, basemap, opacity
        As for `geobgp.web.maps.intensity_map`.
    max_pixels, max_bytes : int
        Limits on the size of a picture and of the page. Beyond them pictures have fewer pixels and numbers are averages
        of neighbouring cells; where that is not enough the page is refused.

    Returns
    -------
    folium.Map
        `geobgp.web.maps.save` writes it.
    """
    course = Course(source, forecast)
    domain, units, data = source.domain, source.units, course.data
    check_basemap(basemap, local=domain.crs is None)
    layers, drawn = [drawn_layer(data, units), uncertainty_layer(data)], palette.drawn_variable(data)
    ends = interval_in(data)
    assert ends is not None
    named = {drawn: drawn, "low": ends.low, "high": ends.high}
    fields = {key: data[name].values for key, name in named.items()} | {"cv": relative_uncertainty(data)}
    default = default_threshold(source, data)
    span = float(np.nanmin(fields["low"])), float(np.nanmax(fields["high"]))
    for k, value in enumerate(chosen_thresholds(threshold, thresholds, default)):
        fields[f"p{k}"] = course.exceedance(value)
        layers.append(chance_layer(fields[f"p{k}"], value, units, f"p{k}", span, ends.words))
    layers = with_legend(layers, source)
    summary = source.summary()
    told = f"{events_in_words(source.points)}, {source.periods.words()}"
    page = Page(
        title=data.attrs["title"] if title is None else title,
        subtitle=f"{told}; {source.drawn}, {units}{in_doubt(summary)}",
        about=summary.rows(),
        units=units,
        interval=ends.words,
        drawn=drawn,
        centre=source.drawn,
        hatched=course.hatched,
        context=context,
        basemap=basemap,
        opacity=opacity,
    )
    numbers = Numbers.of(domain, fields, max_bytes // 2)
    layers, cells = page.hatch(domain, layers)
    plane, pictures = fit_into(domain, layers, max_pixels, max_bytes - numbers.size, cells)
    size = numbers.size + sum(len(url) for urls in pictures for url in urls)
    if size > max_bytes or numbers.block > MAX_BLOCK:
        raise SizeError(
            f"{count(course.n, 'period')} of {domain.n_nodes:,} nodes are too many for a page of "
            f"{size_text(max_bytes)}.",
            option="max_bytes",
            found=size,
            remedy=f"Allow more with {option('max_bytes')}, show fewer periods or thresholds, or use the rasters.",
        )
    start = course.known - 1
    config = page.config(plane, layers, numbers) | {
        "regions": None if regions is None else series_config(regions, course, plane),
        "time": {
            "labels": course.labels,
            "noun": source.periods.noun,
            "start": start,
            "ahead": course.known,
            "milliseconds": 250 if course.n > 100 else 450 if course.n > 30 else 800,
            "pictures": pictures,
        },
    }
    shown = [(layer.name, urls[start]) for layer, urls in zip(layers, pictures, strict=True)]
    return assemble(config, shown, basemap=basemap)


def series_config(frame: gpd.GeoDataFrame, course: Course, plane: Plane) -> dict[str, Any]:
    """Return outlines and names of regions with their numbers in every period."""
    missing = [name for name in ("period", "expected") if name not in frame]
    if interval_in(frame) is None:
        missing += ["q05", "q95"]
    if missing:
        raise DataError(
            f"Regions over time need the columns {', '.join(missing)}, which are missing.",
            option="regions",
            found=list(map(str, frame.columns)),
            remedy="Pass what totals(regions) of the posterior over periods returns.",
        )
    first = frame[frame["period"] == course.labels[0]]
    at = {label: rows for label, rows in frame.groupby("period", sort=False)}
    if (
        any(len(rows) != len(first) for rows in at.values())
        or not set(at) <= set(course.labels)
        or first.empty
    ):
        raise DataError(
            f"Every region needs a row in each of the periods; found {len(frame):,} rows, {len(first):,} of them in "
            f"{course.labels[0]}.",
            option="regions",
            found=len(frame),
            remedy="Pass what totals(regions) of the posterior over periods returns.",
        )
    shown = overlays.region_config(first.drop(columns=["period", "start"], errors="ignore"), plane)
    wanted = {name: name for name in ("expected", "observed", "relative_risk")}
    told = ""
    for of in ("", "relative_risk"):
        if (ends := interval_in(frame, of)) is not None:
            start, told = f"{of}_" if of else "", ends.words
            wanted |= {f"{start}low": ends.low, f"{start}high": ends.high}
    for item in shown["items"]:
        k = item.pop("row")
        item.pop("rows")
        item["interval"] = told
        item["series"] = {
            key: [_shown(at[label][name].iloc[k]) if label in at else None for label in course.labels]
            for key, name in wanted.items()
            if name in frame
        }
    return shown


def _shown(value: Any) -> float | None:
    return None if pd.isna(value) or not np.isfinite(value) else rounded(float(value), _DIGITS)
