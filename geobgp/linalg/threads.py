"""Threads: a few tasks at the same time, where there is a core for each."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache


def cores() -> int:
    """Return how many threads may work at once: cores of this process, or OMP_NUM_THREADS if that is less."""
    try:
        found = len(os.sched_getaffinity(0))
    except AttributeError:  # not on this system
        found = os.cpu_count() or 1
    said = os.environ.get("OMP_NUM_THREADS", "")
    return min(found, int(said)) if said.isdigit() and int(said) > 0 else found


def together(tasks: list[Callable[[], None]], threads: int | None = None) -> None:
    """Do independent tasks, all of them, and return when they are done; an error of one is raised then.

    Examples
    --------
    >>> done = []
    >>> together([lambda: done.append(1), lambda: done.append(2)])
    >>> sorted(done)
    [1, 2]
    """
    if len(tasks) < 2 or (cores() if threads is None else threads) < 2:
        for task in tasks:
            task()
        return
    others = [_pool(os.getpid()).submit(task) for task in tasks[1:]]
    try:
        tasks[0]()
    finally:
        wait(others)
    for other in others:
        other.result()


@cache
def _pool(process: int) -> ThreadPoolExecutor:
    """Return the threads beside the calling one; a forked process needs its own."""
    return ThreadPoolExecutor(max_workers=max(cores() - 1, 1), thread_name_prefix="geobgp")
