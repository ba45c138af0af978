"""Sentences of a report follow from the facts of the run, with its numbers."""

import dataclasses

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest
import shapely

from geobgp import LGCP, Domain, FullRank, HarmonicBasis, Matern, map_prevalence, map_values
from geobgp.data.periods import Periods
from geobgp.report import statements
from geobgp.report.report import ReportInputs, render
from geobgp.summary import FitRecord
from geobgp.text import events, number, percent


@pytest.fixture(scope="module")
def domain():
    return Domain.from_polygons(shapely.box(0, 0, 12_000, 12_000), cell_size=1000, crs="EPSG:28992")


@pytest.fixture(scope="module")
def posterior(domain):
    mean = np.where(domain.node_points[:, 0] < 6000, 8.0, 1.0)
    counts = np.random.default_rng(1).poisson(mean)
    return LGCP(FullRank(domain), Matern(1.0)).fit(counts)


def test_the_abstract_has_the_numbers_of_the_posterior(posterior, domain):
    overall, varies = statements.abstract(posterior)
    total = posterior.totals().iloc[0]
    assert overall.startswith(
        f"From {posterior.n_points:,} points on 144 km² of land, we estimate an overall intensity"
    )
    assert f"of {number(total['rate'], 3)} events per km² (90 % interval" in overall
    ends = [float(v) for v in overall.split("interval ")[1].rstrip(").").split(" to ")]
    assert np.allclose(ends, total[["rate_q05", "rate_q95"]].astype(float), rtol=0.02)
    assert ends[0] < total["rate"] < ends[1]
    assert varies.startswith("The rate varies over the land (log Bayes factor ")
    chance = posterior.exceedance(posterior.overall).values
    share = np.nansum(chance > 0.95) / np.isfinite(chance).sum()  # whole cells
    assert f"on {percent(share)} it is above the average with a probability of more than 95 %" in varies
    mean = np.sort(posterior.node_intensity()["mean"])
    low, high = mean[int(np.ceil(0.05 * len(mean))) - 1], mean[int(np.ceil(0.95 * len(mean))) - 1]
    assert f"on 90 % of the land the posterior mean is between {number(low, 3)} and {number(high, 3)} events" in varies


def test_a_flat_map_says_so_and_no_more(domain):
    counts = np.full(domain.n_nodes, 3.0)
    flat = LGCP(FullRank(domain), Matern(1.0)).fit(counts)
    varies = statements.abstract(flat)[1]
    assert varies.startswith("No evidence that the rate varies over the land") and "between" not in varies
    assert any("patterns of the map may be chance" in one for one in statements.limitations(flat))


def test_over_time_the_abstract_names_the_highest_period(domain):
    rising = np.random.default_rng(0).poisson(np.exp(0.3 * np.arange(6.0))[:, None] * np.ones(domain.n_nodes))
    basis = HarmonicBasis.compute(domain, m=9, cache=False)
    years = Periods.calendar("year", "2013", "2018")
    fitted = LGCP(basis, Matern(1.5, lengthscale=8000.0, sd=0.3)).fit(rising, periods=years)
    overall, varies = statements.abstract(fitted)
    assert "over 6 years, 2013 to 2018, on 144 km² of land" in overall
    level = fitted.level()
    top = level.loc[level["expected"].idxmax()]
    ends = f"{events(top['expected_q05'])} to {events(top['expected_q95'])}"
    course = f"highest in {top['period']} ({events(top['expected'])}; 90 % interval {ends}) and lowest in 2013"
    assert top["period"] == "2018" and f"The expected number of events was {course}" in varies
    names = [name for name, _ in statements.priors(fitted)]
    assert {"Correlation time", "Lengthscale", "Intercept"} <= {*names}
    assert ("Lengthscale", "given") in statements.priors(fitted)


def test_priors_are_those_of_the_fit(posterior):
    priors = dict(statements.priors(posterior))
    shortest = posterior.kernel.prior.scaled(12_000.0, 1000.0)
    assert priors["Lengthscale"].startswith(
        f"penalised complexity: below {number(shortest.lengthscale[0] / 1000, 3)} km with a probability of 5 %"
    )
    assert "above 3 with a probability of 5 %" in priors["Standard deviation of the field"]


