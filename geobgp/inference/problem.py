"""Problems: what is to be fitted, at nodes, at places or in areas, in space or over periods."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from scipy import sparse

from geobgp.data.effects import Effects, Linearised
from geobgp.errors import DataError, option
from geobgp.inference.chain import (
    AreaRows,
    ChainEngine,
    ChainSetting,
    ChainState,
    Dynamics,
    DynamicsName,
    PlaceRowsAt,
    node_engine,
)
from geobgp.inference.dense import FeatureVariance, NodeFeatures, row_weights
from geobgp.inference.engine import Engine, PartedFeatures, State
from geobgp.inference.families import Likelihood, SuppressedCounts
from geobgp.inference.hyper import Hyper
from geobgp.inference.sparse import NodePrecision
from geobgp.prior.basis import Scaling
from geobgp.prior.full_rank import FullRank
from geobgp.text import number

if TYPE_CHECKING:
    from geobgp.prior.basis import Basis
    from geobgp.prior.kernels import Kernel

#: Means and variances.
Moments = tuple[np.ndarray, np.ndarray]
#: Log of a number of events that nobody can expect of an area.
_TOO_MANY = 200.0


def hyper_for(basis: Basis, kernel: Kernel, effects: Effects | None = None, **values: Any) -> Hyper:
    """Return the hyperparameters of a kernel on the domain of a basis, and of effects; see `Hyper.for_domain`."""
    domain = basis.domain
    hyper = Hyper.for_domain(kernel, float(np.sqrt(domain.node_areas.sum())), domain.cell_size, **values)
    return hyper if effects is None else hyper.with_effects(effects.learned, effects.rates)


def moments_less_centre(state: State, centre: float) -> Moments:
    """Return means, less the centre, and variances at the nodes, of all periods one after the other."""
    mean, variance = state.node_moments()
    return mean.ravel() - centre, variance.ravel()


class Pass(NamedTuple):
    """What is fitted in one pass: an engine, the size of each observation, and the rows if there are any."""

    engine: Engine
    size: np.ndarray
    start: Moments
    rows: Any = None


class Problem(ABC):
    """What is to be fitted, pass by pass.

    Attributes
    ----------
    family : Likelihood
        Of the observations, without them.
    centre : float
        Constant added to every linear predictor.
    """

    family: Likelihood

    centre: Any

    @property
    def renews(self) -> bool:
        """Whether rows change from pass to pass."""
        return False

    @abstractmethod
    def at(self, state: State | None, moments: Moments | None) -> Pass:
        """Return the pass that follows a posterior, of which rows are made with these moments at the nodes."""

    @abstractmethod
    def about(self, at: Linearised) -> Self:
        """Return the same with linearised columns of fixed effects, and what these leave in the size."""

    @abstractmethod
    def likelihood(self, size: np.ndarray, family: Likelihood) -> Likelihood:
        """Return the likelihood of the observations in a family."""

    @abstractmethod
    def seen(self, state: Any, last: Pass) -> Moments:
        """Return mean, less the centre, and variance at the observations, under the posterior of a pass."""

    @property
    @abstractmethod
    def pooled(self) -> tuple[np.ndarray, Any]:
        """What was counted, and the size of it by node: (n_nodes,), or a row for each count."""

    @abstractmethod
    def content(self) -> list[np.ndarray]:
        """Return the arrays of what was observed."""

    @property
    def remedy(self) -> str:
        """What to do where it does not settle."""
        return ""


@dataclass(frozen=True, eq=False)
class PlaceProblem(Problem):
    """Observations of the linear predictor at nodes, of all periods one after the other, or at places: one engine.

    Parameters
    ----------
    engine : Engine
        At the observations.
    values : (n,) array
    size : (n,) array
        Exposure of counts, numbers of those tested.
    family : Likelihood
    centre : float
    places : (n, 2) array or (n,) int array, optional
        Coordinates, or nodes, if these are not all nodes in turn.
    period : (n,) int array, optional
        Of the observations at places, if these are of several periods: those of one after those of another.
    """

    engine: Engine
    values: np.ndarray = field(repr=False)
    size: np.ndarray = field(repr=False)
    family: Likelihood
    centre: float = 0.0
    places: np.ndarray | None = None
    period: np.ndarray | None = None

    def at(self, state: State | None, moments: Moments | None) -> Pass:
        """Return the one pass that there is."""
        nothing = np.zeros(len(self.values)), np.zeros(len(self.values))
        start = moments or nothing
        if self.places is not None:
            start = nothing if state is None else self.seen(state, None)
        return Pass(self.engine, self.size, start)

    def about(self, at: Linearised) -> Self:
        """Return the same with linearised columns."""
        if at.offset is None:
            return self
        assert self.places is None, "levels that share a node are of nodes"
        size = self.size * np.exp(np.broadcast_to(at.offset, (self.n_periods, at.offset.shape[-1])).ravel())
        return replace(self, engine=self.engine.with_columns(at.columns), size=size)

    def likelihood(self, size: np.ndarray, family: Likelihood) -> Likelihood:
        """Return the likelihood."""
        return family.of(self.values, size, self.centre)

    def seen(self, state: Any, last: Pass | None) -> Moments:
        """Return mean, less the centre, and variance at the observations."""
        if self.places is None:
            return moments_less_centre(state, self.centre)
        if self.period is None:
            mean, variance = state.moments_at(self.places, self.engine.design)
        else:
            columns = self.engine.design[:, : self.setting.columns.shape[-1]]
            mean, variance = state.moments_over(self.places, self.period, columns)
        return mean - self.centre, variance

    @property
    def pooled(self) -> tuple[np.ndarray, np.ndarray]:
        """What was counted at the nodes, and the exposure there, of all periods together."""
        shape = self.n_periods, -1
        return self.values.reshape(shape).sum(axis=0), self.size.reshape(shape).sum(axis=0)

    def content(self) -> list[np.ndarray]:
        """Return values and sizes, places and periods."""
        return [self.values, self.size, *(a for a in (self.places, self.period) if a is not None)]

    # -- over periods

    @property
    def chain(self) -> ChainEngine:
        """The engine, over periods."""
        assert isinstance(self.engine, ChainEngine), "not over periods"
        return self.engine

    @property
    def n_periods(self) -> int:
        """How many periods there are; one of a map."""
        return self.engine.setting.n_periods if isinstance(self.engine, ChainEngine) else 1

    @property
    def setting(self) -> ChainSetting:
        """What the model over periods is about."""
        return self.chain.setting

    @property
    def dynamics(self) -> Dynamics:
        """How features and level change from period to period."""
        return self.chain.dynamics

    def with_dynamics(self, kind: DynamicsName) -> Self:
        """Return the same with other dynamics; the features and the design are not copied."""
        return replace(self, engine=self.chain.with_dynamics(replace(self.dynamics, kind=kind)))

    def stretch(self, count: int) -> Self:
        """Return the same for so many periods in the middle."""
        first = (self.n_periods - count) // 2
        within = slice(first, first + count)
        shape = self.n_periods, -1
        values, size = (part.reshape(shape)[within].ravel() for part in (self.values, self.size))
        return replace(self, engine=self.chain.stretch(within), values=values, size=size)


@dataclass(frozen=True, eq=False)
class Observed:
    """What was counted, and of what.

    Attributes
    ----------
    counts : (n,) array
        Any number between the two of `interval` where it is hidden.
    exposure : (n, n_nodes) csr_array
        The exposure of every node behind each count.
    hidden : (n,) bool array
    interval : (int, int)
        Between which numbers hidden counts lie.
    """

    counts: np.ndarray
    exposure: sparse.csr_array
    hidden: np.ndarray
    interval: tuple[int, int] = (0, 0)

    @property
    def single(self) -> bool:
        """Whether every count is of one node."""
        return bool((np.diff(self.exposure.indptr) <= 1).all())

    def likelihood(self, size: np.ndarray, family: Likelihood, centre: float) -> Likelihood:
        """Return the likelihood of the counts, whose exposure about their rows is `size`."""
        return _likelihood(self.counts, size, self.hidden, self.interval, family, centre)

    def about(self, at: Linearised) -> Observed:
        """Return the same with what linearised columns leave in the exposure."""
        if at.offset is None:
            return self
        return replace(self, exposure=sparse.csr_array(self.exposure.multiply(np.exp(at.offset))))


def _likelihood(
    counts: np.ndarray,
    size: np.ndarray,
    hidden: np.ndarray,
    interval: tuple[int, int],
    family: Likelihood,
    centre: float,
) -> Likelihood:
    base: Any = family.of(counts, size, centre)
    return SuppressedCounts(base, hidden, *interval) if hidden.any() else base


def row_exposures(
    log_total: np.ndarray, row_mean: np.ndarray, row_variance: np.ndarray, counts: np.ndarray, centre: float
) -> np.ndarray | None:
    """Return the exposures about rows, with which they expect what their nodes do; None where that cannot be told."""
    with np.errstate(over="ignore", under="ignore"):
        exposure = np.exp(log_total - 0.5 * row_variance - row_mean)
    possible = np.isfinite(exposure) & (log_total + centre < _TOO_MANY)
    return exposure if (possible & ((exposure > 0) | (counts == 0))).all() else None


def remedy_of(scaling: Scaling) -> str:
    """Return what to do where areas do not settle."""
    if scaling == "natural":
        return f"Use {option('scaling', 'even')}: as wide on islets as elsewhere."
    return f"Give the lengthscale and sd of {option('kernel')}, or fewer features."


def broken_down(variance: float, scaling: Scaling) -> DataError:
    """Return the error of rows that expect nothing that can be told."""
    return DataError(
        "The fit broke down: some land within areas has a prior so wide (a standard deviation of the "
        f"log-intensity of {number(math.sqrt(variance), 2)}) that nothing can be expected of it.",
        option="scaling",
        found=math.sqrt(variance),
        remedy=remedy_of(scaling),
    )


def space_rows(
    basis: Basis, kernel: Kernel, scaling: Scaling, columns: np.ndarray, fixed_sd: np.ndarray, centre: float
) -> SpaceRows:
    """Return what engines of rows are made of in space, for features or at full resolution."""
    nodes: Any = NodePrecision if isinstance(basis, FullRank) else NodeFeatures
    return SpaceRows(nodes(basis, kernel, scaling), columns, fixed_sd, centre)


@dataclass(frozen=True, eq=False)
class SpaceRows:
    """What engines of rows are made of in space, of rows (n, n_nodes)."""

    nodes: NodeFeatures | NodePrecision
    columns: np.ndarray
    fixed_sd: np.ndarray
    centre: float

    @property
    def scaling(self) -> Scaling:
        """Even or natural."""
        return self.nodes.scaling

    @property
    def shape(self) -> tuple[int, int]:
        """One period, and the nodes."""
        return 1, len(self.columns)

    def engine(self, rows: Sequence[sparse.csr_array]) -> Engine:
        """Return the engine of rows."""
        return self.nodes.row_engine(rows[0], self.columns, self.fixed_sd, self.centre)

    def about(self, at: Linearised) -> Self:
        """Return the same with linearised columns."""
        return replace(self, columns=at.columns)

    def moments_of(self, state: Any, rows: Sequence[sparse.csr_array]) -> Moments:
        """Return mean and variance of the rows."""
        mean, variance = state.moments_of(rows[0])
        return mean, variance


@dataclass(frozen=True, eq=False)
class ChainRows:
    """What engines of rows are made of over periods, of rows of each."""

    setting: ChainSetting
    dynamics: Dynamics

    @property
    def centre(self) -> float:
        """Constant added to every linear predictor."""
        return self.setting.centre

    @property
    def scaling(self) -> Scaling:
        """Even or natural."""
        return self.setting.scaling

    @property
    def shape(self) -> tuple[int, int]:
        """Periods and nodes."""
        return self.setting.n_periods, self.setting.basis.domain.n_nodes

    def engine(self, rows: Sequence[sparse.csr_array]) -> Engine:
        """Return the engine of rows of each period."""
        set_ = self.setting
        features = PartedFeatures(*set_.basis.by_part(None))
        design = np.concatenate([r @ set_.design(t) for t, r in enumerate(rows)])
        source = _AreaRowsAt(NodeFeatures(set_.basis, set_.kernel, set_.scaling), list(rows), features.order)
        return ChainEngine(set_, self.dynamics, source, features.order, design)

    def about(self, at: Linearised) -> Self:
        """Return the same with linearised columns."""
        return replace(self, setting=replace(self.setting, columns=at.columns))

    def moments_of(self, state: ChainState, rows: Sequence[sparse.csr_array]) -> Moments:
        """Return mean and variance of the rows of all periods."""
        return state.moments_of(list(rows))


@dataclass(frozen=True, eq=False)
class AreaProblem(Problem):
    """Counts that are sums over nodes, of each period: the rows follow from the posterior.

    Parameters
    ----------
    prior : SpaceRows or ChainRows
    observed : tuple of Observed
        Of each period.
    family : Likelihood
    """

    prior: Any
    observed: tuple[Observed, ...] = field(repr=False)
    family: Likelihood

    @property
    def centre(self) -> float:
        """Constant added to every linear predictor."""
        return float(self.prior.centre)

    @property
    def renews(self) -> bool:
        """Whether rows change from pass to pass: not where every count is of one node."""
        return not all(one.single for one in self.observed)

    def at(self, state: Any | None, moments: Moments | None) -> Pass:
        """Return the rows w_i / W of every period and the exposures about them, at a posterior."""
        shape = self.prior.shape
        mean, variance = (np.zeros(shape), np.zeros(shape)) if moments is None else moments
        mean, variance = mean.reshape(shape), variance.reshape(shape)
        weights = [row_weights(one.exposure, mean[t], variance[t]) for t, one in enumerate(self.observed)]
        rows = [r for r, _ in weights]
        row_mean = np.concatenate([r @ mean[t] for t, r in enumerate(rows)])
        seen = (row_mean, np.zeros(len(row_mean))) if state is None else self.prior.moments_of(state, rows)
        log_total = np.concatenate([log for _, log in weights])
        exposure = row_exposures(log_total, row_mean, seen[1], self._of("counts"), self.centre)
        if exposure is None:
            raise broken_down(float(variance.max()), self.prior.scaling)
        return Pass(self.prior.engine(rows), exposure, seen, rows)

    def about(self, at: Linearised) -> Self:
        """Return the same with linearised columns."""
        return replace(self, prior=self.prior.about(at), observed=tuple(one.about(at) for one in self.observed))

    def likelihood(self, size: np.ndarray, family: Likelihood) -> Likelihood:
        """Return the likelihood of the counts about their rows."""
        interval = next((one.interval for one in self.observed if one.hidden.any()), (0, 0))
        return _likelihood(self._of("counts"), size, self._of("hidden"), interval, family, self.centre)

    def seen(self, state: Any, last: Pass) -> Moments:
        """Return mean, less the centre, and variance of the rows."""
        return self.prior.moments_of(state, last.rows)

    @property
    def pooled(self) -> tuple[np.ndarray, sparse.csr_array]:
        """Counts and exposures of all periods, one after the other."""
        return self._of("counts"), sparse.csr_array(sparse.vstack([one.exposure for one in self.observed]))

    def content(self) -> list[np.ndarray]:
        """Return counts and exposures."""
        arrays = []
        for one in self.observed:
            arrays += [one.counts, one.hidden, one.exposure.data, one.exposure.indices, one.exposure.indptr]
        return arrays

    def _of(self, name: str) -> np.ndarray:
        return np.concatenate([getattr(one, name) for one in self.observed])

    @property
    def remedy(self) -> str:
        """What to do where areas do not settle."""
        return remedy_of(self.prior.scaling)

    # -- over periods

    @property
    def setting(self) -> ChainSetting:
        """What the model over periods is about."""
        return self.prior.setting

    @property
    def dynamics(self) -> Dynamics:
        """How features and level change from period to period."""
        return self.prior.dynamics

    def with_dynamics(self, kind: DynamicsName) -> Self:
        """Return the same with other dynamics."""
        return replace(self, prior=replace(self.prior, dynamics=replace(self.dynamics, kind=kind)))


def node_chain_engine(setting: ChainSetting, dynamics: Dynamics) -> ChainEngine:
    """Return the engine of observations at all nodes in every period."""
    features = PartedFeatures(*setting.basis.by_part(None))
    return node_engine(setting, dynamics, features, features.order)


def place_chain_engine(
    setting: ChainSetting, dynamics: Dynamics, places: np.ndarray, period: np.ndarray, columns: np.ndarray | None
) -> ChainEngine:
    """Return the engine of observations at places, each of one period, those of one after those of another.

    Parameters
    ----------
    setting : ChainSetting
    dynamics : Dynamics
    places : (n, 2) array, or (n,) int array
        Coordinates on land, or nodes.
    period : (n,) int array
        In rising order.
    columns : (n, k) array, optional
        Intercept and covariates there; by default those of the nodes on whose land places lie.
    """
    basis, nodes = setting.basis, places
    if np.ndim(places) == 2:
        nodes = basis.domain.node_at(places)
    order = PartedFeatures(*basis.by_part(None)).order
    features = basis.features[nodes] if nodes is places else basis.evaluate(places)
    features = np.ascontiguousarray(features[:, order])
    variance = None
    if setting.scaling == "even":
        whole = PartedFeatures(len(features), [slice(None)], [features])
        variance = FeatureVariance(whole, basis.eigenvalues[order], setting.kernel)
    if columns is None:
        at = setting.columns
        columns = at[nodes] if at.ndim == 2 else at[period, nodes]
    design = np.column_stack([columns, setting.season[period]])
    ends = np.searchsorted(period, np.arange(setting.n_periods + 1))
    return ChainEngine(setting, dynamics, PlaceRowsAt(features, ends, variance), order, design)


def dynamics_of(setting: ChainSetting, kind: DynamicsName, level: bool) -> Dynamics:
    """Return the dynamics of all features, in the order of their parts, and of the level."""
    order = PartedFeatures(*setting.basis.by_part(None)).order
    return Dynamics(kind, setting.kernel, setting.basis.eigenvalues[order], setting.steps, level)


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
