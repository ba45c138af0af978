"""Comparisons: which map predicts best, one map against another, regions in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse as sp
import shapely
from scipy.spatial import cKDTree

from geobgp.checks.blocks import are_folds, auto_side, most_at_once, narrowed
from geobgp.checks.samples import NodeSample, sample_of
from geobgp.checks.scoring import per_event
from geobgp.errors import DataError, DomainError, option
from geobgp.inference.differences import Difference, Quantity
from geobgp.inference.links import EXP, Link
from geobgp.inference.mixture import LogNormalChange, NormalMixture, check_probabilities, quantile_name
from geobgp.inference.states import FeatureState, SparseState
from geobgp.land.regions import read_regions, sum_samples, table
from geobgp.privacy import hide_regions
from geobgp.text import listed, number, percent
from geobgp.totals import region_weights
from geobgp.validation import AXES, BASEMAP, NAME, PATH, POSTERIOR, RNG, TEXT, Rule, real, seed_of, validated, whole

if TYPE_CHECKING:
    import folium
    import geopandas as gpd
    import matplotlib.axes
    import xarray as xr

    from geobgp.checks.crossval import CrossValidation
    from geobgp.checks.forecasts import ForecastCheck
    from geobgp.land.domain import Domain
    from geobgp.posterior import Posterior


# -- Comparison: which of several maps of the same events predicts blocks best that it has not seen ----------


#: Share of the events by which maps of the same events may differ: at the shore some are dropped; and cells within
#: which a place is the same.
_SAME, _NEAR = 0.01, 1e-4


def _maps(value: Any) -> dict[str, Posterior]:
    if not isinstance(value, Mapping):
        raise TypeError
    return {NAME.take(name): POSTERIOR.take(one) for name, one in value.items()}


_MAPS = Rule("posteriors by name", _maps)


@validated(posteriors=_MAPS, buffer=real(least=0.0), last=whole(1), rng=RNG)
def compare(
    posteriors: Mapping[str, Posterior],
    blocks: Any = "auto",
    buffer: float = 0.0,
    *,
    last: int | None = None,
    rng: int | np.random.Generator = 0,
) -> pd.DataFrame:
    """Compare maps of the same events by how well they predict blocks that are held out.

    The maps may differ in cells, shores, kernels, covariates and likelihoods, for a score is that of the events as a
    point process: see `CrossValidation`. Blocks lie in coordinates, so that all maps share them. Maps of counts by area
    are compared area by area, maps of cases and controls by who of the persons of a block are cases, maps of surveys
    and values by what was observed at the sites of a block (values as they were measured, whatever is modelled of
    them), and maps over time by how they forecast the last periods.

    Parameters
    ----------
    posteriors : mapping of name to Posterior
        All in one CRS, of the same kind of data.
    blocks : "auto", float, regions
        As for `Posterior.cross_validate`; "auto" takes squares that suit the longest lengthscale.
    buffer : float
        As for `Posterior.cross_validate`.
    last : int, optional
        Over time, how many periods are held out; as for `Posterior.cross_validate`.
    rng : int or Generator

    Returns
    -------
    DataFrame
        By name, the best first. ``score``: held-out nats per event (or site), above events spread evenly over the land
        of the first map (of areas, persons, sites and over time: above one rate or level everywhere); ``difference``
        from the best one and its standard error ``difference_se`` (from the differences block by block); ``coverage``
        of intervals; ``bound`` of the log evidence per event, as a point process and above the same even spread;
        ``elbo`` as the fit has it, for maps of the same counts; ``nodes``; ``seconds`` of the fit.

    Examples
    --------
    >>> import shapely
    >>> from geobgp import LGCP, Domain, FullRank, Matern
    >>> domain = Domain.from_polygons(shapely.box(0, 0, 10, 10), cell_size=1, crs="local")
    >>> counts = np.random.default_rng(0).poisson(np.exp(0.3 * domain.node_points[:, 0]))
    >>> wavy = LGCP(FullRank(domain), Matern(1.0, 8.0, 1.0)).fit(counts)
    >>> flat = LGCP(FullRank(domain), Matern(1.0, 8.0, 0.01)).fit(counts)
    >>> compare({"flat": flat, "wavy": wavy}, 2.0).index.tolist()
    ['wavy', 'flat']
    """
    maps = dict(posteriors)
    first = _check(maps)
    over_time = first.periods is not None
    if first.areas is None:
        blocks = _shared_blocks(maps, blocks, 0.0 if over_time else buffer)
    held = {}
    for name, posterior in maps.items():
        if over_time:
            forecast: Any = posterior.cross_validate(blocks, last=last, rng=rng)
            held[name] = _of_periods(posterior, forecast)
        else:
            held[name] = _of_blocks(posterior, posterior.cross_validate(blocks, buffer, rng=rng))
    base = held[next(iter(maps))].base
    rows = {
        name: {
            "score": float(one.log_p.sum()) / float(one.events.sum()) - base,
            "coverage": one.coverage,
            "bound": one.bound - base,
            "elbo": maps[name].elbo,
            "nodes": maps[name].domain.n_nodes,
            "seconds": float(maps[name].fit.seconds.get("total", np.nan)),
        }
        for name, one in held.items()
    }
    table = pd.DataFrame.from_dict(rows, orient="index").sort_values("score", ascending=False, kind="stable")
    best = held[str(table.index[0])]
    pairs = [_difference(held[str(name)], best) for name in table.index]
    table.insert(1, "difference", [mean for mean, _ in pairs])
    table.insert(2, "difference_se", [se for _, se in pairs])
    table.index.name = "map"
    return table


class _HeldOutScores(NamedTuple):
    """Log probabilities of what was held out, and of one rate everywhere (`base`) and the bound, per event."""

    log_p: pd.Series
    events: pd.Series
    coverage: float
    bound: float
    base: float


def _of_blocks(posterior: Posterior, checked: CrossValidation) -> _HeldOutScores:
    sample, table = sample_of(posterior), checked.scored
    n, land = float(sample.weight.sum()), float(posterior.domain.node_areas.sum())
    base = float(sample.constant_model.sum()) / n
    if isinstance(sample, NodeSample):  # spread evenly over the land, whatever the exposure
        base = float(np.log(n * posterior.domain.area_unit[0] / land)) - 1.0
    bound = (posterior.elbo + float(sample.constant.sum())) / n
    return _HeldOutScores(table["log_density"], checked.weights, checked.coverage, bound, base)


def _of_periods(posterior: Posterior, checked: ForecastCheck) -> _HeldOutScores:
    table = checked.scored.set_index(["period", "block"])
    events = checked.events.set_axis(table.index)
    base = float(table["one_rate"].sum()) / float(events.sum())
    return _HeldOutScores(table["log_score"], events, checked.coverage, posterior.elbo / posterior.n_points, base)


def _shared_blocks(maps: dict[str, Posterior], blocks: Any, buffer: float) -> Any:
    """Return blocks that all maps can share."""
    if isinstance(blocks, str) and blocks == "auto":
        cell = _common_cell([p.domain.cell_size for p in maps.values()])
        side = max(auto_side(p, cell) for p in maps.values())
        return min(narrowed(p.domain, side, most_at_once(), buffer, cell_size=cell) for p in maps.values())
    if are_folds(blocks) and len({p.domain.n_nodes for p in maps.values()}) > 1:
        raise DataError(
            "Folds are labels of one domain's nodes, and these maps have different ones.",
            option="blocks",
            remedy="Give a size, or regions.",
        )
    return blocks


def _common_cell(sizes: list[float]) -> float:
    """Return a size of which all cells' sizes are whole shares, or else the largest: blocks then hold whole cells.

    Examples
    --------
    >>> _common_cell([20.0, 30.0]), _common_cell([10.0, 3.141])
    (60.0, 10.0)
    """
    largest = max(sizes)
    for times in range(1, 7):
        shares = times * largest / np.array(sizes)
        if np.allclose(shares, np.rint(shares), rtol=1e-9):
            return times * largest
    return largest


def _difference(one: _HeldOutScores, best: _HeldOutScores) -> tuple[float, float]:
    """Return the difference of two scores per event, and its standard error from the blocks."""
    values = pd.concat([one.log_p, best.log_p, best.events], axis=1).fillna(0.0).to_numpy()
    return per_event(values[:, 0] - values[:, 1], values[:, 2])


def _kind(posterior: Posterior) -> str:
    """Return what a map is of, in words."""
    what = "counts at places"
    if posterior.sites is not None or not posterior.is_summed:
        what = "values" if posterior.quantity == "value" else "surveys"
    elif posterior.exposure_kind == "risk":
        what = "cases and controls"
    elif posterior.areas is not None:
        what = "counts by area"
    return what if posterior.periods is None else f"{what} over {posterior.periods.words()}"


def _numbers(posterior: Posterior) -> np.ndarray | None:
    """Return the numbers that a map is made of; None where it does not know them."""
    if posterior.sites is not None:
        return np.ones(len(posterior.sites.values))
    if posterior.areas is not None:
        return np.asarray(posterior.areas.guessed, float)
    if posterior.exposure_kind == "risk":
        n = None if posterior.periods is None else posterior.n_periods
        return None if posterior.persons is None else posterior.persons.cases_at(posterior.domain.n_nodes, n)
    return posterior.observed


def _rows(posterior: Posterior) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the places of what was observed, and what it is; None where places are not known."""
    sites, places = posterior.sites, posterior.places
    if sites is not None:
        period = np.zeros(len(sites.values)) if sites.period is None else sites.period
        return sites.coords, np.column_stack([sites.values, sites.size, period])
    return None if places is None else (places[:, :2], places[:, 2:])


