import numpy as np
import pandas as pd
import pytest
from models import all_modes, archipelago, feature_engine, poisson_problem, prior_covariance, sparse_engine, square
from paths import SAMPLE
from scipy.optimize import minimize
from scipy.special import gammaln
from scipy.stats import multivariate_normal

from geobgp import Domain, GeobgpWarning, HarmonicBasis, bin_points
from geobgp.inference.engine import Engine, FeatureBlocks, PartedFeatures, Sites, engine_for
from geobgp.inference.families import Bernoulli, Gaussian, Poisson
from geobgp.inference.fit import fit
from geobgp.inference.hyper import Hyper, differences, maximise, negative, newton_step
from geobgp.model import LGCP, BoundaryGP
from geobgp.prior.full_rank import FullRank
from geobgp.prior.kernels import Matern, SquaredExponential


def hyper_of(domain, kernel, **options):
    return Hyper.for_domain(kernel, float(np.sqrt(domain.node_areas.sum())), domain.cell_size, **options)


# -- features ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["C", "F"])
def test_features_are_plain_algebra(order):
    """Two large parts, three that stand alone, and observations that belong to none."""
    rng = np.random.default_rng(0)
    n, widths = 5000, [7, 1, 4, 1, 1]
    owner = rng.choice(6, n, p=[0.5, 0.05, 0.3, 0.05, 0.05, 0.05])
    rows = [np.flatnonzero(owner == k) for k in range(5)]
    matrices = [np.asarray(rng.normal(size=(len(r), m)), order=order) for r, m in zip(rows, widths, strict=True)]
    features = PartedFeatures(n, rows, matrices)
    assert features.shape == (n, 14)
    whole = np.zeros((n, 14))
    first = np.cumsum([0, *widths])
    for k, (r, matrix) in enumerate(zip(rows, matrices, strict=True)):
        whole[np.ix_(r, np.arange(first[k], first[k + 1]))] = matrix
    whole = whole[:, features.order]
    w, some = rng.uniform(size=n), rng.normal(size=(14, 3))
    gram = np.zeros((14, 14))
    found = features.gram(w)
    for part, block in zip(features.parts, found.dense, strict=True):
        gram[part.columns, part.columns] = np.tril(block) + np.tril(block, -1).T
    gram[np.arange(11, 14), np.arange(11, 14)] = found.alone
    assert np.allclose(gram, whole.T @ (w[:, None] * whole))
    for vectors in (some, some[:, 0]):
        assert np.allclose(features.apply(vectors), whole @ vectors)
    for vectors in (w, np.column_stack([w, w**2])):
        assert np.allclose(features.adjoint(vectors), whole.T @ vectors)
    assert np.allclose(features.squares(some**2), whole**2 @ some**2)
    halves = [np.asfortranarray(np.tril(rng.normal(size=(m, m)))) for m in (7, 4)]
    alone = rng.normal(size=3)
    half = np.zeros((14, 14))
    half[:7, :7], half[7:11, 7:11], half[[11, 12, 13], [11, 12, 13]] = halves[0], halves[1], alone
    assert np.allclose(features.variances(FeatureBlocks(halves, alone)), np.square(whole @ half.T).sum(axis=1))
    assert np.array_equal(features.join(features.split(w[:14])), w[:14])
    keep = np.ones(14, bool)
    keep[[1, 2, 3, 4, 5, 6, 9, 10]] = False
    few = features.truncate(keep)
    assert sorted(few.order) == list(np.flatnonzero(keep))
    assert np.allclose(few.apply(some[few.order]), whole[:, keep] @ some[keep])


