"""Does it vary at all? The verdict follows from the evidence, for every kind of data, and no mark is green in doubt."""

import dataclasses
import math
import warnings

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest
import shapely
from paths import SAMPLE
from scipy.integrate import quad
from scipy.special import expit, gammaln
from scipy.stats import multivariate_normal, norm

import geobgp
from geobgp import (
    LGCP,
    Domain,
    FullRank,
    HarmonicBasis,
    Matern,
    Periods,
    Posterior,
    Smooth,
    Variation,
    map_risk,
)  # fmt: skip
from geobgp import model as fitting
from geobgp.auto.tasks import fit_risk
from geobgp.checks.variation import _without_field as fitting_without
from geobgp.checks.variation import known_variation
from geobgp.data.areas import bin_areas
from geobgp.data.persons import Groups, Persons
from geobgp.errors import DataError
from geobgp.inference.families import Binomial, Gaussian, Poisson
from geobgp.inference.relinearise import fit_effects

SQUARE = shapely.box(0, 0, 10, 10)
KERNEL = Matern(1.5, lengthscale=3.0)


@pytest.fixture(scope="module")
def domain():
    return Domain.from_polygons(SQUARE, cell_size=0.5, crs="local")


@pytest.fixture(scope="module")
def basis(domain):
    return HarmonicBasis.compute(domain, m=128, cache=False)


@pytest.fixture(scope="module")
def east(domain):
    return domain.node_points[:, 0]


# -- the model without a field


def test_evidence_of_effects_alone_is_exact_for_a_gaussian():
    rng = np.random.default_rng(0)
    x, y = np.column_stack([np.ones(12), rng.normal(size=12)]), rng.normal(size=12)
    sds = np.array([10.0, 2.0])
    found = fit_effects(Gaussian(y, noise=0.7), x, sds)
    covariance = x @ np.diag(sds**2) @ x.T + 0.49 * np.eye(12)
    exact = -0.5 * (y @ np.linalg.solve(covariance, y) + np.linalg.slogdet(2 * np.pi * covariance)[1])
    assert found.bound == pytest.approx(exact, abs=1e-6)


@pytest.mark.parametrize("total", [0, 1, 7, 400])
def test_evidence_of_one_rate_is_that_of_the_integral(total):
    counts = np.array([total, 0.0, 0.0]) if total < 3 else np.array([total - 3.0, 1.0, 2.0])
    exposure = np.array([1.0, 2.0, 0.5])
    centre = math.log(max(total, 0.5) / exposure.sum())
    found = fit_effects(Poisson(counts, exposure, centre), np.ones((3, 1)), np.array([10.0]))

    def log_p(b):
        rate = exposure * math.exp(b + centre)
        return float(np.sum(counts * np.log(rate) - rate - gammaln(counts + 1.0)))

    best = -3.0 if total == 0 else 0.0
    area = quad(lambda b: math.exp(log_p(b) - log_p(best)) * norm.pdf(b, 0.0, 10.0), -60, 8, points=[best], limit=400)
    # A bound, and tight where there are events enough for the posterior to be normal.
    gap = math.log(area[0]) + log_p(best) - found.bound
    assert -1e-6 < gap < {0: 0.6, 1: 0.1, 7: 0.02, 400: 1e-3}[total]


def test_strong_effects_are_found_from_far_away():
    rng = np.random.default_rng(1)
    x = np.column_stack([np.ones(400), rng.normal(size=400)])
    y = rng.poisson(np.exp(-1.0 + 3.0 * x[:, 1])).astype(float)
    found = fit_effects(Poisson(y, np.ones(400), math.log(y.mean())), x, np.full(2, 10.0))
    assert found.mean[1] == pytest.approx(3.0, abs=0.1)
    parted = Binomial((x[:, 1] > 0).astype(float), np.ones(400), 0.0)  # perfect separation: the prior holds it
    assert np.isfinite(fit_effects(parted, x, np.full(2, 10.0)).bound)


