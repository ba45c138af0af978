"""What follows from the facts of a run, in sentences: its result, priors, uncertainty and limits."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from geobgp.data.effects import FIXED_SD
from geobgp.errors import GeobgpError
from geobgp.inference.mixture import quantile_name
from geobgp.prior.kernels import NormalPrior
from geobgp.summary import NO_WATER, FitRecord, events_in_words, water_of
from geobgp.text import count, events, number, percent, whole_percent
from geobgp.units import RELATIVE_RISK

if TYPE_CHECKING:
    from geobgp.posterior import Posterior

#: How probably a place is above average to be counted as such.
_SURE = 0.95
#: Shares of the land between which a map is said to vary.
_MIDDLE = (0.05, 0.95)
#: Lengthscales of fewer cells than these are hardly resolved.
_FEW_CELLS = 4.0
#: Shares of points moved to land, or of land without exposure, that are worth mentioning.
_SOME = 0.01
#: Ends of an interval of the lengthscale farther apart than this factor say that it is hardly known.
_WIDE = 10.0


def water(posterior: Posterior) -> str:
    """Return how far information crosses water, in a sentence."""
    share = posterior.basis.permeability
    if share == 0:
        return "No information crosses water."
    if share == 1 and NO_WATER in posterior.choices.get("water", ""):
        return "No water to speak of lies between the places: where the land ends, the field goes on beyond it."
    if share == 1:
        return "Information travels as far over water as over land."
    return f"Information travels {percent(share)} as far over water as over land."


# -- The result, in a few sentences -------------------------------------------------------------------------------


def abstract(posterior: Posterior) -> list[str]:
    """Return the result in a few sentences with numbers: what was found overall, and how it varies."""
    return [sentence for sentence in (_overall(posterior), _varies(posterior)) if sentence]


def basis_in_words(posterior: Posterior) -> str:
    """Return what a map is based on: how many events, persons, sites or values, and over which periods."""
    points = posterior.points
    words = events_in_words(points)
    if posterior.exposure_kind == "observation" and "places" not in points and "tested" not in points:
        words = count(posterior.n_points, "measurement")
    return words if posterior.periods is None else f"{words} over {posterior.periods.words()}"


def land_in_words(posterior: Posterior) -> str:
    """Return how much land there is."""
    scale, unit = posterior.domain.area_unit
    name = unit if posterior.domain.crs is not None else "square units"
    return f"{number(float(posterior.domain.node_areas.sum() / scale), 3)} {name} of land"


def _overall(posterior: Posterior) -> str:
    comma = "" if posterior.periods is None else ","
    given = f"From {basis_in_words(posterior)}{comma} on {land_in_words(posterior)}"
    if posterior.exposure_kind == "risk":
        allowed = f", adjusted for {in_a_row(posterior.design.covariates)}" if posterior.design.names else ""
        return f"{given}, we mapped the relative risk, which is 1 on average over the controls{allowed}."
    if posterior.shown.quantity == RELATIVE_RISK and posterior.exposure_kind != "expected":
        return f"{given}, we mapped the relative risk, which is 1 on average over all people."
    return (
        f"{given}, we estimate {_mean_of(posterior)} of {_with_unit(posterior, posterior.overall)}{_ends(posterior)}."
    )


def _mean_of(posterior: Posterior) -> str:
    if posterior.quantity == "intensity":
        return "an overall intensity" if posterior.exposure_kind == "area" else "an overall rate"
    if posterior.quantity == RELATIVE_RISK:
        return "an overall ratio of events to expected events"
    what = {"prevalence": "a mean prevalence", "probability": "a mean probability"}
    return f"{what.get(posterior.quantity, 'a mean')} over {averaged_over(posterior)}"


def averaged_over(posterior: Posterior) -> str:
    """Return over what the mean of a share or a value is taken: people where they are known, else land."""
    known = {"population": "the people", "expected": "the expected events", "exposure": "the exposure"}
    return known.get(posterior.exposure_kind, "the land")


def _with_unit(posterior: Posterior, value: float) -> str:
    """Return a value of the map with its unit; shares as percentages."""
    if posterior.quantity in ("prevalence", "probability"):
        return percent(value, 1)
    ratio = posterior.quantity == RELATIVE_RISK
    return number(value, 3) if ratio else f"{number(value, 3)} {posterior.units}"


def _without_unit(posterior: Posterior, value: float) -> str:
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
    low, high = (_without_unit(posterior, float(np.quantile(means, q))) for q in posterior.quantiles[::2])
    return f" ({whole_percent(posterior.interval)} interval {low} to {high})"


def _varies(posterior: Posterior) -> str:
    variation = posterior._known_variation()
    what = {"intensity": "intensity" if posterior.exposure_kind == "area" else "rate", RELATIVE_RISK: "risk"}.get(
        posterior.quantity, posterior.quantity
    )
    if variation is None:
        verdict = f"The {what}"
    else:
        evidence = f"log Bayes factor {number(variation.log_bayes_factor, 3)} against {variation.against}"
        verdict = f"{variation.in_short[0].upper()}{variation.in_short[1:]} ({evidence})"
    flat = variation is not None and variation.verdict == "no evidence"
    if flat and posterior.periods is None:
        return f"{verdict}."
    parts = list(_spread(posterior) if posterior.periods is None else _course(posterior))
    if not parts:
        return "" if variation is None else f"{verdict}."
    if variation is not None and posterior.periods is not None:  # over the land, and over time
        return f"{verdict}. {'; '.join(part[0].upper() + part[1:] for part in parts)}."
    return f"{verdict}{': ' if variation is not None else ' is such that '}{'; '.join(parts)}."


def _spread(posterior: Posterior) -> Iterator[str]:
    """Say between what most of the land (of the people) lies, and how much of it is surely above the average."""
    weights, where = _weights(posterior)
    values = posterior._statistics(None)["mean" if posterior.drawn == "mean" else quantile_name(0.5)]
    above, average = (1.0, "1") if posterior.quantity == RELATIVE_RISK else (posterior.overall, "the average")
    chance = posterior.link.exceedance(posterior._shown_nodes, above)
    shown = np.isfinite(values) & np.isfinite(chance) & (weights > 0)
    if not shown.any():
        return
    weights, values, chance = weights[shown], values[shown], chance[shown]
    order = np.argsort(values)
    shares = np.cumsum(weights[order]) / weights.sum()
    low, high = (float(values[order][min(np.searchsorted(shares, q), len(order) - 1)]) for q in _MIDDLE)
    share = percent(_MIDDLE[1] - _MIDDLE[0])
    on = "on" if where == "land" else "for"
    yield (
        f"{on} {share} of the {where} the posterior {posterior.drawn} is between {_without_unit(posterior, low)} and "
        f"{_with_unit(posterior, high)}"
    )
    sure = float(weights[chance > _SURE].sum() / weights.sum())
    there = f"{on} {percent(sure, None if sure >= _SOME else 1)} it is" if sure > 0 else "nowhere is it"
    yield f"{there} above {average} with a probability of more than {percent(_SURE)}"


def _weights(posterior: Posterior) -> tuple[np.ndarray, str]:
    """Return what every node counts for, and of what these are shares: people where they are known, else land."""
    names = {"population": "population", "expected": "expected events", "exposure": "exposure", "risk": "controls"}
    if posterior.exposure_kind not in names:
        return posterior.domain.node_areas, "land"
    return np.asarray(posterior.exposure, float), names[posterior.exposure_kind]


def _course(posterior: Posterior) -> Iterator[str]:
    """Say when most and fewest events were expected, or when the level was highest and lowest."""
    periods = posterior.periods
    if periods is None or periods.n < 2:
        return
    table = posterior.level()
    name, what = ("expected", "the expected number of events") if "expected" in table else ("level", "the level")
    table = table[np.isfinite(table[name].to_numpy(float))]  # without what is hidden
    if not len(table):
        return
    parts, when = [], "on" if periods.noun == "day" else "in"
    for words, k in (("highest", table[name].idxmax()), ("lowest", table[name].idxmin())):
        row = table.loc[k]
        values = (float(row[key]) for key in (name, *(f"{name}_{quantile_name(q)}" for q in posterior.quantiles[::2])))
        main, low, high = (events(v) if name == "expected" else _without_unit(posterior, v) for v in values)
        parts.append(
            f"{words} {when} {row['period']} ({main}; {whole_percent(posterior.interval)} interval {low} to {high})"
        )
    yield f"{what} was {' and '.join(parts)}"


# -- Priors ------------------------------------------------------------------------------------------------------


def priors(posterior: Posterior) -> list[tuple[str, str]]:
    """Return every parameter with its prior, in words."""
    return list(_priors(posterior))


def _priors(posterior: Posterior) -> Iterator[tuple[str, str]]:
    kernel, domain, family = posterior.kernel, posterior.domain, posterior.likelihood
    scale, unit = domain.length_unit
    linear = "noise" in family.facts() or posterior.link.name == "identity"
    yield "Field", f"Gaussian process with the kernel {kernel.name} on the land, with {posterior.basis.weights}"
    prior = kernel.prior.scaled(math.sqrt(float(domain.node_areas.sum())), domain.cell_size)
    if isinstance(prior, NormalPrior):
        (mean, spread), (log_sd, of_sd) = prior.log_lengthscale, prior.log_sd
        reach = f"normal on the log scale, median {number(math.exp(mean) / scale, 3)} {unit}, sd {number(spread, 2)}"
        size = f"normal on the log scale, median {number(math.exp(log_sd), 3)}, sd {number(of_sd, 2)}"
    else:
        assert prior.lengthscale is not None and prior.sd is not None
        (shortest, alpha), (largest, beta) = prior.lengthscale, prior.sd
        reach = f"penalised complexity: below {number(shortest / scale, 3)} {unit} with a probability of {_p(alpha)}"
        times = " times the sd of the values" if linear and kernel.prior.sd is None else ""  # type: ignore[union-attr]
        size = f"penalised complexity: above {number(largest, 3)}{times} with a probability of {_p(beta)}"
    yield "Lengthscale", reach if kernel.lengthscale is None else "given"
    yield "Standard deviation of the field", size if kernel.sd is None else "given"
    if posterior.periods is not None and posterior.periods.n > 1:
        usual = f"penalised complexity: below half a {posterior.periods.noun} with a probability of 5 %"
        yield "Correlation time", usual
        if math.isfinite(posterior.level_sd):
            yield "Level of the periods", "AR(1); sd above 3 with a probability of 5 %, correlation time as above"
    yield "Intercept", f"normal, sd {number(FIXED_SD)} about the overall level" + (" (log scale)" if not linear else "")
    for block in posterior.design.blocks:
        yield f"Effect of {block.covariate}", _effect_prior(block)
    if linear:
        yield "Noise", "exponential, above 3 times the sd of the values with a probability of 5 %"
    if family.dispersion is not None:
        yield "Dispersion", "flat on the log scale; the value with the highest bound is taken"


def _effect_prior(block: Any) -> str:
    if block.sd != "learned":
        per = "per standard deviation of the covariate" if block.terms[0].level is None else "for each level"
        return f"normal, sd {number(block.sd)} {per}"
    what = "its departure from a straight line" if block.kind == "smooth" else "its levels"
    return (
        f"{what}: normal, with a standard deviation that is learned (exponential prior, rate {number(block.rate, 3)})"
    )


def _p(alpha: float) -> str:
    return f"{100 * alpha:.3g} %"


# -- What intervals include, and what they do not ---------------------------------------------------------------


def included(posterior: Posterior) -> list[str]:
    """Return which uncertainty the intervals of a map hold."""
    sources = ["the limited number of observations", "the field between and beyond them", "the overall level"]
    if posterior.design.names:
        sources.append(f"the effects of {in_a_row(posterior.design.covariates)}")
    if posterior.periods is not None:
        sources.append("the course over the periods")
    if posterior.nowcast.any():
        sources.append("the delays of reports")
    if _integrated(posterior):
        sources.append(f"the hyperparameters, by a mixture over {len(posterior.fit.states)} values")
    return sources


def not_included(posterior: Posterior) -> list[str]:
    """Return which uncertainty the intervals of a map do not hold, a sentence each."""
    return list(_not_included(posterior))


def _not_included(posterior: Posterior) -> Iterator[str]:
    learned = [name for name in ("lengthscale", "sd") if getattr(posterior.kernel, name) is None]
    if learned and not _integrated(posterior):
        yield "Lengthscale and standard deviation are held at their best values; averaging over them widens intervals."
    elif not learned:
        yield "Lengthscale and standard deviation were given, and are taken as exact."
    if posterior.likelihood.dispersion is not None:
        measured = posterior.likelihood.quantity == "value"
        yield f"The {'measurement noise' if measured else 'dispersion of the counts'} is held at its best value."
    chosen = [what for what, several in _varied(posterior.tried).items() if several]
    about = f" (the best of {len(posterior.tried)} fits)" if len(posterior.tried) > 1 and chosen else ""
    yield f"The choice of cell size, prior and permeability of water{about} is not averaged over."
    exposures = {"population": "The population", "expected": "The expected numbers", "exposure": "The exposure"}
    if posterior.exposure_kind in exposures:
        verb = "are" if posterior.exposure_kind == "expected" else "is"
        yield f"{exposures[posterior.exposure_kind]} {verb} taken as known without error, as is where it lies."
    if posterior.final_effort is not None:
        yield "The effort (the share of events that is reported) is taken as known without error."
    if posterior.delays is not None:
        yield "Delays are assumed to have the same distribution throughout the series; its uncertainty is included."
    if posterior.design.names:
        what = "confounders" if posterior.exposure_kind == "risk" else "covariates"
        yield f"The values of the {what} ({in_a_row(posterior.design.covariates)}) are taken as measured without error."
    if posterior.areas is None or "in_areas" not in posterior.points:
        yield "Locations are taken as exact: geocoding errors are not part of the intervals."
    elif round(posterior.points["used"]) > round(posterior.points["in_areas"]):
        yield "The locations of those events that have one are taken as exact."
    if posterior.is_summed or posterior.exposure_kind == "risk":
        yield "Misclassified, duplicated or unreported events are not part of the intervals."
    if posterior.is_summed and posterior.exposure_kind != "risk":
        yield "Intervals are of the underlying rate; a number yet to be observed varies more."


def _integrated(posterior: Posterior) -> bool:
    return len(posterior.fit.states) > 1


# -- Limitations --------------------------------------------------------------------------------------------------


def limitations(posterior: Posterior, checked: Any = None, *, only: str = "") -> list[str]:
    """Return what limits a map, as its data, its choices and its checks have it, a sentence each.

    Parameters
    ----------
    posterior : Posterior
    checked : CrossValidation or ForecastCheck, optional
    only : str
        "data": those of the data alone.
    """
    if only == "data":
        return list(_of_data(posterior))
    parts = (_of_evidence(posterior, checked), _of_data(posterior), _of_land(posterior), _of_model(posterior))
    return [sentence for part in parts for sentence in part]


def _of_evidence(posterior: Posterior, checked: Any) -> Iterator[str]:
    variation = posterior._known_variation()
    if not posterior.converged:
        yield "The fit has not converged: its numbers are provisional."
    if variation is not None and variation.verdict != "varies":
        yield f"{variation.in_short[0].upper()}{variation.in_short[1:]}: patterns of the map may be chance."
    if checked is None:
        yield "Predictions of held-out data were not checked."
        return
    low, high = checked.coverage_band
    if not low <= checked.coverage <= high:
        side = "too narrow" if checked.coverage < low else "wider than they need be"
        share = f"{percent(checked.coverage)} of what was held out lies within {whole_percent(checked.interval)}"
        yield f"Intervals are {side}: {share} intervals."
    if getattr(checked, "score", 0.0) < 0:
        yield "One level everywhere predicts what was held out better: away from the data, do not rely on the map."


def _of_data(posterior: Posterior) -> Iterator[str]:
    points, areas = posterior.points, posterior.areas
    used = max(points.get("used", 0), 1)
    lost = {"dropped": "lay off the land and were dropped", "missing": "had no location and were dropped"}
    for name, what in lost.items():
        if points.get(name, 0) > 0:
            yield f"{points[name]:,.0f} of {used + points[name]:,.0f} {_rows(posterior)} {what}."
    if points.get("snapped", 0) > _SOME * used:
        share = percent(points["snapped"] / used)
        yield f"{points['snapped']:,.0f} of the {_rows(posterior)} ({share}) lay off the land and were moved to it."
    if areas is not None:
        size = posterior.domain.node_areas.sum() / posterior.domain.area_unit[0] / max(len(areas.names), 1)
        unit = posterior.domain.area_unit[1] if posterior.domain.crs is not None else "square units"
        follows = ["its neighbours", *(["the exposure"] if posterior.exposure_kind != "area" else [])]
        follows += ["covariates"] if posterior.design.names else []
        yield (
            f"Counts are known by area ({count(len(areas.names), 'area')}, {number(size, 2)} {unit} on average): "
            f"within an area the map follows {in_a_row(follows)}; it says nothing about individual persons."
        )
        if (hidden := int(areas.hidden.sum())) > 0:
            yield f"The {count(hidden, 'suppressed count is', 'suppressed counts are')} known only within an interval."
    if posterior.exposure_kind == "area":
        yield "No population was given: the intensity is high where many people are exposed; it is not a risk."
    if posterior.exposure_kind == "risk":
        yield "Controls are taken as a random sample of the population at risk; absolute risks cannot be estimated."
        if not posterior.design.names:
            yield "No confounders were adjusted for: differences of age or sex between places may appear as risk."
    if posterior.final_effort is None and posterior.is_summed and posterior.exposure_kind != "risk":
        yield "Reporting is assumed to be equally complete everywhere: where it is more complete, the map is higher."
    if posterior.unexposed.any():
        share = percent(
            float(
                posterior.domain.node_areas[np.atleast_2d(posterior.unexposed).all(axis=0)].sum()
                / posterior.domain.node_areas.sum()
            )
        )
        yield f"On {share} of the land nobody is exposed: there the map is inferred from the surroundings."
    if posterior.protection:
        yield "Small numbers are protected: places based on few events are hidden, and values are shown in steps."


def _rows(posterior: Posterior) -> str:
    if posterior.exposure_kind == "risk":
        return "persons"
    return "points" if posterior.is_summed else "sites"


def nouns(posterior: Posterior) -> dict[str, str]:
    """Return what a map is made from, what varies, and what was held out of it, for the words of a report."""
    if posterior.exposure_kind == "risk":
        return {"data": "persons", "rate": "risk", "held": "blocks"}
    if posterior.is_summed:
        by_area = posterior.areas is not None
        return {"data": "counts" if by_area else "points", "rate": "rate", "held": "areas" if by_area else "blocks"}
    data = "surveys" if "tested" in posterior.points else "measurements"
    rate = "rate" if posterior.quantity == "intensity" else posterior.quantity
    return {"data": data, "rate": rate, "held": "blocks"}


def _of_land(posterior: Posterior) -> Iterator[str]:
    domain = posterior.domain
    scale, unit = domain.length_unit
    cell = f"{number(domain.cell_size)} {'m' if domain.crs is not None else 'units'}"
    yield f"Nothing smaller than a cell of {cell} is resolved."
    cells = posterior.lengthscale / domain.cell_size
    if cells < _FEW_CELLS:
        yield f"The lengthscale is only {number(cells, 2)} cells long: shorter variation is averaged out."
    across = math.sqrt(float(domain.node_areas.sum()))
    if posterior.lengthscale > across:
        reach = f"{number(posterior.lengthscale / scale, 3)} {unit}"
        yield f"The lengthscale ({reach}) is longer than the land is wide, and poorly known: the map shows a trend."
    elif posterior.kernel.lengthscale is None:
        spread = math.sqrt(float(posterior.fit.hyper_cov[0, 0]))
        if math.exp(2 * 1.645 * spread) > _WIDE:
            yield "The lengthscale is known within a factor of ten at best."
    waters = {record.water for record in posterior.tried}
    if len(waters) < 2 and (domain.water_geometry is not None or domain.n_components > 1):
        share = posterior.basis.permeability
        how = "closed" if share == 0 else "open" if share == 1 else f"{percent(share)} permeable"
        yield f"Water was taken as {how}; alternatives were not compared."
    missed = float(posterior.fit.truncated_variance)
    if posterior.basis.truncated and missed > _SOME:
        yield f"The {posterior.basis.label} miss {percent(missed)} of the prior variance: the smallest patterns."
    if posterior.basis.boundary == "dirichlet":
        yield "At the boundary the map is held at its mean, by assumption."


def _of_model(posterior: Posterior) -> Iterator[str]:
    if posterior.is_summed and posterior.exposure_kind != "risk" and posterior.likelihood.dispersion is None:
        yield "Events are taken as independent given the map: clusters within families or outbreaks are not modelled."
    if posterior.design.names:
        yield "Effects of covariates are associations; a field correlated with a covariate may take part of its effect."
    elif posterior.exposure_kind != "risk":
        yield "No covariates were used: the map shows where, but does not explain why."
    yield "The lengthscale and the standard deviation are assumed to be the same everywhere on the land."
    if posterior.periods is not None and posterior.periods.n > 1:
        fades = "patches of all sizes fade alike" if posterior.dynamics == "separable" else "small patches fade sooner"
        yield f"One correlation time is assumed for all periods, and {fades}; sudden changes are smoothed."


# -- Sensitivity --------------------------------------------------------------------------------------------------

#: Head of the table of `sensitivity`.
SENSITIVITY = ("Other choice", "Lengthscale", "Standard deviation", "Gain in nats", "Difference of the maps")


def sensitivity(posterior: Posterior) -> list[tuple[str, ...]]:
    """Return how each of the other fits differs from the one that was kept, a row each."""
    kept = next((record for record in posterior.tried if record.kept), None)
    if kept is None or len(posterior.tried) < 2:
        return []
    scale, unit = posterior.domain.length_unit
    rows = list[tuple[str, ...]]()
    for record in sorted(posterior.tried, key=lambda record: not record.kept):
        length = "-" if record.lengthscale is None else f"{number(record.lengthscale / scale, 3)} {unit}"
        apart = "-" if record.difference is None else f"{number(record.difference, 2)} sd"
        gain = f"{record.gain:,.1f}" if record.kept else f"{record.gain - kept.gain:+,.1f}"
        spread = "-" if record.sd is None else number(record.sd, 3)
        rows.append((_differs(record, kept), length, spread, gain, "" if record.kept else apart))
    return rows


def not_varied(posterior: Posterior) -> list[str]:
    """Return which choices no other fit was made of."""
    return [what for what, several in _varied(posterior.tried).items() if not several]


def _varied(tried: tuple[FitRecord, ...]) -> dict[str, bool]:
    names = {"cell_size": "cells", "water": "water", "prior": "number of features", "kernel": "kernel"}
    return {what: len({getattr(record, name) for record in tried}) > 1 for name, what in names.items()}


def _differs(record: FitRecord, kept: FitRecord) -> str:
    """Return in what a fit differs from the one that was kept."""
    if record.kept:
        parts = (f"cells of {number(kept.cell_size)}", kept.prior, water_of(kept.water), kept.kernel)
        return f"Kept: {', '.join(filter(None, parts))}"
    words = []
    if (ratio := record.cell_size / kept.cell_size) != 1:
        sized = {2.0: "twice as wide", 0.5: "halved"}.get(round(ratio, 3), f"{number(ratio, 2)} times as wide")
        words.append(f"cells {sized}")
    words += [
        water_of(record.water) if name == "water" else str(getattr(record, name))
        for name in ("prior", "water", "kernel", "family")
        if getattr(record, name) != getattr(kept, name)
    ]
    text = ", ".join(words) or "the same again"
    return f"{text[0].upper()}{text[1:]}"


def in_a_row(names: Any) -> str:
    """Return names as people list them."""
    names = [str(name) for name in names]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
