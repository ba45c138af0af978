"""Effort at the nodes: from rasters, polygons and arrays, and what is refused."""

from __future__ import annotations

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st
from reading import node_effort

from geobgp import LGCP, DataError, Domain, HarmonicBasis, Matern, Periods, bin_areas
from geobgp.data.inputs import Inputs, about_effort, check_events, seen_exposure, unseen_share
from geobgp.errors import InputWarning
from geobgp.output.grids import dataset


@pytest.fixture(scope="module")
def domain():
    return Domain.from_polygons(shapely.box(0, 0, 10_000, 4000), cell_size=500, crs=32631)


def halves(west: float, east: float, at: float = 5000.0) -> gpd.GeoDataFrame:
    shapes = [shapely.box(0, 0, at, 4000), shapely.box(at, 0, 10_000, 4000)]
    return gpd.GeoDataFrame({"effort": [west, east], "id": [1, 2]}, geometry=shapes, crs=32631)


def test_without_effort_all_events_are_reported(domain):
    assert node_effort(None, domain) is None
    exposure = np.arange(3.0)
    assert seen_exposure(exposure, None) is exposure
    np.testing.assert_array_equal(seen_exposure(exposure, np.full(3, 0.5)), [0.0, 0.5, 1.0])


def test_polygons_are_averaged_by_area_in_any_crs(domain, tmp_path):
    found = node_effort(halves(1.0, 0.2, 5125.0), domain)
    east = domain.node_points[:, 0]
    np.testing.assert_allclose(found[east < 5000], 1.0)
    np.testing.assert_allclose(found[east > 5500], 0.2)
    np.testing.assert_allclose(found[(east > 5000) & (east < 5500)], 0.25 + 0.75 * 0.2)
    path = tmp_path / "effort.gpkg"
    halves(1.0, 0.2, 5125.0).to_crs(4326).to_file(path)
    np.testing.assert_allclose(node_effort(path, domain, "effort"), found, atol=1e-3)


def test_a_raster_is_averaged_not_summed(domain):
    fine = Domain.from_polygons(domain.geometry, cell_size=250, crs=32631)
    values = np.clip(fine.node_points[:, 0] / 10_000, 0.0, 1.0)
    raster = dataset(fine, {"effort": values})["effort"]
    np.testing.assert_allclose(node_effort(raster, domain), domain.node_points[:, 0] / 10_000, atol=1e-6)


@pytest.mark.parametrize(
    ("values", "found", "said"),
    [([40.0, 100.0], 2, "divide it by 100"), ([0.5, 255.0], 1, "declare it"), ([-0.1, 1.0], 1, "from -0.1 to 1")],
)
def test_what_is_no_share_is_refused_with_its_number(domain, values, found, said):
    with pytest.raises(DataError, match="from 0 to 1") as raised:
        node_effort(halves(*values), domain)
    assert raised.value.option == "effort" and raised.value.found == found
    assert said in str(raised.value)
    with pytest.raises(DataError, match=rf"of {domain.n_nodes:,} nodes"):
        node_effort(np.where(domain.node_points[:, 0] < 5000, *values), domain)


def test_slivers_are_filled_and_more_is_an_error(domain):
    effort = np.full(domain.n_nodes, 0.5)
    effort[0] = np.nan
    with pytest.warns(InputWarning, match="effort has no value at 1 of"):
        np.testing.assert_array_equal(node_effort(effort, domain), 0.5)
    effort[:20] = np.nan
    with pytest.raises(DataError, match="0 where nobody looked") as raised:
        node_effort(effort, domain)
    assert raised.value.option == "effort" and raised.value.found == 20
    with pytest.raises(DataError, match="has no value at 80 of 160"):
        node_effort(halves(0.5, np.nan), domain)


