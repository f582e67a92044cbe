"""What defenses promise, checked on the views of whole runs with the true labels."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labelward.defenses.id_lmid import IdLmid
from labelward.defenses.local_trees import LocalTrees
from labelward.errors import PolicyError
from labelward.kernels.information import joint_information
from labelward.messages.tree import ChosenSplits, Level, OwnSplit, TrainingEnd, TreeStart
from labelward.party.policy import CandidateSplits, Policy, Schedule
from labelward.party.view import View
from labelward.protocols.tree.params import FederatedForest, SecureBoost, TreeModel
from wiring import Run, Setting, joined, make_labels, make_parts, make_targets, readable_content, with_missing

ROUNDING = 1e-12  # nats: the bound is a sum of a few logarithms, each exact to about 1e-16


def setting(seed: int, parties: int, params: TreeModel, rows: int = 150, active_columns: int = 2) -> Setting:
    names = ["active", "left", "right"][:parties]
    parts = make_parts(seed, rows, {name: active_columns if name == "active" else 2 for name in names})
    return Setting(parts, make_labels(seed, parts), params)


def rich(given_setting: Setting, seed: int, classes: int, missing: float) -> Setting:
    """Return the setting with several classes, gaps, and a categorical column at the last party."""
    rng, rows = np.random.default_rng(seed), len(given_setting.labels)
    parts = with_missing(seed, given_setting.parts, missing)
    last = list(parts)[-1]
    parts[last] = np.column_stack([parts[last], rng.integers(0, 6, rows)])
    return replace(
        given_setting,
        parts=parts,
        labels=make_targets(seed, given_setting.parts, "classes", classes),
        classes=tuple(map(str, range(classes))),
        categories={last: {2: tuple("abcdef")}},
    )


def known_splits(view: View, tree: int) -> dict[int, np.ndarray]:
    """Return which of a node's rows go left, for each split of a tree that the party was told or owns."""
    splits = {
        split.node: split.left
        for received in view.received(Level)
        if received.message.tree == tree
        for split in received.message.splits
    }
    splits |= {own.node: own.left for own in view.observed(OwnSplit) if own.tree == tree}
    return {node: mask.unpack(mask.total) for node, mask in splits.items()}


def known_nodes(view: View) -> list[dict[int, np.ndarray]]:
    """Return for each tree the rows (bool) of every node but the root that the party can tell."""
    trees = []
    for received in view.received(TreeStart):
        tree = received.message.tree
        rows_of = {0: np.flatnonzero(received.message.rows.unpack(view.rows))}
        for node, left in sorted(known_splits(view, tree).items()):
            rows_of[2 * node + 1], rows_of[2 * node + 2] = rows_of[node][left], rows_of[node][~left]
        rows = {}
        for node, positions in rows_of.items():
            if node:
                rows[node] = np.zeros(view.rows, dtype=np.bool_)
                rows[node][positions] = True
        trees.append(rows)
    return trees


def bound(inside: np.ndarray, labels: np.ndarray) -> float:
    """Eq. 3 of the ID2Graph paper, from the definition: the larger divergence of a side's classes from all rows'."""
    largest = 0.0
    for side in (labels[inside], labels[~inside]):
        divergence = 0.0
        for label, count in Counter(side.tolist()).items():
            share = count / len(side)
            divergence += share * math.log(share / float(np.mean(labels == label)))
        largest = max(largest, divergence)
    return largest


def assert_bounded(run: Run, labels: np.ndarray, xi: float) -> int:
    """Every node that any passive party can tell keeps the bound; return how many there are."""
    seen = 0
    for party in run.passive:
        for nodes in known_nodes(run.views[party]):
            for inside in nodes.values():
                assert bound(inside, labels) <= xi + ROUNDING
                assert joint_information(inside.astype(int), labels) <= xi + ROUNDING
                seen += 1
    return seen


