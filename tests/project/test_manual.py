"""The manual has a place for everything; that it builds without a warning is seen by CI."""

from __future__ import annotations

import re

import pytest
from paths import ROOT

import geobgp
from geobgp.cli.app import cli

DOCS = ROOT / "docs"
PAGES = sorted(p for p in DOCS.rglob("*.md") if "_generated" not in p.parts)


def test_every_public_name_is_in_the_reference():
    text = "".join(p.read_text("utf-8") for p in (DOCS / "reference").glob("*.md"))
    shown = set(re.findall(r"auto(?:class|function):: geobgp\.(\w+)", text))
    errors = {name for name in geobgp.__all__ if name.endswith(("Error", "Warning"))}
    assert "automodule:: geobgp.errors" in text
    assert sorted(shown) == sorted(set(geobgp.__all__) - errors)


def test_every_command_is_in_the_reference():
    shown = re.findall(r"^!geobgp (\S+) --help", (DOCS / "reference" / "shell.md").read_text("utf-8"), re.M)
    assert sorted(shown) == sorted(cli.commands)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(DOCS)))
def test_pages_speak_of_data_that_there_are(page):
    named = re.findall(r"\"(sample_data/[^\"]+)\"", page.read_text("utf-8"))
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_code_is_run_unless_it_is_about_files_of_the_reader():
    for page in PAGES:
        for block in re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), flags=re.S):
            compile(block, str(page), "exec")
