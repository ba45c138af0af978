from __future__ import annotations

import numpy as np
import pyproj
import pytest

from geobgp.land.reproject import project, transform_pixels


def test_interpolated_coordinates_are_within_the_tolerance():
    to_laea = pyproj.Transformer.from_crs(4326, 3035, always_xy=True)

    def where(col, row):
        return project(to_laea, 5 + col * 0.01, 60 - row * 0.01)

    rows, cols = np.arange(700) + 0.5, np.arange(900) + 0.5
    x, y = transform_pixels(where, rows, cols, tolerance=5.0)
    exact = where(*np.meshgrid(cols, rows))
    assert np.hypot(x - exact[0], y - exact[1]).max() < 10.0
    # A pixel is about 600 m: this was interpolated, not exact.
    assert np.hypot(x - exact[0], y - exact[1]).max() > 0


def test_what_cannot_be_interpolated_is_exact():
    def jump(col, row):
        return np.where(col > 333.3, 1e6, 0.0) + col, row

    rows, cols = np.arange(500.0), np.arange(500.0)
    x, _ = transform_pixels(jump, rows, cols, tolerance=0.5)
    np.testing.assert_array_equal(x, jump(*np.meshgrid(cols, rows))[0])


@pytest.mark.parametrize("n", [1, 2, 5])
def test_project_keeps_shapes_and_hides_what_has_no_answer(n):
    to_utm = pyproj.Transformer.from_crs(4326, 32631, always_xy=True)
    x, y = project(to_utm, np.full((n, 1), 3.0), np.full((n, 1), 52.0))
    assert x.shape == y.shape == (n, 1)
    np.testing.assert_allclose(x, 500_000, atol=1e-3)
    assert np.isnan(project(to_utm, np.full(n, np.inf), np.full(n, 52.0))[0]).all()
    lon, lat = project(to_utm, x, y, inverse=True)
    np.testing.assert_allclose([lon[0, 0], lat[0, 0]], [3, 52])
