from __future__ import annotations

import json
from html import escape, unescape

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import UndefinedError

from geobgp.web import page as templates

NAMES = {"map": "m", "layers": ["a", "b"], "groups": {"shoreline": "s"}, "control": "c"}
words = st.text(st.characters(codec="utf-8"))


@given(st.dictionaries(words, words | st.lists(st.floats(allow_nan=False)) | st.none()))
def test_what_the_script_is_given_arrives_and_cannot_end_it(config):
    text = templates.render("web/start.js.j2", config=config, **NAMES)
    line = next(line for line in text.splitlines() if line.startswith("    {") and line.endswith("}"))
    assert json.loads(line) == config
    assert not set("<>&\u2028\u2029") & set(line)
    assert list(json.loads(line)) == list(config)


@given(words)
def test_a_title_stays_a_title(title):
    head = templates.render(
        "web/head.html.j2", title=title, tile_server=None, leaflet_css="", leaflet_js="", timed=True
    )
    start, end = head.index("<title>") + 7, head.index("</title>")
    assert not set("<>\"'") & set(head[start:end])
    assert unescape(head[start:end]) == unescape(escape(title))


def test_a_server_cannot_leave_the_policy():
    head = templates.render(
        "web/head.html.j2", title="", tile_server='https://a"><script>', leaflet_css="", leaflet_js="", timed=True
    )
    assert "img-src data: blob: https://a&#34;&gt;&lt;script&gt;; connect-src" in head


def test_what_a_template_needs_must_be_given():
    with pytest.raises(UndefinedError, match="title"):
        templates.render("web/head.html.j2", tile_server=None, leaflet_css="", leaflet_js="", timed=True)
