"""What rests on few events or people is shown nowhere, and all else as it was."""

from __future__ import annotations

import json

import geopandas as gpd
import numpy as np
import pytest
import rasterio
import shapely
import small_case

from geobgp import LGCP, DataError, Domain, HarmonicBasis, Matern, Posterior, bin_areas, bin_points
from geobgp.cli.app import main
from geobgp.cli.options import MapOptions
from geobgp.privacy import hidden_nodes
from geobgp.scale.strata_options import StrataOptions
from geobgp.web import maps

K = 4


@pytest.fixture(scope="module")
def domain() -> Domain:
    """A square that a river cuts: some cells have two nodes."""
    river = shapely.box(4.4, -1, 4.6, 11)
    return Domain.from_polygons(shapely.box(0, 0, 10, 10), water=river, cell_size=1, crs="local")


def fitted(domain: Domain, counts: np.ndarray, **more) -> Posterior:
    basis = HarmonicBasis.compute(domain, 12, cache=False)
    return LGCP(basis, Matern(1.5, lengthscale=6.0, sd=0.5), **more).fit(counts)


@pytest.fixture(scope="module")
def posterior(domain) -> Posterior:
    return fitted(domain, np.random.default_rng(3).poisson(2.0, domain.n_nodes).astype(float))


def by_loop(domain: Domain, values: np.ndarray, k: int = K) -> np.ndarray:
    """Which cells of the grid hold more than nothing and less than k, cell by cell."""
    total = np.zeros(domain.grid.shape)
    for row, col, value in zip(domain.node_rows, domain.node_cols, values, strict=True):
        total[row, col] += value
    return (total > 0) & (total < k)


def test_cells_that_rest_on_few_events_have_no_numbers_and_all_others_theirs(posterior, domain):
    hidden = by_loop(domain, posterior.observed)
    assert 10 < hidden.sum() < 90
    shown = posterior.protected(K)
    for mine, whole in ((shown.intensity(), posterior.intensity()), (shown.latent(), posterior.latent())):
        for name in whole:
            np.testing.assert_array_equal(np.isnan(mine[name]), hidden)
            np.testing.assert_array_equal(mine[name].values[~hidden], whole[name].values[~hidden])
    np.testing.assert_array_equal(np.isnan(shown.exceedance(2.0)), hidden)
    at_nodes = hidden[domain.node_rows, domain.node_cols]
    np.testing.assert_array_equal(hidden_nodes(shown), at_nodes)
    np.testing.assert_array_equal(shown.node_intensity().isna().all(axis=1), at_nodes)
    np.testing.assert_array_equal(shown.intensity_at(domain.node_points)["mean"].isna(), at_nodes)
    assert not hidden_nodes(posterior).any() and not hidden_nodes(shown.protected(0)).any()


def test_rasters_and_the_numbers_under_the_cursor_have_none_either(posterior, domain, tmp_path, monkeypatch):
    hidden, seen = by_loop(domain, posterior.observed), []
    shown = posterior.protected(K)
    for path in shown.to_raster(tmp_path, [2.0]):
        if path.stem != "coverage":
            with rasterio.open(path) as raster:
                np.testing.assert_array_equal(np.isnan(raster.read(1)), hidden)
    real = maps.Numbers.of
    monkeypatch.setattr(maps.Numbers, "of", lambda *a, **k: seen.append(a[1]) or real(*a, **k))
    shown.to_map(tmp_path / "map.html", thresholds=[2.0])
    assert seen and all(np.isnan(field[hidden]).all() for field in seen[0].values())
    assert any(np.isfinite(field[~hidden]).all() for field in seen[0].values())


def test_few_people_are_hidden_as_few_events_are(domain):
    people = np.full(domain.n_nodes, 50.0)
    people[:7] = [1, 2, 3, 4, 0, 5, 60]
    frame = gpd.GeoDataFrame(
        {"population": people}, geometry=list(domain.polygon_of(np.arange(domain.n_nodes)))
    )
    posterior = fitted(domain, np.where(people > 0, 9.0, 0.0), exposure=frame)
    np.testing.assert_allclose(posterior.exposure, people)
    found = np.isnan(posterior.protected(K).intensity()["mean"])
    np.testing.assert_array_equal(found, by_loop(domain, people))


