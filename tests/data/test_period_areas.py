"""Counts by area and period: long tables, what is absent, what is suppressed."""

import geopandas as gpd
import numpy as np
import pytest
from shapely import box

from geobgp import DataError, Domain, bin_areas
from geobgp.data.areas import stack
from geobgp.errors import DroppedPointsWarning

WEST, EAST, SEA = box(0, 0, 4, 4), box(4, 0, 8, 4), box(20, 20, 21, 21)


@pytest.fixture(scope="module")
def domain():
    return Domain.from_polygons(box(0, 0, 8, 4), cell_size=1, crs="local")


def frame(rows, **columns):
    cases, week, shape = zip(*rows, strict=True)
    return gpd.GeoDataFrame({"cases": list(cases), "week": list(week)} | columns, geometry=list(shape))


FULL = [(3, "2020-W05", WEST), (5, "2020-W05", EAST), (0, "2020-W06", WEST), (2, "2020-W06", EAST)]


def weeks(rows, domain, every="week", **more):
    return bin_areas(frame(rows), domain, "cases", time="week", every=every, **more)


def test_a_long_table_becomes_a_table_of_periods_and_areas(domain):
    counts = weeks([FULL[k] for k in (2, 0, 3, 1)], domain)
    assert counts.n_periods == 2 and counts.n_areas == 2
    order = [counts.geometry.tolist().index(shape) for shape in (WEST, EAST)]
    assert counts.values[:, order].tolist() == [[3, 5], [0, 2]] and counts.periods.labels == ("2020-W05", "2020-W06")
    assert counts.totals.tolist() == [8, 2] and counts.n_used == 10 and counts.total_weight == 10.0
    assert counts.shares.shape == (2, domain.n_nodes) and not counts.unknown.any() and not counts.hidden.any()
    assert "2 weeks, 2020-W05 to 2020-W06" in counts.report() and "10 events in 2 areas" in repr(counts)


def test_rows_of_one_area_and_period_are_added_up(domain):
    counts = weeks(FULL, domain, every="year")
    assert counts.values.tolist() == [[3, 7]]
    with pytest.raises(DataError, match=r"1 sums of several rows .* hold a suppressed count"):
        weeks([(None, "2020-W05", WEST), *FULL[1:]], domain, every="year", suppressed=(1, 4))


def test_what_is_absent_is_asked(domain):
    with pytest.raises(DataError, match="1 of 4 pairs of an area and a period have no row"):
        weeks(FULL[:3], domain)
    zero = weeks(FULL[:3], domain, absent="zero")
    assert zero.values.tolist() == [[3, 5], [0, 0]]
    unknown = weeks(FULL[:3], domain, absent="unknown")
    assert np.isnan(unknown.values[1, 1]) and unknown.unknown.sum() == 1 and not unknown.hidden.any()
    assert unknown.at(1).values.tolist() == [0.0] and len(unknown.at(0).values) == 2
    assert "counts that are unknown: 1" in unknown.report()
    # A period between others without any row is there too.
    gap = weeks([FULL[0], FULL[1], (1, "2020-W07", WEST), (1, "2020-W07", EAST)], domain, absent="unknown")
    assert gap.n_periods == 3 and gap.unknown[1].all()
    with pytest.raises(DataError, match="absent must be 'zero' or 'unknown'"):
        weeks(FULL, domain, absent="none")


def test_suppressed_counts_stay_an_interval(domain):
    counts = weeks([(None, "2020-W05", WEST), *FULL[1:]], domain, suppressed=(1, 4))
    assert counts.hidden.tolist() == [[True, False], [False, False]] and counts.suppressed == (1, 4)
    assert counts.guessed[0, 0] == 2.0 and counts.pooled().values.tolist() == [2.0, 7.0]
    assert counts.at(0).hidden.tolist() == [True, False]


def test_slices_and_areas_in_the_sea(domain):
    counts = weeks([*FULL, (0, "2020-W05", SEA), (0, "2020-W06", SEA)], domain)
    assert counts.n_off == 1 and counts.values.shape == (2, 2)
    assert counts.slice(1, 2).values.tolist() == [[0, 2]] and counts.slice(1, 2).periods.labels == ("2020-W06",)


def test_dates_are_read_as_those_of_points(domain):
    with pytest.warns(DroppedPointsWarning, match="1 of 5 rows"):
        counts = weeks([*FULL, (9, None, WEST)], domain)
    assert counts.n_untimed == 1 and counts.n_used == 10
    assert weeks(FULL, domain, between=("2020-W06", "2020-W06")).n_outside == 2
    with pytest.raises(DataError, match="no column 'when'"):
        bin_areas(frame(FULL), domain, "cases", time="when", every="week")


def test_a_period_and_all_together_are_what_a_table_of_them_alone_gives(domain):
    counts = weeks(FULL, domain)
    for t, label in enumerate(("2020-W05", "2020-W06")):
        alone = bin_areas(frame([row for row in FULL if row[1] == label]), domain, "cases")
        assert counts.at(label).digest == alone.digest == counts.at(t).digest
        assert counts.at(t).periods is None and counts.at(t).frame()["observed"].tolist() == [*alone.values]
    assert counts.pooled().digest == bin_areas(frame([(3, "", WEST), (7, "", EAST)]), domain, "cases").digest
    others = [counts.slice(0, 2), counts.slice(1, 2), counts.pooled(), weeks(FULL, domain, every="year")]
    assert [other.digest == counts.digest for other in others] == [True, False, False, False]
    assert counts.frame().columns.tolist() == ["period", "name", "observed", "geometry"]


def test_areas_of_two_tables_are_stacked_by_period(domain):
    whole = weeks(FULL, domain)
    west, east = (weeks([row for row in FULL if row[2] is shape], domain) for shape in (WEST, EAST))
    both = stack([west, east])
    assert both.digest == whole.digest and (both.shares != whole.shares).nnz == 0
    with pytest.raises(DataError, match="the same periods"):
        stack([west, weeks([row for row in FULL if row[2] is EAST], domain, every="year")])
