"""Mistakes that used to pass without a word: each is refused, or told of, with what was found and what to do."""

from __future__ import annotations

import re

import geopandas as gpd
import numpy as np
import pandas as pd
import pyarrow
import pytest
import shapely
from reading import fixed_effects, node_exposure
from scipy.stats import gamma
from shapely import box

from geobgp import (
    LGCP,
    Categorical,
    DataError,
    Domain,
    FullRank,
    GeobgpError,
    GeometryError,
    HarmonicBasis,
    Matern,
    Periods,
    SizeError,
    bin_areas,
    bin_points,
    compare,
    map_intensity,
    map_prevalence,
    map_risk,
    map_values,
)
from geobgp.cli.app import main
from geobgp.data.measurements import values_of
from geobgp.data.persons import Groups, place_persons, split_status
from geobgp.errors import DroppedPointsWarning, InputWarning
from geobgp.land.regions import area_shares


@pytest.fixture(scope="module")
def domain():
    return Domain.from_polygons(box(0, 0, 8, 4), cell_size=1, crs="local")


QUARTERS = [box(2 * k, 0, 2 * k + 2, 4) for k in range(4)]
NAMES = ["North", "East", "South", "West"]


def areas(values, column="cases", shapes=QUARTERS, **more):
    return gpd.GeoDataFrame({column: values, "name": NAMES[: len(values)]} | more, geometry=shapes[: len(values)])


# -- a column of counts that is none


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("cases", pd.to_datetime(["2020-01-01", "2020-02-01", None, "2020-03-01"])),
        ("cases", ["2020-01-01", "2020-02-01", "", "2020-03-01"]),
        ("cases", ["16/02/1961", "01/03/1961", "02/03/1961", "05/03/1961"]),
        ("cases", [pd.Timestamp("2020-01-01").date()] * 4),
        ("cases", pd.to_timedelta([1, 2, 3, 4], unit="D")),
        ("cases", [20200101, 20200131, 20201231, 20200601]),
        ("year", [1974, 1974, 1975, 1976]),
    ],
)
@pytest.mark.parametrize("interval", [None, (1, 4)])
def test_a_column_of_dates_is_no_count(domain, column, values, interval):
    with pytest.raises(DataError, match=rf"The column '{column}' holds dates, such as .* Name the column") as caught:
        bin_areas(areas(values, column), domain, column, suppressed=interval)
    assert caught.value.option == "count"


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("rate", [12.5, 3.25, 40.0, 8.0]),
        ("rate", [12, 3, 40, 8]),
        ("per_100k", [12, 3, 40, 8]),
        ("cases per 100,000", [12.5, 3.25, 40.0, 8.0]),
        ("DeathRate", [0.01, 0.02, 0.0, 0.04]),
        ("pct_ill", [1.5, 2.5, 0.0, 4.0]),
        ("% ill", [1.5, 2.5, 0.0, 4.0]),
        ("prevalence", [0.1, 0.2, 0.3, 0.4]),
        ("SMR", [0.9, 1.1, 1.3, 0.7]),
    ],
)
def test_a_column_that_is_a_rate_by_its_name_is_asked_about(domain, column, values):
    if "cases" in column:
        column, frame = "ill per 100,000", areas(values, "ill per 100,000")
    else:
        frame = areas(values, column)
    with pytest.raises(DataError, match=r"is a rate by its name.*Multiply it.*such as 'cases'"):
        bin_areas(frame, domain, column)
    # The same numbers under a name that says that they are events.
    renamed = frame.rename(columns={column: "cases"})
    if max(values) < 1:
        with pytest.warns(InputWarning, match="are below 1"):
            counts = bin_areas(renamed, domain, "cases")
    else:
        counts = bin_areas(renamed, domain, "cases")
    assert counts.values.tolist() == values


@pytest.mark.parametrize("column", ["cases", "separate", "corporate_cases", "incidence", "expected_share_cases"])
def test_names_that_only_sound_like_rates_pass(domain, column):
    assert bin_areas(areas([3, 4, 5, 6], column), domain, column).n_used == 18


def test_counts_all_below_one_are_told_of_and_honest_fractions_are_accepted_and_said(domain):
    with pytest.warns(InputWarning, match=r"All numbers of the column 'cases' are below 1 \(0.9 events in 4 areas\)"):
        bin_areas(areas([0.2, 0.3, 0.0, 0.4]), domain, "cases")
    counts = bin_areas(areas([2.5, 3.25, 0.0, 4.0]), domain, "cases")
    assert counts.facts()["events in them"] == "9.75"
    assert counts.facts()["counts with a fraction"].startswith("2 (taken as they are")
    assert "fraction" not in bin_areas(areas([2, 3, 0, 4]), domain, "cases").report()


# -- suppressed counts, and text that is read as another number


@pytest.mark.parametrize("mark", ["", None, np.nan, "*", "..", "s", "S", "x", "c", "suppressed", "<5", "< 5", "≤4",
                                  "1-4", "1 to 4", "1–4", "under 5", "less than 5", " <5 ", pd.NA])  # fmt: skip
def test_blanks_and_marks_that_say_so_are_suppressed(domain, mark):
    counts = bin_areas(areas([mark, "7", "12.0", 9]), domain, "cases", suppressed=(1, 4))
    assert counts.hidden.tolist() == [True, False, False, False] and counts.n_used == 28


@pytest.mark.parametrize("value", ["1,234", "1 234", "1\u202f234", "1'234", "12 (prov.)", "12*", "inf", np.inf, -np.inf,
                                   "1,5", "twelve", "-", "?", "1_234", "1.234", True, "12 13"])  # fmt: skip
