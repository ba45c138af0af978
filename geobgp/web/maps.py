"""Interactive maps: a posterior as a folium map, saved as one HTML file from which no request leaves."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import folium
import numpy as np
from branca.element import Element
from folium.map import CustomPane
from folium.raster_layers import ImageOverlay
from jinja2 import Template

from geobgp.errors import DataError
from geobgp.files import replacing
from geobgp.land.reproject import point_coordinates
from geobgp.output import palette
from geobgp.output.palette import Classes
from geobgp.text import number, rounded
from geobgp.web import page
from geobgp.web.embed import RELATIVE_STEP, Scale, data_url, pack, palette_png
from geobgp.web.plane import Plane

if TYPE_CHECKING:
    import geopandas as gpd
    import xarray as xr

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
    shoreline. The value under the cursor is shown with its 90 % interval; a click shows more. The page is
    self-contained: Leaflet is inside it, and a Content-Security-Policy forbids all network.

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
        Limits on the size of the map. With the defaults the file stays under 15 MB for any domain.

    Returns
    -------
    folium.Map
        Add to it what you like; `geobgp.web.maps.save` writes it.
    """
    domain = posterior.domain
    data = posterior.intensity()
    units = str(data["mean"].attrs.get("units", ""))
    layers = [_mean_layer(data, units), _uncertainty_layer(data)]
    fields = {name: data[name].values for name in _SHARED if name in data}
    if threshold is None or threshold is True:
        threshold = _overall(domain, fields["mean"])
    if threshold is not False:
        chance = posterior.exceedance(float(threshold))
        fields["p"] = chance.values
        layers.append(_chance_layer(chance, float(threshold), units))
    plane, pictures, arrays, scale, probability = _fit_into(domain, layers, fields, max_pixels, max_bytes)
    heading = title if title is not None else str(data.attrs.get("title", "")) or f"Intensity in {units}"
    opacity = float(opacity) if opacity is not None else (1.0 if tiles is None else 0.75)
    config: dict[str, Any] = {
        "title": heading,
        "subtitle": _subtitle(data, units),
        "about": [*_about_map(plane, domain), *_facts(posterior)],
        "local": plane.local,
        "bounds": plane.bounds,
        "grid": {
            "rows": plane.shape[0], "cols": plane.shape[1],
            "west": plane.west, "north": plane.north, "pixel": plane.pixel,
        },
        "units": units,
        "hint": "Point at the land for its value, click for more.",
        "threshold": "" if threshold is False else number(float(threshold), 3),
        "layers": [layer.config() for layer in layers],
        "arrays": arrays,
        "scale": scale.config(),
        "probability": probability.config(),
        "shoreline": plane.shoreline(),
        "opacity": opacity,
        "points": None,
    }  # fmt: skip
    if show_points:
        if points is None:
            raise DataError(
                "show_points=True needs the points: a posterior does not keep them. Pass points=..."
            )
        config["points"] = _points(points, point_labels, plane)
    return _assemble(config, layers, pictures, tiles, heading)


def save(made: folium.Map, path: str | os.PathLike[str]) -> Path:
    """Write a map as one HTML file, complete or not at all."""
    path = Path(path)
    if path.suffix.lower() not in (".html", ".htm"):
        raise DataError(f"A map is written as HTML; {path.name!r} should end in .html.")
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
        factor = 100 if self.key == "exceedance" else 1
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
    return _Layer("mean", "Mean intensity", "Mean intensity", units, values, palette.classes_in(data, "mean"))


def _uncertainty_layer(data: xr.Dataset) -> _Layer:
    with np.errstate(divide="ignore", invalid="ignore"):
        values = (100 * data["sd"].values / data["mean"].values).astype(np.float32)
    values = np.where(np.isfinite(values), values, np.nan)
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
    domain: Domain, layers: list[_Layer], fields: dict[str, np.ndarray], max_pixels: int, max_bytes: int
) -> tuple[Plane, list[str], dict[str, str], Scale, Scale]:
    """Make the pictures and the numbers, with fewer pixels until they fit."""
    shared = [values for name, values in fields.items() if name != "p"]
    scale, probability = Scale.logarithmic(*shared), Scale(0.0, 0.001, linear=True)
    while True:
        plane = Plane.over(domain, max_pixels)
        cell = plane.cells()
        # One more entry at the end, for the pixels that show no cell (-1).
        pictures = [
            data_url(palette_png(np.append(layer.index, -1)[cell], layer.classes.colours), "image/png")
            for layer in layers
        ]
        # Of the cells only those that have a pixel are encoded.
        used = np.unique(cell)
        at = np.searchsorted(used, cell)
        arrays = {}
        for name, values in fields.items():
            codes = (probability if name == "p" else scale).encode(values.ravel()[used])
            arrays[name] = pack(np.where(used < 0, np.uint16(0), codes)[at])
        size = sum(map(len, pictures)) + sum(map(len, arrays.values()))
        if size <= max_bytes or cell.size <= 10_000:
            return plane, pictures, arrays, scale, probability
        max_pixels = int(min(cell.size, max_pixels) * min(0.9 * max_bytes / size, 0.75))


def _subtitle(data: xr.Dataset, units: str) -> str:
    n = data.attrs.get("n_points")
    return f"{int(n):,} points; mean, {units}" if n else f"mean, {units}"


