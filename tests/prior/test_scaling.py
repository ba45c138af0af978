"""The even prior: sd σ on every piece of land, the natural prior's correlations, and its table at full rank."""

from functools import cache

import numpy as np
import pytest
import shapely
from models import all_modes

from geobgp.errors import DataError
from geobgp.inference.hyper import Hyper
from geobgp.land.domain import Domain
from geobgp.model import LGCP, BoundaryGP
from geobgp.prior.basis import TabulatedVariance
from geobgp.prior.full_rank import FullRank
from geobgp.prior.harmonic import HarmonicBasis
from geobgp.prior.kernels import Matern, SquaredExponential
from geobgp.simulate import simulate_prior

CELL, SIZE = 0.5, 12.0
PERMEABILITIES = pytest.mark.parametrize("permeability", [0.0, 0.3, 1.0])
NU = pytest.mark.parametrize("nu", [1.0, 2.0])
#: From half a cell to ten times the domain.
LENGTHS = (0.5 * CELL, CELL, 1.7, 5.0, SIZE, 10 * SIZE)


@cache
def ragged() -> Domain:
    """Land with a bay, acute and right corners, a strip narrower than a cell, islets of a cell and less."""
    land = [
        shapely.box(0, 0, 7, 6).difference(shapely.box(2.2, 3.1, 4.4, 6)),
        shapely.Polygon([(7.5, 0), (9.5, 0), (9.5, 5.8)]),
        shapely.box(10.1, 0.2, 10.4, 6),
        *(shapely.box(x, 7.0, x + side, 7.0 + side) for x, side in ((0.1, 0.2), (1.3, 0.5), (3.1, 0.9))),
    ]
    return Domain.from_polygons(shapely.union_all(land), cell_size=CELL, crs="local", min_coverage=0.0)


@cache
def modes(permeability: float) -> tuple[np.ndarray, np.ndarray]:
    """All eigenvalues of the operator, and the squares of its eigenvectors at every unknown."""
    made = FullRank(ragged(), permeability=permeability).discretisation
    values, vectors = np.linalg.eigh(made.matrix.toarray())
    return np.maximum(values, 0.0), vectors / np.sqrt(made.mass)[:, None]


def covariance(nu: float, length: float, permeability: float) -> np.ndarray:
    """The natural prior's covariance at the nodes, from all eigenvectors."""
    values, vectors = modes(permeability)
    at_nodes = vectors[: ragged().n_nodes]
    return (at_nodes * Matern(nu, length, 1.0).spectral_density(np.sqrt(values))) @ at_nodes.T


def prior_sd(basis, kernel, coords, **options):
    """The sd of the field before any data, as a model has it: one observation that says nothing."""
    model = BoundaryGP(basis, kernel, noise=1e6, mean="zero", **options)
    posterior = model.fit(basis.domain.node_points[:1], [0.0])
    return np.sqrt(posterior.fit.states[0].node_moments()[1] if coords is None else posterior.predict(coords)[1])


@PERMEABILITIES
@pytest.mark.parametrize("kernel", [Matern(1.0), Matern(1.5), Matern(2.0), SquaredExponential()])
@pytest.mark.filterwarnings("ignore::geobgp.errors.MissedVarianceWarning")
def test_the_sd_of_features_is_sigma_everywhere(kernel, permeability):
    domain = ragged()
    basis = HarmonicBasis.compute(domain, 40, permeability=permeability, cache=False)
    rng = np.random.default_rng(0)
    anywhere = rng.uniform((0, 0), (11, 8), (400, 2))
    anywhere = anywhere[domain.locate(anywhere) >= 0]
    for length in LENGTHS:
        for places in (domain.node_points, anywhere):
            sd = prior_sd(basis, kernel.with_parameters(length, 0.7), places)
            np.testing.assert_allclose(sd, 0.7, rtol=1e-6, err_msg=f"lengthscale {length}")


@NU
@PERMEABILITIES
def test_the_sd_at_full_rank_is_sigma_everywhere(nu, permeability):
    full = FullRank(ragged(), permeability=permeability)
    # At nu = 2 rounding is felt before the longest lengthscale that can be factorised at all.
    longest = full.longest_lengthscale(Matern(nu)) / nu
    for length in LENGTHS:
        kernel = Matern(nu, min(length, longest), 0.7)
        sd = prior_sd(full, kernel, None)
        np.testing.assert_allclose(sd, 0.7, rtol=1e-3, err_msg=f"lengthscale {length}")


