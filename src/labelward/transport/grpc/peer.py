"""State toward one other party: handshake (:mod:`.session_handshake`), session, and progress of the run.

- Without a session, the party sends greetings repeatedly while there is a connection.
- The identity of a peer's process is first a *candidate*: its certificate is valid. Only a signature over the own
  identity makes a session of it; a replayed greeting cannot end an existing session.
- A signed identity with a new incarnation *retires* the previous process: its later greetings are refused.

All methods require the lock of :class:`~.node.Node`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from labelward.errors import LONGEST_REASON, CertificateError, CodecError, HandshakeError, quoted
from labelward.transport.grpc import envelope
from labelward.transport.grpc import session_handshake as handshake
from labelward.transport.grpc.hub import LOST
from labelward.transport.grpc.rate import Rate
from labelward.transport.grpc.session import Session
from labelward.transport.grpc.session_records import Assembler, RunFailed

if TYPE_CHECKING:
    from cryptography import x509

    from labelward.transport.grpc.node import Node

_AGAIN: Final = 0.5  # seconds between two hellos
_SAME: Final = 60.0  # seconds between two complaints about the same
_RETIRED: Final = 1000
_CLOCKS: Final = 300.0  # seconds by which the clocks of two parties may differ without a warning


@dataclass
class PeerProgress:
    """Progress of the run between two parties in the present session."""

    assembler: Assembler
    begun: int = 0  # number of attempts that the active party has begun
    called: bool = False  # the active party has announced the next attempt
    ready: bool = False  # the passive party waits for an attempt
    saved: bool = False  # the passive party's share is on disk
    finished: bool = False  # the active party has announced the end of the run
    acknowledged: bool = False  # the passive party has acknowledged the end
    told: str = ""  # last note of the passive party: "", "ready" or "saved"
    failed: RunFailed | None = None  # failure that the peer reported between attempts
    held: list[tuple[bytes, Any]] = field(default_factory=list)  # records of attempts that have not begun here
    held_bytes: int = 0


@dataclass
class PeerRates:
    """How often a peer may do what an honest one does rarely; more is no accident, and ends the run with its name."""

    greetings: Rate = field(default_factory=lambda: Rate(60, 5))  # more are dropped
    controls: Rate = field(default_factory=lambda: Rate(100, 20))  # but for acknowledgments and answers
    resends: Rate = field(default_factory=lambda: Rate(30, 1))  # in windows, as often as a party may connect
    vain: Rate = field(default_factory=lambda: Rate(60, 0.8))  # resends, of which nothing is acknowledged
    notes: Rate = field(default_factory=lambda: Rate(1000, 10))  # about attempts
    useless: Rate = field(default_factory=lambda: Rate(10_000, 200))  # repeated, out of order, of an earlier session
    broken: Rate = field(default_factory=lambda: Rate(100, 10))  # seals that do not fit, greetings over their rate
    faults: Rate = field(default_factory=lambda: Rate(20, 0.2))  # connections that the listener closed or refused


_OVER: Final = {
    "controls": "sends control records without end",
    "resends": "asks without end for what it was sent, or whoever passes records on loses them",
    "vain": "acknowledges nothing of what it is sent again and again, or whoever passes records on loses them",
    "notes": "sends notes without end",
    "useless": "sends records of no use without end, or whoever passes them on",
    "broken": "sends sealed records that do not fit, or whoever passes them on",
}
"""What a peer does whose rate is over, unless the place where that is found knows better."""


@dataclass(frozen=True, kw_only=True)
class CandidateSession:
    """Identity of a peer's process whose certificate is valid."""

    core: handshake.ProcessIdentity
    digest: bytes
    certificate: x509.Certificate


