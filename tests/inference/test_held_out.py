"""Blocks that are held out without a new fit, against new fits and dense matrices written out."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import scipy.sparse as sp
import shapely
from models import all_modes, archipelago, poisson_problem, prior_covariance, square
from scipy.special import gammaln, logsumexp

from geobgp.inference.families import Poisson
from geobgp.inference.held_out import JointNormal, hold_out
from geobgp.land.domain import Domain
from geobgp.model import LGCP
from geobgp.posterior import Posterior
from geobgp.prior.full_rank import FullRank
from geobgp.prior.kernels import Matern

KERNEL = Matern(1.0, lengthscale=4.0, sd=1.2)


def twins(domain: Domain) -> dict[str, object]:
    return {"features": all_modes(domain), "full": FullRank(domain)}


def refit(posterior: Posterior, out: np.ndarray, covariates: dict | None = None) -> Posterior:
    """Fit again without the observations of some nodes, hyperparameters held."""
    exposure, counts = posterior.exposure.copy(), posterior.observed.copy()
    exposure[out] = counts[out] = 0.0
    kernel = posterior.kernel.with_parameters(posterior.lengthscale, posterior.sd)
    model = LGCP(posterior.basis, kernel, exposure=exposure, covariates=covariates, scaling=posterior.scaling)
    return model.fit(counts)


def reference_score(without: Posterior, posterior: Posterior, block: np.ndarray, n: int = 200_000) -> float:
    """Log probability of a block's counts under a fit without them, by plain Monte Carlo."""
    state = without.fit.states[0]
    mean, covariance = state.node_moments()[0][block], state.node_covariance(block)
    rng = np.random.default_rng(0)
    f = rng.multivariate_normal(mean, covariance, n, method="cholesky")
    y, exposure = posterior.observed[block], posterior.exposure[block]
    logs = f @ y - np.exp(f) @ exposure + float(np.sum(y * np.log(exposure) - gammaln(y + 1)))
    return float(logsumexp(logs) - np.log(n))


def held_out(posterior: Posterior, block: np.ndarray, rounds: int = 6):
    """Hold out a block; every other node is its neighbour."""
    nodes = np.concatenate([block, np.setdiff1d(np.arange(posterior.domain.n_nodes), block)])
    state = posterior.fit.states[0]
    at = JointNormal(state.node_moments()[0][nodes], state.node_covariance(nodes))

    def observed(some):
        return Poisson(posterior.observed[nodes[some]], posterior.exposure[nodes[some]])

    return hold_out(at, observed, len(block), len(block), rounds)


@pytest.mark.parametrize("kind", ["features", "full"])
def test_the_joint_covariance_is_that_of_matrices_written_out(kind):
    domain = archipelago()
    basis = twins(domain)[kind]
    problem = poisson_problem(domain)
    posterior = LGCP(basis, KERNEL, exposure=problem.exposure, scaling="natural").fit(problem.counts)
    state = posterior.fit.states[0]
    mean, variance = state.node_moments()
    prior = prior_covariance(all_modes(domain), KERNEL)
    sites = np.diag(problem.exposure * np.exp(mean + variance / 2))
    whole = np.linalg.inv(np.linalg.inv(prior) + sites)
    nodes = np.random.default_rng(1).permutation(domain.n_nodes)[:60]
    np.testing.assert_allclose(state.node_covariance(nodes), whole[np.ix_(nodes, nodes)], atol=1e-5)


@pytest.mark.parametrize("kind", ["features", "full", "permeable"])
def test_its_diagonal_is_the_variance_with_an_even_prior_and_covariates(kind):
    domain = archipelago()
    basis = FullRank(domain, permeability=0.5) if kind == "permeable" else twins(domain)[kind]
    slope = {"east": domain.node_points[:, 0]}
    posterior = LGCP(basis, KERNEL, covariates=slope).fit(poisson_problem(domain).counts)
    state = posterior.fit.states[0]
    nodes = np.arange(domain.n_nodes)[::-1]
    covariance = state.node_covariance(nodes)
    np.testing.assert_allclose(covariance.diagonal(), state.node_moments()[1][nodes], rtol=1e-6)
    np.testing.assert_allclose(covariance, covariance.T, atol=1e-12)
    draws = np.log(np.asarray(posterior.sample(4000, rng=1)))[:, nodes]
    np.testing.assert_allclose(np.cov(draws.T), covariance, atol=0.12 * covariance.max())


def test_sites_taken_away_from_a_gaussian_leave_the_prior():
    rng = np.random.default_rng(0)
    root = rng.normal(size=(6, 6))
    prior, mean = root @ root.T + np.eye(6), rng.normal(size=6)
    problem = Poisson(rng.poisson(3.0, 6).astype(float), np.ones(6))
    precision = np.linalg.inv(prior)
    m, v = mean.copy(), prior.diagonal() * 0.1
    for _ in range(500):  # plain damped rounds, to the fixed point
        rate = np.exp(m + v / 2)
        covariance = np.linalg.inv(precision + np.diag(rate))
        step = covariance @ (precision @ mean + problem.counts - rate + rate * m)
        m, v = 0.7 * m + 0.3 * step, 0.7 * v + 0.3 * covariance.diagonal()
    bare = JointNormal(m, covariance).without(problem)
    np.testing.assert_allclose(bare.covariance, prior, rtol=1e-6)
    np.testing.assert_allclose(bare.mean, mean, atol=1e-6)


