from __future__ import annotations

import folium
import pytest

from geobgp.errors import DataError
from geobgp.web.overlays import KNOWN, basemap_layer, check_basemap


@pytest.mark.parametrize("name", KNOWN)
def test_names_that_are_said_to_work_do_and_are_encrypted(name):
    assert basemap_layer(name).tiles.startswith("https://")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("OpenStretMap", "did you mean 'OpenStreetMap'"),
        ("xkcd", "No basemap is called 'xkcd'. Known are OpenStreetMap, "),
        ("", "No basemap is called ''"),
        ("Thunderforest.OpenCycleMap", "needs a key. These need none: OpenStreetMap"),
        ("https://example.org/{z}/{x}/{y}.png", "the words of its owners"),
    ],
)
def test_other_names_are_refused_with_those_that_are_known(name, words):
    with pytest.raises(DataError, match=words.replace("(", r"\(")) as caught:
        check_basemap(name)
    assert caught.value.option == "basemap" and caught.value.found == name


def test_a_layer_of_ones_own_is_taken_as_it_is():
    own = folium.TileLayer("https://tiles.example.org/{z}/{x}/{y}.png", attr="us")
    assert basemap_layer(own) is own
    check_basemap(None, local=True)
    with pytest.raises(DataError, match="no place on Earth"):
        check_basemap(own, local=True)
