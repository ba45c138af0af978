"""What fails after a fit costs its own file and no other: every step is made to fail, and the others are there."""

import errno
import json
import os

import geopandas as gpd
import numpy as np
import pytest
import small_case as case

import geobgp
from geobgp.cli.app import main
from geobgp.errors import SizeError

QUICK = ("--cell-size", "1000", "--features", "48", "--permeability", "0")
OUTPUTS = {
    "map": {"posterior": "posterior.geobgp", "rasters": "mean.tif", "regions": "regions.gpkg", "map": "map.html",
            "project": "map.qgz", "report": "report.html"},
    "risk": {"posterior": "posterior.geobgp", "rasters": "mean.tif", "tolerance": "tolerance.gpkg",
             "regions": "regions.gpkg", "hot spots": "hotspots.gpkg", "map": "map.html", "project": "map.qgz",
             "report": "report.html"},
    "time": {"posterior": "posterior.geobgp", "rasters": "periods", "trend": "ratio_per_year.tif",
             "netCDF": "intensity.nc", "regions": "regions.gpkg", "map": "map.html", "project": "map.qgz",
             "report": "report.html"},
    "strata": {"raster of a": "map-a.tif", "totals": "totals.gpkg", "table": "strata.csv", "page": "index.html"},
}  # fmt: skip
POSTERIOR = "geobgp.posterior.Posterior"
STRATA = "geobgp.scale.strata.Strata"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    files = case.write_files(folder)
    cases = gpd.read_file(files.points_gpkg)
    k = np.arange(len(cases))
    cases = cases.assign(
        kind=np.where(k % 3, "a", "b"), date=np.datetime64("2020-01-15") + (k % 8) * np.timedelta64(30, "D")
    )
    cases.to_file(folder / "kinds.gpkg")
    cases.iloc[::2].to_file(folder / "cases.gpkg")
    cases.iloc[1::2].to_file(folder / "controls.gpkg")
    return files


@pytest.fixture(scope="module")
def made():
    """What commands have fitted, so that each is fitted once."""
    return {}


@pytest.fixture
def write(files, made, monkeypatch, tmp_path, capfd):
    """Run a command on a fit that is made once; return exit code, the folder, and what was said on standard error."""
    where = {
        "map": "geobgp.cli.commands.run", "time": "geobgp.cli.commands.run",
        "risk": "geobgp.cli.commands.run", "strata": "geobgp.cli.commands.run_strata",
    }  # fmt: skip
    kinds, folder = str(files.folder / "kinds.gpkg"), files.folder
    lines = {
        "map": ("map", files.points_gpkg, *QUICK, "--regions", files.land_gpkg),
        "time": ("map", kinds, "--time", "date", "--every", "month", *QUICK[:-4], "--features", "24",
                 "--permeability", "0", "--regions", files.land_gpkg, "--no-cache"),
        "risk": ("risk", str(folder / "cases.gpkg"), str(folder / "controls.gpkg"), "--cell-size", "1000",
                 "--regions", files.land_gpkg),
        "strata": ("strata", kinds, "--by", "kind", *QUICK, "--jobs", "1"),
    }  # fmt: skip

    def run(command, *more):
        module, _, name = where[command].rpartition(".")
        real = getattr(__import__(module, fromlist=[name]), name)

        def once(*args, **kwargs):
            if command not in made:
                made[command] = real(*args, **kwargs)
            return made[command]

        monkeypatch.setattr(where[command], once)
        out = tmp_path / "out"
        line = [*lines[command], "--land", files.land_gpkg, "-q", "-o", out, *more]
        code = main([str(word) for word in line])
        return code, out, capfd.readouterr().err

    return run


def broken(*_, **__):
    raise ZeroDivisionError("division by zero")


