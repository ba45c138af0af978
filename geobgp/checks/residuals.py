"""Residuals: where the map disagrees with the events, and what is left over."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse as sp
from scipy import fft
from scipy.spatial.distance import cdist

from geobgp.checks.samples import AreaSample, PlaceSample, place_sample_of
from geobgp.checks.scoring import Predictive
from geobgp.errors import DataError, SizeError
from geobgp.validation import FIGURE, real, validated

if TYPE_CHECKING:
    from geobgp.land.domain import Domain
    from geobgp.posterior import Posterior


# -- Does the map agree with the points? Observed against expected by piece of land ---------------------------


#: Joint samples behind the intervals, and how many are held at a time.
SAMPLES, _AT_ONCE = 300, 50
#: Separate pieces of land that get a row of their own.
MOST_PARTS = 10


@dataclass(frozen=True, eq=False)
class Checks:
    """Observed and expected numbers of events by piece of land.

    Attributes
    ----------
    parts : DataFrame
        One row per separate piece of land, the largest first (small ones together in the last row), and their
        sum: land, observed, expected, the predictive interval of the number observed (``predicted_q05``, ...), and
        its randomised PIT value.
    empty_observed, empty_expected : float
        Share of nodes without an event, observed and as the model has it.
    """

    parts: pd.DataFrame
    empty_observed: float
    empty_expected: float


def check(posterior: Posterior, counts: np.ndarray, *, rng: int | np.random.Generator = 0) -> Checks:
    """Compare a fit with the counts that it was fitted to.

    Parameters
    ----------
    posterior : Posterior
        Of counts on a domain.
    counts : (n_nodes,) array
    rng : int or Generator
        Of the joint samples and of the randomised PIT.
    """
    domain, rng, y = posterior.domain, np.random.default_rng(rng), np.asarray(counts, float)
    label, n = _ranked_parts(domain)
    nodes = np.arange(domain.n_nodes)
    membership = sp.csr_array((np.ones(2 * len(nodes)), (np.r_[label, np.full(len(nodes), n)], np.r_[nodes, nodes])))
    sums, empty = [], 0.0
    for _ in range(SAMPLES // _AT_ONCE):
        rates = np.concatenate(list(posterior.sample_blocks(_AT_ONCE, rng))) * posterior.seen_exposure
        rates = _poisson_rates(posterior, rates, rng)
        sums.append((membership @ rates.T).T)
        empty += float(np.exp(-rates).mean()) * _AT_ONCE / SAMPLES
    predicted, observed = Predictive.of_rates(np.concatenate(sums), rng), membership @ y
    columns = {"land": membership @ domain.node_areas / domain.area_unit[0], "observed": observed}
    columns |= {"expected": predicted.mean} | predicted.ends(posterior.interval)
    columns |= {"pit": predicted.pit(rng, observed)}
    return Checks(pd.DataFrame(columns), float((y == 0).mean()), empty)


def _poisson_rates(posterior: Posterior, rates: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    drawn = posterior.likelihood.poisson_rates(rates, rng)
    assert drawn is not None, "counts have rates"
    return drawn


def _ranked_parts(domain: Domain) -> tuple[np.ndarray, int]:
    """Return a label per node: separate pieces of land by size, the small ones together in the last."""
    area = np.bincount(domain.components, domain.node_areas)
    rank = np.empty(len(area), np.int64)
    rank[np.argsort(-area, kind="stable")] = np.arange(len(area))
    most = len(area) if len(area) <= MOST_PARTS + 1 else MOST_PARTS + 1
    return np.minimum(rank, most - 1)[domain.components], most


# -- Residuals people know: Pearson residuals, lurking variables, clustering that is left, all against simulations --


#: Events that a square of the residual map holds on average.
EVENTS_PER_SQUARE = 10.0
#: Share of the shorter side of the land up to which pairs are counted, and into how many distances.
_REACH, _BINS = 0.25, 20
#: Places along a variable at which its curve is kept.
_PLACES = 200
#: Areas among which pairs are counted at most: there is a number for every two of them.
_MOST_AREAS = 10_000


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
        The square of the residual map that each node belongs to; of counts by area the area, -1 where there is none.
    side : float, optional
        Side of a square, in the domain's unit; None of areas.
    observed, expected : (k,) arrays
        Events (or cases, or positives) in each square; of values their sums.
    variance : (k,) array
        Of these, were the map true: that of Poisson counts, of cases among persons, of what is observed at sites.
    dispersion : float
        Mean squared Pearson residual of the squares.
    dispersion_band : (float, float)
        What 95 % of simulations give.
    lurking : dict of str to Curve
        Events observed less those expected, added up from the lowest value of a variable: coordinates and covariates.
    pairs : Curve
        Pairs of events at each distance, as a multiple of those expected from the map: above the band, events are more
        clustered than the map can tell. Of sites the mean product of the Pearson residuals of two: above the band,
        sites near each other are more alike than the map can tell. Distances are those of cells, or of areas; what is
        closer counts as zero.

    events : str
        "events", or "sites".

    Notes
    -----
    Simulations are events drawn from joint samples of the posterior. The same events made the map, so that the
    observed curve is usually nearer to the middle than those of the simulations.
    """

    domain: Domain = field(repr=False)
    square: np.ndarray = field(repr=False)
    side: float | None
    observed: np.ndarray = field(repr=False)
    expected: np.ndarray = field(repr=False)
    variance: np.ndarray = field(repr=False)
    dispersion: float
    dispersion_band: tuple[float, float]
    lurking: dict[str, Curve] = field(repr=False)
    pairs: Curve = field(repr=False)
    events: str = "events"

    @property
    def pearson(self) -> np.ndarray:
        """Pearson residual (observed - expected) / √variance of each square."""
        return _pearson(self.observed, self.expected, self.variance)

    @property
    def at_nodes(self) -> np.ndarray:
        """The Pearson residual of the square (or area) of every node; NaN where there is none."""
        return np.where(self.square >= 0, self.pearson[self.square], np.nan)

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


