"""The page for everyone: with keys alone, read aloud, enlarged, in clear contrast, on paper."""

from __future__ import annotations

import re

import geopandas as gpd
import numpy as np
import pyproj
import pytest
from posteriors import bumps, disc, island, prescribed
from system import Chromium

from geobgp import text
from geobgp.output import palette
from geobgp.web import maps
from geobgp.web.layers import Plane

pytestmark = [pytest.mark.chromium, pytest.mark.slow]

TAB, ENTER, ESCAPE, LEFT, RIGHT = 9, 13, 27, 37, 39


@pytest.fixture(scope="module")
def posterior():
    domain = island()
    return prescribed(domain, bumps(domain), np.linspace(0.1, 0.9, domain.n_nodes), title="Bites")


@pytest.fixture(scope="module")
def path(posterior, tmp_path_factory):
    points = gpd.GeoSeries(gpd.points_from_xy([152_500.0], [466_500.0]), crs=28992)
    made = maps.posterior_map(posterior, threshold=0.3, points=points, show_points=True)
    return maps.save(made, tmp_path_factory.mktemp("map") / "map.html")


@pytest.fixture
def page(path):
    with Chromium(1200, 900) as page:
        page.open(path)
        yield page
        assert page.console == []


def test_its_language_is_told_and_nobody_is_kept_from_enlarging_it(page):
    assert page.run("document.documentElement.lang") == "en"
    views = page.run("[...document.querySelectorAll('meta[name=viewport]')].map(m => m.content)")
    assert views == ["width=device-width, initial-scale=1"]


def value_at_the_middle(page, posterior):
    """The raster's value at the middle of the map, None off land."""
    lng, lat = page.run("(c => [c.lng, c.lat])(geobgp.current.map.getCenter())")
    place = pyproj.Transformer.from_crs(4326, 28992, always_xy=True).transform(lng, lat)
    row, col, inside = posterior.domain.grid.cell_of(*place)
    assert inside
    value = float(posterior.intensity()["mean"].values[row, col])
    return None if np.isnan(value) else text.number(value, 3)


def test_keys_alone_read_the_map(page, posterior):
    said = "document.querySelector('[role=status][aria-live=polite]').textContent"
    readout = "document.querySelector('.geobgp-readout').innerText"
    popup = "document.querySelector('.leaflet-popup-content')"
    cross = "getComputedStyle(document.querySelector('.geobgp-cross')).display"
    assert page.run(cross) == "none"
    page.key("Tab", TAB)
    assert page.run("document.activeElement.getAttribute('aria-label')").startswith("Map: Bites. Arrow keys")
    assert page.run(cross) == "block"
    assert "Enter shows" in page.run(readout)
    # In the middle there is a lake; to the west of it there is land.
    seen = set()
    for _ in range(4):
        value = value_at_the_middle(page, posterior)
        page.key("Enter", ENTER)
        if value is None:
            assert page.run(said).startswith("No land at the cross; 52.")
            assert page.run(f"{popup} === null")
        else:
            assert page.run(said).startswith(f"mean: {value}, 90 % interval: ")
            assert page.run(readout).startswith(f"{value} events per km²")
            assert page.run(f"{popup}.innerText").split()[1] == value
        seen.add(value)
        page.key("Escape", ESCAPE)
        assert page.run(f"{popup} === null")
        page.key("ArrowLeft", LEFT)
    assert len(seen) > 1
    # Keys that are for a button are not the map's.
    page.run("document.querySelector('.geobgp-home').focus()")
    page.key("Enter", ENTER)
    assert page.run(f"{popup} === null")