def test_a_field_of_no_width_has_the_evidence_of_none(domain, basis, east):
    counts = np.random.default_rng(2).poisson(np.exp(0.1 * east))
    for model in (
        LGCP(basis, Matern(1.5, lengthscale=2.0, sd=1e-4)),
        LGCP(FullRank(domain), Matern(1.0, lengthscale=2.0, sd=1e-4), covariates={"east": east}),
    ):
        found = model.fit(counts).variation(held_out=False)
        assert found.log_bayes_factor == pytest.approx(0.0, abs=1e-3) and math.isnan(found.score)


# -- the verdict


def test_verdicts_follow_from_the_number():
    told = [Variation(b).verdict for b in (3.01, 3.0, 0.0, -0.01)]
    assert told == ["varies", "may vary", "may vary", "no evidence"]


@pytest.mark.parametrize(
    ("factor", "score", "tone"),
    [(50.0, 0.1, "good"), (50.0, math.nan, "good"), (50.0, -0.001, "doubt"), (1.0, 0.1, "doubt"), (-1.0, 0.1, "bad")],
)
def test_nothing_is_green_where_a_constant_predicts_better(factor, score, tone):
    found = Variation(factor, score=score, se=0.01)
    assert found.tone == tone and found.fine == (tone == "good")
    assert found.facts()["verdict"] == found.verdict and found.sentence in str(found)
    assert found.verdict in found._repr_html_() and "<table>" in found._repr_html_()


def test_words_follow_from_the_sign_and_the_error():
    told = Variation(-2.0, score=-0.0227, se=0.0053, what="risk", event="case").sentence
    assert "No evidence that the risk varies" in told
    assert "worse than by one risk everywhere, by 0.0227 ± 0.0053 nats per case" in told
    assert "about as well as" in Variation(1.0, score=0.01, se=0.02).sentence
    assert "better than" in Variation(9.0, score=0.1, se=0.02).sentence
    assert "local" in Variation(9.0, score=-0.1, se=0.02).sentence


@pytest.mark.parametrize("n", [60, 300, 1500])
def test_flat_events_do_not_vary_and_fields_do(n):
    rng, domain = np.random.default_rng(n), Domain.from_polygons(SQUARE, cell_size=0.8, crs="local")
    basis = HarmonicBasis.compute(domain, m=64, cache=False)
    share, flat, wide = domain.node_areas / domain.node_areas.sum(), [], []
    for _ in range(6):
        flat.append(LGCP(FullRank(domain)).fit(rng.poisson(n * share)).variation(held_out=False))
        field = basis.sample_prior(Matern(1.5, lengthscale=2.0, sd=0.6), 1, rng, "even")[0]
        wide.append(LGCP(FullRank(domain)).fit(rng.poisson(n * share * np.exp(field))).variation(held_out=False))
    assert sum(one.verdict == "no evidence" for one in flat) >= 4
    assert not any(one.verdict == "varies" for one in flat)
    if n > 60:
        assert sum(one.verdict == "varies" for one in wide) >= 4


def test_what_covariates_explain_is_no_variation(basis, east):
    counts = np.random.default_rng(4).poisson(np.exp(0.2 * east - 1.0))
    alone = LGCP(basis, Matern(1.5)).fit(counts).variation()
    told = LGCP(basis, Matern(1.5), covariates={"east": east}).fit(counts).variation()
    assert alone.verdict == "varies" and alone.fine and alone.score > 2.0 * alone.se
    assert told.verdict == "no evidence" and told.against == "the covariates alone" and told.score < 0.01
    assert "beyond what the covariates explain" in told.sentence


def test_clustering_within_cells_is_no_variation(basis, domain, east):
    rng = np.random.default_rng(5)
    heaps = rng.gamma(0.5, 2.0, domain.n_nodes)
    model = LGCP(basis, Matern(1.5), likelihood="negative-binomial")
    flat = model.fit(rng.poisson(0.7 * heaps)).variation()
    assert flat.verdict == "no evidence" and not flat.score > 2.0 * flat.se  # above one rate it would be
    assert model.fit(rng.poisson(np.exp(0.25 * east - 1.0) * heaps), hyper="integrate").variation().verdict == "varies"


