import dataclasses
import re
import warnings

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest
import shapely
import small_case as case

from geobgp import LGCP, HarmonicBasis, Matern, Posterior, SquaredExponential, map_intensity
from geobgp.auto import pipeline
from geobgp.auto.options import Options
from geobgp.auto.search import LEAD
from geobgp.data.points import number_of_rows
from geobgp.errors import DataError, GeobgpError, GeobgpWarning, GeometryError

SQUARE = shapely.box(0.0, 0.0, 10.0, 10.0)


def clustered(n: int = 400, seed: int = 3) -> np.ndarray:
    """Points in small clumps on a square of 10 by 10: a short lengthscale."""
    rng = np.random.default_rng(seed)
    centre = rng.uniform(0.3, 9.7, (25, 2))
    return np.clip(centre[rng.integers(25, size=n)] + rng.normal(0, 0.15, (n, 2)), 0.01, 9.99)


def smooth(n: int = 500, seed: int = 4) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.clip(rng.normal([4.0, 6.0], [2.5, 2.0], (n, 2)), 0.01, 9.99)


def run(points, land, *, progress=False, **options):
    return pipeline.run(Options(points=points, land=land, **options), progress)


def local(points, **options):
    usual = {"cell_size": 0.4, "permeability": 0.0}
    return run(points, SQUARE, crs="local", cache=False, **{**usual, **options})


# -- defaults


@pytest.fixture(scope="module")
def country():
    return run(case.points().to_crs(4326), case.land().to_crs(4326), water=case.water().to_crs(4326))


def test_everything_by_default_and_each_choice_reported(country):
    posterior = country.posterior
    assert posterior.converged
    assert posterior.domain.crs.to_epsg() == 32631
    assert posterior.domain.n_components == 3
    assert 2000 <= posterior.domain.n_nodes <= 16_000
    assert posterior.fit.truncated_variance <= 0.05
    assert list(country.choices) == [
        "CRS", "cell size", "boundary", "water", "features", "kernel", "hyperparameters",
    ]  # fmt: skip
    assert "UTM" in country.choices["CRS"].why
    assert f"{len(case.points()):,} points" in country.choices["cell size"].why
    assert country.choices["boundary"].value == "neumann"
    assert country.choices["water"].why.startswith("Does water separate the events?")
    assert "5 %" in country.choices["features"].why
    text = str(posterior.summary())
    for name, choice in country.choices.items():
        assert name in text and choice.why in text
    assert list(country.seconds)[:3] == ["inputs", "land", "points"]


def test_the_choices_survive_saving(country, tmp_path):
    again = Posterior.load(country.posterior.save(tmp_path / "posterior.geobgp"))
    assert dict(again.choices) == {name: str(choice) for name, choice in country.choices.items()}


def test_the_one_call_equals_the_steps(country):
    domain = country.domain
    kept = country.posterior
    basis = HarmonicBasis.compute(domain, kept.basis.m - domain.n_components + 1)
    by_hand = LGCP(basis).fit(country.counts)
    assert by_hand.elbo == pytest.approx(kept.elbo, abs=1e-9)
    np.testing.assert_allclose(by_hand.node_intensity(), kept.node_intensity(), rtol=1e-9)


def test_map_intensity_returns_the_posterior_and_the_same_one_twice():
    found = [map_intensity(smooth(), SQUARE, crs="local", cell_size=0.5, cache=c) for c in (True, False, True)]
    assert isinstance(found[0], Posterior)
    for other in found[1:]:
        # A basis may have been read as a part of a larger one: the same up to the solver's tolerance.
        assert other.elbo == pytest.approx(found[0].elbo, abs=1e-5)
        np.testing.assert_allclose(other.node_intensity(), found[0].node_intensity(), rtol=1e-5)


