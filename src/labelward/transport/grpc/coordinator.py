"""Coordination: how attempts begin, how they are interrupted, and how a run ends without a stranded party.

Begin. The active party sends every passive party one :class:`~.session_records.AttemptCall` per session, which also
ends an attempt that still runs there; it waits for :class:`~.session_records.AttemptReady` of all, then sends
:class:`~.session_records.AttemptBegin`. A passive party that waits sends ``AttemptReady`` once per session.

Interruption. An attempt is interrupted (:class:`~labelward.errors.PeerRestartedError`)

- at any party, by a session with a new process of a peer that takes part in the attempt;
- at the active party, by ``AttemptReady`` of a party that takes part in it;
- at a passive party, by ``AttemptCall``.

Each program then asks for the next attempt. ``AttemptCall`` reaches the parties that notice nothing else.

End. A passive party with its share on disk sends :class:`~.session_records.ShareSaved`, again in each new session. With
all shares saved, the active party marks the run as finished and sends :class:`~.session_records.RunFinished` in every
session, also in later ones, until all have sent :class:`~.session_records.EndAcknowledged` or the time is up. A passive
party acknowledges nothing before its program has marked the run, which is all that it will know of the end when nobody
listens any more. A process that is killed meanwhile comes back as follows:

- active, before its mark: it gathers the parties again; those that wait for the end receive ``AttemptCall``;
- active, after its mark: it calls ``attempt(finished=True)``, which sends ``RunFinished`` to the others;
- passive, before its share was on disk: it sends ``AttemptReady``, and the next attempt begins for all;
- passive, after that: it calls ``attempt(finished=True)``, which sends ``AttemptReady(saved)``. The active party takes
  this for ``ShareSaved`` if it waits for the end, and for ``AttemptReady`` if it gathers. If the run is finished, the
  party marks it with ``conclude``, as one that was not killed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from copy import copy
from typing import Final

from labelward.errors import LONGEST_REASON, CodecError, PeerError, PeerRestartedError, quoted
from labelward.transport.base import Failure
from labelward.transport.grpc import session_records as records
from labelward.transport.grpc.attempt import Attempt, from_record, to_record
from labelward.transport.grpc.node import Node
from labelward.transport.grpc.peer import Peer
from labelward.transport.grpc.session_handshake import INCARNATION

_WAIT: Final = 1.0
_FRESH: Final = 3  # heartbeats after which a peer that was not heard is away
_LOG_INTERVAL: Final = 10.0  # seconds between two entries in the log about the same wait
_PASS_ON: Final = 5.0  # seconds to wait for peers that have not heard why a run cannot begin
_LINGER: Final = 30.0  # seconds to wait for peers to be told of the end where none of them is there


class _Coordinator:
    """Common part of both sides: bounded waits for peers, which raise the reason why they end.

    Attributes:
        tells: whether this party tells the others of a failure that a peer reported: the active party has a session
            with each of them, the passive ones may have none with each other yet.
    """

    tells: bool = False

    def __init__(self, node: Node) -> None:
        self.node, self.peers = node, node.peers
        self.over = False
        self._waits: tuple[tuple[str, ...], float] = ((), 0.0)
        self._came: dict[str, float] = {}  # by peer: when it was first seen since it was away
        node.on_session, node.on_note = self.on_session, self.on_note

    def on_session(self, peer: Peer) -> None:
        """Process a new session: a peer has connected, or restarted."""
        attempt, session = self.node.attempt, peer.session
        if (
            attempt is not None
            and attempt.running
            and session is not None
            and attempt.incarnations.get(peer.name, session.incarnation) != session.incarnation
        ):
            attempt.stop(PeerRestartedError(peer.name, "came back as a new process", code="peer-restarted"))
        self.node.lock.notify_all()

    def on_note(self, peer: Peer, content: records.Note) -> None:
        """Process a note of a peer."""
        if isinstance(content, records.RunFailed):
            peer.progress.failed = content

    def fail(self, reason: str) -> None:
        """Report to all peers that the run has failed here, outside of an attempt."""
        with self.node.lock:
            error = Failure("peer-failed", reason).at(self.node.endpoint.party)
            self.node.broadcast(to_record(b"", error))

    def announce(self, reason: str, patience: float) -> tuple[str, ...]:
        """Report to each peer that is there within ``patience`` seconds that this party cannot begin."""
        record = to_record(b"", Failure("peer-failed", reason).at(self.node.endpoint.party))
        return self._spread(record, tuple(self.peers.values()), patience)

    def _spread(self, record: records.RunFailed, peers: tuple[Peer, ...], patience: float) -> tuple[str, ...]:
        """Send a record to each peer, as soon as it is there; return those that were there in time."""
        node, until, told = self.node, time.monotonic() + patience, list[str]()
        with node.lock:
            while len(told) < len(peers) and node.fatal is None and (left := until - time.monotonic()) > 0:
                for peer in peers:
                    if peer.name not in told and peer.confirmed and peer.session is not None:
                        peer.session.push(records.note_record(record))
                        told.append(peer.name)
                if len(told) < len(peers):
                    node.lock.wait(min(left, _WAIT))
        return tuple(told)

    def uninformed(self) -> tuple[str, ...]:
        """Return the parties that have not acknowledged the end of the run, as the active party knows."""
        return ()

    def acknowledge(self) -> None:
        """Acknowledge the end of the run, as a passive party does."""

    def _close_attempt(self) -> None:
        if self.node.attempt is not None:
            self.node.attempt.closed = True

    def _complete_attempt(self) -> None:
        """Close the attempt; raise a failure of it that arrived after the program had received its last message."""
        self._close_attempt()
        attempt = self.node.attempt
        if attempt is not None and attempt.failure is not None and not attempt.interrupted:
            if self.tells:
                self.node.broadcast(to_record(b"", attempt.failure))
            raise copy(attempt.failure)

    def _wait(self, missing: Iterable[Peer], began: float) -> None:
        """Wait for at most a second; raise what ends the waiting, and report it to the peers."""
        node, missing = self.node, list(missing)
        if node.fatal is not None:
            raise copy(node.fatal)
        for peer in self.peers.values():
            if peer.progress.failed is not None:
                failed, peer.progress.failed = peer.progress.failed, None
                told = from_record(peer.name, failed)
                if node.attempt is None and node.endpoint.listen is not None:  # without this party nobody hears more
                    others = tuple(each for each in self.peers.values() if each is not peer)
                    self._spread(to_record(b"", told), others, _PASS_ON)
                elif self.tells:
                    node.broadcast(to_record(b"", told))
                raise told
        for peer in missing:
            error = node.missing(peer, began)
            if error is None and self._is_silent(peer, began):
                error = PeerError(
                    peer.name,
                    f"is connected but made no progress for {self._patience:g} s",
                    code="peer-silent",
                    value=self._patience,
                )
            if error is not None:
                node.broadcast(to_record(b"", error))
                raise error
        self._log_waiting(missing, began)
        node.lock.wait(_WAIT)

    @property
    def _patience(self) -> float:
        """Seconds that a peer may be there without progress; the active party may itself wait for others."""
        endpoint = self.node.endpoint
        return endpoint.silence + (0.0 if self.tells else endpoint.timeout)

    def _is_silent(self, peer: Peer, began: float) -> bool:
        """Return whether a peer has been there for too long; one that comes and goes has the timeout besides."""
        now = time.monotonic()
        if self._is_away(peer, now):
            self._came.pop(peer.name, None)
            return False
        came = max(began, self._came.setdefault(peer.name, now))
        return now - came > self._patience or now - began > self._patience + self.node.endpoint.timeout

    def _is_away(self, peer: Peer, now: float) -> bool:
        return not peer.heard or now - peer.heard > _FRESH * self.node.endpoint.heartbeat

    def _log_waiting(self, missing: list[Peer], began: float) -> None:
        names, now = tuple(peer.name for peer in missing), time.monotonic()
        if names == self._waits[0] and now - self._waits[1] < _LOG_INTERVAL:
            return
        self._waits = (names, now)
        away = {peer.name: self.node.reason(peer) for peer in missing if self._is_away(peer, now)}
        left = self.node.endpoint.timeout - (now - min(max(began, peer.heard) for peer in missing))
        told = {"for": list(names), "away": away, "seconds": round(now - began, 1), "left": round(max(0.0, left), 1)}
        self.node.log("waiting", told)


class ActiveCoordinator(_Coordinator):
    """Side of the active party: begins attempts and ends the run."""

    tells = True

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self._number = 0

    def on_session(self, peer: Peer) -> None:
        """Process a new session; after the end of the run, announce the end."""
        super().on_session(peer)
        if self.over:
            self._announce_end_to(peer)

    def on_note(self, peer: Peer, content: records.Note) -> None:
        """See the module."""
        super().on_note(peer, content)
        progress, attempt = peer.progress, self.node.attempt
        if isinstance(content, records.AttemptReady) and content.begun == progress.begun:
            progress.ready, progress.saved, progress.failed = True, content.saved, None
            if attempt is not None and attempt.running:
                attempt.stop(PeerRestartedError(peer.name, "asks for a new attempt", code="peer-restarted"))
        elif isinstance(content, records.ShareSaved):
            progress.saved = True
        elif isinstance(content, records.EndAcknowledged):
            progress.acknowledged = True

    def await_parties(self, finished: bool) -> Attempt | None:
        """Wait for all parties and begin the next attempt; after the end only announce it, and return None."""
        if finished:
            self.announce_end()
            return None
        node, began = self.node, time.monotonic()
        with node.lock:
            self._close_attempt()
            while True:
                for peer in self.peers.values():
                    self._request_attempt(peer)
                missing = [peer for peer in self.peers.values() if not (peer.confirmed and peer.progress.ready)]
                if not missing:
                    return self._begin_attempt()
                self._wait(missing, began)

    def announce_end(self) -> None:
        """Tell all that the run is finished, until they know, or it is too late."""
        node, began = self.node, time.monotonic()
        with node.lock:
            self._close_attempt()
            self.over = True
            for peer in self.peers.values():
                self._announce_end_to(peer)
            while missing := self.uninformed():
                now = time.monotonic()
                last = max((began, *(self.peers[name].heard for name in missing)))
                if now - began > node.endpoint.timeout or now - last > _LINGER or node.fatal:
                    node.log("unacknowledged", {"peers": list(missing)})
                    return
                node.lock.wait(_WAIT)

    def uninformed(self) -> tuple[str, ...]:
        """Return the parties that have not acknowledged the end of the run."""
        return tuple(peer.name for peer in self.peers.values() if self.over and not peer.progress.acknowledged)

    def finish(self, mark: Callable[[], None]) -> None:
        """Wait until all shares are on disk, mark the run as finished, announce the end."""
        node, began = self.node, time.monotonic()
        with node.lock:
            self._complete_attempt()
            while missing := [peer for peer in self.peers.values() if not peer.progress.saved]:
                for peer in missing:
                    if peer.progress.ready:
                        raise PeerRestartedError(
                            peer.name, "came back without its share of the model", code="peer-restarted"
                        )
                self._wait(missing, began)
        mark()
        node.log("finished", {})
        self.announce_end()

    def _request_attempt(self, peer: Peer) -> None:
        if peer.session is not None and not peer.progress.called:
            failure = self.node.attempt.failure if self.node.attempt else None
            party = failure.peer if failure else self.node.endpoint.party
            reason = failure.reason if failure else "came back as a new process"
            peer.session.push(records.note_record(records.AttemptCall(party, reason)))
            peer.progress.called = True

    def _begin_attempt(self) -> Attempt:
        node = self.node
        self._number += 1
        name = node.incarnation + self._number.to_bytes(4, "big")
        sessions = {peer.name: peer.session for peer in self.peers.values() if peer.session is not None}
        incarnations = {name: session.incarnation for name, session in sessions.items()}
        incarnations[node.endpoint.party] = node.incarnation
        for peer in self.peers.values():
            progress = peer.progress
            progress.begun += 1
            progress.ready = progress.saved = progress.called = False
            sessions[peer.name].push(records.note_record(records.AttemptBegin(name, incarnations)))
        node.log("attempt", {"number": self._number})
        return node.begin(name, incarnations)

    def _announce_end_to(self, peer: Peer) -> None:
        if peer.session is not None and not peer.progress.finished:
            peer.session.push(records.note_record(records.RunFinished()))
            peer.progress.finished = True


class PassiveCoordinator(_Coordinator):
    """Side of a passive party: follows the active party."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self.active = self.peers[node.endpoint.active]
        self._next: records.AttemptBegin | None = None
        self._called: records.AttemptCall | None = None
        self._known = False  # the active party is told that its end of the run has arrived
        self._marked = False  # the program has marked the run as finished

    def on_session(self, peer: Peer) -> None:
        """Process a new session; with the active party it voids what its former process announced."""
        super().on_session(peer)
        if peer is self.active:
            self._next = self._called = None
            self._known = False

    def on_note(self, peer: Peer, content: records.Note) -> None:
        """See the module."""
        super().on_note(peer, content)
        if peer is not self.active:
            return
        attempt = self.node.attempt
        if isinstance(content, records.AttemptCall):
            self._called, self._next = content, None
            if attempt is not None and attempt.running:
                attempt.stop(_restarted(peer.name, content))
        elif isinstance(content, records.AttemptBegin):
            names, sizes = set(content.incarnations), {len(each) for each in content.incarnations.values()}
            if (
                len(content.attempt) != records.ATTEMPT
                or names != set(self.node.endpoint.parties)
                or sizes != {INCARNATION}
            ):
                raise CodecError("an attempt that is not of the parties of this run", code="peer-message")
            self._next, self._called = content, None
            peer.progress.begun += 1
        elif isinstance(content, records.RunFinished):
            self.over = True
            self.acknowledge()  # of a marked run: to an active party that has come back

    def await_parties(self, saved: bool) -> Attempt | None:
        """Wait for the next attempt; return None if the run is finished, which :meth:`finish` marks."""
        node, began = self.node, time.monotonic()
        with node.lock:
            self._close_attempt()
            self.active.progress.told = ""
            while True:
                if self.over:
                    return None
                begin, self._next = self._next, None
                if begin is not None:
                    node.log("attempt", {"number": int.from_bytes(begin.attempt[-4:], "big")})
                    return node.begin(begin.attempt, begin.incarnations)
                self._notify("ready", records.AttemptReady(self.active.progress.begun, saved))
                self._wait([self.active], began)

    def finish(self, mark: Callable[[], None]) -> None:
        """Report that the share is on disk, wait for the end of the run, mark it as finished."""
        node, began = self.node, time.monotonic()
        with node.lock:
            self._complete_attempt()
            self.active.progress.told = ""
            while not self.over:
                if self._called is not None:
                    raise _restarted(self.active.name, self._called)
                self._notify("saved", records.ShareSaved())
                self._wait([self.active], began)
        mark()
        node.log("finished", {})
        with node.lock:
            self._marked = True
            self.acknowledge()

    def acknowledge(self) -> None:
        """Acknowledge the end of the run, once in a session, if it is marked."""
        with self.node.lock:
            if self.over and self._marked and not self._known and self.active.session is not None:
                self._known = True
                self.active.session.push(records.note_record(records.EndAcknowledged()))

    def _notify(self, what: str, content: records.Note) -> None:
        progress = self.active.progress
        if self.active.session is not None and progress.told != what:
            progress.told = what
            self.active.session.push(records.note_record(content))


def _restarted(sender: str, call: records.AttemptCall) -> PeerRestartedError:
    party = quoted(call.party)
    about = None if party == sender else party
    return PeerRestartedError(sender, quoted(call.reason, LONGEST_REASON), code="peer-restarted", about=about)
