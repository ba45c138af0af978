"""``geobgp demo``: a map of the sample data, which come with the package."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from geobgp.cli.map_command import map_files
from geobgp.cli.options import MapOptions, chosen

#: Members of demo.zip: copies of files in sample_data, made by pack_demo.py there.
DATA = {
    "points": "tick_bites_simulated.gpkg",
    "land": "netherlands_land.gpkg",
    "water": "netherlands_water.gpkg",
    "regions": "netherlands_provinces.gpkg",
}


def map_demo(options: Mapping[str, Any], *, quiet: bool = False, verbose: bool = False) -> None:
    """Do what ``geobgp demo`` does: `map_files` on the sample data.

    Parameters
    ----------
    options : mapping
        Where to write, and how, as click has read it.
    quiet, verbose : bool
    """
    with tempfile.TemporaryDirectory(prefix="geobgp-demo-") as folder:
        with (files("geobgp.cli") / "demo.zip").open("rb") as packed, ZipFile(packed) as archive:
            archive.extractall(folder)
        paths = {name: str(Path(folder) / file) for name, file in DATA.items()}
        title = "Tick bites in the Netherlands (simulated)"
        told = chosen(MapOptions, {**options, **paths, "title": title, "thresholds": (0.2,)})
        map_files(told, quiet=quiet, verbose=verbose)
