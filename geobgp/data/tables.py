"""Tables in text files: which separator and encoding, and what is wrong with their lines."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from geobgp.errors import GeometryError
from geobgp.files import open_packed
from geobgp.text import count

#: Bytes that are looked at before a table is read, and lines of them.
_START, _LINES = 1 << 16, 200
#: Share of zero bytes, at every other place, from which on text is taken for UTF-16.
_ZEROS = 0.3
#: What messages call an encoding that had to be guessed.
GUESSED = {
    "cp1252": "Windows-1252, as old spreadsheets write it",
    "utf-16-le": "UTF-16",
    "utf-16-be": "UTF-16",
}


def csv_format(path: str | Path, what: str = "points") -> dict[str, Any]:
    """Return how a table is written, as `pandas.read_csv` takes it: separator and encoding.

    UTF-8, or UTF-16 if it begins so (or every other byte is zero); what is neither is taken for the western encoding of
    old spreadsheets.

    Raises
    ------
    GeometryError
        If it is empty, or no text, or has lines with more fields than the header.
    """
    with open_packed(path) as file:
        start = file.read(_START)
    encoding = _encoding(start)
    try:
        text = codecs.getincrementaldecoder(encoding)().decode(start)
    except UnicodeDecodeError:
        encoding = "cp1252"
        text = start.decode(encoding, "replace")
    head = text.split("\n", 1)[0]
    if not head.strip():
        raise GeometryError(f"{what}: {path} is empty, or its first line is.", option=what, found=str(path))
    if "\0" in text:
        raise GeometryError(
            f"{what}: {path} holds zero bytes, so that it is no text.",
            option=what,
            found=str(path),
            remedy="Save it as CSV in UTF-8.",
        )
    separator = max(",;\t|", key=head.count)
    _check_fields(text, separator, path, what, len(start) == _START)
    return {
        "sep": separator,
        "encoding": encoding,
        "encoding_errors": "replace",
        "skipinitialspace": True,
    }


def check_lines(path: str | Path, form: Mapping[str, Any], n_fields: int, what: str = "points") -> None:
    """Refuse a table with a line of more fields than the header: read by some columns only, nobody would notice."""
    separator = form["sep"]
    with open_packed(path) as raw, io.TextIOWrapper(raw, form["encoding"], "replace") as text:
        for k, line in enumerate(text, 1):
            if line.count(separator) < n_fields:
                continue
            # A quoted field may go on for several lines: those are left to the reader.
            fields = (
                0
                if line.count('"') % 2
                else len(next(csv.reader([line], delimiter=separator, skipinitialspace=True)))
            )
            if fields > n_fields:
                raise _too_many(path, what, f"line {k}", fields, n_fields)


def about_encoding(encoding: str) -> str:
    """Return a sentence on an encoding that had to be guessed, which may be why names are not found; else nothing."""
    return f" The file is no UTF-8, and was read as {GUESSED[encoding]}." if encoding in GUESSED else ""


@contextmanager
def telling_of_lines(path: str | Path, what: str) -> Iterator[None]:
    """Say in our words what pandas says of a line that does not fit the header."""
    try:
        yield
    except ValueError as error:
        found = re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", str(error))
        if found is None:
            raise
        raise _too_many(path, what, f"line {found[2]}", int(found[3]), int(found[1])) from error


def _encoding(start: bytes) -> str:
    if start[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        return "utf-16"
    for offset, encoding in ((1, "utf-16-le"), (0, "utf-16-be")):
        half, other = start[offset::2], start[1 - offset :: 2]
        if half and half.count(0) > _ZEROS * len(half) and not other.count(0):
            return encoding
    return "utf-8-sig"


def _check_fields(text: str, separator: str, path: str | Path, what: str, cut: bool) -> None:
    """Refuse a table whose first lines have more fields than its header."""
    lines = text.splitlines()
    rows = list(
        islice(csv.reader(lines[:-1] if cut else lines, delimiter=separator, skipinitialspace=True), _LINES)
    )
    long = [k for k, row in enumerate(rows) if len(row) > len(rows[0])]
    if long:
        some = f"{count(len(long), 'line')} of the first {len(rows):,}, line {long[0] + 1} the first of them,"
        raise _too_many(path, what, some, len(rows[long[0]]), len(rows[0]), len(long))


def _too_many(path: str | Path, what: str, lines: str, found: int, header: int, n: int = 1) -> GeometryError:
    has = "has" if n == 1 else "have"
    return GeometryError(
        f"{what}: in {path} {lines} {has} {count(found, 'field')}, and the header has {header}.",
        option=what,
        found=found,
        remedy="Separators at the ends of lines must go; decimal commas, and text with a separator in it, need quotes.",
    )
