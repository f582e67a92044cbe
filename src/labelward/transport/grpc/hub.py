"""The hub: takes envelopes from members and puts them into the queues of other members. It reads headers only.

A member is one connection of a party for one run. Of each party and run there is one at a time: a newer connection of
the same process takes the place of the older; a newer process of the party closes the older one for good, which is
told, and is not let in again. A queue holds so much; whoever lets it overflow is disconnected, and loses nothing,
since the parties send again what was not acknowledged (:mod:`.session`). The hub keeps nothing on disk.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import msgspec

from labelward.errors import CodecError
from labelward.transport.grpc import envelope
from labelward.transport.grpc.endpoint import Log
from labelward.transport.grpc.outbox import Outbox
from labelward.transport.grpc.session import WINDOW
from labelward.transport.grpc.session_handshake import INCARNATION, VERSION

__all__ = ["EACH", "Hub", "Member", "Refused", "Register", "encode_register"]

_RETIRED: Final = 10_000
EACH: Final = 8
"""Connections that one party may have, each for another run, so that none is left without by the others."""


class Register(msgspec.Struct, frozen=True, array_like=True):
    """What a party says when it connects."""

    version: int
    run: str
    party: str
    incarnation: bytes


def encode_register(register: Register) -> bytes:
    """Return it as bytes."""
    return msgspec.msgpack.encode(register)


class Refused(Exception):  # noqa: N818
    """A connection is refused; ``final``: it would be refused again."""

    def __init__(self, reason: str, *, final: bool = False) -> None:
        super().__init__(reason)
        self.final = final


@dataclass(eq=False)
class Member:
    """One connection."""

    register: Register
    address: str
    fingerprint: str
    outbox: Outbox
    heard: float = field(default_factory=time.monotonic)
    closed: list[Refused] = field(default_factory=list)

    def close(self, reason: str, *, final: bool = False) -> None:
        """End it; the first reason counts."""
        self.closed.append(Refused(reason, final=final))
        self.outbox.close()


class Hub:
    """Routes envelopes between members.

    Args:
        name: the listener's own name: a party, or a relay's.
        parties: who may connect.
        log: called with (event, fields).
        run: the only run that is served; None: any (a relay's).
        deliver: takes envelopes for the listening party itself; None: there is none.
        joined: called with the name of a party that has connected.
        left: called with the name of a party that was disconnected or refused, and why.
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
    ) -> None:
        self.name, self.parties, self.run = name, parties, run
        self._log, self._deliver, self._joined, self._left = log, deliver, joined, left
        self._lock = threading.Lock()
        self._members: dict[tuple[str, str], Member] = {}
        self._retired: dict[tuple[str, str, bytes], None] = {}
        self._limit = 2 * len(parties) * WINDOW

    def admit(self, content: bytes, party: str, fingerprint: str, address: str) -> Member:
        """Let a connection in whose certificate names ``party``.

        Raises:
            Refused: it is not a party of this run, says to be another, or speaks another version.
        """
        try:
            register = self._examine(content, party)
            member = Member(register, address, fingerprint, Outbox(self._limit))
            member.outbox.put(envelope.pack(envelope.WELCOME, self.name, party))  # before what others may send at once
            self._place(member)
        except Refused as error:
            self.complain(party, fingerprint, address, str(error))
            raise
        self._log("connected", {"peer": party, "fingerprint": fingerprint, "address": address})
        self._joined(party)
        return member

    def complain(self, party: str, fingerprint: str, address: str, reason: str) -> None:
        """Log a refusal."""
        fields = {"peer": envelope.plain(party), "fingerprint": fingerprint, "address": address, "reason": reason}
        self._log("refused", fields)
        self._left(party, f"it was refused: {reason}")

    def leave(self, member: Member) -> None:
        """A connection has ended."""
        reason = str(member.closed[0]) if member.closed else "its connection was lost"
        member.close(reason)
        key = (member.register.run, member.register.party)
        with self._lock:
            present = self._members.get(key) is member
            if present:
                del self._members[key]
        if present:
            self._log("disconnected", {"peer": member.register.party, "address": member.address, "reason": reason})
            self._left(member.register.party, reason)

    def arrived(self, member: Member, raw: bytes) -> None:
        """Route what a member has sent; :class:`CodecError` where it may not send that.

        What comes after its end (what an older process had said, most likely) goes nowhere.
        """
        if member.closed:
            return
        member.heard = time.monotonic()
        content = envelope.unpack(raw)
        if content.source != member.register.party or content.target not in self.parties:
            source, target = envelope.plain(content.source), envelope.plain(content.target)
            raise CodecError(f"an envelope from {source!r} to {target!r}", code="identity", value=(source, target))
        if content.kind in (envelope.WELCOME, envelope.ABSENT):
            raise CodecError("an envelope that only a hub may send", code="peer-message", value=content.kind)
        if content.target == self.name and self._deliver is not None:
            self._deliver(raw)
        else:
            self._route(member.register.run, content.kind, content.source, content.target, raw)

    def post(self, raw: bytes) -> None:
        """Route what the listening party itself sends."""
        content = envelope.unpack(raw)
        assert self.run is not None
        self._route(self.run, content.kind, content.source, content.target, raw)

    def tick(self, silence: float) -> None:
        """Give every member a sign of life, and end the connections of those that gave none for so many seconds."""
        with self._lock:
            members = list(self._members.values())
        for member in members:
            if time.monotonic() - member.heard > silence:
                member.close(f"nothing was heard from it for {silence:g} s")
            else:
                member.outbox.put(envelope.pack(envelope.WELCOME, self.name, member.register.party))

    def member(self, party: str) -> Member | None:
        """Return the present connection of a party, for the only run."""
        with self._lock:
            return self._members.get((self.run or "", party))

    def close(self) -> None:
        """End all connections, after what waits for them."""
        with self._lock:
            members = list(self._members.values())
            self._members.clear()  # nobody needs to hear that they leave
        for member in members:
            member.closed.append(Refused("the listener has ended"))
            member.outbox.close(drain=True)

    # -- helpers ---------------------------------------------------------------------------------------------------

    def _examine(self, content: bytes, party: str) -> Register:
        try:
            register = msgspec.msgpack.decode(content, type=Register)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise Refused("it says nothing that this version understands") from error
        if register.version != VERSION:
            versions = f"version {register.version} of the transport, {self.name!r} {VERSION}"
            raise Refused(f"it speaks {versions}: both need the same labelward", final=True)
        if register.party != party:
            raise Refused(f"its certificate names {party!r}, and it says to be {envelope.plain(register.party)!r}")
        if party not in self.parties or party == self.name:
            raise Refused(f"{party!r} is no party that may connect; those are {', '.join(self._guests())}")
        if self.run is not None and register.run != self.run:
            raise Refused(f"it takes part in another run ({envelope.plain(register.run)}; not {self.run})")
        if len(register.incarnation) != INCARNATION:
            raise Refused("it does not say which process it is")
        return register

    def _guests(self) -> list[str]:
        return [repr(name) for name in self.parties if name != self.name]

    def _place(self, member: Member) -> None:
        run, party, own = member.register.run, member.register.party, member.register.incarnation
        with self._lock:
            if (run, party, own) in self._retired:
                raise Refused(f"a newer process of {party!r} has taken this one's place", final=True)
            older = self._members.get((run, party))
            if older is None and sum(name == party for _, name in self._members) >= EACH:
                raise Refused(f"{party!r} has {EACH} connections already")
            self._members[run, party] = member
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
            member.close(f"it takes too slowly what is sent to it ({self._limit} bytes wait)")

    def _answer(self, run: str, source: str, target: str, reason: str) -> None:
        with self._lock:
            member = self._members.get((run, source))
        if member is not None:  # source of the answer is whom it is about
            member.outbox.put(envelope.pack(envelope.ABSENT, target, source, reason.encode()))
