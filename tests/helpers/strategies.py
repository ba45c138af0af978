"""Hypothesis strategies: polygons, points and rivers."""

import numpy as np
import shapely
from hypothesis import assume
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

unit = st.floats(0.0, 1.0, allow_nan=False, width=32)


@st.composite
def star_polygons(draw, radius=4.0, centre=(0.0, 0.0), vertices=(3, 14)):
    """Draw a valid polygon that is star-shaped around its centre, with spikes and bays."""
    n = draw(st.integers(*vertices))
    gaps = np.array(draw(st.lists(st.floats(0.2, 1.0), min_size=n, max_size=n)))
    angles = np.cumsum(gaps) / gaps.sum() * 2 * np.pi + draw(st.floats(0, 2 * np.pi))
    reach = radius * np.array(draw(st.lists(st.floats(0.25, 1.0), min_size=n, max_size=n)))
    polygon = shapely.Polygon(np.c_[centre[0] + reach * np.cos(angles), centre[1] + reach * np.sin(angles)])
    return polygon if polygon.is_valid else polygon.convex_hull


@st.composite
def messy_polygons(draw, size=4.0):
    """Draw a polygon from any vertices at all: bow ties, spikes and repeated vertices included."""
    n = draw(st.integers(4, 10))
    steps = draw(hnp.arrays(np.int64, (n, 2), elements=st.integers(0, 8)))
    return shapely.Polygon(steps * (size / 8))


@st.composite
def island_groups(draw, n_max=4):
    """Draw land of a few star-shaped islands that may overlap; a sliver alone is no land."""
    n = draw(st.integers(1, n_max))
    centres = [(draw(st.floats(-6, 6)), draw(st.floats(-6, 6))) for _ in range(n)]
    land = shapely.union_all([draw(star_polygons(radius=3.0, centre=c)) for c in centres])
    assume(land.area > 0.5)
    return land


@st.composite
def coordinates(draw, low=-8.0, high=8.0, n_max=60):
    """Draw (k, 2) coordinates."""
    n = draw(st.integers(0, n_max))
    return draw(hnp.arrays(np.float64, (n, 2), elements=st.floats(low, high, width=32)))


@st.composite
def point_geometries(draw, n_max=30):
    """Draw an object array of points, multi-points, empty points and gaps, and the number of points in it."""
    geoms, n_points = [], 0
    for kind in draw(st.lists(st.sampled_from(["point", "point", "point", "multi", "empty", "none"]), max_size=n_max)):
        if kind == "point":
            geoms.append(shapely.Point(draw(st.tuples(unit, unit))))
            n_points += 1
        elif kind == "multi":
            places = draw(st.lists(st.tuples(unit, unit), min_size=1, max_size=4))
            geoms.append(shapely.MultiPoint(places))
            n_points += len(places)
        else:
            geoms.append(shapely.Point() if kind == "empty" else None)
    out = np.empty(len(geoms), object)
    out[:] = geoms
    return out, n_points
