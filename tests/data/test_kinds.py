"""Kinds of covariates: curves, groups, interactions, distances, named levels."""

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest
from shapely.geometry import box

from geobgp import (
    LGCP,
    Categorical,
    Distance,
    Domain,
    Group,
    HarmonicBasis,
    Interaction,
    Matern,
    Posterior,
    Smooth,
    map_intensity,
)
from geobgp.data.effects import MOST_COLUMNS, Spline, parsed_kind
from geobgp.data.inputs import Inputs
from geobgp.errors import DataError, GeometryError, InputWarning


@pytest.fixture(scope="module")
def domain():
    return Domain.from_polygons(box(0, 0, 10, 10), cell_size=0.5, crs="local")


def effects_of(domain, **covariates):
    return Inputs.read(domain, covariates=covariates).effects


@pytest.mark.parametrize("draw", ["uniform", "gamma", "ties"])
def test_columns_of_a_curve_have_no_mean_and_no_slope(draw):
    rng = np.random.default_rng(0)
    x = {
        "uniform": rng.uniform(0, 1, 2000),
        "gamma": 100.0 * rng.gamma(1.0, 1.0, 2000),
        "ties": np.maximum(rng.normal(0, 1, 2000), 0.0),
    }[draw]
    weight = rng.dirichlet(np.ones(2000))
    spline = Spline.of(x, weight, 10)
    columns = spline.values(x)
    assert columns.shape[1] == len(spline.turn) - 2
    scale = np.abs(columns).max()
    assert np.abs(weight @ columns).max() < 1e-9 * scale
    assert np.abs((weight * (x - weight @ x)) @ columns).max() < 1e-9 * scale * x.std()
    assert np.sum(weight @ columns**2) == pytest.approx(1.0)
    # Together with a constant and a line they are all cubic splines on the knots: a cubic is one.
    cubic = ((x - x.min()) / np.ptp(x)) ** 3
    whole = np.c_[np.ones(2000), x, columns]
    fit = np.linalg.lstsq(whole / np.abs(whole).max(axis=0), cubic, rcond=None)[0]
    assert np.abs((whole / np.abs(whole).max(axis=0)) @ fit - cubic).max() < 1e-6


def test_beyond_the_data_a_curve_is_a_straight_line():
    x = np.linspace(0, 1, 500)
    spline = Spline.of(x, np.full(500, 1 / 500), 8)
    for start, step in ((1.0, 0.1), (0.0, -0.1)):
        ends = spline.values(start + step * np.arange(4))
        np.testing.assert_allclose(np.diff(ends, 2, axis=0), 0.0, atol=1e-9)
        inner = (spline.values(np.array([start])) - spline.values(np.array([start - 1e-5 * np.sign(step)]))) / 1e-5
        np.testing.assert_allclose((ends[1] - ends[0]) / 0.1, inner[0], rtol=1e-3, atol=1e-3)


def test_what_is_written_behind_a_path():
    smooth = parsed_kind("pumps.gpkg|distance|smooth")
    assert isinstance(smooth, Smooth) and isinstance(smooth.source, Distance)
    assert isinstance(parsed_kind("a.tif|band=2|group"), Group)
    assert parsed_kind("rain, slope|interaction") == Interaction("rain", "slope")
    assert parsed_kind("soil.tif|levels") == "soil.tif|levels" and parsed_kind("dem.tif") == "dem.tif"
    with pytest.raises(DataError, match="An interaction is of two covariates"):
        parsed_kind("rain|interaction")


def test_blocks_have_the_columns_that_they_say(domain):
    x, y = domain.node_points.T
    group = np.where(x < 3, "west", np.where(x < 6, "middle", "east"))
    effects = effects_of(
        domain, rain=Smooth(lambda xy: xy[:, 0] ** 2, k=8), clinic=Group(group), north=y,
        both=Interaction("rain", "north"), crossed=Interaction("north", "clinic"),
    )  # fmt: skip
    sizes = {block.covariate: len(block.terms) for block in effects.blocks}
    assert sizes == {"rain": 7, "clinic": 3, "north": 1, "both": 7, "crossed": 3}
    assert {name: len(columns) for name, columns in effects.learned.items()} == {
        "rain": 6, "clinic": 3, "both": 7, "crossed": 3,
    }  # fmt: skip
    assert np.array_equal(effects.columns[:, 1 + effects.where("clinic")[0]], x >= 6)
    # At places: the same columns as at the nodes.
    columns = effects.standardise({"rain": x**2, "clinic": group, "north": y}, len(x))
    np.testing.assert_allclose(columns, effects.columns, atol=1e-12)
    with pytest.raises(DataError, match="no level 'south'"):
        effects.standardise({"rain": x, "clinic": "south", "north": y}, len(x))


