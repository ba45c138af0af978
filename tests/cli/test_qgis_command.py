"""The Processing script: run by a real QGIS through its registry, cancelled, given mistakes, and installed."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import geopandas as gpd
import pytest
import rasterio
import small_case as case
from paths import HELPERS, ROOT
from system import QGIS_PYTHON, run_qgis

from geobgp import Posterior
from geobgp.cli import commands as qgis_command
from geobgp.cli.app import cli, main
from geobgp.cli.commands import copy_script, script_path

QUICK = "--cell-size 1000 --features 48 --permeability 0"
GROUP = ["Regions", "Shoreline", "Probably more than 2 events per km²", "Intensity, posterior mean"]


def ask(*jobs):
    """Run jobs in QGIS; return an answer for each."""
    return run_qgis(HELPERS / "qgis_script_check.py", script_path(), json.dumps(jobs))["answers"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return case.write_files(tmp_path_factory.mktemp("files"))


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """A Python that knows this geobgp, wherever it is run, and leaves its number behind."""
    program = tmp_path_factory.mktemp("environment") / "bin" / "python"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\necho $$ > "{program.parent}/number"\nPYTHONPATH="{ROOT}" exec "{sys.executable}" "$@"\n'
    )
    program.chmod(0o755)
    return program


def used(folder) -> int:
    return json.loads((Path(folder) / "summary.json").read_text("utf-8"))["points"]["used"]


@pytest.fixture(scope="module")
def made(files, python, tmp_path_factory):
    """In the background, of points in memory, land that is filtered; then a model, of selected points.

    Of those some are deleted but not saved, and the people are a column that QGIS computes.
    """
    folder = tmp_path_factory.mktemp("runs")
    layers = {
        "points": {"path": files.points_gpkg, "memory": True},
        "shore": {"path": files.land_gpkg, "filter": "\"name\" = 'mainland'"},
    }
    asked = {
        "POINTS": "points", "LAND": "shore", "WATER": files.water_gpkg, "REGIONS": files.land_gpkg,
        "THRESHOLDS": "2", "TITLE": "Bites & <b>", "OPTIONS": f"{QUICK} --on-water drop",
        "PYTHON": str(python.parent.parent), "OUTPUT": str(folder / "a"),
    }  # fmt: skip
    picked = {
        "points": {"path": files.points_gpkg, "select": '"deaths" >= 2', "delete": '"deaths" = 3'},
        "homes": {"path": files.land_gpkg, "computed": {"people": "if(name = 'island', 5, 200) * 1000"}},
    }
    step = {
        "POINTS": {"layer": "points"}, "LAND": files.land_gpkg, "OPTIONS": QUICK, "PYTHON": str(python),
        "POPULATION_AREAS": "homes", "POPULATION_FIELD": "people", "UNITS": "per 1,000",
        "LOAD": False, "OUTPUT": str(folder / "b"),
    }  # fmt: skip
    jobs = [
        {"how": "task", "layers": layers, "parameters": asked},
        {"how": "model", "layers": picked, "parameters": step},
    ]
    return folder, ask(*jobs)


@pytest.mark.qgis
@pytest.mark.slow
class TestRuns:
    def test_the_results_are_named_and_there(self, made):
        folder, (answer, model) = made
        assert answer["ok"] and answer["checked"] == [True, ""]
        assert set(answer["results"]) == set(answer["outputs"]) == {
            "OUTPUT", "MEAN", "TOTALS", "PROJECT", "REPORT", "MAP"
        }  # fmt: skip
        for name, path in answer["results"].items():
            assert Path(path.split("|")[0]).exists(), name
        assert model["ok"] and list(model["results"].values()) == [str(folder / "b")]

    def test_what_is_not_a_plain_file_is_exported_as_it_is_shown(self, made, files):
        folder, _ = made
        points = gpd.read_file(files.points_gpkg)
        mainland = gpd.read_file(files.land_gpkg).query("name == 'mainland'").union_all()
        assert used(folder / "a") == points.within(mainland).sum() < len(points)
        assert used(folder / "b") == (points["deaths"] == 2).sum()
        posterior = Posterior.load(folder / "b" / "posterior.geobgp")
        assert posterior.exposure.sum() == pytest.approx(205_000, rel=1e-3)
        with rasterio.open(folder / "b" / "mean.tif") as src:
            assert "per 1,000" in src.units[0]
        with rasterio.open(folder / "a" / "mean.tif") as src:
            assert src.bounds.right < case.WEST + 26_000  # no island

    def test_the_layers_are_a_group_of_the_project(self, made):
        _, (answer, model) = made
        assert list(answer["tree"]) == ["Bites & <b>"] and answer["valid"]
        names = [name for name, _ in answer["tree"]["Bites & <b>"]]
        assert names[:4] == GROUP and len(names) == len(set(names)) == 10
        assert [name for name, visible in answer["tree"]["Bites & <b>"] if visible] == [*GROUP[:2], GROUP[3]]
        assert sorted(answer["loose"]) == ["points", "shore"]  # what was there, and no second mean
        assert model["tree"] == {}

    def test_progress_is_told_and_never_goes_back(self, made):
        for answer in made[1]:
            percents = answer["percents"]
            assert percents == sorted(percents) and percents[0] < 10 and len(percents) > 8 and percents[-1] >= 94
            told = [text for kind, text in answer["told"] if kind == "info"]
            assert any(text.startswith("fit: ") and "features" in text for text in told)

    def test_nothing_is_left_over_and_python_is_remembered(self, made, python):
        folder, (answer, _) = made
        assert sorted(p.name for p in folder.iterdir()) == ["a", "b"]
        command = next(text for kind, text in answer["told"] if kind == "command")
        scratch = Path(next(word for word in command.split() if word.endswith("points.gpkg"))).parent
        assert scratch.name.startswith("geobgp-qgis-") and not scratch.exists()
        assert answer["remembered"] == str(python)


@pytest.mark.qgis
@pytest.mark.slow
def test_cancelled_mistaken_and_refused(files, python, tmp_path):
    """Each in turn says what is wrong, and writes nothing."""
    good = {
        "POINTS": files.points_gpkg, "LAND": files.land_gpkg, "OPTIONS": QUICK, "PYTHON": str(python),
        "OUTPUT": str(tmp_path / "out"),
    }  # fmt: skip
    full = tmp_path / "full"
    full.mkdir()
    (full / "mine.txt").write_text("mine")

    def job(how="run", drop=(), **more):
        cancel = more.pop("cancel_at", None)
        kept = {k: v for k, v in (good | more).items() if k not in drop}
        return {"how": how, "cancel_at": cancel, "parameters": kept}

    answers = ask(
        job(cancel_at="features"),
        job(POINTS=files.abroad_gpkg),
        job(OUTPUT=str(full)),
        job(OPTIONS="--no-such-thing"),
        job(THRESHOLDS="0,3"),
        job(PYTHON=str(tmp_path / "nowhere")),
        job(PYTHON=QGIS_PYTHON),
        job("check", drop=["POINTS"]),
        job("check", drop=["POINTS"], AREAS=files.land_gpkg),
        job("check", POPULATION_AREAS=files.land_gpkg),
    )
    cancelled, abroad, taken, option, comma, nowhere, bare, *checked = answers
    assert (
        cancelled["results"] == {}
        and ["info", "Cancelled: geobgp is stopped, nothing is written."] in (cancelled["told"])
    )
    assert not any(text.startswith("rasters") for _, text in cancelled["told"])
    with pytest.raises(ProcessLookupError):
        os.kill(int((python.parent / "number").read_text()), 0)
    assert abroad["error"].startswith("geobgp: ") and "off the land" in abroad["error"]
    assert "Traceback" not in abroad["error"]
    assert "exists and is not empty (mine.txt)" in taken["error"] and "--force" in taken["error"]
    assert "No such option" in option["error"]
    assert "0,3" in comma["error"] and "decimals with a point" in comma["error"]
    assert "cannot be run as Python" in nowhere["error"] and "pip install geobgp" in nowhere["error"]
    assert "No module named 'geobgp'" in bare["error"]
    assert [answer["checked"][1] for answer in checked] == [
        "Give points, or areas with a number of events each.",
        "Areas need the field with the number of events, and such a field its areas.",
        "People per area need the field with their number.",
    ]
    assert not any(answer["tree"] for answer in answers)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["full"]
    assert [p.name for p in full.iterdir()] == ["mine.txt"]


# -- where it is, and how it gets into QGIS


def test_the_shell_says_where_the_script_is(capfd):
    assert main(["qgis-script"]) == 0
    path = Path(capfd.readouterr().out.strip())
    assert path == script_path() and path.name == "geobgp_map.py" and path.exists()


def test_the_script_knows_no_option_that_the_shell_does_not():
    written = set(re.findall(r'"(--[a-z-]+)"', script_path().read_text("utf-8")))
    known = {opt for param in cli.commands["map"].params for opt in param.opts}
    assert {"--land", "--progress", "--exposure-column"} <= written <= known


def test_a_copy_knows_this_python(tmp_path, capfd):
    assert main(["qgis-script", "--copy-to", str(tmp_path / "new")]) == 0
    made = tmp_path / "new" / "geobgp_map.py"
    assert str(made) in capfd.readouterr().out
    assert f"INSTALLED_BY = {sys.executable!r}\n" in made.read_text("utf-8")
    assert 'INSTALLED_BY = ""\n' in script_path().read_text("utf-8")
    assert copy_script(tmp_path / "new") == made  # again, over the old one


def test_it_is_installed_into_a_profile_that_is_there(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(qgis_command, "_profiles", lambda: [tmp_path / "profiles"])
    assert main(["qgis-script", "--install"]) == 1
    told = capfd.readouterr().err
    assert "no profile 'default'" in told and "--copy-to" in told
    (tmp_path / "profiles" / "work").mkdir(parents=True)
    assert main(["qgis-script", "--install"]) == 1
    assert "there are work." in capfd.readouterr().err
    assert main(["qgis-script", "--install", "--profile", "work"]) == 0
    assert (tmp_path / "profiles" / "work" / "processing" / "scripts" / "geobgp_map.py").exists()
    assert "Restart QGIS" in capfd.readouterr().out


@pytest.mark.parametrize("system", ["linux", "darwin", "win32"])
def test_every_system_keeps_profiles_somewhere(monkeypatch, tmp_path, system):
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setenv("APPDATA", str(tmp_path))
    places = qgis_command._profiles()
    assert all(place.parts[-3:-1] in (("QGIS", "QGIS3"), ("QGIS", "QGIS4")) for place in places)
    assert system != "win32" or places[0].is_relative_to(tmp_path)
