"""Hot spots: the connected parts of the land that surely exceeds a threshold, one row each, followed over time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import shapely
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from geobgp.checks.excursions import check_probability, joint_probabilities
from geobgp.data.areas import SLIVER
from geobgp.errors import DataError, option
from geobgp.inference.mixture import quantile_name
from geobgp.privacy import shifts
from geobgp.text import number, percent
from geobgp.totals import COUNTED_LAND, rates, with_periods
from geobgp.units import after

if TYPE_CHECKING:
    import geopandas as gpd

    from geobgp.land.domain import Domain
    from geobgp.posterior import Posterior

#: With which all of a hot spot exceeds its threshold, where nothing else is asked for.
PROBABILITY = 0.95
#: What can become of a hot spot from one period to the next, in words.
CLASSES = {
    "first": "hot in the first period: what was before is not known",
    "new": "hot now, and no part of it was in any period before",
    "persistent": "hot now and in the period before",
    "intensifying": "hot now and in the period before, and surely higher now",
    "diminishing": "hot now and in the period before, and surely lower now",
    "sporadic": "hot now and in an earlier period, but not in the one before",
    "former": "hot in the period before, and no longer surely so",
}


@dataclass(eq=False)
class Part:
    """A part of the land in a period: a hot spot, or one that was (`former`)."""

    period: int
    nodes: np.ndarray
    number: int = 0
    kind: str = ""
    #: With the overlapping parts of the period before.
    joined: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))


def connected_parts(domain: Domain, which: np.ndarray) -> list[np.ndarray]:
    """Return the nodes of each part of some land that hangs together over land, or over a bridge.

    Nodes hang together where their land meets along a line: not at a corner, nor across water or a barrier between.

    Examples
    --------
    >>> from geobgp import Domain
    >>> domain = Domain.from_polygons(shapely.box(0, 0, 3, 1), cell_size=1, crs="local")
    >>> [part.tolist() for part in connected_parts(domain, np.array([True, False, True]))]
    [[0], [2]]
    """
    ends = [domain.piece_node[domain.pieces.first], domain.piece_node[domain.pieces.second]]
    if domain.bridges is not None:
        ends = [np.r_[a, b] for a, b in zip(ends, (domain.bridges.first, domain.bridges.second), strict=True)]
    kept = (ends[0] >= 0) & (ends[1] >= 0)
    kept[kept] = which[ends[0][kept]] & which[ends[1][kept]]
    graph = sparse.coo_array((np.ones(int(kept.sum())), (ends[0][kept], ends[1][kept])), shape=(domain.n_nodes,) * 2)
    label = connected_components(graph, directed=False)[1]
    nodes = np.flatnonzero(which)
    order = nodes[np.argsort(label[nodes], kind="stable")]
    return np.split(order, np.flatnonzero(np.diff(label[order])) + 1) if len(order) else []


def hotspots(
    posterior: Posterior, threshold: float, probability: float, *, n_samples: int, rng: int | np.random.Generator
) -> gpd.GeoDataFrame:
    """Return the hot spots of a map, of all its periods; see `Posterior.hotspots`."""
    import geopandas as gpd

    probability = check_probability(probability, n_samples)
    above = joint_probabilities(posterior, threshold, n_samples, rng)[0] >= probability
    amounts = _amounts(posterior)
    parts_by_period: list[list[Part]] = []
    for t, hot in enumerate(above):
        pieces = [nodes for nodes in connected_parts(posterior.domain, hot) if amounts[t, nodes].sum() > 0]
        order = np.argsort([-amounts[t, nodes].sum() for nodes in pieces], kind="stable")
        parts_by_period.append([Part(t, pieces[k], number) for number, k in enumerate(order, 1)])
    parts = _followed(parts_by_period, amounts) if posterior.periods is not None else parts_by_period[0]
    columns = _numbers(posterior, parts, amounts, threshold, probability, n_samples, rng)
    shapes = [shapely.union_all(posterior.domain.polygon_of(part.nodes)) for part in parts]
    frame = gpd.GeoDataFrame(columns, geometry=np.array(shapes, object), crs=posterior.domain.crs)
    if posterior.periods is not None:
        with_periods(frame, posterior.periods, np.array([part.period for part in parts], int))
    frame.attrs |= {"units": posterior.units, "threshold": float(threshold), "probability": probability}
    return frame


def hotspots_above(
    posterior: Posterior, thresholds: Sequence[float], probability: float = PROBABILITY
) -> gpd.GeoDataFrame:
    """Return the hot spots above each of some thresholds in one table, those of the lowest first."""
    tables = [posterior.hotspots(value, probability) for value in sorted(set(map(float, thresholds)))]
    if not tables:
        raise DataError(
            "Hot spots lie above a threshold, and none was given.",
            option="thresholds",
            remedy=f"Give {option('thresholds')}, in {posterior.units}, or a table from posterior.hotspots(...).",
        )
    # Without the empty ones, whose columns have no kind.
    joined = pd.concat([table for table in tables if len(table)] or tables[:1], ignore_index=True)
    joined.attrs |= {"units": posterior.units, "probability": probability}
    joined.attrs.pop("threshold", None)
    return joined


def read_hotspots(
    posterior: Posterior, given: gpd.GeoDataFrame | bool | None, thresholds: Sequence[float]
) -> gpd.GeoDataFrame | None:
    """Return what an output shows of hot spots: a table as it is, if True those above the thresholds; None for none."""
    if given is None or given is False:
        return None
    if given is True:
        return hotspots_above(posterior, thresholds)
    missing = [name for name in ("hotspot", "threshold", "p_all") if name not in given]
    if missing:
        raise DataError(
            f"This is no table of hot spots: it has no {' and no '.join(missing)}.",
            option="hotspots",
            found=list(map(str, given.columns)),
            remedy="Pass what posterior.hotspots(threshold) returns, or True for those above the thresholds.",
        )
    if given.crs is None or given.crs == posterior.domain.crs:
        return given
    moved = given.to_crs(posterior.domain.crs)
    moved.attrs |= given.attrs
    return moved


def _amounts(posterior: Posterior) -> np.ndarray:
    """Return what nodes count for, (n_periods, n_nodes); their land in a map of risk, whose controls are a sample."""
    if posterior.exposure_kind == "risk":
        return np.broadcast_to(posterior.domain.node_areas, posterior.amounts.shape)
    return posterior.amounts


# -- over time


def _followed(found: Sequence[list[Part]], amounts: np.ndarray) -> list[Part]:
    """Return the parts of all periods, each with a number that it keeps as long as it overlaps, and what became of it.

    Of several parts that overlap one of the period before, the one with the most people (or land) in common keeps its
    number. A part that has no other part after it has a row more, in the period after, as a former one.
    """
    out: list[Part] = []
    earlier: list[Part] = []
    newest = 0
    for t, parts in enumerate(found):
        for part in parts:
            part.number = 0
        before = found[t - 1] if t else []
        pairs = _overlaps(parts, before, amounts[t])
        taken: set[int] = set()
        for _, j, i in pairs:
            part, old = parts[j], before[i]
            part.joined = np.union1d(part.joined if len(part.joined) else part.nodes, old.nodes)
            if not part.number and old.number not in taken:
                part.number = old.number
                taken.add(old.number)
        for _, j, i in _overlaps(parts, earlier, amounts[t]):
            if not len(parts[j].joined):
                parts[j].kind = "sporadic"
                if not parts[j].number and earlier[i].number not in taken:
                    parts[j].number = earlier[i].number
                    taken.add(earlier[i].number)
        for part in parts:
            if not part.number:
                newest += 1
                part.number = newest
            part.kind = part.kind or ("first" if t == 0 else "persistent" if len(part.joined) else "new")
        lost = set(range(len(before))) - {i for _, _, i in pairs}
        out += [*parts, *(Part(t, before[i].nodes, before[i].number, "former") for i in sorted(lost))]
        earlier = [*earlier, *before]
    return out


def _overlaps(parts: list[Part], before: list[Part], amounts: np.ndarray) -> list[tuple[float, int, int]]:
    """Return (what they have in common, part, part before) of those that overlap, the most in common first."""
    if not parts or not before:
        return []
    mine, theirs = (_members([p.nodes for p in some], len(amounts)) for some in (parts, before))
    # A node without people counts for a little: parts that have land alone in common overlap too.
    common = sparse.coo_array(mine @ sparse.diags_array(amounts + 1e-12 * amounts.max()) @ theirs.T)
    order = np.argsort(-common.data, kind="stable")
    return [(float(common.data[k]), int(common.row[k]), int(common.col[k])) for k in order]


def _members(sets: Sequence[np.ndarray], n: int) -> sparse.csr_array:
    """Return which nodes belong to which set, (sets, nodes)."""
    ends = np.concatenate([[0], np.cumsum([len(one) for one in sets])]).astype(int)
    nodes = np.concatenate([*sets, np.zeros(0, int)]).astype(int)
    return sparse.csr_array((np.ones(len(nodes)), nodes, ends), shape=(len(sets), n))


# -- numbers


def _numbers(
    posterior: Posterior, parts: list[Part], amounts: np.ndarray, threshold: float, probability: float,
    n_samples: int, rng: int | np.random.Generator,
) -> dict[str, Any]:  # fmt: skip
    """Return the columns of the table: facts of each part, and statistics of joint draws."""

    def added(values: np.ndarray) -> np.ndarray:
        """Return the sums over parts of values of nodes, (n_nodes,) or (n_periods, n_nodes)."""
        each = np.broadcast_to(values, amounts.shape)
        return np.array([each[part.period, part.nodes].sum() for part in parts], float)

    size, unit = posterior.domain.area_unit
    kind, factor, chances = posterior.exposure_kind, posterior.shown.factor, posterior.quantiles
    total = added(amounts)
    means = np.nan_to_num(posterior.link.mean(posterior._published).reshape(amounts.shape))
    mean = added(amounts * means) / total
    columns: dict[str, Any] = {"hotspot": [part.number for part in parts]}
    if posterior.periods is not None:
        columns["class"], columns["p_class"] = [part.kind for part in parts], np.full(len(parts), np.nan)
    columns["land_km2" if unit == "km²" else "land_area"] = added(posterior.domain.node_areas / size)
    if kind not in ("area", "observation") and not (kind == "risk" and posterior.protection):
        columns["exposure"] = added(posterior.amounts)
    columns |= _observed(posterior, parts, added)
    averages, all_above, before, now = _draws(posterior, parts, amounts, threshold, n_samples, rng)
    if posterior.is_summed and kind != "risk":
        sums = averages * total
        counts = {"expected": mean * total, "sd": sums.std(axis=0, ddof=1)}
        counts |= {quantile_name(q): np.quantile(sums, q, axis=0) for q in chances}
        columns |= counts | rates(posterior, counts, total, chances)
        if posterior.effort is not None:
            columns["reported"] = added(amounts * means * posterior.effort)
    else:
        name, start = ("relative_risk", "relative_risk_") if kind == "risk" else ("mean", "")
        columns |= {name: factor * mean, f"{start}sd": factor * averages.std(axis=0, ddof=1)}
        columns |= {f"{start}{quantile_name(q)}": factor * np.quantile(averages, q, axis=0) for q in chances}
    limit = threshold / factor
    columns |= {"p_all": all_above.mean(axis=0), "p_mean": (averages > limit).mean(axis=0)}
    columns |= {"threshold": np.full(len(parts), float(threshold)), "units": [posterior.units] * len(parts)}
    if posterior.periods is not None:
        _classed(columns, parts, averages > limit, now, before, limit, probability)
    return columns


def _classed(
    columns: dict[str, Any], parts: list[Part], hot: np.ndarray, now: np.ndarray, before: np.ndarray, limit: float,
    probability: float,
) -> None:  # fmt: skip
    """Say what became of each part, and with what probability that holds in joint draws."""
    rises, both = now > before, (now > limit) & (before > limit)
    for k, part in enumerate(parts):
        if part.kind == "persistent":
            for kind, moves in (("intensifying", rises[:, k]), ("diminishing", ~rises[:, k])):
                if (both[:, k] & moves).mean() >= probability:
                    part.kind = columns["class"][k] = kind
        holds = {
            "first": hot[:, k],
            "new": hot[:, k] & rises[:, k],
            "sporadic": hot[:, k] & rises[:, k],
            "persistent": both[:, k],
            "intensifying": both[:, k] & rises[:, k],
            "diminishing": both[:, k] & ~rises[:, k],
            "former": ~hot[:, k],
        }[part.kind]
        columns["p_class"][k] = holds.mean()


def _draws(
    posterior: Posterior,
    parts: list[Part],
    amounts: np.ndarray,
    threshold: float,
    n_samples: int,
    rng: int | np.random.Generator,
) -> tuple[np.ndarray, ...]:
    """Return joint draws of parts: means, whether all exceeds, and the means of `joined` land before and now."""
    limit = np.broadcast_to(posterior._limit(threshold), amounts.shape)
    out = np.zeros((4, n_samples, len(parts)))
    start = 0
    for block, values in _values(posterior, n_samples, rng) if parts else ():
        rows = slice(start, start + len(block))
        start = rows.stop
        for k, part in enumerate(parts):
            t, nodes = part.period, part.nodes
            out[0, rows, k] = _mean(values[:, t, nodes], amounts[t, nodes])
            out[1, rows, k] = (block[:, t, nodes] > limit[t, nodes]).all(axis=1)
            if t:
                wide = part.joined if len(part.joined) else nodes
                for row, at in ((2, t - 1), (3, t)):
                    out[row, rows, k] = _mean(values[:, at, wide], amounts[at, wide])
    return tuple(out)


def _mean(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return weighted means of draws (draws, nodes); plain ones where all weights are zero."""
    weights = weights if weights.sum() > 0 else np.ones(len(weights))
    return np.asarray(values @ weights / weights.sum())