def test_groups_may_be_polygons_with_names_or_numbers(domain):
    districts = gpd.GeoDataFrame(
        {"district": [7, 3, 5]}, geometry=[box(0, 0, 4, 10), box(4, 0, 7, 10), box(7, 0, 10, 10)]
    )
    effects = effects_of(domain, district=Group(districts))
    assert effects.names == ("district 3", "district 5", "district 7")
    np.testing.assert_allclose(effects.columns[:, 1:].sum(axis=1), 1.0)
    many = np.arange(domain.n_nodes) % 60
    assert len(effects_of(domain, many=Group(many)).terms) == 60
    with pytest.raises(DataError, match=r"60 levels; at most 50 .*Group\(\.\.\.\)"):
        effects_of(domain, many=Categorical(many))


def test_levels_are_called_by_their_names(domain):
    codes = np.where(domain.node_points[:, 0] < 3, 1, 2)
    names = {1: "forest", 2: "meadow"}
    for reference in ("forest", 1):
        effects = effects_of(domain, use=Categorical(codes, reference=reference, names=names))
        assert effects.names == ("use meadow (reference: forest)",)


def test_distance_is_over_land_and_a_curve_of_it():
    land = box(0, 0, 10, 10).difference(box(4, 0, 5, 9))
    domain = Domain.from_polygons(land, cell_size=0.5, crs="local")
    effects = effects_of(domain, pump=Smooth(Distance(np.array([[1.0, 1.0]]))))
    far = effects.columns[:, 1] * effects.scales[0] + effects.means[0]
    assert far[domain.node_at(np.array([[9.0, 1.0]]))[0]] > 15.0


@pytest.mark.parametrize(
    ("covariates", "message"),
    [
        ({"x": Smooth(np.ones(400))}, "'x' is 1 on all of the land"),
        ({"x": Smooth(np.arange(400) % 3)}, "but 3 different values; a curve needs four"),
        ({"x": Group(np.ones(400))}, "one group on all of the land"),
        ({"x": np.arange(400.0), "i": Interaction("x", "z")}, "there is no covariate 'z'"),
        ({"x": np.arange(400.0), "i": Interaction("x", "x")}, "'x' with itself"),
        (
            {"g": Group(np.arange(400) % 200), "h": Smooth(np.arange(400.0), k=12), "i": Interaction("g", "h")},
            f"columns together: .*at most {MOST_COLUMNS}",
        ),
        ({"x": Smooth(np.where(np.arange(400) < 100, np.nan, 1.0))}, "'x' has no value"),
    ],
)
def test_what_cannot_be_fitted_is_told(domain, covariates, message):
    with pytest.raises(DataError, match=message):
        effects_of(domain, **covariates)


def test_collinear_covariates_are_named(domain):
    x = domain.node_points[:, 0]
    with pytest.warns(InputWarning, match="'rain' and 'height' have a correlation of 1.0000"):
        effects_of(domain, rain=Smooth(x), height=2.0 * x + 1.0)


def test_what_does_not_vary_within_groups_is_named(domain, recwarn):
    rng = np.random.default_rng(0)
    group, x = rng.integers(0, 12, domain.n_nodes), rng.uniform(0, 1, domain.n_nodes)
    height, use = rng.normal(size=12)[group], np.where(group == 3, "wood", "heath")
    assert effects_of(domain, group=Group(group), x=x, use=Categorical(np.where(x > 0.5, "wood", "heath"))).names
    assert not recwarn.list
    with pytest.warns(InputWarning, match=r"covariates 'height', 'use wood .*' do not vary within the groups of 'g'"):
        effects_of(domain, g=Group(group), height=Smooth(height), use=use, x=x)
    # Shares of groups within cells, and the mean of what is constant in each of them.
    shares = 0.5 * (np.eye(12)[group] + np.eye(12)[rng.integers(0, 12, domain.n_nodes)])
    mixed = Group(pd.DataFrame(shares, columns=[f"d{k}" for k in range(12)]))
    with pytest.warns(InputWarning, match="covariate 'rain' does not vary within the groups of 'district'.*12 groups"):
        effects_of(domain, district=mixed, rain=shares @ rng.normal(size=12), x=x)


