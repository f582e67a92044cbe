"""The label column as class numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from labelward.errors import DataError

from .tables import find_column, row_name

__all__ = ["encode_labels", "require_binary"]


def encode_labels(table: pa.Table, column: str, place: str) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Return the classes in sorted order, as text, and each row's position among them.

    Args:
        table: the active party's table.
        column: its label column: whole numbers, texts, categories or booleans.
        place: whose table it is, for messages.

    Raises:
        DataError: labels are missing, fractional or infinite, or all the same, or a class has a single row.
    """
    labels = find_column(table, column, place)
    where = f"{place}, label column {column!r}"
    if pa.types.is_dictionary(labels.type):
        labels = labels.cast(labels.type.value_type)
    _refuse_missing(labels, where)
    if pa.types.is_floating(labels.type) or pa.types.is_decimal(labels.type):
        labels = _whole(labels, where)
    kind = labels.type
    if not (pa.types.is_integer(kind) or pa.types.is_boolean(kind) or _is_text(kind)):
        raise DataError(f"{where}: type {kind} is not supported; labels must be whole numbers, texts or booleans")
    found = pc.unique(labels)
    found = found.take(pc.sort_indices(found.cast(pa.int8()) if pa.types.is_boolean(kind) else found))
    numbers = pc.index_in(labels, value_set=found).to_numpy().astype(np.int64)
    classes = tuple(str(value) for value in found.to_pylist())
    if len(classes) < 2:
        raise DataError(f"{where}: every label is {classes[0]!r}; at least two classes are needed")
    counts = np.bincount(numbers)
    if counts.min() < 2:
        lonely = classes[int(counts.argmin())]
        raise DataError(f"{where}: class {lonely!r} has a single row, which cannot be in training and in test")
    return classes, numbers


def require_binary(classes: Sequence[str], model: str, place: str) -> None:
    """Refuse labels of more than two classes for a model that handles two.

    Args:
        place: table and column of the labels, for messages.

    Raises:
        DataError: names place, model and the number of classes.
    """
    if len(classes) != 2:
        shown = ", ".join(map(repr, classes[:5])) + (", …" if len(classes) > 5 else "")
        raise DataError(f"{place}: {len(classes)} classes ({shown}); model {model!r} handles two")


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _refuse_missing(labels: Any, where: str) -> None:
    missing = pc.is_null(labels, nan_is_null=True).to_numpy(zero_copy_only=False)
    count = int(np.count_nonzero(missing))
    if count:
        raise DataError(f"{where}: {count} labels are missing (the first in {row_name(int(np.argmax(missing)))})")


def _whole(labels: Any, where: str) -> Any:
    numbers = np.asarray(labels.cast(pa.float64(), safe=False).to_numpy())
    wrong = ~np.isfinite(numbers) | (numbers != np.floor(numbers)) | (np.abs(numbers) > 2**53)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise DataError(f"{where}: {row_name(row)}, is {numbers[row]}; labels must be classes: whole numbers or texts")
    return pa.chunked_array([pa.array(numbers.astype(np.int64))])
