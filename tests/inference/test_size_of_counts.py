"""Fits whose size k is learned: negative binomial counts."""

from __future__ import annotations

import numpy as np
import pytest
from shapely import box

from geobgp import LGCP, DataError, Domain, FullRank, HarmonicBasis, Matern


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