def _facts(posterior: Posterior) -> list[list[str]]:
    summary = posterior.summary()
    rows = summary.rows() if hasattr(summary, "rows") else [("summary", str(summary))]
    return [[str(name), str(text)] for name, text in rows]


def _about_map(plane: Plane, domain: Domain) -> list[list[str]]:
    unit = "units" if plane.local else "m"
    every = "" if plane.oversampling >= 1 else "; the map shows fewer pixels than cells, the rasters show all"
    return [
        ["cells", f"{domain.cell_size:g} {unit}{every}"],
        ["numbers", f"under the cursor within {100 * RELATIVE_STEP / 2:g} %, shown to three digits"],
    ]


def _points(points: Any, labels: Any, plane: Plane) -> dict[str, Any]:
    coords, known = point_coordinates(points, plane.domain)
    if isinstance(labels, str):
        labels = points[labels]
    names = None if labels is None else [str(n) for n, k in zip(labels, known, strict=True) if k]
    if len(coords) > MAX_POINTS:
        raise DataError(
            f"{len(coords):,} points are too many for a web page; show at most {MAX_POINTS:,} of them."
        )
    lon, lat = plane.to_degrees(*plane.to_plane(coords[:, 0], coords[:, 1]))
    return {"coords": np.round(np.column_stack([lat, lon]), 6).tolist(), "labels": names}


# -- the page


class _Raw(Element):
    """Text that goes into the page as it is."""

    def __init__(self, text: str):
        super().__init__()
        self._name = "raw"
        self.text = text

    def render(self, **kwargs: Any) -> str:
        return self.text


class _Layers(folium.LayerControl):
    """The layer control, open where there is room for it."""

    _template = Template(
        """
        {% macro script(this, kwargs) %}
            var {{ this.get_name() }} = L.control.layers(
                { {% for key, val in this.base_layers.items() %}{{ key|tojson }}: {{ val }}, {% endfor %} },
                { {% for key, val in this.overlays.items() %}{{ key|tojson }}: {{ val }}, {% endfor %} },
                {position: "topright", collapsed: window.innerWidth <= 640, autoZIndex: false}
            ).addTo({{ this._parent.get_name() }});
        {% endmacro %}
        """
    )


def _start(made: str, layers: list[str], groups: dict[str, str | None], control: str, config: Any) -> str:
    """Return the script that starts the page, once everything it names is there."""
    names = ", ".join(f"{key}: {name or 'null'}" for key, name in groups.items())
    text = json.dumps(config, ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return f"""
window.addEventListener("DOMContentLoaded", function () {{
  window.geobgp.current = window.geobgp.start(
    {made}, [{", ".join(layers)}], {{ {names} }}, {control}, {text}
  );
}});
"""


def _assemble(
    config: dict[str, Any], layers: list[_Layer], pictures: list[str], tiles: Any, heading: str
) -> folium.Map:
    bounds = config["bounds"]
    middle = [(bounds[0][0] + bounds[1][0]) / 2, (bounds[0][1] + bounds[1][1]) / 2]
    reach: dict[str, Any] = {"min_zoom": -30, "max_zoom": 30} if config["local"] else {"max_zoom": 22}
    made = folium.Map(
        location=middle, tiles=None, zoom_control=False, prefer_canvas=True, font_size="14px", zoom_start=5,
        crs="Simple" if config["local"] else "EPSG3857", zoom_snap=0.25 if tiles is None else 1, **reach,
    )  # fmt: skip
    made.default_js, made.default_css = [], []
    tile_url = None
    if tiles is not None:
        if config["local"]:
            raise DataError(
                "A local domain has no place on Earth, so it cannot lie on a basemap; leave tiles out."
            )
        if not isinstance(tiles, folium.TileLayer):
            tiles = folium.TileLayer(tiles, name="Basemap", overlay=True)
        tile_url = str(tiles.tiles)
        made.add_child(tiles)
    css, js = page.leaflet()
    root: Any = made.get_root()
    head = root.header
    head.add_child(_Raw(_meta(page.policy(tile_url))), name="policy", index=1)
    head.add_child(_Raw('<link rel="icon" href="data:,">'), name="icon")
    head.add_child(_Raw(f"<title>{escape(heading)}</title>"), name="title")
    head.add_child(_Raw(f"<style>{css}{page.CSS}</style>"), name="style")
    head.add_child(_Raw(f"<script>{js}</script>\n<script>{page.JS}</script>"), name="script")
    made.add_child(CustomPane("cells", z_index=350))
    overlays = []
    for k, (layer, picture) in enumerate(zip(layers, pictures, strict=True)):
        overlay = ImageOverlay(
            picture, bounds, name=escape(layer.name), overlay=False, show=k == 0, opacity=config["opacity"],
            pane="cells", alt=layer.heading, interactive=False,
        )  # fmt: skip
        made.add_child(overlay)
        overlays.append(overlay.get_name())
    shoreline = folium.FeatureGroup(name="Shoreline")
    made.add_child(shoreline)
    group = None
    if config["points"] is not None:
        group = folium.FeatureGroup(name="Points")
        made.add_child(group)
    control = _Layers()
    made.add_child(control)
    groups = {"shoreline": shoreline.get_name(), "points": None if group is None else group.get_name()}
    # Straight into the page: what goes through folium's templates would be read as a template itself.
    start = _start(made.get_name(), overlays, groups, control.get_name(), config)
    root.script.add_child(_Raw(start), name="geobgp")
    return made


def _meta(policy: str) -> str:
    return f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
