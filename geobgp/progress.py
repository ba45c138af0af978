"""Progress: which stage is under way and how far it is, told on standard error or to whoever asks.

Everything that may take long has an argument ``progress``; `as_progress` says what it can be. Inside, a
function opens a stage, and hands it on to what does the work:

>>> with as_progress(print).stage("features") as stage:
...     stage.tell("eigenpairs")
...     stage.step(128, 256)
...     stage.note("256, neumann")
eigenpairs
eigenpairs, 128 of 256
"""

from __future__ import annotations

import json
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

#: Seconds after which a stage is shown on a terminal while it lasts.
PATIENCE = 1.0

_Show = Callable[[str, "int | None", "int | None"], None]


class Stage:
    """One stage under way: `tell` what it is doing, `step` how far it is, and `note` what came of it.

    Parameters
    ----------
    name : str
    show : callable(words, done, total), optional
        Told of everything; done and total may be None.
    """

    def __init__(self, name: str = "", show: _Show | None = None) -> None:
        self.name = name
        self.words = ""
        self.detail, self.style = "", ""
        self._show = show or (lambda words, done, total: None)

    def tell(self, words: str) -> None:
        """Say what the stage is doing now."""
        self.words = str(words)
        self._show(self.words, None, None)

    def step(self, done: int, total: int | None = None) -> None:
        """Say how much of it is done, of how much if that is known."""
        self._show(self.words, done, total)

    def note(self, words: str, style: str = "") -> None:
        """Keep what came of the stage, for the line that is printed at its end, in a colour on a console."""
        self.detail, self.style = str(words), style


