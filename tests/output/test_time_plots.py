from __future__ import annotations

import numpy as np
import pytest
from over_time import Stack, moving
from posteriors import disc, island, prescribed

from geobgp.data.periods import Periods
from geobgp.errors import DataError
from geobgp.output import palette
from geobgp.output.figures import plot_level, plot_posterior
from geobgp.output.grids import View

pytestmark = pytest.mark.usefixtures("_no_window")
MONTHS = Periods.calendar("month", "2018-01", "2020-06")


@pytest.fixture(scope="module")
def source():
    return moving(disc(), MONTHS, title="Bites")


@pytest.fixture(scope="module")
def ahead():
    return moving(disc(), MONTHS.ahead(3), observed=False)


def panels(figure):
    return [ax for ax in figure.axes if ax.get_title(loc="left")]


def test_a_map_for_each_period_in_one_set_of_classes(source, ahead):
    figure = plot_posterior(source, forecast=ahead, periods=["2018-01", "2020-06", "2020-07"])
    drawn = panels(figure)
    assert [ax.get_title(loc="left") for ax in drawn] == ["2018-01", "2020-06", "2020-07 (forecast)"]
    view = View(source, ahead)
    classes = palette.classes_in(view.data, "mean")
    for ax, k in zip(drawn, (0, 29, 30), strict=True):
        values = view.data["mean"].values[k]
        shown = np.ma.filled(ax.images[0].get_array(), np.nan)
        np.testing.assert_array_equal(shown, np.where(np.isnan(values), np.nan, classes.index(values)))
        assert ax.images[0].norm.vmax == classes.n - 0.5
    # One colour bar for them all, with the unit.
    bars = [ax for ax in figure.axes if ax.get_ylabel()]
    assert [ax.get_ylabel() for ax in bars] == ["mean, events per unit area"]


def test_of_many_periods_every_second_is_drawn(source, ahead):
    figure = plot_posterior(source)
    assert len(panels(figure)) == 15
    assert panels(figure)[-1].get_title(loc="left") == "2020-06"
    assert figure._suptitle.get_text() == "Bites; 15 of 30 months"
    figure = plot_posterior(source, forecast=ahead, columns=16, periods=[*MONTHS.labels[:14], *ahead.periods.labels])
    figure.canvas.draw()
    ends = [ax._left_title.get_window_extent() for ax in panels(figure)]
    assert not any(one.overlaps(other) for k, one in enumerate(ends) for other in ends[:k])


def test_uncertainty_and_a_map_of_one_class():
    same = Stack(MONTHS.slice(0, 2), (prescribed(island(4000.0), 0.0, 0.3),) * 2)
    assert len(panels(plot_posterior(same, variable="uncertainty"))) == 2


def test_mistakes(source):
    with pytest.raises(DataError, match="variable is one of mean, sd"):
        plot_posterior(source, variable="mode")
    with pytest.raises(DataError, match="There is no period '2031'"):
        plot_posterior(source, periods=["2031"])
    with pytest.raises(DataError, match="none was named"):
        plot_posterior(source, periods=[])


def test_the_level_and_its_forecast(source, ahead):
    view = View(source, ahead)
    figure = plot_level(view)
    top, below = figure.axes
    lines = {line.get_linestyle(): line for line in top.lines if len(line.get_xdata()) > 2}
    np.testing.assert_allclose(lines["-"].get_ydata(), view.level["level"][:30])
    np.testing.assert_allclose(lines["--"].get_ydata(), view.level["level"][29:])
    band = top.collections[0].get_paths()[0].vertices[:, 1]
    assert band.min() == pytest.approx(view.level["level_q05"][:30].min())
    heights = [bar.get_height() for bar in below.patches]
    np.testing.assert_array_equal(heights[:30], source.observed)
    # The band of expected events, and strokes of what a period brings, reach over the forecast too.
    bands = [band.get_paths()[0].vertices for band in below.collections if len(band.get_paths()) == 1]
    assert bands[0][:, 1].max() == pytest.approx(view.level["expected_q95"][:30].max())
    assert bands[1][:, 0].max() == view.n - 1
    strokes = np.array([path.vertices for path in below.collections[-1].get_paths()])
    np.testing.assert_allclose(strokes[:, 1, 1], view.level["predicted_q95"])
    assert len(strokes) == view.n
    # Where nothing was observed there are no bars.
    alone = plot_level(View(ahead))
    assert len(alone.axes) == 2 and not alone.axes[1].patches
