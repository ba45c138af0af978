"""Both engines against answers that are known: closed forms, a generic optimiser, MCMC, and each other."""

import warnings

import geopandas as gpd
import numpy as np
import pytest
import scipy.linalg
import scipy.optimize
import shapely
from scipy.special import gammaln
from scipy.stats import multivariate_normal
from shapely import affinity

from geobgp import (
    LGCP,
    BoundaryGP,
    Domain,
    FullRank,
    GeobgpWarning,
    HarmonicBasis,
    Matern,
    SquaredExponential,
    bin_points,
    simulate_points,
)
from geobgp.inference.hyper import Hyper
from geobgp.prior.laplacian import discretise

pytestmark = pytest.mark.filterwarnings("ignore::geobgp.errors.GeobgpWarning")


def archipelago(cell_size=0.5):
    """A main land that a thin river parts, and two islands."""
    land = shapely.union_all([shapely.box(0, 0, 6, 4), shapely.box(7, 0.5, 9, 2.2), shapely.Point(8, 3.5).buffer(0.8)])
    river = affinity.rotate(shapely.box(-2, 2.0, 8, 2.02), 11)
    return Domain.from_polygons(land, water=river, cell_size=cell_size, crs="local")


def all_modes(domain, boundary):
    """The harmonic basis with every mode and without the correction: the same prior as full rank."""
    made = discretise(domain, boundary=boundary)
    values, vectors = scipy.linalg.eigh(made.matrix.toarray())
    return HarmonicBasis.from_vectors(made, np.maximum(values, 0.0), vectors / np.sqrt(made.mass)[:, None])


def dense_prior(basis, kernel, coords):
    phi = basis.evaluate(coords)
    return (phi * kernel.spectral_density(np.sqrt(basis.eigenvalues))) @ phi.T


@pytest.fixture(scope="module")
def domain():
    return archipelago()


@pytest.fixture(scope="module")
def places(domain):
    rng = np.random.default_rng(3)
    points = rng.uniform((0, 0), (9, 4.5), (400, 2))
    return points[domain.locate(points) >= 0][:80]


@pytest.mark.parametrize("boundary", ["neumann", "dirichlet"])
@pytest.mark.parametrize("rank", ["features", "full"])
def test_gaussian_posterior_and_evidence_are_exact(domain, places, boundary, rank):
    rng = np.random.default_rng(0)
    centres = domain.node_points[domain.holds_centre]  # where full rank and features have the same values
    if rank == "full":
        places = centres[rng.choice(len(centres), 80)]
    y = np.sin(places[:, 0]) + 0.2 * rng.standard_normal(len(places))
    noise = 0.2
    if rank == "features":
        kernel = Matern(1.5, lengthscale=1.3, sd=0.9)
        prior = basis = HarmonicBasis.compute(domain, m=60, boundary=boundary, cache=False)
    else:
        kernel = Matern(1.0, lengthscale=1.3, sd=0.9)
        prior, basis = FullRank(domain, boundary=boundary), all_modes(domain, boundary)
    posterior = BoundaryGP(prior, kernel, noise=noise, mean="zero", scaling="natural").fit(places, y)
    covariance = dense_prior(basis, kernel, places)
    marginal = covariance + noise**2 * np.eye(len(y))
    evidence = multivariate_normal(np.zeros(len(y)), marginal).logpdf(y)
    assert posterior.elbo == pytest.approx(evidence, rel=1e-8)
    new = centres[:40]
    joint = np.vstack([places, new])
    both = dense_prior(basis, kernel, joint)
    cross, own = both[len(y) :, : len(y)], both[len(y) :, len(y) :]
    mean, variance = posterior.predict(new)
    np.testing.assert_allclose(mean, cross @ np.linalg.solve(marginal, y), atol=1e-8)
    np.testing.assert_allclose(variance, np.diag(own - cross @ np.linalg.solve(marginal, cross.T)), atol=1e-8)
    mean_y, variance_y = posterior.predict_y(new)
    np.testing.assert_allclose(mean_y, mean, atol=1e-12)
    np.testing.assert_allclose(variance_y, variance + noise**2, atol=1e-10)


@pytest.mark.parametrize("boundary", ["neumann", "dirichlet"])
@pytest.mark.parametrize("nu", [1.0, 2.0])
def test_full_rank_is_all_modes(domain, boundary, nu):
    rng = np.random.default_rng(1)
    kernel = Matern(nu, lengthscale=1.5, sd=0.8)
    counts = rng.poisson(np.exp(np.sin(domain.node_points[:, 0]) + 0.5) * domain.node_areas * 4)
    basis = all_modes(domain, boundary)
    full = LGCP(FullRank(domain, boundary=boundary), kernel, scaling="natural").fit(counts)
    harmonic = LGCP(basis, kernel, scaling="natural").fit(counts)
    assert full.elbo == pytest.approx(harmonic.elbo, rel=1e-9)
    for statistic in ("mean", "sd", "q05", "q95"):
        np.testing.assert_allclose(full.intensity()[statistic], harmonic.intensity()[statistic], rtol=1e-5)
    np.testing.assert_allclose(full.coefficients["mean"], harmonic.coefficients["mean"], atol=1e-6)


