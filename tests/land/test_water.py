"""Water: every cell shared out exactly between land and water, every shore found, barriers kept."""

import numpy as np
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.ndimage import distance_transform_cdt
from shapely import affinity
from strategies import island_groups

from geobgp import Domain
from geobgp.land.water import water_around


def disc(radius, centre=(0.0, 0.0), points=180):
    angle = np.linspace(0, 2 * np.pi, points, endpoint=False)
    return shapely.Polygon(np.c_[centre[0] + radius * np.cos(angle), centre[1] + radius * np.sin(angle)])


def lakeland(cell_size=1.0):
    land = affinity.rotate(shapely.box(0, 0, 24, 17), 11)
    lakes = [disc(3.2, (9, 8)), disc(0.2, (15.3, 6.1)), shapely.LineString([(-5, 13), (30, 9)]).buffer(0.06)]
    return Domain.from_polygons(land, water=shapely.union_all(lakes), cell_size=cell_size, crs="local")


def share_of_cells(domain, water):
    """Area of land and water that each cell of the extended grid has."""
    out = np.zeros(water.grid.shape)
    for k in np.unique(water.side):
        row, col = water.rows[water.side == k], water.cols[water.side == k]
        for dr in range(k):
            for dc in range(k):
                np.add.at(out, (row + dr, col + dc), water.area[water.side == k] / k**2)
    row, col = np.divmod(domain.pieces.cell, domain.grid.shape[1])
    used = domain.piece_node >= 0
    np.add.at(out, (row[used] + water.margin, col[used] + water.margin), domain.pieces.area[used])
    return out


def land_cells(domain, water):
    out = np.zeros(water.grid.shape, bool)
    out[domain.node_rows + water.margin, domain.node_cols + water.margin] = True
    return out


@settings(max_examples=40, deadline=None)
@given(island_groups(), st.integers(1, 20), st.floats(0.35, 1.2))
def test_land_and_water_share_out_every_cell(land, reach, cell_size):
    domain = Domain.from_polygons(land, cell_size=cell_size, crs="local", min_coverage=0.0)
    water = water_around(domain, reach)
    share = share_of_cells(domain, water)
    kept = share > 0
    np.testing.assert_allclose(share[kept], 1.0, atol=1e-6)
    away = distance_transform_cdt(~land_cells(domain, water), "chessboard")
    assert kept[away <= reach].all(), "water within reach is missing"
    assert water.area.sum() + domain.pieces.area.sum() == pytest.approx(kept.sum(), rel=1e-9)
    assert (np.diff(water.cell) >= 0).all()


@settings(max_examples=25, deadline=None)
@given(island_groups(), st.floats(0.35, 1.2))
def test_every_shore_is_found(land, cell_size):
    domain = Domain.from_polygons(land, cell_size=cell_size, crs="local", min_coverage=0.0)
    water = water_around(domain, 3)
    found = water.shore_length.sum() * cell_size
    assert found == pytest.approx(shapely.length(land), rel=1e-4)


def test_pieces_and_shores_of_each_cell_are_those_found_one_by_one():
    domain = lakeland()
    water = water_around(domain, 3)
    inner = (water.side == 1) & (water.area < 1)
    cells = np.unique(water.cell[inner])
    land = shapely.transform(domain.geometry, lambda xy: np.column_stack(water.grid.to_cells(xy[:, 0], xy[:, 1])))
    for cell in cells:
        row, col = divmod(int(cell), water.grid.shape[1])
        box = shapely.box(col, row, col + 1, row + 1)
        parts = [p for p in shapely.get_parts(box - land) if p.area > 1e-8]
        mine = np.flatnonzero(inner & (water.cell == cell))
        np.testing.assert_allclose(sorted(water.area[mine]), sorted(p.area for p in parts), atol=1e-8)
        for k in mine:
            part = min(parts, key=lambda p, k=k: p.distance(shapely.Point(water.centre[k])))
            inside = (water.shore_water == k) & (water.shore_apart == 0)
            shore = land.boundary.intersection(box).intersection(part.buffer(1e-6))
            assert water.shore_length[inside].sum() == pytest.approx(shore.length, abs=1e-4)


