"""map_values and map_prevalence: what is read, refused and chosen, and known truths."""

from __future__ import annotations

import re

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest
import shapely

from geobgp import DataError, map_prevalence, map_values
from geobgp.data.measurements import about_copies, column_of, positives_of
from geobgp.errors import DroppedPointsWarning, InputWarning
from geobgp.inference.families import Gaussian
from geobgp.inference.links import EXP, IDENTITY

LAND = shapely.box(0, 0, 10, 10)
HOW = {"crs": "local", "cell_size": 1.0, "permeability": 0, "cache": False}


def places(n=60, seed=0):
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(rng.uniform(0.1, 9.9, (n, 2)), columns=["easting", "northing"])
    return table.assign(f=np.sin(table["easting"] / 2.0), noise=rng.normal(size=n))


def test_the_transform_is_the_one_that_made_the_values():
    table = places()
    table["skewed"], table["even"] = (np.exp(2 * table.f + 0.2 * table.noise), 50.0 + table.f + 0.2 * table.noise)
    skewed, even = (map_values(table, LAND, value=name, m=16, **HOW) for name in ("skewed", "even"))
    assert skewed.link is EXP
    assert even.link is IDENTITY
    inside = skewed.values_at([[3.14, 5.0]])
    assert inside["q05"][0] < np.exp(2.0) < inside["q95"][0]
    assert skewed.quantity == "value"
    assert skewed.drawn == "mean"


def test_land_that_ends_with_the_study_is_no_shore_and_a_wall_between_places_is_one():
    """A slope goes on to the edge of open land; where a wall parts the places, it is closed as ever."""
    table = places(80).assign(y=lambda t: 5.0 + t.easting + 0.3 * t.noise, n=places(80).northing > 5)
    how = {name: value for name, value in HOW.items() if name != "permeability"}
    inner = table[table.easting < 8.0]
    free, held = (map_values(inner, LAND, value="y", **(how | given)) for given in ({}, {"permeability": 0.0}))
    assert free.basis.permeability == 1.0 and "next to no water lies between" in free.choices["water"]
    edge = np.column_stack([np.full(9, 9.9), np.arange(1.0, 10.0)])
    missed = [np.abs(one.values_at(edge)["mean"] - 14.9).mean() for one in (free, held)]
    assert missed[0] < missed[1] - 0.1
    wall = shapely.LineString([(-1.0, 5.0), (11.0, 5.0)])
    sides = table.assign(y=lambda t: 5.0 + 2.0 * t.n + 0.3 * t.noise)
    parted = map_values(sides, LAND, value="y", barriers=[wall], **how)
    assert parted.basis.permeability == 0.0 and "next to no water" not in parted.choices["water"]


def test_the_smoothness_is_the_one_with_the_most_evidence():
    rough, smooth = (places(150, seed).assign(y=lambda t: np.sin(t.easting) + 0.05 * t.noise) for seed in (1, 2))
    rough["y"] += np.sign(np.sin(7.0 * rough.easting) * np.sin(7.0 * rough.northing))
    for table in (rough, smooth):
        why = map_values(table, LAND, value="y", transform="none", **HOW).choices["kernel"]
        gains = {name: float(gain) for name, gain in re.findall(r"(Matern [\d.]+) ([\d.]+)", why.split("(")[1])}
        assert len(gains) > 1 and why.split(" (")[0] == max(gains, key=lambda name: gains[name])


def test_the_bound_of_a_transform_has_its_jacobian():
    """A lognormal density is that of the logarithm over the value, so bounds of transforms can be compared."""
    table = places().assign(y=lambda t: np.exp(t.f))
    logs = map_values(table, LAND, value="y", transform="log", m=16, **HOW)
    plain = map_values(table.assign(z=table.f), LAND, value="z", transform="none", m=16, **HOW)
    assert logs.elbo == pytest.approx(plain.elbo - table.f.sum(), abs=1e-6)
    one = Gaussian(np.zeros(0), 0.5, EXP)
    grid = np.linspace(1e-3, 40.0, 400_000)
    assert np.exp(one.log_density(grid, 0.3)).sum() * (grid[1] - grid[0]) == pytest.approx(1.0, abs=1e-3)


def test_surveys_that_vary_more_than_chance_are_found():
    table, rng = places(80), np.random.default_rng(1)
    table["n"] = 40
    table["even"] = rng.binomial(40, 0.3, 80)
    table["wild"] = rng.binomial(40, rng.beta(0.9, 2.1, 80))
    found = {name: map_prevalence(table, LAND, positive=name, tested="n", m=16, **HOW) for name in ("even", "wild")}
    assert "beta" not in found["even"].likelihood.name
    assert found["wild"].likelihood.name.startswith("beta-binomial")
    assert found["wild"].quantity == "prevalence"
    assert 0.2 < found["even"].overall < 0.4


