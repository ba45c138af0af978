"""Datasets on the grid, with a time axis where there are periods: all that writers see of a posterior."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from affine import Affine

from geobgp.data.inputs import NONE
from geobgp.data.rasters import array_transform
from geobgp.errors import DataError, option
from geobgp.inference.mixture import Interval, interval_in
from geobgp.text import percent

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

    from geobgp.data.periods import Periods
    from geobgp.land.domain import Domain
    from geobgp.posterior import Posterior

#: Dimensions of a map, and of a series of maps.
SPACE = ("northing", "easting")
TIME_SPACE = ("time", *SPACE)


# -- Results on the grid: node values as xarray datasets with CRS, units and names ---------------------------


def dataset(
    domain: Domain,
    values: Mapping[str, np.ndarray],
    *,
    variables: Mapping[str, Mapping[str, Any]] | None = None,
    attrs: Mapping[str, Any] | None = None,
    coverage: bool = False,
    periods: Periods | None = None,
) -> xr.Dataset:
    """Put node values on the grid, with CRS, units and names.

    Parameters
    ----------
    domain : Domain
        Whose nodes the values belong to.
    values : mapping of str to (n_nodes,) array
        In a cell with several nodes (both sides of a river) they are averaged by land area. With periods
        (n_periods, n_nodes), or all in one line, period by period.
    variables : mapping of str to mapping, optional
        Attributes of each variable, such as ``units`` and ``long_name``.
    attrs : mapping, optional
        Attributes of the whole: where the numbers come from.
    coverage : bool
        Add the land fraction of each cell, which has no time.
    periods : Periods, optional

    Returns
    -------
    xarray.Dataset
        Dimensions ("northing", "easting"), northing descending; NaN off land; the CRS is known to rioxarray. With
        periods ("time", "northing", "easting"): ``time`` is the start of each period, ``time_bounds`` its start and its
        end, ``period`` its label.

    Examples
    --------
    >>> import shapely
    >>> from geobgp import Domain, Periods
    >>> domain = Domain.from_polygons(shapely.box(0, 0, 4, 2), cell_size=1, crs="local")
    >>> data = dataset(domain, {"mean": domain.node_areas}, variables={"mean": {"units": "per unit area"}})
    >>> dict(data.sizes)
    {'northing': 2, 'easting': 4}
    >>> months = Periods.calendar("month", "2020-01", "2020-03")
    >>> data = dataset(domain, {"mean": np.arange(24.0)}, periods=months)
    >>> dict(data.sizes), data["mean"].sel(time="2020-02").values.ravel()[:3].tolist()
    ({'time': 3, 'northing': 2, 'easting': 4, 'bounds': 2}, [8.0, 9.0, 10.0])
    """
    import rioxarray  # noqa: F401  registers the .rio accessor
    import xarray as xr

    shape = (domain.n_nodes,) if periods is None else (periods.n, domain.n_nodes)
    fields: dict[str, Any] = {}
    for name, given in values.items():
        array = np.asarray(given, float)
        if array.shape not in (shape, (np.prod(shape),)):
            over = "" if periods is None else f" in each of {periods.n} periods"
            raise DataError(
                f"{name!r} has the shape {array.shape}; one value for each of the domain's {domain.n_nodes} "
                f"nodes{over} was expected, so the shape {shape}.",
                found=array.shape,
            )
        cells = np.stack([domain.to_grid(row) for row in array.reshape(-1, domain.n_nodes)])
        about = dict((variables or {}).get(name, {}))
        fields[name] = (SPACE, cells[0], about) if periods is None else (TIME_SPACE, cells, about)
    if coverage:
        share = np.where(domain.coverage > 0, domain.coverage, np.nan)
        about = {"long_name": "share of the cell that is land", "units": "1"}
        fields["coverage"] = (SPACE, share, about)
    unit = "metre" if domain.crs is not None else "unit"
    coords = {
        "northing": ("northing", domain.grid.northings, _axis("Y", "northing", unit, domain.crs is not None)),
        "easting": ("easting", domain.grid.eastings, _axis("X", "easting", unit, domain.crs is not None)),
    }
    times = {} if periods is None else time_axis(periods)
    out = xr.Dataset(fields, coords=times | coords, attrs=dict(attrs or {}))
    if domain.crs is not None:
        out = out.rio.write_crs(domain.crs.to_wkt())
    return out.rio.write_transform(domain.grid.affine)


def _axis(axis: str, name: str, unit: str, projected: bool) -> dict[str, str]:
    out = {"axis": axis, "long_name": f"{name} of the cell's centre", "units": unit}
    if projected:
        out["standard_name"] = f"projection_{axis.lower()}_coordinate"
    return out


def time_axis(periods: Periods) -> dict[str, Any]:
    """Return the coordinates of time by CF conventions: starts, bounds and labels."""
    starts, bounds = periods.starts, np.column_stack([periods.starts, periods.ends])
    encoding: dict[str, Any] = {}
    about = {"long_name": f"start of the {periods.noun}", "bounds": "time_bounds", "axis": "T"}
    if periods.dated:
        starts, bounds = starts.astype("datetime64[ns]"), bounds.astype("datetime64[ns]")
        about["standard_name"] = "time"
        encoding = {"units": "days since 1970-01-01", "calendar": "proleptic_gregorian", "dtype": "int64"}
    return {
        "time": ("time", starts, about, encoding),
        "time_bounds": (("time", "bounds"), bounds, {}, encoding),
        "period": ("time", list(periods.labels), {"long_name": f"name of the {periods.noun}"}),
    }


def joined(parts: Sequence[xr.Dataset]) -> xr.Dataset:
    """Return datasets over time as one, one after the other; what has no time is that of the first."""
    import xarray as xr

    if len(parts) == 1:
        return parts[0]
    if any("nowcast" in part.coords for part in parts):
        parts = [part if "nowcast" in part.coords else flagged(part, False) for part in parts]
    how: Any = {"data_vars": "minimal", "coords": "minimal", "compat": "override", "join": "override"}
    return xr.concat(parts, dim="time", **how).assign_attrs(parts[0].attrs)


#: Flags of periods by the CF conventions: what each says, and the meanings of 0 and 1.
_FLAGS = {
    "nowcast": ("whether some events of the period are not reported yet", "complete nowcast"),
    "forecast": ("whether the period lies after all that was observed", "observed forecast"),
}


def flagged(data: xr.Dataset, which: np.ndarray | bool, name: Literal["nowcast", "forecast"] = "nowcast") -> xr.Dataset:
    """Return a dataset over time with the flag of CF conventions that says which periods are nowcasts, or forecasts."""
    long_name, meanings = _FLAGS[name]
    about = {"long_name": long_name, "flag_values": np.array([0, 1], np.int8), "flag_meanings": meanings}
    return data.assign_coords({name: ("time", np.full(data.sizes["time"], which, np.int8), about)})


def transform_of(data: xr.Dataset | xr.DataArray) -> Affine:
    """Return the transform of a dataset on ("northing", "easting")."""
    transform = array_transform(data, "easting", "northing")
    if transform.b or transform.d or transform.a <= 0 or transform.e >= 0:
        raise DataError("The coordinates do not run east and north-to-south; a raster needs northing descending.")
    return transform


def relative_uncertainty(data: xr.Dataset) -> np.ndarray:
    """Return sd / mean in per cent on the grid; NaN where the mean is zero or off land."""
    with np.errstate(divide="ignore", invalid="ignore"):
        share = 100 * data["sd"].values / data["mean"].values
    return np.where(np.isfinite(share), share, np.nan)


def uncertainty(data: xr.Dataset) -> tuple[np.ndarray, bool]:
    """Return how uncertain a map is, on the grid, and whether that is in per cent of the mean.

    It is what varies by factors, as rates do. Of what varies by differences (a dataset with ``scale`` "linear": shares,
    measured values) it is the sd itself.
    """
    if data.attrs.get("scale") == "linear":
        return data["sd"].values, False
    return relative_uncertainty(data), True


# -- Where the data say nothing ------------------------------------------------------------------------------


def hatched_land(posterior: Any) -> tuple[np.ndarray, str]:
    """Return the nodes of which the data say nothing by themselves, and why, for legends: maps are hatched there.

    Parameters
    ----------
    posterior : Posterior

    Returns
    -------
    (n_nodes,) or (n_periods, n_nodes) bool array, and words
        Next to no exposure (see `Posterior.unexposed`), or next to no effort; no words where no node is hatched.
    """
    empty, words = np.asarray(posterior.unexposed), []
    if empty.any():
        words.append("nobody lives here" if posterior.exposure_kind == "population" else "no exposure here")
    if posterior.effort is not None and (posterior.effort < NONE).any():
        empty = empty | (posterior.effort < NONE)
        words.append(f"effort under {percent(NONE)}, the data say nothing")
    return empty, "; or ".join(words)


def hatched_cells(domain: Domain, nodes: np.ndarray) -> np.ndarray:
    """Return the cells that are hatched, (rows, cols) or (n_periods, rows, cols): most of their land is."""
    rows = np.atleast_2d(np.asarray(nodes, float))
    cells = np.stack([domain.to_grid(row, 0.0) >= 0.5 for row in rows])
    return cells if np.ndim(nodes) == 2 else cells[0]


# -- What the outputs show: the maps of a posterior, and those of a forecast after it ------------------------


@dataclass(frozen=True, eq=False)
class View:
    """What the outputs show of a posterior, and of a forecast after it: one dataset, and the facts beside it.

    Attributes
    ----------
    posterior : Posterior
        With or without periods.
    forecast : Posterior, optional
        Of the periods that follow.
    """

    posterior: Posterior
    forecast: Posterior | None = None

    def __post_init__(self) -> None:
        if self.forecast is None:
            return
        before, after = (getattr(part, "periods", None) for part in self.parts)
        end, start = (None if some is None else some.edges[k] for some, k in ((before, -1), (after, 0)))
        if start is None or start != end or self.forecast.domain is not self.posterior.domain:
            raise DataError(
                f"A forecast begins where the map ends ({end}), on the same land; found one from {start} on.",
                option="forecast",
                found=str(start),
                remedy=f"Pass {option('forecast', python='forecast=posterior.forecast(...)')}.",
            )

    @classmethod
    def of(cls, shown: Posterior | View, forecast: Posterior | None = None) -> View:
        """Return the view of a posterior; a view is returned as it is."""
        return shown if isinstance(shown, View) else cls(shown, forecast)

    @property
    def parts(self) -> list[Any]:
        """The posterior, and its forecast where there is one."""
        return [self.posterior] if self.forecast is None else [self.posterior, self.forecast]

    @property
    def domain(self) -> Domain:
        """The land."""
        return self.posterior.domain

    @property
    def fitted(self) -> Periods | None:
        """The periods that were fitted; None of a map without time."""
        return getattr(self.posterior, "periods", None)

    @cached_property
    def periods(self) -> Periods | None:
        """All periods, those of the forecast too; None where there are none."""
        if self.forecast is None or self.fitted is None:
            return self.fitted
        return self.fitted.joined(self.forecast.time)

    @property
    def labels(self) -> list[str]:
        """What the periods are called; one empty label of a map without time."""
        return [""] if self.periods is None else list(self.periods.labels)

    @property
    def n(self) -> int:
        """How many maps there are."""
        return len(self.labels)

    @property
    def n_fitted(self) -> int:
        """How many of the periods were fitted; those after them are forecast."""
        return 1 if self.fitted is None else self.fitted.n

    @cached_property
    def marks(self) -> list[str]:
        """What follows the label of each period: " (nowcast)", " (forecast)", or nothing."""
        delays = getattr(self.posterior, "delays", None)
        late = np.zeros(self.n_fitted, bool) if delays is None else delays.incomplete
        return [" (nowcast)" if one else "" for one in late] + [" (forecast)"] * (self.n - self.n_fitted)

    @cached_property
    def data(self) -> xr.Dataset:
        """Mean, sd and quantiles on the grid, over time where there are periods."""
        return joined([part.intensity() for part in self.parts])

    def dataset(self, thresholds: Sequence[float] = (), quantiles: Sequence[float] | None = None) -> xr.Dataset:
        """Return what files hold, see `Posterior.dataset`, with the periods of the forecast, which are flagged."""
        parts = [part.dataset(quantiles, thresholds) for part in self.parts]
        if len(parts) > 1:
            parts = [flagged(part, k > 0, "forecast") for k, part in enumerate(parts)]
        return joined(parts)

    def exceedance(self, threshold: float) -> np.ndarray:
        """Return the probability of exceeding a threshold, on the grid of `data`."""
        chances = [np.asarray(part.exceedance(threshold).values) for part in self.parts]
        return chances[0] if len(chances) == 1 else np.concatenate(chances)

    @property
    def interval(self) -> Interval:
        """The ends of the intervals, as the dataset names them, and their probability in words."""
        ends = interval_in(self.data)
        assert ends is not None
        return ends

    @cached_property
    def hatched(self) -> tuple[np.ndarray, str]:
        """The nodes of which the data say nothing, (n_nodes,) or (n, n_nodes), and why; see `hatched_land`."""
        patches = [hatched_land(part) for part in self.parts]
        words = next((words for _, words in patches if words), "")
        if self.periods is None:
            return patches[0][0], words
        nodes = [
            np.broadcast_to(nodes, (part.periods.n, self.domain.n_nodes))
            for part, (nodes, _) in zip(self.parts, patches, strict=True)
        ]
        return np.concatenate(nodes), words

    @cached_property
    def level(self) -> pd.DataFrame:
        """Events and level of every period with their intervals; `forecast` says which are ahead."""
        import pandas as pd

        tables = [part.level().assign(forecast=k > 0) for k, part in enumerate(self.parts)]
        table = pd.concat(tables, ignore_index=True) if len(tables) > 1 else tables[0]
        return table.assign(period=self.labels)
