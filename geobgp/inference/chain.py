"""The engine of features in time: Gaussian posteriors over the weights of every period, a chain of blocks.

Whitened weights z(t) of all periods have the prior precision Q of `Dynamics`, and the posterior precision
H = Q + Oᵀ W O, which is block-tridiagonal: a block of M weights for each period (the features' and the level's), joined
to the next one by a diagonal. The linear predictor of an observation in period t is

    η = Σ_j e φ_j s_j z_j(t) + level_sd · z_level(t) + x β,

with the same e, which makes the prior even, in every period. Fixed effects border the chain, as they do in space.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from geobgp.inference import conjugate
from geobgp.inference.chain_state import ChainState
from geobgp.inference.dense import FeatureVariance
from geobgp.inference.dynamics import Dynamics, Transition
from geobgp.inference.engine import Engine, Sites, Solution, Solve
from geobgp.inference.features import PartedFeatures
from geobgp.inference.period_rows import NodeRowsAt, PeriodRows, in_threads
from geobgp.inference.states import hyper_numbers
from geobgp.linalg.tridiagonal import Tridiagonal
from geobgp.prior.harmonic import HarmonicBasis
from geobgp.prior.kernels import Kernel
from geobgp.prior.scaling import Scaling

#: Variances times precisions below which a Newton step can do with bounds, and the variances themselves.
_SMALL = 0.2


@dataclass(frozen=True, eq=False)
class Setting:
    """What a chain of posteriors is about: the same for all its engines and states.

    Attributes
    ----------
    basis : HarmonicBasis
    kernel : Kernel
    scaling : "natural" or "even"
    columns : (n_nodes, k) or (T, n_nodes, k) array
        Intercept and covariates at the nodes, the same in every period or of each.
    season : (T, q) array
        Fixed effects that differ by period alone, after those.
    fixed_sd : (k + q,) array
    centre : float
        Constant added to every linear predictor.
    steps : (T - 1,) array
        Distances between neighbouring periods, in periods.
    per_year : float
        Periods of a yearly cycle; NaN where there is none.
    """

    basis: HarmonicBasis
    kernel: Kernel
    scaling: Scaling
    columns: np.ndarray = field(repr=False)
    season: np.ndarray = field(repr=False)
    fixed_sd: np.ndarray = field(repr=False)
    centre: float
    steps: np.ndarray = field(repr=False)
    per_year: float = float("nan")

    @property
    def n_periods(self) -> int:
        """T."""
        return len(self.steps) + 1

    def design(self, t: int) -> np.ndarray:
        """Return all fixed effects of a period at the nodes, (n_nodes, k + q)."""
        own = self.columns if self.columns.ndim == 2 else self.columns[t]
        return np.column_stack([own, np.broadcast_to(self.season[t], (len(own), self.season.shape[1]))])


class ChainEngine(Engine):
    """Posteriors over the weights of features in every period.

    Parameters
    ----------
    setting : Setting
    dynamics : Dynamics
        For the features of `order`.
    rows : callable
        From log ℓ to the rows of all observations.
    order : (m,) int array
        Which features of the basis these are.
    design : (N, k) array
        Fixed effects at the observations.
    """

    def __init__(
        self,
        setting: Setting,
        dynamics: Dynamics,
        rows: Callable[[float], PeriodRows],
        order: np.ndarray,
        design: np.ndarray,
    ) -> None:
        super().__init__(design, setting.fixed_sd, None)
        self.setting, self.dynamics, self.rows_at, self.order = setting, dynamics, rows, order

    def missed_share(self, theta: np.ndarray) -> float:
        """Return the share of the prior variance beyond the last feature."""
        return self.setting.basis.missed_share(self.setting.kernel, float(np.exp(theta[0])))

    def prior_at(self, theta: np.ndarray) -> ChainPrior:
        """Return the weights' prior at θ."""
        return ChainPrior(self, theta)

    def means(self, theta: np.ndarray, sites: Sites, precision: np.ndarray) -> Solve:
        """Return the way from natural means to posterior means, for precisions near those of `sites`."""
        return conjugate.means(self, self.solve(theta, sites), precision)

    def rehearsals(self) -> Iterator[ChainEngine]:
        """Yield an engine with about a quarter of the features; before it one with a sixteenth, if that is enough."""
        if not isinstance(self.rows_at, NodeRowsAt):
            return
        features, eigenvalues = self.rows_at.features, self.dynamics.eigenvalues
        ranked = np.sort(eigenvalues)
        lowest = int(np.sum(ranked <= 0.0))
        for part in (16, 4):
            few = lowest + (len(ranked) - lowest) // part
            if few - lowest >= 24:
                some = features.truncate(eigenvalues <= ranked[few - 1])
                yield node_engine(self.setting, self.dynamics, some, self.order[some.order], self.design)

    def with_dynamics(self, dynamics: Dynamics) -> ChainEngine:
        """Return the same with other dynamics."""
        return ChainEngine(self.setting, dynamics, self.rows_at, self.order, self.design)

    def _gradient(self, s: Solution) -> np.ndarray:
        out = super()._gradient(s)
        prior: ChainPrior = s.prior  # type: ignore[assignment]
        moved, tied = prior.moved(s.z), prior.moved(s.coupling)
        if moved is not None and tied is not None:
            # The rows move with ℓ: f = e g, d log e / d log ℓ = -slope.
            w = s.sites.precision
            rest = self.design - prior.apply(s.coupling)
            with_f = s.factor.moved - np.einsum("ij,jk,ik->i", tied, s.beta_cov, rest)
            out[0] -= float((s.sites.natural - w * s.moments.mean) @ moved - w @ with_f)
        return out

    def state(self, theta: np.ndarray, sites: Sites, weight: float) -> ChainState:  # type: ignore[override]
        """Return the posterior as a state that stands by itself."""
        s = self.solve(theta, sites)
        prior: ChainPrior = s.prior  # type: ignore[assignment]
        count, size = prior.shape
        nodes = len(self.design) == count * self.setting.basis.domain.n_nodes
        moments = s.moments
        level = self.dynamics.level
        set_ = self.setting
        return ChainState(
            **hyper_numbers(theta, weight, None),
            centre=set_.centre,
            tau=float(np.exp(theta[2])),
            level_sd=float(np.exp(theta[3])) if level else float("nan"),
            level_tau=float(np.exp(theta[4])) if level else float("nan"),
            dynamics=self.dynamics.kind,
            basis=set_.basis,
            even=set_.scaling == "even",
            columns=set_.columns,
            season=set_.season,
            per_year=set_.per_year,
            clock=np.concatenate([[0.0], np.cumsum(set_.steps)]),
            log_tau=self.dynamics.log_tau(theta)[0],
            scale=prior.scale,
            mean=s.z.reshape(count, size),
            coupling=s.coupling.reshape(count, size, -1),
            beta=s.beta,
            beta_cov=s.beta_cov,
            chain=Tridiagonal.from_inverses(s.factor.chain.inverses, s.factor.chain.between),
            known=(moments.mean + set_.centre, moments.variance) if nodes else None,
        )


