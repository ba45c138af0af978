"""The package keeps its order: who may import whom, and what a module says of itself."""

from __future__ import annotations

import ast
import re
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from paths import ROOT

PACKAGE = ROOT / "geobgp"
#: From the bottom up. A module may import its own layer and all that lie below.
LAYERS = (
    ("errors", "text", "units", "style", "files", "progress", "validation", "store"),
    ("linalg", "parallel"),
    ("land",),
    ("prior",),
    ("data",),
    ("inference",),
    ("model", "posterior", "totals", "privacy", "summary", "simulate", "archive", "provenance"),
    ("checks",),
    ("output",),
    ("web",),
    ("report",),
    ("auto",),
    ("scale",),
    ("cli",),
)
#: Beside output: sees what output sees; nothing imports it at the top of a module.
BESIDE = {"gpflow": "output"}
#: What users hold. Its methods (`to_map`, `plot`, `cross_validate`, ...) reach upwards, with the import inside; nothing
#: else does.
HELD = {
    "CrossValidation",
    "Delays",
    "Domain",
    "Excursion",
    "HarmonicBasis",
    "LGCP",
    "Posterior",
    "Residuals",
    "Variogram",
    "Versus",
}
#: And two functions.
HELD |= {"_refitted", "load"}

#: The plugin, which QGIS runs and nobody imports.
PLUGIN = PACKAGE / "qgis"

MODULES = sorted(p for p in PACKAGE.rglob("*.py") if p.name != "__init__.py" and p.parent != PLUGIN)


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def name_of(path: Path) -> str:
    """Return a module's name within the package, as in "land.grid"."""
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts)


NAMES = {name_of(path) for path in MODULES}


def level(module: str) -> int:
    """Return the layer that a module belongs to; the most special entry counts."""
    found = {room: n for n, layer in enumerate(LAYERS) for room in layer}
    found |= {room: found[other] for room, other in BESIDE.items()}
    for room in (module, module.split(".")[0]):
        if room in found:
            return found[room]
    raise AssertionError(f"geobgp.{module} is in no layer: give it one in {Path(__file__).name} and the docs")


def may_import(module: str, other: str) -> bool:
    room, its = module.split(".")[0], other.split(".")[0]
    if room == its:
        return level(module) >= level(other)
    if its in BESIDE:
        return False
    return level(module) > level(other) or (level(module) == level(other) and room not in BESIDE)


def imports(path: Path) -> Iterator[tuple[str, str | None]]:
    """Yield each module of ours that a file imports, and the function it does so in (None: at the top).

    What is imported for type hints alone is not counted: a door may name the type of what it gives.
    """

    def visit(node: ast.AST, where: tuple[str, ...], inside: bool) -> Iterator[tuple[str, str | None]]:
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            where, inside = (*where, node.name), inside or not isinstance(node, ast.ClassDef)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            full = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name.removeprefix("geobgp.") in NAMES else node.module or "" for name in full]
        for name in names:
            if name.startswith("geobgp."):
                yield name.removeprefix("geobgp."), ".".join(where) if inside else None
        for child in ast.iter_child_nodes(node):
            yield from visit(child, where, inside)

    yield from visit(tree_of(path), (), False)


def upward(path: Path) -> set[tuple[str, str]]:
    """Return what a file imports from above: (where, what)."""
    module = name_of(path)
    return {
        (f"{module}:{where or 'top'}", other)
        for other, where in imports(path)
        if other != module and not may_import(module, other)
    }


def test_imports_go_down():
    """At the top of a module all imports go down; inside functions, only methods of what users hold go up."""
    found = {pair for path in MODULES for pair in upward(path)}
    assert {(where, what) for where, what in found if where.split(":")[1].split(".")[0] not in HELD} == set()


def test_no_class_name_is_used_twice():
    homes: dict[str, list[str]] = {}
    for path in MODULES:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(name_of(path))
    assert {name: where for name, where in homes.items() if len(where) > 1} == {}


def test_the_rule_itself():
    assert may_import("prior.harmonic", "land.domain") and not may_import("land.domain", "prior.harmonic")
    assert may_import("prior.cache", "store") and not may_import("prior.cache", "archive")
    assert may_import("cli.app", "auto.pipeline") and not may_import("cli.app", "gpflow.fit")
    assert may_import("gpflow.fit", "model") and not may_import("gpflow.fit", "output.rasters")
    with pytest.raises(AssertionError, match="in no layer"):
        level("attic.box")


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_module_says_what_it_owns(path):
    purpose = (ast.get_docstring(tree_of(path)) or "").splitlines()
    assert purpose and purpose[0].endswith("."), "the docstring's first line says what the module owns"
    assert len(purpose) == 1 or purpose[1] == "", "in one line"


@pytest.mark.parametrize("path", sorted(PLUGIN.glob("*.py")), ids=lambda p: p.name)
def test_the_plugin_needs_qgis_and_nothing_of_ours(path):
    text = path.read_text("utf-8")
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)]
    own = {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.level}
    assert all((PLUGIN / f"{name}.py").exists() for name in own)
    names = {n.module if isinstance(n, ast.ImportFrom) else n.names[0].name for n in nodes} - own
    assert {name.split(".")[0] for name in names} - sys.stdlib_module_names <= {"qgis"}
    # QGIS 3.22 to 3.34 have Python 3.9 on Windows.
    ast.parse(text, feature_version=(3, 9))
    everywhere = [p.read_text("utf-8") for p in MODULES]
    assert not [t for t in everywhere if "import geobgp.qgis" in t or "from geobgp.qgis" in t]


@pytest.mark.parametrize(
    "path", sorted(set(PACKAGE.glob("*/__init__.py")) - {PLUGIN / "__init__.py"}), ids=lambda p: p.parent.name
)
def test_folders_load_nothing(path):
    assert path.read_text("utf-8").strip() == "", "what it imports would cost every start"


def test_every_folder_is_a_package_and_has_a_layer():
    folders = {p.parent for p in MODULES} - {PACKAGE}
    assert all((folder / "__init__.py").exists() for folder in folders)
    for path in MODULES:
        level(name_of(path))


def test_where_everything_is_takes_forty_rows():
    """The table "Where is ...?" needs no more, and names each module and folder that is there."""
    table = (ROOT / "docs/architecture.md").read_text("utf-8").split("## Where is ...?")[1].split("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ")][1:]
    assert 30 <= len(rows) <= 40
    paths = {path for row in rows for path in re.findall(r"`((?:geobgp|tests)/[\w/.]*)`", row)}
    assert sorted(path for path in paths if not (ROOT / path).exists()) == []
    told = {name for name in NAMES if any(f"geobgp/{name.replace('.', '/')}.py".startswith(path) for path in paths)}
    assert sorted(NAMES - told) == []


def test_the_picture_shows_the_layers():
    texts = ET.parse(ROOT / "docs/layers.svg").getroot().iter("{http://www.w3.org/2000/svg}text")
    shown = [(float(t.get("y")), t.get("class"), tuple(t.text.split())) for t in texts if t.get("class")]
    drawn = [rooms for _, kind, rooms in sorted(shown, reverse=True) if kind == "rooms"]
    there = {p.name for p in PACKAGE.iterdir() if p.is_dir()} | {p.stem for p in PACKAGE.glob("*.py")}
    expected = [tuple(r for r in layer if r.split(".")[0] in there) for layer in LAYERS]
    assert [set(rooms) for rooms in drawn] == [set(rooms) for rooms in expected if rooms]
    assert {rooms for _, kind, rooms in shown if kind == "beside"} == {(room,) for room in BESIDE}
