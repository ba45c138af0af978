"""The command line as a new user meets it: what it writes, what it says, what it leaves behind."""

import errno
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest
import rasterio
import shapely
import small_case as case

import geobgp
from geobgp import Posterior
from geobgp.cli.app import main
from geobgp.cli.messages import explain
from geobgp.cli.options import render_option
from geobgp.errors import option, render_text

QUICK = ("--cell-size", "1000", "--features", "48", "--permeability", "0")
OUTPUTS = {
    "coverage.tif", "exceedance_2.tif", "mean.tif", "sd.tif", "q05.tif", "q50.tif", "q95.tif", "map.html",
    "map.gpkg", "map.qgz", "regions.gpkg", "report.html", "summary.json", "posterior.geobgp",
    "gather.html", "gather.csv", "ro-crate-metadata.json", "regions.csv", "hotspots.gpkg", "hotspots.csv",
}  # fmt: skip


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return case.write_files(tmp_path_factory.mktemp("files"))


@pytest.fixture
def say(capfd):
    """Run a command; return exit code, standard output, standard error."""

    def run(*arguments):
        code = main([str(a) for a in arguments])
        told = capfd.readouterr()
        return code, told.out, told.err

    return run


def one_paragraph(err: str) -> str:
    """Check that an error is one clear paragraph, and return it."""
    assert "Traceback" not in err
    lines = [line for line in err.splitlines() if line.startswith("Error: ")]
    assert len(lines) == 1 and err.rstrip().endswith(lines[0]), err
    assert not re.search(r"\b(?!layername)\w+=", lines[0]), f"Python's names in: {lines[0]}"
    return lines[0]


# -- a whole run


@pytest.fixture(scope="module")
def result(files, tmp_path_factory):
    out = tmp_path_factory.mktemp("results") / "out"
    code = main(
        ["map", files.points_gpkg, "--land", files.land_gpkg, "--water", files.water_gpkg, "--threshold", "2",
         "--regions", files.land_gpkg, "--title", "Bites <b>", "-o", str(out), *QUICK]
    )  # fmt: skip
    return code, out


def test_map_writes_all_outputs_with_styles(result):
    code, out = result
    assert code == 0
    names = {p.name for p in out.iterdir()}
    styles = {name.replace(".tif", ".qml") for name in OUTPUTS if name.endswith(".tif")}
    assert names == OUTPUTS | styles


def test_the_outputs_agree_with_each_other(result):
    out = result[1]
    posterior = Posterior.load(out / "posterior.geobgp")
    data = posterior.intensity()
    with rasterio.open(out / "mean.tif") as src:
        assert src.crs.to_epsg() == 32631 and src.units == ("events per km²",)
        np.testing.assert_array_equal(src.read(1), data["mean"].values.astype(np.float32))
    with rasterio.open(out / "exceedance_2.tif") as src:
        np.testing.assert_allclose(src.read(1), posterior.exceedance(2.0).values, rtol=1e-6)
    with rasterio.open(out / "coverage.tif") as src:
        assert np.nansum(src.read(1)) == pytest.approx(posterior.domain.coverage.sum(), rel=1e-6)
    regions = gpd.read_file(out / "regions.gpkg")
    assert list(regions["name"]) == ["mainland", "island"]
    assert regions["observed"].sum() == pytest.approx(posterior.n_points)
    assert ((regions["q05"] < regions["expected"]) & (regions["expected"] < regions["q95"])).all()


def test_the_summary_is_for_programs(result):
    record = json.loads((result[1] / "summary.json").read_text("utf-8"))
    assert record["geobgp"] == geobgp.__version__
    assert record["points"]["used"] == len(case.points()) and record["points"]["dropped"] == 0
    assert set(record["files"]) == {p.name for p in result[1].iterdir()}
    assert record["choices"]["features"] == {"value": "50 features", "why": "given"}  # and two constants
    assert record["checks"]["fine"] is True
    assert record["summary"]["lengthscale"]["unit"] == "km"
    assert record["inputs"]["Land"] == "land.gpkg"
    assert record["command"].startswith("geobgp map points.gpkg --land land.gpkg --water water.gpkg")
    assert "/" not in record["command"].replace("-o out", "")
    assert set(record["seconds"]) >= {"land", "points", "features", "fit", "rasters", "map", "checks", "report"}


