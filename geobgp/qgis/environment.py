"""The Python that has geobgp: found, asked for its version, and made where there is none."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from pathlib import Path

from .program import clean, of_qgis, run

#: What the shell of geobgp knew when it wrote the plugin: its version, its commands and their options.
ABOUT = json.loads((Path(__file__).parent / "options.json").read_text("utf-8"))
#: Where to go when something is wrong with the Python.
REMEDY = "Choose 'Set up geobgp' in the menu Plugins, geobgp."
#: What is said of what was stopped.
CANCELLED = "Cancelled: nothing has changed."
#: Lines of pip's output by which a cause is known, and what to do.
_CAUSES = (
    (
        r"ensurepip|No module named venv",
        "This Python cannot make environments. On Debian and Ubuntu: sudo apt install python3-venv.",
    ),
    (r"No space left|not enough space", "The disk is full: free some space, and set up again."),
    (
        r"CERTIFICATE_VERIFY_FAILED|SSLError",
        "The connection is not trusted: a proxy may stand between. Ask who runs it for its certificate, and name the "
        "file in the variable PIP_CERT.",
    ),
    (
        r"Retrying|name resolution|getaddrinfo|Max retries|ProxyError|timed out|Network is unreachable",
        "There is no way to the network. Check the connection; behind a proxy set the variable HTTPS_PROXY. Without "
        "network, give a wheel of geobgp under 'Install' and wheels of what it needs in the folder PIP_FIND_LINKS.",
    ),
    (
        r"No matching distribution|Could not find a version|Invalid requirement|neither 'setup.py'|does not exist",
        "There is nothing of that name for this Python. Give another under 'Install': geobgp without a version, or the "
        "path of a wheel.",
    ),
    (r"Permission denied|Access is denied|Read-only", "The folder cannot be written: close programs that use it."),
)
#: Asks for the version; the folder that QGIS was started in may hold anything.
_VERSION = "import sys; sys.path = [p for p in sys.path if p]; import geobgp; print('geobgp', geobgp.__version__)"


class PythonError(Exception):
    """What is wrong, and what to do."""


def program_in(text):
    """Return the Python that a person means: a program, or the folder of an environment."""
    path = Path(text.strip().strip('"')).expanduser()
    if path.is_dir():
        names = ("bin/python", "Scripts/python.exe", "python.exe", "bin/python3", "python")
        path = next((path / name for name in names if (path / name).is_file()), path)
    return str(path)


def ask(program, code, seconds=120):
    """Run a line of Python; return the exit code and the lines that it prints."""
    lines = []
    return run([program, "-c", code], lines.append, seconds=seconds), lines


def version_of(text):
    """Return a Python and the version of its geobgp; refuse one that has none."""
    if not text:
        raise PythonError(f"geobgp needs a Python of its own, and none is named yet. {REMEDY}")
    program = program_in(text)
    try:
        code, lines = ask(program, _VERSION)
    except (OSError, TimeoutError) as error:
        raise PythonError(f"{text} cannot be run as Python ({error}). {REMEDY}") from error
    answers = [line.split(" ", 1)[1] for line in lines if line.startswith("geobgp ")]
    if code or not answers:
        last = next((line for line in reversed(lines) if line.strip()), "it printed nothing")
        raise PythonError(f"{text} has no geobgp ({last.strip()}). {REMEDY}")
    return program, answers[-1]


def mismatch(version):
    """Return what to say where the plugin was written by another version of geobgp; empty where it was not."""
    if version == ABOUT["version"]:
        return ""
    return (
        f"The plugin knows the options of geobgp {ABOUT['version']}, and its Python has {version}. Write the plugin "
        "anew with: geobgp qgis-plugin"
    )


def beside_the_program():
    """Return the Python of the geobgp on the path, if there is one."""
    shell = shutil.which("geobgp", path=clean(os.environ).get("PATH", ""))
    if shell is None:
        return ""
    path = Path(shell).resolve().parent / ("python.exe" if os.name == "nt" else "python")
    return str(path) if path.exists() else ""


def needed():
    """Return the oldest Python that geobgp runs on, as numbers."""
    return tuple(int(n) for n in ABOUT["python"].split("."))


def bases():
    """Return programs that may be a Python to build on: first those that geobgp is tested with, QGIS's own last."""
    path = clean(os.environ).get("PATH", "")
    names = [*(f"python{version}" for version in ABOUT["pythons"]), "python3", "python", "py"]
    found = [shutil.which(name, path=path) for name in names]
    return list(dict.fromkeys(p for p in [*found, of_qgis()] if p))


