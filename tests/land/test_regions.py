"""Shares of nodes in regions, and totals, against loops."""

from __future__ import annotations

import geopandas as gpd
import numpy as np
import pytest
import shapely
from posteriors import island
from scipy import sparse, stats

from geobgp.data.counts import bin_points
from geobgp.errors import CRSError, DataError, GeobgpWarning, GeometryError
from geobgp.land import regions as totals
from geobgp.land.domain import Domain
from geobgp.land.regions import count_inside, read_regions

LAND = shapely.union_all([shapely.Point(0, 0).buffer(5), shapely.Point(7.5, 2).buffer(1.6)])
RIVER = shapely.LineString([(-6, 0.63), (6, -1.1)]).buffer(0.03)


@pytest.fixture(scope="module")
def domain() -> Domain:
    return Domain.from_polygons(LAND, water=RIVER, cell_size=0.5, crs="local", min_coverage=0.1)


def voronoi(n: int, seed: int) -> np.ndarray:
    points = shapely.MultiPoint(np.random.default_rng(seed).uniform(-6, 9, (n, 2)))
    return shapely.get_parts(shapely.voronoi_polygons(points, extend_to=shapely.box(-20, -20, 20, 20)))


def by_loop(domain: Domain, regions: np.ndarray) -> np.ndarray:
    land = domain.polygon_of(np.arange(domain.n_nodes))
    return np.array([[(piece & region).area / piece.area for piece in land] for region in regions])


def test_shares_equal_a_loop(domain):
    regions = voronoi(8, 0)
    shares = totals.area_shares(domain, list(regions)).toarray()
    np.testing.assert_allclose(shares, by_loop(domain, regions), atol=1e-12)
    assert ((shares > 0) & (shares < 1)).sum() > 50


def test_a_partition_adds_up(domain):
    shares = totals.area_shares(domain, list(voronoi(40, 1)))
    np.testing.assert_allclose(np.asarray(shares.sum(axis=0)).ravel(), 1.0, atol=1e-12)


def test_regions_with_many_vertices_are_tiled(domain):
    wiggle = np.linspace(0, 2 * np.pi, 6001)[:-1]
    radius = 3 + 0.2 * np.sin(40 * wiggle)
    flower = shapely.Polygon(np.column_stack([1 + radius * np.cos(wiggle), radius * np.sin(wiggle)]))
    holed = flower - shapely.Point(1, 0).buffer(1, quad_segs=500)
    shares = totals.area_shares(domain, holed).toarray()
    np.testing.assert_allclose(shares, by_loop(domain, np.array([holed])), atol=1e-10)


def test_nodes_with_joined_pieces_are_found(domain):
    parts = np.bincount(domain.piece_node[domain.piece_node >= 0], minlength=domain.n_nodes)
    joined = np.flatnonzero(parts > 1)
    assert len(joined)
    land = domain.polygon_of(joined[:1])[0]
    shares = totals.area_shares(domain, land.buffer(1e-6)).toarray()[0]
    assert shares[joined[0]] == pytest.approx(1.0)
    far = shapely.box(*(land - domain_cell(domain, joined[0])).bounds)
    assert totals.area_shares(domain, far).toarray()[0, joined[0]] > 0


def domain_cell(domain: Domain, node: int) -> shapely.Polygon:
    east, north = domain.grid.centres(domain.node_rows[node], domain.node_cols[node])
    half = domain.cell_size / 2
    return shapely.box(east - half, north - half, east + half, north + half)


def test_the_river_parts_regions_too(domain):
    """A region on one bank takes nothing from the other, even within one cell."""
    north = shapely.Polygon([(-9, 0.63 + 0.5), (-9, 9), (12, 9), (12, -2.8), (-9, 1.5)])
    bank = shapely.Polygon([(-6, 0.63), (6, -1.1), (6, 9), (-6, 9)])
    shares = totals.area_shares(domain, [bank, north]).toarray()
    label = domain.components[domain.locate(np.array([[0.0, -3.0]]))[0]]
    assert shares[0, domain.components == label].max() == 0


