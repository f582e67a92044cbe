"""Table formats: the reader of each file suffix, in one list.

The check of ``[data] table``, messages, help texts, the commented job file and
:func:`~labelward.data.tables.read_table` take the suffixes from :data:`READERS`. A reader stands there as text and is
imported when a table of its format is read: a job is checked without loading a table library.
"""

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path, PurePath
from typing import Any

Reader = Callable[[Path, Sequence[str]], Any]
"""Returns the Arrow table of a file; the named columns stay text, even if all their values look like numbers."""

#: File suffix, in lower case → "module:function", a :data:`Reader`.
READERS: dict[str, str] = {
    ".csv": "labelward.data.tables:read_csv",
    ".parquet": "labelward.data.tables:read_parquet",
}


def has_table_suffix(path: str) -> bool:
    """Return whether a path ends in the suffix of a table format, in any case of its letters."""
    return PurePath(path).suffix.lower() in READERS


def listed_suffixes() -> str:
    """Return all suffixes in a phrase such as ``.csv or .parquet``."""
    *head, last = READERS
    return f"{', '.join(head)} or {last}" if head else last


def table_reader(suffix: str) -> Reader:
    """Return the reader of a suffix in lower case; :class:`KeyError` if there is none."""
    module, _, function = READERS[suffix].partition(":")
    reader: Reader = getattr(import_module(module), function)
    return reader
