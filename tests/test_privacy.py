"""Small numbers: what rests on few events is shown nowhere, and no file tells where single events happened."""

from __future__ import annotations

import json
import warnings
import zipfile
from pathlib import Path

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest
import rasterio
import shapely
import small_case
import xarray as xr
from scipy.ndimage import gaussian_filter, uniform_filter
from scipy.optimize import minimize
from scipy.stats import rankdata

from geobgp import (
    LGCP,
    Categorical,
    DataError,
    Domain,
    FullRank,
    HarmonicBasis,
    Matern,
    Periods,
    Posterior,
    bin_areas,
    bin_points,
    map_risk,
    map_strata,
    store,
)
from geobgp.cli.app import main
from geobgp.cli.options import MapOptions
from geobgp.errors import GeobgpWarning, StrataWarning
from geobgp.privacy import RULES, complemented, effective_events, hidden_cells, hidden_nodes
from geobgp.report.report import region_table
from geobgp.scale.tiles import TilesOptions
from geobgp.web import maps, overlays

K = 6


@pytest.fixture(scope="module")
def domain() -> Domain:
    """A square that a river cuts: some cells have two nodes."""
    river = shapely.box(4.4, -1, 4.6, 11)
    return Domain.from_polygons(shapely.box(0, 0, 10, 10), water=river, cell_size=1, crs="local")


def fitted(domain: Domain, counts, **more) -> Posterior:
    basis = HarmonicBasis.compute(domain, 24, cache=False)
    return LGCP(basis, Matern(1.5, lengthscale=4.0, sd=1.0), **more).fit(counts)


@pytest.fixture(scope="module")
def posterior(domain) -> Posterior:
    rate = 0.12 * domain.node_points[:, 0]
    return fitted(domain, np.random.default_rng(3).poisson(rate).astype(float))


# -- cells


def test_one_event_more_moves_the_log_intensity_by_the_variance_whose_inverse_is_the_number_of_events(domain):
    counts = np.random.default_rng(0).poisson(2.0, domain.n_nodes).astype(float)
    before = fitted(domain, counts)
    for node in (5, 40, 77):
        more = counts.copy()
        more[node] += 1.0
        moved = (fitted(domain, more)._nodes.mu - before._nodes.mu)[0, node]
        assert moved * effective_events(before)[node] == pytest.approx(1.0, abs=0.12)


def test_a_cell_is_shown_where_enough_events_stand_behind_it_whether_or_not_any_happened_there(posterior):
    shown = posterior.protected(K)
    enough = 1.0 / posterior._nodes.moments()[1] >= K
    np.testing.assert_array_equal(~hidden_nodes(shown), enough)
    assert 0.2 < enough.mean() < 0.9
    empty = posterior.observed == 0
    assert (empty & enough).any() and (empty & ~enough).any() and (~empty & ~enough).any()
    np.testing.assert_array_equal(shown.node_intensity().notna().all(axis=1), enough)
    assert not hidden_nodes(shown.protected(0)).any() and not hidden_nodes(posterior.protected(1)).any()


def test_what_is_shown_lies_within_half_a_step_of_the_map(posterior):
    shown = posterior.protected(K)
    mine, exact = shown.latent()["mean"].values, posterior.latent()["mean"].values
    known = np.isfinite(mine)
    assert np.abs(mine - exact)[known].max() <= 1.0 / K + 1e-9
    assert len(np.unique(np.round(shown._published.moments()[0][~hidden_nodes(shown)] * K / 2, 6))) < 12


def test_mixtures_are_judged_by_their_whole_variance(domain):
    counts = np.random.default_rng(4).poisson(1.0, domain.n_nodes).astype(float)
    basis = HarmonicBasis.compute(domain, 24, cache=False)
    mixed = LGCP(basis, Matern(1.5)).fit(counts, hyper="integrate")
    assert len(mixed.fit.states) > 1
    within = mixed._nodes.weight @ mixed._nodes.var
    assert (effective_events(mixed) <= 1.0 / within + 1e-9).all()


