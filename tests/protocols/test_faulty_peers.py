"""A party whose messages cannot be is named; nobody goes on with what it said."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
from malicious_peer import Change, Liar

import wiring
from blames import blamed
from labelward.errors import EncryptionError, HandshakeError, LabelwardError, PeerError
from labelward.he.base import Layout
from labelward.messages.base import CipherDigest, Message, RowMask
from labelward.messages.handshake import KeyOffer
from labelward.messages.tree import (
    EncryptedForestRows,
    EncryptedTreeRows,
    LevelHistograms,
    LevelRequest,
    NodeSplit,
    PredictAnswers,
    PredictRequest,
    SplitMasks,
    TrainingEnd,
    TreeStart,
    WinningSplits,
)
from labelward.protocols.secureboost.params import FederatedForest, SecureBoost, TreeModel
from wiring import Setting, make_labels, make_parts, with_missing

replace = msgspec.structs.replace

WRONG = ("peer-message", "malformed", "ciphertext", "key", "capacity", "range", "not-sendable")
"""What a message that a peer sent can be."""


@pytest.fixture
def attempt(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, type[Message], Change], LabelwardError]:
    """Run with one liar and return what the run raised."""
    return attempts(monkeypatch)


@pytest.fixture
def forest_attempt(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, type[Message], Change], LabelwardError]:
    """The same with a forest whose trees grow side by side, on bags drawn with replacement."""
    return attempts(monkeypatch, FederatedForest(trees=3, depth=2, bins=8, replace=True))


def attempts(
    monkeypatch: pytest.MonkeyPatch, params: TreeModel | None = None
) -> Callable[[str, type[Message], Change], LabelwardError]:
    parts = with_missing(31, make_parts(31, 60, {"active": 1, "left": 2, "right": 2}), 0.1)
    parts["left"] = np.column_stack([parts["left"], np.arange(60) % 7])
    labels = make_labels(31, {party: np.nan_to_num(x[:, :1]) for party, x in parts.items()})
    setting = Setting(
        parts,
        labels,
        params or SecureBoost(trees=2, depth=3, bins=8, row_fraction=0.9),
        categories={"left": {2: tuple("abcdefg")}},
        timeout=60.0,
    )

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


def fewer_columns(message: Any) -> Any:
    """Only the first column of groups."""
    block, columns = message.sums, len(message.columns)
    count, data = block.count // columns, block.data[: len(block.data) // columns]
    sums = replace(block, shape=(1, block.shape[1]), count=count, data=data)
    return replace(message, columns=message.columns[:1], sizes=message.sizes[:1], kinds=message.kinds[:1], sums=sums)


def fewer_numbers(block: Any) -> Any:
    """Only gradient and hessian."""
    values = np.frombuffer(block.data, np.int64).reshape(-1, 3)
    layout = replace(block.layout, bounds=block.layout.bounds[:2])
    return replace(block, layout=layout, data=np.ascontiguousarray(values[:, :2]).tobytes())


def fewer_sums(block: Any) -> Any:
    """All but the last sum."""
    size, count = len(block.data) // block.count, block.count - 1
    return replace(block, shape=(1, count), count=count, data=block.data[: size * count])


def exchanged(cells: bytes) -> bytes:
    """As many cells with rows, but other ones."""
    bits = np.unpackbits(np.frombuffer(cells, np.uint8), bitorder="little")
    full, empty = np.flatnonzero(bits)[0], np.flatnonzero(bits == 0)[0]
    bits[[full, empty]] = 0, 1
    return np.packbits(bits, bitorder="little").tobytes()


def turned(block: Any) -> Any:
    """With a sum of no row first."""
    values = np.frombuffer(block.data, np.int64).copy()
    values[:3] = 0
    return replace(block, data=values.tobytes())


def first(splits: tuple[Any, ...], change: Callable[[Any], Any]) -> tuple[Any, ...]:
    return tuple(change(split) if position == 0 else split for position, split in enumerate(splits))


def moved(sizes: tuple[int, ...]) -> tuple[int, ...]:
    return (sizes[0] - 1, *sizes[1:])


def fewer_rows(block: Any) -> Any:
    """All but the last row."""
    size, count = len(block.data) // block.count, block.count - 1
    return replace(block, shape=(count,), count=count, data=block.data[: size * count])


DIGEST = CipherDigest("plain", "rows", (54,), Layout((1,), 54, 1), 54, 54, b"")

PASSIVE = [
    ("other bins", LevelHistograms, lambda m: replace(m, sizes=tuple(size - 1 for size in m.sizes))),
    ("no bins", LevelHistograms, lambda m: replace(m, sizes=(0,) * len(m.sizes))),
    ("bins of no column", LevelHistograms, lambda m: replace(m, sizes=(*m.sizes, 1))),
    ("more bins than a column may have", LevelHistograms, lambda m: replace(m, sizes=(1000,) * len(m.sizes))),
    ("bins that change", LevelHistograms, lambda m: replace(m, sizes=moved(m.sizes)) if m.depth else m),
    ("kinds that change", LevelHistograms, lambda m: replace(m, kinds=bytes([2] * len(m.sizes))) if m.depth else m),
    ("an unknown kind", LevelHistograms, lambda m: replace(m, kinds=bytes([9] * len(m.sizes)))),
    ("kinds of no column", LevelHistograms, lambda m: replace(m, kinds=bytes(len(m.sizes) + 1))),
    ("a column twice", LevelHistograms, lambda m: replace(m, columns=(m.columns[0],) * len(m.columns))),
    ("an unknown column", LevelHistograms, lambda m: replace(m, columns=(99, *m.columns[1:]))),
    ("a part too many", LevelHistograms, lambda m: replace(m, part=m.part + 1)),
    ("no part", LevelHistograms, lambda m: replace(m, parts=0)),
    ("parts without end", LevelHistograms, lambda m: replace(m, parts=1 << 40)),
    ("a digest", LevelHistograms, lambda m: replace(m, sums=digest(m.sums))),
    ("other columns", LevelHistograms, lambda m: fewer_columns(m) if m.depth else m),
    ("fewer sums", LevelHistograms, lambda m: replace(m, sums=fewer_sums(m.sums))),
    ("cells of fewer nodes", LevelHistograms, lambda m: replace(m, cells=m.cells[:-1])),
    ("cells of more nodes", LevelHistograms, lambda m: replace(m, cells=m.cells + b"\0")),
    ("rows in every cell", LevelHistograms, lambda m: replace(m, cells=b"\xff" * len(m.cells))),
    ("rows in no cell", LevelHistograms, lambda m: replace(m, cells=bytes(len(m.cells)))),
    ("a full cell for an empty one", LevelHistograms, lambda m: replace(m, cells=exchanged(m.cells)) if m.depth else m),
    ("no bins that are left out", LevelHistograms, lambda m: replace(m, implied=b"")),
    ("a bin of no column left out", LevelHistograms, lambda m: replace(m, implied=b"\xfe\xff" * (len(m.implied) // 2))),
    ("nothing left out", LevelHistograms, lambda m: replace(m, implied=b"\xff" * len(m.implied))),
    ("a sum of no row", LevelHistograms, lambda m: replace(m, sums=turned(m.sums))),
    ("other numbers", LevelHistograms, lambda m: replace(m, sums=fewer_numbers(m.sums))),
    ("another node", SplitMasks, lambda m: replace(m, splits=first(m.splits, lambda s: replace(s, node=99)))),
    ("no node", SplitMasks, lambda m: replace(m, splits=())),
    ("other rows", SplitMasks, lambda m: replace(m, splits=first(m.splits, flipped))),
    ("sides of other rows", PredictAnswers, lambda m: replace(m, rows=m.rows + 1)),
    ("sides of other splits", PredictAnswers, lambda m: replace(m, records=m.records + 1)),
    ("sides that are cut off", PredictAnswers, lambda m: replace(m, bits=m.bits[:-1]) if m.bits else m),
]

ACTIVE = [
    ("a node that is no leaf", LevelRequest, lambda m: replace(m, build=(77,))),
    ("a split of no leaf", LevelRequest, lambda m: replace(m, splits=(NodeSplit(77, RowMask(0, "bits", b"")),))),
    ("an unknown column", WinningSplits, lambda m: replace(m, splits=first(m.splits, lambda s: replace(s, column=9)))),
    ("a negative column", WinningSplits, lambda m: replace(m, splits=first(m.splits, lambda s: replace(s, column=-1)))),
    ("an unknown bin", WinningSplits, lambda m: replace(m, splits=first(m.splits, unknown_bin))),
    ("an unknown category", WinningSplits, lambda m: replace(m, splits=first(m.splits, lambda s: categories_of(s, 7)))),
    (
        "a negative category",
        WinningSplits,
        lambda m: replace(m, splits=first(m.splits, lambda s: categories_of(s, -1))),
    ),
    ("categories of numbers", WinningSplits, lambda m: replace(m, splits=first(m.splits, of_numbers))),
    ("another record", WinningSplits, lambda m: replace(m, splits=first(m.splits, lambda s: replace(s, record=5)))),
    ("a digest of rows", EncryptedTreeRows, lambda m: replace(m, gradients=digest(m.gradients))),
    ("a digest before its time", TreeStart, lambda m: replace(m, gradients=DIGEST)),
    ("no rows", TreeStart, lambda m: replace(m, rows=RowMask.pack(np.zeros(60, dtype=np.bool_)))),
    ("fewer blocks than due", EncryptedTreeRows, lambda m: replace(m, parts=0)),
    ("more blocks than due", EncryptedTreeRows, lambda m: replace(m, parts=m.parts + 1)),
    ("another block than due", EncryptedTreeRows, lambda m: replace(m, part=m.part + 1)),
    ("a block of fewer rows", EncryptedTreeRows, lambda m: replace(m, gradients=fewer_rows(m.gradients))),
    (
        "a block of more rows than it has",
        EncryptedTreeRows,
        lambda m: replace(m, gradients=replace(m.gradients, shape=(55,))),
    ),
    ("a block of sums", EncryptedTreeRows, lambda m: replace(m, gradients=replace(m.gradients, kind="sums"))),
    (
        "a block under another key",
        EncryptedTreeRows,
        lambda m: replace(m, gradients=replace(m.gradients, key=b"0" * 16)),
    ),
    ("fewer rows", TreeStart, lambda m: replace(m, rows=RowMask.pack(np.arange(60) > 3))),
    ("repeats of other rows", TreeStart, lambda m: replace(m, repeats=b"\1\1")),
    ("rows that are drawn no times", TreeStart, lambda m: replace(m, repeats=bytes(54))),
    ("repeats where rows are drawn once", TreeStart, lambda m: replace(m, repeats=b"\2" * 54)),
    ("a split below a split", LevelRequest, lambda m: replace(m, splits=(*m.splits, *map(below, m.splits)))),
    ("a side without rows", LevelRequest, lambda m: replace(m, splits=first(m.splits, one_sided))),
    ("a split that parts no rows", WinningSplits, lambda m: replace(m, splits=first(m.splits, everything))),
    ("no trees", TreeStart, lambda m: replace(m, together=0)),
    ("another tree", TreeStart, lambda m: replace(m, tree=m.tree + 1)),
    ("a tree before the first", TreeStart, lambda m: replace(m, tree=-1)),
    ("more splits than there are", TrainingEnd, lambda m: replace(m, records=m.records + 1)),
    ("fewer splits than none", TrainingEnd, lambda m: replace(m, records=-1)),
    ("rows that are not there", PredictRequest, lambda m: replace(m, stop=m.stop + 5) if m.stop > m.start else m),
]


def below(split: NodeSplit) -> NodeSplit:
    """The left child, split again in the same message; the sides are as they may be."""
    rows = int(split.left.unpack(split.left.total).sum())
    return NodeSplit(2 * split.node + 1, RowMask.pack(np.arange(rows) > rows // 2))


def one_sided(split: NodeSplit) -> NodeSplit:
    return NodeSplit(split.node, RowMask.pack(np.ones(split.left.total, dtype=np.bool_)))


def everything(split: Any) -> Any:
    """All known values, and the missing ones."""
    return replace(split, column=0, code=7, missing_left=True, categories=())


def unknown_bin(split: Any) -> Any:
    return replace(split, column=0, code=500, categories=())


def categories_of(split: Any, code: int) -> Any:
    return replace(split, column=2, code=0, categories=(0, code))


def of_numbers(split: Any) -> Any:
    return replace(split, column=0, code=0, categories=(0,))


@pytest.mark.parametrize(("kind", "change"), [case[1:] for case in PASSIVE], ids=[case[0] for case in PASSIVE])
def test_a_passive_party_is_named(attempt: Any, kind: type[Message], change: Change) -> None:
    error = attempt("left", kind, change)
    assert isinstance(error, PeerError)
    assert error.peer == "left"
    assert error.code in WRONG


@pytest.mark.parametrize(("kind", "change"), [case[1:] for case in ACTIVE], ids=[case[0] for case in ACTIVE])
def test_the_active_party_is_named(attempt: Any, kind: type[Message], change: Change) -> None:
    error = attempt("active", kind, change)
    assert isinstance(error, PeerError)
    assert error.peer == "active"
    assert error.code in WRONG


def test_a_tree_that_was_not_announced_is_refused_at_once(attempt: Any) -> None:
    error = attempt("active", TreeStart, lambda m: replace(m, tree=m.tree + 7))
    assert isinstance(error, PeerError)
    assert (error.code, error.message, error.value) == ("peer-message", "TreeStart", 7)


def test_a_split_of_no_leaf_is_named_with_its_step(attempt: Any) -> None:
    nowhere = (NodeSplit(77, RowMask(0, "bits", b"")),)
    error = attempt("active", LevelRequest, lambda m: replace(m, splits=nowhere) if m.depth == 1 else m)
    assert isinstance(error, PeerError)
    assert (error.peer, error.message, error.step) == ("active", "Level", (0, 1))


def test_sums_below_the_agreed_depth_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The party that owns the root's split knows its children, and yet sums none where trees have one split."""
    parts = {"active": np.zeros((40, 1)), "left": np.arange(40.0)[:, None]}
    setting = Setting(parts, (np.arange(40) > 17).astype(np.int64), SecureBoost(trees=1, depth=1), timeout=60.0)
    deeper = lambda m: replace(m, build=(1, 2)) if m.depth else m  # noqa: E731
    monkeypatch.setattr(wiring, "Wire", lambda end, nap: Liar(end, "active", LevelRequest, deeper))
    with blamed("active", "peer-message", message="Level", step=(0, 1), value=1, about="depth 1"):
        setting.run()


