"""Small numbers: on how many events a number rests, and what is shown where these are too few.

A map is an estimate. One event more at a node raises its log-intensity by the posterior variance V there, so that
the estimate is based on n = 1 / V events, its own and those that it borrows from around. A cell is shown where n is at
least k. V knows how many events are expected, not how many there were, so that what is hidden does not give away where
events happened, as hiding the cells with 1 to k - 1 events would.

What is shown is told in steps of 2 / k on the log scale (22 % at k = 10), twice what an event can move it by: from an
exact map of full resolution every count can be computed back, y = Q μ + e exp(μ + V / 2), and from its bends those of
any other be guessed. Estimates of regions that are based on n events are told in steps of 2 / n.

Everything that a protected posterior tells of places comes from `published`, and everything that it tells of regions,
blocks and periods through `hide_regions` and `hide_rows`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
from scipy import sparse
from scipy.special import ndtr, ndtri

from geobgp.errors import DataError, option
from geobgp.inference.mixture import NormalMixture
from geobgp.text import count, number, percent

if TYPE_CHECKING:
    import geopandas as gpd

    from geobgp.checks.crossval import CrossValidation
    from geobgp.checks.forecasts import ForecastCheck
    from geobgp.posterior import Posterior

#: Events of a region below this are rounding errors of shares.
_NONE = 1e-6
#: Share of the land that a smoother map is to show, what is little of it, and how the lengthscale is raised.
NEARLY_ALL, LITTLE, LONGER, LONGEST = 0.99, 0.005, 2.0, 64.0


@dataclass(frozen=True)
class OfficeRule:
    """What an office hides: counts from 1 to `least` - 1; it rounds others to multiples of `rounded`, if not 0."""

    least: int
    rounded: int
    source: str


#: Rules of offices by name. Eurostat has none here: its thresholds differ from one domain of statistics to the next.
RULES = {
    "cdc": OfficeRule(
        10, 0, "CDC WONDER, data use restrictions: no counts of nine or fewer, and no rates based on them"
    ),
    "nhs": OfficeRule(
        8,
        5,
        "NHS Digital, disclosure control methodology for Hospital Episode Statistics and the Emergency Care Data Set, "
        "2018: 1 to 7 are suppressed, all others rounded to the nearest 5",
    ),
    "ons": OfficeRule(
        3, 0, "Office for National Statistics, user guide to mortality statistics: no rates of fewer than 3 deaths"
    ),
}


@dataclass(frozen=True)
class Protection:
    """Which numbers are too small to be shown.

    Attributes
    ----------
    min_count : int
        k: what is based on fewer events is hidden.
    min_people : float
        Cells and regions with fewer people are hidden, whatever the events.
    protect : "hide" or "smooth"
    rounded : int
        Counts of regions are rounded to multiples of this; 0 for as they are.
    rule : str
        The office whose rule it is.
    learned : float, optional
        The lengthscale before it was raised.
    """

    min_count: int = 0
    min_people: float = 0.0
    protect: Literal["hide", "smooth"] = "hide"
    rounded: int = 0
    rule: str = ""
    learned: float | None = None

    @classmethod
    def of(cls, min_count: int | str, protect: Any = "hide", min_people: float = 0.0) -> Protection:
        """Return what a number, or the name of an office, stands for."""
        if isinstance(min_count, str):
            rule = RULES[min_count]
            return cls(rule.least, float(min_people), protect, rule.rounded, min_count)
        return cls(min_count if min_count > 1 else 0, float(min_people), protect)

    def __bool__(self) -> bool:
        return bool(self.min_count or self.min_people)

    @property
    def step(self) -> float:
        """Steps in which log-intensities are told; 0 for as they are."""
        return 2.0 / self.min_count if self.min_count else 0.0

    def few(self, values: Any) -> np.ndarray:
        """Return whether counts are from 1 to k - 1; not where they are not known."""
        with np.errstate(invalid="ignore"):
            return np.asarray((np.asarray(values) > _NONE) & (np.asarray(values) < self.min_count - _NONE))

    def told(self, values: Any) -> np.ndarray:
        """Return counts as they are told."""
        array = np.asarray(values, float)
        return self.rounded * np.floor(array / self.rounded + 0.5) if self.rounded else array


def protected(posterior: Posterior, rule: Protection) -> Posterior:
    """Return a posterior whose maps and tables hide what is based on too few; see `Posterior.protected`."""
    if not rule:
        return replace(posterior, protection=rule)
    if not posterior.is_summed:
        raise DataError(
            f"Small numbers are numbers of events; this map is of a {posterior.quantity}.", option="min_count"
        )
    if is_published(posterior):
        raise DataError(
            "This file holds only what may be shown, under the rule that it was saved with.",
            option="min_count",
            remedy="Protect the posterior that it was made of.",
        )
    if rule.min_people and posterior.exposure_kind != "population":
        raise DataError(
            f"{option('min_people')} hides where few people live, and this map knows no people.",
            option="min_people",
            found=rule.min_people,
            remedy=f"Give a population as {option('exposure')}, or leave it out.",
        )
    events = float(posterior.points.get("cases", posterior.points.get("total_weight", posterior.n_points)))
    if events < rule.min_count:
        raise DataError(
            f"The whole map is based on fewer than {rule.min_count} events: nothing of it can be shown.",
            option="min_count",
            found=rule.min_count,
            remedy="Map more events together: a longer period, a larger region.",
        )
    hidden = replace(posterior, protection=rule)
    hidden = _smoothed(hidden) if rule.protect == "smooth" and rule.min_count else hidden
    if hidden_nodes(hidden).all():
        raise DataError(
            f"No part of the map is based on {rule.min_count} events: nothing of it can be shown.",
            option="min_count",
            found=rule.min_count,
            remedy=f"Map more events together, or use {option('protect', 'smooth')}.",
        )
    return hidden


# -- cells


def effective_events(posterior: Posterior) -> np.ndarray:
    """Return on how many events the intensity of each node rests: one more changes its logarithm by one part in these.

    Of cases among persons, p of them cases, it is the number of cases, 1 / (V (1 - p)); that of persons is larger.
    """
    mean, variance = posterior._nodes.moments()
    with np.errstate(divide="ignore"):
        events = 1.0 / variance
    if posterior.exposure_kind == "risk":
        events = events * (1.0 + np.exp(mean + posterior.likelihood.facts()["offset"]))
    return np.asarray(events)


def hidden_nodes(posterior: Posterior) -> np.ndarray:
    """Return whether the numbers of each node are hidden; of all periods one after the other, where there are some."""
    rule = posterior.protection
    if is_published(posterior):
        return np.asarray(np.isnan(posterior._nodes.mu[0]))
    hidden = effective_events(posterior) < rule.min_count
    if rule.min_people:
        domain = posterior.domain
        cell = np.asarray(domain.node_rows, np.int64) * domain.grid.shape[1] + domain.node_cols
        place = np.unique(cell, return_inverse=True)[1].ravel()
        people = [np.bincount(place, one)[place] for one in np.atleast_2d(posterior.exposure)]
        hidden |= np.resize(np.concatenate(people) < rule.min_people, hidden.shape)
    return hidden


def published(posterior: Posterior) -> NormalMixture:
    """Return the log-intensity of the nodes as it may be told: NaN where it is hidden, elsewhere in steps.

    One normal distribution at each node, with mean and variance of the mixture where there is one.
    """
    rule, nodes = posterior.protection, posterior._nodes
    if not rule or is_published(posterior):
        return nodes
    hidden = hidden_nodes(posterior)
    if not rule.step:
        return NormalMixture(nodes.weight, np.where(hidden, np.nan, nodes.mu), np.where(hidden, np.nan, nodes.var))
    mean, variance = nodes.moments()
    mean = rule.step * np.round(mean / rule.step)
    variance = np.exp(rule.step * np.round(np.log(variance) / rule.step))
    return NormalMixture(np.ones(1), np.where(hidden, np.nan, mean)[None], np.where(hidden, np.nan, variance)[None])


def shifts(posterior: Posterior) -> np.ndarray:
    """Return what draws of the linear predictor are moved by to follow `published`; NaN where they are hidden."""
    return np.asarray(posterior._published.moments()[0] - posterior._nodes.moments()[0])


def _smoothed(posterior: Posterior) -> Posterior:
    """Return a fit with a longer lengthscale, the shortest at which nearly all land may be shown.

    The sd is held: learned again, it would grow with the lengthscale and leave the map as rough as it was.
    """
    rule, land = posterior.protection, posterior.domain.node_areas

    def at(times: float) -> tuple[float, Posterior]:
        smooth = posterior if times == 1.0 else _refitted(posterior, times * posterior.lengthscale)
        shown = ~hidden_nodes(smooth).reshape(-1, len(land))
        return float((shown @ land).mean() / land.sum()), smooth

    tried = [(1.0, *at(1.0))]
    while tried[-1][1] < NEARLY_ALL and tried[-1][0] < LONGEST:
        tried.append((LONGER * tried[-1][0], *at(LONGER * tried[-1][0])))
        if len(tried) > 3 and tried[-1][1] < tried[-2][1] + LITTLE:
            break  # islets, for one, may learn nothing from other land
    wanted = min(NEARLY_ALL, max(share for _, share, _ in tried) - LITTLE)
    reached = next(k for k, (_, share, _) in enumerate(tried) if share >= wanted)
    if reached == 0:
        return posterior
    (low, *_), (high, _, best) = tried[reached - 1 : reached + 1]
    for _ in range(2):
        middle = float(np.sqrt(low * high))
        share, smooth = at(middle)
        if share >= wanted:
            high, best = middle, smooth
        else:
            low = middle
    smooth = replace(best, protection=replace(rule, learned=posterior.lengthscale))
    if (varies := posterior._known_variation()) is not None:  # that of the map which the events speak for
        smooth.fit.notes["variation"] = varies
    return smooth


def _refitted(posterior: Posterior, lengthscale: float) -> Posterior:
    """Return the fit of the same events with another lengthscale and the same sd."""
    from geobgp.model import model_of, refit

    kernel = posterior.kernel.with_parameters(lengthscale, posterior.sd)
    if posterior.periods is not None:
        return refit(posterior, posterior.n_periods, kernel)
    known: Any = posterior.areas if posterior.areas is not None else posterior.observed
    if posterior.exposure_kind == "risk":
        from geobgp.auto.tasks import fit_risk

        known = posterior.persons
    if known is None:
        raise DataError(
            "A smoother map is a new fit, and this posterior does not know its events.",
            option="protect",
            remedy=f"Fit them again, or use {option('protect', 'hide')}.",
        )
    if posterior.exposure_kind == "risk":
        refitted = fit_risk(known, posterior.basis, kernel)
    else:
        refitted = model_of(posterior, kernel).fit(known)
    return replace(posterior, fit=refitted.fit, likelihood=refitted.likelihood)


# -- tables


def hide_regions(
    frame: gpd.GeoDataFrame,
    posterior: Posterior,
    shares: Any,
    columns: Sequence[str],
    resting: np.ndarray,
    lines: Sequence[np.ndarray] | None = None,
) -> gpd.GeoDataFrame:
    """Hide the numbers of regions that are based on too few, and of those that would give them away.

    Parameters
    ----------
    frame : GeoDataFrame
    posterior : Posterior
    shares : (n_regions, n_nodes) sparse array
    columns : sequence of str
        With numbers that depend on the events.
    resting : (n,) array
        On how many events each row's estimate rests.
    lines : sequence of int arrays, optional
        Rows whose sum is known; by default all together.

    Returns
    -------
    GeoDataFrame
        With ``hidden`` and ``why``, the same words for all: which of them are small, and which are hidden for their
        sake, is not told.
    """
    rule = posterior.protection
    if not rule:
        return frame
    n = len(frame)
    events = events_in(posterior, shares, n)
    if "observed" in frame:
        events = frame["observed"].fillna(pd.Series(events, frame.index)).to_numpy(float)
    hidden = (np.nan_to_num(resting, nan=np.inf) < rule.min_count) | rule.few(events)
    if posterior.exposure_kind == "risk" and posterior.persons is not None:
        hidden |= rule.few(_by_row(posterior.persons.controls_at(*_nodes_and_periods(posterior)), shares, n))
    if posterior.areas is not None:
        hidden |= rule.few(_at_most(posterior, shares, n))
    hidden = _hidden_for_others(posterior, shares, hidden, events, [np.arange(n)] if lines is None else lines)
    why = np.where(hidden, f"fewer than {rule.min_count} events, or a total would give those away", "")
    if rule.min_people:
        people = frame["exposure"].to_numpy(float)
        why = np.where(people < rule.min_people, f"fewer than {rule.min_people:,g} people", why)
        hidden |= people < rule.min_people
    kept = {"exposure"} if posterior.exposure_kind != "risk" else set[str]()
    if rule.step:
        _in_steps(frame, posterior, columns, resting)
    for name in {*columns, "observed"} & set(frame.columns) - kept:
        values = frame[name].to_numpy(float)
        frame[name] = np.where(hidden, np.nan, rule.told(values) if name == "observed" else values)
    frame["hidden"], frame["why"] = hidden, why
    return frame


def _at_most(posterior: Posterior, shares: Any, n: int) -> np.ndarray:
    """Return how many events there are at most in regions: those of all areas that they have land of."""
    areas, land = posterior.areas, posterior.domain.node_areas
    assert areas is not None
    high = np.where(areas.hidden, 0.0 if areas.suppressed is None else float(areas.suppressed[1]), areas.guessed)
    shared = shares @ sparse.diags_array(land) @ areas.shares.T
    touched = sparse.csr_array(shared > _NONE * land.min())
    located = np.zeros(n) if areas.located is None else _by_row(areas.located, shares, n)
    return _by_row(np.atleast_2d(high), touched, n) + located


def _hidden_for_others(
    posterior: Posterior, shares: Any, hidden: np.ndarray, events: np.ndarray, lines: Sequence[np.ndarray]
) -> np.ndarray:
    """Hide regions whose numbers would tell small ones: of other regions, or of what these leave out of the land.

    The number of all events is known; so is that of a region but for one that lies within it, where both are shown.
    """
    rule, n = posterior.protection, len(events)
    if not rule.min_count:
        return hidden
    r, out = shares.shape[0], hidden.copy()
    known: Any = posterior.observed if posterior.areas is None else posterior.areas.guessed
    if posterior.persons is not None:
        known = posterior.persons.cases_at(*_nodes_and_periods(posterior))
    land = posterior.domain.node_areas
    size = shares @ land
    common = sparse.coo_array(shares @ sparse.diags_array(land) @ shares.T)
    within = (common.row != common.col) & (common.data > (1.0 - _NONE) * size[common.row])
    for first in range(0, n, r):
        rest = events[first + common.col[within]] - events[first + common.row[within]]
        out[first + common.row[within][rule.few(rest)]] = True
    if known is None:
        return complemented(out, events, lines, rule.min_count)
    totals = np.resize(np.nansum(np.atleast_2d(known), axis=1), n // r)
    out |= rule.few(np.repeat(totals, r) - events)
    apart = common.data[common.row < common.col].sum() <= _NONE * land.sum()
    left = totals - np.nansum(events.reshape(-1, r), axis=1)
    some = np.flatnonzero(rule.few(left) & np.isfinite(events.reshape(-1, r)).all(axis=1) & apart)
    lines = [*lines, *(np.r_[np.arange(t * r, t * r + r), n + k] for k, t in enumerate(some))]
    all_of_them = np.r_[out, np.ones(len(some), bool)], np.r_[events, left[some]]
    return complemented(*all_of_them, lines, rule.min_count)[:n]


def _in_steps(frame: gpd.GeoDataFrame, posterior: Posterior, columns: Sequence[str], resting: np.ndarray) -> None:
    """Tell estimates of regions in steps of twice what an event can move them by, as those of cells are.

    Without them a table of regions as small as cells would be an exact map.
    """
    main = next((name for name in ("expected", "rate", "relative_risk") if name in columns), None)
    if main is None:
        return
    with np.errstate(divide="ignore", invalid="ignore"):
        exact, step = np.log(frame[main].to_numpy(float)), 2.0 / np.nan_to_num(resting, nan=1.0)
        moved = np.nan_to_num(step * np.round(exact / step) - exact)
    for name in columns:
        if name.split("_")[0] in ("expected", "sd", "rate", "relative", "reported") or name[0] == "q":
            frame[name] = frame[name].to_numpy(float) * np.exp(moved)
    if "expected" in columns and "p_above" in columns:  # from what is told, and no longer from draws
        ratio = frame["relative_risk"] if "relative_risk" in frame else frame["rate"] / posterior.overall
        with np.errstate(divide="ignore", invalid="ignore"):
            frame["p_above"] = ndtr(np.log(ratio.to_numpy(float)) * np.sqrt(resting))


def events_in(posterior: Posterior, shares: Any, n: int) -> np.ndarray:
    """Return how many events there were in regions, a node that a border crosses shared by area; NaN if not known."""
    known: Any = posterior.observed
    if posterior.persons is not None:
        known = posterior.persons.cases_at(*_nodes_and_periods(posterior))
    return np.full(n, np.nan) if known is None else _by_row(known, shares, n)


def _nodes_and_periods(posterior: Posterior) -> tuple[int, int | None]:
    """Return how many nodes there are, and periods where there are some."""
    return posterior.domain.n_nodes, None if posterior.periods is None else posterior.periods.n


def _by_row(values: np.ndarray, shares: Any, n: int) -> np.ndarray:
    """Return sums over regions, one period after the other; the same ones for all where there is one for all."""
    rows = np.concatenate([np.asarray(shares @ one).ravel() for one in np.atleast_2d(values)])
    return np.resize(rows, n)


def complemented(hidden: np.ndarray, events: np.ndarray, lines: Sequence[np.ndarray], k: int) -> np.ndarray:
    """Return what is hidden so that no sum over a line gives a small number away.

    What is hidden in a line is at least two of its rows, with k events at least between them (or none): the rows
    with the fewest events are hidden besides until it is so.

    Examples
    --------
    >>> counts, all_of_them = np.array([3.0, 40.0, 12.0, 25.0]), [np.arange(4)]
    >>> complemented(counts < 10, counts, all_of_them, 10).tolist()
    [True, False, True, False]
    """
    out, again = np.array(hidden), True
    while again:
        again = False
        for line in lines:
            while True:
                mine, rest = line[out[line]], line[~out[line]]
                together = float(np.nansum(events[mine])) if len(mine) else 0.0
                rest = rest[events[rest] > _NONE]
                if together <= _NONE or not len(rest) or (len(mine) > 1 and together >= k - _NONE):
                    break
                out[rest[np.argmin(events[rest])]] = again = True
    return out


def hide_rows(frame: Any, posterior: Posterior, columns: Sequence[str]) -> Any:
    """Hide small counts, and all that follows from them, in a table of blocks or periods with a column ``observed``."""
    rule = posterior.protection
    if not rule.min_count or "observed" not in frame:
        return frame
    frame, events = frame.copy(), frame["observed"].to_numpy(float)
    hidden = complemented(rule.few(events), events, [np.arange(len(frame))], rule.min_count)
    for name in columns:
        values = frame[name].to_numpy(float)
        frame[name] = np.where(hidden, np.nan, rule.told(values) if name == "observed" else values)
    return frame


def hide_effects(frame: pd.DataFrame, posterior: Posterior, of_levels: np.ndarray) -> pd.DataFrame:
    """Hide the effects of levels and groups that rest on fewer events than may be told.

    The standard error of a level's log rate is 1 / √n of its n events: with its interval their number would be told.

    Parameters
    ----------
    frame : DataFrame
        With a column of ratios and those of their quantiles.
    posterior : Posterior
    of_levels : (n,) bool array
        Which rows are of levels or groups.
    """
    rule = posterior.protection
    ends = sorted((name for name in frame if "_ratio_q" in str(name)), key=lambda name: float(name.rpartition("q")[2]))
    if not rule.min_count or len(ends) < 2:
        return frame
    low, high = (np.log(frame[name].to_numpy(float)) for name in (ends[0], ends[-1]))
    error = (high - low) / (2.0 * ndtri(0.5 + 0.5 * posterior.interval))
    few = of_levels & (error**2 * rule.min_count > 1.0)
    numbers = [n for n in frame.columns if frame[n].dtype.kind == "f" and not str(n).startswith("tau")]
    return frame.assign(**{name: np.where(few, np.nan, frame[name].to_numpy(float)) for name in numbers})


def hide_blocks(checked: CrossValidation) -> CrossValidation:
    """Hide the numbers of held-out blocks with few events; the scores of all of them together stay."""
    posterior = checked.posterior
    if posterior is None or not posterior.protection.min_count:
        return checked
    numbers = [name for name in ("observed", "pit", "crps", "log_density", "score") if name in checked.blocks]
    return replace(checked, exact=checked.blocks, blocks=hide_rows(checked.blocks, posterior, numbers))


def hide_forecasts(checked: ForecastCheck, posterior: Posterior) -> ForecastCheck:
    """Hide the numbers of parts and periods with few events; the scores of all of them together stay."""
    if not posterior.protection.min_count:
        return checked
    numbers = ("observed", "pit", "log_score", "pooled", "naive", "one_rate")
    periods = [one for _, one in checked.table.groupby("period", sort=False)]
    table = pd.concat([hide_rows(one, posterior, numbers) for one in periods])
    return replace(checked, exact=checked.table, table=table)


def refuse(posterior: Posterior, what: str, why: str) -> None:
    """Refuse what would show small numbers whatever is hidden."""
    if posterior.protection:
        raise DataError(
            f"{what} {why}, and this posterior hides small numbers.",
            option="min_count",
            found=posterior.protection.min_count,
            remedy="Use posterior.protected(0) where nobody else reads it.",
        )


# -- words


def told_in_choices(posterior: Posterior, options: Any, choices: dict[str, Any]) -> Posterior:
    """Return the posterior as options ask for it to be protected, and say so among the choices."""
    from geobgp.summary import Choice

    rule = Protection.of(options.min_count, options.protect, getattr(options, "min_people", 0.0))
    if not rule:
        return posterior
    posterior = protected(posterior, rule)
    choices["small numbers"] = Choice(*render_text(posterior))
    return replace(posterior, choices=dict(posterior.choices) | {"small numbers": str(choices["small numbers"])})


def told_origin(posterior: Posterior) -> dict[str, Any]:
    """Return where a map comes from, without the size of inputs with few persons."""
    origin, rule = dict(posterior.origin), posterior.protection
    if not rule.min_count or not origin:
        return origin

    def told(one: Mapping[str, Any]) -> dict[str, Any]:
        n = one["features"]
        if one["role"] not in ("points", "cases", "controls"):
            return dict(one)
        if n is None or rule.few(n):
            return dict(one) | {"features": None, "bytes": None}
        return dict(one) | {"features": round(float(rule.told(n)))}

    return origin | {"inputs": [told(one) for one in origin["inputs"]]}


def hidden_cells(posterior: Posterior) -> np.ndarray:
    """Return which cells of the grid hold land and no number; by period, where there are some."""
    hidden = hidden_nodes(posterior).reshape(-1, posterior.domain.n_nodes)
    grids = [np.isnan(posterior.domain.to_grid(np.where(one, np.nan, 1.0))) for one in hidden]
    return np.array(grids)[:, posterior.domain.coverage > 0]


def render_text(posterior: Posterior) -> tuple[str, str]:
    """Return what is hidden, and why, for reports."""
    rule, cells = posterior.protection, hidden_cells(posterior)
    n_periods = len(cells)
    over = f" in {n_periods:,} periods" if n_periods > 1 else ""
    why = [f"fewer than {rule.min_count} events behind them"] if rule.min_count else []
    why += [f"fewer than {rule.min_people:,g} people"] if rule.min_people else []
    lines = [f"{' or '.join(why)}; regions likewise"]
    if rule.rule:
        lines.append(f"the rule {rule.rule!r}: {RULES[rule.rule].source}")
    if rule.learned is not None:
        scale, unit = posterior.domain.length_unit
        lines.append(
            f"a smoother map than the events speak for, its lengthscale raised from {number(rule.learned / scale)} to "
            f"{number(posterior.lengthscale / scale)} {unit}"
        )
    if rule.step:
        lines.append(f"the others are reported in steps of {percent(float(np.expm1(rule.step)))}")
    return (f"{int(cells.sum()):,} of {count(cells.size, 'cell')}{over} without numbers", "; ".join(lines))


def hidden_words(posterior: Posterior) -> str:
    """Return why cells are hidden and how many, for legends; empty where none is."""
    rule = posterior.protection
    if not rule or not (hidden := hidden_cells(posterior)).any():
        return ""
    why = [f"fewer than {rule.min_count} events"] if rule.min_count else []
    why += [f"fewer than {rule.min_people:,g} people"] if rule.min_people else []
    share = float(hidden.mean())
    return f"based on {' or '.join(why)} ({percent(share, None if share >= 0.01 else 1)} of the cells)"


def shown_words(posterior: Posterior) -> str:
    """Return how what is shown was changed, for legends; empty where it was not."""
    rule, told = posterior.protection, []
    if rule.learned is not None:
        scale, unit = posterior.domain.length_unit
        told.append(
            f"Smoothed on purpose: lengthscale {number(posterior.lengthscale / scale)} in place of "
            f"{number(rule.learned / scale)} {unit}."
        )
    if rule.step:
        told.append(f"Values are reported in steps of {percent(float(np.expm1(rule.step)))}.")
    return " ".join(told)


def legend(posterior: Posterior, mark: str = "Blank") -> str:
    """Return what a map says below its legend: what is hidden, and why; empty where nothing is protected."""
    hidden = hidden_words(posterior)
    return " ".join(filter(None, (f"{mark}: {hidden}." if hidden else "", shown_words(posterior))))


# -- files


@dataclass(frozen=True, eq=False)
class PublishedState:
    """What a file of a protected posterior holds in place of the fit: what may be told of each node, and no more.

    Attributes
    ----------
    mean, variance : (n_nodes,) or (n_periods, n_nodes) arrays
        Of the log-intensity, as `published` has them.
    overall : float
        Expected events per unit of exposure over all the land.
    numbers : (3,) array
        Lengthscale, sd and noise.
    beta, beta_cov : arrays
        Fixed effects, as `coefficients` has them.
    chain : (5,) array, optional
        Over periods: whether dynamics are diffusive, tau, and sd and time of the level.
    level_mean, level_var : (n_periods,) arrays, optional
    """

    mean: np.ndarray
    variance: np.ndarray
    overall: float
    numbers: np.ndarray
    beta: np.ndarray
    beta_cov: np.ndarray
    chain: np.ndarray | None = None
    level_mean: np.ndarray | None = None
    level_var: np.ndarray | None = None

    weight = 1.0

    @classmethod
    def of(cls, posterior: Posterior) -> PublishedState:
        """Return what may be kept of a protected posterior."""
        if is_published(posterior):
            return posterior.fit.states[0]  # type: ignore[return-value]
        nodes, state = posterior._published, posterior.fit.states[0]
        mean, variance = (part.reshape(posterior._shape) for part in nodes.moments())
        beta, beta_cov = state.coefficients()
        numbers = np.array([posterior.lengthscale, posterior.sd, state.noise])
        more: dict[str, Any] = {}
        if len(posterior._shape) > 1:
            s: Any = state
            more["chain"] = np.array([s.dynamics == "diffusive", s.tau, s.level_sd, s.level_tau], float)
            more["level_mean"], more["level_var"] = s.level()
        return cls(mean, variance, posterior._overall, numbers, beta, beta_cov, **more)

    lengthscale = property(lambda self: float(self.numbers[0]))
    sd = property(lambda self: float(self.numbers[1]))
    noise = property(lambda self: float(self.numbers[2]))
    dynamics = property(lambda self: "diffusive" if self.chain[0] else "separable")
    tau = property(lambda self: float(self.chain[1]))
    level_sd = property(lambda self: float(self.chain[2]))
    level_tau = property(lambda self: float(self.chain[3]))

    def node_moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of the linear predictor at every node; NaN where it is hidden."""
        return self.mean, self.variance

    def coefficients(self) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and covariance of the fixed effects."""
        return self.beta, self.beta_cov

    def level(self) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of the level of each period."""
        assert self.level_mean is not None and self.level_var is not None
        return self.level_mean, self.level_var

    def at(self, t: int) -> PublishedState:
        """Return one period."""
        return replace(self, mean=self.mean[t], variance=self.variance[t], chain=None)

    def _not_kept(self, *args: Any, **kwargs: Any) -> Any:
        raise DataError(
            "This file of a protected map holds the numbers of its cells and not the fit: no draws, no totals of "
            "other regions, no forecasts, no checks.",
            option="path",
            remedy="Ask the posterior that it was made of.",
        )

    sample_nodes = sample_joint = node_covariance = joint_at = moments_at = moments_of = ahead = _not_kept


def is_published(posterior: Posterior) -> bool:
    """Whether a posterior came from a file that holds only what may be shown."""
    return isinstance(posterior.fit.states[0], PublishedState)


def reduced(posterior: Posterior) -> Posterior:
    """Return what a file of a protected posterior holds: no counts, persons or areas, and no fit."""
    state = PublishedState.of(posterior)
    exposure = posterior.exposure
    if posterior.exposure_kind == "risk":  # which is the controls, person by person
        exposure = np.full(exposure.shape, exposure.sum() / exposure.size)
    elif posterior.protection.min_people:
        hidden = hidden_nodes(posterior).reshape(-1, posterior.domain.n_nodes)
        few = hidden if exposure.ndim > 1 else hidden.any(axis=0)
        exposure = np.where(few, posterior.protection.min_people, exposure)
    fit = replace(posterior.fit, states=(state,), elbo_trace=np.zeros(0))
    if "variation" in posterior.fit.notes:
        fit.notes["variation"] = posterior._known_variation()
    return replace(
        posterior, fit=fit, exposure=exposure, observed=None, areas=None, persons=None, places=None, given=None,
        given_effort=None, origin=told_origin(posterior),
    )  # fmt: skip
