from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import shapely
from models import all_modes, archipelago, feature_engine, poisson_problem, prior_covariance, sparse_engine, square
from scipy.stats import multivariate_normal

from geobgp.archive import pack, unpack
from geobgp.errors import GeobgpError, SizeError
from geobgp.inference.engine import Sites, engine_for
from geobgp.inference.families import Gaussian, Poisson
from geobgp.inference.fit import fit
from geobgp.inference.hyper import Hyper
from geobgp.land.domain import Domain
from geobgp.model import LGCP, BoundaryGP
from geobgp.prior import full_rank as powers
from geobgp.prior.full_rank import FullRank, coefficients
from geobgp.prior.kernels import Matern, SquaredExponential

BOTH = pytest.mark.parametrize("boundary", ["neumann", "dirichlet"])
NU = pytest.mark.parametrize("nu", [1.0, 2.0])


def hyper_of(domain, kernel, **options):
    return Hyper.for_domain(kernel, float(np.sqrt(domain.node_areas.sum())), domain.cell_size, **options)


@BOTH
@NU
def test_prior_covariance_is_the_spectral_density_of_the_matrix(boundary, nu):
    domain, kernel = archipelago(), Matern(nu, 2.0, 0.8)
    full, modes = FullRank(domain, boundary=boundary), all_modes(domain, boundary)
    engine = engine_for(full, kernel, np.ones((domain.n_nodes, 0)), np.ones(0))
    m = engine.matrices
    entries = m.entries(coefficients(nu, 2.0 / domain.cell_size, 0.8)[1], np.zeros(domain.n_nodes))
    q = sp.csr_array((entries, m.pattern.indices, m.pattern.indptr)).toarray()
    to_nodes = full.field.to_nodes.toarray()
    found = to_nodes @ np.linalg.inv(q) @ to_nodes.T
    assert np.abs(found - prior_covariance(modes, kernel, None)).max() < 1e-8


@BOTH
@NU
def test_gaussian_equals_a_dense_evaluation(boundary, nu):
    domain, kernel, noise = archipelago(), Matern(nu, 2.0, 0.9), 0.4
    rng = np.random.default_rng(2)
    y = np.sin(domain.node_points[:, 0]) + 0.3 * rng.normal(size=domain.n_nodes)
    result = fit(sparse_engine(domain, kernel, boundary), Gaussian(y), hyper_of(domain, kernel, noise=noise))
    prior = prior_covariance(all_modes(domain, boundary), kernel)
    total = prior + noise**2 * np.eye(len(y))
    assert result.elbo == pytest.approx(multivariate_normal(np.zeros(len(y)), total).logpdf(y), abs=1e-8)
    gain = np.linalg.solve(total, prior).T
    mean, variance = result.states[0].node_moments()
    assert np.abs(mean - gain @ y).max() < 1e-8
    assert np.abs(variance - np.diag(prior - gain @ prior)).max() < 1e-8


@BOTH
@NU
@pytest.mark.parametrize("learn", [False, True])
def test_poisson_equals_the_harmonic_engine_with_all_modes(boundary, nu, learn):
    domain = archipelago()
    kernel = Matern(nu) if learn else Matern(nu, 2.0, 1.2)
    likelihood, hyper = poisson_problem(domain, 1), hyper_of(domain, kernel)
    modes = fit(feature_engine(all_modes(domain, boundary), kernel), likelihood, hyper)
    full = fit(sparse_engine(domain, kernel, boundary), likelihood, hyper)
    close = 1e-6 if not learn else 0.05  # both stop within 0.01 nats of the top, where θ is this loose
    assert full.elbo_trace[-1] == pytest.approx(modes.elbo_trace[-1], abs=1e-6 if not learn else 0.01)
    for a, b in zip(full.states[0].node_moments(), modes.states[0].node_moments(), strict=True):
        assert np.abs(a - b).max() < close
    assert full.truncated_variance == 0.0


