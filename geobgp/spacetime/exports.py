"""The ways out of a posterior over periods: rasters, netCDF, Zarr, a QGIS project and a web map that play."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from geobgp.arguments import AXES, BASEMAP, FIGURE, PROBABILITIES, SEVERAL_PERIODS, THRESHOLDS
from geobgp.validate import NAME, PATH, TEXT, a, door, either, number, whole

if TYPE_CHECKING:
    import folium
    import xarray as xr
    from matplotlib.figure import Figure

    from geobgp.checks.forecasts import ForecastCheck
    from geobgp.data.periods import Periods
    from geobgp.land.domain import Domain
    from geobgp.output.qgis_map import Dated
    from geobgp.posterior import Posterior
    from geobgp.spacetime.posterior import SpaceTimePosterior


class TimeOutputs:
    """What `SpaceTimePosterior` can write: all periods at once, or one of them as `Posterior` does."""

    periods: Periods

    if TYPE_CHECKING:

        @property
        def domain(self) -> Domain: ...  # noqa: D102
        @property
        def provenance(self) -> dict[str, Any]: ...  # noqa: D102
        def at(self, period: Any) -> Posterior: ...  # noqa: D102
        def _layers(self, quantiles: Sequence[float] | None, thresholds: Sequence[float]) -> xr.Dataset: ...

    def _dataset(
        self, values: dict[str, np.ndarray], variables: dict[str, dict[str, Any]], coverage: bool = False
    ) -> xr.Dataset:
        from geobgp.output.time_grids import time_dataset

        return time_dataset(
            self.domain, self.periods, values, variables=variables, attrs=self.provenance, coverage=coverage
        )

    @door(path=PATH, thresholds=THRESHOLDS, quantiles=PROBABILITIES)
    def to_raster(
        self,
        path: str | Path,
        thresholds: Sequence[float] = (),
        *,
        quantiles: Sequence[float] | None = None,
        period: Any = None,
    ) -> list[Path]:
        """Write GeoTIFFs with QGIS styles into a folder, ``mean_2020-03.tif``, with one legend for all periods.

        Parameters
        ----------
        path : str or path
        thresholds : sequence of float
            In `units`. Each adds the probability of exceeding it.
        quantiles : sequence of float
        period : optional
            Only this one, as `Posterior.to_raster` writes it.
        """
        if period is not None:
            return self.at(period).to_raster(path, thresholds, quantiles=quantiles)
        return [Path(one.path) for one in self.write_rasters(path, thresholds, quantiles)]

    def write_rasters(
        self,
        path: str | Path,
        thresholds: Sequence[float] = (),
        quantiles: Sequence[float] | None = None,
        forecast: SpaceTimePosterior | None = None,
    ) -> list[Dated]:
        """Write the same, with those of a forecast under the same legend, and return when each raster is."""
        import xarray as xr

        from geobgp.output.time_rasters import write_period_rasters

        data, periods = self._layers(quantiles, thresholds), self.periods
        if forecast is not None:
            both = [data, forecast._layers(quantiles, thresholds)]
            data = xr.concat(
                both, "time", data_vars="minimal", coords="minimal", compat="override", join="override"
            )
            periods = periods.joined(forecast.periods)
        return write_period_rasters(data, periods, path, title=self.provenance["title"])

    @door(path=PATH, thresholds=THRESHOLDS, quantiles=PROBABILITIES)
    def to_netcdf(
        self, path: str | Path, thresholds: Sequence[float] = (), *, quantiles: Sequence[float] | None = None
    ) -> Path:
        """Write all periods to one netCDF file by CF conventions, with the probabilities of exceeding `thresholds`."""
        from geobgp.output.time_files import write_time_netcdf

        return write_time_netcdf(self._layers(quantiles, thresholds), path)

    @door(path=PATH, thresholds=THRESHOLDS, quantiles=PROBABILITIES)
    def to_zarr(
        self, path: str | Path, thresholds: Sequence[float] = (), *, quantiles: Sequence[float] | None = None
    ) -> Path:
        """Write all periods to a Zarr store by CF conventions, a chunk for each period. Needs the package zarr."""
        from geobgp.output.time_files import write_zarr

        return write_zarr(self._layers(quantiles, thresholds), path)

    @door(path=PATH, thresholds=THRESHOLDS, quantiles=PROBABILITIES)
    def to_qgis(
        self, path: str | Path, thresholds: Sequence[float] = (), *, quantiles: Sequence[float] | None = None
    ) -> Path:
        """Write a QGIS project of all periods, which its temporal controller plays, with one legend for all.

        Parameters
        ----------
        path : str or path
            A folder, made if it is missing, for ``map.qgz`` and its files; or the project itself, ending in ``.qgz``.
        thresholds : sequence of float
            In `units`. Each adds the probability of exceeding it.
        quantiles : sequence of float

        Returns
        -------
        Path
            The project.
        """
        from geobgp.output.grids import hatched_land
        from geobgp.output.qgis_map import write_dated

        project = Path(path) if Path(path).suffix.lower() == ".qgz" else Path(path) / "map.qgz"
        made = self.write_rasters(project.parent, thresholds, quantiles)
        nodes, words = hatched_land(self)
        hatched = np.atleast_2d(nodes), words
        title = self.provenance["title"]
        return write_dated(project, made, title=title, domain=self.domain, hatched=hatched)

    @door(
        path=PATH, forecast=a("SpaceTimePosterior"), title=TEXT, thresholds=THRESHOLDS, basemap=BASEMAP,
        opacity=number(least=0.0, most=1.0),
    )  # fmt: skip
    def to_map(
        self,
        path: str | Path | None = None,
        *,
        period: Any = None,
        forecast: SpaceTimePosterior | None = None,
        title: str | None = None,
        thresholds: Sequence[float] | None = None,
        regions: Any = None,
        context: Any = None,
        basemap: str | folium.TileLayer | None = None,
        opacity: float | None = None,
        **more: Any,
    ) -> folium.Map:
        """Return the interactive map of all periods, with a slider and a play button; write it if asked to.

        Parameters
        ----------
        path : str or path, optional
            An HTML file, which needs no network.
        period : optional
            Only this one, as `Posterior.to_map` shows it.
        forecast : SpaceTimePosterior, optional
            From `forecast`: its periods follow, marked as such.
        title, thresholds, context, basemap, opacity
            As for `Posterior.to_map`.
        regions : GeoDataFrame, optional
            From `totals`, or anything that it takes: the chart is then that of the region under the cursor.
        **more
            See `geobgp.web.time_maps.time_map`.
        """
        from geobgp.web import maps
        from geobgp.web.time_maps import time_map

        me = cast("SpaceTimePosterior", self)
        how: dict[str, Any] = {
            "title": title, "thresholds": thresholds, "context": context, "basemap": basemap, "opacity": opacity,
        } | more  # fmt: skip
        if period is not None:
            return me.at(period).to_map(path, regions=regions, **how)
        made = time_map(me, forecast=forecast, regions=me._with_totals(regions), **how)
        if path is not None:
            maps.save(made, path)
        return made

    @door(
        figure=either(FIGURE, AXES), forecast=a("SpaceTimePosterior"), variable=NAME, periods=SEVERAL_PERIODS,
        columns=whole(1), title=TEXT,
    )  # fmt: skip
    def plot(
        self,
        figure: Any = None,
        *,
        period: Any = None,
        forecast: SpaceTimePosterior | None = None,
        variable: str | None = None,
        periods: Sequence[Any] | None = None,
        columns: int | None = None,
        title: str | None = None,
    ) -> Any:
        """Draw a small map of each period, all under one legend; of one `period` a map as `Posterior.plot` draws it.

        Parameters
        ----------
        figure : Figure, optional
            By default a new one. (Axes, where `period` is given.)
        period : optional
            Only this one.
        forecast : SpaceTimePosterior, optional
            From `forecast`: its periods follow, marked as such.
        variable : str, optional
            A variable of `intensity`, or "uncertainty" (sd / mean, %); by default what maps show, `drawn`.
        periods : sequence, optional
            Which, by label, number or date; by default all; of many every second, third, ...
        columns : int, optional
            Maps beside each other.
        title : str, optional

        Returns
        -------
        Figure, or Axes of one period
        """
        me = cast("SpaceTimePosterior", self)
        if period is not None:
            return me.at(period).plot(figure, variable=variable, title=title)
        from geobgp.output.time_plots import plot_periods

        return plot_periods(
            me, figure, forecast=forecast, variable=variable, periods=periods, columns=columns, title=title
        )

    @door(figure=FIGURE, forecast=a("SpaceTimePosterior"))
    def plot_level(
        self, figure: Figure | None = None, *, forecast: SpaceTimePosterior | None = None
    ) -> Figure:
        """Draw the level of each period, and the numbers of events expected, predicted and observed, with intervals."""
        from geobgp.output.course import Course
        from geobgp.output.time_plots import plot_level

        return plot_level(Course(cast("SpaceTimePosterior", self), forecast), figure)

    @door(path=PATH, thresholds=THRESHOLDS, forecast=a("SpaceTimePosterior"), check=a("ForecastCheck"))
    def to_report(
        self,
        path: str | Path,
        *,
        thresholds: Sequence[float] = (),
        forecast: SpaceTimePosterior | None = None,
        check: ForecastCheck | None = None,
        regions: Any = None,
    ) -> Path:
        """Write the report: small maps, the level from period to period, a table by period, and the checks.

        Parameters
        ----------
        path : str or path
            An HTML file, which needs nothing else.
        thresholds : sequence of float
            In `units`; small maps of the probability of exceeding each.
        forecast : SpaceTimePosterior, optional
            From `forecast`.
        check : ForecastCheck, optional
            From `cross_validate`.
        regions : GeoDataFrame, optional
            From `totals`, or anything that it takes.
        """
        from geobgp.report.report import ReportInputs
        from geobgp.report.time_report import write_time_report

        me = cast("SpaceTimePosterior", self)
        inputs = ReportInputs(thresholds=thresholds, regions=me._with_totals(regions))
        return write_time_report(path, me, inputs, forecast=forecast, check=check)
