"""Typos in columns of numbers and dates, and columns of another kind than in training."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from labelward.data import encode_regression_targets, encode_weights, fit_encoding, read_ids, read_table, transform
from labelward.data.mistyped_values import check_mistyped, first_mistyped
from labelward.data.tables import find_column
from labelward.errors import Code, DataError
from refusals import refused

AGES = [str(20 + row) for row in range(40)]


def read(folder: Path, **columns: list[str]) -> pa.Table:
    lines = [",".join(columns), *(",".join(row) for row in zip(*columns.values(), strict=True))]
    (folder / "table.csv").write_text("\n".join(lines) + "\n")
    return read_table(folder / "table.csv")


def check_typo(table: pa.Table, column: str, typo: str, about: str, **options: Any) -> None:
    with refused(DataError, "values", field=f"party 'bank', column {column!r}", value=typo) as caught:
        fit_encoding(table, table.column_names, "party 'bank'", **options)
    assert about in caught.value.reason


@pytest.mark.parametrize("style", ["native", "dummies"])
def test_a_typo_in_a_column_of_numbers_is_no_category(tmp_path: Path, style: str) -> None:
    table = read(tmp_path, age=[*AGES[:9], "4o", *AGES[10:38], "NA", ""], town=["a", "b"] * 20)
    check_typo(table, "age", "4o", "row 9, counting", style=style)
    check_typo(table, "age", "4o", "37 of the 38", style=style)


def test_a_typo_outside_of_the_training_rows_is_one_too(tmp_path: Path) -> None:
    table = read(tmp_path, age=[*AGES[:9], "4o", *AGES[10:]])
    check_typo(table, "age", "4o", "row 9, counting", rows=np.arange(9))


@pytest.mark.parametrize("typo", ["2024-02-30", "31.03.2024", "soon", "20240331"])
def test_a_typo_in_a_column_of_dates(tmp_path: Path, typo: str) -> None:
    days = [f"2024-03-{1 + row % 31:02d}" for row in range(39)]
    table = read(tmp_path, since=[*days, typo])
    for about in ("row 39, counting", "39 of the 40", "dates"):
        check_typo(table, "since", typo, about)


@pytest.mark.parametrize(
    "values",
    [
        ["a", "b"] * 20,
        AGES,  # a file that has types says that these are texts
        [*AGES[:30], *["x"] * 10],  # numbers, but not nearly all
        [None] * 40,
        ["NA"] * 40,
        ["1,5", "2,5"] * 20,
    ],
)
def test_texts_that_are_meant_as_such(values: list[str | None]) -> None:
    check_mistyped(pa.chunked_array([pa.array(values, pa.string())]), "here")


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()])
def test_numbers_of_every_form(kind: Any) -> None:
    numbers = ["1", "-1.5", "+.5", "3.", "1e5", "2E-07", " 7 ", None, "NaN"]
    assert first_mistyped(pa.chunked_array([pa.array(numbers, kind)]), "number") == ""
    for wrong in ("1_000", "0x1f", "1e", ".", "", "l2", "12%"):
        told = first_mistyped(pa.chunked_array([pa.array([*numbers, wrong], kind)]), "number")
        assert told == ("" if wrong == "" else f"row 9, counting from 0, is {wrong!r}")


def test_categories_that_say_so_may_look_like_numbers() -> None:
    values = pa.array([*["1", "2"] * 20, "x", "x"]).dictionary_encode()
    assert fit_encoding(pa.table({"c": values}), ["c"], "here").categories == {"c": ("1", "2", "x")}


def test_a_typo_in_a_label_or_a_weight_is_named(tmp_path: Path) -> None:
    table = read(tmp_path, y=[*AGES[:7], "1O", *AGES[8:]])
    with refused(DataError, "labels", field="here, label column 'y'", value="string") as caught:
        encode_regression_targets(table, "y", "here")
    assert "(row 7," in caught.value.reason
    assert "'1O'" in caught.value.reason
    with refused(DataError, "columns", field="here, weight column 'y'", value="string") as caught:
        encode_weights(table, "y", "here")
    assert "'1O'" in caught.value.reason


class TestOtherTables:
    """Rows to predict, of columns that were numbers ``x`` and dates ``since`` in training."""

    @pytest.mark.parametrize(
        ("column", "values", "code", "field", "value", "about"),
        [
            ("x", ["1", "4o"], "columns", "there, column 'x'", "string", "row 1, counting"),
            ("x", [dt.date(2024, 3, 1)] * 2, "columns", "there, column 'x'", "date32[day]", ""),
            ("since", ["2024-03-01", "01.03.2024"], "columns", "there, column 'since'", "string", "row 1, counting"),
            ("since", [19783, 19784], "columns", "there, column 'since'", "int64", ""),
            ("since", [0.5, None], "columns", "there, column 'since'", "double", ""),
        ],
    )
    def test_what_is_refused(
        self, column: str, values: list[Any], code: Code, field: str, value: str, about: str
    ) -> None:
        table = pa.table({"x": [1, 2], "since": [dt.date(2024, 3, 1)] * 2})
        table = table.set_column(table.column_names.index(column), column, pa.array(values))
        with refused(DataError, code, field=field, value=value) as caught:
            transform(table, ["x", "since"], {}, "there", dates={"since"})
        assert about in caught.value.reason

    def test_what_is_taken(self) -> None:
        table = pa.table({"x": pa.nulls(2), "since": pa.array([dt.datetime(1970, 1, 2, 12), None])})
        found = transform(table, ["x", "since"], {}, "there", dates={"since"})
        np.testing.assert_array_equal(found, [[np.nan, 1.5], [np.nan, np.nan]])
        assert transform(pa.table({"since": [7]}), ["since"], {}, "there").tolist() == [[7]]  # nothing is known

    def test_a_coding_says_which_columns_are_dates(self) -> None:
        table = pa.table({"x": [1], "since": [dt.date(2024, 3, 1)], "at": [dt.datetime(2024, 3, 1)]})
        assert fit_encoding(table, table.column_names, "here").dates == frozenset({"since", "at"})


def test_only_near_names_are_suggested() -> None:
    table = pa.table({"income": [1], "age": [2]})
    for wrong, near in (("nope", ""), ("incom", "'income'?"), ("agr", "'age'?")):
        with refused(DataError, "columns", field="here", value=wrong) as caught:
            find_column(table, wrong, "here")
        assert near in caught.value.reason
        assert ("?" in caught.value.reason) == bool(near)
        assert "income, age" in caught.value.reason


def test_one_is_no_plural() -> None:
    for ids, words in ((["a", None], "1 id is"), (["a", "a"], "1 id repeats")):
        with refused(DataError, "rows", field="here, id column 'id'", value=1) as caught:
            read_ids(pa.table({"id": ids}), "id", "here")
        assert words in caught.value.reason
