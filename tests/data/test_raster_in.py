from __future__ import annotations

import warnings

import numpy as np
import pyproj
import pytest
import rasterio
import shapely
import xarray as xr
from affine import Affine
from posteriors import across_180, bumps, disc, island

from geobgp import Domain
from geobgp.data.rasters import read_to_nodes
from geobgp.errors import CRSError, DataError, InputWarning
from geobgp.output import grids


@pytest.fixture(scope="module")
def domain():
    return island()


def write(path, values, transform, crs, nodata=None, **tags):
    values = np.asarray(values)
    with rasterio.open(
        path, "w", driver="GTiff", height=values.shape[0], width=values.shape[1], count=1, dtype=values.dtype,
        crs=crs, transform=transform, nodata=nodata,
    ) as dst:  # fmt: skip
        dst.write(values, 1)
        if tags:
            dst.scales, dst.offsets = (tags["scale"],), (tags["offset"],)
    return path


def over(domain, size, field=None, margin=5000.0, crs=None):
    """A raster of square pixels over a domain, north-up, with a field of (easting, northing)."""
    west, south, east, north = domain.grid.bounds
    transform = Affine(size, 0, west - margin, 0, -size, north + margin)
    rows, cols = int((north - south + 2 * margin) / size) + 1, int((east - west + 2 * margin) / size) + 1
    x = transform.c + (np.arange(cols) + 0.5) * size
    y = transform.f - (np.arange(rows) + 0.5) * size
    values = np.ones((rows, cols)) if field is None else field(*np.meshgrid(x, y))
    return values, transform, domain.crs if crs is None else crs


def lonlat(field, step, bounds=(4.5, 51.8, 6.2, 52.7)):
    """A raster in degrees."""
    west, south, east, north = bounds
    rows, cols = round((north - south) / step), round((east - west) / step)
    lon, lat = west + (np.arange(cols) + 0.5) * step, north - (np.arange(rows) + 0.5) * step
    return field(*np.meshgrid(lon, lat)), Affine(step, 0, west, 0, -step, north), "EPSG:4326"


