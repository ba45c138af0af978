"""The saved map in a real browser, with the network cut."""

from __future__ import annotations

import re

import geopandas as gpd
import numpy as np
import pyproj
import pytest
from posteriors import across_180, bumps, disc, island, prescribed
from scipy.spatial import KDTree
from shapely import box
from system import Chromium

from geobgp import text
from geobgp.output import palette
from geobgp.web import maps

pytestmark = [pytest.mark.chromium, pytest.mark.slow]

NASTY = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>{{ 7*7 }}'
WATER = np.array([0xDD, 0xE6, 0xEA])
EARTH = 2 * np.pi * 6378137


def number(text: str) -> float:
    return float(text.replace(",", ""))


class View:
    """Where things are on the screen, worked out without the map's own projection."""

    def __init__(self, page: Chromium, crs) -> None:
        self.page = page
        self.zoom, left, top = page.run(
            "(() => { const m = geobgp.current.map, b = m.getPixelBounds().min; return [m.getZoom(), b.x, b.y]; })()"
        )
        # The pane may sit between two pixels.
        self.corner = np.array([left, top])
        self.to_mercator = pyproj.Transformer.from_crs(crs, 3857, always_xy=True)

    def screen(self, easting, northing):
        x, y = self.to_mercator.transform(easting, northing)
        world = 256 * 2.0**self.zoom
        return world * (0.5 + x / EARTH) - self.corner[0], world * (0.5 - y / EARTH) - self.corner[1]

    def place(self, x, y):
        """Easting and northing of a place on the screen."""
        world = 256 * 2.0**self.zoom
        east = EARTH * ((x + self.corner[0]) / world - 0.5)
        north = EARTH * (0.5 - (y + self.corner[1]) / world)
        return self.to_mercator.transform(east, north, direction="INVERSE")

    def free(self, x, y):
        """Which places on the screen are not under a card."""
        boxes = self.page.run(
            "[...document.querySelectorAll('.leaflet-control')].map(e => e.getBoundingClientRect())"
            ".map(r => [r.left, r.top, r.right, r.bottom])"
        )
        width, height = self.page.size
        free = (x > 5) & (x < width - 5) & (y > 5) & (y < height - 5)
        for left, top, right, bottom in boxes:
            free &= ~((x > left - 6) & (x < right + 6) & (y > top - 6) & (y < bottom + 6))
        return free


@pytest.fixture(scope="module")
def posterior():
    domain = island()
    return prescribed(domain, bumps(domain), 0.2 + 0.3 * (domain.node_points[:, 0] > 155_000), title="Bites " + NASTY)


@pytest.fixture(scope="module")
def path(posterior, tmp_path_factory):
    made = maps.posterior_map(posterior, threshold=0.3)
    # Shown in a notebook before it is saved.
    made._repr_html_()
    return maps.save(made, tmp_path_factory.mktemp("map") / "map.html")


@pytest.fixture(scope="module")
def page(path):
    with Chromium(1200, 900) as page:
        page.open(path)
        yield page


@pytest.fixture(scope="module")
def whole(posterior):
    """Cells that are land throughout, with their neighbours."""
    land = np.pad(posterior.domain.coverage == 1, 1)
    inner = land[1:-1, 1:-1] & land[:-2, 1:-1] & land[2:, 1:-1] & land[1:-1, :-2] & land[1:-1, 2:]
    return np.argwhere(inner)


def choose(page, k):
    page.run(f"document.querySelectorAll('.leaflet-control-layers-base input')[{k}].click()")
    page.settle()


def fields(posterior):
    data = posterior.intensity()
    return {
        "mean": data["mean"].values.astype(np.float32),
        "cv": (100 * data["sd"].values / data["mean"].values).astype(np.float32),
        "exceedance": posterior.exceedance(0.3).values.astype(np.float32),
    }


def test_no_error_and_no_request(page, path):
    assert page.console == []
    assert [url for url in page.requests if not url.startswith("data:")] == [path.resolve().as_uri()]


def test_words_from_the_data_stay_words(page):
    assert page.run("window.hacked") is None
    assert page.run("document.querySelector('img[src=x]')") is None
    assert page.run("document.querySelector('.geobgp-title h1').textContent") == "Bites " + NASTY
    assert page.run("document.title") == "Bites " + NASTY


