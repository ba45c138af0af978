"""The map over time in a real browser: slider, play, keys, the course of a place and of a region, paper."""

from __future__ import annotations

import re
import time

import geopandas as gpd
import numpy as np
import pyproj
import pytest
import shapely
from over_time import Stack, moving
from posteriors import disc, island, prescribed
from system import Chromium

from geobgp.data.periods import Periods
from geobgp.errors import DataError, SizeError
from geobgp.output import palette
from geobgp.output.grids import View
from geobgp.text import number, rounded
from geobgp.web import maps
from geobgp.web.layers import Numbers
from geobgp.web.maps import posterior_map
from geobgp.web.page import unpack

NASTY = '<img src=x onerror="window.hacked=1">'
MONTHS = Periods.calendar("month", "2019-01", "2019-12")
TO_DEGREES = pyproj.Transformer.from_crs(28992, 4326, always_xy=True)
PAGE_DOWN, PAGE_UP, SPACE = 34, 33, 32


@pytest.fixture(scope="module")
def source():
    return moving(island(), MONTHS, title="Bites " + NASTY)


@pytest.fixture(scope="module")
def ahead():
    return moving(island(), MONTHS.ahead(3), observed=False)


@pytest.fixture(scope="module")
def course(source, ahead):
    return View(source, ahead)


@pytest.fixture(scope="module")
def halves(source):
    boxes = [shapely.box(130_000, 440_000, 155_000, 490_000), shapely.box(155_000, 440_000, 180_000, 490_000)]
    frame = gpd.GeoDataFrame({"name": ["West " + NASTY, "East"]}, geometry=boxes, crs=28992)
    totals = source.totals(frame)
    totals.attrs["units"] = "events per km²"  # the stand-in's are lost with some versions of GeoPandas
    return totals


@pytest.fixture(scope="module")
def page(source, ahead, halves, tmp_path_factory):
    path = tmp_path_factory.mktemp("map") / "map.html"
    maps.save(posterior_map(source, forecast=ahead, regions=halves, threshold=0.5), path)
    with Chromium(1200, 900) as page:
        page.open(path)
        yield page


def screen(page, easting, northing):
    lon, lat = TO_DEGREES.transform(easting, northing)
    return page.run(f"(p => [p.x, p.y])(geobgp.current.map.latLngToContainerPoint([{lat}, {lon}]))")


def slide(page, t):
    page.run(
        "(v => { const i = document.querySelector('.geobgp-track input'); i.value = v;"
        f" i.dispatchEvent(new Event('input')); }})({t})"
    )
    page.settle()


def show_regions(page, shown):
    page.run(
        "(i => { if (i.checked !== " + str(shown).lower() + ") i.click(); })"
        "(document.querySelectorAll('.leaflet-control-layers-overlays input')[1])"
    )


def period(page):
    return page.run("document.querySelector('.geobgp-period').textContent")


