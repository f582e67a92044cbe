"""Who begins attempts, who is told, and how a run ends without stranding a party.

The active party *gathers*: it calls every passive party once in each session (:class:`~.records.Call`, which also ends
the attempt that was running there), waits until each has said :class:`~.records.Ready`, and sends
:class:`~.records.Begin`. A passive party says ``Ready`` once in each session in which it waits.

An attempt is interrupted (:class:`~labelward.errors.PeerRestartedError`)

- at a party that has a new session with a new process of a peer (whoever restarted);
- at the active party by a ``Ready`` of a party that takes part in the running attempt;
- at a passive party by a ``Call``.

Then each program asks for the next attempt, and whoever does not hear of it in another way hears the ``Call``.

The end: a passive party whose share is on disk says :class:`~.records.Saved` (again in each new session); when all
have, the active party marks the run as finished, and says :class:`~.records.Finished` in every session, present and
new, until each passive party has said :class:`~.records.Acknowledged` or the time is up. A passive party acknowledges
after it has marked the run itself. So,

- active party killed before it marked: comes back, gathers; who waits for the end hears ``Call``: the next attempt;
- killed after it marked, before all were told: comes back with ``attempt(finished=True)``, tells them;
- passive party killed before its share was on disk: comes back with ``Ready``: the next attempt for all;
- killed after that: comes back with ``attempt(finished=True)``, which says ``Ready(saved)``: counts as ``Saved`` where
  the active party waits for that, as ``Ready`` where it gathers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from copy import copy
from typing import Final

from labelward.errors import CodecError, PeerError, PeerRestartedError
from labelward.transport.base import Failure
from labelward.transport.grpc.attempt import Attempt, said, told
from labelward.transport.grpc.envelope import plain
from labelward.transport.grpc.node import Station
from labelward.transport.grpc.peer import Peer
from labelward.transport.grpc.session_handshake import INCARNATION
from labelward.transport.grpc.session_records import (
    ATTEMPT,
    Acknowledged,
    Begin,
    Call,
    Failed,
    Finished,
    Note,
    Ready,
    Saved,
    note,
)

__all__ = ["Active", "Passive"]

_LOOK: Final = 1.0
_TELL: Final = 10.0  # seconds between two entries in the log about the same wait
_LINGER: Final = 30.0  # seconds to wait for peers to be told of the end where none of them is there


class _Side:
    """What both sides do: wait for peers, with bounds, and tell why the waiting ends."""

    def __init__(self, station: Station) -> None:
        self.station, self.peers = station, station.peers
        self.over = False
        self._waits: tuple[tuple[str, ...], float] = ((), 0.0)
        station.on_session, station.on_note = self.on_session, self.on_note

    def on_session(self, peer: Peer) -> None:
        """A peer has come, or come back as another process."""
        attempt = self.station.attempt
        if attempt is not None and attempt.running and attempt.incarnations.get(peer.name) in peer.retired:
            attempt.stop(PeerRestartedError(peer.name, "came back as a new process", code="peer-restarted"))
        self.station.lock.notify_all()

    def on_note(self, peer: Peer, content: Note) -> None:
        """A peer has said something about attempts."""
        if isinstance(content, Failed):
            peer.standing.failed = content

    def fail(self, reason: str) -> None:
        """Tell all peers that the run has failed here, outside of any attempt."""
        with self.station.lock:
            error = Failure("peer-failed", reason).at(self.station.endpoint.party)
            self.station.broadcast(told(b"", error))

    def _look(self, missing: Iterable[Peer], began: float) -> None:
        """Raise what ends the waiting; otherwise wait a little. A failure is passed on to those who wait as well."""
        station, missing = self.station, list(missing)
        if station.fatal is not None:
            raise copy(station.fatal)
        for peer in self.peers.values():
            if peer.standing.failed is not None:
                failed, peer.standing.failed = peer.standing.failed, None
                raise said(failed)
        for peer in missing:
            error = station.missing(peer, began)
            if error is None and time.monotonic() - began > station.endpoint.silence:
                error = PeerError(
                    peer.name,
                    f"is there, but has not come so far for {station.endpoint.silence:g} s",
                    code="peer-silent",
                    value=station.endpoint.silence,
                )
            if error is not None:
                station.broadcast(told(b"", error))
                raise error
        self._tell(missing, began)
        station.lock.wait(_LOOK)

    def _tell(self, missing: list[Peer], began: float) -> None:
        names, now = tuple(peer.name for peer in missing), time.monotonic()
        if names == self._waits[0] and now - self._waits[1] < _TELL:
            return
        self._waits = (names, now)
        fresh = 3 * self.station.endpoint.heartbeat
        away = {peer.name: self.station.reason(peer) for peer in missing if not peer.heard or now - peer.heard > fresh}
        self.station.log("waiting", {"for": list(names), "away": away, "seconds": round(now - began, 1)})


class Active(_Side):
    """The active party's side: begins attempts, and says when the run is over."""

    def __init__(self, station: Station) -> None:
        super().__init__(station)
        self._number = 0

    def on_session(self, peer: Peer) -> None:
        """Tell whoever comes after the end that it is the end."""
        super().on_session(peer)
        if self.over:
            self._finish(peer)

    def on_note(self, peer: Peer, content: Note) -> None:
        """See the module."""
        super().on_note(peer, content)
        standing, attempt = peer.standing, self.station.attempt
        if isinstance(content, Ready) and content.begun == standing.begun:
            standing.ready, standing.saved, standing.failed = True, content.saved, None
            if attempt is not None and attempt.running:
                attempt.stop(PeerRestartedError(peer.name, "asks for a new attempt", code="peer-restarted"))
        elif isinstance(content, Saved):
            standing.saved = True
        elif isinstance(content, Acknowledged):
            standing.acknowledged = True

    def gather(self) -> Attempt:
        """Wait for all, and begin the next attempt."""
        station, began = self.station, time.monotonic()
        with station.lock:
            self._end()
            while True:
                for peer in self.peers.values():
                    self._call(peer)
                missing = [peer for peer in self.peers.values() if not (peer.confirmed and peer.standing.ready)]
                if not missing:
                    return self._begin()
                self._look(missing, began)

    def linger(self) -> None:
        """Tell all that the run is finished, until they know, or it is too late."""
        station, began = self.station, time.monotonic()
        with station.lock:
            self._end()
            self.over = True
            for peer in self.peers.values():
                self._finish(peer)
            while missing := self.uninformed():
                now = time.monotonic()
                last = max((began, *(self.peers[name].heard for name in missing)))
                if now - began > station.endpoint.timeout or now - last > _LINGER or station.fatal:
                    station.log("unacknowledged", {"peers": list(missing)})
                    return
                station.lock.wait(_LOOK)

    def uninformed(self) -> tuple[str, ...]:
        """Return who has not said that it knows of the end, where it was told."""
        return tuple(peer.name for peer in self.peers.values() if self.over and not peer.standing.acknowledged)

    def conclude(self, mark: Callable[[], None]) -> None:
        """Wait until every share is on disk, mark the run, tell all."""
        station, began = self.station, time.monotonic()
        with station.lock:
            self._end()
            while missing := [peer for peer in self.peers.values() if not peer.standing.saved]:
                for peer in missing:
                    if peer.standing.ready:
                        raise PeerRestartedError(
                            peer.name, "came back without its share of the model", code="peer-restarted"
                        )
                self._look(missing, began)
        mark()
        station.log("finished", {})
        self.linger()

    def _call(self, peer: Peer) -> None:
        if peer.session is not None and not peer.standing.called:
            failure = self.station.attempt.failure if self.station.attempt else None
            party = failure.peer if failure else self.station.endpoint.party
            reason = failure.reason if failure else "came back as a new process"
            peer.session.push(note(Call(party, reason)))
            peer.standing.called = True

    def _begin(self) -> Attempt:
        station = self.station
        self._number += 1
        name = station.incarnation + self._number.to_bytes(4, "big")
        sessions = {peer.name: peer.session for peer in self.peers.values() if peer.session is not None}
        incarnations = {name: session.incarnation for name, session in sessions.items()}
        incarnations[station.endpoint.party] = station.incarnation
        for peer in self.peers.values():
            standing = peer.standing
            standing.begun += 1
            standing.ready = standing.saved = standing.called = False
            sessions[peer.name].push(note(Begin(name, incarnations)))
        station.log("attempt", {"number": self._number})
        return station.begin(name, incarnations)

    def _finish(self, peer: Peer) -> None:
        if peer.session is not None and not peer.standing.finished:
            peer.session.push(note(Finished()))
            peer.standing.finished = True

    def _end(self) -> None:
        if self.station.attempt is not None:
            self.station.attempt.closed = True


