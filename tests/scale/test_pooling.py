"""Small strata borrow: the common prior is that of the draws, and brings estimates nearer to the truth."""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd
import pytest
import shapely
from scipy.optimize import minimize

from geobgp import LGCP, Domain, FullRank, map_strata
from geobgp.prior.kernels import Matern, NormalPrior, PCPrior
from geobgp.scale.strata import NARROWEST, REACH, Evidence, learn_prior, moved


def told(seen, spread):
    return [Evidence(np.diag(1.0 / s**2), t / s**2) for t, s in zip(seen, spread, strict=True)]


def test_the_prior_maximises_the_likelihood_of_all():
    rng = np.random.default_rng(3)
    theta = rng.normal([8.0, 0.3], [0.6, 0.25], (60, 2))
    spread = rng.uniform(0.05, 1.5, (60, 2))
    seen = theta + spread * rng.standard_normal((60, 2))
    found = learn_prior(told(seen, spread), seen)

    def minus(x):
        v = np.exp(2 * x[2:]) + spread**2
        return 0.5 * np.sum(np.log(v) + (seen - x[:2]) ** 2 / v)

    best = minimize(minus, [8.0, 0.0, -0.5, -1.0], method="Nelder-Mead", options={"maxiter": 4000, "xatol": 1e-5}).x
    np.testing.assert_allclose([found.log_lengthscale[0], found.log_sd[0]], best[:2], atol=0.01)
    np.testing.assert_allclose([found.log_lengthscale[1], found.log_sd[1]], np.exp(best[2:]), rtol=0.03)


def test_strata_that_say_nothing_change_nothing():
    rng = np.random.default_rng(4)
    seen = rng.normal([8.0, 0.0], 0.5, (30, 2))
    some = told(seen, np.full((30, 2), 0.1))
    nothing = [Evidence(np.zeros((2, 2)), np.zeros(2))] * 20
    a, b = learn_prior(some, seen), learn_prior(some + nothing, np.vstack([seen, seen[:20]]))
    np.testing.assert_allclose([*a.log_lengthscale, *a.log_sd], [*b.log_lengthscale, *b.log_sd], atol=0.01)
    assert moved(None, a) == np.inf and moved(a, a) == 0.0 and moved(a, b) < 0.05


def test_strata_that_agree_are_nearly_one():
    seen = np.tile([8.0, 0.0], (10, 1))
    found = learn_prior(told(seen, np.full((10, 2), 0.5)), seen)
    assert found.log_sd[1] == pytest.approx(NARROWEST, rel=0.5)


def test_evidence_is_what_the_prior_is_not():
    # A quadratic log-likelihood about (7, -1), and a prior: at the best θ under both, the first is found again.
    precision = np.array([[3.0, 1.0], [1.0, 2.0]])
    centre = np.array([7.0, -1.0])
    for prior in (PCPrior((500.0, 0.05), (3.0, 0.05)), NormalPrior((8.0, 0.7), (0.5, 0.4))):

        def minus(theta, prior=prior):
            d = theta - centre
            return 0.5 * d @ precision @ d - prior.log_density(theta)[0].sum()

        best = minimize(minus, centre, tol=1e-12).x
        curvature = precision - np.diag(prior.log_density(best)[2])
        found = Evidence.of_fit(best, np.linalg.inv(curvature), prior)
        np.testing.assert_allclose(found.precision, precision, atol=1e-6)
        np.testing.assert_allclose(np.linalg.solve(found.precision, found.natural), centre, atol=1e-3)
    fixed = Evidence.of_fit(centre, np.zeros((2, 2)), prior)
    assert not fixed.precision.any() and not fixed.natural.any()


def test_evidence_is_the_same_wherever_the_search_ended():
    # Under a narrow prior a hundredth off the best θ is a slope of ten: it is the search's, not the counts'.
    precision, centre = np.array([[3.0, 1.0], [1.0, 2.0]]), np.array([8.5, 0.2])
    prior = NormalPrior((8.0, 0.03), (0.5, 0.03))
    for theta in (np.array([8.0, 0.5]), np.array([8.01, 0.49]), np.array([7.5, 0.9])):
        _, slope, bend = prior.log_density(theta)
        gradient = slope - precision @ (theta - centre)
        found = Evidence.of_fit(theta, np.linalg.inv(precision - np.diag(bend)), prior, gradient)
        np.testing.assert_allclose(found.precision, precision, atol=1e-9)
        np.testing.assert_allclose(np.linalg.solve(found.precision, found.natural), centre, atol=1e-9)


def test_a_bound_that_bends_upwards_keeps_its_slope():
    theta, upwards, slope = np.array([8.0, 0.5]), np.diag([-0.4, 5.0]), np.array([0.6, -0.3])
    prior = NormalPrior((7.9, 0.1), (0.5, 0.1))
    _, of_prior, bend = prior.log_density(theta)
    found = Evidence.of_fit(theta, np.linalg.inv(upwards - np.diag(bend)), prior, slope + of_prior)
    np.testing.assert_allclose(found.natural - found.precision @ theta, slope)
    np.testing.assert_allclose(np.linalg.solve(found.precision, found.natural) - theta, [REACH, -0.06])


LAND, RIVER = shapely.box(0, 0, 18, 18), shapely.box(8.3, 0, 9.6, 15)
TOLD = {"water": RIVER, "crs": "local", "cell_size": 1.0, "m": "full", "n_jobs": 1}


def on_both_shores(field, n, rng):
    """Return n points from the exponential of a field, a function of the nodes' coordinates or a value at each."""
    domain = Domain.from_polygons(LAND, water=RIVER, cell_size=1.0, crs="local")
    values = field(domain.node_points) if callable(field) else field
    weight = domain.node_areas * np.exp(values)
    node = rng.choice(domain.n_nodes, n, p=weight / weight.sum())
    return pd.DataFrame(domain.node_points[node], columns=["easting", "northing"])


