"""Residuals: references written as loops, what good and bad maps show, figures, and what is refused."""

import dataclasses

import geopandas as gpd
import numpy as np
import outbreak
import pandas as pd
import pytest
from models import archipelago, square
from posteriors import fitted, prescribed
from scipy.special import expit
from shapely import box

from geobgp import LGCP, BoundaryGP, DataError, Domain, FullRank, HarmonicBasis, Matern, bin_areas
from geobgp.auto.tasks import fit_risk
from geobgp.checks import residuals as pearson
from geobgp.checks.samples import AreaSample
from geobgp.data.counts import bin_points
from geobgp.data.persons import Groups, Persons


def known(domain, rate, counts, spread=0.01):
    return dataclasses.replace(prescribed(domain, np.log(rate), spread), observed=np.asarray(counts, float))


def draw(domain, rate, seed=0):
    return np.random.default_rng(seed).poisson(rate * domain.node_areas)


def test_pairs_against_a_loop():
    domain = archipelago()
    rng = np.random.default_rng(1)
    counts, expected = rng.poisson(0.7, domain.n_nodes).astype(float), rng.uniform(0.5, 1.0, domain.n_nodes)
    found = pearson._pairs(domain, pearson._Paired(np.vstack([counts, counts]), np.full(2, counts.sum()), expected))
    place = np.column_stack([domain.node_rows, domain.node_cols])
    seen, base = {}, {}
    for i in range(domain.n_nodes):
        for j in range(domain.n_nodes):
            lag = float(np.hypot(*(place[i] - place[j])))
            seen[lag] = seen.get(lag, 0.0) + counts[i] * counts[j] - (counts[i] if i == j else 0.0)
            base[lag] = base.get(lag, 0.0) + expected[i] * expected[j]
    # The first two rings hold one lag each: the cell itself, and its four neighbours.
    for ring, lag in enumerate((0.0, 1.0)):
        assert found.at[ring] == pytest.approx(lag * domain.cell_size)
        assert found.observed[ring] == pytest.approx(seen[lag] / base[lag])


def values_at(domain, seed, n=150, noise=0.5, transform="none"):
    """Return values at places about a wave, what made them, and their places."""
    rng = np.random.default_rng(seed)
    xy = rng.uniform(0.05, 9.95, (n, 2))
    y = np.sin(xy[:, 0]) + noise * rng.normal(size=n)
    return xy, np.exp(y) if transform == "log" else y


@pytest.mark.parametrize("transform", ["none", "log"])
def test_residuals_of_values_are_rarely_blamed_where_the_map_holds(transform):
    basis = HarmonicBasis.compute(square(), 80, cache=False)
    blamed, inside = 0, 0
    for seed in range(6):
        xy, y = values_at(basis.domain, seed, transform=transform)
        answer = BoundaryGP(basis, Matern(1.5, lengthscale=4.0), transform=transform).fit(xy, y).residuals(rng=seed)
        blamed += len(answer.unexplained(0.02))
        inside += answer.dispersion_band[0] * 0.6 <= answer.dispersion <= answer.dispersion_band[1]
        assert answer.observed.sum() == pytest.approx(y.sum()) and answer.events == "sites"
    assert blamed <= 1 and inside >= 5


def test_neighbours_that_a_flat_map_makes_unlike_are_alike_in_its_residuals():
    basis = HarmonicBasis.compute(square(), 80, cache=False)
    xy, y = values_at(basis.domain, 9, n=300)
    flat = BoundaryGP(basis, Matern(1.5, lengthscale=4.0, sd=1e-3)).fit(xy, y).residuals()
    assert flat.pairs.observed[1] > 0.2 > flat.pairs.high[1] and "pairs" in flat.unexplained()
    assert "easting" in flat.unexplained()


def test_pairs_of_sites_against_a_loop():
    basis = HarmonicBasis.compute(square(), 40, cache=False)
    xy, y = values_at(basis.domain, 3, n=80)
    posterior = BoundaryGP(basis, Matern(1.5, lengthscale=4.0, sd=1e-3)).fit(xy, y)
    answer = posterior.residuals(n_simulations=39)
    mean, variance = (part.mean() for part in posterior.predict_y(xy))
    score, node = (y - mean) / np.sqrt(variance), basis.domain.node_at(xy)
    place = np.column_stack([basis.domain.node_rows, basis.domain.node_cols])[node]
    lag = np.hypot(*(place[:, None] - place).transpose(2, 0, 1))
    products = np.outer(score, score)
    np.fill_diagonal(lag, np.nan)
    for ring, distance in enumerate((0.0, 1.0)):
        assert answer.pairs.observed[ring] == pytest.approx(products[lag == distance].mean(), abs=0.03)


