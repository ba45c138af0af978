import errno
import json
import os
import signal
import sqlite3
from pathlib import Path

import geopandas as gpd
import pytest
from shapely.geometry import box

from geobgp.cli.workspace import RECORD, Workspace
from geobgp.errors import GeobgpError, InputWarning


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def fill(work: Workspace, *files: str) -> None:
    for name in files:
        (work.folder / name).write_text(name)
    (work.folder / RECORD).write_text(json.dumps({"files": [*files, RECORD]}))


def test_nothing_is_there_before_the_commit_and_all_after(tmp_path):
    target = tmp_path / "deep" / "out"
    with Workspace(target) as work:
        fill(work, "a", "b")
        assert not target.exists()
        work.commit()
    assert names(target) == ["a", "b", RECORD]
    assert names(target.parent) == ["out"]


def test_an_error_leaves_nothing_not_even_new_parents(tmp_path):
    with pytest.raises(RuntimeError), Workspace(tmp_path / "deep" / "out") as work:
        fill(work, "a")
        raise RuntimeError
    assert names(tmp_path) == []


@pytest.fixture
def interruptible():
    """Let interrupts through: a shell lets what it starts in the background ignore them."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_leaves_nothing(tmp_path, interruptible):
    with pytest.raises(KeyboardInterrupt), Workspace(tmp_path / "out") as work:
        fill(work, "a")
        os.kill(os.getpid(), signal.SIGINT)
    assert names(tmp_path) == []


def test_a_full_folder_is_refused_and_an_empty_one_is_filled(tmp_path):
    (tmp_path / "mine.qgz").write_text("mine")
    with pytest.raises(GeobgpError, match=r"not empty \(mine.qgz\).*without force"), Workspace(tmp_path):
        pass
    empty = tmp_path / "empty"
    empty.mkdir()
    with Workspace(empty) as work:
        fill(work, "a")
        work.commit()
    assert names(empty) == ["a", RECORD]


def test_force_replaces_what_an_earlier_run_wrote_and_nothing_else(tmp_path):
    with Workspace(tmp_path / "out") as work:
        fill(work, "mean.tif", "exceedance_1.tif")
        work.commit()
    (tmp_path / "out" / "mine.qgz").write_text("mine")
    with Workspace(tmp_path / "out", force=True) as work:
        fill(work, "mean.tif", "sd.tif")
        (work.folder / "mean.tif").write_text("new")
        assert (tmp_path / "out" / "mean.tif").read_text() == "mean.tif"
        work.commit()
    assert names(tmp_path / "out") == ["mean.tif", "mine.qgz", "sd.tif", RECORD]
    assert (tmp_path / "out" / "mean.tif").read_text() == "new"


def test_a_record_cannot_point_out_of_its_folder(tmp_path):
    outside = tmp_path / "outside"
    outside.write_text("a")
    with Workspace(tmp_path / "out") as work:
        fill(work, "a")
        work.commit()
    record = json.loads((tmp_path / "out" / RECORD).read_text())
    hashes = record["written"]["sha256"]
    hashes |= {"../outside": hashes["a"], str(outside): hashes["a"]}
    (tmp_path / "out" / RECORD).write_text(json.dumps(record))
    with Workspace(tmp_path / "out", force=True) as work:
        fill(work, "b")
        work.commit()
    assert outside.read_text() == "a" and names(tmp_path / "out") == ["b", RECORD]


@pytest.mark.parametrize(
    "record",
    [
        {"files": ["data.csv", "notes.txt"]},
        {"geobgp": "0.1", "files": ["data.csv"]},
        {"written": {"kind": "files of another", "version": "1", "sha256": {"data.csv": "0" * 64}}},
        {"written": {"kind": "files of geobgp", "sha256": {"data.csv": "0" * 64}}},
        ["data.csv"],
    ],
)
def test_force_neither_deletes_nor_replaces_what_another_program_lists(tmp_path, record):
    (tmp_path / "data.csv").write_text("precious")
    (tmp_path / RECORD).write_text(json.dumps(record))
    with pytest.raises(GeobgpError, match=r"'summary.json'\. They are not replaced"), Workspace(tmp_path, force=True):
        pass
    assert (tmp_path / "data.csv").read_text() == "precious" and json.loads((tmp_path / RECORD).read_text()) == record


@pytest.mark.parametrize("name", ["mean.tif", "mean.qml", "map.qgz", "periods/mean_2020.tif", RECORD])
def test_what_was_edited_since_is_not_replaced_and_is_named_before_anything_is_computed(tmp_path, name):
    target = tmp_path / "out"
    with Workspace(target) as work:
        (work.folder / "periods").mkdir()
        fill(work, "mean.tif", "mean.qml", "map.qgz", "periods/mean_2020.tif")
        work.commit()
    text = (target / name).read_text()
    (target / name).write_text(text[:-2] + ', "mine": 1}' if name == RECORD else text + " edited")
    before = (target / name).read_text()
    # Of a record that was edited nothing is trusted, so that all of its files are named with it.
    with pytest.raises(GeobgpError, match=f"'{name}'.*move, rename or delete"), Workspace(target, force=True):
        pass
    assert (target / name).read_text() == before


def test_an_edited_file_that_results_no_longer_have_stays_and_is_told_of(tmp_path):
    with Workspace(tmp_path / "out") as work:
        fill(work, "extra.tif", "other.tif")
        work.commit()
    (tmp_path / "out" / "extra.tif").write_text("edited")
    with pytest.warns(InputWarning, match=r"'extra.tif' in .* stays"), Workspace(tmp_path / "out", force=True) as work:
        fill(work, "a")
        work.commit()
    assert names(tmp_path / "out") == ["a", "extra.tif", RECORD]


def test_results_whose_names_could_not_be_foreseen_come_to_a_folder_beside(tmp_path):
    target = tmp_path / "out"
    target.mkdir()
    (target / "flu.tif").write_text("mine")
    with pytest.warns(InputWarning, match=r"'flu.tif' in .*out-2"), Workspace(target, force=True) as work:
        fill(work, "flu.tif")
        placed = work.commit()
    assert (target / "flu.tif").read_text() == "mine" and names(target) == ["flu.tif"]
    assert {p.parent for p in placed} == {tmp_path / "out-2"} and names(tmp_path / "out-2") == ["flu.tif", RECORD]


def test_a_geopackage_that_was_only_looked_at_is_still_ours(tmp_path):
    """QGIS opens a GeoPackage with a write-ahead log, and writes to its header as it does."""
    target = tmp_path / "out"
    with Workspace(target) as work:
        gpd.GeoDataFrame({"a": [1]}, geometry=[box(0, 0, 1, 1)], crs=32631).to_file(work.folder / "map.gpkg")
        fill(work, "mean.tif")
        work.commit()
    before = (target / "map.gpkg").read_bytes()
    for mode in ("wal", "delete"):
        database = sqlite3.connect(target / "map.gpkg")
        database.execute(f"PRAGMA journal_mode={mode}").fetchall()
        database.close()
    assert (target / "map.gpkg").read_bytes() != before
    with Workspace(target, force=True) as work:
        fill(work, "mean.tif")
        work.commit()
    assert names(target) == ["mean.tif", RECORD]


def test_a_file_in_the_way(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(GeobgpError, match="is a file"), Workspace(tmp_path / "file"):
        pass
    with pytest.raises(GeobgpError, match=r"a part of .* is a file"), Workspace(tmp_path / "file" / "out"):
        pass


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "disk is full"),
        (errno.EACCES, "may not write"),
        (errno.EROFS, "read-only"),
        (errno.EIO, "Input/output error"),
    ],
)
def test_a_folder_that_cannot_be_made_says_why(tmp_path, monkeypatch, number, words):
    def refuse(self, *args, **kwargs):
        raise OSError(number, os.strerror(number), str(self))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(GeobgpError, match=words), Workspace(tmp_path / "out"):
        pass
