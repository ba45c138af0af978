"""Counts by area: against a dense reference, the fit of points, importance sampling, and simulated truth."""

from __future__ import annotations

from dataclasses import replace

import geopandas as gpd
import numpy as np
import pytest
import shapely
from paths import ROOT
from scipy import sparse
from scipy.stats import poisson
from shapely import box

from geobgp import LGCP, DataError, Domain, HarmonicBasis, Matern, bin_areas, bin_points
from geobgp.data.areas import combine
from geobgp.inference.dense import NodeFeatures, RowEngine, row_weights
from geobgp.inference.engine import Sites
from geobgp.inference.families import FAMILIES
from geobgp.inference.problem import AreaProblem, Observed, SpaceRows


@pytest.fixture(scope="module")
def domain():
    """Two pieces of land, one of them with a lake, and an islet."""
    land = shapely.union_all([box(0, 0, 12, 16).difference(box(4, 4, 6, 9)), box(14, 0, 22, 16), box(23, 0, 24, 1)])
    return Domain.from_polygons(land, cell_size=1, crs="local")


@pytest.fixture(scope="module")
def basis(domain):
    return HarmonicBasis.compute(domain, 40, cache=False)


def field(domain):
    east, north = domain.node_points.T
    return np.exp(1.0 + 0.8 * np.sin(east / 4.0) * np.cos(north / 5.0))


def squares(domain, side, seed=0):
    """Return squares across the land, with counts of events in them."""
    boxes = [box(a, b, a + side, b + side) for a in np.arange(0, 24, side) for b in np.arange(0, 16, side)]
    frame = gpd.GeoDataFrame({"name": [f"square {k}" for k in range(len(boxes))]}, geometry=boxes)
    counts = np.random.default_rng(seed).poisson(field(domain) * domain.node_areas)
    owner = gpd.sjoin(gpd.GeoDataFrame(geometry=gpd.points_from_xy(*domain.node_points.T)), frame, predicate="within")
    frame["cases"] = np.bincount(owner["index_right"], counts[owner.index], len(frame))
    return frame


def test_areas_of_one_node_are_points(domain, basis):
    counts = np.random.default_rng(0).poisson(field(domain) * domain.node_areas)
    cells = gpd.GeoDataFrame({"cases": counts}, geometry=list(domain.polygon_of(np.arange(domain.n_nodes))))
    points, areas = LGCP(basis).fit(counts), LGCP(basis).fit(bin_areas(cells, domain, "cases"))
    assert areas.elbo == pytest.approx(points.elbo, rel=1e-6)
    assert areas.lengthscale == pytest.approx(points.lengthscale, rel=0.01)
    np.testing.assert_allclose(areas.node_intensity()["sd"], points.node_intensity()["sd"], rtol=0.01)


@pytest.mark.parametrize("scaling", ["natural", "even"])
def test_a_fit_is_the_fixed_point_that_a_plain_loop_finds(domain, basis, scaling):
    if scaling == "natural":  # which is far too wide on islets
        domain = Domain.from_polygons(box(0, 0, 16, 16).difference(box(4, 4, 6, 9)), cell_size=1, crs="local")
        basis = HarmonicBasis.compute(domain, 40, cache=False)
    counts = bin_areas(_on_land(squares(domain, 4.0), domain), domain, "cases")
    kernel = Matern(1.5, lengthscale=6.0, sd=0.7)
    posterior = LGCP(basis, kernel, scaling=scaling).fit(counts)
    prior = kernel.spectral_density(np.sqrt(basis.eigenvalues))
    phi = basis.features
    if scaling == "even":
        phi = phi * (0.7 / np.sqrt(phi**2 @ prior))[:, None]
    rows = np.c_[phi, np.ones(len(phi))]
    exposure = counts.shares.toarray() * domain.node_areas
    centre = np.log(counts.values.sum() / exposure.sum())
    precision = np.diag(np.r_[1.0 / prior, 0.01])
    mean, covariance = np.zeros(len(precision)), np.zeros_like(precision)
    for _ in range(60):
        mu, v = centre + rows @ mean, np.einsum("ij,jk,ik->i", rows, covariance, rows)
        expected = exposure * np.exp(mu + 0.5 * v)
        total = expected.sum(axis=1)
        seen = (expected / total[:, None]) @ rows
        covariance = np.linalg.inv(precision + seen.T @ (total[:, None] * seen))
        mean = mean + 0.5 * covariance @ (seen.T @ (counts.values - total) - precision @ mean)
    mu, v = centre + rows @ mean, np.einsum("ij,jk,ik->i", rows, covariance, rows)
    ours = posterior.fit.states[0].node_moments()
    np.testing.assert_allclose(ours[0], mu, atol=0.02 * np.sqrt(v).min())
    np.testing.assert_allclose(ours[1], v, rtol=0.02)


