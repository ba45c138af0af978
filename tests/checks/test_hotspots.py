"""Hot spots and people above a threshold: against loops over joint draws, on land that water divides, and over time."""

from dataclasses import replace

import geopandas as gpd
import numpy as np
import pytest
import shapely
from geopandas.testing import assert_geodataframe_equal
from models import square
from pairs import HALVES, mapped
from posteriors import fitted, island, prescribed

from geobgp import LGCP, DataError, Domain, FullRank, Matern, Periods
from geobgp.checks.hotspots import about_hotspots, connected_parts, hotspots_above, numbered, read_hotspots

DRAWS = 400
pytestmark = pytest.mark.filterwarnings("ignore::geobgp.errors.GeobgpWarning")


def people(posterior):
    """The same posterior with a population in the place of the land, so that its rate is per person."""
    density = 1.0 + np.arange(posterior.domain.n_nodes) % 7
    return replace(posterior, exposure=density * posterior.exposure, exposure_kind="population")


def nodes_in(posterior, shape):
    return np.array(
        [shape.buffer(1e-3).contains(one) for one in posterior.domain.polygon_of(range(len(posterior.exposure)))]
    )


def test_the_numbers_are_those_of_a_loop_over_draws():
    posterior = people(fitted()[0])
    threshold = float(np.quantile(posterior.node_intensity()["mean"], 0.5))
    table = posterior.hotspots(threshold, 0.9, n_samples=DRAWS, rng=4)
    assert len(table) > 1 and (table["hotspot"] == np.arange(1, len(table) + 1)).all()
    draws = posterior.sample(DRAWS, 4).values
    exact = posterior.node_intensity()["mean"].to_numpy()
    together = np.zeros(posterior.domain.n_nodes, bool)
    for _, row in table.iterrows():
        inside = nodes_in(posterior, row.geometry)
        together |= inside
        weight = posterior.exposure[inside]
        all_above = [bool((draw[inside] > threshold).all()) for draw in draws]
        events = np.array([float(draw[inside] @ weight) for draw in draws])
        assert row["p_all"] == pytest.approx(np.mean(all_above)) and row["p_all"] >= 0.9
        assert (
            row["p_mean"] == pytest.approx(np.mean(events / weight.sum() > threshold)) and row["p_mean"] >= row["p_all"]
        )
        assert row["exposure"] == pytest.approx(weight.sum())
        assert row["expected"] == pytest.approx(float(exact[inside] @ weight))
        assert row["q05"] == pytest.approx(np.quantile(events, 0.05))
        assert row["rate_q95"] == pytest.approx(np.quantile(events, 0.95) / weight.sum())
        assert row["relative_risk"] == pytest.approx(row["rate"] / posterior.overall)
        assert row["observed"] == posterior.observed[inside].sum()
        assert row["land_km2"] == pytest.approx(posterior.domain.node_areas[inside].sum() / 1e6)
    np.testing.assert_array_equal(together, posterior.excursion(threshold, 0.9, n_samples=DRAWS, rng=4).above)


def test_parts_hang_together_over_land_alone():
    domain = island()
    parts = connected_parts(domain, np.ones(domain.n_nodes, bool))
    # The river thinner than a cell divides the land, and the islet lies apart: pixels would touch.
    assert len(parts) == domain.n_components > 2
    for part in parts:
        assert len(set(domain.components[part])) == 1
    corner = square(2.0)
    east, north = corner.node_points.T
    assert len(connected_parts(corner, (east > 1) == (north > 1))) == 2
    assert connected_parts(corner, np.zeros(4, bool)) == []


def test_two_banks_of_a_river_are_two_hot_spots_and_a_bridge_makes_them_one():
    land, river = shapely.box(0, 0, 8, 8), shapely.box(-1, 3.6, 9, 3.7)
    posts = {"no": None, "one": gpd.GeoDataFrame({"width": [1.0]}, geometry=[shapely.LineString([(4.5, 2), (4.5, 6)])])}
    found = {}
    for name, bridges in posts.items():
        domain = Domain.from_polygons(land, water=river, bridges=bridges, cell_size=1, crs="local")
        found[name] = len(prescribed(domain, 2.0, 0.01).hotspots(1.0, n_samples=50))
    assert found == {"no": 2, "one": 1}


def test_nothing_hot_is_an_empty_table_with_all_columns():
    posterior = people(fitted()[0])
    some, none = posterior.hotspots(0.5, n_samples=50), posterior.hotspots(1e9, n_samples=50)
    assert len(none) == 0 and list(none) == list(some) and none.crs == some.crs


