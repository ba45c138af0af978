"""What a posterior says on the grid, and the ways out: rasters, netCDF, polygons, web maps, figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from geobgp.arguments import ARRAY, AXES, BASEMAP, LEVELS, PROBABILITIES, SOURCE, THRESHOLDS
from geobgp.files import check_unread
from geobgp.inference.mixture import check_probabilities, interval_in, quantile_name, quantile_words
from geobgp.units import warn_if_far
from geobgp.validate import FLAG, NAME, PATH, SEED, TEXT, door, either, number, whole

if TYPE_CHECKING:
    import folium
    import geopandas as gpd
    import matplotlib.axes
    import pandas as pd
    import xarray as xr

    from geobgp.inference.likelihoods import Likelihood
    from geobgp.inference.mixture import Interval, NormalMixture
    from geobgp.land.domain import Domain
    from geobgp.posterior import Posterior
    from geobgp.style import Style
    from geobgp.summary import Summary


class Outputs:
    """What `Posterior` can write and draw, using only its public methods."""

    likelihood: Likelihood

    if TYPE_CHECKING:

        @property
        def domain(self) -> Domain: ...  # noqa: D102
        @property
        def provenance(self) -> dict[str, Any]: ...  # noqa: D102
        @property
        def drawn(self) -> str: ...  # noqa: D102
        @property
        def quantity(self) -> str: ...  # noqa: D102
        @property
        def units(self) -> str: ...  # noqa: D102
        @property
        def _published(self) -> NormalMixture: ...
        @property
        def _shown_nodes(self) -> NormalMixture: ...
        @property
        def quantiles(self) -> tuple[float, float, float]: ...  # noqa: D102
        def in_units(self, units: str | None) -> Posterior: ...  # noqa: D102
        @property
        def style(self) -> Style: ...  # noqa: D102
        def _need_counts(self, what: str) -> None: ...
        def node_intensity(self, quantiles: Sequence[float] | None = None) -> pd.DataFrame: ...  # noqa: D102
        def summary(self) -> Summary: ...  # noqa: D102

    @door(quantiles=PROBABILITIES)
    def intensity(self, quantiles: Sequence[float] | None = None) -> xr.Dataset:
        """Return the intensity on the grid: mean, sd and quantiles.

        Exact for a log-normal (or a mixture of them), not sampled. In a cell with several nodes (two sides of
        a river) each statistic is the average over the cell's land.

        Parameters
        ----------
        quantiles : sequence of float, optional
            Probabilities, each a variable: 0.05 is ``q05``. By default the ends of the `interval`, and the median.

        Returns
        -------
        xarray.Dataset
            On (northing, easting), NaN off land, with CRS, units and provenance.
        """
        self._need_counts("intensity()")
        table = self.node_intensity(quantiles)
        what = self.quantity
        about = {name: {"long_name": f"{what}, {_words(name)}", "units": self.units} for name in table}
        if what != "intensity":
            about = {name: facts | {"quantity": what} for name, facts in about.items()}
        look = self.style.attrs()
        about = {name: facts | (look if name != "sd" else {}) for name, facts in about.items()}
        return self._dataset({name: table[name].to_numpy() for name in table}, about)

    @door(threshold=number())
    def exceedance(self, threshold: float) -> xr.DataArray:
        """Return the probability that the intensity exceeds `threshold` (in `units`), on the grid."""
        self._need_counts("exceedance()")
        values = self._shown_nodes.sf(np.log(threshold) if threshold > 0 else -np.inf)
        about = {
            "long_name": f"probability of more than {threshold:g} {self.units}",
            "units": "1",
            "threshold": float(threshold),
        }
        return self._dataset({"exceedance": values}, {"exceedance": about})["exceedance"]

    @door(quantiles=PROBABILITIES)
    def latent(self, quantiles: Sequence[float] | None = None) -> xr.Dataset:
        """Return the linear predictor on the grid (the log-intensity, for counts): mean, sd and quantiles."""
        chances = check_probabilities(self.quantiles if quantiles is None else quantiles)
        nodes = self._published
        mean, var = nodes.moments()
        values = {"mean": mean, "sd": np.sqrt(var)} | {quantile_name(q): nodes.quantile(q) for q in chances}
        unit = f"log({self.in_units(None).units})" if self.likelihood.is_intensity else "1"
        about = {name: {"long_name": f"linear predictor, {_words(name)}", "units": unit} for name in values}
        return self._dataset(values, about)

    def _dataset(
        self, values: dict[str, np.ndarray], variables: dict[str, dict[str, Any]], coverage: bool = False
    ) -> xr.Dataset:
        from geobgp.output.grids import dataset

        return dataset(self.domain, values, variables=variables, attrs=self.provenance, coverage=coverage)

    def _layers(self, quantiles: Sequence[float] | None, thresholds: Sequence[float]) -> xr.Dataset:
        drawn = "q50" if self.drawn == "median" else "mean"
        if drawn == "q50" and quantiles is not None and 0.5 not in quantiles:
            quantiles = (*quantiles, 0.5)
        data = self.intensity(quantiles)
        # What maps show comes first.
        data = data[[drawn, *(name for name in data.data_vars if name != drawn)]]
        for threshold in np.atleast_1d(np.asarray(thresholds, float)):
            chance = self.exceedance(float(threshold))
            data[f"exceedance_{threshold:g}"] = chance
            ends = float(chance.min()), float(chance.max())
            q = self.intensity()
            low, high, words = cast("Interval", interval_in(q))
            warn_if_far(
                float(threshold), self.units, ends, (float(q[low].min()), float(q[high].max())), words
            )
        data["coverage"] = self._dataset({}, {}, coverage=True)["coverage"]
        return data

    @door(path=PATH, thresholds=THRESHOLDS, quantiles=PROBABILITIES)
    def to_raster(
        self,
        path: str | Path,
        thresholds: Sequence[float] = (),
        *,
        quantiles: Sequence[float] | None = None,
        classes: int | Sequence[float] | Literal["quantile"] | None = None,
        vmin: float | None = None,
        vmax: float | None = None,
        cmap: Any = None,
    ) -> list[Path]:
        """Write GeoTIFFs with QGIS styles: a directory (a file per statistic) or one ``.tif`` (all bands).

        The statistic that maps show (`drawn`) is the first, as ``mean.tif`` or ``q50.tif``. Each of `thresholds` adds
        the probability of exceeding it; ``coverage`` is the share of each cell that is land.
        `classes`, `vmin`, `vmax` and `cmap` are of the styles; see `styled`.
        """
        from geobgp.output.cog import write_rasters

        data = self._look(classes, vmin, vmax, cmap)._layers(quantiles, thresholds)
        return write_rasters(data, path, title=self.provenance["title"])

    @door(path=PATH, thresholds=THRESHOLDS, quantiles=PROBABILITIES)
    def to_netcdf(
        self, path: str | Path, thresholds: Sequence[float] = (), *, quantiles: Sequence[float] | None = None
    ) -> Path:
        """Write the intensity and the probabilities of exceeding `thresholds` to one netCDF file."""
        from geobgp.output.grids import write_netcdf

        return write_netcdf(self._layers(quantiles, thresholds), path)

    @door(path=PATH, thresholds=THRESHOLDS, quantiles=PROBABILITIES)
    def to_qgis(
        self,
        path: str | Path,
        thresholds: Sequence[float] = (),
        *,
        regions: Any = None,
        quantiles: Sequence[float] | None = None,
    ) -> Path:
        """Write a QGIS project with all that it shows: rasters, shoreline, the land that exceeds thresholds, regions.

        Parameters
        ----------
        path : str or path
            A folder, made if it is missing, for ``map.qgz`` and its files; or the project itself, ending in ``.qgz``.
            Paths in the project are relative: it moves with its folder.
        thresholds : sequence of float
            In `units`. Each adds the probability of exceeding it, and where that is probable, as polygons.
        regions : GeoDataFrame, GeoSeries, list of geometries or path, optional
            As for `totals`; their totals are in ``regions.gpkg``, and their names on the map.
        quantiles : sequence of float

        Returns
        -------
        Path
            The project.
        """
        from geobgp.output.qgis_map import write_layers, write_qgis

        project = Path(path) if Path(path).suffix.lower() == ".qgz" else Path(path) / "map.qgz"
        totals = None if regions is None else cast("Posterior", self).totals(regions)
        check_unread(project, project.parent / "map.gpkg", project.parent / "regions.gpkg")
        rasters = self.to_raster(project.parent, thresholds, quantiles=quantiles)
        if totals is not None:
            write_layers(project.parent / "regions.gpkg", {"regions": totals})
        return write_qgis(cast("Posterior", self), project, rasters, thresholds=thresholds, regions=totals)

    @door(levels=LEVELS, path=PATH, variable=NAME, smooth=FLAG)
    def to_polygons(
        self,
        levels: Sequence[float],
        path: str | Path | None = None,
        *,
        variable: str | None = None,
        kind: Literal["bands", "above"] = "bands",
        smooth: bool = True,
    ) -> gpd.GeoDataFrame:
        """Return the land between levels of a variable of `intensity()`; write it to `path` if given.

        Parameters
        ----------
        levels : sequence of float
            In `units`.
        path : str or path, optional
            A GeoPackage.
        variable : str, optional
            "mean", "median", "sd", "q50", or an end of the interval, such as "q05"; by default the statistic that maps
            show, `drawn`.
        kind : "bands" or "above"
            All land in bands, or all that lies above each level.
        smooth : bool
            Interpolate between cells; False keeps whole ones.

        Returns
        -------
        GeoDataFrame
            Columns ``lower``, ``upper``, ``label``, ``units``, ``area``.
        """
        from geobgp.output.contours import to_polygons, write_polygons
        from geobgp.output.palette import chosen_variable

        data = self.intensity()
        frame = to_polygons(
            data[chosen_variable(data, variable)], levels, domain=self.domain, kind=kind, smooth=smooth
        )
        if path is not None:
            write_polygons(frame, path)
        return frame

    @door(path=PATH, probability=number(above=0.5, below=1.0), risk=number(above=0.0))
    def tolerance_contours(
        self, path: str | Path | None = None, *, probability: float = 0.975, risk: float = 1.0
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

        Returns
        -------
        GeoDataFrame
            Columns ``risk`` ("raised" or "lowered"), ``probability``, ``area``; without rows where nothing is so sure.
        """
        from geobgp.output.contours import to_polygons, write_polygons

        frame = to_polygons(self.exceedance(risk), [1 - probability, probability], domain=self.domain)
        frame = frame[frame["lower"].isna() | frame["upper"].isna()].reset_index(drop=True)
        frame.insert(0, "risk", np.where(frame["upper"].isna(), "raised", "lowered"))
        frame.insert(1, "probability", probability)
        frame = frame[["risk", "probability", "area", "geometry"]]
        if path is not None:
            write_polygons(frame, path)
        return frame

    @door(draws=whole(1), chains=whole(1), seed=SEED)
    def to_arviz(self, draws: int = 250, *, chains: int = 4, seed: int = 0) -> Any:
        """Return joint draws for ArviZ, so that ``az.summary``, ``az.loo`` and ``az.plot_*`` work.

        Needs the extra ``geobgp[arviz]``. Draws are independent of each other; chains are there because ArviZ
        compares them. `cross_validate` judges blocks of land and is the better guide than ``az.loo``, which leaves out
        single nodes.

        Parameters
        ----------
        draws, chains : int
            Draws of each chain, and chains: 1,000 draws at 15,000 nodes take 120 MB a variable.
        seed : int

        Returns
        -------
        arviz.InferenceData, or xarray.DataTree from ArviZ 1.0 on
            ``posterior``: ``coefficient`` (by ``effect``, in own units), ``intensity`` (by ``node``), and
            ``lengthscale`` and ``sd`` if they were integrated over. ``constant_data``: exposure, easting and northing
            of the nodes. Where the counts are known, ``observed_data``, ``log_likelihood`` and
            ``posterior_predictive``: ``events`` by node.
        """
        from geobgp.output.inference_data import inference_data

        self._need_counts("to_arviz()")
        return inference_data(cast("Posterior", self), draws, chains, seed)

    @door(
        path=PATH,
        title=TEXT,
        threshold=either(FLAG, number(above=0.0)),
        thresholds=THRESHOLDS,
        basemap=BASEMAP,
        show_points=FLAG,
        points=ARRAY,
        point_labels=SOURCE,
        opacity=number(least=0.0, most=1.0),
        max_pixels=whole(1),
        max_bytes=whole(1),
    )
    def to_map(
        self,
        path: str | Path | None = None,
        *,
        title: str | None = None,
        threshold: float | bool | None = None,
        thresholds: Sequence[float] | None = None,
        regions: Any = None,
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

        Parameters
        ----------
        path : str or path, optional
            An HTML file.
        title : str, optional
            By default the posterior's own.
        threshold : float, optional
            The layer of the probability of exceeding it; by default of the mean over all land. False: without.
        thresholds : sequence of float, optional
            Several of them, a layer each.
        regions : GeoDataFrame or whatever `totals` takes, optional
            Outlines with their numbers and intervals. A table from `totals` is shown as it is; of other regions the
            totals are computed.
        context : GeoDataFrame, GeoSeries or path, optional
            Outlines and names for orientation, without network.
        basemap : str or folium.TileLayer, optional
            An online one, such as "OpenStreetMap": its server then learns where on the map the reader looks.
        show_points : bool
            Put `points` into the file, where **whoever has the file has every coordinate**.
        points : GeoDataFrame, GeoSeries or (n, 2) array, optional
            An array holds eastings and northings in the domain's CRS.
        point_labels : str or iterable, optional
            A column of `points`, or one label each.
        opacity : float, optional
            Of the pictures at first; 1, or 0.75 over a basemap.
        max_pixels, max_bytes : int, optional
            Limits on the size, by default 4 million and 12 MB.
        classes, vmin, vmax, cmap
            Other classes and colours of the first layer; see `styled`.
        """
        from geobgp.web import maps

        made = maps.intensity_map(
            self._look(classes, vmin, vmax, cmap),
            title=title,
            threshold=threshold,
            thresholds=thresholds,
            regions=regions,
            context=context,
            basemap=basemap,
            show_points=show_points,
            points=points,
            point_labels=point_labels,
            opacity=opacity,
            max_pixels=maps.MAX_PIXELS if max_pixels is None else max_pixels,
            max_bytes=maps.MAX_BYTES if max_bytes is None else max_bytes,
        )
        if path is not None:
            maps.save(made, path)
        return made

    @door(path=PATH, thresholds=THRESHOLDS, checks=FLAG)
    def to_report(
        self,
        path: str | Path,
        *,
        thresholds: Sequence[float] = (),
        regions: Any = None,
        checks: bool = True,
    ) -> Path:
        """Write the report: maps, what went in, the model, residuals, totals of regions, on one page.

        Parameters
        ----------
        path : str or path
            An HTML file, which needs nothing else.
        thresholds : sequence of float
            In `units`; a map of the probability of exceeding each.
        regions : GeoDataFrame, optional
            From `totals`, or anything that it takes.
        checks : bool
            Leave out blocks, as `cross_validate` does, and show how they are predicted, which takes time. Where that
            cannot be done the report says why.

        Warns
        -----
        CheckWarning
            When a check could not be run; the report is written without it.
        """
        from geobgp.report.report import ReportInputs, attempted, write_report

        self._need_counts("to_report()")
        me, totals = cast("Posterior", self), self._with_totals(regions)
        checked, why_not = None, "" if checks else "They were not asked for."
        if checks and me.observed is not None and me.observed.any():
            checked, why_not = attempted(lambda: me.cross_validate(rounds=0), "The held-out checks were")
        inputs = ReportInputs(thresholds=thresholds, regions=totals, validation=checked, not_checked=why_not)
        return write_report(path, me, inputs)

    @door(
        ax=AXES, variable=NAME, threshold=number(), points=SOURCE, title=TEXT, label=TEXT, colour_bar=FLAG,
        scale_bar=FLAG, outline=FLAG,
    )  # fmt: skip
    def plot(
        self,
        ax: matplotlib.axes.Axes | None = None,
        *,
        variable: str | None = None,
        threshold: float | None = None,
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
    ) -> matplotlib.axes.Axes:
        """Draw a statistic of the intensity as a map, in the classes and colours of the rasters.

        Parameters
        ----------
        ax : Axes, optional
            By default a new figure's.
        variable : str, optional
            "mean", "median", "sd", "q50", an end of the interval (such as "q05"), or "uncertainty": sd / mean in per
            cent. By default the statistic that maps show, `drawn`.
        threshold : float, optional
            Draw the probability that the intensity exceeds this, in the map's units, instead.
        points : GeoDataFrame, GeoSeries or (n, 2) array, optional
            Drawn on top.
        title, label : str, optional
            Above the map, and beside the colour bar; by default what is shown, and its unit.
        colour_bar, scale_bar, outline : bool
            Whether to draw them.
        classes, vmin, vmax, cmap
            Other classes and colours; see `styled`.
        """
        from geobgp.output.plots import plot_posterior

        return plot_posterior(
            cast("Posterior", self),
            ax,
            variable=variable,
            threshold=threshold,
            points=points,
            title=title,
            colour_bar=colour_bar,
            scale_bar=scale_bar,
            outline=outline,
            classes=classes,
            vmin=vmin,
            vmax=vmax,
            cmap=cmap,
            **({} if label is None else {"label": label}),
        )

    def _with_totals(self, regions: Any) -> Any:
        """Return regions with their totals, which are computed where there are none yet."""
        known = regions is None or "expected" in getattr(regions, "columns", ())
        return regions if known else cast("Posterior", self).totals(regions)

    def _look(self, classes: Any, vmin: Any, vmax: Any, cmap: Any) -> Posterior:
        """Return the posterior with the classes and colours that an output was asked for, if any."""
        me = cast("Posterior", self)
        if all(v is None for v in (classes, vmin, vmax, cmap)):
            return me
        return me.styled(classes, vmin=vmin, vmax=vmax, cmap=cmap)

    def _repr_html_(self) -> str:
        if not self.likelihood.is_intensity:
            return self.summary()._repr_html_()
        return str(self.to_map()._repr_html_())


def _words(name: str) -> str:
    fixed = {"mean": "posterior mean", "sd": "posterior standard deviation", "q50": "posterior median"}
    return fixed[name] if name in fixed else quantile_words(name)
