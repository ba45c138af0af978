"""Cross-validation without refitting: blocks, areas, persons or sites held out, their scores, coverage and PIT."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import geopandas as gpd
import numpy as np
import pandas as pd

from geobgp.checks.blocks import most_at_once
from geobgp.checks.samples import Group, NodeSample, Sample, sample_of
from geobgp.checks.scoring import RARE_ALARM, Calibration, Predictive, compared, log_mean_exp, per_event, without_block
from geobgp.errors import CheckWarning, DataError, option, render_text
from geobgp.inference.held_out import ROUNDS, HeldOut, JointNormal, hold_out, log_score
from geobgp.inference.mixture import INTERVAL
from geobgp.model import model_of
from geobgp.parallel import open_workers
from geobgp.prior.basis import MAX_TRUNCATED_VARIANCE
from geobgp.text import count, number, percent, whole_percent
from geobgp.validation import SEVERAL_AXES, validated

if TYPE_CHECKING:
    from geobgp.land.domain import Domain
    from geobgp.posterior import Posterior


# -- Advice: what to try where held-out blocks are predicted badly, in the order that the fit's own evidence suggests --


class Advice(NamedTuple):
    """Something to try, and how strongly the fit speaks for it: 0 is not at all, 1 strongly."""

    evidence: float
    words: str


def what_to_try(posterior: Posterior, checked: CrossValidation) -> list[Advice]:
    """Return what might mend a map, what its own numbers speak for first.

    Options are named with `geobgp.errors.option`, to be said in the words of whoever shows them.
    """
    risk = posterior.exposure_kind == "risk"
    advice = [*_resolution(posterior), *_water(posterior, checked), *_crowds(posterior), *_pattern(checked, risk)]
    return sorted(advice, key=lambda one: -one.evidence)


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
    misses = checked.calibration.normal_scores**2
    ratio, why = 1.0, "it is closed here, and nothing is known across it"
    if 3 <= wet.sum() <= n - 3:
        ratio = float(np.sqrt(misses[wet].mean() / max(misses[~wet].mean(), 1e-12)))
    if ratio > 1.1:
        why = f"held-out blocks beside water miss by {number(ratio, 2)} times as much as those inland"
    elif domain.water_geometry is None and domain.n_components == 1:
        return
    how = option("permeability", "auto", python="permeability=0.3 or 1")
    yield Advice(float(np.clip(ratio - 1.0, 0.05, 2.0)), f"water that information may cross ({how}): {why}")


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
    score = checked.calibration.normal_scores
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
    yield Advice(0.1 + 2.0 * max(alike, 0.0), f"{what}{why}")


# -- What was held out, and how it was predicted ----------------------------------------------------------------


#: Joint draws behind what is predicted for a block.
DRAWS = 400
#: Fewer events, nodes or areas than these are not held out without being asked.
_FEWEST_EVENTS, _FEWEST_NODES, _FEWEST_AREAS = 20, 50, 5


@dataclass(frozen=True, eq=False)
class CrossValidation:
    """How well blocks of the land (areas, persons or sites of blocks) are predicted from what lies outside them.

    Attributes
    ----------
    blocks : GeoDataFrame
        One row per block: ``observed`` and ``expected`` events, the predictive interval of the number observed
        (``predicted_q05``, ``predicted_q95``), the randomised PIT value (``pit``), ``crps``, ``score`` and
        ``log_density`` in nats, ``land_km2`` (``land_area`` on a local domain), and the block's outline.
    block_of : (n_nodes,) int array
        The row of `blocks` that each node belongs to; -1 for nodes that were never held out.
    domain : Domain
    side : float, optional
        Side of the blocks, if they are squares, in the domain's unit.
    buffer : float
        Width of the strip around each block that was held out with it.
    seconds : float
        Time that it took.
    what : str
        What was held out: "blocks", or "areas" with their counts.
    events : str
        What was predicted: "events"; "cases" among the persons of a block, whose score is that of who they are, above
        one risk for everybody; or what was observed at the "sites" of a block: sums of numbers, means of values.
    posterior : Posterior, optional
        The map that was checked.
    wanted_side : float, optional
        The side that blocks should have had, where they are narrower: no more nodes can be held out at once.
    exact : GeoDataFrame, optional
        All numbers of the blocks, where `blocks` hides small ones; scores and coverage are of all.
    sites : DataFrame, optional
        Of sites: ``block``, ``observed``, ``expected``, the predictive interval, ``pit``, ``crps``,
        ``interval_score`` and ``log_density`` of each by itself.

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
    sites: pd.DataFrame | None = field(default=None, repr=False)

    @property
    def table(self) -> gpd.GeoDataFrame:
        """The blocks, small numbers hidden where the posterior hides them."""
        return self.blocks

    @property
    def scored(self) -> gpd.GeoDataFrame:
        """The blocks with all of their numbers, whatever may be shown."""
        return self.blocks if self.exact is None else self.exact

    @property
    def interval(self) -> float:
        """Probability of the predictive intervals: that of the map's."""
        return INTERVAL if self.posterior is None else self.posterior.interval

    @property
    def weights(self) -> pd.Series:
        """What scores are per: the events of each block, or its sites."""
        return self.scored["sites" if "sites" in self.scored else "observed"]

    @property
    def n_events(self) -> float:
        """Events (or sites) in all blocks."""
        return float(self.weights.sum())

    @property
    def score(self) -> float:
        """Held-out log score in nats per event, above a map with one rate everywhere."""
        return float(self.scored["score"].sum()) / self.n_events

    @property
    def se(self) -> float:
        """Standard error of the score, from the spread among blocks."""
        return per_event(self.scored["score"].to_numpy(), self.weights.to_numpy())[1]

    @property
    def pit(self) -> np.ndarray:
        """Randomised PIT values of the blocks, in no order where small numbers are protected."""
        return self.calibration.pit

    @cached_property
    def calibration(self) -> Calibration:
        """What the PIT values say."""
        pit = self.scored["pit"].to_numpy()
        return Calibration(pit if self.exact is None else np.sort(pit), self.interval)

    @property
    def coverage(self) -> float:
        """Share of blocks whose number of events lies within its predictive interval (by PIT value)."""
        return self.calibration.coverage

    @property
    def coverage_band(self) -> tuple[float, float]:
        """Where the coverage of true intervals lies with 99 % probability, by the binomial distribution."""
        return self.calibration.band

    @property
    def dispersion(self) -> float:
        """Mean square of the PIT values as normal scores: 1 where intervals are right, more where too narrow."""
        return self.calibration.dispersion

    @property
    def pit_chance(self) -> float:
        """Chance that level PIT values stray from the diagonal as far as these (Kolmogorov and Smirnov)."""
        return self.calibration.chance

    def failures(self) -> list[str]:
        """Return in words what is wrong; empty where all checks hold."""
        low, high = self.coverage_band
        share, band = self._share(), f"{percent(low)} to {percent(high)} are expected by chance"
        if self.coverage < low:
            return [f"Only {share} ({band}): the map is surer than it should be."]
        if self.coverage > high:
            return [f"{share} ({band}): the map is less sure than it could be."]
        if self.calibration.overdispersed:
            return [
                f"Held-out {self.what} stray from what is predicted {number(np.sqrt(self.dispersion), 2)} times as far "
                f"as they should: some {self.what} surprise the map."
            ]
        if self.pit_chance < RARE_ALARM:
            more = float(np.mean(self.pit)) > 0.5
            what = f"{'more' if more else 'fewer'} {self.events}"
            if self.events == "sites":
                what = f"{'higher' if more else 'lower'} values"
            return [f"Held-out {self.what} have {what} than predicted, time and again."]
        return []

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
        level = f"{self._share()} ({percent(low)} to {percent(high)} are expected by chance)."
        return " ".join([*(self.failures() or [level]), self._about_score(), *self._about_blocks()])

    def _about_blocks(self) -> list[str]:
        """Return that blocks are narrower than they should be, if they are."""
        if self.wanted_side is None or self.side is None:
            return []
        scale, unit = self.domain.length_unit
        side, wanted = (number(side / scale, 3) for side in (self.side, self.wanted_side))
        unit, held = "units" if unit == "unit" else unit, {"cases": "persons", "sites": "sites"}
        most = f"{most_at_once():,} {held.get(self.events, 'cells')}"
        return [
            f"Blocks are {side} instead of {wanted} {unit} wide, so that no more than {most} are held out at once; "
            "narrower blocks are a little easier to predict."
        ]

    def _share(self) -> str:
        inside = f"within their {whole_percent(self.interval)} predictive interval"
        return f"{percent(self.coverage)} of {len(self.blocks):,} held-out {self.what} lie {inside}"

    def _about_score(self) -> str:
        def against(what: str, event: str) -> str:
            return compared(self.score, self.se, what, event)

        if self.events == "cases":
            comparison = against("one risk everywhere", "case")
            return f"Who of the persons in held-out blocks are cases is predicted {comparison}."
        if self.events == "sites":
            return f"What was observed there is predicted {against('one level everywhere', 'site')}."
        if self.what == "areas":
            return f"Their counts are predicted {against('one rate everywhere', 'event')}."
        times, score = np.exp(self.score), f"{number(self.score, 3)} ± {number(self.se, 2)} nats per event"
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
            f"{number(self.se, 2)} nats per {self.events[:-1]}, coverage {percent(self.coverage)} of "
            f"{whole_percent(self.interval)} intervals)"
        )


