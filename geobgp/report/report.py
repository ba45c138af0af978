"""report.html: one self-contained page that says what went in, what was done, and what came out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from geobgp.files import replacing
from geobgp.report import figures
from geobgp.report.style import CSS, POLICY
from geobgp.text import number

if TYPE_CHECKING:
    import pandas as pd

    from geobgp.auto.choices import Choice
    from geobgp.checks.residuals import Checks
    from geobgp.data.counts import Counts
    from geobgp.posterior import Posterior

PAPER = (
    "A. Solin and M. Kok (2019). Know your boundaries: constraining Gaussian processes by variational "
    "harmonic features. Proceedings of the 22nd International Conference on Artificial Intelligence and "
    "Statistics (AISTATS), PMLR 89, 2193-2202."
)
_MOST_REGIONS = 100


@dataclass(frozen=True, eq=False)
class ReportInputs:
    """What a report tells besides the posterior; everything may be left out.

    Attributes
    ----------
    sources : mapping of str to str
        What went in: a file's role and its name.
    counts : Counts
        What became of the points.
    choices : mapping of str to Choice
    checks : Checks
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
    counts: Counts | None = None
    choices: Mapping[str, Choice] = field(default_factory=dict)
    checks: Checks | None = None
    warnings: Sequence[str] = ()
    thresholds: Sequence[float] = ()
    regions: pd.DataFrame | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    command: str = ""


def write_report(path: str | Path, posterior: Posterior, inputs: ReportInputs | None = None) -> Path:
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
    title = posterior.title or f"Intensity in {posterior.units}"
    sections = [
        ("maps", "Maps", _maps(posterior, inputs)),
        ("input", "What went in", _input(posterior, inputs)),
        ("warnings", "Warnings", _warnings(inputs)),
        ("choices", "Choices", _choices(posterior, inputs)),
        ("model", "Model", _model(posterior)),
        ("checks", "Checks", _checks(posterior, inputs)),
        ("regions", "Totals by region", _regions(inputs)),
        ("fit", "The computation", _fit(posterior, inputs)),
        ("files", "Files", _files(inputs)),
        ("cite", "How to cite", _cite()),
    ]
    shown = [(key, name, body) for key, name, body in sections if body]
    links = "".join(f'<a href="#{key}">{escape(name)}</a>' for key, name, _ in shown)
    body = "".join(
        f'<section id="{key}"><h2>{escape(name)}</h2>{text}</section>' for key, name, text in shown
    )
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="icon" href="data:,">'
        f"<title>{escape(title)}</title><style>{CSS}</style></head><body>"
        f"<header><h1>{escape(title)}</h1><p>{escape(_subtitle(posterior))}</p><nav>{links}</nav></header>"
        f"<main>{_cards(posterior, inputs)}{body}</main>"
        f"<footer>{escape(_maker())}, {escape(posterior.created)}</footer></body></html>\n"
    )


def _maker() -> str:
    import geobgp

    return f"geobgp {geobgp.__version__}"


def _subtitle(posterior: Posterior) -> str:
    return f"{posterior.n_points:,} points; a map of {posterior.units}, with its uncertainty"


# -- pieces


def _table(
    rows: Iterable[Sequence[object]], head: Sequence[str] = (), numeric: Sequence[int] = (), kind: str = ""
) -> str:
    def cells(row: Sequence[object], tag: str) -> str:
        return "".join(
            f"<{tag}{' class=n' if k in numeric else ''}>{escape(str(cell))}</{tag}>"
            for k, cell in enumerate(row)
        )

    top = f"<thead><tr>{cells(head, 'th')}</tr></thead>" if head else ""
    body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in rows)
    return f'<div class="wide"><table class="{kind}">{top}<tbody>{body}</tbody></table></div>'


def _facts(rows: Iterable[tuple[str, object]]) -> str:
    body = "".join(f"<tr><th>{escape(str(k))}</th><td>{escape(str(v))}</td></tr>" for k, v in rows)
    return f'<div class="wide"><table class="facts"><tbody>{body}</tbody></table></div>'


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share < 0.995 or share == 1 else f"{100 * share:.1f} %"


def _events(value: float) -> str:
    """Return a number of events: whole, or with one digit where it is small."""
    if value != value:
        return "-"
    return f"{value:,.0f}" if value >= 10 or value == round(value) else f"{value:.1f}"


def _figure(source: str, caption: str, kind: str = "") -> str:
    text = escape(caption)
    return f'<figure class="{kind}"><img src="{source}" alt="{text}"><figcaption>{text}</figcaption></figure>'


def _paragraph(text: str, kind: str = "") -> str:
    return f'<p class="{kind}">{escape(text)}</p>'


