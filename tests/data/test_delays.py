"""Events that are reported late: the delay distribution, the nowcast that follows from it, and what is refused."""

import datetime
import re
import warnings
import zipfile
from dataclasses import replace

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest
import rasterio
import shapely
import xarray as xr

from geobgp import (
    LGCP,
    Domain,
    HarmonicBasis,
    Matern,
    Periods,
    Posterior,
    bin_points,
    map_intensity,
    map_prevalence,
    map_risk,
    map_strata,
    map_values,
)
from geobgp.auto.options import Options
from geobgp.cli.app import main
from geobgp.data.delays import Delays, product_limit, read_reports
from geobgp.data.inputs import Inputs
from geobgp.errors import DataError, InputWarning
from geobgp.inference.chain_fit import fit_chain, node_chain, setting_of

SIZE, WEEKS = 12.0, 14
START = np.datetime64("2020-01-06")  # a Monday
DAY = np.timedelta64(1, "D")
LAST = START + (7 * WEEKS - 1) * DAY
LAND = shapely.box(0, 0, SIZE, SIZE)
HALVES = [shapely.box(0, 0, 6, SIZE), shapely.box(6, 0, SIZE, SIZE)]
HOW = {
    "crs": "local", "time": "onset", "every": "week", "cell_size": 2.0, "m": 16, "permeability": 0, "cache": False,
    "dynamics": "separable", "kernel": Matern(1.5, lengthscale=6.0, sd=0.5),
}  # fmt: skip


def outbreak(seed=0, mean=9.0, n=60, growth=1.15, by_half=None):
    """Return events of growing numbers with delays in days, and where they lie."""
    rng = np.random.default_rng(seed)
    day = np.concatenate([7 * t + rng.integers(0, 7, rng.poisson(n * growth ** (t - WEEKS + 1))) for t in range(WEEKS)])
    at = rng.uniform(0, SIZE, (len(day), 2))
    means = np.full(len(day), mean) if by_half is None else np.where(at[:, 0] < 6, *by_half)
    delay = rng.geometric(1 / (means + 1)) - 1
    return pd.DataFrame(
        {"easting": at[:, 0], "northing": at[:, 1], "onset": START + day, "reported": START + day + delay}
    ).assign(half=np.where(at[:, 0] < 6, "west", "east"))


def mapped(table, **more):
    return map_intensity(table, LAND, **HOW, **more)


@pytest.fixture(scope="module")
def table():
    return outbreak()


@pytest.fixture(scope="module")
def nowcast(table):
    return mapped(table, reported="reported", as_of=str(LAST))


def same_map(one, other):
    assert np.array_equal(one._nodes.mu, other._nodes.mu)
    assert np.array_equal(one._nodes.var, other._nodes.var)


# -- The distribution ---------------------------------------------------------------------------------------------


def loop_product_limit(delay, limit):
    """Return shares and what each day adds to the variance of their logarithms, by loops over days and events."""
    longest = max(limit)
    while sum(d <= longest <= c for d, c in zip(delay, limit, strict=True)) < 20:
        longest -= 1  # too few could have shown such a delay
    share, variance = np.ones(longest + 1), np.zeros(longest + 1)
    for day in range(longest, 0, -1):
        exact = sum(d == day for d in delay)
        at_risk = sum(d <= day <= c for d, c in zip(delay, limit, strict=True))
        hazard = exact / (at_risk + 0.5)
        share[day - 1] = share[day] * (1 - hazard)
        variance[day] = hazard / (1 - hazard) / max(at_risk, 1)
    return share, variance


def test_equals_a_reference_written_as_loops():
    rng = np.random.default_rng(3)
    limit = rng.integers(0, 25, 300)
    delay = rng.poisson(5, 300)
    limit, delay = (part[delay <= limit] for part in (limit, delay))
    curve = product_limit(delay, limit)
    share, variance = loop_product_limit(delay.tolist(), limit.tolist())
    assert np.allclose(curve.share, share, rtol=1e-12)
    assert np.allclose(curve.variance, variance, rtol=1e-12)
    doubled = product_limit(delay, limit, np.full(len(delay), 2.0))
    repeated = product_limit(np.repeat(delay, 2), np.repeat(limit, 2))
    assert np.allclose(doubled.share, repeated.share, rtol=1e-12)