def test_a_map_that_fails_its_checks_says_so_everywhere(files, tmp_path, say):
    """Every tenth event thirty times over, on one spot: twelve features cannot follow that."""
    crowds = pd.concat([gpd.read_file(files.points_gpkg).iloc[::10]] * 30)
    crowds.to_file(tmp_path / "crowds.gpkg")
    out = tmp_path / "out"
    few = ("--cell-size", "1000", "--features", "12", "--permeability", "0")
    code, _, err = say("map", tmp_path / "crowds.gpkg", "--land", files.land_gpkg, "-o", out, *few)
    told = [line for line in err.splitlines() if "held-out blocks lie within" in line]
    assert code == 0 and len(told) == 1 and told[0].startswith("Warning: Only ") and "Try " in told[0]
    record = json.loads((out / "summary.json").read_text("utf-8"))
    assert record["checks"]["fine"] is False and record["checks"]["try"]
    assert told[0].removeprefix("Warning: ") in record["warnings"]
    page = (out / "report.html").read_text("utf-8")
    assert page.index("This map may mislead.") < page.index('class="cards"')
    assert "m=" not in "".join(record["checks"]["try"])  # the shell has its own words


def test_no_coordinates_of_points_are_in_the_pages(result, files):
    found = gpd.read_file(files.points_gpkg).geometry
    spelled = [f"{v:.5f}" for v in found.iloc[:20].y] + [f"{v:.5f}" for v in found.iloc[:20].x]
    for page in ("map.html", "report.html", "gather.html", "gather.csv", "ro-crate-metadata.json", "summary.json"):
        text = (result[1] / page).read_text("utf-8")
        assert not [s for s in spelled if s in text]
        assert "<b>" not in re.sub(r"<b>[^<]*</b>", "", text) or not page.endswith(".html")


def test_info_reads_every_kind_of_file(result, files, say):
    out = result[1]
    for source, words in (
        (out, ("Bites <b>", "50 features", "command")),
        (out / "posterior.geobgp", ("events per km²", "lengthscale", "neumann")),
        (out / "mean.tif", ("EPSG:32631", "1000 x 1000", "band 1", "events per km²")),
        (files.points_gpkg, ("EPSG:4326", "Point", "deaths")),
        (files.layers_gpkg, ("bites", "others")),
        (files.odd_csv, ("Coord_X", "--longitude")),
        (files.metric_csv, ("x, y", "rows")),
    ):
        code, text, err = say("info", source)
        assert code == 0 and err == ""
        for word in words:
            assert word in text, text


def test_points_can_be_simulated_from_a_result(result, say, tmp_path):
    target = tmp_path / "points.gpkg"
    code, text, _ = say("simulate", "--posterior", result[1] / "posterior.geobgp", "--seed", 3, "-o", target)
    points = gpd.read_file(target)
    assert code == 0 and f"{len(points):,} points" in text
    n = len(case.points())
    assert abs(len(points) - n) < 6 * np.sqrt(n)
    code, _, err = say("simulate", "--posterior", result[1] / "posterior.geobgp", "-o", target)
    assert code == 1 and "--force" in one_paragraph(err)


# -- overwriting


def test_nothing_is_overwritten_without_force(result, files, say):
    out = result[1]
    before = {p.name: p.read_bytes() for p in out.iterdir()}
    code, _, err = say("map", files.points_gpkg, "--land", files.land_gpkg, "-o", out)
    assert code == 1 and "--force" in one_paragraph(err)
    assert {p.name: p.read_bytes() for p in out.iterdir()} == before


def test_force_quiet_and_verbose(files, say, tmp_path):
    out = tmp_path / "out"
    common = ("map", files.points_gpkg, "--land", files.land_gpkg, "--water", files.water_gpkg, *QUICK, "-o", out)
    code, text, err = say(*common, "-v", "--threshold", 1)
    assert code == 0 and "round 1: ELBO" in err and "files" in text
    (out / "project.qgz").write_text("mine")
    code, text, err = say(*common, "-q", "--force")
    assert (code, text, err) == (0, "", "")
    names = {p.name for p in out.iterdir()}
    assert "project.qgz" in names and "mean.tif" in names and "exceedance_1.tif" not in names


