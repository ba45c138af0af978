"""Regions and context on the map: their numbers under the cursor, their names as words, their room."""

from __future__ import annotations

import geopandas as gpd
import numpy as np
import pyproj
import pytest
import shapely
from posteriors import across_180, bumps, disc, island, prescribed
from system import Chromium

from geobgp.errors import CRSError, DataError, GeometryError
from geobgp.text import number
from geobgp.web import maps, overlays
from geobgp.web.layers import Plane

TO_DEGREES = pyproj.Transformer.from_crs(28992, 4326, always_xy=True)
NASTY = '<img src=x onerror="window.hacked=1">{{ 7*7 }}'


@pytest.fixture(scope="module")
def posterior():
    return prescribed(island(), bumps(island()), 0.3)


@pytest.fixture(scope="module")
def halves():
    """The island cut in two along an easting, in degrees."""
    names = ["West " + NASTY, "East"]
    boxes = [shapely.box(130_000, 440_000, 155_000, 490_000), shapely.box(155_000, 440_000, 180_000, 490_000)]
    return gpd.GeoDataFrame({"name": names}, geometry=boxes, crs=28992).to_crs(4326)


@pytest.fixture(scope="module")
def towns():
    """Two close to each other, one apart."""
    at = gpd.points_from_xy([150_000, 150_400, 170_000], [465_000, 465_300, 457_000])
    return gpd.GeoDataFrame({"n": [1, 2, 3], "town_name": ["Aa", "Bee", NASTY]}, geometry=at, crs=28992)


def test_regions_without_numbers_get_their_totals(posterior, halves):
    made = overlays.region_totals(posterior, halves)
    np.testing.assert_allclose(made["expected"], posterior.totals(halves)["expected"])
    assert overlays.region_totals(posterior, made) is made
    config = overlays.region_config(made, Plane.over(posterior.domain, 10_000))
    assert [item["name"] for item in config["items"]] == halves["name"].tolist()
    words = [row[0] for row in config["items"][0]["rows"]]
    assert words == [
        "rate", "90 % interval", "expected", "of the expected, 90 %", "probability above average", "land",
    ]  # fmt: skip
    assert config["items"][0]["rows"][0][1].endswith(" events per km²")


def test_a_name_that_several_have_is_written_once(posterior, halves):
    pieces = halves.assign(name="Both")
    items = overlays.region_config(posterior.totals(pieces), Plane.over(posterior.domain, 10_000))["items"]
    assert [item["name"] for item in items] == ["Both", "Both"]
    assert sum(item["place"] is not None for item in items) == 1


def test_rows_of_a_region_with_a_relative_risk():
    record = {
        "relative_risk": 1.234, "relative_risk_q05": 1.0, "relative_risk_q95": 1.5, "expected": 12.0, "q05": 9.0,
        "q95": 15.0, "observed": 14, "exposure": 10.0, "land_km2": float("nan"),
    }  # fmt: skip
    assert overlays.region_rows(record) == [
        ["relative risk", "1.23"], ["90 % interval", "1 – 1.5"], ["expected", "12"],
        ["of the expected, 90 %", "9 – 15"], ["observed", "14"], ["exposure", "10"],
    ]  # fmt: skip


def test_outlines_lie_where_the_regions_do(posterior, halves):
    plane = Plane.over(posterior.domain, 100_000)
    items = overlays.region_config(posterior.totals(halves), plane)["items"]
    for item, shape in zip(items, halves.to_crs(28992).geometry, strict=True):
        lon, lat = np.concatenate([np.array(line) for line in item["outline"]]).T
        back = gpd.GeoSeries(gpd.points_from_xy(lon, lat), crs=4326).to_crs(28992)
        # What is far from the land is cut off; the rest is within half a pixel of the border.
        near = back.distance(shape.boundary) < 0.5 * plane.pixel
        assert near.mean() > 0.5
        lat, lon = item["place"]
        assert shapely.contains_xy(shape, *TO_DEGREES.transform(lon, lat, direction="INVERSE"))


def test_context_of_every_kind(posterior, towns):
    plane = Plane.over(posterior.domain, 10_000)
    lake = posterior.domain.geometry.centroid.buffer(4000)
    river = shapely.LineString([(140_000, 460_000), (170_000, 462_000)])
    frame = gpd.GeoDataFrame(
        {"name": ["Lake", "River", "Town", None, "Lake"]},
        geometry=[lake, river, towns.geometry.iloc[0], shapely.Point(151_000, 462_000), lake.buffer(-3000)],
        crs=28992,
    )
    made = overlays.context_config(frame, plane)
    assert [label[2] for label in made["labels"]] == ["Lake", "Town"]
    drawn = gpd.GeoSeries([shapely.LineString(line) for line in made["lines"]], crs=4326).to_crs(28992)
    whole = lake.length + lake.buffer(-3000).length + river.length
    assert drawn.length.sum() == pytest.approx(whole, rel=0.01)
    with pytest.raises(GeometryError, match="None of the 1 shapes for context"):
        overlays.context_config(gpd.GeoSeries([shapely.Point(0, 0)], crs=4326), plane)
    with pytest.raises(CRSError):
        overlays.context_config(frame.set_crs(None, allow_override=True), plane)


