from __future__ import annotations

import re

import geopandas as gpd
import pandas as pd
import pytest
from over_time import moving
from posteriors import island

from geobgp.data.periods import Periods
from geobgp.report.report import ReportInputs, write_report
from geobgp.summary import Choice
from geobgp.text import events, number

MONTHS = Periods.calendar("month", "2015-01", "2020-06")
NASTY = "<script>alert(1)</script>{{ 7*7 }}"


class Check:
    """What a comparison of forecasts with what came says."""

    coverage, coverage_band, fine, interval = 0.92, (0.8, 0.98), True, 0.9

    def verdict(self):
        return "Of 3 periods held out, 92 % lie within."

    def by_period(self):
        return pd.DataFrame({"observed": [40.0], "expected": [38.2], "coverage": [0.92]}, index=["2020-06"])


@pytest.fixture(scope="module")
def source():
    return moving(island(4000.0), MONTHS, title="Bites " + NASTY)


@pytest.fixture(scope="module")
def html(source, tmp_path_factory):
    region = gpd.GeoDataFrame({"name": ["All " + NASTY]}, geometry=[source.domain.geometry], crs=28992)
    inputs = ReportInputs(
        sources={"Points": "bites.csv"},
        choices={"cells": Choice(4000, "given")},
        warnings=["Mind " + NASTY],
        regions=source.totals(region),
        validation=Check(),
        files={"map.html": "interactive map"},
        seconds={"fit": 1.25},
        command="geobgp map",
    )
    ahead = moving(source.domain, MONTHS.ahead(2), observed=False)
    path = tmp_path_factory.mktemp("report") / "report.html"
    return write_report(path, source, inputs, forecast=ahead).read_text("utf-8")


def test_it_has_every_part(html):
    parts = re.findall(r'<section id="(\w+)">', html)
    assert parts == [
        "maps",
        "level",
        "input",
        "warnings",
        "choices",
        "model",
        "checks",
        "regions",
        "limits",
        "fit",
        "files",
        "cite",
    ]
    assert html.count('src="data:image/png') == 4
    assert "After 2 months (the correlation time) a large patch has a correlation of 0.37 with itself." in html
    assert "every third month" in html and "broken where it is a forecast" in html


def test_the_table_by_period_has_the_numbers(html, source):
    level = source.level()
    for k in (-1, -20):
        row = level.iloc[k]
        ends = [
            [f"{show(row[f'{of}_q05'])} to {show(row[f'{of}_q95'])}"]
            for of, show in (("predicted", events), ("expected", events), ("level", lambda v: number(v, 3)))
        ]
        expected, level_ = events(row["expected"]), number(row["level"], 3)
        cells = [row["period"], events(row["observed"]), *ends[0], expected, *ends[1], level_, *ends[2]]
        pattern = r"\s*</t[hd]>\s*<td class=n>".join(map(re.escape, cells))
        assert re.search(pattern, html), cells
    assert "2020-08 (forecast)" in html and ">2015-01<" not in html
    assert "8 earlier months are not listed" in html


def test_checks_and_regions(html, source):
    assert '<p class="good">Of 3 periods held out' in html and ">92 %<" in html
    assert "<p>2020-06:</p>" in html


def test_words_from_the_data_stay_words(html):
    assert "<script" not in html and "49" not in re.findall(r"<title>(.*?)</title>", html)[0]
    assert "default-src 'none'" in html


def test_the_barest(source, tmp_path):
    html = write_report(tmp_path / "r.html", moving(source.domain, MONTHS.slice(0, 2))).read_text("utf-8")
    assert re.findall(r'<section id="(\w+)">', html) == ["maps", "level", "input", "model", "limits", "fit", "cite"]


def test_a_threshold_has_its_maps(source, tmp_path):
    page = source.to_report(tmp_path / "report.html", thresholds=[0.25, 2.0]).read_text("utf-8")
    for value in ("0.25", "2"):
        assert f"Probability that the intensity exceeds {value} {source.units}" in page
    without = source.to_report(tmp_path / "without.html").read_text("utf-8")
    assert page.count("<img") == without.count("<img") + 2 and "exceeds" not in without
