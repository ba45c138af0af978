"""Inputs of a tile: exposure, effort and covariates at its nodes, read from its own window of every source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
from scipy.spatial import cKDTree

from geobgp.data.effects import SLIVERS, Effects, covariates_of
from geobgp.data.effort import seen_exposure
from geobgp.data.levels import polygon_means
from geobgp.data.pixels import ApartError
from geobgp.data.raster_in import node_means, node_sums
from geobgp.data.raster_source import open_raster
from geobgp.errors import DataError, InputWarning, option, warn
from geobgp.land.regions import spread_shares
from geobgp.text import count, events, percent

if TYPE_CHECKING:
    import geopandas as gpd

    from geobgp.land.domain import Domain

#: The column of a tile's polygons.
VALUE = "value"
#: Polygons that come with a tile, by the key of their source.
Shapes = Mapping[str, "gpd.GeoDataFrame"]


@dataclass(frozen=True)
class Source:
    """One thing that tiles read.

    Attributes
    ----------
    option : "exposure", "effort" or "covariates"
    name : str
        What it is called.
    path : str or None
        Of a raster, of which each tile reads its window; None for polygons, which come with the tile.
    levels : tuple of str
        The levels of a covariate that have effects; none for numbers.
    usual : tuple of float
        Its mean over all land, or the share of each level, for land without any value near.
    """

    option: Literal["exposure", "effort", "covariates"]
    name: str
    path: str | None
    levels: tuple[str, ...] = ()
    usual: tuple[float, ...] = (0.0,)

    @property
    def key(self) -> str:
        """A name that no other source has."""
        return self.option if self.option != "covariates" else f"covariate {self.name}"

    @property
    def words(self) -> str:
        """What it is, as the subject of a sentence."""
        return f"The {self.option}" if self.option != "covariates" else f"The covariate {self.name!r}"

    def at_nodes(self, domain: Domain, shapes: Shapes) -> np.ndarray:
        """Return its values (n_nodes, k) at the nodes; NaN where it has none, or does not reach at all."""
        if self.path is None:
            return self._of_polygons(domain, shapes[self.key])
        with open_raster(self.path, None, None) as raster:
            try:
                if self.option == "exposure":
                    return node_sums(raster, domain)[:, None]
                if not self.levels:
                    return node_means(raster, domain)[:, None]
                codes = [raster.where(float(level)) for level in self.levels]
                return np.column_stack([node_means(code, domain) for code in codes])
            except ApartError:
                return self._nothing(domain)

    def _of_polygons(self, domain: Domain, frame: gpd.GeoDataFrame) -> np.ndarray:
        if len(frame) == 0:
            return self._nothing(domain)
        if self.option == "exposure":
            shares = spread_shares(domain, frame, "areas of the exposure")
            return np.asarray(shares.T @ frame[VALUE].to_numpy(float)).reshape(-1, 1)
        found = polygon_means(frame, VALUE, domain)
        if not isinstance(found, pd.DataFrame):
            return found[:, None]
        known = np.where(np.isfinite(found.iloc[:, :1]), 0.0, np.nan)[:, 0]
        return np.column_stack([np.asarray(found.get(level, known), float) for level in self.levels])

    def _nothing(self, domain: Domain) -> np.ndarray:
        return np.full((domain.n_nodes, len(self.usual)), np.nan)


@dataclass(frozen=True, eq=False)
class NodeInputs:
    """What is known of the nodes of a domain.

    Attributes
    ----------
    exposure : (n_nodes,) array
        Land in km² (square units of a local domain), or what was given.
    effort : (n_nodes,) array or None
    covariates : (n_nodes, k) array
        In their own units.
    gaps : dict of str to (n_nodes,) bool array
        Where a source has no value, by its key.
    """

    exposure: np.ndarray
    effort: np.ndarray | None
    covariates: np.ndarray
    gaps: dict[str, np.ndarray] = field(default_factory=dict, repr=False)

    @property
    def seen(self) -> np.ndarray:
        """The exposure times the effort: what stands behind the events that were reported."""
        return seen_exposure(self.exposure, self.effort)

    def by_name(self, effects: Effects) -> dict[str, Any]:
        """Return the covariates by name."""
        return covariates_of({term: self.covariates[:, j] for j, term in enumerate(effects.terms)})

    def linearised(
        self, effects: Effects, coefficients: Sequence[float], covariance: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return columns of fixed effects, standardised as on the map of everything, and offsets.

        Levels that share a node are linearised about coefficients, intercept first, and their covariance.
        """
        own = replace(effects, columns=effects.standardised(self.covariates))
        columns, offset = own.linearised(np.array(coefficients), covariance)
        return columns, np.zeros(len(columns)) if offset is None else offset


