import dataclasses
import re
from html import unescape
from pathlib import Path

import geopandas as gpd
import pytest
import small_case as case
from system import Chromium

from geobgp import Matern
from geobgp.auto.options import Options
from geobgp.auto.pipeline import run
from geobgp.checks.residuals import check
from geobgp.errors import CheckWarning, WriteError
from geobgp.report.report import ReportInputs, render, write_report

NASTY = '</title><script>alert("x")</script><img src=x onerror=alert(1)>'


@pytest.fixture(scope="module")
def mapped():
    options = Options(
        points=case.points(), land=case.land(), water=case.water(), cell_size=1000, m=48, permeability=0,
        kernel=Matern(1.5, lengthscale=6000.0), title=NASTY, cache=False,
    )  # fmt: skip
    return run(options)


@pytest.fixture(scope="module")
def inputs(mapped):
    regions = mapped.posterior.totals(case.land().assign(name=[NASTY, "b"]), n_samples=200)
    regions["observed"] = [1.0, 2.0]
    return ReportInputs(
        sources={"Points": NASTY},
        counts=mapped.counts,
        choices=mapped.choices,
        checks=check(mapped.posterior, mapped.counts.values),
        validation=mapped.posterior.cross_validate(rounds=0),
        warnings=[f"a warning {NASTY}"],
        thresholds=[2.0],
        regions=regions,
        files={"mean.tif": NASTY},
        seconds={"land": 1.25},
        command="geobgp map 'points.gpkg'",
    )


@pytest.fixture(scope="module")
def text(mapped, inputs):
    return render(mapped.posterior, inputs)


def test_every_section_is_there(text, mapped):
    for name in (
        "Maps",
        "Input",
        "Warnings",
        "Choices",
        "Model",
        "Checks",
        "Residuals",
        "Totals by region",
        "Uncertainty and limitations",
        "Files",
    ):
        assert f">{name}</h2>" in text
    assert "How to cite" in text and "Know your boundaries" in text
    assert f"{mapped.counts.n_used:,}" in text
    for choice in mapped.choices.values():
        assert choice.why in unescape(text)
    assert text.count("data:image/png;base64,") == 6


def test_text_from_data_is_escaped(text):
    assert "<script" not in text
    assert "<img src=x" not in text
    assert "&lt;script&gt;" in text


def test_nothing_is_fetched_and_no_script_may_run(text):
    assert "default-src 'none'" in text
    assert not re.findall(r"(?:src|href)=\"(?!data:|#)", text)
    assert "http" not in re.sub(r"http-equiv", "", text)
    assert "url(" not in text


def test_a_posterior_alone_has_a_report(mapped):
    text = render(mapped.posterior, ReportInputs())
    assert ">Checks</h2>" not in text and ">Model</h2>" in text
    assert text.count("data:image/png;base64,") == 4


def test_a_map_that_fails_says_so_before_anything_else(mapped, inputs, text):
    assert "may mislead" not in text and "held-out blocks lie within" in text
    pit = inputs.validation.blocks.assign(pit=0.999)
    bad = dataclasses.replace(
        inputs,
        validation=dataclasses.replace(inputs.validation, blocks=pit),
        advice=[f"covariates {NASTY}", "smaller cells"],
    )
    page = render(mapped.posterior, bad)
    start = page.index("This map may mislead.")
    assert start < page.index('class="cards"') and page.index("smaller cells") < page.index('class="cards"')
    assert "Only 0 % of" in page and "<script" not in page
    assert "doubtful" in page


def test_the_report_is_written_whole_or_not_at_all(mapped, tmp_path, monkeypatch):
    path = write_report(tmp_path / "report.html", mapped.posterior)
    assert path.read_text("utf-8").endswith("</html>\n")

    monkeypatch.setattr("geobgp.report.report.render", lambda *_: "<html></html>")

    def full(self, *args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(WriteError, match="disk is full"):
        write_report(tmp_path / "other.html", mapped.posterior)
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]


def test_covariates_and_regions_without_observations(mapped):
    options = Options(
        points=case.points(), land=case.land(), water=case.water(), cell_size=1000, m=16, permeability=0,
        kernel=Matern(1.5, lengthscale=20_000.0), covariates={"height <m>": lambda xy: xy[:, 1] / 1000},
        cache=False,
    )  # fmt: skip
    found = run(options)
    regions = gpd.GeoDataFrame(found.posterior.totals(n_samples=100))
    text = render(found.posterior, ReportInputs(regions=regions))
    assert "height &lt;m&gt;, per unit" in text and ">Rate ratio, 90 %</th>" in text
    assert "Effects of covariates are associations" in text
    assert ">Observed<" in text and "shared by area" not in text
    text = render(found.posterior, ReportInputs(regions=regions.drop(columns="observed")))
    assert "Observed" not in text


@pytest.mark.chromium
def test_the_page_in_a_browser(mapped, inputs, tmp_path):
    path = write_report(tmp_path / "report.html", mapped.posterior, inputs)
    for width in (1280, 400):
        with Chromium(width, 900) as browser:
            browser.call("Page.navigate", url=path.as_uri())
            browser.settle()
            assert browser.run("document.readyState") == "complete"
            broken = "[...document.images].filter(i => !i.complete || i.naturalWidth === 0).length"
            assert browser.run(broken) == 0
            assert browser.run("document.documentElement.scrollWidth") <= width
            links, sections = (f"document.querySelectorAll('{what}').length" for what in ("nav a", "section"))
            assert browser.run(links) == browser.run(sections) >= 13
            assert browser.console == []
            assert {url.split(":")[0] for url in browser.requests} <= {"file", "data"}


def test_a_posterior_writes_its_own(mapped, tmp_path):
    posterior = mapped.posterior
    region = gpd.GeoDataFrame({"name": ["all"]}, geometry=[posterior.domain.geometry], crs=posterior.domain.crs)
    text = posterior.to_report(tmp_path / "r.html", thresholds=[0.3], regions=region).read_text("utf-8")
    assert "exceeds 0.3 events per km²" in text and ">all<" in text and 'id="checks"' in text


def test_a_check_that_fails_does_not_cost_the_report(mapped, tmp_path, monkeypatch):
    def broken(*_, **__):
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr("geobgp.posterior.Posterior.cross_validate", broken)
    monkeypatch.setattr("geobgp.posterior.Posterior.residuals", broken)
    with pytest.warns(CheckWarning, match="were not run: ZeroDivisionError") as told:
        written = mapped.posterior.to_report(tmp_path / "report.html")
    assert len(told) == 2
    page = written.read_text("utf-8")
    assert "The held-out checks were not run. ZeroDivisionError: division by zero." in page
    assert "The residuals were not computed. ZeroDivisionError" in page


def test_a_report_without_checks(mapped, tmp_path, monkeypatch):
    monkeypatch.setattr("geobgp.posterior.Posterior.cross_validate", None)
    fit = dataclasses.replace(mapped.posterior.fit)  # nothing is known of a check that was made before
    posterior = dataclasses.replace(mapped.posterior, fit=fit)
    page = posterior.to_report(tmp_path / "report.html", checks=False).read_text("utf-8")
    assert "They were not asked for." in page and "nats per event" not in page
