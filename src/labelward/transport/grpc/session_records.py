"""What two parties say to each other inside a sealed session, in the order in which it was said.

A record is a *chunk* of a message, or a *note* about attempts (:mod:`.coordination`). Both are read only after the seal
was found to be whole. An attempt is named by 20 bytes: incarnation of the active party's process, and a counter.
"""

from __future__ import annotations

import io
from typing import Final

import msgspec

from labelward.errors import CodecError

__all__ = [
    "ATTEMPT",
    "Acknowledged",
    "Assembler",
    "Begin",
    "Call",
    "Chunk",
    "End",
    "Failed",
    "Finished",
    "Note",
    "Oversize",
    "Ready",
    "Saved",
    "chunk",
    "note",
    "read",
]

ATTEMPT: Final = 20
"""Bytes that name an attempt."""
_CHUNK, _NOTE = 0, 1
_FIRST, _LAST = 1, 2
_HEAD = 2 + ATTEMPT
_TOTAL = 8


class _Base(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A note; the tag is the class name."""


class Ready(_Base, frozen=True):
    """Passive to active: waits for an attempt; knows of ``begun`` ones in this session; its share is ``saved``."""

    begun: int
    saved: bool


class Call(_Base, frozen=True):
    """Active to passive: the present attempt is over (who made it so, and why); the next one is being gathered."""

    party: str
    reason: str


class Begin(_Base, frozen=True):
    """Active to passive: the next attempt, and the processes (incarnations) that take part in it."""

    attempt: bytes
    incarnations: dict[str, bytes]


class End(_Base, frozen=True):
    """The sender has sent all that it will send in this attempt."""

    attempt: bytes


class Failed(_Base, frozen=True):
    """The run has failed at ``party``; an empty ``attempt``: between attempts.

    ``code`` is that of the error, as far as peers may know it; a party that leaves it out has just failed.
    """

    attempt: bytes
    party: str
    reason: str
    code: str = "peer-failed"


class Saved(_Base, frozen=True):
    """Passive to active: its share of the model is on disk."""


class Finished(_Base, frozen=True):
    """Active to passive: every party has its share."""


class Acknowledged(_Base, frozen=True):
    """Passive to active: it knows that the run is finished, and will not ask again."""


Note = Ready | Call | Begin | End | Failed | Saved | Finished | Acknowledged

_DECODER = msgspec.msgpack.Decoder(Note)
_ENCODER = msgspec.msgpack.Encoder()


class Chunk(msgspec.Struct, frozen=True):
    """Part of a message; ``total`` bytes in all where it is the first."""

    attempt: bytes
    first: bool
    last: bool
    total: int
    data: memoryview


class Oversize(CodecError):  # noqa: N818
    """A message that is longer than the limit."""


def note(content: Note) -> bytes:
    """Return a note as a record."""
    return bytes((_NOTE,)) + _ENCODER.encode(content)


def chunk(attempt: bytes, data: memoryview, *, total: int | None, last: bool) -> bytes:
    """Return a chunk as a record; ``total`` is given with the first of a message."""
    flags = (_FIRST if total is not None else 0) | (_LAST if last else 0)
    length = b"" if total is None else total.to_bytes(_TOTAL, "big")
    return b"".join((bytes((_CHUNK, flags)), attempt, length, data))


def read(record: bytes) -> Chunk | Note:
    """Read a record; :class:`CodecError` where it is none."""
    if record[:1] == bytes((_NOTE,)):
        try:
            content: Note = _DECODER.decode(memoryview(record)[1:])
            return content
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise CodecError("a record that is no note of this version", code="malformed") from error
    if len(record) < _HEAD or record[0] != _CHUNK or record[1] > _FIRST | _LAST:
        raise CodecError("a record of an unknown kind", code="malformed")
    first, start = bool(record[1] & _FIRST), _HEAD
    if first:
        start += _TOTAL
        if len(record) < start:
            raise CodecError("a torn record", code="malformed")
    total = int.from_bytes(record[_HEAD:start], "big")
    return Chunk(record[2:_HEAD], first, bool(record[1] & _LAST), total, memoryview(record)[start:])


class Assembler:
    """Puts the chunks of one peer's messages together, one message at a time."""

    def __init__(self, limit: int) -> None:
        self._limit, self._buffer, self._total = limit, io.BytesIO(), -1

    def drop(self) -> None:
        """Forget a message that was begun."""
        self._buffer, self._total = io.BytesIO(), -1

    def feed(self, part: Chunk) -> bytes | None:
        """Take a chunk; return the message where it is the last.

        Raises:
            Oversize: the message is announced as, or has become, longer than the limit.
            CodecError: chunks that make no message.
        """
        if part.first:
            self.drop()
            if part.total > self._limit:
                raise Oversize(
                    f"sent a message of {part.total} bytes, over the limit of {self._limit} bytes",
                    code="range",
                    value=part.total,
                )
            self._total = part.total
        elif self._total < 0:
            raise CodecError("a chunk of a message that was not begun", code="malformed")
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
