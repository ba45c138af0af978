"""What can be known before a fit is said before it."""

from __future__ import annotations

import os
import subprocess
import sys

import geopandas as gpd
import pytest
import shapely
import small_case

from geobgp.auto import pipeline
from geobgp.cli import commands as map_command
from geobgp.cli.app import main
from geobgp.cli.options import MapOptions, parse_options
from geobgp.errors import DataError
from geobgp.web import overlays


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("case")
    made = small_case.write_files(folder)
    lines = gpd.GeoDataFrame({"name": ["a"]}, geometry=[shapely.LineString([(4, 52), (5, 53)])], crs=4326)
    lines.to_file(folder / "lines.gpkg")
    return made


def arguments(files, out, *more):
    common = ["--cell-size", "2000", "--features", "16", "-q"]
    return ["map", files.points_gpkg, "--land", files.land_gpkg, *common, *more, "-o", str(out)]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--regions", "bare"), "The regions have no coordinate reference system."),
        (("--regions", "lines"), "The regions must be polygons; found LineString."),
        (("--regions", "text"), "text.gpkg cannot be read as a vector file"),
        (("--regions", "land", "--regions-by", "county"), "The regions have no column 'county'"),
        (("--context", "text"), "text.gpkg cannot be read as a vector file"),
        (("--basemap", "Atlantis"), "No basemap is called 'Atlantis'"),
    ],
    ids=lambda v: v[1] if isinstance(v, tuple) else "",
)
def test_no_fit_begins_that_could_not_be_written(more, words, files, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(map_command, "run", lambda *_, **__: pytest.fail("a fit was begun"))
    named = {"bare": files.bare_gpkg, "lines": files.lines_gpkg, "text": files.text_gpkg, "land": files.land_gpkg}
    assert main(arguments(files, tmp_path / "out", *(named.get(word, word) for word in more))) == 1
    assert words in " ".join(capsys.readouterr().err.split())
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_made_is_said_before_the_fit(files, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(map_command, "run", lambda *_, **__: pytest.fail("a fit was begun"))
    (tmp_path / "file").write_text("")
    assert main(arguments(files, tmp_path / "file" / "out")) == 1
    assert "is a file, not a folder" in capsys.readouterr().err


def test_too_many_points_to_show_are_said_before_the_fit(files, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(overlays, "MAX_POINTS", 100)
    monkeypatch.setattr(pipeline.Fits, "fit", lambda *_, **__: pytest.fail("a fit was begun"))
    assert main(arguments(files, tmp_path / "out", "--show-points")) == 1
    assert "points are too many for a web page. Show at most 100 of them." in capsys.readouterr().err


def test_two_covariates_of_one_name_are_refused():
    given = {"points": "p.csv", "land": "l.gpkg", "output": "o", "covariates": (("dem", "a.tif"), ("dem", "b.tif"))}
    with pytest.raises(DataError, match=r"Two rasters are called 'dem': a.tif and b.tif") as caught:
        parse_options(MapOptions, given)
    assert caught.value.option == "covariates"


def test_a_title_that_is_no_utf_8_is_refused(files, tmp_path):
    line = [sys.executable, "-m", "geobgp.cli.app", *arguments(files, tmp_path / "out")]
    done = subprocess.run([*map(os.fsencode, line), b"--title", b"\xff\xfe"], capture_output=True, check=False)
    assert done.returncode == 1
    assert b"--title must be text that can be written as UTF-8" in done.stderr and b"Traceback" not in done.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")  # noqa: PTH110
def test_a_full_standard_output_does_not_hide_that_results_are_there(files, tmp_path):
    line = [sys.executable, "-m", "geobgp.cli.app", "simulate", "--land", files.land_gpkg, "--intensity", "0.5"]
    with open("/dev/full", "w") as full:  # noqa: PTH123
        target = tmp_path / "points.csv"
        done = subprocess.run([*line, "-o", target], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1 and target.exists()
    assert "Standard output cannot be written: the disk is full." in done.stderr
    assert f"The points are in {target} all the same." in done.stderr and "Nothing was written" not in done.stderr
