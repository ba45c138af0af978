"""Run the cards of the gallery and write their pictures and the page: ``python docs/gallery/build.py build/gallery``.

A card is a file with a title, a sentence and code that runs by itself; its picture is the last figure that the code
draws, or, for files that other programs show, a screenshot of the same name in ``docs/_static/gallery``.
``docs/conf.py`` calls this whenever the manual is built.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SCREENSHOTS = HERE.parent / "_static" / "gallery"
#: Width of the pictures, in pixels.
WIDTH = 720
#: The folders of cards, in the order of the page.
SECTIONS = {
    "maps": "What can be mapped",
    "uncertainty": "How sure, and how high",
    "regions": "Regions",
    "covariates": "Covariates",
    "time": "Time",
    "checks": "Checks",
    "land": "Land and water",
    "many": "Many maps, large land, small numbers",
    "files": "Files for others",
}


@dataclass(frozen=True)
class Card:
    """A picture of the gallery: where its code is, its title and sentence, and the code itself."""

    path: Path
    title: str
    text: str
    code: str

    @classmethod
    def read(cls, path: Path) -> Card:
        """Read the card that a file holds."""
        source = path.read_text("utf-8")
        title, _, text = (ast.get_docstring(ast.parse(source)) or "").partition("\n\n")
        return cls(path, title, text, source.split('"""', 2)[2].strip())

    @property
    def name(self) -> str:
        """The name of the picture."""
        return f"{self.path.parent.name}-{self.path.stem.partition('_')[2]}"

    @property
    def screenshot(self) -> Path | None:
        """The screenshot that serves as the picture, if any."""
        path = SCREENSHOTS / f"{self.name}.png"
        return path if path.exists() else None

    def draw(self, picture: Path) -> None:
        """Run the code in an empty folder beside the sample data, and store what it drew."""
        import matplotlib.pyplot as plt
        from PIL import Image

        plt.close("all")
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "sample_data").symlink_to(ROOT / "sample_data")
            os.chdir(folder)
            exec(compile(self.code, str(self.path), "exec"), {"__name__": self.name})
            os.chdir(ROOT)
            if self.screenshot is not None:
                picture.write_bytes(self.screenshot.read_bytes())
                return
        figure = plt.gcf()
        if not figure.axes:
            raise ValueError(f"{self.path} draws nothing")
        figure.savefig(picture, dpi=2 * WIDTH / figure.get_figwidth(), bbox_inches="tight")
        with Image.open(picture) as image:
            height = round(image.height * WIDTH / image.width)
            small = image.convert("RGB").resize((WIDTH, height), Image.Resampling.LANCZOS)
            small.quantize(96, dither=Image.Dither.NONE).save(picture, optimize=True)

    def markup(self, folder: str) -> str:
        """Return the card in the manual's Markdown."""
        return "\n".join(
            [
                f":::::{{grid-item-card}} {self.title}",
                f"```{{image}} {folder}/{self.name}.png",
                f":alt: {self.title}",
                "```",
                self.text.replace("\n", " "),
                "::::{dropdown} Code",
                "```python",
                self.code,
                "```",
                "::::",
                ":::::",
            ]
        )


def cards() -> dict[str, list[Card]]:
    """Return the cards of every section."""
    return {folder: [Card.read(path) for path in sorted((HERE / folder).glob("*.py"))] for folder in SECTIONS}


def page(folder: str) -> str:
    """Return the sections of the page, with pictures in a folder that is named as seen from the page."""
    lines = []
    for name, of_section in cards().items():
        lines += [f"## {SECTIONS[name]}", "", "::::::{grid} 1 2 2 2", ":gutter: 3", ""]
        lines += [card.markup(folder) + "\n" for card in of_section]
        lines += ["::::::", ""]
    return "\n".join(lines)


def draw(out: Path, part: int = 0, parts: int = 1) -> None:
    """Draw every card, or every so manyth."""
    import warnings

    import matplotlib

    from geobgp.errors import GeobgpWarning

    matplotlib.use("agg")
    # Gaps in the sample data, and what a slow machine has no time for.
    warnings.simplefilter("ignore", GeobgpWarning)
    out.mkdir(parents=True, exist_ok=True)
    for card in [card for section in cards().values() for card in section][part::parts]:
        card.draw(out.resolve() / f"{card.name}.png")


def build(out: Path, folder: str, processes: int = 2) -> None:
    """Draw all cards in several processes, and write what the page includes."""
    command = [sys.executable, str(Path(__file__).resolve()), str(out.resolve())]
    runs = [subprocess.Popen([*command, str(part), str(processes)]) for part in range(processes)]
    if any([run.wait() for run in runs]):
        raise RuntimeError("a card of the gallery failed")
    (out / "cards.txt").write_text(page(folder), encoding="utf-8")


if __name__ == "__main__":
    draw(Path(sys.argv[1]), *map(int, sys.argv[2:]))
