"""What is made is accepted by the TLS of others: OpenSSL through Python's ssl, BoringSSL through gRPC."""

from __future__ import annotations

import socket
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from labelward.transport.certificates import Credentials, new_authority, new_party, verify_peer

pytestmark = pytest.mark.network
_SECONDS = 60
"""Generous: a machine that is busy is slow; nothing waits as long otherwise."""


def _stored(folder: Path, parties: tuple[str, ...]) -> dict[str, Credentials]:
    authority = new_authority()
    found = {}
    for name in parties:
        made, place = new_party(authority, name, addresses=["localhost", "127.0.0.1"]), folder / name
        place.mkdir(mode=0o700)
        (place / f"{name}.crt").write_bytes(made.certificate)
        (place / f"{name}.key").write_bytes(made.key)
        (place / f"{name}.key").chmod(0o600)
        (place / "authority.crt").write_bytes(authority.certificate)
        found[name] = Credentials.load(place, name)
    return found


def _context(folder: Path, name: str, *, server: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(folder / name / "authority.crt")
    context.load_cert_chain(folder / name / f"{name}.crt", folder / name / f"{name}.key")
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    return context


@pytest.mark.parametrize(("listener", "other"), [("bank", "telco"), ("telco", "bank")])
@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_a_handshake_of_openssl(tmp_path: Path, listener: str, other: str, host: str) -> None:
    """Strict, with both sides' certificates; each side sees the other's name."""
    known = _stored(tmp_path, ("bank", "telco"))
    seen: dict[str, bytes] = {}
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(_SECONDS)

        def serve() -> None:
            connection, _ = server.accept()
            connection.settimeout(_SECONDS)
            with _context(tmp_path, listener, server=True).wrap_socket(connection, server_side=True) as end:
                seen[listener] = end.getpeercert(binary_form=True) or b""
                end.sendall(end.recv(5))

        thread = threading.Thread(target=serve)
        thread.start()
        with socket.create_connection(server.getsockname(), _SECONDS) as connection:
            context = _context(tmp_path, other, server=False)
            with context.wrap_socket(connection, server_hostname=host) as end:
                seen[other] = end.getpeercert(binary_form=True) or b""
                end.sendall(b"hello")
                assert end.recv(5) == b"hello"
                assert end.version() == "TLSv1.3"
        thread.join(_SECONDS)
    for one, peer in ((listener, other), (other, listener)):
        pem = ssl.DER_cert_to_PEM_cert(seen[one]).encode()
        assert verify_peer(pem, known[one].authority, peer) == known[peer].certificate


def test_a_call_of_grpc(tmp_path: Path) -> None:
    """The listener reads the certificate of who calls; the caller checks the listener's address."""
    known = _stored(tmp_path, ("bank", "telco"))
    bank, telco = known["bank"], known["telco"]
    shown: list[bytes] = []

    def answer(request: bytes, context: grpc.ServicerContext) -> bytes:
        shown.append(context.auth_context()["x509_pem_cert"][0])
        return request

    with ThreadPoolExecutor(2) as pool:
        server = grpc.server(pool)
        handlers = {"Echo": grpc.unary_unary_rpc_method_handler(answer)}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("labelward.Test", handlers),))
        port = server.add_secure_port(
            "127.0.0.1:0",
            grpc.ssl_server_credentials([(bank.key, bank.chain)], bank.authority, require_client_auth=True),
        )
        server.start()
        try:
            credentials = grpc.ssl_channel_credentials(telco.authority, telco.key, telco.chain)
            with grpc.secure_channel(f"localhost:{port}", credentials) as channel:
                call = channel.unary_unary("/labelward.Test/Echo")
                assert call(b"hello", timeout=_SECONDS, wait_for_ready=True) == b"hello"
        finally:
            server.stop(None).wait(_SECONDS)
    assert verify_peer(shown[0], bank.authority, "telco", use="client") == telco.certificate
