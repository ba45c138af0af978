"""The plugin for QGIS: written and installed; run by a real QGIS in its registry, its shell and its window."""

from __future__ import annotations

import ast
import configparser
import importlib
import importlib.util
import json
import os
import re
import shutil
import sys
import time
import xml.etree.ElementTree as ET
from pathlib import Path
from zipfile import ZipFile

import click
import geopandas as gpd
import numpy as np
import pytest
import rasterio
import small_case as case
from affine import Affine
from paths import HELPERS, ROOT
from system import QGIS_PYTHON, qgis_desktop, qgis_process, run_qgis

import geobgp
from geobgp import Posterior
from geobgp.auto.options import settings
from geobgp.cli import plugin as writer
from geobgp.cli.app import cli, main
from geobgp.cli.plugin import COMMANDS, describe, write_plugin

QUICK = {"CELL_SIZE": 1000.0, "FEATURES": "48", "PERMEABILITY": "0", "NO_CHECKS": True}
SOURCES = sorted((ROOT / "geobgp" / "qgis").glob("*.py"))


@pytest.fixture(scope="module")
def plugins(tmp_path_factory):
    """A folder of plugins with ours, as QGIS unpacks it."""
    folder = tmp_path_factory.mktemp("plugins")
    with ZipFile(write_plugin(tmp_path_factory.mktemp("zip") / "geobgp-qgis.zip")) as archive:
        archive.extractall(folder)
    return folder


@pytest.fixture(scope="module")
def parts(plugins):
    """What of the plugin needs no QGIS: its modules `program` and `environment`."""
    place = plugins / "geobgp" / "__init__.py"
    spec = importlib.util.spec_from_file_location(
        "plugin_for_qgis", place, submodule_search_locations=[str(place.parent)]
    )
    sys.modules["plugin_for_qgis"] = package = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(package)
    yield {name: importlib.import_module(f"plugin_for_qgis.{name}") for name in ("program", "environment")}
    for name in [name for name in sys.modules if name.split(".")[0] == "plugin_for_qgis"]:
        del sys.modules[name]


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


def ask(plugins, tmp_path, *jobs):
    """Run jobs in QGIS; return an answer for each."""
    (tmp_path / "jobs.json").write_text(json.dumps(jobs))
    said = run_qgis(HELPERS / "qgis_plugin_check.py", plugins, tmp_path / "jobs.json")
    assert sorted(said["algorithms"]) == sorted(COMMANDS) and said["unloaded"]
    return said["answers"]


def used(folder) -> int:
    return json.loads((Path(folder) / "summary.json").read_text("utf-8"))["points"]["used"]


# -- what is written


def test_the_zip_is_what_the_plugin_manager_takes(tmp_path, capfd):
    path = tmp_path / "new" / "geobgp-qgis.zip"
    assert main(["qgis-plugin", "-o", str(path)]) == 0
    assert "Install from ZIP" in capfd.readouterr().out
    with ZipFile(path) as archive:
        names = archive.namelist()
        assert {name.split("/")[0] for name in names} == {"geobgp"}
        assert {"geobgp/__init__.py", "geobgp/LICENSE", "geobgp/metadata.txt", "geobgp/options.json"} < set(names)
        text = archive.read("geobgp/metadata.txt").decode()
        assert archive.read("geobgp/LICENSE") == (ROOT / "LICENSE").read_bytes()
        assert sys.executable not in b"".join(archive.read(name) for name in names).decode()
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_string(text)
    about = parser["general"]
    assert (about["qgisMinimumVersion"], about["qgisMaximumVersion"]) == ("3.22", "4.99")
    assert about["version"] == geobgp.__version__ and about["hasProcessingProvider"] == "yes"
    assert f"geobgp/{about['icon']}" in names
    for name in ("name", "description", "about", "author", "email", "tracker", "repository", "homepage"):
        assert about[name].strip(), name
    assert all(about[name].startswith("https://") for name in ("tracker", "repository", "homepage"))
    assert path.read_bytes() == write_plugin(tmp_path / "again.zip").read_bytes()


