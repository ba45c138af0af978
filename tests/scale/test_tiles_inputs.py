"""Tiles with exposure, effort and covariates: no seam is seen, one tile is the whole fit, what changes is made anew."""

from __future__ import annotations

import json
import os
import shutil

import geopandas as gpd
import numpy as np
import pytest
import rasterio
import shapely
from affine import Affine
from reading import fixed_effects, node_effort, node_exposure
from scipy import ndimage

from geobgp import (
    LGCP,
    DataError,
    Distance,
    Domain,
    FullRank,
    GeobgpError,
    Group,
    Interaction,
    Matern,
    Smooth,
    bin_points,
    map_tiles,
)
from geobgp.data.effects import Effects, Term
from geobgp.data.inputs import Whole
from geobgp.data.rasters import RasterSource
from geobgp.data.sources import EFFORT, EXPOSURE, Key
from geobgp.errors import InputWarning
from geobgp.scale import tiles as tiles_plan
from geobgp.scale.tile import TileInputs

LAND = shapely.difference(shapely.box(0, 0, 96, 84), shapely.Point(40, 50).buffer(9))
TOLD = {"cell_size": 1.0, "crs": "local", "permeability": 0.0, "tile_nodes": 2300, "n_jobs": 1}
COARSE = {**TOLD, "cell_size": 3.0}
PIXEL = 2.0
GREEN = Key("covariates", "green")


def write(path, values, nodata=None, pixel=PIXEL):
    """Write a raster over the land, without a place on Earth."""
    rows, cols = values.shape
    profile = {"driver": "GTiff", "dtype": "float32", "count": 1, "height": rows, "width": cols}
    affine = Affine(pixel, 0, 0, 0, -pixel, rows * pixel)
    with rasterio.open(path, "w", transform=affine, nodata=nodata, **profile) as out:
        out.write(values.astype(np.float32), 1)
    return str(path)


def people():
    """Pixels with people that differ a thousandfold, and a part where nobody lives."""
    rng = np.random.default_rng(1)
    found = np.exp(rng.normal(3.0, 1.5, (42, 48)))
    found[30:36, 20:30] = 0.0
    return found


def green():
    """A covariate that waves."""
    row, col = np.mgrid[:42, :48]
    return 30.0 + 10.0 * np.sin(col / 5.0) * np.cos(row / 7.0)


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    """Files: people, a covariate, and an effort that is lower in the east."""
    folder = tmp_path_factory.mktemp("inputs")
    halves = [shapely.box(-1, -1, 50.5, 85), shapely.box(50.5, -1, 97, 85)]
    frame = gpd.GeoDataFrame({"share": [0.9, 0.3]}, geometry=halves)
    return {
        "exposure": write(folder / "people.tif", people()),
        "effort": frame,
        "covariates": {"green": write(folder / "green.tif", green())},
    }


@pytest.fixture(scope="module")
def points(given):
    domain = Domain.from_polygons(LAND, cell_size=1.0, crs="local")
    rng = np.random.default_rng(3)
    field = FullRank(domain).sample_prior(Matern(1.0, 5.0, 0.7), 1, rng, "even")[0]
    seen = node_exposure(given["exposure"], domain)[0] * node_effort(given["effort"], domain)
    slope = 0.6 * fixed_effects(given["covariates"], domain).columns[:, 1]
    weight = seen * np.exp(field + slope)
    node = rng.choice(domain.n_nodes, 5000, p=weight / weight.sum())
    coords = domain.node_points[node] + rng.uniform(-0.3, 0.3, (5000, 2))
    return coords[(domain.locate(coords) >= 0) & (seen[domain.locate(coords)] > 0)]


@pytest.fixture(scope="module")
def made(points, given, tmp_path_factory):
    return map_tiles(points, LAND, tmp_path_factory.mktemp("made") / "out", **given, **TOLD)


def bands(found):
    with rasterio.open(found.raster) as source:
        return dict(zip(source.descriptions, source.read(), strict=True))


def model(domain, given, kernel=None):
    return LGCP(FullRank(domain), kernel, **given)