def test_squares_without_a_site_have_no_residual():
    basis = HarmonicBasis.compute(square(), 40, cache=False)
    rng = np.random.default_rng(5)
    xy, tested = rng.uniform(0.05, 4.0, (60, 2)), rng.integers(5, 40, 60).astype(float)
    positive = rng.binomial(tested.astype(int), 0.3).astype(float)
    posterior = BoundaryGP(basis, Matern(1.5, lengthscale=4.0), "binomial").fit(xy, positive, trials=tested)
    answer = posterior.residuals(n_simulations=39)
    east = basis.domain.node_points[:, 0] > 7
    assert np.isnan(answer.at_nodes[east]).all() and np.isfinite(answer.at_nodes).any()
    assert len(answer.observed) == answer.square.max() + 1
    share = positive.sum() / tested.sum()
    assert answer.expected.sum() == pytest.approx(positive.sum(), rel=0.05)
    assert answer.variance.sum() == pytest.approx(tested.sum() * share * (1 - share), rel=0.1)
    axes = answer.plot()
    assert [ax.get_title(loc="left") for ax in axes][1] == "Pairs of sites"


def test_lurking_against_a_loop():
    domain = square()
    counts = draw(domain, np.full(domain.n_nodes, 2.0))
    found = known(domain, np.full(domain.n_nodes, 2.0), counts).residuals().lurking["easting"]
    mean = 2.0 * np.exp(0.5 * 0.01**2)
    for value, height in zip(found.at, found.observed, strict=True):
        mine = domain.node_points[:, 0] <= value
        assert height == pytest.approx(counts[mine].sum() - mean * mine.sum())
    assert len(found.at) == 10  # as many as there are columns


def test_a_true_map_is_rarely_blamed():
    domain = square(20.0)
    rate = np.exp(np.sin(domain.node_points[:, 0] / 3))
    blamed = [
        len(known(domain, rate, draw(domain, rate, seed)).residuals(rng=seed).unexplained()) for seed in range(40)
    ]
    # Three curves at 5 %: six of 120 on average.
    assert sum(blamed) <= 16
    found = known(domain, rate, draw(domain, rate)).residuals()
    assert found.dispersion_band[0] < 1 < found.dispersion_band[1]
    assert found.dispersion == pytest.approx(1.0, abs=0.4)
    assert found.observed.sum() == draw(domain, rate).sum()
    assert found.pearson.shape == found.observed.shape == (found.square.max() + 1,)


def test_clusters_are_seen():
    domain = square(30.0)
    rng = np.random.default_rng(2)
    centres = rng.integers(0, domain.n_nodes, 25)
    near = np.linalg.norm(domain.node_points[:, None] - domain.node_points[centres], axis=2) < 1.5
    counts = rng.poisson(1.5 * near.sum(axis=1))
    found = known(domain, np.full(domain.n_nodes, counts.mean()), counts).residuals()
    assert "pairs" in found.unexplained() and found.pairs.outside == 0.01
    assert found.pairs.observed[0] > 1.5 * found.pairs.high[0]
    assert found.dispersion > found.dispersion_band[1]


def test_a_trend_that_the_map_misses_is_seen():
    domain = square(20.0)
    rate = np.exp(0.1 * (domain.node_points[:, 1] - 10.0))
    found = known(domain, np.full(domain.n_nodes, rate.mean()), draw(domain, rate)).residuals()
    assert "northing" in found.unexplained() and "easting" not in found.unexplained()
    assert found.lurking["northing"].observed.min() < found.lurking["northing"].low.min()


def test_a_covariate_with_a_bent_effect_is_seen():
    domain = square(20.0)
    rng = np.random.default_rng(3)
    height = rng.uniform(-2.0, 2.0, domain.n_nodes)
    basis = HarmonicBasis.compute(domain, 40, cache=False)
    model = LGCP(basis, Matern(1.5, lengthscale=12.0, sd=0.5), covariates={"height": 100 + 10 * height})
    bent = model.fit(rng.poisson(np.exp(0.8 * height**2 - 0.5)).astype(float)).residuals()
    straight = model.fit(rng.poisson(np.exp(0.8 * height)).astype(float)).residuals()
    assert "height" in bent.unexplained() and "height" not in straight.unexplained()
    assert bent.lurking["height"].at.min() > 70


def test_a_real_fit_and_its_figure():
    found = fitted()[0].residuals()
    assert found.unexplained() == []
    axes = found.plot()
    assert [ax.get_title(loc="left") for ax in axes[1:]] == ["Pairs of events", "Along easting", "Along northing"]
    assert axes[1].get_xlabel() == "distance (km)"
    again = fitted()[0].residuals()
    np.testing.assert_array_equal(found.pairs.high, again.pairs.high)


def test_mistakes():
    posterior = fitted()[0]
    with pytest.raises(DataError, match="at least 39; found 10"):
        posterior.residuals(n_simulations=10)
    with pytest.raises(DataError, match="knows none"):
        dataclasses.replace(posterior, observed=None).residuals()


