"""Text of a peer in every field of every message: none of it reaches an error, a log or a terminal raw or at length."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import typer
from msgspec import inspect

import wiring
from labelward.cli._errors import fail
from labelward.cli._run_log import RunLog
from labelward.errors import LONGEST_REASON, LabelwardError, quoted
from labelward.messages import codec
from labelward.messages.base import Message
from labelward.party.context import Context
from labelward.party.roles import Topology
from labelward.party.transcript import FORMAT, Header, Transcript
from labelward.protocols.secureboost.params import SecureBoost
from labelward.transport.base import Failure, Transport
from labelward.transport.grpc.attempt import from_record
from labelward.transport.grpc.session_records import RunFailed
from wiring import Setting, make_labels, make_parts

LONG = 20_000 * "A"
HOSTILE = "\x1b]0;owned\x07\r\nerror: all is well\u202e\x9b2J" + LONG
CLASSES = {name: kind for name, kind in codec._schema().items() if issubclass(kind, Message)}
PREFIX = codec._MAGIC + bytes([codec.WIRE_VERSION])
_SIMPLE: dict[type, Any] = {
    inspect.IntType: 0,
    inspect.FloatType: 0.0,
    inspect.BoolType: False,
    inspect.StrType: "",
    inspect.BytesType: b"",
    inspect.NoneType: None,
    inspect.VarTupleType: [],
    inspect.DictType: {},
}


def minimal(kind: inspect.Type) -> Any:
    """Return a value of a type, as plain data."""
    if isinstance(kind, inspect.Metadata):
        return minimal(kind.type)
    if isinstance(kind, inspect.UnionType):
        return minimal(kind.types[0])
    if isinstance(kind, inspect.LiteralType):
        return kind.values[0]
    if isinstance(kind, inspect.StructType):
        tag = {} if kind.tag is None else {str(kind.tag_field): kind.tag}
        return tag | {field.encode_name: minimal(field.type) for field in kind.fields}
    return _SIMPLE.get(type(kind))


def hostile(kind: inspect.Type) -> Iterator[Any]:
    """Yield values of a type in each place of which, in turn, there is hostile text."""
    yield HOSTILE
    if isinstance(kind, inspect.Metadata):
        yield from hostile(kind.type)
    elif isinstance(kind, inspect.UnionType):
        for each in kind.types:
            yield from hostile(each)
    elif isinstance(kind, inspect.DictType):
        yield {HOSTILE: HOSTILE}
        yield from ({"key": value} for value in hostile(kind.value_type))
    elif isinstance(kind, inspect.VarTupleType):
        yield from ([value] for value in hostile(kind.item_type))
    elif isinstance(kind, inspect.StructType):
        whole = minimal(kind)
        yield whole | {HOSTILE: HOSTILE}
        for field in kind.fields:
            yield from (whole | {field.encode_name: value} for value in hostile(field.type))


class Mouth(Transport):
    """Delivers one frame."""

    party = "victim"

    def __init__(self, frame: bytes) -> None:
        self.frame = frame

    def send(self, peer: str, frame: bytes) -> None: ...
    def receive(self, timeout: float) -> tuple[str, bytes]:
        return "liar", self.frame

    def fail(self, failure: Failure) -> None: ...
    def close(self) -> None: ...


def received(frame: bytes) -> Message | LabelwardError:
    """Return the message, or the error of a party that awaits another one and then gets the frame again."""
    transcript = Transcript(Header(FORMAT, "", "victim", "active", ("liar",), (1, 0), "none", 0, (), {}))
    ctx = Context(Mouth(frame), topology=Topology.star("victim", "liar"), transcript=transcript, seed=1)
    with pytest.raises(LabelwardError) as caught:
        ctx.recv("liar", CLASSES["TrainingEnd"], (9,))
    return caught.value


def shown(error: LabelwardError, folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Return all that people may be shown of an error: on the terminal, in both forms of the log, in its file."""
    capsys.readouterr()
    for json_lines in (False, True):
        with RunLog(folder / "log.jsonl", json_lines=json_lines, quiet=False) as log:
            log("away", {"peer": "liar", "reason": str(error)})
            log.failed(error)
    with pytest.raises(typer.Exit):
        fail(str(error), 3)
    printed = capsys.readouterr()
    stored = (folder / "log.jsonl").read_text()
    (folder / "log.jsonl").unlink()
    lines = [json.loads(line) for line in stored.splitlines()]
    return "\n".join([printed.out, printed.err, *(str(value) for line in lines for value in line.values())])


