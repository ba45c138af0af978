"""Cross-validation without refitting: blocks, areas or persons held out, their scores, coverage and PIT."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import geopandas as gpd
import numpy as np
import pandas as pd
import shapely
from scipy.spatial import cKDTree
from scipy.special import bdtr, expit, gammaln, kolmogorov, logsumexp, ndtri, pdtr, xlogy

from geobgp.data.areas import Combined, combine
from geobgp.errors import CheckWarning, DataError, InputWarning, SizeError, option, render_text, warn
from geobgp.inference.dense import row_weights
from geobgp.inference.families import Binomial
from geobgp.inference.held_out import ROUNDS, HeldOut, JointNormal, hold_out, log_score
from geobgp.inference.mixture import INTERVAL, predicted_ends, within
from geobgp.land.regions import area_shares, read_regions
from geobgp.model import model_of
from geobgp.parallel import Failed, open_workers
from geobgp.prior.basis import MAX_TRUNCATED_VARIANCE
from geobgp.text import count, number, percent, whole_percent
from geobgp.validation import SEVERAL_AXES, validated

if TYPE_CHECKING:
    from collections.abc import Iterable

    from geobgp.data.persons import Groups
    from geobgp.inference.families import Likelihood
    from geobgp.land.domain import Domain
    from geobgp.posterior import Posterior


# -- Advice: what to try where left-out blocks are predicted badly, in the order that the fit's own evidence suggests --


class Advice(NamedTuple):
    """Something to try, and how strongly the fit speaks for it: 0 is not at all, 1 strongly."""

    evidence: float
    words: str


def what_to_try(posterior: Posterior, checked: CrossValidation) -> list[Advice]:
    """Return what might mend a map, what its own numbers speak for first.

    Options are named with `geobgp.errors.option`, to be said in the words of whoever shows them.
    """
    risk = posterior.exposure_kind == "risk"
    found = [
        *_resolution(posterior),
        *_water(posterior, checked),
        *_crowds(posterior),
        *_pattern(checked, risk),
    ]
    return sorted(found, key=lambda one: -one.evidence)


def check_warning(posterior: Posterior, checked: CrossValidation) -> CheckWarning | None:
    """Return the warning of a map whose checks fail, in one sentence and what to try first; None if they hold."""
    failures = checked.failures()
    if not failures:
        return None
    first = what_to_try(posterior, checked)[0].words
    return CheckWarning(failures[0], found=checked.coverage, remedy=f"Try {first}.")


def _resolution(posterior: Posterior) -> Iterator[Advice]:
    if posterior.basis.truncated and posterior.areas is None:
        missed = posterior.fit.truncated_variance
        why = f"the {posterior.basis.label} miss {percent(missed, 1)} of the prior variance"
        full = option("m", "full", python="FullRank, or m='full'")
        yield Advice(0.2 + missed / MAX_TRUNCATED_VARIANCE, f"full resolution ({full}): {why}")


def _water(posterior: Posterior, checked: CrossValidation) -> Iterator[Advice]:
    """Speak for permeable water where blocks at the shore are worse than others."""
    basis, domain = posterior.basis, posterior.domain
    shore = domain.node_areas < 0.999 * np.median(domain.node_areas)
    if basis.boundary != "neumann" or basis.permeability > 0 or not shore.any():
        return
    inside = checked.block_of >= 0
    n = len(checked.blocks)
    wet = np.bincount(checked.block_of[inside], shore[inside], n) > 0
    strays = _normal_scores(checked) ** 2
    ratio, why = 1.0, "it is closed here, and nothing is known across it"
    if 3 <= wet.sum() <= n - 3:
        ratio = float(np.sqrt(strays[wet].mean() / max(strays[~wet].mean(), 1e-12)))
    if ratio > 1.1:
        why = f"blocks at the shore stray {number(ratio, 2)} times as far as those inland"
    elif domain.water_geometry is None and domain.n_components == 1:
        return
    told = option("permeability", "auto", python="permeability=0.3 or 1")
    yield Advice(float(np.clip(ratio - 1.0, 0.05, 2.0)), f"water that information may cross ({told}): {why}")


def _crowds(posterior: Posterior) -> Iterator[Advice]:
    """Speak for smaller cells where more events share a node than the posterior expects."""
    y = posterior.observed
    if y is None:
        return
    mean, variance = posterior._nodes.exp_moments()
    expected = float(np.sum(posterior.seen_exposure**2 * (mean**2 + variance)))
    pairs = float(np.sum(np.maximum(y * (y - 1.0), 0.0)))
    ratio = pairs / expected if expected > 0 else 1.0
    if ratio > 1.1:
        yield Advice(
            min(ratio - 1.0, 2.0),
            f"smaller cells ({option('cell_size')}), and a look at places with many events on one spot: pairs of "
            f"events within a cell are {number(ratio, 2)} times as many as the map expects",
        )


def _pattern(checked: CrossValidation, risk: bool) -> Iterator[Advice]:
    """Speak for covariates where neighbouring blocks err alike."""
    centre = np.array([[p.x, p.y] for p in checked.blocks.geometry.representative_point()])
    score = _normal_scores(checked)
    gap = np.hypot(*(centre[:, None] - centre).transpose(2, 0, 1))
    np.fill_diagonal(gap, np.inf)
    near = gap < 1.25 * np.median(gap.min(axis=1))
    deviation = score - score.mean()
    products = deviation[:, None] * deviation
    alike = float(products[near].mean() / max(float(np.mean(deviation**2)), 1e-12)) if near.any() else 0.0
    what = f"covariates that explain where events happen ({option('covariates')})"
    why = ", or an exposure"
    if risk:
        what, why = f"what else may explain who falls ill ({option('confounders')})", ""
    if alike > 0.1:
        why = f": neighbouring blocks err alike (correlation {number(alike, 2)})"
    yield Advice(
        0.1 + 2.0 * max(alike, 0.0),
        f"{what}{why}",
    )


def _normal_scores(checked: CrossValidation) -> np.ndarray:
    return np.asarray(ndtri(np.clip(checked.pit, 1e-4, 1.0 - 1e-4)))


# -- Blocks: how the land is parted for leaving parts of it out ----------------------------------------------


#: Squares are two lengthscales wide, but so that there are at least, and at most, about so many of them.
FEWEST, MOST = 30, 120


@dataclass(frozen=True, eq=False)
class Blocks:
    """Parts of the land that are left out in turn.

    Attributes
    ----------
    labels : sequence
        What the blocks are called: (column, row) of a square, a region's number or name, a fold.
    of : (n_nodes,) int array
        The block of every node; -1 for those that are never left out.
    geometry : (n_blocks,) array of polygons
        In the domain's CRS.
    side : float, optional
        Side of the squares, in the domain's unit.
    wanted : float, optional
        The side that would suit the fit, where these squares are narrower so that they can be left out at once.
    """

    labels: pd.Index
    of: np.ndarray
    geometry: np.ndarray
    side: float | None = None
    wanted: float | None = None

    def __len__(self) -> int:
        return len(self.labels)


def auto_side(posterior: Posterior, cell_size: float | None = None) -> float:
    """Return the side of squares that suit a fit: two lengthscales, rounded to whole cells.

    There are some dozens of squares at least, however long the lengthscale.
    """
    area = float(posterior.domain.node_areas.sum())
    cell = posterior.domain.cell_size if cell_size is None else cell_size
    wanted = np.clip(2.0 * posterior.lengthscale, np.sqrt(area / MOST), np.sqrt(area / FEWEST))
    return cell * max(1, round(float(wanted) / cell))


def narrowed(
    domain: Domain,
    side: float,
    most: int,
    buffer: float = 0.0,
    nodes: Any = None,
    cell_size: float | None = None,
) -> float:
    """Return the side of squares of which none, with its buffer, holds more than so many nodes: `side`, or less.

    Parameters
    ----------
    domain : Domain
    side : float
    most : int
    buffer : float
    nodes : int array, optional
        The node of every observation, where these and not all nodes are counted.
    cell_size : float, optional
        What the side is a multiple of; by default the domain's.

    Examples
    --------
    >>> from geobgp import Domain
    >>> domain = Domain.from_polygons(shapely.box(0, 0, 12, 12), cell_size=1, crs="local")
    >>> narrowed(domain, 6.0, most=36), narrowed(domain, 6.0, most=20), narrowed(domain, 6.0, most=36, buffer=1.0)
    (6.0, 4.0, 4.0)
    """
    cell = domain.cell_size if cell_size is None else cell_size
    while side > cell and (found := _most_held(domain, squares(domain, side), buffer, nodes)) > most:
        side = cell * max(1, int(side / cell * min(np.sqrt(most / found), 0.95)))
    return side


def _most_held(domain: Domain, blocks: Blocks, buffer: float, nodes: Any) -> int:
    """Return how many nodes, or observations, the fullest of some squares holds, with the strip around it."""
    each = np.ones(domain.n_nodes) if nodes is None else np.bincount(nodes, minlength=domain.n_nodes)
    if not buffer:
        return int(np.bincount(blocks.of, each).max())
    x, y = domain.node_points.T
    boxes = shapely.bounds(blocks.geometry) + buffer * np.array([-1, -1, 1, 1])
    held = (each[(x >= w) & (x <= e) & (y >= s) & (y <= n)].sum() for w, s, e, n in boxes)
    return int(max(held))


def make_blocks(
    blocks: Any, posterior: Posterior, most: int | None = None, buffer: float = 0.0, nodes: Any = None
) -> Blocks:
    """Return blocks as `Posterior.cross_validate` takes them, or say what is wrong with them.

    Parameters
    ----------
    blocks : "auto", float, regions or folds
    posterior : Posterior
    most, buffer, nodes
        Squares of our own choice are made narrower until they can be left out at once; see `narrowed`.
    """
    domain = posterior.domain
    if isinstance(blocks, str) and blocks == "auto":
        wanted = auto_side(posterior)
        side = wanted if most is None else narrowed(domain, wanted, most, buffer, nodes)
        made = replace(squares(domain, side), wanted=wanted if side < wanted else None)
    elif isinstance(blocks, bool) or blocks is None:
        raise DataError(
            f"{option('blocks')} is 'auto', a size, regions or folds; found {blocks!r}.", option="blocks"
        )
    elif isinstance(blocks, (int, float, np.integer, np.floating)):
        made = squares(domain, float(blocks))
    elif are_folds(blocks):
        made = by_folds(domain, blocks)
    else:
        made = by_regions(domain, blocks)
    if len(made) < 2:
        raise DataError(
            f"{option('blocks')}: one block holds all that would be left out; at least two are needed.",
            option="blocks",
            found=len(made),
            remedy="Make them smaller.",
        )
    return made


def squares(domain: Domain, side: float) -> Blocks:
    """Return squares of a side, on a lattice through the origin of the CRS: the same for every grid.

    Examples
    --------
    >>> from geobgp import Domain
    >>> domain = Domain.from_polygons(shapely.box(0, 0, 4, 2), cell_size=1, crs="local")
    >>> squares(domain, 2.0).of.tolist()
    [0, 0, 1, 1, 0, 0, 1, 1]
    """
    h = domain.cell_size
    scale, unit = domain.length_unit
    if not np.isfinite(side) or side < h * (1 - 1e-9):
        raise DataError(
            f"A size of {option('blocks')} is at least that of a cell, {number(h / scale)} {unit}; found "
            f"{number(side / scale) if np.isfinite(side) else side} {unit}.",
            option="blocks",
            found=side,
            remedy="It is given in the domain's own unit, metres unless it is local.",
        )
    west, _, _, north = domain.grid.bounds
    # By the centres of cells: nodes of one cell are never parted.
    east = np.floor((west + (domain.node_cols + 0.5) * h) / side).astype(np.int64)
    up = np.floor((north - (domain.node_rows + 0.5) * h) / side).astype(np.int64)
    found, of = np.unique(np.column_stack([east, up]), axis=0, return_inverse=True)
    corners = found * side
    boxes = shapely.box(corners[:, 0], corners[:, 1], corners[:, 0] + side, corners[:, 1] + side)
    labels = pd.Index([tuple(int(v) for v in pair) for pair in found], tupleize_cols=False)
    return Blocks(labels, of.ravel(), np.atleast_1d(boxes), side)


def by_regions(domain: Domain, regions: Any) -> Blocks:
    """Return regions as blocks; a node belongs to the one that holds the most of its land."""
    frame = read_regions(regions, domain, "blocks")
    shares = area_shares(domain, frame).toarray()
    of = np.where(shares.sum(axis=0) >= 0.5, shares.argmax(axis=0), -1)
    held = np.unique(of[of >= 0])
    if not len(held):
        raise DataError(
            f"{option('blocks')}: none of {count(len(frame), 'region')} holds any land of the domain.",
            option="blocks",
            found=0,
            remedy="Check where they lie, and their CRS.",
        )
    if len(held) < len(frame):
        warn(
            InputWarning(
                f"{count(len(frame) - len(held), 'region')} of {len(frame):,} hold no land of the domain, and "
                "are no blocks.",
                option="blocks",
                found=len(frame) - len(held),
            )
        )
    place = np.full(len(frame) + 1, -1)
    place[held] = np.arange(len(held))
    shapes = frame.geometry if domain.crs is None else frame.geometry.to_crs(domain.crs)
    return Blocks(pd.Index(frame.index[held]), place[of], shapes.to_numpy()[held])


def by_folds(domain: Domain, folds: Any) -> Blocks:
    """Return nodes with the same label as one block; those without a label are never left out."""
    labels = np.asarray(folds)
    if labels.shape != (domain.n_nodes,):
        raise DataError(
            f"Folds have one label for each of the domain's {domain.n_nodes:,} nodes; found "
            f"{'the shape ' + str(labels.shape) if labels.ndim != 1 else count(len(labels), 'label')}.",
            option="blocks",
            found=labels.shape,
            remedy="Label the rows of domain.node_points.",
        )
    of, found = pd.factorize(labels, sort=True)
    if not len(found):
        raise DataError(f"{option('blocks')}: no node has a fold.", option="blocks", found=0)
    h = domain.cell_size
    west, _, _, north = domain.grid.bounds
    left, top = west + domain.node_cols * h, north - domain.node_rows * h
    cells = shapely.box(left, top - h, left + h, top)
    shapes = np.array([shapely.union_all(cells[of == k]) for k in range(len(found))], dtype=object)
    return Blocks(pd.Index(found), of, shapes)


def are_folds(blocks: Any) -> bool:
    """Whether blocks are given as labels: neither by size nor by shapes."""
    if (
        isinstance(blocks, (str, Path, gpd.GeoDataFrame, gpd.GeoSeries, shapely.Geometry))
        or np.ndim(blocks) == 0
    ):
        return False
    return not any(isinstance(one, shapely.Geometry) for one in blocks)


# -- Refits: blocks of the land predicted by fits without them, one for each block, by whoever does the work --


#: What is said of a block at each value of the hyperparameters: how much these weigh, and what they say.
Predicted = tuple[list[float], list[HeldOut]]
#: Nodes of a block and of the strip around it, in this order; how many are the block's; and how many are left out.
Block = tuple[np.ndarray, int, int]


def seen(posterior: Posterior, nodes: np.ndarray) -> Callable[[np.ndarray], Likelihood]:
    """Return the way from some of the nodes, by their places among them, to the likelihood of what was seen there."""
    values, exposure = posterior.observed, posterior.seen_exposure
    assert values is not None
    return lambda some: posterior.likelihood.of(values[nodes[some]], exposure[nodes[some]])


def refitted(
    posterior: Posterior, blocks: Sequence[Block], client: Any = None, n_jobs: int | None = 1
) -> list[Predicted]:
    """Return what fits without each block say of it, hyperparameters learned anew.

    Parameters
    ----------
    posterior : Posterior
        With the counts of its nodes.
    blocks : sequence of Block
    client, n_jobs
        Who fits: as for `geobgp.parallel.open_workers`.
    """
    own, out = posterior.fit.states[0], dict[int, Predicted]()
    means = own.node_moments()[0]
    with open_workers(client, n_jobs) as workers:
        for k, found in workers.run(refit_block, list(blocks), workers.share(posterior)):
            if isinstance(found, Failed):
                raise found.error
            block = blocks[k][0][: blocks[k][1]]
            known = JointNormal(means[block], own.node_covariance(block))
            observed = seen(posterior, block)(np.arange(len(block)))
            out[k] = [1.0], [HeldOut(found, log_score(found, observed, known))]
    return [out[k] for k in range(len(blocks))]


def refit_block(block: Block, posterior: Posterior) -> JointNormal:
    """Fit without the events of some nodes, and return what is predicted for the first of them."""
    nodes, n_block, n_left = block
    assert posterior.observed is not None
    counts = posterior.observed.copy()
    counts[nodes[:n_left]] = 0.0
    state = model_of(posterior, unseen=nodes[:n_left]).fit(counts).fit.states[0]
    here = nodes[:n_block]
    return JointNormal(state.node_moments()[0][here], state.node_covariance(here))


# -- Cross-validation: every block of the land predicted from all others, without new fits or with them ------


#: Joint draws behind the predicted number of events in a block.
DRAWS = 400
#: Neighbours of a block whose sites are renewed: at least so many, or half as many as the block has.
NEIGHBOURS = 200
#: Nodes that can be left out at once: the algebra on them is dense.
MOST_NODES = 6000
#: Nodes (or persons) that automatic blocks hold at most: the time of all blocks grows with the square of it.
AUTO_NODES = 2500
#: Fewer events, nodes or areas than these are not left out without being asked.
_FEWEST_EVENTS, _FEWEST_NODES, _FEWEST_AREAS = 20, 50, 5
#: Chance that a check raises a false alarm: of the coverage, and of the dispersion and the PIT values.
ALARM, RARE_ALARM = 0.01, 0.001


@dataclass(frozen=True, eq=False)
class CrossValidation:
    """How well blocks of the land are predicted from the events outside them.

    Attributes
    ----------
    blocks : GeoDataFrame
        One row per block: ``observed`` and ``expected`` events, the predictive interval of the number observed
        (``predicted_q05``, ``predicted_q95``), the randomised PIT value (``pit``), ``score`` and ``log_density`` in
        nats, ``land_km2`` (``land_area`` on a local domain), and the block's outline.
    block_of : (n_nodes,) int array
        The row of `blocks` that each node belongs to; -1 for nodes that were never left out.
    domain : Domain
    side : float, optional
        Side of the blocks, if they are squares, in the domain's unit.
    buffer : float
        Width of the strip around each block that was left out with it.
    seconds : float
        Time that it took.
    what : str
        What was left out: "blocks", or "areas" with their counts.
    events : str
        What was predicted: "events", or "cases" among the persons of a block. The score of cases is that of who they
        are, above one risk for everybody.
    posterior : Posterior, optional
        The map that was checked.
    wanted_side : float, optional
        The side that blocks should have had, where they are narrower: no more nodes can be left out at once.
    exact : GeoDataFrame, optional
        All numbers of the blocks, where `blocks` hides small ones; scores and coverage are of all.

    Notes
    -----
    A block's ``log_density`` is the logarithm of the predictive density of its events, number and places, as a point
    process per km²: Σ log p(y | outside) + log y! - y log area over the nodes, in which the counts of all nodes
    of the block are taken together. It does not depend on the grid, so that maps with different cells can be compared.
    ``score`` is the same less that of a map with one rate everywhere (events per exposure): 0 says nothing, and 0.7 per
    event that events were twice as likely where they happened as on that map.

    PIT values are level between 0 and 1 if the map knows how sure it is. `coverage` counts those within the
    `interval`: between 0.05 and 0.95 of 90 %.
    """

    blocks: gpd.GeoDataFrame
    block_of: np.ndarray
    domain: Domain
    side: float | None
    buffer: float
    seconds: float
    what: str = "blocks"
    events: str = "events"
    posterior: Posterior | None = field(default=None, repr=False)
    wanted_side: float | None = None
    exact: gpd.GeoDataFrame | None = field(default=None, repr=False)

    @property
    def _all(self) -> gpd.GeoDataFrame:
        """The blocks with all of their numbers, whatever may be shown."""
        return self.blocks if self.exact is None else self.exact

    @property
    def interval(self) -> float:
        """Probability of the predictive intervals: that of the map's."""
        return INTERVAL if self.posterior is None else self.posterior.interval

    @property
    def n_events(self) -> float:
        """Events in all blocks."""
        return float(self._all["observed"].sum())

    @property
    def score(self) -> float:
        """Held-out log score in nats per event, above a map with one rate everywhere."""
        return float(self._all["score"].sum()) / self.n_events

    @property
    def se(self) -> float:
        """Standard error of the score, from the spread among blocks."""
        return per_event(self._all["score"].to_numpy(), self._all["observed"].to_numpy())[1]

    @property
    def pit(self) -> np.ndarray:
        """Randomised PIT values of the blocks, in no order where small numbers are protected."""
        found = self._all["pit"].to_numpy()
        return found if self.exact is None else np.sort(found)

    @property
    def coverage(self) -> float:
        """Share of blocks whose number of events lies within its predictive interval (by PIT value)."""
        return float(np.mean(within(self.pit, self.interval)))

    @cached_property
    def coverage_band(self) -> tuple[float, float]:
        """Where the coverage of true intervals lies with 99 % probability, by the binomial distribution."""
        n = len(self.blocks)
        below = bdtr(np.arange(n + 1, dtype=float), n, self.interval)
        low = int(np.searchsorted(below, 0.5 * ALARM))
        high = int(np.searchsorted(below, 1.0 - 0.5 * ALARM))
        return low / n, high / n

    @property
    def dispersion(self) -> float:
        """Mean square of the PIT values as normal scores: 1 where intervals are right, more where too narrow."""
        return float(np.mean(ndtri(np.clip(self.pit, 1e-4, 1.0 - 1e-4)) ** 2))

    @property
    def pit_chance(self) -> float:
        """Chance that level PIT values stray from the diagonal as far as these (Kolmogorov and Smirnov)."""
        n = len(self.pit)
        ranked = np.sort(self.pit)
        steps = np.arange(1, n + 1) / n
        distance = float(np.max(np.maximum(steps - ranked, ranked - steps + 1.0 / n)))
        return float(kolmogorov(distance * (np.sqrt(n) + 0.12 + 0.11 / np.sqrt(n))))

    def failures(self) -> list[str]:
        """Return in words what is wrong; empty where all checks hold."""
        low, high = self.coverage_band
        n, out = len(self.blocks), []
        share = self._share()
        band = f"{percent(low)} to {percent(high)} would be by chance"
        if self.coverage < low:
            out.append(f"Only {share} ({band}): the map is surer than it should be.")
        elif self.coverage > high:
            out.append(f"{share} ({band}): the map is less sure than it could be.")
        spread = -ndtri(0.5 * RARE_ALARM) * np.sqrt(2.0 / n)
        if not out and self.dispersion > 1.0 + spread:
            out.append(
                f"Left-out {self.what} stray from what is predicted {number(np.sqrt(self.dispersion), 2)} times as far "
                f"as they should: some {self.what} surprise the map."
            )
        if not out and self.pit_chance < RARE_ALARM:
            side = "more" if float(np.mean(self.pit)) > 0.5 else "fewer"
            out.append(f"Left-out {self.what} have {side} {self.events} than predicted, time and again.")
        return out

    @property
    def fine(self) -> bool:
        """Whether all checks hold, and one rate everywhere does not predict better."""
        return not self.failures() and self.score >= 0

    def advice(self) -> list[str]:
        """Return what to try where checks fail, what the fit's own numbers speak for first; empty where all hold.

        Examples
        --------
        >>> import geobgp, numpy as np, shapely
        >>> land = geobgp.Domain.from_polygons(shapely.box(0, 0, 8, 8), cell_size=0.5, crs="local")
        >>> heaps = np.where(np.arange(land.n_nodes) % 9, 0, 12)
        >>> model = geobgp.LGCP(geobgp.FullRank(land), geobgp.Matern(1.0, lengthscale=20.0, sd=0.1))
        >>> model.fit(heaps).cross_validate(1.0).advice()[0][:13]
        'smaller cells'
        """
        if self.posterior is None or not self.failures():
            return []
        return [render_text(one.words) for one in what_to_try(self.posterior, self)]

    def verdict(self) -> str:
        """Return in a sentence or two what the blocks say."""
        low, high = self.coverage_band
        told = self.failures() or [f"{self._share()} ({percent(low)} to {percent(high)} would be by chance)."]
        return " ".join([*told, self._about_score(), *self._about_blocks()])

    def _about_blocks(self) -> list[str]:
        """Return that blocks are narrower than they should be, if they are."""
        if self.wanted_side is None or self.side is None:
            return []
        scale, unit = self.domain.length_unit
        found, wanted = (number(side / scale, 3) for side in (self.side, self.wanted_side))
        most = f"{min(AUTO_NODES, MOST_NODES):,} {'persons' if self.events == 'cases' else 'cells'}"
        return [
            f"Blocks are {found} instead of {wanted} {'units' if unit == 'unit' else unit} wide, so that no more than "
            f"{most} are left out at once; narrower blocks are a little easier to predict."
        ]

    def _share(self) -> str:
        inside = f"within their {whole_percent(self.interval)} predictive interval"
        return f"{percent(self.coverage)} of {len(self.blocks):,} left-out {self.what} lie {inside}"

    def _about_score(self) -> str:
        times, score = np.exp(self.score), f"{number(self.score, 3)} ± {number(self.se, 2)} nats per event"
        if self.events == "cases":
            told = compared(self.score, self.se, "one risk everywhere", "case")
            return f"Who of the persons in held-out blocks are cases is predicted {told}."
        if self.what == "areas":
            return (
                f"Their counts are predicted {compared(self.score, self.se, 'one rate everywhere', 'event')}."
            )
        likely = f"{'' if times > 1 else 'only '}{number(times, 2)} times as likely as"
        if abs(times - 1.0) < 0.05:
            likely = "about as likely as"
        return f"Held-out score {score}: where events happened they were {likely} with one rate everywhere."

    def facts(self) -> dict[str, Any]:
        """Return the numbers, as JSON can hold them."""
        return {
            "blocks": len(self.blocks), "block_side": self.side, "wanted_block_side": self.wanted_side,
            "buffer": self.buffer,
            "score_per_event": self.score, "score_se": self.se, "coverage": self.coverage,
            "interval": self.interval,
            "coverage_band_99": list(self.coverage_band), "dispersion": self.dispersion,
            "pit_chance": self.pit_chance, "fine": self.fine, "failures": self.failures(),
        }  # fmt: skip

    @validated(axes=SEVERAL_AXES)
    def plot(self, axes: Any = None) -> Any:
        """Draw observed and predicted numbers, the map of scores and the PIT values; returns the three axes."""
        from geobgp.output.figures import plot_cross_validation

        return plot_cross_validation(self, axes)

    def __repr__(self) -> str:
        return (
            f"CrossValidation({count(len(self.blocks), 'block')}: score {number(self.score, 3)} ± "
            f"{number(self.se, 2)} nats per event, coverage {percent(self.coverage)} of "
            f"{whole_percent(self.interval)} intervals)"
        )


