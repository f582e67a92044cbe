"""gRPC: one method that exchanges two streams of bytes over mutual TLS 1.3.

At the listener TLS ends in :mod:`.front`. At those who connect it is grpcio's, which has no option for the minimum TLS
version. Its cipher list applies to TLS 1.2 only: a list of pre-shared-key ciphers, for which no key exists, leaves TLS
1.3. :mod:`.diagnose` and a test verify this.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from labelward.errors import CodecError
from labelward.transport.grpc import envelope
from labelward.transport.grpc.endpoint import silence_limit
from labelward.transport.grpc.front import Front, Visitor
from labelward.transport.grpc.hub import EACH, LOST, ConnectionRefused, Hub, Member

if TYPE_CHECKING:
    from labelward.transport.certificates import Credentials

SERVICE: Final = "labelward.Hub"
METHOD: Final = f"/{SERVICE}/Exchange"
REGISTER: Final = "labelward-register-bin"

_CIPHERS = "ECDHE-PSK-CHACHA20-POLY1305"
_SETTINGS = {
    "GRPC_VERBOSITY": "NONE",
    "GRPC_ENABLE_FORK_SUPPORT": "0",  # workers are programs of their own
}


def load_grpc() -> Any:
    """Return the module ``grpc``; the first call in a process decides its settings."""
    os.environ["GRPC_SSL_CIPHER_SUITES"] = _CIPHERS  # read with the first credentials; no other value is honored
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    import grpc  # type: ignore[import-untyped]

    return grpc


def channel_options(heartbeat: float) -> list[tuple[str, Any]]:
    """Return the options of both sides: message sizes, and keepalive, which detects a dead connection."""
    return [
        ("grpc.max_send_message_length", envelope.LARGEST),
        ("grpc.max_receive_message_length", envelope.LARGEST),
        ("grpc.keepalive_time_ms", int(1000 * max(0.2, heartbeat))),
        ("grpc.keepalive_timeout_ms", int(1000 * silence_limit(heartbeat))),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.bdp_probe", 1),
    ]


class Listener:
    """A hub behind a port.

    Args:
        listen: ``host:port``; port 0: any that is free.
        heartbeat: seconds between two heartbeats.

    Raises:
        InputError: the port is in use, or the address is not of this machine.
    """

    def __init__(self, hub: Hub, listen: str, credentials: Callable[[], Credentials], heartbeat: float) -> None:
        from concurrent.futures import ThreadPoolExecutor

        grpc = load_grpc()
        self._hub = hub
        self._front = Front(listen, credentials, self._refuse, hub.awaits)
        self.port = self._front.port
        workers = (EACH + 1) * len(hub.parties) + 8  # also new connections while old ones are being closed
        self._server = grpc.server(
            ThreadPoolExecutor(workers, thread_name_prefix="labelward-hub"),
            options=[
                *channel_options(heartbeat),
                ("grpc.http2.min_recv_ping_interval_without_data_ms", 100),
                ("grpc.http2.max_ping_strikes", 0),
                ("grpc.max_metadata_size", 8192),
                ("grpc.max_concurrent_streams", 4),
            ],
            maximum_concurrent_rpcs=workers,
        )
        handler = grpc.stream_stream_rpc_method_handler(self._exchange)
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {"Exchange": handler}),))
        self._server.add_insecure_port(self._front.target)
        self._server.start()
        self._front.start()
        self._heartbeat, self._closed = heartbeat, threading.Event()
        self._ticker = threading.Thread(target=self._tick, daemon=True, name="labelward-hub-heartbeat")
        self._ticker.start()

    @property
    def tls(self) -> tuple[str | None, str | None]:
        """TLS version and cipher of the last connection; None before the first."""
        return self._front.tls, self._front.cipher

    def close(self) -> None:
        """Close all connections, after the waiting envelopes were sent."""
        self._closed.set()
        self._ticker.join()
        self._hub.close()
        self._server.stop(1.0).wait(5.0)
        self._front.close()

    def _tick(self) -> None:
        while not self._closed.wait(self._heartbeat):
            self._hub.tick(silence_limit(self._heartbeat))

    def _exchange(self, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        grpc = load_grpc()
        try:
            member = self._admit(context)
        except ConnectionRefused as error:
            _end(context, grpc.StatusCode.FAILED_PRECONDITION, error)
            return
        context.add_callback(lambda: member.close(LOST))  # a queue closed without a reason would pass for a full one
        reader = threading.Thread(target=self._read, args=(requests, member), daemon=True, name="labelward-read")
        reader.start()
        try:
            yield from member.outbox
        finally:
            self._hub.leave(member)
        _end(context, grpc.StatusCode.ABORTED, member.closed[0])

    def _refuse(self, visitor: Visitor, reason: str) -> None:
        self._hub.complain(visitor.party, visitor.fingerprint, visitor.address, reason)

    def _admit(self, context: Any) -> Member:
        try:
            visitor = self._front.visitor(context.peer())
        except KeyError:  # of another process of this user, or it has ended already
            raise ConnectionRefused("it did not come through the port of the listener") from None
        said = dict(context.invocation_metadata()).get(REGISTER, b"")
        return self._hub.admit(bytes(said), visitor.party, visitor.fingerprint, visitor.address)

    def _read(self, requests: Iterator[bytes], member: Member) -> None:
        grpc = load_grpc()
        try:
            for raw in requests:
                self._hub.arrived(member, raw)
        except CodecError as error:
            self._hub.complain(member.register.party, member.fingerprint, member.address, str(error))
            self._hub.disturbed(member.register.party, str(error))
            member.close(str(error))
        except grpc.RpcError:  # or the iteration just ends: grpcio does not tell a closed connection from a lost one
            pass
        finally:
            member.close(LOST)


def _end(context: Any, code: Any, reason: ConnectionRefused) -> None:
    codes = load_grpc().StatusCode
    final = codes.INVALID_ARGUMENT if reason.disagrees else codes.PERMISSION_DENIED
    context.set_code(final if reason.final else code)
    context.set_details(str(reason))
