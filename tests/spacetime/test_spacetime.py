"""Posteriors over periods: every number is the same wherever it is asked, and time is told as dates."""

import geopandas as gpd
import numpy as np
import outbreak
import pytest
import shapely

from geobgp import DataError, Periods, Posterior, SpaceTimePosterior

HALVES = gpd.GeoDataFrame({"name": ["west", "east"]}, geometry=[shapely.box(0, 0, 6, 8), shapely.box(6, 0, 12, 8)])


@pytest.fixture(scope="module")
def posterior():
    return outbreak.fitted()


def test_a_period_is_a_map_like_any_other(posterior):
    for t in (0, 17, -1):
        one = posterior.at(t)
        assert one.periods is None and one.units == "events per unit area per month" == posterior.units
        whole = posterior.node_intensity().loc[posterior.periods.labels[t]]
        np.testing.assert_allclose(one.node_intensity().to_numpy(), whole.to_numpy(), rtol=1e-7)
        assert one.n_points == posterior.observed[t].sum() and posterior.periods.labels[t] in one.title
    label = posterior.periods.labels[3]
    np.testing.assert_array_equal(posterior.at(label).observed, posterior.observed[3])
    assert posterior.at("2010-04-20").title == posterior.at(label).title
    with pytest.raises(DataError, match="There is no period '1999-01'"):
        posterior.at("1999-01")


def test_the_map_follows_the_truth(posterior):
    truth = outbreak.truth(30, posterior.domain.node_points)
    mean = posterior.mean_by_period()
    assert np.corrcoef(np.log(truth).ravel(), np.log(mean).ravel())[0, 1] > 0.9
    table = posterior.node_intensity()
    inside = (table["q05"] <= truth.ravel()) & (truth.ravel() <= table["q95"])
    assert 0.75 < inside.mean() <= 1.0


def test_the_grid_has_a_time_axis(posterior, tmp_path):
    import xarray as xr

    data = posterior.intensity()
    assert data["mean"].dims == ("time", "northing", "easting") and data.sizes["time"] == 30
    np.testing.assert_allclose(
        data["mean"].sel(time="2010-04").values[0], posterior.at("2010-04").intensity()["mean"].values
    )
    assert data["mean"].attrs["units"] == "events per unit area per month"
    assert data["period"].values[0] == "2010-01" and data["time"].attrs["bounds"] == "time_bounds"
    chance = posterior.exceedance(1.0)
    np.testing.assert_allclose(chance.isel(time=2), posterior.at(2).exceedance(1.0), rtol=1e-6, atol=1e-9)
    posterior.to_netcdf(tmp_path / "map.nc", [1.0])
    with xr.open_dataset(tmp_path / "map.nc") as again:
        np.testing.assert_allclose(again["mean"], data["mean"], rtol=1e-6)
        assert again["time"].values[1] == np.datetime64("2010-02-01") and "exceedance_1" in again


def test_places_have_a_row_for_each_period(posterior):
    table = posterior.intensity_at([[2.5, 3.5], [99.0, 0.0]])
    assert len(table) == 60 and table["period"].iloc[2] == "2010-02" and table["place"].tolist()[:3] == [0, 1, 0]
    assert table[table["place"] == 1]["mean"].isna().all()
    there = posterior.at(5).intensity_at([[2.5, 3.5]])
    np.testing.assert_allclose(table[table["place"] == 0]["q95"].iloc[5], there["q95"].iloc[0], rtol=1e-7)
    assert posterior.intensity_at([[2.5, 3.5]], period="2010-06")["period"].tolist() == ["2010-06"]


def test_totals_add_up(posterior):
    halves, whole = posterior.totals(HALVES, n_samples=200), posterior.totals(n_samples=200)
    assert len(halves) == 60 and len(whole) == 30
    np.testing.assert_allclose(halves.groupby("period")["expected"].sum(), whole["expected"], rtol=1e-9)
    np.testing.assert_allclose(whole["expected"], posterior.level()["expected"], rtol=1e-9)
    np.testing.assert_allclose(whole["observed"], posterior.observed.sum(axis=1))
    each = posterior.at(4).totals(HALVES, n_samples=2000)
    mine = halves[halves["period"] == "2010-05"]
    np.testing.assert_allclose(mine["expected"], each["expected"], rtol=1e-7)
    np.testing.assert_allclose(mine["sd"], each["sd"], rtol=0.25)
    assert mine["name"].tolist() == ["west", "east"] and mine["start"].iloc[0] == np.datetime64("2010-05-01")
    assert (halves["q05"] < halves["expected"]).all()
    predicted = posterior.totals(HALVES, n_samples=200, predicted=True)
    assert (predicted["predicted_q95"] >= predicted["q95"]).mean() > 0.95


