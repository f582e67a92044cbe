"""Columns as numbers and codes: known answers, other tables in a known coding, and every refusal."""

import datetime as dt
import zlib

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelward.data import fit_encoding, read_table, transform, transform_splits
from labelward.data.encoding import max_categories
from labelward.errors import DataError
from refusals import refused

NAN = float("nan")


def encoded(columns, style="native"):
    """Return the coding of all columns of a table, and its matrix."""
    table = pa.table(columns)
    known = fit_encoding(table, table.column_names, "here", style=style)
    return known, transform(table, known.names, known.categories, "here")


def column(values, style="native"):
    return encoded({"x": values}, style)[1]


def same(found, expected):
    np.testing.assert_array_equal(found, np.array(expected, dtype=float))


def test_every_kind_of_number():
    known, matrix = encoded(
        {
            "whole": pa.array([3, None, 2], pa.int8()),
            "single": pa.array([0.5, NAN, 4.0], pa.float32()),
            "decimal": pa.array(["1.50", None, "0.25"]).cast(pa.decimal128(5, 2)),
            "flag": pa.array([True, None, False]),
            "date": pa.array([dt.date(1970, 1, 2), None, dt.date(1969, 12, 31)]),
            "nothing": pa.nulls(3),
            "constant": [7, 7, 7],
        }
    )
    assert known.categories == {}
    assert known.names == ("whole", "single", "decimal", "flag", "date", "nothing", "constant")
    same(
        matrix,
        [[3, 0.5, 1.5, 1, 1, NAN, 7], [NAN, NAN, NAN, NAN, NAN, NAN, 7], [2, 4.0, 0.25, 0, -1, NAN, 7]],
    )
    assert matrix.flags.c_contiguous


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
def test_points_in_time_are_days(unit, zone):
    when = dt.datetime(1970, 1, 3, 12, tzinfo=dt.UTC if zone else None)
    same(column(pa.array([when, None], pa.timestamp(unit, zone)))[:, 0], [2.5, NAN])


def test_date64_is_days_too():
    same(column(pa.array([dt.date(1970, 1, 5)] * 2, pa.date64())), [[4], [4]])


TEXTS = ["red", None, "blue", "red", "green", "blue"]


@pytest.mark.parametrize(
    "values",
    [
        pa.array(TEXTS),
        pa.array(TEXTS, pa.large_string()),
        pa.array(TEXTS, pa.string_view()),
        pa.array(TEXTS).dictionary_encode(),
        pa.chunked_array([pa.array(TEXTS[:3]).dictionary_encode(), pa.array(TEXTS[3:]).dictionary_encode()]),
        pa.DictionaryArray.from_arrays(pa.array([0, None, 2, 0, 1, 2]), pa.array(["red", "green", "blue"])),
        pa.DictionaryArray.from_arrays(pa.array([0, 3, 2, 0, 1, 2]), pa.array(["red", "green", "blue", None])),
    ],
)
def test_texts_become_codes_in_sorted_order(values):
    known, matrix = encoded({"c": values})
    assert known.names == ("c",)
    assert known.categories == {"c": ("blue", "green", "red")}
    same(matrix[:, 0], [2, NAN, 0, 2, 1, 0])


def test_texts_as_dummies():
    known, matrix = encoded({"c": TEXTS, "n": range(6), "t": [True, None, False] * 2, "one": ["same"] * 6}, "dummies")
    assert known.names == ("c=green", "c=red", "n", "t=true")
    assert known.categories == {}
    same(matrix[:, :2], [[0, 1], [NAN, NAN], [0, 0], [0, 1], [1, 0], [0, 0]])
    same(matrix[:, 3], [1, NAN, 0] * 2)


def test_numbers_in_a_dictionary_are_categories_in_the_order_of_the_numbers():
    known, matrix = encoded({"c": pa.array([10, 9, 10, 9]).dictionary_encode()})
    assert known.categories == {"c": ("9", "10")}
    same(matrix[:, 0], [1, 0, 1, 0])


@pytest.mark.parametrize("values", [pa.nulls(4, pa.string()), pa.nulls(4, pa.dictionary(pa.int8(), pa.null()))])
def test_a_column_of_texts_that_are_all_missing_has_no_category(values):
    known, matrix = encoded({"c": values})
    assert known.categories == {"c": ()}
    assert np.isnan(matrix).all()
    assert encoded({"c": values}, "dummies")[0].names == ()