def test_areas_with_covariates_exposure_and_hidden_counts(domain, basis, east):
    boxes = [shapely.box(i, j, i + 2, j + 2) for i in range(0, 10, 2) for j in range(0, 10, 2)]
    rng = np.random.default_rng(6)
    exposure = rng.uniform(0.5, 1.5, domain.n_nodes)
    inside = [np.flatnonzero(shapely.contains_xy(b, domain.node_points)) for b in boxes]

    def fitted(rate, **more):
        table = pd.DataFrame({"n": [float(rng.poisson(float((exposure * rate)[at].sum()))) for at in inside]})
        if more:
            table.loc[table["n"].between(*more["suppressed"]), "n"] = np.nan
        areas = bin_areas(gpd.GeoDataFrame(table, geometry=boxes), domain, "n", **more)
        return LGCP(basis, Matern(1.5, lengthscale=4.0), exposure=exposure, covariates=cov).fit(areas)

    cov = None
    assert fitted(np.full(domain.n_nodes, 3.0)).variation().verdict != "varies"
    found = fitted(np.exp(0.25 * east))
    assert found.variation().verdict == "varies" and found.variation().parts == "areas"
    assert fitted(np.exp(0.15 * east - 1.0), suppressed=(1, 8)).variation().verdict == "varies"
    cov = {"east": east}
    told = fitted(np.exp(0.25 * east)).variation()
    assert told.verdict != "varies" and told.score < 0.01


def test_over_time_the_level_is_no_variation(basis, domain, east):
    rng = np.random.default_rng(7)
    level = np.exp(rng.normal(0.0, 0.5, 8))[:, None]
    flat = LGCP(basis, Matern(1.5), dynamics="separable").fit(rng.poisson(0.3 * level * np.ones(len(east))))
    wavy = LGCP(basis, Matern(1.5), dynamics="separable").fit(rng.poisson(0.3 * level * np.exp(0.2 * east - 1)))
    assert flat.variation().verdict == "no evidence" and wavy.variation().verdict == "varies"
    assert "in each period" in wavy.variation().against and math.isnan(wavy.variation().score)
    assert "variation" in wavy.summary() and "variation" not in wavy.at(0).summary()
    with pytest.raises(DataError, match="all periods together"):
        wavy.at(0).variation()
    with pytest.raises(DataError, match="does not have the counts"):
        wavy.forecast(2).variation()


def test_the_sum_of_a_period_is_all_that_one_rate_needs(monkeypatch):
    rng, domain = np.random.default_rng(13), Domain.from_polygons(SQUARE, cell_size=2.0, crs="local")
    basis = HarmonicBasis.compute(domain, m=20, cache=False)
    counts = rng.poisson(2.0 * np.exp(rng.normal(0.0, 0.5, 10))[:, None] * np.ones(domain.n_nodes)).astype(float)
    posterior = LGCP(basis, Matern(1.5, lengthscale=4.0, sd=0.3), dynamics="separable").fit(counts, resume=False)
    short = fitting.fit_without_field(posterior)
    monkeypatch.setattr(fitting, "_counts_of_periods", lambda problem: None)
    whole = fitting.fit_without_field(posterior)
    assert short.elbo == pytest.approx(whole.elbo, abs=1e-3)
    assert short.hyper_mean == pytest.approx(whole.hyper_mean, abs=1e-3)


# -- cases and controls


def persons(rng, n_cases=100, n_controls=300):
    return rng.uniform(0, 10, (n_cases, 2)), rng.uniform(0, 10, (n_controls, 2))


def test_cases_that_are_like_controls_and_cases_that_are_not():
    rng = np.random.default_rng(8)
    cases, controls = persons(rng)
    how = {"crs": "local", "cell_size": 1.0, "permeability": 0}
    flat = map_risk(cases, controls, SQUARE, **how).variation()
    assert flat.verdict == "no evidence" and flat.against == "one risk everywhere" and flat.event == "case"
    cases = cases[rng.uniform(size=len(cases)) < np.where(cases[:, 0] > 5, 1.0, 0.15)]
    assert map_risk(cases, controls, SQUARE, **how).variation().verdict == "varies"