def test_nothing_is_replaced_unasked(tmp_path, capfd):
    path = tmp_path / "mine.zip"
    path.write_text("mine")
    assert main(["qgis-plugin", "-o", str(path)]) == 1
    assert "--force" in capfd.readouterr().err and path.read_text() == "mine"
    assert main(["qgis-plugin", "-o", str(path), "--force"]) == 0
    assert main(["qgis-plugin"]) == 2
    assert "-o geobgp-qgis.zip" in capfd.readouterr().err


def test_it_is_installed_into_a_profile_that_is_there(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(writer, "_profiles", lambda: [tmp_path / "profiles"])
    assert main(["qgis-plugin", "--install"]) == 1
    told = capfd.readouterr().err
    assert "no profile 'default'" in told and "Install from ZIP" in told
    (tmp_path / "profiles" / "work").mkdir(parents=True)
    assert main(["qgis-plugin", "--install"]) == 1
    assert "there are work." in capfd.readouterr().err
    made = tmp_path / "profiles" / "work" / "python" / "plugins" / "geobgp"
    for _ in range(2):  # again, over the old one
        assert main(["qgis-plugin", "--install", "--profile", "work"]) == 0
        assert "Restart QGIS" in capfd.readouterr().out
    assert json.loads((made / "options.json").read_text("utf-8"))["installed_by"] == sys.executable
    (made / "options.json").unlink()
    assert main(["qgis-plugin", "--install", "--profile", "work"]) == 1
    assert "another plugin" in capfd.readouterr().err


@pytest.mark.parametrize("system", ["linux", "darwin", "win32"])
def test_every_system_keeps_profiles_somewhere(monkeypatch, tmp_path, system):
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setenv("APPDATA", str(tmp_path))
    places = writer._profiles()
    assert all(place.parts[-3:-1] in (("QGIS", "QGIS3"), ("QGIS", "QGIS4")) for place in places)
    assert system != "win32" or places[0].is_relative_to(tmp_path)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_of_the_shell_is_there_once(name):
    command = next(one for one in describe()["commands"] if one["name"] == name)
    known = settings(COMMANDS[name])
    shell = {str(p.name): p for p in cli.commands[name].params if str(p.name) in known and not getattr(p, "hidden", 0)}
    flags = [one["flag"] for one in command["parameters"] if one["flag"]]
    assert len(flags) == len(set(flags)) and len({one["name"] for one in command["parameters"]}) == len(shell)
    for option in (p for p in shell.values() if isinstance(p, click.Option)):
        assert set(option.opts) & set(flags), option.opts
    by_name = {one["name"]: one for one in command["parameters"]}
    assert command["parameters"][-1]["name"] == "OUTPUT"
    for one in by_name.values():
        assert one["label"] and one["help"] and len(one["label"]) < 90
        assert not one["of"] or by_name[one["of"]]["kind"] in ("file", "files"), one
        assert (one["kind"] == "choice") == bool(one["choices"])
    for one in by_name.values():  # what names a column of a layer cannot be asked for where that layer need not be
        assert not (one["required"] and one["of"]) or by_name[one["of"]]["required"], one
    assert by_name["LAND"]["required"] and by_name["LAND"]["shape"] == "polygon"
    assert not re.search(r"--[a-z]|OUT/", command["help"])


# -- what runs within QGIS, seen from outside


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: p.name)
def test_enums_are_scoped_and_nothing_is_imported_that_reviewers_refuse(path):
    """PyQt 6 knows `QgsProcessing.SourceType.TypeVectorPoint` alone, PyQt 5 that and the short form."""
    tree = ast.parse(path.read_text("utf-8"))
    scopes = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    scopes |= {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}  # classes
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id.startswith("Q"):
            assert not node.attr[0].isupper() or id(node) in scopes, ast.unparse(node)
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        assert not {name.split(".")[0] for name in names} & {"subprocess", "PyQt5", "PyQt6", "pickle", "xml", "imp"}
        assert not isinstance(node, ast.Assert)
    assert "exec_(" not in path.read_text("utf-8")