class ChainPrior:
    """The weights' prior at one θ, as the observations see it: see `PriorAt`."""

    def __init__(self, engine: ChainEngine, theta: np.ndarray) -> None:
        d = engine.dynamics
        self.rows = engine.rows_at(float(theta[0]))
        log_s, self._first, _ = d.kernel.log_density(d.eigenvalues, theta)
        self.transition: Transition = d.at(theta)
        self.level = d.level
        self.scale = np.append(np.exp(0.5 * log_s), np.exp(theta[3])) if d.level else np.exp(0.5 * log_s)
        self.shape = len(self.rows.ends) - 1, len(self.scale)

    def _blocks(self, weights: np.ndarray) -> np.ndarray:
        return weights.reshape(*self.shape, *(weights.shape[1:] or (1,)))

    def apply(self, weights: np.ndarray) -> np.ndarray:
        """Return O z."""
        u = self._blocks(weights) * self.scale[:, None]
        out = self.rows.apply(u[:, : self.rows.m])
        if self.level:
            out += np.repeat(u[:, -1], np.diff(self.rows.ends), axis=0)
        return out.reshape(len(out), *weights.shape[1:])

    def project(self, rows: np.ndarray) -> np.ndarray:
        """Return Oᵀ r."""
        values = rows.reshape(len(rows), *(rows.shape[1:] or (1,)))
        out = self.rows.project(values)
        if self.level:
            sums = (
                np.add.reduceat(values, self.rows.ends[:-1], axis=0) * (np.diff(self.rows.ends) > 0)[:, None]
            )
            out = np.concatenate([out, sums[:, None]], axis=1)
        out *= self.scale[:, None]
        return out.reshape(self.shape[0] * self.shape[1], *rows.shape[1:])

    def moved(self, weights: np.ndarray) -> np.ndarray | None:
        """Return minus the derivative of O in log ℓ, scale held, times z; None if O does not move so."""
        out = self.rows.moved((self._blocks(weights) * self.scale[:, None])[:, : self.rows.m])
        return None if out is None else out.reshape(len(out), *weights.shape[1:])

    def times(self, weights: np.ndarray) -> np.ndarray:
        """Return Q z."""
        return self.transition.times(self._blocks(weights)).reshape(weights.shape)

    def square(self, weights: np.ndarray) -> float:
        """Return zᵀ Q z."""
        return float(weights @ self.times(weights))

    def factorise(self, precision: np.ndarray, factor: float) -> ChainFactor:
        """Return the factor of H."""
        return ChainFactor(self, factor * precision)

    def gradient(
        self, weights: np.ndarray, factor: ChainFactor, coupling: np.ndarray, beta_cov: np.ndarray
    ) -> np.ndarray:
        """Return the derivatives of the site objective in the prior's parameters, rows held."""
        z, tied = self._blocks(weights)[:, :, 0], self._blocks(coupling)
        wide = tied @ beta_cov
        own = z**2 + factor.own + np.einsum("tmk,tmk->tm", wide, tied)
        lagged = z[1:] * z[:-1] + factor.lagged + np.einsum("tmk,tmk->tm", wide[1:], tied[:-1])
        by_log_s, by_log_tau = self.transition.gradient(own, lagged)
        m = self.rows.m
        by_length = by_log_s[:m] @ self._first + by_log_tau @ self.transition.by_length
        out = [float(by_length), 2.0 * float(by_log_s[:m].sum()), float(by_log_tau[:m].sum())]
        if self.level:
            out += [2.0 * float(by_log_s[m]), float(by_log_tau[m])]
        return np.array(out)


