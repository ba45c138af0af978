"""The page around the map: one HTML file that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
import re
import struct
import zlib
from functools import cache, lru_cache
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import folium
import numpy as np
from branca.element import Element, Figure
from folium.map import CustomPane
from folium.raster_layers import ImageOverlay
from jinja2 import Environment, FunctionLoader, StrictUndefined, Template

from geobgp import text
from geobgp.web.overlays import basemap_layer, check_basemap

# -- Arrays inside a web page: palette pictures, and codes packed as text ------------------------------------


def palette_png(index: np.ndarray, colours: np.ndarray) -> bytes:
    """Return an 8-bit palette PNG; index -1 is transparent.

    Parameters
    ----------
    index : (rows, cols) int array
        -1 or the number of a colour.
    colours : (k, 3) uint8 array
        At most 255 of them.

    Notes
    -----
    The page's script reads the land from it: one IDAT chunk, a byte a pixel, lines unfiltered, 0 for none.
    """
    rows, cols = index.shape
    # Entry 0 is transparent.
    scanlines = np.zeros((rows, cols + 1), np.uint8)
    scanlines[:, 1:] = index + 1
    table = np.vstack([np.zeros((1, 3), np.uint8), np.asarray(colours, np.uint8)])
    return b"".join(
        [
            b"\x89PNG\r\n\x1a\n",
            _chunk(b"IHDR", struct.pack(">IIBBBBB", cols, rows, 8, 3, 0, 0, 0)),
            _chunk(b"PLTE", table.tobytes()),
            _chunk(b"tRNS", b"\x00"),
            _chunk(b"IDAT", zlib.compress(scanlines.tobytes(), 6)),
            _chunk(b"IEND", b""),
        ]
    )


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def data_url(data: bytes, kind: str) -> str:
    """Return bytes as a data: URL."""
    return f"data:{kind};base64,{base64.b64encode(data).decode('ascii')}"


def pack(codes: np.ndarray) -> str:
    """Return a (rows, cols) uint16 array as text: second differences, bytes in planes, deflated, base64.

    A flat or evenly sloping field becomes zeros, and each line or column that repeats the one before it too.
    """
    delta = codes.astype(np.uint16)
    delta = np.diff(delta, axis=1, prepend=np.zeros((len(delta), 1), np.uint16))
    delta = np.diff(delta, axis=0, prepend=np.zeros((1, delta.shape[1]), np.uint16)).astype(np.uint16)
    # Small negative differences become small codes too.
    signed = delta.astype(np.int16).astype(np.int32)
    folded = np.where(signed < 0, -2 * signed - 1, 2 * signed).astype(np.uint16)
    planes = np.concatenate([(folded >> 8).astype(np.uint8).ravel(), (folded & 255).astype(np.uint8).ravel()])
    return base64.b64encode(zlib.compress(planes.tobytes(), 6)).decode("ascii")


def unpack(text: str, shape: tuple[int, int]) -> np.ndarray:
    """Return what `pack` packed; what the page's script does."""
    planes = np.frombuffer(zlib.decompress(base64.b64decode(text)), np.uint8)
    high, low = planes.reshape(2, *shape).astype(np.int32)
    folded = high * 256 + low
    signed = np.where(folded & 1, -(folded + 1) // 2, folded // 2)
    return np.cumsum(np.cumsum(signed, axis=0), axis=1).astype(np.uint16)


# -- Templates: package files that Jinja fills in, so that nothing from data is ever taken for markup --------


def read(name: str) -> str:
    """Return a text file of the package, such as ``web/map.css``."""
    return files("geobgp").joinpath(name).read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    environment = Environment(
        autoescape=True,
        loader=FunctionLoader(read),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    # The order of keys is kept, and no byte wasted: the numbers of a whole map go through here.
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    environment.globals |= {"file": read, "text": text}
    return environment


def template(name: str) -> Template:
    """Return a template of the package, such as ``report/report.html.j2``."""
    return _environment().get_template(name)


def render(name: str, **values: Any) -> str:
    """Return a template filled in; values are escaped, except where the template calls them safe."""
    return template(name).render(values)


# -- The web page around a map: Leaflet, style and script inside it, and a policy that forbids the network ---


#: What may lie above the pictures, from the bottom up, as the list of layers names it.
_GROUPS = {
    "shoreline": "Boundary", "context": "Context", "regions": "Regions", "hotspots": "Hot spots", "points": "Points",
}  # fmt: skip


def assemble(
    config: dict[str, Any], pictures: list[tuple[str, str]], *, basemap: str | folium.TileLayer | None = None
) -> folium.Map:
    """Return the folium map of what the page's script is to show.

    Parameters
    ----------
    config : dict
        What ``map.js`` is started with: title, bounds, layers, numbers, and what lies above them.
    pictures : list of (str, str)
        Name and data: URL of the picture of each of the layers; the first is shown.
    basemap : str or folium.TileLayer, optional
        An online one.
    """
    bounds, local = config["bounds"], config["local"]
    middle = [(bounds[0][0] + bounds[1][0]) / 2, (bounds[0][1] + bounds[1][1]) / 2]
    reach: dict[str, Any] = {"min_zoom": -30, "max_zoom": 30} if local else {"max_zoom": 22}
    page = folium.Map(
        location=middle, tiles=None, zoom_control=False, prefer_canvas=True, font_size="14px", zoom_start=5,
        crs="Simple" if local else "EPSG3857", zoom_snap=0.25 if basemap is None else 1, **reach,
    )  # fmt: skip
    page.default_js, page.default_css = [], []
    _Page().add_child(page)
    server = None
    check_basemap(basemap, local=local)
    if basemap is not None:
        tiles = basemap_layer(basemap)
        server = _server(str(tiles.tiles))
        page.add_child(tiles)
    css, js = _leaflet()
    root: Any = page.get_root()
    head = render(
        "web/head.html.j2",
        title=config["title"],
        tile_server=server,
        leaflet_css=css,
        leaflet_js=js,
        timed="time" in config,
    )
    # The first thing in the page after its encoding: a policy holds for what comes after it.
    root.header.add_child(_RawElement(head), name="geobgp", index=1)
    page.add_child(CustomPane("cells", z_index=350))
    overlays = []
    for k, (name, picture) in enumerate(pictures):
        overlay = ImageOverlay(
            picture, bounds, name=escape(name), overlay=False, show=k == 0, opacity=config["opacity"],
            pane="cells", alt=config["layers"][k]["heading"], interactive=False,
        )  # fmt: skip
        page.add_child(overlay)
        overlays.append(overlay.get_name())
    groups = {}
    for key, name in _GROUPS.items():
        if config.get(key) is not None:
            group = folium.FeatureGroup(name=name)
            page.add_child(group)
            groups[key] = group.get_name()
    control = _Layers()
    page.add_child(control)
    # Straight into the page: what goes through folium's templates would be read as a template itself.
    start = render(
        "web/start.js.j2",
        map=page.get_name(),
        layers=overlays,
        groups=groups,
        control=control.get_name(),
        config=config,
    )
    root.script.add_child(_RawElement(start), name="geobgp")
    return page


def inline_leaflet(made: folium.Map) -> None:
    """Put Leaflet into the page of a map, in the place of all that folium would fetch."""
    made.default_js, made.default_css = [], []
    css, js = _leaflet()
    root: Any = made.get_root()
    root.header.add_child(_RawElement(f"<style>{css}</style><script>{js}</script>"), name="leaflet", index=1)


def raw_element(text: str) -> Element:
    """Return text that goes into a page as it is."""
    return _RawElement(text)


class _Page(Figure):
    """The page, in its language; readers may enlarge it on any screen."""

    def render(self, **kwargs: Any) -> str:
        text = super().render(**kwargs).replace("<html>", '<html lang="en">', 1)
        viewport = '<meta name="viewport" content="width=device-width, initial-scale=1">'
        return sealed(re.sub(r'<meta name="viewport"[^>]*>', viewport, text, count=1))


def sealed(page: str, *within: str) -> str:
    """Return a page whose policy lets those scripts run that are in it now, by their hashes, and nothing else.

    Those of the pages `within` its frames are let run too: a frame obeys the policy of what it lies in.
    What a title or a name could smuggle in, a handler in an attribute say, has no hash and does not run.
    """
    found = (re.findall(r"<script(?:\s[^>]*)?>(.*?)</script>", text, flags=re.S) for text in (page, *within))
    scripts = dict.fromkeys(text for texts in found for text in texts if text)
    seals = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts)
    allowed = " ".join(dict.fromkeys(f"'sha256-{seal}'" for seal in seals))
    return page.replace("script-src 'unsafe-inline'", f"script-src {allowed}", 1)


class _RawElement(Element):
    """Text that goes into the page as it is."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._name = "raw"
        self.text = text

    def render(self, **kwargs: Any) -> str:
        return self.text


class _Layers(folium.LayerControl):
    """The layer control, open where there is room for it."""

    _template = template("web/layers.js.j2")


@lru_cache(maxsize=1)
def _leaflet() -> tuple[str, str]:
    """Return Leaflet's style and script with nothing left to fetch."""
    from xstatic.pkg import leaflet as package

    base = Path(package.BASE_DIR)

    def inline(found: re.Match[str]) -> str:
        return f"url({data_url((base / found.group(1)).read_bytes(), 'image/png')})"

    css = (base / "leaflet.css").read_text(encoding="utf-8")
    css = re.sub(r"url\([\"']?(images/[\w.-]+)[\"']?\)", inline, css)
    css = re.sub(r"behavior:\s*url\([^)]*\);?", "", css)
    js = (base / "leaflet.js").read_text(encoding="utf-8")
    js = re.sub(r"//# sourceMappingURL=.*", "", js)
    return css, js


def _server(tile_url: str) -> str:
    """Return the server of tiles as a Content-Security-Policy names it; any, where the URL does not tell."""
    parts = urlsplit(tile_url.replace("{s}", "*"))
    known = parts.scheme in ("http", "https") and "{" not in parts.netloc and parts.netloc
    return f"{parts.scheme}://{parts.netloc}" if known else "https:"
