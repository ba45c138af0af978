"""Classes and colours that the shell is told."""

from __future__ import annotations

import pytest

from geobgp.cli.options import MapOptions, command_line
from geobgp.errors import DataError

GIVEN = {"points": "a.csv", "land": "b.gpkg", "output": "out"}


@pytest.mark.parametrize(
    ("told", "classes"), [("0.1,0.2,0.5", [0.1, 0.2, 0.5]), ("5", 5), ("1.5", [1.5]), (None, None)]
)
def test_classes_are_breaks_or_how_many(told, classes):
    options = MapOptions(**GIVEN, classes=told)
    assert options.look()["classes"] == classes


def test_the_command_line_tells_them_again():
    options = MapOptions(**GIVEN, classes="0.1,0.2", cmap="viridis")
    assert command_line(options).endswith("--classes 0.1,0.2 --cmap viridis -o out")
    assert "--vmin 0 --vmax 2" in command_line(MapOptions(**GIVEN, vmin=0.0, vmax=2.0))


@pytest.mark.parametrize(
    ("told", "name"),
    [
        ({"classes": "many"}, "classes"),
        ({"classes": "2,1"}, "classes"),
        ({"classes": "1,2", "vmin": 0.0}, "classes"),
        ({"vmin": 2.0, "vmax": 1.0}, "vmin"),
        ({"cmap": "no such map"}, "cmap"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_read(told, name):
    with pytest.raises(DataError) as caught:
        MapOptions(**GIVEN, **told)
    assert caught.value.option == name
