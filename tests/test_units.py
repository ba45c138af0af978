"""Units: one factor and one set of words, wherever an intensity is shown."""

from __future__ import annotations

import dataclasses

import geopandas as gpd
import numpy as np
import pytest
import rasterio
import shapely
import xarray as xr
from posteriors import bumps, fitted, island

from geobgp import LGCP, HarmonicBasis, Matern, Posterior, map_intensity
from geobgp.errors import DataError
from geobgp.units import Units, check_units

KM2 = (1e6, "km²")


@pytest.fixture(scope="module")
def people() -> Posterior:
    """Rates per person of some 100,000 people."""
    domain = island(2000.0)
    rng = np.random.default_rng(2)
    head = rng.uniform(50.0, 500.0, domain.n_nodes)
    counts = rng.poisson(head * np.exp(0.5 * bumps(domain) - 4.0)).astype(float)
    basis = HarmonicBasis.compute(domain, 40, cache=False)
    made = LGCP(basis, Matern(1.5, lengthscale=12_000.0, sd=0.8), exposure=head).fit(counts)
    return dataclasses.replace(made, exposure_kind="population")


@pytest.mark.parametrize(
    ("asked", "kind", "factor", "words"),
    [
        ("", "area", 1.0, "events per km²"),
        ("", "population", 1.0, "events per person"),
        ("", "exposure", 1.0, "events per unit of exposure"),
        ("per 100,000", "population", 1e5, "events per 100,000 people"),
        ("per 100000 women", "population", 1e5, "events per 100,000 women"),
        ("per 100 000", "population", 1e5, "events per 100,000 people"),
        ("per thousand", "population", 1e3, "events per 1,000 people"),
        ("Per Million", "population", 1e6, "events per million people"),
        ("per 1,000 person-years", "exposure", 1e3, "events per 1,000 person-years"),
        ("per person", "population", 1.0, "events per person"),
        ("per ha", "area", 0.01, "events per ha"),
        ("per 100 km2", "area", 100.0, "events per 100 km²"),
        ("per 10 square miles", "area", 25.89988110336, "events per 10 square miles"),
        ("per m²", "area", 1e-6, "events per m²"),
        ("relative risk", "expected", 1.0, "times the expected"),
        ("", "expected", 1.0, "times the expected"),
        ("", "risk", 1.0, "times the average risk"),
    ],
)
def test_words_are_understood(asked, kind, factor, words):
    units = Units.of(asked, kind, KM2)
    assert (units.factor, units.words) == (pytest.approx(factor, rel=1e-12), words)
    assert units.quantity == ("relative risk" if kind in ("expected", "risk") else "intensity")


@pytest.mark.parametrize(
    ("asked", "kind", "area", "why"),
    [
        ("per 100,000", "area", KM2, "no population was given"),
        ("relative risk", "area", KM2, "a relative risk is one of people"),
        ("per ha", "population", KM2, "events are counted per person here"),
        ("per ha", "area", (1.0, "unit area"), "local coordinates"),
        ("per 100,000", "expected", KM2, "this map is a relative risk"),
        ("per km²", "risk", KM2, "this map is a relative risk"),
        ("per 100,000", "observation", KM2, "no population"),
        ("per furlong", "area", KM2, "neither a number nor an area"),
        ("100,000", "population", KM2, "begin with 'per'"),
        ("per 0", "population", KM2, "neither a number"),
    ],
)
def test_units_that_do_not_fit_are_refused(asked, kind, area, why):
    with pytest.raises(DataError, match=why) as caught:
        Units.of(asked, kind, area)
    assert caught.value.option == "units" and caught.value.found == asked and caught.value.remedy


def test_a_relative_risk_is_a_ratio_to_the_average(people):
    shown = people.in_units("relative risk")
    mean = shown.node_intensity()["mean"].to_numpy()
    assert np.average(mean, weights=people.exposure) == pytest.approx(1.0, rel=1e-12)
    assert (shown.units, shown.quantity) == ("times the average risk", "relative risk")
    assert shown.provenance["title"] == "Relative risk"