def test_every_answer_about_places_follows_the_mask(posterior, domain, tmp_path):
    shown = posterior.protected(K)
    hidden = hidden_nodes(shown)
    everywhere = domain.node_points
    inside = domain.node_at(everywhere) == np.arange(domain.n_nodes)
    np.testing.assert_array_equal(np.isnan(shown.sample(3, 0)).all("draw"), hidden)
    for found in (
        shown.intensity_at(everywhere)["mean"],
        shown.predict(everywhere)[0],
        shown.predict(everywhere)[1],
        shown.predict_y(everywhere)[0],
    ):
        np.testing.assert_array_equal(np.isnan(np.asarray(found))[inside], hidden[inside])
    excursion = shown.excursion(0.6, n_samples=200)
    assert not (excursion.above | excursion.below)[hidden].any()
    polygons = excursion.to_polygons().set_index("region")
    assert polygons.loc["hidden", "area"] == pytest.approx(domain.node_areas[hidden].sum())
    grid = np.isnan(shown.intensity()["mean"].values)
    np.testing.assert_array_equal(np.isnan(excursion.to_dataset()["excursion"].values), grid)
    np.testing.assert_array_equal(np.isnan(shown.exceedance(-1.0).values), grid)
    bands = shown.to_polygons([0.3, 0.6], smooth=False)
    assert bands["area"].sum() == pytest.approx((~grid & (domain.coverage > 0)).sum(), rel=0.02)
    other = fitted(domain, posterior.observed + 1)
    ratio = shown.versus(other).ratio()["q50"].values
    np.testing.assert_array_equal(np.isnan(ratio), grid)
    assert "hidden" in shown.versus(other).totals([shapely.box(0, 0, 2, 2), shapely.box(2, 0, 10, 10)])


def test_arviz_gets_no_counts(posterior):
    pytest.importorskip("arviz")
    made = posterior.protected(K).to_arviz(draws=3, chains=1)
    names = [str(name).strip("/") for name in (made.groups() if callable(made.groups) else made.groups)]
    assert "posterior" in names and not {"observed_data", "log_likelihood", "posterior_predictive"} & set(names)
    hidden = hidden_nodes(posterior.protected(K))
    np.testing.assert_array_equal(np.isnan(made["posterior"]["intensity"].values[0, 0]), hidden)


def test_draws_still_belong_together(posterior):
    """In the mean over draws the log-intensity is what the map tells."""
    shown = posterior.protected(K)
    known = ~hidden_nodes(shown)
    draws = np.log(shown.sample(4000, 1).values[:, known])
    told, sd = shown._published.moments()[0][known], np.sqrt(posterior._nodes.moments()[1][known])
    assert (np.abs(draws.mean(axis=0) - told) / sd).max() < 0.1


# -- people


def test_cells_with_few_people_are_hidden_whatever_the_events(domain):
    people = np.full(domain.n_nodes, 500.0)
    people[:4] = [10, 99, 100, 0]
    shapes = list(domain.polygon_of(np.arange(domain.n_nodes)))
    frame = gpd.GeoDataFrame({"population": people}, geometry=shapes)
    posterior = fitted(domain, np.where(people > 0, 9.0, 0.0), exposure=frame)
    shown = posterior.protected(2, min_people=100)
    cells = {}
    for row, col, n in zip(domain.node_rows, domain.node_cols, posterior.exposure, strict=True):
        cells[row, col] = cells.get((row, col), 0.0) + n
    found = np.isnan(shown.intensity()["mean"].values)
    assert {place for place, n in cells.items() if n < 99.999} == set(zip(*np.nonzero(found), strict=True))
    table = shown.totals(shapes[:3])
    assert table["hidden"].tolist() == [True, True, False] and "fewer than 100 people" in table["why"].iloc[0]
    with pytest.raises(DataError, match="knows no people"):
        fitted(domain, np.ones(domain.n_nodes)).protected(2, min_people=10)


# -- tables


def test_no_total_gives_a_small_number_away():
    rng = np.random.default_rng(0)
    for _ in range(50):
        counts = rng.poisson(rng.uniform(0.5, 30), rng.integers(2, 12)).astype(float)
        k = int(rng.integers(2, 12))
        small = (counts > 0) & (counts < k)
        hidden = complemented(small, counts, [np.arange(len(counts))], k)
        assert (hidden | ~small).all()
        if small.any() and not hidden[counts > 0].all():
            assert hidden.sum() > 1 and counts[hidden].sum() >= k


def test_margins_of_both_kinds_are_kept_safe():
    counts = np.array([[3.0, 20, 30], [40, 50, 12], [25, 60, 70]])
    places = np.arange(9).reshape(3, 3)
    hidden = complemented((counts < 5).ravel(), counts.ravel(), [*places, *places.T], 5).reshape(3, 3)
    assert hidden[0, 0] and set(hidden.sum(axis=0)) | set(hidden.sum(axis=1)) <= {0, 2, 3}


def corners(domain: Domain) -> tuple[Posterior, list[shapely.Geometry]]:
    counts = np.zeros(domain.n_nodes)
    for place, n in (([0.5, 0.5], 3), ([8.5, 8.5], 40), ([1.5, 8.5], 25), ([8.5, 1.5], 60)):
        counts[domain.locate([place])] = n
    parts = [shapely.box(x, y, x + 5, y + 5) for y in (0, 5) for x in (0, 5)]
    return fitted(domain, counts), parts