@pytest.mark.parametrize("k", [0, 1, 2])
def test_known_cells_have_their_colour_at_their_place(page, posterior, whole, k):
    choose(page, k)
    name, values = list(fields(posterior).items())[k]
    classes = palette.classes_for(name, values)
    view = View(page, 28992)
    x, y = view.screen(*posterior.domain.grid.centres(*whole.T))
    free = view.free(x, y)
    assert free.sum() > 300
    shot = page.screenshot().astype(int)
    seen = shot[y[free].astype(int), x[free].astype(int)]
    expected = classes.colours[classes.index(values[tuple(whole[free].T)])].astype(int)
    np.testing.assert_array_equal(seen, expected)
    heading = page.run("document.querySelector('.geobgp-legend summary').textContent")
    assert heading == ["Mean intensity", "Relative uncertainty", "Probability > 0.3"][k]
    swatches = page.run(
        "[...document.querySelectorAll('.geobgp-legend li i')].map(e => getComputedStyle(e).backgroundColor)"
    )
    shown = [tuple(map(int, re.findall(r"\d+", s))) for s in swatches]
    assert shown == [tuple(c) for c in classes.colours[::-1].tolist()]


def test_cells_end_where_they_should_within_a_pixel(page, posterior, whole):
    """Colours change at the edge between two cells, found on the screen by walking across it."""
    choose(page, 0)
    values = fields(posterior)["mean"]
    classes = palette.classes_for("mean", values)
    index = classes.index(values)
    domain = posterior.domain
    rows, cols = whole.T
    east_of = np.minimum(cols + 1, domain.grid.shape[1] - 1)
    pair = (np.abs(index[rows, cols] - index[rows, east_of]) == 1) & (domain.coverage[rows, east_of] == 1)
    rows, cols = rows[pair], cols[pair]
    e, n = domain.grid.centres(rows, cols)
    view = View(page, 28992)
    x, y = view.screen(e + domain.cell_size / 2, n)
    free = view.free(x, y)
    rows, cols, x, y = rows[free], cols[free], x[free], y[free]
    assert len(x) > 20
    shot = page.screenshot().astype(int)
    errors = []
    for r, c, at_x, at_y in zip(rows, cols, x, y, strict=True):
        line = shot[int(at_y), int(at_x) - 8 : int(at_x) + 9]
        left = (line == classes.colours[index[r, c]].astype(int)).all(axis=1)
        # Where the left colour ends, from the left.
        ends = int(np.argmin(left)) if not left.all() else len(left)
        errors.append(int(at_x) - 8 + ends - at_x)
    image_pixel = page.run("document.querySelector('.leaflet-image-layer').getBoundingClientRect().width") / page.run(
        "document.querySelector('.leaflet-image-layer').naturalWidth"
    )
    # The picture's own pixels are a quarter of a cell; half of one of them is all that may be lost besides.
    assert np.abs(np.mean(errors)) < 1
    assert np.abs(errors).max() < 1 + image_pixel / 2 + 0.2


def test_the_shoreline_lies_on_the_shore_and_can_be_taken_away(page, posterior):
    import shapely

    choose(page, 0)
    view = View(page, 28992)
    shore = shapely.segmentize(shapely.boundary(posterior.domain.geometry), 20)
    x, y = view.screen(*shapely.get_coordinates(shore).T)
    predicted, free = np.column_stack([x, y]), view.free(x, y)

    def toggle():
        page.run("document.querySelector('.leaflet-control-layers-overlays input').click()")
        page.settle()
        return page.screenshot().astype(int)

    with_line, without, again = page.screenshot().astype(int), toggle(), toggle()
    np.testing.assert_array_equal(with_line, again)
    change = np.abs(with_line - without).max(axis=2)
    drawn, core = (np.argwhere(change > level)[:, ::-1] + 0.5 for level in (6, 30))
    core = core[view.free(*core.T)]
    # A dark line on the darkest class can hardly be seen.
    assert np.quantile(KDTree(drawn).query(predicted[free])[0], 0.99) < 1.5
    assert KDTree(predicted).query(core)[0].max() < 1.8


def agrees(shown: str, value: float) -> bool:
    """Whether three digits are those of a value, which a raster holds in single precision."""
    return abs(number(shown) - value) <= 0.5000001 * 10.0 ** (np.floor(np.log10(value) + 1e-9) - 2) + 1e-7 * value