# -- mistakes of a new user


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("{points}.gone", "--land", "{land}"), ("points: there is no file", "That folder has")),
        (("{points}", "--land", "nowhere/land.gpkg"), ("land: there is no file", "does not exist either")),
        (("{points}", "--land", "{land}", "--water", "no.gpkg"), ("water: there is no file",)),
        (("{points}", "--land", "{land}", "--exposure", "no.tif"), ("exposure: there is no file",)),
        (("{points}", "--land", "{land}", "--covariate", "dem=no.tif"), ("covariate dem: there is no file",)),
        (("{swapped}", "--land", "{land}"), ("none is left", "swapped", "--longitude")),
        (("{swapped_csv}", "--land", "{land}"), ("none is left", "swapped", "--longitude")),
        (("{abroad}", "--land", "{land}"), ("none is left", "longitude 24", "--points-crs")),
        (("{empty}", "--land", "{land}"), ("no points to map",)),
        (("{empty_csv}", "--land", "{land}"), ("is empty",)),
        (("{header_csv}", "--land", "{land}"), ("no points to map",)),
        (("{odd_csv}", "--land", "{land}"), ("'Coord_X', 'Coord_Y'", "--longitude and --latitude")),
        (("{odd_csv}", "--land", "{land}", "--longitude", "lon", "--latitude", "lat"), ("no column 'lon'",)),
        (("{odd_csv}", "--land", "{land}", "--longitude", "Coord_X"), ("name both", "--latitude")),
        (("{text}", "--land", "{land}"), ("points:", "cannot be read")),
        (("{points}", "--land", "{text}"), ("land:", "cannot be read")),
        (("{layers}", "--land", "{land}"), ("'bites', 'others'", "layername=bites")),
        (("{layers}", "--layer", "birds", "--land", "{land}"), ("no layer 'birds'", "'bites'")),
        (("{points}", "--land", "{land}|layername=sea"), ("no layer 'sea'", "'land'")),
        (("{nowhere}", "--land", "{land}"), ("points is not known", "--points-crs EPSG:4326")),
        (("{points}", "--land", "{bare}"), ("land is not known", "--land-crs EPSG:4326")),
        (("{points}", "--land", "{bare}", "--land-crs", "EPSG:x"), ("--land-crs EPSG:x is no",)),
        (("{points}", "--land", "{points}"), ("land: polygons were expected", "Point")),
        (("{land}", "--land", "{land}"), ("points were expected", "Polygon", "Counts by area are mapped as --areas")),
        (("{points}", "--land", "{land}", "--water", "{land}"), ("No land is left",)),
        (("{points}", "--land", "{land}", "--crs", "EPSG:4326"), ("projected", "Leave --crs out")),
        (("{points}", "--land", "{land}", "--crs", "nonsense"), ("--crs nonsense is no",)),
        (("{points}", "--land", "{land}", "--crs", "local"), ("--crs local is for planar",)),
        (("{points}", "--land", "{land}", "--cell-size", "1e6"), ("--cell-size is 1e+06", "smaller")),
        (("{points}", "--land", "{land}", "--cell-size", "0.5"), ("cells; the limit is", "Use --cell-size >=")),
        (("{points}", "--land", "{land}", "--cell-size", "-1"), ("--cell-size must be a positive",)),
        (("{points}", "--land", "{land}", "--weights", "cases"), ("no column 'cases'", "deaths")),
        (("{points}", "--land", "{land}", "--threshold", "-1"), ("--threshold must be a positive number",)),
        (("{points}", "--land", "{land}", "--features", "99999", "--cell-size", "2000"), ("--features 97 or fewer",)),
    ],
)
def test_mistakes_get_one_clear_paragraph_and_exit_code_1(arguments, words, files, say, tmp_path):
    names = {"points", "land", "swapped", "abroad", "empty", "text", "layers", "nowhere", "bare"}
    known = {name: getattr(files, f"{name}_gpkg") for name in names}
    known |= {f"{name}_csv": getattr(files, f"{name}_csv") for name in ("swapped", "empty", "header", "odd")}
    code, text, err = say("map", *(a.format(**known) for a in arguments), "-o", tmp_path / "new" / "out")
    assert code == 1 and text == ""
    message = one_paragraph(err)
    for word in words:
        assert word in message, message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("map",),
        ("map", "points.gpkg", "-o", "out"),
        ("map", "points.gpkg", "--land", "land.gpkg"),
        ("map", "p", "--land", "l", "-o", "o", "--features", "many"),
        ("map", "p", "--land", "l", "-o", "o", "--features", "0"),
        ("map", "p", "--land", "l", "-o", "o", "--covariate", "dem.tif"),
        ("map", "p", "--land", "l", "-o", "o", "--boundary", "open"),
        ("map", "p", "--land", "l", "-o", "o", "--permeability", "2"),
        ("map", "p", "--land", "l", "-o", "o", "--colour", "red"),
        ("simulate", "-o", "points.gpkg"),
        ("simulate", "--land", "land.gpkg", "-o", "points.gpkg"),
        ("nonsense",),
    ],
)
def test_wrong_usage_has_exit_code_2(arguments, say):
    code, _, err = say(*arguments)
    assert code == 2 and "Usage: geobgp" in err and "Traceback" not in err


