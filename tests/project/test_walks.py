"""The walks of CONTRIBUTING, done in a copy of the package: what has to be touched to add a family or an output."""

import os
import shutil
import subprocess
import sys

import pytest
from paths import ROOT

from geobgp.inference.families import FAMILIES

FAMILY = '''@dataclass(frozen=True, eq=False)
class Geometric(NegativeBinomial):
    """Counts whose variance is λ + λ²: nothing of their spread is learned."""

    dispersion = None

    @property
    def name(self) -> str:
        return "geometric"

    def limit(self) -> Self:
        return self


#: The families of counts,'''

#: The data of both walks: 300 events on a plane, more of them in the east.
DATA = """
import numpy as np, pandas as pd, geopandas as gpd, shapely
rng = np.random.default_rng(1)
table = pd.DataFrame({"easting": 10 * np.sqrt(rng.random(300)), "northing": 10 * rng.random(300)})
table["date"] = rng.choice(["2020", "2021", "2022"], 300)
table.to_csv("points.csv", index=False)
land = shapely.box(0, 0, 10, 10)
gpd.GeoSeries([land]).to_file("land.gpkg")
"""


@pytest.fixture
def package(tmp_path):
    """A copy of the package, as `change(file, before, after, ...)` and `run(code)`."""
    shutil.copytree(ROOT / "geobgp", tmp_path / "geobgp", ignore=shutil.ignore_patterns("__pycache__", "*.zip"))

    class Package:
        def change(self, file, *pairs):
            path = tmp_path / "geobgp" / file
            text = path.read_text("utf-8")
            for before, after in pairs:
                assert text.count(before) == 1, f"{before!r} stands {text.count(before)} times in {file}"
                text = text.replace(before, after)
            path.write_text(text, "utf-8")

        def add(self, file, text):
            (tmp_path / "geobgp" / file).write_text(text, "utf-8")

        def run(self, code):
            env = {**os.environ, "PYTHONPATH": str(tmp_path), "GEOBGP_CACHE_DIR": str(tmp_path / "cache")}
            done = subprocess.run(
                [sys.executable, "-c", DATA + code], cwd=tmp_path, env=env, capture_output=True, text=True
            )
            assert done.returncode == 0, done.stderr[-3000:]

    return Package()


def test_a_family_is_one_class_and_its_name(package):
    """A new distribution of counts is fitted, mapped, stored, scored and known to the shell: one file is touched."""
    package.change(
        "inference/families.py",
        ("#: The families of counts,", FAMILY),
        ('CountName = Literal["poisson", ', 'CountName = Literal["geometric", "poisson", '),
        ("    \"poisson\": Poisson.without_data({}),\n", "    \"poisson\": Poisson.without_data({}),\n"
         "    \"geometric\": Geometric.without_data({}),\n"),
    )  # fmt: skip
    package.run("""
import geobgp
from geobgp.cli.options import MapOptions
posterior = geobgp.map_intensity(
    table, land, crs="local", easting="easting", northing="northing", cell_size=1.0, m=16, likelihood="geometric",
    permeability=0.0, cache=False,
)
posterior.save("map.geobgp")
again = geobgp.Posterior.load("map.geobgp")
assert again.likelihood.name == again.summary().to_dict()["likelihood"] == "geometric"
mean, variance = again.predict_y(np.array([[5.0, 5.0]]))
assert variance > mean + mean**2
assert 0.5 < posterior.cross_validate().coverage <= 1.0
assert 200 < again.totals().expected.sum() < 400
options = MapOptions(points="p.csv", land="l.gpkg", output="o", likelihood="geometric")
assert options.record() == {"likelihood": "geometric"}
periods = geobgp.map_intensity(
    table, land, crs="local", easting="easting", northing="northing", time="date", every="year", cell_size=1.0, m=9,
    likelihood="geometric", permeability=0.0, cache=False,
)
assert periods.likelihood.name == "geometric" and periods.n_periods == 3
try:
    geobgp.LGCP(periods.basis, likelihood="normal")
except geobgp.DataError as error:
    assert "'geometric', 'poisson' or 'negative-binomial'" in str(error)
else:
    raise AssertionError
""")


def test_every_family_stands_in_the_table_of_the_manual():
    table = (ROOT / "docs/reference/model.md").read_text("utf-8").split("## Families")[1].lower()
    rows = [line for line in table.splitlines() if line.startswith("| ")]
    assert [name for name in FAMILIES if not any(name in row or name.replace("-", " ") in row for row in rows)] == []


OUTPUT = '''"""Means of rows of cells, as a table."""

from geobgp.files import replacing


def write_profile(dataset, path):
    """Write the mean from south to north; of each period, where there are some."""
    with replacing(path) as temporary:
        dataset["mean"].mean("easting").to_series().to_csv(temporary)
    return path
'''


def test_an_output_is_one_file_and_a_step_of_the_results(package):
    """A new file of results is written, listed and recorded, with periods and without, as nothing else knows of it."""
    package.add("output/profile.py", OUTPUT)
    package.change(
        "cli/results.py",
        ("from geobgp.text import", "from geobgp.output.profile import write_profile\nfrom geobgp.text import"),
        ('    "map.qgz": "QGIS', '    "profile.csv": "means from south to north",\n    "map.qgz": "QGIS'),
        ('    regions = None\n    if options.regions', '''    with steps.stage("profile"):
        write_profile(posterior.dataset(), folder / "profile.csv")
    regions = None
    if options.regions'''),
    )  # fmt: skip
    package.run("""
import json
from geobgp.cli.app import main
given = ["points.csv", "--land", "land.gpkg", "--crs", "local", "--easting", "easting", "--northing", "northing"]
given += ["--cell-size", "1", "--features", "9", "--permeability", "0", "--no-checks"]
for out, more, rows in (("one", [], 10), ("three", ["--time", "date", "--every", "year"], 30)):
    assert main(["map", *given, *more, "-o", out]) == 0
    assert len(pd.read_csv(f"{out}/profile.csv")) == rows
    assert "means from south to north" in open(f"{out}/report.html").read()
    assert json.load(open(f"{out}/summary.json"))["not_written"] == {}
""")
