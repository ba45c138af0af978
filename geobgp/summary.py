"""Summary: what a fit used and found, as text, as a table in a notebook, and as plain data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.special import ndtri

from geobgp.data.areas import AreaCounts
from geobgp.data.counts import Counts
from geobgp.data.effects import INTERCEPT, Effects
from geobgp.data.inputs import about_effort
from geobgp.inference.links import EXP, Link
from geobgp.inference.mixture import INTERVAL, NormalMixture, interval_in, quantile_name, quantiles_of
from geobgp.text import count, html_table, number, ratio_text

if TYPE_CHECKING:
    from geobgp.data.periods import Periods
    from geobgp.inference.families import Likelihood
    from geobgp.posterior import Posterior

#: What the effects of a yearly cycle are called.
SEASON = ("cosine of the year", "sine of the year")
#: Facts of the computation, which end what is printed in one row.
_COMPUTED = ("hyperparameter_points", "rounds", "converged", "message", "seconds", "created")
#: Nats by which more spread than that of Poisson counts must lead to be called needed.
NEEDED = 2.0


@dataclass(frozen=True, eq=False, repr=False)
class Summary(Mapping[str, Any]):
    """The facts of a fit, by name; prints as text.

    Parameters
    ----------
    facts : dict
        Plain numbers, strings, lists and dicts only. Quantities with uncertainty are dicts with ``value``, the ends of
        its interval (``q05`` and ``q95`` of 90 %), ``unit`` and ``learned``.

    Examples
    --------
    >>> print(Summary({"points": {"used": 4446, "dropped": 3}, "boundary": "neumann"}))
    points    4,446 used, 3 dropped
    boundary  neumann
    """

    facts: dict[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.facts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.facts)

    def __len__(self) -> int:
        return len(self.facts)

    def to_dict(self) -> dict[str, Any]:
        """Return a copy that JSON can hold; what is not known is None."""
        return plain(self.facts)

    def rows(self) -> list[tuple[str, str]]:
        """Return (name, text) of the facts as printed: what was found first, the computation in the last row."""
        out: list[tuple[str, str]] = []
        for name, value in self.facts.items():
            label = name.replace("_", " ")
            if name in _COMPUTED:
                continue
            if name == "coefficients":
                out += _coefficients(value)
            elif name == "tried":
                out += [("tried" if k == 0 else "", _rung(rung)) for k, rung in enumerate(value)]
            elif name == "choices":
                out += [(f"{what.replace('_', ' ')} chosen", str(why)) for what, why in value.items()]
            elif name in ("variation", "variogram"):
                out.append((label, value["sentence"]))
            elif isinstance(value, dict):
                label = _observed(value) if name == "points" else label
                out.append((label, _quantity(value) if "value" in value else _parts(value)))
            elif value is not None:
                out.append((label, _text(name, value)))
        computed = _computation(self.facts)
        return [*out, ("computation", computed)] if computed else out

    def __str__(self) -> str:
        rows = self.rows()
        width = max((len(name) for name, _ in rows), default=0)
        return "\n".join(f"{name:<{width}}  {text}".rstrip() for name, text in rows)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return html_table(self.rows())


#: The reason to take water for open that says that there is none to cross.
NO_WATER = "next to no water lies between the places"


def water_of(water: str) -> str:
    """Return what is told of water in a `FitRecord`, with its noun.

    Examples
    --------
    >>> water_of("open"), water_of("permeability 0.3")
    ('open water', 'water with permeability 0.3')
    """
    return f"water with {water}" if water.startswith("permeability") else f"{water} water"


@dataclass(frozen=True)
class Choice:
    """One decision: what was taken, and why."""

    value: str
    why: str

    def __str__(self) -> str:
        return f"{self.value} ({self.why})"


@dataclass(frozen=True)
class FitRecord:
    """A fit that was tried on the way to the one that is kept.

    Attributes
    ----------
    cell_size : float
        In metres (units of a local domain).
    nodes : int
    prior : str
        How many features, or full resolution.
    water : str
        Closed, open, or the permeability.
    gain : float
        The bound of the points' log-likelihood less that of an even rate, in nats.
    seconds : float
        What the fit took.
    kept : bool
    kernel, family : str
        What else may differ: the smoothness of the prior, and the distribution of the observations where that is
        chosen.
    lengthscale, sd : float
        What was learned.
    difference : float
        How far its map lies from that of the fit that was kept, in standard deviations of the latter's linear predictor
        (root mean square over the land); None where they cannot be compared.
    """

    cell_size: float
    nodes: int
    prior: str
    water: str
    gain: float
    seconds: float
    kept: bool = False
    kernel: str = ""
    family: str = ""
    lengthscale: float | None = None
    sd: float | None = None
    difference: float | None = None


def point_facts(counts: Counts | np.ndarray | None, areas: AreaCounts | None = None) -> dict[str, float]:
    """Return numbers of points, from what was counted, or from an array of counts per node; and of areas."""
    if areas is not None:
        known = {"used": 0.0, "dropped": 0.0} if counts is None else point_facts(counts)
        in_areas = {"in_areas": areas.n_used, "areas": len(areas.values)}
        hidden = {"suppressed": int(areas.hidden.sum())} if areas.hidden.any() else {}
        placed = 0 if counts is not None or areas.located is None else round(float(areas.located.sum()))
        known["dropped"] += sum(areas.lost.values())
        return known | {"used": known["used"] + placed + areas.n_used} | in_areas | hidden
    assert counts is not None
    if not isinstance(counts, Counts):
        return {"used": round(float(np.sum(counts))), "dropped": 0}
    found = {"used": counts.n_used, "dropped": counts.n_dropped, "snapped": counts.n_snapped}
    facts: dict[str, float] = {name: int(value) for name, value in found.items()}
    if counts.n_missing:
        facts["missing"] = int(counts.n_missing)
    if counts.total_weight != counts.n_used:
        facts["total_weight"] = float(counts.total_weight)
    return facts


def events_in_words(points: Mapping[str, float]) -> str:
    """Say how much made a map: points, numbers by area, measurements, or those tested.

    Examples
    --------
    >>> events_in_words({"used": 4446}), events_in_words({"used": 4975, "in_areas": 4975, "areas": 12})
    ('4,446 points', '4,975 events in 12 areas')
    >>> events_in_words({"used": 61, "places": 20}), events_in_words({"used": 5, "positive": 31, "tested": 90})
    ('61 measurements at 20 sites', '31 positive of 90 tested at 5 sites')
    >>> events_in_words({"used": 9, "cases": 1, "controls": 8}), events_in_words({"used": 324, "total_weight": 392.0})
    ('1 case and 8 controls', '324 points with a total weight of 392')
    """
    sites = count(round(points.get("places", points.get("used", 0))), "site")
    if "tested" in points:
        return f"{points['positive']:,.0f} positive of {points['tested']:,.0f} tested at {sites}"
    if "places" in points:
        return f"{count(round(points['used']), 'measurement')} at {sites}"
    if "fewer_than" in points:
        return f"fewer than {count(round(points['fewer_than']), 'point')}"
    if "cases" in points and "controls" in points:
        return f"{count(round(points['cases']), 'case')} and {count(round(points['controls']), 'control')}"
    used, in_areas = round(points.get("used", 0)), round(points.get("in_areas", 0))
    if not in_areas:
        weight = points.get("total_weight")
        return count(used, "point") + ("" if weight is None else f" with a total weight of {number(weight)}")
    text = f"{count(in_areas, 'event')} in {count(round(points['areas']), 'area')}"
    return text if used == in_areas else f"{count(used - in_areas, 'point')} and {text}"


def latent_name(posterior: Posterior) -> str:
    """Return what the linear predictor is, in words: the scale of the field's standard deviation."""
    what = posterior.quantity
    words = {
        "exp": f"log {what}".replace("log i", "log-i"),
        "logit": "log odds",
        "probit": f"probit of the {what}",
        "square": f"square root of the {what}",
    }
    return words.get(posterior.link.name, what)


