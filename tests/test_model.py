import geopandas as gpd
import numpy as np
import pytest
import shapely
from models import all_modes, archipelago, poisson_problem, square

from geobgp.errors import DataError, GeobgpWarning
from geobgp.land.domain import Domain
from geobgp.model import LGCP, BoundaryGP
from geobgp.prior.full_rank import FullRank
from geobgp.prior.kernels import Matern

pytestmark = pytest.mark.filterwarnings("ignore:.*features miss:geobgp.errors.GeobgpWarning")
ENGINES = pytest.mark.parametrize("make", [lambda d: all_modes(d, m=60), FullRank], ids=["features", "full"])
KERNEL = Matern(1.0, 3.0, 1.0)


def expected_total(model, result):
    mean, variance = result.states[0].node_moments()
    return (model.exposure * np.exp(mean + variance / 2)).sum()


# -- exposure ---------------------------------------------------------------------------------------------


@ENGINES
def test_a_rate_per_person_is_found(make):
    domain = square(12.0)
    rng = np.random.default_rng(0)
    people = rng.gamma(0.5, 200.0, domain.n_nodes)
    people[:20] = 0.0
    counts = rng.poisson(0.02 * people)
    model = LGCP(make(domain), KERNEL, exposure=people)
    result = model.fit(counts).fit
    mean, variance = result.states[0].node_moments()
    assert np.isfinite(mean).all()
    assert (people * np.exp(mean + variance / 2)).sum() / people.sum() == pytest.approx(0.02, rel=0.1)
    assert expected_total(model, result) == pytest.approx(counts.sum(), rel=1e-3)
    with pytest.raises(DataError, match="no exposure"):
        model.fit(np.ones(domain.n_nodes))


# -- covariates -------------------------------------------------------------------------------------------


@ENGINES
def test_covariates_are_found_in_their_own_units(make):
    domain = square(15.0)
    rng = np.random.default_rng(1)
    height = rng.normal(300.0, 50.0, domain.n_nodes)
    rate = np.exp(1.0 + 0.01 * (height - 300.0) + 0.05 * domain.node_points[:, 0])
    counts = rng.poisson(rate * domain.node_areas)
    model = LGCP(make(domain), KERNEL, covariates={"height": height, "east": lambda xy: xy[:, 0]})
    posterior = model.fit(counts)
    table = posterior.coefficients.set_index("name")
    assert abs(table.loc["height", "mean"] - 0.01) < 3 * table.loc["height", "sd"]
    assert table.loc["height", "sd"] < 0.0015
    # Another unit: another coefficient, the same map.
    other = LGCP(make(domain), KERNEL, covariates={"height": height / 1000, "east": lambda xy: xy[:, 0]}).fit(counts)
    ratio = other.coefficients.set_index("name").loc["height", "mean"] / table.loc["height", "mean"]
    assert ratio == pytest.approx(1000.0, rel=1e-6)
    assert other.elbo == pytest.approx(posterior.elbo, abs=1e-6)


@ENGINES
def test_correlated_covariates_are_told_and_survive(make):
    domain = square()
    rng = np.random.default_rng(2)
    x = rng.normal(size=100)
    counts = rng.poisson(np.exp(1 + 0.5 * x))
    near = x + 1e-6 * rng.normal(size=100)
    with pytest.warns(GeobgpWarning, match="'a' and 'b' have a correlation of 1.0000"):
        model = LGCP(make(domain), KERNEL, covariates={"a": x, "b": near, "same": np.sin(x)})
    result = model.fit(counts).fit
    assert result.converged
    mean, covariance = result.states[0].coefficients()
    assert np.isfinite(mean).all()
    assert np.sqrt(covariance[1, 1]) > 1.0  # each alone is hardly known
    scale = model.effects.scales
    both = mean[1] / scale[0] + mean[2] / scale[1]
    assert both == pytest.approx(0.5, abs=0.3)  # their sum is


