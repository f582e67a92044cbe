"""A view: all that one party received, with what it computed from its own secrets. Frozen.

Where a run was cut off and went on, the view has several attempts. What a later one only repeats, word for word, is
read once; what an earlier one alone said is read, too. So the content of a run that was disturbed is that of one that
was not. Words are readable fields: a repeated message comes under another key, and its ciphertexts differ.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

import msgspec

from labelward.errors import CodecError, FileFormatError
from labelward.messages.base import CipherDigest, Message, Observation, Released, wire_name
from labelward.messages.codec import decode_fields
from labelward.party.purge_record import PURGED_FILE, purge_date
from labelward.party.transcript import FILE_NAME, Header, TranscriptEntry, decode_header, read_entries

M = TypeVar("M", bound=Message)
O = TypeVar("O", bound=Observation)  # noqa: E741


@dataclass(frozen=True)
class ReceivedMessage(Generic[M]):
    """A message that the party received, as its view keeps it (ciphertexts as digests)."""

    peer: str
    step: tuple[int, ...]
    message: M


class View:
    """One party's view, opened for reading.

    Args:
        header: who recorded what kind of run.
        entries: the records after the header; ``sent`` and ``applied`` ones are no part of the view content.
    """

    def __init__(self, header: Header, entries: Iterable[TranscriptEntry] = ()) -> None:
        self._header = header
        self._entries = tuple(entries)

    @classmethod
    def load(cls, folder: Path) -> View:
        """Open a stored view and verify its hash chain.

        Raises:
            FileFormatError: missing, purged, damaged, or of a format that this version does not read.
        """
        path = folder / FILE_NAME if folder.is_dir() else folder
        if not path.exists() and (day := purge_date(path.parent)):
            raise FileFormatError(
                f"the view was purged on {day}; {PURGED_FILE} says what was there",
                code="purged",
                field=str(path.parent),
                value=day,
            )
        records = read_entries(path)
        return cls(decode_header(next(records)), records)

    def without_records(self) -> View:
        """Return the empty view of the same party: what it knew before anything arrived."""
        return View(self._header)

    @property
    def header(self) -> Header:
        """Who recorded what kind of run."""
        return self._header

    @property
    def party(self) -> str:
        """Whose view it is."""
        return self._header.party

    @property
    def ended(self) -> Literal["complete", "failed", "cut off"]:
        """How the recording ended; ``"cut off"``: the party was killed, or records at the end are missing."""
        last = self._entries[-1] if self._entries else None
        if last is None or last.kind != "end":
            return "cut off"
        return "complete" if last.type == "complete" else "failed"

    @property
    def rows(self) -> int:
        """Number of training rows."""
        return self._header.rows[0]

    @property
    def attempts(self) -> int:
        """How many attempts the run took."""
        return 1 + sum(entry.kind == "attempt" for entry in self._entries)

    def parameter(self, key: str, default: Any = None) -> Any:
        """Return a value of the shared job, such as ``"model.kind"``."""
        text = self._header.job.get(key)
        return default if text is None else json.loads(text)

    def received(self, kind: type[M]) -> Iterator[ReceivedMessage[M]]:
        """Yield the messages of one type in the order in which they arrived."""
        for entry in self._said:
            if entry.kind == "received" and entry.type == wire_name(kind):
                yield ReceivedMessage(entry.peer, entry.step, _decode(entry))

    def observed(self, kind: type[O]) -> Iterator[O]:
        """Yield the observations of one type in the order in which they were made."""
        for entry in self._said:
            if entry.kind == "observed" and entry.type == wire_name(kind):
                yield _decode(entry)

    def applied(self) -> Iterator[dict[str, Any]]:
        """Yield what the party's own policies did: kind, parameters, budget, tallies (the sender's account)."""
        for entry in self._said:
            if entry.kind == "applied":
                yield msgspec.msgpack.decode(entry.payload)

    def counts(self) -> dict[tuple[str, str], tuple[int, int]]:
        """Return ``{(kind, type): (records, bytes)}`` of all records, those that a later attempt repeats included.

        Bytes are those that travelled for sent messages, of which no more is kept, and those of the record for all else
        (a received ciphertext is kept as a digest).
        """
        number: Counter[tuple[str, str]] = Counter()
        size: Counter[tuple[str, str]] = Counter()
        for entry in self._entries:
            if entry.kind in ("header", "attempt", "end"):
                continue
            number[entry.kind, entry.type] += 1
            if entry.kind == "sent":
                size[entry.kind, entry.type] += int.from_bytes(entry.payload, "little")
            else:
                size[entry.kind, entry.type] += len(entry.payload)
        return {key: (number[key], size[key]) for key in number}

    def records(self) -> Iterator[tuple[str, str, tuple[int, ...], Message | Observation]]:
        """Yield kind, peer, step and record of all that was received or observed, keys and digests included."""
        for entry in self._said:
            if entry.kind in ("received", "observed"):
                yield entry.kind, entry.peer, entry.step, _decode(entry)

    def content(self) -> Iterator[list[Any]]:
        """Yield the view content: readable fields and observations, without keys, nonces and ciphertext digests."""
        for kind, peer, step, record in self.records():
            yield [kind, peer, wire_name(type(record)), list(step), _readable(record)]

    def digest(self) -> str:
        """Return a SHA-256 of the view content in canonical order: equal for equal runs, wherever they ran."""
        lines = sorted(msgspec.msgpack.encode(record) for record in self.content())
        total = hashlib.sha256()
        for line in lines:
            total.update(hashlib.sha256(line).digest())
        return total.hexdigest()

    @cached_property
    def _said(self) -> tuple[TranscriptEntry, ...]:
        """All records but those that repeat what an earlier attempt said."""
        return self._entries if self.attempts == 1 else tuple(_unrepeated(self._entries))


def _unrepeated(entries: Iterable[TranscriptEntry]) -> Iterator[TranscriptEntry]:
    """Yield each record as often as the attempt has it that has it most often."""
    earlier, present = Counter[bytes](), Counter[bytes]()
    for entry in entries:
        if entry.kind == "attempt":
            earlier, present = earlier | present, Counter()
        elif entry.kind in ("received", "observed", "applied"):
            word = _word(entry)
            present[word] += 1
            if present[word] > earlier[word]:
                yield entry
        else:
            yield entry


def _word(entry: TranscriptEntry) -> bytes:
    """Return a digest of all that a record says."""
    said = entry.payload if entry.kind == "applied" else _readable(_decode(entry))
    return hashlib.sha256(msgspec.msgpack.encode([entry.kind, entry.peer, entry.type, entry.step, said])).digest()


def _decode(entry: TranscriptEntry) -> Any:
    try:
        return decode_fields(entry.type, entry.payload)
    except CodecError as error:
        raise FileFormatError(
            f"a record of type {entry.type!r} cannot be read: {error}", code="damaged", value=entry.type
        ) from error


def _readable(record: Message | Observation) -> dict[str, Any]:
    kind = type(record)
    defaults = dict(zip(kind.__struct_fields__[::-1], kind.__struct_defaults__[::-1], strict=False))
    hidden = {*kind.volatile, *(name for name in getattr(kind, "later", ()) if getattr(record, name) == defaults[name])}
    fields = {}
    for name in record.__struct_fields__:
        value = getattr(record, name)
        if isinstance(value, Released):
            value = value.value
        if isinstance(value, CipherDigest):
            value = msgspec.structs.replace(value, sha256=b"")
        if name not in hidden:
            fields[name] = value
    return fields