def test_numbers_of_all_periods_are_those_of_the_cells(source):
    fields = {"mean": source.intensity()["mean"].values, "p0": source.exceedance(0.5).values}
    numbers = Numbers.of(source.domain, fields, 10**7)
    codes = unpack(numbers.arrays["mean"], (MONTHS.n, numbers.shape[0] * numbers.shape[1]))
    found = numbers.decimals.decode(codes).reshape(MONTHS.n, *numbers.shape)
    box = np.s_[..., numbers.row :, numbers.col :]
    expected = fields["mean"][box][..., : numbers.shape[0], : numbers.shape[1]]
    np.testing.assert_allclose(found, expected, rtol=0.006)
    small = Numbers.of(source.domain, fields, numbers.size // 5)
    assert small.block > 1 and small.size <= numbers.size // 5


def test_the_legend_is_of_all_periods_together(source, course):
    html = posterior_map(source, forecast=course.forecast).get_root().render()
    labels = palette.round_classes(course.data["mean"].values.astype(np.float32)).labels()
    shown = re.search(r'"key":"mean".*?"classes":(\[.*?\])', html).group(1)
    assert re.findall(r'"label":"([^"]+)"', shown) == [
        label.replace("≤", "\\u2264").replace("–", "\\u2013").replace(">", "\\u003e") for label in labels
    ]
    assert html.count("data:image/png") >= 3 * course.n


@pytest.mark.chromium
@pytest.mark.slow
def test_no_error_no_request_and_words_stay_words(page):
    assert page.console == []
    assert all(url.startswith(("data:", "file:")) for url in page.requests)
    assert page.run("window.hacked") is None


@pytest.mark.chromium
@pytest.mark.slow
def test_it_opens_with_the_last_period_that_was_fitted(page):
    assert period(page) == "2019-12"
    assert page.run("geobgp.current.time.shown()") == MONTHS.n - 1


@pytest.mark.chromium
@pytest.mark.slow
def test_the_slider_shows_each_periods_colours_and_numbers(page, course):
    show_regions(page, False)
    domain, data = course.domain, course.data
    mean = data["mean"].values.astype(np.float32)
    classes = palette.classes_in(data, "mean")
    row, col, _ = domain.grid.cell_of(np.array([146_400.0]), np.array([470_300.0]))
    x, y = screen(page, 146_400, 470_300)
    for t in (0, 4, MONTHS.n + 1):
        slide(page, t)
        assert period(page) == course.labels[t] + (" (forecast)" if t >= MONTHS.n else "")
        value = page.run("document.querySelector('.geobgp-track input').getAttribute('aria-valuetext')")
        assert value == period(page)
        page.mouse(20, 450)
        seen = page.screenshot()[int(y), int(x)]
        np.testing.assert_array_equal(seen, classes.colours[classes.index(mean[t, row[0], col[0]])])
        page.mouse(x, y)
        words = page.run("document.querySelector('.geobgp-readout').innerText")
        shown = float(re.match(r"([\d.e-]+)", words).group(1))
        assert shown == rounded(float(data["mean"].values[t, row[0], col[0]]), 3)


@pytest.mark.chromium
@pytest.mark.slow
def test_the_chart_of_a_place_holds_the_datasets_numbers(page, course):
    show_regions(page, False)
    slide(page, 3)
    page.mouse(*screen(page, 146_400, 470_300))
    row, col, _ = course.domain.grid.cell_of(np.array([146_400.0]), np.array([470_300.0]))
    at = {name: course.data[name].values[:, row[0], col[0]] for name in ("mean", "q05", "q95")}
    chart = "document.querySelector('.geobgp-readout .geobgp-chart')"
    paths = page.run(f"[...{chart}.querySelectorAll('.geobgp-line')].map(e => e.getAttribute('d'))")
    known, later = (np.array(re.findall(r"[\d.]+", d), float).reshape(-1, 2) for d in paths)
    assert len(known) == MONTHS.n and len(later) == 4
    # The axis goes from 0 at the bottom (80) to the largest upper end at the top (16).
    drawn = np.concatenate([known, later[1:]])[:, 1]
    np.testing.assert_allclose((80 - drawn) / 64 * at["q95"].max(), at["mean"], rtol=0.01, atol=0.01 * at["q95"].max())
    band = page.run(f"{chart}.querySelector('.geobgp-band').getAttribute('d')")
    edge = np.array(re.findall(r"[\d.]+", band), float).reshape(-1, 2)[:, 1]
    both = np.concatenate([at["q95"], at["q05"][::-1]])
    np.testing.assert_allclose((80 - edge) / 64 * at["q95"].max(), both, atol=0.01 * at["q95"].max())
    assert page.run(f"{chart}.querySelector('text').textContent") == f"{rounded(float(at['q95'].max()), 3):g}"


@pytest.mark.chromium
@pytest.mark.slow
def test_the_region_under_the_cursor_has_its_course(page, halves):
    show_regions(page, True)
    slide(page, 5)
    page.mouse(*screen(page, 170_000, 457_000))
    both = halves[halves["name"] == "East"].set_index("period")
    east, rate = both["expected"], both["rate"]
    words = page.run("document.querySelector('.geobgp-region').innerText")
    assert words.startswith("East")
    assert f"rate {number(rate.iloc[5], 3)} {halves.attrs['units']}; 90 % interval" in words
    label = page.run("document.querySelector('.geobgp-readout .geobgp-chart').getAttribute('aria-label')")
    assert label == "East, rate over time, with 90 % interval"
    shown = page.run(
        "geobgp.current.time.series(-1, geobgp.current.above.regionAt(geobgp.current.map.mouseEventToLatLng("
        f"{{clientX: {screen(page, 170_000, 457_000)[0]}, clientY: {screen(page, 170_000, 457_000)[1]}}}))).middle"
    )
    np.testing.assert_allclose(shown[: MONTHS.n], rate, rtol=1e-3)
    assert shown[MONTHS.n :] == [None] * 3
    page.mouse(*screen(page, 170_000, 457_000), click=True)
    assert page.run("document.querySelectorAll('.leaflet-popup-content .geobgp-chart').length") == 2
    # What is open follows the slider.
    slide(page, 6)
    assert f"{east.iloc[6]:.0f}" in page.run("document.querySelector('.leaflet-popup-content').innerText")
    page.run("geobgp.current.map.closePopup(); 0")
    show_regions(page, False)


@pytest.mark.chromium
@pytest.mark.slow
def test_it_plays_and_pauses(page, course):
    slide(page, 0)
    button = "document.querySelectorAll('.geobgp-time button')[1]"
    page.run(f"{button}.click()")
    assert page.run(f"{button}.getAttribute('aria-label')") == "Pause"
    deadline = time.monotonic() + 30
    while page.run("geobgp.current.time.shown()") < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert page.run("geobgp.current.time.shown()") >= 2
    page.run(f"{button}.click()")
    stopped = page.run("geobgp.current.time.shown()")
    assert page.run("geobgp.current.time.playing()") is False
    time.sleep(1.2)
    assert page.run("geobgp.current.time.shown()") == stopped
    # From the end it begins anew, and it ends by itself.
    slide(page, course.n - 1)
    page.run(f"{button}.click()")
    assert page.run("geobgp.current.time.shown()") == 0
    page.run(f"{button}.click()")
    page.run(f"geobgp.current.time.set({course.n - 2}); {button}.click()")
    while page.run("geobgp.current.time.playing()") and time.monotonic() < deadline:
        time.sleep(0.1)
    assert page.run("geobgp.current.time.shown()") == course.n - 1


@pytest.mark.chromium
@pytest.mark.slow
def test_with_keys_alone(page):
    slide(page, 5)
    page.run("document.querySelector('.folium-map').focus(); 0")
    page.key("PageDown", PAGE_DOWN)
    assert period(page) == "2019-07"
    assert page.run("document.querySelector('.geobgp-spoken').textContent") == "2019-07"
    page.key("PageUp", PAGE_UP)
    page.key("Enter", 13)
    assert "2019-06; events per km²" in page.run("document.querySelector('.leaflet-popup-content').innerText")
    assert "2019-06" in page.run("document.querySelector('.geobgp-spoken').textContent")
    page.run("geobgp.current.map.closePopup(); document.querySelector('.folium-map').focus(); 0")
    page.key(" ", SPACE)
    assert page.run("geobgp.current.time.playing()") is True
    page.key(" ", SPACE)
    assert page.run("geobgp.current.time.playing()") is False
    page.run("document.querySelector('.geobgp-track input').focus(); 0")
    before = page.run("geobgp.current.time.shown()")
    page.key("ArrowLeft", 37)
    assert page.run("geobgp.current.time.shown()") == before - 1
    names = page.run(
        "[...document.querySelectorAll('.geobgp-time button, .geobgp-time input')]"
        ".map(e => e.getAttribute('aria-label'))"
    )
    assert names == ["Back by one month", "Play", "Forward by one month", "Month"]


@pytest.mark.chromium
@pytest.mark.slow
def test_paper_shows_the_period_that_is_seen(page):
    slide(page, 2)
    page.run("window.dispatchEvent(new Event('beforeprint')); 0")
    seen = page.run(
        "[document.querySelector('.geobgp-print h2').textContent,"
        " document.querySelector('.geobgp-print image').getAttribute('href') === geobgp.current.layers[0]._url]"
    )
    page.run("window.dispatchEvent(new Event('afterprint')); 0")
    assert seen == ["2019-03", True]
    printed = page.pdf(landscape=True)
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) == 1


