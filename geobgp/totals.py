"""Totals: the expected number of events in regions, with intervals from the joint posterior."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from geobgp.errors import DataError
from geobgp.inference.mixture import check_probabilities, quantile_name
from geobgp.land.regions import area_shares, poisson_quantile, read_regions, sum_samples, table

if TYPE_CHECKING:
    import geopandas as gpd

    from geobgp.posterior import Posterior


def totals(
    posterior: Posterior,
    regions: Any,
    *,
    quantiles: Sequence[float],
    predicted: bool,
    n_samples: int,
    seed: int,
) -> gpd.GeoDataFrame:
    """Return the expected number of events in regions; see `Posterior.totals`."""
    if posterior.exposure_kind == "observation":
        raise DataError("totals() belongs to counts on a domain (LGCP); this fit has counts at locations.")
    chances = check_probabilities(quantiles)
    frame = read_regions(regions, posterior.domain)
    shares = area_shares(posterior.domain, frame)
    weights = shares.multiply(posterior.exposure).tocsr()
    sums = sum_samples(posterior.sample_blocks(n_samples, seed), weights)
    columns = {} if posterior.exposure_kind == "area" else {"exposure": shares @ posterior.exposure}
    columns |= {"expected": weights @ posterior._nodes.exp_mean(), "sd": sums.std(axis=0, ddof=1)}
    columns |= {quantile_name(q): np.quantile(sums, q, axis=0) for q in chances}
    if posterior.quantity == "relative risk":
        exposed = np.where(columns["exposure"] > 0, columns["exposure"], np.nan)
        columns |= {"relative_risk": columns["expected"] / exposed}
        columns |= {f"relative_risk_{quantile_name(q)}": columns[quantile_name(q)] / exposed for q in chances}
    if posterior.effort is not None:
        weights = shares.multiply(posterior.seen_exposure).tocsr()
        sums = sum_samples(posterior.sample_blocks(n_samples, seed), weights)
        columns |= {"reported": weights @ posterior._nodes.exp_mean()}
    if predicted:
        means = _scattered(posterior, sums, weights, n_samples, seed)
        columns |= {f"predicted_{quantile_name(q)}": poisson_quantile(means, q) for q in chances}
    return table(frame, shares, posterior.domain, columns)


def _scattered(posterior: Posterior, sums: np.ndarray, weights: Any, n_samples: int, seed: int) -> np.ndarray:
    """Return means about which counts in regions are Poisson: more spread than sums of intensities, or the same."""
    likelihood = posterior.likelihood
    rng = np.random.default_rng([seed, 1])
    by_region = likelihood.scatter(sums.shape, rng)
    if by_region is None:
        return sums
    if posterior.areas is not None:
        return np.asarray(sums * by_region)
    blocks = posterior.sample_blocks(n_samples, seed)
    return sum_samples((b * likelihood.scatter(b.shape, rng) for b in blocks), weights)
