"""Who does independent work: a Dask client, local processes, or this process."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from geobgp.errors import DataError, WorkerError, option

# -- Workers: who does independent pieces of work: this process, others of this machine, or those of a Dask cluster --
# Points, fits and tiles all go through `open_workers`, and see nothing of Dask:
#
# >>> with open_workers(n_jobs=1) as workers:
# ...     base = workers.share(10)
# ...     sorted(workers.run(divmod, [31, 42], base))
# [(0, (3, 1)), (1, (4, 2))]


#: Seconds to wait for a scheduler, and for the first of its workers.
PATIENCE = 10.0
#: How many times a piece of work is begun again whose worker has died, or has lost what it needs.
AGAIN = 3
#: Pieces that are with the workers at a time, for each of them; partial sums that are joined at once.
AHEAD, FAN = 4, 8


@dataclass(frozen=True)
class Failed:
    """What stands in place of a result that there is not."""

    error: Exception


class Workers(ABC):
    """Those who do the work.

    Attributes
    ----------
    n : int
        How many pieces are done at a time.
    where : str
        Where, in words.
    """

    n: int
    where: str

    @abstractmethod
    def share(self, value: Any) -> Any:
        """Hand a value to all workers, once; return what stands for it in `run` and `total`."""

    @abstractmethod
    def run(self, function: Callable, items: Sequence[Any], *shared: Any) -> Iterator[tuple[int, Any]]:
        """Yield (k, ``function(items[k], *shared)``) as they are done, a `Failed` where that raised an error.

        A piece whose worker dies is done again by another.
        """

    def gather(
        self, function: Callable, items: Sequence[Any], *shared: Any, step: Callable[[int, int], Any] | None = None
    ) -> list[Any]:
        """Return the results for all items in their order; an error is raised. `step` is told of the progress."""
        results = [None] * len(items)
        for done, (k, result) in enumerate(self.run(function, items, *shared), start=1):
            if isinstance(result, Failed):
                raise result.error
            results[k] = result
            if step is not None:
                step(done, len(items))
        return results

    def total(
        self, function: Callable, items: Sequence[Any], combine: Callable, *shared: Any, step: Callable[[int, int], Any]
    ) -> Any:
        """Return the results for all items, combined two by two in their order; None if there are no items.

        Parameters
        ----------
        function, items, shared
            As in `run`; an item, or a part of a tuple, may be a Dask object yet to be computed. An error is raised.
        combine : callable(a, b)
        step : callable(done, all)
            Told of the progress.
        """
        waiting: dict[int, Any] = {}
        out, at = None, 0
        for done, (k, result) in enumerate(self.run(function, items, *shared), start=1):
            if isinstance(result, Failed):
                raise result.error
            waiting[k] = result
            while at in waiting:
                out, at = (waiting.pop(at) if out is None else combine(out, waiting.pop(at))), at + 1
            step(done, len(items))
        return out


class Here(Workers):
    """The process that asks: one piece after the other."""

    n, where = 1, "this process"

    def share(self, value: Any) -> Any:
        """Return the value itself."""
        return value

    def run(self, function: Callable, items: Sequence[Any], *shared: Any) -> Iterator[tuple[int, Any]]:
        """Yield results in order."""
        for k, item in enumerate(items):
            try:
                yield k, function(_computed(item), *shared)
            except Exception as error:
                yield k, Failed(error)


def _computed(item: Any) -> Any:
    """Return an item with parts of Dask collections computed here and now; nothing of them is kept."""
    if isinstance(item, tuple):
        return tuple(_computed(one) for one in item)
    return item.compute(scheduler="synchronous") if hasattr(item, "compute") else item


class _Scattered:
    """A value that all workers of a cluster have; it can be sent again to those that come later."""

    def __init__(self, client: Any, value: Any) -> None:
        self._client, self._value = client, value
        self.send()

    def send(self) -> None:
        try:
            self.future = self._client.scatter(self._value, broadcast=True, hash=False)
        except TimeoutError as error:
            raise WorkerError(
                f"The cluster at {_address(self._client)} has no workers left.",
                option="client",
                found=len(self._client.nthreads()),
                remedy="See their logs: most often it is memory, or a module that they cannot import.",
            ) from error


class Cluster(Workers):
    """The workers of a Dask client.

    Parameters
    ----------
    client : distributed.Client
    """

    def __init__(self, client: Any) -> None:
        self.client = client
        threads = client.nthreads()
        if not threads:
            try:
                client.wait_for_workers(1, timeout=PATIENCE)
            except TimeoutError as error:
                raise WorkerError(
                    f"The cluster at {_address(client)} has no workers, after {PATIENCE:g} s still.",
                    option="client",
                    found=0,
                    remedy="Start some.",
                ) from error
            threads = client.nthreads()
        self.n = sum(threads.values())
        self.where = f"{len(threads)} workers of the cluster at {_address(client)}"

    def share(self, value: Any) -> Any:
        """Scatter a value to every worker."""
        return _Scattered(self.client, value)

    def run(self, function: Callable, items: Sequence[Any], *shared: Any) -> Iterator[tuple[int, Any]]:
        """Yield results as they come; only a few pieces are under way at a time."""
        from distributed import as_completed

        waiting = iter(range(len(items)))
        under_way: dict[str, tuple[int, Any, int]] = {}
        done = as_completed(loop=self.client.loop)

        def submit(k: int, tries: int) -> None:
            futures = [s.future if isinstance(s, _Scattered) else s for s in shared]
            future = self.client.submit(function, items[k], *futures, pure=False)
            under_way[future.key] = k, future, tries
            done.add(future)

        for k in islice(waiting, AHEAD * self.n):
            submit(k, 0)
        try:
            for future in done:
                k, _, tries = under_way.pop(future.key)
                result, lost = _outcome(future)
                if lost and tries < AGAIN:
                    for one in shared:
                        if isinstance(one, _Scattered):
                            one.send()
                    submit(k, tries + 1)
                    continue
                del future
                yield k, result
                for following in islice(waiting, 1):
                    submit(following, 0)
        finally:
            if under_way:  # whoever asked has gone
                self.client.cancel([future for _, future, _ in under_way.values()])

    def total(
        self, function: Callable, items: Sequence[Any], combine: Callable, *shared: Any, step: Callable[[int, int], Any]
    ) -> Any:
        """Combine results in a tree on the workers: what is read is forgotten as soon as it has been summed."""
        for tries in range(AGAIN + 1):
            try:
                return self._total(function, items, combine, shared, step)
            except _lost_errors():
                if tries == AGAIN:
                    raise
                for one in shared:
                    if isinstance(one, _Scattered):
                        one.send()
        return None

    def _total(
        self,
        function: Callable,
        items: Sequence[Any],
        combine: Callable,
        shared: Sequence[Any],
        step: Callable[[int, int], Any],
    ) -> Any:
        import dask
        from distributed import as_completed

        futures = [s.future if isinstance(s, _Scattered) else s for s in shared]
        call, join = dask.delayed(function, pure=False), dask.delayed(_combined, pure=False)
        level = [call(item, *futures) for item in items]
        while len(level) > AHEAD * FAN:
            level = [join(combine, level[k : k + FAN]) for k in range(0, len(level), FAN)]
        computed = self.client.compute(level)
        index = {future.key: k for k, future in enumerate(computed)}
        results: list[Any] = [None] * len(level)
        try:
            for done, future in enumerate(as_completed(computed, loop=self.client.loop), start=1):
                results[index[future.key]] = future.result()
                step(round(done * len(items) / len(level)), len(items))
        finally:
            self.client.cancel(computed)
        return _combined(combine, results) if results else None


def _combined(combine: Callable, results: Sequence[Any]) -> Any:
    out = results[0]
    for other in results[1:]:
        out = combine(out, other)
    return out


def _lost_errors() -> tuple[type[BaseException], ...]:
    """Return the errors that speak of workers that died, and not of the work."""
    from concurrent.futures import CancelledError

    from distributed.scheduler import KilledWorker

    return (CancelledError, KilledWorker)


def _outcome(future: Any) -> tuple[Any, bool]:
    """Return the result of a future, and whether it was lost with its workers."""
    try:
        return future.result(), False
    except _lost_errors() as error:
        told = WorkerError(
            f"Every worker that took this piece of work died, {AGAIN + 1} of them.",
            remedy="See the logs of the workers; most often it is memory.",
        )
        told.__cause__ = error
        return Failed(told), True
    except Exception as error:
        return Failed(error), False


def _address(client: Any) -> str:
    return str(getattr(client.scheduler, "address", None) or client)


def processors() -> int:
    """Return how many cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on this system
        return os.cpu_count() or 1


