"""Ranks of regions: how probably each has the highest rate, is among the top, or lies above a reference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from geobgp.errors import DataError, option
from geobgp.inference.mixture import quantile_name
from geobgp.land.regions import read_regions, sum_samples, table
from geobgp.privacy import hide_regions

if TYPE_CHECKING:
    import geopandas as gpd

    from geobgp.posterior import Posterior


def ranks(
    posterior: Posterior,
    regions: Any,
    *,
    by: str | None = None,
    top: int = 3,
    reference: float | None = None,
    n_samples: int = 2000,
    seed: int = 0,
) -> gpd.GeoDataFrame:
    """Return the rate of every region, its rank and what is sure about it; see `Posterior.ranks`."""
    domain = posterior.domain
    frame = read_regions(regions, domain, by=by)
    if top > len(frame):
        raise DataError(
            f"{option('top')} is a whole number from 1 to the number of regions, {len(frame):,}; found {top!r}.",
            option="top",
            found=top,
        )
    inside = posterior._within(frame)
    shares = inside.shares
    weights = sp.csr_array(sp.vstack([inside.exposure(posterior.exposure), posterior.exposure[None, :]]))
    exposure = np.asarray(weights.sum(axis=1))
    factor = posterior.shown.factor
    with np.errstate(divide="ignore", invalid="ignore"):
        rates = factor * sum_samples(posterior.sample_blocks(n_samples, seed), weights) / exposure
        mean = (factor * (weights @ posterior._nodes.exp_mean()) / exposure)[:-1]
    rates, overall = rates[:, :-1], rates[:, -1:]
    ranked = exposure[:-1] > 0
    place = _places(rates, ranked)
    limit = overall if reference is None else float(reference)
    columns = {} if posterior.exposure_kind == "area" else {"exposure": exposure[:-1]}
    columns |= {"rate": mean}
    columns |= {f"rate_{quantile_name(q)}": np.quantile(rates, q, axis=0) for q in posterior.quantiles[::2]}
    columns |= {"rank": np.median(place, axis=0)}
    columns |= {f"rank_{quantile_name(q)}": _quantile(place, q) for q in posterior.quantiles[::2]}
    columns |= {
        "p_first": (place == 1).mean(axis=0),
        f"p_top{int(top)}": (place <= top).mean(axis=0),
        "p_above": (rates > limit).mean(axis=0),
    }
    columns = {name: np.where(ranked, values, np.nan) for name, values in columns.items()}
    with np.errstate(divide="ignore", invalid="ignore"):
        resting = (mean / rates.std(axis=0, ddof=1)) ** 2 if len(rates) > 1 else np.full(len(mean), np.nan)
    made = hide_regions(table(frame, shares, domain, columns), posterior, shares, list(columns), resting)
    made.attrs["units"] = posterior.units
    return made


def _places(rates: np.ndarray, ranked: np.ndarray) -> np.ndarray:
    """Return the place of every region in every sample, 1 for the highest; those not ranked come last."""
    order = np.argsort(np.where(ranked, -rates, np.inf), axis=1, kind="stable")
    place = np.empty(order.shape)
    np.put_along_axis(place, order, np.arange(1.0, order.shape[1] + 1)[None, :], axis=1)
    return place


def _quantile(place: np.ndarray, q: float) -> np.ndarray:
    return np.asarray(np.quantile(place, q, axis=0, method="inverted_cdf"))
