"""Options are written once: the signature, the docstring, the checks and the record follow from one place."""

import dataclasses
import inspect
import math
import re
import subprocess
import sys

import numpy as np
import pytest
import shapely
from paths import ROOT

from geobgp import Matern, map_intensity
from geobgp.auto.options import Options, settings
from geobgp.errors import CRSError, DataError, GeometryError

LAND = shapely.box(0, 0, 1, 1)


def options(**given):
    return Options(**{"points": np.zeros((1, 2)), "land": LAND, **given})


def test_the_signature_shows_every_option_with_its_default():
    shown = dict(inspect.signature(map_intensity).parameters)
    progress = shown.pop("progress")
    assert progress.default is False and progress.kind is progress.KEYWORD_ONLY
    fields = dataclasses.fields(Options)
    assert list(shown) == [f.name for f in fields]
    for f in fields:
        default = inspect.Parameter.empty if f.default is dataclasses.MISSING else f.default
        assert (shown[f.name].default, shown[f.name].annotation) == (default, f.type), f.name
    positional = [name for name, p in shown.items() if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert positional == ["points", "land"]


def test_the_docstring_tells_of_every_option():
    doc = inspect.getdoc(map_intensity)
    part = doc[doc.index("Parameters") : doc.index("Returns")]
    heads = re.findall(r"^([a-z]\w*(?:, [a-z]\w*)*)(?: : .*)?$", part, re.M)
    told = [name for head in heads for name in head.split(", ")]
    assert sorted(told) == sorted([*settings(), "progress"])


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
        ({"boundary": "auto"}, "boundary='auto' is no longer there"),
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
