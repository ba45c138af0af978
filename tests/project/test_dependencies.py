"""What is imported is declared, in the right place, and the version stands once."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest
from paths import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
#: Distributions that are not named as they are imported.
NAMED = {"xstatic": "xstatic-leaflet", "PIL": "pillow"}
#: Folders and modules that only work with an extra, and which.
EXTRAS = {"gpflow": "gpflow", "parallel.py": "dask", "output/arviz.py": "arviz", "scale": "dask"}


def declared(requirements: list[str]) -> set[str]:
    return {re.match(r"[\w.-]+", line)[0].lower().replace("_", "-") for line in requirements}


def distribution(module: str) -> str:
    return NAMED.get(module, module.lower().replace("_", "-"))


def imported(path: Path) -> set[str]:
    """Return the distributions, neither Python's own nor ours, that a file imports anywhere in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
    modules = {name.split(".")[0] for name in names}
    return {distribution(m) for m in modules if m not in sys.stdlib_module_names and m != "geobgp"}


CORE = declared(PROJECT["dependencies"])
OPTIONAL = {name: declared(lines) for name, lines in PROJECT["optional-dependencies"].items()}


def allowed(path: Path) -> set[str]:
    """Return what a module may import: the core's requirements, and those of its own or its folder's extra."""
    own = path.relative_to(ROOT / "geobgp")
    extra = EXTRAS.get(own.as_posix(), EXTRAS.get(own.parts[0]))
    return CORE if extra is None else CORE | OPTIONAL[extra]


def test_every_direct_import_is_declared():
    # What we carry for QGIS is run by it, with what it has.
    ours = [path for path in (ROOT / "geobgp").rglob("*.py") if path.parent.name != "qgis"]
    used = {path: imported(path) for path in ours}
    missing = {str(p.relative_to(ROOT)): names - allowed(p) for p, names in used.items() if names - allowed(p)}
    assert missing == {}
    assert CORE - set().union(*used.values()) == set(), "declared, but not imported"


def test_what_the_tests_import_is_in_their_extras():
    folders = (ROOT / "tests/helpers", ROOT / "sample_data")
    ours = {distribution(path.stem) for folder in folders for path in folder.glob("*.py")}
    for path in (ROOT / "tests").rglob("*.py"):
        # QGIS brings a Python of its own.
        if not (path.parent.name == "helpers" and path.name.startswith("qgis_")):
            here = CORE | OPTIONAL["test"] | (OPTIONAL["gpflow"] if "gpflow" in path.parts else set())
            assert imported(path) - ours <= here, path


@pytest.mark.parametrize("extra", ["gpflow", "test"])
def test_dev_has_all_of_the_others(extra):
    lines = PROJECT["optional-dependencies"]
    assert set(lines[extra]) <= set(lines["dev"]) or f"geobgp[{extra}]" in lines["dev"]


def test_the_version_stands_once_and_is_that_of_the_citation_and_the_changelog():
    import geobgp

    assert "version" in PROJECT["dynamic"] and "version" not in PROJECT
    assert geobgp.__version__ not in (ROOT / "pyproject.toml").read_text("utf-8")
    citation = (ROOT / "CITATION.cff").read_text("utf-8")
    assert re.search(r"^version: (.+)$", citation, re.M)[1] == geobgp.__version__
    released = re.findall(r"^## (\d\S+) - (\S+)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.M)
    assert released[0] == (geobgp.__version__, re.search(r"^date-released: (.+)$", citation, re.M)[1])


def test_the_conda_recipe_asks_for_the_same():
    recipe = (ROOT / "docs" / "conda" / "meta.yaml").read_text("utf-8")
    of_run = recipe.partition("  run:\n")[2].partition("\ntest:")[0]
    found = dict(re.findall(r"^    - (\S+) (>=\S+)$", of_run, re.M))
    names = {"matplotlib-base": "matplotlib"}
    found = {names.get(name, name): bound for name, bound in found.items()}
    assert found.pop("python") == PROJECT["requires-python"]
    lines = [re.fullmatch(r"([\w.-]+)(>=.+)", line).groups() for line in PROJECT["dependencies"]]
    assert found == {name.lower(): bound for name, bound in lines}
