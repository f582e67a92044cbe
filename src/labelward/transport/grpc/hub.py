"""Hub: routes envelopes between the parties by their headers, without reading payloads.

A member is one connection of a party for one run; a party has at most one per run. A newer connection of the same
process replaces the older one. A newer process of the party closes the connection of the older process, which is told
so and not admitted again; but a process that was started in another folder is itself refused. Queues are bounded: a
member whose queue overflows is disconnected and loses nothing, since sessions send again what was not acknowledged
(:mod:`.session`). The hub stores nothing on disk.
"""

from __future__ import annotations

import math
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from labelward.errors import CodecError, quoted
from labelward.transport.grpc import envelope
from labelward.transport.grpc.endpoint import Log
from labelward.transport.grpc.rate import Rate
from labelward.transport.grpc.session import WINDOW
from labelward.transport.grpc.session_handshake import INCARNATION, VERSION

_RETIRED: Final = 10_000
EACH: Final = 8
"""Maximum number of connections of one party, each for another run; it leaves room for the other parties."""
_SEAT: Final = 30.0  # seconds

RECONNECTIONS: Final = (30, 1)
"""How often one party may connect: at once, and per second in the long run."""

_ELSEWHERE: Final = 2.0
"""Seconds for which a party is in another run before that is final: it may be ending an earlier one."""

LOST: Final = "its connection was lost"
_TOO_OFTEN: Final = "it connects too often"


class Outbox:
    """Queue with a non-blocking :meth:`put`; iteration blocks while it is empty, and ends after :meth:`close`.

    Args:
        limit: maximum size of the waiting envelopes, in bytes.
    """

    def __init__(self, limit: int) -> None:
        self._limit, self._size = limit, 0
        self._waiting: deque[bytes] = deque()
        self._changed = threading.Condition()
        self._closed = False

    def put(self, raw: bytes) -> bool:
        """Append an envelope; return False if the queue is full or closed."""
        with self._changed:
            if self._closed or self._size + len(raw) > self._limit:
                return False
            self._waiting.append(raw)
            self._size += len(raw)
            self._changed.notify()
            return True

    def close(self, *, drain: bool = False) -> None:
        """End the iteration; with ``drain`` after the waiting envelopes."""
        with self._changed:
            self._closed = True
            if not drain:
                self._waiting.clear()
                self._size = 0
            self._changed.notify_all()

    def __iter__(self) -> Iterator[bytes]:
        while True:
            with self._changed:
                while not self._waiting:
                    if self._closed:
                        return
                    self._changed.wait()
                raw = self._waiting.popleft()
                self._size -= len(raw)
            yield raw


class RefusalLog:
    """Log of refusals at a bounded rate: of equal ones the 1st, 2nd, 4th, …; of all 20 at once, then 2 in a second.

    Each entry has the ``count`` of its kind, and, where others did not fit, how many were ``omitted`` before it.
    """

    _KINDS = 1024

    def __init__(self, log: Log) -> None:
        self._log, self._lock = log, threading.Lock()
        self._counts: dict[tuple[str, ...], int] = {}
        self._rate, self._omitted = Rate(20, 2), 0

    def note(self, kind: tuple[str, ...], fields: Mapping[str, Any]) -> None:
        """Count a refusal, and log it unless too much was logged."""
        with self._lock:
            count = self._counts.pop(kind, 0) + 1
            self._counts[kind] = count  # now the newest
            while len(self._counts) > self._KINDS:
                del self._counts[next(iter(self._counts))]
            if count & (count - 1):
                return
            if not self._rate.take():
                self._omitted += 1
                return
            omitted, self._omitted = self._omitted, 0
        self._log("refused", {**fields, "count": count, **({"omitted": omitted} if omitted else {})})


class Registration(msgspec.Struct, frozen=True, array_like=True):
    """Registration of a party at the hub; ``place`` as in :class:`~.endpoint.Endpoint`."""

    version: int
    run: str
    party: str
    incarnation: bytes
    place: bytes = b""


def encode_registration(register: Registration) -> bytes:
    """Return a registration as bytes."""
    return msgspec.msgpack.encode(register)


class ConnectionRefused(Exception):  # noqa: N818
    """A connection is refused.

    Args:
        final: a further attempt would be refused as well.
        disagrees: the party is in another run, or speaks another version: people have to agree.
    """

    def __init__(self, reason: str, *, final: bool = False, disagrees: bool = False) -> None:
        super().__init__(reason)
        self.final, self.disagrees = final, disagrees


@dataclass(eq=False)
class Member:
    """One connection."""

    register: Registration
    address: str
    fingerprint: str
    outbox: Outbox
    heard: float = field(default_factory=time.monotonic)
    closed: list[ConnectionRefused] = field(default_factory=list)

    def close(self, reason: str, *, final: bool = False) -> None:
        """Close the connection; the first reason counts."""
        self.closed.append(ConnectionRefused(reason, final=final))
        self.outbox.close()


