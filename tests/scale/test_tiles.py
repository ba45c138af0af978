"""Tiles: no seam is seen, one tile is the whole fit, and a run that is cut off goes on where it was."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import rasterio
import shapely
from paths import ROOT

from geobgp import LGCP, DataError, Domain, FullRank, GeobgpError, Matern, SizeError, bin_points, map_tiles
from geobgp.errors import WriteError
from geobgp.files import held_alone
from geobgp.scale import tiles as module

LAND = shapely.difference(shapely.box(0, 0, 96, 84), shapely.Point(40, 50).buffer(9))
TOLD = {"cell_size": 1.0, "crs": "local", "permeability": 0.0, "tile_nodes": 2300, "min_coverage": 0.02}
FIRST = {"n_jobs": 1}


@pytest.fixture(scope="module")
def points():
    """Points from a field of lengthscale 5 with a lake in it."""
    domain = Domain.from_polygons(LAND, cell_size=1.0, crs="local")
    rng = np.random.default_rng(3)
    field = FullRank(domain).sample_prior(Matern(1.0, 5.0, 1.0), 1, rng, "even")[0]
    weight = domain.node_areas * np.exp(field)
    node = rng.choice(domain.n_nodes, 4000, p=weight / weight.sum())
    coords = domain.node_points[node] + rng.uniform(-0.3, 0.3, (4000, 2))
    return coords[domain.locate(coords) >= 0]


@pytest.fixture(scope="module")
def made(points, tmp_path_factory):
    return map_tiles(points, LAND, tmp_path_factory.mktemp("made") / "out", **FIRST, **TOLD)


@pytest.fixture
def planned(made, tmp_path):
    """A folder in which all but the tiles is done."""
    (tmp_path / "out" / "tiles").mkdir(parents=True)
    shutil.copy(made.folder / "plan.json", tmp_path / "out")
    return tmp_path / "out"


def bands(found):
    with rasterio.open(found.raster) as source:
        return dict(zip(source.descriptions, source.read(), strict=True)), source.profile


def same(found, expected):
    for name, values in bands(expected)[0].items():
        np.testing.assert_allclose(bands(found)[0][name], values, rtol=1e-5)


def test_no_seam_is_seen(points, made):
    assert len(made.table) == 4 and made.n_fitted == 4
    domain = Domain.from_polygons(LAND, cell_size=1.0, crs="local")
    counts = bin_points(points, domain)
    whole = LGCP(FullRank(domain), Matern(1.0, made.lengthscale, made.sd)).fit(counts).intensity()
    found, profile = bands(made)
    assert list(found) == ["mean", "sd", "q05", "q50", "q95"] and np.isnan(profile["nodata"])
    np.testing.assert_array_equal(np.isnan(found["mean"]), np.isnan(whole["mean"].values))
    off = np.abs(found["mean"] - whole["mean"].values) / whole["sd"].values
    assert np.nanmax(off) < 0.02, np.nanmax(off)
    np.testing.assert_allclose(found["sd"], whole["sd"].values, rtol=0.02)
    # Hyperparameters are those of the whole, about.
    free = LGCP(FullRank(domain)).fit(counts)
    assert made.lengthscale == pytest.approx(free.lengthscale, rel=0.2)
    assert made.sd == pytest.approx(free.sd, rel=0.2)
    assert made.table["events"].sum() == counts.n_used == made.counts.n_used
    assert made.table["expected"].sum() == pytest.approx(counts.n_used, rel=0.02)


def test_no_seam_is_seen_where_water_is_open(tmp_path):
    """Water is merged into the same squares in all tiles, across a lake and along a shore that waves."""
    angle = np.linspace(0, 2 * np.pi, 400, endpoint=False)
    wave = 0.9 * (1 + 0.12 * np.sin(5 * angle) + 0.06 * np.sin(17 * angle + 1))
    shore = np.column_stack([48.3 + 46 * wave * np.cos(angle), 42.7 + 40 * wave * np.sin(angle)])
    land = shapely.difference(shapely.Polygon(shore), shapely.Point(41.3, 50.2).buffer(9.4))
    domain = Domain.from_polygons(land, cell_size=1.0, crs="local")
    rng = np.random.default_rng(3)
    field = FullRank(domain).sample_prior(Matern(1.0, 4.0, 1.0), 1, rng, "even")[0]
    weight = domain.node_areas * np.exp(field)
    some = domain.node_points[rng.choice(domain.n_nodes, 1500, p=weight / weight.sum())]
    told = {**TOLD, "permeability": 1.0, "tile_nodes": 1600}
    found = map_tiles(some, land, tmp_path / "out", **FIRST, **told)
    assert len(found.table) == 4
    kernel = Matern(1.0, found.lengthscale, found.sd)
    whole = LGCP(FullRank(domain, permeability=1.0), kernel).fit(bin_points(some, domain)).intensity()
    off = np.abs(bands(found)[0]["mean"] - whole["mean"].values) / whole["sd"].values
    assert np.nanmax(off) < 0.003, np.nanmax(off)


def test_the_mosaic_is_there_twice(made):
    found, profile = bands(made)
    data = made.open()
    assert data["mean"].dims == ("northing", "easting") and data["mean"].attrs["units"] == "events per unit area"
    for name, values in found.items():
        np.testing.assert_array_equal(data[name].values, values)
    assert float(data["easting"][0]) == 0.5 and float(data["northing"][0]) == 83.5
    assert profile["transform"].a == 1.0 and made.raster.with_suffix(".qml").exists()
    record = json.loads((made.folder / "summary.json").read_text())
    assert len(record["tiles"]) == 4 and record["points"]["used"] == made.counts.n_used


def test_one_tile_is_the_whole_fit(points, tmp_path):
    told = {**TOLD, "cell_size": 3.0, "n_jobs": 1, "thresholds": [0.5, 2]}
    found = map_tiles(points, LAND, tmp_path / "out", **told)
    domain = Domain.from_polygons(LAND, cell_size=3.0, crs="local")
    whole = LGCP(FullRank(domain)).fit(bin_points(points, domain))
    assert len(found.table) == 1 and found.lengthscale == whole.lengthscale and found.sd == whole.sd
    expected = whole.dataset(thresholds=[0.5, 2])
    assert list(bands(found)[0]) == ["mean", "sd", "q05", "q50", "q95", "exceedance_0.5", "exceedance_2"]
    for name, values in bands(found)[0].items():
        np.testing.assert_array_equal(values, expected[name].values.astype(np.float32))
    data = found.open()
    assert data["exceedance_2"].attrs["units"] == "1" and "spatial_ref" in data.coords
    assert "2 events per unit area" in data["exceedance_2"].attrs["long_name"]
    assert (found.zarr / ".zmetadata").exists()


def stamps(folder):
    return {p.name: p.stat().st_mtime_ns for p in (folder / "tiles").iterdir()}


def test_what_is_there_is_not_made_again(points, made, tmp_path):
    out = shutil.copytree(made.folder, tmp_path / "out")
    before = stamps(out)
    again = map_tiles(points, LAND, out, **FIRST, **TOLD)
    assert again.n_fitted == 0 and stamps(out) == before
    tiles = sorted((out / "tiles").glob("tile-*"))
    tiles[0].unlink()
    tiles[2].write_bytes(tiles[2].read_bytes()[:-100])
    again = map_tiles(points, LAND, out, **FIRST, **TOLD)
    assert again.n_fitted == 2
    same(again, made)
    # What was learned of some tiles is not learned again, if only that was kept.
    (out / "plan.json").unlink()
    learned = {name: stamp for name, stamp in stamps(out).items() if name.startswith("theta")}
    again = map_tiles(points, LAND, out, **FIRST, **TOLD)
    assert again.n_fitted == 0 and learned and learned.items() <= stamps(out).items()


def test_a_run_that_is_killed_goes_on(points, made, planned, tmp_path):
    np.save(tmp_path / "points.npy", points)
    script = tmp_path / "run.py"
    script.write_text(
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import numpy as np, test_tiles as t\n"
        "t.map_tiles(np.load(sys.argv[2]), t.LAND, sys.argv[3], **t.FIRST, **t.TOLD)\n"
    )
    out = planned
    path = os.pathsep.join(map(str, (ROOT, ROOT / "tests/scale", ROOT / "tests/helpers")))
    begun = subprocess.Popen(
        [sys.executable, str(script), str(ROOT / "tests/scale"), str(tmp_path / "points.npy"), str(out)],
        env=os.environ | {"PYTHONPATH": path},
    )
    deadline = time.monotonic() + 120
    while not list(out.glob("tiles/tile-*")) and begun.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    begun.send_signal(signal.SIGKILL)
    begun.wait()
    there = {name for name in stamps(out) if name.startswith("tile-")}
    before = stamps(out)
    assert 1 <= len(there) < 4 and not (out / "mosaic.tif").exists()
    found = map_tiles(points, LAND, out, **FIRST, **TOLD)
    assert found.n_fitted == 4 - len(there)
    assert all(stamps(out)[name] == before[name] for name in there)
    same(found, made)


def test_a_second_run_into_the_folder_is_refused(points, made):
    """Two would write into one mosaic; the lock goes with the process."""
    script = (
        "import sys, time; from geobgp.files import held_alone\n"
        "with held_alone(sys.argv[1]): print('holds', flush=True); time.sleep(60)"
    )
    place = str(made.folder / "tiles")
    first = subprocess.Popen([sys.executable, "-c", script, place], stdout=subprocess.PIPE, cwd=ROOT)
    try:
        assert first.stdout.readline() == b"holds\n"
        with pytest.raises(WriteError, match=rf"Another run is writing to .*: process {first.pid} on .*Wait until"):
            map_tiles(points, LAND, made.folder, **FIRST, **TOLD)
    finally:
        first.kill()
        first.wait()
        first.stdout.close()
    with held_alone(place):
        pass
    assert not (made.folder / "tiles" / ".in-use").exists()


def test_a_worker_that_dies_is_survived(points, made, client, planned):
    killed = []

    def kill(words: str) -> None:
        if "cluster" in words and "1 of 4" in words and not killed:
            killed.append(next(iter(client.run(os.getpid).values())))
            os.kill(killed[0], signal.SIGKILL)

    found = map_tiles(points, LAND, planned, client=client, progress=kill, **TOLD)
    assert killed and killed[0] not in client.run(os.getpid).values()
    assert found.n_fitted == 4
    same(found, made)


def test_what_cannot_be(points, planned, tmp_path, monkeypatch):
    with pytest.raises(SizeError, match="narrower than the halo"):  # by a quick fit, before the pooled one
        map_tiles(points, LAND, tmp_path / "quick", **FIRST, **{**TOLD, "tile_nodes": 200})
    assert not list((tmp_path / "quick" / "tiles").iterdir())
    monkeypatch.setattr(module, "QUICK_NODES", 10_000)
    with pytest.raises(SizeError, match="narrower than the halo") as caught:
        map_tiles(points, LAND, tmp_path / "a", **FIRST, **{**TOLD, "tile_nodes": 200})
    # The pooled fit is kept, and the number that is proposed is enough.
    enough = int(re.search(r"Use tile_nodes >= ([\d,]+)", str(caught.value))[1].replace(",", ""))
    monkeypatch.setattr(module, "run", None)
    assert map_tiles(points, LAND, tmp_path / "a", **FIRST, **{**TOLD, "tile_nodes": enough}).n_fitted > 1
    monkeypatch.undo()
    with pytest.raises(DataError, match="halo must be a number of at least 3"):
        map_tiles(points, LAND, tmp_path / "a", halo=1.0, **FIRST, **TOLD)
    with pytest.raises(DataError, match="weights does not go with tiles"):
        map_tiles(points, LAND, tmp_path / "a", weights="n", **FIRST, **TOLD)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "thesis.tex").write_text("mine")
    with pytest.raises(DataError, match=r"is not empty \(thesis.tex\), and holds no tiles"):
        map_tiles(points, LAND, tmp_path / "b", **FIRST, **TOLD)
    far = np.full((3, 2), 1e6)
    with pytest.raises(DataError, match="none is left to map; 3 were read, 3 lie off the land"), pytest.warns():
        map_tiles(far, LAND, tmp_path / "c", **FIRST, **TOLD)
    original = module.fit_tile
    monkeypatch.setattr(module, "fit_tile", lambda task, job: _fails(original, task, job))
    with pytest.raises(GeobgpError, match=r"1 of 4 tiles could not be fitted, the first number 2: the disc is bad"):
        map_tiles(points, LAND, planned, **FIRST, **TOLD)
    monkeypatch.undo()
    assert map_tiles(points, LAND, planned, **FIRST, **TOLD).n_fitted == 1


def _fails(original, task, job):
    if task[0].number == 2:
        raise RuntimeError("the disc is bad")
    return original(task, job)


def test_the_shell(points, tmp_path, capsys):
    import geopandas as gpd
    import small_case as case

    from geobgp.cli.app import main

    case.write_files(tmp_path)
    told = ["tiles", str(tmp_path / "points.gpkg"), "--land", str(tmp_path / "land.gpkg"), "--water",
            str(tmp_path / "water.gpkg"), "--permeability", "0", "--jobs", "1", "-o",
            str(tmp_path / "out")]  # fmt: skip
    assert main(told) == 1
    assert "Give --cell-size in metres" in capsys.readouterr().err
    assert main([*told, "--cell-size", "1000"]) == 0
    said = capsys.readouterr()
    assert "1 of 1 tile fitted now" in said.out and "mosaic.tif" in said.out
    with rasterio.open(tmp_path / "out" / "mosaic.tif") as source:
        assert (
            source.crs == gpd.read_file(tmp_path / "land.gpkg").estimate_utm_crs()
            and source.units[0] == "events per km²"
        )