def readout(page) -> str:
    return page.run("document.querySelector('.geobgp-readout').innerText")


def random_places(page, domain, n, seed=0):
    """Places on the screen over the land, as a hand would find them: anywhere, but on no edge of a cell."""
    view = View(page, domain.crs)
    x, y = np.random.default_rng(seed).integers([5, 5], np.array(page.size) - 5, (40 * n, 2)).T
    east, north = view.place(x, y)
    u, v = domain.grid.to_cells(east, north)
    row, col, inside = domain.grid.cell_of(east, north)
    clear = (np.abs(u - np.round(u)) > 0.01) & (np.abs(v - np.round(v)) > 0.01)
    good = inside & clear & view.free(x, y)
    good[good] = domain.coverage[row[good], col[good]] == 1
    at = np.flatnonzero(good)[:n]
    assert len(at) == n
    return x[at].tolist(), y[at].tolist(), np.column_stack([east, north])[at]


def rasters(posterior, folder, places):
    """Values of the written rasters at places, as rasterio reads them."""
    import rasterio

    posterior.to_raster(folder)
    out = {}
    for name in ("mean", "sd", "q05", "q50", "q95"):
        with rasterio.open(folder / f"{name}.tif") as source:
            out[name] = np.array([float(value[0]) for value in source.sample(places)])
    return out


def test_the_value_under_the_cursor_is_the_rasters(page, posterior, tmp_path):
    choose(page, 0)
    x, y, places = random_places(page, posterior.domain, 25)
    raster = rasters(posterior, tmp_path, places)
    for k in range(len(x)):
        page.mouse(x[k], y[k])
        words = readout(page)
        found = re.match(r"([\d.,e-]+) events per km²\s+90 % interval ([\d.,e-]+) – ([\d.,e-]+)", words)
        assert found, words
        for shown, name in zip(found.groups(), ("mean", "q05", "q95"), strict=True):
            assert agrees(shown, raster[name][k]), (words, name, raster[name][k])
    page.mouse(20, 450)
    assert "Point at the land" in readout(page)
    choose(page, 1)
    page.mouse(x[0], y[0])
    cv = re.search(r"sd / mean ([\d.]+) %", readout(page)).group(1)
    assert agrees(cv, 100 * raster["sd"][0] / raster["mean"][0])
    choose(page, 2)
    page.mouse(x[1], y[1])
    chance = re.search(r"probability > 0.3: ([<>] )?([\d.]+) %", readout(page)).group(2)
    row, col, _ = posterior.domain.grid.cell_of(*places[1])
    expected = 100 * float(posterior.exceedance(0.3).values[row, col])
    assert float(chance) == pytest.approx(expected, abs=0.5)
    choose(page, 0)


def test_numbers_are_written_as_the_report_writes_them(page):
    values = [0.0, 1e-7, 1.23e-5, 0.000123, 0.0123, 0.5, 1.0, 12.3, 999.0, 1230.0, 1_230_000.0, 1e9, 1.23e12]
    assert page.run(f"{values}.map(v => geobgp.number(v))") == [text.number(v, 3) for v in values]


def test_a_click_shows_more(page, posterior, tmp_path):
    choose(page, 0)
    x, y, places = random_places(page, posterior.domain, 3, seed=1)
    raster = rasters(posterior, tmp_path, places)
    k = int(np.argmax(y))
    page.mouse(x[k], y[k], click=True)
    text = page.run("document.querySelector('.leaflet-popup-content').innerText")
    assert agrees(re.search(r"standard deviation\s+([\d.,e-]+)", text).group(1), raster["sd"][k])
    assert agrees(re.search(r"median\s+([\d.,e-]+)", text).group(1), raster["q50"][k])
    lat, lon = (float(v) for v in re.search(r"([\d.]+)° N, ([\d.]+)° E", text).groups())
    east, north = pyproj.Transformer.from_crs(4326, 28992, always_xy=True).transform(lon, lat)
    assert np.hypot(east - places[k, 0], north - places[k, 1]) < 15
    page.run("geobgp.current.map.closePopup(); 0")
    page.settle()


