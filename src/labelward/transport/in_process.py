"""Parties as threads of one process. What passes are the encoded bytes: no object is shared."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable

from labelward.errors import PeerError
from labelward.transport.base import Failure, Transport

__all__ = ["connect"]


class _Room:
    """What all ends share: a mailbox for each party, who failed, who left."""

    def __init__(self, parties: Iterable[str]) -> None:
        self.boxes: dict[str, deque[tuple[str, bytes]]] = {party: deque() for party in parties}
        self.changed = threading.Condition()
        self.failed: tuple[str, Failure] | None = None
        self.left: set[str] = set()


class _End(Transport):
    def __init__(self, room: _Room, party: str) -> None:
        self._room, self.party = room, party

    def send(self, peer: str, frame: bytes) -> None:
        room = self._room
        with room.changed:
            self._check()
            if peer not in room.boxes:
                raise PeerError(peer, "is not a party of this run", code="unknown", value=peer)
            if peer in room.left:
                raise PeerError(peer, "has already ended", code="peer-gone")
            room.boxes[peer].append((self.party, frame))
            room.changed.notify_all()

    def receive(self, timeout: float) -> tuple[str, bytes] | None:
        room, until = self._room, time.monotonic() + timeout
        with room.changed:
            while True:
                if room.boxes[self.party]:
                    return room.boxes[self.party].popleft()
                self._check()
                if not room.changed.wait(max(0.0, until - time.monotonic())) and time.monotonic() >= until:
                    return None

    def fail(self, failure: Failure) -> None:
        room = self._room
        with room.changed:
            room.failed = room.failed or (self.party, failure)
            room.changed.notify_all()

    def close(self) -> None:
        room = self._room
        with room.changed:
            if self.party not in room.left:
                room.left.add(self.party)
                done = room.boxes.keys() - {self.party} if room.failed is None else ()
                for peer in done:  # after a failure nobody is done, and the failure is what peers must hear of
                    room.boxes[peer].append((self.party, b""))
            room.changed.notify_all()

    def _check(self) -> None:
        if self._room.failed:
            party, failure = self._room.failed
            raise failure.at(party)


def connect(parties: Iterable[str]) -> dict[str, Transport]:
    """Return one connected end for each party."""
    room = _Room(parties)
    return {party: _End(room, party) for party in room.boxes}
