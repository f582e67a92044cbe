"""Transport: moves bytes between named parties, without knowledge of messages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from labelward.errors import Code, PeerDisagreementError, PeerError


@dataclass(frozen=True)
class Failure:
    """Failure of a party as its peers learn it, without private values.

    Attributes:
        code: kind of failure; ``"disagreement"``: the parties disagree before anything starts, and a restart without
            changes would fail again.
        reason: text for people.
    """

    code: Code
    reason: str

    def at(self, party: str) -> PeerError:
        """Return the error that the peers of ``party`` raise."""
        return failed(party, f"failed: {self.reason}", self.code)


def failed(party: str, reason: str, code: Code, *, about: str | None = None) -> PeerError:
    """Return the error of a party that failed, or says so ``about`` another; a disagreement has a type of its own."""
    return (PeerDisagreementError if code == "disagreement" else PeerError)(party, reason, code=code, about=about)


class Transport(ABC):
    """End of one party.

    Frames from one peer arrive in the order in which they were sent, each exactly once. ``send`` may block on a full
    channel but never on the peer's program. Only one thread may use an end at a time, but any thread may call
    :meth:`fail`.
    """

    party: str

    @abstractmethod
    def send(self, peer: str, frame: bytes) -> None:
        """Send a frame.

        Raises:
            PeerError: a party has failed (as for :meth:`receive`), the peer has ended (``"peer-gone"``), or it is not a
                party of the run (``"unknown"``).
        """

    @abstractmethod
    def receive(self, timeout: float) -> tuple[str, bytes] | None:
        """Return the next frame and its sender, or None after ``timeout`` seconds; empty: the sender has ended.

        Raises:
            PeerError: a party has failed; carries its name, code and reason (:meth:`Failure.at`). Frames that arrived
                earlier are delivered first.
        """

    def hold(self, peer: str, held: bool) -> None:  # noqa: B027
        """Hold back the frames of a peer, or no longer: over a network it then has to wait."""

    def limit(self, peer: str, size: int | None) -> None:  # noqa: B027
        """Refuse frames of a peer of more bytes, with their first bytes where they come over a network; None: none."""

    @abstractmethod
    def fail(self, failure: Failure) -> None:
        """Report to all peers that this party has failed; they raise the error at once."""

    @abstractmethod
    def close(self) -> None:
        """End this party's part; peers receive an empty frame after all others."""
