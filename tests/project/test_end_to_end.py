"""From polygons and points to rasters and a map, against the truth."""

import json

import numpy as np
import pandas as pd
import pytest
import rasterio
import small_case as case

import geobgp
from geobgp import map_intensity, simulate_points
from geobgp.cli.app import main


def mapped(**options):
    points, land, water = (f.to_crs(4326) for f in (case.points(seed=1), case.land(), case.water()))
    return map_intensity(points, land, water=water, cell_size=500, **options)


@pytest.fixture(scope="module")
def posterior():
    return mapped(title="A small country")


def at_nodes(posterior):
    return case.truth(posterior.domain.node_points)


def test_the_map_is_near_the_truth(posterior):
    truth, found = at_nodes(posterior), posterior.node_intensity()
    weight = posterior.domain.node_areas
    error = np.log(found["q50"].to_numpy() / truth)
    assert np.sqrt(np.average(error**2, weights=weight)) < 0.35
    assert np.corrcoef(np.log(found["mean"]), np.log(truth))[0, 1] > 0.9


def test_the_intervals_hold_the_truth(posterior):
    # Over several data sets; one of them alone may well miss.
    covered = []
    for seed in range(4):
        points = simulate_points(case.domain(1000.0), case.truth, 100 + seed)
        found = map_intensity(points, case.land(), water=case.water(), cell_size=1000, m=96, permeability=0, cache=True)
        truth, table = at_nodes(found), found.node_intensity()
        inside = (table["q05"] <= truth) & (truth <= table["q95"])
        covered.append(np.average(inside, weights=found.domain.node_areas))
    assert 0.8 < np.mean(covered) <= 1.0


def test_totals_of_regions_hold_the_true_numbers(posterior):
    regions = case.land()
    totals = posterior.totals(regions, quantiles=(0.005, 0.995), n_samples=1000).set_index("name")
    domain = posterior.domain
    true = at_nodes(posterior) * domain.node_areas / 1e6
    island = domain.node_points[:, 0] > case.WEST + 25_000
    for name, mine in (("island", island), ("mainland", ~island)):
        low, high = totals.loc[name].filter(like="q").iloc[[0, 1]]
        assert low < true[mine].sum() < high


def test_nothing_passes_the_river(posterior):
    # The intensity jumps tenfold at a river of 100 m, five times thinner than a cell.
    y = case.SOUTH + 10_000.0
    banks = np.array([[case.WEST + 11_900, y], [case.WEST + 12_100, y]])
    west, east = posterior.intensity_at(banks)["mean"]
    assert west / east > 3
    middle = posterior.intensity_at(np.array([[case.WEST + 12_000, y]]))
    assert middle["mean"].isna().all()


def test_the_rasters_open_and_hold_the_map(posterior, tmp_path):
    paths = posterior.to_raster(tmp_path / "rasters", thresholds=[2.0])
    assert {p.name for p in paths} >= {"mean.tif", "sd.tif", "q05.tif", "q50.tif", "q95.tif", "exceedance_2.tif"}
    with rasterio.open(tmp_path / "rasters" / "mean.tif") as src:
        mean = src.read(1)
        assert src.crs.to_epsg() == 32631 and np.isnan(src.nodata)
        assert src.units == ("events per km²",)
        # The raster's integral is the number of points.
        cells = posterior.domain.coverage * posterior.domain.cell_area / 1e6
        assert np.nansum(mean * cells) == pytest.approx(len(case.points()), rel=0.02)
        # Where the truth is highest the raster is high, at sea it has no value.
        row, col = src.index(case.WEST + 9_000, case.SOUTH + 10_000)
        assert mean[row, col] > 3
        row, col = src.index(case.WEST + 25_000, case.SOUTH + 2_000)
        assert np.isnan(mean[row, col])
    assert (tmp_path / "rasters" / "mean.qml").exists()


def test_the_map_is_one_page_without_network(posterior, tmp_path):
    posterior.to_map(tmp_path / "map.html")
    text = (tmp_path / "map.html").read_text("utf-8")
    assert "A small country" in text and "connect-src 'none'" in text
    assert "events per km²" in text.replace("\\u00b2", "²")


def test_a_saved_posterior_makes_the_same_map(posterior, tmp_path):
    again = geobgp.Posterior.load(posterior.save(tmp_path / "posterior.geobgp"))
    np.testing.assert_array_equal(again.intensity()["mean"], posterior.intensity()["mean"])
    np.testing.assert_allclose(again.sample(2, 1), posterior.sample(2, 1), rtol=1e-8)


def test_full_resolution_agrees_with_features(posterior):
    full = mapped(m="full", permeability=posterior.basis.permeability)
    ratio = np.log(full.node_intensity()["q50"] / posterior.node_intensity()["q50"])
    assert np.sqrt(np.average(ratio**2, weights=full.domain.node_areas)) < 0.25


@pytest.mark.parametrize("crs", [28992, 32631])
def test_points_in_the_crs_of_the_land_are_shown_where_they_are(crs, tmp_path):
    # A table of eastings and northings says nothing of its CRS; the land's own is the only one that fits.
    points, land = case.points(), case.land()
    own = points.to_crs(crs).geometry
    pd.DataFrame({"easting": own.x, "northing": own.y}).to_csv(tmp_path / "points.csv", index=False)
    land.to_crs(crs).to_parquet(tmp_path / "land.pq")
    quick = ("--cell-size", "1000", "--features", "48", "--permeability", "0", "--quiet", "--show-points")
    out = tmp_path / "out"
    assert main(["map", str(tmp_path / "points.csv"), "--land", str(tmp_path / "land.pq"), "-o", str(out), *quick]) == 0
    page = (out / "map.html").read_text("utf-8")
    at = page.index('{"title":', page.index("window.geobgp.current = window.geobgp.start("))
    shown = np.array(json.JSONDecoder().raw_decode(page[at:])[0]["points"]["coords"])
    true = points.to_crs(4326).geometry
    assert shown == pytest.approx(np.column_stack([true.y, true.x]), abs=2e-6)
    assert json.loads((out / "summary.json").read_text("utf-8"))["points"]["used"] == len(points)
