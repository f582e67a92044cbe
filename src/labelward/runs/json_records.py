"""Records in JSON files with a format version."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import msgspec

from labelward.errors import FileFormatError
from labelward.runs.secure_files import atomic_write

T = TypeVar("T", bound=msgspec.Struct)


def write_json(path: Path, record: msgspec.Struct) -> None:
    """Write a record atomically; :class:`~labelward.errors.OutputError` if it cannot be written."""
    with atomic_write(path) as file:
        file.write(msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n")


def read_json(path: Path, kind: type[T], form: int) -> T:
    """Read a record written by :func:`write_json`.

    Args:
        kind: type of the record, with a field ``format``.
        form: supported format version.

    Raises:
        FileFormatError: the file is missing, damaged or of another format version.
    """
    try:
        content: Any = msgspec.json.decode(path.read_bytes())
        version = content.get("format") if isinstance(content, dict) else None
        if version != form:
            raise FileFormatError(
                f"a record of format {version!r}; this version reads format {form}",
                code="format-version",
                field=str(path),
                value=version,
            )
        return msgspec.convert(content, kind)
    except OSError as error:
        raise FileFormatError(f"cannot be read ({error.strerror})", code="unreadable", field=str(path)) from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise FileFormatError(f"is damaged ({error})", code="damaged", field=str(path)) from error