def test_regions_of_a_prevalence_hold_those_who_have_it():
    """Two regions and the land: numbers add up, and are the people times the prevalence of the region."""
    table, rng = places(80), np.random.default_rng(3)
    share = 1 / (1 + np.exp(1.0 - table.f))
    table["n"], table["positive"] = 30, rng.binomial(30, rng.beta(8.0 * share, 8.0 * (1 - share)))
    people = np.random.default_rng(4).uniform(10.0, 90.0, 100)
    mapped = map_prevalence(
        table, LAND, positive="positive", tested="n", m=32, exposure=people, likelihood="beta-binomial", **HOW
    )
    halves = mapped.totals([shapely.box(0, 0, 4, 10), shapely.box(4, 0, 10, 10)])
    all_land = mapped.totals([LAND])
    assert np.allclose(halves["affected"], halves["exposure"] * halves["mean"], rtol=1e-12)
    assert np.allclose(halves["affected_q05"], halves["exposure"] * halves["q05"], rtol=1e-9)
    assert halves["affected"].sum() == pytest.approx(all_land["affected"][0], rel=1e-9)
    assert all_land["affected"][0] == pytest.approx(people @ mapped.mean_by_period()[0], rel=1e-9)
    # Of joint draws of all land, sites' own spread is no part.
    assert mapped._land_draws[0].mean() == pytest.approx(all_land["affected"][0], rel=0.02)


@pytest.mark.filterwarnings("ignore::geobgp.errors.InputWarning")
def test_thresholds_of_a_prevalence_are_shares(tmp_path):
    table = places(40).assign(n=20, k=lambda t: np.where(t.easting > 5, 12, 4))
    posterior = map_prevalence(table, LAND, positive="k", tested="n", m=9, likelihood="binomial", **HOW)
    asked = (
        posterior.exceedance,
        posterior.excursion,
        posterior.hotspots,
        lambda t: posterior.people_above(t, [LAND]),
        lambda t: posterior.totals([LAND], thresholds=[t]),
        lambda t: posterior.cells(thresholds=[t]),
        lambda t: posterior.values_at([[5.0, 5.0]], thresholds=[t]),
        lambda t: posterior.dataset(thresholds=[t]),
        lambda t: posterior.to_raster(tmp_path / "rasters", [t]),
        lambda t: posterior.to_map(threshold=t),
        lambda t: posterior.plot(threshold=t),
    )
    for ask in asked:
        with pytest.raises(DataError, match=r"shares between 0 and 1; found 40\. Did you mean 0\.4"):
            ask(40.0)
    with pytest.raises(DataError, match=r"found 0\. Give one"):
        posterior.exceedance(0.0)
    assert 0.5 < float(posterior.exceedance(0.4).max()) < 1.0


def test_held_out_sites_are_predicted():
    table = places().assign(y=lambda t: t.f + 0.1 * t.noise)
    checked = map_values(table, LAND, value="y", m=16, **HOW).cross_validate("sites")
    assert checked.score > 0.5
    assert 0.75 <= checked.coverage <= 1.0


def test_copies_of_rows_are_told_of_and_coincidences_are_not():
    table = places(40).assign(n=20, k=lambda t: np.where(t.easting > 5, 12, 4))
    how = {"positive": "k", "tested": "n", "m": 9, "likelihood": "binomial"} | HOW
    with pytest.warns(InputWarning, match=r"40 of 80 rows \(50 %\) are exact copies .*table.drop_duplicates"):
        map_prevalence(pd.concat([table, table]), LAND, **how)
    shapes = gpd.GeoDataFrame({"k": table.k}, geometry=gpd.points_from_xy(table.easting, table.northing))
    with pytest.warns(InputWarning, match=r"10 of 50 rows \(20 %\)"):
        map_values(pd.concat([shapes, shapes[:10]]), LAND, value="k", m=9, transform="none", **HOW)
    villages = pd.DataFrame({"easting": np.repeat(np.arange(0.5, 8), 25), "northing": 3.5})
    sick = villages.assign(n=1, k=np.random.default_rng(1).integers(0, 2, 200))
    assert about_copies(sick, ["k", "n"], "surveys", persons=True) is None
    assert about_copies(sick.assign(n=sick.index % 4), ["k", "n"], "surveys") is None  # households
    named = sick.assign(person=[f"p{j}" for j in range(200)])
    assert about_copies(named, ["k", "n"], "surveys", persons=True) is None
    twice = about_copies(pd.concat([named, named[:3]]), ["k", "n"], "surveys", persons=True)
    assert twice is not None and twice.found == 3
    assert about_copies(pd.concat([named, named[:2]]), ["k", "n"], "surveys", persons=True) is None


