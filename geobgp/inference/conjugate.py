"""Conjugate gradients for posterior means under sites that differ a little from those that were factorised."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from geobgp.inference.engine import Engine, Solution, Solve

#: Passes after which the means are near enough, and the share of the residual's size at which they are.
_MOST, _ENOUGH = 50, 1e-4


def means(engine: Engine, s: Solution, precision: np.ndarray) -> Solve:
    """Return the way from natural means to posterior means, for precisions near those of a solution's sites.

    The factor of the solution preconditions: a few passes over the features.
    """
    e = np.ones(len(precision)) if s.even is None else s.even
    m, design = len(s.z), engine.design
    fixed_precision = engine.fixed_precision_at(s.theta)
    tie = s.prior.project(e[:, None] * (s.sites.precision[:, None] * design))

    def seen(x: np.ndarray) -> np.ndarray:
        return e * s.prior.apply(x[:m]) + design @ x[m:]

    def back(rows: np.ndarray) -> np.ndarray:
        return np.concatenate([s.prior.project(e * rows), design.T @ rows])

    def product(x: np.ndarray) -> np.ndarray:
        return np.concatenate([s.prior.times(x[:m]), fixed_precision * x[m:]]) + back(precision * seen(x))

    def solve(x: np.ndarray) -> np.ndarray:
        z = s.factor.solve(x[:m])
        beta = s.beta_cov @ (x[m:] - tie.T @ z)
        return np.concatenate([z - s.coupling @ beta, beta])

    def mean(natural: np.ndarray) -> np.ndarray:
        residual = back(natural)
        ahead = solve(residual)
        x, direction = np.zeros_like(ahead), ahead
        size = first = float(residual @ ahead)
        for _ in range(_MOST):
            if size <= _ENOUGH * first:
                break
            image = product(direction)
            curve = float(direction @ image)
            if not curve > 0.0:  # too small for its square to be told from zero
                break
            step = size / curve
            x = x + step * direction
            residual = residual - step * image
            ahead = solve(residual)
            size, before = float(residual @ ahead), size
            direction = ahead + (size / before) * direction
        return seen(x)

    return mean