@pytest.mark.parametrize("interval", [None, (1, 4)])
def test_what_cannot_be_read_is_refused_by_value_and_never_taken_for_suppressed(domain, value, interval):
    with pytest.raises(DataError, match=r"The area East has .* cannot be read as a number of events") as caught:
        bin_areas(areas(["5", value, "7", "8"]), domain, "cases", suppressed=interval)
    assert repr(str(value)) in str(caught.value) and caught.value.remedy


@pytest.mark.parametrize("mark", ["<10", "< 3", "≤5", "0-4", "1-9", "up to 9"])
def test_a_mark_that_contradicts_the_interval_is_refused(domain, mark):
    with pytest.raises(DataError, match=rf"The area East has '{mark}'.*suppressed says 1 to 4.*Say what the marks say"):
        bin_areas(areas(["5", mark, "7", "8"]), domain, "cases", suppressed=(1, 4))


def test_the_interval_that_marks_tell_is_proposed(domain):
    with pytest.raises(DataError, match=r"suppressed=\(1, 9\)"):
        bin_areas(areas(["5", "<10", "7", "8"]), domain, "cases")
    with pytest.raises(DataError, match=r"One interval holds"):
        bin_areas(areas(["<5", "<10", "7", "8"]), domain, "cases", suppressed=(1, 4))


# -- the same district twice


def test_the_same_district_twice_is_refused_by_name(domain):
    turned = shapely.Polygon([(2, 4), (2, 0), (0, 0), (0, 4)])  # North, begun at another corner
    for twin in (QUARTERS[0], turned, box(0, 0, 2, 4.0001)):
        with pytest.raises(DataError, match=r"The areas North, West are the same land: 1 row too many.*add them up"):
            bin_areas(areas([3, 4, 5, 6], shapes=[*QUARTERS[:3], twin]), domain, "cases")
    # A part of another one is told of, as it was.
    with pytest.warns(InputWarning, match="more than one area"):
        bin_areas(areas([3, 4, 5, 6], shapes=[*QUARTERS[:3], box(0, 0, 1, 4)]), domain, "cases")


def test_parts_of_one_district_with_the_same_number_are_told_of(domain):
    frame = areas([7, 7, 5, 6]).assign(name=["North", "North", "South", "West"])
    with pytest.warns(InputWarning, match=r"'North' is in several rows with the same number.*dissolve"):
        bin_areas(frame, domain, "cases")
    assert bin_areas(frame.assign(cases=[7, 2, 5, 6]), domain, "cases").n_used == 20


def dated(**columns):
    rows = [
        {"name": name, "date": year, "geometry": shape, "cases": k + 2, "population": 100.0 + k}
        for k, (name, shape) in enumerate(zip(NAMES, QUARTERS, strict=True))
        for year in ("2019", "2020")
    ]
    return gpd.GeoDataFrame(rows).assign(**columns)


def test_dated_counts_that_are_there_twice_are_told_of(domain):
    frame = dated()
    again = gpd.GeoDataFrame(pd.concat([frame, frame.iloc[[3]]], ignore_index=True))
    with pytest.warns(InputWarning, match=r"1 row of 9 of the areas is there already"):
        bin_areas(again, domain, "cases", time="date", every="year")


@pytest.mark.parametrize("by_time", [True, False])
def test_an_exposure_row_that_is_there_twice_is_refused(domain, by_time):
    frame = dated(fid=range(8)) if by_time else dated(fid=range(8)).iloc[::2].drop(columns="date")
    again = gpd.GeoDataFrame(pd.concat([frame, frame.iloc[[1]].assign(fid=99)], ignore_index=True))
    when = {"time": "date", "periods": Periods.calendar("year", 2019, 2020)} if by_time else {}
    assert node_exposure(frame, domain, "population", **when)[0].sum() > 0
    with pytest.raises(DataError, match=r"1 row of \d of the exposure is there already, the first row \d"):
        node_exposure(again, domain, "population", **when)
    revised = again.assign(population=[*again["population"][:-1], 140.0])
    with pytest.raises(DataError, match="there already"):
        node_exposure(revised, domain, "population", **when)
    # Two groups of people of one area are no mistake.
    both = gpd.GeoDataFrame(pd.concat([frame.assign(sex="f"), frame.assign(sex="m")], ignore_index=True))
    twofold, _ = node_exposure(both, domain, "population", **when)
    np.testing.assert_allclose(twofold, 2 * node_exposure(frame, domain, "population", **when)[0])


@pytest.mark.parametrize("values", [["1,234", 5, 6, 7], ["many", 5, 6, 7], pd.to_datetime(["2020-01-01"] * 4)])
def test_an_exposure_that_is_no_number_is_refused_by_value(domain, values):
    with pytest.raises(DataError, match=r"'1,234', which cannot|'many', which cannot|holds dates"):
        node_exposure(areas(values, "people"), domain, "people")


# -- periods


def test_an_exposure_by_label_is_matched_or_refused(domain):
    periods, n = Periods.calendar("year", 2019, 2020), domain.n_nodes
    one, two = np.ones(n), np.full(n, 2.0)
    expected = np.array([one, two])
    for given in ({"2019": one, "2020": two}, {"2020": two, "2019": one}, {2020: two, pd.Timestamp("2019-05-01"): one}):
        np.testing.assert_array_equal(node_exposure(given, domain, periods=periods)[0], expected)
        effects = fixed_effects({"rain": given}, domain, periods=periods)
        assert effects.columns[0, 0, 1] < effects.columns[1, 0, 1]
    for given, words in (
        ({"2018": one, "2019": two}, "given for '2018', which is none of the periods"),
        ({"a": one, "b": two}, "given for 'a', which is none of the periods"),
        ({"2019": one, "2019-06-01": two}, "given twice for the period '2019'"),
        ({"2020": one}, "there is none for '2019'"),
    ):
        with pytest.raises(DataError, match=words):
            node_exposure(given, domain, periods=periods)
        with pytest.raises(DataError, match=words):
            fixed_effects({"rain": given}, domain, periods=periods)


