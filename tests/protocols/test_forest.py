"""Federated random forests: the definition by hand, scikit-learn's trees, and what bagging sends to whom."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from equivalence import NAMES, as_reference, assert_lossless, assert_same, encrypted, rich_setting
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from crossing import crossed
from labelward.messages.codec import decode
from labelward.messages.tree import EncryptedForestRows, EncryptedTreeRows, TreeStart
from labelward.protocols.secureboost.family import TreeFamily
from labelward.protocols.secureboost.params import FederatedForest, SecureBoost
from wiring import Run, Setting, make_parts, make_targets


def setting(seed: int, targets: str = "classes", rows: int = 80, **params: Any) -> Setting:
    parts = make_parts(seed, rows, dict.fromkeys(NAMES, 3))
    classes = ("0", "1", "2") if targets == "classes" else ()
    given = {"trees": 3, "depth": 3, "bins": 8} | params
    return Setting(parts, make_targets(seed, parts, targets), FederatedForest(**given), classes=classes)


@pytest.mark.parametrize(
    ("params", "alike"),
    [
        ({}, True),
        ({"row_fraction": 0.8}, False),
        ({"feature_fraction": 0.8}, False),
        ({"replace": True}, False),
        ({"trees": 1}, False),
    ],
)
def test_copies_of_one_tree_are_remarked(params: dict[str, Any], alike: bool) -> None:
    remark = TreeFamily(FederatedForest(**params)).remark(["bank", "telco"])
    assert ("row_fraction" in remark) == alike
    assert not TreeFamily(SecureBoost()).remark(["bank", "telco"])


# -- the definition ----------------------------------------------------------------------------------------------------


def test_gini_by_hand() -> None:
    """Six rows, cut in 1 + 5: shares of the classes in the leaves, the fall of impurity times the rows as gain."""
    x = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])[:, None]
    labels = np.array([0, 1, 1, 2, 1, 1])
    params = FederatedForest(trees=1, depth=1, bins=2)
    given = Setting({"a": np.empty((6, 0)), "b": x}, labels, params, classes=("0", "1", "2"))
    given = replace(given, params=replace(params, candidates="all"))
    shape = assert_lossless(given).active.share.trees[0]
    assert shape.weights == (1.0, 0.0, 0.0, 0.0, 0.8, 0.2)
    before, after = 6 * (1 - (1 + 16 + 1) / 36), 5 * (1 - (16 + 1) / 25)
    assert shape.gains == (pytest.approx(before - after, rel=1e-14),)
    assert shape.covers == (6.0, 1.0, 5.0)


def test_variance_by_hand() -> None:
    x = np.array([1.0, 2.0, 3.0, 4.0])[:, None]
    given = Setting(
        {"a": np.empty((4, 0)), "b": x},
        np.array([1.0, 2.0, 9.0, 12.0]),
        FederatedForest(trees=1, depth=1, candidates="all"),
        classes=(),
    )
    run = assert_lossless(given)
    shape = run.active.share.trees[0]
    assert run.active.share.base == (6.0,)
    assert shape.weights == (-4.5, 4.5)
    assert shape.gains == (4 * 4.5**2,)
    assert run.active.margins[:, 0].tolist() == [1.5, 1.5, 10.5, 10.5]


@crossed("targets,replaced,candidates", ["classes", "quantities"], [False, True], ["global", "all", "node"])
def test_lossless(targets: str, replaced: bool, candidates: str) -> None:
    assert_lossless(
        setting(131, targets, replace=replaced, row_fraction=0.8, feature_fraction=0.7, candidates=candidates, depth=4)
    )


@crossed("targets,weighted", ["binary", "classes", "quantities"], [False, True])
def test_lossless_with_everything(targets: str, weighted: bool) -> None:
    """Missing values, categories, weights, limits; and under encryption."""
    given = rich_setting(132, targets, kind="forest", row_fraction=0.7, replace=True, min_rows=3, max_leaves=6)
    if not weighted:
        given.weights = None
    assert_lossless(given)
    assert_same(*encrypted(given))


def test_scale_pos_weight_and_least_weight() -> None:
    given = rich_setting(133, "binary", kind="forest", scale_pos_weight=3.0, min_child_weight=6.0)
    run = assert_lossless(given)
    assert min(cover for shape in run.active.share.trees for cover in shape.covers) >= 6.0


def test_margins_are_means_of_class_shares() -> None:
    margins = setting(134, trees=7).run().active.margins
    assert margins.shape == (80, 3)
    assert margins.min() >= 0.0
    np.testing.assert_allclose(margins.sum(axis=1), 1.0, rtol=0, atol=1e-14)  # seven means of three shares


# -- against scikit-learn ----------------------------------------------------------------------------------------------


def test_one_tree_on_all_rows_is_scikit_learns_classifier() -> None:
    """No two candidates tie on these columns of distinct values; thresholds differ, the rows of leaves do not."""
    given = setting(135, rows=150, trees=1, depth=2, candidates="all", feature_fraction=1.0)
    ours = given.run().active.margins
    x = np.concatenate(list(given.parts.values()), axis=1)
    theirs = DecisionTreeClassifier(max_depth=2, random_state=0).fit(x, given.labels)
    np.testing.assert_allclose(ours, theirs.predict_proba(x), rtol=0, atol=1e-12)  # the same counts, divided


@pytest.mark.parametrize("weighted", [False, True])
def test_one_tree_on_all_rows_is_scikit_learns_regressor(weighted: bool) -> None:
    given = setting(136, "quantities", rows=150, trees=1, depth=4, candidates="all")
    given.weights = np.random.default_rng(1).uniform(0.5, 2.0, 150) if weighted else None
    ours = given.run().active.margins[:, 0]
    x = np.concatenate(list(given.parts.values()), axis=1)
    theirs = DecisionTreeRegressor(max_depth=4, random_state=0).fit(x, given.labels, sample_weight=given.weights)
    # fixed point keeps 30 bits of the largest deviation, which is about 30
    np.testing.assert_allclose(ours, theirs.predict(x), rtol=0, atol=1e-6)


# -- bagging -----------------------------------------------------------------------------------------------------------


def bags(run: Run, party: str = "left") -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the rows of each tree, and how often each was drawn."""
    found = []
    for each in run.views[party].received(TreeStart):
        rows = np.flatnonzero(each.message.rows.value.unpack(80))
        repeats = np.frombuffer(each.message.repeats, np.uint8) if each.message.repeats else np.ones(len(rows), int)
        found.append((rows, repeats))
    return found


