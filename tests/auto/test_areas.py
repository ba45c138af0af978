"""Counts by area through the whole way: the one call, the shell, and all that is written."""

from __future__ import annotations

import json

import geopandas as gpd
import numpy as np
import pytest
import rasterio
from shapely import box

from geobgp import DataError, GeobgpWarning, Matern, Posterior, map_intensity
from geobgp.auto.options import Options
from geobgp.cli.app import main


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Districts of 40 km, cases among people, and cases with a place besides, as files."""
    folder, rng = tmp_path_factory.mktemp("areas"), np.random.default_rng(0)
    boxes = [box(a, b, a + 8000, b + 8000) for a in range(0, 40_000, 8000) for b in range(0, 32_000, 8000)]
    west = np.array([b.bounds[0] for b in boxes])
    people = rng.integers(500, 4000, len(boxes))
    cases = rng.poisson(people * 0.01 * np.exp(-west / 20_000))
    frame = gpd.GeoDataFrame(
        {"name": [f"district {k}" for k in range(len(boxes))], "population": people, "cases": cases},
        geometry=boxes, crs=32631,
    )  # fmt: skip
    frame["told"] = frame["cases"].where(frame["cases"] > 4)
    frame.to_crs(4326).to_file(folder / "districts.gpkg")
    gpd.GeoDataFrame(geometry=[box(0, 0, 40_000, 32_000)], crs=32631).to_file(folder / "land.gpkg")
    at = rng.uniform(0, [40_000, 32_000], (60, 2))
    gpd.GeoDataFrame(geometry=gpd.points_from_xy(*at.T), crs=32631).to_file(folder / "placed.gpkg")
    return folder, frame


def test_the_one_call_maps_counts_by_area(data):
    folder, frame = data
    posterior = map_intensity(
        areas=folder / "districts.gpkg", count="cases", land=folder / "land.gpkg", exposure=frame,
        exposure_column="population", cache=False,
    )  # fmt: skip
    assert posterior.n_points == frame["cases"].sum()
    assert posterior.units == "events per person"
    assert posterior.basis.truncated and posterior.basis.permeability == 0
    assert "cells for each of 20 areas" in posterior.choices["cell size"]
    totals = posterior.totals(posterior.areas.frame())
    assert totals["expected"].sum() == pytest.approx(frame["cases"].sum(), rel=0.01)
    ends = gpd.GeoSeries([box(0, 0, 8000, 32_000), box(32_000, 0, 40_000, 32_000)], crs=32631)
    east = posterior.totals(ends)
    rate = east["expected"] / east["exposure"]
    assert rate[0] > 2 * rate[1]
    assert len(posterior.tried) >= 1 and posterior.tried[0].gain > 0


def test_the_shell_writes_everything(data, tmp_path):
    folder, frame = data
    out = tmp_path / "out"
    told = [
        "map", "--areas", str(folder / "districts.gpkg"), "--count", "told", "--suppressed", "0-4",
        "--land", str(folder / "land.gpkg"), "--exposure", str(folder / "districts.gpkg"),
        "--exposure-column", "population", "--features", "48", "--no-cache", "--quiet", "-o", str(out),
    ]  # fmt: skip
    assert main(told) == 0
    record = json.loads((out / "summary.json").read_text("utf-8"))
    hidden = int(frame["told"].isna().sum())
    assert record["points"]["areas"] == 20 and record["points"]["suppressed"] == hidden
    assert record["options"]["suppressed"] == [0, 4]
    assert "--suppressed 0-4" in record["command"] and record["command"].startswith("geobgp map --land land.gpkg")
    regions = gpd.read_file(out / "regions.gpkg")
    assert len(regions) == 20 and regions["observed"].isna().sum() == hidden
    assert {"expected", "q05", "q95", "predicted_q95"} <= set(regions.columns)
    np.testing.assert_allclose(regions["exposure"], frame["population"], rtol=1e-5)
    with rasterio.open(out / "mean.tif") as raster:
        assert np.isfinite(raster.read(1, masked=True)).any()
    report = (out / "report.html").read_text("utf-8")
    assert "20 areas" in report and "Suppressed counts" in report
    again = Posterior.load(out / "posterior.geobgp")
    assert again.areas.suppressed == (0, 4)
    assert record["checks"]["blocks"] == 20 - hidden


def test_the_shell_says_what_was_counted(data, tmp_path, capsys):
    folder, _ = data
    out = tmp_path / "both"
    told = [
        "map", str(folder / "placed.gpkg"), "--areas", str(folder / "districts.gpkg"), "--count", "cases",
        "--land", str(folder / "land.gpkg"), "--features", "32", "--no-cache", "--quiet", "-o", str(out),
    ]  # fmt: skip
    assert main(told) == 0
    assert main(["info", str(out)]) == 0
    assert "in 20 areas, 60 with a place besides" in capsys.readouterr().out


def test_points_and_areas_in_one_call(data):
    folder, frame = data
    both = map_intensity(
        folder / "placed.gpkg", folder / "land.gpkg", areas=folder / "districts.gpkg", count="cases", m=48,
        kernel=Matern(1.5, lengthscale=20_000.0), cache=False,
    )  # fmt: skip
    assert both.n_points == 60 + frame["cases"].sum()
    assert both.totals()["expected"][0] == pytest.approx(both.n_points, rel=0.02)


def test_more_spread_than_poisson_counts(data):
    folder, _ = data
    posterior = map_intensity(
        areas=folder / "districts.gpkg", count="cases", land=folder / "land.gpkg", m=48,
        kernel=Matern(1.5, lengthscale=20_000.0), cache=False, likelihood="negative-binomial",
    )  # fmt: skip
    assert "nats above Poisson counts" in posterior.summary()["overdispersion"]


LAND = box(0, 0, 4, 4)


@pytest.mark.parametrize(
    "given, told",
    [
        ({"points": [(1, 1)]}, "no land to map"),
        ({"land": LAND}, "nothing to map"),
        ({"land": LAND, "areas": "a.gpkg"}, "Which column of the areas"),
        ({"land": LAND, "points": [(1, 1)], "count": "cases"}, "count belongs to counts by area"),
        ({"land": LAND, "areas": "a.gpkg", "count": "n", "suppressed": (4, 1)}, "two whole numbers"),
        ({"land": LAND, "points": [(1, 1)], "likelihood": "normal"}, "'poisson' or 'negative-binomial'"),
    ],
)
def test_half_of_what_is_needed_is_refused(given, told):
    with pytest.raises(DataError, match=told):
        Options(**given)


def test_the_shell_explains_an_interval(data, capsys):
    folder, _ = data
    told = ["map", "--areas", str(folder / "districts.gpkg"), "--count", "told", "--land", str(folder / "land.gpkg")]
    assert main([*told, "--suppressed", "few", "-o", "nowhere"]) == 2
    assert "such as 1-4" in capsys.readouterr().err
    assert main([*told, "--no-cache", "--quiet", "-o", "nowhere"]) == 1
    assert "--suppressed 1-4" in capsys.readouterr().err


def test_polygons_given_for_points_are_told_of_areas(data):
    folder, _ = data
    with pytest.raises(ValueError, match=r"Counts by area are mapped as areas, with count"):
        map_intensity(folder / "districts.gpkg", folder / "land.gpkg")


def test_a_search_for_features_that_has_ended_says_at_which_limit_and_what_to_do():
    squares = [box(x, y, x + 1, y + 1) for x in range(10) for y in range(10)]
    rng = np.random.default_rng(0)
    areas = gpd.GeoDataFrame({"n": rng.poisson(np.exp(rng.normal(3.0, 1.5, 100)))}, geometry=squares)
    told = r"ended at 133 features.*at most 133 are tried, a third of the 400 cells.*smaller cell_size, or.* m='full'"
    with pytest.warns(GeobgpWarning, match=told):
        map_intensity(areas=areas, count="n", land=box(0, 0, 10, 10), crs="local", cell_size=0.5, cache=False)
