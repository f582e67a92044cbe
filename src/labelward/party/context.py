"""The context of a party's program: send, receive, observe, report progress. Everything is recorded."""

from __future__ import annotations

import contextlib
import hashlib
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, overload

import msgspec

from labelward.errors import (
    CodecError,
    EncryptionError,
    HandshakeError,
    PeerError,
    ProtocolError,
    wrong_message,
)
from labelward.messages.base import Message, Observation, ciphertexts, wire_name
from labelward.messages.codec import decode, decoded_size, encode, encode_fields, redacted
from labelward.party.checkpoint import Checkpoints
from labelward.party.exchange import Exchange, ExchangeLog
from labelward.party.noise_record import with_earlier_cost
from labelward.party.public_reason import reason_during_run
from labelward.party.roles import GREETING, Topology
from labelward.party.transcript import Transcript
from labelward.policy.chain import PolicyChain
from labelward.rng import PrivateSeed, SecureRandom
from labelward.transport.base import Failure, Transport

M = TypeVar("M", bound=Message)
Step = tuple[int, ...]

UNAWAITED = 12 * 1024 * 1024
"""Bytes of memory that messages of one peer may take before the program awaits them.

Where passive parties talk to each other, holding one back could hold up the one that is awaited. There, two messages
of agreed size from each party may wait as well; without an agreed size four times as many bytes, and the largest.
"""
HEAD = 1024
"""Bytes of a message beside what grows, where a protocol says no more of them."""
LEAST = 3 * 1024 * 1024
"""Bytes of a message that a party takes, however little was agreed. In memory it takes about six times as much."""
_MESSAGE = 1024  # bytes of a waiting message beside its content
_PATIENCE = 60.0  # seconds between two checks of the clock

Progress = Callable[[str, int, int], None]
"""Called with (what, done, total); a total of 0 means unknown."""


def no_progress(what: str, done: int, total: int) -> None:
    """Discard progress reports."""


@dataclass
class Meter:
    """Resources used by one party: seconds by phase, and messages, bytes and ciphertexts sent by type."""

    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    messages: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    bytes: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    ciphertexts: dict[str, int] = field(default_factory=lambda: defaultdict(int))


