"""Reading, repairing and subtracting polygons: what comes out, and what is said of what came in."""

import geopandas as gpd
import numpy as np
import pytest
import shapely
from hypothesis import example, given, settings
from hypothesis import strategies as st
from shapely.geometry import GeometryCollection, LineString, MultiPolygon, Point, Polygon, box
from strategies import messy_polygons, star_polygons

from geobgp import CRSError, DomainError, GeometryError
from geobgp.land.polygons import land_polygons, read_lines, read_polygons

SQUARE = box(0, 0, 4, 4)
BOW_TIE = Polygon([(0, 0), (1, 1), (1, 0), (0, 1)])


def frame(*geoms, crs="EPSG:28992"):
    return gpd.GeoDataFrame(geometry=list(geoms), crs=crs)


# --- reading --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["frame", "series", "geometry", "list", "gpkg", "shp", "geojson", "path"])
def test_every_kind_of_source_gives_the_same_polygons(kind, tmp_path):
    table = frame(SQUARE, box(10, 0, 12, 2), crs=28992)
    if kind in ("gpkg", "shp", "geojson", "path"):
        source = tmp_path / f"land.{'gpkg' if kind == 'path' else kind}"
        table.to_file(source)
        source = source if kind == "path" else str(source)
    else:
        geometry = MultiPolygon(table.geometry.tolist())
        source = {"frame": table, "series": table.geometry, "geometry": geometry, "list": table.geometry.tolist()}[kind]
    polygons, notes = read_polygons(source)
    assert polygons.area.sum() == pytest.approx(20) and notes == []
    assert (polygons.crs is None) == (kind in ("geometry", "list"))


def test_parquet(tmp_path):
    frame(SQUARE).to_parquet(tmp_path / "land.parquet")
    polygons, _ = read_polygons(tmp_path / "land.parquet")
    assert polygons.crs.to_epsg() == 28992 and polygons.area.sum() == 16


def test_missing_file_says_what_is_there(tmp_path):
    (tmp_path / "lnad.gpkg").touch()
    with pytest.raises(GeometryError, match=r"land: there is no file .*land.gpkg. That folder has: 'lnad.gpkg'"):
        read_polygons(tmp_path / "land.gpkg")
    with pytest.raises(GeometryError, match=r"water: there is no file .* The folder .*nowhere does not exist"):
        read_polygons(tmp_path / "nowhere" / "water.gpkg", "water")


def test_layers_are_named(tmp_path):
    path = str(tmp_path / "map.gpkg")
    frame(SQUARE).to_file(path, layer="land")
    frame(box(0, 0, 1, 1)).to_file(path, layer="lakes")
    with pytest.raises(
        GeometryError, match=r"a layer must be named in .*map.gpkg, which has 'land', 'lakes'.*layername=land"
    ):
        read_polygons(path)
    with pytest.raises(GeometryError, match=r"there is no layer 'seas'.*'land', 'lakes'"):
        read_polygons(path, layer="seas")
    assert read_polygons(path, layer="lakes")[0].area.sum() == 1
    assert read_polygons(f"{path}|layername=land")[0].area.sum() == 16
    assert land_polygons(f"{path}|layername=land", f"{path}|layername=lakes").geometry.area == pytest.approx(
        15, rel=1e-2
    )


def test_files_that_are_no_maps(tmp_path):
    (tmp_path / "land.gpkg").write_text("this is no map")
    with pytest.raises(GeometryError, match=r"land.gpkg cannot be read as a vector file"):
        read_polygons(tmp_path / "land.gpkg")
    frame(SQUARE).iloc[:0].to_file(tmp_path / "empty.gpkg")
    with pytest.raises(GeometryError, match=r"no features at all; polygons were expected|no layer with geometries"):
        read_polygons(tmp_path / "empty.gpkg")


def test_kinds_that_are_no_source():
    with pytest.raises(GeometryError, match=r"expected a GeoDataFrame.*found int"):
        read_polygons(3)
    with pytest.raises(GeometryError, match="no geometry column among 'name'"):
        read_polygons(gpd.GeoDataFrame({"name": ["a"]}))


def test_other_kinds_are_refused_or_noted():
    with pytest.raises(GeometryError, match="land: polygons were expected; found 2 Point, 1 LineString"):
        read_polygons(frame(Point(0, 0), Point(1, 1), LineString([(0, 0), (1, 1)])))
    polygons, notes = read_polygons(frame(SQUARE, Point(1, 1), LineString([(0, 0), (1, 1)])))
    assert len(polygons) == 1
    assert notes == ["land: ignored what are no polygons: 1 Point, 1 LineString"]


