"""map_intensity over time: what is chosen, what is said, and that it is the model of all periods."""

import dataclasses
import time

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest
import shapely

from geobgp import DataError, Matern, map_intensity
from geobgp.auto.options import Options
from geobgp.auto.pipeline import run
from geobgp.auto.search import Fits, moderate_cells, most_features, seconds_of
from geobgp.errors import ConvergenceWarning, MissedVarianceWarning, warn
from geobgp.inference import chain_fit
from geobgp.inference.solver import Solver

LAND = shapely.box(0, 0, 12, 8)
QUICK = {"crs": "local", "cell_size": 1.0, "m": 24, "permeability": 0.0, "cache": False}


@pytest.fixture(scope="module")
def cases():
    rng = np.random.default_rng(2)
    month = rng.integers(0, 8, 400)
    x = np.clip(rng.normal(2.0 + month, 1.2), 0.01, 11.99)
    dates = [f"2020-{m + 1:02d}-{d:02d}" for m, d in zip(month, rng.integers(1, 28, 400), strict=True)]
    return pd.DataFrame({"easting": x, "northing": rng.uniform(0, 8, 400), "date": dates})


def test_one_call_gives_all_periods(cases):
    posterior = map_intensity(cases, LAND, time="date", every="month", **QUICK)
    assert posterior.periods is not None and posterior.periods.words() == "8 months, 2020-01 to 2020-08"
    assert posterior.n_points == 400 and posterior.units == "events per unit area per month"
    assert "periods" in posterior.choices and "nats above" in posterior.choices["dynamics"]
    east = [posterior.at(t).intensity_at([[2.5, 4.0], [8.5, 4.0]])["mean"] for t in (0, 7)]
    assert east[0][0] > 2 * east[0][1] and east[1][1] > 2 * east[1][0]


def test_cells_and_features_are_chosen_on_all_periods_together(cases):
    mapped = run(
        Options(points=cases, land=LAND, crs="local", time="date", every="quarter", max_seconds=20.0, cache=False)
    )
    posterior = mapped.posterior
    assert posterior.n_periods == 3 and posterior.domain.n_nodes > 500 and posterior.tried
    assert {"cell size", "water", "features", "periods", "dynamics"} <= set(mapped.choices)
    assert mapped.counts.totals.sum() == 400 and posterior.basis.truncated


def test_undated_events_are_warned_of_once(cases):
    from geobgp.errors import DroppedPointsWarning

    with pytest.warns(DroppedPointsWarning, match="7 of 400 rows") as told:
        map_intensity(
            cases.assign(date=cases["date"].where(cases.index >= 7)), LAND, time="date", every="month", **QUICK
        )
    assert len(told) == 1


def test_dynamics_and_periods_can_be_given(cases):
    posterior = map_intensity(
        cases, LAND, time="date", every="month", between=("2019-12", "2020-09"), dynamics="separable", **QUICK
    )
    assert posterior.n_periods == 10 and posterior.observed[0].sum() == 0 and "given" in posterior.choices["dynamics"]
    assert posterior.dynamics == "separable" and "given" in posterior.choices["periods"]


def test_exposure_may_change_from_period_to_period(cases):
    halves = [shapely.box(0, 0, 6, 8), shapely.box(6, 0, 12, 8)]
    people = [gpd.GeoDataFrame({"population": [100 + 10 * t, 300]}, geometry=halves) for t in range(8)]
    posterior = map_intensity(cases, LAND, time="date", every="month", exposure=people, units="per 1,000", **QUICK)
    assert posterior.by_period.sum(axis=1).tolist() == pytest.approx([400 + 10 * t for t in range(8)])
    assert posterior.units == "events per 1,000 people per month"
    with pytest.raises(DataError, match="exposure is given for 7 periods"):
        map_intensity(cases, LAND, time="date", every="month", exposure=people[:7], **QUICK)


