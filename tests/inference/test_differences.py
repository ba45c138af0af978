"""Differences and ratios of log-normals and other quantities: against integration, exact cases, and draws."""

import itertools

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import expit
from scipy.stats import lognorm

from geobgp.inference.differences import Difference, Quantity
from geobgp.inference.links import EXP, IDENTITY, LOGIT, SQUARE
from geobgp.inference.mixture import NormalMixture


def single(mu, sd):
    return NormalMixture(np.ones(1), np.atleast_2d(mu).astype(float), np.atleast_2d(sd).astype(float) ** 2)


def both(first, second, link=EXP, other=None):
    return Difference(Quantity(first, link), Quantity(second, other or link))


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
    found = float(both(single(*first), single(*second)).quantile(q)[0])
    assert chance(found, first, second) == pytest.approx(q, abs=1e-4)


def test_turned_round_it_changes_sign():
    rng = np.random.default_rng(0)
    one, two = (single(rng.normal(size=200), rng.uniform(0.05, 1.0, 200)) for _ in range(2))
    there, back = both(one, two), both(two, one)
    size = np.sqrt(there.moments()[1])
    np.testing.assert_allclose(there.quantile(0.1) / size, -back.quantile(0.9) / size, atol=1e-3)
    np.testing.assert_allclose(there.moments()[0], -back.moments()[0])


def test_a_known_second_shifts_the_first():
    one, known = single([0.3, 1.0], [0.6, 0.2]), single([0.5, 0.5], [1e-9, 0.0])
    found = both(one, known).quantile(0.9)
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
    found = Difference(*map(Quantity, mixtures))
    for q in (0.05, 0.5, 0.95):
        np.testing.assert_allclose((gap <= found.quantile(q)).mean(axis=0), q, atol=0.003)
    np.testing.assert_allclose(found.moments()[0], gap.mean(axis=0), atol=0.02)


def test_no_number_stays_no_number():
    one = single([0.0, np.nan], [1.0, 1.0])
    found = both(one, one).quantile(0.5)
    assert found[0] == pytest.approx(0.0, abs=1e-9) and np.isnan(found[1])


# -- other links, and ratios

LINKS = [(LOGIT, LOGIT), (SQUARE, SQUARE), (IDENTITY, IDENTITY), (EXP, SQUARE), (IDENTITY, EXP)]


def drawn(mixture, link, rng, n=400_000):
    owner = rng.choice(len(mixture.weight), p=mixture.weight, size=n)
    eta = mixture.mu[owner] + np.sqrt(mixture.var[owner]) * rng.standard_normal((n, mixture.mu.shape[1]))
    return link.inverse(eta)


@pytest.mark.parametrize("links", LINKS)
def test_differences_of_every_link_against_draws(links):
    rng = np.random.default_rng(3)
    mixtures = [
        NormalMixture(np.array([0.6, 0.4]), rng.normal(1.5, 0.3, (2, 5)), rng.uniform(0.05, 0.4, (2, 5)) ** 2)
        for _ in range(2)
    ]
    one, two = (drawn(m, link, rng) for m, link in zip(mixtures, links, strict=True))
    answer = both(*mixtures, *links)
    for q in (0.05, 0.5, 0.95):
        np.testing.assert_allclose((one - two <= answer.quantile(q)).mean(axis=0), q, atol=0.004)
    np.testing.assert_allclose(answer.sf(0.1), (one - two > 0.1).mean(axis=0), atol=0.004)
    mean, variance = answer.moments()
    np.testing.assert_allclose(mean, (one - two).mean(axis=0), atol=0.03)
    np.testing.assert_allclose(np.sqrt(variance), (one - two).std(axis=0), rtol=0.05)


@pytest.mark.parametrize("links", [(EXP, EXP), (LOGIT, LOGIT), (SQUARE, SQUARE), (EXP, SQUARE)])
def test_ratios_of_every_link_against_draws(links):
    rng = np.random.default_rng(4)
    mixtures = [NormalMixture(np.ones(1), rng.normal(2.0, 0.3, (1, 5)), np.full((1, 5), 0.09)) for _ in range(2)]
    one, two = (drawn(m, link, rng) for m, link in zip(mixtures, links, strict=True))
    first, second = (Quantity(m, link) for m, link in zip(mixtures, links, strict=True))
    answer = Difference(first.log, second.log)
    for q in (0.05, 0.5, 0.95):
        np.testing.assert_allclose((one / two <= np.exp(answer.quantile(q))).mean(axis=0), q, atol=0.004)
    np.testing.assert_allclose(answer.sf(np.log(1.3)), (one / two > 1.3).mean(axis=0), atol=0.004)
    mean, square = links[1].reciprocal_moments(mixtures[1])
    if links[1] is SQUARE:
        assert np.isnan(mean).all()  # infinite: roots about zero have a density
    else:
        np.testing.assert_allclose(mean, (1 / two).mean(axis=0), rtol=0.01)
        np.testing.assert_allclose(square, (1 / two**2).mean(axis=0), rtol=0.02)


def test_shares_are_ratios_at_most_of_one_over_the_other():
    sure, rare = single([9.0], [0.01]), single([-3.0], [0.5])
    ratio = Difference(Quantity(sure, LOGIT).log, Quantity(rare, LOGIT).log)
    expected = 1.0 / expit(-3.0 + np.array([1.0, 0.0, -1.0]) * 0.5 * 1.6448536)
    np.testing.assert_allclose([float(np.exp(ratio.quantile(q))[0]) for q in (0.05, 0.5, 0.95)], expected, rtol=1e-3)
    assert both(sure, rare, LOGIT).sf(0.999)[0] == pytest.approx(0.0, abs=1e-6)