FOREST = [
    ("left", "other rows", SplitMasks, lambda m: replace(m, splits=first(m.splits, flipped))),
    ("active", "repeats of other rows", TreeStart, lambda m: replace(m, repeats=m.repeats[:-1])),
    ("active", "rows that are drawn no times", TreeStart, lambda m: replace(m, repeats=bytes(len(m.repeats)))),
    ("active", "rows that are drawn without end", TreeStart, lambda m: replace(m, repeats=b"\xff" * len(m.repeats))),
    ("active", "a digest of gradients", EncryptedForestRows, lambda m: replace(m, gradients=digest(m.gradients))),
    (
        "active",
        "gradients of fewer rows",
        EncryptedForestRows,
        lambda m: replace(m, gradients=replace(m.gradients, shape=(7,))),
    ),
    ("active", "a block too many", EncryptedForestRows, lambda m: replace(m, parts=m.parts + 1)),
    ("active", "another block", EncryptedForestRows, lambda m: replace(m, part=m.part + 1)),
    ("active", "gradients of a bag", TreeStart, lambda m: replace(m, rows=RowMask.pack(np.arange(60) > 60))),
]


@pytest.mark.parametrize(
    ("who", "kind", "change"),
    [(who, kind, change) for who, _, kind, change in FOREST],
    ids=[case[1] for case in FOREST],
)
def test_a_party_of_a_forest_is_named(forest_attempt: Any, who: str, kind: type[Message], change: Change) -> None:
    error = forest_attempt(who, kind, change)
    assert isinstance(error, PeerError)
    assert error.peer == who
    assert error.code in WRONG


