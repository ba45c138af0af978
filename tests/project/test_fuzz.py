"""Anything may come in: the outcome is a map whose points add up, or an error of ours.

A few dozen cases, always the same ones, unless GEOBGP_FUZZ says how many others to try:
``GEOBGP_FUZZ=2000 python -m pytest tests/project/test_fuzz.py``. What fails there becomes an example here.
"""

from __future__ import annotations

import math
import os
import warnings

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest
import shapely
from hypothesis import HealthCheck, event, given, note, settings
from hypothesis import strategies as st

from geobgp import GeobgpError, GeobgpWarning, Matern, Posterior, SquaredExponential, map_intensity

CASES = int(os.environ.get("GEOBGP_FUZZ", "0"))
ODD = [math.nan, math.inf, -math.inf, 0.0, -1.0, 1e-9, 1e300, 5.0]
WEST, SOUTH = 600_000.0, 5_800_000.0

coordinate = st.integers(0, 19).flatmap(lambda k: st.sampled_from(ODD) if k == 0 else st.floats(-0.5, 10.5))
pair = st.tuples(coordinate, coordinate)


def boxes(low: float, high: float) -> st.SearchStrategy[shapely.Geometry]:
    sides = st.tuples(*[st.floats(low, high)] * 4)
    return sides.map(lambda s: shapely.box(min(s[0], s[1]), min(s[2], s[3]), max(s[0], s[1]), max(s[2], s[3])))


with np.errstate(invalid="ignore"):
    BROKEN = shapely.Polygon([(0, 0), (9, 0), (9, 9), (math.nan, 9)])
shapes = st.one_of(
    boxes(0, 10),
    st.just(shapely.box(0, 0, 10, 10)),
    st.just(shapely.Polygon()),
    st.just(None),
    st.just(shapely.Polygon([(0, 0), (10, 10), (10, 0), (0, 10)])),  # a bow tie
    st.just(shapely.LineString([(0, 0), (10, 10)])),
    st.lists(st.tuples(st.floats(0, 10), st.floats(0, 10)), min_size=4, max_size=9).map(shapely.Polygon),
    st.just(BROKEN),
    boxes(0, 10).map(lambda b: shapely.Point(5, 5).buffer(5).difference(b)),
)
land_shapes = st.one_of(
    st.just([shapely.box(0, 0, 10, 10)]),
    st.just([shapely.Point(5, 5).buffer(5), shapely.box(8, 8, 10, 10)]),
    st.lists(shapes, min_size=1, max_size=3),
)


@st.composite
def frames(draw, parts, crs):
    """Shapes on the plane of the case: as they are, in metres, or in degrees."""
    found = gpd.GeoSeries(draw(parts))
    if crs is None:
        return found
    moved = shapely.transform(
        np.array(found.to_numpy(), dtype=object), lambda xy: xy * 1000.0 + [WEST, SOUTH], include_z=False
    )
    placed = gpd.GeoSeries(moved, crs=32631)
    return placed if crs == 32631 else placed.to_crs(crs)


@st.composite
def tables(draw, crs):
    """Points as people have them, with the number of rows and of points that can be read."""
    rows = draw(st.lists(st.one_of(pair, st.just((5.0, 5.0))), max_size=30)) + draw(
        st.sampled_from([[], [(5.0, 5.0)] * 12])
    )
    xy = np.array(rows, float).reshape(-1, 2)
    if crs is not None:
        xy = xy * 1000.0 + [WEST, SOUTH]
    fine = int(np.isfinite(xy).all(axis=1).sum())
    kind = draw(st.sampled_from(["array", "table", "words", "shapes"]))
    if kind == "array" or len(xy) == 0:
        return xy, len(xy), fine
    if kind == "shapes":
        points = np.array([None if not np.isfinite(p).all() else shapely.Point(p) for p in xy], dtype=object)
        return gpd.GeoDataFrame({"w": np.ones(len(xy))}, geometry=points, crs=crs and 32631), len(xy), fine
    table = pd.DataFrame({"easting": xy[:, 0], "northing": xy[:, 1], "w": draw(st.sampled_from([1.0, 0.0, 2.5, -1.0]))})
    if kind == "words":
        table = table.astype(object)
        table.iloc[0, 0] = draw(st.sampled_from(["ten", "", None]))
        return table, len(xy), fine - int(np.isfinite(xy[0]).all())
    return table, len(xy), fine


def mostly(right, *wrong):
    """Values that can be, and now and then one that cannot."""
    return st.integers(0, 19).flatmap(lambda k: st.sampled_from(wrong) if k == 0 and wrong else right)


