"""Counts by area at full resolution: against dense algebra, all features, finite differences and simulated truth."""

from __future__ import annotations

from dataclasses import replace

import geopandas as gpd
import numpy as np
import pytest
import shapely
from scipy import sparse
from shapely import box

from geobgp import LGCP, Domain, FullRank, HarmonicBasis, Matern, Posterior, bin_areas, bin_points
from geobgp.inference.dense import row_weights
from geobgp.inference.engine import Sites
from geobgp.inference.problem import space_rows
from geobgp.prior import full_rank
from geobgp.prior.full_rank import coefficients


@pytest.fixture(scope="module")
def domain():
    """Two pieces of land, one of them with a lake, and an islet."""
    land = shapely.union_all([box(0, 0, 12, 16).difference(box(4, 4, 6, 9)), box(14, 0, 22, 16), box(23, 0, 24, 1)])
    return Domain.from_polygons(land, cell_size=1, crs="local")


@pytest.fixture(params=[0, 10, 1000], ids=["correction", "both", "sparse"])
def long(request, monkeypatch):
    """Rows with more entries than this are a correction of low rank; the others are part of the sparse matrix."""
    monkeypatch.setattr(full_rank, "LONG", request.param)
    return request.param


def field(domain):
    east, north = domain.node_points.T
    return np.exp(1.0 + 0.8 * np.sin(east / 4.0) * np.cos(north / 5.0))