def per_event(scores: np.ndarray, events: np.ndarray) -> tuple[float, float]:
    """Return the sum of blocks' scores per event, and its standard error.

    Examples
    --------
    >>> per_event(np.array([1.0, 3.0]), np.array([2.0, 2.0]))
    (1.0, 0.5)
    """
    total, n = float(events.sum()), len(scores)
    mean = float(scores.sum()) / total
    spread = float(np.sum((scores - mean * events) ** 2))
    return mean, float(np.sqrt(spread * n / (n - 1)) / total)


def compared(score: float, se: float, against: str, event: str) -> str:
    """Say how a held-out score compares with that of another model, by its sign and its standard error.

    Examples
    --------
    >>> compared(0.12, 0.02, "one rate everywhere", "event")
    'better than by one rate everywhere, by 0.12 ± 0.02 nats per event'
    >>> compared(-0.0227, 0.0053, "one risk everywhere", "case")
    'worse than by one risk everywhere, by 0.0227 ± 0.0053 nats per case'
    >>> compared(-0.01, 0.02, "one rate everywhere", "event")
    'about as well as by one rate everywhere (-0.01 ± 0.02 nats per event)'
    """
    spread = f"± {number(se, 2)} nats per {event}"
    if abs(score) < 2.0 * se:
        return f"about as well as by {against} ({number(score, 3)} {spread})"
    return f"{'better' if score > 0 else 'worse'} than by {against}, by {number(abs(score), 3)} {spread}"


