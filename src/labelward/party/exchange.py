"""The exchange of two parties in a training: one digest of all that passed between them, which both can compute.

After the handshake each party chains the SHA-256 of every frame that it sends to a peer and of every frame that it
receives from it, one chain for each direction. Frames of a peer arrive in the order in which they were sent, so both
parties have the same two chains (:class:`Exchange`). Both are written to every checkpoint: two checkpoints belong
together if their exchanges are equal, not merely their numbers.

Leakage: a digest is a function of frames that both parties have, and of a key that the active party draws for each
training (the nonce of the greeting). It travels only between these two parties, sealed, so it tells neither of them
anything new. Whoever later finds a digest in a share or a checkpoint cannot test guesses of the messages without the
nonce, which only the views of the two parties contain. A party's own columns, labels and noise are in no exchange. A
digest of its columns and labels, keyed with its private seed, stays in its own checkpoints and is compared by itself.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable

import msgspec


class Exchange(msgspec.Struct, frozen=True):
    """All frames between the active party and one passive party since a training began; equal at both of them.

    Attributes:
        start: digest of the terms, under the nonce of the first greeting.
        outward: chained digest of the frames from the active party.
        inward: of the frames to the active party.
        frames: number of frames, in the same order.
    """

    start: bytes
    outward: bytes
    inward: bytes
    frames: tuple[int, int] = (0, 0)

    @classmethod
    def begin(cls, nonce: bytes, peer: str, terms: Iterable[bytes]) -> Exchange:
        """Return the exchange of the active party with a passive one before its first frame."""
        parts = [peer.encode(), *terms]
        start = hmac.digest(nonce, b"".join(hashlib.sha256(part).digest() for part in parts), "sha256")
        return cls(start, start, start)

    def extended(self, frame: bytes, *, outward: bool) -> Exchange:
        """Return the exchange with one more frame, given by its SHA-256."""
        sent, received = self.frames
        if outward:
            return Exchange(self.start, _chained(self.outward, frame), self.inward, (sent + 1, received))
        return Exchange(self.start, self.outward, _chained(self.inward, frame), (sent, received + 1))

    @property
    def digest(self) -> bytes:
        """SHA-256 of both chains."""
        return hashlib.sha256(self.start + self.outward + self.inward).digest()


def _chained(chain: bytes, frame: bytes) -> bytes:
    return hashlib.sha256(chain + frame).digest()
