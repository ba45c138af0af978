"""Points from every kind of source: the same rows, the same points, the same notes."""

import gzip
import zipfile

import geopandas as gpd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyproj
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import point_geometries

from geobgp import DataError, GeometryError
from geobgp.data import points as module
from geobgp.data.points import ReadOptions, Stream, csv_format, number_of_rows

DOMAIN_CRS = pyproj.CRS("EPSG:32631")
DEGREES = np.array([[5.1, 52.1], [5.2, 52.2], [5.3, 52.3], [5.4, 52.4], [5.5, 52.5]])
DEATHS = np.array([1.0, 2.0, 0.0, 4.0, 5.0])


def options(**more):
    return ReadOptions(**{"domain_crs": DOMAIN_CRS, "chunksize": 2, **more})


def frame(crs=4326):
    return gpd.GeoDataFrame({"deaths": DEATHS}, geometry=gpd.points_from_xy(*DEGREES.T), crs=crs)


def table(first="longitude", second="latitude"):
    return pd.DataFrame({"name": list("abcde"), second: DEGREES[:, 1], first: DEGREES[:, 0], "deaths": DEATHS})


def read(points, **more):
    stream = Stream(points, options(**more))
    chunks = list(stream)
    coords = np.concatenate([c.coords for c in chunks]) if chunks else np.empty((0, 2))
    return coords, chunks, stream


# --- the same from every source -------------------------------------------------------------------


@pytest.mark.parametrize("name", ["points.gpkg", "points.shp", "points.geojson", "points.fgb"])
def test_files_that_ogr_reads(tmp_path, name):
    frame().to_file(tmp_path / name)
    coords, chunks, stream = read(tmp_path / name, weights="deaths")
    order = np.argsort(coords[:, 0])  # FlatGeobuf sorts its features in space
    assert coords[order] == pytest.approx(DEGREES)
    assert np.concatenate([c.weights for c in chunks])[order] == pytest.approx(DEATHS)
    assert [c.n_rows for c in chunks if c.n_rows] == [2, 2, 1]
    assert stream.total == 5 and all(c.crs == pyproj.CRS(4326) for c in chunks)


@pytest.mark.parametrize("encoding", ["WKB", "geoarrow"])
def test_geoparquet(tmp_path, encoding):
    points = pd.concat([frame(28992), gpd.GeoDataFrame({"deaths": [0.0]}, geometry=[None], crs=28992)])
    points.to_parquet(tmp_path / "p.parquet", geometry_encoding=encoding)
    coords, chunks, stream = read(tmp_path / "p.parquet", weights="deaths")
    assert coords == pytest.approx(DEGREES) and stream.total == 6
    assert [c.n_rows for c in chunks] == [2, 2, 2] and sum(c.n_missing for c in chunks) == 1
    assert chunks[0].crs.to_epsg() == 28992


def test_parquet_of_multipoints_in_geoarrow_and_of_plain_columns(tmp_path):
    multi = gpd.GeoDataFrame(geometry=[shapely.MultiPoint(DEGREES)], crs=4326)
    multi.to_parquet(tmp_path / "m.parquet", geometry_encoding="geoarrow")
    assert read(tmp_path / "m.parquet")[0] == pytest.approx(DEGREES)
    table("lon", "lat").to_parquet(tmp_path / "t.parquet")
    coords, chunks, _ = read(tmp_path / "t.parquet", weights="deaths")
    assert coords == pytest.approx(DEGREES) and len(chunks) == 3


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize(
    "names", [("longitude", "latitude"), ("Lon", "LAT"), ("lng", "lat"), ("decimalLongitude", "decimalLatitude")]
)
def test_csv(tmp_path, separator, names):
    table(*names).to_csv(tmp_path / "p.csv", sep=separator, index=False)
    coords, chunks, stream = read(tmp_path / "p.csv", weights="deaths")
    assert coords == pytest.approx(DEGREES)
    assert np.concatenate([c.weights for c in chunks]) == pytest.approx(DEATHS)
    assert [c.n_rows for c in chunks] == [2, 2, 1] and chunks[0].crs.to_epsg() == 4326
    assert stream.notes == [f"columns {names[0]!r} and {names[1]!r} are taken as longitude and latitude"]


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz"])
def test_packed_csv(tmp_path, suffix):
    table().to_csv(tmp_path / f"p.csv{suffix}", index=False)
    assert number_of_rows(tmp_path / f"p.csv{suffix}") == 5
    assert read(tmp_path / f"p.csv{suffix}")[0] == pytest.approx(DEGREES)


def test_csv_from_a_spreadsheet_with_decimal_commas(tmp_path):
    (tmp_path / "p.csv").write_text("\ufeffname;lat;lon;deaths\nZwolle;52,5125;6,09444;1,5\nHoorn;n/a;5;2\n", "utf-8")
    coords, chunks, _ = read(tmp_path / "p.csv", weights="deaths")
    assert coords == pytest.approx(np.array([[6.09444, 52.5125]]))
    assert chunks[0].n_missing == 1 and chunks[0].weights == pytest.approx([1.5, 2.0])


