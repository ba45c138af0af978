"""Levels: shares of the land by level, effects against the most common, and rasters that ask what they are."""

from __future__ import annotations

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest
import rasterio
import shapely
from affine import Affine
from models import square

from geobgp import LGCP, Categorical, FullRank, Matern, Posterior
from geobgp.data.effects import fixed_effects
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
    assert effects.names == ("use: 2 against 1", "use: 7 against 1")
    own = effects.columns[:, 1:] * effects.scales + effects.means
    blocks = codes().reshape(10, 2, 10, 2)
    for k, code in enumerate((2, 7)):
        share = (blocks == code).mean(axis=(1, 3))[domain.node_rows, domain.node_cols]
        np.testing.assert_allclose(own[:, k], share, atol=1e-9)
    by_path = fixed_effects({"use": f"{landuse}|levels"}, domain)
    np.testing.assert_array_equal(by_path.columns, effects.columns)


def test_a_raster_of_codes_asks(landuse, tmp_path):
    domain = square()
    with pytest.raises(
        DataError, match=r"levels .* or numbers .* 3 whole numbers.*Categorical.*\|numbers"
    ) as error:
        fixed_effects({"use": landuse}, domain)
    assert f"'use={landuse}|levels' for levels" in error.value.words(lambda name, value: value)
    numbers = fixed_effects({"use": f"{landuse}|numbers"}, domain)
    assert numbers.names == ("use",) and numbers.means[0] == pytest.approx(codes().mean())
    yes_no = write(tmp_path / "yes.tif", (codes() == 2).astype(np.uint8))
    assert fixed_effects({"yes": yes_no}, domain).names == ("yes",)  # a slope on 0 and 1 is a level
    coloured = write(
        tmp_path / "c.tif", (codes() == 2).astype(np.uint8), colours={0: (9, 9, 9), 1: (0, 0, 0)}
    )
    with pytest.raises(DataError, match="colour table"):
        fixed_effects({"use": coloured}, domain)
    floats = write(tmp_path / "f.tif", codes().astype(np.float32))
    assert fixed_effects({"use": floats}, domain).names == ("use",)


def test_text_is_levels_and_tables_hold_several():
    domain = square()
    words = np.where(domain.node_points[:, 0] < 3, "heath", "wood")
    table = pd.DataFrame({"kind": pd.Categorical(words), "east": domain.node_points[:, 0]})
    effects = fixed_effects(table, domain)
    assert effects.names == ("kind: heath against wood", "east")
    one_by_one = fixed_effects({"kind": words, "east": domain.node_points[:, 0]}, domain)
    np.testing.assert_array_equal(effects.columns, one_by_one.columns)
    with pytest.raises(DataError, match="one level on all of the land, 'wood'"):
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
    assert effects.names == ("soil: clay against sand", "ph")
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
    model = LGCP(
        FullRank(domain), Matern(1.0, lengthscale=3.0, sd=0.1), exposure=np.ones(400), covariates={"k": kind}
    )
    fit = model.fit(counts)
    found = fit.coefficients.set_index("name")
    assert found.loc["k: b against a", "mean"] == pytest.approx(1.5, abs=0.2)
    assert found.loc["k: c against a", "mean"] == pytest.approx(0.6, abs=0.2)
    assert ") per unit" not in str(fit.summary())
    fit.save(tmp_path / "a.geobgp")
    loaded = Posterior.load(tmp_path / "a.geobgp")
    there = loaded.intensity_at([[5.0, 5.0]] * 3, covariates={"k": ["a", "b", "c"]})["q50"].to_numpy()
    np.testing.assert_allclose(np.log(there[1:] / there[0]), found["mean"].iloc[1:], rtol=1e-6)
