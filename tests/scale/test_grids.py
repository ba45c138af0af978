"""Mixtures over hyperparameters and fits without blocks are the same, whoever makes them."""

from __future__ import annotations

import numpy as np
import pytest
import small_case as case

from geobgp import LGCP, DataError, FullRank, HarmonicBasis, Matern, bin_points


@pytest.fixture(scope="module")
def counts():
    return bin_points(case.points(seed=1), case.domain(1500.0))


@pytest.mark.filterwarnings("ignore::geobgp.errors.MissedVarianceWarning")
@pytest.mark.parametrize("kind", ["full", "features"])
def test_a_mixture_by_a_cluster(counts, client, kind):
    domain = case.domain(1500.0)
    basis = FullRank(domain) if kind == "full" else HarmonicBasis.compute(domain, 40, cache=False)
    here = LGCP(basis).fit(counts, hyper="integrate")
    there = LGCP(basis).fit(counts, hyper="integrate", client=client)
    assert len(there.fit.states) == len(here.fit.states) == 9
    for a, b in zip(there.fit.states, here.fit.states, strict=True):
        assert a.weight == pytest.approx(b.weight, abs=1e-3) and a.lengthscale == b.lengthscale
    np.testing.assert_allclose(there.node_intensity(), here.node_intensity(), rtol=2e-3)


def test_blocks_fitted_anew(client):
    domain = case.domain(2000.0)
    counts = bin_points(case.points(seed=1), domain)
    posterior = LGCP(FullRank(domain)).fit(counts)
    quick = posterior.cross_validate(8000.0)
    here, there = (posterior.cross_validate(8000.0, refit=True, client=c) for c in (None, client))
    np.testing.assert_allclose(there.blocks["score"], here.blocks["score"], atol=1e-6)
    assert len(here.blocks) == len(quick.blocks)
    # New hyperparameters for each block change little.
    assert here.score == pytest.approx(quick.score, abs=0.03)
    held = LGCP(FullRank(domain), Matern(1.0, posterior.lengthscale, posterior.sd)).fit(counts)
    same = held.cross_validate(8000.0, refit=True, n_jobs=2)
    assert same.score == pytest.approx(quick.score, abs=0.005)
    assert (here.blocks["score"] != same.blocks["score"]).any()


@pytest.mark.filterwarnings("ignore::geobgp.errors.GeobgpWarning")
def test_areas_are_not_fitted_anew():
    from geobgp import bin_areas

    domain = case.domain(2000.0)
    areas = bin_areas(case.land().assign(n=[40, 9]), domain, "n")
    posterior = LGCP(HarmonicBasis.compute(domain, 12, cache=False)).fit(areas)
    with pytest.raises(DataError, match="Refits without each block are for points only, not areas"):
        posterior.cross_validate(refit=True)