# -- the site objective --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", [Matern(0.5), Matern(1.0), SquaredExponential()])
@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize("scaling", ["natural", "even"])
def test_value_and_gradient_of_the_site_objective(kernel, noisy, scaling):
    """Against a dense prior covariance, written out; the gradient against differences."""
    domain = archipelago()
    columns = np.column_stack([np.ones(domain.n_nodes), domain.node_points[:, 0] / 10.0])
    fixed_sd = np.array([3.0, 2.0])
    rng = np.random.default_rng(0)
    bases = [all_modes(domain, m=60)]
    if isinstance(kernel, Matern) and kernel.nu == 1.0:
        bases.append(FullRank(domain))
    sites = Sites(rng.uniform(0.1, 2, domain.n_nodes), rng.normal(size=domain.n_nodes))
    theta = np.log([2.0, 0.8, 0.6][: 3 if noisy else 2])
    unit = np.exp(-2.0 * theta[2]) if noisy else 1.0
    for basis in bases:
        engine = engine_for(basis, kernel, columns, fixed_sd, scaling=scaling)
        engine.noise_at = 2 if noisy else None
        value, gradient, _ = engine.objective(theta, sites)
        modes = basis if basis.truncated else all_modes(domain)
        s = kernel.with_parameters(2.0, 0.8).spectral_density(np.sqrt(modes.eigenvalues))
        prior = (modes.features * s) @ modes.features.T
        if scaling == "even":
            sd = np.sqrt(np.diag(prior)) / 0.8
            prior /= sd[:, None] * sd
        prior += (columns * fixed_sd**2) @ columns.T
        root = np.sqrt(unit * sites.precision)
        inner = np.eye(domain.n_nodes) + root[:, None] * prior * root
        covariance = prior - (prior * root) @ np.linalg.solve(inner, root[:, None] * prior)
        mean = covariance @ (unit * sites.natural)
        moments = engine.posterior(theta, sites)
        loose = 1e-8 if basis.truncated or scaling == "natural" else 2e-4
        assert moments.mean == pytest.approx(mean, abs=loose)
        assert moments.variance == pytest.approx(np.diag(covariance), abs=loose)
        log_det = np.linalg.slogdet(inner)[1]
        assert value == pytest.approx(0.5 * unit * sites.natural @ mean - 0.5 * log_det, abs=100 * loose)
        e = 1e-4
        for i in range(len(theta)):
            step = np.eye(len(theta))[i] * e
            slope = (engine.objective(theta + step, sites)[0] - engine.objective(theta - step, sites)[0]) / (2 * e)
            assert slope == pytest.approx(gradient[i], rel=1e-5, abs=1e-5)


def test_newton_search_finds_the_top_within_bounds():
    def hill(t):
        x, y = t
        value = -np.log1p((x - 1) ** 2) - (y - 0.5 * x) ** 2
        r = 1 + (x - 1) ** 2
        gradient = np.array([-2 * (x - 1) / r + (y - 0.5 * x), -2 * (y - 0.5 * x)])
        xx = -2 / r + 4 * (x - 1) ** 2 / r**2 - 0.5
        return value, gradient, np.array([[xx, 1.0], [1.0, -2.0]])

    wide = np.array([10.0, 10.0])
    top, _, _ = maximise(hill, np.array([-4.0, 3.0]), -wide, wide)
    assert top == pytest.approx([1.0, 0.5], abs=1e-5)
    blind, _, bent = maximise(
        lambda t: (*hill(t)[:2], None), np.array([-1.0, 1.0]), -wide, wide, curvature=-np.eye(2), max_evaluations=60
    )
    assert blind == pytest.approx([1.0, 0.5], abs=1e-4)
    assert np.linalg.eigvalsh(bent).max() < 0
    held, _, _ = maximise(hill, np.array([-4.0, 3.0]), -wide, np.array([0.0, 10.0]))
    assert held == pytest.approx([0.0, 0.0], abs=1e-5)
    assert differences(hill, top, np.array([True, True]), 1e-4) == pytest.approx(hill(top)[2], abs=1e-3)
    assert np.linalg.norm(newton_step(np.array([5.0, 0.0]), np.eye(2))) <= 1.0
    assert np.linalg.eigvalsh(negative(np.diag([3.0, -1.0]))).max() < 0


# -- Gaussian: everything in closed form ------------------------------------------------------------------


def gaussian_case(boundary):
    domain = archipelago()
    basis = all_modes(domain, boundary, m=60)
    rng = np.random.default_rng(2)
    y = np.sin(domain.node_points[:, 0]) + 0.3 * rng.normal(size=domain.n_nodes)
    return domain, basis, y


@pytest.mark.parametrize("boundary", ["neumann", "dirichlet"])
def test_gaussian_equals_a_dense_evaluation(boundary):
    domain, basis, y = gaussian_case(boundary)
    kernel, noise = Matern(1.5, 2.0, 0.9), 0.4
    engine = feature_engine(basis, kernel)
    result = fit(engine, Gaussian(y), hyper_of(domain, kernel, noise=noise))
    prior = prior_covariance(basis, kernel)
    total = prior + noise**2 * np.eye(len(y))
    evidence = multivariate_normal(np.zeros(len(y)), total).logpdf(y)
    assert result.elbo == pytest.approx(evidence, abs=1e-8)
    assert result.converged
    gain = np.linalg.solve(total, prior).T
    mean, variance = result.states[0].node_moments()
    assert np.abs(mean - gain @ y).max() < 1e-8
    assert np.abs(variance - np.diag(prior - gain @ prior)).max() < 1e-8


