"""An output never replaces a file that was read in the same run, whatever it is called and wherever it is."""

from pathlib import Path

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest
import rasterio
import small_case as case
from affine import Affine

import geobgp
from geobgp import files
from geobgp.cli.app import main
from geobgp.errors import WriteError

REGIONS = case.land()


@pytest.fixture(autouse=True)
def a_new_run(monkeypatch):
    monkeypatch.setattr(files, "_READ", set())
    monkeypatch.setattr(files, "_WRITTEN", {})


@pytest.fixture
def folder(tmp_path, monkeypatch):
    case.land().to_file(tmp_path / "land.gpkg")
    case.points().to_file(tmp_path / "points.gpkg")
    case.land().to_file(tmp_path / "regions.gpkg")
    raster = {"driver": "GTiff", "width": 40, "height": 30, "count": 1, "dtype": "float32", "crs": case.CRS}
    raster["transform"] = Affine(1_000, 0, case.WEST - 5_000, 0, -1_000, case.SOUTH + 25_000)
    with rasterio.open(tmp_path / "mean.tif", "w", **raster) as file:
        file.write(np.full((30, 40), 100.0, np.float32), 1)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (("--regions", "./regions.gpkg", "-o", "."), "regions.gpkg"),
        (("--regions", "regions.gpkg|layername=regions", "-o", "../{here}"), "regions.gpkg"),
        (("--regions", "link.gpkg", "-o", "."), "regions.gpkg"),
        (("--exposure", "./mean.tif", "-o", "."), "mean.tif"),
        (("--exposure", "mean.tif|band=1", "-o", "linked"), "mean.tif"),
        (("--covariate", "green=mean.tif", "-o", "."), "mean.tif"),
    ],
)
def test_the_shell_refuses_before_it_computes(folder, capsys, given, named):
    (folder / "link.gpkg").symlink_to("regions.gpkg")
    (folder / "linked").symlink_to(".")
    before = {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()}
    words = [word.format(here=folder.name) for word in given]
    assert main(["map", "points.gpkg", "--land", "land.gpkg", *words, "--force"]) == 1
    said = capsys.readouterr().err
    assert "read in this run" in said and named in said and "-o" in said and "land  " not in said
    assert {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()} == before


def test_simulate_does_not_write_over_its_land(folder, capsys):
    before = (folder / "land.gpkg").read_bytes()
    words = ["simulate", "--land", "land.gpkg", "--intensity", "0.1", "-o", "./land.gpkg", "--force"]
    assert main(words) == 1 and "read in this run" in capsys.readouterr().err
    assert (folder / "land.gpkg").read_bytes() == before


def test_files_of_the_users_own_with_names_of_results_are_not_replaced_and_inputs_may_lie_beside(folder, capsys):
    """`regions.gpkg` is not read here; still it is no file that geobgp wrote."""
    quick = ["--features", "64", "--cell-size", "2000", "-q", "--no-cache", "--force"]
    assert main(["map", "points.gpkg", "--land", "land.gpkg", "-o", ".", *quick]) == 1
    assert "'mean.tif', 'regions.gpkg'" in capsys.readouterr().err
    for name in ("mean.tif", "regions.gpkg"):
        (folder / name).rename(folder / f"my_{name}")
    again = ["map", "points.gpkg", "--land", "land.gpkg", "--regions", "my_regions.gpkg", "-o", ".", *quick]
    for _ in range(2):  # and once more over our own
        assert main(again) == 0, capsys.readouterr().err
    assert {"mean.tif", "regions.gpkg", "my_mean.tif", "points.gpkg"} <= {p.name for p in folder.iterdir()}


@pytest.fixture(scope="module")
def posterior():
    return geobgp.map_intensity(case.points(), case.land(), m=64, cell_size=2000, cache=False)


def test_a_project_does_not_replace_its_regions(folder, posterior):
    project = folder / "q"
    project.mkdir()
    (folder / "regions.gpkg").rename(project / "regions.gpkg")
    before = (project / "regions.gpkg").read_bytes()
    with pytest.raises(WriteError, match=r"regions.gpkg' was read in this run.*another path"):
        posterior.to_qgis("q", regions="q/regions.gpkg")
    assert (project / "regions.gpkg").read_bytes() == before and [p.name for p in project.iterdir()] == ["regions.gpkg"]
    assert posterior.to_qgis("other", regions="q/regions.gpkg").exists()


def test_what_was_written_in_the_same_session_may_be_written_anew(folder, posterior):
    posterior.to_raster("out")
    geobgp.map_intensity(case.points(), case.land(), exposure="out/mean.tif", m=64, cell_size=2000, cache=False)
    posterior.to_raster("out")
    gpd.read_file("regions.gpkg").to_file("out/regions.gpkg")
    posterior.totals("out/regions.gpkg")
    with pytest.raises(WriteError, match="read in this run"):
        posterior.to_qgis("out", regions=REGIONS)


@pytest.mark.parametrize("path", ["points.csv", "./sub/../points.csv", "link.csv", "{absolute}"])
def test_no_way_of_writing_replaces_an_input(folder, path):
    (folder / "sub").mkdir()
    points = case.points()
    pd.DataFrame({"easting": points.geometry.x, "northing": points.geometry.y}).to_csv("points.csv", index=False)
    (folder / "link.csv").symlink_to("points.csv")
    before = (folder / "points.csv").read_bytes()
    posterior = geobgp.map_intensity("points.csv", "land.gpkg", m=64, cell_size=2000, cache=False)
    target = Path(path.format(absolute=folder / "points.csv"))
    for write in (posterior.save, posterior.to_report, posterior.to_netcdf):
        with pytest.raises(WriteError, match="read in this run"):
            write(target)
    assert (folder / "points.csv").read_bytes() == before and not list(folder.rglob("*.part"))
