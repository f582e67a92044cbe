"""Tables: reading files, converting tables in memory, finding columns and row ids. Messages count rows from 0."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from labelward.errors import LEAST_LIKENESS, DataError, DataWarning
from labelward.job import TableKeys
from labelward.job.table_formats import WrittenForm, has_table_suffix, listed_suffixes, table_reader, table_suffix

_FEW_COLUMNS = 20
_FILE_ROWS: ContextVar[NDArray[np.int64] | None] = ContextVar("file rows", default=None)


def read_table(path: str | os.PathLike[str], *, text: Sequence[str] = (), form: WrittenForm | None = None) -> pa.Table:
    """Return the table of a file, by the reader of its suffix (:data:`~labelward.job.table_formats.READERS`).

    Args:
        text: columns that stay text in formats without types, such as ids with leading zeros in CSV.
        form: how texts in the file are written; None: recognized.

    Raises:
        DataError: the file is missing or unreadable, or its table is empty or has unnamed or repeated columns.
    """
    file = Path(path)
    if not file.is_file():
        raise DataError("no such file", code="not-found", field=f"table {str(file)!r}")
    suffix = table_suffix(file.name)
    place = f"table {str(file)!r}"
    if not has_table_suffix(file.name):
        raise DataError(f"must end in {listed_suffixes()}", code="choice", field=place, value=suffix)
    try:
        table = table_reader(suffix)(file, text, form or WrittenForm())
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise DataError(f"cannot be read as {suffix[1:]} ({reason})", code="unreadable", field=place) from error
    if not isinstance(table, pa.Table | pa.RecordBatch):
        reason = f"the reader of {suffix} must return a pyarrow.Table, not {type(table).__name__}"
        raise DataError(reason, code="type", field=place)
    return _validated(table, place)


def read_parquet(file: Path, text: Sequence[str], form: WrittenForm) -> pa.Table:
    """Return the table of a Parquet file; the file stores its types, so ``text`` and ``form`` change nothing.

    Raises:
        pyarrow.ArrowException: the file is not Parquet, or damaged.
    """
    import pyarrow.parquet as pq

    with pq.ParquetFile(file) as opened:  # unlike a data set, it may have columns of one name, which are refused later
        return opened.read()


def read_source(path: str | os.PathLike[str], keys: TableKeys, ids: str | None, *, place: str = "") -> pa.Table:
    """Return the table of a file as a section of the job wants it read: :func:`read_table`, then :func:`prepared`.

    Args:
        keys: ``[data]``, or the section of a party with its own table.
        ids: its column of row ids, if any.
        place: as for :func:`prepared`.
    """
    text = [*([ids] if ids else []), *keys.text, *keys.hashed]
    return prepared(read_table(path, text=text, form=keys.form), keys, place=place)


def prepared(table: pa.Table, keys: TableKeys, *, place: str = "") -> pa.Table:
    """Return a table without the columns that the job drops, and with whole numbers that are categories as texts.

    Args:
        place: of the keys, for errors; empty: rows to predict, which need not have every column.

    Raises:
        DataError: the job drops or encodes a column that the table lacks, or takes numbers that are not whole for
            categories.
    """
    for key, columns in (("text", keys.text), ("hashed", keys.hashed), ("drop", keys.drop)):
        for column in columns if place else ():
            find_column(table, column, f"{place} {key}")
    for column in (*keys.text, *keys.hashed):
        position = table.schema.get_field_index(column)
        if position >= 0:
            table = _as_texts(table, position, place)
    return table.drop_columns([column for column in keys.drop if column in table.column_names])


def _as_texts(table: pa.Table, position: int, place: str) -> pa.Table:
    """Return a table with a column of whole numbers as texts; another column stays as it is.

    Readers of gaps make floats of whole numbers; NaN is a gap.
    """
    name, values = table.column_names[position], table.column(position)
    kind = values.type
    try:
        if pa.types.is_floating(kind):
            numbers = values.cast(pa.float64())
            values = pc.if_else(pc.is_nan(numbers), None, numbers).cast(pa.int64())
        elif pa.types.is_decimal(kind):
            values = values.cast(pa.int64())
        elif not pa.types.is_integer(kind):
            return table
        return table.set_column(position, name, values.cast(pa.string()))
    except pa.ArrowInvalid as error:
        reason = (
            f"column {name!r} is for categories, and has numbers that are not whole or very large; write them as text"
        )
        raise DataError(reason, code="type", field=f"{place} text" if place else "", value=name) from error


def as_table(rows: Any, name: str = "table") -> pa.Table:
    """Return a table in memory as an Arrow table.

    Args:
        rows: an Arrow or pandas table, an object with Arrow's C stream, or a mapping of arrays by column name. The
            index of a pandas table is dropped.
        name: name of the table in messages.

    Raises:
        DataError: the table cannot be converted, is empty, or has unnamed or repeated columns.
    """
    if isinstance(rows, pa.Table):
        return _validated(rows, name)
    if any(type(rows).__module__.startswith(library) for library in ("pandas.", "pandas")):
        names = [str(column) for column in rows.columns]
        _check_names(names, name)
        return _validated(_convert(lambda: pa.Table.from_pandas(rows, preserve_index=False), name), name)
    if isinstance(rows, Mapping) or hasattr(rows, "__arrow_c_stream__"):
        return _validated(_convert(lambda: pa.table(rows), name), name)
    reason = f"must be an Arrow or pandas table or a mapping of arrays but got {type(rows).__name__}"
    raise DataError(reason, code="type", field=name, value=type(rows).__name__)


def table_digest(table: pa.Table) -> str:
    """Return the SHA-256 of a table's names, types and values, as hex; how it is cut into chunks does not matter."""
    digest = hashlib.sha256()
    for name, column in zip(table.column_names, table.columns, strict=True):
        values = column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
        digest.update(f"{name}\0{values.type}\0{len(values)}\0".encode())
        digest.update(pc.is_null(values).to_numpy(zero_copy_only=False).tobytes())
        if pa.types.is_primitive(values.type) and not pa.types.is_boolean(values.type):
            whole = values.drop_null().combine_chunks()
            flat = whole.chunk(0) if isinstance(whole, pa.ChunkedArray) and whole.num_chunks else whole
            digest.update(flat.to_numpy(zero_copy_only=False).tobytes() if len(flat) else b"")
        else:
            digest.update("\0".join(map(str, values.drop_null().to_pylist())).encode())
    return digest.hexdigest()