def test_regions_that_rest_on_few_are_hidden_in_every_table(posterior, domain):
    counts = np.zeros(domain.n_nodes)
    counts[domain.locate([[0.5, 0.5]])] = 3
    counts[domain.locate([[8.5, 8.5]])] = 40
    shown = fitted(domain, counts).protected(K)
    corners = [shapely.box(0, 0, 2, 2), shapely.box(7, 7, 10, 10), shapely.box(0, 7, 3, 10)]
    table = shown.totals(corners)
    assert table["hidden"].tolist() == [True, False, False]  # of no events nothing is disclosed
    assert table[["expected", "sd", "q05", "q95"]].isna().all(axis=1).tolist() == [True, False, False]
    assert table["land_area"].notna().all()
    ranked = shown.ranks(corners, top=1)
    assert ranked["rate"].isna().tolist() == [True, False, False]


def test_counts_by_area_hide_their_area(domain):
    halves = gpd.GeoDataFrame({"n": [2, 90]}, geometry=[shapely.box(0, 0, 5, 10), shapely.box(5, 0, 10, 10)])
    areas = bin_areas(halves, domain, "n")
    shown = fitted(domain, areas).protected(K)
    west = domain.grid.eastings < 5
    found = np.isnan(shown.intensity()["mean"].values)
    assert found[:, west].all() and not found[:, ~west].any()
    table = shown.totals(areas.frame())
    assert table["observed"].isna().tolist() == table["hidden"].tolist() == [True, False]


def test_what_would_show_them_all_the_same_is_refused(posterior, domain, tmp_path):
    with pytest.raises(DataError, match="holds the counts of every cell"):
        posterior.protected(K).save(tmp_path / "fit.geobgp")
    assert not list(tmp_path.iterdir())
    with pytest.raises(DataError, match="hides small numbers is not compared"):
        fitted(domain, posterior.observed + 1).versus(posterior.protected(K))
    with pytest.raises(DataError, match="min_count does not go with strata"):
        StrataOptions(points="p.csv", land="l.gpkg", by="disease", min_count=K)
    told = {"points": "p.csv", "land": "l.gpkg", "output": "out", "min_count": K}
    with pytest.raises(DataError, match="show_points shows every point") as caught:
        MapOptions(**told, show_points=True)
    assert caught.value.option == "min_count"
    with pytest.raises(DataError, match="not yet those of every period"):
        MapOptions(**told, time="date", every="month")


def test_the_shell_hides_them_in_every_file_and_says_what_it_hid(tmp_path, capsys):
    files = small_case.write_files(tmp_path)
    small_case.land().to_file(tmp_path / "regions.gpkg")
    out = tmp_path / "out"
    line = [
        "map",
        files.points_gpkg,
        "--land",
        files.land_gpkg,
        "--cell-size",
        "2000",
        "--features",
        "48",
        "-q",
    ]
    more = [
        "--crs",
        small_case.CRS,
        "--min-count",
        "5",
        "--regions",
        files.regions_gpkg,
        "--no-cache",
        "-o",
        str(out),
    ]
    assert main([*line, *more]) == 0, capsys.readouterr().err
    domain = Domain.from_polygons(files.land_gpkg, cell_size=2000, crs=small_case.CRS)
    hidden = by_loop(domain, bin_points(files.points_gpkg, domain).values, 5)
    assert hidden.any()
    # A sliver of land that has joined the node of another cell shows what that one shows.
    shown = domain.to_grid(np.where(hidden[domain.node_rows, domain.node_cols], np.nan, 1.0))
    with rasterio.open(out / "mean.tif") as raster:
        np.testing.assert_array_equal(np.isnan(raster.read(1)), np.isnan(shown))
    assert not (out / "posterior.geobgp").exists()
    words = f"{hidden.sum():,} of {(domain.coverage > 0).sum():,} cells without numbers"
    assert words in (out / "report.html").read_text("utf-8")
    record = json.loads((out / "summary.json").read_text("utf-8"))
    assert record["choices"]["small numbers"]["value"] == words and record["options"]["min_count"] == 5
    assert gpd.read_file(out / "regions.gpkg")["hidden"].sum() == 0  # both are large
