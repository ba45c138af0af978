"""What readers do in a window of any size: read, compare, search, share a link, take picture and table along."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path

import geopandas as gpd
import numpy as np
import pandas as pd
import pyproj
import pytest
import shapely
from over_time import moving
from PIL import Image
from posteriors import bumps, island, prescribed
from system import Chromium

from geobgp.data.periods import Periods
from geobgp.output import palette
from geobgp.output.grids import View
from geobgp.web import maps
from geobgp.web.page import render, sealed

pytestmark = [pytest.mark.chromium, pytest.mark.slow]

TO_DEGREES = pyproj.Transformer.from_crs(28992, 4326, always_xy=True)
MONTHS = Periods.calendar("month", "2019-01", "2019-06")
SIZES = [(360, 640), (700, 450), (1280, 800)]
NAMES = ["=1+1 <b>West</b>", "Ēast"]


@pytest.fixture(scope="module")
def halves():
    boxes = [shapely.box(130_000, 440_000, 155_000, 490_000), shapely.box(155_000, 440_000, 180_000, 490_000)]
    return gpd.GeoDataFrame({"name": NAMES, "phone": [4711, 4712]}, geometry=boxes, crs=28992)


@pytest.fixture(scope="module")
def posterior():
    return prescribed(island(), bumps(island()), 0.3, title="Bites")


@pytest.fixture(scope="module")
def path(posterior, halves, tmp_path_factory):
    made = maps.posterior_map(posterior, threshold=0.3, regions=halves, hotspots=True)
    return maps.save(made, tmp_path_factory.mktemp("map") / "map.html")


@pytest.fixture(scope="module")
def course():
    return View(moving(island(), MONTHS), moving(island(), MONTHS.ahead(2), observed=False))


@pytest.fixture(scope="module")
def timed(course, halves, tmp_path_factory):
    source = moving(island(), MONTHS)
    totals = source.totals(halves)
    totals.attrs["units"] = "events per km²"
    made = maps.posterior_map(source, forecast=course.forecast, regions=totals, threshold=0.5)
    return maps.save(made, tmp_path_factory.mktemp("timed") / "map.html")


@pytest.fixture(params=SIZES, ids=lambda size: "x".join(map(str, size)))
def size(request):
    return request.param


def boxes(page, selector):
    return page.run(
        f"[...document.querySelectorAll({json.dumps(selector)})].map(e => e.getBoundingClientRect())"
        ".filter(r => r.width && r.height).map(r => [r.left, r.top, r.right, r.bottom])"
    )


def overlap(a, b):
    return a[0] < b[2] - 1 and b[0] < a[2] - 1 and a[1] < b[3] - 1 and b[1] < a[3] - 1


def screen(page, easting, northing):
    lon, lat = TO_DEGREES.transform(easting, northing)
    return page.run(f"(p => [p.x, p.y])(geobgp.current.map.latLngToContainerPoint([{lat}, {lon}]))")


def point_at(page, easting, northing, event="mousemove"):
    """As if the cursor were there, whether or not a card lies above."""
    lon, lat = TO_DEGREES.transform(easting, northing)
    page.run(f"geobgp.current.map.fire('{event}', {{latlng: L.latLng({lat}, {lon})}}); 0")
    page.settle()


def choose(page, k):
    page.run(f"document.querySelectorAll('.leaflet-control-layers-base input')[{k}].click()")
    page.settle()


def tick(page):
    page.run("document.querySelector('.geobgp-compare input').click()")
    page.settle()


def words(page, selector):
    return page.run(f"document.querySelector({json.dumps(selector)}).innerText")


def test_no_card_lies_on_another_nor_on_a_popup(path, timed, size):
    for file in (path, timed):
        with Chromium(*size) as page:
            page.open(file)
            cards = (
                ".geobgp-title, .leaflet-bar, .leaflet-control-layers, .geobgp-legend, .geobgp-readout, .geobgp-time"
            )

            def apart(selector, page=page):
                found = boxes(page, selector)
                assert all(b[0] >= 0 and b[1] >= 0 and b[2] <= size[0] and b[3] <= size[1] for b in found), found
                pairs = [(a, b) for i, a in enumerate(found) for b in found[i + 1 :]]
                assert not any(overlap(a, b) for a, b in pairs), found
                return len(found)

            # The readout at its longest, with a hot spot, a region and a line chart.
            point_at(page, 163_000, 470_000)
            assert apart(cards) >= 4
            point_at(page, 163_000, 470_000, "click")
            assert len(boxes(page, ".leaflet-popup-content-wrapper")) == 1
            apart(cards + ", .leaflet-popup-content-wrapper")
            assert page.run("document.documentElement.scrollWidth") <= size[0]
            assert page.console == []


def test_the_subtitle_and_the_legend_follow_the_layer(path):
    with Chromium(1280, 800) as page:
        page.open(path)
        expected = [
            "mean intensity, events per km²",
            "standard deviation in per cent of the mean",
            "probability that the intensity exceeds 0.3 events per km²",
        ]
        for k, text in enumerate(expected):
            choose(page, k)
            assert words(page, ".geobgp-title p") == f"1,234 points; {text}"
        assert words(page, ".geobgp-legend .geobgp-units") == (
            "probability (%) that the intensity exceeds 0.3 events per km²"
        )


def test_back_at_the_first_period_and_forward_at_the_last_stay(timed):
    with Chromium(900, 700) as page:
        page.open(timed)
        back, forward = (
            "document.querySelectorAll('.geobgp-time button')[0]",
            "document.querySelectorAll('.geobgp-time button')[2]",
        )
        page.run(f"geobgp.current.time.set(0); {back}.click()")
        assert page.run("geobgp.current.time.shown()") == 0
        assert page.run(f"{back}.getAttribute('aria-disabled')") == "true"
        page.run(f"geobgp.current.time.set({MONTHS.n + 1}); {forward}.click()")
        assert page.run("geobgp.current.time.shown()") == MONTHS.n + 1
        assert page.run(f"[{back}, {forward}].map(e => e.getAttribute('aria-disabled'))") == ["false", "true"]


def test_dark_where_the_reader_prefers_it_and_light_on_paper(path):
    light = "getComputedStyle(document.querySelector('.geobgp-title')).backgroundColor"
    with Chromium(1280, 800) as page:
        page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
        page.open(path)
        assert page.run(light) == "rgba(28, 38, 43, 0.97)"
        shot = page.screenshot().astype(int)
        assert shot[400, 60].max() < 50  # the sea
        page.call(
            "Emulation.setEmulatedMedia", media="print", features=[{"name": "prefers-color-scheme", "value": "dark"}]
        )
        page.run("window.dispatchEvent(new Event('beforeprint')); 0")
        page.settle()
        assert page.screenshot()[790, 5].min() == 255
        assert page.run("getComputedStyle(document.querySelector('.geobgp-print .geobgp-units')).color") == (
            "rgb(83, 100, 108)"
        )


def test_a_link_keeps_view_layer_period_and_both_sides(timed):
    with Chromium(900, 700) as page:
        page.open(timed)
        assert page.run("location.hash") == ""
        choose(page, 2)
        page.run("geobgp.current.time.set(3)")
        page.run("geobgp.current.map.setView([52.2, 5.45], 11, {animate: false}); 0")
        tick(page)
        page.run("geobgp.current.compare.set({layer: 1, period: 5}, 0.25)")
        page.settle()
        link = page.run("location.hash")
        assert (
            link
            == "#view=11/52.2/5.45&layer=p0&period=2019-01&right-layer=uncertainty&right-period=2019-06&divider=0.25"
        )
        # Opened by somebody else, in another window; and with words in it that mean nothing here.
        for size in ((900, 700), (500, 700)):
            page.resize(*size)
            page.call("Page.navigate", url="about:blank")
            page.open(Path(timed), link + "&layer=x&period=<b>&other=1")
            state = page.run(
                "(m => [m.getZoom(), m.getCenter().lat, m.getCenter().lng])(geobgp.current.map)"
                ".concat(geobgp.current.time.label(), geobgp.current.compare.share())"
            )
            assert state == [11, pytest.approx(52.2, abs=1e-3), pytest.approx(5.45, abs=1e-3), "2019-01", 0.25]
            assert page.run("geobgp.current.compare.state()") == {"layer": 1, "period": 5}
            assert words(page, ".geobgp-title p").endswith("probability that the intensity exceeds 0.5 events per km²")
        page.call("Page.navigate", url="about:blank")
        page.open(Path(timed), "#view=a/b/c&layer=%00&period=%22&right-layer=toString&divider=9")
        assert page.run("geobgp.current.time.label()") == "2019-06"
        assert page.console == []


def test_two_layers_side_by_side(path, posterior):
    data = posterior.intensity()
    mean = data["mean"].values.astype(np.float32)
    spread = (100 * data["sd"].values / data["mean"].values).astype(np.float32)
    left, right = palette.classes_for("mean", mean), palette.classes_for("cv", spread)
    land = np.pad(posterior.domain.coverage == 1, 1)
    whole = land[1:-1, 1:-1] & land[:-2, 1:-1] & land[2:, 1:-1] & land[1:-1, :-2] & land[1:-1, 2:]
    rows, cols = np.nonzero(whole)
    east, north = posterior.domain.grid.centres(rows, cols)
    with Chromium(1280, 800) as page:
        page.open(path)
        page.run(
            "document.querySelectorAll('.leaflet-control-layers-overlays input').forEach(i => i.checked && i.click())"
        )
        before = page.screenshot()
        tick(page)
        divider = page.run(
            "(r => r.left + r.width / 2)(document.querySelector('.geobgp-divider').getBoundingClientRect())"
        )
        assert divider == 640
        shot = page.screenshot()
        seen = {"left": 0, "right": 0}
        for k in range(0, len(rows), 7):
            x, y = screen(page, east[k], north[k])
            if abs(x - 640) < 30 or 400 < y < 580 or not (5 < y < 700):
                continue
            side, values, classes = ("left", mean, left) if x < 640 else ("right", spread, right)
            np.testing.assert_array_equal(
                shot[int(y), int(x)], classes.colours[classes.index(values[rows[k], cols[k]])]
            )
            seen[side] += 1
        assert min(seen.values()) > 15
        # The numbers on a side are those of its layer; both legends are there, and the names of both at the divider.
        point_at(page, 163_000, 470_000)
        assert "sd / mean" in words(page, ".geobgp-readout")
        point_at(page, 146_400, 470_300)
        assert "sd / mean" not in words(page, ".geobgp-readout")
        names = "[...document.querySelectorAll('.geobgp-legend summary, .geobgp-chip')].map(e => e.textContent)"
        assert page.run(names) == [
            "Mean intensity", "Relative uncertainty", "Mean intensity", "Relative uncertainty",
        ]  # fmt: skip
        # With keys, and with the cursor.
        page.run("document.querySelector('.geobgp-handle').focus()")
        for _ in range(5):
            page.key("ArrowLeft", 37)
        assert page.run("document.activeElement.getAttribute('aria-valuenow')") == "40"
        for kind, x in (("mousePressed", 512), ("mouseMoved", 700), ("mouseMoved", 960), ("mouseReleased", 960)):
            page.call("Input.dispatchMouseEvent", type=kind, x=x, y=300, button="left", clickCount=1)
        page.settle()
        assert page.run("geobgp.current.compare.share()") == pytest.approx(0.75, abs=0.01)
        tick(page)
        np.testing.assert_array_equal(page.screenshot()[:, 300:1000], before[:, 300:1000])
        assert page.console == []


def test_two_periods_side_by_side_each_with_its_numbers(timed, course):
    mean = course.data["mean"].values
    with Chromium(1280, 800) as page:
        page.open(timed)
        tick(page)
        # What was seen is on the right, and the first period on the left.
        assert page.run("[...document.querySelectorAll('.geobgp-chip')].map(e => e.textContent)") == [
            "2019-01",
            "2019-06",
        ]
        for east, north, period in ((146_400, 470_300, 0), (170_400, 457_300, MONTHS.n - 1)):
            row, col, _ = course.domain.grid.cell_of(np.array([float(east)]), np.array([float(north)]))
            point_at(page, east, north)
            shown = float(words(page, ".geobgp-readout b"))
            assert shown == pytest.approx(mean[period, row[0], col[0]], rel=0.006)
            assert ["2019-01", "2019-06"][period > 0] in words(page, ".geobgp-readout")
            point_at(page, east, north, "click")
            assert words(page, ".leaflet-popup-content .geobgp-quiet").startswith(["2019-01", "2019-06"][period > 0])
        page.run("window.dispatchEvent(new Event('beforeprint')); 0")
        titles = page.run("[...document.querySelectorAll('.geobgp-print h2')].map(e => e.textContent)")
        assert titles == ["Mean intensity, 2019-01", "Mean intensity, 2019-06"]
        pictures = page.run("[...document.querySelectorAll('.geobgp-print image')].map(e => e.getAttribute('href'))")
        assert len(set(pictures)) == 2


def test_a_region_is_found_by_a_part_of_its_name(path):
    search = (
        "(words => { const i = document.querySelector('.geobgp-search input'); i.value = words; i.form.requestSubmit();"
        " return document.querySelector('.geobgp-search [role=status]').textContent; })"
    )
    with Chromium(700, 450) as page:
        page.open(path)
        assert page.run(f"{search}('nowhere')") == "No region of that name."
        assert page.run("document.querySelector('.leaflet-popup-content')") is None
        for typed, name in (("EAST", NAMES[1]), ("<b>west", NAMES[0])):
            assert page.run(f"{search}({typed!r})") == ""
            page.settle()
            assert words(page, ".leaflet-popup-content h2") == name
            x, y = screen(page, 142_000 if name == NAMES[0] else 168_000, 462_000)
            assert 0 < x < 700 and 0 < y < 450
        assert page.run("[...document.querySelectorAll('.geobgp-search option')].map(o => o.value)") == sorted(NAMES)
        assert page.console == []


def downloads(page):
    """Names and contents of what the page hands over to be saved."""
    page.run(
        "window.saved = [];"
        "HTMLAnchorElement.prototype.click = function () { saved.push(fetched(this.download)); };"
        "const old = URL.createObjectURL; let last = null;"
        "URL.createObjectURL = blob => { last = blob; return old.call(URL, blob); };"
        "async function fetched(name) { const b = new Uint8Array(await last.arrayBuffer()); let t = '';"
        " for (const x of b) t += String.fromCharCode(x); return [name, btoa(t)]; }; 0"
    )
    n = page.run("document.querySelectorAll('.geobgp-save button').length")
    for k in range(n):
        page.run(f"document.querySelectorAll('.geobgp-save button')[{k}].click(); 0")
        page.run(
            f"new Promise(r => {{ const wait = () => saved.length > {k} ? r(true) : setTimeout(wait, 20); wait(); }})"
        )
    return {name: base64.b64decode(data) for name, data in page.run("Promise.all(saved)")}


def test_the_picture_and_the_table_that_are_taken_along(path, posterior, halves):
    with Chromium(800, 600) as page:
        page.open(path)
        files = downloads(page)
        assert page.console == []
    assert list(files) == ["bites.png", "bites-regions.csv"]
    picture = np.asarray(Image.open(io.BytesIO(files["bites.png"])).convert("RGB")).reshape(-1, 3)
    data = posterior.intensity()["mean"].values.astype(np.float32)
    classes = palette.classes_for("mean", data)
    counted = np.bincount(classes.index(data)[np.isfinite(data)], minlength=classes.n)
    seen = np.array([(picture == colour).all(axis=1).sum() for colour in classes.colours])
    # All of the land is there, each class with its share: names, lines and swatches take a little.
    np.testing.assert_allclose(seen / seen.sum(), counted / counted.sum(), atol=0.02)
    text = files["bites-regions.csv"].decode()
    table = pd.read_csv(io.StringIO(text))
    assert table["name"].tolist() == ["'" + NAMES[0], NAMES[1]]
    assert "phone" not in table and "4711" not in text
    totals = posterior.totals(halves)
    for name in ("land_km2", "expected", "q05", "q95", "rate", "p_above"):
        np.testing.assert_allclose(table[name], totals[name], rtol=1e-5)


def test_the_table_over_time_has_a_row_for_each_region_and_period(timed):
    with Chromium(800, 600) as page:
        page.open(timed)
        table = pd.read_csv(io.BytesIO(next(data for name, data in downloads(page).items() if name.endswith("csv"))))
    assert list(table.columns[:2]) == ["name", "period"]
    assert len(table) == 2 * MONTHS.n and table["period"].nunique() == MONTHS.n


def test_the_next_stratum_is_seen_where_the_last_one_was(tmp_path):
    """The page of strata: a policy of hashes for all of its maps, one address, and what is seen is kept."""
    maps_of = {
        name: maps.posterior_map(prescribed(island(), bumps(island()) + shift, 0.3, title=name), threshold=0.3)
        for name, shift in (("men", 0.0), ("women", 0.5))
    }
    pages = {name: made.get_root().render() for name, made in maps_of.items()}
    text = render("scale/switch.html.j2", title="Bites by sex", by="sex", pages=pages, maps=True, online=False)
    path = tmp_path / "map.html"
    path.write_text(sealed(text, *pages.values()), encoding="utf-8")
    inner = "document.getElementById('page').contentWindow.geobgp.current"

    def seen(page, title):
        """View and layer, once the map of a stratum is there."""
        there = f"!!document.getElementById('page').contentWindow.geobgp?.current && {inner}.map.getContainer()"
        page.run(
            "new Promise(r => { const wait = () => { try { if ("
            f"{there}.querySelector('h1').textContent === {title!r}) return setTimeout(r, 600); }} catch (e) {{}}"
            " setTimeout(wait, 30); }; wait(); })"
        )
        return page.run(f"[{inner}.map.getZoom(), {inner}.link.hash().split('&').pop(), location.hash]")

    with Chromium(700, 600) as page:
        page.call("Page.navigate", url=path.resolve().as_uri())
        seen(page, "men")
        page.run(f"{inner}.map.setView([52.2, 5.45], 12, {{animate: false}}); 0")
        page.run(f"{inner}.map.getContainer().querySelectorAll('.leaflet-control-layers-base input')[2].click()")
        page.settle()
        page.run(
            "(s => { s.selectedIndex = 1; s.dispatchEvent(new Event('change')); })(document.getElementById('stratum'))"
        )
        zoom, layer, link = seen(page, "women")
        assert (zoom, layer) == (12, "layer=p0")
        assert link.startswith("#stratum=women&view=12/52.") and link.endswith("&layer=p0")
        page.call("Page.navigate", url="about:blank")
        page.call("Page.navigate", url=path.resolve().as_uri() + link)
        assert seen(page, "women")[:2] == [12, "layer=p0"]
        assert page.console == []
