"""Delimited text files: encoding, separator and written numbers and dates are recognized, or given by the job.

What is not plain (UTF-8, the separator of the suffix, a decimal point, ISO dates) is said in a
:class:`~labelward.errors.DataNote`, so that a wrong guess is seen; what cannot be told apart is refused.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv

from labelward.data.written_values import decimal_mark, has_commas, recognize
from labelward.errors import DataError, DataNote
from labelward.job.table_formats import WrittenForm, table_suffix

MAX_COLUMNS = 20_000
"""A file with more columns is refused: it is transposed, or its separator is wrong."""

_BLOCK = 1 << 20  # bytes that Arrow parses at once, as it does by default
_LARGEST_BLOCK = 2**31 - 1
_SAMPLE = 1 << 16  # bytes of the head of a file that show its separator
_SEPARATORS = (",", ";", "\t", "|")
_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))


_OTHERS = (
    (b"PK\3\4", "a workbook or a zip archive; give a workbook its suffix"),
    (b"\xd0\xcf\x11\xe0", "an old workbook, or one with a password; save it as .xlsx without one"),
    (b"PAR1", "a Parquet file; give it the suffix .parquet"),
    (b"\x1f\x8b", "compressed; give it the suffix .gz"),
    (b"(\xb5/\xfd", "compressed; give it the suffix .zst"),
    (b"%PDF", "a PDF document; export the table as text"),
    (b"\x89PNG", "a picture; export the table as text"),
    (b"<!doctype html", "a web page, such as one that asks for a password; download the table anew"),
    (b"<html", "a web page, such as one that asks for a password; download the table anew"),
)
"""How files of other kinds begin, in lower case where they are text."""


def read_delimited(file: Path, text: Sequence[str], form: WrittenForm) -> pa.Table:
    """Return the table of a file with a line of names and one line for each row; ``.gz`` and ``.zst`` are unpacked.

    In text columns only the empty field is missing; in columns of numbers also Arrow's words for it, such as ``NA``.

    Raises:
        DataError: the encoding, the number of fields or the form of numbers or dates is not the same throughout.
        pyarrow.ArrowException: the compressed file is damaged.
    """
    place = f"table {str(file)!r}"
    with pa.input_stream(str(file), compression="detect") as stream:
        content, encoding = _decoded(stream.read(), form.encoding, place)
    told = [encoding] if encoding not in ("utf-8", form.encoding) else []
    if not re.search(rb"\S", content):
        raise DataError("is empty; it needs a line of names and a line for each row", code="unreadable", field=place)
    if not re.search(rb"[\r\n]", content):
        content += b"\n"  # without which Arrow takes a line of names for none
    usual = "\t" if table_suffix(file.name) == ".tsv" else ","
    stated = re.match(rb"sep=(.)\r?\n", content)  # a line that Excel writes and reads
    if stated:
        content = content[stated.end() :]
    quote = form.quote or '"'
    separator = form.separator or (stated[1].decode() if stated else _separator(content, quote, usual))
    if separator not in (usual, form.separator):
        told.append(f"separator {_name(separator)}")
    lines = _Lines(content=content, separator=separator, quote=quote, text=text, place=place)
    table, decimal = lines.table(form.decimal or "."), form.decimal or "."
    if form.decimal is None and lines.decimal(table) == ",":
        table, decimal = lines.table(","), ","
        told.append("decimal comma")
    table, recognized = read_texts(table, text, decimal, form, place)
    if told or recognized:
        warnings.warn(f"{place}: read with {', '.join([*told, *recognized])}", DataNote, stacklevel=2)
    return table


def read_texts(
    table: pa.Table, text: Sequence[str], decimal: str, form: WrittenForm, place: str
) -> tuple[pa.Table, list[str]]:
    """Return a table with its columns of texts as numbers, dates or durations where that is what they are.

    Args:
        text: columns that stay text.
        decimal: the decimal mark.

    Returns:
        The table, and what was recognized and can be mistaken, in phrases.

    Raises:
        DataError: a row repeats the names, or dates of a column can be read in two ways.
    """
    _refuse_repeated_names(table, place)
    told: Counter[str] = Counter()
    for position, (name, column) in enumerate(zip(table.column_names, table.columns, strict=True)):
        if not pa.types.is_string(column.type):
            continue
        filled = pc.if_else(pc.equal(column, ""), pa.scalar(None, pa.string()), column)
        where = f"{place}, column {name!r}"
        read = None if name in text else recognize(filled, decimal=decimal, dates=form.dates, place=where)
        if read is not None and read.form:
            told[f"{read.form} in {name!r}"] += 1
        table = table.set_column(position, name, filled if read is None else read.values)
    return table, list(told)


def _refuse_repeated_names(table: pa.Table, place: str) -> None:
    """Refuse a table with a row of its names, as of files that were joined; all its columns are texts then."""
    names = table.column_names
    if len(names) < 2 or not all(pa.types.is_string(column.type) for column in table.columns):
        return
    same = pa.chunked_array([np.ones(table.num_rows, dtype=bool)])
    for name, column in zip(names, table.columns, strict=True):
        same = pc.and_(same, pc.equal(pc.fill_null(column, ""), name))
        if not pc.any(same).as_py():
            return
    row, repeated = pc.index(same, True).as_py(), pc.sum(same).as_py() - 1
    reason = f"row {row}, counting from 0, repeats the names of the columns"
    reason += f", and {repeated} more do; remove them" if repeated else "; remove it"
    raise DataError(reason, code="rows", field=place, value=row)


@dataclass(frozen=True, kw_only=True)
class _Lines:
    """The lines of a file in UTF-8, to be parsed with one decimal mark or the other."""

    content: bytes
    separator: str
    quote: str
    text: Sequence[str]
    place: str

    def table(self, decimal: str) -> pa.Table:
        """Return the table; :class:`DataError` if there are too many columns, or lines differ in their fields."""
        wide = re.split(rb"[\r\n]", self.content, maxsplit=1)[0].count(self.separator.encode()) + 1
        if wide > MAX_COLUMNS:
            reason = f"has {wide} columns, and at most {MAX_COLUMNS} are supported; is it transposed?"
            raise DataError(reason, code="columns", field=self.place, value=wide)
        convert = arrow_csv.ConvertOptions(
            column_types=dict.fromkeys(self.text, pa.string()), strings_can_be_null=False, decimal_point=decimal
        )
        parse = arrow_csv.ParseOptions(
            delimiter=self.separator, quote_char=self.quote, newlines_in_values=self.quote.encode() in self.content
        )

        def read(block: int) -> pa.Table:
            # Threads of Arrow that have just begun abort a process that ends at once, as after a table without rows.
            options = arrow_csv.ReadOptions(block_size=block, use_threads=len(self.content) > _BLOCK)
            return arrow_csv.read_csv(pa.BufferReader(self.content), options, parse, convert)

        try:
            return read(_BLOCK)
        except pa.ArrowInvalid as error:
            if ragged := self._ragged():
                raise ragged from error
            if len(self.content) <= _BLOCK:
                raise
            return read(min(len(self.content), _LARGEST_BLOCK))  # a row may be longer than a block

    def decimal(self, table: pa.Table) -> str:
        """Return the decimal mark, where ``table`` is what they are with a point; repeated names are refused later."""
        if len(set(table.column_names)) < len(table.column_names):
            return "."
        texts = {name: pc.unique(table[name]).to_pylist() for name in self._texts(table)}
        commas = {name: column for name, column in texts.items() if has_commas(column)}
        if not commas:
            return "."
        other = self.table(",")
        fractions = [name for name in self._texts(other) if pa.types.is_floating(table[name].type)]
        return decimal_mark(commas, {name: pc.unique(other[name]).to_pylist() for name in fractions}, self.place)

    def _texts(self, table: pa.Table) -> list[str]:
        return [each.name for each in table.schema if pa.types.is_string(each.type) and each.name not in self.text]

    def _ragged(self) -> DataError | None:
        """Return the error for the first row with another number of fields than the line of names."""
        lines = csv.reader(
            io.TextIOWrapper(io.BytesIO(self.content), encoding="utf-8", newline=""),
            delimiter=self.separator,
            quotechar=self.quote,
        )
        limit = csv.field_size_limit(len(self.content) + 1)  # behind a quote that is not closed all is one field
        try:
            names = next(lines, [])
            wrong = [(row, len(line)) for row, line in enumerate(filter(None, lines)) if len(line) != len(names)]
        finally:
            csv.field_size_limit(limit)
        if not wrong:
            return None
        row, fields = wrong[0]
        reason = (
            f"row {row}, counting from 0, has {_fields(fields)}, and the line of names {_fields(len(names))} "
            f"(separator {_name(self.separator)}; {len(wrong)} such rows); correct it, or quote fields with separators"
        )
        return DataError(reason, code="unreadable", field=self.place)


def _name(separator: str) -> str:
    return "tab" if separator == "\t" else repr(separator)


def _fields(number: int) -> str:
    return "1 field" if number == 1 else f"{number} fields"


def _decoded(content: bytes, given: str | None, place: str) -> tuple[bytes, str]:
    """Return a file's content in UTF-8 without a byte order mark, and its encoding.

    Raises:
        DataError: it is a file of another kind, or has bytes that the encoding does not allow, or NUL characters.
    """
    start = content[:64]
    for begin, what in _OTHERS:
        if start.startswith(begin) or start.lstrip().lower().startswith(begin):
            raise DataError(f"is no text: it is {what}", code="unreadable", field=place)
    marked = next(((mark, name) for mark, name in _MARKS if content.startswith(mark)), None)
    encoding = given or (marked[1] if marked else _guessed(content))
    if encoding == "utf-8":
        content = content.removeprefix(codecs.BOM_UTF8)
        if not (content.isascii() or _is_valid(content)):
            if given is None and not _mixed(content):
                encoding = "cp1252"
            else:
                raise _undecodable(content, "utf-8", place)
    if encoding != "utf-8":
        codec = "utf-16" if marked else "utf-16-le" if _low_first(content) else "utf-16-be"
        try:
            content = content.decode(codec if encoding == "utf-16" else encoding).encode()
        except UnicodeDecodeError as error:
            raise _undecodable(content, encoding, place) from error
    if (position := content.find(b"\0")) >= 0:
        line = content.count(b"\n", 0, position) + 1
        reason = f"has a NUL character in line {line}; it is damaged, or no text file"
        raise DataError(reason, code="unreadable", field=place)
    return content, encoding


def _guessed(content: bytes) -> str:
    """Return ``"utf-16"`` if every second byte of the head is zero, as in Latin text of that encoding."""
    head = content[: 1 << 10]
    zeros = (head[::2].count(0), head[1::2].count(0))
    return "utf-16" if len(head) > 3 and max(zeros) > 0.6 * len(head) / 2 and not min(zeros) else "utf-8"


def _low_first(content: bytes) -> bool:
    return content[1 : 1 << 10 : 2].count(0) > content[: 1 << 10 : 2].count(0)


def _is_valid(content: bytes) -> bool:
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _mixed(content: bytes) -> bool:
    """Return whether text that is not UTF-8 holds characters of UTF-8 all the same."""
    return bool(re.search(rb"[\xc3-\xf4][\x80-\xbf]{1,3}", content))


def _undecodable(content: bytes, encoding: str, place: str) -> DataError:
    lines = content.split(b"\n")
    line = next((number for number, each in enumerate(lines, 1) if not _fits(each, encoding)), len(lines))
    reason = (
        f"line {line} is not {encoding.upper()}, as other lines are; save the file in one encoding, or write encoding "
        "in the format of the table"
    )
    return DataError(reason, code="unreadable", field=place)


def _fits(line: bytes, encoding: str) -> bool:
    try:
        line.decode(encoding)
    except UnicodeDecodeError:
        return False
    return True


def _parsed(head: str, separator: str, quote: str) -> list[list[str]]:
    """Return the fields of some lines, which may end in any way; none where they are no such lines."""
    try:
        return list(csv.reader(io.StringIO(head, newline=""), delimiter=separator, quotechar=quote))
    except csv.Error:
        return []


def _separator(content: bytes, quote: str, usual: str) -> str:
    """Return the character that cuts the first lines into equally many fields, and the names into most."""
    head = content[:_SAMPLE].decode("utf-8", errors="ignore")
    best, reached = usual, (0.0, 1)
    for separator in dict.fromkeys((usual, *_SEPARATORS)):
        lines = [line for line in _parsed(head, separator, quote) if line]
        if len(content) > _SAMPLE and len(lines) > 2:
            lines.pop()  # it may be cut
        if len(lines) > 1 and len(lines[0]) > 1:
            equal = sum(len(line) == len(lines[0]) for line in lines) / len(lines)
            if (equal, len(lines[0])) > reached:
                best, reached = separator, (equal, len(lines[0]))
    return best