def assert_nothing_else_is_named(view: View) -> None:
    """A node that a message or observation names is the root, or a child of a split that the party knows."""
    for tree in (received.message.tree for received in view.received(TreeStart)):
        splits = known_splits(view, tree)
        named = set(splits)
        for received in view.received(Level):
            if received.message.tree == tree:
                named |= set(received.message.build)
        for chosen in view.received(ChosenSplits):
            if chosen.message.tree == tree:
                named |= {split.node for split in chosen.message.splits}
        assert all(node == 0 or (node - 1) // 2 in splits for node in named)


# -- ID-LMID ----------------------------------------------------------------------------------------------------------


@given(
    seed=st.integers(0, 2**20),
    parties=st.integers(2, 3),
    xi=st.sampled_from([0.0, 0.01, 0.05, 0.1, 0.3, 0.7]),
    candidates=st.sampled_from(["global", "node"]),
    active_columns=st.sampled_from([0, 2]),
)
@settings(max_examples=40)
def test_no_visible_node_exceeds_the_bound(
    seed: int, parties: int, xi: float, candidates: str, active_columns: int
) -> None:
    params = SecureBoost(trees=2, depth=4, bins=8, candidates=candidates)  # type: ignore[arg-type]
    given_setting = setting(seed, parties, params, active_columns=active_columns)
    run = given_setting.run(policies=(IdLmid(xi=xi),))
    assert_bounded(run, given_setting.labels, xi)
    for party in run.passive:
        assert_nothing_else_is_named(run.views[party])


@pytest.mark.parametrize("parties", [2, 3])
def test_the_bound_binds(parties: int) -> None:
    """Undefended, the same data show nodes beyond it; defended, some are seen, some hidden, and the model learns."""
    given_setting = setting(5, parties, SecureBoost(trees=3, depth=4, bins=16), rows=400)
    with pytest.raises(AssertionError):
        assert_bounded(given_setting.run(), given_setting.labels, 0.2)
    run = given_setting.run(policies=(IdLmid(xi=0.2),))
    assert assert_bounded(run, given_setting.labels, 0.2) >= 4
    tally = run.active.tally
    assert tally["refused_candidates"] > 0
    assert tally["hidden_splits"] > 0
    assert tally["given_up_splits"] == 0  # a passive party's candidate is refused before it can win
    correct = float(np.mean((run.active.margins[:, 0] > 0) == given_setting.labels))
    assert correct > 0.75  # half would be a guess


def test_a_candidate_is_refused_for_either_child() -> None:
    """Of 8 + 8 rows: 4 + 4 left tell nothing; 1 + 0 left are pure, log 2 = 0.693 nats; 8 + 7 leave a pure right."""
    left = np.array([[4, 4], [1, 0], [8, 7]])
    candidates = CandidateSplits(
        tree=0,
        depth=0,
        owner="left",
        owner_is_active=False,
        nodes=(0,),
        left=left[None, None],
        node=np.array([[8, 8]]),
        totals=np.array([8, 8]),
    )
    assert IdLmid(xi=0.69).split_candidates(candidates).tolist() == [[[True, False, False]]]
    assert IdLmid(xi=0.70).split_candidates(candidates).tolist() == [[[True, True, True]]]
    active = replace(candidates, owner="active", owner_is_active=True)
    assert IdLmid(xi=0.0).split_candidates(active).all()


def test_hidden_subtrees_appear_nowhere_in_a_view() -> None:
    """Splits below a hidden one are the active party's own, and no passive party is told a word of them."""
    given_setting = setting(6, 3, SecureBoost(trees=3, depth=4, bins=16), rows=400)
    run = given_setting.run(policies=(IdLmid(xi=0.15),))
    share, hidden = run.active.share, 0
    for party in run.passive:
        view = run.views[party]
        assert_nothing_else_is_named(view)
        for tree, shape in enumerate(share.trees):
            known = known_splits(view, tree)
            built = {n for each in view.received(Level) if each.message.tree == tree for n in each.message.build}
            for node, owner in zip(shape.nodes, shape.owners, strict=True):
                if node and (node - 1) // 2 not in known:  # the party does not know this node's rows
                    assert owner == 0
                    assert node not in known
                    assert node not in built
                    hidden += 1
    assert hidden > 0


def test_a_bound_of_nothing_shows_nothing() -> None:
    """At 0 nats every split that tells anything is hidden: no rows travel but the sample."""
    given_setting = setting(7, 2, SecureBoost(trees=2, depth=3, bins=8))
    run = given_setting.run(policies=(IdLmid(xi=0.0),))
    assert assert_bounded(run, given_setting.labels, 0.0) == 0
    assert run.passive["left"].share.own.columns == ()
    assert {owner for tree in run.active.share.trees for owner in tree.owners} <= {0}


@pytest.mark.parametrize("candidates", ["global", "node"])
def test_a_bound_beyond_all_changes_nothing(candidates: str) -> None:
    """The class counts that travel besides change no tree, and no part of a view but the active party's sums."""
    params = SecureBoost(trees=2, depth=4, bins=8, candidates=candidates)  # type: ignore[arg-type]
    given_setting = setting(8, 3, params)
    plain, defended = given_setting.run(), given_setting.run(policies=(IdLmid(xi=1e6),))
    assert defended.active.share == plain.active.share
    assert defended.active.margins.tobytes() == plain.active.margins.tobytes()
    assert defended.active.tally == {"refused_candidates": 0, "hidden_splits": 0, "given_up_splits": 0}
    for party, out in plain.passive.items():
        assert defended.passive[party].share == out.share
        assert readable_content(defended.views[party]) == readable_content(plain.views[party])


def test_the_bound_holds_under_encryption() -> None:
    """Purities travel packed beside gradients; decisions, shares and views are those of the plain run."""
    given_setting = setting(9, 3, SecureBoost(trees=2, depth=3, bins=8))
    policies = (IdLmid(xi=0.2),)
    plain, secret = (
        given_setting.run(policies=policies),
        given_setting.run(policies=policies, engine="paillier", bits=512),
    )
    assert_bounded(secret, given_setting.labels, 0.2)
    assert secret.active.share == plain.active.share
    assert secret.active.tally == plain.active.tally
    for party in plain.views:
        assert readable_content(secret.views[party]) == readable_content(plain.views[party])


# -- several classes, gaps, categories, forests ----------------------------------------------------------------------

KINDS: dict[str, Callable[[], TreeModel]] = {
    "a vector tree": lambda: SecureBoost(trees=2, depth=4, bins=8),
    "a tree for each class": lambda: SecureBoost(trees=2, depth=3, bins=8, multi_strategy="one_output_per_tree"),
    "in turns": lambda: SecureBoost(trees=4, depth=4, bins=8, mode="mixed"),
    "in layers": lambda: SecureBoost(trees=2, depth=4, bins=8, mode="layered"),
    "few leaves": lambda: SecureBoost(trees=2, depth=4, bins=8, max_leaves=6),
    "sets of categories": lambda: SecureBoost(trees=2, depth=4, bins=8, max_cat_to_onehot=1),
    "a forest": lambda: FederatedForest(trees=3, depth=4, bins=8),
    "a forest of one tree at a time": lambda: FederatedForest(trees=3, depth=4, bins=8, trees_at_once=1),
}


@given(
    seed=st.integers(0, 2**20),
    kind=st.sampled_from(sorted(KINDS)),
    classes=st.integers(2, 4),
    xi=st.sampled_from([0.0, 0.02, 0.1, 0.3, 0.7]),
    missing=st.sampled_from([0.0, 0.2]),
    candidates=st.sampled_from(["global", "node", "all"]),
    weighted=st.booleans(),
)
@settings(max_examples=60)
def test_no_visible_node_exceeds_the_bound_whatever_the_model(
    seed: int, kind: str, classes: int, xi: float, missing: float, candidates: str, weighted: bool
) -> None:
    """Class counts travel beside the gradients, or follow from them where a forest's gradients are the classes."""
    params = replace(KINDS[kind](), candidates=candidates)  # type: ignore[arg-type]
    given_setting = rich(setting(seed, 3, params, rows=100), seed, classes, missing)
    if weighted:
        given_setting.weights = np.random.default_rng(seed).uniform(0.5, 2.0, 100)
    run = given_setting.run(policies=(IdLmid(xi=xi),))
    assert_bounded(run, np.asarray(given_setting.labels), xi)
    for party in run.passive:
        assert_nothing_else_is_named(run.views[party])


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_the_bound_binds_whatever_the_model(kind: str) -> None:
    given_setting = rich(setting(17, 3, KINDS[kind](), rows=300), 17, 3, 0.1)
    labels = np.asarray(given_setting.labels)
    with pytest.raises(AssertionError):
        assert_bounded(given_setting.run(), labels, 0.25)
    run = given_setting.run(policies=(IdLmid(xi=0.25),))
    assert assert_bounded(run, labels, 0.25) >= 2
    assert run.active.tally["refused_candidates"] > 0


@pytest.mark.parametrize("kind", ["a vector tree", "a forest"])
def test_bounds_of_classes_under_encryption(kind: str) -> None:
    given_setting = rich(setting(18, 3, KINDS[kind](), rows=60), 18, 3, 0.1)
    policies = (IdLmid(xi=0.25),)
    plain = given_setting.run(policies=policies)
    secret = given_setting.run(policies=policies, engine="paillier", bits=512)
    assert secret.shares == plain.shares
    assert secret.active.tally == plain.active.tally
    for party in plain.views:
        assert readable_content(secret.views[party]) == readable_content(plain.views[party])


@pytest.mark.parametrize("kind", ["a vector tree", "a tree for each class", "a forest", "sets of categories"])
def test_a_bound_beyond_all_changes_nothing_whatever_the_model(kind: str) -> None:
    given_setting = rich(setting(19, 3, KINDS[kind]()), 19, 3, 0.1)
    plain, defended = given_setting.run(), given_setting.run(policies=(IdLmid(xi=1e6),))
    assert defended.shares == plain.shares
    for party in plain.passive:
        seen = readable_content(plain.views[party])
        assert readable_content(defended.views[party]) == seen


def test_a_forest_needs_no_flags_for_its_classes() -> None:
    """Its gradients are the classes: as many numbers travel with the defense as without."""
    for weights, more in ((None, 0), (np.linspace(0.5, 1.5, 150), 2)):
        given_setting = replace(rich(setting(20, 2, KINDS["a forest"]()), 20, 3, 0.0), weights=weights)
        numbers = []
        for policies in ((), (IdLmid(xi=0.1),)):
            run = given_setting.run(policies=policies)
            first = next(iter(run.views["left"].received(TreeStart))).message.gradients
            assert first is not None
            numbers.append(len(first.layout.bounds))
        assert numbers[1] == numbers[0] + more


def test_bags_are_bounded_where_that_is_asked_for() -> None:
    """``sampled``: nodes of the rows that a tree grows on; the bound is over all training rows, as in the paper."""
    params = FederatedForest(trees=4, depth=4, bins=8, row_fraction=0.8)
    given_setting = rich(setting(21, 3, params, rows=200), 21, 3, 0.1)
    labels = np.asarray(given_setting.labels)
    with pytest.raises(AssertionError):
        assert_bounded(given_setting.run(), labels, 0.25)
    run = given_setting.run(policies=(IdLmid(xi=0.25, sampled=True),))
    assert assert_bounded(run, labels, 0.25) >= 4


def test_id_lmid_refuses_what_it_cannot_bound() -> None:
    bagged = FederatedForest(trees=2, depth=2, replace=True)
    with pytest.raises(PolicyError, match="replace"):
        setting(22, 2, bagged).run(policies=(IdLmid(xi=0.1, sampled=True),))
    with pytest.raises(PolicyError, match="quantities"):
        replace(setting(22, 2, SecureBoost(trees=1)), classes=()).run(policies=(IdLmid(xi=0.1),))


@pytest.mark.parametrize("sampled", [False, True])
def test_id_lmid_refuses_rows_that_are_chosen_by_their_gradients(sampled: bool) -> None:
    """Which rows have large gradients is told before any node is: no bound on nodes covers that."""
    params = SecureBoost(trees=2, depth=2, sampling="goss")
    with pytest.raises(PolicyError, match="'id-lmid'"):
        setting(23, 2, params).run(policies=(IdLmid(xi=0.1, sampled=sampled),))


# -- local trees ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mode", "total", "shared"), [("replace", 3, 2), ("add", 4, 3)])
def test_local_trees_are_the_active_partys_alone(mode: str, total: int, shared: int) -> None:
    given_setting = setting(12, 3, SecureBoost(trees=3, depth=3, bins=8, row_fraction=0.9))
    run = given_setting.run(policies=(LocalTrees(count=1, mode=mode),))  # type: ignore[arg-type]
    trees = run.active.share.trees
    assert len(trees) == total
    assert set(trees[0].owners) == {0}
    alone = joined(Setting({"active": given_setting.parts["active"]}, given_setting.labels, given_setting.params))
    assert trees[0] == alone.trees[0]
    for party in run.passive:
        view = run.views[party]
        assert [each.message.tree for each in view.received(TreeStart)] == list(range(shared))
        assert [each.message.trees for each in view.received(TrainingEnd)] == [shared]
        assert {each.message.tree for each in view.received(Level)} == set(range(shared))
        assert all(frame_tree < shared for frame_tree in (own.tree for own in view.observed(OwnSplit)))
        records = {
            record
            for tree in trees
            for owner, record in zip(tree.owners, tree.records, strict=True)
            if run.active.share.parties[owner] == party
        }
        assert len(records) == len(list(view.observed(OwnSplit)))


def test_local_rounds_of_a_tree_for_each_class() -> None:
    """A round is local as a whole: the passive parties see no class's tree of it."""
    params = SecureBoost(trees=3, depth=2, bins=8, multi_strategy="one_output_per_tree")
    given_setting = rich(setting(24, 2, params), 24, 3, 0.1)
    run = given_setting.run(policies=(LocalTrees(count=1),))
    trees = run.active.share.trees
    assert [tree.output for tree in trees] == [0, 1, 2] * 3
    assert all(set(tree.owners) <= {0} for tree in trees[:3])
    assert [each.message.tree for each in run.views["left"].received(TreeStart)] == list(range(6))


@pytest.mark.parametrize("classes", [0, 3])
def test_local_trees_whatever_the_labels(classes: int) -> None:
    """Vector trees, and quantities with gaps."""
    given_setting = rich(setting(25, 3, SecureBoost(trees=3, depth=3, bins=8)), 25, classes or 3, 0.1)
    given_setting = given_setting if classes else replace(given_setting, classes=())
    run = given_setting.run(policies=(LocalTrees(count=2),))
    alone = replace(given_setting, parts={"active": given_setting.parts["active"]}, categories={})
    assert run.active.share.trees[:2] == joined(alone).trees[:2]
    assert [each.message.tree for each in run.views["right"].received(TreeStart)] == [0]


def test_local_trees_do_nothing_for_a_forest() -> None:
    with pytest.raises(PolicyError, match="forest"):
        setting(26, 2, FederatedForest(trees=2)).run(policies=(LocalTrees(count=1),))


def test_all_trees_local() -> None:
    """Nothing is encrypted, and the passive party learns that it was not needed."""
    given_setting = setting(13, 2, SecureBoost(trees=2, depth=3))
    run = given_setting.run(policies=(LocalTrees(count=2),))
    received = {name for kind, name in run.views["left"].counts() if kind == "received"}
    assert received == {"Hello", "KeyOffer", "TrainingEnd", "PredictRequest"}
    alone = joined(Setting({"active": given_setting.parts["active"]}, given_setting.labels, given_setting.params))
    assert run.active.share.trees == alone.trees
    assert run.active.counts.encryptions == 0


class OneParty(Policy):
    """Only one passive party takes part in each tree, in turn."""

    kind = "one-party"

    def schedule(self, schedule: Schedule) -> Schedule:
        turns = ("left", "right")
        return Schedule(participants=tuple(frozenset({turns[n % 2]}) for n in range(len(schedule.participants))))


def test_a_party_counts_the_trees_in_which_it_takes_part() -> None:
    """From 0 and without gaps, so that it does not learn of the others."""
    run = setting(14, 3, SecureBoost(trees=5, depth=2, bins=8)).run(policies=(OneParty(),))
    for party, number in (("left", 3), ("right", 2)):
        view = run.views[party]
        assert [each.message.tree for each in view.received(TreeStart)] == list(range(number))
        assert [each.message.trees for each in view.received(TrainingEnd)] == [number]
    for position, tree in enumerate(run.active.share.trees):
        assert set(tree.owners) <= {0, 1 + position % 2}


# -- together ---------------------------------------------------------------------------------------------------------


def test_local_trees_and_id_lmid_compose() -> None:
    given_setting = setting(15, 3, SecureBoost(trees=3, depth=4, bins=16), rows=300)
    run = given_setting.run(policies=(LocalTrees(count=1), IdLmid(xi=0.2)))
    assert len(run.active.share.trees) == 3
    assert set(run.active.share.trees[0].owners) == {0}
    assert assert_bounded(run, given_setting.labels, 0.2) > 0
    for party in run.passive:
        assert len(list(run.views[party].received(TreeStart))) == 2
    again = given_setting.run(policies=(IdLmid(xi=0.2), LocalTrees(count=1)))
    assert again.active.share == run.active.share


def test_id_lmid_refuses_row_sampling() -> None:
    """The owner of a split routes the rows out of the sample itself: spaces that no sum covers."""
    with pytest.raises(PolicyError, match=r"cannot keep its bound with row_fraction 0\.8"):
        setting(16, 2, SecureBoost(trees=1, depth=2, row_fraction=0.8)).run(policies=(IdLmid(xi=0.1),))


def test_what_was_applied_stands_in_the_active_partys_transcript() -> None:
    given_setting = setting(16, 2, SecureBoost(trees=2, depth=4, bins=16), rows=300)
    run = given_setting.run(policies=(LocalTrees(count=1, mode="add"), IdLmid(xi=0.1)))
    declared, accounts = [
        [each for each in run.views["active"].applied() if each["stage"] == stage] for stage in ("start", "end")
    ]
    assert [each["kind"] for each in declared] == ["local-trees", "id-lmid"]
    assert declared[1]["refused_candidates"] == 0
    first, second = accounts
    assert (first["kind"], first["parameters"]) == ("local-trees", {"count": 1, "mode": "add"})
    assert (second["kind"], second["parameters"]) == ("id-lmid", {"xi": 0.1, "sampled": False})
    assert first["points"] == ["schedule"]
    assert second["points"] == ["before_instance_space", "split_candidates"]
    assert {name: second[name] for name in run.active.tally} == run.active.tally
    assert second["refused_candidates"] > 0
    assert list(run.views["left"].applied()) == []
    assert list(given_setting.run().views["active"].applied()) == []
