"""Coordinate reference systems: the choice, the checks, whole shapes, true areas."""

import sqlite3
import time
from contextlib import closing

import geopandas as gpd
import numpy as np
import pyproj
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st
from paths import FIXTURES, SAMPLE
from reading import node_exposure
from shapely.geometry import MultiPolygon, Polygon, box

from geobgp import CRSError, Domain, bin_areas, bin_points, map_intensity
from geobgp.auto.gridded import about_crs, read_land
from geobgp.files import read_vector
from geobgp.land.crs import areal_scale, check_crs, choose_crs, metric_crs, project_shapes, transform
from geobgp.land.polygons import land_polygons
from geobgp.land.regions import area_shares
from geobgp.summary import Choice

GEOD = pyproj.Geod(ellps="WGS84")

# Coarse outlines by hand: Viti Levu, Vanua Levu with its east beyond 180, Taveuni astride it, Lau.
FIJI = [
    [(177.3, -17.9), (177.7, -18.2), (178.5, -18.1), (178.6, -17.6), (177.9, -17.4), (177.4, -17.6)],
    [(178.5, -16.8), (179.3, -16.8), (180.0, -16.5), (180.0, -16.2), (179.2, -16.4)],
    [(-180.0, -16.5), (-179.9, -16.3), (-180.0, -16.2)],
    [(-178.5, -18.9), (-178.2, -18.9), (-178.2, -18.6), (-178.5, -18.6)],
]
# Spitsbergen, Nordaustlandet, Edgeoya.
SVALBARD = [
    [(13.5, 78.0), (16.6, 76.6), (18.8, 78.4), (18.5, 79.3), (14.0, 79.8), (10.8, 79.5)],
    [(18.2, 79.8), (22.0, 79.3), (27.0, 79.9), (25.0, 80.5), (20.0, 80.5)],
    [(21.0, 78.2), (22.5, 77.3), (24.5, 77.9), (23.0, 78.3)],
]


def series(geoms, crs="EPSG:4326"):
    return gpd.GeoSeries([Polygon(g) if isinstance(g, list) else g for g in geoms], crs=crs)


def true_area(geoms):
    """Return the geodesic area in m² of polygons whose edges are straight in longitude and latitude."""
    fine = shapely.segmentize(geoms.to_crs(4326).to_numpy(), 0.01)
    return sum(abs(GEOD.geometry_area_perimeter(g)[0]) for g in fine)


def chukotka(name):
    return gpd.read_file(FIXTURES / f"{name}.geojson").geometry


# --- the choice -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bounds", "code"),
    [
        ((3.36, 50.75, 7.2, 53.55), 32631),  # the Netherlands: 0.3 to 4.2 degrees from zone 31's meridian
        ((-70.0, -40.0, -66.5, -38.0), 32719),
        ((7.0, -1.0, 8.0, 0.5), 32732),  # astride the equator, the larger part south
        ((178.0, -20.0, 179.9, -18.0), 32760),
        ((-180.0, 51.0, -176.0, 53.0), 32601),
        ((5.99, 0.0, 6.02, 0.1), 32632),
    ],
)
def test_small_domains_get_their_utm_zone(bounds, code):
    assert choose_crs(series([box(*bounds)])).to_epsg() == code


@pytest.mark.parametrize("west", np.arange(-180.0, 180.0, 7.3))
def test_a_zone_holds_its_domain_anywhere(west):
    square = box(west, 10.0, west + 2.0, 12.0)
    crs = choose_crs(series([square]))
    assert 32601 <= crs.to_epsg() <= 32660
    assert project_shapes(series([square]), crs)[0].area == pytest.approx(true_area(series([square])), rel=2e-3)


