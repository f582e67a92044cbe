"""Columns of a table as numbers: what a party does with its own columns before training.

Numbers become float64, booleans 0 and 1, dates and times days since 1970; a missing value is NaN. Texts and
dictionaries are categories: codes in the sorted order of their names, NaN where missing, -1 for a category that the
training did not know. Or, as dummies, they become a column of 0 and 1 for each category but the first, called
``column=category``; a missing value is NaN in all of them.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from labelward.data.mistyped_values import check_mistyped, first_mistyped, is_text
from labelward.data.tables import describe_row, find_column
from labelward.errors import DataError

__all__ = [
    "MAX_CATEGORIES",
    "MAX_MAGNITUDE",
    "ColumnEncoding",
    "encode_numbers",
    "fit_encoding",
    "is_categorical",
    "max_categories",
    "source_column",
    "transform",
    "transform_splits",
]

MAX_CATEGORIES = 1000
"""A column with more distinct texts than this is taken for an id or a free text, and refused."""

MAX_MAGNITUDE = 1e150
"""A number beyond this is refused: squared distances of 10⁸ rows must stay below the largest float64."""

Floats = NDArray[np.float64]

_PER_DAY = {"s": 86_400.0, "ms": 86_400e3, "us": 86_400e6, "ns": 86_400e9}


@dataclass(frozen=True, kw_only=True)
class ColumnEncoding:
    """What columns become.

    Attributes:
        names: of the encoded columns.
        categories: for each encoded column that holds codes its categories, by code.
        dates: the encoded columns that hold dates or times; None: it is not known which do.
    """

    names: tuple[str, ...]
    categories: Mapping[str, tuple[str, ...]]
    dates: frozenset[str] | None = None


def fit_encoding(
    table: pa.Table,
    columns: Sequence[str],
    place: str,
    *,
    style: str = "native",
    rows: NDArray[np.int64] | None = None,
) -> ColumnEncoding:
    """Return how some columns of a table are encoded.

    Args:
        table: the party's table.
        columns: names of its columns, in the order that is wanted.
        place: whose table it is, for messages.
        style: what categories become: ``"native"`` codes, or ``"dummies"``.
        rows: those whose categories count; None: all.

    Raises:
        DataError: names place and column that does not exist, has a type that is not supported or more categories than
            :func:`max_categories` of these rows, or holds texts that are numbers or dates but for a few.
    """
    names: list[str] = []
    known: dict[str, tuple[str, ...]] = {}
    dates = frozenset(column for column in columns if _is_time(find_column(table, column, place).type))
    for column in columns:
        values, where = find_column(table, column, place), f"{place}, column {column!r}"
        if not is_categorical(values.type) and not (style == "dummies" and pa.types.is_boolean(values.type)):
            names.append(column)
            continue
        check_mistyped(values, where)
        categories = _categories(values if rows is None else values.take(pa.array(rows)), where)
        if style == "native":
            names.append(column)
            known[column] = categories
            continue
        for category in categories[1:]:
            name = f"{column}={category}"
            if name in table.column_names:
                raise DataError(
                    f"the column of its category {category!r} has the name of another, {name!r}",
                    code="columns",
                    field=where,
                    value=name,
                )
            names.append(name)
    return ColumnEncoding(names=tuple(names), categories=known, dates=dates)


def transform_splits(
    table: pa.Table, known: ColumnEncoding, place: str, sides: Sequence[NDArray[np.int64]]
) -> tuple[Floats, ...]:
    """Return for each choice of rows the matrix (rows × encoded columns, C order) of a table.

    Args:
        table: columns that the coding does not use are left out.
        known: as :func:`fit_encoding` gave it.
        place: whose table it is, for messages.
        sides: positions of rows.

    Raises:
        DataError: names place, column and row of an infinite or huge value, or a column that is missing or of a type
            that does not fit.
    """
    matrices = tuple(np.empty((len(side), len(known.names))) for side in sides)
    read: tuple[str, NDArray[np.int64], tuple[str, ...]] | None = None  # the dummies of a column follow one another
    held = frozenset(table.column_names)
    for position, name in enumerate(known.names):
        column = source_column(name, held)
        if column is None:
            find_column(table, name if name in known.categories else name.split("=")[0], place)  # raises
            raise AssertionError
        values, where = find_column(table, column, place), f"{place}, column {column!r}"
        if name in known.categories:
            encoded = _codes(values, known.categories[name], where)
        elif column == name:
            if known.dates is not None:
                _check_time(values, where, dated=name in known.dates)
            encoded = encode_numbers(values, where)
        else:
            if read is None or read[0] != column:
                read = (column, *_found(values, where))
            category = name[len(column) + 1 :]
            code = read[2].index(category) if category in read[2] else len(read[2])
            encoded = np.where(read[1] < 0, np.nan, read[1] == code)
        for matrix, side in zip(matrices, sides, strict=True):
            matrix[:, position] = encoded[side]
    return matrices


def transform(
    table: pa.Table,
    columns: Sequence[str],
    categories: Mapping[str, Sequence[str]],
    place: str,
    *,
    dates: Collection[str] | None = None,
) -> Floats:
    """Return the matrix (rows × columns, C order) of another table in a known coding.

    Args:
        table: rows to predict or to attack with; columns that the coding does not use are left out.
        columns: the encoded names, ``column`` or ``column=category``; a category that is not among these is 0.
        categories: for each column that holds codes its categories, by code; another one becomes -1.
        place: whose table it is, for messages.
        dates: the columns that must hold dates or times, if anything; all others must not. None: any may.

    Raises:
        DataError: as :func:`transform_splits`.
    """
    known = ColumnEncoding(
        names=tuple(columns),
        categories={name: tuple(those) for name, those in categories.items()},
        dates=None if dates is None else frozenset(dates),
    )
    return transform_splits(table, known, place, [np.arange(table.num_rows)])[0]


def source_column(name: str, columns: Container[str]) -> str | None:
    """Return which of a table's columns an encoded name comes from: itself, or the head of ``column=category``."""
    heads = [name, *(name[:position] for position, character in enumerate(name) if character == "=")]
    return next((head for head in heads if head in columns), None)


