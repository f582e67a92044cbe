"""The append-only, hash-chained record of one party's run.

A transcript file is ``magic`` followed by records: a little-endian uint32 length, a MessagePack body ``[kind, peer,
type, step, payload, frame]``, and the SHA-256 of the previous record's hash and this body. Kinds: ``header``,
``received`` (the message, ciphertexts as digests), ``sent`` (type and size only), ``observed``, ``applied`` (a policy,
with parameters and account), ``linked`` (the exchange with a peer, from which this attempt goes on; the type names the
first of the two in party order), ``attempt`` (the
run resumes here, in a new attempt), and ``end``; a file without ``end`` was cut off. ``frame`` is the SHA-256 of a
message as it was sent or received, from which :meth:`labelward.party.view.View.exchanges` recomputes the exchanges.

Folders get mode 0700 and files 0600: a transcript is as sensitive as the data it records.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Literal

import msgspec

from labelward.errors import FileFormatError, OutputError
from labelward.messages import handshake
from labelward.messages.base import wire_name

FORMAT = 1
FILE_NAME = "transcript.lwt"
_MAGIC = b"labelward transcript\n"
_LENGTH = 4
_HASH = 32
_IDS_AT_ONCE = 1 << 16
_GREETINGS = frozenset(
    wire_name(kind)
    for kind in (
        handshake.Hello,
        handshake.PairHistories,
        handshake.RowSplit,
        handshake.RowIdDigests,
        handshake.BlindedRowIds,
        handshake.TwiceBlindedRowIds,
        handshake.PairStart,
        handshake.KeyOffer,
    )
)
"""What passes before a party has learned or told anything of a training."""
_OF_THE_TABLE = frozenset({"rows", "columns", "ids", "categories", "monotone"})
"""Fields of a header that follow from the party's own table."""

Kind = Literal["header", "received", "sent", "observed", "applied", "linked", "attempt", "end"]


class Header(msgspec.Struct, frozen=True):
    """Recording party and kind of run.

    Attributes:
        rows: numbers of training rows and of the prediction rows after them.
        insecure: reasons why the run is insecure (``"plain engine"``, ``"512-bit key"``, ``"seeded protection"``).
        job: the shared part of the job, as JSON text by key.
        columns: the party's own encoded columns, in its order.
        ids: :func:`ids_digest` of the training rows; empty if the run has none.
        categories: for each of the party's categorical columns its categories, by code.
        monotone: 1 or -1 by name of each of its columns with a monotone constraint; empty in views of versions that did
            not state it. ``columns``, ``ids``, ``categories`` and ``monotone`` are never sent.
    """

    format: int
    version: str
    party: str
    role: str
    peers: tuple[str, ...]
    rows: tuple[int, int]
    engine: str
    bits: int
    insecure: tuple[str, ...]
    job: dict[str, str]
    columns: tuple[str, ...] = ()
    ids: str = ""
    categories: dict[str, tuple[str, ...]] = {}
    monotone: dict[str, int] = {}


class TranscriptEntry(msgspec.Struct, frozen=True, array_like=True):
    """One record; ``payload`` is the message's own encoding, ``frame`` the SHA-256 of the frame that carried it."""

    kind: Kind
    peer: str
    type: str
    step: tuple[int, ...]
    payload: bytes
    frame: bytes = b""


_entries = msgspec.msgpack.Decoder(TranscriptEntry)
_headers = msgspec.msgpack.Decoder(Header)


