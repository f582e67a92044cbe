"""What a party may make another one keep: messages that nobody awaits, messages that wait, connections."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

import pytest
from loopback import Log, networks, together

from blames import blamed
from labelward.errors import PeerError
from labelward.messages.splitnn import NetReady
from labelward.party import context
from labelward.party.context import Context
from labelward.party.roles import Topology
from labelward.party.transcript import Transcript
from labelward.transport.base import Transport
from labelward.transport.grpc import network, session
from labelward.transport.grpc.envelope import CHUNK
from labelward.transport.grpc.hub import RECONNECTIONS, ConnectionRefused, Hub, Registration, encode_registration
from labelward.transport.grpc.session_handshake import INCARNATION, VERSION
from labelward.transport.grpc.session_records import chunk_record

pytestmark = pytest.mark.network

THREE = ("bank", "telco", "shop")
SMALL = 1 << 16


@pytest.fixture
def contexts(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Context]]:
    """Contexts of three connected parties with small budgets."""
    for module, name in ((session, "WINDOW"), (session, "BACKLOG"), (context, "UNAWAITED")):
        monkeypatch.setattr(module, name, SMALL)
    monkeypatch.setattr(session, "_ACK_BYTES", SMALL // 4)
    monkeypatch.setattr(network, "_FLUSH", 0.5)  # what nobody awaits is not acknowledged at the end either
    topology = Topology.star(*THREE)
    with networks(THREE, message_limit=1 << 24) as made:
        ends: dict[str, Transport] = together(**{party: each.attempt for party, each in made.items()})
        yield {
            party: Context(end, topology=topology, transcript=Transcript(None), seed=1) for party, end in ends.items()
        }


def flood(ctx: Context, done: threading.Event) -> threading.Thread:
    """Send messages that nobody will ever await, as many as can be sent."""

    def send() -> None:
        with contextlib.suppress(PeerError):
            for number in range(1, 10**9):
                ctx.send("bank", NetReady(number), (number,))
                if done.is_set():
                    return

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    return thread


def test_a_peer_that_sends_what_nobody_awaits_is_refused_by_name(contexts: dict[str, Context]) -> None:
    """Instead of what it owes; neither memory nor transcript grow further."""
    flood(contexts["telco"], threading.Event())
    with blamed("telco", "peer-message", message="NetReady", step=(0,), about="that nobody awaits") as caught:
        contexts["bank"].recv("telco", NetReady, (0,))
    assert isinstance(caught.value, PeerError)
    contexts["bank"].fail(caught.value)
    with blamed("bank", "peer-failed", message="NetReady", step=(0,)):
        contexts["shop"].recv("bank", NetReady, (0,))
    assert sum(len(entry.payload) for entry in contexts["bank"].transcript.entries) < SMALL


def test_others_go_on_beside_a_peer_that_sends_what_nobody_awaits(contexts: dict[str, Context]) -> None:
    done = threading.Event()
    flood(contexts["telco"], done)
    bank, shop = contexts["bank"], contexts["shop"]
    for number in range(50):
        shop.send("bank", NetReady(number), (number,))
        assert bank.recv("shop", NetReady, (number,)).outputs == number
        time.sleep(0.02)
    from_telco = [entry for entry in bank.transcript.entries if entry.peer == "telco"]
    assert sum(context._MESSAGE + len(entry.payload) for entry in from_telco) < 2 * SMALL
    with blamed("telco", "peer-message", message="NetReady", step=(0,), about="that nobody awaits"):
        bank.recv("telco", NetReady, (0,))
    done.set()


def test_where_passive_parties_talk_to_each_other_nobody_is_held_back(contexts: dict[str, Context]) -> None:
    """A flood is refused by name although another party is awaited."""
    bank = contexts["bank"]
    bank._star = False
    flood(contexts["telco"], threading.Event())
    with blamed("telco", "peer-message", message="NetReady", step=(0,), about="that nobody awaits"):
        bank.recv("shop", NetReady, (0,))
    assert sum(context._MESSAGE + len(each.payload) for each in bank.transcript.entries) < 6 * SMALL


def test_two_parties_that_send_much_to_each_other_before_they_read(contexts: dict[str, Context]) -> None:
    """Neither waits for the other for ever, though more is sent than may wait."""
    bank, telco = contexts["bank"]._transport, contexts["telco"]._transport
    many, frame = 100, bytes(SMALL)

    def exchange(end: Transport, peer: str) -> int:
        for _ in range(many):
            end.send(peer, frame)
        return sum(end.receive(30.0) == (peer, frame) for _ in range(many))

    counts = together(bank=lambda: exchange(bank, "telco"), telco=lambda: exchange(telco, "bank"))
    assert counts == {"bank": many, "telco": many}


def test_a_message_over_what_was_agreed_is_refused_with_its_first_bytes() -> None:
    with networks(THREE) as made:
        ends: dict[str, Transport] = together(**{party: each.attempt for party, each in made.items()})
        ends["bank"].limit("telco", SMALL)
        ends["shop"].send("bank", bytes(2 * SMALL))
        assert ends["bank"].receive(30.0) == ("shop", bytes(2 * SMALL))
        with made["telco"]._node.lock:
            session = made["telco"]._node.peers["bank"].session
            assert session is not None
            assert made["telco"]._node.attempt is not None
            name = made["telco"]._node.attempt.name
            session.push(chunk_record(name, memoryview(b"first"), total=SMALL + 1, last=False))
        with blamed("telco", "peer-message", value=SMALL + 1, about="agreed sizes"):
            ends["bank"].receive(30.0)


def test_a_message_that_is_arriving_is_refused_when_sizes_are_agreed() -> None:
    with networks(THREE) as made:
        ends: dict[str, Transport] = together(**{party: each.attempt for party, each in made.items()})
        with made["telco"]._node.lock:
            session = made["telco"]._node.peers["bank"].session
            assert session is not None
            assert made["telco"]._node.attempt is not None
            name = made["telco"]._node.attempt.name
            session.push(chunk_record(name, memoryview(bytes(CHUNK)), total=2 * CHUNK, last=False))
        assembler = made["bank"]._node.peers["telco"].progress.assembler
        until = time.monotonic() + 30
        while assembler.due < 0:
            assert time.monotonic() < until
            time.sleep(0.01)
        ends["bank"].limit("telco", 2 * CHUNK)
        assert ends["bank"].receive(0.0) is None
        ends["bank"].limit("telco", SMALL)
        with blamed("telco", "peer-message", value=2 * CHUNK, about="agreed sizes"):
            ends["bank"].receive(30.0)


def test_a_party_that_connects_too_often_is_refused_and_the_log_stays_short() -> None:
    log = Log()
    hub = Hub("bank", THREE, log, run="run")
    refused = 0
    for number in range(500):
        process = number.to_bytes(INCARNATION, "big")
        registration = encode_registration(Registration(VERSION, "run", "telco", process))
        try:
            hub.admit(registration, "telco", "f" * 64, "127.0.0.1:1")
        except ConnectionRefused:
            refused += 1
    assert refused >= 500 - RECONNECTIONS[0] - 10
    assert len(log.lines) < 2 * RECONNECTIONS[0]
    shop = encode_registration(Registration(VERSION, "run", "shop", bytes(INCARNATION)))
    hub.admit(shop, "shop", "f" * 64, "127.0.0.1:1")
