"""The interactive map, with a slider where there are periods."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import folium
import numpy as np
import pandas as pd

from geobgp.data.inputs import unseen_share
from geobgp.errors import DataError, SizeError, option
from geobgp.files import replacing
from geobgp.inference.mixture import interval_in
from geobgp.output import palette
from geobgp.output.figures import Course
from geobgp.output.grids import hatched_cells, hatched_land, relative_uncertainty
from geobgp.privacy import refuse
from geobgp.summary import events_in_words
from geobgp.text import count, percent, rounded, size_text
from geobgp.web import overlays
from geobgp.web.layers import (
    DIGITS,
    Layer,
    Numbers,
    Patches,
    Plane,
    chance_layer,
    chosen_thresholds,
    default_threshold,
    drawn_layer,
    uncertainty_layer,
    with_legend,
)
from geobgp.web.overlays import check_basemap
from geobgp.web.page import assemble, data_url, palette_png

if TYPE_CHECKING:
    import geopandas as gpd

    from geobgp.checks.compare import Versus
    from geobgp.land.domain import Domain
    from geobgp.posterior import Posterior


# -- Interactive maps: a posterior as a folium map, saved as one HTML file from which no request leaves ------


#: Pixels of a map at most; larger domains are shown with fewer pixels than cells.
MAX_PIXELS = 4_000_000
#: Bytes of pictures and numbers in a map at most; when they take more, the map has fewer pixels.
MAX_BYTES = 12_000_000
#: The colours of lines across land of which the data say nothing: on light classes, and on dark ones.
HATCHING = np.array([[0x33, 0x43, 0x4B], [0xE6, 0xED, 0xF0]], np.uint8)
#: The colour of land whose small numbers are hidden.
HIDDEN = np.array([[0xBD, 0xBD, 0xBD]], np.uint8)
_SHARED = ("mean", "sd", "q50")


def intensity_map(
    posterior: Posterior,
    *,
    title: str | None = None,
    threshold: float | bool | None = None,
    thresholds: Sequence[float] | None = None,
    regions: Any = None,
    context: Any = None,
    basemap: str | folium.TileLayer | None = None,
    show_points: bool = False,
    points: gpd.GeoDataFrame | gpd.GeoSeries | np.ndarray | None = None,
    point_labels: Iterable[object] | str | None = None,
    opacity: float | None = None,
    max_pixels: int = MAX_PIXELS,
    max_bytes: int = MAX_BYTES,
) -> folium.Map:
    """Return an interactive map of a posterior.

    Layers: the intensity (its mean, or the median of a rate), uncertainty (sd / mean), the probability of exceeding
    each threshold, the shoreline, and regions and context where they are given. Land where nobody is exposed is
    hatched. The value under the cursor is shown with its interval; a click shows more.
    It is the value of the cell there, as in the rasters, to the last digit shown. The page is
    self-contained: Leaflet is inside it, and a Content-Security-Policy forbids all network.

    Parameters
    ----------
    posterior : Posterior
        Of counts.
    title : str, optional
        By default the posterior's own.
    threshold : float, optional
        For the probability of exceedance, in the intensity's unit. By default the mean over all land (over all people,
        of a rate), rounded; False leaves the layer out.
    thresholds : sequence of float, optional
        Several of them, a layer each. That no place comes near one is warned of.
    regions : GeoDataFrame or whatever `Posterior.totals` takes, optional
        Outlines of regions; under the cursor and in the popup are their numbers with intervals. A table from
        `Posterior.totals` is shown as it is (with a column ``observed`` where there is one); of other regions the
        totals are computed.
    context : GeoDataFrame, GeoSeries or path, optional
        Outlines and names for orientation that need no network: borders, towns. The names are in the first column of
        words that is called a name.
    basemap : str or folium.TileLayer, optional
        An online basemap, such as "OpenStreetMap". Then, and only then, the page asks that server for
        pictures, and so tells it where on the map the reader looks.
    show_points : bool
        Put `points` into the file. **Whoever has the file then has every coordinate in it**: leave it out for
        patients.
    points : GeoDataFrame, GeoSeries or (n, 2) array, optional
        Points to show; an array holds eastings and northings in the domain's CRS. Not used unless
        `show_points`.
    point_labels : str or iterable, optional
        A column of `points`, or one label each, shown when the cursor is on a point.
    opacity : float, optional
        Of the pictures at first; 1, or 0.75 over a basemap.
    max_pixels, max_bytes : int
        Limits on the size of the map. With the defaults the file stays under 15 MB for any domain. Where the
        numbers of all cells take more, the read-out shows averages of neighbouring cells, and says so.

    Returns
    -------
    folium.Map
        Add to it what you like; `geobgp.web.maps.save` writes it. Printed, it shows the layers made here, all
        of the land on one page, without a basemap.
    """
    domain = posterior.domain
    check_basemap(basemap, local=domain.crs is None)
    if show_points:
        refuse(posterior, option("show_points", True), "shows every point")
    if show_points and points is None:
        raise DataError(
            f"{option('show_points', True)} needs the points: a posterior does not keep them.",
            option="points",
            remedy=f"Pass {option('points', python='points=...')}.",
        )
    data = posterior.intensity()
    units, drawn = posterior.units, palette.drawn_variable(data)
    layers = [drawn_layer(data, units), uncertainty_layer(data)]
    names = (drawn, *(name for name in _SHARED if name != drawn))
    fields = {name: data[name].values for name in names} | {"cv": relative_uncertainty(data)}
    ends = interval_in(data)
    assert ends is not None
    fields |= {"low": data[ends.low].values, "high": data[ends.high].values}
    default = default_threshold(posterior, data)
    span = float(np.nanmin(fields["low"])), float(np.nanmax(fields["high"]))
    for k, value in enumerate(chosen_thresholds(threshold, thresholds, default)):
        fields[f"p{k}"] = posterior.exceedance(value).values
        layers.append(chance_layer(fields[f"p{k}"], value, units, f"p{k}", span, ends.words))
    summary, told = posterior.summary(), events_in_words(posterior.points)
    layers = with_legend(layers, posterior)
    page = Page(
        title=data.attrs["title"] if title is None else title,
        subtitle=f"{told}; {posterior.drawn}, {units}{_seen(posterior)}{in_doubt(summary)}",
        about=summary.rows(),
        units=units,
        interval=ends.words,
        drawn=drawn,
        centre=posterior.drawn,
        hatched=hatched_land(posterior),
        points=(points, point_labels) if show_points else None,
        regions=None if regions is None else overlays.region_totals(posterior, regions),
        context=context,
        basemap=basemap,
        opacity=opacity,
    )
    return page.map(domain, layers, fields, max_pixels, max_bytes)


def versus_map(
    compared: Versus,
    *,
    title: str | None = None,
    context: Any = None,
    basemap: str | folium.TileLayer | None = None,
    opacity: float | None = None,
    max_pixels: int = MAX_PIXELS,
    max_bytes: int = MAX_BYTES,
) -> folium.Map:
    """Return an interactive map of one posterior against another.

    Layers: the ratio (its median), the probability of an increase, and the difference (its mean, or the median of
    rates and relative risks). The ratio under the cursor is shown with its interval.

    Parameters
    ----------
    compared : Versus
    title, context, basemap, opacity, max_pixels, max_bytes
        As for `intensity_map`.
    """
    ratio, both, word = compared.ratio(), (compared.first, compared.second), compared.drawn
    drawn = [p.intensity()[palette.drawn_variable(p.intensity())].values for p in both]
    chance, gap = compared.increase().values, compared.drawn_difference().values
    chances, words = palette.classes_for("probability", chance), "probability of an increase"
    layers = [
        Layer("ratio", "Ratio", "Ratio", compared.title, ratio["q50"].values, palette.ratio_classes()),
        Layer("increase", words.capitalize(), words.capitalize(), "%", chance, chances, "p", words),
        Layer(
            "difference",
            "Difference",
            f"Difference, {word}",
            compared.units,
            gap,
            palette.signed_classes(gap),
        ),
    ]
    ends = interval_in(ratio)
    assert ends is not None
    fields = {"ratio": ratio["q50"].values, "low": ratio[ends.low].values, "high": ratio[ends.high].values}
    fields |= {"first": drawn[0], "second": drawn[1], "p": chance}
    page = Page(
        title=compared.title if title is None else title,
        subtitle="ratio of two maps; the median",
        about=[["first", repr(compared.first)], ["second", repr(compared.second)]],
        units=f"times {compared.names[1]}",
        interval=ends.words,
        drawn="ratio",
        centre="ratio",
        pair=[f"{word}, {name}" for name in compared.names],
        hatched=compared.hatched,
        context=context,
        basemap=basemap,
        opacity=opacity,
    )
    return page.map(compared.domain, layers, fields, max_pixels, max_bytes)


@dataclass(frozen=True, eq=False)
class Page:
    """The words of a page and what lies on its map; `map` makes it of layers and numbers.

    `drawn` is the field under the cursor, and `centre` what it is called; `hatched` is from `hatched_land`.
    """

    title: str
    subtitle: str
    about: Any
    units: str
    interval: str
    drawn: str = "mean"
    centre: str = "mean"
    hatched: tuple[np.ndarray, str] | None = None
    pair: Sequence[str] = ()
    points: tuple[Any, Any] | None = None
    regions: gpd.GeoDataFrame | None = None
    context: Any = None
    basemap: str | folium.TileLayer | None = None
    opacity: float | None = None

    def map(
        self,
        domain: Domain,
        layers: list[Layer],
        fields: dict[str, np.ndarray],
        max_pixels: int,
        max_bytes: int,
    ) -> folium.Map:
        """Return the map of layers, with the numbers of fields on the grid."""
        numbers = Numbers.of(domain, fields, 2 * max_bytes // 3)
        layers, cells = self.hatch(domain, layers)
        plane, pictures = fit_into(domain, layers, max_pixels, max_bytes - numbers.size, cells)
        config = self.config(plane, layers, numbers)
        named = [(layer.name, urls[0]) for layer, urls in zip(layers, pictures, strict=True)]
        return assemble(config, named, basemap=self.basemap)

    def hatch(self, domain: Domain, layers: list[Layer]) -> tuple[list[Layer], np.ndarray | None]:
        """Return layers that say what is hatched, and the cells that are; None where there is no such cell."""
        if self.hatched is None or not self.hatched[1]:
            return layers, None
        nodes, words = self.hatched
        return [replace(layer, hatched=words) for layer in layers], hatched_cells(domain, nodes)

    def config(self, plane: Plane, layers: list[Layer], numbers: Numbers) -> dict[str, Any]:
        """Return what the page's script is started with."""
        covered = self.basemap is not None
        return {
            "title": self.title,
            "subtitle": self.subtitle,
            "about": [*_about_map(plane, numbers), *self.about],
            "local": plane.local,
            "bounds": plane.bounds,
            "grid": {
                "rows": plane.shape[0], "cols": plane.shape[1],
                "west": plane.west, "north": plane.north, "pixel": plane.pixel,
            },
            "units": self.units,
            "interval": self.interval,
            "hint": "Point at the land for its value, click for more.",
            "drawn": self.drawn,
            "centre": self.centre,
            "pair": list(self.pair),
            "layers": [layer.config() for layer in layers],
            "arrays": numbers.arrays,
            "cells": numbers.config(),
            "patches": Patches.over(plane).config(),
            "opacity": float(self.opacity) if self.opacity is not None else (0.75 if covered else 1.0),
            "shoreline": plane.shoreline(),
            "context": None if self.context is None else overlays.context_config(self.context, plane),
            "regions": None if self.regions is None else overlays.region_config(self.regions, plane),
            "points": None if self.points is None else overlays.point_config(*self.points, plane),
        }  # fmt: skip


