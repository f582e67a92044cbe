"""What a peer may make a party allocate or do ends at what was agreed, however little the peer sends for it."""

from __future__ import annotations

import dataclasses
import tracemalloc
from collections.abc import Callable
from typing import Any, NoReturn

import msgspec
import numpy as np
import pytest
from malicious_peer import Change, Liar
from random_models import converse, make_model

import wiring
from blames import blamed
from labelward.data.encoding import MAX_CATEGORIES
from labelward.errors import PeerError
from labelward.he import engine as make_engine
from labelward.he.base import CipherBlock, Layout, PrivateKey
from labelward.messages.base import Message, RowMask, wire_name
from labelward.messages.explain import PathAnswers, PathRequest
from labelward.messages.tree import (
    EncryptedTreeRows,
    LevelHistograms,
    PredictAnswers,
    PredictRequest,
    TrainingEnd,
    TreeStart,
)
from labelward.party import context
from labelward.party.context import Context
from labelward.protocols.secureboost import histogram_message, predict
from labelward.protocols.secureboost.histogram_message import (
    HistogramBlock,
    HistogramRequest,
    PartyHistograms,
    receive_histograms,
)
from labelward.protocols.secureboost.params import FederatedForest, SecureBoost, TreeModel
from labelward.protocols.secureboost.passive import max_trees
from labelward.protocols.secureboost.predict import predict_passive
from labelward.protocols.secureboost.row_blocks import IncomingRows
from labelward.rng import SecureRandom
from released import released
from wiring import Setting, make_labels, make_parts

replace = msgspec.structs.replace
LAYOUT = Layout((5, 5, 1), 60, 2)
MIB = 1 << 20


class Fed(Context):
    """Receives these messages, whatever is awaited, and records nothing."""

    def __init__(self, *messages: Message) -> None:
        self.active, self.party, self.given = "active", "active", iter(messages)
        self.meter = wiring.Meter()

    def recv(self, *_: Any) -> Any:
        return next(self.given)

    def observe(self, *_: Any) -> None:
        pass


@pytest.fixture
def private() -> PrivateKey:
    return make_engine("plain").generate(0, protection=SecureRandom(1), insecure=True)