def test_a_region_with_few_events_is_hidden_and_a_second_one_with_it(domain):
    posterior, parts = corners(domain)
    table = posterior.protected(K).totals(parts, predicted=True)
    assert table["hidden"].tolist() == [True, False, True, False]  # 3, 60, 25, 40: the smallest besides is hidden
    numbers = [c for c in table if c not in ("geometry", "land_area", "hidden", "why")]
    assert {"observed", "expected", "predicted_q05", "rate", "p_above"} <= set(numbers)
    assert table[numbers].isna().all(axis=1).tolist() == table["hidden"].tolist()
    assert len(set(table["why"][table["hidden"]])) == 1  # which of the two is small is not told
    ranked = posterior.protected(K).ranks(parts, top=1)
    assert ranked["rate"].isna().tolist() == table["hidden"].tolist()


def test_a_region_as_small_as_a_cell_follows_the_map(posterior, domain):
    """Otherwise totals of cells would show what the map hides."""
    shown = posterior.protected(K)
    hidden = np.flatnonzero(hidden_nodes(shown))[:20]
    table = shown.totals(list(domain.polygon_of(hidden)), n_samples=500)
    assert table["hidden"].all() and table["expected"].isna().all()


def test_estimates_of_regions_are_told_in_steps_that_no_event_moves(posterior, domain):
    """Otherwise a table of shown cells would be an exact map; large regions are hardly changed."""
    shown = posterior.protected(K)
    cells = list(domain.polygon_of(np.flatnonzero(~hidden_nodes(shown))[:12]))
    parts = [*cells, shapely.box(0, 0, 10, 10)]
    told, exact = shown.totals(parts), posterior.totals(parts)
    ratio = (told["expected"] / exact["expected"]).to_numpy()
    known = ~told["hidden"].to_numpy()
    assert known[-1] and known[:-1].any()
    n = (exact["expected"] / exact["sd"]).to_numpy()[known] ** 2
    assert (np.abs(np.log(ratio[known])) <= 1.0 / n + 1e-9).all()
    assert abs(ratio[-1] - 1.0) < 0.02 and (np.abs(ratio[known][:-1] - 1.0) > 0.001).any()
    for low, value, high in (("q05", "expected", "q95"), ("rate_q05", "rate", "rate_q95")):
        assert told[known][low].le(told[known][value]).all() and told[known][value].le(told[known][high]).all()
    assert told[known]["p_above"].between(0, 1).all()


def test_offices_have_their_own_rules(domain):
    posterior, parts = corners(domain)
    assert {name: rule.least for name, rule in RULES.items()} == {"cdc": 10, "nhs": 8, "ons": 3}
    assert all(rule.source for rule in RULES.values())
    nhs = posterior.protected("nhs").totals(parts)
    assert nhs["observed"].dropna().tolist() == [60, 40] and posterior.protected("nhs").min_count == 8
    counts = posterior.observed + 1.0
    told = fitted(domain, counts).protected("nhs").totals(parts)["observed"].dropna()
    assert len(told) and (told % 5 == 0).all()
    with pytest.raises(DataError, match="cdc, nhs, ons"):
        posterior.protected("eurostat")


def test_counts_by_area_are_protected_too(domain):
    columns = [shapely.box(x, 0, x + 2.5, 10) for x in (0.0, 2.5, 5.0, 7.5)]
    areas = bin_areas(gpd.GeoDataFrame({"n": [2, 60, 90, 70]}, geometry=columns), domain, "n")
    shown = fitted(domain, areas).protected(K)
    table = shown.totals(areas.frame())
    assert table["observed"].isna().tolist() == table["hidden"].tolist() == [True, True, False, False]
    blocks = shown.cross_validate().blocks
    assert blocks["observed"].isna().tolist() == [True, True, False, False]


def test_left_out_blocks_hide_small_counts_and_keep_the_score(posterior):
    exact, shown = posterior.cross_validate(2.5), posterior.protected(K).cross_validate(2.5)
    assert shown.score == exact.score and shown.coverage == exact.coverage and shown.verdict() == exact.verdict()
    small = exact.blocks["observed"].between(1, K - 1)
    assert small.any() and shown.blocks["observed"][small].isna().all()
    for name in ("pit", "score", "log_density"):
        assert shown.blocks[name][small].isna().all()
    assert len(shown.plot()) == 3


def test_no_page_tells_a_small_number_of_a_region(domain):
    posterior, parts = corners(domain)
    names = ["north", "east", "south", "west"]
    shown = posterior.protected(K).totals(gpd.GeoDataFrame({"name": names}, geometry=parts), predicted=True)
    for record in shown.drop(columns="geometry").to_dict("records"):
        words = {word for word, _ in overlays.region_rows(record)}
        assert (words == {"hidden", "land"}) == record["hidden"]
    table = region_table(shown)
    for row, hidden in zip(table["region_rows"], shown["hidden"], strict=True):
        assert (row[2:] == ("hidden", *[""] * (len(row) - 3))) == hidden
    assert "a total would give those away" in table["about_regions"]
    assert "not known" not in table["about_regions"]


