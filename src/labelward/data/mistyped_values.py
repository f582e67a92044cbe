"""Values that do not fit their column: a typo makes a whole column of numbers or dates a column of texts."""

from __future__ import annotations

import datetime as dt
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from labelward.data.tables import describe_row
from labelward.errors import DataError

__all__ = ["check_mistyped", "first_mistyped", "is_text"]

Wanted = Literal["number", "date"]

LEAST_SHARE = 0.9
"""Texts of which so many are numbers, or dates, were meant to be such."""

_NUMBER = r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*$"
_DATE = r"^\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?)?(Z|[+-]\d{2}:?\d{2})?$"


def is_text(kind: Any) -> bool:
    """Return whether a column of this Arrow type holds texts."""
    types = pa.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def first_mistyped(values: Any, wanted: Wanted) -> str:
    """Return the first text of a column that is neither missing nor what is wanted, with its row; empty if all fit."""
    found, _, known, fits = _sorted_out(values, wanted)
    return _first(values, found.filter(pa.array(known & ~fits)))


def check_mistyped(values: Any, where: str) -> None:
    """Refuse a column of texts of which nearly all are numbers, or dates; where all are, they are meant as texts.

    Args:
        values: the column; of another type than text it is passed over.
        where: what messages call it.

    Raises:
        DataError: names the first row whose text is of another kind.
    """
    if not is_text(values.type):
        return
    for wanted in ("number", "date"):
        found, counts, known, fits = _sorted_out(values, wanted)
        total, fitting = int(counts[known].sum()), int(counts[known & fits].sum())
        if LEAST_SHARE * total <= fitting < total:
            misfits = found.filter(pa.array(known & ~fits))
            raise DataError(
                f"{_first(values, misfits)}, but {fitting} of the {total} values are {wanted}s; correct it, or "
                "leave it empty if it is missing (where these are categories, put a letter before each "
                "number, or store the column as a dictionary in Parquet)",
                code="values",
                field=where,
                value=misfits[0].as_py(),
            )


def _sorted_out(values: Any, wanted: Wanted) -> tuple[Any, NDArray[np.int64], NDArray[np.bool_], NDArray[np.bool_]]:
    """Return the distinct texts of a column, how often each occurs, which are known and which are what is wanted."""
    from pyarrow import csv

    counted = pc.value_counts(values.cast(pa.large_string()))
    found, counts = counted.field("values"), counted.field("counts").to_numpy()
    missing = pa.array([*csv.ConvertOptions().null_values, None], pa.large_string())
    known = ~pc.is_in(found, value_set=missing).to_numpy(zero_copy_only=False)
    pattern = _NUMBER if wanted == "number" else _DATE
    fits = pc.match_substring_regex(found, pattern).fill_null(False).to_numpy(zero_copy_only=False).copy()
    if wanted == "date":
        for position in np.flatnonzero(fits).tolist():
            fits[position] = _in_calendar(found[position].as_py())
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
    row = int(np.argmax(pc.is_in(texts, value_set=misfits).to_numpy(zero_copy_only=False)))
    return f"{describe_row(row)}, is {texts[row].as_py()!r}"