def test_what_is_given_is_taken_and_said():
    found = local(smooth(), m=40, boundary="dirichlet", kernel=Matern(2.5, lengthscale=4.0))
    assert found.posterior.basis_info == {
        "boundary": "dirichlet", "scheme": "subcell", "permeability": 0.0, "m": 40,
    }  # fmt: skip
    assert found.posterior.lengthscale == pytest.approx(4.0)
    for name in ("CRS", "cell size", "boundary", "features", "kernel"):
        assert found.choices[name].why.startswith("given"), name


# -- the number of features


def test_few_features_are_enough_for_a_smooth_map():
    found = local(smooth())
    assert found.posterior.basis.m <= 208
    assert found.posterior.fit.truncated_variance <= 0.05


def test_features_grow_until_the_share_is_missed_no_more():
    found = local(smooth(), kernel=SquaredExponential(lengthscale=0.8))
    m = found.posterior.basis.m
    assert found.posterior.fit.truncated_variance <= 0.05
    with pytest.warns(GeobgpWarning, match="features miss"):
        fewer = local(smooth(), kernel=SquaredExponential(0.8, 1.0), m=m // 3)
    assert fewer.posterior.fit.truncated_variance > 0.05


def test_learned_lengthscales_make_the_features_grow():
    rng = np.random.default_rng(8)
    centre = rng.uniform(0.5, 9.5, (25, 2))
    clumps = np.clip(centre[rng.integers(25, size=3000)] + rng.normal(0, 0.5, (3000, 2)), 0.01, 9.99)
    points = np.vstack([clumps, rng.uniform(0, 10, (1500, 2))])
    posterior = local(points, cell_size=0.25).posterior
    assert 128 < posterior.basis.m <= 533 and posterior.fit.truncated_variance <= 0.05


def test_a_map_without_features_stays_cheap():
    rng = np.random.default_rng(11)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = local(rng.uniform(0, 10, (3000, 2)))
    assert found.posterior.basis.m <= 128
    mean = found.posterior.node_intensity()["mean"]
    assert mean.max() / mean.min() < 1.5


def test_full_resolution_where_features_would_not_do():
    found = local(clustered(), max_features=40)
    assert found.posterior.basis_info["m"] == "full"
    assert found.posterior.kernel == Matern(1.0)
    assert found.choices["features"].value == "full resolution"
    assert "at most 40 are tried" in found.choices["features"].why
    total = float(found.posterior.exposure @ found.posterior.node_intensity()["mean"])
    assert total == pytest.approx(len(clustered()), rel=0.02)


def test_full_resolution_on_demand_and_by_a_given_lengthscale():
    forced = local(smooth(), m="full")
    assert forced.posterior.basis_info["m"] == "full"
    assert forced.choices["features"].why == "given"
    short = local(smooth(), kernel=Matern(1.0, lengthscale=0.3))
    assert short.posterior.basis_info["m"] == "full"


def test_a_kernel_without_full_resolution_ends_the_search_with_a_word():
    with pytest.warns(GeobgpWarning, match=r"ended at 40 features.*Matern\(1.0\)") as caught:
        found = local(clustered(), kernel=Matern(1.5), max_features=40)
    assert found.posterior.basis.m == 40
    assert len([w for w in caught if "miss" in str(w.message)]) == 1
    assert "full resolution needs" in found.choices["features"].why


def test_the_ceiling_of_time_ends_the_search_with_a_word():
    with pytest.warns(GeobgpWarning, match=r"ended at 128 features.*Raise max_seconds"):
        found = local(clustered(), max_seconds=0.0)
    assert "0 s of those allowed are left" in found.choices["features"].why


def test_a_given_number_that_misses_much_warns_once():
    with pytest.warns(GeobgpWarning, match="features miss") as caught:
        local(clustered(), m=16)
    assert len([w for w in caught if "features miss" in str(w.message)]) == 1


# -- whether water parts the events


STRAIT = [shapely.box(0.0, 0.0, 10.0, 12.0), shapely.box(11.0, 0.0, 21.0, 12.0)]


def islands(intensity, seed=0, **options):
    """Map points of an intensity (events per unit of area, at coordinates) on two islands a strait apart."""
    rng = np.random.default_rng(seed)
    xy = rng.uniform((0, 0), (21, 12), (40_000, 2))
    rate = np.where((xy[:, 0] > 10) & (xy[:, 0] < 11), 0.0, intensity(xy))
    points = xy[rng.random(len(xy)) < rate * 21 * 12 / len(xy)]
    return run(points, shapely.union_all(STRAIT), crs="local", cell_size=0.6, cache=False, **options)


def bounds_of(choice):
    """Return the bounds that a choice of water names, by their words."""
    told = re.search(r"events\? (.*) \(bounds", choice.why)[1]
    return {
        words.lower(): float(value.replace(",", ""))
        for words, value in re.findall(r"([A-Za-z][^,]*?) (-[\d,.]+\d)", told)
    }


def test_a_truth_that_ignores_the_strait_opens_it():
    def waves(xy):
        return 12 * np.exp(1.3 * np.sin(xy[:, 0] / 1.3) + 1.3 * np.sin(xy[:, 1] / 1.3))

    found = islands(waves)
    assert found.posterior.basis.permeability > 0, found.choices["water"]
    bounds = bounds_of(found.choices["water"])
    assert set(bounds) == {"closed", "open", "permeability 0.3"}
    best = max(bounds, key=bounds.get)
    assert found.choices["water"].value == best and bounds[best] - bounds["closed"] >= LEAD
    assert found.posterior.basis_info["m"] == "full"
    assert found.choices["features"].why == "information crosses the water, which features would have to cover"


def test_a_truth_that_knows_the_strait_keeps_it_closed():
    found = islands(lambda xy: np.where(xy[:, 0] < 10.5, 12.0, 0.6))
    assert found.posterior.basis.permeability == 0.0, found.choices["water"]
    assert found.choices["water"].value == "closed"
    bounds = bounds_of(found.choices["water"])
    assert max(bounds, key=bounds.get) == "closed"
    assert "closed" in str(found.posterior.summary())


def test_a_given_permeability_is_taken():
    for rho in (0.0, 0.3, 1.0):
        found = islands(lambda xy: np.full(len(xy), 2.0), permeability=rho)
        assert found.posterior.basis.permeability == rho
        assert found.choices["water"].why == "given"
        assert len({rung.water for rung in found.posterior.tried}) == 1


def test_dirichlet_is_only_for_those_who_ask():
    found = local(smooth(), m=64, boundary="dirichlet")
    assert found.posterior.basis.boundary == "dirichlet"
    assert found.posterior.scaling == "natural"
    with pytest.raises(DataError, match=r"permeability of 0\.3"):
        local(smooth(), boundary="dirichlet", permeability=0.3)
    with pytest.raises(DataError, match="boundary must be 'neumann' or 'dirichlet'; found 'auto'"):
        local(smooth(), boundary="auto")


# -- exposure, covariates, hyperparameters


def test_exposure_and_covariates_reach_the_model():
    def slope(coords):
        return coords[:, 0]

    rng = np.random.default_rng(5)
    xy = rng.uniform(0, 10, (40_000, 2))
    points = xy[rng.random(len(xy)) < np.exp(0.3 * (xy[:, 0] - 10))]
    found = local(points, covariates={"easting": slope})
    assert found.posterior.basis.m <= 128, "nothing is left for the features to explain"
    table = found.posterior.coefficients.set_index("name")
    assert table.loc["easting", "q05"] < 0.3 < table.loc["easting", "q95"]
    exposed = local(smooth(), m=32, exposure=np.full(625, 2.0))
    assert exposed.posterior.exposure_kind == "exposure"
    assert exposed.posterior.exposure.sum() == 1250.0


def test_areas_with_people_stay_people():
    areas = gpd.GeoDataFrame({"people": [900.0, 100.0]}, geometry=[shapely.box(0, 0, 5, 10), shapely.box(5, 0, 10, 10)])
    found = local(smooth(), m=32, exposure=areas)
    assert found.posterior.units == "events per person"
    assert found.posterior.exposure.sum() == pytest.approx(1000.0)


def test_integrated_hyperparameters_are_a_mixture_of_the_same_model():
    best = local(smooth(), m=32)
    mixed = local(smooth(), m=32, hyper="integrate")
    assert len(mixed.posterior.fit.states) > 1 == len(best.posterior.fit.states)
    assert mixed.posterior.basis.boundary == best.posterior.basis.boundary
    assert mixed.choices["hyperparameters"].value == "integrated"


# -- points


def test_weights_are_added_up():
    points = gpd.GeoDataFrame({"n": [2.0] * 500}, geometry=gpd.points_from_xy(*smooth().T))
    found = local(points, m=32, weights="n")
    assert found.counts.total_weight == 1000.0


def test_no_points_are_an_error():
    with pytest.raises(DataError, match="no points to map"):
        local(np.empty((0, 2)))
    nowhere = gpd.GeoDataFrame(geometry=[None, shapely.Point()])
    with pytest.raises(DataError, match="2 rows have none"):
        local(nowhere)
    with pytest.raises(DataError, match="weights: all 500 are zero"):
        local(smooth(), weights=np.zeros(500))


def test_points_in_another_country_are_an_error_that_says_where():
    points = case.points().to_crs(4326)
    abroad = points.translate(20.0, 0.0)
    with pytest.raises(GeometryError, match=r"none is left to map.*longitude 2[4-6]"):
        run(abroad, case.land(), water=case.water(), cell_size=1000, cache=False)
    swapped = gpd.GeoSeries(gpd.points_from_xy(points.geometry.y, points.geometry.x), crs=4326)
    with pytest.raises(GeometryError, match="swapped"):
        run(swapped, case.land(), water=case.water(), cell_size=1000, cache=False)


def test_few_points_off_the_land_are_a_warning():
    points = np.vstack([smooth(), [[50.0, 50.0]] * 20])
    with pytest.warns(GeobgpWarning, match="20 of 520 points"):
        found = local(points, m=16, kernel=Matern(1.5, lengthscale=8.0))
    assert found.counts.n_dropped == 20


def test_warnings_point_to_the_line_of_the_call():
    points = np.r_[smooth(100), np.full((3, 2), 20.0)]
    with pytest.warns(GeobgpWarning) as caught:
        map_intensity(points, SQUARE, crs="local", cell_size=1.0, m=4, permeability=0.0, cache=False)
    ours = [w for w in caught if issubclass(w.category, GeobgpWarning)]
    assert len(ours) >= 2  # points dropped, variance missed
    assert {w.filename for w in ours} == {__file__}


def test_bare_eastings_may_be_in_the_crs_of_the_land(tmp_path):
    # The Netherlands' own grid, while a UTM zone is chosen for the map.
    points = case.points().to_crs(28992)
    table = pd.DataFrame({"x": points.geometry.x, "y": points.geometry.y})
    options = {"cell_size": 1000, "m": 16, "permeability": 0.0, "cache": False}
    options["kernel"] = Matern(1.5, lengthscale=12_000.0)
    land, water = case.land().to_crs(28992), case.water().to_crs(28992)
    expected = run(points, land, water=water, **options).counts
    land.to_file(tmp_path / "land.gpkg")
    for source in (land, tmp_path / "land.gpkg"):
        counts = run(table, source, water=water, **options).counts
        np.testing.assert_array_equal(counts.values, expected.values)
        assert "Amersfoort" in counts.notes[0]


def test_rows_are_counted_before_they_are_read(tmp_path):
    files = case.write_files(tmp_path)
    points = case.points()
    points.to_parquet(tmp_path / "points.parquet")
    n = len(points)
    for source in (points, points.geometry.to_numpy(), files.points_gpkg, files.odd_csv, tmp_path / "points.parquet"):
        assert number_of_rows(source, None) == n
    assert number_of_rows(files.layers_gpkg, "others") == n
    assert number_of_rows(f"{files.layers_gpkg}|layername=bites", None) == n
    assert number_of_rows(iter([points]), None) is None
    assert number_of_rows(files.text_gpkg, None) is None
    found = run(iter([smooth()]), SQUARE, crs="local", m=16, permeability=0.0, cache=False,
                kernel=Matern(1.5, lengthscale=8.0))  # fmt: skip
    assert "not known beforehand" in found.choices["cell size"].why


# -- mistakes in options


def test_wrong_options_are_refused_before_any_work():
    with pytest.raises(DataError, match="found 'robin'"):
        run("nowhere.gpkg", "nowhere.gpkg", boundary="robin")


def test_an_unknown_option_is_a_type_error():
    with pytest.raises(TypeError, match="'colour'"):
        map_intensity(smooth(), SQUARE, crs="local", colour="red")


def test_missing_files_are_noticed_first():
    with pytest.raises(GeometryError, match=r"points: there is no file nowhere.csv"):
        run("nowhere.csv", SQUARE, crs="local")
    with pytest.raises(GeometryError, match=r"water: there is no file lakes.gpkg"):
        run(smooth(), SQUARE, water="lakes.gpkg", crs="local")


# -- what is told


def test_progress_tells_of_each_stage(capfd):
    local(smooth(), m=16, kernel=Matern(1.5, lengthscale=8.0), progress=True)
    told = capfd.readouterr()
    assert told.out == ""
    for word in ("land", "625 nodes", "points", "500 used", "features", "fit", "ELBO"):
        assert word in told.err


def test_no_progress_is_silent(capfd):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = local(smooth(), m=16, kernel=Matern(1.5, lengthscale=8.0))
    assert capfd.readouterr() == ("", "")
    assert dataclasses.is_dataclass(found)


# -- fits that break down


@pytest.fixture
def fragile(monkeypatch):
    """Let fits break down: for each boundary, with at least so many features."""
    limits = {}
    fit = LGCP.fit

    def sometimes(self, *args, **kwargs):
        if self.basis.m >= limits.get(self.basis.boundary, np.inf) and hasattr(self.basis, "eigenvalues"):
            raise np.linalg.LinAlgError("not positive definite")
        return fit(self, *args, **kwargs)

    monkeypatch.setattr(LGCP, "fit", sometimes)
    return limits


def test_full_resolution_replaces_features_whose_fit_breaks_down(fragile):
    fragile["neumann"] = 1
    found = local(smooth(), cell_size=1.0)
    assert found.posterior.basis_info["m"] == "full"
    with pytest.raises(GeobgpError, match="broke down: not positive definite"):
        local(smooth(), cell_size=1.0, m=16)


def test_growing_features_that_break_down_end_in_full_resolution(fragile):
    fragile["neumann"] = 129
    found = local(clustered())
    assert found.posterior.basis_info["m"] == "full"


def test_one_permeability_that_breaks_down_is_left_out(monkeypatch):
    fit = LGCP.fit

    def sometimes(self, *args, **kwargs):
        if self.basis.permeability == 1.0:
            raise np.linalg.LinAlgError("not positive definite")
        return fit(self, *args, **kwargs)

    monkeypatch.setattr(LGCP, "fit", sometimes)
    found = local(smooth(), cell_size=1.0, permeability="auto")
    why = found.choices["water"].why
    assert "Closed" in why and "open" not in why


def test_islets_of_one_cell_each_are_mapped():
    """No two nodes are joined: the operator is zero."""
    islets = shapely.MultiPolygon([shapely.box(k, 0, k + 1, 1) for k in (0, 3, 6)])
    points = np.array([[0.5, 0.5]] * 9 + [[3.5, 0.5]] * 2 + [[6.5, 0.5]])
    told = {"cell_size": 1, "crs": "local", "permeability": 0.0, "cache": False}
    posterior = map_intensity(points, islets, m="full", **told)
    assert posterior.converged and posterior.node_intensity()["mean"].is_monotonic_decreasing
