"""Rasters in a real QGIS: what it reads, the style it applies by itself, and the colours it draws."""

from __future__ import annotations

import json

import numpy as np
import pytest
from paths import HELPERS
from posteriors import bumps, disc, island, prescribed
from system import run_qgis

from geobgp.output import palette
from geobgp.output.grids import dataset
from geobgp.output.polygons import to_polygons, write_polygons
from geobgp.output.rasters import write_rasters

pytestmark = [pytest.mark.qgis, pytest.mark.slow]
SCRIPT = HELPERS / "qgis_check.py"


@pytest.fixture(scope="module")
def posterior():
    domain = island()
    return prescribed(domain, bumps(domain), 0.4)


@pytest.fixture(scope="module")
def data(posterior):
    data = posterior.intensity()
    data["exceedance_0.3"] = posterior.exceedance(0.3)
    return data


def ask(path, cells=(), picture="/dev/null"):
    return run_qgis(SCRIPT, path, picture, "6", json.dumps(np.asarray(cells).tolist()))


@pytest.mark.parametrize("name", ["mean", "q95", "sd", "exceedance_0.3"])
def test_a_raster_opens_styled(posterior, data, tmp_path, name):
    domain = posterior.domain
    write_rasters(data, tmp_path)
    cells = np.argwhere(np.isfinite(data[name].values))
    answer = ask(tmp_path / f"{name}.tif", cells, tmp_path / "shot.png")
    assert answer["valid"]
    assert answer["authid"] == "EPSG:28992"
    np.testing.assert_allclose(answer["extent"], domain.grid.bounds)
    assert answer["size"] == [domain.grid.shape[1], domain.grid.shape[0]]
    assert answer["bands"] == [f"Band 1: {name}"]
    assert answer["has_nodata"]
    assert answer["nodata"] == "nan"
    # The style was found beside the file and applied without being asked for.
    assert answer["renderer"] == "singlebandpseudocolor"
    assert answer["ramp"] == 1
    classes = palette.classes_in(data, name)
    values = data[name].values.astype(np.float32)
    units = "" if name.startswith("exceedance") else " events per km²"
    assert answer["legend"] == [label + units for label in classes.labels()]
    assert [item[1] for item in answer["items"]] == classes.hex
    expected = [classes.hex[k] for k in classes.index(values[tuple(cells.T)])]
    assert answer["colours"] == expected
    assert len(set(expected)) >= 5


def test_water_is_not_painted(data, tmp_path):
    write_rasters(data[["mean"]], tmp_path)
    water = np.argwhere(np.isnan(data["mean"].values))
    answer = ask(tmp_path / "mean.tif", water)
    assert set(answer["colours"]) == {"#ffffff"}


def test_all_bands_in_one_file(data, tmp_path):
    (path,) = write_rasters(data, tmp_path / "all.tif")
    answer = ask(path)
    assert answer["bands"] == [f"Band {k + 1}: {name}" for k, name in enumerate(data.data_vars)]
    assert answer["renderer"] == "singlebandpseudocolor"


def test_large_rasters_have_pyramids(tmp_path):
    domain = island(150.0)
    write_rasters(dataset(domain, {"mean": np.exp(bumps(domain))}), tmp_path)
    assert ask(tmp_path / "mean.tif")["overviews"] >= 1


def test_a_local_raster_opens_without_a_crs(tmp_path):
    domain = disc()
    write_rasters(prescribed(domain, bumps(domain), 0.3).intensity()[["mean"]], tmp_path)
    answer = ask(tmp_path / "mean.tif")
    assert answer["valid"]
    assert answer["authid"] == ""
    np.testing.assert_allclose(answer["extent"], domain.grid.bounds)


def test_contours_open(posterior, data, tmp_path):
    frame = to_polygons(data["mean"], [0.1, 0.3], domain=posterior.domain)
    write_polygons(frame, tmp_path / "bands.gpkg")
    answer = ask(tmp_path / "bands.gpkg")
    assert answer["valid"]
    assert answer["authid"] == "EPSG:28992"
    assert answer["features"] == 3
    assert {"lower", "upper", "label", "units", "area"} <= set(answer["fields"])
