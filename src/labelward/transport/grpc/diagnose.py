"""Diagnosis of failed connections: the reason that OpenSSL knows, where grpcio says "unavailable"."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from labelward.errors import CertificateError, Code
from labelward.transport.grpc.endpoint import split_host_port

if TYPE_CHECKING:
    from labelward.transport.certificates import Credentials

Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True)
class ListenerDiagnosis:
    """Result of one connection to a listener."""

    reason: str | None = None  # why no connection can be made; None: it can. What follows may be known all the same.
    code: Code | None = None  # of a reason that lies in certificates, which does not pass by itself
    tls: str | None = None
    cipher: str | None = None  # the cipher that OpenSSL and the listener agreed on
    fingerprint: str | None = None  # SHA-256 of the listener's certificate


def diagnose_listener(
    address: str, credentials: Credentials, listener: str, *, timeout: float = 10.0
) -> ListenerDiagnosis:
    """Connect once, as the party that the credentials name, and say what happens.

    Args:
        address: ``host:port`` of the listener.
        listener: the name that the listener's certificate must have.
        timeout: seconds for the connection and for each answer.
    """
    from labelward.transport.certificates import verify_peer

    try:
        verify_peer(credentials.chain, credentials.authority, credentials.party, use="client", where="own certificate")
    except CertificateError as error:
        return ListenerDiagnosis(reason=str(error), code=error.code)
    host, port = split_host_port(address, "address")
    try:
        with socket.create_connection((host, port), timeout) as plain:
            return _handshake(plain, host, address, credentials, listener)
    except socket.gaierror:
        return ListenerDiagnosis(reason=f"the name {host!r} is not known (DNS)")
    except ConnectionRefusedError:
        return ListenerDiagnosis(reason=f"{address} refused the connection: nobody listens there")
    except TimeoutError:
        return ListenerDiagnosis(reason=f"{address} does not answer within {timeout:g} s (is there a firewall?)")
    except OSError as error:
        return ListenerDiagnosis(reason=f"{address} cannot be reached: {error.strerror or error}")


def _handshake(
    plain: socket.socket, host: str, address: str, credentials: Credentials, listener: str
) -> ListenerDiagnosis:
    from cryptography import x509

    from labelward.transport.certificates import check_address, fingerprint

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False  # this module looks at the certificate itself, since OpenSSL says less
    context.verify_mode = ssl.CERT_NONE
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.set_alpn_protocols(["h2"])
    with credential_files(credentials) as (chain, key):
        context.load_cert_chain(chain, key)
    tls: str | None = None
    cipher: str | None = None
    session = _Session(plain, context, host)
    try:
        session.run(session.tls.do_handshake)
        tls, cipher = session.tls.version(), (session.tls.cipher() or (None,))[0]
        der = session.tls.getpeercert(binary_form=True) or b""
        certificate = x509.load_der_x509_certificate(der)
        credentials.verify(presented_chain(session.tls), listener, use="server")
        check_address(certificate, host, where=f"the certificate of {listener!r}")
        if not session.first_byte():
            return ListenerDiagnosis(reason=f"{listener!r} takes no further connection of this party now, or is ending")
        return ListenerDiagnosis(tls=tls, cipher=cipher, fingerprint=fingerprint(certificate))
    except CertificateError as error:
        return ListenerDiagnosis(reason=str(error), code=error.code, tls=tls, cipher=cipher)
    except ssl.SSLEOFError as error:
        return _refused(error, address, listener) if tls is None else _cut_off(listener)
    except ssl.SSLError as error:
        return _refused(error, address, listener)
    except TimeoutError:
        raise
    except OSError:
        return ListenerDiagnosis(reason=f"{address} closed the connection during the TLS handshake")


class _Session:
    """A TLS session over a socket that stays the caller's to close, whatever the other end does.

    ``SSLContext.wrap_socket`` takes the socket over and loses it when the other end resets the connection first.
    """

    def __init__(self, plain: socket.socket, context: ssl.SSLContext, host: str) -> None:
        self._plain = plain
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)

    def run(self, step: Callable[[], Result]) -> Result:
        """Return the result of a step of the session, which may need bytes of the other end.

        Raises:
            OSError: the connection broke, or the other end does not speak TLS.
        """
        while True:
            try:
                result = step()
            except ssl.SSLWantReadError:
                self._plain.sendall(self._outgoing.read())
                received = self._plain.recv(65536)
                if received:
                    self._incoming.write(received)
                else:
                    self._incoming.write_eof()
            else:
                self._plain.sendall(self._outgoing.read())
                return result

    def first_byte(self) -> bytes:
        """Return the first byte that the other end sends; none where it closes the connection as TLS asks for.

        Raises:
            SSLEOFError: it ends the connection without a word.
        """
        return self.run(lambda: self.tls.read(1))


def presented_chain(secure: ssl.SSLObject) -> bytes:
    """Return the chain that the other end presented, as PEM; the first certificate where Python tells no more."""
    presented = getattr(secure, "get_unverified_chain", None)  # from Python 3.13 on
    if presented is not None:
        return b"".join(ssl.DER_cert_to_PEM_cert(der).encode() for der in presented())
    within = getattr(secure, "_sslobj", None)
    if within is not None:
        return "".join(found.public_bytes() for found in within.get_unverified_chain()).encode()
    return ssl.DER_cert_to_PEM_cert(secure.getpeercert(binary_form=True) or b"").encode()


def _cut_off(listener: str) -> ListenerDiagnosis:
    """Return the result of a handshake after which the listener ended the connection without a word."""
    return ListenerDiagnosis(
        reason=f"{listener!r} closed the connection when it saw this party's certificate: it does not know the "
        "authority of it, or its clock says that the certificate is not valid; compare authority.crt and clocks",
        code="identity",
    )


def _refused(error: ssl.SSLError, address: str, listener: str) -> ListenerDiagnosis:
    reason, now = (error.reason or str(error)).lower().replace("_", " "), datetime.now(UTC)
    if "certificate expired" in reason:
        clock = f"its clock may be off; here it is {now:%c} UTC"
        told = f"{listener!r} says that this party's certificate has expired ({clock})"
        return ListenerDiagnosis(reason=told, code="expired")
    if "unknown ca" in reason:
        told = f"{listener!r} does not know the authority of this party's certificate; compare authority.crt of both"
        return ListenerDiagnosis(reason=told, code="identity")
    if "bad certificate" in reason or "certificate unknown" in reason or "certificate required" in reason:
        return ListenerDiagnosis(reason=f"{listener!r} refuses this party's certificate ({reason})", code="identity")
    return ListenerDiagnosis(reason=_words(reason, address))


def _words(reason: str, address: str) -> str:
    if "protocol version" in reason or "unsupported protocol" in reason:
        return f"{address} offers no TLS 1.3"
    if "eof" in reason:
        return f"{address} closed the connection during the TLS handshake"
    if "wrong version number" in reason:
        return f"{address} does not speak TLS"
    return f"the TLS handshake with {address} failed: {reason}"


@contextlib.contextmanager
def credential_files(credentials: Credentials) -> Iterator[tuple[Path, Path]]:
    """OpenSSL's Python face takes files only: these have no name, where the system knows such, so a kill leaves none.

    Elsewhere they are this user's, and are gone at once.
    """
    if not (hasattr(os, "memfd_create") and Path("/proc/self/fd").is_dir()):
        with tempfile.TemporaryDirectory(prefix="labelward-") as folder:
            chain, key = Path(folder, "chain"), Path(folder, "key")
            chain.write_bytes(credentials.chain)
            key.touch(mode=0o600)
            key.write_bytes(credentials.key)
            yield chain, key
        return
    with _unnamed(credentials.chain) as chain, _unnamed(credentials.key) as key:
        yield chain, key


@contextlib.contextmanager
def _unnamed(content: bytes) -> Iterator[Path]:
    """Give a file in memory that is gone with this process."""
    with os.fdopen(os.memfd_create("labelward"), "wb") as file:
        file.write(content)
        file.flush()
        yield Path(f"/proc/self/fd/{file.fileno()}")
