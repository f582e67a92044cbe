"""Columns of a table as numbers: what a party does with its own columns before training.

Numbers become float64. A column of texts, categories or booleans becomes one 0/1 column for each of its values but the
first in sorted order, called ``column=value``; its values are taken from all rows of the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from labelward.errors import DataError

from .tables import find_column, row_name

__all__ = ["MAX_CATEGORIES", "MAX_MAGNITUDE", "as_numbers", "encode", "encode_as", "origin"]

MAX_CATEGORIES = 1000
"""A column with more distinct texts than this is taken for an id or a free text, and refused."""

MAX_MAGNITUDE = 1e150
"""A number beyond this is refused: squared distances of 10⁸ rows must stay below the largest float64."""


def encode(table: pa.Table, columns: Iterable[str], place: str) -> tuple[tuple[str, ...], NDArray[np.float64]]:
    """Return the names and the matrix (rows × encoded columns, C order) of some columns of a table.

    Args:
        table: the party's table.
        columns: names of its columns, in the order that is wanted.
        place: whose table it is, for messages.

    Raises:
        DataError: names place, column and row of a missing, infinite or huge value, a type that is not supported, or a
            column with more than :data:`MAX_CATEGORIES` categories.
    """
    names: list[str] = []
    parts: list[NDArray[np.float64] | tuple[NDArray[np.int64], int]] = []
    for column in columns:
        where = f"{place}, column {column!r}"
        values = find_column(table, column, place)
        if _is_categorical(values.type):
            codes, categories = _categories(values, where)
            for code, category in enumerate(categories[1:], 1):
                names.append(f"{column}={category}")
                parts.append((codes, code))
        else:
            names.append(column)
            parts.append(_numbers(values, where))
    matrix = np.empty((table.num_rows, len(parts)))
    for position, part in enumerate(parts):
        matrix[:, position] = part[0] == part[1] if isinstance(part, tuple) else part
    return tuple(names), matrix


def encode_as(table: pa.Table, names: Iterable[str], place: str) -> NDArray[np.float64]:
    """Return the matrix (rows × names, C order) of another table in a known encoding.

    Args:
        table: rows to predict or to attack with; columns that the encoding does not use are left out.
        names: the encoded names that :func:`encode` gave; a value of ``column=value`` that was not seen there is 0.
        place: whose table it is, for messages.

    Raises:
        DataError: as :func:`encode`, and where a column is missing.
    """
    wanted = tuple(names)
    matrix = np.empty((table.num_rows, len(wanted)))
    for position, name in enumerate(wanted):
        column = origin(name, table.column_names)
        if column is None:
            find_column(table, name.split("=")[0], place)  # raises, with the nearest one
            raise DataError(f"{place}: no column {name!r}")
        where, values = f"{place}, column {column!r}", table.column(column)
        if column == name:
            if _is_categorical(values.type):
                raise DataError(f"{where}: must hold numbers but has type {values.type}")
            matrix[:, position] = _numbers(values, where)
            continue
        category = name[len(column) + 1 :]
        codes, categories = _categories(values, where)
        code = categories.index(category) if category in categories else -1
        matrix[:, position] = codes == code
    return matrix


def origin(name: str, columns: Sequence[str]) -> str | None:
    """Return which of a table's columns an encoded name comes from: itself, or the head of ``column=value``."""
    heads = [name, *(name[:position] for position, character in enumerate(name) if character == "=")]
    return next((head for head in heads if head in columns), None)


def as_numbers(table: pa.Table, column: str, place: str) -> tuple[NDArray[np.float64], bool]:
    """Return one column as numbers without widening it, and whether the numbers are codes of categories."""
    values = find_column(table, column, place)
    where = f"{place}, column {column!r}"
    if _is_categorical(values.type):
        return _categories(values, where)[0].astype(np.float64), True
    return _numbers(values, where), False


def _is_categorical(kind: Any) -> bool:
    types = pa.types
    return bool(
        types.is_boolean(kind)
        or types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_string_view(kind)
        or types.is_dictionary(kind)
    )


def _refuse_missing(values: Any, missing: NDArray[np.bool_] | None, where: str) -> None:
    """``missing`` tells it for values without nulls, where NaN stands for a missing number."""
    if missing is None:
        if not values.null_count:
            return
        missing = pc.is_null(values).to_numpy(zero_copy_only=False)
    count = int(np.count_nonzero(missing))
    if count:
        first = int(np.argmax(missing))
        raise DataError(
            f"{where}: {count} values are missing (the first in {row_name(first)}); fill them or leave it out"
        )


def _numbers(values: Any, where: str) -> NDArray[np.float64]:
    kind, types = values.type, pa.types
    _refuse_missing(values, None, where)
    if not (types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)):
        raise DataError(f"{where}: type {kind} is not supported; it must hold numbers, texts or booleans")
    numbers = np.asarray(values.cast(pa.float64(), safe=False).to_numpy(), dtype=np.float64)
    fit = np.abs(numbers) <= MAX_MAGNITUDE
    if not fit.all():
        _refuse_missing(values, np.isnan(numbers), where)
        row = int(np.argmin(fit))
        wanted = f"at most {MAX_MAGNITUDE:g} in size" if np.isfinite(numbers[row]) else "finite"
        raise DataError(f"{where}: {row_name(row)}, is {numbers[row]}; values must be {wanted}")
    return numbers


def _categories(values: Any, where: str) -> tuple[NDArray[np.int64], list[str]]:
    """Return each row's position in the sorted list of categories, and that list as texts."""
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.string())
    _refuse_missing(values, None, where)
    encoded = pc.dictionary_encode(values).combine_chunks()
    if isinstance(encoded, pa.ChunkedArray):  # no or several chunks, depending on the version of Arrow
        encoded = encoded.unify_dictionaries().chunk(0)
    if len(encoded.dictionary) > MAX_CATEGORIES:
        raise DataError(
            f"{where}: {len(encoded.dictionary)} different values are more than the {MAX_CATEGORIES} categories "
            "that a column may have; is it an id?"
        )
    found = encoded.dictionary.to_pylist()
    order = sorted(range(len(found)), key=found.__getitem__)
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return rank[encoded.indices.to_numpy()], [str(found[position]) for position in order]
