"""Points in parts are counted as points in one piece are, to the last one."""

from __future__ import annotations

import dask
import dask.bag
import dask.dataframe as dd
import dask_geopandas
import geopandas as gpd
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import small_case as case

from geobgp import CRSError, DataError, GeometryError, bin_points, map_intensity
from geobgp.data import partitions as parts
from geobgp.data.counts import bin_strata
from geobgp.errors import DroppedPointsWarning

N = 4000


@pytest.fixture(scope="module")
def domain():
    return case.domain(1000.0)


@pytest.fixture(scope="module")
def points():
    """Points on land, on water, far away and nowhere, in longitude and latitude, with weights."""
    rng = np.random.default_rng(1)
    near = rng.uniform([-3000, -3000], [33_000, 19_000], (N, 2))
    coords = near + np.array([case.WEST, case.SOUTH])
    frame = gpd.GeoDataFrame({"n": rng.integers(0, 4, N)}, geometry=gpd.points_from_xy(*coords.T), crs=case.CRS)
    frame = frame.to_crs(4326)
    frame.loc[[5, 900, 3999], "geometry"] = None
    frame["longitude"], frame["latitude"] = frame.geometry.x, frame.geometry.y
    return frame


def same(found, expected):
    assert found.report() == expected.report()
    np.testing.assert_array_equal(found.values, expected.values)
    assert (found.n_read, found.dropped_weight) == (expected.n_read, expected.dropped_weight)
    assert str(found.warning) == str(expected.warning)
    assert found.points_crs == expected.points_crs


pytestmark = pytest.mark.filterwarnings("ignore::geobgp.errors.DroppedPointsWarning")


@pytest.mark.parametrize("where", ["cluster", "here"])
@pytest.mark.parametrize("weights", [None, "n"])
@pytest.mark.parametrize("on_water", ["nearest", "drop"])
def test_dask_geopandas(points, domain, client, where, weights, on_water):
    told = {"weights": weights, "on_water": on_water}
    collection = dask_geopandas.from_geopandas(points, npartitions=7)
    found = bin_points(collection, domain, client=client if where == "cluster" else None, **told)
    same(found, bin_points(points, domain, **told))


@pytest.mark.parametrize("where", ["cluster", "here"])
def test_dask_dataframe(points, domain, client, where):
    frame = pd.DataFrame(points.drop(columns="geometry"))
    collection = dd.from_pandas(frame, npartitions=5)
    found = bin_points(collection, domain, client=client if where == "cluster" else None)
    expected = bin_points(frame, domain)
    same(found, expected)
    assert expected.notes  # what was assumed is told, once


def test_bare_x_and_y_are_one_system_in_all_partitions(points, domain, client):
    metric = points.to_crs(case.CRS)
    frame = pd.DataFrame({"x": metric.geometry.x - case.WEST, "y": metric.geometry.y - case.SOUTH}).sort_values("y")
    # The first partitions alone could be degrees.
    small = pd.DataFrame({"x": np.linspace(0, 50, 40), "y": np.linspace(0, 50, 40)})
    frame = pd.concat([small, frame], ignore_index=True)
    collection = dd.from_pandas(frame, npartitions=40)
    same(bin_points(collection, domain, client=client), bin_points(frame, domain))


def test_coordinates_are_kept_in_order(points, domain, client):
    collection = dask_geopandas.from_geopandas(points, npartitions=7)
    found = bin_points(collection, domain, keep_coordinates=True, client=client)
    expected = bin_points(points, domain, keep_coordinates=True)
    np.testing.assert_array_equal(found.coordinates, expected.coordinates)
    np.testing.assert_array_equal(found.counted, expected.counted)


def write_folder(points, folder, pieces=6, **how):
    folder.mkdir(parents=True)
    for k, some in enumerate(np.array_split(np.arange(len(points)), pieces)):
        points.iloc[some].to_parquet(folder / f"part-{k:03d}.parquet", row_group_size=200, **how)
    return folder


