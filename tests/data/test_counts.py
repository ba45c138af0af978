"""Counts: every point is somewhere, on its own side of the river, and nothing is dropped in silence."""

import warnings

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st
from paths import SAMPLE
from shapely.geometry import LineString, MultiPoint, Point, box
from strategies import coordinates, island_groups

from geobgp import CRSError, DataError, Domain, GeobgpWarning, GeometryError, bin_points
from geobgp.data import counts as counts_module
from geobgp.data.counts import read_points
from geobgp.data.points import Stream
from geobgp.errors import DroppedPointsWarning


@pytest.fixture(scope="module")
def square():
    """Four by four cells of a local plane."""
    return Domain.from_polygons(box(0, 0, 4, 4), cell_size=1, crs="local")


@pytest.fixture(scope="module")
def netherlands():
    return Domain.from_polygons(
        SAMPLE / "netherlands_land.gpkg", water=SAMPLE / "netherlands_water.gpkg", cell_size=5000
    )


def quietly(*args, **kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GeobgpWarning)
        return bin_points(*args, **kwargs)


# --- laws -----------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    land=island_groups(),
    coords=coordinates(),
    on_water=st.sampled_from(["nearest", "drop"]),
    max_snap=st.sampled_from([None, 0.0, 0.5, 100.0]),
    chunksize=st.sampled_from([1, 7, 1000]),
)
def test_counts_and_drops_add_up_to_the_points_read(land, coords, on_water, max_snap, chunksize):
    domain = Domain.from_polygons(land, cell_size=0.7, crs="local")
    max_snap = max_snap if on_water == "nearest" else None
    counts = quietly(coords, domain, on_water=on_water, max_snap=max_snap, chunksize=chunksize)
    assert counts.values.shape == (domain.n_nodes,)
    assert counts.values.sum() + counts.n_dropped == counts.n_read == len(coords)
    assert counts.n_used == counts.values.sum() == counts.total_weight
    assert counts.n_snapped <= counts.n_used and counts.n_missing == 0
    assert counts.max_snap_distance <= (1.4 if max_snap is None else max_snap)
    if on_water == "drop":
        assert counts.n_snapped == 0


@settings(max_examples=30, deadline=None)
@given(land=island_groups(), coords=coordinates(n_max=40), data=st.data())
def test_a_loop_says_the_same(land, coords, data):
    """The plain reading: the node whose land is nearest, within reach."""
    domain = Domain.from_polygons(land, cell_size=1.1, crs="local")
    weights = np.array(data.draw(st.lists(st.floats(0, 9), min_size=len(coords), max_size=len(coords))))
    counts = quietly(coords, domain, weights=weights, max_snap=1.0)
    homes = domain.polygon_of(np.arange(domain.n_nodes))
    expected, ties, snapped, far = np.zeros(domain.n_nodes), 0, 0, 0.0
    for place, weight in zip(coords, weights, strict=True):
        distance = shapely.distance(homes, Point(place))
        best = distance.min(initial=np.inf)
        if best > 1.0:
            continue
        ties += (distance <= best + 1e-9).sum() > 1  # on a shared edge either node is right
        expected[distance.argmin()] += weight
        snapped += best > 1e-9
        far = max(far, best)
    if not ties:
        assert counts.values == pytest.approx(expected, abs=1e-9)
    assert counts.total_weight == pytest.approx(expected.sum(), abs=1e-9)
    assert counts.max_snap_distance == pytest.approx(far, abs=1e-6)
    assert counts.n_snapped == snapped


def test_chunks_make_no_difference(netherlands):
    bites = gpd.read_file(SAMPLE / "tick_bites_simulated.gpkg")
    whole = bin_points(bites, netherlands)
    assert whole.n_used == 4446 and whole.n_snapped == whole.n_dropped == 0
    for source in (SAMPLE / "tick_bites_simulated.gpkg", bites.to_crs(28992), (bites.iloc[i::7] for i in range(7))):
        parts = bin_points(source, netherlands, chunksize=1000)
        assert (parts.values == whole.values).all() and parts.n_read == 4446