def too_few_to_hold_out(posterior: Posterior) -> str:
    """Return why there is too little to hold any of it out; empty where there is enough."""
    n_events = posterior.points.get("cases", posterior.n_points)
    if n_events < _FEWEST_EVENTS:
        return f"They need at least {_FEWEST_EVENTS} events; there are {n_events:,}."
    if posterior.domain.n_nodes < _FEWEST_NODES:
        return f"They need at least {_FEWEST_NODES} cells; there are {posterior.domain.n_nodes:,}."
    known = 0 if posterior.areas is None else int((~posterior.areas.hidden).sum())
    if posterior.areas is not None and known < _FEWEST_AREAS:
        return f"They need at least {_FEWEST_AREAS} areas whose counts are known; there are {known:,}."
    return ""


# -- Holding out -------------------------------------------------------------------------------------------------


def cross_validate(
    posterior: Posterior,
    blocks: Any = "auto",
    buffer: float = 0.0,
    *,
    rounds: int = ROUNDS,
    rng: int | np.random.Generator = 0,
    refit: bool = False,
    client: Any = None,
    n_jobs: int | None = 1,
    sample: Sample | None = None,
) -> CrossValidation:
    """Hold out blocks in turn; see `Posterior.cross_validate`.

    Parameters
    ----------
    posterior : Posterior
    blocks, buffer, rounds, rng, refit, client, n_jobs
        See there; of sites `blocks` may be "sites".
    sample : Sample, optional
        What is held out; by default what the posterior knows that it was fitted to.
    """
    from threadpoolctl import threadpool_limits

    begin, domain = time.perf_counter(), posterior.domain
    sample = sample_of(posterior) if sample is None else sample
    sample.check_enough()
    if refit and not isinstance(sample, NodeSample):
        raise DataError(
            f"Refits without each block are for points only, not {sample.units}.",
            option="refit",
            remedy=f"Leave {option('refit')} out.",
        )
    divided = sample.divide(blocks, buffer)
    rng = np.random.default_rng(rng)
    rows: list[dict[str, float]] = []
    by_site: list[pd.DataFrame] = []
    with threadpool_limits(limits=1, user_api="blas"):
        groups = sample.groups(divided, buffer, bool(rounds) and not refit)
        if refit:
            predicted = _refitted(sample, list(groups), client, n_jobs)
        else:
            predicted = ((group, _hold_out(sample, group, rounds)) for group in groups)
        for (which, n_block, _), held in predicted:
            block = which[:n_block]
            row, sites = scored(sample, block, held, rng)
            rows.append(row)
            if sites is not None:
                by_site.append(sites.assign(block=len(rows) - 1))
    table = pd.DataFrame(rows, index=divided.labels)
    table.insert(0, "land_area" if domain.crs is None else "land_km2", sample.land(divided))
    owner = sample.block_of(divided)
    inside = owner >= 0
    table["score"] = table["log_density"] - np.bincount(owner[inside], sample.constant_model[inside], len(divided))
    frame = gpd.GeoDataFrame(table, geometry=list(divided.geometry), crs=domain.crs)
    frame.index.name = "block"
    return CrossValidation(
        frame,
        divided.of,
        domain,
        divided.side,
        float(buffer),
        time.perf_counter() - begin,
        sample.what,
        sample.events,
        posterior=posterior,
        wanted_side=divided.wanted,
        sites=pd.concat(by_site) if by_site else None,
    )