def test_gaussian_hyperparameters_are_where_the_marginal_likelihood_peaks():
    domain, basis, y = gaussian_case("neumann")
    kernel = Matern(1.5)
    hyper = hyper_of(domain, kernel, sd_unit=float(y.std()), learn_noise=True)
    result = fit(feature_engine(basis, kernel), Gaussian(y), hyper)

    def loss(theta):
        prior = prior_covariance(basis, kernel.with_parameters(*np.exp(theta[:2])))
        total = prior + np.exp(2 * theta[2]) * np.eye(len(y))
        return -multivariate_normal(np.zeros(len(y)), total).logpdf(y) - hyper.log_prior(theta)[0]

    best = minimize(loss, result.hyper_mean, method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-10})
    assert result.hyper_mean == pytest.approx(best.x, abs=1e-4)
    assert loss(result.hyper_mean) <= best.fun + 1e-7
    # The reported spread is the inverse curvature there.
    e = 1e-3
    ahead = np.array([0.0, 0.0, e])
    second = (loss(best.x + ahead) - 2 * loss(best.x) + loss(best.x - ahead)) / e**2
    assert np.linalg.inv(result.hyper_cov)[2, 2] == pytest.approx(second, rel=1e-3)


# -- Poisson ----------------------------------------------------------------------------------------------


def bound(m, root, phi, scale, likelihood):
    """Return the bound for q = N(m, root rootᵀ) over whitened weights, written out."""
    design = phi * scale
    mean, variance = design @ m, np.square(design @ root).sum(axis=1)
    rate = likelihood.exposure * np.exp(likelihood.centre + mean + variance / 2)
    log_rate = np.log(likelihood.exposure) + likelihood.centre + mean
    expected = (likelihood.counts * log_rate - rate - gammaln(likelihood.counts + 1)).sum()
    log_det = 2 * np.log(np.abs(np.diag(root))).sum()
    return expected - 0.5 * (m @ m + np.square(root).sum() - len(m) - log_det), design, rate


@pytest.mark.parametrize("total", [5.0, 60.0])
def test_poisson_reaches_what_a_generic_optimiser_reaches(total):
    domain = square(5.0)
    kernel = Matern(1.5, 2.0, 1.0)
    basis = all_modes(domain, m=7)
    likelihood = poisson_problem(domain, 1, total)
    result = fit(feature_engine(basis, kernel), likelihood, hyper_of(domain, kernel))
    phi = np.hstack([basis.features, np.ones((25, 1))])
    scale = np.append(np.sqrt(kernel.spectral_density(np.sqrt(basis.eigenvalues))), 10.0)
    p = 8
    lower = np.tril_indices(p)

    def loss(x):
        m, root = x[:p], np.zeros((p, p))
        root[lower] = x[p:]
        value, design, rate = bound(m, root, phi, scale, likelihood)
        by_m = design.T @ (likelihood.counts - rate) - m
        by_root = -(design.T * rate) @ design @ root - root + np.diag(1 / np.diag(root))
        return -value, -np.append(by_m, by_root[lower])

    start = np.append(np.zeros(p), 0.3 * np.eye(p)[lower])
    best = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 20_000, "ftol": 1e-15, "gtol": 1e-9})
    assert result.elbo == pytest.approx(-best.fun, abs=1e-6)
    state = result.states[0]
    assert state.joint()[0] / scale == pytest.approx(best.x[:p], abs=2e-4)


@pytest.mark.parametrize("which", ["features", "sparse"])
@pytest.mark.parametrize(("length", "sd"), [(3.0, 1.0), (0.5, 3.0), (40.0, 0.3), (1.0, 8.0)])
def test_bound_never_falls_for_fixed_hyperparameters(which, length, sd):
    domain = archipelago()
    kernel = Matern(1.0, length, sd)
    engine = feature_engine(all_modes(domain), kernel) if which == "features" else sparse_engine(domain, kernel)
    likelihood = poisson_problem(domain, 3)
    result = fit(engine, likelihood, hyper_of(domain, kernel))
    assert result.converged
    assert np.diff(result.elbo_trace).min() >= -1e-9 * abs(result.elbo)
    mean, variance = result.states[0].node_moments()
    expected = likelihood.exposure * np.exp(likelihood.centre + mean + variance / 2)
    assert expected.sum() == pytest.approx(likelihood.counts.sum(), rel=1e-3)


