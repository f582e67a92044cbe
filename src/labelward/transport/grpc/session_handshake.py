"""Session handshake: mutual authentication of two processes, and the keys that only these two have.

At its start each process draws an *incarnation* and, for each peer, one X25519 key. Together with protocol version,
run, both names and the certificate chain they are its identity toward this peer. A :class:`Greeting` carries the
sender's identity, the hash of the receiver's identity that it has ``seen``, and a signature over both hashes with the
key of its certificate. A session belongs to two processes: it outlives every connection, and a replayed identity leads
to keys that nobody has.

::

    A -> B   Greeting(identity A, seen nothing)
    B -> A   Greeting(identity B, seen A, signed)             A verifies, has the keys
    A -> B   Greeting(identity A, seen B, signed, done)       B verifies, has the keys

Both sides may begin at once, and repeat their greeting until something sealed arrives. A greeting is answered if its
sender has not seen the receiver's identity or is not done; so the exchange ends.

Reference: SIGMA without encrypted identities (Krawczyk, CRYPTO 2003). The signature covers both names and both
ephemeral keys, and the keys derive from the hash of both identities.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from labelward.errors import CodecError, HandshakeError, quoted

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

VERSION = 1
"""Version of everything that this package sends between parties; others are refused."""
INCARNATION = 16
"""Length of the random name of a process, in bytes."""
_LABEL = b"labelward session 1"


class ProcessIdentity(msgspec.Struct, frozen=True, array_like=True):
    """Identity of one process toward one peer; constant for the life of the process."""

    version: int
    run: str
    source: str
    target: str
    incarnation: bytes
    ephemeral: bytes
    chain: bytes

    def check(self, *, run: str, source: str, target: str) -> None:
        """Raise :class:`HandshakeError` unless this is of ``source``, for ``target``, in ``run``, of this version."""
        if self.version != VERSION:
            reason = f"{source!r} speaks version {self.version} of the transport, {target!r} {VERSION}"
            raise HandshakeError(reason, code="disagreement", value=self.version)
        if (self.source, self.target) != (source, target):
            reason = (
                f"a greeting of {quoted(self.source)!r} to {quoted(self.target)!r}, not of {source!r} to {target!r}"
            )
            raise HandshakeError(reason, code="identity", value=(self.source, self.target))
        if self.run != run:
            reason = f"{source!r} runs another run ({quoted(self.run)}, not {run})"
            raise HandshakeError(reason, code="other-run", value=self.run)
        if len(self.incarnation) != INCARNATION or len(self.ephemeral) != 32:
            raise HandshakeError(f"{source!r} sent a damaged greeting", code="malformed")


class Greeting(msgspec.Struct, frozen=True, array_like=True):
    """An identity, and what its sender knows of the receiver; signed unless ``seen`` is empty.

    Attributes:
        clock: the sender's time in seconds since 1970, for a warning only; 0: not stated.
    """

    core: bytes
    seen: bytes
    signature: bytes
    done: bool
    clock: float = 0.0


S = TypeVar("S", ProcessIdentity, Greeting)


def encode_greeting(value: ProcessIdentity | Greeting) -> bytes:
    """Return a greeting or an identity as bytes."""
    return msgspec.msgpack.encode(value)


def decode_greeting(raw: bytes | memoryview, kind: type[S]) -> S:
    """Decode a greeting or an identity; :class:`CodecError` if it is neither."""
    try:
        return msgspec.msgpack.decode(raw, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise CodecError("a greeting cannot be decoded", code="malformed") from error


def identity_digest(core: bytes) -> bytes:
    """Return the SHA-256 of an encoded identity."""
    return hashlib.sha256(core).digest()


def signed_statement(signer: str, mine: bytes, theirs: bytes) -> bytes:
    """Return what ``signer`` signs: its name, and the hashes of its own and of the peer's identity, in this order."""
    return b"\0".join((_LABEL, signer.encode(), mine.hex().encode(), theirs.hex().encode()))


@dataclass(frozen=True, kw_only=True)
class SessionKeys:
    """Keys of a session, one per direction and kind, and the tag that marks its records."""

    tag: bytes
    data_out: AESGCM
    data_in: AESGCM
    control_out: AESGCM
    control_in: AESGCM


def derive_keys(private: Any, peer: bytes, *, me: str, them: str, mine: bytes, theirs: bytes) -> SessionKeys:
    """Derive the keys of a session: HKDF-SHA256 of the X25519 secret, salted with the hash of both identities.

    Args:
        private: own X25519 key.
        peer: public X25519 key of the peer, 32 bytes.
        mine: hash of the own identity.
        theirs: hash of the peer's identity.

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
        raise HandshakeError(f"{them!r} sent an invalid key", code="key") from error
    salt = hashlib.sha256(_LABEL + b"".join(sorted((mine, theirs)))).digest()

    def key(purpose: bytes, sender: str, length: int = 32) -> bytes:
        return HKDF(SHA256(), length, salt, purpose + b"\0" + sender.encode()).derive(shared)

    return SessionKeys(
        tag=key(b"tag", "", 8),
        data_out=AESGCM(key(b"data", me)),
        data_in=AESGCM(key(b"data", them)),
        control_out=AESGCM(key(b"control", me)),
        control_in=AESGCM(key(b"control", them)),
    )
