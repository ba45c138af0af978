"""Forecasts against what came: calibrated on simulated periods, ahead of what is simpler."""

import dataclasses

import numpy as np
import outbreak
import pandas as pd
import pytest
from scipy.special import expit
from scipy.stats import norm

from geobgp import LGCP, BoundaryGP, DataError, Matern, Periods
from geobgp.checks.forecasts import ForecastCheck
from geobgp.data.persons import Groups, Persons
from geobgp.model import RiskModel


def simulated(seed, n_periods=24, level=0.3):
    """Draw counts from the model itself: patches of an AR(1), and a level."""
    rng, basis = np.random.default_rng(seed), outbreak.basis()
    scale = np.sqrt(Matern(1.5, 4.0, 0.8).spectral_density(np.sqrt(basis.eigenvalues)))
    a, b = np.exp(-1 / 8.0), np.exp(-1 / 10.0)
    z, common, rows = rng.standard_normal(basis.m), rng.normal(), []
    for _ in range(n_periods):
        rows.append(1.0 + basis.features @ (scale * z) + level * common)
        z = a * z + np.sqrt(1 - a**2) * rng.standard_normal(basis.m)
        common = b * common + np.sqrt(1 - b**2) * rng.normal()
    return basis, rng.poisson(np.exp(rows)).astype(float)


def test_forecasts_of_the_model_itself_are_calibrated_and_ahead():
    pits, pooled, naive = [], [], []
    for seed in range(5):
        basis, y = simulated(seed)
        posterior = LGCP(basis, dynamics="separable").fit(y, resume=False)
        found = posterior.cross_validate(3.0, last=3, rng=seed)
        pits.append(found.table["pit"])
        pooled.append(found.gains["pooled"])
        naive.append(found.gains["naive"])
    pit = np.concatenate(pits)
    assert 0.82 <= np.mean((pit >= 0.05) & (pit <= 0.95)) <= 0.97
    assert np.mean(pooled) > 0 and np.mean(naive) > 0


def test_the_table_says_what_came():
    posterior = outbreak.fitted(30)
    found = posterior.cross_validate(4.0, last=2)
    assert found.table["period"].unique().tolist() == ["2012-05", "2012-06"]
    assert found.by_period()["observed"].tolist() == posterior.observed[-2:].sum(axis=1).tolist()
    assert found.score > 0 and 0.0 <= found.coverage <= 1.0 and found.coverage_band[0] < 0.9
    assert "2 periods held out" in found.verdict() and found.facts()["periods_left_out"] == 2
    # One season before the last month is a month of the year before.
    seen = posterior.observed[29 - 12].sum()
    assert seen > 0 and found.seconds > 0 and "ForecastCheck(2 periods" in repr(found)


def test_what_is_left_out_is_not_seen():
    y = outbreak.counts(20)
    model = LGCP(outbreak.basis(), outbreak.KERNEL, dynamics="separable")
    periods = outbreak.months(20)
    first = model.fit(y, periods=periods, resume=False).cross_validate(4.0, last=3)
    y[-3:] = 7.0 * y[-3:]
    other = model.fit(y, periods=periods, resume=False).cross_validate(4.0, last=3)
    # Only the time's hyperparameters have seen the last periods.
    assert other.table["observed"].sum() == 7 * first.table["observed"].sum()
    ratio = other.table["expected"].sum() / first.table["expected"].sum()
    assert 0.5 < ratio < 2.0 and other.coverage < first.coverage