def assert_harmless(text: str, longest: int = 400) -> None:
    assert [char for char in text if not char.isprintable() and char != "\n"] == []
    assert "\nerror: all" not in text
    assert (longest + 1) * "A" not in text


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_in_any_field_of_any_message(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kind = inspect.type_info(CLASSES[name])
    errors: dict[str, LabelwardError] = {}
    for body in hostile(kind):
        frame = PREFIX + msgspec.msgpack.encode([name, [0], body])
        error = received(frame)
        assert isinstance(error, LabelwardError)
        errors[str(error)] = error
    assert errors
    for error in errors.values():
        assert_harmless(shown(error, tmp_path, capsys))


@pytest.mark.parametrize("raw", [[HOSTILE, [0], {}], ["Hello", [HOSTILE], {}], HOSTILE, {HOSTILE: 1}])
def test_in_what_is_around_a_message(raw: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    error = received(PREFIX + msgspec.msgpack.encode(raw))
    assert isinstance(error, LabelwardError)
    assert_harmless(shown(error, tmp_path, capsys))


TEXTS = [
    ("liar", "Hello", ("version",)),
    ("liar", "Hello", ("party",)),
    ("liar", "Hello", ("job", HOSTILE)),
    ("liar", "Hello", ("job", "model.kind")),
    ("liar", "Hello", ("terms", HOSTILE)),
    ("active", "Hello", ("version",)),
    ("active", "Hello", ("job", HOSTILE)),
    ("active", "KeyOffer", ("model",)),
    ("active", "KeyOffer", ("key", "engine")),
    ("active", "TreeRows", ("gradients", "engine")),
    ("active", "TreeRows", ("gradients", "kind")),
    ("active", "PredictRequest", ("model",)),
    ("liar", "LevelSums", ("sums", "engine")),
    ("liar", "LevelSums", ("sums", "kind")),
]


@pytest.mark.parametrize(("who", "name", "way"), TEXTS, ids=lambda each: str(each)[:40].encode().hex()[:12])
def test_where_a_run_reads_it(
    who: str, name: str, way: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any
) -> None:
    """A party whose program meets the text ends with an error that does not repeat it."""

    class Changed(wiring.Wire):
        def send(self, peer: str, frame: bytes) -> None:
            kind, step, body = msgspec.msgpack.decode(frame[len(PREFIX) :])
            if (self.party, kind) == (who, name):
                place = body
                for key in way[:-1]:
                    place = place.setdefault(key, {})
                place[way[-1]] = HOSTILE
                frame = PREFIX + msgspec.msgpack.encode([kind, step, body])
            super().send(peer, frame)

    monkeypatch.setattr(wiring, "Wire", Changed)
    parts = make_parts(31, 60, {"active": 1, "liar": 2})
    setting = Setting(parts, make_labels(31, parts), SecureBoost(trees=1, depth=2, bins=8))
    with pytest.raises(LabelwardError) as caught:
        setting.run()
    assert_harmless(shown(caught.value, tmp_path, capsys))


def test_in_a_note_of_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    error = from_record("liar", RunFailed(b"", HOSTILE, HOSTILE, HOSTILE))
    assert_harmless(shown(error, tmp_path, capsys), LONGEST_REASON)


def test_quotations_are_short_and_printable() -> None:
    assert quoted("plain: ä") == "plain: ä"
    assert len(quoted(HOSTILE)) == len(quoted(HOSTILE.encode())) == 80
    assert quoted("a\nb\u202e") == "a?b?"
