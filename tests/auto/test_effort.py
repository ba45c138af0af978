"""Effort through the whole way: the map is of what would be seen with full effort, the checks of what was seen."""

from __future__ import annotations

import json

import geopandas as gpd
import numpy as np
import pytest
import shapely
from models import all_modes, square

from geobgp import LGCP, DataError, Domain, FullRank, Matern, Posterior, bin_areas, map_intensity
from geobgp.checks.residuals import check
from geobgp.cli.app import main

pytestmark = pytest.mark.filterwarnings("ignore:.*features miss:geobgp.errors.GeobgpWarning")
ENGINES = pytest.mark.parametrize("make", [lambda d: all_modes(d, m=80), FullRank], ids=["features", "full"])
KERNEL = Matern(1.0, 4.0, 1.0)


def truth(domain: Domain) -> np.ndarray:
    """A ridge and a step: nothing that the prior would draw."""
    east, north = domain.node_points.T
    return 2.0 + 10.0 * np.exp(-(((east - north) / 3.0) ** 2)) + 4.0 * (east > 9.0)


def patchy(domain: Domain) -> np.ndarray:
    """Effort that runs from nearly all to a tenth, against the ridge."""
    east, north = domain.node_points.T
    return 0.1 + 0.85 * (0.5 + 0.5 * np.sin(east / 2.0)) * (north / 14.0)


@ENGINES
def test_full_effort_is_no_effort_and_a_constant_divides_the_map(make):
    domain = square(12.0)
    counts = np.random.default_rng(0).poisson(truth(domain))
    basis = make(domain)
    plain = LGCP(basis, KERNEL).fit(counts)
    full = LGCP(basis, KERNEL, effort=np.ones(domain.n_nodes)).fit(counts)
    assert full.elbo == pytest.approx(plain.elbo, abs=1e-10)
    np.testing.assert_allclose(full.node_intensity(), plain.node_intensity(), rtol=1e-10)
    quarter = LGCP(basis, KERNEL, effort=np.full(domain.n_nodes, 0.25)).fit(counts)
    np.testing.assert_allclose(quarter.node_intensity(), 4.0 * plain.node_intensity(), rtol=1e-6)
    assert quarter.elbo == pytest.approx(plain.elbo, abs=1e-6)
    assert quarter.totals()["expected"][0] == pytest.approx(4.0 * counts.sum(), rel=0.01)
    assert quarter.totals()["reported"][0] == pytest.approx(counts.sum(), rel=0.01)
    assert "reported" not in plain.totals()


def test_learned_hyperparameters_are_those_of_the_counts():
    domain = square(12.0)
    counts = np.random.default_rng(1).poisson(truth(domain))
    basis = FullRank(domain)
    plain, half = LGCP(basis).fit(counts), LGCP(basis, effort=np.full(domain.n_nodes, 0.5)).fit(counts)
    assert half.lengthscale == pytest.approx(plain.lengthscale, rel=1e-6)
    np.testing.assert_allclose(half.node_intensity(), 2.0 * plain.node_intensity(), rtol=1e-5)


def test_thinned_events_give_back_the_whole_intensity():
    domain = square(14.0, 0.7)
    intensity, effort, area = truth(domain), patchy(domain), domain.node_areas
    basis, inside, bias, naive = all_modes(domain, m=120), [], [], []
    for seed in range(6):
        counts = np.random.default_rng(seed).poisson(intensity * area * effort)
        posterior = LGCP(basis, Matern(1.5), effort=effort).fit(counts)
        table = posterior.node_intensity()
        inside.append(((table["q05"] <= intensity) & (intensity <= table["q95"])).mean())
        bias.append(float(table["mean"] @ area / (intensity @ area)))
        naive.append(float(LGCP(basis, Matern(1.5)).fit(counts).node_intensity()["mean"] @ area / (intensity @ area)))
    assert 0.84 <= np.mean(inside) <= 0.96  # 86 to 94 % over a hundred: benchmarks/effort.py
    assert np.mean(bias) == pytest.approx(1.0, abs=0.06)
    assert np.mean(naive) < 0.6


