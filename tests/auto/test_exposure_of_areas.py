"""The exposure of districts is what was given, in every table, and a flat rate is flat, whatever the cells are."""

from __future__ import annotations

import geopandas as gpd
import numpy as np
import pytest
import rioxarray  # noqa: F401
import shapely
import xarray as xr
from affine import Affine
from paths import SAMPLE

from geobgp import DataError, Matern, Posterior, map_intensity

RATE = 0.05
SHORT = Matern(1.5, lengthscale=60_000.0, sd=0.1)


@pytest.fixture(scope="module")
def counties():
    """Counties with births, and cases that are 5 % of them, but for chance."""
    frame = gpd.read_file(SAMPLE / "north_carolina_sids.gpkg")[["name", "births_1974", "geometry"]]
    return frame.assign(cases=cases_of(frame, 0))


def cases_of(frame, seed):
    return np.random.default_rng(seed).poisson(RATE * frame["births_1974"])


def fitted(frame, cell_size=15_000, **options):
    given = {"exposure": frame, "exposure_column": "births_1974"} | options
    return map_intensity(areas=frame, count="cases", land=frame, cell_size=cell_size, cache=False, **given)


@pytest.fixture(scope="module")
def posterior(counties):
    return fitted(counties)


def test_every_table_has_the_births_that_were_given(posterior, counties, tmp_path):
    posterior.save(tmp_path / "map.geobgp")
    again = Posterior.load(tmp_path / "map.geobgp")
    shapes = counties[["name", "geometry"]]
    for one in (posterior, again):
        for table in (one.totals(shapes, n_samples=2), one.ranks(shapes, n_samples=2)):
            np.testing.assert_allclose(table["exposure"], counties["births_1974"], rtol=1e-6)
    halves = shapely.box(-90, 30, -79.5, 40), shapely.box(-79.5, 30, -70, 40)
    parts = [one.totals(gpd.GeoSeries(halves, crs=4326), n_samples=20) for one in (posterior, again)]
    np.testing.assert_allclose(parts[0].drop(columns="geometry"), parts[1].drop(columns="geometry"))
    assert parts[0]["exposure"].sum() == pytest.approx(counties["births_1974"].sum(), rel=1e-6)
    assert posterior.cross_validate().score == pytest.approx(again.cross_validate().score)


@pytest.mark.parametrize("cell_size", [10_000, 20_000])
def test_a_flat_rate_is_flat_on_cells_of_any_size(counties, cell_size):
    """By `benchmarks/areas.py` 96 to 99 of 100 intervals hold it, over 20 draws and cells of 2.5 to 20 km."""
    inside = []
    for seed in (1, 2):
        found = fitted(counties.assign(cases=cases_of(counties, seed)), cell_size)
        table = found.totals(counties[["geometry"]])
        inside.append((table["rate_q05"] <= RATE) & (table["rate_q95"] >= RATE))
    assert np.mean(inside) >= 0.85


def test_merged_districts_add_up(posterior, counties):
    shapes = counties.assign(group=np.arange(len(counties)) % 7)[["group", "geometry"]]
    single, merged = posterior.totals(shapes, n_samples=2), posterior.totals(shapes, by="group", n_samples=2)
    for name in ("exposure", "expected"):
        np.testing.assert_allclose(merged[name], single.groupby("group")[name].sum(), rtol=1e-6)


def test_neither_their_order_nor_what_people_are_given_by_changes_anything(counties):
    plain = fitted(counties, kernel=SHORT)
    order = np.random.default_rng(0).permutation(len(counties))
    # The exposure by halves of counties: the same births on the same land.
    west = shapely.box(-90, 30, -79.5, 40)
    halves = gpd.GeoDataFrame(
        np.concatenate([counties[["births_1974"]].to_numpy()] * 2),
        columns=["births_1974"],
        geometry=[*counties.intersection(west), *counties.difference(west)],
        crs=counties.crs,
    )
    equal = halves.to_crs(32119).area.to_numpy().reshape(2, -1)
    halves["births_1974"] *= (equal / equal.sum(axis=0)).ravel()
    for other, rtol in (
        (fitted(counties.iloc[order], kernel=SHORT), 1e-6),
        (fitted(counties, exposure=halves[~halves.is_empty], kernel=SHORT), 1e-3),
    ):
        mean, sd = (np.array(one.node_intensity()["mean"]) for one in (plain, other))
        np.testing.assert_allclose(mean, sd, rtol=max(rtol, 1e-4))
        table = other.totals(counties[["geometry"]], n_samples=2)
        np.testing.assert_allclose(table["exposure"], counties["births_1974"], rtol=rtol)


def test_a_district_with_cases_and_nobody_in_it_is_named(counties):
    nobody = counties.assign(births_1974=counties["births_1974"].where(counties["name"] != "Wake", 0))
    with pytest.raises(DataError, match="Wake has events but no exposure"):
        fitted(nobody)
    without = nobody.assign(cases=nobody["cases"].where(nobody["name"] != "Wake", 0))
    found = fitted(without).totals(without[["name", "geometry"]], n_samples=2).set_index("name")
    assert found.loc["Wake", "exposure"] == 0 and np.isnan(found.loc["Wake", "rate"])