def test_a_csv_with_odd_columns_works_when_they_are_named(files, say, tmp_path):
    out = tmp_path / "out"
    code, _, _ = say(
        "map", files.odd_csv, "--land", files.bare_gpkg, "--land-crs", "EPSG:4326", "--longitude", "Coord_X",
        "--latitude", "Coord_Y", "--weights", "n", "--show-points", "--basemap", "OpenStreetMap", "-o", out,
        *QUICK,
    )  # fmt: skip
    assert code == 0
    text = (out / "map.html").read_text("utf-8")
    assert "tile.openstreetmap.org" in text
    latitude = gpd.read_file(files.points_gpkg).geometry.iloc[0].y
    assert f"{latitude:.5f}" in text, "the points were asked for"


def test_bare_eastings_in_the_crs_of_the_land_are_shown_where_they_are(say, tmp_path):
    points = case.points().to_crs(28992)
    table = pd.DataFrame({"x": points.geometry.x, "y": points.geometry.y})
    table.to_csv(tmp_path / "points.csv", index=False)
    case.land().to_crs(28992).to_parquet(tmp_path / "land.pq")
    out = tmp_path / "out"
    code, _, err = say(
        "map", tmp_path / "points.csv", "--land", tmp_path / "land.pq", "--show-points", "-o", out, *QUICK
    )
    assert code == 0, err
    places = points.to_crs(4326).geometry
    shown = re.search(r'"points":\{"coords":(\[\[.*?\]\])', (out / "map.html").read_text("utf-8"))[1]
    np.testing.assert_allclose(json.loads(shown), np.column_stack([places.y, places.x]), atol=2e-6)
    assert json.loads((out / "summary.json").read_text("utf-8"))["points"]["used"] == len(points)


def test_debug_shows_the_traceback(files, tmp_path):
    with pytest.raises(geobgp.GeometryError):
        main(["map", "gone.gpkg", "--land", files.land_gpkg, "-o", str(tmp_path / "out"), "--debug"])


def test_a_failure_of_ours_is_called_one(files, say, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr("geobgp.cli.commands.run", fail)
    code, _, err = say("map", files.points_gpkg, "--land", files.land_gpkg, "-o", tmp_path / "out")
    assert code == 1 and "should not: ZeroDivisionError" in one_paragraph(err) and "--debug" in err
    assert list(tmp_path.iterdir()) == []


# -- a machine that does not do as it is told


def test_a_read_only_folder_is_said_before_any_work(files, say, tmp_path, monkeypatch):
    make = Path.mkdir

    def refuse(self, *args, **kwargs):
        if self.is_relative_to(tmp_path):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(self))
        return make(self, *args, **kwargs)

    monkeypatch.setattr(Path, "mkdir", refuse)
    code, _, err = say("map", files.points_gpkg, "--land", files.land_gpkg, "-o", tmp_path / "out")
    assert code == 1 and "read-only" in one_paragraph(err)
    assert "nodes" not in err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_leaves_nothing(number, code, files, tmp_path):
    command = [
        sys.executable, "-m", "geobgp.cli.app", "map", files.points_gpkg, "--land", files.land_gpkg,
        "--water", files.water_gpkg, "--cell-size", "150", "--features", "600", "--permeability", "0", "--no-cache",
        "-o", str(tmp_path / "deep" / "out"),
    ]  # fmt: skip
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        # A shell lets what it starts in the background ignore interrupts, and that is passed on.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    told = ""
    while "points" not in told:
        line = process.stderr.readline()
        assert line, told
        told += line
    assert list((tmp_path / "deep").iterdir()) != [], "the work goes into a hidden folder"
    time.sleep(0.3)
    process.send_signal(number)
    out, err = process.communicate(timeout=120)
    assert process.returncode == code, told + err
    assert out == "" and "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


