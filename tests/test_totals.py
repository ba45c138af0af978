"""Totals of regions: rates, relative risks, what was observed inside, and one row for each name."""

from __future__ import annotations

import dataclasses
import pickle
from itertools import pairwise

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest
import shapely
import small_case as case
from posteriors import bumps, island, prescribed

from geobgp import LGCP, Counts, HarmonicBasis, Matern, Posterior, bin_points, map_intensity
from geobgp.errors import DataError

EAST = 154_000.0  # between cells


@pytest.fixture(scope="module")
def people():
    domain = island(2000.0)
    made = prescribed(domain, bumps(domain) - 5.0, 0.3)
    head = np.random.default_rng(1).uniform(50.0, 500.0, domain.n_nodes)
    return dataclasses.replace(made, exposure=head, exposure_kind="population")


@pytest.fixture(scope="module")
def halves():
    boxes = [shapely.box(100_000, 400_000, EAST, 500_000), shapely.box(EAST, 400_000, 200_000, 500_000)]
    return gpd.GeoDataFrame({"name": ["west", "east"]}, geometry=boxes, crs=28992)


def test_rates_and_relative_risks_are_expected_numbers_by_exposure(people, halves):
    shown = people.in_units("per 100,000")
    table = shown.totals(halves, n_samples=400)
    assert table.attrs["units"] == "events per 100,000 people"
    np.testing.assert_allclose(table["rate"], 1e5 * table["expected"] / table["exposure"])
    np.testing.assert_allclose(table["rate_q95"], 1e5 * table["q95"] / table["exposure"])
    overall = table["expected"].sum() / table["exposure"].sum()
    assert shown.overall == pytest.approx(1e5 * overall, rel=1e-9)
    assert people.overall == pytest.approx(overall, rel=1e-9)
    assert people.in_units("relative risk").overall == pytest.approx(1.0, rel=1e-12)
    np.testing.assert_allclose(table["relative_risk"], table["rate"] / (1e5 * overall), rtol=1e-9)
    np.testing.assert_allclose(table["relative_risk_q05"], table["rate_q05"] / (1e5 * overall), rtol=1e-9)
    risk = people.in_units("relative risk").totals(halves, n_samples=400)
    assert "rate" not in risk
    np.testing.assert_allclose(risk["relative_risk"], table["relative_risk"])
    np.testing.assert_array_equal(risk["p_above"], table["p_above"])


def test_the_probability_of_a_raised_rate_is_that_of_samples(people, halves):
    table = people.totals(halves, n_samples=3000)
    where = people.domain.node_points[:, 0] > EAST
    draws = np.asarray(people.sample(3000, 8)) * people.exposure
    for mine, p in ((~where, table["p_above"][0]), (where, table["p_above"][1])):
        share = (draws[:, mine].sum(axis=1) > people.overall * people.exposure[mine].sum()).mean()
        assert p == pytest.approx(share, abs=0.05)


def test_of_expected_cases_one_is_the_reference(people, halves):
    risk = dataclasses.replace(people, exposure=people.exposure / 200, exposure_kind="expected")
    table = risk.totals(halves, n_samples=300)
    np.testing.assert_allclose(table["relative_risk"], table["expected"] / table["exposure"])
    low = table["relative_risk"] < 0.5
    assert low.all() and (table["p_above"] < 0.01).all() and "rate" not in table


def test_of_land_there_is_a_rate_and_no_relative_risk(halves):
    domain = island(2000.0)
    table = prescribed(domain, bumps(domain), 0.2).in_units("per ha").totals(halves, n_samples=100)
    np.testing.assert_allclose(table["rate"], table["expected"] / (100 * table["land_km2"]), rtol=1e-9)
    assert "relative_risk" not in table and table["p_above"].between(0, 1).all()


def test_observed_is_the_number_of_points_inside():
    domain = case.domain(2000.0)
    made = prescribed(domain, np.zeros(domain.n_nodes), 0.2)
    points = case.points(seed=4)
    cuts = case.WEST + np.array([0.0, 3_300.0, 11_111.0, 40_000.0])  # through cells
    strips = [shapely.box(a, case.SOUTH - 1_000, b, case.SOUTH + 17_000) for a, b in pairwise(cuts)]
    regions = gpd.GeoDataFrame(geometry=strips, crs=case.CRS).to_crs(4326)
    table = made.totals(regions, points=points, n_samples=10)
    inside = [int(shapely.contains_xy(s, points.geometry.x, points.geometry.y).sum()) for s in strips]
    assert table["observed"].tolist() == inside and sum(inside) == len(points)
    weights = np.arange(len(points)) % 3
    counts = bin_points(points, domain, weights=weights, keep_coordinates=True)
    table = made.totals(regions, points=counts, n_samples=10)
    assert table["observed"].sum() == weights.sum()
    assert "observed" not in made.totals(regions, n_samples=10)
    with pytest.raises(DataError, match="where their points lay"):
        made.totals(regions, points=bin_points(points, domain), n_samples=10)


