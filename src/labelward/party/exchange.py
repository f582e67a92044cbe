"""The exchange of two parties in a training: one digest of all that passed between them, which both can compute.

After the handshake each party chains the SHA-256 of every frame that it sends to a peer and of every frame that it
receives from it, one chain for each direction. Frames of a peer arrive in the order in which they were sent, so both
parties have the same two chains (:class:`Exchange`). Both are written to every checkpoint: two checkpoints belong
together if their exchanges are equal, not merely their numbers. Where all parties send to each other, one may be ahead
of another; each then ends its part of a tree with a message, and a checkpoint has the exchanges up to these.

Leakage: a digest is a function of frames that both parties have, and of a key that one of them draws for each
training (the nonce of the greeting). Between the active party and a peer it travels only between these two, sealed, so
it tells neither of them anything new. Digests of two other parties go to the coordinator, which compares them; these
two have a key of their own, which it does not learn, so that it cannot test guesses of their messages. Whoever later
finds a digest in a share or a checkpoint cannot do so either without the key, which only the views of the two parties
contain. A party's own columns, labels and noise are in no exchange. A digest of its columns and labels, keyed with its
private seed, stays in its own checkpoints and is compared by itself.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable

import msgspec


class Exchange(msgspec.Struct, frozen=True):
    """All frames between two parties since a training began; equal at both of them.

    Attributes:
        start: digest of the terms, under the nonce of the first greeting.
        outward: chained digest of the frames from the first of the two in party order, such as the active party.
        inward: of the frames to it.
        frames: number of frames, in the same order.
    """

    start: bytes
    outward: bytes
    inward: bytes
    frames: tuple[int, int] = (0, 0)

    @classmethod
    def begin(cls, nonce: bytes, peer: str, terms: Iterable[bytes]) -> Exchange:
        """Return the exchange of a party with a later one in party order before its first frame."""
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


class ExchangeLog:
    """An exchange that goes on, and where it was when both parties last ended a part of the training.

    Attributes:
        frames: those that are not chained yet, each given by its SHA-256, and whether it is outward.
    """

    def __init__(self, exchange: Exchange) -> None:
        self._whole, self._parts = exchange, {True: exchange, False: exchange}
        self._marked = False
        self.frames: list[tuple[bytes, bool]] = []

    @property
    def whole(self) -> Exchange:
        """All frames so far."""
        for frame, outward in self.frames:
            self._whole = self._whole.extended(frame, outward=outward)
        self.frames.clear()
        return self._whole

    @property
    def ended(self) -> Exchange:
        """The frames of each direction up to the last that ended a part; all of them where none did."""
        if not self._marked:
            return self.whole
        out, back = self._parts[True], self._parts[False]
        return Exchange(out.start, out.outward, back.inward, (out.frames[0], back.frames[1]))

    def end(self, *, outward: bool) -> None:
        """End a part of one direction with the last frame."""
        self._parts[outward], self._marked = self.whole, True


def _chained(chain: bytes, frame: bytes) -> bytes:
    return hashlib.sha256(chain + frame).digest()
