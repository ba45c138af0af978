"""Covariates at the nodes, and their effects in their own units."""

from __future__ import annotations

import numpy as np
import pytest
from models import archipelago, square
from reading import fixed_effects

from geobgp.data.effects import Effects, Term
from geobgp.errors import DataError, InputWarning
from geobgp.output.grids import dataset


def test_missing_values_are_refused_or_filled_on_request():
    domain = square()
    values = np.arange(100.0)
    values[[3, 5, 8]] = np.nan
    with pytest.raises(DataError, match="3 of 100 nodes"):
        fixed_effects({"x": values}, domain)
    with pytest.warns(InputWarning, match="3 of 100 nodes"):
        effects = fixed_effects({"x": values}, domain, "mean")
    assert effects.means[0] == pytest.approx(np.nanmean(values))
    assert np.isnan(values[3])  # the caller's array is left alone
    with pytest.raises(DataError, match="no value on"):
        fixed_effects({"x": np.full(100, np.nan)}, domain, "mean")
    with pytest.raises(DataError, match="fill_missing"):
        fixed_effects({"x": values}, domain, "median")


def test_standardised_by_area():
    domain = archipelago()
    effects = fixed_effects({"x": domain.node_points[:, 0]}, domain)
    weight = domain.node_areas / domain.node_areas.sum()
    assert weight @ effects.columns[:, 1] == pytest.approx(0.0, abs=1e-12)
    assert weight @ effects.columns[:, 1] ** 2 == pytest.approx(1.0)
    assert (effects.columns[:, 0] == 1).all()


def test_constant_and_misshapen_covariates_are_named():
    with pytest.raises(DataError, match="'flat' is 3"):
        fixed_effects({"flat": np.full(100, 3.0)}, square())
    with pytest.raises(DataError, match="'x' is one value per node"):
        fixed_effects({"x": np.ones(3)}, square())


def test_raster_covariates_are_averaged():
    domain = square()
    field = dataset(domain, {"x": domain.node_points[:, 0]})["x"]
    effects = fixed_effects({"x": field}, domain)
    plain = fixed_effects({"x": domain.node_points[:, 0]}, domain)
    assert effects.columns == pytest.approx(plain.columns, abs=1e-6)


def test_effects_round_trip():
    rng = np.random.default_rng(0)
    effects = Effects.of((Term("a"), Term("b")), np.array([10.0, -3.0]), np.array([2.0, 0.5]))
    own = {"a": rng.normal(10, 2, 7), "b": rng.normal(-3, 0.5, 7)}
    design = effects.standardise(own, 7)
    beta, half = rng.normal(size=3), rng.normal(size=(3, 3))
    mean, var = effects.own_units(beta, half @ half.T)
    np.testing.assert_allclose(mean[0] + mean[1] * own["a"] + mean[2] * own["b"], design @ beta)
    draws = beta + rng.standard_normal((200_000, 3)) @ half.T
    slopes = draws[:, 1:] / effects.scales
    np.testing.assert_allclose(slopes.var(axis=0), var[1:], rtol=0.02)
    np.testing.assert_allclose((draws[:, 0] - slopes @ effects.means).var(), var[0], rtol=0.02)
    assert effects.standardise({"a": 1.0, "b": 2.0}, 3).shape == (3, 3)
    assert Effects().standardise({}, 4).tolist() == [[1.0]] * 4
    with pytest.raises(DataError, match="'b' is not given"):
        effects.standardise({"a": 1.0}, 3)