def too_few_to_leave_out(posterior: Posterior) -> str:
    """Return why there is too little to leave any of it out; empty where there is enough."""
    n_events = posterior.points.get("cases", posterior.n_points)
    if n_events < _FEWEST_EVENTS:
        return f"They need at least {_FEWEST_EVENTS} events; there are {n_events:,}."
    if posterior.domain.n_nodes < _FEWEST_NODES:
        return f"They need at least {_FEWEST_NODES} cells; there are {posterior.domain.n_nodes:,}."
    told = 0 if posterior.areas is None else int((~posterior.areas.hidden).sum())
    if posterior.areas is not None and told < _FEWEST_AREAS:
        return f"They need at least {_FEWEST_AREAS} areas whose counts are known; there are {told:,}."
    return ""


def cross_validate(
    posterior: Posterior,
    blocks: Any = "auto",
    buffer: float = 0.0,
    *,
    rounds: int = ROUNDS,
    seed: int = 0,
    refit: bool = False,
    client: Any = None,
    n_jobs: int | None = 1,
) -> CrossValidation:
    """Leave out blocks in turn; see `Posterior.cross_validate`."""
    from threadpoolctl import threadpool_limits

    begin = time.perf_counter()
    values = _observed(posterior)
    made = (
        blocks
        if isinstance(blocks, Blocks)
        else make_blocks(blocks, posterior, min(AUTO_NODES, MOST_NODES), buffer)
    )
    check_size(int(np.bincount(made.of[made.of >= 0]).max()))
    rng = np.random.default_rng(seed)
    with threadpool_limits(limits=1, user_api="blas"):
        parts = left_out_groups(posterior.domain, made, buffer, 0 if refit else rounds)
        groups = (_Group.of(*some) for some in parts)
        found: Iterable[tuple[_Group, Predicted]]
        if refit:
            kept = list(groups)
            again = refitted(posterior, [(g.nodes, g.n_block, g.n_left) for g in kept], client, n_jobs)
            found = zip(kept, again, strict=True)
        else:
            found = _taken_out(posterior, groups, rounds)
        rows = [_row(posterior, values, group, one, rng) for group, one in found]
    table = pd.DataFrame(rows, index=made.labels)
    land = np.bincount(made.of[made.of >= 0], posterior.domain.node_areas[made.of >= 0], len(made))
    name = "land_area" if posterior.domain.crs is None else "land_km2"
    table.insert(0, name, land / posterior.domain.area_unit[0])
    table["log_density"] += table["observed"] * np.log(posterior.domain.area_unit[0])
    table["score"] = table["log_density"] - _one_rate(posterior, values, made)
    frame = gpd.GeoDataFrame(table, geometry=made.geometry, crs=posterior.domain.crs)
    frame.index.name = "block"
    return CrossValidation(
        frame,
        made.of,
        posterior.domain,
        made.side,
        float(buffer),
        time.perf_counter() - begin,
        posterior=posterior,
        wanted_side=made.wanted,
    )


