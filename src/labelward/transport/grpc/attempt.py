"""One attempt of a run, and the transport end through which a party's program takes part in it.

An attempt is over for this party when it *failed* (a peer is away too long, or said so: the run ends) or was
*interrupted* (a peer came back as a new process, or the active party gathers the next attempt: the run goes on). What
arrived before is still delivered; then every call raises the reason.
"""

from __future__ import annotations

import time
from collections import deque
from copy import copy
from typing import TYPE_CHECKING, Final

from labelward.errors import Code, PeerError, PeerRestartedError
from labelward.transport.base import Failure, Transport, failed
from labelward.transport.grpc.envelope import CHUNK, plain
from labelward.transport.grpc.session_records import Chunk, End, Failed, chunk

if TYPE_CHECKING:
    from labelward.transport.grpc.node import Station
    from labelward.transport.grpc.peer import Peer
    from labelward.transport.grpc.session import Session

__all__ = ["Attempt", "NetworkEnd", "cost", "said", "told"]

_LOOK = 1.0  # seconds between two looks at the clock
_FAILED: Final[Code] = "peer-failed"
_CODES: Final[tuple[Code, ...]] = ("disagreement", "peer-gone", "peer-silent", _FAILED, "peer-message", "malformed")
_EACH = 256  # bytes that a message takes beside its content while it waits


class Attempt:
    """What all parts of this process share about one attempt."""

    def __init__(self, name: bytes, incarnations: dict[str, bytes]) -> None:
        self.name, self.incarnations = name, incarnations
        self.began = time.monotonic()
        self.inbox: deque[tuple[str, bytes, Session | None]] = deque()
        self.left: set[str] = set()
        self.closed = False
        self.failure: PeerError | None = None

    @property
    def running(self) -> bool:
        """Whether nothing has ended it yet."""
        return self.failure is None and not self.closed

    @property
    def interrupted(self) -> bool:
        """Whether the run goes on with another attempt."""
        return isinstance(self.failure, PeerRestartedError)

    def stop(self, failure: PeerError) -> None:
        """End it with this reason, unless it has one."""
        if self.failure is None:
            self.failure = failure

    def take(self, peer: Peer, item: Chunk | End | Failed) -> None:
        """Deal with what a peer sent in this attempt."""
        if isinstance(item, Failed):
            self.stop(said(item))
        elif isinstance(item, End):
            if self.running and peer.name not in self.left:
                self.inbox.append((peer.name, b"", None))
            self.left.add(peer.name)
        elif self.running:
            frame = peer.standing.assembler.feed(item)
            if frame is not None and peer.session is not None:
                peer.session.backlog += cost(frame)
                self.inbox.append((peer.name, frame, peer.session))


class NetworkEnd(Transport):
    """One party's end in one attempt.

    Differs from what the contract leaves open: :meth:`close` does not take the connections down (the
    :class:`~.network.Network` does), and :meth:`fail` tells the peers nothing where the attempt was interrupted.
    """

    def __init__(self, station: Station, attempt: Attempt) -> None:
        self._station, self._attempt = station, attempt
        self.party = station.endpoint.party
        self._oversize: PeerError | None = None

    def send(self, peer: str, frame: bytes) -> None:
        """Seal and hand over, chunk by chunk; waits while the peer has too much that it did not acknowledge."""
        limit = self._station.endpoint.message_limit
        if peer not in self._station.peers:
            raise PeerError(peer, "is not a party of this run", code="unknown", value=peer)
        if len(frame) > limit:
            self._oversize = PeerError(
                self.party,
                f"has a message of {len(frame)} bytes for {peer!r}, over the limit of {limit} bytes "
                f"(message_limit at {self.party!r})",
                code="peer-message",
                value=len(frame),
            )
            raise self._oversize
        view, name = memoryview(frame), self._attempt.name
        for start in range(0, max(1, len(frame)), CHUNK):
            total, last = (len(frame) if start == 0 else None), start + CHUNK >= len(frame)
            record = chunk(name, view[start : start + CHUNK], total=total, last=last)
            with self._station.lock:
                self._session(peer).push(record)

    def receive(self, timeout: float) -> tuple[str, bytes] | None:
        """Return the next message; see the contract."""
        until = time.monotonic() + timeout
        attempt, lock = self._attempt, self._station.lock
        with lock:
            while not attempt.inbox:
                self._check()
                left = until - time.monotonic()
                if left <= 0:
                    return None
                lock.wait(min(left, _LOOK))
            sender, frame, session = attempt.inbox.popleft()
            if session is not None:
                session.release(cost(frame))
            return sender, frame

    def fail(self, failure: Failure) -> None:
        """Tell the peers that the run has failed here, or where it began to fail if that is known."""
        with self._station.lock:
            attempt = self._attempt
            attempt.stop(self._oversize or failure.at(self.party))
            if attempt.failure is not None and not attempt.interrupted:
                self._station.broadcast(told(attempt.name, attempt.failure))
            self._station.lock.notify_all()

    def close(self) -> None:
        """This party is done with this attempt."""
        with self._station.lock:
            attempt = self._attempt
            if attempt.closed:
                return
            if attempt.failure is None:
                self._station.broadcast(End(attempt.name))
            attempt.closed = True
            for _, frame, session in attempt.inbox:
                if session is not None:
                    session.release(cost(frame))
            attempt.inbox.clear()
            self._station.lock.notify_all()

    def _check(self) -> None:
        if self._attempt.failure is not None:
            raise copy(self._attempt.failure)
        if self._attempt.closed:
            raise PeerError(self.party, "has already ended", code="peer-gone")

    def _session(self, name: str) -> Session:
        """Wait until there is room in the session with the process that takes part in this attempt."""
        peer, attempt, lock = self._station.peers[name], self._attempt, self._station.lock
        patience, progress = self._station.endpoint.silence, (-1, time.monotonic())
        while True:
            self._check()
            if name in attempt.left:
                raise PeerError(name, "has already ended", code="peer-gone")
            session, now = peer.session, time.monotonic()
            present = session is not None and session.incarnation == attempt.incarnations[name]
            if session is not None and present and session.room:
                return session
            taken = session.acknowledged if session is not None and present else -1
            if taken != progress[0]:
                progress = (taken, now)
            elif now - progress[1] > patience:
                raise PeerError(
                    name, f"has not taken what was sent to it for {patience:g} s", code="peer-silent", value=patience
                )
            lock.wait(_LOOK)


def cost(content: bytes | memoryview) -> int:
    """Return what it costs to keep content that waits."""
    return len(content) + _EACH


def told(attempt: bytes, error: PeerError) -> Failed:
    """Return what peers are told of an error: whom it names, its reason and its code; no value."""
    return Failed(attempt, error.peer, error.reason, error.code if error.code in _CODES else _FAILED)


def said(item: Failed) -> PeerError:
    """Return the error that a peer told of; a code that it may not tell says only that the party has failed."""
    code = next((code for code in _CODES if code == item.code), _FAILED)
    return failed(plain(item.party), plain(item.reason), code)
