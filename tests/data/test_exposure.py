"""Exposure at the nodes; above all, people are conserved: against independent overlays."""

from __future__ import annotations

import warnings

import geopandas as gpd
import numpy as np
import pyproj
import pytest
import rioxarray  # noqa: F401
import shapely
import xarray as xr
from affine import Affine
from exactextract import exact_extract
from exactextract.raster import NumPyRasterSource
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from models import archipelago, square
from paths import SAMPLE
from reading import node_exposure
from strategies import island_groups, star_polygons

from geobgp.data.inputs import Inputs, within
from geobgp.data.rasters import read_to_nodes
from geobgp.errors import DataError, GeobgpWarning, InputWarning
from geobgp.land.domain import Domain
from geobgp.land.regions import overlay
from geobgp.output.grids import dataset


def quiet(exposure, domain, **options):
    """Return the exposure of nodes whatever lies off the land."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)
        return node_exposure(exposure, domain, **options)[0]


def raster(values, affine, crs=None):
    """Return values as an array that knows its place."""
    array = xr.DataArray(np.asarray(values, float), dims=("y", "x"))
    array = array.rio.write_transform(affine)
    return array if crs is None else array.rio.write_crs(crs)


# -- laws: people on the land are those of an independent overlay


def by_overlay(areas, people, domain, water=None):
    """Return people per node by a loop: each area's, evenly over what of it is no water.

    Those on pieces of land that are no node's are at the node nearest by.
    """
    islets, near = domain.left_out
    land = [*domain.polygon_of(np.arange(domain.n_nodes)), *islets]
    out = np.zeros(len(land))
    for area, n in zip(areas, people, strict=True):
        dry = area if water is None else area - water
        out += [n * (area & piece).area / dry.area if dry.area else 0.0 for piece in land]
    return np.bincount(np.concatenate([np.arange(domain.n_nodes), near]), out, domain.n_nodes)


def districts(n, seed):
    points = shapely.MultiPoint(np.random.default_rng(seed).uniform(-9, 9, (n, 2)))
    return list(shapely.get_parts(shapely.voronoi_polygons(points, extend_to=shapely.box(-12, -12, 12, 12))))


@settings(max_examples=40, deadline=None)
@given(
    land=island_groups(),
    lake=st.none() | star_polygons(radius=2.0, centre=(1.0, 1.0)),
    n=st.integers(1, 8),
    seed=st.integers(0, 1000),
    odd=st.lists(star_polygons(radius=5.0, centre=(3.0, -2.0)), max_size=2, unique_by=shapely.to_wkb),
)
def test_people_of_areas_are_conserved(land, lake, n, seed, odd):
    """Exact to 1e-9: total, and at every node."""
    assume((land if lake is None else land - lake).area > 0.5)
    domain = Domain.from_polygons(land, water=lake, cell_size=0.9, crs="local")
    shapes = districts(n, seed) + odd
    people = np.random.default_rng(seed).gamma(0.5, 1000.0, len(shapes)) + 1.0
    found = quiet(gpd.GeoDataFrame({"people": people}, geometry=shapes), domain)
    expected = by_overlay(shapes, people, domain, lake)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9 * people.sum())
    assert found.sum() == pytest.approx(expected.sum(), rel=1e-9)


@settings(max_examples=40, deadline=None)
@given(
    land=island_groups(),
    size=st.floats(0.07, 12.0),
    angle=st.sampled_from([0.0, 0.0, 0.4, 2.5]),
    mirror=st.booleans(),
    gaps=st.sampled_from([0.0, 0.3]),
    seed=st.integers(0, 1000),
)
def test_people_of_pixels_are_conserved(land, size, angle, mirror, gaps, seed):
    """Pixels finer and coarser than cells, turned, mirrored: what exactextract finds, total and by node."""
    assume(land.area > 0.5)
    domain = Domain.from_polygons(land, cell_size=0.9, crs="local")
    rng = np.random.default_rng(seed)
    rows, cols = (int(16 / size) + 2 for _ in range(2))
    turn = size * np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    turn[:, 1] *= 1 if mirror else -1
    corner = rng.uniform(-1, 1, 2) - turn @ [cols / 2, rows / 2]
    affine = Affine(*turn[0], corner[0], *turn[1], corner[1])
    people = rng.gamma(0.4, 50.0, (rows, cols))
    people[rng.random((rows, cols)) < gaps] = np.nan
    if not np.isfinite(people).any():
        people[0, 0] = 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)
        found = read_to_nodes(raster(people, affine), domain, "sum")
        mean = read_to_nodes(raster(people, affine), domain, "mean")

    def to_pixels(xy):
        col, row = np.linalg.solve(turn, (xy - corner).T)
        return np.column_stack([col, rows - row])

    shapes = shapely.transform(domain.polygon_of(np.arange(domain.n_nodes)), to_pixels)
    plane = pyproj.CRS(3035)  # exactextract wants one
    source = NumPyRasterSource(people, 0, 0, cols, rows, nodata=np.nan, srs_wkt=plane.to_wkt())
    frame = gpd.GeoDataFrame(geometry=shapes, crs=plane)
    table = exact_extract(source, frame, ["sum", "mean", "count"], output="pandas")
    # Its shares of pixels are single precision.
    slack = 1e-5 * np.nanmax(people)
    np.testing.assert_allclose(np.nan_to_num(found), table["sum"], rtol=1e-5, atol=slack)
    assert np.nansum(found) == pytest.approx(table["sum"].sum(), rel=1e-5, abs=slack)
    sure = (table["count"] > 1e-3).to_numpy()
    np.testing.assert_allclose(mean[sure], table["mean"][sure], rtol=1e-3, atol=1e-6)


def test_the_overlay_of_pixels_is_exact():
    """Against a loop in double precision: 1e-9 of the people."""
    domain = archipelago()
    land = domain.polygon_of(np.arange(domain.n_nodes))
    for size in (0.37, 1.3, 7.0):
        rows = cols = int(20 / size) + 1
        people = np.random.default_rng(0).gamma(0.4, 50.0, (rows, cols))
        affine = Affine(size, 0, -1.3, 0, -size, 12.1)
        found = quiet(raster(people, affine), domain)
        expected = np.zeros(domain.n_nodes)
        for (row, col), n in np.ndenumerate(people):
            west, north = -1.3 + size * col, 12.1 - size * row
            pixel = shapely.box(west, north - size, west + size, north)
            expected += n * shapely.area(shapely.intersection(pixel, land)) / size**2
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9 * people.max())


@settings(max_examples=12, deadline=None)
@given(
    land=island_groups(),
    crs=st.sampled_from(["EPSG:4326", "EPSG:3035", "EPSG:32632"]),
    pixel=st.floats(700.0, 60_000.0),
    seed=st.integers(0, 1000),
)
def test_people_of_pixels_in_another_crs_are_conserved(land, crs, pixel, seed):
    """On the ground: to 1e-4 of a cell, and to what the scale of the raster's plane varies in a pixel."""
    assume(land.area > 0.5)
    plane = shapely.transform(land, lambda xy: 3000 * xy + [150_000, 450_000])
    domain = Domain.from_polygons(gpd.GeoSeries([plane], crs=28992), cell_size=2700, crs=28992)
    bounds = gpd.GeoSeries([plane.buffer(500)], crs=28992).to_crs(crs).total_bounds
    dx, dy = (pixel / 69_000, pixel / 111_000) if crs == "EPSG:4326" else (pixel, pixel)
    cols, rows = int((bounds[2] - bounds[0]) / dx) + 1, int((bounds[3] - bounds[1]) / dy) + 1
    people = np.random.default_rng(seed).gamma(0.4, 50.0, (rows, cols))
    affine = Affine(dx, 0, bounds[0], 0, -dy, bounds[3])
    found = quiet(raster(people, affine, crs), domain)
    row, col = (a.ravel() for a in np.mgrid[:rows, :cols])
    west, north = bounds[0] + col * dx, bounds[3] - row * dy
    pixels = gpd.GeoSeries(shapely.box(west, north - dy, west + dx, north), crs=crs)
    pixels = pixels.segmentize(dx / 8).to_crs(3035).to_numpy()
    nodes = gpd.GeoSeries(domain.polygon_of(np.arange(domain.n_nodes)), crs=domain.crs)
    nodes = nodes.segmentize(300).to_crs(3035).to_numpy()
    node, at = shapely.STRtree(pixels).query(nodes, predicate="intersects")
    density = people.ravel() / shapely.area(pixels)
    share = shapely.area(shapely.intersection(nodes[node], pixels[at])) * density[at]
    expected = np.bincount(node, share, domain.n_nodes)
    slack = 1e-4 * density.max() * 2700**2
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=slack)
    assert found.sum() == pytest.approx(expected.sum(), rel=1e-3)