def profile(make_engine, domain, kernel, likelihood, theta):
    fixed = kernel.with_parameters(*np.exp(theta))
    result = fit(make_engine(fixed), likelihood, hyper_of(domain, fixed))
    return result.elbo


@pytest.mark.parametrize("which", ["features", "sparse"])
def test_gradient_of_the_bound_vanishes_at_learned_hyperparameters(which):
    domain = archipelago()
    kernel, likelihood = Matern(1.0), poisson_problem(domain, 4)
    basis = all_modes(domain, m=80)

    def make(k):
        return feature_engine(basis, k) if which == "features" else sparse_engine(domain, k)

    hyper = hyper_of(domain, kernel)
    result = fit(make(kernel), likelihood, hyper)
    assert result.converged
    assert np.diff(result.elbo_trace).min() >= -1e-9 * abs(result.elbo)
    theta, e = result.hyper_mean, 0.01
    gradient = hyper.log_prior(theta)[1]
    for i in range(2):
        step = np.eye(2)[i] * e
        up = profile(make, domain, kernel, likelihood, theta + step)
        down = profile(make, domain, kernel, likelihood, theta - step)
        gradient[i] += (up - down) / (2 * e)
    # In units of the posterior's own spread: a thousandth of a standard deviation.
    assert np.abs(gradient * np.sqrt(np.diag(result.hyper_cov))).max() < 0.15  # 0.01 nats


@pytest.mark.slow
def test_against_the_exact_posterior_by_elliptical_slice_sampling():
    """The sampler's ellipses are drawn around the fitted Gaussian, which only makes it mix well."""
    domain = square(7.0)
    kernel = Matern(1.5, 3.0, 1.0)
    basis = all_modes(domain, m=20)
    likelihood = poisson_problem(domain, 5, 150.0)
    result = fit(feature_engine(basis, kernel, fixed_sd=2.0), likelihood, hyper_of(domain, kernel))
    state = result.states[0]
    scale = np.append(np.sqrt(kernel.spectral_density(np.sqrt(basis.eigenvalues))), 2.0)
    design = np.hstack([basis.features, np.ones((49, 1))]) * scale
    flat = likelihood.exposure * np.exp(likelihood.centre)
    mean, covariance = state.joint()
    centre = mean / scale
    root = np.linalg.cholesky(np.linalg.inv(covariance / np.outer(scale, scale)))

    def log_ratio(z):
        f = design @ z
        whitened = root.T @ (z - centre)
        return likelihood.counts @ f - flat @ np.exp(f) - 0.5 * z @ z + 0.5 * whitened @ whitened

    rng = np.random.default_rng(0)
    z = centre
    current = log_ratio(z)
    draws = np.empty((20_000, 21))
    for step in range(len(draws)):
        other = np.linalg.solve(root.T, rng.standard_normal(21))
        level = current + np.log(rng.uniform())
        angle = rng.uniform(0, 2 * np.pi)
        low, high = angle - 2 * np.pi, angle
        while True:
            trial = centre + (z - centre) * np.cos(angle) + other * np.sin(angle)
            value = log_ratio(trial)
            if value > level:
                break
            low, high = (angle, high) if angle < 0 else (low, angle)
            angle = rng.uniform(low, high)
        z, current = trial, value
        draws[step] = z
    f = draws @ design.T
    mean, variance = state.node_moments()
    spread = f.std(axis=0)
    assert np.mean(np.abs(mean - f.mean(axis=0)) / spread) < 0.05
    assert np.abs(np.sqrt(variance) / spread - 1).mean() < 0.05


# -- laws -------------------------------------------------------------------------------------------------


def moments_of(domain, counts, kernel, which):
    engine = feature_engine(all_modes(domain, m=50), kernel) if which == "features" else sparse_engine(domain, kernel)
    exposure = domain.node_areas / domain.node_areas.sum()
    likelihood = Poisson(counts, exposure, float(np.log(counts.sum())))
    result = fit(engine, likelihood, hyper_of(domain, kernel))
    return result, *result.states[0].node_moments()


