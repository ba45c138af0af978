"""Residuals people know: Pearson residuals, lurking variables, clustering that is left, all against simulations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import fft

from geobgp.arguments import FIGURE
from geobgp.errors import DataError
from geobgp.validate import door, number

if TYPE_CHECKING:
    from geobgp.land.domain import Domain
    from geobgp.posterior import Posterior

#: Events that a square of the residual map holds on average.
EVENTS_PER_SQUARE = 10.0
#: Share of the shorter side of the land up to which pairs are counted, and into how many distances.
_REACH, _BINS = 0.25, 20
#: Places along a variable at which its curve is kept.
_PLACES = 200


@dataclass(frozen=True, eq=False)
class Curve:
    """A curve of what was observed, and the band that holds 95 % of the curves of simulated events.

    Attributes
    ----------
    at : (k,) array
        A variable's values, or distances in the domain's unit.
    observed, low, high : (k,) arrays
    outside : float
        Share of all curves, the observed one among them, that leave the middle of the band somewhere as far as the
        observed one does: a small one (under 0.05) says that the fit does not explain the curve.
    """

    at: np.ndarray
    observed: np.ndarray
    low: np.ndarray
    high: np.ndarray
    outside: float


@dataclass(frozen=True, eq=False)
class Residuals:
    """How the events differ from the map, with the simulations of the same fit beside them.

    Attributes
    ----------
    domain : Domain
    square : (n_nodes,) int array
        The square of the residual map that each node belongs to.
    side : float
        Side of a square, in the domain's unit.
    observed, expected : (k,) arrays
        Events in each square.
    dispersion : float
        Mean squared Pearson residual of the squares.
    dispersion_band : (float, float)
        What 95 % of simulations give.
    lurking : dict of str to Curve
        Events observed less those expected, added up from the lowest value of a variable: coordinates and covariates.
    pairs : Curve
        Pairs of events at each distance, as a multiple of those expected from the map: above the band, events are more
        clustered than the map can tell. Distances are those of cells; what is closer counts as zero.

    Notes
    -----
    Simulations are events drawn from joint samples of the posterior. The same events made the map, so that the
    observed curve is usually nearer to the middle than those of the simulations.
    """

    domain: Domain = field(repr=False)
    square: np.ndarray = field(repr=False)
    side: float
    observed: np.ndarray = field(repr=False)
    expected: np.ndarray = field(repr=False)
    dispersion: float
    dispersion_band: tuple[float, float]
    lurking: dict[str, Curve] = field(repr=False)
    pairs: Curve = field(repr=False)

    @property
    def pearson(self) -> np.ndarray:
        """Pearson residual (observed - expected) / √expected of each square."""
        return _pearson(self.observed, self.expected)

    @door(figure=FIGURE)
    def plot(self, figure: Any = None) -> Any:
        """Draw the residual map, the pairs and the variables; see `geobgp.output.residual_plots.plot_residuals`."""
        from geobgp.output.residual_plots import plot_residuals

        return plot_residuals(self, figure)

    @door(level=number(least=0.0, most=1.0))
    def unexplained(self, level: float = 0.05) -> list[str]:
        """Return what simulations do not explain: "pairs", or names of variables whose curve is out at `level`."""
        curves = {"pairs": self.pairs} | self.lurking
        return [name for name, curve in curves.items() if curve.outside < level]


def residuals(posterior: Posterior, *, n_simulations: int = 99, seed: int = 0) -> Residuals:
    """Compare the counts of a fit with counts simulated from it; see `Posterior.residuals`."""
    counts, domain = posterior.observed, posterior.domain
    if counts is None or counts.shape != (domain.n_nodes,):
        raise DataError(
            f"Residuals belong to a fit of counts that knows them; this fit ({posterior.likelihood.name}) knows none.",
            remedy="Fit again with LGCP, or load a file that holds the counts.",
        )
    rng = np.random.default_rng(seed)
    expected = posterior.seen_exposure * posterior._nodes.exp_mean()
    rates = np.concatenate(list(posterior.sample_blocks(n_simulations, rng))) * posterior.seen_exposure
    scatter = posterior.likelihood.scatter(rates.shape, rng)
    rates = rates if scatter is None else rates * scatter
    drawn = rng.poisson(np.minimum(rates, 1e15)).astype(float)
    every = np.vstack([counts, drawn])
    square, side, n = _squares(domain, float(counts.sum()))
    summed = np.array([np.bincount(square, row, n) for row in every])
    in_squares = np.bincount(square, expected, n)
    spread = np.mean(_pearson(summed, in_squares) ** 2, axis=1)
    low, high = np.quantile(spread[1:], [0.025, 0.975])
    variables = {"easting": domain.node_points[:, 0], "northing": domain.node_points[:, 1]}
    effects = posterior.effects
    if len(effects.columns) == domain.n_nodes:
        for k, name in enumerate(effects.names):
            variables[name] = effects.columns[:, 1 + k] * effects.scales[k] + effects.means[k]
    rest = every - expected
    return Residuals(
        domain=domain,
        square=square,
        side=side,
        observed=summed[0],
        expected=in_squares,
        dispersion=float(spread[0]),
        dispersion_band=(float(low), float(high)),
        lurking={name: _lurking(values, rest) for name, values in variables.items()},
        pairs=_pairs(domain, every, expected),
    )


def _pearson(observed: np.ndarray, expected: np.ndarray) -> np.ndarray:
    return np.where(expected > 0, (observed - expected) / np.sqrt(np.where(expected > 0, expected, 1.0)), 0.0)


def _squares(domain: Domain, total: float) -> tuple[np.ndarray, float, int]:
    cells = domain.node_areas.sum() / np.median(domain.node_areas)
    k = max(1, round(float(np.sqrt(cells * EVENTS_PER_SQUARE / max(total, EVENTS_PER_SQUARE)))))
    code = (domain.node_rows // k) * domain.grid.shape[1] + domain.node_cols // k
    squares, square = np.unique(code, return_inverse=True)
    return square, k * domain.cell_size, len(squares)


def _lurking(values: np.ndarray, rest: np.ndarray) -> Curve:
    """Return the cumulative residuals along a variable; rows of `rest` are the observed and the simulated ones."""
    order = np.argsort(values, kind="stable")
    # A step ends where the value changes: nodes of one value come together.
    ends = np.flatnonzero(np.r_[np.diff(values[order]) > 0, True])
    ends = ends[np.unique(np.linspace(0, len(ends) - 1, min(_PLACES, len(ends))).astype(int))]
    return _curve(values[order][ends], np.cumsum(rest[:, order], axis=1)[:, ends])


def _pairs(domain: Domain, every: np.ndarray, expected: np.ndarray) -> Curve:
    """Return pairs over expected pairs by distance, from autocorrelations on the grid: no loop over events."""
    shape = domain.grid.shape
    rows, cols = np.nonzero(domain.coverage > 0)
    reach = max(2, int(_REACH * min(np.ptp(rows) + 1, np.ptp(cols) + 1)))
    size = [fft.next_fast_len(n + reach, real=True) for n in shape]
    down, across = np.mgrid[-reach : reach + 1, -reach : reach + 1]
    distance = np.hypot(down, across)
    # Lags of one cell each near by, ever wider rings further away.
    edges = np.unique(np.r_[-0.5, 0.5, np.geomspace(1.2, reach + 0.5, _BINS).round(2)])
    ring = np.digitize(distance, edges) - 1
    kept = ring < len(edges) - 1
    cell = domain.node_rows * shape[1] + domain.node_cols

    def by_ring(values: np.ndarray) -> np.ndarray:
        grid = np.bincount(cell, values, shape[0] * shape[1]).reshape(shape)
        power = np.abs(fft.rfft2(grid, size)) ** 2
        lags = fft.irfft2(power, size)[np.ix_(np.arange(-reach, reach + 1), np.arange(-reach, reach + 1))]
        return np.bincount(ring[kept], lags[kept], len(edges) - 1)

    own = np.zeros(len(edges) - 1)
    own[0] = 1.0
    base = by_ring(expected)
    lags = np.bincount(ring[kept], minlength=len(edges) - 1)
    used = (lags > 0) & (base > 1e-9 * base.max())
    found = np.array([by_ring(row) - own * row.sum() for row in every])[:, used] / base[used]
    reached = np.bincount(ring[kept], distance[kept], len(edges) - 1)[used] / lags[used]
    return _curve(reached * domain.cell_size, found)


def _curve(at: np.ndarray, curves: np.ndarray) -> Curve:
    """Return the first curve with the band of the others, and how far out it is as a whole among them."""
    low, middle, high = np.quantile(curves[1:], [0.025, 0.5, 0.975], axis=0)
    width = np.where(curves > middle, high - middle, middle - low)
    floor = 1e-9 * max(float(np.max(high - low)), 1e-300)
    far = np.max(np.abs(curves - middle) / np.maximum(width, floor), axis=1)
    return Curve(at, curves[0], low, high, float(np.mean(far >= far[0] * (1 - 1e-12))))