CONTRAST = """
(() => {
  const rgba = text => { const v = text.match(/[\\d.]+/g).map(Number); return v.length < 4 ? [...v, 1] : v; };
  const over = (top, below) => [0, 1, 2].map(k => top[3] * top[k] + (1 - top[3]) * below[k]);
  const light = c => [0.2126, 0.7152, 0.0722].reduce((sum, w, k) => {
    const s = c[k] / 255;
    return sum + w * (s <= 0.04045 ? s / 12.92 : ((s + 0.055) / 1.055) ** 2.4);
  }, 0);
  const out = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const node = walk.currentNode.parentElement, box = node.getBoundingClientRect();
    if (!walk.currentNode.textContent.trim() || box.width < 2 || node.closest("script, style")) continue;
    const chain = [];
    for (let at = node; at; at = at.parentElement) chain.unshift(rgba(getComputedStyle(at).backgroundColor));
    // Below a card lies the map: its darkest and its lightest colour.
    for (const map of [[30, 10, 50], [255, 255, 255]]) {
      const back = chain.slice(2).reduce((below, top) => over(top, below), map);
      const fore = over(rgba(getComputedStyle(node).color), back);
      const [a, b] = [light(fore), light(back)];
      out.push([(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), walk.currentNode.textContent.trim()]);
    }
  }
  return out;
})()
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_stand_out_from_their_ground(page, scheme):
    """AA of the Web Content Accessibility Guidelines: 4.5 to 1."""
    page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    page.run("document.querySelector('.geobgp-title details').open = true")
    page.key("Tab", TAB)
    for _ in range(3):
        page.key("Enter", ENTER)
        page.key("ArrowLeft", LEFT)
    page.key("Enter", ENTER)
    assert page.run("document.querySelector('.leaflet-popup-content') !== null")
    found = page.run(CONTRAST)
    words = {word for _, word in found}
    assert {"Bites", "About this map", "standard deviation", "Mean intensity", "Opacity"} <= words
    poor = [(round(ratio, 2), word) for ratio, word in found if ratio < 4.5]
    assert poor == []


@pytest.mark.parametrize("size", [(700, 1030), (1030, 700)], ids=["portrait", "landscape"])
def test_paper_shows_all_of_the_land_and_no_buttons(page, posterior, size):
    # Wherever the reader looks at the moment, and at which layer.
    page.run("geobgp.current.map.setView([52.1, 5.4], 13, {animate: false}); 0")
    page.run("document.querySelectorAll('.leaflet-control-layers-base input')[1].click()")
    page.resize(*size)
    page.call("Emulation.setEmulatedMedia", media="print")
    page.run("window.dispatchEvent(new Event('beforeprint')); 0")
    page.settle()
    shot = page.screenshot().astype(int)
    visible = "[...document.querySelectorAll('a, button, input, summary')].filter(e => e.offsetParent)"
    assert page.run(f"{visible}.length") == 0
    left, top, width, height = page.run(
        "(r => [r.left, r.top, r.width, r.height])"
        "(document.querySelector('.geobgp-print image').getBoundingClientRect())"
    )
    assert left >= 0 and top >= 0 and left + width <= size[0] and top + height <= size[1]
    assert width > 0.6 * size[0] or height > 0.6 * size[1]
    words = page.run("document.querySelector('.geobgp-print').innerText")
    assert words.startswith("Bites")
    assert "Relative uncertainty" in words
    plane = Plane.over(posterior.domain, maps.MAX_PIXELS)
    # The scale is right in the middle of the map, at 52.2 degrees north.
    length = page.run("document.querySelector('.geobgp-print text').textContent")
    drawn = page.run("[...document.querySelectorAll('.geobgp-print path')].pop().getBoundingClientRect().width")
    metres = plane.shape[1] * plane.pixel * np.cos(np.radians(52.2)) / width
    assert 1000 * float(length.removesuffix(" km")) == pytest.approx(drawn * metres, rel=0.01)
    # Every cell has its colour, from the first to the last.
    data = posterior.intensity()
    values = (100 * data["sd"].values / data["mean"].values).astype(np.float32)
    classes = palette.classes_for("cv", values)
    land = np.pad(posterior.domain.coverage == 1, 1)
    inner = land[1:-1, 1:-1] & land[:-2, 1:-1] & land[2:, 1:-1] & land[1:-1, :-2] & land[1:-1, 2:]
    rows, cols = np.nonzero(inner)
    e, n = posterior.domain.grid.centres(rows, cols)
    x, y = pyproj.Transformer.from_crs(28992, 3857, always_xy=True).transform(e, n)
    px = left + (x - plane.west) / plane.pixel / plane.shape[1] * width
    py = top + (plane.north - y) / plane.pixel / plane.shape[0] * height
    dot = np.hypot(e - 152_500, n - 466_500) < 1500
    seen = shot[py[~dot].astype(int), px[~dot].astype(int)]
    expected = classes.colours[classes.index(values[rows, cols])[~dot]].astype(int)
    np.testing.assert_array_equal(seen, expected)


def test_on_paper_it_is_one_page_either_way(page):
    for landscape in (False, True):
        printed = page.pdf(landscape=landscape)
        assert len(re.findall(rb"/Type\s*/Page\b", printed)) == 1
        box = re.search(rb"/MediaBox\s*\[([\d. ]+)\]", printed).group(1)
        _, _, width, height = map(float, box.split())
        assert (width > height) == landscape
    assert page.run("document.querySelectorAll('.geobgp-print').length") == 0


def test_paper_shows_the_layers_that_are_on(page):
    def drawn():
        page.run("window.dispatchEvent(new Event('beforeprint')); 0")
        found = page.run("['path', 'circle'].map(tag => document.querySelectorAll('.geobgp-print ' + tag).length)")
        page.run("window.dispatchEvent(new Event('afterprint')); 0")
        return found

    # The scale is a path as well.
    assert drawn() == [2, 1]
    for at in (0, 1):
        page.run(f"document.querySelectorAll('.leaflet-control-layers-overlays input')[{at}].click()")
    assert drawn() == [1, 0]


def test_a_local_domain_on_paper(tmp_path):
    made = maps.posterior_map(prescribed(disc(), bumps(disc()), 0.3))
    with Chromium(700, 900) as page:
        page.open(maps.save(made, tmp_path / "map.html"))
        page.call("Emulation.setEmulatedMedia", media="print")
        page.run("window.dispatchEvent(new Event('beforeprint')); 0")
        assert page.run("document.querySelector('.geobgp-print text').textContent") == "0.5 units"
        # The disc touches all sides of its picture.
        picture, shore = (
            page.run(
                f"(r => [r.left, r.top, r.right, r.bottom])(document.querySelector('{part}').getBoundingClientRect())"
            )
            for part in (".geobgp-print image", ".geobgp-print path")
        )
        np.testing.assert_allclose(shore, picture, atol=2)
        assert page.console == []
