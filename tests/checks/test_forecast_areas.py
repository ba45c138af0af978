"""Forecasts of districts and periods against what came: as those of nodes, with what is suppressed or unknown."""

import geopandas as gpd
import numpy as np
import outbreak
import pytest
import shapely
from scipy.stats import poisson

from geobgp import LGCP, DataError, Matern, bin_areas
from geobgp.checks.scoring import poisson_log_p


def districts(y, side, periods, suppressed=None):
    """Return counts by square district and period of counts at the nodes."""
    land = outbreak.domain()
    corners = [(a, b) for a in np.arange(0.0, 12.0, side) for b in np.arange(0.0, 8.0, side)]
    x, north = land.node_points.T
    rows = []
    for k, (a, b) in enumerate(corners):
        inside = (x > a) & (x < a + side) & (north > b) & (north < b + side)
        for t, label in enumerate(periods.labels):
            rows.append((f"d{k}", label, float(y[t, inside].sum()), shapely.box(a, b, a + side, b + side)))
    table = gpd.GeoDataFrame(rows, columns=["name", "month", "cases", "geometry"])
    if suppressed is not None:
        table.loc[table["cases"].between(*suppressed), "cases"] = np.nan
    return table


def counted(table, **more):
    return bin_areas(table, outbreak.domain(), "cases", time="month", every="month", **more)


def fitted(counts, kernel=outbreak.KERNEL):
    return LGCP(outbreak.basis(), kernel, dynamics="separable").fit(counts, resume=False)


def test_areas_of_one_cell_are_forecast_as_nodes_are():
    y, periods = outbreak.counts(10), outbreak.months(10)
    cells = fitted(counted(districts(y, 1.0, periods)))
    nodes = LGCP(outbreak.basis(), outbreak.KERNEL, dynamics="separable").fit(y, periods=periods, resume=False)
    one, other = cells.cross_validate(last=2), nodes.cross_validate(1.0, last=2)
    assert len(one.table) == len(other.table) == 2 * 96 and one.what == "areas"
    assert one.score == pytest.approx(other.score, abs=0.03)
    assert one.coverage == pytest.approx(other.coverage, abs=0.06)
    for name in ("pooled", "naive"):
        assert one.table[name].sum() == pytest.approx(other.table[name].sum())
        assert one.gains[name] == pytest.approx(other.gains[name], abs=0.03)
    assert one.by_period()["observed"].tolist() == y[-2:].sum(axis=1).tolist()
    logs = [np.log(found.table["expected"].sort_values()) for found in (one, other)]
    assert np.corrcoef(*logs)[0, 1] > 0.99


def seasonal(seed, n_periods=30):
    """Draw counts of a truth that is not the model's: a slope, a saw-tooth season, a patch that comes and goes."""
    rng, land = np.random.default_rng(seed), outbreak.domain()
    x, north = land.node_points.T
    t = np.arange(n_periods)[:, None]
    patch = np.exp(-0.5 * ((x - rng.uniform(2, 10)) ** 2 + (north - rng.uniform(2, 6)) ** 2) / 3.0)
    wave = 1.0 + np.sin(2 * np.pi * (t / 9.0 + rng.random()))
    rate = (0.5 + 0.1 * x) * (1.0 + 0.08 * (t % 12)) * (1.0 + patch * wave)
    return rng.poisson(0.7 * rate).astype(float)


def test_forecasts_of_districts_are_calibrated():
    pits, pooled, naive, hidden = [], [], [], 0
    for seed in range(4):
        table = districts(seasonal(seed), 2.0, outbreak.months(30), (1, 3))
        found = fitted(counted(table, suppressed=(1, 3)), Matern(1.5)).cross_validate(last=3, rng=seed)
        assert len(found.table) == 3 * 24
        pits.append(found.table["pit"])
        pooled.append(found.gains["pooled"])
        naive.append(found.gains["naive"])
        hidden += found.n_suppressed
    pit = np.concatenate(pits)
    assert hidden > 10
    assert 0.84 <= np.mean((pit >= 0.05) & (pit <= 0.95)) <= 0.96
    # Rates hardly change here: the average of the past is as good a forecast, and a single period before is not.
    assert np.mean(naive) > 0.05 and abs(np.mean(pooled)) < 0.05


def test_an_outbreak_that_moves_is_forecast_better_than_by_the_past():
    found = fitted(counted(districts(outbreak.counts(30), 2.0, outbreak.months(30)))).cross_validate(last=2)
    assert found.gains["pooled"] > 0.1 and found.gains["naive"] > 0.1 and found.score > 0.1


@pytest.mark.parametrize("mean", [0.2, 3.0, 700.0])
def test_chances_are_those_of_poisson_counts(mean):
    for low, high in ((0, 0), (2, 2), (0, 3), (1, 4), (650, 720)):
        known = poisson.pmf(np.arange(low, high + 1), mean).sum()
        assert np.exp(poisson_log_p(low, high, mean)) == pytest.approx(known, abs=1e-12)
    assert poisson_log_p(5.0, 5.0, 5000.0) < -4000, "far off is far off, not as far as numbers go"


def test_what_is_suppressed_or_unknown_is_said():
    table = districts(outbreak.counts(12), 4.0, outbreak.months(12), (1, 12))
    gone = (table["month"] == table["month"].iloc[-1]) & (table["name"] == "d1")
    posterior = fitted(counted(table[~gone], suppressed=(1, 12), absent="unknown"))
    found = posterior.cross_validate(last=2)
    hidden = posterior.areas.hidden[-2:].sum()
    assert found.n_suppressed == hidden > 0 and found.n_unknown == 1 and len(found.table) == 11
    assert found.facts()["suppressed"] == hidden and found.facts()["unknown"] == 1
    assert "known only that they are 1 to 12" in found.verdict() and "1 is not known" in found.verdict()
    # All that a suppressed number may be, under the average of the past.
    row = found.table[found.table["observed"].isna()].iloc[0]
    seen = posterior.areas.guessed[:10, list(posterior.areas.names).index(row["block"])]
    everywhere = posterior.areas.guessed[:10].sum() / (10 * 96.0)
    mean = 16.0 * (seen.sum() + 1.0) / (160.0 + 1.0 / everywhere)
    assert np.exp(row["pooled"]) == pytest.approx(poisson.cdf(12, mean) - poisson.cdf(0, mean))
    assert found.by_period()["observed"].sum() == pytest.approx(posterior.areas.totals[-2:].sum())


def test_one_period_can_be_held_out_and_blocks_cannot_be_chosen():
    posterior = fitted(counted(districts(outbreak.counts(6), 4.0, outbreak.months(6))))
    assert np.isfinite(posterior.cross_validate(last=1).score)
    with pytest.raises(DataError, match="numbers of these areas"):
        posterior.cross_validate(4.0, last=1)
