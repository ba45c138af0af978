"""Excursion sets: the land that surely lies above a threshold, all of it at once, or surely below it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from geobgp.errors import DataError, option
from geobgp.text import number, percent
from geobgp.validation import AXES, PATH, real, validated

if TYPE_CHECKING:
    import geopandas as gpd
    import matplotlib.axes
    import xarray as xr

    from geobgp.land.domain import Domain
    from geobgp.posterior import Posterior


@dataclass(frozen=True, eq=False)
class Excursion:
    """Where the intensity surely exceeds a threshold, where it surely does not, and where nobody knows.

    A map of `Posterior.exceedance` speaks of one place at a time: of a hundred places with 90 % each, some ten
    are wrong. Here the probability holds for a region as a whole. Above and below are each held to it separately.

    Attributes
    ----------
    domain : Domain
    threshold : float
        In `units`.
    probability : float
        With which all of `above` exceeds the threshold at once; the same for all of `below` the other way.
    joint_above, joint_below : (n_nodes,) arrays
        For each node the largest probability at which it still belongs to the region: `above` is where
        `joint_above` is at least `probability`. NaN where small numbers are hidden.
    units : str
    n_samples : int
        Joint samples behind it.
    attrs : dict
        Where the numbers come from.

    Notes
    -----
    Regions grow node by node in the order of the marginal probability (Bolin & Lindgren 2015), as long as the
    joint samples allow. With n samples of which k fail somewhere in a region its probability is taken as
    (n - k) / (n + 1), which in the mean over samples promises no more than is true.
    """

    domain: Domain
    threshold: float
    probability: float
    joint_above: np.ndarray = field(repr=False)
    joint_below: np.ndarray = field(repr=False)
    units: str = ""
    n_samples: int = 0
    attrs: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def above(self) -> np.ndarray:
        """Whether each node belongs to the region that exceeds the threshold everywhere at once."""
        return self.joint_above >= self.probability

    @property
    def below(self) -> np.ndarray:
        """Whether each node belongs to the region that lies below the threshold everywhere at once."""
        return self.joint_below >= self.probability

    @property
    def hidden(self) -> np.ndarray:
        """Whether small numbers are hidden at each node; see `Posterior.protected`."""
        return np.isnan(self.joint_above)

    def at(self, probability: float) -> Excursion:
        """Return the regions of another probability, from the same samples."""
        probability = check_probability(probability, self.n_samples)
        return dataclasses.replace(self, probability=probability)

    def areas(self) -> dict[str, float]:
        """Return the land above, below, uncertain and (if any is) hidden, in km² (square units of a local domain)."""
        land = self.domain.node_areas / self.domain.area_unit[0]
        above, below, hidden = (float(land[some].sum()) for some in (self.above, self.below, self.hidden))
        rest = max(float(land.sum()) - above - below - hidden, 0.0)
        areas = {"above": above, "below": below, "uncertain": rest}
        return areas | {"hidden": hidden} if hidden else areas

    def to_dataset(self) -> xr.Dataset:
        """Return the regions on the grid: ``excursion`` is 1 above, -1 below and 0 between.

        ``probability_above`` and ``probability_below`` are the joint probabilities. A cell with several nodes (two
        sides of a river) shows the least sure of them.
        """
        from geobgp.output.grids import dataset

        words = f"{number(self.threshold, 6)} {self.units}"
        about = {"units": "1", "threshold": self.threshold, "n_samples": self.n_samples}
        values = {
            "excursion": self._least(self._known(self.above)) - self._least(self._known(self.below)),
            "probability_above": self._least(self.joint_above),
            "probability_below": self._least(self.joint_below),
        }
        variables = {
            "excursion": about
            | {
                "long_name": f"regions above and below {words}, each with {percent(self.probability)} all at once",
                "probability": self.probability,
                "legend": f"surely below {words}; not sure; surely above {words}",
            },
            "probability_above": about | {"long_name": f"joint probability of more than {words}"},
            "probability_below": about | {"long_name": f"joint probability of less than {words}"},
        }
        title = f"Above and below {words}, {percent(self.probability)} sure"
        data = dataset(self.domain, {}, attrs=self.attrs | {"title": title})
        for name, array in values.items():
            data[name] = (("northing", "easting"), array, variables[name])
        return data

    def _known(self, values: np.ndarray) -> np.ndarray:
        """Return values at the nodes, NaN where small numbers are hidden."""
        return np.where(self.hidden, np.nan, values)

    def _least(self, values: np.ndarray) -> np.ndarray:
        """Return the least of the values in every cell, NaN off land."""
        domain = self.domain
        used = domain.piece_node >= 0
        out = np.full(domain.grid.n_cells, np.inf)
        each = np.asarray(values, float)[domain.piece_node[used]]
        np.minimum.at(out, domain.pieces.cell[used], np.where(np.isnan(each), -np.inf, each))
        return np.where(np.isfinite(out), out, np.nan).reshape(domain.grid.shape)

    @validated(path=PATH)
    def to_raster(self, path: str | Path) -> list[Path]:
        """Write `to_dataset` as GeoTIFFs with QGIS styles: a directory, or one ``.tif`` with all bands."""
        from geobgp.output.rasters import write_rasters

        data = self.to_dataset()
        return write_rasters(data, path, title=data.attrs["title"])

    @validated(path=PATH)
    def to_polygons(self, path: str | Path | None = None) -> gpd.GeoDataFrame:
        """Return the regions as polygons that end at the shore; write them to a GeoPackage if `path` is given.

        Returns
        -------
        GeoDataFrame
            A row for each of "above", "uncertain", "below" and "hidden" that has land: ``region``, ``label``,
            ``probability`` (NaN where uncertain), ``area`` (of the land on the ground, km² or square units).
        """
        from geobgp.output.polygons import node_polygons, write_polygons

        words = f"{number(self.threshold, 6)} {self.units}"
        labels = {"below": f"surely below {words}", "uncertain": "not sure", "above": f"surely above {words}"}
        labels["hidden"] = "hidden: small numbers"
        rest = np.where(self.hidden, "hidden", "uncertain")
        region = np.where(self.above, "above", np.where(self.below, "below", rest))
        frame = node_polygons(self.domain, region, ("above", "uncertain", "below", "hidden"))
        areas = self.areas()
        frame.insert(1, "label", [labels[name] for name in frame["region"]])
        frame.insert(2, "probability", np.where(frame["region"].isin(["above", "below"]), self.probability, np.nan))
        frame.insert(3, "area", [areas[name] for name in frame["region"]])
        if path is not None:
            write_polygons(frame, path, layer="excursion")
        return frame

    @validated(ax=AXES)
    def plot(self, ax: matplotlib.axes.Axes | None = None, **kwargs: Any) -> matplotlib.axes.Axes:
        """Draw the regions; see `geobgp.output.figures.plot_excursion`."""
        from geobgp.output.figures import plot_excursion

        return plot_excursion(self, ax, **kwargs)

    def __repr__(self) -> str:
        unit = "km²" if self.domain.crs is not None else "square units"
        areas = ", ".join(f"{number(area, 3)} {unit} {name}" for name, area in self.areas().items())
        return f"Excursion({number(self.threshold)} {self.units} at {percent(self.probability)}: {areas})"


def excursion(
    posterior: Posterior,
    threshold: float,
    probability: float = 0.9,
    *,
    n_samples: int = 1000,
    rng: int | np.random.Generator = 0,
) -> Excursion:
    """Return the largest regions that lie above, or below, a threshold everywhere at once.

    Parameters
    ----------
    posterior : Posterior
    threshold : float
        In the unit of the map.
    probability : float
        From 0.5 to less than 1.
    n_samples : int
        Joint samples of all nodes.
    rng : int or Generator
    """
    probability = check_probability(probability, n_samples)
    above, below = joint_probabilities(posterior, threshold, n_samples, rng)
    return Excursion(
        posterior.domain, float(threshold), probability, above[0], below[0], posterior.units, n_samples,
        posterior.provenance,
    )  # fmt: skip


def joint_probabilities(
    posterior: Posterior, threshold: float, n_samples: int, rng: int | np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return the joint probabilities of `Excursion`, above and below, each (n_periods, n_nodes)."""
    n, count = posterior.domain.n_nodes, posterior.n_periods
    limit = posterior._limit(threshold)
    chance = posterior._exceedance(threshold).reshape(count, n)
    hidden = np.isnan(chance)
    # The place of every node in the order in which it joins each region.
    place = np.empty((2, count, n), np.int64)
    for k, sign in enumerate((-1.0, 1.0)):
        np.put_along_axis(place[k], np.argsort(sign * chance, axis=1, kind="stable"), np.arange(n)[None], axis=1)
    failed = []
    for block in posterior.draws(n_samples, rng):
        over = block.reshape(len(block), count, n) > limit
        above, below = np.where(over | hidden, n, place[0]), np.where(over & ~hidden, place[1], n)
        failed.append([above.min(axis=2), below.min(axis=2)])
    first = np.sort(np.concatenate(failed, axis=1), axis=1)
    joint = np.empty((2, count, n))
    for k, t in np.ndindex(2, count):
        joint[k, t] = (n_samples - np.searchsorted(first[k, :, t], place[k, t], "right")) / (n_samples + 1)
    joint[:, hidden] = np.nan
    return joint[0], joint[1]


def check_probability(probability: float, n_samples: int) -> float:
    """Return a probability that so many samples can tell from 1, or say what is wrong with it."""
    probability = real(least=0.5, below=1.0)("probability", probability)
    least = int(np.ceil(round(probability / (1 - probability), 6)))
    if n_samples < least:
        raise DataError(
            f"{n_samples:,} samples cannot tell {percent(probability, 1)} from certainty.",
            option="n_samples",
            found=n_samples,
            remedy=f"Use {option('n_samples')} of {least:,} or more; 1,000 are usual.",
        )
    return float(probability)
