"""What a peer may do rarely: a hostile one is named for it, an honest one never, and nobody for what a relay does."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from loopback import RUN, Log, credentials, endpoint
from pair import NAME, TWO, Pair

from labelward.errors import PeerRestartedError
from labelward.transport.grpc import envelope
from labelward.transport.grpc.node import Node
from labelward.transport.grpc.peer import Peer
from labelward.transport.grpc.session import WINDOW, Session
from labelward.transport.grpc.session_records import AttemptEnd, RunFailed, chunk_record, note_record


def session_of(node: Node, peer: str) -> Session:
    session = node.peers[peer].session
    assert session is not None
    return session


def deliver(pair: Pair, source: str) -> None:
    """Bring what one station said to the other, whose answers are lost."""
    target = TWO[source == TWO[0]]
    while pair.wire[source]:
        pair.nodes[target].deliver(pair.wire[source].popleft())


def blamed(pair: Pair) -> tuple[Peer, str]:
    """Return the bank as telco knows it, and for what telco has blamed it."""
    failure = pair.nodes["telco"].attempt.failure  # type: ignore[union-attr]
    return pair.nodes["telco"].peers["bank"], "" if failure is None else failure.reason


def test_resends_on_request_are_bounded() -> None:
    """The bank acknowledges a record and asks for all others again, in one control record, without end."""
    pair = Pair()
    bank, telco = session_of(pair.nodes["bank"], "telco"), session_of(pair.nodes["telco"], "bank")
    for _ in range(3000):
        telco.push(chunk_record(NAME, memoryview(bytes(3000)), total=3000, last=True))
    pair.wire["telco"].clear()
    carried = 0
    for number in range(2000):
        bank._expected, bank._seen = bank._expected + 1, number
        bank.control(again=True)
        deliver(pair, "bank")
        carried += sum(map(len, pair.wire["telco"]))
        pair.wire["telco"].clear()
        if blamed(pair)[0].blamed:
            break
    peer, reason = blamed(pair)
    assert peer.blamed, f"{carried} bytes"
    assert "asks without end" in reason
    assert carried < 35 * WINDOW


def _refusals(pair: Pair) -> None:
    pair.nodes["telco"].deliver(envelope.pack_envelope(envelope.REFUSAL, "bank", "telco", bytes(1000)))


def _notes(pair: Pair) -> None:
    session_of(pair.nodes["bank"], "telco").push(note_record(AttemptEnd(NAME)))
    deliver(pair, "bank")


def _losses(pair: Pair) -> None:
    """Each loss is told of after a record that is none: the other side has one more to wait for each time."""
    session = session_of(pair.nodes["bank"], "telco")
    session.push(chunk_record(NAME, memoryview(b"x"), total=1, last=True))
    session._next += 1
    session.control()
    session._next -= 1
    deliver(pair, "bank")


def _replayed(pair: Pair) -> None:
    for raw in pair.said:
        pair.nodes["telco"].deliver(raw)


@pytest.mark.parametrize("flood", [_refusals, _notes, _losses, _replayed])
def test_a_flood_is_named(flood: Callable[[Pair], None]) -> None:
    pair, number = Pair(), 0
    while not blamed(pair)[0].blamed:
        flood(pair)
        pair.wire["telco"].clear()
        number += 1
        assert number < 30_000


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = time.monotonic()
        monkeypatch.setattr(time, "monotonic", lambda: self.now)


def _carry_without_data(pair: Pair) -> int:
    """Bring what the stations said, but for the bank's data records, to the other; return how many are lost."""
    data, lost = envelope.envelope_header(envelope.DATA, "bank", "telco"), 0
    while any(pair.wire.values()):
        for party, queue in pair.wire.items():
            while queue:
                raw = queue.popleft()
                if party == "bank" and raw.startswith(data):
                    lost += 1
                else:
                    pair.nodes[TWO[party == TWO[0]]].deliver(raw)
    return lost