def amounts(source, domain):
    """Return sums at the nodes, whatever of the pixels lies off the land."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)
        return read_to_nodes(source, domain, "sum")


def centroids(domain):
    return shapely.get_coordinates(shapely.centroid(domain.polygon_of(np.arange(domain.n_nodes))))


@pytest.mark.parametrize("size", [90.0, 400.0, 1000.0, 1700.0, 30_000.0])
def test_a_constant_is_a_constant(domain, tmp_path, size):
    values, transform, crs = over(domain, size)
    path = write(tmp_path / "c.tif", values * 7.25, transform, crs)
    np.testing.assert_allclose(read_to_nodes(path, domain), 7.25)


def test_fine_rasters_give_the_mean_over_each_nodes_land(domain, tmp_path):
    values, transform, crs = over(domain, 50.0, lambda e, n: 3 + 2e-4 * e - 1e-4 * n)
    path = write(tmp_path / "s.tif", values, transform, crs)
    found = read_to_nodes(path, domain)
    at = centroids(domain)
    exact = 3 + 2e-4 * at[:, 0] - 1e-4 * at[:, 1]
    share = domain.node_areas / 1e6
    # The slope over half a pixel is 0.006; slivers hold few pixels.
    np.testing.assert_allclose(found[share > 0.1], exact[share > 0.1], atol=0.006)
    np.testing.assert_allclose(found, exact, atol=0.03)


def test_a_raster_of_the_domains_own_cells_comes_back(domain):
    rng = np.random.default_rng(0)
    grid = rng.normal(size=domain.grid.shape)
    array = xr.DataArray(
        grid, dims=("northing", "easting"), coords=grids.dataset(domain, {}).drop_vars("spatial_ref").coords, name="z"
    ).rio.write_crs(28992)
    found = read_to_nodes(array, domain)
    alone = np.bincount(domain.piece_node[domain.piece_node >= 0]) == 1
    whole = (domain.node_areas > 0.999e6) & alone
    own = grid[domain.node_rows, domain.node_cols]
    np.testing.assert_allclose(found[whole], own[whole], rtol=1e-12)


@pytest.mark.parametrize("step", [0.001, 0.013])
def test_other_crs(domain, tmp_path, step):
    path = write(tmp_path / "d.tif", *lonlat(lambda lon, lat: 10 * lon + 20 * lat, step))
    found = read_to_nodes(path, domain)
    lon, lat = pyproj.Transformer.from_crs(28992, 4326, always_xy=True).transform(*centroids(domain).T)
    # Within 30 m of slope: 0.01 of these units, slivers within 300 m; and half a pixel.
    whole = domain.node_areas > 0.2e6
    np.testing.assert_allclose(found[whole], (10 * lon + 20 * lat)[whole], atol=0.01 + 15 * step)
    np.testing.assert_allclose(found, 10 * lon + 20 * lat, atol=0.1 + 15 * step)


@pytest.mark.filterwarnings("ignore:Use `@` matmul")
def test_nodata_never_leaks(domain, tmp_path):
    lowest = np.float32(-3.4028234663852886e38)
    values, transform, crs = over(domain, 250.0, lambda e, n: np.where(e > 157_000, 5.0, 2.0))
    values = values.astype(np.float32)
    values[:, ::3] = lowest
    values[40:60] = lowest
    declared = write(tmp_path / "a.tif", values, transform, crs, nodata=float(lowest))
    hidden = write(tmp_path / "b.tif", values, transform, crs)
    as_nan = write(tmp_path / "c.tif", np.where(values == lowest, np.nan, values), transform, crs)
    results = [read_to_nodes(p, domain) for p in (declared, hidden, as_nan)]
    for found in results:
        known = np.isfinite(found)
        assert not known.all()
        assert known.sum() > 0.7 * domain.n_nodes
        assert found[known].min() >= 2 - 1e-9
        assert found[known].max() <= 5 + 1e-9
        np.testing.assert_array_equal(found, results[0])
    whole_numbers = np.where(values == lowest, -9999, values).astype(np.int32)
    path = write(tmp_path / "d.tif", whole_numbers, transform, crs, nodata=-9999)
    np.testing.assert_array_equal(read_to_nodes(path, domain), results[0])
    path = write(tmp_path / "e.tif", whole_numbers, transform, crs)
    np.testing.assert_array_equal(read_to_nodes(path, domain, nodata=-9999), results[0])
    assert read_to_nodes(path, domain).min() < -1000
    array = xr.open_dataarray(declared, engine="rasterio", mask_and_scale=False)
    np.testing.assert_array_equal(read_to_nodes(array, domain), results[0])


def test_scale_and_offset_are_applied(domain, tmp_path):
    values, transform, crs = over(domain, 500.0)
    path = write(tmp_path / "s.tif", (values * 215).astype(np.int16), transform, crs, scale=0.1, offset=-3.0)
    np.testing.assert_allclose(read_to_nodes(path, domain), 18.5)


@pytest.mark.parametrize("turn", ["south-up", "east-to-west", "rotated"])
def test_any_orientation(domain, tmp_path, turn):
    field = lambda e, n: 1e-3 * e + 2e-3 * n  # noqa: E731
    values, t, crs = over(domain, 100.0, field)
    if turn == "south-up":
        values, t = values[::-1], Affine(t.a, 0, t.c, 0, -t.e, t.f + t.e * len(values))
    elif turn == "east-to-west":
        values, t = values[:, ::-1], Affine(-t.a, 0, t.c + t.a * values.shape[1], 0, t.e, t.f)
    else:
        c, s = 100 * np.cos(0.5), 100 * np.sin(0.5)
        t = Affine(c, s, 115_000, s, -c, 470_000)
        col, row = np.meshgrid(np.arange(700) + 0.5, np.arange(700) + 0.5)
        values = field(t.a * col + t.b * row + t.c, t.d * col + t.e * row + t.f)
    path = write(tmp_path / "t.tif", values, t, crs)
    found = read_to_nodes(path, domain)
    at = centroids(domain)
    known = np.isfinite(found)
    assert known.mean() > 0.9
    np.testing.assert_allclose(found[known], field(at[:, 0], at[:, 1])[known], atol=0.15)


@pytest.mark.parametrize("size", [300.0, 1100.0, 6000.0])
def test_the_land_takes_its_share_of_every_pixel(domain, tmp_path, size):
    rng = np.random.default_rng(1)
    people, transform, crs = over(domain, size)
    people = rng.poisson(40, people.shape).astype(np.float32)
    col, row = np.meshgrid(np.arange(people.shape[1]), np.arange(people.shape[0]))
    west, north = transform.c + col * size, transform.f - row * size
    land = shapely.area(shapely.intersection(shapely.box(west, north - size, west + size, north), domain.geometry))
    people[land == 0] = -1
    path = write(tmp_path / "p.tif", people, transform, crs, nodata=-1)
    with pytest.warns(InputWarning, match="lie off the land") as caught:
        found = read_to_nodes(path, domain, "sum")
    assert (found >= 0).all()
    here, share = people[land > 0].astype(float), land[land > 0] / size**2
    assert found.sum() == pytest.approx(here @ share, rel=1e-9)
    assert caught[0].message.found == pytest.approx(here @ (1 - share), rel=1e-9)


def test_what_pixels_at_sea_hold_is_nobodys(domain, tmp_path):
    """Whatever their number, even one that must be nodata that nobody declared."""
    values, transform, crs = over(domain, 100.0)
    clean = amounts(write(tmp_path / "c.tif", values, transform, crs), domain)
    # A pixel 700 m off the eastern shore, and all that lie farther east.
    row, col = int((transform.f - 463_000) / 100), int((176_000 - transform.c) / 100)
    values[row, col:] = 1e30
    values[row + 1, col:] = -9999
    dirty = amounts(write(tmp_path / "d.tif", values, transform, crs), domain)
    np.testing.assert_array_equal(dirty, clean)


def test_negative_amounts_are_refused(domain, tmp_path):
    values, transform, crs = over(domain, 500.0)
    values[20:23, 30] = -9999.0
    path = write(tmp_path / "n.tif", values, transform, crs)
    with pytest.raises(DataError, match=r"3 pixels on this land are negative, down to -9,999.*nodata") as caught:
        read_to_nodes(path, domain, "sum")
    assert caught.value.found == 3
    declared = write(tmp_path / "m.tif", values, transform, crs, nodata=-9999.0)
    assert np.nanmin(amounts(declared, domain)) >= 0
    assert read_to_nodes(path, domain).min() < -1000, "a mean may be negative"


@pytest.mark.parametrize("mark", [255.0, 65535.0, 9999.0, 2.0**31, 1e20])
def test_what_means_no_data_without_saying_so_is_refused(domain, tmp_path, mark):
    values, transform, crs = over(domain, 500.0, lambda e, n: 20.0 + 10.0 * np.sin(e / 7000.0))
    values[20:23, 30] = mark
    path = write(tmp_path / "n.tif", values, transform, crs)
    with pytest.raises(
        DataError, match=r"3 pixels of .* far beyond all others, which reach (30|29\.9).*nodata"
    ) as caught:
        read_to_nodes(path, domain, "sum")
    assert caught.value.found == 3
    declared = write(tmp_path / "m.tif", values, transform, crs, nodata=mark)
    assert np.nanmax(amounts(declared, domain)) < 31 * 4 + 1e-6


def test_strange_amounts_are_told_and_large_ones_are_not(domain, tmp_path, monkeypatch):
    values, transform, crs = over(domain, 500.0, lambda e, n: 20.0 + 10.0 * np.sin(e / 7000.0))
    values[20:23, 30] = 5000.0
    monkeypatch.setattr("geobgp.data.rasters._BLOCK", 700)  # they lie in several strips
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        read_to_nodes(write(tmp_path / "a.tif", values, transform, crs), domain, "sum")
    strange = [one.message for one in told if "hold 5,000, far beyond" in str(one.message)]
    assert [one.found for one in strange] == [3]
    values[20:23, 30] = [255.0, 200.0, 140.0]  # a town
    assert amounts(write(tmp_path / "b.tif", values, transform, crs), domain).max() > 100
    values[20, 30] = 9999.0  # and one pixel alone
    values[21:23, 30] = 25.0
    assert amounts(write(tmp_path / "c.tif", values, transform, crs), domain).max() > 9000


def test_no_people_is_none_at_all(domain, tmp_path):
    """Nodes without people hold none, not what rounding leaves."""
    values, transform, crs = over(domain, 130.0, lambda e, n: np.where(e < 150_000, 1e6, 0.0))
    found = amounts(write(tmp_path / "z.tif", values, transform, crs), domain)
    assert (found[domain.node_points[:, 0] > 151_200] == 0).all()


def test_slivers_take_their_share_of_fine_pixels(tmp_path):
    import geopandas as gpd

    # A strip 25 m wide east of a river at the edge: no centre of a 200 m pixel falls on it.
    land = shapely.box(0, 0, 5000, 5000).difference(shapely.box(4800, 0, 4975, 5000))
    domain = Domain.from_polygons(gpd.GeoSeries([land], crs=28992), cell_size=1000, crs=28992)
    assert domain.n_components == 2
    path = write(tmp_path / "p.tif", np.full((25, 25), 8.0), Affine(200, 0, 0, 0, -200, 5000), 28992)
    with pytest.warns(InputWarning, match=r"hold 5,000; 175 of that \(3.5 %\)"):
        found = read_to_nodes(path, domain, "sum")
    np.testing.assert_allclose(found, 8 * domain.planar_areas / 200**2, rtol=1e-9)
    np.testing.assert_allclose(read_to_nodes(path, domain), 8)


def test_pixels_far_larger_than_cells_need_little_memory(tmp_path):
    import tracemalloc

    import geopandas as gpd

    land = gpd.GeoSeries([shapely.Point(155_000, 463_000).buffer(40_000)], crs=28992)
    domain = Domain.from_polygons(land, cell_size=500, crs=28992)
    path = write(tmp_path / "w.tif", np.full((180, 360), 1e6), Affine(1, 0, -180, 0, -1, 90), 4326)
    tracemalloc.start()
    with pytest.warns(InputWarning, match="lie off the land"):
        found = read_to_nodes(path, domain, "sum")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert domain.n_nodes > 20_000
    assert peak < 150e6
    # A million per pixel of a degree at 52° N, of 7,630 km².
    np.testing.assert_allclose(found / domain.node_areas * 1e6, 131.0, rtol=0.02)


def test_large_rasters_are_read_in_strips(domain, tmp_path, monkeypatch):
    values, transform, crs = over(domain, 60.0, lambda e, n: 3 + np.sin(e / 3000) + np.cos(n / 2000))
    path = write(tmp_path / "l.tif", values.astype(np.float32), transform, crs)
    whole = [read_to_nodes(path, domain, how) for how in ("mean", "sum")]
    monkeypatch.setattr("geobgp.data.rasters._BLOCK", 20_000)
    for how, expected in zip(("mean", "sum"), whole, strict=True):
        np.testing.assert_allclose(read_to_nodes(path, domain, how), expected, rtol=1e-9, atol=1e-9)


def test_the_antimeridian_is_no_edge(tmp_path):
    domain = across_180()
    field = lambda lon, lat: np.where(lon < 0, lon + 360, lon) + lat  # noqa: E731
    both = [
        lonlat(field, 0.05, (-180, -20, 180, -10)),
        lonlat(field, 0.05, (0, -20, 360, -10)),
        lonlat(field, 0.005, (170, -19, 190, -15)),
    ]
    results = []
    for k, made in enumerate(both):
        path = write(tmp_path / f"{k}.tif", *made)
        results.append(read_to_nodes(path, domain))
        assert np.isfinite(results[-1]).all()
        assert results[-1].min() > 178 - 18.1
        assert results[-1].max() < 181.6 - 16
    np.testing.assert_allclose(results[0], results[1], atol=1e-9)
    np.testing.assert_allclose(results[0], results[2], atol=0.06)


def test_local_domains_take_rasters_without_a_crs(tmp_path):
    domain = disc()
    path = write(tmp_path / "l.tif", np.full((50, 50), 4.0), Affine(0.1, 0, 1, 0, -0.1, 6), None)
    np.testing.assert_allclose(read_to_nodes(path, domain), 4)
    with_crs = write(tmp_path / "m.tif", np.full((50, 50), 4.0), Affine(0.1, 0, 1, 0, -0.1, 6), 28992)
    with pytest.raises(CRSError, match="local"):
        read_to_nodes(with_crs, domain)


def test_mistakes_are_explained(domain, tmp_path):
    values, transform, crs = over(domain, 5000.0)
    without = write(tmp_path / "a.tif", values, transform, None)
    with pytest.raises(CRSError, match="no CRS"):
        read_to_nodes(without, domain)
    away = write(tmp_path / "b.tif", values, Affine(5000, 0, 900_000, 0, -5000, 900_000), crs)
    with pytest.raises(DataError, match="does not overlap"):
        read_to_nodes(away, domain)
    good = write(tmp_path / "c.tif", values, transform, crs)
    with pytest.raises(DataError, match="1 band"):
        read_to_nodes(good, domain, band=2)
    with pytest.raises(DataError, match="how"):
        read_to_nodes(good, domain, "median")
    with pytest.raises(DataError, match="cannot be read"):
        read_to_nodes(tmp_path / "none.tif", domain)
    with pytest.raises(DataError, match="ndarray"):
        read_to_nodes(values, domain)
    with pytest.raises(DataError, match="spatial dimensions"):
        read_to_nodes(xr.DataArray(np.ones((3, 3)), dims=("a", "b")), domain)


def test_arrays_with_bands_and_without_a_stored_transform(domain):
    values, transform, _ = over(domain, 500.0)
    x = transform.c + (np.arange(values.shape[1]) + 0.5) * 500
    y = transform.f - (np.arange(values.shape[0]) + 0.5) * 500
    array = xr.DataArray(
        np.stack([values, 3 * values]), dims=("band", "y", "x"), coords={"x": x, "y": y}
    ).rio.write_crs(28992)
    np.testing.assert_allclose(read_to_nodes(array, domain, band=2), 3)
    with pytest.raises(DataError, match=r"2 bands: 1, 2; which is meant\? Take one: array.isel\(band=0\)"):
        read_to_nodes(array, domain)
    with pytest.raises(DataError, match="2 band"):
        read_to_nodes(array, domain, band=3)


def test_the_mean_of_a_bumpy_field_against_a_loop(domain, tmp_path):
    """The same by brute force for a few nodes: every pixel, by the land of the node that it covers."""
    values, transform, crs = over(domain, 120.0, lambda e, n: np.sin(e / 700) * np.cos(n / 900))
    path = write(tmp_path / "b.tif", values, transform, crs)
    found = read_to_nodes(path, domain)
    nodes = np.random.default_rng(2).choice(domain.n_nodes, 12, replace=False)
    x = transform.c + np.arange(values.shape[1]) * 120
    y = transform.f - np.arange(values.shape[0]) * 120
    west, north = np.meshgrid(x, y)
    pixels = shapely.box(west, north - 120, west + 120, north)
    for node, shape in zip(nodes, domain.polygon_of(nodes), strict=True):
        near = shapely.intersects(pixels, shapely.box(*shape.bounds))
        weight = shapely.area(shapely.intersection(shape, pixels[near]))
        assert found[node] == pytest.approx(np.average(values[near], weights=weight), abs=1e-9)
    assert len(bumps(domain)) == domain.n_nodes


def even_on_the_ground(bounds, step):
    """A raster in degrees with as many people per pixel as it has km²."""
    values, transform, crs = lonlat(lambda lon, lat: lat, step, bounds)
    geod = pyproj.Geod(ellps="WGS84")
    e = np.sqrt(geod.es)

    def upto(lat):
        s = np.clip(np.sin(np.radians(lat)), -1, 1)
        return (1 - e**2) * (s / (1 - (e * s) ** 2) + np.arctanh(e * s) / e) / 2

    area = geod.a**2 * np.radians(step) * (upto(values + step / 2) - upto(values - step / 2)) / 1e6
    return area, transform, crs


@pytest.mark.parametrize("step", [0.1, 1.0, 5.0])
@pytest.mark.parametrize("west", [-180, 0])
def test_people_around_a_pole(tmp_path, step, west):
    """Meridians meet there; people are even on the ground all the same."""
    import geopandas as gpd

    land = gpd.GeoSeries([shapely.Point(37_000, 12_000).buffer(800_000)], crs=3574)
    domain = Domain.from_polygons(land, cell_size=50_000, crs=3574)
    path = write(tmp_path / "p.tif", *even_on_the_ground((west, 60, west + 360, 90), step))
    found = amounts(path, domain)
    np.testing.assert_allclose(found, domain.node_areas / 1e6, rtol=2e-3)
    assert found.sum() == pytest.approx(domain.node_areas.sum() / 1e6, rel=1e-4)


def test_people_on_both_sides_of_the_antimeridian(tmp_path):
    domain = across_180()
    rasters = [
        even_on_the_ground((-180, -20, 180, -10), 0.05),
        even_on_the_ground((0, -20, 360, -10), 0.05),
        even_on_the_ground((-180, -20, 181, -10), 0.5),
        even_on_the_ground((170, -19, 190, -15), 0.005),
    ]
    for k, made in enumerate(rasters):
        found = amounts(write(tmp_path / f"{k}.tif", *made), domain)
        np.testing.assert_allclose(found, domain.node_areas / 1e6, rtol=1e-3)
        assert found.sum() == pytest.approx(domain.node_areas.sum() / 1e6, rel=1e-5)


def test_people_where_the_rasters_plane_ends(tmp_path):
    """Mollweide's plane, which many population rasters have, ends at the antimeridian, amid these nodes."""
    domain = across_180()
    plane = pyproj.CRS("ESRI:54009").to_wkt()
    path = write(
        tmp_path / "m.tif", np.full((600, 12_100), 9.0), Affine(3000, 0, -18_150_000, 0, -3000, -1_500_000), plane
    )
    found = amounts(path, domain)
    # Mollweide takes the Earth for a sphere: 0.6 % too wide here.
    np.testing.assert_allclose(found, 1.0057 * domain.node_areas / 1e6, rtol=2e-3)


def test_of_several_bands_one_is_named(domain, tmp_path):
    values, transform, crs = over(domain, 500.0)
    path = tmp_path / "two.tif"
    with rasterio.open(
        path, "w", driver="GTiff", height=values.shape[0], width=values.shape[1], count=2, dtype=values.dtype,
        crs=crs, transform=transform,
    ) as dst:  # fmt: skip
        dst.write(np.stack([values, 3 * values]))
        dst.set_band_description(2, "people")
    with pytest.raises(DataError, match=r"2 bands: 1, 2 \(people\); which is meant\? Name one: '.*two\.tif\|band=1"):
        read_to_nodes(path, domain)
    np.testing.assert_allclose(read_to_nodes(path, domain, band=2), 3)
    np.testing.assert_allclose(read_to_nodes(f"{path}|band=2", domain), 3)
    with pytest.raises(DataError, match=r"2 bands.*band 3 was asked for"):
        read_to_nodes(f"{path}|band=3", domain)
    with pytest.raises(DataError, match="by its number"):
        read_to_nodes(f"{path}|band=people", domain)
