"""Comparison of maps on blocks that they share."""

from __future__ import annotations

import dataclasses

import geopandas as gpd
import numpy as np
import outbreak
import pandas as pd
import pytest
import shapely
from models import square
from posteriors import island
from scipy.special import expit

from geobgp import Domain, bin_areas, bin_points, compare
from geobgp.auto.tasks import fit_risk
from geobgp.data.persons import Groups, Persons
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


def test_as_many_events_at_other_places_are_not_the_same(maps):
    shuffled = np.random.default_rng(0).permutation(maps["fine"].observed)
    other = LGCP(maps["fine"].basis, Matern(1.0, 5.0, 1.5)).fit(shuffled)
    with pytest.raises(DataError, match="as many, 700, but at other places"):
        compare({"fine": maps["fine"], "shuffled": other})


def test_maps_of_counts_by_area():
    rough = Matern(1.5, lengthscale=7.0, sd=0.7)
    (case, domain, basis), one = area_case(), {}
    for name, kernel in {"wavy": rough, "flat": Matern(1.5, lengthscale=7.0, sd=1e-3)}.items():
        one[name] = LGCP(basis, kernel).fit(bin_areas(case, domain, "cases"))
    table = compare(one)
    own = {name: posterior.cross_validate() for name, posterior in one.items()}
    assert table.index.tolist() == ["wavy", "flat"]
    for name in one:
        assert table.loc[name, "score"] == pytest.approx(own[name].score)
    gap = own["flat"].blocks["log_density"].sum() - own["wavy"].blocks["log_density"].sum()
    assert gap < 0 and table.loc["flat", "difference"] == pytest.approx(gap / case["cases"].sum())
    nodes = LGCP(basis, rough).fit(np.ones(domain.n_nodes))
    with pytest.raises(DataError, match="'wavy' is of counts by area and 'nodes' of counts at places"):
        compare({"wavy": one["wavy"], "nodes": nodes})
    again = case.assign(cases=case["cases"].to_numpy()[::-1])
    other = LGCP(basis, rough).fit(bin_areas(again, domain, "cases"))
    with pytest.raises(DataError, match="other areas, or other numbers in them"):
        compare({"wavy": one["wavy"], "other": other})
    renamed = LGCP(basis, rough).fit(bin_areas(case.assign(name=case["name"] + "b"), domain, "cases"))
    with pytest.raises(DataError, match="other areas, or other numbers in them"):
        compare({"wavy": one["wavy"], "renamed": renamed})


def area_case():
    domain = Domain.from_polygons(shapely.box(0, 0, 20, 20), cell_size=1, crs="local")
    boxes = [shapely.box(a, b, a + 4, b + 4) for a in range(0, 20, 4) for b in range(0, 20, 4)]
    frame = gpd.GeoDataFrame({"name": [f"a{k}" for k in range(25)]}, geometry=boxes)
    shares = bin_areas(frame.assign(cases=0), domain, "cases").shares
    rate = np.exp(0.5 + np.sin(domain.node_points[:, 0] / 4.0))
    frame["cases"] = np.random.default_rng(0).poisson(shares @ rate)
    return frame, domain, HarmonicBasis.compute(domain, 40, cache=False)


def test_maps_of_cases_and_controls():
    rng, domain = np.random.default_rng(1), square(12.0)
    at = rng.uniform(0, 12, (900, 2))
    ill = rng.random(900) < expit(-1.5 + 2.5 * np.exp(-(((at - 4.0) / 2.5) ** 2).sum(axis=1)))

    def persons(which):
        nobody = pd.DataFrame(index=range(int(which.sum())))
        return Persons(bin_points(at[which], domain), domain.locate(at[which]), nobody)

    groups = Groups.of(persons(ill), persons(~ill))
    kernels = {"wavy": Matern(1.0, 4.0, 0.8), "flat": Matern(1.0, 4.0, 1e-3)}
    fits = {name: fit_risk(groups, FullRank(domain), kernel) for name, kernel in kernels.items()}
    table = compare(fits, 4.0)
    assert table.index.tolist() == ["wavy", "flat"] and table.loc["flat", "difference"] < 0
    assert table.loc["wavy", "score"] == pytest.approx(fits["wavy"].cross_validate(4.0).score)
    # One risk everywhere is what a flat map says, but for the cases of a block that it does not know.
    assert table.loc["flat", "score"] == pytest.approx(0.0, abs=0.02)
    assert table.loc["flat", "bound"] == pytest.approx(0.0, abs=0.05)


def test_maps_over_time_are_compared_by_their_forecasts():
    y, periods = outbreak.counts(20), outbreak.months(20)
    flat = Matern(1.5, outbreak.KERNEL.lengthscale, 1e-3)
    fits = {
        name: LGCP(outbreak.basis(), kernel, dynamics="separable").fit(y, periods=periods, resume=False)
        for name, kernel in {"moving": outbreak.KERNEL, "flat": flat}.items()
    }
    table = compare(fits, 4.0, last=2)
    assert table.index.tolist() == ["moving", "flat"]
    own = fits["moving"].cross_validate(4.0, last=2)
    assert table.loc["moving", "score"] == pytest.approx(own.gains["one_rate"])
    assert table.loc["moving", "coverage"] == own.coverage
    with pytest.raises(DataError, match="over 20 months"):
        compare({"moving": fits["moving"], "one": fits["flat"].at(3)})
