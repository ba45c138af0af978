"""Counts by area: what is read, what is refused by name, what becomes of gaps and overlaps."""

from __future__ import annotations

from dataclasses import replace

import geopandas as gpd
import numpy as np
import pytest
from scipy import sparse
from scipy.stats import poisson
from shapely import box

from geobgp import DataError, Domain, GeometryError, bin_areas
from geobgp.data.areas import Combined, combine, even_rate, sort_counts, stack
from geobgp.errors import CRSError, InputWarning


@pytest.fixture(scope="module")
def domain():
    return Domain.from_polygons(box(0, 0, 8, 4), cell_size=1, crs="local")


def frame(cases, boxes, **columns):
    return gpd.GeoDataFrame({"cases": cases} | columns, geometry=boxes)


HALVES = [box(0, 0, 4, 4), box(4, 0, 8, 4)]


def test_every_area_has_the_land_that_lies_in_it(domain):
    counts = bin_areas(frame([3, 5], [box(-5, -5, 2.5, 9), box(6, 0, 20, 2)]), domain, "cases")
    np.testing.assert_allclose(counts.shares @ domain.node_areas, [10.0, 4.0])
    assert counts.covered == pytest.approx(14 / 32)
    assert counts.n_used == 8 and "44 %" in counts.report()
    assert not counts.values.flags.writeable


def test_areas_in_another_crs_are_projected():
    land = gpd.GeoSeries([box(5.0, 52.0, 5.4, 52.2)], crs=4326)
    domain = Domain.from_polygons(land, cell_size=2000)
    areas = gpd.GeoDataFrame({"cases": [1, 2]}, geometry=[box(5, 52, 5.2, 52.2), box(5.2, 52, 5.4, 52.2)], crs=4326)
    counts = bin_areas(areas.to_crs(3857), domain, "cases")
    assert counts.covered == pytest.approx(1.0, abs=1e-3)
    with pytest.raises(CRSError, match="areas have no coordinate reference system"):
        bin_areas(areas.set_crs(None, allow_override=True), domain, "cases")


def test_an_area_with_events_and_no_land_is_named(domain):
    boxes = [*HALVES, box(20, 20, 21, 21)]
    with pytest.raises(GeometryError, match="The area Atlantis has events but no land"):
        bin_areas(frame([3, 5, 1], boxes, name=["a", "b", "Atlantis"]), domain, "cases")
    with pytest.raises(GeometryError, match="The area row 2 has events but no land"):
        bin_areas(frame([3, 5, None], boxes), domain, "cases", suppressed=(1, 4))
    assert bin_areas(frame([3, 5, 0], boxes), domain, "cases").n_off == 1


def test_an_area_with_events_and_nobody_in_it_is_named(domain):
    counts = bin_areas(frame([3, 5], HALVES, NAME_2=["West", "East"]), domain, "cases")
    people = np.where(domain.node_points[:, 0] > 4, 10.0, 0.0)
    with pytest.raises(DataError, match="The area West has events but no exposure"):
        combine(counts, people)


def test_areas_elsewhere_are_refused(domain):
    with pytest.raises(GeometryError, match="None of the 1 area holds land"):
        bin_areas(frame([3], [box(20, 20, 21, 21)]), domain, "cases")


def test_wrong_columns_and_numbers_are_refused(domain):
    with pytest.raises(DataError, match="no column 'deaths'; found 'cases'"):
        bin_areas(frame([3, 5], HALVES), domain, "deaths")
    with pytest.raises(DataError, match="The area row 1 has a negative number"):
        bin_areas(frame([3, -5], HALVES), domain, "cases")
    with pytest.raises(
        DataError, match=r"The area row 0 has no number in the column 'cases'; found '<5'.*suppressed=\(1, 4\)"
    ):
        bin_areas(frame(["<5", "7"], HALVES), domain, "cases")


@pytest.mark.parametrize("interval", [(4, 1), (-1, 3), (1.5, 3), 4, "few", (1, 2, 3)])
def test_an_interval_is_two_whole_numbers(domain, interval):
    with pytest.raises(DataError, match="the lowest and the highest that a suppressed count can be"):
        bin_areas(frame([3, 5], HALVES), domain, "cases", suppressed=interval)


def test_suppressed_rows_are_kept(domain):
    counts = bin_areas(frame(["<5", "7"], HALVES), domain, "cases", suppressed=(1, 4))
    assert counts.hidden.tolist() == [True, False]
    assert counts.guessed.tolist() == [2.0, 7.0]
    assert "1 (of 1 to 4 events each)" in counts._repr_html_()
    seen = combine(counts, domain.node_areas)
    assert seen.hidden.tolist() == [True, False] and seen.interval == (1, 4)


def test_areas_that_overlap_are_told_of(domain):
    with pytest.warns(InputWarning, match="50 % of the land lies in more than one area"):
        counts = bin_areas(frame([3, 8], [HALVES[0], box(0, 0, 8, 4)]), domain, "cases")
    assert counts.covered == 1.0
    with pytest.raises(DataError, match="overlap cannot be mapped together with points"):
        combine(replace(counts, located=np.ones(domain.n_nodes)), domain.node_areas)


def test_what_is_fitted_is_sorted(domain):
    first, second = (bin_areas(frame([3], [half]), domain, "cases") for half in HALVES)
    nodes = np.ones(domain.n_nodes)
    assert sort_counts(nodes) == (nodes, None)
    assert sort_counts(first) == (None, first)
    points, areas = sort_counts([nodes, first, nodes, second])
    assert points.sum() == 2 * domain.n_nodes and areas.values.tolist() == [3, 3]
    assert stack([first]) is first
    assert areas.covered == pytest.approx(1.0) and areas.frame()["observed"].tolist() == [3, 3]


def test_one_rate_everywhere_with_counts_that_are_hidden():
    """In a large area a hidden count is next to impossible at one rate: its logarithm is a number all the same."""
    exposure = sparse.csr_array(np.diag([1.0, 2.0, 2e6]))
    seen = Combined(np.array([900.0, 2100.0, 2.0]), exposure, np.array([False, False, True]), (1, 4), np.arange(3))
    rate = 3002.0 / (2e6 + 3.0)
    told = even_rate(seen)
    expected = rate * np.array([1.0, 2.0, 2e6])
    near = sum(poisson.logpmf([900, 2100], expected[:2])) + poisson.logpmf(4, expected[2])
    assert near < told < near + 0.01
    seen = Combined(np.array([3.0]), exposure[:1], np.array([True]), (1, 4), np.arange(1))
    assert even_rate(seen) == pytest.approx(np.log(poisson.pmf([1, 2, 3, 4], 3.0).sum()))