@pytest.mark.parametrize("encoding", ["WKB", "geoarrow"])
@pytest.mark.parametrize("weights", [None, "n"])
def test_a_folder_of_geoparquet(points, domain, client, tmp_path, encoding, weights, monkeypatch):
    monkeypatch.setattr(parts, "PART_ROWS", 300)
    folder = write_folder(points, tmp_path / "a" / "day=1", geometry_encoding=encoding).parent
    (folder / "_metadata.parquet").write_bytes(b"no points")
    expected = bin_points(points, domain, weights=weights)
    for source in (folder, str(folder / "**" / "part-*.parquet")):
        same(bin_points(source, domain, weights=weights, client=client), expected)
        same(bin_points(source, domain, weights=weights, chunksize=77), expected)


def test_a_map_of_a_folder(points, tmp_path):
    folder = write_folder(points, tmp_path / "a")
    told = {"water": case.water(), "cell_size": 2000.0, "m": "full", "permeability": 0.0, "crs": case.CRS}
    posterior, expected = (map_intensity(source, case.land(), **told) for source in (folder, points))
    assert posterior.points == expected.points and posterior.n_points > 3000
    np.testing.assert_array_equal(posterior.observed, expected.observed)


def test_a_folder_of_plain_parquet(points, domain, client, tmp_path):
    frame = pd.DataFrame(points.drop(columns="geometry"))
    folder = write_folder(frame, tmp_path / "plain")
    same(bin_points(folder, domain, weights="n", client=client), bin_points(frame, domain, weights="n"))
    bare = frame.rename(columns={"longitude": "x", "latitude": "y"})
    same(bin_points(write_folder(bare, tmp_path / "bare"), domain, client=client), bin_points(bare, domain))


@pytest.mark.parametrize("weights", [None, "n"])
@pytest.mark.parametrize("bbox", [False, True])
def test_files_off_the_land_are_counted_and_not_read(points, domain, tmp_path, weights, bbox, monkeypatch):
    abroad = points[points.geometry.notna()].copy()
    abroad["geometry"] = abroad.geometry.translate(20.0, 0.0)
    folder = write_folder(points, tmp_path / "all", write_covering_bbox=bbox)
    abroad.to_parquet(folder / "abroad.parquet", row_group_size=500, write_covering_bbox=bbox)
    if bbox:  # a file with both: only some of its row groups are read
        pd.concat([points, abroad]).to_parquet(folder / "both.parquet", row_group_size=N, write_covering_bbox=True)
    everything = [gpd.read_parquet(path)[list(points.columns)] for path in sorted(folder.glob("*.parquet"))]
    expected = bin_points(pd.concat(everything), domain, weights=weights)
    read = []
    original = pq.ParquetFile.iter_batches

    def iter_batches(self, *args, columns=None, row_groups=None, **more):
        if "geometry" in columns:
            read.append(sum(self.metadata.row_group(g).num_rows for g in row_groups))
        return original(self, *args, columns=columns, row_groups=row_groups, **more)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", iter_batches)
    found = bin_points(folder, domain, weights=weights)
    assert found.report() == expected.report()
    assert found.n_dropped >= len(abroad)
    np.testing.assert_array_equal(found.values, expected.values)
    assert sum(read) == (2 * N if bbox else N)
    # Whoever asks where they lie, or for an error, has them read.
    read.clear()
    assert len(bin_points(folder, domain, keep_coordinates=True).coordinates) == expected.n_read
    assert sum(read) == expected.n_read + expected.n_missing
    with pytest.raises(GeometryError, match=r"points, file 1 of \d, abroad.parquet: .* lie off the land"):
        bin_points(folder, domain, on_water="error")


@pytest.fixture(scope="module")
def dated(points):
    """The points with dates of which the first parts alone do not tell whether day or month comes first."""
    rng = np.random.default_rng(2)
    days = np.sort(rng.integers(0, 400, N))
    stamps = pd.Timestamp("2020-01-01") + pd.to_timedelta(days, unit="D")
    written = stamps.strftime("%d/%m/%Y").to_numpy(dtype=object)
    written[:900] = "03/04/2020"
    written[[7, 2000]] = None, "soon"
    age = rng.choice(["old", "young", None], N, p=[0.6, 0.39, 0.01])
    return points.assign(stamp=stamps, written=written, age=age)


