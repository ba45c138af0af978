"""Numbers and their intervals: every table that is shown anywhere keeps to one rule, at any probability.

The interval of a number ``x`` is ``x_q05`` to ``x_q95``. ``q05`` and ``q95`` alone are of the one number that a table
is about. ``predicted_q05`` and the like are of numbers that are yet to be observed, and have no number beside them.
"""

from __future__ import annotations

import dataclasses
import re

import geopandas as gpd
import numpy as np
import outbreak
import pandas as pd
import pytest
import shapely

import geobgp
from geobgp import LGCP, DataError, Domain, FullRank, HarmonicBasis, Matern, Posterior, bin_areas, map_risk
from geobgp.checks.residuals import check
from geobgp.output.grids import View
from geobgp.report.report import ReportInputs, region_table, render, write_report
from geobgp.web.overlays import region_rows

MAIN = ("mean", "expected", "change", "value")
WITHOUT_A_NUMBER = ("predicted",)
STRIPS = gpd.GeoDataFrame(
    {"name": ["a", "b", "c"]}, geometry=[shapely.box(a, 0, b, 10) for a, b in ((0, 3.3), (3.3, 6), (6, 10))]
)
KERNEL = Matern(1.0, lengthscale=4.0, sd=0.6)


def ends_in(names):
    """Return the names of quantiles by what they are of."""
    found: dict[str, list[str]] = {}
    for name in map(str, names):
        if (match := re.fullmatch(r"(?:(.+)_)?q(\d{2,})", name)) is not None:
            found.setdefault(match[1] or "", []).append(name)
    return {of: sorted(some, key=lambda n: float("0." + n.rpartition("q")[2])) for of, some in found.items()}


def check_names(names, interval, of_draws=True):
    """Check that it is said whose each interval is, and that it has the probability that was asked for."""
    found = ends_in(names)
    low, high = (f"{q:.12f}".rstrip("0")[2:].ljust(2, "0") for q in ((1 - interval) / 2, (1 + interval) / 2))
    for of, some in found.items():
        if of == "":
            assert sum(name in names for name in MAIN) == 1, list(names)
        elif of not in WITHOUT_A_NUMBER:
            assert of in names, (of, list(names))
        assert (some[0].rpartition("q")[2], some[-1].rpartition("q")[2]) == (low, high), some
    return found


def check_table(table, interval):
    """Check that every number of a table lies within its own interval; return how many intervals there are."""
    frame = pd.DataFrame(table).reset_index(drop=True)
    found = check_names(list(frame.columns), interval)
    for of, some in found.items():
        assert (frame[some[0]] <= frame[some[-1]]).where(frame[some[0]].notna(), True).all(), of
        if of in WITHOUT_A_NUMBER:
            continue
        x = frame[next(name for name in MAIN if name in frame) if of == "" else of]
        known = frame[some[0]].notna()
        slack = 1e-9 * (1.0 + x.abs())
        assert ((frame[some[0]] - slack <= x) & (x <= frame[some[-1]] + slack))[known].all(), (of, frame)
    return len(found)


def check_facts(summary, interval):
    """Check the facts of a summary, which are dictionaries."""
    facts = [fact for fact in summary.facts.values() if isinstance(fact, dict) and "value" in fact]
    assert facts
    for fact in (*facts, *summary["coefficients"]):
        check_table([fact], interval)
    words = f"{100 * interval:.6g} % interval"
    assert words in str(summary) and set(re.findall(r"[\d.]+ % interval", str(summary))) == {words}


def check_words(head, rows, interval):
    """Check a table of words: a column "X, 90 %" holds the interval of the numbers of "X"."""
    told = f", {100 * interval:.6g} %"
    ends = {name: k for k, name in enumerate(head) if re.search(r", [\d.]+ %$", name)}
    assert ends and all(name.endswith(told) for name in ends), head
    for name, k in ends.items():
        of = name.removesuffix(told)
        if of == "Predicted":
            continue
        (own,) = [
            j for j, other in enumerate(head) if other == of or (other.startswith(f"{of}, ") and j not in ends.values())
        ]
        for row in rows:
            x, (low, high) = number_of(row[own]), map(number_of, row[k].split(" to "))
            assert low <= x <= high, (name, row)


def speaks_of_90(page):
    """Whether a page speaks of intervals of 90 % or of their ends; pictures, which are base64, do not count."""
    return re.search(r"90 % (interval|predictive)|, 90 %|q05|q95", re.sub(r"[A-Za-z0-9+/=]{200,}", "", page))


def number_of(text):
    return float(text.replace(",", "").split(" ")[0])


def land():
    return Domain.from_polygons(shapely.box(0, 0, 10, 10), cell_size=1, crs="local")


def counts(domain, level=1.0):
    return np.random.default_rng(3).poisson(level * np.exp(0.15 * domain.node_points[:, 0]))


def of_points():
    domain = land()
    slope = {"easting": domain.node_points[:, 0]}
    return LGCP(FullRank(domain), KERNEL, covariates=slope).fit(counts(domain), hyper="map")