def _shared(one: Posterior, other: Posterior) -> float | None:
    """Return which share of the observations of two maps is the same, at the same place; None where none is known."""
    rows, others = _rows(one), _rows(other)
    if rows is None or others is None or rows[1].shape[1] != others[1].shape[1]:
        return None
    what = np.unique(np.vstack([rows[1], others[1]]), axis=0, return_inverse=True)[1].ravel()
    # In cells; what differs lies far apart.
    at = np.column_stack([np.vstack([rows[0], others[0]]) / one.domain.cell_size, what])
    trees = cKDTree(at[: len(rows[0])]), cKDTree(at[len(rows[0]) :])
    nearest = [trees[1 - k].query(tree.data, distance_upper_bound=_NEAR)[0] for k, tree in enumerate(trees)]
    return float(min(np.isfinite(distance).mean() for distance in nearest))


def _other_areas(one: Posterior, other: Posterior) -> bool:
    """Whether counts by area are of other areas, or of other located events, whatever their numbers."""
    assert one.areas is not None and other.areas is not None
    shapes = [shapely.to_wkb(shapely.normalize(areas.geometry)).tolist() for areas in (one.areas, other.areas)]
    first, second = one.areas.located, other.areas.located
    if first is None or second is None or shapes[0] != shapes[1]:
        return shapes[0] != shapes[1] or (first is None) != (second is None)
    return _on_one_land(one, other) and not np.array_equal(first, second)


