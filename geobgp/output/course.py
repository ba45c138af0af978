"""Course: the maps of all periods of a fit, and of a forecast after them, as the outputs over time show them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from geobgp.errors import DataError, option
from geobgp.output.grids import hatched_land

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd
    import xarray as xr

    from geobgp.data.periods import Periods
    from geobgp.land.domain import Domain
    from geobgp.posterior import Posterior


class OverTime(Protocol):
    """What the outputs over time need of a posterior over periods."""

    @property
    def periods(self) -> Periods: ...  # noqa: D102
    @property
    def domain(self) -> Domain: ...  # noqa: D102
    @property
    def units(self) -> str: ...  # noqa: D102
    @property
    def quantity(self) -> str: ...  # noqa: D102
    @property
    def interval(self) -> float: ...  # noqa: D102
    @property
    def drawn(self) -> str: ...  # noqa: D102
    @property
    def exposure_kind(self) -> str: ...  # noqa: D102
    @property
    def unexposed(self) -> np.ndarray: ...  # noqa: D102
    @property
    def effort(self) -> np.ndarray | None: ...  # noqa: D102
    @property
    def n_points(self) -> int: ...  # noqa: D102
    @property
    def points(self) -> Mapping[str, float]: ...  # noqa: D102
    @property
    def provenance(self) -> dict[str, Any]: ...  # noqa: D102
    def at(self, period: Any) -> Posterior: ...  # noqa: D102
    def intensity(self, quantiles: Sequence[float] = ...) -> xr.Dataset: ...  # noqa: D102
    def exceedance(self, threshold: float) -> xr.DataArray: ...  # noqa: D102
    def level(self) -> pd.DataFrame: ...  # noqa: D102
    def summary(self) -> Any: ...  # noqa: D102


@dataclass(frozen=True, eq=False)
class Course:
    """Periods that were fitted, and those of a forecast after them.

    Attributes
    ----------
    fitted : OverTime
    forecast : OverTime, optional
        Of the periods that follow.
    """

    fitted: OverTime
    forecast: OverTime | None = None

    def __post_init__(self) -> None:
        if self.forecast is None:
            return
        end, start = self.fitted.periods.edges[-1], self.forecast.periods.edges[0]
        if start != end or self.forecast.domain is not self.fitted.domain:
            raise DataError(
                f"A forecast begins where the map ends ({end}), on the same land; found one from {start} on.",
                option="forecast",
                found=str(start),
                remedy=f"Pass {option('forecast', python='forecast=posterior.forecast(...)')}.",
            )

    @property
    def parts(self) -> list[OverTime]:
        """The fit, and the forecast where there is one."""
        return [self.fitted] if self.forecast is None else [self.fitted, self.forecast]

    @property
    def known(self) -> int:
        """How many periods were fitted."""
        return self.fitted.periods.n

    @property
    def n(self) -> int:
        """How many periods there are in all."""
        return sum(part.periods.n for part in self.parts)

    @cached_property
    def labels(self) -> list[str]:
        """What the periods are called."""
        return [label for part in self.parts for label in part.periods.labels]

    @cached_property
    def edges(self) -> np.ndarray:
        """Where periods begin, and where the last one ends, (n + 1,)."""
        return np.concatenate([self.fitted.periods.edges, *(p.periods.edges[1:] for p in self.parts[1:])])

    @cached_property
    def data(self) -> xr.Dataset:
        """Mean, sd and quantiles on (time, northing, easting)."""
        import xarray as xr

        if self.forecast is None:
            return self.fitted.intensity()
        made = [part.intensity() for part in self.parts]
        joined = xr.concat(
            made, dim="time", data_vars="minimal", coords="minimal", compat="override", join="override"
        )
        return joined.assign_attrs(made[0].attrs)

    @cached_property
    def hatched(self) -> tuple[np.ndarray, str]:
        """The nodes of each period, (n, n_nodes), of which the data say nothing, and why; see `hatched_land`."""
        found = [hatched_land(part) for part in self.parts]
        shape = self.fitted.domain.n_nodes
        nodes = [
            np.broadcast_to(nodes, (part.periods.n, shape))
            for part, (nodes, _) in zip(self.parts, found, strict=True)
        ]
        return np.concatenate(nodes), next((words for _, words in found if words), "")

    def exceedance(self, threshold: float) -> np.ndarray:
        """Return the probability of exceeding a threshold, (n, rows, cols)."""
        return np.concatenate([part.exceedance(threshold).values for part in self.parts])

    @cached_property
    def level(self) -> pd.DataFrame:
        """Events and level of every period with their intervals; `forecast` says which are ahead."""
        import pandas as pd

        tables = [part.level().assign(forecast=k > 0) for k, part in enumerate(self.parts)]
        out = pd.concat(tables, ignore_index=True) if len(tables) > 1 else tables[0]
        return out.assign(period=self.labels)
