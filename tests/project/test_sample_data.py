"""The sample data are what their README says: checksums, formulas, and the same points on every run."""

import hashlib
import importlib
import re
import sys

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest
import rasterio
import shapely
from paths import SAMPLE

from geobgp import Domain, bin_points

README = (SAMPLE / "README.md").read_text("utf-8")


def script(name):
    """Import a script of the folder as it would be run there."""
    sys.path.insert(0, str(SAMPLE))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(SAMPLE))


@pytest.fixture(scope="module")
def ticks():
    return script("make_tick_bites")


@pytest.fixture(scope="module")
def made():
    """The population script and what it makes."""
    module = script("make_population")
    return module, *module.make()


@pytest.fixture(scope="module")
def domain():
    return Domain.from_polygons(
        SAMPLE / "netherlands_land.gpkg", water=SAMPLE / "netherlands_water.gpkg", cell_size=2000
    )


def data_files():
    return sorted(p.name for p in SAMPLE.iterdir() if p.is_file() and p.suffix != ".py" and p.name != "README.md")


def test_every_file_has_its_checksum_and_its_source():
    sums = {name: digest for digest, name in re.findall(r"^ {4}([0-9a-f]{64})  (\S+)$", README, re.M)}
    described = dict(re.findall(r"^\| (\S+\.(?:gpkg|tif|csv|txt)) \| [^|]+ \| ([^|]+) \|", README, re.M))
    assert sorted(sums) == data_files() == sorted(described)
    for name, digest in sums.items():
        assert hashlib.sha256((SAMPLE / name).read_bytes()).hexdigest() == digest, name
    for name, source in described.items():
        assert re.search("public domain|CC BY 4.0|BSD-3-Clause|MIT|PySAL", source), name


def test_crs_is_as_described():
    for name, code in re.findall(r"^\| (\S+\.gpkg|\S+\.tif) .* \| EPSG:(\d+) \|$", README, re.M):
        if name.endswith(".tif"):
            with rasterio.open(SAMPLE / name) as raster:
                assert raster.crs.to_epsg() == int(code)
        else:
            assert gpd.read_file(SAMPLE / name, rows=1).crs.to_epsg() == int(code)


def test_files_are_small():
    sizes = {name: (SAMPLE / name).stat().st_size for name in data_files()}
    assert max(sizes.values()) < 300_000 and sum(sizes.values()) < 2_000_000


def test_it_says_that_points_are_simulated():
    assert "**The tick bites and the cases of disease are simulated.**" in README


def test_tick_bites_are_those_of_the_script(ticks):
    stored = shapely.get_coordinates(gpd.read_file(SAMPLE / "tick_bites_simulated.gpkg").geometry.to_numpy())
    assert len(stored) == 4446
    np.testing.assert_allclose(stored, ticks.simulate(), rtol=0, atol=1e-9)


def test_the_readme_has_the_numbers_of_the_formula(ticks):
    assert f"λ = {ticks.SCALE} · ( {ticks.BACKGROUND} + {ticks.DUNES:g} ·" in README
    for bump in ticks.FORESTS:
        assert "| " + " | ".join(f"{v:g}" for v in bump) + " |" in README


def test_the_intensity_integrates_to_the_number_of_points(ticks, domain):
    lonlat = gpd.GeoSeries(gpd.points_from_xy(*domain.node_points.T), crs=domain.crs).to_crs(4326)
    rate = ticks.true_intensity(lonlat.x.to_numpy(), lonlat.y.to_numpy())
    assert (rate * domain.node_areas / 1e6).sum() == pytest.approx(4446, rel=5e-3)