def test_a_model_that_was_given_labels_before_the_periods_checks_them_when_it_is_fitted(domain):
    basis = HarmonicBasis.compute(domain, 12, cache=False)
    counts = np.random.default_rng(1).poisson(3.0, (2, domain.n_nodes))
    periods, one = Periods.calendar("year", 2019, 2020), np.ones(domain.n_nodes)
    kernel = Matern(1.5, lengthscale=4.0, sd=0.5)
    for given, words in (
        ({"2020": one, "2019": one}, "in another order"),
        ({"2018": one, "2019": one}, "none of the periods"),
    ):
        with pytest.raises(DataError, match=words):
            LGCP(basis, kernel, exposure=given).fit(counts, periods=periods)
        with pytest.raises(DataError, match=words):
            varying = {k: v * n for n, (k, v) in enumerate(given.items())}
            LGCP(basis, kernel, covariates={"rain": varying}).fit(counts, periods=periods)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -1.0, "many", 0.0])
def test_the_exposure_of_a_forecast_is_checked(domain, wrong):
    basis, n = HarmonicBasis.compute(domain, 12, cache=False), domain.n_nodes
    counts = np.random.default_rng(1).poisson(3.0, (3, n))
    model = LGCP(basis, Matern(1.5, lengthscale=4.0, sd=0.5), dynamics="separable")
    posterior = model.fit(counts, periods=Periods.calendar("year", 2019, 2021))
    ahead = np.full(n, wrong, object) if wrong in (0.0, "many") else np.r_[wrong, np.ones(n - 1)]
    with pytest.raises(DataError, match=r"exposure"):
        posterior.forecast(2, exposure=ahead)
    assert np.isfinite(posterior.forecast(2, exposure=np.ones(n)).level()["expected"]).all()


# -- counts of another domain


def test_counts_of_another_domain_with_as_many_nodes_are_refused(domain):
    other = Domain.from_polygons(box(10, 0, 18, 4), cell_size=1, crs="local")
    same = Domain.from_polygons(box(0, 0, 8, 4), cell_size=1, crs="local")
    assert other.n_nodes == domain.n_nodes
    places = np.random.default_rng(1).uniform([0, 0], [8, 4], (100, 2))
    model = LGCP(HarmonicBasis.compute(domain, 12, cache=False), Matern(1.5, lengthscale=4.0, sd=0.5))
    shifted = [shapely.affinity.translate(shape, 10) for shape in QUARTERS]
    for counts in (
        bin_points(places + np.array([10, 0]), other),
        bin_points(places + np.array([10, 0]), other, time=np.arange(100) % 2, every=[0, 1, 2]),
        bin_areas(areas([3, 4, 5, 6], shapes=shifted), other, "cases"),
        [bin_points(places, domain), bin_areas(areas([3, 4, 5, 6], shapes=shifted), other, "cases")],
    ):
        with pytest.raises(DataError, match=r"of the nodes of another domain.*bin_points\(points, basis.domain\)"):
            model.fit(counts)
    assert model.fit(bin_points(places, same)).converged


# -- cases and controls


def people(seed, n=200, **columns):
    rng = np.random.default_rng(seed)
    return pd.DataFrame({"easting": rng.uniform(0, 8, n), "northing": rng.uniform(0, 4, n)} | columns)


def risk(cases, controls, **more):
    return map_risk(cases, controls, box(0, 0, 8, 4), crs="local", cell_size=1, permeability=0, **more)


@pytest.mark.parametrize("columns", [{}, {"age": np.arange(200.0)}])
def test_the_same_table_as_cases_and_controls_is_refused(columns):
    table = people(1, **columns)
    again = table.sample(frac=1.0, random_state=1).assign(status="control")
    with pytest.raises(DataError, match=r"cases and controls are the same 200 persons: the same place.*a sample of"):
        risk(table.assign(status="case"), again)
    with pytest.raises(DataError, match="are the same 200 persons"):
        risk(table[["easting", "northing"]].to_numpy(), again[["easting", "northing"]].to_numpy())


def test_persons_in_both_tables_are_told_of_and_shared_postcodes_are_not():
    cases, controls = people(1), people(2, 400)
    with pytest.warns(InputWarning, match=r"60 of 200 cases \(30 %\) are among the controls too"):
        risk(cases, pd.concat([controls, cases.iloc[:60]]))
    with pytest.warns(InputWarning, match=r"200 of 200 cases \(100 %\) are among the controls"):
        risk(cases, pd.concat([controls, cases]))
    posts = np.random.default_rng(3).uniform([0, 0], [8, 4], (50, 2))
    rng = np.random.default_rng(4)
    assert risk(posts[rng.integers(50, size=100)], posts[rng.integers(50, size=300)]).converged


def test_periods_with_cases_or_controls_alone_are_refused_or_told_of():
    cases, controls = people(1, day="2020-05-01"), people(2, 300, day="2023-05-02")
    words = r"No year has both cases and controls: cases are of 2020, controls of 2023\. .*time of the cases"
    with pytest.raises(DataError, match=words) as caught:
        risk(cases, controls, time="day", every="year")
    assert caught.value.option == "time"
    cases = people(1, day=np.repeat(["2020-05-01", "2021-05-01", "2022-05-01"], [150, 30, 20]))
    controls = people(2, 300, day=np.repeat(["2020-05-02", "2023-05-02"], [200, 100]))
    words = r"3 of 4 periods with persons .*\(cases alone in 2 and controls alone in 1\), 150 persons of 500: "
    with pytest.warns(InputWarning, match=words):
        risk(cases, controls, time="day", every="year", m=24)