def test_where_nobody_lives_there_is_no_hot_spot():
    domain = square()
    posterior = prescribed(domain, 2.0, 0.01)
    empty = domain.node_points[:, 0] < 3
    posterior = replace(posterior, exposure=np.where(empty, 0.0, 5.0), exposure_kind="population")
    table = posterior.hotspots(1.0, n_samples=50)
    assert len(table) == 1 and table["exposure"].iloc[0] == 5.0 * (~empty).sum()
    cut = posterior.hotspots(1.0, n_samples=50).geometry.iloc[0]
    assert cut.area == pytest.approx(100.0)  # land without people is part of what hangs together with others'
    assert len(replace(posterior, exposure=np.where(empty, 1.0, 0.0)).hotspots(1.0, n_samples=50)) == 1


@pytest.fixture(scope="module")
def course():
    """Six years on two islands: the west hot always, more in two of them; the east in the third and the sixth."""
    domain = Domain.from_polygons([shapely.box(0, 0, 6, 12), shapely.box(7, 0, 13, 12)], cell_size=1, crs="local")
    years = Periods.calendar("year", "2015", "2020")
    east, north = domain.node_points.T
    west = np.exp(-((east - 3) ** 2 + (north - 6) ** 2) / 4)
    other = np.exp(-((east - 10) ** 2 + (north - 6) ** 2) / 4)
    height = np.array([20, 20, 20, 60, 60, 15])
    again = np.array([0, 0, 40, 0, 0, 40])
    means = 1.0 + height[:, None] * west + again[:, None] * other
    counts = np.random.default_rng(3).poisson(means).astype(float)
    basis_model = LGCP(_basis(domain), Matern(1.5, lengthscale=3.0, sd=1.2), dynamics="separable")
    return basis_model.fit(counts, periods=years)


def _basis(domain):
    from geobgp import HarmonicBasis

    return HarmonicBasis.compute(domain, 80, cache=False)


def test_hot_spots_are_followed_and_classed(course):
    table = course.hotspots(4.0, 0.9, n_samples=DRAWS)
    west = table[table.contains(shapely.Point(2.5, 5.5))].set_index("period")
    assert west["hotspot"].nunique() == 1
    expected = ["first", "persistent", "persistent", "intensifying", "persistent", "diminishing"]
    assert west["class"].tolist() == expected
    other = table[table.contains(shapely.Point(9.5, 5.5))].set_index("period")
    assert other["class"].to_dict() == {"2017": "new", "2018": "former", "2020": "sporadic"}
    assert other["hotspot"].nunique() == 1 and other["hotspot"].iloc[0] != west["hotspot"].iloc[0]
    sure = west.loc[["2018", "2020"], "p_class"]
    assert (sure >= 0.9).all() and (table["p_class"].between(0, 1)).all()
    only = course.hotspots(4.0, 0.9, n_samples=DRAWS, period="2018")
    assert only["class"].tolist() == table[table["period"] == "2018"]["class"].tolist()


def test_classes_are_those_of_a_loop_over_joint_draws(course):
    table = course.hotspots(4.0, 0.9, n_samples=DRAWS, rng=2)
    draws = course.sample(DRAWS, 2).values
    labels = list(course.periods.labels)

    def mean(draw, nodes):
        return draw[nodes] @ course.exposure[nodes] / course.exposure[nodes].sum()

    checked = set()
    for _, row in table.iterrows():
        t = labels.index(row["period"])
        nodes = nodes_in(course, row.geometry)
        if row["class"] in ("first", "new", "sporadic", "former"):
            holds = [(mean(d[t], nodes) > 4.0) and (t == 0 or mean(d[t], nodes) > mean(d[t - 1], nodes)) for d in draws]
            holds = [mean(d[t], nodes) <= 4.0 for d in draws] if row["class"] == "former" else holds
        else:
            before = table[(table["period"] == labels[t - 1]) & (table["class"] != "former")]
            for old in before.geometry:
                there = nodes_in(course, old)
                nodes = nodes | there if (there & nodes_in(course, row.geometry)).any() else nodes
            now, then = (np.array([mean(d[s], nodes) for d in draws]) for s in (t, t - 1))
            both = (now > 4.0) & (then > 4.0)
            moves = {"persistent": both, "intensifying": both & (now > then), "diminishing": both & (now <= then)}
            holds = moves[row["class"]]
        assert row["p_class"] == pytest.approx(np.mean(holds)), row["class"]
        checked.add(row["class"])
    assert checked >= {"first", "new", "persistent", "intensifying", "diminishing", "former", "sporadic"}


