"""What a party, a relay or a kill at the wrong moment could do, and does not."""

from __future__ import annotations

import contextlib
import socket
import ssl
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from loopback import Log, credentials, network, networks, together

from blames import blamed
from labelward.errors import PeerError
from labelward.transport.base import Transport
from labelward.transport.grpc import diagnose_listener, envelope, serve_relay
from labelward.transport.grpc import node as node_module
from labelward.transport.grpc import session as session_module
from labelward.transport.grpc.hub import Hub, Registration, encode_registration
from labelward.transport.grpc.session import Session
from labelward.transport.grpc.session_handshake import INCARNATION, VERSION

pytestmark = pytest.mark.network


def eventually(condition: Callable[[], object], seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it does not come about"
        time.sleep(0.01)


def drain(end: Transport) -> None:
    """Take what has arrived before an end, and raise the end."""
    while end.receive(30.0) is not None:
        pass


def test_a_probe_puts_no_key_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill within it would leave the key there."""
    found: list[Path] = []
    load = ssl.SSLContext.load_cert_chain

    def loading(self: ssl.SSLContext, *files: Any) -> None:
        load(self, *files)
        found.extend(path for path in tmp_path.rglob("*") if path.is_file())

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", loading)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        reason = diagnose_listener(f"127.0.0.1:{port}", credentials("telco"), "bank", timeout=0.1).reason
    assert reason is not None
    assert "does not answer" in reason
    assert found == []


@pytest.mark.parametrize("size", [1 << 13, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("ahead", [False, True], ids=["taking part", "of an attempt to come"])
def test_a_peer_that_waits_for_no_acknowledgement(monkeypatch: pytest.MonkeyPatch, size: int, ahead: bool) -> None:
    """What it sends is held within bounds, however it is cut up, and the run ends with its name."""
    monkeypatch.setattr(Session, "room", property(lambda self: True))
    for module, name in ((session_module, "WINDOW"), (session_module, "BACKLOG"), (node_module, "HELD")):
        monkeypatch.setattr(module, name, 1 << 13)  # so that the test is short
    log, limit = Log(), 1 << 13
    with networks(("bank", "telco", "shop"), log=log, message_limit=limit) as made:
        ends: dict[str, Transport] = together(**{party: each.attempt for party, each in made.items()})
        shop = made["shop"]._node
        assert shop.attempt is not None
        if ahead:  # as one that names an attempt which never begins
            ends["telco"]._attempt.name = ends["telco"]._attempt.name[:-1] + b"\xff"  # type: ignore[attr-defined]
        most, frame = 3 * session_module.WINDOW + 3 * limit + 4096, bytes(size)
        until = time.monotonic() + 60.0
        with contextlib.suppress(PeerError):  # the hostile party may hear of it as well
            while shop.attempt.failure is None:
                assert time.monotonic() < until
                ends["telco"].send("shop", frame)
        session = shop.peers["telco"].session
        assert session is not None
        assert session.backlog <= most
        assert shop.peers["telco"].progress.held_bytes <= 2 * limit + 4096
        with blamed("telco", "peer-message", about="not begun" if ahead else "without acknowledgments"):
            drain(ends["shop"])
        with blamed("shop", "peer-message") as claimed:
            drain(ends["bank"])
        assert isinstance(claimed.value, PeerError)
        assert claimed.value.about == "telco"
    assert any(told["peer"] == "telco" for told in log.of("refused"))


@pytest.mark.slow
def test_a_party_with_many_connections_leaves_room_for_the_others_at_a_relay() -> None:
    """Each would be of another run, for all that the relay can know."""
    parties, made, logs = ("bank", "telco"), [], [Log() for _ in range(30)]
    relay = serve_relay("127.0.0.1:0", credentials("relay"), parties, log=Log(), heartbeat=0.2)
    try:
        for number, log in enumerate(logs):
            made.append(network("telco", parties, relay.port, listener="relay", run=f"run {number}", log=log))
        eventually(lambda: all(log.of("connected") or log.of("disconnected") for log in logs))
        assert sum(bool(log.of("connected")) for log in logs) == 8
        reasons = [log.of("disconnected")[0]["reason"] for log in logs if not log.of("connected")]
        assert len(reasons) == 22
        assert all(word in reason for reason in reasons for word in ("'relay'", "'telco'", "8 connections"))
        mine = Log()
        made.append(network("bank", parties, relay.port, listener="relay", run="run 1", log=mine))
        eventually(lambda: mine.of("connected"))
    finally:
        with ThreadPoolExecutor(len(made)) as pool:
            list(pool.map(lambda each: each.close(), made))
        relay.close()


def test_nothing_is_taken_from_a_connection_whose_place_was_taken() -> None:
    """What an older process had said before it was killed may lie in its connection still."""
    taken = list[bytes]()
    hub = Hub("bank", ("bank", "telco"), Log(), run="run", deliver=taken.append)
    members = [
        hub.admit(
            encode_registration(Registration(VERSION, "run", "telco", bytes((number,)) * INCARNATION)), "telco", "", ""
        )
        for number in range(2)
    ]
    for number, member in enumerate(members):
        hub.arrived(member, envelope.pack_envelope(envelope.HELLO, "telco", "bank", bytes((number,))))
    assert [raw[-1] for raw in taken] == [1]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("where", ["deliver", "tick", "link"])
def test_a_mistake_in_a_thread_ends_the_run(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """Else it would be silent, and the program would wait until its patience is over."""

    def mistaken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a private value")

    with networks(("bank", "telco"), message_limit=1 << 20) as made:
        ends: dict[str, Transport] = together(**{party: each.attempt for party, each in made.items()})
        node, link = made["telco"]._node, made["telco"]._hub_client
        assert link is not None
        if where == "deliver":
            monkeypatch.setattr(node, "_dispatch", mistaken)
        elif where == "tick":
            monkeypatch.setattr(node.peers["bank"], "tick", mistaken)
        else:
            monkeypatch.setattr(link, "_connect", mistaken)
            assert link._call is not None
            link._call.cancel()
        with blamed("telco", "peer-failed", about="ZeroDivisionError"):
            drain(ends["telco"])


def test_a_listener_that_says_no_welcome() -> None:
    """The party says so, and tries again."""
    log, parties = Log(), ("bank", "telco")
    bank = network("bank", parties)
    telco = None
    try:
        assert bank._hub is not None
        bank._hub.name = "shop"
        telco = network("telco", parties, bank.port or 0, log=log)
        eventually(lambda: len(log.of("disconnected")) > 1)
    finally:
        for each in (telco, bank):
            if each is not None:
                each.close()
    assert all("this protocol" in told["reason"] for told in log.of("disconnected"))
