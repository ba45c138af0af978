"""Log-normal formulas against scipy.stats, root finding and Monte Carlo."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from geobgp.errors import DataError
from geobgp.inference.mixture import NormalMixture, check_probabilities, quantile_name


def mixture(seed: int, k: int, n: int, spread: float = 2.0) -> NormalMixture:
    rng = np.random.default_rng(seed)
    return NormalMixture(
        rng.dirichlet(np.ones(k)), spread * rng.normal(size=(k, n)), rng.uniform(0.01, 2.0, size=(k, n))
    )


def test_one_component_equals_scipy_lognorm():
    one = mixture(0, 1, 50)
    law = stats.lognorm(s=np.sqrt(one.var[0]), scale=np.exp(one.mu[0]))
    mean, var = one.exp_moments()
    np.testing.assert_allclose(mean, law.mean(), rtol=1e-12)
    np.testing.assert_allclose(var, law.var(), rtol=1e-12)
    np.testing.assert_allclose(one.exp_mean(), law.mean(), rtol=1e-12)
    for q in (0.001, 0.05, 0.5, 0.95):
        np.testing.assert_allclose(np.exp(one.quantile(q)), law.ppf(q), rtol=1e-12)
    for threshold in (0.1, 1.0, 7.0):
        np.testing.assert_allclose(one.sf(np.log(threshold)), law.sf(threshold), atol=1e-12)


def test_mixture_moments_by_quadrature():
    mix = mixture(1, 3, 2, spread=0.7)
    for place in range(2):

        def density(x, place=place):
            return mix.weight @ stats.norm.pdf(x, mix.mu[:, place], np.sqrt(mix.var[:, place]))

        grid = (-25.0, 25.0)
        first = integrate.quad(lambda x: np.exp(x) * density(x), *grid, limit=500)[0]
        second = integrate.quad(lambda x: np.exp(2 * x) * density(x), *grid, limit=500)[0]
        mean, var = mix.exp_moments()
        assert mean[place] == pytest.approx(first, rel=1e-8)
        assert var[place] == pytest.approx(second - first**2, rel=1e-6)


def test_mixture_against_monte_carlo():
    mix = mixture(2, 4, 3, spread=0.5)
    rng = np.random.default_rng(0)
    n = 400_000
    which = rng.choice(4, n, p=mix.weight)
    draws = np.exp(mix.mu[which] + np.sqrt(mix.var[which]) * rng.standard_normal((n, 3)))
    np.testing.assert_allclose(mix.exp_mean(), draws.mean(axis=0), rtol=0.02)
    np.testing.assert_allclose(np.exp(mix.quantile(0.9)), np.quantile(draws, 0.9, axis=0), rtol=0.02)
    np.testing.assert_allclose(mix.sf(np.log(2.0)), (draws > 2).mean(axis=0), atol=0.004)


@settings(deadline=None, max_examples=80)
@given(st.integers(0, 10_000), st.integers(1, 9), st.floats(0.0, 30.0), st.floats(1e-6, 1 - 1e-6))
def test_quantile_inverts_the_distribution(seed, k, spread, q):
    mix = mixture(seed, k, 20, spread)
    x = mix.quantile(q)
    below = 1 - mix.sf(x)
    # Where the density is all but zero between two components, any point of the gap is a quantile.
    step = 1e-9 * np.maximum(np.abs(x), 1)
    assert np.all(1 - mix.sf(x - step) <= q + 1e-9)
    assert np.all(1 - mix.sf(x + step) >= q - 1e-9)
    assert np.all(np.abs(below - q) < 1e-6)


def test_quantiles_are_ordered_and_equal_components_collapse():
    mix = mixture(3, 5, 100)
    low, middle, high = (mix.quantile(q) for q in (0.05, 0.5, 0.95))
    assert np.all(low < middle) and np.all(middle < high)
    same = NormalMixture(mix.weight, np.tile(mix.mu[0], (5, 1)), np.tile(mix.var[0], (5, 1)))
    one = NormalMixture(np.ones(1), mix.mu[:1], mix.var[:1])
    np.testing.assert_allclose(same.quantile(0.05), one.quantile(0.05), atol=1e-12)
    np.testing.assert_allclose(same.exp_moments(), one.exp_moments(), rtol=1e-12)


def test_edges_nan_and_no_variance():
    mix = NormalMixture(np.array([0.5, 0.5]), np.array([[0.0, np.nan], [1.0, np.nan]]), np.array([[0.0, 1], [0.0, 1]]))
    assert np.isnan(mix.quantile(0.5)[1]) and np.isnan(mix.sf(0.0)[1]) and np.isnan(mix.exp_mean()[1])
    assert mix.sf(0.5)[0] == 0.5
    assert -1e-9 <= mix.quantile(0.2)[0] <= 1e-9
    assert mix.exp_moments()[1][0] == pytest.approx(((np.e - 1) / 2) ** 2)


def test_overflow_is_infinite():
    mix = NormalMixture(np.array([0.5, 0.5]), np.array([[0.0], [800.0]]), np.array([[1.0], [2000.0]]))
    mean, var = mix.exp_moments()
    assert np.isinf(mean[0]) and np.isinf(var[0]) and np.isinf(mix.exp_mean()[0])
    wide = NormalMixture(np.ones(1), np.array([[-500.0]]), np.array([[900.0]]))
    assert np.isfinite(wide.exp_mean()[0]) and np.isinf(wide.exp_moments()[1][0])
    assert np.isfinite(wide.quantile(0.95)[0])


def test_names_and_refusals():
    assert [quantile_name(q) for q in (0.05, 0.5, 0.025, 0.975, 0.001, 0.29)] == [
        "q05", "q50", "q025", "q975", "q001", "q29",
    ]  # fmt: skip
    with pytest.raises(DataError, match=r"strictly between 0 and 1; found \(95,\)"):
        check_probabilities((5, 95)[1:])
    with pytest.raises(DataError, match=r"different probabilities.*found \(0.5, 0.5\)"):
        check_probabilities((0.5, 0.5))
    with pytest.raises(DataError, match="one weight per row"):
        NormalMixture(np.ones(2), np.zeros((1, 3)), np.ones((1, 3)))
