"""The gallery's cards are complete, and their code draws; all of them are run whenever the manual is built."""

from __future__ import annotations

import importlib.util
import re
import sys

from paths import ROOT
from PIL import Image

SPEC = importlib.util.spec_from_file_location("gallery_build", ROOT / "docs" / "gallery" / "build.py")
gallery = importlib.util.module_from_spec(SPEC)
sys.modules[SPEC.name] = gallery
SPEC.loader.exec_module(gallery)
CARDS = [card for section in gallery.cards().values() for card in section]


def test_every_card_has_a_title_a_sentence_and_code_that_runs_by_itself():
    assert len(CARDS) >= 30 and len({card.name for card in CARDS}) == len(CARDS)
    assert {path.parent.name for path in gallery.HERE.glob("*/*.py")} == set(gallery.SECTIONS)
    for card in CARDS:
        assert card.title and card.text.endswith((".", "?", ")")), card.path
        assert "import geobgp\n" in card.code and len(card.code.splitlines()) <= 35, card.path
        compile(card.code, str(card.path), "exec")
        for name in re.findall(r"\"(sample_data/[^\"]+)\"", card.code):
            assert (ROOT / name).exists(), name


def test_every_kind_of_map_is_shown():
    code = "\n".join(card.code for card in CARDS)
    for name in ("intensity", "risk", "prevalence", "values", "strata", "tiles"):
        assert f"geobgp.map_{name}(" in code, name
    for name in ("covariates=", "time=", "reported=", ".hotspots(", ".to_qgis(", ".to_map(", "exposure=", "water="):
        assert name in code, name


def test_screenshots_belong_to_cards_and_are_small():
    names = {card.name for card in CARDS if card.screenshot is not None}
    assert {path.stem for path in gallery.SCREENSHOTS.glob("*")} == names == {"files-web", "files-report", "files-qgis"}
    assert max(path.stat().st_size for path in gallery.SCREENSHOTS.glob("*")) < 60_000


def test_a_card_is_drawn_and_laid_out(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    (card,) = [card for card in CARDS if card.name == "land-distance"]
    card.draw(tmp_path / "distance.png")
    with Image.open(tmp_path / "distance.png") as image:
        assert image.width == gallery.WIDTH and len(image.convert("RGB").getcolors(1 << 20)) > 20
    text = gallery.page("pictures")
    assert f"```{{image}} pictures/{card.name}.png" in text and card.code in text
    assert text.count("{grid-item-card}") == len(CARDS)
