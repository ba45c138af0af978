"""Files: which are read as what, and how each is written, whole or not at all."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from geobgp.errors import WriteError, option


def why_not_written(error: BaseException, place: str | Path) -> tuple[str, str]:
    """Return why a file could not be written in a place, and what to do about it."""
    number = getattr(error, "errno", None)
    elsewhere = f"Choose another place with {option('output', python='another path')}."
    # GDAL and HDF5 do not say why a file could not be written.
    if number in (errno.ENOSPC, errno.EDQUOT) or (number in (None, errno.EIO) and _full(place)):
        return (
            "the disk is full.",
            f"Free some space, or choose another place with {option('output', python='another path')}.",
        )
    if number in (errno.EACCES, errno.EPERM):
        return f"you may not write in {place}.", elsewhere
    if number == errno.EROFS:
        return f"{place} is on a file system that is read-only.", elsewhere
    if number in (errno.ENOTDIR, errno.EEXIST):
        return f"a part of {place} is a file, not a folder.", elsewhere
    if number == errno.ENOENT:
        return f"there is no folder {place}.", "Make it first."
    return f"{getattr(error, 'strerror', None) or error}.", ""


def _full(place: str | Path) -> bool:
    """Tell whether the disk under an existing place has no room left."""
    with suppress(OSError):
        return shutil.disk_usage(place).free < 1_000_000
    return False


@contextmanager
def replacing(path: str | os.PathLike[str], *, parents: bool = False) -> Iterator[Path]:
    """Yield a temporary file to be written; it takes the place of `path` when all went well.

    The temporary file has the same name, in a hidden folder beside `path`, so that drivers may put files of their own
    next to it; those go. Nothing is left behind when anything fails, and `path` is then as it was. With `parents`
    the folders that are missing are made first.

    Raises
    ------
    WriteError
        If the system does not let the file be written; it says why, and what to do.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "a.txt"
    >>> with replacing(path) as temporary:
    ...     _ = temporary.write_text("whole")
    ...     path.exists()
    False
    >>> path.read_text(), len(list(path.parent.iterdir()))
    ('whole', 1)
    """
    path = Path(path)
    folder = path.absolute().parent / f".{path.name}-{secrets.token_hex(6)}.part"
    try:
        if parents:
            folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir()
        yield folder / path.name
        with (folder / path.name).open("rb") as file:
            os.fsync(file.fileno())
        (folder / path.name).replace(path)
    except OSError as error:
        reason, remedy = why_not_written(error, path.absolute().parent)
        raise WriteError(f"{path} cannot be written: {reason}", remedy=remedy) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)
