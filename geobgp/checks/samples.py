"""Samples: what a posterior was fitted to, observation by observation, so that some of it can be held out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
from scipy.special import gammaln, xlogy

from geobgp.checks.blocks import NEIGHBOURS, Blocks, by_nodes, check_size, make_blocks, most_at_once
from geobgp.checks.scoring import Predictive
from geobgp.data.areas import combine
from geobgp.errors import DataError, option
from geobgp.inference.dense import row_weights
from geobgp.inference.held_out import JointNormal
from geobgp.text import number

if TYPE_CHECKING:
    from geobgp.data.persons import Groups
    from geobgp.inference.families import Likelihood
    from geobgp.posterior import Posterior

#: Observations of a block, of the strip around it, and of its neighbours, in this order; how many are the block's; and
#: how many are held out.
Group = tuple[np.ndarray, int, int]


class Sample(ABC):
    """Observations that can be held out, whatever they are.

    Attributes
    ----------
    posterior : Posterior
    values : (n,) array
        What was observed: counts, cases, values.
    size : (n,) array
        What stands behind each: exposure, persons, number tested; ones of values.
    node : (n,) int array
        The node that each lies on; -1 of those that have none.
    constant : (n,) array
        What is added to the log probability of each, so that fits on other cells can be compared.
    constant_model : (n,) array
        The log density of each, with that, if there were one rate (risk, level) everywhere.
    """

    #: What one observation is, what is held out, and what is predicted, in the plural.
    units: ClassVar[str] = "nodes"
    what: ClassVar[str] = "blocks"
    events: ClassVar[str] = "events"
    #: Whether scores are per observation, not per event.
    per_unit: ClassVar[bool] = False

    posterior: Posterior
    values: np.ndarray
    size: np.ndarray
    node: np.ndarray
    constant: np.ndarray
    constant_model: np.ndarray

    @abstractmethod
    def joint(self, state: int, which: np.ndarray) -> JointNormal:
        """Return the linear predictor at some of the observations, jointly, at one value of the hyperparameters."""

    def family(self, state: int) -> Likelihood:
        """Return the family of the observations, with the dispersion at one value of the hyperparameters."""
        likelihood, noise = self.posterior.likelihood, self.posterior.fit.states[state].noise
        return likelihood.with_dispersion(noise) if np.isfinite(noise) else likelihood

    def likelihood(self, state: int, which: np.ndarray) -> Callable[[np.ndarray], Likelihood]:
        """Return the way from some of `which`, by their places among these, to the likelihood of what was observed."""
        family, values, size = self.family(state), self.values[which], self.size[which]
        return lambda places: family.of(values[places], size[places])

    def predict(self, eta: list[np.ndarray], which: np.ndarray, rng: np.random.Generator) -> Predictive:
        """Return what is predicted of the total of some observations, from draws of η by hyperparameters."""
        with np.errstate(over="ignore"):
            rates = self.family(0).poisson_rates(np.exp(np.concatenate(eta)), rng)
        if rates is not None:
            return Predictive.of_rates(rates @ self.size[which][:, None], rng)
        return Predictive(self.total(self.draw(eta, which, rng), axis=1)[:, None])

    def draw(self, eta: list[np.ndarray], which: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return draws of some observations."""
        size = self.size[which]
        return np.concatenate([self.family(k).draw(part, size, rng) for k, part in enumerate(eta)])

    def total(self, values: np.ndarray, axis: int = 0) -> np.ndarray:
        """Return what is predicted of several observations together: their sum."""
        return np.asarray(values.sum(axis=axis))

    # -- how it is divided -------------------------------------------------------------------------

    def divide(self, blocks: Any, buffer: float) -> Blocks:
        """Return the blocks that are held out in turn."""
        divided = blocks
        if not isinstance(blocks, Blocks):
            divided = make_blocks(blocks, self.posterior, most_at_once(), buffer, self._counted)
        return divided if self._counted is None else divided.holding(self._counted, self.units)

    #: The nodes whose observations limit the size of blocks; None: all nodes.
    _counted: np.ndarray | None = None

    def land(self, blocks: Blocks) -> np.ndarray:
        """Return the land of each block."""
        return blocks.land(self.posterior.domain)

    def block_of(self, blocks: Blocks) -> np.ndarray:
        """Return the block of each observation; -1 for those that are never held out."""
        return np.where(self.node >= 0, blocks.of[self.node], -1)

    def groups(self, blocks: Blocks, buffer: float, neighbours: bool) -> Iterator[Group]:
        """Yield what is held out for each block, and the observations near it."""
        order = np.argsort(self.node, kind="stable")
        ends = np.searchsorted(self.node[order], np.arange(self.posterior.domain.n_nodes + 1))

        def on(nodes: np.ndarray) -> np.ndarray:
            return np.concatenate([order[:0], *(order[ends[i] : ends[i + 1]] for i in nodes)])

        for parts in blocks.neighbourhoods(self.posterior.domain, buffer, neighbours):
            block, strip, near = map(on, parts)
            n_held = len(block) + len(strip)
            check_size(n_held, self.units)
            near = near[: max(NEIGHBOURS, n_held // 2)]
            yield np.concatenate([block, strip, near]), len(block), n_held

    def columns(self, block: np.ndarray) -> dict[str, float]:
        """Return what else is said of a block in the table."""
        return {}


class NodeSample(Sample):
    """Counts of events at the nodes of a domain."""

    def __init__(self, posterior: Posterior) -> None:
        if posterior.observed is None:
            raise DataError(
                f"Blocks are held out of fits of counts on a domain that know their counts; this fit has a "
                f"{posterior.likelihood.name} likelihood and knows none.",
                remedy="Fit again with LGCP, or load a file that holds the counts.",
            )
        total = float(posterior.observed.sum())
        if total < 2:
            raise DataError(
                f"Cross-validation predicts events from others: at least two are needed; found {number(total)}.",
                found=total,
            )
        domain, y = posterior.domain, posterior.observed
        self.posterior, self.values, self.size = posterior, y, posterior.seen_exposure
        self.node = np.arange(domain.n_nodes)
        area = domain.node_areas / domain.area_unit[0]
        self.constant = gammaln(y + 1.0) - xlogy(y, area)
        rate = total / float(self.size.sum()) * self.size
        self.constant_model = xlogy(y, np.where(area > 0, rate / np.where(area > 0, area, 1.0), 0.0)) - rate

    @cached_property
    def _means(self) -> list[np.ndarray]:
        return [state.node_moments()[0] for state in self.posterior.fit.states]

    def joint(self, state: int, which: np.ndarray) -> JointNormal:
        """Return the linear predictor at some nodes."""
        covariance = self.posterior.fit.states[state].node_covariance(which)
        return JointNormal(self._means[state][which], covariance)


class AreaSample(Sample):
    """Numbers of events by area; each area whose number is known is a block.

    Attributes
    ----------
    rows : (n,) int array
        The row of `combine` that each area has.
    """

    units = what = "areas"

    def __init__(self, posterior: Posterior) -> None:
        areas, domain = posterior.areas, posterior.domain
        assert areas is not None
        rows = combine(areas, posterior.exposure, posterior.effort)
        # Of an area whose events all have a place nobody is left.
        behind = np.asarray(rows.exposure.sum(axis=1)).ravel() > 0
        known = np.flatnonzero((rows.area >= 0) & ~rows.hidden & behind)
        if len(known) < 2 or rows.counts.sum() < 2:
            raise DataError(
                "Areas are predicted from others: at least two with a number, and two events, are needed; found "
                f"{len(known)} and {rows.counts.sum():g}.",
                option="areas",
                found=len(known),
            )
        self.posterior, self.rows, self.areas, self.exposure = posterior, known, areas, rows.exposure[known]
        self.area = rows.area[known]
        y = self.values = rows.counts[known]
        self.size, self.node, self.constant = np.ones(len(y)), np.full(len(y), -1), np.zeros(len(y))
        rate = self.exposure.sum(axis=1) * float(rows.counts.sum() / rows.exposure.sum())
        self.constant_model = xlogy(y, rate) - rate - gammaln(y + 1.0)
        self._n_nodes = domain.n_nodes

    @cached_property
    def _moments(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Mean and variance of the log of each area's expected count, by hyperparameters."""
        moments = []
        for state in self.posterior.fit.states:
            rows, log_total = row_weights(self.exposure, *state.node_moments())
            variance = state.moments_of(rows)[1]  # type: ignore[attr-defined]
            moments.append((log_total - 0.5 * variance, variance))
        return moments

    def joint(self, state: int, which: np.ndarray) -> JointNormal:
        """Return the log of an area's expected count; only of one at a time."""
        mean, variance = self._moments[state]
        return JointNormal(mean[which], np.diag(variance[which]))

    def divide(self, blocks: Any, buffer: float) -> Blocks:
        """Return the areas: they are held out one by one."""
        if not (isinstance(blocks, str) and blocks == "auto") or buffer:
            raise DataError(
                "A fit of counts by area is checked by holding out its areas, one by one.",
                option="blocks",
                remedy=f"Leave {option('blocks')} and {option('buffer')} out.",
            )
        entries = self.areas.shares[self.area].tocoo()
        order, owner = np.argsort(entries.data, kind="stable"), np.full(self._n_nodes, -1)
        owner[entries.col[order]] = entries.row[order]
        shapes, crs = self.areas.geometry[self.area], self.posterior.domain.crs
        if crs is not None:
            import geopandas as gpd

            shapes = gpd.GeoSeries(list(shapes), crs=self.areas.crs).to_crs(crs).to_numpy()
        return Blocks(pd.Index([self.areas.names[i] for i in self.area]), owner, shapes)

    def land(self, blocks: Blocks) -> np.ndarray:
        """Return the land of each area."""
        domain = self.posterior.domain
        return np.asarray(self.areas.shares[self.area] @ domain.node_areas) / domain.area_unit[0]

    def block_of(self, blocks: Blocks) -> np.ndarray:
        """Return the block of each area: itself."""
        return np.arange(len(self.values))

    def groups(self, blocks: Blocks, buffer: float, neighbours: bool) -> Iterator[Group]:
        """Yield the areas, one by one; others are held as they are."""
        yield from ((np.array([k]), 1, 1) for k in range(len(self.values)))


class PersonSample(Sample):
    """Cases among the persons of a node with the same confounders; where persons live is taken as it is."""

    units, events = "persons", "cases"

    def __init__(self, posterior: Posterior) -> None:
        groups: Groups | None = posterior.persons
        if groups is None:
            raise DataError(
                "Persons cannot be held out: this map of risk does not know them. Files keep none with confounders.",
                remedy="Call cross_validate() on what map_risk returns, before it is saved.",
            )
        y, n = self.values, self.size = groups.cases, groups.telling
        cases, controls = float(y.sum()), float((n - y).sum())
        if min(cases, controls) < 2:
            raise DataError(
                "Cross-validation predicts persons from others: at least two cases and two controls are needed; "
                f"found {cases:g} and {controls:g}.",
                found=cases,
            )
        self.posterior, self.groups_of_persons, self.node = posterior, groups, groups.node
        self._counted = groups.node
        # Which of the persons of a group are the cases is not told by their number.
        self.constant = -(gammaln(n + 1.0) - gammaln(y + 1.0) - gammaln(n - y + 1.0))
        share = cases / (cases + controls)
        self.constant_model = xlogy(y, share) + xlogy(n - y, 1.0 - share)

    def joint(self, state: int, which: np.ndarray) -> JointNormal:
        """Return the linear predictor of some groups of persons."""
        columns = self.groups_of_persons.effects.columns[which]
        mean, covariance = self.posterior.fit.states[state].joint_at(self.node[which], columns)
        return JointNormal(mean + self.groups_of_persons.log_effort[which], covariance)

    def columns(self, block: np.ndarray) -> dict[str, float]:
        """Return how many persons live in a block."""
        return {"persons": float(self.size[block].sum())}


class SiteSample(Sample):
    """Values, classes or numbers of positives among those tested, observed at places.

    Parameters
    ----------
    posterior : Posterior
    coords : (n, 2) array
        In the domain's CRS, on land.
    values : (n,) array
    tested : (n,) array, optional
        Number tested, of numbers of positives.
    columns : (n, k) array, optional
        Fixed effects there, standardised; by default those of the nodes.
    """

    units = events = "sites"
    per_unit = True

    def __init__(
        self,
        posterior: Posterior,
        coords: np.ndarray,
        values: np.ndarray,
        tested: np.ndarray | None = None,
        columns: np.ndarray | None = None,
    ) -> None:
        y = self.values = np.asarray(values, float)
        self.posterior, self.coords, self.fixed = posterior, np.asarray(coords, float), columns
        self.size = np.ones(len(y)) if tested is None else np.asarray(tested, float)
        self.node = self._counted = posterior.domain.node_at(self.coords)
        if len(y) < 2:
            raise DataError(f"Sites are predicted from others: at least two are needed; found {len(y)}.", found=len(y))
        self.constant = np.zeros(len(y))
        family = self.family(0)
        # One level everywhere: the mean of all observations, and of values their spread about it.
        level = family.link.forward(np.array(float(y.sum() / self.size.sum())))
        if family.dispersion == "noise":
            transformed = family.link.forward(y)
            level, family = transformed.mean(), family.with_dispersion(float(np.std(transformed)) or 1.0)
        self.constant_model = family.log_density(y, level, self.size)

    def joint(self, state: int, which: np.ndarray) -> JointNormal:
        """Return the linear predictor at some sites."""
        columns = None if self.fixed is None else self.fixed[which]
        return JointNormal(*self.posterior.fit.states[state].joint_at(self.coords[which], columns))

    def divide(self, blocks: Any, buffer: float) -> Blocks:
        """Return the blocks that are held out in turn; "sites" are those of one cell each."""
        if isinstance(blocks, str) and blocks == "sites":
            blocks = by_nodes(self.posterior.domain, self.node)
        return super().divide(blocks, buffer)

    def total(self, values: np.ndarray, axis: int = 0) -> np.ndarray:
        """Return what is predicted of several sites together: the mean of values, the sum of positives."""
        values = np.asarray(values)
        return np.asarray(values.mean(axis) if self.family(0).dispersion == "noise" else values.sum(axis))

    def columns(self, block: np.ndarray) -> dict[str, float]:
        """Return how many sites a block has."""
        return {"sites": float(len(block))}


def sample_of(posterior: Posterior) -> Sample:
    """Return what a posterior was fitted to, as it can be held out."""
    if posterior.areas is not None:
        return AreaSample(posterior)
    if posterior.sites is not None:
        sites = posterior.sites
        return SiteSample(posterior, sites.coords, sites.values, sites.tested, sites.columns)
    return PersonSample(posterior) if posterior.exposure_kind == "risk" else NodeSample(posterior)