@pytest.mark.parametrize("which", ["features", "sparse"])
def test_units_do_not_matter(which):
    small, large = archipelago(), archipelago(scale=1000.0)
    counts = poisson_problem(small, 6).counts
    first, mean1, variance1 = moments_of(small, counts, Matern(1.0), which)
    second, mean2, variance2 = moments_of(large, counts, Matern(1.0), which)
    assert np.abs(mean1 - mean2).max() < 1e-8
    assert np.abs(variance1 - variance2).max() < 1e-8
    assert second.elbo == pytest.approx(first.elbo, abs=1e-7)
    assert second.hyper_mean - first.hyper_mean == pytest.approx([np.log(1000.0), 0.0], abs=1e-8)


def test_order_of_nodes_does_not_matter():
    domain = square(8.0)
    basis, likelihood = all_modes(domain, m=30), poisson_problem(domain, 7)
    kernel = Matern(1.5)
    hyper = hyper_of(domain, kernel)
    first = fit(feature_engine(basis, kernel), likelihood, hyper)
    order = np.random.default_rng(0).permutation(domain.n_nodes)
    shuffled = HarmonicBasis.from_vectors(basis.discretisation, basis.eigenvalues, basis.vectors[order])
    other = Poisson(likelihood.counts[order], likelihood.exposure[order], likelihood.centre)
    second = fit(feature_engine(shuffled, kernel), other, hyper)
    assert second.hyper_mean == pytest.approx(first.hyper_mean, abs=1e-8)
    means = [result.states[0].node_moments()[0] for result in (first, second)]
    assert np.abs(means[1] - means[0][order]).max() < 1e-8


@pytest.mark.parametrize("which", ["features", "sparse"])
def test_threads_do_not_matter(which):
    from threadpoolctl import threadpool_limits

    domain = archipelago()
    counts = poisson_problem(domain, 8).counts
    found = []
    for threads in (1, 2):
        with threadpool_limits(threads):
            found.append(moments_of(domain, counts, Matern(1.0), which)[1:])
    assert np.abs(found[0][0] - found[1][0]).max() < 1e-8
    assert np.abs(found[0][1] - found[1][1]).max() < 1e-8


@pytest.mark.slow
@pytest.mark.parametrize("which", ["features", "sparse"])
def test_integration_over_hyperparameters(which):
    domain = archipelago()
    likelihood, kernel = poisson_problem(domain, 9, 100.0), Matern(1.0)

    def make(k):
        return feature_engine(all_modes(domain, m=80), k) if which == "features" else sparse_engine(domain, k)

    best = fit(make(kernel), likelihood, hyper_of(domain, kernel))
    mixed = fit(make(kernel), likelihood, hyper_of(domain, kernel), integrate=True)
    weights = np.array([s.weight for s in mixed.states])
    assert len(mixed.states) == 9
    assert weights.sum() == pytest.approx(1.0)
    assert weights[0] == weights.max()
    assert mixed.rounds <= 10 * best.rounds
    # The mean of log ℓ and its spread agree with a fine grid.
    centre, spread = best.hyper_mean, np.sqrt(np.diag(best.hyper_cov))
    hyper = hyper_of(domain, kernel)
    axis = np.linspace(-3, 3.5, 9)
    grid = [centre + spread * np.array([a, b]) for a in axis for b in axis]
    score = np.array([profile(make, domain, kernel, likelihood, t) + hyper.log_prior(t)[0] for t in grid])
    fine = np.exp(score - score.max())
    fine /= fine.sum()
    logs = np.log([[s.lengthscale, s.sd] for s in mixed.states])
    assert weights @ logs == pytest.approx(fine @ np.array(grid), abs=0.15 * spread.max())
    assert np.sqrt(weights @ (logs - weights @ logs) ** 2) == pytest.approx(
        np.sqrt(fine @ (np.array(grid) - fine @ np.array(grid)) ** 2), rel=0.25
    )


def test_integration_with_one_free_parameter_and_with_none():
    domain = square(6.0)
    likelihood, basis = poisson_problem(domain, 10), all_modes(domain, m=20)
    for kernel, count in ((Matern(1.5, sd=1.0), 3), (Matern(1.5, 3.0, 1.0), 1)):
        result = fit(feature_engine(basis, kernel), likelihood, hyper_of(domain, kernel), integrate=True)
        assert len(result.states) == count


