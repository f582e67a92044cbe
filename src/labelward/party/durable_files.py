"""Files that are complete and on disk, or not there: what others rely on after a kill or a power cut.

Apart from :mod:`.checkpoint`, since what runs write beside their checkpoints needs the same.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

PARTIAL = ".partial"
"""Ending of a file that is being written."""


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Yield a file of mode 0600 that replaces ``path`` at the end, at once, and is removed after an error.

    Raises:
        OSError: it cannot be written.
    """
    partial = path.with_name(path.name + PARTIAL)
    try:
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            yield file
        partial.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise


def write_complete(path: Path, *parts: bytes) -> None:
    """Write a file of mode 0600 atomically: complete, or not at all. Its name may be lost in a power cut.

    Raises:
        OSError: it cannot be written.
    """
    with replacing(path) as file:
        for part in parts:
            file.write(part)
        file.flush()
        os.fsync(file.fileno())


def flush(path: Path) -> None:
    """Return when a file, or the names in a folder, are on disk; :class:`OSError` if they cannot be."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_durably(path: Path, *parts: bytes) -> None:
    """Write a file atomically; it is on disk, under its name, when this returns; errors as :func:`write_complete`."""
    write_complete(path, *parts)
    flush(path.parent)