def test_no_seam_is_seen(points, given, made):
    assert len(made.table) == 4 and made.n_fitted == 4
    domain = Domain.from_polygons(LAND, cell_size=1.0, crs="local")
    whole = model(domain, given, Matern(1.0, made.lengthscale, made.sd)).fit(bin_points(points, domain))
    found, expected = bands(made), whole.intensity()
    off = np.abs(found["mean"] - expected["mean"].values) / expected["sd"].values
    assert np.nanmax(off) < 0.02, np.nanmax(off)
    np.testing.assert_allclose(found["sd"], expected["sd"].values, rtol=0.02)
    np.testing.assert_array_equal(np.isnan(found["mean"]), np.isnan(expected["mean"].values))
    # Hyperparameters are those of the whole, about.
    free = model(domain, given).fit(bin_points(points, domain))
    assert made.lengthscale == pytest.approx(free.lengthscale, rel=0.25)
    assert made.sd == pytest.approx(free.sd, rel=0.25)
    # The effects are those of the whole, with their joint uncertainty.
    theirs = whole.coefficients
    assert made.coefficients["name"].tolist() == theirs["name"].tolist() == ["intercept", "green"]
    np.testing.assert_allclose(made.coefficients["mean"], theirs["mean"], rtol=1e-6)
    np.testing.assert_allclose(made.coefficients["sd"], theirs["sd"], rtol=1e-6)
    # Expected events are those that get reported; the exposure is not, and all of it is there.
    assert made.table["events"].sum() == made.counts.n_used
    assert made.table["expected"].sum() == pytest.approx(made.counts.n_used, rel=0.02)
    assert made.table["exposure"].sum() == pytest.approx(whole.exposure.sum())


def test_a_cluster_makes_the_same(points, given, made, client, tmp_path):
    """Workers of Dask read their windows by themselves, here from paths that are relative; what is there is kept."""
    told = {**TOLD, "n_jobs": None, "client": client}
    (tmp_path / "tiles").mkdir()
    shutil.copy(made.folder / "plan.json", tmp_path)
    kept = sorted((made.folder / "tiles").glob("tile-*"))
    shutil.copy(kept[0], tmp_path / "tiles")
    relative = os.path.relpath(given["exposure"])
    found = map_tiles(points, LAND, tmp_path, **{**given, "exposure": relative}, **told)
    assert found.n_fitted == 3 and len(found.table) == 4
    for name, values in bands(made).items():
        np.testing.assert_allclose(bands(found)[name], values, rtol=1e-5)
    assert sorted(p.name for p in (tmp_path / "tiles").glob("tile-*")) == [p.name for p in kept]


def test_several_exposures_belong_to_periods(points, given, tmp_path):
    twice = [given["exposure"]] * 2
    for told in ({"exposure": twice}, {"covariates": {"green": twice}}):
        with pytest.raises(DataError, match=r"is given for 2 periods, and a map by tile has none\. Give one"):
            map_tiles(points, LAND, tmp_path / "out", **told, **TOLD)
    assert not (tmp_path / "out").exists()


def test_what_it_is_in(made):
    assert made.units == "events per person"
    with rasterio.open(made.raster) as source:
        assert set(source.units) == {"events per person"}
        assert source.tags()["title"] == "Intensity in events per person"
    assert made.open()["q95"].attrs["units"] == "events per person"
    record = json.loads((made.folder / "summary.json").read_text())
    assert record["unit"] == "events per person"
    assert [one["name"] for one in record["coefficients"]] == ["intercept", "green"]
    assert record["options"]["exposure"] == "people.tif"
    assert record["options"]["covariates"] == {"green": "green.tif"}


