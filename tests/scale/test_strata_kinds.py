"""Strata of every kind of data, in space and over periods: what one posterior answers, all answer together."""

from __future__ import annotations

from zipfile import ZipFile

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest
import shapely
import xarray as xr

from geobgp import DataError, map_intensity, map_risk, map_strata
from geobgp.errors import CacheError
from geobgp.scale.strata import Strata

LAND = shapely.box(0, 0, 10, 10)
HALVES = [shapely.box(0, 0, 5, 10), shapely.box(5, 0, 10, 10)]
QUICK = {"land": LAND, "crs": "local", "cell_size": 1.0, "permeability": 0.0}
RNG = np.random.default_rng(1)
TABLE = pd.DataFrame(RNG.uniform(0, 10, (600, 2)), columns=["easting", "northing"])
TABLE["age"] = np.where(TABLE["easting"] > RNG.uniform(0, 10, 600), "old", "young")
TABLE["date"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(RNG.integers(0, 360, 600), "D")
TABLE["ill"] = RNG.integers(0, 2, 600)
GRID = [shapely.box(x, y, x + 2, y + 2) for x in range(0, 10, 2) for y in range(0, 10, 2)]
AREAS = gpd.GeoDataFrame(
    {"n": RNG.poisson(np.repeat([4, 8], 25)), "age": ["old"] * 25 + ["young"] * 25}, geometry=GRID * 2
)
YEARS = pd.concat([AREAS.assign(year=year, n=AREAS["n"] + year % 2) for year in (2019, 2020)], ignore_index=True)
KINDS = {
    "points": {"points": TABLE, "m": "full"},
    "time": {"points": TABLE, "time": "date", "every": "quarter", "m": 16},
    "areas": {"areas": AREAS, "count": "n", "m": 25},
    "areas over time": {"areas": YEARS, "count": "n", "m": 9, "time": "year", "every": "year"},
    "risk": {"cases": TABLE[TABLE["ill"] == 1], "controls": TABLE[TABLE["ill"] == 0].drop(columns="age"), "m": 25},
    "status": {"cases": TABLE, "status": "ill", "m": 25},
}


@pytest.fixture(scope="module", params=KINDS)
def strata(request):
    return request.param, map_strata(by="age", n_jobs=1, **QUICK, **KINDS[request.param])


def alone(kind: str, name: str):
    """The map that a stratum's own rows make on the same cells and features."""
    told = dict(KINDS[kind])
    for what, table in told.items():
        if hasattr(table, "columns") and "age" in table:
            told[what] = table[table["age"] == name].reset_index(drop=True)
    return (map_risk if "cases" in told else map_intensity)(**QUICK, **told)


def test_each_is_the_map_of_its_own_rows(strata):
    kind, maps = strata
    assert list(maps) == ["old", "young"] and not maps.failures
    for name in maps:
        expected = alone(kind, name)
        assert maps[name].n_points == expected.n_points
        np.testing.assert_allclose(maps[name].mean_by_period(), expected.mean_by_period(), rtol=0.03)


@pytest.mark.filterwarnings("ignore:The threshold")
def test_all_answer_as_each_does(strata, tmp_path):
    _, maps = strata
    places = [[2.0, 5.0], [8.0, 5.0]]
    table, data = maps.values_at(places), maps.dataset(thresholds=[1.0])
    totals = maps.totals(HALVES, n_samples=50)
    ranks = maps.ranks(HALVES, top=1, n_samples=50)
    for name, posterior in maps.items():
        one = table[table["stratum"] == name]
        np.testing.assert_array_equal(one["mean"], posterior.values_at(places)["mean"])
        each = posterior.dataset(thresholds=[1.0])
        for variable in each.data_vars:
            shown = data[variable] if variable == "coverage" else data[variable].sel(stratum=name)
            np.testing.assert_array_equal(shown, each[variable])
        np.testing.assert_array_equal(maps.exceedance(1.0).sel(stratum=name), posterior.exceedance(1.0))
        own = totals[totals["stratum"] == name]
        pd.testing.assert_series_equal(
            own["expected"].reset_index(drop=True), posterior.totals(HALVES, n_samples=50)["expected"],
            check_index=False,
        )  # fmt: skip
        assert len(ranks[ranks["stratum"] == name]) == len(own)
    assert (totals["age"] == totals["stratum"]).all()
    with xr.open_dataset(maps.to_netcdf(tmp_path / "all.nc")) as stored:
        assert stored.sizes["stratum"] == 2 and [str(s.values) for s in stored["stratum"].astype(str)] == list(maps)
    if maps.pooled.periods is not None:
        last = maps.at(-1)
        assert isinstance(last, Strata) and last["old"].periods is None
        np.testing.assert_array_equal(last["old"].node_intensity(), maps["old"].at(-1).node_intensity())


def test_saved_equals_loaded(strata, tmp_path):
    _, maps = strata
    again = Strata.load(maps.save(tmp_path / "all.geobgp"))
    assert repr(again) == repr(maps)
    pd.testing.assert_frame_equal(again.table(), maps.table())
    for name in maps:
        np.testing.assert_array_equal(again[name].node_intensity(), maps[name].node_intensity())
    assert again["old"].basis is again["young"].basis
    with pytest.raises(CacheError):
        Strata.load(maps["old"].save(tmp_path / "one.geobgp"))


def test_pages_and_projects(strata, tmp_path):
    kind, maps = strata
    if kind not in ("points", "time"):
        pytest.skip("the same files")
    project = maps.to_qgis(tmp_path / "qgis", [1.0], regions=HALVES)
    with ZipFile(project) as archive:
        text = archive.read("map.qgs").decode()
    assert text.count('name="old"') == text.count('name="young"') == 1
    assert "./map-old/" in text and (tmp_path / "qgis" / "map-young" / "regions.gpkg").exists()
    page = maps.to_map(tmp_path / "map.html")
    assert "script-src 'sha256-" in page and "script-src 'unsafe-inline'" not in page
    assert page.count("<option>") == 2 and "http-equiv" in page and page.count("<script") == 2
    maps.to_report(tmp_path / "report.html", checks=False)
    assert (tmp_path / "report.html").read_text("utf-8").count("<option>") == 2
    maps.to_index(tmp_path / "index.html")


def test_small_numbers_stay_hidden(tmp_path):
    maps = map_strata(by="age", n_jobs=1, min_count=20, **QUICK, **KINDS["points"])
    assert all(posterior.protection for posterior in maps.values())
    again = Strata.load(maps.save(tmp_path / "all.geobgp"))
    assert all(posterior.observed is None for posterior in (*again.values(), again.pooled))
    np.testing.assert_array_equal(again.dataset()["mean"], maps.dataset()["mean"])


def test_what_does_not_go_together():
    with pytest.raises(DataError, match="areas has no column 'age'"):
        map_strata(by="age", areas=AREAS.drop(columns="age"), count="n", **QUICK)
    with pytest.raises(DataError, match="both points and cases"):
        map_strata(by="age", points=TABLE, cases=TABLE, **QUICK)
    with pytest.raises(DataError, match="exposure has no meaning for cases and controls"):
        map_strata(by="age", cases=TABLE, status="ill", exposure="people.tif", **QUICK)
    with pytest.raises(DataError, match="count belongs to counts by area"):
        map_strata(by="age", cases=TABLE, status="ill", count="n", **QUICK)
