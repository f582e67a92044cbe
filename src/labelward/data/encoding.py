"""Encoding of columns as float64, by each party before training.

- Numbers stay numbers; booleans become 0 and 1; dates become days since 1970, durations and times of day seconds;
  missing values become NaN.
- Texts and dictionaries are categories. As codes: positions in the sorted list of categories, NaN if missing, -1 for a
  category that does not occur in training. As dummies: a column ``column=category`` of 0 and 1 for each category but
  the first, NaN in all of them if missing. Hashed: one column ``column#buckets`` of codes, each the checksum of the
  column's name and the text, modulo the number of buckets; NaN if missing, and never unknown.
"""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from labelward.data.mistyped_values import check_mistyped, first_mistyped, is_text
from labelward.data.tables import describe_row, find_column, first_row
from labelward.errors import DataError, DataWarning

MAX_CATEGORIES = 1000
"""A column with more distinct texts is taken for an id or free text, and refused."""

_MOST_TOLD = 20  # columns that one error names

_EXACT = 2.0**53  # from here on whole numbers have more digits than a float64
MAX_MAGNITUDE = 1e150
"""A larger number is refused: squared distances over 10⁸ rows must stay below the largest float64."""

Floats = NDArray[np.float64]

_PER_DAY = {"s": 86_400.0, "ms": 86_400e3, "us": 86_400e6, "ns": 86_400e9}


@dataclass(frozen=True, kw_only=True)
class ColumnEncoding:
    """Encoding of the columns of a table."""

    names: tuple[str, ...]
    categories: Mapping[str, tuple[str, ...]]  # categories of each column that is encoded as codes; a code is an index
    dates: frozenset[str] | None = None  # columns that hold dates or times; None: unknown


def fit_encoding(
    table: pa.Table,
    columns: Sequence[str],
    place: str,
    *,
    style: str = "native",
    buckets: int = 1000,
    hashed: Collection[str] = (),
    rows: NDArray[np.int64] | None = None,
) -> ColumnEncoding:
    """Fit the encoding of columns of a table.

    Args:
        columns: names of columns, in the order of the encoded ones.
        style: encoding of categories: ``"native"`` codes, ``"dummies"`` or ``"hashed"``.
        buckets: number of codes of a hashed column.
        hashed: columns of texts that are hashed in any style.
        rows: positions of the rows whose categories are known; None: all.

    Raises:
        DataError: a column does not exist, has an unsupported type or more categories than :func:`max_categories`, or
            is a text column in which nearly all values are numbers or dates; names all such columns.
    """
    names: list[str] = []
    known: dict[str, tuple[str, ...]] = {}
    wrong: list[DataError] = []
    for column in columns:
        values, where = find_column(table, column, place), f"{place}, column {column!r}"
        own = "hashed" if column in hashed else style
        try:
            check_mistyped(values, where)
            if column in hashed and not is_categorical(values.type):
                reason = f"is listed under hashed but holds no text (type {values.type})"
                raise DataError(reason, code="columns", field=where, value=str(values.type))
            encoded = _fitted(values if rows is None else values.take(pa.array(rows)), column, own, buckets, where)
            for name in encoded:
                if name != column:
                    _check_new(name, table, where)
        except DataError as error:
            wrong.append(error)
            continue
        names += encoded
        known |= {name: categories for name, categories in encoded.items() if categories is not None}
    if wrong:
        raise _unusable(wrong, place)
    dates = frozenset(column for column in columns if _is_time(table[column].type))
    return ColumnEncoding(names=tuple(names), categories=known, dates=dates)


def _fitted(values: Any, column: str, style: str, buckets: int, where: str) -> dict[str, tuple[str, ...] | None]:
    """Return the encoded columns of one column: their names, and the categories of those that are codes."""
    if not is_categorical(values.type) and not (style == "dummies" and pa.types.is_boolean(values.type)):
        _check_number(values, where)
        return {column: None}
    if style == "hashed":
        return {f"{column}#{buckets}": tuple(map(str, range(buckets)))}
    categories = _categories(values, where)
    if style == "native":
        return {column: categories}
    return {f"{column}={category}": None for category in categories[1:]}


def _unusable(wrong: Sequence[DataError], place: str) -> DataError:
    """Return one error for all columns of a table that cannot be used."""
    if len(wrong) == 1:
        return wrong[0]
    if all("row 0," in error.reason for error in wrong):
        reason = "looks like a second line of names, since row 0 alone is no number or date in these columns; remove it"
        return DataError(reason, code="columns", field=place, value=tuple(error.field for error in wrong))
    told = [str(error).removeprefix(f"{place}, ") for error in wrong[:_MOST_TOLD]]
    more = [f"and {len(wrong) - _MOST_TOLD} more"] if len(wrong) > _MOST_TOLD else []
    reason = "\n  ".join([f"{len(wrong)} columns cannot be used; correct them, or list them under drop", *told, *more])
    return DataError(reason, code="columns", field=place, value=tuple(error.field for error in wrong))


