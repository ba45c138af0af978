"""Strata: each is the map that its points alone would make on the same basis, whoever makes it and whoever dies."""

from __future__ import annotations

import json
import os
import signal

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest
import small_case as case

from geobgp import LGCP, DataError, Posterior, map_intensity, map_strata
from geobgp.cli.app import main
from geobgp.data.counts import bin_strata
from geobgp.errors import DroppedPointsWarning, StrataWarning
from geobgp.scale import strata as module

TOLD = {"water": case.water(), "cell_size": 1000.0, "crs": case.CRS, "permeability": 0.0, "m": "full"}


@pytest.fixture(scope="module")
def points():
    """Points with a disease and an age; one disease lies abroad, and some rows have none."""
    frame = case.points(seed=1)
    rng = np.random.default_rng(2)
    frame["disease"] = rng.choice(["Lyme", "TBE", "<b>Q</b>/../x"], len(frame), p=[0.7, 0.2, 0.1])
    frame["age"] = rng.choice([5, 40], len(frame))
    abroad = frame.iloc[:3].copy()
    abroad["geometry"], abroad["disease"] = abroad.geometry.translate(500_000.0), "abroad"
    frame = pd.concat([frame, abroad], ignore_index=True)
    frame.loc[[7, 9], "disease"] = None
    return frame


@pytest.fixture(scope="module")
def mapped(points):
    with pytest.warns((StrataWarning, DroppedPointsWarning)) as told:
        found = map_strata(points, case.land(), "disease", n_jobs=1, **TOLD)
    return found, [str(w.message) for w in told]


def same(found, expected):
    assert list(found) == list(expected)
    for name in expected:
        a, b = found[name], expected[name]
        np.testing.assert_allclose(a.node_intensity(), b.node_intensity(), rtol=1e-9)
        assert a.elbo == pytest.approx(b.elbo, rel=1e-12)
        np.testing.assert_array_equal(a.observed, b.observed)


def test_each_is_the_fit_of_its_points_alone(points, mapped):
    strata, told = mapped
    assert list(strata) == ["<b>Q</b>/../x", "Lyme", "TBE"]
    for name, posterior in strata.items():
        alone = points[points["disease"] == name]
        counts = bin_strata(alone, posterior.domain, "disease")[name]
        expected = LGCP(posterior.basis).fit(counts)
        np.testing.assert_array_equal(posterior.observed, expected.observed)
        np.testing.assert_allclose(posterior.node_intensity(), expected.node_intensity(), rtol=1e-9)
        assert posterior.elbo == pytest.approx(expected.elbo)
        one = map_intensity(alone, case.land(), **TOLD)
        np.testing.assert_allclose(posterior.node_intensity(), one.node_intensity(), rtol=1e-6)
        assert posterior.basis is strata.pooled.basis
        assert len(posterior.sample(2, 0)) == 2
    assert strata.failures.keys() == {"abroad"} and "3 read, 3 dropped" in strata.failures["abroad"]
    assert any("1 stratum of 4 could not be mapped (abroad: There are no points" in text for text in told)
    assert any("2 of " in text and "are in no stratum" in text for text in told)
    used = sum(p.n_points for p in strata.values())
    assert used + 2 == strata.pooled.n_points


@pytest.mark.filterwarnings("ignore::geobgp.errors.GeobgpWarning")
@pytest.mark.parametrize("how", ["processes", "cluster"])
def test_others_make_the_same_maps(points, mapped, client, how):
    told = {"n_jobs": 2} if how == "processes" else {"client": client}
    captured = []
    found = map_strata(points, case.land(), "disease", progress=captured.append, **told, **TOLD)
    same(found, mapped[0])
    assert found.failures == mapped[0].failures
    assert any("3 of 3" in words for words in captured)
    regions = case.land()
    a, b = (s.totals(regions, n_samples=50, **t) for s, t in ((found, told), (mapped[0], {})))
    pd.testing.assert_frame_equal(a.drop(columns="geometry"), b.drop(columns="geometry"))
    assert list(a["stratum"]) == [name for name in found for _ in range(2)]


