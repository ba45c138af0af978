"""What the shell, the report and the map say of a map that does not vary."""

import contextlib
import io
import json
import re

import geopandas as gpd
import numpy as np
import pytest
import shapely

from geobgp.cli.app import main

LAND = shapely.box(500_000, 5_600_000, 520_000, 5_616_000)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return the folder of results of points that are spread at random, and what was said."""
    folder, rng = tmp_path_factory.mktemp("flat"), np.random.default_rng(3)
    west, south, east, north = LAND.bounds
    points = gpd.points_from_xy(rng.uniform(west, east, 150), rng.uniform(south, north, 150), crs=32632)
    gpd.GeoDataFrame(geometry=points).to_file(folder / "points.gpkg")
    gpd.GeoSeries([LAND], crs=32632).to_file(folder / "land.gpkg")
    captured = io.StringIO()
    with contextlib.redirect_stderr(captured):
        files = ["map", folder / "points.gpkg", "--land", folder / "land.gpkg", "-o", folder / "out"]
        assert main([*map(str, files), "--cell-size", "1000"]) == 0
    return folder / "out", captured.getvalue()


def test_the_console_and_the_record_say_that_nothing_speaks_for_variation(made):
    folder, said = made
    record = json.loads((folder / "summary.json").read_text())
    found = record["variation"]
    assert found["verdict"] == "no evidence" and found["log_bayes_factor"] < 0 and not found["fine"]
    assert found["score_per_event"] == pytest.approx(record["checks"]["score_per_event"])
    assert " ".join(found["sentence"].split()) in " ".join(said.split())
    assert record["summary"]["variation"]["verdict"] == "no evidence"


def test_no_check_is_green_where_one_rate_predicts_better(made):
    folder, _ = made
    record = json.loads((folder / "summary.json").read_text())
    page = (folder / "report.html").read_text()
    body = page[page.index("<main>") :]
    # The first thing that the report says.
    first = re.search(r'<div class="(\w+)"><p><b>(.*?)</b>', body)
    assert first.groups() == ("bad", "No evidence that the rate varies over the land:") and body.index(
        first.group(0)
    ) < body.index("cards")
    if record["checks"]["score_per_event"] < 0:
        assert 'class="good"' not in body and "<b>fine</b>" not in body and not record["checks"]["fine"]


def test_the_map_says_so_in_its_subtitle(made):
    folder, _ = made
    page = (folder / "map.html").read_text()
    assert re.search(r'"subtitle": ?"[^"]*; no evidence that the rate varies over the land"', page)
