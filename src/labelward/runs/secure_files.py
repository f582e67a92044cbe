"""Owner-only files and folders, atomic writes, and folder locks."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from labelward.errors import OutputError
from labelward.party.durable_files import flush, replacing, write_durably
from labelward.party.json_file import encode_versioned

LOCK_FILE = ".lock"


@contextlib.contextmanager
def output_errors(path: Path) -> Iterator[None]:
    """Convert :class:`OSError` to an :class:`OutputError` that names the path."""
    try:
        yield
    except OSError as error:
        raise OutputError(f"cannot be written ({error.strerror})", code="unwritable", field=str(path)) from error


def private_folder(path: Path) -> Path:
    """Create a folder that only its owner can access; :class:`OutputError` if it cannot be created."""
    with output_errors(path):
        path.mkdir(mode=0o700, exist_ok=True)
        path.chmod(0o700)
    return path


@contextlib.contextmanager
def atomic_write(path: Path) -> Iterator[BinaryIO]:
    """Yield a file of mode 0600 that atomically replaces ``path`` at the end and is removed after an error.

    Raises:
        OutputError: the file cannot be written.
    """
    with output_errors(path), replacing(path) as file:
        yield file


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file atomically; errors as :func:`atomic_write`."""
    with atomic_write(path) as file:
        file.write(data)


def write_json(path: Path, record: msgspec.Struct) -> None:
    """Write a record with a format version atomically; it is on disk when this returns.

    Raises:
        OutputError: it cannot be written.
    """
    with output_errors(path):
        write_durably(path, encode_versioned(record))


def write_lines(path: Path, records: Iterable[msgspec.Struct]) -> None:
    """Write records, one a line, atomically; :class:`OutputError` if they cannot be written."""
    write_bytes(path, msgspec.json.Encoder().encode_lines(records))


def append_line(path: Path, record: msgspec.Struct) -> None:
    """Append a record to a file of one a line, on disk when this returns; an incomplete last line is dropped first.

    Raises:
        OutputError: it cannot be written.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        with os.fdopen(descriptor, "r+b", buffering=0) as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(0, end - 1))
            if end and file.read(1) != b"\n":
                file.seek(0)
                file.truncate(file.read().rfind(b"\n") + 1)
                file.seek(0, os.SEEK_END)
            file.write(msgspec.json.encode(record) + b"\n")
            os.fsync(file.fileno())
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror}", code="unwritable", value=str(path)) from error


def flush_files(folder: Path) -> None:
    """Return when the files of a folder are on disk, under their names; :class:`OutputError` if they cannot be."""
    with output_errors(folder):
        for path in (*folder.iterdir(), folder, folder.parent):
            flush(path)


@contextlib.contextmanager
def directory_lock(folder: Path) -> Iterator[None]:
    """Lock a folder for this process; the system releases the lock when the process ends for any reason.

    Raises:
        OutputError: another process holds the lock.
    """
    path = folder / LOCK_FILE
    with output_errors(path):
        descriptor = _lock(path)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            if _is_file_of(descriptor, path):
                path.unlink()
        os.close(descriptor)


def _lock(path: Path) -> int:
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_file_of(descriptor, path):  # otherwise the previous holder has just removed the file
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, str(os.getpid()).encode(), 0)
                return descriptor
        except BlockingIOError as error:
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace") or "unknown"
            os.close(descriptor)
            raise OutputError(
                f"{path.parent} is in use by another labelward (process {holder})",
                code="locked",
                value=str(path.parent),
            ) from error
        os.close(descriptor)


def _is_file_of(descriptor: int, path: Path) -> bool:
    return path.exists() and os.path.samestat(path.stat(), os.fstat(descriptor))