@pytest.mark.parametrize("growth", [-0.03, 0.06])
def test_recovers_the_distribution_that_truncation_hides(growth):
    rng = np.random.default_rng(4)
    shares, days, p = [], np.arange(120), 1 / 11
    for _ in range(40):
        happened = np.repeat(days, rng.poisson(15 * np.exp(growth * (days - 60))))
        delay = rng.geometric(p, len(happened)) - 1
        limit = days[-1] - happened
        known = delay <= limit
        curve = product_limit(delay[known], limit[known])
        shares.append((curve.share[:40], curve.log_sd[:40], np.mean(delay[known] <= 10)))
    truth = 1 - (1 - p) ** (days[:40] + 1)
    found = np.array([share for share, _, _ in shares])
    assert np.allclose(found.mean(axis=0), truth, atol=0.012)
    if growth > 0:  # what is known by now has short delays
        assert np.mean([naive for _, _, naive in shares]) > truth[10] + 0.05
    spread, told = np.log(found).std(axis=0, ddof=1), np.mean([sd**2 for _, sd, _ in shares], axis=0) ** 0.5
    for day in (2, 7, 14, 25):
        assert spread[day] == pytest.approx(told[day], rel=0.4)


def test_curve_answers():
    curve = product_limit(np.repeat([0, 2, 5], [50, 30, 20]), np.full(100, 9))
    assert curve.quantile(0.6) == 2
    assert curve.quantile(0.95) == 5
    assert curve.within(np.array([-1, 9, 500])).tolist() == [0.0, 1.0, 1.0]
    assert curve.mean == pytest.approx(0.3 * 2 + 0.2 * 5, abs=0.03)
    low, high = curve.interval()
    assert (low <= curve.share).all()
    assert (high >= curve.share).all()


# -- What is known of each period ---------------------------------------------------------------------------------


def test_share_of_a_period_is_the_mean_over_its_days(table):
    reports = read_reports(table, time="onset", reported="reported", as_of=str(LAST))
    weeks = Periods.calendar("week", str(START), str(LAST))
    delays = reports.over(weeks)
    known = table[table["reported"] <= LAST]
    day = ((known["onset"].to_numpy() - START) / np.timedelta64(1, "D")).astype(int)
    took = ((known["reported"] - known["onset"]) / np.timedelta64(1, "D")).to_numpy().astype(int)
    now = 7 * WEEKS - 1
    share, variance = loop_product_limit(took.tolist(), (now - day).tolist())
    usual = np.bincount(day % 7, minlength=7) / len(day)
    log_share, weights = np.zeros(WEEKS), np.zeros((WEEKS, len(share)))
    for week in range(WEEKS):
        ages = [now - 7 * week - d for d in range(7)]
        terms = [u * (share[a] if a < len(share) else 1.0) for u, a in zip(usual, ages, strict=True)]
        log_share[week] = np.log(sum(terms))
        for k in range(len(share)):
            weights[week, k] = sum(terms[d] for d in range(7) if now - 7 * week - d < k) / sum(terms)
    assert np.allclose(delays.share[0], np.exp(log_share), rtol=1e-10)
    covariance = reports.excess * (weights * variance) @ weights.T
    found = delays.root[0] @ delays.root[0].T
    assert np.allclose(found, covariance, atol=3e-6)
    assert delays.incomplete.tolist() == (np.exp(log_share) < 0.99).tolist()


def test_delays_in_whole_weeks_shift_by_weeks():
    weeks = [f"2020-W{k:02d}" for k in range(2, 16)]
    lags = ((0, 50), (1, 30), (2, 20))
    rows = [(w, weeks[k + lag], n) for k, w in enumerate(weeks) for lag, n in lags if k + lag < len(weeks)]
    table = pd.DataFrame(rows, columns=["onset", "reported", "n"])
    reports = read_reports(table, time="onset", reported="reported", every="week", weight=table["n"].to_numpy())
    delays = reports.over(Periods.calendar("week", weeks[0], weeks[-1]))
    assert reports.as_of == "2020-04-12"  # the Sunday of the last week
    assert delays.share[0, -3:] == pytest.approx([1.0, 0.8, 0.5], abs=0.001)
    assert delays.share[0, :-2].min() == 1.0
    assert sorted(set(reports.delay.tolist())) == [0, 7, 14]
    earlier = read_reports(table, time="onset", reported="reported", as_of="2020-04-08", weight=table["n"].to_numpy())
    assert earlier.between[1] == "2020-04-02"  # the last week is not over
    assert "2020-W15" not in set(earlier.table["reported"])