def empty_sums(
    private: PrivateKey, sizes: tuple[int, ...], kind: int, *, nodes: int = 1, part: int = 0
) -> LevelHistograms:
    """Return sums of columns in which no cell holds a row: bitmaps alone, and no ciphertext."""
    block = CipherBlock("plain", private.public.fingerprint, "sums", (1, 0), LAYOUT, 0, b"")
    count = len(sizes)
    return LevelHistograms(
        0, 0, part, 3, tuple(range(count)), sizes, block, bytes([kind] * count),
        bytes((count * nodes * max(sizes) + 7) // 8), b"\xff\xff" * count * nodes,
    )  # fmt: skip


def asked(*, nodes: int = 1, above: dict[int, tuple[int, int]] | None = None) -> HistogramRequest:
    totals = np.tile(np.array([[0, 0, 60 // nodes]]), (nodes, 1))
    return HistogramRequest(
        peer="left", tree=0, depth=0, wanted=tuple(range(nodes)), nodes=tuple(range(nodes)), layout=LAYOUT, max_bins=32,
        parents=None if above is None else parents(above), totals=dict(enumerate(totals)), count=2,
        range_of=dict.fromkeys(range(nodes), (np.full(3, -(10**6)), np.full(3, 10**6))),
    )  # fmt: skip


def parents(described: dict[int, tuple[int, int]]) -> PartyHistograms:
    """Return histograms of columns of these sizes and kinds, in a level of no node."""
    sizes, kinds = zip(*described.values(), strict=True)
    columns, none = np.array([*described]), np.zeros((len(described), 0, max(sizes), 3), dtype=np.int64)
    block = HistogramBlock(columns, none, np.array(sizes, np.int32), np.array(kinds, np.int8))
    return PartyHistograms((), (block,))


def at_no_cost(call: Callable[[], Any], value: int | None = None, about: str = "") -> None:
    """Expect the peer's first sums to be refused, and next to nothing to be allocated before that."""
    tracemalloc.start()
    try:
        with blamed("left", "peer-message", message="LevelSums", step=(0, 0, 0), about=about, value=value):
            call()
        assert tracemalloc.get_traced_memory()[1] < MIB  # the messages themselves were there before
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", [0, 1], ids=["ordered", "categorical"])
def test_bins_that_no_column_has_are_never_unpacked(private: PrivateKey, kind: int) -> None:
    """A bitmap of 256 KiB would become 50 MB of sums."""
    message = empty_sums(private, (65_535,), kind, nodes=32)
    at_no_cost(lambda: receive_histograms(Fed(message), asked(nodes=32), private), 65_535, "bins")


def test_a_column_does_not_grow_between_levels(private: PrivateKey) -> None:
    """As wide as an ordered column may be, but not what the level above told; 4,096 nodes would make it 3 MB."""
    message = empty_sums(private, (32,), 0, nodes=4096)
    above = asked(nodes=4096, above={0: (4, 0)})
    at_no_cost(lambda: receive_histograms(Fed(message), above, private), about="other columns than before")


def test_columns_do_not_come_more_often_than_they_are(private: PrivateKey) -> None:
    """The second part repeats the first: its columns are known, but they are too many."""
    parts = [empty_sums(private, (4, 4), 0, part=part) for part in range(3)]
    with blamed("left", "peer-message", message="LevelSums", step=(0, 0, 1), value=4):
        receive_histograms(Fed(*parts), asked(above={0: (4, 0), 1: (4, 0)}), private)


def test_columns_are_never_without_end(private: PrivateKey, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(histogram_message, "_MAX_COLUMNS", 5)
    parts = [empty_sums(private, (4, 4), 0, part=part) for part in range(3)]
    with blamed("left", "peer-message", message="LevelSums", step=(0, 0, 2), value=6):
        receive_histograms(Fed(*parts), asked(), private)


def test_columns_are_no_more_than_were_agreed(private: PrivateKey) -> None:
    parts = [empty_sums(private, (4, 4), 0, part=part) for part in range(3)]
    with blamed("left", "peer-message", message="LevelSums", step=(0, 0, 1), value=4):
        receive_histograms(Fed(*parts), dataclasses.replace(asked(), columns=3), private)


def run_with(monkeypatch: pytest.MonkeyPatch, params: TreeModel, lie: tuple[str, type[Message], Change]) -> PeerError:
    """Run with one liar and return the error of the run."""
    parts = make_parts(31, 60, {"active": 1, "left": 2})
    setting = Setting(parts, make_labels(31, parts), params)
    monkeypatch.setattr(wiring, "Wire", lambda end, nap: Liar(end, *lie))
    with pytest.raises(PeerError) as caught:
        setting.run()
    return caught.value


def test_all_values_are_no_more_than_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where every value is a candidate no number of bins is agreed on, but the number of rows is."""
    wide = lambda m: replace(m, columns=(0,), sizes=(61,), kinds=b"", cells=bytes(8), implied=b"\xff\xff")  # noqa: E731
    error = run_with(monkeypatch, SecureBoost(trees=1, depth=2, candidates="all"), ("left", LevelHistograms, wide))
    assert (error.peer, error.code, error.message, error.value) == ("left", "peer-message", "LevelSums", 61)


def test_as_many_categories_as_a_table_may_have() -> None:
    """The bound is that of encoded tables, and a column with so many, most of them in no row, is trained on."""
    assert histogram_message._MAX_CATEGORIES == MAX_CATEGORIES
    parts = {"active": np.zeros((60, 1)), "left": (np.arange(60.0) % 5)[:, None]}
    names = tuple(map(str, range(MAX_CATEGORIES)))
    labels = (np.arange(60) % 5 > 2).astype(np.int64)
    run = Setting(parts, labels, SecureBoost(trees=1, depth=2), categories={"left": {0: names}}).run()
    assert set(run.shares["left"].own.categories[0]) in ({0, 1, 2}, {3, 4})


def test_numbers_that_the_bytes_have_no_room_for(private: PrivateKey, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred thousand numbers a row, told in a layout alone, would be 80 GB for a hundred thousand rows."""
    n, due = 100_000, 16_384
    layout = Layout((1,) * 100_000, n, 2)
    block = CipherBlock("plain", private.public.fingerprint, "rows", (due,), layout, due, bytes(8 * due))

    def refuse_rows(*_: Any) -> NoReturn:
        pytest.fail("room was made for the rows")

    monkeypatch.setattr(type(private.public), "allocate_rows", refuse_rows)
    arriving = IncomingRows(Fed(EncryptedTreeRows(3, 0, 7, block)), private.public, EncryptedTreeRows, (3,), n)
    with blamed("active", "peer-message", message="TreeRows", step=(3, 0), about="100000 numbers a row"):
        next(arriving.chunks())


ALL_ROWS = RowMask.pack(np.ones(60, dtype=np.bool_))


@pytest.mark.parametrize("params", [SecureBoost(trees=2, depth=2), FederatedForest(trees=2, depth=2)])
def test_a_tree_beyond_the_jobs_is_refused(monkeypatch: pytest.MonkeyPatch, params: TreeModel) -> None:
    """The active party goes on where it should have ended."""
    further = lambda m: TreeStart(m.trees, released(ALL_ROWS))  # noqa: E731
    error = run_with(monkeypatch, params, ("active", TrainingEnd, further))
    assert (error.peer, error.code, error.message, error.step) == ("active", "peer-message", "TreeStart", (2,))
    assert error.value == 3


@pytest.mark.parametrize("together", [3, 60])
def test_no_more_trees_grow_side_by_side_than_the_job_says(monkeypatch: pytest.MonkeyPatch, together: int) -> None:
    params = FederatedForest(trees=64, depth=1, trees_at_once=2)
    error = run_with(monkeypatch, params, ("active", TreeStart, lambda m: replace(m, together=together)))
    said = (error.peer, error.code, error.message, error.value)
    assert said == ("active", "peer-message", "TreeStart", together)


def test_boosted_trees_grow_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    two = lambda m: replace(m, together=2)  # noqa: E731
    error = run_with(monkeypatch, SecureBoost(trees=3, depth=1), ("active", TreeStart, two))
    assert (error.peer, error.code, error.message, error.value) == ("active", "peer-message", "TreeStart", 2)


@pytest.mark.parametrize(
    ("params", "classes", "most"),
    [
        (SecureBoost(trees=7), 3, 7),
        (SecureBoost(trees=7, early_stopping_rounds=2), 0, 7),
        (FederatedForest(trees=7), 3, 7),
        (SecureBoost(trees=7, multi_strategy="one_output_per_tree"), 0, 700),
        (SecureBoost(trees=7, multi_strategy="one_output_per_tree"), 3, 21),
    ],
)
def test_how_many_trees_a_job_has_at_most(params: TreeModel, classes: int, most: int) -> None:
    """Where classes are not agreed, a passive party knows of each that it is that of some row."""
    assert max_trees(params, 100, classes) == most


def test_as_many_classes_as_rows_allow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every tree of three classes is within the bound, and those of a training that goes on are counted anew."""
    parts = make_parts(31, 6, {"active": 1, "left": 2})
    params = SecureBoost(trees=2, depth=2, multi_strategy="one_output_per_tree")
    setting = Setting(parts, np.arange(6) % 3, params, classes=("a", "b", "c"))
    first = setting.run()
    assert len(first.active.share.trees) == 6
    again = setting.run(shares=first.shares)
    assert len(again.active.share.trees) == 12


def ask(request: PathRequest | PredictRequest, rows: int) -> None:
    model = make_model(8, parties={"a": 0, "b": 2}, trees=1, depth=2, fill=1.0)
    table = model.table(np.random.default_rng(1), rows)

    def lead(ctx: Context) -> None:
        ctx.send("b", request, (0,))
        ctx.recv("b", (PathAnswers, PredictAnswers), (0,))

    converse(model, lead, lambda ctx: predict_passive(ctx, model.shares["b"], table["b"]))


@pytest.mark.parametrize("levels", [False, True])
def test_no_more_rows_at_once_than_a_batch_has(monkeypatch: pytest.MonkeyPatch, levels: bool) -> None:
    """The answers are as large as splits times rows, whatever the request's size."""
    monkeypatch.setattr(predict, "ANSWERS", 30)  # of 3 splits
    request = PathRequest("model", 0, 11, (), released(())) if levels else PredictRequest("model", 0, 11)
    with blamed("a", "peer-message", message=wire_name(type(request)), step=(0,), value=11, about="8"):
        ask(request, 20)


def test_masks_of_no_split_are_never_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes some twenty bytes in a message, and a byte for each row of the batch once it is unpacked."""
    monkeypatch.setattr(RowMask, "unpack", lambda *_: pytest.fail("a mask was unpacked"))
    request = PathRequest("model", 0, 1000, (0,), released((RowMask(1000, "out", b""),) * 500))
    with blamed("a", "peer-message", message="PathRequest", step=(0,), value=1, about="500"):
        ask(request, 1000)


@pytest.mark.parametrize(
    "params",
    [
        SecureBoost(trees=2, depth=4, bins=8),
        SecureBoost(trees=2, depth=3, bins=4, candidates="node", row_fraction=0.7),
        SecureBoost(trees=2, depth=3, candidates="all"),
        FederatedForest(trees=4, depth=3, bins=8, trees_at_once=2),
    ],
    ids=["boosted", "node", "all", "forest"],
)
@pytest.mark.parametrize(("engine", "bits"), [("plain", 0), ("paillier", 512)])
def test_honest_sums_fit_the_sizes_that_were_agreed(
    params: TreeModel, engine: str, bits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With no size that is always allowed, and few sums to a message: beside them only a head of 1 kB is granted."""
    found: list[tuple[int, int]] = []

    class Measured(wiring.Wire):
        most: int | None = None

        def limit(self, peer: str, size: int | None) -> None:
            self.most = size

        def receive(self, timeout: float) -> tuple[str, bytes] | None:
            arrived = super().receive(timeout)
            if arrived and wire_name(LevelHistograms).encode() in arrived[1][:20]:
                assert self.most is not None
                found.append((len(arrived[1]), self.most))
            return arrived

    monkeypatch.setattr(wiring, "Wire", Measured)
    monkeypatch.setattr(context, "LEAST", 0)
    for name, value in (("_MAX_SUMS", 4), ("_MAX_CATEGORIES", 1)):
        monkeypatch.setattr(histogram_message, name, value)
    parts = make_parts(32, 60, {"active": 1, "left": 2})
    for classes in (2, 3):
        labels = np.arange(60) % classes
        Setting(parts, labels, params, classes=tuple(map(str, range(classes))), engine=engine, bits=bits).run()
    assert found
    assert all(size <= most for size, most in found), found
    assert any(4 * size > most - 1024 for size, most in found)  # the sizes mean something


@pytest.mark.parametrize("classes", [1, 2, 5, 20])
@pytest.mark.parametrize(("engine", "bits"), [("plain", 0), ("paillier", 2048)])
def test_an_honest_block_of_rows_fits_the_size_that_was_agreed(classes: int, engine: str, bits: int) -> None:
    """One that travels with as many numbers as any layout has, each as wide as any number."""
    from labelward.kernels.row_layout import RowLayout
    from labelward.party.handshake import Agreement, RowMasks
    from labelward.protocols.secureboost.inputs import TrainingTask
    from labelward.protocols.secureboost.row_encoding import BLOCK_ROWS
    from labelward.protocols.secureboost.session import _largest_message

    rows = 100_000
    agreed = Agreement(
        parties=("active", "left"), job={}, sides=RowMasks.in_order(rows, 0, 0), rows=(rows, 0), bits=bits,
        precision=24, insecure=True, resume=None, classes=classes,
    )  # fmt: skip
    largest = _largest_message(make_engine(engine), TrainingTask(params=SecureBoost(), agreed=agreed))
    assert largest is not None
    flags = classes if classes > 1 else 0
    k = max(RowLayout(outputs=classes, hessians=each, implied="", classes=flags).k for each in (0, 1, classes))
    form = make_engine(engine).ciphertext_format(Layout((1 << 30,) * k, rows, k), bits)
    assert BLOCK_ROWS * form.parts * form.size <= largest
