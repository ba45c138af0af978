"""BLAS and LAPACK without the interpreter's lock, how many threads they use, and how much memory is free."""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy.linalg import blas, cython_blas, cython_lapack, lapack

# -- BLAS and LAPACK by address, without Python's lock: so that two threads can work on dense blocks at once --
# SciPy offers its BLAS to compiled code as function pointers. Called through them, a routine takes addresses instead
# of arrays, and other threads run meanwhile; SciPy's Python functions hold the lock. Where the pointers are not as
# expected these serve instead.


#: A routine as Fortran declares it, with the address of every argument.
Routine = Callable[..., Any]

_LETTERS = np.frombuffer(b"LNTR", np.uint8)
#: Addresses of letters.
LOWER, PLAIN, TRANSPOSED, RIGHT = (int(_LETTERS.ctypes.data) + i for i in range(4))
LEFT = LOWER
_NUMBERS = np.array([1.0, -1.0, 0.0])
#: Addresses of numbers.
ONE, MINUS_ONE, ZERO = (int(_NUMBERS.ctypes.data) + 8 * i for i in range(3))


class Integers:
    """The integers below a limit, each at an address of its own.

    Examples
    --------
    >>> integers = Integers(10)
    >>> ctypes.c_int.from_address(integers.at(7)).value
    7
    """

    def __init__(self, limit: int) -> None:
        self._values = np.arange(max(limit, 2), dtype=np.intc)
        self._start, self._step = int(self._values.ctypes.data), self._values.itemsize

    def at(self, value: int) -> int:
        """Return the address of an integer."""
        return self._start + self._step * value


def _pointer(module: Any, name: str) -> Routine | None:
    """Return a routine of SciPy's by its pointer; None unless its arguments are 32-bit integers and doubles."""
    try:
        capsule = module.__pyx_capi__[name]
        name_of, pointer_of = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
        name_of.restype, name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
        pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        signature = name_of(capsule)
        kinds = signature.decode().removeprefix("void (").removesuffix(")").split(", ")
        if not all(kind in ("char *", "int *") or kind.endswith("_d *") for kind in kinds):
            return None
        return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(kinds))(pointer_of(capsule, signature))
    except (AttributeError, KeyError, ValueError):
        return None


# -- the same through SciPy's Python functions ---------------------------------------------------------------


def _integer(address: int) -> int:
    return ctypes.c_int.from_address(address).value


def _number(address: int) -> float:
    return ctypes.c_double.from_address(address).value


def _is(address: int, letter: str) -> int:
    return int(ctypes.c_char.from_address(address).value == letter.encode())


def _matrix(address: int, rows: int, cols: int, leading: int | None = None) -> np.ndarray:
    """Return a matrix in Fortran order at an address, of which columns lie `leading` numbers apart."""
    apart = rows if leading is None else leading
    values = (ctypes.c_double * (apart * max(cols - 1, 0) + rows)).from_address(address)
    return np.ndarray((rows, cols), float, buffer=values, strides=(8, 8 * apart))  # type: ignore[arg-type]


def _dpotrf(uplo: int, n: int, a: int, lda: int, info: int) -> None:
    block = _matrix(a, _integer(n), _integer(n))
    block[:], status = lapack.dpotrf(block, lower=1, clean=0)
    ctypes.c_int.from_address(info).value = int(status)


def _dpotri(uplo: int, n: int, a: int, lda: int, info: int) -> None:
    block = _matrix(a, _integer(n), _integer(n))
    block[:], status = lapack.dpotri(block, lower=1)
    ctypes.c_int.from_address(info).value = int(status)


def _dtrsm(
    side: int, uplo: int, trans: int, diag: int, m: int, n: int, alpha: int, a: int, lda: int, b: int, ldb: int
) -> None:
    block = _matrix(b, _integer(m), _integer(n))
    triangle = _matrix(a, _integer(lda), _integer(lda))
    right, turned = _is(side, "R"), _is(trans, "T")
    block[:] = blas.dtrsm(_number(alpha), triangle, block, side=right, lower=1, trans_a=turned)


def _dsyrk(uplo: int, trans: int, n: int, k: int, alpha: int, a: int, lda: int, beta: int, c: int, ldc: int) -> None:
    block = _matrix(c, _integer(n), _integer(n))
    side = _matrix(a, _integer(n), _integer(k))
    added = blas.dsyrk(_number(alpha), side, lower=1)
    block[:] = added + (_number(beta) * block if _number(beta) else 0.0)