@pytest.mark.parametrize(
    ("geoms", "name"),
    [
        ([box(-124.4, 32.5, -114.1, 42.0)], "LAEA 37N 119W"),
        ([box(100, 83, 104, 88)], "LAEA 85.5N 102E"),  # beyond UTM's 84 degrees
        ([box(-180, 66, 180, 90)], "LAEA 90N 0E"),
        ([box(-180, -90, 180, -60)], "LAEA 90S 0E"),
        (FIJI, "LAEA 18.5S 179.5E"),
    ],
)
def test_wide_and_polar_domains_get_an_equal_area_plane_around_them(geoms, name):
    crs = choose_crs(series(geoms))
    assert crs.name == f"WGS 84 / {name}"
    assert crs.is_projected
    assert {axis.unit_name for axis in crs.axis_info} == {"metre"}


def test_the_choice_does_not_depend_on_the_crs_of_the_source():
    land = gpd.read_file(SAMPLE / "netherlands_land.gpkg").geometry
    assert choose_crs(land.to_crs(28992)) == choose_crs(land.to_crs(3857)) == choose_crs(land)


def test_more_than_half_the_globe_is_refused():
    with pytest.raises(CRSError, match=r"more than half the globe.*EPSG:6933"):
        choose_crs(series([box(-180, -80, 180, 80)]))


def test_grads_from_paris_are_understood():
    greenwich = series([box(2.0, 48.0, 3.0, 49.0)])
    paris = greenwich.to_crs("EPSG:4807")
    assert paris.total_bounds[1] > 50  # grads
    land = land_polygons(paris)
    assert land.crs.to_epsg() == 32631
    assert land.geometry.area == pytest.approx(project_shapes(greenwich, land.crs)[0].area, rel=1e-4)


# --- what is given --------------------------------------------------------------------------------


def test_geographic_is_refused_with_a_crs_for_the_data():
    with pytest.raises(CRSError, match=r"EPSG:4326 \(WGS 84\) is geographic.*Leave crs= out.*'EPSG:32631'"):
        check_crs("EPSG:4326", series([box(3, 51, 5, 52)]))
    with pytest.raises(CRSError, match="geographic"):
        check_crs(4258)


@pytest.mark.parametrize("crs", ["EPSG:4978", "EPSG:5773"])
def test_geocentric_and_vertical_are_refused(crs):
    with pytest.raises(CRSError, match="needs a projected CRS in metres"):
        check_crs(crs)


@pytest.mark.parametrize("crs", ["EPSG:999999", "no such thing", "", 3.5])
def test_nonsense_is_refused(crs):
    with pytest.raises(CRSError, match="no coordinate reference system that PROJ knows"):
        check_crs(crs)


@pytest.mark.parametrize("crs", ["EPSG:2053", "EPSG:5513"])
def test_axes_that_run_west_or_south_are_refused(crs):
    with pytest.raises(CRSError, match="do not run east and north"):
        check_crs(crs)


@pytest.mark.parametrize("crs", ["EPSG:28992", "EPSG:3035", "EPSG:3031", "EPSG:27700", "EPSG:31467", "EPSG:3857"])
def test_metres_stay_as_they_are(crs):
    assert check_crs(crs) == pyproj.CRS(crs)


def test_heights_are_left_out():
    assert check_crs("EPSG:28992+5709") == pyproj.CRS("EPSG:28992")


@pytest.mark.parametrize(
    ("crs", "factor", "place"),
    [
        ("EPSG:2264", 1200 / 3937, (-79.0, 35.5)),  # North Carolina, US survey feet
        ("EPSG:2222", 0.3048, (-110.5, 33.0)),  # Arizona, international feet
        ("+proj=utm +zone=31 +datum=WGS84 +units=km +type=crs", 1000.0, (5.0, 52.0)),
    ],
)
def test_feet_and_kilometres_become_metres(crs, factor, place):
    metres = check_crs(crs)
    assert all(axis.unit_conversion_factor == 1 for axis in metres.axis_info)
    at = np.array([place])
    assert transform(at, pyproj.CRS(4326), metres) == pytest.approx(
        factor * transform(at, pyproj.CRS(4326), pyproj.CRS(crs)), rel=1e-12
    )