def save(made: folium.Map, path: str | os.PathLike[str]) -> Path:
    """Write a map as one HTML file, complete or not at all."""
    path = Path(path)
    if path.suffix.lower() not in (".html", ".htm"):
        raise DataError(
            f"A map is written as HTML; {path.name!r} should end in .html.", option="path", found=path
        )
    with replacing(path, parents=True) as temporary:
        temporary.write_text(made.get_root().render(), encoding="utf-8")
    return path


def fit_into(
    domain: Domain,
    layers: list[Layer],
    max_pixels: int,
    max_bytes: int,
    hatched: np.ndarray | None = None,
) -> tuple[Plane, list[list[str]]]:
    """Return the plane and the pictures of each layer (one a period), with fewer pixels until they fit.

    `hatched` are cells, (rows, cols) or for each period, that have lines across them.
    """
    n = max(len(np.atleast_2d(layer.index)) for layer in layers)
    across = [None] * n if hatched is None else np.broadcast_to(hatched, (n, *hatched.shape[-2:]))
    while True:
        plane = Plane.over(domain, max_pixels)
        cell = plane.cells()
        pictures = [
            [
                data_url(
                    palette_png(*_with_hidden(*_pixels(index, cell, layer.classes, lines), cell, layer)),
                    "image/png",
                )
                for index, lines in zip(np.atleast_2d(layer.index), across, strict=True)
            ]
            for layer in layers
        ]
        size = sum(len(url) for urls in pictures for url in urls)
        if size <= max_bytes or cell.size <= 10_000:
            return plane, pictures
        max_pixels = int(min(cell.size, max_pixels) * min(0.9 * max_bytes / size, 0.75))


