import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import expit, log_expit, log_ndtr, ndtr
from scipy.stats import norm, poisson

from geobgp.errors import DataError
from geobgp.inference.families import Bernoulli, Gaussian, Poisson, sites

MEAN = np.array([-3.0, -0.4, 0.0, 0.7, 2.0, 1.0])
VARIANCE = np.array([0.3, 1.2, 0.01, 4.0, 0.5, 2.0])


def make(name):
    zero_one = np.array([0.0, 1.0, 1.0, 0.0, 1.0, 0.0])
    if name == "poisson":
        exposure = np.array([1.0, 2.0, 0.5, 0.0, 3.0, 1.0])
        return Poisson(np.array([0.0, 3.0, 1.0, 0.0, 7.0, 0.5]), exposure, centre=0.3)
    if name == "gaussian":
        return Gaussian(np.array([0.1, -0.5, 2.0, 1.0, 0.0, 0.3]), noise=0.7)
    return Bernoulli(zero_one, name)


def log_density(name, lik, i):
    if name == "poisson":
        rate = lik.exposure[i] * np.exp(lik.centre)
        if rate == 0:
            return lambda f: 0.0
        from scipy.special import gammaln

        y = lik.counts[i]
        return lambda f: y * (np.log(rate) + f) - rate * np.exp(f) - gammaln(y + 1)
    if name == "gaussian":
        return lambda f: norm.logpdf(lik.values[i], f, lik.noise)
    sign = 2 * lik.values[i] - 1
    return lambda f: (log_ndtr if name == "probit" else log_expit)(sign * f)


NAMES = ["poisson", "gaussian", "probit", "logit"]


@pytest.mark.parametrize("name", NAMES)
def test_expectations_by_brute_force(name):
    lik = make(name)
    found = lik.expected(MEAN, VARIANCE).value
    for i, (m, v) in enumerate(zip(MEAN, VARIANCE, strict=True)):
        density = log_density(name, lik, i)
        s = np.sqrt(v)
        value, _ = quad(lambda f: density(f) * norm.pdf(f, m, s), m - 14 * s, m + 14 * s, limit=400)  # noqa: B023
        assert found[i] == pytest.approx(value, abs=1e-7, rel=1e-7)


@pytest.mark.parametrize("name", NAMES)
def test_derivatives(name):
    lik, e = make(name), 1e-5
    _, d_mean, d_variance = lik.expected(MEAN, VARIANCE)
    up, down = lik.expected(MEAN + e, VARIANCE).value, lik.expected(MEAN - e, VARIANCE).value
    assert (up - down) / (2 * e) == pytest.approx(d_mean, abs=1e-7, rel=1e-6)
    up, down = lik.expected(MEAN, VARIANCE + e).value, lik.expected(MEAN, VARIANCE - e).value
    assert (up - down) / (2 * e) == pytest.approx(d_variance, abs=1e-6, rel=1e-5)
    assert (d_variance <= 0).all()


@pytest.mark.parametrize("name", ["poisson", "probit", "logit"])
def test_slopes_of_the_site_precision(name):
    lik, e = make(name), 1e-5

    def precision(mean, variance):
        return sites(lik.expected(mean, variance), mean)[0]

    by_mean, by_variance = lik.slopes(MEAN, VARIANCE)
    numeric = (precision(MEAN + e, VARIANCE) - precision(MEAN - e, VARIANCE)) / (2 * e)
    assert numeric == pytest.approx(by_mean, abs=1e-6, rel=1e-5)
    numeric = (precision(MEAN, VARIANCE + e) - precision(MEAN, VARIANCE - e)) / (2 * e)
    assert numeric == pytest.approx(by_variance, abs=1e-5, rel=1e-4)


def test_sites_of_a_gaussian_are_its_own():
    lik = make("gaussian")
    precision, natural = sites(lik.expected(MEAN, VARIANCE), MEAN)
    assert precision == pytest.approx(np.full(6, 0.7**-2))
    assert natural == pytest.approx(lik.values / 0.7**2)


def test_poisson_matches_scipy_at_a_point():
    counts, exposure = np.array([0.0, 4.0, 2.0]), np.array([1.0, 3.0, 0.2])
    f = np.array([0.2, 0.1, 1.0])
    value = Poisson(counts, exposure, 0.5).expected(f, np.zeros(3)).value
    assert value == pytest.approx(poisson.logpmf(counts, exposure * np.exp(f + 0.5)))


@pytest.mark.parametrize("link", ["probit", "logit"])
def test_tails_stay_finite(link):
    lik = Bernoulli(np.array([1.0, 0.0, 1.0, 0.0]), link)
    mean, variance = np.array([-300.0, -300.0, 300.0, 300.0]), np.array([1e-8, 4.0, 1e-8, 4.0])
    for part in (*lik.expected(mean, variance), *lik.slopes(mean, variance)):
        assert np.isfinite(part).all()


def test_overflowing_rates_are_infinite_and_not_an_error():
    expected = Poisson(np.array([1.0]), np.array([1.0])).expected(np.array([800.0]), np.array([1.0]))
    assert expected.value[0] == -np.inf


def test_start_bounds_what_a_site_asks_for():
    counts = np.array([0.0, 1.0, 1e6])
    lik = Poisson(counts, np.ones(3), np.log(0.1))
    mean = lik.start(np.zeros(3), np.zeros(3))
    precision, natural = sites(lik.expected(mean, np.zeros(3)), mean)
    assert np.abs(natural / precision - mean).max() <= 2.0 + 1e-9


def test_constant_completes_the_gaussian_evidence():
    lik, e = Gaussian(np.array([1.0, -0.3, 0.5])), 1e-5
    value, first, second = lik.constant(-0.4)
    assert value == pytest.approx(norm.logpdf(lik.values, 0, np.exp(-0.4)).sum())
    up, down = lik.constant(-0.4 + e), lik.constant(-0.4 - e)
    assert (up[0] - down[0]) / (2 * e) == pytest.approx(first, rel=1e-6)
    assert (up[1] - down[1]) / (2 * e) == pytest.approx(second, rel=1e-6)


def test_probabilities():
    for link, function in (("probit", ndtr), ("logit", expit)):
        lik = Bernoulli(np.zeros(6), link)
        found = lik.probability(MEAN, VARIANCE)
        for i, (m, v) in enumerate(zip(MEAN, VARIANCE, strict=True)):
            s = np.sqrt(v)
            value, _ = quad(lambda f: function(f) * norm.pdf(f, m, s), m - 12 * s, m + 12 * s, limit=400)  # noqa: B023
            assert found[i] == pytest.approx(value, abs=1e-7)


@pytest.mark.parametrize(
    ("make_it", "word"),
    [
        (lambda: Poisson(np.array([-1.0]), np.ones(1)), "not negative"),
        (lambda: Poisson(np.array([np.nan]), np.ones(1)), "finite"),
        (lambda: Poisson(np.ones(1), np.array([-1.0])), "Exposure"),
        (lambda: Poisson(np.array([5.0, 0.0]), np.array([0.0, 1.0])), "5 events"),
        (lambda: Bernoulli(np.array([0.5])), "0 and 1"),
        (lambda: Bernoulli(np.array([1.0]), "cauchit"), "cauchit"),
    ],
)
def test_mistakes_are_named(make_it, word):
    with pytest.raises(DataError, match=word):
        make_it()
