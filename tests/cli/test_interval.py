"""--interval 0.95: no file that is written, and nothing that is said, speaks of 90 % or of its quantiles."""

from __future__ import annotations

import json
import re
import zipfile

import geopandas as gpd
import numpy as np
import pandas as pd
import pyogrio
import pytest
import rasterio
import small_case as case

from geobgp import Posterior
from geobgp.cli.app import main

QUICK = ("--cell-size", "2000", "--interval", "0.95", "--permeability", "0", "--crs", case.CRS)
#: The shares of blocks and of numbers that lie within may be any, and 90 % of them too.
OLD = re.compile(
    r"(?<![\d.])90 % (?:interval|predictive|of the expected)|within (?:their )?90 %|, 90 %|q05|q95|coverage_90"
)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    made = case.write_files(folder)
    points = case.points()
    months = np.random.default_rng(1).integers(1, 9, len(points))
    table = pd.DataFrame({"easting": points.geometry.x, "northing": points.geometry.y})
    table["date"] = [f"2020-{m:02d}-11" for m in months]
    table["kind"] = np.where(np.arange(len(table)) % 2, "a", "b")
    table.to_csv(folder / "dated.csv", index=False)
    for name, part in (("cases", table.iloc[::2]), ("controls", table.iloc[1::2])):
        part.to_csv(folder / f"{name}.csv", index=False)
    return made


def texts(folder):
    """Yield all text of a folder: files, those packed in projects, names of files, bands, tags, layers and columns."""
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        yield path.name, path.name
        if path.suffix in (".html", ".json", ".qml", ".csv"):
            # Numbers and pictures of a page are base64.
            yield path.name, re.sub(r"[A-Za-z0-9+/=]{200,}", "", path.read_text("utf-8"))
        elif path.suffix == ".qgz":
            with zipfile.ZipFile(path) as project:
                for name in project.namelist():
                    if name.endswith(".qgs"):
                        yield f"{path.name}/{name}", project.read(name).decode()
        elif path.suffix == ".tif":
            with rasterio.open(path) as source:
                told = [source.tags(k) for k in range(source.count + 1)]
                yield path.name, repr((source.descriptions, told))
        elif path.suffix == ".gpkg":
            for layer, _ in pyogrio.list_layers(path):
                yield path.name, " ".join(map(str, gpd.read_file(path, layer=layer).columns))
        elif path.suffix == ".nc":
            import xarray as xr

            with xr.open_dataset(path) as data:
                yield path.name, repr(data) + repr([dict(data[name].attrs) for name in data])


COMMANDS = {
    "map": ("map", "points.gpkg", "--threshold", "2", "--regions", "land.gpkg"),
    "time": ("map", "dated.csv", "--time", "date", "--every", "month", "--forecast", "2", "--regions", "land.gpkg",
             "--threshold", "0.5", "--features", "24", "--points-crs", case.CRS),
    "risk": ("risk", "cases.csv", "controls.csv", "--regions", "land.gpkg", "--points-crs", case.CRS),
    "strata": ("strata", "dated.csv", "--by", "kind", "--regions", "land.gpkg", "--points-crs", case.CRS),
    "tiles": ("tiles", "points.gpkg"),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::geobgp.errors.GeobgpWarning")
@pytest.mark.parametrize("name", COMMANDS)
def test_no_text_speaks_of_another_interval(name, files, tmp_path, capfd):
    told = [str(files.folder / a) if a.rpartition(".")[2] in ("csv", "gpkg") else a for a in COMMANDS[name]]
    command = [*told, "--land", files.land_gpkg, *QUICK, "-o", str(tmp_path / "out")]
    assert main(command) == 0
    said = "".join(capfd.readouterr())
    assert not OLD.search(said), said
    found = dict(texts(tmp_path / "out"))
    for where, text in found.items():
        assert OLD.search(text) is None, (where, OLD.search(text), text[:200])
    assert any("q025" in text for text in found.values()), "and there are some"
    if name in ("map", "time", "risk"):
        record = json.loads((tmp_path / "out" / "summary.json").read_text("utf-8"))
        assert record["options"]["interval"] == 0.95 and record["checks"].get("interval", 0.95) == 0.95
        assert Posterior.load(tmp_path / "out" / "posterior.geobgp").interval == 0.95
        assert "95 % interval" in (tmp_path / "out" / "report.html").read_text("utf-8")
        assert '"interval":"95 %"' in (tmp_path / "out" / "map.html").read_text("utf-8").replace(": ", ":")
        assert "--interval 0.95" in record["command"]
        columns = gpd.read_file(tmp_path / "out" / "regions.gpkg", layer="regions").columns
        assert {"q025", "q975"} <= set(columns)


def test_an_interval_that_is_none(files, tmp_path, capfd):
    assert (
        main(["map", files.points_gpkg, "--land", files.land_gpkg, "--interval", "95", "-o", str(tmp_path / "o")]) != 0
    )
    assert "--interval" in capfd.readouterr().err
