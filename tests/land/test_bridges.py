"""Bridges: which nodes they join, and how well."""

import geopandas as gpd
import numpy as np
import pytest
import shapely

from geobgp import Domain, DomainError, GeobgpError
from geobgp.archive import pack, unpack


def two_islands(bridges, gap=3.0, **kwargs):
    land = shapely.union(shapely.box(0, 0, 6, 10), shapely.box(6 + gap, 0, 12 + gap, 10))
    return Domain.from_polygons(land, bridges=bridges, cell_size=1, crs="local", **kwargs)


def crossing(y=5.5, gap=3.0, reach=1.0):
    return shapely.LineString([(6 - reach, y), (6 + gap + reach, y)])


def frame(lines, **columns):
    return gpd.GeoDataFrame(columns, geometry=list(lines))


def test_a_bridge_joins_the_nodes_at_its_two_ends():
    domain = two_islands(crossing(5.5))
    b = domain.bridges
    ends = domain.node_points[[b.first[0], b.second[0]]]
    assert sorted(map(tuple, ends)) == [(5.5, 5.5), (9.5, 5.5)]
    np.testing.assert_allclose(b.length, [3.0])
    np.testing.assert_allclose(b.conductance, [1 / 3])
    assert domain.n_components == 2, "components are those of the land"
    assert "bridges: 1" in domain.report()


@pytest.mark.parametrize("column", ["width", "width_m"])
def test_width_over_length(column):
    lines = [crossing(2.5), crossing(5.5), crossing(7.5)]
    b = two_islands(frame(lines, **{column: [0.5, np.nan, 6]})).bridges
    np.testing.assert_allclose(b.conductance, np.array([0.5, 1.0, 6.0]) / 3)


def test_a_short_bridge_conducts_no_better_than_land_of_its_width():
    b = two_islands(crossing(gap=0.2), gap=0.2).bridges
    np.testing.assert_allclose(b.conductance, [1.0])


def test_stretches_of_one_line_join_one_island_after_the_other():
    land = shapely.union_all([shapely.box(5 * k, 0, 5 * k + 3, 3) for k in range(4)])
    line = shapely.LineString([(-4, 1.5), (22, 1.5)])
    b = Domain.from_polygons(land, bridges=line, cell_size=1, crs="local").bridges
    # The ends of the line hang over water and join nothing.
    np.testing.assert_allclose(b.length, [2.0, 2.0, 2.0])


def test_a_bridge_leads_over_a_rock_that_is_no_node():
    land = shapely.union_all([shapely.box(0, 0, 6, 10), shapely.box(9, 0, 15, 10), shapely.box(7.45, 5.45, 7.55, 5.55)])
    domain = Domain.from_polygons(land, bridges=crossing(), cell_size=1, crs="local")
    np.testing.assert_allclose(domain.bridges.length, [3.0])


def test_a_bridge_crosses_a_barrier():
    river = shapely.LineString([(-1, 4.6), (11, 4.3)])
    square = shapely.box(0, 0, 10, 10)
    domain = Domain.from_polygons(
        square, barriers=river, bridges=shapely.LineString([(3.3, 3.8), (3.4, 5.2)]), cell_size=1, crs="local"
    )
    b = domain.bridges
    assert domain.n_components == 2
    assert domain.components[b.first[0]] != domain.components[b.second[0]]
    np.testing.assert_allclose(b.conductance, [1.0])


def test_an_end_that_all_but_reaches_land_is_on_land():
    assert len(two_islands(crossing(reach=-0.05)).bridges.first) == 1
    with pytest.raises(DomainError, match="none joins two pieces of land"):
        two_islands(crossing(reach=-0.3))


def test_lines_that_join_nothing_are_named():
    on_land = shapely.LineString([(1, 1), (4, 1)])
    at_sea = shapely.LineString([(7, 1), (8, 9)])
    domain = two_islands(frame([on_land, crossing(), at_sea]))
    assert len(domain.bridges.first) == 1
    assert "bridges: 2 lines join no two pieces of land (rows 0, 2)" in domain.notes
    with pytest.raises(DomainError, match=r"2 lines, but none joins two pieces of land \(rows 0, 1\)"):
        two_islands([on_land, at_sea])


@pytest.mark.parametrize(
    ("width", "message"),
    [([2.0, 0.0], "must be positive; found 0 in row 1"), (["wide", "narrow"], "must hold numbers")],
)
def test_widths_that_are_none(width, message):
    with pytest.raises(GeobgpError, match=message):
        two_islands(frame([crossing(2.5), crossing(5.5)], width=width))


def test_from_a_file_in_another_crs(tmp_path):
    lonlat = [shapely.box(20.0, 60.0, 20.2, 60.1), shapely.box(20.25, 60.0, 20.4, 60.1)]
    land = gpd.GeoSeries(lonlat, crs="EPSG:4326")
    line = shapely.LineString([(20.15, 60.05), (20.3, 60.05)])
    path = tmp_path / "bridges.gpkg"
    gpd.GeoDataFrame({"width_m": [40.0]}, geometry=[line], crs="EPSG:4326").to_file(path)
    b = Domain.from_polygons(land, bridges=path, cell_size=1000).bridges
    # 0.05 degrees of longitude at 60.05 degrees north.
    assert b.length[0] == pytest.approx(0.05 * 111_320 * np.cos(np.radians(60.05)), rel=5e-3)
    assert b.conductance[0] == pytest.approx(40 / b.length[0])


def test_bridges_are_stored_and_part_of_the_hash():
    plain, wide = two_islands(crossing()), two_islands(frame([crossing()], width=[2.0]))
    assert len({two_islands(None).content_hash(), plain.content_hash(), wide.content_hash()}) == 3
    domain = two_islands(frame([crossing(), shapely.LineString([(1, 1), (4, 1)])], width=[2.0, np.nan]))
    again = unpack(*pack(domain))
    assert again.content_hash() == domain.content_hash() and again.notes == domain.notes
    for name in ("first", "second", "length", "conductance"):
        np.testing.assert_array_equal(getattr(again.bridges, name), getattr(domain.bridges, name))
