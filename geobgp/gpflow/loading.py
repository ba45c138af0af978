"""Loads GPflow quietly, or says how to install it; nothing of the user's settings stays changed."""

from __future__ import annotations

import importlib
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from geobgp.errors import GeobgpError

#: How GPflow is installed.
INSTALL = "pip install 'geobgp[gpflow]'"
_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
_LOG_LINE = re.compile(
    r"[IWEF]\d{4} [\d:]+|\d{4}-\d\d-\d\d [\d:.]+: [IWE] |WARNING: All log messages before absl|"
    r"To enable the following instructions"
)


class MissingGPflowError(GeobgpError, ImportError):
    """GPflow, or a package that it needs, cannot be imported."""


def load_gpflow() -> None:
    """Import GPflow and TensorFlow without their log lines and deprecation warnings.

    TensorFlow writes to the process's standard error from C++; its log lines are taken out and everything
    else is passed on. Whoever has set TF_CPP_MIN_LOG_LEVEL, or has loaded TensorFlow already, is left alone.

    Raises
    ------
    MissingGPflowError
        With the line that installs it.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", PendingDeprecationWarning)
        try:
            if _LEVEL in os.environ or "tensorflow" in sys.modules:
                importlib.import_module("gpflow")
            else:
                with _quiet():
                    importlib.import_module("gpflow")
                    # Looks for a GPU now, while what it logs about there being none is taken out.
                    importlib.import_module("tensorflow").config.list_physical_devices()
        except (ImportError, AttributeError) as error:  # the latter with a NumPy that is too new for it
            raise MissingGPflowError(
                f"geobgp.gpflow.models needs GPflow, which cannot be imported ({error}). Install it with: {INSTALL}"
            ) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Take TensorFlow's log lines out of standard error."""
    try:
        number = sys.__stderr__.fileno() if sys.__stderr__ is not None else 2
        kept = os.dup(number)
    except (OSError, ValueError):  # no such thing as a standard error here
        yield
        return
    os.environ[_LEVEL] = "1"
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), number)
        failed = True
        try:
            yield
            failed = False
        finally:
            os.dup2(kept, number)
            os.close(kept)
            os.environ.pop(_LEVEL, None)
            file.seek(0)
            text = file.read().decode(errors="replace").splitlines(keepends=True)
            rest = [line for line in text if failed or not _LOG_LINE.match(line)]
            if rest and sys.stderr is not None:
                sys.stderr.write("".join(rest))
