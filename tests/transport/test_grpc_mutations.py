"""Changed, torn, spliced, replayed and invented bytes: nothing crashes, nothing hangs, nothing is taken for real."""

from __future__ import annotations

import dataclasses
import gc
import random
import resource

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loopback import RUN, Log
from pair import NAME, TWO, Pair

from labelward.errors import CodecError
from labelward.transport.grpc import envelope
from labelward.transport.grpc.attempt import Attempt, NetworkEnd
from labelward.transport.grpc.envelope import CONTROL, DATA, HELLO
from labelward.transport.grpc.hub import ConnectionRefused, Hub
from labelward.transport.grpc.peer import PeerRates
from labelward.transport.grpc.rate import Rate
from labelward.transport.grpc.session_records import (
    Assembler,
    Chunk,
    MessageTooLargeError,
    chunk_record,
    decode_record,
    note_record,
)

PAIR = Pair()
SAID = list(PAIR.said)


def mutate(draw: random.Random, said: list[bytes]) -> bytes:
    """Return something like what was said, but not that."""
    raw = bytearray(draw.choice(said))
    kind = draw.randrange(6)
    if kind == 0:
        for _ in range(draw.randint(1, 8)):
            raw[draw.randrange(len(raw))] ^= 1 << draw.randrange(8)
    elif kind == 1:
        del raw[draw.randrange(len(raw)) :]
    elif kind == 2:
        raw += draw.randbytes(draw.randint(1, 64))
    elif kind == 3:
        other = draw.choice(said)
        raw = raw[: draw.randrange(len(raw))] + other[draw.randrange(len(other)) :]
    elif kind == 4:
        raw = bytearray(draw.randbytes(draw.randint(0, 300)))
    else:  # its header is right, and the rest is not
        start = len(envelope.envelope_header(DATA, "bank", "telco"))
        raw[start:] = draw.randbytes(draw.randint(0, 300))
        raw[3] = draw.choice([HELLO, DATA, CONTROL])
    return bytes(raw)


@pytest.mark.parametrize("seed", range(4))
def test_a_station_takes_nothing_that_was_changed(seed: int) -> None:
    draw, pair = random.Random(seed), Pair()
    node = pair.nodes["telco"]
    session = node.peers["bank"].session
    for _ in range(300):
        node.deliver(mutate(draw, pair.said))
    assert node.peers["bank"].session is session
    assert pair.ends["telco"].receive(0.0) is None
    pair.check()


@given(st.binary(max_size=600))
def test_a_station_survives_any_bytes(raw: bytes) -> None:
    PAIR.nodes["telco"].deliver(raw)
    PAIR.wire["telco"].clear()


@given(
    st.sampled_from([HELLO, DATA, CONTROL, envelope.REFUSAL, envelope.ABSENT, envelope.WELCOME, 0, 255]),
    st.binary(max_size=300),
)
def test_a_station_survives_any_payload(kind: int, payload: bytes) -> None:
    node = PAIR.nodes["telco"]
    session = node.peers["bank"].session
    node.deliver(envelope.pack_envelope(kind, "bank", "telco", payload))
    assert node.peers["bank"].session is session
    PAIR.wire["telco"].clear()


@given(st.integers(0, len(SAID) - 1), st.data())
def test_one_bit_is_enough_to_be_refused(index: int, data: st.DataObject) -> None:
    """Of sealed records: whatever the bit, nothing is delivered and the next real record is."""
    sealed = [raw for raw in SAID if envelope.unpack_envelope(raw).kind == DATA]
    raw = bytearray(sealed[index % len(sealed)])
    place = data.draw(st.integers(0, 8 * len(raw) - 1))
    raw[place // 8] ^= 1 << place % 8
    before = PAIR.nodes["telco"].peers["bank"].session
    PAIR.nodes["telco"].deliver(bytes(raw))
    assert PAIR.ends["telco"].receive(0.0) is None
    assert PAIR.nodes["telco"].peers["bank"].session is before
    PAIR.wire["telco"].clear()


def test_replayed_greetings_do_not_end_a_session() -> None:
    """Neither of this process nor of an earlier one."""
    pair, earlier = Pair(), Pair()
    node = pair.nodes["telco"]
    session = node.peers["bank"].session
    for raw in [*pair.said, *earlier.said] * 3:
        node.deliver(raw)
    assert node.peers["bank"].session is session
    assert pair.ends["telco"].receive(0.0) is None
    pair.check()


@given(st.binary(max_size=200))
def test_any_bytes_as_a_record(raw: bytes) -> None:
    """Even what was sealed by a peer is looked at."""
    try:
        found = decode_record(raw)
    except CodecError:
        return
    if isinstance(found, Chunk):
        again = chunk_record(found.attempt, found.data, total=found.total if found.first else None, last=found.last)
        assert again == raw
    else:
        assert decode_record(note_record(found)) == found


@given(
    st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(0, 2**64 - 1), st.binary(max_size=50)), max_size=20)
)
def test_any_chunks(parts: list[tuple[bool, bool, int, bytes]]) -> None:
    """A message comes out only where its chunks are as long as was announced, and never one over the limit."""
    assembler = Assembler(100, lambda head: None)
    for first, last, total, data in parts:
        part = Chunk(NAME, first, last, total, memoryview(data))
        try:
            frame = assembler.feed(part)
        except MessageTooLargeError:
            assert total > 100
        except CodecError:
            continue
        else:
            assert frame is None or len(frame) <= 100


@given(st.binary(max_size=400))
def test_a_hub_survives_any_bytes(raw: bytes) -> None:
    hub = Hub("bank", TWO, Log(), run=RUN, deliver=lambda raw: None)
    with pytest.raises(ConnectionRefused):
        hub.admit(raw, "telco", "", "somewhere")


def test_an_attempt_takes_nothing_of_another() -> None:
    pair = Pair()
    bank = pair.ends["bank"]
    other = NetworkEnd(pair.nodes["bank"], Attempt(b"\1" * 20, bank._attempt.incarnations))
    other.send("telco", b"of an attempt that has not begun there")
    pair.carry()
    assert pair.ends["telco"].receive(0.0) is None
    begun = pair.nodes["telco"].begin(b"\1" * 20, bank._attempt.incarnations)
    assert NetworkEnd(pair.nodes["telco"], begun).receive(0.0) == ("bank", b"of an attempt that has not begun there")


@pytest.mark.slow
def test_a_hundred_thousand_mutations_leave_memory_flat() -> None:
    """Nothing accepted, and no more memory after the last 90,000 than after the first 10,000."""
    draw, pair = random.Random(0), Pair()
    node = pair.nodes["telco"]
    session, early = node.peers["bank"].session, 0
    unlimited = Rate(1e9, 1e9)  # else the bank would soon be blamed, and nothing taken from it
    node.peers["bank"].rates = PeerRates(
        **dict.fromkeys((each.name for each in dataclasses.fields(PeerRates)), unlimited)
    )
    log = Log()
    node._log = log
    for number in range(100_000):
        node.deliver(mutate(draw, pair.said))
        pair.wire["telco"].clear()
        log.lines.clear()
        if number == 10_000:
            gc.collect()
            early = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    gc.collect()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - early < 20_000  # KiB; allocators keep a few pages
    assert node.peers["bank"].session is session
    assert pair.ends["telco"].receive(0.0) is None
    pair.check()
