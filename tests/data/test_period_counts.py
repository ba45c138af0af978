"""Counts by period: every event is in its period, empty periods stay, and nothing is dropped in silence."""

import warnings

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st
from shapely.geometry import box

from geobgp import DataError, Domain, GeobgpWarning, SizeError, bin_points
from geobgp.data.counts import Counts
from geobgp.data.periods import Clock, Periods
from geobgp.errors import DroppedPointsWarning

SQUARE = Domain.from_polygons(box(0, 0, 4, 4), cell_size=1, crs="local")

dates = st.one_of(
    st.dates(pd.Timestamp("2019-11-01").date(), pd.Timestamp("2020-12-31").date()).map(str),
    st.sampled_from([None, "", "2020-02-30", "soon", "2020-05"]),
)
places = st.one_of(st.floats(-3.0, 7.0), st.just(float("nan")))


def table(rows, **columns):
    return pd.DataFrame({"x": [r[0] for r in rows], "y": [r[1] for r in rows], "date": [r[2] for r in rows]} | columns)


def months(points, domain=SQUARE, every="month", **more):
    return bin_points(points, domain, time="date", every=every, **more)


def quietly(*args, **kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GeobgpWarning)
        return months(*args, **kwargs)


# --- laws -----------------------------------------------------------------------------------------


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.tuples(places, places, dates), max_size=60),
    st.integers(1, 40),
    st.sampled_from(["nearest", "drop"]),
    st.booleans(),
)
def test_every_row_is_somewhere(rows, chunksize, on_water, given_periods):
    between = ("2020-01", "2020-06") if given_periods else None
    frame = table([*rows, (1.5, 1.5, "2020-03-05")])
    try:
        counts = quietly(frame, on_water=on_water, chunksize=chunksize, between=between)
    except DataError as error:  # more than half of the column is no date
        assert "no dates" in str(error) or "longer than a month" in str(error)
        return
    assert counts.n_read == counts.n_used + counts.n_dropped + counts.n_untimed + counts.n_outside
    assert counts.n_read + counts.n_missing == len(frame)
    assert counts.values.sum() == counts.n_used and counts.values.shape == (counts.periods.n, SQUARE.n_nodes)
    # The same, as a plain loop.
    known = {date for date in frame["date"] if isinstance(date, str)} - {"", "soon", "2020-02-30"}
    expected = np.zeros_like(counts.values)
    for x, y, date in frame.itertuples(index=False):
        if not (np.isfinite(x) and np.isfinite(y)) or date not in known:
            continue
        period = [k for k, label in enumerate(counts.periods.labels) if date.startswith(label)]
        node = int(SQUARE.locate(np.array([[x, y]]))[0])
        if node < 0 and on_water == "nearest":
            node = int(SQUARE.nearest(np.array([[x, y]]), 2.0)[0][0])
        if period and node >= 0:
            expected[period[0], node] += 1
    np.testing.assert_array_equal(counts.values, expected)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.floats(0.1, 3.9), st.floats(0.1, 3.9), st.integers(0, 700)), min_size=1, max_size=50))
def test_periods_together_are_the_counts_without_time(rows):
    stamps = pd.Timestamp("2020-01-01") + pd.to_timedelta([r[2] for r in rows], unit="D")
    frame = pd.DataFrame({"x": [r[0] for r in rows], "y": [r[1] for r in rows], "date": stamps})
    plain = bin_points(frame, SQUARE)
    for every in ("day", "week", "epiweek", "month", "quarter", "year"):
        counts = months(frame, every=every)
        np.testing.assert_array_equal(counts.values.sum(axis=0), plain.values)
        np.testing.assert_array_equal(counts.pooled().values, plain.values)
        assert counts.pooled().n_used == plain.n_used
        assert counts.totals[0] > 0 and counts.totals[-1] > 0


# --- periods --------------------------------------------------------------------------------------


