"""The link of a party that does not listen: one stream to the hub, made again whenever it breaks.

Between two tries it waits twice as long as before, from 0.1 to 5 seconds, a random part of it. What is posted while
there is no link is dropped: sessions know what was not acknowledged. A refusal by the hub that is final (a newer
process of this party is connected) ends this process's part.
"""

from __future__ import annotations

import random
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from labelward.errors import CertificateError, PeerError
from labelward.transport.grpc import envelope
from labelward.transport.grpc.diagnose import Probe, probe
from labelward.transport.grpc.endpoint import Endpoint, too_long
from labelward.transport.grpc.outbox import Outbox
from labelward.transport.grpc.rpc import METHOD, REGISTER, options, start
from labelward.transport.grpc.session import WINDOW

if TYPE_CHECKING:
    from labelward.transport.certificates import Credentials
    from labelward.transport.grpc.node import Station

__all__ = ["Link"]

_FIRST: Final = 0.1
_LONGEST: Final = 5.0
_CONNECT: Final = 10.0
_DRAIN: Final = 2.0


class Link:
    """Connects, keeps connected, and says why it cannot.

    Args:
        station: gets what arrives, and hears of the link's ups and downs.
        register: what the hub is told (:class:`~.hub.Register`).

    Attributes:
        found: what the last look at the listener's TLS found.
    """

    def __init__(self, station: Station, register: bytes) -> None:
        self._station, self._register = station, register
        self._endpoint: Endpoint = station.endpoint
        self._credentials: Credentials = station.credentials
        self.found: Probe | None = None
        self._sign = envelope.pack(envelope.WELCOME, self._endpoint.listener, self._endpoint.party)
        self._closing = threading.Event()
        self._outbox: Outbox | None = None
        self._call: Any = None
        self._heard, self._silence, self._silent = 0.0, too_long(station.endpoint.heartbeat), False
        self._grpc = start()
        self._thread = threading.Thread(target=self._run, daemon=True, name="labelward-link")
        self._thread.start()

    def post(self, raw: bytes) -> None:
        """Queue an envelope where there is a link."""
        outbox = self._outbox
        if outbox is not None:
            outbox.put(raw)

    def tick(self) -> None:
        """Give a connection up on which nothing comes any more."""
        call = self._call
        if self._outbox is not None and call is not None and time.monotonic() - self._heard > self._silence:
            self._silent = True
            call.cancel()

    def close(self) -> None:
        """Send what is queued, and end."""
        self._closing.set()
        outbox, call = self._outbox, self._call
        if outbox is not None:
            outbox.close(drain=True)
            self._thread.join(_DRAIN)
        if call is not None:
            call.cancel()
        self._thread.join(_CONNECT)

    def _run(self) -> None:
        with self._station.guarded():
            self._keep()

    def _keep(self) -> None:
        pause = _FIRST
        while not self._closing.is_set():
            reason = self._look()
            if reason is None:
                was_up, reason, final = self._connect()
                pause = _FIRST if was_up else pause
                if final:
                    self._station.end(PeerError(self._endpoint.party, reason, code="peer-failed"))
                    return
            if self._closing.is_set():
                return
            self._station.log("disconnected", {"address": self._endpoint.address, "reason": reason})
            self._station.link_down(reason)
            self._closing.wait(random.uniform(pause / 2, pause))
            pause = min(2 * pause, _LONGEST)

    def _look(self) -> str | None:
        """Return why the listener cannot be connected to."""
        found = probe(self._endpoint.address, self._credentials, self._endpoint.listener, timeout=_CONNECT)
        if found.reason is None:
            self.found = found
        return found.reason

    def _connect(self) -> tuple[bool, str, bool]:
        """Hold a connection until it ends; return whether it was up, why it ended, and whether that is final."""
        grpc, credentials, outbox = self._grpc, self._credentials, Outbox(2 * len(self._endpoint.parties) * WINDOW)
        secure = grpc.ssl_channel_credentials(credentials.authority, credentials.key, credentials.chain)
        settings = [
            *options(self._endpoint.heartbeat),
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
                    elif raw != self._sign:
                        self._station.deliver(raw)
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
        if raw != self._sign:
            raise CertificateError("the listener does not speak this protocol", code="foreign")
        self._outbox = outbox
        if self._closing.is_set():
            outbox.close()
        self._station.log("connected", {"address": self._endpoint.address})
        self._station.link_up()
        return True

    def _reason(self, error: Any) -> tuple[str, bool]:
        codes, code, details = self._grpc.StatusCode, error.code(), envelope.plain(error.details() or "")
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
            return f"{self._endpoint.address} is no listener of labelward", False
        return f"the connection to {self._endpoint.address} was lost", False