def check_base(program):
    """Refuse a Python that is too old, or that makes no environments."""
    oldest = ".".join(map(str, needed()))
    advice = f"Install Python {oldest} or newer, name it under 'Build on', and set up again."
    try:
        code, lines = ask(program, "import sys, venv, ensurepip, ssl; print('python', *sys.version_info[:2])", 60)
    except (OSError, TimeoutError) as error:
        raise PythonError(f"{program} cannot be run as Python ({error}). {advice}") from error
    answer = next((line.split()[1:] for line in lines if line.startswith("python ")), None)
    if answer is not None and tuple(map(int, answer)) < needed():
        raise PythonError(f"{program} is Python {'.'.join(answer)}, and geobgp needs {oldest}. {advice}")
    if code or answer is None:
        raise PythonError(f"{program}: {_cause(lines, advice)}")


def find_base():
    """Return the first Python that an environment can be built on."""
    problems = []
    for program in bases():
        try:
            check_base(program)
        except PythonError as problem:
            problems.append(str(problem))
        else:
            return program
    raise PythonError(
        problems[0] if problems else f"There is no Python here. Install Python {ABOUT['python']} or newer."
    )


class SetUp:
    """A new environment with geobgp, in a folder of its own; until all is well the one before stays.

    Parameters
    ----------
    folder : path
        Where environments are.
    requirement : str
        What pip installs: geobgp, with a version if need be, or the path of a wheel.
    base : str
        The Python to build on; by default the first one that serves.
    tell, progress : callable
        Are given what happens, in words, and how far it is, in per cent.
    canceled : callable() -> bool
    """

    def __init__(self, folder, requirement="", base="", *, tell=print, progress=lambda p: None, canceled=lambda: False):
        self.folder, self.base = Path(folder), base.strip()
        self.requirement = requirement.strip() or ABOUT["requirement"]
        self.tell, self.progress, self.canceled = tell, progress, canceled
        self.percent = 0.0

    def run(self):
        """Return the new Python; None where it was cancelled."""
        self.move(1)
        if self.base:
            base = program_in(self.base)
            check_base(base)
        else:
            self.tell("Looking for a Python to build on ...")
            base = find_base()
        self.folder.mkdir(parents=True, exist_ok=True)
        home = Path(tempfile.mkdtemp(prefix="env-", dir=self.folder))
        python = None
        try:
            python = self.build(base, home)
        finally:  # of the new one and those before only one stays
            for other in self.folder.glob("env-*") if python else [home]:
                if python is None or other != home:
                    shutil.rmtree(other, ignore_errors=True)
        return python

    def build(self, base, home):
        """Make an environment and install geobgp; return its Python."""
        self.tell(f"Making a virtual environment with {base} in {home} ...")
        self.move(4)
        if not self.step([base, "-P", "-m", "venv", str(home)], "The virtual environment could not be made"):
            return None
        python = program_in(str(home))
        self.tell(f"Installing {self.requirement} with all that it needs, which takes some minutes ...")
        self.move(12)
        pip = [python, "-P", "-m", "pip", "--no-input", "--disable-pip-version-check", "install", "--progress-bar=off"]
        if not self.step([*pip, self.requirement], f"{self.requirement} could not be installed"):
            return None
        self.tell("Trying it ...")
        self.move(94)
        _, version = version_of(python)
        self.move(100)
        self.tell(f"geobgp {version} is ready in {home}.")
        return python

    def step(self, command, failed):
        """Run a program; return whether it went to its end, and say why where it fails."""
        lines = []

        def hear(line):
            lines.append(line)
            self.tell(line)
            if line.startswith("Collecting "):
                self.move(self.percent + (75 - self.percent) / 25)
            elif line.startswith("Installing collected"):
                self.move(80)

        code = run(command, hear, self.canceled)
        if self.canceled():
            self.tell(CANCELLED)
            return False
        if code:
            raise PythonError(f"{failed}. {_cause(lines, 'What pip said is above.')}")
        return True

    def move(self, percent):
        """Move the bar, never back."""
        self.percent = max(self.percent, percent)
        self.progress(self.percent)


def _cause(lines, otherwise):
    """Return the last error of a program and what to do about it."""
    text = "\n".join(lines)
    errors = [line for line in lines if re.search(r"error", line, re.I)] or [line for line in lines if line.strip()]
    last = errors[-1].strip() if errors else "It printed nothing."
    remedy = next((words for pattern, words in _CAUSES if re.search(pattern, text)), otherwise)
    return f"{last.rstrip('.')}. {remedy}"