def weights_of(states: Sequence[Any]) -> np.ndarray:
    """Return the shares of states in a mixture."""
    weight = np.array([state.weight for state in states], float)
    return weight / weight.sum()


def statistics(mixture: NormalMixture, quantiles: Sequence[float], link: Link = EXP) -> dict[str, np.ndarray]:
    """Return mean, sd and quantiles of what a link makes of a mixture of normals, by name."""
    mean, var = link.moments(mixture)
    named = {quantile_name(q): link.quantile(mixture, q) for q in quantiles}
    return {"mean": mean, "sd": np.sqrt(var)} | named


def coefficient_table(
    states: Sequence[Any], effects: Effects, ratio: str | None, interval: float = INTERVAL
) -> pd.DataFrame:
    """Return the fixed effects in their own units: name, mean, sd, interval, and their ratios, if these have a name.

    Levels have their covariate's reference level and their own in columns of these names.
    """
    pairs = [effects.own_units(*state.coefficients()) for state in states]
    mixture = NormalMixture(weights_of(states), np.array([m for m, _ in pairs]), np.array([v for _, v in pairs]))
    mean, var = mixture.moments()
    names = [INTERCEPT, *effects.names]
    names += list(SEASON[: max(len(mean) - len(names), 0)])
    names = names[len(names) - len(mean) :]
    ends = {quantile_name(q): mixture.quantile(q) for q in quantiles_of(interval)[::2]}
    values = {"mean": mean, "sd": np.sqrt(var)} | ends
    frame = pd.DataFrame({"name": names} | values)
    if ratio is not None:
        slope = np.array([name != INTERCEPT for name in names], bool)
        for column in ("mean", *ends):
            name = ratio.replace(" ", "_") + ("" if column == "mean" else f"_{column}")
            with np.errstate(over="ignore"):
                frame[name] = np.where(slope, np.exp(values[column]), np.nan)
    # A curve's departures from its line mean nothing one by one.
    curved = {
        t.name for b in effects.blocks if b.sd == "learned" and b.kind != "group" for t in b.terms if t.part is not None
    }
    if curved:
        frame = frame[~frame["name"].isin(curved)].reset_index(drop=True)
        names = list(frame["name"])
    terms = {term.name: term for term in effects.terms if term.level is not None}
    if terms:
        for fact in ("level", "reference"):
            frame[fact] = [getattr(terms.get(name), fact, None) for name in names]
    return frame


