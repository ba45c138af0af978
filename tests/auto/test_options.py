"""Options are written once: the signature, the docstring, the checks and the record follow from one place."""

import dataclasses
import inspect
import math
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
import shapely
from paths import ROOT
from stubs import MODULES, stub

from geobgp import Matern, map_intensity, map_risk, map_strata, map_tiles
from geobgp.auto.options import AnyStrataOptions, Options, RiskOptions, TilesOptions, settings
from geobgp.errors import CRSError, DataError, GeometryError

LAND = shapely.box(0, 0, 1, 1)


def options(**given):
    return Options(**{"points": np.zeros((1, 2)), "land": LAND, **given})


#: Every function with options, the options it takes, and what it calls some of them.
FUNCTIONS = {
    map_intensity: (Options, {}),
    map_risk: (RiskOptions, {}),
    map_strata: (AnyStrataOptions, {}),
    map_tiles: (TilesOptions, {"output": "out"}),
}


@pytest.mark.parametrize(("function", "taken"), FUNCTIONS.items(), ids=lambda v: getattr(v, "__name__", "-"))
def test_the_signature_and_the_docstring_show_every_option(function, taken):
    kind, renamed = taken
    shown = dict(inspect.signature(function).parameters)
    progress = shown.pop("progress")
    assert progress.default is False and progress.kind is progress.KEYWORD_ONLY
    names = [renamed.get(name, name) for name in settings(kind)]
    assert sorted(shown) == sorted(names)
    for f in dataclasses.fields(kind):
        parameter = shown.get(f.name)
        if parameter is not None and parameter.default is not inspect.Parameter.empty:
            assert (parameter.default, parameter.annotation) == (f.default, f.type), f.name
    doc = inspect.getdoc(function)
    part = doc[doc.index("Parameters") : doc.index("Returns")]
    heads = re.findall(r"^([a-z]\w*(?:, [a-z]\w*)*)(?: : .*)?$", part, re.M)
    described = [name for head in heads for name in head.split(", ")]
    assert sorted(described) == sorted([*names, "progress"])


def test_what_editors_read_is_what_is_called():
    for module in MODULES:
        path = ROOT / f"{module.replace('.', '/')}.pyi"
        assert path.read_text("utf-8") == stub(module), "run python tests/helpers/stubs.py"


def test_an_option_is_one_field_of_a_group(tmp_path):
    """In a copy of the package one more field, with its lines of help, is everywhere: nothing else is changed."""
    copy = tmp_path / "geobgp"
    shutil.copytree(ROOT / "geobgp", copy, ignore=shutil.ignore_patterns("__pycache__", "*.zip"))
    path = copy / "auto" / "options.py"
    text = path.read_text("utf-8")
    text = text.replace(
        "    min_coverage : float\n", "    vertical : float\n        Metres of ascent.\n    min_coverage : float\n", 1
    )
    field = '    vertical: float = setting("Ascent.", "number", default=1.0, least=0.0)\n'
    text = text.replace("    min_coverage: float =", f"{field}    min_coverage: float =", 1)
    path.write_text(text, "utf-8")
    code = """
import inspect, geobgp
from geobgp.cli.app import cli
from geobgp.cli.options import MapOptions, command_line
for function in (geobgp.map_intensity, geobgp.map_risk, geobgp.map_strata, geobgp.map_tiles):
    assert inspect.signature(function).parameters["vertical"].default == 1.0
    assert "vertical : float\\n        Metres of ascent." in function.__doc__
for name in ("map", "risk", "strata", "tiles"):
    assert "--vertical" in {word for p in cli.commands[name].params for word in p.opts}
options = MapOptions(points="p.csv", land="l.gpkg", output="out", vertical=3.0)
assert options.record() == {"vertical": 3.0} and "--vertical 3" in command_line(options)
try:
    MapOptions(points="p.csv", land="l.gpkg", output="out", vertical=-3.0)
except geobgp.DataError as error:
    assert error.option == "vertical"
else:
    raise AssertionError
"""
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_what_has_no_meaning_is_refused_with_the_reason():
    with pytest.raises(DataError, match="exposure has no meaning for cases and controls: the controls are"):
        map_risk(np.zeros((1, 2)), np.ones((1, 2)), LAND, exposure="people.tif")
    with pytest.raises(DataError, match="they are not mapped over time"):
        map_tiles(np.zeros((1, 2)), LAND, "out", cell_size=1.0, time="date")
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'watr'\. Did you mean 'water'\?"):
        Options.of("map_intensity", watr=LAND)
    with pytest.raises(TypeError, match="unexpected keyword argument 'watr'"):
        map_intensity(np.zeros((1, 2)), LAND, watr=LAND)


