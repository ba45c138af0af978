"""Counts at nodes and by area as rows of one likelihood, in which nobody is counted twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import geopandas as gpd
import numpy as np
import pandas as pd
from scipy import sparse
from scipy.special import logsumexp
from scipy.stats import poisson

from geobgp.data.areas import AreaCounts, these
from geobgp.errors import DataError, option

if TYPE_CHECKING:
    from geobgp.data.counts import Counts

#: Exposure of an area, as a share of what areas have on average, that is a rounding error.
_NOBODY = 1e-9


@dataclass(frozen=True, eq=False)
class Combined:
    """Counts at nodes and of areas as rows of one likelihood.

    Attributes
    ----------
    counts : (n,) array
        With a number in the middle where they are hidden.
    exposure : (n, n_nodes) csr_array
        The exposure of every node behind each count.
    hidden : (n,) bool array
    interval : (int, int)
    area : (n,) int array
        The area that each row is of; -1 for located events.
    """

    counts: np.ndarray
    exposure: sparse.csr_array
    hidden: np.ndarray
    interval: tuple[int, int]
    area: np.ndarray


def combine(areas: AreaCounts, exposure: np.ndarray, effort: np.ndarray | None = None) -> Combined:
    """Return the rows of a likelihood for areas, and for points whose place is known besides.

    Areas count the events that have no place of their own. Of an area with g events of known place among n a share
    g / n of its exposure stands behind the former and the rest behind the latter, so that nobody is counted twice. What
    share it is does not change what the data say of the map.

    Parameters
    ----------
    areas : AreaCounts
        With its `located` events, and its part of every node's exposure.
    exposure : (n_nodes,) array
    effort : (n_nodes,) array, optional
        With it only the exposure behind the events that get reported counts.

    Returns
    -------
    Combined
        The located events first, if there are any, node by node.
    """
    values, shares = areas.guessed, areas.shares
    low = 0 if areas.suppressed is None else areas.suppressed[0]
    seen = areas.within.exposure(exposure, effort)
    exposed = np.asarray(seen.sum(axis=1)).ravel()
    events = np.where(areas.hidden, float(low), values) > 0
    nobody = ~(exposed > _NOBODY * exposed.mean())
    if (nobody & events).any():
        bad = nobody & events
        raise DataError(
            f"{these(bad, areas.names)} {'has' if bad.sum() == 1 else 'have'} events but no exposure: nobody lives "
            "there to whom they could happen.",
            option="exposure",
            found=[areas.names[i] for i in np.flatnonzero(bad)],
            remedy=f"Check {option('exposure')}, or leave these areas out.",
        )
    rest, located = np.ones(len(values)), areas.located
    if located is not None:
        inside = shares.sum(axis=0)
        if float(inside.max(initial=0.0)) > 1.0 + 1e-6:
            raise DataError(
                "Areas that overlap cannot be mapped together with points: whose events are they?",
                option="areas",
                found=float(inside.max()),
                remedy="Give areas that do not overlap.",
            )
        known = shares @ located
        rest = np.divide(values, values + known, out=np.ones(len(values)), where=values + known > 0)
    weights = sparse.csr_array(sparse.diags_array(rest) @ seen)
    keep = np.flatnonzero(~nobody)
    blocks, counts, hidden, area = [weights[keep]], [values[keep]], [areas.hidden[keep]], [keep]
    if located is not None:
        at_nodes = exposure if effort is None else exposure * effort
        behind = at_nodes - np.asarray(weights.sum(axis=0)).ravel()
        # Rounding leaves a trace where nothing is behind.
        behind = np.where(
            (located > 0) | (behind > 1e-9 * at_nodes), np.maximum(behind, 1e-12 * at_nodes), 0.0
        )
        blocks.insert(0, sparse.csr_array(sparse.diags_array(behind)))
        counts.insert(0, located)
        hidden.insert(0, np.zeros(len(located), bool))
        area.insert(0, np.full(len(located), -1))
    return Combined(
        np.concatenate(counts),
        sparse.csr_array(sparse.vstack(blocks)),
        np.concatenate(hidden),
        areas.suppressed or (0, 0),
        np.concatenate(area),
    )


def even_rate(seen: Combined) -> float:
    """Return the log-likelihood of counts with one rate everywhere."""
    expected = np.asarray(seen.exposure.sum(axis=1)).ravel() * float(seen.counts.sum() / seen.exposure.sum())
    log_p = poisson.logpmf(np.round(seen.counts), expected)
    # In logarithms: a hidden count of a large area can be next to impossible at one rate.
    each = np.arange(seen.interval[0], seen.interval[1] + 1)[:, None]
    log_p[seen.hidden] = logsumexp(poisson.logpmf(each, expected[seen.hidden]), axis=0)
    return float(np.sum(np.where(expected > 0, log_p, 0.0)))


def stack(several: Sequence[AreaCounts]) -> AreaCounts:
    """Return areas of several tables as one."""
    first = several[0]
    if len(several) == 1:
        return first
    if len({one.suppressed for one in several if one.hidden.any()}) > 1:
        raise DataError(
            "Suppressed counts of all areas must lie between the same numbers.", option="suppressed"
        )
    shares = sparse.csr_array(sparse.vstack([one.shares for one in several]))
    shapes = gpd.GeoSeries(
        pd.concat([gpd.GeoSeries(list(one.geometry), crs=one.crs).to_crs(first.crs) if first.crs is not None
                   else gpd.GeoSeries(list(one.geometry)) for one in several])
    )  # fmt: skip
    return AreaCounts(
        values=np.concatenate([one.values for one in several]),
        shares=shares,
        names=tuple(name for one in several for name in one.names),
        suppressed=next((one.suppressed for one in several if one.hidden.any()), first.suppressed),
        geometry=np.array(shapes.to_numpy(), dtype=object),
        crs=first.crs,
        covered=min(sum(one.covered for one in several), 1.0),
        n_off=sum(one.n_off for one in several),
        nodes=first.nodes,
    )


def sort_counts(given: Any) -> tuple[Counts | np.ndarray | None, AreaCounts | None]:
    """Return counts at the nodes and counts by area, of what was given to be fitted: either may be missing."""
    if isinstance(given, AreaCounts):
        return None, given
    several = isinstance(given, (list, tuple)) and any(hasattr(one, "n_used") for one in given)
    if not several:
        return given, None
    areas = [one for one in given if isinstance(one, AreaCounts)]
    points = [one for one in given if not isinstance(one, AreaCounts)]
    located = points[0] if points else None
    if len(points) > 1:
        located = np.sum([np.asarray(one, float) for one in points], axis=0)
    return located, stack(areas) if areas else None
