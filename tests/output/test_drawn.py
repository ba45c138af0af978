"""The statistic that is drawn: one property decides it, and every output shows it, says it, and hatches empty land."""

from __future__ import annotations

import base64
import io
import json
import re
from dataclasses import replace

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import shapely
from models import square
from over_time import Stack
from PIL import Image
from posteriors import bumps, island, prescribed

from geobgp import LGCP, Domain, FullRank, Matern, Periods
from geobgp.auto.tasks import fit_risk
from geobgp.data.inputs import NEXT_TO_NONE, next_to_none
from geobgp.data.persons import Groups, Persons
from geobgp.output import palette
from geobgp.output.figures import plot_posterior
from geobgp.output.grids import View, hatched_cells, hatched_land
from geobgp.output.qgis import write_qgis
from geobgp.report.report import ReportInputs, render, write_report
from geobgp.scale.strata import picture
from geobgp.text import number, rounded
from geobgp.web.maps import HATCHING, posterior_map


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


def rate(domain, kind="population", sd=0.6):
    """A rate whose people live in the west only; in the east it is as unsure as it may be."""
    west = domain.node_points[:, 0] < np.median(domain.node_points[:, 0])
    made = prescribed(domain, bumps(domain), np.where(west, sd, 2 * sd), title="Rate")
    people = np.where(west, 50.0 * domain.node_areas / domain.area_unit[0], 0.0)
    return replace(made, exposure=people, exposure_kind=kind)


@pytest.fixture(scope="module")
def posterior():
    return rate(island(2000.0)).in_units("per 1,000")


@pytest.mark.parametrize(
    ("kind", "drawn"),
    [("area", "mean"), ("population", "median"), ("exposure", "median"), ("expected", "median"), ("risk", "median")],
)
def test_one_property_decides_what_every_output_shows(kind, drawn, tmp_path):
    made = rate(island(4000.0), kind)
    name = {"mean": "mean", "median": "q50"}[drawn]
    assert made.drawn == drawn and made.provenance["drawn"] == drawn
    data = made.intensity()
    assert palette.drawn_variable(data) == name
    files = made.to_raster(tmp_path / "files")
    assert files[0].name == f"{name}.tif"
    assert made.to_raster(tmp_path / "files", quantiles=(0.1,))[0].name == f"{name}.tif"
    (bands,) = made.to_raster(tmp_path / "one.tif")
    import rasterio

    with rasterio.open(bands) as src:
        assert src.descriptions[0] == name and src.tags()["drawn"] == drawn
        assert f"posterior {drawn}" in src.tags(1)["long_name"]
    ax = made.plot()
    index = np.ma.filled(ax.images[0].get_array().astype(float), np.nan)
    classes = palette.classes_in(data, name)
    np.testing.assert_array_equal(index, np.where(np.isnan(data[name]), np.nan, classes.index(data[name].values)))
    with pytest.raises(AssertionError):  # the other statistic is another picture
        other = data[{"mean": "q50", "q50": "mean"}[name]].values
        np.testing.assert_array_equal(index, np.where(np.isnan(other), np.nan, classes.index(other)))
    legend = [t.get_text() for t in ax.figure.axes[-1].texts] + [a.get_ylabel() for a in ax.figure.axes]
    assert f"{drawn}, {made.units}" in legend
    page = made.to_map().get_root().render()
    assert f"{drawn.capitalize()} {made.quantity}" in page
    assert json.dumps(f"; {drawn} {made.quantity}, {made.units}")[1:-1] in page
    assert f'"drawn":"{name}"' in page.replace('": "', '":"')
    report = render(made, ReportInputs())
    assert f"{drawn.capitalize()} {made.quantity}, {made.units}" in report
    polygons = made.to_polygons([float(data[name].median())], kind="above")
    assert polygons.equals(made.to_polygons([float(data[name].median())], kind="above", variable=drawn))


def test_all_statistics_share_the_classes_of_what_is_drawn(posterior):
    data = posterior.intensity()
    breaks = palette.round_classes(data["q50"].values.astype(np.float32)).breaks.tolist()
    for name in ("mean", "q05", "q50", "q95"):
        assert palette.classes_in(data, name).breaks.tolist() == breaks


