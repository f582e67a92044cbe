"""Bytes ↔ messages: what is encoded comes back, what is damaged is named, what may not travel does not."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import MESSAGES, OBSERVATIONS, of

from blames import refused_about
from labelward.errors import CodecError
from labelward.he import Layout, engine
from labelward.messages.base import Message, Observation, RowMask, wire_name
from labelward.messages.codec import WIRE_VERSION, decode, decode_fields, encode, encode_fields, redacted, schema
from labelward.messages.handshake import RowIdDigests
from labelward.messages.tree import EncryptedTreeRows, LevelHistograms, LevelRequest, NodeSplit, OwnSplit, TrainingEnd
from labelward.rng import SecureRandom
from refusals import refused
from released import released

steps = st.lists(st.integers(0, 2**31), max_size=3).map(tuple)


@pytest.mark.parametrize("kind", MESSAGES, ids=lambda kind: kind.__name__)
@given(data=st.data())
@settings(max_examples=20)
def test_messages_come_back(kind: type[Message], data: st.DataObject) -> None:
    message, step = data.draw(of(kind)), data.draw(steps)
    frame = encode(message, step)
    assert decode(frame) == (message, step)
    assert encode(message, step) == frame
    assert decode_fields(wire_name(kind), encode_fields(message)) == message
    kept = redacted(message)
    assert decode_fields(wire_name(kind), encode_fields(kept)) == kept


@pytest.mark.parametrize("kind", OBSERVATIONS, ids=lambda kind: kind.__name__)
@given(data=st.data())
@settings(max_examples=20)
def test_observations_are_kept_but_never_travel(kind: type[Observation], data: st.DataObject) -> None:
    observation = data.draw(of(kind))
    assert decode_fields(wire_name(kind), encode_fields(observation)) == observation
    with refused(CodecError, "not-sendable", value=wire_name(kind)):
        decode(encode(observation, (0,)))  # type: ignore[arg-type]


def test_every_class_has_a_name_of_its_own() -> None:
    for kind in (*MESSAGES, *OBSERVATIONS):
        assert schema(wire_name(kind)) is kind
    with refused(CodecError, "unknown", value="Gossip"):
        schema("Gossip")


def mutate(frame: bytes, rng: np.random.Generator) -> bytes:
    """Flip, drop, insert or repeat some bytes."""
    data = bytearray(frame)
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.integers(0, len(data) + 1))
        match int(rng.integers(0, 5)):
            case 0 if at < len(data):
                data[at] ^= 1 << int(rng.integers(0, 8))
            case 1 if at < len(data):
                data[at] = int(rng.integers(0, 256))
            case 2:
                del data[at : at + int(rng.integers(1, 9))]
            case 3:
                data[at:at] = rng.bytes(int(rng.integers(1, 9)))
            case _:
                data[at:at] = data[at // 2 : at]
    return bytes(data)


@pytest.mark.parametrize("kind", MESSAGES, ids=lambda kind: kind.__name__)
def test_damaged_frames_are_refused_or_read(kind: type[Message]) -> None:
    """Random damage gives a message of the schema or a CodecError, and nothing else."""
    rng = np.random.default_rng(sum(wire_name(kind).encode()))
    refused = 0

    @given(message=of(kind), step=steps)
    @settings(max_examples=15, derandomize=True)
    def damage(message: Message, step: tuple[int, ...]) -> None:
        nonlocal refused
        frame = encode(message, step)
        for _ in range(40):
            try:
                found, its_step = decode(mutate(frame, rng))
            except CodecError:
                refused += 1
            else:
                assert isinstance(found, Message)
                assert isinstance(its_step, tuple)

    damage()
    assert refused > 100


@given(noise=st.binary(max_size=60), known=st.sampled_from([b"", b"LW", b"LW\x01", b"LW\x01\x93"]))
@settings(max_examples=300)
def test_noise_is_no_message(noise: bytes, known: bytes) -> None:
    with pytest.raises(CodecError) as caught:
        decode(known + noise)
    assert caught.value.code in ("malformed", "format-version", "unknown")


def test_text_that_is_no_text() -> None:
    """A name of bytes that are not UTF-8."""
    frame = encode(RowIdDigests(b"x", ()), (0,))
    with refused(CodecError, "malformed"):
        decode(frame.replace(b"Ready", b"R\xffady"))


def test_wire_version_and_magic() -> None:
    frame = encode(TrainingEnd(3, 7), (3,))
    assert frame[:3] == b"LW" + bytes([WIRE_VERSION])
    with refused(CodecError, "format-version", value=b"\x02"):
        decode(frame[:2] + b"\x02" + frame[3:])
    with refused(CodecError, "malformed"):
        decode(b"XX" + frame[2:])
    for short in (b"", b"L", b"LW", frame[:3]):
        with refused(CodecError, "format-version" if short == b"LW" else "malformed"):
            decode(short)


def test_unknown_and_missing_fields_are_refused() -> None:
    body = msgspec.msgpack.encode({"type": "TrainingEnd", "trees": 1, "records": 1, "gradient": 0.5})
    with refused_about("gradient", CodecError, "malformed", value="TrainingEnd"):
        decode_fields("TrainingEnd", body)
    with refused_about("trees", CodecError, "malformed", value="TrainingEnd"):
        decode_fields("TrainingEnd", msgspec.msgpack.encode({"type": "TrainingEnd"}))
    with refused(CodecError, "malformed", value="Ready"):
        decode_fields("Ready", body)


def test_nested_fields_that_the_schema_does_not_know_are_not_kept() -> None:
    """What a peer hides inside a nested value never reaches the message, and so no view."""
    plain = LevelRequest(0, 1, released((NodeSplit(0, RowMask(3, "bits", b"\x05")),)), ())
    fields = msgspec.msgpack.decode(encode_fields(plain))
    fields["splits"][0]["gradient"] = 0.5
    found = decode_fields("Level", msgspec.msgpack.encode(fields))
    assert found == plain


def test_keys_rows_and_unsealed_sums_have_no_encoding() -> None:
    private = engine("plain").generate(0, protection=SecureRandom(), insecure=True)
    rows = private.encrypt(np.ones((3, 1), np.int64), Layout((1,), 3, 1))
    sums = rows.group_sums(np.zeros((3, 1), np.int32), 1)
    for secret in (private, private.public, rows, sums):
        for message in (LevelHistograms(0, 0, 0, 1, (0,), (1,), secret), EncryptedTreeRows(0, 0, 1, secret)):  # type: ignore[arg-type]
            with refused(CodecError, "not-sendable", value=type(secret)):
                encode(message, (0, 0))
    sealed = LevelHistograms(0, 0, 0, 1, (0,), (1,), sums.rerandomize())
    assert decode(encode(sealed, (0, 0))) == (sealed, (0, 0))


def test_arrays_and_numpy_numbers_have_no_encoding_of_their_own() -> None:
    for value in (np.ones(2), np.float64(0.5), np.int64(1)):
        if isinstance(value, float):  # float64 is a Python float: refused here or, by some versions, on arrival
            with pytest.raises(CodecError) as caught:
                decode(encode(TrainingEnd(value, 0), (0,)))  # type: ignore[arg-type]
            assert caught.value.code in ("not-sendable", "malformed")
        else:
            with refused(CodecError, "not-sendable", value=type(value)):
                encode(TrainingEnd(value, 0), (0,))  # type: ignore[arg-type]


def test_redacted_keeps_digest_and_size_of_a_ciphertext() -> None:
    private = engine("plain").generate(0, protection=SecureRandom(), insecure=True)
    block = private.encrypt(np.arange(4)[:, None], Layout((9,), 4, 1)).block()
    kept = redacted(EncryptedTreeRows(0, 0, 1, block))
    assert (kept.gradients.size, kept.gradients.count, kept.gradients.shape) == (len(block.data), 4, (4,))
    assert block.data not in encode_fields(kept)
    clear = OwnSplit(0, 0, "c", 0.5, 0, RowMask(4, "bits", b"\x0f"))
    assert redacted(clear) is clear
