"""Attempt: one try of a run, and the transport end that a role program gets for it.

An attempt ends for a party when it *failed* (a peer is away too long or reports a failure, which ends the run) or was
*interrupted* (a peer restarted, or the active party gathers the next attempt; the run continues). Frames that arrived
before are still delivered; then every call raises the reason.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from copy import copy
from typing import TYPE_CHECKING, Final

from labelward.errors import LONGEST_REASON, Code, PeerError, PeerRestartedError, quoted
from labelward.transport.base import Failure, Transport, failed
from labelward.transport.grpc.envelope import CHUNK
from labelward.transport.grpc.session_records import AttemptEnd, Chunk, RunFailed, chunk_record

if TYPE_CHECKING:
    from labelward.transport.grpc.node import Node
    from labelward.transport.grpc.peer import Peer
    from labelward.transport.grpc.session import Session

_LOOK = 1.0  # seconds between two looks at the clock
_FAILED: Final[Code] = "peer-failed"
_CODES: Final[tuple[Code, ...]] = ("disagreement", "peer-gone", "peer-silent", _FAILED, "peer-message", "malformed")
_EACH = 256  # bytes of memory that a waiting message takes besides its content


class Attempt:
    """State of one attempt, shared by the threads of a process."""

    def __init__(self, name: bytes, incarnations: dict[str, bytes]) -> None:
        self.name, self.incarnations = name, incarnations
        self.began = time.monotonic()
        self.inbox: deque[tuple[str, bytes, Session | None]] = deque()
        self.left: set[str] = set()
        self.aside: dict[str, deque[tuple[str, bytes, Session | None]]] = {}
        self.limits: dict[str, int] = {}  # bytes of a message of a peer, where the program has set a limit
        self.closed = False
        self.failure: PeerError | None = None

    @property
    def running(self) -> bool:
        """Whether the attempt has not ended."""
        return self.failure is None and not self.closed

    @property
    def interrupted(self) -> bool:
        """Whether the run continues with another attempt."""
        return isinstance(self.failure, PeerRestartedError)

    def hold(self, peer: str, held: bool) -> None:
        """Put the frames of a peer aside, or back."""
        if held and peer not in self.aside:
            self.aside[peer] = deque(each for each in self.inbox if each[0] == peer)
            self.inbox = deque(each for each in self.inbox if each[0] != peer)
        elif not held and peer in self.aside:
            self.inbox.extend(self.aside.pop(peer))

    def stop(self, failure: PeerError) -> None:
        """End the attempt with this reason, unless it has ended already."""
        if self.failure is None:
            self.failure = failure
            for peer in tuple(self.aside):
                self.hold(peer, False)

    def take(self, peer: Peer, item: Chunk | AttemptEnd | RunFailed) -> None:
        """Process a record that a peer sent in this attempt."""
        if isinstance(item, RunFailed):
            self.stop(from_record(peer.name, item))
        elif isinstance(item, AttemptEnd):
            if self.running and peer.name not in self.left:
                self.aside.get(peer.name, self.inbox).append((peer.name, b"", None))
            self.left.add(peer.name)
        elif self.running:
            frame = peer.progress.assembler.feed(item, self.limits.get(peer.name))
            if frame is not None and peer.session is not None:
                peer.session.keep(memory_cost(frame))
                self.aside.get(peer.name, self.inbox).append((peer.name, frame, peer.session))


class NetworkEnd(Transport):
    """Transport end of one party in one attempt.

    :meth:`close` leaves the connections open (:class:`~.network.Network` closes them), and :meth:`fail` sends nothing
    if the attempt was interrupted: both are open in the contract.
    """

    def __init__(self, node: Node, attempt: Attempt) -> None:
        self._node, self._attempt = node, attempt
        self.party = node.endpoint.party
        self._oversize: PeerError | None = None

    def send(self, peer: str, frame: bytes) -> None:
        """Seal and send in chunks; waits while too much is unacknowledged by the peer."""
        limit = self._node.endpoint.message_limit
        if peer not in self._node.peers:
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
            record = chunk_record(name, view[start : start + CHUNK], total=total, last=last)
            with self._node.lock:
                self._session(peer).push(record)

    def receive(self, timeout: float) -> tuple[str, bytes] | None:
        """Return the next message; see the contract."""
        until = time.monotonic() + timeout
        attempt, lock = self._attempt, self._node.lock
        with lock:
            while not attempt.inbox:
                self._check()
                left = until - time.monotonic()
                if left <= 0:
                    return None
                lock.wait(min(left, _LOOK))
            sender, frame, session = attempt.inbox.popleft()
            if session is not None:
                session.release(memory_cost(frame))
            return sender, frame

    def hold(self, peer: str, held: bool) -> None:
        """Leave the frames of a peer where they are, so that it soon has no room to send."""
        with self._node.lock:
            self._attempt.hold(peer, held and self._attempt.running)

    def limit(self, peer: str, size: int | None) -> None:
        """See :meth:`Transport.limit`; a longer message that is arriving is refused, too."""
        with self._node.lock:
            if size is None:
                self._attempt.limits.pop(peer, None)
                return
            self._attempt.limits[peer] = size
            if self._attempt.running and self._node.peers[peer].progress.assembler.due > size:
                self._node.refuse_size(self._node.peers[peer], size)
                self._node.lock.notify_all()

    def fail(self, failure: Failure) -> None:
        """Report the failure to the peers: that of this party, or the first one if it is known."""
        with self._node.lock:
            attempt = self._attempt
            attempt.stop(self._oversize or failure.at(self.party))
            if attempt.failure is not None and not attempt.interrupted:
                self._node.broadcast(to_record(attempt.name, attempt.failure))
            self._node.lock.notify_all()

    def close(self) -> None:
        """End this party's part in the attempt."""
        with self._node.lock:
            attempt = self._attempt
            if attempt.closed:
                return
            if attempt.failure is None:
                self._node.broadcast(AttemptEnd(attempt.name))
            attempt.closed = True
            for _, frame, session in (*attempt.inbox, *itertools.chain(*attempt.aside.values())):
                if session is not None:
                    session.release(memory_cost(frame))
            attempt.inbox.clear()
            attempt.aside.clear()
            self._node.lock.notify_all()

    def _check(self) -> None:
        if self._attempt.failure is not None:
            raise copy(self._attempt.failure)
        if self._attempt.closed:
            raise PeerError(self.party, "has already ended", code="peer-gone")

    def _session(self, name: str) -> Session:
        """Wait for room in the session with the peer's process of this attempt."""
        peer, attempt, lock = self._node.peers[name], self._attempt, self._node.lock
        patience, progress = self._node.endpoint.silence, (-1, time.monotonic())
        while True:
            self._check()
            if name in attempt.left:
                raise PeerError(name, "has already ended", code="peer-gone")
            session, now = peer.session, time.monotonic()
            present = session is not None and session.incarnation == attempt.incarnations[name]
            if session is not None and present and session.room:
                return session
            for each in self._node.peers.values():
                if each.session is not None:
                    each.session.relax()
            taken = session.acknowledged if session is not None and present else -1
            if taken != progress[0]:
                progress = (taken, now)
            elif now - progress[1] > patience:
                raise PeerError(
                    name, f"has not read from its connection for {patience:g} s", code="peer-silent", value=patience
                )
            lock.wait(_LOOK)


def memory_cost(content: bytes | memoryview) -> int:
    """Return the bytes of memory that waiting content takes."""
    return len(content) + _EACH


def to_record(attempt: bytes, error: PeerError) -> RunFailed:
    """Return the record of an error for peers: the party that failed, reason and code, without its value.

    What a peer claimed of another party is passed on with the name of who claimed it.
    """
    code, reason = error.code if error.code in _CODES else _FAILED, error.reason
    if error.about is None:
        return RunFailed(attempt, error.peer, reason, code)
    return RunFailed(attempt, error.about, f"{reason} (as {error.peer!r} says)", code)


def from_record(sender: str, item: RunFailed) -> PeerError:
    """Return the error that a peer reports of itself, or claims of another party.

    A code outside ``_CODES`` becomes that of a failed party.
    """
    code = next((code for code in _CODES if code == item.code), _FAILED)
    party = quoted(item.party)
    return failed(sender, quoted(item.reason, LONGEST_REASON), code, about=None if party == sender else party)