@pytest.mark.parametrize(
    ("ill", "well", "words"),
    [
        (1, 0, r"'x' tells cases from controls by itself: it is 1 to 1 for the cases and 0 to 0 for the controls"),
        ("yes", "no", r"'x' tells cases from controls by itself: it is 'yes' for the cases and 'no'"),
        (np.arange(200) + 500.0, np.arange(200) / 3, "tells cases from controls by itself"),
        (np.array(["a", "b"] * 100), np.array(["c", "d"] * 100), "tells cases from controls by itself"),
        (pd.Timestamp("2020-05-01"), pd.Timestamp("2020-05-02"), "'x' holds dates, such as '2020-05-01"),
        (["2020-05-01", "2020-06-01"] * 100, ["2020-05-02", "2020-05-01"] * 100, "'x' holds dates"),
        ([f"p{k}" for k in range(200)], [f"p{k}" for k in range(200, 400)], "'x' has 400 levels for 400 persons"),
    ],
)
def test_a_confounder_that_is_the_outcome_or_a_date_is_refused(ill, well, words):
    with pytest.raises(DataError, match=words) as caught:
        risk(people(1, x=ill), people(2, x=well), confounders=["x"])
    assert caught.value.option == "confounders" and caught.value.remedy


# -- too few, and too many on one place


SMOOTH = {"crs": "local", "cell_size": 0.5, "m": 48, "kernel": Matern(1.5, lengthscale=4.0, sd=0.5)}


def square(points, **more):
    return map_intensity(points, box(0, 0, 8, 4), **SMOOTH, permeability=0, **more)


@pytest.mark.parametrize("n", [1, 3, 9])
def test_what_can_be_learned_from_a_few_points_is_said(n):
    points = np.random.default_rng(1).uniform([0, 0], [8, 4], (n, 2))
    with pytest.warns(InputWarning, match=rf"There (is|are) {n} events?\. From so few.*not the map") as caught:
        posterior = square(points)
    assert np.isfinite(posterior.intensity()["q95"].values).any()
    low, high = (float(word) for word in re.search(r"within (\S+) to (\S+) times", str(caught[0].message)).groups())
    # The interval of a rate behind n events, by Jeffreys' prior.
    assert gamma(n + 0.5).cdf(high * n) - gamma(n + 0.5).cdf(low * n) == pytest.approx(0.9, abs=0.02)


def test_few_cases_controls_and_events_in_areas_are_said_too():
    with pytest.warns(InputWarning, match="There are 5 cases"):
        risk(people(1, 5), people(2))
    with pytest.warns(InputWarning, match="There are 5 controls"):
        risk(people(1), people(2, 5))
    with pytest.warns(InputWarning, match="There are 6 events"):
        map_intensity(areas=areas([3, 1, 0, 2]), count="cases", land=box(0, 0, 8, 4), **SMOOTH)


def test_hundreds_of_points_on_one_place_are_told_of_and_shared_postcodes_are_something_else():
    rng = np.random.default_rng(1)
    spread = rng.uniform([0, 0], [8, 4], (700, 2))
    with pytest.warns(InputWarning, match=r"300 of 1,000 points \(30 %\) lie on exactly one place.*repeated") as caught:
        square(np.vstack([spread, np.full((300, 2), 2.0)]))
    assert "2.0" not in str(caught[0].message), "a place is not told"
    with pytest.warns(InputWarning, match=r"Every place is there exactly 2 times: 1,400 points on 700 places"):
        square(np.vstack([spread, spread]))
    posts = rng.uniform([0, 0], [8, 4], (40, 2))
    with pytest.warns(InputWarning, match=r"100 % of the 800 points share their place.*40 places") as caught:
        assert square(posts[rng.integers(40, size=800)]).n_points == 800
    assert not any("repeated" in str(one.message) for one in caught)
    with pytest.warns(InputWarning, match=r"150 of 350 cases \(43 %\) lie on exactly one place"):
        risk(pd.concat([people(1), people(3, 150).assign(easting=1.0, northing=1.0)]), people(2, 400))


# -- names of files


def test_two_thresholds_that_share_a_name_are_refused():
    posterior = square(np.random.default_rng(1).uniform([0, 0], [8, 4], (200, 2)))
    for write in (posterior.to_raster, posterior.to_netcdf, posterior.to_qgis, posterior.to_report):
        with pytest.raises(DataError, match=r"thresholds 0.3 and 0.30000001 would share one name.*exceedance_0.3"):
            write("nowhere", thresholds=[0.3, 0.30000001])
    assert main(["map", "p.csv", "--land", "l.gpkg", "--threshold", "0.3", "--threshold", "0.30000001", "-o", "o"]) == 1
    assert "exceedance_6.001" in posterior.dataset((0.5,), (6.0, 6.001, 6.0))


# -- regions


@pytest.mark.parametrize(
    "globe",
    [
        box(-180, -90, 180, 90),
        box(0, -90, 360, 90),
        shapely.MultiPolygon([box(-180, -90, 0, 90), box(0, -90, 180, 90)]),
    ],
)
@pytest.mark.parametrize("west", [172.0, -125.0, 20.0])
def test_the_whole_globe_is_all_of_the_land_wherever_it_is(globe, west):
    halves = [box(west, 64, west + 8, 68), box(west + 8, 64, west + 16, 68)]
    halves = [shapely.affinity.translate(half, -360) if half.bounds[0] >= 180 else half for half in halves]
    domain = Domain.from_polygons(gpd.GeoDataFrame(geometry=halves, crs=4326), cell_size=60_000)
    regions = gpd.GeoDataFrame(geometry=[globe, halves[1]], crs=4326)
    shares = area_shares(domain, regions) @ domain.node_areas / domain.node_areas.sum()
    np.testing.assert_allclose(shares, [1.0, 0.5], rtol=2e-3)