def test_polygons_in_feet_have_their_true_area():
    county = series([box(-79.4, 35.3, -78.8, 35.8)]).to_crs("EPSG:2264")
    land = land_polygons(county, crs="EPSG:2264")
    scale = areal_scale(land.crs, *shapely.get_coordinates(land.geometry.centroid).T)[0]
    assert land.geometry.area / scale == pytest.approx(true_area(county), rel=2e-4)


# --- whole shapes ---------------------------------------------------------------------------------


def test_chukotka_is_whole_however_it_is_written():
    split, through = chukotka("chukotka_land"), chukotka("chukotka_land_360")
    assert split.total_bounds[0] == -180 and through.total_bounds[2] > 190
    one, other = land_polygons(split), land_polygons(through)
    assert one.crs == other.crs
    for land, source in ((one, split), (other, through)):
        assert land.geometry.area == pytest.approx(true_area(source), rel=1e-4)
        assert len(land.geometry.geoms) == 8
    assert one.geometry.symmetric_difference(other.geometry).area < 1e-6 * one.geometry.area


def test_no_seam_is_left_at_the_antimeridian():
    domain = Domain.from_polygons(chukotka("chukotka_land"), cell_size=20_000)
    other = Domain.from_polygons(chukotka("chukotka_land_360"), cell_size=20_000)
    assert domain.n_components == other.n_components
    assert domain.node_areas.sum() == pytest.approx(true_area(chukotka("chukotka_land")), rel=1e-3)
    assert domain.node_areas.sum() == pytest.approx(other.node_areas.sum(), rel=1e-6)


def test_fiji():
    land = land_polygons(series(FIJI))
    assert land.geometry.area == pytest.approx(true_area(series(FIJI)), rel=1e-4)
    assert len(land.geometry.geoms) == 3  # the two halves of the second island have become one
    assert np.ptp(land.geometry.bounds[::2]) < 500e3


def test_svalbard():
    land = land_polygons(series(SVALBARD))
    assert land.crs.name == "WGS 84 / LAEA 78.5N 20E"
    assert land.geometry.area == pytest.approx(true_area(series(SVALBARD)), rel=1e-4)


def test_a_polygon_that_jumps_across_the_antimeridian_is_mended():
    jumps = Polygon([(177, -19), (-178, -19), (-178, -16), (177, -16)], [[(179, -18), (-179, -18), (-179, -17)]])
    runs = Polygon([(177, -19), (182, -19), (182, -16), (177, -16)], [[(179, -18), (181, -18), (181, -17)]])
    one, other = land_polygons(series([jumps])), land_polygons(series([runs]))
    assert one.crs == other.crs
    assert one.notes == ["land: 1 shape jumps from +180 to -180 degrees of longitude; taken to cross there"]
    assert one.geometry.symmetric_difference(other.geometry).area < 1.0


def test_barriers_cross_the_antimeridian_too():
    fence = gpd.GeoSeries([shapely.LineString([(179, -17), (-179, -17)])], crs=4326)
    land = land_polygons(series([box(177, -19, 180, -16), box(-180, -19, -178, -16)]), barriers=fence)
    assert land.barriers.length == pytest.approx(GEOD.line_length([179, 181], [-17, -17]), rel=1e-3)


@pytest.mark.parametrize("south", [60.0, 75.0])
def test_polar_caps_have_no_seam(south):
    for cap in (box(-180, south, 180, 90), box(-180, -90, 180, -south)):
        land = land_polygons(series([cap]))
        quarter = series([box(0, cap.bounds[1], 90, cap.bounds[3])])
        assert land.geometry.area == pytest.approx(4 * true_area(quarter), rel=1e-5)
        assert len(shapely.get_rings(land.geometry)) == 1


def test_a_crs_that_tears_the_domain_is_refused():
    with pytest.raises(CRSError, match=r"tears the polygons apart.*Leave crs= out"):
        land_polygons(series(FIJI), crs="EPSG:3857")


def test_long_edges_stay_where_they_are():
    strip = series([box(0, 60, 20, 61)])
    land = land_polygons(strip)
    assert land.geometry.area == pytest.approx(true_area(strip), rel=1e-5)
    middle = transform(np.array([[10.0, 60.001]]), strip.crs, land.crs)
    assert land.geometry.contains(shapely.Point(middle[0]))


