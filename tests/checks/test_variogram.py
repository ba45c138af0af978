"""Variograms: the observed one against loops over pairs, the model's against its formula and simulated fields."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from models import square
from scipy.spatial.distance import cdist
from scipy.special import gamma, kv

from geobgp.checks import variogram as module
from geobgp.checks.variogram import Spatial, semivariances, spatial, variogram
from geobgp.errors import DataError
from geobgp.model import LGCP, BoundaryGP
from geobgp.prior.harmonic import HarmonicBasis
from geobgp.prior.kernels import Matern, SquaredExponential


def by_loops(coords, values, edges, group):
    """Mean distance, semivariance and number of pairs at one place, and between edges."""
    pairs = [[] for _ in edges]
    for i in range(len(values)):
        for j in range(i):
            apart = float(np.hypot(*(coords[i] - coords[j])))
            if apart > edges[-1] or (group is not None and group[i] != group[j]):
                continue
            k = 0 if apart == 0 else next(k for k in range(1, len(edges)) if apart <= edges[k])
            pairs[k].append((apart, 0.5 * (values[i] - values[j]) ** 2))
    return np.array([[*np.mean(some, axis=0), len(some)] for some in pairs if some])


def matern(distance, nu, ell):
    """Return the Matern correlation, in its closed form."""
    x = np.sqrt(2 * nu) * np.maximum(distance, 1e-9) / ell
    return 2 ** (1 - nu) / gamma(nu) * x**nu * kv(nu, x)


@pytest.mark.parametrize("nu", [0.5, 1.0, 1.5, 2.5])
def test_correlations_are_those_of_the_closed_form(nu):
    away = np.geomspace(0.01, 30.0, 40)
    np.testing.assert_allclose(Matern(nu, lengthscale=2.0).correlation(away), matern(away, nu, 2.0), atol=3e-5)
    squared = SquaredExponential(lengthscale=2.0).correlation(away)
    np.testing.assert_allclose(squared, np.exp(-0.5 * (away / 2.0) ** 2), atol=1e-5)


@pytest.mark.parametrize("block", [1, 50, 2_000_000])
@pytest.mark.parametrize("grouped", [False, True])
def test_semivariances_are_those_of_a_loop_over_pairs(monkeypatch, block, grouped):
    monkeypatch.setattr(module, "_BLOCK", block)
    rng = np.random.default_rng(1)
    coords, values = rng.uniform(0, 10, (60, 2)), rng.normal(size=60)
    coords[50:] = coords[:10]
    group = rng.integers(0, 3, 60) if grouped else None
    edges = np.linspace(0.0, 6.0, 8)
    table = semivariances(coords, values, edges, group)
    np.testing.assert_allclose(table.to_numpy(float), by_loops(coords, values, edges, group), rtol=1e-12)


def test_semivariances_of_simulated_fields_average_to_the_model():
    """Over many draws of a field with noise the observed semivariance is the model's: it is unbiased."""
    rng = np.random.default_rng(2)
    coords = rng.uniform(0, 10, (80, 2))
    covariance = 0.8 * matern(cdist(coords, coords), 1.5, 2.0) + 0.3 * np.eye(80)
    draws = np.linalg.cholesky(covariance) @ rng.normal(size=(80, 300))
    edges = np.linspace(0.0, 5.0, 9)
    observed = np.array([semivariances(coords, z, edges)["semivariance"] for z in draws.T])
    apart = cdist(coords, coords)[np.triu_indices(80, 1)]
    model = 0.3 + 0.8 * (1 - matern(apart, 1.5, 2.0))
    expected = [model[(apart > a) & (apart <= b)].mean() for a, b in pairwise(edges)]
    error = observed.std(axis=0) / np.sqrt(300)
    assert (np.abs(observed.mean(axis=0) - expected) < 4 * error).all()


@pytest.fixture(scope="module")
def fitted():
    """Values at 600 sites of a field of lengthscale 3 with sd 1.5 and noise 0.5, and what was fitted to them."""
    rng = np.random.default_rng(0)
    coords = rng.uniform(2.0, 22.0, (600, 2))
    covariance = 1.5**2 * matern(cdist(coords, coords), 1.5, 3.0) + 0.25 * np.eye(600)
    values = 4.0 + np.linalg.cholesky(covariance) @ rng.normal(size=600)
    basis = HarmonicBasis.compute(square(24.0), 300, cache=False)
    return BoundaryGP(basis, Matern(1.5)).fit(coords, values), coords, values


