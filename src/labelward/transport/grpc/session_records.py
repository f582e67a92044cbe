"""Session records: the content of sealed envelopes, in the order in which it was sent.

A record is a *chunk* of a message, or a *note* about attempts (:mod:`.coordinator`). Records are decoded only after the
seal was verified. An attempt has a name of 20 bytes: incarnation of the active party's process, then a counter.
"""

from __future__ import annotations

import io
from typing import Final

import msgspec

from labelward.errors import CodecError
from labelward.transport.grpc.endpoint import FrameLimit
from labelward.transport.grpc.envelope import CHUNK

ATTEMPT: Final = 20
"""Length of the name of an attempt, in bytes."""
_CHUNK, _NOTE = 0, 1
_FIRST, _LAST = 1, 2
_HEAD = 2 + ATTEMPT
_TOTAL = 8


class _Base(msgspec.Struct, frozen=True, array_like=True):
    """A note; its tag is part of the protocol between versions and outlives a renamed class."""


class AttemptReady(_Base, frozen=True, tag="Ready"):
    """Passive to active: ready for an attempt, after ``begun`` ones in this session; its share is ``saved``."""

    begun: int
    saved: bool


class AttemptCall(_Base, frozen=True, tag="Call"):
    """Active to passive: the present attempt is over because of ``party``; the next one is being prepared."""

    party: str
    reason: str


class AttemptBegin(_Base, frozen=True, tag="Begin"):
    """Active to passive: the next attempt begins, with these processes (incarnations by party)."""

    attempt: bytes
    incarnations: dict[str, bytes]


class AttemptEnd(_Base, frozen=True, tag="End"):
    """The sender sends nothing more in this attempt."""

    attempt: bytes


class RunFailed(_Base, frozen=True, tag="Failed"):
    """The run has failed at ``party``; an empty ``attempt``: between attempts.

    ``code`` is that of the error if peers may know it, else ``"peer-failed"``.
    """

    attempt: bytes
    party: str
    reason: str
    code: str = "peer-failed"


class ShareSaved(_Base, frozen=True, tag="Saved"):
    """Passive to active: its share of the model is on disk."""


class RunFinished(_Base, frozen=True, tag="Finished"):
    """Active to passive: every party has its share."""


class EndAcknowledged(_Base, frozen=True, tag="Acknowledged"):
    """Passive to active: the end of the run is known."""


Note = AttemptReady | AttemptCall | AttemptBegin | AttemptEnd | RunFailed | ShareSaved | RunFinished | EndAcknowledged

_DECODER = msgspec.msgpack.Decoder(Note)
_ENCODER = msgspec.msgpack.Encoder()


class Chunk(msgspec.Struct, frozen=True):
    """Part of a message; the first part carries its ``total`` size in bytes."""

    attempt: bytes
    first: bool
    last: bool
    total: int
    data: memoryview


class MessageTooLargeError(CodecError):
    """A message that is longer than the limit."""


def too_large(size: int, limit: int) -> MessageTooLargeError:
    """Return the error of a message over a limit."""
    reason = f"sent a message of {size} bytes, over the limit of {limit} bytes"
    return MessageTooLargeError(reason, code="range", value=size)


def note_record(content: Note) -> bytes:
    """Return a note as a record."""
    return bytes((_NOTE,)) + _ENCODER.encode(content)


def chunk_record(attempt: bytes, data: memoryview, *, total: int | None, last: bool) -> bytes:
    """Return a chunk as a record; ``total`` is given with the first of a message."""
    flags = (_FIRST if total is not None else 0) | (_LAST if last else 0)
    length = b"" if total is None else total.to_bytes(_TOTAL, "big")
    return b"".join((bytes((_CHUNK, flags)), attempt, length, data))


def decode_record(record: bytes) -> Chunk | Note:
    """Read a record; :class:`CodecError` where it is none."""
    if record[:1] == bytes((_NOTE,)):
        try:
            content: Note = _DECODER.decode(memoryview(record)[1:])
            return content
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise CodecError("a record is not a note of this version", code="malformed") from error
    if len(record) < _HEAD or record[0] != _CHUNK or record[1] > _FIRST | _LAST:
        raise CodecError("a record has an unknown kind", code="malformed")
    first, start = bool(record[1] & _FIRST), _HEAD
    if first:
        start += _TOTAL
        if len(record) < start:
            raise CodecError("a record is truncated", code="malformed")
    total = int.from_bytes(record[_HEAD:start], "big")
    return Chunk(record[2:_HEAD], first, bool(record[1] & _LAST), total, memoryview(record)[start:])


class Assembler:
    """Joins the chunks of one peer's messages, one message at a time.

    Args:
        limit: bytes of a message.
        frame_limit: called with the first bytes of a message; returns how many it may have, or None.
    """

    def __init__(self, limit: int, frame_limit: FrameLimit) -> None:
        self._limit, self._frame_limit = limit, frame_limit
        self._buffer, self._total = io.BytesIO(), -1

    def drop(self) -> None:
        """Drop an incomplete message."""
        self._buffer, self._total = io.BytesIO(), -1

    @property
    def due(self) -> int:
        """Announced size of the message that is incomplete; -1: there is none."""
        return self._total

    def feed(self, part: Chunk, most: int | None = None) -> bytes | None:
        """Take a chunk; return the message where it is the last.

        Args:
            most: bytes of a message, a further limit.

        Raises:
            MessageTooLargeError: the message is announced as longer than a limit.
            CodecError: chunks that make no message.
        """
        if part.first:
            if self._total >= 0:
                raise CodecError("a message begins within another one", code="malformed")
            limit = min(self._limit, self._frame_limit(part.data) or self._limit, most or self._limit)
            if part.total > limit:
                raise too_large(part.total, limit)
            self._total = part.total
        elif self._total < 0:
            raise CodecError("a chunk belongs to no message", code="malformed")
        if not part.last and len(part.data) < CHUNK:
            self.drop()
            raise CodecError("a chunk is short and not the last", code="malformed", value=len(part.data))
        self._buffer.write(part.data)
        size = self._buffer.tell()
        if size > self._total or (part.last and size != self._total):
            total = self._total
            self.drop()
            raise CodecError(f"chunks of {size} bytes where {total} were announced", code="malformed", value=size)
        if not part.last:
            return None
        frame = self._buffer.getvalue()
        self.drop()
        return frame
