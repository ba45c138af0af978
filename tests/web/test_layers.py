from __future__ import annotations

import numpy as np
import pytest
from posteriors import bumps, island, prescribed

from geobgp.errors import DataError, InputWarning
from geobgp.web import layers, maps


@pytest.fixture(scope="module")
def posterior():
    return prescribed(island(2000.0), bumps(island(2000.0)), 0.3)


def test_every_threshold_has_a_layer_and_a_field(posterior):
    made = maps.posterior_map(posterior, thresholds=[0.5, 0.1, 0.5])
    html = made.get_root().render()
    assert html.index("Probability \\u003e 0.1") < html.index("Probability \\u003e 0.5")
    assert '"p0":' in html and '"p1":' in html and '"p2":' not in html


def test_a_threshold_that_no_place_comes_near_is_said(posterior):
    with pytest.warns(
        InputWarning, match="The threshold of 99 events per km² says little: no place exceeds 99"
    ) as seen:
        made = maps.posterior_map(posterior, thresholds=[0.3, 99.0])
    assert seen[0].message.option == "thresholds" and "lower" in seen[0].message.remedy
    assert "No place exceeds 99 with a probability of over 0.1 %." in made.get_root().render()
    with pytest.warns(InputWarning, match="every place exceeds 0.001"):
        maps.posterior_map(posterior, threshold=0.001)


def test_thresholds_are_given_in_one_way(posterior):
    with pytest.raises(DataError, match="Both threshold and thresholds"):
        maps.posterior_map(posterior, threshold=0.3, thresholds=[0.5])
    with pytest.raises(DataError, match="Both"):
        layers.chosen_thresholds(False, [1.0], 0.3)


def test_the_overall_mean_is_by_land_and_over_all_periods():
    domain = island(2000.0)
    mean = np.where(domain.coverage > 0, 2.0, np.nan)
    assert layers.overall(domain, mean) == 2.0
    assert layers.overall(domain, np.stack([mean, 2 * mean])) == 3.0
