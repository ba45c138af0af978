"""Where a map comes from: every input is known again by its content, whatever it is called."""

import dataclasses
import gzip
import hashlib
import json
import shutil
import subprocess
from pathlib import Path

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest
import rasterio
import shapely
import small_case as case
import xarray as xr
from affine import Affine

import geobgp
from geobgp import provenance
from geobgp.auto.options import Options
from geobgp.provenance import changed, files_of, identified


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"n": [1, 2, 3], "name": ["a", "b", None], "day": pd.to_datetime(["2020-01-01"] * 3)})
    return gpd.GeoDataFrame(frame, geometry=gpd.points_from_xy(*rng.uniform(0, 1, (2, 3))), crs=4326)


def test_a_file_has_the_digest_that_sha256sum_has(tmp_path):
    path = tmp_path / "points.csv"
    path.write_text('id,note\n1,"two\nlines"\n2,x\n\n')
    told = subprocess.run(["sha256sum", path], capture_output=True, text=True, check=True).stdout.split()[0]
    found = identified(path)
    assert found == {"name": "points.csv", "kind": "file", "sha256": told, "bytes": path.stat().st_size, "features": 2}
    packed = tmp_path / "points.csv.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert identified(packed)["features"] == 2 and identified(packed)["sha256"] != told


def test_several_files_have_the_digest_of_what_sha256sum_writes_of_them(tmp_path, table):
    table.drop(columns="day").to_file(tmp_path / "shapes.shp")
    found = identified(str(tmp_path / "shapes.shp"))
    names = [path.name for path in files_of(tmp_path / "shapes.shp")]
    assert names[0] == "shapes.shp" and {"shapes.dbf", "shapes.prj", "shapes.shx"} < set(names)
    lines = subprocess.run(["sha256sum", *names], cwd=tmp_path, capture_output=True, check=True).stdout
    assert found["sha256"] == hashlib.sha256(lines).hexdigest() and found["features"] == 3
    table.assign(n=[1, 2, 4]).drop(columns="day").to_file(tmp_path / "shapes.shp")  # of which only the .dbf changes
    assert identified(str(tmp_path / "shapes.shp"))["sha256"] != found["sha256"]


def test_features_are_rows_polygons_or_pixels(tmp_path, table):
    table.to_file(tmp_path / "a.gpkg", layer="one")
    table.iloc[:2].to_file(tmp_path / "a.gpkg", layer="two")
    table.to_parquet(tmp_path / "days" if (tmp_path / "days").mkdir() else tmp_path / "days" / "1.parquet")
    table.iloc[:1].to_parquet(tmp_path / "days" / "2.parquet")
    shape = {"width": 5, "height": 4, "count": 1, "dtype": "float32", "transform": Affine(1, 0, 0, 0, -1, 4)}
    with rasterio.open(tmp_path / "people.tif", "w", driver="GTiff", crs=32631, **shape) as raster:
        raster.write(np.zeros((1, 4, 5), "float32"))
    sources = ["a.gpkg|layername=two", "a.gpkg:one", "days", "days/*.parquet", "people.tif", "people.tif|levels"]
    assert [identified(f"{tmp_path}/{source}")["features"] for source in sources] == [2, 3, 4, 4, 20, 20]
    assert identified(f"{tmp_path}/a.gpkg:one")["sha256"] == identified(f"{tmp_path}/a.gpkg|layername=two")["sha256"]


def test_data_in_memory_are_known_by_their_content(table):
    same = identified(table.copy())
    assert same == identified(table) and same["features"] == 3
    others = [
        table.assign(n=[1, 2, 4]),
        table.rename(columns={"n": "m"}),
        table.assign(name=["a", "c", None]),
        table.set_geometry(table.translate(1e-9)),
        table.set_crs(32631, allow_override=True),
        table.iloc[:2],
    ]
    digests = {identified(one)["sha256"] for one in others}
    assert len(digests) == len(others) and same["sha256"] not in digests


