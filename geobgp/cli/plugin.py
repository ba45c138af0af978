"""The plugin for QGIS: written as a zip, or into a profile, with all options as they are now."""

from __future__ import annotations

import dataclasses
import html
import importlib.metadata
import json
import math
import os
import re
import shutil
import sys
from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

import click

import geobgp
from geobgp.auto.options import OptionSet, Setting, TilesOptions, settings
from geobgp.cli.options import AnyStrataFiles, MapOptions, PrevalenceFiles, RiskFiles, ValueFiles, flag_of
from geobgp.errors import WriteError, option
from geobgp.files import check_unread, replacing

#: The folder within the zip, which is what QGIS calls the plugin.
NAME = "geobgp"
#: Commands that make maps, and what they can be told.
COMMANDS: dict[str, type[OptionSet]] = {
    "map": MapOptions,
    "risk": RiskFiles,
    "prevalence": PrevalenceFiles,
    "values": ValueFiles,
    "strata": AnyStrataFiles,
    "tiles": TilesOptions,
}
#: What is asked for at once, in this order; all else that need not be given is among the advanced parameters.
_FIRST = (
    "by", "water", "areas", "count", "status", "exposure", "exposure_column", "time", "every", "regions", "cell_size",
    "thresholds", "units", "title", "force",
)  # fmt: skip
#: Files of results that models and scripts may go on with: what they are, and where, the first that there is.
_RESULTS = (
    ("RASTER", "raster", "Map as a raster", ("q50.tif", "mean.tif", "mosaic.tif")),
    ("PROJECT", "file", "QGIS project", ("map.qgz",)),
    ("REPORT", "html", "Report", ("report.html",)),
    ("PAGE", "html", "Interactive map", ("map.html",)),
    ("TOTALS", "vector", "Totals of regions", ("regions.gpkg|layername=regions", "totals.gpkg")),
)
_COLUMNS = ("column", "columns", "column or values")
_ABOUT = (
    "geobgp maps where things happen. Points, counts by district, surveys or measurements go in together with "
    "coastline and water polygons; a calibrated map with its uncertainty comes out: rasters and a styled group of "
    "layers, an interactive map, tables and a report. Information crosses water only as far as the data support. "
    "The plugin runs geobgp in a Python of its own, which it can set up."
)
#: Where a project says nothing of its own.
_SOMEWHERE = "https://example.org/geobgp"


# -- what the shell knows --------------------------------------------------------------------------------------


def describe() -> dict[str, Any]:
    """Return the commands of the shell that make maps, with their options, as plain data."""
    about = importlib.metadata.metadata("geobgp")
    return {
        "version": geobgp.__version__,
        "requirement": f"geobgp=={geobgp.__version__}",
        "python": about["Requires-Python"].lstrip(">="),
        "pythons": _pythons(about.get_all("Classifier") or ()),
        "tags": about["Keywords"].split(","),
        "installed_by": "",
        "commands": [_command(name, options) for name, options in COMMANDS.items()],
    }


def _pythons(classifiers: Iterable[str]) -> list[str]:
    """Return the versions of Python that geobgp is tested with, the newest first.

    Examples
    --------
    >>> _pythons(["Programming Language :: Python :: 3.9", "Programming Language :: Python :: 3.12", "Typing :: Typed"])
    ['3.12', '3.9']
    """
    versions = re.findall(r":: Python :: 3\.(\d+)$", "\n".join(classifiers), re.M)
    return [f"3.{minor}" for minor in sorted(map(int, versions), reverse=True)]


def _command(name: str, options: type[OptionSet]) -> dict[str, Any]:
    """Return what there is to know of a command."""
    from geobgp.cli.app import cli

    command, known = cli.commands[name], settings(options)
    defaults = {f.name: f.default for f in dataclasses.fields(options)}
    order = {flag_of(one, known[one]): place for place, one in enumerate(_FIRST) if one in known}
    arguments = [param for param in command.params if isinstance(param, click.Argument)]
    first = str(arguments[0].name)
    parameters = [
        _parameter(str(param.name), known[str(param.name)], None, first, flag="", required=param.required)
        for param in arguments
    ]
    parameters += [
        _parameter(one, how, defaults[one], first, flag=how.short or flag_of(one, how))
        for one, how in known.items()
        if any(one == param.name for param in command.params if isinstance(param, click.Option))
    ]
    if not arguments[0].required:
        _or_of_areas(parameters, _name(first))
    parameters.sort(
        key=lambda one: (
            one["kind"] == "folder", one["advanced"], bool(one["flag"]), not one["required"],
            order.get(one["flag"], len(order)),
        )
    )  # fmt: skip
    written = str(command.help).replace("\b", "")
    return {
        "name": name,
        "title": command.get_short_help_str(limit=200).rstrip("."),
        "help": _page(written, parameters),
        "parameters": parameters,
        "results": [list(result) for result in _RESULTS if _makes(result[3], written, known)],
    }