@ENGINES
def test_where_nobody_looks_intervals_are_wide(make):
    domain = square(14.0)
    east = domain.node_points[:, 0]
    effort = np.where(east < 7.0, 1.0, 0.0)
    counts = np.random.default_rng(2).poisson(4.0 * effort * domain.node_areas)
    posterior = LGCP(make(domain), Matern(1.0, 3.0, 1.0), effort=effort).fit(counts)
    table = posterior.node_intensity()
    ratio = np.log(table["q95"] / table["q05"]).to_numpy()
    assert ratio[east > 11.0].min() > 2.5 * np.median(ratio[east < 6.0])
    assert (effort[east > 7.0] == 0).all() and posterior.converged
    with pytest.raises(DataError, match="1 of 1 event lies where the effort is zero"):
        LGCP(make(domain), KERNEL, effort=effort).fit((np.arange(domain.n_nodes) == np.argmax(east)).astype(float))


def test_areas_of_one_node_each_say_what_points_do():
    domain = square(8.0)
    effort = patchy(domain)
    counts = np.random.default_rng(3).poisson(truth(domain) * effort)
    cells = [shapely.box(e - 0.5, n - 0.5, e + 0.5, n + 0.5) for e, n in domain.node_points]
    areas = bin_areas(gpd.GeoDataFrame({"cases": counts}, geometry=cells), domain, "cases")
    basis = all_modes(domain, m=40)
    by_point = LGCP(basis, KERNEL, effort=effort).fit(counts)
    by_area = LGCP(basis, KERNEL, effort=effort).fit(areas)
    assert by_area.elbo == pytest.approx(by_point.elbo, rel=1e-6)
    np.testing.assert_allclose(by_area.node_intensity(), by_point.node_intensity(), rtol=1e-3)


@pytest.mark.gpflow
def test_gpflow_agrees():
    domain = square(8.0)
    effort = patchy(domain)
    effort[:5] = 0.0
    counts = np.random.default_rng(6).poisson(truth(domain) * effort)
    model = LGCP(all_modes(domain, m=30), Matern(1.5, 3.0, 1.0), effort=effort)
    ours, theirs = model.fit(counts), model.fit(counts, engine="gpflow")
    assert theirs.elbo == pytest.approx(ours.elbo, abs=1e-2)
    np.testing.assert_allclose(theirs.node_intensity(), ours.node_intensity(), rtol=0.02)
    np.testing.assert_array_equal(theirs.effort, effort)


@pytest.mark.parametrize("likelihood", ["poisson", "negative-binomial"])
def test_areas_weigh_their_nodes_by_effort(likelihood):
    domain = square(12.0)
    east = domain.node_points[:, 0]
    effort = np.where(east < 6.0, 1.0, 0.2)
    shapes = [shapely.box(a, b, a + 4, b + 4) for a in (0, 4, 8) for b in (0, 4, 8)]
    frame = gpd.GeoDataFrame(geometry=shapes)
    seen = np.array([effort[shapely.contains_xy(s, *domain.node_points.T)].sum() for s in shapes])
    frame["cases"] = np.round(5.0 * seen).astype(int)
    posterior = LGCP(all_modes(domain, m=40), Matern(1.5), effort=effort, likelihood=likelihood).fit(
        bin_areas(frame, domain, "cases")
    )
    mean = posterior.node_intensity()["mean"]
    assert np.abs(mean / 5.0 - 1.0).max() < 0.1  # even, though a fifth is seen in the east
    totals = posterior.totals(frame, predicted=True)
    assert np.abs(totals["reported"] / frame["cases"] - 1.0).max() < 0.1
    assert ((totals["predicted_q05"] <= frame["cases"]) & (frame["cases"] <= totals["predicted_q95"])).all()
    checked = posterior.cross_validate()
    assert np.abs(checked.blocks["expected"] / frame["cases"].to_numpy() - 1.0).max() < 0.25


def test_checks_are_of_what_was_seen(tmp_path):
    domain = square(14.0)
    effort, rng = patchy(domain), np.random.default_rng(4)
    counts = rng.poisson(truth(domain) * effort * domain.node_areas).astype(float)
    posterior = LGCP(FullRank(domain), KERNEL, effort=effort).fit(counts)
    assert check(posterior, counts).parts["expected"].iloc[-1] == pytest.approx(counts.sum(), rel=0.05)
    residuals = posterior.residuals()
    assert residuals.expected.sum() == pytest.approx(counts.sum(), rel=0.02)
    assert residuals.dispersion < residuals.dispersion_band[1]
    checked = posterior.cross_validate(3.5)
    assert checked.blocks["expected"].sum() == pytest.approx(counts.sum(), rel=0.1)
    assert not checked.failures()
    blind = LGCP(FullRank(domain), KERNEL, exposure=domain.node_areas).fit(counts)
    assert posterior.cross_validate(3.5).score > blind.cross_validate(3.5).score - 0.1
    back = Posterior.load(posterior.save(tmp_path / "one.geobgp"))
    np.testing.assert_array_equal(back.effort, effort)
    assert back.summary()["effort"] == posterior.summary()["effort"]
    assert back.cross_validate(3.5).score == checked.score
    assert posterior.provenance["effort"] == "as with full effort"


