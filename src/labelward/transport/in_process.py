"""In-process transport: parties are threads of one process and exchange encoded bytes, never objects."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable

from labelward.errors import PeerError
from labelward.transport.base import Failure, Transport


class _Exchange:
    """State that all ends share: an inbox for each party, the first failure, the parties that have ended."""

    def __init__(self, parties: Iterable[str]) -> None:
        self.inboxes: dict[str, deque[tuple[str, bytes]]] = {party: deque() for party in parties}
        self.changed = threading.Condition()
        self.failed: tuple[str, Failure] | None = None
        self.left: set[str] = set()


class _End(Transport):
    def __init__(self, exchange: _Exchange, party: str) -> None:
        self._exchange, self.party = exchange, party

    def send(self, peer: str, frame: bytes) -> None:
        shared = self._exchange
        with shared.changed:
            self._check()
            if peer not in shared.inboxes:
                raise PeerError(peer, "is not a party of this run", code="unknown", value=peer)
            if peer in shared.left:
                raise PeerError(peer, "has already ended", code="peer-gone")
            shared.inboxes[peer].append((self.party, frame))
            shared.changed.notify_all()

    def receive(self, timeout: float) -> tuple[str, bytes] | None:
        shared, until = self._exchange, time.monotonic() + timeout
        with shared.changed:
            while True:
                if shared.inboxes[self.party]:
                    return shared.inboxes[self.party].popleft()
                self._check()
                if not shared.changed.wait(max(0.0, until - time.monotonic())) and time.monotonic() >= until:
                    return None

    def hold(self, peer: str, held: bool) -> None:
        """See :meth:`Transport.hold`; frames of the same process wait without cost."""

    def limit(self, peer: str, size: int | None) -> None:
        """See :meth:`Transport.limit`; frames of the same process have been held before they are sent."""

    def fail(self, failure: Failure) -> None:
        shared = self._exchange
        with shared.changed:
            shared.failed = shared.failed or (self.party, failure)
            shared.changed.notify_all()

    def close(self) -> None:
        shared = self._exchange
        with shared.changed:
            if self.party not in shared.left:
                shared.left.add(self.party)
                done = shared.inboxes.keys() - {self.party} if shared.failed is None else ()
                for peer in done:  # none after a failure, which peers raise instead
                    shared.inboxes[peer].append((self.party, b""))
            shared.changed.notify_all()

    def _check(self) -> None:
        if self._exchange.failed:
            party, failure = self._exchange.failed
            raise failure.at(party)


def connect_in_process(parties: Iterable[str]) -> dict[str, Transport]:
    """Return a connected end for each party."""
    exchange = _Exchange(parties)
    return {party: _End(exchange, party) for party in exchange.inboxes}
