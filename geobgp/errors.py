"""What can go wrong and what a user should know: every error and warning, with facts instead of prose.

An error says what is wrong, and carries the `option` at fault, what was `found` and a `remedy`. Where a text
names an option it does so through `option`, so that Python and the shell can each speak of it in their own
words:

>>> error = DataError("One point lies in the sea.", remedy=f"Use {option('on_water', 'drop')}.")
>>> print(error)
One point lies in the sea. Use on_water='drop'.
>>> error.words(lambda name, value: f"--{name.replace('_', '-')} {value}")
'One point lies in the sea. Use --on-water drop.'
"""

from __future__ import annotations

import json
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

#: Says an option's name and value (None: the name alone) in the words of an interface.
RenderOption = Callable[[str, Any], str]

_MARK = re.compile("\x02(.*?)\x03")
#: What names from data may hold and a terminal or a file would not take as text.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_PACKAGE = str(Path(__file__).parent) + os.sep


def option(name: str, value: Any = None, *, python: str | None = None) -> str:
    """Return an option's name (and value) for a message, to be rendered in the words of whoever shows it.

    Parameters
    ----------
    name : str
        The option's name in Python.
    value : str or number, optional
        What it is to be set to.
    python : str, optional
        What Python's users do instead, where it is more than setting an argument.
    """
    return f"\x02{json.dumps([name, value, python])}\x03"


def in_python(code: str, otherwise: str) -> str:
    """Return what Python's users write, for a message; `otherwise` is told to those who have no Python.

    Examples
    --------
    >>> told = f"Correct it{in_python(' with frame.set_crs(...)', ' in the file')}."
    >>> render_text(told), render_text(told, lambda name, value: name)
    ('Correct it with frame.set_crs(...).', 'Correct it in the file.')
    """
    return f"\x02{json.dumps([None, otherwise, code])}\x03"


def render_text(text: str, render_option: RenderOption | None = None) -> str:
    """Return a text with its options said in Python's words, or in those of `render_option`."""

    def say(match: re.Match[str]) -> str:
        try:
            name, value, python = json.loads(match[1])
        except (TypeError, ValueError):  # of the data, not ours
            return match[1]
        if render_option is not None:
            return str(value) if name is None else render_option(name, value)
        if python is not None:
            return str(python)
        return name if value is None else f"{name}={value!r}"

    return _UNSAFE.sub(lambda match: repr(match[0])[1:-1], _MARK.sub(say, text))


class _Message:
    """What errors and warnings have in common: a message, and the facts behind it."""

    def __init__(self, message: str = "", *, option: str | None = None, found: Any = None, remedy: str = "") -> None:
        super().__init__(message)  # type: ignore[call-arg]
        self.message, self.option, self.found, self.remedy = str(message), option, found, remedy

    def words(self, render_option: RenderOption | None = None) -> str:
        """Return what is wrong and what to do, in the words of an interface (Python's by default)."""
        return render_text(f"{self.message} {self.remedy}".strip(), render_option)

    def __str__(self) -> str:
        return self.words()


class GeobgpError(_Message, ValueError):
    """Base of every error that geobgp raises on purpose: the data or the options are at fault."""


class CRSError(GeobgpError):
    """A coordinate reference system is missing, geographic, or not in metres."""


class GeometryError(GeobgpError):
    """Points or polygons cannot be read or used."""


class DomainError(GeobgpError):
    """No usable land, or a grid that does not fit it."""


class DataError(GeobgpError):
    """Counts, exposure, covariates or values do not fit the model."""


class SizeError(GeobgpError):
    """What was asked for needs more memory, cells or features than there are."""


class CacheError(GeobgpError):
    """A stored file is damaged or is not what it claims to be."""


class WriteError(GeobgpError):
    """A file cannot be written."""


class WorkerError(GeobgpError):
    """A cluster cannot be reached, or those who did the work have died."""


class GeobgpWarning(_Message, UserWarning):
    """Something the user should know, with the number found and the remedy."""


class MissedVarianceWarning(GeobgpWarning):
    """The features are too few for the lengthscale that the data show."""


class ResolutionWarning(GeobgpWarning):
    """Time ended the search for cells as fine as the points ask for."""


class DroppedPointsWarning(GeobgpWarning):
    """Points were moved or left out."""


class InputWarning(GeobgpWarning):
    """An exposure, a covariate or a region was used otherwise than it was given."""


class ConvergenceWarning(GeobgpWarning):
    """A fit ended before it had settled, or was held by a limit."""


class CacheWarning(GeobgpWarning):
    """A stored file could not be used or written."""


class CheckWarning(GeobgpWarning):
    """The map does not agree with the points."""


class StrataWarning(GeobgpWarning):
    """Some of many maps could not be made."""


def warn(warning: GeobgpWarning) -> None:
    """Raise a warning that points to the line, outside of geobgp, whose call led to it."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, level = frame.f_back, level + 1
    warnings.warn(warning, stacklevel=level)


@contextmanager
def captured_warnings(hear: Callable[[GeobgpWarning], Any]) -> Iterator[None]:
    """Hand the warnings of geobgp to `hear` instead of showing them; those of others are shown as ever.

    Examples
    --------
    >>> kept: list[GeobgpWarning] = []
    >>> with captured_warnings(kept.append):
    ...     warn(CheckWarning("Too many points in the north."))
    >>> [str(warning) for warning in kept]
    ['Too many points in the north.']
    """
    with warnings.catch_warnings():
        warnings.simplefilter("always", GeobgpWarning)
        others = warnings.showwarning

        def show(message: Any, category: type[Warning], *where: Any, **more: Any) -> None:
            if isinstance(message, GeobgpWarning):
                hear(message)
            else:
                others(message, category, *where, **more)

        warnings.showwarning = show
        yield