def test_empty_periods_stay():
    counts = months(table([(1, 1, "2020-01-31"), (1, 1, "2020-05-01")]))
    assert counts.periods.labels == ("2020-01", "2020-02", "2020-03", "2020-04", "2020-05")
    assert counts.totals.tolist() == [1, 0, 0, 0, 1] and "3 without events" in counts.report()
    wider = months(table([(1, 1, "2020-01-31")]), between=("2019-12", "2020-02"))
    assert wider.totals.tolist() == [0, 1, 0]


def test_weights_are_summed_by_period():
    frame = table([(1, 1, "2020"), (1, 1, "2021"), (3, 3, "2021")], cases=[2.0, 3.0, 4.0])
    counts = months(frame, every="year", weights="cases")
    assert counts.totals.tolist() == [2.0, 7.0] and counts.total_weight == 9.0 and counts.n_used == 3
    again = months(frame, every="year", weights=np.array([2.0, 3.0, 4.0]))
    np.testing.assert_array_equal(again.values, counts.values)


def test_years_weeks_and_six_digits():
    assert months(table([(1, 1, 1961), (1, 1, 1963)]), every="year").totals.tolist() == [1, 0, 1]
    weeks = months(table([(1, 1, "2020-W53"), (1, 1, "2021W01")]), every="week")
    assert weeks.periods.labels == ("2020-W53", "2021-W01")
    assert months(table([(1, 1, 202053)]), every="week").periods.labels == ("2020-W53",)
    sundays = months(table([(1, 1, "2020-EW53"), (1, 1, "2021EW01"), (1, 1, "2021-01-03")]), every="epiweek")
    assert sundays.periods.labels == ("2020-EW53", "2021-EW01") and sundays.totals.tolist() == [1, 2]
    assert months(table([(1, 1, 202053)]), every="epiweek").periods.labels == ("2020-EW53",)
    assert months(table([(1, 1, 202011)])).periods.labels == ("2020-11",)
    # A week is in the month of its Thursday.
    assert months(table([(1, 1, "2020-W05"), (1, 1, "2020-W18")])).periods.labels == (
        "2020-01", "2020-02", "2020-03", "2020-04")  # fmt: skip


def test_given_edges_and_what_lies_outside():
    rows = [(1, 1, "2020-01-01"), (1, 1, "2020-01-14"), (1, 1, "2020-01-15"), (1, 1, "2020-02-01")]
    counts = months(table(rows), every=["2020-01-01", "2020-01-15", "2020-02-01"])
    assert counts.totals.tolist() == [2, 1] and counts.n_outside == 1
    assert "dropped, outside the periods: 1" in counts.report()
    assert months(table(rows), every="2020-01-01, 2020-01-15, 2020-02-01").totals.tolist() == [2, 1]
    years = months(table([(1, 1, "1961-05-01"), (1, 1, "1970-01-01")]), every=[1960, 1965, 1975])
    assert years.totals.tolist() == [1, 1] and years.periods.dated
    with pytest.warns(DroppedPointsWarning, match="3 of 4 rows lie outside the periods"):
        months(table(rows), every=["2020-02-01", "2020-02-15"])
    given_ones = Periods.calendar("month", "2020-01", "2020-02")
    assert months(table(rows), every=given_ones).totals.tolist() == [3, 1]


def test_plain_numbers():
    rows = [(1, 1, 0.5), (1, 1, 2.0), (1, 1, np.nan), (1, 1, 9.0)]
    with pytest.warns(DroppedPointsWarning, match="1 of 4 rows"):
        counts = months(table(rows), every=[0, 1, 5])
    assert counts.totals.tolist() == [1, 1] and counts.n_untimed == 1 and counts.n_outside == 1
    with pytest.raises(DataError, match="plain numbers, and the column 'date' has dates"):
        months(table([(1, 1, "2020-01-01")]), every=[0, 1, 5])


# --- sources --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def events():
    rng = np.random.default_rng(3)
    stamps = pd.Timestamp("2019-06-01") + pd.to_timedelta(rng.integers(0, 900, 500), unit="D")
    xy = rng.uniform(0, 4, (500, 2))
    return gpd.GeoDataFrame({"date": stamps}, geometry=shapely.points(xy), crs="EPSG:32631")


