"""Classes and colours that were asked for: the same in rasters' styles, on the map and in figures."""

from __future__ import annotations

import dataclasses
import json
import xml.etree.ElementTree as ET

import matplotlib
import numpy as np
import pytest
from posteriors import bumps, fitted, island, prescribed

from geobgp import Posterior
from geobgp.errors import DataError, InputWarning
from geobgp.output import palette
from geobgp.style import Style
from geobgp.text import number


@pytest.fixture(scope="module")
def posterior():
    domain = island(2000.0)
    return prescribed(domain, bumps(domain), 0.4)


@pytest.fixture(scope="module")
def risk():
    made = fitted()[0]
    return dataclasses.replace(made, exposure=made.exposure * made.overall, exposure_kind="expected")


def legend(path):
    """Return upper breaks, colours and labels of a QGIS style."""
    items = ET.parse(path).getroot().iter("item")
    return [(float(i.get("value")), i.get("color"), i.get("label")) for i in items]


@pytest.mark.parametrize(
    ("asked", "breaks"),
    [
        ({"classes": [0.1, 0.2, 0.5]}, [0.1, 0.2, 0.5]),
        ({"classes": np.array([1.0])}, [1.0]),
        ({"classes": 5, "vmin": 0, "vmax": 10}, [2, 4, 6, 8]),
        ({"vmin": 0, "vmax": 1}, [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]),
    ],
)
def test_one_choice_of_classes_is_seen_everywhere(posterior, asked, breaks, tmp_path):
    posterior.to_raster(tmp_path, **asked, cmap="viridis")
    for name in ("mean", "q05", "q95"):
        found = legend(tmp_path / f"{name}.qml")
        assert [top for top, _, _ in found] == pytest.approx([*breaks, np.inf])
    ends = [matplotlib.colors.to_hex(matplotlib.colormaps["viridis"](v)) for v in (0.0, 1.0)]
    assert [found[0][1], found[-1][1]] == ends
    page = posterior.to_map(**asked, cmap="viridis").get_root().render()
    labels = posterior.styled(**asked).intensity()
    for label in palette.classes_in(labels, "mean").labels():
        assert json.dumps(label)[1:-1].replace(">", "\\u003e") in page
    assert ends[0] in page and ends[1] in page
    ax = posterior.plot(**asked, cmap="viridis")
    assert matplotlib.colors.to_hex(ax.images[0].cmap.colors[0]) == ends[0]
    assert len(ax.images[0].cmap.colors) == len(breaks) + 1
    # What is no intensity keeps its own.
    assert legend(tmp_path / "sd.qml") == _usual(posterior, tmp_path / "usual", "sd")


def _usual(posterior, folder, name):
    posterior.to_raster(folder)
    return legend(folder / f"{name}.qml")


def test_a_style_stays_with_the_posterior_and_its_file(posterior, tmp_path):
    shown = fitted()[0].styled([0.1, 1e-7 + 0.1, 3.0], cmap=["#ffffff", "#000000"])
    again = Posterior.load(shown.save(tmp_path / "a.geobgp"))
    assert again.style == shown.style == Style((0.1, 1e-7 + 0.1, 3.0), None, None, "#ffffff, #000000")
    classes = palette.classes_in(again.intensity(), "mean")
    assert classes.hex == ["#ffffff", "#aaaaaa", "#555555", "#000000"]
    assert len(set(classes.labels())) == 4, "two classes never print alike"
    one = Style.of(classes=[1e-7])
    assert Style.in_attrs(one.attrs()) == one
    assert Style.in_attrs(Style().attrs()) is None


@pytest.mark.parametrize("breaks", [[1.0, 1.0 + 1e-9], [123456.78, 123456.79], [1e-12, 1.0000001e-12]])
def test_labels_have_as_many_digits_as_it_takes(breaks):
    labels = palette.fixed_classes(tuple(breaks), ramp="intensity").labels()
    assert len(set(labels)) == 3 and labels[1].split(" – ")[0] != labels[1].split(" – ")[1]


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ({"classes": [2.0, 1.0]}, "classes"),
        ({"classes": [1.0, 1.0]}, "classes"),
        ({"classes": []}, "classes"),
        ({"classes": "0.1"}, "classes"),
        ({"classes": 1}, "classes"),
        ({"classes": 2.5}, "classes"),
        ({"classes": [0.1, np.nan]}, "classes"),
        ({"classes": [0.1], "vmin": 0}, "classes"),
        ({"vmin": 2, "vmax": 1}, "vmin"),
        ({"vmax": "high"}, "vmax"),
        ({"cmap": "no such map"}, "cmap"),
        ({"cmap": ["red", "blue"]}, "cmap"),
        ({"cmap": 3}, "cmap"),
    ],
)
def test_what_cannot_be_is_refused_by_name(posterior, asked, name):
    with pytest.raises(DataError) as caught:
        posterior.styled(**asked)
    assert caught.value.option == name


def test_a_relative_risk_has_its_fixed_classes_in_all_three(risk, tmp_path):
    risk.to_raster(tmp_path)
    expected = [0.5, 0.67, 0.8, 0.9, 1.1, 1.25, 1.5, 2.0, np.inf]
    found = legend(tmp_path / "mean.qml")
    assert [top for top, _, _ in found] == expected
    assert found[4][2] == "0.9 – 1.1 times the expected"
    light = [np.array([int(c[k : k + 2], 16) for k in (1, 3, 5)]).sum() for _, c, _ in found]
    assert np.argmax(light) == 4, "lightest about 1"
    colours = [c for _, c, _ in found]
    page = risk.to_map().get_root().render()
    assert all(c in page for c in colours) and json.dumps("0.9 – 1.1") in page
    ax = risk.plot()
    assert [matplotlib.colors.to_hex(c) for c in ax.images[0].cmap.colors] == colours
    people = fitted()[0]
    rate = dataclasses.replace(people, exposure_kind="population").in_units("relative risk")
    assert palette.classes_in(rate.intensity(), "q50").breaks.tolist() == expected[:-1]
    # Another choice stays on the scale of factors.
    even = palette.classes_in(risk.styled(4, vmin=0.25, vmax=4.0).intensity(), "mean")
    assert even.breaks.tolist() == [0.5, 1.0, 2.0]


def test_several_thresholds_are_several_layers_and_a_far_one_is_said(posterior, tmp_path):
    made = posterior.to_raster(tmp_path, thresholds=[0.1, 0.3])
    assert {"exceedance_0.1.tif", "exceedance_0.3.tif"} <= {p.name for p in made}
    assert all((tmp_path / f"exceedance_{t}.qml").exists() for t in ("0.1", "0.3"))
    table = posterior.intensity((0.05, 0.95))
    span = f"between {number(float(table['q05'].min()), 3)} and {number(float(table['q95'].max()), 3)}"
    with pytest.warns(InputWarning, match=f"no place exceeds 10,000 .* {span}") as caught:
        posterior.to_raster(tmp_path, thresholds=[1e4])
    with pytest.warns(InputWarning) as again:
        posterior.to_map(thresholds=[1e4])
    assert str(caught[0].message) == str(again[0].message)
    assert caught[0].message.option == "thresholds"
    with pytest.warns(InputWarning, match="every place exceeds 1e-9"):
        posterior.to_raster(tmp_path, thresholds=[1e-9])