def test_areas_by_period():
    boxes = [shapely.box(x, y, x + 3, y + 4) for x in range(0, 12, 3) for y in (0, 4)]
    rng, rows = np.random.default_rng(0), []
    for t in range(5):
        rows += [{"cases": rng.poisson(3 + 4 * (k // 2 == t)), "week": f"2020-W{t + 1:02d}", "geometry": b}
                 for k, b in enumerate(boxes)]  # fmt: skip
    districts = gpd.GeoDataFrame(rows)
    posterior = map_intensity(
        land=LAND,
        areas=districts,
        count="cases",
        time="week",
        every="week",
        kernel=Matern(1.5, 5.0, 0.7),
        **(QUICK | {"cell_size": 0.5}),
    )
    assert posterior.n_periods == 5 and posterior.areas.values.shape == (5, 8)
    assert posterior.points["in_areas"] == districts["cases"].sum()


@pytest.mark.parametrize(
    ("how", "match"),
    [
        ({"time": "date"}, "How long is a period"),
        ({"every": "month"}, "every belongs to events with dates"),
        ({"time": "date", "every": "month", "m": "full"}, "needs features"),
        ({"absent": "zero"}, "absent belongs to events with dates"),
        ({"time": "when", "every": "month"}, "no column 'when'"),
        ({"time": "date", "every": "month", "between": "2020"}, "a first and a last date"),
    ],
)
def test_mistakes_are_told_before_anything_is_fitted(cases, how, match):
    with pytest.raises(DataError, match=match):
        map_intensity(cases, LAND, **(QUICK | how))


def test_cells_and_features_fit_the_time():
    assert moderate_cells(1e10, 500.0, "usual", 120, 60.0)[0] > 500.0
    assert most_features(10_000, 120, 60.0, 1024) == pytest.approx(267, abs=5)
    assert most_features(10_000, 2000, 1.0, 1024) == 64
    assert seconds_of(2000, 128, 24) < 2.0


@pytest.mark.filterwarnings("ignore::geobgp.errors.ConvergenceWarning")  # on a machine that is busy
def test_open_water_is_closed_where_it_would_take_too_many_features():
    rng = np.random.default_rng(5)
    islands = shapely.union_all([shapely.Point(x, y).buffer(1.0) for x in (0, 6, 12) for y in (0, 6, 12)])
    places = rng.uniform(-1, 13, (6000, 2))
    places = places[shapely.contains_xy(islands, places)]
    # The same trend over all islands, whatever water is between them.
    places = places[rng.random(len(places)) < np.exp(-0.3 * (12.0 - places[:, 0]))]
    cases = pd.DataFrame({"easting": places[:, 0], "northing": places[:, 1]})
    cases["date"] = [f"2020-{m:02d}-10" for m in rng.integers(1, 13, len(cases))]
    given = {"time": "date", "every": "month", "crs": "local", "cell_size": 0.25, "cache": False}
    mapped = run(Options(points=cases, land=islands, max_seconds=5.0, **given))
    water = mapped.choices["water"]
    assert "Open" in water.why or "open" in water.why
    assert water.value == "closed" and "features for each one of the land, too many for 12 periods" in water.why
    assert mapped.posterior.basis.permeability == 0.0


@pytest.fixture
def slow(monkeypatch):
    """Every posterior of a fit of periods takes a while, as if there were many nodes."""
    real, begun = Solver.at, []

    def at(self, theta, *more):
        if len(theta) > 2:
            begun.append(time.perf_counter())
            time.sleep(0.1)
        return real(self, theta, *more)

    monkeypatch.setattr(Solver, "at", at)
    return begun


def test_the_time_that_is_allowed_is_kept(cases, slow):
    begin = time.perf_counter()
    with pytest.warns(ConvergenceWarning, match=r"time ran out .* Raise max_seconds") as told:
        posterior = map_intensity(cases, LAND, time="date", every="month", **QUICK, max_seconds=2.0)
    assert sum(moment > begin + 2.0 for moment in slow) <= 5, "it would be some thirty without a limit"
    assert sum(issubclass(one.category, ConvergenceWarning) for one in told) == 1
    assert not posterior.converged and "time ran out" in posterior.fit.message
    assert posterior.dynamics == "separable"
    assert "no time to compare" in posterior.choices["dynamics"]
    # What was found by then is a posterior all the same.
    level = posterior.level()
    assert level["expected"].sum() == pytest.approx(400, rel=0.1)


def test_dynamics_that_time_cuts_off_are_not_compared(cases, monkeypatch):
    real = chain_fit._Run._fit

    def fit(self, problem, *more, **how):
        found, likelihood = real(self, problem, *more, **how)
        if problem.dynamics.kind == "diffusive":
            warn(ConvergenceWarning("The fit did not converge: time ran out."))
            more_evident = {"converged": False, "ran_out": True, "elbo": found.elbo + 1e3}
            found = dataclasses.replace(found, message="time ran out", **more_evident)
        return found, likelihood

    monkeypatch.setattr(chain_fit._Run, "_fit", fit)
    posterior = map_intensity(cases, LAND, time="date", every="month", **QUICK)  # and warns of nothing
    assert posterior.converged and posterior.dynamics == "separable"
    assert "no time to compare" in posterior.choices["dynamics"]


def test_a_larger_model_that_time_cuts_off_does_not_replace_one_that_is_done(cases, monkeypatch):
    real, made = Fits.fit_periods, []

    def fit_periods(self, scene, basis, *more):
        found = real(self, scene, basis, *more)
        made.append(basis.m)
        missed = dataclasses.replace(found.fit, truncated_variance=0.5, converged=len(made) == 1)
        return dataclasses.replace(found, fit=missed)

    monkeypatch.setattr(Fits, "fit_periods", fit_periods)
    told = {name: value for name, value in QUICK.items() if name != "m"} | {"cell_size": 0.4}
    with pytest.warns(MissedVarianceWarning, match="more than the time allows"):
        posterior = map_intensity(cases, LAND, time="date", every="month", **told, max_seconds=60.0)
    assert len(made) == 2 and posterior.basis.m == made[0] < made[1] and posterior.converged
    assert "could not be fitted in time" in posterior.choices["features"]