def test_collections_give_their_polygons():
    nested = GeometryCollection([GeometryCollection([SQUARE, Point(0, 0)]), box(5, 0, 6, 1)])
    polygons, notes = read_polygons(frame(nested, box(8, 0, 9, 1)))
    assert polygons.area.sum() == 18
    assert sorted(polygons.index) == [0, 0, 1]
    assert notes == ["land: ignored what are no polygons: 1 Point"]


def test_gaps_are_noted():
    polygons, notes = read_polygons(frame(SQUARE, None, Polygon()))
    assert len(polygons) == 1 and notes == ["land: 2 missing or empty geometries ignored"]
    with pytest.raises(GeometryError, match="nothing but 1 missing or empty geometry; polygons were expected"):
        read_polygons(frame(None))


def test_invalid_polygons_are_repaired_and_mentioned():
    overlapping = MultiPolygon([box(0, 0, 2, 2), box(1, 1, 3, 3)])
    polygons, notes = read_polygons(frame(BOW_TIE, overlapping, SQUARE))
    assert polygons.is_valid.all()
    assert polygons.area.tolist() == pytest.approx([0.5, 7.0, 16.0])
    assert notes == ["land: 2 invalid polygons repaired"]


def test_heights_and_repeated_vertices_go():
    ring = [(0, 0, 9), (4, 0, 9), (4, 0, 9), (4, 4, 9), (0, 4, 9)]
    polygon = read_polygons(frame(Polygon(ring)))[0].iloc[0]
    assert not polygon.has_z and shapely.get_num_coordinates(polygon) == 5


def test_polygons_without_area_are_refused():
    with pytest.raises(GeometryError, match="all 1 polygons have no area"):
        read_polygons(frame(Polygon([(0, 0), (1, 1), (2, 2)])))


def test_vertices_that_are_no_numbers_are_refused():
    with pytest.raises(GeometryError, match="1 vertex is not finite"):
        read_polygons(frame(Polygon([(0, 0), (np.inf, 1), (2, 2)])))


def test_the_source_is_left_as_it_was():
    table = frame(BOW_TIE, SQUARE)
    before = table.to_wkb()
    land_polygons(table, crs="local")
    assert table.to_wkb().equals(before)


@settings(max_examples=200, deadline=None)
@given(messy_polygons())
@example(Polygon([(1, 1), (0, 1), (1, 0), (1, 1), (2, 1), (1, 0)]))  # GEOS 3.14 leaves it invalid at first
def test_repair_gives_valid_polygons_within_the_hull(polygon):
    try:
        repaired = read_polygons(polygon)[0].iloc[0]
    except GeometryError as error:
        assert "no area" in str(error)
        return
    assert repaired.is_valid and repaired.geom_type in ("Polygon", "MultiPolygon")
    assert 0 < repaired.area <= polygon.convex_hull.area * (1 + 1e-12)


# --- lines ----------------------------------------------------------------------------------------


def test_lines_and_outlines():
    lines, notes = read_lines(frame(LineString([(0, 0), (0, 5)]), SQUARE, Point(0, 0)))
    assert lines.length.sum() == 21
    assert notes == [
        "barriers: ignored what are no lines: 1 Point",
        "barriers: the outlines of 1 polygon are used as lines",
    ]
    with pytest.raises(GeometryError, match="barriers: lines were expected; found 1 Point"):
        read_lines(frame(Point(0, 0)))


def test_barriers_reach_the_land():
    land = land_polygons(SQUARE, barriers=LineString([(2, -1), (2, 5)]), crs="local")
    assert land.barriers.geom_type == "MultiLineString" and land.barriers.length == 6


# --- land minus water -----------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(star_polygons(), star_polygons(centre=(1.0, 0.5)))
def test_areas_add_up(land, water):
    try:
        dry = land_polygons(land, water, crs="local").geometry
    except DomainError:
        assert water.buffer(1e-9).covers(land)
        return
    assert dry.is_valid and dry.area == pytest.approx(land.area - land.intersection(water).area, abs=1e-9)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(*[st.integers(0, 90)] * 2, st.integers(3, 20)), min_size=2, max_size=12))
def test_land_in_many_rows_is_their_union(squares):
    # Some lie apart, some overlap, some touch: only those next to each other need be united.
    land = [box(x, y, x + side, y + side) for x, y, side in squares]
    found = land_polygons(land, crs="local").geometry
    assert found.is_valid and found.equals(shapely.union_all(land))
    water = [shapely.Point(x, y).buffer(4) for x, y, _ in squares[::2]]
    dry = land_polygons(land, water, crs="local").geometry
    assert dry.is_valid
    assert dry.area == pytest.approx(shapely.union_all(land).difference(shapely.union_all(water)).area)


