"""Every family against SciPy's own, adaptive quadrature and finite differences."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad
from scipy.special import expit, log_ndtr, logsumexp, ndtr

from geobgp.errors import DataError
from geobgp.inference.families import (
    FAMILIES,
    LIKELIHOODS,
    Bernoulli,
    BetaBinomial,
    Binomial,
    Gaussian,
    NegativeBinomial,
    Poisson,
    SuppressedCounts,
    sites,
)
from geobgp.inference.links import EXP, LOGIT
from geobgp.inference.mixture import NormalMixture

MEAN, VARIANCE = np.array([-3.0, -0.4, 0.0, 0.7, 2.0, 1.0]), np.array([0.3, 1.2, 0.01, 1.5, 0.5, 0.8])
CLASSES = np.array([0.0, 1.0, 1.0, 0.0, 1.0, 0.0])
COUNTS, EXPOSURE = np.array([0.0, 3.0, 1.0, 0.0, 7.0, 4.0]), np.array([1.0, 2.0, 0.5, 0.2, 3.0, 1.0])
POSITIVE, TESTED = np.array([0.0, 3.0, 5.0, 1.0, 7.0, 2.0]), np.array([2.0, 4.0, 5.0, 9.0, 7.0, 40.0])
HIDDEN = np.array([True, False, True, False, False, True])


def counts_of(k):
    """Return the distribution of counts at f."""
    if k is None:
        return lambda f: stats.poisson(EXPOSURE * np.exp(f + 0.3))
    return lambda f: stats.nbinom(k, k / (k + EXPOSURE * np.exp(f + 0.3)))


def suppressed(base, lowest, highest, k):
    made = SuppressedCounts(base, HIDDEN, lowest, highest)
    known = counts_of(k)

    def log_p(f):
        inside = logsumexp([known(f).logpmf(y) for y in range(lowest, highest + 1)], axis=0)
        return np.where(HIDDEN, inside, known(f).logpmf(COUNTS))

    return made, log_p


POISSON = Poisson(COUNTS, EXPOSURE, 0.3)
SPREAD, SLIGHT = NegativeBinomial(COUNTS, EXPOSURE, 0.3, 1.7), NegativeBinomial(COUNTS, EXPOSURE, 0.3, 300.0)


def beta_binomial(k):
    made = BetaBinomial(POSITIVE, TESTED, 0.4, k=k)
    return made, lambda f: stats.betabinom(TESTED.astype(int), k * expit(f + 0.4), k * expit(-f - 0.4)).logpmf(POSITIVE)


#: The likelihood, and its log probability as SciPy has it.
CASES = {
    "poisson": (POISSON, lambda f: counts_of(None)(f).logpmf(COUNTS)),
    "negative binomial": (SPREAD, lambda f: counts_of(1.7)(f).logpmf(COUNTS)),
    "nearly poisson": (SLIGHT, lambda f: counts_of(300.0)(f).logpmf(COUNTS)),
    "suppressed": suppressed(POISSON, 1, 4, None),
    "suppressed, with spread": suppressed(SPREAD, 0, 9, 1.7),
    "gaussian": (Gaussian(MEAN[::-1], 0.7), lambda f: stats.norm(f, 0.7).logpdf(MEAN[::-1])),
    "probit": (Bernoulli(CLASSES), lambda f: log_ndtr((2 * CLASSES - 1) * f)),
    "logit": (Bernoulli(CLASSES, LOGIT), lambda f: stats.bernoulli(expit(f)).logpmf(CLASSES)),
    "binomial": (Binomial(POSITIVE, TESTED, 0.4), lambda f: stats.binom(TESTED, expit(f + 0.4)).logpmf(POSITIVE)),
    "beta-binomial": beta_binomial(2.5),
    "wide beta-binomial": beta_binomial(0.3),
    "nearly binomial": beta_binomial(3000.0),
}
NAMES = pytest.mark.parametrize("name", CASES)


@NAMES
def test_expected_value_is_that_of_quadrature(name):
    likelihood, log_p = CASES[name]
    found = likelihood.expected(MEAN, VARIANCE).value
    for i, (mean, sd) in enumerate(zip(MEAN, np.sqrt(VARIANCE), strict=True)):

        def integrand(z, i=i, mean=mean, sd=sd):
            return log_p(np.full(6, mean + sd * z))[i] * stats.norm.pdf(z)

        assert found[i] == pytest.approx(quad(integrand, -8.5, 8.5, epsabs=1e-9, limit=200)[0], abs=2e-5, rel=1e-6)


@NAMES
def test_derivatives_are_those_of_differences(name):
    likelihood, step = CASES[name][0], 1e-5
    _, d_mean, d_variance = likelihood.expected(MEAN, VARIANCE)

    def value(mean, variance):
        return likelihood.expected(mean, variance).value

    by_mean = (value(MEAN + step, VARIANCE) - value(MEAN - step, VARIANCE)) / (2 * step)
    by_variance = (value(MEAN, VARIANCE + step) - value(MEAN, VARIANCE - step)) / (2 * step)
    np.testing.assert_allclose(d_mean, by_mean, atol=1e-6, rtol=1e-6)
    np.testing.assert_allclose(d_variance, by_variance, atol=1e-5, rtol=1e-4)


@NAMES
def test_slopes_of_the_site_precision_are_those_of_differences(name):
    likelihood, step = CASES[name][0], 1e-5

    def precision(mean, variance):
        return sites(likelihood.expected(mean, variance), mean)[0]

    slopes = likelihood.slopes(MEAN, VARIANCE) or (np.zeros(6), np.zeros(6))
    steep = (precision(MEAN + step, VARIANCE) - precision(MEAN - step, VARIANCE)) / (2 * step)
    wide = (precision(MEAN, VARIANCE + step) - precision(MEAN, VARIANCE - step)) / (2 * step)
    np.testing.assert_allclose(slopes[0], steep, atol=1e-4, rtol=1e-3)
    np.testing.assert_allclose(slopes[1], wide, atol=1e-3, rtol=5e-3)


def test_sites_are_never_of_negative_precision():
    wide = BetaBinomial(np.zeros(3), np.full(3, 5.0), k=0.5)
    mean, variance = np.array([4.0, 6.0, 8.0]), np.full(3, 0.1)
    expected = wide.expected(mean, variance)
    assert (expected.d_variance > 0).any()  # it is not log-concave there
    precision, natural = sites(expected, mean)
    assert (precision >= 0).all() and np.isfinite(natural).all()
    assert (wide.slopes(mean, variance)[0][expected.d_variance > 0] == 0).all()


@pytest.mark.parametrize("name", ["negative binomial", "suppressed, with spread", "beta-binomial"])
def test_the_slope_in_the_size(name):
    likelihood = CASES[name][0]
    ends = [likelihood.with_dispersion(likelihood.dispersion_value * np.exp(by)) for by in (3e-3, -3e-3)]
    values = [one.expected(MEAN, VARIANCE).value.sum() for one in ends]
    assert likelihood.by_log_dispersion(MEAN, VARIANCE) == pytest.approx((values[0] - values[1]) / 6e-3, rel=1e-4)


@pytest.mark.parametrize(
    "family", [NegativeBinomial(COUNTS, EXPOSURE, 0.3, 1e6), BetaBinomial(POSITIVE, TESTED, 0.4, k=1e6)]
)
def test_a_large_size_is_the_limit(family):
    for ours, theirs in zip(family.expected(MEAN, VARIANCE), family.limit().expected(MEAN, VARIANCE), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=5e-3, rtol=2e-3)
    assert type(family.limit().limit()) is type(family.limit())


def test_cases_among_persons_are_persons_one_by_one():
    person = np.repeat(np.arange(6), TESTED.astype(int))
    ill = np.concatenate([np.r_[np.ones(int(y)), np.zeros(int(n - y))] for y, n in zip(POSITIVE, TESTED, strict=True)])
    one = Bernoulli(ill, LOGIT).expected(MEAN[person] + 0.4, VARIANCE[person])
    together = Binomial(POSITIVE, TESTED, 0.4).expected(MEAN, VARIANCE)
    for mine, theirs in ((together.d_mean, one.d_mean), (together.d_variance, one.d_variance)):
        np.testing.assert_allclose(mine, np.bincount(person, theirs), atol=1e-10)


def test_sites_of_a_gaussian_are_its_own():
    likelihood = CASES["gaussian"][0]
    precision, natural = sites(likelihood.expected(MEAN, VARIANCE), MEAN)
    assert precision == pytest.approx(np.full(6, 0.7**-2))
    assert natural == pytest.approx(likelihood.values / 0.7**2)


@pytest.mark.parametrize("name", ["probit", "logit", "binomial", "beta-binomial", "negative binomial"])
def test_tails_stay_finite(name):
    likelihood = CASES[name][0].some(slice(0, 4))
    mean, variance = np.array([-300.0, -300.0, 300.0, 300.0]), np.array([1e-8, 4.0, 1e-8, 4.0])
    for part in (*likelihood.expected(mean, variance), *likelihood.slopes(mean, variance)):
        assert np.isfinite(part).all()


def test_overflowing_rates_are_infinite_and_not_an_error():
    expected = Poisson(np.array([1.0]), np.array([1.0])).expected(np.array([800.0]), np.array([1.0]))
    assert expected.value[0] == -np.inf


def test_start_bounds_what_a_site_asks_for():
    counts = np.array([0.0, 1.0, 1e6])
    likelihood = Poisson(counts, np.ones(3), np.log(0.1))
    mean = likelihood.start(np.zeros(3), np.zeros(3))
    precision, natural = sites(likelihood.expected(mean, np.zeros(3)), mean)
    assert np.abs(natural / precision - mean).max() <= 2.0 + 1e-9


def test_constant_completes_the_gaussian_evidence():
    likelihood, step = Gaussian(np.array([1.0, -0.3, 0.5])), 1e-5
    value, first, second = likelihood.constant(-0.4)
    assert value == pytest.approx(stats.norm.logpdf(likelihood.values, 0, np.exp(-0.4)).sum())
    up, down = likelihood.constant(-0.4 + step), likelihood.constant(-0.4 - step)
    assert (up[0] - down[0]) / (2 * step) == pytest.approx(first, rel=1e-6)
    assert (up[1] - down[1]) / (2 * step) == pytest.approx(second, rel=1e-6)


@NAMES
def test_some_observations_are_those(name):
    likelihood, which = CASES[name][0], np.array([4, 1])
    if name.startswith("suppressed"):
        pytest.skip("what is suppressed belongs to all counts")
    for part, whole in zip(likelihood.some(which).expected(MEAN[which], VARIANCE[which]),
                           likelihood.expected(MEAN, VARIANCE), strict=True):  # fmt: skip
        np.testing.assert_allclose(part, whole[which], rtol=1e-12)


@pytest.mark.parametrize("name", ["negative binomial", "beta-binomial", "logit"])
def test_many_observations_are_taken_block_by_block(name, monkeypatch):
    likelihood = CASES[name][0]
    whole = [*likelihood.expected(MEAN, VARIANCE), *likelihood.slopes(MEAN, VARIANCE)]
    monkeypatch.setattr("geobgp.inference.families._BLOCK", 4)
    parts = [*likelihood.expected(MEAN, VARIANCE), *likelihood.slopes(MEAN, VARIANCE)]
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


# -- predictions: densities and draws at the whole linear predictor


ETA, RATE = np.array([[-1.0, 0.3, 1.2], [0.0, -2.0, 0.5]]), np.array([2.0, 0.5, 4.0])
PERSONS = np.array([3, 1, 9])
NEW = {
    "poisson": (FAMILIES["poisson"], RATE, lambda eta: stats.poisson(RATE * np.exp(eta))),
    "negative binomial": (
        FAMILIES["negative-binomial"].with_dispersion(1.7),
        RATE,
        lambda eta: stats.nbinom(1.7, 1.7 / (1.7 + RATE * np.exp(eta))),
    ),
    "gaussian": (FAMILIES["gaussian"].with_dispersion(0.4), 1.0, lambda eta: stats.norm(eta, 0.4)),
    "probit": (FAMILIES["bernoulli"], 1.0, lambda eta: stats.bernoulli(ndtr(eta))),
    "logit": (Bernoulli(np.zeros(0), "logit"), 1.0, lambda eta: stats.bernoulli(expit(eta))),
    "binomial": (Binomial(np.zeros(0), np.zeros(0), 0.7), PERSONS, lambda eta: stats.binom(PERSONS, expit(0.7 + eta))),
    "beta-binomial": (
        BetaBinomial(np.zeros(0), np.zeros(0), 0.7, k=2.2),
        PERSONS,
        lambda eta: stats.betabinom(PERSONS, 2.2 * expit(0.7 + eta), 2.2 * expit(-0.7 - eta)),
    ),
}


@pytest.mark.parametrize("name", NEW)
def test_densities_are_those_of_scipy(name):
    family, size, made = NEW[name]
    y, known = np.array([0.0, 1.0, 1.0]), made(ETA)
    log_p = known.logpdf(y) if name == "gaussian" else known.logpmf(y)
    np.testing.assert_allclose(family.log_density(y, ETA, size), log_p, atol=1e-12)


@pytest.mark.parametrize("name", NEW)
def test_draws_have_the_moments_of_scipy(name):
    family, size, made = NEW[name]
    draws = family.draw(np.broadcast_to(ETA[0], (200_000, 3)), size, np.random.default_rng(0))
    known = made(ETA[0])
    np.testing.assert_allclose(draws.mean(axis=0), known.mean(), atol=4.5 * known.std().max() / np.sqrt(2e5))
    np.testing.assert_allclose(draws.var(axis=0), known.var(), rtol=0.05)


@pytest.mark.parametrize("name", NEW)
def test_a_new_observation_has_the_moments_of_its_draws(name):
    family, _, _ = NEW[name]
    rng, sd = np.random.default_rng(1), np.sqrt(0.3)
    eta = 0.7 + sd * rng.standard_normal(400_000)
    drawn = family.draw(eta, 1.0, rng)
    at = NormalMixture(np.ones(1), np.array([[0.7]]), np.array([[0.3]]))
    mean, variance = family.predicted(at, np.array([0.4]))
    assert mean[0] == pytest.approx(drawn.mean(), rel=0.02)
    assert variance[0] == pytest.approx(drawn.var(), rel=0.05)


@pytest.mark.parametrize("name", NEW)
def test_a_family_is_stored_by_its_facts(name):
    family = NEW[name][0]
    again = LIKELIHOODS.find(LIKELIHOODS.name_of(family)).without_data(family.facts())
    assert type(again) is type(family) and again.facts() == family.facts() and again.link is family.link


def test_the_same_numbers_can_be_a_share_or_a_relative_risk():
    share, risk = (Binomial(POSITIVE, TESTED, link=link) for link in ("logit", EXP))
    assert share.link is LOGIT and risk.link is EXP
    np.testing.assert_array_equal(share.expected(MEAN, VARIANCE).value, risk.expected(MEAN, VARIANCE).value)


@pytest.mark.parametrize(
    ("make_it", "word"),
    [
        (lambda: Poisson(np.array([-1.0]), np.ones(1)), "not negative"),
        (lambda: Poisson(np.array([np.nan]), np.ones(1)), "finite"),
        (lambda: Poisson(np.ones(1), np.array([-1.0])), "Exposure"),
        (lambda: Poisson(np.array([5.0, 0.0]), np.array([0.0, 1.0])), "5 events"),
        (lambda: Bernoulli(np.array([0.5])), "0 and 1"),
        (lambda: Bernoulli(np.array([1.0]), "cauchit"), "cauchit"),
        (lambda: Binomial(np.array([3.0, 1.0]), np.array([2.0, 1.0])), "1 of 2 are not"),
        (lambda: NegativeBinomial(COUNTS, EXPOSURE, k=0.0), "positive number"),
        (lambda: BetaBinomial(POSITIVE, TESTED, k=np.inf), "positive number"),
    ],
)
def test_mistakes_are_named(make_it, word):
    with pytest.raises(DataError, match=word):
        make_it()
