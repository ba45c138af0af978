"""What `geobgp info` says of files."""

import geopandas as gpd
import pandas as pd
import pyogrio
import pytest
import shapely

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
    (tmp_path / "a.gpkg").write_text("Nothing.")
    with pytest.raises(GeobgpError, match="neither a raster, a vector file nor a posterior"):
        describe(tmp_path / "a.gpkg")
    with pytest.raises(GeobgpError, match="no results there"):
        describe(tmp_path)