def _observed(posterior: Posterior) -> np.ndarray:
    if posterior.observed is None:
        raise DataError(
            f"Blocks are left out of fits of counts on a domain that know their counts; this fit has a "
            f"{posterior.likelihood.name} likelihood and knows none.",
            remedy="Fit again with LGCP, or load a file that holds the counts.",
        )
    total = float(posterior.observed.sum())
    if total < 2:
        raise DataError(
            f"Cross-validation predicts events from others: at least two are needed; found {number(total)}.",
            found=total,
        )
    return posterior.observed


def check_size(n: int, what: str = "nodes") -> None:
    """Refuse to leave out more than the dense algebra on it can hold."""
    if n > MOST_NODES:
        raise SizeError(
            f"A block of {n:,} {what} cannot be left out at once; the most is {MOST_NODES:,}.",
            option="blocks",
            found=n,
            remedy=f"Use smaller {option('blocks')}.",
        )


@dataclass(frozen=True, eq=False)
class _Group:
    """Nodes of a block, of the strip around it, and of its neighbours, in this order."""

    nodes: np.ndarray
    n_block: int
    n_left: int

    @classmethod
    def of(cls, block: np.ndarray, strip: np.ndarray, near: np.ndarray) -> _Group:
        check_size(len(block) + len(strip))
        return cls(np.concatenate([block, strip, near]), len(block), len(block) + len(strip))


