"""Negative binomial and suppressed counts against direct summation and brute-force quadrature."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad
from shapely import box

from geobgp import LGCP, DataError, Domain, FullRank, HarmonicBasis, Matern
from geobgp.inference.families import NegativeBinomial, Poisson, SuppressedCounts
from geobgp.inference.mixture import NormalMixture

MEAN, VARIANCE = np.array([-0.4, 0.9, 2.0]), np.array([0.05, 0.6, 0.3])
COUNTS, EXPOSURE, CENTRE = np.array([0.0, 4.0, 11.0]), np.array([1.0, 2.0, 0.5]), 0.3


def brute(log_p, mean, variance):
    """Return E log p under a normal, by adaptive quadrature."""
    sd = np.sqrt(variance)
    return quad(lambda z: log_p(mean + sd * z) * stats.norm.pdf(z), -9, 9, epsabs=1e-11, limit=200)[0]


def negative_binomial(k):
    return lambda y, rate: stats.nbinom.logpmf(y, k, k / (k + rate))


CASES = {
    "spread": (NegativeBinomial(COUNTS, EXPOSURE, CENTRE, 1.7), negative_binomial(1.7), None),
    "nearly Poisson": (NegativeBinomial(COUNTS, EXPOSURE, CENTRE, 300.0), negative_binomial(300.0), None),
    "suppressed": (
        SuppressedCounts(Poisson(COUNTS, EXPOSURE, CENTRE), np.array([True, False, True]), 1, 4),
        stats.poisson.logpmf,
        (1, 4),
    ),
    "suppressed, with spread": (
        SuppressedCounts(
            NegativeBinomial(COUNTS, EXPOSURE, CENTRE, 2.5), np.array([True, True, False]), 0, 9
        ),
        negative_binomial(2.5),
        (0, 9),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_expectations_are_those_of_quadrature(name):
    likelihood, log_p, interval = CASES[name]
    hidden = getattr(likelihood, "hidden", np.zeros(3, bool))
    for i, found in enumerate(likelihood.expected(MEAN, VARIANCE).value):

        def one(f, i=i):
            rate = EXPOSURE[i] * np.exp(CENTRE + f)
            if not hidden[i]:
                return log_p(COUNTS[i], rate)
            return np.log(sum(np.exp(log_p(y, rate)) for y in range(interval[0], interval[1] + 1)))

        assert found == pytest.approx(brute(one, MEAN[i], VARIANCE[i]), abs=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_derivatives_are_those_of_differences(name):
    likelihood, step = CASES[name][0], 1e-5
    at = likelihood.expected(MEAN, VARIANCE)

    def value(m, v):
        return likelihood.expected(m, v).value

    def precision(m, v):
        return -2.0 * likelihood.expected(m, v).d_variance

    by_mean = (value(MEAN + step, VARIANCE) - value(MEAN - step, VARIANCE)) / (2 * step)
    by_variance = (value(MEAN, VARIANCE + step) - value(MEAN, VARIANCE - step)) / (2 * step)
    np.testing.assert_allclose(at.d_mean, by_mean, atol=1e-6, rtol=1e-6)
    np.testing.assert_allclose(at.d_variance, by_variance, atol=1e-5, rtol=1e-5)
    slopes = likelihood.slopes(MEAN, VARIANCE)
    steep = (precision(MEAN + step, VARIANCE) - precision(MEAN - step, VARIANCE)) / (2 * step)
    wide = (precision(MEAN, VARIANCE + step) - precision(MEAN, VARIANCE - step)) / (2 * step)
    np.testing.assert_allclose(slopes[0], steep, atol=1e-4, rtol=1e-3)
    np.testing.assert_allclose(slopes[1], wide, atol=1e-3, rtol=5e-3)


@pytest.mark.parametrize("hide", [False, True])
def test_the_slope_in_the_size(hide):
    def at(log_k):
        told = NegativeBinomial(COUNTS, EXPOSURE, CENTRE, float(np.exp(log_k)))
        return SuppressedCounts(told, np.array([True, False, False]), 1, 4) if hide else told

    step = 1e-4
    values = [at(0.6 + by).expected(MEAN, VARIANCE).value.sum() for by in (step, -step)]
    assert at(0.6).by_log_k(MEAN, VARIANCE) == pytest.approx((values[0] - values[1]) / (2 * step), abs=1e-5)


def test_a_large_size_is_a_poisson_count():
    wide, plain = NegativeBinomial(COUNTS, EXPOSURE, CENTRE, 1e5), Poisson(COUNTS, EXPOSURE, CENTRE)
    for ours, theirs in zip(wide.expected(MEAN, VARIANCE), plain.expected(MEAN, VARIANCE), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=5e-3, rtol=1e-3)


def test_new_counts_have_the_spread_of_the_size():
    at = NormalMixture(np.ones(1), np.array([[0.7]]), np.array([[0.3]]))
    mean, variance = NegativeBinomial.without_data({"k": 2.0}).predicted(at, np.array([np.nan]))
    rng = np.random.default_rng(0)
    rate = np.exp(0.7 + np.sqrt(0.3) * rng.standard_normal(400_000))
    drawn = rng.poisson(rate * NegativeBinomial.without_data({"k": 2.0}).scatter(rate.shape, rng))
    assert mean[0] == pytest.approx(drawn.mean(), rel=0.02)
    assert variance[0] == pytest.approx(drawn.var(), rel=0.05)


def test_a_size_that_is_no_size_is_refused():
    with pytest.raises(DataError, match="positive number"):
        NegativeBinomial(COUNTS, EXPOSURE, k=0.0)


# -- fits


@pytest.fixture(scope="module")
def domain():
    return Domain.from_polygons(box(0, 0, 30, 30), cell_size=1, crs="local")


def rates(domain):
    return np.exp(1.0 + 0.7 * np.sin(domain.node_points[:, 0] / 5.0))


@pytest.mark.parametrize("full", [False, True])
def test_the_size_is_recovered_and_called_for(domain, full):
    rng = np.random.default_rng(1)
    counts = rng.poisson(rates(domain) * rng.gamma(2.0, 0.5, domain.n_nodes))
    basis = FullRank(domain) if full else HarmonicBasis.compute(domain, 60, cache=False)
    kernel = Matern(1.0 if full else 1.5, lengthscale=6.0, sd=0.6)
    wide = LGCP(basis, kernel, likelihood="negative-binomial").fit(counts)
    plain = LGCP(basis, kernel).fit(counts)
    assert wide.likelihood.k == pytest.approx(2.0, rel=0.35)
    assert wide.elbo - plain.elbo == pytest.approx(wide.likelihood.gain, abs=0.05)
    assert "needed" in wide.summary()["overdispersion"] and "not needed" not in str(wide.summary())
    assert wide.totals(predicted=True)["predicted_q95"][0] > plain.totals(predicted=True)["predicted_q95"][0]


def test_poisson_counts_do_not_call_for_it(domain):
    counts = np.random.default_rng(2).poisson(rates(domain))
    basis = HarmonicBasis.compute(domain, 60, cache=False)
    wide = LGCP(basis, Matern(1.5, 6.0, 0.6), likelihood="negative-binomial").fit(counts)
    plain = LGCP(basis, Matern(1.5, 6.0, 0.6)).fit(counts)
    assert "not needed" in wide.summary()["overdispersion"]
    assert wide.elbo == pytest.approx(plain.elbo, abs=2.0)
    np.testing.assert_allclose(wide.node_intensity()["mean"], plain.node_intensity()["mean"], rtol=0.05)


def test_a_spread_fit_has_the_outputs_of_any_other(domain, tmp_path):
    rng = np.random.default_rng(3)
    counts = rng.poisson(rates(domain) * rng.gamma(2.0, 0.5, domain.n_nodes))
    basis = HarmonicBasis.compute(domain, 60, cache=False)
    wide = LGCP(basis, Matern(1.5, 6.0, 0.6), likelihood="negative-binomial").fit(counts, hyper="integrate")
    again = type(wide).load(wide.save(tmp_path / "wide.geobgp"))
    assert again.likelihood.facts() == wide.likelihood.facts()
    checked = again.cross_validate(5.0, rounds=0)
    assert 0.8 <= checked.coverage <= 1.0
    assert wide.residuals(n_simulations=39).dispersion > 0


def test_a_likelihood_of_another_name_is_refused(domain):
    with pytest.raises(DataError, match="'poisson' or 'negative-binomial'; found 'binomial'"):
        LGCP(FullRank(domain), likelihood="binomial")


def test_many_observations_are_taken_block_by_block(monkeypatch):
    rng = np.random.default_rng(0)
    counts, exposure = rng.poisson(2.0, 23).astype(float), rng.uniform(0.5, 2.0, 23)
    at = rng.normal(size=23), rng.uniform(0.1, 1.0, 23)
    likelihood = NegativeBinomial(counts, exposure, 0.2, k=1.5)
    whole = [*likelihood.expected(*at), *likelihood.slopes(*at), likelihood.by_log_k(*at)]
    monkeypatch.setattr("geobgp.inference.families._BLOCK", 5)
    parts = [*likelihood.expected(*at), *likelihood.slopes(*at), likelihood.by_log_k(*at)]
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)