def split_at_random():
    """Return smooth bumps that know nothing of the river, in strata of few and of many points that do not differ."""
    rng = np.random.default_rng(5)
    places, heights = rng.uniform(0, 18, (12, 2)), rng.choice([-1.5, 1.5], 12)

    def bumps(at):
        squares = ((at[:, None] - places) ** 2).sum(axis=2)
        return np.exp(-0.5 * squares / 2.0**2) @ heights

    points = on_both_shores(bumps, 500, rng)
    share = np.exp(rng.normal(0.0, 1.2, 8))
    points["k"] = rng.choice([f"{k:02d}" for k in range(8)], len(points), p=share / share.sum())
    return points


@cache
def pooled_at_random(permeability):
    return map_strata(split_at_random(), LAND, "k", pool=True, permeability=permeability, **TOLD)


@pytest.mark.filterwarnings("ignore::geobgp.errors.GeobgpWarning")
@pytest.mark.parametrize("permeability", [0.0, 1.0])
def test_one_pattern_split_at_random_is_pooled_where_all_bounds_together_are_highest(permeability):
    strata = pooled_at_random(permeability)
    (length, by_length), (sd, by_sd) = strata.prior.log_lengthscale, strata.prior.log_sd
    assert by_length < 0.2 and by_sd < 0.2

    def together(step):
        at = np.exp([length + step[0], sd + step[1]])
        model = LGCP(strata.pooled.basis, Matern(1.0, *at))
        return sum(model.fit(posterior.observed).elbo for posterior in strata.values())

    steps = 0.2 * np.array([(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1)])
    x, y = steps.T
    quadratic = np.linalg.lstsq(
        np.column_stack([np.ones(9), x, y, x * x, x * y, y * y]), [together(s) for s in steps], rcond=None
    )[0]
    bend = np.array([[2 * quadratic[3], quadratic[4]], [quadratic[4], 2 * quadratic[5]]])
    assert (np.linalg.eigvalsh(bend) < 0).all()
    to_gain = -0.5 * quadratic[1:3] @ np.linalg.solve(bend, quadratic[1:3])
    assert to_gain < 0.02  # nats, of all strata together


@pytest.mark.filterwarnings("ignore::geobgp.errors.GeobgpWarning")
@pytest.mark.parametrize("permeability", [0.0, 1.0])
def test_strata_that_differ_are_told_apart(permeability):
    domain = Domain.from_polygons(LAND, water=RIVER, cell_size=1.0, crs="local")
    prior, rng, tables = FullRank(domain, permeability=permeability), np.random.default_rng(8), []
    lengths = {"short": 1.5, "long": 9.0}
    for name, length in lengths.items():
        for k, field in enumerate(prior.sample_prior(Matern(1.0, length, 1.2), 4, rng, "even")):
            tables.append(on_both_shores(field, 800, rng).assign(k=f"{name} {k}"))
    strata = map_strata(pd.concat(tables), LAND, "k", pool=True, permeability=permeability, **TOLD)
    assert 0.4 < strata.prior.log_lengthscale[1] < 1.5 and strata.prior.log_sd[1] < 0.4
    for name, posterior in strata.items():
        assert (posterior.lengthscale > 3.7) == name.startswith("long"), name


@pytest.mark.filterwarnings("ignore::geobgp.errors.GeobgpWarning")
def test_counts_with_more_spread_are_pooled_nearly_there():
    told = TOLD | {"pool": True, "permeability": 1.0, "likelihood": "negative-binomial"}
    plain, spread = pooled_at_random(1.0).prior, map_strata(split_at_random(), LAND, "k", **told).prior
    assert abs(spread.log_lengthscale[0] - plain.log_lengthscale[0]) < 0.3 and spread.log_lengthscale[1] < 0.2
    assert abs(spread.log_sd[0] - plain.log_sd[0]) < 0.2 and spread.log_sd[1] < 0.2


@pytest.mark.filterwarnings("ignore::geobgp.errors.GeobgpWarning")
def test_small_strata_borrow():
    square = shapely.box(0, 0, 18, 18)
    domain = Domain.from_polygons(square, cell_size=1.0, crs="local")
    rng = np.random.default_rng(5)
    length, sd, tables = 4.0, 1.2, []
    fields = FullRank(domain).sample_prior(Matern(1.0, length, sd), 12, rng, "even")
    for k, f in enumerate(fields):
        n = 40 if k % 2 else 500
        node = rng.choice(domain.n_nodes, n, p=np.exp(f) / np.exp(f).sum())
        coords = domain.node_points[node] + rng.uniform(-0.5, 0.5, (n, 2))
        tables.append(pd.DataFrame(coords, columns=["easting", "northing"]).assign(k=f"{k:02d}"))
    told = {"crs": "local", "cell_size": 1.0, "m": "full", "permeability": 0.0, "n_jobs": 1}
    free, pooled = (map_strata(pd.concat(tables), square, "k", pool=pool, **told) for pool in (False, True))
    small = [name for name in free if free[name].n_points == 40]

    def off(strata):
        theta = np.array([strata[n].fit.hyper_mean for n in small])
        return np.sqrt(np.mean((theta - np.log([length, sd])) ** 2, axis=0))

    assert (off(pooled) < 0.7 * off(free)).all(), (off(pooled), off(free))
    assert free.prior is None and pooled.prior is not None
    m, s = pooled.prior.log_lengthscale
    assert abs(m - np.log(length)) < 0.4 and s < 0.5
    assert all(p.kernel.prior == pooled.prior for p in pooled.values())
    assert "partly pooled" in pooled["01"].choices["hyperparameters"]