# -- smooth


def test_a_smoother_map_shows_nearly_all_land(domain):
    counts = np.random.default_rng(8).poisson(0.3 * domain.node_points[:, 0]).astype(float)
    rough = LGCP(FullRank(domain, permeability=1.0), Matern(1.0, lengthscale=3.0, sd=1.0)).fit(counts)
    hide, smooth = rough.protected(K), rough.protected(K, "smooth")
    assert hidden_nodes(hide).mean() > 0.5 > 0.05 > hidden_nodes(smooth).mean()
    assert smooth.lengthscale > rough.lengthscale and smooth.sd == pytest.approx(rough.sd)
    assert smooth.protection.learned == rough.lengthscale
    words = smooth.provenance["small_numbers"]
    assert "Smoothed on purpose" in words and "in place of 3" in words
    again = rough.protected(2, "smooth")  # where all may be shown, the map stays
    assert again.lengthscale == rough.lengthscale or hidden_nodes(rough.protected(2)).any()


# -- risk, strata, time


def test_risk_rests_on_cases_and_its_file_holds_no_persons(tmp_path):
    rng = np.random.default_rng(1)
    cases, controls = rng.uniform(0, 10, (60, 2)), rng.uniform(0, 10, (200, 2))
    told = {"crs": "local", "cell_size": 1.0, "permeability": 0.0, "kernel": Matern(1.0, 4.0, 0.7)}
    plain = map_risk(cases, controls, shapely.box(0, 0, 10, 10), **told)
    shown = map_risk(cases, controls, shapely.box(0, 0, 10, 10), min_count=12, **told)
    mean, variance = plain._nodes.moments()
    p = 1.0 / (1.0 + np.exp(-mean - plain.likelihood.facts()["offset"]))
    np.testing.assert_array_equal(hidden_nodes(shown), 1.0 / (variance * (1.0 - p)) < 12)
    assert 0.0 < hidden_nodes(shown).mean() < 1.0
    arrays = store.read(shown.save(tmp_path / "risk.geobgp"), "posterior")[1]
    assert not [name for name in arrays if "persons" in name or "observed" in name]
    assert np.ptp(arrays["posterior.exposure"]) == 0.0  # it would be the controls, one by one
    smooth = plain.protected(12, "smooth")
    assert hidden_nodes(smooth).mean() < hidden_nodes(shown).mean()


def test_strata_are_protected_one_by_one_and_those_with_too_few_events_are_not_shown():
    rng = np.random.default_rng(2)
    table = pd.DataFrame(rng.uniform(0, 10, (205, 2)), columns=["easting", "northing"])
    table["kind"] = ["common"] * 120 + ["rare"] * 80 + ["single"] * 5
    told = {"crs": "local", "cell_size": 1.0, "m": "full", "permeability": 0.0, "n_jobs": 1}
    told["kernel"] = Matern(1.0, 6.0, 0.8)
    land = shapely.box(0, 0, 10, 10)
    with pytest.warns(StrataWarning, match="nothing of it can be shown"):
        strata = map_strata(table, land, "kind", min_count=8, **told)
    assert set(strata) == {"common", "rare"} and "fewer than 8 events" in strata.failures["single"]
    assert np.isnan(strata.table().loc["single", "points"])
    for name in strata:
        assert 0.0 < hidden_nodes(strata[name]).mean() < 1.0
    totals = strata.totals([land, shapely.box(0, 0, 0.5, 0.5)])
    assert totals["hidden"].any()


@pytest.fixture(scope="module")
def over_time(domain) -> Posterior:
    rng = np.random.default_rng(5)
    rate = np.array([0.9, 0.03, 0.5, 0.7])[:, None] * 0.2 * domain.node_points[:, 0]
    counts = rng.poisson(rate).astype(float)
    basis = HarmonicBasis.compute(domain, 16, cache=False)
    return LGCP(basis, Matern(1.5, 5.0, 0.7)).fit(counts, periods=Periods.calendar("year", "2017", "2020"))


