"""One map against another: closed forms, coverage of a known change, files, and what is refused."""

import json

import numpy as np
import pytest
import rasterio
import shapely
from models import square
from paths import HELPERS
from posteriors import bumps, island, prescribed
from scipy.stats import norm
from system import Chromium, run_qgis

from geobgp import LGCP, BoundaryGP, DataError, DomainError, FullRank, HarmonicBasis, Matern, Posterior
from geobgp.output import palette
from geobgp.simulate import simulate_prior


@pytest.fixture(scope="module")
def compared():
    domain = island()
    mean = bumps(domain)
    change = np.where(domain.node_points[:, 0] < 155_000, np.log(1.4), np.log(0.6))
    later, earlier = prescribed(domain, mean + change, 0.3, "2019"), prescribed(domain, mean, 0.4, "2018")
    return later.versus(earlier)


def test_the_ratio_of_two_log_normals_is_exact(compared):
    change = np.where(compared.domain.node_points[:, 0] < 155_000, np.log(1.4), np.log(0.6))
    found = compared.node_ratio((0.05, 0.5, 0.95))
    np.testing.assert_allclose(found["q50"], np.exp(change))
    np.testing.assert_allclose(found["q95"], np.exp(change + norm.ppf(0.95) * 0.5))
    np.testing.assert_allclose(found["mean"], np.exp(change + 0.125))
    np.testing.assert_allclose(compared._log_ratio.sf(0.0), norm.cdf(change / 0.5))
    grid = compared.increase(1.2)
    assert grid.attrs["factor"] == 1.2 and "a ratio above 1.2, 2019 against 2018" in grid.attrs["long_name"]
    assert np.nanmax(grid.values) == pytest.approx(norm.cdf(np.log(1.4 / 1.2) / 0.5))


def test_the_difference_against_draws(compared):
    rng = np.random.default_rng(0)
    some = slice(0, 40)
    one, two = ((p._nodes.mu[0][some], np.sqrt(p._nodes.var[0][some])) for p in (compared.first, compared.second))
    gap = np.exp(one[0] + one[1] * rng.standard_normal((200_000, 40))) - np.exp(
        two[0] + two[1] * rng.standard_normal((200_000, 40))
    )
    found = compared.node_difference((0.05, 0.5, 0.95))
    for name, q in (("q05", 0.05), ("q50", 0.5), ("q95", 0.95)):
        np.testing.assert_allclose((gap <= found[name][some]).mean(axis=0), q, atol=0.004)
    np.testing.assert_allclose(found["mean"][some], gap.mean(axis=0), rtol=0.1, atol=2e-3)
    np.testing.assert_allclose(found["sd"][some], gap.std(axis=0), rtol=0.1)


@pytest.mark.parametrize("kind", ["features", "full"])
def test_intervals_of_the_ratio_hold_a_known_change(kind):
    domain = square(12.0)
    basis = HarmonicBasis.compute(domain, 60, cache=False) if kind == "features" else FullRank(domain)
    kernel = Matern(1.5 if kind == "features" else 1.0, lengthscale=5.0, sd=0.8)
    rng = np.random.default_rng(5)
    held, increases, truths = [], [], []
    for fields in simulate_prior(basis, kernel, rng=6, n=40).reshape(20, 2, -1):
        pair = [LGCP(basis, kernel).fit(rng.poisson(np.exp(f + 1.5)).astype(float)) for f in fields]
        found = pair[0].versus(pair[1])
        change = np.exp(fields[0] - fields[1])
        ratio = found.node_ratio()
        held.append(((ratio["q05"] <= change) & (change <= ratio["q95"])).mean())
        increases.append(found._log_ratio.sf(0.0))
        truths.append(change > 1)
    assert np.mean(held) == pytest.approx(0.9, abs=0.04)
    # Where an increase is said to be likely by p, it is there in a share p of the places.
    p, truth = np.concatenate(increases), np.concatenate(truths)
    for low, high in ((0.0, 0.2), (0.4, 0.6), (0.8, 1.0)):
        mine = (p >= low) & (p <= high)
        assert truth[mine].mean() == pytest.approx(p[mine].mean(), abs=0.1)


def test_totals(compared):
    west, south, east, north = shapely.bounds(compared.domain.geometry)
    halves = [shapely.box(west, south, 155_000, north), shapely.box(155_000, south, east, north)]
    found = compared.totals(halves, n_samples=500)
    one, two = (p.totals(halves, n_samples=10)["expected"] for p in (compared.first, compared.second))
    np.testing.assert_allclose(found["expected_first"], one)
    np.testing.assert_allclose(found["difference"], (one - two) / found["land_km2"])
    # Hundreds of independent nodes: the means of the log-normals make the ratio.
    factor = np.exp((0.3**2 - 0.4**2) / 2)
    np.testing.assert_allclose(found["ratio"], [1.4 * factor, 0.6 * factor], rtol=0.05)
    assert found["p_increase"].tolist() == [1.0, 0.0]
    assert (found["ratio_q05"] < found["ratio"]).all() and (found["ratio"] < found["ratio_q95"]).all()
    assert found.attrs["units"] == "events per km²"
    assert len(compared.totals(n_samples=20)) == 1