def test_a_map_that_a_constant_beats_is_not_called_fine():
    rng = np.random.default_rng(9)
    posterior = map_risk(*persons(rng), SQUARE, crs="local", cell_size=1.0, permeability=0)
    checked = posterior.cross_validate(rounds=0)
    worse = dataclasses.replace(checked, blocks=checked.blocks.assign(score=-0.02 * checked.blocks["observed"]))
    assert worse.score < 0 and not worse.fine and worse.facts()["fine"] is False
    assert "above" not in worse.verdict() and "worse than by one risk everywhere" in worse.verdict()


def shuffled(seed, domain, n_cases=100, n_controls=300):
    """Return the variation of a map of persons of whom some are called cases at random."""
    rng = np.random.default_rng(seed)
    # Controls crowd together, as people do.
    centre = rng.uniform(0, 10, (8, 2))
    xy = np.clip(centre[rng.integers(8, size=400)] + rng.normal(0, 1.2, (400, 2)), 0.01, 9.99)
    node, order = np.asarray(domain.node_at(xy)), rng.permutation(400)
    cases, controls = (
        Persons(None, node[some], pd.DataFrame(index=range(len(some)))) for some in (order[:n_cases], order[n_cases:])
    )
    return fit_risk(Groups.of(cases, controls), FullRank(domain)).variation(held_out=False)


@pytest.mark.slow
def test_shuffled_labels_seldom_vary():
    domain = Domain.from_polygons(SQUARE, cell_size=1.0, crs="local")
    verdicts = [shuffled(seed, domain).verdict for seed in range(40)]
    assert verdicts.count("varies") <= 4 and verdicts.count("no evidence") >= 25


# -- kept, and left alone


def test_it_is_worked_out_once_and_kept_in_files(basis, east, tmp_path):
    posterior = LGCP(basis, Matern(1.5)).fit(np.random.default_rng(10).poisson(np.exp(0.2 * east - 1.0)))
    assert known_variation(posterior).score != known_variation(posterior).score  # nothing was left out for a summary
    found = posterior.variation()
    assert posterior.fit.notes["cross_validation"] is not None and known_variation(posterior) == found
    assert posterior.in_units("per ha" if posterior.domain.crs else None).variation() == found
    row = dict(posterior.summary().rows())["variation"]
    assert row == found.sentence and posterior.summary()["variation"]["score_per_event"] == found.score
    loaded = Posterior.load(posterior.save(tmp_path / "a.geobgp"))
    assert loaded.variation() == found
    assert loaded.variation(held_out=False).log_bayes_factor == found.log_bayes_factor
    plain = Posterior.load(dataclasses.replace(posterior, fit=dataclasses.replace(posterior.fit)).save(tmp_path / "b"))
    assert not plain.fit.notes and plain.variation().log_bayes_factor == pytest.approx(found.log_bayes_factor)


def test_persons_with_confounders_are_not_in_files_but_the_verdict_is(tmp_path):
    rng = np.random.default_rng(11)
    tables = [pd.DataFrame(xy, columns=["easting", "northing"]) for xy in persons(rng)]
    for table in tables:
        table["age"] = rng.normal(50, 10, len(table))
    how = {"crs": "local", "cell_size": 1.0, "permeability": 0, "confounders": ["age"]}
    posterior = map_risk(*tables, SQUARE, easting="easting", northing="northing", **how)
    with pytest.raises(DataError, match=r"files keep none with confounders.*before it is saved"):
        Posterior.load(posterior.save(tmp_path / "unasked.geobgp")).variation()
    assert "variation" not in Posterior.load(tmp_path / "unasked.geobgp").summary()
    found = posterior.variation()
    assert found.against == "the confounders alone"
    assert Posterior.load(posterior.save(tmp_path / "asked.geobgp")).variation() == found


