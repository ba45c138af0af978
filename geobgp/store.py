"""Files of arrays with a JSON header: exact, checked on reading, never pickled, never half-written.

A file is an uncompressed ``.npz`` (a zip of ``.npy`` members, which NumPy alone can open) with one more member,
``header``: UTF-8 JSON as bytes. The zip's own CRC-32 of every member tells of any change of any byte.
"""

from __future__ import annotations

import json
import math
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from geobgp.errors import CacheError
from geobgp.files import replacing

#: Version of the files' layout; files of a later layout are refused.
LAYOUT = 2
_HEADER = "header"
_AGAIN = "Take another copy, or fit and save again."
#: What NumPy, zipfile and json raise over damaged bytes (CacheError is itself a ValueError: see `read`).
_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    EOFError,
    OSError,
    NotImplementedError,
    RuntimeError,
    MemoryError,
    OverflowError,
    struct.error,
    SyntaxError,
    tokenize.TokenError,
)


def write(path: str | Path, kind: str, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Path:
    """Write `arrays` and a JSON-able `header` to `path`, which appears only when it is whole.

    Parameters
    ----------
    path : str or Path
        The file's name is taken as it is. An existing file is replaced at the last moment.
    kind : str
        What the file holds; `read` asks for the same word.
    header : mapping
        Anything that JSON holds exactly (floats are written with all their digits).
    arrays : mapping of str to ndarray
        Numbers, booleans, dates or bytes; no objects.

    Returns
    -------
    Path
    """
    path = Path(path)
    stored = {name: np.asarray(value) for name, value in arrays.items()}
    for name, array in stored.items():
        if array.dtype.hasobject:
            raise CacheError(f"{name!r} holds Python objects ({array.dtype}); only plain numbers can be stored.")
        if name == _HEADER:
            raise CacheError(f"An array cannot be called {name!r}; that name is the file's own.")
    full = {"format": "geobgp", "layout": LAYOUT, "kind": kind, "content": dict(header), "arrays": list(stored)}
    text = json.dumps(full, allow_nan=True, ensure_ascii=False).encode()
    # An open file, since NumPy would add .npz to a name.
    with replacing(path) as temporary, temporary.open("xb") as file:
        np.savez(file, **stored, **{_HEADER: np.frombuffer(text, np.uint8)})
    return path


def read(path: str | Path, kind: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the header and the arrays of a file that `write` made, after checking every byte of them.

    Raises
    ------
    CacheError
        If there is no such file, or it is damaged, foreign, of another kind or of a later layout.
    """
    path = Path(path)
    if not path.is_file():
        raise CacheError(f"There is no file {str(path)!r}. Check the path.")
    foreign = f"{str(path)!r} is not a file that geobgp has written"
    try:
        with path.open("rb") as file:
            if file.read(4) != b"PK\x03\x04":
                raise CacheError(f"{foreign}: it does not start like one. Give a file made by Posterior.save.")
            _check_sizes(file, path)
            file.seek(0)
            with np.load(file, allow_pickle=False) as archive:
                return _open(archive, str(path), foreign, kind)
    except CacheError:
        raise
    except _DAMAGE as error:
        raise CacheError(
            f"{str(path)!r} is damaged and cannot be read ({type(error).__name__}: {error}). {_AGAIN}"
        ) from error


def kind_of(path: str | Path) -> str | None:
    """Return what kind of file this is by its header, before it is checked; None where it has none that can be read."""
    try:
        with zipfile.ZipFile(path) as archive, archive.open(f"{_HEADER}.npy") as stream:
            form: Any = np.lib.format
            return str(json.loads(form.read_array(stream, allow_pickle=False).tobytes())["kind"])
    except _DAMAGE:
        return None


def _check_sizes(file: BinaryIO, path: Path) -> None:
    """Refuse a file whose members claim more bytes than it has: packed ones, shared ones, arrays that lie.

    Every member is then read to its end, where its CRC is compared.
    """
    form: Any = np.lib.format
    size = path.stat().st_size
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        claimed = sum(member.file_size for member in members)
        if claimed > size:
            raise CacheError(
                f"{str(path)!r} claims to hold more than its {size:,} bytes, and is not read.",
                found=claimed,
                remedy=_AGAIN,
            )
        for member in members:
            with archive.open(member) as stream:
                version = form.read_magic(stream)
                read = form.read_array_header_1_0 if version == (1, 0) else form.read_array_header_2_0
                shape, _, dtype = read(stream)
                if dtype.hasobject or math.prod(shape) * dtype.itemsize != member.file_size - stream.tell():
                    raise CacheError(f"{str(path)!r} is damaged: {member.filename!r} is not as large as it says.")


def _open(archive: Any, path: str, foreign: str, kind: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    if _HEADER not in archive.files:
        raise CacheError(f"{foreign}: it has no header. Give a file made by Posterior.save.")
    full = json.loads(archive[_HEADER].tobytes())
    if full.get("format") != "geobgp":
        raise CacheError(f"{foreign}: its header says {full.get('format')!r}.")
    if full["layout"] > LAYOUT:
        raise CacheError(
            f"{path!r} has layout {full['layout']}; this version of geobgp reads up to {LAYOUT}. "
            "Install a newer geobgp."
        )
    if full["kind"] != kind:
        raise CacheError(f"{path!r} holds a {full['kind']}, not a {kind}.")
    return full["content"], {name: archive[name] for name in full["arrays"]}
