"""Maps of events whose places are areas, in one call, by stratum, over time and from the shell."""

import json

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest
import shapely
from click.testing import CliRunner

from geobgp import DataError, Posterior, map_intensity, map_prevalence, map_risk, map_strata, map_tiles, map_values
from geobgp.cli.app import cli
from geobgp.errors import InputWarning

LAND = shapely.union_all([shapely.box(0, 0, 20, 20), shapely.box(22, 5, 25, 11)])
HOW = {"crs": "local", "cell_size": 1.0, "m": 40, "cache": False}


@pytest.fixture(scope="module")
def postcodes():
    """Squares of 2.5 and an island."""
    shapes = [shapely.box(x, y, x + 2.5, y + 2.5) for x in np.arange(0, 20, 2.5) for y in np.arange(0, 20, 2.5)]
    shapes.append(shapely.box(22, 5, 25, 11))
    return gpd.GeoDataFrame({"postcode": [f"{k:02d}" for k in range(len(shapes))]}, geometry=shapes)


@pytest.fixture(scope="module")
def districts():
    """Halves and the island."""
    halves = [shapely.box(0, 0, 10, 20), shapely.box(10, 0, 20, 20), shapely.box(22, 5, 25, 11)]
    return gpd.GeoDataFrame({"district": ["west", "east", "island"]}, geometry=halves)


@pytest.fixture(scope="module")
def events(postcodes, districts):
    """Events around a town, with postcode, district, precision, month and sex."""
    rng = np.random.default_rng(4)
    at = np.vstack(
        [rng.normal((6, 7), 3, (400, 2)), rng.uniform(0, 20, (300, 2)), rng.uniform((22, 5), (25, 11), (30, 2))]
    )
    rows = gpd.GeoDataFrame(geometry=shapely.points(at))
    rows = rows[rows.within(LAND)].reset_index(drop=True)
    for areas in (postcodes, districts):
        rows[areas.columns[0]] = areas.iloc[areas.sindex.nearest(rows.geometry, return_all=False)[1], 0].to_numpy()
    rows["precision"] = rng.choice(["exact", "postcode", "district"], len(rows))
    rows["day"] = rng.choice([f"2020-{m:02d}-{d:02d}" for m in (1, 2, 3) for d in (3, 14)], len(rows))
    rows["sex"] = rng.choice(["f", "m"], len(rows))
    return rows


def middles(events, postcodes):
    """Return events at the middles of their postcodes."""
    middle = postcodes.set_index("postcode").geometry.centroid
    return gpd.GeoDataFrame(events.drop(columns="geometry"), geometry=middle.loc[events["postcode"]].to_numpy())


def means(posterior):
    return posterior.node_intensity()["mean"]


def test_events_by_key_give_the_map_of_their_counts(events, postcodes):
    table = pd.DataFrame(events.drop(columns="geometry"))
    by_key = map_intensity(table, LAND, places=postcodes, key="postcode", **HOW)
    counted = postcodes.assign(n=[(table["postcode"] == code).sum() for code in postcodes["postcode"]])
    by_area = map_intensity(areas=counted, count="n", land=LAND, **HOW)
    np.testing.assert_allclose(means(by_key), means(by_area), rtol=1e-10)
    assert by_key.points["in_areas"] == len(events)


def test_exact_places_alone_give_the_map_without_places(events, postcodes, districts):
    how = {"places": {"postcode": postcodes, "district": districts}, "precision": "precision"}
    exact = map_intensity(events.assign(precision="exact"), LAND, permeability=0, **how, **HOW)
    plain = map_intensity(events, LAND, permeability=0, **HOW)
    np.testing.assert_array_equal(means(exact), means(plain))
    assert exact.areas is None


def test_mixed_precision_uses_every_event_once_and_is_saved_whole(events, postcodes, districts, tmp_path):
    how = {"places": {"postcode": postcodes, "district": districts}, "precision": "precision"}
    posterior = map_intensity(events, LAND, **how, **HOW)
    assert posterior.areas.total_weight == len(events)
    assert posterior.points["used"] == len(events)
    assert float(posterior.totals()["expected"].iloc[0]) == pytest.approx(
        len(events), rel=0.03
    )  # none twice, none lost
    again = Posterior.load(posterior.save(tmp_path / "p.geobgp"))
    np.testing.assert_array_equal(means(again), means(posterior))
    assert again.areas.levels.names == ("postcode", "district")
    assert again.areas.resolution == posterior.areas.resolution
    checked = posterior.cross_validate()
    assert 0.7 < checked.coverage <= 1.0


def test_cells_are_the_same_for_all_strata(events, postcodes):
    rows = middles(events, postcodes)
    rows = rows[(rows["sex"] == "f") | (rows["postcode"] < "40")]
    strata = map_strata(rows, LAND, by="sex", places="voronoi", n_jobs=1, **HOW)
    both = list(strata.counts.values())
    assert both[0].n_areas == both[1].n_areas == rows["postcode"].nunique()
    assert sum(one.values.sum() for one in both) == len(rows)
    assert min(one.values.min() for one in both) == 0
    keyed = map_strata(rows, LAND, by="sex", places=postcodes, key="postcode", n_jobs=1, **HOW)
    assert [one.n_areas for one in keyed.counts.values()] == [len(postcodes)] * 2


