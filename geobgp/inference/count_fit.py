"""Fits of counts: at nodes or by area, Poisson or negative binomial, at the best hyperparameters or mixed over them.

The size k of a negative binomial is where the bound, maximised over all else, no longer rises: its slope is that of the
expected log-likelihood at the posterior.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import brentq, minimize_scalar

from geobgp.errors import ConvergenceWarning, option, warn
from geobgp.inference.count_likelihoods import LARGEST_K, SMALLEST_K, NegativeBinomial
from geobgp.inference.fit import Fit, Start, fit, grid_weights, hyper_grid
from geobgp.inference.hyper import Hyper
from geobgp.inference.likelihoods import Likelihood, Poisson
from geobgp.inference.profile import Best, Profile
from geobgp.inference.renewal import MOST_PASSES, Problem, RowProblem, Settled, remedy_of, settle
from geobgp.progress import Stage
from geobgp.text import number

#: Precision to which log k is found.
_NEAR = 0.02
#: Is given a place from which a fit could go on.
Keep = Callable[[Start], None] | None


def fit_counts(
    problem: Problem,
    hyper: Hyper,
    *,
    overdispersed: bool = False,
    integrate: bool = False,
    start: Start | None = None,
    stage: Stage | None = None,
    keep: Keep = None,
    deadline: float = math.inf,
) -> tuple[Fit, Likelihood]:
    """Fit counts; return the fit, and the likelihood without data.

    Parameters
    ----------
    problem : Problem
    hyper : Hyper
    overdispersed : bool
        Learn the size of a negative binomial.
    integrate : bool
        Mix posteriors over hyperparameters; the size is that of the best ones, rows are each one's own.
    start : Start, optional
        Where to begin, at the nodes.
    stage : Stage, optional
    keep : callable, optional
        Given a place from which such a fit could go on, after every pass.
    deadline : float
        On `time.perf_counter`: the hyperparameters of areas are not sought after it. Passes go on until they settle.
    """
    stage = stage or Stage()
    if problem.renews:
        best, gain = _of_areas(problem, hyper, overdispersed, start, stage, keep, deadline)
    else:
        best, gain = _of_nodes(problem, hyper, overdispersed, start, stage, keep)
    about: Likelihood = Poisson.without_data({})
    if overdispersed and math.isfinite(best.k):
        about = NegativeBinomial.without_data({"k": best.k, "gain": gain})
    found, result = best.found, best.found.fit
    if integrate and hyper.free.any():
        if problem.renews:
            result = _renewed_mixture(problem, hyper, best, stage)
        else:
            again = Start(result.hyper_mean, result.hyper_cov, *found.seen)
            result = fit(found.last.engine, found.likelihood, hyper, integrate=True, start=again, stage=stage)
    if not found.settled:
        message = result.message if not result.converged else f"areas still change after {MOST_PASSES} passes"
        result = dataclasses.replace(result, converged=False, message=message)
        remedy = remedy_of(problem.nodes.scaling) if isinstance(problem, RowProblem) else ""
        warn(ConvergenceWarning(f"The fit did not converge: {message}.", remedy=remedy))
    elif best.held_at is not None:
        warn(
            ConvergenceWarning(
                f"The standard deviation of the log-intensity was held at {number(best.held_at, 3)}: with more, "
                "what is expected of the areas does not settle. Rates of areas differ more than a map can follow.",
                found=best.held_at,
                remedy=f"Look for areas with many events on little land, or give {option('exposure')}.",
            )
        )
    return result, about


def _of_areas(
    problem: Problem,
    hyper: Hyper,
    overdispersed: bool,
    start: Start | None,
    stage: Stage,
    keep: Keep,
    deadline: float,
) -> tuple[Best, float]:
    """Return the best fit of rows that are renewed, and what a negative binomial gains."""
    profile = Profile(problem, hyper, stage, keep, deadline)
    plain = profile.search(start)
    if not overdispersed or not plain.found.settled:
        return plain, 0.0
    best = profile.with_size(plain, _likely_size(problem, plain.found))
    return best, best.found.fit.elbo - plain.found.fit.elbo


def _of_nodes(
    problem: Problem, hyper: Hyper, overdispersed: bool, start: Start | None, stage: Stage, keep: Keep
) -> tuple[Best, float]:
    """Return the best fit of counts at the nodes, and what a negative binomial gains."""
    plain = settle(problem, hyper, math.inf, known=start, stage=stage, keep=keep)
    if not overdispersed:
        return Best(plain, math.inf), 0.0
    best = _learn_k(problem, hyper, plain, stage, keep)
    return best, best.found.fit.elbo - plain.fit.elbo


def _renewed_mixture(problem: Problem, hyper: Hyper, best: Best, stage: Stage) -> Fit:
    """Return a mixture over hyperparameters in which every posterior has rows of its own."""
    mode = best.found.fit
    grid = hyper_grid(mode.hyper_mean, mode.hyper_cov, hyper)
    found = [best.found]
    for at in grid[1:]:
        held = dataclasses.replace(hyper, start=at.theta, lower=at.theta, upper=at.theta)
        found.append(settle(problem, held, best.k, before=best.found, stage=stage))
    scores = [one.fit.elbo + hyper.log_prior(at.theta)[0] for at, one in zip(grid, found, strict=True)]
    weights = grid_weights(grid, scores)
    states: list[Any] = [one.fit.states[0] for one in found]
    mixture = tuple(
        dataclasses.replace(state, weight=float(w)) for state, w in zip(states, weights, strict=True)
    )
    return dataclasses.replace(mode, states=mixture)


def _likely_size(problem: Problem, plain: Settled) -> float:
    """Return log k at which the counts are most likely, given the posterior of Poisson counts."""

    def loss(log_k: float) -> float:
        likelihood = problem.likelihood(plain.last.exposure, math.exp(log_k))
        return -float(likelihood.expected(*plain.seen).value.sum())

    bounds = math.log(SMALLEST_K), math.log(LARGEST_K)
    return float(minimize_scalar(loss, bounds=bounds, method="bounded").x)


def _learn_k(problem: Problem, hyper: Hyper, plain: Settled, stage: Stage, keep: Keep) -> Best:
    """Return the fit with the size at which the bound is highest."""
    found: dict[float, Settled] = {}
    latest = plain

    def slope(log_k: float) -> float:
        nonlocal latest
        latest = found[log_k] = settle(problem, hyper, math.exp(log_k), before=latest, stage=stage, keep=keep)
        return float(latest.likelihood.by_log_k(*latest.seen))

    low, high = math.log(SMALLEST_K), math.log(LARGEST_K)
    there = _bracket(slope, _likely_size(problem, plain), low, high)
    if there is not None:
        brentq(slope, *there, xtol=_NEAR, rtol=1e-3, maxiter=12, disp=False)
    log_k = max(found, key=lambda at: found[at].fit.elbo)
    return Best(found[log_k], math.exp(log_k))


def _bracket(
    slope: Callable[[float], float], here: float, low: float, high: float
) -> tuple[float, float] | None:
    """Return two places between which a slope changes its sign, from one on; None if it leads to a bound."""
    sign, step = np.sign(slope(here)), 0.5
    while sign:
        there = float(np.clip(here + sign * step, low, high))
        if there == here:
            return None
        if np.sign(slope(there)) != sign:
            return min(here, there), max(here, there)
        here, step = there, 2.0 * step
    return None