def test_people_off_the_land_are_nobodys(domain):
    """Areas half on the land, all on it, with the river in it, or only touching it along a border."""
    areas = [
        shapely.box(-3, -3, 3, 3),
        shapely.box(-1, 2, 1, 3),
        shapely.box(4, -4, 8, 4),
        shapely.box(-8, -8, 8, -5),
        shapely.box(40, 40, 41, 41),
    ]
    got = totals.spread_density(domain, areas)[1].toarray()
    land = domain.polygon_of(np.arange(domain.n_nodes))
    want = [[(area & piece).area / (area - RIVER).area for piece in land] for area in areas]
    np.testing.assert_allclose(got, want, atol=1e-12)
    assert got.sum(axis=1)[:2] == pytest.approx([1.0, 1.0])
    assert 0.2 < got[2].sum() < 0.8
    assert got[3:].sum() < 1e-4


def test_regions_in_other_crs():
    land = gpd.GeoSeries([shapely.box(100_000, 400_000, 140_000, 430_000)], crs=28992)
    place = Domain.from_polygons(land, cell_size=2000, crs=28992)
    halves = gpd.GeoDataFrame(
        {"name": ["west", "east"]},
        geometry=[shapely.box(90_000, 390_000, 121_300, 440_000), shapely.box(121_300, 390_000, 150_000, 440_000)],
        crs=28992,
    )
    here = totals.area_shares(place, halves).toarray()
    dense = halves.set_geometry(halves.segmentize(500))
    for crs in (4326, 32631, 3857):
        there = totals.area_shares(place, dense.to_crs(crs)).toarray()
        np.testing.assert_allclose(there, here, atol=2e-4)
    world = gpd.GeoDataFrame(geometry=[shapely.box(-180, -90, 180, 90)], crs=4326)
    np.testing.assert_allclose(totals.area_shares(place, world).toarray(), 1.0, atol=1e-9)


def test_invalid_missing_and_overlapping_regions(domain):
    bow_tie = shapely.Polygon([(-3, -3), (3, 3), (3, -3), (-3, 3)])
    regions = gpd.GeoSeries([bow_tie, None, shapely.Polygon(), shapely.box(-3, -3, 3, 3)])
    shares = totals.area_shares(domain, regions)
    land = shares @ domain.node_areas
    assert land[1] == land[2] == 0
    assert land[0] == pytest.approx(land[3] / 2, rel=0.05)


def test_reading_and_refusals(domain, tmp_path):
    assert len(totals.read_regions(None, domain)) == 1
    path = tmp_path / "regions.gpkg"
    gpd.GeoDataFrame({"name": ["a"]}, geometry=[shapely.box(4, 51, 5, 52)], crs=4326).to_file(path)
    with pytest.raises(CRSError, match="no place on Earth"):
        totals.read_regions(path, domain)
    land = gpd.GeoSeries([shapely.box(100_000, 400_000, 140_000, 430_000)], crs=28992)
    place = Domain.from_polygons(land, cell_size=2000, crs=28992)
    assert totals.read_regions(path, place).name.tolist() == ["a"]
    assert totals.read_regions(f"{path}|layername=regions", place).name.tolist() == ["a"]
    with pytest.raises(GeometryError, match="there is no file"):
        totals.read_regions(tmp_path / "none.gpkg", place)
    (tmp_path / "text.gpkg").write_text("nothing")
    with pytest.raises(GeometryError, match="does not begin as such a file does"):
        totals.read_regions(tmp_path / "text.gpkg", place)
    with pytest.raises(CRSError, match=r"The regions have no .*set_crs\(4326\)"):
        totals.read_regions(gpd.GeoSeries([shapely.box(0, 0, 1, 1)]), place)
    with pytest.raises(GeometryError, match="0 rows"):
        totals.read_regions(gpd.GeoSeries([]), domain)
    with pytest.raises(GeometryError, match="must be polygons; found LineString"):
        totals.area_shares(domain, shapely.LineString([(0, 0), (1, 1)]))


def test_regions_far_away_hold_nothing():
    far = gpd.GeoSeries([shapely.box(100, 0, 101, 1)], crs=4326)
    assert totals.area_shares(island(2000.0), far).nnz == 0