class ChainFactor:
    """The elimination of H, and what of its inverse is asked for."""

    def __init__(self, prior: ChainPrior, precision: np.ndarray) -> None:
        self._prior, rows = prior, prior.rows
        count, size = prior.shape
        m, level = rows.m, prior.level
        scale = prior.scale
        own, between = prior.transition.precision()
        blocks = np.zeros((count, size, size))
        rows.gram(precision, scale, blocks)
        if level:
            blocks[:, :, m] = prior.project(precision).reshape(count, size) * scale[m]
        #: Gram matrices of the features that answer to the sites, and which these are.
        telling = rows.fewer()[1]
        self._telling = np.append(telling, m) if level else telling
        self._few = blocks[:, self._telling[:, None], self._telling].copy()
        blocks[:, np.arange(size), np.arange(size)] += own
        self.chain = Tridiagonal(blocks, between)
        del blocks
        self.log_det = self.chain.log_det - prior.transition.log_det()
        #: Diagonals of the inverse's blocks, (T, M), and of those next to them, (T - 1, M).
        self.own, self.lagged = np.empty((count, size)), np.empty((count - 1, size))
        self._variances, self.moved = np.empty(rows.ends[-1]), np.empty(rows.ends[-1])

        def use(t: int, block: np.ndarray) -> None:
            self.own[t] = np.diagonal(block)
            if t > 0:
                self.lagged[t - 1] = self.chain.lag_diagonal(t, block)
            self._variances[rows.ends[t] : rows.ends[t + 1]], self.moved[rows.ends[t] : rows.ends[t + 1]] = (
                _seen(rows, scale, level, t, block)
            )

        self.chain.marginals(use)

    def solve(self, weights: np.ndarray) -> np.ndarray:
        """Return H⁻¹ b."""
        return self.chain.solve(weights)

    def variances(self) -> np.ndarray:
        """Return the variances of the linear predictor at the observations, given the fixed effects."""
        return self._variances.copy()

    def spread(self, precision: np.ndarray) -> Solve:
        """Return multiplication with V∘V, lumped: the diagonal of V W V, or that of V where it is small."""
        lumped = self._variances
        if float(np.max(lumped * precision, initial=0.0)) > _SMALL**2 and lumped.max(initial=0.0) > _SMALL:
            lumped = self._lumped
        return lambda weights: (
            np.divide(weights, precision, out=np.zeros_like(precision), where=precision > 0) * lumped
        )

    @cached_property
    def _lumped(self) -> np.ndarray:
        """The diagonal of V W V: how V answers when all sites are made stiffer, by differences.

        Features of high eigenvalues hardly answer, and are left out.
        """
        own, between = self._prior.transition.precision()
        prior, at, step = self._prior, self._telling, 1e-3
        change = np.zeros((len(own), len(at), len(at)))
        for sign in (-1.0, 1.0):
            blocks = (1.0 + sign * step) * self._few
            blocks[:, np.arange(len(at)), np.arange(len(at))] += own[:, at]

            def use(t: int, block: np.ndarray, sign: float = sign) -> None:
                change[t] -= sign * block / (2.0 * step)

            Tridiagonal(blocks, between[:, at]).marginals(use)
        # A little more than there is, so that rounding leaves it positive definite.
        change[:, np.arange(len(at)), np.arange(len(at))] += 1e-8
        out, ends, rows = np.empty_like(self._variances), prior.rows.ends, prior.rows.fewer()[0]

        def work(mine: np.ndarray) -> None:
            for t in mine:
                out[ends[t] : ends[t + 1]] = _seen(rows, prior.scale[at], prior.level, int(t), change[t])[0]

        in_threads(len(own), work)
        return np.maximum(out, 0.0)


def _seen(
    rows: PeriodRows, scale: np.ndarray, level: bool, t: int, block: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the variances of η in period t, from the weights' covariance; and their covariances with what moves."""
    m, s = rows.m, scale[: rows.m]
    covariance = (s[:, None] * block[:m, :m]) * s
    tied = scale[m] * s * block[:m, m] if level else np.zeros(m)
    variance, with_level, moved = rows.spread(t, covariance, tied)
    own = float(block[m, m] * scale[m] ** 2) if level else 0.0
    return variance + 2.0 * with_level + own, moved


def node_engine(
    setting: Setting,
    dynamics: Dynamics,
    features: PartedFeatures,
    order: np.ndarray,
    design: np.ndarray | None = None,
) -> ChainEngine:
    """Return the engine of counts at all nodes, for features that are those of `order` among all of the basis."""
    values = setting.basis.eigenvalues[order]
    variance = FeatureVariance(features, values, setting.kernel) if setting.scaling == "even" else None
    rows = NodeRowsAt(features, setting.n_periods, variance, values)
    if design is None:
        design = np.concatenate([setting.design(t) for t in range(setting.n_periods)])
    return ChainEngine(setting, replace(dynamics, eigenvalues=values), rows, order, design)