def test_the_environment_has_nothing_of_qgis(parts):
    clean = parts["program"].clean
    windows = {
        "Path": r"C:\OSGeo4W\bin;C:\PROGRA~1\QGIS33~1.4\apps\qgis-ltr\bin;C:\Program Files\QGIS 3.34\apps\Qt5\bin;"
        r"D:\gis\apps\Python312\Scripts;C:\Windows\system32;C:\Users\ann\Miniconda3",
        "OSGEO4W_ROOT": r"D:\gis", "PYTHONHOME": r"D:\gis\apps\Python312", "GDAL_DATA": r"D:\gis\share\gdal",
        "PROJ_LIB": r"D:\gis\share\proj", "QT_PLUGIN_PATH": "x", "QGIS_PREFIX_PATH": "x", "O4W_QT_PREFIX": "x",
        "SSL_CERT_FILE": r"D:\gis\bin\curl-ca-bundle.crt", "USERPROFILE": r"C:\Users\ann", "HTTPS_PROXY": "http://p:1",
        "SYSTEMROOT": r"C:\Windows",
    }  # fmt: skip
    assert clean(windows, windows=True) == {
        "Path": r"C:\Windows\system32;C:\Users\ann\Miniconda3", "USERPROFILE": r"C:\Users\ann",
        "HTTPS_PROXY": "http://p:1", "SYSTEMROOT": r"C:\Windows", "PYTHONIOENCODING": "utf-8", "PYTHONUNBUFFERED": "1",
    }  # fmt: skip
    mac = {
        "PATH": "/Applications/QGIS-LTR.app/Contents/MacOS/bin:/usr/bin:/opt/homebrew/bin", "HOME": "/Users/ann",
        "PROJ_DATA": "/Applications/QGIS.app/x", "MY_DATA": "/Applications/QGIS.app/Contents/x", "LANG": "de_DE.UTF-8",
        "DYLD_LIBRARY_PATH": "x", "PYTHONPATH": "x", "VIRTUAL_ENV": "x", "LD_LIBRARY_PATH": "x",
    }  # fmt: skip
    kept = clean(mac, windows=False)
    assert kept["PATH"] == "/usr/bin:/opt/homebrew/bin" and set(kept) == {
        "PATH", "HOME", "LANG", "PYTHONIOENCODING", "PYTHONUNBUFFERED"
    }  # fmt: skip


