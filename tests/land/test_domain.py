"""Domain: exact coverage, nodes, contacts, and what lies where."""

import numpy as np
import pyproj
import pytest
import shapely
from hypothesis import example, given, settings
from hypothesis import strategies as st
from paths import SAMPLE
from shapely import affinity

from geobgp import Domain, DomainError, SizeError
from geobgp.land.pieces import PRECISION, cover, cut, on_lattice, ring_segments, split_at_grid_lines


def disc(radius=1.0, centre=(0.0, 0.0), points=720):
    angle = np.linspace(0, 2 * np.pi, points, endpoint=False)
    return shapely.Polygon(np.c_[centre[0] + radius * np.cos(angle), centre[1] + radius * np.sin(angle)])


def comb(teeth=6):
    base = shapely.box(0, 0, teeth, 0.5)
    return shapely.union_all([base, *(shapely.box(k + 0.1, 0.4, k + 0.55, 3) for k in range(teeth))])


SHAPES = {
    "disc": disc(),
    "annulus": disc().difference(disc(0.45, (0.1, -0.05))),
    "rotated rectangle": affinity.rotate(shapely.box(0, 0, 2, 1), 33.0),
    "comb": affinity.rotate(comb(), 7.0),
    "two islands": disc().union(disc(0.3, (2.0, 0.4))),
}


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("h", [0.3, 0.1, 0.0317])
def test_coverage_is_exact(name, h):
    domain = Domain.from_polygons(SHAPES[name], cell_size=h, crs="local")
    assert domain.coverage.sum() * h**2 == pytest.approx(SHAPES[name].area, rel=1e-9)
    assert domain.coverage.min() >= 0 and domain.coverage.max() <= 1
    # Each cell by itself, the slow way.
    rows, cols = np.indices(domain.grid.shape)
    east, north = domain.grid.centres(rows, cols)
    cells = shapely.box(east - h / 2, north - h / 2, east + h / 2, north + h / 2)
    slow = shapely.area(shapely.intersection(cells, SHAPES[name])) / h**2
    np.testing.assert_allclose(domain.coverage, slow, atol=1e-8)


@pytest.mark.parametrize("name", SHAPES)
def test_nodes_are_the_pieces_of_land(name):
    h = 0.1
    domain = Domain.from_polygons(SHAPES[name], cell_size=h, crs="local", min_coverage=0.0)
    east, north = domain.grid.centres(*(x.ravel() for x in np.indices(domain.grid.shape)))
    cells = shapely.box(east - h / 2, north - h / 2, east + h / 2, north + h / 2)
    parts, cell = shapely.get_parts(shapely.intersection(cells, SHAPES[name]), return_index=True)
    real = shapely.area(parts) > 1e-12
    flat = domain.node_rows * domain.grid.shape[1] + domain.node_cols
    np.testing.assert_array_equal(
        np.bincount(flat, minlength=len(cells)), np.bincount(cell[real], minlength=len(cells))
    )
    assert domain.node_areas.sum() == pytest.approx(SHAPES[name].area, rel=1e-9)


@given(st.integers(0, 10_000), st.integers(4, 12), st.floats(0.05, 0.4))
@settings(max_examples=60, deadline=None)
def test_random_polygons(seed, vertices, h):
    rng = np.random.default_rng(seed)
    angle = np.sort(rng.uniform(0, 2 * np.pi, vertices))
    radius = rng.uniform(0.2, 1.5, vertices)
    land = shapely.make_valid(shapely.Polygon(np.c_[radius * np.cos(angle), radius * np.sin(angle)]))
    if land.area < 0.1:
        return
    domain = Domain.from_polygons(land, cell_size=h, crs="local")
    assert domain.coverage.sum() * h**2 == pytest.approx(domain.geometry.area, rel=1e-9)
    points = rng.uniform(-1.6, 1.6, (300, 2))
    node = domain.locate(points)
    inside = shapely.contains_xy(domain.geometry, points[:, 0], points[:, 1])
    # On land there is a node, unless a piece was too small and was left out and counted.
    assert (node[~inside] == -1).all()
    if not any("left out" in note for note in domain.notes):
        assert (node[inside] >= 0).all()
    own = shapely.intersects_xy(domain.polygon_of(node[node >= 0]), points[node >= 0, 0], points[node >= 0, 1])
    assert own.all()


