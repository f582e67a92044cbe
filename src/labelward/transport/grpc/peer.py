"""What one process knows of one other party: the handshake (:mod:`.agreement`), the session, what stands between them.

- No session: says hello again and again while there is a link.
- A peer's core is first a *candidate*: its certificate was found good. Only a signature over this process's own core
  makes it a session, so that nothing replayed can end the session that is there.
- A signed core of a new incarnation *retires* the old one for good: what a retired process says is refused.

Every method is called with the lock of the :class:`~.station.Station` held.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from labelward.errors import CertificateError, CodecError, HandshakeError
from labelward.transport.grpc import envelope
from labelward.transport.grpc.endpoint import Endpoint
from labelward.transport.grpc.session import Session
from labelward.transport.grpc.session_handshake import VERSION, Core, Hello, decode, derive, digest, encode, statement
from labelward.transport.grpc.session_records import Assembler, Failed

if TYPE_CHECKING:
    from cryptography import x509

    from labelward.transport.certificates import Credentials

__all__ = ["Candidate", "Peer", "Standing"]

_AGAIN: Final = 0.5  # seconds between two hellos
_SAME: Final = 60.0  # seconds between two complaints about the same
_RETIRED: Final = 1000


@dataclass
class Standing:
    """What two parties have told each other in the present session.

    Attributes:
        begun: attempts that the active party has begun.
        called: the passive party was told that an attempt is being gathered.
        ready: the passive party waits for an attempt.
        saved: the passive party's share is on disk.
        finished: the active party has said that the run is finished.
        acknowledged: the passive party has said that it knows.
        told: what the passive party has said last: nothing, "ready" or "saved".
        call: what the active party has called for, if the program has not been told.
        failed: what the peer has said to have failed between attempts.
        assembler: of the peer's messages.
        held: of attempts that have not begun here yet.
    """

    assembler: Assembler
    begun: int = 0
    called: bool = False
    ready: bool = False
    saved: bool = False
    finished: bool = False
    acknowledged: bool = False
    told: str = ""
    failed: Failed | None = None
    held: list[tuple[bytes, Any]] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A core whose certificate is good."""

    core: Core
    digest: bytes
    certificate: x509.Certificate


