"""Roles of a protocol: the policy points of each, and who may send what to whom.

A protocol family declares its roles as data, and assigns one to every party of a run. A message that the sender's role
may not send is refused where it is sent, and again where it arrives. So what a party may ever learn can be read off
the declaration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from labelward.messages.base import Message, wire_name
from labelward.messages.handshake import (
    BlindedRowIds,
    ExchangeDigest,
    Hello,
    PairHistories,
    PairStart,
    RowIdDigests,
    RowSplit,
    TwiceBlindedRowIds,
)

ACTIVE, PASSIVE = "active", "passive"
"""Roles of the protocols with one label holder."""

_ROWS = (RowSplit, RowIdDigests, BlindedRowIds, TwiceBlindedRowIds)
_GREETING = frozenset(wire_name(kind) for kind in (Hello, *_ROWS, PairHistories, ExchangeDigest))
_PAIRING = frozenset(wire_name(kind) for kind in (PairStart, ExchangeDigest))
GREETING = _GREETING | _PAIRING
"""Messages that belong to no exchange."""


@dataclass(frozen=True, kw_only=True)
class Role:
    """What a party of this role may decide and send.

    Attributes:
        points: the policy points that its program visits.
        sends: by role of the receiver, the messages that it may send besides the handshake's.
        attacks_as: as which parties of the protocols with one label holder it attacks: ``"passive"`` where others hold
            labels that it lacks, ``"active"`` where it opens sums over the columns of others.
    """

    attacks_as: tuple[str, ...]
    points: frozenset[str] = frozenset()
    sends: Mapping[str, tuple[type[Message], ...]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Topology:
    """The parties of one run and their roles.

    Attributes:
        assigned: the role of each party, in party order. The first party coordinates: it greets the others, announces
            the row masks, starts attempts and asks for predictions.
        roles: what the parties of each role may do; empty: nothing is refused.
    """

    assigned: Mapping[str, str]
    roles: Mapping[str, Role] = field(default_factory=dict)

    @classmethod
    def star(cls, active: str, *passive: str, roles: Mapping[str, Role] | None = None) -> Topology:
        """Return the topology of one active party and its passive parties."""
        return cls(assigned={active: ACTIVE, **dict.fromkeys(passive, PASSIVE)}, roles=roles or {})

    @property
    def coordinator(self) -> str:
        """The first party."""
        return next(iter(self.assigned))

    def peers(self, party: str) -> tuple[str, ...]:
        """Return all other parties, in party order."""
        return tuple(name for name in self.assigned if name != party)

    def parties(self, role: str) -> tuple[str, ...]:
        """Return the parties of a role, in party order."""
        return tuple(party for party, own in self.assigned.items() if own == role)

    def messages(self, sender: str, receiver: str) -> frozenset[str] | None:
        """Return the names of the messages that one party may send another; None: any."""
        if not self.roles:
            return None
        greeting = _GREETING if self.coordinator in (sender, receiver) else frozenset[str]()
        if self._speak(sender, receiver):
            greeting = _PAIRING
        return greeting | self._kinds(sender, receiver)

    def partners(self, party: str) -> tuple[str, ...]:
        """Return the parties that a party exchanges messages with although neither of them coordinates."""
        return tuple(peer for peer in self.peers(party) if self._speak(party, peer))

    def _speak(self, one: str, other: str) -> bool:
        return self.coordinator not in (one, other) and bool(self._kinds(one, other) | self._kinds(other, one))

    def _kinds(self, sender: str, receiver: str) -> frozenset[str]:
        roles = self.roles
        kinds = roles[self.assigned[sender]].sends.get(self.assigned[receiver], ()) if roles else ()
        return frozenset(map(wire_name, kinds))
