"""Mixed and layered mode: whose columns may split what, and what that spares the others from seeing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from equivalence import NAMES, assert_lossless, assert_same, encrypted, rich_setting

from crossing import crossed
from labelward.errors import JobError
from labelward.messages.tree import LevelHistograms, LevelRequest, OwnSplit, TreeStart, WinningSplits
from labelward.protocols.secureboost.params import SecureBoost
from refusals import refused
from wiring import Run, Setting, make_labels, make_parts


def owners(run: Run) -> list[set[int]]:
    return [set(tree.owners) for tree in run.active.share.trees]


def mixed(targets: str = "binary", **params: Any) -> Setting:
    return rich_setting(151, targets, rows=90, **{"mode": "mixed", "trees": 7} | params)


def layered(targets: str = "binary", **params: Any) -> Setting:
    return rich_setting(152, targets, rows=120, **{"mode": "layered", "depth": 4, "passive_depth": 2} | params)


# -- mixed -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("targets", ["binary", "classes", "quantities"])
def test_parties_take_turns(targets: str) -> None:
    run = assert_lossless(mixed(targets))
    assert owners(run) == [{0}, {1}, {2}, {0}, {1}, {2}, {0}]


def test_turns_with_samples_and_a_tree_for_each_class() -> None:
    """A round's trees have one owner; column samples are counted by the trees in which a party takes part."""
    given = mixed("classes", multi_strategy="one_output_per_tree", trees=4, feature_fraction=0.5, row_fraction=0.8)
    run = assert_lossless(given)
    outputs = np.array([tree.output for tree in run.active.share.trees])
    assert np.sort(outputs.reshape(4, 3)).tolist() == [[0, 1, 2]] * 4
    assert all(each <= {position // 3 % 3} for position, each in enumerate(owners(run)))


def test_an_active_party_without_columns_has_no_turn() -> None:
    parts = {"a": np.empty((60, 0))} | make_parts(153, 60, {"b": 2, "c": 2})
    labels = make_labels(153, {"b": parts["b"], "c": parts["c"]})
    run = assert_lossless(Setting(parts, labels, SecureBoost(trees=4, depth=2, mode="mixed")))
    assert owners(run) == [{1}, {2}, {1}, {2}]


def test_in_its_turn_a_party_sees_only_rows_of_its_own_splits() -> None:
    """Of the other trees it sees nothing at all; of its own it is never told of another's split."""
    given = mixed(row_fraction=0.8)
    run = given.run()
    for position, party in enumerate(NAMES):
        view = run.views[party]
        if position == 0:
            assert {each.peer for each in view.received(LevelHistograms)} == {"left", "right"}
            continue
        trees = [each.message.tree for each in view.received(TreeStart)]
        assert trees == list(range(2))
        assert all(each.message.splits.value == () for each in view.received(LevelRequest))
        chosen = sum(len(each.message.splits.value) for each in view.received(WinningSplits))
        assert chosen == len(list(view.observed(OwnSplit))) == run.active.share.records_of(party)


def test_mixed_under_encryption() -> None:
    given = mixed("classes", trees=3)
    plain, secret = encrypted(given)
    assert_same(plain, secret)


# -- layered -----------------------------------------------------------------------------------------------------------


@crossed("targets,passive_depth,candidates", ["binary", "classes"], [1, 2, 3], ["global", "node"])
def test_layers(targets: str, passive_depth: int, candidates: str) -> None:
    run = assert_lossless(layered(targets, passive_depth=passive_depth, candidates=candidates))
    for tree in run.active.share.trees:
        for node, owner in zip(tree.nodes, tree.owners, strict=True):
            assert (owner > 0) == (depth_of(node) < passive_depth)
    assert any(owner == 0 for tree in run.active.share.trees for owner in tree.owners)


def depth_of(node: int) -> int:
    return (node + 1).bit_length() - 1


def test_passive_parties_see_nothing_below_their_layers() -> None:
    """Their own splits above, and those of others where they go on; no row of the active party's splits."""
    given = layered(row_fraction=0.8)
    run = given.run()
    below = 0
    for party in NAMES[1:]:
        view = run.views[party]
        for each in view.received(LevelRequest):
            assert all(depth_of(node) < 2 for node in each.message.build)
            assert all(depth_of(split.node) < 1 for split in each.message.splits.value)
            assert each.message.depth <= 2
        assert all(depth_of(own.node) < 2 for own in view.observed(OwnSplit))
        assert {each.message.depth for each in view.received(LevelRequest) if each.message.build} == {0, 1}
    for tree in run.active.share.trees:
        below += sum(depth_of(node) >= 2 for node in tree.nodes)
    assert below > 2


def test_layers_under_encryption() -> None:
    assert_same(*encrypted(layered("quantities")))


def test_layers_need_columns_below() -> None:
    given = replace(layered(), parts={**layered().parts, "active": np.empty((120, 0))}, test=None)
    with refused(JobError, "conflict", field="[model] mode", value="layered"):
        given.run()
