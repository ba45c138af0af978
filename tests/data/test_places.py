"""Events whose places are areas: keys, Voronoi cells, several levels of precision."""

import warnings
from dataclasses import replace

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest
import shapely
from scipy.stats import poisson

from geobgp import LGCP, CRSError, DataError, Domain, GeometryError, HarmonicBasis, bin_areas, bin_places, bin_points
from geobgp.data.areas import combine, observed_in
from geobgp.data.places import about_shared
from geobgp.errors import DroppedPointsWarning, InputWarning, MissedVarianceWarning

LAKE = shapely.Point(7.0, 12.0).buffer(2.5)
ISLAND = shapely.box(21.0, 5.0, 24.0, 11.0)
LAND = shapely.union_all([shapely.box(0, 0, 20, 20).difference(LAKE), ISLAND])


@pytest.fixture(scope="module")
def domain():
    """A square with a lake, and an island."""
    return Domain.from_polygons(LAND, cell_size=1.0, crs="local")


@pytest.fixture(scope="module")
def districts():
    """Four quarters and the island."""
    shapes = [shapely.box(x, y, x + 10, y + 10) for x in (0, 10) for y in (0, 10)]
    return gpd.GeoDataFrame({"district": list("abcde")}, geometry=[*shapes, ISLAND])


@pytest.fixture(scope="module")
def postcodes():
    """Squares of 2.5 within the districts, and two halves of the island."""
    shapes = [shapely.box(x, y, x + 2.5, y + 2.5) for x in np.arange(0, 20, 2.5) for y in np.arange(0, 20, 2.5)]
    shapes += [shapely.box(21, 5, 24, 8), shapely.box(21, 8, 24, 11)]
    return gpd.GeoDataFrame({"postcode": [f"{k:03d}" for k in range(len(shapes))]}, geometry=shapes)


@pytest.fixture(scope="module")
def events(postcodes, districts):
    """Events on the land, each with its postcode and district, and how precisely it is known."""
    rng = np.random.default_rng(3)
    at = np.vstack([rng.uniform(0, 20, (900, 2)), rng.uniform((21, 5), (24, 11), (40, 2))])
    points = gpd.GeoDataFrame(geometry=shapely.points(at))
    points = points[points.within(LAND)].reset_index(drop=True)
    for areas in (postcodes, districts):
        name = areas.columns[0]
        points[name] = areas[name].to_numpy()[areas.sindex.nearest(points.geometry, return_all=False)[1]]
    points["precision"] = rng.choice(["exact", "postcode", "district"], len(points), p=[0.5, 0.3, 0.2])
    days = pd.date_range("2020-01-01", "2020-04-30").strftime("%Y-%m-%d").to_numpy()
    points["day"] = rng.choice(days, len(points))
    points["n"] = rng.integers(1, 4, len(points))
    return points


LEVELS = ("postcode", "district")


def of_levels(postcodes, districts):
    return dict(zip(LEVELS, (postcodes, districts), strict=True))


# -- by key


def test_events_by_key_are_the_counts_of_their_areas(events, postcodes, domain):
    counts = bin_places(events, domain, postcodes, key="postcode")
    table = postcodes.assign(cases=[(events["postcode"] == code).sum() for code in postcodes["postcode"]])
    areas = bin_areas(table, domain, "cases", name="postcode")
    np.testing.assert_array_equal(counts.values, areas.values)
    np.testing.assert_array_equal(counts.shares.toarray(), areas.shares.toarray())
    assert counts.names == areas.names
    assert counts.values.sum() == len(events)


def test_the_order_of_rows_and_of_areas_does_not_matter(events, postcodes, domain):
    first = bin_places(events, domain, postcodes, key="postcode")
    again = bin_places(events.sample(frac=1, random_state=1), domain, postcodes.iloc[::-1], key="postcode")
    assert dict(zip(first.names, first.values, strict=True)) == dict(zip(again.names, again.values, strict=True))