def area_fit(rate, sd=0.7, seed=0):
    """A fit of counts of 25 squares of 4 x 4 nodes whose rate is a function of easting and northing."""
    domain = Domain.from_polygons(box(0, 0, 20, 20), cell_size=1, crs="local")
    boxes = [box(a, b, a + 4, b + 4) for a in range(0, 20, 4) for b in range(0, 20, 4)]
    frame = gpd.GeoDataFrame({"name": [f"a{k}" for k in range(25)]}, geometry=boxes)
    shares = bin_areas(frame.assign(cases=0), domain, "cases").shares
    frame["cases"] = np.random.default_rng(seed).poisson(shares @ rate(*domain.node_points.T))
    model = LGCP(HarmonicBasis.compute(domain, 40, cache=False), Matern(1.5, lengthscale=7.0, sd=sd))
    return frame, model.fit(bin_areas(frame, domain, "cases"))


def test_residuals_of_areas_are_those_of_each_area():
    frame, posterior = area_fit(lambda x, y: np.exp(0.5 + np.sin(x / 4.0)))
    found = posterior.residuals()
    expected = posterior.totals(frame)["expected"].to_numpy()
    np.testing.assert_array_equal(found.observed, frame["cases"])
    np.testing.assert_allclose(found.expected, expected, rtol=1e-6)
    np.testing.assert_allclose(found.pearson, (frame["cases"] - expected) / np.sqrt(expected), rtol=1e-5)
    assert found.side is None and found.unexplained() == []
    x, y = posterior.domain.node_points.T
    np.testing.assert_allclose(found.at_nodes, found.pearson[(5 * (x // 4) + y // 4).astype(int)])
    assert found.plot()[0].get_title(loc="left") == "Residuals in areas"


def test_what_a_map_of_areas_misses_is_seen():
    _, stiff = area_fit(lambda x, y: 3.0 * np.exp(0.15 * x), sd=0.001)
    found = stiff.residuals()
    assert "easting" in found.unexplained() and "northing" not in found.unexplained()
    assert found.dispersion > found.dispersion_band[1]


def test_pairs_of_areas_against_a_loop():
    _, posterior = area_fit(lambda x, y: 1.0 + 0.1 * x)
    sample = AreaSample(posterior)
    simulated = pearson._of_areas(sample, 3, np.random.default_rng(0))
    found = pearson._pairs_of_areas(simulated)
    counts, expected, points = simulated.counts[0], simulated.expected, simulated.points
    sums = {0.0: [0.0, 0.0], 4.0: [0.0, 0.0]}
    for i in range(25):
        for j in range(25):
            apart = round(float(np.hypot(*(points[i] - points[j]))), 6)
            if apart in sums:
                sums[apart][0] += counts[i] * counts[j] - (counts[i] if i == j else 0.0)
                sums[apart][1] += expected[i] * expected[j]
    for ring, (apart, (pairs, base)) in enumerate(sums.items()):
        assert found.at[ring] == pytest.approx(apart) and found.observed[ring] == pytest.approx(pairs / base)


def risk_fit(log_odds, seed=0, n=1500, kernel=None):
    """A fit of cases and controls on a square whose log odds are a function of easting and age."""
    rng, domain = np.random.default_rng(seed), square(12.0)
    at, age = rng.uniform(0, 12, (n, 2)), rng.choice([-1.0, 0.0, 1.0], n)
    ill = rng.random(n) < expit(log_odds(at[:, 0], age))

    def persons(which):
        return Persons(bin_points(at[which], domain), domain.locate(at[which]), pd.DataFrame({"age": age[which]}))

    groups = Groups.of(persons(ill), persons(~ill))
    return groups, fit_risk(groups, FullRank(domain), kernel or Matern(1.0, lengthscale=4.0, sd=0.8))


def test_residuals_of_cases_among_persons():
    groups, posterior = risk_fit(lambda x, age: -1.0 + np.sin(x / 3) + 0.7 * age)
    found = posterior.residuals()
    assert found.observed.sum() == groups.cases.sum()
    assert found.expected.sum() == pytest.approx(groups.cases.sum(), rel=0.02)
    assert found.unexplained() == [] and found.dispersion < found.dispersion_band[1]
    # A case among persons varies less than a Poisson count of the same mean.
    assert (found.variance < found.expected).all() and (found.variance > 0.3 * found.expected).all()


def test_a_gradient_of_risk_that_the_map_misses_is_seen():
    _, stiff = risk_fit(lambda x, age: -2.0 + 0.25 * x, kernel=Matern(1.0, lengthscale=4.0, sd=0.001))
    assert "easting" in stiff.residuals().unexplained()


def test_every_period_has_residuals_of_its_own():
    posterior = outbreak.fitted(4)
    label = posterior.periods.labels[1]
    found = posterior.residuals(period=label)
    assert found.observed.sum() == posterior.observed[1].sum()
    every = posterior.residuals()
    assert tuple(every) == posterior.periods.labels
    np.testing.assert_array_equal(every[label].observed, found.observed)
