from __future__ import annotations

import base64
import io
import json
import re
from dataclasses import replace
from types import SimpleNamespace

import folium
import geopandas as gpd
import numpy as np
import pyproj
import pytest
import shapely
import xarray as xr
from PIL import Image
from posteriors import across_180, bumps, disc, fitted, island, prescribed

from geobgp import Domain
from geobgp.errors import CRSError, DataError, GeometryError, WriteError
from geobgp.land.grid import Grid
from geobgp.output import palette
from geobgp.summary import Summary
from geobgp.text import rounded
from geobgp.web import maps
from geobgp.web.layers import Decimals, Patches, chance_codes
from geobgp.web.page import unpack

NASTY = "<script>alert(1)</script>{{ 7*7 }}</title>\"'&"


@pytest.fixture(scope="module")
def posterior():
    domain = island()
    return prescribed(domain, bumps(domain), 0.2 + 0.3 * (domain.node_points[:, 0] > 155_000))


@pytest.fixture(scope="module")
def html(posterior):
    return maps.posterior_map(posterior, title="Bites").get_root().render()


def config_of(html):
    """The object that the page's script is started with."""
    at = html.index('{"title":', html.index("window.geobgp.current = window.geobgp.start("))
    return json.JSONDecoder().raw_decode(html[at:])[0]


def threshold_of(config, k=2):
    """The threshold of one of the layers."""
    return float(config["layers"][k]["chance"].removeprefix("probability > "))


def pictures_of(html):
    found = re.findall(r"L\.imageOverlay\(\s*\"data:image/png;base64,([A-Za-z0-9+/=]+)\"", html)
    return [Image.open(io.BytesIO(base64.b64decode(f))) for f in found]


def test_it_is_a_folium_map(posterior):
    made = maps.posterior_map(posterior)
    assert isinstance(made, folium.Map)
    assert folium.Map.default_js
    assert folium.Map.default_css
    folium.Marker([52, 5]).add_to(made)


def test_nothing_is_fetched(html):
    markup = re.sub(r"<script>.*?</script>", "", html, flags=re.S)
    assert not re.search(r"(src|href|action)\s*=\s*[\"']?\s*(https?:)?//", markup)
    assert not re.search(r"url\(\s*[\"']?(?!data:)", markup)
    assert "@import" not in markup
    assert "sourceMappingURL" not in html
    assert not re.search(r"<script[^>]+src", html)
    assert not re.search(r"<link[^>]+stylesheet", html)