class Peer:
    """One other party.

    Args:
        name: its name.
        endpoint: own place.
        credentials: own.
        run: identity of the run.
        incarnation: of the own process.
        post: hands an envelope to the link, or drops it where there is none.
        log: called with (event, fields).

    Attributes:
        session: the present one.
        standing: what was said in it.
        reason: why the peer is not there, as far as is known.
    """

    def __init__(
        self,
        name: str,
        endpoint: Endpoint,
        credentials: Credentials,
        *,
        run: str,
        incarnation: bytes,
        post: Callable[[bytes], None],
        log: Callable[[str, Mapping[str, Any]], None],
    ) -> None:
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        self.name, self.me, self._endpoint, self._run = name, endpoint.party, endpoint, run
        self.session: Session | None = None
        self.certificate: x509.Certificate | None = None
        self.standing = self._standing()
        self.reason = "it has not connected yet"
        self.retired: dict[bytes, None] = {}
        self._credentials, self._post, self._log = credentials, post, log
        self._private = X25519PrivateKey.generate()
        public = self._private.public_key().public_bytes_raw()
        self._core = encode(Core(VERSION, run, self.me, name, incarnation, public, credentials.chain))
        self._digest = digest(self._core)
        self._candidate: Candidate | None = None
        self._agreed: Candidate | None = None
        self._greeted, self._complaint = 0.0, ("", -_SAME)

    @property
    def heard(self) -> float:
        """When the peer was last heard in a sealed session (monotonic seconds); 0: never."""
        return self.session.heard if self.session else 0.0

    @property
    def confirmed(self) -> bool:
        """Whether both sides are known to have the keys."""
        return self.session is not None and self.session.heard > 0

    def refresh(self) -> None:
        """The link is up (again): tell the peer where this side stands, and ask it."""
        self._greeted = 0.0
        if self.session is not None:
            self.session.control(ask=True)
        self.tick(time.monotonic())

    def tick(self, now: float) -> None:
        """Say hello again, or send a heartbeat, where it is time for it."""
        if self.session is not None and now - self.session.spoke >= self._endpoint.heartbeat:
            self.session.control()
        if not self.confirmed and now - self._greeted >= _AGAIN:
            self._greet()

    def take_hello(self, payload: memoryview) -> bool:
        """Deal with a greeting; return whether there is a new session."""
        try:
            return self._take_hello(decode(payload, Hello))
        except (CertificateError, CodecError, HandshakeError) as error:
            self._refuse(str(error))
            return False

    def take_refusal(self, payload: memoryview) -> None:
        """Remember why the peer refused."""
        if self.session is None:
            self.reason = f"it refused this party: {envelope.plain(payload)}"

    def close(self, *, bye: bool) -> None:
        """Forget the keys; say good-bye before."""
        if self.session is not None and bye:
            self.session.control(bye=True)

    # -- helpers ---------------------------------------------------------------------------------------------------

    def _standing(self) -> Standing:
        return Standing(Assembler(self._endpoint.message_limit))

    def _greet(self) -> None:
        from labelward.transport.certificates import sign

        self._greeted = time.monotonic()
        seen = signature = b""
        if self._candidate is not None:
            seen = self._candidate.digest
            signature = sign(self._credentials.key, statement(self.me, self._digest, seen))
        hello = Hello(self._core, seen, signature, self._candidate is not None and self._candidate is self._agreed)
        self._post(envelope.pack(envelope.HELLO, self.me, self.name, encode(hello)))

    def _take_hello(self, hello: Hello) -> bool:
        known = digest(hello.core)
        candidate = next((each for each in (self._agreed, self._candidate) if each and each.digest == known), None)
        candidate = self._candidate = candidate or self._examine(hello.core, known)
        new = False
        if hello.seen == self._digest and candidate is not self._agreed:
            self._agree(candidate, hello)
            new = True
        if hello.seen != self._digest or not hello.done:
            self._greet()
        return new

    def _examine(self, raw: bytes, known: bytes) -> Candidate:
        from labelward.transport.certificates import verify_peer

        core = decode(raw, Core)
        core.check(run=self._run, source=self.name, target=self.me)
        if core.incarnation in self.retired:
            raise HandshakeError(f"a newer process of {self.name!r} has taken this one's place", code="peer-restarted")
        if self.session is not None and core.incarnation == self.session.incarnation:
            raise HandshakeError(f"{self.name!r} changed its keys without a new process", code="peer-message")
        certificate = verify_peer(core.chain, self._credentials.authority, self.name)
        return Candidate(core=core, digest=known, certificate=certificate)

    def _agree(self, candidate: Candidate, hello: Hello) -> None:
        from labelward.transport.certificates import fingerprint, verify

        verify(candidate.certificate, hello.signature, statement(self.name, candidate.digest, self._digest))
        core = candidate.core
        keys = derive(
            self._private, core.ephemeral, me=self.me, them=self.name, mine=self._digest, theirs=candidate.digest
        )
        if self.session is not None:
            self.retired[self.session.incarnation] = None
            while len(self.retired) > _RETIRED:
                del self.retired[next(iter(self.retired))]
        limit = 2 * self._endpoint.message_limit
        self.session = Session(self.me, self.name, core.incarnation, keys, self._post, limit=limit)
        self.certificate, self._agreed = candidate.certificate, candidate
        self.standing = self._standing()
        self.reason = "its connection was lost"
        self._log("session", {"peer": self.name, "fingerprint": fingerprint(candidate.certificate)})
        self.session.control()

    def _refuse(self, reason: str) -> None:
        self._candidate = None if self.session is None else self._candidate
        now = time.monotonic()
        if now - self._complaint[1] < (_SAME if self._complaint[0] == reason else _AGAIN):
            return
        self._complaint = (reason, now)
        if self.session is None:
            self.reason = f"it was refused: {reason}"
        self._log("refused", {"peer": self.name, "reason": reason})
        self._post(envelope.pack(envelope.REFUSAL, self.me, self.name, reason.encode()[:1000]))