def test_one_tile_is_the_whole_fit(points, given, tmp_path):
    found = map_tiles(points, LAND, tmp_path / "out", units="per 1,000", **given, **COARSE)
    domain = Domain.from_polygons(LAND, cell_size=3.0, crs="local")
    whole = model(domain, given).fit(bin_points(points, domain, max_snap=6.0))
    assert len(found.table) == 1 and found.lengthscale == whole.lengthscale and found.sd == whole.sd
    for name, values in bands(found).items():
        np.testing.assert_allclose(values, 1000.0 * whole.intensity()[name].values, rtol=1e-6)
    np.testing.assert_allclose(found.coefficients["mean"], whole.coefficients["mean"], rtol=1e-12)
    assert found.units == "events per 1,000 people"
    # In another unit nothing is fitted again.
    again = map_tiles(points, LAND, tmp_path / "out", **given, **COARSE)
    assert again.n_fitted == 0
    np.testing.assert_array_equal(bands(again)["mean"], whole.intensity()["mean"].values.astype(np.float32))
    assert again.coefficients.equals(found.coefficients)


def test_what_is_read_is_part_of_the_name(points, given, tmp_path):
    path, cover = tmp_path / "people.tif", tmp_path / "green.tif"
    write(path, people())
    write(cover, green())
    told = {**given, "exposure": path, "covariates": {"green": cover}, **COARSE}
    assert map_tiles(points, LAND, tmp_path / "out", **told).n_fitted == 1
    (tmp_path / "people.tif.aux.xml").write_text("<PAMDataset />")  # as QGIS writes beside what it shows
    assert map_tiles(points, LAND, tmp_path / "out", **told).n_fitted == 0
    more = people()
    more[5, 5] *= 2.0
    write(path, more)
    changed = map_tiles(points, LAND, tmp_path / "out", **told)
    assert changed.n_fitted == 1
    other = green()
    other[5, 5] += 9.0
    write(cover, other)
    assert map_tiles(points, LAND, tmp_path / "out", **told).n_fitted == 1
    effort = told["effort"].assign(share=[0.9, 0.4])
    assert map_tiles(points, LAND, tmp_path / "out", **{**told, "effort": effort}).n_fitted == 1
    write(path, people())
    write(cover, green())
    assert map_tiles(points, LAND, tmp_path / "out", **told).n_fitted == 0  # as it was at first


def test_areas_with_people(points, tmp_path):
    """People by area, some of which reach over the edges of tiles, the lake and the land."""
    water = shapely.Point(40, 50).buffer(9)
    boxes = [shapely.box(x, y, x + 23, y + 31) for x in (-8, 15, 38, 61, 84) for y in (-5, 26, 57)]
    frame = gpd.GeoDataFrame({"expected": np.arange(1.0, 16.0) * 90}, geometry=boxes)
    told = {"exposure": frame, "water": water, **TOLD}
    with pytest.warns(InputWarning, match="lie off this domain's land"):
        found = map_tiles(points, shapely.box(0, 0, 96, 84), tmp_path / "out", **told)
    domain = Domain.from_polygons(shapely.box(0, 0, 96, 84), water=water, cell_size=1.0, crs="local")
    with pytest.warns(InputWarning, match="lie off this domain's land"):
        exposure = node_exposure(frame, domain)[0]
    assert found.table["exposure"].sum() == pytest.approx(exposure.sum())
    assert found.units == "times the expected"
    assert found.open()["mean"].attrs["quantity"] == "relative risk"
    kernel = Matern(1.0, found.lengthscale, found.sd)
    whole = LGCP(FullRank(domain), kernel, exposure=exposure).fit(bin_points(points, domain)).intensity()
    off = np.abs(bands(found)["mean"] - whole["mean"].values) / whole["sd"].values
    assert np.nanmax(off) < 0.02, np.nanmax(off)