class _Paired(NamedTuple):
    """Numbers of the nodes, in rows, whose products are added up for pairs at each distance, and what by.

    `own` is what each thing adds to the products of its node with itself; `by` and `own_by` are the same of the
    numbers that these sums are divided by.
    """

    numbers: np.ndarray
    own: np.ndarray
    by: np.ndarray
    own_by: float = 0.0


class _Simulated(NamedTuple):
    """Counts of nodes or areas, observed in the first row and simulated in the others, and where these lie."""

    counts: np.ndarray
    expected: np.ndarray
    variance: np.ndarray
    points: np.ndarray
    variables: dict[str, np.ndarray]
    paired: _Paired | None = None
    sites: np.ndarray | None = None


def residuals(posterior: Posterior, *, n_simulations: int = 99, rng: int | np.random.Generator = 0) -> Residuals:
    """Compare the counts of a fit with counts simulated from it; see `Posterior.residuals`."""
    domain, rng = posterior.domain, np.random.default_rng(rng)
    if posterior.areas is not None:
        by_area = AreaSample(posterior)
        simulated = _of_areas(by_area, n_simulations, rng)
        square, side, n = by_area.divide("auto", 0.0).of, None, len(by_area.values)
        sums = simulated
        pairs = _pairs_of_areas(simulated)
    else:
        sample = place_sample_of(posterior)
        if sample is None:
            simulated = _of_nodes(posterior, n_simulations, rng)
        else:
            simulated = _of_places(sample, n_simulations, rng)
        square, side, n = _squares(domain, simulated.counts[0] if simulated.sites is None else simulated.sites)
        if simulated.sites is not None:  # where there is no site nothing is known
            held = np.bincount(square, simulated.sites, n) > 0
            square, n = np.where(held, np.cumsum(held) - 1, -1)[square], int(held.sum())
        inside = square >= 0

        def added(row: np.ndarray) -> np.ndarray:
            return np.bincount(square[inside], row[inside], n)

        sums = simulated._replace(
            counts=np.array([added(row) for row in simulated.counts]),
            expected=added(simulated.expected),
            variance=added(simulated.variance),
        )
        counts = simulated.counts
        pairs = _pairs(domain, simulated.paired or _Paired(counts, counts.sum(axis=1), simulated.expected))
    spread = np.mean(_pearson(sums.counts, sums.expected, sums.variance) ** 2, axis=1)
    low, high = np.quantile(spread[1:], [0.025, 0.975])
    rest = simulated.counts - simulated.expected
    return Residuals(
        domain=domain,
        square=square,
        side=side,
        observed=sums.counts[0],
        expected=sums.expected,
        variance=sums.variance,
        dispersion=float(spread[0]),
        dispersion_band=(float(low), float(high)),
        lurking={name: _lurking(values, rest) for name, values in simulated.variables.items()},
        pairs=pairs,
        events="events" if simulated.sites is None else "sites",
    )