# -- counts, edges ----------------------------------------------------------------------------------------


@ENGINES
def test_counts_of_the_wrong_shape(make):
    model = LGCP(make(square()), KERNEL)
    with pytest.raises(DataError, match="100 nodes"):
        model.fit(np.ones(99))
    with pytest.raises(DataError, match="finite"):
        model.fit(np.full(100, np.nan))
    with pytest.raises(DataError, match="'map' or 'integrate'"):
        model.fit(np.ones(100), hyper="best")
    with pytest.raises(DataError, match="numpy"):
        model.fit(np.ones(100), engine="stan")


@ENGINES
@pytest.mark.parametrize("learn", [True, False])
@pytest.mark.parametrize("case", ["none", "one", "a million in one cell", "all on one island", "one per node"])
def test_edges_have_finite_answers(make, learn, case):
    domain = archipelago()
    counts = np.zeros(domain.n_nodes)
    if case == "one":
        counts[17] = 1
    elif case == "a million in one cell":
        counts[17] = 1e6
    elif case == "all on one island":
        island = np.flatnonzero(domain.components == domain.components[-1])
        counts[island] = np.random.default_rng(0).poisson(5.0, len(island))
    elif case == "one per node":
        counts[:] = 1
    model = LGCP(make(domain), Matern(1.0) if learn else KERNEL)
    result = model.fit(counts).fit
    assert result.converged, result.message
    mean, variance = result.states[0].node_moments()
    assert np.isfinite(mean).all()
    assert np.isfinite(variance).all()
    assert (variance > 0).all()
    assert np.isfinite(result.elbo)
    assert np.isfinite(result.hyper_cov).all()
    assert expected_total(model, result) == pytest.approx(counts.sum(), abs=0.3, rel=2e-3)


@ENGINES
@pytest.mark.parametrize("length", [1e-3, 1e4])
@pytest.mark.filterwarnings("ignore::geobgp.errors.GeobgpWarning")
def test_absurd_lengthscales_have_finite_answers(make, length):
    domain = archipelago()
    counts = poisson_problem(domain, 2).counts
    model = LGCP(make(domain), Matern(1.0, length, 1.0))
    result = model.fit(counts).fit
    mean, variance = result.states[0].node_moments()
    assert np.isfinite(mean).all()
    assert (variance > 0).all()
    assert result.converged
    assert expected_total(model, result) == pytest.approx(counts.sum(), rel=1e-3)


def test_missed_variance_is_told():
    domain = square()
    counts = poisson_problem(domain, 3).counts
    with pytest.warns(GeobgpWarning, match=r"The 10 features miss \d+\.\d % of the prior variance"):
        LGCP(all_modes(domain, m=10), Matern(1.5, 0.5, 1.0)).fit(counts)


def test_rounds_are_reported():
    captured = []
    LGCP(all_modes(square(), m=10), KERNEL).fit(poisson_problem(square(), 3).counts, progress=captured.append)
    assert captured
    assert all("ELBO" in line for line in captured)


def test_the_model_stays_as_it_was():
    domain = square()
    model = LGCP(all_modes(domain, m=10), Matern(1.5))
    before = (model.kernel, model.exposure.copy())
    first = model.fit(poisson_problem(domain, 4).counts).fit
    assert model.kernel == before[0]
    assert np.array_equal(model.exposure, before[1])
    again = model.fit(poisson_problem(domain, 4).counts).fit
    assert again.elbo == pytest.approx(first.elbo, rel=1e-12)


# -- values at locations ----------------------------------------------------------------------------------


def test_mean_follows_the_boundary_unless_asked():
    domain = square()
    assert BoundaryGP(all_modes(domain)).mean == "constant"
    assert BoundaryGP(all_modes(domain, "dirichlet")).mean == "zero"
    assert BoundaryGP(all_modes(domain), mean="zero").mean == "zero"


