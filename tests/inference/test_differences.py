"""Differences of log-normals: against brute-force integration, exact cases, and draws."""

import itertools

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import lognorm

from geobgp.inference.mixture import LogNormalDifference, NormalMixture


def single(mu, sd):
    return NormalMixture(np.ones(1), np.atleast_2d(mu).astype(float), np.atleast_2d(sd).astype(float) ** 2)


def chance(d, first, second):
    """P(exp(first) - exp(second) <= d) by adaptive integration over the second, on the plain scale."""
    (mu, sd), (nu, rho) = first, second
    a, b = lognorm(sd, scale=np.exp(mu)), lognorm(rho, scale=np.exp(nu))
    low, high = b.ppf([1e-14, 1 - 1e-14])
    points = np.unique(
        np.clip([*b.ppf(np.linspace(0.01, 0.99, 15)), *(a.ppf(np.linspace(0.01, 0.99, 15)) - d)], low, high)
    )
    ends = np.r_[low, points, high]
    return sum(quad(lambda x: b.pdf(x) * a.cdf(d + x), u, v, limit=100)[0] for u, v in itertools.pairwise(ends))


@pytest.mark.parametrize("q", [0.05, 0.5, 0.95])
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((0.0, 0.5), (0.2, 0.4)),
        ((-2.3, 1.5), (2.3, 0.05)),  # one is wide on the log scale, the other on the plain scale
        ((3.0, 0.02), (0.0, 1.2)),
        ((0.0, 0.05), (0.0, 0.05)),
        ((-8.0, 0.3), (-8.5, 0.9)),
    ],
)
def test_quantiles_agree_with_brute_force(q, first, second):
    found = float(LogNormalDifference(single(*first), single(*second)).quantile(q)[0])
    assert chance(found, first, second) == pytest.approx(q, abs=1e-4)


def test_turned_round_it_changes_sign():
    rng = np.random.default_rng(0)
    one, two = (single(rng.normal(size=200), rng.uniform(0.05, 1.0, 200)) for _ in range(2))
    there, back = LogNormalDifference(one, two), LogNormalDifference(two, one)
    size = np.sqrt(there.moments()[1])
    np.testing.assert_allclose(there.quantile(0.1) / size, -back.quantile(0.9) / size, atol=1e-3)
    np.testing.assert_allclose(there.moments()[0], -back.moments()[0])


def test_a_known_second_shifts_the_first():
    one, known = single([0.3, 1.0], [0.6, 0.2]), single([0.5, 0.5], [1e-9, 0.0])
    found = LogNormalDifference(one, known).quantile(0.9)
    np.testing.assert_allclose(found, np.exp(one.quantile(0.9)) - np.exp(0.5), rtol=1e-6)


def test_mixtures_against_draws():
    rng = np.random.default_rng(2)
    mixtures = [
        NormalMixture(np.array([0.5, 0.3, 0.2]), rng.normal(0, 0.5, (3, 4)), rng.uniform(0.2, 0.8, (3, 4)) ** 2)
        for _ in range(2)
    ]
    draws = []
    for m in mixtures:
        owner = rng.choice(3, p=m.weight, size=400_000)
        draws.append(np.exp(m.mu[owner] + np.sqrt(m.var[owner]) * rng.standard_normal((400_000, 4))))
    gap = draws[0] - draws[1]
    found = LogNormalDifference(*mixtures)
    for q in (0.05, 0.5, 0.95):
        np.testing.assert_allclose((gap <= found.quantile(q)).mean(axis=0), q, atol=0.003)
    np.testing.assert_allclose(found.moments()[0], gap.mean(axis=0), atol=0.02)


def test_no_number_stays_no_number():
    one = single([0.0, np.nan], [1.0, 1.0])
    found = LogNormalDifference(one, one).quantile(0.5)
    assert found[0] == pytest.approx(0.0, abs=1e-9) and np.isnan(found[1])