def test_weights_are_added_up_and_areas_without_events_are_zeros(events, postcodes, domain):
    some = events[events["postcode"] < "030"]
    counts = bin_places(some, domain, postcodes, key="postcode", weights="n")
    assert counts.values.sum() == some["n"].sum()
    assert len(counts.values) == len(postcodes)
    assert (counts.values[[name >= "030" for name in counts.names]] == 0).all()
    given = bin_places(some, domain, postcodes, key="postcode", weights=some["n"].to_numpy())
    np.testing.assert_array_equal(given.values, counts.values)


def test_areas_of_one_key_are_one_place_whose_events_are_those_of_its_parts(events, postcodes, domain):
    apart = bin_places(events, domain, postcodes, key="postcode")
    merged = postcodes.assign(postcode=postcodes["postcode"].str[:2])
    whole = bin_places(events.assign(postcode=events["postcode"].str[:2]), domain, merged, key="postcode")
    for name, value, share in zip(whole.names, whole.values, whole.shares.toarray(), strict=True):
        parts = [k for k, one in enumerate(apart.names) if one.startswith(name)]
        assert value == apart.values[parts].sum()
        np.testing.assert_allclose(share, apart.shares[parts].sum(axis=0), atol=1e-12)


@pytest.mark.parametrize("write", [lambda code: int(code), lambda code: float(code), lambda code: f" {code} "])
def test_keys_are_compared_as_texts_and_without_leading_zeros_where_these_were_lost(write, events, postcodes, domain):
    usual = bin_places(events, domain, postcodes, key="postcode")
    other = bin_places(
        events.assign(postcode=[write(c) for c in events["postcode"]]), domain, postcodes, key="postcode"
    )
    np.testing.assert_array_equal(other.values, usual.values)


def test_a_text_file_keeps_its_leading_zeros(events, postcodes, domain, tmp_path):
    path = tmp_path / "cases.csv"
    postcodes = postcodes.assign(postcode="0" + postcodes["postcode"])
    twin = gpd.GeoDataFrame({"postcode": ["5"]}, geometry=[shapely.box(30, 30, 31, 31)])
    events.assign(postcode="0" + events["postcode"])[["postcode"]].to_csv(path, index=False)
    counts = bin_places(str(path), domain, pd.concat([postcodes, twin]), key="postcode")
    assert counts.values.sum() == len(events)


def test_rows_without_a_key_or_an_area_are_left_out_and_counted(events, postcodes, domain):
    rows = pd.DataFrame(events.drop(columns="geometry"))
    rows.loc[:9, "postcode"], rows.loc[10:29, "postcode"] = None, "nowhere"
    with pytest.warns(DroppedPointsWarning) as caught:
        counts = bin_places(rows, domain, postcodes, key="postcode")
    texts = [str(warning.message) for warning in caught]
    assert any("'nowhere'" in text and text.startswith("20 of") for text in texts)
    assert any(text.startswith("10 of") for text in texts)
    assert counts.lost == {"no key": 10, "no area has their key": 20}
    assert counts.values.sum() == len(rows) - 30
    assert "events left out: no key" in counts.facts()


def test_a_warning_names_no_key_of_few(events, postcodes, domain):
    codes = events["postcode"].where(np.arange(len(events)) > 29, [f"secret {k}" for k in range(len(events))])
    with pytest.warns(DroppedPointsWarning, match="30 of") as caught:
        bin_places(events.assign(postcode=codes), domain, postcodes, key="postcode")
    assert not any("secret" in str(warning.message) for warning in caught)


def test_keys_that_do_not_agree_are_refused_with_examples_of_both(events, postcodes, domain):
    with pytest.raises(DataError, match=r"'SW1 1'; areas have '000', '001'") as caught:
        bin_places(events.assign(postcode="SW1 1"), domain, postcodes, key="postcode")
    assert caught.value.option == "key"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"key": "zip"}, "has no column 'zip'"),
        ({"key": None}, "Which column says in which place"),
        ({"key": "postcode", "weights": "day"}, "weights"),
        ({"key": "postcode", "weights": np.ones(3)}, "3 numbers"),
        ({"key": "postcode", "precision": "district"}, "for which there are no places"),
    ],
)  # fmt: skip
def test_wrong_columns_are_refused(change, words, events, postcodes, domain):
    with pytest.raises(DataError, match=words):
        bin_places(events, domain, postcodes, **change)