@pytest.mark.parametrize(
    ("command", "step", "where"),
    [
        ("map", "posterior", "geobgp.archive.save"),
        ("map", "rasters", "geobgp.output.rasters.write_rasters"),
        ("map", "regions", "geobgp.cli.results.region_totals"),
        ("map", "map", "geobgp.web.maps.save"),
        ("map", "project", "geobgp.cli.results.write_qgis"),
        ("map", "report", "geobgp.cli.results.write_report"),
        ("risk", "posterior", "geobgp.archive.save"),
        ("risk", "rasters", "geobgp.output.rasters.write_rasters"),
        ("risk", "tolerance", f"{POSTERIOR}.tolerance_contours"),
        ("risk", "regions", "geobgp.cli.results.read_named_regions"),
        ("risk", "hot spots", "geobgp.cli.results.hotspots_above"),
        ("risk", "hot spots", "geobgp.cli.results.write_polygons"),
        ("risk", "map", "geobgp.web.maps.save"),
        ("risk", "project", "geobgp.cli.results.write_qgis"),
        ("risk", "report", "geobgp.cli.results.write_report"),
        ("time", "posterior", f"{POSTERIOR}.save"),
        ("time", "rasters", "geobgp.output.rasters.write_rasters"),
        ("time", "trend", "geobgp.cli.results.write_trend"),
        ("time", "netCDF", f"{POSTERIOR}.to_netcdf"),
        ("time", "regions", "geobgp.cli.results.region_totals"),
        ("time", "map", "geobgp.web.maps.save"),
        ("time", "project", "geobgp.cli.results.write_qgis"),
        ("time", "report", "geobgp.cli.results.write_report"),
        ("strata", "totals", f"{STRATA}.totals"),
        ("strata", "table", f"{STRATA}.table"),
        ("strata", "page", f"{STRATA}.to_index"),
    ],
)
def test_a_step_that_fails_takes_no_other_with_it(command, step, where, write, monkeypatch):
    monkeypatch.setattr(where, broken)
    code, out, err = write(command, *(() if command == "strata" else ("--no-checks",)))
    assert code == 3
    assert f"Error: The results are in {out}, except for what failed:" in err
    assert f"  {step}: geobgp has failed in a way that it should not: ZeroDivisionError" in err
    assert "Traceback" not in err and "Nothing was written" not in err
    names = {p.name for p in out.iterdir()}
    lost = {step}
    assert {n for s, n in OUTPUTS[command].items() if s not in lost} <= names
    assert OUTPUTS[command][step] not in names
    record = json.loads((out / "summary.json").read_text("utf-8"))
    assert set(record["not_written"]) == lost and "ZeroDivisionError" in record["not_written"][step]
    there = {p.relative_to(out).as_posix() for p in out.rglob("*") if p.is_file()}
    assert set(record["files"]) == there
    if step != "report" and command != "strata":
        assert f"Not written: {step}." in (out / "report.html").read_text("utf-8")


def test_a_stratum_whose_raster_fails_is_the_only_one_without(write, monkeypatch):
    real = geobgp.Posterior.to_raster
    fail = lambda self, path, *how: broken() if "map-a" in str(path) else real(self, path, *how)  # noqa: E731
    monkeypatch.setattr("geobgp.posterior.Posterior.to_raster", fail)
    code, out, err = write("strata")
    assert code == 3 and "raster of a: " in err
    assert (out / "map-b.tif").exists() and (out / "index.html").exists() and not (out / "map-a.tif").exists()


@pytest.mark.parametrize("command", ["map", "risk", "time"])
def test_checks_that_cannot_run_are_said_to_be_not_run(command, write, monkeypatch):
    def refuse(*_, **__):
        raise SizeError("A block of 6,407 nodes cannot be left out at once.", remedy="Use smaller blocks.")

    monkeypatch.setattr(f"{POSTERIOR}.cross_validate", refuse)
    code, out, err = write(command)
    assert code == 0, err
    assert "Warning: The checks were not run: A block of 6,407 nodes cannot be left out at once." in err
    record = json.loads((out / "summary.json").read_text("utf-8"))
    assert record["checks"]["not_run"].startswith("A block of 6,407") and record["not_written"] == {}
    assert "The held-out checks were not run. A block of 6,407" in (out / "report.html").read_text("utf-8")
    assert {n for n in OUTPUTS[command].values()} <= {p.name for p in out.iterdir()}


@pytest.mark.parametrize("command", ["map", "risk", "time"])
def test_a_mistake_of_ours_in_a_check_is_listed_and_costs_no_file(command, write, monkeypatch):
    monkeypatch.setattr(f"{POSTERIOR}.cross_validate", broken)
    code, out, err = write(command)
    assert code == 3 and "  checks: geobgp has failed in a way that it should not" in err
    assert {n for n in OUTPUTS[command].values()} <= {p.name for p in out.iterdir()}
    assert json.loads((out / "summary.json").read_text("utf-8"))["checks"]["not_run"] == "They failed."


