"""Session: records from one process to another, sealed, in order and exactly once, over any number of connections.

State of one side; the other has the same:

- sending: the ``next`` number; sealed records without acknowledgment, at most ``WINDOW`` bytes and ``RECORDS``; the
  ``generation``, which counts how often all of these were sent again;
- receiving: the ``expected`` number; the last generation of the peer that was ``seen``.

Rules:

1. A record is sealed once (AES-256-GCM; nonce: its number; associated data: envelope header, tag and number), kept
   until it is acknowledged, and sent again as the same bytes.
2. A smaller number than expected is a duplicate or replay, a larger one shows a gap, a broken seal shows a change. All
   three are refused; the last two request a resend.
3. A control record carries: acknowledged number; sent number; own generation; seen generation of the peer; flags
   (answer at once, send again, good-bye). Its counter increases; a smaller one is refused as a replay.
4. Connections keep order, so *sent* above *expected* means loss: heartbeats alone detect a lost tail.
5. A resend request is honored only if the requester has seen the present generation; each loss causes one resend,
   however often it is requested. It is requested once in a generation, and again after a while; where a resend has
   brought nothing, after a while only, so that nobody asks as fast as the line allows.
6. Acknowledgments stop while more than ``BACKLOG`` bytes wait for the program; then the window of the peer fills up.
   While the program itself waits for room to send, they go on until ``limit`` bytes: else two parties that send much
   to each other would wait for ever.

What an honest peer does rarely is charged: resends, in windows; resends in vain, since nothing was acknowledged after
the one before; control records that neither acknowledge something nor were asked for; records that are refused.

All methods require the lock of :class:`~.node.Node`.
"""

from __future__ import annotations

import struct
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Final

from labelward.transport.grpc.envelope import CONTROL, DATA, envelope_header
from labelward.transport.grpc.session_handshake import SessionKeys

WINDOW: Final = 12 * 1024 * 1024
"""Bytes that may be under way to one peer: 1 s of 100 Mbit/s, 100 ms of 1 Gbit/s."""
RECORDS: Final = 4096
"""Records that may be under way to one peer; a loss repeats no more."""
BACKLOG: Final = 8 * 1024 * 1024
"""Bytes of complete messages that may wait for the program before acknowledgments stop."""
HELD: Final = 4 * 1024 * 1024
"""Bytes that a peer may send for attempts that have not begun here."""

_ACK_BYTES, _ACK_RECORDS = 1024 * 1024, 64
_AGAIN_AFTER = 0.1  # seconds between two requests for the same
_CONTROL = struct.Struct(">BQQQQ")
_ASK, _AGAIN, _BYE = 1, 2, 4
_NUMBER = 8


