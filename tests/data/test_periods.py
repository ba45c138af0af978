"""Periods: the calendar, edges, labels, and which period a date lies in."""

import datetime as dt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geobgp import DataError, SizeError
from geobgp.archive import pack, unpack
from geobgp.data.periods import CALENDAR, MOST_PERIODS, Periods, ordinals, starts_of

days = st.dates(dt.date(1700, 1, 1), dt.date(2200, 12, 31))


@given(st.sampled_from(CALENDAR), days, st.integers(0, 1500))
def test_every_day_lies_in_the_period_that_says_so(every, first, more):
    last = first + dt.timedelta(days=more)
    periods = Periods.calendar(every, first, last)
    assert periods.n == len(periods.labels) == len(set(periods.labels))
    assert (np.diff(periods.edges) > np.timedelta64(0, "s")).all()
    assert periods.index_of([first, last]).tolist() == [0, periods.n - 1]
    day, step = np.timedelta64(1, "D"), max(more // 50, 1)
    some = np.arange(np.datetime64(first), np.datetime64(last) + day, step * day)
    index = periods.index_of(some)
    at = some.astype("datetime64[s]")
    assert (periods.starts[index] <= at).all() and (at < periods.ends[index]).all()
    number = ordinals(some, every)
    np.testing.assert_array_equal(index, number - number[0])
    np.testing.assert_array_equal(starts_of(number, every).astype("datetime64[s]"), periods.starts[index])
    assert periods.index_of([first - dt.timedelta(days=400)]).tolist() == [-1]


@given(st.sampled_from(CALENDAR), days, st.integers(1, 40), st.integers(1, 40))
def test_what_is_ahead_goes_on_where_it_ended(every, first, n, k):
    start = int(ordinals(np.array([np.datetime64(first)]), every)[0])
    periods = Periods.of_ordinals(every, start, start + n - 1)
    whole = Periods.of_ordinals(every, start, start + n + k - 1)
    assert periods.ahead(k).same_as(whole.slice(n, n + k))
    assert whole.slice(0, n).same_as(periods)
    for label, where in zip(whole.labels, range(n + k), strict=True):
        assert whole.find(label) == where == whole.find(where)
    again = unpack(*pack(whole))
    assert again.same_as(whole) and again.labels == whole.labels


@given(days)
def test_a_day_lies_in_one_week_of_the_cdc(day):
    (number,) = ordinals(np.array([np.datetime64(day)]), "epiweek")
    week = Periods.of_ordinals("epiweek", number, number)
    sunday = week.starts[0].astype("datetime64[D]").item()
    assert sunday.isoweekday() == 7 and 0 <= (day - sunday).days < 7
    # The rule, told by its days: a week is of the year in which it has at least four, and week 1 is the first of them.
    all_days = [sunday + dt.timedelta(days=k) for k in range(7)]
    year = next(y for y in (day.year - 1, day.year, day.year + 1) if sum(d.year == y for d in all_days) >= 4)
    before = sum(1 for k in range(1, 54) if (sunday + dt.timedelta(days=3 - 7 * k)).year == year)
    assert week.labels == (f"{year}-EW{before + 1:02d}",)
    assert Periods.calendar("epiweek", *week.labels * 2).same_as(week)


def test_labels():
    assert Periods.calendar("day", "2020-02-28", "2020-03-01").labels == ("2020-02-28", "2020-02-29", "2020-03-01")
    assert Periods.calendar("week", "2020-12-28", "2021-01-04").labels == ("2020-W53", "2021-W01")
    assert Periods.calendar("epiweek", "2021-01-02", "2021-01-03").labels == ("2020-EW53", "2021-EW01")
    assert Periods.calendar("epiweek", "2020-EW01", "2020-EW53").n == 53
    assert Periods.calendar("epiweek", "2021-EW01", "2021-EW52").ahead(1).labels == ("2022-EW01",)
    assert Periods.calendar("quarter", "1961-02-16", "1961-07").labels == ("1961 Q1", "1961 Q2", "1961 Q3")
    assert Periods.between(["2020-01-01", "2020-01-15", "2020-03-01"]).labels == (
        "2020-01-01 to 2020-01-14",
        "2020-01-15 to 2020-02-29",
    )
    assert Periods.between([0, 2.5, 10]).labels == ("0 to 2.5", "2.5 to 10")


def test_calendar_periods_count_as_equal_and_edges_by_their_days():
    months = Periods.calendar("month", "2020-01", "2020-12")
    assert months.unit == "month" and months.per_year == 12 and months.steps.tolist() == [1.0] * 11
    assert months.widths.tolist() == [1.0] * 12
    np.testing.assert_allclose(months.years, np.arange(12) / 12)
    edges = Periods.between(["2020-01-01", "2020-01-11", "2020-01-21", "2020-02-20"])
    assert edges.unit == "day" and edges.widths.tolist() == [10.0, 10.0, 30.0] and edges.per_year is None
    np.testing.assert_allclose(edges.steps, [1.0, 2.0])
    numbers = Periods.between([0.0, 1.0, 3.0])
    assert numbers.unit == "unit of time" and not numbers.dated and numbers.per_year is None
    assert Periods.calendar("year", "1961", "1975").per_year is None
    thirty = Periods.between(np.datetime64("2020-01-01") + np.timedelta64(30, "D") * np.arange(12))
    assert thirty.per_year == pytest.approx(365.25 / 30)


def test_weeks_of_the_cdc_are_weeks():
    weeks = Periods.calendar("epiweek", "2020-EW05", "2020-EW07")
    assert weeks.noun == weeks.unit == "week" and weeks.words() == "3 weeks, 2020-EW05 to 2020-EW07"
    assert weeks.per_year == Periods.calendar("week", "2020-W05", "2020-W07").per_year
    assert weeks.index_of(["2020-EW06", "202006", "2020-02-02", "2020-02-01"]).tolist() == [1, 1, 1, 0]
    assert weeks.find(202007) == 2


def test_after_edges_come_periods_of_their_usual_width():
    assert Periods.between([0.0, 2.0, 4.0, 7.0]).ahead(2).edges.tolist() == [7.0, 9.0, 11.0]
    more = Periods.between(["2020-01-01", "2020-01-11", "2020-01-21"]).ahead(1)
    assert more.labels == ("2020-01-21 to 2020-01-30",)


def test_too_many_are_refused_with_their_number():
    with pytest.raises(SizeError, match="there are 10,958 days; at most 2,000") as error:
        Periods.calendar("day", "1990-01-01", "2020-01-01")
    assert error.value.found == 10_958 and "every='week'" in str(error.value)
    for every in ("week", "epiweek"):
        with pytest.raises(SizeError, match=r"weeks; at most 2,000.*every='month'"):
            Periods.calendar(every, "1900", "2000")
    assert Periods.calendar("day", "2015-01-01", "2019-12-31").n == 1826 < MOST_PERIODS


@pytest.mark.parametrize(
    "edges", [[], [1.0], [2.0, 1.0], ["2020-01-01", "2020-01-01"], ["2020-01-01", "soon"], [0, np.nan]]
)
def test_edges_rise(edges):
    with pytest.raises(DataError, match="each above the one before"):
        Periods.between(edges)


def test_mistakes_are_told():
    with pytest.raises(DataError, match="every is 'day', 'week'"):
        Periods.calendar("fortnight", "2020", "2021")
    with pytest.raises(DataError, match="from a first date to a last"):
        Periods.calendar("year", "2021", "2020")
    with pytest.raises(DataError, match=r"no period '1999': there are 15 years, 1961 to 1975"):
        Periods.calendar("year", "1961", "1975").find("1999")
    with pytest.raises(DataError, match="k must be a whole number of at least 1"):
        Periods.calendar("year", "1961", "1975").ahead(0)


def test_the_edges_cannot_be_written_to():
    with pytest.raises(ValueError, match="read-only"):
        Periods.between([0.0, 1.0]).edges[0] = 3.0