def test_options_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        options().m = 3


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"m": 0}, "m must be 'auto', 'full' or a number of features of at least 1; found 0."),
        ({"m": "many"}, "found 'many'"),
        ({"m": True}, "found True"),
        ({"m": 2.5}, "found 2.5"),
        ({"m": None}, "found None"),
        ({"boundary": "robin"}, "boundary must be 'neumann' or 'dirichlet'; found 'robin'."),
        ({"boundary": None}, "found None"),
        ({"boundary": "auto"}, "found 'auto'"),
        ({"permeability": 1.5}, "found 1.5"),
        ({"permeability": -0.1}, "found -0.1"),
        ({"permeability": "open"}, "found 'open'"),
        ({"hyper": "mcmc"}, "hyper must be 'map' or 'integrate'; found 'mcmc'."),
        ({"on_water": "swim"}, "on_water must be 'nearest', 'drop' or 'error'; found 'swim'."),
        ({"fill_missing": "zero"}, "fill_missing must be 'mean'; found 'zero'."),
        ({"cache": "no"}, "cache must be True or False; found 'no'."),
        ({"cell_size": -1.0}, "cell_size must be a positive number; found -1.0."),
        ({"cell_size": math.nan}, "found nan"),
        ({"cell_size": math.inf}, "found inf"),
        ({"cell_size": "2 km"}, "found '2 km'"),
        ({"max_snap": -1}, "max_snap must be a number of at least 0; found -1."),
        ({"chunksize": 0}, "chunksize must be a whole number of at least 1; found 0."),
        ({"m": "full", "kernel": Matern(1.5)}, "Full resolution needs Matern"),
    ],
)
def test_values_that_cannot_be_are_refused_with_what_was_found(given, words):
    with pytest.raises(DataError, match=re.escape(words)) as caught:
        options(**given)
    assert caught.value.option in settings()


def test_a_crs_that_nobody_knows_is_refused_before_any_work():
    for name in ("crs", "land_crs", "points_crs"):
        with pytest.raises(CRSError, match=f"{name}='nonsense' is no coordinate reference system"):
            options(**{name: "nonsense"})
    assert options(crs="local").crs == "local"
    with pytest.raises(CRSError):
        options(points_crs="local")


def test_columns_come_in_pairs():
    with pytest.raises(GeometryError, match="name both columns, easting= and northing=, or neither"):
        options(easting="x")
    assert options(longitude="a", latitude="b").given() == {"longitude": "a", "latitude": "b"}


def test_numbers_of_numpy_are_numbers():
    found = options(m=np.int64(12), cell_size=np.float32(0.5), max_snap=np.int32(0))
    assert found.given() == {"m": 12, "cell_size": 0.5, "max_snap": 0}


def test_what_is_given_is_known_and_what_is_usual_is_not():
    assert options().given() == {}
    assert options(cell_size=None, max_seconds=60, title="").given() == {}
    weights = np.ones(1)
    assert options(weights=weights).given()["weights"] is weights


def test_the_record_is_plain_and_has_no_folders(tmp_path):
    found = options(
        points=tmp_path / "bites.csv", water=str(tmp_path / "lakes.gpkg"),
        covariates={"dem": tmp_path / "dem.tif"}, exposure=np.ones(3), kernel=Matern(2.0), cache=False,
    )  # fmt: skip
    assert found.record() == {
        "water": "lakes.gpkg",
        "covariates": {"dem": "dem.tif"},
        "exposure": "a ndarray",
        "kernel": "a Matern",
        "cache": False,
    }
    assert found.files() == {
        "points": str(tmp_path / "bites.csv"),
        "water": str(tmp_path / "lakes.gpkg"),
        "covariate dem": str(tmp_path / "dem.tif"),
    }
    with pytest.raises(GeometryError, match="points: there is no file"):
        found.check_files()


def test_reading_the_options_loads_nothing_heavy():
    code = "import sys, geobgp.auto.options; print({'numpy', 'pyproj', 'click'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
