"""Pooling: what many fits together teach of their hyperparameters, as a prior from which small ones borrow.

θ_s, the log lengthscale and log sd of stratum s, is taken for a draw from N(m, diag(v)). The bound of a stratum's
counts in θ is taken for a quadratic about the θ of its fit, with the gradient and curvature that were measured there,
so that m and v follow by expectation and maximisation without new fits. With N(m, diag(v)) as their prior the strata
are fitted again, and the quadratics taken anew about these fits, until m and v stay. Where strata do not differ, m is
then the θ at which the bounds of all of them together are highest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from geobgp.prior.kernels import NormalPrior, Prior

#: The narrowest that the strata may be found to differ by, a standard deviation of log θ.
NARROWEST = 0.03
#: How far from a fit its evidence may be thought to point, in log θ: a factor of 7.
REACH = 2.0
#: Steps of expectation and maximisation at most, and the change of the prior's mean (in sds) and log sd that ends them.
_STEPS, _SETTLED = 2000, 1e-4


@dataclass(frozen=True, eq=False)
class Evidence:
    """What the counts of a stratum say of θ by themselves: a quadratic log-likelihood -½ θᵀAθ + bᵀθ.

    Attributes
    ----------
    precision : (2, 2) array
        A; zero in directions of which the counts say nothing.
    natural : (2,) array
        b.
    """

    precision: np.ndarray
    natural: np.ndarray

    @classmethod
    def of_fit(
        cls, theta: np.ndarray, covariance: np.ndarray, prior: Prior, gradient: np.ndarray | None = None
    ) -> Evidence:
        """Return the evidence behind a fit under a prior: its curvature and slope without those of the prior.

        Parameters
        ----------
        theta : (2,) array
            The best θ under the prior, or where the search for it ended.
        covariance : (2, 2) array
            Inverse of minus the curvature there; zero where θ is fixed.
        prior : PCPrior or NormalPrior
        gradient : (2,) array, optional
            Of the bound and the log prior there; by default zero, as it is at the best θ. Under a narrow prior a θ that
            is best but for a thousandth of a nat still has a slope that is large beside that of the counts.

        Notes
        -----
        A bound that hardly bends, or bends upwards, has its slope only near θ: the evidence is bent so that it ends
        at a distance of `REACH`.
        """
        free = np.diag(covariance) > 0
        out = cls(np.zeros((2, 2)), np.zeros(2))
        if not free.any():
            return out
        _, of_prior, bend = prior.log_density(theta)
        slope = ((0.0 if gradient is None else gradient) - of_prior)[free]
        at = np.ix_(free, free)
        values, vectors = np.linalg.eigh(np.linalg.inv(covariance[at]) + np.diag(bend[free]))
        values = np.maximum(values, np.abs(vectors.T @ slope) / REACH)
        out.precision[at] = (vectors * values) @ vectors.T
        out.natural[free] = out.precision[at] @ theta[free] + slope
        return out


def learn_prior(evidence: Sequence[Evidence], start: np.ndarray) -> NormalPrior:
    """Return the normal prior of log θ under which the evidence of all strata is most probable.

    Parameters
    ----------
    evidence : sequence of Evidence
    start : (k, 2) array
        First guesses of each stratum's θ.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> theta = rng.normal([8.0, 0.0], [0.5, 0.2], (400, 2))
    >>> seen = theta + rng.normal(0.0, 0.3, theta.shape)
    >>> told = [Evidence(np.eye(2) / 0.09, each / 0.09) for each in seen]
    >>> prior = learn_prior(told, seen)
    >>> [round(v, 1) for v in (*prior.log_lengthscale, *prior.log_sd)]
    [8.0, 0.5, -0.0, 0.2]
    """
    a = np.array([one.precision for one in evidence])
    b = np.array([one.natural for one in evidence])
    mean = np.median(start, axis=0)
    variance = np.maximum(start.var(axis=0), 0.1)
    for _ in range(_STEPS):
        covariance = np.linalg.inv(a + np.diag(1.0 / variance))
        each = np.einsum("sij,sj->si", covariance, b + mean / variance)
        old_mean, old_variance = mean, variance
        mean = each.mean(axis=0)
        spread = np.einsum("sii->si", covariance) + (each - mean) ** 2
        variance = np.maximum(spread.mean(axis=0), NARROWEST**2)
        change = np.abs(mean - old_mean) / np.sqrt(variance) + np.abs(np.log(variance / old_variance))
        if change.max() < _SETTLED:
            break
    sd = np.sqrt(variance)
    return NormalPrior((float(mean[0]), float(sd[0])), (float(mean[1]), float(sd[1])))


def moved(before: NormalPrior | None, after: NormalPrior) -> float:
    """Return how far a prior has moved: the change of means in sds, or of log sds, whichever is most."""
    if before is None:
        return float("inf")
    pairs = zip((before.log_lengthscale, before.log_sd), (after.log_lengthscale, after.log_sd), strict=True)
    return max(max(abs(m1 - m0) / s1, abs(np.log(s1 / s0))) for (m0, s0), (m1, s1) in pairs)


def most_probable(evidence: Sequence[Evidence], prior: Prior, start: np.ndarray) -> np.ndarray:
    """Return the one θ that the evidence of several fits and a prior together find most probable.

    Examples
    --------
    >>> told = [Evidence(np.eye(2), np.array([2.0, 0.0])), Evidence(np.eye(2), np.array([4.0, 1.0]))]
    >>> most_probable(told, NormalPrior((0.0, 1e3), (0.0, 1e3)), np.zeros(2)).round(3).tolist()
    [3.0, 0.5]
    """
    a = np.sum([one.precision for one in evidence], axis=0)
    b = np.sum([one.natural for one in evidence], axis=0)
    theta = np.array(start, float)
    for _ in range(50):
        _, slope, bend = prior.log_density(theta)
        step = np.linalg.solve(a - np.diag(np.minimum(bend, -1e-6)), b - a @ theta + slope)
        theta = theta + step * min(1.0, 1.0 / max(float(np.abs(step).max()), 1e-300))
        if np.abs(step).max() < 1e-8:
            break
    return theta