def _on_one_land(one: Posterior, other: Posterior) -> bool:
    return one.domain is other.domain or one.domain.content_hash() == other.domain.content_hash()


def _check(maps: dict[str, Posterior]) -> Posterior:
    """Check that maps can be compared, and return the first."""
    if len(maps) < 2:
        raise DataError(f"Two maps or more can be compared; found {len(maps)}.", option="posteriors", found=len(maps))
    numbers = {}
    for name, posterior in maps.items():
        counts = _numbers(posterior)
        if counts is None:
            raise DataError(
                f"{name!r} does not know what it was fitted to, and cannot be compared.",
                remedy="Compare the fits themselves, before they are saved.",
            )
        numbers[name] = counts
    totals = {name: float(counts.sum()) for name, counts in numbers.items()}
    (first, one), *others = maps.items()
    for name, other in others:
        if other.domain.crs != one.domain.crs:
            crs = [p.domain.crs.name if p.domain.crs is not None else "local" for p in (one, other)]
            raise DataError(
                f"Maps are compared in one CRS; {first!r} is in {crs[0]} and {name!r} in {crs[1]}.",
                option="crs",
                remedy="Fit both in one: give the domains the same crs.",
            )
        kinds = _kind(one), _kind(other)
        if kinds[0] != kinds[1]:
            raise DataError(
                f"Maps of the same data can be compared; {first!r} is of {kinds[0]} and {name!r} of {kinds[1]}.",
                found=kinds,
            )
        same = np.array_equal(numbers[first], numbers[name])
        if one.areas is not None and other.areas is not None:
            if one.areas.names != other.areas.names or not same or _other_areas(one, other):
                raise DataError(
                    f"Maps of counts by area are compared area by area; {first!r} and {name!r} have other areas, or "
                    "other numbers in them.",
                    found=totals,
                )
        elif not same and totals[first] == totals[name] and _on_one_land(one, other):
            raise DataError(
                f"Maps of the same events can be compared; {first!r} and {name!r} have as many, "
                f"{number(totals[name])}, but at other places.",
                found=totals,
            )
    for name, other in others:
        shared = _shared(one, other)
        moved = max(p.points.get("snapped", 0) / max(p.n_points, 1) for p in (one, other))
        if shared is not None and shared < 1.0 - _SAME - moved:
            what = "sites with the same values" if one.sites is not None else "events"
            raise DataError(
                f"Maps of the same data can be compared; of the {what} of {first!r} and {name!r} "
                f"{percent(shared)} are the same.",
                found=shared,
            )
    if max(totals.values()) - min(totals.values()) > _SAME * max(totals.values()):
        raise DataError(
            "Maps of the same events can be compared; found "
            f"{listed(f'{name!r} with {number(total)}' for name, total in totals.items())} events.",
            found=totals,
        )
    return one


