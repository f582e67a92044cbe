"""Table formats: the reader of each file suffix, in one list, and how texts in a file are written.

The check of ``[data] table``, messages, help texts, the commented job file and
:func:`~labelward.data.tables.read_table` take the suffixes from :data:`READERS`. A reader stands there as text and is
imported when a table of its format is read: a job is checked without loading a table library.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path, PurePath
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from labelward.extensions import extensions, load
from labelward.parameters import Parameters, Text


@dataclass(frozen=True, kw_only=True)
class WrittenForm(Parameters):
    """``format`` of a table: how numbers and dates are written in its file. What is left out is recognized."""

    section: ClassVar[str] = "format"

    encoding: Annotated[
        Literal["utf-8", "utf-16", "cp1252", "latin-1"] | None, Meta(description="Encoding of a text file.")
    ] = None
    separator: Annotated[str | None, Meta(description="Character between two fields of a line.")] = None
    quote: Annotated[str | None, Meta(description="Character around a field; left out: '\"'.")] = None
    decimal: Annotated[
        Literal[".", ","] | None, Meta(description="Decimal mark; the other one may stand between thousands.")
    ] = None
    dates: Annotated[
        Literal["day-first", "month-first"] | None, Meta(description="Whether 03/04/2024 is in April or in March.")
    ] = None
    sheet: Annotated[Text | None, Meta(description="Sheet of a workbook; left out: the first that is not empty.")] = (
        None
    )

    def check_parameters(self) -> None:
        """Refuse a separator and a quote that are no characters between and around fields, or the same one."""
        for name, mark in (("separator", self.separator), ("quote", self.quote)):
            if mark is not None and (len(mark) != 1 or not mark.isascii() or mark in "\r\n"):
                raise self.error(name, f"must be one ASCII character other than a line end, not {mark!r}", code="type")
        if self.separator == (self.quote or '"'):
            raise self.error("separator", f"{self.separator!r} is the quote already; give another quote or separator")


Reader = Callable[[Path, Sequence[str], WrittenForm], Any]
"""Returns the Arrow table of a file; the named columns stay text, even if all their values look like numbers."""

#: File suffix, in lower case → "module:function", a :data:`Reader`.
READERS: dict[str, str] = {
    ".csv": "labelward.data.delimited:read_delimited",
    ".tsv": "labelward.data.delimited:read_delimited",
    ".parquet": "labelward.data.tables:read_parquet",
    ".xlsx": "labelward.data.workbooks:read_workbook",
    ".xls": "labelward.data.workbooks:read_workbook",
    ".ods": "labelward.data.workbooks:read_workbook",
}

PREDICTION_SUFFIXES = (".parquet", ".csv", ".jsonl")
"""Of the files that predictions are written to; the last holds one JSON object a line."""

_COMPRESSED = (".gz", ".zst")  # of text files


def table_suffix(path: str) -> str:
    """Return the suffix of a path in lower case, without that of a compression."""
    file = PurePath(path.lower())
    inner = PurePath(file.stem).suffix
    return inner if file.suffix in _COMPRESSED and inner in (".csv", ".tsv") else file.suffix


def table_name(path: str) -> str:
    """Return the name of a table: that of the file, without folder and suffixes."""
    file = PurePath(path)
    return PurePath(file.stem).stem if file.suffix.lower() in _COMPRESSED else file.stem


def has_table_suffix(path: str) -> bool:
    """Return whether a path ends in the suffix of a table format, in any case of its letters."""
    suffix = table_suffix(path)
    return suffix in READERS or (suffix != "" and suffix[1:] in extensions("tables"))


def listed_suffixes() -> str:
    """Return all suffixes in a phrase such as ``.csv or .parquet``."""
    *head, last = dict.fromkeys((*READERS, *(f".{name}" for name in extensions("tables"))))
    return f"{', '.join(head)} or {last}" if head else last


def table_reader(suffix: str) -> Reader:
    """Return the reader of a suffix in lower case; :class:`KeyError` if there is none."""
    if suffix not in READERS:
        extension: Reader = load("tables", suffix[1:])
        return extension
    module, _, function = READERS[suffix].partition(":")
    reader: Reader = getattr(import_module(module), function)
    return reader
