"""Processes: a few of this machine that do pieces of work, each restarted if it dies.

They are plain interpreters that are told over pipes what to do. Nothing of the caller's script is run again in them, so
that it needs no ``if __name__ == "__main__"``; and one that dies takes only its own piece of work with it.
"""

from __future__ import annotations

import os
import pickle
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from geobgp.errors import WorkerError
from geobgp.scale.workers import AGAIN, Failed, Workers

_START = "import sys; sys.path[:] = {path!r}; from geobgp.scale.processes import serve; serve()"


class Processes(Workers):
    """Processes of this machine; a context manager that ends them.

    Parameters
    ----------
    n : int
        How many.

    Examples
    --------
    >>> with Processes(2) as processes:
    ...     base = processes.share(10)
    ...     sorted(processes.run(divmod, [31, 42, 53], base))
    [(0, (3, 1)), (1, (4, 2)), (2, (5, 3))]
    """

    def __init__(self, n: int) -> None:
        self.n, self.where = n, f"{n} processes of this machine"
        self._children: list[subprocess.Popen[bytes] | None] = [None] * n
        self._shared = 0

    def __enter__(self) -> Processes:
        self._folder = Path(tempfile.mkdtemp(prefix="geobgp-"))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for child in self._children:
            if child is not None:
                _end(child)
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def pids(self) -> list[int]:
        """Process ids of those that are alive."""
        return [child.pid for child in self._children if child is not None and child.poll() is None]

    def share(self, value: Any) -> Path:
        """Write a value to a file that each process reads once."""
        self._shared += 1
        path = self._folder / f"{self._shared}.pickle"
        with path.open("wb") as file:
            pickle.dump(value, file, protocol=pickle.HIGHEST_PROTOCOL)
        return path

    def run(self, function: Callable, items: Sequence[Any], *shared: Any) -> Iterator[tuple[int, Any]]:
        """Yield results as they come."""
        todo: queue.SimpleQueue[int] = queue.SimpleQueue()
        done: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
        for k in range(len(items)):
            todo.put(k)
        stop = threading.Event()

        def drive(slot: int) -> None:
            while not stop.is_set():
                try:
                    k = todo.get_nowait()
                except queue.Empty:
                    return
                try:
                    done.put((k, self._ask(slot, (function, items[k], shared), stop)))
                except Exception as error:  # what was asked for cannot be sent
                    done.put((k, Failed(error)))

        threads = [
            threading.Thread(target=drive, args=(slot,), daemon=True)
            for slot in range(min(self.n, len(items)))
        ]
        for thread in threads:
            thread.start()
        try:
            for _ in range(len(items)):
                yield done.get()
        finally:
            stop.set()
            if any(thread.is_alive() for thread in threads):  # whoever asked has gone: the work is dropped
                for slot, child in enumerate(self._children):
                    if child is not None and threads[slot : slot + 1] and threads[slot].is_alive():
                        child.kill()
            for thread in threads:
                thread.join(timeout=5.0)

    def _ask(self, slot: int, job: Any, stop: threading.Event) -> Any:
        """Let a process do a piece of work; one that dies is replaced, and the work begun again."""
        sent = pickle.dumps(job, protocol=pickle.HIGHEST_PROTOCOL)
        code: int | None = None
        for _ in range(AGAIN + 1):
            if stop.is_set():
                break
            child = self._children[slot]
            if child is not None and child.poll() is not None:
                _end(child)  # it died between two pieces of work: its pipes are closed
                child = None
            if child is None:
                child = self._children[slot] = _begin()
            assert child.stdin is not None and child.stdout is not None
            try:
                child.stdin.write(sent)
                child.stdin.flush()
                return pickle.load(child.stdout)
            except (EOFError, BrokenPipeError, pickle.UnpicklingError):
                code = _end(child)
                self._children[slot] = None
        return Failed(
            WorkerError(
                f"{AGAIN + 1} processes died of this piece of work, the last with exit code {code}.",
                found=code,
                remedy="Most often it is memory: use fewer processes, or larger cells.",
            )
        )


def _begin() -> subprocess.Popen[bytes]:
    """Start a process with one thread for BLAS, and the caller's path."""
    one = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
    return subprocess.Popen(
        [sys.executable, "-c", _START.format(path=[p or str(Path.cwd()) for p in sys.path])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | one,
        start_new_session=True,  # Ctrl-C is for the one who asks; without it they end by themselves
    )


def _end(child: subprocess.Popen[bytes]) -> int | None:
    """End a process, and wait for it; return its exit code."""
    assert child.stdin is not None and child.stdout is not None
    with suppress(BrokenPipeError):
        child.stdin.close()
    try:
        child.wait(timeout=2.0)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
    child.stdout.close()
    return child.returncode


# -- within a process


def serve() -> None:
    """Do what is asked on standard input, and answer on standard output, until the first is closed."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what anybody prints goes to standard error
    asked, known = sys.stdin.buffer, dict[Path, Any]()
    while True:
        try:
            function, item, shared = pickle.load(asked)
        except EOFError:
            return
        try:
            _answer(answers, function, item, shared, known)
        except BrokenPipeError:  # whoever asked has gone
            os._exit(0)


def _answer(
    answers: BinaryIO, function: Callable, item: Any, shared: tuple[Any, ...], known: dict[Path, Any]
) -> None:
    try:
        values = [_known(value, known) for value in shared]
        sent = pickle.dumps(function(item, *values), protocol=pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        sent = pickle.dumps(Failed(_plain(error)), protocol=pickle.HIGHEST_PROTOCOL)
    answers.write(sent)
    answers.flush()


def _plain(error: Exception) -> Exception:
    """Return an error that can be sent."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def _known(value: Any, known: dict[Path, Any]) -> Any:
    """Return what a path to a shared value stands for."""
    if not isinstance(value, Path):
        return value
    if value not in known:
        with value.open("rb") as file:
            known[value] = pickle.load(file)
    return known[value]
