"""Hub client: the connection of a party that does not listen, which is one stream to the hub, renewed when it breaks.

Reconnection waits 0.1 to 2 seconds, doubled at each attempt, with a random half. Envelopes that are posted without a
connection are dropped: sessions send again what was not acknowledged. What ends the part of this process: a final
refusal (a newer process of this party is connected, or the listener is in another run), and certificates that do not
fit, unless a connection was established before; they may be exchanged during a run.
"""

from __future__ import annotations

import math
import random
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from labelward.errors import LONGEST_REASON, CertificateError, PeerDisagreementError, PeerError, quoted
from labelward.transport.grpc import envelope
from labelward.transport.grpc.diagnose import ListenerDiagnosis, diagnose_listener
from labelward.transport.grpc.endpoint import Endpoint, silence_limit
from labelward.transport.grpc.hub import Outbox
from labelward.transport.grpc.rpc import METHOD, REGISTER, channel_options, load_grpc
from labelward.transport.grpc.session import WINDOW

if TYPE_CHECKING:
    from labelward.transport.grpc.node import Node

_FIRST: Final = 0.1
_LONGEST: Final = 2.0
_UNFIT: Final = 1.0  # seconds for which certificates do not fit before that counts: a listener may be ending
_CONNECT: Final = 10.0
_DRAIN: Final = 2.0


class HubClient:
    """Connection to the hub, renewed whenever it breaks.

    Attributes:
        found: what the last look at the listener's TLS found.
    """

    def __init__(self, node: Node, register: bytes) -> None:
        self._node, self._register = node, register
        self._endpoint: Endpoint = node.endpoint
        self.found: ListenerDiagnosis | None = None
        self._welcome = envelope.pack_envelope(envelope.WELCOME, self._endpoint.listener, self._endpoint.party)
        self._closing = threading.Event()
        self._outbox: Outbox | None = None
        self._call: Any = None
        self._was_up, self._unfit = False, math.inf
        self._heard, self._silence, self._silent = 0.0, silence_limit(node.endpoint.heartbeat), False
        self._grpc = load_grpc()
        self._thread = threading.Thread(target=self._run, daemon=True, name="labelward-link")
        self._thread.start()

    def post(self, raw: bytes) -> None:
        """Queue an envelope; without a connection it is dropped."""
        outbox = self._outbox
        if outbox is not None:
            outbox.put(raw)

    def tick(self) -> None:
        """Close a connection on which nothing has arrived for too long."""
        call = self._call
        if self._outbox is not None and call is not None and time.monotonic() - self._heard > self._silence:
            self._silent = True
            call.cancel()

    def close(self) -> None:
        """Send what is queued, and close."""
        self._closing.set()
        outbox, call = self._outbox, self._call
        if outbox is not None:
            outbox.close(drain=True)
            self._thread.join(_DRAIN)
        if call is not None:
            call.cancel()
        self._thread.join(_CONNECT)

    def _run(self) -> None:
        with self._node.guarded():
            self._reconnect()

    def _reconnect(self) -> None:
        pause = _FIRST
        while not self._closing.is_set():
            reason, end = self._diagnose()
            if reason is None:
                was_up, reason, end = self._connect()
                pause = _FIRST if was_up else pause
            if end is not None:
                self._node.end(end)
                return
            if self._closing.is_set():
                return
            self._node.log("disconnected", {"address": self._endpoint.address, "reason": reason})
            self._node.on_disconnected(reason)
            self._closing.wait(random.uniform(pause / 2, pause))
            pause = min(2 * pause, _LONGEST)

    def _diagnose(self) -> tuple[str | None, PeerError | None]:
        """Return why no connection to the listener can be made, None if it can, and the error if none ever will."""
        own, listener = self._node.credentials, self._endpoint.listener
        found, now = diagnose_listener(self._endpoint.address, own, listener, timeout=_CONNECT), time.monotonic()
        if found.reason is None:
            self.found = found
        if found.reason is None or found.code is None:
            self._unfit = math.inf
            return found.reason, None
        self._unfit = min(self._unfit, now)
        if self._was_up or now - self._unfit < _UNFIT:
            return found.reason, None
        return found.reason, PeerDisagreementError(listener, found.reason, code=found.code)

    def _connect(self) -> tuple[bool, str, PeerError | None]:
        """Serve one connection to its end; return whether it was established, why it ended, the error if for good."""
        grpc, credentials, outbox = self._grpc, self._node.credentials, Outbox(2 * len(self._endpoint.parties) * WINDOW)
        secure = grpc.ssl_channel_credentials(credentials.authority, credentials.key, credentials.chain)
        settings = [
            *channel_options(self._endpoint.heartbeat),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.enable_retries", 0),
            ("grpc.min_reconnect_backoff_ms", int(1000 * _CONNECT)),
            ("grpc.enable_http_proxy", 0),
        ]
        up = self._silent = False
        end: PeerError | None = None
        with grpc.secure_channel(self._endpoint.address, secure, settings) as channel:
            exchange = channel.stream_stream(METHOD)
            call = self._call = exchange(iter(outbox), metadata=((REGISTER, self._register),))
            try:
                for raw in call:
                    self._heard = time.monotonic()
                    if not up:
                        up = self._up(raw, outbox)
                    elif raw != self._welcome:
                        self._node.deliver(raw)
                reason = "the listener has closed the connection"
            except grpc.RpcError as error:
                reason, end = self._reason(error)
            except CertificateError as error:
                reason = str(error)
            finally:
                self._outbox = None
                outbox.close()
                call.cancel()
        return up, reason, end

    def _up(self, raw: bytes, outbox: Outbox) -> bool:
        if raw != self._welcome:
            raise CertificateError("the listener does not speak this protocol", code="foreign")
        self._outbox, self._was_up = outbox, True
        if self._closing.is_set():
            outbox.close()
        self._node.log("connected", {"address": self._endpoint.address})
        self._node.on_connected()
        return True

    def _reason(self, error: Any) -> tuple[str, PeerError | None]:
        codes, code, details = self._grpc.StatusCode, error.code(), quoted(error.details() or "", LONGEST_REASON)
        if self._silent:
            return f"nothing was heard from {self._endpoint.address} for {self._silence:g} s", None
        if code is codes.PERMISSION_DENIED:
            return details, PeerError(self._endpoint.party, details, code="peer-failed")
        if code is codes.INVALID_ARGUMENT:
            reason = f"refused this party: {details}"
            return details, PeerDisagreementError(self._endpoint.listener, reason, code="disagreement")
        if code is codes.FAILED_PRECONDITION:
            return f"{self._endpoint.listener!r} refused this party: {details}", None
        if code is codes.ABORTED:
            return details, None
        if code is codes.RESOURCE_EXHAUSTED:
            return f"a message over the limit, or too many connections: {details}", None
        if code is codes.UNIMPLEMENTED:
            return f"{self._endpoint.address} is not a labelward listener", None
        return f"the connection to {self._endpoint.address} was lost", None
