"""Purity threshold: what passive parties see of pure nodes, checked on the views of whole runs with the true labels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from bounded import known_nodes
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from blames import refused_about
from labelward.defenses.id_lmid import IdLmid
from labelward.defenses.local_trees import LocalTrees
from labelward.defenses.purity_threshold import PurityThreshold
from labelward.errors import JobError, PolicyError
from labelward.messages.tree import TreeStart
from labelward.policy.base import CandidateSplits, PolicyContext
from labelward.policy.chain import TALLIES
from labelward.protocols.secureboost.params import FederatedForest, SecureBoost, TreeModel
from refusals import refused
from wiring import Run, Setting, make_labels, make_parts, make_targets, readable_content


def setting(params: TreeModel, parties: int, classes: int = 2, rows: int = 250, seed: int = 81) -> Setting:
    parts = make_parts(seed, rows, dict.fromkeys(("active", "left", "right")[:parties], 2))
    labels = make_labels(seed, parts) if classes == 2 else make_targets(seed, parts, "classes", classes)
    return Setting(parts, labels, params, tuple(map(str, range(classes))))


def purest(run: Run, labels: NDArray[np.int64]) -> tuple[int, float]:
    """Return how many nodes but roots passive parties know, and the largest purity of one, among the tree's rows."""
    purities = [
        np.bincount(labels[inside]).max() / inside.sum()
        for party in run.passive
        for nodes in known_nodes(run.views[party])
        for inside in nodes.values()
    ]
    return len(purities), float(max(purities, default=0.0))


@given(
    seed=st.integers(0, 2**20),
    parties=st.integers(2, 3),
    classes=st.integers(2, 3),
    threshold=st.sampled_from([0.55, 0.7, 0.9, 1.0]),
    row_fraction=st.sampled_from([0.7, 1.0]),
    forest=st.booleans(),
)
@settings(max_examples=25, deadline=None)
def test_no_visible_node_exceeds_the_threshold(
    seed: int, parties: int, classes: int, threshold: float, row_fraction: float, forest: bool
) -> None:
    params = (FederatedForest if forest else SecureBoost)(trees=2, depth=4, bins=8, row_fraction=row_fraction)
    given_setting = setting(params, parties, classes, rows=120, seed=seed)
    run = given_setting.run(policies=(PurityThreshold(threshold=threshold),))
    assert purest(run, given_setting.labels)[1] <= threshold


@pytest.mark.parametrize("parties", [2, 3])
def test_the_threshold_binds(parties: int) -> None:
    """Undefended, the same data show purer nodes; defended, some are seen, some hidden, and the model learns."""
    given_setting = setting(SecureBoost(trees=3, depth=4, bins=16), parties, rows=400)
    assert purest(given_setting.run(), given_setting.labels)[1] > 0.9
    run = given_setting.run(policies=(PurityThreshold(threshold=0.8),))
    seen, most = purest(run, given_setting.labels)
    assert seen >= 4
    assert 0.6 < most <= 0.8
    assert run.active.tally["refused_candidates"] > 0
    assert run.active.tally["hidden_splits"] > 0
    assert np.mean((run.active.margins[:, 0] > 0) == given_setting.labels) > 0.75  # half would be a guess


def test_a_threshold_of_1_changes_nothing() -> None:
    given_setting = setting(SecureBoost(trees=2, depth=4, bins=8), 3)
    plain, run = given_setting.run(), given_setting.run(policies=(PurityThreshold(threshold=1.0),))
    assert run.active.share == plain.active.share
    assert run.active.tally == dict.fromkeys(TALLIES, 0)
    for party in run.passive:
        assert readable_content(run.views[party]) == readable_content(plain.views[party])


def test_a_root_that_exceeds_it_grows_a_tree_that_nobody_sees() -> None:
    """Nine of ten rows are of one class: no split has children both of which are below .8."""
    given_setting = setting(SecureBoost(trees=2, depth=4, bins=8), 2)
    labels = (np.arange(250) % 10 == 0).astype(np.int64)
    run = given_setting.run(policies=(PurityThreshold(threshold=0.8),), labels=labels)
    assert purest(run, labels)[0] == 0
    assert run.passive["left"].share.own.columns == ()
    assert {owner for tree in run.active.share.trees for owner in tree.owners} == {0}


def test_a_candidate_is_refused_for_either_child() -> None:
    """Of 8 + 8 rows: 4 + 4 left are even; 3 + 1 left have purity .75; 6 + 7 leave 2 + 1, two thirds."""
    candidates = CandidateSplits(
        tree=0,
        depth=0,
        owner="left",
        owner_is_active=False,
        nodes=(0,),
        left=np.array([[4, 4], [3, 1], [6, 7]])[None, None],
        node=np.array([[8, 8]]),
        totals=np.array([8, 8]),
    )
    for threshold, allowed in ((0.75, [True, True, True]), (0.74, [True, False, True]), (0.66, [True, False, False])):
        assert PurityThreshold(threshold=threshold).split_candidates(candidates).tolist() == [[allowed]]
    active = replace(candidates, owner="active", owner_is_active=True)
    assert PurityThreshold(threshold=0.51).split_candidates(active).all()


def told_pairs(run: Run, labels: NDArray[np.int64], threshold: float) -> tuple[int, int]:
    """Return how many splits passive parties know, and of how many of these both children exceed the threshold."""
    told = exceeding = 0
    for party in run.passive:
        for nodes in known_nodes(run.views[party]):
            for node in nodes:
                if node % 2 and node + 1 in nodes:
                    pair = [np.bincount(labels[nodes[each]]).max() / nodes[each].sum() for each in (node, node + 1)]
                    told, exceeding = told + 1, exceeding + (min(pair) > threshold)
    return told, exceeding