def _pixels(
    index: np.ndarray, cell: np.ndarray, classes: palette.Classes, hatched: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the colours of pixels that show cells, as `hatched_picture` does."""
    # One more entry at the end, for the pixels that show no cell (-1).
    lines = None if hatched is None else np.append(hatched, False)[cell]
    return hatched_picture(np.append(index, -1)[cell], classes, lines)


def _with_hidden(
    pixels: np.ndarray, colours: np.ndarray, cell: np.ndarray, layer: Layer
) -> tuple[np.ndarray, np.ndarray]:
    """Return pixels and colours with land grey whose small numbers are hidden."""
    if not layer.hidden:
        return pixels, colours
    return np.where((cell >= 0) & (pixels < 0), len(colours), pixels), np.vstack([colours, HIDDEN])


def hatched_picture(
    pixels: np.ndarray, classes: palette.Classes, hatched: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the colour of every pixel, by its number, and the colours; with hatching those of its lines are the last.

    About a hundred lines run across a large picture from corner to corner, seen where pixels are hatched.
    """
    if hatched is None:
        return pixels, classes.colours
    gap = max(round(max(pixels.shape) / 100), 5)
    rows, cols = np.indices(pixels.shape)
    lines = ((rows + cols) % gap < max(gap // 5, 1)) & hatched & (pixels >= 0)
    dark = classes.colours.mean(axis=1) < 100
    return np.where(lines, classes.n + dark[pixels], pixels), np.vstack([classes.colours, HATCHING])


def _seen(posterior: Posterior) -> str:
    """Return what a map with effort is of, and on how much of the land the data say nothing."""
    if posterior.effort is None:
        return ""
    share = unseen_share(posterior.effort, posterior.domain)
    return (
        f", with full effort; no data on {percent(share)} of the land" if share > 0 else ", with full effort"
    )


def in_doubt(summary: Mapping[str, Any]) -> str:
    """Return for a subtitle that the map may not vary at all; nothing where it does."""
    found = summary.get("variation")
    return "" if found is None or found["verdict"] == "varies" else f"; {found['in_short']}"


def _about_map(plane: Plane, numbers: Numbers) -> list[list[str]]:
    unit = "units" if plane.local else "m"
    every = "" if plane.oversampling >= 1 else "; the map shows fewer pixels than cells, the rasters show all"
    k = numbers.block
    whose = "the rasters' own" if k == 1 else f"averages of {k} x {k} cells, the rasters have all"
    return [
        ["cells", f"{plane.domain.cell_size:g} {unit}{every}"],
        ["numbers", f"under the cursor: {whose}; {DIGITS} digits"],
    ]


# -- Maps over time: a posterior over periods as one web page, with a slider, a play button and the course of a place --


#: Pixels of a period's picture at most.
MAX_TIME_PIXELS = 1_000_000
#: Cells that may be averaged along each side for the numbers, before a page is refused.
MAX_BLOCK = 8
#: Of a region's numbers in the page.
_DIGITS = 4


def time_map(
    source: Posterior,
    *,
    forecast: Posterior | None = None,
    title: str | None = None,
    threshold: float | bool | None = None,
    thresholds: Sequence[float] | None = None,
    regions: gpd.GeoDataFrame | None = None,
    context: Any = None,
    basemap: str | folium.TileLayer | None = None,
    opacity: float | None = None,
    max_pixels: int = MAX_TIME_PIXELS,
    max_bytes: int = MAX_BYTES,
) -> folium.Map:
    """Return an interactive map of all periods, with one legend for them all.

    A slider (or Page Up and Page Down) chooses the period, a button (or the space bar) plays them. Under the cursor are
    the value with its interval, and a line chart of that place over all periods; where regions are shown, of the
    region. Printed, it shows the period that is seen.

    Parameters
    ----------
    source : Posterior
    forecast : Posterior, optional
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
    told = f"{events_in_words(source.points)}, {source.time.words()}"
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
            "noun": source.time.noun,
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