def test_opacity(page, posterior, whole):
    choose(page, 0)
    view = View(page, 28992)
    x, y = view.screen(*posterior.domain.grid.centres(*whole.T))
    k = np.flatnonzero(view.free(x, y))[100]
    slide = (
        "(v => { const i = document.querySelector('.geobgp-opacity input');"
        " i.value = v; i.dispatchEvent(new Event('input')); })"
    )
    page.run(f"{slide}(0)")
    page.settle()
    np.testing.assert_array_equal(page.screenshot()[int(y[k]), int(x[k])], WATER)
    page.run(f"{slide}(100)")
    page.settle()
    assert (page.screenshot()[int(y[k]), int(x[k])] != WATER).any()


def test_the_page_cannot_reach_the_network(path):
    with Chromium(800, 600) as page:
        page.open(path)
        page.run(
            "window.broken = [];"
            "document.addEventListener('securitypolicyviolation', e => broken.push(e.effectiveDirective));"
            "new Image().src = 'https://example.org/a.png'; fetch('https://example.org/b').catch(() => 0); 0"
        )
        page.settle()
        assert sorted(page.run("window.broken")) == ["connect-src", "img-src"]


def test_on_a_phone(path, posterior):
    with Chromium(390, 844, mobile=True, scale=2) as page:
        page.open(path)
        assert page.console == []
        assert page.run("document.documentElement.scrollWidth") <= 390
        boxes = page.run(
            "[...document.querySelectorAll('.geobgp-card, .leaflet-control-layers')]"
            ".map(e => e.getBoundingClientRect()).filter(r => r.width)"
            ".map(r => [r.left, r.top, r.right, r.bottom])"
        )
        assert all(b[0] >= 0 and b[2] <= 390 and b[1] >= 0 and b[3] <= 844 for b in boxes)
        # No card lies on another.
        for i, a in enumerate(boxes):
            for b in boxes[i + 1 :]:
                assert a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]
        assert page.run("document.querySelector('.geobgp-legend details').open") is False
        assert page.run("!!document.querySelector('.leaflet-control-layers-expanded')") is False
        # The map fills most of the width.
        width = page.run("document.querySelector('.leaflet-image-layer').getBoundingClientRect().width")
        assert width > 0.7 * 390
        page.run("document.querySelector('.geobgp-legend summary').click()")
        page.settle()
        assert page.run("document.querySelector('.geobgp-legend').getBoundingClientRect().bottom") <= 844