def test_the_gradient_follows_rows_as_they_move_with_the_lengthscale(domain, basis):
    kernel, rng = Matern(1.5), np.random.default_rng(1)
    exposure = sparse.csr_array(bin_areas(squares(domain, 4.0), domain, "cases").shares)
    rows, _ = row_weights(exposure, rng.normal(0, 0.3, domain.n_nodes), np.full(domain.n_nodes, 0.1))
    columns = np.c_[np.ones(domain.n_nodes), domain.node_points[:, 0] / 10.0]
    engine = RowEngine(NodeFeatures(basis, kernel, "even"), rows, columns, np.full(2, 3.0), 0.0)
    n = rows.shape[0]
    sites = Sites(rng.uniform(1.0, 20.0, n), rng.normal(0.0, 3.0, n))
    theta, step = np.log([5.0, 0.8]), 1e-5
    found = engine.objective(theta, sites)[1]
    for i in range(2):
        ahead, behind = theta.copy(), theta.copy()
        ahead[i] += step
        behind[i] -= step
        slope = (engine.objective(ahead, sites)[0] - engine.objective(behind, sites)[0]) / (2 * step)
        assert found[i] == pytest.approx(slope, rel=1e-5, abs=1e-6)


def test_bound_and_intensities_are_near_the_truth_of_importance_sampling():
    domain = Domain.from_polygons(box(0, 0, 6, 6), cell_size=1, crs="local")
    basis = HarmonicBasis.compute(domain, 12, cache=False)
    frame = gpd.GeoDataFrame(
        {"cases": [30, 4, 11, 18]}, geometry=[box(a, b, a + 3, b + 3) for a in (0, 3) for b in (0, 3)]
    )
    counts, kernel = bin_areas(frame, domain, "cases"), Matern(1.5, lengthscale=3.0, sd=0.8)
    posterior = LGCP(basis, kernel, scaling="natural").fit(counts)
    state, rng = posterior.fit.states[0], np.random.default_rng(0)
    mean, covariance = state.joint()
    scale = np.sqrt(kernel.spectral_density(np.sqrt(basis.eigenvalues)))
    root, wider = np.linalg.cholesky(covariance), 1.3
    z = rng.standard_normal((200_000, len(mean)))
    u = mean + wider * z @ root.T
    log_q = -0.5 * (z**2).sum(axis=1) - np.log(np.diag(root)).sum() - len(mean) * np.log(wider)
    prior_sd = np.r_[scale, 10.0]
    log_prior = -0.5 * ((u / prior_sd) ** 2).sum(axis=1) - np.log(prior_sd).sum()
    rate = np.exp(state.centre + u @ np.c_[basis.features, np.ones(domain.n_nodes)].T)
    total = rate @ counts.shares.T.toarray()
    log_p = poisson.logpmf(counts.values, total).sum(axis=1) + log_prior - log_q
    evidence = np.log(np.mean(np.exp(log_p - log_p.max()))) + log_p.max()
    assert posterior.elbo == pytest.approx(evidence, abs=0.15)
    weight = np.exp(log_p - log_p.max())
    true = (weight @ rate) / weight.sum()
    np.testing.assert_allclose(posterior.node_intensity()["mean"], true, rtol=0.06)


def test_totals_of_areas_agree_with_their_counts(domain, basis):
    frame = squares(domain, 4.0)
    counts = bin_areas(frame, domain, "cases")
    posterior = LGCP(basis).fit(counts)
    totals = posterior.totals(counts.frame())
    assert totals["expected"].sum() == pytest.approx(counts.values.sum(), rel=1e-3)
    off = (totals["expected"] - totals["observed"]) / np.sqrt(totals["observed"] + 1.0)
    assert off.abs().mean() < 0.8
    assert ((totals["q05"] <= totals["observed"]) & (totals["observed"] <= totals["q95"])).mean() > 0.6


