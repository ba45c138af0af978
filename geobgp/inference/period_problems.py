"""What is fitted in time, pass by pass: counts of every period at the nodes, or by area."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy import sparse

from geobgp.data.effects import Linearised
from geobgp.inference.chain import ChainEngine, Setting, node_engine
from geobgp.inference.count_likelihoods import NegativeBinomial, SuppressedCounts
from geobgp.inference.dynamics import Dynamics, DynamicsName
from geobgp.inference.features import PartedFeatures
from geobgp.inference.fixed_point import Moments
from geobgp.inference.likelihoods import Likelihood, Poisson
from geobgp.inference.period_rows import AreaRows
from geobgp.inference.renewal import Observed, Pass, broken_down, row_exposures
from geobgp.inference.rows import NodeFeatures, row_weights


def dynamics_of(setting: Setting, kind: DynamicsName, level: bool) -> Dynamics:
    """Return the dynamics of all features, in the order of their parts, and of the level."""
    order = PartedFeatures(*setting.basis.by_part(None)).order
    return Dynamics(kind, setting.kernel, setting.basis.eigenvalues[order], setting.steps, level)


def _likelihood(
    counts: np.ndarray, exposure: np.ndarray, centre: float, k: float
) -> Poisson | NegativeBinomial:
    if math.isinf(k):
        return Poisson(counts, exposure, centre)
    return NegativeBinomial(counts, exposure, centre, k)


@dataclass(frozen=True, eq=False)
class NodeChain:
    """Counts at the nodes in every period: one engine for all passes.

    Parameters
    ----------
    setting : Setting
    dynamics : Dynamics
    counts, exposure : (T, n_nodes) arrays
    """

    setting: Setting
    dynamics: Dynamics
    counts: np.ndarray = field(repr=False)
    exposure: np.ndarray = field(repr=False)
    engine: ChainEngine = field(init=False, repr=False)
    renews = False

    def __post_init__(self) -> None:
        features = PartedFeatures(*self.setting.basis.by_part(None))
        made = node_engine(self.setting, self.dynamics, features, features.order)
        object.__setattr__(self, "engine", made)

    @property
    def centre(self) -> float:
        """Constant added to every linear predictor."""
        return self.setting.centre

    @property
    def pooled(self) -> tuple[np.ndarray, np.ndarray]:
        """Counts and exposures of all periods together."""
        return self.counts.sum(axis=0), self.exposure.sum(axis=0)

    def with_dynamics(self, kind: DynamicsName) -> NodeChain:
        """Return the same with other dynamics; the features and the design are not copied."""
        out = object.__new__(NodeChain)
        dynamics = replace(self.dynamics, kind=kind)
        engine = self.engine.with_dynamics(replace(self.engine.dynamics, kind=kind))
        for name, value in (vars(self) | {"dynamics": dynamics, "engine": engine}).items():
            object.__setattr__(out, name, value)
        return out

    def about(self, at: Linearised) -> NodeChain:
        """Return the same with linearised columns of fixed effects, and what these leave in the exposure."""
        if at.offset is None:
            return self
        setting = replace(self.setting, columns=at.columns)
        return NodeChain(setting, self.dynamics, self.counts, self.exposure * np.exp(at.offset))

    def stretch(self, count: int) -> NodeChain:
        """Return the same for so many periods in the middle."""
        first = (len(self.counts) - count) // 2
        some, set_ = slice(first, first + count), self.setting
        columns = set_.columns if set_.columns.ndim == 2 else set_.columns[some]
        steps = set_.steps[first : first + count - 1]
        setting = replace(set_, columns=columns, season=set_.season[some], steps=steps)
        dynamics = replace(self.dynamics, steps=steps)
        return NodeChain(setting, dynamics, self.counts[some], self.exposure[some])

    def at(self, state: Any | None, moments: Moments | None) -> Pass:
        """Return the one pass that there is."""
        zero = np.zeros(self.counts.size)
        return Pass(self.engine, self.exposure.ravel(), (zero, zero) if moments is None else moments)

    def likelihood(self, exposure: np.ndarray, k: float) -> Likelihood:
        """Return the likelihood of all counts."""
        return _likelihood(self.counts.ravel(), exposure, self.centre, k)


@dataclass(frozen=True, eq=False)
class AreaChain:
    """Counts by area in every period: the rows of each follow from its posterior.

    Parameters
    ----------
    setting : Setting
    dynamics : Dynamics
    observed : sequence of Observed
        Of each period.
    """

    setting: Setting
    dynamics: Dynamics
    observed: tuple[Observed, ...] = field(repr=False)

    @property
    def centre(self) -> float:
        """Constant added to every linear predictor."""
        return self.setting.centre

    @property
    def renews(self) -> bool:
        """Whether rows change from pass to pass: not where every count is of one node."""
        return not all(one.single for one in self.observed)

    @property
    def pooled(self) -> tuple[np.ndarray, sparse.csr_array]:
        """Counts and exposures of all periods, one after the other."""
        return self._of("counts"), sparse.csr_array(sparse.vstack([one.exposure for one in self.observed]))

    def with_dynamics(self, kind: DynamicsName) -> AreaChain:
        """Return the same with other dynamics."""
        return replace(self, dynamics=replace(self.dynamics, kind=kind))

    def about(self, at: Linearised) -> AreaChain:
        """Return the same with linearised columns of fixed effects, and what these leave in the exposure."""
        setting = replace(self.setting, columns=at.columns)
        return replace(self, setting=setting, observed=tuple(one.about(at) for one in self.observed))

    def at(self, state: Any | None, moments: Moments | None) -> Pass:
        """Return the rows w_i / W of every period and the exposures about them, at a posterior."""
        set_ = self.setting
        shape = set_.n_periods, set_.basis.domain.n_nodes
        mean, variance = (np.zeros(shape), np.zeros(shape)) if moments is None else moments
        mean, variance = mean.reshape(shape), variance.reshape(shape)
        made = [row_weights(one.exposure, mean[t], variance[t]) for t, one in enumerate(self.observed)]
        rows = [r for r, _ in made]
        row_mean = np.concatenate([r @ mean[t] for t, r in enumerate(rows)])
        seen = (row_mean, np.zeros(len(row_mean))) if state is None else state.moments_of(rows)
        log_total = np.concatenate([log for _, log in made])
        exposure = row_exposures(log_total, row_mean, seen[1], self._of("counts"), self.centre)
        if exposure is None:
            raise broken_down(float(variance.max()), set_.scaling)
        features = PartedFeatures(*set_.basis.by_part(None))
        design = np.concatenate([r @ set_.design(t) for t, r in enumerate(rows)])
        source = _AreaRowsAt(NodeFeatures(set_.basis, set_.kernel, set_.scaling), rows, features.order)
        engine = ChainEngine(set_, self.dynamics, source, features.order, design)
        return Pass(engine, exposure, seen, rows)

    def _of(self, name: str) -> np.ndarray:
        return np.concatenate([getattr(one, name) for one in self.observed])

    def likelihood(self, exposure: np.ndarray, k: float) -> Likelihood:
        """Return the likelihood of the counts about their rows."""
        hidden = self._of("hidden")
        told = _likelihood(self._of("counts"), exposure, self.centre, k)
        interval = next((one.interval for one in self.observed if one.hidden.any()), (0, 0))
        return SuppressedCounts(told, hidden, *interval) if hidden.any() else told


class _AreaRowsAt:
    """The rows of areas as a function of the lengthscale; the last ones are remembered."""

    def __init__(self, nodes: NodeFeatures, rows: list[sparse.csr_array], order: np.ndarray) -> None:
        self._nodes, self._rows = nodes, rows
        features = nodes.basis.features
        self._features = features if (np.diff(order) == 1).all() else features[:, order]
        self._kept: tuple[float, AreaRows] | None = None

    def __call__(self, log_length: float) -> AreaRows:
        if self._kept is None or self._kept[0] != log_length:
            self._kept = log_length, AreaRows(self._rows, self._features, self._nodes.even(log_length))
        return self._kept[1]
