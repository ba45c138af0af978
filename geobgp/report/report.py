"""The report: what was done and found, in words, figures and tables."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from scipy.optimize import brentq
from scipy.special import gamma, kv

from geobgp.data.effects import INTERCEPT
from geobgp.data.inputs import about_effort
from geobgp.errors import CheckWarning, GeobgpError, render_text, warn
from geobgp.files import replacing
from geobgp.inference.mixture import interval_in
from geobgp.output import figures as time_plots
from geobgp.output.figures import Course
from geobgp.output.grids import hatched_land
from geobgp.prior.kernels import Matern, SquaredExponential
from geobgp.report import figures
from geobgp.report.figures import done, new_figure
from geobgp.summary import interval_words
from geobgp.text import events, listed, number, percent, whole_percent
from geobgp.web import page as templates

if TYPE_CHECKING:
    import pandas as pd

    from geobgp.checks.crossval import CrossValidation
    from geobgp.checks.residuals import Checks
    from geobgp.data.areas import AreaCounts
    from geobgp.data.counts import Counts
    from geobgp.posterior import Posterior
    from geobgp.prior.kernels import Kernel
    from geobgp.summary import Choice


# -- What the learned numbers mean: lengthscale, standard deviation and permeability in sentences ------------


#: The correlation beyond which places are told to be on their own.
_LITTLE = 0.1


def in_sentences(posterior: Posterior) -> list[str]:
    """Return what lengthscale, sd and permeability say, a sentence each."""
    found = [_reach(posterior), _spread(posterior), water(posterior)]
    return [sentence for sentence in found if sentence]


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
        f"Places {one} {unit} apart over land (a lengthscale) share {percent(near)} of what sets them off from the "
        f"average, places {two} {unit} apart {percent(_LITTLE)}."
    )


def _spread(posterior: Posterior) -> str:
    factor = math.exp(posterior.sd)
    what = "risks" if posterior.quantity == "relative risk" else "rates"
    return (
        f"Local {what} typically vary by a factor of {number(factor, 2)} around the average: two places in three lie "
        f"between {number(1 / factor, 2)} and {number(factor, 2)} times it."
    )


def water(posterior: Posterior) -> str:
    """Return how far information crosses water, in a sentence."""
    share = posterior.basis.permeability
    if share == 0:
        return "Nothing passes across water."
    if share == 1:
        return "Information crosses water as far as land."
    return f"Information crosses water {percent(share)} as far as land."


# -- report.html: one self-contained page that says what went in, what was done, and what came out -----------


#: Regions that a report lists; all of them are in the file.
_MOST_REGIONS = 100


@dataclass(frozen=True, eq=False)
class ReportInputs:
    """What a report tells besides the posterior; everything may be left out.

    Attributes
    ----------
    sources : mapping of str to str
        What went in: a file's role and its name.
    counts : Counts or AreaCounts
        What became of the points, or was counted in areas.
    choices : mapping of str to Choice
    checks : Checks
        Numbers by piece of land, from the points that made the map.
    validation : CrossValidation
        Blocks that were left out: what the verdict rests on.
    advice : sequence of str
        What to try where they are predicted badly, the best first.
    not_checked : str
        Why nothing was left out, where that is so.
    warnings : sequence of str
    thresholds : sequence of float
        Exceedance maps to show.
    regions : DataFrame
        From `Posterior.totals`, with a column ``name`` and, if known, ``observed``.
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
    validation: CrossValidation | None = None
    advice: Sequence[str] = ()
    not_checked: str = ""
    warnings: Sequence[str] = ()
    thresholds: Sequence[float] = ()
    regions: pd.DataFrame | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    command: str = ""


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
    path: str | os.PathLike[str], posterior: Posterior, inputs: ReportInputs | None = None
) -> Path:
    """Write the report of a posterior of counts, complete or not at all.

    Parameters
    ----------
    path : str or path
        An HTML file.
    posterior : Posterior
    inputs : ReportInputs, optional
        What went in and how it was checked.
    """
    text = render(posterior, inputs or ReportInputs())
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return Path(path)


