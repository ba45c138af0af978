from __future__ import annotations

import numpy as np
import pytest
import rasterio
import shapely
import xarray as xr
from affine import Affine
from posteriors import across_180, bumps, disc, island

from geobgp import Domain
from geobgp.data.raster_in import read_to_nodes
from geobgp.errors import CRSError, DataError
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


def centroids(domain):
    return shapely.get_coordinates(shapely.centroid(domain.polygon_of(np.arange(domain.n_nodes))))


@pytest.mark.parametrize("size", [90.0, 400.0, 1000.0, 1700.0, 30_000.0])
@pytest.mark.parametrize("how", ["mean", "linear"])
def test_a_constant_is_a_constant(domain, tmp_path, size, how):
    values, transform, crs = over(domain, size)
    path = write(tmp_path / "c.tif", values * 7.25, transform, crs)
    np.testing.assert_allclose(read_to_nodes(path, domain, how), 7.25)


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


def test_coarse_smooth_covariates_are_linear_when_asked(domain, tmp_path):
    values, transform, crs = over(domain, 5000.0, lambda e, n: 2e-4 * e - 1e-4 * n, margin=20_000)
    path = write(tmp_path / "s.tif", values, transform, crs)
    at = centroids(domain)
    exact = 2e-4 * at[:, 0] - 1e-4 * at[:, 1]
    linear, blocks = read_to_nodes(path, domain, "linear"), read_to_nodes(path, domain, "mean")
    np.testing.assert_allclose(linear, exact, atol=0.02)
    assert 0.1 < np.abs(blocks - exact).max() < 0.8


def test_a_raster_of_the_domains_own_cells_comes_back(domain):
    rng = np.random.default_rng(0)
    grid = rng.normal(size=domain.grid.shape)
    array = xr.DataArray(
        grid,
        dims=("northing", "easting"),
        coords=grids.dataset(domain, {}).drop_vars("spatial_ref").coords,
        name="z",
    ).rio.write_crs(28992)
    found = read_to_nodes(array, domain)
    alone = np.bincount(domain.piece_node[domain.piece_node >= 0]) == 1
    whole = (domain.node_areas > 0.999e6) & alone
    own = grid[domain.node_rows, domain.node_cols]
    np.testing.assert_allclose(found[whole], own[whole], rtol=1e-12)


@pytest.mark.parametrize("step", [0.001, 0.013, 0.2])
def test_other_crs(domain, tmp_path, step):
    import pyproj

    path = write(tmp_path / "d.tif", *lonlat(lambda lon, lat: 10 * lon + 20 * lat, step))
    found = read_to_nodes(path, domain, "linear")
    lon, lat = pyproj.Transformer.from_crs(28992, 4326, always_xy=True).transform(*centroids(domain).T)
    # Within 30 m of slope: 0.01 of these units; slivers within 300 m.
    whole = domain.node_areas > 0.2e6
    np.testing.assert_allclose(found[whole], (10 * lon + 20 * lat)[whole], atol=0.01)
    np.testing.assert_allclose(found, 10 * lon + 20 * lat, atol=0.1)


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
        assert found[known].min() >= 2
        assert found[known].max() <= 5
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


@pytest.mark.parametrize("size", [80.0, 300.0, 1100.0, 6000.0])
def test_population_is_kept_whole(domain, tmp_path, size):
    rng = np.random.default_rng(1)
    people, transform, crs = over(domain, size)
    people = rng.poisson(40, people.shape).astype(np.float32)
    # People live where there is land in the pixel; the sea is nodata.
    col, row = np.meshgrid(np.arange(people.shape[1]), np.arange(people.shape[0]))
    west, north = transform.c + col * size, transform.f - row * size
    pixel = shapely.box(west, north - size, west + size, north)
    shapely.prepare(domain.geometry)
    wet = ~shapely.intersects(domain.geometry, pixel)
    people[wet] = -1
    path = write(tmp_path / "p.tif", people, transform, crs, nodata=-1)
    found = read_to_nodes(path, domain, "sum")
    assert (found[np.isfinite(found)] >= 0).all()
    np.testing.assert_allclose(np.nansum(found), people[~wet].sum(), rtol=1e-3 if size > 3000 else 1e-5)


