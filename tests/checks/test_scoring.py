"""Scoring of what was held out: laws of predictive distributions and of their scores."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp

from geobgp.checks.scoring import Calibration, Predictive, log_mean_exp, without_block


def test_pit_values_of_right_predictions_are_level_whatever_is_drawn():
    rng = np.random.default_rng(0)
    rates = rng.lognormal(0.5, 0.6, (200, 3000))
    seen = rng.poisson(rng.lognormal(0.5, 0.6, 3000)).astype(float)
    values = rng.normal(size=3000)
    for pit in (
        Predictive.of_rates(rates, rng).pit(rng, seen),  # averaged over Poisson probabilities
        Predictive(rng.poisson(rates).astype(float)).pit(rng, seen),  # counted among draws
        Predictive(rng.normal(size=(50, 3000))).pit(rng, values),  # few draws of a value
    ):
        assert stats.kstest(pit, "uniform").pvalue > 0.01
        assert Calibration(pit, 0.9).coverage == pytest.approx(0.9, abs=0.02)


def test_a_suppressed_number_has_a_pit_value_between_those_of_its_ends():
    rng = np.random.default_rng(1)
    known = Predictive.of_rates(np.full((10, 500), 3.0), rng)
    pit = known.pit(rng, 1.0, 4.0)
    low, high = stats.poisson.cdf([0, 4], 3.0)
    assert low <= pit.min() and pit.max() <= high and stats.kstest((pit - low) / (high - low), "uniform").pvalue > 0.01


def test_crps_is_that_of_a_normal_distribution_and_of_a_loop():
    rng = np.random.default_rng(2)
    draws, seen = rng.normal(1.0, 2.0, (20_000, 3)), np.array([1.0, 4.0, -6.0])
    z = (seen - 1.0) / 2.0
    exact = 2.0 * (z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / np.sqrt(np.pi))
    np.testing.assert_allclose(Predictive(draws).crps(seen), exact, rtol=0.03)
    few = draws[:40, :1]
    loop = np.abs(few - 0.3).mean() - 0.5 * np.mean([[abs(a - b) for a in few[:, 0]] for b in few[:, 0]])
    assert Predictive(few).crps([0.3])[0] == pytest.approx(loop)


def test_scores_are_best_where_the_prediction_is_the_truth():
    """Proper: no other spread does better on average."""
    rng = np.random.default_rng(3)
    seen = rng.normal(size=4000)
    scores = {}
    for spread in (0.6, 1.0, 1.6):
        predicted = Predictive(spread * rng.normal(size=(400, 4000)))
        scores[spread] = predicted.crps(seen).mean(), predicted.interval_score(seen, 0.9).mean()
    assert all(scores[1.0][k] < min(scores[0.6][k], scores[1.6][k]) for k in (0, 1))


def test_weights_without_a_block_are_those_of_bayes():
    """Two values of θ, prior ½ each: weights that saw the block, taken back to those of all else."""
    rest, block = np.array([0.02, 0.05]), np.array([0.4, 0.1])  # p(rest | θ), p(block | rest, θ)
    saw = rest * block / (rest * block).sum()
    score, shares = without_block(saw, np.log(block))
    np.testing.assert_allclose(shares, rest / rest.sum())
    assert np.exp(score) == pytest.approx((rest * block).sum() / rest.sum())


def test_means_of_probabilities_do_not_underflow():
    logs = np.array([[-2000.0], [-2001.0]])
    assert log_mean_exp(logs)[0] == pytest.approx(logsumexp(logs) - np.log(2))


def test_the_band_holds_what_binomial_numbers_do():
    rng = np.random.default_rng(4)
    pit = rng.random((2000, 60))
    low, high = Calibration(pit[0], 0.9).band
    coverage = np.array([Calibration(row, 0.9).coverage for row in pit])
    assert np.mean((coverage < low - 1e-9) | (coverage > high + 1e-9)) <= 0.015
    assert np.mean([Calibration(row, 0.9).overdispersed for row in pit]) < 0.01
    assert Calibration(stats.norm.cdf(3.0 * rng.normal(size=60)), 0.9).overdispersed