def _values(
    posterior: Posterior, n_samples: int, rng: int | np.random.Generator
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield joint draws of the linear predictor and of the quantity as they may be told, (draws, periods, nodes)."""
    moved = shifts(posterior).reshape(posterior.n_periods, -1) if posterior.protection else 0.0
    for block in posterior.draws(n_samples, rng):
        eta = block.reshape(len(block), posterior.n_periods, -1)
        yield eta, np.nan_to_num(posterior.link.inverse(eta + moved))


def _observed(posterior: Posterior, parts: list[Part], added: Callable[[np.ndarray], np.ndarray]) -> dict[str, Any]:
    """Return the events inside each part, and of counts by area the names of the areas that lie mostly in it.

    Of counts by area the events are known of parts made of whole areas, and NaN elsewhere.
    No events where small numbers are hidden: the difference between two parts would tell those of a cell.
    """
    areas, known = posterior.areas, posterior.observed
    columns: dict[str, Any] = {}
    if posterior.persons is not None:
        count = None if posterior.periods is None else posterior.n_periods
        known = posterior.persons.cases_at(posterior.domain.n_nodes, count)
    elif areas is not None:
        known = areas.located if areas.located is not None else np.zeros(posterior.domain.n_nodes)
    if known is None:
        return {}
    inside = added(known)
    if areas is not None:
        land = sparse.csr_array(areas.shares * posterior.domain.node_areas)
        whole, values = np.asarray(land.sum(axis=1)).ravel(), np.atleast_2d(areas.values)
        shares = [np.asarray(land[:, part.nodes].sum(axis=1)).ravel() / np.maximum(whole, 1e-300) for part in parts]
        counted = np.minimum(np.asarray(areas.shares.sum(axis=0)).ravel(), 1.0) * posterior.domain.node_areas
        known_land = added(counted) >= COUNTED_LAND * added(posterior.domain.node_areas)
        for k, (part, share) in enumerate(zip(parts, shares, strict=True)):
            cut = ((share > SLIVER) & (share < 1.0 - SLIVER)).any()
            inside[k] += values[part.period, share > 0.5].sum() if known_land[k] and not cut else np.nan
        columns["areas"] = [", ".join(str(areas.names[k]) for k in np.flatnonzero(share > 0.5)) for share in shares]
    return columns if posterior.protection else {"observed": inside} | columns


def numbered(frame: pd.DataFrame) -> list[str]:
    """Return what hot spots are called on maps and in tables, with their threshold where there are several.

    Examples
    --------
    >>> numbered(pd.DataFrame({"hotspot": [1, 2], "threshold": 0.5, "class": ["new", "former"]}))
    ['Hot spot 1, new', 'Hot spot 2, former']
    >>> numbered(pd.DataFrame({"hotspot": [1, 1], "threshold": [0.5, 2.0]}))
    ['Hot spot 1 above 0.5', 'Hot spot 1 above 2']
    """
    several = frame["threshold"].nunique() > 1
    above = [f" above {number(value, 6)}" if several else "" for value in frame["threshold"]]
    kinds = [f", {kind}" for kind in frame["class"]] if "class" in frame else [""] * len(frame)
    return [f"Hot spot {k}{a}{kind}" for k, a, kind in zip(frame["hotspot"], above, kinds, strict=True)]


def about_hotspots(frame: pd.DataFrame) -> str:
    """Return what hot spots are, in words for legends.

    Examples
    --------
    >>> about_hotspots(pd.DataFrame({"threshold": [0.5, 2.0], "units": "per km²", "p_all": 0.97}))
    'hot spots, each of which exceeds 0.5 or 2 per km² everywhere with a probability of 95 %'
    """
    values = " or ".join(number(value, 6) for value in sorted(set(frame["threshold"])))
    unit = after(next(iter(frame["units"]), "")) if "units" in frame else ""
    chance = percent(frame.attrs.get("probability", PROBABILITY))
    return f"hot spots, each of which exceeds {values}{unit} everywhere with a probability of {chance}"