def test_swapped_coordinates_are_named_as_such():
    with pytest.raises(CRSError, match=r"longitude 52, latitude 100.*look swapped"):
        land_polygons(series([Polygon([(52, 100), (53, 100), (53, 104)])]))


def test_metres_labelled_as_degrees_are_named_as_such():
    with pytest.raises(CRSError, match=r"longitude 5\.2e\+05|no degrees: correct the CRS"):
        land_polygons(series([box(520e3, 180e3, 530e3, 190e3)]))


def test_coordinates_that_cannot_be_projected_are_named():
    lost = series([box(-122, 37, -121, 38)])  # beyond the horizon
    with pytest.raises(CRSError, match=r"of \d+ coordinates cannot be brought to .*the first \(-12[12], 3[78]\)"):
        project_shapes(lost, pyproj.CRS("+proj=ortho +lat_0=-40 +lon_0=60 +type=crs"))


def test_a_crs_far_from_the_domain_is_remarked_on():
    land = land_polygons(series([box(20, 60, 22, 61)]), crs="EPSG:3857")
    assert any("times their true size" in note for note in land.notes)
    assert not any("true size" in note for note in land_polygons(series([box(20, 60, 22, 61)])).notes)


@settings(max_examples=25, deadline=None)
@given(lon=st.floats(-180, 180), lat=st.floats(-75, 75), width=st.floats(0.5, 25), height=st.floats(0.5, 12))
def test_any_box_comes_out_with_its_area(lon, lat, width, height):
    there = series([box(lon, lat, lon + width, lat + height)])
    land = land_polygons(there)
    e, n = shapely.get_coordinates(shapely.segmentize(land.geometry, 20e3)).T
    mean = areal_scale(land.crs, e, n).mean()
    assert land.geometry.area / mean == pytest.approx(true_area(there), rel=2e-3)
    assert land.geometry.geom_type == "Polygon"


# --- areas ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("crs", [None, "EPSG:32631", "EPSG:3035", "EPSG:28992", "EPSG:3857", "EPSG:32633"])
def test_land_area_of_the_netherlands(crs):
    land, water = (gpd.read_file(SAMPLE / f"netherlands_{w}.gpkg").geometry for w in ("land", "water"))
    dry = series([land.union_all() - water.union_all()])
    domain = Domain.from_polygons(land, water=water, cell_size=5000, crs=crs)
    assert domain.node_areas.sum() == pytest.approx(true_area(dry), rel=5e-4)


@pytest.mark.parametrize("crs", ["EPSG:32631", "EPSG:28992", "EPSG:3035", "EPSG:3413"])
def test_areal_scale_is_that_of_proj(crs):
    crs = pyproj.CRS(crs)
    lon, lat = (a.ravel() for a in np.meshgrid(np.linspace(3, 8, 7), np.linspace(50, 54, 7)))
    at = transform(np.c_[lon, lat], crs.geodetic_crs, crs)
    proj = np.array(pyproj.Proj(crs).get_factors(lon, lat).areal_scale)
    assert areal_scale(crs, at[:, 0], at[:, 1]) == pytest.approx(proj, rel=1e-6)


@pytest.mark.parametrize("latitude", [0.0, 30.0, 52.0, 70.0])
def test_areal_scale_of_web_mercator_is_that_of_the_ellipsoid(latitude):
    tile = series([box(5, latitude, 5.02, latitude + 0.02)])
    flat = project_shapes(tile, pyproj.CRS(3857))[0]
    scale = areal_scale(pyproj.CRS(3857), *shapely.get_coordinates(flat.centroid).T)[0]
    assert flat.area / true_area(tile) == pytest.approx(scale, rel=1e-5)


