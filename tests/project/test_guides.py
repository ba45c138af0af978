"""The guides speak of what there is: paths, names, layers, commands."""

from __future__ import annotations

import ast
import importlib
import json
import re
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import small_case as case
from paths import ROOT

from geobgp import LGCP, HarmonicBasis, Matern, Posterior, bin_points
from geobgp.errors import MissedVarianceWarning

GUIDES = ["README.md", "CONTRIBUTING.md", "docs/architecture.md", "sample_data/README.md"]
#: Folders that the commands of the guides write.
MADE = ("ticks/", "ticks-out/", "geobgp-out/")


def quoted(name: str) -> set[str]:
    """Return what a guide shows in the type of code, outside of blocks."""
    text = re.sub(r"```.*?```", "", (ROOT / name).read_text("utf-8"), flags=re.S)
    return set(re.findall(r"`([^`\n]+)`", text))


@pytest.mark.parametrize("guide", GUIDES)
def test_paths_exist(guide):
    paths = {word for word in quoted(guide) if "/" in word and re.fullmatch(r"[\w./-]+", word)}
    assert [p for p in sorted(paths) if not (p.startswith(MADE) or (ROOT / p).exists())] == []


def exists(name: str) -> bool:
    """Tell whether a dotted name of ours can be imported (if GPflow is there, in its folder)."""
    module = name
    while not ((path := ROOT / module.replace(".", "/")).is_dir() or path.with_suffix(".py").exists()):
        module = module.rpartition(".")[0]
    rest = name.removeprefix(module).lstrip(".")
    return not rest or module.startswith("geobgp.gpflow.") or hasattr(importlib.import_module(module), rest)


@pytest.mark.parametrize("guide", GUIDES)
def test_names_exist(guide):
    named = {m[0] for word in quoted(guide) for m in re.finditer(r"\bgeobgp(?:\.[A-Za-z_]\w*)+", word)}
    assert [name for name in sorted(named) if not exists(name)] == []


def imports_of(source: str) -> set[str]:
    """Return the dotted names of ours that code imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "geobgp":
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.startswith("geobgp.")}
    return found


def cells(path: Path) -> str:
    """Return the code of a notebook."""
    cells = json.loads(path.read_text("utf-8"))["cells"]
    return "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")


@pytest.mark.parametrize("folder", ["benchmarks", "notebooks"])
def test_what_scripts_import_exists(folder):
    texts = [path.read_text("utf-8") for path in (ROOT / folder).glob("*.py")]
    texts += [cells(path) for path in (ROOT / folder).glob("*.ipynb")]
    names = {name for text in texts for name in imports_of(text)}
    assert names, "nothing of ours is used"
    assert [name for name in sorted(names) if not exists(name)] == []


@pytest.mark.parametrize("guide", GUIDES)
def test_links_lead_somewhere(guide):
    links = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", (ROOT / guide).read_text("utf-8"))
    assert [link for link in links if not ((ROOT / guide).parent / link).exists()] == []


def test_commits_are_checked_by_what_ci_runs():
    entries = re.findall(r"entry: (.+)", (ROOT / ".pre-commit-config.yaml").read_text("utf-8"))
    ci = [line.strip() for line in (ROOT / ".ci/run").read_text("utf-8").splitlines()]
    assert [entry for entry in entries if not entry.startswith("pytest")] == [
        "ruff check .",
        "ruff format --check .",
        "mypy",
    ]
    assert all(entry in ci for entry in entries if not entry.startswith("pytest"))
    for path in re.findall(r"tests/\S+", " ".join(entries)):
        assert (ROOT / path).exists()


def test_the_kernel_of_the_guide_works(tmp_path):
    code = re.search(r"```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text("utf-8"), re.S)[1]
    module = types.ModuleType("guide")
    sys.modules["guide"] = module
    exec(code, module.__dict__)
    ours = module.Exponential(lengthscale=3.0, sd=2.0)
    omega = np.linspace(0.0, 4.0, 9)
    np.testing.assert_allclose(
        ours.spectral_density(omega), Matern(0.5, lengthscale=3.0, sd=2.0).spectral_density(omega)
    )
    basis = HarmonicBasis.compute(case.domain(1000.0), 40, cache=False)
    with pytest.warns(MissedVarianceWarning):  # so rough a field asks for more features
        posterior = LGCP(basis, module.Exponential()).fit(bin_points(case.points(seed=1), basis.domain))
    posterior.save(tmp_path / "a.geobgp")
    assert Posterior.load(tmp_path / "a.geobgp").kernel == posterior.kernel
    assert isinstance(posterior.kernel, module.Exponential)