def find_column(table: pa.Table, column: str, place: str) -> Any:
    """Return a column, or raise :class:`DataError`, which names ``place`` and the column of the most similar name."""
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
    """Return a column of row ids as text [rows].

    Raises:
        DataError: the column does not exist or holds neither integers nor text, or ids are missing or repeated.
    """
    ids = find_column(table, column, place)
    place = f"{place}, id column {column!r}"
    kind = ids.type.value_type if pa.types.is_dictionary(ids.type) else ids.type
    if not (pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        reason = f"ids must be integers or text but the column has type {kind}"
        raise DataError(reason, code="columns", field=place, value=str(kind))
    texts = np.asarray(ids.cast(pa.large_string()).fill_null("").to_numpy(zero_copy_only=False), dtype=np.str_)
    absent = np.flatnonzero(texts == "")  # an empty text is no id, in CSV nor elsewhere
    if len(absent):
        missing = "1 id is missing" if len(absent) == 1 else f"{len(absent)} ids are missing"
        reason = f"{missing} (the first in {describe_row(int(absent[0]))})"
        raise DataError(reason, code="rows", field=place, value=len(absent))
    repeats = np.ones(len(texts), dtype=np.bool_)
    repeats[np.unique(texts, return_index=True)[1]] = False
    if repeats.any():
        number, examples = np.count_nonzero(repeats), list(dict.fromkeys(texts[repeats].tolist()))[:3]
        reason = "1 id repeats an earlier one" if number == 1 else f"{number} ids repeat earlier ones"
        raise DataError(
            f"{reason} (such as {', '.join(map(repr, examples))}); ids must be unique",
            code="rows",
            field=place,
            value=int(number),
        )
    return texts


def row_ids(table: pa.Table, column: str | None, place: str) -> tuple[str, ...]:
    """Return the ids of a table's rows: of the named column or of ``id``, or else their numbers."""
    if column is None and "id" not in table.column_names:
        return tuple(map(str, range(table.num_rows)))
    return tuple(read_ids(table, column or "id", place).tolist())


@contextlib.contextmanager
def rows_taken(rows: NDArray[np.int64]) -> Iterator[None]:
    """Make messages count the rows of the file while a table holds some of them, or all in another order.

    Args:
        rows: for each row of the table its position in the file; inside of another call, in the table of that call.
    """
    outer = _FILE_ROWS.get()
    token = _FILE_ROWS.set(rows if outer is None else outer[rows])
    try:
        yield
    finally:
        _FILE_ROWS.reset(token)


def file_row(row: int) -> int:
    """Return the position in the file of a row of the present table."""
    rows = _FILE_ROWS.get()
    return row if rows is None else int(rows[row])


def first_row(wrong: NDArray[np.bool_]) -> int:
    """Return the row of the present table that is the first in the file of those marked, of which there is one."""
    return min(np.flatnonzero(wrong).tolist(), key=file_row)


def describe_row(row: int) -> str:
    """Return the name of a row of the present table in messages."""
    return f"row {file_row(row)}, counting from 0"


def check_same_ids(verb: str, first: tuple[str, NDArray[np.str_]], second: tuple[str, NDArray[np.str_]]) -> None:
    """Refuse two parties with different rows.

    Args:
        verb: what the parties do with the rows, for the message.
        first: name of a party and its row ids, sorted.
        second: the same of another party.

    Raises:
        DataError: ids differ; gives the number of missing ids at each party, and one of them.
    """
    (party, ids), (peer, theirs) = first, second
    if np.array_equal(ids, theirs):
        return
    missing, more = np.setdiff1d(ids, theirs), np.setdiff1d(theirs, ids)
    raise DataError(
        f"parties {party!r} and {peer!r} {verb} different rows: {_count(missing)} of {party!r} missing at {peer!r}, "
        f"{_count(more)} of {peer!r} missing at {party!r}",
        code="rows",
    )


def _count(ids: NDArray[np.str_]) -> str:
    number = "1 id" if len(ids) == 1 else f"{len(ids)} ids"
    return f"{number} (such as {str(ids[0])!r})" if len(ids) else number


def _convert(convert: Any, name: str) -> pa.Table:
    try:
        return convert()
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        raise DataError(f"cannot be converted to Arrow ({error})", code="type", field=name) from error


def _validated(table: pa.Table, name: str) -> pa.Table:
    _check_names(table.column_names, name)
    if table.num_rows == 0:
        raise DataError("the table has no rows", code="rows", field=name, value=0)
    index = [column for column in table.column_names if re.fullmatch(r"__index_level_\d+__", column)]
    if index:
        told = ", ".join(map(repr, index))
        warnings.warn(f"{name}: left out {told}, an index that pandas stored as a column", DataWarning, stacklevel=3)
        table = table.drop_columns(index)
    return table.cast(pa.schema([(field.name, _without_views(field.type)) for field in table.schema]))


def _without_views(kind: Any) -> Any:
    """Return the type with texts and bytes in place of views, which polars uses: Arrow cannot take rows of these."""
    if pa.types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, _without_views(kind.value_type), kind.ordered)
    if pa.types.is_binary_view(kind):
        return pa.binary()
    return pa.string() if pa.types.is_string_view(kind) else kind


def _check_names(names: Sequence[str], table: str) -> None:
    if not names:
        raise DataError("the table has no columns", code="columns", field=table)
    seen: set[str] = set()
    for position, name in enumerate(names):
        if not name:
            reason = f"column {position} has no name; name it, or leave it out if it is an index"
            raise DataError(reason, code="columns", field=table, value=position)
        if name in seen:
            raise DataError(f"two columns have the name {name!r}; rename one", code="columns", field=table, value=name)
        seen.add(name)
