"""Links against quadrature and their own inverse; families' densities and draws against SciPy's."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad

from geobgp.inference.families import Bernoulli, Binomial, Gaussian, NegativeBinomial, Poisson
from geobgp.inference.links import LINKS
from geobgp.inference.mixture import NormalMixture

MIXTURE = NormalMixture(
    np.array([0.3, 0.7]),
    np.array([[-1.0, 0.2, 2.5], [0.4, 0.1, 1.0]]),
    np.array([[0.5, 1e-6, 2.0], [1.5, 0.3, 0.1]]),
)


def integral(function, place):
    total = 0.0
    for weight, mu, var in zip(MIXTURE.weight, MIXTURE.mu[:, place], MIXTURE.var[:, place], strict=True):
        sd = np.sqrt(var)
        total += (
            weight
            * quad(lambda z, mu=mu, sd=sd: function(mu + sd * z) * stats.norm.pdf(z), -10, 10, limit=200)[0]
        )
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
    eta = np.linspace(-4.0, 4.0, 9)
    np.testing.assert_allclose(link.forward(link.inverse(eta)), eta, atol=1e-9)


@pytest.mark.parametrize("link", LINKS.values(), ids=repr)
def test_nothing_lies_beyond_the_range(link):
    if np.isfinite(link.lowest):
        np.testing.assert_array_equal(link.exceedance(MIXTURE, link.lowest - 1.0), 1.0)
    if np.isfinite(link.highest):
        np.testing.assert_array_equal(link.exceedance(MIXTURE, link.highest), 0.0)


@pytest.mark.parametrize("link", LINKS.values(), ids=repr)
def test_a_link_is_the_same_in_another_process(link):
    assert pickle.loads(pickle.dumps(link)) is link


ETA, RATE = np.array([[-1.0, 0.3, 1.2], [0.0, -2.0, 0.5]]), np.array([2.0, 0.5, 4.0])
FAMILIES = {
    "poisson": (Poisson(np.zeros(0), np.zeros(0)), RATE, lambda eta: stats.poisson(RATE * np.exp(eta))),
    "negative binomial": (
        NegativeBinomial(np.zeros(0), np.zeros(0), k=1.7),
        RATE,
        lambda eta: stats.nbinom(1.7, 1.7 / (1.7 + RATE * np.exp(eta))),
    ),
    "gaussian": (Gaussian(np.zeros(0), 0.4), 1.0, lambda eta: stats.norm(eta, 0.4)),
    "probit": (Bernoulli(np.zeros(0)), 1.0, lambda eta: stats.bernoulli(stats.norm.cdf(eta))),
    "logit": (Bernoulli(np.zeros(0), "logit"), 1.0, lambda eta: stats.bernoulli(1 / (1 + np.exp(-eta)))),
    "binomial": (
        Binomial(np.zeros(0), np.zeros(0), 0.7),
        np.array([3.0, 1.0, 9.0]),
        lambda eta: stats.binom([3, 1, 9], 1 / (1 + np.exp(-0.7 - eta))),
    ),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_densities_are_those_of_scipy(name):
    family, size, made = FAMILIES[name]
    y = np.array([0.0, 1.0, 1.0])
    known = made(ETA)
    log_p = known.logpdf(y) if name == "gaussian" else known.logpmf(y)
    np.testing.assert_allclose(family.log_density(y, ETA, size), log_p, atol=1e-12)


@pytest.mark.parametrize("name", FAMILIES)
def test_draws_have_the_moments_of_scipy(name):
    family, size, made = FAMILIES[name]
    draws = family.draw(np.broadcast_to(ETA[0], (200_000, 3)), size, np.random.default_rng(0))
    known = made(ETA[0])
    np.testing.assert_allclose(draws.mean(axis=0), known.mean(), atol=4.5 * known.std().max() / np.sqrt(2e5))
    np.testing.assert_allclose(draws.var(axis=0), known.var(), rtol=0.05)
