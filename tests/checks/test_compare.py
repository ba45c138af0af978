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
from scipy import stats
from scipy.special import expit

from geobgp import Domain, bin_areas, bin_points, compare
from geobgp.auto.tasks import fit_risk
from geobgp.data.persons import Groups, Persons
from geobgp.errors import DataError
from geobgp.model import LGCP, BoundaryGP
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
    with pytest.raises(DataError, match="'old' does not know what it was fitted to"):
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


def sampled(cell: float, values: np.ndarray, xy: np.ndarray, transform="none", sd=1.0) -> Posterior:
    basis = HarmonicBasis.compute(square(12.0, cell), 40, cache=False)
    return BoundaryGP(basis, Matern(1.5, 5.0, sd), transform=transform).fit(xy, values)


def test_maps_of_values_are_compared_as_they_were_measured():
    rng = np.random.default_rng(1)
    xy = rng.uniform(0.1, 11.9, (120, 2))
    values = np.exp(2.0 + np.sin(xy[:, 0] / 2.0) + 0.4 * rng.normal(size=120))
    maps = {
        "log": sampled(1.0, values, xy, "log"),
        "plain": sampled(1.0, values, xy, sd=8.0),
        "fine": sampled(0.5, values, xy, "log"),
        "flat": sampled(1.0, values, xy, "log", sd=1e-3),
    }
    table = compare(maps, 4.0)
    assert table.index[-1] in ("plain", "flat") and table.index[0] in ("log", "fine")
    for name, posterior in maps.items():
        checked = posterior.cross_validate(4.0)
        density = checked.table["log_density"].sum() / 120
        assert table.loc[name, "score"] - table.loc["log", "score"] == pytest.approx(
            density - maps["log"].cross_validate(4.0).table["log_density"].sum() / 120
        )
    # With the Jacobian, the bound of no field is that of independent log-normal values.
    logs = np.log(values)
    alone = stats.norm.logpdf(logs, logs.mean(), logs.std()) - logs
    gap = maps["flat"].elbo - alone.sum()
    assert -12.0 < gap < 0.0  # the intercept's prior costs some nats
    assert table.loc["log", "bound"] - table.loc["flat", "bound"] == pytest.approx(
        (maps["log"].elbo - maps["flat"].elbo) / 120
    )


def test_other_sites_or_other_values_are_not_compared():
    rng = np.random.default_rng(2)
    xy, other = rng.uniform(0.1, 11.9, (2, 60, 2))
    values = rng.normal(size=60)
    one = sampled(1.0, values, xy)
    for those in (sampled(1.0, values, other), sampled(1.0, rng.permutation(values), xy), sampled(0.5, values + 1, xy)):
        with pytest.raises(DataError, match=r"of the sites with the same values .* are the same"):
            compare({"one": one, "other": those})
    turned = sampled(0.5, values[::-1].copy(), xy[::-1].copy())
    assert len(compare({"one": one, "turned": turned}, 4.0)) == 2
    with pytest.raises(DataError, match="'one' is of values and 'counts' of counts at places"):
        compare({"one": one, "counts": fitted(1.0)})


def test_events_at_other_places_are_not_compared_on_other_cells_either():
    frame = pd.DataFrame(POINTS, columns=["easting", "northing"])
    posteriors = {}
    for name, points, cell in (("here", frame, 1.0), ("coarse", frame, 2.0), ("there", 12.0 - frame, 2.0)):
        domain = square(12.0, cell)
        counts = bin_points(points, domain, easting="easting", northing="northing", keep_coordinates=True)
        posteriors[name] = LGCP(FullRank(domain), Matern(1.0, 5.0, 1.5)).fit(counts)
    assert len(compare({name: posteriors[name] for name in ("here", "coarse")}, 4.0)) == 2
    with pytest.raises(DataError, match=r"of the events of 'here' and 'there' .* are the same"):
        compare({name: posteriors[name] for name in ("here", "there")}, 4.0)


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
