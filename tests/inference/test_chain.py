"""Features in time: against one dense Gaussian, the spatial fit, pooled and separate maps, and draws."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest
from chains import Dense, engine_of, moved
from models import archipelago, square
from scipy import sparse

from geobgp import LGCP, DataError, FullRank, HarmonicBasis, Matern, SizeError, SquaredExponential
from geobgp.archive import pack, unpack
from geobgp.errors import ConvergenceWarning
from geobgp.inference import chain_fit
from geobgp.inference.chain_fit import Checkpoint, area_chain, fit_chain, node_chain, setting_of
from geobgp.inference.engine import Sites
from geobgp.inference.families import FAMILIES
from geobgp.inference.problem import Observed

#: ℓ, σ, τ, the level's sd and τ.
THETA = np.log([3.0, 0.8, 2.0, 0.6, 5.0])
#: Few features, so that the dense reference is small.
pytestmark = pytest.mark.filterwarnings("ignore::geobgp.errors.MissedVarianceWarning")


@pytest.fixture(scope="module")
def basis():
    """Features of a mainland cut by a river, an island and an islet."""
    return HarmonicBasis.compute(archipelago(), 20, cache=False)


def some_sites(n, seed=0):
    rng = np.random.default_rng(seed)
    return Sites(rng.gamma(1.0, 1.0, n), rng.standard_normal(n))


def some_columns(domain, n_periods, seed=1):
    noise = np.random.default_rng(seed).standard_normal((n_periods, domain.n_nodes))
    return np.stack([np.ones_like(noise), noise], axis=2)


CASES = [
    ("separable", True, "even"),
    ("separable", False, "natural"),
    ("diffusive", True, "natural"),
    ("diffusive", True, "even"),
]


@pytest.mark.parametrize("kind, level, scaling", CASES)
@pytest.mark.parametrize("kernel", [Matern(1.5), SquaredExponential()], ids=["matern", "se"])
def test_it_equals_one_dense_gaussian(basis, kind, level, scaling, kernel):
    domain, n_periods = basis.domain, 4
    engine = engine_of(
        basis, kernel, n_periods, kind=kind, level=level, scaling=scaling,
        columns=some_columns(domain, n_periods), steps=[1.0, 2.0, 0.5], per_year=3.0,
    )  # fmt: skip
    theta = THETA if level else THETA[:3]
    sites = some_sites(n_periods * domain.n_nodes)
    mean, covariance, divergence, value = Dense(engine, theta).posterior(sites)
    found = engine.posterior(theta, sites)
    np.testing.assert_allclose(found.mean, mean, atol=1e-8)
    np.testing.assert_allclose(found.variance, np.diag(covariance), atol=1e-8)
    assert found.divergence == pytest.approx(divergence, abs=1e-8)
    reached, gradient, _ = engine.objective(theta, sites)
    assert reached == pytest.approx(value, abs=1e-8)
    slopes = [
        (engine.objective(moved(theta, i, 1e-4), sites)[0] - engine.objective(moved(theta, i, -1e-4), sites)[0]) / 2e-4
        for i in range(len(theta))
    ]
    np.testing.assert_allclose(gradient, slopes, atol=1e-6, rtol=1e-6)


def test_a_state_is_what_the_engine_found(basis):
    domain, n_periods = basis.domain, 3
    n = domain.n_nodes
    engine = engine_of(basis, Matern(1.5), n_periods, columns=some_columns(domain, n_periods), per_year=2.0)
    sites = some_sites(n_periods * n)
    mean, covariance, _, _ = Dense(engine, THETA).posterior(sites)
    state = engine.state(THETA, sites, 1.0)
    for made in (state, replace(state, known=None), unpack(*pack(state))):
        np.testing.assert_allclose(made.node_moments()[0].ravel(), mean + 0.3, atol=1e-8)
        np.testing.assert_allclose(made.node_moments()[1].ravel(), np.diag(covariance), atol=1e-8)
    for t in range(n_periods):
        here, plain = slice(t * n, (t + 1) * n), state.at(t)
        np.testing.assert_allclose(plain.node_moments()[0], mean[here] + 0.3, atol=1e-8)
        np.testing.assert_allclose(plain.node_covariance(np.arange(n)), covariance[here, here], atol=1e-8)
    rows = [sparse.csr_array(np.random.default_rng(t).dirichlet(np.ones(n), 4)) for t in range(n_periods)]
    whole = sparse.block_diag(rows).toarray()
    row_mean, row_variance = state.moments_of(rows)
    np.testing.assert_allclose(row_mean, whole @ mean, atol=1e-8)
    np.testing.assert_allclose(row_variance, np.diag(whole @ covariance @ whole.T), atol=1e-8)
    level, variance = state.level()
    plain = [state.at(t) for t in range(n_periods)]
    np.testing.assert_allclose(level, [p.coefficients()[0][0] for p in plain], atol=1e-8)
    np.testing.assert_allclose(variance, [p.beta_cov[0, 0] for p in plain], atol=1e-8)
    with pytest.raises(DataError, match="3 periods"):
        state.at(3)


def test_a_single_feature_has_its_state_too(basis):
    """The constant alone, as where nothing but a level of each period is fitted: moments at nodes and at places."""
    few, n_periods = basis.truncate(1), 3
    domain, n = few.domain, few.domain.n_nodes
    engine = engine_of(few, Matern(1.5), n_periods, columns=some_columns(domain, n_periods), per_year=2.0)
    sites = some_sites(n_periods * n)
    mean, covariance, _, _ = Dense(engine, THETA).posterior(sites)
    state = engine.state(THETA, sites, 1.0)
    for t in range(n_periods):
        here, plain = slice(t * n, (t + 1) * n), state.at(t)
        np.testing.assert_allclose(plain.node_moments()[0], mean[here] + 0.3, atol=1e-8)
        np.testing.assert_allclose(plain.node_moments()[1], np.diag(covariance)[here], atol=1e-8)
        at_places = plain.moments_at(domain.node_points[:4], plain.fixed[:4])
        np.testing.assert_allclose(at_places[1], np.diag(covariance)[here][:4], atol=1e-8)


def test_what_lies_ahead_is_what_conditioning_says(basis):
    """Periods without sites at the end of a longer chain: the same as those ahead of a shorter one."""
    n, seen, ahead = basis.domain.n_nodes, 3, 2
    steps = [1.0, 2.0, 1.0, 0.5]
    longer = engine_of(basis, Matern(1.5), 5, kind="diffusive", steps=steps, per_year=2.0)
    shorter = engine_of(basis, Matern(1.5), 3, kind="diffusive", steps=steps[:2], per_year=2.0)
    few = some_sites(seen * n)
    sites = Sites(*(np.r_[part, np.zeros(ahead * n)] for part in (few.precision, few.natural)))
    mean, covariance, _, _ = Dense(longer, THETA).posterior(sites)
    state = shorter.state(THETA, few, 1.0).ahead(np.array(steps[2:]))
    np.testing.assert_allclose(state.node_moments()[0].ravel(), mean[seen * n :] + 0.3, atol=1e-8)
    np.testing.assert_allclose(state.node_moments()[1].ravel(), np.diag(covariance)[seen * n :], atol=1e-8)
    # Jointly too: draws of the differences between the two periods ahead.
    draws = state.sample_nodes(4000, np.random.default_rng(0))
    last = covariance[seen * n :, seen * n :]
    turn = np.c_[-np.eye(n), np.eye(n)]
    expected = np.diag(turn @ last @ turn.T)
    found = (draws[:, 1] - draws[:, 0]).var(axis=0)
    assert np.abs(found / expected - 1.0).mean() < 0.03
    with pytest.raises(DataError, match="one or more periods"):
        state.ahead(0)


def test_joint_draws_have_the_covariance_across_periods(basis):
    n = basis.domain.n_nodes
    engine = engine_of(basis, Matern(1.5), 3, kind="diffusive")
    sites = some_sites(3 * n)
    mean, covariance, _, _ = Dense(engine, THETA).posterior(sites)
    state = engine.state(THETA, sites, 1.0)
    draws = state.sample_nodes(6000, np.random.default_rng(0)).reshape(6000, -1)
    error = (draws.mean(axis=0) - mean - 0.3) / np.sqrt(np.diag(covariance) / 6000)
    assert np.abs(error).mean() < 1.2
    found = np.cov(draws.T)
    scale = np.sqrt(np.outer(np.diag(covariance), np.diag(covariance)))
    assert np.abs((found - covariance) / scale).max() < 0.08
    effects = state.sample_joint(2000, np.random.default_rng(1))[1]
    assert effects.std() == pytest.approx(float(np.sqrt(state.beta_cov[0, 0])), rel=0.1)


# -- fits ----------------------------------------------------------------------------------------------------


def counts_of(domain, n_periods, seed=0, total=400.0):
    """A bump that travels, over a floor; not from the prior."""
    x, y = ((domain.node_points - domain.node_points.min(axis=0)) / np.ptp(domain.node_points, axis=0)).T
    at = np.linspace(0.2, 0.8, n_periods)[:, None]
    rate = domain.node_areas * (0.3 + 3.0 * np.exp(-((x - at) ** 2 + (y - 0.5) ** 2) / 0.05))
    rate *= total / rate.sum()
    return np.random.default_rng(seed).poisson(rate).astype(float), rate


def problem_of(basis, counts, kernel=None, *, exposure=None, columns=None, per_year=None, scaling="even", **more):
    domain = basis.domain
    exposure = np.broadcast_to(domain.node_areas if exposure is None else exposure, counts.shape)
    columns = np.ones((domain.n_nodes, 1)) if columns is None else columns
    centre = float(np.log(counts.sum() / exposure.sum()))
    steps = np.ones(len(counts) - 1)
    setting = setting_of(basis, kernel or Matern(1.5), scaling, columns, centre, steps, per_year, 10.0)
    return node_chain(setting, counts, exposure, **more)


@pytest.mark.parametrize("likelihood", ["poisson", "negative-binomial"])
def test_one_period_is_the_spatial_fit(basis, likelihood):
    counts, _ = counts_of(basis.domain, 1)
    plain = LGCP(basis, Matern(1.5), likelihood=likelihood).fit(counts[0])
    found = fit_chain(problem_of(basis, counts, family=FAMILIES[likelihood]))
    assert found.fit.elbo == pytest.approx(plain.elbo, abs=1e-3)
    assert found.dynamics == "separable" and found.bounds == {}
    held = LGCP(basis, Matern(1.5, lengthscale=3.0, sd=0.8)).fit(counts[0])
    state = fit_chain(problem_of(basis, counts, Matern(1.5, lengthscale=3.0, sd=0.8))).fit
    assert state.elbo == pytest.approx(held.elbo, abs=1e-8)
    for mine, theirs in zip(state.states[0].node_moments(), held.fit.states[0].node_moments(), strict=True):
        np.testing.assert_allclose(mine[0], theirs, atol=1e-6)


@pytest.mark.parametrize("kind", ["separable", "diffusive"])
def test_long_times_pool_and_short_ones_part(basis, kind):
    """τ -> ∞ is one map of all events, τ -> 0 a map of each period with the same hyperparameters."""
    counts, _ = counts_of(basis.domain, 3)
    kernel = Matern(1.5, lengthscale=3.0, sd=0.8)
    pooled = LGCP(basis, kernel, exposure=3.0 * basis.domain.node_areas).fit(counts.sum(axis=0))
    problem = problem_of(basis, counts, kernel, level=False)
    slow = fit_chain(problem, dynamics=kind, held={"tau": 1e9}).fit.states[0]
    expected = pooled.fit.states[0].node_moments()
    for mine, theirs in zip(slow.node_moments(), expected, strict=True):
        np.testing.assert_allclose(mine, np.broadcast_to(theirs, mine.shape), atol=2e-5)
    # Without an intercept, which would be common to all periods.
    nothing = np.ones((basis.domain.n_nodes, 0))
    problem = problem_of(basis, counts, kernel, columns=nothing, level=False)
    quick = fit_chain(problem, dynamics=kind, held={"tau": 1e-3}).fit
    bounds = []
    for t in range(3):
        alone = replace(problem.setting, steps=np.zeros(0), season=np.zeros((1, 0)))
        one = fit_chain(node_chain(alone, counts[[t]], problem.size.reshape(counts.shape)[[t]])).fit
        bounds.append(one.elbo)
        for mine, theirs in zip(quick.states[0].node_moments(), one.states[0].node_moments(), strict=True):
            np.testing.assert_allclose(mine[t], theirs[0], atol=1e-6)
    assert quick.elbo == pytest.approx(sum(bounds), abs=1e-6)


def test_time_is_learned_and_dynamics_chosen_by_the_bound(basis):
    counts, _ = counts_of(basis.domain, 6, total=1500.0)
    problem = problem_of(basis, counts)
    found = fit_chain(problem)
    assert set(found.bounds) == {"separable", "diffusive"}
    assert found.dynamics == max(found.bounds, key=found.bounds.get)
    assert found.compared_with == basis.m
    fit = found.fit
    assert fit.converged and fit.elbo == pytest.approx(max(found.bounds.values()), abs=0.05)
    assert fit.states[0].dynamics == found.dynamics
    assert np.all(np.diag(fit.hyper_cov)[:3] > 0)
    # At the learned hyperparameters the gradient of the bound and the prior vanishes.
    assert np.exp(fit.hyper_mean[2]) == pytest.approx(fit.states[0].tau)
    given = fit_chain(problem, dynamics="separable")
    assert given.dynamics == "separable" and given.fit.elbo == pytest.approx(found.bounds["separable"], abs=0.05)
    with pytest.raises(DataError, match="dynamics"):
        fit_chain(problem, dynamics="turbulent")


def test_a_mixture_is_over_lengthscale_and_sd(basis):
    counts, _ = counts_of(basis.domain, 3)
    problem = problem_of(basis, counts)
    best = fit_chain(problem, dynamics="separable")
    mixed = fit_chain(problem, dynamics="separable", hyper="integrate")
    assert len(mixed.fit.states) == 9
    assert sum(state.weight for state in mixed.fit.states) == pytest.approx(1.0)
    assert len({state.tau for state in mixed.fit.states}) == 1
    assert mixed.fit.states[0].lengthscale == pytest.approx(best.fit.states[0].lengthscale, rel=0.05)
    np.testing.assert_allclose(np.diag(mixed.fit.hyper_cov), np.diag(best.fit.hyper_cov), rtol=0.3)


def test_exposure_by_period_is_what_the_level_is_not(basis):
    """Twice the exposure and twice the events in one period: the same map."""
    counts, _ = counts_of(basis.domain, 3)
    kernel, held = Matern(1.5, lengthscale=3.0, sd=0.8), {"tau": 3.0, "level_sd": 0.5, "level_tau": 5.0}
    twice = np.array([1.0, 2.0, 1.0])[:, None] * basis.domain.node_areas
    plain = fit_chain(problem_of(basis, counts, kernel), dynamics="separable", held=held).fit.states[0]
    more = fit_chain(problem_of(basis, counts, kernel, exposure=twice), dynamics="separable", held=held)
    shift = more.fit.states[0].node_moments()[0] - plain.node_moments()[0]
    assert shift[1].mean() < shift[[0, 2]].mean() - 0.3
    log_rate = more.fit.states[0].node_moments()[0] + np.log(twice)
    np.testing.assert_allclose(np.exp(log_rate).sum(axis=1), counts.sum(axis=1), rtol=0.25)


def test_a_yearly_cycle_over_two_years(basis):
    n_periods = 26
    season = np.exp(0.8 * np.cos(2 * np.pi * (np.arange(n_periods) - 3) / 12))[:, None]
    rng = np.random.default_rng(0)
    counts = rng.poisson(0.3 * season * basis.domain.node_areas * np.ones((n_periods, 1))).astype(float)
    kernel, held = Matern(1.5, lengthscale=3.0, sd=0.3), {"tau": 3.0, "level_sd": 0.2, "level_tau": 5.0}
    problem = problem_of(basis, counts, kernel, per_year=12.0)
    state = fit_chain(problem, dynamics="separable", held=held).fit.states[0]
    mean, covariance = state.coefficients()
    cosine, sine = 0.8 * np.cos(np.pi / 2), 0.8 * np.sin(np.pi / 2)
    error = (mean[1:] - [cosine, sine]) / np.sqrt(np.diag(covariance)[1:])
    assert len(mean) == 3 and np.abs(error).max() < 3.5
    ahead = state.ahead(12).level()[0]
    assert np.argmax(ahead) == pytest.approx((3 - n_periods) % 12, abs=1)
    assert problem_of(basis, counts[:20], kernel, per_year=12.0).setting.season.shape == (20, 0)


def test_areas_of_one_node_are_points(basis):
    counts, _ = counts_of(basis.domain, 3)
    points = problem_of(basis, counts)
    one = sparse.csr_array(sparse.diags_array(basis.domain.node_areas))
    seen = tuple(Observed(row, one, np.zeros(len(row), bool)) for row in counts)
    areas = area_chain(points.setting, seen)
    mine, theirs = fit_chain(areas, dynamics="diffusive").fit, fit_chain(points, dynamics="diffusive").fit
    assert mine.elbo == pytest.approx(theirs.elbo, abs=0.02)
    kernel = Matern(1.5, lengthscale=3.0, sd=0.8)
    held = {"tau": 3.0, "level_sd": 0.5, "level_tau": 5.0}
    points = problem_of(basis, counts, kernel)
    found = [fit_chain(p, dynamics="diffusive", held=held).fit for p in (area_chain(points.setting, seen), points)]
    for a, b in zip(*(fit.states[0].node_moments() for fit in found), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_gradients_of_areas_that_move_with_the_lengthscale(basis):
    counts, _ = counts_of(basis.domain, 3)
    rng = np.random.default_rng(0)
    shares = sparse.csr_array(rng.dirichlet(np.full(basis.domain.n_nodes, 0.1), 6))
    seen = tuple(Observed(rng.poisson(5.0, 6).astype(float), shares, np.zeros(6, bool)) for _ in range(3))
    problem = area_chain(problem_of(basis, counts).setting, seen).with_dynamics("diffusive")
    engine, sites = problem.at(None, None).engine, some_sites(18)
    gradient = engine.objective(THETA, sites)[1]
    slopes = [
        (engine.objective(moved(THETA, i, 1e-4), sites)[0] - engine.objective(moved(THETA, i, -1e-4), sites)[0]) / 2e-4
        for i in range(5)
    ]
    np.testing.assert_allclose(gradient, slopes, atol=1e-6, rtol=1e-6)


def test_suppressed_counts_by_area_and_period(basis):
    """Hidden counts, told to lie between 1 and 4, move a map less than no counts, more than the counts do."""
    domain = basis.domain
    rng = np.random.default_rng(3)
    owner = rng.integers(0, 12, domain.n_nodes)
    shares = sparse.csr_array((domain.node_areas, (owner, np.arange(domain.n_nodes))), shape=(12, domain.n_nodes))
    counts = rng.poisson(3.0, (3, 12)).astype(float)
    hidden = (counts >= 1) & (counts <= 4)
    kernel = Matern(1.5, lengthscale=3.0, sd=0.8)
    setting = problem_of(basis, counts_of(domain, 3)[0], kernel).setting
    held = {"tau": 3.0, "level_sd": 0.5, "level_tau": 5.0}

    def states(which):
        seen = tuple(Observed(np.where(h, 2.0, c), shares, h, (1, 4)) for c, h in zip(counts, which, strict=True))
        return fit_chain(area_chain(setting, seen), dynamics="separable", held=held).fit

    told, less = states(np.zeros_like(hidden)), states(hidden)
    assert told.converged and less.converged
    assert less.states[0].node_moments()[1].mean() > told.states[0].node_moments()[1].mean()


# -- mistakes, memory, and fits that are cut off ----------------------------------------------------------------


def test_full_rank_and_too_little_memory_are_told_first(basis, monkeypatch):
    counts, _ = counts_of(basis.domain, 3)
    with pytest.raises(DataError, match="features"):
        setting_of(
            FullRank(basis.domain), Matern(1.0), "even", np.ones((basis.domain.n_nodes, 1)), 0.0, np.ones(2), None, 10.0
        )
    monkeypatch.setattr(chain_fit, "free_memory", lambda: 10_000)
    with pytest.raises(SizeError, match="GB of memory") as error:
        problem_of(basis, counts)
    assert error.value.found > 10_000


def test_a_fit_that_was_cut_off_goes_on(basis, monkeypatch, tmp_path):
    monkeypatch.setenv("GEOBGP_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(chain_fit, "Checkpoint", lambda key: Checkpoint(key, every=0.0))
    counts, _ = counts_of(basis.domain, 4)
    problem = problem_of(basis, counts)
    whole, captured = fit_chain(problem, resume=False), []

    def cut(words):
        captured.append(words)
        if len(list(tmp_path.glob("*.fit"))) and len(captured) > 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit_chain(problem, progress=cut)
    assert len(list(tmp_path.glob("*.fit"))) == 1
    told = []
    again = fit_chain(problem, progress=told.append)
    assert told[0] == "going on from where it was cut off"
    assert again.fit.elbo == pytest.approx(whole.fit.elbo, abs=0.05)
    assert again.dynamics == whole.dynamics
    assert not list(tmp_path.glob("*.fit"))
    # Of other data nothing is taken, and a damaged file is not believed.
    with pytest.raises(KeyboardInterrupt):
        captured.clear()
        fit_chain(problem, progress=cut)
    (path,) = tmp_path.glob("*.fit")
    path.write_bytes(path.read_bytes()[:-100])
    told.clear()
    assert fit_chain(problem, progress=told.append).fit.elbo == pytest.approx(whole.fit.elbo, abs=0.05)
    assert "going on from where it was cut off" not in told


# -- a truth that is not ours -------------------------------------------------------------------------------


def test_a_moving_outbreak_is_followed():
    """Held-out log score above one pooled map times each period's share, and above a map of each period."""
    domain = square(10.0, 0.5)
    basis = HarmonicBasis.compute(domain, 50, cache=False)
    counts, rate = counts_of(domain, 8, seed=1, total=900.0)
    found = fit_chain(problem_of(basis, counts))
    fresh = np.random.default_rng(2).poisson(rate)

    def score(mean, variance):
        lam = domain.node_areas * np.exp(mean + variance / 2)
        return float((fresh * np.log(lam) - lam).sum())

    ours = score(*found.fit.states[0].node_moments())
    pooled = LGCP(basis, exposure=8.0 * domain.node_areas).fit(counts.sum(axis=0)).fit.states[0].node_moments()
    share = np.log(8.0 * counts.sum(axis=1) / counts.sum())[:, None]
    assert ours > score(pooled[0] + share, np.broadcast_to(pooled[1], counts.shape)) + 20.0
    each = [LGCP(basis).fit(row).fit.states[0].node_moments() for row in counts]
    assert ours > score(np.array([m for m, _ in each]), np.array([v for _, v in each])) + 20.0
    assert found.dynamics in ("separable", "diffusive")


