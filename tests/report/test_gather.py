"""The GATHER checklist: what the run fills in, what the author adds, what is left blank."""

import csv
import dataclasses
import io
import re
from html import unescape

import numpy as np
import pytest
import shapely
import small_case as case

from geobgp import LGCP, Domain, HarmonicBasis, Matern, map_intensity
from geobgp.errors import DataError
from geobgp.report.gather import ENTRIES, Study, checklist, template
from geobgp.report.report import ReportInputs

NASTY = "=HYPERLINK(1)<script>alert(1)</script>"


@pytest.fixture(scope="module")
def posterior():
    return map_intensity(
        case.points(), case.land(), water=case.water(), cell_size=1000, m=32, permeability=0, cache=False
    )


def test_every_item_is_there_and_blanks_are_marked(posterior):
    items = {one.number: one for one in checklist(posterior)}
    assert [*items] == [*map(str, range(1, 19)), "S1", "S2", "S3", "S4"]
    blank = {key for one in items.values() for key in one.blanks}
    # Of a map per km² nobody asks for a denominator; authors, licence and description are no items.
    assert blank == {*ENTRIES, "sources.land", "sources.water"} - {"denominator", "authors", "license", "description"}
    assert items["2"].state == "blank" and items["1"].state == "partly" and items["10"].state == "complete"
    for number in ("1", *map(str, range(9, 15)), "16", "17", "18", "S1", "S3", "S4"):
        assert items[number].answers, number
    digests = [one["sha256"] for one in posterior.origin["inputs"]]
    for digest, number in zip(digests, ("5", "7", "7"), strict=True):
        assert any(digest in text for text in items[number].answers)


def test_what_the_author_says_fills_the_blanks(posterior, tmp_path):
    path = tmp_path / "study.toml"
    path.write_text(
        f'funding = "{NASTY}"\nperiod = 2020-05-01\nauthors = ["A. B.", "C. D."]\nethics = ""\n'
        '[sources]\nland = "OSM"\n'
    )
    study = Study.of(path)
    assert study.authors == ("A. B.", "C. D.") and study.entries["period"] == "2020-05-01"
    page, table = posterior.to_gather(tmp_path / "out", path, checks=False)
    rows = {row["item"]: row for row in csv.DictReader(io.StringIO(table.read_text("utf-8")))}
    assert rows["2"]["from_the_author"] == f"'{NASTY}" and rows["2"]["state"] == "complete"
    assert "land: OSM" in rows["7"]["from_the_author"] and "sources.land" not in rows["7"]["left_blank"]
    assert "ethics" in rows["8"]["left_blank"], "an empty entry is no answer"
    text = page.read_text("utf-8")
    assert "<script" not in text and NASTY in unescape(text) and "default-src 'none'" in text
    assert not re.findall(r"(?:src|href)=\"(?!data:|#)", text)


def test_a_template_is_metadata_without_an_answer(tmp_path):
    path = tmp_path / "study.toml"
    path.write_text(template(), "utf-8")
    assert Study.of(path) == Study()
    filled = re.sub(r'^(\w+) = ""$', r'\1 = "x"', template(), flags=re.M)
    path.write_text(filled, "utf-8")
    assert {*Study.of(path).entries} == {*ENTRIES} - {"authors"}


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"fundng": "x"}, "there is no entry 'fundng'. Did you mean 'funding'?"),
        ({"sources": {"lnd": "x"}}, "there is no input 'lnd'. Did you mean 'land'?"),
        ({"zzz": "x"}, "There are 'indicator', 'population'"),
        ({"funding": {"a": 1}}, "funding is text; found {'a': 1}"),
        ({"funding": True}, "funding is text; found True"),
        ({"authors": [1]}, "authors is a list of names"),
        ({"sources": "x"}, "sources is a table with a sentence for each input"),
    ],
)
def test_what_has_no_place_is_refused(posterior, metadata, message, tmp_path):
    with pytest.raises(DataError, match=re.escape(message)):
        posterior.to_gather(tmp_path, metadata)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("content", [b"funding = ", b"\xff\xfe\x00", 'funding = "é"'.encode("cp1252")])
def test_a_file_that_is_no_toml_is_refused(content, tmp_path):
    path = tmp_path / "study.toml"
    path.write_bytes(content)
    with pytest.raises(DataError, match="cannot be read as TOML"):
        Study.of(path)


def test_checks_and_files_of_the_run_are_told(posterior):
    checked = posterior.cross_validate(rounds=0)
    inputs = ReportInputs(validation=checked, files={"mean.tif": "posterior mean"}, command="geobgp map x")
    items = {one.number: one for one in checklist(posterior, inputs)}
    assert items["12"].answers[0] == checked.verdict()
    assert items["15"].answers == ("mean.tif: posterior mean.",) and "Made by: geobgp map x" in items["14"].answers


def test_a_fit_step_by_step_has_a_checklist_too(tmp_path):
    domain = Domain.from_polygons(shapely.box(0, 0, 10, 10), cell_size=1, crs="local")
    basis = HarmonicBasis.compute(domain, m=9, cache=False)
    counts = np.random.default_rng(0).poisson(3.0, domain.n_nodes)
    fitted = LGCP(basis, Matern(1.5, lengthscale=8.0, sd=0.5), exposure=np.full(domain.n_nodes, 2.0)).fit(counts)
    items = {one.number: one for one in checklist(dataclasses.replace(fitted, title="t"))}
    assert items["5"].answers == () and "denominator" in items["7"].blanks
    assert "lengthscale and standard deviation were given" in " ".join(items["13"].answers)
