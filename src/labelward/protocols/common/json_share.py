"""Model shares on disk: in a JSON file with a checksum, as the families store them whose shares are small."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Self

import msgspec

from labelward.errors import OutputError
from labelward.party.json_file import encode_checked, read_checked
from labelward.runs.secure_files import write_bytes

FORMAT: Final = 1
FILE_NAME: Final = "share.json"


class JsonShare(msgspec.Struct, frozen=True, kw_only=True):
    """The base of such shares; they declare ``format: Literal[1] = 1`` themselves, as their first field."""

    def save(self, folder: Path) -> Path:
        """Write the share with a checksum, as :func:`write_share` does."""
        return write_share(folder, FILE_NAME, encode_checked(self))

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read a share; :class:`~labelward.errors.FileFormatError` where it is missing or damaged."""
        return read_checked(folder / FILE_NAME if folder.is_dir() else folder, cls, FORMAT)


def write_share(folder: Path, name: str, data: bytes) -> Path:
    """Write the file of a share; the folder gets mode 0700, the file 0600.

    Raises:
        OutputError: it cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        reason = f"a model share cannot be written to {folder}: {error.strerror}"
        raise OutputError(reason, code="unwritable", value=folder) from error
    write_bytes(folder / name, data)
    return folder / name
