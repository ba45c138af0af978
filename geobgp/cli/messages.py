"""Messages: what the shell says of errors and warnings, one paragraph each, with its own names of options."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from geobgp.cli.options import render_option
from geobgp.errors import GeobgpError, GeobgpWarning, WriteError, captured_warnings, render_text
from geobgp.files import full, why_not_written


def explain(error: BaseException) -> str:
    """Return one paragraph for an error: what was found and what to do."""
    if isinstance(error, GeobgpError):
        return paragraph(error)
    if isinstance(error, MemoryError):
        return (
            "There is not enough memory for this. Use a larger "
            f"{render_option('cell_size')} or fewer {render_option('m')}, or a machine with more memory."
        )
    if isinstance(error, OSError):
        name = f" ({error.filename})" if error.filename else ""
        nothing = " Nothing was written." if name else ""  # without a name it may be standard output
        return f"A file could not be read or written{name}: {_system(error, '.')}{nothing}"
    return _ours(error, " Nothing was written.")


def reason(error: Exception, folder: str | Path) -> str:
    """Return why something could not be written into a folder, when the rest was.

    Drivers have their own errors for a full disk.
    """
    if not isinstance(error, (GeobgpError, MemoryError)) and (isinstance(error, OSError) or full(folder)):
        words = _system(error if isinstance(error, OSError) else OSError(), folder)
        return words[:1].upper() + words[1:]
    return explain(error) if isinstance(error, (GeobgpError, MemoryError)) else _ours(error)


def _system(error: OSError, folder: str | Path) -> str:
    """Return what the system says of a file that could not be written, and what to do."""
    return render_text(" ".join(why_not_written(error, folder)).strip(), render_option)


def _ours(error: BaseException, lost: str = "") -> str:
    """Return that an error is a mistake of geobgp's."""
    what = f"{type(error).__name__}: {error}".rstrip(".")
    return (
        f"geobgp has failed in a way that it should not: {what}.{lost} Run it again with --debug, and report what it "
        "prints."
    )


def paragraph(told: GeobgpError | GeobgpWarning) -> str:
    """Return an error or a warning in the words of the shell, on one line."""
    return " ".join(told.words(render_option).split())


def say(words: str, done: str = "") -> None:
    """Write to standard output; where that cannot be, say so, and what was `done` all the same.

    Parameters
    ----------
    words : str
    done : str
        "The results are in out/": what is there whether it can be said or not.
    """
    try:
        click.echo(words)
    except BrokenPipeError:
        raise
    except OSError as error:
        sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115  (what is left in its buffer cannot be written either)
        why = why_not_written(error, ".")[0]
        raise WriteError(f"Standard output cannot be written: {why} {done}".strip()) from error


@contextmanager
def showing_warnings() -> Iterator[list[str]]:
    """Show each warning of geobgp once, and yield a list of them as it grows; hide those of libraries."""
    shown: list[str] = []

    def show(warning: GeobgpWarning) -> None:
        text = paragraph(warning)
        if text not in shown:
            shown.append(text)
            click.echo(f"Warning: {text}", err=True)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with captured_warnings(show):
            yield shown