@given(
    seed=st.integers(0, 2**20),
    parties=st.integers(2, 3),
    threshold=st.sampled_from([0.55, 0.7, 0.9]),
    forest=st.booleans(),
)
@settings(max_examples=15, deadline=None)
def test_algorithm_4_tells_no_split_into_two_purer_nodes(
    seed: int, parties: int, threshold: float, forest: bool
) -> None:
    params = (FederatedForest if forest else SecureBoost)(trees=2, depth=4, bins=8)
    given_setting = setting(params, parties, rows=120, seed=seed)
    run = given_setting.run(policies=(PurityThreshold(threshold=threshold, hide="algorithm-4"),))
    assert told_pairs(run, given_setting.labels, threshold)[1] == 0
    below = given_setting.run(policies=(PurityThreshold(threshold=threshold, hide="below"),))
    for hidden in (run, below):  # below a node that exceeds it nothing is known
        for party in hidden.passive:
            for nodes in known_nodes(hidden.views[party]):
                inner = [nodes[(node - 1) // 2] for node in nodes if (node - 1) // 2 in nodes]
                purities = [np.bincount(given_setting.labels[rows]).max() / rows.sum() for rows in inner]
                assert max(purities, default=0.0) <= threshold


def test_the_form_of_section_v_tells_what_algorithm_4_hides() -> None:
    """So the test above can fail; single children above the threshold are told by both."""
    given_setting = setting(SecureBoost(trees=5, depth=4, bins=16), 3, rows=400)
    runs = {
        hide: given_setting.run(policies=(PurityThreshold(threshold=0.7, hide=hide),))
        for hide in ("below", "algorithm-4", "children")
    }
    assert told_pairs(runs["below"], given_setting.labels, 0.7)[1] > 0
    assert told_pairs(runs["algorithm-4"], given_setting.labels, 0.7)[1] == 0
    most = {hide: purest(run, given_setting.labels)[1] for hide, run in runs.items()}
    assert most["children"] <= 0.7 < min(most["below"], most["algorithm-4"])


@pytest.mark.parametrize(
    ("hide", "allowed"), [("children", [1, 0, 0, 0]), ("below", [1] * 4), ("algorithm-4", [1, 1, 0, 1])]
)
def test_what_each_form_refuses(hide: Any, allowed: list[int]) -> None:
    """Of 8 + 8 rows and a threshold of .7: even children; 3 + 1 and 5 + 7; 8 + 0 and 0 + 8; 4 + 1 and 4 + 7."""
    left = np.array([[4, 4], [3, 1], [8, 0], [4, 1]])
    candidates = CandidateSplits(
        tree=0,
        depth=0,
        owner="left",
        owner_is_active=False,
        nodes=(0, 1),
        left=np.stack([left, left])[:, None],
        node=np.array([[8, 8], [20, 8]]),
        totals=np.array([8, 8]),
    )
    policy = PurityThreshold(threshold=0.7, hide=hide)
    (first,), (second,) = policy.split_candidates(candidates)
    assert first.tolist() == allowed
    if hide != "children":
        assert not second.any()  # the node itself exceeds it: 20 of 28


def test_it_composes() -> None:
    given_setting = setting(SecureBoost(trees=3, depth=4, bins=16), 3, rows=300)
    chain = (LocalTrees(count=1), PurityThreshold(threshold=0.8), IdLmid(xi=0.1))
    run = given_setting.run(policies=chain)
    seen, most = purest(run, given_setting.labels)
    assert seen > 0
    assert most <= 0.8
    assert set(run.active.share.trees[0].owners) == {0}
    assert len(list(run.views["left"].received(TreeStart))) == 2
    assert given_setting.run(policies=chain[::-1]).active.share == run.active.share


@pytest.mark.parametrize("threshold", [0, -0.5, 1.01, float("nan"), True, "0.8", None])
def test_thresholds_that_cannot_be(threshold: Any) -> None:
    with refused(JobError, "range" if type(threshold) in (int, float) else "type", field="threshold"):
        PurityThreshold(threshold=threshold)


@pytest.mark.parametrize(
    ("threshold", "changes", "value", "about"),
    [
        (0.5, {}, 0.5, "2 classes"),
        (0.25, {"classes": 4}, 0.25, "4 classes"),
        (0.8, {"classes": 0}, None, "regression"),
        (0.8, {"replace": True}, None, "replace"),
        (0.8, {"sampling": "goss"}, "goss", "sampling"),
    ],
)
def test_set_ups_that_make_no_sense(threshold: float, changes: dict[str, Any], value: object, about: str) -> None:
    setup = PolicyContext(
        model="secureboost", trees=2, classes=2, active_columns=2, passive=("left",), row_fraction=1.0
    )
    PurityThreshold(threshold=0.26).check(replace(setup, classes=4))
    with refused_about(about, PolicyError, "inapplicable", value=value):
        PurityThreshold(threshold=threshold).check(replace(setup, **changes))


@pytest.mark.parametrize("parties", [2, 3])
def test_below_hides_what_lies_below_pure_nodes(parties: int) -> None:
    """The paper's form: a pure node is known, and nothing below it."""
    given_setting = setting(SecureBoost(trees=3, depth=4, bins=16), parties, rows=400)
    run = given_setting.run(policies=(PurityThreshold(threshold=0.8, hide="below"),))
    assert purest(run, given_setting.labels)[1] > 0.8
    seen = 0
    for party in run.passive:
        for nodes in known_nodes(run.views[party]):
            for node in nodes.keys() - {0, 1, 2}:
                held = given_setting.labels[nodes[(node - 1) // 2]]
                assert np.bincount(held).max() / len(held) <= 0.8
                seen += 1
    assert seen >= 4