def test_the_natural_prior_is_far_from_even():
    sd = prior_sd(FullRank(ragged()), Matern(1.0, 2.0, 0.7), None, scaling="natural")
    np.testing.assert_allclose(sd, 0.7 * np.sqrt(np.diag(covariance(1.0, 2.0, 0.0))), rtol=1e-6)
    assert sd.max() > 3 * sd.min()


@NU
@PERMEABILITIES
def test_the_table_and_its_slope_are_those_of_all_eigenvectors(nu, permeability):
    full = FullRank(ragged(), permeability=permeability)
    table = TabulatedVariance(full.field, nu, CELL)
    values, vectors = modes(permeability)
    nodes = slice(ragged().n_nodes)
    squares = vectors[nodes] ** 2

    def exact(log_length):
        kernel = Matern(nu, float(np.exp(log_length)), 1.0)
        return np.log(squares @ kernel.spectral_density(np.sqrt(values)))

    step = 1e-4
    for length in LENGTHS:
        tau = float(np.log(length))
        log_v, slope = (found[nodes] for found in table.log_variance(tau))
        np.testing.assert_allclose(log_v, exact(tau), atol=1e-3, err_msg=f"lengthscale {length}")
        difference = (exact(tau + step) - exact(tau - step)) / (2 * step)
        np.testing.assert_allclose(slope, difference, atol=1e-2, err_msg=f"lengthscale {length}")


@NU
def test_the_slope_is_that_of_the_table_itself(nu):
    """So that the bound that is climbed has the gradient that it is climbed by."""
    table = TabulatedVariance(FullRank(ragged()).field, nu, CELL)
    step = 1e-5
    for tau in (-0.61, 0.1, 1.13, 3.3):
        up, down = (table.log_variance(np.log(CELL) + tau + side * step)[0] for side in (1, -1))
        slope = table.log_variance(np.log(CELL) + tau)[1]
        np.testing.assert_allclose(slope, (up - down) / (2 * step), atol=1e-5)


@NU
def test_the_determinant_and_its_slope_are_those_of_all_eigenvalues(nu):
    field = FullRank(ragged()).field
    table = TabulatedVariance(field, nu, CELL)
    values = np.linalg.eigvalsh(field.matrix.toarray())
    for tau in (-0.61, 0.1, 1.13, 3.3):
        kappa2 = 2 * nu * np.exp(-2 * tau)
        log_det, trace = table.determinant(np.log(CELL) + tau)
        assert log_det == pytest.approx(np.log(kappa2 + values).sum(), abs=1e-6)
        assert trace == pytest.approx((kappa2 / (kappa2 + values)).sum(), rel=1e-6)


@pytest.mark.parametrize("permeability", [0.0, 0.3])
@pytest.mark.parametrize("kind", ["features", "full"])
def test_draws_have_that_sd_and_the_natural_correlations(kind, permeability):
    domain = ragged()
    if kind == "full":
        basis = FullRank(domain, permeability=permeability)
    else:
        basis = HarmonicBasis.compute(domain, 40, permeability=permeability, cache=False)
    kernel, n = Matern(1.0, 2.0, 0.7), 3000
    even, natural = (simulate_prior(basis, kernel, 1, n, scaling=s) for s in (None, "natural"))
    np.testing.assert_allclose(even.std(axis=0), 0.7, rtol=6 / np.sqrt(2 * n))
    ratio = even / natural
    np.testing.assert_allclose(ratio, np.broadcast_to(ratio[0], ratio.shape), rtol=1e-9)


