"""Tables and shapes of other packages: whatever hands over Arrow data or GeoJSON is read as a GeoDataFrame is."""

from __future__ import annotations

import geopandas as gpd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import shapely

from geobgp import Domain, bin_areas, bin_points, expected_counts
from geobgp.data.counts import bin_strata, read_points
from geobgp.data.persons import read_table
from geobgp.files import frame_of
from geobgp.land.regions import read_regions

RNG = np.random.default_rng(4)
XY = RNG.uniform(0, 4, (60, 2))
TABLE = pd.DataFrame(
    {"easting": XY[:, 0], "northing": XY[:, 1], "n": RNG.integers(1, 4, 60), "age": ["old", "young"] * 30}
)
HALVES = [shapely.box(0, 0, 2, 4), shapely.box(2, 0, 4, 4)]
CRS = "EPSG:32631"


class Arrow:
    """What a data frame of another package has: a stream of Arrow data, and its own names for the rest."""

    def __init__(self, table):
        self.table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)


class Shapes:
    """What shapes of another package have."""

    def __init__(self, shapes, crs=None):
        self.__geo_interface__ = shapes.__geo_interface__
        self.crs = crs


@pytest.fixture(scope="module")
def domain():
    return Domain.from_polygons(gpd.GeoSeries([shapely.box(0, 0, 4, 4)], crs=CRS), cell_size=1)


def geometries(**columns):
    return gpd.GeoDataFrame(columns, geometry=gpd.points_from_xy(*XY.T), crs=CRS)


def forms():
    frame = geometries(**{name: TABLE[name] for name in ("n", "age")})
    arrow, geoarrow = pa.Table.from_pandas(TABLE), pa.table(frame.to_arrow())
    batches = pa.Table.from_pandas(TABLE).to_batches(max_chunksize=7)
    return {
        "a table": arrow,
        "a stream": Arrow(arrow),
        "a reader": pa.RecordBatchReader.from_batches(arrow.schema, batches),
        "geoarrow": Arrow(geoarrow),
        "wkb": Arrow(pa.table(frame.to_arrow(geometry_encoding="WKB"))),
        "features": Shapes(frame, CRS),
    }


@pytest.mark.parametrize("form", list(forms()))
def test_points(form, domain):
    expected = bin_points(TABLE, domain, weights="n")
    assert bin_points(forms()[form], domain, weights="n").digest == expected.digest
    source = read_points(forms()[form], weights="n")
    assert [source.bin(domain).digest for _ in range(2)] == [expected.digest] * 2
    strata = bin_strata(forms()[form], domain, "age", weights="n")
    assert sum(counts.values for counts in strata.values()).tolist() == expected.values.tolist()
    assert len(read_table(forms()[form], "cases")) == len(TABLE)


def test_chunks_of_other_packages(domain):
    parts = (Arrow(pa.Table.from_pandas(TABLE.iloc[k : k + 20])) for k in range(0, 60, 20))
    assert bin_points(parts, domain).digest == bin_points(TABLE, domain).digest


@pytest.mark.parametrize("crs", [CRS, None])
def test_areas_and_land(domain, crs):
    frame = gpd.GeoDataFrame({"cases": [3, 5], "population": [10, 30]}, geometry=HALVES, crs=CRS)
    expected = bin_areas(frame, domain, "cases")
    for shapes in (Arrow(pa.table(frame.to_arrow())), Shapes(frame, CRS)):
        assert bin_areas(shapes, domain, "cases").digest == expected.digest
        assert read_regions(shapes, domain).geometry.geom_equals(frame.geometry).all()
        same = Domain.from_polygons(shapes, cell_size=1)
        assert same.nodes_hash() == Domain.from_polygons(frame, cell_size=1).nodes_hash()
    assert frame_of(Shapes(HALVES[0])).equals(HALVES[0])
    table = expected_counts(pa.table({"age": ["old"] * 4}), frame.assign(age="old"), "age", people="population")
    assert table["expected"].tolist() == [1.0, 3.0]