def test_excess_of_delays_that_vary_more_than_chance():
    rng = np.random.default_rng(2)
    day = np.repeat(np.arange(200), 20)
    plain = rng.geometric(0.08, len(day)) - 1
    weekly = np.repeat(np.exp(rng.normal(0, 0.6, 29)), 7)[:200]
    wild = rng.geometric(np.clip(0.08 * weekly[day], 0.01, 0.9)) - 1
    excess = []
    for delay in (plain, wild):
        rows = pd.DataFrame({"onset": START + day, "reported": START + day + delay})
        excess.append(read_reports(rows, time="onset", reported="reported", as_of=str(START + 199 * DAY)).excess)
    assert excess[0] < 1.4
    assert excess[1] > 2.5


# -- Laws of the map ----------------------------------------------------------------------------------------------


def test_no_delays_are_exactly_the_map_without_reports(table):
    prompt = table.assign(reported=table["onset"])
    one, other = mapped(prompt), mapped(prompt, reported="reported")
    same_map(one, other)
    assert other.elbo == one.elbo
    assert other.effort is None
    assert not other.nowcast.any()
    assert "final" not in other.level()


def test_known_shares_are_the_same_as_effort(table):
    domain = Domain.from_polygons(LAND, cell_size=2, crs="local")
    basis = HarmonicBasis.compute(domain, m=9, cache=False)
    counts = bin_points(table, domain, time="onset", every="week", between=(str(START), str(LAST)))
    share = np.linspace(1.0, 0.2, WEEKS)
    sure = Delays(str(LAST), counts.periods.labels, share[None], np.zeros((1, WEEKS, 0)), ())
    kernel = HOW["kernel"]
    one = LGCP.from_inputs(basis, Inputs.read(domain).reported(sure), kernel, dynamics="separable").fit(counts)
    effort = np.repeat(share[:, None], domain.n_nodes, axis=1)
    other = LGCP(basis, kernel, effort=effort, dynamics="separable").fit(counts)
    same_map(one, other)
    unsure = replace(sure, root=np.where(share < 0.5, 0.3, 0.0)[None, :, None])
    wide = LGCP.from_inputs(basis, Inputs.read(domain).reported(unsure), kernel, dynamics="separable").fit(counts)
    sds = [p._nodes.var.reshape(WEEKS, -1).mean(axis=1) ** 0.5 for p in (one, wide)]
    assert sds[1][-1] > 1.1 * sds[0][-1]
    assert sds[1][0] == pytest.approx(sds[0][0], rel=0.05)


def test_reporting_columns_are_effects_that_maps_leave_out():
    """They are solved as covariates with a prior sd of one are, and taken out of the linear predictor."""
    domain = Domain.from_polygons(LAND, cell_size=3, crs="local")
    basis = HarmonicBasis.compute(domain, m=12, cache=False)
    rng, n = np.random.default_rng(0), domain.n_nodes
    counts = rng.poisson(3.0, (5, n)).astype(float)
    kernel, ones = Matern(1.5, lengthscale=12.0, sd=0.5), np.ones((n, 1))
    told = np.zeros((5, 2))
    told[-1], told[-2] = (0.3, 0.1), (0.2, 0.0)
    steps = np.ones(4)
    columns = np.concatenate([np.broadcast_to(ones, (5, n, 1)), np.broadcast_to(told[:, None], (5, n, 2))], axis=2)
    theirs = setting_of(basis, kernel, "natural", columns, 1.0, steps, None, np.array([10.0, 1.0, 1.0]))
    problems = [node_chain(theirs, counts, np.ones((5, n)))]
    for reporting in (told, np.broadcast_to(told[:, None], (5, n, 2))):
        ours = setting_of(basis, kernel, "natural", ones, 1.0, steps, None, np.array([10.0]), reporting)
        problems.append(node_chain(ours, counts, np.ones((5, n))))
    held = {"tau": 3.0, "level_sd": 0.3, "level_tau": 3.0}
    fits = [fit_chain(p, dynamics="separable", held=held, resume=False).fit for p in problems]
    reference = fits[0].states[0]
    for fit, reporting in zip(fits[1:], (told, np.broadcast_to(told[:, None], (5, n, 2))), strict=True):
        state = fit.states[0]
        assert fit.elbo == pytest.approx(fits[0].elbo, abs=1e-6)
        for one, other in zip(state.seen_through(reporting).node_moments(), reference.node_moments(), strict=True):
            assert np.allclose(one, other, atol=1e-7)
        gone = reference.node_moments()[0] - (told @ reference.beta[1:])[:, None]
        assert np.allclose(state.node_moments()[0], gone, atol=1e-7)
        assert len(state.coefficients()[0]) == 1
        at = state.at(4).node_moments()
        assert np.allclose(at[0], state.node_moments()[0][4], atol=1e-7)
        assert np.allclose(at[1], state.node_moments()[1][4], atol=1e-7)
        draws, coefficients = state.sample_joint(2000, np.random.default_rng(1))
        assert coefficients.shape == (2000, 1)
        assert np.allclose(draws[:, 4].std(axis=0), at[1] ** 0.5, rtol=0.12)
        assert state.ahead(2).node_moments()[0].shape == (2, n)