def test_what_changes_over_time_is_told_from_groups(domain, recwarn):
    rng = np.random.default_rng(0)
    group = rng.integers(0, 12, domain.n_nodes)
    moving = rng.normal(size=(3, 12))[:, group]
    assert effects_of(domain, group=Group(group), moving=moving).names
    assert not recwarn.list
    with pytest.warns(InputWarning, match="'still' does not vary within the groups of 'group'"):
        effects_of(domain, group=Group(group), moving=moving, still=np.repeat(moving[:1], 3, axis=0))


def test_a_covariate_that_follows_from_others_is_named(domain):
    x, y = domain.node_points.T
    noise = np.random.default_rng(0).normal(size=domain.n_nodes)
    with pytest.warns(InputWarning, match="'a' follows from 'b', 'c' together"):
        effects_of(domain, a=x + y + 0.1 * noise, b=x, c=Smooth(y), d=noise**2)
    assert effects_of(domain, a=x + y + noise, b=x, c=y, d=noise**2).names


def test_what_does_not_vary_within_levels_is_named(domain):
    rng = np.random.default_rng(0)
    use = rng.integers(0, 5, domain.n_nodes)
    height, county = np.array([3.0, 1.0, 4.0, 1.5, 9.0])[use], np.array(["a", "b", "b", "a", "b"])[use]
    with pytest.warns(InputWarning, match="'height' follows from the levels of 'use' together"):
        effects_of(domain, height=height, use=Categorical(use), x=domain.node_points[:, 0])
    with pytest.warns(InputWarning, match="'county' follows from the levels of 'use' together"):
        effects_of(domain, use=Categorical(use), county=county)
    assert effects_of(domain, height=height + rng.normal(size=len(use)), use=Categorical(use)).names


def test_a_fit_with_curves_and_groups_is_read_as_it_was_saved(domain, tmp_path):
    rng = np.random.default_rng(0)
    x, group = domain.node_points[:, 0], rng.integers(0, 5, domain.n_nodes)
    counts = rng.poisson(2.0 * np.exp(np.sin(x)) * domain.node_areas)
    basis = HarmonicBasis.compute(domain, 16, cache=False)
    model = LGCP(basis, Matern(1.5, lengthscale=8.0, sd=0.1), covariates={"x": Smooth(x), "group": Group(group)})
    fitted = model.fit(counts)
    read = Posterior.load(fitted.save(tmp_path / "fit.geobgp"))
    pd.testing.assert_frame_equal(read.coefficients, fitted.coefficients)
    assert read.design.learned.keys() == {"x", "group"}
    at = {"x": [3.0, 99.0], "group": [1, 2]}
    places = np.array([[3.0, 3.0], [4.0, 4.0]])
    pd.testing.assert_frame_equal(read.values_at(places, covariates=at), fitted.values_at(places, covariates=at))


def test_a_map_takes_them_from_paths(tmp_path):
    rng, crs = np.random.default_rng(0), 32633
    points = np.r_[rng.normal([2.0, 2.0], 1.0, (150, 2)), rng.uniform(0, 10, (50, 2))]
    points = points[((points > 0) & (points < 10)).all(axis=1)]

    def frame(shapes, **columns):
        shifted = gpd.GeoSeries(list(shapes)).scale(1e3, 1e3, origin=(0, 0)).translate(5e5, 5e6)
        return gpd.GeoDataFrame(columns, geometry=shifted, crs=crs)

    frame(gpd.points_from_xy([2.0, 8.0], [2.0, 7.0])).to_file(tmp_path / "pumps.gpkg")
    frame([box(0, 0, 5, 10), box(5, 0, 10, 10)], ward=["a", "b"]).to_file(tmp_path / "wards.gpkg")
    events, land = frame(gpd.points_from_xy(*points.T)), frame([box(0, 0, 10, 10)])
    covariates = {
        "pump": f"{tmp_path / 'pumps.gpkg'}|distance|smooth",
        "ward": f"{tmp_path / 'wards.gpkg'}|group",
        "both": "pump,ward|interaction",
    }
    posterior = map_intensity(events, land, covariates=covariates, cell_size=500.0, m=16, permeability=0.0)
    assert [block.kind for block in posterior.design.blocks] == ["smooth", "group", "interaction"]
    curve = posterior.effect_curve("pump")
    assert curve["q50"].iloc[0] > curve["q50"].iloc[-1]
    with pytest.raises(GeometryError, match=r"covariate x: there is no file rain.tif\."):
        map_intensity(events, land, covariates={"x": "rain.tif|smooth"})