def test_shared_borders_leave_no_crack():
    """Provinces with a common border of many vertices make one land."""
    border = [(5 + 0.01 * np.sin(y), 51 + y / 50) for y in np.linspace(0, 50, 173)]
    west = Polygon([(4, 52), (4, 51), *border])
    east = Polygon([(6, 52), *border[::-1], (6, 51)])
    land = land_polygons(gpd.GeoSeries([west, east], crs=4326))
    assert land.geometry.geom_type == "Polygon" and len(land.geometry.interiors) == 0


def test_a_border_with_a_vertex_on_one_side_only_leaves_no_crack():
    west = Polygon([(4, 51), (5, 51), (5, 51.3), (5, 52), (4, 52)])
    land = land_polygons(gpd.GeoSeries([west, box(5, 51, 6, 52)], crs=4326))
    assert land.geometry.geom_type == "Polygon" and len(land.geometry.interiors) == 0


def test_water_in_another_crs():
    land = gpd.GeoSeries([box(4, 51, 6, 53)], crs=4326)
    water = gpd.GeoSeries([box(4.5, 51.5, 5, 52)], crs=4326)
    one, other = land_polygons(land, water), land_polygons(land, water.segmentize(0.01).to_crs(3035))
    assert one.geometry.symmetric_difference(other.geometry).area < 1e-5 * one.geometry.area


def test_no_land_left_is_said_in_numbers():
    with pytest.raises(
        DomainError, match=r"No land is left.*all 16 square units of land lie within the 100 square units"
    ):
        land_polygons(SQUARE, box(-3, -3, 7, 7), crs="local")
    land, water = (gpd.GeoSeries([box(5 - r, 52 - r, 5 + r, 52 + r)], crs=4326) for r in (0.1, 0.2))
    with pytest.raises(DomainError, match=r"all 305\.\d+ km² of land lie within the 1,22\d\.?\d* km² of water"):
        land_polygons(land, water)


def test_empty_water_is_no_water():
    assert land_polygons(SQUARE, frame(), [], crs="local").geometry.area == 16


# --- which CRS ------------------------------------------------------------------------------------


def test_no_crs_is_refused_with_the_remedies():
    for source in (frame(SQUARE, crs=None), SQUARE):
        with pytest.raises(CRSError, match=r"of land is not known.*set_crs\('EPSG:4326'\).*crs='local'"):
            land_polygons(source)
    with pytest.raises(CRSError, match="of land is not known"):
        land_polygons(frame(SQUARE, crs=None), crs=28992)
    with pytest.raises(CRSError, match="of water is not known"):
        land_polygons(frame(SQUARE), frame(box(0, 0, 1, 1), crs=None))


def test_bare_geometries_are_in_the_crs_that_is_given():
    land = land_polygons(box(100e3, 400e3, 110e3, 410e3), box(101e3, 401e3, 102e3, 402e3), crs="EPSG:28992")
    assert land.crs.to_epsg() == 28992 and land.geometry.area == pytest.approx(99e6)
    assert land.notes == [
        "land: bare geometries, taken to be in Amersfoort / RD New",
        "water: bare geometries, taken to be in Amersfoort / RD New",
    ]
    with pytest.raises(CRSError, match="geographic"):
        land_polygons(box(4, 51, 5, 52), crs="EPSG:4326")
    feet = land_polygons(box(2e6, 7e5, 2.01e6, 7.1e5), crs="EPSG:2264")
    assert feet.geometry.area == pytest.approx(1e8 * (1200 / 3937) ** 2, rel=1e-9)


def test_bare_water_is_in_the_crs_of_the_land():
    land = land_polygons(gpd.GeoSeries([box(4, 51, 6, 53)], crs=4326), box(4.5, 51.5, 5, 52))
    assert land.notes == ["water: bare geometries, taken to be in WGS 84"]
    assert len(land.geometry.interiors) == 1


def test_local_planes():
    assert land_polygons(SQUARE, crs="local").crs is None
    land = land_polygons(frame(SQUARE), crs="local")
    assert land.crs is None and land.geometry.equals(SQUARE)
    assert land.notes == ["land: on a local plane, so the coordinates of Amersfoort / RD New are used as they are"]
    with pytest.raises(CRSError, match="crs='local' is for planar coordinates, but land has WGS 84"):
        land_polygons(frame(SQUARE, crs=4326), crs="local")


def test_geometry_comes_out_unchanged_in_its_own_crs():
    polygon = Polygon([(0.1, 0.2), (4.3, 0.7), (3.9, 5.1)])
    assert land_polygons(frame(polygon), crs=28992).geometry.equals_exact(polygon, 0)
