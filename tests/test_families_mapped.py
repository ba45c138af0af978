"""Whatever was observed, a posterior is asked the same: every number agrees with a loop over joint draws."""

import geopandas as gpd
import numpy as np
import pytest
import shapely

from geobgp import LGCP, BoundaryGP, DataError, Domain, FullRank, HarmonicBasis, Matern, Posterior
from geobgp.inference.links import EXP

HALVES = gpd.GeoDataFrame(
    {"name": ["west", "east"]}, geometry=[shapely.box(0, 0, 4.5, 10), shapely.box(4.5, 0, 10, 10)]
)
N = 4000


def _fitted(kind: str) -> Posterior:
    rng = np.random.default_rng(0)
    domain = Domain.from_polygons(shapely.box(0, 0, 10, 10), cell_size=1, crs="local")
    basis, kernel = HarmonicBasis.compute(domain, m=24, cache=False), Matern(1.5, 5.0, 0.8)
    east = domain.node_points[:, 0]
    if kind in ("area", "population"):
        people = None if kind == "area" else 40.0 + 10.0 * east
        counts = rng.poisson(np.exp(0.2 * east - 0.5))
        return LGCP(basis, kernel, exposure=people).fit(counts)
    if kind == "integrated":
        return LGCP(FullRank(domain), Matern(1.0)).fit(rng.poisson(np.exp(0.2 * east)), hyper="integrate")
    places = 10.0 * rng.random((120, 2))
    slope = 0.5 * (places[:, 0] - 5.0)
    if kind == "gaussian":
        return BoundaryGP(basis, kernel, noise=0.3).fit(places, slope - 3.0 + 0.3 * rng.normal(size=120))
    if kind == "poisson":
        return BoundaryGP(basis, kernel, likelihood="poisson").fit(places, rng.poisson(np.exp(slope)))
    chance = 1.0 / (1.0 + np.exp(-slope))
    return BoundaryGP(basis, kernel, likelihood="bernoulli", link=kind).fit(places, rng.random(120) < chance)


KINDS = ["area", "population", "integrated", "gaussian", "poisson", "probit", "logit"]
QUANTITIES = {
    "area": ("intensity", "events per unit area", "mean"),
    "population": ("intensity", "events per unit of exposure", "median"),
    "integrated": ("intensity", "events per unit area", "mean"),
    "gaussian": ("value", "unit of the values", "mean"),
    "poisson": ("intensity", "events per observation", "mean"),
    "probit": ("probability", "probability", "mean"),
    "logit": ("probability", "probability", "mean"),
}


@pytest.fixture(scope="module", params=KINDS)
def case(request):
    posterior = _fitted(request.param)
    eta = np.concatenate(list(posterior.draws(N, 1)))
    return request.param, posterior, posterior.link.inverse(eta)


def close(value, draws, axis=0):
    """Whether an exact mean lies within five standard errors of that of draws."""
    error = draws.std(axis=axis) / np.sqrt(draws.shape[axis])
    return np.all(np.abs(value - draws.mean(axis=axis)) <= 5.0 * error + 1e-12)


def test_what_is_mapped_has_a_name_a_unit_and_a_statistic(case):
    kind, posterior, _ = case
    assert (posterior.quantity, posterior.units, posterior.drawn) == QUANTITIES[kind]
    data = posterior.dataset()
    assert next(iter(data.data_vars)) == ("q50" if posterior.drawn == "median" else "mean")
    assert data["mean"].attrs["units"] == posterior.units and "coverage" in data
    assert posterior.quantity.capitalize() in posterior.provenance["title"]
    assert posterior.units in str(posterior.summary())


def test_nodes_against_draws(case):
    _, posterior, values = case
    table = posterior.node_intensity()
    assert close(table["mean"].to_numpy(), values)
    np.testing.assert_allclose(table["sd"], values.std(axis=0), rtol=0.15, atol=1e-3)
    for q, name in ((0.05, "q05"), (0.5, "q50"), (0.95, "q95")):
        below = (values <= table[name].to_numpy()).mean(axis=0)
        np.testing.assert_allclose(below, q, atol=5.0 * np.sqrt(q * (1 - q) / N))
    np.testing.assert_array_equal(posterior.intensity()["mean"], posterior.domain.to_grid(table["mean"]))