def test_periods_come_on_top():
    units = Units.of("per 100,000", "population").per("year")
    assert (units.factor, units.words) == (1e5, "events per 100,000 people per year")
    risk = Units.of("", "expected")
    assert risk.per("year") == risk


@pytest.mark.parametrize("asked", ["per 100,000", "relative risk"])
def test_every_number_that_is_shown_is_in_the_units(people, asked, tmp_path):
    shown = people.in_units(asked)
    factor = 1e5 if asked == "per 100,000" else 1.0 / people.overall
    assert shown.shown.factor == pytest.approx(factor)
    own, there = people.intensity(), shown.intensity()
    for name in ("mean", "sd", "q05", "q50", "q95"):
        np.testing.assert_allclose(there[name], factor * own[name], rtol=1e-10)
        assert there[name].attrs["units"] == shown.units
    places = people.domain.node_points[:5]
    at = shown.intensity_at(places)
    np.testing.assert_allclose(at, factor * people.intensity_at(places), rtol=1e-10)
    assert at.attrs["units"] == shown.units
    limit = 1.3 * people.overall
    same = {"rtol": 1e-9, "atol": 1e-12}
    np.testing.assert_allclose(shown.exceedance(limit * factor), people.exceedance(limit), **same)
    sure = shown.excursion(limit * factor, 0.8, n_samples=200)
    np.testing.assert_array_equal(sure.above, people.excursion(limit, 0.8, n_samples=200).above)
    assert shown.units in repr(sure)
    np.testing.assert_allclose(shown.sample(3, 1), factor * people.sample(3, 1), rtol=1e-12)
    assert shown.sample(1, 1).attrs["units"] == shown.units
    # Numbers of events, and what is compared with them, stay as they are.
    halves = [shapely.box(100_000, 400_000, 155_000, 500_000), shapely.box(155_000, 400_000, 200_000, 500_000)]
    np.testing.assert_allclose(shown.totals(halves)["expected"], people.totals(halves)["expected"], rtol=1e-12)
    np.testing.assert_allclose(shown.ranks(halves, top=1)["rate"], factor * people.ranks(halves, top=1)["rate"])
    gap, other = (p.versus(dataclasses.replace(p)) for p in (shown, people))
    np.testing.assert_allclose(gap.node_difference()["sd"], factor * other.node_difference()["sd"], rtol=1e-9)
    table = gap.totals(halves)
    np.testing.assert_allclose(table["difference_q95"], factor * other.totals(halves)["difference_q95"], rtol=1e-9)
    assert shown.latent()["mean"].attrs["units"] == "log(events per person)"
    np.testing.assert_array_equal(shown.latent()["mean"], people.latent()["mean"])
    # Files.
    limit = 1_000 if asked == "per 100,000" else 1.25
    shown.to_raster(tmp_path / "all.tif", thresholds=[limit])
    with rasterio.open(tmp_path / "all.tif") as source:
        assert source.units[:2] == (shown.units, shown.units)
        np.testing.assert_allclose(source.read(1), there["q50"], rtol=1e-6)  # a rate: the median is drawn
        assert f"more than {limit} {shown.units}" in source.tags(6)["long_name"]
    assert shown.units in (tmp_path / "all.qml").read_text("utf-8")
    with xr.open_dataset(shown.to_netcdf(tmp_path / "all.nc")) as data:
        assert data["mean"].attrs["units_in_words"] == shown.units
    assert shown.units in str(shown.summary())
    assert shown.units in shown.to_map().get_root().render()


def test_a_saved_posterior_keeps_its_units(tmp_path):
    posterior = fitted()[0].in_units("per ha")
    again = Posterior.load(posterior.save(tmp_path / "a.geobgp"))
    assert (again.shown_in, again.units) == ("per ha", "events per ha")
    np.testing.assert_allclose(again.node_intensity(), posterior.node_intensity(), rtol=1e-8)
    assert again.in_units(None).units == "events per km²"


