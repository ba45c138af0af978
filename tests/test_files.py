"""Vector files of every kind: one table of suffixes, one reader, one kind of error."""

import bz2
import gzip
import lzma
import os
import re
import sys
import zipfile

import geopandas as gpd
import numpy as np
import pandas as pd
import pyogrio
import pytest
import shapely
from reading import node_exposure

from geobgp import DataError, Domain, GeometryError, Posterior, map_intensity, map_tiles
from geobgp.errors import WriteError
from geobgp.files import (
    VectorLayer,
    as_frame,
    check_exists,
    held_alone,
    kind_of,
    layers,
    open_raster_file,
    read_vector,
    split_layer,
    write_csv,
)
from geobgp.land.polygons import read_polygons
from geobgp.land.regions import read_regions

SQUARES = gpd.GeoDataFrame(
    {"name": ["west", "east"], "population": [30, 10]},
    geometry=[shapely.box(4, 52, 4.1, 52.1), shapely.box(4.1, 52, 4.2, 52.1)],
    crs=4326,
)
NAMES = (
    "land.gpkg", "land.shp", "land.geojson", "land.json", "land.fgb", "land.gml", "land.kml", "land.parquet",
    "land.geoparquet", "land.pq", "CAPITALS.PQ", "zipped.zip", "shapes.zip", "land.geojson.gz",
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The same squares in every format."""
    made = tmp_path_factory.mktemp("vectors")
    for name in ("land.gpkg", "land.shp", "land.geojson", "land.fgb", "land.gml", "land.kml"):
        SQUARES.to_file(made / name)
    (made / "land.json").write_bytes((made / "land.geojson").read_bytes())
    for name in ("land.parquet", "land.geoparquet", "land.pq", "CAPITALS.PQ"):
        SQUARES.to_parquet(made / name)
    with zipfile.ZipFile(made / "zipped.zip", "w") as archive:
        archive.write(made / "land.gpkg", "deep/inside/land.gpkg")
        archive.writestr("readme.txt", "What is in here.")
    with zipfile.ZipFile(made / "shapes.zip", "w") as archive:
        for suffix in ("shp", "shx", "dbf", "prj"):
            archive.write(made / f"land.{suffix}", f"folder/land.{suffix}")
    with gzip.open(made / "land.geojson.gz", "wb") as packed:
        packed.write((made / "land.geojson").read_bytes())
    return made


@pytest.mark.parametrize("name", NAMES)
def test_every_kind_of_file_holds_the_same(folder, name):
    frame = read_vector(folder / name, "land")
    order = np.argsort(frame.geometry.bounds["minx"])  # FlatGeobuf sorts its features in space
    assert frame.crs.to_epsg() == 4326
    assert list(frame.geometry.iloc[order].normalize()) == list(SQUARES.normalize())
    assert "population" in frame.columns
    bare = read_vector(folder / name, "land", columns=["population"])
    assert set(bare.columns) == {"population", "geometry"}
    assert sorted(bare["population"].astype(int)) == [10, 30]


@pytest.mark.parametrize("name", NAMES)
def test_land_regions_and_exposure_read_them_all(folder, name):
    path = str(folder / name)
    assert shapely.area(read_polygons(path)[0].to_numpy()).sum() == pytest.approx(0.02)
    domain = Domain.from_polygons(path, cell_size=2000)
    assert len(read_regions(path, domain)) == 2
    people, kind = node_exposure(path, domain, "population")
    assert kind == "population" and people.sum() == pytest.approx(40)


@pytest.mark.parametrize("name", NAMES)
def test_what_a_file_says_of_itself(folder, name):
    (found,) = layers(folder / name)
    assert found.n_rows == 2 and "Polygon" in found.kind and "population" in found.columns
    assert found.bounds == pytest.approx((4, 52, 4.2, 52.1))
    assert gpd.GeoSeries([], crs=found.crs).crs.to_epsg() == 4326


def test_kinds_follow_from_names(tmp_path):
    kinds = {"a.csv": "table", "a.TSV.gz": "table", "a.pq": "parquet", "a.gdb": "vector", "a.nc": "other"}
    assert {name: kind_of(name) for name in kinds} == kinds
    assert kind_of(tmp_path / "gone.zip") == "other"


def test_layers_are_named_in_two_ways(tmp_path):
    path = tmp_path / "map.gpkg"
    SQUARES.to_file(path, layer="land")
    SQUARES.iloc[:1].to_file(path, layer="lakes")
    pyogrio.write_dataframe(pd.DataFrame({"note": ["nothing to see"]}), path, layer="notes")
    for source in (f"{path}|layername=lakes", f"{path}:lakes"):
        assert len(read_vector(source, "water")) == 1
        check_exists(source, "water")
    assert len(read_vector(path, "water", layer="lakes")) == 1
    assert [(each.name, each.n_rows, each.kind is None) for each in layers(path)] == [
        ("land", 2, False), ("lakes", 1, False), ("notes", 1, True),
    ]  # fmt: skip
    with pytest.raises(GeometryError, match=r"water: a layer must be named in .*'land', 'lakes'") as caught:
        read_vector(path, "water")
    assert caught.value.found == ["land", "lakes"] and "layername=land" in caught.value.remedy
    with pytest.raises(GeometryError, match="there is no layer 'seas'"):
        read_vector(f"{path}:seas", "water")


@pytest.mark.parametrize("path", ["C:/maps/land.gpkg", "https://example.org/land.gpkg", "a:b/land.gpkg"])
def test_colons_elsewhere_name_no_layer(path):
    assert split_layer(path) == (path, None)


def test_files_that_are_not_there_or_not_what_they_say(tmp_path, folder):
    with pytest.raises(GeometryError, match=r"land: there is no file .*gone.pq. That folder has no files"):
        read_vector(tmp_path / "gone.pq", "land")
    with pytest.raises(GeometryError, match=r"there is no file.*folder .*nowhere does not exist"):
        layers(tmp_path / "nowhere" / "land.gpkg")
    (tmp_path / "land.pq").write_text("This is no Parquet.")
    with pytest.raises(GeometryError, match=r"land: .*land.pq cannot be read as a vector file"):
        read_vector(tmp_path / "land.pq", "land")
    pd.DataFrame({"a": [1]}).to_parquet(tmp_path / "plain.pq")
    with pytest.raises(GeometryError, match=r"regions: .*plain.pq cannot be read as a vector file"):
        read_vector(tmp_path / "plain.pq", "regions")
    assert layers(tmp_path / "plain.pq") == [VectorLayer("plain", 1, None, None, None, ("a",))]
    with zipfile.ZipFile(tmp_path / "two.zip", "w") as archive:
        archive.write(folder / "land.gpkg", "a.gpkg")
        archive.write(folder / "land.geojson", "b.geojson")
    with pytest.raises(GeometryError, match=r"two.zip holds several files, 'a.gpkg', 'b.geojson'") as caught:
        read_vector(tmp_path / "two.zip", "land")
    named = caught.value.remedy.split("'")[1]
    assert len(read_vector(named, "land")) == 2


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_pipes_and_loops_of_links_end_no_run_and_hold_none(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(GeometryError, match=r"points: .*pipe.csv is a pipe or a device"):
        map_intensity(str(tmp_path / "pipe.csv"), shapely.box(0, 0, 10, 10), crs="local", cell_size=1.0)
    (tmp_path / "a.csv").symlink_to("b.csv")
    (tmp_path / "b.csv").symlink_to("a.csv")
    with pytest.raises(GeometryError, match=r"points: there is no file .*a.csv"):
        map_intensity(str(tmp_path / "a.csv"), shapely.box(0, 0, 10, 10), crs="local", cell_size=1.0)


@pytest.mark.parametrize("path", ["a\0b.gpkg", "\ud800.gpkg"])
def test_names_that_no_file_can_have_are_refused(path, tmp_path):
    with pytest.raises(GeometryError, match=r"land: no file can have the name '(a\\x00b|\\ud800)"):
        read_vector(path, "land")
    with pytest.raises(DataError, match="path must be the path of a file or folder"):
        Posterior.load(path)
    with pytest.raises(DataError, match="out must be the path of a file or folder"):
        map_tiles(np.zeros((3, 2)), shapely.box(0, 0, 1, 1), tmp_path / path, cell_size=1.0)


@pytest.mark.parametrize(("name", "pack"), [("p.csv.gz", gzip.compress), ("p.csv.bz2", bz2.compress),
                                            ("p.csv.xz", lzma.compress)])  # fmt: skip
def test_packed_tables_that_end_too_early_are_named(name, pack, tmp_path):
    rows = "\n".join(["easting,northing", *(f"{k % 97 / 9.7},{k % 89 / 8.9}" for k in range(500))])
    whole = pack(rows.encode())
    for broken in (whole[: len(whole) // 2], whole[:-1], whole[:60] + b"xxxxxxxx" + whole[68:]):
        (tmp_path / name).write_bytes(broken)
        with pytest.raises(GeometryError, match=rf"points: .*{name} (cannot be read as a table|is empty)"):
            map_intensity(str(tmp_path / name), shapely.box(0, 0, 10, 10), crs="local", cell_size=1.0)


def test_a_folder_is_held_by_one_process_at_a_time_where_there_are_locks(tmp_path, monkeypatch):
    with held_alone(tmp_path), pytest.raises(WriteError, match=rf"Another run is writing.*process {os.getpid()} on"), \
            held_alone(tmp_path):  # fmt: skip
        pass
    with pytest.raises(FileNotFoundError), held_alone(tmp_path):
        raise FileNotFoundError  # of another file: not taken for one of its own
    assert list(tmp_path.iterdir()) == []
    for missing in ("fcntl", "msvcrt"):
        monkeypatch.setitem(sys.modules, missing, None)
    with held_alone(tmp_path), held_alone(tmp_path):
        pass


class Foreign:
    """A table of another library: nothing but what it is asked for."""

    def __init__(self, **protocol):
        self.__dict__.update(protocol)


def test_tables_and_shapes_of_other_libraries_are_frames():
    """Arrow streams with and without GeoArrow, features, and what is left as it is."""
    frame = gpd.GeoDataFrame({"people": [3, 5]}, geometry=[shapely.box(0, 0, 1, 1), shapely.box(1, 0, 3, 1)], crs=32631)
    streams = [frame.to_arrow(), frame.to_arrow(geometry_encoding="geoarrow")]
    for stream in streams:
        found = as_frame(Foreign(__arrow_c_stream__=stream.__arrow_c_stream__), "exposure")
        assert found.crs == frame.crs and found["people"].tolist() == [3, 5]
        assert found.geometry.area.tolist() == [1.0, 2.0]
    bare = pd.DataFrame({"people": [3, 5], "GEOM": shapely.to_wkb(frame.geometry.to_numpy())})
    found = as_frame(Foreign(__arrow_c_stream__=bare.__arrow_c_stream__), "exposure")
    assert found.crs is None and found.geometry.area.tolist() == [1.0, 2.0] and "GEOM" not in found
    plain = as_frame(Foreign(__arrow_c_stream__=bare[["people"]].__arrow_c_stream__), "exposure")
    assert type(plain) is pd.DataFrame and plain["people"].tolist() == [3, 5]
    features = as_frame(Foreign(__geo_interface__=frame.__geo_interface__, crs=frame.crs), "exposure")
    assert features.crs == frame.crs and features["people"].tolist() == [3, 5]
    for value in (frame, bare, frame.geometry, shapely.box(0, 0, 1, 1), np.ones(3), None, "people.tif"):
        assert as_frame(value, "exposure") is value


VRT = """<VRTDataset rasterXSize="4" rasterYSize="4"><SRS>EPSG:28992</SRS>
<GeoTransform>150000, 1000, 0, 464000, 0, -1000</GeoTransform>
<VRTRasterBand dataType="Float32" band="1"><SimpleSource>
<SourceFilename relativeToVRT="0">/vsicurl/http://127.0.0.1:9/secret.tif</SourceFilename>
<SourceBand>1</SourceBand></SimpleSource></VRTRasterBand></VRTDataset>"""
OGR_VRT = """<!-- points --><OGRVRTDataSource><OGRVRTLayer name="points">
<SrcDataSource>/vsicurl/http://127.0.0.1:9/secret.gpkg</SrcDataSource></OGRVRTLayer></OGRVRTDataSource>"""


@pytest.mark.parametrize("name", ["points.gpkg", "points.geojson", "points.gpkg.gz", "points.zip"])
def test_shapes_that_only_refer_to_others_are_refused(name, tmp_path):
    import gzip
    import zipfile

    path = tmp_path / name
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(OGR_VRT.encode()))
    elif name.endswith(".zip"):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("points.gpkg", OGR_VRT)
    else:
        path.write_text(OGR_VRT)
    with pytest.raises(GeometryError, match="holds no data; it refers to other files or servers"):
        read_vector(path, "points")