def test_intervals_hold_the_truth_where_spread_counts_do_not():
    domain = Domain.from_polygons(box(0, 0, 24, 24), cell_size=1, crs="local")
    basis = HarmonicBasis.compute(domain, 60, cache=False)
    kernel = Matern(1.5, lengthscale=6.0, sd=0.8)
    scale = np.sqrt(Matern(1.5, 6.0, 1.0).spectral_density(np.sqrt(basis.eigenvalues)))
    boxes = [box(a, b, a + 6, b + 6) for a in range(0, 24, 6) for b in range(0, 24, 6)]
    frame, held, spread = gpd.GeoDataFrame(geometry=boxes), [], []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        f = basis.features @ (scale * rng.standard_normal(basis.m)) / np.sqrt(basis.features**2 @ scale**2)
        rate = 6.0 * np.exp(0.8 * f)
        counts = bin_areas(frame.assign(cases=0), domain, "cases")
        values = rng.poisson(counts.shares @ rate)
        frame["cases"] = values
        for found, fit in (
            (held, LGCP(basis, kernel).fit(bin_areas(frame, domain, "cases"))),
            (spread, LGCP(basis, kernel).fit(counts.shares.T @ (values / 36.0))),
        ):
            at = fit.node_intensity((0.05, 0.95))
            found.append(np.mean((at["q05"] <= rate) & (rate <= at["q95"])))
    assert 0.84 < np.mean(held) < 0.96
    assert np.mean(spread) < 0.7


def test_points_and_areas_together_count_nobody_twice(domain, basis):
    rng = np.random.default_rng(4)
    every = rng.poisson(3.0 * field(domain) * domain.node_areas)
    placed = rng.binomial(every, 0.4)
    frame = squares(domain, 4.0)
    shares = bin_areas(frame, domain, "cases").shares
    frame["cases"] = np.round(shares @ (every - placed))
    both = LGCP(basis).fit([placed, bin_areas(frame, domain, "cases")])
    whole = LGCP(basis).fit(every)
    assert both.n_points == pytest.approx(every.sum(), abs=2)
    assert both.totals()["expected"][0] == pytest.approx(every.sum(), rel=0.01)
    ratio = np.log(both.node_intensity()["q50"] / whole.node_intensity()["q50"])
    assert np.sqrt(np.mean(ratio**2)) < 0.15
    assert both.node_intensity()["sd"].mean() > whole.node_intensity()["sd"].mean()


def test_the_share_that_stands_behind_points_does_not_matter(domain):
    """The likelihood of both kinds of rows is that of the whole with places known for some."""
    rng = np.random.default_rng(5)
    placed = rng.poisson(0.5, domain.n_nodes).astype(float)
    areas = bin_areas(squares(domain, 8.0), domain, "cases")
    rate = rng.uniform(0.5, 2.0, domain.n_nodes)
    seen = combine(replace(areas, located=placed), domain.node_areas)
    assert seen.exposure.sum() == pytest.approx(domain.node_areas.sum())
    total = seen.exposure @ rate
    assert total.sum() == pytest.approx(rate @ domain.node_areas)
    assert seen.counts.sum() == placed.sum() + areas.values.sum()
    assert (total[(seen.counts > 0)] > 0).all()


def test_suppressed_counts_are_taken_for_what_they_can_be(domain, basis):
    frame = squares(domain, 2.0)
    hidden = frame["cases"].between(1, 9)
    assert hidden.sum() >= 10
    exact = LGCP(basis, Matern(1.5, 6.0, 0.7)).fit(bin_areas(frame, domain, "cases"))
    frame["told"] = frame["cases"].where(~hidden)
    told = bin_areas(frame, domain, "told", suppressed=(1, 9))
    guessed = LGCP(basis, Matern(1.5, 6.0, 0.7)).fit(told)
    assert guessed.converged and told.hidden.sum() == hidden.sum()
    assert guessed.elbo > exact.elbo  # an interval is likelier than a number in it
    assert guessed.totals()["expected"][0] == pytest.approx(exact.totals()["expected"][0], rel=0.1)
    assert guessed.node_intensity()["sd"].mean() > exact.node_intensity()["sd"].mean()


def test_areas_with_more_spread_than_poisson(basis, domain):
    frame, rng = squares(domain, 2.0), np.random.default_rng(6)
    frame["cases"] = rng.poisson(20.0 * rng.gamma(3.0, 1.0 / 3.0, len(frame)))
    counts = bin_areas(_on_land(frame, domain), domain, "cases")
    wide = LGCP(basis, Matern(1.5, 6.0, 0.3), likelihood="negative-binomial").fit(counts)
    assert wide.likelihood.k == pytest.approx(3.0, rel=0.5)
    assert wide.likelihood.gain > 20


def _on_land(frame, domain):
    land = domain.geometry
    return frame[frame.intersection(land).area > 1.0]