@st.composite
def lattice_land(draw):
    """Boxes with holes, on a lattice of halves or thirds of cells: shores along the sides of cells."""
    step = draw(st.sampled_from([1.0, 0.5, 1 / 3]))
    corner = st.integers(0, round(6 / step) - 1)
    side = st.integers(1, round(3 / step))

    def boxes(most):
        found = draw(st.lists(st.tuples(corner, corner, side, side), min_size=1, max_size=most))
        end = round(6 / step)
        return shapely.union_all([shapely.box(x, y, min(x + w, end), min(y + h, end)) for x, y, w, h in found])

    land = boxes(5).difference(boxes(3))
    return shapely.transform(land, lambda xy: xy * step)


@given(lattice_land())
@settings(max_examples=100, deadline=None)
def test_pieces_are_those_of_the_slow_way(land):
    land = shapely.multipolygons([p for p in shapely.get_parts(land) if p.geom_type == "Polygon"])
    if land.is_empty:
        return
    found = cut(shapely.set_precision(land, PRECISION), None, (6, 6))
    col, row = np.meshgrid(np.arange(6), np.arange(6))
    cells = shapely.box(col.ravel(), row.ravel(), col.ravel() + 1, row.ravel() + 1)
    parts, cell = shapely.get_parts(shapely.intersection(cells, land), return_index=True)
    area = shapely.area(parts)
    slow = sorted((c, a) for c, a in zip(cell, area, strict=True) if a > 1e-9)
    quick = sorted(zip(found.cell, found.area, strict=True))
    np.testing.assert_allclose(np.reshape(quick, (-1, 2)), np.reshape(slow, (-1, 2)), rtol=0, atol=1e-7)
    made = found.polygon[[p is not None for p in found.polygon]]
    assert shapely.is_valid(made).all()


@pytest.mark.parametrize("seed", range(3))
def test_ragged_land_is_cut_as_one_intersection_after_the_other_does(seed):
    rng = np.random.default_rng(seed)
    angle = np.linspace(0, 2 * np.pi, 150, endpoint=False)
    ring = np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    reach = rng.uniform(0.4, 1.0, (14, 150)) * rng.uniform(0.5, 5.0, (14, 1))
    shapes = shapely.make_valid(shapely.polygons(rng.uniform(6, 14, (14, 1, 2)) + reach[..., None] * ring))
    land = shapely.union_all(shapes[:9]).difference(shapely.union_all(shapes[9:]))
    found = cut(on_lattice(land), None, (20, 20))
    col, row = (x.ravel() for x in np.meshgrid(np.arange(20), np.arange(20)))
    parts, cell = shapely.get_parts(
        shapely.intersection(shapely.box(col, row, col + 1, row + 1), land), return_index=True
    )
    slow = np.array(sorted((c, a) for c, a in zip(cell, shapely.area(parts), strict=True) if a > 1e-9))
    quick = np.array(sorted((c, a) for c, a in zip(found.cell, found.area, strict=True) if a > 1e-9))
    np.testing.assert_allclose(quick, slow, rtol=0, atol=1e-7)
    for step, wall in ((1, [1, 0, 1, 1]), (20, [0, 1, 1, 1])):
        ends = np.column_stack([col, row, col, row]) + wall
        face = shapely.linestrings(ends.reshape(-1, 2, 2))
        across = found.cell[found.second] - found.cell[found.first] == step
        opened = np.bincount(found.cell[found.first][across], found.open_length[across], 400)
        np.testing.assert_allclose(opened, shapely.length(shapely.intersection(face, land)), rtol=0, atol=1e-4)


def test_land_that_rounding_would_tangle_stays_valid():
    gap = 0.2 * PRECISION
    slit = shapely.Polygon([(0, 0), (3, 0), (3, 2), (1.5 + gap, 2), (1.5, 1), (1.5 - gap, 2), (0, 2)])
    found = on_lattice(shapely.union(slit, shapely.box(4, 0, 5, 1)))
    assert shapely.is_valid(found)
    np.testing.assert_allclose(found.area, 7.0, atol=1e-9)