class Peer:
    """State toward one other party.

    Attributes:
        session: the present session; None before the first.
        reason: why the peer is not connected, if known.
        refusal: why a later process of a peer that has ended has no session; empty: none is known.
        blamed: it has ended the run; nothing more is taken from it.
    """

    def __init__(self, name: str, node: Node) -> None:
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        self.name, self.me, self._node, self._endpoint = name, node.endpoint.party, node, node.endpoint
        self.session: Session | None = None
        self.certificate: x509.Certificate | None = None
        self.fingerprint = ""  # of the certificate
        self.progress = self._new_progress()
        self.reason, self.refusal = "it has not connected yet", ""
        self.rates, self.blamed = PeerRates(), False
        self.retired: dict[bytes, None] = {}
        self._private = X25519PrivateKey.generate()
        self._identify()
        self._candidate: CandidateSession | None = None
        self._agreed: CandidateSession | None = None
        self._greeted, self._complaint = 0.0, ("", -_SAME)

    @property
    def heard(self) -> float:
        """Time of the last sealed record from the peer, in monotonic seconds; 0: none."""
        return self.session.heard if self.session else 0.0

    @property
    def confirmed(self) -> bool:
        """Whether both sides are known to have the keys."""
        return self.session is not None and self.session.heard > 0

    def charge(self, rate: str, count: float = 1.0, reason: str = "") -> None:
        """Count what the peer does rarely, and end the run where it does so too often.

        Args:
            rate: a field of :class:`PeerRates`.
            reason: what the peer does; empty: as the rate says.
        """
        if not getattr(self.rates, rate).take(count):
            self._node.blame(self, reason or _OVER[rate])

    def refresh(self) -> None:
        """After a reconnection: send the state of the session, and request that of the peer."""
        self._greeted = 0.0
        if self.session is not None:
            self.session.control(ask=True)
        self.tick(time.monotonic())

    def tick(self, now: float) -> None:
        """Send a greeting or a heartbeat if it is due."""
        if self.session is not None:
            self.session.tick(now, self._endpoint.heartbeat)
        if not self.confirmed and now - self._greeted >= _AGAIN:
            self._greet()

    def take_hello(self, payload: memoryview) -> bool:
        """Process a greeting; return whether it established a new session."""
        try:
            return self._take_hello(handshake.decode_greeting(payload, handshake.Greeting))
        except (CertificateError, CodecError, HandshakeError) as error:
            self._refuse(str(error))
            return False

    def take_refusal(self, payload: memoryview) -> None:
        """Remember why the peer refused."""
        self.note_refusal(f"it refused this party: {quoted(payload, LONGEST_REASON)}")

    def note_refusal(self, reason: str) -> None:
        """Remember why a process of the peer has no session, where none of another process is in use."""
        if self.session is None:
            self.reason = reason
        elif self.session.gone:
            self.refusal = reason

    def close(self, *, bye: bool) -> None:
        """Send good-bye, if asked."""
        if self.session is not None and bye:
            self.session.control(bye=True)

    def _identify(self) -> None:
        """State this process's identity, with the present certificate and the key that belongs to it."""
        node, public = self._node, self._private.public_key().public_bytes_raw()
        own = self._shown = node.credentials
        self._core = handshake.encode_greeting(
            handshake.ProcessIdentity(
                handshake.VERSION, node.run, self.me, self.name, node.incarnation, public, own.chain
            )
        )
        self._digest = handshake.identity_digest(self._core)

    def _new_progress(self) -> PeerProgress:
        return PeerProgress(Assembler(self._endpoint.message_limit, self._endpoint.frame_limit))

    def _greet(self) -> None:
        from labelward.transport.certificates import sign_bytes

        self._greeted = time.monotonic()
        seen = signature = b""
        if self._candidate is not None:
            seen = self._candidate.digest
            signature = sign_bytes(self._shown.key, handshake.signed_statement(self.me, self._digest, seen))
        hello = handshake.Greeting(
            self._core,
            seen,
            signature,
            self._candidate is not None and self._candidate is self._agreed,
            self._node.clock(),
        )
        self._node.post(envelope.pack_envelope(envelope.HELLO, self.me, self.name, handshake.encode_greeting(hello)))

    def _take_hello(self, hello: handshake.Greeting) -> bool:
        known = handshake.identity_digest(hello.core)
        candidate = next((each for each in (self._agreed, self._candidate) if each and each.digest == known), None)
        if candidate is None:
            candidate = self._examine(hello.core, known)
            if self._shown is not self._node.credentials and not hello.seen:
                self._identify()  # a new process, which has seen no identity of this one
        self._candidate = candidate
        new = False
        if hello.seen == self._digest and candidate is not self._agreed:
            self._agree(candidate, hello)
            new = True
        if hello.seen != self._digest or not hello.done:
            self._greet()
        return new

    def _examine(self, raw: bytes, known: bytes) -> CandidateSession:
        core = handshake.decode_greeting(raw, handshake.ProcessIdentity)
        core.check(run=self._node.run, source=self.name, target=self.me)
        if core.incarnation in self.retired:
            raise HandshakeError(f"a newer process of {self.name!r} has taken this one's place", code="peer-restarted")
        if self.session is not None and core.incarnation == self.session.incarnation:
            raise HandshakeError(f"{self.name!r} changed its keys without a new process", code="peer-message")
        certificate = self._node.credentials.verify(core.chain, self.name)
        return CandidateSession(core=core, digest=known, certificate=certificate)

    def _agree(self, candidate: CandidateSession, hello: handshake.Greeting) -> None:
        from labelward.transport.certificates import fingerprint, verify_signature

        verify_signature(
            candidate.certificate,
            hello.signature,
            handshake.signed_statement(self.name, candidate.digest, self._digest),
        )
        core = candidate.core
        keys = handshake.derive_keys(
            self._private, core.ephemeral, me=self.me, them=self.name, mine=self._digest, theirs=candidate.digest
        )
        if self.session is not None:
            self.retired[self.session.incarnation] = None
            while len(self.retired) > _RETIRED:
                del self.retired[next(iter(self.retired))]
        limit = 2 * self._endpoint.message_limit
        self.session = Session(
            self.me,
            self.name,
            core.incarnation,
            keys,
            lambda raw: self._node.post(raw),
            limit=limit,
            charge=self.charge,
        )
        self.certificate, self._agreed = candidate.certificate, candidate
        self.fingerprint = fingerprint(candidate.certificate)
        self.progress = self._new_progress()
        self.reason, self.refusal = LOST, ""
        self._node.log("session", {"peer": self.name, "fingerprint": self.fingerprint})
        self._node.warn_of_expiry(self.name, candidate.certificate)
        ahead = hello.clock - self._node.clock()
        if hello.clock and not abs(ahead) <= _CLOCKS:
            self._node.log("clock", {"peer": self.name, "seconds": round(min(max(ahead, -1e10), 1e10))})
        self.session.control()

    def _refuse(self, reason: str) -> None:
        self._candidate = None if self.session is None else self._candidate
        now = time.monotonic()
        if now - self._complaint[1] < (_SAME if self._complaint[0] == reason else _AGAIN):
            return
        self._complaint = (reason, now)
        self.note_refusal(f"it was refused: {reason}")
        self._node.log("refused", {"peer": self.name, "reason": reason})
        self._node.post(envelope.pack_envelope(envelope.REFUSAL, self.me, self.name, reason.encode()[:1000]))
