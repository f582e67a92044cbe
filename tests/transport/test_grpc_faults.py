"""What goes wrong on the way: connections that are cut, and envelopes that are lost, doubled, reordered or changed."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from loopback import Log, network, networks, together
from proxy import Proxy

from blames import blamed, refused_about
from labelward.errors import CodecError, PeerError
from labelward.transport.base import Failure, Transport
from labelward.transport.grpc import Network
from refusals import refused

pytestmark = pytest.mark.network

THREE = ("bank", "telco", "shop")


def converse(ends: dict[str, Transport], messages: int, size: int = 3000) -> None:
    """Everyone sends numbered messages to everyone, and gets those of all others, each once and in order."""

    def live(party: str) -> None:
        end, others = ends[party], [name for name in ends if name != party]
        expected = dict.fromkeys(others, 0)
        for number in range(messages):
            for peer in others:
                end.send(peer, f"{party}>{peer}:{number}:".encode() + bytes(number * 37 % size))
        for _ in range(messages * len(others)):
            arrived = end.receive(60.0)
            assert arrived is not None
            sender, frame = arrived
            number = expected[sender]
            assert frame == f"{sender}>{party}:{number}:".encode() + bytes(number * 37 % size)
            expected[sender] += 1
        assert end.receive(0.0) is None

    together(**{party: lambda party=party: live(party) for party in ends})  # type: ignore[misc]


@contextmanager
def behind_proxies(parties: tuple[str, ...]) -> Iterator[tuple[dict[str, Network], dict[str, Proxy]]]:
    """Every party but the listener reaches it through a proxy of its own."""
    made = {parties[0]: network(parties[0], parties)}
    port = made[parties[0]].port
    assert port is not None
    proxies = {party: Proxy(port) for party in parties[1:]}
    try:
        for party, proxy in proxies.items():
            made[party] = network(party, parties, proxy.port)
        yield made, proxies
    finally:
        for each in reversed(made.values()):
            each.close()
        for proxy in proxies.values():
            proxy.close()


def all_ends(made: dict[str, Network]) -> dict[str, Transport]:
    return together(**{party: each.attempt for party, each in made.items()})


@contextmanager
def again_and_again(work: Callable[[], object]) -> Iterator[None]:
    """Do something over and over while the block runs."""
    done = threading.Event()

    def go() -> None:
        while not done.wait(0.05):
            work()

    thread = threading.Thread(target=go, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def test_cut_connections_lose_nothing() -> None:
    draw = random.Random(5)
    with behind_proxies(THREE) as (made, proxies):
        ends = all_ends(made)
        cuts = iter(range(6))  # at last they stay up, so that the run ends

        def cut() -> None:
            if next(cuts, None) is not None:
                proxies[draw.choice(["telco", "shop"])].cut()

        with again_and_again(cut):
            converse(ends, 300, 20_000)
            while next(cuts, None) is not None:  # cut what is left while nothing is under way
                proxies["telco"].cut()
        converse(ends, 3)


def test_a_cut_in_the_midst_of_a_long_message() -> None:
    frame = random.Random(1).randbytes(24 << 20)
    with behind_proxies(("bank", "telco")) as (made, proxies):
        ends = all_ends(made)
        for sender, receiver in (("telco", "bank"), ("bank", "telco")):
            proxies["telco"].rate = 60e6
            thread = threading.Thread(target=ends[sender].send, args=(receiver, frame))
            thread.start()
            time.sleep(0.1)
            proxies["telco"].cut()
            proxies["telco"].rate = 0
            assert ends[receiver].receive(60.0) == (sender, frame)
            thread.join()


def test_a_stalled_connection_is_made_again() -> None:
    """A firewall that swallows everything: signs of life find it, and a new connection goes on."""
    with behind_proxies(("bank", "telco")) as (made, proxies):
        ends = all_ends(made)
        converse(ends, 3)
        proxies["telco"].stalled = True
        ends["telco"].send("bank", b"into the void")
        assert ends["bank"].receive(0.3) is None
        while not any("nothing was heard" in line["reason"] for line in made["telco"]._node._log.of("disconnected")):  # type: ignore[attr-defined]
            time.sleep(0.05)
        proxies["telco"].stalled = False
        assert ends["bank"].receive(60.0) == ("telco", b"into the void")
        converse(ends, 3)


class Mischief:
    """Loses, doubles, holds back or changes the envelopes that a network sends."""

    def __init__(self, victim: Network, seed: int, **shares: float) -> None:
        self._post, self._draw, self._shares = victim._node.post, random.Random(seed), shares
        self._held: list[bytes] = []
        self.done: dict[str, int] = dict.fromkeys(shares, 0)
        self.on = True
        victim._node.post = self

    def __call__(self, raw: bytes) -> None:
        kind = (
            ""
            if not self.on
            else next((kind for kind, share in self._shares.items() if self._draw.random() < share), "")
        )
        if kind:
            self.done[kind] += 1
        if kind == "lose":
            return
        if kind == "hold":
            self._held.append(raw)
            return
        if kind == "change":
            place = self._draw.randrange(len(raw))
            raw = raw[:place] + bytes((raw[place] ^ (1 << self._draw.randrange(8)),)) + raw[place + 1 :]
        with contextlib.suppress(CodecError):  # of the own hub, where the header was changed
            self._post(raw)
        if kind == "double":
            self._post(raw)
        while self._held and (not self.on or self._draw.random() < 0.5):
            self._post(self._held.pop(self._draw.randrange(len(self._held))))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_lost_doubled_reordered_and_changed_envelopes(seed: int) -> None:
    """Nothing that is not what was sent gets through; what was lost is sent again."""
    with networks(THREE) as made:
        ends = all_ends(made)
        mischief = [
            Mischief(each, 100 * seed + n, lose=0.02, double=0.02, hold=0.02, change=0.02)
            for n, each in enumerate(made.values())
        ]
        converse(ends, 150)
        for each in mischief:
            each.on = False
        converse(ends, 3)
        for each in mischief:
            assert all(each.done.values())
        assert all(each.session.refused for each in made["bank"]._node.peers.values() if each.session)


def test_handshakes_under_mischief() -> None:
    """Sessions come about although greetings are lost, doubled, reordered and changed."""
    with networks(THREE) as made:
        mischief = [
            Mischief(each, n, lose=0.2, double=0.1, hold=0.1, change=0.2) for n, each in enumerate(made.values())
        ]
        ends = all_ends(made)
        for each in mischief:
            each.on = False
        converse(ends, 5)


def test_a_replay_of_everything_is_refused() -> None:
    """Whoever sits in the middle sends all that he has seen once more, in this session and in the next."""
    seen: list[bytes] = []
    with networks(("bank", "telco")) as made:
        bank = made["bank"]._node
        original = bank.deliver

        def tap(raw: bytes) -> None:
            seen.append(raw)
            original(raw)

        hub = made["bank"]._hub
        assert hub is not None
        hub._deliver = tap
        ends = all_ends(made)
        converse(ends, 20)
        for raw in list(seen):
            original(raw)
        assert ends["bank"].receive(0.2) is None
        converse(ends, 5)
        session = bank.peers["telco"].session
        assert session is not None
        assert session.refused["repeated"] > 20


def test_a_message_over_the_limit_is_refused_where_it_is_sent() -> None:
    with networks(("bank", "telco"), message_limit=1000) as made:
        ends = all_ends(made)
        with blamed("bank", "peer-message", value=1001) as sent:
            ends["bank"].send("telco", bytes(1001))
        ends["bank"].send("telco", bytes(1000))
        assert ends["telco"].receive(30.0) == ("bank", bytes(1000))
        ends["bank"].fail(Failure("peer-failed", "PeerError"))
        with blamed("bank", "peer-message", value=None) as heard:
            ends["telco"].receive(30.0)
        assert heard.value.reason == sent.value.reason


def test_a_message_over_the_limit_ends_the_run_where_it_arrives() -> None:
    made = {"bank": network("bank", THREE, message_limit=1000)}
    port = made["bank"].port
    assert port is not None
    for party in THREE[1:]:
        made[party] = network(party, THREE, port)
    try:
        ends = all_ends(made)
        ends["telco"].send("bank", bytes(5000))
        for party in THREE:  # the others know it from the bank
            with blamed("telco" if party == "bank" else "bank", "peer-message", about="5000 bytes") as caught:
                ends[party].receive(30.0)
            assert isinstance(caught.value, PeerError)
            assert caught.value.about == (None if party == "bank" else "telco")
    finally:
        for each in made.values():
            each.close()


def test_a_slow_program_stops_its_peer_and_nobody_else() -> None:
    """One that takes nothing: its peer waits in send; the others talk on; nothing is lost."""
    with networks(THREE, message_limit=4 << 20, heartbeat=0.5) as made:
        ends = all_ends(made)
        frame, count = bytes(4 << 20), 30
        sender = threading.Thread(target=lambda: [ends["telco"].send("shop", frame) for _ in range(count)])
        sender.start()
        for _ in range(20):
            ends["bank"].send("telco", b"still")
            assert ends["telco"].receive(30.0) == ("bank", b"still")
        session = made["telco"]._node.peers["shop"].session
        assert session is not None
        while session.room:
            time.sleep(0.01)
        time.sleep(0.3)
        assert sender.is_alive()
        inbox = made["shop"]._node.attempt
        assert inbox is not None
        assert len(inbox.inbox) <= 12  # twice the limit, and what was under way
        for _ in range(count):
            assert ends["shop"].receive(30.0) == ("telco", frame)
        sender.join()


def test_a_peer_that_is_away_ends_the_run_everywhere() -> None:
    log = Log()
    with behind_proxies(THREE) as (made, proxies):
        for each in made.values():
            object.__setattr__(each.endpoint, "timeout", 3.0)
        made["bank"]._node._log = log
        ends = all_ends(made)
        proxies["shop"].open = False
        proxies["shop"].cut()
        with blamed("shop", "peer-gone", value=3.0, about="lost"):
            ends["bank"].receive(30.0)
        ends["bank"].fail(Failure("peer-failed", "PeerError"))
        with refused(PeerError, "peer-gone") as caught:
            ends["telco"].receive(30.0)
        assert isinstance(caught.value, PeerError)
        assert (caught.value.peer, caught.value.about) in {("bank", "shop"), ("shop", None)}  # whoever was first
        with refused_about("closed the connection during", PeerError, "peer-gone", value=3.0):
            ends["shop"].receive(30.0)
        assert log.of("away")