def test_samples_are_joint(posterior):
    draws = posterior.sample(400, 1)
    assert draws.dims == ("draw", "time", "node") and draws.shape == (400, 30, 96)
    np.testing.assert_array_equal(posterior.sample(3, 1), posterior.sample(3, 1))
    logs = np.log(draws.values)
    mean, variance = posterior._nodes.moments()
    np.testing.assert_allclose(logs.mean(axis=0).ravel(), mean, atol=6 * np.sqrt(variance.max() / 400))
    neighbours = [np.corrcoef(logs[:, t, 40], logs[:, t + 1, 40])[0, 1] for t in range(20)]
    far = [np.corrcoef(logs[:, t, 40], logs[:, t + 9, 40])[0, 1] for t in range(20)]
    assert np.mean(neighbours) > np.mean(far) + 0.1


def test_the_trend_is_a_straight_line_through_the_draws(posterior):
    years = np.arange(30) / 12
    draws = np.log(posterior.sample(500, 0).values)
    slopes = np.polyfit(years, draws.transpose(1, 0, 2).reshape(30, -1), 1)[0].reshape(500, -1)
    trend = posterior.trend(n_samples=500, rng=0)
    here = posterior.domain.to_grid(np.expm1(slopes.mean(axis=0)))
    np.testing.assert_allclose(trend["change"], here, atol=0.2)
    np.testing.assert_allclose(trend["p_increase"], posterior.domain.to_grid((slopes > 0).mean(axis=0)), atol=0.05)
    east = trend["change"].sel(easting=10.5).mean()
    assert float(east) > 0.3 > 0.0 > float(trend["change"].sel(easting=1.5).mean())
    regions = posterior.trend(HALVES, n_samples=500, rng=0)
    assert regions["p_increase"].iloc[0] < 0.05 and regions["p_increase"].iloc[1] > 0.95
    assert (regions["q05"] < regions["change"]).all() and (regions["change"] < regions["q95"]).all()
    assert len(posterior.trend("land", n_samples=50)) == 1


def test_forecasts_go_on_where_the_last_period_ended_and_know_less(posterior):
    ahead = posterior.forecast(24)
    assert ahead.n_periods == 24 and ahead.periods.labels[:2] == ("2012-07", "2012-08")
    sd = np.sqrt(ahead._nodes.moments()[1]).reshape(24, -1)
    assert (np.diff(sd.mean(axis=1)) > -1e-3).all() and sd[0].mean() > np.sqrt(posterior._nodes.moments()[1])[
        -96:
    ].mean()
    # The season goes on.
    level = ahead.level()["level_q50"].to_numpy()
    assert level[5:8].mean() > 1.3 * level[-1]
    np.testing.assert_allclose(
        ahead.forecast(1).level()["level_q50"], posterior.forecast(25).level()["level_q50"].iloc[-1:], rtol=1e-6
    )
    named = posterior.forecast(posterior.periods.ahead(3))
    assert named.n_periods == 3
    with pytest.raises(DataError, match="without a gap"):
        posterior.forecast(Periods.calendar("month", "2020-01", "2020-03"))
    double = posterior.forecast(2, exposure=2.0 * posterior.by_period[-1])
    np.testing.assert_allclose(double.level()["expected"], 2.0 * ahead.level()["expected"][:2], rtol=1e-9)


def test_what_was_found_is_told(posterior):
    text = str(posterior.summary())
    for words in ("30 months, 2010-01 to 2012-06", "separable: all patches fade alike", "correlation time", "level sd",
                  "highest in January", "events per unit area per month"):  # fmt: skip
        assert words in text
    assert "30 months" in repr(posterior) and posterior.dynamics == "separable" and posterior.tau > 1
    assert posterior.coefficients["name"].tolist() == ["intercept", "cosine of the year", "sine of the year"]
    level = posterior.level()
    assert level["observed"].sum() == posterior.n_points and level.attrs["units"] == posterior.units
    assert posterior.provenance["periods"] == "30 months, 2010-01 to 2012-06"


def test_every_question_has_an_answer_for_each_period(posterior):
    labels = posterior.periods.labels
    few = posterior.at(0), labels[0]
    sets = posterior.excursion(1.0, n_samples=50)
    assert tuple(sets) == labels
    for label in labels[::10]:
        np.testing.assert_array_equal(
            sets[label].joint_above, posterior.at(label).excursion(1.0, n_samples=50).joint_above
        )
    assert tuple(posterior.residuals(n_simulations=39)) == labels
    one = posterior.residuals(n_simulations=39, period=few[1])
    np.testing.assert_array_equal(one.observed, few[0].residuals(n_simulations=39).observed)
    other = posterior.forecast(30)
    against = posterior.versus(posterior.at(3), period=0)
    np.testing.assert_allclose(
        against.node_ratio()["mean"], few[0].versus(posterior.at(3)).node_ratio()["mean"], rtol=1e-12
    )
    with pytest.raises(DataError, match="There is no period '2010-01'"):
        posterior.versus(other)
    mean, variance = posterior.predict([[2.5, 3.5], [99.0, 0.0]])
    assert mean.shape == variance.shape == (30, 2) and np.isnan(mean[:, 1]).all()
    np.testing.assert_allclose(mean[0, 0], few[0].predict([[2.5, 3.5]])[0][0], rtol=1e-12)
    table = posterior.predict(gpd.GeoSeries([shapely.Point(2.5, 3.5)], index=["here"]))[0]
    assert table.columns.tolist() == list(labels) and table.loc["here", labels[0]] == mean[0, 0]