def left_out_groups(
    domain: Domain, blocks: Blocks, buffer: float, rounds: int
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield the nodes of every block, of the strip around it, and of its neighbours, the nearest first."""
    points = domain.node_points
    tree = cKDTree(points)
    for block in range(len(blocks)):
        mine = np.flatnonzero(blocks.of == block)
        taken = np.zeros(len(points), bool)
        taken[mine] = True
        strip = mine[:0]
        if buffer > 0:
            found = tree.query_ball_point(points[mine], buffer)
            strip = np.setdiff1d(np.concatenate([np.asarray(some, int) for some in found]), mine)
            taken[strip] = True
        left = np.concatenate([mine, strip])
        near = mine[:0]
        if rounds:
            wanted = max(NEIGHBOURS, len(left) // 2)
            distance = cKDTree(points[left]).query(points)[0]
            distance[taken] = np.inf
            some = min(wanted, int((~taken).sum()))
            near = np.argpartition(distance, some - 1)[:some] if some else near
            near = near[np.argsort(distance[near], kind="stable")]
        yield mine, strip, near


def _taken_out(
    posterior: Posterior, groups: Iterable[_Group], rounds: int
) -> Iterator[tuple[_Group, Predicted]]:
    """Yield every block with what is said of it when its sites are taken out of the posterior."""
    states = posterior.fit.states
    means = [state.node_moments()[0] for state in states]
    for group in groups:
        observed, found = seen(posterior, group.nodes), []
        for state, mean in zip(states, means, strict=True):
            at = JointNormal(mean[group.nodes], state.node_covariance(group.nodes))
            found.append(hold_out(at, observed, group.n_block, group.n_left, rounds))
        yield group, ([state.weight for state in states], found)


def _row(
    posterior: Posterior,
    values: np.ndarray,
    group: _Group,
    predicted: Predicted,
    rng: np.random.Generator,
) -> dict[str, float]:
    """Return what is predicted for a block, and how well."""
    nodes = group.nodes
    weights, found = predicted
    # Without the block, the hyperparameters that it spoke for weigh less: p(y | rest) = 1 / E 1 / p(y | rest, θ).
    logs = np.log(weights) - [one.log_score for one in found]
    log_score = float(logsumexp(np.log(weights)) - logsumexp(logs))
    shares = rng.multinomial(DRAWS, np.exp(logs - logsumexp(logs)))
    block = nodes[: group.n_block]
    exposure, y = posterior.seen_exposure[block], values[block]
    with np.errstate(over="ignore"):
        each = np.concatenate(
            [np.exp(one.predicted.draw(n, rng)) for one, n in zip(found, shares, strict=True)]
        )
    scatter = posterior.likelihood.scatter(each.shape, rng)
    rates = (each if scatter is None else each * scatter) @ exposure
    total = float(y.sum())
    rates = np.minimum(rates, 1e15)
    ends = predicted_ends(rng.poisson(rates), posterior.interval)
    below, upto = (float(_chance(n, rates).mean()) for n in (total - 1.0, total))
    areas = posterior.domain.node_areas[block]
    return {
        "observed": total,
        "expected": float(rates.mean()),
        **ends,
        "pit": below + rng.random() * (upto - below),
        "log_density": log_score + float(np.sum(gammaln(y + 1.0) - xlogy(y, areas))),
    }


def _chance(n: float, rates: np.ndarray) -> np.ndarray:
    return pdtr(np.floor(n), rates) if n >= 0 else np.zeros(len(rates))


def _one_rate(posterior: Posterior, values: np.ndarray, blocks: Blocks) -> np.ndarray:
    """Return the log density of each block's events on a map with one rate everywhere, per unit of area."""
    inside = blocks.of >= 0
    of, y, exposure = blocks.of[inside], values[inside], posterior.seen_exposure[inside]
    areas = posterior.domain.node_areas[inside] / posterior.domain.area_unit[0]
    rate = float(values.sum()) / float(posterior.seen_exposure.sum())
    density = np.divide(rate * exposure, areas, out=np.zeros(len(areas)), where=areas > 0)
    each = xlogy(y, density) - rate * exposure
    return np.bincount(of, each, len(blocks))


# -- Areas left out: each predicted from all other observations, without new fits ----------------------------


#: Draws behind the predicted number of events in an area.
AREA_DRAWS = 1000


def cross_validate_areas(
    posterior: Posterior, blocks: Any = "auto", buffer: float = 0.0, *, seed: int = 0
) -> CrossValidation:
    """Leave out each area whose number is told; see `Posterior.cross_validate`.

    Other observations are held, and so is how people and their risks are spread within the area.
    """
    if not (isinstance(blocks, str) and blocks == "auto") or buffer:
        raise DataError(
            "A fit of counts by area is checked by leaving out its areas, one by one.",
            option="blocks",
            remedy=f"Leave {option('blocks')} and {option('buffer')} out.",
        )
    begin, areas, domain = time.perf_counter(), posterior.areas, posterior.domain
    assert areas is not None
    seen = combine(areas, posterior.exposure, posterior.effort)
    told = np.flatnonzero((seen.area >= 0) & ~seen.hidden)
    if len(told) < 2 or seen.counts.sum() < 2:
        raise DataError(
            f"Areas are predicted from others: at least two with a number, and two events, are needed; found "
            f"{len(told)} and {seen.counts.sum():g}.",
            option="areas",
            found=len(told),
        )
    rows = _predicted(posterior, seen, told, np.random.default_rng(seed))
    mine = seen.area[told]
    shares = areas.shares[mine]
    table = pd.DataFrame(rows, index=[areas.names[i] for i in mine])
    name = "land_area" if domain.crs is None else "land_km2"
    table.insert(0, name, (shares @ domain.node_areas) / domain.area_unit[0])
    frame = gpd.GeoDataFrame(table, geometry=list(areas.geometry[mine]), crs=areas.crs)
    if domain.crs is not None:
        frame = frame.to_crs(domain.crs)
    frame.index.name = "block"
    entries = shares.tocoo()
    order, owner = np.argsort(entries.data, kind="stable"), np.full(domain.n_nodes, -1)
    owner[entries.col[order]] = entries.row[order]
    seconds = time.perf_counter() - begin
    return CrossValidation(frame, owner, domain, None, 0.0, seconds, "areas", posterior=posterior)


def _predicted(
    posterior: Posterior, seen: Combined, told: np.ndarray, rng: np.random.Generator
) -> list[dict[str, float]]:
    """Return what is predicted for each area, and how well."""
    counts, weights, states = seen.counts[told], seen.exposure[told], posterior.fit.states
    found: list[list[HeldOut]] = []
    for state in states:
        node_mean, node_variance = state.node_moments()
        rows, log_total = row_weights(weights, node_mean, node_variance)
        variance = state.moments_of(rows)[1]  # type: ignore[attr-defined]
        mean = log_total - 0.5 * variance
        found.append([_without(posterior, *one) for one in zip(mean, variance, counts, strict=True)])
    log_share = np.log([state.weight for state in states])
    even = np.asarray(weights.sum(axis=1)).ravel() * float(seen.counts.sum() / seen.exposure.sum())
    table = []
    for k, y in enumerate(counts):
        each = [one[k] for one in found]
        # Without the area, the hyperparameters that it spoke for weigh less: p(y | rest) = 1 / E 1 / p(y | rest, θ).
        logs = log_share - [one.log_score for one in each]
        score = float(logsumexp(log_share) - logsumexp(logs))
        several = rng.multinomial(AREA_DRAWS, np.exp(logs - logsumexp(logs)))
        drawn = [one.predicted.draw(n, rng)[:, 0] for one, n in zip(each, several, strict=True)]
        with np.errstate(over="ignore"):
            rates = np.exp(np.concatenate(drawn))
        scatter = posterior.likelihood.scatter(rates.shape, rng)
        rates = np.minimum(rates if scatter is None else rates * scatter, 1e15)
        ends = predicted_ends(rng.poisson(rates), posterior.interval)
        below, upto = (float(pdtr(np.floor(n), rates).mean()) if n >= 0 else 0.0 for n in (y - 1.0, y))
        table.append({
            "observed": float(y), "expected": float(rates.mean()), **ends,
            "pit": below + rng.random() * (upto - below), "log_density": score,
            "score": score - float(xlogy(y, even[k]) - even[k] - gammaln(y + 1.0)),
        })  # fmt: skip
    return table


def _without(posterior: Posterior, mean: float, variance: float, y: float) -> HeldOut:
    """Return what is said of an area, of which mean and variance of the log of its expected count are known."""
    at = JointNormal(np.array([mean]), np.array([[variance]]))
    likelihood = posterior.likelihood.of(np.array([y]), np.ones(1))
    return hold_out(at, lambda which: likelihood, 1, 1, 0)


# -- Persons left out: the cases among those of a block, predicted from all other persons without new fits ---


#: Joint draws behind the predicted number of cases in a block, and numbers drawn from each.
PERSON_DRAWS, EACH = 400, 5


def cross_validate_persons(
    posterior: Posterior, blocks: Any = "auto", buffer: float = 0.0, *, rounds: int = ROUNDS, seed: int = 0
) -> CrossValidation:
    """Leave out the persons of blocks in turn; see `Posterior.cross_validate`.

    Where persons live is taken as it is: the number of cases among those of a block is predicted, and who of them
    they are is scored. Blocks without persons are none.
    """
    from threadpoolctl import threadpool_limits

    begin, domain = time.perf_counter(), posterior.domain
    groups = _known(posterior)
    if not isinstance(blocks, Blocks):
        blocks = make_blocks(blocks, posterior, min(AUTO_NODES, MOST_NODES), buffer, groups.node)
    made = _with_persons(blocks, groups)
    rng = np.random.default_rng(seed)
    by_node = np.argsort(groups.node, kind="stable")
    first, last = (
        np.searchsorted(groups.node[by_node], np.arange(domain.n_nodes), side) for side in ("left", "right")
    )

    def of_nodes(nodes: np.ndarray) -> np.ndarray:
        return np.concatenate([by_node[:0], *(by_node[first[i] : last[i]] for i in nodes)])

    with threadpool_limits(limits=1, user_api="blas"):
        rows = [
            _person_row(posterior, groups, [of_nodes(part) for part in parts], rng, rounds)
            for parts in left_out_groups(domain, made, buffer, rounds)
        ]
    table = pd.DataFrame(rows, index=made.labels)
    land = np.bincount(made.of[made.of >= 0], domain.node_areas[made.of >= 0], len(made))
    table.insert(0, "land_area" if domain.crs is None else "land_km2", land / domain.area_unit[0])
    frame = gpd.GeoDataFrame(table, geometry=made.geometry, crs=domain.crs)
    frame.index.name = "block"
    seconds = time.perf_counter() - begin
    return CrossValidation(
        frame, made.of, domain, made.side, float(buffer), seconds, events="cases", posterior=posterior,
        wanted_side=made.wanted,
    )  # fmt: skip


def _known(posterior: Posterior) -> Groups:
    groups = posterior.persons
    if groups is None:
        raise DataError(
            "Persons cannot be left out: this map of risk does not know them. Files keep none with confounders.",
            remedy="Call cross_validate() on what map_risk returns, before it is saved.",
        )
    n_cases, n = float(groups.cases.sum()), float(groups.persons.sum())
    if n_cases < 2 or n - n_cases < 2:
        raise DataError(
            f"Cross-validation predicts persons from others: at least two cases and two controls are needed; found "
            f"{n_cases:g} and {n - n_cases:g}.",
            found=n_cases,
        )
    return groups


def _with_persons(blocks: Blocks, groups: Groups) -> Blocks:
    """Return the blocks in which somebody lives."""
    at = blocks.of[groups.node]
    held = np.unique(at[at >= 0])
    if len(held) < 2:
        raise DataError(
            f"{option('blocks')}: {len(held)} of them hold persons; at least two are needed.",
            option="blocks",
            found=len(held),
            remedy="Make them smaller.",
        )
    place = np.full(len(blocks) + 1, -1)
    place[held] = np.arange(len(held))
    return Blocks(blocks.labels[held], place[blocks.of], blocks.geometry[held], blocks.side, blocks.wanted)


def _person_row(
    posterior: Posterior, groups: Groups, parts: list[np.ndarray], rng: np.random.Generator, rounds: int
) -> dict[str, float]:
    """Return what is predicted for a block, and how well; parts are the groups of block, strip and neighbours."""
    mine, strip, near = parts
    near = near[: max(NEIGHBOURS, (len(mine) + len(strip)) // 2)]
    who = np.concatenate([mine, strip, near])
    check_size(len(mine) + len(strip), "persons")
    offset = posterior.likelihood.facts()["offset"]
    states = posterior.fit.states

    def observed(some: np.ndarray) -> Binomial:
        return Binomial(groups.cases[who[some]], groups.persons[who[some]], offset)

    found: list[HeldOut] = []
    for state in states:
        at = JointNormal(*state.joint_at(groups.node[who], groups.effects.columns[who]))
        found.append(hold_out(at, observed, len(mine), len(mine) + len(strip), rounds if len(near) else 0))
    # Without the block, the hyperparameters that it spoke for weigh less: p(y | rest) = 1 / E 1 / p(y | rest, θ).
    log_weight = np.log([state.weight for state in states])
    logs = log_weight - [one.log_score for one in found]
    score = float(logsumexp(log_weight) - logsumexp(logs))
    shares = rng.multinomial(PERSON_DRAWS, np.exp(logs - logsumexp(logs)))
    drawn = [one.predicted.draw(n, rng) for one, n in zip(found, shares, strict=True)]
    chance = np.repeat(expit(offset + np.concatenate(drawn)), EACH, axis=0)
    y, n = groups.cases[mine], groups.persons[mine]
    numbers = rng.binomial(n.astype(np.int64), chance).sum(axis=1)
    total = float(y.sum())
    below, upto = float(np.mean(numbers < total)), float(np.mean(numbers <= total))
    overall = float(groups.cases.sum() / groups.persons.sum())
    ways = float(np.sum(gammaln(n + 1.0) - gammaln(y + 1.0) - gammaln(n - y + 1.0)))
    even = float(np.sum(xlogy(y, overall) + xlogy(n - y, 1.0 - overall)))
    return {
        "persons": float(n.sum()), "observed": total, "expected": float((chance @ n).mean()),
        **predicted_ends(numbers, posterior.interval), "pit": below + rng.random() * (upto - below),
        "log_density": score - ways, "score": score - ways - even,
    }  # fmt: skip