def test_a_day_in_the_past_equals_deleting_later_reports(table, nowcast):
    by_hand = mapped(table[table["reported"] <= LAST], reported="reported", as_of=str(LAST))
    same_map(by_hand, nowcast)
    assert by_hand.level().equals(nowcast.level())
    n_later = int((table["reported"] > LAST).sum())
    assert nowcast.delays.numbers == {"later": n_later}
    assert f"{n_later} events" in nowcast.summary()["delays"]


def test_what_is_not_reported_yet_is_expected(table, nowcast):
    level = nowcast.level().set_index("period")
    truth = bin_points(table, nowcast.domain, time="onset", every="week", between=(str(START), str(LAST))).totals
    late = nowcast.nowcast
    assert late[-1]
    assert not late[:4].any()
    assert level["nowcast"].tolist() == late.tolist()
    assert ((level["final_q05"] <= truth) & (truth <= level["final_q95"])).mean() >= 0.85
    assert level["observed"].iloc[-1] < 0.7 * truth[-1]
    assert level["final"].iloc[-1] == pytest.approx(truth[-1], rel=0.25)
    assert level["reported"].iloc[-1] == pytest.approx(level["observed"].iloc[-1], rel=0.15)
    assert (level["final"] >= level["observed"]).all()


def test_totals_of_regions_add_up_to_the_land(nowcast):
    regions, land = nowcast.totals(HALVES), nowcast.level()
    sums = regions.groupby("period", sort=False)[["observed", "expected", "reported", "final"]].sum()
    for name in sums:
        assert np.allclose(sums[name], land[name], rtol=1e-9), name
    assert regions["nowcast"].tolist() == np.repeat(nowcast.nowcast, 2).tolist()
    one = nowcast.at(-1).totals(HALVES)
    assert one["nowcast"].tolist() == [True, True]
    assert one["expected"].to_numpy() == pytest.approx(regions["expected"].iloc[-2:].to_numpy())


def test_uncertain_delays_reach_the_numbers_in_the_end(nowcast):
    """What is still to come is the difference of two sums that share the draws of the field."""
    certain = replace(nowcast.delays, root=np.zeros_like(nowcast.delays.root))
    told = nowcast.as_reported._nodes
    assert not np.array_equal(told.mu, nowcast._nodes.mu)
    assert nowcast.at(-1).as_reported.delays is not None
    widths = []
    for delays in (nowcast.delays, replace(nowcast.delays, root=nowcast.delays.root * 4), certain):
        counts = nowcast.observed
        inputs = Inputs.read(nowcast.domain).reported(delays)
        model = LGCP.from_inputs(nowcast.basis, inputs, HOW["kernel"], dynamics="separable")
        level = model.fit(counts, periods=nowcast.periods).level()
        widths.append(level["final_q95"].iloc[-1] - level["final_q05"].iloc[-1])
    assert widths[1] > 1.2 * widths[2]
    assert widths[0] >= 0.9 * widths[2]


def test_is_saved_and_read_again(nowcast, tmp_path):
    again = Posterior.load(nowcast.save(tmp_path / "map.geobgp"))
    assert again.level().equals(nowcast.level())
    assert again.delays.words() == nowcast.delays.words()
    assert again.nowcast.tolist() == nowcast.nowcast.tolist()
    last = Posterior.load(nowcast.at(-1).save(tmp_path / "last.geobgp"))
    assert last.nowcast.tolist() == [True]


def test_forecasts_are_of_all_events(nowcast, tmp_path):
    ahead = nowcast.forecast(2)
    assert ahead.effort is None
    assert not ahead.nowcast.any()
    nowcast.to_report(tmp_path / "report.html", forecast=ahead, checks=False)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "2020-W15 (nowcast)" in page
    assert "2020-W16 (forecast)" in page
    nowcast.to_map(tmp_path / "map.html", forecast=ahead)
    assert "(forecast)" in (tmp_path / "map.html").read_text(encoding="utf-8")
    nowcast.to_raster(tmp_path / "rasters", forecast=ahead)
    with rasterio.open(tmp_path / "rasters" / "q50_2020-W15.tif") as last:
        assert last.tags()["nowcast"] == "true"
    with rasterio.open(tmp_path / "rasters" / "q50_2020-W16.tif") as later:
        assert "nowcast" not in later.tags()
    level = ahead.level()
    assert level["predicted_q95"].iloc[0] > nowcast.level()["final"].iloc[-1] * 0.5


