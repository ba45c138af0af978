"""Ranks of regions: closed forms for two nodes, sums of probabilities, and what is refused."""

from itertools import pairwise

import geopandas as gpd
import numpy as np
import pytest
import shapely
from models import square
from posteriors import fitted, prescribed
from scipy.stats import norm

from geobgp import LGCP, BoundaryGP, DataError, Domain, HarmonicBasis, Matern
from geobgp.errors import InputWarning


def cells(domain, nodes):
    return list(domain.polygon_of(np.asarray(nodes)))


def test_two_nodes_have_a_closed_form():
    domain = square()
    mean = np.full(domain.n_nodes, -3.0)
    mean[[7, 30]] = 0.5, 0.8
    posterior = prescribed(domain, mean, 0.4)
    found = posterior.ranks(cells(domain, [7, 30, 50]), top=2, reference=1.2, n_samples=20_000)
    wins = norm.cdf(0.3 / np.sqrt(0.32))
    np.testing.assert_allclose(found["p_first"], [1 - wins, wins, 0.0], atol=0.02)
    np.testing.assert_allclose(found["p_top2"], [1.0, 1.0, 0.0], atol=1e-3)
    np.testing.assert_allclose(found["p_above"], norm.sf(np.log(1.2), mean[[7, 30, 50]], 0.4), atol=0.02)
    np.testing.assert_allclose(found["rate"], np.exp(mean[[7, 30, 50]] + 0.08))
    np.testing.assert_allclose(found["rate_q95"], np.exp(mean[[7, 30, 50]] + 1.6449 * 0.4), rtol=0.03)
    assert found["rank"].tolist() == [2.0, 1.0, 3.0]
    assert found["rank_q05"].tolist() == [1.0, 1.0, 3.0]


def test_probabilities_add_up_and_the_whole_is_its_own_reference():
    posterior = fitted()[0]
    west, south, east, north = shapely.bounds(posterior.domain.geometry)
    at = np.linspace(west, east, 6)
    strips = [shapely.box(a, south, b, north) for a, b in pairwise(at)]
    found = posterior.ranks(strips, top=3)
    assert found["p_first"].sum() == pytest.approx(1.0)
    assert found["p_top3"].sum() == pytest.approx(3.0)
    assert (found["p_top3"] >= found["p_first"]).all()
    assert 0 < found["p_above"].sum() < 5  # some above the mean of all, some below
    assert found.attrs["units"] == "events per km²"
    totals = posterior.totals(strips)
    np.testing.assert_allclose(found["rate"], totals["expected"] / totals["land_km2"])


def test_rates_are_per_person_where_people_are_known():
    domain = square()
    people = np.where(domain.node_points[:, 0] < 5, 10.0, 1.0)
    people[domain.node_points[:, 1] > 9] = 0.0
    counts = np.where(people > 0, 5.0, 0.0)
    basis = HarmonicBasis.compute(domain, 40, cache=False)
    posterior = LGCP(basis, Matern(1.5, lengthscale=6.0, sd=1.0), exposure=people).fit(counts)
    left, right, nobody = shapely.box(0, 0, 5, 9), shapely.box(5, 0, 10, 9), shapely.box(0, 9, 10, 10)
    found = posterior.ranks([left, right, nobody])
    assert found["exposure"].tolist()[:2] == [450.0, 45.0]
    assert found["p_first"].tolist()[:2] == [0.0, 1.0]
    assert np.isnan(found.loc[2, ["rate", "p_first", "p_top3", "rank"]].astype(float)).all()


def test_regions_without_land_have_no_rank():
    posterior = prescribed(square(), 0.0, 0.3)
    with pytest.warns(InputWarning, match="1 of 2 regions hold no land"):
        found = posterior.ranks([shapely.box(0, 0, 5, 5), shapely.box(50, 50, 60, 60)], top=1)
    assert found["p_first"].tolist()[0] == 1.0 and np.isnan(found["p_first"][1])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"top": 0}, "whole number of at least 1; found 0"),
        ({"top": 3}, "found 3"),
        ({"top": 1.5}, "found 1.5"),
        ({"top": 1, "reference": -1.0}, "reference is at least 0, as every intensity is; found -1.0"),
        ({"top": 1, "n_samples": 0}, "n_samples must be a whole number of at least 1; found 0"),
    ],
)
def test_mistakes(options, words):
    domain = square()
    with pytest.raises(DataError, match=words):
        prescribed(domain, 0.0, 0.3).ranks(cells(domain, [1, 2]), **options)


def test_shares_and_values_are_ranked_by_their_means():
    """The number ranked is that of `totals`, within its own interval, whatever the link."""
    land = shapely.box(0, 0, 40, 30)
    regions = gpd.GeoDataFrame(
        {"name": ["west", "east"]}, geometry=[shapely.box(0, 0, 20, 30), shapely.box(20, 0, 40, 30)]
    )
    domain = Domain.from_polygons(land, cell_size=2.0, crs="local")
    basis, rng = HarmonicBasis.compute(domain, 20, cache=False), np.random.default_rng(0)
    xy = rng.uniform((0, 0), (40, 30), (150, 2))
    east, tested = xy[:, 0] / 40, np.full(150, 30.0)
    values = BoundaryGP(basis, Matern(1.5, 15.0)).fit(xy, -12.0 + 3.0 * east + 0.5 * rng.normal(size=150))
    shares = BoundaryGP(basis, Matern(1.5, 15.0), "binomial").fit(xy, rng.binomial(30, 0.2 + 0.4 * east), trials=tested)
    for posterior in (values, shares):
        ranked, means = posterior.ranks(regions), posterior.totals(regions)["mean"]
        np.testing.assert_allclose(ranked["mean"], means, rtol=1e-9)
        assert ranked["mean"].between(ranked["mean_q05"], ranked["mean_q95"]).all()
        assert ranked["rank"].tolist() == [2, 1] and "p_top2" in ranked and "exposure" not in ranked
        figure = posterior.plot_ranks(regions)
        low, high = figure.get_xlim()
        assert low < means.min() < means.max() < high
    assert values.ranks(regions, reference=-10.5)["p_above"].tolist() == [0.0, 1.0]
    with pytest.raises(DataError, match=r"reference is from 0 to 1, as every prevalence is; found 30"):
        shares.ranks(regions, reference=30.0)
