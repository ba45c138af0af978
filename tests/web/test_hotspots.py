"""Hot spots on the map: outlined in the period that is shown, with their numbers at a click."""

from __future__ import annotations

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest
import shapely
from models import square
from posteriors import across_180, bumps, disc, island, prescribed
from system import Chromium

from geobgp import LGCP, DataError, HarmonicBasis, Matern, Periods
from geobgp.text import chance, number
from geobgp.web import overlays
from geobgp.web.layers import Plane

YEARS = Periods.calendar("year", "2018", "2021")


@pytest.fixture(scope="module")
def posterior():
    return prescribed(island(), bumps(island()), 0.3)


@pytest.fixture(scope="module")
def course():
    """Four years on a square: its middle hot always, its north-east in the second year and, for a moment, no more."""
    domain = square()
    gaps = [((domain.node_points - at) ** 2).sum(axis=1) for at in ((3.0, 3.0), (8.0, 8.0))]
    middle, corner = (np.exp(-gap / 3) for gap in gaps)
    means = 1.0 + 30.0 * middle + np.array([0, 40, 0, 0])[:, None] * corner
    counts = np.random.default_rng(1).poisson(means).astype(float)
    model = LGCP(HarmonicBasis.compute(domain, 60, cache=False), Matern(1.5, 2.5, 1.2), dynamics="separable")
    return model.fit(counts, periods=YEARS)


def test_outlines_and_numbers_are_those_of_the_table(posterior):
    table = posterior.hotspots(0.2)
    plane = Plane.over(posterior.domain, 100_000)
    config = overlays.hotspot_config(table, plane)
    assert len(config["items"]) == len(table) > 1
    for item, (_, row) in zip(config["items"], table.iterrows(), strict=True):
        rows = dict(item["rows"])
        assert rows["all above 0.2"] == chance(row["p_all"]) and rows["mean above 0.2"] == chance(row["p_mean"])
        assert rows["rate"] == number(row["rate"], 3) and rows["land"] == f"{number(row['land_km2'], 3)} km²"
        # The outline is the boundary, to a fifth of a pixel.
        drawn = gpd.GeoSeries(
            shapely.multilinestrings([shapely.linestrings(line) for line in item["outline"]]), crs=4326
        )
        away = shapely.hausdorff_distance(drawn.to_crs(28992).iloc[0], row.geometry.boundary, densify=0.2)
        assert away < plane.pixel


def test_those_above_the_highest_threshold_come_first(posterior):
    config = overlays.hotspot_config(
        pd.concat([posterior.hotspots(0.2), posterior.hotspots(0.4)]), Plane.over(posterior.domain, 100_000)
    )
    values = [item["threshold"] for item in config["items"]]
    assert values == sorted(values, reverse=True) and set(values) == {0.2, 0.4}
    assert "0.2 or 0.4" in config["words"]


def test_each_is_of_its_period_and_what_was_comes_last(course):
    table = course.hotspots(4.0, 0.9, n_samples=200)
    config = overlays.hotspot_config(table, Plane.over(course.domain, 10_000), list(YEARS.labels))
    told = sorted((YEARS.labels[item["period"]], item["name"]) for item in config["items"])
    wanted = [(row["period"], f"Hot spot {row['hotspot']}, {row['class']}") for _, row in table.iterrows()]
    assert told == sorted(wanted)
    former = [item["dashed"] for item in config["items"]]
    assert former == sorted(former) and any(former)
    with pytest.raises(DataError, match="of several periods"):
        course.at("2019").to_map(hotspots=table)


@pytest.mark.parametrize("domain", [island, across_180, disc])
def test_anywhere_and_where_there_are_none(domain):
    posterior = prescribed(domain(), np.linspace(-2, 1, domain().n_nodes), 0.2)
    page = posterior.to_map(threshold=1.0, hotspots=True).get_root().render()
    assert "Hot spot 1" in page
    cold = posterior.to_map(threshold=1.0, hotspots=posterior.hotspots(1e6)).get_root().render()
    assert "Hot spot 1" not in cold and "No part of the land is a hot spot." in cold


@pytest.mark.chromium
@pytest.mark.slow
def test_a_click_shows_the_numbers_of_the_period(course, tmp_path):
    table = course.hotspots(4.0, 0.9, n_samples=200)
    course.to_map(tmp_path / "map.html", threshold=4.0, hotspots=table)
    click = "(() => { const at = L.latLng(8, 8); geobgp.current.map.fire('click', { latlng: at }); })()"
    with Chromium(1000, 800) as page:
        page.open(tmp_path / "map.html")
        page.settle()
        shown = {}
        for t, label in enumerate(YEARS.labels):
            page.run(f"geobgp.current.time.set({t})")
            page.run(click)
            # One that fades out may still be there.
            popup = "[...document.querySelectorAll('.leaflet-popup')].pop()"
            names = page.run(f"[...{popup}.querySelectorAll('h2')].map(e => e.textContent)")
            lines = page.run("geobgp.current.above.hotspots().length")
            rows = table[(table["period"] == label) & table.contains(shapely.Point(8, 8))]
            assert names == [f"Hot spot {r['hotspot']}, {r['class']}" for _, r in rows.iterrows()]
            assert lines == (table["period"] == label).sum()
            shown[label] = names
        assert "new" in shown["2019"][0] and "former" in shown["2020"][0] and shown["2021"] == []
        text = page.run("document.querySelector('.geobgp-legend').textContent")
        assert "Outlined: hot spots, each of which exceeds 4 events" in text
        assert page.console == []