def test_suppressed_counts_and_points_besides_stand_behind_the_same_people(counties):
    told = counties.assign(cases=counties["cases"].where(counties["cases"] > 60).astype("float"))
    found = fitted(told, suppressed=(0, 60), kernel=SHORT)
    table = found.totals(counties[["geometry"]], n_samples=50)
    np.testing.assert_allclose(table["exposure"], counties["births_1974"], rtol=1e-6)
    assert table["expected"].sum() == pytest.approx(RATE * counties["births_1974"].sum(), rel=0.05)
    some = counties.sample(40, random_state=0)
    points = gpd.GeoDataFrame(geometry=some.representative_point(), crs=counties.crs)
    both = fitted(counties, points=points, kernel=SHORT).totals(counties[["geometry"]], n_samples=2)
    np.testing.assert_allclose(both["exposure"], counties["births_1974"], rtol=1e-6)
    assert both["expected"].sum() == pytest.approx(counties["cases"].sum() + 40, rel=0.01)


def test_people_that_change_from_period_to_period(counties, tmp_path):
    some = counties.iloc[:30]
    growth = np.linspace(0.5, 1.5, len(some))
    years = []
    for k in range(3):
        births = some["births_1974"] * growth**k
        cases = np.random.default_rng(k).poisson(RATE * births)
        years.append(some.assign(year=str(2001 + k), births_1974=births, cases=cases))
    table = gpd.GeoDataFrame(gpd.pd.concat(years, ignore_index=True), crs=counties.crs)
    found = map_intensity(
        areas=table, count="cases", land=some, exposure=table, exposure_column="births_1974", time="year",
        every="year", cell_size=20_000, kernel=SHORT, cache=False, max_seconds=20,
    )  # fmt: skip
    found.save(tmp_path / "years.geobgp")
    again = Posterior.load(tmp_path / "years.geobgp")
    for one in (found, again):
        totals = one.totals(some[["name", "geometry"]], n_samples=20)
        np.testing.assert_allclose(totals["exposure"], table["births_1974"], rtol=1e-6)
    np.testing.assert_allclose(totals["rate"], RATE, rtol=0.2)
    last = years[-1]["births_1974"].to_numpy()
    for later in (found.at("2003"), found.forecast(1)):
        np.testing.assert_allclose(later.totals(some[["geometry"]], n_samples=2)["exposure"], last, rtol=1e-6)
    assert 0.6 < found.cross_validate(last=1).coverage <= 1.0


def test_pixels_are_shared_out_as_they_lie():
    """Two districts that share every cell between them: all people live in the east."""
    land = [shapely.box(0, 0, 10, 9.5), shapely.box(10, 0, 20, 9.5)]
    frame = gpd.GeoDataFrame({"name": ["west", "east"], "cases": [100, 5]}, geometry=land)
    density = np.where(np.arange(200) < 100, 1.0, 0.01)
    people = xr.DataArray(np.tile(density, (100, 1)), dims=("y", "x"))
    people = people.rio.write_transform(Affine(0.1, 0, 0, 0, -0.1, 9.5))[:95]
    found = map_intensity(
        areas=frame, count="cases", land=frame, exposure=people, crs="local", cell_size=3.0, cache=False,
        kernel=Matern(1.5, lengthscale=20.0, sd=0.5),
    )  # fmt: skip
    table = found.totals(frame[["name", "geometry"]], n_samples=2)
    np.testing.assert_allclose(table["exposure"], [9500.0, 95.0], rtol=1e-6)
    strip = found.totals(shapely.box(9.5, 0, 10, 9.5), n_samples=2)["exposure"]
    np.testing.assert_allclose(strip, 5 * 95.0, rtol=1e-6)


def test_effort_by_district_stays_in_its_district():
    land = [shapely.box(0, 0, 10, 10), shapely.box(10, 0, 20, 10)]
    frame = gpd.GeoDataFrame({"cases": [100, 10], "effort": [1.0, 0.1], "people": [1000.0, 1000.0]}, geometry=land)
    found = map_intensity(
        areas=frame, count="cases", land=frame, exposure=frame, exposure_column="people",
        effort=frame[["effort", "geometry"]], crs="local", cell_size=3.0, cache=False,
        kernel=Matern(1.5, lengthscale=20.0, sd=1.0),
    )  # fmt: skip
    table = found.totals(frame[["geometry"]], n_samples=2)
    np.testing.assert_allclose(table["exposure"], 1000.0, rtol=1e-6)
    np.testing.assert_allclose(table["rate"], 0.1, rtol=0.05)
    np.testing.assert_allclose(table["reported"], table["expected"] * [1.0, 0.1], rtol=1e-6)


def test_all_people_of_a_district_that_reaches_out_to_sea_live_on_its_land():
    """Its events were counted as a whole."""
    boxes = [shapely.box(0, 0, 10, 30), shapely.box(10, 0, 20, 10)]
    frame = gpd.GeoDataFrame({"cases": [50, 50], "people": [1000.0, 1000.0]}, geometry=boxes)
    found = map_intensity(
        areas=frame, count="cases", land=shapely.box(0, 0, 20, 10), exposure=frame, exposure_column="people",
        crs="local", cell_size=3.0, cache=False, kernel=Matern(1.5, lengthscale=20.0, sd=1.0),
    )  # fmt: skip
    table = found.totals(frame[["geometry"]], n_samples=2)
    np.testing.assert_allclose(table["exposure"], 1000.0, rtol=1e-6)
    np.testing.assert_allclose(table["rate"], 0.05, rtol=0.05)
