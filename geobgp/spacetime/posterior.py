"""SpaceTimePosterior: what a fit over periods knows; maps per period, a level, a trend, what lies ahead."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from geobgp.arguments import ARRAY, PROBABILITIES, SOURCE
from geobgp.data.periods import Periods
from geobgp.errors import DataError
from geobgp.inference.mixture import NormalMixture
from geobgp.land.reproject import place_coordinates
from geobgp.posterior import Posterior
from geobgp.privacy import hide_rows, is_published
from geobgp.spacetime.exports import TimeOutputs
from geobgp.summary import (
    Summary,
    coefficient_table,
    describe_in_time,
    events_in_words,
    statistics,
    weights_of,
)
from geobgp.text import number
from geobgp.validate import FLAG, NAME, PATH, SEED, SEED_OR_GENERATOR, a, door, either, whole

if TYPE_CHECKING:
    import geopandas as gpd
    import xarray as xr

    from geobgp.checks.forecasts import ForecastCheck
    from geobgp.inference.chain_state import ChainState

#: Periods ahead.
AHEAD = either(whole(1), a("Periods"), words="a number of periods, at least 1, or Periods")


def _of_one_period(name: str) -> Any:
    """Return a method of `Posterior` that shows one period, which has to be said."""
    plain: Callable[..., Any] = getattr(Posterior, name)

    def method(self: SpaceTimePosterior, *args: Any, period: Any = None, **kwargs: Any) -> Any:
        if period is None:
            last = self.periods.labels[-1]
            raise DataError(
                f"{name}() is about one {self.periods.noun}; there are {self.periods.words()}.",
                option="period",
                remedy=f"Say which: {name}(..., period={last!r}), or posterior.at({last!r}).{name}(...).",
            )
        return getattr(self.at(period), name)(*args, **kwargs)

    method.__name__ = name
    method.__doc__ = (
        f"{plain.__doc__}\n\n        Of one period: give it as ``period=``, by label, number or date."
    )
    return method


@dataclass(frozen=True, eq=False, repr=False)
class SpaceTimePosterior(TimeOutputs, Posterior):  # type: ignore[misc]
    """The result of a fit over periods: one Gaussian posterior (or a mixture) of all of them together.

    `at` gives the map of one period as a plain `Posterior`, of which everything can be asked. What `Posterior` says of
    one map (`excursion`, `ranks`, `residuals`, ...) is said of one period: give ``period=``.

    Do not make one by hand: `LGCP.fit` of counts by period and `SpaceTimePosterior.load` do.

    Attributes
    ----------
    periods : Periods
    exposure : (n_nodes,) or (n_periods, n_nodes) array
        What the intensity is multiplied by to give the expected events of a period.
    observed : (n_periods, n_nodes) array, optional
    areas : PeriodAreaCounts, optional

    Examples
    --------
    >>> import shapely
    >>> from geobgp import LGCP, Domain, HarmonicBasis, Matern
    >>> domain = Domain.from_polygons(shapely.box(0, 0, 10, 10), cell_size=1, crs="local")
    >>> basis = HarmonicBasis.compute(domain, m=9, cache=False)
    >>> rising = np.random.default_rng(0).poisson(np.exp(0.1 * np.arange(8.0))[:, None] * np.ones(domain.n_nodes))
    >>> years = Periods.calendar("year", "2013", "2020")
    >>> posterior = LGCP(basis, Matern(1.5, lengthscale=8.0, sd=0.3)).fit(rising, periods=years)
    >>> posterior.units, posterior.at("2020").n_points == int(rising[-1].sum())
    ('events per unit area per year', True)
    >>> float(posterior.trend("land")["p_increase"].iloc[0])
    1.0
    >>> posterior.forecast(2).periods.labels
    ('2021', '2022')
    """

    periods: Periods = field(kw_only=True)

    # -- facts -------------------------------------------------------------------------------------

    @property
    def n_periods(self) -> int:
        """How many periods there are."""
        return self.periods.n

    @property
    def _states(self) -> tuple[ChainState, ...]:
        return self.fit.states  # type: ignore[return-value]

    @property
    def dynamics(self) -> str:
        """How patches fade: "separable" (all alike) or "diffusive" (the smaller, the sooner)."""
        return self._states[0].dynamics

    @property
    def tau(self) -> float:
        """Time over which a large patch keeps 37 % of its correlation with itself, in periods."""
        return float(self._states[0].tau)

    @property
    def level_sd(self) -> float:
        """Standard deviation of the level of a period, on the log scale; NaN where there is none."""
        return float(self._states[0].level_sd)

    @property
    def by_period(self) -> np.ndarray:
        """The exposure of each period, (n_periods, n_nodes)."""
        return np.broadcast_to(self.exposure, (self.n_periods, self.domain.n_nodes))

    @property
    def _overall(self) -> float:
        """Expected events per unit of `exposure`, over all the land and all periods."""
        if is_published(self):
            return float(self.fit.states[0].overall)  # type: ignore[attr-defined]
        return float(np.vdot(self.by_period, self.mean_by_period()) / self.by_period.sum())

    @property
    def provenance(self) -> dict[str, Any]:
        """Where the numbers come from, as attributes that rasters and netCDF files can hold."""
        return super().provenance | {
            "periods": self.periods.words(),
            "dynamics": self.dynamics,
            "tau": self.tau,
            "level_sd": self.level_sd,
        }

    @cached_property
    def coefficients(self) -> pd.DataFrame:
        """Fixed effects in the covariates' own units, and those of the yearly cycle: mean, sd, interval, rate ratio."""
        return coefficient_table(self._states, self.effects, True, self.interval)

    def summary(self) -> Summary:
        """Return what the fit used and found; prints as text."""
        return describe_in_time(self)

    # -- one period --------------------------------------------------------------------------------

    def at(self, period: Any) -> Posterior:
        """Return the map of one period: its posterior given the events of all periods.

        Parameters
        ----------
        period : str, int or date
            Its label ("2020-03"), its number (from 0; -1 is the last), or a date within it.
        """
        t = self.periods.find(period)
        areas: Any = None if self.areas is None else self.areas.at(t)  # type: ignore[attr-defined]
        observed = None if self.observed is None else self.observed[t]
        events = 0.0 if observed is None else float(observed.sum())
        if areas is not None:
            events = areas.total_weight
        label = self.periods.labels[t]
        known = {f.name: getattr(self, f.name) for f in fields(Posterior)}
        own = {
            "fit": replace(self.fit, states=tuple(state.at(t) for state in self._states)),
            "exposure": np.array(self.by_period[t]),
            "points": self._points_of(events),
            "title": f"{self.title or self.default_title}, {label}",
            "observed": observed,
            "areas": areas,
            "places": None if self.places is None else self.places[self.places[:, 3] == t, :3],
            "given": None if self.given is None else self.given.at(t),
        }
        return Posterior(**(known | own))

    def _points_of(self, events: float) -> dict[str, float]:
        """Return how many events a period has, if that may be told."""
        rule = self.protection
        if is_published(self) or rule.few(events):
            return {"fewer_than": rule.min_count}
        return {"used": round(float(rule.told(events)))}

    excursion = _of_one_period("excursion")
    ranks = _of_one_period("ranks")
    residuals = _of_one_period("residuals")
    versus = _of_one_period("versus")
    to_polygons = _of_one_period("to_polygons")
    tolerance_contours = _of_one_period("tolerance_contours")
    to_arviz = _of_one_period("to_arviz")
    predict = _of_one_period("predict")
    predict_y = _of_one_period("predict_y")

    # -- intensities -------------------------------------------------------------------------------

    @cached_property
    def _nodes(self) -> NormalMixture:
        """The log-intensity of the nodes, period by period."""
        moments = np.array([state.node_moments() for state in self._states])
        flat = moments.reshape(len(moments), 2, -1)
        return NormalMixture(weights_of(self._states), flat[:, 0], flat[:, 1])

    def mean_by_period(self) -> np.ndarray:
        """Return the posterior mean of exp(eta), (n_periods, n_nodes)."""
        return self._nodes.exp_mean().reshape(self.n_periods, -1)

    def node_intensity(self, quantiles: Sequence[float] | None = None) -> pd.DataFrame:
        """Return mean, sd and quantiles of the intensity, one row per period and node."""
        table = super().node_intensity(quantiles)
        nodes = np.arange(self.domain.n_nodes)
        table.index = pd.MultiIndex.from_product([self.periods.labels, nodes], names=["period", "node"])
        return table

    @door(quantiles=PROBABILITIES)
    def intensity_at(  # type: ignore[override]
        self, coords: Any, quantiles: Sequence[float] | None = None, *, period: Any = None
    ) -> pd.DataFrame:
        """Return mean, sd and quantiles of the intensity at places, a row for each place and period.

        Parameters
        ----------
        coords : (k, 2) array, GeoDataFrame or GeoSeries
            Easting and northing in the domain's CRS, or points in any CRS.
        quantiles : sequence of float, optional
            By default the ends of the `interval`, and the median.
        period : optional
            Only this one.

        Returns
        -------
        DataFrame
            ``place`` (its row, or its index in a table), ``period``, ``start``, and the numbers: those of the node that
            a place lies on; NaN off land.
        """
        which = range(self.n_periods) if period is None else [self.periods.find(period)]
        node = np.asarray(
            self.domain.locate(place_coordinates(coords, self.domain.crs, self.domain.grid.bounds))
        )
        n, land = self.domain.n_nodes, node >= 0
        pick = np.concatenate([t * n + np.where(land, node, 0) for t in which])
        off = np.tile(~land, len(which))
        found = self._shown_nodes
        mu, var = (np.where(off, np.nan, part[:, pick]) for part in (found.mu, found.var))
        frame = pd.DataFrame(
            statistics(
                NormalMixture(found.weight, mu, var), self.quantiles if quantiles is None else quantiles
            )
        )
        rows = np.repeat(np.array(which), len(node))
        places = coords.index if hasattr(coords, "iloc") else np.arange(len(node))
        frame.insert(0, "place", np.tile(np.asarray(places), len(which)))
        frame.insert(1, "period", [self.periods.labels[t] for t in rows])
        frame.insert(2, "start", self.periods.starts[rows])
        frame.attrs["units"] = self.units
        return frame

    @door(quantiles=PROBABILITIES)
    def level(self, quantiles: Sequence[float] | None = None) -> pd.DataFrame:
        """Return the events of each period on all the land, and the level: what is common to all places.

        Returns
        -------
        DataFrame
            ``period``, ``start``; ``observed`` events of all the land (NaN where some counts are suppressed or
            unknown), and quantiles of how many such a period brings, ``predicted_q05``, ...; ``expected`` ones with
            ``expected_q05``, ... (and ``reported``, those that an effort lets see); ``level``, the intensity where the
            map is at its average, with the season, in `units`, with ``level_sd``, ``level_q05``, ...

        Notes
        -----
        Quantiles of events are from 500 joint draws; the rest is exact.
        """
        parts = [state.level() for state in self._states]
        mixture = NormalMixture(
            weights_of(self._states), *(np.array(some) for some in zip(*parts, strict=True))
        )
        from geobgp.spacetime.totals import events_by_period

        columns: dict[str, Any] = {"period": self.periods.labels, "start": self.periods.starts}
        chances = self.quantiles if quantiles is None else quantiles
        if not is_published(self):
            columns |= events_by_period(self, chances, self._land_draws)
        level = statistics(mixture.plus(math.log(self.shown.factor)), chances)
        columns |= {"level" if name == "mean" else f"level_{name}": values for name, values in level.items()}
        frame = pd.DataFrame(columns)
        frame = hide_rows(frame, self, [name for name in columns if name not in ("period", "start")])
        frame.attrs["units"] = self.units
        return frame

    @cached_property
    def _land_draws(self) -> tuple[np.ndarray, np.ndarray]:
        """Joint draws of the events of all the land, (draws, n_periods): expected, and means of what is counted."""
        from geobgp.spacetime.totals import land_draws

        return land_draws(self)

    # -- samples -----------------------------------------------------------------------------------

    @door(n=whole(), seed=SEED_OR_GENERATOR)
    def sample(self, n: int, seed: int | np.random.Generator | None = None) -> xr.DataArray:
        """Draw joint samples of the intensity at all nodes in all periods.

        Parameters
        ----------
        n : int
            Number of samples; one of 10,000 nodes in 120 periods takes 10 MB.
        seed : int or Generator, optional

        Returns
        -------
        xarray.DataArray, (draw, time, node)
            One intensity (in `units`) per period and node; what has one draw belongs together.
        """
        from geobgp.output.time_grids import time_axis

        axes = {name: axis for name, axis in time_axis(self.periods).items() if name != "time_bounds"}
        return super().sample(n, seed).assign_coords(axes)

    draws = Posterior._draws

    @property
    def _shape(self) -> tuple[int, ...]:
        return self.n_periods, self.domain.n_nodes

    # -- questions ---------------------------------------------------------------------------------

    @door(regions=SOURCE, by=NAME, quantiles=PROBABILITIES, predicted=FLAG, n_samples=whole(2), seed=SEED)
    def totals(
        self,
        regions: Any = None,
        *,
        by: str | None = None,
        points: Any = None,
        quantiles: Sequence[float] | None = None,
        predicted: bool = False,
        n_samples: int = 500,
        seed: int = 0,
    ) -> gpd.GeoDataFrame:
        """Return the expected number of events in regions, period by period, with intervals.

        As `Posterior.totals`, with a row for each period and region: ``period`` and ``start`` say which. `points` are
        what `bin_points` gave for the same periods, with ``keep_coordinates=True``.
        """
        from geobgp.spacetime.totals import totals_by_period

        return totals_by_period(
            self,
            regions,
            by=by,
            points=points,
            quantiles=quantiles,
            predicted=predicted,
            n_samples=n_samples,
            seed=seed,
        )

    @door(regions=SOURCE, n_samples=whole(2), seed=SEED)
    def trend(self, regions: Any = None, *, n_samples: int = 500, seed: int = 0) -> Any:
        """Return the rate of change over all periods, with its interval and the probability of an increase.

        The trend is the slope of the straight line through the log-intensities of all periods, by least squares: of
        every place, or of the expected events of regions (per unit of exposure). Its uncertainty is that of the joint
        posterior of all periods. A change of 0.05 is one of +5 % per year (per unit of time, where time is a number).

        Parameters
        ----------
        regions : optional
            As for `totals`; "land" is all of it as one region. None: a map.
        n_samples, seed : int
            Joint draws behind it.

        Returns
        -------
        xarray.Dataset, or GeoDataFrame of regions
            ``change``, with ``q05`` and ``q95`` (or the ends of another `interval`); ``p_increase``.
        """
        from geobgp.spacetime.totals import trend_map, trend_of_regions

        if self.n_periods < 2:
            raise DataError("A trend needs two periods at least; there is one.", found=1)
        if regions is not None:
            return trend_of_regions(self, regions, n_samples, seed)
        values, about = trend_map(self, n_samples, seed)
        return Posterior._dataset(self, values, about)

    @door(periods=AHEAD, exposure=ARRAY)
    def forecast(self, periods: int | Periods, exposure: np.ndarray | None = None) -> SpaceTimePosterior:
        """Return what is expected in the periods that follow, given all that was seen.

        Patches fade towards the average as the model has learned they do, the level goes back to its own, the season
        goes on, and the uncertainty grows.

        Parameters
        ----------
        periods : int or Periods
            How many; or which, beginning where the last one ended.
        exposure : (n_nodes,) or (n_ahead, n_nodes) array, optional
            That of the periods ahead; by default that of the last period. Covariates stay as they were then.
        """
        from geobgp.spacetime.totals import exposure_ahead, steps_ahead

        after = self.periods.ahead(periods) if isinstance(periods, (int, np.integer)) else periods
        steps = steps_ahead(self.periods, after)
        states: Any = tuple(state.ahead(steps) for state in self._states)
        fit = replace(self.fit, states=states)
        return replace(
            self,
            fit=fit,
            periods=after,
            exposure=exposure_ahead(self, after, exposure),
            observed=None,
            areas=None,
            places=None,
            # Within a cell people live where they lived last.
            given=None if self.given is None else self.given.at(self.n_periods - 1),
            title=f"Forecast: {self.title}" if self.title else "",
        )

    @door(last=whole(1), seed=SEED)
    def cross_validate(self, last: int = 3, blocks: Any = "auto", *, seed: int = 0) -> ForecastCheck:  # type: ignore[override]
        """Forecast the last periods from those before them, and compare with what came.

        The model is fitted again without them, its hyperparameters held.

        Parameters
        ----------
        last : int
            How many periods are left out.
        blocks : "auto", float, regions or folds
            Parts of the land whose numbers are predicted; as for `Posterior.cross_validate`. Of counts by area they
            are the areas: a suppressed count is scored by the probability of all that it may be, one that is not known
            is not compared.
        seed : int

        Returns
        -------
        ForecastCheck
            ``score`` in nats per event (above one rate everywhere), ``coverage`` of intervals, the scores of a
            pooled map and of the numbers one season (or one period) before, and a table by period and block.
        """
        from geobgp.checks.forecasts import cross_validate

        return cross_validate(self, last, blocks, seed=seed)

    # -- files -------------------------------------------------------------------------------------

    @classmethod
    @door(path=PATH)
    def load(cls, path: str | Path) -> SpaceTimePosterior:
        """Read a posterior that `save` wrote; a damaged or foreign file raises CacheError."""
        found = Posterior.load(path)
        if not isinstance(found, SpaceTimePosterior):
            raise DataError(f"{str(path)!r} holds a map without time.", remedy="Use Posterior.load.")
        return found

    def __repr__(self) -> str:
        scale, unit = self.domain.length_unit
        return (
            f"SpaceTimePosterior({self.likelihood.name}, {events_in_words(self.points)} in {self.periods.words()}, "
            f"{self.domain.n_nodes:,} nodes, {self.basis.label}, {self.kernel.name}, {self.dynamics}: "
            f"lengthscale {number(self.lengthscale / scale)} {unit}, sd {number(self.sd)}, "
            f"tau {number(self.tau)} {self.periods.noun}s; ELBO {self.elbo:.2f}"
            f"{'' if self.converged else ', NOT converged'})"
        )