def test_the_points_follow_the_intensity(ticks, domain):
    """Chi-squared of the counts in groups of nodes with like expectation, and by province of the sample."""
    counts = bin_points(SAMPLE / "tick_bites_simulated.gpkg", domain)
    assert counts.n_used == 4446 and counts.n_snapped == 0
    lonlat = gpd.GeoSeries(gpd.points_from_xy(*domain.node_points.T), crs=domain.crs).to_crs(4326)
    expected = ticks.true_intensity(lonlat.x.to_numpy(), lonlat.y.to_numpy()) * domain.node_areas / 1e6
    provinces = gpd.read_file(SAMPLE / "netherlands_provinces.gpkg").dissolve("name")
    for groups in (
        np.array_split(np.argsort(expected), 30),
        [np.flatnonzero(lonlat.within(province)) for province in provinces.geometry],
    ):
        mean = np.array([expected[g].sum() for g in groups])
        seen = np.array([counts.values[g].sum() for g in groups])
        chi2 = ((seen - mean) ** 2 / mean).sum()
        assert chi2 < len(groups) + 4 * np.sqrt(2 * len(groups))


def test_dunes_and_forests_are_richer_than_polders(ticks):
    flevoland, veluwe, dunes = ticks.true_intensity(np.array([5.5, 5.85, 4.53]), np.array([52.5, 52.2, 52.37]))
    assert veluwe > 5 * flevoland and dunes > 5 * flevoland


def test_rasters_are_those_of_the_script(made):
    _, people, green, _ = made
    for name, values in (("population_netherlands", people), ("covariate_green_space", green)):
        with rasterio.open(SAMPLE / f"{name}.tif") as raster:
            stored = raster.read(1, masked=True).filled(np.nan)
            assert raster.nodata == -9999 and raster.descriptions[0] and raster.units[0]
        np.testing.assert_allclose(stored, values, rtol=1e-5, atol=0.11 if name[0] == "p" else 1.1e-3)
    assert np.nansum(people) == pytest.approx(18.9e6, rel=0.01)
    assert 0 <= np.nanmin(green) < np.nanmax(green) <= 1


def test_cases_are_those_of_the_script(made):
    *_, points = made
    stored = shapely.get_coordinates(gpd.read_file(SAMPLE / "disease_cases_simulated.gpkg").geometry.to_numpy())
    np.testing.assert_allclose(stored, points, rtol=0, atol=1.1e-6)