def test_no_effort_anywhere_other_shapes_and_columns_are_refused(domain):
    with pytest.raises(DataError, match="zero everywhere"):
        node_effort(np.zeros(domain.n_nodes), domain)
    with pytest.raises(DataError, match=r"one share per node, 160; found the shape \(3,\)"):
        node_effort(np.ones(3), domain)
    with pytest.raises(DataError, match="Which column") as raised:
        node_effort(halves(1, 1).rename(columns={"effort": "share"}), domain)
    assert raised.value.option == "effort_column"
    named = halves(1.0, 0.5).assign(share=["much", "little"])
    with pytest.raises(DataError, match="cannot be read as a number"):
        node_effort(named, domain, "share")
    with pytest.raises(DataError, match="there is no column 'reports'"):
        node_effort(named, domain, "reports")
    with pytest.raises(DataError, match="belongs to polygons"):
        node_effort(None, domain, "effort")


def test_events_where_nobody_looks_are_counted(domain):
    effort, exposure = np.ones(domain.n_nodes), np.ones(domain.n_nodes)
    effort[:3] = 0.0
    located = np.zeros(domain.n_nodes)
    located[[0, 1, 9]] = [2.0, 1.0, 4.0]
    with pytest.raises(DataError, match=r"3 of 7 events lie where the effort is zero \(on 2 nodes\)") as raised:
        check_events(located, None, exposure, effort)
    assert raised.value.found == 3.0
    check_events(located, None, exposure, None)
    areas = bin_areas(halves(0, 0).assign(name=["west", "east"], cases=[4, 5]), domain, "cases")
    dark = np.where(domain.node_points[:, 0] < 5000, 0.0, 1.0)
    with pytest.raises(DataError, match="The area 'west' has events but no effort"):
        check_events(None, areas, exposure, dark)
    check_events(None, areas, exposure, np.maximum(dark, 0.01))


def test_where_the_data_say_nothing_is_told(domain):
    dark = np.where(domain.node_points[:, 0] < 2500, 0.0, 0.8)
    assert unseen_share(dark, domain) == pytest.approx(0.25, abs=1e-3)
    told = about_effort(dark, domain)
    assert f"On {domain.node_areas[dark == 0].sum() / 1e6:.4g} km²" in told
    assert "(25 % of the land)" in told and "say nothing" in told
    assert "nothing" not in about_effort(np.maximum(dark, 0.1), domain)


@pytest.fixture(scope="module")
def years():
    return Periods.calendar("year", 2019, 2021)


def test_effort_by_period_is_read_like_an_exposure(domain, years, tmp_path):
    """A table, a list, a mapping by label, files, and polygons with a row for each period say the same."""
    east = domain.node_points[:, 0] > 5000
    levels = [(1.0, 0.5), (0.8, 0.5), (0.0, 0.25)]
    rows = np.array([np.where(east, e, w) for w, e in levels])
    frames = [halves(w, e, 5000.0) for w, e in levels]
    paths = [tmp_path / f"{k}.gpkg" for k in range(3)]
    for frame, path in zip(frames, paths, strict=True):
        frame.to_file(path)
    long = pd.concat([frame.assign(year=label) for frame, label in zip(frames, years.labels, strict=True)])
    by_label = dict(zip(reversed(years.labels), reversed(frames), strict=True))
    for column, source in (
        (None, rows), (None, list(rows)), ("effort", frames), ("effort", by_label), ("effort", paths),
        ("effort", long.sample(frac=1.0, random_state=0)),
    ):  # fmt: skip
        found = node_effort(source, domain, column, time="year", periods=years)
        np.testing.assert_allclose(found, rows, atol=1e-9)
    still = node_effort(frames[1], domain, time="year", periods=years)
    np.testing.assert_allclose(still, rows[1])
    with pytest.raises(DataError, match="effort is given for 2 periods; there are 3 years"):
        node_effort(rows[:2], domain, time="year", periods=years)
    with pytest.raises(DataError, match="no row for 1 period of 3: '2021'"):
        node_effort(long.iloc[:4], domain, "effort", time="year", periods=years)
    with pytest.raises(DataError, match="1 of 7 rows of the effort are of an area and a period that another"):
        node_effort(pd.concat([long, long.iloc[:1]]), domain, "effort", time="year", periods=years)
    with pytest.raises(DataError, match=r"effort is given for 3 periods, and a map without .* has none"):
        node_effort(rows, domain, time=None)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_pooled_inputs_conserve_what_is_seen(seed):
    rng = np.random.default_rng(seed)
    domain = Domain.from_polygons(shapely.box(0, 0, 4, 2), cell_size=1, crs="local")
    exposure = rng.gamma(1.0, 5.0, (3, 8)) if rng.random() < 0.7 else rng.gamma(1.0, 5.0, 8)
    inputs = Inputs.read(domain, exposure=exposure, effort=rng.uniform(0.0, 1.0, (3, 8)))
    pooled, each = inputs.pooled(), [inputs.at(t).seen for t in range(3)]
    share = 1.0 if exposure.ndim == 2 else 3.0
    np.testing.assert_allclose(share * pooled.seen, np.sum(each, axis=0))
    assert pooled.n_periods is None and inputs.n_periods == 3