def test_population_of_a_coarse_pixel_is_shared_by_land_area(tmp_path):
    land = shapely.box(0, 0, 10_000, 10_000).difference(shapely.box(3_000, 0, 3_200, 10_000))
    import geopandas as gpd

    domain = Domain.from_polygons(gpd.GeoSeries([land], crs=28992), cell_size=1000, crs=28992)
    path = write(tmp_path / "p.tif", [[1000.0]], Affine(10_000, 0, 0, 0, -10_000, 10_000), 28992)
    found = read_to_nodes(path, domain, "sum")
    np.testing.assert_allclose(found, 1000 * domain.node_areas / domain.node_areas.sum(), rtol=1e-3)
    np.testing.assert_allclose(found.sum(), 1000)


def test_slivers_take_their_share_of_fine_pixels(tmp_path):
    import geopandas as gpd

    # A strip 25 m wide east of a river at the edge: no centre of a 200 m pixel falls on it.
    land = shapely.box(0, 0, 5000, 5000).difference(shapely.box(4800, 0, 4975, 5000))
    domain = Domain.from_polygons(gpd.GeoSeries([land], crs=28992), cell_size=1000, crs=28992)
    assert domain.n_components == 2
    path = write(tmp_path / "p.tif", np.full((25, 25), 8.0), Affine(200, 0, 0, 0, -200, 5000), 28992)
    found = read_to_nodes(path, domain, "sum")
    np.testing.assert_allclose(found.sum(), 25 * 25 * 8)
    strip = domain.components == domain.components[np.argmax(domain.node_points[:, 0])]
    assert strip.sum() == 5
    assert (found[strip] > 0).all()
    assert (read_to_nodes(path, domain)[strip] == 8).all()


def test_pixels_at_sea_count_only_when_asked(domain, tmp_path):
    values, transform, crs = over(domain, 100.0)
    values[:] = 0
    # One pixel 700 m off the eastern shore.
    row, col = int((transform.f - 463_000) / 100), int((176_000 - transform.c) / 100)
    values[row, col] = 50
    path = write(tmp_path / "p.tif", values, transform, crs)
    assert np.nansum(read_to_nodes(path, domain, "sum")) == 0
    snapped = read_to_nodes(path, domain, "sum", max_snap=1000)
    assert np.nansum(snapped) == 50
    assert domain.node_cols[np.nanargmax(snapped)] == domain.node_cols.max()


def test_large_rasters_are_read_in_strips(domain, tmp_path, monkeypatch):
    values, transform, crs = over(domain, 60.0, lambda e, n: np.sin(e / 3000) + np.cos(n / 2000))
    path = write(tmp_path / "l.tif", values.astype(np.float32), transform, crs)
    whole = [read_to_nodes(path, domain, how) for how in ("mean", "sum")]
    monkeypatch.setattr("geobgp.data.raster_in._BLOCK", 20_000)
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
        results.append(read_to_nodes(path, domain, "linear"))
        assert np.isfinite(results[-1]).all()
        assert results[-1].min() > 178 - 18.1
        assert results[-1].max() < 181.6 - 16
    np.testing.assert_allclose(results[0], results[1], atol=0.026)  # half a pixel, at the seam
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
    with pytest.raises(DataError, match="2 band"):
        read_to_nodes(array, domain, band=3)


def test_the_mean_of_a_bumpy_field_against_a_loop(domain, tmp_path):
    """The same by brute force for a few nodes: every pixel whose centre is inside the node's polygon."""
    values, transform, crs = over(domain, 120.0, lambda e, n: np.sin(e / 700) * np.cos(n / 900))
    path = write(tmp_path / "b.tif", values, transform, crs)
    found = read_to_nodes(path, domain)
    nodes = np.random.default_rng(2).choice(np.flatnonzero(domain.node_areas > 0.05e6), 12, replace=False)
    x = transform.c + (np.arange(values.shape[1]) + 0.5) * 120
    y = transform.f - (np.arange(values.shape[0]) + 0.5) * 120
    east, north = np.meshgrid(x, y)
    for node, shape in zip(nodes, domain.polygon_of(nodes), strict=True):
        inside = shapely.intersects_xy(shape, east, north)
        np.testing.assert_allclose(found[node], values[inside].mean(), atol=1e-9)
    assert len(bumps(domain)) == domain.n_nodes