def test_levels_that_share_cells(points, tmp_path):
    """Pixels a quarter as wide as the cells, and a level that most tiles lack: effects and map are those of one fit."""
    rng = np.random.default_rng(3)
    codes = 1.0 + (ndimage.gaussian_filter(rng.standard_normal((336, 384)), 5) > 0.02)
    codes[:64, :80] = 3.0
    raster = write(tmp_path / "veg.tif", codes, pixel=0.25)
    level = codes[(4 * (84 - points[:, 1])).astype(int), (4 * points[:, 0]).astype(int)]
    points = points[(level > 1) | (rng.random(len(points)) < 0.2)]
    found = map_tiles(points, LAND, tmp_path / "out", covariates={"veg": f"{raster}|levels"}, **TOLD)
    domain = Domain.from_polygons(LAND, cell_size=1.0, crs="local")
    kernel = Matern(1.0, found.lengthscale, found.sd)
    whole = model(domain, {"covariates": {"veg": f"{raster}|levels"}}, kernel).fit(bin_points(points, domain))
    assert whole.design.mixes
    names = found.coefficients["name"].tolist()
    assert names == whole.coefficients["name"].tolist() and "veg 3" in names[2] and len(names) == 3
    off = np.abs(bands(found)["mean"] - whole.intensity()["mean"].values) / whole.intensity()["sd"].values
    assert np.nanmax(off) < 0.05, np.nanmax(off)
    np.testing.assert_allclose(found.coefficients["mean"], whole.coefficients["mean"], atol=0.03)


def test_tiles_where_nobody_lives(points, tmp_path):
    """A raster that ends long before the land does: the map goes on to its mean, as unsure as the prior."""
    land = shapely.box(0, 0, 288, 24)
    path = write(tmp_path / "people.tif", people()[:12] + 1.0)
    some = points[points[:, 1] < 24]
    told = {**TOLD, "tile_nodes": 1800, "exposure": path}
    with pytest.warns(InputWarning, match=r"no value at 4,608 of 6,912 nodes .* taken as zero there"):
        found = map_tiles(some, land, tmp_path / "out", **told)
    assert found.table["converged"].all() and (found.table["exposure"].to_numpy()[2:] == 0).all()
    domain = Domain.from_polygons(land, cell_size=1.0, crs="local")
    exposure = node_exposure(path, Domain.from_polygons(shapely.box(0, 0, 96, 24), cell_size=1.0, crs="local"))[0]
    there = np.zeros(domain.n_nodes)
    there[domain.node_cols < 96] = exposure
    kernel = Matern(1.0, found.lengthscale, found.sd)
    whole = LGCP(FullRank(domain), kernel, exposure=there).fit(bin_points(some, domain)).intensity()
    off = np.abs(bands(found)["mean"] - whole["mean"].values) / whole["sd"].values
    assert np.nanmax(off) < 0.02, np.nanmax(off)


def test_a_tile_beyond_a_raster(tmp_path):
    """Nobody lives where a population raster does not reach; effort and covariates have their means there."""
    domain = Domain.from_polygons(shapely.box(200, 0, 210, 10), cell_size=1.0, crs="local")
    path = write(tmp_path / "a.tif", people())
    green = Effects.of([Term("green")], [7.0], [2.0])
    whole = Whole("population", green, {EFFORT: [0.4], GREEN: [7.0]})
    rasters = {EXPOSURE: path, EFFORT: path, GREEN: path}
    found = TileInputs(rasters, whole).read(domain, {})
    assert (found.exposure == 0).all() and (found.effort == 0.4).all()
    assert (found.effects.columns == [1.0, 0.0]).all()  # 7 is the mean
    assert len(found.gaps) == 3 and all(gap.all() for gap in found.gaps.values())


def test_a_tile_reads_its_own_window(given, monkeypatch):
    windows, original = [], RasterSource.read

    def read(self, top, left, bottom, right):
        windows.append((top, left, bottom, right))
        return original(self, top, left, bottom, right)

    monkeypatch.setattr(RasterSource, "read", read)
    domain = Domain.from_polygons(shapely.box(20, 30, 40, 50), cell_size=1.0, crs="local")
    rasters = {EXPOSURE: given["exposure"], GREEN: given["covariates"]["green"]}
    TileInputs(rasters, Whole(effects=Effects.of([Term("green")], [30.0], [5.0]))).read(domain, {})
    assert set(windows) == {(17, 10, 27, 20)}  # ten by ten of 42 x 48 pixels


@pytest.fixture
def never(monkeypatch):
    """Fail where anything is fitted."""

    def fitted(*args, **more):
        raise AssertionError("It was begun.")

    monkeypatch.setattr(tiles_plan.Planner, "_pooled_fit", fitted)
    monkeypatch.setattr("geobgp.scale.tiles.fit_tile", fitted)


