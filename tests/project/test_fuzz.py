"""Anything may come in: the outcome is a map whose points add up, or an error of ours.

A few dozen cases, always the same ones, unless GEOBGP_FUZZ says how many others to try:
``GEOBGP_FUZZ=2000 python -m pytest tests/project/test_fuzz.py``. What fails there becomes an example here.
"""

from __future__ import annotations

import math
import os
import warnings
from itertools import pairwise

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest
import shapely
from hypothesis import HealthCheck, event, given, note, settings
from hypothesis import strategies as st

from geobgp import (
    Domain,
    GeobgpError,
    GeobgpWarning,
    Matern,
    Periods,
    Posterior,
    SquaredExponential,
    bin_areas,
    bin_places,
    bin_points,
    map_intensity,
)
from geobgp.data.delays import read_reports
from geobgp.data.inputs import Inputs
from geobgp.data.measurements import positives_of, read_measurements, values_of
from geobgp.data.persons import place_persons, split_status

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


# -- The observation layer by itself: laws of what is read, counted, spread and left out -----------------------

LAND = Domain.from_polygons(
    shapely.box(0, 0, 8, 6).difference(shapely.box(5.2, 2.3, 6.4, 3.1)), cell_size=1, crs="local"
)
MONTHS = [f"2020-{month:02d}" for month in range(1, 7)]
law = settings(
    max_examples=CASES or 40,
    derandomize=not CASES,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
dates = st.integers(0, 11).flatmap(
    lambda k: st.sampled_from([None, "", "no date", "2019-12", "2020-13", math.nan] if k == 0 else MONTHS)
)
amounts = st.integers(0, 9).flatmap(lambda k: st.sampled_from([0.0, 1e-12, 1e12]) if k == 0 else st.floats(0, 50))
numbers = st.integers(0, 30)


def tried(use):
    """Return what a function returns, or None where it says in an error of ours why not."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GeobgpWarning)
        try:
            return use()
        except GeobgpError as error:
            note(f"{type(error).__name__}: {error}")
            event(f"refused: {error.option}")
            assert str(error).strip() and "\x02" not in str(error)
            return None


@st.composite
def districts(draw, least=1):
    """Rectangles side by side, which may reach beyond the land or leave some of it out."""
    cuts = st.lists(st.sampled_from([0.0, 1.0, 1.5, 3.3, 4.0, 5.5, 6.0, 7.7, 8.0]), min_size=3, max_size=4, unique=True)
    xs, ys = (sorted(draw(cuts)) for _ in range(2))
    xs = [-2.0, *xs[1:]] if draw(st.booleans()) else xs
    return [shapely.box(a, c, b, d) for a, b in pairwise(xs) for c, d in pairwise(ys)][: max(least, 9)]


def shuffled(draw, table):
    """Return a table with its rows in another order, and its index as it was."""
    return table.iloc[draw(st.permutations(range(len(table))))]


@law
@given(st.data())
def test_points_are_counted_once_or_said_to_be_left_out(data):
    n = data.draw(st.integers(0, 25), label="rows")
    places = data.draw(st.lists(pair, min_size=n, max_size=n), label="places")
    table = pd.DataFrame(places, columns=["easting", "northing"]).astype(float)
    table["w"] = data.draw(st.lists(amounts, min_size=n, max_size=n), label="weights")
    table["when"] = data.draw(st.lists(dates, min_size=n, max_size=n), label="dates")
    how = {
        "on_water": data.draw(st.sampled_from(["nearest", "drop"])),
        "weights": data.draw(st.sampled_from([None, "w"])),
    }
    if data.draw(st.booleans(), label="dated"):
        how |= {"time": "when", "every": Periods.calendar("month", "2020-01", "2020-06")}
    counts = tried(lambda: bin_points(table, LAND, **how))
    if counts is None:
        return
    assert counts.n_read == counts.n_used + counts.n_dropped + counts.n_untimed + counts.n_outside
    assert counts.n_read + counts.n_missing == n
    assert np.sum(counts.values) == pytest.approx(counts.total_weight) and (counts.values >= 0).all()
    turned = tried(lambda: bin_points(shuffled(data.draw, table), LAND, **how | {"chunksize": 4}))
    np.testing.assert_allclose(turned.values, counts.values, rtol=1e-9)
    first = data.draw(st.integers(0, n), label="first part")
    parts = [tried(lambda t=t: bin_points(t, LAND, **how)) for t in (table[:first], table[first:])]
    if all(part is not None for part in parts):
        np.testing.assert_allclose(sum(part.values for part in parts), counts.values, rtol=1e-9, atol=1e-9)
        assert sum(part.n_dropped + part.n_missing for part in parts) == counts.n_dropped + counts.n_missing
    if counts.periods is not None:  # quarters are sums of months
        quarters = {"every": Periods.calendar("quarter", "2020-Q1", "2020-Q2")}
        merged = tried(lambda: bin_points(table, LAND, **how | quarters))
        np.testing.assert_allclose(merged.values, counts.values.reshape(2, 3, -1).sum(axis=1), rtol=1e-9, atol=1e-9)
    if not how["weights"]:
        weighted = tried(lambda: bin_points(table.assign(w=2.5), LAND, **how | {"weights": "w"}))
        np.testing.assert_allclose(weighted.values, 2.5 * counts.values)


@law
@given(st.data())
def test_numbers_of_areas_add_up_whatever_their_rows(data):
    shapes = data.draw(districts(), label="areas")
    k, dated = len(shapes), data.draw(st.booleans(), label="dated")
    suppressed = data.draw(st.sampled_from([None, (1, 4), (0, 2)]))
    rows = [(area, month) for area in range(k) for month in (MONTHS if dated else [""])]
    frame = gpd.GeoDataFrame(
        {"n": pd.Series([data.draw(numbers) for _ in rows], dtype=object), "when": [month for _, month in rows]},
        geometry=[shapes[area] for area, _ in rows],
    )
    for row in data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=3), label="suppressed rows"):
        frame.loc[row, "n"] = data.draw(st.sampled_from([None, "*", "<5", "x", -1, "1,234", math.inf]))
    odd = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=2), label="odd dates")
    frame.loc[odd, "when"] = data.draw(dates)
    again = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=1), label="twice")
    frame = pd.concat([frame, frame.iloc[again]], ignore_index=True)
    how = {"suppressed": suppressed}
    if dated:
        how |= {"time": "when", "every": Periods.calendar("month", "2020-01", "2020-06")}
        how |= {"absent": data.draw(st.sampled_from(["zero", "unknown"]))}
    areas = tried(lambda: bin_areas(frame, LAND, "n", **how))
    if areas is None:
        return
    there = frame["n"].map(lambda v: float(v) if isinstance(v, int) else math.nan)
    used = there[frame["when"].isin(MONTHS)] if dated else there
    touched = frame.geometry.intersects(LAND.geometry.buffer(-1e-9))
    assert there[~touched].fillna(0).sum() == 0  # events without land are refused
    assert np.nansum(areas.values) == pytest.approx(used.sum())
    assert areas.n_untimed + areas.n_outside == (len(frame) - len(used) if dated else 0)
    assert areas.shares.min() >= 0 and areas.shares.sum(axis=0).max() <= 1 + 1e-9
    turned = tried(lambda: bin_areas(shuffled(data.draw, frame), LAND, "n", **how))
    order = [turned.geometry.tolist().index(shape) for shape in areas.geometry]
    np.testing.assert_array_equal(turned.values[..., order], areas.values)
    np.testing.assert_allclose(turned.shares.toarray()[order], areas.shares.toarray())
    if dated and not np.isnan(areas.values).any():
        quarters = {"every": Periods.calendar("quarter", "2020-Q1", "2020-Q2")}
        merged = tried(lambda: bin_areas(frame, LAND, "n", **how | quarters))
        assert merged is None or np.allclose(merged.values, areas.values.reshape(2, 3, -1).sum(axis=1))
    if not dated:  # two halves of a district hold what it holds
        west, south, east, north = shapes[0].bounds
        middle = 0.5 * (west + east)
        halves = gpd.GeoDataFrame(
            {"n": [0, frame["n"][0]]},
            geometry=[shapely.box(west, south, middle, north), shapely.box(middle, south, east, north)],
        )
        parts = tried(lambda: bin_areas(pd.concat([halves, frame.iloc[1:]], ignore_index=True), LAND, "n", **how))
        if parts is not None and areas.geometry[0] == shapes[0]:
            assert np.nansum(parts.values) == pytest.approx(np.nansum(areas.values))
            both = parts.shares.toarray()[: parts.n_areas - areas.n_areas + 1].sum(axis=0)
            np.testing.assert_allclose(both, areas.shares.toarray()[0], atol=1e-9)


@law
@given(st.data())
def test_people_are_neither_lost_nor_made(data):
    shapes = data.draw(districts(), label="areas")
    people = np.array([data.draw(amounts) for _ in shapes])
    frame = gpd.GeoDataFrame({"population": people, "name": [f"d{k}" for k in range(len(shapes))]}, geometry=shapes)
    read = tried(lambda: Inputs.read(LAND, exposure=frame))
    if read is None:
        return
    dry = LAND.geometry
    kept = [shape.intersection(dry).area / shape.area for shape in shapes]
    assert read.exposure.sum() == pytest.approx(people @ kept, rel=1e-9, abs=1e-9)
    for factor in (1000.0, 1e-6):
        scaled = tried(lambda f=factor: Inputs.read(LAND, exposure=frame.assign(population=f * people)))
        np.testing.assert_allclose(scaled.exposure, factor * read.exposure, rtol=1e-9)
    turned = tried(lambda: Inputs.read(LAND, exposure=shuffled(data.draw, frame)))
    np.testing.assert_allclose(turned.exposure, read.exposure, rtol=1e-9, atol=1e-12)
    west, south, east, north = shapes[0].bounds
    at = west + data.draw(st.floats(0.1, 0.9)) * (east - west)
    parts = [shapely.box(west, south, at, north), shapely.box(at, south, east, north)]
    split = gpd.GeoDataFrame(
        {"population": [people[0] * part.area / shapes[0].area for part in parts], "name": ["a", "b"]}, geometry=parts
    )
    halves = tried(lambda: Inputs.read(LAND, exposure=pd.concat([split, frame.iloc[1:]], ignore_index=True)))
    np.testing.assert_allclose(halves.exposure, read.exposure, rtol=1e-6, atol=1e-9)
    counted = tried(lambda: bin_areas(frame.assign(n=1), LAND, "n"))
    if counted is not None:  # what lies in areas that share out the people is all of them
        cut = counted._exposing(LAND, read.given, None, None).within
        of_areas = np.asarray(cut.exposure(read.exposure).sum(axis=1)).ravel()
        assert of_areas.sum() == pytest.approx(read.exposure.sum(), rel=1e-6, abs=1e-9)
    dated = pd.concat([frame.assign(when=month, population=people * k) for k, month in enumerate(MONTHS, 1)])
    months = {"time": "when", "periods": Periods.calendar("month", "2020-01", "2020-06")}
    moving = tried(lambda: Inputs.read(LAND, exposure=shuffled(data.draw, dated), **months))
    np.testing.assert_allclose(moving.exposure, np.outer(range(1, 7), read.exposure), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(moving.pooled().exposure, 21 * read.exposure, rtol=1e-9, atol=1e-12)


@law
@given(st.data())
def test_rows_of_tables_are_used_or_said_not_to_be(data):
    """Surveys, values, persons, keys of places, late reports: what goes in comes out, in any order."""
    n = data.draw(st.integers(1, 25), label="rows")
    drawn = lambda *values: data.draw(st.lists(st.sampled_from(values), min_size=n, max_size=n))  # noqa: E731
    at = np.array(data.draw(st.lists(pair, min_size=n, max_size=n)), float).reshape(-1, 2)
    table = pd.DataFrame(
        {
            "easting": at[:, 0], "northing": at[:, 1],
            "positive": drawn(0, 1, 2, 3, None), "tested": drawn(0, 3, 9, None),
            "value": drawn(-1.5, 0.0, 2.0, 7.25, None, "<2"), "key": drawn("A", "B", "a", "Z", None, ""),
            "status": drawn("case", "control"), "when": drawn(*MONTHS), "told": drawn(*MONTHS, None),
        }
    )  # fmt: skip
    order = shuffled(data.draw, table)
    surveys = tried(lambda: positives_of(table, "positive", "tested"))
    if surveys is not None:
        positive, tested, unused = surveys
        assert np.isfinite(positive).sum() + sum(unused.values()) == n
        assert np.nansum(tested) == table["tested"].where(table["positive"].notna()).sum()
        np.testing.assert_array_equal(positives_of(order, "positive", "tested")[0], positive[order.index])
    values = tried(lambda: values_of(table, "value"))
    if values is not None:
        assert np.isfinite(values[0]).sum() + sum(values[1].values()) == n
        if surveys is not None:
            read = tried(lambda: read_measurements(table, LAND, "samples", values[0], None, values[1], on_water="drop"))
            if read is not None:
                inside = np.isfinite(values[0]) & (LAND.node_at(np.nan_to_num(at, nan=-9.0)) >= 0)
                assert len(read.values) == inside.sum() and read.values.sum() == pytest.approx(values[0][inside].sum())
    persons = tried(lambda: split_status(table, "status"))
    if persons is not None:
        assert len(persons["cases"]) + len(persons["controls"]) == n
        for what, some in persons.items():
            placed = tried(lambda s=some, w=what: place_persons(s, LAND, w))
            if placed is not None:
                assert len(placed.node) + placed.counts.n_dropped + placed.counts.n_missing == len(some)
    keyed = gpd.GeoDataFrame({"key": ["A", "B", "C"]}, geometry=[shapely.box(3 * k, 0, 3 * k + 3, 6) for k in range(3)])
    areas = tried(lambda: bin_places(table, LAND, keyed, key="key", on_water="drop"))
    if areas is not None:
        assert areas.values.sum() + sum(areas.lost.values()) == n
        turned = tried(lambda: bin_places(order, LAND, keyed, key="key", on_water="drop"))
        np.testing.assert_array_equal(turned.values, areas.values)
    reports = tried(lambda: read_reports(table, time="when", reported="told", every="month", as_of="2020-04"))
    if reports is not None:
        assert len(reports.table) <= n
        later = table["told"].notna() & (table["told"] > "2020-04")
        assert not set(reports.table.index) & set(table.index[later]) or len(reports.table) == (~later).sum()