def test_areas_without_a_key_are_left_out_with_a_warning(events, postcodes, domain):
    postcodes = postcodes.copy()
    postcodes.loc[len(postcodes) - 1, "postcode"] = None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        counts = bin_places(events, domain, postcodes, key="postcode")
    assert any(isinstance(w.message, InputWarning) and "1 place of 66 has no" in str(w.message) for w in caught)
    assert counts.n_areas == len(postcodes) - 1


def test_events_of_areas_beyond_the_land_are_left_out_or_refused(events, postcodes, domain):
    away = gpd.GeoDataFrame({"postcode": ["sea"]}, geometry=[shapely.box(40, 40, 41, 41)])
    rows = pd.concat([events[["postcode"]], pd.DataFrame({"postcode": ["sea"] * 60})])
    places = pd.concat([postcodes, away], ignore_index=True)
    with pytest.warns(DroppedPointsWarning, match=r"60 events .*without land"):
        counts = bin_places(rows, domain, places, key="postcode")
    assert counts.lost == {"their area has no land": 60}
    assert counts.values.sum() == len(events)
    with pytest.raises(GeometryError, match=r"60 events .*without land"):
        bin_places(rows, domain, places, key="postcode", on_water="error")


# -- over periods


def test_periods_add_up_to_all_events_and_areas_without_events_in_one_are_zeros(events, postcodes, domain):
    how = {"key": "postcode", "time": "day", "every": "month"}
    counts = bin_places(events, domain, postcodes, **how)
    whole = bin_places(events, domain, postcodes, key="postcode")
    np.testing.assert_array_equal(counts.values.sum(axis=0), whole.values)
    month = pd.to_datetime(events["day"]).dt.month
    assert counts.totals.tolist() == [(month == k).sum() for k in (1, 2, 3, 4)]
    assert counts.known.all()
    array = bin_places(events, domain, postcodes, key="postcode", time=events["day"].to_numpy(), every="month")
    np.testing.assert_array_equal(array.values, counts.values)


# -- Voronoi cells


def test_cells_divide_the_land_and_each_is_nearest_to_its_place_on_its_own_side_of_the_water(domain):
    rng = np.random.default_rng(5)
    at = np.vstack([rng.uniform(0, 20, (40, 2)), [[22.0, 6.0], [23.0, 10.0]]])
    at = at[shapely.contains_xy(LAND, *at.T)]
    rows = pd.DataFrame(np.repeat(at, 3, axis=0), columns=["easting", "northing"])
    counts = bin_places(rows, domain, "voronoi")
    assert (counts.values == 3).all()
    assert counts.geometry.size == len(at)
    assert shapely.area(counts.geometry).sum() == pytest.approx(LAND.area, rel=1e-9)
    tests = rng.uniform((0, 0), (24, 20), (400, 2))
    tests = tests[shapely.contains_xy(LAND, *tests.T)]
    island = at[:, 0] > 20.5
    for point in tests:
        same = at[island == (point[0] > 20.5)]
        nearest = same[np.argmin(np.linalg.norm(same - point, axis=1))]
        (cell,) = [k for k, shape in enumerate(counts.geometry) if shape.contains(shapely.Point(point))]
        assert counts.geometry[cell].covers(shapely.Point(nearest))


def test_land_without_a_place_joins_the_nearest_and_a_place_off_the_land_has_the_land_nearest_to_it(domain):
    rows = pd.DataFrame({"easting": [3.0, 3.0, 18.0, 18.0, 7.0, 7.0], "northing": [3.0, 3.0, 8.0, 8.0, 12.0, 12.0]})
    counts = bin_places(rows, domain, "voronoi")  # the last place is in the lake, and none on the island
    assert counts.values.tolist() == [2, 2, 2]
    by_island = [shape.contains(ISLAND.centroid) for shape in counts.geometry]
    assert [shape.covers(shapely.Point(18, 8)) for shape in counts.geometry] == by_island
    assert shapely.area(counts.geometry).sum() == pytest.approx(LAND.area, rel=1e-9)


