from __future__ import annotations

import numpy as np
import pytest
import rasterio
from over_time import moving
from posteriors import island

from geobgp.data.periods import Periods
from geobgp.errors import DataError
from geobgp.output.qgis import write_dated
from geobgp.output.rasters import write_period_rasters

MONTHS = Periods.calendar("month", "2020-01", "2020-03")


@pytest.fixture(scope="module")
def source():
    return moving(island(2000.0), MONTHS, title="Bites")


@pytest.fixture(scope="module")
def written(source, tmp_path_factory):
    data = source.intensity()[["mean", "sd"]]
    data["coverage"] = source.maps[0]._dataset({}, {}, coverage=True)["coverage"]
    folder = tmp_path_factory.mktemp("rasters")
    return folder, write_period_rasters(data, MONTHS, folder / "maps", title="Bites")


def test_a_file_for_each_statistic_and_period(written):
    folder, made = written
    names = [item.path.name for item in made]
    assert names == [f"{s}_2020-0{k}.tif" for s in ("mean", "sd") for k in (1, 2, 3)]
    assert [(str(i.start)[:10], str(i.end)[:10], i.label) for i in made[:2]] == [
        ("2020-01-01", "2020-02-01", "2020-01"),
        ("2020-02-01", "2020-03-01", "2020-02"),
    ]
    files = {p.name for p in (folder / "maps").iterdir()}
    assert files == {n for name in [*names, "coverage.tif"] for n in (name, name.replace(".tif", ".qml"))}


def test_each_holds_its_periods_numbers_and_its_time(written, source):
    for k in range(MONTHS.n):
        with rasterio.open(written[1][k].path) as src:
            expected = source.at(k).intensity()["mean"].values.astype(np.float32)
            np.testing.assert_array_equal(src.read(1), expected)
            tags = src.tags()
            assert tags["TIFFTAG_DATETIME"] == f"2020:0{k + 1}:01 00:00:00"
            assert tags["period"] == f"2020-0{k + 1}" and tags["period_end"].startswith(
                str(MONTHS.ends[k])[:10]
            )
            assert tags["TIFFTAG_IMAGEDESCRIPTION"] == f"Bites, 2020-0{k + 1}"
            assert src.units == ("events per km²",) and src.crs.to_epsg() == 28992


def test_the_style_is_one_for_all_periods(written):
    styles = {item.path.with_suffix(".qml").read_text() for item in written[1][:3]}
    assert len(styles) == 1


def test_they_make_a_project_that_plays(written):
    folder, made = written
    assert write_dated(folder / "maps" / "map.qgz", made, title="Bites").stat().st_size > 1000


def test_what_is_no_folder_or_does_not_fit_is_refused(source, tmp_path):
    data = source.intensity()
    with pytest.raises(DataError, match="into a folder"):
        write_period_rasters(data, MONTHS, tmp_path / "a.tif")
    with pytest.raises(DataError, match="3 times; there are 2 months"):
        write_period_rasters(data, MONTHS.slice(0, 2), tmp_path)
