"""The features inside GPflow: the same mathematics as geobgp's own engine, and what only GPflow can do."""

import math
import warnings

import numpy as np
import pytest
import shapely

from geobgp import LGCP, BoundaryGP, Domain, FullRank, HarmonicBasis, Smooth
from geobgp.errors import ConvergenceWarning, DataError
from geobgp.gpflow import fit as gpflow_fit
from geobgp.gpflow import models as gpflow_models
from geobgp.gpflow.models import GPflowMatern, HarmonicFeatures, HarmonicKernel, NodeMean
from geobgp.inference.engine import Sites, engine_for
from geobgp.inference.families import Bernoulli, Gaussian, Poisson, sites
from geobgp.prior import kernels as own

# Not imported here: geobgp loads them without their warnings.
gpflow, tf, tfp = gpflow_models.gpflow, gpflow_models.tf, gpflow_models.tfp

SIZE = 50_000.0
ORIGIN = np.array([450_000.0, 5_700_000.0])
ISLETS = SIZE * np.array([[-1.0, 0.8], [-1.1, -0.6], [0.9, -0.9]])
KERNELS = {
    "Matern12": (lambda: gpflow.kernels.Matern12(), own.Matern(0.5)),
    "Matern32": (lambda: gpflow.kernels.Matern32(), own.Matern(1.5)),
    "Matern52": (lambda: gpflow.kernels.Matern52(), own.Matern(2.5)),
    "Matern(1.2)": (lambda: GPflowMatern(1.2), own.Matern(1.2)),
    "SquaredExponential": (lambda: gpflow.kernels.SquaredExponential(), own.SquaredExponential()),
}


def make_domain(cell_size: float) -> Domain:
    """A disc, an island and three islets smaller than a cell, in metres."""
    discs = [shapely.Point(0, 0).buffer(SIZE), shapely.Point(SIZE, SIZE).buffer(0.3 * SIZE)]
    land = shapely.union_all([*discs, *(shapely.Point(c).buffer(0.05 * SIZE) for c in ISLETS)])
    moved = shapely.transform(land, lambda c: c + ORIGIN)
    return Domain.from_polygons(moved, cell_size=cell_size, crs=32631)


@pytest.fixture(scope="module")
def domain():
    return make_domain(6000.0)


@pytest.fixture(scope="module")
def basis(domain):
    return HarmonicBasis.compute(domain, 48, cache=False)


@pytest.fixture(scope="module")
def shore_basis(domain):
    return HarmonicBasis.compute(domain, 48, boundary="dirichlet", cache=False)


@pytest.fixture(scope="module")
def field(domain):
    x = (domain.node_points - domain.node_points.mean(0)) / SIZE
    return 1.2 * np.sin(4 * x[:, 0]) + x[:, 1]


@pytest.fixture(scope="module")
def counts(domain, field):
    return np.random.default_rng(0).poisson(0.1 * np.exp(field) * domain.node_areas / 1e6).astype(float)


@pytest.fixture(scope="module")
def places(domain):
    """Seventy coordinates on land, the last three on the islets."""
    rng = np.random.default_rng(1)
    west, south, east, north = domain.grid.bounds
    coords = rng.uniform((west, south), (east, north), (400, 2))
    return np.vstack([coords[domain.locate(coords) >= 0][:67], ORIGIN + ISLETS])


def kernel_on(features, base=None, lengthscale=20_000.0, variance=0.8, scaling=None):
    base = gpflow.kernels.Matern32() if base is None else base
    base.lengthscales.assign(lengthscale)
    base.variance.assign(variance)
    return HarmonicKernel(base, features, scaling=scaling)


def nodes(n: int, total: int, seed: int = 2) -> np.ndarray:
    return np.sort(np.random.default_rng(seed).choice(total, n, replace=False))[:, None].astype(float)


def set_weights(model, state):
    """Give an SVGP model the posterior of geobgp's own engine."""
    mean, covariance = whitened(model.kernel, state)
    model.q_mu.assign(mean[:, None])
    model.q_sqrt.assign(np.linalg.cholesky(covariance)[None])


def whitened(kernel, state):
    """Mean and covariance of the weights of a state, in units of their prior standard deviations."""
    scale = kernel.scales().numpy()
    scale[: state.basis.m] *= np.exp(0.5 * kernel.features.log_area)
    mean, covariance = state.joint()
    return mean / scale, covariance / np.outer(scale, scale)


def log_gradient(model, data):
    """Gradient of the bound in (log lengthscale, log sd)."""
    base = model.kernel.base
    variables = [base.lengthscales.unconstrained_variable, base.variance.unconstrained_variable]
    with tf.GradientTape() as tape:
        tape.watch(variables)
        elbo = model.elbo(data)
    first, second = (float(g) for g in tape.gradient(elbo, variables))
    slope = base.variance.transform.forward_log_det_jacobian(variables[1], 0)  # of softplus or exp
    return np.array([first, 2.0 * second * float(base.variance.numpy() / np.exp(slope))])