class Session:
    """One side of a session.

    Args:
        post: hands an envelope to the link, or drops it where there is none.
        limit: bytes of complete messages that may wait here while the program waits for room to send.
        charge: called with one of the rates of :class:`~.peer.PeerRates` and how much of it the peer took.

    Attributes:
        heard: when the last sealed record arrived (monotonic seconds); 0: none yet.
        gone: the peer has said good-bye.
        refused: how many records were refused, by reason.
        backlog: bytes of messages that wait for the program, and what keeping them costs.
    """

    def __init__(
        self,
        me: str,
        peer: str,
        incarnation: bytes,
        keys: SessionKeys,
        post: Callable[[bytes], None],
        *,
        limit: int,
        charge: Callable[[str, float], None],
    ) -> None:
        self.incarnation, self.heard, self.gone = incarnation, 0.0, False
        self.refused: Counter[str] = Counter()
        self.backlog, self._most, self._limit, self._largest = 0, limit, min(BACKLOG, limit), 0
        self._keys, self._post, self._charge = keys, post, charge
        self._out = {kind: envelope_header(kind, me, peer) + keys.tag for kind in (DATA, CONTROL)}
        self._in = {kind: envelope_header(kind, peer, me) + keys.tag for kind in (DATA, CONTROL)}
        self._next, self._acked, self._generation = 0, 0, 0
        self._unacked: deque[bytes] = deque()
        self._under_way = 0
        self._expected, self._seen, self._told = 0, 0, 0
        self._since, self._sent = [0, 0], 0
        self._asked = (-1, -1, 0.0)  # generation seen, record expected and time of the last request for a resend
        self._resent = -1  # how much was acknowledged when all was last sent again
        self._count_out, self._count_in, self.spoke = 0, -1, 0.0
        self._due = 0  # answers that this side has asked for
        self._excused = -1  # the last record that it asked for again

    @property
    def flooded(self) -> bool:
        """Whether the peer sent on without acknowledgments; a window of short messages takes thrice its size here."""
        return self.backlog > self._limit + 3 * WINDOW + self._largest

    # -- sending ---------------------------------------------------------------------------------------------------

    @property
    def room(self) -> bool:
        """Whether another record may be sent now."""
        return self._under_way < WINDOW and len(self._unacked) < RECORDS

    @property
    def acknowledged(self) -> int:
        """How many records the peer has acknowledged."""
        return self._acked

    @property
    def settled(self) -> bool:
        """Whether the peer has acknowledged everything."""
        return not self._unacked

    def push(self, record: bytes) -> None:
        """Seal, keep and send; the caller has looked whether there is room."""
        number = self._next.to_bytes(_NUMBER, "big")
        head = self._out[DATA] + number
        raw = head + self._keys.data_out.encrypt(bytes(4) + number, record, head)
        self._next += 1
        self._unacked.append(raw)
        self._under_way += len(raw)
        self._post(raw)

    def control(self, *, ask: bool = False, again: bool = False, bye: bool = False) -> None:
        """Send a control record, which is also a heartbeat."""
        if self.backlog <= self._limit:
            self._told = self._expected
        self._since = [0, 0]
        flags = (ask and _ASK) | (again and _AGAIN) | (bye and _BYE)
        self._due += ask
        if again:  # one answer for each record that was waited for, since a peer can feign losses
            self._due += self._expected > self._excused
            self._excused = self._expected
        content = _CONTROL.pack(flags, self._told, self._next, self._generation, self._seen)
        number = self._count_out.to_bytes(_NUMBER, "big")
        head = self._out[CONTROL] + number
        self._count_out += 1
        self.spoke = time.monotonic()
        self._post(head + self._keys.control_out.encrypt(bytes(4) + number, content, head))

    def tick(self, now: float, heartbeat: float) -> None:
        """Send a heartbeat if it is due; request what is missing, if that was not just done."""
        if self._sent > self._expected:
            self._ask_again()
        elif now - self.spoke >= heartbeat:
            self.control()

    # -- receiving -------------------------------------------------------------------------------------------------

    def keep(self, size: int) -> None:
        """A message of so many bytes waits for the program."""
        self.backlog += size
        self._largest = max(self._largest, size)

    def release(self, size: int) -> None:
        """The program has taken a message of so many bytes."""
        held = self.backlog > self._limit
        self.backlog -= size
        self._limit = max(min(BACKLOG, self._most), min(self._limit, self.backlog))
        if held and self.backlog <= self._limit:
            self.control()

    def relax(self) -> None:
        """The program waits for room to send: acknowledge more."""
        held = self.backlog > self._limit
        self._limit = self._most
        if held and self.backlog <= self._limit:
            self.control()

    def open(self, payload: memoryview) -> bytes | None:
        """Return the next record; None where the payload was refused."""
        number = self._number(payload)
        if number is None:
            return None
        if number < self._expected:
            self._refuse("repeated")
            return None
        record = None
        if number > self._expected:
            self._refuse("out of order")
        else:
            record = self._unseal(DATA, payload, number)
        if record is None:
            self._ask_again()
            return None
        self._expected += 1
        self.heard = time.monotonic()
        self._since[0] += len(payload)
        self._since[1] += 1
        return record

    def acknowledge(self) -> None:
        """Acknowledge where enough has arrived; called after a record was dealt with."""
        if self.backlog <= self._limit and (self._since[0] >= _ACK_BYTES or self._since[1] >= _ACK_RECORDS):
            self.control()

    def take_control(self, payload: memoryview) -> None:
        """Deal with a control record, or refuse it."""
        number = self._number(payload)
        if number is None:
            return
        if number <= self._count_in:
            self._refuse("repeated")
            return
        content = self._unseal(CONTROL, payload, number)
        if content is None or len(content) != _CONTROL.size:
            return
        flags, acknowledged, sent, generation, seen = _CONTROL.unpack(content)
        self._count_in, self.heard = number, time.monotonic()
        self.gone |= bool(flags & _BYE)  # for good: it still answers until its connection ends
        if not self._forget(acknowledged):
            if self._due:
                self._due -= 1
            else:
                self._charge("controls", 1.0)
        self._seen = max(self._seen, generation)
        if flags & _AGAIN and seen == self._generation and self._unacked:
            self._send_again()
        self._sent = sent
        asked_again = sent > self._expected and self._ask_again()
        if flags & _ASK and not asked_again:
            self.control()

    def _number(self, payload: memoryview) -> int | None:
        tag = len(self._keys.tag)
        if len(payload) < tag + _NUMBER or payload[:tag] != self._keys.tag:
            self._refuse("foreign")  # of an earlier process, most likely
            return None
        return int.from_bytes(payload[tag : tag + _NUMBER], "big")

    def _unseal(self, kind: int, payload: memoryview, number: int) -> bytes | None:
        from cryptography.exceptions import InvalidTag

        cipher = self._keys.data_in if kind == DATA else self._keys.control_in
        nonce = number.to_bytes(_NUMBER, "big")
        sealed = payload[len(self._keys.tag) + _NUMBER :]
        try:
            return cipher.decrypt(bytes(4) + nonce, sealed, self._in[kind] + nonce)
        except (InvalidTag, ValueError):
            self._refuse("changed")
            return None

    def _refuse(self, reason: str) -> None:
        self.refused[reason] += 1
        self._charge("broken" if reason == "changed" else "useless", 1.0)

    def _forget(self, acknowledged: int) -> bool:
        """Drop what is acknowledged; return whether something is that was not before."""
        if not self._acked < acknowledged <= self._next:
            return False
        for _ in range(acknowledged - self._acked):
            self._under_way -= len(self._unacked.popleft())
        self._acked = acknowledged
        return True

    def _send_again(self) -> None:
        self._charge("resends", max(self._under_way / WINDOW, len(self._unacked) / RECORDS))
        if self._resent == self._acked:
            self._charge("vain", 1.0)
        self._resent = self._acked
        self._generation += 1
        for raw in self._unacked:
            self._post(raw)
        self.control()

    def _ask_again(self) -> bool:
        """Request a resend, unless that was just done; return whether."""
        now = time.monotonic()
        seen, expected, asked = self._asked
        if now - asked < _AGAIN_AFTER and (seen == self._seen or expected == self._expected):
            return False
        self._asked = (self._seen, self._expected, now)
        self.control(again=True)
        return True
