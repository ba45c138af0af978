"""What follows from the facts of a run, in sentences: its result, its priors, what its intervals leave out, its limits."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from geobgp.errors import GeobgpError
from geobgp.inference.mixture import quantile_name
from geobgp.output.grids import View
from geobgp.prior.kernels import NormalPrior
from geobgp.summary import FitRecord, events_in_words
from geobgp.text import count, number, percent, whole_percent
from geobgp.units import RELATIVE_RISK

if TYPE_CHECKING:
    from geobgp.posterior import Posterior

#: How probably a place is above average to be counted as such.
_SURE = 0.95
#: Shares of the land between which a map is said to vary.
_MIDDLE = (0.05, 0.95)
#: Lengthscales of fewer cells than these are hardly resolved.
_FEW_CELLS = 4.0
#: Shares of points moved to land, or of land without exposure, that are worth a word.
_SOME = 0.01
#: Ends of an interval of the lengthscale farther apart than this factor say that it is hardly known.
_WIDE = 10.0


# -- The result, in two sentences --------------------------------------------------------------------------------


def abstract(posterior: Posterior) -> list[str]:
    """Return the result in two sentences with numbers: what was found overall, and how it varies."""
    return [sentence for sentence in (_overall(posterior), _varies(posterior)) if sentence]


def basis_in_words(posterior: Posterior) -> str:
    """Return what a map rests on: how many events, persons, sites or values, and over which periods."""
    points = posterior.points
    if "cases" in points and "controls" in points:
        told = f"{count(round(points['cases']), 'case')} and {count(round(points['controls']), 'control')}"
    elif "tested" in points:
        told = f"{points['positive']:,.0f} positive of {points['tested']:,.0f} tested at {_sites(points)}"
    elif posterior.exposure_kind == "observation":
        told = count(posterior.n_points, "measurement")
        told += f" at {_sites(points)}" if "places" in points else ""
    else:
        told = events_in_words(points)
        weight = points.get("total_weight")
        told += f" (weights adding up to {number(weight)})" if weight is not None else ""
    return told if posterior.periods is None else f"{told} over {posterior.periods.words()}"


def _sites(points: Any) -> str:
    return count(round(points.get("places", points["used"])), "site")


def _overall(posterior: Posterior) -> str:
    scale, unit = posterior.domain.area_unit
    name = unit if posterior.domain.crs is not None else "square units"
    land = f"{number(float(posterior.domain.node_areas.sum() / scale), 3)} {name} of land"
    given = f"From {basis_in_words(posterior)} on {land}"
    if posterior.exposure_kind == "risk":
        allowed = f", adjusted for {_and(posterior.design.covariates)}" if posterior.design.names else ""
        return f"{given}, we mapped the relative risk, which is 1 on average over the controls{allowed}."
    if posterior.shown.quantity == RELATIVE_RISK and posterior.exposure_kind != "expected":
        return f"{given}, we mapped the relative risk, which is 1 on average over all people."
    return f"{given}, we estimate {_mean_of(posterior)} of {_told(posterior, posterior.overall)}{_ends(posterior)}."


def _mean_of(posterior: Posterior) -> str:
    if posterior.quantity == "intensity":
        return "an overall intensity" if posterior.exposure_kind == "area" else "an overall rate"
    if posterior.quantity == RELATIVE_RISK:
        return "an overall ratio of events to expected events"
    what = {"prevalence": "a mean prevalence", "probability": "a mean probability"}
    return f"{what.get(posterior.quantity, 'a mean')} over the land"


def _told(posterior: Posterior, value: float) -> str:
    """Return a value of the map with its unit; shares as percentages."""
    if posterior.quantity in ("prevalence", "probability"):
        return percent(value, 1)
    ratio = posterior.quantity == RELATIVE_RISK
    return number(value, 3) if ratio else f"{number(value, 3)} {posterior.units}"


def _plain(posterior: Posterior, value: float) -> str:
    """Return a value of the map without its unit."""
    return percent(value, 1) if posterior.quantity in ("prevalence", "probability") else number(value, 3)


def _ends(posterior: Posterior) -> str:
    """Return the interval of what the map is overall, from joint draws; empty of a file that holds no draws."""
    if posterior.protection:
        return ""
    try:
        draws = posterior._land_draws[0]
    except GeobgpError:
        return ""
    means = draws.sum(axis=1) / posterior.amounts.sum() * posterior.shown.factor
    low, high = (_plain(posterior, float(np.quantile(means, q))) for q in posterior.quantiles[::2])
    return f" ({whole_percent(posterior.interval)} interval {low} to {high})"


def _varies(posterior: Posterior) -> str:
    found = posterior._known_variation()
    what = {"intensity": "intensity" if posterior.exposure_kind == "area" else "rate", RELATIVE_RISK: "risk"}.get(
        posterior.quantity, posterior.quantity
    )
    if found is None:
        verdict = f"The {what}"
    else:
        evidence = f"log Bayes factor {number(found.log_bayes_factor, 3)} against {found.against}"
        verdict = f"{found.in_short[0].upper()}{found.in_short[1:]} ({evidence})"
    if found is not None and found.verdict == "no evidence":
        return f"{verdict}."
    parts = [*_course(posterior), *([] if posterior.periods is not None else _spread(posterior, what))]
    if not parts:
        return "" if found is None else f"{verdict}."
    return f"{verdict}{': ' if found is not None else ' is such that '}{'; '.join(parts)}."


def _spread(posterior: Posterior, what: str) -> Iterator[str]:
    """Say between what nine tenths of the land lie, and how much of it is surely above the average."""
    weights, where = _weights(posterior)
    values = posterior._statistics(None)[
        "mean" if posterior.drawn == "mean" else quantile_name(0.5)
    ].ravel() * _factor(posterior)
    there = np.isfinite(values) & (weights > 0)
    if not there.any():
        return
    order = np.argsort(values[there])
    shares = np.cumsum(weights[there][order]) / weights[there].sum()
    low, high = (values[there][order][min(int(np.searchsorted(shares, q)), len(order) - 1)] for q in _MIDDLE)
    yield (
        f"for {percent(_MIDDLE[1] - _MIDDLE[0])} of the {where} its posterior {posterior.drawn} is between "
        f"{_plain(posterior, float(low))} and {_told(posterior, float(high))}"
    )
    chance = posterior.link.exceedance(posterior._shown_nodes, _limit(posterior))
    chance = np.asarray(chance, float).ravel()
    known = np.isfinite(chance) & (weights > 0)
    above = float(weights[known & (chance > _SURE)].sum() / weights[known].sum())
    yield f"it is above average with a probability of more than {percent(_SURE)} for {percent(above)} of it"
