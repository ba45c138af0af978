"""The GATHER checklist of a run: what the run itself answers, what the author adds, and which blanks are left."""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd

from geobgp.errors import DataError
from geobgp.files import check_exists, replacing, write_csv
from geobgp.privacy import told_origin
from geobgp.provenance import file_name
from geobgp.report import statements
from geobgp.report.report import ReportInputs
from geobgp.text import count, listed, percent, size_text, whole_percent
from geobgp.web import page as templates

if TYPE_CHECKING:
    from geobgp.posterior import Posterior

#: What only the author knows: every entry of the metadata, and what it says.
ENTRIES = {
    "indicator": "what is estimated, in the words of the field",
    "population": "whom the estimates are of: age, sex, place of residence",
    "period": "which period the data are of",
    "funding": "who paid for the work, and what part they had in it",
    "data_access": "how the data were found, and how they were obtained",
    "inclusion": "which records were included and which excluded, and why",
    "case_definition": "what counts as a case (an event), or how the quantity was measured",
    "data_source": "who collected the data, with a reference or a contact",
    "collection": "how they were collected: registry, surveillance, survey; sex and age range",
    "biases": "in what the data may be biased: who is missing, where less is reported",
    "geocoding": "how places became coordinates, how exactly, and for what share of the records that worked",
    "denominator": "where the denominator comes from: population, births, expected cases; its year",
    "data_availability": "where the data can be had, or why not",
    "contact": "whom to ask about the data and the estimates",
    "ethics": "approval, consent, and how privacy is kept",
    "code_availability": "where the code of the analysis is",
    "results_availability": "where the estimates can be had as files",
    "interpretation": "what the estimates mean beside what was known, and why they differ from earlier ones",
    "limitations": "what else limits the estimates",
    "description": "a sentence or two on the data set",
    "authors": "their names, as a list",
    "license": "under which licence the results may be used, as a URL",
}
#: The table of the metadata with a sentence for each input, by its role.
SOURCES = "sources"
#: Inputs that were observed, and those that say how results are shown.
_OBSERVED = ("points", "areas", "cases", "controls", "samples", "surveys", "weights", "time")
_SHOWN = ("metadata", "context", "regions")
#: Files of the checklist.
NAMES = ("gather.html", "gather.csv")


@dataclass(frozen=True)
class Study:
    """What only the author knows of a study, as a file in TOML or a mapping has it.

    Attributes
    ----------
    entries : dict of str to str
        Those of `ENTRIES` that were given.
    sources : dict of str to str
        Where inputs come from, by their role.
    authors : tuple of str

    Examples
    --------
    >>> study = Study.of({"funding": "None.", "sources": {"land": "Natural Earth"}}, roles=("points", "land"))
    >>> study.entries, study.sources
    ({'funding': 'None.'}, {'land': 'Natural Earth'})
    """

    entries: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    authors: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, metadata: str | os.PathLike[str] | Mapping[str, Any] | Study | None, roles: Collection[str] | None = None
    ) -> Study:
        """Return the metadata of a study; what has no place in it is refused with the nearest name.

        Parameters
        ----------
        metadata : path, mapping, or None
            A file in TOML, or the same as a mapping.
        roles : collection of str, optional
            Of the inputs, which ``sources`` may name; any by default.
        """
        if metadata is None or isinstance(metadata, Study):
            return metadata or cls()
        name, values = ("metadata", metadata) if isinstance(metadata, Mapping) else _read(metadata)
        values = dict(values)
        sources = values.pop(SOURCES, {})
        if not isinstance(sources, Mapping):
            raise _wrong(name, SOURCES, f"is a table with a sentence for each input; found {sources!r}")
        _check_names(name, values, (*ENTRIES, SOURCES), "entry")
        if roles is not None:
            _check_names(f"{name}, [{SOURCES}]", sources, roles, "input")
        authors = values.get("authors", ())
        authors = (authors,) if isinstance(authors, str) else tuple(authors) if isinstance(authors, list) else authors
        if not (isinstance(authors, tuple) and all(isinstance(one, str) and one.strip() for one in authors)):
            raise _wrong(name, "authors", f"is a list of names; found {values['authors']!r}")
        texts, places = (
            {str(key): text for key, value in table.items() if (text := _text(name, str(key), value))}
            for table in (values, sources)
        )
        return cls(texts, places, authors)