def test_earlier_weeks_forecast_later_ones(nowcast):
    checked = nowcast.cross_validate(last=2)
    assert np.isfinite(checked.score)


def test_effort_and_delays_multiply(table):
    west = gpd.GeoDataFrame({"effort": [0.5, 1.0]}, geometry=HALVES)
    posterior = mapped(table, reported="reported", as_of=str(LAST), effort=west, effort_column="effort")
    assert posterior.effort[-1].max() == pytest.approx(posterior.delays.share[0, -1])
    assert posterior.effort[-1].min() == pytest.approx(0.5 * posterior.delays.share[0, -1])
    assert posterior.final_effort[-1].min() == pytest.approx(0.5)
    assert posterior.final_effort[-1].max() == pytest.approx(1.0)
    assert posterior.forecast(1).effort.min() == pytest.approx(0.5)


# -- Groups, areas ------------------------------------------------------------------------------------------------


def test_groups_have_delays_of_their_own():
    table = outbreak(5, by_half=(3.0, 20.0), n=120)
    posterior = mapped(table, reported="reported", as_of=str(LAST), delay_by="half")
    delays = posterior.delays
    assert delays.groups == ("east", "west")
    means = dict(zip(delays.groups, (curve.mean for curve in delays.curves), strict=True))
    assert means["west"] == pytest.approx(3.0, rel=0.3)
    assert means["east"] == pytest.approx(20.0, rel=0.35)
    east = posterior.domain.node_points[:, 0] > 8
    west = posterior.domain.node_points[:, 0] < 4
    assert posterior.effort[-1, west].mean() > 2 * posterior.effort[-1, east].mean()
    assert np.allclose(delays.mix.sum(axis=1), 1.0)
    regions = posterior.totals(HALVES).iloc[-2:]
    truth = table[table["onset"] > LAST - 7 * DAY]["half"].value_counts()
    for row, name in zip(regions.itertuples(), ("west", "east"), strict=True):
        assert row.final_q05 * 0.9 <= truth[name] <= row.final_q95 * 1.1
    assert len(delays.reported()) == 2 * WEEKS
    assert set(delays.table()["half"]) == {"east", "west"}


def by_area(table):
    """Return counts by half, week and week of the report."""
    week = [table[name].dt.strftime("%G-W%V") for name in ("onset", "reported")]
    rows = table.assign(onset=week[0], reported=week[1]).groupby(["half", "onset", "reported"]).size()
    frame = rows.rename("n").reset_index()
    shape = {"west": HALVES[0], "east": HALVES[1]}
    return gpd.GeoDataFrame(frame, geometry=[shape[name] for name in frame["half"]])


def test_counts_by_area_and_week_of_the_report(table):
    areas = by_area(table)
    how = {name: HOW[name] for name in HOW if name != "m"} | {"m": 9}
    when = {"reported": "reported", "as_of": str(LAST)}
    posterior = map_intensity(land=LAND, areas=areas, count="n", **when, **how)
    known = table[table["reported"] <= LAST]
    assert posterior.level()["observed"].sum() == len(known)
    assert posterior.periods.labels[-1] == "2020-W15"
    truth = table[table["onset"] > LAST - 7 * DAY].shape[0]
    level = posterior.level().iloc[-1]
    assert level["nowcast"]
    assert level["final_q05"] * 0.85 <= truth <= level["final_q95"] * 1.15
    grouped = map_intensity(land=LAND, areas=areas, count="n", delay_by="half", **when, **how)
    assert set(np.unique(grouped.delays.mix)) == {0.0, 1.0}
    west = grouped.domain.node_points[:, 0] < 6
    assert (grouped.delays.mix[west, 1] == 1.0).all()


# -- What is said, and what is refused ----------------------------------------------------------------------------


def read(table, **how):
    return read_reports(table, time="onset", reported="reported", **{"as_of": str(LAST)} | how)