@pytest.mark.parametrize("content", [VRT, '{"type": "FeatureCollection", "stac_version": "1.0.0", "features": []}'])
def test_a_raster_that_only_refers_to_others_is_refused(content, tmp_path):
    import shapely

    from geobgp import Domain
    from geobgp.data.rasters import read_to_nodes

    domain = Domain.from_polygons(shapely.box(150_000, 460_000, 154_000, 464_000), cell_size=1000, crs=28992)
    path = tmp_path / "population.tif"
    path.write_text(content)
    with pytest.raises(GeometryError, match="holds no data; it refers to other files or servers"):
        read_to_nodes(str(path), domain, "sum")


def test_a_vrt_that_is_called_one_is_read(tmp_path):
    import geopandas as gpd
    import shapely

    gpd.GeoDataFrame(geometry=[shapely.Point(1, 2)], crs=28992).to_file(tmp_path / "real.gpkg", layer="points")
    (tmp_path / "points.vrt").write_text(
        OGR_VRT.replace("/vsicurl/http://127.0.0.1:9/secret.gpkg", str(tmp_path / "real.gpkg"))
    )
    assert len(read_vector(tmp_path / "points.vrt", "points")) == 1


def test_spreadsheets_run_nothing_that_a_table_holds(tmp_path):
    names = ["=HYPERLINK(1)", "+1+2", "-2+3", "@sum", "\tx", " =1", "-4.5", "A & B"]
    frame = gpd.GeoDataFrame(
        {"name": names, "value": [-1.5, 2.0, -3.25, 0, 1, 2, 3, 4], "=x": range(8)},
        geometry=gpd.points_from_xy(range(8), range(8)),
    )
    write_csv(tmp_path / "table.csv", frame)
    again = pd.read_csv(tmp_path / "table.csv")
    assert list(again.columns) == ["name", "value", "'=x"]
    np.testing.assert_array_equal(again["value"], frame["value"])
    assert list(again["name"]) == [f"'{n}" if n not in ("-4.5", "A & B") else n for n in names]
    write_csv(tmp_path / "named.csv", pd.DataFrame({"n": [1]}, index=pd.Index(["=cmd"], name="stratum")), index=True)
    assert (tmp_path / "named.csv").read_text("utf-8") == "stratum,n\n'=cmd,1\n"