def _dsymm(
    side: int, uplo: int, m: int, n: int, alpha: int, a: int, lda: int, b: int, ldb: int, beta: int, c: int,
    ldc: int,
) -> None:  # fmt: skip
    block = _matrix(c, _integer(m), _integer(n))
    outer, other = _matrix(a, _integer(m), _integer(m)), _matrix(b, _integer(m), _integer(n))
    block[:] = blas.dsymm(_number(alpha), outer, other, lower=1)


def _dgemm(
    trans_a: int, trans_b: int, m: int, n: int, k: int, alpha: int, a: int, lda: int, b: int, ldb: int, beta: int,
    c: int, ldc: int,
) -> None:  # fmt: skip
    rows, cols, inner = _integer(m), _integer(n), _integer(k)
    first, second = _is(trans_a, "T"), _is(trans_b, "T")
    left = _matrix(a, *((inner, rows) if first else (rows, inner)), _integer(lda))
    right = _matrix(b, *((cols, inner) if second else (inner, cols)), _integer(ldb))
    block = _matrix(c, rows, cols, _integer(ldc))
    block[:] = blas.dgemm(_number(alpha), left, right, beta=_number(beta), c=block, trans_a=first, trans_b=second)


def _dtrsv(uplo: int, trans: int, diag: int, n: int, a: int, lda: int, x: int, incx: int) -> None:
    vector = _matrix(x, _integer(n), 1)[:, 0]
    vector[:] = blas.dtrsv(_matrix(a, _integer(n), _integer(n)), vector, lower=1, trans=_is(trans, "T"))


def _dgemv(
    trans: int, m: int, n: int, alpha: int, a: int, lda: int, x: int, incx: int, beta: int, y: int, incy: int
) -> None:
    rows, cols, turned = _integer(m), _integer(n), _is(trans, "T")
    vector, out = _matrix(x, rows if turned else cols, 1)[:, 0], _matrix(y, cols if turned else rows, 1)[:, 0]
    out[:] = blas.dgemv(_number(alpha), _matrix(a, rows, cols), vector, beta=_number(beta), y=out, trans=turned)


dpotrf: Routine = _pointer(cython_lapack, "dpotrf") or _dpotrf
dpotri: Routine = _pointer(cython_lapack, "dpotri") or _dpotri
dtrsm: Routine = _pointer(cython_blas, "dtrsm") or _dtrsm
dsyrk: Routine = _pointer(cython_blas, "dsyrk") or _dsyrk
dsymm: Routine = _pointer(cython_blas, "dsymm") or _dsymm
dgemm: Routine = _pointer(cython_blas, "dgemm") or _dgemm
dtrsv: Routine = _pointer(cython_blas, "dtrsv") or _dtrsv
dgemv: Routine = _pointer(cython_blas, "dgemv") or _dgemv


# -- Memory: how much of it is free, and arrays that nobody can write to -------------------------------------


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
            files = re.findall(r"^(?:total_)?inactive_file (\d+)$", (folder / "memory.stat").read_text(), re.M)
            found.append(room + max(map(int, files), default=0))
        except (OSError, ValueError):
            continue
    return max(min(found), 0)


def peak_memory() -> float:
    """Return the most bytes that this process has held so far; NaN where the system does not tell."""
    with suppress(OSError, StopIteration):
        lines = Path("/proc/self/status").read_text("utf-8").splitlines()
        return 1024.0 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    try:
        import resource
    except ImportError:  # Windows
        return float("nan")
    # On Linux this would count what the parent held as well.
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * (1.0 if sys.platform == "darwin" else 1024.0)


def frozen(array: np.ndarray) -> np.ndarray:
    """Return an array that cannot be written to any more.

    Examples
    --------
    >>> frozen(np.arange(3.0)).flags.writeable
    False
    """
    array.setflags(write=False)
    return array


# -- Threads: a few tasks at the same time, where there is a core for each -----------------------------------


def cores() -> int:
    """Return how many threads may work at once: cores of this process, or OMP_NUM_THREADS if that is less."""
    try:
        n = len(os.sched_getaffinity(0))
    except AttributeError:  # not on this system
        n = os.cpu_count() or 1
    said = os.environ.get("OMP_NUM_THREADS", "")
    return min(n, int(said)) if said.isdigit() and int(said) > 0 else n


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