def describe(posterior: Posterior) -> Summary:
    """Return the summary of a posterior."""
    fit, info, domain, kernel = posterior.fit, posterior.basis_info, posterior.domain, posterior.kernel
    area, area_name = domain.area_unit
    scale, unit = domain.length_unit
    facts: dict[str, Any] = {"points": dict(posterior.points)}
    if posterior.periods is not None:
        facts["periods"] = _period_words(posterior, posterior.periods)
    if (variation := posterior._known_variation()) is not None:
        facts["variation"] = variation.facts()
    facts |= {
        "land": f"{number(domain.node_areas.sum() / area)} {area_name}, {domain.n_nodes:,} nodes",
        "likelihood": posterior.likelihood.name,
        "unit": posterior.units,
        **_describe_time(posterior),
        "effort": None if posterior.final_effort is None else about_effort(posterior.final_effort, domain),
        "delays": None if posterior.delays is None else posterior.delays.words(),
        "boundary": info["boundary"],
        "permeability": info["permeability"],
        "prior_sd": "the same on all land" if posterior.scaling == "even" else "larger on islets and at boundaries",
        "features": info["m"],
        "truncated_variance": float(fit.truncated_variance) or None,
        "kernel": kernel.name,
        "lengthscale": _hyper(posterior, 0, scale, unit, kernel.lengthscale is None),
        "sd": _hyper(posterior, 1, 1.0, "", kernel.sd is None),
    }
    learned = list(posterior.design.learned)
    first = len(fit.hyper_mean) - len(learned)
    for k, name in enumerate(learned, start=first):
        facts[f"sd_of_effects_of_{name}"] = _hyper(posterior, k, 1.0, "", True)
    if "k" in (spread := posterior.likelihood.facts()):
        facts["overdispersion"] = _spread(posterior.likelihood, spread["k"], spread.get("gain", math.nan))
    noise = sum(state.weight * state.noise for state in fit.states)
    if np.isfinite(noise):
        facts["noise"] = float(noise)
    if (fitted := posterior._fitted_variogram()) is not None:
        facts["variogram"] = fitted.facts()
    facts |= {
        "coefficients": _with_kinds(posterior.coefficients.to_dict("records"), posterior.design),
        "elbo": posterior.elbo,
        "hyperparameter_points": len(fit.states),
        "rounds": int(fit.rounds),
        "converged": posterior.converged,
        "message": str(fit.message) or None,
        "seconds": {name: float(value) for name, value in fit.seconds.items()},
        "created": posterior.created,
        "choices": dict(posterior.choices),
        "tried": [asdict(rung) for rung in posterior.tried],
    }
    return Summary(facts)


