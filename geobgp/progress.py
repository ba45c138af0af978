"""Stages: what is being done now, how long it took, told on standard error."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console


class Stage:
    """One stage under way: `tell` what it is at, and `note` what came of it."""

    def __init__(self, name: str, tell: Any = None) -> None:
        self.name = name
        self.detail = ""
        self._tell = tell

    def tell(self, words: str) -> None:
        """Say what the stage is doing now."""
        if self._tell is not None:
            self._tell(str(words))

    def note(self, words: str) -> None:
        """Keep what came of the stage, for the line that is printed at its end."""
        self.detail = str(words)


class Stages:
    """Silent stages: they only keep the time.

    Attributes
    ----------
    seconds : dict of str to float
        Wall-clock time by stage, in the order in which they began; stages of one name add up.

    Examples
    --------
    >>> stages = Stages()
    >>> with stages("land") as stage:
    ...     stage.note("9 polygons")
    >>> list(stages.seconds)
    ['land']
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[Stage]:
        """Run a stage."""
        stage = Stage(name)
        with self._timed(stage):
            yield stage

    @contextmanager
    def _timed(self, stage: Stage) -> Iterator[None]:
        begin = time.perf_counter()
        self.seconds.setdefault(stage.name, 0.0)
        try:
            yield
        finally:
            self.seconds[stage.name] += time.perf_counter() - begin

    def line(self, words: str) -> None:
        """Say something between stages."""


class ConsoleStages(Stages):
    """Stages on a terminal: a moving status, and one line each at the end.

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
        self.console = console or Console(stderr=True, highlight=False)
        self.verbose = verbose
        self._width = 12

    @contextmanager
    def __call__(self, name: str) -> Iterator[Stage]:
        """Run a stage and print what came of it."""
        from rich.text import Text

        begin = time.perf_counter()
        # A live status only where it can be redrawn: log files get whole lines.
        live = self.console.status(Text(name)) if self.console.is_terminal and not self.verbose else None
        stage = Stage(name, self._teller(name, live))
        if live is not None:
            live.start()
        try:
            with self._timed(stage):
                yield stage
        finally:
            if live is not None:
                live.stop()
        self._width = max(self._width, len(name))
        took = f"{time.perf_counter() - begin:.1f} s"
        self.console.print(
            Text.assemble(
                (f"  {name:<{self._width}}  ", "bold"),
                stage.detail,
                "  " if stage.detail else "",
                (took, "dim"),
            ),
            soft_wrap=True,
        )

    def _teller(self, name: str, live: Any) -> Any:
        from rich.text import Text

        def tell(words: str) -> None:
            if live is not None:
                live.update(Text(f"{name}: {words}"))
            elif self.verbose:
                self.console.print(Text(f"    {words}", style="dim"), soft_wrap=True)

        return tell

    def line(self, words: str) -> None:
        """Say something between stages."""
        from rich.text import Text

        self.console.print(Text(f"  {words}"), soft_wrap=True)
