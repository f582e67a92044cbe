"""A transport moves bytes between named parties and knows no message."""

from __future__ import annotations

from abc import ABC, abstractmethod

__all__ = ["Transport"]


class Transport(ABC):
    """One party's end.

    Frames from one peer arrive in the order in which it sent them, each exactly once. ``send`` may block on a full
    channel but never on the peer's program. One thread uses an end at a time, except :meth:`fail`, which any thread
    may call.
    """

    party: str

    @abstractmethod
    def send(self, peer: str, frame: bytes) -> None:
        """Hand over a frame; :class:`~labelward.errors.PeerError` where the run has failed or the peer has left."""

    @abstractmethod
    def receive(self, timeout: float) -> tuple[str, bytes] | None:
        """Return the next frame and its sender, or None after ``timeout`` seconds; an empty frame: this peer is done.

        Raises:
            PeerError: a party has failed; names it. Frames that arrived before are still delivered first.
        """

    @abstractmethod
    def fail(self, reason: str) -> None:
        """Tell all peers that this party has failed, so that they end at once. ``reason`` carries no private value."""

    @abstractmethod
    def close(self) -> None:
        """This party is done; its peers receive an empty frame, after all that it sent."""