# -- the other commands


def test_simulate_writes_every_format(files, say, tmp_path):
    for kind in ("gpkg", "geojson", "parquet", "csv"):
        target = tmp_path / f"points.{kind}"
        code, text, _ = say(
            "simulate", "--land", files.land_gpkg, "--water", files.water_gpkg, "--cell-size", 1000,
            "--intensity", 2.5, "--seed", 7, "-o", target,
        )  # fmt: skip
        assert code == 0
        n = int(re.search(r"([\d,]+) points", text)[1].replace(",", ""))
        assert abs(n - 2.5 * 384) < 6 * np.sqrt(2.5 * 384)
        if kind == "csv":
            assert target.read_text().splitlines()[0] == "longitude,latitude"
            assert len(target.read_text().splitlines()) == n + 1
        elif kind == "parquet":
            assert len(gpd.read_parquet(target)) == n
        else:
            assert len(gpd.read_file(target)) == n
    assert len(list(tmp_path.iterdir())) == 4


def test_simulate_from_a_raster_follows_it(result, files, say, tmp_path):
    target = tmp_path / "points.gpkg"
    code, _, _ = say(
        "simulate", "--land", files.land_gpkg, "--water", files.water_gpkg, "--cell-size", 1000, "--crs",
        "EPSG:32631", "--intensity", result[1] / "mean.tif", "-o", target,
    )  # fmt: skip
    points = gpd.read_file(target)
    assert code == 0 and points.crs.to_epsg() == 32631
    west = (points.geometry.x < case.WEST + 12_000).mean()
    assert west == pytest.approx((case.points().geometry.x < case.WEST + 12_000).mean(), abs=0.05)


@pytest.mark.filterwarnings("ignore::geobgp.errors.GeobgpWarning")
def test_points_are_simulated_period_by_period_from_a_map_over_time_and_from_events_alone(say, tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.uniform(0, 10, (600, 2)), columns=["easting", "northing"])
    frame["year"], frame["value"] = np.repeat([2019, 2020, 2021], [100, 200, 300]), rng.normal(5, 1, 600)
    quick = {"crs": "local", "cell_size": 1.0, "m": 8, "permeability": 0.0, "cache": False}
    land = shapely.box(0, 0, 10, 10)
    over_time = geobgp.map_intensity(frame, land, time="year", every="year", **quick)
    over_time.save(tmp_path / "time.geobgp")
    code, _, err = say("simulate", "--posterior", tmp_path / "time.geobgp", "--seed", 1, "-o", tmp_path / "p.csv")
    assert code == 0, err
    drawn = pd.read_csv(tmp_path / "p.csv")
    assert list(drawn.columns) == ["easting", "northing", "period"]
    expected = np.array([100, 200, 300])
    assert np.all(np.abs(drawn["period"].value_counts().sort_index() - expected) < 6 * np.sqrt(expected))
    geobgp.map_values(frame, land, value="value", **quick).save(tmp_path / "values.geobgp")
    code, _, err = say("simulate", "--posterior", tmp_path / "values.geobgp", "-o", tmp_path / "q.csv")
    assert code == 1 and "maps a value, not events" in one_paragraph(err)


def test_a_dry_run_tells_cells_time_and_memory_and_writes_nothing(files, say, tmp_path):
    given = ("--land", files.land_gpkg, "--water", files.water_gpkg, "--permeability", 0, "--features", "full")
    code, text, err = say("map", files.points_gpkg, *given, "--cell-size", 250, "--dry-run", "-o", tmp_path / "out")
    assert code == 0, err
    lines = dict(line.split(": ", 1) for line in text.splitlines())
    nodes = int(re.match(r"about ([\d,]+) nodes, 250 wide", lines["cells"])[1].replace(",", ""))
    assert nodes == pytest.approx(case.domain(250.0).n_nodes, rel=0.1)
    assert list(lines) == ["cells", "prior", "time", "memory"] and "MB" in lines["memory"]
    assert "finer cells" not in lines["time"] and not (tmp_path / "out").exists()