def test_noise_and_hyperparameters_agree_with_all_modes():
    domain = archipelago()
    rng = np.random.default_rng(5)
    # Between nodes full rank takes a mean of theirs: both agree at the centres of cells.
    centres = domain.node_points[domain.holds_centre]
    coords = centres[rng.choice(len(centres), 300)]
    values = 3.0 + np.sin(coords[:, 0]) + 0.2 * rng.normal(size=len(coords))
    kernel = Matern(1.0)
    full = BoundaryGP(FullRank(domain), kernel).fit(coords, values).fit
    modes = BoundaryGP(all_modes(domain), kernel).fit(coords, values).fit
    assert full.hyper_mean == pytest.approx(modes.hyper_mean, abs=1e-3)
    assert full.elbo == pytest.approx(modes.elbo, abs=1e-3)
    places = np.vstack([centres, [[100.0, 0.0], [6.5, 8.0]]])
    for a, b in zip(full.states[0].moments_at(places), modes.states[0].moments_at(places), strict=True):
        assert np.array_equal(np.isnan(a), np.isnan(b))
        assert np.isnan(a[-2:]).all()
        assert np.nanmax(np.abs(a - b)) < 1e-3
    fixed = Matern(1.0, 2.0, 1.0)
    full = BoundaryGP(FullRank(domain), fixed, noise=0.2).fit(coords, values).fit
    modes = BoundaryGP(all_modes(domain), fixed, noise=0.2).fit(coords, values).fit
    for a, b in zip(full.states[0].moments_at(places), modes.states[0].moments_at(places), strict=True):
        assert np.nanmax(np.abs(a - b)) < 1e-4
    state = full.states[0]
    here = np.flatnonzero(domain.holds_centre)
    assert np.allclose(state.moments_at(centres), np.array(state.node_moments())[:, here], atol=1e-9)


@BOTH
def test_samples_have_the_posterior_covariance(boundary):
    domain, kernel = archipelago(1.2), Matern(1.0, 3.0, 1.0)
    x = {"east": domain.node_points[:, 0]}
    y = poisson_problem(domain, 2).counts
    natural = {"covariates": x, "scaling": "natural"}
    full = LGCP(FullRank(domain, boundary=boundary), kernel, **natural).fit(y).fit.states[0]
    modes = LGCP(all_modes(domain, boundary), kernel, **natural).fit(y).fit.states[0]
    draws = full.sample_nodes(20_000, np.random.default_rng(0))
    design = np.hstack([modes.basis.features, modes.fixed])
    covariance = design @ modes.joint()[1] @ design.T
    sd = np.sqrt(np.diag(covariance))
    found = np.cov(draws.T)
    assert np.abs(found - covariance).max() < 0.06 * sd.max() ** 2
    assert np.abs(draws.mean(axis=0) - modes.node_moments()[0]).max() < 0.05 * sd.max()
    assert full.coefficients()[0] == pytest.approx(modes.coefficients()[0], abs=1e-6)
    assert full.coefficients()[1] == pytest.approx(modes.coefficients()[1], abs=1e-6)
    again = full.sample_nodes(3, np.random.default_rng(0))
    assert np.array_equal(again, full.sample_nodes(3, np.random.default_rng(0)))


def test_the_same_numbers_on_every_run_and_after_a_round_trip():
    domain = archipelago()
    y = poisson_problem(domain, 3).counts
    first, second = (LGCP(FullRank(domain)).fit(y).fit for _ in range(2))
    assert np.array_equal(first.elbo_trace, second.elbo_trace)
    state = first.states[0]
    again = unpack(*pack(state))
    for a, b in zip(state.node_moments(), again.node_moments(), strict=True):
        assert np.array_equal(a, b)
    draws = [s.sample_nodes(4, np.random.default_rng(1)) for s in (state, again)]
    assert np.abs(draws[0] - draws[1]).max() < 1e-10


@pytest.mark.parametrize("kernel", [Matern(1.5), Matern(0.5), SquaredExponential()])
def test_other_kernels_are_refused_with_the_choices(kernel):
    with pytest.raises(GeobgpError, match=r"Matern\(1\.0\) or Matern\(2\.0\)"):
        LGCP(FullRank(square()), kernel)


def test_the_default_kernel_is_one_it_can_take():
    assert LGCP(FullRank(square())).kernel == Matern(1.0)


def test_memory_is_estimated_and_refused_with_numbers(monkeypatch):
    monkeypatch.setattr(powers, "free_memory", lambda: 1e5)
    with pytest.raises(SizeError, match=r"GB .* free"):
        LGCP(FullRank(square())).fit(np.ones(100))
    monkeypatch.undo()
    assert powers.free_memory() > 1e6


def test_coarser_fields_keep_mass_constants_and_rivers():
    domain = archipelago(0.4)
    field = FullRank(domain).field
    coarse, prolong = field.coarser
    assert coarse.size < 0.4 * field.size
    assert coarse.mass.sum() == pytest.approx(field.mass.sum())
    # A constant stays a constant, and costs nothing.
    constant = np.sqrt(coarse.mass)
    assert prolong @ constant == pytest.approx(np.sqrt(field.mass))
    assert np.abs(coarse.matrix @ constant).max() < 1e-10
    groups = sp.csgraph.connected_components(coarse.matrix, directed=False)[0]
    assert groups == domain.n_components
    # Long waves cost about the same.
    wave = np.cos(domain.node_points[:, 0] / 4) * np.sqrt(field.mass)
    on_coarse = prolong.T @ wave
    fine = wave @ (field.matrix @ wave)
    assert on_coarse @ (coarse.matrix @ on_coarse) == pytest.approx(fine, rel=0.1)


