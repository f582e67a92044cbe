"""Parties in a network: attempts, restarts of every role, and the end of a run."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest
from loopback import RUN, Log, credentials, endpoint, kill, network, networks, together
from pair import Pair

from blames import blamed
from labelward.errors import PeerRestartedError
from labelward.transport.base import Transport
from labelward.transport.grpc import Network, envelope
from labelward.transport.grpc.coordinator import PassiveCoordinator
from labelward.transport.grpc.hub import LOST, Hub, Registration, encode_registration
from labelward.transport.grpc.node import Node
from labelward.transport.grpc.peer import Peer
from labelward.transport.grpc.session_handshake import INCARNATION, VERSION
from labelward.transport.grpc.session_records import RunFinished
from refusals import refused

pytestmark = pytest.mark.network

TWO = ("bank", "telco")
THREE = ("bank", "telco", "shop")
TELCO = encode_registration(Registration(VERSION, RUN, "telco", bytes(INCARNATION)))


def take(end: Transport) -> tuple[str, bytes]:
    arrived = end.receive(30.0)
    assert arrived is not None, f"nothing arrived at {end.party!r}"
    return arrived


def attempts(made: dict[str, Network]) -> dict[str, Transport]:
    ends = together(**{party: each.attempt for party, each in made.items()})
    assert None not in ends.values()
    return ends


def test_a_run_ends_at_all_parties() -> None:
    marked: list[str] = []
    with networks(THREE) as made:

        def live(party: str) -> None:
            end = made[party].attempt()
            assert end is not None
            for peer in THREE:
                if peer != party:
                    end.send(peer, f"{party}>{peer}".encode())
            arrived = [take(end) for _ in range(2)]
            arrived += [take(end) for _, frame in arrived if not frame]  # the end of one before the word of the other
            assert {(each, f"{each}>{party}".encode()) for each in THREE if each != party} <= set(arrived)
            end.close()
            made[party].conclude(lambda: marked.append(party))

        together(**{party: lambda party=party: live(party) for party in THREE})  # type: ignore[misc]
    assert sorted(marked) == sorted(THREE)


def test_whoever_connects_is_welcomed_before_others_speak_to_it() -> None:
    """However early they do: the log is told of a connection as soon as it has its place."""
    hello = envelope.pack_envelope(envelope.HELLO, "bank", "telco", b"hello")

    def speak(event: str, fields: Any) -> None:
        hub.post(hello)

    hub = Hub("bank", TWO, speak, run=RUN)
    member = hub.admit(TELCO, "telco", "", "")
    arrived = iter(member.outbox)
    assert next(arrived) == envelope.pack_envelope(envelope.WELCOME, "bank", "telco")
    assert next(arrived) == hello


def test_what_is_sent_while_a_connection_ends_finds_no_slow_reader() -> None:
    """The queue is closed as soon as gRPC has lost the connection, and the member is removed a moment later."""
    lost: list[Callable[[], object]] = []
    silent = threading.Event()
    with closing(network("bank", TWO)) as made:
        hub, listener = made._hub, made._listener
        assert hub is not None
        assert listener is not None
        member = hub.admit(TELCO, "telco", "", "")
        listener._admit = lambda context: member  # type: ignore[method-assign]
        exchange = listener._exchange(iter(silent.wait, True), SimpleNamespace(add_callback=lost.append))
        next(exchange)
        lost[0]()
        hub.post(envelope.pack_envelope(envelope.CONTROL, "bank", "telco"))
        silent.set()
    assert str(member.closed[0]) == LOST


def test_an_end_that_could_not_be_marked_is_not_acknowledged() -> None:
    """Also where the active party comes back while the run is being marked."""
    node = Pair().nodes["telco"]
    side, active = PassiveCoordinator(node), node.peers["bank"]
    side.over = True

    def mark() -> None:
        with node.lock:
            side.on_session(active)
        raise PermissionError

    with pytest.raises(PermissionError):
        side.finish(mark)
    assert active.session is not None
    sent = active.session._next
    side.acknowledge()
    assert active.session._next == sent
    side.finish(lambda: None)
    assert active.session._next == sent + 1


def test_a_marked_end_is_acknowledged_once_to_each_process_of_the_active_party() -> None:
    """Also where it hears that the active party is back only when nobody waits for it any more."""
    node = Pair().nodes["telco"]
    side, active = PassiveCoordinator(node), node.peers["bank"]
    assert active.session is not None
    sent = active.session._next
    with node.lock:
        side.on_note(active, RunFinished())
    side.acknowledge()
    assert active.session._next == sent
    side.finish(lambda: None)
    for number in (1, 2):
        with node.lock:
            side.on_note(active, RunFinished())
        side.acknowledge()
        assert active.session._next == sent + number
        with node.lock:
            side.on_session(active)


def test_of_a_peer_that_has_ended_it_is_known_why_its_next_process_is_refused() -> None:
    pair = Pair()
    bank, session = pair.nodes["bank"], pair.nodes["telco"].peers["bank"].session
    assert session is not None
    session.control(bye=True)
    pair.carry()
    peer = bank.peers["telco"]
    assert bank.reason(peer) == "it has ended"
    stranger = Node(endpoint("telco", TWO, 1), credentials("telco"), "another", Log())
    stranger.post = bank.deliver
    stranger.tick()
    assert "(another, not" in bank.reason(peer)


def test_what_is_known_of_peers() -> None:
    with networks(THREE) as made:
        ends = attempts(made)
        ends["telco"].send("shop", b"x")
        take(ends["shop"])
        for party in THREE:
            infos = made[party].peers()
            assert set(infos) == set(THREE) - {party}
            for name, info in infos.items():
                assert info.sealed
                assert info.party == name
                assert info.tls == "TLSv1.3"
                assert info.cipher
                assert name in info.identity
                assert len(info.fingerprint) == 64


@pytest.mark.parametrize("party", ["telco", "shop"])
def test_a_passive_party_that_comes_back_interrupts_the_attempt(party: str) -> None:
    with networks(THREE) as made:
        ends = attempts(made)
        port = made["bank"].port
        assert port is not None
        kill(made[party])
        made[party] = network(party, THREE, port)
        for other in set(THREE) - {party}:
            with refused(PeerRestartedError, "peer-restarted"):
                ends[other].receive(30.0)
            ends[other].close()
        again = attempts(made)
        again["telco"].send("shop", b"again")
        assert take(again["shop"]) == ("telco", b"again")


def test_a_process_interrupts_where_its_forerunner_was_never_met(monkeypatch: pytest.MonkeyPatch) -> None:
    take = Peer.take_hello

    def deaf(self: Peer, payload: memoryview) -> bool:
        return (self.me, self.name) != ("telco", "shop") and take(self, payload)

    monkeypatch.setattr(Peer, "take_hello", deaf)
    with networks(THREE) as made:
        ends = attempts(made)
        kill(made["shop"])
        monkeypatch.undo()
        made["shop"] = network("shop", THREE, made["bank"].port or 0)
        with refused(PeerRestartedError, "peer-restarted"):
            ends["telco"].receive(30.0)


def test_the_active_party_that_comes_back_begins_anew() -> None:
    with networks(THREE) as made:
        ends = attempts(made)
        port = made["bank"].port
        assert port is not None
        kill(made["bank"])
        made["bank"] = network("bank", THREE, port)
        for other in ("telco", "shop"):
            with blamed("bank", "peer-restarted", kind=PeerRestartedError):
                ends[other].receive(30.0)
        again = attempts(made)
        again["bank"].send("shop", b"again")
        assert take(again["shop"]) == ("bank", b"again")