def of_learned():
    domain = land()
    return LGCP(FullRank(domain), Matern(1.0)).fit(counts(domain, 3.0))


def of_rates():
    domain = land()
    people = np.random.default_rng(4).uniform(50.0, 500.0, domain.n_nodes)
    made = LGCP(FullRank(domain), KERNEL, exposure=people).fit(counts(domain))
    return dataclasses.replace(made, exposure_kind="population").in_units("per 1,000")


def of_effort():
    domain = land()
    return LGCP(FullRank(domain), KERNEL, effort=np.where(domain.node_points[:, 1] > 5, 0.4, 1.0)).fit(counts(domain))


def of_areas():
    domain = land()
    boxes = [shapely.box(x, y, x + 2, y + 2) for x in range(0, 10, 2) for y in range(0, 10, 2)]
    frame = gpd.GeoDataFrame({"n": np.random.default_rng(5).poisson(6.0, 25)}, geometry=boxes)
    basis = HarmonicBasis.compute(domain, m=36, cache=False)
    return LGCP(basis, Matern(1.5, 6.0, 0.5)).fit(bin_areas(frame, domain, "n"))


def of_risk():
    rng = np.random.default_rng(6)
    cases, controls = rng.uniform(0, 10, (150, 2)), rng.uniform(0, 10, (200, 2))
    return map_risk(cases, controls, shapely.box(0, 0, 10, 10), crs="local", cell_size=1.0, permeability=0)


MAPS = {
    "points": of_points,
    "learned": of_learned,
    "rates": of_rates,
    "effort": of_effort,
    "areas": of_areas,
    "risk": of_risk,
}


@pytest.mark.filterwarnings("ignore::geobgp.errors.MissedVarianceWarning")
@pytest.mark.parametrize("kind", MAPS)
def test_every_number_of_a_map_lies_within_its_own_interval(kind, tmp_path):
    made = MAPS[kind]()
    assert made.interval == 0.9
    for interval in (0.9, 0.95):
        posterior = made.with_interval(interval)
        totals = posterior.totals(STRIPS, predicted=True, n_samples=200)
        assert check_table(totals.drop(columns="geometry"), interval) >= 3
        assert check_table(posterior.totals(n_samples=200).drop(columns="geometry"), interval) >= 2
        assert check_table(posterior.ranks(STRIPS, n_samples=200).drop(columns="geometry"), interval) == 2
        for table in (posterior.node_intensity(), posterior.intensity_at([[1.0, 2.0]]), posterior.coefficients):
            assert check_table(table, interval) >= 1
        check_facts(posterior.summary(), interval)
        for data in (posterior.intensity(), posterior.latent()):
            check_table(data.to_dataframe().dropna(), interval)
        head, rows = (region_table(totals)[key] for key in ("region_head", "region_rows"))
        check_words(head, rows, interval)
        for record in totals.drop(columns="geometry").to_dict("records"):
            told = dict(region_rows(record, posterior.units))
            text = f"{100 * interval:.6g} %"
            assert any(text in name for name in told) and not any("90 %" in n for n in told if interval != 0.9)
        checked = posterior.cross_validate(2.0 if kind != "areas" else "auto")
        assert check_table(checked.blocks.drop(columns="geometry"), interval) == 1
        assert checked.interval == interval and f"{100 * interval:.6g} % predictive interval" in checked.verdict()
        if kind == "points":
            found = check(posterior, np.asarray(posterior.observed))
            assert check_table(found.parts, interval) == 1
        again = Posterior.load(posterior.save(tmp_path / "map.geobgp"))
        assert again.interval == interval and list(again.node_intensity()) == list(posterior.node_intensity())
        page = render(posterior, ReportInputs(regions=totals, validation=checked))
        assert "% interval" in page and (interval == 0.9 or not speaks_of_90(page))
    assert made.overall == pytest.approx(
        made.totals(n_samples=10)["expected"][0] / made.exposure.sum() * made.shown.factor
    )


def test_a_comparison_and_its_totals():
    first, second = of_points(), of_learned()
    for interval in (0.9, 0.95):
        compared = first.with_interval(interval).versus(second)
        assert check_table(compared.totals(STRIPS, n_samples=200).drop(columns="geometry"), interval) == 2
        check_names(list(compared.to_dataset().data_vars), interval)
        check_table(compared.ratio().to_dataframe().dropna(), interval)


def test_strata_have_the_interval_of_all(tmp_path):
    rng = np.random.default_rng(7)
    points = gpd.GeoDataFrame(
        {"kind": np.repeat(["a", "b"], 80)}, geometry=gpd.points_from_xy(*rng.uniform(0, 10, (2, 160)))
    )
    told = {"crs": "local", "cell_size": 1.0, "m": "full", "permeability": 0.0, "n_jobs": 1}
    strata = geobgp.map_strata(points, shapely.box(0, 0, 10, 10), "kind", interval=0.95, **told)
    table = pd.read_csv(strata.to_totals(tmp_path / "totals.csv", STRIPS, n_samples=100))
    assert check_table(table, 0.95) == 2
    raster = strata.to_raster(tmp_path / "maps")["a"]
    import rasterio

    with rasterio.open(raster) as source:
        check_names(list(source.descriptions), 0.95)