# -- hard cases -------------------------------------------------------------------------------------------


def coast(cell=0.25):
    land = shapely.union_all(
        [shapely.Point(5, 5).buffer(4.8), shapely.box(11, 1, 13, 4), shapely.Point(12, 8).buffer(1.1)]
    )
    return Domain.from_polygons(land, cell_size=cell, crs="local")


def scattered(domain, n, rng):
    return domain.node_points[rng.choice(domain.n_nodes, n, p=domain.node_areas / domain.node_areas.sum())]


def hard_case(name, domain):
    rng = np.random.default_rng(11)
    if name == "a third on a handful of locations":
        places = scattered(domain, 5, rng)
        points = np.vstack([scattered(domain, 400, rng), np.repeat(places, 40, axis=0)])
    elif name == "near doubles":
        first = scattered(domain, 360, rng)
        points = np.vstack([first, first[:240] + 0.01 * rng.normal(size=(240, 2))])
    elif name == "many small clusters":
        centres = scattered(domain, 25, rng)
        points = np.repeat(centres, 25, axis=0) + 0.3 * rng.normal(size=(625, 2))
    elif name == "empty islands":
        points = scattered(domain, 3000, rng)
        points = points[points[:, 0] < 10]
    elif name == "no points":
        return np.zeros(domain.n_nodes)
    elif name == "one point":
        points = scattered(domain, 1, rng)
    node = domain.locate(points)
    return np.bincount(node[node >= 0], minlength=domain.n_nodes).astype(float)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "a third on a handful of locations",
        "near doubles",
        "many small clusters",
        "empty islands",
        "no points",
        "one point",
    ],
)
@pytest.mark.parametrize("fixed", [False, True])
def test_hard_cases_converge(name, fixed):
    domain = coast()
    counts = hard_case(name, domain)
    kernel = Matern(1.0, 2 * domain.cell_size, 3.0) if fixed else Matern(1.0)
    model = LGCP(FullRank(domain), kernel)
    result = model.fit(counts).fit
    assert result.converged, result.message
    assert np.diff(result.elbo_trace).min() >= -1e-9 * abs(result.elbo)
    mean, variance = result.states[0].node_moments()
    assert np.isfinite(mean).all()
    assert (variance > 0).all()
    expected = (model.exposure * np.exp(mean + variance / 2)).sum()
    if counts.sum() > 1:
        assert expected == pytest.approx(counts.sum(), rel=1e-3)
    else:
        assert expected == pytest.approx(counts.sum(), abs=0.2)


@pytest.mark.slow
def test_larger_fields_rehearse_on_coarser_ones():
    domain = coast(0.1)
    counts = hard_case("many small clusters", domain)
    engine = sparse_engine(domain, Matern(1.0))
    sizes = [part.field.size for part in engine.warm_start_engines()]
    assert sizes == sorted(sizes)
    assert sizes[-1] < engine.field.size
    exposure = domain.node_areas
    likelihood = Poisson(counts, exposure, float(np.log(counts.sum() / exposure.sum())))
    hyper = hyper_of(domain, Matern(1.0))
    result = fit(engine, likelihood, hyper)
    assert result.converged
    # The gradient at the end, one that no rehearsal had a part in.
    fresh = sparse_engine(domain, Matern(1.0))
    state = result.states[0]
    mean, variance = state.node_moments()
    from geobgp.inference.families import sites

    evidence = Sites(*sites(likelihood.expected(mean, variance), mean))
    gradient = fresh.objective(result.hyper_mean, evidence)[1] + hyper.log_prior(result.hyper_mean)[1]
    assert np.abs(gradient * np.sqrt(np.diag(result.hyper_cov))).max() < 0.15  # 0.01 nats


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a third on a handful of locations", "many small clusters"])
def test_far_starts_and_a_tight_search_agree(name):
    """Few rounds are enough: within 0.02 nats of what a search to the end finds, from either side."""
    domain = coast(0.15)
    counts, exposure = hard_case(name, domain), domain.node_areas
    likelihood = Poisson(counts, exposure, float(np.log(counts.sum() / exposure.sum())))
    hyper = hyper_of(domain, Matern(1.0))

    def search(start, min_gain=0.01):
        result = fit(sparse_engine(domain, Matern(1.0)), likelihood, replace(hyper, start=start), min_gain=min_gain)
        assert result.converged, result.message
        return result, result.elbo + hyper.log_prior(result.hyper_mean)[0]

    tight = search(hyper.start, 1e-5)[1]
    for shift in ([1.5, 1.5], [-1.0, -1.5]):
        result, score = search(np.clip(hyper.start + shift, hyper.lower, hyper.upper))
        assert abs(score - tight) < 0.02
        assert result.rounds <= 30