# -- weights and covariates


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (["1,234", "5"] * 10, r"'1,234' in the column 'w' can be read in two ways"),
        (pd.to_datetime(["2020-01-01"] * 20), r"The column 'w' holds dates"),
    ],
)
def test_weights_that_are_dates_or_have_marks_between_thousands_are_refused(domain, values, words, tmp_path):
    table = people(1, 20, w=values)
    with pytest.raises(DataError, match=words):
        bin_points(table, domain, weights="w")
    decimal = people(1, 20, w=["1,5", "2,25"] * 10)
    assert bin_points(decimal, domain, weights="w").total_weight == 37.5


def test_dates_and_blanks_are_no_covariates(domain):
    dates = pd.to_datetime(["2020-01-01", "2020-02-01", "2020-03-01", "2020-04-01"])
    for covariates in (areas(dates, "x").drop(columns="name"), {"x": np.resize(dates.to_numpy(), domain.n_nodes)}):
        with pytest.raises(DataError, match="The covariate 'x' holds dates"):
            fixed_effects(covariates, domain)
    with pytest.raises(DataError, match="The covariate 'x' has no value"):
        fixed_effects(areas([None] * 4, "x").drop(columns="name"), domain)


# -- dates


@pytest.mark.parametrize(
    ("when", "first", "last"),
    [
        ({"every": "month", "between": ("2010-01", "2010-03")}, "2010-01", "2010-03"),
        ({"every": ["2010-01-01", "2010-02-01", "2010-04-01"]}, "2010-01-01", "2010-04-01"),
    ],
)
@pytest.mark.parametrize("kind", ["points", "areas", "persons", "values", "surveys"])
def test_periods_that_hold_no_date_are_refused_with_the_dates_that_there_are(kind, when, first, last):
    days = pd.date_range("2020-01-02", "2022-12-30", 200).strftime("%Y-%m-%d")
    table, how = people(1, day=days, v=np.arange(200), of=200), {"crs": "local", "cell_size": 1, "time": "day"} | when
    land, n = box(0, 0, 8, 4), 200
    with pytest.raises(DataError) as caught:
        if kind == "points":
            map_intensity(table, land, **how)
        elif kind == "areas":
            n = 4
            counts = areas([3, 1, 4, 1], day=[days[0], days[-1]] * 2)
            map_intensity(land=land, areas=counts, count="cases", **how)
        elif kind == "persons":
            map_risk(table[:80], table[80:], land, **how)
        elif kind == "values":
            map_values(table, land, value="v", **how)
        else:
            map_prevalence(table, land, positive="v", tested="of", **how)
    words = f"0 of {n} dates lie between {first} and {last}; they go from 2020-01-02 to 2022-12-30."
    assert words in str(caught.value) and caught.value.remedy
    assert caught.value.option == ("between" if "between" in when else "every")


def test_rows_without_a_date_in_periods_that_others_have_count_as_none(domain):
    periods = Periods.calendar("month", "2010-01", "2010-03")
    with pytest.warns(UserWarning, match="lie outside the periods"):
        counts = bin_points(people(1, day="2020-05-01"), domain, time="day", every=periods)
    assert counts.total_weight == 0 and counts.n_outside == 200


# -- two columns of one name


def twice(frame, name):
    return pd.concat([frame, frame[[name]]], axis=1)


@pytest.mark.parametrize(
    "use",
    [
        lambda p, a, d, s: map_values(p, s, value="v", cell_size=1, crs="local"),
        lambda p, a, d, s: map_values(people(1, w=1.0), a, value="w", cell_size=1, crs="local"),
        lambda p, a, d, s: map_prevalence(p, s, positive="v", tested="v", cell_size=1, crs="local"),
        lambda p, a, d, s: map_risk(p[:50], p[50:], s, confounders=["v"], cell_size=1, crs="local"),
        lambda p, a, d, s: map_intensity(p, s, places="voronoi", key="v", cell_size=1, crs="local"),
        lambda p, a, d, s: map_intensity(people(1, v="1"), s, places=a, key="v", cell_size=1, crs="local"),
        lambda p, a, d, s: bin_points(p, d, weights="v"),
        lambda p, a, d, s: bin_points(iter([p]), d, time="v", every="year"),
        lambda p, a, d, s: bin_areas(a, d, "v"),
        lambda p, a, d, s: area_shares(d, a),
        lambda p, a, d, s: node_exposure(a, d, column="v"),
        lambda p, a, d, s: fixed_effects(a, d),
        lambda p, a, d, s: fixed_effects({"x": a}, d),
    ],
)
def test_two_columns_of_one_name_are_refused_by_every_reader(domain, use):
    table, shapes = twice(people(1, v=np.arange(200) + 2000), "v"), twice(areas([1, 2, 3, 4], "v"), "v")
    with pytest.raises(DataError, match=r"^Two columns are called 'v'; rename one\.$"):
        use(table, shapes, domain, box(0, 0, 8, 4))


def test_two_columns_of_one_name_are_refused_in_text_files_and_tables_of_others(domain, tmp_path):
    path = tmp_path / "points.csv"
    path.write_text('easting;northing;"v";v;v\n1;1;2;3;4\n')
    with pytest.raises(DataError, match="3 columns are called 'v'; rename them"):
        bin_points(path, domain, weights="v")
    table = pyarrow.table([pyarrow.array([1.0, 2.0])] * 4, names=["easting", "northing", "v", "v"])
    with pytest.raises(DataError, match="Two columns are called 'v'"):
        bin_points(table, domain)
    path.write_text("easting,northing,,\n1,1,,\n")  # empty columns, as spreadsheets leave them
    assert bin_points(path, domain).n_used == 1


# -- words and numbers


def test_a_slip_of_voronoi_is_named():
    for slip in ("vornoi", "Voronoy", "voronois"):
        with pytest.raises(DataError, match=f"places is '{slip}', and there is no such file; did you mean 'voronoi'?"):
            map_intensity(people(1), box(0, 0, 8, 4), places=slip, crs="local", cell_size=1)