def _describe_time(posterior: Posterior) -> dict[str, Any]:
    """Return what a summary says of periods; nothing where there are none."""
    if posterior.periods is None:
        return {}
    fit, periods = posterior.fit, posterior.periods
    facts: dict[str, Any] = {}
    if periods.n > 1:
        fades = {"separable": "all patches fade alike", "diffusive": "the smaller a patch, the sooner it fades"}
        facts["dynamics"] = f"{posterior.dynamics}: {fades[posterior.dynamics]}"
        facts["correlation_time"] = _hyper(posterior, 2, 1.0, f"{periods.noun}s", bool(fit.hyper_cov[2, 2] > 0))
    if periods.n > 1 and np.isfinite(posterior.level_sd):
        facts["level_sd"] = _hyper(posterior, 3, 1.0, "", bool(fit.hyper_cov[3, 3] > 0))
    return facts | {"yearly_cycle": _season(posterior)}


def _period_words(posterior: Posterior, periods: Periods) -> str:
    """Return which periods there are, and how many of them are without events."""
    empty = 0 if posterior.observed is None else int((posterior.observed.sum(axis=1) == 0).sum())
    return periods.words() + (f", {empty:,} without events" if empty else "")


def _season(posterior: Posterior) -> str | None:
    """Return when a year's peak is, and how much higher it is than the lowest, in words."""
    table, periods = posterior.coefficients.set_index("name")["mean"], posterior.time
    if SEASON[0] not in table.index or periods.per_year is None:
        return None
    cosine, sine = float(table[SEASON[0]]), float(table[SEASON[1]])
    when = math.atan2(sine, cosine) / (2.0 * math.pi) * 365.25
    day = periods.middles[0].astype("datetime64[D]") + np.timedelta64(round(when % 365.25), "D")
    month = day.astype(object).strftime("%B")
    return f"highest in {month}, {number(math.exp(2.0 * math.hypot(cosine, sine)), 2)} times the lowest"


def _spread(family: Likelihood, k: float, gain: float) -> str:
    """Return the size of a negative binomial or a beta-binomial, and whether it was needed, in words."""
    limit = "binomial numbers" if "tested" in family.arrays else "Poisson counts"
    size = f"size {number(k, 3)}"
    if not math.isfinite(gain):
        return size
    if gain > NEEDED:
        return f"{size}: needed, {number(gain, 3)} nats above {limit}"
    return f"{size}: not needed, {number(max(gain, 0.0), 2)} nats above {limit}"


def _hyper(posterior: Posterior, k: int, scale: float, unit: str, learned: bool) -> dict[str, Any]:
    mean, spread = (float(v) for v in (posterior.fit.hyper_mean[k], np.sqrt(posterior.fit.hyper_cov[k, k])))
    fact: dict[str, Any] = {"value": float(np.exp(mean) / scale)}
    for q in posterior.quantiles[::2]:
        fact[quantile_name(q)] = float(np.exp(mean + ndtri(q) * spread) / scale)
    return fact | {"unit": unit, "learned": learned}


def interval_words(fact: Mapping[str, Any], of: str = "", show: Callable[[float], str] = number) -> str:
    """Return the interval of a fact as people read it; empty where it has none.

    Examples
    --------
    >>> interval_words({"value": 3.0, "q025": 1.0, "q975": 5.0})
    '95 % interval 1 to 5'
    """
    ends = interval_in(fact, of)
    return "" if ends is None else f"{ends.words} interval {show(fact[ends.low])} to {show(fact[ends.high])}"


def _quantity(fact: Mapping[str, Any]) -> str:
    unit = f" {fact['unit']}" if fact.get("unit") else ""
    if not fact.get("learned", True):
        return f"{number(fact['value'])}{unit} (given)"
    return f"{number(fact['value'])}{unit} ({interval_words(fact)})"


