"""Front: the port of a listener. It speaks TLS 1.3 and lets certified parties pass to gRPC, whatever strangers do.

::

    anybody -- TCP, mutual TLS 1.3 --> front -- Unix socket in a private folder --> gRPC server

Whoever has shown no valid certificate costs a bounded amount: connections in all and from one address (a newcomer
over a limit takes the place of the oldest), seconds until the handshake is done, connections per second. gRPC sees
certified connections only, each under a name that this module gave to it (:meth:`Front.visitor`). The limits leave most
descriptors of the process to its files. Connections of parties are not affected by strangers. While a party is awaited,
more strangers are let in, so that it gets its turn among them; while all are there, fewer, so that they can work.

Python's ``ssl`` names the reason of a failed handshake, which grpcio does not report, and no variable of the
environment lowers the version of TLS that it speaks here.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import resource
import shutil
import socket
import ssl
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from labelward.errors import CertificateError, InputError
from labelward.transport.grpc.diagnose import credential_files, presented_chain
from labelward.transport.grpc.endpoint import split_host_port
from labelward.transport.grpc.rate import Rate

if TYPE_CHECKING:
    from labelward.transport.certificates import Credentials

STRANGERS: Final = 256
"""Maximum number of connections without a verified certificate; half the descriptors of a process with few of them."""
STRANGERS_EACH: Final = 32
"""Of these from one IPv4 address or one IPv6 network of 64 bits."""
CONNECTIONS_EACH: Final = 16
"""Maximum number of connections with the certificates of one party."""
HANDSHAKE: Final = 10.0
"""Seconds within which the TLS handshake of a connection must be done."""
RATE: Final = 100
"""Connections accepted in a second; more wait in the queue of the system."""
CROWDED: Final = 25
"""The same while newcomers take the places of others and all parties are there, whom a crowd must not disturb."""
HANDSHAKES_AT_ONCE: Final = 50
HANDSHAKES: Final = 5
"""TLS handshakes that begin at once, and then in a second, unless a party is awaited; those that wait may lose their
place meanwhile."""
DESCRIPTORS: Final = 8192
"""Number of open files to which the limit of the process is raised where the system allows it."""

_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_PAUSE = 0.5  # seconds until the next try where descriptors are used up
_QUEUE = 128
_TURN = 1.0  # seconds until somebody asks again whether its handshake may begin
_LINGER = 2.0  # seconds for the rest of what was sent to a connection that ends


@dataclass(frozen=True)
class Visitor:
    """Who is at the other end of a connection: party and fingerprint of its certificate, and address."""

    party: str
    fingerprint: str
    address: str


Refusal = Callable[[Visitor, str], None]
"""Called with who is refused, as far as it is known, and the reason."""


class Front:
    """A port with certified connections behind it; threads and sockets are closed by :meth:`close`.

    Args:
        listen: ``host:port``; port 0: any that is free.
        credentials: called for each connection, so that new certificates count at once.
        refused: called in the front's thread for each connection that is refused.
        awaited: called there, too; returns whether a party is not connected.

    Attributes:
        target: address of the Unix socket at which gRPC must listen before :meth:`start`.
        tls, cipher: of the last party that came in; None: none has.

    Raises:
        InputError: the port is in use, or the address is not of this machine.
    """

    def __init__(
        self,
        listen: str,
        credentials: Callable[[], Credentials],
        refused: Refusal,
        awaited: Callable[[], bool],
    ) -> None:
        self._credentials, self._refused, self._awaited = credentials, refused, awaited
        self._strangers = min(STRANGERS, max(8, raise_file_limit() // 8))
        self._shown = credentials()
        self._context = server_context(self._shown)
        self._socket = _bound(listen)
        self.port: int = self._socket.getsockname()[1]
        self._folder = Path(tempfile.mkdtemp(prefix="labelward-"))  # mode 0700
        self.target = f"unix:{self._folder / 'hub'}"
        self.tls: str | None = None
        self.cipher: str | None = None
        self._connections: dict[str, tuple[Visitor, asyncio.Transport]] = {}
        self._waiting: dict[asyncio.Task[None], str] = {}  # the oldest first, with their networks
        self._count, self._handshakes = 0, Rate(HANDSHAKES_AT_ONCE, HANDSHAKES)
        self._loop = asyncio.new_event_loop()
        self._ending = asyncio.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="labelward-front")

    def start(self) -> None:
        """Begin to accept connections."""
        self._thread.start()

    def visitor(self, peer: str) -> Visitor:
        """Return who is at the other end of a gRPC connection; ``KeyError`` where the front did not make it."""
        return self._connections[peer.removeprefix("unix:")][0]

    def close(self) -> None:
        """Accept nothing more; close all connections after what gRPC has sent."""
        if self._thread.ident is not None:
            self._loop.call_soon_threadsafe(self._ending.set)
            self._thread.join()
        self._socket.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    # -- in the front's thread -----------------------------------------------------------------------------------------

    def _run(self) -> None:
        self._socket.setblocking(False)
        self._listen()
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        """Wait for :meth:`close`; give up handshakes; let connections that gRPC has closed send what is left."""
        await self._ending.wait()
        self._loop.remove_reader(self._socket.fileno())
        for task in self._waiting:
            task.cancel()
        until = self._loop.time() + _LINGER
        while (self._connections or self._waiting) and self._loop.time() < until:
            await asyncio.sleep(0.01)
        for _, outside in self._connections.values():
            outside.abort()
        await asyncio.sleep(0.01)

    def _listen(self) -> None:
        if not self._ending.is_set():
            self._loop.add_reader(self._socket.fileno(), self._accept)

    def _accept(self) -> None:
        """Accept one connection, and pause."""
        self._loop.remove_reader(self._socket.fileno())
        pause = 1 / RATE
        try:
            accepted, address = self._socket.accept()
        except OSError as error:  # the connection has ended already, or descriptors are used up
            if error.errno in _EXHAUSTED:
                self._refused(Visitor("", "", "anybody"), "this machine has no descriptor or memory left")
                pause = _PAUSE
        else:
            accepted.setblocking(False)
            if self._take(accepted, *address[:2]) and not self._awaited():
                pause = 1 / CROWDED
        self._loop.call_later(pause, self._listen)

    def _take(self, accepted: socket.socket, host: str, port: int) -> bool:
        """Begin a handshake, and make room for it; return whether another one has lost its place."""
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        network = str(ipaddress.ip_network((host.partition("%")[0], 64), strict=False)) if ":" in host else host
        crowd = Counter(self._waiting.values())[network] >= STRANGERS_EACH
        full = len(self._waiting) >= self._strangers
        if crowd or full:
            self._drop_oldest(network if crowd else None)
        task = self._loop.create_task(self._greet(accepted, address))
        self._waiting[task] = network
        task.add_done_callback(lambda task: self._waiting.pop(task, None))
        task.add_done_callback(lambda task: accepted.close() if task.cancelled() else None)  # before its first step
        return crowd or full

    def _drop_oldest(self, network: str | None = None) -> None:
        oldest = next((task for task, its in self._waiting.items() if network in (None, its)), None)
        if oldest is not None:
            del self._waiting[oldest]
            oldest.cancel("too many connections without a certificate")

    async def _greet(self, accepted: socket.socket, address: str) -> None:
        """Shake hands, and connect a party to gRPC; whoever fails is reported."""
        known, until, pipe = Visitor("", "", address), self._loop.time() + HANDSHAKE, _Pipe()
        try:
            async with asyncio.timeout(HANDSHAKE):  # wait_for would lose a cancellation that comes as somebody speaks
                await self._spoken(accepted)
            while not (self._awaited() or self._handshakes.take()):
                await asyncio.sleep(_TURN)
            present = self._credentials()
            if present is not self._shown:
                self._shown, self._context = present, server_context(present)
            left = max(0.1, until - self._loop.time())
            outside, _ = await self._loop.connect_accepted_socket(
                lambda: pipe, accepted, ssl=self._context, ssl_handshake_timeout=left, ssl_shutdown_timeout=_LINGER
            )
        except asyncio.CancelledError as error:
            pipe.abort()  # asyncio would wait for the other end, and keep a descriptor that is another one's by then
            accepted.close()
            if error.args:
                self._refused(known, str(error.args[0]))
            return
        except OSError as error:
            accepted.close()
            self._refused(known, handshake_reason(error))
            return
        try:
            known = self._examined(outside, address)
            if self._crowded(known.party):
                self._refused(known, f"{known.party!r} has {CONNECTIONS_EACH} connections already")
                outside.close()  # unlike an abort this does not pass for a certificate that is refused
            else:
                await self._connect(known, outside, pipe)
        except CertificateError as error:
            self._refused(known, str(error))
            outside.abort()
        except OSError as error:
            self._refused(known, f"this machine cannot serve it: {error.strerror}")
            outside.close()
        except asyncio.CancelledError:
            outside.abort()

    async def _spoken(self, accepted: socket.socket) -> None:
        """Wait until somebody says anything: who stays silent costs no TLS."""
        spoken, number = asyncio.Event(), accepted.fileno()
        self._loop.add_reader(number, spoken.set)
        try:
            await spoken.wait()
        finally:
            self._loop.remove_reader(number)

    def _examined(self, outside: asyncio.Transport, address: str) -> Visitor:
        from labelward.transport.certificates import fingerprint, party_of

        session = outside.get_extra_info("ssl_object")
        certificate = self._credentials().verify(presented_chain(session), None, use="client")
        self.tls, self.cipher = session.version(), (session.cipher() or (None,))[0]
        return Visitor(party_of(certificate), fingerprint(certificate), address)

    def _crowded(self, party: str) -> bool:
        return sum(each.party == party for each, _ in self._connections.values()) >= CONNECTIONS_EACH

    async def _connect(self, visitor: Visitor, outside: asyncio.Transport, pipe: _Pipe) -> None:
        self._count += 1
        name = str(self._folder / str(self._count))
        inside = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        inside.setblocking(False)
        self._connections[name] = (visitor, outside)
        pipe.on_end = lambda: self._connections.pop(name, None)
        try:
            inside.bind(name)
            await self._loop.sock_connect(inside, self.target.removeprefix("unix:"))
            Path(name).unlink()
            _, other = await self._loop.create_unix_connection(_Pipe, sock=inside)
        except BaseException:
            inside.close()
            raise
        pipe.join(other)


class _Pipe(asyncio.Protocol):
    """One end of a connection; what arrives goes to the other end as fast as that takes it."""

    _transport: asyncio.Transport

    def __init__(self) -> None:
        self._other: _Pipe | None = None
        self._ended = False
        self.on_end: Callable[[], object] = lambda: None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.pause_reading()

    def abort(self) -> None:
        """End the connection at once, if it has been made."""
        if hasattr(self, "_transport"):
            self._transport.abort()

    def join(self, other: _Pipe) -> None:
        """Let what arrives at either end go to the other."""
        for here, there in ((self, other), (other, self)):
            here._other = there
            here.resume_writing()
        if self._ended or other._ended:
            self._transport.close()
            other._transport.close()

    def data_received(self, data: bytes) -> None:
        assert self._other is not None
        self._other._transport.write(data)

    def pause_writing(self) -> None:
        if self._other is not None:
            self._other._transport.pause_reading()

    def resume_writing(self) -> None:
        if self._other is not None and not self._other._ended:
            self._other._transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        self._ended = True
        self.on_end()
        if self._other is not None:
            self._other._transport.close()


def raise_file_limit() -> int:
    """Raise the number of files that this process may open to ``DESCRIPTORS``, if it may; return the number."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    return DESCRIPTORS if soft == resource.RLIM_INFINITY else soft