def test_table_names_regions_without_land(domain):
    frame = gpd.GeoDataFrame({"name": ["here", "sea"]}, geometry=[shapely.box(0, 1, 2, 3), shapely.box(50, 50, 51, 51)])
    shares = totals.area_shares(domain, frame)
    with pytest.warns(GeobgpWarning, match="1 of 2 regions hold no land"):
        out = totals.table(frame, shares, domain, {"expected": np.array([3.0, 0.0])})
    assert out["expected"].iloc[0] == 3 and np.isnan(out["expected"].iloc[1])
    assert out["land_area"].tolist() == pytest.approx([4.0, 0.0])
    assert out["name"].tolist() == ["here", "sea"] and "expected" not in frame
    twice = gpd.GeoDataFrame({"name": ["a", "b"]}, geometry=frame.geometry[[0, 0]].to_numpy(), index=[7, 7])
    both = totals.table(twice, shares[[0, 0]], domain, {"expected": np.array([1.0, 2.0])})
    assert both["expected"].tolist() == [1, 2] and both.geometry.name == "geometry"
    moved = frame.iloc[:1].rename_geometry("where").set_crs(28992)
    out = totals.table(moved, shares[[0]], domain, {"expected": np.ones(1)})
    assert out.geometry.name == "where" and out.crs == moved.crs
    with pytest.raises(DataError, match="already have columns called expected"):
        totals.table(frame.iloc[:1].assign(expected=0), shares[[0]], domain, {"expected": np.ones(1)})


@pytest.mark.parametrize("mean", [0.0, 0.3, 4.0, 250.0, 1e6])
@pytest.mark.parametrize("q", [0.01, 0.05, 0.5, 0.95])
def test_poisson_quantile_of_one_mean_is_scipys(mean, q):
    assert totals.poisson_quantile(np.full((3, 2), mean), q).tolist() == [stats.poisson.ppf(q, mean)] * 2


def test_poisson_quantile_of_gamma_means_is_negative_binomial():
    rng = np.random.default_rng(0)
    means = rng.gamma(5.0, 4.0, size=(100_000, 1))
    law = stats.nbinom(5.0, 1 / (1 + 4.0))
    for q in (0.05, 0.5, 0.95):
        assert abs(totals.poisson_quantile(means, q)[0] - law.ppf(q)) <= 1


def test_sums_of_samples_in_blocks():
    rng = np.random.default_rng(0)
    samples, weights = rng.random((25, 7)), sparse.csr_array(rng.random((3, 7)))
    got = totals.sum_samples(iter([samples[:10], samples[10:]]), weights)
    np.testing.assert_allclose(got, samples @ weights.toarray().T)


def test_every_event_on_a_border_is_counted_once():
    """Points on all borders and corners of regions that share them, on a plane and in degrees; nested ones in each."""
    domain = Domain.from_polygons(shapely.box(0, 0, 10, 10), cell_size=1, crs="local")
    places = np.array([[x, y, 1.0] for x in range(11) for y in range(11)])
    quarters = [shapely.box(x, y, x + 5, y + 5) for x in (0, 5) for y in (0, 5)]
    halves = [shapely.Polygon([(0, 0), (10, 10), (0, 10)]), shapely.Polygon([(0, 0), (10, 10), (10, 0)])]
    for regions in (quarters, halves):
        found = count_inside(domain, read_regions(regions, domain), places)
        assert found.sum() == 121 and found.min() >= 20
    nested = [shapely.box(0, 0, 5, 10), shapely.box(0, 0, 10, 10), shapely.box(0, 0, 10, 10)]
    assert count_inside(domain, read_regions(nested, domain), places).tolist() == [55, 121, 121]
    alone = [shapely.box(2, 2, 4, 4)]  # a border beyond which there is no region
    assert count_inside(domain, read_regions(alone, domain), places) == 9

    land = gpd.GeoSeries([shapely.box(5, 50, 6, 51)], crs=4326)
    domain = Domain.from_polygons(land, cell_size=5000)
    lon, lat = (v.ravel() for v in np.meshgrid(np.linspace(5, 6, 9), np.linspace(50, 51, 9)))
    counts = bin_points(gpd.GeoSeries.from_xy(lon, lat, crs=4326), domain, keep_coordinates=True, max_snap=20_000)
    quarters = [shapely.box(5 + x, 50 + y, 5.5 + x, 50.5 + y) for x in (0, 0.5) for y in (0, 0.5)]
    regions = read_regions(gpd.GeoDataFrame(geometry=quarters, crs=4326), domain)
    assert count_inside(domain, regions, counts.counted).sum() == 81