def test_every_period_has_a_mask_of_its_own(over_time, tmp_path):
    shown = over_time.protected(K)
    hidden = hidden_nodes(shown).reshape(4, -1)
    assert len(set(hidden.sum(axis=1))) > 1
    for t in range(4):
        np.testing.assert_array_equal(hidden_nodes(shown.at(t)), hidden[t])
    data = shown.intensity()["mean"].values
    np.testing.assert_array_equal(np.isnan(data).sum(axis=(1, 2)), hidden_cells(shown).sum(axis=1))
    np.testing.assert_array_equal(np.isnan(shown.sample(2, 0)).all("draw"), hidden)
    np.testing.assert_array_equal(
        np.isnan(shown.trend(n_samples=50)["change"].values).sum(), hidden_cells(shown).any(axis=0).sum()
    )
    few = over_time.observed.sum(axis=1)
    assert 0 < few[1] < K
    level = shown.level()
    assert np.isnan(level.loc[1, "observed"]) and level["observed"].isna().sum() == 2  # a total would tell it
    assert "fewer than" in repr(shown.at(1)) and f" {few[1]:.0f} points" not in repr(shown.at(1))
    halves = [shapely.box(0, 0, 5, 10), shapely.box(5, 0, 10, 10)]
    table = shown.totals(halves, n_samples=100)
    exact = over_time.totals(halves, n_samples=100)
    small = exact["observed"].between(1, K - 1).to_numpy()
    assert small.any() and table["observed"].isna().to_numpy()[small].all()


def test_a_file_over_time_tells_what_the_map_tells(over_time, tmp_path):
    shown = over_time.protected(K)
    loaded = Posterior.load(shown.save(tmp_path / "time.geobgp"))
    for name in ("mean", "q05", "q95"):
        np.testing.assert_allclose(loaded.intensity()[name], shown.intensity()[name], rtol=1e-12)
    assert loaded.observed is None and loaded.at("2020").intensity()["mean"].notnull().any()
    loaded.to_map(tmp_path / "map.html")


def test_a_smoother_map_over_time(over_time):
    hide, smooth = over_time.protected(9), over_time.protected(9, "smooth")
    assert smooth.lengthscale > over_time.lengthscale and smooth.sd == pytest.approx(over_time.sd)
    assert hidden_nodes(smooth).mean() < hidden_nodes(hide).mean()


# -- what is refused


def test_what_would_show_them_all_the_same_is_refused(posterior, domain):
    shown = posterior.protected(K)
    with pytest.raises(DataError, match="shows the events of every square"):
        shown.residuals()
    with pytest.raises(DataError, match="shows every point"):
        shown.to_map(show_points=True, points=domain.node_points)
    told = {"points": "p.csv", "land": "l.gpkg", "output": "out", "min_count": K}
    with pytest.raises(DataError, match="show_points shows every point") as caught:
        MapOptions(**told, show_points=True)
    assert caught.value.option == "min_count"
    with pytest.raises(DataError, match="nothing of it can be shown"):
        posterior.protected(10_000)
    with pytest.raises(DataError, match="does not go with tiles"):
        TilesOptions(points="p.csv", land="l.gpkg", output="out", cell_size=100, min_count="cdc")
    with pytest.raises(DataError, match="Say where people live"):
        MapOptions(**told, min_people=50)


# -- the file


def test_the_file_of_a_protected_map_gives_back_its_map_and_neither_counts_nor_the_fit(posterior, tmp_path):
    shown = posterior.protected(K)
    path = shown.save(tmp_path / "fit.geobgp")
    loaded = Posterior.load(path)
    for mine, his in ((loaded.intensity(), shown.intensity()), (loaded.latent(), shown.latent())):
        for name in his:
            np.testing.assert_allclose(mine[name], his[name], rtol=1e-12)
    assert loaded.protection == shown.protection and loaded.overall == shown.overall
    assert loaded.observed is None and loaded.areas is None and loaded.places is None
    loaded.to_raster(tmp_path)
    loaded.to_map(tmp_path / "map.html")
    loaded.to_report(tmp_path / "report.html")
    assert loaded.summary()["coefficients"]
    assert Posterior.load(loaded.save(tmp_path / "again.geobgp")).protection == shown.protection
    for ask in (lambda: loaded.totals(), lambda: loaded.sample(2), lambda: loaded.excursion(1.0)):
        with pytest.raises(DataError, match="not the fit"):
            ask()
    with pytest.raises(DataError, match="only what may be shown"):
        loaded.protected(2)


# -- the shell


