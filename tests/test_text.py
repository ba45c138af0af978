from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from geobgp.text import events, number, percent


@given(st.floats(1e-12, 1e12), st.integers(2, 6))
def test_numbers_are_right_to_their_digits(value, digits):
    text = number(value, digits)
    shown = float(text.replace(",", ""))
    assert abs(shown - value) <= 0.5000001 * 10.0 ** (np.floor(np.log10(value)) - digits + 1)


def test_numbers_for_people():
    pairs = {0.0: "0", 1234.5: "1,230", 0.5: "0.5", 12.0: "12", 1e-7: "1e-7", 2.5e9: "2.5e9", float("nan"): "–"}
    assert [number(v, 3, missing="–") for v in pairs] == list(pairs.values())


def test_numbers_of_events():
    assert [events(v) for v in (0.0, 0.26, 9.96, 31.4, 1234.5, np.nan)] == ["0", "0.3", "10.0", "31", "1,234", "-"]


@given(st.floats(0, 1))
def test_only_all_is_a_hundred_per_cent(share):
    assert (percent(share) == "100 %") == (share == 1)
    assert abs(float(percent(share).removesuffix(" %")) - 100 * share) <= 0.5