@pytest.mark.parametrize(
    ("name", "args"), [("ranks", (HALVES,)), ("to_polygons", ([0.5, 1.0],)), ("tolerance_contours", ())]
)
def test_tables_have_a_column_for_the_period(posterior, name, args, tmp_path):
    more = {"n_samples": 50, "top": 1} if name == "ranks" else {}
    whole = getattr(posterior, name)(*args, **more)
    assert whole.columns[:2].tolist() == ["period", "start"]
    if name != "tolerance_contours":
        assert list(whole["period"].unique()) == list(posterior.periods.labels)
    for label in posterior.periods.labels[::7]:
        one = getattr(posterior, name)(*args, period=label, **more)
        mine = whole[whole["period"] == label].drop(columns=["period", "start"])
        assert mine.drop(columns="geometry").equals(one.drop(columns="geometry"))
        assert mine.geometry.geom_equals(one.geometry).all() and whole.crs == one.crs
    if name == "to_polygons":
        posterior.to_polygons(*args, tmp_path / "bands.gpkg")
        assert len(gpd.read_file(tmp_path / "bands.gpkg")) == len(whole)


def test_one_period_can_be_given(posterior):
    found = posterior.excursion(1.0, period="2010-03", n_samples=50)
    np.testing.assert_array_equal(found.above, posterior.at(2).excursion(1.0, n_samples=50).above)
    with pytest.raises(DataError, match="has no time"):
        posterior.at(0).excursion(1.0, period=0)
    with pytest.raises(DataError, match="is about one month; there are 30 months"):
        posterior.to_map(show_points=True, points=np.zeros((1, 2)))


def test_one_period_and_no_time_are_asked_the_same_and_say_the_same(posterior):
    """A chain of one period is a map: same columns, and the same numbers as its period."""
    alone = outbreak.fitted(1)
    here = alone.at(0)
    whole, part = (
        alone.totals(HALVES, n_samples=400, predicted=True),
        here.totals(HALVES, n_samples=400, predicted=True),
    )
    assert [name for name in whole if name not in ("period", "start")] == part.columns.tolist()
    for name in ("land_area", "observed", "expected", "rate"):
        np.testing.assert_allclose(whole[name], part[name], rtol=1e-9)
    for name in ("sd", "q05", "q95", "rate_q05", "p_above"):
        np.testing.assert_allclose(whole[name], part[name], rtol=0.3, atol=0.05)
    np.testing.assert_allclose(alone.dataset([0.1])["q10"].values[0], here.dataset([0.1])["q10"], rtol=1e-9)


def test_a_file_gives_back_the_same_numbers(posterior, tmp_path):
    path = posterior.save(tmp_path / "map.geobgp")
    for again in (Posterior.load(path), SpaceTimePosterior.load(path)):
        assert again.time.same_as(posterior.periods)
        np.testing.assert_array_equal(again.node_intensity().to_numpy(), posterior.node_intensity().to_numpy())
        np.testing.assert_array_equal(again.sample(2, 0), posterior.sample(2, 0))
        np.testing.assert_array_equal(again.forecast(2).level()["level"], posterior.forecast(2).level()["level"])
        assert again.units == posterior.units and str(again.summary()) == str(posterior.summary())
        assert again.cross_validate(4.0, last=2).coverage == posterior.cross_validate(4.0, last=2).coverage
    posterior.at(0).save(tmp_path / "one.geobgp")
    assert Posterior.load(tmp_path / "one.geobgp").units == "events per unit area per month"
    with pytest.raises(DataError, match="has no time"):
        Posterior.load(tmp_path / "one.geobgp").forecast(1)


def test_files_of_all_periods(posterior, tmp_path):
    short = posterior.forecast(3)
    made = short.to_raster(tmp_path, [1.0])
    assert len(made) == 19 and (tmp_path / "coverage.tif").exists()
    styles = {(tmp_path / f"mean_{label}.qml").read_text() for label in short.periods.labels}
    assert len(styles) == 1
    assert len(short.to_raster(tmp_path / "one", period=0)) == 6
    project = short.to_qgis(tmp_path / "project")
    assert project.name == "map.qgz" and (project.parent / "mean_2012-07.tif").exists()
    page = tmp_path / "map.html"
    short.to_map(page, regions=HALVES)
    assert "2012-09" in page.read_text() and "west" in page.read_text()
    short.to_map(tmp_path / "one.html", period=0)
    assert (tmp_path / "one.html").exists()
    posterior.to_map(tmp_path / "both.html", forecast=short)
    with pytest.raises(DataError, match="written into a folder"):
        short.to_raster(tmp_path / "all.tif")


def test_a_trend_needs_two_periods():
    one = outbreak.fitted(1)
    with pytest.raises(DataError, match="two periods at least"):
        one.trend()