def test_a_program_is_heard_line_by_line_and_has_a_clean_environment(parts, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    monkeypatch.setenv("PROJ_DATA", "/nowhere")
    lines = []
    code = (
        "import os, sys; print('é', 'x' * 9_000_000); print(sorted(os.environ)); print('w', file=sys.stderr); exit(3)"
    )
    assert parts["program"].run([sys.executable, "-c", code], lines.append) == 3
    assert lines[0] == "é " + "x" * 9_000_000 and lines[2] == "w"
    assert "PYTHONPATH" not in lines[1] and "PROJ_DATA" not in lines[1] and "PYTHONIOENCODING" in lines[1]
    with pytest.raises(FileNotFoundError):
        parts["program"].run(["/no/such/program"])


@pytest.mark.parametrize("how", ["canceled", "seconds"])
def test_what_is_cancelled_or_too_long_ends_with_all_that_it_started(parts, how):
    lines = []
    code = (
        "import subprocess, sys, time; child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])"
        "; print(child.pid); time.sleep(600)"
    )
    run, begin = parts["program"].run, time.monotonic()
    if how == "canceled":
        assert run([sys.executable, "-c", code], lines.append, lambda: bool(lines)) != 0
    else:
        with pytest.raises(TimeoutError, match="within 3 s"):
            run([sys.executable, "-c", code], lines.append, seconds=3)
    assert time.monotonic() - begin < 120
    for _ in range(100):  # a child of a process that has gone waits for init
        state = Path(f"/proc/{lines[0]}/stat")
        if not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z":
            break
        time.sleep(0.1)
    else:
        pytest.fail("the child is still there")


def test_a_python_without_geobgp_is_refused_with_the_remedy(parts, python):
    there = parts["environment"]
    assert there.version_of(str(python.parent.parent)) == (str(python), geobgp.__version__)
    for text, words in (("", "none is named"), ("/no/such/python", "cannot be run"), ("/bin/false", "has no geobgp")):
        with pytest.raises(there.PythonError, match=words) as told:
            there.version_of(text)
        assert "Set up geobgp" in str(told.value)
    assert there.mismatch(geobgp.__version__) == ""
    assert "geobgp qgis-plugin" in there.mismatch("99.0")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel that is called geobgp and has nothing but a version."""
    path = tmp_path_factory.mktemp("wheel") / "geobgp-9.9-py3-none-any.whl"
    info = "geobgp-9.9.dist-info"
    with ZipFile(path, "w") as archive:
        archive.writestr("geobgp/__init__.py", "__version__ = '9.9'\n")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: geobgp\nVersion: 9.9\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return path


class TestSetUp:
    def set_up(self, parts, folder, **how):
        lines, percents = [], []
        work = parts["environment"].SetUp(folder, tell=lines.append, progress=percents.append, **how)
        return work, lines, percents

    def test_an_environment_is_made_and_the_one_before_goes(self, parts, wheel, tmp_path):
        (tmp_path / "envs" / "env-old").mkdir(parents=True)
        work, lines, percents = self.set_up(parts, tmp_path / "envs", requirement=str(wheel), base=sys.executable)
        made = work.run()
        assert parts["environment"].version_of(made) == (made, "9.9")
        assert [p.name for p in (tmp_path / "envs").iterdir()] == [Path(made).parts[-3]] != ["env-old"]
        assert percents == sorted(percents) and percents[-1] == 100 and len(percents) > 4
        assert "virtual environment" in lines[0] and "9.9 is ready" in lines[-1]

    def test_what_fails_says_what_to_do_and_leaves_the_one_before(self, parts, tmp_path):
        before = tmp_path / "envs" / "env-old"
        before.mkdir(parents=True)
        for how, words in (
            ({"requirement": str(tmp_path / "none.whl"), "base": sys.executable}, "path of a wheel"),
            ({"base": "/no/such/python"}, "cannot be run as Python.*Install Python 3"),
            ({"base": "/bin/true"}, "Install Python 3"),
        ):
            with pytest.raises(parts["environment"].PythonError, match=words):
                self.set_up(parts, tmp_path / "envs", **how)[0].run()
            assert list((tmp_path / "envs").iterdir()) == [before]

    def test_it_is_cancelled(self, parts, wheel, tmp_path):
        lines = []
        work, lines, _ = self.set_up(
            parts, tmp_path / "envs", requirement=str(wheel), base=sys.executable, canceled=lambda: bool(lines)
        )
        assert work.run() is None
        assert lines[-1] == "Cancelled: nothing has changed." and list((tmp_path / "envs").iterdir()) == []

    def test_causes_are_known(self, parts):
        cause = parts["environment"]._cause
        assert "python3-venv" in cause(["The virtual environment was not created: ensurepip is not available"], "")
        assert "HTTPS_PROXY" in cause(["WARNING: Retrying (Retry(total=0", "ERROR: No matching distribution"], "")
        assert "free some space" in cause(["ERROR: Could not install: [Errno 28] No space left on device"], "")
        assert cause(["ERROR: something else."], "Look above.") == "ERROR: something else. Look above."
        assert cause([], "Look.") == "It printed nothing. Look."

    def test_an_old_python_is_refused(self, parts, monkeypatch):
        monkeypatch.setitem(parts["environment"].ABOUT, "python", "3.99")
        with pytest.raises(parts["environment"].PythonError, match=r"geobgp needs 3\.99.*Install Python 3\.99"):
            parts["environment"].check_base(sys.executable)


# -- in QGIS


@pytest.fixture(scope="module")
def made(plugins, files, python, tmp_path_factory):
    """In the background, of points in memory, land that is filtered; then a model, of selected points.

    Of those some are deleted but not saved, and the people are a column that QGIS computes.
    """
    folder = tmp_path_factory.mktemp("runs")
    layers = {
        "points": {"path": files.points_gpkg, "memory": True},
        "shore": {"path": files.land_gpkg, "filter": "\"name\" = 'mainland'"},
    }
    asked = QUICK | {
        "POINTS": "points", "LAND": "shore", "WATER": files.water_gpkg, "REGIONS": files.land_gpkg,
        "THRESHOLD": "2", "TITLE": "Bites & <b>", "ON_WATER": "drop", "OUTPUT": str(folder / "a"),
    }  # fmt: skip
    picked = {
        "points": {"path": files.points_gpkg, "select": '"deaths" >= 2', "delete": '"deaths" = 3'},
        "homes": {"path": files.land_gpkg, "computed": {"people": "if(name = 'island', 5, 200) * 1000"}},
    }
    step = QUICK | {
        "POINTS": {"layer": "points"}, "LAND": files.land_gpkg, "EXPOSURE": ["homes"], "EXPOSURE_COLUMN": "people",
        "UNITS": "per 1,000", "LOAD": False, "OUTPUT": str(folder / "b"),
    }  # fmt: skip
    variables = {"GEOBGP_PYTHON": str(python.parent.parent)}
    jobs = [
        {"how": "task", "algorithm": "map", "layers": layers, "parameters": asked, "variables": variables},
        {"how": "model", "algorithm": "map", "layers": picked, "parameters": step},
    ]
    return folder, ask(plugins, folder.parent, *jobs)


@pytest.mark.qgis
@pytest.mark.slow
class TestRuns:
    def test_the_results_are_named_and_there(self, made):
        folder, (answer, model) = made
        assert answer["ok"] and answer["checked"] == [True, ""]
        assert set(answer["results"]) == set(answer["outputs"]) == {
            "OUTPUT", "RASTER", "TOTALS", "PROJECT", "REPORT", "PAGE"
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

    def test_the_layers_are_a_styled_group_of_the_project(self, made):
        folder, (answer, model) = made
        assert list(answer["tree"]) == ["Bites & <b>"] and answer["valid"] and answer["grey"] == []
        with ZipFile(folder / "a" / "map.qgz") as archive:
            tree = ET.fromstring(archive.read("map.qgs")).find("layer-tree-group/layer-tree-group")
        layers = [[node.get("name"), node.get("checked") == "Qt::Checked"] for node in tree.findall("layer-tree-layer")]
        assert answer["tree"]["Bites & <b>"] == layers and len(layers) > 8
        assert ["Intensity, posterior mean", True] in layers
        assert sorted(answer["loose"]) == ["points", "shore"]  # what was there, and no second mean
        assert model["tree"] == {}

    def test_progress_is_told_and_never_goes_back(self, made):
        for answer in made[1]:
            percents = answer["percents"]
            assert percents == sorted(percents) and percents[0] < 10 and len(percents) > 8 and percents[-1] >= 94
            told = [text for kind, text in answer["told"] if kind == "info"]
            assert any(text.startswith("fit: ") and "features" in text for text in told)

    def test_nothing_is_left_over(self, made):
        folder, (answer, _) = made
        assert sorted(p.name for p in folder.iterdir()) == ["a", "b"]
        command = next(text for kind, text in answer["told"] if kind == "command")
        scratch = Path(next(word for word in command.split() if word.endswith("points.gpkg"))).parent
        assert scratch.name.startswith("geobgp-qgis-") and not scratch.exists()


@pytest.mark.qgis
@pytest.mark.slow
def test_every_other_algorithm_makes_its_map(plugins, files, python, tmp_path):
    """On points with columns for each; layers with their styles come back."""
    points = gpd.read_file(files.points_gpkg).iloc[:300]
    rng = np.random.default_rng(1)
    points["lead"] = np.exp(rng.normal(1.0, 0.3, len(points)))
    points["tested"] = 20
    points["positive"] = rng.binomial(20, 0.3, len(points))
    points["kind"] = np.where(rng.random(len(points)) < 0.5, "tick bite", "wasp")
    points["ill"] = (np.arange(len(points)) % 2).astype(int)
    points.to_file(tmp_path / "all.gpkg")
    points[points["ill"] == 1].to_file(tmp_path / "cases.gpkg")
    points[points["ill"] == 0].to_file(tmp_path / "controls.gpkg")
    with rasterio.open(
        tmp_path / "height.tif", "w", driver="GTiff", width=40, height=20, count=1, dtype="float32", crs=case.CRS,
        transform=Affine(1000.0, 0.0, case.WEST - 5000.0, 0.0, -1000.0, case.SOUTH + 18_000.0),
    ) as out:  # fmt: skip
        out.write(np.add.outer(np.arange(20.0), np.arange(40.0)).astype("float32"), 1)
    both, land = str(tmp_path / "all.gpkg"), {"LAND": files.land_gpkg} | QUICK
    jobs = {
        "risk": land | {"CASES": str(tmp_path / "cases.gpkg"), "CONTROLS": str(tmp_path / "controls.gpkg")},
        "values": land | {"SAMPLES": both, "VALUE": "lead", "UNITS": "µg/g", "INTERVAL": 0.95, "COVARIATE": ["height"]},
        "prevalence": land | {"SURVEYS": both, "POSITIVE": "positive", "TESTED": "tested", "TITLE": "Antibodies"},
        "strata": land | {"POINTS": both, "BY": ["kind"]},
        "tiles": {"POINTS": both, "LAND": files.land_gpkg, "CELL_SIZE": 1000.0, "JOBS": 1},
    }
    layers = {"height": {"path": str(tmp_path / "height.tif")}}
    variables = {"GEOBGP_PYTHON": str(python)}
    told = ask(plugins, tmp_path, *(
        {"how": "run", "algorithm": name, "layers": layers, "variables": variables,
         "parameters": parameters | {"OUTPUT": str(tmp_path / name)}}
        for name, parameters in jobs.items()
    ))  # fmt: skip
    answers = dict(zip(jobs, told, strict=True))
    for name, answer in answers.items():
        assert answer["ok"], answer["error"]
        assert answer["results"]["RASTER"].endswith(".tif") and Path(answer["results"]["RASTER"]).exists()
        assert answer["valid"] and set(answer["grey"]) <= {"height"}, name
        assert set(answer["results"]) <= set(answer["outputs"])
    assert (tmp_path / "values" / "q025.tif").exists()
    command = next(text for kind, text in answers["values"]["told"] if kind == "command")
    assert "--covariate height=" in command and "--interval 0.95" in command
    assert list(answers["prevalence"]["tree"]) == ["Antibodies"]
    assert {"tick bite", "wasp"} <= set(answers["strata"]["groups"])
    assert answers["tiles"]["tree"] == {} and sorted(answers["tiles"]["loose"]) == ["height", "mosaic"]


@pytest.mark.qgis
@pytest.mark.slow
def test_cancelled_mistaken_and_refused(plugins, files, python, tmp_path):
    """Each in turn says what is wrong, and writes nothing."""
    good = QUICK | {"POINTS": files.points_gpkg, "LAND": files.land_gpkg, "OUTPUT": str(tmp_path / "out")}
    full = tmp_path / "full"
    full.mkdir()
    (full / "mine.txt").write_text("mine")

    def job(how="run", drop=(), algorithm="map", program=python, **more):
        cancel, layers = more.pop("cancel_at", None), more.pop("layers", {})
        kept = {k: v for k, v in (good | more).items() if k not in drop}
        variables = {"GEOBGP_PYTHON": str(program)}
        return {
            "how": how, "algorithm": algorithm, "cancel_at": cancel, "layers": layers, "parameters": kept,
            "variables": variables,
        }  # fmt: skip

    (tmp_path / "work").mkdir()
    answers = ask(
        plugins,
        tmp_path / "work",
        job(cancel_at="features"),
        job(POINTS=files.abroad_gpkg),
        job(OUTPUT=str(full)),
        job(MORE="--no-such-thing"),
        job(THRESHOLD="0,3"),
        job(COVARIATE_TERMS="rain|smooth"),
        job(EXPOSURE=["/no/such/file.tif"]),
        job(drop=["POINTS"]),
        job(layers={"zones": {"path": files.land_gpkg}}, PLACES="zones", KEY="nokey"),
        job(program=tmp_path / "nowhere"),
        job(program=QGIS_PYTHON),
        job("check", algorithm="strata", drop=["POINTS"], CONTROLS=files.points_gpkg, BY=["deaths"]),
    )
    cancelled, abroad, taken, option, comma, term, lost, empty, zones, nowhere, bare, gap = answers
    assert cancelled["results"] == {}
    assert ["info", "Cancelled: geobgp is stopped, nothing is written."] in cancelled["told"]
    assert not any(text.startswith("rasters") for _, text in cancelled["told"])
    with pytest.raises(ProcessLookupError):
        os.kill(int((python.parent / "number").read_text()), 0)
    assert abroad["error"].startswith("geobgp: ") and "off the land" in abroad["error"]
    assert "Traceback" not in abroad["error"]
    assert "exists and is not empty (mine.txt)" in taken["error"]
    assert "'Replace what an earlier run wrote'" in taken["error"] and "--force" not in taken["error"]
    assert "No such option" in option["error"]
    assert "0,3" in comma["error"] and "decimals with a point" in comma["error"]
    assert "no layer of this name" in term["error"]
    assert "cannot be opened" in lost["error"]
    assert "'Polygons with a number of events each" in empty["error"]
    assert "nokey" in zones["error"] and "voronoi" not in zones["error"], zones["error"]
    assert f"--places {files.land_gpkg}" in next(text for kind, text in zones["told"] if kind == "command")
    assert "cannot be run as Python" in nowhere["error"] and "Set up geobgp" in nowhere["error"]
    assert "No module named 'geobgp'" in bare["error"] and "Set up geobgp" in bare["error"]
    assert gap["checked"] == [False, "'Controls: some who did not' needs 'The points'."]
    assert not any(answer["tree"] for answer in answers)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["full", "work"]
    assert [p.name for p in full.iterdir()] == ["mine.txt"]


@pytest.mark.qgis
@pytest.mark.slow
def test_the_task_sets_up_and_is_cancelled(plugins, wheel, tmp_path):
    how = {"how": "setup", "requirement": str(wheel), "base": sys.executable, "folder": str(tmp_path / "envs")}
    cancel, fail = how | {"cancel_at": "virtual environment"}, how | {"base": "/no/such/python"}
    ready, cancelled, failed = ask(plugins, tmp_path, how, cancel, fail)
    assert ready["ok"] and ready["words"] == "geobgp is ready." and Path(ready["python"]).exists()
    assert ready["percents"] == sorted(ready["percents"]) and len(ready["percents"]) > 3
    assert not cancelled["ok"]
    assert not failed["ok"] and "cannot be run as Python" in failed["words"]
    assert cancelled["python"] == failed["python"] == ready["python"]
    assert [p.name for p in (tmp_path / "envs").iterdir()] == [Path(ready["python"]).parts[-3]]


@pytest.fixture
def home(plugins, tmp_path):
    """The home of somebody who has installed the plugin."""
    place = tmp_path / "home" / ".local/share/QGIS/QGIS3/profiles/default/python/plugins"
    shutil.copytree(plugins, place)
    (tmp_path / "home").chmod(0o700)
    return tmp_path / "home"


@pytest.mark.qgis
@pytest.mark.slow
def test_qgis_process_enables_lists_and_runs_it(home, files, python, tmp_path):
    assert "Enabled geobgp" in qgis_process(home, "plugins", "enable", "geobgp")
    told = qgis_process(home, "list")
    assert all(f"geobgp:{name}\t" in told for name in COMMANDS)
    assert "Side of a cell in metres" in qgis_process(home, "help", "geobgp:map")
    words = [f"POINTS={files.points_gpkg}", f"LAND={files.land_gpkg}", f"OUTPUT={tmp_path / 'out'}", "CELL_SIZE=1000",
             "FEATURES=48", "PERMEABILITY=0", "NO_CHECKS=true"]  # fmt: skip
    told = qgis_process(home, "run", "geobgp:map", "--", *words, GEOBGP_PYTHON=str(python))
    assert f"RASTER:\t{tmp_path / 'out' / 'mean.tif'}" in told, told
    assert (tmp_path / "out" / "map.qgz").exists()


@pytest.mark.qgis
@pytest.mark.slow
def test_it_loads_in_the_window_and_shows_its_dialogs(home, files, tmp_path):
    assert "Enabled geobgp" in qgis_process(home, "plugins", "enable", "geobgp")
    said = qgis_desktop(home, HELPERS / "qgis_desktop_check.py", tmp_path, files.points_gpkg, files.land_gpkg)
    assert said["error"] is None, said["error"]
    assert said["menu"] == ["Set up geobgp…"] and said["notes"] == ["geobgp"]
    assert said["given"]["POINTS"].startswith("Cases") and said["given"]["LAND"].startswith("Shore")
    assert min(said["colours"]) > 8
    assert said["shown"] == [True, False] and said["locked"] and said["unlocked"] and not said["left"]
    assert "/no/such/python cannot be run as Python" in said["refused"]