class Context:
    """Everything a party's program may do: send, receive, record.

    Args:
        transport: the party's endpoint.
        topology: the roles of all parties; what a role may not send is neither sent nor accepted.
        transcript: record of everything sent, received and observed.
        seed: seed of the shared learning randomness; the same at all parties.
        protection: source of randomness for encryption and defenses.
        private: seed of learning draws that other parties must not be able to reproduce; None: a new one.
        policies: the defenses of this party's outgoing values.
        progress: called with (what, done, total).
        timeout: seconds to wait for one message before the run ends with an error that names it; None: without limit,
            if the transport itself reports that a peer has ended.
        digests: whether the transcript stores large received arrays, such as the embeddings of each batch of a split
            network, as size and digest only. The transcript stays small and cannot be attacked.
        checkpoints: storage of the party's state; None: not stored.
        observes_epochs: whether a program observes, after each epoch, what attacks on that state need.

    Attributes:
        active: the party that coordinates; with one label holder, the active party.
        role: of this party.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        topology: Topology,
        transcript: Transcript,
        seed: int,
        protection: SecureRandom | None = None,
        private: PrivateSeed | None = None,
        policies: PolicyChain | None = None,
        progress: Progress = no_progress,
        timeout: float | None = None,
        digests: bool = False,
        checkpoints: Checkpoints | None = None,
        observes_epochs: bool = False,
    ) -> None:
        self.party, self.topology = transport.party, topology
        self.active, self.role = topology.coordinator, topology.assigned[transport.party]
        self.peers = topology.peers(self.party)
        self._sends = {peer: topology.messages(self.party, peer) for peer in self.peers}
        self._accepts = {peer: topology.messages(peer, self.party) for peer in self.peers}
        self.seed = seed
        self.protection = protection or SecureRandom()
        self.private = private or PrivateSeed.drawn()
        self.policies = policies or PolicyChain()
        self.progress, self.observes_epochs = progress, observes_epochs
        self.meter = Meter()
        self.transcript = transcript
        self.checkpoints = checkpoints or Checkpoints(None)
        self._exchanges: dict[str, ExchangeLog] = {}
        self._early: dict[str, list[tuple[bytes, bool]]] = {}  # frames of peers that ended their greeting first
        self._linked: dict[str, tuple[int, Exchange]] = {}
        self._transport, self._timeout, self._digests = transport, timeout, digests
        self._waiting: dict[tuple[str, str, Step], tuple[Message, int]] = {}
        self._unawaited: dict[str, int] = dict.fromkeys(self.peers, 0)
        passive = [party for party in topology.assigned if party != self.active]
        self._star = not any(topology.messages(one, other) for one in passive for other in passive if one != other)
        self._largest = 0
        self._agreed: dict[str, int | None] = {}
        self._left: set[str] = set()
        self._once: dict[str, Callable[[], None]] = {}
        self._failed = False

    @property
    def exchanges(self) -> dict[str, Exchange]:
        """With each peer that is sent to, since the training began (:meth:`link`)."""
        return {peer: log.whole for peer, log in self._exchanges.items()}

    def send(self, peer: str, message: Message, step: Step) -> None:
        """Encode, record, count and send.

        Raises:
            CodecError: a field must not be sent.
            ProtocolError: this party's role may not send the message to the peer's.
            PeerError: the peer has disconnected; names message and step.
        """
        name = wire_name(type(message))
        allowed = self._sends.get(peer)
        if allowed is not None and name not in allowed:
            raise ProtocolError(f"{name} is no message of {self.party!r} to {peer!r}", code="not-sendable", value=name)
        frame = encode(message, step)
        digest = hashlib.sha256(frame).digest()
        self.transcript.append("sent", peer, name, step, len(frame).to_bytes(8, "little"), digest)
        if name not in GREETING and not message.evidence:
            self._extend(peer, digest, sent=True, ends=message.ends)
        self.meter.messages[name] += 1
        self.meter.bytes[name] += len(frame)
        self.meter.ciphertexts[name] += ciphertexts(message)
        try:
            self._transport.send(peer, frame)
        except PeerError as error:
            raise _with_message(error, name, step) from error

    @overload
    def recv(self, peer: str, kind: type[M], step: Step) -> M: ...
    @overload
    def recv(self, peer: str, kind: tuple[type[Message], ...], step: Step) -> Message: ...
    def recv(self, peer: str, kind: type[Message] | tuple[type[Message], ...], step: Step) -> Message:
        """Wait for the message of this peer, type (or one of several types) and step.

        Other messages that arrive meanwhile are buffered until they are requested, so timing cannot change a run.

        Raises:
            PeerError: the peer failed, left, sent an invalid message, or sent nothing within the time limit.
        """
        names = [wire_name(each) for each in (kind if isinstance(kind, tuple) else (kind,))]
        until = math.inf if self._timeout is None else time.monotonic() + self._timeout
        with self.phase("wait"):
            while True:
                for name in names:
                    waiting = self._waiting.pop((peer, name, step), None)
                    if waiting is not None:
                        self._count_unawaited(peer, -waiting[1])
                        return waiting[0]
                self._require_awaited(peer, " or ".join(names), step)
                self._transport.hold(peer, False)
                self._receive_one(peer, names, step, until)

    def expect(self, peer: str, size: int | None) -> None:
        """Refuse messages of a peer that are longer than what was agreed allows, before they are held.

        Args:
            size: the most bytes that an honest message has from now on; ``LEAST`` are always taken. None: no more than
                ``message_limit`` of the network, until said otherwise.
        """
        self._agreed[peer] = size
        self._transport.limit(peer, None if size is None else max(size, LEAST))

    def observe(self, observation: Observation) -> None:
        """Record a value that this party computed from its own secrets."""
        name = wire_name(type(observation))
        self.transcript.append("observed", self.party, name, (), encode_fields(observation))

    def applied(self, account: dict[str, Any]) -> None:
        """Record the account of one of this party's policies."""
        charged = with_earlier_cost(account, self.checkpoints)
        self.transcript.append("applied", self.party, "Policy", (), msgspec.msgpack.encode(charged))

    def save(
        self,
        number: int,
        state: msgspec.Struct,
        *,
        peers: Mapping[str, int] | None = None,
        blocks: Mapping[str, bytes] | None = None,
        keep: int | None = None,
    ) -> None:
        """Write a checkpoint (:meth:`Checkpoints.save`) after flushing the transcript to disk.

        At the active party it names the exchange with each peer as of that peer's number: a peer without a new
        checkpoint has not moved, even if it was greeted and given a key again.
        """
        if not self.checkpoints.kept:
            return
        with self.phase("checkpoint"):
            for peer, log in self._exchanges.items():
                reached = number if peers is None else peers.get(peer, 0)
                if reached != self._linked[peer][0]:
                    self._linked[peer] = (reached, log.ended)
            self.transcript.flush()
            self.checkpoints.save(
                number,
                state,
                peers=peers,
                blocks=blocks,
                keep=keep,
                exchanges={peer: exchange for peer, (_, exchange) in self._linked.items()},
                position=self.transcript.position,
            )

    def link(self, peer: str, exchange: Exchange, number: int) -> None:
        """Begin or resume the exchange with a peer; ``number``: of the peer's checkpoint at this point."""
        self._exchanges[peer], self._linked[peer] = ExchangeLog(exchange), (number, exchange)
        for frame, ends in self._early.pop(peer, ()):
            self._extend(peer, frame, sent=False, ends=ends)
        self.transcript.append("linked", peer, self._first(peer), (number,), msgspec.msgpack.encode(exchange))

    def when_heard(self, peer: str, then: Callable[[], None]) -> None:
        """Call a function once, at the next message of a peer that is no greeting: it has accepted this party's."""
        self._once[peer] = then

    @contextlib.contextmanager
    def blaming(self, peer: str, name: str, step: Step) -> Iterator[None]:
        """Convert errors over a peer's message to a :class:`PeerError` that names peer, message and step."""
        try:
            yield
        except (CodecError, EncryptionError) as error:
            raise PeerError(peer, str(error), code=error.code, value=error.value, message=name, step=step) from error

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add elapsed wall-clock seconds to a phase."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.meter.seconds[name] += time.perf_counter() - start

    def fail(self, error: BaseException) -> None:
        """Notify the peers that this party failed, without the error's text, which may contain private values.

        For a :class:`PeerError` also the peer and the awaited message and step. A :class:`HandshakeError` is sent
        completely, since it contains only values that were exchanged already.
        """
        self._failed = True
        self._transport.fail(_failure(error))

    def abandon(self) -> None:
        """End this attempt, but not the run: peers are not notified, and :meth:`close` does not mark it complete."""
        self._failed = True

    def close(self) -> None:
        """End this party's part of the run; :class:`OutputError` if its transcript cannot be completed."""
        self.transcript.close(complete=not self._failed)
        self._transport.close()

    def _extend(self, peer: str, frame: bytes, *, sent: bool, ends: bool) -> None:
        """Add a frame, given by its SHA-256, to the exchange with a peer."""
        if peer in self._exchanges:
            outward = sent == (self.party == self._first(peer))
            self._exchanges[peer].frames.append((frame, outward))
            if ends:
                self._exchanges[peer].end(outward=outward)
        elif not sent:
            self._early.setdefault(peer, []).append((frame, ends))

    def _first(self, peer: str) -> str:
        """Return which of this party and a peer comes first in party order."""
        return next(party for party in self.topology.assigned if party in (self.party, peer))

    def _count_unawaited(self, peer: str, size: int) -> None:
        """Count what waits of a peer; one with too much is held back until it is awaited."""
        self._unawaited[peer] += size
        self._largest = max(self._largest, size)
        self._transport.hold(peer, self._star and self._unawaited[peer] > UNAWAITED)

    def _require_awaited(self, peer: str, name: str, step: Step) -> None:
        """Refuse a peer of which too much waits that nobody awaits: the awaited one, or any that is not held back."""
        for each in (peer,) if self._star else self.peers:
            if self._unawaited[each] > self._most_unawaited(each):
                raise wrong_message(each, name, f"sent {self._unawaited[each]} bytes that nobody awaits", step)

    def _most_unawaited(self, peer: str) -> int:
        if self._star:
            return UNAWAITED
        agreed = self._agreed.get(peer)
        return 4 * UNAWAITED + self._largest if agreed is None else UNAWAITED + 2 * len(self.peers) * agreed

    def _receive_one(self, peer: str, names: list[str], step: Step, until: float) -> None:
        name = " or ".join(names)
        if peer in self._left:
            raise PeerError(peer, "ended while a message was awaited", message=name, step=step, code="peer-gone")
        try:
            arrived = self._transport.receive(min(_PATIENCE, max(0.0, until - time.monotonic())))
        except PeerError as error:
            raise _with_message(error, name, step) from error
        if arrived is None:
            if time.monotonic() < until:
                return
            raise PeerError(
                peer,
                f"silent for {self._timeout:g} s",
                message=name,
                step=step,
                code="peer-silent",
                value=self._timeout,
            )
        sender, frame = arrived
        if not frame:
            self._left.add(sender)
            return
        try:
            message, its_step = decode(frame)
        except CodecError as error:
            raise PeerError(
                sender, f"sent no valid message: {error}", message=name, step=step, code="malformed"
            ) from error
        key = (sender, wire_name(type(message)), its_step)
        allowed = self._accepts.get(sender)
        if allowed is not None and key[1] not in allowed:
            raise wrong_message(sender, key[1], "sent what its role may not send", its_step)
        if key in self._waiting:
            raise wrong_message(sender, key[1], "sent the same message twice", its_step)
        recorded = redacted(message, bulk=self._digests)
        digest = hashlib.sha256(frame).digest()
        self.transcript.append("received", sender, key[1], its_step, encode_fields(recorded), digest)
        if key[1] not in GREETING and not message.evidence:
            self._extend(sender, digest, sent=False, ends=message.ends)
            self._once.pop(sender, _nothing)()
        awaited = sender == peer and key[1] in names and its_step == step
        weight = 0 if awaited else decoded_size(frame) + _MESSAGE
        self._waiting[key] = (message, weight)
        self._count_unawaited(sender, weight)


def _nothing() -> None:
    """Do nothing."""


def _failure(error: BaseException) -> Failure:
    if isinstance(error, HandshakeError):
        return Failure("disagreement", f"disagreement: {error}")
    if not isinstance(error, PeerError):
        return Failure("peer-failed", reason_during_run(error))
    where = f", message {error.message}, step {list(error.step or ())}" if error.message else ""
    return Failure("peer-failed", f"{type(error).__name__} of party {error.peer!r}{where}")


def _with_message(error: PeerError, name: str, step: Step) -> PeerError:
    """Return a copy of a transport's error that names the message that was awaited or sent."""
    kind, about = type(error), error.about
    return kind(error.peer, error.reason, code=error.code, value=error.value, message=name, step=step, about=about)
