"""Hub client: the connection of a party that does not listen, which is one stream to the hub, renewed when it breaks.

Reconnection waits 0.1 to 5 seconds, doubled at each attempt, with a random half. Envelopes that are posted without a
connection are dropped: sessions send again what was not acknowledged. A final refusal (a newer process of this party is
connected) ends the part of this process.
"""

from __future__ import annotations

import random
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from labelward.errors import LONGEST_REASON, CertificateError, PeerError, quoted
from labelward.transport.grpc import envelope
from labelward.transport.grpc.diagnose import ListenerDiagnosis, diagnose_listener
from labelward.transport.grpc.endpoint import Endpoint, silence_limit
from labelward.transport.grpc.hub import Outbox
from labelward.transport.grpc.rpc import METHOD, REGISTER, channel_options, load_grpc
from labelward.transport.grpc.session import WINDOW

if TYPE_CHECKING:
    from labelward.transport.grpc.node import Node

_FIRST: Final = 0.1
_LONGEST: Final = 5.0
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
            reason = self._diagnose()
            if reason is None:
                was_up, reason, final = self._connect()
                pause = _FIRST if was_up else pause
                if final:
                    self._node.end(PeerError(self._endpoint.party, reason, code="peer-failed"))
                    return
            if self._closing.is_set():
                return
            self._node.log("disconnected", {"address": self._endpoint.address, "reason": reason})
            self._node.on_disconnected(reason)
            self._closing.wait(random.uniform(pause / 2, pause))
            pause = min(2 * pause, _LONGEST)

    def _diagnose(self) -> str | None:
        """Return why no connection to the listener can be made; None if it can."""
        own = self._node.credentials
        found = diagnose_listener(self._endpoint.address, own, self._endpoint.listener, timeout=_CONNECT)
        if found.reason is None:
            self.found = found
        return found.reason

    def _connect(self) -> tuple[bool, str, bool]:
        """Serve one connection to its end; return whether it was established, why it ended, whether that is final."""
        grpc, credentials, outbox = self._grpc, self._node.credentials, Outbox(2 * len(self._endpoint.parties) * WINDOW)
        secure = grpc.ssl_channel_credentials(credentials.authority, credentials.key, credentials.chain)
        settings = [
            *channel_options(self._endpoint.heartbeat),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.enable_retries", 0),
            ("grpc.min_reconnect_backoff_ms", int(1000 * _CONNECT)),
            ("grpc.enable_http_proxy", 0),
        ]
        up = final = self._silent = False
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
                reason, final = self._reason(error)
            except CertificateError as error:
                reason = str(error)
            finally:
                self._outbox = None
                outbox.close()
                call.cancel()
        return up, reason, final

    def _up(self, raw: bytes, outbox: Outbox) -> bool:
        if raw != self._welcome:
            raise CertificateError("the listener does not speak this protocol", code="foreign")
        self._outbox = outbox
        if self._closing.is_set():
            outbox.close()
        self._node.log("connected", {"address": self._endpoint.address})
        self._node.on_connected()
        return True

    def _reason(self, error: Any) -> tuple[str, bool]:
        codes, code, details = self._grpc.StatusCode, error.code(), quoted(error.details() or "", LONGEST_REASON)
        if self._silent:
            return f"nothing was heard from {self._endpoint.address} for {self._silence:g} s", False
        if code is codes.PERMISSION_DENIED:
            return details, True
        if code is codes.FAILED_PRECONDITION:
            return f"{self._endpoint.listener!r} refused this party: {details}", False
        if code is codes.ABORTED:
            return details, False
        if code is codes.RESOURCE_EXHAUSTED:
            return f"a message over the limit, or too many connections: {details}", False
        if code is codes.UNIMPLEMENTED:
            return f"{self._endpoint.address} is not a labelward listener", False
        return f"the connection to {self._endpoint.address} was lost", False