def test_no_covariance_across_the_river(domain):
    kernel = Matern(1.0, lengthscale=2.0, sd=1.0)
    basis = all_modes(domain, "neumann")
    covariance = (basis.features * kernel.spectral_density(np.sqrt(basis.eigenvalues))) @ basis.features.T
    apart = domain.components[:, None] != domain.components[None]
    assert domain.n_components == 4
    assert np.abs(covariance[apart]).max() < 1e-9 * covariance.max()


def poisson_bound(parameters, phi, scale, y):
    """The ELBO of any Gaussian q over the weights of features, counts with mean exp(f)."""
    m = phi.shape[1]
    mean, root = parameters[:m], np.zeros((m, m))
    root[np.tril_indices(m)] = parameters[m:]
    mu, v = phi @ mean, np.square(phi @ root).sum(axis=1)
    expected = (y * mu - np.exp(mu + v / 2) - gammaln(y + 1)).sum()
    divergence = (np.square(root).sum(axis=1) / scale + mean**2 / scale + np.log(scale) - 1).sum() / 2
    return expected - divergence + np.log(np.abs(np.diag(root))).sum()


def test_poisson_bound_is_the_best_of_all_gaussians(domain, places):
    rng = np.random.default_rng(2)
    basis = HarmonicBasis.compute(domain, m=7, boundary="dirichlet", cache=False)
    kernel = Matern(1.5, lengthscale=1.5, sd=1.0)
    phi, scale = basis.evaluate(places), kernel.spectral_density(np.sqrt(basis.eigenvalues))
    y = rng.poisson(np.exp(np.cos(places[:, 0])))
    posterior = BoundaryGP(basis, kernel, likelihood="poisson", mean="zero").fit(places, y)
    start = np.r_[np.zeros(7), (0.3 * np.eye(7))[np.tril_indices(7)]]
    best = scipy.optimize.minimize(
        lambda p: -poisson_bound(p, phi, scale, y), start, method="BFGS", options={"gtol": 1e-7, "maxiter": 2000}
    )
    assert posterior.elbo == pytest.approx(-best.fun, abs=1e-6)


@pytest.mark.parametrize("kernel", [Matern(1.5), SquaredExponential()])
def test_bound_never_falls_and_is_flat_at_the_learned_hyperparameters(domain, kernel):
    rng = np.random.default_rng(4)
    truth = np.exp(1.2 * np.sin(1.5 * domain.node_points[:, 0]) + 1.5)
    counts = rng.poisson(truth * domain.node_areas)
    basis = HarmonicBasis.compute(domain, m=60, cache=False)
    posterior = LGCP(basis, kernel).fit(counts)
    assert posterior.converged
    trace = posterior.fit.elbo_trace
    assert (np.diff(trace) >= -1e-9 * np.abs(trace[1:])).all()
    fixed = LGCP(basis, kernel.with_parameters(2.0, 1.0)).fit(counts)
    assert (np.diff(fixed.fit.elbo_trace) >= -1e-9 * np.abs(fixed.fit.elbo_trace[1:])).all()
    hyper = Hyper.for_domain(kernel, float(np.sqrt(domain.node_areas.sum())), domain.cell_size)

    def score(theta):
        at = LGCP(basis, kernel.with_parameters(*np.exp(theta))).fit(counts).elbo
        return at + hyper.log_prior(theta)[0]

    best = np.log([posterior.lengthscale, posterior.sd])
    step = 0.02
    for k in range(2):
        side = np.eye(2)[k] * step
        up, middle, down = score(best + side), score(best), score(best - side)
        slope, bend = (up - down) / (2 * step), (up - 2 * middle + down) / step**2
        assert bend < 0
        # A Newton step from here would gain next to nothing.
        assert slope**2 / (2 * abs(bend)) < 0.02


def elliptical_slice(log_likelihood, root, n, rng):
    """Sample u ~ N(0, root²) times a likelihood (Murray, Adams & MacKay 2010)."""
    u = np.zeros(len(root))
    value, out = log_likelihood(u), np.empty((n, len(root)))
    for k in range(n):
        other = root * rng.standard_normal(len(root))
        height = value + np.log(rng.random())
        angle = rng.uniform(0, 2 * np.pi)
        low, high = angle - 2 * np.pi, angle
        while True:
            new = u * np.cos(angle) + other * np.sin(angle)
            value = log_likelihood(new)
            if value > height:
                break
            low, high = (angle, high) if angle < 0 else (low, angle)
            angle = rng.uniform(low, high)
        u = new
        out[k] = u
    return out