class Passive(_Side):
    """A passive party's side: waits to be told."""

    def __init__(self, station: Station) -> None:
        super().__init__(station)
        self.active = self.peers[station.endpoint.active]
        self._next: Begin | None = None
        self._called: Call | None = None
        self._known = False

    def on_session(self, peer: Peer) -> None:
        """What a process of the active party that is no more has begun, begins no more."""
        super().on_session(peer)
        if peer is self.active:
            self._next = self._called = None
            self._known = False

    def on_note(self, peer: Peer, content: Note) -> None:
        """See the module."""
        super().on_note(peer, content)
        if peer is not self.active:
            return
        attempt = self.station.attempt
        if isinstance(content, Call):
            self._called, self._next = content, None
            if attempt is not None and attempt.running:
                attempt.stop(PeerRestartedError(plain(content.party), plain(content.reason), code="peer-restarted"))
        elif isinstance(content, Begin):
            names, sizes = set(content.incarnations), {len(each) for each in content.incarnations.values()}
            if len(content.attempt) != ATTEMPT or names != set(self.station.endpoint.parties) or sizes != {INCARNATION}:
                raise CodecError("an attempt that is not of the parties of this run", code="peer-message")
            self._next, self._called = content, None
            peer.standing.begun += 1
        elif isinstance(content, Finished):
            self.over = True

    def gather(self, saved: bool) -> Attempt | None:
        """Wait for the next attempt; None: the run is finished."""
        station, began = self.station, time.monotonic()
        with station.lock:
            if station.attempt is not None:
                station.attempt.closed = True
            self.active.standing.told = ""
            while True:
                if self.over:
                    return None
                begin, self._next = self._next, None
                if begin is not None:
                    station.log("attempt", {"number": int.from_bytes(begin.attempt[-4:], "big")})
                    return station.begin(begin.attempt, begin.incarnations)
                self._say("ready", Ready(self.active.standing.begun, saved))
                self._look([self.active], began)

    def conclude(self, mark: Callable[[], None]) -> None:
        """Say that the share is on disk, wait for the word that all are, mark the run."""
        station, began = self.station, time.monotonic()
        with station.lock:
            if station.attempt is not None:
                station.attempt.closed = True
            self.active.standing.told = ""
            while not self.over:
                if self._called is not None:
                    raise PeerRestartedError(
                        plain(self._called.party), plain(self._called.reason), code="peer-restarted"
                    )
                self._say("saved", Saved())
                self._look([self.active], began)
            self._known = True  # not before it is marked, and not at all where that fails
        mark()
        station.log("finished", {})
        self._known = False
        self.acknowledge()

    def acknowledge(self) -> None:
        """Say that this party knows of the end."""
        with self.station.lock:
            if self.over and not self._known and self.active.session is not None:
                self._known = True
                self.active.session.push(note(Acknowledged()))

    def _say(self, what: str, content: Note) -> None:
        standing = self.active.standing
        if self.active.session is not None and standing.told != what:
            standing.told = what
            self.active.session.push(note(content))
