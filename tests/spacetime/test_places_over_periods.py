"""Values, surveys and persons over periods: against dense algebra, and one period against none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from shapely import box

from geobgp import BoundaryGP, DataError, Domain, FullRank, HarmonicBasis, Matern, Periods, Posterior
from geobgp.data.effects import Effects
from geobgp.data.inputs import Inputs
from geobgp.data.persons import Groups
from geobgp.inference.chain_fit import place_chain, setting_of
from geobgp.inference.engine import Sites
from geobgp.inference.families import FAMILIES
from geobgp.model import RiskModel


@pytest.fixture(scope="module")
def domain():
    """An island beside a square with a lake."""
    land = box(0, 0, 8, 8).difference(box(3, 3, 5, 5)).union(box(9, 0, 11, 8))
    return Domain.from_polygons(land, cell_size=1, crs="local")


@pytest.fixture(scope="module")
def basis(domain):
    return HarmonicBasis.compute(domain, 20, cache=False)


def survey(domain, n, n_periods, seed=0):
    """Return places on land, and the period of each; the last but one has none."""
    rng = np.random.default_rng(seed)
    places = domain.node_points[rng.integers(domain.n_nodes, size=n)] + rng.uniform(-0.45, 0.45, (n, 2))
    period = rng.integers(n_periods, size=n)
    if n_periods > 2:
        period[period == n_periods - 2] = 0
    return rng, places, period


@pytest.mark.parametrize("scaling", ["natural", "even"])
@pytest.mark.parametrize("kind", ["separable", "diffusive"])
def test_it_is_the_dense_algebra(domain, basis, scaling, kind):
    n_periods, kernel, noise = 5, Matern(1.5, 4.0, 0.9), 0.3
    rng, places, period = survey(domain, 40, n_periods)
    period = np.sort(period)
    values = rng.normal(size=40)
    columns = np.c_[np.ones(domain.n_nodes), domain.node_points[:, 0] / 5.0]
    steps = np.array([1.0, 2.0, 1.0, 1.0])
    setting = setting_of(basis, kernel, scaling, columns, 0.4, steps, None, np.array([2.0, 1.0]))
    own = np.c_[np.ones(40), rng.normal(size=40)]
    problem = place_chain(setting, places, period, values, np.ones(40), FAMILIES["gaussian"], own)
    problem = problem.with_dynamics(kind)
    problem.chain.noise_at = 5
    theta = np.log([4.0, 0.9, 3.0, 0.6, 2.0, noise])
    sites = Sites(np.ones(40), values - 0.4)
    moments = problem.chain.posterior(theta, sites)

    phi = basis.evaluate(places)
    density = kernel.spectral_density(np.sqrt(basis.eigenvalues))
    at_nodes = basis.features
    if scaling == "even":
        phi = phi * (0.9 / np.sqrt(phi**2 @ density))[:, None]
        at_nodes = at_nodes * (0.9 / np.sqrt(at_nodes**2 @ density))[:, None]
    clock = np.concatenate([[0.0], np.cumsum(steps)])
    tau = np.full(len(density), 3.0)
    if kind == "diffusive":
        tau = 3.0 / (1.0 + basis.eigenvalues * 4.0**2 / 3.0)

    def covariance(one, t, other, s, x, y):
        apart = np.abs(clock[t][:, None] - clock[s][None, :])
        field = np.einsum("ij,kj,ikj->ik", one * density, other, np.exp(-apart[:, :, None] / tau))
        level = 0.6**2 * np.exp(-apart / 2.0)
        return field + level + (x * np.array([4.0, 1.0])) @ y.T

    inside = covariance(phi, period, phi, period, own, own)
    precise = np.linalg.inv(inside + noise**2 * np.eye(40))
    mean = inside @ precise @ (values - 0.4)
    np.testing.assert_allclose(moments.mean, mean, atol=1e-8)
    np.testing.assert_allclose(moments.variance, np.diag(inside - inside @ precise @ inside), atol=1e-8)
    state = problem.chain.state(theta, sites, 1.0)
    seen = state.moments_over(places, period, own)
    np.testing.assert_allclose(seen[0], 0.4 + mean, atol=1e-7)
    np.testing.assert_allclose(seen[1], moments.variance, atol=1e-7)
    for t in (0, 3, 4):  # the last but one has no values
        when = np.full(domain.n_nodes, t)
        cross = covariance(at_nodes, when, phi, period, columns, own)
        prior = covariance(at_nodes, when, at_nodes, when, columns, columns)
        np.testing.assert_allclose(state.node_moments()[0][t], 0.4 + cross @ precise @ (values - 0.4), atol=1e-7)
        np.testing.assert_allclose(state.node_moments()[1][t], np.diag(prior - cross @ precise @ cross.T), atol=1e-7)

    evidence = -0.5 * (
        (values - 0.4) @ precise @ (values - 0.4) - np.linalg.slogdet(precise)[1] + 40 * np.log(2 * np.pi)
    )
    family = FAMILIES["gaussian"].of(values, np.ones(40), 0.4)
    with_noise = replace(family, noise=noise)
    bound = float(with_noise.expected(moments.mean, moments.variance).value.sum()) - moments.divergence
    assert bound == pytest.approx(evidence, abs=1e-7)
    step = 1e-5
    gradient = problem.chain.objective(theta, sites)[1]
    for i in range(6):
        both = []
        for sign in (1.0, -1.0):
            there = theta.copy()
            there[i] += sign * step
            both.append(problem.chain.objective(there, sites)[0])
        slope = (both[0] - both[1]) / (2 * step)
        assert gradient[i] == pytest.approx(slope, rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("likelihood", ["gaussian", "binomial", "beta-binomial"])
def test_one_period_says_what_none_does(domain, basis, likelihood):
    rng, places, _ = survey(domain, 60, 1, seed=3)
    trials = None if likelihood == "gaussian" else np.full(60, 20.0)
    risk = np.sin(places[:, 0] / 2.0)
    values = (
        risk + rng.normal(0, 0.2, 60) if trials is None else rng.binomial(20, 1 / (1 + np.exp(-risk))).astype(float)
    )
    model = BoundaryGP(basis, Matern(1.5, 4.0, 0.8), likelihood, noise=0.2 if trials is None else None)
    plain = model.fit(places, values, trials=trials)
    over = model.fit(places, values, trials=trials, periods=Periods.between([0.0, 1.0]), period_of=np.zeros(60, int))
    assert over.periods is not None and over.n_periods == 1
    assert over.elbo == pytest.approx(plain.elbo, abs=1e-6 if likelihood != "beta-binomial" else 1e-3)
    for one, other in zip(over.fit.states[0].node_moments(), plain.fit.states[0].node_moments(), strict=True):
        np.testing.assert_allclose(one[0], other, atol=1e-6 if likelihood != "beta-binomial" else 2e-3)


def test_a_value_that_moves_is_followed_and_comes_back_from_its_file(domain, basis, tmp_path):
    rng, places, period = survey(domain, 400, 6, seed=5)
    truth = np.sin((places[:, 0] - 1.5 * period) / 2.0)
    values = 3.0 + truth + rng.normal(0, 0.2, 400)
    edges = Periods.between(np.arange(7.0))
    posterior = BoundaryGP(basis, Matern(1.5)).fit(places, values, periods=edges, period_of=period, resume=False)
    east = domain.node_points[:, 0]
    found = np.stack([posterior.at(t).values_at(domain.node_points)["mean"].to_numpy() for t in range(6)])
    wanted = 3.0 + np.sin((east[None, :] - 1.5 * np.arange(6)[:, None]) / 2.0)
    assert np.sqrt(np.mean((found - wanted) ** 2)) < 0.25
    assert posterior.fit.states[0].noise == pytest.approx(0.2, rel=0.25)
    again = Posterior.load(posterior.save(tmp_path / "fit"))
    np.testing.assert_allclose(again.fit.states[0].node_moments(), posterior.fit.states[0].node_moments(), rtol=1e-9)
    assert again.fit.states[0].noise == posterior.fit.states[0].noise


def groups_of(domain, n_periods, rng, slope):
    """Return cases and controls whose risk rises to the east, as groups by node and period."""
    east = domain.node_points[:, 0]
    risk = np.exp(slope * (east - east.mean()) / east.std())
    node = np.repeat(np.arange(domain.n_nodes), n_periods)
    period = np.tile(np.arange(n_periods), domain.n_nodes)
    controls = rng.poisson(6.0, len(node)).astype(float)
    cases = rng.poisson(6.0 * risk[node]).astype(float)
    keep = controls + cases > 0
    columns = np.ones((int(keep.sum()), 1))
    return risk, Groups(node[keep], cases[keep], (cases + controls)[keep], Effects(columns=columns), period[keep])


def test_the_risk_over_one_period_is_that_without(domain, basis):
    _, groups = groups_of(domain, 1, np.random.default_rng(1), 0.6)
    model = RiskModel(basis, Matern(1.5, 5.0, 0.6))
    plain = model.fit(groups)
    over = model.fit(groups, periods=Periods.between([0.0, 1.0]))
    assert over.elbo == pytest.approx(plain.elbo, abs=1e-6)
    np.testing.assert_allclose(over.at(0).node_intensity()["mean"], plain.node_intensity()["mean"], rtol=1e-5)


def test_risk_over_periods_has_a_mean_of_one_over_all_controls(domain, basis):
    risk, groups = groups_of(domain, 4, np.random.default_rng(2), 0.6)
    posterior = RiskModel(basis, Matern(1.5)).fit(groups, periods=Periods.between(np.arange(5.0)), resume=False)
    share = groups.controls_at(domain.n_nodes, 4)
    mean = np.stack([posterior.at(t).node_intensity()["mean"] for t in range(4)])
    assert np.sum(share * mean) / share.sum() == pytest.approx(1.0, rel=1e-6)
    assert np.corrcoef(np.log(mean.mean(axis=0)), np.log(risk))[0, 1] > 0.9
    assert groups.cases_at(domain.n_nodes, 4).sum() == groups.cases.sum()


def test_what_is_wrong_is_named(domain, basis):
    _, places, period = survey(domain, 10, 3)
    model, edges = BoundaryGP(basis, Matern(1.5, 4.0, 0.8), noise=0.2), Periods.between(np.arange(4.0))
    with pytest.raises(DataError, match="found no periods"):
        model.fit(places, np.zeros(10), periods=edges)
    with pytest.raises(DataError, match="from 0 to 2"):
        model.fit(places, np.zeros(10), periods=edges, period_of=period + 1 - period.min() + 2)
    with pytest.raises(DataError, match="needs features"):
        BoundaryGP(FullRank(domain)).fit(places, np.zeros(10), periods=edges, period_of=period)


@pytest.mark.parametrize("n_periods", [1, 3])
def test_risk_is_recovered_where_half_the_land_reports_half_its_cases(domain, basis, n_periods):
    rng = np.random.default_rng(8)
    risk, groups = groups_of(domain, n_periods, rng, 0.5)
    effort = np.where(domain.node_points[:, 0] > domain.node_points[:, 0].mean(), 0.5, 1.0)
    more = rng.poisson(40.0 * risk[groups.node] * effort[groups.node]).astype(float)
    cases, controls = more, groups.persons - groups.cases + 30.0
    groups = replace(groups, cases=cases, persons=cases + controls)
    over = {} if n_periods == 1 else {"periods": Periods.between(np.arange(n_periods + 1.0)), "resume": False}
    found = {}
    for name, inputs in (("told", Inputs.read(domain, effort=effort)), ("untold", Inputs.read(domain))):
        posterior = RiskModel(basis, Matern(1.5, 5.0, 0.6), inputs=inputs).fit(groups, **over)
        at = posterior if n_periods == 1 else posterior.at(0)
        mean = posterior._nodes.exp_mean().reshape(posterior.exposure.shape)
        reported = posterior.exposure * mean * (1.0 if posterior.effort is None else posterior.effort)
        assert reported.sum() == pytest.approx(cases.sum(), rel=1e-6)
        found[name] = np.log(at.node_intensity()["mean"].to_numpy()) - np.log(risk)
    error = {name: float(np.std(off)) for name, off in found.items()}
    assert error["told"] < 0.12 and error["untold"] > 1.5 * error["told"]


def test_where_nothing_is_seen_nothing_is_told(domain, basis):
    _, groups = groups_of(domain, 1, np.random.default_rng(9), 0.5)
    blind = np.where(domain.node_points[:, 0] > 9.0, 0.0, 1.0)
    with pytest.raises(DataError, match="where the effort is zero"):
        RiskModel(basis, Matern(1.5, 3.0, 0.6), inputs=Inputs.read(domain, effort=blind)).fit(groups)
    seen = replace(groups, cases=np.where(blind[groups.node] > 0, groups.cases, 0.0))
    model = RiskModel(basis, Matern(1.5, 3.0, 0.6), inputs=Inputs.read(domain, effort=blind))
    sd = model.fit(seen).fit.states[0].node_moments()[1] ** 0.5
    assert sd[blind == 0].min() > 1.2 * np.median(sd[blind > 0])
