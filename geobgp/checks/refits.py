"""Refits: blocks of the land predicted by fits without them, one for each block, by whoever does the work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from geobgp.inference.leave_out import JointNormal, LeftOut, log_score
from geobgp.model import model_of
from geobgp.scale.workers import Failed, open_workers

if TYPE_CHECKING:
    from geobgp.inference.likelihoods import Likelihood
    from geobgp.posterior import Posterior

#: What is said of a block at each value of the hyperparameters: how much these weigh, and what they say.
Predicted = tuple[list[float], list[LeftOut]]
#: Nodes of a block and of the strip around it, in this order; how many are the block's; and how many are left out.
Block = tuple[np.ndarray, int, int]


def seen(posterior: Posterior, nodes: np.ndarray) -> Callable[[np.ndarray], Likelihood]:
    """Return the way from some of the nodes, by their places among them, to the likelihood of what was seen there."""
    values, exposure = posterior.observed, posterior.seen_exposure
    assert values is not None
    return lambda some: posterior.likelihood.of(values[nodes[some]], exposure[nodes[some]])


def refitted(
    posterior: Posterior, blocks: Sequence[Block], client: Any = None, n_jobs: int | None = 1
) -> list[Predicted]:
    """Return what fits without each block say of it, hyperparameters learned anew.

    Parameters
    ----------
    posterior : Posterior
        With the counts of its nodes.
    blocks : sequence of Block
    client, n_jobs
        Who fits: as for `geobgp.scale.workers.open_workers`.
    """
    own, out = posterior.fit.states[0], dict[int, Predicted]()
    means = own.node_moments()[0]
    with open_workers(client, n_jobs) as workers:
        for k, found in workers.run(refit_block, list(blocks), workers.share(posterior)):
            if isinstance(found, Failed):
                raise found.error
            block = blocks[k][0][: blocks[k][1]]
            known = JointNormal(means[block], own.node_covariance(block))
            observed = seen(posterior, block)(np.arange(len(block)))
            out[k] = [1.0], [LeftOut(found, log_score(found, observed, known))]
    return [out[k] for k in range(len(blocks))]


def refit_block(block: Block, posterior: Posterior) -> JointNormal:
    """Fit without the events of some nodes, and return what is predicted for the first of them."""
    nodes, n_block, n_left = block
    model = model_of(posterior)
    assert posterior.observed is not None
    counts = posterior.observed.copy()
    model.exposure[nodes[:n_left]] = counts[nodes[:n_left]] = 0.0
    state = model.fit(counts).fit.states[0]
    here = nodes[:n_block]
    return JointNormal(state.node_moments()[0][here], state.node_covariance(here))