def test_bags_without_replacement() -> None:
    run = setting(137, row_fraction=0.7, trees=5).run()
    drawn = bags(run)
    assert [len(rows) for rows, _ in drawn] == [56] * 5
    assert all((repeats == 1).all() for _, repeats in drawn)
    assert len({tuple(rows) for rows, _ in drawn}) == 5


def test_bags_with_replacement() -> None:
    drawn = bags(setting(138, row_fraction=0.9, replace=True, trees=5).run())
    assert [int(repeats.sum()) for _, repeats in drawn] == [72] * 5
    assert all(repeats.max() > 1 for _, repeats in drawn)
    assert 0.5 < np.mean([len(rows) for rows, _ in drawn]) / 80 < 0.7  # 1 - exp(-0.9) is 0.59


@pytest.mark.parametrize("replaced", [False, True])
def test_bags_do_not_depend_on_the_labels(replaced: bool) -> None:
    given = setting(139, row_fraction=0.8, replace=replaced)
    other = given.run(labels=np.roll(given.labels, 5))
    for one, two in zip(bags(given.run()), bags(other), strict=True):
        assert one[0].tolist() == two[0].tolist()
        assert one[1].tolist() == two[1].tolist()


# -- side by side ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("replaced", [False, True])
def test_trees_are_the_same_however_many_grow_at_once(replaced: bool) -> None:
    runs = [
        setting(140, trees=5, row_fraction=0.8, replace=replaced, trees_at_once=many).run() for many in (1, 2, 5, 64)
    ]
    for run in runs[1:]:
        assert as_reference(run) == as_reference(runs[0])
        assert run.active.margins.tobytes() == runs[0].active.margins.tobytes()


def test_labels_are_encrypted_once() -> None:
    """They come before the first tree that a party takes part in; all trees use them."""
    for many in (1, 4):
        given = setting(141, trees=6, row_fraction=0.5, trees_at_once=many)
        run = replace(given, engine="paillier", bits=512).run()
        for party in NAMES[1:]:
            messages = [decode(frame)[0] for frame in run.frames_to(party)]
            assert [each.gradients.shape for each in messages if isinstance(each, EncryptedForestRows)] == [(80,)]
            assert sum(isinstance(each, TreeStart) for each in messages) == 6
            assert not any(isinstance(each, EncryptedTreeRows) for each in messages)
        one_tree = replace(given, engine="paillier", bits=512).run(params=replace(given.params, trees=1))
        assert run.active.counts.encryptions == one_tree.active.counts.encryptions


def test_parties_are_told_how_many_trees_grow_side_by_side() -> None:
    run = setting(142, trees=5, trees_at_once=3).run()
    starts = [each.message for each in run.views["right"].received(TreeStart)]
    assert [start.together for start in starts] == [3, 0, 0, 2, 0]
    assert [start.tree for start in starts] == [0, 1, 2, 3, 4]
    assert not any(start.route for start in starts)


def test_forest_of_one_class_or_one_value() -> None:
    """Nothing to split: every tree is a leaf."""
    parts = make_parts(143, 12, {"a": 1, "b": 1})
    for classes, labels in ((("0", "1"), np.zeros(12)), ((), np.full(12, 2.5))):
        run = assert_lossless(Setting(parts, labels, FederatedForest(trees=2), classes=classes))
        assert all(shape.leaves == (0,) for shape in run.active.share.trees)
