"""Expected counts: against sums written out, and as the exposure of a map."""

from __future__ import annotations

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest
from reading import node_exposure
from shapely.geometry import box

from geobgp import LGCP, Domain, FullRank, Matern, expected_counts
from geobgp.errors import DataError
from geobgp.output.palette import RATIO_BREAKS, classes_in


def tables(seed=0, n_areas=6):
    """Return persons with age and sex, and a population of areas in a row."""
    rng = np.random.default_rng(seed)
    ages, sexes = ["0-39", "40-69", "70+"], [1.0, 2.0]
    rows = [(k, a, s, int(rng.integers(20, 400))) for k in range(n_areas) for a in ages for s in sexes]
    population = gpd.GeoDataFrame(
        pd.DataFrame(rows, columns=["area", "age", "sex", "population"]),
        geometry=[box(k, 0, k + 1, 2) for k, *_ in rows],
    )
    cases = pd.DataFrame({"age": rng.choice(ages, 200, p=[0.1, 0.3, 0.6]), "sex": rng.choice([1, 2], 200)})
    return cases, population


def by_loop(cases, population):
    """Return the expected number of every area, written out."""
    out = {}
    for _, row in population.iterrows():
        same = population[(population.age == row.age) & (population.sex == row.sex)]
        ill = ((cases.age == row.age) & (cases.sex == row.sex)).sum()
        out[row.area] = out.get(row.area, 0.0) + row.population * ill / same.population.sum()
    return list(out.values())


def test_agrees_with_a_loop_and_adds_up():
    cases, population = tables()
    found = expected_counts(cases, population, ["age", "sex"])
    np.testing.assert_allclose(found["expected"], by_loop(cases, population))
    assert found["expected"].sum() == pytest.approx(len(cases))
    assert found.geometry.to_list() == [box(k, 0, k + 1, 2) for k in range(6)]


def test_persons_and_counts_by_stratum_are_the_same():
    cases, population = tables()
    counted = cases.value_counts().rename("n").reset_index()
    persons = expected_counts(cases, population, ["age", "sex"], area="area")
    grouped = expected_counts(counted, population, ["age", "sex"], count="n", area="area")
    np.testing.assert_allclose(persons["expected"], grouped["expected"])
    assert persons["area"].to_list() == list(range(6))


def test_a_table_with_polygons_beside_it():
    cases, population = tables()
    areas = population.drop_duplicates("area")[["area", "geometry"]].iloc[::-1]
    table = pd.DataFrame(population.drop(columns="geometry"))
    found = expected_counts(cases, table, ["age", "sex"], area="area", areas=areas)
    np.testing.assert_allclose(found["expected"], by_loop(cases, population)[::-1])
    with pytest.raises(DataError, match="no polygons"):
        expected_counts(cases, table, ["age", "sex"])
    with pytest.raises(DataError, match="no polygon for '5'"):
        expected_counts(cases, table, "age", area="area", areas=areas.iloc[1:])


def test_one_stratum_shares_by_people():
    cases, population = tables()
    found = expected_counts(cases.assign(all="x"), population.assign(all="x"), "all")
    people = population.groupby("area")["population"].sum()
    np.testing.assert_allclose(found["expected"], len(cases) * people / people.sum())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c, p: (c.assign(age="80+"), p), "200 of 200 cases belong to strata in which nobody lives"),
        (lambda c, p: (c, p.assign(population=p.population.where(p.age != "70+", 0))), "nobody lives: 'age 70"),
        (lambda c, p: (c.drop(columns="sex"), p), "no column 'sex'"),
        (lambda c, p: (c, p.assign(population=-1)), "36 of 36 values are missing, negative"),
        (lambda c, p: (c.assign(age=[None, *c.age[1:]]), p), "1 of 200 rows of cases have no age or sex"),
        (lambda c, p: (c.iloc[:0], p), "no cases to share out"),
        (lambda c, p: ("cases.csv", p), "found .cases.csv."),
    ],
)
def test_what_cannot_be(change, message):
    with pytest.raises(DataError, match=message):
        expected_counts(*change(*tables()), ["age", "sex"])


def test_makes_a_map_of_relative_risk():
    cases, population = tables()
    expected = expected_counts(cases, population, ["age", "sex"], area="area")
    domain = Domain.from_polygons(box(0, 0, 6, 2), cell_size=0.5, crs="local")
    exposure, kind = node_exposure(expected, domain)
    assert exposure.sum() == pytest.approx(200) and kind == "expected"
    posterior = LGCP(FullRank(domain), Matern(1.0, lengthscale=2.0, sd=0.5), exposure=expected).fit(exposure)
    data = posterior.intensity()
    assert float(data["mean"].mean()) == pytest.approx(1.0, abs=0.05)  # the counts are what was expected
    assert posterior.units == "times the expected" and data.attrs["title"] == "Relative risk"
    assert classes_in(data, "q95").breaks.tolist() == list(RATIO_BREAKS)
    assert "Median relative risk" in str(posterior.to_map().get_root().render())