def render(posterior: Posterior, inputs: ReportInputs) -> str:
    """Return the page. No text from data is taken for HTML, and no request leaves the page."""
    import geobgp

    return templates.render(
        "report/report.html.j2",
        posterior=posterior,
        inputs=inputs,
        title=posterior.title or posterior.default_title,
        units=posterior.units,
        interval=whole_percent(posterior.interval),
        version=geobgp.__version__,
        pictures=_pictures(posterior, inputs),
        variation=posterior.summary().get("variation"),
        cards=_cards(posterior, inputs),
        found=_found(posterior, inputs),
        chosen=_chosen(posterior, inputs),
        ladder=_ladder(posterior),
        water=water(posterior),
        hatched=hatched_land(posterior)[1],
        meaning=in_sentences(posterior),
        effort="" if posterior.effort is None else about_effort(posterior.effort, posterior.domain),
        estimates=_estimates(posterior),
        computation=_computation(posterior, inputs),
        **_residuals(posterior),
        **_checks(posterior, inputs.checks),
        **_validation(posterior, inputs.validation),
        **region_table(inputs.regions, "People" if posterior.exposure_kind == "population" else "Exposure"),
    )


def _pictures(posterior: Posterior, inputs: ReportInputs) -> dict[str, Any]:
    return {
        "drawn": figures.intensity(posterior),
        "uncertainty": figures.uncertainty(posterior),
        "exceedance": [(value, figures.exceedance(posterior, value)) for value in inputs.thresholds],
        "hyperparameters": figures.hyperparameters(posterior),
        "ladder": figures.ladder(posterior.tried) if len({r.nodes for r in posterior.tried}) > 1 else None,
        "blocks": None if inputs.validation is None else figures.validation(inputs.validation),
    }


def _cards(posterior: Posterior, inputs: ReportInputs) -> list[tuple[str, str, str]]:
    facts, domain = posterior.summary(), posterior.domain
    parts = f"{domain.n_components:,} separate parts" if domain.n_components > 1 else "one piece"
    land = f"{number(domain.node_areas.sum() / domain.area_unit[0])} {_area_unit(posterior)}"
    cards = [
        (
            "Events" if posterior.areas is not None else "Points used",
            f"{posterior.n_points:,}",
            _lost(posterior),
        ),
        ("Land", land, parts),
        *_exposed(posterior),
        ("Overall", number(posterior.overall), posterior.units),
        ("Lengthscale", *_quantity(facts["lengthscale"])),
        ("Spread (log scale)", *_quantity(facts["sd"])),
    ]
    if inputs.validation is not None:
        word = "fine" if inputs.validation.fine else "look closer"
        left = "blocks" if posterior.areas is None else "areas"
        share = f"{percent(inputs.validation.coverage)} of left-out {left} within {whole_percent(posterior.interval)}"
        if inputs.validation.score < 0:
            share += (
                f"; one {'risk' if posterior.exposure_kind == 'risk' else 'rate'} everywhere predicts better"
            )
        cards.append(("Checks", word, share))
    if not posterior.converged:
        cards.append(("Fit", "not converged", "see below"))
    return cards


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
    return [(name, number(float(posterior.exposure.sum())), words)]


def _area_unit(posterior: Posterior) -> str:
    return posterior.domain.area_unit[1] if posterior.domain.crs is not None else "square units"


def _lost(posterior: Posterior) -> str:
    if posterior.areas is not None:
        hidden = int(posterior.areas.hidden.sum())
        rest = f", {hidden:,} of them suppressed" if hidden else ""
        return f"in {len(posterior.areas.values):,} areas{rest}"
    dropped, snapped = int(posterior.points.get("dropped", 0)), int(posterior.points.get("snapped", 0))
    if dropped or snapped:
        return f"{snapped:,} moved to land, {dropped:,} dropped"
    return "none moved, none dropped"


def _quantity(fact: Mapping[str, Any]) -> tuple[str, str]:
    """Return a learned quantity and its interval."""
    return f"{number(fact['value'])} {fact['unit']}".strip(), interval_words(fact) if fact[
        "learned"
    ] else "given"


def capital(name: str) -> str:
    """Return a name with a capital first letter."""
    return name[:1].upper() + name[1:]


def _found(posterior: Posterior, inputs: ReportInputs) -> list[tuple[str, str]]:
    """Return what became of the points, and what the land is."""
    if inputs.counts is not None:
        points = inputs.counts.facts()
    else:
        points = {name: f"{value:,.6g}" for name, value in posterior.points.items()}
    domain = posterior.domain
    rows = [*points.items(), *domain.facts().items(), *(("note", note) for note in domain.notes)]
    return [(capital(name), text) for name, text in rows]


