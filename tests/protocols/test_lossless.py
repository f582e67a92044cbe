"""Federated trees are the trees of the definition: against a slow reference, on joined tables, under encryption."""

from __future__ import annotations

import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st

from labelward.protocols.tree.params import SecureBoost
from wiring import Run, Setting, joined, make_labels, make_parts, readable_content


def as_reference(run: Run) -> list[reference.Tree]:
    """Return the trees of a run with owners and thresholds filled in from all shares."""
    share = run.active.share
    records = {share.party: share.own} | {party: out.share.own for party, out in run.passive.items()}
    trees = []
    for shape in share.trees:
        splits = {}
        for node, owner, record in zip(shape.nodes, shape.owners, shape.records, strict=True):
            party = share.parties[owner]
            own = records[party]
            splits[node] = reference.Split(party, own.columns[record], own.thresholds[record])
        trees.append(reference.Tree(splits, dict(zip(shape.leaves, shape.weights, strict=True))))
    return trees


def assert_lossless(setting: Setting) -> Run:
    """Trees and margins equal the reference, records and weights the joined training, to the last bit."""
    run = setting.run()
    expected = reference.train(setting.parts, setting.labels, setting.params, setting.seed)
    assert as_reference(run) == expected
    assert run.active.margins.tolist() == reference.predict(expected, setting.held_out).tolist()
    together = joined(setting)
    assert together.trees == run.active.share.trees
    assert together.owners == run.active.share.parties
    assert together.own == {setting.active: run.active.share.own} | {p: out.share.own for p, out in run.passive.items()}
    return run


@st.composite
def settings_of_runs(draw: st.DrawFn) -> Setting:
    """Small tables with ties, constant and duplicated columns; the active party may hold no column."""
    names = ["active", "left", "right"][: draw(st.integers(2, 3))]
    rows = draw(st.integers(2, 24))
    seed = draw(st.integers(0, 2**20))
    widths = {name: draw(st.integers(0 if name == "active" else 1, 3)) for name in names}
    parts = make_parts(seed, rows, widths, levels=draw(st.sampled_from([2, 4, None])))
    if draw(st.booleans()):  # the same column at every party: the first in party order wins
        for x in parts.values():
            if x.shape[1]:
                x[:, 0] = parts[names[-1]][:, 0]
    if draw(st.booleans()):
        parts[names[-1]][:, -1] = 3.5
    labels = np.array(draw(st.lists(st.integers(0, 1), min_size=rows, max_size=rows)), dtype=np.int64)
    params = SecureBoost(
        trees=draw(st.integers(1, 3)),
        depth=draw(st.integers(1, 4)),
        learning_rate=draw(st.sampled_from([0.3, 1.0])),
        feature_fraction=draw(st.sampled_from([1.0, 0.5])),
        row_fraction=draw(st.sampled_from([1.0, 0.7, 0.01])),
        bins=draw(st.sampled_from([2, 4, 32])),
        candidates=draw(st.sampled_from(["global", "node"])),
        reg_lambda=draw(st.sampled_from([1.0, 0.0, 0.1])),
        gamma=draw(st.sampled_from([0.0, 0.2])),
        min_rows=draw(st.sampled_from([1, 3])),
        min_child_weight=draw(st.sampled_from([0.0, 0.6])),
    )
    return Setting(parts, labels, params, seed=draw(st.integers(0, 5)))


@given(setting=settings_of_runs())
@settings(max_examples=80)
def test_equals_the_reference_on_generated_tables(setting: Setting) -> None:
    assert_lossless(setting)


@pytest.mark.parametrize("candidates", ["global", "node"])
@pytest.mark.parametrize("parties", [2, 3])
def test_equals_the_reference_on_larger_tables(candidates: str, parties: int) -> None:
    """Deep enough that siblings are subtracted and levels hold many nodes; held-out rows."""
    names = ["active", "left", "right"][:parties]
    parts = make_parts(3, 180, dict.fromkeys(names, 3))
    labels = make_labels(3, parts)
    test = make_parts(4, 50, dict.fromkeys(names, 3))
    params = SecureBoost(trees=2, depth=5, candidates=candidates, bins=16, row_fraction=0.8, feature_fraction=0.7)
    run = assert_lossless(Setting(parts, labels, params, test=test))
    owners = {owner for tree in run.active.share.trees for owner in tree.owners}
    assert owners == set(range(parties))
    assert any(len(tree.nodes) > 8 for tree in run.active.share.trees)


def test_equal_columns_go_to_the_first_party() -> None:
    x = np.arange(12.0)[:, None]
    labels = (np.arange(12) >= 5).astype(np.int64)
    setting = Setting({"a": np.zeros((12, 1)), "b": x, "c": x.copy()}, labels, SecureBoost(trees=1, depth=1))
    tree = assert_lossless(setting).active.share.trees[0]
    assert tree.owners == (1,)


@pytest.mark.parametrize("labels", [[0, 0, 0, 0], [1, 1, 1, 1]])
def test_one_class_gives_single_leaves(labels: list[int]) -> None:
    """Nothing to split: no sums are asked for, and every row gets the root's weight."""
    parts = make_parts(1, 4, {"a": 1, "b": 1})
    run = assert_lossless(Setting(parts, np.array(labels), SecureBoost(trees=2)))
    assert all(tree.leaves == (0,) for tree in run.active.share.trees)
    assert run.passive["b"].share.own.columns == ()
    assert "LevelSums" not in run.meters["b"].messages


def test_active_party_without_columns() -> None:
    """Labels only: every split is a passive party's, and so is every answer at prediction."""
    parts = {"a": np.empty((60, 0))} | make_parts(2, 60, {"b": 2, "c": 2})
    labels = make_labels(2, {"b": parts["b"], "c": parts["c"]})
    for candidates in ("global", "node"):
        params = SecureBoost(trees=2, depth=3, candidates=candidates)
        run = assert_lossless(Setting(parts, labels, params))
        assert run.active.share.own.columns == ()
        assert {owner for tree in run.active.share.trees for owner in tree.owners} <= {1, 2}


def encrypted(setting: Setting, bits: int) -> tuple[Run, Run]:
    return setting.run(), setting.run(engine="paillier", bits=bits, insecure=bits < 2048)


def assert_same(plain: Run, secret: Run) -> None:
    """Shares and margins to the last bit; every view but for its ciphertexts."""
    assert secret.active.share == plain.active.share
    assert secret.active.margins.tobytes() == plain.active.margins.tobytes()
    for party, out in plain.passive.items():
        assert secret.passive[party].share == out.share
    for party, view in plain.views.items():
        assert readable_content(secret.views[party]) == readable_content(view)


@pytest.mark.parametrize("candidates", ["global", "node"])
@pytest.mark.parametrize("parties", [2, 3])
def test_paillier_equals_plain(candidates: str, parties: int) -> None:
    """A small key: the arithmetic is the same, only weaker."""
    names = ["active", "left", "right"][:parties]
    parts = make_parts(5, 70, dict.fromkeys(names, 2))
    params = SecureBoost(trees=2, depth=3, bins=8, candidates=candidates, row_fraction=0.9)
    setting = Setting(parts, make_labels(5, parts), params)
    assert_same(*encrypted(setting, 512))


@pytest.mark.slow
def test_paillier_equals_plain_with_a_full_key() -> None:
    parts = make_parts(6, 60, {"active": 1, "partner": 2})
    setting = Setting(parts, make_labels(6, parts), SecureBoost(trees=1, depth=3, bins=8))
    assert_same(*encrypted(setting, 2048))
