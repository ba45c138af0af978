"""Projects in a real QGIS: they open where they are moved to, at the right place, and are drawn as the styles say."""

from __future__ import annotations

import json
import zipfile
from dataclasses import replace

import geopandas as gpd
import numpy as np
import pyproj
import pytest
import shapely
from over_time import Stack
from pairs import mapped
from paths import HELPERS
from posteriors import bumps, disc, island, prescribed
from system import run_qgis

from geobgp.checks.hotspots import hotspots_above
from geobgp.data.periods import Periods
from geobgp.errors import DataError, InputWarning
from geobgp.land.domain import Domain
from geobgp.output import palette
from geobgp.output.grids import dataset
from geobgp.output.qgis import (
    MARGIN,
    PROBABILITIES,
    LayerGroup,
    ProjectLayer,
    exceedance_regions,
    label_column,
    project_xml,
    write_project,
    write_qgis,
)
from geobgp.output.rasters import write_rasters
from geobgp.text import number

SCRIPT = HELPERS / "qgis_project_check.py"
MEAN, ABOVE = "Intensity, posterior mean", "Probably more than 0.3 events per km²"
HOT = "Hot spots above 0.3 events per km²"


def ask(project, **questions):
    return run_qgis(SCRIPT, project, questions.pop("folder", "/tmp"), json.dumps(questions))


def halves(domain):
    """Two regions that share the land, whose names need care."""
    west, south, east, north = domain.grid.bounds
    middle = (west + east) / 2
    shapes = [shapely.box(west, south, middle, north), shapely.box(middle, south, east, north)]
    return gpd.GeoDataFrame({"name": ["West & <x>", "East"]}, geometry=shapes, crs=domain.crs)