def test_small_numbers_stay_hidden():
    posterior, _ = fitted()
    hidden = posterior.protected(6)
    threshold = float(np.quantile(posterior.node_intensity()["mean"], 0.7))
    table = hidden.hotspots(threshold, 0.8, n_samples=DRAWS)
    told = hidden.node_intensity()["mean"].to_numpy()
    assert len(table) and "observed" not in table
    for _, row in table.iterrows():
        inside = nodes_in(posterior, row.geometry)
        assert np.isfinite(told[inside]).all()
        # Nothing but what the map tells: the sum of its cells, in its steps.
        assert row["expected"] == pytest.approx(float(told[inside] @ posterior.exposure[inside]))
    above = hidden.people_above(threshold, n_samples=DRAWS).iloc[0]
    assert above["km2_hidden"] == pytest.approx(posterior.exposure[np.isnan(told)].sum()) and above["km2_hidden"] > 0
    assert above["km2_above"] < posterior.exposure[np.isfinite(told)].sum()


def test_areas_are_named_and_events_are_known_of_whole_ones():
    posterior = mapped("areas", "in space")
    threshold = float(np.quantile(posterior.node_intensity()["mean"], 0.6))
    table = posterior.hotspots(threshold, 0.6, n_samples=200)
    frame = posterior.areas.frame()
    land = shapely.area(shapely.intersection(frame.geometry.to_numpy(), posterior.domain.geometry))
    for _, row in table.iterrows():
        share = shapely.area(shapely.intersection(frame.geometry.to_numpy(), row.geometry)) / land
        assert row["areas"] == ", ".join(frame["name"][share > 0.5].astype(str))
        assert np.isnan(row["observed"]) == ((share > 0.01) & (share < 0.99)).any()
    assert (table["areas"] != "").any() and table["observed"].isna().any()
    whole = posterior.hotspots(threshold / 1e6, 0.6, n_samples=200)
    assert whole["observed"].sum() == frame["observed"].sum() > 0


@pytest.mark.parametrize("kind", ["km2", "people"])
def test_people_above_are_those_of_a_loop_over_draws(kind):
    posterior = fitted()[0] if kind == "km2" else people(fitted()[0])
    threshold = float(np.quantile(posterior.node_intensity()["mean"], 0.7))
    whole = posterior.people_above(threshold, n_samples=DRAWS, rng=1).iloc[0]
    draws = posterior.sample(DRAWS, 1).values
    sums = np.array([posterior.exposure[draw > threshold].sum() for draw in draws])
    for q in (0.05, 0.5, 0.95):
        assert whole[f"{kind}_above_q{100 * q:02.0f}"] == pytest.approx(np.quantile(sums, q))
    chance = posterior.link.exceedance(posterior._shown_nodes, threshold)
    assert whole[f"{kind}_above"] == pytest.approx(float(posterior.exposure @ chance))
    assert whole["share_above"] == pytest.approx(whole[f"{kind}_above"] / posterior.exposure.sum())
    # Regions share out what is above, a cell that their border crosses too.
    middle = 154_700.0
    halves = [shapely.box(0, 0, middle, 1e6), shapely.box(middle, 0, 1e6, 1e6)]
    parts = posterior.people_above(threshold, gpd.GeoSeries(halves, crs=28992), n_samples=DRAWS)
    assert parts[f"{kind}_above"].sum() == pytest.approx(whole[f"{kind}_above"])


def test_people_above_of_periods(course):
    table = course.people_above(4.0, n_samples=DRAWS, rng=1)
    draws = course.sample(DRAWS, 1).values
    for t, (_, row) in enumerate(table.iterrows()):
        assert row["period"] == course.periods.labels[t]
        sums = [course.exposure[draw[t] > 4.0].sum() for draw in draws]
        assert row["area_above_q50"] == pytest.approx(np.median(sums))


def test_controls_are_told_where_small_numbers_are_not_hidden():
    posterior = mapped("cases and controls", "in space")
    table = posterior.people_above(1.0, HALVES, n_samples=100)
    assert {"controls_above", "share_above"} <= set(table)
    hidden = posterior.protected(3)
    assert "km2_above" in hidden.people_above(1.0, HALVES, n_samples=100)
    spots = hidden.hotspots(1.0, 0.5, n_samples=100)
    assert not {"observed", "exposure"} & set(spots) and "relative_risk" in spots


