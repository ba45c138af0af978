"""Links against quadrature and their own inverse."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad

from geobgp.inference.links import LINKS, SQUARE, LogOf
from geobgp.inference.mixture import NormalMixture

MIXTURE = NormalMixture(
    np.array([0.3, 0.7]), np.array([[-1.0, 0.2, 2.5], [0.4, 0.1, 1.0]]), np.array([[0.5, 1e-6, 2.0], [1.5, 0.3, 0.1]])
)


def integral(function, place):
    total = 0.0
    for weight, mu, var in zip(MIXTURE.weight, MIXTURE.mu[:, place], MIXTURE.var[:, place], strict=True):
        sd = np.sqrt(var)
        total += weight * quad(lambda z, mu=mu, sd=sd: function(mu + sd * z) * stats.norm.pdf(z), -10, 10, limit=200)[0]
    return total


@pytest.mark.parametrize("link", LINKS.values(), ids=repr)
def test_moments_are_those_of_quadrature(link):
    mean, sd = link.mean(MIXTURE), link.sd(MIXTURE)
    for place in range(3):
        expected = integral(link.inverse, place)
        square = integral(lambda eta: link.inverse(eta) ** 2, place)
        assert mean[place] == pytest.approx(expected, rel=1e-6)
        assert sd[place] == pytest.approx(np.sqrt(square - expected**2), rel=1e-4)
    np.testing.assert_allclose(link.moments(MIXTURE)[0], mean)


@pytest.mark.parametrize("link", LINKS.values(), ids=repr)
def test_quantiles_and_exceedance_agree(link):
    median = link.quantile(MIXTURE, 0.8)
    np.testing.assert_allclose(link.exceedance(MIXTURE, median), 0.2, atol=1e-9)
    eta = np.linspace(0.0 if link is SQUARE else -4.0, 4.0, 9)
    np.testing.assert_allclose(link.forward(link.inverse(eta)), eta, atol=1e-9)


@pytest.mark.parametrize("link", LINKS.values(), ids=repr)
def test_log_slopes_are_those_of_differences(link):
    value = np.array([0.2, 0.5, 0.9])
    slope = (link.forward(value + 1e-6) - link.forward(value - 1e-6)) / 2e-6
    np.testing.assert_allclose(link.log_slope(value), np.log(slope), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("link", LINKS.values(), ids=repr)
def test_nothing_lies_beyond_the_range(link):
    if np.isfinite(link.lowest):
        np.testing.assert_array_equal(link.exceedance(MIXTURE, link.lowest - 1.0), 1.0)
    if np.isfinite(link.highest):
        np.testing.assert_array_equal(link.exceedance(MIXTURE, link.highest), 0.0)


@pytest.mark.parametrize("link", LINKS.values(), ids=repr)
def test_a_link_is_the_same_in_another_process(link):
    assert pickle.loads(pickle.dumps(link)) is link


def test_the_logarithm_of_a_quantity_has_the_moments_of_an_integral():
    mixture = NormalMixture(np.array([0.3, 0.7]), np.array([[0.2], [-0.5]]), np.array([[0.4], [0.9]]))
    mean, variance = LogOf(LINKS["exp"]).moments(mixture)
    np.testing.assert_allclose([mean, variance], mixture.moments(), rtol=1e-9)

    def log_share(power):
        def weighed(x):
            return mixture.weight @ stats.norm.pdf(x, mixture.mu[:, 0], np.sqrt(mixture.var[:, 0]))

        return quad(lambda x: weighed(x) * (-np.log1p(np.exp(-x))) ** power, -15, 15)[0]

    mean, variance = LogOf(LINKS["logit"]).moments(mixture)
    assert mean[0] == pytest.approx(log_share(1), rel=1e-5)
    assert variance[0] == pytest.approx(log_share(2) - log_share(1) ** 2, rel=1e-4)
