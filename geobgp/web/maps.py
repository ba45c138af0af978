"""Interactive maps: a posterior as a folium map, saved as one HTML file from which no request leaves."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import folium
import numpy as np

from geobgp.data.effort import unseen_share
from geobgp.errors import DataError, option
from geobgp.files import replacing
from geobgp.land.reproject import point_coordinates
from geobgp.output import palette
from geobgp.output.grids import relative_uncertainty
from geobgp.output.palette import Classes
from geobgp.text import count, number, percent, rounded
from geobgp.web.embed import data_url, palette_png
from geobgp.web.numbers import DIGITS, Numbers
from geobgp.web.page import assemble
from geobgp.web.patches import Patches
from geobgp.web.plane import Plane

if TYPE_CHECKING:
    import geopandas as gpd
    import xarray as xr

    from geobgp.checks.versus import Versus
    from geobgp.land.domain import Domain
    from geobgp.posterior import Posterior

#: Pixels of a map at most; larger domains are shown with fewer pixels than cells.
MAX_PIXELS = 4_000_000
#: Bytes of pictures and numbers in a map at most; when they take more, the map has fewer pixels.
MAX_BYTES = 12_000_000
#: Points that a map shows at most.
MAX_POINTS = 50_000
_SHARED = ("mean", "sd", "q05", "q50", "q95")


def intensity_map(
    posterior: Posterior,
    *,
    threshold: float | bool | None = None,
    tiles: str | folium.TileLayer | None = None,
    title: str | None = None,
    show_points: bool = False,
    points: gpd.GeoDataFrame | gpd.GeoSeries | np.ndarray | None = None,
    point_labels: Iterable[object] | str | None = None,
    opacity: float | None = None,
    max_pixels: int = MAX_PIXELS,
    max_bytes: int = MAX_BYTES,
) -> folium.Map:
    """Return an interactive map of a posterior.

    Layers: mean intensity, uncertainty (sd / mean), the probability of exceeding a threshold, and the
    shoreline. The value under the cursor is shown with its 90 % interval; a click shows more. It is the value
    of the cell there, as in the rasters, to the last digit shown. The page is self-contained: Leaflet is inside
    it, and a Content-Security-Policy forbids all network.

    Parameters
    ----------
    posterior : Posterior
        Of counts.
    threshold : float, optional
        For the probability of exceedance, in the intensity's unit. By default the mean over all land,
        rounded; False leaves the layer out.
    tiles : str or folium.TileLayer, optional
        An online basemap, such as "OpenStreetMap". Then, and only then, the page asks that server for
        pictures, and so tells it where on the map the reader looks.
    title : str, optional
        By default the posterior's own.
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
    data = posterior.intensity()
    units = posterior.units
    layers = [_mean_layer(data, units), _uncertainty_layer(data)]
    fields = {name: data[name].values for name in _SHARED} | {"cv": relative_uncertainty(data)}
    if threshold is None or threshold is True:
        threshold = 1.0 if "quantity" in data["mean"].attrs else _overall(domain, fields["mean"])
    if threshold is not False:
        chance = posterior.exceedance(float(threshold))
        fields["p"] = chance.values
        layers.append(_chance_layer(chance, float(threshold), units))
    page = _Page(
        title=data.attrs["title"] if title is None else title,
        subtitle=f"{count(posterior.n_points, 'point')}; mean, {units}{_seen(posterior)}",
        about=posterior.summary().rows(),
        units=units,
        threshold="" if threshold is False else number(float(threshold), 3),
    )
    if show_points and points is None:
        raise DataError(
            f"{option('show_points', True)} needs the points: a posterior does not keep them.",
            option="points",
            remedy=f"Pass {option('points', python='points=...')}.",
        )
    shown = (points, point_labels) if show_points else None
    return page.map(domain, layers, fields, shown, tiles, opacity, max_pixels, max_bytes)


