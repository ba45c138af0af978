from __future__ import annotations

import numpy as np
import pytest
from over_time import moving
from posteriors import disc

from geobgp.data.periods import Periods
from geobgp.errors import DataError
from geobgp.output.figures import Course

YEARS = Periods.calendar("year", "2018", "2020")


def test_a_fit_and_its_forecast_are_one_course():
    fitted, ahead = moving(disc(), YEARS), moving(disc(), YEARS.ahead(2), observed=False)
    course = Course(fitted, ahead)
    assert course.labels == ["2018", "2019", "2020", "2021", "2022"] and (course.n, course.known) == (5, 3)
    assert [str(e)[:4] for e in course.edges] == ["2018", "2019", "2020", "2021", "2022", "2023"]
    np.testing.assert_array_equal(course.data["mean"].values[:3], fitted.intensity()["mean"].values)
    np.testing.assert_array_equal(course.data["mean"].values[3:], ahead.intensity()["mean"].values)
    np.testing.assert_array_equal(course.exceedance(0.3)[4], ahead.at(1).exceedance(0.3).values)
    assert course.level["forecast"].tolist() == [False] * 3 + [True] * 2
    assert np.isnan(course.level["observed"].iloc[-1])


def test_without_a_forecast():
    fitted = moving(disc(), YEARS)
    assert Course(fitted).labels == list(YEARS.labels)
    assert Course(fitted).data.sizes["time"] == 3


def test_a_forecast_follows():
    fitted = moving(disc(), YEARS)
    with pytest.raises(DataError, match="begins where the map ends") as caught:
        Course(fitted, moving(disc(), YEARS.ahead(3).slice(1, 3)))
    assert caught.value.option == "forecast" and caught.value.found.startswith("2022")