def transform_splits(
    table: pa.Table, known: ColumnEncoding, place: str, sides: Sequence[NDArray[np.int64]]
) -> tuple[Floats, ...]:
    """Encode parts of a table: one matrix [rows, encoded columns] in C order for each part.

    Args:
        table: a table; columns outside the encoding are ignored.
        known: an encoding of :func:`fit_encoding`.
        sides: positions of the rows of each part.

    Raises:
        DataError: a column is missing or of another type than in training, or a value is infinite or too large.
    """
    matrices = tuple(np.empty((len(side), len(known.names))) for side in sides)
    # (column, positions, categories) of the column read last: its dummies follow one another, so it is read once
    read: tuple[str, NDArray[np.int64], tuple[str, ...]] | None = None
    available = frozenset(table.column_names)
    for position, name in enumerate(known.names):
        hashed = _hashed_column(name, known.categories.get(name, ()))
        coded = name in known.categories
        column = hashed or name if coded else source_column(name, available) or name.split("=")[0]
        values, where = find_column(table, column, place), f"{place}, column {column!r}"
        if coded:
            encoded = _codes(values, known.categories[name], where, hashed=hashed)
        elif column == name:
            if known.dates is not None:
                _check_time(values, where, dated=name in known.dates)
            encoded = encode_numbers(values, where)
        else:
            if read is None or read[0] != column:
                read = (column, *_ranked_categories(values))
            category = name[len(column) + 1 :]  # name is "column=category"
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
    """Encode another table as the training data were: a matrix [rows, columns] in C order.

    Args:
        table: rows to predict or to attack with; columns outside the encoding are ignored.
        columns: names of the encoded columns, ``column`` or ``column=category``.
        categories: categories of each column that is encoded as codes; another category becomes -1.
        dates: columns that must hold dates or times, while no other may; None: any may.

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
    """Return the column of a table that is encoded: its name, or that before ``=category`` or ``#buckets``."""
    heads = [name, *(name[:position] for position, character in enumerate(name) if character in "=#")]
    return next((head for head in heads if head in columns), None)


def is_categorical(kind: Any) -> bool:
    """Return whether a column of this Arrow type holds categories: texts, or a dictionary of single values."""
    if not pa.types.is_dictionary(kind):
        return is_text(kind)
    return not (pa.types.is_nested(kind.value_type) or isinstance(kind.value_type, pa.BaseExtensionType))


