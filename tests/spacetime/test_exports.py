"""What a posterior over periods writes and draws, all periods at once or one of them."""

from __future__ import annotations

import geopandas as gpd
import numpy as np
import outbreak
import pytest
import shapely

from geobgp import DataError

HALVES = gpd.GeoDataFrame({"name": ["west", "east"]}, geometry=[shapely.box(0, 0, 6, 8), shapely.box(6, 0, 12, 8)])


@pytest.fixture(scope="module")
def posterior():
    return outbreak.fitted()


@pytest.fixture(scope="module")
def ahead(posterior):
    return posterior.forecast(2)


@pytest.mark.usefixtures("_no_window")
def test_small_maps_one_map_and_the_level(posterior, ahead):
    figure = posterior.plot(forecast=ahead, periods=["2010-01", -1, "2012-07"])
    titles = [ax.get_title(loc="left") for ax in figure.axes if ax.get_title(loc="left")]
    assert titles == ["2010-01", "2012-06", "2012-07 (forecast)"]
    assert posterior.plot(period="2010-04").get_title(loc="left").endswith("2010-04")
    top = posterior.plot_level(forecast=ahead).axes[0]
    drawn = next(line for line in top.lines if line.get_linestyle() == "-" and len(line.get_xdata()) == 30)
    np.testing.assert_allclose(drawn.get_ydata(), posterior.level()["level"])


def test_the_page_that_plays_and_the_report(posterior, ahead, tmp_path):
    with pytest.raises(DataError, match="begins where the map ends"):
        posterior.to_map(forecast=posterior)
    posterior.to_map(tmp_path / "map.html", forecast=ahead, regions=HALVES, threshold=1.0)
    html = (tmp_path / "map.html").read_text("utf-8")
    assert '"2012-08"' in html and '"name":"east"' in html and html.count("data:image/png") >= 3 * 32
    report = posterior.to_report(tmp_path / "report.html", forecast=ahead, regions=HALVES).read_text("utf-8")
    assert "2012-08 (forecast)" in report and ">east<" in report and "events per unit area per month" in report


def test_rasters_know_when_they_are(posterior, tmp_path):
    made = posterior.to_raster(tmp_path, [1.0], cmap="magma")
    assert len(made) == 30 * 6 + 1 and made[0].name == "mean_2010-01.tif"
    assert made[0].with_suffix(".qml").read_text() != posterior.to_raster(tmp_path)[0].with_suffix(".qml").read_text()
    assert (tmp_path / "exceedance_1_2012-06.tif").exists() and (tmp_path / "coverage.tif").exists()
