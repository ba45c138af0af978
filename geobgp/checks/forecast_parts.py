"""Parts of the land whose numbers of events are forecast: blocks of nodes, or the areas that were counted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse
from scipy.special import gammaln, pdtr, xlogy

from geobgp.checks.blocks import Blocks, make_blocks
from geobgp.data.effort import seen_exposure
from geobgp.errors import DataError, option

if TYPE_CHECKING:
    from geobgp.data.period_areas import PeriodAreaCounts
    from geobgp.spacetime.posterior import SpaceTimePosterior


@dataclass(frozen=True, eq=False)
class Parts:
    """Numbers of events in parts of the land, period by period; all arrays are (n_periods, n_parts).

    Attributes
    ----------
    names : tuple of str
    weights : tuple of (n_parts, n_nodes) csr_array
        The exposure, of events that get reported, of every node within each part: period by period.
    low, high : arrays
        Between which numbers each lies: the same, unless it is suppressed.
    events : array
        The numbers, one in the middle where it is suppressed, 0 where it is unknown.
    known : bool array
        Where something was counted, of somebody.
    exposure : array
        That of the events that get reported; 0 where nothing is known.
    """

    names: tuple[str, ...]
    weights: tuple[sparse.csr_array, ...]
    low: np.ndarray
    high: np.ndarray
    events: np.ndarray
    known: np.ndarray
    exposure: np.ndarray

    @property
    def hidden(self) -> np.ndarray:
        """Which numbers are suppressed."""
        return self.known & (self.low < self.high)

    def one_rate(self, first: int) -> np.ndarray:
        """Return expected numbers at the rate that all parts had together before a period."""
        rate = max(float(self.events[:first].sum()), 0.5) / float(self.exposure[:first].sum())
        return np.asarray(rate * self.exposure)

    def expected_like(self, past: slice | int, t: int, first: int) -> np.ndarray:
        """Return what is expected in period t, (n_parts,), were rates what they were in some of the first periods.

        An event is added to each part, at the rate of all of them, so that none has a mean of zero.
        """
        events, exposed = (np.atleast_2d(v[past]).sum(axis=0) for v in (self.events, self.exposure))
        overall = max(float(self.events[:first].sum()), 0.5) / float(self.exposure[:first].sum())
        return np.asarray(self.exposure[t] * (events + 1.0) / (exposed + 1.0 / overall))


def parts_of(posterior: SpaceTimePosterior, blocks: Any) -> Parts:
    """Return the parts whose numbers are forecast: the areas that were counted, or blocks of the nodes."""
    if posterior.areas is not None:
        return _areas(posterior, posterior.areas, blocks)  # type: ignore[arg-type]
    if posterior.observed is None:
        raise DataError(
            "Forecasts are compared with counts; this fit knows none.",
            remedy="Fit counts by period, of points or of areas.",
        )
    exposure = np.array(seen_exposure(posterior.by_period, posterior.effort))
    made = blocks if isinstance(blocks, Blocks) else make_blocks(blocks, posterior)
    inside = np.flatnonzero(made.of >= 0)
    cells = (np.ones(len(inside)), (made.of[inside], inside))
    shares = sparse.csr_array(cells, shape=(len(made), len(made.of)))
    seen, exposed = posterior.observed @ shares.T, exposure @ shares.T
    known = np.ones(seen.shape, bool)
    weights = tuple(sparse.csr_array(shares.multiply(row)) for row in exposure)
    return Parts(tuple(map(str, made.labels)), weights, seen, seen, seen, known, exposed)


def _areas(posterior: SpaceTimePosterior, areas: PeriodAreaCounts, blocks: Any) -> Parts:
    if not (isinstance(blocks, str) and blocks == "auto"):
        raise DataError(
            "Forecasts of counts by area are compared with the numbers of these areas.",
            option="blocks",
            remedy=f"Leave {option('blocks')} out.",
        )
    exposure, inside = posterior.by_period, areas.within
    weights = tuple(inside.exposure(row, posterior.effort, t) for t, row in enumerate(exposure))
    exposed = np.array([one.sum(axis=1) for one in weights])
    known = ~areas.unknown & (exposed > 0)
    low, high = areas.suppressed or (0, 0)
    events = np.where(known, areas.guessed, 0.0)
    return Parts(
        areas.names,
        weights,
        np.where(areas.hidden, float(low), events),
        np.where(areas.hidden, float(high), events),
        events,
        known,
        np.where(known, exposed, 0.0),
    )


def log_chance(low: Any, high: Any, means: Any) -> np.ndarray:
    """Return the log probability that Poisson counts lie between two numbers, both with them.

    Examples
    --------
    >>> round(float(log_chance(2.0, 2.0, 1.0)), 4), round(float(log_chance(0.0, 1.0, 1.0)), 4)
    (-1.6931, -0.3069)
    """
    low, high, means = np.broadcast_arrays(low, high, np.maximum(means, 1e-300))
    out = np.asarray(xlogy(low, means) - means - gammaln(low + 1.0))
    wide = low < high
    if wide.any():
        inside = cumulative(high[wide], means[wide]) - cumulative(low[wide] - 1.0, means[wide])
        out[wide] = np.log(np.maximum(inside, 1e-300))
    return out


def cumulative(n: Any, means: Any) -> np.ndarray:
    """Return the probability that Poisson counts are n at most."""
    return np.where(np.asarray(n) < 0, 0.0, pdtr(np.maximum(np.floor(n), 0.0), means))
