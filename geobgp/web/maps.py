"""The interactive map, with a slider where there are periods."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import folium
import numpy as np
import shapely

from geobgp.checks.hotspots import read_hotspots
from geobgp.data.inputs import unseen_share
from geobgp.errors import DataError, SizeError, option
from geobgp.files import replacing
from geobgp.inference.mixture import interval_in
from geobgp.output import palette
from geobgp.output.grids import View, hatched_cells, uncertainty
from geobgp.privacy import refuse
from geobgp.summary import events_in_words
from geobgp.text import chance, count, number, percent, size_text
from geobgp.units import after
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
from geobgp.web.page import assemble, data_url, inline_leaflet, palette_png, raw_element, render

if TYPE_CHECKING:
    import geopandas as gpd

    from geobgp.checks.compare import Versus
    from geobgp.land.domain import Domain
    from geobgp.posterior import Posterior


# -- Interactive maps: a posterior as a folium map, saved as one HTML file from which no request leaves ------


#: Pixels of a map at most, and of each period; larger domains are shown with fewer pixels than cells.
MAX_PIXELS, MAX_TIME_PIXELS = 4_000_000, 1_000_000
#: Bytes of pictures and numbers in a map at most; when they take more, the map has fewer pixels.
MAX_BYTES = 12_000_000
#: Cells that `explore` shows one by one at most; larger maps are pictures.
MAX_CELLS = 20_000
#: Cells that may be averaged along each side for the numbers of periods, before a page is refused.
MAX_BLOCK = 8
#: The colours of lines across land of which the data say nothing: on light classes, and on dark ones.
HATCHING = np.array([[0x33, 0x43, 0x4B], [0xE6, 0xED, 0xF0]], np.uint8)
#: The colour of land whose small numbers are hidden.
HIDDEN = np.array([[0xBD, 0xBD, 0xBD]], np.uint8)
_SHARED = ("mean", "sd", "q50")
#: Rows of a summary that are about the computation, and not about the map.
_INTERNAL = frozenset({"elbo", "hyperparameter points", "rounds", "message", "seconds", "tried"})


def posterior_map(
    shown: Posterior | View,
    *,
    forecast: Posterior | None = None,
    title: str | None = None,
    threshold: float | bool | None = None,
    thresholds: Sequence[float] | None = None,
    regions: Any = None,
    hotspots: gpd.GeoDataFrame | bool | None = None,
    context: Any = None,
    basemap: str | folium.TileLayer | None = None,
    show_points: bool = False,
    points: gpd.GeoDataFrame | gpd.GeoSeries | np.ndarray | None = None,
    point_labels: Iterable[object] | str | None = None,
    opacity: float | None = None,
    max_pixels: int | None = None,
    max_bytes: int | None = None,
) -> folium.Map:
    """Return an interactive map of a posterior.

    Layers: what was mapped (its mean, or the median of a rate), uncertainty, the probability of exceeding
    each threshold, the shoreline, and regions and context where they are given. Land where nobody is exposed is
    hatched. The value under the cursor is shown with its interval; a click shows more.
    It is the value of the cell there, as in the rasters, to the last digit shown. The page is
    self-contained: Leaflet is inside it, and a Content-Security-Policy forbids all network.

    Where there are periods, all have one legend. A slider (or Page Up and Page Down) chooses the period, a button (or
    the space bar) plays them, and under the cursor is a line chart of that place, or of the region, over all of them.

    Parameters
    ----------
    shown : Posterior or View
    forecast : Posterior, optional
        Of the periods that follow; they are marked as such.
    title : str, optional
        By default the posterior's own.
    threshold : float, optional
        For the probability of exceedance, in the map's unit. By default the mean over all land (over all people,
        of a rate) and all periods, rounded; False leaves the layer out.
    thresholds : sequence of float, optional
        Several of them, a layer each. That no place comes near one is warned of.
    regions : GeoDataFrame or whatever `Posterior.totals` takes, optional
        Outlines of regions; under the cursor and in the popup are their numbers with intervals. A table from
        `Posterior.totals` is shown as it is (with a column ``observed`` where there is one); of other regions the
        totals are computed.
    hotspots : GeoDataFrame or bool, optional
        From `Posterior.hotspots`; True: those above the thresholds of the map. A click shows their numbers.
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
    max_pixels, max_bytes : int, optional
        Limits on the size of a picture and of the page. With the defaults the file stays under 15 MB for any domain.
        Where the numbers of all cells take more, the read-out shows averages of neighbouring cells, and says so; where
        periods are too many even so, the page is refused.

    Returns
    -------
    folium.Map
        Add to it what you like; `geobgp.web.maps.save` writes it. Printed, it shows the layers made here, all
        of the land on one page, in the period that is seen, without a basemap.
    """
    view = View.of(shown, forecast)
    posterior, domain = view.posterior, view.domain
    check_basemap(basemap, local=domain.crs is None)
    if show_points:
        refuse(posterior, option("show_points", True), "shows every point")
    if show_points and points is None:
        raise DataError(
            f"{option('show_points', True)} needs the points: a posterior does not keep them.",
            option="points",
            remedy=f"Pass {option('points', python='points=...')}.",
        )
    data, units, ends = view.data, posterior.units, view.interval
    drawn = palette.drawn_variable(data)
    layers = [drawn_layer(data, units), uncertainty_layer(data)]
    # Of many periods the page has what it shows, and no more.
    names = (drawn, *(name for name in _SHARED if name != drawn and view.periods is None))
    fields = {name: data[name].values for name in names}
    spread, of_mean = uncertainty(data)
    fields |= {"cv" if of_mean else "sd": spread, "low": data[ends.low].values, "high": data[ends.high].values}
    span = float(np.nanmin(fields["low"])), float(np.nanmax(fields["high"]))
    values = chosen_thresholds(threshold, thresholds, default_threshold(posterior, data))
    for k, value in enumerate(values):
        fields[f"p{k}"] = view.exceedance(value)
        quantity = data[drawn].attrs.get("quantity", "intensity")
        layers.append(chance_layer(fields[f"p{k}"], value, quantity, units, f"p{k}", span, ends.words))
    summary = posterior.summary()
    parts = [events_in_words(posterior.points), *([] if view.fitted is None else [view.fitted.words()])]
    page = Page(
        title=data.attrs["title"] if title is None else title,
        basis=", ".join(parts),
        remark=f"{_seen(posterior)}{in_doubt(summary)}",
        about=[row for row in summary.rows() if row[0] and row[0] not in _INTERNAL],
        units=units,
        interval=ends.words,
        drawn=drawn,
        centre=posterior.drawn,
        hatched=view.hatched,
        points=(points, point_labels) if show_points else None,
        regions=None if regions is None else overlays.region_totals(posterior, regions),
        hotspots=read_hotspots(posterior, hotspots, values),
        context=context,
        basemap=basemap,
        opacity=opacity,
        view=view if view.periods is not None else None,
    )
    pixels = MAX_PIXELS if view.periods is None else MAX_TIME_PIXELS
    most = MAX_BYTES if max_bytes is None else max_bytes
    return page.map(domain, with_legend(layers, posterior), fields, max_pixels or pixels, most)


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
    rates and relative risks). The ratio under the cursor is shown with its interval. Of values that can be below zero
    there is no ratio, and the difference takes its place.

    Parameters
    ----------
    compared : Versus
    title, context, basemap, opacity, max_pixels, max_bytes
        As for `posterior_map`.
    """
    main, both, word = compared.main, (compared.first, compared.second), compared.drawn
    shown = getattr(compared, main)()
    drawn = [p.intensity()[palette.drawn_variable(p.intensity())].values for p in both]
    chance, gap = compared.increase().values, compared.drawn_difference().values
    chances, words = palette.classes_for("probability", chance), "probability of an increase"
    layers = [
        Layer("increase", words.capitalize(), words.capitalize(), "%", words, chance, chances, "p", words),
        Layer(
            "difference", "Difference", f"Difference, {word}", compared.units, f"difference ({word}), {compared.units}",
            gap, palette.signed_classes(gap),
        ),
    ]  # fmt: skip
    centre, units = gap, compared.units
    if main == "ratio":
        centre, units = shown["q50"].values, f"times {compared.names[1]}"
        classes = palette.ratio_classes()
        layers.insert(0, Layer("ratio", "Ratio", "Ratio", compared.title, "ratio (median)", centre, classes))
    else:
        layers.reverse()
    ends = interval_in(shown)
    assert ends is not None
    fields = {main: centre, "low": shown[ends.low].values, "high": shown[ends.high].values}
    fields |= {"first": drawn[0], "second": drawn[1], "p": chance}
    page = Page(
        title=compared.title if title is None else title,
        basis="two maps compared",
        about=[["first", repr(compared.first)], ["second", repr(compared.second)]],
        units=units,
        interval=ends.words,
        drawn=main,
        centre=main,
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

    `basis` and `remark` are what the subtitle says before and after what the layer shows.
    `drawn` is the field under the cursor, and `centre` what it is called; `hatched` is from `hatched_land`; `view` has
    the periods, where there are some.
    """

    title: str
    basis: str
    about: Any
    units: str
    interval: str
    drawn: str = "mean"
    centre: str = "mean"
    remark: str = ""
    hatched: tuple[np.ndarray, str] | None = None
    pair: Sequence[str] = ()
    points: tuple[Any, Any] | None = None
    regions: gpd.GeoDataFrame | None = None
    hotspots: gpd.GeoDataFrame | None = None
    context: Any = None
    basemap: str | folium.TileLayer | None = None
    opacity: float | None = None
    view: View | None = None

    def map(
        self, domain: Domain, layers: list[Layer], fields: dict[str, np.ndarray], max_pixels: int, max_bytes: int
    ) -> folium.Map:
        """Return the map of layers, with the numbers of fields on the grid."""
        view, periods = self.view, None if self.view is None else self.view.fitted
        numbers = Numbers.of(domain, fields, 2 * max_bytes // 3 if view is None else max_bytes // 2)
        cells = None
        if self.hatched is not None and self.hatched[1]:
            layers = [replace(layer, hatched=self.hatched[1]) for layer in layers]
            cells = hatched_cells(domain, self.hatched[0])
        plane, pictures = fit_into(domain, layers, max_pixels, max_bytes - numbers.size, cells)
        config, first = self.config(plane, layers, numbers), 0
        if view is not None and periods is not None:
            size = numbers.size + sum(len(url) for urls in pictures for url in urls)
            if size > max_bytes or numbers.block > MAX_BLOCK:
                raise SizeError(
                    f"{count(view.n, 'period')} of {domain.n_nodes:,} nodes are too many for a page of "
                    f"{size_text(max_bytes)}.",
                    option="max_bytes",
                    found=size,
                    remedy=f"Allow more with {option('max_bytes')}, show fewer periods or thresholds, or use the "
                    "rasters.",
                )
            first = view.n_fitted - 1
            config["time"] = {
                "labels": view.labels,
                "noun": periods.noun,
                "start": first,
                "ahead": view.n_fitted,
                "marks": view.marks,
                "milliseconds": 250 if view.n > 100 else 450 if view.n > 30 else 800,
                "pictures": pictures,
            }
        named = [(layer.name, urls[first]) for layer, urls in zip(layers, pictures, strict=True)]
        return assemble(config, named, basemap=self.basemap)

    def config(self, plane: Plane, layers: list[Layer], numbers: Numbers) -> dict[str, Any]:
        """Return what the page's script is started with."""
        covered = self.basemap is not None
        labels = None if self.view is None else self.view.labels
        return {
            "title": self.title,
            "about": [*_about_map(plane, numbers), *self.about],
            "local": plane.local,
            "bounds": plane.bounds,
            "grid": {
                "rows": plane.shape[0], "cols": plane.shape[1],
                "west": plane.west, "north": plane.north, "pixel": plane.pixel,
            },
            "units": self.units,
            "unit": after(self.units),
            "interval": self.interval,
            "hint": "Point at the land for its value, click for more.",
            "drawn": self.drawn,
            "centre": self.centre,
            "pair": list(self.pair),
            "layers": [
                layer.config() | {"subtitle": f"{self.basis}; {layer.words}{self.remark}"} for layer in layers
            ],
            "arrays": numbers.arrays,
            "cells": numbers.config(),
            "patches": Patches.over(plane).config(),
            "opacity": float(self.opacity) if self.opacity is not None else (0.75 if covered else 1.0),
            "shoreline": plane.shoreline(),
            "context": None if self.context is None else overlays.context_config(self.context, plane),
            "regions": None if self.regions is None else overlays.region_config(self.regions, plane, labels),
            "hotspots": None if self.hotspots is None else overlays.hotspot_config(self.hotspots, plane, labels),
            "points": None if self.points is None else overlays.point_config(*self.points, plane),
        }  # fmt: skip


def explore(
    posterior: Posterior,
    cells: gpd.GeoDataFrame,
    column: str,
    classes: palette.Classes,
    label: str,
    *,
    m: folium.Map | None,
    tiles: str | folium.TileLayer | None,
    tooltip: bool,
    popup: bool,
    legend: bool,
    opacity: float,
) -> folium.Map:
    """Return a folium map of cells in classes, with their numbers under the cursor; see `Posterior.explore`."""
    check_basemap(tiles, local=posterior.domain.crs is None)
    overlays.few_enough(len(cells), MAX_CELLS, "cells", "column")
    plane = Plane.over(posterior.domain, MAX_TIME_PIXELS)
    values = cells[column].to_numpy(float)
    index = classes.index(values.astype(np.float32))
    colours = [classes.hex[k] if k >= 0 else "#bdbdbd" for k in index]
    names = [name for name in cells.columns if name not in (cells.geometry.name, "node", "start")]
    texts = {name: [_cell_text(name, value) for value in cells[name]] for name in names}
    shapes = shapely.to_geojson(plane.in_degrees(cells.geometry.to_numpy()))
    columns = {"colour": colours} | texts
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    features = [
        {"type": "Feature", "properties": row, "geometry": json.loads(shape)}
        for row, shape in zip(rows, shapes, strict=True)
    ]
    if m is None:
        m = folium.Map(tiles=None, crs="Simple" if plane.local else "EPSG3857", prefer_canvas=True)
        inline_leaflet(m)
        if tiles is not None:
            overlays.basemap_layer(tiles).add_to(m)
    said: dict[str, Any] = {"fields": names, "aliases": [name.replace("_", " ") for name in names], "localize": False}
    folium.GeoJson(
        {"type": "FeatureCollection", "features": features},
        name=label,
        style_function=lambda f: {
            "fillColor": f["properties"]["colour"], "fillOpacity": opacity, "weight": 0.3, "color": "#33434b",
        },
        highlight_function=lambda _: {"weight": 2.0},
        tooltip=folium.GeoJsonTooltip(**said) if tooltip else None,
        popup=folium.GeoJsonPopup(**said) if popup else None,
    ).add_to(m)  # fmt: skip
    if legend:
        entries = list(zip(classes.hex, classes.labels(), strict=True))[::-1]
        root: Any = m.get_root()
        root.html.add_child(raw_element(render("web/legend.html.j2", label=label, entries=entries)))
    m.fit_bounds(plane.bounds)
    return m


def _cell_text(name: str, value: Any) -> str:
    """Return what is told of a number of a cell."""
    if isinstance(value, str):
        return value
    if name.startswith("exceedance_"):
        return "" if np.isnan(value) else chance(float(value))
    return "" if np.isnan(value) else number(float(value), 3)


def save(made: folium.Map, path: str | os.PathLike[str]) -> Path:
    """Write a map as one HTML file, complete or not at all."""
    path = Path(path)
    if path.suffix.lower() not in (".html", ".htm"):
        raise DataError(f"A map is written as HTML; {path.name!r} should end in .html.", option="path", found=path)
    with replacing(path, parents=True) as temporary:
        temporary.write_text(made.get_root().render(), encoding="utf-8")
    return path


def fit_into(
    domain: Domain, layers: list[Layer], max_pixels: int, max_bytes: int, hatched: np.ndarray | None = None
) -> tuple[Plane, list[list[str]]]:
    """Return the plane and the pictures of each layer (one a period), with fewer pixels until they fit.

    `hatched` are cells, (rows, cols) or for each period, that have lines across them.
    """
    n = max(len(np.atleast_2d(layer.index)) for layer in layers)
    across: Any = [None] * n if hatched is None else np.broadcast_to(hatched, (n, *hatched.shape[-2:]))
    while True:
        plane = Plane.over(domain, max_pixels)
        cell = plane.cells()
        pictures = [
            [
                data_url(palette_png(*_picture(layer, index, cell, lines)), "image/png")
                for index, lines in zip(np.atleast_2d(layer.index), across, strict=True)
            ]
            for layer in layers
        ]
        size = sum(len(url) for urls in pictures for url in urls)
        if size <= max_bytes or cell.size <= 10_000:
            return plane, pictures
        max_pixels = int(min(cell.size, max_pixels) * min(0.9 * max_bytes / size, 0.75))


def _picture(
    layer: Layer, index: np.ndarray, cell: np.ndarray, hatched: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the colour of every pixel, by its number, and the colours, as `hatched_picture` does.

    Land whose small numbers are hidden is grey. `cell` is the cell that each pixel shows, -1 for none.
    """
    # One more entry at the end, for the pixels that show no cell.
    lines = None if hatched is None else np.append(hatched, False)[cell]
    pixels, colours = hatched_picture(np.append(index, -1)[cell], layer.classes, lines)
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
    effort, delays = posterior.final_effort, posterior.delays
    late = f", with events not reported by {delays.as_of}" if delays is not None and posterior.nowcast.any() else ""
    if effort is None:
        return late
    effort = np.atleast_2d(effort)
    share = float(np.mean([unseen_share(one, posterior.domain) for one in effort]))
    dark = f"; no data on {percent(share)} of the land" if share > 0 else ""
    return f", with full effort{dark}{late}"


def in_doubt(summary: Mapping[str, Any]) -> str:
    """Return for a subtitle that the map may not vary at all; nothing where it does."""
    variation = summary.get("variation")
    return "" if variation is None or variation["verdict"] == "varies" else f"; {variation['in_short']}"


def _about_map(plane: Plane, numbers: Numbers) -> list[list[str]]:
    unit = "units" if plane.local else "m"
    every = "" if plane.oversampling >= 1 else "; the map has fewer pixels than cells, the rasters have all cells"
    k = numbers.block
    whose = "those of the rasters" if k == 1 else f"averages of {k} x {k} cells; the rasters have all cells"
    return [
        ["cells", f"{number(plane.domain.cell_size)} {unit}{every}"],
        ["numbers", f"under the cursor: {whose}; {DIGITS} digits"],
        ["link", "the address of this page keeps the view, the layers and the period: copy it to share what you see"],
    ]
