"""Tiles cover the land once, overlap by the halo, and their weights add up."""

from __future__ import annotations

import numpy as np
import pytest
import shapely
import small_case as case
from hypothesis import given
from hypothesis import strategies as st

from geobgp import SizeError
from geobgp.auto.gridded import read_land
from geobgp.land.domain import Domain
from geobgp.scale.tile import coords_of
from geobgp.scale.tiling import BLENDED, Box, Frame, cut_tiles, weights


def made(tile_nodes=300, halo=2000.0, cell_size=500.0, step=1):
    land = read_land(case.land(), case.water(), crs=case.CRS)
    frame = Frame.around(land.geometry, cell_size)
    return land, frame, cut_tiles(land, frame, tile_nodes, halo, step)


@pytest.mark.parametrize("step", [1, 8])
def test_every_cell_of_land_is_in_one_core(step):
    land, frame, tiles = made(step=step)
    assert len(tiles) > 4
    domain = Domain.from_land(land, 500.0)
    assert frame.box.shape == domain.grid.shape and frame.affine() == domain.grid.affine
    owner = np.zeros(frame.box.shape, int)
    for tile in tiles:
        owner[tile.core.within(frame.box)] += 1
        cells = shapely.area(shapely.intersection(land.geometry, frame.polygon(tile.core))) / 500.0**2
        assert cells <= 300
        grown = tile.core.grown(4, frame.box)
        assert tile.outer.top % step == tile.outer.left % step == 0
        assert tile.outer == grown.from_multiples(step) and tile.shown == tile.core.grown(
            max(1, round(4 * BLENDED)), frame.box
        )
        expected = shapely.intersection(land.geometry, frame.polygon(tile.outer))
        assert shapely.area(shapely.symmetric_difference(tile.geometry, expected)) < 1e-3
    assert (owner[domain.node_rows, domain.node_cols] == 1).all()
    assert owner.max() == 1


def test_nodes_of_tiles_are_those_of_the_whole():
    land, frame, tiles = made()
    whole = Domain.from_land(land, 500.0)
    areas = whole.to_grid(whole.node_areas)
    for tile in tiles:
        part = Domain.from_geometry(tile.geometry, frame.grid(tile.outer, land.crs))
        inner = tile.shown.within(tile.outer)
        found = part.to_grid(part.node_areas)[inner]
        np.testing.assert_allclose(found, areas[tile.shown.within(frame.box)], rtol=1e-6)


def test_weights_are_smooth_and_positive_in_every_core():
    _, frame, tiles = made()
    total = np.zeros(frame.box.shape)
    for tile in tiles:
        weight = weights(tile)
        assert weight.shape == tile.shown.shape and (weight >= 0).all() and weight.max() <= 1.0
        assert (weight[tile.core.within(tile.shown)] > 0.2).all()
        total[tile.shown.within(frame.box)] += weight
    for tile in tiles:
        assert (total[tile.core.within(frame.box)] > 0.2).all()


@given(st.integers(1, 30), st.integers(1, 30), st.integers(0, 9))
def test_boxes(rows, cols, more):
    box, frame = Box(3, 4, 3 + rows, 4 + cols), Box(0, 0, 30, 31)
    grown = box.grown(more, frame)
    assert grown.meets(box) and grown.common(frame) == grown and box.common(grown) == box.common(frame)
    assert np.zeros(frame.shape)[grown.within(frame)].shape == grown.shape


def test_points_go_to_the_tiles_that_they_lie_in():
    _, frame, tiles = made()
    share = np.random.default_rng(0).uniform(-0.05, 1.05, (500, 2))
    coords = share * [30_000, 16_000] + [case.WEST, case.SOUTH]
    # Points beyond all land belong to the tiles at its edge; those beyond another edge to another tile.
    west, south, east, north = shapely.bounds(frame.polygon(frame.box))
    nearest = np.clip(coords, [west, south], [east, north])
    for tile, found in zip(tiles, coords_of(tiles, frame, coords), strict=True):
        inside = shapely.intersects_xy(frame.polygon(tile.outer), nearest[:, 0], nearest[:, 1])
        assert sorted(map(tuple, found)) == sorted(map(tuple, coords[inside]))


def test_tiles_smaller_than_the_halo():
    with pytest.raises(
        SizeError, match=r"A tile of 300 nodes would be .* narrower than the halo of 9,?000 \(18 cells\)"
    ):
        made(halo=9000.0)
    assert len(made(tile_nodes=5000, halo=1e6)[2]) == 1
