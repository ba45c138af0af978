"""Cross-validation: every block of the land predicted from all others, without new fits or with them."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import geopandas as gpd
import numpy as np
import pandas as pd
from scipy.spatial import cKDTree
from scipy.special import bdtr, gammaln, kolmogorov, logsumexp, ndtri, pdtr, xlogy

from geobgp.arguments import SEVERAL_AXES
from geobgp.checks.advice import what_to_try
from geobgp.checks.blocks import Blocks, make_blocks
from geobgp.checks.refits import Predicted, refitted, seen
from geobgp.errors import DataError, SizeError, in_words, option
from geobgp.inference.leave_out import ROUNDS, JointNormal, leave_out
from geobgp.inference.mixture import INTERVAL, predicted_ends, within
from geobgp.text import count, number, percent, whole_percent
from geobgp.validate import door

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from geobgp.land.domain import Domain
    from geobgp.posterior import Posterior

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
        return [in_words(one.words) for one in what_to_try(self.posterior, self)]

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

    @door(axes=SEVERAL_AXES)
    def plot(self, axes: Any = None) -> Any:
        """Draw observed and predicted numbers, the map of scores and the PIT values; returns the three axes."""
        from geobgp.output.check_plots import plot_cross_validation

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
            found.append(leave_out(at, observed, group.n_block, group.n_left, rounds))
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
