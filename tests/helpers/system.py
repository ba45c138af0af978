"""Real programs for tests: Debian's QGIS and a headless Chromium, driven with the standard library only.

Where one is missing the test is skipped, unless GEOBGP_REQUIRE_SYSTEM=1, which makes that a failure.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

QGIS_PYTHON = "/usr/bin/python3"


def missing(what: str) -> None:
    """Skip the test, or fail it when the machine is supposed to have everything."""
    if os.environ.get("GEOBGP_REQUIRE_SYSTEM") == "1":
        pytest.fail(f"{what} is not on this machine, and GEOBGP_REQUIRE_SYSTEM=1")
    pytest.skip(f"{what} is not on this machine")


def _of_qgis(home: str | Path) -> dict[str, str]:
    """Return an environment for QGIS, without a screen, with a home of its own and the system's programs alone."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "GDAL", "PROJ", "VIRTUAL"))}
    own = {"PATH": "/usr/bin:/bin", "HOME": str(home), "XDG_RUNTIME_DIR": str(home)}
    return environment | own | {"QT_QPA_PLATFORM": "offscreen"}


def qgis_process(home: Path, *arguments: str, **variables: str) -> str:
    """Run QGIS's own program for Processing, with a home folder that may have plugins; return what it prints."""
    program = "/usr/bin/qgis_process.bin"  # Debian's script around it gives it an option of the desktop's
    if not Path(program).exists():
        missing("qgis_process")
    done = subprocess.run(
        [program, *arguments], env=_of_qgis(home) | variables, capture_output=True, text=True, timeout=240, check=False
    )
    return f"{done.stdout}\n{done.stderr}"