def test_every_number_over_time(tmp_path):
    made = outbreak.fitted(12)
    halves = gpd.GeoDataFrame({"name": ["west", "east"]}, geometry=[shapely.box(0, 0, 6, 8), shapely.box(6, 0, 12, 8)])
    for interval in (0.9, 0.95):
        posterior = made.with_interval(interval)
        ahead = posterior.forecast(3)
        for one in (posterior, ahead):
            level = one.level()
            assert check_table(level.drop(columns="start"), interval) == 3
            assert {"expected", "level", "level_sd"} <= set(level) and not {"mean", "sd"} & set(level)
            totals = one.totals(halves, predicted=True, n_samples=100).drop(columns="geometry")
            assert check_table(totals.drop(columns="start"), interval) >= 3
            check_table(one.node_intensity(), interval)
            check_table(one.intensity_at([[2.5, 3.5]]).drop(columns="start"), interval)
        assert check_table(posterior.trend(halves, n_samples=100).drop(columns="geometry"), interval) == 1
        check_table(posterior.trend(n_samples=50).to_dataframe().dropna(), interval)
        check_facts(posterior.summary(), interval)
        assert check_table(posterior.coefficients, interval) == 2
        checked = posterior.cross_validate(2)
        assert check_table(checked.table, interval) == 1 and checked.interval == interval
        assert posterior.at(3).interval == interval
        figure = posterior.plot_level(forecast=ahead)
        titles = [ax.get_title(loc="left") for ax in figure.axes]
        assert all(f"{100 * interval:.6g} %" in title for title in titles)
        path = write_report(
            tmp_path / "report.html",
            posterior,
            ReportInputs(regions=posterior.totals(halves, n_samples=50), validation=checked),
            forecast=ahead,
        )
        assert interval == 0.9 or not speaks_of_90(path.read_text("utf-8"))
        assert View(posterior, ahead).level["forecast"].sum() == 3
    # What is observed should lie within what is predicted in about nine periods of ten, and never beside the level.
    level = made.level()
    inside = (level["predicted_q05"] <= level["observed"]) & (level["observed"] <= level["predicted_q95"])
    assert inside.mean() >= 0.75
    assert (level["predicted_q95"] - level["predicted_q05"] > level["expected_q95"] - level["expected_q05"]).all()


def test_what_happened_on_land_that_nobody_counted_is_not_known():
    """Areas that leave out a third of the land: what happened in each is known, not what happened on all the land."""
    domain = outbreak.domain()
    boxes = [shapely.box(x, y, x + 2, y + 2) for x in range(0, 8, 2) for y in range(0, 8, 2)]
    frame = gpd.GeoDataFrame({"n": [5] * len(boxes), "month": "2020-01"}, geometry=boxes)
    frame = pd.concat([frame, frame.assign(n=7, month="2020-02")], ignore_index=True)
    basis = outbreak.basis()
    made = LGCP(basis, Matern(1.5, 6.0, 0.5), dynamics="separable").fit(
        bin_areas(frame, domain, "n", time="month", every="month"), resume=False
    )
    west = gpd.GeoSeries([shapely.box(0, 0, 8, 8), shapely.box(0, 0, 12, 8)])
    for one, first in ((made, [80.0]), (made.at(1), [112.0])):
        told = one.totals(west, n_samples=10)["observed"].to_numpy()
        assert told[:1].tolist() == first and np.isnan(told[1])
        assert "observed" not in one.totals(n_samples=10)
    assert made.level()["observed"].isna().all()


def test_the_predictive_interval_of_a_period_is_that_of_its_total():
    made = outbreak.fitted(12)
    whole = made.totals(predicted=True, n_samples=500)
    level = made.level()
    for name in ("expected", "predicted_q05", "predicted_q95"):
        np.testing.assert_allclose(level[name], whole[name])
    np.testing.assert_allclose(level["expected_q95"], whole["q95"])


@pytest.mark.parametrize("interval", [0.0, 0.3, 1.0, 90, "95 %", None, float("nan")])
def test_what_no_interval_has(interval):
    with pytest.raises(DataError, match=r"interval must be a number from 0.5 to less than 1|interval"):
        of_points().with_interval(interval)
    with pytest.raises(DataError, match="interval"):
        geobgp.map_intensity([(1.0, 2.0)], shapely.box(0, 0, 4, 4), crs="local", interval=interval)


def test_quantiles_that_are_asked_for_stay():
    made = of_points().with_interval(0.95)
    assert list(made.intensity((0.1, 0.9)).data_vars) == ["mean", "sd", "q10", "q90"]
    assert list(made.node_intensity(())) == ["mean", "sd"]
    assert made.intensity()["q025"].attrs["long_name"] == "intensity, 2.5 % quantile"
    assert made.to_map() is not None and made.quantiles == (0.025, 0.5, 0.975)