def test_the_threshold_of_a_rate_is_the_average_of_the_exposed(posterior):
    """Not that of the land, most of which may be empty and very uncertain."""
    page = posterior.to_map().get_root().render()
    assert json.dumps(f"Probability > {number(rounded(posterior.overall, 2), 3)}")[1:-1].replace(">", "\\u003e") in page
    assert posterior.overall < 0.8 * np.average(posterior.node_intensity()["mean"], weights=posterior.domain.node_areas)


def test_two_maps_of_a_rate_are_compared_by_their_medians(tmp_path):
    domain = island(4000.0)
    one, two = rate(domain), rate(domain, sd=0.3)
    compared = one.versus(two, names=("new", "old"))
    gap = compared.to_dataset()["difference"].values
    np.testing.assert_array_equal(gap, compared.difference((0.5,))["q50"].values)
    page = compared.to_map().get_root().render()
    assert "median, new" in page and "Difference, median" in page and "nobody lives here" in page
    ax = compared.plot(variable="difference")
    assert "nobody lives here" in ax.get_xlabel() and "median difference" in ax.figure.axes[1].get_ylabel()
    areas = replace(one, exposure_kind="area").versus(replace(two, exposure_kind="area"))
    np.testing.assert_array_equal(areas.to_dataset()["difference"], areas.difference(())["mean"])


def test_an_uninhabited_island_is_not_in_the_top_class_and_is_hatched():
    """Its mean is the highest of the map, since nothing is known of it; its median is the average rate."""
    land = shapely.union_all([shapely.box(0, 0, 10, 10), shapely.box(14, 4, 16, 6)])
    domain = Domain.from_polygons(land, cell_size=1, crs="local")
    alone = domain.node_points[:, 0] > 12
    rng = np.random.default_rng(4)
    people = np.where(alone, 0.0, rng.uniform(50, 150, domain.n_nodes))
    truth = 0.05 * np.exp(0.5 * np.sin(domain.node_points[:, 0]))
    counts = rng.poisson(people * truth)
    made = LGCP(FullRank(domain), Matern(1.0, lengthscale=2.0, sd=1.0), exposure=people).fit(counts)
    assert made.drawn == "median"
    classes, table = palette.classes_in(made.intensity(), "q50"), made.node_intensity()
    shown, mean = (classes.index(table[name].to_numpy()) for name in ("q50", "mean"))
    used = shown.max()
    assert shown[alone].max() < used and (shown[alone] <= np.quantile(shown[~alone], 0.75)).all()
    assert mean[alone].min() > shown[alone].max(), "the mean is what said that it is high"
    np.testing.assert_array_equal(made.unexposed, alone)
    assert "no exposure here" in made.plot().get_xlabel()


def test_shuffled_labels_colour_no_land_that_is_probably_below_average():
    """Wherever the map of a risk is coloured above 1.1, the risk is above 1 with a probability of more than a half."""
    domain, rng = square(12.0), np.random.default_rng(8)
    near = np.flatnonzero(domain.node_points[:, 0] < 5)
    node = rng.choice(near, 600)
    case = rng.permutation(np.r_[np.ones(250, bool), np.zeros(350, bool)])

    def persons(which):
        return Persons(None, node[which], pd.DataFrame(index=range(which.sum())))

    groups = Groups.of(persons(case), persons(~case))
    made = fit_risk(groups, FullRank(domain), Matern(1.0, lengthscale=2.5, sd=0.8))
    assert made.drawn == "median" and not made.unexposed.any()
    table = made.node_intensity()
    above = made._shown_nodes.sf(0.0)
    coloured, by_mean = table["q50"] > 1.1, table["mean"] > 1.1
    assert coloured.any() and (above[coloured] > 0.5).all()
    assert (above[by_mean] < 0.5).mean() > 0.3, "which the mean does not keep"


@pytest.mark.parametrize("dust", [0.0, 1e-12, 1e-6])
def test_dust_of_a_raster_is_nobody(dust):
    people = np.r_[np.geomspace(0.01, 1000, 50), np.full(200, dust)]
    np.testing.assert_array_equal(next_to_none(people, np.ones(250)), np.arange(250) >= 50)
    # Small cells, and few people per cell, are no less inhabited.
    assert not next_to_none(1e-3 * people[:50], np.full(50, 1e-9)).any()
    assert next_to_none(np.stack([people, people[::-1]]), np.ones(250)).sum() == 400
    assert NEXT_TO_NONE == 1e-5


