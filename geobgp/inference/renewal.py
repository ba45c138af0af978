"""Renewal: fits in several passes, the rows of areas renewed at each posterior until they stay as they are.

Each pass is a whole fit that goes on from the last one, with its rows held. An area's row and offset follow from the
posterior of the pass before.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy import sparse

from geobgp.errors import DataError, GeobgpWarning, hearing, option
from geobgp.inference.count_likelihoods import NegativeBinomial, SuppressedCounts
from geobgp.inference.engine import Engine, State
from geobgp.inference.fit import Fit, Start, fit
from geobgp.inference.fixed_point import Anderson, Moments
from geobgp.inference.hyper import Hyper
from geobgp.inference.likelihoods import Likelihood, Poisson
from geobgp.inference.rows import NodeFeatures, RowEngine, row_weights
from geobgp.prior.scaling import Scaling
from geobgp.progress import Stage
from geobgp.text import number

#: Passes after which rows that still change are reported; change (in posterior sds, and relatively) that ends them; and
#: so many times it that will do where the bound, in nats, changes no more than that, or passes have come to an end.
MOST_PASSES, SETTLED, _WILL_DO = 40, 0.01, 10.0
#: Change of a posterior within a pass that is small enough: passes are mixed, which magnifies it.
_EXACT = 1e-5
#: Log of a number of events that nobody can expect of an area.
_TOO_MANY = 200.0


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


class Pass(NamedTuple):
    """What is fitted in one pass: an engine, the exposure of each observation about its row, and the rows if any."""

    engine: Engine
    exposure: np.ndarray
    start: Moments
    rows: Any = None


class Problem(Protocol):
    """What is to be fitted, pass by pass."""

    @property
    def centre(self) -> float:
        """Constant added to every linear predictor."""
        ...

    @property
    def renews(self) -> bool:
        """Whether rows change from pass to pass."""
        ...

    def at(self, state: State | None, moments: Moments | None) -> Pass:
        """Return the pass that follows a posterior, of which rows are made with these moments at the nodes."""
        ...

    def likelihood(self, exposure: np.ndarray, k: float) -> Likelihood:
        """Return the likelihood; k is infinite for Poisson counts."""
        ...


@dataclass(frozen=True, eq=False)
class NodeProblem:
    """Counts at the nodes: one engine for all passes."""

    engine: Engine
    counts: np.ndarray
    exposure: np.ndarray
    centre: float
    renews: bool = False

    def at(self, state: State | None, moments: Moments | None) -> Pass:
        """Return the one pass that there is."""
        zero = np.zeros(len(self.counts))
        return Pass(self.engine, self.exposure, (zero, zero) if moments is None else moments)

    def likelihood(self, exposure: np.ndarray, k: float) -> Likelihood:
        """Return the likelihood."""
        if math.isinf(k):
            return Poisson(self.counts, exposure, self.centre)
        return NegativeBinomial(self.counts, exposure, self.centre, k)


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


@dataclass(frozen=True, eq=False)
class RowProblem:
    """Counts that are sums over nodes: the rows follow from the posterior."""

    nodes: NodeFeatures
    observed: Observed
    columns: np.ndarray
    fixed_sd: np.ndarray
    centre: float

    @property
    def renews(self) -> bool:
        """Whether rows change from pass to pass: not where every count is of one node."""
        return not self.observed.single

    def at(self, state: Any | None, moments: Moments | None) -> Pass:
        """Return the rows w_i / W and the exposures about them, at a posterior."""
        n = self.columns.shape[0]
        mean, variance = (np.zeros(n), np.zeros(n)) if moments is None else moments
        rows, log_total = row_weights(self.observed.exposure, mean, variance)
        row_mean = rows @ mean
        seen = (row_mean, np.zeros(len(log_total))) if state is None else state.moments_of(rows)
        exposure = row_exposures(log_total, row_mean, seen[1], self.observed.counts, self.centre)
        if exposure is None:
            raise broken_down(float(variance.max()), self.nodes.scaling)
        engine = RowEngine(self.nodes, rows, self.columns, self.fixed_sd, self.centre)
        return Pass(engine, exposure, seen, rows)

    def likelihood(self, exposure: np.ndarray, k: float) -> Likelihood:
        """Return the likelihood of the counts about their rows."""
        o = self.observed
        told: Poisson | NegativeBinomial = Poisson(o.counts, exposure, self.centre)
        if not math.isinf(k):
            told = NegativeBinomial(o.counts, exposure, self.centre, k)
        return SuppressedCounts(told, o.hidden, *o.interval) if o.hidden.any() else told


@dataclass(frozen=True, eq=False)
class Settled:
    """A fit whose rows have settled.

    Attributes
    ----------
    fit : Fit
    last : Pass
        The last one.
    likelihood : Likelihood
        Of the counts, in the last pass.
    seen : Moments
        At the observations.
    settled : bool
        Whether fit and rows have.
    first : float
        The bound of the first pass, at rows of the fit before it.
    """

    fit: Fit
    last: Pass
    likelihood: Any
    seen: Moments
    settled: bool
    first: float


def settle(
    problem: Problem,
    hyper: Hyper,
    k: float,
    *,
    before: Settled | None = None,
    known: Start | None = None,
    stage: Stage,
    keep: Callable[[Start], None] | None = None,
    tolerance: float = SETTLED,
    most: int = MOST_PASSES,
) -> Settled:
    """Go through passes until rows and posterior stay as they are; the size k is held.

    Parameters
    ----------
    problem : Problem
    hyper : Hyper
        Where rows are renewed, all of it is held.
    k : float
        Size of a negative binomial, infinite for Poisson counts.
    before : Settled, optional
        At other hyperparameters, from which this one begins.
    known : Start, optional
        Where to begin otherwise, at the nodes.
    tolerance : float
        Change of a pass, in posterior standard deviations, that is small enough.
    most : int
        Passes.
    """
    state = None if before is None else before.fit.states[0]
    moments = None if state is None else _less_centre(state, problem.centre)
    if moments is None and known is not None:
        moments = known.mean, known.variance
    at = problem.at(state, moments)
    start = known
    if before is not None:
        start = Start(before.fit.hyper_mean, before.fit.hyper_cov, *at.start)
    elif known is not None:
        start = Start(known.theta, known.covariance, *at.start)
    passes, mixing, bounds, rounds, seconds = 0, Anderson(), list[float](), 0, dict[str, float]()
    best: tuple[float, Fit, Pass, Likelihood] | None = None
    while True:
        likelihood = problem.likelihood(at.exposure, k)
        heard: list[GeobgpWarning] = []
        with hearing(heard.append):
            exact = _EXACT if problem.renews else None
            found = fit(at.engine, likelihood, hyper, start=start, stage=stage, tolerance=exact)
        passes, rounds = passes + 1, rounds + found.rounds
        seconds = {name: seconds.get(name, 0.0) + spent for name, spent in found.seconds.items()}
        bounds.append(found.elbo)
        new = _less_centre(found.states[0], problem.centre)
        if keep is not None:
            keep(Start(found.hyper_mean, found.hyper_cov, *new))
        change = _change(moments, new) if problem.renews else 0.0
        if best is None or change < best[0]:
            best = change, found, at, likelihood
        steady = len(bounds) > 2 and float(np.abs(np.diff(bounds[-3:])).max()) < tolerance
        if change < tolerance * (_WILL_DO if steady else 1.0) or passes >= most:
            break
        moments = new if moments is None else mixing.next(moments, new)
        at = problem.at(found.states[0], moments)
        start = Start(found.hyper_mean, found.hyper_cov, *at.start)
    change, found, at, likelihood = best
    found = replace(found, rounds=rounds, seconds=seconds)
    seen = new if at.rows is None else found.states[0].moments_of(at.rows)  # type: ignore[attr-defined]
    return Settled(found, at, likelihood, seen, found.converged and change < _WILL_DO * tolerance, bounds[0])


def _less_centre(state: State, centre: float) -> Moments:
    mean, variance = state.node_moments()
    return mean.ravel() - centre, variance.ravel()


def _change(old: Moments | None, new: Moments) -> float:
    """Return the largest change of a mean, in standard deviations, and of a variance, relatively."""
    if old is None:
        return np.inf
    variance = np.maximum(new[1], 1e-12)
    mean = np.abs(new[0] - old[0]) / np.sqrt(variance)
    return float(max(mean.max(initial=0.0), (np.abs(new[1] - old[1]) / variance).max(initial=0.0)))
