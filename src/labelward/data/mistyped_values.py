"""Mistyped values: one typo turns a column of numbers or dates into a column of texts."""

from __future__ import annotations

import datetime as dt
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from labelward.data.tables import describe_row, first_row
from labelward.data.written_values import LOOKS_DATED, is_written_date
from labelward.errors import DataError

Wanted = Literal["number", "date", "written date"]

LEAST_SHARE = 0.9
"""A text column with at least this share of numbers, or of dates, is taken for a column of them with typos."""

_NUMBER = r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*$"
_DATE = r"^\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?)?(Z|[+-]\d{2}:?\d{2})?$"


def is_text(kind: Any) -> bool:
    """Return whether a column of this Arrow type holds texts."""
    types = pa.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def first_mistyped(values: Any, wanted: Wanted) -> str:
    """Return row and text of the first value that is neither missing nor of the wanted type; empty if there is none."""
    texts, _, known, fits = _distinct_texts(values, wanted)
    return _first(values, texts.filter(pa.array(known & ~fits)))


def check_mistyped(values: Any, where: str) -> None:
    """Refuse a text column of which nearly all values are numbers, or dates; if all are, text is intended.

    Args:
        values: the column; other types than text pass.

    Raises:
        DataError: names the first row whose value is of another type.
    """
    if not is_text(values.type):
        return
    kinds: tuple[Wanted, ...] = ("number", "date", "written date")
    for wanted in kinds:
        texts, counts, known, fits = _distinct_texts(values, wanted)
        total, fitting = int(counts[known].sum()), int(counts[known & fits].sum())
        if LEAST_SHARE * total <= fitting < total:
            misfits = texts.filter(pa.array(known & ~fits))
            reason = (
                f"{_first(values, misfits)}, but {fitting} of the {total} values are {wanted}s; correct it, or leave "
                "it empty if it is missing (if the values are categories, put a letter before each number, or store "
                "the column as a dictionary in Parquet)"
            )
            raise DataError(reason, code="values", field=where, value=misfits[0].as_py())


def _distinct_texts(values: Any, wanted: Wanted) -> tuple[Any, NDArray[np.int64], NDArray[np.bool_], NDArray[np.bool_]]:
    """Return the distinct texts of a column, their counts, and masks: not missing; of the wanted type."""
    from pyarrow import csv

    counted = pc.value_counts(values.cast(pa.large_string()))
    found, counts = counted.field("values"), counted.field("counts").to_numpy()
    missing = pa.array([*csv.ConvertOptions().null_values, None], pa.large_string())
    known = ~pc.is_in(found, value_set=missing).to_numpy(zero_copy_only=False)
    pattern = {"number": _NUMBER, "date": _DATE, "written date": LOOKS_DATED}[wanted]
    fits = pc.match_substring_regex(found, pattern).fill_null(False).to_numpy(zero_copy_only=False).copy()
    if wanted != "number":
        is_date = _in_calendar if wanted == "date" else is_written_date
        for position in np.flatnonzero(fits).tolist():
            fits[position] = is_date(found[position].as_py())
    return found, counts, known, fits


def _in_calendar(text: str) -> bool:
    try:
        dt.datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _first(values: Any, misfits: Any) -> str:
    if not len(misfits):
        return ""
    texts = values.cast(pa.large_string())
    row = first_row(pc.is_in(texts, value_set=misfits).to_numpy(zero_copy_only=False))
    return f"{describe_row(row)}, is {texts[row].as_py()!r}"
