"""The ways out of a posterior: rasters, netCDF, polygons, web maps, figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from geobgp.errors import DataError

if TYPE_CHECKING:
    import folium
    import geopandas as gpd
    import matplotlib.axes
    import xarray as xr

    from geobgp.domain import Domain
    from geobgp.posterior import Posterior
    from geobgp.summary import Summary

#: The quantiles that are reported unless others are asked for.
QUANTILES = (0.05, 0.5, 0.95)


class Outputs:
    """What `Posterior` can write and draw, using only its public methods."""

    likelihood: str

    if TYPE_CHECKING:

        @property
        def domain(self) -> Domain: ...  # noqa: D102
        @property
        def provenance(self) -> dict[str, Any]: ...  # noqa: D102
        def intensity(self, quantiles: Sequence[float] = QUANTILES) -> xr.Dataset: ...  # noqa: D102
        def exceedance(self, threshold: float) -> xr.DataArray: ...  # noqa: D102
        def summary(self) -> Summary: ...  # noqa: D102

    def _layers(self, quantiles: Sequence[float], thresholds: Sequence[float]) -> xr.Dataset:
        data = self.intensity(quantiles)
        for threshold in np.atleast_1d(np.asarray(thresholds, float)):
            data[f"exceedance_{threshold:g}"] = self.exceedance(float(threshold))
        return data

    def to_raster(
        self, path: str | Path, thresholds: Sequence[float] = (), *, quantiles: Sequence[float] = QUANTILES
    ) -> list[Path]:
        """Write GeoTIFFs with QGIS styles: a directory (a file per statistic) or one ``.tif`` (all bands).

        Each of `thresholds` adds the probability of exceeding it.
        """
        from geobgp.raster import write_rasters

        return write_rasters(self._layers(quantiles, thresholds), path, title=self.provenance["title"])

    def to_netcdf(
        self, path: str | Path, thresholds: Sequence[float] = (), *, quantiles: Sequence[float] = QUANTILES
    ) -> Path:
        """Write the intensity and the probabilities of exceeding `thresholds` to one netCDF file."""
        from geobgp.archive import write_netcdf

        return write_netcdf(self._layers(quantiles, thresholds), Path(path))

    def to_polygons(
        self,
        levels: Sequence[float],
        path: str | Path | None = None,
        *,
        variable: str = "mean",
        **kwargs: Any,
    ) -> gpd.GeoDataFrame:
        """Return the areas between levels of a variable of `intensity()`; write them to `path` if given."""
        from geobgp.raster import to_polygons, write_polygons

        data = self.intensity()
        if variable not in data:
            raise DataError(f"variable is one of {', '.join(map(str, data.data_vars))}; found {variable!r}.")
        frame = to_polygons(data[variable], levels, domain=self.domain, **kwargs)
        if path is not None:
            write_polygons(frame, path)
        return frame

    def to_map(self, path: str | Path | None = None, **kwargs: Any) -> folium.Map:
        """Return the interactive map; write it to `path` if given, as HTML that needs nothing else."""
        from geobgp import maps

        made = maps.intensity_map(cast("Posterior", self), **kwargs)
        if path is not None:
            maps.save(made, path)
        return made

    def plot(self, ax: matplotlib.axes.Axes | None = None, **kwargs: Any) -> Any:
        """Draw the mean intensity; see `geobgp.plots.plot_intensity`."""
        from geobgp.plots import plot_intensity

        return plot_intensity(cast("Posterior", self), ax=ax, **kwargs)

    def _repr_html_(self) -> str:
        if self.likelihood != "Poisson":
            return self.summary()._repr_html_()
        return str(self.to_map()._repr_html_())