@st.composite
def parse_options(draw, **more):
    """A few of many options."""
    names = draw(st.lists(st.sampled_from(sorted(more)), max_size=4, unique=True))
    return {name: draw(more[name]) for name in names}


number = mostly(st.floats(0.05, 4), *ODD)
options = parse_options(
    m=mostly(st.sampled_from(["auto", "full", 1, 4, 12]), 10_000, 0, "many"),
    boundary=mostly(st.sampled_from(["neumann", "dirichlet"]), "robin"),
    permeability=mostly(st.one_of(st.just("auto"), st.floats(0, 1)), *ODD),
    likelihood=st.sampled_from(["poisson", "negative-binomial"]),
    hyper=st.sampled_from(["map", "integrate"]),
    kernel=st.sampled_from([Matern(1.0), Matern(2.0), Matern(0.5, lengthscale=3.0), SquaredExponential(sd=0.2)]),
    on_water=st.sampled_from(["nearest", "drop", "error"]),
    max_snap=number,
    min_coverage=mostly(st.sampled_from([0.0, 0.02, 0.5]), 0.999, 1.0),
    weights=mostly(st.just("w"), "nothing", [1.0]),
    chunksize=st.sampled_from([1, 3, 1000]),
    exposure=st.sampled_from(["ones", "zeros", "few", "nan", "polygons"]),
    covariates=mostly(st.just("east"), "constant", "nan", "infinite"),
    units=mostly(st.sampled_from(["per ha", ""]), "per 100,000", "relative risk"),
    title=st.text(max_size=8),
)  # fmt: skip


def filled(told, crs):
    """Return options with the data that their words stand for."""
    told = dict(told)
    n = 25
    arrays = {"ones": np.ones(n), "zeros": np.zeros(n), "few": np.ones(3), "nan": np.full(n, np.nan)}
    if told.get("exposure") == "polygons":
        shape = shapely.box(0, 0, 7, 7)
        moved = shape if crs is None else shapely.transform(shape, lambda xy: xy * 1000.0 + [WEST, SOUTH])
        told["exposure"] = gpd.GeoDataFrame({"population": [100.0]}, geometry=[moved], crs=crs and 32631)
    elif "exposure" in told:
        told["exposure"] = arrays[told["exposure"]]
    functions = {
        "east": lambda xy: xy[:, 0], "constant": lambda xy: np.ones(len(xy)),
        "nan": lambda xy: np.where(xy[:, 0] > xy[:, 0].mean(), np.nan, xy[:, 1]),
        "infinite": lambda xy: np.full(len(xy), np.inf),
    }  # fmt: skip
    if "covariates" in told:
        told["covariates"] = {"x": functions[told["covariates"]]}
    return told


@settings(
    max_examples=CASES or 60,
    derandomize=not CASES,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(st.data())
def test_a_map_adds_up_or_an_error_says_why(data):
    crs = data.draw(st.sampled_from([None, 32631, 4326]), label="crs")
    land = data.draw(frames(land_shapes, crs), label="land")
    points, rows, readable = data.draw(tables(crs), label="points")
    water = data.draw(st.one_of(st.none(), frames(st.lists(shapes, max_size=2), crs)), label="water")
    told = filled(data.draw(options, label="options"), crs)
    if crs is None:
        told["crs"] = "local"
    size = data.draw(mostly(st.sampled_from([2.0, 1.0, 0.7]), 30.0, -1.0, math.nan), label="cell size")
    told["cell_size"] = size if crs is None else 1000.0 * size
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GeobgpWarning)
        try:
            made = map_intensity(points, land, water=water, max_seconds=0.0, cache=False, **told)
        except GeobgpError as error:
            note(f"{type(error).__name__}: {error}")
            event(f"refused: {error.option}")
            assert str(error).strip() and "\x02" not in str(error)
            return
    event("a map")
    adds_up(made, rows, readable)


def adds_up(made: Posterior, rows: int, readable: int) -> None:
    """Every row is used (as it lies, or moved), dropped, or has no point; and all numbers are numbers."""
    counted = made.points
    assert counted["used"] + counted["dropped"] == readable
    assert counted.get("missing", 0) == rows - readable
    assert 0 <= counted.get("snapped", 0) <= counted["used"]
    weight = counted.get("total_weight", counted["used"])
    assert made.observed.sum() == pytest.approx(weight)
    table = made.node_intensity()
    assert np.isfinite(table["q50"]).all() and (table["q50"] >= 0).all()
    assert (table["q05"] <= table["q95"]).all()
    assert made.domain.node_areas.min() > 0