@pytest.mark.slow
def test_poisson_posterior_against_mcmc(domain, places):
    rng = np.random.default_rng(5)
    basis = HarmonicBasis.compute(domain, m=12, cache=False)
    kernel = Matern(1.5, lengthscale=2.0, sd=0.8)
    phi, root = basis.evaluate(places), np.sqrt(kernel.spectral_density(np.sqrt(basis.eigenvalues)))
    y = rng.poisson(np.exp(phi @ (root * rng.standard_normal(basis.m)) + 0.3))
    posterior = BoundaryGP(basis, kernel, likelihood="poisson", mean="zero", scaling="natural").fit(places, y)

    def log_likelihood(u):
        f = phi @ u
        return y @ f - np.exp(f).sum()

    chain = elliptical_slice(log_likelihood, root, 60_000, rng)[2000:] @ phi.T
    mean, variance = posterior.predict(places)
    sd = chain.std(axis=0)
    off = np.abs(mean - chain.mean(axis=0)) / sd
    ratio = np.sqrt(variance) / sd
    assert off.mean() < 0.05, f"means differ by {off.mean():.3f} sd on average"
    assert np.abs(ratio - 1).mean() < 0.05, f"sd ratio {ratio.mean():.3f}"


def test_a_unit_of_length_does_not_matter():
    shape = shapely.union_all([shapely.box(0, 0, 6, 4), shapely.box(7, 0.5, 9, 2.2)])
    results = []
    for unit in (1.0, 1000.0):
        land = affinity.scale(shape, unit, unit, origin=(0, 0))
        domain = Domain.from_polygons(land, cell_size=0.5 * unit, crs="local")
        basis = HarmonicBasis.compute(domain, m=40, cache=False)
        counts = np.random.default_rng(0).poisson(3.0 + 2 * np.sin(domain.node_points[:, 0] / unit))
        posterior = LGCP(basis, Matern(1.5)).fit(counts)
        intensity = posterior.intensity()["mean"] * unit**2
        results.append((posterior.elbo, posterior.lengthscale / unit, posterior.sd, intensity))
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    # The order of the points does not matter either.
    points = simulate_points(domain, np.full(domain.n_nodes, 5e-6), rng=1)
    shuffled = points.sample(frac=1, random_state=5)
    np.testing.assert_array_equal(bin_points(points, domain).values, bin_points(shuffled, domain).values)


@pytest.mark.parametrize("rank", ["features", "full"])
def test_edges(domain, rank):
    prior = HarmonicBasis.compute(domain, m=50, cache=False) if rank == "features" else FullRank(domain)
    n = domain.n_nodes
    east, north = domain.node_points.T
    one, million, island = np.zeros(n), np.zeros(n), np.zeros(n)
    one[10] = 1
    million[25] = 1e6
    island[domain.components == 1] = 3
    nu = 1.5 if rank == "features" else 1.0
    cases = {
        "no point": (np.zeros(n), {}),
        "one point": (one, {}),
        "a million in one cell": (million, {}),
        "one island only": (island, {}),
        "zero exposure": (island, {"exposure": np.where(domain.components == 2, 0.0, domain.node_areas)}),
        "correlated covariates": (island, {"covariates": {"a": east, "b": east + 1e-6 * north}}),
        "long lengthscale": (island, {"kernel": Matern(nu, lengthscale=1e4)}),
        "short lengthscale": (island, {"kernel": Matern(nu, lengthscale=0.05)}),
    }
    for name, (counts, options) in cases.items():
        options = {"kernel": Matern(nu), **options}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GeobgpWarning)
            posterior = LGCP(prior, **options).fit(counts)
        table = posterior.intensity()
        for statistic in ("mean", "sd", "q05", "q95"):
            land = ~np.isnan(domain.to_grid(np.ones(n)))
            assert np.isfinite(table[statistic].values[land]).all(), f"{name}: {statistic}"
        assert np.isfinite(posterior.elbo), name
        if name not in ("a million in one cell",):
            assert posterior.converged, f"{name}: {posterior.summary()}"


@pytest.mark.parametrize("rank", ["features", "full"])
def test_expected_total_is_the_observed_total(domain, rank):
    rng = np.random.default_rng(7)
    prior = HarmonicBasis.compute(domain, m=50, cache=False) if rank == "features" else FullRank(domain)
    counts = rng.poisson(np.exp(2 + np.sin(domain.node_points[:, 0])) * domain.node_areas)
    # A third of all events at four exact places.
    counts[rng.integers(0, domain.n_nodes, 4)] += int(counts.sum() / 8)
    posterior = LGCP(prior).fit(counts)
    assert posterior.converged
    everything = gpd.GeoDataFrame({"name": ["all"]}, geometry=[domain.geometry.buffer(1.0)])
    assert posterior.totals(everything)["expected"].iloc[0] == pytest.approx(counts.sum(), rel=1e-3)