def test_own_side_of_the_river():
    river = box(1.48, -1, 1.52, 5)
    domain = Domain.from_polygons(box(0, 0, 3, 4), water=river, cell_size=1, crs="local")
    rng = np.random.default_rng(1)
    coords = np.c_[rng.uniform(1, 2, 4000), rng.uniform(0, 4, 4000)]
    counts = bin_points(coords, domain)
    left = domain.node_points[:, 0] < 1.5
    assert domain.n_components == 2
    assert counts.values[left].sum() == (coords[:, 0] < 1.5).sum()
    assert counts.n_snapped == (np.abs(coords[:, 0] - 1.5) < 0.02).sum()
    assert counts.max_snap_distance <= 0.02


def test_own_side_of_a_barrier():
    domain = Domain.from_polygons(box(0, 0, 3, 4), barriers=LineString([(1.5, -1), (1.5, 5)]), cell_size=1, crs="local")
    counts = bin_points(np.array([[1.49, 2.2], [1.51, 2.2], [1.52, 2.2]]), domain)
    node = domain.locate(np.array([[1.4, 2.2], [1.6, 2.2]]))
    assert counts.values[node].tolist() == [1, 2]


# --- off the land ---------------------------------------------------------------------------------


def test_nearest_within_two_cells(square):
    coords = np.array([[0.5, 0.5], [5.9, 2.5], [6.1, 2.5], [np.inf, 0], [2.5, -1.0]])
    with pytest.warns(
        GeobgpWarning, match=r"1 of 4 points \(25.0 %\) lie off the land and are dropped, more than 2 unit"
    ):
        counts = bin_points(coords, square)
    assert (counts.n_read, counts.n_used, counts.n_snapped, counts.n_dropped, counts.n_missing) == (4, 3, 2, 1, 1)
    assert counts.max_snap_distance == pytest.approx(1.9)
    assert counts.values[square.locate(np.array([[3.5, 2.5]]))] == 1
    assert quietly(coords, square, max_snap=10).n_dropped == 0
    assert quietly(coords, square, max_snap=np.inf).n_dropped == 0


def test_drop_and_error(square):
    coords = np.r_[np.full((199, 2), 1.5), [[4.5, 1.0]]]
    counts = bin_points(coords, square, on_water="drop")  # half a per cent: no warning
    assert (counts.n_used, counts.n_dropped, counts.dropped_weight) == (199, 1, 1.0)
    with pytest.raises(GeometryError, match=r"1 of the 200 points.*off the land.*row 199.*on_water='nearest'"):
        bin_points(coords, square, on_water="error")
    assert bin_points(coords[:-1], square, on_water="error").n_used == 199


def test_more_than_one_per_cent_dropped_is_a_warning(square):
    coords = np.r_[np.full((98, 2), 1.5), [[9, 9], [9, 9]]]
    with pytest.warns(GeobgpWarning, match=r"2 of 100 points \(2.0 %\).*Check them on a map, or raise max_snap"):
        bin_points(coords, square)
    with pytest.warns(GeobgpWarning, match=r"are dropped. Check them on a map, or use on_water='nearest'"):
        bin_points(coords, square, on_water="drop")


def test_swapped_coordinates_are_noticed(netherlands):
    towns = pd.read_csv(SAMPLE / "places_netherlands_points.csv").rename(columns={"x": "lat", "y": "lon"})
    with pytest.warns(GeobgpWarning) as caught:
        counts = bin_points(towns, netherlands)
    text = str(caught[0].message)
    assert counts.n_used == 0 and counts.n_dropped == len(towns)
    assert "The points lie in longitude 50.769 to 53.48 and latitude 3.3861 to 7.1514" in text
    assert "the domain in longitude 3.2" in text
    assert "With the two coordinates swapped 100 % of them would lie on the land" in text


def test_points_in_another_country_are_noticed(netherlands):
    quakes = SAMPLE / "usgs_california_2018_points.csv"
    with pytest.warns(
        GeobgpWarning, match=r"longitude -1\d\d.* to -1.*Check the CRS of the points \(crs=\) and of the land"
    ):
        bin_points(quakes, netherlands)


def test_points_beyond_the_globe_are_dropped_with_a_warning(netherlands):
    lost = gpd.GeoSeries([Point(5, 95), Point(4, 120)], crs=4326)
    with pytest.warns(GeobgpWarning, match=r"2 of 2 points \(100.0 %\)"):
        assert bin_points(lost, netherlands).n_dropped == 2


def test_far_from_a_local_plane(square):
    with pytest.warns(GeobgpWarning, match="The points lie in easting 70 to 70.*the domain in easting 0 to 4"):
        bin_points(np.array([[70.0, 70.0]]), square)


