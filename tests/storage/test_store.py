"""Files of arrays: exact, and every damage noticed."""

from __future__ import annotations

import zipfile

import numpy as np
import pytest

from geobgp import store
from geobgp.errors import CacheError, WriteError

ARRAYS = {
    "c": np.arange(6.0).reshape(2, 3) / 7,
    "f": np.asfortranarray(np.arange(6.0).reshape(2, 3) / 11),
    "empty": np.zeros((0, 4)),
    "flags": np.array([True, False]),
    "whole": np.array([2**62, -1]),
    "scalar": np.array(np.nan),
    "view": np.arange(20.0)[::2],
}


def test_round_trip_is_exact(tmp_path):
    header = {"float": 0.1 + 0.2, "none": None, "text": "événements per km²", "nested": {"list": [1, 2.5]}}
    path = store.write(tmp_path / "a.file", "test", header, ARRAYS)
    assert path == tmp_path / "a.file"
    got, arrays = store.read(path, "test")
    assert got == header
    assert set(arrays) == set(ARRAYS)
    for name, value in ARRAYS.items():
        np.testing.assert_array_equal(arrays[name], value)
        assert arrays[name].dtype == value.dtype
    assert arrays["f"].flags.f_contiguous and arrays["c"].flags.c_contiguous
    assert list(tmp_path.iterdir()) == [path], "no temporary file is left"


def test_every_flipped_byte_is_noticed_or_harmless(tmp_path):
    path = store.write(tmp_path / "a", "test", {"k": 1}, {"x": np.arange(5.0)})
    good = path.read_bytes()
    rng = np.random.default_rng(0)
    noticed = 0
    for place in rng.choice(len(good), 300, replace=False):
        bad = bytearray(good)
        bad[place] ^= 0xFF
        path.write_bytes(bytes(bad))
        try:
            header, arrays = store.read(path, "test")
        except CacheError:
            noticed += 1
        else:  # a byte of the zip's own bookkeeping (a date) changes nothing that is read
            assert header == {"k": 1}
            np.testing.assert_array_equal(arrays["x"], np.arange(5.0))
    assert noticed > 150


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_truncated(tmp_path, share):
    path = store.write(tmp_path / "a", "test", {}, {"x": np.arange(500.0)})
    good = path.read_bytes()
    path.write_bytes(good[: int(len(good) * share)])
    with pytest.raises(CacheError, match=r"damaged|not a file that geobgp"):
        store.read(path, "test")


def test_foreign_files(tmp_path):
    missing = tmp_path / "nothing"
    with pytest.raises(CacheError, match="There is no file"):
        store.read(missing, "test")
    text = tmp_path / "text"
    text.write_text("longitude,latitude\n5,52\n")
    with pytest.raises(CacheError, match="does not start like one"):
        store.read(text, "test")
    plain = tmp_path / "plain.npz"
    np.savez(plain, x=np.arange(3))
    with pytest.raises(CacheError, match="no header"):
        store.read(plain, "test")
    pickled = tmp_path / "pickled.npz"
    np.savez(pickled, header=np.array([{"a": 1}], dtype=object), checksum=np.zeros(3))
    with pytest.raises(CacheError, match="damaged"):
        store.read(pickled, "test")
    other = store.write(tmp_path / "other", "basis", {}, {})
    with pytest.raises(CacheError, match="holds a basis, not a posterior"):
        store.read(other, "posterior")


def test_later_layout_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "LAYOUT", store.LAYOUT + 1)
    path = store.write(tmp_path / "a", "test", {}, {})
    monkeypatch.undo()
    with pytest.raises(CacheError, match="Install a newer geobgp"):
        store.read(path, "test")


def test_writing_fails_whole(tmp_path, monkeypatch):
    path = store.write(tmp_path / "a", "test", {"old": True}, {})
    with pytest.raises(CacheError, match="Python objects"):
        store.write(path, "test", {}, {"x": np.array([None])})
    with pytest.raises(CacheError, match="file's own"):
        store.write(path, "test", {}, {"header": np.zeros(1)})
    with pytest.raises(WriteError, match="no folder"):
        store.write(tmp_path / "no" / "a", "test", {}, {})

    def broken(file, **arrays):
        file.write(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(np, "savez", broken)
    with pytest.raises(WriteError, match="disk full"):
        store.write(path, "test", {"old": False}, {})
    assert list(tmp_path.iterdir()) == [path]
    assert store.read(path, "test")[0] == {"old": True}


def test_a_bomb_is_refused_by_its_size_before_it_is_unpacked(tmp_path):
    path = tmp_path / "bomb.geobgp"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("a.npy", "w") as member:
        np.lib.format.write_array_header_1_0(member, {"descr": "<f8", "fortran_order": False, "shape": (25_000_000,)})
        for _ in range(200):
            member.write(bytes(1_000_000))
    assert path.stat().st_size < 1_000_000
    with pytest.raises(CacheError, match=r"claims to hold more than its [\d,]+ bytes"):
        store.read(path, "thing")


def test_an_array_that_says_it_is_larger_than_it_is_takes_no_memory(tmp_path):
    path = tmp_path / "liar.geobgp"
    with zipfile.ZipFile(path, "w") as archive, archive.open("a.npy", "w") as member:
        np.lib.format.write_array_header_1_0(member, {"descr": "<f8", "fortran_order": False, "shape": (10**12,)})
        member.write(bytes(8))
    with pytest.raises(CacheError, match=r"'a.npy' is not as large as it says"):
        store.read(path, "thing")
