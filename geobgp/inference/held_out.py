"""Holding out observations without a new fit: what a posterior would say of a block that it had not seen.

A posterior is Gaussian and holds a Gaussian site for every observation. Holding out a block takes its sites away. The
posterior around it has then moved and is wider, so that the sites of the nearest observations are renewed in a few
rounds. All of this is dense algebra on the block and its neighbours; sites farther away, and the hyperparameters, are
held.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import blas, lapack

from geobgp.inference.families import Likelihood, sites

#: Rounds in which the neighbours' sites are renewed, and nats per event below which that is not worth it.
ROUNDS, _WORTH = 20, 1e-3
#: Rounds in which a block's own observations are taken in, and the gain in nats at which either end: the bound is flat
#: where means still move.
_MOST_ROUNDS, _SETTLED = 30, 1e-6

#: From indices of observations to their likelihood.
Observed = Callable[[np.ndarray], Likelihood]


@dataclass(frozen=True, eq=False)
class JointNormal:
    """The linear predictor at some observations, jointly Gaussian."""

    mean: np.ndarray
    covariance: np.ndarray

    @property
    def variance(self) -> np.ndarray:
        """Of each."""
        return self.covariance.diagonal()

    def first(self, n: int) -> JointNormal:
        """Return the first n of them."""
        return JointNormal(self.mean[:n], self.covariance[:n, :n])

    def without(self, likelihood: Likelihood) -> JointNormal:
        """Return it without the sites of its first observations, of which the likelihood is given."""
        n = likelihood.size
        mean, covariance = self.mean[:n], self.covariance[:n, :n]
        expected = likelihood.expected(mean, covariance.diagonal())
        root = np.sqrt(sites(expected, mean)[0])
        chol = _cholesky(-root[:, None] * covariance * root)
        half = blas.dtrsm(1.0, chol, np.asfortranarray(root[:, None] * self.covariance[:n]), lower=1)
        wider = self.covariance + _square(half)
        return JointNormal(self.mean - wider[:, :n] @ expected.d_mean, wider)

    def draw(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Return (n, k) joint draws."""
        scale = np.sqrt(np.maximum(self.variance, 1e-300))
        chol = _cholesky(self.covariance / scale[:, None] / scale - np.eye(len(scale)))
        noise = blas.dtrmm(1.0, chol, rng.standard_normal((n, len(scale))).T, lower=1)
        return self.mean + noise.T * scale


@dataclass(frozen=True, eq=False)
class HeldOut:
    """What is said of a block that was held out.

    Attributes
    ----------
    predicted : JointNormal
        The linear predictor of the block, by all other observations.
    log_score : float
        Log of the probability of what was observed there: its variational bound, which is tight.
    """

    predicted: JointNormal
    log_score: float


def hold_out(posterior: JointNormal, observed: Observed, n_block: int, n_left: int, rounds: int = ROUNDS) -> HeldOut:
    """Hold out a block, predict it from the rest, and score what was observed there.

    Parameters
    ----------
    posterior : JointNormal
        At the block, then at the buffer around it, then at its neighbours.
    observed : callable
        From indices into these to the likelihood of what was observed there.
    n_block, n_left : int
        Observations of the block; of block and buffer together.
    rounds : int
        How often the neighbours' sites are renewed; 0 leaves them as they are.
    """
    k = len(posterior.mean)
    if rounds and k > n_left:
        predicted = _renewed(posterior, observed, n_left, rounds).first(n_block)
    else:
        predicted = posterior.first(n_left).without(observed(np.arange(n_left))).first(n_block)
    return HeldOut(predicted, log_score(predicted, observed(np.arange(n_block)), posterior.first(n_block)))


def log_score(predicted: JointNormal, likelihood: Likelihood, posterior: JointNormal) -> float:
    """Return the log probability of observations of which f is predicted, as its variational bound.

    Parameters
    ----------
    predicted : JointNormal
    likelihood : Likelihood
    posterior : JointNormal
        With the observations, about: from where the search for the bound begins.

    Examples
    --------
    >>> known = JointNormal(np.zeros(1), np.full((1, 1), 1e-12))
    >>> from geobgp.inference.families import Poisson
    >>> round(log_score(known, Poisson(np.zeros(1), np.ones(1)), known), 6)
    -1.0
    """
    return _observe(predicted, likelihood, posterior, _MOST_ROUNDS).bound


