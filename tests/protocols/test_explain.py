"""Importance and SHAP values: against their definitions; they add up; what each party learns of columns."""

from __future__ import annotations

import math
import warnings
from itertools import combinations
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_models import Floats, Model, converse, make_model

from blames import blamed
from labelward.errors import DataError
from labelward.messages.explain import ColumnsRequest, RecordColumns
from labelward.messages.tree import PredictRequest
from labelward.party.context import Context
from labelward.protocols.secureboost import predict
from labelward.protocols.secureboost.explain import (
    WHOLE,
    Explanation,
    Feature,
    columns_active,
    columns_passive,
    explain,
    importance,
)
from labelward.protocols.secureboost.export import export_active, export_passive
from labelward.protocols.secureboost.predict import predict_passive
from refusals import refused


def explained(
    model: Model, table: dict[str, Floats], rows: int, background: int, names: bool = False, whole: str = ""
) -> tuple[Explanation, Any]:
    def lead(ctx: Context) -> Explanation:
        own = {ctx.party: (model.active.own, table[ctx.party])}
        return explain(ctx, model.active, columns_active(ctx, model.active), own, rows, background)

    def follow(ctx: Context) -> None:
        columns_passive(ctx, model.shares[ctx.party], names=names, grouped=ctx.party != whole)
        predict_passive(ctx, model.shares[ctx.party], table[ctx.party])

    out, views = converse(model, lead, follow)
    return out[model.parties[0]], views


def by_definition(
    model: Model, table: dict[str, Floats], row: int, others: range, whole: str = ""
) -> dict[str, Floats]:
    """Sum over all coalitions of all columns of all parties, by prediction; by column name.

    Args:
        whole: a party whose columns enter a coalition together, as its first one.
    """
    players = [
        (party, c)
        for party, share in model.shares.items()
        for c in range(len(share.columns))
        if party != whole or not c
    ]
    mixed = {party: [] for party in model.parties}
    coalitions = [set(s) for size in range(len(players) + 1) for s in combinations(players, size)]
    for coalition in coalitions:
        for other in others:
            for party, x in table.items():
                here = [(party, 0 if party == whole else c) in coalition for c in range(x.shape[1])]
                take = [row if known else other for known in here]
                mixed[party].append(x[take, range(x.shape[1])])
    margins = model.margins({party: np.array(x) for party, x in mixed.items()})
    value = margins.reshape(len(coalitions), len(others), -1).mean(axis=1)
    at = {frozenset(coalition): value[place] for place, coalition in enumerate(coalitions)}
    shapley = {}
    for party, c in players:
        total = np.zeros(value.shape[1])
        for coalition in coalitions:
            if (party, c) not in coalition:
                n, m = len(players), len(coalition)
                share = math.factorial(m) * math.factorial(n - m - 1) / math.factorial(n)
                total += share * (at[frozenset(coalition | {(party, c)})] - at[frozenset(coalition)])
        shapley[model.shares[party].columns[c]] = total
    return shapley


@settings(max_examples=12, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    outputs=st.sampled_from([(1, False), (3, False), (3, True)]),
    kind=st.sampled_from(["secureboost", "forest"]),
    depth=st.integers(1, 4),
)
def test_shap_values_are_shapley_values_of_the_prediction(
    seed: int, outputs: tuple[int, bool], kind: str, depth: int
) -> None:
    """With missing values, categories and unknown ones, over every subset of the parties' six columns."""
    model = make_model(
        seed, parties={"a": 2, "b": 3, "c": 1}, trees=3, depth=depth, outputs=outputs[0], each_output=outputs[1],
        kind=kind,
    )  # fmt: skip
    table = model.table(np.random.default_rng(seed), 5)
    got, _ = explained(model, table, 2, 3, names=True)
    for row in range(2):
        expected = by_definition(model, table, row, range(2, 5))
        for place, feature in enumerate(got.features):
            # rounding of sums of some dozens of numbers of size 1
            np.testing.assert_allclose(got.values[row, place], expected.pop(feature.name), rtol=0, atol=1e-12)
        assert all(np.all(np.abs(unused) < 1e-12) for unused in expected.values())