def _with_kinds(coefficients: list[dict[Any, Any]], effects: Effects) -> list[dict[Any, Any]]:
    """Return coefficients with the curve that they are the line of, or the group that they are a level of."""
    kinds: dict[str, dict[str, str | None]] = {}
    for block in effects.blocks:
        if block.spline is not None and not block.parents:
            kinds[block.terms[0].name] = {"line_of": block.covariate}
        elif block.kind == "group":
            kinds |= {term.name: {"group_of": block.covariate, "level": term.part} for term in block.terms}
    return [c | kinds.get(c["name"], {}) for c in coefficients]


def _coefficients(facts: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Return the lines of coefficients; of a group one, with its lowest and its highest level."""
    out: list[tuple[str, str]] = []
    for covariate, some in groupby(facts, key=lambda c: c.get("group_of")):
        each = list(some)
        if covariate is None:
            out += [(f"  {c['name']}" if k or out else c["name"], _coefficient(c)) for k, c in enumerate(each)]
            continue
        low, high = (pick(each, key=lambda c: float(c["mean"])) for pick in (min, max))
        words = (f"{c['level']} {number(c['mean'])} ({interval_words(c)})" for c in (low, high))
        out.append((f"  {covariate}", f"{len(each)} groups, from {' to '.join(words)}"))
    return out


def _coefficient(c: Mapping[str, Any]) -> str:
    if "line_of" in c:
        return f"a curve, see effects(); its straight part {number(c['mean'])} ({interval_words(c)})"
    text = f"{number(c['mean'])} ({interval_words(c)})"
    for what in ("rate", "odds"):
        ratio, ends = c.get(f"{what}_ratio", math.nan), interval_in(c, f"{what}_ratio")
        if math.isfinite(ratio) and ends is not None:
            low, high = ratio_text(c[ends.low], 4), ratio_text(c[ends.high], 4)
            per = "" if isinstance(c.get("level"), str) else " per unit"
            text += f"; {what} x {ratio_text(ratio, 4)} ({low} to {high}){per}"
    return text


def _rung(rung: Mapping[str, Any]) -> str:
    kept = ", kept" if rung["kept"] else ""
    about = ", ".join(filter(None, (rung["prior"], rung.get("kernel"), rung.get("family"), water_of(rung["water"]))))
    return (
        f"cells of {number(rung['cell_size'])} ({rung['nodes']:,} nodes), {about}: "
        f"{rung['gain']:,.1f} nats above one level everywhere, {rung['seconds']:.1f} s{kept}"
    )


def _computation(facts: Mapping[str, Any]) -> str:
    """Say how the computation went, in one line."""
    parts: list[str] = []
    if (converged := facts.get("converged")) is not None:
        message = facts.get("message")
        parts.append("converged" if converged else f"not converged{f': {message}' if message else ''}")
    if rounds := facts.get("rounds"):
        parts.append(count(int(rounds), "round"))
    if (states := int(facts.get("hyperparameter_points") or 1)) > 1:
        parts.append(f"averaged over {states:,} settings of the hyperparameters")
    if (total := (facts.get("seconds") or {}).get("total")) is not None:
        parts.append(f"{total:.3g} s")
    return ", ".join(parts) + (f"; {facts['created']}" if facts.get("created") and parts else "")


def _observed(points: Mapping[str, Any]) -> str:
    """Return what the numbers of observations are of.

    Examples
    --------
    >>> [_observed(points) for points in ({"used": 5}, {"used": 5, "in_areas": 5}, {"used": 9, "tested": 90})]
    ['points', 'events', 'surveys']
    """
    named = {"tested": "surveys", "places": "measurements", "cases": "persons", "in_areas": "events"}
    return next((noun for key, noun in named.items() if points.get(key)), "points")


def _parts(value: Mapping[str, Any]) -> str:
    shown = (("moved to land" if part == "snapped" else part, v) for part, v in value.items() if v is not None)
    return ", ".join(f"{number(v) if isinstance(v, (int, float)) else v} {part.replace('_', ' ')}" for part, v in shown)


def _text(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        if name == "truncated_variance":
            return f"{100 * value:.2g} % of the prior variance"
        return f"{value:,.2f}" if name == "elbo" else number(value)
    return str(value)


def plain(value: Any) -> Any:
    """Return what JSON can hold: no NaN, no arrays."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [plain(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