def _or_of_areas(parameters: list[dict[str, Any]], data: str) -> None:
    """Let columns of data that may be left out be those of areas, which are not among those to choose from."""
    for one in parameters:
        if one["of"] == data:
            one["required"] = False
            one["help"] += f" (A column of areas: under Further options, {one['flag']} NAME.)"


def _makes(names: Iterable[str], written: str, known: Mapping[str, Setting]) -> bool:
    """Return whether a command may write one of some files: its help names them, or it has regions."""
    return "regions" in known or any(name.split("|")[0] in written for name in names)


def _parameter(
    name: str, how: Setting, default: Any, data: str, *, flag: str, required: bool | None = None
) -> dict[str, Any]:
    """Return an option as plain data."""
    if required is None:
        required = how.always or how.kind == "folder"
    whole = how.whole or (isinstance(default, int) and not isinstance(default, bool))
    column = how.kind in _COLUMNS and how.metavar in ("", "COLUMN")
    usual = default if isinstance(default, str | int | float) and how.kind != "flag" else None
    choices = how.choices() if callable(how.choices) else how.choices
    return {
        "name": _name(flag_of(name, how) if flag else name),
        "flag": flag,
        "kind": how.kind if column or how.kind not in _COLUMNS else "text",
        "label": _label(how.help) if flag or name in how.help.lower() else f"{name.capitalize()}: {_lower(how.help)}",
        "help": html.escape(how.help) + (f" <i>{html.escape(flag_of(name, how))}</i>" if flag else ""),
        "heading": how.heading,
        "required": required,
        "advanced": bool(flag) and not required and name not in _FIRST,
        "default": usual if usual != "" else None,
        "choices": [str(one) for one in choices] if how.kind == "choice" else [],
        "least": _finite(max(how.above, how.least)),
        "most": _finite(how.below),
        "whole": whole,
        "shape": how.shape,
        "of": _name(flag_of(how.of, Setting())) if how.of else _name(data) if column else "",
    }


def _name(flag: str) -> str:
    return flag.strip("-").replace("-", "_").upper()


def _label(text: str) -> str:
    """Return the first clause of a help text.

    Examples
    --------
    >>> _label("Side of a cell in metres; by default chosen.")
    'Side of a cell in metres'
    """
    return re.split(r"[;:]\s|\.\s|, such as |, e\.g\. ", text)[0].rstrip(".")


def _lower(text: str) -> str:
    return text[0].lower() + text[1:].rstrip(".")


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _page(text: str, parameters: list[dict[str, Any]]) -> str:
    """Return the help of a command as HTML, with the options as they are called in QGIS."""
    labels = {one["flag"]: one["label"] for one in parameters if one["flag"]}
    paragraphs = (html.escape(" ".join(part.split())) for part in text.split("\n\n"))
    page = "".join(f"<p>{part}</p>" for part in paragraphs)
    page = page.replace("OUT/", "the folder").replace(", and the exit code is 3", "")
    return re.sub(r"--[a-z-]+", lambda flag: f"“{labels.get(flag[0], flag[0])}”", page)


# -- the zip ---------------------------------------------------------------------------------------------------


def _members(*, here: bool) -> dict[str, bytes]:
    """Return the files of the plugin; with `here` it knows the Python that writes it."""
    about = describe() | ({"installed_by": sys.executable} if here else {})
    code = {
        item.name: item.read_bytes()
        for item in sorted((files("geobgp") / "qgis").iterdir(), key=lambda item: item.name)
        if item.name.endswith((".py", ".svg"))
    }
    return code | {
        "metadata.txt": _metadata().encode(),
        "LICENSE": _license().encode(),
        "options.json": (json.dumps(about, indent=1, ensure_ascii=False) + "\n").encode(),
    }