def test_csv_with_gaps_and_words(tmp_path):
    (tmp_path / "p.csv").write_text("lon,lat\n5,52\n,52\n5,\nhere,there\n6,53\n")
    coords, chunks, _ = read(tmp_path / "p.csv")
    assert coords.tolist() == [[5, 52], [6, 53]]
    assert sum(c.n_missing for c in chunks) == 3
    assert [c.rows.tolist() for c in chunks] == [[0], [], [0]]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "latin-1"])
@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_csv_in_every_encoding(tmp_path, encoding, separator):
    lines = [["name", "längd", "lat", "fälle"], ["Súdwest-Fryslân", "5.5", "53", "2"], ["Köln", "6.9", "51", "3"]]
    text = "".join(separator.join(line) + "\r\n" for line in lines)
    (tmp_path / "p.csv").write_bytes(text.encode(encoding))
    coords, chunks, stream = read(tmp_path / "p.csv", longitude="längd", latitude="lat", weights="fälle")
    assert coords.tolist() == [[5.5, 53.0], [6.9, 51.0]] and chunks[0].weights.tolist() == [2, 3]
    assert stream.columns == ("name", "längd", "lat", "fälle")


def test_letters_on_the_edge_of_what_is_sniffed(tmp_path):
    start = "name,lon,lat\n"
    rows = "é,5.5,53\n" * 9000  # a letter of two bytes lies across the 65,536th
    for shift in range(2):
        (tmp_path / "p.csv").write_text("x" * shift + start + rows, "utf-8")
        assert csv_format(tmp_path / "p.csv")["encoding"] == "utf-8-sig"


@pytest.mark.parametrize("name", ["points.pq", "points.zip", "points.geojson.gz"])
def test_points_from_packed_files(tmp_path, name):
    frame().to_file(tmp_path / "points.geojson")
    if name.endswith(".pq"):
        frame().to_parquet(tmp_path / name)
    elif name.endswith(".zip"):
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.write(tmp_path / "points.geojson", "inner/points.geojson")
    else:
        (tmp_path / name).write_bytes(gzip.compress((tmp_path / "points.geojson").read_bytes()))
    assert read(tmp_path / name, weights="deaths")[0] == pytest.approx(DEGREES)
    assert number_of_rows(tmp_path / name) == 5


def test_tables_in_memory_and_chunks():
    sources = [frame(), frame().geometry, table(), DEGREES, [frame().iloc[:3], frame().iloc[3:]]]
    sources += [(table().iloc[i : i + 1] for i in range(5)), iter([DEGREES[:1], DEGREES[1:]])]
    for source in sources:
        assert read(source)[0] == pytest.approx(DEGREES)


def test_points_in_wkb_are_read_from_their_bytes():
    wkb = shapely.to_wkb(shapely.points(DEGREES))
    for kind in (pa.binary(), pa.large_binary()):
        assert module._wkb_points(pa.array(wkb, kind)) == pytest.approx(DEGREES)
        assert module._wkb_points(pa.array(wkb, kind)[2:4]) == pytest.approx(DEGREES[2:4])
    others = [None, shapely.Point(1, 2, 3), shapely.MultiPoint([(1, 2)]), shapely.LineString()]
    for other in others:
        assert (
            module._wkb_points(pa.array([*wkb, None if other is None else shapely.to_wkb(other)], pa.binary())) is None
        )
    big_endian = shapely.to_wkb(shapely.Point(1, 2), byte_order=0)
    assert module._wkb_points(pa.array([big_endian])) is None


def test_only_one_part_of_an_iterable_is_held():
    taken = []

    def parts():
        for i in range(100):
            taken.append(i)
            yield DEGREES

    for k, _ in enumerate(Stream(parts(), options(chunksize=5))):
        assert len(taken) == k + 1


# --- which columns --------------------------------------------------------------------------------


def test_easting_and_northing_are_in_the_crs_of_the_domain_or_the_one_given():
    plane = pd.DataFrame({"Easting": [1e5], "Northing": [4e5]})
    _, chunks, stream = read(plane)
    assert chunks[0].crs == DOMAIN_CRS
    assert stream.notes == [
        "columns 'Easting' and 'Northing' are taken as coordinates in WGS 84 / UTM zone 31N, the domain's CRS"
    ]
    _, chunks, stream = read(plane, crs=pyproj.CRS(28992))
    assert chunks[0].crs.to_epsg() == 28992
    assert stream.notes == ["columns 'Easting' and 'Northing' are taken as coordinates in Amersfoort / RD New"]


