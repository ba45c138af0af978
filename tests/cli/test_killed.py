"""Killed without warning, alone or beside another: old files are whole, and the next run is as the first."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import geopandas as gpd
import numpy as np
import pytest
import rasterio
import small_case

from geobgp import store
from geobgp.cli.workspace import Workspace

pytestmark = pytest.mark.slow


def start(files, out: Path, cache: Path, command: str = "map", points: str = "", *more: str) -> subprocess.Popen[bytes]:
    line = [command, points or files.points_gpkg, "--land", files.land_gpkg]
    line += ["--cell-size", "2000", "--features", "32", "-q", *more]
    return subprocess.Popen(
        [sys.executable, "-m", "geobgp.cli.app", *line, "--force", "-o", str(out)],
        env=os.environ | {"GEOBGP_CACHE_DIR": str(cache)},
        stderr=subprocess.PIPE,
    )


def finished(run: subprocess.Popen[bytes]) -> None:
    said = run.communicate()[1]
    assert run.returncode == 0, said


def whole(folder: Path, names: set[str]) -> None:
    """Every file that results have is there, and can be read to its end."""
    assert {p.name for p in folder.iterdir() if not p.name.startswith(".")} == names
    assert set(json.loads((folder / "summary.json").read_text("utf-8"))["files"]) == names
    for name in ("map.html", "report.html"):
        assert (folder / name).read_text("utf-8").rstrip().endswith("</html>")
    for path in folder.glob("*.tif"):
        with rasterio.open(path) as raster:
            assert np.isfinite(raster.read(1)).any()
    store.read(folder / "posterior.geobgp", "posterior")


def test_a_killed_run_leaves_old_files_whole_and_nothing_that_is_trusted(tmp_path):
    files, cache, out = small_case.write_files(tmp_path), tmp_path / "cache", tmp_path / "results" / "out"
    begin = time.perf_counter()
    finished(start(files, out, cache))
    took = time.perf_counter() - begin
    names = {p.name for p in out.iterdir()}
    with rasterio.open(out / "mean.tif") as raster:
        mean = raster.read(1)
    for k, share in enumerate((0.45, 0.7, 0.92)):
        for path in cache.glob("*.basis"):
            path.unlink()  # so that both write one
        other = tmp_path / "results" / f"other{k}"
        runs = [start(files, out, cache), start(files, other, cache)]
        time.sleep(share * took)
        for run in runs:
            run.kill()
            run.communicate()
        whole(out, names)
        if other.exists():
            whole(other, names)
    finished(start(files, out, cache))
    whole(out, names)
    with rasterio.open(out / "mean.tif") as raster:
        np.testing.assert_allclose(raster.read(1), mean, rtol=1e-5)
    assert not list(out.glob(".*.part")), "what a killed run left is cleared away by the next"
    for path in cache.glob("*.basis"):
        store.read(path, "basis")


def test_killed_strata_leave_old_files_whole(tmp_path):
    files, cache, out = small_case.write_files(tmp_path), tmp_path / "cache", tmp_path / "out"
    cases = gpd.read_file(files.points_gpkg)
    cases.assign(kind=np.where(np.arange(len(cases)) % 3, "a", "b")).to_file(tmp_path / "kinds.gpkg")
    more = ("--by", "kind", "--permeability", "0", "--jobs", "1")
    given = (files, out, cache, "strata", str(tmp_path / "kinds.gpkg"), *more)
    begin = time.perf_counter()
    finished(start(*given))
    took = time.perf_counter() - begin

    def content() -> dict[str, bytes]:
        there = (p for p in out.rglob("*") if p.is_file() and not p.relative_to(out).parts[0].startswith("."))
        return {str(p.relative_to(out)): p.read_bytes() for p in there}

    before = content()
    assert "index.html" in before
    for share in (0.6, 0.9):
        run = start(*given)
        time.sleep(share * took)
        run.kill()
        run.communicate()
        after = content()
        # All old, or all new: what is there belongs together.
        assert after.keys() == before.keys() and after["index.html"].rstrip().endswith(b"</html>")
        assert after == before or after["summary.json"] != before["summary.json"]
        before = after
    finished(start(*given))
    assert content().keys() == before.keys() and not list(out.glob(".*.part"))


def test_what_a_killed_run_left_is_no_reason_to_refuse_and_what_a_running_one_has_stays(tmp_path):
    target = tmp_path / "out"
    target.mkdir()
    (target / ".out-0123abcd.part").mkdir()
    (target / ".out-0123abcd.part" / "mean.tif").write_text("half")
    with Workspace(target) as work:
        assert not (target / ".out-0123abcd.part").exists()
        with Workspace(target) as beside:  # as another process would
            assert work.folder.exists() and beside.folder.exists()
        assert work.folder.exists()
        (work.folder / "a.txt").write_text("whole")
        work.commit()
    assert [p.name for p in target.iterdir()] == ["a.txt"]