def cells(domain, values, n=200):
    """Return centres of cells with a value that no line of the map comes near, and the values there."""
    grid = domain.grid
    lines = shapely.union_all([domain.geometry.boundary, halves(domain).boundary.union_all()])
    row, col = np.nonzero(np.isfinite(values))
    places = np.column_stack([grid.eastings[col], grid.northings[row]])
    # Names stand in the middle of each half, and have a rim.
    far = shapely.distance(lines, shapely.points(places)) > 0.8 * grid.cell_size
    step = max(1, far.sum() // n)
    return places[far][::step], values[row, col][far][::step]


@pytest.fixture(scope="module")
def posterior():
    domain = island()
    return prescribed(domain, bumps(domain), 0.4, title='Bites <b> & "co"')


@pytest.fixture(scope="module")
def project(posterior, tmp_path_factory):
    """A project that was moved after it had been written."""
    folder = tmp_path_factory.mktemp("made") / "out"
    with pytest.warns(InputWarning, match="50 events per km² says little"):
        hot = posterior.hotspots(0.3)
        made = posterior.to_qgis(folder, [0.3, 50.0], regions=halves(posterior.domain), hotspots=hot)
    assert made == folder / "map.qgz"
    folder.rename(folder.parent / "moved here")
    return folder.parent / "moved here" / "map.qgz"


@pytest.fixture(scope="module")
def answer(posterior, project, tmp_path_factory):
    places, _ = cells(posterior.domain, posterior.intensity()["mean"].values)
    pictures = {"seen": {}, "mean": {"layers": [MEAN]}, "above": {"layers": [ABOVE]}}
    return ask(project, folder=str(tmp_path_factory.mktemp("p")), places=places.tolist(), pictures=pictures)


@pytest.mark.qgis
@pytest.mark.slow
class TestOpened:
    def test_all_layers_are_found_in_the_moved_folder(self, answer, project):
        assert answer["read"] and answer["missing"] == []
        assert all(layer["valid"] for layer in answer["layers"].values())
        assert all(layer["source"].startswith(str(project.parent)) for layer in answer["layers"].values())
        assert {layer["authid"] for layer in answer["layers"].values()} == {"EPSG:28992"}

    def test_one_group_with_the_title_holds_them(self, answer):
        assert answer["title"] == 'Bites <b> & "co"'
        assert list(answer["groups"]) == [answer["title"]]
        assert list(answer["layers"]) == answer["groups"][answer["title"]]
        visible = [name for name, layer in answer["layers"].items() if layer["visible"]]
        assert visible == ["Regions", HOT, "Boundary", MEAN]

    def test_it_opens_at_the_right_place(self, answer, posterior):
        west, south, east, north = posterior.domain.grid.bounds
        dx, dy = MARGIN * (east - west), MARGIN * (north - south)
        expected = [west - dx, south - dy, east + dx, north + dy]
        np.testing.assert_allclose(answer["canvas"], expected)
        np.testing.assert_allclose(answer["view"], expected)
        assert answer["authid"] == answer["canvas_authid"] == "EPSG:28992"

    def test_names_are_on_the_regions(self, answer):
        assert answer["layers"]["Regions"]["labels"] == "name"
        assert set(answer["seen"]["labels"]) == {"West & <x>", "East", "1"}

    def test_the_mean_is_drawn_in_the_colours_of_its_style(self, answer, posterior):
        data = posterior.intensity()
        _, values = cells(posterior.domain, data["mean"].values)
        classes = palette.classes_in(data, "mean")
        expected = [classes.hex[k] for k in classes.index(values.astype(np.float32))]
        assert answer["mean"]["colours"] == expected
        assert len(set(expected)) > 5
        # With names, borders and the shore over it most of it still shows.
        same = [a == b for a, b in zip(answer["seen"]["colours"], expected, strict=True)]
        assert np.mean(same) > 0.95
        legend = [label for label, _ in answer["layers"][MEAN]["legend"]]
        assert legend == [f"{label} events per km²" for label in classes.labels()]

    def test_the_land_above_a_threshold_is_drawn_by_its_probability(self, answer, posterior):
        _, chance = cells(posterior.domain, posterior.exceedance(0.3).values)
        colours = palette.fixed_classes(palette.PROBABILITY_BREAKS, ramp="probability").hex
        shades = {0: "#ffffff", 1: colours[4], 2: colours[5], 3: colours[6]}
        level = np.searchsorted(PROBABILITIES, chance)
        # Polygons are smooth where cells have steps: judged where a cell is not near a level.
        clear = np.abs(chance[:, None] - PROBABILITIES).min(axis=1) > 0.04
        drawn = np.array(answer["above"]["colours"])
        expected = np.array([shades[k] for k in level])
        assert (drawn == expected)[clear].mean() > 0.97
        assert set(level[clear]) == {0, 1, 2, 3}

    def test_hot_spots_are_outlined_with_their_numbers(self, answer, posterior):
        assert answer["layers"][HOT]["features"] == len(posterior.hotspots(0.3)) > 0
        assert answer["layers"][HOT]["labels"] == "hotspot"

    def test_what_nothing_exceeds_is_an_empty_layer(self, answer):
        assert answer["layers"]["Probably more than 50 events per km²"]["features"] == 0


@pytest.mark.qgis
@pytest.mark.slow
def test_a_plane_of_its_own_and_a_crs_without_a_number(tmp_path):
    answers = {}
    laea = "+proj=laea +lat_0=52 +lon_0=5 +ellps=GRS80 +units=m"
    square = gpd.GeoSeries([shapely.box(-20e3, -15e3, 20e3, 15e3)], crs=laea)
    for name, domain in (("local", disc()), ("own", Domain.from_polygons(square, cell_size=2e3, crs=laea))):
        made = prescribed(domain, bumps(domain), 0.3).to_qgis(tmp_path / name / "risk.qgz", [0.2])
        answers[name] = ask(made, pictures={"seen": {}})
        assert all(layer["valid"] for layer in answers[name]["layers"].values())
        west, south, east, north = domain.grid.bounds
        found = answers[name]["canvas"]
        assert found[0] < west < east < found[2] and found[1] < south < north < found[3]
    assert answers["local"]["crs"] is False and answers["own"]["crs"] is True
    assert {layer["crs"] for layer in answers["own"]["layers"].values()} == {True}


# -- over time


PERIODS = Periods.calendar("month", "2019-12", "2020-02")


def in_steps(folder, periods):
    """A project of three maps that grow, with one legend, and the legend."""
    domain = island()
    source = Stack(periods, tuple(prescribed(domain, 0.0, 0.3, title="Months") for _ in range(3)))
    values = np.repeat([1.0, 10.0, 100.0], domain.n_nodes)
    about = {"mean": {"long_name": "intensity, posterior mean", "units": "per km²", "classes": "3.0, 30.0,"}}
    data = dataset(domain, {"mean": values}, variables=about, periods=periods)
    rasters = write_rasters(data, folder / "periods")
    return write_qgis(source, folder / "map.qgz", rasters), palette.classes_in(data, "mean")


@pytest.fixture(scope="module")
def months(tmp_path_factory):
    return in_steps(tmp_path_factory.mktemp("months"), PERIODS)


@pytest.mark.qgis
@pytest.mark.slow
def test_the_temporal_controller_plays_periods(months, tmp_path):
    project, classes = months
    spans = [("2019-12-01", "2020-01-01"), ("2020-01-01", "2020-02-01"), ("2020-02-01", "2020-03-01")]
    # As the controller asks: the end of a frame belongs to the next one.
    pictures = {f"frame{k}": {"at": [f"{a}T00:00:00Z", f"{b}T00:00:00Z"]} for k, (a, b) in enumerate(spans)}
    answer = ask(project, folder=str(tmp_path), places=[[150_000, 468_000]], pictures=pictures)
    assert answer["groups"]["Months"] == ["Boundary", "Intensity, posterior mean"]
    layers = [answer["layers"][name] for name in answer["groups"]["Intensity, posterior mean"]]
    last = ["2019-12-31T23:59:59Z", "2020-01-31T23:59:59Z", "2020-02-29T23:59:59Z"]
    assert [layer["span"] for layer in layers] == [[f"{a}T00:00:00Z", b] for (a, _), b in zip(spans, last, strict=True)]
    assert [answer[f"frame{k}"]["colours"] for k in range(3)] == [[colour] for colour in classes.hex]
    # One step for each period, and no empty one at the end.
    assert answer["frames"] == [layer["span"] for layer in layers]
    assert answer["time"] == ["2019-12-01T00:00:00Z", "2020-02-29T23:59:59Z"]


# -- without QGIS


def test_the_file_is_a_zip_of_one_project_with_relative_paths(project):
    with zipfile.ZipFile(project) as archive:
        assert archive.namelist() == ["map.qgs"]
        text = archive.read("map.qgs").decode("utf-8")
    assert "<datasource>./mean.tif</datasource>" in text
    assert "<datasource>./map.gpkg|layername=shoreline</datasource>" in text
    assert str(project.parent.parent) not in text
    assert '<Absolute type="bool">false</Absolute>' in text


def test_the_polygons_hold_land_and_no_points(project, posterior):
    shore = gpd.read_file(project.parent / "map.gpkg", layer="shoreline")
    assert shore.geometry.area.sum() == pytest.approx(posterior.domain.geometry.area)
    assert sorted(gpd.list_layers(project.parent / "map.gpkg")["name"]) == [
        "exceedance_0.3",
        "exceedance_50",
        "shoreline",
    ]
    above = gpd.read_file(project.parent / "map.gpkg", layer="exceedance_0.3")
    assert list(above["label"]) == [f"probability > {round(100 * p)} %" for p in PROBABILITIES]
    assert above["area"].is_monotonic_decreasing
    assert set(above["threshold"]) == {0.3} and set(above["units"]) == {"events per km²"}
    # Where each cell surely exceeds it, the land is all of it.
    sure = exceedance_regions(posterior, 1e-9)
    assert sure["area"].to_numpy() == pytest.approx([shore.geometry.area.sum() / 1e6] * len(PROBABILITIES))


def test_periods_that_are_no_dates_are_listed_and_the_first_is_shown(tmp_path):
    made, _ = in_steps(tmp_path, Periods.between([0.0, 1.0, 2.0, 3.5]))
    with zipfile.ZipFile(made) as archive:
        text = archive.read("map.qgs").decode("utf-8")
    assert "<temporal" not in text and "ProjectTimeSettings" not in text
    assert text.count("Qt::Unchecked") == 2
    assert 'name="2 to 3.5"' in text


def test_rasters_lie_in_the_folder_of_the_project(months, posterior, tmp_path):
    file = next((months[0].parent / "periods").glob("*.tif"))
    with pytest.raises(DataError, match="not in the folder of the project"):
        write_qgis(posterior, tmp_path / "map.qgz", [file])


def test_regions_over_time_are_drawn_once(tmp_path):
    domain = island(4000.0)
    source = Stack(PERIODS, tuple(prescribed(domain, 0.0, 0.3, title="Months") for _ in range(3)))
    rasters = write_rasters(source.intensity().drop_vars(["sd", "q05", "q50", "q95"]), tmp_path)
    made = write_qgis(source, tmp_path / "map.qgz", rasters, regions=source.totals(halves(domain)))
    with zipfile.ZipFile(made) as archive:
        text = archive.read("map.qgs").decode("utf-8")
    assert "regions.gpkg|layername=regions|subset=\"period\" = '2019-12'" in text


def test_names_of_projects(tmp_path):
    with pytest.raises(DataError, match=r"\.qgz"):
        write_project(tmp_path / "map.qgs", LayerGroup("a", []), crs=None, bounds=(0, 0, 1, 1))
    layer = ProjectLayer("bell \x07 & <b>", "a.tif", "<qgis/>", crs=pyproj.CRS(28992))
    text = project_xml(LayerGroup("t\x00itle", [LayerGroup("inner", [layer])]), None, (0, 0, 1, 1))
    assert "bell   &amp; &lt;b&gt;" in text and "\x07" not in text and "\x00" not in text


def test_regions_without_names_have_no_labels():
    frame = gpd.GeoDataFrame({"n": [1]}, geometry=[shapely.box(0, 0, 1, 1)])
    assert label_column(frame) == ""


@pytest.mark.qgis
@pytest.mark.slow
def test_a_rate_is_drawn_by_its_median_and_hatched_where_nobody_lives(tmp_path):
    domain = island(2000.0)
    west = domain.node_points[:, 0] < 155_000
    made = replace(
        prescribed(domain, bumps(domain), np.where(west, 0.4, 1.2), title="Rate"),
        exposure=np.where(west, 100.0, 0.0),
        exposure_kind="population",
    )
    median, words = "Intensity, posterior median", "Nobody lives here"
    data = made.intensity()
    places, values = cells(domain, data["q50"].values)
    pictures = {"seen": {}, "median": {"layers": [median]}}
    answer = ask(made.to_qgis(tmp_path / "out"), folder=str(tmp_path), places=places.tolist(), pictures=pictures)
    assert all(layer["valid"] for layer in answer["layers"].values())
    visible = [name for name, layer in answer["layers"].items() if layer["visible"]]
    assert visible == ["Boundary", words, median]
    classes = palette.classes_in(data, "q50")
    expected = np.array([classes.hex[k] for k in classes.index(values.astype(np.float32))])
    assert answer["median"]["colours"] == expected.tolist()
    seen, alone = np.array(answer["seen"]["colours"]), places[:, 0] > 156_000
    assert (seen == expected)[~alone].mean() > 0.95
    lines = seen[alone] != expected[alone]
    assert 0.02 < lines.mean() < 0.6, "lines, between which the colours are seen"


def test_hot_spots_of_periods_and_thresholds_are_layers_of_one_file(tmp_path):
    posterior = mapped("points", "over periods")
    low, high = (float(np.quantile(posterior.mean_by_period(), q)) for q in (0.5, 0.7))
    table = hotspots_above(posterior, (low, high), 0.8)
    path = posterior.to_qgis(tmp_path, (low, high), hotspots=table)
    written = gpd.read_file(tmp_path / "hotspots.gpkg", layer="hotspots")
    assert len(written) == len(table) and set(written["class"]) == set(table["class"])
    with zipfile.ZipFile(path) as archive:
        text = archive.read("map.qgs").decode()
    for value in (low, high):
        assert f"Hot spots above {number(value, 6)}" in text
        for label in posterior.periods.labels:
            only = f"""|layername=hotspots|subset="period" = '{label}' AND "threshold" = {value!r}"""
            assert only in text.replace("&quot;", '"')