def test_exceedance_against_draws(case):
    _, posterior, values = case
    for threshold in np.quantile(values, [0.2, 0.8]):
        chance = posterior.exceedance(float(threshold)).values.ravel()
        above = posterior.domain.to_grid((values > threshold).mean(axis=0)).ravel()
        np.testing.assert_allclose(chance, above, atol=5.0 * 0.5 / np.sqrt(N))
    lowest = max(posterior.link.lowest, -1e9)
    if posterior.quantity in ("prevalence", "probability"):
        with pytest.raises(DataError, match="between 0 and 1; found 0"):
            posterior.exceedance(lowest)
        lowest = 1e-300
    assert float(posterior.exceedance(lowest).min()) == 1.0


def test_samples_are_those_draws(case):
    _, posterior, values = case
    np.testing.assert_allclose(posterior.sample(N, 1).values, values, rtol=1e-12)
    assert posterior.sample(2, 0).attrs["units"] == posterior.units


def test_places_have_the_numbers_of_their_node(case):
    _, posterior, _ = case
    table = posterior.values_at([[2.5, 3.5], [20.0, 0.0]])
    node = posterior.domain.locate([[2.5, 3.5]])[0]
    np.testing.assert_allclose(table.iloc[0], posterior.node_intensity().iloc[node], rtol=1e-9)
    assert table.iloc[1].isna().all()
    np.testing.assert_allclose(posterior.intensity_at([[2.5, 3.5]]), table.iloc[:1], rtol=1e-12)


def test_regions_against_draws(case):
    kind, posterior, values = case
    table = posterior.totals(HALVES, n_samples=N, rng=1)
    part = np.clip(4.5 - (posterior.domain.node_points[:, 0] - 0.5), 0.0, 1.0)
    counted = kind in ("area", "population", "integrated")
    people = posterior.exposure if counted else posterior.domain.node_areas
    for row, share in enumerate((part, 1.0 - part)):
        each = []
        for draw in values:
            total = 0.0
            for node in range(len(draw)):
                total += share[node] * people[node] * draw[node]
            each.append(total if counted else total / (share @ people))
        each = np.array(each)
        main = table["expected" if counted else "mean"].iloc[row]
        assert close(main, each)
        np.testing.assert_allclose(table["sd"].iloc[row], each.std(ddof=1), rtol=1e-9)
        np.testing.assert_allclose(table["q95"].iloc[row], np.quantile(each, 0.95), rtol=1e-9)
    if not counted:
        land = posterior.domain.node_areas
        overall = land @ posterior.node_intensity()["mean"].to_numpy() / land.sum()
        assert posterior.overall == pytest.approx(overall)
        assert "observed" not in table
        with pytest.raises(DataError, match="Numbers of events are predicted"):
            posterior.totals(HALVES, predicted=True)


def test_excursions_against_draws(case):
    _, posterior, _ = case
    threshold = float(np.quantile(posterior.node_intensity()["mean"], 0.6))
    found = posterior.excursion(threshold, 0.9, n_samples=1000, rng=3)
    fresh = np.concatenate(list(posterior.sample_blocks(4000, 9))) * posterior.shown.factor
    for where, beyond in ((found.above, fresh > threshold), (found.below, fresh < threshold)):
        if where.any():
            assert beyond[:, where].all(axis=1).mean() > 0.87


def test_files_give_back_what_is_mapped(case, tmp_path):
    _, posterior, _ = case
    again = Posterior.load(posterior.save(tmp_path / "fit"))
    assert (again.quantity, again.units) == (posterior.quantity, posterior.units)
    np.testing.assert_array_equal(again.node_intensity(), posterior.node_intensity())
    assert len(posterior.to_raster(tmp_path / "rasters", [posterior.overall])) == 7


def test_values_have_their_unit_and_shares_have_none():
    soil = _fitted("gaussian").in_units("mg/kg")
    assert soil.units == "mg/kg" and soil.default_title == "Value in mg/kg"
    assert soil.exceedance(1.0).attrs["long_name"] == "probability of more than 1 mg/kg"
    with pytest.raises(DataError, match="from 0 to 1, which has no other unit"):
        _fitted("logit").in_units("per 1,000")


def test_statistics_are_worked_out_once(monkeypatch):
    posterior, calls = _fitted("area"), []
    quantile = type(EXP).quantile
    monkeypatch.setattr(type(EXP), "quantile", lambda *args: calls.append(args[-1]) or quantile(*args))
    posterior.dataset(thresholds=[1.0, 2.0, 3.0])
    posterior.intensity()
    assert sorted(calls) == [0.05, 0.5, 0.95]


def test_odds_and_values_have_coefficients():
    assert "rate_ratio" in _fitted("area").coefficients and "odds_ratio" in _fitted("logit").coefficients
    assert not any("ratio" in name for name in _fitted("gaussian").coefficients)
