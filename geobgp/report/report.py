"""The report: what was done and found, in words, figures and tables."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from scipy.optimize import brentq
from scipy.special import gamma, kv

from geobgp.checks.crossval import too_few_to_hold_out, what_to_try
from geobgp.data.effects import INTERCEPT
from geobgp.data.inputs import about_effort
from geobgp.errors import CheckWarning, GeobgpError, RenderOption, render_text, warn
from geobgp.files import replacing
from geobgp.inference.links import EXP
from geobgp.inference.mixture import interval_in
from geobgp.output.figures import panel_step
from geobgp.output.grids import View
from geobgp.prior.kernels import Matern, SquaredExponential
from geobgp.privacy import told_origin
from geobgp.provenance import file_name
from geobgp.report import figures, statements
from geobgp.report.effects import effect_facts
from geobgp.report.thresholds import about_thresholds, above_columns
from geobgp.summary import interval_words, latent_name
from geobgp.text import chance, events, listed, number, percent, ratio_text, size_text, whole_percent
from geobgp.units import exceeds
from geobgp.web import page as templates

if TYPE_CHECKING:
    import pandas as pd

    from geobgp.checks.crossval import CrossValidation
    from geobgp.checks.forecasts import ForecastCheck
    from geobgp.checks.residuals import Checks
    from geobgp.data.areas import AreaCounts
    from geobgp.data.counts import Counts
    from geobgp.posterior import Posterior
    from geobgp.prior.kernels import Kernel
    from geobgp.summary import Choice


# -- What the learned numbers mean: lengthscale, standard deviation and permeability in sentences ------------


#: The correlation below which places are nearly independent.
_LITTLE = 0.1


def in_sentences(posterior: Posterior, *, linear: bool = False) -> list[str]:
    """Return what lengthscale, sd, correlation time and permeability mean, a sentence each.

    `linear` is of what varies by differences, not by factors: there the sd speaks for itself.
    """
    spread = "" if linear else _spread(posterior)
    sentences = [_reach(posterior), spread, _fading(posterior), statements.water(posterior)]
    return [sentence for sentence in sentences if sentence]


def correlation(kernel: Kernel, distance: float) -> float | None:
    """Return the correlation at a distance in lengthscales, far from any shore; None of a kernel that is not ours.

    Examples
    --------
    >>> round(correlation(Matern(0.5), 1.0), 4), round(correlation(Matern(1.5), 0.0), 4)
    (0.3679, 1.0)
    """
    if isinstance(kernel, SquaredExponential):
        return math.exp(-0.5 * distance**2)
    if not isinstance(kernel, Matern):
        return None
    nu, x = kernel.nu, math.sqrt(2 * kernel.nu) * distance
    return 1.0 if x < 1e-9 else float(2 ** (1 - nu) / gamma(nu) * x**nu * kv(nu, x))


def _reach(posterior: Posterior) -> str:
    near = correlation(posterior.kernel, 1.0)
    if near is None:
        return ""
    far = float(brentq(lambda d: (correlation(posterior.kernel, d) or 0.0) - _LITTLE, 0.01, 50.0))
    scale, unit = posterior.domain.length_unit
    one, two = (number(d * posterior.lengthscale / scale, 2) for d in (1.0, far))
    return (
        f"Places {one} {unit} apart over land (a lengthscale) have a correlation of {number(near, 2)}, "
        f"places {two} {unit} apart one of {number(_LITTLE)}."
    )


def _spread(posterior: Posterior) -> str:
    factor = math.exp(posterior.sd)
    what = {"relative risk": "risks", "value": "values"}.get(posterior.quantity, "rates")
    return (
        f"Local {what} typically vary by a factor of {number(factor, 2)} around the average: two places in three lie "
        f"between {number(1 / factor, 2)} and {number(factor, 2)} times the average."
    )


def _fading(posterior: Posterior) -> str:
    periods = View.of(posterior).fitted
    if periods is None or periods.n < 2:
        return ""
    after, kept = number(posterior.tau, 2), number(math.exp(-1), 2)
    unit = periods.noun if after == "1" else f"{periods.noun}s"
    fades = " Smaller patches fade sooner." if posterior.dynamics == "diffusive" else ""
    return f"After {after} {unit} (the correlation time) a large patch has a correlation of {kept} with itself.{fades}"


# -- report.html: one self-contained page that says what went in, what was done, and what came out -----------


#: Regions that a report lists; all of them are in the file.
_MOST_REGIONS = 100
#: Periods that the table lists, the last ones.
_MOST_PERIODS = 60


@dataclass(frozen=True, eq=False)
class ReportInputs:
    """What a report says besides the posterior; everything is optional.

    Attributes
    ----------
    sources : mapping of str to str
        What went in: a file's role and its name.
    counts : Counts or AreaCounts
        What became of the points, or was counted in areas.
    choices : mapping of str to Choice
    checks : Checks
        Numbers by piece of land, from the points that made the map.
    validation : CrossValidation or ForecastCheck
        Blocks, or the last periods, that were held out: what the verdict is based on.
    advice : sequence of str
        What to try where they are predicted badly, the best first.
    not_checked : str
        Why nothing was held out, where that is so.
    warnings : sequence of str
    thresholds : sequence of float
        Exceedance maps to show.
    regions : DataFrame
        From `Posterior.totals`, with a column ``name`` and, if known, ``observed``; of periods the last that was
        fitted is listed.
    hotspots : DataFrame
        From `Posterior.hotspots`.
    files : mapping of str to str
        Files beside the report, and what they are.
    seconds : mapping of str to float
        Time by stage.
    command : str
        How to do this again.
    """

    sources: Mapping[str, str] = field(default_factory=dict)
    counts: Counts | AreaCounts | None = None
    choices: Mapping[str, Choice] = field(default_factory=dict)
    checks: Checks | None = None
    validation: CrossValidation | ForecastCheck | None = None
    advice: Sequence[str] = ()
    not_checked: str = ""
    warnings: Sequence[str] = ()
    thresholds: Sequence[float] = ()
    regions: pd.DataFrame | None = None
    hotspots: pd.DataFrame | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    command: str = ""


#: Periods that are held out at most; fewer periods or events than these are not held out.
HELD_OUT, FEWEST_PERIODS, FEWEST_EVENTS = 3, 6, 20


class HeldOutChecks(NamedTuple):
    """How what was held out is predicted, what to try where that fails, and why nothing was held out if so."""

    checked: Any = None
    advice: Sequence[str] = ()
    why_not: str = ""


def held_out(posterior: Posterior, render_option: RenderOption | None = None) -> HeldOutChecks:
    """Hold out blocks, areas, persons or sites in turn, or the last periods; where there is too little, say so.

    Parameters
    ----------
    posterior : Posterior
    render_option : callable, optional
        Says options in the words of the shell.
    """
    if why_not := too_few(posterior):
        return HeldOutChecks(why_not=render_text(why_not, render_option))
    if posterior.periods is not None:
        return HeldOutChecks(posterior.cross_validate(last=min(HELD_OUT, posterior.periods.n // 3)))
    # Neighbours of blocks are left as they are: quick, and near enough to judge intervals.
    checked = posterior.cross_validate(rounds=0)
    advice = what_to_try(posterior, checked) if checked.failures() else ()
    return HeldOutChecks(checked, [render_text(one.words, render_option) for one in advice])


def too_few(posterior: Posterior) -> str:
    """Return why nothing can be held out; empty where something can."""
    periods = posterior.periods
    if periods is None:
        return too_few_to_hold_out(posterior)
    if periods.n < FEWEST_PERIODS:
        return f"They need at least {FEWEST_PERIODS} periods; there are {periods.n}."
    if posterior.n_points < FEWEST_EVENTS:
        return f"They need at least {FEWEST_EVENTS} events; there are {posterior.n_points:,}."
    return ""


def asked_checks(posterior: Posterior, checks: bool, check: Any = None) -> HeldOutChecks:
    """Return what was held out already, or is now if asked for; why not, where it cannot be."""
    if check is not None or not checks:
        return HeldOutChecks(check, why_not="" if check is not None else "They were not asked for.")
    if all(one is None for one in (posterior.observed, posterior.areas, posterior.persons, posterior.sites)):
        return HeldOutChecks(why_not="What was observed is not known to this posterior.")
    out, why_not = attempted(lambda: held_out(posterior), "The held-out checks were")
    return HeldOutChecks(why_not=why_not) if out is None else out


Result = TypeVar("Result")


def attempted(check: Callable[[], Result], what: str) -> tuple[Result | None, str]:
    """Return what a check finds; where it cannot be run, nothing and why, which is warned of.

    Parameters
    ----------
    check : callable
    what : str
        "The residuals were": what was not run.

    Examples
    --------
    >>> attempted(lambda: 3, "The count was")
    (3, '')
    """
    try:
        return check(), ""
    except Exception as error:  # a report is worth having without it, whatever went wrong
        message, remedy = f"{type(error).__name__}: {error}.", ""
        if isinstance(error, GeobgpError):
            message, remedy = error.message, error.remedy
        warn(CheckWarning(f"{what} not run: {message}", found=getattr(error, "found", None), remedy=remedy))
        return None, render_text(f"{message} {remedy}".strip())


def write_report(
    path: str | os.PathLike[str],
    shown: Posterior | View,
    inputs: ReportInputs | None = None,
    *,
    forecast: Posterior | None = None,
) -> Path:
    """Write the report of a posterior, complete or not at all: with sections for what there is.

    Parameters
    ----------
    path : str or path
        An HTML file.
    shown : Posterior or View
        Of periods there are small maps, the level from period to period, and a table by period.
    inputs : ReportInputs, optional
        What went in and how it was checked.
    forecast : Posterior, optional
        Of the periods that follow.
    """
    text = render(View.of(shown, forecast), inputs or ReportInputs())
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return Path(path)


def render(shown: Posterior | View, inputs: ReportInputs) -> str:
    """Return the page. No text from data is taken for HTML, and no request leaves the page."""
    import geobgp

    view = View.of(shown)
    posterior = view.posterior
    people = "People" if posterior.exposure_kind == "population" else "Exposure"
    linear = view.data.attrs.get("scale") == "linear"
    effort = None if posterior.final_effort is None else np.atleast_2d(posterior.final_effort).mean(axis=0)
    return templates.render(
        "report/report.html.j2",
        posterior=posterior,
        periods=view.fitted,
        inputs=inputs,
        title=posterior.title or posterior.default_title,
        what=posterior.units if posterior.quantity == "intensity" else f"the {posterior.quantity}",
        units=posterior.units,
        exceeds=exceeds,
        linear=linear,
        interval=whole_percent(posterior.interval),
        version=geobgp.__version__,
        ahead=view.n - view.n_fitted,
        every=_every(view),
        pictures=_pictures(view, inputs),
        variation=posterior.summary().get("variation"),
        abstract=statements.abstract(posterior),
        basis=statements.basis_in_words(posterior),
        cards=_cards(view, inputs),
        found=_found(view, inputs),
        chosen=_chosen(posterior, inputs),
        ladder=_ladder(posterior),
        water=statements.water(posterior),
        nouns=statements.nouns(posterior),
        hatched=view.hatched[1],
        meaning=in_sentences(posterior, linear=linear),
        effort="" if effort is None else about_effort(effort, posterior.domain),
        estimates=_estimates(posterior),
        effects=_effects(posterior),
        priors=statements.priors(posterior),
        included=statements.in_a_row(statements.included(posterior)),
        not_included=statements.not_included(posterior),
        limitations=statements.limitations(posterior, inputs.validation),
        sensitivity=statements.sensitivity(posterior),
        sensitivity_head=statements.SENSITIVITY,
        not_varied=statements.not_varied(posterior),
        computation=_computation(posterior, inputs),
        **_provenance(posterior, inputs),
        **_residuals(view),
        **_effect_curves(posterior),
        **_checks(posterior, inputs.checks),
        **_validation(posterior, inputs.validation),
        **_level(view),
        **region_table(_last_period(view, inputs.regions), people),
        **about_thresholds(view, inputs.thresholds, inputs.hotspots, _MOST_REGIONS),
        region_period="" if view.fitted is None else view.fitted.labels[-1],
    )


def _every(view: View) -> str:
    """Return which of many periods the small maps show."""
    if view.fitted is None or panel_step(view.n) == 1:
        return ""
    step = panel_step(view.n)
    return f", every {dict([(2, 'second'), (3, 'third')]).get(step, f'{step}th')} {view.fitted.noun}"


def _pictures(view: View, inputs: ReportInputs) -> dict[str, Any]:
    posterior = view.posterior
    checked: Any = inputs.validation
    title = f"{posterior.drawn.capitalize()} {posterior.quantity}"
    return {
        "drawn": figures.drawn(view, title=title),
        "uncertainty": figures.drawn(view, variable="uncertainty"),
        "exceedance": [(value, figures.drawn(view, threshold=value)) for value in inputs.thresholds],
        "level": None if view.fitted is None else figures.level(view),
        "delays": None if posterior.delays is None else figures.delays(posterior),
        "hyperparameters": figures.hyperparameters(posterior),
        "ladder": figures.ladder(posterior.tried) if len({r.nodes for r in posterior.tried}) > 1 else None,
        # What was held out at places has a picture, what was held out in time a table.
        "blocks": figures.validation(checked) if hasattr(checked, "blocks") else None,
    }


def _cards(view: View, inputs: ReportInputs) -> list[tuple[str, str, str]]:
    posterior, domain, periods, checked = view.posterior, view.domain, view.fitted, inputs.validation
    facts = posterior.summary()
    parts = f"{domain.n_components:,} separate parts" if domain.n_components > 1 else "one piece"
    land = f"{number(domain.node_areas.sum() / domain.area_unit[0])} {_area_unit(posterior)}"
    cards = [
        *_observed(posterior),
        ("Land", land, parts),
        *_exposed(posterior),
        ("Overall", number(posterior.overall), _overall_in(posterior)),
    ]
    if periods is not None:
        table = view.level.iloc[: view.n_fitted]
        highest = table.loc[table["level"].idxmax()]
        level = f"level {three(float(highest['level']))} {posterior.units}"
        cards.append((f"Highest {periods.noun}", str(highest["period"]), level))
    scale = "log scale" if posterior.link is EXP else latent_name(posterior)
    named = {"lengthscale": "Lengthscale", "sd": f"Spread ({scale})", "correlation_time": "Correlation time"}
    cards += [(name, *_quantity(facts[key])) for key, name in named.items() if key in facts]
    if periods is not None and view.n > view.n_fitted:
        ahead = f"{view.n - view.n_fitted} {periods.noun}s", f"{view.labels[view.n_fitted]} on"
        cards.append(("Forecast", *ahead))
    if checked is not None:
        blocks = "areas" if posterior.areas is not None else "blocks"
        left = blocks if hasattr(checked, "blocks") else "numbers"
        share = f"{percent(checked.coverage)} of held-out {left} within {whole_percent(checked.interval)} intervals"
        if hasattr(checked, "blocks") and checked.score < 0:
            one = "risk" if posterior.exposure_kind == "risk" else "rate" if posterior.is_summed else posterior.quantity
            share += f"; one {one} everywhere predicts better"
        cards.append(("Checks", "passed" if checked.fine else "doubtful", share))
    if not posterior.converged:
        cards.append(("Fit", "not converged", "see below"))
    return cards


def _overall_in(posterior: Posterior) -> str:
    """Return the unit of what the map is overall; of a share or a value, over what its mean is."""
    if posterior.quantity == "intensity" or posterior.is_summed:
        return posterior.units
    return f"{posterior.units}, mean over {statements.averaged_over(posterior)}".removeprefix(", ")


def _observed(posterior: Posterior) -> list[tuple[str, str, str]]:
    """Return how many events, persons or values there are, and what became of them."""
    points, periods = posterior.points, posterior.periods
    about = _lost(posterior) if periods is None else periods.words()
    if "cases" in points and "controls" in points:
        return [("Cases", f"{points['cases']:,.0f}", about), ("Controls", f"{points['controls']:,.0f}", "")]
    if "tested" in points:
        share = f"{percent(points['positive'] / max(points['tested'], 1), 1)} of them positive"
        return [("Tested", f"{points['tested']:,.0f}", share), ("Surveys", f"{posterior.n_points:,}", about)]
    name = "Points used" if posterior.areas is None and periods is None else "Events"
    if posterior.exposure_kind == "observation":
        name = "Measurements"
    return [(name, f"{posterior.n_points:,}", about)]


def _exposed(posterior: Posterior) -> list[tuple[str, str, str]]:
    """Return how many people there are in all, or cases that were expected."""
    names = {
        "population": ("People", "on the land"),
        "expected": ("Expected cases", "at the reference rates"),
        "exposure": ("Exposure", "in all"),
    }
    if posterior.exposure_kind not in names:
        return []
    name, words = names[posterior.exposure_kind]
    # That of a period, where there are several.
    return [(name, number(float(np.atleast_2d(posterior.exposure).sum(axis=1).mean())), words)]


def _area_unit(posterior: Posterior) -> str:
    return posterior.domain.area_unit[1] if posterior.domain.crs is not None else "square units"


def _lost(posterior: Posterior) -> str:
    if posterior.areas is not None:
        areas = posterior.areas
        hidden, lost = int(areas.hidden.sum()), sum(areas.lost.values())
        rest = f", {hidden:,} of them suppressed" if hidden else ""
        rest += f", {lost:,} rows left out" if lost else ""
        rest += f"; {areas.resolution}" if areas.levels is not None else ""
        return f"in {len(posterior.areas.values):,} areas{rest}"
    dropped, snapped = int(posterior.points.get("dropped", 0)), int(posterior.points.get("snapped", 0))
    if dropped or snapped:
        return f"{snapped:,} moved to land, {dropped:,} dropped"
    return "none moved, none dropped"


def _quantity(fact: Mapping[str, Any]) -> tuple[str, str]:
    """Return a learned quantity and its interval."""
    return f"{number(fact['value'])} {fact['unit']}".strip(), interval_words(fact) if fact["learned"] else "given"


def capital(name: str) -> str:
    """Return a name with a capital first letter."""
    return name[:1].upper() + name[1:]


def _found(view: View, inputs: ReportInputs) -> list[tuple[str, str]]:
    """Return what became of the points, and what the land is."""
    if inputs.counts is not None:
        points = inputs.counts.facts()
    else:
        points = {name: f"{value:,.6g}" for name, value in view.posterior.points.items()}
    periods = {} if view.fitted is None else {"periods": view.fitted.words()}
    rows = [*(points | periods | view.domain.facts()).items(), *(("note", n) for n in view.domain.notes)]
    return [(capital(name.replace("_", " ")), text) for name, text in rows]


def _chosen(posterior: Posterior, inputs: ReportInputs) -> list[tuple[str, ...]]:
    if inputs.choices:
        return [(capital(name), str(choice.value), choice.why) for name, choice in inputs.choices.items()]
    return [(capital(name), text) for name, text in posterior.choices.items()]


def _ladder(posterior: Posterior) -> list[tuple[str, ...]]:
    """Return the fits that were compared, one row each."""
    unit = "" if posterior.domain.crs is None else " m"
    vary = [name for name in ("kernel", "family") if len({getattr(r, name) for r in posterior.tried}) > 1]
    return [
        (
            f"{number(r.cell_size)}{unit}",
            f"{r.nodes:,}",
            ", ".join(filter(None, (r.prior, *(getattr(r, name) for name in vary)))),
            r.water,
            f"{r.gain:,.1f}",
            f"{r.seconds:.1f}",
            "kept" if r.kept else "",
        )
        for r in posterior.tried
    ]


def _estimates(posterior: Posterior) -> list[tuple[str, str, str]]:
    facts = posterior.summary()
    named = {
        "lengthscale": "Lengthscale",
        "sd": f"Standard deviation of the {latent_name(posterior)}",
        "correlation_time": "Correlation time of large patches",
        "level_sd": "Standard deviation of the level, on the log scale",
    }
    rows = [(name, *_quantity(facts[key])) for key, name in named.items() if key in facts]
    rows += [
        (capital(key.replace("_", " ")), str(facts[key]), "") for key in ("dynamics", "yearly_cycle") if facts.get(key)
    ]
    if "overdispersion" in facts:
        rows.append(("Overdispersion", *facts["overdispersion"].split(": ", 1)))
    for c in facts["coefficients"]:
        if c["name"] == INTERCEPT:
            rows.append(("Intercept", number(c["mean"]), interval_words(c)))
    return rows


def _effects(posterior: Posterior) -> dict[str, Any]:
    """Return coefficients, and rate or odds ratios, each with its interval; curves and groups have a section."""
    table, learned = posterior.coefficients, [block for block in posterior.design.blocks if block.sd == "learned"]
    table = table[~table["name"].isin([INTERCEPT, *(term.name for block in learned for term in block.terms)])]
    name = next((one for one in ("rate_ratio", "odds_ratio") if one in table), None)
    levels = table.get("level", [None] * len(table))
    terms = [n if isinstance(level, str) else f"{n}, per unit" for n, level in zip(table["name"], levels, strict=True)]
    columns = {"": terms}
    for key, words, show in ((name, capital(str(name).replace("_", " ")), ratio_text), ("mean", "Coefficient", three)):
        if key is not None:
            columns[words] = [show(float(v)) for v in table[key]]
            columns |= between(table, "" if key == "mean" else key, show, words)
    return {"head": tuple(columns), "rows": list(zip(*columns.values(), strict=True))}


def _checks(posterior: Posterior, checks: Checks | None) -> dict[str, Any]:
    """Return the table of the pieces of land."""
    if checks is None:
        return {}
    domain = posterior.domain
    last = len(checks.parts) - 1
    names = [f"Part {k + 1}" for k in range(last)] + ["All"]
    if domain.n_components > last:
        names[last - 1] = f"{domain.n_components - last + 1} smaller parts"
    ((interval, predicted),) = between(checks.parts, "predicted", events).items()
    rows = [
        (name, number(r.land), number(r.observed), events(r.expected), ends)
        for name, r, ends in zip(names, checks.parts.itertuples(), predicted, strict=True)
    ]
    head = ("Land", _area_unit(posterior), "Observed", "Expected", interval)
    return {"parts_head": head, "parts": rows[1:] if last == 1 else rows}


def _validation(posterior: Posterior, checked: Any) -> dict[str, Any]:
    """Return what held-out blocks or periods say, and what they are."""
    if checked is None:
        return {"failures": (), "check_rows": ()}
    failures = checked.failures() if hasattr(checked, "failures") else []
    low, high = checked.coverage_band
    bad = failures or not low <= checked.coverage <= high
    out: dict[str, Any] = {
        "failures": failures,
        "verdict": checked.verdict(),
        "tone": "bad" if bad else "good" if checked.fine else "doubt",
        "check_rows": (),
    }
    if hasattr(checked, "by_period"):
        out["check_head"] = ("Held out", "Observed", "Expected", f"Within {whole_percent(checked.interval)}")
        out["check_rows"] = [
            (str(k), events(float(r["observed"])), events(float(r["expected"])), percent(float(r["coverage"])))
            for k, r in checked.by_period().iterrows()
        ]
        return out
    blocks = f"{len(checked.blocks):,} {'blocks' if posterior.areas is None else 'areas'}"
    if checked.side is not None:
        scale, unit = checked.domain.length_unit
        blocks = f"{len(checked.blocks):,} squares of {number(checked.side / scale)} {unit}"
    return out | {"left_out": blocks}


def _effect_curves(posterior: Posterior) -> dict[str, Any]:
    """Return what covariates do; nothing where there are none."""
    if not posterior.design.blocks:
        return {"effect_table": None, "no_effects": ""}
    facts, why_not = attempted(lambda: effect_facts(posterior), "The effects of covariates were")
    return {"effect_table": None, "no_effects": why_not} if facts is None else facts


def _residuals(view: View) -> dict[str, Any]:
    """Return the picture of the residuals and what it shows; nothing where the counts are not known."""
    posterior = view.posterior
    seen = posterior.observed is not None and np.any(posterior.observed) and view.fitted is None
    if not seen or posterior.protection:
        return {"residuals": None, "no_residuals": ""}
    residuals, why_not = attempted(posterior.residuals, "The residuals were")
    if residuals is None:
        return {"residuals": None, "no_residuals": why_not}
    left = residuals.unexplained()
    return {
        "residuals": figures.residuals(residuals),
        "dispersion": (f"{residuals.dispersion:.2f}", *(f"{v:.2f}" for v in residuals.dispersion_band)),
        "clustered": "pairs" in left,
        "unexplained": listed(name for name in left if name != "pairs"),
    }


def _level(view: View) -> dict[str, Any]:
    """Return the table by period, the last ones if there are many."""
    if view.fitted is None:
        return {"level_head": ()}
    table = view.level
    last = table.tail(_MOST_PERIODS)
    marks = view.marks[-len(last) :]
    columns = {view.fitted.noun.capitalize(): [f"{p}{m}" for p, m in zip(last["period"], marks, strict=True)]}
    if "observed" in last:
        late = bool(view.posterior.nowcast.any())
        columns["So far" if late else "Observed"] = [events(float(v)) for v in last["observed"]]
        if late and "final" in last:
            columns["Final"] = [events(float(np.round(v))) for v in last["final"]]
            columns |= between(last, "final", events, "Final")
    columns |= between(last, "predicted", events)
    if "expected" in last:
        columns["Expected"] = [events(float(v)) for v in last["expected"]]
        columns |= between(last, "expected", events)
    columns["Level"] = [three(float(v)) for v in last["level"]]
    columns |= between(last, "level", three)
    rows = list(zip(*columns.values(), strict=True))
    note = '"Predicted" is the interval in which the observed number should lie; it varies about the expected number. '
    return {
        "level_head": tuple(columns),
        "level_rows": rows,
        "level_note": "" if interval_in(last, "predicted") is None else note,
        "more_periods": len(table) - len(last),
    }


def _last_period(view: View, frame: pd.DataFrame | None) -> pd.DataFrame | None:
    """Return the totals of regions in the last period that was fitted."""
    if frame is None or view.fitted is None or "period" not in frame:
        return frame
    return frame[frame["period"] == view.fitted.labels[-1]]


def region_table(frame: pd.DataFrame | None, exposed: str = "Exposure") -> dict[str, Any]:
    """Return head and rows of the table of regions, and how many are left out; `exposed` is what the exposure is."""
    if frame is None:
        return {"region_head": ()}
    columns: dict[str, list[str]] = {"Region": [str(name) for name in frame.get("name", [""] * len(frame))]}
    for area, unit in (("land_km2", "km²"), ("land_area", "square units")):
        if area in frame:
            columns[unit] = [number(v) for v in frame[area]]
    if "exposure" in frame:
        columns[exposed] = [number(v) for v in frame["exposure"]]
    place = len(columns)
    if "observed" in frame:
        columns["Observed"] = [events(v) for v in frame["observed"]]
    columns |= between(frame, "predicted", events)
    if "reported" in frame:
        columns["Expected reports"] = [events(v) for v in frame["reported"]]
    shown = frame.attrs.get("units", "")
    main, told_as, name = ("expected", events, "Expected")
    if main not in frame:  # a share or a value has a mean
        main, told_as, name = "mean", three, f"Mean, {shown}".rstrip(", ")
    columns[name] = [told_as(v) for v in frame[main]]
    columns |= between(frame, "", told_as, name)
    rate = f"Rate, {shown}".rstrip(", ")
    for key, name in (("rate", rate), ("relative_risk", "Relative risk")):
        if key in frame:
            columns[name] = [three(v) for v in frame[key]]
            columns |= between(frame, key, three)
    if "p_above" in frame:
        columns["Above average"] = ["-" if math.isnan(p) else chance(p) for p in frame["p_above"]]
    for column, name in above_columns(frame).items():
        columns[name] = [events(v) for v in frame[column]]
        columns |= between(frame, column, events, name)
    n_numbers = len(columns) - place
    rows = [
        (*row[:-n_numbers], "hidden", *[""] * (n_numbers - 1)) if hidden else row
        for row, hidden in zip(zip(*columns.values(), strict=True), _hidden(frame), strict=True)
    ]
    return {
        "region_head": tuple(columns),
        "about_regions": _about_regions(frame),
        "region_rows": rows[:_MOST_REGIONS],
        "more_regions": len(rows) - _MOST_REGIONS,
    }


def _about_regions(frame: pd.DataFrame) -> str:
    """Say whose the intervals of regions are, and what was observed."""
    notes = ["Each interval belongs to the number before it."]
    if interval_in(frame, "predicted") is not None:
        notes.append('"Predicted" is where the observed number should lie; it varies about the expected one.')
    if "observed" in frame:
        unknown = int((frame["observed"].isna() & ~_hidden(frame)).sum())
        cut = f" (not known of {unknown:,}, whose borders cut what events were counted by)" if unknown else ""
        notes.append(f'"Observed" is the number of events inside a region{cut}.')
    if _hidden(frame).any():
        why = sorted(set(frame["why"][_hidden(frame)]))
        notes.append(f"Hidden: {'; or '.join(why)}.")
    return " ".join(notes)


def _hidden(frame: pd.DataFrame) -> np.ndarray:
    """Return which regions have no numbers because these are small."""
    return np.asarray(frame["hidden"], bool) if "hidden" in frame else np.zeros(len(frame), bool)


def between(
    frame: pd.DataFrame, of: str, show: Callable[[float], str], name: str | None = None
) -> dict[str, list[str]]:
    """Return a column of a table's intervals of a quantity, headed by whose they are; none where it has none."""
    found = interval_in(frame, of)
    if found is None:
        return {}
    head = f"{name or capital(of.replace('_', ' '))}, {found.words}"
    ends = zip(frame[found.low], frame[found.high], strict=True)
    return {head: ["-" if np.isnan(low) else f"{show(float(low))} to {show(float(high))}" for low, high in ends]}


