"""Small records of one JSON file each, with a format version."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import msgspec

from labelward.errors import FileFormatError
from labelward.runs.secure_files import atomic_write

T = TypeVar("T", bound=msgspec.Struct)


def write_json(path: Path, record: msgspec.Struct) -> None:
    """Write a record, in one step; :class:`~labelward.errors.OutputError` where that is impossible."""
    with atomic_write(path) as file:
        file.write(msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n")


def read_json(path: Path, kind: type[T], form: int) -> T:
    """Read what :func:`write_json` wrote.

    Args:
        kind: of the record; it has a field ``format``.
        form: the format version that can be read.

    Raises:
        FileFormatError: it is missing, damaged or of another format version.
    """
    try:
        found: Any = msgspec.json.decode(path.read_bytes())
        version = found.get("format") if isinstance(found, dict) else None
        if version != form:
            raise FileFormatError(
                f"a record of format {version!r}; this version reads format {form}",
                code="format-version",
                field=str(path),
                value=version,
            )
        return msgspec.convert(found, kind)
    except OSError as error:
        raise FileFormatError(f"cannot be read ({error.strerror})", code="unreadable", field=str(path)) from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise FileFormatError(f"is damaged ({error})", code="damaged", field=str(path)) from error