def test_a_relay_that_loses_data_only_sets_nobody_against_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Control records pass: both parties live, and neither sends more of them than an honest one may."""
    clock, pair, lost = Clock(monkeypatch), Pair(), 0
    pair.ends["bank"].send("telco", b"lost")
    bank = pair.nodes["bank"].peers["telco"]
    for _ in range(3000):
        lost += _carry_without_data(pair)
        if bank.blamed:
            break
        clock.now += 0.1
        for node in pair.nodes.values():
            node.tick()
    failure = pair.nodes["bank"].attempt.failure  # type: ignore[union-attr]
    assert failure is not None
    assert "whoever passes records on" in failure.reason
    assert not blamed(pair)[0].blamed
    assert lost < 100


def test_feigned_losses_are_asked_for_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the liar would have an honest party to blame for its control records."""
    Clock(monkeypatch)
    pair = Pair()
    bank, telco = session_of(pair.nodes["bank"], "telco"), session_of(pair.nodes["telco"], "bank")
    count = telco._count_out
    while not blamed(pair)[0].blamed:
        bank._next, bank._generation = bank._next + 1, bank._generation + 1
        bank.control()
        bank._next -= 1
        deliver(pair, "bank")
    assert telco._count_out - count < 3


def test_records_before_a_session_are_counted() -> None:
    node = Node(endpoint("telco", TWO, 1), credentials("telco"), RUN, Log())
    for _ in range(30_000):
        node.deliver(envelope.pack_envelope(envelope.DATA, "bank", "telco", bytes(1000)))
    assert node.peers["bank"].blamed


@pytest.mark.parametrize("parts", [(b"", b""), (b"x", b"y")])
def test_a_message_comes_in_whole_chunks(parts: tuple[bytes, ...]) -> None:
    """Chunks without content cost whoever takes them time, and nothing counts them."""
    pair = Pair()
    session = session_of(pair.nodes["bank"], "telco")
    for number, part in enumerate(parts):
        session.push(chunk_record(NAME, memoryview(part), total=None if number else 1000, last=False))
    pair.carry()
    assert "a chunk is short" in blamed(pair)[1]


def test_a_message_ends_before_the_next_begins() -> None:
    pair = Pair()
    session = session_of(pair.nodes["bank"], "telco")
    for _ in range(2):
        session.push(chunk_record(NAME, memoryview(bytes(envelope.CHUNK)), total=2 * envelope.CHUNK, last=False))
    pair.carry()
    assert "within another one" in blamed(pair)[1]


def test_what_a_relay_repeats_is_not_said_to_be_the_partys() -> None:
    """Control records of the bank, each of them sealed by it, that somebody between sends again and again."""
    pair = Pair()
    controls = [raw for raw in pair.said if envelope.unpack_envelope(raw).kind == envelope.CONTROL]
    assert controls
    while not blamed(pair)[0].blamed:
        pair.nodes["telco"].deliver(controls[0])
    assert "whoever passes them on" in blamed(pair)[1]


@pytest.mark.parametrize("told", [("bank",), pytest.param(TWO, marks=pytest.mark.slow)])
def test_reconnections_with_full_windows_blame_nobody(told: tuple[str, ...]) -> None:
    """All that is under way is lost each time; both sides learn of it, or one alone, as behind a relay."""
    pair = Pair()
    for _ in range(5):
        for party in TWO:
            session = session_of(pair.nodes[party], TWO[party == TWO[0]])
            while session.room:
                session.push(chunk_record(NAME, memoryview(b"a short message"), total=15, last=True))
            pair.wire[party].clear()
        for party in told:
            with pair.nodes[party].lock:
                pair.nodes[party].refresh(TWO[party == TWO[0]])
        pair.carry()
        for party in TWO:
            while pair.ends[party].receive(0.0):
                pass
        pair.carry()
    for party in TWO:
        peer = pair.nodes[party].peers[TWO[party == TWO[0]]]
        assert not peer.blamed
        assert peer.rates.controls.take(50)
        assert peer.rates.useless.take(5000)


def test_a_failure_in_an_interrupted_attempt_ends_the_wait_for_the_next() -> None:
    """Up to now nobody read it, and the party was waited for until it was away for too long."""
    pair = Pair()
    telco = pair.nodes["telco"]
    assert telco.attempt is not None
    telco.attempt.stop(PeerRestartedError("bank", "asks for a new attempt", code="peer-restarted"))
    failed = RunFailed(NAME, "bank", "failed: MemoryError")
    session_of(pair.nodes["bank"], "telco").push(note_record(failed))
    pair.carry()
    assert telco.peers["bank"].progress.failed == failed


def test_a_peer_that_has_said_good_bye_stays_gone() -> None:
    """It answers and acknowledges what reaches it until its connection ends."""
    pair = Pair()
    bank, telco = session_of(pair.nodes["bank"], "telco"), session_of(pair.nodes["telco"], "bank")
    bank.control(bye=True)
    pair.carry()
    assert telco.gone
    telco.control(ask=True)
    pair.carry()
    assert telco.gone
