"""Categorical columns: one category against the rest, and sets in the order of their gradients."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from equivalence import as_reference, assert_lossless, rich_setting

from crossing import crossed
from labelward.messages.tree import LevelHistograms, LevelRequest, OwnSplit, WinningSplits
from labelward.protocols.secureboost.params import FederatedForest, SecureBoost, TreeModel
from wiring import Setting

NAN = math.nan


def categorical(codes: list[float], labels: list[int], test: list[float], **params: Any) -> Setting:
    """One split on a passive party's only column, of as many categories as there are codes."""
    many = int(np.nanmax(codes)) + 1
    given = {"trees": 1, "depth": 1, "learning_rate": 1.0, "reg_lambda": 0.0} | params
    return Setting(
        {"a": np.empty((len(codes), 0)), "b": np.array(codes)[:, None]},
        np.array(labels),
        SecureBoost(**given),
        test={"a": np.empty((len(test), 0)), "b": np.array(test)[:, None]},
        categories={"b": {0: tuple(f"c{code}" for code in range(many))}},
    )


def test_one_category_against_the_rest() -> None:
    setting = categorical([0, 0, 1, 1, 2, 2], [0, 0, 1, 1, 0, 0], [0.0, 1.0, 2.0, -1.0, NAN])
    run = assert_lossless(setting)
    assert run.passive["b"].share.own.categories == {0: (1,)}
    assert run.active.margins[:, 0].tolist() == [-2.0, 2.0, -2.0, -2.0, -2.0]


def test_a_set_of_categories() -> None:
    """Categories 1, 3 and 4 are of the second class: no single one against the rest tells the classes apart."""
    codes, labels = [0, 1, 2, 3, 4, 5] * 4, [0, 1, 0, 1, 1, 0] * 4
    run = assert_lossless(categorical(codes, labels, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, -1.0], max_cat_to_onehot=2))
    own = run.passive["b"].share.own
    assert own.categories == {0: (0, 2, 5)}  # those of the lesser weight
    assert own.thresholds == (0.0,)
    assert run.active.margins[:, 0].tolist() == [-2.0, 2.0, -2.0, 2.0, 2.0, -2.0, 2.0]


@pytest.mark.parametrize(
    "params", [SecureBoost(trees=1, depth=3), FederatedForest(trees=2, depth=3)], ids=lambda each: each.kind
)
@pytest.mark.parametrize("owner", ["a", "b"])
def test_sets_do_not_name_the_classes(owner: str, params: TreeModel) -> None:
    """A passive party sees the same where all labels are the other ones, whoever owns the column."""
    rng = np.random.default_rng(4)
    codes = rng.integers(0, 9, (120, 2)).astype(float)
    labels = (rng.random(120) < (codes @ [0.1, 0.03]) % 1).astype(np.int64)
    parts = {party: codes[:, at : at + 1] for at, party in enumerate("ab")}
    names = {party: {0: tuple(map(str, range(9)))} for party in "ab" if party == owner}
    seen = []
    for given in (labels, 1 - labels):
        setting = Setting(parts, given, replace(params, max_cat_to_onehot=2), categories=names)
        view = setting.run().views["b"]
        seen.append([each.message for kind in (LevelRequest, WinningSplits) for each in view.received(kind)])
    assert seen[0] == seen[1]
    assert any(message.splits.value for message in seen[0])


def test_a_set_is_the_best_of_all_partitions() -> None:
    """Fisher 1958: for one output the best of all 2^(m-1) - 1 partitions is among the m - 1 that keep the order."""
    rng = np.random.default_rng(3)
    for seed in range(8):
        codes = rng.integers(0, 6, 60)
        labels = (rng.random(60) < rng.random(6)[codes]).astype(np.int64)
        setting = categorical(codes.astype(float).tolist(), labels.tolist(), [0.0], max_cat_to_onehot=1, reg_lambda=1.0)
        shape = replace(setting, seed=seed).run().active.share.trees[0]
        best = max(
            gain_of(np.isin(codes, chosen), labels)
            for size in range(1, 6)
            for chosen in itertools.combinations(range(6), size)
        )
        found = shape.gains[0] if shape.gains else 0.0
        assert found == pytest.approx(max(best, 0.0), rel=1e-7)  # fixed point keeps 30 bits


def gain_of(left: np.ndarray, labels: np.ndarray) -> float:
    """XGBoost's gain at margin 0, where g is 1/2 or -1/2 and h is 1/4; lambda 1."""
    g, h = 0.5 - labels, np.full(len(labels), 0.25)

    def score(rows: np.ndarray) -> float:
        return float(g[rows].sum() ** 2 / (h[rows].sum() + 1.0))

    return score(left) + score(~left) - score(np.ones(len(g), dtype=bool))