@pytest.mark.parametrize("kind", ["features", "full"])
@pytest.mark.parametrize("scaling", ["even", "natural"])
def test_blocks_agree_with_new_fits(kind, scaling):
    domain = archipelago()
    basis = twins(domain)[kind]
    slope = {"north": domain.node_points[:, 1]}
    counts = poisson_problem(domain, seed=2, total=250).counts
    posterior = LGCP(basis, KERNEL, covariates=slope, scaling=scaling).fit(counts)
    x, y = domain.node_points.T
    for east, north in ((1.0, 1.0), (9.0, 6.0), (14.5, 2.5)):
        block = np.flatnonzero((np.abs(x - east) < 1.3) & (np.abs(y - north) < 1.3))
        again = refit(posterior, block, slope)
        found = held_out(posterior, block)
        mean, variance = (v[block] for v in again.fit.states[0].node_moments())
        events = max(counts[block].sum(), 1.0)
        np.testing.assert_allclose(found.predicted.mean, mean, atol=0.03)
        np.testing.assert_allclose(found.predicted.variance, variance, rtol=0.02)
        assert found.log_score == pytest.approx(reference_score(again, posterior, block), abs=0.02 * events)


def test_rounds_mend_what_clustered_data_break():
    domain = square(14.0)
    rng = np.random.default_rng(4)
    centres = rng.uniform(0, 14, (6, 2))
    gap = ((domain.node_points[:, None] - centres) ** 2).sum(axis=2)
    counts = rng.poisson(0.05 + 12 * np.exp(-gap / 1.5).sum(axis=1)).astype(float)
    posterior = LGCP(FullRank(domain), Matern(1.0, 5.0, 3.0)).fit(counts)
    block = np.flatnonzero((np.abs(domain.node_points - centres[0]) < 2.1).all(axis=1))
    truth = refit(posterior, block).fit.states[0].node_moments()[0][block]
    plain, mended = (held_out(posterior, block, rounds).predicted.mean for rounds in (0, 6))
    assert np.abs(mended - truth).max() < 0.05 < 3 * 0.05 < np.abs(plain - truth).max()


def test_what_is_far_from_everything_is_predicted_by_the_prior():
    isle = shapely.box(40, 40, 44, 44)
    domain = Domain.from_polygons([shapely.box(0, 0, 10, 10), isle], cell_size=1.0, crs="local")
    counts = poisson_problem(domain).counts
    posterior = LGCP(FullRank(domain), KERNEL).fit(counts)
    block = np.flatnonzero(domain.node_points[:, 0] > 30)
    predicted = held_out(posterior, block).predicted
    level = posterior.coefficients["sd"].iloc[0] ** 2
    assert np.all(predicted.variance > KERNEL.sd**2)
    np.testing.assert_allclose(predicted.variance, KERNEL.sd**2 + level, rtol=0.2)
    assert np.ptp(predicted.mean) < 0.05


def test_a_block_of_the_inverse_is_that_of_a_dense_one():
    posterior = LGCP(FullRank(archipelago(0.3)), KERNEL).fit(poisson_problem(archipelago(0.3)).counts)
    state = posterior.fit.states[0]
    factor = state._factor()
    n = factor.fronts.n
    rng = np.random.default_rng(3)
    where = np.repeat(np.arange(7), 4), rng.integers(0, n, 28)
    rows = sp.csr_array((rng.normal(size=28), where), shape=(7, n))
    expected = rows @ factor.solve(rows.T.toarray())
    np.testing.assert_allclose(factor.inverse_block(rows), expected, atol=1e-10 * np.abs(expected).max())


def test_overdone_priors_do_not_run_away():
    """A prior sd of 9: log-rates differ by tens, and undamped rounds would overflow."""
    domain = square(10.0)
    counts = np.zeros(domain.n_nodes)
    counts[[3, 55, 56]] = 40, 90, 30
    posterior = LGCP(all_modes(domain, m=40), Matern(1.5, 3.0, 9.0)).fit(counts)
    block = np.flatnonzero(domain.node_points[:, 0] < 4)
    for rounds in (0, 6):
        found = held_out(posterior, block, rounds)
        assert np.isfinite(found.log_score) and -2000 < found.log_score < 0


def test_states_weigh_anew():
    """A mixture's score is the harmonic mean over its states: 1 / E 1 / p."""
    domain = square(10.0)
    posterior = LGCP(FullRank(domain), Matern(1.0)).fit(poisson_problem(domain).counts, hyper="integrate")
    assert len(posterior.fit.states) > 3
    singles = []
    for state in posterior.fit.states:
        fit = dataclasses.replace(posterior.fit, states=(dataclasses.replace(state, weight=1.0),))
        singles.append(dataclasses.replace(posterior, fit=fit).cross_validate(5.0).blocks["log_density"])
    weights = np.array([state.weight for state in posterior.fit.states])
    expected = -logsumexp(-np.array(singles), b=weights[:, None], axis=0)
    np.testing.assert_allclose(posterior.cross_validate(5.0).blocks["log_density"], expected, atol=1e-8)