# -- by areas


def test_exposure_is_area_by_default():
    land = shapely.box(120_000, 450_000, 140_000, 470_000)
    domain = Domain.from_polygons(gpd.GeoSeries([land], crs=28992), cell_size=2000, crs=28992)
    values, kind = node_exposure(None, domain)
    assert kind == "area"
    assert values.sum() == pytest.approx(400.0, rel=1e-3)  # km²


def test_population_of_areas_is_spread_over_their_land():
    domain = archipelago()
    areas = gpd.GeoDataFrame(
        {"name": ["west", "east"], "population": [1000.0, 10.0]},
        geometry=[shapely.box(-1, -1, 6, 11), shapely.box(6, -1, 20, 11)],
    )
    with pytest.warns(InputWarning, match="lie off"):
        values, kind = node_exposure(areas, domain)
    assert kind == "population"
    assert values.sum() == pytest.approx(
        by_overlay(areas.geometry, areas["population"], domain, domain.water_geometry).sum()
    )
    west = domain.node_points[:, 0] < 4.5
    density = values / domain.node_areas
    assert np.ptp(density[west]) < 1e-9 * density.max()
    assert density[west][0] > 50 * density[domain.node_points[:, 0] > 7.5][0]
    by_name = quiet(areas.rename(columns={"population": "people"}), domain, column="people")
    assert np.array_equal(by_name, values)


