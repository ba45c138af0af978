"""Chains of blocks: against the same matrix written out."""

from __future__ import annotations

import numpy as np
import pytest

from geobgp.linalg import blas, tridiagonal
from geobgp.linalg.tridiagonal import Symmetric, Tridiagonal, mirrored


def blocks_of(count, size, seed=0):
    """Return diagonal blocks, diagonals between them, and the whole matrix."""
    rng = np.random.default_rng(seed)
    between = rng.normal(size=(count - 1, size))
    diagonal = np.array([a @ a.T / size + 4.0 * np.eye(size) for a in rng.normal(size=(count, size, size))])
    whole = np.zeros((count * size, count * size))
    for t in range(count):
        whole[t * size : (t + 1) * size, t * size : (t + 1) * size] = diagonal[t]
    for t, c in enumerate(between):
        i, j = t * size + np.arange(size), (t + 1) * size + np.arange(size)
        whole[i, j] = whole[j, i] = c
    return diagonal, between, whole


@pytest.mark.parametrize("pointers", [True, False])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_everything_that_is_asked_of_the_inverse(count, threads, pointers, monkeypatch):
    if not pointers:
        for name in ("dpotrf", "dpotri"):
            monkeypatch.setattr(blas, name, getattr(blas, f"_{name}"))
    monkeypatch.setattr(tridiagonal, "cores", lambda: threads)
    size = 6
    diagonal, between, whole = blocks_of(count, size)
    inverse = np.linalg.inv(whole)
    # What lies above the diagonal, in Fortran order, is not looked at.
    given = diagonal + 7.0 * np.tril(np.ones((size, size)), -1)
    chain = Tridiagonal(given, between)
    assert chain.log_det == pytest.approx(np.linalg.slogdet(whole)[1], abs=1e-10)
    own, lagged = {}, {}

    def use(t, block):
        own[t] = mirrored(block)
        if t > 0:
            lagged[t] = chain.lag_diagonal(t, block)

    chain.marginals(use)
    for t in range(count):
        here = slice(t * size, (t + 1) * size)
        np.testing.assert_allclose(own[t], inverse[here, here], atol=1e-12)
        if t > 0:
            before = slice((t - 1) * size, t * size)
            np.testing.assert_allclose(lagged[t], np.diag(inverse[before, here]), atol=1e-12)
    for vector in (np.arange(count * size, dtype=float), np.eye(count * size)[:, :4], np.zeros((count * size, 0))):
        np.testing.assert_allclose(chain.solve(vector), inverse @ vector, atol=1e-12)
    again = Tridiagonal.from_inverses(chain.inverses, between)
    for t, block in again.inverse_blocks():
        np.testing.assert_allclose(block, own[t], atol=1e-12)


def test_draws_have_the_inverse_as_covariance():
    diagonal, between, whole = blocks_of(3, 4)
    chain, n = Tridiagonal(diagonal, between), 40_000
    draws = np.zeros((3, 4, n))
    for t, drawn in chain.draw(n, np.random.default_rng(0)):
        draws[t] = drawn
    found, inverse = np.cov(draws.reshape(12, n)), np.linalg.inv(whole)
    scale = np.sqrt(np.outer(np.diag(inverse), np.diag(inverse)))
    assert np.abs((found - inverse) / scale).max() < 0.03


def test_rounding_is_mended_and_nonsense_is_not():
    work = Symmetric(3)
    block = np.ones((3, 3))  # of rank one
    work.factorise(block)
    assert np.isfinite(block).all()
    with pytest.raises(np.linalg.LinAlgError, match="not finite"):
        work.factorise(np.full((3, 3), -np.inf))
