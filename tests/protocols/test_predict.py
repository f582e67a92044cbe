"""Prediction: both modes give what a slow walker gives, reveal what they say, and name a peer that misbehaves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_models import Floats, Model, converse, make_model

from blames import blamed, refused_about
from labelward.errors import Code, InputError
from labelward.messages.base import RowMask, wire_name
from labelward.messages.explain import PathAnswers, PathRequest
from labelward.messages.tree import PredictAnswers, PredictRequest
from labelward.party.context import Context
from labelward.protocols.secureboost import predict
from labelward.protocols.secureboost.predict import (
    Mode,
    leaves_reached,
    predict_active,
    predict_leaves,
    predict_passive,
)
from labelward.protocols.secureboost.share import TreeShape
from released import released

MODES: tuple[Mode, ...] = ("one-round", "levels")


def outcome(model: Model, table: dict[str, Floats], mode: Mode, function: Any = predict_active) -> tuple[Any, Any]:
    rows = len(next(iter(table.values())))

    def lead(ctx: Context) -> Any:
        own = {ctx.party: (model.active.own, table[ctx.party])}
        return function(ctx, model.active, own, rows, mode=mode)

    out, views = converse(model, lead, lambda ctx: predict_passive(ctx, model.shares[ctx.party], table[ctx.party]))
    return out[model.parties[0]], views


@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    trees=st.integers(0, 5),
    depth=st.integers(1, 6),
    outputs=st.sampled_from([(1, False), (3, False), (3, True)]),
    kind=st.sampled_from(["secureboost", "forest"]),
    rows=st.integers(0, 40),
    parties=st.sampled_from([{"a": 2, "b": 2}, {"a": 0, "b": 1, "c": 3}, {"a": 3}]),
)
def test_margins_and_leaves_of_random_models(
    mode: Mode,
    seed: int,
    trees: int,
    depth: int,
    outputs: tuple[int, bool],
    kind: str,
    rows: int,
    parties: dict[str, int],
) -> None:
    model = make_model(
        seed, parties=parties, trees=trees, depth=depth, outputs=outputs[0], each_output=outputs[1], kind=kind,
        base=tuple(np.linspace(-1, 1, outputs[0]).tolist()),
    )  # fmt: skip
    table = model.table(np.random.default_rng(seed), rows)
    margins, _ = outcome(model, table, mode)
    # the same sums in the same order, but for where the base is added
    np.testing.assert_allclose(margins, model.margins(table), rtol=0, atol=1e-12)
    assert margins.shape == (rows, outputs[0])
    leaves, _ = outcome(model, table, mode, predict_leaves)
    assert leaves.dtype == np.int32
    assert np.array_equal(leaves, model.leaves(table))


def test_modes_agree_to_the_last_bit_and_batches_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model(3, trees=6, outputs=2)
    table = model.table(np.random.default_rng(3), 203)
    whole, _ = outcome(model, table, "one-round")
    for size in (8, 64, 203):
        monkeypatch.setattr(predict, "BATCH", size)
        for mode in MODES:
            assert outcome(model, table, mode)[0].tobytes() == whole.tobytes()


def test_answers_held_at_a_time_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model(4, trees=6)
    splits = sum(len(tree.nodes) for tree in model.active.trees)
    monkeypatch.setattr(predict, "ANSWERS", 16 * splits)
    assert list(predict.row_batches(model.active, 0, 40)) == [(0, 16), (16, 32), (32, 40)]
    _, views = outcome(model, model.table(np.random.default_rng(4), 40), "one-round")
    assert [message.rows for _, message in _received(views["bank"], "telco", PredictAnswers)] == [16, 16, 8]


def _received(view: Any, peer: str, kind: type) -> list[tuple[tuple[int, ...], Any]]:
    return [(each.step, each.message) for each in view.received(kind) if each.peer == peer]


def test_one_round_tells_a_passive_party_the_rows_only() -> None:
    """Whatever the rows' values and ways are, it receives the same; the active party gets all sides."""
    model = make_model(5)
    told = []
    for seed in (1, 2):
        table = model.table(np.random.default_rng(seed), 30)
        _, views = outcome(model, table, "one-round")
        told.append([message for _, message in _received(views["telco"], "bank", PredictRequest)])
        (_, answers), *_ = _received(views["bank"], "telco", PredictAnswers)
        assert (answers.records, answers.rows) == (len(model.shares["telco"].own.columns), 30)
    assert told[0] == told[1] == [PredictRequest("model", 0, 30), PredictRequest("model", 30, 30)]


def test_levels_tell_each_party_the_paths_only() -> None:
    """A passive party learns which rows reach its own splits; the active party one side for each of these."""
    model = make_model(6, trees=3, depth=5)
    rows = 50
    table = model.table(np.random.default_rng(6), rows)
    _, views = outcome(model, table, "levels")
    for party in model.parties[1:]:
        reach = {record: set() for record in range(len(model.shares[party].own.columns))}
        for tree in model.active.trees:
            for row in range(rows):
                leaf = tree.leaves[model.leaf(tree, {name: x[row] for name, x in table.items()})]
                while leaf:
                    leaf = (leaf - 1) // 2
                    split = tree.nodes.index(leaf)
                    if model.parties[tree.owners[split]] == party:
                        reach[tree.records[split]].add(row)
        seen: dict[int, set[int]] = {}
        asked = 0
        for _, request in _received(views[party], "bank", PathRequest):
            for record, mask in zip(request.records, request.rows.value, strict=True):
                assert record not in seen
                seen[record] = set(np.flatnonzero(mask.unpack(rows)).tolist())
                asked += len(seen[record])
        assert seen == {record: rows_of for record, rows_of in reach.items() if rows_of}
        assert sum(answer.count for _, answer in _received(views["bank"], party, PathAnswers)) == asked
        assert not _received(views["bank"], party, PredictAnswers)


