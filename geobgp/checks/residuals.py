"""Does the map agree with the points? Observed against expected, by piece of land and by block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import scipy.sparse as sp
from scipy.special import pdtr

from geobgp.inference.mixture import INTERVAL, predicted_ends, within
from geobgp.text import percent, whole_percent

if TYPE_CHECKING:
    from geobgp.land.domain import Domain
    from geobgp.posterior import Posterior

#: Joint samples behind the intervals, and how many are held at a time.
SAMPLES, _BLOCK = 300, 50
#: Blocks are sized to hold about this many points each; there are no more than so many of them.
POINTS_PER_BLOCK, MOST_BLOCKS = 25, 150
#: Separate pieces of land that get a row of their own.
MOST_PARTS = 10


@dataclass(frozen=True, eq=False)
class Checks:
    """Observed and expected numbers of events.

    Attributes
    ----------
    parts : DataFrame
        One row per separate piece of land, the largest first (small ones together in the last row), and their
        sum: land, observed, expected, and the predictive interval of the number observed (``predicted_q05``, ...).
    blocks : DataFrame
        The same for squares of `side` by `side`, with ``row`` and ``col``, the Pearson residual and the
        randomised PIT value of each.
    block_of : (n_nodes,) int array
        The row of `blocks` that each node belongs to.
    side : float
        Side of a block in metres (the domain's unit).
    covered : float
        Share of blocks whose PIT value lies within the interval: its probability would be nominal for new data.
    dispersion : float
        Mean squared Pearson residual of the blocks: 1 for Poisson noise around a known intensity.
    empty_observed, empty_expected : float
        Share of nodes without an event, observed and as the model has it.
    interval : float
        Probability of the predictive intervals.
    """

    parts: pd.DataFrame
    blocks: pd.DataFrame
    block_of: np.ndarray
    side: float
    covered: float
    dispersion: float
    empty_observed: float
    empty_expected: float
    interval: float = INTERVAL

    def verdict(self) -> tuple[bool, str]:
        """Return whether the checks are fine, and in words what they say."""
        blocks = f"{percent(self.covered)} of {len(self.blocks):,} blocks"
        share = f"{blocks} lie within their {whole_percent(self.interval)} predictive interval"
        if self.covered < 2.0 * self.interval - 1.0:
            return False, (
                f"Only {share}: the events are more clustered than the map can follow. Try full resolution "
                "or smaller cells, and check for many events on one spot."
            )
        return True, f"{share}. The same points made the map, so rather more is to be expected."


def check(posterior: Posterior, counts: np.ndarray, *, seed: int = 0) -> Checks:
    """Compare a fit with the counts that it was fitted to.

    Parameters
    ----------
    posterior : Posterior
        Of counts on a domain.
    counts : (n_nodes,) array
    seed : int
        Of the joint samples and of the randomised PIT.
    """
    domain = posterior.domain
    values = np.asarray(counts, float)
    part, n_parts = _ranked_parts(domain)
    block_of, places, side = _blocks(domain, values.sum())
    groups = [(part, n_parts), (block_of, len(places)), (np.zeros(domain.n_nodes, int), 1)]
    gather = sp.csr_array(
        sp.vstack(
            [
                sp.csr_array((posterior.seen_exposure, (g, np.arange(len(g)))), shape=(n, len(g)))
                for g, n in groups
            ]
        )
    )
    rng = np.random.default_rng(seed)
    sums, empty = _sample_sums(posterior, gather, rng)
    observed = np.concatenate([np.bincount(g, values, n) for g, n in groups])
    table = _compare(observed, sums, posterior.interval, rng)
    parts = table.iloc[:n_parts].copy()
    areas = np.bincount(part, domain.node_areas, n_parts) / domain.area_unit[0]
    parts.insert(0, "land", areas)
    total = table.iloc[[-1]].copy()
    total.insert(0, "land", areas.sum())
    blocks = table.iloc[n_parts:-1].reset_index(drop=True)
    blocks.insert(0, "row", places[:, 0])
    blocks.insert(1, "col", places[:, 1])
    inside = within(blocks["pit"], posterior.interval)
    return Checks(
        parts=pd.concat([parts, total], ignore_index=True),
        blocks=blocks,
        block_of=block_of,
        side=side,
        covered=float(inside.mean()),
        dispersion=float(np.mean(blocks["residual"] ** 2)),
        empty_observed=float((values == 0).mean()),
        empty_expected=empty,
        interval=posterior.interval,
    )


def _ranked_parts(domain: Domain) -> tuple[np.ndarray, int]:
    """Return a label per node: separate pieces of land by size, the small ones together in the last."""
    area = np.bincount(domain.components, domain.node_areas)
    rank = np.empty(len(area), np.int64)
    rank[np.argsort(-area, kind="stable")] = np.arange(len(area))
    most = len(area) if len(area) <= MOST_PARTS + 1 else MOST_PARTS + 1
    return np.minimum(rank, most - 1)[domain.components], most


def _blocks(domain: Domain, total: float) -> tuple[np.ndarray, np.ndarray, float]:
    """Return a block per node, (row, col) of every block, and their side."""
    wanted = float(np.clip(total / POINTS_PER_BLOCK, 4, MOST_BLOCKS))
    cells = domain.node_areas.sum() / np.median(domain.node_areas)
    k = max(1, round(float(np.sqrt(cells / wanted))))
    rows, cols = domain.node_rows // k, domain.node_cols // k
    width = int(cols.max()) + 1
    code, block_of = np.unique(rows * width + cols, return_inverse=True)
    return block_of, np.column_stack(np.divmod(code, width)), k * domain.cell_size


def _sample_sums(
    posterior: Posterior, gather: sp.csr_array, rng: np.random.Generator
) -> tuple[np.ndarray, float]:
    """Return (SAMPLES, groups) expected numbers from joint samples, and the expected share of empty nodes."""
    out, empty = [], 0.0
    for _ in range(SAMPLES // _BLOCK):
        draws = np.concatenate(list(posterior.sample_blocks(_BLOCK, rng)))
        scatter = posterior.likelihood.scatter(draws.shape, rng)
        draws = draws if scatter is None else draws * scatter
        out.append((gather @ draws.T).T)
        empty += float(np.exp(-draws * posterior.seen_exposure).mean()) * _BLOCK / SAMPLES
    return np.concatenate(out), empty


def _compare(
    observed: np.ndarray, sums: np.ndarray, interval: float, rng: np.random.Generator
) -> pd.DataFrame:
    mean = sums.mean(axis=0)
    predicted = rng.poisson(np.minimum(sums, 1e15))
    below, upto = _cdf(observed - 1, sums), _cdf(observed, sums)
    with np.errstate(divide="ignore", invalid="ignore"):
        residual = np.where(mean > 0, (observed - mean) / np.sqrt(mean), 0.0)
    columns = {"observed": observed, "expected": mean} | predicted_ends(predicted, interval)
    columns |= {"residual": residual}
    return pd.DataFrame(columns | {"pit": below + rng.random(len(observed)) * (upto - below)})


def _cdf(count: np.ndarray, rates: np.ndarray) -> np.ndarray:
    """Return the predictive probability of at most `count`: a mixture of Poissons."""
    return np.where(count >= 0, pdtr(np.maximum(np.floor(count), 0.0), rates), 0.0).mean(axis=0)
