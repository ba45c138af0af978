"""Comparison: which of several maps of the same events predicts blocks best that it has not seen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.special import gammaln, xlogy

from geobgp.arguments import POSTERIOR
from geobgp.checks.blocks import are_folds, auto_side, narrowed
from geobgp.checks.crossval import AUTO_NODES, MOST_NODES, CrossValidation, per_event
from geobgp.errors import DataError
from geobgp.text import listed, number
from geobgp.validate import NAME, SEED, Rule, door
from geobgp.validate import number as at_least

if TYPE_CHECKING:
    from geobgp.posterior import Posterior

#: Share of the events by which maps of the same events may differ: at the shore some are dropped.
_SAME = 0.01


def _maps(value: Any) -> dict[str, Posterior]:
    if not isinstance(value, Mapping):
        raise TypeError
    return {NAME.take(name): POSTERIOR.take(one) for name, one in value.items()}


_MAPS = Rule("posteriors by name", _maps)


@door(posteriors=_MAPS, buffer=at_least(least=0.0), seed=SEED)
def compare(
    posteriors: Mapping[str, Posterior], blocks: Any = "auto", buffer: float = 0.0, *, seed: int = 0
) -> pd.DataFrame:
    """Compare maps of the same events by how well they predict blocks that are left out.

    The maps may differ in cells, shores, kernels, covariates and likelihoods, for a score is that of the events as a
    point process: see `CrossValidation`. Blocks lie in coordinates, so that all maps share them.

    Parameters
    ----------
    posteriors : mapping of name to Posterior
        All in one CRS.
    blocks : "auto", float, regions
        As for `Posterior.cross_validate`; "auto" takes squares that suit the longest lengthscale.
    buffer : float
        As for `Posterior.cross_validate`.
    seed : int

    Returns
    -------
    DataFrame
        By name, the best first. ``score``: held-out nats per event, above events spread evenly over the land of the
        first map; ``difference`` from the best one and its standard error ``difference_se`` (from the differences
        block by block); ``coverage`` of intervals; ``bound`` of the log evidence per event, as a point process
        and above the same even spread; ``elbo`` as the fit has it, for maps of the same counts; ``nodes``;
        ``seconds`` of the fit.

    Examples
    --------
    >>> import shapely
    >>> from geobgp import LGCP, Domain, FullRank, Matern
    >>> domain = Domain.from_polygons(shapely.box(0, 0, 10, 10), cell_size=1, crs="local")
    >>> counts = np.random.default_rng(0).poisson(np.exp(0.3 * domain.node_points[:, 0]))
    >>> wavy = LGCP(FullRank(domain), Matern(1.0, 8.0, 1.0)).fit(counts)
    >>> flat = LGCP(FullRank(domain), Matern(1.0, 8.0, 0.01)).fit(counts)
    >>> compare({"flat": flat, "wavy": wavy}, 2.0).index.tolist()
    ['wavy', 'flat']
    """
    found = dict(posteriors)
    _check(found)
    if isinstance(blocks, str) and blocks == "auto":
        cell = _common_cell([p.domain.cell_size for p in found.values()])
        side = max(auto_side(p, cell) for p in found.values())
        blocks = min(
            narrowed(p.domain, side, min(AUTO_NODES, MOST_NODES), buffer, cell_size=cell)
            for p in found.values()
        )
    elif are_folds(blocks) and len({p.domain.n_nodes for p in found.values()}) > 1:
        raise DataError(
            "Folds are labels of one domain's nodes, and these maps have different ones.",
            option="blocks",
            remedy="Give a size, or regions.",
        )
    checked = {name: p.cross_validate(blocks, buffer, seed=seed) for name, p in found.items()}
    first = next(iter(found.values()))
    even = _even(first)
    rows = {name: _row(found[name], one, even) for name, one in checked.items()}
    table = pd.DataFrame.from_dict(rows, orient="index").sort_values("score", ascending=False, kind="stable")
    best = checked[str(table.index[0])]
    pairs = [_difference(checked[str(name)], best) for name in table.index]
    table.insert(1, "difference", [mean for mean, _ in pairs])
    table.insert(2, "difference_se", [se for _, se in pairs])
    table.index.name = "map"
    return table


def _common_cell(sizes: list[float]) -> float:
    """Return a size of which all cells' sizes are whole shares, or else the largest: blocks then hold whole cells.

    Examples
    --------
    >>> _common_cell([20.0, 30.0]), _common_cell([10.0, 3.141])
    (60.0, 10.0)
    """
    largest = max(sizes)
    for times in range(1, 7):
        shares = times * largest / np.array(sizes)
        if np.allclose(shares, np.rint(shares), rtol=1e-9):
            return times * largest
    return largest


def point_process_bound(posterior: Posterior) -> float:
    """Return the bound of the events' log density as a point process, per unit of area: the same for any cells."""
    y = _counts(posterior)
    areas = posterior.domain.node_areas / posterior.domain.area_unit[0]
    return posterior.elbo + float(np.sum(gammaln(y + 1.0) - xlogy(y, areas)))


def _counts(posterior: Posterior, name: str = "This map") -> np.ndarray:
    if posterior.observed is None:
        raise DataError(f"{name} is no fit of counts that knows its counts, and cannot be compared.")
    return posterior.observed


def _even(posterior: Posterior) -> float:
    """Return the log density per event of events spread evenly over the land."""
    land = float(posterior.domain.node_areas.sum()) / posterior.domain.area_unit[0]
    return float(np.log(_counts(posterior).sum() / land)) - 1.0


def _row(posterior: Posterior, checked: CrossValidation, even: float) -> dict[str, float]:
    n = checked.n_events
    return {
        "score": float(checked._all["log_density"].sum()) / n - even,
        "coverage": checked.coverage,
        "bound": point_process_bound(posterior) / float(_counts(posterior).sum()) - even,
        "elbo": posterior.elbo,
        "nodes": posterior.domain.n_nodes,
        "seconds": float(posterior.fit.seconds.get("total", np.nan)),
    }


def _difference(one: CrossValidation, best: CrossValidation) -> tuple[float, float]:
    """Return the difference of two scores per event, and its standard error from the blocks."""
    pair = pd.concat(
        [one._all["log_density"], best._all["log_density"], best._all["observed"]], axis=1
    ).fillna(0.0)
    values = pair.to_numpy()
    return per_event(values[:, 0] - values[:, 1], values[:, 2])


def _check(found: dict[str, Posterior]) -> None:
    if len(found) < 2:
        raise DataError(
            f"Two maps or more can be compared; found {len(found)}.", option="posteriors", found=len(found)
        )
    totals = {name: float(_counts(p, repr(name)).sum()) for name, p in found.items()}
    (first, one), *others = found.items()
    for name, other in others:
        if other.domain.crs != one.domain.crs:
            crs = [p.domain.crs.name if p.domain.crs is not None else "local" for p in (one, other)]
            raise DataError(
                f"Maps are compared in one CRS; {first!r} is in {crs[0]} and {name!r} in {crs[1]}.",
                option="crs",
                remedy="Fit both in one: give the domains the same crs.",
            )
    if max(totals.values()) - min(totals.values()) > _SAME * max(totals.values()):
        raise DataError(
            "Maps of the same events can be compared; found "
            f"{listed(f'{name!r} with {number(total)}' for name, total in totals.items())} events.",
            found=totals,
        )
