"""What those can do to a listener who have no certificate, or no place in the run."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from loopback import Log, authority, credentials, network, networks, together

from labelward.transport.certificates import Credentials, Issued, new_authority, new_party
from labelward.transport.grpc import Network, diagnose_listener, front, hub
from labelward.transport.grpc.diagnose import credential_files
from labelward.transport.grpc.hub import RefusalLog

pytestmark = pytest.mark.network

TWO = ("bank", "telco")


def test_a_thousand_idle_connections_take_few_descriptors_and_no_place() -> None:
    """They come from the address of a party, which connects nevertheless."""
    bank = network("bank", TWO)
    before = _descriptors()
    with _idle(bank.port or 0, 1000):
        _until(lambda: _descriptors() > before)
        telco = network("telco", TWO, bank.port or 0)
        try:
            ends = together(bank=bank.attempt, telco=telco.attempt)
            for number in range(20):
                ends["telco"].send("bank", b"%d" % number)
                assert ends["bank"].receive(30.0) == ("telco", b"%d" % number)
                assert _descriptors() - before < 32 + 30  # the limit of one address, and of the run itself
                time.sleep(0.05)
        finally:
            telco.close()
            bank.close()


def test_who_makes_no_handshake_is_disconnected_and_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front, "HANDSHAKE", 0.2)
    log = Log()
    with _listening(log) as port, socket.create_connection(("127.0.0.1", port)) as idle:
        idle.settimeout(30)
        assert idle.recv(1) == b""
        _until(lambda: log.of("refused"))
        assert "TLS handshake within" in log.of("refused")[0]["reason"]
        assert log.of("refused")[0]["address"] == f"127.0.0.1:{idle.getsockname()[1]}"


def test_connections_of_many_addresses_are_limited_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front, "STRANGERS", 10)
    before = _descriptors()
    with _listening(Log()) as port, contextlib.ExitStack() as stack:
        for number in range(50):
            source = (f"127.0.1.{number + 1}", 0)
            stack.enter_context(socket.create_connection(("127.0.0.1", port), source_address=source))
        _until(lambda: _descriptors() - before > 50)
        time.sleep(0.5)
        assert _descriptors() - before < 50 + 10 + 30


def test_handshakes_are_limited_and_silence_costs_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("HANDSHAKES_AT_ONCE", 3), ("HANDSHAKES", 1e-9), ("_TURN", 0.05)):
        monkeypatch.setattr(front, name, value)
    monkeypatch.setattr(hub.Hub, "awaits", lambda hub: False)
    log = Log()
    with _listening(log) as port, contextlib.ExitStack() as stack:
        for _ in range(10):
            stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        for number in range(4):
            plain = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            plain.settimeout(30 if number < 3 else 1)
            with pytest.raises(TimeoutError) if number == 3 else contextlib.nullcontext():
                stack.enter_context(_context(_issued()).wrap_socket(plain))


def test_a_party_that_is_awaited_comes_in_beside_handshakes_that_never_end() -> None:
    """Up to now it lost its place to the crowd of its address, again and again, for minutes."""
    bank = network("bank", TWO)
    with _half_open(bank.port or 0, 300):
        _until(lambda: bank._listener is not None and len(bank._listener._front._waiting) >= 30)
        telco = network("telco", TWO, bank.port or 0)
        try:
            start = time.monotonic()
            together(bank=bank.attempt, telco=telco.attempt)
            assert time.monotonic() - start < 30
        finally:
            telco.close()
            bank.close()


@pytest.mark.parametrize("moment", ["it speaks", "its handshake ends"])
def test_who_loses_its_place_leaves_nothing_behind(moment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to now it kept its place in the one moment, and in the other its descriptor: who got that was not answered."""
    bank = network("bank", TWO)
    assert bank._listener is not None
    this, spoken = bank._listener._front, front.Front._spoken
    made, lost = front._Pipe.connection_made, front._Pipe.connection_lost
    dropped, began, ended = list[str](), set[front._Pipe](), set[front._Pipe]()

    def drop(now: str) -> None:
        if now == moment and not dropped:
            dropped.append(now)
            this._drop_oldest()

    async def speaking(self: front.Front, accepted: socket.socket) -> None:
        await spoken(self, accepted)
        drop("it speaks")

    def ending(pipe: front._Pipe, transport: Any) -> None:
        made(pipe, transport)
        began.add(pipe)
        drop("its handshake ends")

    def gone(pipe: front._Pipe, error: Exception | None) -> None:
        lost(pipe, error)
        ended.add(pipe)

    monkeypatch.setattr(front.Front, "_spoken", speaking)
    monkeypatch.setattr(front._Pipe, "connection_made", ending)
    monkeypatch.setattr(front._Pipe, "connection_lost", gone)
    context, heard = _context(_issued()), list[bytes]()
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(socket.socket()) for _ in range(3)]  # the listener gets what is free then
        stack.callback(bank.close)
        for plain in clients:
            plain.settimeout(30)
            plain.connect(("127.0.0.1", bank.port))
            with contextlib.suppress(ssl.SSLError, ConnectionError), context.wrap_socket(plain) as secure:
                heard.append(secure.recv(1))
    assert dropped
    assert len([each for each in heard if each]) == 2
    assert began == ended


