"""Checkpoints: where a long fit is, written down every so often, so that one that was cut off goes on from there.

A file in the cache's folder holds the hyperparameters and the moments at the observations, under a hash of all that
the fit depends on. It is removed when the fit ends.
"""

from __future__ import annotations

import hashlib
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from geobgp.errors import CacheError, WriteError
from geobgp.inference.solver import Start
from geobgp.prior.cache import cache_directory
from geobgp.storage import store

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

#: Seconds between two writings; shorter fits leave no file.
EVERY = 20.0
#: Version: what other versions have written is not read.
_VERSION = 1


def content_key(words: str, arrays: Iterable[np.ndarray]) -> str:
    """Return a hash of words and arrays.

    Examples
    --------
    >>> content_key("a", [np.zeros(3)]) == content_key("a", [np.zeros(3)]) != content_key("b", [np.zeros(3)])
    True
    """
    digest = hashlib.blake2b(f"geobgp fit {_VERSION} {words}".encode(), digest_size=20)
    for array in arrays:
        plain = np.ascontiguousarray(array)
        digest.update(f"|{plain.dtype.str}|{plain.shape}|".encode())
        digest.update(plain.view(np.uint8).reshape(-1).data if plain.size else b"")
    return digest.hexdigest()


class Checkpoint:
    """The file of one fit.

    Parameters
    ----------
    key : str
        What the fit depends on: see `content_key`.
    every : float
        Seconds between two writings.
    """

    def __init__(self, key: str, every: float = EVERY) -> None:
        self.key, self.every = key, every
        self.facts: dict[str, Any] = {}
        self._last = time.monotonic()

    @property
    def path(self) -> Path:
        """Where it is kept."""
        return cache_directory() / f"{self.key}.fit"

    def read(self) -> tuple[dict[str, Any], Start] | None:
        """Return the facts and the place of a fit that was cut off; None if there is none, or it cannot be used."""
        if not self.path.exists():
            return None
        try:
            header, arrays = store.read(self.path, "fit")
            if header["key"] != self.key:
                return None
            names = ("theta", "covariance", "mean", "variance")
            return header["facts"], Start(*(np.asarray(arrays[name], float) for name in names))
        except (CacheError, KeyError):  # damaged: the fit begins anew, and writes it again
            return None

    def offer(self, at: Start) -> None:
        """Write down where the fit is, if it is time; what cannot be written is left."""
        if time.monotonic() - self._last < self.every:
            return
        arrays = {"theta": at.theta, "covariance": at.covariance, "mean": at.mean, "variance": at.variance}
        with suppress(OSError, WriteError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            store.write(self.path, "fit", {"key": self.key, "facts": self.facts}, arrays)
        self._last = time.monotonic()

    def done(self) -> None:
        """Remove it."""
        with suppress(OSError):
            self.path.unlink(missing_ok=True)