def squares(domain, side, seed=0):
    """Return squares across the land, with counts of events in them."""
    boxes = [box(a, b, a + side, b + side) for a in np.arange(0, 24, side) for b in np.arange(0, 16, side)]
    frame = gpd.GeoDataFrame({"name": [f"square {k}" for k in range(len(boxes))]}, geometry=boxes)
    counts = np.random.default_rng(seed).poisson(field(domain) * domain.node_areas)
    place = (domain.node_points // side).astype(int)
    owner = place[:, 0] * int(np.ceil(16 / side)) + place[:, 1]
    frame["cases"] = np.bincount(owner, counts, len(frame))
    on_land = shapely.intersects(
        frame.geometry.to_numpy(), shapely.union_all(domain.polygon_of(np.arange(domain.n_nodes)))
    )
    return frame[on_land & (frame.area > 0)].reset_index(drop=True)


def rows_of(domain, seed=1):
    """Return rows of overlapping areas of 4 and 16 nodes, and one of a single node; columns; sites."""
    rng = np.random.default_rng(seed)
    exposure = [bin_areas(squares(domain, side), domain, "cases").shares for side in (2.0, 4.0)]
    exposure.append(sparse.csr_array(([1.0], ([0], [5])), shape=(1, domain.n_nodes)))
    rows, _ = row_weights(
        sparse.csr_array(sparse.vstack(exposure)), rng.normal(0, 0.3, domain.n_nodes), np.full(domain.n_nodes, 0.1)
    )
    columns = np.c_[np.ones(domain.n_nodes), domain.node_points[:, 0] / 10.0]
    n = rows.shape[0]
    return rows, columns, Sites(rng.uniform(0.5, 20.0, n), rng.normal(0.0, 3.0, n))


@pytest.mark.parametrize("scaling", ["natural", "even"])
@pytest.mark.parametrize("nu", [1.0, 2.0])
def test_the_posterior_of_rows_is_the_dense_algebra(domain, long, scaling, nu):
    rows, columns, sites = rows_of(domain)
    full, theta = FullRank(domain), np.log([4.0, 0.9])
    prior = space_rows(full, Matern(nu), scaling, columns, np.array([10.0, 3.0]), 0.7)
    engine = prior.engine([rows])
    moments = engine.posterior(theta, sites)
    _, q, _ = coefficients(nu, 4.0, 0.9)
    s = full.field.matrix.toarray()
    precision = sum(a * np.linalg.matrix_power(s, k) for k, a in enumerate(q))
    u, e = len(s), np.ones(domain.n_nodes)
    if scaling == "even":
        e = prior.nodes.even(theta[0])[0]
        covariance = 0.9**-2 * np.linalg.inv(precision)
        # The table is a polynomial in log ℓ.
        own = np.diag(full.field.to_nodes @ covariance @ full.field.to_nodes.T)
        np.testing.assert_allclose(e, 1.0 / np.sqrt(own), rtol=1e-4)
    to_nodes = np.c_[e[:, None] * full.field.to_nodes.toarray(), columns]
    seen = rows @ to_nodes
    whole = np.zeros((u + 2, u + 2))
    whole[:u, :u] = precision
    whole[[u, u + 1], [u, u + 1]] = [10.0**-2, 3.0**-2]
    posterior = whole + seen.T @ (sites.precision[:, None] * seen)
    inverse = np.linalg.inv(posterior)
    mean = inverse @ (seen.T @ sites.natural)
    np.testing.assert_allclose(moments.mean, seen @ mean, rtol=1e-8, atol=1e-8)
    variance = np.einsum("ij,jk,ik->i", seen, inverse, seen)
    np.testing.assert_allclose(moments.variance, variance, rtol=1e-8)
    divergence = 0.5 * (
        np.trace(whole @ inverse) + mean @ whole @ mean - len(whole)
        + np.linalg.slogdet(posterior)[1] - np.linalg.slogdet(whole)[1]
    )  # fmt: skip
    assert moments.divergence == pytest.approx(divergence, rel=1e-7 if scaling == "natural" else 1e-6)
    state = engine.state(theta, sites, 1.0)
    at_nodes = to_nodes @ inverse @ to_nodes.T
    for found, wanted in zip(state.node_moments(), (0.7 + to_nodes @ mean, np.diag(at_nodes)), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-8, atol=1e-8)
    some = np.array([0, 17, 90])
    np.testing.assert_allclose(state.node_covariance(some), at_nodes[np.ix_(some, some)], rtol=1e-7, atol=1e-10)
    for other in (rows, sparse.csr_array(rows[::3]), sparse.csr_array(rows * 0.5)):
        row_mean, row_variance = state.moments_of(other)
        np.testing.assert_allclose(row_mean, (other @ to_nodes) @ mean, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(row_variance, np.diag(other @ at_nodes @ other.T), rtol=1e-8)
    draws = state.sample_nodes(20_000, np.random.default_rng(0))
    np.testing.assert_allclose(np.cov(draws[:, some].T), at_nodes[np.ix_(some, some)], atol=0.03 * at_nodes.max())


@pytest.mark.parametrize("scaling", ["natural", "even"])
def test_the_gradient_is_that_of_differences(domain, long, scaling):
    rows, columns, sites = rows_of(domain)
    prior = space_rows(FullRank(domain), Matern(1.0), scaling, columns, np.array([10.0, 3.0]), 0.0)
    engine, theta, step = prior.engine([rows]), np.log([5.0, 0.8]), 1e-3
    found = engine.objective(theta, sites)[1]
    for i in range(2):
        values = []
        for k in (-2, -1, 1, 2):
            there = theta.copy()
            there[i] += k * step
            values.append(engine.objective(there, sites)[0])
        slope = (values[0] - 8 * values[1] + 8 * values[2] - values[3]) / (12 * step)
        assert found[i] == pytest.approx(slope, rel=2e-5, abs=1e-5)


def test_all_features_say_the_same(domain, long):
    """All features but the last two, which is as many as are computed."""
    land = Domain.from_polygons(box(0, 0, 14, 10), cell_size=1, crs="local")
    counts = bin_areas(squares(land, 4.0), land, "cases")
    kernel = Matern(1.0, 5.0, 0.7)
    full = LGCP(FullRank(land), kernel, scaling="natural").fit(counts)
    features = LGCP(HarmonicBasis.compute(land, land.n_nodes - 3, cache=False), kernel, scaling="natural").fit(counts)
    assert full.converged
    assert full.elbo == pytest.approx(features.elbo, abs=0.05)
    np.testing.assert_allclose(full.fit.states[0].node_moments(), features.fit.states[0].node_moments(), atol=0.05)


def test_learned_hyperparameters_are_those_of_many_features(domain):
    counts = bin_areas(squares(domain, 2.0), domain, "cases")
    full = LGCP(FullRank(domain), Matern(1.0)).fit(counts)
    features = LGCP(HarmonicBasis.compute(domain, 250, cache=False), Matern(1.0)).fit(counts)
    assert full.elbo == pytest.approx(features.elbo, abs=0.5)
    assert full.lengthscale == pytest.approx(features.lengthscale, rel=0.15)


def test_areas_of_one_node_are_points(domain):
    counts = np.random.default_rng(0).poisson(field(domain) * domain.node_areas)
    cells = gpd.GeoDataFrame({"cases": counts}, geometry=list(domain.polygon_of(np.arange(domain.n_nodes))))
    points = LGCP(FullRank(domain)).fit(counts)
    areas = LGCP(FullRank(domain)).fit(bin_areas(cells, domain, "cases"))
    assert areas.elbo == pytest.approx(points.elbo, rel=1e-5)
    assert areas.lengthscale == pytest.approx(points.lengthscale, rel=0.02)
    np.testing.assert_allclose(areas.node_intensity()["sd"], points.node_intensity()["sd"], rtol=0.02)


def test_points_and_areas_together_count_nobody_twice(domain, long):
    rng = np.random.default_rng(2)
    located = bin_points(domain.node_points[rng.choice(domain.n_nodes, 60)], domain)
    frame = squares(domain, 4.0)
    posterior = LGCP(FullRank(domain), Matern(1.0, 5.0, 0.7)).fit([located, bin_areas(frame, domain, "cases")])
    assert posterior.n_points == pytest.approx(60 + frame["cases"].sum())
    total = posterior.node_intensity()["mean"] @ domain.node_areas
    assert total == pytest.approx(60 + frame["cases"].sum(), rel=0.01)


def test_suppressed_and_overdispersed_counts(domain, long):
    frame = squares(domain, 4.0)
    frame["cases"] = frame["cases"].astype(object)
    frame.loc[2, "cases"] = "<5"
    counts = bin_areas(frame, domain, "cases", suppressed=(1, 4))
    kernel = Matern(1.0, 5.0, 0.7)
    posterior = LGCP(FullRank(domain), kernel, likelihood="negative-binomial").fit(counts)
    features = LGCP(HarmonicBasis.compute(domain, 300, cache=False), kernel, likelihood="negative-binomial").fit(counts)
    assert posterior.elbo == pytest.approx(features.elbo, abs=0.6)


def test_a_covariate_is_learned_and_a_fit_comes_back_from_its_file(domain, tmp_path):
    east = domain.node_points[:, 0]
    counts = np.random.default_rng(4).poisson(np.exp(0.5 + 0.15 * east) * domain.node_areas)
    frame = squares(domain, 2.0)
    place = (domain.node_points // 2).astype(int)
    cell = {(int(g.centroid.x // 2), int(g.centroid.y // 2)): k for k, g in enumerate(frame.geometry)}
    frame["cases"] = np.bincount([cell[tuple(p)] for p in place], counts, len(frame))
    areas = bin_areas(frame, domain, "cases")
    posterior = LGCP(FullRank(domain), covariates={"east": east}).fit(areas)
    mean, covariance = posterior.fit.states[0].coefficients()
    slope, sd = mean[1] / east.std(), np.sqrt(covariance[1, 1]) / east.std()
    assert abs(slope - 0.15) < 3.0 * sd
    again = Posterior.load(posterior.save(tmp_path / "fit"))
    shapes = areas.frame()
    np.testing.assert_allclose(again.totals(shapes)["q95"], posterior.totals(shapes)["q95"], rtol=1e-9)
    np.testing.assert_allclose(again.node_intensity()["sd"], posterior.node_intensity()["sd"], rtol=1e-9)


def test_intervals_hold_the_truth_as_those_of_features_do():
    """The truth is drawn from the prior on a square of 30 by 30; 100 counties with some 3,000 events."""
    land = Domain.from_polygons(box(0, 0, 30, 30), cell_size=1, crs="local")
    kernel, full = Matern(1.0, 8.0, 0.8), FullRank(land)
    basis = HarmonicBasis.compute(land, 128, cache=False)
    within = {"full": [], "features": []}
    boxes = [box(a, b, a + 3, b + 3) for a in range(0, 30, 3) for b in range(0, 30, 3)]
    owner = (land.node_points[:, 0] // 3).astype(int) * 10 + (land.node_points[:, 1] // 3).astype(int)
    for seed in range(6):
        rng = np.random.default_rng(seed)
        rate = np.exp(1.0 + full.sample_prior(kernel, 1, rng, "even")[0])
        counties = gpd.GeoDataFrame({"cases": np.bincount(owner, rng.poisson(rate))}, geometry=boxes)
        counts = bin_areas(counties, land, "cases")
        for name, prior in (("full", full), ("features", basis)):
            given = kernel if name == "full" else replace(kernel)
            at = LGCP(prior, given).fit(counts).node_intensity((0.05, 0.95))
            within[name].append(np.mean((at["q05"] <= rate) & (rate <= at["q95"])))
    assert 0.86 <= np.mean(within["full"]) <= 0.94
    assert np.mean(within["full"]) > np.mean(within["features"]) - 0.02