def test_a_listener_knows_the_tls_of_its_port_without_connecting_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to now it did, at the begin of each attempt, and waited for its turn among strangers."""
    with networks(TWO) as made:
        together(**{party: each.attempt for party, each in made.items()})

        def refuse(*_: Any) -> None:
            raise AssertionError("it connects to its own port")

        monkeypatch.setattr(socket, "create_connection", refuse)
        telco = made["bank"].peers()["telco"]
        assert telco.tls == "TLSv1.3"
        assert telco.cipher


STRANGERS: dict[str, tuple[Callable[[], ssl.SSLContext | None], str]] = {
    "plain text": (lambda: None, "does not speak TLS"),
    "no certificate": (lambda: _context(None), "no certificate"),
    "TLS 1.2": (lambda: _context(None, newest=ssl.TLSVersion.TLSv1_2), "no TLS 1.3"),
    "unknown authority": (lambda: _context(_issued(by=new_authority(name="another"))), "authority.crt"),
    "expired": (lambda: _context(_issued(days=30, now=datetime.now(UTC) - timedelta(days=100))), "expired"),
}


@pytest.mark.parametrize("case", STRANGERS)
def test_strangers_that_fail_in_tls_are_logged_with_the_reason(case: str) -> None:
    context, words = STRANGERS[case][0](), STRANGERS[case][1]
    log = Log()
    with _listening(log) as port, socket.create_connection(("127.0.0.1", port)) as plain:
        plain.settimeout(30)
        with contextlib.suppress(OSError):
            if context is None:
                plain.sendall(b"hello, is this a shop?\r\n\r\n")
                plain.recv(100)
            else:
                with context.wrap_socket(plain) as secure:
                    secure.recv(1)
        _until(lambda: log.of("refused"))
    assert words in log.of("refused")[0]["reason"]
    assert "127.0.0.1" in log.of("refused")[0]["address"]


def test_the_environment_does_not_lower_the_version_of_tls() -> None:
    """A list of ciphers for older versions was honored."""
    code = (
        "import socket, ssl, sys\n"
        "from loopback import credentials, network\n"
        "from labelward.transport.grpc.diagnose import credential_files\n"
        "bank = network('bank', ('bank', 'telco'))\n"
        "context = ssl.create_default_context()\n"
        "context.check_hostname, context.verify_mode = False, ssl.CERT_NONE\n"
        "context.maximum_version = ssl.TLSVersion.TLSv1_2\n"
        "with credential_files(credentials('telco')) as files:\n"
        "    context.load_cert_chain(*files)\n"
        "try:\n"
        "    with socket.create_connection(('127.0.0.1', bank.port)) as plain:\n"
        "        print(context.wrap_socket(plain).version())\n"
        "except OSError:\n"
        "    print('refused')\n"
        "bank.close()\n"
    )
    environment = {**os.environ, "GRPC_SSL_CIPHER_SUITES": "ECDHE-ECDSA-AES128-GCM-SHA256", "PYTHONPATH": _path()}
    out = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert out.stdout == "refused\n"


def test_a_listener_without_descriptors_waits_until_there_are_some() -> None:
    log = Log()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with _listening(log) as port, socket.socket() as late:
        resource.setrlimit(resource.RLIMIT_NOFILE, (1, hard))
        try:
            late.connect(("127.0.0.1", port))
            _until(lambda: log.of("refused"))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert "descriptor" in log.of("refused")[0]["reason"]
        late.settimeout(30)
        with _context(_issued()).wrap_socket(late) as secure:
            assert secure.recv(1)


def test_a_stranger_of_the_same_authority_is_logged_at_a_bounded_rate() -> None:
    log = Log()
    with networks(TWO, log=log) as made:
        stranger = network("shop", (*TWO, "shop"), made["bank"].port or 0)
        assert stranger._hub_client is not None
        hub = made["bank"]._hub
        assert hub is not None
        try:
            _until(lambda: log.of("refused"))
            for number in range(1000):
                hub.complain("shop", "f" * 64, f"127.0.0.1:{number}", "'shop' is no party that may connect")
        finally:
            stranger.close()
        assert len([each for each in log.of("refused") if each["peer"] == "shop"]) < 20


def test_refusals_of_all_kinds_are_logged_at_a_bounded_rate() -> None:
    log = Log()
    refusals = RefusalLog(log)
    for number in range(10_000):
        refusals.note((str(number),), {"reason": "nothing"})
    assert 20 <= len(log.lines) <= 40
    assert len(refusals._counts) <= 1024
    refusals._rate._room = 1.0
    refusals.note(("last",), {"reason": "nothing"})
    omitted = [each.get("omitted", 0) for each in log.of("refused")]
    assert omitted[-1] > 0
    assert sum(omitted) + len(log.lines) - 1 == 10_000


def test_one_party_has_a_bounded_number_of_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front, "CONNECTIONS_EACH", 3)
    log = Log()
    with _listening(log) as port, contextlib.ExitStack() as stack:
        for _ in range(10):
            plain = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            plain.settimeout(30)
            stack.enter_context(_context(_issued()).wrap_socket(plain))
        _until(lambda: log.of("refused"))
        assert log.of("refused")[0]["peer"] == "telco"
        assert "3 connections" in log.of("refused")[0]["reason"]


def test_a_party_with_too_many_connections_is_not_told_that_its_certificates_do_not_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would end its part for good."""
    monkeypatch.setattr(front, "CONNECTIONS_EACH", 2)
    with _listening(log := Log()) as port, contextlib.ExitStack() as stack:
        for _ in range(2):
            plain = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            secure = stack.enter_context(_context(_issued()).wrap_socket(plain))
            assert secure.recv(1)  # of gRPC: it has its place
        found = diagnose_listener(f"127.0.0.1:{port}", _issued(), "bank")
        _until(lambda: log.of("refused"))
    assert found.reason is not None
    assert found.code is None


