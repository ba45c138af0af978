"""Areas that are held out, against fits without them; and areas in files."""

from __future__ import annotations

import geopandas as gpd
import numpy as np
import pytest
from shapely import box

from geobgp import LGCP, DataError, Domain, HarmonicBasis, Matern, Posterior, bin_areas


@pytest.fixture(scope="module")
def case():
    domain = Domain.from_polygons(box(0, 0, 20, 20), cell_size=1, crs="local")
    basis = HarmonicBasis.compute(domain, 40, cache=False)
    boxes = [box(a, b, a + 4, b + 4) for a in range(0, 20, 4) for b in range(0, 20, 4)]
    frame = gpd.GeoDataFrame({"name": [f"a{k}" for k in range(25)]}, geometry=boxes)
    rate = np.exp(0.5 + np.sin(domain.node_points[:, 0] / 4.0))
    shares = bin_areas(frame.assign(cases=0), domain, "cases").shares
    frame["cases"] = np.random.default_rng(0).poisson(shares @ rate)
    model = LGCP(basis, Matern(1.5, lengthscale=7.0, sd=0.7))
    return domain, frame, model, model.fit(bin_areas(frame, domain, "cases"))


def test_a_held_out_area_is_predicted_as_by_a_fit_without_it(case):
    domain, frame, model, posterior = case
    checked = posterior.cross_validate()
    assert len(checked.blocks) == 25 and checked.side is None
    for k in (0, 7, 12, 24):
        without = model.fit(bin_areas(frame.drop(index=k), domain, "cases"))
        there = without.totals(frame.geometry.iloc[[k]])
        assert checked.blocks["expected"].iloc[k] == pytest.approx(there["expected"].iloc[0], rel=0.15)
    assert 0.75 <= checked.coverage <= 1.0
    assert checked.score > 0
    assert checked.block_of.min() == 0 and checked.block_of.max() == 24
    assert "held-out areas" in checked.verdict()


def test_suppressed_areas_are_not_predicted(case):
    domain, frame, model, _ = case
    told = frame.assign(cases=frame["cases"].where(frame["cases"] > frame["cases"].quantile(0.2)))
    highest = int(frame["cases"].quantile(0.2))
    posterior = model.fit(bin_areas(told, domain, "cases", suppressed=(0, highest)))
    assert len(posterior.cross_validate().blocks) == int(told["cases"].notna().sum())


def test_only_areas_can_be_held_out(case):
    with pytest.raises(DataError, match="holding out its areas"):
        case[3].cross_validate(4.0)
    with pytest.raises(DataError, match="holding out its areas"):
        case[3].cross_validate(buffer=2.0)


def test_a_file_gives_back_areas_and_posterior(case, tmp_path):
    domain, frame, model, posterior = case
    placed = np.random.default_rng(1).poisson(0.3, domain.n_nodes)
    both = model.fit([placed, bin_areas(frame, domain, "cases")])
    for fit in (posterior, both):
        again = Posterior.load(fit.save(tmp_path / "areas.geobgp"))
        assert again.node_intensity().equals(fit.node_intensity())
        assert again.areas.names == fit.areas.names
        assert again.areas.frame().geometry.geom_equals(fit.areas.frame().geometry).all()
        np.testing.assert_array_equal(again.areas.shares.toarray(), fit.areas.shares.toarray())
        assert again.cross_validate().score == fit.cross_validate().score
        np.testing.assert_array_equal(again.sample(3, 0), fit.sample(3, 0))
        np.testing.assert_array_equal(again.residuals().pearson, fit.residuals().pearson)