def test_population_outside_the_land_is_told():
    domain = square()
    areas = gpd.GeoDataFrame(
        {"population": [100.0, 50.0]}, geometry=[shapely.box(0, 0, 10, 10), shapely.box(50, 50, 60, 60)]
    )
    with pytest.warns(GeobgpWarning, match="50 of 150"):
        values, _ = node_exposure(areas, domain)
    assert values.sum() == pytest.approx(100.0)
    with pytest.raises(DataError, match="None of the 1 areas"):
        node_exposure(areas.iloc[1:], domain)
    renamed = areas.rename(columns={"population": "a"})
    with pytest.raises(DataError, match=r"Found: a, other; 2 columns hold numbers.*exposure_column"):
        node_exposure(renamed.assign(other=1.0), domain)
    with pytest.raises(DataError, match="Found: name; no columns hold numbers"):
        node_exposure(renamed.drop(columns="a").assign(name="x"), domain)
    with pytest.raises(DataError, match="Found: a; there is no column 'b'"):
        node_exposure(renamed, domain, "b")
    with pytest.raises(DataError, match="not negative"):
        node_exposure(areas.assign(population=[-1.0, 2.0]), domain)


def provinces():
    frame = gpd.read_file(SAMPLE / "netherlands_provinces.gpkg").dissolve("name").reset_index()
    return frame[["name", "geometry"]].assign(population=1e6)


@pytest.mark.parametrize("name", ["Utrecht", "Drenthe", "Flevoland"])
def test_neighbours_keep_their_people(name):
    """Twelve provinces of a million each, on the land of one: a million people, evenly."""
    frame = provinces()
    domain = Domain.from_polygons(frame[frame["name"] == name], cell_size=2000)
    with pytest.warns(InputWarning, match=r"\(92 %\) lie off.*Mostly or wholly off it: 11 of 12 areas\.$") as caught:
        found, _ = node_exposure(frame, domain)
    assert caught[0].message.found == pytest.approx(11e6, rel=1e-4)
    assert found.sum() == pytest.approx(1e6, rel=1e-4)
    density = found / domain.node_areas
    assert density.max() < 1.001 * found.sum() / domain.node_areas.sum()


def test_nobody_lives_in_lakes_that_are_known():
    """Two fifths of Flevoland are lakes: given as water they cost nobody; unknown, it is told who is lost."""
    frame = provinces()
    lakes = gpd.read_file(SAMPLE / "netherlands_water.gpkg").query("kind == 'lake'")
    land = SAMPLE / "netherlands_land.gpkg"
    domain = Domain.from_polygons(land, water=lakes, cell_size=5000)
    assert quiet(frame, domain).sum() == pytest.approx(12e6, rel=2e-3)
    nodes = quiet(frame[frame["name"] == "Flevoland"], domain)
    assert nodes.sum() == pytest.approx(1e6, rel=1e-3)
    dry = Domain.from_polygons(gpd.GeoSeries([domain.geometry], crs=domain.crs), cell_size=5000)
    with pytest.warns(InputWarning, match=r"In part: Flevoland \(41 %\), Noord-Holland \(16 %\).*give it as water"):
        lost, _ = node_exposure(frame, dry)
    assert lost.sum() < 0.97 * 12e6


def test_a_stored_domain_knows_its_water():
    from geobgp.archive import pack, unpack

    domain = archipelago()
    again = unpack(*pack(domain))
    areas = gpd.GeoDataFrame({"people": [7.0]}, geometry=[shapely.box(1, 1, 4, 4)])
    assert node_exposure(areas, domain)[0].sum() == pytest.approx(7.0)
    np.testing.assert_array_equal(node_exposure(areas, again)[0], node_exposure(areas, domain)[0])