def test_land_in_rows_or_in_one_shape_makes_the_same_domain():
    islands = [disc(0.2 + 0.01 * k, (1.1 * (k % 5), 1.1 * (k // 5))) for k in range(20)]
    one = Domain.from_polygons(shapely.multipolygons(islands), cell_size=0.13, crs="local")
    rows = Domain.from_polygons(islands, cell_size=0.13, crs="local")
    np.testing.assert_array_equal(rows.pieces.cell, one.pieces.cell)
    np.testing.assert_allclose(rows.node_areas, one.node_areas, rtol=1e-9)
    assert rows.n_components == one.n_components == 20


def test_coverage_of_a_cell_sized_hole_and_touching_polygons():
    land = shapely.box(0, 0, 4, 4).difference(shapely.box(1, 1, 2, 2))
    coverage, touched = cover(split_at_grid_lines(ring_segments(land)), (4, 4))
    expected = np.ones((4, 4))
    expected[1, 1] = 0
    np.testing.assert_array_equal(coverage, expected)
    assert not touched.any()


@st.composite
def crossings(draw):
    angle = draw(st.sampled_from([0.0, 45.0, 90.0, 135.0])) if draw(st.booleans()) else draw(st.floats(0, 180))
    shift = draw(st.one_of(st.just((0.0, 0.0)), st.tuples(st.floats(-0.1, 0.1), st.floats(-0.1, 0.1))))
    return angle, shift


@given(crossings())
@example((140.51711751662216, (2.2250738585072014e-308, 0.04930106210703025)))  # GEOS stumbled over it
@settings(max_examples=80, deadline=None)
def test_a_thin_river_parts_the_land_and_a_gap_joins_it(crossing):
    angle, shift = crossing
    h = 0.1
    square = affinity.translate(shapely.box(0, 0, 1, 1), *shift)
    centre = square.centroid
    line = shapely.LineString([(centre.x - 3, centre.y), (centre.x + 3, centre.y)])
    line = affinity.rotate(line, angle, origin=centre)
    river = line.buffer(h / 40)
    options = {"cell_size": h, "crs": "local"}
    parted = Domain.from_polygons(square, water=river, **options)
    assert parted.n_components == 2
    assert Domain.from_polygons(square, barriers=line, **options).n_components == 2
    # A line that only just reaches the shore parts the land too.
    assert Domain.from_polygons(square, barriers=line.intersection(square), **options).n_components == 2
    gap = centre.buffer(h / 3)
    assert Domain.from_polygons(square, water=river.difference(gap), **options).n_components == 1
    assert Domain.from_polygons(square, barriers=line.difference(gap), **options).n_components == 1
    # No interpolation across: each side's label comes back pure.
    points = np.random.default_rng(0).uniform(-0.1, 1.1, (500, 2))
    matrix, inside = parted.interpolation(points)
    label = parted.components.astype(float)
    np.testing.assert_allclose((matrix @ label)[inside], label[parted.locate(points)[inside]], atol=1e-12)
    np.testing.assert_allclose(np.asarray(matrix.sum(axis=1)).ravel(), inside.astype(float), atol=1e-12)


def test_barrier_along_a_grid_line():
    options = {"cell_size": 0.1, "crs": "local"}
    square = shapely.box(0, 0, 1, 1)
    whole = Domain.from_polygons(square, barriers=shapely.LineString([(0.5, 0), (0.5, 1)]), **options)
    assert whole.n_components == 2
    assert whole.n_nodes == 100
    half = Domain.from_polygons(square, barriers=shapely.LineString([(0.5, 0), (0.5, 0.97)]), **options)
    assert half.n_components == 1
    lengths = half.pieces.open_length.sum()
    assert lengths == pytest.approx(180 - 9.7)


def test_contacts_have_the_open_length_of_the_faces():
    land = shapely.Polygon([(0, 0), (3, 0), (3, 1.25), (0, 1.25)])
    domain = Domain.from_polygons(land, cell_size=1.0, crs="local")
    p = domain.pieces
    total = {}
    for a, b, length in zip(p.first, p.second, p.open_length, strict=True):
        total[(a, b)] = total.get((a, b), 0) + length
    # Row 0 (north) holds slivers of a quarter cell, row 1 whole cells.
    assert total == pytest.approx(
        {(0, 1): 0.25, (1, 2): 0.25, (3, 4): 1.0, (4, 5): 1.0, (0, 3): 1.0, (1, 4): 1.0, (2, 5): 1.0}
    )


def test_small_pieces_join_what_they_touch_and_specks_are_counted():
    land = shapely.union_all([shapely.box(0, 0, 4.01, 4), shapely.box(7.2, 7.2, 7.25, 7.25)])
    domain = Domain.from_polygons(land, cell_size=1.0, crs="local")
    assert domain.n_nodes == 16
    assert domain.node_areas.sum() == pytest.approx(16.04)
    assert domain.coverage.sum() == pytest.approx(16.0425)
    assert "1 piece of land" in domain.notes[-1] and "0.0025" in domain.notes[-1]
    # The joined sliver belongs to the node next to it.
    node = domain.locate([[4.005, 0.5], [3.5, 0.5]])
    assert node[0] == node[1] >= 0
    assert domain.locate([[7.22, 7.22]])[0] == -1
    kept = Domain.from_polygons(land, cell_size=1.0, crs="local", min_coverage=0)
    assert kept.n_nodes == 21 and kept.n_components == 2


def test_small_pieces_never_join_across_water():
    strip = shapely.box(0, 0, 5, 1.007)
    river = shapely.box(-1, 1.0, 6, 1.005)
    domain = Domain.from_polygons(strip, water=river, cell_size=1.0, crs="local")
    assert domain.n_nodes == 5
    assert domain.node_areas.sum() == pytest.approx(5.0)
    assert "left out" in domain.notes[-1]


def test_nearest_land():
    domain = Domain.from_polygons(SHAPES["two islands"], cell_size=0.1, crs="local")
    rng = np.random.default_rng(1)
    points = rng.uniform(-2, 3, (400, 2))
    node, distance = domain.nearest(points, 0.5)
    true = shapely.distance(shapely.points(points), domain.geometry)
    np.testing.assert_allclose(distance[true < 0.5], true[true < 0.5], atol=1e-9)
    assert np.isinf(distance[true > 0.5]).all() and (node[true > 0.5] == -1).all()
    found = node >= 0
    gap = shapely.distance(shapely.points(points[found]), domain.polygon_of(node[found]))
    np.testing.assert_allclose(gap, distance[found], atol=1e-9)


def test_interpolation_is_bilinear_inland_and_exact_at_centres():
    domain = Domain.from_polygons(SHAPES["annulus"], cell_size=0.1, crs="local")
    points = np.random.default_rng(2).uniform(-1, 1, (2000, 2))
    matrix, inside = domain.interpolation(points)
    east, north = domain.grid.centres(domain.node_rows, domain.node_cols)
    plane = 0.3 + 2 * east - north
    shore = shapely.distance(domain.geometry.boundary, shapely.points(points))
    inland = inside & (shore > 0.25)
    assert inland.sum() > 100
    np.testing.assert_allclose((matrix @ plane)[inland], (0.3 + 2 * points[:, 0] - points[:, 1])[inland], atol=1e-12)
    holds = domain.holds_centre
    at_centres = domain.interpolation(np.c_[east, north][holds])[0].toarray()
    np.testing.assert_allclose(at_centres, np.eye(domain.n_nodes)[holds], atol=1e-9)


def test_to_grid_averages_by_land_area():
    square, river = shapely.box(0, 0, 3, 3), shapely.box(-1, 1.2, 4, 1.25)
    domain = Domain.from_polygons(square, water=river, cell_size=1.0, crs="local")
    assert domain.n_nodes == 12
    values = np.where(domain.components == domain.components[0], 10.0, 20.0)
    grid = domain.to_grid(values)
    np.testing.assert_allclose(grid[[0, 2]], [[10] * 3, [20] * 3])
    np.testing.assert_allclose(grid[1], (10 * 0.75 + 20 * 0.2) / 0.95)
    annulus = Domain.from_polygons(SHAPES["annulus"], cell_size=0.1, crs="local")
    np.testing.assert_array_equal(np.isnan(annulus.to_grid(np.ones(annulus.n_nodes))), annulus.coverage == 0)


def test_node_points_lie_on_their_nodes():
    for shape in SHAPES.values():
        domain = Domain.from_polygons(shape, cell_size=0.13, crs="local")
        np.testing.assert_array_equal(domain.locate(domain.node_points), np.arange(domain.n_nodes))


def test_a_unit_does_not_matter():
    small = Domain.from_polygons(SHAPES["comb"], cell_size=0.1, crs="local")
    large = Domain.from_polygons(
        affinity.scale(SHAPES["comb"], 1000, 1000, origin=(0, 0)), cell_size=100.0, crs="local"
    )
    np.testing.assert_array_equal(small.node_rows, large.node_rows)
    np.testing.assert_allclose(small.node_areas * 1e6, large.node_areas, rtol=1e-6)


def test_content_hash_follows_the_content():
    one = Domain.from_polygons(disc(), cell_size=0.1, crs="local")
    assert one.content_hash() == Domain.from_polygons(disc(), cell_size=0.1, crs="local").content_hash()
    others = [
        Domain.from_polygons(disc(), cell_size=0.11, crs="local"),
        Domain.from_polygons(disc(1.01), cell_size=0.1, crs="local"),
        Domain.from_polygons(disc(), cell_size=0.1, crs="local", min_coverage=0.1),
        Domain.from_polygons(disc(), cell_size=0.1, crs="local", barriers=shapely.LineString([(-2, 0), (2, 0)])),
    ]
    assert len({one.content_hash(), *(d.content_hash() for d in others)}) == 5
    again = Domain.from_geometry(one.geometry, one.grid, min_coverage=one.min_coverage)
    assert again.content_hash() == one.content_hash()


def test_netherlands_area_agrees_with_the_geodesic_one():
    land, water = SAMPLE / "netherlands_land.gpkg", SAMPLE / "netherlands_water.gpkg"
    import geopandas as gpd

    dry = gpd.read_file(land).geometry.union_all().difference(gpd.read_file(water).geometry.union_all())
    geodesic = abs(pyproj.Geod(ellps="WGS84").geometry_area_perimeter(dry)[0])
    for crs in (None, "EPSG:28992", "EPSG:3035", "EPSG:3857"):
        domain = Domain.from_polygons(land, water=water, cell_size=5000, crs=crs)
        assert domain.node_areas.sum() == pytest.approx(geodesic, rel=5e-4), crs
    # Web Mercator stretches area here by about 2.6, and the coverage, which is planar, shows it.
    assert domain.coverage.sum() * 5000**2 > 2 * geodesic


def test_refusals():
    square = shapely.box(0, 0, 1, 1)
    with pytest.raises(DomainError, match=r"cell_size is 3 but the land is only 1 across.*0\.01"):
        Domain.from_polygons(square, cell_size=3, crs="local")
    with pytest.raises(SizeError, match=r"100,000,000,000,000 cells.*Use cell_size >="):
        Domain.from_polygons(square, cell_size=1e-7, crs="local")
    with pytest.raises(DomainError, match="min_coverage must be a number of at least 0 and below 1; found 2"):
        Domain.from_polygons(square, cell_size=0.1, crs="local", min_coverage=2)
    specks = shapely.union_all([shapely.box(k + 0.4, 0.4, k + 0.41, 0.41) for k in range(9)])
    with pytest.raises(DomainError, match="9 pieces of land, all smaller than min_coverage"):
        Domain.from_polygons(specks, cell_size=1, crs="local")
    with pytest.raises(DomainError, match=r"(?i)water"):
        Domain.from_polygons(square, water=shapely.box(-1, -1, 2, 2), cell_size=0.1, crs="local")


def test_views():
    domain = Domain.from_polygons(SHAPES["two islands"], cell_size=0.1, crs="local")
    for text in (repr(domain), domain.report(), domain._repr_html_()):
        assert f"{domain.n_nodes:,}" in text and "local" in text and "0.1" in text
    assert "separate parts of land: 2" in repr(domain)


def test_parts_and_holes_that_come_down_to_a_point_are_nothing():
    speck = shapely.Polygon([(1, 1), (2, 0), (0, 7e-76), (0, 0), (1, 1)])  # repaired: a triangle and a speck
    pinhole = shapely.box(0, 0, 2, 1).difference(shapely.box(1.2, 0.2, 1.2 + 1e-13, 0.2 + 1e-13))
    for shape, area in ((speck, 1.0), (pinhole, 2.0)):
        domain = Domain.from_polygons(shape, cell_size=0.5, crs="local")
        assert domain.node_areas.sum() == pytest.approx(area)


def test_water_a_hair_from_the_edge_is_cut_without_a_warning():
    land, hair = shapely.box(0, 0, 10, 10), 1.40349e-223
    water = shapely.Polygon([(1, 0), (1, 1), (hair, 1), (hair, 0)])
    domain = Domain.from_polygons(land, water=water, cell_size=2.0, crs="local")
    assert domain.node_areas.sum() == pytest.approx(99.0)