def _chosen(posterior: Posterior, inputs: ReportInputs) -> list[tuple[str, ...]]:
    if inputs.choices:
        return [(capital(name), str(choice.value), choice.why) for name, choice in inputs.choices.items()]
    return [(capital(name), text) for name, text in posterior.choices.items()]


def _ladder(posterior: Posterior) -> list[tuple[str, ...]]:
    """Return the fits that were compared, one row each."""
    unit = "" if posterior.domain.crs is None else " m"
    return [
        (
            f"{number(r.cell_size)}{unit}",
            f"{r.nodes:,}",
            r.prior,
            r.water,
            f"{r.gain:,.1f}",
            f"{r.seconds:.1f}",
            "kept" if r.kept else "",
        )
        for r in posterior.tried
    ]


def _estimates(posterior: Posterior) -> list[tuple[str, str, str]]:
    facts = posterior.summary()
    rows = [
        ("Lengthscale", *_quantity(facts["lengthscale"])),
        (
            f"Standard deviation of the log {posterior.quantity}".replace("log i", "log-i"),
            *_quantity(facts["sd"]),
        ),
    ]
    if "overdispersion" in facts:
        rows.append(("More spread than Poisson counts", *facts["overdispersion"].split(": ", 1)))
    for c in facts["coefficients"]:
        if c["name"] == INTERCEPT:
            rows.append(("Intercept (log-intensity)", number(c["mean"]), interval_words(c)))
        else:
            per = "" if c.get("level") is not None else "per unit"
            what = "odds" if posterior.exposure_kind == "risk" else "rate"
            rate = f"{interval_words(c)}; {what} x {number(c['rate_ratio'])} {per}".rstrip()
            rows.append((", ".join(filter(None, (c["name"], per))), number(c["mean"]), rate))
    return rows


def _checks(posterior: Posterior, checks: Checks | None) -> dict[str, Any]:
    """Return the table of the pieces of land."""
    if checks is None:
        return {}
    domain = posterior.domain
    last = len(checks.parts) - 1
    names = [f"Part {k + 1}" for k in range(last)] + ["All"]
    if domain.n_components > last:
        names[last - 1] = f"{domain.n_components - last + 1} smaller parts"
    ((told, predicted),) = between(checks.parts, "predicted", events).items()
    rows = [
        (name, number(r.land), number(r.observed), events(r.expected), ends)
        for name, r, ends in zip(names, checks.parts.itertuples(), predicted, strict=True)
    ]
    head = ("Land", _area_unit(posterior), "Observed", "Expected", told)
    return {"parts_head": head, "parts": rows[1:] if last == 1 else rows}


def _validation(posterior: Posterior, checked: CrossValidation | None) -> dict[str, Any]:
    """Return what left-out blocks say, and what they are."""
    if checked is None:
        return {"failures": ()}
    blocks = f"{len(checked.blocks):,} blocks"
    if posterior.areas is not None:
        blocks = f"{len(checked.blocks):,} areas"
    if checked.side is not None:
        scale, unit = checked.domain.length_unit
        blocks = f"{len(checked.blocks):,} squares of {number(checked.side / scale)} {unit}"
    return {"failures": checked.failures(), "verdict": checked.verdict(), "left_out": blocks}


