"""Cells as a table: the land of every node with its numbers, exceedance at places and as polygons, looking around."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
import shapely
from pairs import mapped, table
from posteriors import across_180, bumps, disc, fitted, island, prescribed
from scipy.stats import norm

from geobgp import DataError
from geobgp.output import palette


@pytest.mark.parametrize("domain", [island, across_180, disc])
def test_cells_share_out_the_land_and_hold_its_numbers(domain):
    posterior = prescribed(domain(), bumps(domain()), 0.4)
    cells = posterior.cells(quantiles=(0.1, 0.5), thresholds=(0.2, 0.5))
    land = "land_area" if domain is disc else "land_km2"
    size = posterior.domain.area_unit[0]
    assert cells[land].sum() == pytest.approx(posterior.domain.node_areas.sum() / size)
    np.testing.assert_allclose(cells.area.sum(), posterior.domain.geometry.area, rtol=1e-3)
    assert cells.crs == posterior.domain.crs and cells.attrs["units"] == posterior.units
    # Each polygon holds its node's point, or touches it, and overlaps no other.
    points = shapely.points(posterior.domain.node_points)
    assert (shapely.distance(cells.geometry.to_numpy(), points) < posterior.domain.cell_size).all()
    log = np.log(posterior.shown.factor) + bumps(domain())
    for name, expected in (
        ("q10", np.exp(norm.ppf(0.1, log, 0.4))),
        ("q50", np.exp(log)),
        ("mean", np.exp(log + 0.08)),
        ("exceedance_0.2", norm.sf(np.log(0.2), log, 0.4)),
        ("exceedance_0.5", norm.sf(np.log(0.5), log, 0.4)),
    ):
        np.testing.assert_allclose(cells[name], expected, rtol=1e-9)


@pytest.mark.parametrize("observed", ["points", "areas", "cases and controls", "surveys", "values"])
def test_places_have_the_numbers_of_their_cells(observed):
    posterior = mapped(observed, "over periods")
    threshold = float(np.round(np.median(posterior.node_intensity()["mean"]), 3))
    cells, places = posterior.cells(thresholds=[threshold]), table().geometry[:40]
    at = posterior.values_at(places, thresholds=[threshold])
    node = posterior.domain.node_at(np.column_stack([places.x, places.y]))
    assert len(cells) == 3 * posterior.domain.n_nodes and len(at) == 3 * len(places)
    for label in posterior.periods.labels:
        mine = cells[cells["period"] == label].set_index("node").loc[node]
        for name in ("mean", "sd", "q05", "q95", f"exceedance_{threshold:g}"):
            np.testing.assert_allclose(at.loc[at["period"] == label, name], mine[name])
    only = posterior.cells(thresholds=[threshold], period="2021")
    np.testing.assert_array_equal(only["mean"], cells.loc[cells["period"] == "2021", "mean"])
    draws = posterior.sample(400, 0).values
    chance = (draws > threshold).mean(axis=0).ravel()
    assert np.abs(cells[f"exceedance_{threshold:g}"] - chance).max() < 0.12


def test_covariates_given_at_places_have_exceedances_too():
    posterior = mapped("points", "in space", "numeric covariate")
    at = posterior.values_at(table().geometry[:5], covariates={"height": 1.0}, thresholds=[posterior.overall])
    low, high = (at[name] for name in ("q05", "q95"))
    chance = at[f"exceedance_{posterior.overall:g}"]
    assert ((chance > 0.95) >= (low > posterior.overall)).all() and chance.between(0, 1).all()
    assert ((high < posterior.overall) <= (chance < 0.05)).all()


def test_small_numbers_stay_hidden():
    hidden = fitted()[0].protected(6)
    cells = hidden.cells(thresholds=(0.2,))
    told = hidden.node_intensity()["mean"]
    for name in ("mean", "sd", "q05", "exceedance_0.2"):
        np.testing.assert_array_equal(cells[name].isna(), told.isna())
    assert told.isna().any() and "observed" not in cells
    controls = mapped("cases and controls", "in space")
    assert "exposure" in controls.cells() and "exposure" not in controls.protected(3).cells()


def test_exceedance_as_polygons_is_the_land_of_those_cells():
    posterior = fitted()[0]
    cells = posterior.cells(thresholds=(0.2,))
    frame = posterior.to_polygons([0.5, 0.9], variable="exceedance", threshold=0.2, smooth=False, kind="above")
    domain = posterior.domain
    cell = domain.node_rows * domain.grid.shape[1] + domain.node_cols
    alone = np.bincount(cell)[cell] == 1  # a cell with both banks of a river shows their mean
    for level, shape in zip(frame["lower"], frame.geometry, strict=True):
        chance = cells["exceedance_0.2"].to_numpy()
        inside = shapely.area(shapely.intersection(cells.geometry.to_numpy(), shape)) > 0.5 * cells.area.to_numpy()
        np.testing.assert_array_equal(inside[alone], (chance > level)[alone])
    years = mapped("points", "over periods").to_polygons([0.5], threshold=1.0)
    assert set(years["period"]) <= {"2020", "2021", "2022"}


def test_what_is_asked_of_an_exceedance_has_to_fit():
    posterior = fitted()[0]
    with pytest.raises(DataError, match="none was given"):
        posterior.to_polygons([0.5], variable="exceedance")
    with pytest.raises(DataError, match="asks for a probability"):
        posterior.to_polygons([0.5], variable="sd", threshold=0.2)
    with pytest.raises(DataError, match="between 0 and 1"):
        posterior.to_polygons([0.5, 2.0], threshold=0.2)


@pytest.mark.parametrize("domain", [island, across_180, disc])
def test_a_look_around_has_every_cell_in_its_class(domain):
    posterior = prescribed(domain(), bumps(domain()), 0.4)
    page = posterior.explore(threshold=0.3).get_root().render()
    data = json.loads(re.search(r"_add\((\{\"features\".*?\})\);", page.replace("\n", "")).group(1))
    cells = posterior.cells(thresholds=(0.3,))
    assert len(data["features"]) == len(cells)
    classes = palette.classes_for("exceedance", posterior.exceedance(0.3).values)
    colours = [classes.hex[k] for k in classes.index(cells["exceedance_0.3"].to_numpy().astype(np.float32))]
    assert [f["properties"]["colour"] for f in data["features"]] == colours
    if domain is across_180:  # in one piece
        shapes = [shapely.geometry.shape(f["geometry"]) for f in data["features"]]
        lon = shapely.get_coordinates(shapes)[:, 0]
        assert np.ptp(lon) < 10
    assert "https://" not in re.sub(r"<script>.*?</script>|<style>.*?</style>", "", page, flags=re.S)