def _renewed(posterior: JointNormal, observed: Observed, n: int, rounds: int) -> JointNormal:
    """Return the first n without their sites, and with those that the others then ask for."""
    near = observed(np.arange(n, len(posterior.mean)))
    start = posterior.without(observed(np.arange(n)))
    moved = start.mean - posterior.mean + 0.5 * (start.variance - posterior.variance)
    at = posterior.mean, posterior.variance
    weight = sites(observed(np.arange(len(at[0]))).expected(*at), at[0])[0]
    lost = 0.5 * float(weight[n:] @ moved[n:] ** 2)
    if lost < _WORTH * max(float(weight[:n].sum()), 1.0):
        return start.first(n)
    # Without any of the sites here, and then with new ones of the neighbours.
    bare = posterior.without(observed(np.arange(len(posterior.mean))))
    kept = JointNormal(bare.mean[n:], bare.covariance[n:, n:])
    before = JointNormal(posterior.mean[n:], posterior.covariance[n:, n:])
    seen = _observe(kept, near, before, rounds)
    cross = bare.covariance[n:, :n]
    half = blas.dtrsm(1.0, seen.chol, np.asfortranarray(seen.root[:, None] * cross), lower=1)
    return JointNormal(bare.mean[:n] + cross.T @ seen.pull, bare.covariance[:n, :n] - _square(half))


class _Seen:
    """A prior N(m, C) with Gaussian sites of precision w and natural mean b, and the bound that they reach."""

    def __init__(self, prior: JointNormal, likelihood: Likelihood, at: tuple[np.ndarray, np.ndarray]) -> None:
        m, c = prior.mean, prior.covariance
        self.precision, self.natural = at
        self.root = np.sqrt(self.precision)
        self.chol = _cholesky(self.root[:, None] * c * self.root)
        half = blas.dtrsm(1.0, self.chol, np.asfortranarray(self.root[:, None] * c), lower=1)
        # With B = I + √w C √w: (C⁻¹ + W)⁻¹ (C⁻¹ m + b) = m + C (b - w m - √w B⁻¹ √w C (b - w m)).
        residual = self.natural - self.precision * m
        inside = lapack.dpotrs(self.chol, self.root * (c @ residual), lower=1)[0]
        #: C⁻¹ times what the mean has moved.
        self.pull = residual - self.root * inside
        moved = c @ self.pull
        mean, variance = m + moved, np.maximum(c.diagonal() - np.einsum("ij,ij->j", half, half), 0.0)
        log_det = 2.0 * float(np.log(self.chol.diagonal()).sum())
        divergence = 0.5 * (float(self.pull @ moved) - float(self.precision @ variance) + log_det)
        expected = likelihood.expected(mean, variance)
        with np.errstate(over="ignore"):
            self.bound = float(expected.value.sum()) - divergence
        #: The sites that the posterior asks for.
        self.asked = sites(expected, mean)


def _observe(prior: JointNormal, likelihood: Likelihood, posterior: JointNormal, rounds: int) -> _Seen:
    """Return a prior with the sites of observations: from those of a posterior on, as the bound rises."""
    first = sites(likelihood.expected(posterior.mean, posterior.variance), posterior.mean)
    seen, share = _Seen(prior, likelihood, first), 1.0
    for _ in range(rounds):
        if not np.isfinite(seen.asked[1]).all():
            break
        old, asked = (seen.precision, seen.natural), seen.asked
        mixed = tuple((1.0 - share) * a + share * b for a, b in zip(old, asked, strict=True))
        new = _Seen(prior, likelihood, (mixed[0], mixed[1]))
        gain = new.bound - seen.bound
        if gain > 0:
            seen, share = new, min(1.0, 2.0 * share)
        else:  # a small enough share of the sites asked for raises the bound
            share *= 0.25
        if -1e-9 < gain < _SETTLED or share < 1e-3:
            break
    return seen


def _cholesky(less_one: np.ndarray) -> np.ndarray:
    """Return the lower factor of I + a matrix; only rounding can fail it, then a little is added."""
    matrix = np.asfortranarray(less_one)
    extra, least = 0.0, float(np.finfo(float).eps) * len(matrix)
    while True:
        whole = matrix + (1.0 + extra) * np.eye(len(matrix))
        chol, info = lapack.dpotrf(whole, lower=1, clean=1)
        if info == 0:
            return chol
        if not np.isfinite(matrix).all():
            raise np.linalg.LinAlgError("the covariance of a block is not finite")
        extra = max(10.0 * extra, least)


def _square(half: np.ndarray) -> np.ndarray:
    """Return halfᵀ half, whole."""
    lower = blas.dsyrk(1.0, half, trans=1, lower=1)
    return np.tril(lower) + np.tril(lower, -1).T