def test_values_too_large_to_compute_with_are_refused():
    with pytest.raises(
        DataError, match=r"^The column .v.: numbers as large as 2\.0e\+302 are too large to compute with"
    ):
        map_values(people(1, v=np.linspace(1, 200, 200) * 1e300), box(0, 0, 8, 4), value="v", crs="local", cell_size=1)


@pytest.mark.parametrize("code", [-9999, 9999, -999])
def test_a_code_for_missing_values_is_told_of(code):
    values = np.random.default_rng(1).normal(10, 1, 200)
    values[:10] = code
    with pytest.warns(InputWarning, match=rf"10 values are exactly {code} \(column 'v'\).*a code for missing\?"):
        values_of(people(1, v=values), "v")
    with pytest.warns(InputWarning, match="values are exactly -99"):
        values_of(people(1, v=np.where(np.arange(200) < 3, -99, np.arange(200) * 10)), "v")
    values_of(people(1, v=np.linspace(-2000, 12000, 141).repeat(2)[:200]), "v")  # 9,999 is no stranger here
    values_of(people(1, v=np.r_[np.arange(900.0, 1098), 999, 999]), "v")


@pytest.mark.parametrize("table", [np.array([["a", "b"], ["c", "d"]]), np.array([[{}, 1.0], [2.0, 3.0]], dtype=object)])
def test_arrays_of_words_are_no_points(domain, table):
    with pytest.raises(GeometryError, match="an array of points holds numbers"):
        bin_points(table, domain)


@pytest.mark.parametrize("wrong", ["%Y-%Q", "%", "%Y %", "nonsense", "\0"])
def test_formats_that_pandas_refuses_are_told(domain, wrong):
    table = pd.DataFrame({"easting": [1.0], "northing": [1.0], "when": ["2020-03-01"]})
    with pytest.raises(DataError, match="date_format says how dates are written, in the signs of strptime"):
        bin_points(table, domain, time="when", every="month", date_format=wrong)


ARROW = (pyarrow.date32(), pyarrow.date64(), pyarrow.timestamp("s"), pyarrow.timestamp("ns", "UTC"), pyarrow.string())


@pytest.mark.parametrize("kind", ARROW, ids=str)
def test_dates_of_arrow_are_dates(domain, kind):
    dates = pd.Series(pd.to_datetime(["2020-01-31", "2020-02-01", None]))
    dates = dates.dt.strftime("%Y-%m-%d") if kind == pyarrow.string() else dates
    dates = dates.dt.tz_localize("UTC") if getattr(kind, "tz", None) else dates
    table = pd.DataFrame({"easting": [1.0] * 3, "northing": [1.0] * 3, "when": dates.astype(pd.ArrowDtype(kind))})
    with pytest.warns(DroppedPointsWarning, match="left out for their dates"):
        counts = bin_points(table, domain, time="when", every="month")
    assert counts.periods.labels == ("2020-01", "2020-02") and counts.n_untimed == 1


def test_features_of_islets_have_a_remedy_that_helps():
    islets = shapely.MultiPolygon([box(2 * i, 2 * j, 2 * i + 1, 2 * j + 1) for i in range(10) for j in range(10)])
    many = Domain.from_polygons(islets, cell_size=1.0, crs="local")
    with pytest.raises(SizeError, match=r"100 unknowns are on 100 separate pieces of land.*Use full resolution"):
        HarmonicBasis.compute(many, 8, cache=False)
    assert FullRank(many).domain.n_nodes == 100


def test_a_table_of_shares_of_words_is_refused(domain):
    shares = pd.DataFrame({"wood": ["much"] * domain.n_nodes, "field": ["little"] * domain.n_nodes})
    with pytest.raises(DataError, match="is a table of shares"):
        fixed_effects({"cover": Categorical(shares)}, domain)


# -- the same land, or the same people, twice


@pytest.mark.parametrize("second", [box(3, 0, 8, 4), box(0, 0, 8, 4)])
def test_exposure_and_effort_that_overlap_are_told_of_with_names_and_amounts(domain, second):
    shapes, inside = [box(0, 0, 4, 4), second], 400 * (1 if second.bounds[0] else 4) / 4
    people = gpd.GeoDataFrame({"population": [400, 1000], "name": ["town", "county"]}, geometry=shapes)
    words = rf"town and county \({inside:g} in both\)"
    with pytest.warns(InputWarning, match=rf"1 pair of areas of the exposure overlaps.*{words}.*counted twice"):
        node_exposure(people, domain)
    seen = gpd.GeoDataFrame({"effort": [0.2, 0.8], "name": ["town", "county"]}, geometry=shapes)
    with pytest.warns(InputWarning, match="different values overlaps, and their mean is taken there: town and county"):
        LGCP(HarmonicBasis.compute(domain, 4), effort=seen, effort_column="effort")


