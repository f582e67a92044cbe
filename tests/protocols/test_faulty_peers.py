"""A party whose messages cannot be is named; nobody goes on with what it said."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

import wiring
from labelward.errors import EncryptionError, HandshakeError, LabelwardError, PeerError
from labelward.messages.base import CipherDigest, Message, RowMask
from labelward.messages.codec import decode, encode
from labelward.messages.setup import KeyOffer
from labelward.messages.tree import ChosenSplits, Level, LevelSums, NodeSplit, PredictRequest, SplitRows, TreeStart
from labelward.protocols.tree.params import SecureBoost
from labelward.transport.base import Transport
from wiring import Setting, make_labels, make_parts

Change = Callable[[Any], Message]
replace = msgspec.structs.replace


class Liar(wiring.Wire):
    """Sends other messages of one type than its program meant to."""

    def __init__(self, inner: Transport, who: str, kind: type[Message], change: Change) -> None:
        super().__init__(inner)
        self.who, self.kind, self.change = who, kind, change

    def send(self, peer: str, frame: bytes) -> None:
        message, step = decode(frame)
        if self.party == self.who and isinstance(message, self.kind):
            frame = encode(self.change(message), step)
        super().send(peer, frame)


@pytest.fixture
def attempt(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, type[Message], Change], LabelwardError]:
    """Run with one liar and return what the run raised."""
    parts = make_parts(31, 60, {"active": 1, "left": 2, "right": 2})
    setting = Setting(parts, make_labels(31, parts), SecureBoost(trees=1, depth=3, bins=8), timeout=10.0)

    def run(who: str, kind: type[Message], change: Change) -> LabelwardError:
        monkeypatch.setattr(wiring, "Wire", lambda end, nap: Liar(end, who, kind, change))
        with pytest.raises(LabelwardError) as caught:
            setting.run()
        return caught.value

    return run


def flipped(split: NodeSplit) -> NodeSplit:
    """One more, or one fewer, row goes left."""
    mask = split.left.unpack(split.left.total)
    mask[0] ^= True
    return NodeSplit(split.node, RowMask.pack(mask))


def other_total(split: NodeSplit) -> NodeSplit:
    return NodeSplit(split.node, RowMask.pack(np.ones(3, dtype=np.bool_)))


def digest(block: Any) -> CipherDigest:
    return CipherDigest(block.engine, block.kind, block.shape, block.layout, block.count, len(block.data), b"")


def fewer_columns(block: Any) -> Any:
    """Only the first column of groups."""
    return replace(block, shape=(1, block.shape[1]), count=block.count // 2, data=block.data[: len(block.data) // 2])


def fewer_numbers(block: Any) -> Any:
    """Only gradient and hessian."""
    values = np.frombuffer(block.data, np.int64).reshape(-1, 3)
    layout = replace(block.layout, bounds=block.layout.bounds[:2])
    return replace(block, layout=layout, data=np.ascontiguousarray(values[:, :2]).tobytes())


def first(splits: tuple[Any, ...], change: Callable[[Any], Any]) -> tuple[Any, ...]:
    return tuple(change(split) if position == 0 else split for position, split in enumerate(splits))


PASSIVE = [
    ("other bins", LevelSums, lambda m: replace(m, bins=m.bins - 1)),
    ("no bins", LevelSums, lambda m: replace(m, bins=0)),
    ("a digest", LevelSums, lambda m: replace(m, sums=digest(m.sums))),
    ("other columns", LevelSums, lambda m: replace(m, sums=fewer_columns(m.sums)) if m.depth else m),
    ("other numbers", LevelSums, lambda m: replace(m, sums=fewer_numbers(m.sums))),
    ("another node", SplitRows, lambda m: replace(m, splits=first(m.splits, lambda s: replace(s, node=99)))),
    ("no node", SplitRows, lambda m: replace(m, splits=())),
    ("other rows", SplitRows, lambda m: replace(m, splits=first(m.splits, flipped))),
]

ACTIVE = [
    ("a node that is no leaf", Level, lambda m: replace(m, build=(77,))),
    ("a split of no leaf", Level, lambda m: replace(m, splits=(NodeSplit(77, RowMask(0, "bits", b"")),))),
    ("an unknown column", ChosenSplits, lambda m: replace(m, splits=first(m.splits, lambda s: replace(s, column=9)))),
    ("a negative column", ChosenSplits, lambda m: replace(m, splits=first(m.splits, lambda s: replace(s, column=-1)))),
    ("an unknown bin", ChosenSplits, lambda m: replace(m, splits=first(m.splits, lambda s: replace(s, code=500)))),
    ("another record", ChosenSplits, lambda m: replace(m, splits=first(m.splits, lambda s: replace(s, record=5)))),
    ("a digest of rows", TreeStart, lambda m: replace(m, gradients=digest(m.gradients))),
    ("fewer rows", TreeStart, lambda m: replace(m, rows=RowMask.pack(np.arange(60) > 3))),
    ("rows that are not there", PredictRequest, lambda m: replace(m, stop=m.stop + 5) if m.stop > m.start else m),
]


@pytest.mark.parametrize(("kind", "change"), [case[1:] for case in PASSIVE], ids=[case[0] for case in PASSIVE])
def test_a_passive_party_is_named(attempt: Any, kind: type[Message], change: Change) -> None:
    error = attempt("left", kind, change)
    assert isinstance(error, PeerError)
    assert error.peer == "left"


@pytest.mark.parametrize(("kind", "change"), [case[1:] for case in ACTIVE], ids=[case[0] for case in ACTIVE])
def test_the_active_party_is_named(attempt: Any, kind: type[Message], change: Change) -> None:
    error = attempt("active", kind, change)
    assert isinstance(error, PeerError)
    assert error.peer == "active"


@pytest.mark.parametrize(
    ("who", "kind", "change"),
    [
        ("left", SplitRows, lambda m: replace(m, splits=first(m.splits, other_total))),
        ("active", TreeStart, lambda m: replace(m, rows=RowMask.pack(np.ones(7, dtype=np.bool_)))),
        ("active", Level, lambda m: replace(m, splits=first(m.splits, other_total))),
    ],
    ids=["split", "start", "level"],
)
def test_masks_over_other_rows_are_refused(attempt: Any, who: str, kind: type[Message], change: Change) -> None:
    error = attempt(who, kind, change)
    assert isinstance(error, PeerError)
    assert error.peer == who
    assert "a row mask speaks of" in str(error)


@pytest.mark.parametrize("change", [{"key": b"0" * 16}, {"kind": "rows"}, {"data": b""}], ids=["key", "kind", "data"])
def test_ciphertexts_that_cannot_be_are_refused(attempt: Any, change: dict[str, Any]) -> None:
    error = attempt("left", LevelSums, lambda m: replace(m, sums=replace(m.sums, **change)))
    assert isinstance(error, PeerError)
    assert error.peer == "left"
    assert isinstance(error.__cause__, EncryptionError)


def test_a_key_that_the_job_does_not_name(attempt: Any) -> None:
    error = attempt("active", KeyOffer, lambda m: replace(m, key=replace(m.key, engine="paillier", bits=1024)))
    assert isinstance(error, HandshakeError)
    assert "engine 'paillier' with 1024 bits" in str(error)