def test_points_with_a_key_stand_for_their_cells_and_those_without_events_count(domain):
    sites = gpd.GeoDataFrame({"code": [1, 2, 3, 4]}, geometry=gpd.points_from_xy([2, 15, 15, 22], [2, 15, 15, 8]))
    rows = pd.DataFrame({"code": ["1", "1", "2", "3"]})
    counts = bin_places(rows, domain, sites, key="code")
    assert sorted(counts.values.tolist()) == [0, 2, 2]  # 2 and 3 are one place on the map
    assert counts.levels is not None
    assert not counts.levels.drawn


def test_several_points_of_a_key_have_the_land_nearest_to_any_of_them(domain):
    rng = np.random.default_rng(8)
    at = rng.uniform(0, 20, (30, 2))
    each = gpd.GeoDataFrame({"code": range(30)}, geometry=shapely.points(at))
    joined = each.assign(code=each["code"] % 10)
    rows = pd.DataFrame({"code": rng.integers(0, 30, 200)})
    apart = bin_places(rows, domain, each, key="code")
    whole = bin_places(rows % 10, domain, joined, key="code")
    for name, value, share in zip(whole.names, whole.values, whole.shares.toarray(), strict=True):
        parts = [k for k, one in enumerate(apart.names) if int(one) % 10 == int(name)]
        assert value == apart.values[parts].sum()
        np.testing.assert_allclose(share, apart.shares[parts].sum(axis=0), atol=1e-9)


def test_cells_around_exact_places_are_refused(events, domain):
    with pytest.raises(DataError, match="most places are exact") as caught:
        bin_places(events, domain, "voronoi")
    assert caught.value.option == "places"


def test_cells_around_the_places_of_events_are_no_regions_and_have_no_coordinates_for_names(domain):
    rows = pd.DataFrame({"easting": [3.5, 3.5, 18.0, 18.0], "northing": [3.25, 3.25, 8.0, 8.0]})
    counts = bin_places(rows, domain, "voronoi")
    assert set(counts.names) == {"place 1", "place 2"}
    assert counts.regions is None


# -- several levels of precision


def mixed(events, postcodes, districts, domain, **how):
    counts = bin_places(events, domain, of_levels(postcodes, districts), precision="precision", **how)
    exact = events[events["precision"] == "exact"]
    time = {name: how[name] for name in how if name in ("time", "every")}
    return replace(counts, located=np.array(bin_points(exact, domain, **time).values))


def test_every_event_is_counted_at_its_own_level(events, postcodes, districts, domain):
    counts = mixed(events, postcodes, districts, domain)
    known = events["precision"].value_counts()
    of = counts.levels.of
    assert [counts.values[of == k].sum() for k in (0, 1)] == [known["postcode"], known["district"]]
    assert counts.located.sum() == known["exact"]
    assert counts.total_weight == len(events)


def test_no_exposure_is_counted_twice(events, postcodes, districts, domain):
    counts = mixed(events, postcodes, districts, domain)
    rng = np.random.default_rng(0)
    exposure, effort = rng.uniform(1, 9, domain.n_nodes), rng.uniform(0.2, 1.0, domain.n_nodes)
    rows = combine(counts, exposure, effort)
    assert rows.exposure.sum() == pytest.approx((exposure * effort).sum(), rel=1e-9)


def test_levels_that_nest_tell_of_the_map_what_the_likelihood_of_all_events_does(events, postcodes, districts, domain):
    """However many are exact in each district: sum of y log(rate behind y), less the sum of all that is expected."""
    rng = np.random.default_rng(1)
    chance = events["district"].map(dict(zip("abcde", (0.1, 0.9, 0.4, 0.6, 0.3), strict=True)))
    level = np.where(rng.random(len(events)) < chance, "exact", rng.choice(LEVELS, len(events)))
    counts = mixed(events.assign(precision=level), postcodes, districts, domain)
    rows = combine(counts, domain.node_areas)
    rates = [np.exp(rng.normal(0, 1, domain.n_nodes)) for _ in range(2)]

    def of_rows(rate):
        expected = rows.exposure @ rate
        some = expected > 0
        return poisson.logpmf(rows.counts[some], expected[some]).sum()

    def of_events(rate):
        total = -float(domain.node_areas @ rate) + float(counts.located @ np.log(rate))
        for k in range(counts.n_areas):
            within = float((counts.shares[[k]] @ (domain.node_areas * rate))[0])
            total += counts.values[k] * np.log(within)
        return total

    # Nodes on borders of districts mix them; here none does.
    assert of_rows(rates[0]) - of_rows(rates[1]) == pytest.approx(of_events(rates[0]) - of_events(rates[1]), rel=1e-6)