def gappy(values, rows):
    out = values.copy()
    out[:rows] = -9999.0
    return out


@pytest.mark.parametrize("size", [1.0, 3.0])
def test_what_cannot_be_is_said_first(points, given, tmp_path, never, size):
    told = {**given, **TOLD, "cell_size": size}

    def refused(match, kind=DataError, **more):
        with pytest.raises(kind, match=match):
            map_tiles(points, LAND, tmp_path / "out", **{**told, **more})

    holes = write(tmp_path / "holes.tif", gappy(green(), 2), nodata=-9999.0)
    refused(r"covariate 'green' has no value at \d+ of [\d,]+ nodes .* ask for their mean", covariates={"green": holes})
    refused("effort has no value at", effort=write(tmp_path / "e.tif", gappy(green() / 50, 2), nodata=-9999.0))
    refused("96 pixels on this land are negative, down to -9,999",
            exposure=write(tmp_path / "negative.tif", gappy(people(), 2)))  # fmt: skip
    refused("there is no file .*nowhere.tif", GeobgpError, exposure=str(tmp_path / "nowhere.tif"))
    refused("there is no file .*nowhere.tif", GeobgpError, covariates={"a": str(tmp_path / "nowhere.tif")})
    refused("there is no column 'people'", exposure=given["effort"], exposure_column="people")
    refused("there is no column 'sharp'", effort_column="sharp")
    refused("Effort is the share of events", effort=write(tmp_path / "per_cent.tif", green()))
    bare = people()
    bare[:, 30:] = 0.0
    refused(r"\d+ of 4,\d+ events lie where the exposure is zero \(on [\d,]+ nodes\)",
            exposure=write(tmp_path / "bare.tif", bare))  # fmt: skip
    blind = np.where(np.arange(48) < 30, 1.0, 0.0) * np.ones((42, 1))
    refused("lie where the effort is zero", effort=write(tmp_path / "blind.tif", blind))
    refused("is 1 on all of the land", covariates={"a": write(tmp_path / "b.tif", np.ones((42, 48)))})
    refused("relative risk' is the ratio to the average", units="relative risk")
    refused("does not fit", units="per ha")


def test_arrays_have_no_tiles(points, tmp_path):
    import xarray as xr

    for name, value in (
        ("exposure", np.ones(9)), ("effort", [0.5, 0.5]), ("covariates", {"a": np.ones(9)}),
        ("covariates", {"a": lambda at: at[:, 0]}), ("exposure", xr.DataArray(np.ones((3, 3)))),
    ):  # fmt: skip
        with pytest.raises(DataError, match="every tile reads its own part of a raster file or of polygons"):
            map_tiles(points, LAND, tmp_path / "out", **{name: value}, **TOLD)


def test_gaps_are_filled_and_told(points, given, tmp_path):
    """Slivers take the value of the nearest land, others the mean if that was asked for; exposure is zero there."""
    values = green()
    values[:2, :3] = -9999.0
    slivers = write(tmp_path / "slivers.tif", values, nodata=-9999.0)
    with pytest.warns(InputWarning, match=r"'green' has no value at 2 of \d+ nodes .* of the nearest land"):
        found = map_tiles(points, LAND, tmp_path / "a", covariates={"green": slivers}, **COARSE)
    domain = Domain.from_polygons(LAND, cell_size=3.0, crs="local")
    with pytest.warns(InputWarning, match="2 of"):
        whole = model(domain, {"covariates": {"green": slivers}})
    expected = whole.fit(bin_points(points, domain, max_snap=6.0)).intensity()["mean"].values
    np.testing.assert_allclose(bands(found)["mean"], expected, rtol=1e-6)
    holes = write(tmp_path / "holes.tif", gappy(green(), 3), nodata=-9999.0)
    with pytest.warns(InputWarning, match="given the mean of the others"):
        told = {"covariates": {"green": holes}, "fill_missing": "mean"}
        map_tiles(points, LAND, tmp_path / "b", **told, **COARSE)
    whole = Whole(effects=Effects.of([Term("green")], [30.0], [5.0]), usual={GREEN: [30.0]})
    found = TileInputs({GREEN: holes}, whole, "mean").read(domain, {})
    assert (found.effects.columns[:16] == [1.0, 0.0]).all()


