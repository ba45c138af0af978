"""The demo works wherever the package is installed, on the data that are also in sample_data."""

import json
import os
import shutil
import subprocess
import sys
from importlib.metadata import version
from importlib.resources import files
from zipfile import ZipFile

import geopandas as gpd
import pytest
from paths import ROOT, SAMPLE

from geobgp.cli.app import main
from geobgp.cli.commands import DATA


def test_the_packed_data_are_the_sample_data():
    with (files("geobgp.cli") / "demo.zip").open("rb") as packed, ZipFile(packed) as archive:
        assert archive.namelist() == list(DATA.values())
        for name in archive.namelist():
            assert archive.read(name) == (SAMPLE / name).read_bytes(), "run sample_data/pack_demo.py"


@pytest.mark.slow
def test_the_demo_maps_all_tick_bites(tmp_path, capfd):
    assert main(["demo", "-o", str(tmp_path / "out")]) == 0
    assert "27 files" in capfd.readouterr().out
    record = json.loads((tmp_path / "out" / "summary.json").read_text("utf-8"))
    assert record["points"]["used"] == 4446
    assert record["choices"]["cell size"]["value"] == "2,000 m"
    assert record["checks"]["fine"]
    assert record["options"] == {
        "water": "netherlands_water.gpkg",
        "title": "Tick bites in the Netherlands (simulated)",
        "thresholds": [0.2],
        "regions": "netherlands_provinces.gpkg",
    }
    assert len(gpd.read_file(tmp_path / "out" / "regions.gpkg")) == 12


@pytest.mark.slow
def test_an_installed_wheel_has_all_that_the_demo_needs(tmp_path):
    source, place, empty = (tmp_path / name for name in ("source", "place", "empty"))
    shutil.copytree(ROOT / "geobgp", source / "geobgp", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    empty.mkdir()
    pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check"]
    # Without the network where it is not needed: an old setuptools does not know today's pyproject.toml.
    alone = ["--no-build-isolation"] if int(version("setuptools").split(".")[0]) >= 77 else []
    subprocess.run([*pip, "wheel", *alone, "--no-deps", "-w", str(tmp_path), str(source)], check=True)
    wheel = next(tmp_path.glob("geobgp-*.whl"))
    subprocess.run([*pip, "install", "--no-deps", "--target", str(place), str(wheel)], check=True)
    environment = os.environ | {"PYTHONPATH": str(place)}
    command = [sys.executable, "-m", "geobgp.cli.app", "demo"]
    done = subprocess.run(command, cwd=empty, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (empty / "geobgp-out" / "map.html").stat().st_size > 100_000
    where = "import geobgp; print(geobgp.__file__, geobgp.__version__)"
    told = subprocess.run([sys.executable, "-c", where], cwd=empty, env=environment, capture_output=True, text=True)
    assert str(place) in told.stdout and told.stdout.split()[-1] == wheel.name.split("-")[1]
