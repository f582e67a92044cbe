"""A view: everything one party received, and the values it computed from its own secrets. Immutable.

The view of a resumed run has several attempts. A record that a later attempt repeats is read once; a record of only an
earlier attempt is read as well. An interrupted run thus has the same content as an uninterrupted one. Records are equal
if their readable fields are: a repeated message is encrypted under another key, so its ciphertexts differ.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, Literal, TypeVar

import msgspec

from labelward.errors import CodecError, FileFormatError
from labelward.messages.base import CipherDigest, Message, Observation, Released, wire_name
from labelward.messages.codec import decode_fields, schema
from labelward.messages.handshake import ExchangeDigest
from labelward.messages.splitnn import TRAINING, EpochOrder
from labelward.parameters import StrPath, as_path
from labelward.party.evidence import Evidence, job_digest
from labelward.party.exchange import Exchange, ExchangeLog
from labelward.party.purge_record import PURGED_FILE, purge_date
from labelward.party.roles import GREETING
from labelward.party.transcript import FILE_NAME, Header, TranscriptEntry, decode_header, read_entries

_OF_EPOCHS = frozenset(map(wire_name, TRAINING))
M = TypeVar("M", bound=Message)
O = TypeVar("O", bound=Observation)  # noqa: E741


@dataclass(frozen=True)
class ReceivedMessage(Generic[M]):
    """A received message as stored in the view (ciphertexts as digests)."""

    peer: str
    step: tuple[int, ...]
    message: M


class View:
    """One party's view, opened for reading.

    Args:
        header: recording party and kind of run.
        entries: the records after the header; ``sent`` and ``applied`` ones are not part of the view content.
    """

    def __init__(self, header: Header, entries: Iterable[TranscriptEntry] = ()) -> None:
        self._header = header
        self._entries = tuple(entries)

    def __repr__(self) -> str:
        records = sum(number for number, _ in self.counts().values())
        return f"<view of {self.party!r}: {self.rows} training rows, {records} records, {self.ended}>"

    def __str__(self) -> str:
        """Summary: whose view it is, of what run, and how many records of each type it has."""
        header, counts = self._header, self.counts()
        peers = ", ".join(map(repr, header.peers)) or "no peers"
        lines = [
            f"view of {self.party!r} ({header.role}), with {peers}: {self.ended}",
            f"{header.rows[0]} training rows, {header.rows[1]} prediction rows; engine {header.engine}"
            + (f", insecure ({', '.join(header.insecure)})" if header.insecure else ""),
        ]
        for kind in ("received", "observed", "sent", "applied"):
            found = {name: number for (of, name), (number, _) in counts.items() if of == kind}
            if found:
                most = sorted(found.items(), key=lambda each: (-each[1], each[0]))
                lines.append(f"{kind} {sum(found.values())}: {', '.join(f'{name} {number}' for name, number in most)}")
        return "\n".join(lines)

    @classmethod
    def load(cls, folder: StrPath) -> View:
        """Open a stored view and verify its hash chain.

        Raises:
            FileFormatError: missing, purged, damaged, or of a format that this version does not read.
        """
        folder = as_path("folder", folder)
        path = folder / FILE_NAME if folder.is_dir() else folder
        if not path.exists() and (day := purge_date(path.parent)):
            raise FileFormatError(
                f"the view was purged on {day}; {PURGED_FILE} lists the removed files",
                code="purged",
                field=str(path.parent),
                value=day,
            )
        records = read_entries(path)
        return cls(decode_header(next(records)), records)

    def without_records(self) -> View:
        """Return the empty view of the same party: its knowledge before any message arrived."""
        return View(self._header)

    def first(self, records: int) -> View:
        """Return the view as it was after so many records, its header included."""
        return View(self._header, self._entries[: max(records - 1, 0)])

    def first_trees(self, trees: int) -> View:
        """Return the view without what is of any but the first trees in which its party took part."""
        return View(
            self._header,
            (entry for entry, tree in zip(self._entries, self._trees, strict=True) if tree is None or tree < trees),
        )

    def first_epochs(self, epochs: int) -> View:
        """Return the view without what is of any but the first epochs of a split network's training."""
        return View(self._header, (entry for entry in self._entries if not _of_later_epoch(entry, epochs)))

    @property
    def header(self) -> Header:
        """Recording party and kind of run."""
        return self._header

    @property
    def party(self) -> str:
        """Party that recorded the view."""
        return self._header.party

    @property
    def members(self) -> tuple[View, ...]:
        """The views of which it is made: itself, or those of a coalition (:mod:`.joined_view`)."""
        return (self,)

    @property
    def ended(self) -> Literal["complete", "failed", "cut off"]:
        """End of the recording; ``"cut off"``: the party was killed, or records at the end are missing."""
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
        """Number of attempts of the run."""
        return 1 + sum(entry.kind == "attempt" for entry in self._entries)

    def parameter(self, key: str, default: Any = None) -> Any:
        """Return a value of the shared job, such as ``"model.kind"``."""
        text = self._header.job.get(key)
        return default if text is None else json.loads(text)

    def received(self, kind: type[M]) -> Iterator[ReceivedMessage[M]]:
        """Yield the messages of one type in order of arrival."""
        for entry in self._distinct_entries:
            if entry.kind == "received" and entry.type == wire_name(kind):
                yield ReceivedMessage(entry.peer, entry.step, _decode(entry))

    def observed(self, kind: type[O]) -> Iterator[O]:
        """Yield the observations of one type in the order of recording."""
        for entry in self._distinct_entries:
            if entry.kind == "observed" and entry.type == wire_name(kind):
                yield _decode(entry)

    def applied(self) -> Iterator[dict[str, Any]]:
        """Yield the accounts of the party's own policies: kind, parameters, budget, tallies."""
        for entry in self._distinct_entries:
            if entry.kind == "applied":
                yield msgspec.msgpack.decode(entry.payload)

    def entries(self) -> Iterator[TranscriptEntry]:
        """Yield the records that are received, observed and applied as stored, those of repeated attempts once."""
        return (entry for entry in self._distinct_entries if entry.kind in ("received", "observed", "applied"))

    def counts(self) -> dict[tuple[str, str], tuple[int, int]]:
        """Return ``{(kind, type): (records, bytes)}`` of all records, including those repeated by a later attempt.

        Bytes are the size on the wire for sent messages, of which only the size is stored, and the size of the record
        for all others (a received ciphertext is stored as a digest).
        """
        number: Counter[tuple[str, str]] = Counter()
        size: Counter[tuple[str, str]] = Counter()
        for entry in self._entries:
            if entry.kind in ("header", "linked", "attempt", "end"):
                continue
            number[entry.kind, entry.type] += 1
            if entry.kind == "sent":
                size[entry.kind, entry.type] += int.from_bytes(entry.payload, "little")
            else:
                size[entry.kind, entry.type] += len(entry.payload)
        return {key: (number[key], size[key]) for key in number}

    def records(self) -> Iterator[tuple[str, str, tuple[int, ...], Message | Observation]]:
        """Yield kind, peer, step and record of all received and observed records, keys and digests included."""
        for entry in self._distinct_entries:
            if entry.kind in ("received", "observed"):
                yield entry.kind, entry.peer, entry.step, _decode(entry)

    def content(self) -> Iterator[list[Any]]:
        """Yield the view content: readable fields and observations, without keys, nonces and ciphertext digests."""
        for kind, peer, step, record in self.records():
            if isinstance(record, Message) and record.evidence:
                continue
            yield [kind, peer, wire_name(type(record)), list(step), _readable(record)]

    def exchanges(self) -> dict[str, tuple[Exchange, bool]]:
        """Recompute the exchange with each peer from the records; empty for views of 0.1.0, which lack them.

        Returns:
            By peer the exchange of the last attempt, and whether the peer stated the same digest at the end.

        Raises:
            FileFormatError: an attempt goes on from an exchange that the records before it do not give, or a peer
                stated another digest: records are missing, or were changed.
        """
        logs: dict[str, tuple[ExchangeLog, str]] = {}
        stated: dict[str, bool] = {}
        awaited = {_exchange(entry).digest for entry in self._entries if entry.kind == "linked"}
        reached, early = set[bytes](), dict[str, list[TranscriptEntry]]()
        statement = wire_name(ExchangeDigest)

        def extend(entry: TranscriptEntry) -> None:
            log, first = logs[entry.peer]
            outward = (entry.kind == "sent") == (first == self.party)
            log.frames.append((entry.frame, outward))
            if getattr(schema(entry.type), "ends", False):
                log.end(outward=outward)
            reached.update(awaited & {log.whole.digest, log.ended.digest})

        for entry in self._entries:
            if entry.kind == "attempt":
                logs, stated, early = {}, {}, {}
            elif entry.kind == "linked":
                exchange = _exchange(entry)
                if any(exchange.frames) and exchange.digest not in reached:
                    raise _missing(entry.peer)
                reached.add(exchange.digest)
                logs[entry.peer], stated[entry.peer] = (ExchangeLog(exchange), entry.type), False
                for each in early.pop(entry.peer, ()):
                    extend(each)
            elif entry.kind == "received" and entry.peer not in logs and entry.type not in GREETING:
                early.setdefault(entry.peer, []).append(entry)
            elif entry.kind in ("sent", "received") and entry.peer in logs:
                if entry.type not in GREETING:
                    extend(entry)
                    stated[entry.peer] = False
                elif entry.kind == "received" and entry.type == statement:
                    if _decode(entry).digest != logs[entry.peer][0].whole.digest:
                        raise _missing(entry.peer)
                    stated[entry.peer] = True
        return {peer: (log.whole, stated[peer]) for peer, (log, _) in logs.items()}

    def require(self, evidence: Evidence, party: str) -> None:
        """Compare the exchanges with what a share says of the training.

        Args:
            evidence: of this party's share, or of a peer's, which the owner of the view cannot change.
            party: owner of the share.

        Raises:
            FileFormatError: the share is of another job, or messages are missing or were changed.
        """
        if evidence.job != job_digest(self._header.job):
            raise FileFormatError("the share is of another job than the view", code="other-run", value=party)
        found = self.exchanges()
        for peer, digest in evidence.exchanges.items():
            other = party if peer == self.party else peer
            if party != self.party and peer != self.party:
                continue
            exchange, stated = found.get(other, (None, False))
            if exchange is None or exchange.digest != digest or stated < (peer in evidence.confirmed):
                raise _missing(other)

    def digest(self) -> str:
        """Return a SHA-256 of the view content in canonical order: equal for equal runs, on any machine."""
        lines = sorted(msgspec.msgpack.encode(record) for record in self.content())
        total = hashlib.sha256()
        for line in lines:
            total.update(hashlib.sha256(line).digest())
        return total.hexdigest()

    @cached_property
    def _trees(self) -> tuple[int | None, ...]:
        """By record the number of its tree."""
        return tuple(map(_tree, self._entries))

    @cached_property
    def _distinct_entries(self) -> tuple[TranscriptEntry, ...]:
        """All records except those that repeat one of an earlier attempt."""
        return self._entries if self.attempts == 1 else tuple(_deduplicate(self._entries))