def test_a_fit_sees_the_effort_of_each_period(domain, years):
    """Exposure and effort meet in the likelihood only: the same fit as of their product, told with full effort."""
    rng = np.random.default_rng(1)
    rows = rng.uniform(0.2, 1.0, (3, domain.n_nodes))
    counts = rng.poisson(3.0 * rows)
    basis = HarmonicBasis.compute(domain, m=9, cache=False)
    kernel = Matern(1.5, lengthscale=8000.0, sd=0.4)
    people = np.full(domain.n_nodes, 3.0)
    told = {"dynamics": "separable"}
    by_effort = LGCP(basis, kernel, exposure=people, effort=rows, **told).fit(counts, periods=years)
    by_product = LGCP(basis, kernel, exposure=people * rows, **told).fit(counts, periods=years)
    assert by_effort.elbo == pytest.approx(by_product.elbo, abs=1e-6)
    np.testing.assert_allclose(by_effort.mean_by_period(), by_product.mean_by_period(), rtol=1e-6)
    totals, seen = by_effort.totals(halves(1, 1)), by_product.totals(halves(1, 1))
    np.testing.assert_allclose(totals["reported"], seen["expected"], rtol=1e-6)
    assert (totals["expected"] > totals["reported"]).all()
    last = by_effort.at(-1)
    np.testing.assert_array_equal(last.effort, rows[2])
    np.testing.assert_array_equal(by_effort.forecast(1).effort, rows[2])
    assert "over the land and 3 periods" in about_effort(by_effort.effort, domain)


def test_areas_see_the_effort_of_each_period(domain, years):
    """Polygons of effort that cut nodes: each area has the effort of its own piece, period by period."""
    areas = [shapely.box(0, 0, 5125, 4000), shapely.box(5125, 0, 10_000, 4000)]
    frames = [halves(1.0, share, 5125.0) for share in (1.0, 0.5, 0.1)]
    table = gpd.GeoDataFrame({"n": 40, "year": np.repeat(years.labels, 2)}, geometry=areas * 3, crs=32631)
    counts = bin_areas(table, domain, "n", time="year", every="year")
    inputs = Inputs.read(domain, effort=frames, periods=years, time="year")
    counts = counts._exposing(domain, inputs.given, inputs.effort, inputs.given_effort)
    for t, share in enumerate((1.0, 0.5, 0.1)):
        whole, seen = (
            counts.at(t).within.exposure(domain.node_areas, effort).sum(axis=1)
            for effort in (None, inputs.at(t).effort)
        )
        np.testing.assert_allclose(seen / whole, [1.0, share], rtol=1e-6)
        np.testing.assert_allclose(
            counts.within.exposure(domain.node_areas, inputs.effort, t).sum(axis=1), seen, rtol=1e-12
        )
    assert counts.slice(1, 3).within.effort.shape[0] == 2
