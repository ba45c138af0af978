"""Fixed effects by themselves: the posterior of a model without a field, and the bound of its log evidence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize_scalar

from geobgp.inference.count_likelihoods import LARGEST_K, SMALLEST_K
from geobgp.inference.likelihoods import Likelihood, sites
from geobgp.inference.renewal import Observed, row_exposures
from geobgp.inference.rows import row_weights

#: Rounds, passes of rows that change with the effects, and the change of the bound, in nats, that ends them.
_ROUNDS, _PASSES, _NEAR = 200, 20, 1e-6


@dataclass(frozen=True, eq=False)
class EffectsFit:
    """A Gaussian posterior of fixed effects.

    Attributes
    ----------
    mean, covariance : (k,) and (k, k) arrays
    bound : float
        The variational bound of the log evidence, as a fit with a field has it.
    log_p : (n,) array
        Log probability of each observation at the mean.
    """

    mean: np.ndarray
    covariance: np.ndarray
    bound: float
    log_p: np.ndarray


def fit_effects(likelihood: Likelihood, design: np.ndarray, prior_sd: np.ndarray) -> EffectsFit:
    """Fit fixed effects with independent normal priors, and nothing else.

    Parameters
    ----------
    likelihood : Likelihood
    design : (n, k) array
        What each observation sees of the effects.
    prior_sd : (k,) array

    Examples
    --------
    >>> from geobgp.inference.likelihoods import Gaussian
    >>> found = fit_effects(Gaussian(np.array([1.0, 3.0])), np.ones((2, 1)), np.array([1.0]))
    >>> round(float(found.mean[0]), 4), round(float(found.covariance[0, 0]), 4)
    (1.3333, 0.3333)
    """
    prior = prior_sd**-2.0
    k = design.shape[1]

    def at(
        precision: np.ndarray, natural: np.ndarray
    ) -> tuple[float, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return the bound, mean, covariance, and the precision and natural mean that these ask for."""
        covariance = np.linalg.inv(precision)
        mean = covariance @ natural
        seen, variance = design @ mean, np.einsum("ij,jk,ik->i", design, covariance, design)
        with np.errstate(over="ignore", invalid="ignore"):
            expected = likelihood.expected(seen, variance)
            weight, pull = sites(expected, seen)
            bound = float(expected.value.sum()) - 0.5 * float(
                prior @ np.diag(covariance) + mean @ (prior * mean) - k
                + np.linalg.slogdet(precision)[1] - np.log(prior).sum()
            )  # fmt: skip
            asked = np.diag(prior) + design.T @ (weight[:, None] * design), design.T @ pull
        return bound, mean, covariance, *asked

    # From effects of zero that are nearly sure: rates are finite there, and every share of a step can be judged.
    nothing = np.zeros(len(design))
    weight = sites(likelihood.expected(nothing, nothing), nothing)[0]
    here = 100.0 * (np.diag(prior) + design.T @ (weight[:, None] * design)), np.zeros(k)
    best, share = at(*here), 1.0
    for _ in range(_ROUNDS):
        there = tuple((1.0 - share) * old + share * new for old, new in zip(here, best[3:], strict=True))
        new = at(*there)
        gain = new[0] - best[0]
        if gain > 0:
            if share == 1.0 and gain < _NEAR:
                break
            here, best, share = (there[0], there[1]), new, min(1.0, 2.0 * share)
        elif share < 1e-6 or (share == 1.0 and gain > -_NEAR):
            break
        else:
            share *= 0.25
    bound, mean, covariance = best[:3]
    return EffectsFit(
        mean, covariance, bound, likelihood.expected(design @ mean, np.zeros(len(design))).value
    )


def fit_area_effects(
    likelihood: Callable[[np.ndarray], Likelihood],
    observed: Observed,
    columns: np.ndarray,
    prior_sd: np.ndarray,
    centre: float,
) -> EffectsFit:
    """Fit fixed effects to counts that are sums over nodes; the rows follow from the effects, pass by pass.

    Parameters
    ----------
    likelihood : callable
        From exposures about the rows to the likelihood of the counts.
    observed : Observed
    columns : (n_nodes, k) array
        The effects at the nodes.
    prior_sd : (k,) array
    centre : float
        Constant added to every linear predictor.
    """
    mean, covariance, found = np.zeros(columns.shape[1]), np.zeros((columns.shape[1],) * 2), None
    for _ in range(_PASSES):
        at_nodes = columns @ mean
        variance = np.einsum("ij,jk,ik->i", columns, covariance, columns)
        rows, log_total = row_weights(observed.exposure, at_nodes, variance)
        design = rows @ columns
        spread = np.einsum("ij,jk,ik->i", design, covariance, design)
        exposure = row_exposures(log_total, rows @ at_nodes, spread, observed.counts, centre)
        assert exposure is not None, "effects without a field expect no such numbers"
        before, found = found, fit_effects(likelihood(exposure), design, prior_sd)
        mean, covariance = found.mean, found.covariance
        if before is not None and abs(found.bound - before.bound) < 1e3 * _NEAR:
            break
    assert found is not None
    return found


def best_size(fit: Callable[[float], EffectsFit]) -> EffectsFit:
    """Return the fit of negative binomial counts with the size k at which its bound is highest."""
    bounds = np.log(SMALLEST_K), np.log(LARGEST_K)
    found = minimize_scalar(
        lambda log_k: -fit(float(np.exp(log_k))).bound,
        bounds=bounds,
        method="bounded",
        options={"xatol": 0.05},
    )
    return fit(float(np.exp(found.x)))