def test_too_many_are_refused_with_a_number(posterior, monkeypatch, halves):
    monkeypatch.setattr(overlays, "MAX_REGIONS", 1)
    with pytest.raises(DataError, match="2 regions are too many"):
        maps.posterior_map(posterior, regions=halves)


@pytest.mark.parametrize("domain", [across_180(), disc()], ids=["across 180", "local"])
def test_anywhere(domain):
    posterior = prescribed(domain, 0.0, 0.3)
    frame = gpd.GeoDataFrame({"name": ["all"]}, geometry=[domain.geometry], crs=domain.crs)
    plane = Plane.over(domain, 10_000)
    config = overlays.region_config(posterior.totals(frame), plane)
    (south, west), (north, east) = plane.bounds
    xy = np.concatenate([np.array(line) for line in config["items"][0]["outline"]])
    slack = 0.02 * max(east - west, north - south)
    assert (xy > [west - slack, south - slack]).all() and (xy < [east + slack, north + slack]).all()
    assert overlays.context_config(frame, plane)["labels"][0][2] == "all"


@pytest.fixture(scope="module")
def page(posterior, halves, towns, tmp_path_factory):
    path = tmp_path_factory.mktemp("map") / "map.html"
    maps.save(maps.posterior_map(posterior, regions=halves, context=towns, thresholds=[0.1, 0.3]), path)
    with Chromium(1200, 900) as page:
        page.open(path)
        yield page


def written(page):
    return page.run("[...document.querySelectorAll('.leaflet-marker-icon.geobgp-name')].map(e => e.innerText)")


def screen(page, easting, northing):
    lon, lat = TO_DEGREES.transform(easting, northing)
    return page.run(f"(p => [p.x, p.y])(geobgp.current.map.latLngToContainerPoint([{lat}, {lon}]))")


@pytest.mark.chromium
@pytest.mark.slow
def test_the_region_under_the_cursor(page, posterior, halves):
    totals = posterior.totals(halves)
    for easting, name, k in ((150_000, "West " + NASTY, 0), (165_000, "East", 1)):
        page.mouse(*screen(page, easting, 457_000))
        words = page.run("document.querySelector('.geobgp-region').innerText")
        assert words.split("\n")[0] == name
        rate, unit = number(totals["rate"].iloc[k], 3), "events per km²"
        assert f"rate {rate} {unit}; 90 % interval" in words
    x, y = screen(page, 165_000, 457_000)
    page.mouse(x, y, click=True)
    popup = page.run("document.querySelector('.leaflet-popup-content').innerText")
    low, high = (f"{totals[q].iloc[1]:.0f}" for q in ("q05", "q95"))
    assert f"{low} – {high}" in popup.split("East")[1]
    assert "probability > 0.1" in popup and "probability > 0.3" in popup
    # A click is no use of keys.
    assert page.run("getComputedStyle(document.querySelector('.geobgp-cross')).display") == "none"
    page.run("geobgp.current.map.closePopup(); 0")
    # The second overlay of the list is the context, the third the regions: taken away, they say nothing.
    toggle = "document.querySelectorAll('.leaflet-control-layers-overlays input')[2].click()"
    page.run(toggle)
    page.mouse(x + 3, y)
    assert page.run("document.querySelector('.geobgp-region')") is None
    assert "East" not in written(page)
    page.run(toggle)
    page.settle()
    assert page.console == [] and page.run("window.hacked") is None


@pytest.mark.chromium
@pytest.mark.slow
def test_names_are_written_where_there_is_room(page):
    far = written(page)
    assert {"East", "West " + NASTY} <= set(far) and "Bee" not in far
    page.run("geobgp.current.map.setView(geobgp.current.map.getCenter(), 14, {animate: false}); 0")
    at = screen(page, 150_200, 465_150)
    page.run(f"geobgp.current.map.panBy([{at[0] - 600}, {at[1] - 450}], {{animate: false}}); 0")
    page.settle()
    assert {"Aa", "Bee"} <= set(written(page))
    boxes = page.run(
        "[...document.querySelectorAll('.leaflet-marker-icon.geobgp-name span')].map(e => e.getBoundingClientRect())"
        ".map(r => [r.left, r.top, r.right, r.bottom])"
    )
    for i, a in enumerate(boxes):
        for b in boxes[i + 1 :]:
            assert a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]
    page.run("document.querySelector('.geobgp-home').click()")
    page.settle()


@pytest.mark.chromium
@pytest.mark.slow
def test_on_paper(page):
    page.run("window.dispatchEvent(new Event('beforeprint')); 0")
    names = page.run("[...document.querySelectorAll('.geobgp-print text.geobgp-name')].map(e => e.textContent)")
    paths = page.run("document.querySelectorAll('.geobgp-print path').length")
    page.run("window.dispatchEvent(new Event('afterprint')); 0")
    assert "East" in names and paths == 4