def test_rows_without_a_report_are_counted(table):
    some = table.copy()
    some.loc[some.index[:9], "reported"] = pd.NaT
    with pytest.warns(InputWarning, match=r"9 rows of points \(.*\) have no date in 'reported'. Their delays"):
        reports = read(some, as_of=None)
    assert (reports.delay < 0).sum() == 9
    assert reports.numbers["missing"] == 9
    with pytest.warns(InputWarning, match="are left out"):
        reports = read(some)
    assert reports.numbers["unsure"] == 9
    some.loc[some.index[: len(some) * 3 // 5], "reported"] = pd.NaT
    with pytest.raises(DataError, match="60 % of the points have no date in 'reported'"):
        read(some)


def test_reports_before_the_event_are_named(table):
    some = table.copy()
    some.loc[some.index[[3, 10]], "reported"] = START - 5 * DAY
    with pytest.warns(InputWarning, match=r"2 rows of points are reported before .* \(counted from 1: 4, 11\)"):
        reports = read(some)
    assert reports.numbers["negative"] == 2
    assert (reports.delay < 0).sum() == 2


def test_warnings_are_those_of_any_cells(table):
    """Tables are read once, and cells are tried in several sizes."""
    some = table.copy()
    some.loc[some.index[3], "reported"] = START - 5 * DAY
    how = {name: value for name, value in HOW.items() if name != "cell_size"} | {"max_seconds": 5}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        posterior = map_intensity(some, LAND, **how, reported="reported", as_of=str(LAST))
    told = [str(one.message) for one in caught]
    assert sum("reported before the event (counted from 1: 4)" in text for text in told) == 1
    assert posterior.delays.numbers["negative"] == 1


@pytest.mark.parametrize("ratio", [0.2, 3.0])
@pytest.mark.parametrize("rng", [1, 2])
def test_delays_that_change_much_are_told_of_few_weeks(ratio, rng):
    """A change is no reason to think that delays vary by themselves."""
    rng = np.random.default_rng(rng)
    day = np.repeat(np.arange(126), rng.poisson(7, 126))
    delay = rng.gamma(1.3, np.where(day < 60, 10.0, 10.0 * ratio) / 1.3)
    rows = pd.DataFrame({"onset": START + day, "reported": START + day + delay.astype(int)})
    with pytest.warns(InputWarning, match="Delays have changed"):
        read(rows, as_of=str(START + 125 * DAY)).over(Periods.calendar("week", str(START), str(START + 125 * DAY)))


def test_delays_that_change_are_told_with_numbers():
    rng = np.random.default_rng(1)
    day = np.repeat(np.arange(140), 15)
    mean = np.where(day < 70, 15.0, 4.0)
    delay = rng.geometric(1 / (mean + 1)) - 1
    rows = pd.DataFrame({"onset": START + day, "reported": START + day + delay})
    reports = read(rows, as_of=str(START + 139 * DAY))
    with pytest.warns(InputWarning, match="Delays have changed") as caught:
        reports.over(Periods.calendar("week", str(START), str(START + 139 * DAY)))
    before, after = caught[0].message.found
    assert before == pytest.approx(15, rel=0.25)
    assert after == pytest.approx(4, rel=0.25)
    assert "too high" in str(caught[0].message)
    recent = reports.over(Periods.calendar("week", str(START + 70 * DAY), str(START + 139 * DAY)))
    assert recent.curves[0].mean == pytest.approx(4, rel=0.15)
    assert recent.curves[0].n == (reports.event >= int((START + 70 * DAY).astype(int))).sum()
    delay = rng.geometric(1 / 9.0, len(day)) - 1
    same = read(rows.assign(reported=START + day + delay), as_of=str(START + 139 * DAY))
    same.over(Periods.calendar("week", str(START), str(START + 139 * DAY)))  # warnings are errors


def test_a_period_that_is_not_over_is_told():
    day = np.repeat(np.arange(66), 10)
    rows = pd.DataFrame(
        {"onset": START + day, "reported": START + day + np.random.default_rng(1).integers(0, 9, len(day))}
    )
    periods = Periods.calendar("week", str(START), str(START + 65 * DAY))
    end = int((periods.edges[-1].astype("datetime64[D]") - START).astype(int))
    delays = read(rows, as_of=str(START + (end - 5) * DAY)).over(periods)
    assert delays.passed == (3, 7)
    words = f"3 of the 7 days of {periods.labels[-1]} have passed: its numbers are of these days alone."
    assert words in delays.words() and words not in delays.slice(0, 2).words()
    whole = read(rows, as_of=str(START + (end - 1) * DAY)).over(periods)
    assert whole.passed is None and "have passed" not in whole.words()


def test_delays_as_long_as_the_series_are_told():
    rng = np.random.default_rng(1)
    day = np.repeat(np.arange(60), 15)
    rows = pd.DataFrame({"onset": START + day, "reported": START + day + rng.integers(0, 80, len(day))})
    with pytest.warns(InputWarning, match=r"reported more than 28 days after .* delays up to 57 days alone"):
        read(rows, as_of=str(START + 59 * DAY)).over(Periods.calendar("week", str(START), str(START + 59 * DAY)))


def test_small_groups_have_the_delays_of_all(table):
    some = table.assign(half=np.where(np.arange(len(table)) < 5, "few", "many"))
    reports = read(some, delay_by="half")
    with pytest.warns(InputWarning, match="'few' has fewer than 20 events"):
        delays = reports.over(Periods.calendar("week", str(START), str(LAST)), np.ones((4, 2)) / 2)
    assert delays.curves[0].n == len(reports.table)


def test_a_day_long_after_the_last_report_is_refused_or_told_of(table):
    last = table["reported"].max().to_numpy().astype("M8[D]")
    words = (
        rf"days after the last report \({last}\), and the longest delay is .*: \d+ weeks without events would follow"
    )
    for late in ("2035-01-01", last + 7 * (WEEKS + 20) * DAY):
        with pytest.raises(DataError, match=words) as caught:
            mapped(table, reported="reported", as_of=str(late))
        assert caught.value.option == "as_of"
    longest = int((table["reported"] - table["onset"]).max() / np.timedelta64(1, "D"))
    reports = read(table, as_of=str(last + (longest + 1) * DAY))
    with pytest.warns(InputWarning, match=words):
        reports.check_end("week", True)
    read(table, as_of=str(last + longest * DAY)).check_end("week", True)
    reports.check_end("month", True)
    wrong = table.copy()
    wrong.loc[3, "reported"] = "2035-01-01"
    with pytest.warns(InputWarning, match="The last report is dated 2035-01-01: .* weeks without events follow the 1"):
        read(wrong, as_of=None).check_end("week", False)


def test_columns_of_events_and_reports_that_are_swapped_or_the_same_are_refused(table):
    n = len(table)
    words = rf"All {n} reports are dated before their events or on the same day.*swapped.*time='onset', reported='rep"
    with pytest.raises(DataError, match=words):
        read_reports(table, time="reported", reported="onset")
    with pytest.raises(DataError, match=rf"All {n} reports are dated before their events\."):
        read(table.assign(reported=table["onset"] - pd.Timedelta(days=3)), as_of=None)
    some = np.where(table.index < 0.6 * n, table["onset"] - pd.Timedelta(days=3), table["onset"] + pd.Timedelta(days=1))
    with pytest.raises(DataError, match=rf"\d+ of {n} reports are dated before their events\."):
        read(table.assign(reported=some), as_of=None)
    with pytest.raises(DataError, match="time and reported are the same column, 'onset'"):
        mapped(table, reported="onset")


def test_mistakes_have_their_messages(table):
    for how, match in (
        ({"reported": "nowhere"}, "no column 'nowhere'"),
        ({"reported": "half"}, "which are no dates"),
        ({"as_of": "2019-01-01"}, "None of the points is reported by 2019-01-01"),
        ({"as_of": "2020-01-14"}, "a distribution needs 20"),
        ({"as_of": "soon"}, "is a date; found 'soon'"),
        ({"delay_by": "age"}, "no column 'age'"),
    ):
        with pytest.raises(DataError, match=match):
            read_reports(table, **{"time": "onset", "reported": "reported"} | how)
    with pytest.raises(DataError, match="Of events in the periods the delays of 0 events are known"):
        read(table).over(Periods.calendar("week", str(LAST + DAY), str(LAST + 20 * DAY)))
    with pytest.raises(DataError, match="as_of belongs to events with the date of their report"):
        mapped(table, as_of="2020-03-01")
    with pytest.raises(DataError, match="reported belongs to events with dates"):
        map_intensity(table, LAND, reported="reported")
    with pytest.raises(DataError, match="no table"):
        mapped(np.ones((40, 2)), reported="reported")


@pytest.mark.parametrize("day", ["2020-03-15", datetime.date(2020, 3, 15), pd.Timestamp("2020-03-15"), "2020-W11"])
def test_a_day_is_written_in_any_way(table, day):
    options = Options(points=table, land=LAND, time="onset", every="week", reported="reported", as_of=day)
    assert read(table, as_of=options.as_of).as_of == "2020-03-15"
    assert options.record()["as_of"] in ("2020-03-15", "2020-W11")


@pytest.mark.parametrize(
    "more",
    [{"likelihood": "negative-binomial"}, {"covariates": {"east": lambda at: at[:, 0]}}, {"every": "day"}],
    ids=lambda more: next(iter(more)),
)
def test_goes_with_what_else_a_map_has(table, more):
    how = HOW | {"every": more.pop("every", "week")}
    posterior = map_intensity(table, LAND, **how, **more, reported="reported", as_of=str(LAST))
    level = posterior.level()
    assert posterior.nowcast[-1]
    assert np.isfinite(level[["final", "final_q05", "final_q95"]]).all(axis=None)
    assert (level["final_q05"] <= level["final_q95"]).all()
    assert len(posterior.coefficients) == 1 + len(posterior.design.names)


def test_kinds_without_reports_say_why(table):
    late = {"time": "onset", "every": "week", "reported": "reported"}
    with pytest.raises(DataError, match="not in yet nothing is counted"):
        map_values(table, LAND, value="easting", **late)
    with pytest.raises(DataError, match="not in yet nothing is counted"):
        map_prevalence(table, LAND, positive="a", tested="b", **late)
    with pytest.raises(DataError, match="cases and controls"):
        map_risk(table, table, LAND, **late)
    with pytest.raises(DataError, match="whose delays may differ"):
        map_strata(table, LAND, by="half", **late)


# -- What is written ----------------------------------------------------------------------------------------------


def test_outputs_mark_nowcasts(nowcast, tmp_path):
    page = tmp_path / "map.html"
    nowcast.to_map(page)
    marks = re.search(r'"marks": ?(\[[^\]]*\])', page.read_text(encoding="utf-8"))
    assert marks is not None
    assert marks[1].count("(nowcast)") == int(nowcast.nowcast.sum())
    nowcast.to_report(tmp_path / "report.html", checks=False)
    report = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "2020-W15 (nowcast)" in report
    assert "Final" in report
    assert "Events that are reported late" in report
    nowcast.to_netcdf(tmp_path / "map.nc")
    with xr.open_dataset(tmp_path / "map.nc") as data:
        assert data["nowcast"].values.tolist() == nowcast.nowcast.astype(int).tolist()
        assert data["nowcast"].attrs["flag_meanings"] == "complete nowcast"
        assert data["nowcast"].attrs["flag_values"].tolist() == [0, 1]
    project = nowcast.to_qgis(tmp_path / "qgis")
    with zipfile.ZipFile(project) as archive:
        layers = archive.read(next(name for name in archive.namelist() if name.endswith(".qgs"))).decode()
    assert "2020-W15 (nowcast)" in layers
    assert "2020-W03 (nowcast)" not in layers
    assert "2020-W15" in nowcast.level()["period"].to_list()
    figure = nowcast.plot()
    titles = [ax.get_title(loc="left") for ax in figure.axes]
    assert titles.count("2020-W15 (nowcast)") == 1
    assert any(text.get_text() == "nowcast" for text in nowcast.plot_level().axes[0].texts)
    ax = nowcast.delays.plot()
    assert "2020-04-12" in ax.get_title(loc="left")
    assert nowcast.at(-1).title.endswith("2020-W15 (nowcast)")


def test_shell(tmp_path, table, capsys):
    degrees = table.assign(longitude=5 + table["easting"] / 60, latitude=52 + table["northing"] / 100)
    degrees.drop(columns=["easting", "northing"]).to_csv(tmp_path / "cases.csv", index=False)
    land = gpd.GeoDataFrame(geometry=[shapely.box(5, 52, 5.2, 52.12)], crs="EPSG:4326")
    land.to_file(tmp_path / "land.gpkg")
    out = tmp_path / "out"
    words = ["map", str(tmp_path / "cases.csv"), "--land", str(tmp_path / "land.gpkg"), "-o", str(out)]
    words += ["--time", "onset", "--every", "week", "--reported", "reported", "--as-of", str(LAST)]
    words += ["--delay-by", "half"]
    words += ["--cell-size", "2500", "--features", "12", "--permeability", "0", "--dynamics", "separable", "--no-cache"]
    assert main(words) == 0
    assert "(nowcast)" in (out / "report.html").read_text(encoding="utf-8")
    capsys.readouterr()
    assert main([*words[:10], "--as-of", "2020-03-01"]) != 0
    assert "--reported" in capsys.readouterr().err