def test_land_without_effort_is_hatched_but_for_what_it_surrounds():
    import matplotlib.figure

    domain = square(9.0)
    near = np.hypot(*(domain.node_points - 4.5).T) < 2.0
    counts = np.random.default_rng(7).poisson(3.0 * near)
    posterior = LGCP(FullRank(domain), KERNEL, effort=near.astype(float)).fit(counts)
    axes = posterior.plot(ax=matplotlib.figure.Figure().subplots())
    (hatched,) = (one for one in axes.patches + axes.artists if one.get_hatch())
    rings = [shapely.Polygon(ring) for ring in hatched.get_path().to_polygons()]
    signed = [ring.area * (1 if ring.exterior.is_ccw else -1) for ring in rings]
    assert len(rings) == 2 and abs(sum(signed)) == pytest.approx((~near).sum())
    assert "the data say nothing" in axes.get_xlabel()


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Points on a square of 40 km of which the east is half seen, and its last tenth not at all, as files."""
    folder, rng = tmp_path_factory.mktemp("effort"), np.random.default_rng(5)
    at = rng.uniform(0, 40_000, (1200, 2))
    share = np.select([at[:, 0] < 20_000, at[:, 0] < 36_000], [1.0, 0.5], 0.0)
    at = at[rng.uniform(size=len(at)) < share]
    gpd.GeoDataFrame(geometry=gpd.points_from_xy(*at.T), crs=32631).to_file(folder / "points.gpkg")
    gpd.GeoDataFrame(geometry=[shapely.box(0, 0, 40_000, 40_000)], crs=32631).to_file(folder / "land.gpkg")
    strips = [shapely.box(a, 0, b, 40_000) for a, b in ((0, 20_000), (20_000, 36_000), (36_000, 40_000))]
    effort = gpd.GeoDataFrame({"name": list("abc"), "seen": [1.0, 0.5, 0.0]}, geometry=strips, crs=32631)
    effort.to_file(folder / "effort.gpkg")
    return folder, len(at)


def test_the_shell_takes_effort_and_says_where_the_data_say_nothing(data, tmp_path):
    folder, n = data
    out = tmp_path / "out"
    told = ["map", folder / "points.gpkg", "--land", folder / "land.gpkg", "--effort", folder / "effort.gpkg"]
    told += ["--effort-column", "seen", "--cell-size", "2000", "--features", "full", "--permeability", "0"]
    told += ["--crs", "EPSG:32631", "--regions", folder / "effort.gpkg", "-o", out, "--quiet"]
    assert main([str(word) for word in told]) == 0
    record = json.loads((out / "summary.json").read_text())
    assert record["options"]["effort"] == "effort.gpkg" and record["options"]["effort_column"] == "seen"
    assert "(10 % of the land)" in record["summary"]["effort"]
    report = (out / "report.html").read_text()
    assert "the data say nothing there" in report and "exposure x effort x exp" in report
    assert "Expected reports" in report
    assert "with full effort; no data on 10 % of the land" in (out / "map.html").read_text()
    totals = gpd.read_file(out / "regions.gpkg")
    assert totals["expected"][1] == pytest.approx(2.0 * totals["reported"][1], rel=0.05)
    assert totals["reported"][2] == pytest.approx(0.0, abs=1.0)
    assert totals["expected"][2] > 50
    posterior = Posterior.load(out / "posterior.geobgp")
    assert posterior.n_points == n
    assert float(posterior.node_intensity()["mean"].median()) == pytest.approx(1200 / 1600, rel=0.15)


def test_the_one_call_refuses_before_it_fits(data):
    folder, _ = data
    dark = gpd.read_file(folder / "effort.gpkg").assign(seen=[1.0, 0.0, 0.0])
    with pytest.raises(DataError, match="events lie where the effort is zero") as raised:
        map_intensity(folder / "points.gpkg", folder / "land.gpkg", effort=dark, cell_size=2000, m=8)
    assert raised.value.option == "effort" and raised.value.found > 100