def test_across_the_antimeridian(tmp_path):
    domain = across_180()
    posterior = prescribed(domain, np.random.default_rng(2).normal(size=domain.n_nodes), 0.3)
    path = maps.save(maps.posterior_map(posterior), tmp_path / "map.html")
    data = posterior.intensity()["mean"].values
    with Chromium(1000, 800) as page:
        page.open(path)
        assert page.console == []
        to_degrees = pyproj.Transformer.from_crs(domain.crs, 4326, always_xy=True)
        rows, cols = np.nonzero(domain.coverage == 1)
        # Anywhere in a cell, but for its very edge.
        u, v = np.random.default_rng(3).uniform(0.01, 0.99, (2, len(rows)))
        lon, lat = to_degrees.transform(*domain.grid.from_cells(cols + u, rows + v))
        for side in (lon > 0, lon < 0):
            for k in np.flatnonzero(side)[:: side.sum() // 20]:
                value = page.run(f"geobgp.current.at({{lat: {lat[k]}, lng: {lon[k]}}}).mean")
                assert value == text.rounded(data[rows[k], cols[k]], 3)
        # Both sides are on the screen together.
        bounds = page.run("(() => { const b = geobgp.current.map.getBounds(); return [b.getWest(), b.getEast()]; })()")
        assert bounds[0] < 178.5 < 181.4 < bounds[1]


def test_a_local_domain(tmp_path):
    domain = disc(0.05)
    posterior = prescribed(domain, bumps(domain), 0.3)
    path = maps.save(maps.posterior_map(posterior), tmp_path / "map.html")
    data = posterior.intensity()["mean"].values
    with Chromium(1000, 800) as page:
        page.open(path)
        assert page.console == []
        row, col = 12, 25
        for u, v in np.random.default_rng(3).uniform(0.01, 0.99, (20, 2)):
            e, n = domain.grid.from_cells(col + u, row + v)
            assert page.run(f"geobgp.current.at({{lat: {n}, lng: {e}}}).mean") == text.rounded(data[row, col], 3)
        e, n = domain.grid.centres(row, col)
        x, y = page.run(f"(p => [p.x, p.y])(geobgp.current.map.latLngToContainerPoint([{n}, {e}]))")
        classes = palette.classes_for("mean", data.astype(np.float32))
        expected = classes.colours[classes.index(data.astype(np.float32)[row, col])]
        np.testing.assert_array_equal(page.screenshot()[int(y), int(x)], expected)
        scale = page.run("document.querySelector('.leaflet-control-scale-line').textContent")
        assert re.fullmatch(r"[\d.]+ units?", scale)


def test_points_and_their_names(posterior, tmp_path):
    points = gpd.GeoDataFrame({"name": [NASTY]}, geometry=gpd.points_from_xy([152_500.0], [466_500.0]), crs=28992)
    made = maps.posterior_map(posterior, points=points, show_points=True, point_labels="name")
    path = maps.save(made, tmp_path / "map.html")
    with Chromium(1000, 800) as page:
        page.open(path)
        view = View(page, 28992)
        x, y = view.screen(152_500.0, 466_500.0)
        page.mouse(x, y)
        page.settle()
        assert page.run("document.querySelector('.leaflet-tooltip').textContent") == NASTY
        assert page.run("window.hacked") is None
        np.testing.assert_allclose(page.screenshot()[int(y), int(x)].astype(int), [0x16, 0x32, 0x3F], atol=30)
        assert page.console == []


def test_tiles_are_asked_for_at_their_server_only(posterior, tmp_path):
    path = maps.save(maps.posterior_map(posterior, basemap="OpenStreetMap"), tmp_path / "map.html")
    with Chromium(1000, 800) as page:
        page.open(path)
        hosts = {re.match(r"https?://([^/]+)", u).group(1) for u in page.requests if u.startswith("http")}
        assert hosts == {"tile.openstreetmap.org"}


def test_in_a_notebooks_frame(posterior, tmp_path):
    text = maps.posterior_map(posterior)._repr_html_()
    path = tmp_path / "notebook.html"
    stub = "<script>window.geobgp = {current: {ready: Promise.resolve()}}</script>"
    path.write_text(f"<!DOCTYPE html><meta charset=utf-8><body>{text}{stub}", encoding="utf-8")
    with Chromium(900, 700) as page:
        page.open(path)
        inner = "document.querySelector('iframe').contentWindow.geobgp.current"
        assert page.run(f"{inner}.ready.then(() => {inner}.layers.length)") == 3
        assert page.console == []


def test_nothing_runs_that_names_and_titles_bring_along(tmp_path):
    """Hostile words wherever users write words; and markup that got past all escaping, which the policy stops."""
    domain = island(2000.0)
    nasty = NASTY + "'\"></script><svg onload=window.hacked=1>"
    posterior = prescribed(domain, bumps(domain), 0.3, title=nasty)
    west, south, east, north = domain.grid.bounds
    halves = [box(west, south, (west + east) / 2, north), box((west + east) / 2, south, east, north)]
    regions = gpd.GeoDataFrame({"name": [nasty, nasty + "2"]}, geometry=halves, crs=domain.crs)
    points = gpd.GeoDataFrame({nasty: [nasty]}, geometry=[halves[0].centroid], crs=domain.crs)
    path = tmp_path / "map.html"
    posterior.to_map(path, regions=regions, context=regions, show_points=True, points=points, point_labels=nasty)
    html = path.read_text("utf-8")
    assert "script-src 'sha256-" in html and "script-src 'unsafe-inline'" not in html
    with Chromium(800, 600) as page:
        page.open(path)
        assert page.run("typeof window.hacked") == "undefined"
        # What was never escaped does not run either: a handler, a script, and a javascript: address.
        page.run(
            "(() => { const d = document.createElement('div');"
            " d.innerHTML = `<img src=x onerror='window.hacked=1'><a id=bad href='javascript:window.hacked=1'>x</a>`;"
            " document.body.append(d); const s = document.createElement('script'); s.textContent = 'window.hacked=1';"
            " document.body.append(s); document.getElementById('bad').click(); return true; })()"
        )
        page.run("new Promise(done => setTimeout(() => done(true), 300))")
        assert page.run("typeof window.hacked") == "undefined"