def test_walk_with_vector_leaves() -> None:
    tree = TreeShape((0, 2), (0, 1), (0, 1), (1, 5, 6), (1.0, 10.0, 2.0, 20.0, 3.0, 30.0))
    answers = {
        "a": np.array([[True, False, False]]),
        "b": np.array([[False, False, False], [True, True, False]]),
    }
    assert tree.leaf_values()[leaves_reached(tree, ("a", "b"), answers, 3)].tolist() == [
        [1.0, 10.0],
        [2.0, 20.0],
        [3.0, 30.0],
    ]
    assert leaves_reached(tree, ("a", "b"), answers, 3).tolist() == [0, 1, 2]
    single = TreeShape((), (), (), (0,), (5.0,))
    assert single.leaf_values()[leaves_reached(single, ("a",), {}, 2)].tolist() == [[5.0], [5.0]]


@pytest.mark.parametrize("shape", [(1, 3), (2, 4)])
def test_walk_names_who_answered_for_too_little(shape: tuple[int, int]) -> None:
    tree = TreeShape((0,), (1,), (1,), (1, 2), (1.0, 2.0))
    with blamed("b", "peer-message", message="PredictAnswers"):
        leaves_reached(tree, ("a", "b"), {"b": np.ones(shape, np.bool_)}, 3)


def test_an_unknown_mode() -> None:
    model = make_model(9, parties={"a": 1})
    with refused_about("'levels'", InputError, "choice", value="level"):
        outcome(model, model.table(np.random.default_rng(9), 3), "level")  # type: ignore[arg-type]


# -- misbehaving peers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 4, 6])
def test_path_answers_of_another_length(count: int) -> None:
    model = make_model(7, parties={"a": 0, "b": 2}, trees=1, depth=1, fill=1.0)

    def follow(ctx: Context) -> None:
        ctx.recv("a", PathRequest, (0,))
        ctx.send("a", PathAnswers(count, b"\0" * ((count + 7) // 8)), (0,))

    with blamed("b", "peer-message", message="PathAnswers", step=(0,), value=count, about="5"):
        converse(model, lambda ctx: predict_active(ctx, model.active, {}, 5, mode="levels"), follow)


def _ask(request: PathRequest | PredictRequest) -> None:
    model = make_model(8, parties={"a": 0, "b": 2}, trees=1, depth=2, fill=1.0)
    table = model.table(np.random.default_rng(1), 5)

    def lead(ctx: Context) -> None:
        ctx.send("b", request, (0,))
        ctx.recv("b", (PathAnswers, PredictAnswers), (0,))

    converse(model, lead, lambda ctx: predict_passive(ctx, model.shares["b"], table["b"]))


ALL = RowMask.pack(np.ones(5, np.bool_))


@pytest.mark.parametrize(
    ("request_", "code", "value", "about"),
    [
        (PathRequest("other", 0, 5, (0,), released((ALL,))), "peer-message", "other", "model"),
        (PathRequest("model", 0, 6, (0,), released((ALL,))), "peer-message", (0, 6), "rows"),
        (PathRequest("model", -1, 4, (0,), released((ALL,))), "peer-message", (-1, 4), "rows"),
        (PathRequest("model", 3, 3, (0,), released((ALL,))), "peer-message", (3, 3), "rows"),
        (PathRequest("model", 0, 4, (0,), released((ALL,))), "malformed", 5, "rows"),
        (PathRequest("model", 0, 5, (99,), released((ALL,))), "peer-message", 99, "split"),
        (PathRequest("model", 0, 5, (-1,), released((ALL,))), "peer-message", -1, "split"),
        (PathRequest("model", 0, 5, (0, 1), released((ALL,))), "peer-message", 2, "splits"),
        (PredictRequest("other", 0, 5), "peer-message", "other", "model"),
        (PredictRequest("model", 0, 6), "peer-message", (0, 6), "rows"),
    ],
)
def test_requests_that_cannot_be_served(
    request_: PathRequest | PredictRequest, code: Code, value: object, about: str
) -> None:
    with blamed("a", code, message=wire_name(type(request_)), step=(0,), value=value, about=about):
        _ask(request_)


def test_the_size_of_a_batch_tells_an_order_of_magnitude_only() -> None:
    """A passive party sees how many rows are asked about at once, which depends on the splits of all parties."""
    sizes = [predict._batch(splits) for splits in range(1, 200_000, 97)]
    assert set(sizes) <= {1 << bits for bits in range(3, 17)}
    assert sizes == sorted(sizes, reverse=True)
    assert all(size * splits <= 2 * predict.ANSWERS for size, splits in zip(sizes, range(1, 200_000, 97), strict=True))
