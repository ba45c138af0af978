"""Fits over periods through the public door: one period is a map, empty ones stay, inputs may change."""

import geopandas as gpd
import numpy as np
import outbreak
import pandas as pd
import pytest
import shapely

from geobgp import LGCP, DataError, FullRank, Matern, Periods, bin_areas, bin_points

KERNEL = outbreak.KERNEL


@pytest.fixture(scope="module")
def basis():
    return outbreak.basis()


@pytest.mark.parametrize("kernel", [KERNEL, None], ids=["given", "learned"])
def test_one_period_is_the_map_without_time(basis, kernel):
    y = outbreak.counts(3)[1]
    plain = LGCP(basis, kernel).fit(y)
    timed = LGCP(basis, kernel).fit(y[None], resume=False)
    rough = dict(rtol=1e-6) if kernel is not None else dict(rtol=0.02)
    np.testing.assert_allclose(timed.at(0).node_intensity().to_numpy(), plain.node_intensity().to_numpy(), **rough)
    np.testing.assert_allclose(timed.node_intensity().to_numpy(), plain.node_intensity().to_numpy(), **rough)
    assert timed.elbo == pytest.approx(plain.elbo, abs=1e-6 if kernel is not None else 0.05)


def test_points_with_dates_are_fitted_by_period(basis):
    y = outbreak.counts(6)
    period, node = np.nonzero(y)
    times = y[period, node].astype(int)
    xy = np.repeat(basis.domain.node_points[node], times, axis=0)
    dates = [f"2020-0{t + 1}-15" for t in np.repeat(period, times)]
    points = pd.DataFrame({"easting": xy[:, 0], "northing": xy[:, 1], "date": dates})
    counts = bin_points(points, basis.domain, time="date", every="month")
    np.testing.assert_array_equal(counts.values, y)
    model = LGCP(basis, KERNEL, dynamics="separable")
    posterior, other = model.fit(counts, resume=False), model.fit(y, periods=counts.periods, resume=False)
    np.testing.assert_allclose(posterior.node_intensity(), other.node_intensity())
    assert posterior.points["used"] == y.sum() and posterior.units == "events per unit area per month"


def test_an_empty_period_borrows_from_its_neighbours(basis):
    y = outbreak.counts(12)
    full = LGCP(basis, KERNEL, dynamics="separable").fit(y, resume=False)
    y[5] = 0.0
    empty = LGCP(basis, KERNEL, dynamics="separable").fit(y, resume=False)
    assert empty.n_periods == 12 and empty.observed[5].sum() == 0
    assert 0.0 < empty.mean_by_period()[5].mean() < full.mean_by_period()[5].mean()


def test_wide_periods_count_for_their_width(basis):
    y = outbreak.counts(4)
    even = LGCP(basis, KERNEL, dynamics="separable").fit(y, periods=Periods.between([0.0, 1, 2, 3, 4]), resume=False)
    double = LGCP(basis, KERNEL, dynamics="separable").fit(y, periods=Periods.between([0.0, 2, 4, 6, 8]), resume=False)
    np.testing.assert_allclose(double.node_intensity()["mean"], even.node_intensity()["mean"] / 2, rtol=1e-6)
    assert double.units == "events per unit area per unit of time"
    np.testing.assert_allclose(double.level()["expected"], even.level()["expected"], rtol=1e-6)
    np.testing.assert_allclose(double.forecast(2).level()["expected"], even.forecast(2).level()["expected"], rtol=1e-6)


def test_an_exposure_may_change(basis):
    y, n = outbreak.counts(5), basis.domain.n_nodes
    people = np.linspace(1.0, 3.0, 5)[:, None] * np.full(n, 10.0)
    posterior = LGCP(basis, KERNEL, exposure=people, dynamics="separable").fit(y, resume=False)
    np.testing.assert_allclose(posterior.level()["expected"], (posterior.mean_by_period() * people).sum(axis=1))
    np.testing.assert_allclose(posterior.at(4).exposure, people[4])
    listed = LGCP(basis, KERNEL, exposure=list(people), dynamics="separable").fit(y, resume=False)
    np.testing.assert_allclose(listed.node_intensity(), posterior.node_intensity())
    with pytest.raises(DataError, match="exposure is given for 5 periods; there are 4"):
        LGCP(basis, KERNEL, exposure=people).fit(y[:4])
    with pytest.raises(DataError, match="counts of one"):
        LGCP(basis, KERNEL, exposure=people).fit(y[0])