@pytest.mark.chromium
@pytest.mark.slow
def test_on_a_phone(source, tmp_path):
    path = maps.save(posterior_map(source), tmp_path / "map.html")
    with Chromium(390, 844, mobile=True, scale=2) as page:
        page.open(path)
        assert page.console == []
        assert page.run("document.documentElement.scrollWidth") <= 390
        boxes = page.run(
            "[...document.querySelectorAll('.geobgp-card, .geobgp-time, .leaflet-control-scale')]"
            ".map(e => e.getBoundingClientRect()).filter(r => r.width).map(r => [r.left, r.top, r.right, r.bottom])"
        )
        assert all(b[0] >= 0 and b[2] <= 390 and b[1] >= 0 and b[3] <= 844 for b in boxes)
        for i, a in enumerate(boxes):
            for b in boxes[i + 1 :]:
                assert a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]
        sizes = page.run(
            "[...document.querySelectorAll('.geobgp-time button')].map(e => e.getBoundingClientRect().height)"
        )
        assert min(sizes) >= 40


def test_one_period_on_a_plane_of_its_own_with_plain_numbers(tmp_path):
    domain = disc()
    single = Stack(Periods.between([0.0, 2.5]), (prescribed(domain, 0.0, 0.3),))
    html = posterior_map(single).get_root().render()
    assert '"labels":["0 to 2.5"]' in html


def test_too_much_is_refused_with_a_number(source):
    with pytest.raises(SizeError, match=r"12 periods of 1,128 nodes are too many for a page of 20\.0 kB") as caught:
        posterior_map(source, max_bytes=20_000)
    assert caught.value.found > 20_000


def test_regions_without_periods_and_a_forecast_that_does_not_follow_are_refused(source, halves):
    with pytest.raises(DataError, match="need the columns period"):
        posterior_map(source, regions=halves.drop(columns="period"))
    with pytest.raises(DataError, match="a row in each of the periods; found 23 rows"):
        posterior_map(source, regions=halves.iloc[1:])
    with pytest.raises(DataError, match="begins where the map ends"):
        View(source, source)