def test_nugget_sill_and_range_are_those_of_the_simulated_field(fitted):
    posterior, coords, values = fitted
    found = spatial(posterior)
    assert found.nugget == pytest.approx(0.25, rel=0.2)
    assert found.partial_sill == pytest.approx(2.25, rel=0.4)
    assert found.sill == found.nugget + found.partial_sill
    assert found.range == pytest.approx(2.7389 * posterior.lengthscale, rel=1e-3)
    assert found.range == pytest.approx(2.7389 * 3.0, rel=0.25)
    shown = variogram(posterior, coords, values)
    near = shown.table[shown.table["distance"] < 6.0]
    np.testing.assert_allclose(near["semivariance"], near["model"], rtol=0.3)
    at = shown.table["distance"].to_numpy()
    exact = found.nugget + found.partial_sill * (1 - matern(at, 1.5, posterior.lengthscale))
    np.testing.assert_allclose(shown.table["model"], exact, atol=1e-4)
    assert len(shown.table) == 15 and (np.diff(at) > 0).all()


def test_it_is_told_in_the_summary(fitted):
    posterior, *_ = fitted
    summary = posterior.summary()
    words = spatial(posterior).sentence
    assert summary["variogram"]["sentence"] == words
    assert ["variogram", words] in [line.split(maxsplit=1) for line in str(summary).splitlines()]
    assert "where the correlation is 0.05" in words


def test_covariates_are_taken_out():
    """What a covariate explains is no semivariance: a steep trend leaves the variogram that of the rest."""
    rng = np.random.default_rng(4)
    domain = square(10.0)
    coords = rng.uniform(0.5, 9.5, (150, 2))
    basis = HarmonicBasis.compute(domain, 60, cache=False)
    rest = np.sin(coords[:, 0]) + 0.2 * rng.normal(size=150)
    east = domain.node_points[:, 0]
    model = BoundaryGP(basis, Matern(1.5, lengthscale=2.0, sd=1.0), noise=0.2, covariates={"east": east})
    at = east[domain.node_at(coords)]
    plain, steep = (variogram(model.fit(coords, y), coords, y).table for y in (rest, rest + 50.0 * at))
    np.testing.assert_allclose(plain["semivariance"], steep["semivariance"], rtol=0.02)


def test_what_cannot_be_shown_is_refused(fitted):
    posterior, coords, values = fitted
    with pytest.raises(DataError, match="at least two values; found 1"):
        variogram(posterior, coords[:1], values[:1])
    counts = LGCP(posterior.basis, Matern(1.5, lengthscale=3.0, sd=1.0)).fit(np.ones(posterior.domain.n_nodes))
    assert spatial(counts) is None and "variogram" not in counts.summary()
    with pytest.raises(DataError, match="Poisson likelihood"):
        variogram(counts, coords, values)


def test_a_posterior_knows_its_measurements_until_it_is_saved(fitted, tmp_path):
    posterior, coords, values = fitted
    own = posterior.variogram(bins=9, cutoff=8.0).table
    np.testing.assert_array_equal(own, variogram(posterior, coords, values, bins=9, cutoff=8.0).table)
    again = type(posterior).load(posterior.save(tmp_path / "lead"))
    assert spatial(again).sentence == spatial(posterior).sentence
    with pytest.raises(DataError, match="files keep none"):
        again.variogram()


def test_the_figure_shows_the_numbers(fitted):
    posterior, coords, values = fitted
    shown = variogram(posterior, coords, values, bins=10, cutoff=12.0)
    ax = shown.plot()
    texts = " ".join(t.get_text() for t in ax.texts)
    assert "nugget" in texts and "sill" in texts and "range" in texts
    line = ax.lines[0].get_xydata()
    np.testing.assert_allclose(line[:, 1], shown.model(line[:, 0]))
    assert len(ax.collections[0].get_offsets()) == len(shown.table) == 10
    assert Spatial(0.04, 1.0, 3.0, "km", "logarithm").sentence.endswith(", of the logarithm")