def places_of(kind, seed=0, n_periods=6, each=70):
    """Return a fit over periods of what was observed at places: a wave in the east-west direction that stays."""
    rng, basis = np.random.default_rng(seed), outbreak.basis()
    west, south, east, north = basis.domain.grid.bounds
    xy = rng.uniform((west, south), (east, north), (6 * each * n_periods, 2))
    xy = xy[basis.domain.node_at(xy) >= 0][: each * n_periods]
    period, f = np.repeat(np.arange(n_periods), each), 1.2 * np.sin(6.3 * (xy[:, 0] - west) / (east - west))
    periods, kernel = Periods.between(np.arange(n_periods + 1.0)), Matern(1.5, 4.0)
    if kind == "persons":
        cases = rng.random(len(xy)) < expit(2.0 * f)
        node, none = basis.domain.node_at(xy), pd.DataFrame(index=range(len(xy)))
        some = [Persons(None, node[w], none[w].reset_index(drop=True), period=period[w]) for w in (cases, ~cases)]
        how = {"periods": periods, "dynamics": "separable", "resume": False}
        return RiskModel(basis, kernel).fit(Groups.of(*some), **how)
    how = {"periods": periods, "period_of": period, "dynamics": "separable", "resume": False}
    if kind == "surveys":
        tested = rng.integers(5, 30, len(xy)).astype(float)
        positive = rng.binomial(tested.astype(int), expit(f - 1.0)).astype(float)
        return BoundaryGP(basis, kernel, "binomial").fit(xy, positive, trials=tested, **how)
    values = np.exp(f + 0.3 * rng.normal(size=len(xy)))
    return BoundaryGP(basis, kernel, transform="log").fit(xy, values, **how)


@pytest.mark.parametrize("kind", ["persons", "surveys", "values"])
def test_what_was_observed_at_places_is_forecast(kind):
    posterior = places_of(kind)
    answer = posterior.cross_validate(last=3)
    band = answer.coverage_band
    assert band[0] - 0.03 <= answer.coverage <= 1.0 and answer.gains["one_rate"] > 0.05 and answer.gains["naive"] > 0
    assert answer.fine and answer.score == pytest.approx(answer.gains["one_rate"])
    table, rows = answer.table, answer.by_period()
    assert answer.event == ("case" if kind == "persons" else "site") and f"per {answer.event}" in answer.verdict()
    if kind == "persons":
        assert (
            table["persons"].sum() == 210
            and table["observed"].sum() == posterior.persons.cases[posterior.persons.period >= 3].sum()
        )
    else:
        late = posterior.sites.period >= 3
        assert table["sites"].sum() == 210
        total = (rows["observed"] * 70).sum() if kind == "values" else rows["observed"].sum()
        assert total == pytest.approx(posterior.sites.values[late].sum())
    if kind == "values":  # one level everywhere is that of independent values of one mean and spread
        z, early = np.log(posterior.sites.values), posterior.sites.period < 3
        alone = norm.logpdf(z[late], z[early].mean(), z[early].std()) - z[late]
        assert answer.table["one_rate"].sum() == pytest.approx(alone.sum())


def test_a_forecast_of_places_has_not_seen_what_it_is_compared_with():
    posterior = places_of("values")
    late = posterior.sites.period >= 4
    sites = dataclasses.replace(posterior.sites, values=np.where(late, 10.0, 1.0) * posterior.sites.values)
    before, after = (p.cross_validate(last=2) for p in (posterior, dataclasses.replace(posterior, sites=sites)))
    np.testing.assert_allclose(after.table["expected"], before.table["expected"], rtol=1e-3)
    assert after.coverage < 0.2 < before.coverage


def test_mistakes_are_told():
    posterior = outbreak.fitted(4)
    with pytest.raises(DataError, match="how many of 4 periods are held out"):
        posterior.cross_validate(last=3)
    with pytest.raises(DataError, match="knows none of it"):
        posterior.forecast(4).cross_validate(last=1)


def test_words_follow_from_the_sign_and_nothing_is_fine_that_one_rate_beats():
    table = pd.DataFrame({
        "period": ["a"] * 10, "observed": 10.0, "expected": 10.0, "pit": np.linspace(0.05, 0.95, 10),
        "log_score": -3.0, "pooled": -2.5, "naive": -4.0, "one_rate": -2.0,
    })  # fmt: skip
    found = ForecastCheck(table, pd.DataFrame({"observed": [100.0], "score": [1.0]}), 0.0)
    assert not found.fine and found.facts()["fine"] is False
    told = found.verdict()
    assert "0.05 nats per event below the average of the past and 0.1 nats per event above the numbers" in told
    assert "One rate everywhere and always predicts better, by 0.1 nats per event." in told
    better = dataclasses.replace(found, table=table.assign(one_rate=-5.0))
    assert better.fine and "One rate" not in better.verdict()