@pytest.mark.parametrize(
    ("kind", "words"), [("population", "nobody lives here"), ("exposure", "no exposure here"), ("area", "")]
)
def test_land_without_exposure_is_hatched_everywhere(kind, words, tmp_path):
    made = rate(island(2000.0), kind)
    nodes, said = hatched_land(made)
    assert said == words and nodes.any() == bool(words)
    domain = made.domain
    east = hatched_cells(domain, nodes)
    for ax in (made.plot(), made.plot(variable="uncertainty"), made.plot(threshold=0.5)):
        lines = [a for a in ax.patches + ax.artists if a.get_hatch()]
        assert len(lines) == bool(words) and (words in ax.get_xlabel() or not words)
    page = made.to_map(threshold=0.5).get_root().render()
    assert page.count(f'"hatched":"{words}"') == 3
    found = re.findall(r'"(data:image/png;base64,[^"]+)"', page)
    images = [Image.open(io.BytesIO(base64.b64decode(url.split(",")[1]))) for url in dict.fromkeys(found)]
    assert [image.mode for image in images] == ["P"] * 3
    for image in images:
        pixels = np.asarray(image.convert("RGBA"))
        dark = (pixels[..., None, :3] == HATCHING).all(axis=3).any(axis=2) & (pixels[..., 3] > 0)
        if not words:
            assert not dark.any()
            continue
        columns = np.flatnonzero(dark.any(axis=0)) / pixels.shape[1]
        assert 0.4 < columns.min() < 0.65 and columns.max() > 0.95, "the east, and only there"
        land = pixels[:, pixels.shape[1] * 3 // 4, 3] > 0
        assert 0.1 < dark[:, pixels.shape[1] * 3 // 4][land].mean() < 0.4, "lines, with the colours between them"
    report = render(made, ReportInputs())
    assert ("Hatched: " + words in report) if words else "Hatched" not in report
    rasters = made.to_raster(tmp_path)
    write_qgis(made, tmp_path / "map.qgz", rasters)
    import geopandas as gpd
    import pyogrio

    layers = [name for name, _ in pyogrio.list_layers(tmp_path / "map.gpkg")]
    assert ("hatched" in layers) == bool(words)
    if words:
        frame = gpd.read_file(tmp_path / "map.gpkg", layer="hatched")
        assert frame.is_valid.all() and set(frame["label"]) == {words}
        # Whole cells, as the raster has them.
        assert frame.area.sum() == pytest.approx(east.sum() * domain.cell_size**2)
    small = picture(domain.to_grid(made.node_intensity()["q50"].to_numpy()), palette.ratio_classes(), east)
    pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(small.split(",")[1]))).convert("RGB"))
    assert not ((pixels[:, :, None] == HATCHING).all(axis=3).any(axis=2) & ~east).any()


def test_over_time_it_is_the_median_too_and_hatched_where_nobody_lives_then(tmp_path):
    domain, years = island(4000.0), Periods.calendar("year", "2018", "2020")
    maps = [rate(domain) for _ in range(3)]
    # In the last year somebody lives everywhere.
    maps[2] = replace(maps[2], exposure=np.full(domain.n_nodes, 50.0))
    stack = Stack(years, tuple(maps), None)

    class Timed(Stack):
        @property
        def unexposed(self):
            return np.stack([one.unexposed for one in self.maps])

    stack = Timed(years, tuple(maps), None)
    view = View(stack)
    nodes, words = view.hatched
    assert nodes.shape == (3, domain.n_nodes) and words == "nobody lives here"
    assert nodes.any(axis=1).tolist() == [True, True, False]
    figure = plot_posterior(stack)
    panels = [ax for ax in figure.axes if ax.images]
    assert [any(a.get_hatch() for a in ax.patches + ax.artists) for ax in panels] == [True, True, False]
    assert "nobody lives here" in figure.get_supxlabel()
    assert any("median" in ax.get_ylabel() for ax in figure.axes)
    values = np.ma.filled(panels[0].images[0].get_array().astype(float), np.nan)
    classes = palette.classes_in(view.data, "q50")
    median = view.data["q50"].values[0]
    np.testing.assert_array_equal(values, np.where(np.isnan(median), np.nan, classes.index(median)))
    page = posterior_map(stack).get_root().render()
    assert "Median intensity" in page and '"drawn":"q50"' in page and '"hatched":"nobody lives here"' in page
    report = write_report(tmp_path / "report.html", stack).read_text("utf-8")
    assert "Median intensity" in report and "Hatched: nobody lives here." in report
