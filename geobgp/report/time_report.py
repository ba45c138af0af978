"""report.html of a map over time: small maps, the level from period to period, a table by period, and the checks."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from geobgp.files import replacing
from geobgp.output import time_plots
from geobgp.output.course import Course, OverTime
from geobgp.report.figures import done, new_figure
from geobgp.report.report import ReportInputs, between, capital, region_table, three
from geobgp.summary import interval_words
from geobgp.text import events, number, percent, whole_percent
from geobgp.web import templates

if TYPE_CHECKING:
    import pandas as pd

#: Periods that the table lists, the last ones; small maps that the figure shows.
MOST_ROWS = 60


def write_time_report(
    path: str | os.PathLike[str],
    source: OverTime,
    inputs: ReportInputs | None = None,
    *,
    forecast: OverTime | None = None,
    check: Any = None,
) -> Path:
    """Write the report of a posterior over periods, complete or not at all.

    Parameters
    ----------
    path : str or path
        An HTML file.
    source : SpaceTimePosterior
    inputs : ReportInputs, optional
        What went in. Of its regions, from ``totals``, the last period is listed.
    forecast : SpaceTimePosterior, optional
        Of the periods that follow.
    check : ForecastCheck, optional
        How well the last periods were forecast.
    """
    text = render(Course(source, forecast), inputs or ReportInputs(), check)
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return Path(path)


def render(course: Course, inputs: ReportInputs, check: Any = None) -> str:
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
        pictures=_pictures(course, inputs.thresholds),
        variation=source.summary().get("variation"),
        cards=_cards(course, check),
        found=_found(source, inputs),
        chosen=[(capital(name), str(c.value), c.why) for name, c in inputs.choices.items()],
        model_rows=[(capital(name), text) for name, text in source.summary().rows()],
        computation_rows=_computation(facts, inputs),
        **_periods(course.level),
        **_checks(check),
        **_regions(course, inputs.regions),
    )


def _shown(course: Course) -> str:
    step = -(-course.n // time_plots.MAX_PANELS)
    which = {2: "second", 3: "third"}.get(step, f"{step}th")
    return "" if step == 1 else f", every {which} {course.fitted.periods.noun}"


def _pictures(course: Course, thresholds: Sequence[float]) -> dict[str, Any]:
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


def _cards(course: Course, check: Any) -> list[tuple[str, str, str]]:
    source, table = course.fitted, course.level.iloc[: course.known]
    domain, noun = source.domain, source.periods.noun
    facts = source.summary()
    parts = f"{domain.n_components:,} separate parts" if domain.n_components > 1 else "one piece"
    unit = domain.area_unit[1] if domain.crs is not None else "square units"
    top = table["level"].idxmax()
    cards = [
        ("Events", f"{source.n_points:,}", source.periods.words()),
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


def _found(source: OverTime, inputs: ReportInputs) -> list[tuple[str, str]]:
    counted = {} if inputs.counts is None else inputs.counts.facts()
    rows = [*counted.items(), ("periods", source.periods.words()), *source.domain.facts().items()]
    rows += [("note", note) for note in source.domain.notes]
    return [(capital(name), text) for name, text in rows]


def _computation(facts: Mapping[str, Any], inputs: ReportInputs) -> list[tuple[str, str]]:
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


def _checks(check: Any) -> dict[str, Any]:
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
