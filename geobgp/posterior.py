"""Posterior: what a fit knows, what can be asked of it, and what it writes and draws."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
import pandas as pd

from geobgp.data.effects import Effects
from geobgp.data.inputs import Given, Within, next_to_none, of_period, seen_exposure, within
from geobgp.data.periods import Periods
from geobgp.errors import DataError, option
from geobgp.files import check_unread
from geobgp.inference.held_out import ROUNDS
from geobgp.inference.links import EXP, IDENTITY, Link
from geobgp.inference.mixture import (
    INTERVAL,
    NormalMixture,
    check_probabilities,
    interval_in,
    quantile_name,
    quantile_words,
    quantiles_of,
)
from geobgp.land.crs import as_given, place_coordinates
from geobgp.land.regions import overlay
from geobgp.privacy import (
    Protection,
    hide_blocks,
    hide_effects,
    hide_forecasts,
    hide_rows,
    is_published,
    legend,
    protected,
    published,
    refuse,
    shifts,
)
from geobgp.style import Style
from geobgp.summary import FitRecord, Summary, coefficient_table, describe, events_in_words, statistics, weights_of
from geobgp.text import number
from geobgp.units import Units, check_threshold, warn_if_far
from geobgp.validation import (
    ARRAY,
    AXES,
    BASEMAP,
    CLIENT,
    FIGURE,
    FLAG,
    GENERATOR,
    HOTSPOTS,
    JOBS,
    LEVELS,
    MIN_COUNT,
    NAME,
    PATH,
    POSTERIOR,
    PROBABILITIES,
    RNG,
    SEVERAL_PERIODS,
    SOURCE,
    STEPS,
    TEXT,
    THRESHOLDS,
    UNITS,
    VALUES,
    a,
    choice,
    either,
    in_rows_of,
    real,
    validated,
    whole,
)
from geobgp.validation import INTERVAL as PROBABILITY
from geobgp.validation import names as some_names

if TYPE_CHECKING:
    import folium
    import geopandas as gpd
    import matplotlib.axes
    import xarray as xr
    from matplotlib.figure import Figure

    from geobgp.checks.compare import Versus
    from geobgp.checks.excursions import Excursion
    from geobgp.checks.forecasts import ForecastCheck
    from geobgp.checks.residuals import Residuals
    from geobgp.checks.variation import Variation
    from geobgp.checks.variogram import Spatial, Variogram
    from geobgp.data.areas import AreaCounts
    from geobgp.data.delays import Delays
    from geobgp.data.measurements import Measurements
    from geobgp.data.persons import Groups
    from geobgp.inference.families import Likelihood
    from geobgp.inference.fit import Fit
    from geobgp.land.domain import Domain
    from geobgp.prior.basis import Basis, Scaling
    from geobgp.prior.kernels import Kernel


#: Numbers in a block of samples: 64 MB.
_SAMPLE_BLOCK = 8_000_000
#: Numbers in a set of samples that is kept for the next question: 128 MB.
_KEPT_DRAWS = 16_000_000
#: Periods ahead.
AHEAD = either(whole(1), a("Periods"), words="a number of periods, at least 1, or Periods")


@dataclass(frozen=True, eq=False)
class Posterior:
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
    exposure : (n_nodes,) or (n_periods, n_nodes) array
        What the intensity is multiplied by to give expected events (of a period): km² by default.
    exposure_kind : str
        "area"; "population", "expected" (numbers of events) or "exposure", if one was given; "observation" for values
        at locations.
    effort : (n_nodes,) or (n_periods, n_nodes) array, optional
        The share of events that get reported; the intensity is that of all.
    persons : Groups, optional
        The cases and controls that were fitted; files keep them only where there are no confounders.
    design : Effects
        The columns of covariates and their blocks; `effects()` is the table of what they do.
    points : dict
        Numbers of points or values: used, dropped, snapped, total weight.
    created : str
        Date and time of the fit, UTC.
    title : str
    choices : dict
        What `map_intensity` chose by itself, and why.
    scaling : "even" or "natural"
        Whether the prior's sd is the same on every piece of land.
    observed : (n_nodes,) or (n_periods, n_nodes) array, optional
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
        What is hidden because it is based on too few events or people; see `protected`.
    interval : float
        Probability of the intervals of all outputs; see `with_interval`.
    places : (k, 3) array, optional
        Easting, northing and weight of the points that were counted (and their period), by which `totals` knows how
        many lie inside a region. They are in memory alone: `save`, copies and pickles leave them out.
    sites : Measurements, optional
        The values or surveys that were fitted, with their places; in memory alone: files leave them out.
    periods : Periods, optional
        Where all periods were fitted together: every question has an answer for each, and `at` gives one of them.
    origin : dict
        Where it comes from: every input that was given with its name, SHA-256, size and number of features, the
        versions of Python and of the libraries, the call, and the random state. Empty of a fit step by step.
    delays : Delays, optional
        How long events take to be reported, and which share of each period's events is known by now.

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

    Over periods:

    >>> rising = np.random.default_rng(0).poisson(np.exp(0.1 * np.arange(8.0))[:, None] * np.ones(domain.n_nodes))
    >>> years = Periods.calendar("year", "2013", "2020")
    >>> posterior = LGCP(basis.truncate(9), Matern(1.5, lengthscale=8.0, sd=0.3)).fit(rising, periods=years)
    >>> posterior.units, posterior.at("2020").n_points == int(rising[-1].sum())
    ('events per unit area per year', True)
    >>> float(posterior.trend("land")["p_increase"].iloc[0])
    1.0
    >>> posterior.forecast(2).periods.labels
    ('2021', '2022')
    """

    fit: Fit
    basis: Basis
    kernel: Kernel
    likelihood: Likelihood
    exposure: np.ndarray = field(repr=False)
    exposure_kind: str
    design: Effects = field(repr=False)
    points: Mapping[str, float]
    created: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    title: str = ""
    choices: Mapping[str, str] = field(default_factory=dict, repr=False)
    scaling: Scaling = "natural"
    observed: np.ndarray | None = field(default=None, repr=False)
    areas: AreaCounts | None = field(default=None, repr=False)
    tried: tuple[FitRecord, ...] = field(default=(), repr=False)
    shown_in: str = field(default="", repr=False)
    per: str = field(default="", repr=False)
    style: Style = field(default=Style(), repr=False)
    effort: np.ndarray | None = field(default=None, repr=False)
    persons: Groups | None = field(default=None, repr=False)
    protection: Protection = field(default=Protection(), repr=False)
    interval: float = field(default=INTERVAL, repr=False)
    places: np.ndarray | None = field(default=None, repr=False, metadata={"stored": False})
    given: Given | None = field(default=None, repr=False)
    given_effort: Given | None = field(default=None, repr=False)
    sites: Measurements | None = field(default=None, repr=False, metadata={"stored": False})
    periods: Periods | None = field(default=None, kw_only=True)
    origin: Mapping[str, Any] = field(default_factory=dict, repr=False, kw_only=True)
    delays: Delays | None = field(default=None, repr=False, kw_only=True)

    def __getstate__(self) -> dict[str, Any]:
        """Return what copies and pickles hold: all but where the points lie, and what can be worked out again."""
        return {name: value for name, value in self.__dict__.items() if name != "_worked_out"} | {"places": None}

    # -- facts -----------------------------------------------------------------------------------------------

    @property
    def min_count(self) -> int:
        """Numbers that are based on fewer events are hidden; 0 where none are. See `protected`."""
        return self.protection.min_count

    @property
    def domain(self) -> Domain:
        """The land that was fitted."""
        return self.basis.domain

    @property
    def seen_exposure(self) -> np.ndarray:
        """The exposure times the effort: what stands behind the events that get reported."""
        return seen_exposure(self.exposure, self.effort)

    @property
    def final_effort(self) -> np.ndarray | None:
        """The share of events that get reported in the end: the effort, without what is not reported yet."""
        if self.delays is None or self.effort is None:
            return self.effort
        return self.delays.final(self.effort)

    @property
    def nowcast(self) -> np.ndarray:
        """Which periods are nowcasts, (n_periods,): some of their events are not reported yet; see `delays`."""
        return np.zeros(self.n_periods, bool) if self.delays is None else self.delays.incomplete

    @property
    def as_reported(self) -> Posterior:
        """The posterior with what is uncertain of the share of events that are reported, as observations see it."""
        if self.delays is None or self.periods is None:
            return self
        states: Any = (state.seen_through(self.delays.columns) for state in cast("Sequence[Any]", self.fit.states))
        return replace(self, fit=replace(self.fit, states=tuple(states)))

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
    def _fixed_sd(self) -> np.ndarray:
        """Prior standard deviations of the fixed effects, at those that have been learned."""
        n = len(self.design.learned)
        return self.design.sd_at(np.exp(self.fit.hyper_mean[len(self.fit.hyper_mean) - n :]))

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
    def n_periods(self) -> int:
        """How many periods there are; 1 without time."""
        return 1 if self.periods is None else self.periods.n

    @property
    def n_draws(self) -> int:
        """How many joint draws tables have by default: one set serves them all."""
        return 1000 if self.periods is None else 500

    @property
    def by_period(self) -> np.ndarray:
        """The exposure of each period, (n_periods, n_nodes)."""
        return np.broadcast_to(self.exposure, (self.n_periods, self.domain.n_nodes))

    @property
    def amounts(self) -> np.ndarray:
        """What every node counts for in regions: its exposure, or its land where there is none. As `by_period`."""
        if self.exposure_kind != "observation":
            return self.by_period
        return np.broadcast_to(self.domain.node_areas, (self.n_periods, self.domain.n_nodes))

    @property
    def link(self) -> Link:
        """From the linear predictor to what the map shows."""
        return self.likelihood.link

    @property
    def is_summed(self) -> bool:
        """Whether regions have expected numbers of events; a share or a value has a mean over their people or land."""
        return self.likelihood.quantity == "intensity" and self.exposure_kind != "observation"

    @property
    def _chain(self) -> Any:
        """The state of the posterior over periods."""
        return self.fit.states[0] if self.time.n else None

    @property
    def time(self) -> Periods:
        """The periods of a map over time; an error where there are none."""
        if self.periods is None:
            raise DataError(
                "This is asked of a map over periods, and this one has no time.",
                option="period",
                remedy="Give the times of the events: map_intensity(..., time=...).",
            )
        return self.periods

    @property
    def dynamics(self) -> str:
        """Over periods, how patches fade: "separable" (all alike) or "diffusive" (the smaller, the sooner)."""
        return str(self._chain.dynamics)

    @property
    def tau(self) -> float:
        """Over periods, the time over which a large patch keeps 37 % of its correlation with itself, in periods."""
        return float(self._chain.tau)

    @property
    def level_sd(self) -> float:
        """Over periods, the standard deviation of the level of a period on the log scale; NaN where there is none."""
        return float(self._chain.level_sd)

    @property
    def quantity(self) -> str:
        """What the map shows: an "intensity", a "relative risk", a "prevalence", a "probability" or a "value"."""
        return self.shown.quantity

    @property
    def units(self) -> str:
        """Unit of the intensity, and of thresholds."""
        return self.shown.words

    @property
    def drawn(self) -> str:
        """The statistic that maps show: the "median" of rates and relative risks, else the "mean".

        The mean of a rate grows with its uncertainty, so that it is high where nobody lives and nothing is known; where
        the median of a relative risk is above 1, the risk is raised with a probability of more than a half.
        """
        rate = self.likelihood.quantity == "intensity" and self.exposure_kind not in ("area", "observation")
        return "median" if rate else "mean"

    @property
    def unexposed(self) -> np.ndarray:
        """Whether there is (next to) no exposure at a node, so that maps are hatched there.

        Next to none is less, per unit of land, than a hundred-thousandth of the density at which half of all people
        live (`geobgp.data.inputs.next_to_none`). No node is unexposed where events are counted by area, nor with
        cases and controls: that no control comes from a place does not mean that nobody lives there.
        """
        if self.exposure_kind in ("area", "observation", "risk"):
            return np.zeros(np.shape(self.exposure), bool)
        return next_to_none(self.exposure, self.domain.node_areas)

    @cached_property
    def shown(self) -> Units:
        """In what the quantity is shown: a factor from its own unit (events per unit of `exposure`), and the words."""
        kind = self.exposure_kind if self.likelihood.quantity == "intensity" else self.likelihood.quantity
        units = Units.of(self.shown_in, kind, self.domain.area_unit, lambda: self._overall)
        return units.per(self.per) if self.per else units

    @property
    def overall(self) -> float:
        """The rate over all the land, in `units`: expected events per exposure; 1 of a relative risk; else the mean."""
        return self._overall * self.shown.factor

    @property
    def _overall(self) -> float:
        """The mean over all the land (and all periods), per unit of `exposure`: what a relative risk is relative to."""
        if is_published(self):
            return float(self.fit.states[0].overall)  # type: ignore[attr-defined]
        return float(np.vdot(self.amounts, self.mean_by_period()) / self.amounts.sum())

    @validated(units=UNITS)
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
        shown = replace(self, shown_in=units or "")
        shown.shown  # noqa: B018  (what does not fit is said now)
        return shown

    @validated(interval=PROBABILITY)
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
        return self.shown.title

    @property
    def provenance(self) -> dict[str, Any]:
        """Where the numbers come from, as attributes that rasters and netCDF files can hold."""
        import geobgp

        info = self.basis_info
        facts = {
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
        if self.link is not EXP:
            facts["scale"] = "linear"  # differences are what counts, not factors
        if self.periods is not None:
            facts |= {
                "periods": self.periods.words(),
                "dynamics": self.dynamics,
                "tau": self.tau,
                "level_sd": self.level_sd,
            }
        if self.final_effort is not None:
            facts["effort"] = "as with full effort"
        if self.delays is not None:
            facts["reports_until"] = self.delays.as_of
            if self.periods is None:
                facts["nowcast"] = str(bool(self.nowcast.any())).lower()
        return facts | self._hidden_facts()

    def _hidden_facts(self) -> dict[str, str]:
        return {"small_numbers": legend(self)} if self.protection else {}

    @cached_property
    def coefficients(self) -> pd.DataFrame:
        """Fixed effects in the covariates' own units: mean, sd, interval, and the rate (or odds) ratio with its own.

        The intercept is the linear predictor (without f) where every covariate is zero. Over periods those of the
        yearly cycle are among them.
        """
        table = coefficient_table(self.fit.states, self.design, self.link.ratio, self.interval)
        levels = {term.name for term in self.design.terms if term.level is not None or term.part is not None}
        return hide_effects(table, self, table["name"].isin(levels).to_numpy(bool))

    def summary(self) -> Summary:
        """Return what the fit used and found; prints as text."""
        return describe(self)

    # -- one period ------------------------------------------------------------------------------------------

    def at(self, period: Any) -> Posterior:
        """Return the map of one period: its posterior given the events of all periods.

        Parameters
        ----------
        period : str, int or date
            Its label ("2020-03"), its number (from 0; -1 is the last), or a date within it.
        """
        t = self.time.find(period)
        states: tuple[Any, ...] = self.fit.states
        areas: Any = None if self.areas is None else self.areas.at(t)
        observed = None if self.observed is None else self.observed[t]
        events = 0.0 if observed is None else float(observed.sum())
        if areas is not None:
            events = areas.total_weight
        label = self.time.labels[t]
        persons = None if self.persons is None else self.persons.at(t)
        sites = None if self.sites is None else self.sites.at(t)
        return replace(
            self,
            persons=persons,
            sites=sites,
            fit=replace(self.fit, states=tuple(state.at(t) for state in states)),
            exposure=np.array(self.by_period[t]),
            effort=None if self.effort is None else of_period(self.effort, t),
            points=self._points_of(events, persons) if sites is None else sites.facts,
            title=f"{self.title or self.default_title}, {label}{' (nowcast)' if self.nowcast[t] else ''}",
            observed=observed,
            areas=areas,
            places=None if self.places is None else self.places[self.places[:, 3] == t, :3],
            given=None if self.given is None else self.given.at(t),
            given_effort=None if self.given_effort is None else self.given_effort.at(t),
            periods=None,
            delays=None if self.delays is None else self.delays.slice(t, t + 1),
        )

    def _points_of(self, events: float, persons: Groups | None) -> Mapping[str, float]:
        """Return how many events a period has, or which persons, if that may be told."""
        rule = self.protection
        if persons is not None:
            few = any(rule.few(n) for n in persons.numbers.values())
            return {"fewer_than": rule.min_count} if few else persons.numbers
        if is_published(self) or rule.few(events):
            return {"fewer_than": rule.min_count}
        return {"used": round(float(rule.told(events)))}

    def _each(self, ask: Callable[[Posterior, str], Any], period: Any) -> Any:
        """Ask a map without time, that of one period, or of each: answers by label, or tables under one another."""
        if period is not None:
            return ask(self.at(period), self.time.labels[self.time.find(period)])
        if self.periods is None:
            return ask(self, "")
        answers = {label: ask(self.at(t), label) for t, label in enumerate(self.periods.labels)}
        first = next(iter(answers.values()))
        if not isinstance(first, pd.DataFrame):
            return answers
        from geobgp.totals import with_periods

        rows = np.repeat(np.arange(self.n_periods), [len(table) for table in answers.values()])
        table = with_periods(pd.concat(list(answers.values())), self.periods, rows)
        table.attrs |= first.attrs
        return table

    def _of_period(self, name: str, period: Any, *, several: bool) -> Posterior:
        """Return the map of one period; where none is said the whole, if the method `name` may be about `several`."""
        if period is not None:
            return self.at(period)
        if several or self.periods is None:
            return self
        last = self.periods.labels[-1]
        raise DataError(
            f"{name}() is about one {self.periods.noun}; there are {self.periods.words()}.",
            option="period",
            remedy=f"Say which: {name}(..., period={last!r}), or posterior.at({last!r}).{name}(...).",
        )

    # -- intensities -----------------------------------------------------------------------------------------

    @cached_property
    def _nodes(self) -> NormalMixture:
        """The linear predictor at the nodes, one period after the other."""
        moments = np.array([state.node_moments() for state in self.fit.states])
        flat = moments.reshape(len(moments), 2, -1)
        return NormalMixture(weights_of(self.fit.states), flat[:, 0], flat[:, 1])

    @property
    def _shown_nodes(self) -> NormalMixture:
        """The linear predictor of the nodes, of the quantity in the units that are shown, as it may be told."""
        return self._in_shown(self._published)

    def _limit(self, threshold: float) -> np.ndarray:
        """Return what draws are compared with for a threshold in `units`, (n_periods or 1, n_nodes or 1).

        NaN where small numbers are hidden, so that nothing there exceeds it.
        """
        check_threshold(threshold, self.quantity)
        link = self.link
        if not link.lowest < threshold < link.highest:
            words = "a positive number" if link is EXP else "between 0 and 1"
            raise DataError(
                f"{option('threshold')} must be {words}; found {threshold}.", option="threshold", found=threshold
            )
        limit = link.forward(threshold / self.shown.factor)
        return limit - shifts(self).reshape(self.n_periods, -1) if self.protection else np.full((1, 1), limit)

    def _exceedance(self, threshold: float, mixture: NormalMixture | None = None) -> np.ndarray:
        """Return the probability of exceeding a threshold in `units`, of the nodes or of others shown like them."""
        check_threshold(threshold, self.quantity)
        return self.link.exceedance(self._shown_nodes if mixture is None else mixture, threshold)

    def _in_shown(self, mixture: NormalMixture) -> NormalMixture:
        """Return a linear predictor of the quantity in the units that are shown: only those of rates have a factor."""
        factor = self.shown.factor
        return mixture if factor == 1.0 else mixture.plus(math.log(factor))

    @cached_property
    def _worked_out(self) -> dict[str, np.ndarray]:
        return {}

    def _statistics(self, quantiles: Sequence[float] | None) -> dict[str, np.ndarray]:
        """Return mean, sd and quantiles of the quantity at the nodes, each worked out once."""
        chances = check_probabilities(self.quantiles if quantiles is None else quantiles)
        names, known = {quantile_name(q): q for q in chances}, self._worked_out
        if missing := [q for name, q in names.items() if name not in known or "mean" not in known]:
            known |= statistics(self._shown_nodes, missing, self.link)
        elif "mean" not in known:
            known |= statistics(self._shown_nodes, (), self.link)
        return {name: known[name] for name in ("mean", "sd", *names)}

    @cached_property
    def _published(self) -> NormalMixture:
        """The log-intensity of the nodes as it may be told: that of `_nodes`, unless small numbers are protected."""
        return published(self)

    @property
    def _shape(self) -> tuple[int, ...]:
        """The shape of one draw."""
        n = self.domain.n_nodes
        return (n,) if self.periods is None else (self.periods.n, n)

    def _at(
        self, coords: Any, covariates: Mapping[str, Any] | pd.DataFrame | None, *, by_node: bool = False
    ) -> NormalMixture:
        covariates = in_rows_of("covariates", covariates, coords)
        coords = place_coordinates(coords, self.domain.crs, self.domain.grid.bounds)
        fixed = None
        if covariates is not None and self.design.names:
            fixed = self.design.standardise(covariates, len(coords))
        node = self.domain.node_at(coords)
        land = node >= 0
        if self.protection and fixed is None:
            told = self._published
            mu, var = (np.where(land, part[:, np.where(land, node, 0)], np.nan) for part in (told.mu, told.var))
            return NormalMixture(told.weight, mu, var)
        moments = np.full((2, len(self.fit.states), len(coords)), np.nan)
        if land.any():
            some = None if fixed is None else fixed[land]
            for k, state in enumerate(self.fit.states):
                moments[:, k, land] = state.moments_at(coords[land], some, by_node=by_node)
            if self.protection:
                moments[:, :, land] += shifts(self)[node[land]] * [[[1.0]], [[0.0]]]
                moments[1][np.isnan(moments[0])] = np.nan
        return NormalMixture(weights_of(self.fit.states), moments[0], moments[1])

    def mean_by_period(self) -> np.ndarray:
        """Return the posterior mean of the quantity per unit of `exposure`, (n_periods, n_nodes)."""
        return self.link.mean(self._nodes).reshape(self.n_periods, -1)

    @validated(quantiles=PROBABILITIES)
    def node_intensity(self, quantiles: Sequence[float] | None = None) -> pd.DataFrame:
        """Return mean, sd and quantiles of the quantity, one row per node of the domain (in each period)."""
        frame = pd.DataFrame(self._statistics(quantiles))
        if self.periods is not None:
            axes = [self.periods.labels, np.arange(self.domain.n_nodes)]
            frame.index = pd.MultiIndex.from_product(axes, names=["period", "node"])
        frame.attrs["units"] = self.units
        return frame

    @validated(quantiles=PROBABILITIES, thresholds=THRESHOLDS)
    def cells(
        self, quantiles: Sequence[float] | None = None, thresholds: Sequence[float] = (), *, period: Any = None
    ) -> gpd.GeoDataFrame:
        """Return the land of every node as a row, with what is known of the quantity there.

        Parameters
        ----------
        quantiles : sequence of float, optional
            By default the ends of the `interval`, and the median.
        thresholds : sequence of float
            In `units`. Each adds the probability of exceeding it, ``exceedance_2``.
        period : optional
            Only the rows of this one, where there are several.

        Returns
        -------
        GeoDataFrame
            ``node``, ``land_km2`` (``land_area`` of a local domain), ``exposure`` where one was given, ``mean``,
            ``sd`` and quantiles in `units`, and exceedances; NaN where small numbers are hidden. The polygons end at
            the shore and share out the land. Over periods a row for each period and node: ``period`` and ``start``
            say which.

        Examples
        --------
        >>> import shapely
        >>> from geobgp import LGCP, Domain, FullRank, Matern
        >>> domain = Domain.from_polygons(shapely.Point(5, 5).buffer(5), cell_size=1, crs="local")
        >>> posterior = LGCP(FullRank(domain), Matern(1.0, 4.0, 1.0)).fit(np.full(domain.n_nodes, 2.0))
        >>> cells = posterior.cells(thresholds=[1.5])
        >>> list(cells.columns)
        ['node', 'land_area', 'mean', 'sd', 'q05', 'q50', 'q95', 'exceedance_1.5', 'geometry']
        >>> bool(np.isclose(cells.area.sum(), domain.geometry.area))
        True
        """
        from geobgp.output.polygons import cells

        return cells(self, quantiles, thresholds, None if period is None else self.time.find(period))

    @validated(quantiles=PROBABILITIES, covariates=VALUES, thresholds=THRESHOLDS)
    def values_at(
        self,
        coords: np.ndarray | gpd.GeoDataFrame | gpd.GeoSeries,
        quantiles: Sequence[float] | None = None,
        covariates: Mapping[str, Any] | pd.DataFrame | None = None,
        *,
        thresholds: Sequence[float] = (),
        period: Any = None,
    ) -> pd.DataFrame:
        """Return mean, sd and quantiles of the quantity at places: those of the node that a place lies on.

        A node's value is the mean over its land, and what the raster and the map show there too (in a cell with
        several nodes these show their mean by land). NaN off land. `intensity_at` is the same.

        Parameters
        ----------
        coords : (k, 2) array, GeoDataFrame or GeoSeries
            Easting and northing in the domain's CRS, or points in any CRS, whose index the rows then have.
        quantiles : sequence of float, optional
            By default the ends of the `interval`, and the median.
        covariates : mapping or DataFrame, optional
            Values there, in their own units, or levels; one serves all places. By default those of the node on whose
            land a coordinate lies, and where that has several levels the mean rate over it.
        thresholds : sequence of float
            In `units`. Each adds the probability of exceeding it, ``exceedance_2``.
        period : optional
            Only this one, where there are several.

        Returns
        -------
        DataFrame
            A row for each place. Over periods a row for each place and period, with ``place`` (its row, or its index
            in a table), ``period`` and ``start``.
        """
        chances = self.quantiles if quantiles is None else quantiles
        which = [0] if self.periods is None else list(range(self.periods.n))
        if period is not None:
            which = [self.time.find(period)]
        if covariates is None:
            nodes, node = self._shown_nodes, self._node_of(coords)
            nodes_by_period = np.concatenate([np.where(node >= 0, t * self.domain.n_nodes + node, -1) for t in which])
            parts = [np.where(nodes_by_period >= 0, part[:, nodes_by_period], np.nan) for part in (nodes.mu, nodes.var)]
            mixture = NormalMixture(nodes.weight, parts[0], parts[1])
        else:
            each = [self if self.periods is None else self.at(t) for t in which]
            mixtures = [one._in_shown(one._at(coords, covariates, by_node=True)) for one in each]
            mu, var = (np.concatenate(m, axis=1) for m in zip(*((m.mu, m.var) for m in mixtures), strict=True))
            mixture = NormalMixture(mixtures[0].weight, mu, var)
        chance = {f"exceedance_{value:g}": self._exceedance(value, mixture) for value in thresholds}
        frame = pd.DataFrame(statistics(mixture, chances, self.link) | chance)
        index = getattr(coords, "index", None) if hasattr(coords, "iloc") else None
        index = pd.RangeIndex(len(frame) // len(which)) if index is None else index
        if self.periods is None:
            frame.index = index
        else:
            from geobgp.totals import with_periods

            with_periods(frame, self.periods, np.repeat(which, len(index)))
            frame.insert(0, "place", np.tile(np.asarray(index), len(which)))
        frame.attrs["units"] = self.units
        return frame

    intensity_at = values_at

    def _node_of(self, coords: Any) -> np.ndarray:
        """Return the node on whose land each place lies, -1 off land."""
        return self.domain.node_at(place_coordinates(coords, self.domain.crs, self.domain.grid.bounds))

    @validated(quantiles=PROBABILITIES)
    def intensity(self, quantiles: Sequence[float] | None = None) -> xr.Dataset:
        """Return the quantity on the grid: mean, sd and quantiles.

        Exact (of a probability by quadrature), not sampled. In a cell with several nodes (two sides of a river) each
        statistic is the average over the cell's land.

        Parameters
        ----------
        quantiles : sequence of float, optional
            Probabilities, each a variable: 0.05 is ``q05``. By default the ends of the `interval`, and the median.

        Returns
        -------
        xarray.Dataset
            On (northing, easting), over periods on (time, northing, easting); NaN off land, with CRS, units and
            provenance.
        """
        values, what, look = self._statistics(quantiles), self.quantity, self.style.attrs()
        own = {"units": self.units, "udunits": self.shown.udunits}
        about = {name: {"long_name": f"{what}, {_words(name)}"} | own for name in values}
        for name, facts in about.items():
            facts |= ({} if what == "intensity" else {"quantity": what}) | (look if name != "sd" else {})
        return self._dataset(values, about)

    @validated(threshold=real())
    def exceedance(self, threshold: float) -> xr.DataArray:
        """Return the probability that the quantity exceeds `threshold` (in `units`), on the grid."""
        values = self._exceedance(threshold)
        about = {
            "long_name": f"probability of more than {threshold:g} {self.units}",
            "units": "1",
            "threshold": float(threshold),
        }
        return self._dataset({"exceedance": values}, {"exceedance": about})["exceedance"]

    @validated(quantiles=PROBABILITIES)
    def latent(self, quantiles: Sequence[float] | None = None) -> xr.Dataset:
        """Return the linear predictor on the grid (the log-intensity of events): mean, sd and quantiles."""
        chances = check_probabilities(self.quantiles if quantiles is None else quantiles)
        nodes = self._published
        mean, var = nodes.moments()
        values = {"mean": mean, "sd": np.sqrt(var)} | {quantile_name(q): nodes.quantile(q) for q in chances}
        own = self.in_units(None).units if self.link is EXP else self.units
        unit = own if self.link is IDENTITY else f"{'log' if self.link is EXP else self.link.name}({own})"
        about = {name: {"long_name": f"linear predictor, {_words(name)}", "units": unit} for name in values}
        return self._dataset(values, about)

    def _dataset(
        self, values: dict[str, np.ndarray], variables: dict[str, dict[str, Any]], coverage: bool = False
    ) -> xr.Dataset:
        from geobgp.output.grids import dataset, flagged

        data = dataset(
            self.domain, values, variables=variables, attrs=self.provenance, coverage=coverage, periods=self.periods
        )
        return data if self.delays is None or self.periods is None else flagged(data, self.nowcast)

    @validated(quantiles=PROBABILITIES, thresholds=THRESHOLDS)
    def dataset(self, quantiles: Sequence[float] | None = None, thresholds: Sequence[float] = ()) -> xr.Dataset:
        """Return all that files of the map hold, on the grid, over time where there are periods.

        Parameters
        ----------
        quantiles : sequence of float, optional
            Probabilities, each a variable: 0.05 is ``q05``. By default the ends of the `interval`, and the median.
        thresholds : sequence of float
            In `units`. Each adds the probability of exceeding it, ``exceedance_2``; that no place comes near one is
            warned of.

        Returns
        -------
        xarray.Dataset
            On (northing, easting) or (time, northing, easting), NaN off land, with CRS, units and provenance. The
            statistic that maps show (`drawn`) is the first; ``coverage``, the share of each cell that is land, has no
            time.
        """
        drawn = "q50" if self.drawn == "median" else "mean"
        if drawn == "q50" and quantiles is not None and 0.5 not in quantiles:
            quantiles = (*quantiles, 0.5)
        data = self.intensity(quantiles)
        # What maps show comes first.
        order = [drawn, *(name for name in data.data_vars if name != drawn)]
        data = data[order].assign_coords(data.coords)
        usual = self.intensity(self.quantiles[::2])
        low, high, words = interval_in(usual) or ("", "", "")
        span = float(usual[low].min()), float(usual[high].max())
        for threshold in np.atleast_1d(np.asarray(thresholds, float)):
            chance = data[f"exceedance_{threshold:g}"] = self.exceedance(float(threshold))
            reached = float(chance.min()), float(chance.max())
            warn_if_far(float(threshold), self.units, reached, span, words)
        data["coverage"] = self._dataset({}, {}, coverage=True)["coverage"]
        return data

    @validated(quantiles=PROBABILITIES)
    def level(self, quantiles: Sequence[float] | None = None) -> pd.DataFrame:
        """Return the events of each period on all the land, and the level: what is common to all places.

        Returns
        -------
        DataFrame
            ``period``, ``start``; ``observed`` events of all the land (NaN where some counts are suppressed or
            unknown), and quantiles of how many such a period brings, ``predicted_q05``, ...; ``expected`` ones with
            ``expected_q05``, ... (and ``reported``, those that an effort lets see; of events that are reported late
            ``nowcast``, and ``final``, ``final_q05``, ..., how many there will be in the end); ``level``, the intensity
            where the map is at its average, with the season, in `units`, with ``level_sd``, ``level_q05``, ...

        Notes
        -----
        Quantiles of events are from 500 joint draws; the rest is exact.
        """
        from geobgp.totals import events_by_period

        periods, states = self.time, cast("Sequence[Any]", self.fit.states)
        moments: Any = zip(*(state.level() for state in states), strict=True)
        mixture = NormalMixture(weights_of(states), *map(np.array, moments))
        columns: dict[str, Any] = {"period": periods.labels, "start": periods.starts}
        chances = self.quantiles if quantiles is None else quantiles
        if not is_published(self) and self.is_summed:
            columns |= events_by_period(self, chances, self._land_draws)
        level = statistics(self._in_shown(mixture), chances, self.link)
        columns |= {"level" if name == "mean" else f"level_{name}": values for name, values in level.items()}
        frame = pd.DataFrame(columns)
        frame = hide_rows(frame, self, [name for name in columns if name not in ("period", "start")])
        if self.delays is not None:
            frame.insert(2, "nowcast", self.nowcast)
        frame.attrs["units"] = self.units
        return frame

    @cached_property
    def _land_draws(self) -> tuple[np.ndarray, np.ndarray]:
        """Joint draws of the events of all the land, (draws, n_periods): expected, and means of what is counted."""
        from geobgp.totals import land_draws

        return land_draws(self)

    # -- samples ---------------------------------------------------------------------------------------------

    @validated(n=whole(), rng=GENERATOR)
    def sample(self, n: int, rng: int | np.random.Generator | None = None) -> xr.DataArray:
        """Draw joint samples of the quantity at all nodes (in all periods).

        Parameters
        ----------
        n : int
            Number of samples; 1,000 samples of 15,000 nodes take 120 MB, one of 10,000 nodes in 120 periods 10 MB.
        rng : int or Generator, optional
            The same number gives the same samples; None gives others every time.

        Returns
        -------
        xarray.DataArray, (draw, node) or (draw, time, node)
            One number (in `units`) per node, with its easting and northing; what has one draw belongs together. NaN
            at nodes whose small numbers are hidden.
        """
        import xarray as xr

        from geobgp.output.grids import time_axis

        moved = shifts(self).reshape(self._shape) if self.protection else 0.0
        blocks = [self.link.inverse(block + moved) for block in self.draws(n, rng)]
        values = np.concatenate([np.zeros((0, *self._shape)), *blocks])
        easting, northing = self.domain.node_points.T
        out = xr.DataArray(
            values * self.shown.factor,
            {"draw": np.arange(n), "easting": ("node", easting), "northing": ("node", northing)},
            ("draw", "node") if self.periods is None else ("draw", "time", "node"),
            name="intensity",
            attrs={"long_name": f"{self.quantity}, joint samples", "units": self.units},
        )
        if self.periods is None:
            return out
        axes = time_axis(self.periods)
        return out.assign_coords({name: axis for name, axis in axes.items() if name != "time_bounds"})

    def sample_blocks(self, n: int, rng: int | np.random.Generator | None) -> Iterator[np.ndarray]:
        """Yield joint samples of the quantity, per unit of `exposure`, some at a time: n in all."""
        for block in self.draws(n, rng):
            yield self.link.inverse(block)

    def draws(self, n: int, rng: int | np.random.Generator | None) -> Iterator[np.ndarray]:
        """Yield joint draws of eta, some at a time: n in all."""
        if n < 0:
            raise DataError(f"The number of samples cannot be negative; found {n}.")
        if not isinstance(rng, int) or n * math.prod(self._shape) > _KEPT_DRAWS:
            yield from self._fresh_draws(n, rng)
            return
        # One set of draws serves every table of a run: it is kept until another is asked for.
        asked, (known, blocks) = (n, rng), self.fit.notes.get("draws", (None, []))
        if known != asked:
            blocks = list(self._fresh_draws(n, rng))
            for block in blocks:
                block.flags.writeable = False
            self.fit.notes["draws"] = asked, blocks
        yield from blocks

    def _fresh_draws(self, n: int, rng: int | np.random.Generator | None) -> Iterator[np.ndarray]:
        rng, states = np.random.default_rng(rng), self.fit.states
        # Each state gets its share of the rows, in random order: rows are independent draws of the mixture.
        owner = rng.permutation(np.repeat(np.arange(len(states)), rng.multinomial(n, weights_of(states))))
        size = max(1, _SAMPLE_BLOCK // math.prod(self._shape))
        for start in range(0, n, size):
            mine = owner[start : start + size]
            block = np.empty((len(mine), *self._shape))
            for k in np.unique(mine):
                block[mine == k] = states[k].sample_nodes(int((mine == k).sum()), rng)
            yield block

    # -- predictions at coordinates --------------------------------------------------------------------------

    @validated(covariates=VALUES)
    def predict(
        self, coords: Any, covariates: Mapping[str, Any] | pd.DataFrame | None = None, *, period: Any = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of the linear predictor at places; NaN off land.

        Places are coordinates (k, 2) in the domain's CRS; or a GeoDataFrame or GeoSeries in any, and mean and variance
        are then Series with its index.
        Features are smooth functions, and so is what they predict; at full rank it is the value of the node that a
        coordinate lies on.
        """
        return self._predicted(coords, period, lambda one: one._at(coords, covariates).moments())

    @validated(covariates=VALUES)
    def predict_y(
        self, coords: Any, covariates: Mapping[str, Any] | pd.DataFrame | None = None, *, period: Any = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of a new observation at places, given as for `predict`; NaN off land.

        Gaussian: the noise is added. Bernoulli: the probability of a 1, and p (1 - p). Poisson: of a count
        with one unit of exposure.
        """

        def moments(one: Posterior) -> tuple[np.ndarray, np.ndarray]:
            noise = np.array([state.noise for state in one.fit.states])
            return one.likelihood.predicted(one._at(coords, covariates), noise)

        return self._predicted(coords, period, moments)

    def _predicted(
        self, coords: Any, period: Any, moments: Callable[[Posterior], tuple[np.ndarray, np.ndarray]]
    ) -> tuple[Any, Any]:
        """Return mean and variance at places as they were given; a row for each period where there are several."""
        if self.periods is None or period is not None:
            mean, variance = moments(self if period is None else self.at(period))
            return as_given(mean, coords), as_given(variance, coords)
        means, variances = zip(*(moments(self.at(t)) for t in range(self.periods.n)), strict=True)
        if not hasattr(coords, "iloc"):
            return np.stack(means), np.stack(variances)
        columns = list(self.periods.labels)
        return tuple(pd.DataFrame(np.stack(rows, 1), coords.index, columns) for rows in (means, variances))

    # -- what can be asked of land as a whole: totals, ranks, excursions, trends, another map ----------------

    @validated(min_count=MIN_COUNT, protect=choice("hide", "smooth"), min_people=real(least=0.0))
    def protected(
        self, min_count: int | str, protect: Literal["hide", "smooth"] = "hide", *, min_people: float = 0.0
    ) -> Posterior:
        """Return the same posterior, with the numbers hidden that are based on fewer events than `min_count`.

        Parameters
        ----------
        min_count : int or str
            k. An estimate is based on 1 / V events, V the posterior variance of the log-intensity: those of the place
            itself and those borrowed from around it. Where these are fewer than k, the cell is hidden, whether or not
            anything happened there. Or the rule of an office: "cdc" (1 to 9 are hidden), "nhs" (1 to 7 are hidden,
            other counts rounded to 5), "ons" (1 and 2). 0 hides nothing.
        protect : "hide" or "smooth"
            Hide what is based on too few; or fit again with a lengthscale so long that nearly all land (99 %) may be
            shown, and hide the rest.
        min_people : float
            Cells and regions with fewer people are hidden, whatever the events.

        Returns
        -------
        Posterior
            NaN in `intensity`, `exceedance`, `latent`, `sample`, `predict`, `intensity_at`, `excursion`, rasters,
            maps and figures where it is hidden; what is shown is told in steps of 2 / k on the log scale, for from an
            exact map single events can be computed back. In `totals` and `ranks` regions with 1 to k - 1 events are
            hidden, those based on fewer than k, and others by which a total would give these away; ``hidden`` and
            ``why`` say so. `save` writes a file without counts and without the fit; `residuals` are refused.

        Notes
        -----
        A number below k may still follow from several maps of the same events, on other cells or of other periods, or
        from totals of regions that overlap: publish one.

        Examples
        --------
        >>> import numpy as np, shapely
        >>> from geobgp import LGCP, Domain, FullRank, Matern
        >>> domain = Domain.from_polygons(shapely.box(0, 0, 10, 10), cell_size=1, crs="local")
        >>> counts = np.random.default_rng(0).poisson(0.05 * domain.node_points[:, 0])
        >>> posterior = LGCP(FullRank(domain), Matern(1.0, 8.0, 1.0)).fit(counts)
        >>> hidden = posterior.protected(8).intensity()["mean"].isnull()
        >>> bool(hidden[:, 0].mean() > hidden[:, 5].mean())  # fewer events in the west
        True
        """
        return protected(self, Protection.of(min_count, protect, min_people))

    @validated(
        regions=SOURCE, by=NAME, quantiles=PROBABILITIES, predicted=FLAG, thresholds=THRESHOLDS, n_samples=whole(2),
        rng=RNG,
    )  # fmt: skip
    def totals(
        self,
        regions: gpd.GeoDataFrame | gpd.GeoSeries | str | Path | Any = None,
        *,
        by: str | None = None,
        points: Any = None,
        quantiles: Sequence[float] | None = None,
        predicted: bool = False,
        thresholds: Sequence[float] = (),
        n_samples: int | None = None,
        rng: int | np.random.Generator = 0,
    ) -> gpd.GeoDataFrame:
        """Return the expected number of events in regions, or the mean of a share or a value, with joint intervals.

        A node that a region's border crosses is cut exactly: the region gets the people who live on its part, as the
        polygons or pixels of the exposure have them, or its share of the land where the exposure is known by node only.

        Parameters
        ----------
        regions : GeoDataFrame, GeoSeries, geometry, list of geometries or path, optional
            In any CRS (bare geometries: in the domain's). None: the whole domain as one region. One row each.
        by : str, optional
            A column of the regions: polygons with the same value in it are one region, as the parts of a province are.
            Of the other columns nothing is left; polygons without a value stay apart.
        points : GeoDataFrame, array, path or Counts, optional
            The points that were mapped (what `bin_points` takes, or what it gave with ``keep_coordinates=True``; over
            periods only the latter, for the same periods), for ``observed``. A posterior knows by itself where its
            points lie, as long as it is in memory and they are 2 million at most; once saved and loaded it knows its
            events by node only.
        quantiles : sequence of float, optional
            By default the ends of the `interval`, and the median.
        predicted : bool
            Add ``predicted_q05``, ...: quantiles of the number of events reported in such a period as was observed,
            which varies around the expected number as the likelihood's counts do.
        thresholds : sequence of float
            In `units`. Of each, how many people live where the quantity exceeds it, as `people_above` counts them: the
            columns ``people_above_0.5`` and ``share_above_0.5``, say, with their quantiles.
        n_samples : int
            Joint samples behind sd and quantiles, by default 1,000, or 500 of all periods; the mean is exact.
        rng : int or Generator

        Returns
        -------
        GeoDataFrame
            The regions with ``land_km2`` (land of the domain within), ``exposure`` (where one was given), ``observed``
            (the events truly inside: by where the points lie, those off the land where they were moved to; by node
            where that is not known; by area for regions made of areas; NaN where it cannot be known), ``expected``
            with its ``sd`` and its quantiles ``q05``, ...; ``rate`` in `units` and, of people or expected cases,
            ``relative_risk`` to the average, each with its own, ``rate_q05``, ...; ``p_above``, how probably
            the rate is above the average of all land (of a relative risk: above 1); and ``reported``, the part of
            ``expected`` that an effort lets see. Of a prevalence or a value there are no numbers of events, but the
            ``mean`` over the people (or the land) of the region, with ``sd``, ``q05``, ... and ``p_above``; and of a
            prevalence of people how many have it, ``affected``, with its quantiles ``affected_q05``, ... NaN where a
            region holds no land or nobody is exposed. Over periods a row for each period and region: ``period`` and
            ``start`` say which.
        """
        from geobgp.totals import totals

        return totals(
            self,
            regions,
            by=by,
            points=points,
            quantiles=quantiles,
            predicted=predicted,
            thresholds=thresholds,
            n_samples=self.n_draws if n_samples is None else n_samples,
            rng=rng,
        )

    @validated(threshold=real(), probability=real(least=0.5, below=1.0), n_samples=whole(1), rng=RNG)
    def excursion(
        self,
        threshold: float,
        probability: float = 0.9,
        *,
        n_samples: int = 1000,
        rng: int | np.random.Generator = 0,
        period: Any = None,
    ) -> Excursion:
        """Return the largest region that exceeds `threshold` everywhere at once with `probability`, and its opposite.

        Parameters
        ----------
        threshold : float
            In `units`.
        probability : float
            From 0.5 to less than 1.
        n_samples : int
            Joint samples behind it.
        rng : int or Generator
        period : optional
            Of which period, where there are several: its label, number, or a date within it.

        Returns
        -------
        Excursion
            `above`, `below` (nodes) and what is between; `to_raster`, `to_polygons`, `plot`.
        """
        from geobgp.checks.excursions import excursion

        return self._each(lambda one, _: excursion(one, threshold, probability, n_samples=n_samples, rng=rng), period)

    @validated(threshold=real(), probability=real(least=0.5, below=1.0), n_samples=whole(1), rng=RNG)
    def hotspots(
        self,
        threshold: float,
        probability: float = 0.95,
        *,
        n_samples: int | None = None,
        rng: int | np.random.Generator = 0,
        period: Any = None,
    ) -> gpd.GeoDataFrame:
        """Return the hot spots: the parts of the land that exceed `threshold` everywhere at once with `probability`.

        The land of `excursion`, divided into parts that hang together over land (or bridges), not over water or
        barriers, nor at corners of cells. Parts where nobody is exposed are left out.

        Parameters
        ----------
        threshold : float
            In `units`.
        probability : float
            From 0.5 to less than 1; of each period.
        n_samples : int
            Joint draws behind it, by default 1,000, or 500 of all periods.
        rng : int or Generator
        period : optional
            Only the rows of this one, where there are several.

        Returns
        -------
        GeoDataFrame
            A row for each hot spot, the one with the most people (or land) first: ``hotspot``, its number; its land,
            ``exposure``, ``observed`` and ``expected`` events, ``rate`` and ``relative_risk`` with intervals, as in
            `totals` (of a prevalence or a value the ``mean``; of cases and controls the ``relative_risk``, its mean
            over the land); ``p_all``, the probability that all of it exceeds the threshold at once, and ``p_mean``,
            that its mean does. Of counts by area, ``areas`` are those with most of their land in it, and ``observed``
            is known of hot spots made of whole areas alone (NaN elsewhere). Where small numbers are hidden no events
            are told.

            Over periods parts that overlap one of the period before keep its number, and ``class`` says what became
            of them, ``p_class`` how probably that holds in joint draws of all periods: "first" (of the first period),
            "new" (no part of it was hot before), "persistent" (hot in the period before), "intensifying" and
            "diminishing" (hot in the period before, and higher or lower now with `probability`, on all the land that
            was or is part of it), "sporadic" (hot before, but not in the period before), and "former": not surely hot
            any more, told in the period after its last, for the land that it had.

        Examples
        --------
        >>> import shapely
        >>> from geobgp import LGCP, Domain, FullRank, Matern
        >>> domain = Domain.from_polygons(shapely.box(0, 0, 10, 10), cell_size=1, crs="local")
        >>> there = np.exp(-((domain.node_points - [2.5, 7.5]) ** 2).sum(axis=1) / 4)
        >>> counts = np.random.default_rng(0).poisson(1 + 20 * there)
        >>> hot = LGCP(FullRank(domain), Matern(1.0, 4.0, 1.0)).fit(counts).hotspots(3.0)
        >>> len(hot), bool(hot["p_all"].iloc[0] >= 0.95), hot.contains(shapely.Point(2.5, 7.5)).tolist()
        (1, True, [True])
        """
        from geobgp.checks.hotspots import hotspots

        n = self.n_draws if n_samples is None else n_samples
        table = hotspots(self, threshold, probability, n_samples=n, rng=rng)
        if period is None:
            return table
        label = self.time.labels[self.time.find(period)]
        return table[table["period"] == label].reset_index(drop=True)

    @validated(threshold=real(), regions=SOURCE, by=NAME, n_samples=whole(2), rng=RNG)
    def people_above(
        self,
        threshold: float,
        regions: Any = None,
        *,
        by: str | None = None,
        n_samples: int | None = None,
        rng: int | np.random.Generator = 0,
    ) -> gpd.GeoDataFrame:
        """Return how many people live where the quantity exceeds `threshold`, with joint intervals.

        Parameters
        ----------
        threshold : float
            In `units`.
        regions, by
            As for `totals`. None: all of the land.
        n_samples : int
            Joint draws behind the intervals, by default 1,000, or 500 of all periods; the mean is exact.
        rng : int or Generator

        Returns
        -------
        GeoDataFrame
            The regions with their land and ``exposure``; ``people_above``, those who live on cells whose rate exceeds
            the threshold, the mean with its quantiles ``people_above_q05``, ...; ``share_above``, their share, with its
            own. Where the exposure is not people it is ``expected_cases_above`` or ``exposure_above``; of cases and
            controls ``controls_above``, whose share is that of the people they are a sample of; where there is none,
            ``km2_above`` (``area_above`` of a local domain). Land whose small numbers are hidden is counted apart, as
            ``people_hidden``. Over periods a row for each period and region.

        Examples
        --------
        >>> import shapely
        >>> from geobgp import LGCP, Domain, FullRank, Matern
        >>> domain = Domain.from_polygons(shapely.box(0, 0, 10, 10), cell_size=1, crs="local")
        >>> counts = np.random.default_rng(0).poisson(np.where(domain.node_points[:, 0] < 4, 9.0, 1.0))
        >>> posterior = LGCP(FullRank(domain), Matern(1.0, 4.0, 1.0)).fit(counts)
        >>> land = posterior.people_above(4.0).iloc[0]
        >>> bool(land["area_above_q05"] <= 41 <= land["area_above_q95"])
        True
        """
        from geobgp.totals import people_above

        n = self.n_draws if n_samples is None else n_samples
        return people_above(self, regions, threshold, by=by, n_samples=n, rng=rng)

    @validated(by=NAME, top=whole(1), reference=real(), n_samples=whole(1), rng=RNG)
    def ranks(
        self,
        regions: Any,
        *,
        by: str | None = None,
        top: int | None = None,
        reference: float | None = None,
        n_samples: int = 2000,
        rng: int | np.random.Generator = 0,
        period: Any = None,
    ) -> gpd.GeoDataFrame:
        """Return how regions rank by their rate (or by the mean of what is mapped), with the probability of each claim.

        Parameters
        ----------
        regions : GeoDataFrame, GeoSeries, list of geometries or path
            As for `totals`.
        by : str, optional
            A column of the regions: polygons with the same value in it are one region.
        top : int, optional
            How many regions are the top: by default three, or all of fewer.
        reference : float, optional
            A rate in `units`; by default that of all the land, which is drawn together with the regions'.
        n_samples : int
            Joint samples behind it.
        rng : int or Generator
        period : optional
            Of which period, where there are several: its label, number, or a date within it.

        Returns
        -------
        GeoDataFrame
            The regions with their land, ``rate`` (expected events per unit of exposure, in `units`) with
            ``rate_q05`` and ``rate_q95``; of shares and values their ``mean`` with ``mean_q05`` and ``mean_q95``. Then
            ``rank`` (1 is the highest; the median) with its own interval, and the probabilities ``p_first`` of rank 1,
            ``p_top3`` of being among the top, ``p_above`` of being above the reference. NaN where a region holds no
            land or nobody is exposed.
        """
        from geobgp.checks.compare import ranks

        how: dict[str, Any] = {"by": by, "top": top, "reference": reference, "n_samples": n_samples, "rng": rng}
        return self._each(lambda one, _: ranks(one, regions, **how), period)

    @validated(other=POSTERIOR, names=some_names("two names", 2))
    def versus(self, other: Posterior, *, names: Sequence[str] | None = None, period: Any = None) -> Versus:
        """Compare this map with another one of the same land: two periods, two diseases.

        Parameters
        ----------
        other : Posterior
            On the same domain, in the same unit: of other events, of which the two are taken to be independent, or
            of this fit under other covariates (`what_if`), which share all that is uncertain.
        names : (str, str), optional
            What this map and the other are called; by default their titles.
        period : optional
            Of which period, where there are several: its label, number, or a date within it.

        Returns
        -------
        Versus
            `ratio`, `difference`, `increase`, `totals`; `to_raster`, `to_map`, `plot`.
        """
        from geobgp.checks.compare import versus

        return self._each(
            lambda one, label: versus(one, other if other.periods is None else other.at(label), names), period
        )

    @validated(regions=SOURCE, n_samples=whole(2), rng=RNG)
    def trend(self, regions: Any = None, *, n_samples: int = 500, rng: int | np.random.Generator = 0) -> Any:
        """Return the rate of change over all periods, with its interval and the probability of an increase.

        The trend is the slope of the straight line through the log-intensities of all periods, by least squares: of
        every place, or of the expected events of regions (per unit of exposure). Its uncertainty is that of the joint
        posterior of all periods. A change of 0.05 is one of +5 % per year (per unit of time, where time is a number);
        of a prevalence that is the change of its odds, and of measured values the change is in their own unit (of
        their square root, if that is modelled).

        Parameters
        ----------
        regions : optional
            As for `totals`; "land" is all of it as one region. None: a map.
        n_samples : int
            Joint draws behind it.
        rng : int or Generator

        Returns
        -------
        xarray.Dataset, or GeoDataFrame of regions
            ``change``, with ``q05`` and ``q95`` (or the ends of another `interval`); ``p_increase``.
        """
        from geobgp.output.grids import dataset
        from geobgp.totals import trend_map, trend_of_regions

        if self.time.n < 2:
            raise DataError("A trend needs two periods at least; there is one.", found=1)
        if regions is not None:
            return trend_of_regions(self, regions, n_samples, rng)
        values, about = trend_map(self, n_samples, rng)
        return dataset(self.domain, values, variables=about, attrs=self.provenance)

    @validated(periods=AHEAD, exposure=ARRAY)
    def forecast(self, periods: int | Periods, exposure: np.ndarray | None = None) -> Posterior:
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
        from geobgp.totals import exposure_ahead, steps_ahead

        known = self.time
        after = known.ahead(periods) if isinstance(periods, (int, np.integer)) else periods
        steps = steps_ahead(known, after)
        states: Any = tuple(state.ahead(steps) for state in cast("Sequence[Any]", self.fit.states))
        return replace(
            self,
            fit=replace(self.fit, states=states),
            periods=after,
            exposure=exposure_ahead(self, after, exposure),
            observed=None,
            areas=None,
            persons=None,
            sites=None,
            places=None,
            # Within a cell people live where they lived last, and as many events get reported in the end.
            effort=None if self.final_effort is None else of_period(self.final_effort, -1),
            delays=None,
            given=None if self.given is None else self.given.at(known.n - 1),
            given_effort=None if self.given_effort is None else self.given_effort.at(known.n - 1),
            title=f"Forecast: {self.title}" if self.title else "",
        )

    @validated(path=PATH, probability=real(above=0.5, below=1.0), risk=real(above=0.0))
    def tolerance_contours(
        self, path: str | Path | None = None, *, probability: float = 0.975, risk: float = 1.0, period: Any = None
    ) -> gpd.GeoDataFrame:
        """Return where the relative risk is nearly surely raised or lowered, as polygons; write them if asked to.

        Parameters
        ----------
        path : str or path, optional
            A GeoPackage.
        probability : float
            Of a risk above `risk` (raised), or below it (lowered), place by place.
        risk : float
            1 is the average risk.
        period : optional
            Of which period, where there are several: its label, number, or a date within it.

        Returns
        -------
        GeoDataFrame
            Columns ``risk`` ("raised" or "lowered"), ``probability``, ``area``; without rows where nothing is so sure.
        """
        from geobgp.output.polygons import to_polygons, write_polygons

        def contours(one: Posterior, _: str) -> gpd.GeoDataFrame:
            frame = to_polygons(one.exceedance(risk), [1 - probability, probability], domain=self.domain)
            frame = frame[frame["lower"].isna() | frame["upper"].isna()].reset_index(drop=True)
            frame.insert(0, "risk", np.where(frame["upper"].isna(), "raised", "lowered"))
            frame.insert(1, "probability", probability)
            return frame[["risk", "probability", "area", "geometry"]]

        frame = self._each(contours, period)
        if path is not None:
            write_polygons(frame, path)
        return frame

    @validated(levels=LEVELS, path=PATH, variable=NAME, threshold=real(), smooth=FLAG)
    def to_polygons(
        self,
        levels: Sequence[float],
        path: str | Path | None = None,
        *,
        variable: str | None = None,
        threshold: float | None = None,
        kind: Literal["bands", "above"] = "bands",
        smooth: bool = True,
        period: Any = None,
    ) -> gpd.GeoDataFrame:
        """Return the land between levels of a variable of `intensity()`; write it to `path` if given.

        Parameters
        ----------
        levels : sequence of float
            In `units`; of "exceedance" probabilities.
        path : str or path, optional
            A GeoPackage.
        variable : str, optional
            "mean", "median", "sd", "q50", or an end of the interval, such as "q05"; by default the statistic that maps
            show, `drawn`. Or "exceedance", the probability of exceeding the `threshold`.
        threshold : float, optional
            In `units`, for "exceedance".
        kind : "bands" or "above"
            All land in bands, or all that lies above each level.
        smooth : bool
            Interpolate between cells; False keeps whole ones.
        period : optional
            Of which period, where there are several: its label, number, or a date within it.

        Returns
        -------
        GeoDataFrame
            Columns ``lower``, ``upper``, ``label``, ``units``, ``area``.
        """
        from geobgp.output.polygons import to_polygons, variable_of, write_polygons

        def bands(one: Posterior, _: str) -> gpd.GeoDataFrame:
            chosen = variable_of(one, variable, threshold, levels)
            return to_polygons(chosen, levels, domain=self.domain, kind=kind, smooth=smooth)

        frame = self._each(bands, period)
        if path is not None:
            write_polygons(frame, path)
        return frame

    # -- checks ----------------------------------------------------------------------------------------------

    @validated(n_simulations=whole(39), rng=RNG)
    def residuals(
        self, *, n_simulations: int = 99, rng: int | np.random.Generator = 0, period: Any = None
    ) -> Residuals:
        """Return residuals of the events that made the map, with bands of events simulated from it.

        Parameters
        ----------
        n_simulations : int
            At least 39.
        rng : int or Generator
        period : optional
            Of which period, where there are several: its label, number, or a date within it.

        Returns
        -------
        Residuals
            `pearson` in squares, `dispersion`, `lurking` variables, `pairs` of events by distance, `plot()`.
        """
        from geobgp.checks.residuals import residuals

        refuse(self, "residuals()", "shows the events of every square")
        return self._each(lambda one, _: residuals(one, n_simulations=n_simulations, rng=rng), period)

    @validated(
        buffer=real(least=0.0), last=whole(1), rounds=whole(), rng=RNG, refit=FLAG, client=CLIENT,
        n_jobs=JOBS,
    )  # fmt: skip
    def cross_validate(
        self,
        blocks: Any = "auto",
        buffer: float = 0.0,
        *,
        last: int | None = None,
        rounds: int = ROUNDS,
        rng: int | np.random.Generator = 0,
        refit: bool = False,
        client: Any = None,
        n_jobs: int | None = 1,
    ) -> Any:
        """Predict what was left out: each block of the land from the events outside it, or the last periods.

        Without time, a block's observations are taken out of the posterior, and its neighbourhood is brought up to
        date, without new fits; the hyperparameters are held (a mixture over them is weighed anew). Of counts by area
        each area with a number is a block, and `blocks`, `buffer` and `rounds` say nothing. Of cases and controls, the
        cases among the persons of a block are predicted. Over periods, the last ones are forecast from those before
        them: the model is fitted again without them, its hyperparameters held, and `blocks` are parts of the land
        whose numbers are predicted.

        Parameters
        ----------
        blocks : "auto", float, regions or folds
            "auto": squares of about two lengthscales, some dozens of them at least. A number: the side of squares, in
            the domain's unit. Polygons (whatever `totals` takes): a node belongs to the one with the most of its land.
            An array with a label for each node: nodes of one label are left out together; those without one never are.
            Over periods, of counts by area, they are the areas: a suppressed count is scored by the probability of all
            that it may be, one that is not known is not compared.
        buffer : float
            Width of a strip around each block that is left out with it and not predicted, in the domain's unit.
        last : int, optional
            Over periods: how many are left out. By default three, or fewer of less than five periods.
        rounds : int
            How often the neighbours of a block are brought up to date; 0 is quicker, and near where data are plenty.
        rng : int or Generator
            Of the predictive draws and of the randomised PIT values.
        refit : bool
            Fit anew without each block, hyperparameters too: for those who want to see that it makes little difference.
        client : distributed.Client or str, optional
            The Dask client, or the address of the scheduler, whose workers fit; by default the current client.
        n_jobs : int, optional
            Processes that fit, where there is no client: this one by default; None, one for each core.

        Returns
        -------
        CrossValidation, or ForecastCheck of periods
            ``score`` and ``se`` in nats per event, ``coverage`` of intervals, ``pit``, ``blocks``, ``plot()``. Of
            periods the score is above one rate everywhere; with the scores of a pooled map and of the numbers one
            season (or one period) before, and a table by period and block.

        Examples
        --------
        >>> import numpy as np, shapely
        >>> from geobgp import LGCP, Domain, FullRank, Matern
        >>> domain = Domain.from_polygons(shapely.box(0, 0, 10, 10), cell_size=1, crs="local")
        >>> counts = np.random.default_rng(0).poisson(np.exp(0.3 * domain.node_points[:, 0]))
        >>> checked = LGCP(FullRank(domain), Matern(1.0, 8.0, 1.0)).fit(counts).cross_validate(2.0)
        >>> len(checked.blocks), checked.score > 0.2
        (25, True)
        """
        from geobgp.checks.crossval import cross_validate
        from geobgp.checks.forecasts import cross_validate as forecast_check

        if self.periods is not None:
            if buffer or refit:
                raise DataError(
                    "Over periods the last ones are left out and the model is fitted again: there is no strip around "
                    "blocks, and no other way.",
                    option="buffer" if buffer else "refit",
                    remedy="Leave it out.",
                )
            return hide_forecasts(forecast_check(self, last, blocks, rng=rng), self)
        more = {"refit": refit, "client": client, "n_jobs": n_jobs}
        checked = cross_validate(self, blocks, buffer, rounds=rounds, rng=rng, **more)
        if isinstance(blocks, str) and not buffer:
            self.fit.notes["cross_validation"] = checked
        return hide_blocks(checked)

    def _known_variation(self) -> Variation | None:
        """Whether the map varies, without leaving anything out for it; None where it cannot be told."""
        from geobgp.checks.variation import known_variation

        return known_variation(self)

    def _known_without_field(self) -> np.ndarray | None:
        """Return the means of intercept and effects in a model without a field, where that can be told."""
        from geobgp.checks.variation import known_without_field

        return known_without_field(self)

    def _fitted_variogram(self) -> Spatial | None:
        """Nugget, sill and range of measured values; None of other maps."""
        from geobgp.checks.variogram import spatial

        return spatial(self)

    @validated(bins=whole(1), cutoff=real(above=0.0))
    def variogram(self, bins: int = 15, cutoff: float | None = None) -> Variogram:
        """Return the empirical variogram of the measurements, beside that of the fitted model.

        Half the mean squared difference of pairs of measurements, by their distance over the plane, on the scale that
        is modelled (the logarithm, if that is) and less what covariates explain. Over periods pairs are of one period.

        Parameters
        ----------
        bins : int
            Into which distances are divided evenly. Pairs at one place have a bin of their own.
        cutoff : float, optional
            The longest distance, in km (units of a local domain). By default a third of the diagonal of the places.

        Returns
        -------
        Variogram
            ``table`` with ``distance``, ``semivariance``, ``pairs`` and ``model``; ``spatial`` with ``nugget``,
            ``sill``, ``range`` and a ``sentence``; ``plot()``.

        Notes
        -----
        The nugget is the variance of the noise; the sill is that and the variance of the field; the range is the
        distance at which the field's correlation on open land has fallen to 0.05.

        Examples
        --------
        >>> import shapely
        >>> from geobgp import BoundaryGP, Domain, HarmonicBasis, Matern
        >>> domain = Domain.from_polygons(shapely.box(0, 0, 10, 10), cell_size=1, crs="local")
        >>> coords = np.random.default_rng(0).uniform(0, 10, (90, 2))
        >>> model = BoundaryGP(HarmonicBasis.compute(domain, m=30, cache=False), Matern(1.5, lengthscale=4.0))
        >>> posterior = model.fit(coords, np.sin(coords[:, 0]))
        >>> list(posterior.summary()["variogram"])
        ['nugget', 'sill', 'range', 'unit', 'scale', 'sentence']
        """
        from geobgp.checks.variogram import spatial, variogram

        sites = self.sites
        if sites is None and spatial(self) is not None:
            raise DataError(
                "The measurements are not known: files keep none.",
                remedy="Call variogram() on the fit itself, before it is saved.",
            )
        coords, values = (np.empty((0, 2)), np.empty(0)) if sites is None else (sites.coords, sites.values)
        columns = None if sites is None else sites.columns
        period = None if sites is None else sites.period
        return variogram(self, coords, values, columns, bins=bins, cutoff=cutoff, group=period)

    @validated(held_out=FLAG)
    def variation(self, held_out: bool | None = None) -> Variation:
        """Return whether the map varies at all, or whether one rate everywhere explains the events as well.

        The model is compared with the same one without a field: the same covariates, exposure, effort, likelihood and
        priors; over time, with a level of each period, the season and covariates alone.

        Parameters
        ----------
        held_out : bool, optional
            Whether to say how well held-out blocks are predicted against the model without a field. By default a
            `cross_validate` with automatic blocks that was made before is used, and one is made where it takes no more
            than seconds. True makes one on large maps too; False leaves it out. Over time there is none.

        Returns
        -------
        Variation
            ``log_bayes_factor``; ``verdict``: "varies" where it is above 3, "no evidence" where it is below 0, else
            "may vary"; ``score`` of held-out blocks with its standard error ``se``; ``sentence``.

        Notes
        -----
        The log Bayes factor is the bound of the log evidence with the hyperparameters integrated out by Laplace's
        approximation, less the same bound without a field. On events that are spread at random it is below 0 nine
        times in ten. The file that `save` writes keeps the answer.

        Examples
        --------
        >>> import numpy as np, shapely
        >>> from geobgp import LGCP, Domain, FullRank
        >>> domain = Domain.from_polygons(shapely.box(0, 0, 10, 10), cell_size=1, crs="local")
        >>> model = LGCP(FullRank(domain))
        >>> rng, east = np.random.default_rng(0), domain.node_points[:, 0]
        >>> model.fit(rng.poisson(3.0, domain.n_nodes)).variation().verdict
        'no evidence'
        >>> model.fit(rng.poisson(np.exp(0.2 * east))).variation().verdict
        'varies'
        """
        from geobgp.checks.variation import variation

        return variation(self, held_out)

    # -- effects of covariates -------------------------------------------------------------------------------

    @validated(evidence=FLAG, per=STEPS)
    def effects(
        self, evidence: bool = False, *, per: str | Mapping[str, float | tuple[float, float]] = "quartiles"
    ) -> pd.DataFrame:
        """Return what each covariate does, on the scale that people report.

        Parameters
        ----------
        evidence : bool
            Add ``evidence``, the log evidence of the model with the covariate less that without it, and
            ``evidence_curve``, that of a curve against a straight line; both without new fits.
        per : "quartiles", "unit", or mapping of covariate to number or (from, to)
            What the effects of numbers are between: their quartiles over the land; one unit; a step, as in
            ``{"temperature": 10}``; or two values, as in ``{"distance": (500, 0)}``. Those of curves that are not
            between two values begin at the median.

        Returns
        -------
        DataFrame
            A row for each covariate, level and interaction: ``from`` and ``to`` (the quartiles over the land, a level
            and its reference, or the groups with the lowest and the highest effect), their ``unit`` where it is
            given, the ``rate_ratio``, ``odds_ratio`` or ``difference`` between these, its interval (of an interaction
            how the effect of one covariate changes along the other: a ratio of ratios); ``tau``, the standard
            deviation of curves, groups and their interactions, with its interval; ``without_field``, the same of a
            model without a field, where the data are known, and by how many standard errors it differs.
            ``attrs["sentences"]`` says so of those that differ by more than two.

        Notes
        -----
        The evidence is the prior density of no effect over its posterior density (Savage and Dickey), with the other
        hyperparameters held; it depends on the prior of slopes, whose standard deviation is 10.
        """
        from geobgp.checks.effects import effect_table

        table = effect_table(self, evidence, per)  # type: ignore[arg-type]  # as the rule returns it
        return hide_effects(table, self, table["effect"].str.startswith(("level", "group")).to_numpy(bool))

    @validated(name=NAME)
    def effect_curve(self, name: str) -> pd.DataFrame:
        """Return the effect of a number or a curve along its values: median and interval against the land's average."""
        from geobgp.checks.effects import effect_curve

        return effect_curve(self, name)

    @validated(name=NAME, ax=AXES)
    def effect_plot(self, name: str, ax: matplotlib.axes.Axes | None = None) -> matplotlib.axes.Axes:
        """Draw the effect of a number or a curve, its interval, and where the covariate's values are over the land.

        Levels and groups are drawn below each other, with their intervals: levels against the reference, groups against
        their average.
        """
        from geobgp.checks.effects import covariate_values, curves_of, effect_curve, effect_levels
        from geobgp.output.figures import plot_effect, plot_levels

        if name not in curves_of(self):
            return plot_levels(effect_levels(self, name), name, self.link.ratio, ax)
        curve, values = effect_curve(self, name), covariate_values(self, name)
        unit = self.design.block(name).unit
        return plot_effect(curve, values, f"{name}, {unit}" if unit else name, self.link.ratio, ax)

    @validated(covariates=VALUES)
    def what_if(self, covariates: Mapping[str, Any]) -> Posterior:
        """Return the map under other covariates, the field and the effects being as they are.

        Parameters
        ----------
        covariates : mapping of name to number, level, array, callable, raster or polygons
            Those that change; the others stay. How far numbers lie beyond the data is told.

        Returns
        -------
        Posterior
            Without the events, which happened under the covariates that there were.
        """
        from geobgp.checks.effects import what_if

        return what_if(self, covariates)

    # -- rasters, netCDF, Zarr, QGIS, web maps, reports, figures ---------------------------------------------

    @validated(path=PATH, thresholds=THRESHOLDS, quantiles=PROBABILITIES, forecast=POSTERIOR)
    def to_raster(
        self,
        path: str | Path,
        thresholds: Sequence[float] = (),
        *,
        quantiles: Sequence[float] | None = None,
        period: Any = None,
        forecast: Posterior | None = None,
        classes: int | Sequence[float] | Literal["quantile"] | None = None,
        vmin: float | None = None,
        vmax: float | None = None,
        cmap: Any = None,
    ) -> list[Path]:
        """Write GeoTIFFs with QGIS styles: a directory (a file per statistic) or one ``.tif`` (all bands).

        The statistic that maps show (`drawn`) is the first, as ``mean.tif`` or ``q50.tif``. Each of `thresholds` adds
        the probability of exceeding it; ``coverage`` is the share of each cell that is land. Over periods there is a
        file for each, ``mean_2020-03.tif``, with one legend for all, those of a `forecast` too; or those of one
        `period` alone.
        `classes`, `vmin`, `vmax` and `cmap` are of the styles; see `styled`.
        """
        from geobgp.output.grids import View
        from geobgp.output.rasters import write_rasters

        one = self._look(classes, vmin, vmax, cmap)._of_period("to_raster", period, several=True)
        data = View(one, forecast).dataset(thresholds, quantiles)
        return write_rasters(data, path, title=str(data.attrs["title"]))

    @validated(path=PATH, thresholds=THRESHOLDS, quantiles=PROBABILITIES, forecast=POSTERIOR)
    def to_netcdf(
        self,
        path: str | Path,
        thresholds: Sequence[float] = (),
        *,
        quantiles: Sequence[float] | None = None,
        forecast: Posterior | None = None,
    ) -> Path:
        """Write `dataset` to one netCDF file by CF conventions, all periods and those of a forecast too."""
        from geobgp.output.grids import View
        from geobgp.output.netcdf import write_netcdf

        return write_netcdf(View(self, forecast).dataset(thresholds, quantiles), path)

    @validated(path=PATH, thresholds=THRESHOLDS, quantiles=PROBABILITIES, forecast=POSTERIOR)
    def to_zarr(
        self,
        path: str | Path,
        thresholds: Sequence[float] = (),
        *,
        quantiles: Sequence[float] | None = None,
        forecast: Posterior | None = None,
    ) -> Path:
        """Write `dataset` to a Zarr store by CF conventions, a chunk for each period, those of a forecast too.

        Needs the package zarr.
        """
        from geobgp.output.grids import View
        from geobgp.output.netcdf import write_zarr

        return write_zarr(View(self, forecast).dataset(thresholds, quantiles), path)

    @validated(
        column=NAME, threshold=real(), m=a("Map", words="a folium.Map"), basemap=BASEMAP, tooltip=FLAG, popup=FLAG,
        legend=FLAG, opacity=real(least=0.0, most=1.0),
    )  # fmt: skip
    def explore(
        self,
        column: str | None = None,
        *,
        threshold: float | None = None,
        period: Any = None,
        m: folium.Map | None = None,
        basemap: str | folium.TileLayer | None = None,
        tooltip: bool = True,
        popup: bool = False,
        legend: bool = True,
        opacity: float = 0.85,
        classes: int | Sequence[float] | Literal["quantile"] | None = None,
        vmin: float | None = None,
        vmax: float | None = None,
        cmap: Any = None,
    ) -> folium.Map:
        """Return the `cells` on a folium map to look around in, as ``GeoDataFrame.explore`` does, in classes of ours.

        For a page to be sent see `to_map`, which has more on it and takes maps of any size.

        Parameters
        ----------
        column : str, optional
            "mean", "median", "sd", "q50", or an end of the interval; by default the statistic that maps show, `drawn`.
        threshold : float, optional
            The probability that the quantity exceeds this, in `units`, instead.
        period : optional
            Which one, where there are several.
        m : folium.Map, optional
            An existing map that the cells are added to.
        basemap : str or folium.TileLayer, optional
            An online one, such as "OpenStreetMap"; without it no request leaves the page.
        tooltip, popup : bool
            The numbers of a cell under the cursor, and at a click.
        legend : bool
        opacity : float
        classes, vmin, vmax, cmap
            Other classes and colours; see `styled`.

        Returns
        -------
        folium.Map
        """
        from geobgp.output.figures import DrawnMap
        from geobgp.output.grids import View
        from geobgp.web.maps import explore

        one = self._of_period("explore", period, several=False)
        look: dict[str, Any] = {"classes": classes, "vmin": vmin, "vmax": vmax, "cmap": cmap}
        field = DrawnMap.of(View(one), column, threshold, **look)
        name = "q50" if column == "median" else column or ("q50" if one.drawn == "median" else "mean")
        thresholds = () if threshold is None else (threshold,)
        name = name if threshold is None else f"exceedance_{threshold:g}"
        label = field.label if threshold is None else field.title
        return explore(
            one, one.cells(thresholds=thresholds), name, field.classes, label, m=m, tiles=basemap, tooltip=tooltip,
            popup=popup, legend=legend, opacity=opacity,
        )  # fmt: skip

    @validated(path=PATH, thresholds=THRESHOLDS, hotspots=HOTSPOTS, quantiles=PROBABILITIES)
    def to_qgis(
        self,
        path: str | Path,
        thresholds: Sequence[float] = (),
        *,
        regions: Any = None,
        hotspots: gpd.GeoDataFrame | bool | None = None,
        quantiles: Sequence[float] | None = None,
    ) -> Path:
        """Write a QGIS project with all that it shows: rasters, shoreline, the land that exceeds thresholds, regions.

        Over periods, the temporal controller plays the rasters, with one legend for all.

        Parameters
        ----------
        path : str or path
            A folder, made if it is missing, for ``map.qgz`` and its files; or the project itself, ending in ``.qgz``.
            Paths in the project are relative: it moves with its folder.
        thresholds : sequence of float
            In `units`. Each adds the probability of exceeding it, and where that is probable, as polygons.
        regions : GeoDataFrame, GeoSeries, list of geometries or path, optional
            As for `totals`; their totals are in ``regions.gpkg``, and their names on the map.
        hotspots : GeoDataFrame or bool, optional
            From `hotspots`; True: those above each of the thresholds. They are in ``hotspots.gpkg``.
        quantiles : sequence of float

        Returns
        -------
        Path
            The project.
        """
        from geobgp.checks.hotspots import read_hotspots
        from geobgp.output.qgis import HOTSPOTS as HOTSPOT_FILE
        from geobgp.output.qgis import write_layers, write_qgis

        project = Path(path) if Path(path).suffix.lower() == ".qgz" else Path(path) / "map.qgz"
        totals = None if regions is None else self.totals(regions, thresholds=thresholds)
        spots = read_hotspots(self, hotspots, thresholds)
        check_unread(project, *(project.parent / name for name in ("map.gpkg", "regions.gpkg", HOTSPOT_FILE)))
        rasters = self.to_raster(project.parent, thresholds, quantiles=quantiles)
        if totals is not None:
            write_layers(project.parent / "regions.gpkg", {"regions": totals})
        if spots is not None:
            write_layers(project.parent / HOTSPOT_FILE, {"hotspots": spots})
        return write_qgis(self, project, rasters, thresholds=thresholds, regions=totals, hotspots=spots)

    @validated(draws=whole(1), chains=whole(1), rng=RNG)
    def to_arviz(
        self, draws: int = 250, *, chains: int = 4, rng: int | np.random.Generator = 0, period: Any = None
    ) -> Any:
        """Return joint draws for ArviZ, so that ``az.summary``, ``az.loo`` and ``az.plot_*`` work.

        Needs the extra ``geobgp[arviz]``. Draws are independent of each other; chains are there because ArviZ
        compares them. `cross_validate` judges blocks of land and is the better guide than ``az.loo``, which leaves out
        single nodes.

        Parameters
        ----------
        draws, chains : int
            Draws of each chain, and chains: 1,000 draws at 15,000 nodes take 120 MB a variable.
        rng : int or Generator
        period : optional
            Of which period, where there are several: its label, number, or a date within it.

        Returns
        -------
        arviz.InferenceData, or xarray.DataTree from ArviZ 1.0 on
            ``posterior``: ``coefficient`` (by ``effect``, in own units), ``intensity`` (by ``node``), and
            ``lengthscale`` and ``sd`` if they were integrated over. ``constant_data``: exposure, easting and northing
            of the nodes. Where the counts are known, ``observed_data``, ``log_likelihood`` and
            ``posterior_predictive``: ``events`` by node.
        """
        from geobgp.output.arviz import inference_data

        return self._each(lambda one, _: inference_data(one, draws, chains, rng), period)

    @validated(
        path=PATH,
        forecast=POSTERIOR,
        title=TEXT,
        threshold=either(FLAG, real(above=0.0)),
        thresholds=THRESHOLDS,
        hotspots=HOTSPOTS,
        basemap=BASEMAP,
        show_points=FLAG,
        points=ARRAY,
        point_labels=SOURCE,
        opacity=real(least=0.0, most=1.0),
        max_pixels=whole(1),
        max_bytes=whole(1),
    )
    def to_map(
        self,
        path: str | Path | None = None,
        *,
        period: Any = None,
        forecast: Posterior | None = None,
        title: str | None = None,
        threshold: float | bool | None = None,
        thresholds: Sequence[float] | None = None,
        regions: Any = None,
        hotspots: gpd.GeoDataFrame | bool | None = None,
        context: Any = None,
        basemap: str | folium.TileLayer | None = None,
        show_points: bool = False,
        points: gpd.GeoDataFrame | gpd.GeoSeries | np.ndarray | None = None,
        point_labels: Iterable[object] | str | None = None,
        opacity: float | None = None,
        max_pixels: int | None = None,
        max_bytes: int | None = None,
        classes: int | Sequence[float] | Literal["quantile"] | None = None,
        vmin: float | None = None,
        vmax: float | None = None,
        cmap: Any = None,
    ) -> folium.Map:
        """Return the interactive map; write it to `path` if given, as HTML that needs nothing else.

        Over periods it has a slider and a play button.

        Parameters
        ----------
        path : str or path, optional
            An HTML file.
        period : optional
            Only this one, where there are several.
        forecast : Posterior, optional
            From `forecast`: its periods follow, marked as such.
        title : str, optional
            By default the posterior's own.
        threshold : float, optional
            The layer of the probability of exceeding it; by default of the mean over all land. False: without.
        thresholds : sequence of float, optional
            Several of them, a layer each.
        regions : GeoDataFrame or whatever `totals` takes, optional
            Outlines with their numbers and intervals. A table from `totals` is shown as it is; of other regions the
            totals are computed. Over periods the chart is then that of the region under the cursor.
        hotspots : GeoDataFrame or bool, optional
            From `hotspots`; True: those above the thresholds of the map. A click shows their numbers.
        context : GeoDataFrame, GeoSeries or path, optional
            Outlines and names for orientation, without network.
        basemap : str or folium.TileLayer, optional
            An online one, such as "OpenStreetMap": its server then learns where on the map the reader looks.
        show_points : bool
            Put `points` into the file, where **whoever has the file has every coordinate**. Of one period.
        points : GeoDataFrame, GeoSeries or (n, 2) array, optional
            An array holds eastings and northings in the domain's CRS.
        point_labels : str or iterable, optional
            A column of `points`, or one label each.
        opacity : float, optional
            Of the pictures at first; 1, or 0.75 over a basemap.
        max_pixels, max_bytes : int, optional
            Limits on the size, by default 4 million (over periods 1 million) and 12 MB.
        classes, vmin, vmax, cmap
            Other classes and colours of the first layer; see `styled`.
        """
        from geobgp.web import maps

        shown = self._look(classes, vmin, vmax, cmap)._of_period("to_map", period, several=not show_points)
        page = maps.posterior_map(
            shown, forecast=forecast, title=title, threshold=threshold, thresholds=thresholds, regions=regions,
            hotspots=hotspots, context=context, basemap=basemap, show_points=show_points, points=points,
            point_labels=point_labels, opacity=opacity, max_pixels=max_pixels, max_bytes=max_bytes,
        )  # fmt: skip
        if path is not None:
            maps.save(page, path)
        return page

    @validated(
        path=PATH, thresholds=THRESHOLDS, hotspots=HOTSPOTS, checks=FLAG, forecast=POSTERIOR, check=a("ForecastCheck")
    )
    def to_report(
        self,
        path: str | Path,
        *,
        thresholds: Sequence[float] = (),
        regions: Any = None,
        hotspots: gpd.GeoDataFrame | bool | None = None,
        checks: bool = True,
        forecast: Posterior | None = None,
        check: ForecastCheck | None = None,
    ) -> Path:
        """Write the report: maps, what went in, the model, residuals, totals of regions, on one page.

        Over periods it has small maps, the level from period to period, a table by period, and the forecast's check.

        Parameters
        ----------
        path : str or path
            An HTML file, which needs nothing else.
        thresholds : sequence of float
            In `units`; a map of the probability of exceeding each, and how many people live above it, in all and in
            each of the regions.
        regions : GeoDataFrame, optional
            From `totals`, or anything that it takes.
        hotspots : GeoDataFrame or bool, optional
            From `hotspots`; True: those above each of the thresholds.
        checks : bool
            Hold out blocks, areas, persons or sites in turn, or the last periods, as `cross_validate` does, and show
            how they are predicted, which takes time. Where that cannot be done the report says why.
        forecast : Posterior, optional
            Over periods: from `forecast`.
        check : ForecastCheck, optional
            Over periods: from `cross_validate`, which is then not run again.

        Warns
        -----
        CheckWarning
            When a check could not be run; the report is written without it.
        """
        from geobgp.checks.hotspots import read_hotspots
        from geobgp.report.report import ReportInputs, asked_checks, write_report

        checked, advice, why_not = asked_checks(self, checks, check)
        inputs = ReportInputs(
            thresholds=thresholds,
            regions=self._with_totals(regions, thresholds),
            hotspots=read_hotspots(self, hotspots, thresholds),
            validation=checked,
            advice=advice,
            not_checked=why_not,
        )
        return write_report(path, self, inputs, forecast=forecast)

    @validated(folder=PATH, metadata=either(PATH, a("dict"), words="a file in TOML, or a dict"), checks=FLAG)
    def to_gather(
        self, folder: str | Path, metadata: str | Path | Mapping[str, Any] | None = None, *, checks: bool = True
    ) -> list[Path]:
        """Write the GATHER checklist into a folder: ``gather.html``, and ``gather.csv`` with the same as a table.

        The 18 items, and spatial ones, are filled in from the run: inputs with their SHA-256, the model, how it was
        chosen and checked, what its intervals hold. What only the author knows is marked as blank.

        Parameters
        ----------
        folder : str or path
        metadata : path or mapping, optional
            What only the author knows, by entry: ``{"funding": "...", "ethics": "..."}``, and by input under
            ``"sources"``; or a file of it in TOML, of which ``geobgp metadata`` writes a template. Unknown entries are
            refused.
        checks : bool
            Hold data out and say how they are predicted, as for `to_report`.

        Returns
        -------
        list of Path

        Warns
        -----
        CheckWarning
            When a check could not be run.
        """
        from geobgp.report.gather import write_gather
        from geobgp.report.report import ReportInputs, asked_checks

        checked, _, why_not = asked_checks(self, checks)
        return write_gather(folder, self, ReportInputs(validation=checked, not_checked=why_not), metadata)

    @validated(
        ax=either(FIGURE, AXES), forecast=POSTERIOR, variable=NAME, threshold=real(), points=SOURCE, title=TEXT,
        label=TEXT, colour_bar=FLAG, scale_bar=FLAG, outline=FLAG, periods=SEVERAL_PERIODS, columns=whole(1),
        hotspots=HOTSPOTS,
    )  # fmt: skip
    def plot(
        self,
        ax: matplotlib.axes.Axes | Figure | None = None,
        *,
        period: Any = None,
        periods: Sequence[Any] | None = None,
        columns: int | None = None,
        forecast: Posterior | None = None,
        variable: str | None = None,
        threshold: float | None = None,
        hotspots: gpd.GeoDataFrame | bool | None = None,
        points: Any = None,
        title: str | None = None,
        label: str | None = None,
        colour_bar: bool = True,
        scale_bar: bool = True,
        outline: bool = True,
        classes: int | Sequence[float] | Literal["quantile"] | None = None,
        vmin: float | None = None,
        vmax: float | None = None,
        cmap: Any = None,
    ) -> Any:
        """Draw a statistic of the intensity as a map, in the classes and colours of the rasters.

        Over periods: a small map of each, all under one legend.

        Parameters
        ----------
        ax : Axes, or Figure over periods, optional
            By default a new figure's.
        period : optional
            Only this one, where there are several.
        periods : sequence, optional
            Which, by label, number or date; by default all; of many every second, third, ...
        columns : int, optional
            Small maps beside each other.
        forecast : Posterior, optional
            From `forecast`: its periods follow, marked as such.
        variable : str, optional
            "mean", "median", "sd", "q50", an end of the interval (such as "q05"), or "uncertainty": sd / mean in per
            cent. By default the statistic that maps show, `drawn`.
        threshold : float, optional
            Draw the probability that the intensity exceeds this, in the map's units, instead.
        hotspots : GeoDataFrame or bool, optional
            From `hotspots`, outlined with their numbers; True: those above the threshold.
        points : GeoDataFrame, GeoSeries or (n, 2) array, optional
            Drawn on top of a single map.
        title, label : str, optional
            Above the map, and beside the colour bar; by default what is shown, and its unit.
        colour_bar, scale_bar, outline : bool
            Whether to draw them, on a single map.
        classes, vmin, vmax, cmap
            Other classes and colours; see `styled`.

        Returns
        -------
        Axes, or Figure of several periods
        """
        from geobgp.checks.hotspots import read_hotspots
        from geobgp.output.figures import plot

        shown = self._of_period("plot", period, several=points is None)
        spots = read_hotspots(shown, hotspots, () if threshold is None else (threshold,))
        look: dict[str, Any] = {"classes": classes, "vmin": vmin, "vmax": vmax, "cmap": cmap}
        how: dict[str, Any] = {"variable": variable, "threshold": threshold, "title": title, "label": label}
        how["hotspots"] = spots
        if shown.periods is not None:
            return plot(shown, ax, forecast=forecast, periods=periods, columns=columns, **how, **look)
        return plot(
            shown, ax, points=points, colour_bar=colour_bar, scale_bar=scale_bar, outline=outline, **how, **look
        )

    @validated(figure=FIGURE, forecast=POSTERIOR)
    def plot_level(self, figure: Figure | None = None, *, forecast: Posterior | None = None) -> Figure:
        """Draw the level of each period, and the numbers of events expected, predicted and observed, with intervals."""
        from geobgp.output.figures import plot_level
        from geobgp.output.grids import View

        self.time  # noqa: B018  (without time there is none)
        return plot_level(View(self, forecast), figure)

    @validated(ax=AXES, by=NAME, reference=real(), title=TEXT)
    def plot_ranks(
        self,
        regions: Any,
        ax: matplotlib.axes.Axes | None = None,
        *,
        by: str | None = None,
        reference: float | None = None,
        period: Any = None,
        title: str | None = None,
    ) -> matplotlib.axes.Axes:
        """Draw a caterpillar: the rate of every region with its interval, from the highest down, and its rank.

        Regions above (below) the reference with 95 % are red (blue).

        Parameters
        ----------
        regions : GeoDataFrame, GeoSeries, list of geometries or path
            As for `ranks`, or the table that it returns.
        ax : Axes, optional
            By default a new figure's, as tall as the regions need.
        by, reference
            As for `ranks`.
        period : optional
            Which one, where there are several.
        title : str, optional
        """
        from geobgp.output.figures import plot_ranks

        one = self._of_period("plot_ranks", period, several=False)
        ranked = "rank" in getattr(regions, "columns", ())
        table = regions if ranked else one.ranks(regions, by=by, top=1, reference=reference)
        table.attrs["reference"] = one.overall if reference is None else reference
        return plot_ranks(table, ax, title=title)

    @validated(ax=AXES, by=NAME, title=TEXT)
    def plot_funnel(
        self,
        regions: Any,
        ax: matplotlib.axes.Axes | None = None,
        *,
        by: str | None = None,
        period: Any = None,
        title: str | None = None,
    ) -> matplotlib.axes.Axes:
        """Draw a funnel: the observed rate of every region against its exposure, with limits about the rate of all.

        A region that is like all others lies within the limits with 95 and 99.8 %. They are those of Poisson counts,
        widened by the overdispersion that the model has learned. A line leads from each observed rate to the model's.

        Parameters
        ----------
        regions : GeoDataFrame, GeoSeries, list of geometries or path
            As for `totals`, or the table that it returns.
        ax : Axes, optional
            By default a new figure's.
        by : str, optional
            As for `totals`.
        period : optional
            Which one, where there are several.
        title : str, optional
        """
        from geobgp.output.figures import plot_funnel

        one = self._of_period("plot_funnel", period, several=False)
        return plot_funnel(one, one._table_of(regions, by), ax, title=title)

    @validated(ax=AXES, by=NAME, variable=NAME, unsure=choice("hatch", "fade", "ignore"), title=TEXT, scale_bar=FLAG)
    def plot_regions(
        self,
        regions: Any,
        ax: matplotlib.axes.Axes | None = None,
        *,
        by: str | None = None,
        variable: str | None = None,
        unsure: Literal["hatch", "fade", "ignore"] = "hatch",
        period: Any = None,
        title: str | None = None,
        scale_bar: bool = True,
        classes: int | Sequence[float] | Literal["quantile"] | None = None,
        vmin: float | None = None,
        vmax: float | None = None,
        cmap: Any = None,
    ) -> matplotlib.axes.Axes:
        """Draw regions in classes, and show in the picture where their class is not sure.

        Parameters
        ----------
        regions : GeoDataFrame, GeoSeries, list of geometries or path
            As for `totals`, or a table from `totals` or `ranks`.
        ax : Axes, optional
            By default a new figure's.
        by : str, optional
            As for `totals`.
        variable : str, optional
            "relative_risk", "rate", "mean" or "expected"; by default the first of these that there is.
        unsure : "hatch", "fade" or "ignore"
            What happens to regions whose interval reaches into another class.
        period : optional
            Which one, where there are several.
        title : str, optional
        scale_bar : bool
        classes, vmin, vmax, cmap
            Other classes and colours; see `styled`.
        """
        from geobgp.output.figures import plot_regions

        one = self._of_period("plot_regions", period, several=False)
        look: dict[str, Any] = {"classes": classes, "vmin": vmin, "vmax": vmax, "cmap": cmap}
        table = regions if "rank" in getattr(regions, "columns", ()) else one._table_of(regions, by)
        return plot_regions(one, table, ax, variable=variable, unsure=unsure, title=title, scale_bar=scale_bar, **look)

    @validated(
        path=PATH, seconds=real(above=0.0), width=whole(100), forecast=POSTERIOR, variable=NAME, threshold=real(),
        hotspots=HOTSPOTS, title=TEXT,
    )  # fmt: skip
    def to_animation(
        self,
        path: str | Path,
        *,
        seconds: float = 0.8,
        width: int = 800,
        forecast: Posterior | None = None,
        variable: str | None = None,
        threshold: float | None = None,
        hotspots: gpd.GeoDataFrame | bool | None = None,
        title: str | None = None,
        classes: int | Sequence[float] | Literal["quantile"] | None = None,
        vmin: float | None = None,
        vmax: float | None = None,
        cmap: Any = None,
    ) -> Path:
        """Write a film of the periods, a picture for each under one legend: a GIF, or an MP4 where ffmpeg is there.

        Parameters
        ----------
        path : str or path
            Ends in ``.gif`` or ``.mp4``.
        seconds : float
            For each period.
        width : int
            Of the pictures, in pixels.
        forecast : Posterior, optional
            From `forecast`: its periods follow, marked as such.
        variable, threshold, hotspots, classes, vmin, vmax, cmap
            As for `plot`.
        title : str, optional
        """
        from geobgp.checks.hotspots import read_hotspots
        from geobgp.output.figures import animation
        from geobgp.output.grids import View

        self.time  # noqa: B018  (without time there is none)
        spots = read_hotspots(self, hotspots, () if threshold is None else (threshold,))
        how: dict[str, Any] = {"variable": variable, "threshold": threshold, "title": title}
        look: dict[str, Any] = {"classes": classes, "vmin": vmin, "vmax": vmax, "cmap": cmap}
        return animation(View(self, forecast), path, seconds=seconds, width=width, hotspots=spots, **how, **look)

    def _table_of(self, regions: Any, by: str | None) -> gpd.GeoDataFrame:
        """Return regions with their totals, which are computed where there are none yet."""
        known = {"expected", "mean"} & set(getattr(regions, "columns", ()))
        if known and "period" in regions and self.periods is None:
            raise DataError(
                "This table is of several periods, and the figure of one.",
                option="regions",
                remedy="Pass the regions themselves, or the rows of one period without the column period.",
            )
        return regions if known else self.totals(regions, by=by)

    def _with_totals(self, regions: Any, thresholds: Sequence[float] = ()) -> Any:
        """Return regions with their totals, which are computed where there are none yet."""
        known = regions is None or {"expected", "mean"} & set(getattr(regions, "columns", ()))
        return regions if known else self.totals(regions, thresholds=thresholds)

    def _look(self, classes: Any, vmin: Any, vmax: Any, cmap: Any) -> Posterior:
        """Return the posterior with the classes and colours that an output was asked for, if any."""
        if all(v is None for v in (classes, vmin, vmax, cmap)):
            return self
        return self.styled(classes, vmin=vmin, vmax=vmax, cmap=cmap)

    def _repr_html_(self) -> str:
        return str(self.to_map()._repr_html_())

    # -- files -----------------------------------------------------------------------------------------------

    @validated(path=PATH)
    def save(self, path: str | Path) -> Path:
        """Write everything to one file, from which `load` gives back the same posterior, number for number.

        The file (an ``.npz``, no pickle) holds the domain and the basis too, so it is about as large as the
        features are in memory. It holds the counts of the nodes but no points; only a fit of values at locations
        (`BoundaryGP`) with full rank keeps the locations.

        Of a posterior whose small numbers are protected the file holds what may be told of each cell, and neither
        counts nor the fit: it gives back maps, rasters and reports, and no draws, totals of regions or forecasts.
        """
        from geobgp.archive import save

        return save(self, path)

    @classmethod
    @validated(path=PATH)
    def load(cls, path: str | Path) -> Posterior:
        """Read a posterior that `save` wrote; a damaged or foreign file raises CacheError."""
        from geobgp.archive import load

        return load(path)

    def __repr__(self) -> str:
        scale, unit = self.domain.length_unit
        when, fading, tau = "", "", ""
        if self.periods is not None:
            when = f" in {self.periods.words()}"
            fading, tau = f", {self.dynamics}", f", tau {number(self.tau)} {self.periods.noun}s"
        return (
            f"Posterior({self.likelihood.name}, {events_in_words(self.points)}{when}, {self.domain.n_nodes:,} nodes, "
            f"{self.basis.boundary}, {self.basis.label}, {self.kernel.name}{fading}: "
            f"lengthscale {number(self.lengthscale / scale)} {unit}, sd {number(self.sd)}{tau}; "
            f"ELBO {self.elbo:.2f}{'' if self.converged else ', NOT converged'})"
        )


#: The name that posteriors over periods had.
SpaceTimePosterior = Posterior


def _words(name: str) -> str:
    fixed = {"mean": "posterior mean", "sd": "posterior standard deviation", "q50": "posterior median"}
    return fixed[name] if name in fixed else quantile_words(name)
