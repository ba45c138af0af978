"""Summaries as text, table and data."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest

from geobgp.data.effects import Effects
from geobgp.summary import Summary, coefficient_table

FACTS = {
    "points": {"used": 4446, "dropped": 3, "total_weight": None},
    "truncated_variance": 0.031,
    "lengthscale": {"value": 12.345, "q05": 9.0, "q95": 1234.5, "unit": "km", "learned": True},
    "sd": {"value": 0.8, "q05": 0.8, "q95": 0.8, "unit": "", "learned": False},
    "coefficients": [
        {"name": "intercept", "mean": -1.0, "q05": -2.0, "q95": 0.0, "rate_ratio": math.nan},
        {"name": "forest <share>", "mean": 0.5, "q05": 0.4, "q95": 0.6, "rate_ratio": math.e**0.5,
         "rate_ratio_q05": math.e**0.4, "rate_ratio_q95": math.e**0.6},
    ],
    "elbo": -12345.678,
    "converged": True,
    "message": None,
    "seconds": {"sites": 0.5, "total": 1.25},
    "choices": {"cell_size": "1,500 m (about 15,000 cells)"},
}  # fmt: skip


def test_text():
    text = str(Summary(FACTS))
    for line in (
        "4,446 used, 3 dropped",
        "3.1 % of the prior variance",
        "12.35 km (90 % interval 9 to 1,234)",
        "0.8 (given)",
        "forest <share>",
        "0.5 (90 % interval 0.4 to 0.6); rate x 1.649 (1.492 to 1.822) per unit",
        "-12,345.68",
        "computation         converged, 1.25 s",
        "cell size chosen",
    ):
        assert line in text
    assert "message" not in text and "None" not in text and "nan" not in text
    assert len({line.index(line.split("  ")[-1].strip()) for line in text.splitlines()}) >= 1
    assert repr(Summary(FACTS)) == text
    assert "forest &lt;share&gt;" in Summary(FACTS)._repr_html_()
    assert str(Summary({})) == ""


def test_the_computation_is_the_last_row_and_its_numbers_agree():
    message = {"message": "converged in 9 rounds", "created": "2026-01-02"}
    rows = Summary(FACTS | message | {"rounds": 1, "hyperparameter_points": 9, "points": {"snapped": 2}}).rows()
    assert rows[-1][1] == "converged, 1 round, averaged over 9 settings of the hyperparameters, 1.25 s; 2026-01-02"
    assert rows[0] == ("points", "2 moved to land") and {"rounds", "message", "seconds"}.isdisjoint(dict(rows))
    failed = Summary(FACTS | {"converged": False, "message": "rounds ended"}).rows()[-1][1]
    assert failed == "not converged: rounds ended, 1.25 s"


def test_mapping_and_plain_data():
    summary = Summary(FACTS | {"array": np.arange(2.0), "number": np.float64(2.5)})
    assert summary["elbo"] == FACTS["elbo"] and "sd" in summary and len(summary) == len(FACTS) + 2
    plain = summary.to_dict()
    assert plain["array"] == [0.0, 1.0] and type(plain["number"]) is float
    assert plain["coefficients"][0]["rate_ratio"] is None
    assert dict(summary) == summary.facts


def test_coefficients_of_a_mixture_and_without_intercept():
    def state(weight, mean):
        return SimpleNamespace(weight=weight, coefficients=lambda: (np.array([mean]), np.eye(1)))

    table = coefficient_table([state(0.5, -1.0), state(0.5, 1.0)], Effects(), ratio="rate ratio")
    assert table["mean"].iloc[0] == 0 and table["sd"].iloc[0] == pytest.approx(np.sqrt(2))
    assert table["q05"].iloc[0] == pytest.approx(-table["q95"].iloc[0])
    none = SimpleNamespace(weight=1.0, coefficients=lambda: (np.zeros(0), np.zeros((0, 0))))
    assert len(coefficient_table([none], Effects(), ratio=None)) == 0