@pytest.mark.parametrize("command", ["map", "risk", "time"])
def test_no_checks_are_made_where_none_are_wanted(command, write, monkeypatch):
    monkeypatch.setattr(f"{POSTERIOR}.cross_validate", broken)
    monkeypatch.setattr("geobgp.cli.results.check", broken)
    code, out, err = write(command, "--no-checks")
    assert code == 0, err
    record = json.loads((out / "summary.json").read_text("utf-8"))
    assert record["checks"] == {"not_run": "--no-checks was given."} and "--no-checks" in record["command"]
    assert "--no-checks was given" in (out / "report.html").read_text("utf-8")


@pytest.mark.parametrize("command", ["map", "risk", "time"])
def test_a_map_of_which_nobody_knows_whether_it_varies_is_there(command, write, made, monkeypatch):
    if command in made:
        made[command].posterior.fit.notes.clear()
    monkeypatch.setattr("geobgp.checks.variation._by_evidence", broken)
    code, out, err = write(command, "--no-checks")
    assert code == 0 and "Whether the map varies could not be worked out: ZeroDivisionError" in err
    assert set(OUTPUTS[command].values()) <= {p.name for p in out.iterdir()}
    assert json.loads((out / "summary.json").read_text("utf-8"))["summary"].get("variation") is None


def test_the_record_is_written_whatever_happens_to_what_it_tells(write, monkeypatch):
    monkeypatch.setattr("geobgp.cli.results.record_of", broken)
    code, out, err = write("map", "--no-checks")
    assert code == 3 and "summary.json: geobgp has failed" in err
    record = json.loads((out / "summary.json").read_text("utf-8"))
    assert set(record["files"]) == {p.relative_to(out).as_posix() for p in out.rglob("*") if p.is_file()}
    assert "summary.json" in record["not_written"] and record["geobgp"] == geobgp.__version__


@pytest.mark.parametrize(
    ("where", "lost"),
    [
        ("geobgp.output.rasters.write_rasters", "mean.tif"),
        ("geobgp.archive.save", "posterior.geobgp"),
        ("geobgp.web.maps.save", "map.html"),
    ],
)
def test_a_full_disk_leaves_what_it_had_room_for(where, lost, write, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(where, full)
    code, out, err = write("map", "--no-checks")
    assert code == 3 and "The disk is full." in err and ".part" not in err
    names = {p.name for p in out.iterdir()}
    assert lost not in names and set(OUTPUTS["map"].values()) - {lost} <= names


def test_nothing_is_left_where_nothing_could_be_written(write, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("geobgp.cli.commands.write_results", full)
    code, out, err = write("map")
    assert code == 1 and "the disk is full" in err and not out.exists()


@pytest.mark.parametrize(("interrupt", "code"), [(KeyboardInterrupt(), 130), (SystemExit(143), None)])
def test_an_interrupt_while_results_are_written_leaves_those_that_are_done(
    interrupt, code, write, monkeypatch, tmp_path
):
    def stop(*_, **__):
        raise interrupt

    monkeypatch.setattr(f"{POSTERIOR}.cross_validate", stop)
    if code is None:
        with pytest.raises(SystemExit, match="143"):
            write("map")
    else:
        found, out, err = write("map")
        assert found == code and f"Interrupted: what was written by then is in {out}." in err
    names = {p.name for p in (tmp_path / "out").iterdir()}
    assert set(OUTPUTS["map"].values()) - {"report.html"} <= names and "report.html" not in names
    record = json.loads((tmp_path / "out" / "summary.json").read_text("utf-8"))
    assert record["not_written"] == {"the rest": "The run was interrupted."}
    assert not list(tmp_path.glob(".*")), "and nothing half-written"


def test_debug_shows_where_a_step_failed(write, monkeypatch):
    monkeypatch.setattr("geobgp.web.maps.save", broken)
    code, _, err = write("map", "--no-checks", "--debug")
    assert code == 3 and "Traceback" in err and "in broken" in err


def test_what_is_partly_there_can_be_described_and_replaced(write, monkeypatch, capfd):
    with monkeypatch.context() as patch:
        patch.setattr("geobgp.cli.results.record_of", broken)
        code, out, _ = write("map", "--no-checks")
    assert code == 3
    assert main(["info", str(out)]) == 0 and "not written" in capfd.readouterr().out
    code, out, _ = write("map", "--no-checks", "--force")
    assert code == 0 and json.loads((out / "summary.json").read_text("utf-8"))["not_written"] == {}