def versus_map(
    compared: Versus,
    *,
    tiles: str | folium.TileLayer | None = None,
    title: str | None = None,
    opacity: float | None = None,
    max_pixels: int = MAX_PIXELS,
    max_bytes: int = MAX_BYTES,
) -> folium.Map:
    """Return an interactive map of one posterior against another.

    Layers: the ratio (its median), the probability of an increase, and the difference (its mean). The ratio
    under the cursor is shown with its 90 % interval.

    Parameters
    ----------
    compared : Versus
    tiles, title, opacity, max_pixels, max_bytes
        As for `intensity_map`.
    """
    ratio, means = compared.ratio(), [p.intensity()["mean"].values for p in (compared.first, compared.second)]
    chance, gap = compared.increase().values, means[0] - means[1]
    chances = palette.classes_for("probability", chance)
    layers = [
        _Layer("ratio", "Ratio", "Ratio", compared.title, ratio["q50"].values, palette.ratio_classes()),
        _Layer("increase", "Probability of an increase", "Probability of an increase", "%", chance, chances),
        _Layer("difference", "Difference", "Difference", compared.units, gap, palette.signed_classes(gap)),
    ]
    fields = {"mean": ratio["q50"].values, "q05": ratio["q05"].values, "q95": ratio["q95"].values}
    fields |= {"first": means[0], "second": means[1], "p": chance}
    page = _Page(
        title=compared.title if title is None else title,
        subtitle="ratio of two maps; the median",
        about=[["first", repr(compared.first)], ["second", repr(compared.second)]],
        units=f"times {compared.names[1]}",
        centre="ratio",
        chance="probability of an increase",
        pair=[f"mean, {name}" for name in compared.names],
    )
    return page.map(compared.domain, layers, fields, None, tiles, opacity, max_pixels, max_bytes)