def test_a_district_twice_among_hundreds_is_told_of_and_an_exact_copy_is_refused(domain):
    shapes = [box(k % 20 * 0.4, k // 20 * 0.2, k % 20 * 0.4 + 0.4, k // 20 * 0.2 + 0.2) for k in range(400)]
    names = [f"d{k}" for k in range(400)]
    plain = gpd.GeoDataFrame({"population": 10, "name": names}, geometry=shapes)
    assert node_exposure(plain, domain)[0].sum() == pytest.approx(4000)
    again = plain.iloc[[7]].assign(name="other")
    with pytest.warns(InputWarning, match=r"d7 and other \(10 in both\)"):
        node_exposure(pd.concat([plain, again], ignore_index=True), domain)
    turned = plain.iloc[[7]].set_geometry([shapes[7].reverse()])
    with pytest.raises(DataError, match="there already, the first row 400"):
        node_exposure(pd.concat([plain, turned], ignore_index=True), domain)
    by_sex = pd.concat([plain.assign(sex="f"), plain.assign(sex="m")], ignore_index=True)
    assert node_exposure(by_sex, domain)[0].sum() == pytest.approx(8000)  # no word: all are there twice
    counts = gpd.GeoDataFrame({"cases": 10, "name": [*names, "more"]}, geometry=[*shapes, box(0.4, 0.2, 1.0, 0.5)])
    with pytest.warns(InputWarning, match=r"more than one area: d21 and more \(10 and 10 events\)"):
        bin_areas(counts, domain, "cases")


def test_an_effort_that_gives_one_land_twice_is_refused_and_dated_rows_too_many_are_told_of(domain):
    seen = gpd.GeoDataFrame({"effort": [0.2, 0.8, 0.5]}, geometry=[QUARTERS[0], QUARTERS[0], box(2, 0, 8, 4)])
    with pytest.raises(DataError, match="row 0 and row 1 of the effort are the same land: 1 row too many"):
        LGCP(HarmonicBasis.compute(domain, 4), effort=seen)
    dates = ["2020"] * 4 + ["2021"] * 5
    people = gpd.GeoDataFrame(
        {"population": 1.0, "name": [*NAMES, *NAMES, "again"], "year": dates},
        geometry=[*QUARTERS, *QUARTERS, QUARTERS[3]],
    )
    with pytest.warns(InputWarning, match="1 pair of an area and a period has more rows .* added up: 'West', 'again'"):
        node_exposure(people, domain, time="year", periods=Periods.calendar("year", 2020, 2021))


# -- what is masked is missing, rows belong to their labels, objects that are numbers are numbers


def test_masked_is_missing_everywhere(domain):
    basis, n = HarmonicBasis.compute(domain, 4), domain.n_nodes
    mask = np.arange(n) < 5
    xy = np.ma.array(domain.node_points, mask=np.c_[mask, mask])
    with pytest.warns(DroppedPointsWarning, match=f"5 of {n} rows .* have no point"):
        assert bin_points(xy, domain).values.tolist() == (~mask).astype(float).tolist()
    ones = np.ma.array(np.ones(n), mask=mask)
    for use, words in (
        (lambda: bin_points(domain.node_points, domain, weights=ones), "5 are negative, missing"),
        (lambda: LGCP(basis, exposure=ones), "5 of 32 values are not"),
        (lambda: LGCP(basis, exposure=[ones, ones]), "10 of 64 values are not"),
        (lambda: LGCP(basis, effort=ones), "effort has no value at 5 of 32 nodes"),
        (lambda: LGCP(basis, covariates={"x": np.ma.array(np.arange(n), mask=mask)}), "no value at 5 of 32 nodes"),
        (lambda: LGCP(basis, covariates={"x": lambda xy: np.ma.array(xy[:, 0], mask=mask)}), "no value at 5 of 32"),
        (lambda: LGCP(basis, covariates={"x": pd.Series([pd.NA] * 5 + [1] * (n - 5), dtype="Int64")}), "no value at 5"),
    ):
        with pytest.raises(DataError, match=words):
            use()


@pytest.mark.parametrize("kind", [object, "Float64", "double[pyarrow]"])
def test_numbers_are_numbers_whatever_holds_them(domain, kind):
    basis, x = HarmonicBasis.compute(domain, 4), np.arange(domain.n_nodes, dtype=float)
    own = LGCP(basis, covariates={"x": x}).effects.columns
    np.testing.assert_array_equal(LGCP(basis, covariates={"x": pd.Series(x).astype(kind)}).effects.columns, own)
    quarters = gpd.GeoDataFrame({"p": pd.Series([1.0, 2.0, 3.0, 4.0]).astype(kind)}, geometry=QUARTERS)
    assert node_exposure(quarters, domain)[0].sum() == pytest.approx(10)


def test_rows_are_matched_by_their_labels_or_refused(domain):
    basis, n = HarmonicBasis.compute(domain, 4), domain.n_nodes
    x = pd.Series(np.arange(1.0, n + 1))
    turned = x.iloc[::-1]
    own, other = (LGCP(basis, exposure=v, effort=v / n, covariates=pd.DataFrame({"x": v})) for v in (x, turned))
    np.testing.assert_array_equal(other.exposure, own.exposure)
    np.testing.assert_array_equal(other.effort, own.effort)
    np.testing.assert_array_equal(other.effects.columns, own.effects.columns)
    for labels in (range(1, n + 1), [f"n{k}" for k in range(n)]):
        for name in ("exposure", "covariates"):
            strange = x.set_axis(list(labels))
            with pytest.raises(DataError, match=f"index of {name} .* is not that of the nodes, 0 to 31"):
                LGCP(basis, **{name: strange if name == "exposure" else {"x": strange}})
    table = pd.DataFrame(domain.node_points, columns=["easting", "northing"])
    np.testing.assert_array_equal(bin_points(table, domain, weights=turned).values, x)
    with pytest.raises(DataError, match=r"index of weights .* is not that of the rows"):
        bin_points(table.iloc[:5], domain, weights=x.iloc[10:15])


# -- options without effect


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"exposure_column": "people"}, "exposure_column has no effect without exposure"),
        ({"effort_column": "share"}, "effort_column has no effect without effort"),
        ({"exposure": np.ones(32), "exposure_column": "people"}, "exposure_column belongs to polygons of exposure"),
        ({"effort": np.ones(32), "effort_column": "share"}, "effort_column belongs to polygons of effort"),
        ({"fill_missing": "mean"}, "fill_missing has no effect without covariates"),
        ({"protect": "smooth"}, "protect has no effect without min_count"),
        ({"on_water": "drop", "max_snap": 3.0}, "max_snap has no effect: on_water='drop' moves no points"),
        ({"easting": "x", "northing": "y"}, "easting names a column, and the coordinates are those of an array"),
        ({"layer": "bites"}, "layer is one of a file with several layers; a ndarray has none"),
        ({"m": 4, "max_features": 10}, "max_features limits the features that are tried, and m=4"),
        *(
            ({"points": None, "areas": areas([9, 9, 9, 9]), "count": "cases", name: value}, f"{name} has no effect")
            for name, value in (("weights", "w"), ("layer", "a"), ("on_water", "drop"), ("points_crs", 4326))
        ),
    ],
)
def test_an_option_without_effect_is_refused_with_the_reason(given, words):
    points = np.random.default_rng(0).uniform((0, 0), (8, 4), (40, 2))
    options = {"points": points, "land": box(0, 0, 8, 4), "crs": "local", "cell_size": 1.0, "max_seconds": 0.0}
    with pytest.raises(DataError, match=re.escape(words)):
        map_intensity(**(options | given))