def test_files_and_streams_say_the_same(tmp_path, events):
    domain = Domain.from_polygons(gpd.GeoSeries([box(0, 0, 4, 4)], crs="EPSG:32631"), cell_size=1, crs="EPSG:32631")
    expected = months(events, domain)
    events.to_file(tmp_path / "e.gpkg")
    events.to_parquet(tmp_path / "e.parquet")
    xy = pd.DataFrame({"easting": events.geometry.x, "northing": events.geometry.y, "date": events["date"].dt.date})
    xy.to_csv(tmp_path / "e.csv", index=False)
    xy.assign(date=[f"{d:%d.%m.%Y}" for d in xy["date"]]).to_csv(tmp_path / "d.csv", index=False, sep=";")
    for source in (
        tmp_path / "e.gpkg",
        tmp_path / "e.parquet",
        tmp_path / "e.csv",
        (xy[k : k + 70] for k in range(0, 500, 70)),
    ):
        counts = months(source, domain, chunksize=64)
        assert counts.periods.same_as(expected.periods)
        np.testing.assert_array_equal(counts.values, expected.values)
    for how in ({"date_format": "%d.%m.%Y"}, {}, {"chunksize": 3}):
        counts = months(tmp_path / "d.csv", domain, **how)
        np.testing.assert_array_equal(counts.values, expected.values)
    assert "day first" in counts.report()
    counts = bin_points(
        xy[["easting", "northing"]].to_numpy(), domain, time=events["date"], every="month", chunksize=33
    )
    np.testing.assert_array_equal(counts.values, expected.values)


def test_memory_does_not_grow_with_the_number_of_events():
    import tracemalloc

    def chunks(n):
        rng = np.random.default_rng(0)
        for _ in range(n):
            day = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 365, 20_000), unit="D")
            yield pd.DataFrame({"x": rng.uniform(0, 4, 20_000), "y": rng.uniform(0, 4, 20_000), "date": day})

    peaks = []
    for n in (3, 24):
        tracemalloc.start()
        counts = months(chunks(n))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert counts.n_used == 20_000 * n
    assert peaks[1] < 1.5 * peaks[0]


# --- what is told ---------------------------------------------------------------------------------


def test_undated_events_are_counted_and_said():
    rows = [(1, 1, "2020-01-01")] * 20 + [(1, 1, None), (1, 1, "2020-02-31"), (1, 1, "2020")]
    with pytest.warns(DroppedPointsWarning) as told:
        counts = months(table(rows))
    text = str(told[0].message)
    assert "3 of 23 rows (13.0 %)" in text and "1 have none and 1 cannot be read and 1 are too vague" in text
    assert "'2020-02-31', '2020'" in text and counts.n_untimed == 3 and counts.warnings == [counts.untimed_warning]
    assert "dropped, without a usable date: 3" in counts.report() and "3 undated" in repr(counts)


def test_zones_are_said():
    counts = months(table([(1, 1, "2020-03-01T00:30:00+02:00")]))
    assert counts.periods.labels == ("2020-03",) and "+02:00" in counts.report()


@pytest.mark.parametrize(
    ("rows", "how", "match"),
    [
        ([(1, 1, "2020")] * 3, {}, "longer than a month.*every='year'"),
        ([(1, 1, "2020-W03")] * 3, {"every": "day"}, "longer than a day"),
        ([(1, 1, "2020-03")] * 3, {"every": "epiweek"}, "longer than a week"),
        ([(1, 1, "5 Jan 2020")] * 3, {}, "which are no dates.*date_format"),
        ([(1, 1, 43831)] * 3, {}, "which are no dates.*plain numbers"),
        ([(1, 1, "03/04/2020")], {}, "day or month first"),
        ([(1, 1, None)], {}, "No event has both a place on the land and a date"),
        ([(1, 1, "2020-01-01")], {"every": None}, "How long is a period"),
        ([(1, 1, "2020-01-01")], {"every": "fortnight"}, "every is 'day'"),
        ([(1, 1, "2020-01-01")], {"between": "2020"}, "a first and a last date"),
        ([(1, 1, "2020-01-01")], {"every": [2019, 2021], "between": ("2019", "2020")}, "goes with calendar periods"),
        ([(1, 1, "2020-01-01")], {"date_format": "dd/mm"}, "strptime"),
    ],
)  # fmt: skip
def test_mistakes_are_told(rows, how, match):
    with pytest.raises(DataError, match=match):
        months(table(rows), **how)