def test_observed_has_one_meaning_in_space_and_over_time(tmp_path):
    """Events truly inside a region: by places, by whole nodes, or not known; never shared by area."""
    domain = case.domain(2000.0)
    points = case.points(seed=4)
    months = np.array(["2020-01-15", "2020-02-15"])[np.arange(len(points)) % 2]
    cuts = case.WEST + np.array([0.0, 3_300.0, 11_111.0, 40_000.0])  # through cells
    strips = [shapely.box(a, case.SOUTH - 1_000, b, case.SOUTH + 17_000) for a, b in pairwise(cuts)]
    regions = gpd.GeoDataFrame(geometry=strips, crs=case.CRS)
    x, y = points.geometry.x, points.geometry.y
    inside = np.array([shapely.contains_xy(s, x, y) for s in strips])
    model = LGCP(HarmonicBasis.compute(domain, m=9, cache=False), Matern(1.5, 40_000.0, 0.5))
    of_time = {"time": months, "every": "month", "keep_coordinates": True}
    made = model.fit(bin_points(points, domain, keep_coordinates=True))
    by_month = model.fit(bin_points(points, domain, **of_time))
    assert made.totals(regions, n_samples=10)["observed"].tolist() == inside.sum(axis=1).tolist()
    each = [(inside & (months == m)).sum(axis=1).tolist() for m in np.unique(months)]
    assert by_month.totals(regions, n_samples=10)["observed"].tolist() == [n for row in each for n in row]
    assert by_month.at(1).totals(regions, n_samples=10)["observed"].tolist() == each[1]
    assert "observed" not in by_month.forecast(1).totals(regions, n_samples=10)
    # No file and no copy holds a place; what whole nodes tell is told, and the rest is not known.
    assert pickle.loads(pickle.dumps(made)).places is None and by_month.places is not None
    for whole in (made, by_month):
        again = Posterior.load(whole.save(tmp_path / "map.geobgp"))
        assert again.places is None
        assert np.isnan(again.totals(regions.iloc[:2], n_samples=10).get("observed", np.nan)).all()
        total = again.totals(n_samples=10)["observed"]
        assert total.sum() == len(points)
        known = again.totals(regions, points=bin_points(points, domain, **of_time) if whole is by_month else points)
        np.testing.assert_array_equal(known["observed"], whole.totals(regions, n_samples=10)["observed"])
    with pytest.raises(DataError, match="counted by the periods of the map"):
        by_month.totals(regions, points=points)


def test_a_map_made_from_points_knows_how_many_lie_in_a_region():
    points = case.points(seed=4)
    made = map_intensity(points, case.land(), cell_size=2000, m="full", permeability=0, cache=False)
    strip = shapely.box(case.WEST, case.SOUTH - 1_000, case.WEST + 11_111, case.SOUTH + 17_000)
    found = made.totals(gpd.GeoSeries([strip], crs=case.CRS), n_samples=10)
    assert found["observed"].tolist() == [int(shapely.contains_xy(strip, points.geometry.x, points.geometry.y).sum())]


def test_points_off_the_land_count_where_they_were_moved_and_dropped_ones_nowhere():
    domain = case.domain(1000.0)
    at = np.array([[3_000, 16_300], [3_000, 66_000], [500, 15_500]]) + np.array([case.WEST, case.SOUTH])
    points = gpd.GeoDataFrame(geometry=gpd.points_from_xy(*at.T), crs=case.CRS)
    with pytest.warns(UserWarning, match="dropped"):
        counts = bin_points(points, domain, keep_coordinates=True)
    assert isinstance(counts, Counts) and counts.counted.shape == (2, 3) and len(counts.coordinates) == 3
    made = prescribed(domain, np.zeros(domain.n_nodes), 0.2)
    table = made.totals(case.land(), points=counts, n_samples=10)
    assert table["observed"].tolist() == [2.0, 0.0]


def test_polygons_of_one_name_are_one_region_if_asked_for(people):
    strips = [shapely.box(x, 400_000, x + 10_000, 500_000) for x in (130_000, 140_000, 150_000, 160_000)]
    frame = gpd.GeoDataFrame({"name": ["a", None, "a", None], "code": [1, 2, 3, 4]}, geometry=strips, crs=28992)
    apart, merged = people.totals(frame, n_samples=300), people.totals(frame, by="name", n_samples=300)
    assert len(apart) == 4 and list(apart["code"]) == [1, 2, 3, 4]
    assert [n if isinstance(n, str) else None for n in merged["name"]] == ["a", None, None]
    expected = apart["expected"].to_numpy()
    np.testing.assert_allclose(merged["expected"], [expected[0] + expected[2], expected[1], expected[3]])
    assert merged.crs == frame.crs
    ranked = people.ranks(frame, by="name", top=1, n_samples=50)
    np.testing.assert_allclose(ranked["rate"], merged["rate"])
    with pytest.raises(DataError, match="no column 'nam'; found name, code"):
        people.totals(frame, by="nam")


def test_the_shell_keeps_regions_without_a_name(people):
    from geobgp.cli.results import read_named_regions

    strips = [shapely.box(x, 400_000, x + 10_000, 500_000) for x in (130_000, 140_000, 150_000, 160_000)]
    frame = gpd.GeoDataFrame({"id": ["p", "p", "q", "r"], "name": ["a", None, "a", np.nan]}, geometry=strips, crs=28992)
    named = read_named_regions(frame, people.domain)
    assert named["name"].tolist() == ["a", "region 2", "region 4"]
    assert named.area.tolist() == pytest.approx([2e9, 1e9, 1e9])
    assert read_named_regions(frame, people.domain, "id")["name"].tolist() == ["p", "q", "r"]
    with pytest.raises(DataError, match="no column 'province'"):
        read_named_regions(frame, people.domain, "province")
    bare = frame[["geometry"]]
    assert pd.Index(read_named_regions(bare, people.domain)["name"]).is_unique


def test_regions_that_lie_all_elsewhere_are_said(people):
    far = gpd.GeoDataFrame({"name": ["far"]}, geometry=[shapely.box(20, 40, 22, 41)], crs=4326)
    with pytest.warns(UserWarning, match="1 of 1 regions hold no land"):
        table = people.totals(far, n_samples=10)
    assert np.isnan(table["expected"][0]) and np.isnan(table["p_above"][0])
