"""``geobgp qgis-script``: where the Processing script for QGIS is, and how it gets into a profile."""

from __future__ import annotations

import os
import sys
from importlib.resources import files
from pathlib import Path

from geobgp.errors import WriteError
from geobgp.files import replacing

#: The script, which QGIS runs and we only carry.
SCRIPT = "geobgp_map.py"
_UNSET = 'INSTALLED_BY = ""'


def script_path() -> Path:
    """Return where the script is."""
    return Path(str(files("geobgp") / "qgis_script" / SCRIPT))


def copy_script(folder: str | Path) -> Path:
    """Copy the script into a folder, made if it is missing; the copy begins with this Python.

    Examples
    --------
    >>> import tempfile
    >>> made = copy_script(tempfile.mkdtemp())
    >>> sys.executable in made.read_text("utf-8"), made.name
    (True, 'geobgp_map.py')
    """
    text = script_path().read_text("utf-8")
    target = Path(folder) / SCRIPT
    with replacing(target, parents=True) as temporary:
        temporary.write_text(text.replace(_UNSET, f"INSTALLED_BY = {sys.executable!r}", 1), "utf-8")
    return target


def profile_folder(profile: str) -> Path:
    """Return the folder for scripts of a profile of QGIS, which must be there."""
    places = _profiles()
    found = next((p / profile for p in places if (p / profile).is_dir()), None)
    if found is None:
        known = sorted(p.name for place in places if place.is_dir() for p in place.iterdir() if p.is_dir())
        raise WriteError(
            f"QGIS has no profile {profile!r} here"
            + (f"; there are {', '.join(known)}." if known else f", and no other: {places[0]} is not there."),
            option="profile",
            found=profile,
            remedy="Start QGIS once, or name a folder with --copy-to; its own stand in Settings, Options, Processing.",
        )
    return found / "processing" / "scripts"


def _profiles() -> list[Path]:
    """Return where QGIS keeps its profiles, by system."""
    home = Path.home()
    if sys.platform == "win32":
        base = [Path(os.environ.get("APPDATA", home / "AppData" / "Roaming"))]
    elif sys.platform == "darwin":
        base = [home / "Library" / "Application Support"]
    else:
        own = home / ".local" / "share"
        base = [
            Path(os.environ.get("XDG_DATA_HOME") or own),
            own,
            home / ".var" / "app" / "org.qgis.qgis" / "data",
        ]
    return [place / "QGIS" / version / "profiles" for version in ("QGIS3", "QGIS4") for place in base]