def test_a_covariate_may_change(basis):
    rng, n = np.random.default_rng(1), basis.domain.n_nodes
    rain = rng.normal(20.0, 5.0, (16, n))
    y = rng.poisson(np.exp(0.5 + 0.08 * (rain - 20.0))).astype(float)
    east = basis.domain.node_points[:, 0]
    posterior = LGCP(basis, Matern(1.5, 4.0, 0.2), covariates={"east": east, "rain": rain}, dynamics="separable").fit(
        y, resume=False
    )
    table = posterior.coefficients.set_index("name")
    assert table.index.tolist() == ["intercept", "east", "rain"]
    assert table.loc["rain", "q05"] < 0.08 < table.loc["rain", "q95"] and table.loc["rain", "sd"] < 0.01
    assert table.loc["east", "q05"] < 0.0 < table.loc["east", "q95"]


def test_areas_by_period(basis):
    domain, y = basis.domain, outbreak.counts(6)
    boxes = [shapely.box(x, z, x + 2, z + 2) for x in range(0, 12, 2) for z in range(0, 8, 2)]
    rows = []
    for t in range(6):
        for shape in boxes:
            inside = shapely.contains_xy(shape, *domain.node_points.T)
            rows.append({"cases": y[t][inside].sum(), "month": f"2020-{t + 1:02d}", "geometry": shape})
    table = gpd.GeoDataFrame(rows)
    counts = bin_areas(table, domain, "cases", time="month", every="month")
    posterior = LGCP(basis, KERNEL, dynamics="separable").fit(counts, resume=False)
    points = LGCP(basis, KERNEL, dynamics="separable").fit(y, resume=False)
    close = np.corrcoef(np.log(posterior.mean_by_period()).ravel(), np.log(points.mean_by_period()).ravel())[0, 1]
    assert posterior.n_periods == 6 and close > 0.9 and posterior.points["in_areas"] == y.sum()
    assert posterior.level()["observed"].tolist() == y.sum(axis=1).tolist()
    # What was counted is told of areas, and of regions that are made of them; not of those that cut them.
    west = shapely.union_all(boxes[:8])
    found = posterior.totals(gpd.GeoSeries([boxes[3], west, shapely.box(0, 0, 3, 3)]), n_samples=10)
    told = found["observed"].to_numpy().reshape(6, 3)
    assert told[:, 0].tolist() == counts.values[:, 3].tolist()
    assert told[:, 1].tolist() == counts.values[:, :8].sum(axis=1).tolist() and np.isnan(told[:, 2]).all()
    one = bin_areas(table[table["month"] == "2020-03"], domain, "cases", time="month", every="month")
    timed = LGCP(basis, KERNEL).fit(one, resume=False).at(0).node_intensity()
    flat = LGCP(basis, KERNEL).fit(one.at(0))
    assert flat.totals(gpd.GeoSeries([west]), n_samples=10)["observed"].item() == one.values[0, :8].sum()
    plain = flat.node_intensity()
    np.testing.assert_allclose(timed["mean"], plain["mean"], rtol=0.01)


def test_a_fit_goes_on_from_another(basis):
    y = outbreak.counts(6)
    first = LGCP(basis, dynamics="separable").fit(y, resume=False)
    again = LGCP(basis, dynamics="separable").fit(y, start=first, resume=False)
    assert again.elbo == pytest.approx(first.elbo, abs=0.1) and again.fit.rounds <= first.fit.rounds
    with pytest.raises(DataError, match="over the same periods"):
        LGCP(basis).fit(y[:4], start=first)


def test_mistakes_are_told(basis):
    y = outbreak.counts(4)
    with pytest.raises(DataError, match="needs features"):
        LGCP(FullRank(basis.domain)).fit(y)
    with pytest.raises(DataError, match="dynamics must be 'auto'"):
        LGCP(basis, dynamics="chaotic")
    with pytest.raises(DataError, match="4 rows; there are 3 months"):
        LGCP(basis).fit(y, periods=Periods.calendar("month", "2020-01", "2020-03"))
    with pytest.raises(DataError, match="a row for each period and 96 columns"):
        LGCP(basis).fit(y[:, :5])
    with pytest.raises(DataError, match="GPflow's solver is for one period"):
        LGCP(basis).fit(y, engine="gpflow")
    with pytest.raises(DataError, match="counts of one"):
        LGCP(basis).fit(y[0], periods=Periods.calendar("month", "2020-01", "2020-01"))
