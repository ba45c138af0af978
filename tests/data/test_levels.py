"""Levels: shares of the land by level, effects and maps where levels share nodes, rasters that ask."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest
import rasterio
import shapely
from affine import Affine
from models import square
from reading import fixed_effects
from scipy import ndimage

from geobgp import LGCP, Categorical, FullRank, HarmonicBasis, Matern, Posterior, bin_areas, bin_points
from geobgp.data.effects import Effects, Term
from geobgp.data.persons import confounder_effects
from geobgp.errors import DataError, InputWarning


def write(path, values, colours=None, nodata=None):
    """Write a raster over the square of ten by ten."""
    values = np.asarray(values)
    rows, cols = values.shape
    with rasterio.open(
        path, "w", driver="GTiff", height=rows, width=cols, count=1, dtype=values.dtype, nodata=nodata,
        transform=Affine(10 / cols, 0, 0, 0, -10 / rows, 10),
    ) as out:  # fmt: skip
        out.write(values, 1)
        if colours:
            out.write_colormap(1, colours)
    return str(path)


def codes(side=20):
    """Return codes 1 (most), 2 and 7 in blocks that the cells do not follow."""
    values = np.ones((side, side), np.uint8)
    values[:7, :9], values[13:, 5:] = 2, 7
    return values


@pytest.fixture
def landuse(tmp_path):
    return write(tmp_path / "landuse.tif", codes())


def test_shares_of_a_raster(landuse):
    domain = square()
    effects = fixed_effects({"use": Categorical(landuse)}, domain)
    assert effects.names == ("use 2 (reference: 1)", "use 7 (reference: 1)")
    own = effects.columns[:, 1:] * effects.scales + effects.means
    blocks = codes().reshape(10, 2, 10, 2)
    for k, code in enumerate((2, 7)):
        share = (blocks == code).mean(axis=(1, 3))[domain.node_rows, domain.node_cols]
        np.testing.assert_allclose(own[:, k], share, atol=1e-9)
    by_path = fixed_effects({"use": f"{landuse}|levels"}, domain)
    np.testing.assert_array_equal(by_path.columns, effects.columns)


def test_a_raster_of_codes_asks(landuse, tmp_path):
    domain = square()
    with pytest.raises(DataError, match=r"levels .* or numbers .* 3 whole numbers.*Categorical.*\|numbers") as error:
        fixed_effects({"use": landuse}, domain)
    assert f"'use={landuse}|levels' for levels" in error.value.words(lambda name, value: value)
    numbers = fixed_effects({"use": f"{landuse}|numbers"}, domain)
    assert numbers.names == ("use",) and numbers.means[0] == pytest.approx(codes().mean())
    yes_no = write(tmp_path / "yes.tif", (codes() == 2).astype(np.uint8))
    assert fixed_effects({"yes": yes_no}, domain).names == ("yes 1 (reference: 0)",)  # two values are levels
    assert fixed_effects({"yes": f"{yes_no}|numbers"}, domain).names == ("yes",)
    coloured = write(tmp_path / "c.tif", (codes() == 2).astype(np.uint8), colours={0: (9, 9, 9), 1: (0, 0, 0)})
    with pytest.raises(DataError, match="colour table"):
        fixed_effects({"use": coloured}, domain)
    floats = write(tmp_path / "f.tif", codes().astype(np.float32))
    assert fixed_effects({"use": floats}, domain).names == ("use",)


def test_text_is_levels_and_tables_hold_several():
    domain = square()
    words = np.where(domain.node_points[:, 0] < 3, "heath", "wood")
    table = pd.DataFrame({"kind": pd.Categorical(words), "east": domain.node_points[:, 0]})
    effects = fixed_effects(table, domain)
    assert effects.names == ("kind heath (reference: wood)", "east")
    one_by_one = fixed_effects({"kind": words, "east": domain.node_points[:, 0]}, domain)
    np.testing.assert_array_equal(effects.columns, one_by_one.columns)
    with pytest.raises(DataError, match="one level on all land, 'wood'"):
        fixed_effects({"kind": np.full(100, "wood")}, domain)
    with pytest.raises(DataError, match="100 levels; at most 50"):
        fixed_effects({"kind": Categorical(np.arange(100))}, domain)
    with pytest.raises(DataError, match="one level per node, 100; found 3"):
        fixed_effects({"kind": Categorical([1, 2, 3])}, domain)


def test_columns_of_polygons():
    domain = square()
    shapes = [shapely.box(0, 0, 4.5, 10), shapely.box(4.5, 0, 10, 10)]
    areas = gpd.GeoDataFrame({"soil": ["clay", "sand"], "ph": [4.0, 6.0]}, geometry=shapes)
    with pytest.warns(InputWarning, match="correlation of -1"):
        effects = fixed_effects(areas, domain)
    assert effects.names == ("soil clay (reference: sand)", "ph")
    clay, ph = (effects.columns[:, 1:] * effects.scales + effects.means).T
    west = np.clip(4.5 - domain.node_cols, 0, 1)
    np.testing.assert_allclose(clay, west, atol=1e-9)
    np.testing.assert_allclose(ph, 4 * west + 6 * (1 - west), atol=1e-9)
    with pytest.raises(DataError, match="those of polygons; found Point"):
        fixed_effects(areas.set_geometry(areas.centroid), domain)


def test_slivers_take_the_nearest_value_and_more_is_refused(tmp_path):
    domain = square(10.0, 0.5)
    values = domain.node_points[:, 0].copy()
    values[[0, 1, 2]] = np.nan  # of 400
    with pytest.warns(InputWarning, match=r"3 of 400 nodes \(0.75 % of land\).*that of the nearest land"):
        effects = fixed_effects({"x": values}, domain)
    own = effects.columns[:, 1] * effects.scales + effects.means
    np.testing.assert_allclose(own[:3], domain.node_points[:3, 0])  # of the cells below
    holes = codes().astype(np.uint8)
    holes[0, :2] = 255
    path = write(tmp_path / "holes.tif", holes, nodata=255)
    with pytest.warns(InputWarning, match="nearest land"):
        filled = fixed_effects({"use": f"{path}|levels"}, domain)
    shares = filled.columns[:, 1:] * filled.scales + filled.means
    assert shares[0] == pytest.approx([1.0, 0.0], abs=1e-9)
    values[:5] = np.nan
    with pytest.raises(DataError, match="5 of 400 nodes"):
        fixed_effects({"x": values}, domain)


def test_effects_of_levels_are_found_and_kept(tmp_path):
    domain = square(10.0, 0.5)
    kind = np.where(domain.node_rows % 2 == 0, "a", np.where(domain.node_cols % 3 == 0, "b", "c"))
    log_rate = np.select([kind == "a", kind == "b"], [1.0, 2.5], 1.6)
    counts = np.random.default_rng(1).poisson(np.exp(log_rate)).astype(float)
    model = LGCP(FullRank(domain), Matern(1.0, lengthscale=3.0, sd=0.1), exposure=np.ones(400), covariates={"k": kind})
    fit = model.fit(counts)
    found = fit.coefficients.set_index("name")
    assert found.loc["k b (reference: a)", "mean"] == pytest.approx(1.5, abs=0.2)
    assert found.loc["k c (reference: a)", "mean"] == pytest.approx(0.6, abs=0.2)
    assert ") per unit" not in str(fit.summary())
    fit.save(tmp_path / "a.geobgp")
    loaded = Posterior.load(tmp_path / "a.geobgp")
    there = loaded.intensity_at([[5.0, 5.0]] * 3, covariates={"k": ["a", "b", "c"]})["q50"].to_numpy()
    np.testing.assert_allclose(np.log(there[1:] / there[0]), found["mean"].iloc[1:], rtol=1e-6)


# -- levels that share a node


@cache
def woods(seed=3, side=48, events=1500):
    """Return codes 1 and 2 in patches of a few pixels, and events of which 2 has eight times as many per pixel."""
    rng = np.random.default_rng(seed)
    patches, field = (ndimage.gaussian_filter(rng.standard_normal((side, side)), w, mode="wrap") for w in (2.0, 9.0))
    codes = 1 + (patches > np.quantile(patches, 0.7)).astype(np.uint8)
    rate = np.exp(0.4 * field / field.std()) * np.where(codes == 2, 8.0, 1.0)
    counts = rng.poisson(events * rate / rate.sum())
    row, col = np.repeat(np.indices(counts.shape).reshape(2, -1), counts.ravel(), axis=1)
    return codes, np.column_stack([col + rng.random(len(col)), side - row - rng.random(len(row))])


@cache
def cells(width, side=48):
    """Return a domain of cells some pixels wide, and the shares of the levels of `woods` on them."""
    domain = square(float(side), float(width))
    share = (woods()[0] == 2).reshape(side // width, width, side // width, width).mean(axis=(1, 3))
    wood = share[domain.node_rows, domain.node_cols]
    return domain, Categorical(pd.DataFrame({"meadow": 1.0 - wood, "wood": wood}))


KERNEL = Matern(1.5, lengthscale=15.0, sd=0.5)


def fits(kind):
    """Return a fit of the events of `woods` on cells of four pixels, in one of the ways in which they may come."""
    domain, veg = cells(4)
    places = woods()[1]
    counts, basis = bin_points(places, domain), HarmonicBasis.compute(domain, m=60, cache=False)
    model = LGCP(basis, KERNEL, covariates={"veg": veg})
    if kind == "features":
        return model.fit(counts)
    if kind == "mixture over hyperparameters":
        return LGCP(basis, covariates={"veg": veg}).fit(counts, hyper="integrate")
    if kind == "negative binomial":
        return LGCP(basis, KERNEL, covariates={"veg": veg}, likelihood="negative-binomial").fit(counts)
    if kind == "periods":
        when = np.arange(len(places)) % 3
        return model.fit(np.array([np.asarray(bin_points(places[when == t], domain), float) for t in range(3)]))
    if kind == "areas":
        boxes = [shapely.box(x, y, x + 6, y + 6) for x in range(0, 48, 6) for y in range(0, 48, 6)]
        count = shapely.STRtree(shapely.points(places)).query(boxes, predicate="intersects")[0]
        frame = gpd.GeoDataFrame({"n": np.bincount(count, minlength=64)}, geometry=boxes)
        return model.fit(bin_areas(frame, domain, "n"))
    return LGCP(FullRank(domain), Matern(1.0, lengthscale=15.0, sd=0.5), covariates={"veg": veg}).fit(counts)


def test_a_node_has_the_mean_rate_over_its_land():
    """Columns about coefficients, against sums written out and differences."""
    rng = np.random.default_rng(0)
    one, two = rng.dirichlet(np.ones(3), 7), rng.dirichlet(np.ones(2), 7)
    terms = (Term("a", "y", "x"), Term("a", "z", "x"), Term("n"), Term("b", "q", "p"))
    effects = Effects.of(terms, rng.normal(size=4), rng.uniform(0.2, 0.5, 4))
    own = np.column_stack([one[:, 1:], rng.normal(size=7), two[:, 1]])
    effects = replace(effects, columns=effects.standardised(own))
    beta = rng.normal(size=5)

    def log_rate(beta):
        b = beta[1:] / effects.scales
        level = np.log(one[:, 0] + one[:, 1] * np.exp(b[0]) + one[:, 2] * np.exp(b[1]))
        return beta[0] - effects.means @ b + level + own[:, 2] * b[2] + np.log(two @ np.exp([0.0, b[3]]))

    columns, offset = effects.linearised(beta)
    np.testing.assert_allclose(columns @ beta + offset, log_rate(beta), atol=1e-12)
    steps = 1e-5 * np.eye(5)
    slopes = np.array([(log_rate(beta + s) - log_rate(beta - s)) / 2e-5 for s in steps]).T
    np.testing.assert_allclose(columns, slopes, atol=1e-8)
    # Uncertain effects: the expected rate is that of the sum, E exp(b) = exp(mean + variance / 2).
    half = 0.3 * rng.normal(size=(5, 5))
    covariance = half @ half.T * (np.r_[1.0, effects.scales] ** 2)
    columns, offset = effects.linearised(beta, covariance)
    variance = np.diagonal(covariance)[1:] / effects.scales**2
    levels = (1 + np.arange(2), np.array([4]))
    b = beta[1:] / effects.scales + 0.5 * variance
    expected = np.log(one @ np.exp([0.0, b[0], b[1]])) + np.log(two @ np.exp([0.0, b[3]]))
    spread = sum(
        np.einsum("ij,jk,ik->i", c, covariance[np.ix_(j, j)], c)
        for j, c in ((j, columns[:, j] + (effects.means / effects.scales)[j - 1]) for j in levels)
    )
    numbers = beta[0] - effects.means @ (beta[1:] / effects.scales) + own[:, 2] * beta[3] / effects.scales[2]
    np.testing.assert_allclose(columns @ beta + offset + 0.5 * spread, numbers + expected, atol=1e-12)
    assert not replace(effects, columns=effects.standardised(np.eye(4)[:, [0, 0, 1, 2]])).mixes


@pytest.mark.parametrize(
    "kind",
    [
        "features", "full resolution", "mixture over hyperparameters", "negative binomial", "areas", "periods",
    ],
)  # fmt: skip
def test_the_effect_of_levels_that_share_nodes(kind, tmp_path):
    """Eight times as many events per pixel of wood, whatever was counted; and the same from a file."""
    fit = fits(kind)
    effect = fit.coefficients.set_index("name").loc["veg wood (reference: meadow)"]
    assert abs(effect["mean"] - np.log(8.0)) < 2.5 * effect["sd"] and effect["sd"] < 0.25
    assert (effect["level"], effect["reference"]) == ("wood", "meadow") and fit.converged
    mean, variance = fit.fit.states[0].node_moments()
    # A node's rate is the mean over its land: the field times 1 and 8 times its meadow and wood.
    wood = cells(4)[1].source["wood"].to_numpy()
    own = fit.at(1) if kind == "periods" else fit
    pure = [own.predict(own.domain.node_points, covariates={"veg": v})[0] for v in ("meadow", "wood")]
    if kind not in ("features", "areas", "periods"):  # features vary within a node
        rate = (1.0 - wood) * np.exp(pure[0]) + wood * np.exp(pure[1])
        np.testing.assert_allclose(mean, np.log(rate), atol=0.02)
    draws = np.log(fit.sample(400, rng=0))
    np.testing.assert_allclose(
        draws.mean("draw") - np.log(fit.shown.factor), mean, atol=5 * np.sqrt(variance.max() / 400)
    )
    total = float((np.exp(mean + 0.5 * variance) * fit.exposure).sum())
    assert total == pytest.approx(len(woods()[1]), rel=0.01)
    fit.save(tmp_path / "a.geobgp")
    loaded = Posterior.load(tmp_path / "a.geobgp")
    np.testing.assert_array_equal(loaded.fit.states[0].node_moments()[0], mean)
    np.testing.assert_array_equal(loaded.sample(2, rng=1), fit.sample(2, rng=1))
    assert loaded.coefficients.equals(fit.coefficients)


def test_the_effect_does_not_depend_on_the_size_of_cells():
    """The same events on cells of one to eight pixels; mixed on the log scale they tell of different ratios."""
    found = []
    for width in (1, 2, 4, 8):
        domain, veg = cells(width)
        counts, basis = bin_points(woods()[1], domain), FullRank(domain)
        kernel = Matern(1.0, lengthscale=15.0, sd=0.5)
        table = LGCP(basis, kernel, covariates={"veg": veg}).fit(counts).coefficients
        slope = LGCP(basis, kernel, covariates={"wood": veg.source["wood"].to_numpy()}).fit(counts)
        found.append([table["mean"][1], table["sd"][1], slope.coefficients["mean"][1]])
    mean, sd, on_log_scale = np.array(found).T
    assert (np.abs(mean - np.log(8.0)) < 2.0 * sd).all() and (np.abs(np.exp(mean) / 8.0 - 1.0) < 0.2).all()
    assert np.ptp(mean) < sd.max() < 0.25
    assert np.ptp(on_log_scale) > 2.0 * np.ptp(mean)


def test_a_level_without_events_and_land_of_its_own():
    """A level that shares all its nodes and has no events: an interval that says so, and passes that end."""
    domain, veg = cells(4)
    codes, places = woods()
    rng = np.random.default_rng(1)
    rock = np.zeros(codes.shape)
    rock[tuple(rng.integers(0, 48, (2, 40)))] = 1.0
    hit = rock[(48 - np.ceil(places[:, 1])).astype(int), places[:, 0].astype(int)] > 0
    share = rock.reshape(12, 4, 12, 4).mean(axis=(1, 3))[domain.node_rows, domain.node_cols]
    wood = veg.source["wood"].to_numpy() * (1.0 - share)
    table = pd.DataFrame({"meadow": 1.0 - share - wood, "wood": wood, "rock": share})
    model = LGCP(FullRank(domain), Matern(1.0, lengthscale=15.0, sd=0.5), covariates={"veg": Categorical(table)})
    fit = model.fit(bin_points(places[~hit], domain))
    found = fit.coefficients.set_index("name")
    rock = found.loc["veg rock (reference: meadow)"]
    assert fit.converged and rock["q05"] < np.log(0.3) and 0.5 < rock["sd"] < 5.0
    assert found.loc["veg wood (reference: meadow)", "mean"] == pytest.approx(np.log(8.0), abs=0.2)


def test_blocks_left_out_with_levels_that_share_nodes():
    """Without new fits and with them: the same scores."""
    fit = fits("features")
    quick, slow = fit.cross_validate(blocks=24.0), fit.cross_validate(blocks=24.0, refit=True)
    np.testing.assert_allclose(quick.blocks["expected"], slow.blocks["expected"], rtol=0.03)
    assert quick.score == pytest.approx(slow.score, abs=0.02)


def test_a_fit_goes_on_from_other_cells():
    """Effects are those of the fit before to begin with, and end where they would without it."""
    domain, veg = cells(2)
    counts, kernel = bin_points(woods()[1], domain), Matern(1.0, lengthscale=15.0, sd=0.5)
    model = LGCP(FullRank(domain), kernel, covariates={"veg": veg})
    alone, after = model.fit(counts), model.fit(counts, start=fits("full resolution"))
    assert after.fit.rounds < alone.fit.rounds
    np.testing.assert_allclose(after.coefficients["mean"], alone.coefficients["mean"], atol=0.01)


def test_levels_at_places():
    """One level serves all places, numbers and texts may mean the same one, and one that is not there is refused."""
    domain = square(10.0, 1.0)
    soil = np.where(domain.node_cols < 4, 1, 4)
    counts = np.random.default_rng(0).poisson(np.where(soil == 4, 3.0, 1.0)).astype(float)
    fit = LGCP(FullRank(domain), Matern(1.0, lengthscale=5.0, sd=0.1), covariates={"soil": Categorical(soil)}).fit(
        counts
    )
    places = domain.node_points[:3]
    of_four = fit.intensity_at(places, covariates={"soil": [4, 4, 4]})
    for word in (4, 4.0, "4", " 4", "4.0", ["4"], np.array([4, 4, 4], np.uint8), pd.Series(["4", 4, 4.0])):
        assert fit.intensity_at(places, covariates={"soil": word}).equals(of_four)
    at_one = fit.intensity_at(places, covariates={"soil": "1"})["mean"]
    assert (of_four["mean"] > 2.0 * at_one).all()
    for word in ("Primary", 3, np.nan, None):
        with pytest.raises(DataError, match=r"'soil' has no level .*; its levels are '4', '1'"):
            fit.intensity_at(places, covariates={"soil": word})
    with pytest.raises(DataError, match=r"shape \(2,\); there are 3 places"):
        fit.intensity_at(places, covariates={"soil": [1, 4]})
    with pytest.raises(DataError, match="'soil' is not given"):
        fit.intensity_at(places, covariates={"ph": 4.0})
    number = LGCP(FullRank(domain), covariates={"x": domain.node_points[:, 0]}).fit(counts)
    assert number.intensity_at(places, covariates={"x": 3.0}).shape[0] == 3
    with pytest.raises(DataError, match="'x' is a number; found 'far'"):
        number.intensity_at(places, covariates={"x": "far"})


def test_reference_levels_and_shares_are_checked():
    domain = square()
    soil = np.where(domain.node_cols < 4, "clay", "sand")
    assert fixed_effects({"soil": Categorical(soil, reference="clay")}, domain).names == (
        "soil sand (reference: clay)",
    )
    with pytest.raises(DataError, match=r"no level 'peat' on the land; its levels are 'clay', 'sand'"):
        fixed_effects({"soil": Categorical(soil, reference="peat")}, domain)
    shares = pd.DataFrame({"a": np.full(100, 0.4), "b": np.full(100, 0.4)})
    with pytest.raises(DataError, match="rows that add up to 1"):
        fixed_effects({"soil": Categorical(shares)}, domain)
    with pytest.raises(DataError, match="called 'intercept'"):
        fixed_effects({"Intercept": domain.node_points[:, 0]}, domain)
    with pytest.raises(DataError, match="One of confounders is called 'intercept'"):
        confounder_effects(pd.DataFrame({"intercept": [1.0, 2.0]}))


def test_rasters_of_two_values_by_period_are_numbers(tmp_path):
    """Levels that change from period to period have no effects yet; a mask for each period still has a slope."""
    domain = square()
    masks = [write(tmp_path / f"{t}.tif", (codes() == t).astype(np.uint8)) for t in (1, 2)]
    effects = fixed_effects({"mask": masks}, domain)
    assert effects.names == ("mask",) and effects.columns.shape == (2, 100, 2)
    with pytest.raises(DataError, match="has levels; those that change"):
        fixed_effects({"mask": [f"{path}|levels" for path in masks]}, domain)


@pytest.mark.slow
@pytest.mark.gpflow
def test_gpflow_agrees_on_levels_that_share_nodes():
    domain, veg = cells(8)
    model = LGCP(HarmonicBasis.compute(domain, m=24, cache=False), KERNEL, covariates={"veg": veg})
    ours, theirs = (model.fit(bin_points(woods()[1], domain), engine=name) for name in ("numpy", "gpflow"))
    names = ["mean", "sd"]
    np.testing.assert_allclose(ours.coefficients[names], theirs.coefficients[names], atol=2e-3)
    np.testing.assert_allclose(ours.node_intensity()["mean"], theirs.node_intensity()["mean"], rtol=5e-3)
