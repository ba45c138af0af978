"""What varies by differences, such as a temperature, goes through the same writers as what varies by factors."""

from __future__ import annotations

import json

import numpy as np
import pytest
import rasterio
from posteriors import bumps, island, prescribed
from scipy.special import ndtr

from geobgp.output import palette
from geobgp.output.figures import plot_posterior
from geobgp.output.rasters import write_rasters
from geobgp.report.report import ReportInputs, write_report
from geobgp.web.layers import Decimals
from geobgp.web.maps import posterior_map
from geobgp.web.page import unpack

pytestmark = pytest.mark.usefixtures("_no_window")


class Measured:
    """A stand-in for a posterior of temperatures: what the writers ask of one."""

    units, quantity, drawn, overall = "°C", "temperature", "mean", 1.0
    default_title = title = "Temperature"

    def __init__(self):
        domain = island(2000.0)
        self._posterior = prescribed(domain, bumps(domain), 0.4, title="Temperature")

    def __getattr__(self, name):
        return getattr(self._posterior, name)

    def intensity(self):
        about = {"units": self.units, "quantity": self.quantity}
        data = self._posterior.latent()
        for name in data.data_vars:
            data[name].attrs |= about
        return data.assign_attrs(scale="linear", drawn="mean", title=self.title)

    def exceedance(self, threshold):
        data = self.intensity()
        return 1 - data["mean"].copy(data=ndtr((threshold - data["mean"].values) / data["sd"].values))

    def people_above(self, threshold, *more, **how):
        return self._posterior.people_above(float(np.exp(threshold)), *more, **how)


@pytest.fixture(scope="module")
def measured():
    return Measured()


def test_classes_are_even_and_reach_below_zero(measured):
    data = measured.intensity()
    classes = palette.classes_in(data, "mean")
    assert np.allclose(np.diff(classes.breaks), np.diff(classes.breaks)[0]) and (classes.breaks < 0).any()
    np.testing.assert_array_equal(palette.classes_in(data, "q95").breaks, classes.breaks)


def test_rasters_figures_and_pages_have_its_name_unit_and_sign(measured, tmp_path):
    data = measured.intensity()
    path = write_rasters(data, tmp_path)[0]
    assert "°C" in path.with_suffix(".qml").read_text("utf-8")
    with rasterio.open(path) as raster:
        np.testing.assert_array_equal(raster.read(1), data["mean"].values.astype(np.float32))
    ax = plot_posterior(measured, variable="uncertainty")
    assert ax.get_title(loc="left") == "Standard deviation"
    assert ax.get_legend().get_texts()[0].get_text() == "about 0.4 °C everywhere"

    html = posterior_map(measured, threshold=0.0).get_root().render()
    config = json.JSONDecoder().raw_decode(html[html.index('{"title":', html.index("geobgp.current")) :])[0]
    cells = config["cells"]
    codes = unpack(config["arrays"]["mean"], (cells["rows"], cells["cols"]))
    read = Decimals(cells["lowest"], cells["signed"]).decode(codes)
    box = data["mean"].values[cells["row"] : cells["row"] + cells["rows"], cells["col"] : cells["col"] + cells["cols"]]
    np.testing.assert_allclose(read, box, rtol=0.006)
    assert (read < 0).any() and "cv" not in config["arrays"]
    assert [layer["units"] for layer in config["layers"][:2]] == ["°C", "°C"]
    assert config["layers"][0]["heading"] == "Mean temperature"

    report = write_report(tmp_path / "r.html", measured, ReportInputs(thresholds=[0.0])).read_text("utf-8")
    assert "Probability that the temperature exceeds 0 °C" in report and "a map of the temperature" in report
    assert "in per cent of its mean" not in report and "vary by a factor" not in report