# -- the prior ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", KERNELS)
def test_weights_have_the_spectral_density_as_variance(basis, name):
    make, ours = KERNELS[name]
    kernel = kernel_on(HarmonicFeatures(basis), make(), 17_000.0, 1.7)
    area = basis.domain.node_areas.sum()
    theta = np.log([17_000.0, math.sqrt(1.7)])
    expected, slope, _ = ours.log_density(basis.eigenvalues, theta)
    variable = kernel.base.lengthscales.unconstrained_variable
    with tf.GradientTape() as tape:
        value = kernel.log_variances()
    np.testing.assert_allclose(value, expected - np.log(area), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(tape.jacobian(value, variable), slope, rtol=1e-10)
    density = ours.with_parameters(17_000.0, math.sqrt(1.7)).spectral_density(np.sqrt(basis.eigenvalues))
    np.testing.assert_allclose(kernel.scales() ** 2 * area, density, rtol=1e-12)


@pytest.mark.parametrize("scaling", ["even", "natural"])
def test_kernel_is_the_sum_over_features_at_nodes_and_at_coordinates(basis, domain, places, scaling):
    kernel = kernel_on(basis, scaling=scaling)
    density = own.Matern(1.5, 20_000.0, 1.0).spectral_density(np.sqrt(basis.eigenvalues))
    at, index = basis.evaluate(places[:6]), nodes(5, domain.n_nodes)
    rows = basis.features[index[:, 0].astype(int)]

    def covariance(a, b):
        return sum(density[k] * a[k] * b[k] for k in range(basis.m))

    for i in range(6):
        for j in range(5):
            expected = covariance(at[i], rows[j])
            if scaling == "even":
                expected /= math.sqrt(covariance(at[i], at[i]) * covariance(rows[j], rows[j]))
            assert float(kernel.K(places[i : i + 1], index[j : j + 1])[0, 0]) == pytest.approx(
                0.8 * expected, rel=1e-9, abs=1e-12
            )
    np.testing.assert_allclose(kernel.K_diag(places), np.diag(kernel.K(places)), rtol=1e-10)
    np.testing.assert_allclose(kernel(places, full_cov=False), kernel.K_diag(places), rtol=1e-10)
    stacked = np.stack([places[:4], places[4:8]])
    near = {"rtol": 1e-10, "atol": 1e-12}
    np.testing.assert_allclose(kernel.K(stacked, places)[1], kernel.K(places[4:8], places), **near)
    np.testing.assert_allclose(kernel.K(stacked)[0], kernel.K(places[:4]), **near)
    assert kernel(stacked, places).shape == (2, 4, 70)


@pytest.mark.parametrize("name", KERNELS)
def test_even_variance_is_the_kernels_own_and_the_natural_one_is_not(basis, domain, places, name):
    make, _ = KERNELS[name]
    everywhere = np.arange(domain.n_nodes, dtype=float)[:, None]
    for lengthscale in (3_000.0, 20_000.0, 3e6):
        kernel = kernel_on(basis, make(), lengthscale, 1.7)
        assert kernel.scaling == "even"
        for inputs in (everywhere, places):
            np.testing.assert_allclose(kernel.K_diag(inputs), 1.7, rtol=1e-14)
            np.testing.assert_allclose(np.diag(kernel.K(inputs)), 1.7, rtol=1e-12)
    islets = domain.components >= 2
    assert islets.any()
    natural = kernel_on(basis, make(), 20_000.0, 1.7, scaling="natural").K_diag(everywhere).numpy()
    assert natural[islets].min() > 10.0 * 1.7
    # Fixed effects are a part of f too, with a variance of their own.
    columns = np.column_stack([np.ones(domain.n_nodes), domain.node_points[:, 1] / 1e6])
    features = HarmonicFeatures(basis, fixed=columns, fixed_sd=[2.0, 3.0])
    for scaling in ("even", "natural"):
        kernel = kernel_on(features, make(), 20_000.0, 1.7, scaling=scaling)
        without = np.full(domain.n_nodes, 1.7) if scaling == "even" else natural
        expected = without + 4.0 + 9.0 * columns[:, 1] ** 2
        np.testing.assert_allclose(kernel.K_diag(everywhere), expected, rtol=1e-12)
        np.testing.assert_allclose(np.diag(kernel.K(everywhere)), expected, rtol=1e-12)


@pytest.mark.parametrize("name", KERNELS)
def test_even_correlations_move_with_the_lengthscale_as_finite_differences_do(basis, domain, places, name):
    make, _ = KERNELS[name]
    kernel = kernel_on(basis, make(), 15_000.0, 1.7)
    variable = kernel.base.lengthscales.unconstrained_variable
    weights = np.random.default_rng(0).normal(size=(70, 70))

    def value():
        return tf.reduce_sum(weights * kernel.K(places))

    with tf.GradientTape() as tape:
        whole = value()
    slope = float(tape.gradient(whole, variable))
    ends = []
    for step in (1e-4, -1e-4):
        kernel.base.lengthscales.assign(15_000.0 * math.exp(step))
        ends.append(float(value()))
    assert slope == pytest.approx((ends[0] - ends[1]) / 2e-4, rel=1e-6)


def test_covariance_is_zero_across_water_and_variance_on_a_dirichlet_shore(basis, shore_basis, domain):
    kernel = kernel_on(basis)
    islands = [np.flatnonzero(domain.components == c)[:5, None].astype(float) for c in (0, 1)]
    assert np.abs(kernel(*islands)).max() < 1e-10
    # A hair inside the shore; on the shore itself the features are zero.
    shore = np.array([g.coords[0] for g in shapely.get_parts(domain.geometry.buffer(-1e-3).boundary)])
    shore = shore[domain.locate(shore) >= 0]
    assert len(shore) >= 2
    features = HarmonicFeatures(shore_basis)
    held = kernel_on(features)
    assert np.abs(held.K_diag(shore)).max() < 1e-6
    model = gpflow.models.SVGP(held, gpflow.likelihoods.Gaussian(), features)
    mean, variance = model.predict_f(shore)
    assert np.abs(mean).max() < 1e-6
    assert np.abs(variance).max() < 1e-6
    # What a stationary kernel would say, and the middle of the land does.
    middle = shapely.get_coordinates(shapely.Point(450_000, 5_700_000))
    assert 0.5 < float(model.predict_f(middle)[1][0, 0]) < 1.0


def test_off_land_is_nan(basis, domain):
    features = HarmonicFeatures(basis)
    model = gpflow.models.SVGP(kernel_on(features), gpflow.likelihoods.Gaussian(), features)
    sea = np.array([[0.0, 0.0]])
    for scaling in ("even", "natural"):
        assert np.isnan(kernel_on(features, scaling=scaling).K_diag(sea)).all()
    assert np.isnan(model.predict_f(sea)[0]).all()
    assert np.isnan(model.predict_f(sea)[1]).all() or np.isnan(features.rows(sea)).all()
    assert np.isnan(NodeMean(features, np.zeros(domain.n_nodes))(sea)).all()


def test_any_smoothness_has_the_covariance_of_gpflow_where_it_has_one():
    x = np.random.default_rng(0).uniform(0, 3, (6, 2))
    for nu, theirs in ((0.5, gpflow.kernels.Matern12), (2.5, gpflow.kernels.Matern52)):
        np.testing.assert_allclose(GPflowMatern(nu, 1.3, 0.7)(x), theirs(1.3, 0.7)(x), rtol=1e-9)


# -- structure ---------------------------------------------------------------------------------------------


def operations(function, *arguments):
    graph = tf.function(function).get_concrete_function(*arguments).graph
    return graph.get_operations()


def test_no_diagonal_is_factorised_and_nothing_is_n_by_n(basis, domain):
    features = HarmonicFeatures(basis)
    kernel = kernel_on(features)
    index = nodes(100, domain.n_nodes)
    data = tf.constant(index), tf.ones((100, 1), tf.float64)
    sparse = gpflow.models.SVGP(kernel, gpflow.likelihoods.Poisson(), features)
    plain = gpflow.models.SVGP(kernel, gpflow.likelihoods.Poisson(), features, whiten=False)
    regression = gpflow.models.SGPR(data, kernel, features)
    factors = {"Cholesky": 0, "MatrixTriangularSolve": 0, "MatrixInverse": 0, "BatchMatrixInverse": 0}
    for made, allowed in (
        (operations(sparse.elbo, data), {}),
        (operations(plain.elbo, data), {}),
        (operations(sparse.predict_f, data[0]), {}),
        (operations(regression.elbo), {"Cholesky": 1, "MatrixTriangularSolve": 1}),
    ):
        found = {kind: sum(o.type == kind for o in made) for kind in factors}
        assert found == factors | allowed
        shapes = [tuple(t.shape) for o in made for t in o.outputs if t.shape.rank is not None]
        assert (100, 100) not in shapes
        assert (100, basis.m) in shapes or (basis.m, 100) in shapes


def test_coordinates_work_inside_compiled_functions_and_minibatches(basis, places):
    features = HarmonicFeatures(basis)
    model = gpflow.models.SVGP(kernel_on(features), gpflow.likelihoods.Gaussian(), features, num_data=70)
    model.q_mu.assign(np.random.default_rng(0).normal(size=(basis.m, 1)))
    values = np.sin(places[:, :1] / 10_000.0)
    compiled = tf.function(model.predict_f)
    for coords in (places[:9], places[3:12]):
        for a, b in zip(compiled(tf.constant(coords)), model.predict_f(coords), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)
    data = (tf.constant(places), tf.constant(values))

    @tf.function
    def elbo():
        return model.elbo(data)

    made = elbo.get_concrete_function().graph.get_operations()
    assert not [o for o in made if "PyFunc" in o.type]  # known places are looked up once
    np.testing.assert_allclose(elbo(), model.elbo(data), rtol=1e-10)
    batches = iter(tf.data.Dataset.from_tensor_slices((places, values)).repeat().batch(35))
    closure = model.training_loss_closure(batches)
    both = 0.5 * (closure() + closure())
    np.testing.assert_allclose(both, model.training_loss((places, values)), rtol=1e-10)


def test_active_dims_name_the_coordinates(basis, places):
    extra = np.column_stack([np.arange(70.0), places])
    kernel = HarmonicKernel(gpflow.kernels.Matern32(lengthscales=2e4), basis, active_dims=[1, 2])
    np.testing.assert_allclose(kernel(extra), kernel.K(places), rtol=1e-10, atol=1e-12)
    model = gpflow.models.SVGP(kernel, gpflow.likelihoods.Gaussian(), kernel.features)
    np.testing.assert_allclose(model.predict_f(extra)[1][:, 0], kernel.K_diag(places), rtol=1e-10)
    linear = gpflow.mean_functions.Linear(np.array([[2.0], [0.0], [0.0]]))
    model = gpflow.models.SVGP(kernel, gpflow.likelihoods.Gaussian(), kernel.features, mean_function=linear)
    np.testing.assert_allclose(model.predict_f(extra)[0][:, 0], 2.0 * np.arange(70), atol=1e-10)


# -- agreement with geobgp's own engine ----------------------------------------------------------------------


def site_gradient(engine, state, likelihood, moments, noise=None):
    """Gradient of the bound in (log ℓ, log sd) from geobgp's own engine, at the sites of given moments."""
    theta = np.log([state.lengthscale, state.sd] + ([noise] if noise else []))
    engine.noise_at = 2 if noise else None
    unit = Gaussian(likelihood.values) if noise else likelihood
    found = Sites(*sites(unit.expected(*moments), moments[0]))
    return engine.objective(theta, found)[1][:2]


@pytest.mark.parametrize(
    "shore, scaling", [("closed", "even"), ("closed", "natural"), ("dirichlet", "natural"), ("open", "even")]
)
def test_poisson_bound_gradients_and_moments_agree(shore, scaling, basis, shore_basis, domain, counts, places):
    used = {"closed": basis, "dirichlet": shore_basis}.get(shore)
    if used is None:  # water is no barrier, and the basis has features that live there
        used = HarmonicBasis.compute(domain, 48, permeability=1.0, cache=False)
    ours = own.Matern(1.5, 20_000.0, 0.9)
    model = LGCP(used, ours, covariates={"north": domain.node_points[:, 1]}, scaling=scaling)
    posterior = model.fit(counts)
    state = posterior.fit.states[0]
    svgp, data = gpflow_fit.lgcp_svgp(model, counts)
    set_weights(svgp, state)
    assert float(svgp.elbo(data)) == pytest.approx(posterior.elbo, rel=1e-9)
    likelihood = Poisson(counts, model.exposure, state.centre)
    engine = engine_for(used, ours, model.effects.columns, np.full(2, 10.0), state.centre, scaling=scaling)
    moments = tuple(m - s for m, s in zip(state.node_moments(), (state.centre, 0.0), strict=True))
    # The log-intensity is f plus what is not exposure.
    everywhere = np.arange(domain.n_nodes, dtype=float)[:, None]
    for coords, (mean, variance) in ((everywhere, state.node_moments()), (places, posterior.predict(places))):
        got_mean, got_variance = svgp.predict_f(coords)
        log_exposure = NodeMean(svgp.kernel.features, np.log(model.exposure))(coords)
        np.testing.assert_allclose((got_mean - log_exposure)[:, 0], mean, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(got_variance[:, 0], variance, rtol=1e-9, atol=1e-12)
    expected = site_gradient(engine, state, likelihood, moments)
    np.testing.assert_allclose(log_gradient(svgp, data), expected, rtol=1e-6)


def probit(x):
    """GPflow's own probit keeps a thousandth away from 0 and 1."""
    return tf.clip_by_value(0.5 * tf.math.erfc(-x / math.sqrt(2.0)), 1e-15, 1.0 - 1e-15)


@pytest.mark.parametrize("scaling", ["even", "natural"])
@pytest.mark.parametrize("link", ["probit", "logit"])
def test_bernoulli_bound_gradients_and_moments_agree(link, scaling, basis, domain, places):
    if scaling == "natural":  # on islets it is so wide that GPflow's own logarithm of a probability ends
        places = places[domain.components[domain.locate(places)] < 2]
    values = (np.sin(places[:, 0] / 12_000.0) > 0.2).astype(float)
    ours = own.Matern(2.5, 20_000.0, 1.1)
    posterior = BoundaryGP(basis, ours, "bernoulli", link=link, mean="zero", scaling=scaling).fit(places, values)
    state = posterior.fit.states[0]
    features = HarmonicFeatures(basis)
    likelihood = gpflow.likelihoods.Bernoulli(invlink=probit if link == "probit" else tf.sigmoid)
    likelihood.quadrature = gpflow.quadrature.NDiagGHQuadrature(1, 40)
    svgp = gpflow.models.SVGP(
        kernel_on(features, gpflow.kernels.Matern52(), 20_000.0, 1.21, scaling), likelihood, features
    )
    set_weights(svgp, state)
    data = (places, values[:, None])
    assert float(svgp.elbo(data)) == pytest.approx(posterior.elbo, rel=1e-8)
    mean, variance = posterior.predict(places)
    nothing = np.zeros((basis.domain.n_nodes, 0))
    engine = engine_for(basis, ours, nothing, np.zeros(0), coords=places, scaling=scaling)
    np.testing.assert_allclose(svgp.predict_f(places)[0][:, 0], mean, rtol=1e-9)
    np.testing.assert_allclose(svgp.predict_f(places)[1][:, 0], variance, rtol=1e-9)
    np.testing.assert_allclose(svgp.predict_y(places)[0][:, 0], posterior.predict_y(places)[0], rtol=1e-7)
    expected = site_gradient(engine, state, Bernoulli(values, link), (mean, variance))
    np.testing.assert_allclose(log_gradient(svgp, data), expected, rtol=1e-6)


@pytest.mark.parametrize("scaling", ["even", "natural"])
def test_gaussian_bound_gradients_and_moments_agree_in_svgp_sgpr_and_gpr(scaling, basis, places):
    values = np.sin(places[:, 0] / 12_000.0) + np.random.default_rng(0).normal(0, 0.2, 70)
    ours = own.Matern(1.5, 25_000.0, 0.7)
    posterior = BoundaryGP(basis, ours, noise=0.3, mean="zero", scaling=scaling).fit(places, values)
    state = posterior.fit.states[0]
    features = HarmonicFeatures(basis)
    kernel = kernel_on(features, gpflow.kernels.Matern32(), 25_000.0, 0.49, scaling)
    data = (places, values[:, None])
    svgp = gpflow.models.SVGP(kernel, gpflow.likelihoods.Gaussian(0.09), features)
    set_weights(svgp, state)
    sgpr = gpflow.models.SGPR(data, kernel, features, noise_variance=0.09)
    gpr = gpflow.models.GPR(data, kernel, noise_variance=0.09)
    mean, variance = posterior.predict(places)
    nothing = np.zeros((basis.domain.n_nodes, 0))
    engine = engine_for(basis, ours, nothing, np.zeros(0), coords=places, scaling=scaling)
    expected = site_gradient(engine, state, Gaussian(values, 0.3), (mean, variance), noise=0.3)
    for model, bound in (
        (svgp, svgp.elbo),
        (sgpr, lambda data: sgpr.elbo()),
        (gpr, lambda data: gpr.log_marginal_likelihood()),
    ):
        assert float(bound(data)) == pytest.approx(posterior.elbo, rel=1e-9)
        with tf.GradientTape() as tape:
            value = bound(data)
        got = tape.gradient(value, kernel.base.lengthscales.unconstrained_variable)
        assert float(got) == pytest.approx(expected[0], rel=1e-6)
        np.testing.assert_allclose(model.predict_f(places)[0][:, 0], mean, rtol=1e-8)
        np.testing.assert_allclose(model.predict_f(places)[1][:, 0], variance, rtol=1e-8)
    np.testing.assert_allclose(log_gradient(svgp, data), expected, rtol=1e-6)
    for a, b in zip(sgpr.posterior().predict_f(places), sgpr.predict_f(places), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9)
    assert float(sgpr.upper_bound()) == pytest.approx(posterior.elbo, rel=1e-6)
    weights, covariance = sgpr.compute_qu()
    scale = kernel.scales().numpy()
    mean, expected = whitened(kernel, state)
    np.testing.assert_allclose(weights[:, 0] / scale, mean, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(covariance / np.outer(scale, scale), expected, atol=1e-9)


# -- GPflow's models, optimisers, priors and samplers --------------------------------------------------------


def test_one_natural_gradient_step_is_exact_for_gaussian_values_in_svgp_and_vgp(basis, domain):
    index = nodes(40, domain.n_nodes)
    values = np.random.default_rng(0).normal(size=(40, 1))
    mean = gpflow.mean_functions.Constant(0.3)
    features = HarmonicFeatures(basis)
    kernel = kernel_on(features)
    gpr = gpflow.models.GPR((index, values), kernel, mean_function=mean, noise_variance=0.5)
    exact = float(gpr.log_marginal_likelihood())
    likelihood = gpflow.likelihoods.Gaussian(0.5)
    svgp = gpflow.models.SVGP(kernel, likelihood, features, mean_function=mean)
    vgp = gpflow.models.VGP((index, values), kernel, likelihood, mean_function=mean)
    plain = gpflow.models.SVGP(kernel, likelihood, features, mean_function=mean, whiten=False)
    for model, loss in (
        (svgp, svgp.training_loss_closure((index, values))),
        (plain, plain.training_loss_closure((index, values))),
        (vgp, vgp.training_loss_closure()),
    ):
        gpflow.optimizers.NaturalGradient(gamma=1.0).minimize(loss, [(model.q_mu, model.q_sqrt)])
        # VGP adds GPflow's jitter to the kernel.
        assert -float(loss()) == pytest.approx(exact, abs=1e-3 if model is vgp else 1e-8)
        for cached in (False, True):
            predict = model.posterior().predict_f if cached else model.predict_f
            for full_cov in (False, True):
                for a, b in zip(
                    predict(index[:7], full_cov=full_cov), gpr.predict_f(index[:7], full_cov=full_cov), strict=True
                ):
                    np.testing.assert_allclose(a, b, atol=1e-4 if model is vgp else 1e-9)


def test_scipy_learns_lengthscales_in_metres_and_priors_count(basis, places):
    rng = np.random.default_rng(3)
    truth = kernel_on(basis, lengthscale=30_000.0, variance=1.0)
    f = np.linalg.cholesky(truth(places) + 1e-9 * np.eye(70)) @ rng.normal(size=(70, 1))
    data = (places, f + 0.1 * rng.normal(size=(70, 1)))
    found = {}
    for name, prior in (("none", None), ("tight", tfp.distributions.LogNormal(np.log(9e3), np.float64(0.01)))):
        base = gpflow.kernels.Matern32(lengthscales=12_000.0)
        base.lengthscales.prior = prior
        kernel = HarmonicKernel(base, basis)
        assert kernel.base.lengthscales.prior is prior
        model = gpflow.models.SGPR(data, kernel, kernel.features, noise_variance=0.1)
        before = float(model.training_loss())
        gpflow.optimizers.Scipy().minimize(model.training_loss, model.trainable_variables)
        assert float(model.training_loss()) < before
        assert float(model.training_loss()) == pytest.approx(-float(model.elbo() + model.log_prior_density()))
        found[name] = float(base.lengthscales.numpy())
    assert 12_000.0 < found["none"] < 120_000.0
    assert 8_000.0 < found["tight"] < 11_000.0


@pytest.mark.slow
def test_hamiltonian_samples_agree_with_the_variational_posterior():
    small = make_domain(22_000.0)
    basis = HarmonicBasis.compute(small, 8, cache=False)
    field = np.cos((small.node_points[:, 0] - 450_000.0) / SIZE)
    counts = np.random.default_rng(0).poisson(40.0 * np.exp(field)).astype(float)
    kernel = kernel_on(basis, lengthscale=40_000.0, variance=1.0)
    gpflow.set_trainable(kernel, False)
    offset = NodeMean(kernel.features, np.full(small.n_nodes, np.log(40.0)))
    index = np.arange(small.n_nodes, dtype=float)[:, None]
    data = (index, counts[:, None])
    svgp = gpflow.models.SVGP(kernel, gpflow.likelihoods.Poisson(), kernel.features, mean_function=offset)
    for _ in range(12):
        gpflow.optimizers.NaturalGradient(1.0).minimize(
            svgp.training_loss_closure(data, compile=False), [(svgp.q_mu, svgp.q_sqrt)]
        )
    mean, variance = (v.numpy()[:, 0] for v in svgp.predict_f(index))
    model = gpflow.models.GPMC(data, kernel, gpflow.likelihoods.Poisson(), mean_function=offset)
    helper = gpflow.optimizers.SamplingHelper(model.log_posterior_density, model.trainable_parameters)
    walk = tfp.mcmc.HamiltonianMonteCarlo(helper.target_log_prob_fn, num_leapfrog_steps=10, step_size=0.05)
    walk = tfp.mcmc.SimpleStepSizeAdaptation(walk, 300, target_accept_prob=np.float64(0.8))

    @tf.function
    def draw():
        return tfp.mcmc.sample_chain(
            1500, helper.current_state, kernel=walk, num_burnin_steps=400, seed=(1, 2),
            trace_fn=lambda _, result: result.inner_results.is_accepted,
        )  # fmt: skip

    samples, accepted = draw()
    assert 0.5 < accepted.numpy().mean() < 1.0
    root = np.linalg.cholesky(kernel(index) + gpflow.default_jitter() * np.eye(small.n_nodes))
    f = samples[0].numpy()[:, :, 0] @ root.T + np.log(40.0)
    effective = np.clip(tfp.mcmc.effective_sample_size(f).numpy(), 50, 1500)
    sd = np.sqrt(variance)
    assert np.abs((f.mean(0) - mean) / sd * np.sqrt(effective)).max() < 5.0
    assert np.abs(f.std(0) / sd - 1.0).max() < 5.0 / np.sqrt(2.0 * effective.min())


def test_sparse_sampler_has_the_likelihood_of_its_weights(basis, domain):
    index = nodes(60, domain.n_nodes)
    kernel = kernel_on(basis)
    data = (index, np.random.default_rng(0).normal(size=(60, 1)))
    model = gpflow.models.SGPMC(data, kernel, gpflow.likelihoods.StudentT(), inducing_variable=kernel.features)
    weights = np.random.default_rng(1).normal(size=(basis.m, 1))
    model.V.assign(weights)
    f = kernel.scaled(kernel.features.rows(index)).numpy() * kernel.scales().numpy() @ weights
    direct = tf.reduce_sum(model.likelihood.log_prob(index, f, data[1]))
    with tf.GradientTape() as tape:
        value = model.log_likelihood_lower_bound()
    assert float(value) == pytest.approx(float(direct), rel=1e-10)
    assert all(np.isfinite(g).all() for g in tape.gradient(value, model.trainable_variables))


class NegativeBinomial(gpflow.likelihoods.ScalarLikelihood):
    """Counts with mean exp(f) and variance mean + mean² / shape: neither package has it."""

    def __init__(self):
        super().__init__()
        self.shape = gpflow.Parameter(2.0, transform=gpflow.utilities.positive())

    def _scalar_log_prob(self, X, F, Y):
        k = self.shape
        log_all = tf.reduce_logsumexp(tf.stack([F, tf.math.log(k) * tf.ones_like(F)]), 0)
        constant = tf.math.lgamma(Y + k) - tf.math.lgamma(k) - tf.math.lgamma(Y + 1.0)
        return constant + k * (tf.math.log(k) - log_all) + Y * (F - log_all)

    def _conditional_mean(self, X, F):
        return tf.exp(F)

    def _conditional_variance(self, X, F):
        return tf.exp(F) + tf.exp(2.0 * F) / self.shape


def train(model, loss, steps=20):
    """Natural gradients for the weights, Adam for everything else."""
    gpflow.set_trainable(model.q_mu, False)
    gpflow.set_trainable(model.q_sqrt, False)
    natural, adam = gpflow.optimizers.NaturalGradient(0.3), tf.optimizers.Adam(0.05)
    variables = list(model.trainable_variables)

    @tf.function
    def step():
        natural.minimize(loss, [(model.q_mu, model.q_sqrt)])
        with tf.GradientTape() as tape:
            value = loss()
        adam.apply_gradients(zip(tape.gradient(value, variables), variables, strict=True))
        return value

    return np.array([float(step()) for _ in range(steps)])


@pytest.mark.slow
def test_negative_binomial_trains_and_sees_overdispersion(basis, domain, field):
    rng = np.random.default_rng(0)
    rate = 0.3 * np.exp(field) * domain.node_areas / 1e6
    counts = rng.poisson(rate * rng.gamma(1.5, 1 / 1.5, len(rate))).astype(float)
    model = LGCP(basis, own.Matern(1.5))
    bounds = {}
    for likelihood in (gpflow.likelihoods.Poisson(), NegativeBinomial()):
        svgp, data = gpflow_fit.lgcp_svgp(model, counts, likelihood=likelihood)
        losses = train(svgp, svgp.training_loss_closure(data, compile=False))
        assert np.isfinite(losses).all()
        assert losses[-1] < losses[0]
        bounds[type(likelihood).__name__] = -losses[-1]
    assert bounds["NegativeBinomial"] > bounds["Poisson"] + 20.0
    assert 0.5 < float(likelihood.shape.numpy()) < 5.0
    assert np.isfinite(svgp.predict_y(data[0][:5])[1]).all()


@pytest.mark.slow
def test_student_t_trains_at_the_shore_and_resists_outliers(shore_basis, domain):
    features = HarmonicFeatures(shore_basis)
    rng = np.random.default_rng(0)
    index = np.arange(domain.n_nodes, dtype=float)[:, None]
    truth = np.cos((domain.node_points[:, :1] - 450_000.0) / 30_000.0)
    values = truth + 0.1 * rng.standard_t(2, size=truth.shape)
    values[::17] += 15.0
    # A place on the shore itself, where f has no variance.
    features._table = tf.concat([features._table, tf.zeros((1, shore_basis.m), tf.float64)], 0)
    index, values = np.vstack([index, [[domain.n_nodes]]]), np.vstack([values, [[0.0]]])
    error = {}
    for likelihood in (gpflow.likelihoods.StudentT(scale=0.3, df=3.0), gpflow.likelihoods.Gaussian()):
        model = gpflow.models.SVGP(kernel_on(features), likelihood, features)
        loss = model.training_loss_closure((index, values))
        before = float(loss())
        found = gpflow.optimizers.Scipy().minimize(loss, model.trainable_variables, options={"maxiter": 150})
        assert np.isfinite(found.jac).all()
        assert found.fun < before - 100.0
        mean, variance = model.predict_f(index)
        assert float(variance[-1, 0]) == 0.0
        inland = np.abs(shore_basis.features[:, 0]) > 0.5 * np.abs(shore_basis.features[:, 0]).max()
        error[type(likelihood).__name__] = float(np.abs(mean[:-1] - truth)[inland].mean())
    assert error["StudentT"] < 0.5 * error["Gaussian"]


def test_several_latent_processes_and_diagonal_posteriors(basis, domain):
    features = HarmonicFeatures(basis)
    kernel = kernel_on(features)
    index = nodes(50, domain.n_nodes)
    classes = np.random.default_rng(0).integers(0, 3, (50, 1)).astype(float)
    roots = np.random.default_rng(1).uniform(0.1, 1.0, (basis.m, 3))
    common = {"likelihood": gpflow.likelihoods.MultiClass(3), "num_latent_gps": 3}
    mu = np.random.default_rng(2).normal(size=(basis.m, 3))
    for whiten in (True, False):
        diagonal = gpflow.models.SVGP(
            kernel, inducing_variable=features, q_diag=True, q_mu=mu, q_sqrt=roots, whiten=whiten, **common
        )
        full = gpflow.models.SVGP(
            kernel,
            inducing_variable=features,
            q_mu=mu,
            q_sqrt=np.array([np.diag(r) for r in roots.T]),
            whiten=whiten,
            **common,
        )
        assert float(diagonal.elbo((index, classes))) == pytest.approx(float(full.elbo((index, classes))))
        for full_cov in (False, True):
            for a, b in zip(
                diagonal.predict_f(index, full_cov=full_cov),
                full.posterior().predict_f(index, full_cov=full_cov),
                strict=True,
            ):
                np.testing.assert_allclose(a, b, atol=1e-10)


# -- LGCP through GPflow -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_lgcp_fitted_by_gpflow_is_the_same_posterior(basis, domain, counts, places):
    exposure = domain.node_areas / 1e6
    exposure[counts == 0] *= np.random.default_rng(0).random(int((counts == 0).sum())) > 0.3
    assert (exposure == 0).any()
    model = LGCP(basis, own.Matern(1.5), exposure=exposure, covariates={"north": domain.node_points[:, 1]})
    ours, theirs = model.fit(counts), model.fit(counts, engine="gpflow")
    assert type(theirs) is type(ours)
    assert theirs.converged
    # geobgp's own search ends where less than a hundredth of a nat is to be gained.
    assert -1e-6 < theirs.fit.elbo_trace[-1] - ours.fit.elbo_trace[-1] < 0.01
    assert theirs.elbo == pytest.approx(ours.elbo, rel=1e-6)
    sd = np.sqrt(np.diag(theirs.fit.hyper_cov))
    assert np.all(np.abs(theirs.fit.hyper_mean - ours.fit.hyper_mean) < 0.05 * sd)
    np.testing.assert_allclose(np.sqrt(np.diag(ours.fit.hyper_cov)), sd, rtol=0.2)
    assert np.diff(theirs.fit.elbo_trace).min() >= -1e-9 * abs(theirs.elbo)
    for a, b in zip(theirs.predict(places), ours.predict(places), strict=True):
        np.testing.assert_allclose(a, b, rtol=5e-3, atol=5e-3)
    for name in ("mean", "sd", "q05", "q95"):
        np.testing.assert_allclose(theirs.intensity()[name], ours.intensity()[name], rtol=1e-2)
    np.testing.assert_allclose(theirs.coefficients["mean"], ours.coefficients["mean"], rtol=1e-3, atol=1e-3)
    assert str(theirs.summary())


def test_integrated_hyperparameters_agree(basis, counts):
    model = LGCP(basis, own.SquaredExponential(sd=1.0))
    told = []
    ours, theirs = (
        model.fit(counts, hyper="integrate"),
        model.fit(counts, hyper="integrate", engine="gpflow", progress=told.append),
    )
    assert len(told) > 3
    weights = [np.array([state.weight for state in fit.fit.states]) for fit in (ours, theirs)]
    np.testing.assert_allclose(weights[1], weights[0], atol=0.02)
    np.testing.assert_allclose(theirs.intensity()["mean"], ours.intensity()["mean"], rtol=0.02)


@pytest.mark.parametrize("scaling", ["even", "natural"])
def test_fixed_hyperparameters_stay_and_the_posterior_is_the_same(basis, counts, places, scaling):
    model = LGCP(basis, own.Matern(1.2, lengthscale=25_000.0, sd=0.9), scaling=scaling)
    ours, theirs = model.fit(counts), model.fit(counts, engine="gpflow")
    assert (theirs.lengthscale, theirs.sd) == pytest.approx((25_000.0, 0.9))
    assert theirs.elbo == pytest.approx(ours.elbo, rel=2e-9)
    assert not theirs.fit.hyper_cov.any()
    (mean, variance), (expected, wide) = theirs.predict(places), ours.predict(places)
    assert np.abs((mean - expected) / np.sqrt(wide)).max() < 5e-3
    np.testing.assert_allclose(variance, wide, rtol=5e-3)
    (mean, covariance), (expected, wide) = (p.fit.states[0].joint() for p in (theirs, ours))
    sd = np.sqrt(np.diag(wide))
    assert np.abs((mean - expected) / sd).max() < 5e-3
    np.testing.assert_allclose(covariance / np.outer(sd, sd), wide / np.outer(sd, sd), atol=5e-3)


def test_weights_that_the_prior_all_but_forbids_make_a_posterior(basis, domain, counts):
    """At a long lengthscale a squared exponential leaves all but the constants some 1e-250 of variance."""
    model = LGCP(basis, own.SquaredExponential(lengthscale=1e6, sd=1.0))
    ours, theirs = model.fit(counts), model.fit(counts, engine="gpflow")
    assert theirs.elbo == pytest.approx(ours.elbo, rel=1e-9)
    for a, b in zip(theirs.fit.states[0].node_moments(), ours.fit.states[0].node_moments(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


# -- mistakes ------------------------------------------------------------------------------------------------


def test_mistakes_are_explained(basis, shore_basis, domain, counts):
    features = HarmonicFeatures(basis)
    with pytest.raises(DataError, match="RationalQuadratic"):
        HarmonicKernel(gpflow.kernels.RationalQuadratic(), features)
    with pytest.raises(DataError, match="one lengthscale; found 2"):
        HarmonicKernel(gpflow.kernels.Matern32(lengthscales=[1.0, 2.0]), features)
    with pytest.raises(DataError, match="'even' or 'natural'"):
        HarmonicKernel(gpflow.kernels.Matern32(), features, scaling="odd")
    with pytest.raises(DataError, match="falls to zero at the shore"):
        HarmonicKernel(gpflow.kernels.Matern32(), shore_basis, scaling="even")
    with pytest.raises(DataError, match="positive number"):
        GPflowMatern(-1.0)
    kernel = kernel_on(features)
    with pytest.raises(DataError, match=r"\(4, 3\)"):
        kernel.K_diag(np.zeros((4, 3)))
    with pytest.raises(DataError, match="a row per node"):
        HarmonicFeatures(basis, fixed=np.ones((3, 1)))
    with pytest.raises(DataError, match="positive"):
        HarmonicFeatures(basis, fixed=np.ones((domain.n_nodes, 1)), fixed_sd=0.0)
    with pytest.raises(DataError, match="One value per node"):
        NodeMean(features, np.zeros(3))
    other = HarmonicFeatures(shore_basis)
    with pytest.raises(DataError, match=r"kernel\.features"):
        gpflow.models.SVGP(kernel, gpflow.likelihoods.Poisson(), other).predict_f(np.zeros((1, 1)))
    with pytest.raises(DataError, match="HarmonicBasis"):
        LGCP(FullRank(domain)).fit(counts, engine="gpflow")


def test_effects_whose_standard_deviation_is_learned_are_refused(domain, basis):
    rng = np.random.default_rng(0)
    covariates = {"x": Smooth(rng.uniform(size=domain.n_nodes)), "line": rng.uniform(size=domain.n_nodes)}
    counts = rng.poisson(1.0, domain.n_nodes)
    with pytest.raises(DataError, match="standard deviation of those of 'x'"):
        LGCP(basis, covariates=covariates).fit(counts, engine="gpflow")


def test_single_precision_is_refused(basis):
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)), pytest.raises(DataError, match="float32"):
        HarmonicFeatures(basis)


def test_a_fit_that_does_not_converge_says_so(basis, counts, monkeypatch):
    monkeypatch.setattr(gpflow_fit, "MAX_STEPS", 1)
    monkeypatch.setattr(gpflow_fit, "MAX_MOVES", 1)
    for kernel in (own.SquaredExponential(), own.SquaredExponential(lengthscale=2e4, sd=1.0)):
        with pytest.warns(ConvergenceWarning, match="did not converge: no optimum after"):
            posterior = LGCP(basis, kernel).fit(counts, engine="gpflow")
        assert not posterior.converged


def test_extreme_hyperparameters_stay_finite(basis, domain, counts):
    index = np.arange(domain.n_nodes, dtype=float)[:, None]
    for lengthscale in (1.0, 1e8):
        kernel = kernel_on(basis, gpflow.kernels.SquaredExponential(), lengthscale, 1.0)
        model = gpflow.models.SGPR((index, counts[:, None]), kernel, kernel.features)
        plain = gpflow.models.SVGP(kernel, gpflow.likelihoods.Gaussian(), kernel.features, whiten=True)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert np.isfinite(float(model.elbo()))
            assert np.isfinite(float(plain.elbo((index, counts[:, None]))))


def test_tensors_stay_inside(basis, counts):
    fit = LGCP(basis, own.Matern(1.5, lengthscale=2e4, sd=1.0)).fit(counts, engine="gpflow").fit
    assert all(isinstance(v, np.ndarray) for s in fit.states for v in vars(s).values() if hasattr(v, "shape"))
    assert gpflow_models.Diagonal(tf.ones(3)).shape == (3, 3)