def _variables(posterior: Posterior) -> dict[str, np.ndarray]:
    """Return what residuals are added up along, at the nodes: coordinates and covariates."""
    points, effects = posterior.domain.node_points, posterior.design
    variables = {"easting": points[:, 0], "northing": points[:, 1]}
    if len(effects.columns) == len(points) and posterior.exposure_kind != "risk":
        for k, name in enumerate(effects.names):
            variables[name] = effects.columns[:, 1 + k] * effects.scales[k] + effects.means[k]
    return variables


def _of_nodes(posterior: Posterior, n: int, rng: np.random.Generator) -> _Simulated:
    counts, domain = posterior.observed, posterior.domain
    if counts is None or counts.shape != (domain.n_nodes,):
        raise DataError(
            f"Residuals belong to a fit of counts that knows them; this fit ({posterior.likelihood.name}) knows none.",
            remedy="Fit again with LGCP, or load a file that holds the counts.",
        )
    expected = posterior.seen_exposure * posterior._nodes.exp_mean()
    rates = np.concatenate(list(posterior.sample_blocks(n, rng))) * posterior.seen_exposure
    drawn = Predictive.of_rates(_poisson_rates(posterior, rates, rng), rng).draws
    every = np.vstack([counts, drawn])
    return _Simulated(every, expected, expected, domain.node_points, _variables(posterior))


def _of_areas(sample: AreaSample, n: int, rng: np.random.Generator) -> _Simulated:
    posterior, weights = sample.posterior, sample.exposure
    expected = np.asarray(weights @ posterior._nodes.exp_mean())
    rates = np.concatenate([(weights @ block.T).T for block in posterior.sample_blocks(n, rng)])
    drawn = Predictive.of_rates(_poisson_rates(posterior, rates, rng), rng).draws
    # Places and covariates of areas are those of the people who live there.
    behind = np.asarray(weights.sum(axis=1))
    means = {name: np.asarray(weights @ v) / behind for name, v in _variables(posterior).items()}
    points = np.column_stack([means["easting"], means["northing"]])
    return _Simulated(np.vstack([sample.values, drawn]), expected, expected, points, means)