def _residuals(posterior: Posterior) -> dict[str, Any]:
    """Return the picture of the residuals and what it shows; nothing where the counts are not known."""
    if posterior.observed is None or posterior.protection or not posterior.observed.any():
        return {"residuals": None, "no_residuals": ""}
    found, why_not = attempted(posterior.residuals, "The residuals were")
    if found is None:
        return {"residuals": None, "no_residuals": why_not}
    left = found.unexplained()
    return {
        "residuals": figures.residuals(found),
        "dispersion": (f"{found.dispersion:.2f}", *(f"{v:.2f}" for v in found.dispersion_band)),
        "clustered": "pairs" in left,
        "unexplained": listed(name for name in left if name != "pairs"),
    }


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
    columns["Expected"] = [events(v) for v in frame["expected"]]
    columns |= between(frame, "", events, "Expected")
    rate = f"Rate, {frame.attrs.get('units', '')}".rstrip(", ")
    for key, name in (("rate", rate), ("relative_risk", "Relative risk")):
        if key in frame:
            columns[name] = [three(v) for v in frame[key]]
            columns |= between(frame, key, three)
    if "p_above" in frame:
        columns["Above average"] = ["-" if math.isnan(p) else percent(p) for p in frame["p_above"]]
    told = len(columns) - place
    rows = [
        (*row[:-told], "hidden", *[""] * (told - 1)) if hidden else row
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
    told = ["An interval is that of the number before it."]
    if interval_in(frame, "predicted") is not None:
        told.append(
            '"Predicted" is where the number observed should lie, which varies about the expected one.'
        )
    if "observed" in frame:
        unknown = int((frame["observed"].isna() & ~_hidden(frame)).sum())
        cut = f" (not known of {unknown:,}, whose borders cut what events were counted by)" if unknown else ""
        told.append(f"Observed are the events inside a region{cut}.")
    if _hidden(frame).any():
        why = sorted(set(frame["why"][_hidden(frame)]))
        told.append(f"Hidden: {'; or '.join(why)}.")
    return " ".join(told)


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
    return {head: [f"{show(float(low))} to {show(float(high))}" for low, high in ends]}


def three(value: float) -> str:
    """Return a number with three digits."""
    return number(value, 3)


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


# -- report.html of a map over time: small maps, the level from period to period, a table by period, and the checks --


#: Periods that the table lists, the last ones; small maps that the figure shows.
MOST_ROWS = 60


def write_time_report(
    path: str | os.PathLike[str],
    source: Posterior,
    inputs: ReportInputs | None = None,
    *,
    forecast: Posterior | None = None,
    check: Any = None,
) -> Path:
    """Write the report of a posterior over periods, complete or not at all.

    Parameters
    ----------
    path : str or path
        An HTML file.
    source : Posterior
    inputs : ReportInputs, optional
        What went in. Of its regions, from ``totals``, the last period is listed.
    forecast : Posterior, optional
        Of the periods that follow.
    check : ForecastCheck, optional
        How well the last periods were forecast.
    """
    text = render_time(Course(source, forecast), inputs or ReportInputs(), check)
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return Path(path)


def render_time(course: Course, inputs: ReportInputs, check: Any = None) -> str:
    """Return the page. No text from data is taken for HTML, and no request leaves the page."""
    import geobgp

    source = course.fitted
    facts = source.provenance
    return templates.render(
        "report/time_report.html.j2",
        source=source,
        inputs=inputs,
        title=str(facts["title"]),
        units=source.units,
        interval=whole_percent(source.interval),
        version=geobgp.__version__,
        created=str(facts["created"]),
        ahead=course.n - course.known,
        shown=_shown(course),
        pictures=_time_pictures(course, inputs.thresholds),
        variation=source.summary().get("variation"),
        cards=_time_cards(course, check),
        found=_time_findings(source, inputs),
        chosen=[(capital(name), str(c.value), c.why) for name, c in inputs.choices.items()],
        model_rows=[(capital(name), text) for name, text in source.summary().rows()],
        computation_rows=_time_computation(facts, inputs),
        **_periods(course.level),
        **_time_checks(check),
        **_regions(course, inputs.regions),
    )


def _shown(course: Course) -> str:
    step = -(-course.n // time_plots.MAX_PANELS)
    which = {2: "second", 3: "third"}.get(step, f"{step}th")
    return "" if step == 1 else f", every {which} {course.fitted.time.noun}"


def _time_pictures(course: Course, thresholds: Sequence[float]) -> dict[str, Any]:
    def panels(variable: str | None = None, threshold: float | None = None) -> str:
        n = -(-course.n // -(-course.n // time_plots.MAX_PANELS))
        figure = new_figure(time_plots.panel_size(course.fitted, n))
        return done(
            time_plots.plot_periods(
                course.fitted,
                figure,
                forecast=course.forecast,
                variable=variable,
                threshold=threshold,
                title="",
            )
        )

    level = time_plots.plot_level(course, new_figure(time_plots.LEVEL_SIZE))
    return {
        "maps": panels(),
        "uncertainty": panels("uncertainty"),
        "exceedance": [(value, panels(threshold=value)) for value in thresholds],
        "level": done(level),
    }


def _time_cards(course: Course, check: Any) -> list[tuple[str, str, str]]:
    source, table = course.fitted, course.level.iloc[: course.known]
    domain, noun = source.domain, source.time.noun
    facts = source.summary()
    parts = f"{domain.n_components:,} separate parts" if domain.n_components > 1 else "one piece"
    unit = domain.area_unit[1] if domain.crs is not None else "square units"
    top = table["level"].idxmax()
    cards = [
        ("Events", f"{source.n_points:,}", source.time.words()),
        ("Land", f"{number(domain.node_areas.sum() / domain.area_unit[0])} {unit}", parts),
        (
            f"Highest {noun}",
            str(table["period"].loc[top]),
            f"level {number(table['level'].loc[top], 3)} {source.units}",
        ),
    ]
    for key, name in (
        ("lengthscale", "Lengthscale"),
        ("sd", "Spread (log scale)"),
        ("correlation_time", "Memory"),
    ):
        fact = facts.get(key)
        if isinstance(fact, Mapping) and "value" in fact:
            note = interval_words(fact) if fact.get("learned") else ""
            cards.append((name, f"{number(fact['value'])} {fact.get('unit', '')}".strip(), note))
    if course.n > course.known:
        cards.append(("Forecast", f"{course.n - course.known} {noun}s", f"{course.labels[course.known]} on"))
    if check is not None:
        cards.append(
            ("Checks", percent(check.coverage), f"of left-out numbers within {whole_percent(check.interval)}")
        )
    return cards


def _time_findings(source: Posterior, inputs: ReportInputs) -> list[tuple[str, str]]:
    counted = {} if inputs.counts is None else inputs.counts.facts()
    rows = [*counted.items(), ("periods", source.time.words()), *source.domain.facts().items()]
    rows += [("note", note) for note in source.domain.notes]
    return [(capital(name), text) for name, text in rows]


def _time_computation(facts: Mapping[str, Any], inputs: ReportInputs) -> list[tuple[str, str]]:
    rows = [
        ("Converged", "yes" if facts.get("converged") == "true" else "NO"),
        ("ELBO", f"{facts['elbo']:,.2f}"),
    ]
    if inputs.seconds:
        rows.append(("Time", f"{sum(inputs.seconds.values()):.1f} s"))
    return rows + ([("Command", inputs.command)] if inputs.command else [])


def _periods(table: pd.DataFrame) -> dict[str, Any]:
    """Return the table by period, the last ones if there are many."""
    last = table.tail(MOST_ROWS)
    columns = {
        "Period": [
            f"{p}{' (forecast)' if f else ''}" for p, f in zip(last["period"], last["forecast"], strict=True)
        ]
    }
    if "observed" in last:
        columns["Observed"] = [events(float(v)) for v in last["observed"]]
    columns |= between(last, "predicted", events)
    columns["Expected"] = [events(float(v)) for v in last["expected"]]
    columns |= between(last, "expected", events)
    columns["Level"] = [three(float(v)) for v in last["level"]]
    columns |= between(last, "level", three)
    return {
        "head": tuple(columns),
        "rows": list(zip(*columns.values(), strict=True)),
        "more_rows": len(table) - len(last),
    }


def _time_checks(check: Any) -> dict[str, Any]:
    if check is None:
        return {"check": None, "check_rows": ()}
    low, high = getattr(check, "coverage_band", (0.0, 1.0))
    out: dict[str, Any] = {
        "check": check,
        "verdict": check.verdict(),
        "tone": "bad" if not low <= check.coverage <= high else "good" if check.fine else "doubt",
    }
    table = check.by_period()
    out["check_head"] = ("Left out", "Observed", "Expected", f"Within {whole_percent(check.interval)}")
    out["check_rows"] = [
        (
            str(period),
            events(float(r["observed"])),
            events(float(r["expected"])),
            percent(float(r["coverage"])),
        )
        for period, r in table.iterrows()
    ]
    return out


def _regions(course: Course, frame: pd.DataFrame | None) -> dict[str, Any]:
    """Return the totals of regions in the last period that was fitted."""
    if frame is None:
        return {"region_head": ()}
    label = course.labels[course.known - 1]
    last = frame[frame["period"] == label] if "period" in frame else frame
    return region_table(last) | {"region_period": label}
