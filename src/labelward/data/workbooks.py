"""Workbooks: one sheet of an Excel or OpenDocument file as a table, with a line of names."""

from __future__ import annotations

import datetime as dt
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from labelward.data.delimited import MAX_COLUMNS, read_texts
from labelward.errors import DataError, DataNote
from labelward.installation import missing_library
from labelward.job.table_formats import WrittenForm

_CONTAINER = b"\xd0\xcf\x11\xe0"  # of older versions, and of newer ones with a password


def read_workbook(file: Path, text: Sequence[str], form: WrittenForm) -> pa.Table:
    """Return the table of a sheet; cells keep their types, and a column of several types becomes text.

    Raises:
        DataError: the file has a password, is no workbook, or has no such sheet.
        DependencyError: the optional library is not installed.
    """
    try:
        import python_calamine as calamine
    except ImportError as error:
        raise missing_library("reading a workbook", "python-calamine", "excel") from error
    place = f"table {str(file)!r}"
    try:
        book = calamine.CalamineWorkbook.from_path(str(file))
    except calamine.PasswordError as error:
        raise DataError("has a password; save it without one", code="unreadable", field=place) from error
    except calamine.CalamineError as error:
        with file.open("rb") as start:
            if file.suffix.lower() == ".xlsx" and start.read(len(_CONTAINER)) == _CONTAINER:
                raise DataError("has a password; save it without one", code="unreadable", field=place) from error
        reason = f"cannot be read as a workbook ({' '.join(str(error).split())})"
        raise DataError(reason, code="unreadable", field=place) from error
    with book:
        lines = _sheet(book, form.sheet, place)
    names = [_text(cell) for cell in lines[0]]
    if len(names) > MAX_COLUMNS:
        reason = f"has {len(names)} columns, and at most {MAX_COLUMNS} are supported; is it transposed?"
        raise DataError(reason, code="columns", field=place, value=len(names))
    columns = [_column([line[position] for line in lines[1:]], name in text) for position, name in enumerate(names)]
    table = pa.Table.from_arrays(columns, names=names)
    table, told = read_texts(table, text, form.decimal or ".", form, place)
    if told:
        warnings.warn(f"{place}: read with {', '.join(told)}", DataNote, stacklevel=2)
    return table


def _sheet(book: Any, wanted: str | None, place: str) -> list[list[Any]]:
    """Return the cells of the named sheet, or of the first one that is not empty."""
    if wanted is not None and wanted not in book.sheet_names:
        reason = f"has no sheet {wanted!r}, but {', '.join(map(repr, book.sheet_names[:10]))}"
        raise DataError(reason, code="not-found", field=place, value=wanted)
    for name in [wanted] if wanted is not None else book.sheet_names:
        lines: list[list[Any]] = book.get_sheet_by_name(name).to_python(skip_empty_area=True)
        if lines:
            if wanted is None and len(book.sheet_names) > 1:
                told = f"{place}: read sheet {name!r}, one of {len(book.sheet_names)}"
                warnings.warn(told, DataNote, stacklevel=3)
            return lines
    raise DataError("the sheet is empty" if wanted else "all sheets are empty", code="rows", field=place, value=0)


def _column(cells: Sequence[Any], as_text: bool) -> pa.Array:
    """Return a column as Arrow has it: numbers without fractions become integers, which a workbook lacks."""
    known = [cell for cell in cells if cell != ""]
    kinds = {type(cell) for cell in known}
    values = [None if cell == "" else cell for cell in cells]
    if not as_text and len(kinds) == 1:
        (kind,) = kinds
        if kind is float and all(cell.is_integer() and abs(cell) < 2**53 for cell in known):
            return pa.array([None if cell is None else int(cell) for cell in values], pa.int64())
        if kind is dt.timedelta:
            return pa.array(values, pa.duration("us"))
        return pa.array(values)
    if not as_text and kinds == {dt.date, dt.datetime}:
        return pa.array([None if cell is None else _as_time(cell) for cell in values], pa.timestamp("us"))
    if not as_text and kinds <= {int, float}:
        return pa.array([None if cell is None else float(cell) for cell in values], pa.float64())
    return pa.array([None if cell is None else _text(cell) for cell in values], pa.string())


def _as_time(cell: dt.date | dt.datetime) -> dt.datetime:
    return cell if isinstance(cell, dt.datetime) else dt.datetime(cell.year, cell.month, cell.day)


def _text(cell: Any) -> str:
    return str(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell)