# -- Versus: one map against another, as ratio and difference with intervals and the probability of an increase --


@dataclass(frozen=True, eq=False)
class Versus:
    """Two maps of the same land, the first against the second: two periods, two diseases.

    The two are taken to be independent, as fits to different events are, unless they are of one fit, under different
    covariates (`Posterior.what_if`). `Posterior.versus` makes one.

    Attributes
    ----------
    first, second : Posterior
        The ratio is first / second, the difference first - second.
    names : (str, str)
        What they are called in titles and legends.
    """

    first: Posterior = field(repr=False)
    second: Posterior = field(repr=False)
    names: tuple[str, str] = ("this map", "the other")

    def __post_init__(self) -> None:
        one, two = self.first, self.second
        if one is two:
            raise DataError("A map is compared with another one; both are the same.", option="other")
        if not _on_one_land(one, two):
            raise DomainError(
                "Two maps are compared node by node, and these lie on different land: "
                f"{_land(one.domain)} against {_land(two.domain)}.",
                option="other",
                remedy="Fit both on one Domain, or give both the same land, water, "
                f"{option('cell_size')} and {option('crs')}.",
            )
        if one.likelihood.quantity != two.likelihood.quantity:
            raise DataError(
                f"One map is of a {one.quantity}, the other of a {two.quantity}; they cannot be compared.",
                option="other",
                found=(one.quantity, two.quantity),
            )
        if one.units != two.units:
            same = "kind of exposure" if one.is_summed else "unit"
            raise DataError(
                f"One map is in {one.units}, the other in {two.units}; their ratio has no meaning.",
                option="other",
                found=(one.units, two.units),
                remedy=f"Give both the same {same}.",
            )
        if self._links != (EXP, EXP) and self._of_one_fit:
            raise DataError(
                "Two maps are compared that are independent; these are of one fit, under different covariates.",
                option="other",
                remedy="What changes is in posterior.effects().",
            )
        if len(self.names) != 2:
            raise DataError(f"Two maps have two names; found {len(self.names)}.", option="names", found=self.names)

    @property
    def domain(self) -> Domain:
        """The land that both maps lie on."""
        return self.first.domain

    @property
    def _links(self) -> tuple[Link, Link]:
        return self.first.link, self.second.link

    @property
    def has_ratio(self) -> bool:
        """Whether the ratio has a meaning: neither quantity can lie below zero."""
        return all(link.lowest >= 0 for link in self._links)

    @property
    def main(self) -> str:
        """What is shown first: the "ratio", or the "difference" where there is none."""
        return "ratio" if self.has_ratio else "difference"

    @property
    def units(self) -> str:
        """Unit of the difference; the ratio has none."""
        return self.first.units

    @property
    def quantiles(self) -> tuple[float, float, float]:
        """The quantiles that are reported: those of the first map."""
        return self.first.quantiles

    @property
    def drawn(self) -> str:
        """The statistic of both maps, and of their difference, that is shown; of the ratio it is the median."""
        return self.first.drawn

    def drawn_difference(self) -> xr.DataArray:
        """Return the difference as maps and rasters show it: its mean, or the median of rates and relative risks."""
        if self.drawn == "mean":
            return self.difference(())["mean"]
        return self.difference((0.5,))["q50"]

    @property
    def hatched(self) -> tuple[np.ndarray, str]:
        """The nodes that are hatched on either map, and why; see `geobgp.output.grids.hatched_land`."""
        from geobgp.output.grids import hatched_land

        (one, words), (two, others) = hatched_land(self.first), hatched_land(self.second)
        return one | two, words or others

    @property
    def title(self) -> str:
        """What is compared."""
        return f"{self.names[0]} against {self.names[1]}"

    @property
    def provenance(self) -> dict[str, Any]:
        """Where the numbers come from, as attributes that rasters can hold."""
        first, (name, other) = self.first.provenance, self.names
        facts = {"title": self.title, "source": first["source"], "first": name, "second": other}
        return facts | {"created": first["created"], "second_created": self.second.created}

    @property
    def _of_one_fit(self) -> bool:
        """Whether both maps are of one fit, under different covariates."""
        one, two = self.first.fit.states, self.second.fit.states
        return len(one) == len(two) > 0 and all(map(_of_one_fit, one, two))

    @cached_property
    def _change(self) -> LogNormalChange | None:
        """How the second map becomes the first, where they are of one fit, under different covariates."""
        if not self._of_one_fit:
            return None
        states: list[tuple[Any, Any]] = list(zip(self.first.fit.states, self.second.fit.states, strict=True))
        start = self.second._shown_nodes
        move = [one.fixed - two.fixed for one, two in states]
        added = [np.asarray(one._added() - two._added()) for one, two in states]
        shown = ~np.isnan(start.mu + self.first._shown_nodes.mu).any(axis=0)
        mean, variance, tied = (
            np.array([np.broadcast_to(np.where(shown, row, np.nan), shown.shape) for row in rows])
            for rows in (
                [m @ two.beta + a for m, a, (_, two) in zip(move, added, states, strict=True)],
                [np.einsum("ij,ij->i", m @ two.beta_cov, m) for m, (_, two) in zip(move, states, strict=True)],
                [
                    np.einsum("ij,ij->i", (two.fixed - two._at_nodes.tied) @ two.beta_cov, m)
                    for m, (_, two) in zip(move, states, strict=True)
                ],
            )
        )
        return LogNormalChange(start, NormalMixture(start.weight, mean, variance), tied)

    @property
    def _quantities(self) -> tuple[Quantity, Quantity]:
        one, two = (Quantity(posterior._shown_nodes, posterior.link) for posterior in (self.first, self.second))
        return one, two

    @cached_property
    def _log_ratio(self) -> NormalMixture | Difference:
        if not self.has_ratio:
            raise DataError(
                "A ratio is of what cannot be below zero, and these maps are of values that can.",
                option="variable",
                found="ratio",
                remedy="Ask for the difference.",
            )
        if self._change is not None:
            return self._change.change
        one, two = self._quantities
        return Difference(one.log, two.log)

    @cached_property
    def _difference(self) -> Difference | LogNormalChange:
        return self._change or Difference(*self._quantities)

    def _chance(self, factor: float = 1.0) -> np.ndarray:
        """Return how probably the first is more than `factor` times the second, at every node."""
        if factor != 1.0 or self._change is not None:
            return self._log_ratio.sf(float(np.log(factor)))
        if self._links[0] is self._links[1]:
            return self.first._shown_nodes.minus(self.second._shown_nodes).sf(0.0)
        return Difference(*self._quantities).sf(0.0)

    def _ratio_moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of the ratio; NaN where it has none."""
        if self._change is not None:
            return self._change.change.exp_moments()
        mean, variance = self._links[0].moments(self.first._shown_nodes)
        other, square = self._links[1].reciprocal_moments(self.second._shown_nodes)
        return mean * other, np.maximum((mean**2 + variance) * square - (mean * other) ** 2, 0.0)

    # -- on the grid -------------------------------------------------------------------------------

    def node_ratio(self, quantiles: Sequence[float] | None = None) -> dict[str, np.ndarray]:
        """Return mean, sd and quantiles of the ratio at every node; of squares it has neither mean nor sd."""
        ratio, (mean, var) = self._log_ratio, self._ratio_moments()
        chances = check_probabilities(self.quantiles if quantiles is None else quantiles)
        return {"mean": mean, "sd": np.sqrt(var)} | {quantile_name(q): np.exp(ratio.quantile(q)) for q in chances}

    def node_difference(self, quantiles: Sequence[float] | None = None) -> dict[str, np.ndarray]:
        """Return mean, sd and quantiles of the difference at every node; the quantiles by quadrature."""
        mean, var = self._difference.moments()
        chances = check_probabilities(self.quantiles if quantiles is None else quantiles)
        return {"mean": mean, "sd": np.sqrt(var)} | {quantile_name(q): self._difference.quantile(q) for q in chances}

    def ratio(self, quantiles: Sequence[float] | None = None) -> xr.Dataset:
        """Return the ratio on the grid: mean, sd and quantiles. The median is what maps and rasters show."""
        return self._dataset(self.node_ratio(quantiles), f"ratio, {self.title}", "1")

    def difference(self, quantiles: Sequence[float] | None = None) -> xr.Dataset:
        """Return the difference on the grid: mean, sd and quantiles, in `units`."""
        return self._dataset(self.node_difference(quantiles), f"difference, {self.title}", self.units)

    @validated(factor=real(above=0.0))
    def increase(self, factor: float = 1.0) -> xr.DataArray:
        """Return the probability that the first map is more than `factor` times the second, on the grid."""
        chance = self._chance(factor)
        words = "an increase" if factor == 1 else f"a ratio above {number(factor, 6)}"
        data = self._dataset({"probability_increase": chance}, f"probability of {words}, {self.title}", "1")
        return data["probability_increase"].assign_attrs(factor=float(factor))

    def _dataset(self, values: dict[str, np.ndarray], what: str, unit: str) -> xr.Dataset:
        from geobgp.output.grids import dataset

        single = len(values) == 1
        about = {name: {"long_name": what if single else f"{what}, {name}", "units": unit} for name in values}
        return dataset(self.domain, values, variables=about, attrs=self.provenance)

    def to_dataset(self) -> xr.Dataset:
        """Return all that the rasters hold.

        ``ratio`` (the median) and ``difference`` (`drawn_difference`), each with ``_q05`` and ``_q95`` (the ends of the
        first map's `interval`), and ``probability_increase``. Values that can be below zero have no ratio.
        """
        names, difference = list(map(quantile_name, self.quantiles[::2])), self.difference(self.quantiles[::2])
        data, ratio = difference[[]], self.ratio() if self.has_ratio else None
        if ratio is not None:
            data = ratio[["q50"]].rename(q50="ratio")
        data["difference"] = self.drawn_difference()
        for name in names:
            if ratio is not None:
                data[f"ratio_{name}"] = ratio[name]
            data[f"difference_{name}"] = difference[name]
        return data.assign(probability_increase=self.increase())

    # -- regions -----------------------------------------------------------------------------------

    @validated(n_samples=whole(2), rng=RNG)
    def totals(
        self,
        regions: Any = None,
        *,
        quantiles: Sequence[float] | None = None,
        n_samples: int = 2000,
        rng: int | np.random.Generator = 0,
    ) -> gpd.GeoDataFrame:
        """Return ratio and difference of the rates (or means) of regions, from joint samples of both maps.

        A region's rate is its expected events per unit of exposure (per km² of land where there is none); of a
        prevalence or a value it is the mean over its people (or its land).

        Parameters
        ----------
        regions : GeoDataFrame, GeoSeries, geometry, list of geometries or path, optional
            As for `Posterior.totals`; None: the whole domain.
        quantiles : sequence of float, optional
            By default the ends of the first map's `interval`.
        n_samples : int
        rng : int or Generator

        Returns
        -------
        GeoDataFrame
            The regions with their land, ``expected_first`` and ``expected_second`` (numbers of events; ``mean_first``
            and ``mean_second`` where there are none), ``ratio`` (the median) and ``ratio_q05``, ...; ``difference``
            (the mean) and ``difference_q05``, ... in `units`; and ``p_increase``. NaN where a region holds no land or
            nobody is exposed.
        """
        chances = check_probabilities(self.quantiles[::2] if quantiles is None else quantiles)
        frame = read_regions(regions, self.domain)
        rates, means, expected = [], [], []
        seeds = np.random.SeedSequence(seed_of(rng)).spawn(2)
        if self._change is not None:  # the same draws of the one fit
            seeds[1] = seeds[0]
        for posterior, own in zip((self.first, self.second), seeds, strict=True):
            inside = posterior._within(frame)
            weights = inside.exposure(posterior.amounts[0])
            exposure = np.asarray(weights.sum(axis=1)).ravel()
            exposed = np.where(exposure > 0, exposure, np.nan) / posterior.shown.factor
            sums = sum_samples(posterior.sample_blocks(n_samples, np.random.default_rng(own)), weights)
            rates.append(sums / exposed)
            expected.append(weights @ posterior.link.mean(posterior._nodes))
            means.append(expected[-1] / exposed)
        gap = rates[0] - rates[1]
        columns = {"expected_first": expected[0], "expected_second": expected[1]}
        if not self.first.is_summed:
            columns = {"mean_first": means[0], "mean_second": means[1]}
        if self.has_ratio:
            with np.errstate(divide="ignore", invalid="ignore"):
                ratio = rates[0] / rates[1]
            columns |= {"ratio": np.median(ratio, axis=0)}
            columns |= {f"ratio_{quantile_name(q)}": np.quantile(ratio, q, axis=0) for q in chances}
        columns |= {"difference": means[0] - means[1]}
        columns |= {f"difference_{quantile_name(q)}": np.quantile(gap, q, axis=0) for q in chances}
        columns |= {"p_increase": np.where(np.isnan(gap).any(axis=0), np.nan, (gap > 0).mean(axis=0))}
        shares = inside.shares
        frame_of_regions = table(frame, shares, self.domain, columns)
        hidden, why = np.zeros(len(frame_of_regions), bool), np.full(len(frame_of_regions), "", dtype=object)
        for posterior, sums in zip((self.first, self.second), rates, strict=True):
            with np.errstate(divide="ignore", invalid="ignore"):
                resting = (sums.mean(axis=0) / sums.std(axis=0, ddof=1)) ** 2
            frame_of_regions = hide_regions(frame_of_regions, posterior, shares, list(columns), resting)
            if posterior.protection:
                hidden, why = (
                    hidden | frame_of_regions["hidden"],
                    np.where(frame_of_regions["hidden"], frame_of_regions["why"], why),
                )
        if "hidden" in frame_of_regions:
            frame_of_regions["hidden"], frame_of_regions["why"] = hidden, why
        frame_of_regions.attrs["units"] = self.units
        return frame_of_regions

    # -- files and figures -------------------------------------------------------------------------

    @validated(path=PATH)
    def to_raster(self, path: str | Path) -> list[Path]:
        """Write `to_dataset` as GeoTIFFs with QGIS styles: a directory, or one ``.tif`` with all bands."""
        from geobgp.output.rasters import write_rasters

        return write_rasters(self.to_dataset(), path, title=self.title)

    @validated(path=PATH, title=TEXT, basemap=BASEMAP, opacity=real(least=0.0, most=1.0))
    def to_map(
        self,
        path: str | Path | None = None,
        *,
        title: str | None = None,
        context: Any = None,
        basemap: str | folium.TileLayer | None = None,
        opacity: float | None = None,
    ) -> folium.Map:
        """Return the interactive map of the ratio (or difference, see `main`); write it to `path` if given.

        It is HTML that needs nothing else.

        Parameters
        ----------
        path : str or path, optional
            An HTML file.
        title, context, basemap, opacity
            As for `Posterior.to_map`.
        """
        from geobgp.web import maps

        page = maps.versus_map(self, title=title, context=context, basemap=basemap, opacity=opacity)
        if path is not None:
            maps.save(page, path)
        return page

    @validated(ax=AXES)
    def plot(self, ax: matplotlib.axes.Axes | None = None, **kwargs: Any) -> matplotlib.axes.Axes:
        """Draw the ratio, or another variable; see `geobgp.output.figures.plot_versus`."""
        from geobgp.output.figures import plot_versus

        return plot_versus(self, ax, **kwargs)

    def __repr__(self) -> str:
        up = self._chance()
        land = self.domain.node_areas
        shares = [float(land[which].sum() / land.sum()) for which in (up > 0.95, up < 0.05)]
        return (
            f"Versus({self.title}: surely (95 %) higher on {100 * shares[0]:.0f} % of the land, "
            f"surely lower on {100 * shares[1]:.0f} %)"
        )


def _land(domain: Domain) -> str:
    unit = "m" if domain.crs is not None else "units"
    return f"{domain.n_nodes:,} nodes of {number(domain.cell_size)} {unit}"


def _of_one_fit(one: Any, two: Any) -> bool:
    """Whether two states share field and effects, of which each sees its own columns."""
    if not (isinstance(one, FeatureState | SparseState) and type(one) is type(two)):
        return False
    if one.beta.shape != two.beta.shape or not len(one.beta) or one.fixed.shape != two.fixed.shape:
        return False
    field = [np.array_equal(a, b) for a, b in zip(one._at_nodes, two._at_nodes, strict=True)]
    return np.array_equal(one.beta, two.beta) and np.array_equal(one.beta_cov, two.beta_cov) and all(field)


def versus(first: Posterior, second: Any, names: Sequence[str] | None = None) -> Versus:
    """Return the comparison of two posteriors; see `Posterior.versus`."""
    if names is None:
        named = first.title and second.title and first.title != second.title
        names = (first.title, second.title) if named else ("this map", "the other")
    return Versus(first, second, tuple(str(name) for name in names))  # type: ignore[arg-type]


# -- Ranks of regions: how probably each has the highest rate, is among the top, or lies above a reference ---


def ranks(
    posterior: Posterior,
    regions: Any,
    *,
    by: str | None = None,
    top: int | None = None,
    reference: float | None = None,
    n_samples: int = 2000,
    rng: int | np.random.Generator = 0,
) -> gpd.GeoDataFrame:
    """Return the rate or mean of every region, its rank and what is sure about it; see `Posterior.ranks`."""
    domain, link = posterior.domain, posterior.link
    if reference is not None and not link.lowest <= reference <= link.highest:
        words = "at least 0" if link.highest == np.inf else f"from {link.lowest:g} to {link.highest:g}"
        raise DataError(
            f"{option('reference')} is {words}, as every {posterior.quantity} is; found {reference}.",
            option="reference",
            found=reference,
        )
    frame = read_regions(regions, domain, by=by)
    if top is None:
        top = min(3, len(frame))
    if top > len(frame):
        raise DataError(
            f"{option('top')} is a whole number from 1 to the number of regions, {len(frame):,}; found {top!r}.",
            option="top",
            found=top,
        )
    inside = posterior._within(frame)
    shares = inside.shares
    weights = sp.csr_array(sp.vstack([region_weights(posterior, inside)[0], posterior.amounts[:1]]))
    amounts = np.asarray(weights.sum(axis=1))
    factor = posterior.shown.factor
    with np.errstate(divide="ignore", invalid="ignore"):
        values = factor * sum_samples(posterior.sample_blocks(n_samples, rng), weights) / amounts
        mean = (factor * (weights @ posterior.mean_by_period()[0]) / amounts)[:-1]
    values, overall = values[:, :-1], values[:, -1:]
    ranked = amounts[:-1] > 0
    place = _places(values, ranked)
    limit = overall if reference is None else float(reference)
    main = "rate" if posterior.is_summed else "mean"
    columns = {} if posterior.exposure_kind in ("area", "observation") else {"exposure": amounts[:-1]}
    columns |= {main: mean}
    columns |= {f"{main}_{quantile_name(q)}": np.quantile(values, q, axis=0) for q in posterior.quantiles[::2]}
    columns |= {"rank": np.median(place, axis=0)}
    columns |= {f"rank_{quantile_name(q)}": _quantile(place, q) for q in posterior.quantiles[::2]}
    columns |= {
        "p_first": (place == 1).mean(axis=0),
        f"p_top{int(top)}": (place <= top).mean(axis=0),
        "p_above": (values > limit).mean(axis=0),
    }
    columns = {name: np.where(ranked, column, np.nan) for name, column in columns.items()}
    with np.errstate(divide="ignore", invalid="ignore"):
        resting = (mean / values.std(axis=0, ddof=1)) ** 2 if len(values) > 1 else np.full(len(mean), np.nan)
    frame_of_ranks = hide_regions(table(frame, shares, domain, columns), posterior, shares, list(columns), resting)
    quantity = "rate" if posterior.is_summed else posterior.quantity
    frame_of_ranks.attrs |= {"units": posterior.units, "quantity": quantity}
    return frame_of_ranks


def _places(rates: np.ndarray, ranked: np.ndarray) -> np.ndarray:
    """Return the place of every region in every sample, 1 for the highest; those not ranked come last."""
    order = np.argsort(np.where(ranked, -rates, np.inf), axis=1, kind="stable")
    place = np.empty(order.shape)
    np.put_along_axis(place, order, np.arange(1.0, order.shape[1] + 1)[None, :], axis=1)
    return place


def _quantile(place: np.ndarray, q: float) -> np.ndarray:
    return np.asarray(np.quantile(place, q, axis=0, method="inverted_cdf"))