def test_only_the_categories_of_some_rows_count():
    table = pa.table({"c": ["a", "b", "b", "a", "b", "z"]})
    known = fit_encoding(table, ["c"], "here", rows=np.arange(5))
    assert known.categories == {"c": ("a", "b")}
    train, test = transform_splits(table, known, "here", [np.array([4, 0]), np.array([5])])
    same(train, [[1], [0]])
    same(test, [[-1]])


def test_other_rows_in_the_same_coding(tmp_path):
    rows = pa.table({"c": ["a", "b", None, "a"], "x": [1, 2, 3, 4], "when": [dt.date(2020, 1, 1)] * 4})
    known = fit_encoding(rows, ["c", "x", "when"], "here")
    (tmp_path / "new.csv").write_text("spare,when,x,c\n0,1970-01-11,,never seen\n0,,8,b\n0,1970-01-02 12:00:00,9,\n")
    found = transform(read_table(tmp_path / "new.csv"), known.names, known.categories, "there")
    same(found, [[-1, NAN, 10], [1, 8, NAN], [NAN, 9, 1.5]])


def test_other_rows_may_hold_only_those_texts_that_look_like_something_else():
    categories = {"c": ("1", "2", "true", "x")}
    for values, codes in (([2, 1], [1, 0]), ([True, False], [2, -1]), (pa.nulls(2), [NAN, NAN])):
        same(transform(pa.table({"c": values}), ["c"], categories, "there")[:, 0], codes)


@pytest.mark.parametrize(
    ("table", "code", "field", "value"),
    [
        ({"x": [1], "d": ["u"]}, "columns", "there", "c"),
        ({"c": ["a"], "d": ["u"]}, "columns", "there", "x"),
        ({"c": ["a"], "x": [1]}, "columns", "there", "d"),
        ({"c": [0.5], "x": [1], "d": ["u"]}, "columns", "there, column 'c'", "double"),
        ({"c": [dt.date(2020, 1, 1)], "x": [1], "d": ["u"]}, "columns", "there, column 'c'", "date32[day]"),
        ({"c": ["a"], "x": ["1"], "d": ["u"]}, "columns", "there, column 'x'", "string"),
    ],
)
def test_other_tables_that_do_not_fit(table, code, field, value):
    with refused(DataError, code, field=field, value=value):
        transform(pa.table(table), ["c", "x", "d=v"], {"c": ("a",)}, "there")


def test_names_with_equal_signs():
    table = pa.table({"c=d": ["e=f", "g", "h", "g", "h", "h"], "x": range(6)})
    known = fit_encoding(table, ["c=d", "x"], "here", style="dummies")
    assert known.names == ("c=d=g", "c=d=h", "x")
    other = pa.table({"x": [9, 8], "spare": [0, 0], "c=d": ["never seen", "h"]})
    same(transform(other, known.names, {}, "there"), [[0, 0, 9], [0, 1, 8]])
    clash = pa.table({"c": ["a", "b"] * 2, "c=b": [1, 2] * 2})
    with refused(DataError, "columns", field="here, column 'c'", value="c=b"):
        fit_encoding(clash, ["c"], "here", style="dummies")


cells = st.lists(st.one_of(st.none(), st.sampled_from(["a", "b", "", "NA", "é", "B"])), min_size=12, max_size=40)


@pytest.mark.slow
@given(cells)
def test_codes_and_dummies_equal_those_of_pandas(values):
    frame = pd.DataFrame({"c": pd.Series(values, dtype="string")})
    expected = frame["c"].astype("category")
    known, matrix = encoded({"c": pa.array(values, pa.string())})
    assert known.categories["c"] == tuple(expected.cat.categories)
    same(matrix[:, 0], expected.cat.codes.replace(-1, np.nan))
    known, matrix = encoded({"c": pa.array(values, pa.string())}, "dummies")
    dummies = pd.get_dummies(frame.astype("category"), drop_first=True, prefix_sep="=", dtype=float)
    assert known.names == tuple(dummies.columns)
    present = np.array([value is not None for value in values])
    same(matrix[present], dummies.to_numpy(dtype=float).reshape(len(values), -1)[present])
    assert np.isnan(matrix[~present]).all()


@given(cells, st.data())
def test_any_rows_of_a_file_get_the_codes_that_they_had(values, data):
    table = pa.table({"c": pa.array(values, pa.string()), "n": range(len(values))})
    known = fit_encoding(table, ["n", "c"], "here")
    whole = transform(table, known.names, known.categories, "here")
    some = np.array(data.draw(st.lists(st.integers(0, len(values) - 1), max_size=8)), dtype=np.int64)
    same(transform(table.take(pa.array(some)), known.names, known.categories, "here"), whole[some])
    same(transform_splits(table, known, "here", [some])[0], whole[some])


