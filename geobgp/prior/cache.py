"""The cache of bases on disk: eigenpairs under a hash of the operator that they belong to."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from geobgp import store
from geobgp.errors import CacheError, CacheWarning, WriteError, option, warn
from geobgp.files import replacing
from geobgp.prior.basis import FeaturePart, first_features, from_arrays, to_arrays

if TYPE_CHECKING:
    from geobgp.prior.laplacian import Discretisation

#: Version of the solver: a change that alters vectors beyond rounding makes stored ones unused.
_SOLVER = 2
#: The file that holds how many bytes the cache may take.
_LIMIT = "limit"
_NAME = re.compile(r"([0-9a-f]{40})-(\d+)\.basis")
#: Where a fit was when it was cut off: see `geobgp.inference.chain_fit`.
_FIT = re.compile(r"[0-9a-f]{40}\.fit")
#: What `files.replacing` leaves behind when the machine goes down.
_PART = re.compile(rf"\.({_NAME.pattern}|{_FIT.pattern})-[0-9a-f]+\.part")


def cache_directory() -> Path:
    """Return where bases are kept: GEOBGP_CACHE_DIR, or else the user's cache directory."""
    if os.environ.get("GEOBGP_CACHE_DIR"):
        return Path(os.environ["GEOBGP_CACHE_DIR"])
    import platformdirs

    return Path(platformdirs.user_cache_dir("geobgp"))


def cache_info() -> dict[str, Any]:
    """Return where bases are kept, how many files there are, how many bytes they take, and the limit on these."""
    sizes = [size for _, size, _ in _used()]
    return {"path": cache_directory(), "files": len(sizes), "bytes": sum(sizes), "limit": cache_limit()}


def cache_limit() -> int | None:
    """Return how many bytes the cache may take; None where there is no limit."""
    try:
        return int((cache_directory() / _LIMIT).read_text("utf-8"))
    except (OSError, ValueError):
        return None


def limit_cache(limit: int) -> int:
    """Set how many bytes the cache may take from now on; delete what was used least recently, and return how many."""
    with replacing(cache_directory() / _LIMIT, parents=True) as temporary:
        temporary.write_text(str(limit), "utf-8")
    return _shrink(limit)


def _shrink(limit: int | None) -> int:
    """Delete the stored files that were used least recently until the others take no more than the limit."""
    if limit is None:
        return 0
    entries = sorted(_used(), key=lambda entry: entry[2])
    excess, deleted = sum(size for _, size, _ in entries) - limit, 0
    for path, size, _ in entries:
        if excess <= 0:
            break
        _delete(path)
        excess, deleted = excess - size, deleted + 1
    return deleted


def _used() -> list[tuple[Path, int, float]]:
    """Return the stored files with their sizes and when each was used last."""
    entries = []
    for path in _entries():
        with suppress(OSError):  # another process may have deleted it by now
            size = sum(p.stat().st_size for p in (path.iterdir() if path.is_dir() else [path]))
            entries.append((path, size, path.stat().st_mtime))
    return entries


def _delete(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink(missing_ok=True)


def clear_cache() -> int:
    """Delete all stored bases; return how many files that were."""
    entries = _entries()
    for path in entries:
        _delete(path)
    return len(entries)


def _entries() -> list[Path]:
    """Return the stored files, those of fits that were cut off, and folders with parts of files that a crash left."""
    try:
        paths = sorted(cache_directory().iterdir())
    except OSError:
        return []
    return [path for path in paths if any(kind.fullmatch(path.name) for kind in (_NAME, _FIT, _PART))]


def _sizes(key: str) -> dict[Path, int]:
    """Return the stored files of an operator and the number of features in each."""
    names = ((path, _NAME.fullmatch(path.name)) for path in _entries())
    return {path: int(name[2]) for path, name in names if name and name[1] == key}


def key_of(made: Discretisation) -> str:
    """Return a hash of all that the eigenpairs depend on: the operator itself, and its mass."""
    digest = hashlib.blake2b(f"geobgp basis {_SOLVER} {made.matrix.shape}".encode(), digest_size=20)
    for array in (made.matrix.indptr, made.matrix.indices, made.matrix.data, made.mass):
        kind = np.int64 if array.dtype.kind == "i" else np.float64
        digest.update(np.ascontiguousarray(array, dtype=kind).data)
    return digest.hexdigest()


def read(key: str, n: int, m: int) -> tuple[np.ndarray, tuple[FeaturePart, ...]] | None:
    """Return the first `m` stored eigenvalues and features from the smallest file that has enough, if one is sound."""
    sizes = _sizes(key)
    for path in sorted((p for p in sizes if sizes[p] >= m), key=lambda p: sizes[p]):
        try:
            header, arrays = store.read(path, "basis")
            values = arrays["eigenvalues"]
            sound = values.shape == (sizes[path],) and np.isfinite(values).all() and (np.diff(values) >= 0).all()
            if header["key"] != key or not sound or not np.isfinite(arrays["vectors"]).all():
                raise CacheError(f"{str(path)!r} belongs to another basis.")
            parts = from_arrays(arrays, n, sizes[path])
            with suppress(OSError):  # what was used last goes last
                os.utime(path)
        except (CacheError, LookupError, TypeError, ValueError, MemoryError) as error:
            if not path.exists():  # another process has put a larger one in its place
                continue
            warn(CacheWarning(f"A stored basis cannot be used and is computed again. {error}", found=path))
            if not isinstance(error, MemoryError):
                with suppress(OSError):
                    path.unlink()
            continue
        return values[:m], first_features(parts, m)
    return None


def write(key: str, values: np.ndarray, parts: tuple[FeaturePart, ...]) -> None:
    """Store eigenpairs; what cannot be written is only a warning. Only the most of an operator are kept."""
    directory = cache_directory()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"{key}-{len(values)}.basis"
        store.write(path, "basis", {"key": key}, {"eigenvalues": values} | to_arrays(parts))
        # Each process looks after it has written, so the smaller file goes whichever was there first.
        sizes = _sizes(key)
        for other in sizes:
            if sizes[other] < max(sizes.values()):
                other.unlink(missing_ok=True)
        _shrink(cache_limit())
    except (OSError, WriteError) as error:
        reason = error.message if isinstance(error, WriteError) else str(error)
        warn(
            CacheWarning(
                f"The basis could not be stored in {str(directory)!r} ({reason.rstrip('.')}) and will be "
                "computed again next time.",
                found=directory,
                remedy=f"Set GEOBGP_CACHE_DIR to a directory with room, or use {option('cache', False)}.",
            )
        )