def server_context(credentials: Credentials) -> ssl.SSLContext:
    """Return the TLS settings of a listener: version 1.3 only, a client's certificate required, no resumption."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.num_tickets = 0
    context.set_alpn_protocols(["h2"])
    context.load_verify_locations(cadata=credentials.authority.decode("ascii", "replace"))
    with credential_files(credentials) as (chain, key):
        context.load_cert_chain(chain, key)
    return context


_STRANGER = "its certificate is signed by an authority that is not in authority.crt"
_UNTRUSTED = {
    9: "its certificate is not valid yet: is a clock wrong?",
    10: "its certificate has expired",
    18: "its certificate is self-signed; it must be signed by an authority of authority.crt",
    **dict.fromkeys((19, 20, 21), _STRANGER),
}
"""What is said where OpenSSL does not believe a certificate, by OpenSSL's number of the reason (``X509_V_ERR``)."""


def handshake_reason(error: Exception) -> str:
    """Return why a TLS handshake with somebody who connected failed, in words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _UNTRUSTED.get(error.verify_code, f"its certificate is refused: {error.verify_message}")
    if isinstance(error, ssl.SSLError):
        reason = (error.reason or str(error)).lower().replace("_", " ")
        told = {
            "unsupported protocol": "it offers no TLS 1.3",
            "peer did not return a certificate": "it shows no certificate",
            "http request": "it speaks HTTP without TLS",
            "wrong version number": "it does not speak TLS",
        }
        return told.get(reason, f"the TLS handshake failed: {reason}")
    if isinstance(error, ConnectionAbortedError | TimeoutError):
        return f"it made no TLS handshake within {HANDSHAKE:g} s"
    return "it hung up during the TLS handshake"


def _bound(listen: str) -> socket.socket:
    """Return a listening socket; :class:`InputError` says why there is none."""
    host, port = split_host_port(listen, "listen")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    both = host == "::" and socket.has_dualstack_ipv6()
    try:
        return socket.create_server((host, port), family=family, backlog=_QUEUE, dualstack_ipv6=both)
    except OSError as error:
        words = {
            errno.EADDRINUSE: "the port is in use: end the other process, or set [network] listen to another port",
            errno.EADDRNOTAVAIL: "this machine does not have that address; give one that it has, or 0.0.0.0 for all",
            errno.EACCES: "this user may not listen at that port; give one above 1023",
        }
        reason = words.get(error.errno or 0, f"cannot listen there ({error.strerror}); give an address of this machine")
        raise InputError(reason, code="unsupported", field=f"listen = {listen!r}", value=listen) from error