def test_cases_follow_people_and_risk(made):
    module, people, _, points = made
    transform, (rows, cols), to_degrees = module.grid()
    col, row = np.meshgrid(np.arange(cols) + 0.5, np.arange(rows) + 0.5)
    lon, lat = to_degrees.transform(transform.c + 2000 * col, transform.f - 2000 * row)
    expected = np.nan_to_num(people) * module.true_relative_risk(lon, lat)
    expected *= len(points) / expected.sum()
    east, north = to_degrees.transform(points[:, 0], points[:, 1], direction="INVERSE")
    at = ((transform.f - north) // 2000).astype(int) * cols + ((east - transform.c) // 2000).astype(int)
    seen = np.bincount(at, minlength=rows * cols)
    groups = np.array_split(np.argsort(expected.ravel())[::-1][:4000], 20)
    mean = np.array([expected.ravel()[g].sum() for g in groups])
    chi2 = ((np.array([seen[g].sum() for g in groups]) - mean) ** 2 / mean).sum()
    assert chi2 < 20 + 4 * np.sqrt(40)
    hot = np.hypot((lon - module.HOTSPOT[0]) * 69.2, (lat - module.HOTSPOT[1]) * 111.26) < 8
    flat = np.nan_to_num(people) / np.nansum(people) * len(points)
    assert seen.reshape(rows, cols)[hot].sum() > 1.8 * flat[hot].sum()


def test_all_points_lie_on_the_land(domain):
    for name in ("tick_bites_simulated", "disease_cases_simulated"):
        counts = bin_points(SAMPLE / f"{name}.gpkg", domain, on_water="error")
        assert counts.n_dropped == 0


# -- the survey and the measurements ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def surveys():
    return script("make_surveys")


@pytest.mark.parametrize("name", ["survey_antibodies", "measurements_lead"])
def test_tables_are_those_of_the_script(surveys, name):
    stored = pd.read_csv(SAMPLE / f"{name}_simulated.csv")
    made = surveys.survey() if name == "survey_antibodies" else surveys.measurements()
    pd.testing.assert_frame_equal(stored, made, check_dtype=False, rtol=0, atol=0.011)
    assert pd.to_datetime(stored["date"], format="%Y-%m-%d").notna().all()


def test_the_readme_has_the_numbers_of_the_survey_and_the_lead(surveys):
    s = surveys
    focus, source, south = s.FOCUS, s.SOURCE, s.SOUTH
    assert f"expit( {s.LOG_ODDS:g} + {s.GREEN_EFFECT:g} · g + {s.FOCUS_EFFECT:g} · exp" in README
    assert f"D({focus[0]:g}° E, {focus[1]:g}° N) / {focus[2]:g} km" in README
    assert f"{s.LEAD:g} µg/g · exp( {s.SOURCE_EFFECT:g} · exp(-½ (D({source[0]:g}° E, {source[1]:g}° N)" in README
    assert (
        f"+ {s.SOUTH_EFFECT:g} · exp(-½ (distance to ({south[0]:g}° E, {south[1]:g}° N) / {south[2]:g} km)²)" in README
    )
    assert f"with the size {s.SIZE:g}" in README and f"{s.NOISE:g} of the logarithm" in README


def test_sites_vary_about_the_prevalence_as_beta_binomial_numbers_do(surveys):
    """Chi-squared with the variance of the formula; that of a binomial is far too small."""
    survey = pd.read_csv(SAMPLE / "survey_antibodies_simulated.csv")
    n, p = (survey["tested"], surveys.true_prevalence(survey["longitude"].to_numpy(), survey["latitude"].to_numpy()))
    binomial = (survey["positive"] - n * p) ** 2 / (n * p * (1 - p))
    chi2 = (binomial / (1 + (n - 1) / (surveys.SIZE + 1))).sum()
    assert len(survey) == 150 and survey["site"].is_unique and (survey["positive"] <= n).all()
    assert abs(chi2 - 150) < 4 * np.sqrt(300) and binomial.sum() > 2.5 * 150


def test_lead_is_log_normal_about_its_median(surveys):
    lead = pd.read_csv(SAMPLE / "measurements_lead_simulated.csv")
    at = lead[["longitude", "latitude"]].to_numpy()
    error = np.log(lead["lead"] / surveys.true_lead(*at.T))
    assert len(lead) == 200 and len(np.unique(at, axis=0)) == surveys.N_PLACES
    assert abs(error.mean()) < 4 * surveys.NOISE / np.sqrt(200)
    assert error.std() == pytest.approx(surveys.NOISE, rel=0.2)
    assert lead["lead"].skew() > 1.5


def test_neither_crosses_the_water(surveys):
    """A place across the water has less than one as near on the own side; places on one side see the straight way."""
    for truth, here, across in (
        (surveys.true_lead, (4.80, 52.66), (5.47, 52.51)),
        (surveys.true_prevalence, (5.9, 53.05), (5.1, 52.9)),
    ):
        lon, lat = np.array([here, across]).T
        assert np.divide(*truth(lon, lat)) > 1.4
    straight = np.hypot(*(np.subtract(surveys.plane(4.8, 52.66), surveys.plane(*surveys.SOURCE[:2]))))
    assert surveys.distance_around(4.8, 52.66, surveys.SOURCE) == pytest.approx(straight)


def test_sites_and_samples_lie_on_the_land(domain):
    for name in ("survey_antibodies", "measurements_lead"):
        table = pd.read_csv(SAMPLE / f"{name}_simulated.csv")
        places = gpd.GeoSeries.from_xy(table["longitude"], table["latitude"], crs=4326).to_crs(domain.crs)
        assert (domain.node_at(shapely.get_coordinates(places.to_numpy())) >= 0).all()
