"""Persons left out: the cases among those of a block, predicted from all other persons without new fits."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import geopandas as gpd
import numpy as np
import pandas as pd
from scipy.special import expit, gammaln, logsumexp, xlogy

from geobgp.checks.blocks import Blocks, make_blocks
from geobgp.checks.crossval import (
    AUTO_NODES,
    MOST_NODES,
    NEIGHBOURS,
    CrossValidation,
    check_size,
    left_out_groups,
)
from geobgp.errors import DataError, option
from geobgp.inference.binomial import Binomial
from geobgp.inference.leave_out import ROUNDS, JointNormal, LeftOut, leave_out
from geobgp.inference.mixture import predicted_ends

if TYPE_CHECKING:
    from geobgp.data.persons import Groups
    from geobgp.posterior import Posterior

#: Joint draws behind the predicted number of cases in a block, and numbers drawn from each.
DRAWS, EACH = 400, 5


def cross_validate_persons(
    posterior: Posterior, blocks: Any = "auto", buffer: float = 0.0, *, rounds: int = ROUNDS, seed: int = 0
) -> CrossValidation:
    """Leave out the persons of blocks in turn; see `Posterior.cross_validate`.

    Where persons live is taken as it is: the number of cases among those of a block is predicted, and who of them
    they are is scored. Blocks without persons are none.
    """
    from threadpoolctl import threadpool_limits

    begin, domain = time.perf_counter(), posterior.domain
    groups = _known(posterior)
    if not isinstance(blocks, Blocks):
        blocks = make_blocks(blocks, posterior, min(AUTO_NODES, MOST_NODES), buffer, groups.node)
    made = _with_persons(blocks, groups)
    rng = np.random.default_rng(seed)
    by_node = np.argsort(groups.node, kind="stable")
    first, last = (
        np.searchsorted(groups.node[by_node], np.arange(domain.n_nodes), side) for side in ("left", "right")
    )

    def of_nodes(nodes: np.ndarray) -> np.ndarray:
        return np.concatenate([by_node[:0], *(by_node[first[i] : last[i]] for i in nodes)])

    with threadpool_limits(limits=1, user_api="blas"):
        rows = [
            _row(posterior, groups, [of_nodes(part) for part in parts], rng, rounds)
            for parts in left_out_groups(domain, made, buffer, rounds)
        ]
    table = pd.DataFrame(rows, index=made.labels)
    land = np.bincount(made.of[made.of >= 0], domain.node_areas[made.of >= 0], len(made))
    table.insert(0, "land_area" if domain.crs is None else "land_km2", land / domain.area_unit[0])
    frame = gpd.GeoDataFrame(table, geometry=made.geometry, crs=domain.crs)
    frame.index.name = "block"
    seconds = time.perf_counter() - begin
    return CrossValidation(
        frame, made.of, domain, made.side, float(buffer), seconds, events="cases", posterior=posterior,
        wanted_side=made.wanted,
    )  # fmt: skip


def _known(posterior: Posterior) -> Groups:
    groups = posterior.persons
    if groups is None:
        raise DataError(
            "Persons cannot be left out: this map of risk does not know them. Files keep none with confounders.",
            remedy="Call cross_validate() on what map_risk returns, before it is saved.",
        )
    n_cases, n = float(groups.cases.sum()), float(groups.persons.sum())
    if n_cases < 2 or n - n_cases < 2:
        raise DataError(
            f"Cross-validation predicts persons from others: at least two cases and two controls are needed; found "
            f"{n_cases:g} and {n - n_cases:g}.",
            found=n_cases,
        )
    return groups


def _with_persons(blocks: Blocks, groups: Groups) -> Blocks:
    """Return the blocks in which somebody lives."""
    at = blocks.of[groups.node]
    held = np.unique(at[at >= 0])
    if len(held) < 2:
        raise DataError(
            f"{option('blocks')}: {len(held)} of them hold persons; at least two are needed.",
            option="blocks",
            found=len(held),
            remedy="Make them smaller.",
        )
    place = np.full(len(blocks) + 1, -1)
    place[held] = np.arange(len(held))
    return Blocks(blocks.labels[held], place[blocks.of], blocks.geometry[held], blocks.side, blocks.wanted)


def _row(
    posterior: Posterior, groups: Groups, parts: list[np.ndarray], rng: np.random.Generator, rounds: int
) -> dict[str, float]:
    """Return what is predicted for a block, and how well; parts are the groups of block, strip and neighbours."""
    mine, strip, near = parts
    near = near[: max(NEIGHBOURS, (len(mine) + len(strip)) // 2)]
    who = np.concatenate([mine, strip, near])
    check_size(len(mine) + len(strip), "persons")
    offset = posterior.likelihood.facts()["offset"]
    states = posterior.fit.states

    def observed(some: np.ndarray) -> Binomial:
        return Binomial(groups.cases[who[some]], groups.persons[who[some]], offset)

    found: list[LeftOut] = []
    for state in states:
        at = JointNormal(*state.joint_at(groups.node[who], groups.effects.columns[who]))
        found.append(leave_out(at, observed, len(mine), len(mine) + len(strip), rounds if len(near) else 0))
    # Without the block, the hyperparameters that it spoke for weigh less: p(y | rest) = 1 / E 1 / p(y | rest, θ).
    log_weight = np.log([state.weight for state in states])
    logs = log_weight - [one.log_score for one in found]
    score = float(logsumexp(log_weight) - logsumexp(logs))
    shares = rng.multinomial(DRAWS, np.exp(logs - logsumexp(logs)))
    drawn = [one.predicted.draw(n, rng) for one, n in zip(found, shares, strict=True)]
    chance = np.repeat(expit(offset + np.concatenate(drawn)), EACH, axis=0)
    y, n = groups.cases[mine], groups.persons[mine]
    numbers = rng.binomial(n.astype(np.int64), chance).sum(axis=1)
    total = float(y.sum())
    below, upto = float(np.mean(numbers < total)), float(np.mean(numbers <= total))
    overall = float(groups.cases.sum() / groups.persons.sum())
    ways = float(np.sum(gammaln(n + 1.0) - gammaln(y + 1.0) - gammaln(n - y + 1.0)))
    even = float(np.sum(xlogy(y, overall) + xlogy(n - y, 1.0 - overall)))
    return {
        "persons": float(n.sum()), "observed": total, "expected": float((chance @ n).mean()),
        **predicted_ends(numbers, posterior.interval), "pit": below + rng.random() * (upto - below),
        "log_density": score - ways, "score": score - ways - even,
    }  # fmt: skip