@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 2**31), depth=st.integers(2, 4))
def test_a_party_as_a_whole_is_one_player(seed: int, depth: int) -> None:
    """And its answer does not tell which of its splits share a column."""
    model = make_model(seed, parties={"a": 2, "b": 3, "c": 1}, trees=3, depth=depth)
    table = model.table(np.random.default_rng(seed), 5)
    got, views = explained(model, table, 2, 3, names=True, whole="b")
    (sent,) = (each.message for each in views["a"].received(RecordColumns) if each.peer == "b")
    assert set(sent.numbers) <= {0}
    for row in range(2):
        expected = by_definition(model, table, row, range(2, 5), whole="b")
        expected[WHOLE] = expected.pop(model.shares["b"].columns[0])
        for place, feature in enumerate(got.features):
            # rounding of sums of some dozens of numbers of size 1
            np.testing.assert_allclose(got.values[row, place], expected[feature.name], rtol=0, atol=1e-12)


@pytest.mark.parametrize(("kind", "outputs"), [("secureboost", 1), ("secureboost", 3), ("forest", 2)])
def test_values_add_up_to_the_margin(kind: str, outputs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also over several batches."""
    monkeypatch.setattr(predict, "BATCH", 16)
    model = make_model(11, trees=20, depth=6, kind=kind, outputs=outputs, base=(0.5,) * outputs)
    table = model.table(np.random.default_rng(11), 70)
    got, _ = explained(model, table, 40, 30)
    margins = model.margins(table)
    np.testing.assert_allclose(got.margins, margins[:40], rtol=0, atol=1e-12)
    np.testing.assert_allclose(got.expected, margins[40:].mean(axis=0), rtol=0, atol=1e-12)
    # 20 trees of up to 64 leaves, each of size 1; what is promised is 1e-6
    np.testing.assert_allclose(got.values.sum(axis=1), got.margins - got.expected, rtol=0, atol=1e-10)


def test_a_row_explained_by_itself_has_no_values() -> None:
    model = make_model(12)
    table = model.table(np.random.default_rng(12), 1)
    got, _ = explained(model, {party: np.repeat(x, 2, axis=0) for party, x in table.items()}, 1, 1)
    assert not got.values.any()


def test_a_model_that_does_not_split() -> None:
    model = make_model(13, fill=0.0, outputs=2, base=(1.0, 2.0))
    got, _ = explained(model, model.table(np.random.default_rng(13), 3), 2, 1)
    assert got.features == ()
    assert got.values.shape == (2, 0, 2)
    np.testing.assert_array_equal(got.margins, np.repeat(got.expected[None], 2, axis=0))


def test_no_background() -> None:
    model = make_model(14, parties={"a": 2})
    with refused(DataError, "range", field="background", value=0):
        explained(model, model.table(np.random.default_rng(14), 3), 3, 0)


def test_importance_counts_and_adds_gains() -> None:
    model = make_model(15, trees=6)
    out, _ = converse(
        model,
        lambda ctx: importance(model.active, columns_active(ctx, model.active)),
        lambda ctx: columns_passive(ctx, model.shares[ctx.party], names=True),
    )
    gains: dict[str, list[float]] = {}
    for tree in model.active.trees:
        for owner, record, gain in zip(tree.owners, tree.records, tree.gains, strict=True):
            share = model.shares[model.parties[owner]]
            gains.setdefault(share.columns[share.own.columns[record]], []).append(gain)
    got = out["bank"]
    assert {each.feature.name: each.weight for each in got} == {name: len(found) for name, found in gains.items()}
    for each in got:
        assert each.total_gain == pytest.approx(sum(gains[each.feature.name]), rel=1e-12)
        assert each.gain == pytest.approx(np.mean(gains[each.feature.name]), rel=1e-12)
    assert [each.total_gain for each in got] == sorted((each.total_gain for each in got), reverse=True)


# -- who learns what -------------------------------------------------------------------------------------------------


def test_columns_of_others_are_numbers_unless_they_consent() -> None:
    model = make_model(16, trees=6)
    table = model.table(np.random.default_rng(16), 6)
    for names in (False, True):
        got, views = explained(model, table, 3, 3, names=names)
        for party in model.parties[1:]:
            share = model.shares[party]
            (told,) = [each.message for each in views["bank"].received(RecordColumns) if each.peer == party]
            used = list(dict.fromkeys(share.own.columns))
            assert told.numbers == tuple(used.index(column) for column in share.own.columns)
            assert told.names == (tuple(share.columns[column] for column in used) if names else ())
            labels = [each.label for each in got.features if each.party == party]
            assert labels == [
                share.columns[column] if names else f"column {number}" for number, column in enumerate(used)
            ]
            asked = [each.message for each in views[party].received(PredictRequest)]
            assert asked == [
                PredictRequest("model", 3, 6),
                PredictRequest("model", 0, 3),
                PredictRequest("model", 6, 6),
            ]
        own = [each for each in got.features if each.party == "bank"]
        assert own == sorted({Feature("bank", c, model.active.columns[c]) for c in model.active.own.columns})


def test_numbers_depend_on_the_grouping_only() -> None:
    """The same splits on renamed, permuted columns give the same message."""
    model = make_model(17, parties={"a": 0, "b": 4}, trees=5, categories=False)
    share = model.shares["b"]
    permuted = tuple((column * 3 + 1) % 4 for column in share.own.columns)

    renamed = msgspec.structs.replace(
        share, columns=("w", "x", "y", "z"), own=msgspec.structs.replace(share.own, columns=permuted)
    )
    told = []
    for each in (share, renamed):
        _, views = converse(
            model,
            lambda ctx: columns_active(ctx, model.active),
            lambda ctx, each=each: columns_passive(ctx, each),
        )
        told.append([received.message for received in views["a"].received(RecordColumns)])
    assert told[0] == told[1]


@pytest.mark.parametrize(
    "answer",
    [
        RecordColumns((0, 0)),
        RecordColumns((1, 0, 1)),
        RecordColumns((0, 2, 1)),
        RecordColumns((-1, 0, 1)),
        RecordColumns((0, 1, 0), ("x",)),
        RecordColumns((0, 1, 0), ("x", "x")),
        RecordColumns((0, 1, 0), ("x", "y", "z")),
    ],
)
def test_columns_that_cannot_be(answer: RecordColumns) -> None:
    model = make_model(18, parties={"a": 0, "b": 2}, trees=1, depth=2, fill=1.0)
    with blamed("b", "peer-message", message="RecordColumns", step=(), about="sent"):
        converse(
            model,
            lambda ctx: columns_active(ctx, model.active),
            lambda ctx: (ctx.recv("a", ColumnsRequest, ()), ctx.send("a", answer, ())),
        )


def test_another_model() -> None:
    model = make_model(19, parties={"a": 1, "b": 1})
    with blamed("a", "peer-message", message="ColumnsRequest", step=(), value="other"):
        converse(
            model,
            lambda ctx: (ctx.send("b", ColumnsRequest("other"), ()), ctx.recv("b", RecordColumns, ())),
            lambda ctx: columns_passive(ctx, model.shares["b"]),
        )


# -- against the shap package ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "objective", "outputs", "each_output"),
    [
        ("secureboost", "binary:logistic", 1, False),
        ("secureboost", "multi:softprob", 3, False),
        ("secureboost", "multi:softprob", 3, True),
        ("secureboost", "count:poisson", 1, False),
        ("forest", "gini", 3, False),
        ("forest", "variance", 1, False),
    ],
)
def test_against_the_shap_package_on_the_exported_model(
    kind: str, objective: str, outputs: int, each_output: bool, tmp_path: Path
) -> None:
    """With missing values, and without categories, which the package does not read from XGBoost's models."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of matplotlib, for what the package does on import
        shap = pytest.importorskip("shap")
        import xgboost
    base = (0.7,) * outputs  # the same for all: the package (0.51) takes the first for each of them
    model = make_model(
        21, trees=12, depth=5, kind=kind, objective=objective, outputs=outputs, each_output=each_output,
        categories=False, base=base,
    )  # fmt: skip
    table = model.table(np.random.default_rng(21), 60)
    path = tmp_path / "model.json"
    converse(
        model,
        lambda ctx: export_active(ctx, model.active, path, purpose="a comparison"),
        lambda ctx: export_passive(ctx, model.shares[ctx.party], consent=True, names=True),
    )
    booster = xgboost.Booster(model_file=str(path))
    x = np.concatenate([table[party] for party in model.parties], axis=1).astype(np.float32)
    explainer = shap.TreeExplainer(booster, x[20:], feature_perturbation="interventional")
    expected = np.reshape(explainer.shap_values(x[:20], check_additivity=False), (20, x.shape[1], outputs))
    ours, _ = explained(model, table, 20, 40, names=True)
    got = np.zeros_like(expected, dtype=np.float64)
    for place, feature in enumerate(ours.features):
        got[:, booster.feature_names.index(feature.name)] = ours.values[:, place]
    # the exported leaves are float32: 12 trees of weights up to 4 in size; what is promised is 1e-4
    np.testing.assert_allclose(got, expected, rtol=0, atol=5e-6)
    np.testing.assert_allclose(np.ravel(explainer.expected_value), ours.expected, rtol=0, atol=5e-6)