def _of_places(sample: PlaceSample, n: int, rng: np.random.Generator) -> _Simulated:
    """Return what was observed and simulated at sites, or of persons, added up at the nodes."""
    posterior, node = sample.posterior, sample.node
    every, n_nodes = np.arange(len(node)), posterior.domain.n_nodes
    eta = sample.draw_predictors(n, rng)
    about = [sample.family(k).moments(part, sample.size) for k, part in enumerate(eta)]
    expected, variance = (np.concatenate(part).mean(axis=0) for part in zip(*about, strict=True))
    values = np.vstack([sample.values, sample.draw(eta, every, rng)])
    to_nodes = sp.csr_array((np.ones(len(node)), (node, every)), shape=(n_nodes, len(node)))

    def added(rows: np.ndarray) -> np.ndarray:
        return np.asarray((to_nodes @ rows.T).T)

    paired, sites = None, None
    if sample.per_unit:
        sites, score = added(np.ones(len(node))), _pearson(values, expected, variance)
        paired = _Paired(added(score), (score**2).sum(axis=1), sites, float(len(node)))
    points, variables = posterior.domain.node_points, _variables(posterior)
    return _Simulated(added(values), added(expected), added(variance), points, variables, paired, sites)


def _pearson(observed: np.ndarray, expected: np.ndarray, variance: np.ndarray) -> np.ndarray:
    spread = np.sqrt(np.where(variance > 0, variance, 1.0))
    return np.where(variance > 0, (observed - expected) / spread, 0.0)


def _squares(domain: Domain, counts: np.ndarray) -> tuple[np.ndarray, float, int]:
    total, cells = float(counts.sum()), domain.node_areas.sum() / np.median(domain.node_areas)
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


def _pairs(domain: Domain, paired: _Paired) -> Curve:
    """Return sums over pairs by distance, from autocorrelations on the grid: no loop over events."""
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
    base = by_ring(paired.by) - own * paired.own_by
    lags = np.bincount(ring[kept], minlength=len(edges) - 1)
    used = (lags > 0) & (base > 1e-9 * base.max())
    each = zip(paired.numbers, paired.own, strict=True)
    pairs = np.array([by_ring(row) - own * alone for row, alone in each])[:, used] / base[used]
    reached = np.bincount(ring[kept], distance[kept], len(edges) - 1)[used] / lags[used]
    return _curve(reached * domain.cell_size, pairs)


def _pairs_of_areas(simulated: _Simulated) -> Curve:
    """Return pairs over expected pairs by the distance of areas' people: those of one area count as zero apart."""
    points, expected = simulated.points, simulated.expected
    if len(points) > _MOST_AREAS:
        raise SizeError(f"Pairs are counted among {_MOST_AREAS:,} areas at most; found {len(points):,}.")
    distance = cdist(points, points)
    apart = float(np.median(np.sort(distance, axis=1)[:, 1])) if len(points) > 1 else 1.0
    reach = max(_REACH * float(np.ptp(points, axis=0).max()), 3.0 * apart)
    edges = np.r_[-1.0, 1e-9 * reach, np.geomspace(1.01 * apart, reach, _BINS // 2)]
    ring = np.digitize(distance, edges, right=True) - 1
    kept = (ring >= 0) & (distance <= reach)
    n = int(ring[kept].max()) + 1
    row, column, of = *np.nonzero(kept), ring[kept]

    def by_ring(values: np.ndarray) -> np.ndarray:
        return np.bincount(of, values[row] * values[column], n)

    base = by_ring(expected)
    used = base > 1e-9 * base.max()
    same = np.eye(1, n)[0]
    pairs = np.array([by_ring(counts) - same * counts.sum() for counts in simulated.counts])[:, used] / base[used]
    reached = np.bincount(of, distance[kept], n)[used] / np.maximum(np.bincount(of, minlength=n)[used], 1)
    return _curve(reached, pairs)


def _curve(at: np.ndarray, curves: np.ndarray) -> Curve:
    """Return the first curve with the band of the others, and how far out it is as a whole among them."""
    low, middle, high = np.quantile(curves[1:], [0.025, 0.5, 0.975], axis=0)
    width = np.where(curves > middle, high - middle, middle - low)
    floor = 1e-9 * max(float(np.max(high - low)), 1e-300)
    far = np.max(np.abs(curves - middle) / np.maximum(width, floor), axis=1)
    return Curve(at, curves[0], low, high, float(np.mean(far >= far[0] * (1 - 1e-12))))
