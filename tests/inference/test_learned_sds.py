"""Effects whose standard deviation is learned: gradients of every engine, the prior, and what is found."""

import numpy as np
import pytest
from chains import engine_of
from models import archipelago
from scipy import sparse
from shapely.geometry import box

from geobgp import LGCP, BoundaryGP, Domain, FullRank, Group, HarmonicBasis, Matern, Smooth
from geobgp.inference.dense import NodeFeatures, RowEngine
from geobgp.inference.engine import Sites, engine_for
from geobgp.inference.hyper import Hyper

KERNEL = Matern(1.0)
#: Columns of two covariates whose effects have standard deviations of their own.
BLOCKS = np.array([1, 2, 3]), np.array([5, 6])


def engines():
    """Engines of features, of full resolution, of areas and over periods, with seven columns, and θ of each."""
    domain = archipelago()
    columns = np.column_stack([np.ones(domain.n_nodes), np.random.default_rng(1).standard_normal((domain.n_nodes, 6))])
    basis, sd = HarmonicBasis.compute(domain, 20, cache=False), np.full(7, 1.5)
    shares = sparse.csr_array(np.random.default_rng(2).dirichlet(np.full(domain.n_nodes, 0.1), 12))
    space = np.log([2.0, 0.8])
    yield engine_for(basis, KERNEL, columns, sd, scaling="even"), space
    yield engine_for(FullRank(domain), KERNEL, columns, sd, scaling="even"), space
    yield RowEngine(NodeFeatures(basis, KERNEL, "even"), shares, columns, sd, 0.0), space
    yield engine_of(basis, KERNEL, 3, columns=columns), np.log([3.0, 0.8, 2.0, 0.6, 5.0])


@pytest.mark.parametrize("which", range(4))
def test_the_gradient_in_their_logs_is_that_of_differences(which):
    engine, theta = list(engines())[which]
    first = len(theta)
    engine.learned = tuple((first + i, columns) for i, columns in enumerate(BLOCKS))
    theta = np.append(theta, np.log([0.4, 1.7]))
    rng, n = np.random.default_rng(0), len(engine.design)
    sites = Sites(rng.gamma(1.0, 1.0, n), rng.standard_normal(n))
    gradient = engine.objective(theta, sites)[1]
    for i in range(len(theta)):
        step = np.eye(len(theta))[i] * 1e-4
        ahead, behind = engine.objective(theta + step, sites)[0], engine.objective(theta - step, sites)[0]
        assert gradient[i] == pytest.approx((ahead - behind) / 2e-4, rel=1e-4, abs=2e-5)


def test_they_are_as_if_they_had_been_given():
    """At a value of its own a learned standard deviation gives the posterior of a fixed one."""
    engine, theta = next(engines())
    rng, n = np.random.default_rng(0), len(engine.design)
    sites = Sites(rng.gamma(1.0, 1.0, n), rng.standard_normal(n))
    given = next(engines())[0]
    given.fixed_precision = given.fixed_precision.copy()
    given.fixed_precision[BLOCKS[0]] *= 0.4**-2
    engine.learned = ((2, BLOCKS[0]),)
    ours, theirs = engine.posterior(np.append(theta, np.log(0.4)), sites), given.posterior(theta, sites)
    np.testing.assert_allclose(ours.mean, theirs.mean)
    np.testing.assert_allclose(ours.variance, theirs.variance)
    assert ours.divergence == pytest.approx(theirs.divergence)


def test_their_prior_has_the_rates_that_are_asked_for():
    hyper = Hyper.for_domain(Matern(1.5), 10.0, 0.1).with_effects({"rain": np.arange(3)}, [-np.log(0.01)])
    assert hyper.names[-1] == "effects of rain" and hyper.learned[0][0] == 2
    assert hyper.mixed.tolist() == [True, True, False]
    t, e = np.linspace(-14, 3, 40001), 1e-5
    base = hyper.start.copy()
    density = np.exp([hyper.log_prior(np.r_[base[:2], x])[0] - hyper.log_prior(base)[0] for x in t[::20]])
    above = density[t[::20] > 0].sum() / density.sum()
    assert above == pytest.approx(0.01, rel=0.05)
    step = np.array([0.0, 0.0, e])
    slope = (hyper.log_prior(base + step)[0] - hyper.log_prior(base - step)[0]) / (2 * e)
    assert hyper.log_prior(base)[1][2] == pytest.approx(slope, rel=1e-5)


@pytest.fixture(scope="module")
def square_land():
    return Domain.from_polygons(box(0, 0, 10, 10), cell_size=0.4, crs="local")


def test_engines_agree_on_a_curve_and_a_group(square_land):
    domain, rng = square_land, np.random.default_rng(1)
    x, group = rng.uniform(0, 1, domain.n_nodes), rng.integers(0, 12, domain.n_nodes)
    rate = np.exp(3.0 + 1.2 * np.exp(-(((x - 0.5) / 0.15) ** 2)) + rng.normal(0, 0.6, 12)[group])
    counts = rng.poisson(rate * domain.node_areas)
    covariates = {"x": Smooth(x), "group": Group(group)}
    kernel = Matern(1.0, lengthscale=5.0, sd=0.2)
    fits = [
        LGCP(basis, kernel, covariates=covariates).fit(counts)
        for basis in (HarmonicBasis.compute(domain, 256, cache=False), FullRank(domain))
    ]
    taus = [np.exp(posterior.fit.hyper_mean[2:]) for posterior in fits]
    np.testing.assert_allclose(*taus, rtol=0.03)
    assert taus[0][0] > 0.2 and 0.3 < taus[0][1] < 1.0
    assert all(posterior.converged for posterior in fits)


def test_values_and_periods_have_them_too(square_land):
    domain, rng = square_land, np.random.default_rng(3)
    places = rng.uniform(0.5, 9.5, (400, 2))
    x = domain.node_points[:, 0]
    seen = x[domain.node_at(places)]
    values = 100.0 + 20.0 * np.sin(seen) + rng.normal(0, 3.0, 400)
    basis = HarmonicBasis.compute(domain, 64, cache=False)
    kernel = Matern(1.0, lengthscale=5.0, sd=1.0)
    fit = BoundaryGP(basis, kernel, covariates={"x": Smooth(x, k=12)}).fit(places, values)
    mean = fit.node_intensity()["mean"].to_numpy()
    assert np.corrcoef(mean, np.sin(x))[0, 1] > 0.97
    assert fit.fit.hyper_mean[3] > np.log(3.0)  # in the values' own unit
    counts = rng.poisson(3.0 * np.exp(np.sin(x)) * domain.node_areas, (3, domain.n_nodes)).astype(float)
    model = LGCP(basis, Matern(1.0, lengthscale=5.0, sd=0.2), covariates={"x": Smooth(x, k=12)}, dynamics="separable")
    over = model.fit(counts)
    assert len(over.fit.hyper_mean) == 6 and over.converged
    assert np.corrcoef(over.fit.states[0].node_moments()[0].mean(axis=0), np.sin(x))[0, 1] > 0.95
