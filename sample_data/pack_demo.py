"""Pack the files that `geobgp demo` needs into the package.

Run ``python sample_data/pack_demo.py`` to do it anew. They are 0.6 MB here and 0.14 MB
packed. The package carries its own copy because `geobgp demo` must work wherever it is installed, and a wheel
can hold nothing from outside of the package's folder but by a step of the build. A test compares the two.
"""

from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from geobgp.cli.commands import DATA

HERE = Path(__file__).resolve().parent
TARGET = HERE.parent / "geobgp" / "cli" / "demo.zip"


def pack(target: Path = TARGET) -> None:
    """Write the archive; the same files always give the same archive."""
    with ZipFile(target, "w") as archive:
        for name in DATA.values():
            archive.writestr(ZipInfo(name), (HERE / name).read_bytes(), ZIP_DEFLATED, 9)


if __name__ == "__main__":
    pack()