@dataclass
class Seat:
    """Which process may speak for a party: those of one place, until they were away for ``_SEAT`` seconds."""

    place: bytes
    address: str
    left: float = math.inf  # when its last process was disconnected


class Hub:
    """Routes envelopes between members.

    Args:
        run: the only run that is served; None: any run (relay).
        deliver: receives envelopes for the listening party; None: the listener is a relay.
        joined: called with the name of a party that has connected.
        left: called with the name of a party that was disconnected, and the reason.
        refused: called with the name of a party, by certificate, that was refused, and the reason.
        disturbed: called with the name of a party, by certificate, that sends what no party sends or connects too
            often, and the reason.
        disagreed: called with the name of a party that takes part in another run, or has another version, and the
            reason; returns whether this ends the run, as it does where the listener awaits its first attempt.
    """

    def __init__(
        self,
        name: str,
        parties: tuple[str, ...],
        log: Log,
        *,
        run: str | None,
        deliver: Callable[[bytes], None] | None = None,
        joined: Callable[[str], None] = lambda name: None,
        left: Callable[[str, str], None] = lambda name, reason: None,
        refused: Callable[[str, str], None] = lambda name, reason: None,
        disturbed: Callable[[str, str], None] = lambda name, reason: None,
        disagreed: Callable[[str, str], bool] = lambda name, reason: False,
    ) -> None:
        self.name, self.parties, self.run = name, parties, run
        self._log, self._deliver, self._joined, self._left = log, deliver, joined, left
        self._refused = refused
        self.disturbed, self._disagreed, self._refusals = disturbed, disagreed, RefusalLog(log)
        self._elsewhere: dict[str, float] = {}  # since when a party asks for another run
        self._connecting: dict[str, Rate] = defaultdict(lambda: Rate(*RECONNECTIONS))
        self._lock = threading.Lock()
        self._members: dict[tuple[str, str], Member] = {}
        self._retired: dict[tuple[str, str, bytes], None] = {}
        self._seats: dict[tuple[str, str], Seat] = {}
        self._limit = 2 * len(parties) * WINDOW

    def admit(self, content: bytes, party: str, fingerprint: str, address: str) -> Member:
        """Admit a connection whose certificate names ``party``.

        Raises:
            ConnectionRefused: it is not a party of this run, registers under another name, or has another version.
        """
        try:
            register = self._examine(content, party)
            member = Member(register, address, fingerprint, Outbox(self._limit))
            member.outbox.put(
                envelope.pack_envelope(envelope.WELCOME, self.name, party)
            )  # first, before envelopes of others
            self._place(member)
        except ConnectionRefused as error:
            self.complain(party, fingerprint, address, str(error))
            if str(error) == _TOO_OFTEN:
                self.disturbed(party, _TOO_OFTEN)
            if error.disagrees and self._lasts(party, error):
                error.final = self._disagreed(party, str(error)) or error.final
            raise
        self._elsewhere.pop(party, None)
        self._log("connected", {"peer": party, "fingerprint": fingerprint, "address": address})
        self._joined(party)
        return member

    def _lasts(self, party: str, error: ConnectionRefused) -> bool:
        """Whether a party disagrees for long enough."""
        now = time.monotonic()
        return error.final or now - self._elsewhere.setdefault(party, now) >= _ELSEWHERE

    def complain(self, party: str, fingerprint: str, address: str, reason: str) -> None:
        """Log a refusal, at a bounded rate; an empty party: it showed no valid certificate."""
        fields = {"peer": quoted(party), "fingerprint": fingerprint, "address": address, "reason": reason}
        self._refusals.note(
            (party, address.rpartition(":")[0], reason), {name: value for name, value in fields.items() if value}
        )
        self._refused(party, f"it was refused: {reason}")

    def leave(self, member: Member) -> None:
        """Remove a connection that has ended."""
        member.close(LOST)
        reason = str(member.closed[0])
        key = (member.register.run, member.register.party)
        with self._lock:
            present = self._members.get(key) is member
            if present:
                del self._members[key]
                self._seats[key].left = time.monotonic()
        if present:
            self._log("disconnected", {"peer": member.register.party, "address": member.address, "reason": reason})
            self._left(member.register.party, reason)

    def arrived(self, member: Member, raw: bytes) -> None:
        """Route an envelope of a member; :class:`CodecError` if the member may not send it.

        Envelopes of a closed connection, which are most likely of an older process, are dropped.
        """
        if member.closed:
            return
        member.heard = time.monotonic()
        content = envelope.unpack_envelope(raw)
        if content.source != member.register.party or content.target not in self.parties:
            source, target = quoted(content.source), quoted(content.target)
            raise CodecError(f"an envelope from {source!r} to {target!r}", code="identity", value=(source, target))
        if content.kind in (envelope.WELCOME, envelope.ABSENT):
            raise CodecError("an envelope that only a hub may send", code="peer-message", value=content.kind)
        if content.target == self.name and self._deliver is not None:
            self._deliver(raw)
        else:
            self._route(member.register.run, content.kind, content.source, content.target, raw)

    def post(self, raw: bytes) -> None:
        """Route an envelope of the listening party."""
        content = envelope.unpack_envelope(raw)
        assert self.run is not None
        self._route(self.run, content.kind, content.source, content.target, raw)

    def tick(self, silence: float) -> None:
        """Send a heartbeat to every member; close connections on which nothing arrived for ``silence`` seconds."""
        with self._lock:
            members = list(self._members.values())
            for key in [key for key, seat in self._seats.items() if time.monotonic() - seat.left > _SEAT]:
                del self._seats[key]
        for member in members:
            if time.monotonic() - member.heard > silence:
                member.close(f"nothing was heard from it for {silence:g} s")
            else:
                member.outbox.put(envelope.pack_envelope(envelope.WELCOME, self.name, member.register.party))

    def awaits(self) -> bool:
        """Return whether a party is not connected."""
        with self._lock:
            present = {party for _, party in self._members}
        return any(party != self.name and party not in present for party in self.parties)

    def member(self, party: str) -> Member | None:
        """Return the present connection of a party, for the only run."""
        with self._lock:
            return self._members.get((self.run or "", party))

    def close(self) -> None:
        """Close all connections, after the waiting envelopes were sent."""
        with self._lock:
            members = list(self._members.values())
            self._members.clear()  # their end is not reported
        for member in members:
            member.closed.append(ConnectionRefused("the listener has ended"))
            member.outbox.close(drain=True)

    def _examine(self, content: bytes, party: str) -> Registration:
        try:
            register = msgspec.msgpack.decode(content, type=Registration)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise ConnectionRefused("it says nothing that this version understands") from error
        if register.version != VERSION:
            versions = f"version {register.version} of the transport, {self.name!r} {VERSION}"
            raise ConnectionRefused(f"it speaks {versions}: both need the same labelward", final=True, disagrees=True)
        if register.party != party:
            raise ConnectionRefused(f"its certificate names {party!r}, and it says to be {quoted(register.party)!r}")
        if party not in self.parties or party == self.name:
            guests = ", ".join(repr(name) for name in self.parties if name != self.name)
            raise ConnectionRefused(f"{party!r} is no party that may connect; those are {guests}")
        if self.run is not None and register.run != self.run:
            reason = f"it takes part in another run ({quoted(register.run)}; not {self.run})"
            raise ConnectionRefused(reason, disagrees=True)
        if len(register.incarnation) != INCARNATION:
            raise ConnectionRefused("it does not say which process it is")
        return register

    def _place(self, member: Member) -> None:
        run, party, own = member.register.run, member.register.party, member.register.incarnation
        with self._lock:
            if not self._connecting[party].take():
                raise ConnectionRefused(_TOO_OFTEN)
            if (run, party, own) in self._retired:
                raise ConnectionRefused(f"a newer process of {party!r} has taken this one's place", final=True)
            older, seat = self._members.get((run, party)), self._seats.get((run, party))
            if seat is not None and seat.place != member.register.place and time.monotonic() - seat.left <= _SEAT:
                reason = f"a process of {party!r} that was started in another folder, at {seat.address}, is in this run"
                raise ConnectionRefused(reason, final=True)
            if older is None and sum(name == party for _, name in self._members) >= EACH:
                raise ConnectionRefused(f"{party!r} has {EACH} connections already")
            self._members[run, party], self._seats[run, party] = member, Seat(member.register.place, member.address)
            if older is not None and older.register.incarnation != own:
                self._retired[run, party, older.register.incarnation] = None
                while len(self._retired) > _RETIRED:
                    del self._retired[next(iter(self._retired))]
        if older is not None:
            final = older.register.incarnation != own
            older.close(f"a newer process of {party!r} has taken this one's place" if final else "", final=final)

    def _route(self, run: str, kind: int, source: str, target: str, raw: bytes) -> None:
        with self._lock:
            member = self._members.get((run, target))
            elsewhere = member is None and any(party == target for _, party in self._members)
        if member is None:
            if kind == envelope.HELLO:
                reason = "it is connected for another run" if elsewhere else "it is not connected to the listener"
                self._answer(run, source, target, reason)
        elif not member.outbox.put(raw) and not member.closed:
            member.close(f"it reads too slowly ({self._limit} bytes are waiting)")

    def _answer(self, run: str, source: str, target: str, reason: str) -> None:
        with self._lock:
            member = self._members.get((run, source))
        if member is not None:  # the source of the answer is the absent party
            member.outbox.put(envelope.pack_envelope(envelope.ABSENT, target, source, reason.encode()))
