"""Residuals: references written as loops, what good and bad maps show, figures, and what is refused."""

import dataclasses

import numpy as np
import pytest
from models import archipelago, square
from posteriors import fitted, prescribed

from geobgp import LGCP, DataError, HarmonicBasis, Matern
from geobgp.checks import residuals as pearson


def known(domain, rate, counts, spread=0.01):
    return dataclasses.replace(prescribed(domain, np.log(rate), spread), observed=np.asarray(counts, float))


def draw(domain, rate, seed=0):
    return np.random.default_rng(seed).poisson(rate * domain.node_areas)


def test_pairs_against_a_loop():
    domain = archipelago()
    rng = np.random.default_rng(1)
    counts, expected = rng.poisson(0.7, domain.n_nodes).astype(float), rng.uniform(0.5, 1.0, domain.n_nodes)
    found = pearson._pairs(domain, np.vstack([counts, counts]), expected)
    place = np.column_stack([domain.node_rows, domain.node_cols])
    seen, base = {}, {}
    for i in range(domain.n_nodes):
        for j in range(domain.n_nodes):
            lag = float(np.hypot(*(place[i] - place[j])))
            seen[lag] = seen.get(lag, 0.0) + counts[i] * counts[j] - (counts[i] if i == j else 0.0)
            base[lag] = base.get(lag, 0.0) + expected[i] * expected[j]
    # The first two rings hold one lag each: the cell itself, and its four neighbours.
    for ring, lag in enumerate((0.0, 1.0)):
        assert found.at[ring] == pytest.approx(lag * domain.cell_size)
        assert found.observed[ring] == pytest.approx(seen[lag] / base[lag])


def test_lurking_against_a_loop():
    domain = square()
    counts = draw(domain, np.full(domain.n_nodes, 2.0))
    found = known(domain, np.full(domain.n_nodes, 2.0), counts).residuals().lurking["easting"]
    mean = 2.0 * np.exp(0.5 * 0.01**2)
    for value, height in zip(found.at, found.observed, strict=True):
        mine = domain.node_points[:, 0] <= value
        assert height == pytest.approx(counts[mine].sum() - mean * mine.sum())
    assert len(found.at) == 10  # as many as there are columns


def test_a_true_map_is_rarely_blamed():
    domain = square(20.0)
    rate = np.exp(np.sin(domain.node_points[:, 0] / 3))
    blamed = [
        len(known(domain, rate, draw(domain, rate, seed)).residuals(seed=seed).unexplained())
        for seed in range(40)
    ]
    # Three curves at 5 %: six of 120 on average.
    assert sum(blamed) <= 16
    found = known(domain, rate, draw(domain, rate)).residuals()
    assert found.dispersion_band[0] < 1 < found.dispersion_band[1]
    assert found.dispersion == pytest.approx(1.0, abs=0.4)
    assert found.observed.sum() == draw(domain, rate).sum()
    assert found.pearson.shape == found.observed.shape == (found.square.max() + 1,)


def test_clusters_are_seen():
    domain = square(30.0)
    rng = np.random.default_rng(2)
    centres = rng.integers(0, domain.n_nodes, 25)
    near = np.linalg.norm(domain.node_points[:, None] - domain.node_points[centres], axis=2) < 1.5
    counts = rng.poisson(1.5 * near.sum(axis=1))
    found = known(domain, np.full(domain.n_nodes, counts.mean()), counts).residuals()
    assert "pairs" in found.unexplained() and found.pairs.outside == 0.01
    assert found.pairs.observed[0] > 1.5 * found.pairs.high[0]
    assert found.dispersion > found.dispersion_band[1]


def test_a_trend_that_the_map_misses_is_seen():
    domain = square(20.0)
    rate = np.exp(0.1 * (domain.node_points[:, 1] - 10.0))
    found = known(domain, np.full(domain.n_nodes, rate.mean()), draw(domain, rate)).residuals()
    assert "northing" in found.unexplained() and "easting" not in found.unexplained()
    assert found.lurking["northing"].observed.min() < found.lurking["northing"].low.min()


def test_a_covariate_with_a_bent_effect_is_seen():
    domain = square(20.0)
    rng = np.random.default_rng(3)
    height = rng.uniform(-2.0, 2.0, domain.n_nodes)
    basis = HarmonicBasis.compute(domain, 40, cache=False)
    model = LGCP(basis, Matern(1.5, lengthscale=12.0, sd=0.5), covariates={"height": 100 + 10 * height})
    bent = model.fit(rng.poisson(np.exp(0.8 * height**2 - 0.5)).astype(float)).residuals()
    straight = model.fit(rng.poisson(np.exp(0.8 * height)).astype(float)).residuals()
    assert "height" in bent.unexplained() and "height" not in straight.unexplained()
    assert bent.lurking["height"].at.min() > 70


def test_a_real_fit_and_its_figure():
    found = fitted()[0].residuals()
    assert found.unexplained() == []
    axes = found.plot()
    assert [ax.get_title(loc="left") for ax in axes[1:]] == [
        "Pairs of events",
        "Along easting",
        "Along northing",
    ]
    assert axes[1].get_xlabel() == "distance (km)"
    again = fitted()[0].residuals()
    np.testing.assert_array_equal(found.pairs.high, again.pairs.high)


def test_mistakes():
    posterior = fitted()[0]
    with pytest.raises(DataError, match="at least 39; found 10"):
        posterior.residuals(n_simulations=10)
    with pytest.raises(DataError, match="knows none"):
        dataclasses.replace(posterior, observed=None).residuals()
