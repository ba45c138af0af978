"""Variograms: how unlike measurements are the farther apart they lie, observed and as the model has it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.optimize import brentq
from scipy.spatial.distance import cdist

from geobgp.errors import DataError
from geobgp.text import number
from geobgp.validation import AXES, validated

if TYPE_CHECKING:
    from geobgp.posterior import Posterior
    from geobgp.prior.kernels import Kernel

#: The correlation at the range.
AT_RANGE = 0.05
#: Distances in one block, 16 MB.
_BLOCK = 2_000_000


@dataclass(frozen=True)
class Spatial:
    """What a fitted variogram comes to, in the words of kriging.

    Attributes
    ----------
    nugget : float
        The variance of the noise: half the mean squared difference of two measurements at one place.
    partial_sill : float
        The variance of the field.
    range : float
        The distance at which the field's correlation on open land has fallen to 0.05, in `length_unit`.
    length_unit : str
    scale : str
        Of what the values are: "value", or its logarithm or square root, where that is modelled.
    """

    nugget: float
    partial_sill: float
    range: float
    length_unit: str
    scale: str = "value"

    @property
    def sill(self) -> float:
        """Nugget and partial sill together: the semivariance of places that know nothing of each other."""
        return self.nugget + self.partial_sill

    @property
    def sentence(self) -> str:
        """All of it in words.

        Examples
        --------
        >>> Spatial(0.1225, 0.78, 42.3, "km").sentence
        'nugget 0.1225 (noise sd 0.35), sill 0.9025 (field sd 0.8832), range 42.3 km (where the correlation is 0.05)'
        """
        of = "" if self.scale == "value" else f", of the {self.scale}"
        return (
            f"nugget {number(self.nugget)} (noise sd {number(math.sqrt(self.nugget))}), sill {number(self.sill)} "
            f"(field sd {number(math.sqrt(self.partial_sill))}), range {number(self.range)} {self.length_unit} "
            f"(where the correlation is {AT_RANGE:g}){of}"
        )

    def facts(self) -> dict[str, Any]:
        """Return plain numbers, and the sentence."""
        return {
            "nugget": self.nugget,
            "sill": self.sill,
            "range": self.range,
            "unit": self.length_unit,
            "scale": self.scale,
            "sentence": self.sentence,
        }


@dataclass(frozen=True, eq=False)
class Variogram:
    """The semivariances of measurements by distance, with those of the model that was fitted.

    Attributes
    ----------
    table : DataFrame
        ``distance`` over the plane (the mean of the pairs, in `spatial.length_unit`), ``semivariance`` (half the mean
        squared difference), ``pairs``, and ``model``: the fitted semivariance there. The first row has the pairs at one
        place, if there are any; bins without pairs are left out.
    spatial : Spatial
        Nugget, sill and range of the model.

    Notes
    -----
    The model's semivariance is that of open land. Around water two places can be near over the plane and far over land:
    where the observed semivariances of short distances lie above the line, the water may be why.
    """

    table: pd.DataFrame
    spatial: Spatial
    kernel: Kernel = field(repr=False)

    def model(self, distance: np.ndarray | float) -> np.ndarray:
        """Return the fitted semivariance at distances in `spatial.length_unit`."""
        away = 1.0 - self.kernel.correlation(distance)
        return np.asarray(self.spatial.nugget + self.spatial.partial_sill * away)

    @validated(ax=AXES)
    def plot(self, ax: Any = None) -> Any:
        """Draw the observed semivariances, sized by their pairs, and the fitted line with its nugget, sill and range.

        Returns
        -------
        Axes
        """
        from geobgp.output.figures import plot

        return plot(self, ax)

    def __str__(self) -> str:
        return f"Variogram: {self.spatial.sentence}\n{self.table.round(4).to_string(index=False)}"

    __repr__ = __str__


def semivariances(
    coords: np.ndarray, values: np.ndarray, edges: np.ndarray, group: np.ndarray | None = None
) -> pd.DataFrame:
    """Return mean distance, semivariance and number of the pairs at one place and between each two edges.

    Parameters
    ----------
    coords : (n, 2) array
    values : (n,) array
    edges : (k + 1,) array
        Ascending from 0; a pair at an edge belongs to the bin below.
    group : (n,) array, optional
        Only pairs of the same group count, such as those of one period.

    Examples
    --------
    >>> coords = np.array([[0.0, 0.0], [0.0, 0.0], [3.0, 4.0]])
    >>> semivariances(coords, np.array([1.0, 2.0, 4.0]), np.array([0.0, 6.0])).values.tolist()
    [[0.0, 0.5, 1.0], [5.0, 3.25, 2.0]]
    """
    sums = np.zeros((3, len(edges)))
    for apart, squares in _pairs(coords, values, float(edges[-1]), group):
        which = np.searchsorted(edges, apart, side="left")
        for total, weights in zip(sums, (apart, squares, None), strict=True):
            total += np.bincount(which, weights, len(edges))
    some = sums[2] > 0
    n = sums[2][some]
    return pd.DataFrame(
        {"distance": sums[0][some] / n, "semivariance": 0.5 * sums[1][some] / n, "pairs": n.astype(int)}
    )


def _pairs(
    coords: np.ndarray, values: np.ndarray, cutoff: float, group: np.ndarray | None
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield distances and squared differences of all pairs up to a cutoff, block by block from south to north."""
    order = np.argsort(coords[:, 1], kind="stable")
    xy, z = coords[order], values[order]
    of = None if group is None else group[order]
    ends = np.searchsorted(xy[:, 1], xy[:, 1] + cutoff, side="right")
    start = 0
    while start < len(xy):
        stop = min(start + max(_BLOCK // int(ends[start] - start), 1), len(xy))
        last = int(ends[stop - 1])
        apart = cdist(xy[start:stop], xy[start:last])
        keep = (apart <= cutoff) & (np.arange(last - start) > np.arange(stop - start)[:, None])
        if of is not None:
            keep &= of[start:stop, None] == of[start:last]
        squares = np.square(z[start:stop, None] - z[start:last])
        yield apart[keep], squares[keep]
        start = stop


def spatial(posterior: Posterior) -> Spatial | None:
    """Return nugget, sill and range of a posterior of values; None of other families."""
    if posterior.likelihood.dispersion != "noise":
        return None
    scale, unit = posterior.domain.length_unit
    names = {"exp": "logarithm", "square": "square root"}
    return Spatial(
        nugget=float(sum(s.weight * s.noise**2 for s in posterior.fit.states)),
        partial_sill=posterior.sd**2,
        range=_range(posterior.kernel.with_parameters(1.0, 1.0)) * posterior.lengthscale / scale,
        length_unit=unit,
        scale=names.get(posterior.link.name, "value"),
    )


@cache
def _range(kernel: Kernel) -> float:
    """Return the distance at which the correlation of a kernel with the lengthscale 1 is `AT_RANGE`."""
    return float(brentq(lambda r: float(kernel.correlation(r)) - AT_RANGE, 1e-12, 1e3, rtol=1e-6))


def variogram(
    posterior: Posterior,
    coords: np.ndarray,
    values: np.ndarray,
    columns: np.ndarray | None = None,
    *,
    bins: int = 15,
    cutoff: float | None = None,
    group: np.ndarray | None = None,
) -> Variogram:
    """Return the variogram of measured values on the scale that is modelled, less their fixed effects.

    Parameters
    ----------
    posterior : Posterior
    coords : (n, 2) array
        In the domain's CRS, on land.
    values : (n,) array
    columns : (n, k) array, optional
        Fixed effects there, standardised; by default those of the nodes.
    bins : int
    cutoff : float, optional
        In the unit that lengths are shown in; by default a third of the diagonal of the places.
    group : (n,) array, optional
        Only pairs of the same group count; over periods the period of each value.
    """
    fitted = spatial(posterior)
    if fitted is None:
        raise DataError(
            f"A variogram is of measured values; this map has a {posterior.likelihood.name} likelihood.",
            found=posterior.likelihood.name,
        )
    if len(values) < 2:
        raise DataError(f"A variogram needs at least two values; found {len(values)}.", found=len(values))
    residuals = np.array(posterior.link.forward(np.asarray(values, float)))
    maps = [(posterior, np.arange(len(values)))]
    if posterior.periods is not None:
        maps = [(posterior.at(t), np.flatnonzero(group == t)) for t in range(posterior.n_periods)]
    for one, which in maps:
        states: tuple[Any, ...] = tuple(one.fit.states)
        for state in states:
            fixed = state.fixed[posterior.domain.node_at(coords[which])] if columns is None else columns[which]
            residuals[which] -= state.weight * (fixed @ state.beta)
    scale = posterior.domain.length_unit[0]
    xy = np.asarray(coords, float) / scale
    most = float(np.hypot(*np.ptp(xy, axis=0))) / 3.0 if cutoff is None else cutoff
    table = semivariances(xy, residuals, np.linspace(0.0, most or 1.0, bins + 1), group)
    kernel = posterior.kernel.with_parameters(posterior.lengthscale / scale, posterior.sd)
    out = Variogram(table, fitted, kernel)
    table["model"] = out.model(table["distance"].to_numpy())
    table.attrs["units"] = {"distance": fitted.length_unit, "semivariance": f"square of the {fitted.scale}"}
    return out
