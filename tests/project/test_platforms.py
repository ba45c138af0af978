"""Windows and macOS: nothing of Linux's own is needed, and no file has a name that they refuse."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest
import shapely
from paths import ROOT

from geobgp import map_intensity, map_strata

#: Takes away what other systems lack, and tells of text files that are opened in the system's own encoding.
ELSEWHERE = """
import io, os, pathlib, signal, sys
for name in ("fcntl", "resource", "pwd", "grp"):
    sys.modules[name] = None
for name in ("sched_getaffinity", "getloadavg", "sysconf", "symlink", "getuid", "killpg", "setsid"):
    if hasattr(os, name):
        delattr(os, name)
del signal.SIGKILL
read_text, opened = pathlib.Path.read_text, io.open

def read(path, *args, **kwargs):
    if str(path).startswith(("/proc", "/sys")):
        raise FileNotFoundError(str(path))
    return read_text(path, *args, **kwargs)

def open_as_windows(file, mode="r", buffering=-1, encoding=None, *args):
    caller = sys._getframe(1).f_code.co_filename
    if "b" not in mode and encoding is None and "/geobgp/" in caller:
        sys.exit(f"{file} is opened by {caller} without an encoding")
    return opened(file, mode, buffering, encoding, *args)

pathlib.Path.read_text = read
io.open = open_as_windows
import builtins
builtins.open = lambda *args, **kwargs: open_as_windows(*args, **kwargs) if len(args) < 3 and not kwargs \
    else opened(*args, **kwargs)
from geobgp.cli.app import main
sys.exit(main(sys.argv[1:]))
"""
#: Names of devices, which Windows does not give to files, whatever their ending.
DEVICES = re.compile(r"(CON|PRN|AUX|NUL|CONIN\$|CONOUT\$|COM[0-9¹²³]|LPT[0-9¹²³])", re.I)


def refused(folder):
    """Names within a folder that Windows refuses, and those that only differ by their case."""
    out = []
    for place, folders, files in os.walk(folder):
        names = [*folders, *files]
        out += [n for n in names if re.search(r'[<>:"/\\|?*\x00-\x1f]', n) or n[-1] in ". "]
        out += [n for n in names if DEVICES.fullmatch(n.split(".")[0].rstrip()) or len(n) > 120]
        if len({n.lower() for n in names}) < len(names):
            out.append(f"{place}: {names}")
    return out


def test_a_run_without_anything_of_linux(tmp_path):
    place = tmp_path / "Ein Ordner – 地図"
    place.mkdir()
    rng = np.random.default_rng(0)
    gpd.GeoDataFrame({"name": ["Süd"]}, geometry=[shapely.box(4, 52, 4.2, 52.1)], crs=4326).to_file(
        place / "Küste.gpkg"
    )
    rows = [
        f"{x:.5f};{y:.5f};Zürich" for x, y in zip(rng.uniform(4, 4.2, 200), rng.uniform(52, 52.1, 200), strict=True)
    ]
    (place / "Fälle.csv").write_bytes("\r\n".join(["lon;lat;Stadt", *rows, ""]).encode("cp1252"))
    quick = ["--cell-size", "2000", "--features", "8", "--permeability", "0", "--no-cache", "--no-checks"]
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, "map", str(place / "Fälle.csv"), "--land", str(place / "Küste.gpkg"), *quick,
         "--regions", str(place / "Küste.gpkg"), "--threshold", "1.5", "--title", "Fälle – Σ",
         "-o", str(place / "aus")],
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUTF8": "0", "PYTHONIOENCODING": "cp1252"},
        capture_output=True, check=False, cwd=place,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode("cp1252", "replace")
    assert b"\x1b" not in done.stderr and refused(place) == []
    assert "Fälle – Σ" in (place / "aus" / "report.html").read_text("utf-8")
    assert pd.read_csv(place / "aus" / "regions.csv")["name"].tolist() == ["Süd"]


@pytest.mark.filterwarnings("ignore::geobgp.errors.GeobgpWarning")
def test_labels_of_any_kind_make_names_that_every_system_takes(tmp_path):
    rng = np.random.default_rng(1)
    kinds = ["CON", "nul.txt", "LPT¹", "a:b", "a|b", "a/b", "A", "a", "x.", " lead", "q?*", "..", "é" * 300]
    frame = pd.DataFrame(rng.uniform(0, 10, (20 * len(kinds), 2)), columns=["easting", "northing"])
    frame["kind"], frame["t"] = np.repeat(kinds, 20), rng.uniform(-5, 5, len(frame))
    quick = {"crs": "local", "cell_size": 2.5, "m": 4, "permeability": 0.0, "cache": False}
    land = shapely.box(0, 0, 10, 10)
    strata = map_strata(frame, land, "kind", n_jobs=1, **quick)
    strata.to_qgis(tmp_path / "strata", [1e-7])
    assert len(strata) == len(kinds) == len(list((tmp_path / "strata").glob("map-*")))
    over_time = map_intensity(frame, land, time="t", every=[-5.0, -2.5, 0.1, 5.0], **quick)
    over_time.to_raster(tmp_path / "periods", [1e22, 0.5])
    assert refused(tmp_path) == []
