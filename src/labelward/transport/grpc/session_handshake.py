"""The handshake of a session: who is there, which process, and the keys that only the two of them have.

Each process draws an *incarnation* and, for each peer, one X25519 key when it starts; they make its *core*, together
with protocol version, run, both names and its certificate chain. A :class:`Hello` carries the sender's core, the hash
of the peer's core that it has ``seen``, and a signature with its certificate's key over the hashes of both cores. So a
session is a function of two processes: it outlives every connection, and a replayed core leads to keys that nobody has.

::

    A -> B   Hello(core A, seen nothing)
    B -> A   Hello(core B, seen A, signed)                    A verifies, has the keys
    A -> B   Hello(core A, seen B, signed, done)              B verifies, has the keys

Both may begin at once, and each says its hello again until it has received something sealed. A hello is answered where
its sender has not seen the receiver's core, or is not done; so the exchange ends. This is SIGMA without encrypted
identities (Krawczyk, CRYPTO 2003): the signature covers both names and both ephemeral keys, and the keys derive from
the hash of all of it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from labelward.errors import CodecError, HandshakeError
from labelward.transport.grpc.envelope import plain

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

__all__ = ["INCARNATION", "VERSION", "Core", "Hello", "Keys", "decode", "derive", "digest", "encode", "statement"]

VERSION = 1
"""Of all that this package says between parties; others are refused."""
INCARNATION = 16
"""Bytes that name a process."""
_LABEL = b"labelward session 1"


class Core(msgspec.Struct, frozen=True, array_like=True):
    """What one process says of itself to one peer; the same for as long as it lives."""

    version: int
    run: str
    source: str
    target: str
    incarnation: bytes
    ephemeral: bytes
    chain: bytes

    def check(self, *, run: str, source: str, target: str) -> None:
        """Raise a :class:`HandshakeError` where this is not said by ``source`` to ``target`` about ``run``."""
        if self.version != VERSION:
            raise HandshakeError(
                f"{source!r} speaks version {self.version} of the transport, {target!r} {VERSION}",
                code="disagreement",
                value=self.version,
            )
        if (self.source, self.target) != (source, target):
            raise HandshakeError(
                f"a greeting of {self.source!r} to {self.target!r}, not of {source!r} to {target!r}",
                code="identity",
                value=(self.source, self.target),
            )
        if self.run != run:
            raise HandshakeError(
                f"{source!r} takes part in another run ({plain(self.run)}; not {run})", code="other-run", value=self.run
            )
        if len(self.incarnation) != INCARNATION or len(self.ephemeral) != 32:
            raise HandshakeError(f"{source!r} sent a greeting that is damaged", code="malformed")


class Hello(msgspec.Struct, frozen=True, array_like=True):
    """A core, and what its sender knows of the receiver; ``signature`` where ``seen`` is not empty."""

    core: bytes
    seen: bytes
    signature: bytes
    done: bool


S = TypeVar("S", Core, Hello)


def encode(value: Core | Hello) -> bytes:
    """Return a greeting, or its core, as bytes."""
    return msgspec.msgpack.encode(value)


def decode(raw: bytes | memoryview, kind: type[S]) -> S:
    """Read a greeting, or its core; :class:`CodecError` where it is none."""
    try:
        return msgspec.msgpack.decode(raw, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise CodecError("a greeting that cannot be read", code="malformed") from error


def digest(core: bytes) -> bytes:
    """Return the hash that stands for a core."""
    return hashlib.sha256(core).digest()


def statement(signer: str, mine: bytes, theirs: bytes) -> bytes:
    """Return what ``signer`` signs: the hashes of its own and of the peer's core, in this order, and its name."""
    return b"\0".join((_LABEL, signer.encode(), mine.hex().encode(), theirs.hex().encode()))


@dataclass(frozen=True, kw_only=True)
class Keys:
    """The four keys of a session as one side uses them, and the tag by which its records are known."""

    tag: bytes
    data_out: AESGCM
    data_in: AESGCM
    control_out: AESGCM
    control_in: AESGCM


def derive(private: Any, peer: bytes, *, me: str, them: str, mine: bytes, theirs: bytes) -> Keys:
    """Derive the keys of a session: HKDF-SHA256 of the X25519 secret, salted with the hash of both cores.

    Args:
        private: own X25519 key.
        peer: the peer's, 32 bytes.
        me: own name.
        them: the peer's.
        mine: hash of the own core.
        theirs: hash of the peer's.

    Raises:
        HandshakeError: the peer's key is of small order.
    """
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    try:
        shared = private.exchange(X25519PublicKey.from_public_bytes(peer))
    except ValueError as error:
        raise HandshakeError(f"{them!r} sent a key that cannot be used", code="key") from error
    salt = hashlib.sha256(_LABEL + b"".join(sorted((mine, theirs)))).digest()

    def key(purpose: bytes, sender: str, length: int = 32) -> bytes:
        return HKDF(SHA256(), length, salt, purpose + b"\0" + sender.encode()).derive(shared)

    return Keys(
        tag=key(b"tag", "", 8),
        data_out=AESGCM(key(b"data", me)),
        data_in=AESGCM(key(b"data", them)),
        control_out=AESGCM(key(b"control", me)),
        control_in=AESGCM(key(b"control", them)),
    )
