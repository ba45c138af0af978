from __future__ import annotations

import errno
import subprocess
import sys
from xml.etree import ElementTree

import numpy as np
import pytest
import rasterio
import xarray as xr
from posteriors import across_180, bumps, disc, fitted, island, prescribed

from geobgp.errors import DataError, WriteError
from geobgp.output import grids, palette
from geobgp.output.rasters import write_rasters

RIO = "from rasterio.rio.main import main_group; main_group()"


def test_one_file_per_variable(data, tmp_path):
    paths = write_rasters(data, tmp_path / "out", title="A title")
    assert [p.name for p in paths] == ["mean.tif", "sd.tif", "q05.tif", "q50.tif", "q95.tif", "exceedance_0.5.tif"]
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == sorted(
        [p.name for p in paths] + [p.name[:-4] + ".qml" for p in paths]
    )
    for path, name in zip(paths, data.data_vars, strict=True):
        with rasterio.open(path) as src:
            assert src.crs.to_epsg() == 28992
            assert src.dtypes == ("float32",)
            assert np.isnan(src.nodata)
            assert src.descriptions == (name,)
            assert src.units == (data[name].attrs["units"],)
            np.testing.assert_array_equal(src.read(1), data[name].values.astype(np.float32))
            assert src.transform == grids.transform_of(data)
            tags = src.tags(1)
            values = data[name].values[np.isfinite(data[name].values)]
            np.testing.assert_allclose(float(tags["STATISTICS_MAXIMUM"]), values.max(), rtol=1e-6)
            np.testing.assert_allclose(float(tags["STATISTICS_MEAN"]), values.mean(), rtol=1e-6)
            assert src.tags()["title"] == "A title"
            assert src.tags()["n_points"] == "1234"
            assert src.tags()["AREA_OR_POINT"] == "Area"


def test_all_bands_in_one_file(data, tmp_path):
    (path,) = write_rasters(data, tmp_path / "all.tif")
    with rasterio.open(path) as src:
        assert src.descriptions == tuple(data.data_vars)
        assert set(src.units[:5]) == {"events per km²"}
        np.testing.assert_array_equal(src.read(3), data["q05"].values.astype(np.float32))
    assert path.with_suffix(".qml").exists()


@pytest.mark.parametrize("cells", [1000.0, 150.0])
def test_files_are_strictly_cloud_optimised(cells, tmp_path):
    domain = island(cells)
    data = grids.dataset(domain, {"mean": np.exp(bumps(domain))})
    (path,) = write_rasters(data, tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", RIO, "cogeo", "validate", "--strict", str(path)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "is a valid cloud optimized GeoTIFF" in done.stdout, done.stdout + done.stderr
    with rasterio.open(path) as src:
        # Even a small raster draws faster from an overview.
        assert src.overviews(1) or max(src.shape) <= 128


def test_overviews_average_land_only(tmp_path):
    domain = island(200.0)
    data = grids.dataset(domain, {"mean": np.full(domain.n_nodes, 3.0)})
    (path,) = write_rasters(data, tmp_path)
    with rasterio.open(path, overview_level=0) as src:
        values = src.read(1)
    assert set(np.unique(values[np.isfinite(values)])) == {3.0}


def test_what_was_there_stays_and_no_half_file_is_left(data, tmp_path, monkeypatch):
    write_rasters(data[["mean"]], tmp_path)
    before = (tmp_path / "mean.tif").read_bytes()

    def fail(self, content):
        with self.open("wb") as file:
            file.write(content[:100])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_bytes", fail)
    with pytest.raises(WriteError, match="the disk is full"):
        write_rasters(data[["mean"]] * 2, tmp_path)
    assert (tmp_path / "mean.tif").read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mean.qml", "mean.tif"]


def test_a_file_is_no_directory(data, tmp_path):
    target = tmp_path / "results"
    target.write_text("x")
    with pytest.raises(DataError, match="is a file"):
        write_rasters(data, target)
    with pytest.raises(DataError, match="nothing to write"):
        write_rasters(xr.Dataset(), tmp_path)


def test_local_domains_have_rasters_too(tmp_path):
    domain = disc()
    data = prescribed(domain, bumps(domain), 0.3).intensity()
    (path,) = write_rasters(data, tmp_path / "local.tif")
    with rasterio.open(path) as src:
        assert src.crs is None
        assert src.units[0] == "events per unit area"
        np.testing.assert_array_equal(src.read(1), data["mean"].values.astype(np.float32))
        np.testing.assert_allclose(src.bounds, domain.grid.bounds)


def test_projections_of_our_own_keep_their_place(tmp_path):
    domain = across_180()
    data = grids.dataset(domain, {"mean": np.arange(domain.n_nodes) + 1.0})
    (path,) = write_rasters(data, tmp_path)
    with rasterio.open(path) as src:
        import pyproj

        stored = pyproj.CRS.from_wkt(src.crs.to_wkt())
        x, y = domain.grid.bounds[0], domain.grid.bounds[3]
        a = pyproj.Transformer.from_crs(domain.crs, 4326, always_xy=True).transform(x, y)
        b = pyproj.Transformer.from_crs(stored, 4326, always_xy=True).transform(x, y)
        np.testing.assert_allclose(a, b, atol=1e-9)


def test_style_holds_the_classes_with_units(data, tmp_path):
    paths = {p.stem: p for p in write_rasters(data, tmp_path)}
    tree = ElementTree.parse(tmp_path / "mean.qml")
    items = tree.findall(".//item")
    classes = palette.classes_for("mean", data["mean"].values.astype(np.float32))
    assert [i.get("color") for i in items] == classes.hex
    assert [float(i.get("value")) for i in items[:-1]] == classes.breaks.tolist()
    assert items[-1].get("value") == "inf"
    assert all(i.get("label").endswith(" events per km²") for i in items)
    # Quantiles are comparable with the mean.
    tops = [i.get("value") for i in ElementTree.parse(tmp_path / "q95.qml").findall(".//item")]
    assert tops == [i.get("value") for i in items]
    assert "exceedance_0.5" in paths


def test_a_field_without_values_is_written_without_a_style(data, tmp_path):
    empty = data[["mean"]] * np.nan
    write_rasters(empty, tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["mean.tif"]


def test_a_real_posterior_as_rasters(tmp_path):
    posterior, _ = fitted()
    paths = posterior.to_raster(tmp_path / "all", thresholds=[0.25])
    assert {p.name for p in paths} >= {"mean.tif", "sd.tif", "q05.tif", "q50.tif", "q95.tif", "exceedance_0.25.tif"}
    with rasterio.open(tmp_path / "all" / "mean.tif") as src:
        tags = src.tags()
        assert src.units == ("events per km²",)
        np.testing.assert_array_equal(src.read(1), posterior.intensity()["mean"].values.astype(np.float32))
    assert tags["boundary"] == "neumann"
    assert tags["kernel"] == "Matern 1.5"
    assert int(tags["n_points"]) == posterior.n_points
    assert {"source", "created", "features"} <= set(tags)
    (path,) = posterior.to_raster(tmp_path / "one.tif")
    with rasterio.open(path) as src:
        assert src.descriptions[:5] == ("mean", "sd", "q05", "q50", "q95")
    bands = posterior.to_polygons([0.1, 0.3], tmp_path / "bands.gpkg")
    assert len(bands) >= 2