def max_categories(rows: int) -> int:
    """Return the largest number of categories of a column: half its rows, and at most 1000."""
    return min(MAX_CATEGORIES, max(2, rows // 2))


def encode_numbers(values: Any, where: str) -> Floats:
    """Return a column of numbers, booleans, dates or durations as float64 [rows], NaN where missing.

    Dates become days since 1970, durations and times of day seconds.

    Raises:
        DataError: the column has another type, or a value is infinite or too large.
    """
    _check_number(values, where)
    kind, types = values.type, pa.types
    if types.is_boolean(kind):
        values = values.cast(pa.uint8())
    elif types.is_date(kind):
        values = values.cast(pa.timestamp("ms"))
    elif types.is_null(kind):
        return np.full(len(values), np.nan)
    elif types.is_time(kind) or types.is_duration(kind):
        whole = values.cast(pa.int32() if types.is_time32(kind) else pa.int64())
        return _floats(whole) / (_PER_DAY[kind.unit] / _PER_DAY["s"])
    if types.is_timestamp(values.type):
        unit = values.type.unit
        return _floats(values.cast(pa.int64())) / _PER_DAY[unit]
    encoded = _floats(values)
    valid = np.isnan(encoded) | (np.abs(encoded) <= MAX_MAGNITUDE)
    if not valid.all():
        row = first_row(~valid)
        wanted = f"at most {MAX_MAGNITUDE:g} in magnitude" if np.isfinite(encoded[row]) else "finite"
        reason = f"{describe_row(row)}, is {encoded[row]}; values must be {wanted}"
        raise DataError(reason, code="values", field=where, value=float(encoded[row]))
    _warn_of_lost_digits(values, encoded, where)
    return encoded


def _warn_of_lost_digits(values: Any, encoded: Floats, where: str) -> None:
    """Warn of whole numbers that differ as they are and are equal as 64-bit numbers."""
    if pa.types.is_floating(values.type) or not (np.abs(encoded) >= _EXACT).any():
        return
    before, after = pc.count_distinct(values).as_py(), len(np.unique(encoded[~np.isnan(encoded)]))
    if after < before:
        reason = f"{where}: {before} different numbers are {after} in 64-bit floating point; if it is an id, drop it"
        warnings.warn(reason, DataWarning, stacklevel=2)


def _check_number(values: Any, where: str) -> None:
    """Refuse a column that :func:`encode_numbers` cannot encode."""
    kind, types = values.type, pa.types
    numeric = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) or types.is_boolean(kind)
    if numeric or types.is_null(kind) or _is_time(kind) or types.is_time(kind) or types.is_duration(kind):
        return
    wanted = "it must hold numbers" + ("" if is_categorical(kind) else ", texts, booleans, dates or durations")
    mistyped = first_mistyped(values, "number") if is_text(kind) else ""
    reason = f"{mistyped or f'type {kind} is not supported here'}; {wanted}"
    raise DataError(reason, code="columns", field=where, value=str(kind))


def _is_time(kind: Any) -> bool:
    return bool(pa.types.is_date(kind) or pa.types.is_timestamp(kind))


def _check_time(values: Any, where: str, *, dated: bool) -> None:
    """Refuse dates where training had numbers, and the reverse; a column without any value passes."""
    kind = values.type
    if _is_time(kind) == dated or pa.types.is_null(kind):
        return
    if not dated:
        raise DataError(
            f"has dates (type {kind}) but had numbers in training", code="columns", field=where, value=str(kind)
        )
    mistyped = first_mistyped(values, "date") if is_text(kind) else ""
    reason = (
        f"{mistyped or f'has type {kind}'}, but the column had dates in training; in a CSV file write all of them as "
        "2024-03-31 or 2024-03-31 18:00:00"
    )
    raise DataError(reason, code="columns", field=where, value=str(kind))


def _floats(values: Any) -> Floats:
    return np.asarray(values.cast(pa.float64(), safe=False).to_numpy(), dtype=np.float64)


def _categories(values: Any, where: str) -> tuple[str, ...]:
    """Return the categories of a column; refuse more than :func:`max_categories`."""
    categories = _ranked_categories(values)[1]
    most = max_categories(len(values))
    if len(categories) > most:
        reason = (
            f"it has {len(categories)} categories, but a column of {len(values)} rows may have {most}; list it under "
            "drop if it is an id or free text, or under hashed if its values recur"
        )
        raise DataError(reason, code="values", field=where, value=len(categories))
    return categories


def _check_new(name: str, table: pa.Table, where: str) -> None:
    """Refuse an encoded column whose name is that of another column."""
    if name in table.column_names:
        reason = f"its encoding needs a column {name!r}, which exists already; rename one of them"
        raise DataError(reason, code="columns", field=where, value=name)


def _hashed_column(name: str, categories: Sequence[str]) -> str | None:
    """Return the column whose texts an encoded one hashes; None if it hashes none."""
    column, _, buckets = name.rpartition("#")
    numbered = buckets == str(len(categories)) and all(one == str(code) for code, one in enumerate(categories))
    return column if column and numbered else None


def _codes(values: Any, categories: Sequence[str], where: str, *, hashed: str | None = None) -> Floats:
    """Return each row's position among known categories or hash bucket: NaN if missing, -1 if unknown."""
    kind, types = values.type, pa.types  # integers and booleans too: a CSV file may have only categories such as "1"
    if not (is_categorical(kind) or types.is_integer(kind) or types.is_boolean(kind) or types.is_null(kind)):
        raise DataError(
            f"must hold text, as in training, but has type {kind}", code="columns", field=where, value=str(kind)
        )
    ranks, occurring = _ranked_categories(values)
    if hashed is None:
        code_of = {category: code for code, category in enumerate(categories)}
        codes = [code_of.get(category, -1) for category in occurring]
    else:
        codes = [zlib.crc32(f"{hashed}={category}".encode()) % len(categories) for category in occurring]
    return np.array([*codes, np.nan])[ranks]  # last: rank -1, missing


def _ranked_categories(values: Any) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Return each row's position in the sorted list of the values that occur, -1 if missing, and that list as text."""
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if pa.types.is_boolean(values.type) or pa.types.is_string_view(values.type) or pa.types.is_null(values.type):
        values = values.cast(pa.string())
    encoded = pc.dictionary_encode(values).combine_chunks()
    if isinstance(encoded, pa.ChunkedArray):  # combine_chunks may return one, depending on the version of Arrow
        encoded = encoded.unify_dictionaries().chunk(0)
    distinct = encoded.dictionary.to_pylist()
    order = sorted(range(len(distinct)), key=distinct.__getitem__)
    rank = np.full(len(order) + 1, -1, dtype=np.int64)
    rank[order] = np.arange(len(order))
    return rank[encoded.indices.fill_null(len(order)).to_numpy()], tuple(str(distinct[position]) for position in order)