@dataclass(frozen=True)
class _Page:
    """The words of a page; `map` makes it of layers and numbers."""

    title: str
    subtitle: str
    about: Any
    units: str
    threshold: str = ""
    centre: str = "mean"
    chance: str = ""
    pair: Sequence[str] = ()

    def map(
        self,
        domain: Domain,
        layers: list[_Layer],
        fields: dict[str, np.ndarray],
        points: tuple[Any, Any] | None,
        tiles: str | folium.TileLayer | None,
        opacity: float | None,
        max_pixels: int,
        max_bytes: int,
    ) -> folium.Map:
        numbers = Numbers.of(domain, fields, 2 * max_bytes // 3)
        plane, pictures = _fit_into(domain, layers, max_pixels, max_bytes - numbers.size)
        config: dict[str, Any] = {
            "title": self.title,
            "subtitle": self.subtitle,
            "about": [*_about_map(plane, domain, numbers), *self.about],
            "local": plane.local,
            "bounds": plane.bounds,
            "grid": {
                "rows": plane.shape[0], "cols": plane.shape[1],
                "west": plane.west, "north": plane.north, "pixel": plane.pixel,
            },
            "units": self.units,
            "hint": "Point at the land for its value, click for more.",
            "threshold": self.threshold,
            "centre": self.centre,
            "chance": self.chance or f"probability > {self.threshold}",
            "pair": list(self.pair),
            "layers": [layer.config() for layer in layers],
            "arrays": numbers.arrays,
            "cells": numbers.config(),
            "patches": Patches.over(plane).config(),
            "shoreline": plane.shoreline(),
            "opacity": float(opacity) if opacity is not None else (1.0 if tiles is None else 0.75),
            "points": None if points is None else _points(*points, plane),
        }  # fmt: skip
        named = [(layer.name, picture) for layer, picture in zip(layers, pictures, strict=True)]
        return assemble(config, named, tiles=tiles)


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


# -- what is shown


class _Layer:
    """One picture: its classes and its words."""

    def __init__(self, key: str, name: str, heading: str, units: str, values: np.ndarray, classes: Classes):
        self.key, self.name, self.heading, self.units = key, name, heading, units
        self.classes = classes
        self.index = classes.index(values).astype(np.int16).ravel()

    def config(self) -> dict[str, Any]:
        # Probabilities are read in per cent.
        factor = 100 if self.key in ("exceedance", "increase") else 1
        labels = Classes(self.classes.breaks * factor, self.classes.colours).labels()
        entries = zip(self.classes.hex, labels, strict=True)
        return {
            "key": self.key,
            "heading": self.heading,
            "units": self.units,
            "classes": [{"colour": colour, "label": label} for colour, label in entries],
        }


def _mean_layer(data: xr.Dataset, units: str) -> _Layer:
    values = data["mean"].values.astype(np.float32)
    name = f"Mean {data['mean'].attrs.get('quantity', 'intensity')}"
    return _Layer("mean", name, name, units, values, palette.classes_in(data, "mean"))


def _uncertainty_layer(data: xr.Dataset) -> _Layer:
    values = relative_uncertainty(data).astype(np.float32)
    classes = palette.classes_for("cv", values)
    return _Layer("uncertainty", "Uncertainty", "Relative uncertainty", "sd / mean, %", values, classes)


def _chance_layer(chance: xr.DataArray, threshold: float, units: str) -> _Layer:
    values = chance.values.astype(np.float32)
    name = f"Probability > {number(threshold, 3)}"
    classes = palette.classes_for("exceedance", values)
    return _Layer(
        "exceedance", name, name, f"% for more than {number(threshold, 3)} {units}", values, classes
    )


def _overall(domain: Domain, mean: np.ndarray) -> float:
    """Return the mean over all land, rounded to two digits."""
    weight = np.where(np.isfinite(mean), domain.coverage * domain.cell_area, 0.0)
    return rounded(np.sum(np.where(weight > 0, mean, 0.0) * weight) / weight.sum(), 2)


def _fit_into(
    domain: Domain, layers: list[_Layer], max_pixels: int, max_bytes: int
) -> tuple[Plane, list[str]]:
    """Make the pictures, with fewer pixels until they fit."""
    while True:
        plane = Plane.over(domain, max_pixels)
        cell = plane.cells()
        # One more entry at the end, for the pixels that show no cell (-1).
        pictures = [
            data_url(palette_png(np.append(layer.index, -1)[cell], layer.classes.colours), "image/png")
            for layer in layers
        ]
        size = sum(map(len, pictures))
        if size <= max_bytes or cell.size <= 10_000:
            return plane, pictures
        max_pixels = int(min(cell.size, max_pixels) * min(0.9 * max_bytes / size, 0.75))


def _seen(posterior: Posterior) -> str:
    """Return what a map with effort is of, and on how much of the land the data say nothing."""
    if posterior.effort is None:
        return ""
    share = unseen_share(posterior.effort, posterior.domain)
    return (
        f", with full effort; no data on {percent(share)} of the land" if share > 0 else ", with full effort"
    )


def _about_map(plane: Plane, domain: Domain, numbers: Numbers) -> list[list[str]]:
    unit = "units" if plane.local else "m"
    every = "" if plane.oversampling >= 1 else "; the map shows fewer pixels than cells, the rasters show all"
    k = numbers.block
    whose = "the rasters' own" if k == 1 else f"averages of {k} x {k} cells, the rasters have all"
    return [
        ["cells", f"{domain.cell_size:g} {unit}{every}"],
        ["numbers", f"under the cursor: {whose}; {DIGITS} digits"],
    ]


def _points(points: Any, labels: Any, plane: Plane) -> dict[str, Any]:
    coords, rows, _ = point_coordinates(points, plane.domain.crs)
    if isinstance(labels, str):
        labels = points[labels]
    names = None if labels is None else [str(name) for name in np.asarray(labels)[rows]]
    if len(coords) > MAX_POINTS:
        raise DataError(
            f"{len(coords):,} points are too many for a web page.",
            option="points",
            found=len(coords),
            remedy=f"Show at most {MAX_POINTS:,} of them.",
        )
    lon, lat = plane.to_degrees(*plane.to_plane(coords[:, 0], coords[:, 1]))
    return {"coords": np.round(np.column_stack([lat, lon]), 6).tolist(), "labels": names}