def test_a_wrong_date_that_makes_too_many_periods_is_told():
    with pytest.raises(SizeError, match=r"From 2020-01-01 to 2999-12-31 there are .* days"):
        months(table([(1, 1, "2020-01-01"), (1, 1, "2999-12-31")]), every="day")


def test_periods_are_only_for_events_with_dates():
    with pytest.raises(DataError, match="every belongs to events with dates"):
        bin_points(np.ones((2, 2)), SQUARE, every="month")
    with pytest.raises(DataError, match="there is no column 'when'"):
        bin_points(table([(1, 1, "2020")]), SQUARE, time="when", every="year")
    with pytest.raises(DataError, match="time: 1 dates for"):
        bin_points(np.ones((2, 2)), SQUARE, time=["2020"], every="year")
    with pytest.raises(DataError, match="time='date' is no column"):
        bin_points(np.ones((2, 2)), SQUARE, time="date", every="year")


def test_parts_of_the_counts():
    counts = months(table([(1, 1, "2020-01-31"), (1, 1, "2020-03-01"), (3, 3, "2020-03-02")]))
    assert isinstance(counts, Counts) and counts.n_periods == 3
    later = counts.slice(1, 3)
    assert later.periods.labels == ("2020-02", "2020-03") and later.total_weight == 2.0
    assert not counts.values.flags.writeable
    assert (later.n_used, later.n_read, counts.at("2020-03").n_used, counts.at(1).n_used) == (2, 2, 2, 0)
    np.testing.assert_array_equal(counts.at(-1).values, counts.values[2])
    assert counts.at(0).periods is None and counts.pooled().pooled() is not None


def test_other_events_have_another_digest():
    rows = [(1, 1, "2020-01-31"), (1, 1, "2020-03-01"), (3, 3, "2020-03-02")]
    counts = months(table(rows))
    assert months(table(rows[::-1])).digest == counts.digest
    others = [
        months(table([(1, 3, "2020-01-31"), *rows[1:]])),  # another place
        months(table([(1, 1, "2020-02-01"), *rows[1:]])),  # another month
        months(table(rows), every="quarter"),
        months(table(rows, n=[1.0, 1.0, 2.0]), weights="n"),
        months(table(rows), domain=Domain.from_polygons(box(0, 0, 4, 4), cell_size=2, crs="local")),
        counts.pooled(),
        counts.slice(0, 2),
    ]
    assert len({counts.digest, *(other.digest for other in others)}) == 1 + len(others)
    assert Clock.asked(None, None, None, None) is None


def test_dates_wait_for_one_that_shows_whether_day_or_month_comes_first():
    written = ["03/04/2020", "05/06/2020", "01/02/2020", "13/02/2020", "02/03/2020"]
    rows = table([(1, 1, date) for date in written])
    counts = bin_points(rows, SQUARE, time="date", every="month", chunksize=1)
    assert counts.periods.labels[0] == "2020-02" and counts.totals.tolist() == [2.0, 1.0, 1.0, 0.0, 1.0]
    assert "dates are read with the day first, as '13/02/2020' shows" in counts.report()
    for chunksize in (1, 100):
        with pytest.raises(DataError, match=r"'03/04/2020' can be read in two ways, and no other tells"):
            bin_points(rows.iloc[:3], SQUARE, time="date", every="month", chunksize=chunksize)
        both = table([(1, 1, date) for date in [*written, "02/14/2020"]])
        with pytest.raises(DataError, match=r"'13/02/2020' has the day first, '02/14/2020' the month"):
            bin_points(both, SQUARE, time="date", every="month", chunksize=chunksize)
    given = bin_points(np.ones((5, 2)), SQUARE, time=written, every="month", chunksize=1)
    np.testing.assert_array_equal(given.values, counts.values)