def test_rates_are_compared_where_the_population_has_grown():
    domain = square()
    basis = HarmonicBasis.compute(domain, 30, cache=False)
    kernel = Matern(1.5, lengthscale=6.0, sd=0.5)
    counts = np.full(domain.n_nodes, 20.0)
    few, many = (LGCP(basis, kernel, exposure=np.full(domain.n_nodes, n)).fit(counts * n / 100) for n in (100.0, 300.0))
    found = many.versus(few).totals(n_samples=500)
    assert found["expected_first"][0] == pytest.approx(3 * found["expected_second"][0], rel=0.01)
    assert found["ratio"][0] == pytest.approx(1.0, abs=0.03)


def test_rasters_have_the_diverging_legend(compared, tmp_path):
    paths = compared.to_raster(tmp_path)
    assert {p.stem for p in paths} == {
        "ratio", "ratio_q05", "ratio_q95", "difference", "difference_q05", "difference_q95", "probability_increase",
    }  # fmt: skip
    style = (tmp_path / "ratio.qml").read_text("utf-8")
    assert all(colour in style for colour in palette.ratio_classes().hex) and "0.9 – 1.1" in style
    with rasterio.open(tmp_path / "difference.tif") as src:
        assert src.units == ("events per km²",) and src.tags()["title"] == "2019 against 2018"
    assert (tmp_path / "difference.qml").read_text("utf-8") != style


@pytest.mark.qgis
@pytest.mark.slow
def test_qgis_shows_it(compared, tmp_path):
    compared.to_raster(tmp_path)
    answer = run_qgis(HELPERS / "qgis_check.py", tmp_path / "ratio.tif", "/dev/null", "2", json.dumps([]))
    assert answer["legend"] == palette.ratio_classes().labels()
    assert [item[1] for item in answer["items"]] == palette.ratio_classes().hex


@pytest.mark.chromium
@pytest.mark.slow
def test_the_map_tells_the_ratio_under_the_cursor(compared, tmp_path):
    compared.to_map(tmp_path / "map.html")
    with Chromium(1000, 800) as page:
        page.open(tmp_path / "map.html")
        found = page.run("geobgp.current.at(L.latLng(52.16, 5.2))")
        legend = page.run("document.querySelector('.geobgp-legend').innerText")
    # To three digits, and whole percentages.
    assert found["ratio"] == 1.4
    assert found["high"] == pytest.approx(1.4 * np.exp(1.6449 * 0.5), abs=0.005)
    assert found["p"] == pytest.approx(norm.cdf(np.log(1.4) / 0.5), abs=0.005)
    assert found["first"] / found["second"] == pytest.approx(1.4 * np.exp(-0.035), rel=0.02)
    assert "2019 against 2018" in legend and "0.9 – 1.1" in legend


@pytest.mark.parametrize("variable", ["ratio", "difference", "increase"])
def test_figures(compared, variable):
    ax = compared.plot(variable=variable)
    assert ax.get_title(loc="left") == "2019 against 2018"
    with pytest.raises(DataError, match='"ratio", "difference" or "increase"; found \'sum\''):
        compared.plot(ax, variable="sum")


def test_words(compared):
    assert "surely (95 %) higher on 0 % of the land" in repr(compared)
    other = prescribed(island(), 0.0, 0.1)
    assert compared.first.versus(other).title == "this map against the other"
    assert compared.first.versus(other, names=("ticks", "mites")).title == "ticks against mites"


def test_a_loaded_posterior_is_compared_with_a_fresh_one(tmp_path):
    domain = square()
    basis = HarmonicBasis.compute(domain, 30, cache=False)
    one, two = (LGCP(basis, Matern(1.5, lengthscale=6.0, sd=0.5)).fit(np.full(domain.n_nodes, n)) for n in (2.0, 4.0))
    one.save(tmp_path / "one.geobgp")
    found = two.versus(Posterior.load(tmp_path / "one.geobgp"))
    np.testing.assert_allclose(found.node_ratio()["q50"], 2.0, rtol=0.05)


# -- shares and values


def sampled(basis, y, xy, likelihood="gaussian", **how):
    trials = how.pop("trials", None)
    return BoundaryGP(basis, Matern(1.5, lengthscale=6.0, sd=1.0), likelihood, **how).fit(xy, y, trials=trials)