@pytest.mark.parametrize(
    ("positive", "tested", "words"),
    [
        ([3, 9], [5, 5], "more positives than were tested"),
        ([-1, 2], [5, 5], "fewer than no positives"),
        ([0.5, 2], [5, 5], "not whole"),
        ([0, 0], [5, 5], "Nobody of 10 tested is positive"),
    ],
)
def test_impossible_surveys_are_refused(positive, tested, words):
    with pytest.raises(DataError, match=words):
        positives_of(pd.DataFrame({"y": positive, "n": tested}), "y", "n")


def test_surveys_of_nobody_are_counted_and_left_out():
    y, n, unused = positives_of(pd.DataFrame({"y": [1, 0, np.nan], "n": [4, 0, 5]}), "y", "n")
    assert np.isfinite(y).tolist() == np.isfinite(n).tolist() == [True, False, False]
    assert unused == {"without_value": 1, "nobody_tested": 1}


def test_marks_of_the_limit_of_detection_are_explained():
    with pytest.raises(DataError, match=r"'<0\.5'") as caught:
        column_of(pd.DataFrame({"lead": ["1.5", "<0.5", "LOD"]}), "lead", "samples", "value")
    assert "half the limit" in caught.value.remedy


def test_values_that_cannot_be_mapped_are_refused():
    table = places().assign(same=3.0, zero=0.0)
    with pytest.raises(DataError, match="there is nothing to map"):
        map_values(table, LAND, value="same", **HOW)
    with pytest.raises(DataError, match="have not a logarithm"):
        map_values(table, LAND, value="zero", transform="log", **HOW)
    with pytest.raises(DataError, match="at least 5 are needed"):
        map_values(table.head(3), LAND, value="f", **HOW)
    with pytest.raises(DataError, match="has no column 'lead'"):
        map_values(table, LAND, value="lead", **HOW)


def test_values_over_periods_have_the_level_of_each_and_their_own_sites(tmp_path):
    rng = np.random.default_rng(3)
    table = places(180).assign(year=rng.choice([2019, 2020, 2021], 180))
    table["y"] = 10.0 + 2.0 * (table.year - 2019) + table.f + 0.1 * table.noise
    over = map_values(table, LAND, value="y", time="year", every="year", dynamics="separable", m=16, **HOW)
    assert over.periods.labels == ("2019", "2020", "2021")
    means = over.totals()["mean"].to_numpy()
    assert np.diff(means) == pytest.approx([2.0, 2.0], abs=0.15)
    change = over.trend()["change"].values
    assert np.nanmean(change) == pytest.approx(2.0, abs=0.15)
    assert over.trend("land")["change"].iloc[0] == pytest.approx(2.0, abs=0.15)
    over.to_map(tmp_path / "map.html", regions=over.totals(shapely.box(0, 0, 5, 10)))
    assert '"of":"mean"' in (tmp_path / "map.html").read_text("utf-8").replace(" ", "")
    middle = over.at("2020")
    assert len(middle.sites.values) == middle.n_points == (table.year == 2020).sum()
    checked = middle.cross_validate("sites")
    assert checked.score > 0.5
    assert 0.75 <= checked.coverage <= 1.0
    # Pairs are of one period each, about its own level: steps of 2 between years are no variance.
    assert over.variogram().table["semivariance"].max() < 1.5


def test_a_prevalence_that_rises_is_seen_to_rise_and_rows_without_a_date_are_told_of():
    rng = np.random.default_rng(4)
    table = places(150).assign(n=40, year=np.repeat([2019.0, 2020.0, 2021.0], 50))
    table["positive"] = rng.binomial(40, 0.1 + 0.15 * (table.year - 2019))
    table.loc[:3, "year"] = np.nan
    with pytest.warns(DroppedPointsWarning, match="4 have none"):
        over = map_prevalence(
            table, LAND, positive="positive", tested="n", time="year", every="year", likelihood="binomial", m=16, **HOW
        )
    assert over.totals()["mean"].to_numpy() == pytest.approx([0.1, 0.25, 0.4], abs=0.04)
    trend = over.trend(n_samples=50)
    assert np.nanmin(trend["p_increase"].values) > 0.9
    odds = np.log(0.4 / 0.6 / (0.1 / 0.9)) / 2.0
    assert np.log1p(over.trend("land")["change"].iloc[0]) == pytest.approx(odds, abs=0.15)


def test_periods_of_measurements_need_dates():
    with pytest.raises(DataError, match="belongs to events with dates"):
        map_values(places(), LAND, value="f", every="year", **HOW)
    with pytest.raises(DataError, match="there are"):
        map_values(places(), LAND, value="f", time="when", every="year", **HOW)
    with pytest.raises(DataError, match="belongs to counts of events by area"):
        map_values(places(), LAND, value="f", absent="zero", **HOW)
