"""Memory: how much of it is free, and arrays that nobody can write to."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np


def free_memory() -> int | None:
    """Return the bytes that can still be had, as far as the system tells."""
    found = []
    try:
        text = Path("/proc/meminfo").read_text()
        found.append(int(re.findall(r"MemAvailable:\s+(\d+) kB", text)[0]) * 1024)
    except (OSError, IndexError):
        try:
            found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
        except (AttributeError, ValueError, OSError):
            return None
    # A container may be held to less than the machine has; files it has read lately do not count as used.
    group = Path("/sys/fs/cgroup")
    for folder, most, used in (
        (group, "memory.max", "memory.current"),
        (group / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        try:
            room = int((folder / most).read_text()) - int((folder / used).read_text())
            files = re.findall(
                r"^(?:total_)?inactive_file (\d+)$", (folder / "memory.stat").read_text(), re.M
            )
            found.append(room + max(map(int, files), default=0))
        except (OSError, ValueError):
            continue
    return max(min(found), 0)


def frozen(array: np.ndarray) -> np.ndarray:
    """Return an array that cannot be written to any more.

    Examples
    --------
    >>> frozen(np.arange(3.0)).flags.writeable
    False
    """
    array.setflags(write=False)
    return array
