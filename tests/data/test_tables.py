"""Tables in text files: encodings, separators, and lines that do not fit their header."""

from __future__ import annotations

import numpy as np
import pytest

from geobgp import Domain, bin_points
from geobgp.cli.info import describe
from geobgp.data.persons import read_table
from geobgp.data.points import csv_format
from geobgp.errors import DroppedPointsWarning, GeometryError

ROWS = "easting,northing,plaats\n" + "0.5,0.5,Curaçao\n1.5,0.5,Curaçao\n" * 20


@pytest.fixture(scope="module")
def domain() -> Domain:
    import shapely

    return Domain.from_polygons(shapely.box(0, 0, 4, 4), cell_size=1, crs="local")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1", "utf-16", "utf-16-le", "utf-16-be"])
def test_a_table_is_read_in_any_encoding_by_all_that_read_tables(encoding, domain, tmp_path):
    path = tmp_path / "points.csv"
    path.write_bytes(ROWS.encode(encoding))
    assert bin_points(path, domain).n_used == 40
    assert "rows                    40, 0 without a point" in describe(path)
    assert read_table(path, "cases")["plaats"].unique().tolist() == ["Curaçao"]


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("easting,northing\n" + "0.5,0.5,\n" * 9, "line 2 has 3 fields, and the header has 2"),
        ("easting,northing\n" + "0,5,0,5\n" * 9, "line 2 has 4 fields, and the header has 2"),
        ("easting,northing\n0.5,0.5\n0.5,0.5,x\n", "line 3 has 3 fields"),
        ("easting,northing\n" + "0.5,0.5\n" * 20_000 + "0.5,0.5,x\n", "line 20002 has 3 fields"),
    ],
    ids=["trailing", "decimal commas", "one of the first", "a late one"],
)  # fmt: skip
def test_lines_with_more_fields_than_the_header_are_told(lines, words, domain, tmp_path):
    path = tmp_path / "points.csv"
    path.write_text(lines)
    with pytest.raises(GeometryError, match=f"points: in .*{words}.*decimal commas.*need quotes") as caught:
        bin_points(path, domain)
    assert caught.value.option == "points"
    with pytest.raises(GeometryError, match=f"cases: in .*{words}"):
        read_table(path, "cases")
    with pytest.raises(GeometryError, match=words):
        bin_points(path, domain, chunksize=7)


def test_cells_that_a_spreadsheet_leaves_out_at_the_ends_of_lines_are_empty(domain, tmp_path):
    path = tmp_path / "points.csv"
    path.write_text('easting, northing, note, n\n0.5, 0.5, "a, b", 2\n\n1.5,0.5\n2.5\n')
    with pytest.warns(DroppedPointsWarning, match="1 of 3 rows"):
        counts = bin_points(path, domain)
    assert counts.n_used == 2 and counts.n_missing == 1
    assert read_table(path, "cases")["note"].fillna("").tolist() == ["a, b", "", ""]


def test_quoted_decimal_commas_are_fine(domain, tmp_path):
    path = tmp_path / "points.csv"
    path.write_text('easting,northing\n"0,5","0,5"\n')
    np.testing.assert_array_equal(np.flatnonzero(bin_points(path, domain).values), domain.locate([[0.5, 0.5]]))


def test_an_encoding_that_was_guessed_is_told_where_names_are_not_found(domain, tmp_path):
    path = tmp_path / "points.csv"
    path.write_bytes("längd,bredd\n1,2\n".encode("latin-1"))
    with pytest.raises(GeometryError, match=r"no columns with coordinates.*no UTF-8, and was read as Windows-1252"):
        bin_points(path, domain)
    with pytest.raises(GeometryError, match=r"no column 'langd'.*read as Windows-1252"):
        bin_points(path, domain, easting="langd", northing="bredd")


def test_what_is_no_text_is_told(tmp_path):
    path = tmp_path / "points.csv"
    path.write_bytes(b"easting,northing\n" + b"\0" * 99)
    with pytest.raises(GeometryError, match="holds zero bytes"):
        csv_format(path)