def test_contacts_of_squares_have_the_length_of_their_common_side():
    domain = Domain.from_polygons(disc(3.0), cell_size=0.5, crs="local")
    water = water_around(domain, 40)
    assert set(water.side) == {1, 2, 4, 8, 16}
    low = np.column_stack([water.cols, water.rows]).astype(float)
    high = low + water.side[:, None]
    coarse = np.flatnonzero(water.side[water.first] + water.side[water.second] > 2)
    a, b = water.first[coarse], water.second[coarse]
    overlap = np.minimum(high[a], high[b]) - np.maximum(low[a], low[b])
    np.testing.assert_allclose(np.sort(overlap, axis=1)[:, 0], 0.0, atol=1e-12)
    np.testing.assert_allclose(overlap.max(axis=1), water.open_length[coarse])
    np.testing.assert_allclose(water.apart[coarse], (water.side[a] + water.side[b]) / 2)
    ratio = water.side[a] / water.side[b]
    assert ratio.max() <= 2 and ratio.min() >= 0.5, "neighbours differ by more than a factor of two"
    # Every side of a square is shared out, except at the rim of what is kept.
    total = np.bincount(a, water.open_length[coarse], len(water.cell))
    total += np.bincount(b, water.open_length[coarse], len(water.cell))
    assert (total <= 4 * water.side + 1e-9).all()


def test_land_that_is_left_out_is_water():
    land = shapely.union_all([shapely.box(0, 0, 4, 4), shapely.box(8.45, 2.45, 8.55, 2.55)])
    domain = Domain.from_polygons(land, cell_size=1, crs="local", min_coverage=0.02)
    assert domain.n_nodes == 16
    water = water_around(domain, 6)
    assert share_of_cells(domain, water).max() == pytest.approx(1.0)
    assert water.shore_length.sum() == pytest.approx(16.0)


def test_an_isthmus_narrower_than_a_cell_parts_the_water():
    land = shapely.union_all([shapely.box(0, 0, 3, 3), shapely.box(5, 0, 8, 3), shapely.box(2, 1.37, 6, 1.41)])
    domain = Domain.from_polygons(land, cell_size=1, crs="local")
    water = water_around(domain, 2)
    # The cell between the two, on the isthmus: water north and south of it.
    row, col = domain.grid.shape[0] - 2 + water.margin, 3 + water.margin
    here = water.cell == row * water.grid.shape[1] + col
    np.testing.assert_allclose(np.sort(water.area[here]), [0.37, 0.59], atol=1e-9)


@pytest.mark.parametrize("turn", [0.0, 23.0])
def test_a_wall_along_the_shore_closes_it(turn):
    land = affinity.rotate(shapely.box(0, 0, 6, 4), turn)
    open_shore = Domain.from_polygons(land, cell_size=1, crs="local")
    walled = Domain.from_polygons(land, barriers=land.boundary, cell_size=1, crs="local")
    assert water_around(open_shore, 4).shore_length.sum() == pytest.approx(20.0)
    water = water_around(walled, 4)
    assert len(water.shore_length) == 0 and len(water.cell) == 0


def test_barriers_cut_water():
    land = shapely.union(shapely.box(0, 0, 4, 8), shapely.box(10, 0, 14, 8))
    wall = shapely.LineString([(7.3, -40), (7.3, 40)])
    domain = Domain.from_polygons(land, barriers=wall, cell_size=1, crs="local")
    cut = water_around(domain, 6)
    share = share_of_cells(domain, cut)
    np.testing.assert_allclose(share[share > 0], 1.0, atol=1e-9)
    own = np.array([c[0] if p is None else p.centroid.x for p, c in zip(cut.polygon, cut.centre, strict=True)])
    west = own < 7.3 + cut.margin
    assert not (west[cut.first] != west[cut.second]).any(), "water passes the wall"


def test_areas_on_the_ground():
    land = shapely.box(500e3, 5.6e6, 540e3, 5.64e6)
    water = water_around(Domain.from_polygons(land, cell_size=4000, crs="EPSG:3857"), 5)
    # Web Mercator shows areas at 45° N twice as large.
    np.testing.assert_allclose(water.true_areas() / (water.area * 16e6), 0.5, atol=0.02)