def test_one_level_of_areas_beside_exact_places_is_as_points_and_areas_are(events, districts, domain):
    level = events["precision"].where(events["precision"] == "exact", "district")
    counts = bin_places(events.assign(precision=level), domain, {"district": districts}, precision="precision")
    table = districts.assign(n=[(events["district"][level == "district"] == d).sum() for d in districts["district"]])
    exact = bin_points(events[level == "exact"], domain)
    ours, theirs = (
        combine(replace(one, located=exact.values), domain.node_areas)
        for one in (counts, bin_areas(table, domain, "n"))
    )
    np.testing.assert_allclose(ours.exposure.toarray(), theirs.exposure.toarray(), atol=1e-12)
    np.testing.assert_array_equal(ours.counts, theirs.counts)


def test_a_level_without_events_changes_nothing(events, postcodes, districts, domain):
    level = events["precision"].where(events["precision"] == "exact", "postcode")
    rows = events.assign(precision=level)
    with_both = bin_places(rows, domain, of_levels(postcodes, districts), precision="precision")
    alone = bin_places(rows, domain, {"postcode": postcodes}, precision="precision")
    np.testing.assert_array_equal(with_both.values, alone.values)
    assert with_both.names == alone.names


def test_levels_have_the_periods_of_all_events(events, postcodes, districts, domain):
    rows = events.assign(day=np.where(events["precision"] == "postcode", "2020-02-10", events["day"]))
    counts = mixed(rows, postcodes, districts, domain, time="day", every="month")
    assert counts.periods.n == 4
    month = pd.to_datetime(rows["day"]).dt.month
    together = counts.values.sum(axis=1) + counts.located.sum(axis=1)
    assert together.tolist() == [(month == k).sum() for k in (1, 2, 3, 4)]
    for t in range(4):
        rows_of = combine(counts.at(t), domain.node_areas)
        assert rows_of.exposure.sum() == pytest.approx(domain.node_areas.sum(), rel=1e-9)


def test_the_number_in_a_region_is_known_where_whole_areas_of_all_levels_lie_in_it(
    events, postcodes, districts, domain
):
    counts = bin_places(events, domain, of_levels(postcodes, districts), precision="precision")
    regions = gpd.GeoDataFrame(geometry=[shapely.box(0, 0, 10, 20), shapely.box(0, 0, 2.5, 2.5)])
    areal = events[events["precision"] != "exact"]
    assert observed_in(counts, regions)[0] == areal["district"].isin(["a", "b"]).sum()
    assert np.isnan(observed_in(counts, regions)[1])  # of the events of a district nobody knows which are in it


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"precision": None}, "nothing says which level"),
        ({"precision": "quality"}, "no column 'quality'"),
    ],
)  # fmt: skip
def test_levels_need_a_column_that_says_so(change, words, events, postcodes, districts, domain):
    with pytest.raises(DataError, match=words):
        bin_places(events, domain, of_levels(postcodes, districts), **change)


def test_levels_without_places_rows_without_level_and_exact_rows_alone_are_refused(events, postcodes, domain):
    with pytest.raises(DataError, match="'district', for which there are no places"):
        bin_places(events, domain, {"postcode": postcodes}, precision="precision")
    gaps = events["precision"].where(np.arange(len(events)) > 6)
    with pytest.raises(DataError, match=r"7 rows of .* do not say"):
        bin_places(events.assign(precision=gaps), domain, {"postcode": postcodes}, precision="precision")
    with pytest.raises(DataError, match="are exact"):
        bin_places(events.assign(precision="Exact"), domain, {"postcode": postcodes}, precision="precision")