@dataclass(frozen=True, eq=False)
class Inputs:
    """What events are counted per, how many get reported and what may explain them, as all tiles read it.

    Attributes
    ----------
    exposure, effort : Source or None
        None: the area of the land; all events are reported.
    covariates : tuple of Source
    effects : Effects
        How covariates are standardised, in all tiles alike; without rows.
    fill_missing : "mean" or None
    digest : str
        A hash of all that the sources hold.
    """

    exposure: Source | None = None
    effort: Source | None = None
    covariates: tuple[Source, ...] = ()
    effects: Effects = field(default_factory=Effects)
    fill_missing: Literal["mean"] | None = None
    digest: str = ""

    @property
    def sources(self) -> tuple[Source, ...]:
        """All that was given."""
        return tuple(s for s in (self.exposure, self.effort, *self.covariates) if s is not None)

    def read(self, domain: Domain, shapes: Shapes, *, fill: bool = True) -> NodeInputs:
        """Return what is known of the nodes of a domain.

        Parameters
        ----------
        domain : Domain
        shapes : mapping of str to GeoDataFrame
            Polygons of the sources that are no rasters.
        fill : bool
            Give nodes without effort or covariate those of the nearest node that has some, or the mean of all land
            where that was asked for or none has. Exposure is zero where there is none, in any case.
        """
        gaps: dict[str, np.ndarray] = {}

        def values(source: Source) -> np.ndarray:
            found = source.at_nodes(domain, shapes)
            missing = gaps[source.key] = ~np.isfinite(found).all(axis=1)
            if not (fill and missing.any()):
                return found
            return filled_in(found, missing, domain, source, mean=self.fill_missing == "mean")

        exposure = domain.node_areas / domain.area_unit[0]
        if self.exposure is not None:
            found = self.exposure.at_nodes(domain, shapes)[:, 0]
            gaps[self.exposure.key] = ~np.isfinite(found)
            exposure = np.maximum(np.nan_to_num(found, nan=0.0), 0.0)
        effort = None if self.effort is None else np.clip(values(self.effort)[:, 0], 0.0, 1.0)
        columns = [values(source) for source in self.covariates]
        return NodeInputs(exposure, effort, np.hstack([np.ones((domain.n_nodes, 0)), *columns]), gaps)


def filled_in(
    values: np.ndarray, missing: np.ndarray, domain: Domain, source: Source, *, mean: bool
) -> np.ndarray:
    """Return values with gaps filled: from the nearest node, or with the mean of all land."""
    out = values.copy()
    if missing.all() or (mean and source.option == "covariates"):
        out[missing] = source.usual
    else:
        near = cKDTree(domain.node_points[~missing]).query(domain.node_points[missing])[1]
        out[missing] = values[~missing][near]
    return out


@dataclass(frozen=True)
class Checked:
    """What was found at the nodes of a tile's core, or of several together.

    Attributes
    ----------
    nodes : int
    area : float
    events : float
    gaps : tuple of (int, float)
        For each source, how many nodes have no value, and their area.
    bare, unseen : (float, int)
        Events where the exposure is zero, or the effort, and on how many nodes.
    """

    nodes: int
    area: float
    events: float
    gaps: tuple[tuple[int, float], ...]
    bare: tuple[float, int]
    unseen: tuple[float, int]

    def plus(self, other: Checked) -> Checked:
        """Return what was found in both."""
        gaps = tuple((a[0] + b[0], a[1] + b[1]) for a, b in zip(self.gaps, other.gaps, strict=True))
        bare, unseen = (
            (mine[0] + theirs[0], mine[1] + theirs[1])
            for mine, theirs in ((self.bare, other.bare), (self.unseen, other.unseen))
        )
        both = self.nodes + other.nodes, self.area + other.area, self.events + other.events
        return Checked(*both, gaps, bare, unseen)

    def judge(self, inputs: Inputs) -> None:
        """Refuse sources that lack too much, and events where there can be none; tell of gaps that are filled."""
        for source, (n, area) in zip(inputs.sources, self.gaps, strict=True):
            if n:
                self._judge_gaps(source, n, area / self.area, inputs.fill_missing)
        for name, (lost, nodes), why in (
            ("exposure", self.bare, "so that nothing can happen there"),
            ("effort", self.unseen, "so that nobody could have reported them"),
        ):
            if lost:
                lie = "lies" if lost == 1 else "lie"
                whole = count(round(self.events), "event")
                raise DataError(
                    f"{events(lost)} of {whole} {lie} where the {name} is zero (on {count(nodes, 'node')}), {why}.",
                    option=name,
                    found=lost,
                    remedy=f"Check {option(name)} there, or leave these out.",
                )

    def _judge_gaps(self, source: Source, n: int, share: float, fill_missing: str | None) -> None:
        text = f"{source.words} has no value at {n:,} of {self.nodes:,} nodes ({percent(share, 2)} of land)"
        by_mean = source.option == "covariates" and fill_missing == "mean"
        if source.option != "exposure" and share >= SLIVERS and not by_mean:
            remedy = f"Fill them, or ask for their mean with {option('fill_missing', 'mean')}."
            if source.option == "effort":
                shares = "0 where nobody looked, 1 where all events are seen"
                remedy = f"Give {option('effort')} for all of the land: {shares}."
            raise DataError(f"{text}.", option=source.option, found=n, remedy=remedy)
        then = "they are given that of the nearest land"
        if source.option == "exposure":
            then = "it is taken as zero there"
        elif by_mean:
            then = "they are given the mean of the others"
        warn(InputWarning(f"{text}; {then}.", option=source.option, found=n))