@pytest.mark.parametrize("where", ["cluster", "here", "folder"])
@pytest.mark.parametrize("column", ["stamp", "written"])
def test_parts_by_period_and_stratum(dated, domain, client, tmp_path, where, column, monkeypatch):
    monkeypatch.setattr(parts, "PART_ROWS", 300)
    told = {"time": column, "every": "month", "weights": "n"}
    if where == "folder":
        source = write_folder(dated, tmp_path / "a")
    else:
        source = dask_geopandas.from_geopandas(dated, npartitions=7)
    found = bin_points(source, domain, client=client if where == "cluster" else None, **told)
    expected = bin_points(dated, domain, **told)
    same(found, expected)
    assert found.periods.same_as(expected.periods) and found.digest == expected.digest
    assert str(found.untimed_warning) == str(expected.untimed_warning)
    strata = bin_strata(source, domain, "age", client=client if where == "cluster" else None, **told)
    assert list(strata) == ["old", "young"]
    for name, counts in strata.items():
        alone = bin_points(dated[dated["age"] == name], domain, **told | {"every": expected.periods})
        np.testing.assert_array_equal(counts.values, alone.values)
        assert (counts.n_used, counts.n_untimed) == (alone.n_used, alone.n_untimed)


def test_parts_that_write_dates_in_two_ways(dated, domain):
    other = dated.copy()
    other.loc[3500:, "written"] = "12/31/2020"
    collection = dask_geopandas.from_geopandas(other, npartitions=7)
    with pytest.raises(DataError, match=r"has the day first, '12/31/2020' the month"):
        bin_points(collection, domain, time="written", every="month")
    vague = dask_geopandas.from_geopandas(dated.iloc[:900], npartitions=3)
    with pytest.raises(DataError, match="no other tells"):
        bin_points(vague, domain, time="written", every="month")


def test_nearly_all_abroad(points, domain, tmp_path):
    abroad = points[points.geometry.notna()].copy()
    abroad["geometry"] = abroad.geometry.translate(20.0, 0.0)
    folder = write_folder(abroad, tmp_path / "abroad")
    with pytest.warns(DroppedPointsWarning, match="The points lie in longitude") as told:
        bin_points(folder, domain)
    with pytest.warns(DroppedPointsWarning) as expected:
        bin_points(abroad, domain)
    assert str(told[0].message).split(".")[0] == str(expected[0].message).split(".")[0]


def test_empty_partitions(points, domain, client):
    tables = [points.iloc[:0], points.iloc[:50], points.iloc[:0], points.iloc[50:60]]
    collection = dask_geopandas.from_dask_dataframe(
        dd.from_delayed([dask.delayed(t) for t in tables], meta=points.iloc[:0])
    )
    same(bin_points(collection, domain, client=client), bin_points(points.iloc[:60], domain))
    none = dask_geopandas.from_geopandas(points.iloc[:0], npartitions=1)
    assert bin_points(none, domain, client=client).n_read == 0


def delayed(tables, meta):
    return dd.from_delayed([dask.delayed(table) for table in tables], meta=meta, verify_meta=False)