@pytest.mark.parametrize("crs", ["EPSG:32631", "EPSG:28992", "EPSG:3857", "EPSG:3035", "EPSG:3031"])
def test_interpolated_scale_is_close_to_the_exact_one_and_fast(crs):
    crs = pyproj.CRS(crs)
    west, south, east, north = (
        (-2e6, -2e6, 2e6, 2e6) if crs.to_epsg() == 3031 else project_shapes(series([box(3, 50, 8, 54)]), crs)[0].bounds
    )
    e, n = np.meshgrid(np.linspace(west, east, 1000), np.linspace(north, south, 1000))
    start = time.process_time()
    scale = areal_scale(crs, e, n)
    assert time.process_time() - start < 1.0  # 0.03 to 0.07 s alone
    some = np.s_[::31, ::29]
    np.testing.assert_allclose(scale[some], areal_scale(crs, e[some], n[some]), rtol=5e-5)
    scattered = areal_scale(crs, e[::3, ::3].ravel(), n[::3, ::3].ravel())
    np.testing.assert_allclose(scattered, scale[::3, ::3].ravel(), rtol=5e-5)


def test_areal_scale_at_the_pole():
    crs = pyproj.CRS("EPSG:3031")
    assert areal_scale(crs, np.zeros(1), np.zeros(1)) == pytest.approx([0.97276901289**2], rel=1e-6)


def test_areal_scale_takes_any_shape():
    crs = pyproj.CRS(32631)
    assert areal_scale(crs, 500e3, 5.8e6).shape == ()
    assert areal_scale(crs, np.full((2, 3), 500e3), 5.8e6).shape == (2, 3)
    assert areal_scale(crs, np.array([]), np.array([])).shape == (0,)


# --- points ---------------------------------------------------------------------------------------


def test_multipolygon_halves_at_the_antimeridian_join():
    halves = MultiPolygon([box(179, 0, 180, 1), box(-180, 0, -179, 1)])
    assert land_polygons(series([halves])).geometry.geom_type == "Polygon"


def test_the_crs_of_a_domain_can_be_given_again():
    """An equal-area CRS that was chosen for land too wide for a UTM zone is one of pyproj's special classes."""
    wide = gpd.GeoSeries([shapely.box(0, 50, 20, 60)], crs=4326)
    domain = Domain.from_polygons(wide, cell_size=50_000)
    assert domain.crs.to_authority() is None
    again = Domain.from_polygons(domain.geometry, cell_size=50_000, crs=domain.crs)
    assert again.n_nodes == domain.n_nodes and again.crs.equals(domain.crs)


NETHERLANDS = gpd.GeoSeries([box(3.4, 50.8, 7.2, 53.5)], crs=4326).segmentize(0.05)
GROUND = abs(GEOD.geometry_area_perimeter(NETHERLANDS.iloc[0])[0])


@pytest.mark.parametrize("code", [28992, 3035, 32631, 25831])
def test_a_metric_crs_that_the_land_has_is_kept(code):
    crs, own, why = metric_crs(NETHERLANDS.to_crs(code))
    assert (crs.to_epsg(), own, why) == (code, True, "")
    domain = Domain.from_polygons(NETHERLANDS.to_crs(code), cell_size=20_000)
    assert domain.crs.to_epsg() == code and "CRS: the land's own" in domain.notes
    choice = about_crs(read_land(NETHERLANDS.to_crs(code)), None)
    assert choice == Choice(f"EPSG:{code}, {domain.crs.name}", "the land's own")
    # Whatever the plane, the land is as large as it is.
    assert domain.node_areas.sum() == pytest.approx(GROUND, rel=0.002)


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (3857, "is made for the whole world"),
        (6933, "is made for the whole world"),
        (3395, "is made for the whole world"),
        (32633, "is made for elsewhere"),
        (27700, "is made for elsewhere"),
        (3034, "shows areas 7 % wrong there"),
        (2264, "has the unit US survey foot"),
    ],
)
def test_another_is_chosen_where_the_lands_own_will_not_do(code, why):
    crs, own, reason = metric_crs(NETHERLANDS.to_crs(code))
    assert crs.to_epsg() == 32631 and why in reason and not own
    domain = Domain.from_polygons(NETHERLANDS.to_crs(code), cell_size=20_000)
    assert domain.crs.to_epsg() == 32631
    assert why in about_crs(read_land(NETHERLANDS.to_crs(code)), None).why