def test_a_parquet_file_of_pandas_categories(tmp_path):
    frame = pd.DataFrame({"c": pd.Categorical(["x", None, "y"] * 4, categories=["y", "unused", "x"], ordered=True)})
    pq.write_table(pa.Table.from_pandas(frame), tmp_path / "a.parquet")
    table = read_table(tmp_path / "a.parquet")
    known = fit_encoding(table, ["c"], "here")
    assert known.categories == {"c": ("x", "y")}
    same(transform(table, known.names, known.categories, "here")[:3, 0], [0, NAN, 1])


@pytest.mark.parametrize(
    ("values", "code", "field", "value", "about"),
    [
        ([1.0, 2.0, np.inf], "values", "here, column 'x'", np.inf, "row 2"),
        ([np.nan, 1e150, -1.1e150], "values", "here, column 'x'", -1.1e150, "row 2"),
        ([b"a", b"b"], "columns", "here, column 'x'", "binary", "must hold numbers, texts"),
        ([[1], [2]], "columns", "here, column 'x'", "list<item: int64>", ""),
    ],
)
@pytest.mark.parametrize("style", ["native", "dummies"])
def test_features_that_cannot_be_used(values, code, field, value, about, style):
    with refused(DataError, code, field=field, value=value) as caught:
        column(values, style)
    assert about in caught.value.reason


@pytest.mark.parametrize(("count", "rows"), [(1001, 5000), (51, 100), (3, 5)])
@pytest.mark.parametrize("style", ["native", "dummies"])
def test_more_categories_than_rows_allow(count, rows, style):
    values = [f"v{number % count}" for number in range(rows)]
    most = max_categories(rows)
    with refused(DataError, "values", field="here, column 'x'", value=count) as caught:
        column(values, style)
    assert f"may have {most}" in caught.value.reason
    assert column([f"v{number % most}" for number in range(rows)]).max() == most - 1


def test_hashed_texts_are_checksums_of_column_and_text():
    table = pa.table({"c": ["a", None, "b", "a"], "x": [1, 2, 3, 4], "d": ["a", "b", "a", None]})
    known = fit_encoding(table, ["c", "x", "d"], "here", style="hashed", buckets=7)
    assert known.names == ("c#7", "x", "d#7")
    assert known.categories == {"c#7": tuple("0123456"), "d#7": tuple("0123456")}
    code = {(column, text): zlib.crc32(f"{column}={text}".encode()) % 7 for column in "cd" for text in "abz"}
    other = pa.table({"d": ["z", "a"], "x": [5, 6], "c": [None, "z"]})
    same(
        transform(other, known.names, known.categories, "there"),
        [[NAN, 5, code["d", "z"]], [code["c", "z"], 6, code["d", "a"]]],
    )
    assert transform(table, known.names, known.categories, "here")[:, 0].tolist()[2] == code["c", "b"]


def test_hashed_columns_take_any_number_of_categories():
    values = [f"v{number}" for number in range(5000)]
    codes = column(values, "hashed")[:, 0]
    counts = np.bincount(codes.astype(int), minlength=1000)
    assert len(counts) == 1000
    assert abs(counts.var() - 5) < 1  # as of a Poisson distribution of mean 5


def test_a_native_column_named_like_a_hashed_one_is_never_taken_for_it():
    with refused(DataError, "columns", field="there", value="c#2"):
        transform(pa.table({"c": ["a"]}), ["c#2"], {"c#2": ("a", "b")}, "there")
    clash = pa.table({"c": ["a", "b"], "c#1000": [1, 2]})
    with refused(DataError, "columns", field="here, column 'c'", value="c#1000"):
        fit_encoding(clash, ["c"], "here", style="hashed")


def test_bytes_and_dictionaries_of_more_than_single_values_are_refused(tmp_path):
    views = pa.table({"x": pa.array([b"a", b"b"], pa.binary_view()), "y": [1, 2]})
    pq.write_table(views, tmp_path / "views.parquet")
    lists = pa.table({"x": pa.DictionaryArray.from_arrays([0, 1], pa.array([[1], [2]]))})
    for table in (read_table(tmp_path / "views.parquet"), lists):
        with refused(DataError, "columns", field="here, column 'x'"):
            fit_encoding(table, ["x"], "here", rows=np.array([0, 1]))