def test_small_sets_only() -> None:
    """With a threshold of 1 a set of three against three is refused; one side holds a single category."""
    codes, labels = [0, 1, 2, 3, 4, 5] * 4, [0, 1, 0, 1, 1, 0] * 4
    run = assert_lossless(categorical(codes, labels, [0.0], max_cat_to_onehot=2, max_cat_threshold=1))
    chosen = run.passive["b"].share.own.categories[0]
    assert len(chosen) in (1, 5)


def test_as_many_categories_as_onehot_allows() -> None:
    codes, labels = [0, 1, 2, 3] * 6, [0, 1, 0, 1] * 6
    by_one = assert_lossless(categorical(codes, labels, [0.0], max_cat_to_onehot=5, reg_lambda=1.0))
    by_set = assert_lossless(categorical(codes, labels, [0.0], max_cat_to_onehot=4, reg_lambda=1.0))
    assert by_one.passive["b"].share.own.categories == {0: (0,)}
    assert by_set.passive["b"].share.own.categories == {0: (0, 2)}


def test_unknown_and_missing_categories_take_the_learned_direction() -> None:
    codes, labels = [0, 0, 1, 1, 2, 2, NAN, NAN], [0, 0, 1, 1, 0, 0, 1, 1]
    run = assert_lossless(categorical(codes, labels, [0.0, 1.0, 2.0, NAN, -1.0]))
    assert run.passive["b"].share.own.categories == {0: (1,)}
    assert run.passive["b"].share.own.missing_left == (0,)
    assert run.active.margins[:, 0].tolist() == [-2.0, 2.0, -2.0, 2.0, 2.0]


@crossed("kind,candidates", ["binary", "classes", "quantities"], ["global", "node", "all"])
def test_lossless_on_mixed_columns(kind: str, candidates: str) -> None:
    setting = rich_setting(66, kind, rows=90, candidates=candidates, depth=4)
    run = assert_lossless(setting)
    assert any(share.own.categories for share in run.shares.values())


def test_the_active_partys_categories() -> None:
    setting = categorical([0, 1, 2, 3, 4, 5] * 4, [0, 1, 0, 1, 1, 0] * 4, [0.0, 1.0], max_cat_to_onehot=2)
    parts = {"a": setting.parts["b"], "b": np.zeros((24, 1))}
    test = {"a": setting.held_out["b"], "b": np.zeros((2, 1))}
    run = assert_lossless(replace(setting, parts=parts, test=test, categories={"a": setting.categories["b"]}))
    assert run.active.share.own.categories == {0: (0, 2, 5)}
    assert run.active.share.categories == {"a0": ("c0", "c1", "c2", "c3", "c4", "c5")}


def test_a_share_keeps_the_names_of_its_own_categories_only() -> None:
    run = rich_setting(67, "binary").run()
    assert run.active.share.categories == {}
    assert run.passive["left"].share.categories == {"left2": ("a", "b", "c")}
    assert run.passive["right"].share.categories == {"right2": tuple("abcdefg")}


def test_names_of_categories_do_not_travel() -> None:
    """The active party learns numbers of categories, in the order in which the owner keeps them."""
    setting = rich_setting(68, "binary")
    names = {"left": {2: ("secretive", "private", "hidden")}, "right": {2: tuple(f"secretive{n}" for n in range(7))}}
    run = replace(setting, categories=names).run()
    frames = [frame for wire in run.wires.values() for _, frame in wire.sent]
    assert not any(b"secretive" in frame or b"hidden" in frame for frame in frames)
    assert any(each.categories for party in ("left", "right") for each in run.views[party].observed(OwnSplit))
    told = [split for each in run.views["left"].received(WinningSplits) for split in each.message.splits.value]
    assert any(split.categories for split in told)
    kinds = {bytes(each.message.kinds) for each in run.views["active"].received(LevelHistograms)}
    assert any(1 in kind for kind in kinds)


def test_sets_for_several_classes_separate_what_one_direction_separates() -> None:
    """Categories lie on a line of class shares: the ends of the line part first."""
    rng = np.random.default_rng(5)
    codes = rng.integers(0, 8, 400)
    labels = np.where(rng.random(400) < codes / 8, 1 + rng.integers(0, 2, 400), 0)
    labels[:3] = (0, 1, 2)
    setting = categorical(codes.astype(float).tolist(), labels.tolist(), [0.0], max_cat_to_onehot=1)
    run = assert_lossless(replace(setting, classes=("0", "1", "2")))
    split = as_reference(run)[0].splits[0]
    assert split.categories is not None
    low = set(split.categories) if 0 in split.categories else set(range(8)) - set(split.categories)
    assert low == set(range(len(low)))