def test_nothing_read_is_a_warning(square):
    with pytest.warns(GeobgpWarning, match=r"No points were read \(2 rows without a point\)"):
        counts = bin_points(gpd.GeoSeries([None, Point()]), square)
    assert counts.n_missing == 2 and counts.values.sum() == 0


# --- weights --------------------------------------------------------------------------------------


def test_the_deaths_of_broad_street():
    domain = Domain.from_polygons(SAMPLE / "snow_soho_window.gpkg", cell_size=20, crs=27700)
    counts = bin_points(SAMPLE / "snow_soho_points.csv", domain, weights="deaths")
    assert counts.n_read == counts.n_used == 324
    assert counts.total_weight == 392 == counts.values.sum()
    assert "'x' and 'y' are taken as coordinates in OSGB36 / British National Grid, the dom" in counts.notes[0]
    other = Domain.from_polygons(SAMPLE / "snow_soho_window.gpkg", cell_size=20)
    given_crs = bin_points(SAMPLE / "snow_soho_points.csv", other, weights="deaths", crs="EPSG:27700")
    assert given_crs.total_weight == 392 and given_crs.n_snapped == 0


def test_weights_of_multipoints_and_gaps(square):
    points = gpd.GeoSeries([MultiPoint([(0.5, 0.5), (1.5, 0.5)]), None, Point(2.5, 0.5)])
    with pytest.warns(DroppedPointsWarning, match=r"1 of 4 rows \(25.0 %\) has no point that can be read"):
        counts = bin_points(points, square, weights=[2.0, np.nan, 5.0], chunksize=1)
    at = square.locate(np.array([[0.5, 0.5], [1.5, 0.5], [2.5, 0.5]]))
    assert counts.values[at].tolist() == [2, 2, 5]
    assert (counts.n_read, counts.n_missing, counts.total_weight) == (3, 1, 9)


def test_weights_dropped_are_summed(square):
    counts = quietly(np.array([[0.5, 0.5], [50, 50]]), square, weights=[3.0, 4.0])
    assert (counts.total_weight, counts.dropped_weight) == (3, 4)
    assert "total weight: 3 (dropped: 4)" in counts.report()


@pytest.mark.parametrize("bad", [-1.0, np.nan, np.inf])
def test_bad_weights_are_refused(square, bad):
    table = pd.DataFrame({"easting": [0.5, 0.5, 0.5], "northing": 0.5, "w": [1.0, 1.0, bad]})
    for weights in ("w", table["w"].to_numpy()):
        with pytest.raises(DataError, match=r"weights: 1 are negative.*row 2 \(counted from 0\)"):
            bin_points(table, square, weights=weights, chunksize=2)


@pytest.mark.parametrize("n", [0, 2, 4])
def test_as_many_weights_as_rows(square, n):
    with pytest.raises(DataError, match=rf"weights: {n} numbers for (at least )?\d rows of points"):
        bin_points(np.full((3, 2), 0.5), square, weights=np.ones(n), chunksize=2)


# --- what is asked for ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"on_water": "sink"}, DataError, "on_water must be 'nearest', 'drop' or 'error'; found 'sink'"),
        ({"max_snap": -1}, DataError, "max_snap must be a number of at least 0; found -1"),
        ({"max_snap": np.nan}, DataError, "max_snap must be"),
        ({"chunksize": 0}, DataError, "chunksize must be a whole number of at least 1; found 0"),
        ({"longitude": "x"}, GeometryError, "name both columns, longitude= and latitude="),
        ({"crs": "nonsense"}, CRSError, "no coordinate reference system"),
    ],
)
def test_bad_options(square, options, error, message):
    with pytest.raises(error, match=message):
        bin_points(np.zeros((1, 2)), square, **options)


def test_points_without_a_crs(netherlands):
    bare = gpd.GeoSeries([Point(5.5, 52.1)])
    with pytest.raises(CRSError, match="of the points is not known"):
        bin_points(bare, netherlands)
    assert bin_points(bare, netherlands, crs=4326).n_used == 1


def test_degrees_on_a_local_plane(square):
    with pytest.raises(CRSError, match="domain is local"):
        bin_points(gpd.GeoSeries([Point(1, 1)], crs=4326), square)