def test_the_shell_hides_them_in_every_file_and_says_what_it_hid(tmp_path, capsys):
    files = small_case.write_files(tmp_path)
    small_case.land().to_file(tmp_path / "regions.gpkg")
    out = tmp_path / "out"
    line = ["map", files.points_gpkg, "--land", files.land_gpkg, "--cell-size", "2000", "--features", "48", "-q"]
    more = ["--crs", small_case.CRS, "--min-count", "cdc", "--regions", files.regions_gpkg, "--no-cache"]
    assert main([*line, *more, "--threshold", "1", "-o", str(out)]) == 0, capsys.readouterr().err
    loaded = Posterior.load(out / "posterior.geobgp")
    with rasterio.open(out / "mean.tif") as raster, rasterio.open(out / "coverage.tif") as land:
        hidden, there = (int((np.isnan(raster.read(1)) & (land.read(1) > 0)).sum()), int((land.read(1) > 0).sum()))
        assert "Blank: based on fewer than 10 events" in raster.tags().get("small_numbers", "")
    words = f"{hidden:,} of {there:,} cells without numbers"
    report, page = ((out / name).read_text("utf-8") for name in ("report.html", "map.html"))
    assert words in report and "CDC WONDER" in report
    record = json.loads((out / "summary.json").read_text("utf-8"))
    assert record["choices"]["small numbers"]["value"] == words and record["options"]["min_count"] == "cdc"
    assert hidden > 0 and "based on fewer than 10 events (" in page
    assert record["command"].count("--min-count cdc") == 1
    assert {"hidden", "why"} <= set(gpd.read_file(out / "regions.gpkg"))
    with zipfile.ZipFile(out / "map.qgz") as project:
        layers = "".join(project.read(name).decode("utf-8", "ignore") for name in project.namelist())
    assert "Hidden: based on fewer than 10 events" in layers
    assert loaded.min_count == 10


# -- the attack: can cells with 1 to k - 1 events be told from empty ones?

SIDE, ATTACKED_K = 30, 6


def auc(score: np.ndarray, label: np.ndarray) -> float:
    """Return how probably a cell with events has a higher score than one without."""
    rank, n = rankdata(score), int(label.sum())
    return float((rank[label].sum() - n * (n + 1) / 2) / (n * (len(label) - n)))


def seen_around(values: np.ndarray) -> np.ndarray:
    """Return what an attacker sees of each cell: its value, how it differs from those around it, what is hidden."""
    known = np.isfinite(values)

    def around(filtered) -> np.ndarray:
        return filtered(np.where(known, values, 0.0)) / np.maximum(filtered(known.astype(float)), 1e-9)

    def square(width):
        return lambda x: uniform_filter(x, width, mode="constant")

    def bell(width):
        return lambda x: gaussian_filter(x, width, mode="constant")

    own = np.where(known, values, around(square(5)))
    seen = [own] + [own - around(square(w)) for w in (3, 5, 9)] + [own - around(bell(w)) for w in (0.7, 1.5)]
    near = np.pad(own, 2, mode="edge")
    ring = [near[2 + i : 2 + i + SIDE, 2 + j : 2 + j + SIDE] for i in range(-2, 3) for j in range(-2, 3)]
    seen += [sum(np.sign(np.round(own - one, 9)) for one in ring)]
    seen += [(~known).astype(float), uniform_filter((~known).astype(float), 3)]
    return np.stack(seen, axis=-1).reshape(-1, len(seen))


def classifier(seen: np.ndarray, label: np.ndarray):
    """Return a ridge logistic regression."""
    mean, scale = seen.mean(axis=0), seen.std(axis=0) + 1e-12
    x = (seen - mean) / scale

    def loss(b: np.ndarray) -> tuple[float, np.ndarray]:
        z = x @ b[1:] + b[0]
        gap = 1.0 / (1.0 + np.exp(-z)) - label
        value = np.logaddexp(0, z).sum() - z[label].sum() + 0.05 * b[1:] @ b[1:]
        return value, np.concatenate([[gap.sum()], x.T @ gap + 0.1 * b[1:]])

    found = minimize(loss, np.zeros(x.shape[1] + 1), jac=True, method="L-BFGS-B").x
    return lambda other: ((other - mean) / scale) @ found[1:]


def gain_of_attack(grids: list[np.ndarray], counts: list[np.ndarray], expected: list[np.ndarray], k: int) -> float:
    """Return by how much what is seen tells cells with 1 to k - 1 events better than the expected intensity does."""
    few = [c < k for c in counts]
    seen = [seen_around(g)[f.ravel()] for g, f in zip(grids, few, strict=True)]
    label = [(c > 0)[f] for c, f in zip(counts, few, strict=True)]
    half = len(grids) // 2
    judge = classifier(np.concatenate(seen[:half]), np.concatenate(label[:half]))
    known = [e[f] for e, f in zip(expected, few, strict=True)]
    gains = [
        auc(judge(s), yes) - auc(e, yes) for s, yes, e in zip(seen[half:], label[half:], known[half:], strict=True)
    ]
    return float(np.mean(gains))


@pytest.fixture(scope="module")
def attacked():
    """Many maps of clustered events on one square."""
    domain = Domain.from_polygons(shapely.box(0, 0, SIDE, SIDE), cell_size=1, crs="local")
    basis, rng, made = FullRank(domain), np.random.default_rng(0), []
    for _ in range(14):
        centres, width = rng.uniform(0, SIDE, (5, 2)), rng.uniform(3, 7)
        near = np.square(domain.node_points[:, None] - centres).sum(axis=-1)
        rate = np.exp(-0.5 * near / width**2).sum(axis=1) + 0.05
        counts = rng.poisson(220 * rate / rate.sum()).astype(float)
        made.append(LGCP(basis, Matern(1.0, lengthscale=12.0, sd=1.0)).fit(counts))
    return domain, made