def three(value: float) -> str:
    """Return a number with three digits."""
    return number(value, 3)


def _provenance(posterior: Posterior, inputs: ReportInputs) -> dict[str, Any]:
    """Return every input with what identifies it, and what else made the map; nothing of a fit step by step."""
    origin = told_origin(posterior)
    if not origin:
        return {"identified": (), "made_by": ()}
    rows = [
        (
            capital(one["role"]),
            file_name(one) + (", in memory" if one["kind"] == "memory" else ""),
            "-" if one["features"] is None else f"{one['features']:,}",
            "-" if one["bytes"] is None else size_text(one["bytes"]),
            one["sha256"] or "not known",
        )
        for one in origin["inputs"]
    ]
    software = ", ".join(f"{name} {version}" for name, version in origin["software"].items())
    call = [] if inputs.command else [("Call", origin["call"])]
    made_by = [*call, ("Software", software), ("Random state", origin["random_state"])]
    return {"identified": rows, "made_by": made_by}


def _computation(posterior: Posterior, inputs: ReportInputs) -> list[tuple[str, str]]:
    message = posterior.summary()["message"] or ""
    rows = [
        ("Converged", f"{'yes' if posterior.converged else 'NO'}: {message}".rstrip(": ")),
        ("ELBO", f"{posterior.elbo:,.2f}"),
        ("Nodes", f"{posterior.domain.n_nodes:,}"),
    ]
    if inputs.seconds:
        parts = ", ".join(f"{name} {v:.1f} s" for name, v in inputs.seconds.items() if v >= 0.05)
        rows.append(("Time", f"{sum(inputs.seconds.values()):.1f} s: {parts}"))
    if inputs.command:
        rows.append(("Command", inputs.command))
    return rows