def test_simulate_mistakes(files, say, tmp_path):
    land = ("simulate", "--land", files.land_gpkg, "--intensity")
    for arguments, words in (
        ((*land, "1", "-o", tmp_path / "a.doc"), ".gpkg, .geojson"),
        ((*land, "high", "-o", tmp_path / "a.csv"), "intensity: there is no file high"),
        ((*land, "-1", "-o", tmp_path / "a.csv"), "not negative"),
        ((*land, "1", "-o", tmp_path / "no" / "a.csv"), "cannot be written"),
        (("simulate", "--posterior", files.land_gpkg, "-o", tmp_path / "a.csv"), "not a file that geobgp"),
    ):
        code, _, err = say(*arguments)
        assert code == 1 and words in one_paragraph(err)


def test_cache_says_where_and_clears(say, tmp_path, monkeypatch):
    monkeypatch.setenv("GEOBGP_CACHE_DIR", str(tmp_path / "cache"))
    assert say("cache")[1].strip().endswith("0 files, 0.0 MB")
    geobgp.HarmonicBasis.compute(case.domain(2000.0), 8)
    code, text, _ = say("cache")
    assert code == 0 and str(tmp_path / "cache") in text and "1 file" in text
    assert "Deleted 1 file" in say("cache", "--clear")[1]
    assert list((tmp_path / "cache").iterdir()) == []


def test_info_mistakes(files, say, tmp_path):
    for source, words in (
        (tmp_path / "gone.tif", "There is no file"),
        (tmp_path, "without summary.json"),
        (files.empty_csv, "is empty"),
        (files.text_gpkg, "text.gpkg cannot be read as a vector file: it is called .gpkg"),
        (f"{files.layers_gpkg}|layername=birds", "no layer 'birds'"),
    ):
        code, _, err = say("info", source)
        assert code == 1 and words in one_paragraph(err)


# -- words


@pytest.mark.parametrize(
    ("name", "value", "python", "shell"),
    [
        ("m", None, "m", "--features"),
        ("m", "full", "m='full'", "--features full"),
        ("cache", False, "cache=False", "--no-cache"),
        ("fill_missing", "mean", "fill_missing='mean'", "--fill-missing"),
        ("output", None, "output", "-o"),
        ("force", None, "force", "--force"),
        ("points_crs", "EPSG:4326", "points_crs='EPSG:4326'", "--points-crs EPSG:4326"),
        ("cell_size", 250.0, "cell_size=250.0", "--cell-size 250"),
        ("thresholds", None, "thresholds", "--threshold"),
        ("intensity", None, "intensity", "--intensity"),
        ("kernel", None, "kernel", "kernel"),
    ],
)
def test_each_interface_speaks_of_an_option_in_its_own_words(name, value, python, shell):
    text = f"Use {option(name, value)} then."
    assert render_text(text) == f"Use {python} then."
    assert render_text(text, render_option) == f"Use {shell} then."


def test_other_errors_are_explained():
    assert "not enough memory" in explain(MemoryError())
    assert "disk is full" in explain(OSError(errno.ENOSPC, "x"))
    assert "(a.tif)" in explain(PermissionError(errno.EACCES, "x", "a.tif"))


def test_version_and_help(say):
    assert say("--version")[1] == f"geobgp, version {geobgp.__version__}\n"
    for command in ((), ("map",), ("demo",), ("simulate",), ("info",), ("cache",)):
        code, text, _ = say(*command, "--help")
        assert code == 0 and "Usage: geobgp" in text


@pytest.mark.parametrize(("load", "threads"), [(0.0, None), (1000.0, "1")])
def test_a_busy_machine_gets_one_thread(load, threads, monkeypatch):
    from geobgp.cli.app import _mind_the_load

    monkeypatch.delitem(sys.modules, "numpy")
    monkeypatch.setattr(os, "getloadavg", lambda: (load, load, load), raising=False)
    for name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    _mind_the_load()
    assert os.environ.get("OPENBLAS_NUM_THREADS") == threads