@NU
@PERMEABILITIES
@pytest.mark.parametrize("kind", ["features", "full"])
def test_correlations_are_those_of_the_natural_prior(kind, nu, permeability):
    """A nearly exact value at one place moves others by their correlation with it."""
    domain, length, noise = ragged(), 2.5, 0.01
    if kind == "full":
        basis = FullRank(domain, permeability=permeability)
    else:
        values, vectors = modes(permeability)
        basis = HarmonicBasis.from_vectors(FullRank(domain, permeability=permeability).discretisation, values, vectors)
    exact = covariance(nu, length, permeability)
    sd = np.sqrt(np.diag(exact))
    centres = np.flatnonzero(domain.holds_centre)
    for node in (centres[0], centres[len(centres) // 2], centres[-1]):
        model = BoundaryGP(basis, Matern(nu, length, 1.0), noise=noise, mean="zero")
        posterior = model.fit(domain.node_points[node][None], [1.0])
        found = posterior.fit.states[0].node_moments()[0] * (1 + noise**2)
        np.testing.assert_allclose(found, exact[node] / (sd[node] * sd), atol=2e-3)


@NU
def test_full_rank_is_all_modes_with_the_even_prior_too(nu):
    domain, kernel = ragged(), Matern(nu, 2.0, 0.8)
    counts = np.random.default_rng(1).poisson(6.0 * domain.node_areas)
    full, every = (LGCP(b, kernel).fit(counts) for b in (FullRank(domain), all_modes(domain)))
    assert full.scaling == every.scaling == "even"
    assert full.elbo == pytest.approx(every.elbo, abs=0.01)
    np.testing.assert_allclose(full.node_intensity(), every.node_intensity(), rtol=2e-3)


def test_what_even_cannot_be():
    domain, kernel = ragged(), Matern(1.0, 2.0, 1.0)
    for basis in (
        FullRank(domain, boundary="dirichlet"),
        HarmonicBasis.compute(domain, 10, boundary="dirichlet", cache=False),
    ):
        for act in (
            lambda b: LGCP(b, kernel, scaling="even"),
            lambda b: BoundaryGP(b, kernel, scaling="even"),
            lambda b: simulate_prior(b, kernel, 0, scaling="even"),
        ):
            with pytest.raises(DataError, match="falls to zero at the shore") as caught:
                act(basis)
            assert caught.value.option == "scaling"
        assert LGCP(basis, kernel).scaling == "natural"
    with pytest.raises(DataError, match="found 'wide'"):
        LGCP(FullRank(domain), kernel, scaling="wide")
    assert LGCP(FullRank(domain), kernel).scaling == "even"


# -- archipelagos --------------------------------------------------------------------------------------------


@cache
def skerries() -> Domain:
    """A main island and a hundred and forty islets, many below a cell."""
    rng = np.random.default_rng(5)
    xy = np.stack(np.meshgrid(np.arange(12.0), np.arange(12.0)), -1).reshape(-1, 2)
    side = rng.uniform(0.1, 0.7, len(xy))
    islets = shapely.box(xy[:, 0], xy[:, 1], xy[:, 0] + side, xy[:, 1] + side)
    return Domain.from_polygons(
        shapely.union_all([*islets, shapely.box(-8, 0, -1, 11)]), cell_size=0.5, crs="local", min_coverage=0.0
    )


@pytest.mark.parametrize("kind", ["features", "full", "permeable"])
@pytest.mark.parametrize("hyper", ["map", "integrate"])
@pytest.mark.filterwarnings("ignore::geobgp.errors.MissedVarianceWarning")
def test_an_archipelago_has_finite_maps_and_learns(kind, hyper):
    domain = skerries()
    assert domain.n_components > 140
    rate = 3 * np.exp(np.sin(domain.node_points[:, 0] / 2) + np.cos(domain.node_points[:, 1] / 3))
    counts = np.random.default_rng(2).poisson(rate * domain.node_areas)
    if kind == "features":
        basis = HarmonicBasis.compute(domain, 40, cache=False)
    else:
        basis = FullRank(domain, permeability=0.3 if kind == "permeable" else 0.0)
    model = LGCP(basis)
    posterior = model.fit(counts, hyper=hyper)
    assert posterior.converged, posterior.fit.message
    size = float(np.sqrt(domain.node_areas.sum()))
    start = np.exp(Hyper.for_domain(model.kernel, size, domain.cell_size).start[:2])
    found = np.array([posterior.lengthscale, posterior.sd])
    assert (np.abs(np.log(found / start)) > 0.05).any(), f"θ is still at its start, {start}"
    table = posterior.node_intensity()
    assert np.isfinite(table).all(axis=None) and (table > 0).all(axis=None)
    variance = np.array([state.node_moments()[1] for state in posterior.fit.states])
    # The intercept is loose, but nobody's field is wider than its prior.
    limit = max(s.sd**2 + 2 * s.beta_cov[0, 0] + 2 * s.sd * s.beta_cov[0, 0] ** 0.5 for s in posterior.fit.states)
    assert variance.max() < limit
    total = float(posterior.exposure @ table["mean"])
    assert total == pytest.approx(counts.sum(), rel=0.02)
