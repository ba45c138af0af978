"""Exposure and covariates that change from period to period."""

import geopandas as gpd
import numpy as np
import pytest
from reading import fixed_effects, node_exposure
from shapely.geometry import box

from geobgp import DataError, Domain
from geobgp.data.periods import Periods


@pytest.fixture(scope="module")
def domain():
    return Domain.from_polygons(box(0, 0, 4, 2), cell_size=1, crs="local")


def test_what_is_the_same_in_all_periods_stays_as_it_is(domain):
    exposure, kind = node_exposure(None, domain)
    assert exposure.shape == (8,) and kind == "area"
    values = {"x": np.arange(8.0)}
    np.testing.assert_array_equal(fixed_effects(values, domain).columns, fixed_effects(values, domain).columns)


def test_exposures_of_periods(domain):
    rows = np.arange(1.0, 17.0).reshape(2, 8)
    for given in (rows, list(rows), {"2019": rows[0], "2020": rows[1]}):
        values, kind = node_exposure(given, domain)
        np.testing.assert_array_equal(values, rows)
        assert kind == "exposure"
    with pytest.raises(DataError, match="zero everywhere in 1 period, the first number 1"):
        node_exposure(np.array([np.ones(8), np.zeros(8)]), domain)
    with pytest.raises(DataError, match="a column for each of 8 nodes"):
        node_exposure(np.ones((2, 3)), domain)
    with pytest.raises(DataError, match="not negative"):
        node_exposure(-rows, domain)


def test_covariates_are_standardised_over_all_periods(domain):
    rain = np.random.default_rng(0).gamma(2.0, 3.0, (5, 8))
    effects = fixed_effects({"east": domain.node_points[:, 0], "rain": rain}, domain)
    assert effects.names == ("east", "rain") and effects.columns.shape == (5, 8, 3)
    assert effects.columns[:, :, 2].mean() == pytest.approx(0.0, abs=1e-12)
    assert effects.columns[:, :, 2].std() == pytest.approx(1.0)
    np.testing.assert_allclose(effects.columns[:, :, 2] * effects.scales[1] + effects.means[1], rain)
    np.testing.assert_array_equal(effects.columns[0, :, 1], effects.columns[4, :, 1])
    with pytest.raises(DataError, match="3 and 5 periods"):
        fixed_effects({"rain": rain, "snow": rain[:3]}, domain)
    with pytest.raises(DataError, match="everywhere and always"):
        fixed_effects({"rain": np.ones((3, 8))}, domain)


def test_areas_with_a_row_for_each_period(domain):
    """A long table, as registers write them: the people of every area and week."""
    west, east = box(0, 0, 2, 2), box(2, 0, 4, 2)
    weeks = ["2020-W05", "2020-W05", "2020-W06", "2020-W06"]
    table = gpd.GeoDataFrame(
        {"week": weeks, "cases": 1, "population": [40.0, 8.0, 44.0, 12.0]}, geometry=[west, east, west, east]
    )
    periods = Periods.calendar("week", "2020-W05", "2020-W06")
    how = {"time": "week", "periods": periods}
    values, kind = node_exposure(table, domain, "population", **how)
    east_half = domain.node_points[:, 0] > 2
    expected = [np.where(east_half, e / 4, w / 4) for w, e in ((40.0, 8.0), (44.0, 12.0))]
    np.testing.assert_allclose(values, expected)
    assert kind == "population"
    # Each period by itself gives the same, and a table without dates is the same in all.
    each = [node_exposure(table.iloc[rows], domain, "population")[0] for rows in ([0, 1], [2, 3])]
    np.testing.assert_allclose(values, each)
    still = node_exposure(table.iloc[:2].drop(columns="week"), domain, "population", **how)[0]
    np.testing.assert_allclose(still, expected[0])
    with pytest.raises(DataError, match=r"no row for 1 period of 3: '2020-W07'"):
        later = Periods.calendar("week", "2020-W05", "2020-W07")
        node_exposure(table, domain, "population", time="week", periods=later)
    # Nothing is left out or taken for zero without a word.
    with pytest.raises(DataError, match="1 of 4 pairs of an area and a period have no row"):
        node_exposure(table.iloc[:3], domain, "population", **how)
    with pytest.raises(DataError, match="1 row of 4 of the exposure have no date in 'week'"):
        node_exposure(table.assign(week=[*weeks[:3], None]), domain, "population", **how)
    with pytest.raises(DataError, match="not negative; 1 of 4"):
        table.loc[2, "population"] = -1.0
        node_exposure(table, domain, "population", **how)
