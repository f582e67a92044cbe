"""JSON records with a format version: the version is checked before all other fields, which may have changed with it.

Apart from the records that use it, since none of them is a part of another.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TypeVar

import msgspec

from labelward.errors import FileFormatError

T = TypeVar("T", bound=msgspec.Struct)


class _Version(msgspec.Struct):
    format: int


class _Checked(msgspec.Struct, frozen=True):
    sha256: str
    share: msgspec.Raw


def decode_versioned(data: bytes, kind: type[T], form: int, *, field: str) -> T:
    """Decode a record.

    Args:
        kind: a struct with a field ``format``.
        form: supported format version.
        field: where the record is from, for errors.

    Raises:
        FileFormatError: the record is damaged, or of another format version.
    """
    try:
        version = msgspec.json.decode(data, type=_Version).format
        if version != form:
            reason = f"format {version}; this version reads format {form}"
            raise FileFormatError(reason, code="format-version", field=field, value=version)
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FileFormatError(f"damaged: {error}", code="damaged", field=field) from error


def read_versioned(path: Path, kind: type[T], form: int) -> T:
    """Read a file of one record; errors as of :func:`decode_versioned`, and if the file cannot be read."""
    return decode_versioned(_content(path), kind, form, field=str(path))


def encode_versioned(record: msgspec.Struct) -> bytes:
    """Return the content of a file that :func:`read_versioned` reads, indented for people."""
    return msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n"


def read_checked(path: Path, kind: type[T], form: int) -> T:
    """Read a file of :func:`encode_checked`; errors as of :func:`read_versioned`, and if the checksum differs."""
    data = _content(path)
    try:
        stored = msgspec.json.decode(data, type=_Checked)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FileFormatError(f"damaged: {error}", code="damaged", field=str(path)) from error
    record = decode_versioned(stored.share, kind, form, field=str(path))
    if hashlib.sha256(bytes(stored.share)).hexdigest() != stored.sha256:
        raise FileFormatError("damaged: its checksum does not match", code="damaged", field=str(path))
    return record


def encode_checked(record: msgspec.Struct) -> bytes:
    """Return the content of a file that :func:`read_checked` reads: the record, called ``share``, and its SHA-256.

    Raises:
        FileFormatError: the record could not be read again: JSON has no infinite numbers, and ``null`` is written.
    """
    body = msgspec.json.encode(record)
    try:
        msgspec.json.decode(body, type=type(record))
    except msgspec.ValidationError as error:
        raise FileFormatError(f"cannot be stored: {error}", code="damaged", field=type(record).__name__) from error
    return msgspec.json.encode(_Checked(hashlib.sha256(body).hexdigest(), msgspec.Raw(body)))


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise FileFormatError(f"cannot be read ({error.strerror})", code="unreadable", field=str(path)) from error