def test_frozen_and_shown(square):
    counts = bin_points(np.array([[0.5, 0.5], [4.25, 2.0]]), square)
    with pytest.raises(ValueError):
        counts.values[0] = 9
    with pytest.raises(AttributeError):
        counts.n_read = 3
    assert repr(counts) == "Counts(2 of 2 points on 2 of 16 nodes, 1 moved to land, 0 dropped, 0 missing)"
    assert "of these moved to the nearest land: 1 (at most 0.25 unit)" in counts.report()
    assert "<table>" in counts._repr_html_() and "0.25 unit" in counts._repr_html_()


def test_progress_goes_to_standard_error(square, capsys):
    bin_points((np.full((10, 2), 0.5) for _ in range(3)), square, progress=True)
    out, err = capsys.readouterr()
    assert out == "" and "30 used" in err


# --- the CRS travels with the counts ----------------------------------------------------------------


def test_coordinates_are_kept_only_when_asked_for(netherlands):
    towns = pd.read_csv(SAMPLE / "places_netherlands_points.csv").rename(columns={"x": "lon", "y": "lat"})
    assert bin_points(towns, netherlands).coordinates is None
    counts = bin_points(towns, netherlands, keep_coordinates=True, chunksize=500)
    there = gpd.GeoSeries(gpd.points_from_xy(towns.lon, towns.lat), crs=4326).to_crs(netherlands.crs)
    assert counts.points_crs.to_epsg() == 4326
    assert counts.coordinates == pytest.approx(there.get_coordinates().to_numpy())


def test_kept_coordinates_leave_out_what_no_crs_can_show(netherlands):
    points = gpd.GeoSeries([Point(5.2, 52.1), Point(5, 120), None], crs=4326)
    with pytest.warns(DroppedPointsWarning, match="No points were read"):
        assert bin_points(points[2:], netherlands, keep_coordinates=True).coordinates.shape == (0, 2)
    with pytest.warns(DroppedPointsWarning):
        counts = bin_points(points, netherlands, keep_coordinates=True)
    assert counts.coordinates.shape == (1, 2) and counts.n_read == 2
    assert counts.warning is not None and counts.warning.found == 1


def test_rows_without_a_readable_point_are_warned_of(square):
    words = pd.DataFrame({"easting": ["0.5", "unknown"] * 30, "northing": "0.5"})
    with pytest.warns(DroppedPointsWarning, match=r"30 of 60 rows \(50.0 %\) have no point") as captured:
        counts = bin_points(words, square)
    assert (counts.n_used, counts.n_missing, captured[0].message.option) == (30, 30, "points")
    gone = gpd.GeoSeries([Point(0.5, 0.5)] * 2 + [Point(99, 99)] + [None] * 57)
    with pytest.warns(DroppedPointsWarning, match=r"57 of 60 rows \(95.0 %\).*1 of 3 points .* lie off the land"):
        bin_points(gone, square)
    few = gpd.GeoSeries([Point(0.5, 0.5)] * 199 + [None])
    assert bin_points(few, square).warning is None  # half a per cent


def test_points_are_read_once_for_cells_of_any_size(tmp_path, netherlands, monkeypatch):
    towns = pd.read_csv(SAMPLE / "places_netherlands_points.csv")
    towns.to_csv(tmp_path / "towns.csv", index=False)
    finer = Domain.from_polygons(netherlands.geometry, cell_size=netherlands.cell_size / 2, crs=netherlands.crs)
    expected = [bin_points(tmp_path / "towns.csv", domain) for domain in (netherlands, finer)]
    opened = []
    source = read_points(tmp_path / "towns.csv")
    monkeypatch.setattr(counts_module, "Stream", lambda *told: opened.append(told) or Stream(*told))
    for domain, counts in zip((netherlands, finer), expected, strict=True):
        again = source.bin(domain)
        np.testing.assert_array_equal(again.values, counts.values)
        assert again.report() == counts.report() and again.digest == counts.digest
    assert len(opened) == 1 and source.n == len(towns)
    # Too many to be kept, or a stream: read each time, or once.
    source = read_points(tmp_path / "towns.csv", most_kept=10)
    assert source.bin(netherlands).digest == source.bin(netherlands).digest and len(opened) == 3
    stream = read_points(iter([towns]))
    assert not stream.can_be_read_again and stream.bin(netherlands).digest == expected[0].digest