def test_options_without_effect_are_refused_elsewhere_too(domain, tmp_path, capsys):
    for use, words in (
        (lambda: LGCP(HarmonicBasis.compute(domain, 4), fill_missing="mean"), "fill_missing has no effect"),
        (lambda: bin_areas(areas([1, 2, 3, 4]), domain, "cases", absent="zero"), "absent belongs to counts with dates"),
        (lambda: bin_points(domain.node_points, domain, on_water="drop", max_snap=1.0), "max_snap has no effect"),
        (lambda: bin_points(gpd.GeoSeries.from_xy([1], [1]), domain, easting="x", northing="y"), "easting names a col"),
    ):
        with pytest.raises(DataError, match=words):
            use()
    point = gpd.GeoDataFrame(geometry=gpd.points_from_xy([1], [1]), crs=32631)
    point.to_file(tmp_path / "p.gpkg")
    files = ["map", f"{tmp_path}/p.gpkg", "--land", f"{tmp_path}/p.gpkg", "-o", f"{tmp_path}/out"]
    for words, message in (
        (["--regions-by", "name"], "--regions-by has no effect without --regions"),
        (["--exposure-column", "n"], "--exposure-column has no effect without --exposure"),
        (["--fill-missing"], "--fill-missing has no effect without --covariate"),
    ):
        assert main([*files, *words]) == 1
        assert message in capsys.readouterr().err
    assert main(["simulate", "--posterior", "a.geobgp", "--cell-size", "3", "-o", "p.csv"]) == 1
    assert "--cell-size has no effect with --posterior" in capsys.readouterr().err


# -- extreme numbers


def test_numbers_that_cannot_be_computed_with_are_refused(domain):
    basis, n = HarmonicBasis.compute(domain, 4), domain.n_nodes
    one = np.where(np.arange(n) == 3, 1e300, 1.0)
    for use in (
        lambda: LGCP(basis, exposure=one),
        lambda: LGCP(basis, covariates={"x": one}),
        lambda: LGCP(basis, effort=np.full(n, 1e-300)),
        lambda: LGCP(basis).fit(one),
        lambda: bin_points(domain.node_points, domain, weights=one),
        lambda: bin_areas(areas([1e300, 1, 1, 1]), domain, "cases"),
        lambda: bin_areas(areas([None, 1, 1, 1]), domain, "cases", suppressed=(1, 10**30)),
        lambda: Matern(1.5, 1e-300, 1.0),
        lambda: Matern(1.5, 1.0, 1e300),
    ):
        with pytest.raises(DataError, match=r"too large to compute with|zero everywhere|from 1e-20 to 1e20"):
            use()
    for size in (1e-300, 1e300):
        with pytest.raises(GeobgpError, match="cell_size"):
            Domain.from_polygons(box(0, 0, 8, 4), cell_size=size, crs="local")
        with pytest.raises(GeobgpError, match="cell_size"):
            map_intensity(domain.node_points, box(0, 0, 8, 4), cell_size=size, crs="local")
        with pytest.raises(GeobgpError, match="cannot be computed with"):
            Domain.from_polygons(box(0, 0, size, size), cell_size=size / 4, crs="local")
    table = pd.DataFrame({"easting": [1, 2, 3, 4, 5], "northing": 1.0, "v": np.arange(5) * 1e-300})
    with pytest.raises(DataError, match="All values are below 1e-100"):
        values_of(table, "v")


def test_maps_of_other_areas_with_the_same_numbers_are_not_compared(domain):
    model = LGCP(HarmonicBasis.compute(domain, 16), Matern(1.5, 3.0, 0.5))
    rows = [box(0, k, 8, k + 1) for k in range(4)]
    one, other = (model.fit(bin_areas(areas([9, 7, 8, 6], shapes=s), domain, "cases")) for s in (QUARTERS, rows))
    with pytest.raises(DataError, match="other areas, or other numbers in them"):
        compare({"one": one, "other": other})


def test_an_iterator_that_was_read_before_and_flags_for_people_are_refused(domain):
    parts = (table for table in [domain.node_points])
    assert bin_points(parts, domain).n_used == domain.n_nodes
    with pytest.raises(DataError, match="the iterable gives no table at all"):
        bin_points(parts, domain)
    flags = gpd.GeoDataFrame({"population": [True, False, True, True]}, geometry=QUARTERS)
    with pytest.raises(DataError, match="holds True and False, and no numbers"):
        node_exposure(flags, domain)


def test_confounders_that_say_the_same_are_named(domain):
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {"easting": rng.uniform(0, 8, 80), "northing": rng.uniform(0, 4, 80), "age": rng.uniform(20, 80, 80)}
    )
    table = table.assign(born=2020 - table["age"], status=np.arange(80) % 2)
    with pytest.warns(InputWarning, match=r"The confounders 'age' and 'born' have a correlation of -1\.0000"):
        Groups.of(
            *(
                place_persons(rows, domain, what, ["age", "born"])
                for what, rows in split_status(table, "status").items()
            )
        )
