"""Bases on disk: read again bit for bit, repaired when damaged, written by several processes at once."""

import errno
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import shapely
from models import archipelago
from paths import ROOT

from geobgp.errors import CacheWarning
from geobgp.land.domain import Domain
from geobgp.prior import harmonic
from geobgp.prior.cache import cache_directory, cache_info, clear_cache, limit_cache
from geobgp.prior.harmonic import HarmonicBasis

BOUNDARIES = ["neumann", "dirichlet"]


@pytest.fixture
def store(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("GEOBGP_CACHE_DIR", str(tmp_path / "kept"))
    return tmp_path / "kept"


@pytest.fixture(scope="module")
def square() -> Domain:
    return Domain.from_polygons(shapely.box(0, 0, 1, 1), cell_size=0.05, crs="local")


def same(a, b):
    return np.array_equal(a.eigenvalues, b.eigenvalues) and np.array_equal(a.features, b.features)


def must_not_solve(monkeypatch):
    monkeypatch.setattr(harmonic, "eigenpairs_by_part", lambda *a, **k: pytest.fail("computed again"))


@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize("scheme", ["subcell", "staircase"])
def test_read_again_bit_for_bit(store, monkeypatch, boundary, scheme):
    islands = archipelago()
    plain = HarmonicBasis.compute(islands, 30, boundary=boundary, scheme=scheme, cache=False)
    assert not store.exists()
    first = HarmonicBasis.compute(islands, 30, boundary=boundary, scheme=scheme)
    assert cache_info()["files"] == 1 and cache_info()["path"] == store
    must_not_solve(monkeypatch)
    second = HarmonicBasis.compute(islands, 30, boundary=boundary, scheme=scheme)
    assert same(plain, first) and same(first, second)
    assert second.features.flags.c_contiguous
    at = islands.node_points[::7]
    assert np.array_equal(first.evaluate(at), second.evaluate(at))


def test_a_larger_one_serves_and_replaces_smaller_ones(square, store, monkeypatch):
    """Also where the cut goes through a repeated eigenvalue (m = 2 of a square: 0, a, a)."""
    direct = {m: HarmonicBasis.compute(square, m, cache=False) for m in (2, 21)}
    HarmonicBasis.compute(square, 10)
    HarmonicBasis.compute(square, 40)
    assert [path.name.split("-")[1] for path in store.iterdir()] == ["40.basis"]
    must_not_solve(monkeypatch)
    for m, alone in direct.items():
        part = HarmonicBasis.compute(square, m)
        assert part.m == m and part.features.flags.c_contiguous
        assert np.allclose(part.eigenvalues, alone.eigenvalues, rtol=1e-9, atol=1e-9)
        gap = np.abs(part.features - alone.features).max()
        assert gap < 1e-6, f"m = {m}: {gap:.1e}"


def test_each_domain_boundary_and_scheme_has_its_own(square, store):
    other = Domain.from_polygons(
        shapely.box(0, 0, 1, 1), barriers=shapely.LineString([(0.5, 0.2), (0.5, 1.0)]), cell_size=0.05, crs="local"
    )
    for domain in (square, other):
        for boundary in BOUNDARIES:
            HarmonicBasis.compute(domain, 4, boundary=boundary)
    HarmonicBasis.compute(square, 4, scheme="staircase")
    # An aligned square has the same matrix under either scheme only if the schemes agree there.
    assert 4 <= cache_info()["files"] <= 5


DAMAGE = {
    "empty": lambda data: b"",
    "truncated": lambda data: data[: len(data) * 2 // 3],
    "a text": lambda data: b"not a basis at all\n",
    "one bit": lambda data: data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :],
    "the first byte": lambda data: bytes([data[0] ^ 0xFF]) + data[1:],
    "zeros": lambda data: data[:200] + bytes(len(data) - 200),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_noticed_reported_and_repaired(square, store, monkeypatch, kind):
    first = HarmonicBasis.compute(square, 12)
    (path,) = store.iterdir()
    path.write_bytes(DAMAGE[kind](path.read_bytes()))
    with pytest.warns(CacheWarning, match="cannot be used and is computed again"):
        again = HarmonicBasis.compute(square, 12)
    assert same(first, again)
    must_not_solve(monkeypatch)
    assert same(first, HarmonicBasis.compute(square, 12))


def test_a_file_of_another_basis_is_not_taken(square, store):
    HarmonicBasis.compute(square, 12, boundary="dirichlet")
    (wrong,) = store.iterdir()
    neumann = HarmonicBasis.compute(square, 12)
    (right,) = set(store.iterdir()) - {wrong}
    right.write_bytes(wrong.read_bytes())
    with pytest.warns(CacheWarning, match="another basis"):
        assert same(neumann, HarmonicBasis.compute(square, 12))


def test_nothing_is_unpickled(square, store, tmp_path):
    first = HarmonicBasis.compute(square, 12)
    (path,) = store.iterdir()
    trap = tmp_path / "sprung"

    class Trap:
        def __reduce__(self):
            return (Path.touch, (trap,))

    bad = tmp_path / "bad.npz"
    np.savez(bad, vectors=np.array([Trap()], dtype=object))
    with zipfile.ZipFile(bad) as archive, zipfile.ZipFile(path) as whole:
        members = {name: whole.read(name) for name in whole.namelist()}
        members["vectors.npy"] = archive.read("vectors.npy")
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    with pytest.warns(CacheWarning, match="computed again"):
        assert same(first, HarmonicBasis.compute(square, 12))
    assert not trap.exists()


def test_no_place_to_write_is_only_a_warning(square, tmp_path, monkeypatch):
    blocker = tmp_path / "file"
    blocker.write_text("in the way")
    monkeypatch.setenv("GEOBGP_CACHE_DIR", str(blocker / "below"))
    with pytest.warns(CacheWarning, match="could not be stored .* GEOBGP_CACHE_DIR"):
        basis = HarmonicBasis.compute(square, 12)
    assert basis.m == 12
    assert cache_info() == {"path": blocker / "below", "files": 0, "bytes": 0, "limit": None}


def test_a_full_disk_is_only_a_warning_and_leaves_nothing(square, store, monkeypatch):
    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.warns(CacheWarning, match="the disk is full"):
        assert HarmonicBasis.compute(square, 12).m == 12
    assert list(store.iterdir()) == []


_RACE = """
import sys, shapely, warnings
import numpy as np
warnings.simplefilter("error")
from geobgp import Domain, HarmonicBasis
domain = Domain.from_polygons(shapely.Point(0, 0).buffer(1), cell_size=0.05, crs="local")
for m in map(int, sys.argv[2:]):
    np.save(f"{sys.argv[1]}-{m}.npy", HarmonicBasis.compute(domain, m).features[:, :20])
"""


@pytest.mark.slow
def test_processes_side_by_side(store, tmp_path):
    variables = os.environ | {"PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"}
    orders = [("20", "40", "60"), ("60", "20"), ("40", "60", "20")]
    runs = [
        subprocess.Popen([sys.executable, "-c", _RACE, str(tmp_path / str(k)), *order], env=variables)
        for k, order in enumerate(orders)
    ]
    assert [run.wait() for run in runs] == [0, 0, 0]
    found = [np.load(path) for path in sorted(tmp_path.glob("*.npy"))]
    assert len(found) == 8
    assert max(np.abs(features - found[0]).max() for features in found) < 1e-6
    assert [p.suffix for p in store.iterdir()] == [".basis"]


def test_info_and_clear(square, store):
    assert cache_info() == {"path": store, "files": 0, "bytes": 0, "limit": None}
    assert clear_cache() == 0
    HarmonicBasis.compute(square, 5)
    HarmonicBasis.compute(square, 5, boundary="dirichlet")
    (store / "something else.txt").write_text("not ours")
    left = next(store.glob("*.basis"))
    part = store / f".{left.name}-0123456789ab.part"
    part.mkdir()
    (part / left.name).write_bytes(b"left by a crash")
    info = cache_info()
    assert info["files"] == 3 and info["bytes"] > 2 * 8 * 400 * 5
    assert clear_cache() == 3
    assert [p.name for p in store.iterdir()] == ["something else.txt"]


def test_a_limited_cache_keeps_what_was_used_last(square, store, monkeypatch):
    """Three bases of one size in a cache that has room for two: the one that was neither made nor read last goes."""
    sides = {size: Domain.from_polygons(shapely.box(0, 0, 1, 1), cell_size=size, crs="local") for size in (0.05, 0.052)}
    HarmonicBasis.compute(sides[0.05], 5)
    HarmonicBasis.compute(sides[0.052], 5)
    for age, path in enumerate(sorted(store.glob("*.basis"), key=lambda p: p.stat().st_mtime)):
        os.utime(path, (1e9 + age, 1e9 + age))
    HarmonicBasis.compute(sides[0.05], 5)  # is read, and so used last
    largest = max(p.stat().st_size for p in store.glob("*.basis"))
    assert limit_cache(3 * largest) == 0 and cache_info()["limit"] == 3 * largest
    HarmonicBasis.compute(square, 5, boundary="dirichlet")
    assert cache_info()["files"] == 3
    assert limit_cache(int(2.2 * largest)) == 1
    HarmonicBasis.compute(sides[0.052], 5)  # is made again: it had gone, and now the oldest other goes
    assert cache_info()["bytes"] <= 2.2 * largest
    must_not_solve(monkeypatch)
    HarmonicBasis.compute(sides[0.052], 5)
    HarmonicBasis.compute(square, 5, boundary="dirichlet")


def test_where_it_is_without_the_variable(monkeypatch):
    monkeypatch.delenv("GEOBGP_CACHE_DIR")
    assert cache_directory().name == "geobgp"
