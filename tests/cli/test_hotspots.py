"""Hot spots and people above thresholds in the folder of a run: of every kind of data, over time and by stratum."""

from __future__ import annotations

import sqlite3

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from pairs import HALVES, LAND, table

from geobgp import Posterior
from geobgp.cli.app import cli

QUICK = ("--cell-size", "1000", "--permeability", "0", "--crs", "EPSG:28992", "--quiet", "--no-checks")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("in")
    table().to_file(folder / "table.gpkg")
    LAND.to_frame("geometry").to_file(folder / "land.gpkg")
    HALVES.to_file(folder / "halves.gpkg")
    return folder


def run(files, out, *words):
    arguments = [str(w) for w in (*words, "--land", files / "land.gpkg", "-o", out, *QUICK)]
    done = CliRunner().invoke(cli, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return out


KINDS = {
    "points": ("map", "1.5"),
    "points over time": ("map", "1.5", "--time", "year", "--every", "year"),
    "cases and controls": ("risk", "1.0", "--status", "ill"),
    "surveys": ("prevalence", "0.4", "--positive", "positive", "--tested", "tested"),
    "values": ("values", "4.0", "--value", "value"),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore::geobgp.errors.GeobgpWarning")
def test_the_folder_has_them(kind, files, tmp_path):
    command, threshold, *more = KINDS[kind]
    words = (command, files / "table.gpkg", *more, "--threshold", threshold, "--regions", files / "halves.gpkg")
    out = run(files, tmp_path / "out", *words)
    spots, polygons = pd.read_csv(out / "hotspots.csv"), gpd.read_file(out / "hotspots.gpkg", layer="hotspots")
    posterior = Posterior.load(out / "posterior.geobgp")
    expected = posterior.hotspots(float(threshold))
    assert len(spots) == len(polygons) == len(expected) > 0
    for name in ("p_all", "p_mean", "land_km2"):
        np.testing.assert_allclose(spots[name], expected[name])
        np.testing.assert_allclose(polygons[name], expected[name])
    np.testing.assert_allclose(polygons.area, expected.area)
    assert ("class" in spots) == (posterior.periods is not None)
    regions, layer = pd.read_csv(out / "regions.csv"), gpd.read_file(out / "regions.gpkg", layer="regions")
    above = next(name for name in regions if name.endswith(f"_above_{float(threshold):g}"))
    np.testing.assert_allclose(regions[above], layer[above])
    whole = posterior.people_above(float(threshold))
    by_period = regions.groupby("period", sort=False)[above].sum() if "period" in regions else regions[above].sum()
    np.testing.assert_allclose(by_period, whole[above.rpartition("_")[0]].squeeze(), rtol=1e-3)
    page = (out / "map.html").read_text("utf-8")
    assert '"name":"Hot spot 1' in page and "each of which exceeds" in page
    report = (out / "report.html").read_text("utf-8")
    assert "Above thresholds" in report and "All of it above" in report and "hotspots.csv" in report


@pytest.mark.filterwarnings("ignore::geobgp.errors.GeobgpWarning")
def test_without_a_threshold_there_are_none_and_nothing_hot_is_said(files, tmp_path):
    bare = run(files, tmp_path / "bare", "map", files / "table.gpkg")
    assert not (bare / "hotspots.gpkg").exists() and "hotspots" not in (bare / "report.html").read_text("utf-8")
    cold = run(files, tmp_path / "cold", "map", files / "table.gpkg", "--threshold", "1000")
    assert len(pd.read_csv(cold / "hotspots.csv")) == 0 and len(gpd.read_file(cold / "hotspots.gpkg")) == 0
    assert "There is no hot spot" in (cold / "report.html").read_text("utf-8")
    assert "No part of the land is a hot spot." in (cold / "map.html").read_text("utf-8")


@pytest.mark.filterwarnings("ignore::geobgp.errors.GeobgpWarning")
def test_small_numbers_stay_hidden_in_files(files, tmp_path):
    words = ("map", files / "table.gpkg", "--threshold", "2", "--regions", files / "halves.gpkg", "--min-count", "8")
    out = run(files, tmp_path / "out", *words)
    spots = pd.read_csv(out / "hotspots.csv")
    assert len(spots) and "observed" not in spots
    with sqlite3.connect(out / "hotspots.gpkg") as file:
        columns = [row[1] for row in file.execute("PRAGMA table_info(hotspots)")]
    assert "observed" not in columns and "p_all" in columns


@pytest.mark.filterwarnings("ignore::geobgp.errors.GeobgpWarning")
def test_strata_have_them_in_one_table(files, tmp_path):
    out = run(files, tmp_path / "out", "strata", files / "table.gpkg", "--by", "sex", "--threshold", "1")
    spots = pd.read_csv(out / "hotspots.csv")
    assert set(spots["stratum"]) == {"f", "m"}
    for name in ("f", "m"):
        mine = gpd.read_file(out / f"map-{name}" / "hotspots.gpkg")
        np.testing.assert_allclose(mine["p_all"], spots.loc[spots["stratum"] == name, "p_all"])
    assert "km2_above_1" in pd.read_csv(out / "totals.csv")
    assert "each of which exceeds" in (out / "map.html").read_text("utf-8")