def test_integrated_hyperparameters_widen_the_map(domain, basis):
    counts = bin_areas(squares(domain, 8.0), domain, "cases")
    kernel = Matern(1.5, lengthscale=6.0)
    best, mixed = LGCP(basis, kernel).fit(counts), LGCP(basis, kernel).fit(counts, hyper="integrate")
    assert len(mixed.fit.states) == 3
    assert mixed.node_intensity()["sd"].mean() > best.node_intensity()["sd"].mean()
    # Every one of the mixed posteriors has rows of its own, and keeps to the counts.
    for state in mixed.fit.states:
        mean, variance = state.node_moments()
        expected = counts.shares @ (domain.node_areas * np.exp(mean + 0.5 * variance))
        assert expected.sum() == pytest.approx(counts.values.sum(), rel=1e-3)


def test_counts_of_other_land_are_refused(domain, basis):
    other = Domain.from_polygons(box(0, 0, 24, 16), cell_size=2, crs="local")
    with pytest.raises(DataError, match="of the nodes of another domain, not of these"):
        LGCP(basis).fit(bin_areas(squares(other, 8.0), other, "cases"))


def test_rows_settle_at_what_they_were_made_with(domain, basis):
    counts = bin_areas(squares(domain, 8.0), domain, "cases")
    seen = combine(counts, domain.node_areas)
    nodes = NodeFeatures(basis, Matern(1.5, 6.0, 0.8), "even")
    prior = SpaceRows(nodes, np.ones((domain.n_nodes, 1)), np.array([10.0]), 0.0)
    observed = Observed(seen.counts, seen.exposure, seen.hidden, seen.interval)
    problem = AreaProblem(prior, (observed,), FAMILIES["poisson"])
    assert problem.renews
    posterior = LGCP(basis, Matern(1.5, 6.0, 0.8)).fit(counts)
    mean, variance = posterior.fit.states[0].node_moments()
    at = problem.at(posterior.fit.states[0], (mean, variance))
    # About its row, an area is expected to hold what its nodes add up to.
    rows = at.engine.rows
    expected = at.size * np.exp(rows @ mean + 0.5 * at.start[1])
    np.testing.assert_allclose(expected, seen.exposure @ np.exp(mean + 0.5 * variance), rtol=1e-9)


def test_points_may_be_counted_before(domain, basis):
    points = gpd.GeoDataFrame(geometry=gpd.points_from_xy([2.5, 2.6, 18.0], [2.5, 2.4, 3.0]))
    posterior = LGCP(basis, Matern(1.5, 6.0, 0.8)).fit(
        [bin_points(points, domain), bin_areas(squares(domain, 8.0), domain, "cases")]
    )
    assert posterior.points["in_areas"] + 3 == posterior.n_points


def test_a_natural_prior_too_wide_on_islets_says_so():
    """The natural prior's variance grows without bound on islets: rows of areas that hold some cannot be made."""
    islets = [box(14 + 3 * k, 3, 15 + 3 * k, 4) for k in range(4)]
    domain = Domain.from_polygons(shapely.union_all([box(0, 0, 12, 12), *islets]), cell_size=1, crs="local")
    basis = HarmonicBasis.compute(domain, 30, cache=False)
    frame = gpd.GeoDataFrame({"cases": [5, 9, 3]}, geometry=[box(0, 0, 6, 12), box(6, 0, 12, 12), box(13, 0, 26, 12)])
    areas, kernel = bin_areas(frame, domain, "cases"), Matern(1.5, 60.0, 1.5)
    with pytest.raises(DataError, match="prior so wide") as raised:
        LGCP(basis, kernel, scaling="natural").fit(areas)
    assert raised.value.option == "scaling" and raised.value.found > 10 and "even" in raised.value.remedy
    assert LGCP(basis, kernel).fit(areas).converged


@pytest.mark.filterwarnings("ignore:.*features miss:geobgp.errors.GeobgpWarning")
def test_areas_whose_rates_differ_a_thousandfold_settle():
    """As many events on every Dutch island as in a province: rows must not jump to the least known node."""
    land, water, parts = (
        gpd.read_file(ROOT / "sample_data" / f"netherlands_{name}.gpkg") for name in ("land", "water", "provinces")
    )
    domain = Domain.from_polygons(land, water=water, cell_size=8000)
    frame = parts.assign(cases=40, name=[f"part {k}" for k in range(len(parts))])
    basis, counts = HarmonicBasis.compute(domain, 80, cache=False), bin_areas(frame, domain, "cases")
    posterior = LGCP(basis).fit(counts)
    assert posterior.converged and 1.5 < posterior.sd < 4.0
    for sd in (0.6 * posterior.sd, 1.4 * posterior.sd):
        other = LGCP(basis, Matern(1.5, posterior.lengthscale, sd)).fit(counts)
        assert other.converged and other.elbo < posterior.elbo
    found = posterior.totals(frame)["expected"]
    assert found.sum() == pytest.approx(frame["cases"].sum(), rel=0.01)
    assert found.between(10, 60).all()
