"""Programs that QGIS starts: in an environment without QGIS's own, read line by line, ended with all they started."""

from __future__ import annotations

import asyncio
import os
import queue
import signal
import sys
import threading
from pathlib import Path, PurePosixPath, PureWindowsPath

#: Seconds that a program has to end by itself when it is cancelled.
GRACE = 10
#: What variables begin with that QGIS, its installers and launchers set for their own libraries.
FOREIGN = (
    "PYTHON", "GDAL", "OGR_", "PROJ_", "QT", "QML", "QGIS", "OSGEO4W", "O4W", "GEOTIFF", "GISBASE", "GRASS", "SAGA",
    "VIRTUAL_ENV", "LD_LIBRARY_PATH", "DYLD_",
)  # fmt: skip
#: How the names of folders begin that hold QGIS with its own Python and libraries.
BUNDLES = ("qgis", "osgeo4")
#: Windows opens no console for it.
_NO_WINDOW = 0x08000000


def clean(environment, windows=os.name == "nt"):
    """Return an environment without what QGIS has set for itself, for programs with libraries of their own.

    Variables of Python, GDAL, PROJ, Qt and QGIS are left out, folders of QGIS on the path, and all that points into
    these.
    """
    pure, separator = (PureWindowsPath, ";") if windows else (PurePosixPath, ":")
    root = [part.lower() for part in pure(environment.get("OSGEO4W_ROOT", "")).parts]

    def inside(text):
        parts = [part.lower() for part in pure(text.strip('"')).parts]
        return any(part.startswith(BUNDLES) for part in parts) or (root and parts[: len(root)] == root)

    kept = {}
    for name, value in environment.items():
        if name.upper().startswith(FOREIGN):
            continue
        if name.upper() == "PATH":
            kept[name] = separator.join(folder for folder in value.split(separator) if folder and not inside(folder))
        elif not (pure(value).is_absolute() and inside(value)) or name.upper() in ("HOME", "USERPROFILE", "PWD"):
            kept[name] = value
    return {**kept, "PYTHONIOENCODING": "utf-8", "PYTHONUNBUFFERED": "1"}


def run(command, hear=lambda line: None, canceled=lambda: False, seconds=None):
    """Run a program to its end, or until it is cancelled; return its exit code.

    Parameters
    ----------
    command : list of str
    hear : callable(str)
        Is given each line of its output, in the thread of the caller.
    canceled : callable() -> bool
        Is asked several times in a second.
    seconds : float, optional
        When to give up.

    Raises
    ------
    OSError
        It cannot be started.
    TimeoutError
        It took too long, and was ended.
    """
    lines, stop, ended = queue.Queue(), threading.Event(), {}

    def follow():
        try:
            ended["code"] = asyncio.run(_follow(command, lines.put, stop.is_set, seconds))
        except Exception as error:  # it belongs to the caller
            ended["error"] = error
        finally:
            lines.put(None)

    # In a thread of its own: that of the caller may have a loop already.
    thread = threading.Thread(target=follow, name="geobgp", daemon=True)
    thread.start()
    while True:
        if canceled():
            stop.set()
        try:
            line = lines.get(timeout=0.1)
        except queue.Empty:
            continue
        if line is None:
            break
        if not stop.is_set():
            hear(line)
    thread.join()
    if isinstance(ended.get("error"), asyncio.TimeoutError):
        raise TimeoutError(f"It did not end within {seconds:g} s.")
    if "error" in ended:
        raise ended["error"]
    return ended["code"]


async def _follow(command, put, stopped, seconds):
    group = {"creationflags": _NO_WINDOW} if os.name == "nt" else {"start_new_session": True}
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        env=clean(os.environ), **group,
    )  # fmt: skip
    reading = asyncio.ensure_future(_read(process.stdout, put))
    loop = asyncio.get_running_loop()
    begin = loop.time()
    while not reading.done():
        await asyncio.wait([reading], timeout=0.1)
        late = seconds is not None and loop.time() - begin > seconds
        if stopped() or late:
            await _stop(process)
            reading.cancel()
            if late:
                raise asyncio.TimeoutError
            break
    return await process.wait()


async def _read(stream, put):
    """Hand on each line, however long."""
    rest = b""
    while True:
        chunk = await stream.read(1 << 16)
        *lines, rest = (rest + chunk).split(b"\n") if chunk else (rest, b"")
        for line in lines:
            put(line.decode("utf-8", "replace").rstrip())
        if not chunk:
            return


async def _stop(process):
    """End a process and all that it has started."""
    if os.name == "nt":
        taskkill = Path(os.environ.get("SYSTEMROOT", r"C:\Windows")) / "System32" / "taskkill.exe"
        killer = await asyncio.create_subprocess_exec(
            str(taskkill),
            "/F",
            "/T",
            "/PID",
            str(process.pid),
            stdout=asyncio.subprocess.DEVNULL,
            creationflags=_NO_WINDOW,
        )
        await killer.wait()
        return
    for how, grace in ((signal.SIGTERM, GRACE), (signal.SIGKILL, None)):
        try:
            os.killpg(process.pid, how)  # the second time: what has outlived its parent
            await asyncio.wait_for(process.wait(), grace)
        except ProcessLookupError:
            return
        except asyncio.TimeoutError:
            continue


def of_qgis():
    """Return the Python that QGIS runs, as a program: the embedding program itself is none."""
    names = ("python3.exe", "python.exe") if os.name == "nt" else ("bin/python3", "bin/python")
    places = (Path(root) / name for root in (sys.exec_prefix, sys.base_prefix) for name in names)
    return next((str(place) for place in places if place.is_file()), "")