def _quantity(fact: Mapping[str, Any]) -> tuple[str, str]:
    value = f"{number(fact['value'])} {fact.get('unit', '')}".strip()
    if not fact.get("learned", True):
        return value, "given"
    return value, f"90 % interval {number(fact['q05'])} to {number(fact['q95'])}"


# -- sections


def _cards(posterior: Posterior, inputs: ReportInputs) -> str:
    facts = posterior.summary()
    domain = posterior.domain
    unit, name = domain.area_unit
    expected = float((posterior.exposure * posterior.node_intensity()["mean"].to_numpy()).sum())
    overall = expected / posterior.exposure.sum()
    length, sd = _quantity(facts["lengthscale"]), _quantity(facts["sd"])
    parts = f"{domain.n_components:,} separate parts" if domain.n_components > 1 else "one piece"
    area_name = name if domain.crs is not None else "square units"
    cards = [
        ("Points used", f"{posterior.n_points:,}", _lost(posterior)),
        ("Land", f"{number(domain.node_areas.sum() / unit)} {area_name}", parts),
        ("Overall", number(overall), posterior.units),
        ("Lengthscale", length[0], length[1]),
        ("Spread (log scale)", sd[0], sd[1]),
    ]
    if inputs.checks is not None:
        fine, _ = inputs.checks.verdict()
        cards.append(
            (
                "Checks",
                "fine" if fine else "look closer",
                f"{_percent(inputs.checks.covered)} of blocks within 90 %",
            )
        )
    if not posterior.converged:
        cards.append(("Fit", "not converged", "see below"))
    inside = "".join(
        f"<div><span>{escape(a)}</span><b>{escape(b)}</b><small>{escape(c)}</small></div>"
        for a, b, c in cards
    )
    return f'<div class="cards">{inside}</div>'


def _lost(posterior: Posterior) -> str:
    dropped, snapped = int(posterior.points.get("dropped", 0)), int(posterior.points.get("snapped", 0))
    if dropped or snapped:
        return f"{snapped:,} moved to land, {dropped:,} dropped"
    return "none moved, none dropped"


def _maps(posterior: Posterior, inputs: ReportInputs) -> str:
    units = posterior.units
    out = [
        _figure(figures.intensity(posterior), f"Mean intensity in {units}."),
        _figure(
            figures.uncertainty(posterior),
            "Uncertainty: the standard deviation of the intensity in per cent of its mean. Where it is large "
            "the colour of the first map says little.",
        ),
    ]
    out += [
        _figure(
            figures.exceedance(posterior, threshold),
            f"Probability that the intensity exceeds {number(threshold)} {units}.",
        )
        for threshold in inputs.thresholds
    ]
    return f'<div class="figures">{"".join(out)}</div>'


def _input(posterior: Posterior, inputs: ReportInputs) -> str:
    out = []
    if inputs.sources:
        out.append(_facts(inputs.sources.items()))
    domain = posterior.domain
    rows: list[tuple[str, object]] = []
    if inputs.counts is not None:
        rows += [(_capital(name), text) for name, text in inputs.counts.facts().items()]
    else:
        rows += [(_capital(k), f"{v:,.6g}") for k, v in posterior.points.items()]
    rows += [(_capital(name), text) for name, text in domain.facts().items()]
    rows += [("Note", note) for note in domain.notes]
    return "".join([*out, _facts(rows)])


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _warnings(inputs: ReportInputs) -> str:
    if not inputs.warnings:
        return ""
    return f'<ul class="warn">{"".join(f"<li>{escape(w)}</li>" for w in inputs.warnings)}</ul>'


def _choices(posterior: Posterior, inputs: ReportInputs) -> str:
    if inputs.choices:
        rows = [(_capital(name), choice.value, choice.why) for name, choice in inputs.choices.items()]
        return _table(rows, ("", "Taken", "Why"), kind="choices")
    return _facts((_capital(name), text) for name, text in posterior.choices.items())


def _model(posterior: Posterior) -> str:
    facts = posterior.summary()
    effects = " + covariates" if posterior.effects.names else ""
    text = (
        f"Numbers of events are Poisson with mean exposure x exp(intercept{effects} + f). The exposure is "
        f"{'the area of land' if posterior.exposure_kind == 'area' else posterior.exposure_kind}. f is a "
        f"Gaussian process ({posterior.kernel.name}) on the land itself, with {posterior.basis.weights}: nothing passes "
        "across water. "
        + (
            "At the shore it levels off freely (Neumann)."
            if posterior.basis.boundary == "neumann"
            else "At the shore it returns to zero, the intensity to its mean (Dirichlet)."
        )
    )
    rows = []
    for key, label in (("lengthscale", "Lengthscale"), ("sd", "Standard deviation of the log-intensity")):
        value, interval = _quantity(facts[key])
        rows.append((label, value, interval))
    for c in facts["coefficients"]:
        name = "Intercept (log-intensity)" if c["name"] == "intercept" else f"{c['name']}, per unit"
        interval = f"90 % interval {number(c['q05'])} to {number(c['q95'])}"
        if c["name"] != "intercept" and "rate_ratio" in c:
            interval += f"; rate x {number(c['rate_ratio'])} per unit"
        rows.append((name, number(c["mean"]), interval))
    figure = _figure(
        figures.hyperparameters(posterior), "What the data say about the hyperparameters.", "broad"
    )
    return _paragraph(text) + _table(rows, ("", "Estimate", "")) + figure


