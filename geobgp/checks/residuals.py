"""Residuals: where the map disagrees with the events, and what is left over."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from scipy import fft
from scipy.special import pdtr

from geobgp.errors import DataError
from geobgp.inference.mixture import INTERVAL, predicted_ends, within
from geobgp.text import percent, whole_percent
from geobgp.validation import FIGURE, real, validated

if TYPE_CHECKING:
    from geobgp.land.domain import Domain
    from geobgp.posterior import Posterior


# -- Does the map agree with the points? Observed against expected, by piece of land and by block ------------


#: Joint samples behind the intervals, and how many are held at a time.
SAMPLES, _BLOCK = 300, 50
#: Blocks are sized to hold about this many points each; there are no more than so many of them.
POINTS_PER_BLOCK, MOST_BLOCKS = 25, 150
#: Separate pieces of land that get a row of their own.
MOST_PARTS = 10


@dataclass(frozen=True, eq=False)
class Checks:
    """Observed and expected numbers of events.

    Attributes
    ----------
    parts : DataFrame
        One row per separate piece of land, the largest first (small ones together in the last row), and their
        sum: land, observed, expected, and the predictive interval of the number observed (``predicted_q05``, ...).
    blocks : DataFrame
        The same for squares of `side` by `side`, with ``row`` and ``col``, the Pearson residual and the
        randomised PIT value of each.
    block_of : (n_nodes,) int array
        The row of `blocks` that each node belongs to.
    side : float
        Side of a block in metres (the domain's unit).
    covered : float
        Share of blocks whose PIT value lies within the interval: its probability would be nominal for new data.
    dispersion : float
        Mean squared Pearson residual of the blocks: 1 for Poisson noise around a known intensity.
    empty_observed, empty_expected : float
        Share of nodes without an event, observed and as the model has it.
    interval : float
        Probability of the predictive intervals.
    """

    parts: pd.DataFrame
    blocks: pd.DataFrame
    block_of: np.ndarray
    side: float
    covered: float
    dispersion: float
    empty_observed: float
    empty_expected: float
    interval: float = INTERVAL

    def verdict(self) -> tuple[bool, str]:
        """Return whether the checks are fine, and in words what they say."""
        blocks = f"{percent(self.covered)} of {len(self.blocks):,} blocks"
        share = f"{blocks} lie within their {whole_percent(self.interval)} predictive interval"
        if self.covered < 2.0 * self.interval - 1.0:
            return False, (
                f"Only {share}: the events are more clustered than the map can follow. Try full resolution "
                "or smaller cells, and check for many events on one spot."
            )
        return True, f"{share}. The same points made the map, so rather more is to be expected."


def check(posterior: Posterior, counts: np.ndarray, *, seed: int = 0) -> Checks:
    """Compare a fit with the counts that it was fitted to.

    Parameters
    ----------
    posterior : Posterior
        Of counts on a domain.
    counts : (n_nodes,) array
    seed : int
        Of the joint samples and of the randomised PIT.
    """
    domain = posterior.domain
    values = np.asarray(counts, float)
    part, n_parts = _ranked_parts(domain)
    block_of, places, side = _blocks(domain, values.sum())
    groups = [(part, n_parts), (block_of, len(places)), (np.zeros(domain.n_nodes, int), 1)]
    gather = sp.csr_array(
        sp.vstack(
            [
                sp.csr_array((posterior.seen_exposure, (g, np.arange(len(g)))), shape=(n, len(g)))
                for g, n in groups
            ]
        )
    )
    rng = np.random.default_rng(seed)
    sums, empty = _sample_sums(posterior, gather, rng)
    observed = np.concatenate([np.bincount(g, values, n) for g, n in groups])
    table = _compare(observed, sums, posterior.interval, rng)
    parts = table.iloc[:n_parts].copy()
    areas = np.bincount(part, domain.node_areas, n_parts) / domain.area_unit[0]
    parts.insert(0, "land", areas)
    total = table.iloc[[-1]].copy()
    total.insert(0, "land", areas.sum())
    blocks = table.iloc[n_parts:-1].reset_index(drop=True)
    blocks.insert(0, "row", places[:, 0])
    blocks.insert(1, "col", places[:, 1])
    inside = within(blocks["pit"], posterior.interval)
    return Checks(
        parts=pd.concat([parts, total], ignore_index=True),
        blocks=blocks,
        block_of=block_of,
        side=side,
        covered=float(inside.mean()),
        dispersion=float(np.mean(blocks["residual"] ** 2)),
        empty_observed=float((values == 0).mean()),
        empty_expected=empty,
        interval=posterior.interval,
    )


def _ranked_parts(domain: Domain) -> tuple[np.ndarray, int]:
    """Return a label per node: separate pieces of land by size, the small ones together in the last."""
    area = np.bincount(domain.components, domain.node_areas)
    rank = np.empty(len(area), np.int64)
    rank[np.argsort(-area, kind="stable")] = np.arange(len(area))
    most = len(area) if len(area) <= MOST_PARTS + 1 else MOST_PARTS + 1
    return np.minimum(rank, most - 1)[domain.components], most


def _blocks(domain: Domain, total: float) -> tuple[np.ndarray, np.ndarray, float]:
    """Return a block per node, (row, col) of every block, and their side."""
    wanted = float(np.clip(total / POINTS_PER_BLOCK, 4, MOST_BLOCKS))
    cells = domain.node_areas.sum() / np.median(domain.node_areas)
    k = max(1, round(float(np.sqrt(cells / wanted))))
    rows, cols = domain.node_rows // k, domain.node_cols // k
    width = int(cols.max()) + 1
    code, block_of = np.unique(rows * width + cols, return_inverse=True)
    return block_of, np.column_stack(np.divmod(code, width)), k * domain.cell_size


def _sample_sums(
    posterior: Posterior, gather: sp.csr_array, rng: np.random.Generator
) -> tuple[np.ndarray, float]:
    """Return (SAMPLES, groups) expected numbers from joint samples, and the expected share of empty nodes."""
    out, empty = [], 0.0
    for _ in range(SAMPLES // _BLOCK):
        draws = np.concatenate(list(posterior.sample_blocks(_BLOCK, rng)))
        if posterior.likelihood.dispersion is not None:
            draws = np.asarray(posterior.likelihood.poisson_rates(draws, rng))
        out.append((gather @ draws.T).T)
        empty += float(np.exp(-draws * posterior.seen_exposure).mean()) * _BLOCK / SAMPLES
    return np.concatenate(out), empty


def _compare(
    observed: np.ndarray, sums: np.ndarray, interval: float, rng: np.random.Generator
) -> pd.DataFrame:
    mean = sums.mean(axis=0)
    predicted = rng.poisson(np.minimum(sums, 1e15))
    below, upto = _cdf(observed - 1, sums), _cdf(observed, sums)
    with np.errstate(divide="ignore", invalid="ignore"):
        residual = np.where(mean > 0, (observed - mean) / np.sqrt(mean), 0.0)
    columns = {"observed": observed, "expected": mean} | predicted_ends(predicted, interval)
    columns |= {"residual": residual}
    return pd.DataFrame(columns | {"pit": below + rng.random(len(observed)) * (upto - below)})


def _cdf(count: np.ndarray, rates: np.ndarray) -> np.ndarray:
    """Return the predictive probability of at most `count`: a mixture of Poissons."""
    return np.where(count >= 0, pdtr(np.maximum(np.floor(count), 0.0), rates), 0.0).mean(axis=0)


# -- Residuals people know: Pearson residuals, lurking variables, clustering that is left, all against simulations --


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

    @validated(figure=FIGURE)
    def plot(self, figure: Any = None) -> Any:
        """Draw the residual map, the pairs and the variables; see `geobgp.output.figures.plot_residuals`."""
        from geobgp.output.figures import plot_residuals

        return plot_residuals(self, figure)

    @validated(level=real(least=0.0, most=1.0))
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
    means = np.asarray(posterior.likelihood.poisson_rates(rates, rng))
    drawn = rng.poisson(np.minimum(means, 1e15)).astype(float)
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
