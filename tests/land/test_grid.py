"""Grid: the pixel arithmetic, judged by its laws."""

import numpy as np
import pytest
from affine import Affine
from hypothesis import given
from hypothesis import strategies as st

from geobgp.errors import DomainError, SizeError
from geobgp.land.grid import MAX_CELLS, Grid

corner = st.floats(-1e6, 1e6)
extent = st.floats(0.5, 5e4)
size = st.floats(300.0, 5e3)


@given(corner, corner, extent, extent, size)
def test_bounds_hold_what_was_asked_for_and_are_aligned(west, south, width, height, h):
    grid = Grid.from_bounds((west, south, west + width, south + height), h)
    w, s, e, n = grid.bounds
    slack = 1e-6 * h
    assert w <= west + slack and s <= south + slack
    assert e >= west + width - slack and n >= south + height - slack
    assert w > west - h - slack and n < south + height + h + slack
    assert abs(w / h - round(w / h)) < 1e-6 and abs(n / h - round(n / h)) < 1e-6


@given(corner, corner, extent, extent, size)
def test_centres_fall_into_their_own_cells(west, south, width, height, h):
    grid = Grid.from_bounds((west, south, west + width, south + height), h)
    rows, cols = (x.ravel() for x in np.indices(grid.shape))
    r, c, inside = grid.cell_of(*grid.centres(rows, cols))
    assert inside.all()
    np.testing.assert_array_equal(r, rows)
    np.testing.assert_array_equal(c, cols)


def test_overlapping_grids_share_cells():
    a = Grid.from_bounds((1003.0, 2001.0, 9000.0, 8000.0), 500.0)
    b = Grid.from_bounds((4321.0, 100.0, 20000.0, 5000.0), 500.0)
    assert (a.west - b.west) % 500 == 0
    assert (a.north - b.north) % 500 == 0


def test_row_zero_is_north():
    grid = Grid.from_bounds((0, 0, 30, 20), 10)
    assert grid.northings[0] > grid.northings[-1]
    assert grid.eastings[0] < grid.eastings[-1]
    assert grid.cell_of(np.array([1.0]), np.array([19.0]))[0][0] == 0
    u, v = grid.to_cells(np.array([10.0]), np.array([20.0]))
    assert (u[0], v[0]) == (1.0, 0.0)
    np.testing.assert_allclose(grid.from_cells(u, v), [[10.0], [20.0]])


def test_points_outside_and_on_the_edge():
    grid = Grid.from_bounds((0, 0, 30, 20), 10)
    easting = np.array([30.0, 30.1, -0.1, 5.0, np.nan])
    northing = np.array([0.0, 5.0, 5.0, 20.1, 5.0])
    rows, cols, inside = grid.cell_of(easting, northing)
    assert inside.tolist() == [True, False, False, False, False]
    assert (rows[0], cols[0]) == (1, 2)


def test_frozen_and_hashable():
    a = Grid.from_bounds((0, 0, 30, 20), 10)
    assert a == Grid.from_bounds((0, 0, 30, 20), 10)
    assert hash(a) == hash(Grid.from_bounds((0, 0, 30, 20), 10))
    assert a != Grid.from_bounds((0, 0, 30, 20), 5)
    with pytest.raises(AttributeError):
        a.shape = (1, 1)


def test_refusals_have_numbers_and_remedies():
    with pytest.raises(SizeError, match=r"1,000,000,000,000 cells.*limit is 50,000,000.*cell_size >= 143") as error:
        Grid.from_bounds((0, 0, 1e6, 1e6), 1.0)
    fits = float(str(error.value).rsplit(">=", 1)[1].rstrip(". "))
    assert Grid.from_bounds((0, 0, 1e6, 1e6), fits).n_cells <= MAX_CELLS
    with pytest.raises(DomainError, match="cell_size must be a positive number; found -5"):
        Grid.from_bounds((0, 0, 10, 10), -5)
    with pytest.raises(DomainError, match="bounds must be finite numbers"):
        Grid.from_bounds((0, 0, np.inf, 10), 1)
    with pytest.raises(DomainError, match="north-up"):
        Grid((2, 2), Affine(1, 0, 0, 0, 1, 0))
    with pytest.raises(DomainError, match="at least one row"):
        Grid((0, 2), Affine(1, 0, 0, 0, -1, 0))