def cell_arrays(path: Path, domain: Domain) -> dict[str, np.ndarray]:
    """Return all that a file holds with one number for each cell."""
    if path.suffix == ".tif":
        with rasterio.open(path) as raster:
            return {f"{path.name} {k}": raster.read(k).astype(float) for k in range(1, raster.count + 1)}
    if path.suffix == ".nc":
        with xr.open_dataset(path) as data:
            return {f"{path.name} {n}": data[n].values.astype(float) for n in data if data[n].ndim == 2}
    arrays = store.read(path, "posterior")[1]
    assert not [name for name in arrays if "observed" in name or "persons" in name]
    return {
        f"{path.name} {name}": domain.to_grid(array.astype(float))
        for name, array in arrays.items()
        if array.shape == (domain.n_nodes,) and np.issubdtype(array.dtype, np.floating)
    }


def test_no_file_tells_cells_with_few_events_from_empty_ones(attacked, tmp_path, monkeypatch):
    domain, made = attacked
    files, pages = [], []
    for n, posterior in enumerate(made):
        shown, folder = posterior.protected(ATTACKED_K), tmp_path / str(n)
        paths = [*shown.to_raster(folder / "all.tif", [0.3]), shown.save(folder / "fit.geobgp")]
        files.append({k: v for path in paths for k, v in cell_arrays(path, domain).items()})
    counts = [domain.to_grid(p.observed) for p in made]
    expected = [domain.to_grid(p._nodes.exp_mean()) for p in made]
    names = [name for name in files[0] if np.ptp(np.nan_to_num(files[0][name])) > 0]
    assert len(names) >= 8 and any(name.startswith("fit.geobgp posterior.fit.states.0") for name in names)
    gains = {name: gain_of_attack([f[name] for f in files], counts, expected, ATTACKED_K) for name in names}
    assert max(gains.values()) < 0.02, gains
    # The page and the netCDF file hold the same numbers as the raster, and so tell no more.
    real = maps.Numbers.of
    monkeypatch.setattr(maps.Numbers, "of", lambda *a, **k: pages.append(a[1]) or real(*a, **k))
    shown = made[0].protected(ATTACKED_K)
    shown.to_map(thresholds=[0.3])
    others = cell_arrays(shown.to_netcdf(tmp_path / "map.nc", [0.3]), domain)
    others |= {f"page {name}": values for name, values in pages[0].items() if name != "cv"}
    bands = [v for name, v in files[0].items() if name.startswith("all.tif")]
    for name, values in others.items():
        assert any(np.allclose(values, band, rtol=1e-5, equal_nan=True) for band in bands), name


def test_counts_can_be_computed_back_from_an_exact_map_and_not_from_what_is_told(attacked):
    """At the optimum y = Q μ + e exp(μ + V / 2), and whoever knows the method knows Q."""
    domain, made = attacked
    posterior = made[0]
    mean, variance = posterior._nodes.moments()
    state, y = posterior.fit.states[0], posterior.observed
    expected = posterior.exposure * np.exp(mean + variance / 2)
    precision = np.linalg.inv(state.node_covariance(np.arange(domain.n_nodes))) - np.diag(expected)

    def computed(told: np.ndarray) -> np.ndarray:
        told = np.where(np.isnan(told), mean, told)  # an attacker who knows even what is hidden
        return precision @ (told - state.centre) + posterior.exposure * np.exp(told + variance / 2)

    np.testing.assert_allclose(computed(mean.astype(np.float32).astype(float)), y, atol=0.05)
    shown = posterior.protected(ATTACKED_K)
    known = ~hidden_nodes(shown) & (y < ATTACKED_K)
    guess = computed(shown._published.moments()[0])
    assert auc(guess[known], y[known] > 0) < auc(mean[known], y[known] > 0)


def test_the_attack_succeeds_on_the_rule_by_observed_counts_and_on_exact_values(attacked):
    domain, made = attacked
    counts = [domain.to_grid(p.observed) for p in made]
    expected = [domain.to_grid(p._nodes.exp_mean()) for p in made]
    exact = [np.log(e) for e in expected]
    old = [np.where((c > 0) & (c < ATTACKED_K), np.nan, e) for c, e in zip(counts, exact, strict=True)]
    assert gain_of_attack(old, counts, expected, ATTACKED_K) > 0.15
    enough = [domain.to_grid(effective_events(p)) >= ATTACKED_K for p in made]
    unrounded = [np.where(n, e, np.nan) for n, e in zip(enough, exact, strict=True)]
    assert gain_of_attack(unrounded, counts, expected, ATTACKED_K) > 0.08


