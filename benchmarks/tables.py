"""What the benchmarks share: a table that is printed and kept, with the machine and versions beside it."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

# This folder has a gpflow.py of its own, which must not be taken for GPflow.
sys.path[:] = [path for path in sys.path if Path(path or ".").resolve() != Path(__file__).resolve().parent]

RESULTS = Path(__file__).parent / "results"


def machine(*packages: str) -> str:
    """Return cores, Python and the versions of packages in one line."""
    versions = []
    for name in ("numpy", "scipy", *packages):
        try:
            versions.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            versions.append(f"{name} absent")
    return f"{os.cpu_count()} cores, Python {platform.python_version()}, " + ", ".join(versions)


def peak_memory() -> float:
    """Return the most memory that this process has held, in GB."""
    try:  # the resource module would count what the process that started this one held
        text = Path("/proc/self/status").read_text()
        return float(re.findall(r"VmHWM:\s+(\d+) kB", text)[0]) * 1024 / 1e9
    except (OSError, IndexError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def table(header: list[str], rows: list[list[object]]) -> str:
    """Return a Markdown table with columns padded to one width."""
    cells = [header, *[[c if isinstance(c, str) else f"{c:.4g}" for c in row] for row in rows]]
    width = [max(len(row[k]) for row in cells) for k in range(len(header))]
    lines = ["| " + " | ".join(c.ljust(w) for c, w in zip(row, width, strict=True)) + " |" for row in cells]
    lines.insert(1, "|" + "|".join("-" * (w + 2) for w in width) + "|")
    return "\n".join(lines)


def keep(name: str, text: str) -> None:
    """Print a result and write it to benchmarks/results/."""
    print(text)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.md").write_text(text + "\n", encoding="utf-8")


class Rows:
    """Results of a long run, each written into a folder as it comes, so that a run that ended goes on.

    Without a folder nothing is kept.
    """

    def __init__(self, folder: str | Path | None) -> None:
        self.folder = None if folder is None else Path(folder)

    def get(self, *key: object) -> dict[str, Any] | None:
        """Return the row of a key, None where it has not been made yet."""
        path = self._path(key)
        return json.loads(path.read_text(encoding="utf-8")) if path is not None and path.exists() else None

    def put(self, row: dict[str, Any], *key: object) -> dict[str, Any]:
        """Keep the row of a key, and return it."""
        path = self._path(key)
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_suffix(".part")
            part.write_text(json.dumps(row), encoding="utf-8")
            part.replace(path)
        return row

    def of(self, make: Callable[[], dict[str, Any]], *key: object) -> dict[str, Any]:
        """Return the row of a key, making it where it is not there."""
        found = self.get(*key)
        return self.put(make(), *key) if found is None else found

    def _path(self, key: tuple[object, ...]) -> Path | None:
        name = "__".join(re.sub(r"[^A-Za-z0-9.]+", "-", str(part)) for part in key)
        return None if self.folder is None else self.folder / f"{name}.json"
