"""Tables of the report: heads that say what they head, and scrolling with keys where there is little room."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
import small_case as case
from system import Chromium

from geobgp import Matern
from geobgp.auto.options import Options
from geobgp.auto.pipeline import run
from geobgp.report.report import ReportInputs, render


class Tables(HTMLParser):
    """What the tables of a page are made of."""

    def __init__(self) -> None:
        super().__init__()
        self.around: list[dict[str, str | None]] = []
        self.n_tables = 0
        self.heads: list[tuple[str | None, str]] = []
        self.first: list[str] = []
        self._row: list[str] = []
        self._in_head: str | None = None
        self._last: dict[str, str | None] = {}

    def handle_starttag(self, tag, attrs):
        if tag == "div":
            self._last = dict(attrs)
        elif tag == "table":
            self.n_tables += 1
            self.around.append(self._last)
        elif tag == "tr":
            self._row = []
        elif tag in ("th", "td"):
            if not self._row:
                self.first.append(tag)
            self._row.append(tag)
            if tag == "th":
                self.heads.append((dict(attrs).get("scope"), ""))
                self._in_head = tag

    def handle_data(self, data):
        if self._in_head:
            scope, text = self.heads[-1]
            self.heads[-1] = (scope, text + data.strip())

    def handle_endtag(self, tag):
        if tag == "th":
            self._in_head = None


@pytest.fixture(scope="module")
def page():
    mapped = run(
        Options(
            points=case.points(), land=case.land(), water=case.water(), cell_size=1000, m=48, permeability=0,
            kernel=Matern(1.5, lengthscale=6000.0), title="Bites", cache=False,
        )
    )  # fmt: skip
    regions = mapped.posterior.totals(case.land().assign(name=["West", "East"]), n_samples=200)
    inputs = ReportInputs(
        counts=mapped.counts, choices=mapped.choices, thresholds=[2.0], regions=regions, files={"mean.tif": "the mean"},
        seconds={"land": 1.25},
    )  # fmt: skip
    return render(mapped.posterior, inputs)


def test_every_head_says_what_it_heads_and_every_row_has_one(page):
    tables = Tables()
    tables.feed(page)
    assert tables.n_tables >= 6
    assert {scope for scope, _ in tables.heads} == {"col", "row"}
    assert all(text for _, text in tables.heads)
    assert set(tables.first) == {"th"}
    for around in tables.around:
        assert around["class"] == "wide" and around["tabindex"] == "0"
        assert around["role"] == "group" and around["aria-label"]


@pytest.mark.chromium
@pytest.mark.slow
def test_at_360_pixels_tables_scroll_by_themselves_and_with_keys(page, tmp_path):
    path = tmp_path / "report.html"
    path.write_text(page, encoding="utf-8")
    with Chromium(360, 640) as browser:
        browser.call("Page.navigate", url=path.resolve().as_uri())
        browser.run("new Promise(r => document.readyState === 'complete' ? r() : addEventListener('load', r))")
        assert browser.run("document.documentElement.scrollWidth") <= 360
        wide = "[...document.querySelectorAll('.wide')].find(e => e.scrollWidth > e.clientWidth + 40)"
        assert browser.run(f"{wide} !== undefined")
        browser.run(f"window.table = {wide}; table.scrollIntoView(); table.focus()")
        browser.key("ArrowRight", 39)
        browser.settle()
        assert browser.run("table.scrollLeft") > 0
        assert browser.console == []