@pytest.mark.parametrize(
    ("who", "kind", "change"),
    [
        ("left", SplitMasks, lambda m: replace(m, splits=first(m.splits, other_total))),
        ("active", TreeStart, lambda m: replace(m, rows=RowMask.pack(np.ones(7, dtype=np.bool_)))),
        ("active", LevelRequest, lambda m: replace(m, splits=first(m.splits, other_total))),
    ],
    ids=["split", "start", "level"],
)
def test_masks_over_other_rows_are_refused(attempt: Any, who: str, kind: type[Message], change: Change) -> None:
    error = attempt(who, kind, change)
    assert isinstance(error, PeerError)
    assert (error.peer, error.code) == (who, "malformed")
    assert "row mask" in error.reason


@pytest.mark.parametrize("change", [{"key": b"0" * 16}, {"kind": "rows"}, {"data": b""}], ids=["key", "kind", "data"])
def test_ciphertexts_that_cannot_be_are_refused(attempt: Any, change: dict[str, Any]) -> None:
    error = attempt("left", LevelHistograms, lambda m: replace(m, sums=replace(m.sums, **change)))
    assert isinstance(error, PeerError)
    assert (error.peer, error.message) == ("left", "LevelSums")
    assert isinstance(error.__cause__, EncryptionError)
    assert error.code == error.__cause__.code in ("key", "ciphertext")


def test_a_key_that_the_job_does_not_name(attempt: Any) -> None:
    error = attempt("active", KeyOffer, lambda m: replace(m, key=replace(m.key, engine="paillier", bits=1024)))
    assert isinstance(error, HandshakeError)
    assert (error.code, error.value) == ("disagreement", ("paillier", 1024))