def _tree(entry: TranscriptEntry) -> int | None:
    """Return the number of the tree of which a record is; None for none."""
    if entry.kind not in ("received", "observed") or "tree" not in schema(entry.type).__struct_fields__:
        return None
    return int(entry.step[0] if entry.step else _decode(entry).tree)


def _of_later_epoch(entry: TranscriptEntry, epochs: int) -> bool:
    """Return whether a record is of an epoch of this number, counted from 0, or of a later one."""
    if entry.kind == "observed" and entry.type == EpochOrder.__name__:
        return bool(_decode(entry).epoch >= epochs)
    return entry.kind == "received" and entry.type in _OF_EPOCHS and entry.step[0] >= epochs


def _exchange(entry: TranscriptEntry) -> Exchange:
    try:
        return msgspec.msgpack.decode(entry.payload, type=Exchange)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FileFormatError(f"a damaged record: {error}", code="damaged", value=entry.type) from error


def _missing(peer: str) -> FileFormatError:
    return FileFormatError(
        f"messages exchanged with {peer!r} are missing or were changed", code="incomplete", value=peer
    )


def _deduplicate(entries: Iterable[TranscriptEntry]) -> Iterator[TranscriptEntry]:
    """Yield each record as often as it occurs in the attempt in which it is most frequent."""
    earlier, present = Counter[bytes](), Counter[bytes]()
    for entry in entries:
        if entry.kind == "attempt":
            earlier, present = earlier | present, Counter()
        elif entry.kind in ("received", "observed", "applied"):
            fingerprint = _fingerprint(entry)
            present[fingerprint] += 1
            if present[fingerprint] > earlier[fingerprint]:
                yield entry
        else:
            yield entry


def _fingerprint(entry: TranscriptEntry) -> bytes:
    """Return a digest of a record's readable content."""
    content = entry.payload if entry.kind == "applied" else _readable(_decode(entry))
    return hashlib.sha256(msgspec.msgpack.encode([entry.kind, entry.peer, entry.type, entry.step, content])).digest()


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
