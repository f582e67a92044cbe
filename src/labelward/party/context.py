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

from labelward.errors import CodecError, EncryptionError, HandshakeError, OutputError, PeerError, ProtocolError
from labelward.messages.base import Message, Observation, ciphertexts, wire_name
from labelward.messages.codec import decode, encode, encode_fields, redacted
from labelward.party.checkpoint import Checkpoints
from labelward.party.exchange import Exchange
from labelward.party.noise_record import with_earlier_cost
from labelward.party.roles import Topology
from labelward.party.transcript import Transcript
from labelward.policy.chain import PolicyChain
from labelward.rng import PrivateSeed, SecureRandom
from labelward.transport.base import Failure, Transport

M = TypeVar("M", bound=Message)
Step = tuple[int, ...]

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
        self.progress = progress
        self.meter = Meter()
        self.transcript = transcript
        self.checkpoints = checkpoints or Checkpoints(None)
        self._exchanges: dict[str, Exchange] = {}
        self._frames: dict[str, list[tuple[bytes, bool]]] = {}  # that the exchanges do not have yet
        self._linked: dict[str, tuple[int, Exchange]] = {}
        self._transport, self._timeout, self._digests = transport, timeout, digests
        self._waiting: dict[tuple[str, str, Step], Message] = {}
        self._left: set[str] = set()
        self._failed = False

    @property
    def exchanges(self) -> dict[str, Exchange]:
        """With the coordinator, or as the coordinator with each peer, since the training began (:meth:`link`)."""
        for peer, frames in self._frames.items():
            for frame, outward in frames:
                self._exchanges[peer] = self._exchanges[peer].extended(frame, outward=outward)
            frames.clear()
        return self._exchanges

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
        self._extend(peer, message, digest, sent=True)
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
                    message = self._waiting.pop((peer, name, step), None)
                    if message is not None:
                        return message
                self._receive_one(peer, " or ".join(names), step, until)

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
            for peer, exchange in self.exchanges.items():
                reached = number if peers is None else peers.get(peer, 0)
                if reached != self._linked[peer][0]:
                    self._linked[peer] = (reached, exchange)
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
        self._exchanges[peer], self._linked[peer], self._frames[peer] = exchange, (number, exchange), []
        self.transcript.append("linked", peer, self.active, (number,), msgspec.msgpack.encode(exchange))

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
        """Notify the peers that this party failed: only the error's type, since its text may contain private values.

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

    def _extend(self, peer: str, message: Message, frame: bytes, *, sent: bool) -> None:
        """Add a frame, given by its SHA-256, to the exchange with a peer."""
        if peer in self._frames and not message.evidence:
            self._frames[peer].append((frame, sent == (self.party == self.active)))

    def _receive_one(self, peer: str, name: str, step: Step, until: float) -> None:
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
            raise PeerError(
                sender, "sent what its role may not send", message=key[1], step=its_step, code="peer-message"
            )
        if key in self._waiting:
            raise PeerError(sender, "sent the same message twice", message=key[1], step=its_step, code="peer-message")
        recorded = redacted(message, bulk=self._digests)
        digest = hashlib.sha256(frame).digest()
        self.transcript.append("received", sender, key[1], its_step, encode_fields(recorded), digest)
        self._extend(sender, message, digest, sent=False)
        self._waiting[key] = message


_PLAIN: dict[type[BaseException], str] = {
    KeyboardInterrupt: "it was interrupted by its user",
    OutputError: "it cannot write its files",
    MemoryError: "it is out of memory",
}


def _failure(error: BaseException) -> Failure:
    if isinstance(error, HandshakeError):
        return Failure("disagreement", f"disagreement: {error}")
    if not isinstance(error, PeerError):
        words = next((words for kind, words in _PLAIN.items() if isinstance(error, kind)), type(error).__name__)
        return Failure("peer-failed", words)
    where = f", message {error.message}, step {list(error.step or ())}" if error.message else ""
    return Failure("peer-failed", f"{type(error).__name__} of party {error.peer!r}{where}")


def _with_message(error: PeerError, name: str, step: Step) -> PeerError:
    """Return a copy of a transport's error that names the message that was awaited or sent."""
    return type(error)(error.peer, error.reason, code=error.code, value=error.value, message=name, step=step)
