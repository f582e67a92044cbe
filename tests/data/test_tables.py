"""Reading tables and row ids: known answers and every refusal."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from labelward.data import as_table, read_ids, read_table
from labelward.errors import DataError

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
    ("name", "content", "words"),
    [
        ("none.csv", None, "no such file"),
        ("a.txt", b"x\n1\n", "must end in .csv or .parquet"),
        ("a.parquet", b"not parquet", "cannot be read as parquet"),
        ("a.csv", b"x,y\n1,2\n3\n", "cannot be read as csv"),
        ("a.csv", b"", "cannot be read as csv"),
        ("a.csv", b"x,y\n", "holds no row"),
        ("a.csv", b"x,x\n1,2\n", "two columns are called 'x'"),
        ("a.csv", b",x\n0,2\n", "column 0 has no name"),
    ],
)
def test_files_that_cannot_be_used(tmp_path, name, content, words):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError) as caught:
        read_table(tmp_path / name)
    assert words in str(caught.value)
    assert name in str(caught.value)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([1, 2], "got list"),
        (pd.DataFrame({"x": []}), "holds no row"),
        (pd.DataFrame([[1, 2]], columns=["x", "x"]), "two columns are called 'x'"),
        ({"x": [1, 2], "y": [1]}, "cannot be converted"),
        ({}, "holds no column"),
    ],
)
def test_rows_in_memory_that_cannot_be_used(rows, words):
    with pytest.raises(DataError, match=words):
        as_table(rows)


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        (["a", "b", "a", "b"], r"2 ids repeat earlier ones \(such as 'a', 'b'\)"),
        ([1, None, None], r"2 ids are missing \(the first in row 1, counting from 0\)"),
        ([1.5, 2.5], "whole numbers or texts"),
    ],
)
def test_ids_that_cannot_be_used(ids, words):
    with pytest.raises(DataError, match=words):
        read_ids(pa.table({"id": ids}), "id", "party 'bank'")