class Transcript:
    """Append records to a file, or to memory without a folder. Each record is passed to the system immediately.

    Args:
        header: recording party and kind of run; None: supplied later by :meth:`begin`, with records buffered in memory
            until then.
        folder: created with mode 0700.
        resume: whether to continue an existing transcript. Its chain is verified, and an incomplete last record is
            removed; a record ``attempt`` marks the beginning of the new attempt. One with another table that holds
            nothing but greetings, and that no checkpoint expects, is replaced.
        finished: with ``resume``, whether to continue even a complete one.
        expected: with ``resume``, number and hash of the last record that the transcript had, as a checkpoint says
            (:attr:`position`).

    Raises:
        FileFormatError: with ``resume``, the existing transcript is damaged, or lacks expected records.
        OutputError: the folder cannot be created or written, or already contains a transcript; with ``resume``, the
            transcript is complete, or belongs to another run (names the fields that differ).
    """

    def __init__(
        self,
        header: Header | None,
        folder: Path | None = None,
        *,
        resume: bool = False,
        finished: bool = False,
        expected: tuple[int, bytes] | None = None,
    ) -> None:
        self.entries: list[TranscriptEntry] = []
        self._header: Header | None = None
        self._folder, self._resume, self._finished = folder, resume, finished
        self._expected, self._records, self._chain = expected, 0, bytes(_HASH)
        self._file: BinaryIO | None = None
        if header is not None:
            self.begin(header)

    @property
    def header(self) -> Header:
        """Who records what kind of run."""
        if self._header is None:
            raise ValueError("the transcript has no header yet")
        return self._header

    def begin(self, header: Header) -> None:
        """Set the header; arguments and errors as for the class."""
        if self._header is not None:
            raise ValueError("the transcript has a header already")
        self._header, early, self.entries = header, self.entries, []
        if self._folder is None or not self._open_existing(self._folder, header):
            self._write(TranscriptEntry("header", "", "Header", (), msgspec.msgpack.encode(header)))
        for entry in early:
            self._write(entry)

    def begun(self) -> bool:
        """Return whether an earlier attempt in the folder has told or learned more than greetings.

        Raises:
            FileFormatError: the transcript is damaged.
        """
        path = None if self._folder is None else self._folder / FILE_NAME
        if path is None or not self._resume or not path.exists():
            return False
        with contextlib.suppress(_CutOffError):
            return any(_tells(entry) for entry, _, _ in _records(path, path.read_bytes()))
        return False

    @property
    def position(self) -> tuple[int, bytes] | None:
        """Number of records in the file, and hash of the last one; None for a transcript in memory."""
        return (self._records, self._chain) if self._folder is not None and self._header is not None else None

    def append(
        self, kind: Kind, peer: str, name: str, step: tuple[int, ...], payload: bytes, frame: bytes = b""
    ) -> None:
        """Add one record."""
        self._write(TranscriptEntry(kind, peer, name, step, payload, frame))

    def flush(self) -> None:
        """Flush all records to disk."""
        if self._file is not None:
            try:
                os.fsync(self._file.fileno())
            except OSError as error:
                raise self._write_error(error) from error

    def close(self, *, complete: bool) -> None:
        """Write the closing record, flush to disk and close; ``complete``: the party's program finished."""
        if self._header is None:
            return
        try:
            self._write(TranscriptEntry("end", "", "complete" if complete else "failed", (), b""))
            self.flush()
        finally:
            if self._file is not None:
                file, self._file = self._file, None
                with contextlib.suppress(OSError):
                    file.close()

    def _write_error(self, error: OSError) -> OutputError:
        return OutputError(
            f"the transcript cannot be written ({error.strerror})", code="unwritable", field=str(self._folder)
        )

    def _write(self, entry: TranscriptEntry) -> None:
        if self._file is None:
            self.entries.append(entry)
            return
        body = msgspec.msgpack.encode(entry)
        chain = hashlib.sha256(self._chain + body).digest()
        try:
            self._file.write(len(body).to_bytes(_LENGTH, "little") + body + chain)
            self._file.flush()
        except OSError as error:
            raise self._write_error(error) from error
        self._records, self._chain = self._records + 1, chain

    def _open_existing(self, folder: Path, header: Header) -> bool:
        """Open the file; return whether an existing one is continued, which already has its header."""
        path = folder / FILE_NAME
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            folder.chmod(0o700)
            if self._resume and path.exists():
                attempts = self._resume_file(path, header)
                if attempts:
                    self._write(TranscriptEntry("attempt", "", "Attempt", (attempts + 1,), b""))
                    return True
                path.unlink()  # cut off in its first record, or greetings with another table
            self._require_expected(0)
            self._file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
            self._file.write(_MAGIC)
        except FileExistsError as error:
            raise OutputError(f"{folder} already contains a transcript", code="exists", value=folder) from error
        except OSError as error:
            raise OutputError(
                f"a transcript cannot be written to {folder}: {error.strerror}", code="unwritable", value=folder
            ) from error
        return False

    def _resume_file(self, path: Path, header: Header) -> int:
        """Verify a transcript, open it after its last complete record, and return its attempts (0: empty)."""
        data, attempts, last, end = path.read_bytes(), 0, None, 0
        theirs, greeted, self._records = None, True, 0
        if _MAGIC.startswith(data):
            return 0
        try:
            for last, position, chain in _records(path, data):
                end, self._records, self._chain = position, self._records + 1, chain
                if self._expected is not None and self._records == self._expected[0] and chain != self._expected[1]:
                    self._require_expected(0)
                if not attempts:
                    theirs, attempts = decode_header(last), 1
                attempts += last.kind == "attempt"
                greeted = greeted and not _tells(last)
        except _CutOffError:
            if not attempts:
                return 0
        assert theirs is not None
        differing = set(_differing(header, theirs))
        if greeted and self._expected is None and differing and differing <= _OF_THE_TABLE:
            self._records, self._chain = 0, bytes(_HASH)
            return 0
        _require_same(path, header, theirs)
        if last is not None and (last.kind, last.type) == ("end", "complete") and not self._finished:
            raise OutputError(f"{path} is the transcript of a completed run", code="exists", value=path)
        self._require_expected(self._records)
        os.truncate(path, end)
        self._file = path.open("ab")
        return attempts

    def _require_expected(self, records: int) -> None:
        """Refuse a transcript with fewer records of the run than its checkpoints say."""
        if self._expected is not None and records < self._expected[0]:
            raise FileFormatError(
                f"the view lacks records: its checkpoints were written after record {self._expected[0]}, which is "
                "missing or another one; restore the view, or start over with --force",
                code="incomplete",
                field=str(self._folder),
                value=self._expected[0],
            )