def test_dirichlet_values_vanish_at_the_shore():
    domain = square(10.0, 0.5)
    rng = np.random.default_rng(3)
    coords = rng.uniform(2, 8, (80, 2))
    state = BoundaryGP(all_modes(domain, "dirichlet"), Matern(1.5, 3.0, 1.0)).fit(coords, np.ones(80)).fit.states[0]
    mean, variance = state.moments_at(np.array([[5.0, 5.0], [5.0, 1e-6]]))
    assert mean[0] == pytest.approx(1.0, abs=0.1)
    assert abs(mean[1]) < 1e-3
    assert variance[1] < 1e-3


@pytest.mark.parametrize(("likelihood", "values"), [("bernoulli", [0, 1]), ("poisson", [0, 3])])
@ENGINES
def test_other_likelihoods_at_locations(make, likelihood, values):
    domain = square()
    rng = np.random.default_rng(4)
    coords = rng.uniform(0.1, 9.9, (200, 2))
    y = np.where(coords[:, 0] < 5, *values).astype(float)
    posterior = BoundaryGP(make(domain), Matern(1.0, 3.0, 1.5), likelihood).fit(coords, y)
    assert posterior.converged
    mean, _ = posterior.predict_y(np.array([[1.0, 5.0], [9.0, 5.0]]))
    assert abs(mean[0] - values[0]) < 0.35 * max(values)
    assert abs(mean[1] - values[1]) < 0.35 * max(values)


def test_points_with_a_crs_are_projected():
    land = shapely.box(120_000, 450_000, 140_000, 470_000)
    domain = Domain.from_polygons(gpd.GeoSeries([land], crs=28992), cell_size=2000, crs=28992)
    rng = np.random.default_rng(5)
    xy = rng.uniform((121_000, 451_000), (139_000, 469_000), (40, 2))
    points = gpd.GeoSeries(gpd.points_from_xy(xy[:, 0], xy[:, 1]), crs=28992)
    model = BoundaryGP(all_modes(domain, m=20), Matern(1.5, 5000.0, 1.0), noise=0.1)
    a, b = model.fit(xy, xy[:, 0] / 1e4).fit, model.fit(points.to_crs(4326), xy[:, 0] / 1e4).fit
    assert a.elbo == pytest.approx(b.elbo, abs=1e-4)


@pytest.mark.parametrize(
    ("act", "word"),
    [
        (lambda m: m.fit(np.array([[50.0, 50.0]]), [1.0]).fit, "1 of 1 locations are not on"),
        (lambda m: m.fit(np.ones((3, 2)), [1.0]).fit, "1 values and 3 locations"),
        (lambda m: m.fit(np.ones((1, 2)), [np.nan]).fit, "finite"),
        (lambda m: m.fit(np.ones(4), np.ones(2)).fit, "easting and northing"),
        (lambda m: m.fit(np.empty((0, 2)), []).fit, "0 values"),
        (lambda m: BoundaryGP(m.basis, likelihood="cauchy"), "cauchy"),
        (lambda m: BoundaryGP(m.basis, mean="linear"), "linear"),
        (lambda m: BoundaryGP(m.basis, noise=-1.0), "noise"),
    ],
)
def test_mistakes_are_named(act, word):
    with pytest.raises(DataError, match=word):
        act(BoundaryGP(all_modes(square(), m=10), KERNEL))


def test_one_value_and_constant_values_are_fine():
    model = BoundaryGP(all_modes(square(), m=10), Matern(1.5))
    for coords, values in (
        (np.ones((1, 2)), [3.0]),
        (np.random.default_rng(0).uniform(1, 9, (20, 2)), np.full(20, 3.0)),
    ):
        state = model.fit(coords, values).fit.states[0]
        mean, variance = state.moments_at(np.array([[5.0, 5.0]]))
        assert mean[0] == pytest.approx(3.0, abs=1e-3)
        assert np.isfinite(variance).all()
