"""What `geobgp info` says of files."""

import geopandas as gpd
import numpy as np
import pandas as pd
import pyogrio
import pytest
import shapely
import xarray as xr

from geobgp import store
from geobgp.cli.info import describe
from geobgp.errors import GeobgpError

LAND = gpd.GeoDataFrame({"name": ["a"]}, geometry=[shapely.box(4, 52, 5, 53)], crs=4326)


def rows(text):
    """The lines of a description: names and what is said of them."""
    return {line[:22].strip(): line[24:] for line in text.splitlines()}


@pytest.mark.parametrize("name", ["land.gpkg", "land.pq", "land.parquet", "land.shp", "land.geojson"])
def test_vector_files(tmp_path, name):
    if name.endswith(("pq", "parquet")):
        LAND.to_parquet(tmp_path / name)
    else:
        LAND.to_file(tmp_path / name)
    found = rows(describe(tmp_path / name))
    assert found["vector file"] == name and found["layer"] == "land"
    assert found["features"].startswith("1 ") and "Polygon" in found["features"]
    assert "WGS 84" in found["CRS"] and found["extent"] == "4 to 5, 52 to 53" and found["columns"] == "name"


def test_layers(tmp_path):
    path = tmp_path / "map.gpkg"
    LAND.to_file(path, layer="land")
    pyogrio.write_dataframe(pd.DataFrame({"note": ["x"]}), path, layer="notes")
    text = describe(path)
    assert text.count("  features") == 2 and "1 without geometry" in text
    assert rows(describe(f"{path}|layername=land"))["layer"] == "land"
    with pytest.raises(GeobgpError, match=r"no layer 'sea' .* which has 'land', 'notes'"):
        describe(f"{path}:sea")


def test_tables(tmp_path):
    (tmp_path / "p.csv").write_bytes("stad;lon;lat;fälle\nKöln;6,9;51;2\nZwolle;6,1;;1\n".encode("latin-1"))
    found = rows(describe(tmp_path / "p.csv"))
    assert found["table"] == "p.csv" and found["columns"] == "stad, lon, lat, fälle"
    assert found["rows"] == "2, 1 without a point" and found["coordinates"] == "6.9 to 6.9, 51 to 51"
    (tmp_path / "q.tsv").write_text("a\tb\n1\t2\n")
    found = rows(describe(tmp_path / "q.tsv"))
    assert found["columns"] == "a, b" and "--longitude and --latitude" in found["coordinates"]


def test_what_is_nothing_of_this(tmp_path):
    (tmp_path / "a.dat").write_text("Nothing.")
    with pytest.raises(GeobgpError, match="neither a raster, a vector file nor a posterior"):
        describe(tmp_path / "a.dat")
    with pytest.raises(GeobgpError, match="no results there"):
        describe(tmp_path)


def test_every_file_and_folder_that_geobgp_writes_is_described(tmp_path):
    """Maps in space and over time, strata, tiles: no file of theirs is taken for a damaged one."""
    import json

    from geobgp.cli.app import main

    rng = np.random.default_rng(0)
    land = gpd.GeoDataFrame(geometry=[shapely.box(150_000, 460_000, 160_000, 470_000)], crs=28992)
    land.to_file(tmp_path / "land.gpkg")
    cases = gpd.GeoDataFrame(
        {"year": rng.integers(2020, 2023, 300), "kind": rng.choice(["a", "b"], 300)},
        geometry=gpd.points_from_xy(rng.uniform(150_000, 160_000, 300), rng.uniform(460_000, 470_000, 300)),
        crs=28992,
    )
    cases.to_file(tmp_path / "cases.gpkg")
    common = ["--land", str(tmp_path / "land.gpkg"), "--cell-size", "1000", "-q"]
    quick = [*common, "--features", "16", "--no-cache", "--no-checks", "--permeability", "0"]
    cases_path = str(tmp_path / "cases.gpkg")
    runs = {
        "map": ["map", cases_path, *quick],
        "time": ["map", cases_path, *quick, "--time", "year", "--every", "year", "--forecast", "1"],
        "strata": ["strata", cases_path, *quick, "--by", "kind"],
        "tiles": ["tiles", cases_path, *common, "--tile-nodes", "400"],
    }
    for name, command in runs.items():
        folder = tmp_path / name
        assert main([*command, "-o", str(folder)]) == 0
        facts = json.loads(describe(folder, as_json=True))
        assert facts["results"] == name and (name == "strata" or "300 used" in facts["points"])
        for path in sorted(p for p in folder.rglob("*") if p.is_file() and ".zarr" not in str(p)):
            assert describe(path), path
        stored = [p for p in folder.rglob("*") if p.suffix == ".geobgp"]
        assert stored and all(store.kind_of(p) for p in stored)
    assert rows(describe(tmp_path / "time"))["periods"].startswith("3 years, 2020 to 2022")
    assert "a, b" in rows(describe(tmp_path / "strata"))["strata"].replace("'", "")
    assert "mean" in describe(tmp_path / "map/map.qgz") and rows(describe(tmp_path / "map/map.qgz"))["QGIS project"]
    axes = rows(describe(tmp_path / "time/intensity.nc"))["axes"]
    assert "time 4" in axes and "northing 10" in axes and "easting 10" in axes
    with xr.open_dataset(tmp_path / "time/intensity.nc") as data:  # as many periods as there are rasters
        assert data["forecast"].values.tolist() == [0, 0, 0, 1]
        assert data["forecast"].attrs["flag_meanings"] == "observed forecast"
    assert len(list((tmp_path / "time").rglob("mean_*.tif"))) == 4