def test_an_ocean_given_as_water_keeps_the_people_of_the_coast():
    """Districts reach out to sea; the water of the whole world is no hindrance."""
    land = gpd.GeoSeries([shapely.box(4, 52, 4.5, 52.6)], crs=4326)
    world = shapely.segmentize(shapely.box(-170, -80, 170, 80), 5.0)
    ocean = gpd.GeoSeries([world - shapely.box(4, 52, 5.5, 52.6)], crs=4326)
    areas = gpd.GeoDataFrame(
        {"name": ["coast", "inland"], "people": [1e5, 2e5]},
        geometry=[shapely.box(3.9, 52, 4.2, 52.6), shapely.box(4.2, 52, 5.5, 52.6)],
        crs=4326,
    )
    dry = Domain.from_polygons(land, water=ocean, cell_size=4000)
    assert quiet(areas.iloc[:1], dry).sum() == pytest.approx(1e5, rel=1e-4)
    far = gpd.GeoSeries([shapely.box(30, 10, 31, 11)], crs=4326)
    plain = Domain.from_polygons(land, water=far, cell_size=4000)
    with pytest.warns(InputWarning, match=r"off it: 1 of 2 areas. In part: coast \(33 %\)"):
        values, _ = node_exposure(areas, plain)
    assert values.sum() == pytest.approx(1e5 * 2 / 3 + 2e5 * 3 / 13, rel=1e-3)


def test_areas_that_reach_far_beyond_in_another_crs():
    """A region that is cut off near the domain gives its share of the whole."""
    land = gpd.GeoSeries([shapely.box(5.0, 52.0, 5.4, 52.2)], crs=4326)
    domain = Domain.from_polygons(land, cell_size=2000)
    wide = gpd.GeoDataFrame({"people": [1e6]}, geometry=[shapely.box(-10, 30, 30, 70)], crs=4326)
    geod = pyproj.Geod(ellps="WGS84")
    here, whole = (
        abs(geod.geometry_area_perimeter(shapely.segmentize(g, 0.05))[0]) for g in (land[0], wide.geometry[0])
    )
    assert quiet(wide, domain).sum() == pytest.approx(1e6 * here / whole, rel=0.01)
    plane = wide.set_geometry(wide.segmentize(0.5)).to_crs(3035)
    assert quiet(plane, domain).sum() == pytest.approx(1e6 * here / whole, rel=0.001)


# -- by rasters


@pytest.mark.parametrize("pixel", [1000.0, 5000.0])
def test_a_town_in_a_raster_that_goes_on_beyond_it(pixel):
    """Of pixels that do not touch the town nothing is taken, of those that do their share: 1,000 per km²."""
    town = shapely.box(0, 0, 20_000, 20_000)
    domain = Domain.from_polygons(gpd.GeoSeries([town], crs=3035), cell_size=1000, crs=3035)
    n = int(60_000 / pixel)
    people = raster(np.full((n, n), 1000 * (pixel / 1000) ** 2), Affine(pixel, 0, -19_700, 0, -pixel, 40_300), 3035)
    with pytest.warns(InputWarning, match=r"touch this domain's land hold .* lie off the land") as caught:
        found, _ = node_exposure(people, domain)
    np.testing.assert_allclose(found, 1000.0, rtol=1e-9)
    cols = np.ceil(39_700 / pixel) - np.floor(19_700 / pixel)
    rows = np.ceil(40_300 / pixel) - np.floor(20_300 / pixel)
    assert caught[0].message.found == pytest.approx(1000 * (rows * cols * pixel**2 / 1e6 - 400))


def test_population_raster_keeps_its_total():
    domain = square()
    people = dataset(domain, {"people": np.arange(100.0)})["people"]
    values, kind = node_exposure(people, domain)
    assert kind == "population"
    assert values.sum() == pytest.approx(np.arange(100.0).sum())


@pytest.mark.parametrize(
    ("values", "word"),
    [
        (np.ones(7), "shape"),
        (np.full(100, -1.0), "not negative"),
        (np.full(100, np.nan), "not negative"),
        (np.zeros(100), "zero everywhere"),
    ],
)
def test_bad_exposure_is_named(values, word):
    with pytest.raises(DataError, match=word):
        node_exposure(values, square())


# -- any piece of the land: what regions hold of it