def test_thresholds_that_mean_nothing_are_refused():
    posterior, _ = fitted()
    for ask in (posterior.hotspots, posterior.people_above):
        with pytest.raises(DataError, match="positive"):
            ask(0.0)
    with pytest.raises(DataError, match="cannot tell"):
        posterior.hotspots(1.0, 0.99, n_samples=20)


def test_full_resolution_has_them_too():
    domain = square()
    counts = np.where(domain.node_points[:, 0] < 4, 9.0, 1.0)
    table = LGCP(FullRank(domain), Matern(1.0, 4.0, 1.0)).fit(counts).hotspots(3.0)
    assert len(table) == 1 and table.geometry.iloc[0].centroid.x < 4


def test_tables_of_regions_count_what_lies_above_thresholds():
    posterior = people(fitted()[0])
    low, high = np.quantile(posterior.node_intensity()["mean"], (0.5, 0.8)).round(3)
    middle = 154_700.0
    halves = gpd.GeoSeries([shapely.box(0, 0, middle, 1e6), shapely.box(middle, 0, 1e6, 1e6)], crs=28992)
    table = posterior.totals(halves, thresholds=(low, high), n_samples=DRAWS, rng=3)
    for value in (low, high):
        alone = posterior.people_above(value, halves, n_samples=DRAWS, rng=3)
        for name in ("people_above", "people_above_q05", "share_above", "share_above_q95"):
            of, _, ending = name.partition("above")
            np.testing.assert_allclose(table[f"{of}above_{value:g}{ending}"], alone[name])
    assert (table[f"people_above_{high:g}"] < table[f"people_above_{low:g}"]).all()


def test_tables_over_time_and_of_hidden_regions(course):
    west = shapely.box(0, 0, 6.5, 12)
    table = course.totals([west, shapely.box(6.5, 0, 13, 12)], thresholds=(4.0,), n_samples=DRAWS, rng=1)
    draws = course.sample(DRAWS, 1).values
    inside = course.domain.node_points[:, 0] < 6.5
    for t, (_, row) in enumerate(table.iloc[::2].iterrows()):
        sums = [course.exposure[inside & (draw[t] > 4.0)].sum() for draw in draws]
        assert row["area_above_4_q95"] == pytest.approx(np.quantile(sums, 0.95))
    hidden = (
        fitted()[0]
        .protected(6)
        .totals(
            gpd.GeoSeries([shapely.box(136_000, 479_000, 136_500, 479_600)], crs=28992),
            thresholds=(0.2,),
            n_samples=100,
        )
    )
    assert hidden["hidden"].all() and hidden["km2_above_0.2"].isna().all()


def test_hot_spots_above_several_thresholds_are_one_table():
    posterior = people(fitted()[0])
    low, high = np.quantile(posterior.node_intensity()["mean"], (0.5, 0.8)).round(3)
    table = hotspots_above(posterior, [high, low, high], 0.9)
    for value in (low, high):
        rows = table[table["threshold"] == value].reset_index(drop=True)
        assert_geodataframe_equal(rows, posterior.hotspots(value, 0.9), check_like=True)
    cold, hot = (table[table["threshold"] == value].union_all() for value in (low, high))
    assert hot.difference(cold).area < 1e-6 * hot.area and hot.area < cold.area
    assert numbered(table)[0] == f"Hot spot 1 above {low:g}" and f"{low:g} or {high:g} events" in about_hotspots(table)
    none = hotspots_above(posterior, [1e9])
    assert len(none) == 0 and list(none) == list(table)


def test_what_outputs_take_for_hot_spots():
    posterior = people(fitted()[0])
    assert read_hotspots(posterior, None, (0.2,)) is None and read_hotspots(posterior, False, (0.2,)) is None
    computed = read_hotspots(posterior, True, (0.2,))
    assert read_hotspots(posterior, computed, ()) is computed
    degrees = read_hotspots(posterior, computed.to_crs(4326), ())
    assert degrees.crs == posterior.domain.crs
    with pytest.raises(DataError, match=r"none was given. Give thresholds, in events per person"):
        read_hotspots(posterior, True, ())
    with pytest.raises(DataError, match="no hotspot and no threshold and no p_all"):
        read_hotspots(posterior, HALVES, ())
