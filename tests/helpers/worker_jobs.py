"""Pieces of work for other processes, which find this folder among their paths however pytest was begun."""

from __future__ import annotations

import os
import signal
import time


def halve(item: int, by: int) -> float:
    return item / by


def add(first: float, second: float) -> float:
    return first + second


def who(item: float, seconds: float) -> int:
    time.sleep(seconds)
    return os.getpid()


def joined(first: str, second: str) -> str:
    return f"{first} {second}"


def named(item: int, tail: str) -> str:
    return f"{item}{tail}"


def die(item: int) -> int:
    if item == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return item