def is_categorical(kind: Any) -> bool:
    """Return whether a column of this Arrow type holds categories."""
    return is_text(kind) or bool(pa.types.is_dictionary(kind))


def max_categories(rows: int) -> int:
    """Return how many categories a column of so many rows may have: two rows for each, and no more than 1000."""
    return min(MAX_CATEGORIES, max(2, rows // 2))


def encode_numbers(values: Any, where: str) -> Floats:
    """Return a column of numbers, booleans, dates or times as float64 [rows], NaN where missing.

    Raises:
        DataError: another type, or a value that is infinite or huge.
    """
    kind, types = values.type, pa.types
    if types.is_boolean(kind):
        values = values.cast(pa.uint8())
    elif types.is_date(kind):
        values = values.cast(pa.timestamp("ms"))
    elif types.is_null(kind):
        return np.full(len(values), np.nan)
    elif not (types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) or types.is_timestamp(kind)):
        wanted = "it must hold numbers" + ("" if is_categorical(kind) else ", texts, booleans, dates or times")
        misfit = first_mistyped(values, "number") if is_text(kind) else ""
        raise DataError(
            f"{misfit or f'type {kind} is not supported here'}; {wanted}", code="columns", field=where, value=str(kind)
        )
    if types.is_timestamp(values.type):
        unit = values.type.unit
        return _floats(values.cast(pa.int64())) / _PER_DAY[unit]
    found = _floats(values)
    fit = np.isnan(found) | (np.abs(found) <= MAX_MAGNITUDE)
    if not fit.all():
        row = int(np.argmin(fit))
        wanted = f"at most {MAX_MAGNITUDE:g} in size" if np.isfinite(found[row]) else "finite"
        raise DataError(
            f"{describe_row(row)}, is {found[row]}; values must be {wanted}",
            code="values",
            field=where,
            value=float(found[row]),
        )
    return found


def _is_time(kind: Any) -> bool:
    return bool(pa.types.is_date(kind) or pa.types.is_timestamp(kind))


def _check_time(values: Any, where: str, *, dated: bool) -> None:
    """Refuse dates where the training had numbers, and the reverse; a column without any value may stand for both."""
    kind = values.type
    if _is_time(kind) == dated or pa.types.is_null(kind):
        return
    if not dated:
        raise DataError(
            f"holds dates (type {kind}), but held numbers in training", code="columns", field=where, value=str(kind)
        )
    misfit = first_mistyped(values, "date") if is_text(kind) else ""
    raise DataError(
        f"{misfit or f'has type {kind}'}, but it held dates in training; a CSV file must have all of them as "
        "2024-03-31 or 2024-03-31 18:00:00",
        code="columns",
        field=where,
        value=str(kind),
    )


def _floats(values: Any) -> Floats:
    return np.asarray(values.cast(pa.float64(), safe=False).to_numpy(), dtype=np.float64)


def _categories(values: Any, where: str) -> tuple[str, ...]:
    """Return the categories of a column; refuse more of them than its rows allow."""
    found = _found(values, where)[1]
    most = max_categories(len(values))
    if len(found) > most:
        raise DataError(
            f"{len(found)} different values are more than the {most} categories that a column of "
            f"{len(values)} rows may have; leave it out if it is an id or a free text, or write it as numbers",
            code="values",
            field=where,
            value=len(found),
        )
    return found


def _codes(values: Any, categories: Sequence[str], where: str) -> Floats:
    """Return each row's position among known categories: NaN where missing, -1 for another."""
    kind, types = values.type, pa.types  # a file may hold only those of the texts that look like numbers
    if not (is_categorical(kind) or types.is_integer(kind) or types.is_boolean(kind) or types.is_null(kind)):
        raise DataError(
            f"must hold texts, as in training, but has type {kind}", code="columns", field=where, value=str(kind)
        )
    codes, found = _found(values, where)
    code_of = {category: code for code, category in enumerate(categories)}
    places = np.array([*(code_of.get(category, -1) for category in found), np.nan])
    return places[codes]


def _found(values: Any, where: str) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Return each row's position in the sorted list of what occurs, -1 where missing, and that list as texts."""
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if pa.types.is_boolean(values.type) or pa.types.is_string_view(values.type) or pa.types.is_null(values.type):
        values = values.cast(pa.string())
    encoded = pc.dictionary_encode(values).combine_chunks()
    if isinstance(encoded, pa.ChunkedArray):  # no or several chunks, depending on the version of Arrow
        encoded = encoded.unify_dictionaries().chunk(0)
    found = encoded.dictionary.to_pylist()
    order = sorted(range(len(found)), key=found.__getitem__)
    rank = np.full(len(order) + 1, -1, dtype=np.int64)
    rank[order] = np.arange(len(order))
    return rank[encoded.indices.fill_null(len(order)).to_numpy()], tuple(str(found[position]) for position in order)