# -- Bernoulli and values at locations ---------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("link", ["probit", "logit"])
def test_bernoulli_reaches_the_best_bound(link):
    """Against a generic optimiser over means and sites' precisions, which contain the best Gaussian."""
    domain = square(5.0)
    kernel, basis = Matern(1.5, 2.0, 1.5), all_modes(domain, m=10)
    rng = np.random.default_rng(3)
    values = (rng.uniform(size=25) < 0.5).astype(float)
    likelihood = Bernoulli(values, link)
    result = fit(feature_engine(basis, kernel), likelihood, hyper_of(domain, kernel))
    assert result.converged
    assert np.diff(result.elbo_trace).min() >= -1e-9 * abs(result.elbo)
    prior = prior_covariance(basis, kernel) + 1e-9 * np.eye(25)
    precision = np.linalg.inv(prior)

    def loss(x):
        # f = prior · a: every mean worth having; covariance from positive site precisions.
        mean, sites = prior @ x[:25], np.exp(x[25:])
        covariance = np.linalg.inv(precision + np.diag(sites))
        value = likelihood.expected(mean, np.diag(covariance)).value.sum()
        divergence = 0.5 * (
            np.sum(precision * covariance)
            + x[:25] @ prior @ x[:25]
            - 25
            + np.linalg.slogdet(prior)[1]
            - np.linalg.slogdet(covariance)[1]
        )
        return -(value - divergence)

    best = minimize(loss, np.append(np.zeros(25), np.full(25, -1.0)), method="L-BFGS-B", options={"maxfun": 40_000})
    assert result.elbo >= -best.fun - 1e-5


def test_boundary_gp_learns_a_function_and_its_noise():
    domain = square(10.0, 0.5)
    basis = all_modes(domain, m=120)
    rng = np.random.default_rng(4)
    coords = rng.uniform(0.2, 9.8, (300, 2))
    truth = np.sin(coords[:, 0]) * np.cos(0.7 * coords[:, 1])
    values = 5.0 + truth + 0.1 * rng.normal(size=300)
    result = BoundaryGP(basis, Matern(2.5)).fit(coords, values).fit
    assert result.states[0].noise == pytest.approx(0.1, rel=0.2)
    mean, variance = result.states[0].moments_at(coords)
    assert np.sqrt(np.mean((mean - 5.0 - truth) ** 2)) < 0.06
    assert (variance > 0).all()
    # Values in another unit change nothing but the unit.
    other = BoundaryGP(basis, Matern(2.5)).fit(coords, 1000.0 * values).fit
    assert other.hyper_mean - result.hyper_mean == pytest.approx([0, np.log(1000), np.log(1000)], abs=1e-6)
    assert other.states[0].moments_at(coords)[0] / 1000 == pytest.approx(mean, abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("m", [64, 448])
def test_a_strongly_clustered_pattern_on_real_land_converges(m):
    # A week of earthquakes in California, four fifths of them: 93 in one cell, much of the land empty.
    # The posterior of few features is a hopeless start for many.
    sample = SAMPLE
    domain = Domain.from_polygons(
        sample / "california_land.gpkg", water=sample / "california_water.gpkg", cell_size=10_000
    )
    events = pd.read_csv(sample / "usgs_california_2018_points.csv")
    some = events[np.random.default_rng(0).uniform(size=len(events)) < 0.8]
    with pytest.warns(GeobgpWarning, match="72 of 785 points"):
        counts = bin_points(some, domain)
    model = LGCP(HarmonicBasis.compute(domain, m, cache=False), Matern(1.5))
    with pytest.warns(GeobgpWarning, match="of the prior variance"):
        posterior = model.fit(counts)
    assert posterior.converged
    expected = float(posterior.node_intensity()["mean"] @ domain.node_areas) / 1e6
    assert expected == pytest.approx(713, rel=1e-3)


def test_steps_into_precisions_that_are_not_finite_are_shortened(monkeypatch):
    """A target so far away that the system there cannot be solved is no reason to give up."""
    domain = square(8.0, 0.5)
    basis = HarmonicBasis.compute(domain, 24, cache=False)
    counts = np.random.default_rng(3).poisson(20.0 * np.exp(np.sin(domain.node_points[:, 0])) * domain.node_areas)
    model = LGCP(basis, Matern(1.5, lengthscale=3.0, sd=1.0))
    plain, solve, failed = model.fit(counts), Engine.posterior, []

    def fails_at_first(self, theta, sites):
        if len(failed) < 3 and self.rounds > 1:
            failed.append(theta)
            raise np.linalg.LinAlgError("the posterior precision is not finite")
        return solve(self, theta, sites)

    monkeypatch.setattr(Engine, "posterior", fails_at_first)
    found = model.fit(counts)
    assert len(failed) == 3 and found.converged
    assert found.elbo == pytest.approx(plain.elbo, abs=1e-4)