def test_the_limit_of_open_files_is_raised() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 512), hard))
        assert front.raise_file_limit() == resource.getrlimit(resource.RLIMIT_NOFILE)[0] == min(8192, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# -- helpers -----------------------------------------------------------------------------------------------------------


def _issued(*, by: Issued | None = None, **how: Any) -> Credentials:
    made = new_party(by or authority(), "telco", addresses=["127.0.0.1"], **how)
    return Credentials(party="telco", chain=made.certificate, key=made.key, authority=authority().certificate)


def _context(made: Credentials | None, *, newest: ssl.TLSVersion = ssl.TLSVersion.MAXIMUM_SUPPORTED) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode, context.maximum_version = False, ssl.CERT_NONE, newest
    context.set_alpn_protocols(["h2"])
    if made is not None:
        with credential_files(made) as (chain, key):
            context.load_cert_chain(chain, key)
    return context


@contextlib.contextmanager
def _listening(log: Log) -> Iterator[int]:
    bank: Network = network("bank", TWO, log=log, credentials=credentials("bank"))
    try:
        assert bank.port is not None
        yield bank.port
    finally:
        bank.close()


@contextlib.contextmanager
def _idle(port: int, count: int) -> Iterator[None]:
    """Idle connections of another process, which connects anew where it is disconnected."""
    code = (
        "import resource, socket, sys\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)\n"
        f"kept = [socket.create_connection(('127.0.0.1', {port}), 30) for _ in range({count})]\n"
        "print(flush=True)\n"
        "sys.stdin.read()\n"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code], **pipes) as process:  # type: ignore[call-overload]
        try:
            yield
        finally:
            process.kill()


@contextlib.contextmanager
def _half_open(port: int, count: int) -> Iterator[None]:
    """Connections of another process that begin a handshake, never read the answer, and come back when they end."""
    code = (
        "import select, socket, ssl, sys, time\n"
        "outgoing = ssl.MemoryBIO()\n"
        "try: ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname='a').do_handshake()\n"
        "except ssl.SSLWantReadError: hello = outgoing.read()\n"
        "ended, known = select.epoll(), {}\n"
        "while True:\n"
        f"    while len(known) < {count}:\n"
        "        one = socket.socket()\n"
        f"        if one.connect_ex(('127.0.0.1', {port})): one.close(); time.sleep(0.05); break\n"
        "        one.sendall(hello)\n"
        "        ended.register(one, select.EPOLLRDHUP)\n"
        "        known[one.fileno()] = one\n"
        "    for number, _ in ended.poll(0.05): known.pop(number).close()\n"
    )
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        try:
            yield
        finally:
            process.kill()


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def _path() -> str:
    return os.pathsep.join([os.path.dirname(__file__), *sys.path])


def _until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it does not come about"
        time.sleep(0.01)