def at_places(basis, family, rng, sd, n=150):
    """Return a fit of what was observed at random places, about a field of this standard deviation."""
    xy = rng.uniform(0.1, 9.9, (n, 2))
    field = sd * basis.sample_prior(Matern(1.5, 3.0, 1.0), 1, rng, "even")[0][basis.domain.node_at(xy)]
    if family == "gaussian":
        return geobgp.BoundaryGP(basis, KERNEL).fit(xy, 100.0 + 30.0 * (field + 0.5 * rng.normal(size=n)))
    if family == "log":
        return geobgp.BoundaryGP(basis, KERNEL, transform="log").fit(xy, np.exp(3.0 + field + 0.5 * rng.normal(size=n)))
    tested, share = rng.integers(10, 60, n), expit(field - 1.0)
    share = rng.beta(9.0 * share, 9.0 * (1.0 - share)) if family == "beta-binomial" else share
    positive = rng.binomial(tested, share).astype(float)
    return geobgp.BoundaryGP(basis, KERNEL, family).fit(xy, positive, trials=tested.astype(float))


@pytest.mark.parametrize("family", ["gaussian", "log", "binomial", "beta-binomial"])
def test_flat_values_and_shares_do_not_vary_and_fields_do(basis, family):
    rng, few = np.random.default_rng(12), basis.truncate(64)
    flat = [at_places(few, family, rng, 0.0).variation(held_out=False) for _ in range(4)]
    wide = [at_places(few, family, rng, 0.8).variation(held_out=False) for _ in range(3)]
    assert sum(one.verdict == "no evidence" for one in flat) >= 3
    assert not any(one.verdict == "varies" for one in flat)
    assert all(one.verdict == "varies" for one in wide)
    assert wide[0].what == ("value" if family in ("gaussian", "log") else "prevalence") and wide[0].event == "site"


@pytest.mark.parametrize("family", ["gaussian", "binomial"])
def test_values_about_a_field_of_no_width_have_the_evidence_of_none(basis, family):
    rng = np.random.default_rng(13)
    xy, y = rng.uniform(1, 9, (60, 2)), rng.normal(3.0, 2.0, 60)
    none = Matern(1.5, lengthscale=2.0, sd=1e-4)
    if family == "gaussian":
        posterior = geobgp.BoundaryGP(basis, none).fit(xy, y)
    else:
        posterior = geobgp.BoundaryGP(basis, none, family).fit(xy, np.round(np.clip(y, 0, 9)), trials=np.full(60, 9.0))
    assert posterior.variation(held_out=False).log_bayes_factor == pytest.approx(0.0, abs=0.02)


def test_the_evidence_without_a_field_is_the_integral_over_the_noise(basis):
    rng = np.random.default_rng(14)
    xy, y = rng.uniform(1, 9, (40, 2)), rng.normal(50.0, 20.0, 40)
    posterior = geobgp.BoundaryGP(basis, Matern(1.5, lengthscale=2.0, sd=5.0)).fit(xy, y)
    centre, unit = y.mean(), y.std()

    def log_p(noise):
        # The level is N(0, (10 unit)²), the noise exponential with P(> 3 units) = 0.05.
        rate = -math.log(0.05) / (3.0 * unit)
        covariance = noise**2 * np.eye(40) + (10.0 * unit) ** 2
        return multivariate_normal.logpdf(y - centre, cov=covariance) + math.log(rate) - rate * noise

    best = log_p(unit)
    area = quad(lambda s: math.exp(log_p(s) - best), 0.3 * unit, 3.0 * unit, points=[unit], limit=200)[0]
    assert fitting_without(posterior).bound == pytest.approx(best + math.log(area), abs=0.02)


def test_held_out_values_are_compared_with_one_value_everywhere(basis):
    answer = at_places(basis.truncate(64), "gaussian", np.random.default_rng(15), 0.8).variation()
    assert answer.fine and answer.score > 2.0 * answer.se
    assert "nats per site" in answer.sentence and "one value everywhere" in answer.sentence


