"""A model in time, written out: every weight of every period in one dense Gaussian."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from geobgp.inference.chain import ChainEngine, ChainSetting, Dynamics, node_engine, season_columns
from geobgp.inference.engine import PartedFeatures


def engine_of(
    basis, kernel, n_periods, *, kind="separable", level=True, scaling="even", columns=None, steps=None,
    per_year=np.nan,
) -> ChainEngine:  # fmt: skip
    """Return the engine of counts at all nodes."""
    columns = np.ones((basis.domain.n_nodes, 1)) if columns is None else columns
    steps = np.ones(n_periods - 1) if steps is None else np.asarray(steps, float)
    season = season_columns(np.r_[0.0, np.cumsum(steps)], per_year)
    fixed_sd = np.full(columns.shape[-1] + season.shape[1], 10.0)
    setting = ChainSetting(basis, kernel, scaling, columns, season, fixed_sd, 0.3, steps, per_year)
    features = PartedFeatures(*basis.by_part(None))
    dynamics = Dynamics(kind, kernel, basis.eigenvalues[features.order], steps, level)
    return node_engine(setting, dynamics, features, features.order)


@dataclass
class Dense:
    """The whole model as one Gaussian: weights of the basis by period, levels, fixed effects."""

    engine: ChainEngine
    theta: np.ndarray
    rows: np.ndarray | None = None

    def __post_init__(self) -> None:
        set_, level = self.engine.setting, self.engine.dynamics.level
        basis, count = set_.basis, set_.n_periods
        length, sd, tau = np.exp(self.theta[:3])
        kernel = set_.kernel.with_parameters(length, sd)
        s = kernel.spectral_density(np.sqrt(basis.eigenvalues))
        e = np.ones(basis.domain.n_nodes)
        if set_.scaling == "even":
            e = sd / np.sqrt(basis.features**2 @ s)
        clock = np.r_[0.0, np.cumsum(set_.steps)]
        gap = np.abs(clock[:, None] - clock)
        taus = np.full(basis.m, tau)
        if self.engine.dynamics.kind == "diffusive":
            taus = tau / (1.0 + basis.eigenvalues * length**2 / kernel.roughness)
        phi = e[:, None] * basis.features
        n, m = phi.shape
        size = m + level
        self.prior = np.zeros((count * size, count * size))
        for j in range(m):
            at = j + size * np.arange(count)
            self.prior[np.ix_(at, at)] = s[j] * np.exp(-gap / taus[j])
        if level:
            at = m + size * np.arange(count)
            self.prior[np.ix_(at, at)] = np.exp(2 * self.theta[3]) * np.exp(-gap / np.exp(self.theta[4]))
        block = np.c_[phi, np.ones(n)] if level else phi
        self.design = np.kron(np.eye(count), block)
        fixed = np.concatenate([set_.design(t) for t in range(count)])
        self.whole = np.c_[self.design, fixed]
        k = fixed.shape[1]
        cov = np.zeros((len(self.prior) + k,) * 2)
        cov[:-k, :-k] = self.prior
        cov[-k:, -k:] = np.diag(set_.fixed_sd**2)
        self.cov_weights = cov
        self.cov = self.whole @ cov @ self.whole.T

    def posterior(self, sites):
        """Return mean and covariance of η, and log N evidence of the sites (its value in `objective`)."""
        w, b = sites.precision, sites.natural
        inner = np.linalg.inv(self.cov_weights) + self.whole.T @ (w[:, None] * self.whole)
        cov = self.whole @ np.linalg.solve(inner, self.whole.T)
        mean = cov @ b
        log_det = np.linalg.slogdet(np.eye(len(w)) + self.cov * w)[1]
        z = np.linalg.solve(inner, self.whole.T @ b)
        square = z @ np.linalg.solve(self.cov_weights, z)
        divergence = 0.5 * (square - w @ np.diag(cov) + log_det)
        return mean, cov, divergence, 0.5 * b @ mean - 0.5 * log_det


def moved(theta: np.ndarray, i: int, by: float) -> np.ndarray:
    out = theta.copy()
    out[i] += by
    return out


__all__ = ["Dense", "engine_of", "moved", "replace"]