def test_the_shell(tmp_path, capsys):
    import small_case as case

    from geobgp.cli.app import main

    case.write_files(tmp_path)
    domain = case.domain(1000.0)
    affine = Affine(1000, 0, case.WEST - 1000, 0, -1000, case.SOUTH + 17_000)
    profile = {"driver": "GTiff", "dtype": "float32", "count": 1, "height": 18, "width": 32, "crs": case.CRS}
    for name, values in (("people", np.full((18, 32), 50.0)), ("dem", np.arange(576.0).reshape(18, 32) ** 0.5)):
        with rasterio.open(tmp_path / f"{name}.tif", "w", transform=affine, **profile) as out:
            out.write(values.astype(np.float32), 1)
    told = ["tiles", str(tmp_path / "points.gpkg"), "--land", str(tmp_path / "land.gpkg"), "--water",
            str(tmp_path / "water.gpkg"), "--permeability", "0", "--jobs", "1", "--cell-size", "1000", "--units",
            "per 100,000", "--exposure", str(tmp_path / "people.tif"), "-o", str(tmp_path / "out")]  # fmt: skip
    assert main([*told, "--covariate", f"dem={tmp_path / 'gone.tif'}"]) == 1
    assert "there is no file" in capsys.readouterr().err
    assert main([*told, "--covariate", f"dem={tmp_path / 'dem.tif'}"]) == 0
    said = capsys.readouterr()
    assert "events per 100,000 people" in said.out
    with rasterio.open(tmp_path / "out" / "mosaic.tif") as source:
        assert source.units[0] == "events per 100,000 people"
    record = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert record["coefficients"][1]["name"] == "dem" and domain.n_nodes


def test_curves_groups_and_interactions_are_those_of_the_pooled_fit(points, given, tmp_path):
    """The same columns in every tile, those of one tile with a fit of its own, and the same map."""
    wards = gpd.GeoDataFrame(
        {"ward": list("abcd")}, geometry=[shapely.box(x, y, x + 48, y + 42) for x in (0, 48) for y in (0, 42)]
    )
    covariates = {
        "green": Smooth(given["covariates"]["green"], k=6), "ward": Group(wards), "both": Interaction("green", "ward"),
    }  # fmt: skip
    exposure = {"exposure": given["exposure"]}
    told = {**COARSE, **exposure, "covariates": covariates}
    whole = map_tiles(points, LAND, tmp_path / "one", **told)
    several = map_tiles(points, LAND, tmp_path / "four", **told | {"tile_nodes": 400})
    assert len(several.table) > len(whole.table) == 1
    domain = Domain.from_polygons(LAND, cell_size=3.0, crs="local")
    counts, what = bin_points(points, domain, max_snap=6.0), exposure | {"covariates": covariates}
    alone = model(domain, what).fit(counts)
    np.testing.assert_allclose(bands(whole)["mean"], alone.intensity()["mean"].values, rtol=1e-5)
    fit = model(domain, what, Matern(1.0, several.lengthscale, several.sd)).fit(counts)
    np.testing.assert_allclose(several.coefficients["mean"], fit.coefficients["mean"], rtol=1e-4, atol=1e-4)
    off = np.abs(bands(several)["mean"] - fit.intensity()["mean"].values) / fit.intensity()["sd"].values
    assert np.nanmax(off) < 0.1, np.nanmax(off)
    # Other splines are another map.
    again = map_tiles(points, LAND, tmp_path / "four", **told | {"tile_nodes": 400})
    assert again.n_fitted == 0
    other = {**covariates, "green": Smooth(given["covariates"]["green"], k=7)}
    assert map_tiles(points, LAND, tmp_path / "four", **told | {"tile_nodes": 400, "covariates": other}).n_fitted > 1
    with pytest.raises(DataError, match="distance over land follows from all of the land"):
        map_tiles(points, LAND, tmp_path / "no", **COARSE, covariates={"pump": Smooth(Distance([[1.0, 1.0]]))})
