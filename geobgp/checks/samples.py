"""Samples: what a posterior was fitted to, observation by observation, so that some of it can be held out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
from scipy.special import expit, gammaln, logit, xlogy

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
    weight : (n,) array
        What scores are per: events, cases, or one for each site.
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

    @cached_property
    @abstractmethod
    def constant_model(self) -> np.ndarray:
        """The log density of each if there were one rate (risk, level) everywhere."""

    @property
    def weight(self) -> np.ndarray:
        """What scores are per."""
        return self.values

    @abstractmethod
    def check_enough(self) -> None:
        """Refuse what is too little to hold any of it out."""

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
        domain, y = posterior.domain, posterior.observed
        self.posterior, self.values, self.size = posterior, y, posterior.seen_exposure
        self.node = np.arange(domain.n_nodes)
        area = domain.node_areas / domain.area_unit[0]
        self.constant = gammaln(y + 1.0) - xlogy(y, area)

    @cached_property
    def constant_model(self) -> np.ndarray:
        """The log density of the events as a point process, if there were one rate everywhere."""
        domain = self.posterior.domain
        area = domain.node_areas / domain.area_unit[0]
        rate = float(self.values.sum()) / float(self.size.sum()) * self.size
        density = np.where(area > 0, rate / np.where(area > 0, area, 1.0), 0.0)
        return np.asarray(xlogy(self.values, density) - rate)

    def check_enough(self) -> None:
        """Refuse fewer than two events."""
        total = float(self.values.sum())
        if total < 2:
            raise DataError(
                f"Cross-validation predicts events from others: at least two are needed; found {number(total)}.",
                found=total,
            )

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
        self._n_events = float(rows.counts.sum())
        self.posterior, self.rows, self.areas, self.exposure = posterior, known, areas, rows.exposure[known]
        self.area = rows.area[known]
        y = self.values = rows.counts[known]
        self.size, self.node, self.constant = np.ones(len(y)), np.full(len(y), -1), np.zeros(len(y))
        self._overall = self._n_events / float(rows.exposure.sum())
        self._n_nodes = domain.n_nodes

    def check_enough(self) -> None:
        """Refuse a single area with a number, or a single event."""
        n, events = len(self.values), self._n_events
        if n < 2 or events < 2:
            raise DataError(
                "Areas are predicted from others: at least two with a number, and two events, are needed; found "
                f"{n} and {events:g}.",
                option="areas",
                found=n,
            )

    @cached_property
    def constant_model(self) -> np.ndarray:
        """The log probability of each number, if there were one rate everywhere."""
        y, rate = self.values, self.exposure.sum(axis=1) * self._overall
        return np.asarray(xlogy(y, rate) - rate - gammaln(y + 1.0))

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


class PlaceSample(Sample):
    """Observations at places, of which several may be alike."""

    @abstractmethod
    def _predictor(self, mean: float) -> float:
        """Return the linear predictor where observations of size one have this mean."""

    def level(self, which: np.ndarray, about: float | None = None) -> float:
        """Return the linear predictor at which some observations lie together.

        Parameters
        ----------
        which : (k,) int array
        about : float, optional
            The linear predictor of one observation of size one that is added to them.
        """
        y, size = self.values[which], self.size[which]
        if self._noisy:
            y = self._transformed[which]
        total, n = float(y.sum()), float(size.sum())
        if about is not None:
            total, n = total + self._mean(about), n + 1.0
        return self._predictor(total / n)

    @abstractmethod
    def _mean(self, eta: float) -> float:
        """Return the mean of observations of size one at a linear predictor: the inverse of `_predictor`."""

    @property
    def _noisy(self) -> bool:
        return self.posterior.likelihood.dispersion == "noise"

    @cached_property
    def _transformed(self) -> np.ndarray:
        return self.posterior.likelihood.link.forward(self.values)

    def log_density_at(self, eta: np.ndarray, which: np.ndarray, spread: float | None = None) -> np.ndarray:
        """Return the log density of some observations at linear predictors, with the spread of values about these."""
        family = self.family(0)
        if self._noisy and spread is not None:
            family = family.with_dispersion(spread or 1.0)
        return family.log_density(self.values[which], eta, self.size[which]) + self.constant[which]

    def spread(self, eta: np.ndarray, which: np.ndarray) -> float | None:
        """Return the root mean square of values about linear predictors; None of what is no value."""
        return float(np.sqrt(np.mean((self._transformed[which] - eta) ** 2))) if self._noisy else None

    def draw_predictors(self, n: int, rng: np.random.Generator) -> list[np.ndarray]:
        """Return joint draws of the linear predictor of all observations, by hyperparameters: (n, k) together."""
        weights = [state.weight for state in self.posterior.fit.states]
        return [self._draw_predictors(k, int(some), rng) for k, some in enumerate(rng.multinomial(n, weights))]

    @abstractmethod
    def _draw_predictors(self, state: int, n: int, rng: np.random.Generator) -> np.ndarray:
        """Return joint draws of the linear predictor of all observations, at one value of the hyperparameters."""

    @cached_property
    def constant_model(self) -> np.ndarray:
        """The log density of each, if there were one level everywhere: the mean, and of values their spread."""
        every = np.arange(len(self.values))
        level = np.array(self.level(every))
        return self.log_density_at(level, every, self.spread(level, every))


class PersonSample(PlaceSample):
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
        self.posterior, self.groups_of_persons, self.node = posterior, groups, groups.node
        self._counted = groups.node
        # Which of the persons of a group are the cases is not told by their number.
        self.constant = -(gammaln(n + 1.0) - gammaln(y + 1.0) - gammaln(n - y + 1.0))

    def check_enough(self) -> None:
        """Refuse fewer than two cases, or two controls."""
        cases, controls = float(self.values.sum()), float((self.size - self.values).sum())
        if min(cases, controls) < 2:
            raise DataError(
                "Cross-validation predicts persons from others: at least two cases and two controls are needed; "
                f"found {cases:g} and {controls:g}.",
                found=cases,
            )

    def _predictor(self, mean: float) -> float:
        return float(logit(mean)) - float(self.posterior.likelihood.facts()["offset"])

    def _mean(self, eta: float) -> float:
        return float(expit(eta + self.posterior.likelihood.facts()["offset"]))

    def _draw_predictors(self, state: int, n: int, rng: np.random.Generator) -> np.ndarray:
        one: Any = self.posterior.fit.states[state]
        eta, effects = one.sample_joint(n, rng)
        own = self.groups_of_persons.design(one.fixed) - one.fixed[self.node]
        return np.asarray(eta[:, self.node] + effects @ own.T + self.groups_of_persons.log_effort)

    def joint(self, state: int, which: np.ndarray) -> JointNormal:
        """Return the linear predictor of some groups of persons."""
        one: Any = self.posterior.fit.states[state]
        columns = self.groups_of_persons.among(which).design(one.fixed)
        mean, covariance = one.joint_at(self.node[which], columns)
        return JointNormal(mean + self.groups_of_persons.log_effort[which], covariance)

    def columns(self, block: np.ndarray) -> dict[str, float]:
        """Return how many persons live in a block."""
        return {"persons": float(self.size[block].sum())}


class SiteSample(PlaceSample):
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
        self.constant = np.zeros(len(y))

    @property
    def weight(self) -> np.ndarray:
        """What scores are per: sites."""
        return np.ones(len(self.values))

    def check_enough(self) -> None:
        """Refuse a single site."""
        n = len(self.values)
        if n < 2:
            raise DataError(f"Sites are predicted from others: at least two are needed; found {n}.", found=n)

    def _predictor(self, mean: float) -> float:
        return mean if self._noisy else float(self.posterior.link.forward(mean))

    def _mean(self, eta: float) -> float:
        return eta if self._noisy else float(self.posterior.link.inverse(np.array(eta)))

    def _draw_predictors(self, state: int, n: int, rng: np.random.Generator) -> np.ndarray:
        check_size(len(self.values), self.units)
        return self.joint(state, np.arange(len(self.values))).draw(n, rng)

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
    at_places = place_sample_of(posterior)
    if at_places is not None:
        return at_places
    return AreaSample(posterior) if posterior.areas is not None else NodeSample(posterior)


def place_sample_of(posterior: Posterior) -> PlaceSample | None:
    """Return the sites, or the persons, that a posterior was fitted to; None of one of counts."""
    if posterior.sites is not None:
        sites = posterior.sites
        return SiteSample(posterior, sites.coords, sites.values, sites.tested, sites.columns)
    return PersonSample(posterior) if posterior.exposure_kind == "risk" else None