def _tells(entry: TranscriptEntry) -> bool:
    """Whether a record tells more of a training than greetings do."""
    if entry.kind in ("received", "sent"):
        return entry.type not in _GREETINGS
    return entry.kind in ("observed", "applied")


class _CutOffError(FileFormatError):
    """The last record is incomplete, as after a kill or a power cut."""


def _differing(mine: Header, theirs: Header) -> list[str]:
    unstated = {"version"} if theirs.monotone else {"version", "monotone"}  # an earlier version began, and stated none
    names = [name for name in Header.__struct_fields__ if name not in unstated]
    return [name for name in names if getattr(mine, name) != getattr(theirs, name)]


def _require_same(path: Path, mine: Header, theirs: Header) -> None:
    if differing := _differing(mine, theirs):
        raise OutputError(
            f"{path} is the transcript of another run: {', '.join(differing)} differ",
            code="other-run",
            value=tuple(differing),
        )


def read_entries(path: Path) -> Iterator[TranscriptEntry]:
    """Yield the records of a file, verifying the chain; the first is the header.

    Raises:
        FileFormatError: the file is no transcript, or a record is incomplete, altered, missing or of an unknown kind;
            names its number.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        reason = f"no view is stored at {path} ({error.strerror}); give the folder of a view"
        raise FileFormatError(reason, code="unreadable", value=path) from error
    for entry, _, _ in _records(path, data):
        yield entry


def has_position(path: Path, position: tuple[int, bytes]) -> bool:
    """Return whether a transcript has a record of this number and hash; arguments and errors as for its parts above."""
    for number, (_, _, chain) in enumerate(_records(path, path.read_bytes()), 1):
        if number == position[0]:
            return chain == position[1]
    return False


def _records(path: Path, data: bytes) -> Iterator[tuple[TranscriptEntry, int, bytes]]:
    """Yield each record of a file with its end position and the chain hash up to it."""
    if not data.startswith(_MAGIC):
        raise FileFormatError(f"{path} is not a labelward transcript", code="foreign", value=path)
    position, number, chain = len(_MAGIC), 0, bytes(_HASH)
    if position == len(data):
        raise _CutOffError(f"{path} contains no record", code="incomplete", value=path)
    while position < len(data):
        size = int.from_bytes(data[position : position + _LENGTH], "little")
        start, end = position + _LENGTH, position + _LENGTH + size
        if end + _HASH > len(data):
            raise _CutOffError(f"record {number} is cut off", code="incomplete", field=str(path), value=number)
        chain = hashlib.sha256(chain + data[start:end]).digest()
        if chain != data[end : end + _HASH]:
            torn = len(data.rstrip(b"\0")) <= end + _HASH  # a power cut may leave zeros
            kind = _CutOffError if torn else FileFormatError
            raise kind(
                f"record {number} is damaged (its hash does not match)", code="damaged", field=str(path), value=number
            )
        try:
            entry = _entries.decode(memoryview(data)[start:end])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise FileFormatError(
                f"record {number} cannot be read: {error}", code="damaged", field=str(path), value=number
            ) from error
        position, number = end + _HASH, number + 1
        yield entry, position, chain


def ids_digest(ids: Iterable[str]) -> str:
    """Return the SHA-256 of row ids in this order, as hex; each is preceded by its length in bytes."""
    total = hashlib.sha256()
    for framed in framed_ids(ids):
        total.update(framed)
    return total.hexdigest()


def framed_ids(ids: Iterable[str]) -> Iterator[bytes]:
    """Yield ids, many at a time, each preceded by its length in bytes, so that no two lists give the same bytes."""
    remaining = iter(ids)
    while batch := list(itertools.islice(remaining, _IDS_AT_ONCE)):
        parts = [""] * (2 * len(batch))
        parts[::2], parts[1::2] = map(_length_as_text, map(len, batch)), batch
        text = "".join(parts)  # characters are bytes where all are ASCII: a third of the time of encoding each id
        if text.isascii():
            yield text.encode()
            continue
        encoded = [name.encode(errors="surrogatepass") for name in batch]
        yield b"".join([len(each).to_bytes(8, "little") + each for each in encoded])


@functools.lru_cache(1 << 10)
def _length_as_text(length: int) -> str:
    return length.to_bytes(8, "little").decode("latin-1")


def decode_header(entry: TranscriptEntry) -> Header:
    """Decode the header, a transcript's first record; :class:`FileFormatError` for another format version."""
    if entry.kind != "header":
        raise FileFormatError(
            f"a transcript begins with a record of kind {entry.kind!r}, not a header", code="damaged", value=entry.kind
        )
    try:
        fields: Any = msgspec.msgpack.decode(entry.payload)
        if not isinstance(fields, dict) or fields.get("format") != FORMAT:
            version = fields.get("format") if isinstance(fields, dict) else None
            raise FileFormatError(
                f"a view of format {version!r}; this version reads format {FORMAT}",
                code="format-version",
                value=version,
            )
        return _headers.decode(entry.payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FileFormatError(f"a damaged view header: {error}", code="damaged") from error