def qgis_desktop(home: Path, script: Path, *arguments: str | Path, **variables: str) -> Any:
    """Run a script in QGIS's window, on a screen of memory; it writes JSON to the file that it is given first."""
    if not (Path("/usr/bin/qgis.bin").exists() and shutil.which("Xvfb")):
        missing("qgis or Xvfb")
    told = home / "told.json"
    words = json.dumps([str(told), *map(str, arguments)])
    done = subprocess.run(
        ["xvfb-run", "-a", "-s", "-screen 0 1400x1000x24", "/usr/bin/qgis.bin", "--noversioncheck", "--nologo",
         "--code", str(script)],
        env=_of_qgis(home) | {"QT_QPA_PLATFORM": "xcb", "GEOBGP_CHECK": words} | variables,
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert told.exists(), f"QGIS said nothing (exit {done.returncode}):\n{done.stdout}\n{done.stderr}"
    return json.loads(told.read_text("utf-8"))


def run_qgis(script: Path, *arguments: str | Path, timeout: float = 240) -> Any:
    """Run a script in QGIS's Python, offscreen; it prints one line of JSON, which is returned."""
    with tempfile.TemporaryDirectory() as home:
        environment = _of_qgis(home)
        probe = subprocess.run(
            [QGIS_PYTHON, "-c", "import qgis.core"], env=environment, capture_output=True, check=False
        )
        if probe.returncode != 0:
            missing("python3-qgis")
        done = subprocess.run(
            [QGIS_PYTHON, str(script), *map(str, arguments)],
            env=environment, capture_output=True, text=True, timeout=timeout, check=False,
        )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    assert lines, f"QGIS said nothing (exit {done.returncode}):\n{done.stdout}\n{done.stderr}"
    return json.loads(lines[-1])


class Chromium:
    """One page in a headless Chromium with the network cut, through the DevTools pipe.

    Keeps every console message, exception and request. Use as a context manager.
    """

    def __init__(self, width: int = 1280, height: int = 800, *, mobile: bool = False, scale: float = 1) -> None:
        program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
        if program is None:
            missing("Chromium")
        self.program = program
        self.size = (width, height)
        self.mobile, self.scale = mobile, scale
        self.console: list[str] = []
        self.requests: list[str] = []

    def __enter__(self) -> Chromium:
        self.profile = tempfile.mkdtemp(prefix="geobgp-chromium-")
        to_child, self._write = os.pipe()
        self._read, from_child = os.pipe()
        # The browser wants its pipe on descriptors 3 and 4: a shell puts them there.
        high_in, high_out = (os.dup(fd) for fd in (to_child, from_child))
        command = [
            "/bin/bash", "-c", f'exec "$@" 3<&{high_in} 4>&{high_out}', "chromium", self.program,
            "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu",
            "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run", "--disable-extensions",
            "--disable-background-networking", "--disable-component-update", "--disable-sync",
            "--host-resolver-rules=MAP * ~NOTFOUND", "--force-color-profile=srgb",
            f"--user-data-dir={self.profile}", f"--window-size={self.size[0]},{self.size[1]}", "about:blank",
        ]  # fmt: skip
        self.process = subprocess.Popen(
            command, pass_fds=(high_in, high_out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        for fd in (to_child, from_child, high_in, high_out):
            os.close(fd)
        self._number, self._buffer, self._session = 0, b"", None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.resize(*self.size)
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(Exception):
            self._session = None
            self.call("Browser.close")
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(10)
        os.close(self._write)
        os.close(self._read)
        shutil.rmtree(self.profile, ignore_errors=True)

    def call(self, method: str, **params: Any) -> Any:
        """Send one command and return its result; events that come meanwhile are kept."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + 60
        while True:
            reply = self._next(deadline - time.monotonic())
            if reply.get("id") == self._number:
                assert "error" not in reply, f"{method}: {reply['error']}"
                return reply["result"]
            self._event(reply)

    def _next(self, seconds: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready = select.select([self._read], [], [], max(seconds, 0.0))[0]
            assert ready, "Chromium does not answer"
            chunk = os.read(self._read, 1 << 20)
            assert chunk, "Chromium has ended"
            self._buffer += chunk
        line, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(line)

    def _event(self, event: dict[str, Any]) -> None:
        method, params = event.get("method"), event.get("params", {})
        if method == "Runtime.consoleAPICalled":
            self.console.append(f"{params['type']}: {[a.get('value') for a in params['args']]}")
        elif method == "Runtime.exceptionThrown":
            self.console.append(f"exception: {params['exceptionDetails']}")
        elif method == "Log.entryAdded":
            self.console.append(f"{params['entry']['level']}: {params['entry']['text']}")
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])

    def resize(self, width: int, height: int) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=self.scale, mobile=self.mobile,
        )  # fmt: skip
        if self.mobile:
            self.call("Emulation.setTouchEmulationEnabled", enabled=True)

    def open(self, path: Path, link: str = "") -> None:
        """Open a saved map, at what a link to it keeps, and wait until it is complete."""
        self.call("Page.navigate", url=path.resolve().as_uri() + link)
        for _ in range(200):
            if self.run("document.readyState === 'complete' && !!(window.geobgp && geobgp.current)"):
                break
            time.sleep(0.05)
        self.run("geobgp.current.ready.then(() => true)")
        self.settle()

    def settle(self) -> None:
        """Wait for two frames and any animation of the map."""
        self.run("new Promise(r => setTimeout(() => requestAnimationFrame(() => requestAnimationFrame(r)), 400))")

    def run(self, expression: str) -> Any:
        """Evaluate JavaScript and return its value."""
        result = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def mouse(self, x: float, y: float, *, click: bool = False) -> None:
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        # Moves are handed to the page once per frame.
        self.run("new Promise(r => requestAnimationFrame(() => setTimeout(r, 30)))")
        if click:
            for kind in ("mousePressed", "mouseReleased"):
                self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
            self.settle()

    def key(self, name: str, code: int) -> None:
        """Press a key; `code` is its virtual key code."""
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=name, code=name, windowsVirtualKeyCode=code)
        self.settle()

    def pdf(self, *, landscape: bool) -> bytes:
        """Print the page on A4."""
        printed = self.call(
            "Page.printToPDF", landscape=landscape, printBackground=True, paperWidth=8.27, paperHeight=11.69
        )
        return base64.b64decode(printed["data"])

    def screenshot(self, path: Path | None = None) -> Any:
        """Return the page as an (height, width, 3) uint8 array; write it too if a path is given."""
        import io

        import numpy as np
        from PIL import Image

        data = base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])
        if path is not None:
            path.write_bytes(data)
        return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
