"""Privacy: cells and regions that rest on so few events or people that their numbers are not shown.

A cell with 1 to k - 1 events, or with fewer than k people where people are counted, has no number on maps, in rasters
and tables; nor has such a region. Cells without events keep theirs: what a map says of them is learned from others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from geobgp.errors import DataError, option
from geobgp.text import count

if TYPE_CHECKING:
    import geopandas as gpd
    import pandas as pd

    from geobgp.posterior import Posterior

#: Events of a region below this are rounding errors of shares.
_NONE = 1e-6


def protected(posterior: Posterior, min_count: int) -> Posterior:
    """Return a posterior whose maps and tables hide what rests on too few; see `Posterior.protected`."""
    from dataclasses import replace

    if posterior.observed is None and posterior.areas is None:
        raise DataError(
            f"{option('min_count')} hides what rests on few events, and this fit does not know its events.",
            option="min_count",
            remedy="Fit the counts again, or load a file that holds them.",
        )
    return replace(posterior, min_count=min_count)


def hidden_nodes(posterior: Posterior) -> np.ndarray:
    """Return whether the numbers of each node are hidden: those of its whole cell rest on too few."""
    domain, k = posterior.domain, posterior.min_count
    hidden = np.zeros(domain.n_nodes, bool)
    if not k:
        return hidden
    cell = np.asarray(domain.node_rows, np.int64) * domain.grid.shape[1] + domain.node_cols
    place = np.unique(cell, return_inverse=True)[1].ravel()
    amounts = [] if posterior.observed is None else [posterior.observed]
    amounts += [posterior.exposure] if posterior.exposure_kind == "population" else []
    for values in amounts:
        hidden |= _few(np.bincount(place, values), k)[place]
    if posterior.areas is not None:
        few = _few(posterior.areas.values, k)
        hidden |= np.asarray(posterior.areas.shares[few].sum(axis=0)).ravel() >= 0.5
    return hidden


def _few(values: np.ndarray, k: int) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        return np.asarray((values > _NONE) & (values < k - _NONE))


def without_hidden(posterior: Posterior, values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return values at the nodes, NaN where they are hidden."""
    if not posterior.min_count:
        return values
    hidden = hidden_nodes(posterior)
    return {name: np.where(hidden, np.nan, array) for name, array in values.items()}


def hide_rows(frame: pd.DataFrame, posterior: Posterior, node: np.ndarray | None = None) -> pd.DataFrame:
    """Hide rows of a table by node, or by the nodes (-1: none) that its places lie on."""
    if posterior.min_count:
        hidden = hidden_nodes(posterior)
        frame.loc[hidden if node is None else (node >= 0) & hidden[node], :] = np.nan
    return frame


def hide_regions(
    frame: gpd.GeoDataFrame, posterior: Posterior, shares: Any, columns: Sequence[str]
) -> gpd.GeoDataFrame:
    """Hide the numbers of regions that rest on too few; a column ``hidden`` says which."""
    k = posterior.min_count
    if not k:
        return frame
    hidden = np.zeros(len(frame), bool)
    if "observed" in frame:
        hidden |= _few(frame["observed"].to_numpy(float), k)
    elif posterior.observed is not None:
        hidden |= _few(shares @ posterior.observed, k)
    if posterior.exposure_kind == "population":
        hidden |= _few(shares @ posterior.exposure, k)
    for name in {*columns, "observed"} & set(frame.columns):
        frame[name] = np.where(hidden, np.nan, frame[name].to_numpy(float))
    frame["hidden"] = hidden
    return frame


def in_words(posterior: Posterior) -> tuple[str, str]:
    """Return what is hidden, and why, for reports."""
    domain = posterior.domain
    cells = np.unique(np.column_stack([domain.node_rows, domain.node_cols])[hidden_nodes(posterior)], axis=0)
    all_cells = int((domain.coverage > 0).sum())
    people = " or people" if posterior.exposure_kind == "population" else ""
    return (
        f"{len(cells):,} of {count(all_cells, 'cell')} without numbers",
        f"they rest on fewer than {posterior.min_count} events{people}; regions likewise, and no posterior is written",
    )
