"""Limits of what a peer may send: checked before anything is decoded, recorded or allocated."""

from __future__ import annotations

import time
import tracemalloc

import msgspec
import pytest

from labelward.errors import CodecError
from labelward.messages import codec
from labelward.messages.base import SMALL, Limits, Message
from labelward.messages.codec import check_structure, first_text
from labelward.messages.handshake import Hello
from labelward.transport.grpc.session_records import Assembler, Chunk, MessageTooLargeError
from refusals import refused

TYPES = sorted(name for name, kind in codec._schema().items() if issubclass(kind, Message))
DEEP = 100_000


def frame(name: str, body: bytes, step: bytes = b"\x91\x00") -> bytes:
    return b"LW\x01\x93" + msgspec.msgpack.encode(name) + step + body


def field_of(name: str) -> bytes:
    fields = codec.schema(name).__struct_fields__
    return msgspec.msgpack.encode(fields[-1] if fields else "x")


BODIES = {
    "arrays": lambda name: b"\x82\xa4type" + msgspec.msgpack.encode(name) + field_of(name) + b"\x91" * DEEP + b"\xc0",
    "maps": lambda name: (
        b"\x82\xa4type" + msgspec.msgpack.encode(name) + field_of(name) + b"\x81\xa1a" * DEEP + b"\xc0"
    ),
    "unknown field": lambda name: b"\x81\xa3odd" + b"\x91" * DEEP + b"\xc0",
    "body": lambda name: b"\x91" * DEEP + b"\xc0",
}


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("where", BODIES)
def test_deep_messages_are_refused(name: str, where: str) -> None:
    with refused(CodecError, "range"):
        codec.decode(frame(name, BODIES[where](name)))


def test_a_deep_step_is_refused() -> None:
    with refused(CodecError, "range"):
        codec.decode(frame("Hello", b"\x80", b"\x91" * DEEP + b"\xc0"))


@pytest.mark.parametrize("name", TYPES)
def test_too_many_elements_are_refused_before_they_are_made(name: str) -> None:
    """The count is announced: nothing of what follows it is looked at."""
    head = b"\x82\xa4type" + msgspec.msgpack.encode(name) + field_of(name)
    announced = frame(name, head + b"\xdd" + (1 << 30).to_bytes(4, "big") + b"\x01" * 1000)
    with refused(CodecError, "range"):
        codec.decode(announced)


@pytest.mark.parametrize("name", TYPES)
def test_long_texts_are_refused(name: str) -> None:
    head = b"\x82\xa4type" + msgspec.msgpack.encode(name) + field_of(name)
    limits = codec.limits_of(name)
    text = b"\xdb" + (limits.text + 1).to_bytes(4, "big") + b"a" * (limits.text + 1)
    with refused(CodecError, "range", value=limits.text + 1):
        codec.decode(frame(name, head + text))


def test_a_large_hello_is_neither_decoded_nor_taken_by_the_transport() -> None:
    limit = codec.limits_of("Hello").size
    assert limit is not None
    large = frame("Hello", b"\x81\xa5nonce\xc6" + (100 << 20).to_bytes(4, "big") + bytes(100 << 20))
    tracemalloc.start()
    try:
        with refused(CodecError, "range", value=len(large)):
            codec.decode(large)
        with refused(MessageTooLargeError, "range", value=len(large)):
            Assembler(1 << 30, codec.frame_limit).feed(
                Chunk(bytes(20), True, False, len(large), memoryview(large)[: 512 * 1024])
            )
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_nonce_has_the_length_of_a_nonce() -> None:
    hello = Hello("1", "bank", {}, 1, bytes(65), ())
    with refused(CodecError, "malformed"):
        codec.decode(codec.encode(hello, (0,)))


def test_a_message_over_its_limits_is_not_sent() -> None:
    hello = Hello("1", "bank", {str(number): "x" * 100_000 for number in range(20)}, 1, bytes(32), ())
    with refused(CodecError, "range"):
        codec.encode(hello, (0,))


def test_the_scan_takes_time_for_allowed_elements_only() -> None:
    many = b"\xdd" + SMALL.elements.to_bytes(4, "big") + b"\x93\x01\x02\x03" * SMALL.elements
    start = time.process_time()
    with refused(CodecError, "range"):
        check_structure(many, SMALL, "Hello")
    assert time.process_time() - start < 1.0


@pytest.mark.parametrize(
    "value",
    [0, -1, -40, 200, 70_000, 1 << 33, -300, 1.5, None, True, "", "a" * 40, "b" * 300, "c" * 70_000, b"", b"x" * 300]
    + [
        b"y" * 70_000,
        [],
        [1, [2, [3]]],
        {"a": 1, "b": {"c": [1, 2]}},
        list(range(70_000)),
        {str(i): i for i in range(70_000)},
    ]
    + [msgspec.msgpack.Ext(5, b"z" * size) for size in (1, 2, 4, 8, 16, 17, 300, 70_000)],
)
def test_all_that_can_be_encoded_is_understood(value: object) -> None:
    raw = msgspec.msgpack.encode([value, value])
    generous = Limits(elements=1 << 20, text=1 << 20)
    check_structure(raw, generous, "value")
    for cut in {1, len(raw) // 2, len(raw) - 1}:
        with refused(CodecError, "malformed"):
            check_structure(raw[:cut], generous, "value")


def test_the_first_text_of_what_is_none() -> None:
    assert [first_text(raw) for raw in (b"", b"\x91", b"\x01", b"\x91\xa5ab", b"\x91\xa1\xff", b"\x91\x01")] == [""] * 6
    assert first_text(b"\x92\xa2ab\x01") == "ab"
