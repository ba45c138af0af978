"""Areas left out: each predicted from all other observations, without new fits."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import geopandas as gpd
import numpy as np
import pandas as pd
from scipy.special import gammaln, logsumexp, pdtr, xlogy

from geobgp.checks.crossval import CrossValidation
from geobgp.data.combined import Combined, combine
from geobgp.errors import DataError, option
from geobgp.inference.leave_out import JointNormal, LeftOut, leave_out
from geobgp.inference.mixture import predicted_ends
from geobgp.inference.rows import row_weights

if TYPE_CHECKING:
    from geobgp.posterior import Posterior

#: Draws behind the predicted number of events in an area.
DRAWS = 1000


def cross_validate_areas(
    posterior: Posterior, blocks: Any = "auto", buffer: float = 0.0, *, seed: int = 0
) -> CrossValidation:
    """Leave out each area whose number is told; see `Posterior.cross_validate`.

    Other observations are held, and so is how people and their risks are spread within the area.
    """
    if not (isinstance(blocks, str) and blocks == "auto") or buffer:
        raise DataError(
            "A fit of counts by area is checked by leaving out its areas, one by one.",
            option="blocks",
            remedy=f"Leave {option('blocks')} and {option('buffer')} out.",
        )
    begin, areas, domain = time.perf_counter(), posterior.areas, posterior.domain
    assert areas is not None
    seen = combine(areas, posterior.exposure, posterior.effort)
    told = np.flatnonzero((seen.area >= 0) & ~seen.hidden)
    if len(told) < 2 or seen.counts.sum() < 2:
        raise DataError(
            f"Areas are predicted from others: at least two with a number, and two events, are needed; found "
            f"{len(told)} and {seen.counts.sum():g}.",
            option="areas",
            found=len(told),
        )
    rows = _predicted(posterior, seen, told, np.random.default_rng(seed))
    mine = seen.area[told]
    shares = areas.shares[mine]
    table = pd.DataFrame(rows, index=[areas.names[i] for i in mine])
    name = "land_area" if domain.crs is None else "land_km2"
    table.insert(0, name, (shares @ domain.node_areas) / domain.area_unit[0])
    frame = gpd.GeoDataFrame(table, geometry=list(areas.geometry[mine]), crs=areas.crs)
    if domain.crs is not None:
        frame = frame.to_crs(domain.crs)
    frame.index.name = "block"
    entries = shares.tocoo()
    order, owner = np.argsort(entries.data, kind="stable"), np.full(domain.n_nodes, -1)
    owner[entries.col[order]] = entries.row[order]
    seconds = time.perf_counter() - begin
    return CrossValidation(frame, owner, domain, None, 0.0, seconds, "areas", posterior=posterior)


def _predicted(
    posterior: Posterior, seen: Combined, told: np.ndarray, rng: np.random.Generator
) -> list[dict[str, float]]:
    """Return what is predicted for each area, and how well."""
    counts, weights, states = seen.counts[told], seen.exposure[told], posterior.fit.states
    found: list[list[LeftOut]] = []
    for state in states:
        node_mean, node_variance = state.node_moments()
        rows, log_total = row_weights(weights, node_mean, node_variance)
        variance = state.moments_of(rows)[1]  # type: ignore[attr-defined]
        mean = log_total - 0.5 * variance
        found.append([_without(posterior, *one) for one in zip(mean, variance, counts, strict=True)])
    log_share = np.log([state.weight for state in states])
    even = np.asarray(weights.sum(axis=1)).ravel() * float(seen.counts.sum() / seen.exposure.sum())
    table = []
    for k, y in enumerate(counts):
        each = [one[k] for one in found]
        # Without the area, the hyperparameters that it spoke for weigh less: p(y | rest) = 1 / E 1 / p(y | rest, θ).
        logs = log_share - [one.log_score for one in each]
        score = float(logsumexp(log_share) - logsumexp(logs))
        several = rng.multinomial(DRAWS, np.exp(logs - logsumexp(logs)))
        drawn = [one.predicted.draw(n, rng)[:, 0] for one, n in zip(each, several, strict=True)]
        with np.errstate(over="ignore"):
            rates = np.exp(np.concatenate(drawn))
        scatter = posterior.likelihood.scatter(rates.shape, rng)
        rates = np.minimum(rates if scatter is None else rates * scatter, 1e15)
        ends = predicted_ends(rng.poisson(rates), posterior.interval)
        below, upto = (float(pdtr(np.floor(n), rates).mean()) if n >= 0 else 0.0 for n in (y - 1.0, y))
        table.append({
            "observed": float(y), "expected": float(rates.mean()), **ends,
            "pit": below + rng.random() * (upto - below), "log_density": score,
            "score": score - float(xlogy(y, even[k]) - even[k] - gammaln(y + 1.0)),
        })  # fmt: skip
    return table


def _without(posterior: Posterior, mean: float, variance: float, y: float) -> LeftOut:
    """Return what is said of an area, of which mean and variance of the log of its expected count are known."""
    at = JointNormal(np.array([mean]), np.array([[variance]]))
    likelihood = posterior.likelihood.of(np.array([y]), np.ones(1))
    return leave_out(at, lambda which: likelihood, 1, 1, 0)
