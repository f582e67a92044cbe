"""Model shares in a JSON file with a checksum, as the families store them whose shares are small."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Self

import msgspec

from labelward.party.json_file import encode_checked, read_checked
from labelward.runs.secure_files import atomic_write

FORMAT: Final = 1
FILE_NAME: Final = "share.json"


class JsonShare(msgspec.Struct, frozen=True, kw_only=True):
    """The base of such shares; they declare ``format: Literal[1] = 1`` themselves, as their first field."""

    def save(self, folder: Path) -> Path:
        """Write the share with a checksum; :class:`~labelward.errors.OutputError` if it cannot be written."""
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with atomic_write(folder / FILE_NAME) as file:
            file.write(encode_checked(self))
        return folder / FILE_NAME

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read a share; :class:`~labelward.errors.FileFormatError` where it is missing or damaged."""
        return read_checked(folder / FILE_NAME if folder.is_dir() else folder, cls, FORMAT)