def _read(path: str | os.PathLike[str]) -> tuple[str, Mapping[str, Any]]:
    check_exists(os.fspath(path), "metadata")
    try:
        return Path(path).name, tomllib.loads(Path(path).read_text(encoding="utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        why = "it is not encoded in UTF-8" if isinstance(error, UnicodeDecodeError) else str(error).rstrip(".")
        raise DataError(
            f"metadata: {path} cannot be read as TOML: {why}.",
            option="metadata",
            found=str(path),
            remedy='Entries are lines such as funding = "Ministry of Health"; `geobgp metadata` writes a template.',
        ) from error


def _check_names(name: str, values: Mapping[str, Any], known: Collection[str], what: str) -> None:
    for key in values:
        if key not in known:
            near = difflib.get_close_matches(str(key), [*known], 1)
            have = f"Did you mean {near[0]!r}?" if near else f"There are {listed(known, 30)}."
            raise DataError(f"{name}: there is no {what} {str(key)!r}.", option="metadata", found=key, remedy=have)


def _wrong(name: str, key: str, what: str) -> DataError:
    return DataError(f"{name}: {key} {what}.", option="metadata", found=key, remedy="Write it as text, in quotes.")


def _text(name: str, key: str, value: Any) -> str:
    """Return an entry as text: sentences, a number, a date, or a list of these; empty where it is left blank."""
    if isinstance(value, list) and not any(isinstance(one, (list, Mapping)) for one in value):
        return "; ".join(_text(name, key, one) for one in value)
    if isinstance(value, bool) or not isinstance(value, (str, int, float, date)):
        raise _wrong(name, key, f"is text; found {value!r}")
    return value.strip() if isinstance(value, str) else str(value)


def template() -> str:
    """Return a file of metadata to be filled in: every entry with what it says.

    Examples
    --------
    >>> template().splitlines()[3:5]
    ['# what is estimated, in the words of the field', 'indicator = ""']
    """
    head = [
        "# What only the author knows, for GATHER and the description of the results; what stays empty is left blank.",
        '# Text stands in quotes, several lines of it in three of them; several things in brackets: ["A", "B"].',
        "",
    ]
    lines = [f"# {what}\n{key} = {'[]' if key == 'authors' else chr(34) * 2}" for key, what in ENTRIES.items()]
    sources = [f"# where each input comes from, by its role, with a year and a reference\n# [{SOURCES}]"]
    return "\n".join(
        [*head, *lines, *sources, '# points = ""', '# land = ""', '# exposure = ""', '# "covariate rain" = ""', ""]
    )


# -- The items ---------------------------------------------------------------------------------------------------


class GatherItem(NamedTuple):
    """An item of the checklist.

    Attributes
    ----------
    number : str
        GATHER's; S1, ... of the spatial ones.
    section, asks : str
        Where it stands, and what it asks for, in our words.
    answers : tuple of str
        What the run says.
    stated : dict of str to str
        What the author says, by entry.
    blanks : dict of str to str
        What the author still has to say, by entry.
    """

    number: str
    section: str
    asks: str
    answers: tuple[str, ...]
    stated: Mapping[str, str]
    blanks: Mapping[str, str]

    @property
    def state(self) -> str:
        """Whether something is left to be filled in: "complete", "partly" or "blank"."""
        return "complete" if not self.blanks else "partly" if self.answers or self.stated else "blank"


@dataclass(frozen=True)
class _RunFacts:
    """What the answers are taken from."""

    posterior: Posterior
    inputs: ReportInputs
    study: Study

    @property
    def sources(self) -> list[Mapping[str, Any]]:
        """Every input, as it may be told."""
        return list(told_origin(self.posterior).get("inputs", ()))

    def observed(self) -> list[Mapping[str, Any]]:
        return [one for one in self.sources if one["role"] in _OBSERVED]

    def others(self) -> list[Mapping[str, Any]]:
        return [one for one in self.sources if one["role"] not in (*_OBSERVED, *_SHOWN)]


def checklist(posterior: Posterior, inputs: ReportInputs | None = None, metadata: Any = None) -> list[GatherItem]:
    """Return the items of GATHER, and spatial ones, with what is known of each.

    Parameters
    ----------
    posterior : Posterior
    inputs : ReportInputs, optional
        As for the report.
    metadata : path, mapping or Study, optional
    """
    run = _RunFacts(posterior, inputs or ReportInputs(), Study.of(metadata, _roles(posterior)))
    return [_filled(run, *row) for row in _ITEMS]


def _roles(posterior: Posterior) -> Collection[str] | None:
    roles = [one["role"] for one in posterior.origin.get("inputs", ())]
    return roles or None


def _filled(
    run: _RunFacts,
    number: str,
    section: str,
    asks: str,
    answer: Callable[[_RunFacts], Iterator[str]],
    entries: Sequence[str],
) -> GatherItem:
    known = run.study.entries
    stated = {key: known[key] for key in entries if key in known}
    blanks = {key: ENTRIES[key] for key in entries if key not in known}
    for one in {"5": run.observed, "7": run.others}.get(number, list)():
        key = f"{SOURCES}.{one['role']}"
        if one["role"] in run.study.sources:
            stated[key] = f"{one['role']}: {run.study.sources[one['role']]}"
        elif number == "7" and not one["role"].startswith("exposure"):  # whose source is the denominator's
            blanks[key] = f"where {file_name(one)} ({one['role']}) comes from"
    if "denominator" in blanks and run.posterior.exposure_kind not in ("population", "expected", "exposure"):
        del blanks["denominator"]
    return GatherItem(number, section, asks, tuple(answer(run)), stated, blanks)


def _estimated(run: _RunFacts) -> Iterator[str]:
    p = run.posterior
    unit = "" if p.quantity == "relative risk" else f", in {p.units}"
    what = f"{p.title}: {p.quantity}" if p.title else p.quantity.capitalize()
    yield f"{what}{unit}."
    yield f"From {statements.basis_in_words(p)}; {statements.land_in_words(p)}."


def _nothing(run: _RunFacts) -> Iterator[str]:
    yield from ()


def _exclusions(run: _RunFacts) -> Iterator[str]:
    facts = {} if run.inputs.counts is None else run.inputs.counts.facts()
    facts = facts or {name.replace("_", " "): f"{value:,.6g}" for name, value in run.posterior.points.items()}
    yield "; ".join(f"{name}: {value}" for name, value in facts.items()) + "."


def _listed(inputs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for one in inputs:
        rows = "" if one["features"] is None else f", {count(one['features'], 'feature')}"
        size = "" if one["bytes"] is None else f", {size_text(one['bytes'])}"
        digest = f", SHA-256 {one['sha256']}" if one["sha256"] else ""
        yield f"{one['role']}: {file_name(one)}{rows}{size}{digest}."


def _biases(run: _RunFacts) -> Iterator[str]:
    words = statements.limitations(run.posterior, run.inputs.validation, only="data")
    yield from words


def _shared(run: _RunFacts) -> Iterator[str]:
    if run.sources:
        yield "Inputs are identified by SHA-256 (items 5 and 7), which distinguishes copies from other versions."
    if run.posterior.protection:
        yield "Small numbers are protected in all results."


def _concept(run: _RunFacts) -> Iterator[str]:
    p = run.posterior
    yield (
        f"Observations ({p.likelihood.name}) are tied to a latent Gaussian field on the land itself, which is divided "
        f"into {p.domain.n_nodes:,} cells cut along the boundary; field and overall level are estimated jointly "
        "by variational Bayesian inference, with hyperparameters learned from the data."
    )
    yield statements.water(p)


def _steps(run: _RunFacts) -> Iterator[str]:
    p = run.posterior
    covariates = " + covariates" if p.design.names else ""
    inverse = {"exp": "exp", "logit": "inverse logit of ", "probit": "Φ", "square": "square of "}.get(p.link.name, "")
    times = "exposure x " if p.is_summed else ""
    yield f"Expected value = {times}{inverse}(intercept{covariates} + f); f is a Gaussian process, {p.kernel.name}."
    if p.design.names:
        yield f"Covariates: {', '.join(p.design.covariates)}."
    for name, prior in statements.priors(p):
        yield f"Prior, {name[0].lower()}{name[1:]}: {prior}."
    yield from (f"{name[:1].upper()}{name[1:]}: {text}." for name, text in p.choices.items())


def _candidates(run: _RunFacts) -> Iterator[str]:
    p = run.posterior
    if len(p.tried) < 2:
        yield "One model was fitted; no others were compared."
        return
    yield f"{count(len(p.tried), 'fit')} were compared by the bound on the log evidence; the gains are in the report."
    yield from (f"{row[0]}: {row[3]} nats." for row in statements.sensitivity(p))


def _performance(run: _RunFacts) -> Iterator[str]:
    p, checked = run.posterior, run.inputs.validation
    if checked is not None:
        yield checked.verdict()
    elif run.inputs.not_checked:
        yield f"Held-out checks were not run. {run.inputs.not_checked}"
    if (variation := p._known_variation()) is not None:
        yield variation.sentence
    rows = statements.sensitivity(p)
    yield from (f"Sensitivity, {row[0][0].lower()}{row[0][1:]}: the map differs by {row[4]}." for row in rows if row[4])


def _uncertainty(run: _RunFacts) -> Iterator[str]:
    p = run.posterior
    yield f"Intervals are posterior, of {whole_percent(p.interval)}; those of regions come from joint draws."
    yield f"Accounted for: {', '.join(statements.included(p))}."
    yield from (f"Not accounted for: {one[0].lower()}{one[1:]}" for one in statements.not_included(p))


def _code(run: _RunFacts) -> Iterator[str]:
    origin = told_origin(run.posterior)
    import geobgp

    yield f"geobgp {origin.get('software', {}).get('geobgp', geobgp.__version__)}, open source (MIT licence)."
    if run.inputs.command or origin:
        yield f"Made by: {run.inputs.command or origin['call']}"
    if origin:
        software = ", ".join(f"{name} {version}" for name, version in origin["software"].items())
        yield f"With {software}."


def _files(run: _RunFacts) -> Iterator[str]:
    for name, what in run.inputs.files.items():
        yield f"{name}: {what}." if what else f"{name}."


def _measure(run: _RunFacts) -> Iterator[str]:
    yield from statements.abstract(run.posterior)[:1]
    yield (
        f"Every place and region has its {whole_percent(run.posterior.interval)} interval and standard deviation, and "
        "the probability of exceeding the thresholds that were asked for."
    )


def _result(run: _RunFacts) -> Iterator[str]:
    yield from statements.abstract(run.posterior)


def _limits(run: _RunFacts) -> Iterator[str]:
    yield from statements.limitations(run.posterior, run.inputs.validation)


def _place(run: _RunFacts) -> Iterator[str]:
    facts = run.posterior.domain.facts()
    yield "; ".join(f"{name}: {value}" for name, value in facts.items() if name in ("CRS", "grid", "land area")) + "."
    yield from run.posterior.domain.notes


def _boundary(run: _RunFacts) -> Iterator[str]:
    p = run.posterior
    free = p.basis.boundary == "neumann"
    yield f"At the boundary the map {'levels off freely (Neumann)' if free else 'is held at its mean (Dirichlet)'}."
    yield statements.water(p)


def _dependence(run: _RunFacts) -> Iterator[str]:
    p = run.posterior
    scale, unit = p.domain.length_unit
    yield f"Lengthscale {p.lengthscale / scale:.3g} {unit}, standard deviation {p.sd:.3g} ({p.kernel.name})."
    if p.periods is not None and p.periods.n > 1:
        yield f"{p.periods.words()}; correlation time {p.tau:.3g} {p.periods.noun}s ({p.dynamics})."


_OBJECTIVE, _INPUTS, _OTHER, _ALL = "Objectives and funding", "Data that were mapped", "Other data", "All data"
_ANALYSIS, _RESULTS, _SPATIAL = "Analysis", "Results and discussion", "Space and time (after ISLE-ReSt)"
_ITEMS: tuple[tuple[str, str, str, Callable[[_RunFacts], Iterator[str]], tuple[str, ...]], ...] = (
    ("1", _OBJECTIVE, "What is estimated, of whom, where and when", _estimated, ("indicator", "population", "period")),
    ("2", _OBJECTIVE, "Who paid for it", _nothing, ("funding",)),
    ("3", _INPUTS, "How the data were found and obtained", _nothing, ("data_access",)),
    ("4", _INPUTS, "What was included and excluded, ad hoc too", _exclusions, ("inclusion",)),
    ("5", _INPUTS, "Every source with what characterises it", lambda run: _listed(run.observed()),
     ("data_source", "case_definition", "collection")),
    ("6", _INPUTS, "What may be biased in them", _biases, ("biases",)),
    ("7", _OTHER, "Sources of everything else that went in", lambda run: _listed(run.others()), ("denominator",)),
    ("8", _ALL, "Where the data can be had as files, or whom to ask", _shared,
     ("data_availability", "contact", "ethics")),
    ("9", _ANALYSIS, "The idea of the analysis", _concept, ()),
    ("10", _ANALYSIS, "Every step in detail, with formulas", _steps, ()),
    ("11", _ANALYSIS, "How models were compared and one was chosen", _candidates, ()),
    ("12", _ANALYSIS, "How well it predicts, and how sensitive it is", _performance, ()),
    ("13", _ANALYSIS, "How uncertainty was computed; what it holds and what not", _uncertainty, ()),
    ("14", _ANALYSIS, "Where the code is", _code, ("code_availability",)),
    ("15", _RESULTS, "Estimates as files", _files, ("results_availability",)),
    ("16", _RESULTS, "Uncertainty in numbers", _measure, ()),
    ("17", _RESULTS, "What the estimates mean beside other evidence, and why they changed", _result,
     ("interpretation",)),
    ("18", _RESULTS, "Limitations", _limits, ("limitations",)),
    ("S1", _SPATIAL, "Study area, coordinate reference system, spatial unit", _place, ()),
    ("S2", _SPATIAL, "How places were located, and how exactly", _nothing, ("geocoding",)),
    ("S3", _SPATIAL, "Boundaries and barriers", _boundary, ()),
    ("S4", _SPATIAL, "Dependence in space and time", _dependence, ()),
)  # fmt: skip


# -- The files ---------------------------------------------------------------------------------------------------


def write_gather(
    folder: str | os.PathLike[str], posterior: Posterior, inputs: ReportInputs | None = None, metadata: Any = None
) -> list[Path]:
    """Write ``gather.html`` and ``gather.csv`` into a folder; return where they are.

    Parameters
    ----------
    folder : str or path
    posterior, inputs, metadata
        As for `checklist`.
    """
    items = checklist(posterior, inputs, metadata)
    page, table = (Path(folder) / name for name in NAMES)
    with replacing(page, parents=True) as temporary:
        temporary.write_text(render(posterior, items), encoding="utf-8")
    columns = ["item", "section", "asks_for", "from_the_run", "from_the_author", "left_blank", "state"]
    rows = [
        (o.number, o.section, o.asks, " ".join(o.answers), " ".join(o.stated.values()), "; ".join(o.blanks), o.state)
        for o in items
    ]
    write_csv(table, pd.DataFrame(rows, columns=columns))
    return [page, table]


def render(posterior: Posterior, items: Sequence[GatherItem]) -> str:
    """Return the page: sections of items, and what is left blank first."""
    import geobgp

    whole = [one for one in items if not one.number.startswith("S")]
    done = sum(not one.blanks for one in whole)
    return templates.render(
        "report/gather.html.j2",
        title=f"GATHER: {posterior.title or posterior.default_title}",
        subtitle=f"{done} of {len(whole)} items complete ({percent(done / len(whole))})",
        items=items,
        names=list(dict.fromkeys(one.section for one in items)),
        left={key: what for one in items for key, what in one.blanks.items()},
        variation=None,
        version=geobgp.__version__,
        created=posterior.created,
    )