def test_the_policy_comes_first_and_forbids_the_network(html):
    policy = re.search(r'<meta http-equiv="Content-Security-Policy" content="([^"]+)"', html)
    assert policy.start() < html.index("<script")
    rules = dict(rule.strip().split(" ", 1) for rule in policy.group(1).split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["connect-src"] == "'none'"
    assert rules["img-src"] == "data: blob:"
    assert "http" not in policy.group(1)


def test_words_are_escaped(posterior):
    posterior = replace(posterior, title=NASTY)
    html = maps.posterior_map(posterior).get_root().render()
    assert "<script>alert(1)" not in html
    assert "49</title>" not in html
    assert "{{ 7*7 }}" in html
    assert config_of(html)["title"] == NASTY


def test_pictures_are_palettes_in_the_colours_of_the_classes(posterior, html):
    images = pictures_of(html)
    assert [i.mode for i in images] == ["P"] * 3
    config = config_of(html)
    grid = config["grid"]
    data = posterior.intensity()
    fields = {
        "mean": data["mean"].values,
        "cv": 100 * data["sd"].values / data["mean"].values,
        "exceedance": posterior.exceedance(threshold_of(config)).values,
    }
    whole = np.argwhere(posterior.domain.coverage == 1)[::37]
    to_mercator = pyproj.Transformer.from_crs(28992, 3857, always_xy=True)
    x, y = to_mercator.transform(*posterior.domain.grid.centres(*whole.T))
    col = ((x - grid["west"]) / grid["pixel"]).astype(int)
    row = ((grid["north"] - y) / grid["pixel"]).astype(int)
    for image, (name, values) in zip(images, fields.items(), strict=True):
        assert image.size == (grid["cols"], grid["rows"])
        rgba = np.asarray(image.convert("RGBA"))
        values = values.astype(np.float32)
        classes = palette.classes_for(name, values)
        np.testing.assert_array_equal(rgba[row, col, :3], classes.colours[classes.index(values[tuple(whole.T)])])
        assert (rgba[row, col, 3] == 255).all()
        assert (rgba[0, 0] == 0).all()


def read(html, x, y):
    """What the page's script reads at places of the plane: numbers by name, NaN where it reads nothing."""
    config = config_of(html)
    grid, cells = config["grid"], config["cells"]
    px, py = (x - grid["west"]) / grid["pixel"], (grid["north"] - y) / grid["pixel"]
    inside = (px >= 0) & (py >= 0) & (px < grid["cols"]) & (py < grid["rows"])
    opaque = np.asarray(pictures_of(html)[0].convert("RGBA"))[..., 3] > 0
    inside[inside] = opaque[py[inside].astype(int), px[inside].astype(int)]
    k, n = config["patches"]["count"], config["patches"]["knots"]
    patches = Patches(np.reshape([config["patches"][name] for name in ("cols", "rows")], (2, k, n, k, n)))
    u, v = patches.at(px / grid["cols"], py / grid["rows"])
    col, row = (np.floor((w - cells[name]) / cells["block"]) for w, name in ((u, "col"), (v, "row")))
    shape = (cells["rows"], cells["cols"])
    inside &= (row >= 0) & (col >= 0) & (row < shape[0]) & (col < shape[1])
    at = row[inside].astype(int), col[inside].astype(int)
    out = {}
    for name, text in config["arrays"].items():
        codes = unpack(text, shape)[at]
        out[name] = np.full(len(x), np.nan)
        if name[0] == "p":
            out[name][inside] = np.where(codes > 0, (codes - 1.0) / 1000, np.nan)
        else:
            out[name][inside] = Decimals(cells["lowest"]).decode(codes)
    return out


def places(domain, n=3000):
    """Random places over the grid, but for the thousandth of a cell along edges: eastings, northings."""
    u, v = np.random.default_rng(5).random((2, n)) * np.array(domain.grid.shape[::-1])[:, None]
    clear = (np.abs(u - np.round(u)) > 1e-3) & (np.abs(v - np.round(v)) > 1e-3)
    return domain.grid.from_cells(u[clear], v[clear])


def on_plane(domain, east, north, longitude):
    """Coordinates in EPSG:3857 by pyproj alone, whole turns from ±180 on this side of a longitude."""
    if domain.crs is None:
        return east, north
    lon, lat = pyproj.Transformer.from_crs(domain.crs, 4326, always_xy=True).transform(east, north)
    lon = lon + 360 * np.round((longitude - lon) / 360)
    _, y = pyproj.Transformer.from_crs(4326, 3857, always_xy=True).transform(0 * lon, lat)
    return np.radians(lon) * 6378137, y


def recut(crs, cell_size):
    return Domain.from_polygons(
        gpd.GeoSeries([island().geometry], crs=28992), cell_size=cell_size, crs=crs, min_coverage=0.2
    )


KINDS = {
    "dutch grid": island,
    "utm": lambda: recut(32632, 900.0),
    "equal area": lambda: recut(3035, 700.0),
    "antimeridian": across_180,
    "local": lambda: disc(0.05),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_place_reads_the_rasters_value_there(kind):
    """To the last digit; next to each other cells have nothing in common here."""
    domain = KINDS[kind]()
    rng = np.random.default_rng(8)
    posterior = prescribed(domain, rng.normal(size=domain.n_nodes), rng.uniform(0.1, 1, domain.n_nodes))
    html = maps.posterior_map(posterior, threshold=1.0).get_root().render()
    config = config_of(html)
    east, north = places(domain)
    x, y = on_plane(domain, east, north, np.mean([b[1] for b in config["bounds"]]))
    found = read(html, x, y)
    row, col, _ = domain.grid.cell_of(east, north)
    data = posterior.intensity()
    raster = {name: data[name].values[row, col] for name in ("mean", "sd", "q05", "q50", "q95")}
    raster |= {"low": raster.pop("q05"), "high": raster.pop("q95")}
    raster["cv"] = 100 * raster["sd"] / raster["mean"]
    shown = np.isfinite(found["mean"])
    assert shown.sum() > 1000
    for name, values in raster.items():
        assert found[name][shown].tolist() == [rounded(v, 3) for v in values[shown].tolist()], name
    p = posterior.exceedance(1.0).values[row, col]
    np.testing.assert_array_equal(found["p0"][shown], (chance_codes(p[shown]) - 1.0) / 1000)
    # On land there is a value, on the water none: but for a pixel along the shore, and land that has no node.
    pixel = config["grid"]["pixel"]
    inland = shapely.contains_xy(shapely.buffer(domain.geometry, -pixel), east, north)
    at_sea = ~shapely.intersects_xy(shapely.buffer(domain.geometry, pixel), east, north)
    assert shown[inland & np.isfinite(raster["mean"])].all()
    assert not shown[at_sea].any()


def test_the_default_threshold_is_the_mean_over_land(posterior, html):
    domain = posterior.domain
    mean = np.average(posterior.node_intensity()["mean"].to_numpy(), weights=domain.node_areas)
    assert threshold_of(config_of(html)) == pytest.approx(mean, rel=0.05)


def test_thresholds_can_be_chosen_or_left_out(posterior):
    config = config_of(maps.posterior_map(posterior, threshold=0.25).get_root().render())
    assert threshold_of(config) == 0.25
    assert config["layers"][2]["classes"][-1]["label"] == "> 99"
    config = config_of(maps.posterior_map(posterior, threshold=False).get_root().render())
    assert [layer["key"] for layer in config["layers"]] == ["mean", "uncertainty"]
    assert "p0" not in config["arrays"]


def test_legends_have_units(html):
    layers = config_of(html)["layers"]
    assert layers[0]["units"] == "events per km²"
    assert layers[1]["units"] == "sd / mean, %"
    assert layers[2]["units"].endswith("events per km²")


def test_points_stay_out_unless_asked_for(posterior):
    points = gpd.GeoDataFrame(
        {"name": ["A", NASTY]}, geometry=gpd.points_from_xy([154_321.0, 160_123.0], [462_345.0, 468_765.0]), crs=28992
    )
    lon = points.to_crs(4326).geometry.x
    without = maps.posterior_map(posterior, points=points).get_root().render()
    assert config_of(without)["points"] is None
    assert f"{lon[0]:.6f}" not in without
    made = maps.posterior_map(posterior, points=points.to_crs(3857), show_points=True, point_labels="name")
    html = made.get_root().render()
    shown = config_of(html)["points"]
    np.testing.assert_allclose(np.array(shown["coords"])[:, 1], lon, atol=1e-6)
    assert shown["labels"] == ["A", NASTY]
    assert "<script>alert(1)" not in html
    with pytest.raises(DataError, match="does not keep them"):
        maps.posterior_map(posterior, show_points=True)
    with pytest.raises(CRSError, match="of the points is not known"):
        maps.posterior_map(posterior, show_points=True, points=points.set_crs(None, allow_override=True))
    with pytest.raises(DataError, match="too many"):
        maps.posterior_map(posterior, show_points=True, points=np.zeros((60_000, 2)))
    with pytest.raises(GeometryError, match="points were expected; found 2 Polygon"):
        maps.posterior_map(posterior, show_points=True, points=points.buffer(5))


def test_tiles_open_the_policy_for_their_server_only(posterior):
    html = maps.posterior_map(posterior, basemap="OpenStreetMap").get_root().render()
    policy = re.search(r'Security-Policy" content="([^"]+)"', html).group(1)
    assert "img-src data: blob: https://tile.openstreetmap.org;" in policy
    assert "connect-src 'none'" in policy
    assert config_of(html)["opacity"] == 0.75
    own = folium.TileLayer("https://{s}.example.org/{z}/{x}/{y}.png", attr="x", overlay=True)
    html = maps.posterior_map(posterior, basemap=own).get_root().render()
    assert "https://*.example.org;" in html
    with pytest.raises(DataError, match="no place on Earth"):
        maps.posterior_map(prescribed(disc(), 0.0, 0.3), basemap="OpenStreetMap")


def test_maps_of_all_kinds_of_domain():
    for domain in (disc(), across_180()):
        config = config_of(maps.posterior_map(prescribed(domain, bumps(domain), 0.3)).get_root().render())
        assert config["local"] == (domain.crs is None)
        (south, west), (north, east) = config["bounds"]
        assert south < north
        assert 0 < east - west < 10


def test_a_flat_posterior_has_a_map():
    domain = disc()
    html = maps.posterior_map(prescribed(domain, 0.0, 0.3), threshold=1.0).get_root().render()
    mean, uncertainty, _ = config_of(html)["layers"]
    assert len(mean["classes"]) >= 5  # of which one is seen
    assert len(np.unique(np.asarray(pictures_of(html)[0])[::3, ::3])) == 2  # that, and no land
    # sd / mean of a log-normal is sqrt(exp(0.09) - 1).
    assert [c["label"] for c in uncertainty["classes"]] == ["about 31 % everywhere"]
    assert uncertainty["note"] == "The uncertainty is about 31 % everywhere."


def test_saving_is_all_or_nothing(posterior, tmp_path, monkeypatch):
    made = maps.posterior_map(posterior)
    path = maps.save(made, tmp_path / "new" / "map.html")
    first = path.read_text(encoding="utf-8")
    assert first.startswith("<!DOCTYPE html>")
    with pytest.raises(DataError, match=r"\.html"):
        maps.save(made, tmp_path / "map.png")

    def fail(self, *args, **kwargs):
        raise OSError("no space left on device")

    monkeypatch.setattr("pathlib.Path.write_text", fail)
    with pytest.raises(WriteError, match="no space"):
        maps.save(made, path)
    monkeypatch.undo()
    assert path.read_text(encoding="utf-8") == first
    assert [p.name for p in path.parent.iterdir()] == ["map.html"]


def test_a_limit_on_bytes_is_kept(posterior):
    small = maps.posterior_map(posterior, max_bytes=30_000)
    config = config_of(small.get_root().render())
    assert sum(map(len, config["arrays"].values())) < 30_000
    assert config["grid"]["rows"] * config["grid"]["cols"] > 1_000


def test_notebooks_show_the_map(posterior):
    text = maps.posterior_map(posterior)._repr_html_()
    assert text.startswith("<div")
    assert "srcdoc=" in text


@pytest.mark.slow
def test_a_map_of_4096_by_4096_cells_stays_under_15_megabytes(tmp_path):
    """Even of noise, which no compression helps."""
    n = 4096
    crs = pyproj.CRS(3067)
    grid = Grid.from_bounds((200_000, 6_600_000, 200_000 + 100 * n, 6_600_000 + 100 * n), 100, crs)
    rng = np.random.default_rng(0)
    log = rng.normal(size=grid.shape).astype(np.float32)
    ones = np.ones(grid.shape, np.float32)
    west, _, _, north = grid.bounds
    domain = SimpleNamespace(
        grid=grid, geometry=shapely.box(*grid.bounds), barriers=None, coverage=ones, cell_area=ones, crs=crs,
        cell_size=100.0, n_nodes=1, node_points=np.array([[west + 50, north - 50]]), node_rows=np.array([0]),
        node_cols=np.array([0]), area_unit=(1e6, "km²"),
    )  # fmt: skip
    fields = {"mean": 0.0, "sd": -1.0, "q05": -0.5, "q50": -0.1, "q95": 0.5}
    data = xr.Dataset({k: (("northing", "easting"), np.exp(log + v)) for k, v in fields.items()})
    data.attrs["title"] = "Noise"
    posterior = SimpleNamespace(
        effort=None, final_effort=None, delays=None, drawn="mean", unexposed=np.zeros(1, bool), exposure_kind="area",
        domain=domain, units="events per km²", points={"used": 1}, intensity=lambda: data,
        summary=lambda: Summary({"points": {"used": 1}}),
        exceedance=lambda t: xr.DataArray(rng.random(grid.shape, np.float32), dims=("northing", "easting")),
    )  # fmt: skip
    path = maps.save(maps.posterior_map(posterior), tmp_path / "big.html")
    assert path.stat().st_size < 15e6
    # Not every cell has its own number then, and the map says so.
    config = config_of(path.read_text(encoding="utf-8"))
    k = config["cells"]["block"]
    assert k > 1
    assert f"averages of {k} x {k} cells" in dict(config["about"])["numbers"]


def test_a_real_posterior_on_its_own_map(tmp_path):
    posterior, counts = fitted()
    posterior.to_map(tmp_path / "map.html")
    config = config_of((tmp_path / "map.html").read_text(encoding="utf-8"))
    assert config["layers"][0]["subtitle"].startswith(f"{counts.sum():,} points")
    names = [name for name, _ in config["about"]]
    assert {"lengthscale", "cells", "numbers"} <= set(names)
    cells = config["cells"]
    shown = Decimals(cells["lowest"]).decode(unpack(config["arrays"]["mean"], (cells["rows"], cells["cols"])))
    assert np.nanmax(shown) == rounded(float(posterior.intensity()["mean"].max()), 3)
    assert posterior._repr_html_().startswith("<div")