def test_people_above_a_threshold_are_hidden_where_totals_are():
    land = shapely.union(shapely.box(0, 0, 40_000, 30_000), shapely.box(0, 0, 12_000, 42_000))
    places = np.random.default_rng(9).uniform((0, 0), (40_000, 30_000), (60, 2))
    strips = gpd.GeoSeries([shapely.box(5000 * i, 0, 5000 * i + 5000, 10_000) for i in range(8)], crs=32632)
    domain = Domain.from_polygons(land, cell_size=2000, crs=32632)
    basis = HarmonicBasis.compute(domain, 24, cache=False)
    posterior = LGCP(basis, Matern(1.5, 15_000.0, 0.8)).fit(bin_points(places, domain)).protected(10)
    above, totals = posterior.people_above(0.04, strips), posterior.totals(strips)
    assert totals["hidden"].any() and above["hidden"].tolist() == totals["hidden"].tolist()
    numbers = [name for name in above if "above" in name]
    assert above.loc[above["hidden"], numbers].isna().all(axis=None)
    assert (above.loc[above["hidden"], "why"] != "").all()


def test_no_part_of_the_land_that_regions_leave_out_can_be_computed(domain):
    """The number of all events is known: what one region leaves, or lies between two, is protected as well."""
    posterior, parts = corners(domain)
    shown, (small, *others) = posterior.protected(K), parts
    total = posterior.observed.sum()
    assert shown.totals([domain.geometry])["observed"].tolist() == [total]
    rest = shapely.difference(domain.geometry, small)
    for regions in ([rest], others, [rest, others[0]], [domain.geometry, rest], [small]):
        table = shown.totals(list(regions), n_samples=200)
        told = dict(zip(regions, table["observed"], strict=True))
        assert np.isnan(told.get(rest, np.nan)) and np.isnan(told.get(small, np.nan))
        if len(regions) == 3:  # 60, 25 and 40 of all: at least one of them is not told
            assert 0 < table["hidden"].sum() < 3


def test_parts_of_areas_with_few_events_are_hidden_and_so_are_suppressed_counts(domain):
    left, right = shapely.box(0, 0, 3, 10), shapely.box(3, 0, 10, 10)
    middle = shapely.box(3, 0, 6, 10)
    frame = gpd.GeoDataFrame({"n": [3, 90, 70]}, geometry=[left, middle, shapely.box(6, 0, 10, 10)])
    halves = [shapely.box(0, 0, 3, 5), shapely.box(0, 5, 3, 10)]
    basis = HarmonicBasis.compute(domain, 30, cache=False)
    for counts, interval in (([3, 90, 70], None), ([None, 90, 70], (1, 4))):
        areas = bin_areas(frame.assign(n=counts), domain, "n", suppressed=interval)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GeobgpWarning)
            shown = LGCP(basis, Matern(1.5, 6.0, 0.5)).fit(areas).protected(K)
        for region in (left, *halves):
            assert shown.totals([region], n_samples=200)["expected"].isna().all()
        both = shown.totals([shapely.union(left, middle), middle], n_samples=200)
        assert both["hidden"].sum() >= 1 or both["observed"].isna().any()  # their difference is not told
        assert shown.totals([right], n_samples=200)["observed"].isna().all()  # nor is what it leaves of all
        told = shown.cross_validate(rng=0)
        few = told.table["observed"].between(1, K - 1)
        assert not few.any() and not told.blocks["observed"].between(1, K - 1).any()


def test_blocks_and_levels_with_few_events_are_not_told(domain):
    posterior, _ = corners(domain)
    checked = posterior.protected(K).cross_validate(blocks=5.0, rng=0)
    assert not checked.table["observed"].between(1, K - 1).any() and checked.table["observed"].isna().any()
    east = domain.node_points[:, 0] > 9
    counts = np.where(east, 0.0, 4.0)
    counts[np.flatnonzero(east)[0]] = 3.0
    basis = HarmonicBasis.compute(domain, 30, cache=False)
    clinic = Categorical(np.where(east, "small", "large"))
    plain = LGCP(basis, Matern(1.5, 6.0, 0.2), covariates={"clinic": clinic}).fit(counts)
    low, high = plain.effects()[["rate_ratio_q05", "rate_ratio_q95"]].to_numpy()[0]
    assert (2 * 1.6449 / np.log(high / low)) ** 2 == pytest.approx(3.0, abs=0.6)  # three events, as it tells
    told = plain.protected(K).effects()
    assert told[["rate_ratio", "rate_ratio_q05", "rate_ratio_q95", "without_field"]].isna().all(axis=None)
    assert plain.protected(K).coefficients.iloc[-1][["mean", "sd", "rate_ratio"]].isna().all()