def _current_client() -> Any:
    """Return the Dask client that is in use, if any; Dask is not loaded to find out.

    A worker does its own piece of work alone.
    """
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return None
    with suppress(ValueError):
        distributed.get_worker()
        return None
    with suppress(ValueError):
        return distributed.default_client()
    return None


@contextmanager
def open_workers(client: Any = None, n_jobs: int | None = None) -> Iterator[Workers]:
    """Yield those who shall do the work.

    Parameters
    ----------
    client : distributed.Client or str, optional
        A Dask client, or the address of a scheduler. By default the current client, if there is one.
    n_jobs : int, optional
        Processes of this machine, where there is no client: one for each core by default; 1 is this process.

    Raises
    ------
    WorkerError
        If there is no such scheduler, it has no workers, or the client has been closed.
    """
    if n_jobs is not None and n_jobs < 1:
        raise DataError(
            f"{option('n_jobs')} is a number of processes, at least 1; found {n_jobs!r}.", option="n_jobs", found=n_jobs
        )
    client = _current_client() if client is None else client
    if isinstance(client, str):
        with _connected(client) as found:
            yield Cluster(found)
    elif client is not None:
        if getattr(client, "status", None) != "running":
            raise WorkerError(
                f"The Dask client is {getattr(client, 'status', 'no client')}, not running: {client!r}.",
                option="client",
                remedy="Open another one.",
            )
        yield Cluster(client)
    elif (n_jobs or processors()) == 1:
        yield Here()
    else:
        with Processes(n_jobs or processors()) as processes:
            yield processes


