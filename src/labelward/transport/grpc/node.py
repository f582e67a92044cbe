"""What all parts of one process share: its peers, the present attempt, and the one lock over all of it.

What arrives is dealt with in the thread of the link that it came on, under the lock; what leaves is put into the queue
of a link, which never blocks. So no thread waits for another party while it holds the lock. Order of locks: this one,
then that of a queue.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from labelward.errors import CodecError, PeerError
from labelward.transport.grpc import envelope
from labelward.transport.grpc.attempt import Attempt, cost, told
from labelward.transport.grpc.endpoint import Endpoint, Log
from labelward.transport.grpc.peer import Peer
from labelward.transport.grpc.session_handshake import INCARNATION
from labelward.transport.grpc.session_records import Chunk, End, Failed, Note, Oversize, note, read

if TYPE_CHECKING:
    from labelward.transport.certificates import Credentials

__all__ = ["Station"]

_FLOODED = "sends on and on, though nothing was acknowledged"


class Station:
    """One process of one party.

    Args:
        endpoint: own place.
        credentials: own.
        run: identity of the run.
        log: called with (event, fields).

    Attributes:
        lock: guards everything here; notified at every change.
        attempt: the present one, or the last.
        fatal: what ended this process's part for good.
        post: hands an envelope to the link; set by the network.
        on_session: called with a peer that has a new session, and the incarnation before.
        on_note: called with a peer and what it said about attempts.
    """

    def __init__(self, endpoint: Endpoint, credentials: Credentials, run: str, log: Log) -> None:
        self.endpoint, self.credentials, self.run = endpoint, credentials, run
        self.lock = threading.Condition()
        self.incarnation = secrets.token_bytes(INCARNATION)
        self.attempt: Attempt | None = None
        self.fatal: PeerError | None = None
        self.began = time.monotonic()
        self.post: Callable[[bytes], None] = _nowhere
        self.on_session: Callable[[Peer], None] = _nothing
        self.on_note: Callable[[Peer, Note], None] = _nothing
        self._log, self._strangers = log, 0
        self.peers = {
            name: Peer(
                name,
                endpoint,
                credentials,
                run=run,
                incarnation=self.incarnation,
                post=lambda raw: self.post(raw),
                log=self.log,
            )
            for name in endpoint.peers
        }

    def log(self, event: str, fields: Mapping[str, Any]) -> None:
        """Tell the log; a log that fails (a full disk) does not take the network down."""
        with contextlib.suppress(Exception):
            self._log(event, fields)

    @contextlib.contextmanager
    def guarded(self) -> Iterator[None]:
        """End this process's part where something here goes wrong that must not: else the run would hang."""
        try:
            yield
        except Exception as error:
            self.end(
                PeerError(self.endpoint.party, f"failed: {type(error).__name__} in its network", code="peer-failed")
            )
            raise

    def deliver(self, raw: bytes) -> None:
        """Deal with an envelope for this party; never raises for what somebody else sent."""
        try:
            arrived = envelope.unpack(raw)
        except CodecError as error:
            self._strange(str(error))
            return
        with self.guarded(), self.lock:
            peer = self.peers.get(arrived.source)
            if arrived.target != self.endpoint.party or peer is None:
                self._strange(f"an envelope from {envelope.plain(arrived.source)!r} to another")
                return
            self._dispatch(peer, arrived)
            self.lock.notify_all()

    def broadcast(self, content: Note) -> None:
        """Say something to every peer that has a session."""
        for peer in self.peers.values():
            if peer.session is not None:
                peer.session.push(note(content))

    def link_up(self) -> None:
        """The link to the hub is there (again)."""
        with self.lock:
            for peer in self.peers.values():
                peer.reason = "it is not connected to the listener"
                peer.refresh()

    def link_down(self, reason: str) -> None:
        """The link to the hub is gone, or could not be made."""
        with self.lock:
            for peer in self.peers.values():
                peer.reason = reason
            self.lock.notify_all()

    def refresh(self, name: str) -> None:
        """A member has linked to the own hub."""
        with self.lock:
            if name in self.peers:
                self.peers[name].refresh()

    def away(self, name: str, reason: str) -> None:
        """A member's link to the own hub is gone, or was refused."""
        with self.lock:
            if name in self.peers:
                self.peers[name].reason = reason

    def tick(self) -> None:
        """Say hello, send heartbeats, end an attempt in which a peer is away too long."""
        with self.guarded(), self.lock:
            now = time.monotonic()
            for peer in self.peers.values():
                peer.tick(now)
                attempt = self.attempt
                if attempt is not None and attempt.running and peer.name not in attempt.left:
                    error = self.missing(peer, attempt.began)
                    if error is not None:
                        attempt.stop(error)
                        self.log("away", {"peer": peer.name, "reason": str(error)})
            self.lock.notify_all()

    def missing(self, peer: Peer, since: float) -> PeerError | None:
        """Return the error of a peer that has been away too long, counted from ``since`` at the earliest."""
        limit = self.endpoint.timeout
        if time.monotonic() - max(peer.heard, since) <= limit:
            return None
        return PeerError(peer.name, f"away for {limit:g} s (last: {self.reason(peer)})", code="peer-gone", value=limit)

    def reason(self, peer: Peer) -> str:
        """Return why a peer is not there, as far as is known."""
        return "it has ended" if peer.session is not None and peer.session.gone else peer.reason

    def end(self, error: PeerError) -> None:
        """This process's part has ended for good."""
        with self.lock:
            self.fatal = self.fatal or error
            if self.attempt is not None:
                self.attempt.stop(error)
            self.lock.notify_all()

    def begin(self, name: bytes, incarnations: dict[str, bytes]) -> Attempt:
        """Make an attempt the present one; give it what has arrived for it already."""
        attempt = self.attempt = Attempt(name, incarnations)
        for peer in self.peers.values():
            held, peer.standing.held = peer.standing.held, []
            for its, item in held:
                if peer.session is not None:
                    peer.session.backlog -= _kept(item)
                self._attempted(peer, its, item)
        return attempt

    # -- helpers ---------------------------------------------------------------------------------------------------

    def _dispatch(self, peer: Peer, arrived: envelope.Envelope) -> None:
        if arrived.kind == envelope.HELLO:
            if peer.take_hello(arrived.payload):
                self.on_session(peer)
        elif arrived.kind == envelope.REFUSAL:
            peer.take_refusal(arrived.payload)
        elif arrived.kind == envelope.ABSENT:
            if not peer.confirmed or time.monotonic() - peer.heard > self.endpoint.heartbeat:
                peer.reason = envelope.plain(arrived.payload)
        elif peer.session is not None:
            before = peer.session.refused["changed"]
            if arrived.kind == envelope.CONTROL:
                peer.session.take_control(arrived.payload)
            elif arrived.kind == envelope.DATA:
                record = peer.session.open(arrived.payload)
                if record is not None:
                    self._record(peer, record)
            count = peer.session.refused["changed"]
            if count > before and _telling(count):
                self.log("refused", {"peer": peer.name, "reason": "a sealed record was changed", "count": count})

    def _strange(self, reason: str) -> None:
        self._strangers += 1
        if _telling(self._strangers):
            self.log("refused", {"reason": reason, "count": self._strangers})

    def _record(self, peer: Peer, record: bytes) -> None:
        session = peer.session
        if session is not None and session.flooded:
            if peer.standing.failed is None:
                error = PeerError(peer.name, _FLOODED, code="peer-message")
                peer.standing.failed = told(b"", error)
                self._stop(error)
            return
        try:
            item = read(record)
            if isinstance(item, Chunk | End | Failed) and item.attempt:
                self._attempted(peer, item.attempt, item)
            else:
                self.on_note(peer, item)  # type: ignore[arg-type]
        except CodecError as error:
            self._stop(PeerError(peer.name, f"sent a record that cannot be used: {error}", code="malformed"))
        if session is not None:
            session.acknowledge()

    def _attempted(self, peer: Peer, name: bytes, item: Chunk | End | Failed) -> None:
        attempt = self.attempt
        if attempt is not None and attempt.name == name:
            try:
                attempt.take(peer, item)
            except Oversize as error:
                reason = f"{error} (message_limit at {self.endpoint.party!r})"
                self._stop(PeerError(peer.name, reason, code="peer-message", value=error.value))
        elif self._later(name):
            peer.standing.held.append((name, item))
            if peer.session is not None:
                peer.session.backlog += _kept(item)

    def _later(self, name: bytes) -> bool:
        """Whether an attempt can still begin here."""
        incarnation, attempt = name[:INCARNATION], self.attempt
        active = self.peers.get(self.endpoint.active)
        if active is None:  # this party begins them, and has not begun this one
            return False
        return incarnation not in active.retired and (
            attempt is None or attempt.name[:INCARNATION] != incarnation or name > attempt.name
        )

    def _stop(self, error: PeerError) -> None:
        """What a peer sent ends the run, here and, with the reason, everywhere."""
        self.log("refused", {"peer": error.peer, "reason": error.reason})
        attempt = self.attempt
        if attempt is not None and attempt.running:
            attempt.stop(error)
            self.broadcast(told(attempt.name, error))


def _kept(item: Chunk | End | Failed) -> int:
    """Return what it costs to keep something until its attempt begins."""
    return cost(item.data if isinstance(item, Chunk) else b"")


def _telling(count: int) -> bool:
    """Whether the log should be told of the count-th time: 1, 2, 4, 8, …, so that a flood does not fill it."""
    return count & (count - 1) == 0


def _nowhere(raw: bytes) -> None:
    """Drop an envelope: there is no link yet."""


def _nothing(*_: Any) -> None:
    """Do nothing."""