class Progress:
    """Silent progress: it only keeps the time.

    Attributes
    ----------
    seconds : dict of str to float
        Wall-clock time by stage, in the order in which they began; stages of one name add up.

    Examples
    --------
    >>> progress = Progress()
    >>> with progress.stage("land") as stage:
    ...     stage.note("9 polygons")
    >>> list(progress.seconds)
    ['land']
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[Stage]:
        """Run a stage."""
        begin = time.perf_counter()
        self.seconds.setdefault(name, 0.0)
        try:
            with self._shown(name) as stage:
                yield stage
        finally:
            self.seconds[name] += time.perf_counter() - begin

    @contextmanager
    def _shown(self, name: str) -> Iterator[Stage]:
        yield Stage(name)

    def line(self, words: str) -> None:
        """Say something between stages."""


class ConsoleProgress(Progress):
    """Progress on a terminal: a bar for what takes over a second, and one line for each stage at its end.

    Where it cannot be redrawn, in a log file say, there are the lines only.

    Parameters
    ----------
    console : rich.console.Console, optional
        Standard error by default.
    verbose : bool
        Keep a line for everything a stage tells, not only for its end.
    """

    def __init__(self, console: Console | None = None, *, verbose: bool = False) -> None:
        from rich.console import Console

        super().__init__()
        # Not only colours are unwanted then: a log shall hold no escapes at all.
        plain = False if os.environ.get("NO_COLOR") else None
        self.console = console or Console(stderr=True, highlight=False, force_terminal=plain)
        self.verbose = verbose
        self._width = 12
        self._told = 0.0

    @contextmanager
    def _shown(self, name: str) -> Iterator[Stage]:
        from rich.text import Text

        begin = time.perf_counter()
        live = self.console.is_terminal and not self.verbose
        with self._bar(name) if live else nullcontext(self._lines if self.verbose else None) as show:
            stage = Stage(name, show)
            yield stage
        self._width = max(self._width, len(name))
        took = f"{time.perf_counter() - begin:.1f} s"
        gap = "  " if stage.detail else ""
        self._print(
            Text.assemble((f"  {name:<{self._width}}  ", "bold"), (stage.detail, stage.style), gap, (took, "dim"))
        )

    @contextmanager
    def _bar(self, name: str) -> Iterator[_Show]:
        """Yield what is told of a stage; it is shown after a second, and gone at the end."""
        from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Live

        plain = TextColumn("{task.description}", markup=False)
        live = Live(SpinnerColumn(), plain, BarColumn(), TimeElapsedColumn(), console=self.console, transient=True)
        task = live.add_task(name, total=None)
        timer = threading.Timer(PATIENCE, live.start)
        timer.daemon = True
        timer.start()

        def show(words: str, done: int | None, total: int | None) -> None:
            text = _in_words(words, done, total)
            live.update(task, description=f"{name}: {text}" if text else name, completed=done, total=total)

        try:
            yield show
        finally:
            timer.cancel()
            timer.join()
            live.stop()

    def _lines(self, words: str, done: int | None, total: int | None) -> None:
        from rich.text import Text

        # Steps may come in thousands.
        if done is None or done == total or time.perf_counter() - self._told > PATIENCE:
            self._told = time.perf_counter()
            self._print(Text(f"    {_in_words(words, done, total)}", style="dim"))

    def _print(self, text: Any) -> None:
        self.console.print(text, soft_wrap=True)

    def line(self, words: str) -> None:
        """Say something between stages."""
        from rich.text import Text

        self._print(Text(f"  {words}"))


class JsonProgress(Progress):
    """Progress for programs: a line of JSON for each thing that is told.

    A line has the ``stage`` and its ``state``: "begin", "under way" (with ``words``, ``done``, ``total``) or "end"
    (with ``words`` and ``seconds``).

    Parameters
    ----------
    write : callable(str), optional
        Is given each line; by default it goes to standard error.

    Examples
    --------
    >>> with JsonProgress(print).stage("features") as stage:
    ...     stage.step(128, 256)
    {"stage": "features", "state": "begin"}
    {"stage": "features", "state": "under way", "words": "", "done": 128, "total": 256}
    {"stage": "features", "state": "end", "words": "", "seconds": 0.0}
    """

    def __init__(self, write: Callable[[str], None] | None = None) -> None:
        super().__init__()
        self._write = write or (lambda line: print(line, file=sys.stderr, flush=True))
        self._told = -math.inf

    @contextmanager
    def _shown(self, name: str) -> Iterator[Stage]:
        def say(state: str, **facts: Any) -> None:
            self._write(json.dumps({"stage": name, "state": state} | facts))

        def show(words: str, done: int | None, total: int | None) -> None:
            # Steps may come in thousands.
            if done is None or done == total or time.perf_counter() - self._told > PATIENCE / 4:
                self._told = time.perf_counter()
                say("under way", words=words, done=done, total=total)

        begin = time.perf_counter()
        say("begin")
        stage = Stage(name, show)
        yield stage
        say("end", words=stage.detail, seconds=round(time.perf_counter() - begin, 1))


def shell_progress(*, quiet: bool, verbose: bool, form: str = "console") -> Progress:
    """Return the progress that a command shows: none, on the console, or as lines of "json"."""
    if quiet:
        return Progress()
    return JsonProgress() if form == "json" else ConsoleProgress(verbose=verbose)


class _Within(Progress):
    """Stages that are told as part of another."""

    def __init__(self, outer: Stage) -> None:
        super().__init__()
        self._outer = outer

    @contextmanager
    def _shown(self, name: str) -> Iterator[Stage]:
        yield Stage(name, self._outer._show)


#: What an argument ``progress`` can be.
ProgressLike = bool | Progress | Stage | Callable[[str], None]


def as_progress(value: ProgressLike) -> Progress:
    """Return the progress that an argument ``progress`` stands for.

    Parameters
    ----------
    value : bool, Progress, Stage or callable
        True shows it on standard error; a `Progress` is used as it is; what is done within a `Stage` is told
        as part of it; a callable is given a few words each time.
    """
    if isinstance(value, Progress):
        return value
    if isinstance(value, Stage):
        return _Within(value)
    if callable(value):
        hear = value
        return _Within(Stage("", lambda words, done, total: hear(_in_words(words, done, total))))
    return ConsoleProgress() if value else Progress()


def _in_words(words: str, done: int | None, total: int | None) -> str:
    if done is None:
        return words
    count = f"{done:,}" if total is None else f"{done:,} of {total:,}"
    return f"{words}, {count}" if words else count