def _metadata() -> str:
    """Return what QGIS's plugin manager reads."""
    about = importlib.metadata.metadata("geobgp")
    urls = dict(line.split(", ", 1) for line in about.get_all("Project-URL") or ())
    urls = {name.lower(): url for name, url in urls.items()}
    home = urls.get("homepage", urls.get("repository", _SOMEWHERE))
    addresses = re.findall(r"[\w.+-]+@[\w.-]+", " ".join(about.get_all("Author-email") or ()))
    fields = {
        "name": "geobgp",
        "qgisMinimumVersion": "3.22",
        "qgisMaximumVersion": "4.99",
        "description": about["Summary"],
        "version": geobgp.__version__,
        "author": "The geobgp developers",
        "email": [*addresses, "geobgp@example.org"][0],
        "about": _ABOUT,
        "tracker": urls.get("issues", urls.get("tracker", f"{home}/issues")),
        "repository": urls.get("repository", urls.get("source", home)),
        "homepage": home,
        "hasProcessingProvider": "yes",
        "tags": about["Keywords"],
        "category": "Analysis",
        "icon": "icon.svg",
        "experimental": "False",
        "deprecated": "False",
        "supportsQt6": "True",
        "server": "False",
    }
    return "[general]\n" + "".join(f"{name}={text}\n" for name, text in fields.items())


def _license() -> str:
    """Return the licence of the package."""
    named = [path for path in importlib.metadata.files("geobgp") or () if path.name == "LICENSE"]
    if not named:
        raise WriteError("The licence of geobgp is not where it was installed.", remedy="Reinstall geobgp.")
    # What the package carries of others has a licence of its own.
    return min(named, key=lambda path: (path.parts[0] == "geobgp", len(path.parts))).read_text("utf-8")


def write_plugin(path: str | Path, *, force: bool = False) -> Path:
    """Write the plugin as a zip that QGIS installs; the same files give the same bytes.

    Examples
    --------
    >>> import tempfile
    >>> with ZipFile(write_plugin(Path(tempfile.mkdtemp()) / "geobgp-qgis.zip")) as archive:
    ...     sorted(name for name in archive.namelist() if not name.endswith(".py"))
    ['geobgp/LICENSE', 'geobgp/icon.svg', 'geobgp/metadata.txt', 'geobgp/options.json']
    """
    target = Path(path)
    if target.exists() and not force:
        raise WriteError(
            f"{target} exists.", option="output", remedy=f"Name another file, or replace it with {option('force')}."
        )
    check_unread(target)
    with replacing(target, parents=True) as temporary, ZipFile(temporary, "w", ZIP_DEFLATED) as archive:
        for name, content in _members(here=False).items():
            about = ZipInfo(f"{NAME}/{name}", (2026, 1, 1, 0, 0, 0))
            about.compress_type, about.external_attr = ZIP_DEFLATED, 0o644 << 16
            archive.writestr(about, content)
    return target


def install_plugin(profile: str = "default") -> Path:
    """Write the plugin into a profile of QGIS on this machine, in place of an older one; it knows this Python."""
    target = _profile_folder(profile) / "python" / "plugins" / NAME
    if target.exists() and not (target / "options.json").exists():
        raise WriteError(f"{target} is another plugin.", option="profile", found=profile, remedy="Remove it first.")
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for name, content in _members(here=True).items():
        (target / name).write_bytes(content)
    return target


def _profile_folder(profile: str) -> Path:
    """Return the folder of a profile of QGIS, which must be there."""
    places = _profiles()
    folder = next((p / profile for p in places if (p / profile).is_dir()), None)
    if folder is None:
        known = sorted(p.name for place in places if place.is_dir() for p in place.iterdir() if p.is_dir())
        raise WriteError(
            f"QGIS has no profile {profile!r} here"
            + (f"; there are {', '.join(known)}." if known else f", and no other: {places[0]} is not there."),
            option="profile",
            found=profile,
            remedy="Start QGIS once, or write a zip with -o and give it to QGIS: Plugins, Install from ZIP.",
        )
    return folder


def _profiles() -> list[Path]:
    """Return where QGIS keeps its profiles, by system."""
    home = Path.home()
    if sys.platform == "win32":
        base = [Path(os.environ.get("APPDATA", home / "AppData" / "Roaming"))]
    elif sys.platform == "darwin":
        base = [home / "Library" / "Application Support"]
    else:
        own = home / ".local" / "share"
        base = [Path(os.environ.get("XDG_DATA_HOME") or own), own, home / ".var" / "app" / "org.qgis.qgis" / "data"]
    return [place / "QGIS" / version / "profiles" for version in ("QGIS3", "QGIS4") for place in base]