# -- few large areas over many periods ----------------------------------------------------------------------


def few_areas(n_periods, seed=3, m=40, total=40.0):
    """Return six areas of a square in which a bump travels, as a problem, and the true rate of every node."""
    domain = square(12.0, 1.0)
    basis = HarmonicBasis.compute(domain, m, cache=False)
    x, y = domain.node_points.T
    rate = []
    for t in range(n_periods):
        east, north = 6.0 + 4.0 * np.cos(t / 6.0 + seed), 6.0 + 4.0 * np.sin(t / 6.0 + seed)
        rate.append(0.4 + 3.0 * np.exp(-((x - east) ** 2 + (y - north) ** 2) / (2 * 1.8**2)))
    rate = np.array(rate) * domain.node_areas
    rate *= total / rate.sum(axis=1).mean()
    owner = (x // 6.0).astype(int) * 3 + (y // 4.0).astype(int)
    one = sparse.csr_array((domain.node_areas, (owner, np.arange(len(x)))), shape=(6, len(x)))
    rng = np.random.default_rng(seed)
    seen = tuple(
        Observed(np.bincount(owner, rng.poisson(row), 6).astype(float), one, np.zeros(6, bool)) for row in rate
    )
    counts = np.array([o.counts for o in seen])
    setting = problem_of(basis, counts_of(domain, n_periods)[0]).setting
    centre = float(np.log(counts.sum() / (n_periods * domain.node_areas.sum())))
    return area_chain(replace(setting, centre=centre), seen), rate, owner


def test_few_areas_over_many_periods_are_learned():
    """A wide field that never changes, seen through rows that do, must not be taken for what changes."""
    problem, rate, owner = few_areas(40)
    found = fit_chain(problem, dynamics="separable", resume=False).fit
    state = found.states[0]
    assert found.converged and state.sd < 2.0 and state.tau < 100.0
    # The bound is highest there, rows settled, whichever way one goes.
    best = dict(tau=state.tau, level_sd=state.level_sd, level_tau=state.level_tau)
    for length, sd, tau in ((1.0, 1.4, 1.0), (1.0, 0.7, 1.0), (1.0, 1.0, 2.5), (0.6, 1.0, 1.0)):
        kernel = Matern(1.5, lengthscale=length * state.lengthscale, sd=sd * state.sd)
        other = area_chain(replace(problem.setting, kernel=kernel), problem.observed)
        held = best | {"tau": tau * state.tau}
        assert fit_chain(other, dynamics="separable", held=held, resume=False).fit.elbo < found.elbo + 0.3
    # Rates of areas are held by their intervals, and so are those of nodes, of which nobody saw any.
    draws = np.exp(state.sample_nodes(400, np.random.default_rng(0))) * problem.setting.basis.domain.node_areas
    by_area = np.eye(6)[owner]
    for told, true, least in ((draws @ by_area, rate @ by_area, 0.82), (draws, rate, 0.82)):
        low, high = np.quantile(told, (0.05, 0.95), axis=0)
        assert np.mean((low <= true) & (true <= high)) > least


def test_a_fit_of_areas_that_was_cut_off_goes_on(monkeypatch, tmp_path):
    monkeypatch.setenv("GEOBGP_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(chain_fit, "Checkpoint", lambda key: Checkpoint(key, every=0.0))
    problem = few_areas(6)[0]
    whole, captured = fit_chain(problem, resume=False), []

    def cut(words):
        captured.append(words)
        if len(list(tmp_path.glob("*.fit"))) and words == "diffusive dynamics":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit_chain(problem, progress=cut)
    told = []
    again = fit_chain(problem, progress=told.append)
    assert told[0] == "going on from where it was cut off"
    assert again.bounds == pytest.approx(whole.bounds, abs=1.0) and again.dynamics == whole.dynamics
    assert again.fit.elbo == pytest.approx(whole.fit.elbo, abs=0.3)  # steps of 0.1 nats are left


@pytest.mark.parametrize("family", ["poisson", "negative-binomial"])
def test_time_that_is_up_ends_a_fit_of_areas_wherever_it_is(family):
    """The search, the dispersion, the dynamics and the mixture: each takes what it has, and says so."""
    problem = replace(few_areas(6)[0], family=FAMILIES[family])
    with pytest.warns(ConvergenceWarning, match="time ran out"):
        found = fit_chain(problem, resume=False, deadline=time.perf_counter(), hyper="integrate")
    assert found.fit.ran_out and not found.fit.converged
    assert len(found.fit.states) == 1
    assert np.isfinite(found.fit.elbo) and np.isfinite(found.fit.states[0].node_moments()[1]).all()
    # A pass or two wherever the clock is looked at; a whole fit takes a hundred.
    assert found.fit.rounds < 30


def test_the_variances_answer_to_stiffer_sites_as_differences_say():
    """All features of rows are seen: one step, and its second order, are the central difference."""
    problem, *_ = few_areas(4)
    at = problem.at(None, None)
    theta = np.array([np.log(3.0), 0.0, 1.0, -0.5, 1.0])
    rng = np.random.default_rng(0)
    weight = rng.uniform(0.5, 20.0, len(at.size))
    lumped = at.engine.spread(theta, Sites(weight, np.zeros(len(weight))))(weight)
    step, moved = 1e-4, []
    for sign in (1.0, -1.0):
        sites = Sites((1.0 + sign * step) * weight, np.zeros(len(weight)))
        factor = at.engine.solve(theta, sites).factor
        moved.append(factor.variances())
    assert lumped == pytest.approx((moved[1] - moved[0]) / (2.0 * step), rel=1e-3)
