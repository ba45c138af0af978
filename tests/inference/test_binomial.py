"""The binomial likelihood: against brute-force quadrature, finite differences, and persons one by one."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import expit
from scipy.stats import binom, norm

from geobgp.errors import DataError
from geobgp.inference.families import Bernoulli, Binomial, sites

MEAN = np.array([-3.0, -0.4, 0.0, 0.7, 2.0])
VARIANCE = np.array([0.3, 1.2, 0.01, 4.0, 0.5])
CASES, PERSONS = np.array([0.0, 3.0, 5.0, 1.0, 7.0]), np.array([2.0, 4.0, 5.0, 9.0, 7.0])


def make():
    return Binomial(CASES, PERSONS, 0.4)


def test_expectations_by_brute_force():
    found = make().expected(MEAN, VARIANCE).value
    for i, (m, v) in enumerate(zip(MEAN, VARIANCE, strict=True)):

        def weighed(f, i=i, m=m, v=v):
            return binom.logpmf(CASES[i], PERSONS[i], expit(0.4 + f)) * norm.pdf(f, m, np.sqrt(v))

        value, _ = quad(weighed, m - 12 * np.sqrt(v), m + 12 * np.sqrt(v), limit=400)
        assert found[i] == pytest.approx(value, abs=1e-6)


def test_derivatives_and_slopes():
    lik, e = make(), 1e-5
    _, d_mean, d_variance = lik.expected(MEAN, VARIANCE)
    up, down = lik.expected(MEAN + e, VARIANCE).value, lik.expected(MEAN - e, VARIANCE).value
    assert (up - down) / (2 * e) == pytest.approx(d_mean, abs=1e-7, rel=1e-6)
    up, down = lik.expected(MEAN, VARIANCE + e).value, lik.expected(MEAN, VARIANCE - e).value
    assert (up - down) / (2 * e) == pytest.approx(d_variance, abs=1e-5, rel=1e-4)

    def precision(mean, variance):
        return sites(lik.expected(mean, variance), mean)[0]

    by_mean, by_variance = lik.slopes(MEAN, VARIANCE)
    numeric = (precision(MEAN + e, VARIANCE) - precision(MEAN - e, VARIANCE)) / (2 * e)
    assert numeric == pytest.approx(by_mean, abs=1e-6, rel=1e-5)
    numeric = (precision(MEAN, VARIANCE + e) - precision(MEAN, VARIANCE - e)) / (2 * e)
    assert numeric == pytest.approx(by_variance, abs=1e-4, rel=1e-3)


def test_is_persons_one_by_one():
    person = np.repeat(np.arange(5), PERSONS.astype(int))
    ill = np.concatenate(
        [np.r_[np.ones(int(y)), np.zeros(int(n - y))] for y, n in zip(CASES, PERSONS, strict=True)]
    )
    one = Bernoulli(ill, "logit").expected(MEAN[person] + 0.4, VARIANCE[person])
    all_ = make().expected(MEAN, VARIANCE)
    for mine, theirs in ((all_.d_mean, one.d_mean), (all_.d_variance, one.d_variance)):
        np.testing.assert_allclose(mine, np.bincount(person, theirs), atol=1e-10)


def test_more_cases_than_persons_are_refused():
    with pytest.raises(DataError, match="1 of 2 are not"):
        Binomial(np.array([3.0, 1.0]), np.array([2.0, 1.0]))
