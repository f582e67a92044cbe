"""The append-only, hash-chained record of one party's run.

A transcript file is ``magic`` followed by records: a little-endian uint32 length, a MessagePack body ``[kind, peer,
type, step, payload]``, and the SHA-256 of the previous record's hash and this body. Kinds: ``header``, ``received``
(the message, ciphertexts as digests), ``sent`` (type and size only), ``observed``, ``applied`` (a policy, with
parameters and what it did), and ``end``, without which a file was cut off.

Folders get mode 0700 and files 0600: a transcript is as sensitive as what it records.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Literal

import msgspec

from labelward.errors import FileFormatError, OutputError

__all__ = [
    "FILE_NAME",
    "FORMAT",
    "Entry",
    "Header",
    "Transcript",
    "decode_header",
    "framed_ids",
    "ids_digest",
    "read_entries",
]

FORMAT = 1
FILE_NAME = "transcript.lwt"
_MAGIC = b"labelward transcript\n"
_LENGTH = 4
_HASH = 32

Kind = Literal["header", "received", "sent", "observed", "applied", "end"]


class Header(msgspec.Struct, frozen=True):
    """Who recorded what kind of run.

    Attributes:
        rows: training rows, and prediction rows after them.
        insecure: why the run protects nothing (``"plain engine"``, ``"512-bit key"``, ``"seeded protection"``); empty
            otherwise.
        job: the shared part of the job, as JSON text by key.
        columns: the party's own encoded columns, in its order.
        ids: :func:`ids_digest` of the training rows; empty where the run has none.
        categories: for each of the party's categorical columns its categories, by code. None of these three ever
            travels.
    """

    format: int
    version: str
    party: str
    role: Literal["active", "passive"]
    peers: tuple[str, ...]
    rows: tuple[int, int]
    engine: str
    bits: int
    insecure: tuple[str, ...]
    job: dict[str, str]
    columns: tuple[str, ...] = ()
    ids: str = ""
    categories: dict[str, tuple[str, ...]] = {}


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """One record; ``payload`` is the message's own encoding."""

    kind: Kind
    peer: str
    type: str
    step: tuple[int, ...]
    payload: bytes


_entries = msgspec.msgpack.Decoder(Entry)
_headers = msgspec.msgpack.Decoder(Header)


class Transcript:
    """Append records to a file, or to memory where no folder is given.

    Raises:
        OutputError: the folder cannot be made or written, or holds a transcript already.
    """

    def __init__(self, header: Header, folder: Path | None = None) -> None:
        self.header = header
        self.entries: list[Entry] = []
        self._chain = bytes(_HASH)
        self._file: BinaryIO | None = None
        if folder is not None:
            try:
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                folder.chmod(0o700)
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
                self._file = os.fdopen(os.open(folder / FILE_NAME, flags, 0o600), "wb")
            except FileExistsError as error:
                raise OutputError(f"{folder} holds a transcript already") from error
            except OSError as error:
                raise OutputError(f"a transcript cannot be written to {folder}: {error.strerror}") from error
            self._file.write(_MAGIC)
        self._write(Entry("header", "", "Header", (), msgspec.msgpack.encode(header)))

    def append(self, kind: Kind, peer: str, name: str, step: tuple[int, ...], payload: bytes) -> None:
        """Add one record."""
        self._write(Entry(kind, peer, name, step, payload))

    def close(self, *, complete: bool) -> None:
        """Write the closing record, flush to disk and close; ``complete``: the party's program came to its end."""
        self._write(Entry("end", "", "complete" if complete else "failed", (), b""))
        if self._file is not None:
            file, self._file = self._file, None
            try:
                file.flush()
                with contextlib.suppress(OSError):
                    os.fsync(file.fileno())
            except OSError as error:
                raise OutputError(f"the transcript cannot be written: {error.strerror}") from error
            finally:
                with contextlib.suppress(OSError):
                    file.close()

    def _write(self, entry: Entry) -> None:
        if self._file is None:
            self.entries.append(entry)
            return
        body = msgspec.msgpack.encode(entry)
        self._chain = hashlib.sha256(self._chain + body).digest()
        try:
            self._file.write(len(body).to_bytes(_LENGTH, "little") + body + self._chain)
        except OSError as error:
            raise OutputError(f"the transcript cannot be written: {error.strerror}") from error


def read_entries(path: Path) -> Iterator[Entry]:
    """Yield the records of a file, verifying the chain; the first is the header.

    Raises:
        FileFormatError: no transcript, a record that is cut off, altered, missing or of an unknown kind; names its
            number.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise FileFormatError(f"no transcript can be read at {path}: {error.strerror}") from error
    if not data.startswith(_MAGIC):
        raise FileFormatError(f"{path} is no labelward transcript")
    position, number, chain = len(_MAGIC), 0, bytes(_HASH)
    if position == len(data):
        raise FileFormatError(f"{path} holds no record")
    while position < len(data):
        size = int.from_bytes(data[position : position + _LENGTH], "little")
        start, end = position + _LENGTH, position + _LENGTH + size
        if end + _HASH > len(data):
            raise FileFormatError(f"{path}: record {number} is cut off")
        chain = hashlib.sha256(chain + data[start:end]).digest()
        if chain != data[end : end + _HASH]:
            raise FileFormatError(f"{path}: record {number} is damaged (its hash does not fit)")
        try:
            yield _entries.decode(memoryview(data)[start:end])
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise FileFormatError(f"{path}: record {number} cannot be read: {error}") from error
        position, number = end + _HASH, number + 1


def ids_digest(ids: Iterable[str]) -> str:
    """Return the SHA-256 of row ids in this order, as hex; each is preceded by its length in bytes."""
    total = hashlib.sha256()
    for framed in framed_ids(ids):
        total.update(framed)
    return total.hexdigest()


def framed_ids(ids: Iterable[str]) -> Iterator[bytes]:
    """Yield each id preceded by its length in bytes, so that no two lists give the same bytes."""
    for name in ids:
        encoded = name.encode()
        yield len(encoded).to_bytes(8, "little") + encoded


def decode_header(entry: Entry) -> Header:
    """Return the header of a transcript's first record; :class:`FileFormatError` for another format version."""
    if entry.kind != "header":
        raise FileFormatError(f"a transcript begins with a record of kind {entry.kind!r}, not a header")
    try:
        found: Any = msgspec.msgpack.decode(entry.payload)
        if not isinstance(found, dict) or found.get("format") != FORMAT:
            version = found.get("format") if isinstance(found, dict) else None
            raise FileFormatError(f"a view of format {version!r}; this version reads format {FORMAT}")
        return _headers.decode(entry.payload)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise FileFormatError(f"a damaged view header: {error}") from error
