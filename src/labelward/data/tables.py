"""Reading tables, and finding columns in them; rows are counted from 0 in every message."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from labelward.errors import LEAST_LIKENESS, DataError

__all__ = ["as_table", "check_same_ids", "describe_row", "find_column", "read_ids", "read_table"]

_FEW_COLUMNS = 20


def read_table(path: str | os.PathLike[str], *, text: Sequence[str] = ()) -> pa.Table:
    """Return the table of a ``.csv`` or ``.parquet`` file.

    Args:
        path: the file; its suffix says the format.
        text: columns of a CSV file that stay text, such as ids with leading zeros.

    Raises:
        DataError: the file is missing or unreadable, or its table is empty or has unnamed or repeated columns.
    """
    file = Path(path)
    if not file.is_file():
        raise DataError("no such file", code="not-found", field=f"table {str(file)!r}")
    suffix = file.suffix.lower()
    try:
        if suffix == ".csv":
            table = _read_csv(file, text)
        elif suffix == ".parquet":
            import pyarrow.parquet as pq

            table = pq.read_table(file)
        else:
            raise DataError("must end in .csv or .parquet", code="choice", field=f"table {str(file)!r}", value=suffix)
    except (pa.ArrowException, OSError) as error:
        reason = " ".join(str(error).split())
        raise DataError(
            f"cannot be read as {suffix[1:]} ({reason})", code="unreadable", field=f"table {str(file)!r}"
        ) from error
    return _checked(table, f"table {str(file)!r}")


def as_table(rows: Any, name: str = "table") -> pa.Table:
    """Return rows in memory as an Arrow table: Arrow, pandas, anything with Arrow's C stream, or arrays by name.

    Args:
        rows: the table; an index of pandas is left out.
        name: what error messages call it.

    Raises:
        DataError: it cannot be converted, is empty, or has unnamed or repeated columns.
    """
    if isinstance(rows, pa.Table):
        return _checked(rows, name)
    if any(type(rows).__module__.startswith(library) for library in ("pandas.", "pandas")):
        names = [str(column) for column in rows.columns]
        _check_names(names, name)
        return _checked(_converted(lambda: pa.Table.from_pandas(rows, preserve_index=False), name), name)
    if isinstance(rows, Mapping) or hasattr(rows, "__arrow_c_stream__"):
        return _checked(_converted(lambda: pa.table(rows), name), name)
    raise DataError(
        f"must be a table of Arrow, pandas or arrays by name but got {type(rows).__name__}",
        code="type",
        field=name,
        value=type(rows).__name__,
    )


def find_column(table: pa.Table, column: str, place: str) -> Any:
    """Return one column, or raise a :class:`DataError` that names ``place`` and the nearest column."""
    position = table.schema.get_field_index(column)
    if position >= 0:
        return table.column(position)
    names = table.column_names
    near = get_close_matches(column, names, n=1, cutoff=LEAST_LIKENESS)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    known = ", ".join(names[:_FEW_COLUMNS]) + (", …" if len(names) > _FEW_COLUMNS else "")
    raise DataError(
        f"no column {column!r}{hint} among the {len(names)} columns {known}", code="columns", field=place, value=column
    )


def read_ids(table: pa.Table, column: str, place: str) -> NDArray[np.str_]:
    """Return a column of row ids as text; missing ids, repeated ones and fractions are refused with their number.

    Raises:
        DataError: names ``place``, the column and the number of ids that are wrong.
    """
    ids = find_column(table, column, place)
    place = f"{place}, id column {column!r}"
    kind = ids.type.value_type if pa.types.is_dictionary(ids.type) else ids.type
    if not (pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise DataError(
            f"ids must be whole numbers or texts but the column has type {kind}",
            code="columns",
            field=place,
            value=str(kind),
        )
    if ids.null_count:
        first = int(np.argmax(pc.is_null(ids).to_numpy(zero_copy_only=False)))
        told = "1 id is missing" if ids.null_count == 1 else f"{ids.null_count} ids are missing"
        raise DataError(f"{told} (the first in {describe_row(first)})", code="rows", field=place, value=ids.null_count)
    texts = np.asarray(ids.cast(pa.large_string()).to_numpy(zero_copy_only=False), dtype=np.str_)
    repeats = np.ones(len(texts), dtype=np.bool_)
    repeats[np.unique(texts, return_index=True)[1]] = False
    if repeats.any():
        number, few = np.count_nonzero(repeats), list(dict.fromkeys(texts[repeats].tolist()))[:3]
        told = "1 id repeats an earlier one" if number == 1 else f"{number} ids repeat earlier ones"
        raise DataError(
            f"{told} (such as {', '.join(map(repr, few))}); each row needs its own",
            code="rows",
            field=place,
            value=int(number),
        )
    return texts


def describe_row(row: int) -> str:
    """Return how messages call a row."""
    return f"row {row}, counting from 0"


def check_same_ids(verb: str, held: tuple[str, NDArray[np.str_]], other: tuple[str, NDArray[np.str_]]) -> None:
    """Refuse two parties' sorted row ids that differ; :class:`DataError` with numbers and one id of each side."""
    (party, ids), (peer, theirs) = held, other
    if np.array_equal(ids, theirs):
        return
    missing, more = np.setdiff1d(ids, theirs), np.setdiff1d(theirs, ids)
    raise DataError(
        f"parties {party!r} and {peer!r} {verb} different rows: {_such(missing)} of {party!r} are missing at {peer!r}, "
        f"and {_such(more)} of {peer!r} at {party!r}",
        code="rows",
    )


def _such(ids: NDArray[np.str_]) -> str:
    number = "1 id" if len(ids) == 1 else f"{len(ids)} ids"
    return f"{number} (such as {str(ids[0])!r})" if len(ids) else number


def _read_csv(file: Path, text: Sequence[str]) -> pa.Table:
    """In columns of texts only the empty field is missing; numbers have Arrow's words for it too, such as ``NA``."""
    from pyarrow import csv

    options = csv.ConvertOptions(column_types={column: pa.string() for column in text}, strings_can_be_null=False)
    table = csv.read_csv(file, convert_options=options)
    for position, (name, column) in enumerate(zip(table.column_names, table.columns, strict=True)):
        if pa.types.is_string(column.type):
            filled = pc.if_else(pc.equal(column, ""), pa.scalar(None, pa.string()), column)
            table = table.set_column(position, name, filled)
    return table


def _converted(convert: Any, name: str) -> pa.Table:
    try:
        return convert()
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise DataError(f"cannot be converted to Arrow ({error})", code="type", field=name) from error


def _checked(table: pa.Table, name: str) -> pa.Table:
    _check_names(table.column_names, name)
    if table.num_rows == 0:
        raise DataError("holds no row", code="rows", field=name, value=0)
    return table.cast(pa.schema([(field.name, _plain(field.type)) for field in table.schema]))


def _plain(kind: Any) -> Any:
    """Return a type with texts in place of views of texts, which polars gives: Arrow cannot pick rows of these."""
    if pa.types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, _plain(kind.value_type), kind.ordered)
    return pa.string() if pa.types.is_string_view(kind) else kind


def _check_names(names: Sequence[str], table: str) -> None:
    if not names:
        raise DataError("holds no column", code="columns", field=table)
    seen: set[str] = set()
    for position, name in enumerate(names):
        if not name:
            raise DataError(
                f"column {position} has no name (an index that was written by mistake?)",
                code="columns",
                field=table,
                value=position,
            )
        if name in seen:
            raise DataError(f"two columns are called {name!r}", code="columns", field=table, value=name)
        seen.add(name)