def test_values_over_periods_have_a_verdict(basis):
    rng, few = np.random.default_rng(16), basis.truncate(40)
    xy, period = rng.uniform(0.5, 9.5, (240, 2)), np.repeat(np.arange(3), 80)
    flat, east = 3.0 * period + rng.normal(size=240), 1.5 * np.sin(xy[:, 0])
    told = []
    for y in (flat, flat + east):
        model, periods = geobgp.BoundaryGP(few, KERNEL), geobgp.Periods.between(np.arange(4.0))
        posterior = model.fit(xy, y, periods=periods, period_of=period, dynamics="separable", resume=False)
        told.append(posterior.variation())
        with pytest.raises(DataError, match="all periods together"):
            posterior.at(0).variation()
    assert [one.verdict for one in told] == ["no evidence", "varies"]
    assert "one value everywhere in each period" in told[1].sentence


def test_values_that_are_not_known_have_no_verdict_but_a_file_keeps_it(basis, tmp_path):
    posterior = at_places(basis.truncate(64), "gaussian", np.random.default_rng(17), 0.8, n=40)
    with pytest.raises(DataError, match="does not have the values"):
        Posterior.load(posterior.save(tmp_path / "without")).variation()
    told = posterior.variation(held_out=False)
    again = Posterior.load(posterior.save(tmp_path / "with")).variation()
    assert again.log_bayes_factor == told.log_bayes_factor and again.what == "value"


def test_covariates_and_confounders_of_cases_and_controls_stand_beside(domain):
    rng = np.random.default_rng(18)
    xy = pd.DataFrame(rng.uniform(0.1, 9.9, (600, 2)), columns=["x", "y"])
    old = rng.random(600) < 0.5
    east = domain.node_points[:, 0]
    ill = rng.random(600) < expit(0.5 * (xy["x"] - 5.0) + 1.0 * old)
    table = xy.assign(age=np.where(old, "old", "young"), ill=ill)
    posterior = geobgp.map_risk(
        table, status="ill", land=SQUARE, crs="local", cell_size=0.5, m=40, confounders=["age"], cache=False,
        covariates={"east": lambda places: places[:, 0]},
    )  # fmt: skip
    told = posterior.variation()
    assert told.verdict == "no evidence" and told.against == "the covariates and confounders alone"
    assert posterior.cross_validate(2.0).score > 0.05 and len(east)
    assert posterior.residuals(n_simulations=39).expected.sum() == pytest.approx(ill.sum(), rel=0.05)


@pytest.mark.parametrize(
    ("points", "more"),
    [("tick_bites_simulated", {}), ("disease_cases_simulated", {"exposure": SAMPLE / "population_netherlands.tif"})],
)
def test_the_samples_vary(points, more):
    land = SAMPLE / "netherlands_land.gpkg"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", geobgp.GeobgpWarning)  # of people beside the land
        posterior = geobgp.map_intensity(
            SAMPLE / f"{points}.gpkg", land, cell_size=8000, m="full", permeability=0, **more
        )
    assert posterior.variation().verdict == "varies"


@pytest.mark.filterwarnings("ignore::geobgp.errors.MissedVarianceWarning")
def test_over_periods_a_curve_that_explains_everything_leaves_no_evidence():
    """The standard deviation of the curve is learned with the field and without."""
    domain = Domain.from_polygons(shapely.box(0, 0, 10, 10), cell_size=1, crs="local")
    basis, rng = HarmonicBasis.compute(domain, m=9, cache=False), np.random.default_rng(0)
    x = rng.uniform(0, 1, domain.n_nodes)
    counts = rng.poisson(3 * np.exp(np.sin(6 * x))[None] * np.ones((4, 1)))
    years = Periods.calendar("year", "2013", "2016")
    straight, curve = (LGCP(basis, Matern(1.5), covariates={"x": c}).fit(counts, periods=years) for c in (x, Smooth(x)))
    assert straight.variation(held_out=False).verdict == "varies"
    assert curve.variation(held_out=False).verdict == "no evidence"