def test_periods_of_all_levels(events, postcodes, districts):
    how = {"places": {"postcode": postcodes, "district": districts}, "precision": "precision"}
    posterior = map_intensity(events, LAND, time="day", every="month", **how, **{**HOW, "m": 60})
    month = events["day"].str[5:7].astype(int)
    together = posterior.areas.totals + posterior.areas.located.sum(axis=1)
    assert together.tolist() == [(month == k).sum() for k in (1, 2, 3)]


def test_events_by_postcode_may_be_reported_late(events, postcodes):
    rng, days = np.random.default_rng(6), pd.date_range("2020-01-06", "2020-03-29")
    rows = pd.DataFrame({"postcode": events["postcode"], "day": rng.choice(days, len(events))})
    rows["told"] = rows["day"] + pd.to_timedelta(rng.poisson(8, len(rows)), "D")
    how = {"time": "day", "every": "week", "reported": "told", "as_of": "2020-03-22", **HOW, "m": 60}
    posterior = map_intensity(rows, LAND, places=postcodes, key="postcode", permeability=0, **how)
    assert posterior.areas.totals.sum() == (rows["told"] <= "2020-03-22").sum()
    whole = rows[rows["day"] <= "2020-03-22"]
    last = posterior.totals(gpd.GeoDataFrame(geometry=[LAND]), predicted=True).iloc[-1]
    assert last["final_q05"] <= (whole["day"] >= "2020-03-16").sum() <= last["final_q95"]


def test_points_on_shared_places_are_told_of(events, postcodes):
    with pytest.warns(InputWarning, match="share their place with others: there are 65 places, half of them within"):
        map_intensity(middles(events, postcodes), LAND, permeability=0, **HOW)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"key": "postcode"}, "belongs to events whose places are areas"),
        ({"precision": "precision"}, "belongs to events whose places are areas"),
        ({"places": "POSTCODES"}, "Which column says in which place"),
        ({"places": {"postcode": "POSTCODES"}}, "nothing says which of them"),
        ({"places": "POSTCODES", "key": "postcode", "areas": "POSTCODES", "count": "n"}, "counts without rows"),
        ({"places": "POSTCODES", "key": "postcode", "time": "day", "every": "month", "absent": "zero"}, "absent"),
        (
            {"places": "POSTCODES", "key": "postcode", "time": "day", "every": "week"}
            | {"reported": "day", "delay_by": "sex"},
            "delay_by",
        ),
        ({"places": {}}, "places must be"),
        ({"places": "POSTCODES", "key": 3}, "key must be"),
    ],
)  # fmt: skip
def test_options_that_do_not_go_together_are_refused(options, words, events, postcodes):
    def real(value):
        if isinstance(value, dict):
            return {name: real(one) for name, one in value.items()}
        return postcodes if value == "POSTCODES" else value

    with pytest.raises(DataError, match=words):
        map_intensity(events, LAND, **real(options), **HOW)


@pytest.mark.parametrize(
    ("function", "given"),
    [
        (map_risk, {"controls": "ROWS"}),
        (map_values, {"value": "n"}),
        (map_prevalence, {"positive": "n", "tested": "n"}),
        (map_tiles, {"out": "tiles", "cell_size": 1.0}),
    ],
)  # fmt: skip
def test_other_kinds_of_data_refuse_places(function, given, events, postcodes):
    given = {name: events if value == "ROWS" else value for name, value in given.items()}
    with pytest.raises(DataError, match="places"):
        function(events, land=LAND, places=postcodes, **given)


def test_the_shell_maps_events_by_postcode_and_writes_where_they_were(events, postcodes, districts, tmp_path):
    def file(frame, name):
        path = tmp_path / name
        moved = frame.copy()
        moved["geometry"] = moved.geometry.affine_transform([1000, 0, 0, 1000, 5e5, 5e6])
        moved.set_crs(32630).to_file(path)
        return str(path)

    rows = pd.DataFrame(events.drop(columns="geometry"))
    at = events.geometry.affine_transform([1000, 0, 0, 1000, 5e5, 5e6])
    rows["easting"], rows["northing"] = at.x, at.y
    rows.loc[rows["precision"] != "exact", ["easting", "northing"]] = np.nan
    rows.loc[0, ["precision", "postcode"]] = "postcode", "99"
    rows.to_csv(tmp_path / "cases.csv", index=False)
    land = file(gpd.GeoDataFrame(geometry=[LAND]), "land.gpkg")
    words = [
        "map", str(tmp_path / "cases.csv"), "--land", land, "--places", f"postcode={file(postcodes, 'postcodes.gpkg')}",
        "--places", f"district={file(districts, 'districts.gpkg')}", "--key", "postcode=postcode", "--precision",
        "precision", "--cell-size", "1000", "--features", "40", "--no-cache", "--no-checks",
        "-o", str(tmp_path / "out"),
    ]  # fmt: skip
    result = CliRunner().invoke(cli, words)
    assert result.exit_code == 0, result.output
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["points"]["used"] == len(rows) - 1
    assert summary["points"]["dropped"] == 1
    assert summary["options"]["places"] == {"postcode": "postcodes.gpkg", "district": "districts.gpkg"}
    assert "--places postcode=postcodes.gpkg --places district=districts.gpkg" in summary["command"]
    report = (tmp_path / "out" / "report.html").read_text()
    assert "half of the events are in areas up to" in report
    regions = gpd.read_file(tmp_path / "out" / "regions.gpkg")
    assert sorted(regions["name"]) == ["east", "island", "west"]
    twice = CliRunner().invoke(cli, [*words[:8], "--places", "other.gpkg", *words[8:]])
    assert twice.exit_code != 0