def test_areas_tell_more_than_their_middles_taken_for_places(postcodes, domain):
    """Fitted to the same counts, on rates that the prior did not draw."""
    basis, found = HarmonicBasis.compute(domain, 100, cache=False), []
    for seed in range(3):
        rng, (east, north) = np.random.default_rng(seed), domain.node_points.T
        rate = 2.0 + 6.0 * np.exp(-0.5 * ((east - rng.uniform(3, 17)) ** 2 + (north - rng.uniform(3, 17)) ** 2) / 9.0)
        counts = bin_points(np.repeat(domain.node_points, rng.poisson(rate * domain.node_areas), axis=0), domain)
        nearest = postcodes.sindex.nearest(shapely.points(domain.node_points), return_all=False)[1]
        codes = postcodes["postcode"].to_numpy()[np.repeat(nearest, counts.values.astype(int))]
        areas = bin_places(pd.DataFrame({"postcode": codes}), domain, postcodes, key="postcode")
        middle = postcodes.set_index("postcode").geometry.centroid.loc[codes]
        each = []
        for observed in (areas, bin_points(gpd.GeoSeries(middle), domain)):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", MissedVarianceWarning)  # middles look like small hot spots
                at = LGCP(basis).fit(observed).node_intensity((0.05, 0.95))
            true, mean = (v * domain.node_areas / (v @ domain.node_areas) for v in (rate, at["mean"]))
            each += [np.mean((at["q05"] <= rate) & (rate <= at["q95"])), float(true @ np.log(true / mean))]
        found.append(each)
    inside, divergence, of_middles, divergence_of_middles = np.mean(found, axis=0)
    assert inside > 0.8 > of_middles
    assert divergence < 0.5 * divergence_of_middles


# -- points that share their places


def test_points_on_few_places_are_told_of_and_others_are_not():
    rng = np.random.default_rng(2)
    places = rng.uniform(0, 10_000, (60, 2))
    many = places[rng.integers(0, 60, 500)]
    warning = about_shared(many, None)
    assert warning is not None
    assert "60 places" in str(warning)
    assert warning.option == "places"
    assert about_shared(rng.uniform(0, 1, (500, 2)), None) is None
    assert about_shared(np.vstack([many[:200], rng.uniform(0, 1, (300, 2))]), None) is None
    assert about_shared(many[:50], None) is None
    copies = np.repeat(rng.uniform(0, 1, (200, 2)), 2, axis=0)
    one_place = np.vstack([np.zeros((300, 2)), rng.uniform(0, 1, (200, 2))])
    assert about_shared(copies, None) is None
    assert about_shared(one_place, None) is None


def test_places_without_a_crs_or_off_the_land_are_refused(events, postcodes):
    land = gpd.GeoSeries([LAND], crs=32630).affine_transform([1000, 0, 0, 1000, 500_000, 5_000_000])
    domain = Domain.from_polygons(land, cell_size=1000)
    sites = gpd.GeoDataFrame({"code": [1, 2]}, geometry=gpd.points_from_xy([502_000, 515_000], [5_002_000, 5_015_000]))
    rows = pd.DataFrame({"code": [1, 1, 2]})
    with pytest.raises(CRSError, match="no coordinate reference system"):
        bin_places(rows, domain, sites, key="code")
    assert sorted(bin_places(rows, domain, sites.set_crs(32630), key="code").values.tolist()) == [1, 2]
    with pytest.raises(GeometryError, match="None of 2 places lies on the land"):
        bin_places(
            rows, domain, sites.set_crs(32630).translate(5e6, 0).to_frame("geometry").assign(code=[1, 2]), key="code"
        )
    shared = pd.DataFrame(
        {"easting": [502_000, 502_000, 515_000, 515_000], "northing": [5_002_000] * 2 + [5_015_000] * 2}
    )
    assert bin_places(shared, domain, "voronoi").values.tolist() == [2, 2]
