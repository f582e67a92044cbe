"""Envelopes: a clear header (kind, source, target) for the hub, and a payload that the hub does not read.

::

    "LW" | version | kind | length of source | length of target | source | target | payload

A hub routes by ``target`` and accepts only the ``source`` that the certificate of the connection names. Payloads of
kind ``DATA`` and ``CONTROL`` are sealed (:mod:`.session`), with the header as associated data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from labelward.errors import CodecError

HELLO: Final = 1
"""Party to party: the handshake of a session (:mod:`.session_handshake`)."""
DATA: Final = 2
"""Party to party, sealed: a numbered record that arrives exactly once."""
CONTROL: Final = 3
"""Party to party, sealed: acknowledgments and heartbeats."""
REFUSAL: Final = 4
"""Party to party: why a handshake was refused; text for people, believed by nobody."""
ABSENT: Final = 5
"""Hub to party: why what was sent to ``source`` went nowhere; text for people, believed by nobody."""
WELCOME: Final = 6
"""Hub to party: the link is up; again with each heartbeat."""

CHUNK: Final = 512 * 1024
"""Bytes of a message in one record."""
LARGEST: Final = CHUNK + 4096
"""Bytes of an envelope; a link that carries a larger one is closed."""

_MAGIC = b"LW\x01"
_FIXED = len(_MAGIC) + 3
_LIMITS = {HELLO: 64 * 1024, DATA: LARGEST, CONTROL: 256, REFUSAL: 1024, ABSENT: 1024, WELCOME: 0}


@dataclass(frozen=True, slots=True)
class Envelope:
    """One envelope; ``payload`` is a view of the bytes that arrived."""

    kind: int
    source: str
    target: str
    payload: memoryview


def envelope_header(kind: int, source: str, target: str) -> bytes:
    """Return all that precedes the payload."""
    here, there = source.encode(), target.encode()
    return _MAGIC + bytes((kind, len(here), len(there))) + here + there


def pack_envelope(kind: int, source: str, target: str, payload: bytes = b"") -> bytes:
    """Return an envelope as bytes."""
    return envelope_header(kind, source, target) + payload


def unpack_envelope(raw: bytes) -> Envelope:
    """Read an envelope.

    Raises:
        CodecError: it is too large, of an unknown kind or version, or torn.
    """
    if len(raw) > LARGEST:
        raise CodecError(
            f"an envelope of {len(raw)} bytes is over the limit of {LARGEST} bytes", code="malformed", value=len(raw)
        )
    if len(raw) < _FIXED or not raw.startswith(_MAGIC):
        raise CodecError("no envelope of this version", code="malformed")
    kind, here, there = raw[_FIXED - 3 : _FIXED]
    limit, start = _LIMITS.get(kind), _FIXED + here + there
    if limit is None or len(raw) < start or len(raw) - start > limit:
        raise CodecError(f"an envelope of kind {kind} and {len(raw)} bytes is not known", code="malformed", value=kind)
    try:
        source, target = raw[_FIXED : _FIXED + here].decode(), raw[_FIXED + here : start].decode()
    except UnicodeDecodeError as error:
        raise CodecError("an envelope names no party", code="malformed") from error
    return Envelope(kind, source, target, memoryview(raw)[start:])
