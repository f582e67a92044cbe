"""Node: the state of one party's process, which all threads share: peers, present attempt, and the one lock.

An envelope that arrives is handled under the lock, in the thread of its connection. What leaves is put into the queue
of a connection, which never blocks: no thread waits for another party while it has the lock. Lock order: the node's
lock before that of a queue.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from labelward.errors import LONGEST_REASON, CodecError, PeerDisagreementError, PeerError, quoted
from labelward.transport.grpc import envelope
from labelward.transport.grpc import session_records as records
from labelward.transport.grpc.attempt import Attempt, memory_cost, to_record
from labelward.transport.grpc.endpoint import Endpoint, Log
from labelward.transport.grpc.peer import Peer
from labelward.transport.grpc.session import HELD
from labelward.transport.grpc.session_handshake import INCARNATION

if TYPE_CHECKING:
    from cryptography import x509

    from labelward.transport.certificates import Credentials

_FLOODED = "keeps sending without acknowledgments"


class Node:
    """State of one party's process.

    Attributes:
        lock: guards all state; notified at every change.
        attempt: the present attempt, or the last one.
        fatal: error that ended the part of this process for good.
        post: sends an envelope; set by the network.
        on_session: called with a peer that has a new session.
        on_note: called with a peer and a note that it sent.
    """

    def __init__(self, endpoint: Endpoint, credentials: Credentials, run: str, log: Log) -> None:
        from labelward.transport.certificates import CredentialSource

        self.endpoint, self.run = endpoint, run
        self._source = CredentialSource(credentials, self._take_over)
        self.lock = threading.Condition()
        self.incarnation = secrets.token_bytes(INCARNATION)
        self.attempt: Attempt | None = None
        self.fatal: PeerError | None = None
        self.began = time.monotonic()
        self.post: Callable[[bytes], None] = _drop_envelope
        self.on_session: Callable[[Peer], None] = _ignore
        self.on_note: Callable[[Peer, records.Note], None] = _ignore
        self._log, self._strangers = log, 0
        self.peers = {name: Peer(name, self) for name in endpoint.peers}
        self.warn_of_expiry(endpoint.party, credentials.certificate)

    def log(self, event: str, fields: Mapping[str, Any]) -> None:
        """Write to the log; an error of the log, such as a full disk, is ignored."""
        with contextlib.suppress(Exception):
            self._log(event, fields)

    @property
    def credentials(self) -> Credentials:
        """Present credentials of this party."""
        return self._source.current()

    def _take_over(self, credentials: Credentials) -> None:
        from labelward.transport.certificates import fingerprint

        self.log("certificate", {"fingerprint": fingerprint(credentials.certificate)})
        self.warn_of_expiry(self.endpoint.party, credentials.certificate)

    @staticmethod
    def clock() -> float:
        """Return the time of the day in seconds since 1970; nothing waits by it."""
        return time.time()

    def warn_of_expiry(self, party: str, certificate: x509.Certificate) -> None:
        """Log that a party's certificate ends within 30 days, if it does."""
        from labelward.transport.certificates import days_left

        left = days_left(certificate)
        if left is not None:
            self.log("expiry", {"peer": party, "days": left})

    @contextlib.contextmanager
    def guarded(self) -> Iterator[None]:
        """End the part of this process at an unexpected exception, which would otherwise leave the run hanging."""
        try:
            yield
        except Exception as error:
            self.end(
                PeerError(self.endpoint.party, f"failed: {type(error).__name__} in its network", code="peer-failed")
            )
            raise

    def deliver(self, raw: bytes) -> None:
        """Process an envelope for this party; raises nothing for what others sent."""
        try:
            arrived = envelope.unpack_envelope(raw)
        except CodecError as error:
            self._log_unknown_sender(str(error))
            return
        with self.guarded(), self.lock:
            peer = self.peers.get(arrived.source)
            if arrived.target != self.endpoint.party or peer is None:
                self._log_unknown_sender(f"an envelope from {quoted(arrived.source)!r} to another")
                return
            self._dispatch(peer, arrived)
            self.lock.notify_all()

    def broadcast(self, content: records.Note) -> None:
        """Send a note to every peer with a session."""
        for peer in self.peers.values():
            if peer.session is not None:
                peer.session.push(records.note_record(content))

    def on_connected(self) -> None:
        """The connection to the hub is established."""
        with self.lock:
            for peer in self.peers.values():
                peer.reason = "it is not connected to the listener"
                peer.refresh()

    def on_disconnected(self, reason: str) -> None:
        """The connection to the hub was lost, or could not be established."""
        with self.lock:
            for peer in self.peers.values():
                peer.reason = reason
            self.lock.notify_all()

    def refresh(self, name: str) -> None:
        """A party has connected to the hub of this process."""
        with self.lock:
            if name in self.peers:
                self.peers[name].refresh()

    def away(self, name: str, reason: str) -> None:
        """A party's connection to the hub of this process was lost."""
        with self.lock:
            if name in self.peers:
                self.peers[name].reason = reason

    def refused(self, name: str, reason: str) -> None:
        """A party's connection to the hub of this process was refused."""
        with self.lock:
            if name in self.peers:
                self.peers[name].reason = reason
                self.peers[name].note_refusal(reason)

    def tick(self) -> None:
        """Send greetings and heartbeats; end an attempt in which a peer is away too long."""
        with self.guarded(), self.lock:
            now, own = time.monotonic(), self.credentials
            for peer in self.peers.values():
                if peer.session is not None and peer.certificate is not None and own.refuses(peer.certificate):
                    self.blame(peer, f"shows the certificate {peer.fingerprint[:16]}, which is refused")
                peer.tick(now)
                attempt = self.attempt
                if attempt is not None and attempt.running and peer.name not in attempt.left:
                    error = self.missing(peer, attempt.began)
                    if error is not None:
                        attempt.stop(error)
                        self.log("away", {"peer": peer.name, "reason": str(error)})
            self.lock.notify_all()

    def missing(self, peer: Peer, since: float) -> PeerError | None:
        """Return the error of a peer that is away longer than the timeout, counted from ``since`` at the earliest."""
        limit = self.endpoint.timeout
        if time.monotonic() - max(peer.heard, since) <= limit:
            return None
        reason = f"away for {limit:g} s (last: {self.reason(peer)}); when it is back, all run the same command again"
        return PeerError(peer.name, reason, code="peer-gone", value=limit)

    def reason(self, peer: Peer) -> str:
        """Return why a peer is not connected, if known: of one that has ended, why its next process is refused."""
        ended = peer.session is not None and peer.session.gone
        return (peer.refusal or "it has ended") if ended else peer.reason

    def end(self, error: PeerError) -> None:
        """End the part of this process for good."""
        with self.lock:
            self.fatal = self.fatal or error
            if self.attempt is not None:
                self.attempt.stop(error)
            self.lock.notify_all()

    def begin(self, name: bytes, incarnations: dict[str, bytes]) -> Attempt:
        """Make an attempt the present one; deliver what has arrived for it already."""
        attempt = self.attempt = Attempt(name, incarnations)
        for peer in self.peers.values():
            peer.progress.assembler.drop()  # of an attempt that was interrupted
            held, peer.progress.held, peer.progress.held_bytes = peer.progress.held, [], 0
            for its, item in held:
                self._deliver(peer, its, item)
        return attempt

    def _dispatch(self, peer: Peer, arrived: envelope.Envelope) -> None:
        if peer.blamed:
            return
        if arrived.kind == envelope.HELLO:
            if not peer.rates.greetings.take():
                peer.charge("broken", reason="greets without end, or whoever passes on its greetings")
            elif peer.take_hello(arrived.payload):
                self.on_session(peer)
        elif arrived.kind == envelope.REFUSAL:
            peer.charge("useless")
            peer.take_refusal(arrived.payload)
        elif arrived.kind == envelope.ABSENT:
            if not peer.confirmed or time.monotonic() - peer.heard > self.endpoint.heartbeat:
                peer.reason = quoted(arrived.payload, LONGEST_REASON)
        elif peer.session is None:
            peer.charge("useless")
        else:
            session, before = peer.session, peer.session.refused["changed"]
            if arrived.kind == envelope.CONTROL:
                session.take_control(arrived.payload)
            elif arrived.kind == envelope.DATA:
                record = session.open(arrived.payload)
                if record is not None:
                    self._record(peer, record)
            count = session.refused["changed"]
            if count > before and _is_power_of_two(count):
                self.log("refused", {"peer": peer.name, "reason": "a sealed record was changed", "count": count})

    def _log_unknown_sender(self, reason: str) -> None:
        self._strangers += 1
        if _is_power_of_two(self._strangers):
            self.log("refused", {"reason": reason, "count": self._strangers})

    def _record(self, peer: Peer, record: bytes) -> None:
        session = peer.session
        if session is not None and session.flooded:
            self.blame(peer, _FLOODED)
            return
        try:
            item = records.decode_record(record)
            if not isinstance(item, records.Chunk):
                peer.charge("notes")
            if isinstance(item, records.Chunk | records.AttemptEnd | records.RunFailed) and item.attempt:
                self._deliver(peer, item.attempt, item)
            else:
                self.on_note(peer, item)  # type: ignore[arg-type]
        except CodecError as error:
            self._stop(PeerError(peer.name, f"sent an invalid record: {error}", code="malformed"))
        if session is not None:
            session.acknowledge()

    def _deliver(self, peer: Peer, name: bytes, item: records.Chunk | records.AttemptEnd | records.RunFailed) -> None:
        attempt = self.attempt
        if attempt is not None and attempt.name == name:
            over = attempt.interrupted or (attempt.closed and attempt.failure is None)
            if isinstance(item, records.RunFailed) and over:
                peer.progress.failed = item  # this party's part has ended, and it waits for the others
            try:
                attempt.take(peer, item)
            except records.MessageTooLargeError as error:
                self._refuse_size(peer, error)
        elif self._may_still_begin(name):
            if peer.progress.held_bytes > HELD:
                self.blame(peer, f"sent more than {HELD} bytes for an attempt that has not begun")
            else:
                peer.progress.held_bytes += memory_cost(item.data if isinstance(item, records.Chunk) else b"")
                peer.progress.held.append((name, item))

    def refuse_size(self, peer: Peer, limit: int) -> None:
        """End the run because a message that is arriving is longer than a limit."""
        error = records.too_large(peer.progress.assembler.due, limit)
        peer.progress.assembler.drop()
        self._refuse_size(peer, error)

    def _refuse_size(self, peer: Peer, error: records.MessageTooLargeError) -> None:
        most = self.endpoint.message_limit
        agreed = self.attempt is not None and self.attempt.limits.get(peer.name, most) < most
        reason = f"{error} ({'agreed sizes' if agreed else 'message_limit'} at {self.endpoint.party!r})"
        self._stop(PeerError(peer.name, reason, code="peer-message", value=error.value))

    def _may_still_begin(self, name: bytes) -> bool:
        """Whether an attempt can still begin here."""
        incarnation, attempt = name[:INCARNATION], self.attempt
        active = self.peers.get(self.endpoint.active)
        if active is None:  # this is the active party, which has not begun this attempt
            return False
        return incarnation not in active.retired and (
            attempt is None or attempt.name[:INCARNATION] != incarnation or name > attempt.name
        )

    def blame(self, peer: Peer, reason: str) -> None:
        """End the run because of what a peer does, once, whether an attempt runs or is awaited."""
        if not peer.blamed:
            peer.blamed = True
            self._stop(PeerError(peer.name, reason, code="peer-message"), waits=True)

    def disagreed(self, name: str, reason: str) -> bool:
        """End the run because a party is in another one, unless an attempt has begun; return whether it ends."""
        with self.lock:
            if name not in self.peers or self.attempt is not None:
                return False
            error = PeerDisagreementError(name, reason, code="disagreement")
            self.broadcast(to_record(b"", error))
            self.end(error)
            return True

    def disturbed(self, name: str, reason: str) -> None:
        """A party's connection to the hub of this process was closed or refused for what the party did."""
        with self.lock:
            if name in self.peers:
                self.peers[name].charge("faults", reason=f"disturbs the listener: {reason}")
                self.lock.notify_all()

    def _stop(self, error: PeerError, *, waits: bool = False) -> None:
        """End the run because of what a peer sent, here and at all peers.

        Args:
            waits: whether also the next wait for parties ends, though an attempt runs.
        """
        self.log("refused", {"peer": error.peer, "reason": error.reason})
        attempt = self.attempt
        running = attempt is not None and attempt.running
        if waits or not running:
            self.peers[error.peer].progress.failed = to_record(b"", error)
        if attempt is not None and running:
            attempt.stop(error)
            self.broadcast(to_record(attempt.name, error))
        else:
            self.broadcast(to_record(b"", error))


def _is_power_of_two(count: int) -> bool:
    """Whether to log the count-th event of a kind: 1, 2, 4, 8, …, so a flood does not fill the log."""
    return count & (count - 1) == 0


def _drop_envelope(raw: bytes) -> None:
    """Drop an envelope: there is no link yet."""


def _ignore(*_: Any) -> None:
    """Do nothing."""