@pytest.mark.parametrize("where", ["cluster", "here"])
def test_partitions_that_are_not_alike(points, domain, client, where):
    told = {"client": client if where == "cluster" else None}
    other = delayed([points, points.to_crs(case.CRS)], points.iloc[:0])
    with pytest.raises(CRSError, match=r"partition 1 of 2.*its CRS is EPSG:32631, and .* EPSG:4326"):
        bin_points(other, domain, **told)
    frame = pd.DataFrame(points.drop(columns="geometry"))
    renamed = delayed([frame, frame.rename(columns={"latitude": "lat"})], frame.iloc[:0])
    with pytest.raises(GeometryError, match=r"partition 1 of 2.*no column 'latitude'; it has 'n', 'longitude', 'lat'"):
        bin_points(renamed, domain, **told)

    def second_renamed(table, partition_info=None):
        second = partition_info is not None and partition_info["number"] == 1
        return table.rename(columns={table.columns[1]: "lng"}) if second else table

    # A collection that looks at its partitions itself, and does not know which of them it was.
    for names in (("longitude", "latitude"), ("x", "y")):
        table = frame.rename(columns=dict(zip(("longitude", "latitude"), names, strict=True)))
        odd = dd.from_pandas(table, npartitions=4).map_partitions(second_renamed, meta=table.iloc[:0])
        with pytest.raises(DataError, match=rf"partition 1 of 4 .*Dask cannot make it.*'lng'.*'{names[0]}'"):
            bin_points(odd, domain, **told)
    unlabelled = delayed([frame.assign(age="old"), frame], frame.assign(age="old").iloc[:0])
    with pytest.raises(DataError, match=r"partition 1 of 2 .*there is no column 'age'; there are 'n'"):
        bin_strata(unlabelled, domain, "age", **told)
    with pytest.raises(GeometryError, match="collection of Bag"):
        bin_points(dask.bag.from_sequence([1, 2]), domain, **told)
    with pytest.raises(DataError, match="no column 'cases' in the points; there are"):
        bin_points(dd.from_pandas(frame, npartitions=2), domain, weights="cases", **told)
    with pytest.raises(DataError, match="4,000 numbers cannot be matched"):
        bin_points(dd.from_pandas(frame, npartitions=2), domain, weights=np.ones(N), **told)
    with pytest.raises(DataError, match="4,000 dates cannot be matched"):
        bin_points(dd.from_pandas(frame, npartitions=2), domain, time=np.ones(N), every="year", **told)
    negative = frame.assign(n=np.where(np.arange(N) == 3500, -1, 1))
    with pytest.raises(DataError, match=r"partition 3 of 4.*first -1 in row 500"):
        bin_points(dd.from_pandas(negative, npartitions=4), domain, weights="n", **told)
    with pytest.raises(GeometryError, match="collection of Series"):
        bin_points(dd.from_pandas(frame, npartitions=2)["n"], domain, **told)


def test_files_that_are_not_alike(points, domain, tmp_path):
    folder = write_folder(points, tmp_path / "crs", pieces=2)
    points.to_crs(case.CRS).to_parquet(folder / "z.parquet")
    with pytest.raises(CRSError, match=r"file 3 of 3, z.parquet: its CRS is EPSG:32631, and that of part-000"):
        bin_points(folder, domain)
    pd.DataFrame(points.drop(columns="geometry")).to_parquet(folder / "z.parquet")
    with pytest.raises(GeometryError, match=r"file 3 of 3, z.parquet: it has no geometries"):
        bin_points(folder, domain)
    points.drop(columns="n").to_parquet(folder / "z.parquet")
    with pytest.raises(DataError, match=r"no column 'n' in file 3 of 3, z.parquet"):
        bin_points(folder, domain, weights="n")
    (folder / "z.parquet").write_text("no Parquet")
    with pytest.raises(GeometryError, match=r"z.parquet cannot be read"):
        bin_points(folder, domain)
    plain = write_folder(pd.DataFrame(points.drop(columns="geometry")), tmp_path / "plain", pieces=2)
    pd.DataFrame({"lon": [1.0], "latitude": [2.0]}).to_parquet(plain / "z.parquet")
    with pytest.raises(GeometryError, match=r"file 3 of 3, z.parquet: there is no column 'longitude'"):
        bin_points(plain, domain)
    (tmp_path / "none").mkdir()
    with pytest.raises(GeometryError, match="no Parquet files in"):
        bin_points(tmp_path / "none", domain)
    shapes = tmp_path / "shapes"
    shapes.mkdir()
    points[["n", "geometry"]].dropna().to_file(shapes / "a.shp")  # a folder that OGR reads
    assert bin_points(shapes, domain).n_read == N - 3
    (tmp_path / "none" / "a.csv").write_text("longitude,latitude\n1,2\n")
    with pytest.raises(GeometryError, match=r"names 1 file, of which 1 are no Parquet: 'a.csv'"):
        bin_points(str(tmp_path / "none" / "*.csv"), domain)