@contextmanager
def _connected(address: str) -> Iterator[Any]:
    """Yield a client of a scheduler; refuse with its address where there is none."""
    try:
        from distributed import Client
    except ImportError as error:
        raise WorkerError(
            f"Dask is not installed, and {option('client', address)} asks for it.",
            option="client",
            remedy="Install geobgp[dask].",
        ) from error
    found: Future[Any] = Future()

    def connect() -> None:
        try:
            client = Client(address, timeout=PATIENCE, set_as_default=False)
        except Exception as error:
            if found.set_running_or_notify_cancel():
                found.set_exception(error)
        else:
            if found.set_running_or_notify_cancel():
                found.set_result(client)
            else:  # too late
                client.close()

    # In a thread of its own: a port that takes the connection and never answers would hold the client for minutes.
    threading.Thread(target=connect, daemon=True).start()
    try:
        client = found.result(PATIENCE)
    except (OSError, TimeoutError, ValueError) as error:
        found.cancel()
        raise WorkerError(
            f"There is no Dask scheduler at {address}: nobody answered within {PATIENCE:g} s.",
            option="client",
            found=address,
            remedy="Start one (dask scheduler), or leave it out to use this machine.",
        ) from error
    with client:
        yield client


# -- Processes: a few of this machine that do pieces of work, each replaced if it dies -----------------------
# They are plain interpreters that are told over pipes what to do. Nothing of the caller's script is run again in them,
# so that it needs no ``if __name__ == "__main__"``; and one that dies takes only its own piece of work with it.


_START = "import sys; sys.path[:] = {path!r}; from geobgp.parallel import serve; serve()"


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
        self._idle: list[subprocess.Popen[bytes]] = []
        self._busy: list[subprocess.Popen[bytes]] = []
        self._shared = 0

    def __enter__(self) -> Processes:
        self._folder = Path(tempfile.mkdtemp(prefix="geobgp-"))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for child in (*self._idle, *self._busy):
            _end(child)
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def pids(self) -> list[int]:
        """Process ids of those that are alive."""
        return [child.pid for child in (*self._idle, *self._busy) if child.poll() is None]

    def share(self, value: Any) -> Path:
        """Write a value to a file that each process reads once."""
        self._shared += 1
        path = self._folder / f"{self._shared}.pickle"
        path.write_bytes(pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL))
        return path

    def run(self, function: Callable, items: Sequence[Any], *shared: Any) -> Iterator[tuple[int, Any]]:
        """Yield results as they come."""
        stop = threading.Event()
        pool = ThreadPoolExecutor(self.n)
        asked = {pool.submit(self._ask, (function, item, shared), stop): k for k, item in enumerate(items)}
        try:
            for future in as_completed(asked):
                yield asked.pop(future), future.result()
        finally:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            if asked:  # whoever asked has gone: the work is dropped
                for child in list(self._busy):
                    child.kill()
            pool.shutdown()

    def _ask(self, job: Any, stop: threading.Event) -> Any:
        """Let a process do a piece of work; one that dies is replaced, and the work begun again."""
        try:
            sent = pickle.dumps(job, protocol=pickle.HIGHEST_PROTOCOL)
        except Exception as error:  # what was asked for cannot be sent
            return Failed(error)
        code: int | None = None
        for _ in range(AGAIN + 1):
            if stop.is_set():
                break
            child = self._free()
            self._busy.append(child)
            assert child.stdin is not None and child.stdout is not None
            try:
                child.stdin.write(sent)
                child.stdin.flush()
                answer = pickle.load(child.stdout)
            except (EOFError, BrokenPipeError, pickle.UnpicklingError):
                self._busy.remove(child)
                code = _end(child)
            else:
                self._busy.remove(child)
                self._idle.append(child)
                return answer
        return Failed(
            WorkerError(
                f"{AGAIN + 1} processes died of this piece of work, the last with exit code {code}.",
                found=code,
                remedy="Most often it is memory: use fewer processes, or larger cells.",
            )
        )

    def _free(self) -> subprocess.Popen[bytes]:
        """Return a process that has nothing to do: a new one where there is none, or it died meanwhile."""
        while True:
            try:
                child = self._idle.pop()
            except IndexError:
                return _begin()
            if child.poll() is None:
                return child
            _end(child)


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


def _answer(answers: BinaryIO, function: Callable, item: Any, shared: tuple[Any, ...], known: dict[Path, Any]) -> None:
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