@pytest.mark.filterwarnings("ignore::geobgp.errors.InputWarning")
@given(star_polygons(), st.integers(2, 6), st.integers(0, 2**32 - 1))
@settings(max_examples=20, deadline=None)
def test_people_in_regions_are_those_of_an_overlay(island, n, seed):
    domain = Domain.from_polygons(island, cell_size=island.length / 30, crs="local")
    rng = np.random.default_rng(seed)
    areas, regions = districts(n, seed), districts(n + 1, seed + 1)
    people = 10.0 ** rng.uniform(0, 3, len(areas))
    read = Inputs.read(domain, exposure=gpd.GeoDataFrame({"population": people}, geometry=areas))
    found = within(domain, overlay(domain, regions), read.given).exposure(read.exposure)
    land = domain.geometry
    want = [sum(k * (a & r & land).area / a.area for a, k in zip(areas, people, strict=True)) for r in regions]
    np.testing.assert_allclose(found.sum(axis=1), want, rtol=1e-6, atol=1e-6 * people.sum())
    np.testing.assert_allclose(found.sum(axis=0), read.exposure, rtol=1e-6, atol=1e-9 * people.sum())


@pytest.mark.filterwarnings("ignore::geobgp.errors.InputWarning")
@pytest.mark.parametrize("crs", [3035, 4326])
def test_pixels_in_regions_are_those_of_an_overlay(crs):
    """Against exactextract in the raster's own CRS."""
    shape = shapely.Point(4_000_000, 3_000_000).buffer(50_000)
    domain = Domain.from_polygons(gpd.GeoSeries([shape], crs=3035), cell_size=9000, crs=3035)
    west, south, east, north = gpd.GeoSeries([shape], crs=3035).to_crs(crs).total_bounds
    values = 10.0 ** np.random.default_rng(0).uniform(0, 3, (80, 80))
    step = (east - west) / 78, (north - south) / 78
    affine = Affine(step[0], 0, west - step[0], 0, -step[1], north + step[1])
    read = Inputs.read(domain, exposure=raster(values, affine, crs))
    corners = shapely.MultiPoint(np.random.default_rng(1).uniform(-1, 1, (12, 2)) * 50_000 + [4e6, 3e6])
    regions = gpd.GeoDataFrame(geometry=list(shapely.get_parts(shapely.voronoi_polygons(corners))), crs=3035)
    regions = regions.clip(shape).reset_index(drop=True)
    found = within(domain, overlay(domain, regions), read.given).exposure(read.exposure)
    bounds = affine.c, affine.f + 80 * affine.e, affine.c + 80 * affine.a, affine.f
    source = NumPyRasterSource(values, *bounds, srs_wkt=pyproj.CRS(crs).to_wkt())
    dense = regions.set_geometry(regions.segmentize(500.0)).to_crs(crs)
    want = exact_extract(source, dense, "sum", output="pandas")["sum"]
    np.testing.assert_allclose(found.sum(axis=1), want, rtol=1e-3)


def test_people_on_land_that_is_no_node_are_counted_at_the_nearest():
    islet = shapely.box(6.0, 4.0, 6.1, 4.1)
    domain = Domain.from_polygons(shapely.box(0, 0, 4, 4) | islet, cell_size=1, crs="local")
    assert len(domain.left_out[0]) == 1
    areas = gpd.GeoDataFrame({"population": [100.0, 7.0]}, geometry=[shapely.box(0, 0, 4, 4), islet])
    read = Inputs.read(domain, exposure=areas)
    assert read.exposure.sum() == pytest.approx(107.0)
    found = within(domain, overlay(domain, areas), read.given).exposure(read.exposure)
    np.testing.assert_allclose(found.sum(axis=1), [100.0, 7.0])
    people = raster(np.full((100, 100), 1.0), Affine(0.1, 0, 0, 0, -0.1, 10))
    read = quiet(people, domain)
    assert read.sum() == pytest.approx(1601.0)


def test_pixels_that_are_too_many_are_taken_together(monkeypatch):
    monkeypatch.setattr("geobgp.data.rasters.MOST_KEPT", 1000)
    domain = Domain.from_polygons(shapely.box(0, 0, 9, 9), cell_size=2, crs="local")
    values = np.random.default_rng(0).uniform(0, 1, (90, 90))
    read = Inputs.read(domain, exposure=raster(values, Affine(0.1, 0, 0, 0, -0.1, 9)))
    assert read.given.pixels.values.shape == (30, 30)
    found = within(domain, overlay(domain, [shapely.box(0, 0, 4.5, 9)]), read.given).exposure(read.exposure)
    assert found.sum() == pytest.approx(values[:, :45].sum(), rel=1e-2)
    assert read.exposure.sum() == pytest.approx(values.sum())