def test_limitations_follow_from_the_run(posterior):
    plain = statements.limitations(posterior)
    assert any("is not a risk" in one for one in plain) and any("No covariates" in one for one in plain)
    moved = dataclasses.replace(posterior, points={"used": 90, "dropped": 10, "snapped": 30})
    words = " ".join(statements.limitations(moved))
    assert "10 of 100 points lay off the land and were dropped." in words
    assert "30 of the points (33 %) lay off the land and were moved to it." in words
    people = dataclasses.replace(posterior, exposure_kind="population")
    assert not any("is not a risk" in one for one in statements.limitations(people))
    assert any("population is taken as known" in one for one in statements.not_included(people))
    assert any("held at their best values" in one for one in statements.not_included(posterior))
    seen = dataclasses.replace(posterior, effort=np.full(posterior.domain.n_nodes, 0.5))
    assert any("The effort" in one for one in statements.not_included(seen))
    assert not any("Reporting is taken" in one for one in statements.limitations(seen))


def test_sensitivity_is_told_against_the_fit_that_was_kept(posterior):
    one = FitRecord(2000.0, 100, "full resolution", "closed", 50.0, 1.0, kernel="Matern 1", lengthscale=3000.0, sd=1.0)
    tried = (
        dataclasses.replace(one, difference=0.7),
        dataclasses.replace(one, water="open", gain=48.0, difference=0.9),
        dataclasses.replace(one, cell_size=1000.0, gain=55.0, kept=True, difference=0.0),
    )
    rows = statements.sensitivity(dataclasses.replace(posterior, tried=tried))
    assert rows == [
        ("Kept: cells of 1,000, full resolution, closed water, Matern 1", "3 km", "1", "55.0", ""),
        ("Cells twice as wide", "3 km", "1", "-5.0", "0.7 sd"),
        ("Cells twice as wide, open water", "3 km", "1", "-7.0", "0.9 sd"),
    ]
    assert statements.not_varied(dataclasses.replace(posterior, tried=tried)) == ["number of features", "kernel"]
    assert statements.sensitivity(posterior) == []


def test_values_with_covariates_have_coefficients_and_no_ratio():
    places = np.random.default_rng(0).uniform(0, 20_000, (120, 2))
    table = pd.DataFrame({"easting": 6e5 + places[:, 0], "northing": 5.8e6 + places[:, 1]})
    table["lead"] = 10 + places[:, 0] / 4000 + np.random.default_rng(1).normal(0, 1, len(table))
    fitted = map_values(
        table, shapely.box(6e5, 5.8e6, 6.2e5, 5.82e6), value="lead", units="µg/g", crs="EPSG:32631",
        points_crs="EPSG:32631", cell_size=1000, m=16, cache=False, transform="none",
        covariates={"east": lambda coords: (coords[:, 0] - 6e5) / 1000},
    )  # fmt: skip
    overall = statements.abstract(fitted)[0]
    assert overall.startswith("From 120 measurements on 400 km² of land, we estimate a mean over the land of 12.")
    assert "µg/g (90 % interval " in overall
    page = render(fitted, ReportInputs())
    assert ">Coefficient, 90 %</th>" in page and ">Rate ratio" not in page


def test_a_prevalence_speaks_of_surveys_and_of_people_where_they_are_known():
    places = np.random.default_rng(0).uniform(0, 20_000, (60, 2))
    table = pd.DataFrame({"easting": places[:, 0], "northing": places[:, 1], "n": 30})
    table["pos"] = np.where(places[:, 0] > 10_000, 20, 5)
    land, how = shapely.box(0, 0, 20_000, 20_000), {"tested": "n", "positive": "pos", "crs": "local", "m": "full"}
    halves = [shapely.box(x, 0, x + 10_000, 20_000) for x in (0, 10_000)]
    people = {"exposure": gpd.GeoDataFrame({"people": [900.0, 100.0]}, geometry=halves), "exposure_column": "people"}
    for given, over in (({}, "the land"), (people, "the people")):
        fitted = map_prevalence(table, land, cell_size=2000, cache=False, **how, **given)
        assert f"a mean prevalence over {over} of" in statements.abstract(fitted)[0]
        page = render(fitted, ReportInputs())
        assert f"mean over {over}" in page and "log-likelihood of the surveys, less that of one prevalence" in page
        assert "uniform rate" not in page and "the points" not in page
    assert statements.water(fitted).startswith("No water to speak of lies between the places")