TMS = """<?xml version="1.0"?><TileMap version="1.0.0" tilemapservice="http://127.0.0.1:9/x"><SRS>EPSG:28992</SRS>
<BoundingBox minx="0" miny="0" maxx="10" maxy="10"/><TileFormat width="256" height="256" mime-type="image/png"
extension="png"/><TileSets><TileSet href="http://127.0.0.1:9/x" units-per-pixel="1" order="0"/></TileSets></TileMap>"""


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("population.tif", "is called .tif, and does not begin as such"),
        ("population.dat", "would be read as WMS, which"),
    ],
)
def test_only_drivers_that_fit_the_name_of_a_raster_are_used(name, words, tmp_path):
    (tmp_path / name).write_text(TMS)
    with pytest.raises(GeometryError, match=re.escape(words)):
        open_raster_file(str(tmp_path / name))


@pytest.mark.parametrize("name", ["points.gpkg", "points.shp", "points.fgb"])
def test_a_file_that_is_not_what_it_is_called_is_refused(name, tmp_path):
    (tmp_path / name).write_text("<kml/>")
    with pytest.raises(GeometryError, match=r"does not begin as such a file does"):
        read_vector(tmp_path / name, "points")


@pytest.mark.parametrize(
    "crs", ['{"type": "link", "properties": {"href": "http://127.0.0.1:9/x", "type": "ogcwkt"}}',
            '{"properties": {"href": "http://127.0.0.1:9/x", "more": {}}, "type": "LINK"}',
            '{"\\u0074ype": "l\\u0069nk", "properties": {"href": "http://127.0.0.1:9/x"}}'],
)  # fmt: skip
def test_no_crs_is_fetched_that_a_file_links_to(crs, tmp_path):
    point = '{"type": "Feature", "properties": {"crs": "link"}, "geometry": {"type": "Point", "coordinates": [1, 2]}}'
    text = f'{{"type": "FeatureCollection", "features": [{point}], "crs": {crs}}}'
    (tmp_path / "points.geojson").write_text(text)
    with pytest.raises(GeometryError, match="coordinate reference system is to be found elsewhere"):
        read_vector(tmp_path / "points.geojson", "points")
    named = '{"type": "name", "properties": {"name": "urn:ogc:def:crs:EPSG::28992"}}'
    (tmp_path / "points.geojson").write_text(text.replace(crs, named))
    assert read_vector(tmp_path / "points.geojson", "points").crs.to_epsg() == 28992
