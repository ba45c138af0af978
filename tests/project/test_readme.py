"""Every code block of the README runs, as it stands there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"(<!-- (?:\w+) command -->\n)?```(\w+)\n(.*?)```", README, re.S)


@pytest.fixture
def place(tmp_path):
    """A directory that looks like the checkout to code that reads sample data."""
    (tmp_path / "sample_data").symlink_to(ROOT / "sample_data")
    return tmp_path


def run(command, place):
    search = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    python_path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        command,
        cwd=place,
        env={**os.environ, "PATH": search, "PYTHONPATH": python_path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


PYTHON = [body for _, language, body in BLOCKS if language == "python"]


@pytest.mark.slow
@pytest.mark.parametrize("code", PYTHON, ids=range(len(PYTHON)))
def test_every_python_block_runs_by_itself_without_a_warning(code, place):
    printed = run([sys.executable, "-W", "error", "-c", code], place)
    if "choices" in code:
        assert printed.startswith("closed")
    elif "map_intensity" in code:
        assert "lengthscale" in printed and "Gelderland" in printed
        assert (place / "ticks" / "mean.tif").exists() and (place / "ticks" / "map.html").exists()


def test_the_readme_is_short_and_its_links_lead_somewhere():
    assert len(README.splitlines()) <= 120 and PYTHON
    for target in re.findall(r"\]\(([^)]+)\)", README):
        assert (ROOT / target).exists(), target


@pytest.mark.slow
def test_shell_blocks(place):
    bodies = [body for set_up, language, body in BLOCKS if language == "bash" and not set_up]
    assert len(bodies) == 1 and "geobgp map" in bodies[0]
    # Without an installed entry point, the module is the same command.
    start = f'geobgp() {{ "{sys.executable}" -m geobgp.cli.app "$@"; }}\n'
    assert "ticks-out/report.html" in run(["bash", "-euc", start + bodies[0]], place)
    names = {path.name for path in (place / "ticks-out").iterdir()}
    assert {"map.html", "report.html", "summary.json", "posterior.geobgp", "mean.tif", "mean.qml"} <= names
    assert "exceedance_0.3.tif" in names
    assert "4,446" in (place / "ticks-out" / "report.html").read_text("utf-8")


def test_set_up_commands_are_those_of_ci():
    commands = [body for set_up, _, body in BLOCKS if set_up]
    assert len(commands) == 2
    assert commands[0].strip().endswith("pip install -e . && geobgp demo")
    assert commands[1].strip().endswith("pip install -e '.[dev]' && pytest")
    assert "<!-- test command -->" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
