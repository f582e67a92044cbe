"""Tombstone of purged views and checkpoints: time of the purge and list of the removed files."""

from __future__ import annotations

from pathlib import Path

import msgspec

from labelward.party.json_file import encode_versioned, read_versioned

PURGED_FILE = "purged.json"
FORMAT = 1


class PurgedFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One removed file.

    Attributes:
        bytes: size.
        sha256: digest of a transcript, so that a copy found elsewhere can be identified. Transcripts contain random
            keys and nonces, so nobody can guess the content from the digest. Empty for checkpoints.
    """

    name: str
    bytes: int
    sha256: str = ""


class Purge(msgspec.Struct, frozen=True, kw_only=True):
    """One removal.

    Attributes:
        time: in UTC, to the second, as ISO 8601.
        version: labelward version that removed the files.
    """

    time: str
    version: str
    files: tuple[PurgedFile, ...]


class _Stored(msgspec.Struct, frozen=True, kw_only=True):
    format: int
    purges: tuple[Purge, ...]


def read_purges(folder: Path) -> tuple[Purge, ...]:
    """Return all purges of a folder, oldest first.

    Raises:
        FileFormatError: the record is damaged, or of another format version.
    """
    path = folder / PURGED_FILE
    return read_versioned(path, _Stored, FORMAT).purges if path.exists() else ()


def encode_purges(purges: tuple[Purge, ...]) -> bytes:
    """Return the content of ``purged.json``."""
    return encode_versioned(_Stored(format=FORMAT, purges=purges))


def purge_date(folder: Path) -> str | None:
    """Return the day of a folder's last purge, such as ``2026-11-21``; None if there was none."""
    purges = read_purges(folder)
    return purges[-1].time[:10] if purges else None