@pytest.mark.filterwarnings("ignore::geobgp.errors.GeobgpWarning")
def test_a_worker_that_dies_is_survived(points, client):
    many = pd.concat([points.assign(disease=points["disease"] + f" {k}") for k in range(4)])
    expected = map_strata(many, case.land(), "disease", n_jobs=1, **TOLD)
    killed = []

    def kill(words: str) -> None:
        if "3 of 12" in words and not killed:
            pids = client.run(os.getpid)
            killed.append(next(iter(pids.values())))
            os.kill(killed[0], signal.SIGKILL)

    found = map_strata(many, case.land(), "disease", client=client, progress=kill, **TOLD)
    assert killed and killed[0] not in client.run(os.getpid).values()
    same(found, expected)


@pytest.mark.filterwarnings("ignore::geobgp.errors.GeobgpWarning")
def test_several_columns_and_any_source(points, tmp_path, client):
    import dask_geopandas

    domain = case.domain(1000.0)
    expected = bin_strata(points, domain, ["disease", "age"])
    assert list(expected)[:2] == ["<b>Q</b>/../x, 5", "<b>Q</b>/../x, 40"]  # numbers in their order
    assert expected.labels.loc["Lyme, 40"].tolist() == ["Lyme", 40]
    frame = points.to_crs(4326)
    frame.to_parquet(tmp_path / "a.parquet", row_group_size=100)
    frame.to_file(tmp_path / "a.gpkg")
    table = pd.DataFrame(frame.drop(columns="geometry")).assign(lon=frame.geometry.x, lat=frame.geometry.y)
    table.to_csv(tmp_path / "a.csv", index=False)
    (tmp_path / "days").mkdir()
    frame.iloc[:300].to_parquet(tmp_path / "days" / "1.parquet", geometry_encoding="geoarrow")
    frame.iloc[300:].to_parquet(tmp_path / "days" / "2.parquet", geometry_encoding="geoarrow")
    collection = dask_geopandas.from_geopandas(frame, npartitions=3)
    for source in (*(tmp_path / f"a.{end}" for end in ("parquet", "gpkg", "csv")), tmp_path / "days", collection):
        found = bin_strata(source, domain, ["disease", "age"], chunksize=150, client=client)
        assert list(found) == list(expected) and found.n_unlabelled == 2
        for name in expected:
            np.testing.assert_array_equal(found[name].values, expected[name].values)
            assert found[name].report().split("notes")[0].strip() == expected[name].report()


@pytest.mark.filterwarnings("ignore::geobgp.errors.GeobgpWarning")
def test_what_cannot_be(points, monkeypatch):
    land = case.land()
    with pytest.raises(DataError, match="there is no column 'illness'; there are 'disease', 'age'"):
        bin_strata(pd.DataFrame(points.drop(columns="geometry")), case.domain(1000.0), "illness")
    with pytest.raises(DataError, match="no column 'illness'"):
        map_strata(points, land, "illness", n_jobs=1, **TOLD)
    with pytest.raises(DataError, match="found points as ndarray"):
        map_strata(np.zeros((3, 2)), land, "disease", **TOLD)
    with pytest.raises(DataError, match="areas has no column 'disease'"):
        map_strata(points, land, "disease", areas=land, count="n", n_jobs=1)
    with pytest.raises(DataError, match="a column of the points"):
        map_strata(points, land, "disease", weights=np.ones(3), n_jobs=1)
    with pytest.raises(DataError, match="3 strata at least; there are 2"):
        map_strata(points, land, "age", pool=True, n_jobs=1, **TOLD)
    with pytest.raises(DataError, match=r"makes [\d,]+ strata of [\d,]+ rows"):
        map_strata(points.assign(row=range(len(points))), land, "row", n_jobs=1, **TOLD)
    monkeypatch.setattr(module, "fit_stratum", _breaks)
    with pytest.raises(DataError, match=r"None of 4 strata could be mapped; the first.*the matrix is bad"):
        map_strata(points, land, "disease", n_jobs=1, **TOLD)


