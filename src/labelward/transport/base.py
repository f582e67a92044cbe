"""A transport moves bytes between named parties and knows no message."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from labelward.errors import Code, PeerDisagreementError, PeerError

__all__ = ["Failure", "Transport", "failed"]


@dataclass(frozen=True)
class Failure:
    """What a party that fails says of it to its peers; no private value.

    Attributes:
        code: what kind of failure it is; ``"disagreement"``: the parties disagree before anything starts, so that to
            start again as it is would end the same way.
        reason: for people.
    """

    code: Code
    reason: str

    def at(self, party: str) -> PeerError:
        """Return the error that this failure of ``party`` is to its peers."""
        return failed(party, f"failed: {self.reason}", self.code)


def failed(party: str, reason: str, code: Code) -> PeerError:
    """Return the error of a party that has failed: a disagreement is a type of its own."""
    return (PeerDisagreementError if code == "disagreement" else PeerError)(party, reason, code=code)


class Transport(ABC):
    """One party's end.

    Frames from one peer arrive in the order in which it sent them, each exactly once. ``send`` may block on a full
    channel but never on the peer's program. One thread uses an end at a time, except :meth:`fail`, which any thread
    may call.
    """

    party: str

    @abstractmethod
    def send(self, peer: str, frame: bytes) -> None:
        """Hand over a frame.

        Raises:
            PeerError: a party has failed (as for :meth:`receive`), the peer has left (``"peer-gone"``), or is no party
                of the run (``"unknown"``).
        """

    @abstractmethod
    def receive(self, timeout: float) -> tuple[str, bytes] | None:
        """Return the next frame and its sender, or None after ``timeout`` seconds; an empty frame: this peer is done.

        Raises:
            PeerError: a party has failed; names it, with the code and the reason that it gave
                (:meth:`Failure.at`). Frames that arrived before are still delivered first.
        """

    @abstractmethod
    def fail(self, failure: Failure) -> None:
        """Tell all peers that this party has failed, so that they end at once; they raise what is said of it."""

    @abstractmethod
    def close(self) -> None:
        """This party is done; its peers receive an empty frame, after all that it sent."""