def test_checks_do_not_depend_on_units():
    posterior = fitted()[0]
    one, two = (p.residuals(n_simulations=39) for p in (posterior, posterior.in_units("per ha")))
    assert one.dispersion == pytest.approx(two.dispersion) and one.dispersion_band == pytest.approx(two.dispersion_band)
    a, b = posterior.cross_validate(), posterior.in_units("per ha").cross_validate()
    assert a.score == pytest.approx(b.score)


def test_map_intensity_takes_units_and_refuses_before_it_begins():
    land = gpd.GeoDataFrame(geometry=[shapely.box(0, 0, 20_000, 20_000)], crs=28992)
    land = land.set_geometry(land.translate(140_000, 460_000))
    points = np.random.default_rng(0).uniform([140_000, 460_000], [160_000, 480_000], (150, 2))
    given = {"cell_size": 2000.0, "crs": 28992, "m": 12, "permeability": 0, "cache": False}
    made = map_intensity(points, land, units="per ha", **given)
    assert made.units == "events per ha"
    assert float(made.intensity()["mean"].mean()) == pytest.approx(150 / 400 / 100, rel=0.05)
    people = land.assign(population=1e5)
    rate = map_intensity(points, land, exposure=people, units="per 100,000", **given)
    assert float(rate.intensity()["mean"].mean()) == pytest.approx(150, rel=0.05)
    expected = land.assign(expected=100.0)
    with pytest.raises(DataError, match="this map is a relative risk"):
        map_intensity(points, land, exposure=expected, units="per 100,000", **given)
    for units, why in (("per 100,000", "no population"), ("relative risk", "one of people"), ("often", "begin with")):
        with pytest.raises(DataError, match=why):
            map_intensity("no such file.csv", "nor this.gpkg", units=units)
    with pytest.raises(DataError, match="not by area"):
        check_units("per km²", exposed=True)


# -- numbers as people write them


@pytest.mark.parametrize(
    "words",
    [
        "per 100000", "per 100,000", "per 100 000", "per 100\u202f000", "per 100\u00a0000", "per 100\u2009000",
        "per 100'000", "per 100\u2019000", "per 100_000", "per 100.000", "per 1,00,000", "per 100,000.0", "per 10^5",
        "per 10 ^ 5", "per 10**5", "per 10\u2075", "per 1e5", "per 1E+5", "per 1 x 10^5", "per 1\u00d710\u2075",
        "per 100k", "per 100 K", "per 0.1M", "per 100 thousand", "per hundred thousand", "per lakh",
    ],
)  # fmt: skip
@pytest.mark.parametrize("noun", ["", " people", " live births"])
def test_a_hundred_thousand_in_every_way_that_people_write_it(words, noun):
    units = Units.of(words + noun, "population")
    assert units.factor == 100_000.0
    assert units.words == f"events per 100,000{noun or ' people'}"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("per 1.500", r"1.5 or 1,500"),
        ("per 1e400", "at the most"),
        ("per 10^400", "at the most"),
        ("per 99999999999^99", "at the most"),
        ("per 1e-5", "neither a number nor an area"),
        ("per 0", "above 0"),
        ("per 100 00", "cannot be read as a number"),
        ("per 100,00", "cannot be read as a number"),
        ("per 1,5", "cannot be read as a number"),
        ("per 100,000 000", "cannot be read as a number"),
        ("per 10 000,5", "cannot be read as a number"),
        ("per 5e", "nothing to count"),
        ("per 10 m", "nothing to count"),
        ("per 3 months", "is a time"),
    ],
)
def test_numbers_that_can_be_read_in_two_ways_or_in_none_are_refused(words, why):
    with pytest.raises(DataError, match=why):
        check_units(words, exposed=True)
    with pytest.raises(DataError, match=why):
        Units.of(words, "population")


def test_numbers_of_areas():
    assert Units.of("per 2.5 km²", "area").factor == 2.5
    assert Units.of("per 1 000 ha", "area").factor == 10.0
    assert Units.of("per 10^4 m2", "area").factor == pytest.approx(0.01)