def test_x_and_y_are_degrees_only_if_they_can_be():
    def crs_of(x, y, **more):
        return read(pd.DataFrame({"x": [x], "y": [y]}), **more)[1][0].crs

    assert crs_of(5.0, 52.0).to_epsg() == 4326
    assert crs_of(5.0, 120.0) == DOMAIN_CRS
    assert crs_of(529_188.0, 181_205.0, crs=pyproj.CRS(27700)).to_epsg() == 27700
    assert crs_of(5.0, 52.0, crs=pyproj.CRS(27700)).to_epsg() == 27700
    assert crs_of(5.0, 52.0, domain_crs=None) is None


def test_degrees_come_before_other_columns():
    both = table().assign(x=1e5, y=4e5, easting=0.0, northing=0.0)
    assert read(both)[0] == pytest.approx(DEGREES)
    assert read(both, easting="x", northing="y")[0].max() == 4e5


def test_odd_names_are_listed_and_can_be_given(tmp_path):
    odd = table("breedte", "lengte")
    odd.to_csv(tmp_path / "p.csv", index=False)
    for source in (odd, tmp_path / "p.csv"):
        with pytest.raises(
            GeometryError, match=r"among 'name', 'lengte', 'breedte', 'deaths'.*longitude= and latitude="
        ):
            read(source)
        assert read(source, longitude="breedte", latitude="lengte")[0] == pytest.approx(DEGREES)
        with pytest.raises(GeometryError, match="there is no column 'lon'; there are 'name', 'lengte'"):
            read(source, longitude="lon", latitude="lengte")


def test_a_chunk_without_the_columns_is_named():
    with pytest.raises(GeometryError, match="a chunk has no column 'longitude'; it has 'a'"):
        read([table(), pd.DataFrame({"a": [1]})])


def test_wide_tables_are_cut_short_in_messages():
    with pytest.raises(GeometryError, match="'c19' and 10 more"):
        read(pd.DataFrame({f"c{i}": [0] for i in range(30)}))


# --- what is refused ------------------------------------------------------------------------------


def test_columns_of_weights_must_exist(tmp_path):
    table().to_csv(tmp_path / "p.csv", index=False)
    frame().to_file(tmp_path / "p.gpkg")
    for source in (table(), frame(), tmp_path / "p.csv", tmp_path / "p.gpkg"):
        with pytest.raises(DataError, match=r"no column 'cases'.*deaths"):
            read(source, weights="cases")
    with pytest.raises(DataError, match="the points are a GeoSeries"):
        read(frame().geometry, weights="deaths")


@pytest.mark.parametrize("source", [3, None, {"lon": [1]}, pd.Series([1.0]), np.zeros(4), np.zeros((4, 3)), b"x"])
def test_kinds_that_are_no_points(source):
    with pytest.raises(GeometryError, match="expected a GeoDataFrame"):
        read(source)
    with pytest.raises(GeometryError, match="each chunk must be"):
        read([source])


def test_polygons_are_no_points():
    with pytest.raises(GeometryError, match=r"found 1 Polygon.*representative_point"):
        read(gpd.GeoSeries([shapely.box(0, 0, 1, 1)], crs=4326))


def test_broken_files(tmp_path):
    (tmp_path / "p.csv").write_text("")
    with pytest.raises(GeometryError, match=r"p.csv is empty"):
        read(tmp_path / "p.csv")
    (tmp_path / "q.csv").write_text("lon,lat\n5,52\n5,52,1,1,1,1\n")
    with pytest.raises(GeometryError, match=r"q.csv line 3 has 6 fields, and the header has 2"):
        read(tmp_path / "q.csv")
    (tmp_path / "p.gpkg").write_text("no map")
    with pytest.raises(GeometryError, match=r"p.gpkg cannot be read"):
        read(tmp_path / "p.gpkg")
    with pytest.raises(GeometryError, match="points: there is no file"):
        read(tmp_path / "nothing.csv")


def test_layers(tmp_path):
    frame().to_file(tmp_path / "p.gpkg", layer="a")
    frame().iloc[:2].to_file(tmp_path / "p.gpkg", layer="b")
    with pytest.raises(GeometryError, match="a layer must be named"):
        read(tmp_path / "p.gpkg")
    assert len(read(tmp_path / "p.gpkg", layer="b")[0]) == 2
    assert len(read(f"{tmp_path / 'p.gpkg'}|layername=a")[0]) == 5


@settings(max_examples=50, deadline=None)
@given(point_geometries(), st.integers(1, 7))
def test_every_row_is_accounted_for(drawn, chunksize):
    geoms, n_points = drawn
    coords, chunks, _ = read(gpd.GeoSeries(geoms, crs=4326), chunksize=chunksize)
    assert len(coords) == n_points
    assert sum(c.n_rows for c in chunks) == len(geoms)
    assert sum(c.n_missing for c in chunks) == sum(g is None or g.is_empty for g in geoms)
    assert all(c.rows.max(initial=0) < max(c.n_rows, 1) for c in chunks)