def _breaks(task, job):
    raise np.linalg.LinAlgError("the matrix is bad")


@pytest.mark.parametrize("command", ["map", "strata", "tiles"])
def test_several_exposures_belong_to_periods(points, tmp_path, capsys, command):
    case.write_files(tmp_path)
    case.land().assign(people=5.0).to_file(tmp_path / "people.gpkg")
    told = [command, str(tmp_path / "points.gpkg"), "--land", str(tmp_path / "land.gpkg"), "--cell-size", "2000"]
    told += ["--by", "disease"] if command == "strata" else []
    twice = ["--exposure", str(tmp_path / "people.gpkg")] * 2
    assert main([*told, *twice, "-o", str(tmp_path / "out")]) == 1
    said = capsys.readouterr().err
    assert "--exposure is given for 2 periods, and a map " in said and "has none" in said
    assert ("name the column of dates with --time" in said) == (command == "map")


def test_the_shell(points, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("geobgp.parallel.PATIENCE", 0.5)
    points.to_crs(4326).to_file(tmp_path / "points.gpkg")
    case.land().to_file(tmp_path / "land.gpkg")
    case.water().to_file(tmp_path / "water.gpkg")
    out = tmp_path / "out"
    told = ["strata", str(tmp_path / "points.gpkg"), "--land", str(tmp_path / "land.gpkg"), "--water",
            str(tmp_path / "water.gpkg"), "--by", "disease", "--cell-size", "2000", "--features", "full",
            "--permeability", "0", "--jobs", "1", "--regions", str(tmp_path / "land.gpkg"), "-o", str(out)]  # fmt: skip
    assert main(told) == 0
    said = capsys.readouterr()
    assert "could not be mapped (abroad" in said.err and "index.html" in said.out
    names = {p.name for p in out.iterdir()}
    assert {"index.html", "totals.gpkg", "totals.csv", "strata.csv", "summary.json", "map-lyme.tif", "map-lyme.qml",
            "map-b-q-b-x.tif"} <= names  # fmt: skip
    page = (out / "index.html").read_text()
    assert "<b>Q" not in page and "&lt;b&gt;Q&lt;/b&gt;/../x" in page
    assert page.count('<ul class="legend">') == 1 and page.count("data:image/png") == 3
    assert "http" not in page.replace("http-equiv", "")
    record = json.loads((out / "summary.json").read_text())
    assert record["failures"].keys() == {"abroad"} and record["strata"]["TBE"] == "map-tbe.tif"
    assert "geobgp strata points.gpkg --land land.gpkg" in record["command"] and "--by disease" in record["command"]
    totals = gpd.read_file(out / "totals.gpkg")
    assert len(totals) == 6 and set(totals["name"]) == {"mainland", "island"}
    by = totals.groupby("stratum")["expected"].sum()
    for name in by.index:
        assert by[name] == pytest.approx(pd.read_csv(out / "strata.csv", index_col=0).loc[name, "points"], rel=0.02)
    assert main([*told, "--scheduler", "tcp://127.0.0.1:9", "--force"]) == 1
    assert "no Dask scheduler at tcp://127.0.0.1:9" in capsys.readouterr().err


def test_stored_pooled_posteriors_are_read_again(points, tmp_path, mapped):
    from dataclasses import replace

    from geobgp.prior.kernels import NormalPrior

    posterior = mapped[0]["Lyme"]
    kernel = replace(posterior.kernel, prior=NormalPrior((8.0, 0.5), (0.0, 0.2)))
    replace(posterior, kernel=kernel).save(tmp_path / "a.geobgp")
    assert Posterior.load(tmp_path / "a.geobgp").kernel == kernel
