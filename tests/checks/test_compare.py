"""Comparison of maps on blocks that they share."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import shapely
from models import square
from posteriors import island

from geobgp import compare
from geobgp.errors import DataError
from geobgp.model import LGCP
from geobgp.posterior import Posterior
from geobgp.prior.full_rank import FullRank
from geobgp.prior.harmonic import HarmonicBasis
from geobgp.prior.kernels import Matern

POINTS = np.random.default_rng(3).normal([4.0, 6.0], 2.2, (700, 2)).clip(0.01, 11.99)


def fitted(cell: float, make=FullRank, kernel: Matern | None = None, **more) -> Posterior:
    domain = square(12.0, cell)
    counts = np.bincount(domain.locate(POINTS), minlength=domain.n_nodes).astype(float)
    return LGCP(make(domain), kernel or Matern(1.0, 5.0, 1.5), **more).fit(counts)


@pytest.fixture(scope="module")
def maps() -> dict[str, Posterior]:
    return {
        "flat": fitted(1.0, kernel=Matern(1.0, 5.0, 1e-3)),
        "coarse": fitted(2.0),
        "fine": fitted(1.0),
        "features": fitted(1.0, lambda d: HarmonicBasis.compute(d, 40, cache=False), Matern(1.5, 5.0, 1.5)),
    }


def test_scores_are_those_of_each_map_on_shared_blocks(maps):
    table = compare(maps, 4.0)
    assert table.index.name == "map" and set(table.index) == set(maps)
    assert table["score"].is_monotonic_decreasing
    assert table["difference"].iloc[0] == 0 and table["difference_se"].iloc[0] == 0
    for name, posterior in maps.items():
        own = posterior.cross_validate(4.0)
        # A map with one rate everywhere is one that spreads events evenly over the land.
        assert table.loc[name, "score"] == pytest.approx(own.score, abs=1e-9)
        assert table.loc[name, "coverage"] == own.coverage
        assert table.loc[name, "nodes"] == posterior.domain.n_nodes
    difference = table["score"] - table["score"].iloc[0]
    np.testing.assert_allclose(table["difference"], difference, atol=1e-12)
    assert table.loc["flat"].name == table.index[-1]
    assert table.loc["flat", "difference"] < -3 * table.loc["flat", "difference_se"] < 0


def test_bounds_compare_across_cells(maps):
    table = compare(maps, 4.0)
    assert abs(table.loc["fine", "bound"] - table.loc["coarse", "bound"]) < 0.1
    assert abs(table.loc["fine", "elbo"] - table.loc["coarse", "elbo"]) > 50
    # A flat map's bound is the log density of a Poisson process with one rate, but for the intercept's own cost.
    n = len(POINTS)
    assert n * table.loc["flat", "bound"] == pytest.approx(0.0, abs=8)


def test_auto_blocks_hold_whole_cells_of_the_coarsest_map(maps):
    table = compare({"coarse": maps["coarse"], "fine": maps["fine"]})
    assert np.isfinite(table.drop(columns="seconds")).all().all()


def test_regions_are_shared_by_maps_of_different_cells(maps):
    halves = [shapely.box(0, 0, 6, 12), shapely.box(6, 0, 12, 6), shapely.box(6, 6, 12, 12)]
    table = compare({"coarse": maps["coarse"], "fine": maps["fine"]}, halves)
    assert len(table) == 2 and table["difference_se"].iloc[1] > 0


def test_maps_that_cannot_be_compared(maps):
    with pytest.raises(DataError, match="Two maps or more"):
        compare({"fine": maps["fine"]})
    with pytest.raises(DataError, match="knows its counts"):
        compare({"fine": maps["fine"], "old": dataclasses.replace(maps["fine"], observed=None)})
    domain = maps["fine"].domain
    fewer = LGCP(FullRank(domain), Matern(1.0, 5.0, 1.0)).fit(np.ones(domain.n_nodes))
    with pytest.raises(DataError, match="same events"):
        compare({"fine": maps["fine"], "fewer": fewer})
    with pytest.raises(DataError, match="Folds are labels of one domain"):
        compare({"fine": maps["fine"], "coarse": maps["coarse"]}, np.arange(domain.n_nodes) % 3)
    elsewhere = island(2000.0)
    there = LGCP(FullRank(elsewhere), Matern(1.0, 1e4, 1.0)).fit(np.ones(elsewhere.n_nodes))
    with pytest.raises(DataError, match="in one CRS; 'fine' is in local"):
        compare({"fine": maps["fine"], "there": there})
