"""What a posterior says, against Monte Carlo, loops and its own file."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import pickle
import re
import sys

import geopandas as gpd
import numpy as np
import pytest
import shapely
import xarray as xr
from paths import ROOT
from posteriors import fitted
from scipy import stats

from geobgp import LGCP, BoundaryGP, Domain, FullRank, HarmonicBasis, Matern, Posterior, bin_points, simulate_points
from geobgp.errors import CacheError, CRSError, DataError, GeobgpWarning, WriteError

LAND = shapely.union_all([shapely.Point(0, 0).buffer(5), shapely.Point(7.5, 2).buffer(1.6)])
RIVER = shapely.LineString([(-6, 0.63), (6, -1.1)]).buffer(0.03)


@pytest.fixture(scope="module")
def domain() -> Domain:
    return Domain.from_polygons(LAND, water=RIVER, cell_size=0.5, crs="local")


@pytest.fixture(scope="module")
def basis(domain) -> HarmonicBasis:
    return HarmonicBasis.compute(domain, m=60, cache=False)


@pytest.fixture(scope="module")
def counts(domain):
    points = simulate_points(domain, lambda c: 3 * np.exp(0.15 * c[:, 0] + np.sin(c[:, 1])), rng=3)
    return bin_points(points, domain)


@pytest.fixture(scope="module")
def fits(domain, basis, counts) -> dict[str, Posterior]:
    full = FullRank(domain)
    slope = {"easting": lambda c: 10 + c[:, 0]}
    return {
        "map": LGCP(basis, Matern(1.5, lengthscale=3.0, sd=0.8)).fit(counts),
        "integrate": LGCP(basis, Matern(1.5, lengthscale=3.0)).fit(counts, hyper="integrate", title="Ticks"),
        "covariate": LGCP(basis, Matern(1.5, lengthscale=3.0), covariates=slope).fit(counts),
        "full": LGCP(full, Matern(1.0, lengthscale=3.0, sd=0.8)).fit(counts),
    }


@pytest.fixture(params=["map", "integrate", "covariate", "full"])
def posterior(request, fits) -> Posterior:
    return fits[request.param]


# -- intensities -------------------------------------------------------------------------------------------


def test_intensity_is_that_of_the_mixture(posterior):
    states = posterior.fit.states
    weight = np.array([state.weight for state in states])
    mu, var = (np.array(x) for x in zip(*(state.node_moments() for state in states), strict=True))
    table = posterior.node_intensity((0.05, 0.5, 0.95))
    law = stats.lognorm(s=np.sqrt(var), scale=np.exp(mu))
    mean = weight @ law.mean()
    np.testing.assert_allclose(table["mean"], mean, rtol=1e-10)
    np.testing.assert_allclose(table["sd"] ** 2, weight @ (law.var() + law.mean() ** 2) - mean**2, rtol=1e-6)
    for q in (0.05, 0.5, 0.95):
        np.testing.assert_allclose(weight @ law.cdf(table[f"q{round(100 * q):02d}"].to_numpy()), q, atol=1e-9)


def test_dataset(posterior, domain):
    data = posterior.intensity()
    assert list(data.data_vars) == ["mean", "sd", "q05", "q50", "q95"]
    assert data["mean"].dims == ("northing", "easting") and data["mean"].shape == domain.grid.shape
    table = posterior.node_intensity()
    for name in data.data_vars:
        np.testing.assert_array_equal(data[name], domain.to_grid(table[name].to_numpy()))
        assert data[name].attrs["units"] == "events per unit area"
        assert data[name].attrs["long_name"].startswith("intensity, ")
    assert bool((data["q05"] < data["q50"]).where(data["mean"].notnull(), True).all())
    assert np.isnan(data["mean"].to_numpy()[domain.coverage == 0]).all()
    for name in ("title", "source", "created", "boundary", "kernel", "features", "n_points"):
        assert data.attrs[name] not in ("", None)
    assert list(posterior.intensity((0.025, 0.975)).data_vars) == ["mean", "sd", "q025", "q975"]
    with pytest.raises(DataError, match="strictly between 0 and 1"):
        posterior.intensity((5, 95))


def test_intensity_at(posterior, domain):
    centres = np.flatnonzero(domain.pieces.whole[domain.node_rows, domain.node_cols])
    at = posterior.intensity_at(domain.node_points[centres])
    here = posterior.node_intensity().iloc[centres].reset_index(drop=True)
    assert list(at.columns) == list(here.columns) and at.attrs["units"] == "events per unit area"
    np.testing.assert_allclose(at, here, rtol=1e-12)
    off = posterior.intensity_at(np.array([[100.0, 0.0], [0.0, 2.0], [6.0, -1.12]]))
    assert off.isna().all(axis=1).tolist() == [True, False, True]
    with pytest.raises(DataError, match=r"\(k, 2\)"):
        posterior.intensity_at(np.array([0.0, 2.0]))


def test_a_place_has_one_value(posterior, domain):
    """Anywhere within a cell `intensity_at` gives what the raster shows there."""
    rng = np.random.default_rng(4)
    places = rng.uniform([-5.0, -5.0], [9.1, 5.0], (500, 2))
    places = places[domain.locate(places) >= 0]
    rows, cols, _ = domain.grid.cell_of(*places.T)
    alone = np.bincount(domain.pieces.cell[domain.piece_node >= 0], minlength=domain.grid.n_cells)
    single = alone[rows * domain.grid.shape[1] + cols] == 1
    assert 100 < single.sum() < len(places)
    shown, at = posterior.intensity(), posterior.intensity_at(places)
    for name in shown.data_vars:
        raster = shown[name].to_numpy()[rows, cols]
        np.testing.assert_allclose(at[name][single], raster[single], rtol=1e-12)
    assert not np.allclose(at["mean"][~single], raster[~single])  # two sides of a river, apart
    node = domain.locate(places)
    np.testing.assert_allclose(at["mean"], posterior.node_intensity()["mean"].to_numpy()[node], rtol=1e-12)


def test_features_predict_smoothly_and_full_rank_by_node(fits, domain):
    inside = np.array([[2.05, 2.05], [2.45, 2.45]])
    assert domain.locate(inside)[0] == domain.locate(inside)[1]
    smooth, stepped = fits["map"].predict(inside)[0], fits["full"].predict(inside)[0]
    assert abs(smooth[0] - smooth[1]) > 1e-3
    assert stepped[0] == stepped[1]


def test_covariates_at_coordinates(fits):
    posterior = fits["covariate"]
    place = np.array([[0.25, 2.25], [0.25, 2.25]])
    given = posterior.intensity_at(place, covariates={"easting": [10.25, 12.25]})
    np.testing.assert_allclose(given.iloc[0], posterior.intensity_at(place[:1]).iloc[0], rtol=1e-9)
    mean = posterior.predict(place, {"easting": [10.25, 12.25]})[0]
    slope = posterior.coefficients.set_index("name").loc["easting", "mean"]
    assert mean[1] - mean[0] == pytest.approx(2 * slope)
    with pytest.raises(DataError, match="'easting' is not given"):
        posterior.predict(place, {"x": [1, 2]})


def test_exceedance(posterior, domain):
    draws = np.asarray(posterior.sample(4000, rng=1))
    for threshold in (2.0, 5.0):
        chance = posterior.exceedance(threshold)
        assert chance.name == "exceedance" and chance.attrs["units"] == "1"
        assert "events per unit area" in chance.attrs["long_name"]
        got = domain.to_grid((draws > threshold).mean(axis=0))
        np.testing.assert_allclose(chance, got, atol=0.05)
    land = domain.coverage > 0
    assert (posterior.exceedance(0.0).to_numpy()[~np.isnan(posterior.exceedance(0.0).to_numpy())] == 1).all()
    assert np.nanmax(posterior.exceedance(1e12)) < 1e-12 and land.any()
    with pytest.raises(DataError, match="finite"):
        posterior.exceedance(np.nan)


def test_latent(posterior, domain):
    data = posterior.latent()
    table = posterior.node_intensity()
    np.testing.assert_allclose(data["q50"], domain.to_grid(np.log(table["q50"].to_numpy())), atol=1e-9)
    assert data["mean"].attrs["units"] == "log(events per unit area)"


# -- samples and totals ------------------------------------------------------------------------------------


def test_samples_agree_with_the_analytic_moments(posterior):
    n = 6000
    draws = np.asarray(posterior.sample(n, rng=2))
    table = posterior.node_intensity()
    z = (draws.mean(axis=0) - table["mean"]) / (table["sd"] / np.sqrt(n))
    assert np.abs(z).max() < 6
    np.testing.assert_allclose(draws.std(axis=0), table["sd"], rtol=0.15)
    np.testing.assert_array_equal(posterior.sample(7, rng=2), posterior.sample(7, rng=2))
    assert not np.array_equal(posterior.sample(7, rng=2), posterior.sample(7, rng=3))
    assert posterior.sample(0, rng=0).shape == (0, posterior.domain.n_nodes)


def test_sample_covariance_agrees_with_the_analytic_one(fits, basis):
    posterior = fits["map"]
    (state,) = posterior.fit.states
    even = state.sd / np.sqrt(np.square(basis.features) @ posterior.kernel.spectral_density(np.sqrt(basis.eigenvalues)))
    rows = np.hstack([even[:, None] * basis.features, state.fixed])
    covariance = rows @ state.joint()[1] @ rows.T
    mean = np.exp(state.node_moments()[0] + np.diag(covariance) / 2)
    exact = mean[:, None] * mean * np.expm1(covariance)
    n = 20_000
    got = np.cov(np.asarray(posterior.sample(n, rng=4)).T)
    scale = np.sqrt(np.diag(exact))
    error = (got - exact) / (scale[:, None] * scale)
    assert np.sqrt(np.mean(error**2)) < 2.5 / np.sqrt(n)
    off = covariance / np.sqrt(np.outer(np.diag(covariance), np.diag(covariance)))
    assert (np.abs(off) > 0.3).mean() > 0.05, "the test needs correlations to judge"


def test_samples_of_a_mixture_use_every_state(fits):
    posterior = fits["integrate"]
    assert len(posterior.fit.states) > 1
    draws = np.log(np.asarray(posterior.sample(20_000, rng=5)))
    mean, var = posterior._nodes.moments()
    np.testing.assert_allclose(draws.var(axis=0), var, rtol=0.1)
    np.testing.assert_allclose(draws.mean(axis=0), mean, atol=0.05)


def test_totals_against_a_loop(posterior, domain):
    cuts = [shapely.box(-9, -9, 1.1, 9), shapely.box(1.1, -9, 20, 9), shapely.Point(7.5, 2).buffer(1.0)]
    regions = gpd.GeoDataFrame({"name": ["west", "east", "island"]}, geometry=cuts)
    table = posterior.totals(regions, n_samples=500, rng=9)
    mean = posterior.node_intensity()["mean"].to_numpy()
    samples = np.asarray(posterior.sample(500, rng=9))
    land = domain.polygon_of(np.arange(domain.n_nodes))
    for row, cut in zip(table.itertuples(), cuts, strict=True):
        weight = np.array([piece.intersection(cut).area for piece in land])
        assert row.expected == pytest.approx(weight @ mean, rel=1e-9)
        assert row.land_area == pytest.approx(weight.sum(), rel=1e-9)
        sums = samples @ weight
        assert (row.q05, row.q95) == pytest.approx(tuple(np.quantile(sums, [0.05, 0.95])), rel=1e-9)
        assert row.sd == pytest.approx(sums.std(ddof=1), rel=1e-9)
    assert table.name.tolist() == ["west", "east", "island"] and table.crs is None


def test_totals_of_a_partition_add_up(posterior, counts):
    seeds = shapely.MultiPoint(np.random.default_rng(0).uniform(-6, 9, (15, 2)))
    parts = shapely.get_parts(shapely.voronoi_polygons(seeds, extend_to=shapely.box(-20, -20, 20, 20)))
    parts = [p for p in parts if p.intersection(LAND).area > 0.01]
    table, whole = posterior.totals(list(parts)), posterior.totals()
    assert table["expected"].sum() == pytest.approx(whole["expected"].iloc[0], rel=1e-9)
    assert whole["expected"].iloc[0] == pytest.approx(counts.total_weight, rel=0.01)
    assert whole["q05"].iloc[0] < counts.total_weight < whole["q95"].iloc[0]
    assert whole["sd"].iloc[0] < np.sqrt((table["sd"] ** 2).sum()) * 1.5


def test_predicted_counts_are_wider(fits):
    posterior = fits["map"]
    table = posterior.totals([shapely.box(-2, 1, 0, 3)], predicted=True, quantiles=(0.05, 0.95))
    assert table["predicted_q05"].iloc[0] < table["q05"].iloc[0]
    assert table["predicted_q95"].iloc[0] > table["q95"].iloc[0]
    rng = np.random.default_rng(0)
    sums = np.asarray(posterior.sample(4000, 1)) @ np.asarray(posterior_shares(posterior)).ravel()
    drawn = np.quantile(rng.poisson(sums), [0.05, 0.95])
    assert np.abs(drawn - table[["predicted_q05", "predicted_q95"]].to_numpy()).max() <= 2


def posterior_shares(posterior: Posterior) -> np.ndarray:
    from geobgp.land.regions import area_shares

    return area_shares(posterior.domain, shapely.box(-2, 1, 0, 3)).toarray() * posterior.domain.node_areas


def test_totals_refuse_and_warn(fits):
    posterior = fits["map"]
    with pytest.warns(GeobgpWarning, match="1 of 1 regions hold no land"):
        assert np.isnan(posterior.totals([shapely.box(50, 50, 51, 51)])["expected"].iloc[0])
    with pytest.raises(CRSError, match="no place on Earth"):
        posterior.totals(gpd.GeoSeries([shapely.box(0, 0, 1, 1)], crs=4326))


# -- facts -------------------------------------------------------------------------------------------------


def test_coefficients_in_own_units(fits, domain):
    posterior = fits["covariate"]
    table = posterior.coefficients.set_index("name")
    (state,) = posterior.fit.states
    mean, cov = state.coefficients()
    own = 10 + domain.node_points[:, 0]
    weight = domain.node_areas / domain.node_areas.sum()
    scale = np.sqrt(weight @ (own - weight @ own) ** 2)
    assert table.loc["easting", "mean"] == pytest.approx(mean[1] / scale)
    assert table.loc["easting", "sd"] == pytest.approx(np.sqrt(cov[1, 1]) / scale)
    assert table.loc["intercept", "mean"] == pytest.approx(mean[0] - mean[1] * (weight @ own) / scale)
    assert table.loc["easting", "rate_ratio"] == pytest.approx(np.exp(table.loc["easting", "mean"]))
    low, high = stats.norm(table.loc["easting", "mean"], table.loc["easting", "sd"]).ppf([0.05, 0.95])
    assert (table.loc["easting", "q05"], table.loc["easting", "q95"]) == pytest.approx((low, high))
    assert np.isnan(table.loc["intercept", "rate_ratio"])


def test_summary(posterior):
    summary = posterior.summary()
    text = str(summary)
    for word in ("points", "boundary", "lengthscale", "sd", "elbo", "features", "converged"):
        assert word in summary and word.replace("_", " ") in text
    assert re.search(r"computation +converged, \d+ rounds, .* s", text)
    json.dumps(summary.to_dict(), allow_nan=False)
    assert summary["points"]["used"] == posterior.n_points
    assert summary["elbo"] == posterior.elbo
    assert "<table>" in summary._repr_html_()
    given = summary["lengthscale"]
    assert given["value"] == pytest.approx(3.0) and given["unit"] == "unit" and not given["learned"]
    assert "(given)" in text
    assert len(summary) == len(list(summary))


def test_summary_intervals_of_learned_parameters(fits):
    fact = fits["integrate"].summary()["sd"]
    assert fact["learned"] and fact["q05"] < fact["value"] < fact["q95"]
    fit = fits["integrate"].fit
    law = stats.lognorm(s=np.sqrt(fit.hyper_cov[1, 1]), scale=np.exp(fit.hyper_mean[1]))
    assert (fact["q05"], fact["q95"]) == pytest.approx(tuple(law.ppf([0.05, 0.95])))


def test_facts_and_repr(posterior, fits, counts):
    text = repr(posterior)
    assert text.startswith("Posterior(Poisson, ") and len(text) < 250 and "ELBO" in text
    assert posterior.n_points == counts.n_used and posterior.converged
    assert posterior.lengthscale == pytest.approx(3.0)
    assert fits["full"].basis_info["m"] == "full" and fits["map"].basis_info["m"] == 62
    assert fits["integrate"].provenance["title"] == "Ticks"
    with pytest.raises(dataclasses.FrozenInstanceError):
        posterior.title = "no"


def test_units_follow_the_exposure(basis, counts, domain):
    people = np.linspace(50, 150, domain.n_nodes)
    posterior = LGCP(basis, Matern(1.5, 3.0, 0.5), exposure=people).fit(counts)
    assert posterior.units == "events per unit of exposure"
    assert posterior.intensity()["mean"].attrs["units"] == posterior.units
    total = posterior.totals()
    assert total["exposure"].iloc[0] == pytest.approx(people.sum())
    assert total["expected"].iloc[0] == pytest.approx(counts.total_weight, rel=0.01)
    named = dataclasses.replace(posterior, exposure_kind="population")
    assert named.units == "events per person"


@pytest.fixture(scope="module")
def kilometres() -> Posterior:
    land = shapely.transform(LAND, lambda c: 1000 * c + [150_000, 450_000])
    place = Domain.from_polygons(land, cell_size=500, crs=28992)
    basis = HarmonicBasis.compute(place, m=40, cache=False)
    counts = np.random.default_rng(0).poisson(8 * place.node_areas / 1e6).astype(float)
    return LGCP(basis, Matern(1.5, 3000.0, 0.5)).fit(counts)


def test_kilometres(kilometres):
    posterior = kilometres
    assert posterior.units == "events per km²"
    assert posterior.summary()["lengthscale"]["value"] == pytest.approx(3.0)
    assert posterior.summary()["lengthscale"]["unit"] == "km"
    assert posterior.node_intensity()["mean"].mean() == pytest.approx(8, rel=0.1)
    degrees = gpd.GeoSeries([shapely.box(-3000, -3000, 3000, 3000)]).set_crs(28992)
    degrees = degrees.translate(150_000, 450_000).set_crs(28992).segmentize(100).to_crs(4326)
    assert posterior.totals(degrees)["land_km2"].iloc[0] == pytest.approx(36, rel=1e-3)


@pytest.mark.filterwarnings("ignore::geobgp.GeobgpWarning")
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("case", ["none", "one", "million"])
def test_extreme_counts_give_finite_answers(basis, domain, case, full):
    values = np.zeros(domain.n_nodes)
    values[5] = {"none": 0.0, "one": 1.0, "million": 1e6}[case]
    kernel = Matern(1.0 if full else 1.5, lengthscale=3.0, sd=1.0)
    model = LGCP(FullRank(domain) if full else basis, kernel)
    posterior = model.fit(values)
    table = posterior.node_intensity()
    assert np.isfinite(table).all(axis=None)
    assert (table["q05"] < table["q95"]).all()
    total = posterior.totals(predicted=True)
    assert np.isfinite(total.drop(columns="geometry")).all(axis=None)
    if case == "million":
        assert total["expected"].iloc[0] == pytest.approx(1e6, rel=0.01)
    json.dumps(posterior.summary().to_dict(), allow_nan=False)
    assert posterior.exceedance(1.0).notnull().any()


# -- values at locations -----------------------------------------------------------------------------------


def test_gaussian_predictions(basis, domain):
    rng = np.random.default_rng(0)
    coords = domain.node_points
    values = np.sin(coords[:, 0]) + 0.2 * rng.normal(size=len(coords))
    posterior = BoundaryGP(basis, Matern(1.5, 2.0, 1.0)).fit(coords, values)
    mean, var = posterior.predict(coords)
    seen, total = posterior.predict_y(coords)
    np.testing.assert_array_equal(mean, seen)
    noise = posterior.fit.states[0].noise
    assert 0.15 < noise < 0.3
    np.testing.assert_allclose(total - var, noise**2)
    assert posterior.summary()["noise"] == pytest.approx(noise)
    assert np.isnan(posterior.predict(np.array([[100.0, 0.0]]))[0]).all()


@pytest.mark.parametrize("link", ["probit", "logit"])
def test_bernoulli_predictions(basis, domain, link):
    rng = np.random.default_rng(1)
    coords = domain.node_points
    law = stats.norm.cdf if link == "probit" else lambda f: 1 / (1 + np.exp(-f))
    values = (rng.random(len(coords)) < law(coords[:, 0])).astype(float)
    posterior = BoundaryGP(basis, Matern(1.5, 5.0, 2.0), "bernoulli", link=link).fit(coords, values)
    p, var = posterior.predict_y(coords)
    assert ((p > 0) & (p < 1)).all()
    np.testing.assert_allclose(var, p * (1 - p))
    mean, spread = posterior.predict(coords[:5])
    draws = mean + np.sqrt(spread) * rng.standard_normal((100_000, 5))
    np.testing.assert_allclose(p[:5], law(draws).mean(axis=0), atol=0.01)


def test_poisson_values_at_locations(basis, domain):
    rng = np.random.default_rng(2)
    coords = domain.node_points[::3]
    posterior = BoundaryGP(basis, Matern(1.5, 4.0, 0.5), "poisson").fit(coords, rng.poisson(3.0, len(coords)))
    mean, var = posterior.predict_y(coords)
    assert np.all(var > mean) and mean.mean() == pytest.approx(3, rel=0.2)
    assert posterior.units == "events per observation"
    assert posterior.totals()["mean"].iloc[0] == pytest.approx(3, rel=0.2)


# -- files -------------------------------------------------------------------------------------------------


def assert_same(a: Posterior, b: Posterior) -> None:
    np.testing.assert_array_equal(a.node_intensity(), b.node_intensity())
    # The factor behind samples is not stored, but made again.
    np.testing.assert_allclose(a.sample(5, rng=1), b.sample(5, rng=1), rtol=1e-8)
    coords = np.array([[0.3, 2.2], [7.4, 2.1], [100.0, 0.0], [-4.9, 0.2]])
    np.testing.assert_array_equal(a.intensity_at(coords), b.intensity_at(coords))
    assert a.summary().to_dict() == b.summary().to_dict()
    assert a.coefficients.equals(b.coefficients)
    xr.testing.assert_identical(a.intensity(), b.intensity())
    assert a.totals(predicted=True).equals(b.totals(predicted=True))
    assert a.domain.content_hash() == b.domain.content_hash()
    assert a.kernel == b.kernel and repr(a) == repr(b)
    np.testing.assert_array_equal(a.fit.elbo_trace, b.fit.elbo_trace)
    np.testing.assert_array_equal(a.fit.hyper_cov, b.fit.hyper_cov)


def test_save_and_load_are_exact(posterior, tmp_path):
    path = posterior.save(tmp_path / "fit.geobgp")
    assert list(tmp_path.iterdir()) == [path]
    assert_same(posterior, Posterior.load(path))


@pytest.mark.parametrize("boundary", ["neumann", "dirichlet"])
@pytest.mark.parametrize("scheme", ["subcell", "staircase"])
def test_save_and_load_of_every_basis(counts, domain, boundary, scheme, tmp_path):
    values = np.asarray(counts.values)
    for basis in (
        HarmonicBasis.compute(domain, m=20, boundary=boundary, scheme=scheme, cache=False),
        FullRank(domain, boundary=boundary, scheme=scheme),
    ):
        posterior = LGCP(basis, basis.default_kernel().with_parameters(6.0, 0.5)).fit(values)
        back = Posterior.load(posterior.save(tmp_path / "fit"))
        assert back.basis_info == posterior.basis_info
        assert_same(posterior, back)


@pytest.mark.parametrize("crs", [28992, 32631, 3035, "+proj=laea +lat_0=52 +lon_0=5 +units=m"])
def test_save_and_load_with_crs_and_barriers(crs, tmp_path):
    degrees = gpd.GeoSeries([shapely.box(5, 52, 5.3, 52.2)], crs=4326)
    fence = gpd.GeoSeries([shapely.LineString([(4.9, 52.1), (5.4, 52.13)])], crs=4326)
    place = Domain.from_polygons(degrees, barriers=fence, cell_size=1000, crs=crs)
    basis = HarmonicBasis.compute(place, m=12, cache=False)
    posterior = LGCP(basis, Matern(1.5, 20_000.0, 0.5)).fit(np.ones(place.n_nodes))
    back = Posterior.load(posterior.save(tmp_path / "fit"))
    assert back.domain.content_hash() == place.content_hash()
    assert back.domain.crs == place.crs and back.domain.n_components == 2
    xr.testing.assert_identical(back.intensity(), posterior.intensity())


def test_places_may_be_points_of_any_crs():
    degrees = gpd.GeoSeries([shapely.box(5, 52, 5.3, 52.2)], crs=4326)
    place = Domain.from_polygons(degrees, cell_size=1000)
    basis = HarmonicBasis.compute(place, m=12, cache=False)
    posterior = LGCP(basis, Matern(1.5, 20_000.0, 0.5)).fit(np.arange(place.n_nodes) % 3)
    inside, outside = shapely.Point(5.1, 52.1), shapely.Point(9, 52.1)
    points = gpd.GeoSeries([inside, None, outside, inside], crs=4326)
    by_points = posterior.intensity_at(gpd.GeoDataFrame(geometry=points))
    assert by_points["mean"].isna().tolist() == [False, True, True, False]
    at = points.iloc[[0, 3]].to_crs(place.crs)
    by_coords = posterior.intensity_at(np.column_stack([at.x, at.y]))
    np.testing.assert_allclose(by_points.iloc[[0, 3]], by_coords, rtol=1e-9)
    with pytest.raises(CRSError, match="not known"):
        posterior.predict(gpd.GeoSeries([inside]))


def test_save_of_values_at_locations(basis, domain, tmp_path):
    posterior = BoundaryGP(basis, Matern(1.5, 2.0, 1.0)).fit(domain.node_points, np.sin(domain.node_points[:, 0]))
    back = Posterior.load(posterior.save(tmp_path / "fit"))
    for a, b in zip(posterior.predict_y(domain.node_points), back.predict_y(domain.node_points), strict=True):
        np.testing.assert_array_equal(a, b)


def test_damaged_and_foreign_files(fits, tmp_path):
    path = fits["map"].save(tmp_path / "fit")
    good = path.read_bytes()
    rng = np.random.default_rng(0)
    for place in rng.choice(len(good), 40, replace=False):
        bad = bytearray(good)
        bad[place] ^= 0x55
        path.write_bytes(bytes(bad))
        try:
            back = Posterior.load(path)
        except CacheError:
            continue
        np.testing.assert_array_equal(back.node_intensity(), fits["map"].node_intensity())
    for cut in (0, 10, len(good) // 2, len(good) - 1):
        path.write_bytes(good[:cut])
        with pytest.raises(CacheError):
            Posterior.load(path)
    path.write_text("points,land\n")
    with pytest.raises(CacheError, match="not a file that geobgp has written"):
        Posterior.load(path)
    with pytest.raises(CacheError, match="There is no file"):
        Posterior.load(tmp_path / "none")


def _records(value):
    """Yield all mappings within a header."""
    if isinstance(value, dict):
        yield value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _records(part)


def test_a_file_of_another_domain_is_refused(fits, tmp_path):
    from geobgp import store

    path = fits["map"].save(tmp_path / "fit")
    header, arrays = store.read(path, "posterior")
    domain = next(part for part in _records(header) if "min_coverage" in part)
    domain["min_coverage"] = 0.3
    store.write(path, "posterior", header, arrays)
    with pytest.raises(CacheError, match="cannot be rebuilt"):
        Posterior.load(path)


# -- ways out ----------------------------------------------------------------------------------------------


def test_rasters_and_netcdf(fits, tmp_path):
    posterior = fits["integrate"]
    made = posterior.to_raster(tmp_path / "out", thresholds=(2, 0.5))
    statistics = {"mean", "sd", "q05", "q50", "q95", "exceedance_2", "exceedance_0.5", "coverage"}
    assert {p.stem for p in made} == statistics
    path = posterior.to_netcdf(tmp_path / "fit.nc", thresholds=[2])
    with xr.open_dataset(path) as data:
        xr.testing.assert_allclose(data["mean"], posterior.intensity()["mean"].drop_vars("spatial_ref"))
        assert data.attrs["title"] == "Ticks" and "exceedance_2" in data
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []
    with pytest.raises(WriteError, match="no folder"):
        posterior.to_netcdf(tmp_path / "none" / "fit.nc")


def test_polygons(fits, kilometres, tmp_path):
    assert len(fits["map"].to_polygons([2, 5])) == 3
    frame = kilometres.to_polygons([8], tmp_path / "bands.gpkg")
    assert len(frame) == 2 and len(gpd.read_file(tmp_path / "bands.gpkg")) == 2
    with pytest.raises(DataError, match="variable is one of mean"):
        fits["map"].to_polygons([2], variable="mode")


def test_map(fits, tmp_path):
    fits["map"].to_map(tmp_path / "map.html")
    assert "Intensity" in (tmp_path / "map.html").read_text(encoding="utf-8")
    assert "iframe" in fits["map"]._repr_html_()


# -- calibration -------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::geobgp.GeobgpWarning")
def test_intervals_hold_what_they_promise():
    """A small run of benchmarks/calibration.py: coverage of nodes and regional totals under the prior."""
    path = ROOT / "benchmarks" / "calibration.py"
    spec = importlib.util.spec_from_file_location("calibration", path)
    calibration = importlib.util.module_from_spec(spec)
    sys.modules["calibration"] = calibration
    spec.loader.exec_module(calibration)
    domain = calibration.archipelago(cell_size=5000.0)
    wanted = ("features, map", "few points, integrate", "full rank, known")
    chosen = [case for case in calibration.cases(domain, 120) if case.name in wanted]
    result = calibration.study(chosen, calibration.regions(domain), runs=30, say=lambda text: None)
    assert set(result) == set(wanted)
    for row in result.values():
        for name, (mean, error) in row.items():
            nominal = int(name.split()[1])
            assert abs(mean - nominal) < 3 + 2.5 * error, (row, name)
            assert error < 4


def test_one_set_of_draws_serves_all_and_is_neither_mixed_up_nor_written_to():
    """Sets that are asked for in turn stay what they are; the kept one is read-only, and in no pickle."""
    posterior, _ = fitted()
    first = np.concatenate(list(posterior.draws(40, 1)))
    in_turn = [np.concatenate(list(posterior.draws(n, seed))) for n, seed in ((30, 1), (40, 2), (40, 1))]
    np.testing.assert_array_equal(in_turn[2], first)
    assert in_turn[0].shape[0] == 30 and not np.array_equal(in_turn[1], first)
    halfway, other = posterior.draws(40, 1), posterior.draws(30, 1)
    begun = [next(halfway), next(other)]
    np.testing.assert_array_equal(np.concatenate([begun[0], *halfway]), first)
    with pytest.raises(ValueError, match="read-only"):
        next(posterior.draws(40, 1))[0] = 0.0
    assert "draws" not in pickle.loads(pickle.dumps(posterior.fit)).notes