def _hold_out(sample: Sample, group: Group, rounds: int) -> list[HeldOut]:
    """Return what is said of a block when its sites are taken out of the posterior, by hyperparameters."""
    which, n_block, n_held = group
    rounds = rounds if len(which) > n_held else 0
    return [
        hold_out(sample.joint(k, which), sample.likelihood(k, which), n_block, n_held, rounds)
        for k in range(len(sample.posterior.fit.states))
    ]


def scored(
    sample: Sample, block: np.ndarray, held: list[HeldOut], rng: np.random.Generator
) -> tuple[dict[str, float], pd.DataFrame | None]:
    """Return what is predicted for a block, and how well; and for each of its sites by itself, of sites."""
    # Fits without the block have one value of the hyperparameters, the best.
    weights = [state.weight for state in sample.posterior.fit.states] if len(held) > 1 else [1.0]
    score, shares = without_block(weights, [one.log_score for one in held])
    numbers = rng.multinomial(DRAWS, shares)
    eta = [one.predicted.draw(n, rng) for one, n in zip(held, numbers, strict=True)]
    total, interval = sample.predict(eta, block, rng), sample.posterior.interval
    observed = sample.total(sample.values[block])
    row = sample.columns(block) | {"observed": float(observed), "expected": float(total.mean[0])}
    row |= {name: float(end[0]) for name, end in total.ends(interval).items()}
    row |= {"pit": float(total.pit(rng, observed)[0]), "crps": float(total.crps(observed)[0])}
    row |= {"log_density": score + float(sample.constant[block].sum())}
    if not sample.per_unit:
        return row, None
    y, size = sample.values[block], sample.size[block]
    each = Predictive(sample.draw(eta, block, rng))
    densities = [sample.family(k).log_density(y, part, size) for k, part in enumerate(eta)]
    columns = {"site": block, "observed": y, "expected": each.mean} | each.ends(interval)
    columns |= {"pit": each.pit(rng, y), "crps": each.crps(y)}
    columns |= {"interval_score": each.interval_score(y, interval)}
    columns |= {"log_density": log_mean_exp(np.concatenate(densities))}
    return row, pd.DataFrame(columns).set_index("site")


def _refitted(
    sample: Sample, groups: list[Group], client: Any, n_jobs: int | None
) -> Iterator[tuple[Group, list[HeldOut]]]:
    """Yield every block with what a fit without it says, hyperparameters learned anew, by whoever fits."""
    with open_workers(client, n_jobs) as workers:
        predicted: list[JointNormal] = workers.gather(refit_block, groups, workers.share(sample.posterior))
    for k, (which, n_block, n_held) in enumerate(groups):
        block = which[:n_block]
        observed = sample.likelihood(0, block)(np.arange(n_block))
        score = log_score(predicted[k], observed, sample.joint(0, block))
        yield (which, n_block, n_held), [HeldOut(predicted[k], score)]


def refit_block(group: Group, posterior: Posterior) -> JointNormal:
    """Fit without the events of some nodes, and return what is predicted for the first of them."""
    nodes, n_block, n_held = group
    assert posterior.observed is not None
    counts = posterior.observed.copy()
    counts[nodes[:n_held]] = 0.0
    state = model_of(posterior, unseen=nodes[:n_held]).fit(counts).fit.states[0]
    return JointNormal(*state.joint_at(nodes[:n_block]))
