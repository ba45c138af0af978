"""Dates: what a column can be written in, what is asked for, and what is no date."""

import datetime as dt

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geobgp import DataError
from geobgp.data.periods import check_format, middle_of_weeks, parse, texts_of, week_start

days = st.dates(dt.date(1000, 1, 1), dt.date(2999, 12, 31))


def one(text, **how):
    found = parse([text], **how)
    return str(found.first[0]), str(found.last[0])


@given(days)
def test_a_day_is_a_day_however_it_is_written(day):
    for text in (day.isoformat(), day.strftime("%Y/%m/%d"), day.strftime("%Y%m%d"), f"{day:%Y}.{day.month}.{day.day}"):
        assert one(text) == (day.isoformat(), day.isoformat())


@given(days)
def test_a_week_is_that_of_the_calendar(day):
    year, week, weekday = day.isocalendar()
    if not 1000 <= year < 3000:
        return
    monday = day - dt.timedelta(days=weekday - 1)
    both = monday.isoformat(), (monday + dt.timedelta(days=6)).isoformat()
    for text in (f"{year}-W{week:02d}", f"{year}W{week:02d}", f"{year} w{week}"):
        assert one(text) == both
    assert one(f"{year}{week:02d}", every="week") == both
    assert one(f"{year}-W{week:02d}-{weekday}") == (day.isoformat(), day.isoformat())
    assert str(week_start(year, week)) == monday.isoformat()


@pytest.mark.parametrize(
    ("week", "sunday"),
    [
        ("2020-EW01", "2019-12-29"),
        ("2020-EW53", "2020-12-27"),
        ("2021-EW01", "2021-01-03"),
        ("2014-EW53", "2014-12-28"),
        ("2015-EW01", "2015-01-04"),
    ],
)
def test_weeks_of_the_cdc_begin_on_sunday(week, sunday):
    both = sunday, str(np.datetime64(sunday) + np.timedelta64(6, "D"))
    for text in (week, week.replace("-", ""), week.replace("-EW", " ew")):
        assert one(text) == both
    assert one(week.replace("-EW", ""), every="epiweek") == both


@given(days)
def test_months_quarters_and_years_end_on_their_last_day(day):
    after = (day.replace(day=1) + dt.timedelta(days=32)).replace(day=1)
    start = day.replace(day=1).isoformat()
    last = (after - dt.timedelta(days=1)).isoformat()
    assert one(f"{day:%Y-%m}") == one(f"{day:%Y%m}") == (start, last)
    assert one(f"{day:%Y}") == (f"{day:%Y}-01-01", f"{day:%Y}-12-31")
    quarter = (day.month + 2) // 3
    assert one(f"{day:%Y} Q{quarter}")[0] == f"{day:%Y}-{3 * quarter - 2:02d}-01"


@pytest.mark.parametrize(
    "text",
    [
        "2020-02-30",
        "2020-13",
        "2021-W53",
        "2020-W00",
        "2021-EW53",
        "2020-EW54",
        "2020-EW00",
        "soon",
        "43831",
        "5 Jan 2020",
        "12.5",
    ],
)
def test_what_is_no_date_is_none(text):
    assert one(text) == ("NaT", "NaT")


@pytest.mark.parametrize("text", ["03/04/2020", "3.4.2020", "1-12-2020", "3/4/20", "31/4/20", "03/04/2020 12:30"])
def test_day_or_month_first_is_asked(text):
    with pytest.raises(DataError, match="day or month first") as error:
        parse(["2020-01-01", text])
    assert error.value.option == "date_format" and "%d" in str(error.value) and "%m" in str(error.value)


@pytest.mark.parametrize(
    ("texts", "days"),
    [
        (["16/02/1961"], ["1961-02-16"]),
        (["02/16/1961"], ["1961-02-16"]),
        (["03/04/1961", "16/02/1961"], ["1961-04-03", "1961-02-16"]),
        (["03/04/1961", "02/16/1961"], ["1961-03-04", "1961-02-16"]),
        (["3.4.1961", "31.12.1961", "1961-05-06"], ["1961-04-03", "1961-12-31", "1961-05-06"]),
        (["03/04/1961 12:30", "16/02/1961 08:00"], ["1961-04-03", "1961-02-16"]),
        (["05/05/1961"], ["1961-05-05"]),
        (["16/02/1961", "31/02/1961", "16/16/1961"], ["1961-02-16", "NaT", "NaT"]),
    ],
)
def test_a_date_that_can_be_read_in_one_way_decides_for_the_whole_column(texts, days):
    assert [str(day) for day in parse(texts).first] == days


def test_dates_that_tell_different_things_are_refused():
    with pytest.raises(DataError, match="'16/02/1961' has the day first, '02/16/1961' the month"):
        parse(["16/02/1961", "02/16/1961"])


def test_a_format_settles_it():
    assert one("03/04/2020", date_format="%d/%m/%Y")[0] == "2020-04-03"
    assert one("03/04/2020", date_format="%m/%d/%Y")[0] == "2020-03-04"
    assert one("02/2020", date_format="%m/%Y") == ("2020-02-01", "2020-02-29")
    assert one("5 Jan 2020", date_format="%d %b %Y")[0] == "2020-01-05"
    assert one("soon", date_format="%d/%m/%Y") == ("NaT", "NaT")
    with pytest.raises(DataError, match="strptime"):
        check_format("day first")


def test_columns_of_every_kind():
    day = dt.date(2020, 3, 1)
    late = dt.datetime(2020, 3, 1, 23, 30)
    for column in (
        [day, None],
        [late, pd.NaT],
        pd.Series([late, pd.NaT]),
        pd.Series(["2020-03-01T23:30:00", ""]),
        pd.Series(["2020-03-01 23:30", "n/a"], dtype="string"),
        pd.Series(["2020-03-01", None], dtype="category"),
        pd.Series(pd.PeriodIndex(["2020-03-01", "NaT"], freq="D")),
        pd.Series([20200301.0, np.nan]),
    ):
        texts = texts_of(column)
        found = parse(texts.values)
        assert texts.which.tolist()[1] == -1
        assert str(found.first[texts.which[0]]) == "2020-03-01"


def test_the_date_on_the_wall_counts():
    zone = dt.timezone(dt.timedelta(hours=2))
    aware = pd.Series([dt.datetime(2020, 3, 1, 0, 30, tzinfo=zone)])  # still February in UTC
    for column in (
        aware,
        aware.astype(object),
        pd.Series(["2020-03-01T00:30:00+02:00"]),
        pd.Series(["2020-03-01 00:30+0200"]),
    ):
        texts = texts_of(column)
        assert texts.values == ["2020-03-01"] and texts.zones
    assert texts_of(pd.Series(["2020-03-01T12:00Z"])).zones == ("Z",)
    assert texts_of(pd.Series(["2020-03-01"])).zones == ()


def test_weeks_belong_to_their_fourth_day():
    found = middle_of_weeks(parse(["2020-W01", "2020-EW01", "2020-03-05", "2020-03"]))
    assert [str(d) for d in found.first] == ["2020-01-02", "2020-01-01", "2020-03-05", "2020-03-01"]
    assert [str(d) for d in found.last] == ["2020-01-02", "2020-01-01", "2020-03-05", "2020-03-31"]
