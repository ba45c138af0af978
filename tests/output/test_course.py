from __future__ import annotations

import numpy as np
import pytest
from over_time import moving
from posteriors import disc

from geobgp.data.periods import Periods
from geobgp.errors import DataError
from geobgp.output.grids import View

YEARS = Periods.calendar("year", "2018", "2020")


def test_a_fit_and_its_forecast_are_one_view():
    fitted, ahead = moving(disc(), YEARS), moving(disc(), YEARS.ahead(2), observed=False)
    view = View(fitted, ahead)
    assert view.labels == ["2018", "2019", "2020", "2021", "2022"] and (view.n, view.n_fitted) == (5, 3)
    assert [str(e)[:4] for e in view.periods.edges] == ["2018", "2019", "2020", "2021", "2022", "2023"]
    np.testing.assert_array_equal(view.data["mean"].values[:3], fitted.intensity()["mean"].values)
    np.testing.assert_array_equal(view.data["mean"].values[3:], ahead.intensity()["mean"].values)
    np.testing.assert_array_equal(view.exceedance(0.3)[4], ahead.at(1).exceedance(0.3).values)
    assert view.level["forecast"].tolist() == [False] * 3 + [True] * 2
    assert np.isnan(view.level["observed"].iloc[-1])


def test_without_a_forecast():
    fitted = moving(disc(), YEARS)
    assert View(fitted).labels == list(YEARS.labels)
    assert View(fitted).data.sizes["time"] == 3


def test_a_forecast_follows():
    fitted = moving(disc(), YEARS)
    with pytest.raises(DataError, match="begins where the map ends") as caught:
        View(fitted, moving(disc(), YEARS.ahead(3).slice(1, 3)))
    assert caught.value.option == "forecast" and caught.value.found.startswith("2022")
