"""Light checks of the notebooks as they are stored; CI executes them with nbmake."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest
from paths import ROOT

import geobgp

FOLDER = ROOT / "notebooks"
NAMES = (
    "01_tick_bites_netherlands",
    "02_disease_risk_with_population",
    "03_know_your_boundaries",
    "04_paper_experiments",
    "05_real_data",
    "06_can_i_trust_this_map",
    "07_counts_by_area",
    "08_where_and_when",
    "09_prevalence_from_survey_to_districts",
    "10_measurements_behind_a_peninsula",
    "11_effects_what_explains_the_map",
)
#: What belongs to one machine, and not in a notebook.
PRIVATE = re.compile(
    r"/(?:home|root|tmp|work|Users|usr|opt)/|[A-Z]:\\Users|site-packages|pypi|index-url", re.IGNORECASE
)


def outputs(notebook: dict) -> list[dict]:
    return [o for cell in notebook["cells"] if cell["cell_type"] == "code" for o in cell["outputs"]]


def text_of(output: dict) -> str:
    """Return all text of an output, its pictures left out."""
    parts = [output.get("text", "")]
    parts += [value for kind, value in output.get("data", {}).items() if not kind.startswith("image/")]
    return "\n".join("".join(part) if isinstance(part, list) else str(part) for part in parts)


@pytest.fixture(params=NAMES)
def path(request: pytest.FixtureRequest) -> Path:
    return FOLDER / f"{request.param}.ipynb"


@pytest.fixture
def notebook(path: Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8"))


def test_there_are_no_others():
    assert {p.stem for p in FOLDER.glob("*.ipynb")} == set(NAMES)


def test_every_cell_was_executed_in_order(notebook):
    cells = [c for c in notebook["cells"] if c["cell_type"] == "code"]
    assert [c["execution_count"] for c in cells] == list(range(1, len(cells) + 1))
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"


def test_nothing_failed_or_complained(notebook):
    assert {o["output_type"] for o in outputs(notebook)} <= {"stream", "display_data", "execute_result"}
    assert not [o for o in outputs(notebook) if o.get("name") == "stderr"]


def test_it_can_be_read_without_running_it(notebook, path):
    assert sum("image/png" in o.get("data", {}) for o in outputs(notebook)) >= 2
    assert notebook["cells"][0]["cell_type"] == "markdown"
    assert path.stat().st_size < 1_500_000


def test_nothing_of_the_machine_is_in_it(notebook):
    for output in outputs(notebook):
        found = PRIVATE.search(text_of(output))
        assert found is None, text_of(output)[max(found.start() - 60, 0) : found.end() + 60]
    for cell in notebook["cells"]:
        assert PRIVATE.search("".join(cell["source"])) is None


def test_neither_maps_nor_points_are_in_it(notebook):
    for output in outputs(notebook):
        text = text_of(output)
        assert len(text) < 20_000
        assert "<iframe" not in text and "leaflet" not in text.lower()
        assert "POINT (" not in text


def inner_names(source: str) -> list[str]:
    """Return what code uses of geobgp that is not public: imports, attributes of the package, names with a `_`."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "geobgp":
            inside = node.module != "geobgp"
            found += [f"{node.module}.{a.name}" for a in node.names if inside or a.name not in geobgp.__all__]
        elif isinstance(node, ast.Import):
            found += [a.name for a in node.names if a.name.startswith("geobgp.")]
        elif isinstance(node, ast.Attribute):
            of_package = isinstance(node.value, ast.Name) and node.value.id == "geobgp"
            hidden = node.attr.startswith("_") and not node.attr.startswith("__")
            if hidden or (of_package and node.attr not in {*geobgp.__all__, "__version__"}):
                found.append(ast.unparse(node))
    return found


def test_inner_names_are_found():
    assert inner_names("from geobgp.output import figures") == ["geobgp.output.figures"]
    assert inner_names("from geobgp import Domain, errors") == ["geobgp.errors"]
    assert inner_names("import geobgp.checks.crossval") == ["geobgp.checks.crossval"]
    assert inner_names("import geobgp\ngeobgp.errors.in_words('')") == ["geobgp.errors"]
    assert inner_names("posterior._nodes") == ["posterior._nodes"]
    assert inner_names("import geobgp\ngeobgp.map_intensity(p, land).plot(); geobgp.__version__") == []


def test_public_names_are_enough(notebook):
    code = ["".join(c["source"]) for c in notebook["cells"] if c["cell_type"] == "code"]
    assert inner_names("\n".join(code)) == []


def test_it_goes_from_a_question_to_what_was_found(notebook):
    text = ["".join(c["source"]) for c in notebook["cells"] if c["cell_type"] == "markdown"]
    assert "question" in "\n".join(text[:2]).lower()
    last = text[-1].lower()
    assert "sentence for the paper" in last or "what was found" in last