@pytest.mark.parametrize(
    "value",
    [
        shapely.box(0, 0, 1, 1), np.arange(6.0).reshape(3, 2), [(0.0, 1.0), (2.0, 3.0)], {"2020": np.ones(3)},
        xr.DataArray(np.ones((2, 2)), dims=("y", "x")), geobgp.Categorical(np.array([1, 2]), names={1: "a"}),
        pd.Series([1.0, 2.0]),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_whatever_can_be_given_has_a_digest(value):
    found = identified(value)
    assert found["kind"] == "memory" and len(found["sha256"]) == 64


def test_what_would_be_used_up_or_computed_is_left_alone():
    chunks = (np.zeros((2, 2)) for _ in range(2))
    assert identified(chunks)["sha256"] is None and len(list(chunks)) == 2
    assert identified(lambda coords: coords)["sha256"] is None
    assert identified("https://example.org/land.gpkg") == {
        "name": "land.gpkg", "kind": "elsewhere", "sha256": None, "bytes": None, "features": None
    }  # fmt: skip


def test_other_libraries_tables_have_the_digest_of_their_content(table):
    pa = pytest.importorskip("pyarrow")
    arrow = pa.table({"n": [1, 2, 3]})
    assert identified(arrow)["sha256"] == identified(pa.table({"n": [1, 2, 3]}))["sha256"] is not None
    assert identified(pa.table({"n": [1, 2, 4]}))["sha256"] != identified(arrow)["sha256"]


def test_what_has_changed_is_told():
    was = {"sha256": "aa", "bytes": 10, "features": 3}
    assert changed(was, was) == "" and changed({"sha256": None}, was) == ""
    assert changed(was, {"sha256": None, "bytes": None, "features": None}) == "the same size, other content"


@pytest.fixture(scope="module")
def mapped(tmp_path_factory):
    files = case.write_files(tmp_path_factory.mktemp("files"))
    people = xr.DataArray(np.ones((3, 3)), dims=("y", "x"))
    how = {"cell_size": 1000, "m": 32, "permeability": 0, "cache": False}
    return files, people, geobgp.map_intensity(files.points_gpkg, case.land(), water=files.water_gpkg, **how)


def test_a_map_knows_its_inputs_versions_and_call(mapped):
    files, _, posterior = mapped
    origin = posterior.origin
    inputs = {one["role"]: one for one in origin["inputs"]}
    assert set(inputs) == {"points", "land", "water"}
    assert inputs["points"]["sha256"] == hashlib.sha256(Path(files.points_gpkg).read_bytes()).hexdigest()
    assert inputs["land"]["kind"] == "memory" and inputs["land"]["features"] == len(case.land())
    assert origin["call"].startswith("map_intensity(") and "cell_size=1000.0" in origin["call"]
    assert str(files.folder) not in json.dumps(dict(origin))  # no folder of this machine travels
    assert origin["software"]["geobgp"] == geobgp.__version__ and origin["software"]["numpy"] == np.__version__


def test_where_a_map_comes_from_is_saved_with_it_and_told_by_its_report(mapped, tmp_path):
    posterior = mapped[2]
    again = geobgp.Posterior.load(posterior.save(tmp_path / "a.geobgp"))
    assert again.origin == posterior.origin
    page = posterior.to_report(tmp_path / "report.html", checks=False).read_text("utf-8")
    for one in posterior.origin["inputs"]:
        assert one["sha256"] in page
    assert "PCG64" in page and f"numpy {np.__version__}" in page


def test_inputs_of_few_persons_do_not_tell_how_many(mapped, tmp_path):
    inputs = [one | ({"features": 7} if one["role"] == "points" else {}) for one in mapped[2].origin["inputs"]]
    posterior = dataclasses.replace(mapped[2].protected(8), origin=mapped[2].origin | {"inputs": inputs})
    path = posterior.save(tmp_path / "few.geobgp")
    for origin in (provenance_in_report(posterior, tmp_path), geobgp.Posterior.load(path).origin["inputs"]):
        points, land = (next(one for one in origin if one["role"] == role) for role in ("points", "land"))
        assert points["features"] is None and points["bytes"] is None and points["sha256"]
        assert land["features"] == len(case.land())


def provenance_in_report(posterior, folder):
    from geobgp.privacy import told_origin

    page = posterior.to_report(folder / "report.html", checks=False).read_text("utf-8")
    told = told_origin(posterior)["inputs"]
    assert all(one["sha256"] in page for one in told)
    return told


def test_versions_are_those_of_what_runs():
    found = provenance.versions()
    assert found["python"].count(".") == 2 and found["scipy"] and "thread" in found["BLAS"]
    assert shutil.which("python") is None or "/" not in json.dumps(found)


def test_covariates_of_every_kind_are_known_by_their_files(mapped, tmp_path):
    files, people, _ = mapped
    people.to_netcdf(tmp_path / "wet.nc")
    areas = tmp_path / "areas.gpkg"
    gpd.GeoDataFrame({"name": ["a"]}, geometry=case.land().geometry[:1], crs=case.land().crs).to_file(areas)
    o = Options(
        points=files.points_gpkg,
        land=case.land(),
        covariates={
            "wet": geobgp.Smooth(str(tmp_path / "wet.nc"), k=8),
            "away": geobgp.Smooth(geobgp.Distance(areas)),
            "use": geobgp.Categorical(tmp_path / "wet.nc", names={1: "wood"}),
            "both": geobgp.Interaction("wet", "use"),
        },
    )
    sources = o.sources()
    assert {k: Path(v).name for k, v in sources.items() if k.startswith("covariate")} == {
        "covariate wet": "wet.nc", "covariate away": "areas.gpkg", "covariate use": "wet.nc",
    }  # fmt: skip
    recorded = o.record(needed=True, matters=True)["covariates"]
    assert recorded["wet"] == "Smooth(source='wet.nc', k=8)" and str(tmp_path) not in str(recorded)
    missing = dataclasses.replace(o, covariates={"wet": geobgp.Smooth("nowhere.tif")})
    with pytest.raises(geobgp.GeobgpError, match=r"nowhere\.tif"):
        missing.check_files()
