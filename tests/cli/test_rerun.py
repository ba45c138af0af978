"""A run again: the same rasters bit by bit, wherever the inputs are now; what has changed is said."""

import json
import shutil

import geopandas as gpd
import numpy as np
import pytest
import rasterio
import small_case as case

from geobgp.cli.app import main
from geobgp.cli.rerun import compared

QUICK = ("--features", "auto", "--permeability", "auto", "--no-checks", "--cell-size", "1234.5678", "-q")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder of inputs, and the results of a run in another."""
    folder = tmp_path_factory.mktemp("rerun")
    files = case.write_files(folder)
    (folder / "study.toml").write_text('funding = "None."\n')
    arguments = [
        files.points_gpkg, "--land", files.land_gpkg, "--water", files.water_gpkg, "--weights", "deaths",
        "--metadata", str(folder / "study.toml"), "--max-seconds", "20",
    ]  # fmt: skip
    out = folder / "results" / "out"
    assert main(["map", *arguments, *QUICK, "-o", str(out)]) == 0
    return folder, out


@pytest.fixture
def moved(made, tmp_path, monkeypatch):
    """The inputs in another folder, with one of the same name and other content beside them."""
    folder, out = made
    place = tmp_path / "moved" / "deep er"
    place.mkdir(parents=True)
    for name in ("points.gpkg", "land.gpkg", "water.gpkg", "study.toml"):
        shutil.copy(folder / name, place / name)
    (tmp_path / "decoy").mkdir()
    shutil.copy(folder / "water.gpkg", tmp_path / "decoy" / "land.gpkg")
    results = tmp_path / "x" / "out"
    shutil.copytree(out, results)
    monkeypatch.chdir(tmp_path)
    return tmp_path, place, results


def rasters(folder):
    found = {}
    for path in sorted(folder.glob("*.tif")):
        with rasterio.open(path) as raster:
            found[path.name] = raster.read()
    return found


def test_a_rerun_gives_the_same_rasters_bit_by_bit(moved, capfd):
    here, _, results = moved
    assert main(["rerun", str(results / "summary.json"), "-o", "again"]) == 0
    told = capfd.readouterr()
    before, now = rasters(results), rasters(here / "again")
    assert set(before) == set(now) and len(before) >= 6
    for name, values in before.items():
        np.testing.assert_array_equal(values.view(np.uint8), now[name].view(np.uint8), err_msg=name)
    assert f"{len(before)} rasters are the same as before, bit by bit." in told.out
    first, second = (json.loads((place / "summary.json").read_text("utf-8")) for place in (results, here / "again"))
    assert first["origin"] == second["origin"]
    assert first["options"] == second["options"]


def test_what_has_changed_is_refused_or_accepted(moved, capfd, monkeypatch):
    _, place, results = moved
    frame = gpd.read_file(place / "points.gpkg")
    frame.iloc[5:].to_file(place / "points.gpkg")
    monkeypatch.setattr("sys.stdin", None)
    assert main(["rerun", str(results), "-o", "again", "--inputs", str(place)]) == 1
    error = capfd.readouterr().err
    assert f"1 input has changed since: points.gpkg ({len(frame)} features then, {len(frame) - 5} now" in error
    assert "--changed" in error and not (place.parent.parent / "again").exists()
    assert main(["rerun", str(results), "-o", "again", "--inputs", str(place), "--changed", "-q"]) == 0
    assert "Warning: 1 input has changed" in capfd.readouterr().err
    assert "differ: " in compared(results, place.parent.parent / "again")


def test_what_is_missing_is_named(moved, capfd, tmp_path):
    _, place, results = moved
    (place / "water.gpkg").rename(place / "lakes.gpkg")
    arguments = ["rerun", str(results), "-o", "again", "--inputs", str(place)]
    assert main(arguments) == 1
    assert f"1 input is not there: water.gpkg (water). Looked for in {place}." in capfd.readouterr().err
    assert main([*arguments, "--input", "lakes.gpkg=x"]) == 1
    assert "No input was called 'lakes.gpkg'" in capfd.readouterr().err
    assert main([*arguments, "--input", "water.gpkg"]) == 2
    assert main([*arguments, "--input", f"water.gpkg={place / 'lakes.gpkg'}", "-q"]) == 0
    assert "bit by bit" in compared(results, tmp_path / "again")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: r | {"command": "geobgp strata points.gpkg --by x -o out"}, "is of geobgp strata; what is run"),
        (lambda r: {k: v for k, v in r.items() if k != "origin"}, "does not say what went in"),
        (lambda r: {}, "is not the summary.json of a complete run"),
    ],
)
def test_records_that_cannot_be_repeated_are_refused(made, tmp_path, capfd, change, message):
    record = json.loads((made[1] / "summary.json").read_text("utf-8"))
    path = tmp_path / "summary.json"
    path.write_text(json.dumps(change(record)))
    assert main(["rerun", str(path), "-o", str(tmp_path / "out")]) == 1
    assert message in capfd.readouterr().err


def test_the_folder_of_the_run_itself_and_no_file(made, tmp_path, capfd):
    assert main(["rerun", str(made[1]), "-o", str(made[1])]) == 1
    assert "the folder of the run that is repeated" in capfd.readouterr().err
    assert main(["rerun", str(tmp_path / "none.json"), "-o", str(tmp_path / "out")]) == 1
    assert "There is no file" in capfd.readouterr().err


def test_other_versions_are_told(moved, capfd):
    here, _, results = moved
    record = json.loads((results / "summary.json").read_text("utf-8"))
    record["origin"]["software"]["numpy"] = "0.9"
    (results / "summary.json").write_text(json.dumps(record))
    assert main(["rerun", str(results), "-o", "again", "-q"]) == 0
    assert "other versions may give other last digits: numpy 0.9 then, " in capfd.readouterr().err
    assert "bit by bit" in compared(results, here / "again")


def test_metadata_is_checked_before_the_fit_and_its_template_written(made, tmp_path, capfd):
    folder, out = made
    bad = tmp_path / "bad.toml"
    bad.write_text('etics = "none"\n')
    points, land = str(folder / "points.gpkg"), str(folder / "land.gpkg")
    assert main(["map", points, "--land", land, "--metadata", str(bad), "-o", str(tmp_path / "out")]) == 1
    assert "bad.toml: there is no entry 'etics'. Did you mean 'ethics'?" in capfd.readouterr().err
    assert main(["metadata", str(tmp_path / "study.toml")]) == 0
    assert main(["metadata", str(tmp_path / "study.toml")]) == 1
    assert "exists" in capfd.readouterr().err
    assert '<p class="stated">None.</p>' in (out / "gather.html").read_text("utf-8")
    assert {"gather.html", "gather.csv", "ro-crate-metadata.json"} <= set(
        json.loads((out / "summary.json").read_text("utf-8"))["files"]
    )


def test_a_crate_of_a_run_names_every_file(made):
    from rocrate.rocrate import ROCrate

    files = {path.relative_to(made[1]).as_posix() for path in made[1].rglob("*") if path.is_file()}
    crate = ROCrate(made[1])
    assert {one.id for one in crate.data_entities} == files - {"ro-crate-metadata.json"}
    assert str(made[0]) not in (made[1] / "ro-crate-metadata.json").read_text("utf-8")
