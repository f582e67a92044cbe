"""Reading tables, row ids, and columns as numbers: known answers and every refusal."""

import datetime

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelward.data import as_table, encode, encode_as, read_ids, read_table
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
        (["a", "b", "a", "b"], r"2 ids repeat an earlier one \(the first is 'a'\)"),
        ([1, None, None], r"2 ids are missing \(the first in row 1, counting from 0\)"),
        ([1.5, 2.5], "whole numbers or texts"),
    ],
)
def test_ids_that_cannot_be_used(ids, words):
    with pytest.raises(DataError, match=words):
        read_ids(pa.table({"id": ids}), "id", "party 'bank'")


def test_numbers_categories_and_booleans():
    table = pa.table(
        {
            "n": pa.array([3, 1, 2], pa.int8()),
            "f": pa.array([0.5, 0.25, 4.0], pa.float32()),
            "d": pa.array(["1.50", "2.00", "0.25"]).cast(pa.decimal128(5, 2)),
            "c": ["red", "blue", "green"],
            "k": pa.array(["y", "x", "y"]).dictionary_encode(),
            "t": [True, False, True],
            "one": ["same", "same", "same"],
        }
    )
    names, matrix = encode(table, table.column_names, "here")
    assert names == ("n", "f", "d", "c=green", "c=red", "k=y", "t=true")
    expected = [[3, 0.5, 1.5, 0, 1, 1, 1], [1, 0.25, 2.0, 0, 0, 0, 0], [2, 4.0, 0.25, 1, 0, 1, 1]]
    assert matrix.tolist() == expected
    assert matrix.flags.c_contiguous
    assert np.array_equal(encode_as(table, names, "here"), matrix)


def test_other_rows_in_the_same_encoding():
    names, _ = encode(pa.table({"c=d": ["e=f", "g", "h"], "x": [1, 2, 3]}), ["c=d", "x"], "here")
    assert names == ("c=d=g", "c=d=h", "x")
    other = pa.table({"x": [9, 8], "spare": [0, 0], "c=d": ["never seen", "h"]})
    assert encode_as(other, names, "there").tolist() == [[0, 0, 9], [0, 1, 8]]
    with pytest.raises(DataError, match="no column 'y' "):
        encode_as(other, ["y"], "there")
    with pytest.raises(DataError, match="must hold numbers"):
        encode_as(pa.table({"x": ["a"]}), ["x"], "there")


def test_categories_in_several_chunks():
    chunks = pa.chunked_array([pa.array(["b", "a"]).dictionary_encode(), pa.array(["c", "b"]).dictionary_encode()])
    names, matrix = encode(pa.table({"c": chunks}), ["c"], "here")
    assert names == ("c=b", "c=c")
    assert matrix.tolist() == [[1, 0], [0, 0], [0, 1], [1, 0]]


@given(st.lists(st.sampled_from("abcde"), min_size=1, max_size=30))
def test_one_hot_equals_that_of_pandas(values):
    names, matrix = encode(pa.table({"c": values}), ["c"], "here")
    expected = pd.get_dummies(pd.DataFrame({"c": values}), drop_first=True, prefix_sep="=")
    assert list(names) == list(expected.columns)
    assert np.array_equal(matrix, expected.to_numpy(dtype=float).reshape(len(values), -1))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([1.0, 2.0, np.inf], "column 'x': row 2, counting from 0, is inf"),
        ([1.0, 1e150, -1.1e150], "column 'x': row 2, counting from 0, is -1.1e+150; values must be at most 1e+150"),
        ([1.0, np.nan, np.nan], "column 'x': 2 values are missing (the first in row 1, counting from 0)"),
        ([None, 1, 2], "column 'x': 1 values are missing (the first in row 0, counting from 0)"),
        (["a", None, "b"], "column 'x': 1 values are missing (the first in row 1, counting from 0)"),
        ([datetime.date(2020, 1, 1)] * 3, "column 'x': type date32"),
        ([b"a", b"b"], "column 'x': type binary"),
        ([str(number) for number in range(1001)], "1001 different values"),
    ],
)
def test_features_that_cannot_be_used(values, words):
    with pytest.raises(DataError) as caught:
        encode(pa.table({"x": values}), ["x"], "party 'telco'")
    assert words in str(caught.value)
    assert "party 'telco'" in str(caught.value)
