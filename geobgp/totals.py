"""Totals: the expected number of events in regions, with intervals from the joint posterior."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from geobgp.data.areas import observed_in
from geobgp.data.counts import Counts, bin_points
from geobgp.errors import DataError
from geobgp.inference.mixture import check_probabilities, quantile_name
from geobgp.land.regions import (
    count_inside,
    poisson_quantile,
    read_regions,
    sum_samples,
    table,
)
from geobgp.privacy import hide_regions
from geobgp.units import RELATIVE_RISK, RISKS

if TYPE_CHECKING:
    import geopandas as gpd

    from geobgp.data.periods import Periods
    from geobgp.land.domain import Domain
    from geobgp.posterior import Posterior

#: Share of a region's land that lies in areas with counts, below which its number of events is not known.
COUNTED_LAND = 0.95
#: Shares of a node below this, or this near to 1, are rounding errors of borders.
_SLIVER = 1e-6


def totals(
    posterior: Posterior,
    regions: Any,
    *,
    by: str | None,
    points: Any,
    quantiles: Sequence[float] | None,
    predicted: bool,
    n_samples: int,
    seed: int,
) -> gpd.GeoDataFrame:
    """Return the expected number of events in regions; see `Posterior.totals`."""
    if posterior.exposure_kind == "observation":
        raise DataError("totals() belongs to counts on a domain (LGCP); this fit has counts at locations.")
    chances = check_probabilities(posterior.quantiles if quantiles is None else quantiles)
    domain = posterior.domain
    frame = read_regions(regions, domain, by=by)
    inside = posterior._within(frame)
    shares, weights = inside.shares, inside.exposure(posterior.exposure)
    sums = sum_samples(posterior.sample_blocks(n_samples, seed), weights)
    exposed = np.asarray(weights.sum(axis=1)).ravel()
    columns = {} if posterior.exposure_kind == "area" else {"exposure": exposed}
    columns |= observed_inside(posterior, frame, shares, points)
    columns |= {"expected": weights @ posterior._nodes.exp_mean(), "sd": sums.std(axis=0, ddof=1)}
    columns |= {quantile_name(q): np.quantile(sums, q, axis=0) for q in chances}
    columns |= rates(posterior, columns, exposed, chances)
    average = 1.0 if posterior.exposure_kind in RISKS else posterior._overall
    columns["p_above"] = np.where(exposed > 0, (sums > average * exposed).mean(axis=0), np.nan)
    if posterior.effort is not None:
        weights = inside.exposure(posterior.exposure, posterior.effort)
        sums = sum_samples(posterior.sample_blocks(n_samples, seed), weights)
        columns |= {"reported": weights @ posterior._nodes.exp_mean()}
    if predicted:
        means = _scattered(posterior, sums, weights, n_samples, seed)
        columns |= {f"predicted_{quantile_name(q)}": poisson_quantile(means, q) for q in chances}
    made = hide_regions(
        table(frame, shares, domain, columns), posterior, shares, list(columns), resting_on(columns)
    )
    made.attrs["units"] = posterior.units
    return made


def resting_on(columns: dict[str, np.ndarray]) -> np.ndarray:
    """Return on how many events expected numbers rest, as a Poisson count of as many is sure."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray((columns["expected"] / columns["sd"]) ** 2)


def observed_inside(
    posterior: Posterior, frame: gpd.GeoDataFrame, shares: Any, points: Any
) -> dict[str, np.ndarray]:
    """Return the column ``observed`` of regions, (periods and) regions in one line: the events truly inside each.

    Where the points lie tells: those given, or those that the posterior keeps in memory. Without them the counts of
    nodes tell, but for regions whose border cuts a node with events; and counts by area, of regions made of areas
    that leave out less than 5 % of the region's land.
    What cannot be known is NaN, and there is no such column where that is all.
    """
    if points is None and "observed" in frame:
        return {}
    domain, periods = posterior.domain, getattr(posterior, "periods", None)
    places = posterior.places if points is None else _placed(points, domain, periods)
    if places is not None:
        if periods is None:
            return {"observed": count_inside(domain, frame, places)}
        of_period = (places[places[:, 3] == t, :3] for t in range(periods.n))
        return {"observed": np.concatenate([count_inside(domain, frame, some) for some in of_period])}
    if posterior.observed is not None:
        found = _of_whole_nodes(np.atleast_2d(posterior.observed), shares)
    elif posterior.areas is not None and posterior.areas.located is None:
        found = np.where(_counted_land(posterior, shares), observed_in(posterior.areas, frame), np.nan)
    else:
        return {}
    return {"observed": found.ravel()} if np.isfinite(found).any() else {}


def _counted_land(posterior: Posterior, shares: Any) -> np.ndarray:
    """Whether (nearly) all the land of each region lies in an area whose events were counted."""
    assert posterior.areas is not None
    land = posterior.domain.node_areas
    counted = np.minimum(np.asarray(posterior.areas.shares.sum(axis=0)).ravel(), 1.0) * land
    return np.asarray(shares @ counted >= COUNTED_LAND * (shares @ land))


def _of_whole_nodes(observed: np.ndarray, shares: Any) -> np.ndarray:
    """Return the events (periods, nodes) on the nodes of regions; NaN where a border cuts a node that has some."""
    parts = shares.tocsr(copy=True)
    cut = parts.copy()
    cut.data = ((parts.data > _SLIVER) & (parts.data < 1.0 - _SLIVER)).astype(float)
    parts.data = np.round(parts.data)
    unknown = np.asarray((cut @ (observed > 0).T.astype(float)).T) > 0
    return np.where(unknown, np.nan, np.asarray((parts @ observed.T).T))


def rates(
    posterior: Posterior, columns: dict[str, np.ndarray], exposed: np.ndarray, chances: Sequence[float]
) -> dict[str, np.ndarray]:
    """Return rates in the units that are shown, and relative risks where they are of people, with quantiles."""
    kinds = {} if posterior.quantity == RELATIVE_RISK else {"rate": posterior.shown.factor}
    if posterior.exposure_kind in RISKS:
        kinds["relative_risk"] = 1.0
    elif posterior.exposure_kind != "area":
        kinds["relative_risk"] = 1.0 / posterior._overall
    per = np.where(exposed > 0, exposed, np.nan)
    found: dict[str, np.ndarray] = {}
    for name, factor in kinds.items():
        found[name] = factor * columns["expected"] / per
        found |= {f"{name}_{quantile_name(q)}": factor * columns[quantile_name(q)] / per for q in chances}
    return found


def _placed(points: Any, domain: Domain, periods: Periods | None = None) -> np.ndarray:
    """Return easting, northing and weight of points, those off the land as `bin_points` moves them; and the period."""
    own = getattr(points, "periods", None)
    if periods is not None and (own is None or not periods.same_as(own)):
        found = type(points).__name__ if own is None else own.words()
        raise DataError(
            f"Points over time are counted by the periods of the map, {periods.words()}; found {found}.",
            option="points",
            found=found,
            remedy="Count them with bin_points(points, domain, time=..., every=..., keep_coordinates=True).",
        )
    counts = points if isinstance(points, Counts) else bin_points(points, domain, keep_coordinates=True)
    if counts.counted is None:
        raise DataError(
            "These counts do not know where their points lay.",
            option="points",
            remedy="Give the points, or count them with bin_points(..., keep_coordinates=True).",
        )
    return counts.counted


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