def test_a_plane_that_stretches_shapes_is_not_kept():
    flat = NETHERLANDS.to_crs("+proj=cea +lat_ts=30 +units=m")  # equal-area, far from its parallel
    crs, own, why = metric_crs(flat)
    assert crs.to_epsg() == 32631 and not own and "stretches shapes" in why
    near = NETHERLANDS.to_crs("+proj=laea +lat_0=45 +lon_0=0 +units=m")
    assert metric_crs(near)[1:] == (True, "")


def test_degrees_are_brought_to_metres_as_ever():
    assert metric_crs(NETHERLANDS) == (choose_crs(NETHERLANDS), False, "")


ENGINEERING = pyproj.CRS('LOCAL_CS["site",UNIT["metre",1]]')


@pytest.mark.parametrize("crs", [ENGINEERING, pyproj.CRS(4978), pyproj.CRS(5703)], ids=lambda crs: crs.type_name)
def test_a_crs_without_places_is_refused_wherever_it_comes(crs):
    square = shapely.box(600_000, 5_800_000, 610_000, 5_810_000)
    there = gpd.GeoDataFrame({"n": [3.0]}, geometry=[square], crs=32631)
    odd = there.set_crs(crs, allow_override=True)
    domain = Domain.from_polygons(there, cell_size=2000)
    points = gpd.GeoSeries([square.centroid], crs=crs)
    tries = {
        "land": lambda: Domain.from_polygons(odd, cell_size=2000),
        "water": lambda: Domain.from_polygons(there, water=odd, cell_size=2000),
        "points": lambda: bin_points(points, domain),
        "areas": lambda: bin_areas(odd, domain, "n"),
        "regions": lambda: area_shares(domain, odd),
        "exposure": lambda: node_exposure(odd, domain, "n"),
    }
    for name, call in tries.items():
        with pytest.raises(CRSError, match=r"two coordinates are no place on Earth") as caught:
            call()
        assert caught.value.option == name


def test_local_coordinates_are_in_one_crs():
    land = gpd.GeoSeries([shapely.box(0, 0, 100, 100)], crs=32631)
    water = gpd.GeoSeries([shapely.box(0, 0, 10, 10)], crs=28992)
    with pytest.raises(CRSError, match="land has WGS 84 / UTM zone 31N and water Amersfoort / RD New"):
        Domain.from_polygons(land, water=water, cell_size=10, crs="local")
    points = gpd.GeoSeries(gpd.points_from_xy([5, 50], [50, 5]), crs=28992)
    with pytest.raises(CRSError, match="land has WGS 84 / UTM zone 31N and points Amersfoort"):
        map_intensity(points, land, cell_size=20, crs="local", cache=False)
    assert Domain.from_polygons(land, water=water.set_crs(32631, allow_override=True), cell_size=10, crs="local")


def test_a_geopackage_of_undefined_crs_has_none(tmp_path):
    path = tmp_path / "land.gpkg"
    gpd.GeoDataFrame(geometry=[shapely.box(600_000, 5_800_000, 610_000, 5_810_000)], crs=32631).to_file(path)
    with closing(sqlite3.connect(path)) as file:
        file.execute("update gpkg_contents set srs_id = -1")
        file.execute("update gpkg_geometry_columns set srs_id = -1")
        file.commit()
    assert read_vector(path, "land").crs is None
    with pytest.raises(CRSError, match="reference system of land is not known"):
        Domain.from_polygons(path, cell_size=2000)
    points = np.random.default_rng(1).uniform([601_000, 5_801_000], [609_000, 5_809_000], (30, 2))
    made = map_intensity(points, path, land_crs=32631, cell_size=2000, m="full", cache=False, max_seconds=0)
    assert made.domain.crs == pyproj.CRS(32631)