def _checks(posterior: Posterior, inputs: ReportInputs) -> str:
    checks = inputs.checks
    if checks is None:
        return ""
    fine, verdict = checks.verdict()
    domain = posterior.domain
    unit = domain.area_unit[1] if domain.crs is not None else "square units"
    scale, length = domain.length_unit
    rows = []
    last = len(checks.parts) - 1
    joined = domain.n_components > last
    for k, r in enumerate(checks.parts.itertuples()):
        name = "All" if k == last else f"Part {k + 1}"
        if joined and k == last - 1:
            name = f"{domain.n_components - last + 1} smaller parts"
        interval = f"{_events(r.q05)} to {_events(r.q95)}"
        rows.append((name, number(r.land), number(r.observed), _events(r.expected), interval))
    if last == 1:
        rows = rows[1:]
    head = ("Land", unit, "Observed", "Expected", "90 % predictive interval")
    side = f"{number(checks.side / scale)} {length}"
    text = (
        f"Squares of {side}: mean squared Pearson residual {checks.dispersion:.2f} (1 is Poisson noise about "
        f"a known intensity; less is usual where the same points made the map). Nodes without any event: "
        f"{_percent(checks.empty_observed)} observed, {_percent(checks.empty_expected)} expected."
    )
    return (
        _paragraph(verdict, "good" if fine else "bad")
        + _table(rows, head, numeric=(1, 2, 3, 4))
        + _figure(
            figures.blocks(posterior, checks),
            f"Left: observed and expected numbers in squares of {side}, with 90 % predictive intervals. "
            "Middle: where the residuals lie. Right: the randomised PIT values, which are level for new data "
            "and heap up in the middle for the data that made the map; heaps at both ends would mean that "
            "the map is too smooth.",
            "broad",
        )
        + _paragraph(text)
    )


def _regions(inputs: ReportInputs) -> str:
    frame = inputs.regions
    if frame is None:
        return ""
    area = next((c for c in frame.columns if str(c).startswith("land_")), None)
    rows = []
    for r in frame.head(_MOST_REGIONS).to_dict("records"):
        cells = [str(r.get("name", ""))]
        cells += [number(r[area])] if area else []
        cells += [_events(r["observed"])] if "observed" in frame else []
        cells += [_events(r["expected"]), f"{_events(r['q05'])} to {_events(r['q95'])}"]
        rows.append(cells)
    head = ["Region"] + (["km²"] if area else []) + (["Observed"] if "observed" in frame else [])
    head += ["Expected", "90 % interval"]
    note = "The interval is that of the expected number; what is observed varies around it."
    if "observed" in frame:
        note += " What was observed in cells that a border crosses is shared by area."
    more = len(frame) - _MOST_REGIONS
    note += f" {more:,} more regions are in the file." if more > 0 else ""
    return _table(rows, head, numeric=range(1, len(head))) + _paragraph(note, "quiet")


def _fit(posterior: Posterior, inputs: ReportInputs) -> str:
    facts = posterior.summary()
    rows: list[tuple[str, object]] = [
        ("Converged", f"{'yes' if posterior.converged else 'NO'}: {facts.get('message') or ''}".rstrip(": ")),
        ("ELBO", f"{posterior.elbo:,.2f}"),
        ("Nodes", f"{posterior.domain.n_nodes:,}"),
    ]
    if inputs.seconds:
        total = sum(inputs.seconds.values())
        parts = ", ".join(f"{k} {v:.1f} s" for k, v in inputs.seconds.items() if v >= 0.05)
        rows.append(("Time", f"{total:.1f} s: {parts}"))
    if inputs.command:
        rows.append(("Command", inputs.command))
    return _facts(rows)


def _files(inputs: ReportInputs) -> str:
    if not inputs.files:
        return ""
    return _facts(inputs.files.items())


def _cite() -> str:
    return _paragraph(PAPER) + _paragraph(
        f"Software: {_maker()}. Name the version, and the data that you mapped."
    )
