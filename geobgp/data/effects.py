"""Effects: covariates, from whatever they come as, to standardised columns at the nodes."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from geobgp.data.raster_in import read_to_nodes
from geobgp.errors import DataError, InputWarning, option, warn
from geobgp.text import number, percent

if TYPE_CHECKING:
    import xarray as xr

    from geobgp.land.domain import Domain

    Raster: TypeAlias = str | os.PathLike[str] | xr.DataArray
    Covariate: TypeAlias = np.ndarray | Callable[[np.ndarray], np.ndarray] | Raster

#: Correlation of two covariates from which on their separate effects are said to be hardly known.
_CORRELATED = 0.98


@dataclass(frozen=True, eq=False)
class Effects:
    """The fixed effects: what each covariate is called, how it was standardised, and its column at the nodes.

    Attributes
    ----------
    names : tuple of str
        Covariates, without the intercept.
    means, scales : (k,) arrays
        A covariate's standardised value is (own value - mean) / scale.
    columns : (n_nodes, 1 + k) array
        A column of ones and the standardised covariates; without rows where only their names are known.
    """

    names: tuple[str, ...] = ()
    means: np.ndarray = field(default_factory=lambda: np.zeros(0))
    scales: np.ndarray = field(default_factory=lambda: np.ones(0))
    columns: np.ndarray = field(default_factory=lambda: np.ones((0, 1)), repr=False)

    def standardise(self, values: Mapping[str, Any], n: int) -> np.ndarray:
        """Return (n, 1 + k): a column of ones and the standardised values of every covariate at n places."""
        missing = [name for name in self.names if name not in values]
        if missing:
            raise DataError(
                f"The model has the covariates {', '.join(self.names)}; {missing[0]!r} is not given.",
                option="covariates",
                found=missing,
            )
        own = np.array([np.broadcast_to(np.asarray(values[name], float), (n,)) for name in self.names])
        return np.column_stack([np.ones(n), (own.reshape(-1, n).T - self.means) / self.scales])

    def own_units(self, mean: np.ndarray, cov: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of intercept and slopes in the covariates' own units."""
        turn = self.to_own_units(len(mean))
        return turn @ mean, np.diag(turn @ cov @ turn.T)

    def to_own_units(self, k: int) -> np.ndarray:
        """Return the (k, k) matrix from standardised effects, the last k, to the covariates' own units."""
        turn = np.diag(np.r_[1.0, 1.0 / self.scales])
        turn[0, 1:] = -self.means / self.scales
        return turn[-k or len(turn) :, -k or len(turn) :]


def fixed_effects(
    covariates: Mapping[str, Covariate] | None,
    domain: Domain,
    fill_missing: Literal["mean"] | None = None,
) -> Effects:
    """Return the fixed effects of a model: an intercept and the standardised covariates.

    Parameters
    ----------
    covariates : mapping of name to array, callable or raster
        One value per node; or a callable that gets (n, 2) eastings and northings; or a raster, averaged by
        area.
    fill_missing : "mean", optional
        Give nodes without a value the mean of the others, with a warning that says how many; by default they
        are an error.
    """
    if fill_missing not in (None, "mean"):
        raise DataError(
            f"fill_missing is None or 'mean'; found {fill_missing!r}.",
            option="fill_missing",
            found=fill_missing,
        )
    weight = domain.node_areas / domain.node_areas.sum()
    values = {
        str(name): _covariate(str(name), value, domain, fill_missing)
        for name, value in dict(covariates or {}).items()
    }
    means = np.array([weight @ v for v in values.values()])
    scales = np.array([np.sqrt(weight @ np.square(v - v @ weight)) for v in values.values()])
    for name, mean, scale in zip(values, means, scales, strict=True):
        if not scale > 1e-10 * abs(mean):
            raise DataError(
                f"The covariate {name!r} is {number(mean)} on all of the land; it cannot be told from the "
                "intercept.",
                option="covariates",
                found=name,
                remedy="Leave it out.",
            )
    effects = Effects(tuple(values), means, scales)
    columns = effects.standardise(values, domain.n_nodes)
    _warn_correlated(effects.names, columns[:, 1:], weight)
    return replace(effects, columns=columns)


def _covariate(name: str, value: Any, domain: Domain, fill_missing: str | None) -> np.ndarray:
    if callable(value):
        out = np.asarray(value(domain.node_points), float)
    elif isinstance(value, (str, os.PathLike)) or hasattr(value, "dims"):
        out = read_to_nodes(value, domain, "mean")
    else:
        out = np.array(value, float)
    if out.shape != (domain.n_nodes,):
        raise DataError(
            f"The covariate {name!r} is one value per node, {domain.n_nodes:,}; found the shape {out.shape}.",
            option="covariates",
            found=out.shape,
        )
    missing = ~np.isfinite(out)
    gaps = int(missing.sum())
    if gaps == len(out):
        raise DataError(
            f"The covariate {name!r} has no value on this domain's land; check its place and CRS.",
            option="covariates",
            found=name,
        )
    if gaps:
        share = percent(domain.node_areas[missing].sum() / domain.node_areas.sum(), 2)
        text = f"The covariate {name!r} has no value at {gaps:,} of {len(out):,} nodes ({share} of land)"
        facts: dict[str, Any] = {"option": "covariates", "found": gaps}
        if fill_missing is None:
            remedy = f"Fill them, or ask for their mean with {option('fill_missing', 'mean')}."
            raise DataError(f"{text}.", remedy=remedy, **facts)
        warn(InputWarning(f"{text}; they are given the mean of the others.", **facts))
        out[missing] = np.average(out[~missing], weights=domain.node_areas[~missing])
    return out


def _warn_correlated(names: tuple[str, ...], standard: np.ndarray, weight: np.ndarray) -> None:
    correlation = (standard * weight[:, None]).T @ standard
    rows, cols = np.nonzero(np.triu(np.abs(correlation) > _CORRELATED, 1))
    for i, j in zip(rows, cols, strict=True):
        warn(
            InputWarning(
                f"The covariates {names[i]!r} and {names[j]!r} have a correlation of "
                f"{correlation[i, j]:.4f}: the data can hardly tell their effects apart, and their "
                "coefficients are uncertain.",
                option="covariates",
                found=float(correlation[i, j]),
                remedy="Leave one out, or combine them.",
            )
        )
