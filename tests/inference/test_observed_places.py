"""What was observed at places: surveys, values, covariates there; and between the nodes at full resolution."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit
from shapely import box

from geobgp import BoundaryGP, DataError, Domain, FullRank, HarmonicBasis, Matern, Posterior
from geobgp.inference.engine import Sites, engine_for


@pytest.fixture(scope="module")
def domain():
    return Domain.from_polygons(box(0, 0, 12, 12), cell_size=1, crs="local")


@pytest.fixture(scope="module")
def basis(domain):
    return HarmonicBasis.compute(domain, 40, cache=False)


def sites_of(n, seed=0):
    rng = np.random.default_rng(seed)
    return rng, rng.uniform(0.2, 11.8, (n, 2))


@pytest.mark.parametrize("full", [False, True])
def test_more_spread_than_chance_is_recovered(domain, basis, full):
    rng, places = sites_of(260)
    share = expit(0.8 * np.sin(places[:, 0] / 2.0) - 0.7)
    tested = rng.integers(15, 60, 260).astype(float)
    positive = rng.binomial(tested.astype(int), rng.beta(6.0 * share, 6.0 * (1 - share))).astype(float)
    prior, kernel = (FullRank(domain), Matern(1.0, 4.0, 0.8)) if full else (basis, Matern(1.5, 4.0, 0.8))
    wide = BoundaryGP(prior, kernel, "beta-binomial").fit(places, positive, trials=tested)
    plain = BoundaryGP(prior, kernel, "binomial").fit(places, positive, trials=tested)
    assert wide.likelihood.k == pytest.approx(6.0, rel=0.35)
    assert wide.elbo - plain.elbo == pytest.approx(wide.likelihood.gain, abs=0.1)
    assert wide.likelihood.gain > 50
    mean = wide.predict_y(places)[0]
    assert np.abs(mean - share).mean() < 0.06
    # Sites that vary by themselves say less of the field.
    assert (wide.predict(places)[1] > plain.predict(places)[1]).mean() > 0.9


def test_a_chance_share_does_not_call_for_more_spread(basis):
    rng, places = sites_of(150, 1)
    tested = np.full(150, 30.0)
    positive = rng.binomial(30, expit(0.5 * np.cos(places[:, 1] / 2.0))).astype(float)
    wide = BoundaryGP(basis, Matern(1.5, 4.0, 0.5), "beta-binomial").fit(places, positive, trials=tested)
    assert wide.likelihood.gain < 2.0


@pytest.mark.parametrize("full", [False, True])
def test_a_covariate_of_the_places_is_learned(domain, basis, full):
    rng, places = sites_of(200, 2)
    height = rng.normal(size=200)
    values = 3.0 + 2.0 * height + np.sin(places[:, 0] / 2.0) + rng.normal(0, 0.2, 200)
    prior = FullRank(domain) if full else basis
    at_nodes = {"height": domain.node_points[:, 0]}
    model = BoundaryGP(prior, Matern(1.0 if full else 1.5, lengthscale=5.0), covariates=at_nodes)
    posterior = model.fit(places, values, covariates={"height": height})
    row = posterior.coefficients.set_index("name").loc["height"]
    assert row["mean"] == pytest.approx(2.0, abs=0.1)
    mean, _ = posterior.predict(places, {"height": height})
    assert np.corrcoef(mean, values)[0, 1] > 0.99
    again = model.fit(places, values)  # by default those of the nodes
    assert abs(again.coefficients.set_index("name").loc["height", "mean"]) < 0.5


def test_between_nodes_it_is_the_dense_algebra(domain):
    """Sites at places, even prior: against the covariance of the field written out."""
    full, kernel = FullRank(domain), Matern(1.0, 3.0, 0.9)
    rng, places = sites_of(25, 3)
    n = domain.n_nodes
    theta = np.log([3.0, 0.9])
    sites = Sites(rng.uniform(0.5, 3.0, 25), rng.normal(size=25))
    engine = engine_for(full, kernel, np.ones((n, 1)), np.array([10.0]), 0.0, places, "even")
    moments = engine.posterior(theta, sites)
    at_nodes = engine_for(full, kernel, np.ones((n, 1)), np.array([10.0]), 0.0, None, "even")
    tiny = Sites(np.full(n, 1e-12), np.zeros(n))
    prior = at_nodes.state(theta, tiny, 1.0)
    cov = prior.node_covariance(np.arange(n)) - 100.0  # less the intercept's
    weights = domain.interpolation(places)[0].toarray()  # all cells are whole: e is smooth between nodes
    e = np.exp(weights @ np.log(prior.even))[:, None] * weights / prior.even
    joint = e @ cov @ e.T + 100.0
    inner = np.linalg.inv(np.linalg.inv(joint + 1e-9 * np.eye(25)) + np.diag(sites.precision))
    np.testing.assert_allclose(moments.mean, inner @ sites.natural, atol=2e-4)
    np.testing.assert_allclose(moments.variance, np.diag(inner), atol=2e-4)
    state = engine.state(theta, sites, 1.0)
    mean, variance = state.moments_at(places)
    np.testing.assert_allclose(mean, moments.mean, atol=1e-8)
    np.testing.assert_allclose(variance, moments.variance, atol=1e-8)
    joint_mean, covariance = state.joint_at(places)
    np.testing.assert_allclose(joint_mean, mean, atol=1e-8)
    np.testing.assert_allclose(np.diag(covariance), variance, atol=1e-8)


def test_the_gradient_between_nodes_is_that_of_differences(domain):
    full, kernel = FullRank(domain), Matern(1.0)
    rng, places = sites_of(30, 4)
    sites = Sites(rng.uniform(0.5, 3.0, 30), rng.normal(size=30))
    engine = engine_for(full, kernel, np.ones((domain.n_nodes, 1)), np.array([10.0]), 0.0, places, "even")
    theta, step = np.log([3.0, 0.9]), 1e-4
    gradient = engine.objective(theta, sites)[1]
    for i in range(2):
        up, down = theta.copy(), theta.copy()
        up[i] += step
        down[i] -= step
        slope = (engine.objective(up, sites)[0] - engine.objective(down, sites)[0]) / (2 * step)
        assert gradient[i] == pytest.approx(slope, rel=2e-3, abs=1e-4)


def test_fine_and_coarse_cells_agree_between_nodes():
    """A value measured at a place is seen there, not at the middle of its cell."""
    rng, places = sites_of(120, 5)
    values = places[:, 0] + rng.normal(0, 0.05, 120)
    errors = []
    for cell in (2.0, 1.0):
        land = Domain.from_polygons(box(0, 0, 12, 12), cell_size=cell, crs="local")
        posterior = BoundaryGP(FullRank(land), Matern(1.0)).fit(places, values)
        new = np.random.default_rng(6).uniform(1.0, 11.0, (300, 2))
        errors.append(float(np.abs(posterior.predict(new)[0] - new[:, 0]).mean()))
    # By the node alone the error would be a quarter of a cell: 0.5 and 0.25.
    assert max(errors) < 0.12


def test_a_fit_between_nodes_comes_back_from_its_file(domain, tmp_path):
    rng, places = sites_of(40, 7)
    posterior = BoundaryGP(FullRank(domain), Matern(1.0, 4.0, 1.0), noise=0.3).fit(places, rng.normal(size=40))
    again = Posterior.load(posterior.save(tmp_path / "fit"))
    for one, other in zip(posterior.predict(places), again.predict(places), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)


def test_mistakes_are_named(basis):
    places = np.full((3, 2), 5.0)
    with pytest.raises(DataError, match="needs how many were tested"):
        BoundaryGP(basis, likelihood="binomial").fit(places, np.ones(3))
    with pytest.raises(DataError, match="belong to a binomial likelihood"):
        BoundaryGP(basis).fit(places, np.ones(3), trials=np.ones(3))
    with pytest.raises(DataError, match="found 2 for 3"):
        BoundaryGP(basis, likelihood="beta-binomial").fit(places, np.ones(3), trials=np.ones(2))
    with pytest.raises(DataError, match="3 of 3 are not"):
        BoundaryGP(basis, likelihood="binomial").fit(places, np.full(3, 4.0), trials=np.full(3, 2.0))
