import errno
import json
import os
import signal
from pathlib import Path

import pytest

from geobgp.cli.workspace import RECORD, Workspace
from geobgp.errors import GeobgpError


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
    outside.write_text("precious")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / RECORD).write_text(json.dumps({"files": ["../outside", str(outside), 7]}))
    with Workspace(tmp_path / "out", force=True) as work:
        fill(work, "a")
        work.commit()
    assert outside.read_text() == "precious"


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
