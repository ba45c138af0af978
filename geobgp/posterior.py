"""Posterior: what a fit knows, in NumPy; intensities, samples, predictions, its file."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd

from geobgp.arguments import INTERVAL as PROBABILITY
from geobgp.arguments import PROBABILITIES, UNITS, VALUES
from geobgp.data.effects import Effects
from geobgp.data.effort import seen_exposure
from geobgp.data.exposure import Given, Within, next_to_none, within
from geobgp.errors import DataError
from geobgp.exports import Outputs
from geobgp.inference.mixture import INTERVAL, NormalMixture, quantiles_of
from geobgp.land.regions import overlay
from geobgp.land.reproject import as_given, place_coordinates
from geobgp.privacy import Protection, is_published, legend, published, shifts
from geobgp.questions import Questions
from geobgp.style import Style
from geobgp.summary import Rung, Summary, coefficient_table, describe, events_in_words, statistics, weights_of
from geobgp.text import number
from geobgp.units import RELATIVE_RISK, Units
from geobgp.validate import PATH, SEED_OR_GENERATOR, door, whole

if TYPE_CHECKING:
    import geopandas as gpd
    import xarray as xr

    from geobgp.data.areas import AreaCounts
    from geobgp.data.persons import Groups
    from geobgp.inference.fit import Fit
    from geobgp.inference.likelihoods import Likelihood
    from geobgp.land.domain import Domain
    from geobgp.prior.base import Basis
    from geobgp.prior.kernels import Kernel
    from geobgp.prior.scaling import Scaling

#: Numbers in a block of samples: 64 MB.
_SAMPLE_BLOCK = 8_000_000


@dataclass(frozen=True, eq=False)
class Posterior(Outputs, Questions):
    """The result of a fit: a Gaussian posterior of the linear predictor, or a mixture of several.

    The linear predictor is eta = intercept + covariates + f. For counts, exp(eta) is the intensity: events
    per km² (per unit area of a local domain), or events per unit of exposure where an exposure was given (per
    person; or a relative risk, where the exposure is the expected number of events).

    Do not make one by hand: `LGCP.fit`, `BoundaryGP.fit` and `Posterior.load` do.

    Attributes
    ----------
    fit : Fit
        The solver's result, with one state per hyperparameter point.
    basis : HarmonicBasis or FullRank
    kernel : Kernel
        As it was given; `lengthscale` and `sd` of the posterior are the learned ones.
    likelihood : Likelihood
        Without data; its `name` is "Poisson", "Gaussian", "Bernoulli (probit)" or "Bernoulli (logit)".
    exposure : (n_nodes,) array
        What the intensity is multiplied by to give expected events: km² by default.
    exposure_kind : str
        "area"; "population", "expected" (numbers of events) or "exposure", if one was given; "observation" for values
        at locations.
    effort : (n_nodes,) array, optional
        The share of events that get reported; the intensity is that of all.
    persons : Groups, optional
        The cases and controls that were fitted; files keep them only where there are no confounders.
    effects : Effects
    points : dict
        Numbers of points or values: used, dropped, snapped, total weight.
    created : str
        Date and time of the fit, UTC.
    title : str
    choices : dict
        What `map_intensity` chose by itself, and why.
    scaling : "even" or "natural"
        Whether the prior's sd is the same on every piece of land.
    observed : (n_nodes,) array, optional
        The counts of the nodes that were fitted; None for values at locations, and where only areas were counted.
    areas : AreaCounts, optional
        The counts by area that were fitted.
    given, given_effort : Given, optional
        The polygons or pixels that exposure and effort were read from, for the part of a node within a region.
    tried : tuple of Rung
        The fits that `map_intensity` compared: cells, prior, water, bound, seconds.
    shown_in : str
        The units that were asked for, as in "per 100,000"; empty for the own unit. See `in_units`.
    per : str
        The time that events are counted per as well, as in "month"; empty where the map has no time.
    style : Style
        Classes and colours that were asked for; see `styled`.
    protection : Protection
        What is hidden because it rests on too few events or people; see `protected`.
    interval : float
        Probability of the intervals of all outputs; see `with_interval`.
    places : (k, 3) array, optional
        Easting, northing and weight of the points that were counted, by which `totals` knows how many lie inside a
        region. They are in memory alone: `save`, copies and pickles leave them out.

    Examples
    --------
    >>> import shapely
    >>> from geobgp import LGCP, Domain, HarmonicBasis, Matern
    >>> domain = Domain.from_polygons(shapely.box(0, 0, 10, 10), cell_size=1, crs="local")
    >>> basis = HarmonicBasis.compute(domain, m=16, cache=False)
    >>> counts = np.full(domain.n_nodes, 3.0)
    >>> posterior = LGCP(basis, Matern(1.5, lengthscale=8.0, sd=0.5)).fit(counts)
    >>> posterior.intensity()["mean"].attrs["units"]
    'events per unit area'
    >>> float(posterior.totals(shapely.box(0, 0, 5, 10))["expected"].iloc[0].round(1))
    150.0
    >>> posterior.intensity_at([[2.5, 2.5], [20.0, 0.0]])["mean"].round(1).tolist()
    [3.0, nan]
    """

    fit: Fit
    basis: Basis
    kernel: Kernel
    likelihood: Likelihood
    exposure: np.ndarray = field(repr=False)
    exposure_kind: str
    effects: Effects = field(repr=False)
    points: Mapping[str, float]
    created: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    title: str = ""
    choices: Mapping[str, str] = field(default_factory=dict, repr=False)
    scaling: Scaling = "natural"
    observed: np.ndarray | None = field(default=None, repr=False)
    areas: AreaCounts | None = field(default=None, repr=False)
    tried: tuple[Rung, ...] = field(default=(), repr=False)
    shown_in: str = field(default="", repr=False)
    per: str = field(default="", repr=False)
    style: Style = field(default=Style(), repr=False)
    effort: np.ndarray | None = field(default=None, repr=False)
    persons: Groups | None = field(default=None, repr=False)
    protection: Protection = field(default=Protection(), repr=False)
    interval: float = field(default=INTERVAL, repr=False)
    places: np.ndarray | None = field(default=None, repr=False)
    given: Given | None = field(default=None, repr=False)
    given_effort: Given | None = field(default=None, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        """Return what copies and pickles hold: all but where the points lie."""
        return self.__dict__ | {"places": None}

    # -- facts -------------------------------------------------------------------------------------

    @property
    def min_count(self) -> int:
        """Numbers that rest on fewer events are hidden; 0 where none are. See `protected`."""
        return self.protection.min_count

    @property
    def domain(self) -> Domain:
        """The land that was fitted."""
        return self.basis.domain

    @property
    def seen_exposure(self) -> np.ndarray:
        """The exposure times the effort: what stands behind the events that get reported."""
        return seen_exposure(self.exposure, self.effort)

    def _within(self, regions: Any) -> Within:
        """Return what of every node's land, exposure and effort lies in regions, as `read_regions` returns them."""
        return within(self.domain, overlay(self.domain, regions), self.given, self.effort, self.given_effort)

    @property
    def elbo(self) -> float:
        """Lower bound of the log evidence at the fitted hyperparameters; compares fits of the same counts."""
        return float(self.fit.elbo)

    @property
    def converged(self) -> bool:
        """Whether the solver reached its optimum; if not, `summary()` says why."""
        return bool(self.fit.converged)

    @property
    def lengthscale(self) -> float:
        """Lengthscale of the kernel in metres (the domain's unit)."""
        return float(np.exp(self.fit.hyper_mean[0]))

    @property
    def sd(self) -> float:
        """Prior standard deviation of the log-intensity around its mean: the same on every piece of land.

        Where the prior's scaling is natural, it is that far from the shore: under Neumann conditions the prior is then
        wider along the shore and on land narrower than the lengthscale.
        """
        return float(np.exp(self.fit.hyper_mean[1]))

    @property
    def n_points(self) -> int:
        """Number of points or values that were used."""
        return int(self.points.get("used", 0))

    @property
    def basis_info(self) -> dict[str, Any]:
        """Boundary condition, scheme, permeability, and number of features (or "full")."""
        return {
            "boundary": self.basis.boundary,
            "scheme": self.basis.scheme,
            "permeability": self.basis.permeability,
            "m": self.basis.resolution,
        }

    @property
    def quantity(self) -> str:
        """What the map shows: an intensity, or a relative risk."""
        return self.shown.quantity

    @property
    def units(self) -> str:
        """Unit of the intensity, and of thresholds."""
        return self.shown.words

    @property
    def drawn(self) -> str:
        """The statistic that maps show: the "mean" of events per area, the "median" of rates and relative risks.

        The mean of a rate grows with its uncertainty, so that it is high where nobody lives and nothing is known; where
        the median of a relative risk is above 1, the risk is raised with a probability of more than a half.
        """
        return "mean" if self.exposure_kind in ("area", "observation") else "median"

    @property
    def unexposed(self) -> np.ndarray:
        """Whether there is (next to) no exposure at a node, so that maps are hatched there.

        Next to none is less, per unit of land, than a hundred-thousandth of the density at which half of all people
        live (`geobgp.data.exposure.next_to_none`). No node is unexposed where events are counted by area, nor with
        cases and controls: that no control comes from a place does not mean that nobody lives there.
        """
        if self.exposure_kind in ("area", "observation", "risk"):
            return np.zeros(np.shape(self.exposure), bool)
        return next_to_none(self.exposure, self.domain.node_areas)

    @cached_property
    def shown(self) -> Units:
        """In what the intensity is shown: the factor from events per unit of `exposure`, and the words."""
        units = Units.of(self.shown_in, self.exposure_kind, self.domain.area_unit, lambda: self._overall)
        return units.per(self.per) if self.per else units

    @property
    def overall(self) -> float:
        """The rate over all the land, in `units`: expected events per exposure; 1 of a relative risk."""
        return self._overall * self.shown.factor

    @property
    def _overall(self) -> float:
        """Expected events per unit of `exposure`, over all the land: what a relative risk is relative to."""
        if is_published(self):
            return float(self.fit.states[0].overall)  # type: ignore[attr-defined]
        return float(self.exposure @ self._nodes.exp_mean() / self.exposure.sum())

    @door(units=UNITS)
    def in_units(self, units: str | None) -> Posterior:
        """Return the same posterior with its intensity in other units.

        Parameters
        ----------
        units : str or None
            "per 100,000", "per 1,000 women", "per million" and the like of a population; "per km²", "per ha", "per
            100 km²" of land; "relative risk", the ratio to the average over all people; None for the own unit.

        Returns
        -------
        Posterior
            All of its maps, tables, files and thresholds are in these units; samples too. The linear predictor
            (`latent`, `predict`) and expected numbers of events stay as they are.
        """
        made = replace(self, shown_in=units or "")
        made.shown  # noqa: B018  (what does not fit is said now)
        return made

    @door(interval=PROBABILITY)
    def with_interval(self, interval: float) -> Posterior:
        """Return the same posterior with intervals of another probability, in all of its outputs.

        Parameters
        ----------
        interval : float
            From 0.5 to less than 1: 0.95 for intervals that hold 95 % of what is probable.

        Returns
        -------
        Posterior
            Whose tables, rasters, maps, figures, reports and checks have the quantiles ``q025`` and ``q975`` in place
            of ``q05`` and ``q95``.

        Examples
        --------
        >>> import shapely
        >>> from geobgp import LGCP, Domain, HarmonicBasis, Matern
        >>> domain = Domain.from_polygons(shapely.box(0, 0, 10, 10), cell_size=1, crs="local")
        >>> basis = HarmonicBasis.compute(domain, m=16, cache=False)
        >>> posterior = LGCP(basis, Matern(1.5, lengthscale=8.0, sd=0.5)).fit(np.full(domain.n_nodes, 3.0))
        >>> list(posterior.with_interval(0.95).node_intensity())
        ['mean', 'sd', 'q025', 'q50', 'q975']
        """
        return replace(self, interval=float(interval))

    @property
    def quantiles(self) -> tuple[float, float, float]:
        """The quantiles that are reported: the ends of the interval, and the median."""
        return quantiles_of(self.interval)

    def styled(
        self,
        classes: int | Sequence[float] | Literal["quantile"] | None = None,
        *,
        vmin: float | None = None,
        vmax: float | None = None,
        cmap: Any = None,
    ) -> Posterior:
        """Return the same posterior with other classes and colours, on all of its maps, files and figures.

        Parameters
        ----------
        classes : sequence of float, int or "quantile", optional
            Breaks between classes, in `units`. How many classes, or "quantile": the land is shared out among them,
            however little the map varies. By default breaks are round numbers over a factor of four or more, so that
            little variation looks like little; those of ratios are always the same.
        vmin, vmax : float, optional
            Even classes between these, in `units`; what lies beyond is in the first and the last.
        cmap : str, sequence of colours or matplotlib colour map, optional
            "intensity", "uncertainty", "probability", "signed", any of matplotlib's, or colours as "#rrggbb".

        Returns
        -------
        Posterior
            Of which all is as it was but the mean and the quantiles on maps, in rasters' styles and in figures.
        """
        from geobgp.output.palette import colours

        style = Style.of(classes, vmin, vmax, cmap)
        if style.cmap is not None:
            colours(2, style.cmap)  # what is no colour map is said now
        return replace(self, style=style)

    @property
    def default_title(self) -> str:
        """Title of maps and files that were given none."""
        return "Relative risk" if self.quantity == RELATIVE_RISK else f"Intensity in {self.units}"

    @property
    def provenance(self) -> dict[str, Any]:
        """Where the numbers come from, as attributes that rasters and netCDF files can hold."""
        import geobgp

        info = self.basis_info
        return (
            {
                "title": self.title or self.default_title,
                "source": f"geobgp {geobgp.__version__}",
                "created": self.created,
                "likelihood": self.likelihood.name,
                "kernel": self.kernel.name,
                "lengthscale": self.lengthscale,
                "sd": self.sd,
                "boundary": info["boundary"],
                "scheme": info["scheme"],
                "permeability": info["permeability"],
                "prior_scaling": self.scaling,
                "features": str(info["m"]),
                "hyperparameter_points": len(self.fit.states),
                "n_points": self.n_points,
                "converged": str(self.converged).lower(),
                "elbo": self.elbo,
                "interval": self.interval,
                "drawn": self.drawn,
            }
            | ({} if self.effort is None else {"effort": "as with full effort"})
            | self._hidden_facts()
        )

    def _hidden_facts(self) -> dict[str, str]:
        return {"small_numbers": legend(self)} if self.protection else {}

    @cached_property
    def coefficients(self) -> pd.DataFrame:
        """Fixed effects in the covariates' own units: mean, sd, interval, and the rate ratio per unit with its own.

        The intercept is the log-intensity (without f) where every covariate is zero.
        """
        return coefficient_table(self.fit.states, self.effects, self.likelihood.is_intensity, self.interval)

    def summary(self) -> Summary:
        """Return what the fit used and found; prints as text."""
        return describe(self)

    # -- intensities -------------------------------------------------------------------------------

    @cached_property
    def _nodes(self) -> NormalMixture:
        moments = np.array([state.node_moments() for state in self.fit.states])
        return NormalMixture(weights_of(self.fit.states), moments[:, 0], moments[:, 1])

    @property
    def _shown_nodes(self) -> NormalMixture:
        """The log-intensity of the nodes in the units that are shown, as it may be told."""
        return self._published.plus(math.log(self.shown.factor))

    @cached_property
    def _published(self) -> NormalMixture:
        """The log-intensity of the nodes as it may be told: that of `_nodes`, unless small numbers are protected."""
        return published(self)

    def _at(
        self,
        coords: Any,
        covariates: Mapping[str, Any] | pd.DataFrame | None,
        *,
        by_node: bool = False,
    ) -> NormalMixture:
        coords = place_coordinates(coords, self.domain.crs, self.domain.grid.bounds)
        fixed = None
        if covariates is not None and self.effects.names:
            fixed = self.effects.standardise(covariates, len(coords))
        node = self.domain.node_at(coords)
        land = node >= 0
        if self.protection and fixed is None:
            told = self._published
            mu, var = (
                np.where(land, part[:, np.where(land, node, 0)], np.nan) for part in (told.mu, told.var)
            )
            return NormalMixture(told.weight, mu, var)
        found = np.full((2, len(self.fit.states), len(coords)), np.nan)
        if land.any():
            some = None if fixed is None else fixed[land]
            for k, state in enumerate(self.fit.states):
                found[:, k, land] = state.moments_at(coords[land], some, by_node=by_node)
            if self.protection:
                found[:, :, land] += shifts(self)[node[land]] * [[[1.0]], [[0.0]]]
                found[1][np.isnan(found[0])] = np.nan
        return NormalMixture(weights_of(self.fit.states), found[0], found[1])

    def _need_counts(self, what: str) -> None:
        if not self.likelihood.is_intensity:
            raise DataError(
                f"{what} belongs to counts; this fit has a {self.likelihood.name} likelihood.",
                remedy="Use predict or predict_y.",
            )

    @door(quantiles=PROBABILITIES)
    def node_intensity(self, quantiles: Sequence[float] | None = None) -> pd.DataFrame:
        """Return mean, sd and quantiles of the intensity, one row per node of the domain."""
        self._need_counts("node_intensity()")
        chances = self.quantiles if quantiles is None else quantiles
        frame = pd.DataFrame(statistics(self._shown_nodes, chances))
        frame.attrs["units"] = self.units
        return frame

    @door(quantiles=PROBABILITIES, covariates=VALUES)
    def intensity_at(
        self,
        coords: np.ndarray | gpd.GeoDataFrame | gpd.GeoSeries,
        quantiles: Sequence[float] | None = None,
        covariates: Mapping[str, Any] | pd.DataFrame | None = None,
    ) -> pd.DataFrame:
        """Return mean, sd and quantiles of the intensity at places: those of the node that a place lies on.

        A node's value is the mean over its land, and what the raster and the map show there too (in a cell with
        several nodes these show their mean by land). NaN off land.

        Parameters
        ----------
        coords : (k, 2) array, GeoDataFrame or GeoSeries
            Easting and northing in the domain's CRS, or points in any CRS, whose index the rows then have.
        quantiles : sequence of float, optional
            By default the ends of the `interval`, and the median.
        covariates : mapping or DataFrame, optional
            Values there, in their own units, or levels; one serves all places. By default those of the node on whose
            land a coordinate lies, and where that has several levels the mean rate over it.
        """
        self._need_counts("intensity_at()")
        found = self._at(coords, covariates, by_node=True).plus(math.log(self.shown.factor))
        index = getattr(coords, "index", None) if hasattr(coords, "iloc") else None
        frame = pd.DataFrame(
            statistics(found, self.quantiles if quantiles is None else quantiles), index=index
        )
        frame.attrs["units"] = self.units
        return frame

    # -- samples ------------------------------------------------------------------------

    @door(n=whole(), seed=SEED_OR_GENERATOR)
    def sample(self, n: int, seed: int | np.random.Generator | None = None) -> xr.DataArray:
        """Draw joint samples of the intensity at all nodes.

        Parameters
        ----------
        n : int
            Number of samples; 1,000 samples of 15,000 nodes take 120 MB.
        seed : int or Generator, optional
            The same seed gives the same samples; None gives others every time.

        Returns
        -------
        xarray.DataArray, (draw, node)
            One intensity (in `units`) per node, with its easting and northing; whole rows belong together. NaN at
            nodes whose small numbers are hidden.
        """
        import xarray as xr

        self._need_counts("sample()")
        values = np.concatenate([np.zeros((0, *self._shape)), *self.sample_blocks(n, seed)])
        if self.protection:
            values *= np.exp(shifts(self)).reshape(self._shape)
        easting, northing = self.domain.node_points.T
        return xr.DataArray(
            values * self.shown.factor,
            {"draw": np.arange(n), "easting": ("node", easting), "northing": ("node", northing)},
            ("draw", "time", "node") if values.ndim == 3 else ("draw", "node"),
            name="intensity",
            attrs={"long_name": f"{self.quantity}, joint samples", "units": self.units},
        )

    def sample_blocks(self, n: int, seed: int | np.random.Generator | None) -> Iterator[np.ndarray]:
        """Yield joint samples of exp(eta), events per unit of `exposure`, some at a time: n in all."""
        for block in self._draws(n, seed):
            yield np.exp(block, out=block)

    def _draws(self, n: int, seed: int | np.random.Generator | None) -> Iterator[np.ndarray]:
        """Yield joint draws of eta, some at a time: n in all."""
        if n < 0:
            raise DataError(f"The number of samples cannot be negative; found {n}.")
        rng, states = np.random.default_rng(seed), self.fit.states
        # Each state gets its share of the rows, in random order: rows are independent draws of the mixture.
        owner = rng.permutation(np.repeat(np.arange(len(states)), rng.multinomial(n, weights_of(states))))
        size = max(1, _SAMPLE_BLOCK // math.prod(self._shape))
        for start in range(0, n, size):
            mine = owner[start : start + size]
            block = np.empty((len(mine), *self._shape))
            for k in np.unique(mine):
                block[mine == k] = states[k].sample_nodes(int((mine == k).sum()), rng)
            yield block

    @property
    def _shape(self) -> tuple[int, ...]:
        """The shape of one draw."""
        return (self.domain.n_nodes,)

    # -- predictions at coordinates ----------------------------------------------------------------

    @door(covariates=VALUES)
    def predict(
        self, coords: Any, covariates: Mapping[str, Any] | pd.DataFrame | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of the linear predictor at places; NaN off land.

        Places are coordinates (k, 2) in the domain's CRS; or a GeoDataFrame or GeoSeries in any, and mean and variance
        are then Series with its index.
        Features are smooth functions, and so is what they predict; at full rank it is the value of the node that a
        coordinate lies on.
        """
        mean, variance = self._at(coords, covariates).moments()
        return as_given(mean, coords), as_given(variance, coords)

    @door(covariates=VALUES)
    def predict_y(
        self, coords: Any, covariates: Mapping[str, Any] | pd.DataFrame | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of a new observation at places, given as for `predict`; NaN off land.

        Gaussian: the noise is added. Bernoulli: the probability of a 1, and p (1 - p). Poisson: of a count
        with one unit of exposure.
        """
        noise = np.array([state.noise for state in self.fit.states])
        mean, variance = self.likelihood.predicted(self._at(coords, covariates), noise)
        return as_given(mean, coords), as_given(variance, coords)

    # -- files -------------------------------------------------------------------------------------

    @door(path=PATH)
    def save(self, path: str | Path) -> Path:
        """Write everything to one file, from which `load` gives back the same posterior, number for number.

        The file (an ``.npz``, no pickle) holds the domain and the basis too, so it is about as large as the
        features are in memory. It holds the counts of the nodes but no points; only a fit of values at locations
        (`BoundaryGP`) with full rank keeps the locations.

        Of a posterior whose small numbers are protected the file holds what may be told of each cell, and neither
        counts nor the fit: it gives back maps, rasters and reports, and no draws, totals of regions or forecasts.
        """
        from geobgp.storage.archive import save

        return save(self, path)

    @classmethod
    @door(path=PATH)
    def load(cls, path: str | Path) -> Posterior:
        """Read a posterior that `save` wrote; a damaged or foreign file raises CacheError."""
        from geobgp.storage.archive import load

        return load(path)

    def __repr__(self) -> str:
        scale, unit = self.domain.length_unit
        return (
            f"Posterior({self.likelihood.name}, {events_in_words(self.points)}, {self.domain.n_nodes:,} nodes, "
            f"{self.basis.boundary}, {self.basis.label}, {self.kernel.name}: "
            f"lengthscale {number(self.lengthscale / scale)} {unit}, sd {number(self.sd)}; "
            f"ELBO {self.elbo:.2f}{'' if self.converged else ', NOT converged'})"
        )
