from __future__ import annotations

import re
import zipfile

import geopandas as gpd
import numpy as np
import pytest
import rasterio
from over_time import moving
from posteriors import island

from geobgp.data.periods import Periods
from geobgp.errors import DataError
from geobgp.output.qgis import write_qgis
from geobgp.output.rasters import write_rasters

MONTHS = Periods.calendar("month", "2020-01", "2020-03")


@pytest.fixture(scope="module")
def source():
    return moving(island(2000.0), MONTHS, title="Bites")


@pytest.fixture(scope="module")
def written(source, tmp_path_factory):
    data = source.intensity().drop_vars(["q05", "q50", "q95"])
    data["coverage"] = source.maps[0]._dataset({}, {}, coverage=True)["coverage"]
    folder = tmp_path_factory.mktemp("rasters")
    return folder, write_rasters(data, folder / "maps", title="Bites")


def test_a_file_for_each_statistic_and_period(written):
    folder, made = written
    names = [path.name for path in made]
    assert names == [*(f"{s}_2020-0{k}.tif" for s in ("mean", "sd") for k in (1, 2, 3)), "coverage.tif"]
    files = {p.name for p in (folder / "maps").iterdir()}
    assert files == {n for name in names for n in (name, name.replace(".tif", ".qml"))}


def test_each_holds_its_periods_numbers_and_its_time(written, source):
    for k in range(MONTHS.n):
        with rasterio.open(written[1][k]) as src:
            expected = source.at(k).intensity()["mean"].values.astype(np.float32)
            np.testing.assert_array_equal(src.read(1), expected)
            tags = src.tags()
            assert tags["TIFFTAG_DATETIME"] == f"2020:0{k + 1}:01 00:00:00"
            assert tags["period"] == f"2020-0{k + 1}" and tags["period_end"].startswith(str(MONTHS.ends[k])[:10])
            assert tags["TIFFTAG_IMAGEDESCRIPTION"] == f"Bites, 2020-0{k + 1}"
            assert src.units == ("events per km²",) and src.crs.to_epsg() == 28992


def test_the_style_is_one_for_all_periods(written):
    styles = {path.with_suffix(".qml").read_text() for path in written[1][:3]}
    assert len(styles) == 1


def test_they_make_a_project_that_plays(written, source):
    folder, made = written
    project = write_qgis(source, folder / "map.qgz", made, thresholds=[0.5])
    with zipfile.ZipFile(project) as archive:
        text = archive.read("map.qgs").decode("utf-8")
    spans = re.findall(r"<fixedRange>\s*<start>(.*?)</start>\s*<end>(.*?)</end>", text)
    months = [("2020-01-01T00:00:00Z", "2020-01-31T23:59:59Z"), ("2020-02-01T00:00:00Z", "2020-02-29T23:59:59Z"),
              ("2020-03-01T00:00:00Z", "2020-03-31T23:59:59Z")]  # fmt: skip
    assert spans == 3 * months, "mean, sd, and the land that probably exceeds the threshold"
    above = gpd.read_file(folder / "map.gpkg", layer="exceedance_0.5")
    assert set(above["period"]) == set(MONTHS.labels)
    for month, rows in above.groupby("period"):
        chance = source.at(month).exceedance(0.5)
        land = float((source.domain.coverage * (chance.values > 0.5)).sum()) * 4.0
        # Polygons are smooth where cells have steps.
        assert rows["area"].iloc[0] == pytest.approx(land, rel=0.15)


def test_what_is_no_folder_or_does_not_fit_is_refused(source, tmp_path):
    data = source.intensity()
    with pytest.raises(DataError, match="into a folder"):
        write_rasters(data, tmp_path / "a.tif")
