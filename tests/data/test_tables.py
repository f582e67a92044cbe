"""Reading tables and row ids: known answers and every refusal."""

from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from labelward.data import as_table, read_ids, read_table
from labelward.data.tables import prepared
from labelward.errors import DataError
from labelward.job import DataSection
from refusals import refused

ROWS = {"n": [3, 1, 2], "x": [0.5, -1.0, 2.25], "c": ["b", "a", "c"], "t": [True, False, True]}


def test_csv_and_parquet_hold_the_same_rows(tmp_path):
    frame = pd.DataFrame(ROWS)
    frame.to_csv(tmp_path / "a.csv", index=False)
    pq.write_table(pa.table(ROWS), tmp_path / "a.parquet")
    assert read_table(tmp_path / "a.csv").to_pydict() == ROWS
    assert read_table(tmp_path / "a.parquet").to_pydict() == ROWS


def test_rows_in_memory():
    class Stream:
        def __arrow_c_stream__(self, requested_schema=None):
            return pa.table(ROWS).__arrow_c_stream__(requested_schema)

    indexed = pd.DataFrame(ROWS, index=[7, 8, 9])
    arrays = {name: np.array(values) for name, values in ROWS.items()}
    for rows in (pa.table(ROWS), indexed, arrays, Stream()):
        assert as_table(rows).to_pydict() == ROWS


def test_ids_of_a_csv_file_keep_their_zeros(tmp_path):
    (tmp_path / "a.csv").write_text("id,x\n007,1\n08,2\n")
    assert read_ids(read_table(tmp_path / "a.csv", text=["id"]), "id", "here").tolist() == ["007", "08"]


def test_only_the_empty_field_is_a_missing_text(tmp_path):
    (tmp_path / "a.csv").write_text('c,n\nNA,1\nnull,2\n"",NA\nx,4\n')
    table = read_table(tmp_path / "a.csv")
    assert table.to_pydict() == {"c": ["NA", "null", None, "x"], "n": [1, 2, None, 4]}


@pytest.mark.parametrize(
    ("name", "content", "code", "value"),
    [
        ("none.csv", None, "not-found", None),
        ("a.txt", b"x\n1\n", "choice", ".txt"),
        ("a.parquet", b"not parquet", "unreadable", None),
        ("a.csv", b"x,y\n1,2\n3\n", "unreadable", None),
        ("a.csv", b"", "unreadable", None),
        ("a.csv", b"x,y\n", "rows", 0),
        ("a.csv", b"x,x\n1,2\n", "columns", "x"),
        ("a.csv", b",x\n0,2\n", "columns", 0),
    ],
)
def test_files_that_cannot_be_used(tmp_path, name, content, code, value):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with refused(DataError, code, field=f"table '{tmp_path / name}'", value=value):
        read_table(tmp_path / name)


def test_a_parquet_file_with_two_columns_of_one_name(tmp_path):
    pq.write_table(pa.table([[1], [2]], names=["x", "x"]), tmp_path / "a.parquet")
    with refused(DataError, "columns", field=f"table '{tmp_path / 'a.parquet'}'", value="x"):
        read_table(tmp_path / "a.parquet")


@pytest.mark.parametrize(
    ("rows", "code", "field", "value"),
    [
        ([1, 2], "type", "table", "list"),
        (pd.DataFrame({"x": []}), "rows", "table", 0),
        (pd.DataFrame([[1, 2]], columns=["x", "x"]), "columns", "table", "x"),
        ({"x": [1, 2], "y": [1]}, "type", "table", None),
        ({}, "columns", "table", None),
    ],
)
def test_rows_in_memory_that_cannot_be_used(rows, code, field, value):
    with refused(DataError, code, field=field, value=value):
        as_table(rows)


@pytest.mark.parametrize(
    ("ids", "code", "field", "value", "about"),
    [
        (["a", "b", "a", "b"], "rows", "party 'bank', id column 'id'", 2, "'a', 'b'"),
        ([1, None, None], "rows", "party 'bank', id column 'id'", 2, "row 1"),
        (["a", "", None, "b", ""], "rows", "party 'bank', id column 'id'", 3, "row 1"),
        ([1.5, 2.5], "columns", "party 'bank', id column 'id'", "double", ""),
    ],
)
def test_ids_that_cannot_be_used(ids, code, field, value, about):
    with refused(DataError, code, field=field, value=value) as caught:
        read_ids(pa.table({"id": ids}), "id", "party 'bank'")
    assert about in caught.value.reason


def test_whole_numbers_that_gaps_made_floats_are_texts() -> None:
    """Categories by ``text``; numbers with digits behind the point are refused."""
    table = pa.table({"zip": pa.array([1001.0, None, float("nan"), 20.0]), "x": [1.0, 2.0, 3.0, 4.0]})
    keys = DataSection(table="t.parquet", label="y", text=("zip",))
    found = prepared(table, keys, place="[data]")
    assert found.column("zip").to_pylist() == ["1001", None, None, "20"]
    for numbers in ([0.5, 1.0], [float("inf"), 1.0], [1e30, 1.0], [Decimal("0.5"), Decimal(1)]):
        with refused(DataError, "type", field="[data] text", value="zip"):
            prepared(pa.table({"zip": numbers}), keys, place="[data]")
    for values, texts in (([Decimal(7), None], ["7", None]), (["x", None], ["x", None])):
        assert prepared(pa.table({"zip": values}), keys, place="[data]").column("zip").to_pylist() == texts