def two(likelihood="gaussian", transforms=("none", "none")):
    """Return two maps of the same land: twice as high in the east of the first."""
    domain, rng = square(), np.random.default_rng(8)
    basis, xy = HarmonicBasis.compute(domain, 40, cache=False), rng.uniform(0.1, 9.9, (2, 150, 2))
    maps = []
    for k, (places, transform) in enumerate(zip(xy, transforms, strict=True)):
        level = 0.2 * np.where((places[:, 0] > 5) & (k == 0), 2.0, 1.0)
        if likelihood == "binomial":
            tested = np.full(150, 200.0)
            maps.append(sampled(basis, rng.binomial(200, level).astype(float), places, likelihood, trials=tested))
        else:
            values = 20.0 * level * np.exp(0.2 * rng.normal(size=150))
            maps.append(sampled(basis, values, places, transform=transform))
    return maps


def test_prevalences_are_compared_on_their_own_scale():
    first, second = two("binomial")
    answer = first.versus(second, names=("new", "old"))
    east = answer.domain.node_points[:, 0] > 6
    assert np.median(answer.node_ratio()["q50"][east]) == pytest.approx(2.0, rel=0.1)
    assert np.median(answer.node_difference()["mean"][east]) == pytest.approx(0.2, abs=0.03)
    chance = answer._chance()
    np.testing.assert_allclose(chance, answer._difference.sf(0.0), atol=1e-6)
    np.testing.assert_allclose(chance, answer._log_ratio.sf(0.0), atol=1e-6)
    found = answer.node_ratio()
    draws = [np.concatenate(list(p.sample_blocks(4000, k))) for k, p in enumerate((first, second))]
    np.testing.assert_allclose(found["mean"], (draws[0] / draws[1]).mean(axis=0), rtol=0.03)
    np.testing.assert_allclose(found["sd"], (draws[0] / draws[1]).std(axis=0), rtol=0.1)
    np.testing.assert_allclose(answer._chance(1.5), (draws[0] > 1.5 * draws[1]).mean(axis=0), atol=0.03)


def test_regions_of_values_have_means():
    first, second = two(transforms=("log", "sqrt"))
    answer = first.versus(second)
    halves = [shapely.box(0, 0, 5, 10), shapely.box(5, 0, 10, 10)]
    table = answer.totals(halves, n_samples=400)
    assert {"mean_first", "mean_second", "ratio", "p_increase"} <= set(table) and "expected_first" not in table
    np.testing.assert_allclose(table["mean_first"], first.totals(halves, n_samples=10)["mean"])
    np.testing.assert_allclose(table["ratio"], [1.0, 2.0], rtol=0.2)
    assert table["p_increase"].iloc[1] > 0.99
    assert np.isnan(answer.node_ratio()["mean"]).all()  # of one over a square it is infinite
    draws = [np.concatenate(list(p.sample_blocks(4000, k))) for k, p in enumerate((first, second))]
    np.testing.assert_allclose(answer._chance(), (draws[0] > draws[1]).mean(axis=0), atol=0.03)


def test_values_that_may_be_below_zero_have_differences_alone(tmp_path):
    first, second = two()
    answer = first.versus(second, names=("new", "old"))
    assert answer.main == "difference" and "ratio" not in answer.totals(n_samples=20)
    with pytest.raises(DataError, match=r"cannot be below zero.*Ask for the difference"):
        answer.ratio()
    gap = first._nodes.mu[0] - second._nodes.mu[0]
    np.testing.assert_allclose(answer.node_difference()["q50"], gap)
    names = {path.stem for path in answer.to_raster(tmp_path)}
    assert names == {"difference", "difference_q05", "difference_q95", "probability_increase"}
    answer.to_map(tmp_path / "map.html")
    assert "two maps compared; difference (mean)" in (tmp_path / "map.html").read_text("utf-8")
    assert "difference" in answer.plot().get_figure().axes[-1].get_ylabel()


def test_maps_of_other_quantities_are_not_compared():
    (share, _), (value, _) = two("binomial"), two()
    with pytest.raises(DataError, match="One map is of a prevalence, the other of a value"):
        share.versus(value)


def test_mistakes(compared):
    first = compared.first
    with pytest.raises(DataError, match="both are the same"):
        first.versus(first)
    with pytest.raises(DomainError, match=r"nodes of 1,000 m against .* nodes of 2,000 m.*the same land"):
        first.versus(prescribed(island(2000.0), 0.0, 0.1))
    with pytest.raises(DataError, match="other must be a Posterior; found 3"):
        first.versus(3)
    with pytest.raises(DataError, match="must be two names; found"):
        first.versus(compared.second, names=["ticks"])
    with pytest.raises(DataError, match="positive number; found 0"):
        compared.increase(0)
    domain = square()
    basis = HarmonicBasis.compute(domain, 30, cache=False)
    kernel = Matern(1.5, lengthscale=6.0, sd=0.5)
    density = LGCP(basis, kernel).fit(np.ones(domain.n_nodes))
    rate = LGCP(basis, kernel, exposure=np.full(domain.n_nodes, 9.0)).fit(np.ones(domain.n_nodes))
    with pytest.raises(DataError, match=r"events per unit area, the other in events per .*no meaning"):
        density.versus(rate)
